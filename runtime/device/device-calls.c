/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device-calls.c - join the devices in ddp_init(), and implement the functions ddp_device_*() by
 * calls to the device engine
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/ddp-private.h"
#include "comm/recorder.h"
#include "device-engine.h"
#include "device-sums.h"

/* Time limit for ending the work on the streams of a lost world, in seconds. */
#define ABORT_SECONDS 3.0

/*
 * Combine the [status] of all ranks, so that either all ranks continue or no rank does.
 * Returns 0 if [status] is 0 on all ranks. Otherwise returns the error of one rank on all ranks.
 */
static int agree(struct ddp *ddp, int status)
{
	return ddp_agree(ddp, status, ddp->error.status == status ? ddp->error.text : NULL);
}

/* --- Staging ------------------------------------------------------------------------------ */

/*
 * A staged collective copies data to pinned memory that the ranks of a node share, reduces it there
 * with the collectives for host memory, and copies the result back. So the result has the same bits
 * as that of a collective on host memory. Streams contain only this rank's own copies. A call of
 * ddp.h returns when the result is complete.
 */

int ddp_device_arena(struct ddp *ddp, size_t bytes, void **memory)
{
	int status = ddp_arena_create(ddp, bytes, memory);

	if (status == 0)
		status = ddp->device_engine->pin(ddp->device, *memory, bytes, &ddp->error);
	return agree(ddp, status);
}

static int copy(struct ddp *ddp, void *to, const void *from, size_t bytes, void *stream)
{
	return ddp->device_engine->copy(ddp->device, to, from, bytes, stream, &ddp->error);
}

/* Each wait has the whole time limit. */
static int wait_for(struct ddp *ddp, void *stream, const uint64_t *word, uint64_t value)
{
	struct ddp_watch watch = ddp->watch;

	return ddp->device_engine->wait(ddp->device, stream, word, value, &watch, &ddp->error);
}

int ddp_stage_send(struct ddp *ddp, const struct ddp_stage *stage, size_t at, size_t bytes)
{
	int status = copy(ddp, stage->host + at, stage->device + at, bytes, stage->stream);

	if (status == 0)
		status = ddp->device_engine->count(stage->stream, stage->arrived, &ddp->error);
	return ddp_fail_call(ddp, status);
}

int ddp_stage_await(struct ddp *ddp, struct ddp_stage *stage, void *waited)
{
	return ddp_fail_call(ddp, wait_for(ddp, waited, stage->arrived, ++stage->awaited));
}

int ddp_stage_return(struct ddp *ddp, const struct ddp_stage *stage, size_t at, size_t bytes)
{
	return ddp_fail_call(ddp,
			     copy(ddp, stage->device + at, stage->host + at, bytes, stage->stream));
}

/*
 * PIECE is the size of a piece in bytes. PIECES is the number of pieces in the buffer. While the
 * host sums one piece, the next piece is copied to the other place.
 */
enum { PIECE = 2 << 20, PIECES = 2 };

static char *piece_at(const struct ddp *ddp, size_t number)
{
	return ddp->staged + number % PIECES * PIECE;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/*
 * Each wait_for() waits for two copies: the copy of one piece to the host, and the copy of the
 * previous piece back to the device. After the last wait the result is complete. Then later calls
 * can use the pinned memory on other streams.
 */
static int staged_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
			     enum ddp_type type, enum ddp_op op, void *stream)
{
	size_t unit = ddp_type_size(type), most = PIECE / unit, number = 0, part;
	const char *from = send;
	char *to = recv;
	int status;

	part = least(count, most);
	status = copy(ddp, piece_at(ddp, 0), from, part * unit, stream);
	for (size_t at = 0; status == 0 && at < count; number++) {
		char *piece = piece_at(ddp, number);
		size_t next = least(count - at - part, most);

		status = wait_for(ddp, stream, NULL, 0);
		if (status == 0)
			status = copy(ddp, piece_at(ddp, number + 1), from + (at + part) * unit,
				      next * unit, stream);
		if (status == 0)
			status = ddp_all_reduce(ddp, piece, piece, part, type, op);
		if (status == 0)
			status = copy(ddp, to + at * unit, piece, part * unit, stream);
		at += part;
		part = next;
	}
	return status == 0 ? wait_for(ddp, stream, NULL, 0) : status;
}

