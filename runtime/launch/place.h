/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - find out from the environment which task of Slurm this process is, and find an address
 * of rank 0 of its step
 */
#ifndef DDP_PLACE_H
#define DDP_PLACE_H

#include <stdbool.h>

#include "plan.h"

enum place {
	PLACE_ALONE, /* outside of Slurm, or in a job's shell: a single rank */
	PLACE_TASK,  /* a task of an ordinary step */
	PLACE_WRONG,
};

/*
 * Returns what the process with the environment [env] is. If it must not be a rank, returns
 * PLACE_WRONG with a message.
 */
enum place place_find(char *const *env, struct ddp_message *message);

/* Whether srun --ddp, or another ddp-exec, has already set the variables of this step. */
bool place_is_set_up(char *const *env);

/*
 * Set all members of [task] except node_rank. Also set [ranks] to an array of the [local_size]
 * ranks of this node, which the caller frees. Returns 0, or -1 with a message.
 */
int place_read_task(char *const *env, struct ddp_task *task, uint32_t **ranks,
		    struct ddp_message *message);

/*
 * Returns the job id. In a heterogeneous job, returns the id of the component that runs the step,
 * or 0 if several components run it.
 */
uint32_t place_job(char *const *env);

/*
 * Find the node of rank 0 from the step's list of nodes. Returns 0. Returns -1 with a message if
 * tasks may be placed in another order than the nodes in that list.
 */
int place_first_node(char *const *env, const struct ddp_task *task, char *node, size_t size,
		     struct ddp_message *message);

/*
 * Find an address of this node: [node] with [suffix]; else [node], if the name resolves here; else
 * the host's name, if that resolves; else a numeric address. Returns 0, or -1 with a message.
 */
int place_own_address(const char *node, const char *suffix, char *address, size_t size,
		      struct ddp_message *message);

bool place_resolves(const char *name);

#endif /* DDP_PLACE_H */
