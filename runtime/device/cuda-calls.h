/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-calls.h - calls of CUDA that both engines of device memory make (ddp_nccl.so, ddp_gpu.so)
 */
#ifndef DDP_DEVICE_CUDA_CALLS_H
#define DDP_DEVICE_CUDA_CALLS_H

#include "base/card-cuda.h"
#include "device-engine.h"

/*
 * Describe device [index], which is current, and its host in [card]; not the rank and NCCL's version.
 * Create a stream of the highest priority and an event on the device; after an error the caller destroys what was created.
 * Returns 0 or the value of ddp_card_error() for [who].
 */
int ddp_cuda_take(const char *who, int index, struct ddp_device_card *card, cudaStream_t *stream,
		  cudaEvent_t *event, struct ddp_error *error);

/*
 * Record [event] behind what is on [stream]. Returns DDP_ERR_STATE if the stream is being captured, where nothing can wait
 * for the host; 0 or the value of ddp_card_error() for [who] otherwise.
 */
int ddp_cuda_record(const char *who, cudaEvent_t event, cudaStream_t stream,
		    struct ddp_error *error);

/* Whether [event] has come: cudaSuccess, cudaErrorNotReady or an error. Breaks no capture of any thread. */
cudaError_t ddp_cuda_query(cudaEvent_t event);

/* order(), convert() and count() of device-engine.h. */
int ddp_cuda_order(void *later, void *earlier, struct ddp_error *error);
int ddp_cuda_convert(void *stream, void *to, enum ddp_type to_type, const void *from,
		     enum ddp_type from_type, size_t count, float factor, struct ddp_error *error);
int ddp_cuda_count(void *stream, uint64_t *counter, uint64_t *word, struct ddp_error *error);

#endif /* DDP_DEVICE_CUDA_CALLS_H */
