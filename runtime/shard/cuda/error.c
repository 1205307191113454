/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>

#include "gpu.h"

/* What people can do about it. Faults of the card come to ddp-train's engine too, which says more. */
static const struct advice {
	cudaError_t result;
	int status;
	const char *text;
} advices[] = {
	{cudaErrorMemoryAllocation, DDP_ERR_MEMORY,
	 "end what else runs there, or use fewer ranks on it"},
	{cudaErrorDevicesUnavailable, DDP_ERR_ENGINE,
	 "another process has it, in an exclusive compute mode: ranks share a GPU in the default one "
	 "(nvidia-smi -c DEFAULT)"},
	{cudaErrorDeviceAlreadyInUse, DDP_ERR_ENGINE,
	 "another process has it, in an exclusive compute mode: ranks share a GPU in the default one "
	 "(nvidia-smi -c DEFAULT)"},
	{cudaErrorNotSupported, DDP_ERR_UNSUPPORTED,
	 "run one rank on each GPU (srun --gpus-per-task=1)"},
	{cudaErrorNoKernelImageForDevice, DDP_ERR_UNSUPPORTED,
	 "build with --enable-all-gpus, or with this GPU in NVCC_ARCH"},
	{cudaErrorECCUncorrectable, DDP_ERR_ENGINE,
	 "memory of the card is damaged: drain the node, and reset or replace the card"},
	{cudaErrorMpsConnectionFailed, DDP_ERR_ENGINE,
	 "ask whoever runs the MPS daemon of this node"},
	{cudaErrorMpsServerNotReady, DDP_ERR_ENGINE,
	 "ask whoever runs the MPS daemon of this node"},
	{cudaErrorMpsMaxClientsReached, DDP_ERR_ENGINE, "run fewer ranks on this GPU"},
	{cudaErrorMpsMaxConnectionsReached, DDP_ERR_ENGINE, "run fewer ranks on this GPU"},
};

static const struct advice *advice_for(cudaError_t result)
{
	static const struct advice none = {cudaSuccess, DDP_ERR_ENGINE, ""};

	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
		if (advices[i].result == result)
			return &advices[i];
	}
	return &none;
}

int ddp_shard_gpu_error(const struct ddp_shard_gpu *gpu, cudaError_t result,
			struct ddp_error *error, const char *format, ...)
{
	const struct advice *advice = advice_for(result);
	char what[DDP_SHARD_GPU_TEXT];
	va_list arguments;

	if (result == cudaSuccess)
		return 0;
	(void)cudaGetLastError();
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	return ddp_error_set(error, advice->status, "shared GPU %d%s%s%s: %s: %s (%s)%s%s",
			     gpu->index, *gpu->name ? " (" : "", gpu->name, *gpu->name ? ")" : "",
			     what, cudaGetErrorString(result), cudaGetErrorName(result),
			     *advice->text ? "; " : "", advice->text);
}
