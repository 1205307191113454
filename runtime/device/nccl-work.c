/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-work.c - collectives of NCCL: enqueued, followed, waited for */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>

#include "nccl-engine.h"
#include "wire.h"

/* --- What went wrong ------------------------------------------------------------------ */

/* NCCL's word for whose fault it is. */
static int status_of(ncclResult_t result)
{
#if NCCL_HAS(2, 30, 3)
	if (result == ncclTimeout)
		return DDP_ERR_TIMEOUT;
#endif
	return result == ncclRemoteError ? DDP_ERR_PEER : DDP_ERR_ENGINE;
}

int ddp_nccl_result(const struct ddp_device *device, ncclResult_t result, struct ddp_error *error,
		    const char *format, ...)
{
	char what[512];
	va_list arguments;
	const char *last;

	if (result == ncclSuccess)
		return 0;
	(void)cudaGetLastError();
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	last = ncclGetLastError(NULL);
	return ddp_error_set(error, status_of(result), "%s: %s: NCCL says: %s%s%s", device->who,
			     what, ncclGetErrorString(result), last && *last ? ": " : "",
			     last ? last : "");
}

void ddp_nccl_fail(struct ddp_device *device, const struct ddp_error *error)
{
	pthread_mutex_lock(&device->lock);
	if (!device->failure.status)
		device->failure = *error;
	pthread_mutex_unlock(&device->lock);
}

/* Under the lock, so that nobody gives the communicator up meanwhile; it is a read of memory. */
static ncclResult_t async_error(struct ddp_device *device)
{
	ncclResult_t result = ncclSuccess;

	if (device->comm && ncclCommGetAsyncError(device->comm, &result) != ncclSuccess)
		return ncclInternalError;
	return result == ncclInProgress ? ncclSuccess : result;
}

int ddp_nccl_health(struct ddp_device *device, struct ddp_error *error)
{
	ncclResult_t result;
	int status;

	pthread_mutex_lock(&device->lock);
	if (!device->failure.status) {
		result = async_error(device);
		ddp_nccl_result(device, result, &device->failure,
				"the communicator of %d ranks broke", device->size);
	}
	status = device->failure.status;
	if (status && error)
		*error = device->failure;
	pthread_mutex_unlock(&device->lock);
	return status;
}

static const ncclDataType_t types[DDP_TYPE_COUNT] = {
	[DDP_F32] = ncclFloat32, [DDP_F64] = ncclFloat64, [DDP_BF16] = ncclBfloat16,
	[DDP_F16] = ncclFloat16, [DDP_I32] = ncclInt32,	  [DDP_I64] = ncclInt64,
	[DDP_U8] = ncclUint8,
};

static const ncclRedOp_t ops[DDP_OP_COUNT] = {
	[DDP_SUM] = ncclSum, [DDP_MAX] = ncclMax, [DDP_MIN] = ncclMin};

static cudaStream_t stream_of(const struct ddp_device *device, void *stream)
{
	return stream ? (cudaStream_t)stream : device->stream;
}

/* Whether [event] has come: cudaSuccess, cudaErrorNotReady or an error. Breaks no capture of any thread. */
static cudaError_t query(cudaEvent_t event)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaError_t result;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	result = cudaEventQuery(event);
	if (result != cudaSuccess)
		(void)cudaGetLastError();
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	return result;
}

/* --- What is under way ---------------------------------------------------------------- */

/* "all-reduce 3 of 100 F32" */
#define WORK "%s %llu of %zu %s"
#define WORK_OF(work) (work).name, (unsigned long long)(work).sequence, (work).count, (work).unit

/* The collective that has been under way for longest. Returns false if there is none. */
static bool find_oldest(struct ddp_device *device, struct ddp_nccl_work *oldest)
{
	oldest->sequence = 0;
	pthread_mutex_lock(&device->lock);
	for (int i = 0; i < DDP_NCCL_EVENTS; i++) {
		const struct ddp_nccl_work *work = &device->work[i];

		if (work->sequence && (!oldest->sequence || work->sequence < oldest->sequence))
			*oldest = *work;
	}
	pthread_mutex_unlock(&device->lock);
	return oldest->sequence != 0;
}

