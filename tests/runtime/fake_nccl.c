/* SPDX-License-Identifier: Apache-2.0 */
/* fake_nccl.c - implementation of fake_nccl.h */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda_runtime_api.h>
#include <nccl.h>
#pragma GCC diagnostic pop

#include "fake_nccl.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

enum { CALLS = 4096, ALLOCATIONS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static struct fake_nccl fake;
static const char *calls[CALLS];
static int called, left, hanging, blocking;
static _Thread_local int current_device;
static void *allocations[ALLOCATIONS]; /* device memory; after a failure some may remain */
static char comm_name[64];
static struct fake_nccl_call last;

/* All handles point here. Callers do not dereference handles. */
static char object;

struct fake_nccl *fake_nccl_reset(void)
{
	pthread_mutex_lock(&lock);
	fake = (struct fake_nccl){.driver = 13000,
				  .devices = 1,
				  .version = 22809,
				  .last_error = "the fake's last error"};
	called = left = blocking = 0;
	comm_name[0] = '\0';
	for (int i = 0; i < ALLOCATIONS; i++) {
		free(allocations[i]);
		allocations[i] = NULL;
	}
	pthread_mutex_unlock(&lock);
	return &fake;
}

void fake_nccl_release(void)
{
	pthread_mutex_lock(&lock);
	fake.hang = NULL;
	pthread_cond_broadcast(&released);
	while (hanging)
		pthread_cond_wait(&released, &lock);
	pthread_mutex_unlock(&lock);
}

/* Records the call, and hangs if the test requested it. Returns whether the call must fail. */
static bool record_call(const char *name)
{
	bool fail;

	pthread_mutex_lock(&lock);
	if (called < CALLS)
		calls[called++] = name;
	hanging++;
	while (fake.hang && strcmp(fake.hang, name) == 0)
		pthread_cond_wait(&released, &lock);
	hanging--;
	pthread_cond_broadcast(&released);
	fail = fake.fail && strcmp(fake.fail, name) == 0;
	pthread_mutex_unlock(&lock);
	return fail;
}

static void count_object(int change)
{
	pthread_mutex_lock(&lock);
	left += change;
	pthread_mutex_unlock(&lock);
}

static bool is_set(const bool *flag)
{
	return __atomic_load_n(flag, __ATOMIC_SEQ_CST);
}

bool fake_nccl_called(const char *const *names)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < called && *names; i++)
		names += strcmp(calls[i], *names) == 0;
	pthread_mutex_unlock(&lock);
	return !*names;
}

int fake_nccl_count(const char *name)
{
	int count = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < called; i++)
		count += strcmp(calls[i], name) == 0;
	pthread_mutex_unlock(&lock);
	return count;
}

struct fake_nccl_call fake_nccl_last(void)
{
	return last;
}

int fake_nccl_blocking(void)
{
	return blocking;
}

const char *fake_nccl_comm_name(void)
{
	return comm_name;
}

int fake_nccl_left(void)
{
	return left;
}

/* Defines a function of CUDA or NCCL. The last arguments are its statements and its result. */
#define CUDA(name, parameters, ...) \
	cudaError_t name parameters \
	{                           \
		return __VA_ARGS__; \
	}
#define NCCL(name, parameters, ...)  \
	ncclResult_t name parameters \
	{                            \
		return __VA_ARGS__;  \
	}

/* --- CUDA -------------------------------------------------------------------------------- */

static cudaError_t cuda(const char *name)
{
	return record_call(name) ? cudaErrorMemoryAllocation : cudaSuccess;
}

CUDA(cudaDriverGetVersion, (int *version), (*version = fake.driver, cudaSuccess))
CUDA(cudaRuntimeGetVersion, (int *version), (*version = CUDART_VERSION, cudaSuccess))

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = fake.devices;
	if (fake.driver < CUDART_VERSION)
		return cudaErrorInsufficientDriver;
	return fake.devices ? cudaSuccess : cudaErrorNoDevice;
}

CUDA(cudaGetDevice, (int *device), (*device = current_device, cudaSuccess))
CUDA(cudaSetDevice, (int device),
     device < fake.devices ? (current_device = device, cudaSuccess) : cudaErrorInvalidDevice)
