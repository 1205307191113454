/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl-engine.c - the engine that moves device memory with NCCL (ddp_nccl.so)
 *
 * Some calls can block because of a lost peer or a hung kernel: creating the communicator, freeing
 * memory, aborting, closing. They run in a thread with a deadline (bounded.h). The caller's thread
 * enqueues collectives; if NCCL blocks in such a call, the watchdog aborts the communicator. The
 * first failure is stored. After it, the only call to NCCL is the abort.
 */
#include "config.h"

/* NVIDIA's headers cause these warnings. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <nccl.h>
#pragma GCC diagnostic pop

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bounded.h"
#include "base/gpu-cuda.h"
#include "base/type.h"
#include "cuda-calls.h"

/*
 * Returns whether the version of nccl.h is at least this one. This is the version at build time;
 * ddp_device.version has the library's version at run time.
 */
#define NCCL_HAS(major, minor, patch) (NCCL_VERSION_CODE >= NCCL_VERSION(major, minor, patch))

enum {
	/* oldest supported version of the library; configure checks the version of nccl.h */
	OLDEST = 22403,
	EVENTS = 64, /* maximum number of collectives that are observed at the same time */
	/* bytes of the larger all-reduce in warm_up(), for which NCCL needs several messages */
	WARM_BYTES = 4 << 20,
};

/*
 * Time limits, in seconds, of closing and aborting the communicator and of freeing memory. Closing
 * without an error waits for the other ranks of the node. An abort waits for no rank.
 */
#define CLOSE_SECONDS 10.0
#define ABORT_SECONDS 2.0
#define FREE_SECONDS 10.0

/* Time between two checks of the watchdog, in nanoseconds. */
#define PERIOD 100000000u

_Static_assert(sizeof(ncclUniqueId) <= DDP_DEVICE_ID, "size of an NCCL identity");

/* A collective that was enqueued and may not have ended yet. */
struct work {
	cudaEvent_t event;
	uint64_t sequence; /* number of the collective, or 0 if this entry is unused */
	uint64_t since;
	const char *name; /* name such as "all-reduce" */
	size_t count;
	const char *unit; /* unit of [count]: an element type such as "F32", or "bytes" */
};

struct memory {
	struct memory *next;
	void *base;
	size_t bytes;
	bool freed; /* free() was called, but the memory is kept; see [captured] */
};

struct ddp_device {
	const struct ddp_log *log;
	int rank, size, index;
	int version;
	char who[48]; /* name for messages, such as "rank 1, device 0" */
	cudaStream_t stream;
	cudaEvent_t waited; /* used by wait() */
	struct memory *memory;
	/*
	 * A collective was captured into a graph. From then on, NCCL may use memory until the
	 * communicator ends: the reference of a destroyed graph remains until a later call (NCCL's
	 * register.cc, and persistentDestructor() in enqueue.cc).
	 */
	bool captured;

	double limit;		      /* seconds that a call may block inside NCCL */
	struct ddp_bounded *stuck;    /* call that missed its deadline */
	struct ddp_bounded *watchdog; /* runs from connect() to close() */
	atomic_bool stop;	      /* set to end the watchdog */

	/* protects all members below; not held during a call that may block */
	pthread_mutex_t lock;
	ncclComm_t comm;	      /* NULL before connect(), and after an abort */
	ncclComm_t aborted;	      /* communicator that [aborting] aborts */
	struct ddp_bounded *aborting; /* thread in ncclCommAbort() */
	struct ddp_error failure;     /* the first failure */
	struct work work[EVENTS];     /* indexed by sequence % EVENTS */
	/* the call that is inside NCCL now; its [since] is 0 if there is none */
	struct work entering;
	uint64_t sequence;
};

#define TRY(device, ...) DDP_GPU_TRY((device)->who, __VA_ARGS__)

/* --- Failures ------------------------------------------------------------------------------ */

/*
 * Convert NCCL's [result] to a status. [error] gets the formatted description of the operation.
 * Returns 0 for ncclSuccess, else DDP_ERR_PEER, DDP_ERR_TIMEOUT or DDP_ERR_ENGINE.
 */