/* The collective [work] has ended. */
static void retire(struct ddp_device *device, const struct ddp_nccl_work *work)
{
	struct ddp_nccl_work *place = &device->work[work->sequence % DDP_NCCL_EVENTS];

	pthread_mutex_lock(&device->lock);
	if (place->sequence == work->sequence)
		place->sequence = 0;
	pthread_mutex_unlock(&device->lock);
}

/*
 * Before a call into NCCL. If the watchdog gives [comm] up during the call it must come back
 * by that, as it does from NCCL's own waits: there is no other way out of them.
 */
static int enter(struct ddp_device *device, const struct ddp_nccl_work *work, ncclComm_t *comm,
		 struct ddp_error *error)
{
	int status = ddp_nccl_health(device, error);

	if (status)
		return status;
	pthread_mutex_lock(&device->lock);
	*comm = device->comm;
	if (*comm) {
		device->entering = *work;
		device->entering.sequence = ++device->sequence;
		device->entering.since = ddp_now();
	}
	pthread_mutex_unlock(&device->lock);
	if (*comm)
		return 0;
	return ddp_error_set(error, DDP_ERR_STATE, "%s: %s without a communicator", device->who,
			     work->name);
}

/*
 * Follow the collective that was enqueued on [stream]. Where all places are taken it goes
 * unfollowed: those before it tell as much. In a capture there is nothing to follow, nothing
 * runs.
 */
static int follow(struct ddp_device *device, cudaStream_t stream, struct ddp_error *error)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	struct ddp_nccl_work work = device->entering;
	struct ddp_nccl_work *place = &device->work[work.sequence % DDP_NCCL_EVENTS];
	struct ddp_nccl_work old;

	TRY(device, cudaStreamIsCapturing(stream, &capture), error, "%s: looking at the stream",
	    work.name);
	if (capture != cudaStreamCaptureStatusNone) {
		device->captured = true;
		return 0;
	}
	pthread_mutex_lock(&device->lock);
	old = *place;
	pthread_mutex_unlock(&device->lock);
	if (old.sequence && query(old.event) != cudaSuccess)
		return 0;
	work.event = old.event;
	retire(device, &old);
	TRY(device, cudaEventRecord(work.event, stream), error, "%s: recording an event",
	    work.name);
	pthread_mutex_lock(&device->lock);
	*place = work;
	pthread_mutex_unlock(&device->lock);
	return 0;
}

/* After a call into NCCL on [stream] that gave [result]. */
static int finish(struct ddp_device *device, cudaStream_t stream, ncclResult_t result,
		  struct ddp_error *error)
{
	struct ddp_error story = {0, ""};
	int status;

	status = ddp_nccl_result(device, result, &story, WORK, WORK_OF(device->entering));
	if (!status)
		status = follow(device, stream, &story);
	pthread_mutex_lock(&device->lock);
	device->entering.since = 0;
	pthread_mutex_unlock(&device->lock);
	if (!status)
		return 0;
	/* Where the watchdog broke a call that blocked, its story is the better one. */
	ddp_nccl_fail(device, &story);
	return ddp_nccl_health(device, error);
}

/* --- Collectives ---------------------------------------------------------------------- */

static int refuse_argument(const struct ddp_device *device, const char *what,
			   struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_ARGUMENT, "%s: %s", device->who, what);
}

int ddp_nccl_all_reduce(struct ddp_device *device, const void *send, void *recv, size_t count,
			enum ddp_type type, enum ddp_op op, void *stream, struct ddp_error *error)
{
	struct ddp_nccl_work work = {.name = "all-reduce", .count = count};
	cudaStream_t queue = stream_of(device, stream);
	ncclComm_t comm;
	int status;

	if ((unsigned int)type >= DDP_TYPE_COUNT || (unsigned int)op >= DDP_OP_COUNT)
		return refuse_argument(device, "all-reduce of an unknown type or operation", error);
	if (count == 0)
		return 0;
	work.unit = ddp_type_name(type);
	status = enter(device, &work, &comm, error);
	if (status)
		return status;
	return finish(device, queue,
		      ncclAllReduce(send, recv, count, types[type], ops[op], comm, queue), error);
}

