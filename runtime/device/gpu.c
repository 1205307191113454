/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.c - the engine ddp_gpu.so: memory, streams and copies of one GPU, for sums that are staged
 * through host memory
 *
 * This engine does not use NCCL and has no peers, so nothing on its streams waits for another rank.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bounded.h"
#include "cuda-calls.h"

/* Time limit, in seconds, for synchronizing streams and freeing memory. */
#define CLOSE_SECONDS 10.0

struct block {
	struct block *next;
	void *base;
	size_t bytes;
};

struct ddp_device {
	const struct ddp_log *log;
	int index;
	char who[48]; /* name for messages, such as "rank 1, device 0" */
	cudaStream_t stream;
	cudaEvent_t waited;	       /* used by wait() */
	struct block *memory, *pinned; /* list of device memory, and list of pinned host memory */
};

#define TRY(device, ...) DDP_GPU_TRY((device)->who, __VA_ARGS__)

/* Make the CUDA [call] while the device is current. The value is the result of ddp_gpu_error(). */
#define ON_DEVICE(device, call, ...)                                             \
	__extension__({                                                          \
		int was_ = ddp_gpu_enter((device)->index);                       \
		int status_ = ddp_gpu_error((device)->who, (call), __VA_ARGS__); \
                                                                                 \
		ddp_gpu_leave((device)->index, was_);                            \
		status_;                                                         \
	})

static cudaStream_t stream_of(const struct ddp_device *device, void *stream)
{
	return stream ? (cudaStream_t)stream : device->stream;
}

/* --- Memory -------------------------------------------------------------------------------- */

static int note(struct block **list, void *base, size_t bytes, struct ddp_error *error)
{
	struct block *block = malloc(sizeof(*block));

	if (!block)
		return ddp_error_set(error, DDP_ERR_MEMORY,
				     "out of memory for the list of device memory");
	*block = (struct block){*list, base, bytes};
	*list = block;
	return 0;
}

static int allocate(struct ddp_device *device, size_t bytes, void **memory, struct ddp_error *error)
{
	cudaError_t result;
	int status;

	TRY(device, cudaMalloc(memory, bytes), error, "allocating %zu bytes", bytes);
	result = cudaMemsetAsync(*memory, 0, bytes, device->stream);
	if (result == cudaSuccess)
		result = cudaStreamSynchronize(device->stream);
	status = ddp_gpu_error(device->who, result, error, "clearing %zu bytes", bytes);
	if (!status)
		status = note(&device->memory, *memory, bytes, error);
	if (status) {
		(void)cudaFree(*memory);
		*memory = NULL;
	}
	return status;
}

static int alloc_memory(struct ddp_device *device, size_t bytes, void **memory,
			struct ddp_error *error)
{
	int was = ddp_gpu_enter(device->index), status;

	*memory = NULL;
	status = allocate(device, bytes, memory, error);
	ddp_gpu_leave(device->index, was);
	return status;
}

static int free_memory(struct ddp_device *device, void *memory, size_t *bytes,
		       struct ddp_error *error)
{
	struct block **link = &device->memory, *found;

	if (!memory)
		return 0;
	while (*link && (*link)->base != memory)
		link = &(*link)->next;
	found = *link;
	if (!found)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: %p was not allocated by the engine", device->who, memory);
	*link = found->next;
	*bytes = found->bytes;
	free(found);
	return ON_DEVICE(device, cudaFree(memory), error, "freeing memory");
}

/* Map the memory at the host's addresses on the device, since kernels use these addresses. */
static int pin_now(struct ddp_device *device, void *memory, size_t bytes, struct ddp_error *error)
{
	const unsigned int flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
	void *there = NULL;
	int status;

	TRY(device, cudaHostRegister(memory, bytes, flags), error,
	    "pinning %zu bytes of host memory for staged sums", bytes);
	status = ddp_gpu_error(device->who, cudaHostGetDevicePointer(&there, memory, 0), error,
			       "mapping pinned memory");
	if (!status && there != memory)
		status = ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"%s: pinned memory has another address on the device than on the host",
			device->who);
	if (!status)
		status = note(&device->pinned, memory, bytes, error);
	if (status)
		(void)cudaHostUnregister(memory);
	return status;
}

static int pin(struct ddp_device *device, void *memory, size_t bytes, struct ddp_error *error)
{
	int was = ddp_gpu_enter(device->index), status = pin_now(device, memory, bytes, error);

	ddp_gpu_leave(device->index, was);
	return status;
}

static int copy(struct ddp_device *device, void *to, const void *from, size_t bytes, void *stream,
		struct ddp_error *error)
{
	if (bytes == 0)
		return 0;
	return ON_DEVICE(device,
			 cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
					 stream_of(device, stream)),
			 error, "copying %zu bytes", bytes);
}

