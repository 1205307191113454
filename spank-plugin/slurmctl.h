/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slurmctl.h - requests to slurmctld: queries of srun, and the request of slurmstepd to end a step
 *
 * Each request is one message with Slurm's own time limit. If a query fails, the caller uses
 * another source. The functions of libslurm are those of the process that loaded the plugin. If one
 * of them is missing, requests that need it fail.
 */
#ifndef DDP_SLURMCTL_H
#define DDP_SLURMCTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "launch/channel.h"

/*
 * Get task 0's node and its SLURM_NODEID from slurmctld. The query is needed with -m arbitrary or
 * if tasks follow the topology, because then task 0 may not be on the first node of the list.
 * Returns 0 or -1.
 */
int ddp_ask_first_node(uint32_t job, uint32_t step, char *node, size_t size, uint32_t *id);

struct ddp_job {
	time_t end;	   /* time at which the time limit ends */
	uint32_t restarts; /* number of times that Slurm has requeued the job */
	bool has_shards;   /* the job requested shards */
};

/* Returns 0 or -1. */
int ddp_ask_job(uint32_t job, struct ddp_job *found);

/* Returns false if this cluster has no shards. Returns true if it has, or if this is unknown. */
bool ddp_cluster_has_shards(void);

/*
 * Set [address] to the address of [node], or to "" if the address is the node's name. Queries
 * slurmctld only if srun does not know the address.
 * Returns 0 or -1.
 */
int ddp_ask_address(const char *node, char *address, size_t size);

/*
 * Get the shards per GPU of the nodes in [nodes], a compressed list; 0 if unknown.
 * Returns 0; 1 if the nodes have different numbers; -1 on an error.
 */
int ddp_ask_shards(const char *nodes, uint32_t *shards);

/*
 * Returns ClusterName of slurm.conf, for an srun outside the job (--jobid), whose environment lacks
 * SLURM_CLUSTER_NAME. Returns NULL if it is unknown.
 */
const char *ddp_cluster_name(void);

/*
 * Returns true if slurmctld reports that the step has ended or, if a step manager keeps the job's
 * steps, that the job has ended.
 */
bool ddp_ask_step_ended(uint32_t job, uint32_t step);

/*
 * In slurmstepd, as root: kill all tasks of the step on all nodes. A step that has already ended is
 * not an error.
 * Returns 0, or -1 with the reason in [message].
 */
int ddp_end_step(uint32_t job, uint32_t step, struct ddp_message *message);

#endif /* DDP_SLURMCTL_H */