static DDP_FORMAT(4, 5) int nccl_error(const struct ddp_device *device, ncclResult_t result,
				       struct ddp_error *error, const char *format, ...)
{
	int status = result == ncclRemoteError ? DDP_ERR_PEER : DDP_ERR_ENGINE;
	char what[512];
	va_list arguments;
	const char *last;

	if (result == ncclSuccess)
		return 0;
#if NCCL_HAS(2, 30, 3)
	if (result == ncclTimeout)
		status = DDP_ERR_TIMEOUT;
#endif
	(void)cudaGetLastError();
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	last = ncclGetLastError(NULL);
	return ddp_error_set(error, status, "%s: %s failed, because NCCL reports %s%s%s",
			     device->who, what, ncclGetErrorString(result),
			     last && *last ? ": " : "", last ? last : "");
}

/*
 * Store [status] and the text of [failure] as the device's failure, unless an earlier failure is
 * stored.
 * Returns [status]. If [error] is not NULL, copies [failure] to it.
 */
static int fail(struct ddp_device *device, int status, struct ddp_error *failure,
		struct ddp_error *error)
{
	failure->status = status;
	pthread_mutex_lock(&device->lock);
	if (!device->failure.status)
		device->failure = *failure;
	pthread_mutex_unlock(&device->lock);
	if (error)
		*error = *failure;
	return status;
}

/*
 * Check for a failure. The lock is held during ncclCommGetAsyncError(), because the call reads the
 * communicator, and an abort would free it.
 */
static int check_health(struct ddp_device *device, struct ddp_error *error)
{
	ncclResult_t result = ncclSuccess;
	int status;

	pthread_mutex_lock(&device->lock);
	if (!device->failure.status && device->comm) {
		if (ncclCommGetAsyncError(device->comm, &result) != ncclSuccess)
			result = ncclInternalError;
		if (result != ncclInProgress)
			nccl_error(device, result, &device->failure,
				   "an operation of the communicator of %d ranks", device->size);
	}
	status = device->failure.status;
	if (status && error)
		*error = device->failure;
	pthread_mutex_unlock(&device->lock);
	return status;
}

static cudaStream_t stream_of(const struct ddp_device *device, void *stream)
{
	return stream ? (cudaStream_t)stream : device->stream;
}

/* --- Abort --------------------------------------------------------------------------------- */

static void abort_comm(void *arguments)
{
	const struct ddp_device *device = *(struct ddp_device **)arguments;

	(void)cudaSetDevice(device->index);
	(void)ncclCommAbort(device->aborted);
}

/*
 * Start ncclCommAbort() in a thread, if there is a communicator. The abort ends NCCL's kernels,
 * without a result, and the calls that are blocked. Returns false if no thread can be started.
 */
static bool begin_abort(struct ddp_device *device)
{
	bool started = true;

	pthread_mutex_lock(&device->lock);
	if (!device->failure.status)
		ddp_error_set(&device->failure, DDP_ERR_ABORTED, "%s: the communicator was aborted",
			      device->who);
	if (device->comm) {
		device->aborted = device->comm;
		device->comm = NULL;
		started = ddp_bounded_start(&device->aborting, abort_comm, &device, sizeof(device),
					    NULL) == 0;
	}
	pthread_mutex_unlock(&device->lock);
	return started;
}

static bool abort_device(struct ddp_device *device, double seconds)
{
	struct ddp_watch watch = ddp_watch_start(seconds, NULL, NULL);

	return begin_abort(device) && ddp_bounded_wait(&device->aborting, &watch, NULL) == 0 &&
	       ddp_bounded_wait(&device->stuck, &watch, NULL) == 0;
}

/* --- Collectives --------------------------------------------------------------------------- */

/* Text such as "all-reduce 3 of 100 F32": collective number 3, of 100 elements of type F32. */
#define WORK "%s %llu of %zu %s"
#define WORK_OF(work) (work).name, (unsigned long long)(work).sequence, (work).count, (work).unit

/*
 * Call this before a call into NCCL. Then the watchdog can abort that call, because NCCL checks for
 * an abort while it waits. Returns the communicator. If there is nothing to do, returns NULL and
 * sets [status] to 0. After an error, returns NULL and sets [status] to the error.
 */
