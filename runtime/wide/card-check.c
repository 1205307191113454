/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda_runtime_api.h>
#pragma GCC diagnostic pop

#include "card-check.h"

/* What a rank can do who finds no device, in words. */
static int refuse_driver(const char *engine, cudaError_t result, struct ddp_error *error)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int driver = 0, runtime = 0;

	(void)cudaGetLastError();
	(void)cudaDriverGetVersion(&driver);
	(void)cudaRuntimeGetVersion(&runtime);
	if (driver == 0)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "engine %s: no CUDA driver on this node (libcuda.so.1): run "
				     "on a node with a GPU, or without device memory",
				     engine);
	if (driver < runtime)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "engine %s: the driver of this node knows CUDA %d.%d, the "
				     "engine needs %d.%d: %s",
				     engine, driver / 1000, driver % 1000 / 10, runtime / 1000,
				     runtime % 1000 / 10, cudaGetErrorString(result));
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			     "engine %s: no CUDA device (%s; CUDA_VISIBLE_DEVICES is %s%s): ask "
			     "Slurm for one, as with --gres=gpu:1",
			     engine, cudaGetErrorString(result), visible ? "" : "unset",
			     visible ? visible : "");
}

int ddp_card_check(const char *engine, const char *who, int index, struct ddp_error *error)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	cudaError_t result;
	int count = 0;

	result = cudaGetDeviceCount(&count);
	if (result != cudaSuccess || count == 0)
		return refuse_driver(engine, result != cudaSuccess ? result : cudaErrorNoDevice,
				     error);
	if (index >= 0 && index < count)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "%s is to use device %d, but %d %s here "
			     "(CUDA_VISIBLE_DEVICES is %s%s); DDP_DEVICE chooses another",
			     who, index, count, count == 1 ? "is" : "are", visible ? "" : "unset",
			     visible ? visible : "");
}