static int staged_broadcast(struct ddp *ddp, void *data, size_t bytes, int root, void *stream)
{
	bool is_root = root == ddp->world.rank;
	int status = 0;

	for (size_t at = 0, part; status == 0 && at < bytes; at += part) {
		char *place = (char *)data + at;

		part = least(bytes - at, PIECE);
		if (is_root)
			status = copy(ddp, ddp->staged, place, part, stream);
		if (status == 0)
			status = wait_for(ddp, stream, NULL, 0);
		if (status == 0)
			status = ddp_broadcast(ddp, ddp->staged, part, root);
		if (status == 0 && !is_root)
			status = copy(ddp, place, ddp->staged, part, stream);
	}
	return status == 0 ? wait_for(ddp, stream, NULL, 0) : status;
}

/* The first piece of the buffer holds this rank's part, the second piece all ranks' parts. */
static int staged_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes,
			     void *stream)
{
	size_t size = (size_t)ddp->world.size, most = PIECE / size ? PIECE / size : 1;
	char *own = piece_at(ddp, 0), *all = piece_at(ddp, 1);
	int status = 0;

	for (size_t at = 0, part; status == 0 && at < bytes; at += part) {
		part = least(bytes - at, most);
		status = copy(ddp, own, (const char *)send + at, part, stream);
		if (status == 0)
			status = wait_for(ddp, stream, NULL, 0);
		if (status == 0)
			status = ddp_all_gather(ddp, own, all, part);
		for (size_t rank = 0; status == 0 && rank < size; rank++)
			status = copy(ddp, (char *)recv + rank * bytes + at, all + rank * part,
				      part, stream);
	}
	return status == 0 ? wait_for(ddp, stream, NULL, 0) : status;
}

/*
 * Prepare staged collectives for ddp->device, which an earlier call opened with ddp_gpu.so.
 * Collective.
 */
static int prepare_staged(struct ddp *ddp)
{
	void *pinned = NULL;
	int status = ddp_device_arena(ddp, (size_t)PIECES * PIECE, &pinned);

	ddp->staged = pinned;
	return status;
}

/* --- Joining -------------------------------------------------------------------------------- */

static void leave_device(struct ddp *ddp)
{
	ddp->device_engine->close(ddp->device);
	ddp->device = NULL;
	ddp->staged = NULL;
	ddp->device_used = 0;
}

static int open_engine(struct ddp *ddp, const char *name, struct ddp_gpu *gpu)
{
	const struct ddp_identity *identity = &ddp->identity;

	*gpu = (struct ddp_gpu){.rank = identity->rank};
	ddp->device_engine =
		ddp_module_open(name, "device", DDP_DEVICE_VERSION,
				sizeof(struct ddp_device_engine), &ddp->log, &ddp->error);
	if (!ddp->device_engine)
		return ddp->error.status;
	ddp->leave_device = leave_device;
	return ddp->device_engine->open(&ddp->device, gpu, identity->rank, identity->size,
					identity->device, &ddp->log, &ddp->error);
}

/*
 * Open this rank's device with the engine "nccl". If NCCL is missing, open it with the engine
 * "gpu", which has no collectives.
 */
static int open_device(struct ddp *ddp, struct ddp_gpu *gpu)
{
	const char *multi_rank = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
	struct ddp_error without;
	int status;

	if (ddp->identity.device < 0)
		return ddp_error_set(&ddp->error, DDP_ERR_ENVIRONMENT,
				     "no device is visible to this rank. Request one from Slurm "
				     "(--gres=gpu:N or --gres=shard:N).");
	status = open_engine(ddp, "nccl", gpu);
	if (status < 0) {
		without = ddp->error;
		if (ddp->device)
			leave_device(ddp);
		status = open_engine(ddp, "gpu", gpu);
		if (!ddp->device_engine)
			ddp->error = without;
		else if (status == 0)
			ddp_log_print(&ddp->log, DDP_LEVEL_INFO, "device", "no NCCL: %s",
				      without.text);
	}
	gpu->multi_rank = multi_rank && strcmp(multi_rank, "1") == 0;
	return status;
}

