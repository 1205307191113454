/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu.h"
#include "wide/card-uuid.h"

int ddp_shard_gpu_enter(const struct ddp_shard_gpu *gpu)
{
	int was = gpu->index;

	if (cudaGetDevice(&was) != cudaSuccess)
		(void)cudaGetLastError();
	/* Also where it is that device: the driver's functions want its context, which a new thread has not. */
	(void)cudaSetDevice(gpu->index);
#if CUDART_VERSION < 12000
	(void)cudaFree(NULL);
#endif
	return was;
}

void ddp_shard_gpu_leave(const struct ddp_shard_gpu *gpu, int was)
{
	if (was != gpu->index)
		(void)cudaSetDevice(was);
}

/* What a rank can do who finds no GPU, in words. */
static int refuse_driver(cudaError_t result, struct ddp_error *error)
{
	int driver = 0, runtime = 0;

	(void)cudaGetLastError();
	(void)cudaDriverGetVersion(&driver);
	(void)cudaRuntimeGetVersion(&runtime);
	if (driver == 0)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"engine shard: no CUDA driver on this node (libcuda.so.1): run "
			"on a node with a GPU");
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			     "engine shard: no GPU can be used (%s); the driver is for CUDA %d.%d, "
			     "the engine for %d.%d",
			     cudaGetErrorString(result), driver / 1000, driver % 1000 / 10,
			     runtime / 1000, runtime % 1000 / 10);
}

static int check_device(int index, struct ddp_error *error)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	cudaError_t result;
	int count = 0;

	result = cudaGetDeviceCount(&count);
	if (result != cudaSuccess || count == 0)
		return refuse_driver(result != cudaSuccess ? result : cudaErrorNoDevice, error);
	if (index >= 0 && index < count)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "shared GPU %d: %d %s here (CUDA_VISIBLE_DEVICES is %s%s); "
			     "DDP_DEVICE chooses another",
			     index, count, count == 1 ? "is" : "are", visible ? "" : "unset",
			     visible ? visible : "");
}

static int look(struct ddp_shard_gpu *gpu, struct ddp_error *error)
{
	struct cudaDeviceProp properties;
	size_t available = 0, total = 0;
	int status;

	status = ddp_shard_gpu_error(gpu, cudaGetDeviceProperties(&properties, gpu->index), error,
				     "asking for its properties");
	if (status)
		return status;
	snprintf(gpu->name, sizeof(gpu->name), "%.*s", (int)sizeof(gpu->name) - 1, properties.name);
	gpu->processors = properties.multiProcessorCount;
	ddp_card_uuid(gpu->uuid, sizeof(gpu->uuid), gpu->index, properties.uuid.bytes);
	status = ddp_shard_gpu_error(gpu, cudaMemGetInfo(&available, &total), error,
				     "asking for its memory");
	gpu->limit =
		gpu->share > 0 && gpu->share < 1 ? (size_t)(gpu->share * (double)total) : total;
	return status;
}

static int make_streams(struct ddp_shard_gpu *gpu, struct ddp_error *error)
{
	int least = 0, greatest = 0, status;

	status = ddp_shard_gpu_error(gpu, cudaDeviceGetStreamPriorityRange(&least, &greatest),
				     error, "asking for priorities");
	if (!status)
		status = ddp_shard_gpu_error(
			gpu,
			cudaStreamCreateWithPriority(&gpu->stream, cudaStreamNonBlocking, greatest),
			error, "creating a stream");
	if (!status)
		status = ddp_shard_gpu_error(
			gpu, cudaStreamCreateWithFlags(&gpu->setup, cudaStreamNonBlocking), error,
			"creating a stream");
	return status;
}

static int take(struct ddp_shard_gpu *gpu, struct ddp_error *error)
{
	int was = ddp_shard_gpu_enter(gpu), status;

	status = look(gpu, error);
	if (!status)
		status = make_streams(gpu, error);
	if (!status) {
		(void)ddp_shard_driver_load(&gpu->driver);
		status = ddp_shard_gpu_try_words(gpu, error);
	}
	if (!status)
		ddp_shard_gpu_try_descriptors(gpu);
	ddp_shard_gpu_leave(gpu, was);
	return status;
}

int ddp_shard_gpu_open(struct ddp_shard_gpu **gpu, int index, double share,
		       const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_shard_gpu *new;
	int status;

	*gpu = NULL;
	status = check_device(index, error);
	if (status)
		return status;
	new = calloc(1, sizeof(*new));
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the engine shard");
	new->log = log;
	new->index = index;
	new->share = share;
	status = take(new, error);
	if (status) {
		ddp_shard_gpu_close(new);
		return status;
	}
	ddp_log_print(log, DDP_LEVEL_DEBUG, "shard",
		      "memory of GPU %d is given to others by %s%s%s", index,
		      new->descriptors ? "descriptor" : "handle", *new->why ? ": " : "", new->why);
	*gpu = new;
	return 0;
}

void ddp_shard_gpu_describe(struct ddp_shard_gpu *gpu, char *text, size_t size)
{
	char share[32] = "";

	if (gpu->share > 0 && gpu->share < 1)
		snprintf(share, sizeof(share), ", share %.2f", gpu->share);
	snprintf(text, size, "shared GPU %d: %s (%s)%s, memory by %s", gpu->index, gpu->name,
		 gpu->uuid, share, gpu->descriptors ? "descriptor" : "handle");
}
