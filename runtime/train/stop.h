/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop.h - signals that ask a training to stop
 */
#ifndef TRAIN_STOP_H
#define TRAIN_STOP_H

/*
 * Take SIGTERM, SIGINT, SIGUSR1 and SIGHUP, unless ignored, from here on, and in threads that are
 * made later: so before there are any. They still end the program at once.
 */
void stop_watch(void);

/* From here on they are noted, for stop_wanted(); a second SIGINT ends the program. */
void stop_politely(void);

#endif /* TRAIN_STOP_H */