static ncclComm_t enter(struct ddp_device *device, const char *name, size_t count, const char *unit,
			int *status, struct ddp_error *error)
{
	ncclComm_t comm;

	*status = count > 0 ? check_health(device, error) : 0;
	if (count == 0 || *status)
		return NULL;
	pthread_mutex_lock(&device->lock);
	comm = device->comm;
	if (comm)
		device->entering = (struct work){.sequence = ++device->sequence,
						 .since = ddp_now(),
						 .name = name,
						 .count = count,
						 .unit = unit};
	pthread_mutex_unlock(&device->lock);
	if (!comm)
		*status = ddp_error_set(error, DDP_ERR_STATE, "%s: %s without a communicator",
					device->who, name);
	return comm;
}

/*
 * Record an event after the collective on [stream]. The table has EVENTS entries. If an earlier
 * collective still uses the entry of this one, this one is not observed. During a capture nothing
 * is recorded: no collective runs, and an event would become part of the graph.
 */
static int observe(struct ddp_device *device, cudaStream_t stream, struct ddp_error *error)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	struct work work = device->entering;
	struct work *place = &device->work[work.sequence % EVENTS];
	uint64_t before;

	TRY(device, cudaStreamIsCapturing(stream, &capture), error,
	    "%s: checking the stream for a capture", work.name);
	if (capture != cudaStreamCaptureStatusNone) {
		device->captured = true;
		return 0;
	}
	work.event = place->event;
	pthread_mutex_lock(&device->lock);
	before = place->sequence;
	pthread_mutex_unlock(&device->lock);
	if (before && ddp_cuda_query(work.event) != cudaSuccess)
		return 0;
	TRY(device, cudaEventRecord(work.event, stream), error, "%s: recording an event",
	    work.name);
	pthread_mutex_lock(&device->lock);
	*place = work;
	pthread_mutex_unlock(&device->lock);
	return 0;
}

/* Call this after a call into NCCL on [stream]. [result] is what the call returned. */
static int leave(struct ddp_device *device, cudaStream_t stream, ncclResult_t result,
		 struct ddp_error *error)
{
	struct ddp_error failure = {0, ""};
	int status = nccl_error(device, result, &failure, WORK, WORK_OF(device->entering));

	if (!status)
		status = observe(device, stream, &failure);
	pthread_mutex_lock(&device->lock);
	device->entering.since = 0;
	pthread_mutex_unlock(&device->lock);
	if (!status)
		return 0;
	/*
	 * If the watchdog has aborted the call, the watchdog's failure is already stored, and this
	 * failure does not replace it.
	 */
	(void)fail(device, status, &failure, NULL);
	return check_health(device, error);
}

static int all_reduce(struct ddp_device *device, const void *send, void *recv, size_t count,
		      enum ddp_type type, enum ddp_op op, void *stream, struct ddp_error *error)
{
	static const ncclDataType_t types[DDP_TYPE_COUNT] = {
		[DDP_F32] = ncclFloat32, [DDP_F64] = ncclFloat64, [DDP_BF16] = ncclBfloat16,
		[DDP_F16] = ncclFloat16, [DDP_I32] = ncclInt32,	  [DDP_I64] = ncclInt64,
		[DDP_U8] = ncclUint8,
	};
	static const ncclRedOp_t ops[DDP_OP_COUNT] = {
		[DDP_SUM] = ncclSum, [DDP_MAX] = ncclMax, [DDP_MIN] = ncclMin};
	cudaStream_t queue = stream_of(device, stream);
	ncclComm_t comm;
	int status;

	if ((unsigned int)type >= DDP_TYPE_COUNT || (unsigned int)op >= DDP_OP_COUNT)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: all-reduce of an unknown type or operation", device->who);
	comm = enter(device, "all-reduce", count, ddp_type_name(type), &status, error);
	if (!comm)
		return status;
	return leave(device, queue,
		     ncclAllReduce(send, recv, count, types[type], ops[op], comm, queue), error);
}

static int broadcast(struct ddp_device *device, void *data, size_t bytes, int root, void *stream,
		     struct ddp_error *error)
{
	cudaStream_t queue = stream_of(device, stream);
	ncclComm_t comm;
	int status;

