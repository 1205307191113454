/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices.h - which GPU a task uses, and the task's share of that GPU
 *
 * Slurm provides this information only in variables. There are two lists of devices: the step's
 * list, which is the same for all tasks of a node, and the task's list, after binding.
 * SLURM_STEP_GPUS has the node's own indices. CUDA_VISIBLE_DEVICES may be relative to the task's
 * cgroup, so it does not show whether two tasks share a GPU.
 */
#ifndef DDP_DEVICES_H
#define DDP_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "format.h"

enum ddp_local_rank_mode { DDP_LOCAL_RANK_AUTO, DDP_LOCAL_RANK_TASK, DDP_LOCAL_RANK_DEVICE };
enum ddp_share_mode { DDP_SHARE_AUTO, DDP_SHARE_OFF, DDP_SHARE_TORCH };

struct ddp_device_facts {
	char *const *step_env; /* in user_init, before binding */
	char *const *task_env; /* in task_init, after binding */
	uint32_t local_id, local_size;
	uint32_t node_id;	 /* SLURM_NODEID */
	uint32_t shards_per_gpu; /* 0: unknown */
	enum ddp_local_rank_mode mode;
};

enum ddp_share_reason {
	DDP_SHARE_KNOWN,
	DDP_SHARE_NO_DEVICE,
	DDP_SHARE_NO_CAPACITY,	 /* the number of shards per GPU is unknown */
	DDP_SHARE_NO_PARTS,	 /* the distribution of the shards over several GPUs is unknown */
	DDP_SHARE_NO_NEIGHBOURS, /* the number of tasks bound to this GPU is unknown */
};

struct ddp_devices {
	uint32_t visible;    /* number of devices that the task sees */
	int64_t device;	     /* index of the task's device among the visible devices; -1: none */
	uint32_t local_rank; /* value of LOCAL_RANK */
	uint32_t on_node;    /* number of the step's devices on this node */
	uint32_t neighbours; /* tasks on this task's device, including this task; 0: unknown */
	bool crowd_first;    /* see ddp_devices_decide() */
	bool idle;	     /* this node's tasks leave some of the step's GPUs unused */
	bool idle_first;     /* see ddp_devices_decide() */
	bool bound;	     /* the task sees fewer devices than the step has on this node */
	bool wraps; /* there are fewer devices than tasks, so each device serves several tasks */
	uint64_t share_num, share_den; /* the task's share is num / den; den 0: unknown */
	enum ddp_share_reason share_reason;
	const char *gpus; /* list of the step's devices on this node: Slurm's numbers, else names */
	const char *restore_name;  /* variable that Slurm removed, to be restored; NULL: none */
	const char *restore_value; /* points into step_env */
	bool unlisted;		   /* Slurm removed the list of devices, and it is unknown */
};

/*
 * Set [devices] from [facts]. [crowd_first] marks the one task that reports that tasks share a
 * device: local task 0 of the first node on which they do. A task knows the other nodes' numbers of
 * tasks, and assumes that they have the same devices. [idle_first] marks the task that reports an
 * idle GPU on a node with several tasks, in the same way. The pointers in [devices] are valid as
 * long as the environments in [facts].
 */
void ddp_devices_decide(const struct ddp_device_facts *facts, struct ddp_devices *devices);

/*
 * Write the share as a decimal number, rounded down, so that the shares of one GPU never add up to
 * more than 1: "0.5", "0.333333", "1".
 * Returns 0, or -1 if the share is unknown.
 */
int ddp_share_print(const struct ddp_devices *devices, char *buf, size_t size);

/*
 * Parse a node's GPUs and shards in Slurm's format, "gpu:a100:4(S:0-1),shard:64".
 * Returns the shards per GPU; 0 if there are none or they do not divide evenly.
 */
uint32_t ddp_gres_shards_per_gpu(const char *gres);

/* Returns true if [gres], the GRES of a node or step, has an element named "shard". */
bool ddp_gres_has_shards(const char *gres);

#endif /* DDP_DEVICES_H */
