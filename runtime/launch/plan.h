/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - decide how the environment of one task changes
 *
 * plan.c turns the facts about a task into a list of changes to its environment and a list of notes
 * to print. It does no I/O and makes no changes itself, so that every rule of slurm-ddp(7) can be
 * tested without Slurm.
 */
#ifndef DDP_PLAN_H
#define DDP_PLAN_H

#include "channel.h"
#include "contract.h"
#include "devices.h"

/*
 * The task's position in the step, from its environment in task_init. Before task_init,
 * SLURM_PROCID is that of the batch script.
 */
struct ddp_task {
	uint32_t rank, size;		 /* rank and number of ranks in the step */
	uint32_t local_rank, local_size; /* the same among the step's tasks on this node */
	uint32_t node_rank, nodes; /* this node's number, see ddp_task_read(); number of nodes */
	uint32_t node_id;	   /* this node's number in Slurm's order, SLURM_NODEID */
};

/*
 * Read [task] from [env], except [local_size]. [task]->node_rank is SLURM_NODEID, but rank 0's
 * node, [first_node], and node 0 exchange their numbers, so that rank 0's node has number 0.
 * Returns 0, or -1 with a message that names the variable and its value.
 */
int ddp_task_read(char *const *env, uint32_t local_size, uint32_t first_node, struct ddp_task *task,
		  struct ddp_message *message);

/* Returns the node_rank of node [node_id] (SLURM_NODEID) if rank 0 runs on node [first_node]. */
static inline uint32_t ddp_node_rank(uint32_t node_id, uint32_t first_node)
{
	return node_id == first_node ? 0 : node_id == 0 ? first_node : node_id;
}

struct ddp_facts {
	struct ddp_task task;
	struct ddp_devices devices;
	const struct ddp_channel *channel;
	char *const *step_env;	       /* environment in user_init, with the user's values */
	char *const *task_env;	       /* environment in task_init */
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
	DDP_SPEAKER_NODE, /* on each node, the local task 0 */
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
 * Find the change of [name] in [plan].
 * Returns a pointer into [plan], or NULL.
 */
const struct ddp_change *ddp_plan_find(const struct ddp_plan *plan, const char *name);

/* Variables that the plugin in srun sets to DDP_NOT_LOADED. The plugin on a node removes them. */
enum { DDP_PLAN_MARKED = 5 };
extern const enum ddp_variable ddp_plan_marked[DDP_PLAN_MARKED];

/*
 * Returns whether [value] replaces another value of [name] that the user set in [env]. If so, sets
 * [note] to the line that reports this. A value of an outer --ddp step is not the user's.
 */
bool ddp_plan_replaces(char *const *env, const char *name, uint32_t value,
		       struct ddp_message *note);

/* Free the plan's memory; a plan of zeros is legal. */
void ddp_plan_clear(struct ddp_plan *plan);

#endif /* DDP_PLAN_H */
