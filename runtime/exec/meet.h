/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.h - exchange facts among the tasks of a step that Slurm gives to each of them alone
 *
 * They meet in a directory that all nodes share, through libddp's store (store/store.h), which
 * recognizes leftovers of earlier steps and removes what it created.
 */
#ifndef DDP_EXEC_MEET_H
#define DDP_EXEC_MEET_H

#include <stdint.h>

#include "core/format.h"

/* Facts about a task that other tasks need. */
struct meet_card {
	uint32_t node_id; /* SLURM_NODEID */
	char gpus[1024];  /* SLURM_STEP_GPUS; if the task is bound, its own GPUs only */
};

struct meet;

/*
 * Meet the tasks with the same [job] in [directory], which is created if necessary, as [rank] of
 * [size] on [host]; publish [card]. Returns 0 with [meet]; or -1 with a message, after [limit_s]
 * seconds or if the directory cannot be used.
 */
int meet_open(struct meet **meet, int rank, int size, const char *host, const char *job,
	      const char *directory, double limit_s, const struct meet_card *card,
	      struct ddp_message *message);

/* Read the card of [rank]. Not after meet_share(). Returns 0, or -1 with a message. */
int meet_read(struct meet *meet, int rank, struct meet_card *card, struct ddp_message *message);

/*
 * Copy [text] from rank 0 to all tasks, whose [text] has space for [size] bytes, at most 60000.
 * Returns 0, or -1 with a message.
 */
int meet_share(struct meet *meet, char *text, size_t size, struct ddp_message *message);

/* Leave the meeting. The last task removes the directory. [meet] may be NULL. */
void meet_close(struct meet *meet);

#endif /* DDP_EXEC_MEET_H */