/*
 * Connect the devices with NCCL. Called if each rank has its own device, or if NCCL allows ranks to
 * share a device.
 */
static int join_nccl(struct ddp *ddp)
{
	uint8_t id[DDP_DEVICE_ID] = {0};
	struct ddp_watch watch;
	int status = 0;

	if (ddp->identity.rank == 0)
		status = ddp->device_engine->identity(ddp->device, id, &ddp->error);
	status = agree(ddp, status);
	if (status == 0)
		status = ddp_broadcast(ddp, id, sizeof(id), 0);
	if (status < 0)
		return status;
	watch = ddp->watch;
	return ddp_fail_call(ddp,
			     ddp->device_engine->connect(ddp->device, id, &watch, &ddp->error));
}

/*
 * Use staged collectives, for the reason [why]. If the engine cannot pin memory, as the engine
 * "nccl", replace it by the engine "gpu" first.
 */
static int join_staged(struct ddp *ddp, const char *why)
{
	struct ddp_gpu gpu;
	int status = 0;

	if (!ddp->device_engine->pin) {
		leave_device(ddp);
		status = open_engine(ddp, "gpu", &gpu);
	}
	status = agree(ddp, status);
	if (status == 0)
		status = prepare_staged(ddp);
	if (status == 0)
		snprintf(ddp->device_path, sizeof(ddp->device_path),
			 "staged through host memory, %s", why);
	return status;
}

static int join_devices(struct ddp *ddp)
{
	struct ddp_gpu gpu = {.rank = 0}, *gpus;
	int status, size = ddp->identity.size;
	char why[128] = ""; /* for example "2 ranks share GPU 0 on n1" */

	gpus = calloc((size_t)size, sizeof(*gpus));
	status =
		gpus ? open_device(ddp, &gpu)
		     : ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d devices", size);
	status = agree(ddp, status);
	if (status == 0)
		status = ddp_all_gather(ddp, &gpu, gpus, sizeof(gpu));
	if (status == 0) /* All ranks get the same result here, so they need not agree() on it. */
		status = ddp_device_choose(gpus, size, why, sizeof(why), &ddp->error);
	free(gpus);
	if (status < 0)
		return status;
	ddp->device_bytes = gpu.bytes;
	snprintf(ddp->device_path, sizeof(ddp->device_path), "NCCL %d.%d.%d%s%s",
		 gpu.version / 10000, gpu.version / 100 % 100, gpu.version % 100, *why ? ", " : "",
		 why);
	/*
	 * Turn off NVLS, which does not work if ranks share a GPU. NCCL 2.30 turns it off only if
	 * the last two ranks share a GPU (hasMultiRankNvml in init.cc).
	 */
	if (status == 0 && *why)
		setenv("NCCL_NVLS_ENABLE", "0", 0);
	status = status > 0 ? join_staged(ddp, why) : join_nccl(ddp);
	if (status == 0)
		ddp_log_print(&ddp->log, DDP_LEVEL_INFO, "device", "sums on devices: %s",
			      ddp->device_path);
	return status;
}

int ddp_device_join(struct ddp *ddp)
{
	int status = ddp_begin_call(ddp);

	if (status == 0 && !ddp->device) {
		status = join_devices(ddp);
		/*
		 * If any rank cannot use its device, all ranks close their devices. They can
		 * continue without devices.
		 */
		if (status < 0 && ddp->device)
			leave_device(ddp);
	}
	return ddp_report_call(ddp, status);
}

bool ddp_device_captures(const struct ddp *ddp)
{
	return ddp->device && !ddp->staged;
}

const char *ddp_device_path(const struct ddp *ddp)
{
	return ddp->device ? ddp->device_path : "";
}

int ddp_init(struct ddp **ddp, const struct ddp_options *options)
{
	return ddp_init_with(ddp, options, ddp_device_join);
}

/* --- Calls of ddp.h -------------------------------------------------------------------------- */

#define NEEDS_JOIN "device memory needs ddp_device_join(), or ddp_options.device at ddp_init"