	if (root < 0 || root >= device->size)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: broadcast from a rank that does not exist", device->who);
	comm = enter(device, "broadcast", bytes, "bytes", &status, error);
	if (!comm)
		return status;
	return leave(device, queue, ncclBroadcast(data, data, bytes, ncclUint8, root, comm, queue),
		     error);
}

static int all_gather(struct ddp_device *device, const void *send, void *recv, size_t bytes,
		      void *stream, struct ddp_error *error)
{
	cudaStream_t queue = stream_of(device, stream);
	int status;
	ncclComm_t comm = enter(device, "all-gather", bytes, "bytes", &status, error);

	if (!comm)
		return status;
	return leave(device, queue, ncclAllGather(send, recv, bytes, ncclUint8, comm, queue),
		     error);
}

/* --- Waiting ------------------------------------------------------------------------------- */

/* Returns the oldest observed collective that has not ended. Its sequence is 0 if there is none. */
static struct work find_oldest(struct ddp_device *device)
{
	struct work oldest = {.sequence = 0};

	pthread_mutex_lock(&device->lock);
	for (int i = 0; i < EVENTS; i++) {
		const struct work *work = &device->work[i];

		if (work->sequence && (!oldest.sequence || work->sequence < oldest.sequence))
			oldest = *work;
	}
	pthread_mutex_unlock(&device->lock);
	return oldest;
}

/* Report which collective had not ended at the deadline. */
static int report_late(struct ddp_device *device, const struct ddp_watch *watch,
		       struct ddp_error *error)
{
	struct work oldest = find_oldest(device);

	if (!oldest.sequence)
		return ddp_error_set(error, DDP_ERR_TIMEOUT,
				     "%s: the stream did not end in %g s; %s", device->who,
				     watch->limit,
				     device->captured
					     ? "if a captured collective is pending in it, "
					       "a rank did not launch its graph"
					     : "no collective is pending in it");
	return ddp_error_set(error, DDP_ERR_TIMEOUT,
			     "%s: " WORK
			     " among %d ranks has been pending for %.1f s (limit %g s), because a "
			     "rank did not call it. NCCL does not report which rank.",
			     device->who, WORK_OF(oldest), device->size,
			     (double)(ddp_now() - oldest.since) * 1e-9, watch->limit);
}

/* Wait until the event device->waited has completed. [error] must not be NULL. */
static int await_event(struct ddp_device *device, const struct ddp_watch *watch,
		       struct ddp_error *error)
{
	struct ddp_poll poll = {0};
	int status = 0;

	while (status == 0) {
		cudaError_t result = ddp_cuda_query(device->waited);

		/*
		 * An abort completes the event as well, so check for a failure even after success.
		 */
		status = check_health(device, error);
		if (status || result == cudaSuccess)
			return status;
		if (result != cudaErrorNotReady)
			return ddp_gpu_error(device->who, result, error, "waiting for the stream");
		status = ddp_watch_poll(watch, &poll, error);
	}
	if (status == DDP_ERR_TIMEOUT && !error->text[0])
		return report_late(device, watch, error);
	return status;
}

static int wait_stream(struct ddp_device *device, void *stream, const uint64_t *word,
		       uint64_t value, const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_error failure = {0, ""};
	int status = check_health(device, &failure);

	(void)word, (void)value;
	if (!status)
		status = ddp_cuda_record(device->who, device->waited, stream_of(device, stream),
					 &failure);
	if (status == DDP_ERR_STATE)
		return ddp_error_set(error, status, "%s", failure.text);
	if (!status)
		status = await_event(device, watch, &failure);
	return status ? fail(device, status, &failure, error) : 0;
}

/* --- The watchdog -------------------------------------------------------------------------- */

/* Remove collectives that have ended from the table. Collectives in a CUDA graph are not in it. */
static void check_work(struct ddp_device *device)
{
	struct ddp_error failure = {0, ""};

	for (;;) {
		struct work oldest = find_oldest(device);
		struct work *place = &device->work[oldest.sequence % EVENTS];
		cudaError_t result =
			oldest.sequence ? ddp_cuda_query(oldest.event) : cudaErrorNotReady;

		if (result == cudaErrorNotReady)
			return;
		pthread_mutex_lock(&device->lock);
		if (place->sequence == oldest.sequence)
			place->sequence = 0;
		pthread_mutex_unlock(&device->lock);
		if (result != cudaSuccess) {
			int status =
				ddp_gpu_error(device->who, result, &failure, WORK, WORK_OF(oldest));

			(void)fail(device, status, &failure, NULL);
			return;
		}
	}
}

