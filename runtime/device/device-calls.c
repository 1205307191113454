/* SPDX-License-Identifier: Apache-2.0 */
/* device-calls.c - ddp_device_*: the engine between devices, behind the library's own errors */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "shards.h"

#define DEVICE_ENGINE "nccl"

/* How long streams of a lost world may take to come to rest. */
#define REST_SECONDS 3.0

int ddp_devices_agree(struct ddp *ddp, int status)
{
	return ddp_agree(ddp, status, ddp->error.status == status ? ddp->error.text : NULL);
}

static void leave_device(struct ddp *ddp)
{
	ddp->device_engine->close(ddp->device);
	ddp->device = NULL;
}

static int open_device(struct ddp *ddp, struct ddp_device_card *card)
{
	const struct ddp_identity *identity = &ddp->identity;
	int status;

	if (identity->device < 0)
		return ddp_error_set(&ddp->error, DDP_ERR_ENVIRONMENT,
				     "no device is visible to this rank; ask Slurm for one "
				     "(--gres=gpu:N or --gres=shard:N)");
	ddp->device_engine =
		ddp_module_open(DEVICE_ENGINE, "device", DDP_DEVICE_VERSION,
				sizeof(struct ddp_device_engine), &ddp->log, &ddp->error);
	if (!ddp->device_engine)
		return ddp->error.status;
	ddp->device_module = ddp->device_engine;
	ddp->leave_device = leave_device;
	status = ddp->device_engine->open(&ddp->device, identity->rank, identity->size,
					  identity->device, &ddp->log, &ddp->error);
	if (status == 0)
		status = ddp->device_engine->card(ddp->device, card, &ddp->error);
	return status;
}

/* Each rank has a device to itself. */
static int join_plain(struct ddp *ddp)
{
	uint8_t id[DDP_DEVICE_ID] = {0};
	struct ddp_watch watch;
	int status = 0;

	if (ddp->identity.rank == 0)
		status = ddp->device_engine->identity(ddp->device, id, &ddp->error);
	status = ddp_devices_agree(ddp, status);
	if (status == 0)
		status = ddp_broadcast(ddp, id, sizeof(id), 0);
	if (status < 0)
		return status;
	watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
	return ddp->device_engine->connect(ddp->device, id, &watch, &ddp->error);
}

static int join_devices(struct ddp *ddp)
{
	struct ddp_device_card card = {.rank = ddp->identity.rank}, *cards;
	int status, size = ddp->identity.size;
	struct ddp_topology *sharing = NULL;

	cards = calloc((size_t)size, sizeof(*cards));
	status = cards ? open_device(ddp, &card)
		       : ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d devices",
				       size);
	status = ddp_devices_agree(ddp, status);
	if (status == 0)
		status = ddp_all_gather(ddp, &card, cards, sizeof(card));
	if (status == 0) /* the same on all ranks */
		status = ddp_sharing_create(&sharing, cards, ddp->topology->places, size,
					    &ddp->error);
	free(cards);
	if (status < 0)
		return status;
	if (sharing->groups < size)
		return ddp_shards_join(ddp, sharing);
	ddp_topology_destroy(sharing);
	return join_plain(ddp);
}

int ddp_device_join(struct ddp *ddp)
{
	int status = ddp_begin_call(ddp);

	if (status == 0 && !ddp->device) {
		status = join_devices(ddp);
		/* A device that some rank cannot use is given back by all, so that they can do without. */
		if (status < 0 && ddp->device)
			leave_device(ddp);
	}
	return ddp_fail_call(ddp, status);
}

bool ddp_device_captures(const struct ddp *ddp)
{
	return ddp->device && ddp->device_engine != &ddp_shards_engine;
}

static int begin(struct ddp *ddp)
{
	int status = ddp_begin_call(ddp);

	if (status == 0 && !ddp->device)
		status = ddp_error_set(&ddp->error, DDP_ERR_STATE,
				       "collectives on device memory need ddp_device_join(), or "
				       "ddp_options.device at ddp_init");
	return status;
}

/* Whether what is under way between devices can no longer end; the engine of shared ones ends it itself. */
static bool is_stuck(struct ddp *ddp)
{
	return ddp->lost || (ddp->device_engine != &ddp_shards_engine &&
			     ddp->device_engine->health(ddp->device, NULL) < 0);
}

/* The same for calls after which streams and memory of the caller may go. */
static int begin_rest(struct ddp *ddp)
{
	int status = begin(ddp);

	if (ddp->device && !ddp->device_left && is_stuck(ddp)) {
		ddp->device_left = true;
		(void)ddp->device_engine->abort(ddp->device, REST_SECONDS);
	}
	return status;
}

int ddp_device_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, void *stream)
{
	int status = begin(ddp);

	if (status == 0)
		status = ddp->device_engine->all_reduce(ddp->device, send, recv, count, type, op,
							stream, &ddp->error);
	return ddp_fail_call(ddp, status);
}

int ddp_device_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root, void *stream)
{
	int status = begin(ddp);

	if (status == 0)
		status = ddp->device_engine->broadcast(ddp->device, buffer, bytes, root, stream,
						       &ddp->error);
	return ddp_fail_call(ddp, status);
}

int ddp_device_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes, void *stream)
{
	int status = begin(ddp);

	if (status == 0)
		status = ddp->device_engine->all_gather(ddp->device, send, recv, bytes, stream,
							&ddp->error);
	return ddp_fail_call(ddp, status);
}

int ddp_device_wait(struct ddp *ddp, void *stream)
{
	struct ddp_watch watch;
	int status = begin_rest(ddp);

	if (status == 0) {
		watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
		status = ddp->device_engine->wait(ddp->device, stream, &watch, &ddp->error);
	}
	return ddp_fail_call(ddp, status);
}

int ddp_device_check(struct ddp *ddp)
{
	int status = begin(ddp);

	if (status == 0)
		status = ddp->device_engine->health(ddp->device, &ddp->error);
	return ddp_fail_call(ddp, status);
}

int ddp_device_alloc(struct ddp *ddp, size_t bytes, void **memory)
{
	struct ddp_watch watch;
	int status = begin(ddp);

	*memory = NULL;
	if (status == 0) {
		watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
		status = ddp->device_engine->alloc(ddp->device, bytes, memory, &watch, &ddp->error);
	}
	return ddp_fail_call(ddp, status);
}

int ddp_device_free(struct ddp *ddp, void *memory)
{
	int status = begin_rest(ddp);

	if (status == 0)
		status = ddp->device_engine->free(ddp->device, memory, &ddp->error);
	return ddp_fail_call(ddp, status);
}
