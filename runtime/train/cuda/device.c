/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/watch.h"
#include "ledger.h"
#include "wide/card-cuda.h"
#include "wide/card-memory.h"

/* Of a process that has a context and little more, with the libraries that a training loads. */
#define USUAL_CONTEXT ((size_t)512 << 20)

/* How long device_close() waits for work that is under way, in steps of so many nanoseconds. */
enum { CLOSE_STEPS = 5000, CLOSE_NANOSECONDS = 1000000 };

struct device {
	struct device_info info;
	char who[DDP_CARD_WHO]; /* "GPU 1 (NVIDIA H200)", for messages */
	struct ledger ledger;
	cudaStream_t streams[DEVICE_STREAMS];
	cudaStream_t setup;		     /* for what waits: never captured */
	cudaEvent_t ordered[DEVICE_STREAMS]; /* device_order()'s, by the earlier stream */
	cudaEvent_t marks[DEVICE_MARKS];     /* NULL: never set */
	bool capturing;
	double patience; /* seconds of a wait, 0: any */
};

struct device_graph {
	cudaGraphExec_t launched;
	size_t nodes;
};

/* --- Which there are --------------------------------------------------------------------------- */

bool device_available(struct ddp_error *error)
{
	return ddp_card_count(error) > 0;
}

static int look(struct device_info *info, const char *who, struct ddp_error *error)
{
	struct cudaDeviceProp properties;
	int status = ddp_card_error(who, cudaGetDeviceProperties(&properties, info->index), error,
				    "asking for its properties");

	if (status)
		return status;
	snprintf(info->name, sizeof(info->name), "%.*s", (int)sizeof(info->name) - 1,
		 properties.name);
	info->major = properties.major;
	info->minor = properties.minor;
	info->processors = properties.multiProcessorCount;
	ddp_card_uuid(info->uuid, sizeof(info->uuid), info->index, &properties);
	(void)cudaDriverGetVersion(&info->driver);
	(void)cudaRuntimeGetVersion(&info->cuda);
	return 0;
}

int device_list(char (*uuids)[DEVICE_UUID], int most, struct ddp_error *error)
{
	int count = ddp_card_count(error), status = 0;

	for (int i = 0; i < count && i < most && !status; i++) {
		struct device_info info = {.index = i};

		status = look(&info, "GPUs", error);
		memcpy(uuids[i], info.uuid, DEVICE_UUID);
	}
	return status < 0 ? status : count;
}

/* --- Opening ----------------------------------------------------------------------------------- */

/*
 * What CUDA's context takes, which is there now and nothing else of ours: as the driver counts it for this
 * process. Where it does not (in containers it may not see its own processes), it is no more than what all
 * processes have together; and since others may have started at the same time, no more than what is usual.
 */
static int look_at_memory(struct device *device, double share, struct ddp_error *error)
{
	struct device_info *info = &device->info;
	size_t available = 0, held, all;
	int status = ddp_card_error(device->who, cudaMemGetInfo(&available, &info->total), error,
				    "asking for its memory");

	if (status)
		return status;
	held = ddp_card_held(info->uuid);
	all = info->total > available ? info->total - available : 0;
	if (held == 0)
		held = USUAL_CONTEXT;
	device->ledger.context = held < all ? held : all;
	return ledger_limit(&device->ledger, info, available, share, error);
}

static int make_streams(struct device *device, struct ddp_error *error)
{
	int least = 0, greatest = 0;
	cudaError_t result = cudaDeviceGetStreamPriorityRange(&least, &greatest);

	for (int i = 0; i < DEVICE_STREAMS && result == cudaSuccess; i++) {
		result = cudaStreamCreateWithPriority(&device->streams[i], cudaStreamNonBlocking,
						      i == DEVICE_REDUCE ? greatest : least);
		if (result == cudaSuccess)
			result = cudaEventCreateWithFlags(&device->ordered[i],
							  cudaEventDisableTiming);
	}
	if (result == cudaSuccess)
		result = cudaStreamCreateWithFlags(&device->setup, cudaStreamNonBlocking);
	return ddp_card_error(device->who, result, error, "making streams");
}

