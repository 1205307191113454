/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - decisions of the plugin for one task
 *
 * plan.c turns the facts of a task into a list of changes to its environment and a list of notes to
 * print. It does no I/O and changes nothing itself, so that every rule of ddp(7) can be tested
 * without Slurm.
 */
#ifndef DDP_CORE_PLAN_H
#define DDP_CORE_PLAN_H

#include "channel.h"
#include "contract.h"
#include "devices.h"

/*
 * The task's position in the step, from its environment in task_init. Before task_init,
 * SLURM_PROCID is that of the batch script. In a heterogeneous step these variables count over all
 * components, unlike SPANK's items.
 */
struct ddp_task {
	uint32_t rank, size;		 /* rank and number of ranks in the step */
	uint32_t local_rank, local_size; /* the same among the step's tasks on this node */
	/* this node's number, and the number of nodes; nodes are sorted by their first ranks */
	uint32_t node_rank, nodes;
	uint32_t node_id; /* this node's number in Slurm's order, SLURM_NODEID */
};

/*
 * Read [task] from [env]. [local_size] is from Slurm's data, [order] from the channel.
 * Returns 0, or -1 with a message that names the variable and its value.
 */
int ddp_task_read(char *const *env, uint32_t local_size, const char *order, struct ddp_task *task,
		  struct ddp_message *message);

struct ddp_facts {
	struct ddp_task task;
	struct ddp_devices devices;
	const struct ddp_channel *channel;
	char *const *step_env;	       /* in user_init: the user's own values */
	char *const *task_env;	       /* in task_init */
	const char *host;	       /* this node's name */
	uint32_t node_cpus;	       /* CPUs of this node, 0: unknown */
	bool directory_seen;	       /* the rendezvous directory is visible */
	const char *directory_problem; /* if not visible: the reason for messages, or "" */
	const char *program;	       /* the task's program, or "" */
	bool mps;		       /* an MPS daemon serves this task */
	uint64_t gpu_memory;	       /* MiB of one GPU of this node, 0: unknown */
	uint32_t cpu_mask;	       /* number of CPUs in the task's mask, 0: unknown */
};

enum ddp_action {
	DDP_ACTION_SET,
	DDP_ACTION_UNSET,
	DDP_ACTION_KEEP, /* keep the user's value */
};

struct ddp_change {
	const char *name;
	enum ddp_action action;
	char *value;	 /* NULL for UNSET */
	const char *why; /* reason, for --ddp-verbose */
};

/* The task that prints a note; all other tasks omit the note. */
enum ddp_speaker {
	DDP_SPEAKER_STEP, /* rank 0 */
	DDP_SPEAKER_NODE, /* local task 0 of each node */
};

struct ddp_note {
	enum ddp_speaker speaker;
	char *text;
};

enum { DDP_PLAN_CHANGES = 2 * DDP_VAR_COUNT + 8, DDP_PLAN_NOTES = 24 };

struct ddp_plan {
	struct ddp_change changes[DDP_PLAN_CHANGES];
	size_t n_changes;
	struct ddp_note notes[DDP_PLAN_NOTES];
	size_t n_notes;
};

/*
 * Make the plan for a task.
 * Returns 0 with a plan to be freed by ddp_plan_clear(), or -1 with a message and no plan.
 */
int ddp_plan_make(const struct ddp_facts *facts, struct ddp_plan *plan,
		  struct ddp_message *message);

/*
 * Make the plan for a task that must not train. Sets DDP_ERROR to [why], and removes the variables
 * in [task_env] that would let the task run as a world of one rank.
 * Returns 0 with a plan to be freed by ddp_plan_clear(), or -1 if memory is short.
 */
int ddp_plan_refuse(char *const *task_env, const char *why, struct ddp_plan *plan);

/*
 * Find the change of [name] in [plan].
 * Returns a pointer into [plan], or NULL.
 */
const struct ddp_change *ddp_plan_find(const struct ddp_plan *plan, const char *name);

/* Free the plan's memory; a plan of zeros is legal. */
void ddp_plan_clear(struct ddp_plan *plan);

/*
 * Find the user's own value of [name] in [env]: not empty, and not set by an outer --ddp step.
 * Returns a pointer into [env], or NULL.
 */
const char *ddp_users_value(char *const *env, const char *name);

/* --- Programs that start ranks themselves ------------------------------------------------- */

/*
 * Returns whether [program], a name or a path, is a daemon that starts ranks itself. For example,
 * mpirun in a batch job runs "srun orted", a step with one daemon per node and no ranks, which
 * inherits #SBATCH --ddp nevertheless.
 */
bool ddp_is_launcher(const char *program);

/*
 * Returns whether [program], a name or a path, is part of slurm-ddp and can sum data of ranks that
 * share a GPU without NCCL.
 */
bool ddp_is_ours(const char *program);

#endif /* DDP_CORE_PLAN_H */
