/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "gpu.h"
#include "sum.h"

static int refuse(const struct ddp_shard_gpu *gpu, const char *what, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_ARGUMENT, "shared GPU %d: %s", gpu->index, what);
}

int ddp_shard_gpu_sum(struct ddp_shard_gpu *gpu, void *stream, void *const *to, int targets,
		      const void *const *from, int sources, size_t count, enum ddp_type type,
		      enum ddp_op op, struct ddp_error *error)
{
	int status, was;

	if ((unsigned int)type >= DDP_TYPE_COUNT || (unsigned int)op >= DDP_OP_COUNT)
		return refuse(gpu, "a sum of an unknown type or operation", error);
	if (sources < 1 || sources > DDP_SHARD_SOURCES || targets < 1 ||
	    targets > DDP_SHARD_SOURCES)
		return refuse(gpu, "a sum of more ranks than can share a GPU", error);
	if (count == 0)
		return 0;
	was = ddp_shard_gpu_enter(gpu);
	ddp_shard_kernel_sum(ddp_shard_gpu_stream(gpu, stream), gpu->processors, to, targets, from,
			     sources, count, type, op);
	status = ddp_card_error(gpu->who, cudaGetLastError(), error,
				"adding %zu elements of %d ranks", count, sources);
	ddp_shard_gpu_leave(gpu, was);
	return status;
}

int ddp_shard_gpu_copy(struct ddp_shard_gpu *gpu, void *stream, void *to, const void *from,
		       size_t bytes, struct ddp_error *error)
{
	int status, was;

	if (bytes == 0)
		return 0;
	was = ddp_shard_gpu_enter(gpu);
	status = ddp_card_error(gpu->who,
				cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
						ddp_shard_gpu_stream(gpu, stream)),
				error, "copying %zu bytes", bytes);
	ddp_shard_gpu_leave(gpu, was);
	return status;
}

int ddp_shard_gpu_zero(struct ddp_shard_gpu *gpu, void *stream, void *memory, size_t bytes,
		       struct ddp_error *error)
{
	int status, was;

	if (bytes == 0)
		return 0;
	was = ddp_shard_gpu_enter(gpu);
	status =
		ddp_card_error(gpu->who,
			       cudaMemsetAsync(memory, 0, bytes, ddp_shard_gpu_stream(gpu, stream)),
			       error, "clearing %zu bytes", bytes);
	ddp_shard_gpu_leave(gpu, was);
	return status;
}

cudaError_t ddp_shard_gpu_query(cudaStream_t stream)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaError_t result;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	result = cudaStreamQuery(stream);
	if (result != cudaSuccess)
		(void)cudaGetLastError();
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	return result;
}

int ddp_shard_gpu_idle(struct ddp_shard_gpu *gpu, void *stream, struct ddp_error *error)
{
	int was = ddp_shard_gpu_enter(gpu), status;
	cudaError_t result = ddp_shard_gpu_query(ddp_shard_gpu_stream(gpu, stream));

	ddp_shard_gpu_leave(gpu, was);
	if (result == cudaErrorNotReady)
		return 0;
	status = ddp_card_error(gpu->who, result, error, "waiting for a stream");
	return status ? status : 1;
}

/* The legacy stream may do nothing while another is captured. Other errors are idle()'s to tell. */
bool ddp_shard_gpu_captured(struct ddp_shard_gpu *gpu, void *stream)
{
	enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	cudaError_t result;

	result = cudaStreamIsCapturing(ddp_shard_gpu_stream(gpu, stream), &status);
	if (result != cudaSuccess)
		(void)cudaGetLastError();
	return result == cudaErrorStreamCaptureImplicit || status != cudaStreamCaptureStatusNone;
}

void *ddp_shard_gpu_own(struct ddp_shard_gpu *gpu)
{
	return gpu->stream;
}
