/* SPDX-License-Identifier: Apache-2.0 */
/* device-calls.c - ddp_device_*: the engine between devices, behind the library's own errors */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "comm/recorder.h"
#include "shards.h"

#define DEVICE_ENGINE "nccl"

/* How long streams of a lost world may take to come to rest. */
#define REST_SECONDS 3.0

int ddp_devices_agree(struct ddp *ddp, int status)
{
	return ddp_agree(ddp, status, ddp->error.status == status ? ddp->error.text : NULL);
}

int ddp_devices_agree_late(struct ddp *ddp, int status)
{
	double timeout = ddp->timeout;

	ddp->timeout = 2 * timeout + 1;
	status = ddp_devices_agree(ddp, status);
	ddp->timeout = timeout;
	return status;
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

/* Who is stuck in a sum of a device comes back from no call before long: its queue is full, or it waits. */
static int end(struct ddp *ddp, int status)
{
	if (status == 0)
		ddp_recorder_beat(ddp->recorder);
	return ddp_fail_call(ddp, status);
}

int ddp_device_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, void *stream)
{
	int status = begin(ddp);

	if (status == 0)
		status = ddp->device_engine->all_reduce(ddp->device, send, recv, count, type, op,
							stream, &ddp->error);
	return end(ddp, status);
}

int ddp_device_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root, void *stream)
{
	int status = begin(ddp);

	if (status == 0)
		status = ddp->device_engine->broadcast(ddp->device, buffer, bytes, root, stream,
						       &ddp->error);
	return end(ddp, status);
}

int ddp_device_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes, void *stream)
{
	int status = begin(ddp);

	if (status == 0)
		status = ddp->device_engine->all_gather(ddp->device, send, recv, bytes, stream,
							&ddp->error);
	return end(ddp, status);
}

int ddp_device_wait(struct ddp *ddp, void *stream)
{
	struct ddp_watch watch;
	int status = begin_rest(ddp);

	if (status == 0) {
		watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
		status = ddp->device_engine->wait(ddp->device, stream, &watch, &ddp->error);
	}
	return end(ddp, status);
}

int ddp_device_check(struct ddp *ddp)
{
	int status = begin(ddp);

	if (status == 0)
		status = ddp->device_engine->health(ddp->device, &ddp->error);
	return ddp_fail_call(ddp, status);
}

/* All ranks ask for the same, or sums would reach where one has nothing. */
static int agree_bytes(struct ddp *ddp, size_t bytes)
{
	int64_t limits[2] = {(int64_t)bytes, -(int64_t)bytes};
	int status;

	if (bytes == 0 || bytes > INT64_MAX / 2)
		return ddp_error_set(&ddp->error, DDP_ERR_ARGUMENT, "device memory of %zu bytes",
				     bytes);
	status = ddp_all_reduce(ddp, limits, limits, 2, DDP_I64, DDP_MAX);
	if (status < 0 || limits[0] == -limits[1])
		return status;
	return ddp_error_set(&ddp->error, DDP_ERR_MISMATCH,
			     "ddp_device_alloc: %lld bytes on one rank, %lld on another",
			     (long long)limits[0], (long long)-limits[1]);
}

int ddp_devices_enroll(struct ddp *ddp, const struct ddp_device_engine *engine,
		       struct ddp_device *device, void *memory)
{
	struct ddp_watch watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
	struct ddp_error refused = {0, ""};
	int status = 0, known;

	if (!engine->enroll)
		return 0;
	if (device)
		status = engine->enroll(device, memory, true, &refused, &watch, &ddp->error);
	status = ddp_devices_agree_late(ddp, status);
	if (status < 0)
		return status;
	known = refused.status == 0;
	status = ddp_all_reduce(ddp, &known, &known, 1, DDP_I32, DDP_MIN);
	if (status < 0 || known || !device)
		return status;
	ddp_log_print(&ddp->log, DDP_LEVEL_WARNING, "device",
		      "memory is not registered, sums in it are slower: %s",
		      refused.status ? refused.text : "another rank failed to");
	watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
	return engine->enroll(device, memory, false, &refused, &watch, &ddp->error);
}

/* All ranks get it or none does. */
static int alloc_all(struct ddp *ddp, size_t bytes, void **memory)
{
	const struct ddp_device_engine *engine = ddp->device_engine;
	struct ddp_watch watch;
	int status = agree_bytes(ddp, bytes);

	if (status < 0)
		return status;
	watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
	status = engine->alloc(ddp->device, bytes, memory, &watch, &ddp->error);
	status = ddp_devices_agree(ddp, status);
	if (status < 0)
		(void)engine->free(ddp->device, *memory, NULL);
	else
		status = ddp_devices_enroll(ddp, engine, ddp->device, *memory);
	if (status < 0)
		*memory = NULL;
	return status;
}

int ddp_device_alloc(struct ddp *ddp, size_t bytes, void **memory)
{
	int status = begin(ddp);

	*memory = NULL;
	if (status == 0)
		status = alloc_all(ddp, bytes, memory);
	return ddp_fail_call(ddp, status);
}

int ddp_device_free(struct ddp *ddp, void *memory)
{
	int status = begin_rest(ddp);

	if (status == 0)
		status = ddp->device_engine->free(ddp->device, memory, &ddp->error);
	return ddp_fail_call(ddp, status);
}