/* --- Waiting ------------------------------------------------------------------------------- */

/*
 * Wait until [word] has reached [value] or, if [word] is NULL, until [event] has completed. If
 * [event] completes before [word] has reached [value], that is an error.
 */
static int poll_event(struct ddp_device *device, cudaEvent_t event, const uint64_t *word,
		      uint64_t value, const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_poll poll = {0};
	cudaError_t result;
	int status;

	for (;;) {
		result = ddp_cuda_query(event);
		if (word && __atomic_load_n(word, __ATOMIC_ACQUIRE) >= value)
			return 0;
		if (result == cudaSuccess && !word)
			return 0;
		if (result == cudaSuccess)
			return ddp_error_set(
				error, DDP_ERR_ENGINE,
				"%s: a stream ended before it had copied the gradients",
				device->who);
		if (result != cudaErrorNotReady)
			return ddp_gpu_error(device->who, result, error, "waiting for the stream");
		status = ddp_watch_poll(watch, &poll, error);
		if (status == DDP_ERR_TIMEOUT && !(error && error->text[0]))
			return ddp_error_set(error, status, "%s: the stream did not end in %g s",
					     device->who, watch->limit);
		if (status < 0)
			return status;
	}
}

/* Ignores an error of the stream, since wait() will report it. */
static bool is_captured(struct ddp_device *device, void *stream)
{
	enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

	if (cudaStreamIsCapturing(stream_of(device, stream), &status) != cudaSuccess)
		(void)cudaGetLastError();
	return status != cudaStreamCaptureStatusNone;
}

static int wait_stream(struct ddp_device *device, void *stream, const uint64_t *word,
		       uint64_t value, const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_error cause = {0, ""};
	int status, was;

	if (word && __atomic_load_n(word, __ATOMIC_ACQUIRE) >= value)
		return 0;
	was = ddp_gpu_enter(device->index);
	status = ddp_cuda_record(device->who, device->waited, stream_of(device, stream), &cause);
	ddp_gpu_leave(device->index, was);
	if (!status)
		status = poll_event(device, device->waited, word, value, watch, &cause);
	if (status && error)
		*error = cause;
	return status;
}

/* --- Opening and closing ------------------------------------------------------------------- */

static void release_list(struct block *list, cudaError_t (*release)(void *))
{
	while (list) {
		struct block *next = list->next;

		(void)release(list->base);
		free(list);
		list = next;
	}
}

static void end(void *arguments)
{
	struct ddp_device *device = *(struct ddp_device **)arguments;

	(void)cudaSetDevice(device->index);
	/* After a failure, copies may still be running, also on the caller's streams. */
	(void)cudaDeviceSynchronize();
	release_list(device->memory, cudaFree);
	release_list(device->pinned, cudaHostUnregister);
	if (device->waited)
		(void)cudaEventDestroy(device->waited);
	if (device->stream)
		(void)cudaStreamDestroy(device->stream);
	(void)cudaGetLastError();
}

static void close_device(struct ddp_device *device)
{
	if (!device)
		return;
	if (!ddp_bounded_try(end, &device, sizeof(device), CLOSE_SECONDS)) {
		ddp_log_print(device->log, DDP_LEVEL_WARNING, "gpu",
			      "work on device %d does not end and is abandoned", device->index);
		return;
	}
	free(device);
}

static int open_device(struct ddp_device **device, struct ddp_gpu *gpu, int rank, int size,
		       int index, const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_device *new;
	int status, was;
	char who[32];

	(void)size;
	*device = NULL;
	snprintf(who, sizeof(who), "rank %d", rank);
	status = ddp_gpu_check("gpu", who, index, error);
	if (status)
		return status;
	new = calloc(1, sizeof(*new));
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "out of memory for the engine gpu");
	new->index = index;
	new->log = log;
	snprintf(new->who, sizeof(new->who), "rank %d, device %d", rank, index);
	was = ddp_gpu_enter(index);
	status = ddp_cuda_open(new->who, index, gpu, &new->stream, &new->waited, error);
	ddp_gpu_leave(index, was);
	if (status) {
		close_device(new);
		return status;
	}
	*device = new;
	return 0;
}

static void *get_stream(struct ddp_device *device)
{
	return device->stream;
}

DDP_API const struct ddp_device_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_DEVICE_VERSION, sizeof(struct ddp_device_engine), "device",
		 "gpu", PACKAGE_VERSION},
	.open = open_device,
	.alloc = alloc_memory,
	.free = free_memory,
	.stream = get_stream,
	.order = ddp_cuda_order,
	.convert = ddp_cuda_convert,
	.count = ddp_cuda_count,
	.pin = pin,
	.copy = copy,
	.captured = is_captured,
	.wait = wait_stream,
	.close = close_device,
};