static int open_card(struct device *device, double share, struct ddp_error *error)
{
	struct device_info *info = &device->info;
	int status = ddp_card_check("cuda", "this rank", info->index, error);

	if (!status)
		status = ddp_card_error(device->who, cudaSetDevice(info->index), error,
					"opening it");
	/* Whoever waits leaves the processor to others: there is one for each rank, if that. */
	if (!status && cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) != cudaSuccess)
		(void)cudaGetLastError();
	if (!status)
		status = look(info, device->who, error);
	if (status)
		return status;
	snprintf(device->who, sizeof(device->who), "GPU %d (%s)", info->index, info->name);
	status = look_at_memory(device, share, error);
	return status ? status : make_streams(device, error);
}

int device_open(struct device **device, int index, double share, struct ddp_error *error)
{
	struct device *opened = calloc(1, sizeof(*opened));
	int status;

	*device = NULL;
	if (!opened)
		return ddp_error_set(error, DDP_ERR_MEMORY, "GPU %d: no memory on the host", index);
	opened->info.index = index;
	snprintf(opened->who, sizeof(opened->who), "GPU %d", index);
	status = open_card(opened, share, error);
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

/* --- Closing ----------------------------------------------------------------------------------- */

/* Nothing was left under way, or it failed, and CUDA frees what it has without waiting. */
static bool is_idle(const struct device *device)
{
	bool idle = !device->setup || cudaStreamQuery(device->setup) != cudaErrorNotReady;

	for (int i = 0; i < DEVICE_STREAMS && idle; i++)
		idle = !device->streams[i] ||
		       cudaStreamQuery(device->streams[i]) != cudaErrorNotReady;
	(void)cudaGetLastError();
	return idle;
}

bool device_rests(const struct device *device)
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

static void end_capture(struct device *device)
{
	cudaGraph_t graph = NULL;

	if (device->capturing &&
	    cudaStreamEndCapture(device->streams[DEVICE_COMPUTE], &graph) == cudaSuccess)
		(void)cudaGraphDestroy(graph);
	device->capturing = false;
}

static void give_back(const struct ledger_entry *entry)
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
	end_capture(device);
	if (!device_rests(device))
		return;
	while (ledger_take(&device->ledger, NULL, &entry))
		give_back(&entry);
	for (int i = 0; i < DEVICE_MARKS; i++)
		if (device->marks[i])
			(void)cudaEventDestroy(device->marks[i]);
	for (int i = 0; i < DEVICE_STREAMS; i++) {
		if (device->ordered[i])
			(void)cudaEventDestroy(device->ordered[i]);
		if (device->streams[i])
			(void)cudaStreamDestroy(device->streams[i]);
	}
	if (device->setup)
		(void)cudaStreamDestroy(device->setup);
	(void)cudaGetLastError();
	free(device);
}

/* --- Waiting ----------------------------------------------------------------------------------- */

void device_patience(struct device *device, double seconds)
{
	device->patience = seconds;
}

