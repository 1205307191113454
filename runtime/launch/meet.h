/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.h - exchange facts among the tasks of a step, since Slurm gives each task only its own
 *
 * The tasks meet in a directory that all nodes share, through libddp's store (store/store.h). The
 * store recognizes files that earlier steps left, and removes the files that it created.
 */
#ifndef DDP_MEET_H
#define DDP_MEET_H

#include <stdint.h>

#include "format.h"

/* Facts about a task that other tasks need. */
struct meet_card {
	char gpus[1024]; /* SLURM_STEP_GPUS; if Slurm bound the task to GPUs, only these GPUs */
};

struct meet;

/*
 * Create [directory] if necessary, publish [card] in it as [rank] of [size] on [host], and wait
 * until all tasks of [job] have done so. Returns 0 with [meet]. Returns -1 with a message after
 * [limit_s] seconds, or if the directory cannot be used.
 */
int meet_open(struct meet **meet, int rank, int size, const char *host, const char *job,
	      const char *directory, double limit_s, const struct meet_card *card,
	      struct ddp_message *message);

/*
 * Read the card of [rank]. Must not be called after meet_share(). Returns 0, or -1 with a message.
 */
int meet_read(struct meet *meet, int rank, struct meet_card *card, struct ddp_message *message);

/*
 * Copy [text] from rank 0 to all tasks. In each task, [text] is a buffer of [size] bytes, at most
 * 60000. Returns 0, or -1 with a message.
 */
int meet_share(struct meet *meet, char *text, size_t size, struct ddp_message *message);

/* Leave the meeting. The last task removes the directory. [meet] may be NULL. */
void meet_close(struct meet *meet);

#endif /* DDP_MEET_H */
