/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu.h"

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

static int look(struct ddp_shard_gpu *gpu, struct ddp_error *error)
{
	struct cudaDeviceProp properties;
	size_t available = 0, total = 0;
	int status;

	status = ddp_card_error(gpu->who, cudaGetDeviceProperties(&properties, gpu->index), error,
				"asking for its properties");
	if (status)
		return status;
	snprintf(gpu->name, sizeof(gpu->name), "%.*s", (int)sizeof(gpu->name) - 1, properties.name);
	snprintf(gpu->who, sizeof(gpu->who), "shared GPU %d (%s)", gpu->index, gpu->name);
	gpu->processors = properties.multiProcessorCount;
	ddp_card_uuid(gpu->uuid, sizeof(gpu->uuid), gpu->index, &properties);
	status = ddp_card_error(gpu->who, cudaMemGetInfo(&available, &total), error,
				"asking for its memory");
	gpu->limit =
		gpu->share > 0 && gpu->share < 1 ? (size_t)(gpu->share * (double)total) : total;
	return status;
}

static int make_streams(struct ddp_shard_gpu *gpu, struct ddp_error *error)
{
	int least = 0, greatest = 0, status;

	status = ddp_card_error(gpu->who, cudaDeviceGetStreamPriorityRange(&least, &greatest),
				error, "asking for priorities");
	if (!status)
		status = ddp_card_error(
			gpu->who,
			cudaStreamCreateWithPriority(&gpu->stream, cudaStreamNonBlocking, greatest),
			error, "creating a stream");
	if (!status)
		status = ddp_card_error(
			gpu->who, cudaStreamCreateWithFlags(&gpu->setup, cudaStreamNonBlocking),
			error, "creating a stream");
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
	status = ddp_card_check("shard", "this rank", index, error);
	if (status)
		return status;
	new = calloc(1, sizeof(*new));
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the engine shard");
	new->log = log;
	new->index = index;
	snprintf(new->who, sizeof(new->who), "shared GPU %d", index);
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