/* Begin a call that does not wait for other ranks. Returns 0, or the handle's error. */
static int begin(struct ddp *ddp)
{
	int status = ddp_begin_call(ddp);

	return status < 0 || ddp->device ? status : ddp_report(ddp, DDP_ERR_STATE, NEEDS_JOIN);
}

/* Begin a collective. [valid] is true if the other arguments of the call are valid. */
static int begin_collective(struct ddp *ddp, enum ddp_call_kind kind, void *stream, bool valid)
{
	int status = ddp_begin_call(ddp);

	if (status < 0)
		return status;
	if (!ddp->device)
		return ddp_refuse(ddp, kind, DDP_ERR_STATE, NEEDS_JOIN);
	if (ddp->staged && ddp_device_is_captured(ddp, stream))
		return ddp_refuse(ddp, kind, DDP_ERR_STATE,
				  "the stream is captured into a CUDA graph, which cannot contain "
				  "staged collectives");
	if (!valid)
		return ddp_refuse(ddp, kind, DDP_ERR_ARGUMENT, "invalid arguments");
	ddp->device_calls += !ddp->staged;
	return 0;
}

/*
 * Like begin(), for calls after which the caller can free streams and memory. First aborts
 * collectives if they would not end, because the world is lost or one of them has failed.
 */
static int begin_cleanup(struct ddp *ddp)
{
	const struct ddp_device_engine *engine = ddp->device_engine;
	int status = begin(ddp);

	if (ddp_check_process(ddp) == 0 && ddp->device && engine->abort && !ddp->device_left &&
	    (ddp->lost || engine->health(ddp->device, NULL) < 0)) {
		ddp->device_left = true;
		(void)engine->abort(ddp->device, ABORT_SECONDS);
	}
	return status;
}

/*
 * A successful call is a heartbeat. A rank that hangs in a device collective soon sends no more
 * heartbeats: a later call blocks because the queue is full, or because it waits.
 */
static int end(struct ddp *ddp, int status)
{
	if (status == 0)
		ddp_recorder_beat(ddp->recorder);
	return ddp_fail_call(ddp, status);
}

int ddp_device_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, void *stream)
{
	size_t unit = ddp_type_size(type);
	int status = begin_collective(ddp, DDP_CALL_REFUSED_DEVICE_ALL_REDUCE, stream,
				      unit && (unsigned int)op < DDP_OP_COUNT &&
					      count <= SIZE_MAX / unit);

	if (status < 0)
		return status;
	if (ddp->staged)
		status = staged_all_reduce(ddp, send, recv, count, type, op, stream);
	else
		status = ddp->device_engine->all_reduce(ddp->device, send, recv, count, type, op,
							stream, &ddp->error);
	return end(ddp, status);
}

int ddp_device_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root, void *stream)
{
	int status = begin_collective(ddp, DDP_CALL_REFUSED_DEVICE_BROADCAST, stream,
				      root >= 0 && root < ddp->world.size);

	if (status < 0)
		return status;
	if (ddp->staged)
		status = staged_broadcast(ddp, buffer, bytes, root, stream);
	else
		status = ddp->device_engine->broadcast(ddp->device, buffer, bytes, root, stream,
						       &ddp->error);
	return end(ddp, status);
}

int ddp_device_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes, void *stream)
{
	int status = begin_collective(ddp, DDP_CALL_REFUSED_DEVICE_ALL_GATHER, stream,
				      bytes <= SIZE_MAX / (size_t)ddp->world.size);

	if (status < 0)
		return status;
	if (ddp->staged)
		status = staged_all_gather(ddp, send, recv, bytes, stream);
	else
		status = ddp->device_engine->all_gather(ddp->device, send, recv, bytes, stream,
							&ddp->error);
	return end(ddp, status);
}

int ddp_device_wait(struct ddp *ddp, void *stream)
{
	int status = begin_cleanup(ddp);

	if (status < 0)
		return status;
	status = wait_for(ddp, stream, NULL, 0);
	/* DDP_ERR_STATE means that the stream is being captured. Then the world continues. */
	return status == DDP_ERR_STATE ? ddp_report_call(ddp, status) : end(ddp, status);
}

