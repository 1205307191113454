/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop.h - why a training ends before its time: signals, and the end of the job's time
 */
#ifndef TRAIN_STOP_H
#define TRAIN_STOP_H

#include <stdbool.h>

struct run;

struct stop {
	double time;	  /* seconds since 1970 at which to stop, 0: none */
	bool agreed;	  /* all ranks stop after this step */
	char reason[192]; /* why the run ended */
	char cause[32];	  /* "time", "SIGUSR1": why it stopped early */
};

/*
 * Take SIGTERM, SIGINT, SIGUSR1 and SIGHUP, unless ignored, from here on, and in threads that are
 * made later: so before there are any. They still end the program at once.
 */
void stop_watch(void);

/* From here on they are noted, for stop_wanted(); a second SIGINT ends the program. */
void stop_politely(void);

/* Whether this rank wants to stop. */
bool stop_wanted(const struct stop *stop);

/* Put into run->stop why the ranks stop. Collective. */
int stop_explain(struct run *run);

/*
 * For ddp-run, write "stopped: CAUSE; checkpoint of step N" into the file that TORCHELASTIC_ERROR_FILE names. Does nothing
 * without that variable. By rank 0, after the checkpoint is written.
 */
void stop_record(const struct run *run);

#endif /* TRAIN_STOP_H */
