/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.h - tasks of a step exchange facts that each of them alone has from Slurm
 *
 * They meet in a directory that all nodes share, by libddp's store (store/store.h), which distinguishes leftovers of
 * earlier steps from this one and removes what it made.
 */
#ifndef DDP_EXEC_MEET_H
#define DDP_EXEC_MEET_H

#include <stdint.h>

#include "core/format.h"

/* Facts of a task for the others. */
struct meet_card {
	uint32_t node_id; /* SLURM_NODEID */
	char gpus[1024];  /* SLURM_STEP_GPUS, which is the task's alone once it is bound */
};

struct meet;

/*
 * As [rank] of [size] on [host], meet the tasks that have the same [job] in [directory], which is made, and give them [card].
 * Returns 0 with [meet], or -1 with a message after [limit_s] seconds, or if the directory cannot be used.
 */
int meet_open(struct meet **meet, int rank, int size, const char *host, const char *job,
	      const char *directory, double limit_s, const struct meet_card *card,
	      struct ddp_message *message);

/* Read the card of [rank], until meet_share() is called. Returns 0, or -1 with a message. */
int meet_read(struct meet *meet, int rank, struct meet_card *card, struct ddp_message *message);

/*
 * Give [text] of rank 0 to all tasks, in whose [text] there are [size] bytes, at most 60000.
 * Returns 0, or -1 with a message.
 */
int meet_share(struct meet *meet, char *text, size_t size, struct ddp_message *message);

/* Leave. The last task removes the directory. NULL is legal. */
void meet_close(struct meet *meet);

#endif /* DDP_EXEC_MEET_H */
