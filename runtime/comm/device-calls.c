/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device-calls.c - the functions ddp_device_*: call the device engine, and store its errors in the
 * handle
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddp-private.h"
#include "device/cards.h"
#include "recorder.h"

/* Time limit, in seconds, within which the streams of a lost world must become idle. */
#define ABORT_SECONDS 3.0

/*
 * Combine the [status] of all ranks, so that all ranks continue or none does.
 * Returns 0 if [status] is 0 on all ranks; else, on all ranks, the error of one rank.
 */
static int agree(struct ddp *ddp, int status)
{
	return ddp_agree(ddp, status, ddp->error.status == status ? ddp->error.text : NULL);
}

/* --- Staged collectives ------------------------------------------------------------------- */

/*
 * Staged collectives copy data to pinned memory that the ranks of a node share, reduce it there by
 * the collectives for host memory, and copy it back. So the result has the bits of the host's
 * collectives. Streams contain only this rank's own copies. A call returns when the result is
 * complete.
 */

/* Bytes of a piece: while the host sums one piece, the next piece is copied. */
enum { PIECE = 2 << 20, PIECES = 2 };

static char *piece_at(const struct ddp *ddp, size_t number)
{
	return ddp->staged + number % PIECES * PIECE;
}

static int copy(struct ddp *ddp, void *to, const void *from, size_t bytes, void *stream)
{
	return ddp->device_engine->copy(ddp->device, to, from, bytes, stream, &ddp->error);
}

/* Wait for [stream]. Each piece has the whole time limit. */
static int wait_for_stream(struct ddp *ddp, void *stream)
{
	struct ddp_watch watch = ddp_watch_start(ddp->timeout, ddp_check_peers, ddp);

	return ddp->device_engine->wait(ddp->device, stream, &watch, &ddp->error);
}

static int refuse_argument(struct ddp *ddp, const char *what)
{
	return ddp_error_set(&ddp->error, DDP_ERR_ARGUMENT,
			     "%s on device memory: invalid arguments", what);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/*
 * Each wait_for_stream() waits for two copies: of one piece to the host, and of the previous piece
 * back. The last one makes the result complete, and the pinned memory free for later calls on other
 * streams.
 */
static int staged_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
			     enum ddp_type type, enum ddp_op op, void *stream)
{
	size_t unit = ddp_type_size(type), most = unit ? PIECE / unit : 0, number = 0, part;
	const char *from = send;
	char *to = recv;
	int status;

	if (!unit || (unsigned int)op >= DDP_OP_COUNT || count > SIZE_MAX / unit)
		return refuse_argument(ddp, "all-reduce");
	part = least(count, most);
	status = copy(ddp, piece_at(ddp, 0), from, part * unit, stream);
	for (size_t at = 0; status == 0 && at < count; number++) {
		char *piece = piece_at(ddp, number);
		size_t next = least(count - at - part, most);

		status = wait_for_stream(ddp, stream);
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
	return status == 0 ? wait_for_stream(ddp, stream) : status;
}

static int staged_broadcast(struct ddp *ddp, void *data, size_t bytes, int root, void *stream)
{
	bool is_root = root == ddp->world.rank;
	int status = 0;

	if (root < 0 || root >= ddp->world.size)
		return refuse_argument(ddp, "broadcast");
	for (size_t at = 0, part; status == 0 && at < bytes; at += part) {
		char *place = (char *)data + at;

		part = least(bytes - at, PIECE);
		if (is_root)
			status = copy(ddp, ddp->staged, place, part, stream);
		if (status == 0)
			status = wait_for_stream(ddp, stream);
		if (status == 0)
			status = ddp_broadcast(ddp, ddp->staged, part, root);
		if (status == 0 && !is_root)
			status = copy(ddp, place, ddp->staged, part, stream);
	}
	return status == 0 ? wait_for_stream(ddp, stream) : status;
}

/* The first piece of the buffer holds this rank's part, the second piece all ranks' parts. */
static int staged_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes,
			     void *stream)
{
	size_t size = (size_t)ddp->world.size, most = PIECE / size ? PIECE / size : 1;
	char *own = piece_at(ddp, 0), *all = piece_at(ddp, 1);
	int status = 0;

	if (bytes > SIZE_MAX / size)
		return refuse_argument(ddp, "all-gather");
	for (size_t at = 0, part; status == 0 && at < bytes; at += part) {
		part = least(bytes - at, most);
		status = copy(ddp, own, (const char *)send + at, part, stream);
		if (status == 0)
			status = wait_for_stream(ddp, stream);
		if (status == 0)
			status = ddp_all_gather(ddp, own, all, part);
		for (size_t rank = 0; status == 0 && rank < size; rank++)
			status = copy(ddp, (char *)recv + rank * bytes + at, all + rank * part,
				      part, stream);
	}
	return status == 0 ? wait_for_stream(ddp, stream) : status;
}

