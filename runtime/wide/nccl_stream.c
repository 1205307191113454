/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_stream.c - what streams do by themselves: no communicator, and no rank, takes part */
#include "config.h"

#include "nccl_device.h"
#include "wire.h"

/* Not there where nvcc cannot compile them. */
#pragma weak ddp_wire_kernel_convert
#pragma weak ddp_wire_kernel_count

static int no_kernels(const char *what, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			     "%s on a device needs a libddp that was built with a CUDA compiler",
			     what);
}

void *ddp_nccl_stream(struct ddp_device *device)
{
	return device->stream;
}

/*
 * The event may go as soon as somebody was told to wait for it: CUDA keeps it until it has come. Making and ending
 * one breaks no capture.
 */
int ddp_nccl_order(void *later, void *earlier, struct ddp_error *error)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaEvent_t event = NULL;
	cudaError_t result;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	result = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
	if (result == cudaSuccess)
		result = cudaEventRecord(event, (cudaStream_t)earlier);
	if (result == cudaSuccess)
		result = cudaStreamWaitEvent((cudaStream_t)later, event, 0);
	if (event)
		(void)cudaEventDestroy(event);
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	return ddp_card_error("device", result, error, "putting streams in order");
}

int ddp_nccl_convert(void *stream, void *to, enum ddp_type to_type, const void *from,
		     enum ddp_type from_type, size_t count, float factor, struct ddp_error *error)
{
	if (!ddp_wire_kernel_convert)
		return no_kernels("a mean, or another type on the wire,", error);
	if (count == 0)
		return 0;
	ddp_wire_kernel_convert(stream, to, to_type, from, from_type, count, factor);
	return ddp_card_error("device", cudaGetLastError(), error, "converting gradients");
}

int ddp_nccl_count(void *stream, uint64_t *counter, uint64_t *word, struct ddp_error *error)
{
	if (!ddp_wire_kernel_count)
		return no_kernels("a count of sums", error);
	ddp_wire_kernel_count(stream, counter, word);
	return ddp_card_error("device", cudaGetLastError(), error, "counting sums");
}
