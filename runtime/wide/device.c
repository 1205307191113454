/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "device.h"

/* Texts of a card come from another process and need not end. */
#define TEXT(member) (int)sizeof(member) - 1, member

static int refuse_versions(const struct ddp_device_card *a, const struct ddp_device_card *b,
			   struct ddp_error *error)
{
	return ddp_error_set(
		error, DDP_ERR_MISMATCH,
		"rank %d on %.*s has version %d.%d.%d of the engine between devices, rank %d on "
		"%.*s has %d.%d.%d: install the same on all nodes, or load the same module or "
		"container",
		a->rank, TEXT(a->host), a->version / 10000, a->version / 100 % 100,
		a->version % 100, b->rank, TEXT(b->host), b->version / 10000,
		b->version / 100 % 100, b->version % 100);
}

static int refuse_shared(const struct ddp_device_card *a, const struct ddp_device_card *b,
			 struct ddp_error *error)
{
	return ddp_error_set(
		error, DDP_ERR_MISMATCH,
		"ranks %d and %d on %.*s have the same device %.*s, and the engine between devices "
		"needs one for each rank; ranks that share a GPU come with libddp's layer of shared "
		"GPUs, which this release lacks: run one rank per GPU (srun --gpus-per-task=1, or as "
		"many tasks per node as --gres=gpu:N gives), or give each rank a MIG slice",
		a->rank, b->rank, TEXT(a->host), TEXT(a->uuid));
}

/* One kernel and one UUID is one device, whatever names its containers have. */
static bool same_device(const struct ddp_device_card *a, const struct ddp_device_card *b)
{
	return a->boot == b->boot && strncmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0;
}

int ddp_device_preflight(const struct ddp_device_card *cards, int count, struct ddp_error *error)
{
	for (int i = 1; i < count; i++) {
		if (cards[i].version != cards[0].version)
			return refuse_versions(&cards[0], &cards[i], error);
	}
	for (int i = 1; i < count; i++) {
		for (int j = 0; j < i; j++) {
			if (same_device(&cards[j], &cards[i]))
				return refuse_shared(&cards[j], &cards[i], error);
		}
	}
	return 0;
}
