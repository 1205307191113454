/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.h - decide from the environment which rank this process is
 *
 * identity/ finds rank, size, node, device and share of this process. It calls base/ only. Start
 * reading at ddp_identity_read(); variables.h has the rules for single variables.
 *
 * ddp_identity_read() reads a list of NAME=VALUE and does no I/O. It uses the first of these
 * sources that is present: torchrun, if torchrun set its variables last; the plugin's variables
 * (contract.h); SLURM_* of a plain srun; RANK and WORLD_SIZE of another launcher. If none is
 * present, the process is a single rank.
 */
#ifndef DDP_WORLD_IDENTITY_H
#define DDP_WORLD_IDENTITY_H

#include <limits.h>

#include "base/error.h"

enum ddp_source {
	DDP_SOURCE_PLUGIN,
	DDP_SOURCE_SRUN,
	DDP_SOURCE_TORCHRUN,
	DDP_SOURCE_SINGLE,
	DDP_SOURCE_PROGRAM
};

/* Properties of the process that the environment does not contain. */
struct ddp_surroundings {
	const char *hostname;
	const char *directory; /* working directory; NULL: unknown */
	long process;	       /* getpid() */
	long parent;	       /* getppid() */
	/* number of GPUs of this machine; used only outside of Slurm jobs */
	int devices;
};

struct ddp_identity {
	enum ddp_source source;
	int rank, size;
	int local_rank, local_size;
	int node_rank, node_count;
	int device;   /* -1: no device */
	double share; /* fraction of the device that this rank may use, or 0 if unknown */
	int attempt;
	int64_t end_time;
	char job[256];
	char host[256];

	/*
	 * Directory for a rendezvous through files; "" if there is none. If [own] is true, the
	 * plugin made the directory for this step alone, and no other attempt uses it. Otherwise
	 * store/ makes the directory, and the records in it show which attempt wrote them.
	 */
	char directory[PATH_MAX];
	bool own;

	/* Directory of failure records, <base>/.ddp/failed-<cluster>-<job>.<step>; "": none. */
	char records[PATH_MAX];

	/* File of DDP_HEARTBEAT, whose timestamp this rank updates to show progress; "": none. */
	char heartbeat[PATH_MAX];
};

/*
 * Find the [identity] of this process from [environment] (NULL-terminated) and [surroundings].
 * Returns 0. If variables contradict each other or cannot be parsed, returns DDP_ERR_ENVIRONMENT
 * with a text that has their names, their values and a remedy.
 */
int ddp_identity_read(char *const *environment, const struct ddp_surroundings *surroundings,
		      struct ddp_identity *identity, struct ddp_error *error);

/*
 * Like ddp_identity_read(), but rank and size are those of [options], whose world_size is above 0.
 * If the environment has the same rank and size, failure records, device and share are taken from
 * the environment. Otherwise there are no records and no share, and the local rank determines the
 * device. An environment that contradicts itself is ignored.
 * Returns 0, or DDP_ERR_ARGUMENT if the members of [options] contradict each other.
 */
int ddp_identity_give(const struct ddp_options *options, char *const *environment,
		      const struct ddp_surroundings *surroundings, struct ddp_identity *identity,
		      struct ddp_error *error);

/* Returns "srun --ddp or ddp-exec", "srun", "torchrun", "single" or "program". */
const char *ddp_source_name(enum ddp_source source);

#endif /* DDP_WORLD_IDENTITY_H */
