/* SPDX-License-Identifier: Apache-2.0 */
/* choice.c - find ranks whose devices NCCL would refuse, and choose between NCCL and staged sums */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "device-engine.h"

/* The first version of NCCL that supports NCCL_MULTI_RANK_GPU_ENABLE. */
enum { MULTI_RANK = 23003 };

/*
 * The two arguments of "%.*s", precision and text, for a text [member] of a struct ddp_gpu. The
 * text comes from another process, so it may lack a terminator.
 */
#define TEXT(member) (int)sizeof(member) - 1, member

static int refuse_versions(const struct ddp_gpu *a, const struct ddp_gpu *b,
			   struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_MISMATCH,
			     "rank %d on %.*s has NCCL %d.%d.%d, but rank %d on %.*s has "
			     "%d.%d.%d. Install the same version on all nodes, or load the same "
			     "module or container.",
			     a->rank, TEXT(a->host), a->version / 10000, a->version / 100 % 100,
			     a->version % 100, b->rank, TEXT(b->host), b->version / 10000,
			     b->version / 100 % 100, b->version % 100);
}

static bool is_same_device(const struct ddp_gpu *a, const struct ddp_gpu *b)
{
	return a->boot == b->boot && strncmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0;
}

/*
 * Returns whether NCCL refuses two devices. NCCL before 2.30 also refuses two MIG slices of one
 * GPU, because it compares PCI addresses. According to NVIDIA, newer versions need no variable for
 * slices, but 2.31.2 refused slices of an H200 without the variable (NVIDIA/nccl#1716).
 */
static bool nccl_refuses(const struct ddp_gpu *a, const struct ddp_gpu *b)
{
	return is_same_device(a, b) ||
	       (a->boot == b->boot && *a->bus && strncmp(a->bus, b->bus, sizeof(a->bus)) == 0);
}

/* Write to [why] the first device that NCCL would refuse. Returns false if there is none. */
static bool find_shared(const struct ddp_gpu *gpus, int size, char *why, size_t why_size)
{
	for (int a = 0; a < size; a++) {
		int sharing = 1, refused = 1;

		for (int b = a + 1; b < size; b++) {
			sharing += is_same_device(&gpus[a], &gpus[b]);
			refused += nccl_refuses(&gpus[a], &gpus[b]);
		}
		if (refused == 1)
			continue;
		if (sharing == 1)
			snprintf(why, why_size, "%d ranks have MIG slices of one GPU on %.*s",
				 refused, TEXT(gpus[a].host));
		else if (strncmp(gpus[a].uuid, "MIG-", 4) == 0)
			snprintf(why, why_size, "%d ranks share a MIG slice on %.*s", sharing,
				 TEXT(gpus[a].host));
		else
			snprintf(why, why_size, "%d ranks share GPU %d on %.*s", sharing,
				 (int)gpus[a].index, TEXT(gpus[a].host));
		return true;
	}
	return false;
}

int ddp_device_choose(const struct ddp_gpu *gpus, int size, char *why, size_t why_size,
		      struct ddp_error *error)
{
	bool multi_rank = true, shared = find_shared(gpus, size, why, why_size);

	for (int rank = 0; rank < size; rank++)
		multi_rank =
			multi_rank && gpus[rank].multi_rank && gpus[rank].version >= MULTI_RANK;
	if (shared && !multi_rank)
		return 1;
	for (int rank = 0; rank < size; rank++) {
		if (gpus[rank].version > 0)
			continue;
		snprintf(why, why_size, "rank %d on %.*s cannot use NCCL", rank,
			 TEXT(gpus[rank].host));
		return 1;
	}
	for (int rank = 1; rank < size; rank++)
		if (gpus[rank].version != gpus[0].version)
			return refuse_versions(&gpus[0], &gpus[rank], error);
	return 0;
}
