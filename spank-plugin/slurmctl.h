/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slurmctl.h - queries to slurmctld, made only by srun
 *
 * Each query is one message with Slurm's own time limit. If a query fails, the caller uses another
 * source. The functions of libslurm are looked up in the srun that loaded the plugin; if a release
 * lacks one of them, the query fails.
 */
#ifndef DDP_SLURMCTL_H
#define DDP_SLURMCTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "core/channel.h"

/* Placement of a step's tasks. */
struct ddp_layout {
	char node[DDP_NAME_SIZE];   /* name of task 0's node */
	char order[DDP_ORDER_SIZE]; /* order of the nodes, in the channel's format */
	/* [order] was too small: task 0's node comes first, the other nodes keep Slurm's order */
	bool order_cut;
};

/*
 * Get [layout] from slurmctld. The query is needed with -m arbitrary, in a heterogeneous step, or
 * if tasks follow the topology, because then task 0 may not be on the first node of the list. [job]
 * is the job of the first of the step's [components], [pid] is srun's pid.
 * Returns 0 or -1.
 */
int ddp_ask_layout(uint32_t job, uint32_t step, unsigned components, uint32_t pid,
		   struct ddp_layout *layout);

/*
 * Find the job whose component of a heterogeneous step has rank 0. Components are jobs with their
 * own ids, and srun calls its plugins for the component that starts first. [pid] is srun's pid.
 * [leader] is set to the id of the whole heterogeneous job.
 * Returns the job's id, or [job] if it is not part of a heterogeneous job.
 */
uint32_t ddp_ask_first_job(uint32_t job, uint32_t step, uint32_t pid, uint32_t *leader);

/*
 * Get the end of the job's time limit and whether the job requested shards.
 * Returns 0 or -1.
 */
int ddp_ask_job(uint32_t job, time_t *end, bool *shards);

/* Returns false if this cluster has no shards, so that no job has any. */
bool ddp_cluster_has_shards(void);

/*
 * Get the ports that Slurm reserved for the step, "" if none.
 * Returns 0 or -1.
 */
int ddp_ask_ports(uint32_t job, uint32_t step, char *ports, size_t size);

/*
 * Get the address of [node] if it differs from the node's name, else "". Queries slurmctld only if
 * srun does not know the address.
 * Returns 0 or -1.
 */
int ddp_ask_address(const char *node, char *address, size_t size);

/*
 * Get the shards per GPU of each node in [nodes], a compressed list: one number if all nodes have
 * the same number, else "n1:8,n2:16" without the unknown ones; "" if all are unknown.
 * Returns 0; 1 with "" if the list is too long; -1 on an error.
 */
int ddp_ask_shards(const char *nodes, char *shards, size_t size);

/*
 * ClusterName of slurm.conf, for an srun outside the job (--jobid), whose environment lacks it.
 * Returns NULL if unknown.
 */
const char *ddp_cluster_name(void);

/*
 * Returns true if slurmctld reports that the step has ended or, with a step manager, that its job
 * has.
 */
bool ddp_ask_step_ended(uint32_t job, uint32_t step);

#endif /* DDP_SLURMCTL_H */
