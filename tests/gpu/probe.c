/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.c - what this machine's driver and GPU allow, tried and not looked up
 *
 * Prints a line "name yes|no text" for each: driver, gpu, memory, vmm, ipc, memops, mig. Ends with 0 whatever it finds.
 */
#include "config.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* The driver's, by name: a machine without one has no libcuda to link with. */
static void *driver;

static void *driver_function(const char *name)
{
	return driver ? dlsym(driver, name) : NULL;
}

/* What function [name] of the driver, of [type], returns; -1 where there is none. */
#define CALL(name, type, ...) \
	(driver_function(name) ? (int)((CUresult(*) type)driver_function(name))(__VA_ARGS__) : -1)

static void __attribute__((format(printf, 3, 4)))
tell(const char *name, bool yes, const char *format, ...)
{
	va_list arguments;

	printf("%s %s ", name, yes ? "yes" : "no");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

static const char *reason(int result)
{
	const char *text = NULL;

	if (result < 0)
		return "the driver has no such function";
	if (CALL("cuGetErrorName", (CUresult, const char **), (CUresult)result, &text) != 0 ||
	    !text)
		return "an error without a name";
	return text;
}

static bool probe_driver(void)
{
	int version = 0, built = 0;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	cudaRuntimeGetVersion(&built);
	if (!driver) {
		tell("driver", false, "no driver: %s", dlerror());
		return false;
	}
	CALL("cuDriverGetVersion", (int *), &version);
	tell("driver", true, "for CUDA %d.%d; built with %d.%d", version / 1000,
	     version % 1000 / 10, built / 1000, built % 1000 / 10);
	return true;
}

static bool probe_gpus(void)
{
	struct cudaDeviceProp properties;
	cudaError_t result;
	size_t available = 0, total = 0;
	int count = 0;

	result = cudaGetDeviceCount(&count);
	if (result != cudaSuccess || count == 0 ||
	    cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
		tell("gpu", false, "%s",
		     result == cudaSuccess ? "none is visible" : cudaGetErrorString(result));
		return false;
	}
	tell("gpu", true, "%d, the first is %s, sm_%d%d, %d processors", count, properties.name,
	     properties.major, properties.minor, properties.multiProcessorCount);
	result = cudaMemGetInfo(&available, &total);
	tell("memory", result == cudaSuccess, "%.1f of %.1f GiB free",
	     (double)available / (1 << 30), (double)total / (1 << 30));
	return result == cudaSuccess;
}

/* --- Memory by a descriptor ------------------------------------------------------------------ */

/* As ranks that share a GPU map memory: whole pages of device 0. */
static int map_memory(CUmemGenericAllocationHandle handle, size_t bytes, CUdeviceptr *place)
{
	const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	int result;

	result = CALL("cuMemAddressReserve",
		      (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long), place,
		      bytes, (size_t)0, (CUdeviceptr)0, 0ull);
	if (result == 0)
		result = CALL("cuMemMap",
			      (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
			       unsigned long long),
			      *place, bytes, (size_t)0, handle, 0ull);
	if (result == 0)
		result = CALL("cuMemSetAccess",
			      (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t), *place, bytes,
			      &access, (size_t)1);
	return result;
}

/* In a process of its own: maps the memory behind [text], "descriptor:bytes", and reads what is there. */
static int open_descriptor(const char *text)
{
	CUmemGenericAllocationHandle handle = 0;
	size_t bytes = strtoull(strchr(text, ':') + 1, NULL, 10);
	CUdeviceptr place = 0;
	int fd = atoi(text), word = 0;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (cudaFree(NULL) != cudaSuccess ||
	    CALL("cuMemImportFromShareableHandle",
		 (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType), &handle,
		 (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 ||
	    map_memory(handle, bytes, &place) != 0 ||
	    cudaMemcpy(&word, (void *)place, sizeof(word), cudaMemcpyDeviceToHost) != cudaSuccess)
		return EXIT_FAILURE;
	return word == 42 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static bool opens_elsewhere(const char *program, const char *text)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		execl(program, program, text, (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* Returns the driver's result, with memory that has 42 in its first word. */
static int export_memory(size_t *bytes, int *fd)
{
	CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes =
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle = 0;
	CUdeviceptr place = 0;
	int word = 42, result;

	result = CALL("cuMemGetAllocationGranularity",
		      (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags),
		      bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
	if (result == 0)
		result = CALL("cuMemCreate",
			      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
			       unsigned long long),
			      &handle, *bytes, &properties, 0ull);
	if (result == 0)
		result = CALL("cuMemExportToShareableHandle",
			      (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
			       unsigned long long),
			      (void *)fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
	if (result == 0)
		result = map_memory(handle, *bytes, &place);
	if (result == 0 && cudaMemcpy((void *)place, &word, sizeof(word), cudaMemcpyHostToDevice))
		result = CUDA_ERROR_UNKNOWN;
	return result;
}

static void probe_vmm(const char *program)
{
	size_t bytes = 0;
	int fd = -1, result = export_memory(&bytes, &fd);
	char text[64];

	snprintf(text, sizeof(text), "%d:%zu", fd, bytes);
	/* Also where it is closed on exec, which the driver does not promise. */
	if (fd >= 0)
		fcntl(fd, F_SETFD, 0);
	if (result != 0)
		tell("vmm", false, "%s", reason(result));
	else if (opens_elsewhere(program, text))
		tell("vmm", true,
		     "another process maps memory by its descriptor, of pages of %zu KiB",
		     bytes >> 10);
	else
		tell("vmm", false,
		     "another process cannot map this one's memory by its descriptor");
	if (fd >= 0)
		close(fd);
}

/* --- Memory by a handle ---------------------------------------------------------------------- */

/* In a process of its own: opens memory whose handle is [text], and reads from it what is there. */
static int open_ipc(const char *text)
{
	cudaIpcMemHandle_t handle;
	void *memory = NULL;
	int word = 0;

	for (size_t i = 0; i < sizeof(handle); i++) {
		unsigned int byte = 0;

		sscanf(text + 2 * i, "%2x", &byte);
		((unsigned char *)&handle)[i] = (unsigned char)byte;
	}
	if (cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess ||
	    cudaMemcpy(&word, memory, sizeof(word), cudaMemcpyDeviceToHost) != cudaSuccess)
		return EXIT_FAILURE;
	return word == 42 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void probe_ipc(const char *program)
{
	char text[2 * sizeof(cudaIpcMemHandle_t) + 1] = "";
	cudaIpcMemHandle_t handle;
	void *memory = NULL;
	int word = 42;
	cudaError_t result = cudaMalloc(&memory, 2 << 20);

	if (result == cudaSuccess)
		result = cudaMemcpy(memory, &word, sizeof(word), cudaMemcpyHostToDevice);
	if (result == cudaSuccess)
		result = cudaIpcGetMemHandle(&handle, memory);
	if (result != cudaSuccess) {
		tell("ipc", false, "%s", cudaGetErrorString(result));
		return;
	}
	for (size_t i = 0; i < sizeof(handle); i++)
		snprintf(text + 2 * i, 3, "%02x", ((unsigned char *)&handle)[i]);
	if (opens_elsewhere(program, text))
		tell("ipc", true, "another process reads this one's memory");
	else
		tell("ipc", false, "another process cannot open this one's memory");
	cudaFree(memory);
}

/* --- Words ----------------------------------------------------------------------------------- */

/* What of [word], host memory that processes share and the GPU knows, streams make. */
static int write_and_await(volatile uint32_t *word)
{
	CUdeviceptr place = 0;
	int result;

	if (cudaHostGetDevicePointer((void **)&place, (void *)word, 0) != cudaSuccess)
		return CUDA_ERROR_INVALID_VALUE;
	result = CALL("cuStreamWriteValue32_v2", (CUstream, CUdeviceptr, cuuint32_t, unsigned int),
		      NULL, place, 7u, 0u);
	/* Cyclically: what is as far behind as can be is there. */
	if (result == 0)
		result = CALL("cuStreamWaitValue32_v2",
			      (CUstream, CUdeviceptr, cuuint32_t, unsigned int), NULL, place,
			      0x80000008u, (unsigned int)CU_STREAM_WAIT_VALUE_GEQ);
	if (result == 0 && (cudaDeviceSynchronize() != cudaSuccess || *word != 7))
		result = CUDA_ERROR_UNKNOWN;
	return result;
}

/* The words of ranks that share a GPU lie in a file without a name that all have mapped. */
static void probe_memops(void)
{
	enum { PAGE = 4096 };
	int fd = memfd_create("probe", MFD_CLOEXEC);
	void *page = MAP_FAILED;
	cudaError_t known;
	int result;

	if (fd >= 0 && ftruncate(fd, PAGE) == 0)
		page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		tell("memops", false, "no memory that processes share");
		return;
	}
	known = cudaHostRegister(page, PAGE, cudaHostRegisterPortable | cudaHostRegisterMapped);
	if (known != cudaSuccess) {
		tell("memops", false, "shared memory of the host cannot be pinned: %s",
		     cudaGetErrorString(known));
		return;
	}
	result = write_and_await(page);
	tell("memops", result == 0, "%s",
	     result == 0 ? "streams write and await words of memory that processes share"
			 : reason(result));
	cudaHostUnregister(page);
}

static void probe_mig(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	bool mig = visible && strncmp(visible, "MIG-", 4) == 0;

	tell("mig", mig, "%s", mig ? visible : "a whole GPU, or none named");
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return strchr(argv[1], ':') ? open_descriptor(argv[1]) : open_ipc(argv[1]);
	if (!probe_driver() || !probe_gpus())
		return EXIT_SUCCESS;
	probe_vmm(argv[0]);
	probe_ipc(argv[0]);
	probe_memops();
	probe_mig();
	return EXIT_SUCCESS;
}
