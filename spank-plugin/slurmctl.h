/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slurmctl.h - questions to slurmctld, asked in srun and there alone
 *
 * Each is one message with Slurm's own time limit, and each may go unanswered: the caller has
 * a next best answer. The functions behind them are found in the srun that loaded the plugin;
 * where a release lacks one, the question counts as unanswered.
 */
#ifndef DDP_SLURMCTL_H
#define DDP_SLURMCTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "core/channel.h"

/* Where the tasks of a step are. */
struct ddp_layout {
	char node[DDP_NAME_SIZE];   /* the name of task 0's */
	char order[DDP_ORDER_SIZE]; /* of the nodes, as in the channel */
	bool order_cut; /* it has no room: task 0's node is the first, the others as they are */
};

/*
 * Fill in [layout] from slurmctld's of the step: with -m arbitrary, in a heterogeneous step, or where
 * tasks follow the topology, task 0 is not on the first node of the list. [job] is that of the first of
 * the step's [components], and [pid] srun's.
 * Returns 0 or -1.
 */
int ddp_ask_layout(uint32_t job, uint32_t step, unsigned components, uint32_t pid,
		   struct ddp_layout *layout);

/*
 * The job whose component of a heterogeneous step has rank 0. Components are jobs with ids of
 * their own, and srun calls its plugins for whichever is the first to start. [pid] is srun's;
 * [leader] is set to the id by which people know the whole job.
 * Returns that job's id, or [job] where it is no part of a heterogeneous job.
 */
uint32_t ddp_ask_first_job(uint32_t job, uint32_t step, uint32_t pid, uint32_t *leader);

/*
 * When the job's time limit ends, and whether the job asked for shards; then the parts of their GPUs that it has on
 * its nodes with shards on several: "1/4+4/4" where all have the same, else "n1:1/4+4/4,n2:2/4+2/4", "" where
 * slurmctld does not say or there are more than fit.
 * Returns 0 or -1.
 */
int ddp_ask_job(uint32_t job, time_t *end, bool *shards, char *parts, size_t size);

/* Returns false where this cluster has no shards, and so no job has any. */
bool ddp_cluster_has_shards(void);

/*
 * The ports that Slurm reserved for the step, "" if none.
 * Returns 0 or -1.
 */
int ddp_ask_ports(uint32_t job, uint32_t step, char *ports, size_t size);

/*
 * The address of [node] where it differs from its name, else "". slurmctld is asked where srun
 * does not know it.
 * Returns 0 or -1.
 */
int ddp_ask_address(const char *node, char *address, size_t size);

/*
 * Shards of one GPU for each node of [nodes], a compressed list: one number where all have the
 * same, else "n1:8,n2:16" without those that are not known; "" if none is.
 * Returns 0; 1 with "" where they differ on more nodes than there is room for; -1.
 */
int ddp_ask_shards(const char *nodes, char *shards, size_t size);

/*
 * ClusterName of slurm.conf, for an srun outside the job (--jobid), whose environment lacks it.
 * Returns NULL where it is not known.
 */
const char *ddp_cluster_name(void);

/* Returns true if slurmctld says that the step has ended; with a step manager, that its job has. */
bool ddp_ask_step_ended(uint32_t job, uint32_t step);

#endif /* DDP_SLURMCTL_H */