CUDA(cudaGetDeviceProperties, (struct cudaDeviceProp * properties, int device),
     (snprintf(properties->name, sizeof(properties->name), "Fake %d", device),
      cuda("cudaGetDeviceProperties")))

static int driver_get(int *handle, int ordinal)
{
	*handle = 100 + ordinal;
	return 0;
}

static int driver_state(int handle, unsigned int *flags, int *active)
{
	(void)handle;
	*flags = 0;
	*active = fake.has_contexts;
	return 0;
}

static int driver_uuid(cudaUUID_t *uuid, int handle)
{
	for (size_t i = 0; i < sizeof(uuid->bytes); i++)
		uuid->bytes[i] = (char)(0xf0 + i);
	uuid->bytes[0] = (char)handle;
	return 0;
}

static int driver_uuid_slice(cudaUUID_t *uuid, int handle)
{
	return driver_uuid(uuid, handle + fake.mig);
}

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function,
					     unsigned int version, unsigned long long flags,
					     enum cudaDriverEntryPointQueryResult *found)
{
	union {
		int (*get)(int *handle, int ordinal);
		int (*state)(int handle, unsigned int *flags, int *active);
		int (*uuid)(cudaUUID_t *uuid, int handle);
		void *address;
	} pointer;

	if (strcmp(name, "cuDeviceGet") == 0)
		pointer.get = driver_get;
	else if (strcmp(name, "cuDevicePrimaryCtxGetState") == 0)
		pointer.state = driver_state;
	else
		pointer.uuid = version < 11040 ? driver_uuid : driver_uuid_slice;
	*function = pointer.address;
	*found = cudaDriverEntryPointSuccess;
	return cudaSuccess;
}
#endif

CUDA(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
     (*least = 0, *greatest = -5, cudaSuccess))

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
	if (cuda("cudaStreamCreateWithPriority") || flags != cudaStreamNonBlocking ||
	    priority != -5)
		return cudaErrorInvalidValue;
	count_object(1);
	*stream = (cudaStream_t)(void *)&object;
	return cudaSuccess;
}

CUDA(cudaStreamDestroy, (cudaStream_t stream), (count_object(-1), cuda("cudaStreamDestroy")))
CUDA(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
     (*status = fake.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone,
      cudaSuccess))

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	static __thread enum cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
	enum cudaStreamCaptureMode was = current;

	current = *mode;
	*mode = was;
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	if (cuda("cudaEventCreateWithFlags") || flags != cudaEventDisableTiming)
		return cudaErrorMemoryAllocation;
	count_object(1);
	*event = (cudaEvent_t)(void *)&object;
	return cudaSuccess;
}

CUDA(cudaEventDestroy, (cudaEvent_t event), (count_object(-1), cudaSuccess))
CUDA(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuda("cudaEventRecord"))

/* In CUDA's default capture mode, a query invalidates the capture of any stream of the process. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	bool breaks;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	breaks = mode == cudaStreamCaptureModeGlobal;
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	if (breaks)
		return cudaErrorStreamCaptureUnsupported;
	if (is_set(&fake.faulted))
		return cudaErrorIllegalAddress;
	return is_set(&fake.busy) ? cudaErrorNotReady : cudaSuccess;
}

/* Returns the entry of [memory] in allocations[]. If [memory] is NULL, returns a free entry. */
static void **place_of(const void *memory)
{
	for (int i = 0; i < ALLOCATIONS; i++) {
		if (allocations[i] == memory)
			return &allocations[i];
	}
	abort();
}

