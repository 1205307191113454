/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c - a CUDA driver and its management library that tell of GPUs, copy, and do nothing else
 *
 * For ddp-info on clusters whose GPUs are device nodes: it is built as libcuda.so.1 and as libnvidia-ml.so.1.
 * Each GPU of a node has 64 GiB, of which DRIVER_HELD (0) are held by others, and a context takes half of one.
 * A GPU's number is that of Slurm, through CUDA_VISIBLE_DEVICES. DRIVER_MPS is what it says of MPS; unset:
 * it does not know the question. DRIVER_MODE is its compute mode. DRIVER_STATUS is what it says to everything.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

static int contexts;

static int number_of(const char *name, int otherwise)
{
	const char *text = getenv(name);

	return text && *text ? atoi(text) : otherwise;
}

/* --- libcuda ------------------------------------------------------------------------------ */

API int cuInit(unsigned flags)
{
	(void)flags;
	return number_of("DRIVER_STATUS", 0);
}

API int cuGetErrorString(int status, const char **text)
{
	*text = status == 805 ? "MPS client failed to connect" : "some error";
	return 0;
}

API int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

API int cuDeviceGet(int *device, int ordinal)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");

	for (; list && ordinal > 0; ordinal--)
		if ((list = strchr(list, ',')))
			list++;
	if (!list || !*list)
		return 101;
	*device = atoi(list);
	return 0;
}

API int cuDeviceGetName(char *name, int size, int device)
{
	(void)device;
	strncpy(name, "Pretended", (size_t)size);
	return 0;
}

API int cuDeviceGetUuid(unsigned char id[16], int device)
{
	memset(id, 0xa0 + device, 16);
	return 0;
}

API int cuDeviceGetUuid_v2(unsigned char id[16], int device)
{
	return cuDeviceGetUuid(id, device);
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	(void)device;
	*bytes = (size_t)64 << 30;
	return 0;
}

API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	(void)device;
	*value =
		number_of(attribute == 20 ? "DRIVER_MODE" : "DRIVER_MPS", attribute == 20 ? 0 : -1);
	return *value >= 0 ? 0 : 1;
}

API int cuDevicePrimaryCtxRetain(void **context, int device)
{
	static char place;

	(void)device;
	*context = &place;
	contexts++;
	setenv("DRIVER_CONTEXTS", contexts ? "1" : "0", 1); /* for the other library */
	return 0;
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	contexts--;
	setenv("DRIVER_CONTEXTS", contexts ? "1" : "0", 1);
	return 0;
}

/* Memory of a GPU is the host's, as for the engines of tests/runtime that compute there. */
API int cuCtxSetCurrent(void *context)
{
	return context ? 0 : 201;
}

API int cuMemcpyHtoD_v2(unsigned long long device, const void *host, size_t bytes)
{
	memcpy((void *)(uintptr_t)device, host, bytes);
	return 0;
}

API int cuMemcpyDtoH_v2(void *host, unsigned long long device, size_t bytes)
{
	memcpy(host, (const void *)(uintptr_t)device, bytes);
	return 0;
}

/* --- libnvidia-ml --------------------------------------------------------------------------- */

struct nvml_memory {
	unsigned long long total, free, used;
};

API int nvmlInit_v2(void)
{
	return 0;
}

API int nvmlShutdown(void)
{
	return 0;
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
	static char place;

	*handle = &place;
	return strncmp(uuid, "GPU-a", 5) == 0 ? 0 : 6;
}

API int nvmlDeviceGetMemoryInfo(void *handle, struct nvml_memory *memory)
{
	(void)handle;
	memory->total = 65ull << 30;
	memory->used = ((unsigned long long)number_of("DRIVER_HELD", 0) << 30) +
		       ((unsigned long long)number_of("DRIVER_CONTEXTS", 0) << 29);
	memory->free = (64ull << 30) - memory->used;
	return 0;
}
