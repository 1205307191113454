/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices.h - which GPU a task uses, and how much of it
 *
 * Slurm says it in variables only. The list of devices exists twice: the step's, the same for
 * all tasks of a node, and the task's, after binding. SLURM_STEP_GPUS holds indices that are
 * global to the node; CUDA_VISIBLE_DEVICES may be relative to the task's cgroup, so it never
 * tells whether two tasks share a GPU.
 */
#ifndef DDP_CORE_DEVICES_H
#define DDP_CORE_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "format.h"

enum ddp_local_rank_mode { DDP_LOCAL_RANK_AUTO, DDP_LOCAL_RANK_TASK, DDP_LOCAL_RANK_DEVICE };
enum ddp_share_mode { DDP_SHARE_AUTO, DDP_SHARE_OFF, DDP_SHARE_TORCH };

struct ddp_device_facts {
	char *const *step_env; /* as user_init saw it: before binding */
	char *const *task_env; /* as task_init sees it: after binding */
	uint32_t local_id, local_size;
	uint32_t node_id;	 /* SLURM_NODEID */
	uint32_t shards_per_gpu; /* 0: not known */
	const char
		*parts; /* of the node's GPUs that the job has, "1/4+4/4"; NULL or "": not known */
	enum ddp_local_rank_mode mode;
};

enum ddp_share_reason {
	DDP_SHARE_KNOWN,
	DDP_SHARE_NO_DEVICE,	 /* nothing to share */
	DDP_SHARE_NO_CAPACITY,	 /* shards per GPU are not known */
	DDP_SHARE_NO_PARTS,	 /* how many of the shards each of several GPUs has is not known */
	DDP_SHARE_NO_NEIGHBOURS, /* how many tasks the binding put on this GPU is not known */
};

struct ddp_devices {
	uint32_t visible;    /* devices that the task sees */
	int64_t device;	     /* index to use among them, -1: none */
	uint32_t local_rank; /* what LOCAL_RANK says */
	uint32_t on_node;    /* distinct devices of the step on this node */
	uint32_t neighbours; /* tasks on this task's device, itself included; 0: not known */
	bool crowd_first;    /* see below */
	bool bound;	     /* the task sees fewer devices than the step has here */
	bool wraps;	     /* fewer devices than tasks: they are dealt out in turn */
	uint64_t share_num, share_den; /* the share as a fraction; den 0: not known */
	enum ddp_share_reason share_reason;
	const char *gpus;	   /* the step's on this node, by Slurm's numbers or their names */
	const char *restore_name;  /* variable that Slurm erased, to be put back; NULL: none */
	const char *restore_value; /* points into step_env */
};

/*
 * Decide. [crowd_first] is set for one task of a step where two tasks share a device somewhere: local
 * task 0 of the first node where that is so, as far as this node can tell from its own devices and from
 * how many tasks the others have. The pointers in [devices] live as long as the environments of [facts].
 */
void ddp_devices_decide(const struct ddp_device_facts *facts, struct ddp_devices *devices);

/*
 * Write the share as a decimal number, rounded down, so that the shares of one GPU never
 * add up to more than 1: "0.5", "0.333333", "1".
 * Returns 0, or -1 where the share is not known.
 */
int ddp_share_print(const struct ddp_devices *devices, char *buf, size_t size);

/*
 * Read the GPUs and shards of a node from Slurm's text of it, "gpu:a100:4(S:0-1),shard:64".
 * Returns the shards of one GPU, or 0 where there are none or they do not divide evenly.
 */
uint32_t ddp_gres_shards_per_gpu(const char *gres);

/*
 * Write the parts that a job's text of one node, "shard:6(1/4,4/4,1/4,0/4)", gives it of each GPU that it has
 * any of: "1/4+4/4+1/4".
 * Returns how many, or 0 with "" where the text says none or they do not fit.
 */
size_t ddp_gres_parts(const char *gres, char *parts, size_t size);

/*
 * Returns true if [gres] (a node's or a step's text) has an element of the name "shard".
 */
bool ddp_gres_has_shards(const char *gres);

#endif /* DDP_CORE_DEVICES_H */
