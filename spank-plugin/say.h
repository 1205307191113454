/* SPDX-License-Identifier: Apache-2.0 */
/*
 * say.h - lines to people, each with the prefix "ddp: "
 */
#ifndef DDP_SAY_H
#define DDP_SAY_H

/* Something is wrong and the step or task will not start. */
void ddp_say_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Worth knowing; reaches the user's terminal from srun and from the nodes alike. */
void ddp_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* DDP_SAY_H */