/* At first without sleep, for a second with short ones, then with longer ones. */
static void pause_after(double waited)
{
	struct timespec nap = {0, waited < 1 ? 50000 : 1000000};

	if (waited < 200e-6)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

/* cudaStreamSynchronize() would never come back from a GPU that hangs. */
static int await(struct device *device, cudaStream_t stream, struct ddp_error *error,
		 const char *what)
{
	double begin = ddp_seconds(), waited = 0;
	cudaError_t result;

	while ((result = cudaStreamQuery(stream)) == cudaErrorNotReady) {
		(void)cudaGetLastError();
		waited = ddp_seconds() - begin;
		if (device->patience > 0 && waited >= device->patience)
			return ddp_error_set(
				error, DDP_ERR_ENGINE,
				"%s: what was under way did not end in %g s "
				"(DDP_TIMEOUT): it hangs; see the kernel's log for Xid, and drain "
				"the node if that happens again",
				device->who, device->patience);
		pause_after(waited);
	}
	return ddp_card_error(device->who, result, error, "%s", what);
}

int device_wait(struct device *device, enum device_stream stream, struct ddp_error *error)
{
	return await(device, device->streams[stream], error, "work that was under way failed");
}

int device_check(struct device *device, const char *what, struct ddp_error *error)
{
	return ddp_card_error(device->who, cudaGetLastError(), error, "enqueuing %s", what);
}

/* --- Memory ------------------------------------------------------------------------------------ */

static int refuse(struct device *device, size_t bytes, const char *what, const char *remedy,
		  struct ddp_error *error)
{
	size_t available = 0, total;

	(void)cudaMemGetInfo(&available, &total);
	(void)cudaGetLastError();
	return ledger_refuse(&device->ledger, &device->info, available, bytes, what, remedy, error);
}

int device_may(struct device *device, size_t bytes, const char *what, const char *remedy,
	       struct ddp_error *error)
{
	if (ledger_allows(&device->ledger, &device->info, bytes))
		return 0;
	return refuse(device, bytes, what, remedy, error);
}

static int keep(struct device *device, void *memory, size_t bytes, enum ledger_kind kind,
		struct ddp_error *error)
{
	if (ledger_add(&device->ledger, memory, bytes, kind))
		return 0;
	return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory on the host", device->who);
}

int device_alloc(struct device *device, void **memory, size_t bytes, const char *what,
		 const char *remedy, struct ddp_error *error)
{
	size_t whole = bytes ? bytes : 1;
	cudaError_t result;
	int status;

	*memory = NULL;
	status = device_may(device, bytes, what, remedy, error);
	if (status)
		return status;
	result = cudaMalloc(memory, whole);
	if (result != cudaSuccess) {
		*memory = NULL;
		if (result == cudaErrorMemoryAllocation)
			return refuse(device, bytes, what, remedy, error);
		return ddp_card_error(device->who, result, error, "allocating %zu bytes for %s",
				      bytes, what);
	}
	status = ddp_card_error(device->who, cudaMemsetAsync(*memory, 0, whole, device->setup),
				error, "clearing %s", what);
	if (!status)
		status = await(device, device->setup, error, "clearing new memory");
	if (!status)
		status = keep(device, *memory, whole, LEDGER_DEVICE, error);
	if (status) {
		/* cudaFree() would wait for a GPU that hangs. */
		if (cudaStreamQuery(device->setup) != cudaErrorNotReady)
			(void)cudaFree(*memory);
		(void)cudaGetLastError();
		*memory = NULL;
	}
	return status;
}

int device_alloc_host(struct device *device, void **memory, size_t bytes, const char *what,
		      struct ddp_error *error)
{
	size_t whole = bytes ? bytes : 1;
	int status = ddp_card_error(device->who,
				    cudaHostAlloc(memory, whole,
						  cudaHostAllocPortable | cudaHostAllocMapped),
				    error, "pinning %zu bytes of the host for %s", bytes, what);

	if (!status) {
		memset(*memory, 0, whole);
		status = keep(device, *memory, whole, LEDGER_HOST, error);
		if (status)
			(void)cudaFreeHost(*memory);
	}
	if (status)
		*memory = NULL;
	return status;
}

void device_free(struct device *device, void *memory)
{
	struct ledger_entry entry;

	if (memory && ledger_take(&device->ledger, memory, &entry))
		give_back(&entry);
}

int device_count(struct device *device, void *memory, size_t bytes, struct ddp_error *error)
{
	return keep(device, memory, bytes, LEDGER_OTHERS, error);
}

void device_uncount(struct device *device, void *memory)
{
	struct ledger_entry entry;

	(void)ledger_take(&device->ledger, memory, &entry);
}

size_t device_used(const struct device *device, size_t *most)
{
	if (most)
		*most = device->ledger.most;
	return device->ledger.used;
}

size_t device_context(const struct device *device)
{
	return device->ledger.context;
}

/* What the driver counts for this process and we did not allocate; it may round what we did. */
void device_measure(struct device *device)
{
	size_t held = ddp_card_held(device->info.uuid);

	if (held > device->ledger.used + device->ledger.context)
		device->ledger.context = held - device->ledger.used;
}

/* --- Copies ------------------------------------------------------------------------------------ */

/* The host's own memory, which is neither ours nor known to CUDA. */
static bool is_pageable(const struct device *device, const void *memory)
{
	struct cudaPointerAttributes attributes;

	if (ledger_find(&device->ledger, memory))
		return false;
	if (cudaPointerGetAttributes(&attributes, memory) == cudaSuccess)
		return attributes.type == cudaMemoryTypeUnregistered;
	(void)cudaGetLastError();
	return true;
}

static bool is_captured(const struct device *device, enum device_stream stream)
{
	enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

	if (device->capturing &&
	    cudaStreamIsCapturing(device->streams[stream], &status) != cudaSuccess)
		(void)cudaGetLastError();
	return status != cudaStreamCaptureStatusNone;
}

/*
 * Of pageable memory CUDA promises neither way that it is done with it on return: it "may be", where the
 * driver stages it, and is not where the GPU reads the host's memory itself. So it is waited for.
 */
int device_copy(struct device *device, enum device_stream stream, void *to, const void *from,
		size_t bytes, struct ddp_error *error)
{
	bool wait;
	int status;

	if (bytes == 0)
		return 0;
	wait = is_pageable(device, to) || is_pageable(device, from);
	if (wait && is_captured(device, stream))
		return ddp_error_set(error, DDP_ERR_STATE,
				     "%s: a copy in a graph, of memory that is neither the GPU's "
				     "nor pinned",
				     device->who);
	status = ddp_card_error(device->who,
				cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
						device->streams[stream]),
				error, "copying %zu bytes", bytes);
	return status || !wait ? status : device_wait(device, stream, error);
}