int ddp_nccl_broadcast(struct ddp_device *device, void *data, size_t bytes, int root, void *stream,
		       struct ddp_error *error)
{
	struct ddp_nccl_work work = {.name = "broadcast", .count = bytes, .unit = "bytes"};
	cudaStream_t queue = stream_of(device, stream);
	ncclComm_t comm;
	int status;

	if (root < 0 || root >= device->size)
		return refuse_argument(device, "broadcast from a rank that does not exist", error);
	if (bytes == 0)
		return 0;
	status = enter(device, &work, &comm, error);
	if (status)
		return status;
	return finish(device, queue, ncclBroadcast(data, data, bytes, ncclUint8, root, comm, queue),
		      error);
}

int ddp_nccl_all_gather(struct ddp_device *device, const void *send, void *recv, size_t bytes,
			void *stream, struct ddp_error *error)
{
	struct ddp_nccl_work work = {.name = "all-gather", .count = bytes, .unit = "bytes"};
	cudaStream_t queue = stream_of(device, stream);
	ncclComm_t comm;
	int status;

	if (bytes == 0)
		return 0;
	status = enter(device, &work, &comm, error);
	if (status)
		return status;
	return finish(device, queue, ncclAllGather(send, recv, bytes, ncclUint8, comm, queue),
		      error);
}

/* --- Waiting -------------------------------------------------------------------------- */

/* The watch said [status]: put what is known of who is waited for into [error]. */
static int say_late(struct ddp_device *device, int status, const struct ddp_watch *watch,
		    struct ddp_error *error)
{
	struct ddp_nccl_work oldest;

	if (status != DDP_ERR_TIMEOUT || (error && error->text[0]))
		return status;
	if (!find_oldest(device, &oldest))
		return ddp_error_set(error, status,
				     "%s: the stream did not end in %g s, and no "
				     "collective is under way in it",
				     device->who, watch->limit);
	return ddp_error_set(
		error, status,
		"%s: " WORK " among %d ranks is under way for "
		"%.1f s (limit %g s): a rank did not enter it; NCCL does not tell which",
		device->who, WORK_OF(oldest), device->size,
		(double)(ddp_now() - oldest.since) * 1e-9, watch->limit);
}

/* Until [event] has come. */
static int await(struct ddp_device *device, cudaEvent_t event, const struct ddp_watch *watch,
		 struct ddp_error *error)
{
	struct ddp_poll poll = {0};
	cudaError_t result;
	int status;

	for (;;) {
		result = query(event);
		/* Also of success: kernels that were given up end too. */
		status = ddp_nccl_health(device, error);
		if (status || result == cudaSuccess)
			return status;
		if (result != cudaErrorNotReady)
			return ddp_nccl_cuda(device, result, error, "waiting for the stream");
		status = ddp_watch_poll(watch, &poll, error);
		if (status < 0)
			return say_late(device, status, watch, error);
	}
}

int ddp_nccl_wait(struct ddp_device *device, void *stream, const struct ddp_watch *watch,
		  struct ddp_error *error)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	cudaStream_t queue = stream_of(device, stream);
	struct ddp_error story = {0, ""};
	int status;

	status = ddp_nccl_health(device, &story);
	if (!status)
		status = ddp_nccl_cuda(device, cudaStreamIsCapturing(queue, &capture), &story,
				       "looking at the stream");
	if (!status && capture != cudaStreamCaptureStatusNone)
		return ddp_error_set(error, DDP_ERR_STATE, "%s: wait() in the middle of a capture",
				     device->who);
	if (!status)
		status = ddp_nccl_cuda(device, cudaEventRecord(device->waited, queue), &story,
				       "recording an event");
	if (!status)
		status = await(device, device->waited, watch, &story);
	if (status && error)
		*error = story;
	if (status)
		ddp_nccl_fail(device, &story);
	return status;
}

/* --- What streams do by themselves: no communicator, and no rank, takes part ---------- */

/* Not there where nvcc cannot compile them. */
#pragma weak ddp_wire_kernel_convert
#pragma weak ddp_wire_kernel_count

static int no_kernels(const char *what, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			     "%s on a device needs a libddp that was built with a CUDA compiler",
			     what);
}

/*
 * The event may go as soon as somebody was told to wait for it: CUDA keeps it until it has come. Making and ending
 * one breaks no capture.
 */
