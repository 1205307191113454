/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.h - who am I, out of the environment
 *
 * world/ finds rank, size, node, device and share of this process. It calls base/ only. Start reading at
 * ddp_identity_read(); variables.h has the rules for single variables.
 *
 * Pure: a list of NAME=VALUE in, decisions out. In this order: the plugin's contract
 * (contract.h), plain srun's SLURM_*, torchrun's variables, a single rank.
 */
#ifndef DDP_WORLD_IDENTITY_H
#define DDP_WORLD_IDENTITY_H

#include <limits.h>

#include "base/error.h"

enum ddp_source { DDP_SOURCE_PLUGIN, DDP_SOURCE_SRUN, DDP_SOURCE_TORCHRUN, DDP_SOURCE_SINGLE };

/* What is not in the environment. */
struct ddp_surroundings {
	const char *hostname;
	const char *directory; /* working directory; NULL: not known */
	long process;	       /* getpid() */
	long parent;	       /* getppid() */
	int devices;	       /* of this machine, for a process that no Slurm gave any */
};

struct ddp_identity {
	enum ddp_source source;
	int rank, size;
	int local_rank, local_size;
	int node_rank, node_count;
	int device;   /* -1: none */
	double share; /* 0: not known */
	int attempt;
	int64_t end_time;
	char job[256];
	char host[256];

	/*
	 * Where a file rendezvous would be; "" where there is none. [own] says that no other
	 * attempt ever uses this directory (the plugin made it for this step alone); otherwise
	 * the method makes it, and the records prove whose they are.
	 */
	char directory[PATH_MAX];
	bool own;

	/* Where failure records go: <base>/.ddp/failed-<cluster>-<job>.<step>; "" if nowhere. */
	char records[PATH_MAX];

	/* What this rank touches to show that it goes on, DDP_HEARTBEAT; "": nothing. */
	char heartbeat[PATH_MAX];
};

/*
 * Decide from [environment] (NULL-terminated) and [surroundings].
 * Returns 0; DDP_ERR_ENVIRONMENT where variables contradict each other or cannot be read, with
 * the names and values of those concerned and what to do; DDP_ERR_ABORTED with DDP_ERROR's text.
 */
int ddp_identity_read(char *const *environment, const struct ddp_surroundings *surroundings,
		      struct ddp_identity *identity, struct ddp_error *error);

/* "srun --ddp", "srun", "torchrun", "single". */
const char *ddp_source_name(enum ddp_source source);

#endif /* DDP_WORLD_IDENTITY_H */
