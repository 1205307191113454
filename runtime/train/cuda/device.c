/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - memory, streams, events and graphs of the CUDA runtime */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/gpu-cuda.h"
#include "base/gpu-memory.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "ledger.h"

/* Usual bytes of a CUDA context with the libraries that a training loads. */
#define USUAL_CONTEXT ((size_t)512 << 20)

/*
 * CLOSE_x: maximum number and interval of polls in device_close(). WAIT_x: interval of other polls.
 */
enum { CLOSE_STEPS = 5000, CLOSE_NANOSECONDS = 1000000, WAIT_NANOSECONDS = 50000 };

struct device {
	struct device_info info;
	char who[DDP_GPU_WHO]; /* "GPU 1 (NVIDIA H200)", for messages */
	struct ledger ledger;
	cudaStream_t streams[DEVICE_STREAMS];
	cudaEvent_t ordered[DEVICE_STREAMS]; /* for device_order(), indexed by the earlier stream */
	double timeout_s;		     /* time limit of a waiting call; 0: none */
};

struct device_graph {
	cudaGraphExec_t launched;
	size_t nodes;
};

/* Returns 0, or the error for CUDA's [result]. [what] names the operation in the message. */
static int cuda_error(const struct device *device, cudaError_t result, const char *what,
		      struct ddp_error *error)
{
	return ddp_gpu_error(device->who, result, error, "%s", what);
}

/* --- List of GPUs ------------------------------------------------------------------------------ */

static int read_properties(struct device_info *info, const char *who, struct ddp_error *error)
{
	struct cudaDeviceProp properties;
	cudaError_t result = cudaGetDeviceProperties(&properties, info->index);

	if (result != cudaSuccess)
		return ddp_gpu_error(who, result, error, "querying its properties");
	snprintf(info->name, sizeof(info->name), "%.127s", properties.name);
	info->major = properties.major;
	info->minor = properties.minor;
	ddp_gpu_uuid(info->uuid, sizeof(info->uuid), info->index, &properties);
	(void)cudaRuntimeGetVersion(&info->cuda);
	return 0;
}

int device_list(char (*uuids)[DEVICE_UUID], int most, struct ddp_error *error)
{
	int count = ddp_gpu_count(error), status = 0;

	for (int i = 0; i < count && i < most && !status; i++) {
		struct device_info info = {.index = i};

		status = read_properties(&info, "GPUs", error);
		memcpy(uuids[i], info.uuid, DEVICE_UUID);
	}
	return status < 0 ? status : count;
}

/* --- Open -------------------------------------------------------------------------------------- */

/*
 * Measures how much memory CUDA's context uses. This process has allocated nothing else on the GPU
 * yet, so the size is the number that the driver reports for this process. In containers that hide
 * processes, the driver reports 0. Then the size is an estimate: the smaller of USUAL_CONTEXT and
 * the memory that all processes on the GPU use together.
 */
static int measure_memory(struct device *device, double share, struct ddp_error *error)
{
	struct device_info *info = &device->info;
	size_t available = 0, held, all;
	cudaError_t result = cudaMemGetInfo(&available, &info->total);

	if (result != cudaSuccess)
		return cuda_error(device, result, "querying its memory", error);
	held = ddp_gpu_held(info->uuid);
	all = info->total > available ? info->total - available : 0;
	if (held == 0)
		held = USUAL_CONTEXT;
	device->ledger.context = held < all ? held : all;
	return ledger_limit(&device->ledger, info, available, share, error);
}

static int make_streams(struct device *device, struct ddp_error *error)
{
	const unsigned int apart = cudaStreamNonBlocking, plain = cudaEventDisableTiming;
	int least = 0, greatest = 0;
	cudaError_t result = cudaDeviceGetStreamPriorityRange(&least, &greatest);

	for (int i = 0; i < DEVICE_STREAMS && result == cudaSuccess; i++) {
		int priority = i == DEVICE_REDUCE ? greatest : least;

		result = cudaStreamCreateWithPriority(&device->streams[i], apart, priority);
		if (result == cudaSuccess)
			result = cudaEventCreateWithFlags(&device->ordered[i], plain);
	}
	return cuda_error(device, result, "creating streams", error);
}