/* The call that the watchdog found inside NCCL at its last check. */
struct observed {
	uint64_t sequence; /* 0: none */
	struct ddp_watch watch;
};

/*
 * Abort the call inside NCCL if it takes longer than the limit. Even a call that only enqueues work
 * can block, if NCCL must first connect ranks.
 */
static void check_call(struct ddp_device *device, struct observed *call)
{
	struct ddp_error failure = {0, ""};
	struct work work;

	pthread_mutex_lock(&device->lock);
	work = device->entering;
	pthread_mutex_unlock(&device->lock);
	if (!work.since)
		return;
	if (call->sequence != work.sequence)
		*call = (struct observed){work.sequence,
					  ddp_watch_start(device->limit, NULL, NULL)};
	if (ddp_watch_check(&call->watch, NULL) == 0)
		return;
	ddp_error_set(&failure, DDP_ERR_TIMEOUT,
		      "%s: " WORK " among %d ranks could not be enqueued in %g s, because NCCL "
		      "waits for a rank that did not call it",
		      device->who, WORK_OF(work), device->size, device->limit);
	(void)fail(device, DDP_ERR_TIMEOUT, &failure, NULL);
	(void)begin_abort(device);
}

static void run_watchdog(void *arguments)
{
	struct ddp_device *device = *(struct ddp_device **)arguments;
	struct ddp_watch forever = ddp_watch_start(1e9, NULL, NULL);
	struct observed call = {0};

	(void)cudaSetDevice(device->index);
	while (!atomic_load(&device->stop)) {
		if (check_health(device, NULL) == 0) {
			check_call(device, &call);
			check_work(device);
		}
		for (int i = 0; i < 10 && !atomic_load(&device->stop); i++)
			ddp_watch_sleep(&forever, PERIOD / 10);
	}
}

/* --- Connecting ---------------------------------------------------------------------------- */

struct joining {
	struct ddp_device *device; /* device, which is not freed before this call has returned */
	ncclUniqueId id;
	char *memory;
	struct ddp_error error;
};

static int make_identity(struct ddp_device *device, uint8_t id[DDP_DEVICE_ID],
			 struct ddp_error *error)
{
	ncclUniqueId unique;
	int status, was = ddp_gpu_enter(device->index);

	memset(id, 0, DDP_DEVICE_ID);
	status = nccl_error(device, ncclGetUniqueId(&unique), error,
			    "creating an identity (it contains an address of this node; "
			    "NCCL_SOCKET_IFNAME chooses the interface)");
	if (!status)
		memcpy(id, &unique, sizeof(unique));
	ddp_gpu_leave(device->index, was);
	return status;
}

/*
 * Create the communicator. Values that the configuration leaves undefined are set by NCCL, or by
 * the user's NCCL_* variables. Graph mixing is one of these values. It stays on by default, because
 * programs use captured and other collectives together. Calls are blocking, because with
 * non-blocking calls NCCL starts a thread for every collective.
 */
static int form(struct joining *joining, ncclComm_t *comm)
{
	struct ddp_device *device = joining->device;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	struct ddp_error said = {0, ""};
	ncclResult_t result;

	config.blocking = 1;
#if NCCL_HAS(2, 27, 3)
	if (device->version >= NCCL_VERSION(2, 27, 3))
		config.commName = "ddp";
#endif
	result = ncclCommInitRankConfig(comm, device->size, joining->id, device->rank, &config);
	if (!nccl_error(device, result, &said, "creating the communicator of %d ranks",
			device->size))
		return 0;
	return ddp_error_set(&joining->error, said.status, "%s. Set NCCL_DEBUG=INFO to see more.",
			     said.text);
}

/*
 * Run one collective of each kind. In these calls NCCL connects the ranks. The calls have no
 * deadline of their own, but this thread has one. Then later calls only enqueue work, and the
 * connections exist before a capture needs them.
 */