int ddp_device_arena(struct ddp *ddp, size_t bytes, void **memory)
{
	int status = ddp_arena_create(ddp, bytes, memory);

	if (status == 0)
		status = ddp->device_engine->pin(ddp->device, *memory, bytes, &ddp->error);
	return ddp_fail_call(ddp, agree(ddp, status));
}

/*
 * Switch to staged collectives for ddp->device, which an earlier call opened with ddp_gpu.so.
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

static void forget_blocks(struct ddp *ddp, const void *memory);

static void leave_device(struct ddp *ddp)
{
	ddp->device_engine->close(ddp->device);
	ddp->device = NULL;
	ddp->staged = NULL;
	forget_blocks(ddp, NULL);
}

static int open_engine(struct ddp *ddp, const char *name, struct ddp_device_card *card)
{
	const struct ddp_identity *identity = &ddp->identity;

	*card = (struct ddp_device_card){.rank = identity->rank};
	ddp->device_engine =
		ddp_module_open(name, "device", DDP_DEVICE_VERSION,
				sizeof(struct ddp_device_engine), &ddp->log, &ddp->error);
	if (!ddp->device_engine)
		return ddp->error.status;
	ddp->leave_device = leave_device;
	return ddp->device_engine->open(&ddp->device, card, identity->rank, identity->size,
					identity->device, &ddp->log, &ddp->error);
}

/*
 * Open this rank's device with engine "nccl". Without NCCL, open it with "gpu", which has no
 * collectives.
 */
static int open_device(struct ddp *ddp, struct ddp_device_card *card)
{
	const char *multi_rank = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
	struct ddp_error without;
	int status;

	if (ddp->identity.device < 0)
		return ddp_error_set(&ddp->error, DDP_ERR_ENVIRONMENT,
				     "no device is visible to this rank; ask Slurm for one "
				     "(--gres=gpu:N or --gres=shard:N)");
	status = open_engine(ddp, "nccl", card);
	if (status < 0) {
		without = ddp->error;
		if (ddp->device)
			leave_device(ddp);
		status = open_engine(ddp, "gpu", card);
		if (!ddp->device_engine)
			ddp->error = without;
		else if (status == 0)
			ddp_log_print(&ddp->log, DDP_LEVEL_INFO, "device", "no NCCL: %s",
				      without.text);
	}
	card->multi_rank = multi_rank && strcmp(multi_rank, "1") == 0;
	return status;
}

/*
 * Join the devices by NCCL. Called if each rank has its own device, or if NCCL lets ranks share
 * one.
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
	watch = ddp_watch_start(ddp->timeout, ddp_check_peers, ddp);
	return ddp->device_engine->connect(ddp->device, id, &watch, &ddp->error);
}

/*
 * Use staged collectives, for the reason [why]. An engine that cannot pin memory, such as NCCL's,
 * is first replaced by "gpu".
 */
