/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda.h>
#pragma GCC diagnostic pop

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/card-memory.h"
#include "base/error.h"
#include "device/sum.h"
#include "fake-cuda.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

enum { PAGE = 2 << 20 };

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

/* Where [result] is success a handle is made. */
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

/* NVML's, by the linker's --wrap. */
size_t __wrap_ddp_card_held(const char *uuid);

size_t __wrap_ddp_card_held(const char *uuid)
{
	return fake.held;
}

/* Of libc: device_close() waits by it. */
int nanosleep(const struct timespec *pause, struct timespec *rest)
{
	fake.sleeps++;
	return 0;
}

/* A kernel. A launch fails by what cudaGetLastError() says. */
void ddp_shard_kernel_sum(void *stream, int processors, void *const *to, int targets,
			  const void *const *from, int sources, size_t count, enum ddp_type type,
			  enum ddp_op op)
{
	(void)note("sum %d to %d of %zu type %d op %d on %d in %lu", sources, targets, count,
		   (int)type, (int)op, processors, number(stream));
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

/* What a function of the runtime does: assignments, and its result. */
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
CALL(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned int flags),
     make(stream, note("stream %u", flags)))
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

/* Nobody looks into large ones. */
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
CALL(cudaPointerGetAttributes, (struct cudaPointerAttributes * attributes, const void *memory),
     (attributes->type = cudaMemoryTypeUnregistered, cudaSuccess))
CALL(cudaHostRegister, (void *memory, size_t bytes, unsigned int flags),
     took(note("register %zu %u", bytes, flags)))
CALL(cudaHostUnregister, (void *memory), gone(note("unregister")))
/* The GPU has the host's memory elsewhere. */
CALL(cudaHostGetDevicePointer, (void **place, void *memory, unsigned int flags),
     (*place = (char *)memory + PAGE, note("place")))
CALL(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *memory),
     (memcpy(handle, &memory, sizeof(memory)), note("tell handle")))
CALL(cudaIpcOpenMemHandle, (void **memory, cudaIpcMemHandle_t handle, unsigned int flags),
     (memcpy(memory, &handle, sizeof(*memory)), took(note("open handle %u", flags))))
CALL(cudaIpcCloseMemHandle, (void *memory), gone(note("close handle")))

/* --- The driver -------------------------------------------------------------------------------- */

/* Its functions leave nothing for cudaGetLastError(). */
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
DRIVER(attribute, (int *value, CUdevice_attribute of, CUdevice device),
       (*value = of != CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED ||
		 !fake.no_descriptors,
	note("attribute of %d", device)))
DRIVER(wait_word, (CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags),
       note("await %u %u in %lu", value, flags, number(stream)))

static CUresult write_word(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags)
{
	cudaError_t result = note("write %u %u in %lu", value, flags, number(stream));

	if (result == cudaSuccess && !fake.silent)
		*(uint32_t *)(uintptr_t)(word - PAGE) = value;
	return quiet(result);
}

DRIVER(granularity,
       (size_t * bytes, const CUmemAllocationProp *properties,
	CUmemAllocationGranularity_flags option),
       (*bytes = PAGE, note("granularity of %d", properties->location.id)))

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
		       const CUmemAllocationProp *properties, unsigned long long flags)
{
	cudaError_t result = note("create %zu", bytes);

	if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		result = cudaErrorInvalidValue;
	if (result == cudaSuccess && bytes > fake.free)
		result = cudaErrorMemoryAllocation;
	return quiet(make(handle, result));
}

DRIVER(release, (CUmemGenericAllocationHandle handle), gone(note("release")))

static CUresult export(void *shareable, CUmemGenericAllocationHandle handle,
		       CUmemAllocationHandleType type, unsigned long long flags)
{
	cudaError_t result = note("export %d", (int)type);

	if (result == cudaSuccess)
		*(int *)shareable = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return quiet(result);
}

static CUresult import(CUmemGenericAllocationHandle *handle, void *shareable,
		       CUmemAllocationHandleType type)
{
	cudaError_t result = note("import %d", (int)type);

	if (fcntl((int)(uintptr_t)shareable, F_GETFD) < 0)
		result = cudaErrorInvalidValue;
	return quiet(make(handle, result));
}

/* Of what is mapped nobody here sees more than its address. */
static CUresult reserve(CUdeviceptr *place, size_t bytes, size_t alignment, CUdeviceptr wish,
			unsigned long long flags)
{
	cudaError_t result = note("reserve %zu", bytes);

	if (result == cudaSuccess)
		*place = (CUdeviceptr)malloc(1);
	return quiet(took(result));
}

DRIVER(unreserve, (CUdeviceptr place, size_t bytes),
       (free((void *)place), gone(note("unreserve %zu", bytes))))
DRIVER(map,
       (CUdeviceptr place, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
	unsigned long long flags),
       took(note("map %zu at %zu", bytes, offset)))
DRIVER(unmap, (CUdeviceptr place, size_t bytes), gone(note("unmap %zu", bytes)))
DRIVER(allow, (CUdeviceptr place, size_t bytes, const CUmemAccessDesc *access, size_t count),
       note("allow %zu %d to %d", bytes, (int)access->flags, access->location.id))

/* Of each the version that cudaTypedefs.h has. */
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
		FUNCTION("cuDeviceGetAttribute", 2000, attribute),
		FUNCTION("cuStreamWaitValue32", 11070, wait_word),
		FUNCTION("cuStreamWriteValue32", 11070, write_word),
		FUNCTION("cuMemGetAllocationGranularity", 10020, granularity),
		FUNCTION("cuMemCreate", 10020, create),
		FUNCTION("cuMemRelease", 10020, release),
		FUNCTION("cuMemExportToShareableHandle", 10020, export),
		FUNCTION("cuMemImportFromShareableHandle", 10020, import),
		FUNCTION("cuMemAddressReserve", 10020, reserve),
		FUNCTION("cuMemAddressFree", 10020, unreserve),
		FUNCTION("cuMemMap", 10020, map),
		FUNCTION("cuMemUnmap", 10020, unmap),
		FUNCTION("cuMemSetAccess", 10020, allow),
	};

	if (fake.missing && strncmp(symbol, fake.missing, strlen(fake.missing)) == 0)
		return NULL;
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
