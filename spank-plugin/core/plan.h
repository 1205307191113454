/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - what the plugin does to one task: facts in, decisions out
 *
 * plan.c turns the facts of a task into a list of changes to its environment and a list
 * of lines to say. Nothing here asks, opens or sets anything, so every rule of ddp(7) can be
 * tried without Slurm.
 */
#ifndef DDP_CORE_PLAN_H
#define DDP_CORE_PLAN_H

#include "channel.h"
#include "contract.h"
#include "devices.h"

/*
 * Which task of the step this is, from the environment as it stands at task_init, and at no
 * earlier time: before that, SLURM_PROCID is the batch script's. In a heterogeneous step these
 * variables count over all components, which SPANK's own items do not.
 */
struct ddp_task {
	uint32_t rank, size;		 /* in the step */
	uint32_t local_rank, local_size; /* among the step's tasks on this node */
	uint32_t node_rank, nodes;	 /* this node in the step, by the first rank on each */
	uint32_t node_id;		 /* the same in Slurm's order, SLURM_NODEID */
};

/*
 * Read [task] from [env]; [local_size] comes from Slurm's own count, [order] is the channel's.
 * Returns 0, or -1 with a message that names the variable and its value.
 */
int ddp_task_read(char *const *env, uint32_t local_size, const char *order, struct ddp_task *task,
		  struct ddp_message *message);

struct ddp_facts {
	struct ddp_task task;
	struct ddp_devices devices;
	const struct ddp_channel *channel;
	char *const *step_env;	       /* as user_init saw it: the user's own values */
	char *const *task_env;	       /* as task_init sees it */
	const char *host;	       /* this node's name */
	bool directory_seen;	       /* the rendezvous directory is the one that srun made */
	const char *directory_problem; /* why it is not, for people */
	const char *program;	       /* what the task will run, or "" */
	bool mps;		       /* an MPS daemon serves this task */
	uint64_t gpu_memory;	       /* of one GPU of this node in MiB, 0: not known */
	uint32_t cpu_mask;	       /* CPUs of the task's mask, 0: not known */
};

enum ddp_action {
	DDP_ACTION_SET,
	DDP_ACTION_UNSET,
	DDP_ACTION_KEEP, /* the user's value stays */
};

struct ddp_change {
	const char *name;
	enum ddp_action action;
	char *value;	 /* NULL where the action is UNSET */
	const char *why; /* for --ddp-verbose */
};

/* Who says a line, so that it is said once. */
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
 * Decide everything for a task.
 * Returns 0 with a plan that ddp_plan_clear must free, or -1 with a message and no plan.
 */
int ddp_plan_make(const struct ddp_facts *facts, struct ddp_plan *plan,
		  struct ddp_message *message);

/*
 * The plan for a task that must not train: DDP_ERROR says [why], and what would let it believe
 * that it is a world of one is removed from [task_env].
 * Returns 0 with a plan that ddp_plan_clear must free, or -1 out of memory.
 */
int ddp_plan_refuse(char *const *task_env, const char *why, struct ddp_plan *plan);

/*
 * The change that [plan] has for [name].
 * Returns a pointer into [plan], or NULL.
 */
const struct ddp_change *ddp_plan_find(const struct ddp_plan *plan, const char *name);

/* Free what the plan holds; a plan of zeros is legal. */
void ddp_plan_clear(struct ddp_plan *plan);

/*
 * The user's own value of [name] in [env]: one that is not empty and that no outer --ddp step
 * had put there.
 * Returns a pointer into [env], or NULL.
 */
const char *ddp_users_value(char *const *env, const char *name);

/* --- Programs that start the real ranks themselves ------------------------------------------ */

/*
 * Tell whether [program], a name or a path, is a daemon that starts the real ranks itself: mpirun
 * inside a batch job runs "srun orted", a step with one daemon per node and no ranks, which inherits
 * #SBATCH --ddp all the same.
 * Returns true or false.
 */
bool ddp_is_launcher(const char *program);

/*
 * Tell whether [program], a name or a path, comes with slurm-ddp and sums what ranks on one GPU
 * have without NCCL.
 * Returns true or false.
 */
bool ddp_is_ours(const char *program);

#endif /* DDP_CORE_PLAN_H */