int ddp_nccl_order(void *later, void *earlier, struct ddp_error *error)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaEvent_t event = NULL;
	cudaError_t result;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	result = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
	if (result == cudaSuccess)
		result = cudaEventRecord(event, (cudaStream_t)earlier);
	if (result == cudaSuccess)
		result = cudaStreamWaitEvent((cudaStream_t)later, event, 0);
	if (event)
		(void)cudaEventDestroy(event);
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	return ddp_card_error("device", result, error, "putting streams in order");
}

int ddp_nccl_convert(void *stream, void *to, enum ddp_type to_type, const void *from,
		     enum ddp_type from_type, size_t count, float factor, struct ddp_error *error)
{
	if (!ddp_wire_kernel_convert)
		return no_kernels("a mean, or another type on the wire,", error);
	if (count == 0)
		return 0;
	ddp_wire_kernel_convert(stream, to, to_type, from, from_type, count, factor);
	return ddp_card_error("device", cudaGetLastError(), error, "converting gradients");
}

int ddp_nccl_count(void *stream, uint64_t *counter, uint64_t *word, struct ddp_error *error)
{
	if (!ddp_wire_kernel_count)
		return no_kernels("a count of sums", error);
	ddp_wire_kernel_count(stream, counter, word);
	return ddp_card_error("device", cudaGetLastError(), error, "counting sums");
}

/* --- The watchdog --------------------------------------------------------------------- */

/* Nanoseconds between two looks, and seconds that the watchdog is given to end. */
#define PERIOD 100000000u
#define STOP_SECONDS 2.0

/* Ask the device how far it is: retire what has ended. Collectives in a CUDA graph have no event. */
static void look_at_work(struct ddp_device *device)
{
	struct ddp_error story = {0, ""};
	struct ddp_nccl_work work;
	cudaError_t result;

	while (find_oldest(device, &work)) {
		result = query(work.event);
		if (result == cudaErrorNotReady)
			return;
		retire(device, &work);
		if (result == cudaSuccess)
			continue;
		(void)ddp_nccl_cuda(device, result, &story, WORK, WORK_OF(work));
		ddp_nccl_fail(device, &story);
		return;
	}
}

/* A call that only enqueues can block where NCCL still has to connect: end that, too. */
static void look_at_call(struct ddp_device *device)
{
	struct ddp_error story = {0, ""};
	struct ddp_nccl_work work;
	double seconds;

	pthread_mutex_lock(&device->lock);
	work = device->entering;
	pthread_mutex_unlock(&device->lock);
	if (!work.since)
		return;
	seconds = (double)(ddp_now() - work.since) * 1e-9;
	if (seconds < device->limit)
		return;
	ddp_error_set(&story, DDP_ERR_TIMEOUT,
		      "%s: " WORK " among %d ranks could not be enqueued "
		      "in %.1f s (limit %g s): NCCL waits for a rank that did not enter it",
		      device->who, WORK_OF(work), device->size, seconds, device->limit);
	ddp_nccl_fail(device, &story);
	(void)ddp_nccl_give_up(device);
}

/* A capture of another thread must not notice: cudaEventQuery() would break it. */
static void watch_over(void *arguments)
{
	struct ddp_device *device = *(struct ddp_device **)arguments;
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
	struct ddp_watch forever = ddp_watch_start(1e9, NULL, NULL);

	(void)cudaSetDevice(device->index);
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	while (!atomic_load(&device->stop)) {
		if (ddp_nccl_health(device, NULL) == 0) {
			look_at_call(device);
			look_at_work(device);
		}
		for (int i = 0; i < 10 && !atomic_load(&device->stop); i++)
			ddp_watch_sleep(&forever, PERIOD / 10);
	}
}

int ddp_nccl_watch_start(struct ddp_device *device, struct ddp_error *error)
{
	return ddp_bounded_start(&device->watchdog, watch_over, &device, sizeof(device), error);
}

bool ddp_nccl_watch_stop(struct ddp_device *device)
{
	struct ddp_watch limit = ddp_watch_start(STOP_SECONDS, NULL, NULL);

	atomic_store(&device->stop, true);
	if (ddp_bounded_wait(&device->watchdog, &limit, NULL) == 0)
		return true;
	ddp_bounded_leave(device->watchdog);
	return false;
}
