/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "fake-cuda.h"

struct fake fake;

/* Handles are numbers; those of streams in the order in which they are made: 1, 2, 3, ... */
static uintptr_t handles;
static bool capturing;

void fake_reset(void)
{
	fake = (struct fake){.driver = CUDART_VERSION,
			     .count = 2,
			     .free = (size_t)60 << 30,
			     .total = (size_t)80 << 30};
	handles = 0;
	capturing = false;
}

bool fake_called(int at, const char *text)
{
	return at < fake.calls && strncmp(fake.trace[at], text, strlen(text)) == 0;
}

int fake_count(const char *text)
{
	int count = 0;

	for (int i = 0; i < fake.calls; i++)
		count += fake_called(i, text);
	return count;
}

cudaError_t fake_note(const char *format, ...)
{
	char text[FAKE_TEXT];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (fake.calls < FAKE_CALLS)
		memcpy(fake.trace[fake.calls], text, sizeof(text));
	fake.calls++;
	if (fake.fail && strncmp(text, fake.fail, strlen(fake.fail)) == 0) {
		fake.fail = NULL;
		return fake.last = fake.result;
	}
	return fake.calls == fake.fail_at ? (fake.last = fake.result) : cudaSuccess;
}

cudaError_t fake_make(void *handle, cudaError_t result)
{
	if (result == cudaSuccess) {
		uintptr_t made = ++handles;

		memcpy(handle, &made, sizeof(made));
		fake.objects++;
	}
	return result;
}

cudaError_t fake_destroy(cudaError_t result)
{
	fake.objects--;
	return result;
}

static unsigned long number(const void *handle)
{
	return (unsigned long)(uintptr_t)handle;
}

/* Of libc: device_close() waits by it. */
int nanosleep(const struct timespec *pause, struct timespec *rest)
{
	(void)pause;
	(void)rest;
	fake.sleeps++;
	return 0;
}

/* --- Errors ------------------------------------------------------------------------------- */

cudaError_t cudaGetLastError(void)
{
	cudaError_t last = fake.last;

	fake.last = cudaSuccess;
	return last;
}

const char *cudaGetErrorString(cudaError_t error)
{
	return error == cudaErrorECCUncorrectable ? "uncorrectable ECC error" : "an error";
}

const char *cudaGetErrorName(cudaError_t error)
{
	return error == cudaErrorECCUncorrectable ? "cudaErrorECCUncorrectable" : "cudaErrorName";
}

/* --- Devices ------------------------------------------------------------------------------ */

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = fake.driver;
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = fake.count;
	if (fake.driver < CUDART_VERSION / 1000 * 1000)
		return cudaErrorInsufficientDriver;
	return fake.count ? fake_note("count") : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int *device)
{
	*device = fake.current;
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	fake.current = device;
	return fake_note("device %d", device);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
	(void)flags;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
	memset(properties, 0, sizeof(*properties));
	snprintf(properties->name, sizeof(properties->name), "NVIDIA Fake");
	properties->major = 9;
	properties->multiProcessorCount = 132;
	return fake_note("properties %d", device);
}

#if CUDART_VERSION >= 12050
static int driver_device(int *handle, int ordinal)
{
	*handle = ordinal;
	return 0;
}

static int driver_uuid_whole(cudaUUID_t *uuid, int device)
{
	memset(uuid->bytes, device + 1, sizeof(uuid->bytes));
	return 0;
}

static int driver_uuid_part(cudaUUID_t *uuid, int device)
{
	memset(uuid->bytes, fake.mig ? 0x77 : device + 1, sizeof(uuid->bytes));
	return 0;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
					     unsigned int version, unsigned long long flags,
					     enum cudaDriverEntryPointQueryResult *found)
{
	union {
		int (*function)(int *, int);
		int (*uuid)(cudaUUID_t *, int);
		void *address;
	} of = {driver_device};

	(void)flags;
	if (strcmp(symbol, "cuDeviceGetUuid") == 0)
		of.uuid = version < 11040 ? driver_uuid_whole : driver_uuid_part;
	*function = of.address;
	if (fake_driver_function && strcmp(symbol, "cuDeviceGet") != 0 &&
	    strcmp(symbol, "cuDeviceGetUuid") != 0)
		*function = fake_driver_function(symbol, version);
	*found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
	return cudaSuccess;
}
#endif

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return fake_note("priorities");
}

/* --- Streams and events ------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
	return fake_make(stream, fake_note("stream %u %d", flags, priority));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
	return fake_make(stream, fake_note("stream %u", flags));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	return fake_make(event, fake_note("event %u", flags));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	(void)stream;
	return fake_destroy(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	(void)event;
	return fake_destroy(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	return fake.busy ? (fake.last = cudaErrorNotReady) : fake_note("wait %lu", number(stream));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	(void)event;
	return fake.busy ? (fake.last = cudaErrorNotReady) : fake_note("query");
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	return fake_note("wait %lu", number(stream));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	return fake_note("record %lu in %lu", number(event), number(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	(void)flags;
	return fake_note("order %lu in %lu", number(event), number(stream));
}

/* --- Memory ------------------------------------------------------------------------------- */

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
	*available = fake.free;
	*total = fake.total;
	return fake_note("memory");
}

static cudaError_t give(void **memory, size_t bytes, cudaError_t result)
{
	if (result == cudaSuccess && bytes > fake.free)
		result = fake.last = cudaErrorMemoryAllocation;
	*memory = NULL;
	/* Nobody looks into large ones. */
	if (result == cudaSuccess) {
		*memory = malloc(bytes < 4096 ? bytes : 4096);
		fake.objects++;
	}
	return result;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
	return give(memory, bytes, fake_note("malloc %zu", bytes));
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned int flags)
{
	return give(memory, bytes, fake_note("pin %zu %u", bytes, flags));
}

cudaError_t cudaFree(void *memory)
{
	free(memory);
	return fake_destroy(fake_note("free"));
}

cudaError_t cudaFreeHost(void *memory)
{
	free(memory);
	return fake_destroy(fake_note("unpin"));
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
	(void)memory;
	return fake_note("set %d %zu in %lu", value, bytes, number(stream));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	(void)to;
	(void)from;
	(void)kind;
	return fake_note("copy %zu in %lu", bytes, number(stream));
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
	(void)memory;
	memset(attributes, 0, sizeof(*attributes));
	attributes->type = cudaMemoryTypeUnregistered;
	return cudaSuccess;
}

/* --- Graphs ------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	cudaError_t result = fake_note("capture %lu %d", number(stream), (int)mode);

	capturing = result == cudaSuccess;
	return result;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
	*status = capturing && number(stream) == 1 ? cudaStreamCaptureStatusActive
						   : cudaStreamCaptureStatusNone;
	return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	capturing = false;
	*graph = NULL;
	return fake_make(graph, fake_note("captured %lu", number(stream)));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
	(void)graph;
	(void)nodes;
	*count = 7;
	return fake_note("nodes");
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
					  unsigned long long flags)
{
	(void)graph;
	return fake_make(exec, fake_note("instantiate %llu", flags));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
	(void)exec;
	return fake_note("upload in %lu", number(stream));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	(void)exec;
	return fake_note("launch in %lu", number(stream));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	(void)exec;
	return fake_destroy(fake_note("destroy exec"));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	(void)graph;
	return fake_destroy(fake_note("destroy graph"));
}