static int open_gpu(struct device *device, double share, struct ddp_error *error)
{
	struct device_info *info = &device->info;
	int status = ddp_gpu_check("cuda", "this rank", info->index, error);

	if (!status)
		status = cuda_error(device, cudaSetDevice(info->index), "opening it", error);
	/* Make waiting calls sleep and not spin, because a rank may have only one CPU. */
	if (!status && cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) != cudaSuccess)
		(void)cudaGetLastError();
	if (!status)
		status = read_properties(info, device->who, error);
	if (status)
		return status;
	snprintf(device->who, sizeof(device->who), "GPU %d (%s)", info->index, info->name);
	status = measure_memory(device, share, error);
	return status ? status : make_streams(device, error);
}

int device_open(struct device **device, int index, double share, struct ddp_error *error)
{
	struct device *opened = ddp_xcalloc(1, sizeof(*opened), "a GPU");
	int status;

	*device = NULL;
	opened->info.index = index;
	snprintf(opened->who, sizeof(opened->who), "GPU %d", index);
	status = open_gpu(opened, share, error);
	if (status)
		device_close(opened);
	else
		*device = opened;
	return status;
}

const struct device_info *device_info(const struct device *device)
{
	return &device->info;
}

void *device_stream(const struct device *device, enum device_stream stream)
{
	return device->streams[stream];
}

/* --- Close ------------------------------------------------------------------------------------- */

/*
 * Returns false while work is unfinished. Returns true after an error, because CUDA then frees
 * objects without waiting for work.
 */
static bool is_idle(const struct device *device)
{
	bool idle = true;

	for (int i = 0; i < DEVICE_STREAMS && idle; i++)
		idle = !device->streams[i] ||
		       cudaStreamQuery(device->streams[i]) != cudaErrorNotReady;
	(void)cudaGetLastError();
	return idle;
}