int device_zero(struct device *device, enum device_stream stream, void *memory, size_t bytes,
		struct ddp_error *error)
{
	if (bytes == 0)
		return 0;
	return ddp_card_error(device->who,
			      cudaMemsetAsync(memory, 0, bytes, device->streams[stream]), error,
			      "clearing %zu bytes", bytes);
}

/* --- Order ------------------------------------------------------------------------------------- */

/* An event may be set again as soon as somebody was told to wait for it: its old meaning stays with that. */
int device_order(struct device *device, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error)
{
	cudaEvent_t event = device->ordered[earlier];
	cudaError_t result;

	if (later == earlier)
		return 0;
	result = cudaEventRecord(event, device->streams[earlier]);
	if (result == cudaSuccess)
		result = cudaStreamWaitEvent(device->streams[later], event, 0);
	return ddp_card_error(device->who, result, error, "putting streams in order");
}

int device_mark(struct device *device, enum device_stream stream, int slot, struct ddp_error *error)
{
	cudaEvent_t *mark = &device->marks[slot];
	cudaError_t result = cudaSuccess;

	if (!*mark)
		result = cudaEventCreateWithFlags(mark, cudaEventDisableTiming);
	if (result == cudaSuccess)
		result = cudaEventRecord(*mark, device->streams[stream]);
	return ddp_card_error(device->who, result, error, "marking a place in a stream");
}

int device_reached(struct device *device, int slot, struct ddp_error *error)
{
	cudaError_t result = cudaSuccess;

	if (device->marks[slot])
		result = cudaEventQuery(device->marks[slot]);
	if (result == cudaSuccess)
		return 1;
	if (result != cudaErrorNotReady)
		return ddp_card_error(device->who, result, error, "work that was under way failed");
	(void)cudaGetLastError();
	return 0;
}

/* --- Graphs ------------------------------------------------------------------------------------ */

/*
 * Relaxed: libraries that allocate or ask meanwhile break no capture, neither in this thread nor in
 * those of NCCL and of watchdogs.
 */
int device_capture_begin(struct device *device, struct ddp_error *error)
{
	int status = ddp_card_error(device->who,
				    cudaStreamBeginCapture(device->streams[DEVICE_COMPUTE],
							   cudaStreamCaptureModeRelaxed),
				    error, "beginning to record a graph");

	device->capturing = !status;
	return status;
}

/* With priorities of its own for each node, as the streams had them that it came from. */
int device_capture_end(struct device *device, struct device_graph **graph, struct ddp_error *error)
{
	struct device_graph *made = calloc(1, sizeof(*made));
	cudaGraph_t recorded = NULL;
	cudaError_t result;
	int status;

	*graph = NULL;
	device->capturing = false;
	result = cudaStreamEndCapture(device->streams[DEVICE_COMPUTE], &recorded);
	if (!made) {
		if (result == cudaSuccess)
			(void)cudaGraphDestroy(recorded);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a graph");
	}
	if (result == cudaSuccess) {
		result = cudaGraphGetNodes(recorded, NULL, &made->nodes);
		if (result == cudaSuccess)
			result = cudaGraphInstantiateWithFlags(
				&made->launched, recorded, cudaGraphInstantiateFlagUseNodePriority);
		if (result == cudaSuccess)
			result = cudaGraphUpload(made->launched, device->streams[DEVICE_COMPUTE]);
		(void)cudaGraphDestroy(recorded);
	}
	status = ddp_card_error(device->who, result, error, "preparing a graph of %zu nodes",
				made->nodes);
	if (status)
		device_graph_destroy(made);
	else
		*graph = made;
	return status;
}

int device_launch(struct device *device, struct device_graph *graph, struct ddp_error *error)
{
	return ddp_card_error(device->who,
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

size_t device_graph_nodes(const struct device_graph *graph)
{
	return graph->nodes;
}
