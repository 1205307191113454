/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "gpu.h"
#include "wide/bounded.h"

/* Seconds for what is under way on streams that are not ours. */
#define REST_SECONDS 5.0

static void synchronise(void *arguments)
{
	(void)cudaSetDevice(*(const int *)arguments);
	(void)cudaDeviceSynchronize();
}

/* Whether nothing is under way on the GPU that is this process's. One that has failed is at rest too. */
static bool rests(struct ddp_shard_gpu *gpu)
{
	struct ddp_watch watch = ddp_watch_start(REST_SECONDS, NULL, NULL);
	struct ddp_bounded *bounded;

	if ((gpu->stream && ddp_shard_gpu_query(gpu->stream) == cudaErrorNotReady) ||
	    (gpu->setup && ddp_shard_gpu_query(gpu->setup) == cudaErrorNotReady))
		return false;
	if (!gpu->stream)
		return true;
	if (ddp_bounded_start(&bounded, synchronise, &gpu->index, sizeof(gpu->index), NULL) < 0)
		return false;
	(void)ddp_bounded_wait(bounded, &watch, NULL);
	return ddp_bounded_leave(bounded);
}

static void give_back(struct ddp_shard_gpu *gpu)
{
	while (gpu->blocks)
		ddp_shard_gpu_release(gpu, gpu->blocks->base);
	if (gpu->page)
		(void)cudaHostUnregister(gpu->page);
	if (gpu->setup)
		(void)cudaStreamDestroy(gpu->setup);
	if (gpu->stream)
		(void)cudaStreamDestroy(gpu->stream);
	(void)cudaGetLastError();
}

/* Whatever is freed behind a wait that does not end would wait with it. */
void ddp_shard_gpu_close(struct ddp_shard_gpu *gpu)
{
	bool rested;
	int was;

	if (!gpu)
		return;
	was = ddp_shard_gpu_enter(gpu);
	rested = rests(gpu);
	if (rested)
		give_back(gpu);
	ddp_shard_gpu_leave(gpu, was);
	if (rested)
		free(gpu);
}