static int warm_up(struct joining *joining, ncclComm_t comm)
{
	const struct ddp_device *device = joining->device;
	cudaStream_t stream = device->stream;
	ncclResult_t result;
	char *memory;

	TRY(device, cudaMalloc((void **)&joining->memory, WARM_BYTES), &joining->error,
	    "allocating %d bytes", WARM_BYTES);
	memory = joining->memory;
	TRY(device, cudaMemsetAsync(memory, 0, WARM_BYTES, stream), &joining->error,
	    "clearing %d bytes", WARM_BYTES);
	result = ncclAllReduce(memory, memory, 1, ncclFloat32, ncclSum, comm, stream);
	if (result == ncclSuccess)
		result = ncclAllReduce(memory, memory, WARM_BYTES / sizeof(float), ncclFloat32,
				       ncclSum, comm, stream);
	if (result == ncclSuccess)
		result = ncclBroadcast(memory, memory, 1, ncclUint8, 0, comm, stream);
	if (result == ncclSuccess)
		result = ncclAllGather(memory + device->rank, memory, 1, ncclUint8, comm, stream);
	return nccl_error(device, result, &joining->error, "connecting the %d ranks", device->size);
}

/*
 * Create the communicator and warm it up. This runs in a thread, since NCCL waits for other ranks
 * without a deadline. Once form() has returned, an abort can end the wait. Before, ncclCommAbort()
 * cannot be called: a blocking ncclCommInitRankConfig() has not returned a communicator yet.
 */
static void join_ranks(void *arguments)
{
	struct joining *joining = arguments;
	struct ddp_device *device = joining->device;
	ncclComm_t comm = NULL;

	if (ddp_gpu_error(device->who, cudaSetDevice(device->index), &joining->error, "taking it") <
		    0 ||
	    form(joining, &comm) < 0)
		return;
	pthread_mutex_lock(&device->lock);
	/* if a failure is stored, for example a missed deadline, do not use the communicator */
	if (device->failure.status)
		comm = NULL;
	device->comm = comm;
	pthread_mutex_unlock(&device->lock);
	if (comm && device->size > 1)
		(void)warm_up(joining, comm);
}

/* After a failure the memory is not freed, because that could wait for kernels that do not end. */
static int join_all(struct ddp_device *device, struct joining *joining,
		    const struct ddp_watch *watch, struct ddp_error *error)
{
	const char *interface = getenv("NCCL_SOCKET_IFNAME");
	int status = ddp_bounded_call(&device->stuck, join_ranks, joining, sizeof(*joining), watch,
				      error);

	if (status == DDP_ERR_TIMEOUT && !error->text[0])
		return ddp_error_set(
			error, status,
			"%s: NCCL did not create the communicator of %d ranks in %g s. All %d "
			"ranks had started, so a rank has ended or hangs, or NCCL uses a network "
			"that does not connect them (NCCL_SOCKET_IFNAME is %s). Set "
			"NCCL_DEBUG=INFO to see more.",
			device->who, device->size, watch->limit, device->size,
			interface ? interface : "unset");
	if (!status && joining->error.status)
		*error = joining->error;
	if (status || joining->error.status || device->size == 1)
		return status ? status : joining->error.status;
	status = wait_stream(device, NULL, NULL, 0, watch, error);
	if (status)
		return status;
	return ddp_gpu_error(device->who, cudaFree(joining->memory), error, "freeing %d bytes",
			     WARM_BYTES);
}

static int connect_ranks(struct ddp_device *device, const uint8_t id[DDP_DEVICE_ID],
			 const struct ddp_watch *watch, struct ddp_error *error)
{
	struct joining joining = {.device = device};
	struct ddp_error failure = {0, ""};
	int status = check_health(device, &failure);

	if (!status && device->comm)
		return ddp_error_set(error, DDP_ERR_STATE, "%s: already connected", device->who);
	device->limit = watch->limit;
	memcpy(&joining.id, id, sizeof(joining.id));
	if (!status)
		status = join_all(device, &joining, watch, &failure);
	if (!status)
		status = ddp_bounded_start(&device->watchdog, run_watchdog, &device, sizeof(device),
					   &failure);
	if (status)
		return fail(device, status, &failure, error);
	ddp_log_print(device->log, DDP_LEVEL_INFO, "nccl",
		      "NCCL %d.%d.%d: communicator of %d ranks", device->version / 10000,
		      device->version / 100 % 100, device->version % 100, device->size);
	return 0;
}