static int join_staged(struct ddp *ddp, const char *why)
{
	struct ddp_device_card card;
	int status = 0;

	if (!ddp->device_engine->pin) {
		leave_device(ddp);
		status = open_engine(ddp, "gpu", &card);
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
	struct ddp_device_card card = {.rank = 0}, *cards;
	int status, size = ddp->identity.size;
	char why[128] = ""; /* for example "2 ranks share GPU 0 on n1" */

	cards = calloc((size_t)size, sizeof(*cards));
	status = cards ? open_device(ddp, &card)
		       : ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d devices",
				       size);
	status = agree(ddp, status);
	if (status == 0)
		status = ddp_all_gather(ddp, &card, cards, sizeof(card));
	if (status == 0) /* all ranks get the same result */
		status = ddp_cards_choose(cards, size, why, sizeof(why), &ddp->error);
	free(cards);
	if (status < 0)
		return status;
	ddp->device_bytes = card.bytes;
	snprintf(ddp->device_path, sizeof(ddp->device_path), "NCCL %d.%d.%d%s%s",
		 card.version / 10000, card.version / 100 % 100, card.version % 100,
		 *why ? ", " : "", why);
	/*
	 * NVLS does not work if ranks share a GPU. NCCL 2.30 turns NVLS off only if the last two
	 * ranks share one (hasMultiRankNvml in init.cc).
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
		 * If one rank cannot use its device, all ranks close their devices and can continue
		 * without them.
		 */
		if (status < 0 && ddp->device)
			leave_device(ddp);
	}
	return ddp_fail_call(ddp, status);
}

bool ddp_device_captures(const struct ddp *ddp)
{
	return ddp->device && !ddp->staged;
}

const char *ddp_device_path(const struct ddp *ddp)
{
	return ddp->device ? ddp->device_path : "";
}

/* --- Calls of ddp.h -------------------------------------------------------------------------- */

static int begin(struct ddp *ddp)
{
	int status = ddp_begin_call(ddp);

	if (status == 0 && !ddp->device)
		status = ddp_error_set(&ddp->error, DDP_ERR_STATE,
				       "collectives on device memory need ddp_device_join(), or "
				       "ddp_options.device at ddp_init");
	return status;
}

/*
 * As begin(), for calls after which the caller may free streams and memory. First aborts
 * collectives that will never end.
 */
static int begin_cleanup(struct ddp *ddp)
{
	const struct ddp_device_engine *engine = ddp->device_engine;
	int status = begin(ddp);

	if (ddp->device && engine->abort && !ddp->device_left &&
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
	int status = begin(ddp);

	if (status == 0 && ddp->staged)
		status = staged_all_reduce(ddp, send, recv, count, type, op, stream);
	else if (status == 0)
		status = ddp->device_engine->all_reduce(ddp->device, send, recv, count, type, op,
							stream, &ddp->error);
	return end(ddp, status);
}

int ddp_device_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root, void *stream)
{
	int status = begin(ddp);

	if (status == 0 && ddp->staged)
		status = staged_broadcast(ddp, buffer, bytes, root, stream);
	else if (status == 0)
		status = ddp->device_engine->broadcast(ddp->device, buffer, bytes, root, stream,
						       &ddp->error);
	return end(ddp, status);
}

int ddp_device_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes, void *stream)
{
	int status = begin(ddp);

	if (status == 0 && ddp->staged)
		status = staged_all_gather(ddp, send, recv, bytes, stream);
	else if (status == 0)
		status = ddp->device_engine->all_gather(ddp->device, send, recv, bytes, stream,
							&ddp->error);
	return end(ddp, status);
}

int ddp_device_wait(struct ddp *ddp, void *stream)
{
	struct ddp_watch watch;
	int status = begin_cleanup(ddp);

	if (status == 0) {
		watch = ddp_watch_start(ddp->timeout, ddp_check_peers, ddp);
		status = ddp->device_engine->wait(ddp->device, stream, &watch, &ddp->error);
	}
	return end(ddp, status);
}

int ddp_device_check(struct ddp *ddp)
{
	int status = begin(ddp);

	if (status == 0 && ddp->device_engine->health)
		status = ddp->device_engine->health(ddp->device, &ddp->error);
	return ddp_fail_call(ddp, status);
}

