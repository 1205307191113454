/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.c - whether this machine's driver and GPU can be used, tried and not looked up
 *
 * Prints a line "name yes|no text" for each of driver, gpu, memory. Ends with 0 whatever it finds. What ranks that share a
 * GPU need of it the engine itself tries when it opens one (runtime/device).
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

/* Memory that the GPU writes and the host reads. */
static cudaError_t use(void)
{
	enum { BYTES = 1 << 20 };
	static unsigned char got[BYTES];
	void *memory = NULL;
	cudaError_t result = cudaMalloc(&memory, BYTES);

	if (result == cudaSuccess)
		result = cudaMemset(memory, 42, BYTES);
	if (result == cudaSuccess)
		result = cudaMemcpy(got, memory, BYTES, cudaMemcpyDeviceToHost);
	if (result == cudaSuccess && (got[0] != 42 || got[BYTES - 1] != 42))
		result = cudaErrorUnknown;
	cudaFree(memory);
	return result;
}

int main(void)
{
	struct cudaDeviceProp properties;
	int driver = 0, built = 0, count = 0;
	size_t available = 0, total = 0;
	cudaError_t result;

	cudaRuntimeGetVersion(&built);
	cudaDriverGetVersion(&driver);
	printf("driver %s for CUDA %d.%d; built with %d.%d\n", driver ? "yes" : "no", driver / 1000,
	       driver % 1000 / 10, built / 1000, built % 1000 / 10);
	result = cudaGetDeviceCount(&count);
	if (result == cudaSuccess && count > 0)
		result = cudaGetDeviceProperties(&properties, 0);
	if (result == cudaSuccess && count > 0)
		result = use();
	if (result != cudaSuccess || count == 0) {
		printf("gpu no %s\n",
		       result == cudaSuccess ? "none is visible" : cudaGetErrorString(result));
		return EXIT_SUCCESS;
	}
	printf("gpu yes %d, the first is %s, sm_%d%d, %d processors\n", count, properties.name,
	       properties.major, properties.minor, properties.multiProcessorCount);
	result = cudaMemGetInfo(&available, &total);
	printf("memory %s %.1f of %.1f GiB free\n", result == cudaSuccess ? "yes" : "no",
	       (double)available / (1 << 30), (double)total / (1 << 30));
	return EXIT_SUCCESS;
}