/* --- Memory -------------------------------------------------------------------------------- */

/*
 * ncclMemAlloc() returns memory that NCCL itself registers in collectives that are captured into a
 * CUDA graph (NCCL_GRAPH_REGISTER), such as those of ddp-train. Other collectives use NCCL's buffers.
 */

static int give_back(const struct ddp_device *device, const struct memory *memory,
		     struct ddp_error *error)
{
	return nccl_error(device, ncclMemFree(memory->base), error, "freeing %zu bytes",
			  memory->bytes);
}

struct task {
	const struct ddp_device *device;
	struct memory memory;
	struct ddp_error error;
};

static void run_task(void *arguments)
{
	struct task *task = arguments;

	(void)cudaSetDevice(task->device->index);
	(void)give_back(task->device, &task->memory, &task->error);
}

static int alloc_memory(struct ddp_device *device, size_t bytes, void **memory,
			struct ddp_error *error)
{
	struct ddp_error failure = {0, ""};
	struct memory *new;
	cudaError_t result;
	int status, was;

	*memory = NULL;
	status = check_health(device, error);
	if (status)
		return status;
	new = calloc(1, sizeof(*new));
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY,
				     "out of memory for the list of device memory");
	new->bytes = bytes;
	was = ddp_gpu_enter(device->index);
	status = nccl_error(device, ncclMemAlloc(&new->base, new->bytes), &failure,
			    "allocating %zu bytes", new->bytes);
	if (!status) {
		result = cudaMemsetAsync(new->base, 0, new->bytes, device->stream);
		if (result == cudaSuccess)
			result = cudaStreamSynchronize(device->stream);
		status = ddp_gpu_error(device->who, result, &failure, "clearing %zu bytes",
				       new->bytes);
		if (status)
			(void)give_back(device, new, NULL);
	}
	ddp_gpu_leave(device->index, was);
	if (status) {
		free(new);
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s", failure.text);
	}
	new->next = device->memory;
	device->memory = new;
	*memory = new->base;
	return 0;
}

static int free_memory(struct ddp_device *device, void *memory, size_t *bytes,
		       struct ddp_error *error)
{
	struct ddp_watch watch = ddp_watch_start(FREE_SECONDS, NULL, NULL);
	struct ddp_error failure = {0, ""};
	struct memory **link = &device->memory, *found;
	struct task task = {.device = device};
	int status;

	if (!memory)
		return 0;
	while (*link && ((*link)->base != memory || (*link)->freed))
		link = &(*link)->next;
	found = *link;
	if (!found)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: %p was not allocated by the engine", device->who, memory);
	status = check_health(device, error);
	if (status)
		return status;
	found->freed = device->captured;
	*bytes = found->freed ? 0 : found->bytes;
	if (found->freed)
		return 0;
	*link = found->next;
	task.memory = *found;
	free(found);
	status = ddp_bounded_call(&device->stuck, run_task, &task, sizeof(task), &watch, &failure);
	if (status == DDP_ERR_TIMEOUT && !failure.text[0])
		ddp_error_set(&failure, status, "%s: NCCL did not free %zu bytes in %g s",
			      device->who, task.memory.bytes, watch.limit);
	if (status)
		return fail(device, status, &failure, error);
	if (task.error.status && error)
		*error = task.error;
	return task.error.status;
}

/* --- Closing ------------------------------------------------------------------------------- */

static void free_memory_list(struct ddp_device *device, bool back)
{
	while (device->memory) {
		struct memory *memory = device->memory;

		device->memory = memory->next;
		if (back)
			(void)give_back(device, memory, NULL);
		free(memory);
	}
}

