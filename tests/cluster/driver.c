/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c - stub of the CUDA driver and of its management library, which reports GPUs and copies memory
 *
 * ddp-info uses it on clusters whose GPUs are only device nodes. It is built as libcuda.so.1 and as libnvidia-ml.so.1. A GPU has the
 * number that CUDA_VISIBLE_DEVICES has, and 64 GiB, of which a context takes half a GiB. The environment sets the rest:
 *
 *	DRIVER_HELD	GiB that other processes use; 0 if unset
 *	DRIVER_MPS	whether the GPU is used through MPS; an unknown attribute if unset
 *	DRIVER_MODE	compute mode
 *	DRIVER_STATUS	status of cuInit()
 *	DRIVER_FAULT	nodes and their faults, as "n2 product,n3 hot"
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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
	if (attribute == 16 || attribute == 75) { /* number of multiprocessors; version */
		*value = attribute == 16 ? 2 : 8;
		return 0;
	}
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
	/* the other library reads this variable */
	setenv("DRIVER_CONTEXTS", contexts ? "1" : "0", 1);
	return 0;
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	contexts--;
	setenv("DRIVER_CONTEXTS", contexts ? "1" : "0", 1);
	return 0;
}

/* GPU memory is host memory, as in the engines of tests/runtime that compute there. */
API int cuCtxSetCurrent(void *context)
{
	return context ? 0 : 201;
}

API int cuMemcpyHtoD_v2(unsigned long long device, const void *host, size_t bytes)
{
	struct timespec link = {.tv_nsec = 50000000};

	/*
	 * Only the preflight's test of the link copies as much. On a host that emulates 16 GPUs the
	 * bytes would take the time of the tests that follow.
	 */
	if (bytes >= (size_t)64 << 20)
		return nanosleep(&link, NULL);
	memcpy((void *)(uintptr_t)device, host, bytes);
	return 0;
}

API int cuMemcpyDtoH_v2(void *host, unsigned long long device, size_t bytes)
{
	memcpy(host, (const void *)(uintptr_t)device, bytes);
	return 0;
}

/* --- Functions for the preflight ----------------------------------------------------------- */

/* Whether DRIVER_FAULT names this node and [fault]. */
static int has_fault(const char *fault)
{
	const char *faults = getenv("DRIVER_FAULT"), *node = getenv("SLURMD_NODENAME");
	char list[256], wanted[64];

	snprintf(list, sizeof(list), ",%s,", faults ? faults : "");
	snprintf(wanted, sizeof(wanted), ",%s %s,", node ? node : "", fault);
	return strstr(list, wanted) != NULL;
}

API int cuDeviceGetCount(int *count)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");

	for (*count = list && *list; list && *list; list++)
		*count += *list == ',';
	*count -= has_fault("missing");
	return 0;
}

/*
 * A kernel takes half a second, so that the rate hardly depends on how soon a busy CPU resumes the
 * thread that waits for it.
 */
API int cuCtxSynchronize(void)
{
	struct timespec kernel = {.tv_nsec = 500000000};

	return has_fault("hang") ? (int)pause() : nanosleep(&kernel, NULL);
}

API int cuMemAlloc_v2(unsigned long long *device, size_t bytes)
{
	*device = (uintptr_t)malloc(bytes);
	return *device ? 0 : 2;
}

API int cuMemFree_v2(unsigned long long device)
{
	free((void *)(uintptr_t)device);
	return 0;
}

API int cuMemAllocHost_v2(void **host, size_t bytes)
{
	*host = malloc(bytes);
	return *host ? 0 : 2;
}

API int cuMemFreeHost(void *host)
{
	free(host);
	return 0;
}

/* Writes the kernel to the file that DRIVER_KERNEL names. */
API int cuModuleLoadData(void **module, const void *text)
{
	static char place;
	const char *name = getenv("DRIVER_KERNEL");
	FILE *file = name ? fopen(name, "w") : NULL;

	if (file) {
		fputs(text, file);
		fclose(file);
	}
	*module = &place;
	return 0;
}

