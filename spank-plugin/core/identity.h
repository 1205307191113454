/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.h - which task of the step this is
 *
 * Read from the environment as it stands at task_init, and at no earlier time: before that,
 * SLURM_PROCID is the batch script's. In a heterogeneous step these variables count over all
 * components, which SPANK's own items do not.
 */
#ifndef DDP_CORE_IDENTITY_H
#define DDP_CORE_IDENTITY_H

#include <stdint.h>

#include "text.h"

struct ddp_identity {
	uint32_t rank, size;		 /* in the step */
	uint32_t local_rank, local_size; /* among the step's tasks on this node */
	uint32_t node_rank, nodes;	 /* this node in the step */
};

/*
 * Read the task's identity from [env]; [local_size] comes from Slurm's own count.
 * Returns 0, or -1 with a message that names the variable and its value.
 */
int ddp_identity_read(char *const *env, uint32_t local_size, struct ddp_identity *identity,
		      struct ddp_message *message);

#endif /* DDP_CORE_IDENTITY_H */
