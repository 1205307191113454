/* SPDX-License-Identifier: Apache-2.0 */
/* gpu-cuda.c - add advice to CUDA's errors, count GPUs, and load functions of the CUDA driver */
#include "config.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu-cuda.h"
#include "gpu-memory.h"

/* --- Errors ------------------------------------------------------------------------------------ */

#define DRAIN "Drain the node, and reset or replace the GPU."
#define LOG                                                                                  \
	"Read the kernel's log: Xid 13 or 31 is a defect of the program. After Xid 48, 79, " \
	"94, 95 or 119, drain the node, and reset or replace the GPU."
#define EXCLUSIVE                                                                              \
	"Another process uses this GPU in an exclusive compute mode. Use another GPU, or set " \
	"the default mode (nvidia-smi -c DEFAULT), in which ranks can share it."
#define REBUILD "Build with --enable-all-gpus, or with this GPU in NVCC_ARCH."
#define ASK "Restart the MPS daemon of this node, or ask the user who started it to do so."
#define CROWD \
	"Run fewer ranks on this GPU, or ask the user who started the MPS daemon of this node."

/*
 * Advice that is missing in CUDA's own texts. Errors that older toolkits do not name are numbers.
 */
static const struct advice {
	int result, status;
	const char *text;
} advices[] = {
	{cudaErrorMemoryAllocation, DDP_ERR_MEMORY,
	 "End other programs on this GPU, use less memory, or run fewer ranks on it."},
	{cudaErrorInsufficientDriver, DDP_ERR_UNSUPPORTED, "Install a newer driver."},
	{cudaErrorNoKernelImageForDevice, DDP_ERR_UNSUPPORTED, REBUILD},
	{cudaErrorUnsupportedPtxVersion, DDP_ERR_UNSUPPORTED, REBUILD},
	{cudaErrorJitCompilerNotFound, DDP_ERR_UNSUPPORTED, REBUILD},
	{cudaErrorNotSupported, DDP_ERR_UNSUPPORTED, ""},
	{cudaErrorDevicesUnavailable, DDP_ERR_ENGINE, EXCLUSIVE},
	{cudaErrorDeviceAlreadyInUse, DDP_ERR_ENGINE, EXCLUSIVE},
	{cudaErrorECCUncorrectable, DDP_ERR_ENGINE, DRAIN},
	{cudaErrorNvlinkUncorrectable, DDP_ERR_ENGINE, DRAIN},
	{226 /* cudaErrorContained */, DDP_ERR_ENGINE, DRAIN},
	{cudaErrorInitializationError, DDP_ERR_ENGINE, LOG},
	{cudaErrorLaunchFailure, DDP_ERR_ENGINE, LOG},
	{cudaErrorUnknown, DDP_ERR_ENGINE, LOG},
	{cudaErrorSystemNotReady, DDP_ERR_ENGINE,
	 "Start nvidia-fabricmanager or another service of the driver, which does not run here."},
	{cudaErrorSystemDriverMismatch, DDP_ERR_ENGINE,
	 "The driver was updated under a running kernel module. Reboot the node."},
	{cudaErrorMpsConnectionFailed, DDP_ERR_ENGINE, ASK},
	{cudaErrorMpsRpcFailure, DDP_ERR_ENGINE, ASK},
	{cudaErrorMpsServerNotReady, DDP_ERR_ENGINE, ASK},
	{cudaErrorMpsMaxClientsReached, DDP_ERR_ENGINE, CROWD},
	{cudaErrorMpsMaxConnectionsReached, DDP_ERR_ENGINE, CROWD},
	{810 /* MpsClientTerminated */, DDP_ERR_ENGINE,
	 "Another process of the MPS daemon failed."},
};

int ddp_gpu_error(const char *who, cudaError_t result, struct ddp_error *error, const char *format,
		  ...)
{
	static const struct advice none = {0, DDP_ERR_ENGINE, ""};
	const struct advice *advice = &none;
	char what[256];
	va_list arguments;

	if (result == cudaSuccess)
		return 0;
	(void)cudaGetLastError();
	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++)
		if (advices[i].result == (int)result)
			advice = &advices[i];
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	return ddp_error_set(error, advice->status, "%s: %s: %s (%s, %d)%s%s", who, what,
			     cudaGetErrorString(result), cudaGetErrorName(result), (int)result,
			     *advice->text ? ". " : "", advice->text);
}

/* --- Visible GPUs ------------------------------------------------------------------------- */

int ddp_gpu_count(struct ddp_error *error)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int driver = 0, runtime = 0, count = 0;
	cudaError_t result = cudaGetDeviceCount(&count);

	if (result == cudaSuccess && count > 0)
		return count;
	(void)cudaGetLastError();
	(void)cudaDriverGetVersion(&driver);
	(void)cudaRuntimeGetVersion(&runtime);
	if (driver == 0 || result == cudaErrorStubLibrary)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "this node has no CUDA driver (libcuda.so.1). Use a node "
				     "with a GPU, or CPUs.");
	if (result == cudaErrorInsufficientDriver)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"the driver of this node supports CUDA %d.%d, but this program needs "
			"%d.%d or newer. Install a newer driver, or build with an older toolkit.",
			driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	if (result == cudaSuccess || result == cudaErrorNoDevice)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "no GPU is visible (CUDA_VISIBLE_DEVICES is %s). Request one "
				     "from Slurm, as with --gres=gpu:1.",
				     !visible	? "not set"
				     : *visible ? visible
						: "empty");
	return ddp_gpu_error("CUDA", result, error, "counting GPUs");
}