API int cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = module;
	return strcmp(name, "product") == 0 ? 0 : 500;
}

static float from_bf16(uint32_t bits)
{
	float value;

	bits <<= 16;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/*
 * Returns element [i] of a lane's part of a matrix. The lane has 8 elements of the left matrix, or
 * 4 of the right one.
 */
static float element(const uint32_t *words, int i)
{
	return from_bf16(i % 2 ? words[i / 2] >> 16 : words[i / 2] & 0xffff);
}

/*
 * Runs the kernel of info/preflight-gpu.c. Each warp multiplies a 16 x 16 matrix by a 16 x 8 matrix
 * repeatedly. The lanes have the parts of the matrices that PTX's mma.m16n8k16 prescribes.
 */
API int cuLaunchKernel(void *function, unsigned blocks, unsigned y, unsigned z, unsigned threads,
		       unsigned block_y, unsigned block_z, unsigned shared, void *stream,
		       void **arguments, void **extra)
{
	const uint32_t *words = (const uint32_t *)(uintptr_t) * (unsigned long long *)arguments[0];
	float *out = (float *)(uintptr_t) * (unsigned long long *)arguments[1];
	float left[16][16], right[16][8], sum[16][8] = {{0}};

	(void)function, (void)y, (void)z, (void)block_y, (void)block_z, (void)shared, (void)stream,
		(void)extra;
	for (int lane = 0; lane < 32; lane++) {
		for (int i = 0; i < 8; i++)
			left[lane / 4 + (i % 4 < 2 ? 0 : 8)]
			    [lane % 4 * 2 + i % 2 + (i < 4 ? 0 : 8)] = element(words + lane * 6, i);
		for (int i = 0; i < 4; i++)
			right[lane % 4 * 2 + i % 2 + (i < 2 ? 0 : 8)][lane / 4] =
				element(words + lane * 6 + 4, i);
	}
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 8; j++)
			for (int k = 0; k < 16; k++)
				sum[i][j] +=
					left[i][k] * right[k][j] * (float)*(unsigned *)arguments[2];
	for (unsigned thread = 0; thread < blocks * threads; thread++)
		for (int i = 0; i < 16; i++)
			out[thread * 16 + (unsigned)i] = sum[thread % 32 / 4 + (i % 4 < 2 ? 0 : 8)]
							    [thread % 4 * 2 + (unsigned)i % 2];
	if (has_fault("product"))
		out[77]++;
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

API int nvmlDeviceGetTotalEccErrors(void *handle, int type, int counter, unsigned long long *count)
{
	(void)handle, (void)counter;
	*count = type == 1 && has_fault("ECC") ? 2 : 0;
	return 0;
}

API int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected,
				  unsigned *pending, unsigned *failed)
{
	(void)handle;
	*corrected = *uncorrected = 0;
	*pending = (unsigned)has_fault("pending");
	*failed = (unsigned)has_fault("remap");
	return 0;
}

API int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons)
{
	(void)handle;
	*reasons = has_fault("hot") ? 0x40 : 0x1; /* 1: idle */
	return 0;
}

API int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *width)
{
	(void)handle;
	*width = has_fault("width") ? 4 : 16;
	return 0;
}

API int nvmlDeviceGetMaxPcieLinkWidth(void *handle, unsigned *width)
{
	(void)handle;
	*width = 16;
	return 0;
}

/*
 * Fault "link": the GPU uses a lower generation than it could. Fault "slot": the slot allows a
 * lower generation than the slots of other nodes.
 */
API int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, unsigned *generation)
{
	(void)handle;
	*generation = has_fault("link") || has_fault("slot") ? 3 : 5;
	return 0;
}

API int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, unsigned *generation)
{
	(void)handle;
	*generation = has_fault("slot") ? 3 : 5;
	return 0;
}