static cudaError_t allocate(const char *name, void **memory, size_t bytes)
{
	if (record_call(name))
		return cudaErrorMemoryAllocation;
	pthread_mutex_lock(&lock);
	*memory = *place_of(NULL) = calloc(1, bytes);
	left++;
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

/* Frees device memory. Aborts if [memory] was freed before or is not device memory. */
static cudaError_t release(const char *name, void *memory)
{
	if (record_call(name))
		return cudaErrorInvalidValue;
	pthread_mutex_lock(&lock);
	*place_of(memory) = NULL;
	left--;
	pthread_mutex_unlock(&lock);
	free(memory);
	return cudaSuccess;
}

CUDA(cudaMalloc, (void **memory, size_t bytes), allocate("cudaMalloc", memory, bytes))
CUDA(cudaFree, (void *memory), release("cudaFree", memory))
CUDA(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
     cuda("cudaStreamWaitEvent"))
CUDA(cudaStreamSynchronize, (cudaStream_t stream), cuda("cudaStreamSynchronize"))
CUDA(cudaMemsetAsync, (void *memory, int value, size_t bytes, cudaStream_t stream),
     (memset(memory, value, bytes), cuda("cudaMemsetAsync")))
CUDA(cudaGetLastError, (void), cudaSuccess)

const char *cudaGetErrorString(cudaError_t error)
{
	return "the fake's error";
}

const char *cudaGetErrorName(cudaError_t error)
{
	return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaErrorOther";
}

/* --- NCCL -------------------------------------------------------------------------------- */

static ncclResult_t nccl(const char *name)
{
	return record_call(name) ? ncclSystemError : ncclSuccess;
}

NCCL(ncclGetVersion, (int *version), (*version = fake.version, ncclSuccess))
NCCL(ncclGetUniqueId, (ncclUniqueId * id), (memset(id, 'i', sizeof(*id)), nccl("ncclGetUniqueId")))

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	if (nccl("ncclCommInitRankConfig") != ncclSuccess || rank >= size || id.internal[0] != 'i')
		return ncclInvalidUsage;
	pthread_mutex_lock(&lock);
	blocking = config->blocking;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
	snprintf(comm_name, sizeof(comm_name), "%s", config->commName ? config->commName : "");
#endif
	pthread_mutex_unlock(&lock);
	count_object(1);
	*comm = (ncclComm_t)(void *)&object;
	return ncclSuccess;
}

NCCL(ncclCommFinalize, (ncclComm_t comm), nccl("ncclCommFinalize"))
NCCL(ncclCommDestroy, (ncclComm_t comm), (count_object(-1), nccl("ncclCommDestroy")))

/* Ends the communicator's kernels and makes its hanging calls return. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	(void)record_call("ncclCommAbort");
	count_object(-1);
	__atomic_store_n(&fake.busy, false, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&lock);
	fake.fail = fake.hang;
	fake.hang = NULL;
	pthread_cond_broadcast(&released);
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}

NCCL(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *result),
     (*result = (ncclResult_t)__atomic_load_n(&fake.async, __ATOMIC_SEQ_CST), ncclSuccess))

const char *ncclGetErrorString(ncclResult_t result)
{
	return result == ncclRemoteError ? "remote" : "other";
}

const char *ncclGetLastError(ncclComm_t comm)
{
	return fake.last_error;
}

static ncclResult_t collective(struct fake_nccl_call call, const void *send, void *recv,
			       size_t bytes)
{
	last = call;
	if (send != recv)
		memmove(recv, send, bytes);
	return nccl(call.name);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	static const size_t sizes[ncclNumTypes] = {
		[ncclUint8] = 1,   [ncclInt32] = 4,   [ncclInt64] = 8,	 [ncclFloat16] = 2,
		[ncclFloat32] = 4, [ncclFloat64] = 8, [ncclBfloat16] = 2};

	return collective((struct fake_nccl_call){.name = "ncclAllReduce",
						  .count = count,
						  .type = (int)type,
						  .op = (int)op,
						  .stream = stream},
			  send, recv, count * sizes[type]);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
			   int root, ncclComm_t comm, cudaStream_t stream)
{
	return collective((struct fake_nccl_call){.name = "ncclBroadcast",
						  .count = count,
						  .type = (int)type,
						  .root = root,
						  .stream = stream},
			  send, recv, count);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
			   ncclComm_t comm, cudaStream_t stream)
{
	return collective((struct fake_nccl_call){.name = "ncclAllGather",
						  .count = count,
						  .type = (int)type,
						  .stream = stream},
			  send, recv, count);
}

NCCL(ncclMemAlloc, (void **memory, size_t bytes),
     allocate("ncclMemAlloc", memory, bytes) ? ncclUnhandledCudaError : ncclSuccess)
NCCL(ncclMemFree, (void *memory),
     release("ncclMemFree", memory) ? ncclUnhandledCudaError : ncclSuccess)
