/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda.h>
#pragma GCC diagnostic pop

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/gpu-memory.h"
#include "device/wire.h"
#include "fake-cuda.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

struct fake fake;

/* Handles are numbers. Streams get 1, 2, 3, ... in the order in which they are created. */
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

bool fake_fail_each(int (*run)(void), struct ddp_error *error, const char *text)
{
	int calls = fake.calls, wrong = 0;

	for (int at = 1; at <= calls; at++) {
		int status;

		fake_reset();
		fake.fail_at = at;
		fake.result = cudaErrorECCUncorrectable;
		*error = (struct ddp_error){0, ""};
		status = run();
		if (fake.objects == 0 &&
		    (status == 0 || (status == DDP_ERR_ENGINE && strstr(error->text, text))))
			continue;
		printf("# call %d, %s: status %d, %d objects left: %s\n", at, fake.trace[at - 1],
		       status, fake.objects, error->text);
		wrong++;
	}
	return calls > 0 && wrong == 0;
}

static DDP_FORMAT(1, 2) cudaError_t note(const char *format, ...)
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

static cudaError_t make(void *handle, cudaError_t result)
{
	if (result == cudaSuccess) {
		uintptr_t made = ++handles;

		memcpy(handle, &made, sizeof(made));
		fake.objects++;
	}
	return result;
}

static cudaError_t took(cudaError_t result)
{
	fake.objects += result == cudaSuccess;
	return result;
}

static cudaError_t gone(cudaError_t result)
{
	fake.objects--;
	return result;
}

static unsigned long number(const void *handle)
{
	return (unsigned long)(uintptr_t)handle;
}

/* Replaces the function that asks NVML (linker option --wrap). */
size_t __wrap_ddp_gpu_held(const char *uuid);

size_t __wrap_ddp_gpu_held(const char *uuid)
{
	return fake.held;
}

static time_t passed;

/* Replaces libc's function, with which device.c waits. */
int nanosleep(const struct timespec *pause, struct timespec *rest)
{
	fake.busy = fake.busy && !fake.was_suspended;
	fake.was_suspended = fake.suspended > 0;
	passed += fake.suspended;
	fake.suspended = 0;
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	int result = (int)syscall(SYS_clock_gettime, clock, time);

	time->tv_sec += passed;
	return result;
}

/* Stands for a kernel. If its launch failed, cudaGetLastError() returns the error. */
void ddp_wire_kernel_count(void *stream, uint64_t *word)
{
	(void)note("count in %lu", number(stream));
}

/* --- The runtime: errors and devices ---------------------------------------------------------- */

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

/* Defines a function of the CUDA runtime. The last arguments are assignments and the result. */
#define CALL(name, parameters, ...) \
	cudaError_t name parameters \
	{                           \
		return __VA_ARGS__; \
	}

CALL(cudaDriverGetVersion, (int *version), (*version = fake.driver, cudaSuccess))
CALL(cudaRuntimeGetVersion, (int *version), (*version = CUDART_VERSION, cudaSuccess))
CALL(cudaGetDevice, (int *device), (*device = fake.current, cudaSuccess))
CALL(cudaSetDevice, (int device), (fake.current = device, note("device %d", device)))
CALL(cudaSetDeviceFlags, (unsigned int flags), cudaSuccess)
CALL(cudaDeviceSynchronize, (void), note("rest"))
CALL(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode), cudaSuccess)
CALL(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
     (*least = 0, *greatest = -5, note("priorities")))

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = fake.count;
	if (fake.driver < CUDART_VERSION / 1000 * 1000)
		return cudaErrorInsufficientDriver;
	return fake.count ? note("count") : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
	memset(properties, 0, sizeof(*properties));
	snprintf(properties->name, sizeof(properties->name), "NVIDIA Fake");
	properties->major = 9;
	properties->multiProcessorCount = 132;
	return note("properties %d", device);
}

/* --- Streams, events, graphs ------------------------------------------------------------------- */

CALL(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned int flags, int priority),
     make(stream, note("stream %u %d", flags, priority)))
CALL(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags),
     make(event, note("event %u", flags)))
CALL(cudaStreamDestroy, (cudaStream_t stream), gone(cudaSuccess))
CALL(cudaEventDestroy, (cudaEvent_t event), gone(cudaSuccess))
CALL(cudaStreamQuery, (cudaStream_t stream),
     fake.busy ? (fake.last = cudaErrorNotReady) : note("wait %lu", number(stream)))
CALL(cudaEventQuery, (cudaEvent_t event),
     fake.busy ? (fake.last = cudaErrorNotReady) : note("query"))
CALL(cudaStreamSynchronize, (cudaStream_t stream), note("wait %lu", number(stream)))
CALL(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream),
     note("record %lu in %lu", number(event), number(stream)))