int ddp_device_check(struct ddp *ddp)
{
	int status = begin(ddp);

	if (status < 0 || !ddp->device_engine->health)
		return status;
	return ddp_fail_call(ddp, ddp->device_engine->health(ddp->device, &ddp->error));
}

/* --- This rank's share of the device's memory --------------------------------------------- */

#define MIB(bytes) ((double)(bytes) / (1 << 20))

/*
 * Check that [bytes] more would not exceed DDP_SHARE, this rank's share of the device's memory.
 * Only memory of ddp_device_alloc() is counted.
 */
static int check_share(struct ddp *ddp, size_t bytes)
{
	double limit = ddp->identity.share * (double)ddp->device_bytes;
	double used = (double)ddp->device_used;

	if (!(limit > 0) || used + (double)bytes <= limit)
		return 0;
	return ddp_error_set(
		&ddp->error, DDP_ERR_MEMORY,
		"cannot allocate %.0f MiB of device memory: this rank's share is %.0f MiB "
		"(DDP_SHARE=%.3g), of which %.0f MiB are in use. Request more shards "
		"(--gres=shard:N), or run fewer ranks on the GPU.",
		MIB(bytes), MIB(limit), ddp->identity.share, MIB(used));
}

/* Allocate memory on every rank. If that fails on one rank, it fails on all ranks. */
static int alloc_all(struct ddp *ddp, size_t bytes, void **memory)
{
	const struct ddp_device_engine *engine = ddp->device_engine;
	int status = ddp_agree_size(ddp, "ddp_device_alloc", bytes);
	size_t freed = 0;

	if (status < 0)
		return status;
	status = check_share(ddp, bytes);
	if (status == 0)
		status = engine->alloc(ddp->device, bytes, memory, &ddp->error);
	if (status == 0)
		ddp->device_used += bytes;
	status = agree(ddp, status);
	if (status == 0)
		return 0;
	(void)engine->free(ddp->device, *memory, &freed, NULL);
	ddp->device_used -= freed;
	*memory = NULL;
	return status;
}

int ddp_device_alloc(struct ddp *ddp, size_t bytes, void **memory)
{
	int status = begin_collective(ddp, DDP_CALL_REFUSED_DEVICE_ALLOC, NULL,
				      bytes > 0 && bytes <= INT64_MAX / 2);

	*memory = NULL;
	return status < 0 ? status : ddp_report_call(ddp, alloc_all(ddp, bytes, memory));
}

int ddp_device_free(struct ddp *ddp, void *memory)
{
	int status = begin_cleanup(ddp);
	size_t bytes = 0;

	if (status == 0)
		status = ddp->device_engine->free(ddp->device, memory, &bytes, &ddp->error);
	ddp->device_used -= bytes;
	return ddp_report_call(ddp, status);
}

/* --- Calls of gradient/ ---------------------------------------------------------------------- */

void *ddp_device_stream(struct ddp *ddp)
{
	return ddp->device ? ddp->device_engine->stream(ddp->device) : NULL;
}

int ddp_device_order(struct ddp *ddp, void *later, void *earlier)
{
	void *own = ddp_device_stream(ddp);

	later = later ? later : own;
	earlier = earlier ? earlier : own;
	if (!ddp->device || later == earlier)
		return 0;
	return ddp_fail_call(ddp, ddp->device_engine->order(later, earlier, &ddp->error));
}

int ddp_device_convert(struct ddp *ddp, void *stream, void *to, enum ddp_type to_type,
		       const void *from, enum ddp_type from_type, size_t count, double factor)
{
	return ddp_fail_call(ddp, ddp->device_engine->convert(stream, to, to_type, from, from_type,
							      count, (float)factor, &ddp->error));
}

int ddp_device_count(struct ddp *ddp, void *stream, uint64_t *word)
{
	return ddp_fail_call(ddp, ddp->device_engine->count(stream, word, &ddp->error));
}

bool ddp_device_is_captured(struct ddp *ddp, void *stream)
{
	return ddp->device_engine->captured(ddp->device, stream);
}