int ddp_gpu_check(const char *engine, const char *who, int index, struct ddp_error *error)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct ddp_error why;
	int count = ddp_gpu_count(&why);

	if (count < 0)
		return ddp_error_set(error, count, "engine %s: %s", engine, why.text);
	if (index >= 0 && index < count)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "%s is to use device %d, but %d %s here (CUDA_VISIBLE_DEVICES is "
			     "%s). Set DDP_DEVICE to use another.",
			     who, index, count, count == 1 ? "is" : "are",
			     visible ? visible : "not set");
}

int ddp_gpu_enter(int index)
{
	int previous = index;

	if (cudaGetDevice(&previous) != cudaSuccess)
		(void)cudaGetLastError();
	/*
	 * Make [index] current even if it is already: the driver's functions need its context in
	 * this thread, and a new thread has none.
	 */
	(void)cudaSetDevice(index);
#if CUDART_VERSION < 12000
	(void)cudaFree(NULL);
#endif
	return previous;
}

/* --- The driver --------------------------------------------------------------------------- */

/*
 * Returns function [name] of the driver, or NULL. Toolkits before 12.5 ignore [version] and return
 * the interface of their own version. Toolkits before 11.7 return NULL.
 */
static void *find_function(const char *name, unsigned int version)
{
	void *function = NULL;
	cudaError_t result = cudaErrorNotSupported;
#if CUDART_VERSION >= 12000
	enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#endif

#if CUDART_VERSION >= 12050
	result = cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault,
						  &found);
#elif CUDART_VERSION >= 12000
	result = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#elif CUDART_VERSION >= 11070
	result = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault);
#endif
	(void)version;
#if CUDART_VERSION >= 12000
	if (found != cudaDriverEntryPointSuccess)
		function = NULL;
#endif
	if (result == cudaSuccess)
		return function;
	(void)cudaGetLastError();
	return NULL;
}

/*
 * Copies function pointers with memcpy(), since ISO C does not let a data pointer become a function
 * pointer.
 */
bool ddp_gpu_load(void *functions, const struct ddp_gpu_function *table, size_t count)
{
	bool all = true;

	for (size_t i = 0; i < count; i++) {
		void *function = find_function(table[i].name, table[i].version);

		memcpy((char *)functions + i * sizeof(function), &function, sizeof(function));
		all = all && function;
	}
	return all;
}

/* Driver functions that are called often, found once. NULL: this driver lacks the function. */
static struct {
	CUresult (*get)(CUdevice *device, int index);
	CUresult (*state)(CUdevice device, unsigned int *flags, int *active);
	/* since CUDA 9.2: get the UUID of the GPU */
	CUresult (*uuid)(CUuuid *uuid, CUdevice device);
	/* since CUDA 11.4: get the UUID of the MIG slice, if there is one */
	CUresult (*slice)(CUuuid *uuid, CUdevice device);
} driver;

static void find_driver(void)
{
	static const struct ddp_gpu_function table[] = {{"cuDeviceGet", 2000},
							{"cuDevicePrimaryCtxGetState", 7000},
							{"cuDeviceGetUuid", 9020},
							{"cuDeviceGetUuid", 11040}};

	(void)ddp_gpu_load(&driver, table, sizeof(table) / sizeof(table[0]));
}

/* Returns false if the driver does not know the GPU. */
static bool get_handle(CUdevice *device, int index)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_driver);
	return driver.get && driver.get(device, index) == CUDA_SUCCESS;
}

/*
 * Returns whether this process has a context on GPU [index]; true if unknown. Since CUDA 12, making
 * a GPU current creates a context on it, which needs some hundred MiB.
 */
static bool has_context(int index)
{
	unsigned int flags;
	CUdevice device;
	int active;

	if (!get_handle(&device, index) || !driver.state ||
	    driver.state(device, &flags, &active) != CUDA_SUCCESS)
		return true;
	return active != 0;
}

void ddp_gpu_leave(int index, int previous)
{
	if (previous != index && has_context(previous))
		(void)cudaSetDevice(previous);
}

void ddp_gpu_uuid(char *text, size_t size, int index, const struct cudaDeviceProp *properties)
{
	CUuuid id = properties->uuid;
	bool slice = false;
#if CUDART_VERSION >= 12050
	CUuuid whole;
	CUdevice device;

	if (get_handle(&device, index) && driver.slice && driver.slice(&id, device) == CUDA_SUCCESS)
		slice = driver.uuid && driver.uuid(&whole, device) == CUDA_SUCCESS &&
			memcmp(&id, &whole, sizeof(id)) != 0;
	else
		id = properties->uuid;
#endif
	(void)index;
	_Static_assert(sizeof(id) == DDP_GPU_UUID, "UUIDs are of 16 bytes");
	ddp_gpu_print_uuid(text, size, (const unsigned char *)id.bytes, slice);
}
