/* SPDX-License-Identifier: Apache-2.0 */
/* cuda-calls.h - CUDA calls that both device engines (ddp_nccl.so, ddp_gpu.so) make */
#ifndef DDP_DEVICE_CUDA_CALLS_H
#define DDP_DEVICE_CUDA_CALLS_H

#include "base/gpu-cuda.h"
#include "device-engine.h"

/*
 * Describe this host and the device [index] in [gpu]. The device must be current. The caller sets
 * the rank and the version of NCCL in [gpu]. Also create a stream of the highest priority and an
 * event on the device. If this function fails, the caller destroys whichever of the two exists.
 * Returns 0 or the status of ddp_gpu_error() for [who].
 */
int ddp_cuda_open(const char *who, int index, struct ddp_gpu *gpu, cudaStream_t *stream,
		  cudaEvent_t *event, struct ddp_error *error);

/*
 * Record [event] at the end of [stream]. Returns DDP_ERR_STATE if the stream is being captured,
 * because the host cannot wait for a captured stream. Otherwise returns 0 or the status of
 * ddp_gpu_error() for [who].
 */
int ddp_cuda_record(const char *who, cudaEvent_t event, cudaStream_t stream,
		    struct ddp_error *error);

/*
 * Returns cudaSuccess if [event] has completed, else cudaErrorNotReady or an error. Does not
 * invalidate the capture of any thread.
 */
cudaError_t ddp_cuda_query(cudaEvent_t event);

/* Implementations of the functions order(), convert() and count() of struct ddp_device_engine. */
int ddp_cuda_order(void *later, void *earlier, struct ddp_error *error);
int ddp_cuda_convert(void *stream, void *to, enum ddp_type to_type, const void *from,
		     enum ddp_type from_type, size_t count, float factor, struct ddp_error *error);
int ddp_cuda_count(void *stream, uint64_t *word, struct ddp_error *error);

#endif /* DDP_DEVICE_CUDA_CALLS_H */