/*
 * Check that all ranks request the same size: in sums, a vector has the same offset on all ranks.
 */
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

/* --- This rank's share of the device's memory --------------------------------------------- */

struct ddp_device_block {
	struct ddp_device_block *next;
	void *memory;
	size_t bytes;
};

#define MIB(bytes) (double)(bytes) / (1 << 20)

/*
 * Check that [bytes] more fit into DDP_SHARE, this rank's part of the device. Only memory of
 * ddp_device_alloc() is counted.
 */
static int check_share(struct ddp *ddp, size_t bytes)
{
	double limit = ddp->identity.share * (double)ddp->device_bytes;
	size_t used = 0;

	for (const struct ddp_device_block *at = ddp->device_blocks; at; at = at->next)
		used += at->bytes;
	if (!(limit > 0) || (double)used + (double)bytes <= limit)
		return 0;
	return ddp_error_set(
		&ddp->error, DDP_ERR_MEMORY,
		"cannot allocate %.0f MiB of device memory: this rank's share is %.0f MiB "
		"(DDP_SHARE=%.3g), of which %.0f MiB are in use; request more shards "
		"(--gres=shard:N), or run fewer ranks on the GPU",
		MIB(bytes), limit / (1 << 20), ddp->identity.share, MIB(used));
}

static int note_block(struct ddp *ddp, void *memory, size_t bytes)
{
	struct ddp_device_block *block = malloc(sizeof(*block));

	if (!block)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY,
				     "no memory for the list of device memory");
	*block = (struct ddp_device_block){ddp->device_blocks, memory, bytes};
	ddp->device_blocks = block;
	return 0;
}

/* Remove the block at [memory] from the list of blocks. NULL: all blocks. */
static void forget_blocks(struct ddp *ddp, const void *memory)
{
	struct ddp_device_block **link = &ddp->device_blocks, *found;

	while ((found = *link)) {
		if (memory && found->memory != memory) {
			link = &found->next;
			continue;
		}
		*link = found->next;
		free(found);
	}
}

/* Allocate memory on all ranks or on none. */
static int alloc_all(struct ddp *ddp, size_t bytes, void **memory)
{
	const struct ddp_device_engine *engine = ddp->device_engine;
	struct ddp_watch watch;
	int status = agree_bytes(ddp, bytes);

	if (status < 0)
		return status;
	watch = ddp_watch_start(ddp->timeout, ddp_check_peers, ddp);
	status = check_share(ddp, bytes);
	if (status == 0)
		status = engine->alloc(ddp->device, bytes, memory, &watch, &ddp->error);
	if (status == 0)
		status = note_block(ddp, *memory, bytes);
	status = agree(ddp, status);
	if (status == 0)
		return 0;
	if (*memory)
		forget_blocks(ddp, *memory);
	(void)engine->free(ddp->device, *memory, NULL);
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
	int status = begin_cleanup(ddp);

	if (status == 0)
		status = ddp->device_engine->free(ddp->device, memory, &ddp->error);
	if (status == 0 && memory)
		forget_blocks(ddp, memory);
	return ddp_fail_call(ddp, status);
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

int ddp_device_count(struct ddp *ddp, void *stream, uint64_t *counter, uint64_t *word)
{
	return ddp_fail_call(ddp, ddp->device_engine->count(stream, counter, word, &ddp->error));
}

int ddp_device_copy(struct ddp *ddp, void *to, const void *from, size_t bytes, void *stream)
{
	return ddp_fail_call(ddp, copy(ddp, to, from, bytes, stream));
}

bool ddp_device_is_captured(struct ddp *ddp, void *stream)
{
	return ddp->device_engine->captured(ddp->device, stream);
}

int ddp_device_await(struct ddp *ddp, void *stream, const uint64_t *word, uint64_t value)
{
	struct ddp_watch watch = ddp_watch_start(ddp->timeout, ddp_check_peers, ddp);

	return ddp_fail_call(ddp, ddp->device_engine->await(ddp->device, stream, word, value,
							    &watch, &ddp->error));
}