CALL(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
     note("order %lu in %lu", number(event), number(stream)))

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	cudaError_t result = note("capture %lu %d", number(stream), (int)mode);

	capturing = result == cudaSuccess;
	return result;
}

CALL(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
     (*status = capturing && number(stream) == 1 ? cudaStreamCaptureStatusActive
						 : cudaStreamCaptureStatusNone,
      cudaSuccess))
CALL(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph),
     (capturing = false, *graph = NULL, make(graph, note("captured %lu", number(stream)))))
CALL(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count),
     (*count = 7, note("nodes")))
CALL(cudaGraphInstantiateWithFlags,
     (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
     make(exec, note("instantiate %llu", flags)))
CALL(cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream), note("upload"))
CALL(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream),
     note("launch in %lu", number(stream)))
CALL(cudaGraphExecDestroy, (cudaGraphExec_t exec), gone(cudaSuccess))
CALL(cudaGraphDestroy, (cudaGraph_t graph), gone(cudaSuccess))

/* --- Memory ------------------------------------------------------------------------------------ */

CALL(cudaMemGetInfo, (size_t * available, size_t *total),
     (*available = fake.free, *total = fake.total, note("memory")))

/* Allocates at most 4096 bytes, because tests do not access more. */
static cudaError_t give(void **memory, size_t bytes, cudaError_t result)
{
	if (result == cudaSuccess && bytes > fake.free)
		result = fake.last = cudaErrorMemoryAllocation;
	*memory = result == cudaSuccess ? malloc(bytes < 4096 ? bytes : 4096) : NULL;
	return took(result);
}

CALL(cudaMalloc, (void **memory, size_t bytes), give(memory, bytes, note("malloc %zu", bytes)))
CALL(cudaHostAlloc, (void **memory, size_t bytes, unsigned int flags),
     give(memory, bytes, note("pin %zu %u", bytes, flags)))
CALL(cudaFree, (void *memory), (free(memory), gone(note("free"))))
CALL(cudaFreeHost, (void *memory), (free(memory), gone(note("unpin"))))
CALL(cudaMemsetAsync, (void *memory, int value, size_t bytes, cudaStream_t stream),
     note("set %d %zu in %lu", value, bytes, number(stream)))
CALL(cudaMemcpyAsync,
     (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream),
     note("copy %zu in %lu", bytes, number(stream)))
CALL(cudaHostRegister, (void *memory, size_t bytes, unsigned int flags),
     took(note("register %zu %u", bytes, flags)))
CALL(cudaHostUnregister, (void *memory), gone(note("unregister")))
CALL(cudaHostGetDevicePointer, (void **place, void *memory, unsigned int flags),
     (*place = (char *)memory + (fake.other_address ? 4096 : 0), note("place")))

/* --- The driver -------------------------------------------------------------------------------- */

/*
 * A function of the driver returns [result] and, unlike the runtime, does not set
 * cudaGetLastError().
 */
static CUresult quiet(cudaError_t result)
{
	fake.last = cudaSuccess;
	return (CUresult)result;
}

#define DRIVER(name, parameters, ...)      \
	static CUresult name parameters    \
	{                                  \
		return quiet(__VA_ARGS__); \
	}

DRIVER(get_device, (CUdevice * device, int index), (*device = index, cudaSuccess))
DRIVER(uuid_whole, (CUuuid * uuid, CUdevice device),
       (memset(uuid->bytes, device + 1, sizeof(uuid->bytes)), cudaSuccess))
DRIVER(uuid_part, (CUuuid * uuid, CUdevice device),
       (memset(uuid->bytes, fake.mig ? 0x77 : device + 1, sizeof(uuid->bytes)), cudaSuccess))
/* Returns the function [symbol], in the version that cudaTypedefs.h has. */
static void *function_of(const char *symbol, unsigned int version)
{
#define FUNCTION(name, version, function)          \
	{                                          \
		name, version,                     \
		{                                  \
			(void (*)(void))(function) \
		}                                  \
	}
	static const struct {
		const char *name;
		unsigned int version;
		union {
			void (*function)(void);
			void *address;
		} of;
	} functions[] = {
		FUNCTION("cuDeviceGet", 2000, get_device),
		FUNCTION("cuDeviceGetUuid", 9020, uuid_whole),
		FUNCTION("cuDeviceGetUuid", 11040, uuid_part),
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (strcmp(functions[i].name, symbol) == 0 && functions[i].version == version)
			return functions[i].of.address;
	return NULL;
}

#if CUDART_VERSION >= 12050
CALL(cudaGetDriverEntryPointByVersion,
     (const char *symbol, void **function, unsigned int version, unsigned long long flags,
      enum cudaDriverEntryPointQueryResult *found),
     (*function = function_of(symbol, version),
      *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound,
      cudaSuccess))
#endif
