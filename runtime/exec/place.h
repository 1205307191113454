/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - what this process is to Slurm, by its environment, and where rank 0 of its step can be reached
 */
#ifndef DDP_EXEC_PLACE_H
#define DDP_EXEC_PLACE_H

#include <stdbool.h>

#include "core/plan.h"

enum place {
	PLACE_ALONE, /* no Slurm, or a shell of a job: one rank */
	PLACE_TASK,  /* a task of an ordinary step */
	PLACE_WRONG,
};

/* Returns the place of a process with [env], PLACE_WRONG with a message if no rank can be there. */
enum place place_find(char *const *env, struct ddp_message *message);

/* Returns true if srun --ddp, or another ddp-exec, has set the variables of this very step. */
bool place_is_set_up(char *const *env);

/*
 * Read [task], but for node_rank, and the ranks of its node, [local_size] many, in [ranks], freed by free().
 * Returns 0, or -1 with a message.
 */
int place_read_task(char *const *env, struct ddp_task *task, uint32_t **ranks,
		    struct ddp_message *message);

/* Returns the number of the job, in a heterogeneous one that of the component that has [node]; the first's if [node] is NULL. */
uint32_t place_job(char *const *env, const char *node);

/*
 * Find the node of rank 0 from the step's list of nodes alone.
 * Returns 0, or -1 with a message if the tasks may be laid out in another order than that of the list.
 */
int place_first_node(char *const *env, const struct ddp_task *task, char *node, size_t size,
		     struct ddp_message *message);

/*
 * Find an address of this node, whose name is [node]: the name with [suffix]; the name, if it resolves here; the host's name, if
 * that does; else a numeric address.
 * Returns 0, or -1 with a message.
 */
int place_own_address(const char *node, const char *suffix, char *address, size_t size,
		      struct ddp_message *message);

/* Returns true if [name] resolves here. */
bool place_resolves(const char *name);

#endif /* DDP_EXEC_PLACE_H */