/* Release everything that open() created. */
static void end(void *arguments)
{
	struct ddp_device *device = *(struct ddp_device **)arguments;

	(void)cudaSetDevice(device->index);
	if (device->comm) {
		(void)ncclCommFinalize(device->comm);
		(void)ncclCommDestroy(device->comm);
	}
	free_memory_list(device, true);
	for (int i = 0; i < EVENTS; i++) {
		if (device->work[i].event)
			(void)cudaEventDestroy(device->work[i].event);
	}
	if (device->waited)
		(void)cudaEventDestroy(device->waited);
	if (device->stream)
		(void)cudaStreamDestroy(device->stream);
	(void)cudaGetLastError();
}

/* Stop the threads. Returns true if all of them have ended. */
static bool stop_threads(struct ddp_device *device)
{
	struct ddp_watch limit = ddp_watch_start(ABORT_SECONDS, NULL, NULL);
	bool ended;

	atomic_store(&device->stop, true);
	ended = ddp_bounded_wait(&device->watchdog, &limit, NULL) == 0;
	if (!check_health(device, NULL))
		ended = ddp_bounded_try(end, &device, sizeof(device), CLOSE_SECONDS) && ended;
	else
		ended = abort_device(device, ABORT_SECONDS) && ended;
	ddp_bounded_leave(device->watchdog);
	ddp_bounded_leave(device->aborting);
	ddp_bounded_leave(device->stuck);
	return ended;
}

/*
 * Close the device. After a failure, CUDA objects are not freed, because freeing them could wait
 * for a kernel that does not end.
 */
static void close_device(struct ddp_device *device)
{
	if (!device)
		return;
	if (!stop_threads(device)) {
		ddp_log_print(device->log, DDP_LEVEL_WARNING, "nccl",
			      "a call into NCCL on device %d hangs and is abandoned",
			      device->index);
		return;
	}
	free_memory_list(device, false);
	pthread_mutex_destroy(&device->lock);
	free(device);
}

/* --- Opening ------------------------------------------------------------------------------- */

/* Create all objects that need no communication with other ranks. */
static int create_objects(struct ddp_device *device, struct ddp_gpu *gpu, struct ddp_error *error)
{
	int status = ddp_cuda_open(device->who, device->index, gpu, &device->stream,
				   &device->waited, error);

	if (status)
		return status;
	for (int i = 0; i < EVENTS; i++)
		TRY(device,
		    cudaEventCreateWithFlags(&device->work[i].event, cudaEventDisableTiming), error,
		    "creating an event");
	return 0;
}

static int open_device(struct ddp_device **device, struct ddp_gpu *gpu, int rank, int size,
		       int index, const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_device *new;
	int version = 0, status, was;
	char who[32];

	*device = NULL;
	snprintf(who, sizeof(who), "rank %d", rank);
	status = ddp_gpu_check("nccl", who, index, error);
	if (status)
		return status;
	if (ncclGetVersion(&version) != ncclSuccess)
		version = 0;
	if (version < OLDEST)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"libnccl.so.2 is version %d.%d.%d, but the engine nccl needs 2.24.3 or "
			"newer",
			version / 10000, version / 100 % 100, version % 100);
	new = calloc(1, sizeof(*new));
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "out of memory for the engine nccl");
	new->rank = rank;
	new->size = size;
	new->index = index;
	snprintf(new->who, sizeof(new->who), "rank %d, device %d", rank, index);
	new->log = log;
	new->version = version;
	pthread_mutex_init(&new->lock, NULL);
	was = ddp_gpu_enter(index);
	status = create_objects(new, gpu, error);
	ddp_gpu_leave(index, was);
	if (status) {
		close_device(new);
		return status;
	}
	gpu->version = version;
	*device = new;
	return 0;
}

static void *get_stream(struct ddp_device *device)
{
	return device->stream;
}

DDP_API const struct ddp_device_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_DEVICE_VERSION, sizeof(struct ddp_device_engine), "device",
		 "nccl", PACKAGE_VERSION},
	.open = open_device,
	.identity = make_identity,
	.connect = connect_ranks,
	.all_reduce = all_reduce,
	.broadcast = broadcast,
	.all_gather = all_gather,
	.alloc = alloc_memory,
	.free = free_memory,
	.stream = get_stream,
	.order = ddp_cuda_order,
	.convert = ddp_cuda_convert,
	.count = ddp_cuda_count,
	.wait = wait_stream,
	.health = check_health,
	.abort = abort_device,
	.close = close_device,
};
