/* SPDX-License-Identifier: Apache-2.0 */
/* cuda-calls.c - CUDA calls for the device, streams, events and kernels of both device engines */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "cuda-calls.h"
#include "wire.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* --- Which device, on which host ----------------------------------------------------------- */

/*
 * Set the identity of the host in [gpu]. Like NCCL, use NCCL_HOSTID, if it is set, instead of the
 * host's name and boot ID.
 */
static void identify_host(struct ddp_gpu *gpu)
{
	const char *id = getenv("NCCL_HOSTID");
	char boot[64] = "";
	FILE *file;

	if (gethostname(gpu->host, sizeof(gpu->host) - 1) < 0)
		snprintf(gpu->host, sizeof(gpu->host), "(no name)");
	file = id ? NULL : fopen(BOOT_ID, "re");
	if (file) {
		if (!fgets(boot, sizeof(boot), file))
			boot[0] = '\0';
		fclose(file);
	}
	/* If there is no boot ID, use the host's name. */
	if (!id)
		id = *boot ? boot : gpu->host;
	gpu->boot = ddp_hash(DDP_HASH_INIT, id, strlen(id));
}

static int fill_gpu(struct ddp_gpu *gpu, const char *who, int index, struct ddp_error *error)
{
	struct cudaDeviceProp properties = {.name = ""};

	identify_host(gpu);
	DDP_GPU_TRY(who, cudaGetDeviceProperties(&properties, index), error,
		    "querying its properties");
	ddp_gpu_uuid(gpu->uuid, sizeof(gpu->uuid), index, &properties);
	snprintf(gpu->bus, sizeof(gpu->bus), "%04x:%02x:%02x", properties.pciDomainID & 0xffff,
		 properties.pciBusID & 0xff, properties.pciDeviceID & 0xff);
	gpu->index = index;
	gpu->bytes = properties.totalGlobalMem;
	return 0;
}

int ddp_cuda_open(const char *who, int index, struct ddp_gpu *gpu, cudaStream_t *stream,
		  cudaEvent_t *event, struct ddp_error *error)
{
	int least = 0, greatest = 0;
	int status = fill_gpu(gpu, who, index, error);

	if (status)
		return status;
	DDP_GPU_TRY(who, cudaDeviceGetStreamPriorityRange(&least, &greatest), error,
		    "selecting the device");
	DDP_GPU_TRY(who, cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest),
		    error, "creating a stream");
	DDP_GPU_TRY(who, cudaEventCreateWithFlags(event, cudaEventDisableTiming), error,
		    "creating an event");
	return 0;
}

/* --- Streams and events -------------------------------------------------------------------- */

int ddp_cuda_record(const char *who, cudaEvent_t event, cudaStream_t stream,
		    struct ddp_error *error)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;

	DDP_GPU_TRY(who, cudaStreamIsCapturing(stream, &capture), error,
		    "checking the stream for a capture");
	if (capture != cudaStreamCaptureStatusNone)
		return ddp_error_set(
			error, DDP_ERR_STATE,
			"%s: the stream is being captured into a CUDA graph, and a graph "
			"cannot wait for the host",
			who);
	DDP_GPU_TRY(who, cudaEventRecord(event, stream), error, "recording an event");
	return 0;
}

cudaError_t ddp_cuda_query(cudaEvent_t event)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaError_t result;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	result = cudaEventQuery(event);
	if (result != cudaSuccess)
		(void)cudaGetLastError();
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	return result;
}

/*
 * The event can be destroyed as soon as a stream waits for it, because CUDA keeps the event until
 * it has completed. Creating or destroying an event does not invalidate a capture.
 */
int ddp_cuda_order(void *later, void *earlier, struct ddp_error *error)
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
	return ddp_gpu_error("device", result, error, "putting streams in order");
}

/* --- Kernels ------------------------------------------------------------------------------- */

/* If libddp was built without nvcc, these functions do not exist, and their addresses are NULL. */
#pragma weak ddp_wire_kernel_convert
#pragma weak ddp_wire_kernel_count

static int no_kernels(const char *what, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			     "%s on a device needs a libddp that was built with a CUDA compiler",
			     what);
}

int ddp_cuda_convert(void *stream, void *to, enum ddp_type to_type, const void *from,
		     enum ddp_type from_type, size_t count, float factor, struct ddp_error *error)
{
	if (!ddp_wire_kernel_convert)
		return no_kernels("a mean or a conversion", error);
	if (count == 0)
		return 0;
	ddp_wire_kernel_convert(stream, to, to_type, from, from_type, count, factor);
	return ddp_gpu_error("device", cudaGetLastError(), error, "converting gradients");
}

int ddp_cuda_count(void *stream, uint64_t *word, struct ddp_error *error)
{
	if (!ddp_wire_kernel_count)
		return no_kernels("a count of sums", error);
	ddp_wire_kernel_count(stream, word);
	return ddp_gpu_error("device", cudaGetLastError(), error, "counting sums");
}