bool device_is_idle(const struct device *device)
{
	struct timespec pause = {0, CLOSE_NANOSECONDS};

	if (!device)
		return true;
	for (int i = 0; i < CLOSE_STEPS; i++) {
		if (is_idle(device))
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

static void free_entry(const struct ledger_entry *entry)
{
	if (entry->kind == LEDGER_DEVICE)
		(void)cudaFree(entry->memory);
	else if (entry->kind == LEDGER_HOST)
		(void)cudaFreeHost(entry->memory);
	(void)cudaGetLastError();
}

void device_close(struct device *device)
{
	struct ledger_entry entry;

	if (!device)
		return;
	if (!device_is_idle(device))
		return;
	while (ledger_remove(&device->ledger, NULL, &entry))
		free_entry(&entry);
	for (int i = 0; i < DEVICE_STREAMS; i++) {
		if (device->ordered[i])
			(void)cudaEventDestroy(device->ordered[i]);
		if (device->streams[i])
			(void)cudaStreamDestroy(device->streams[i]);
	}
	(void)cudaGetLastError();
	free(device);
}

/* --- Wait -------------------------------------------------------------------------------------- */

void device_set_timeout(struct device *device, double seconds)
{
	device->timeout_s = seconds;
}

/* This call can block in the driver. */
static cudaError_t query(cudaStream_t stream)
{
	cudaError_t result;

	ddp_watch_block();
	result = cudaStreamQuery(stream);
	ddp_watch_unblock();
	return result;
}

/* Polls, as cudaStreamSynchronize() would not return from a GPU that hangs. */
static int poll_stream(struct device *device, cudaStream_t stream, struct ddp_error *error)
{
	struct ddp_watch watch =
		ddp_watch_start(device->timeout_s > 0 ? device->timeout_s : -1, NULL, NULL);
	cudaError_t result;

	while ((result = query(stream)) == cudaErrorNotReady) {
		(void)cudaGetLastError();
		if (ddp_watch_check(&watch, NULL) < 0)
			return ddp_error_set(
				error, DDP_ERR_ENGINE,
				"%s: work did not finish within %g s (DDP_TIMEOUT), so the GPU "
				"hangs. Read the kernel's log for Xid, and drain the node if that "
				"happens again.",
				device->who, device->timeout_s);
		ddp_watch_sleep(&watch, WAIT_NANOSECONDS);
	}
	return cuda_error(device, result, "asynchronous work failed", error);
}

int device_wait(struct device *device, enum device_stream stream, struct ddp_error *error)
{
	return poll_stream(device, device->streams[stream], error);
}

int device_check(struct device *device, const char *what, struct ddp_error *error)
{
	return ddp_gpu_error(device->who, cudaGetLastError(), error, "enqueuing %s", what);
}

/* --- Memory ------------------------------------------------------------------------------------ */

static int refuse_memory(struct device *device, cudaError_t result, size_t bytes, const char *what,
			 const char *remedy, struct ddp_error *error)
{
	size_t available = 0, total;
	char said[128];

	snprintf(said, sizeof(said), "%s (%s)", cudaGetErrorString(result),
		 cudaGetErrorName(result));
	(void)cudaMemGetInfo(&available, &total);
	(void)cudaGetLastError();
	return ledger_refuse(&device->ledger, &device->info, available, bytes, what, remedy, said,
			     error);
}

int device_may(struct device *device, size_t bytes, const char *what, const char *remedy,
	       struct ddp_error *error)
{
	if (ledger_allows(&device->ledger, &device->info, bytes))
		return 0;
	return refuse_memory(device, cudaSuccess, bytes, what, remedy, error);
}

int device_alloc(struct device *device, void **memory, size_t bytes, const char *what,
		 const char *remedy, struct ddp_error *error)
{
	int status = device_may(device, bytes, what, remedy, error);
	cudaStream_t stream = device->streams[DEVICE_COMPUTE];
	size_t whole = bytes ? bytes : 1;
	void *made = NULL;
	cudaError_t result;

	*memory = NULL;
	if (status)
		return status;
	result = cudaMalloc(&made, whole);
	if (result == cudaErrorMemoryAllocation)
		return refuse_memory(device, result, bytes, what, remedy, error);
	if (result != cudaSuccess)
		return ddp_gpu_error(device->who, result, error, "allocating %zu bytes for %s",
				     bytes, what);
	ledger_add(&device->ledger, made, whole, LEDGER_DEVICE);
	status = cuda_error(device, cudaMemsetAsync(made, 0, whole, stream), "clearing memory",
			    error);
	if (!status)
		status = poll_stream(device, stream, error);
	/* cudaFree() would wait for a GPU that hangs. */
	if (status && cudaStreamQuery(stream) != cudaErrorNotReady)
		device_free(device, made);
	(void)cudaGetLastError();
	*memory = status ? NULL : made;
	return status;
}

int device_alloc_host(struct device *device, void **memory, size_t bytes, const char *what,
		      struct ddp_error *error)
{
	const unsigned int flags = cudaHostAllocPortable | cudaHostAllocMapped;
	size_t whole = bytes ? bytes : 1;
	void *pinned = NULL;
	int status;

	*memory = NULL;
	status = ddp_gpu_error(device->who, cudaHostAlloc(&pinned, whole, flags), error,
			       "pinning %zu bytes of host memory for %s", bytes, what);
	if (status)
		return status;
	*memory = memset(pinned, 0, whole);
	ledger_add(&device->ledger, pinned, whole, LEDGER_HOST);
	return 0;
}

void device_free(struct device *device, void *memory)
{
	struct ledger_entry entry;

	if (memory && ledger_remove(&device->ledger, memory, &entry))
		free_entry(&entry);
}

void device_count(struct device *device, void *memory, size_t bytes)
{
	ledger_add(&device->ledger, memory, bytes, LEDGER_OTHERS);
}

size_t device_most(const struct device *device)
{
	return device->ledger.most;
}

size_t device_context(const struct device *device)
{
	return device->ledger.context;
}

/*
 * The driver counts the memory of this process. The part that this file did not allocate is
 * attributed to CUDA. The driver can round up allocations.
 */
void device_measure(struct device *device)
{
	size_t held = ddp_gpu_held(device->info.uuid);

	if (held > device->ledger.used + device->ledger.context)
		device->ledger.context = held - device->ledger.used;
}

/* --- Copies ------------------------------------------------------------------------------------ */

/*
 * cudaMemcpyAsync() for pageable memory can return before the copy is done. CUDA does not specify
 * this, but it happens if the GPU reads host memory directly. Therefore this function waits for
 * such copies. Graphs must not contain them, and the emulation rejects them there.
 */
int device_copy(struct device *device, enum device_stream stream, void *to, const void *from,
		size_t bytes, struct ddp_error *error)
{
	cudaStream_t on = device->streams[stream];
	int status;

	if (bytes == 0)
		return 0;
	status = ddp_gpu_error(device->who, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on),
			       error, "copying %zu bytes", bytes);
	if (!status && !(ledger_find(&device->ledger, to) && ledger_find(&device->ledger, from)))
		status = poll_stream(device, on, error);
	return status;
}

/* --- Order ------------------------------------------------------------------------------------- */

/*
 * One event per stream is enough: recording an event again does not affect a wait that was enqueued
 * before.
 */
int device_order(struct device *device, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error)
{
	cudaEvent_t event = device->ordered[earlier];
	cudaError_t result;

	result = cudaEventRecord(event, device->streams[earlier]);
	if (result == cudaSuccess)
		result = cudaStreamWaitEvent(device->streams[later], event, 0);
	return cuda_error(device, result, "ordering streams", error);
}

int device_ended(struct device *device, enum device_stream stream, struct ddp_error *error)
{
	cudaError_t result = cudaStreamQuery(device->streams[stream]);

	if (result != cudaErrorNotReady)
		return result == cudaSuccess
			       ? 1
			       : cuda_error(device, result, "asynchronous work failed", error);
	(void)cudaGetLastError();
	return 0;
}

/* --- Graphs ------------------------------------------------------------------------------------ */

/*
 * In relaxed mode, a capture stays valid if libraries call CUDA during the capture, whether in this
 * thread or in NCCL's threads.
 */
int device_capture_begin(struct device *device, struct ddp_error *error)
{
	cudaError_t result = cudaStreamBeginCapture(device->streams[DEVICE_COMPUTE],
						    cudaStreamCaptureModeRelaxed);

	return cuda_error(device, result, "starting the capture of a graph", error);
}

/* With the flag, nodes keep the priorities of the streams on which they were captured. */
int device_capture_end(struct device *device, struct device_graph **graph, struct ddp_error *error)
{
	const unsigned int flags = cudaGraphInstantiateFlagUseNodePriority;
	struct device_graph *made = ddp_xcalloc(1, sizeof(*made), "a graph");
	cudaGraph_t recorded = NULL;
	cudaError_t result;
	int status;

	*graph = NULL;
	result = cudaStreamEndCapture(device->streams[DEVICE_COMPUTE], &recorded);
	if (result == cudaSuccess)
		result = cudaGraphGetNodes(recorded, NULL, &made->nodes);
	if (result == cudaSuccess)
		result = cudaGraphInstantiateWithFlags(&made->launched, recorded, flags);
	if (result == cudaSuccess)
		result = cudaGraphUpload(made->launched, device->streams[DEVICE_COMPUTE]);
	status = ddp_gpu_error(device->who, result, error, "preparing a CUDA graph of %zu nodes",
			       made->nodes);
	if (recorded)
		(void)cudaGraphDestroy(recorded);
	if (status)
		device_graph_destroy(made);
	else
		*graph = made;
	return status;
}

int device_launch(struct device *device, struct device_graph *graph, struct ddp_error *error)
{
	return ddp_gpu_error(device->who,
			     cudaGraphLaunch(graph->launched, device->streams[DEVICE_COMPUTE]),
			     error, "launching a graph of %zu nodes", graph->nodes);
}

void device_graph_destroy(struct device_graph *graph)
{
	if (!graph)
		return;
	if (graph->launched)
		(void)cudaGraphExecDestroy(graph->launched);
	(void)cudaGetLastError();
	free(graph);
}
