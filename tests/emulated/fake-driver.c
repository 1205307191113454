/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda.h>
#pragma GCC diagnostic pop

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "fake-driver.h"
#include "wide/card-memory.h"

enum { PAGE = 2 << 20 };

struct fake_driver fake_driver;

void fake_driver_reset(void)
{
	fake_reset();
	fake_driver = (struct fake_driver){.held = 0};
}

size_t ddp_card_held(const char *uuid)
{
	(void)uuid;
	return fake_driver.held;
}

static CUresult driver(cudaError_t result)
{
	/* The driver's functions leave nothing for cudaGetLastError(). */
	fake.last = cudaSuccess;
	return (CUresult)result;
}

static unsigned long number(uintptr_t handle)
{
	return (unsigned long)handle;
}

void ddp_shard_kernel_sum(void *stream, int processors, void *const *to, int targets,
			  const void *const *from, int sources, size_t count, enum ddp_type type,
			  enum ddp_op op)
{
	(void)to;
	(void)from;
	/* A launch fails by what cudaGetLastError() says. */
	(void)fake_note("sum %d to %d of %zu type %d op %d on %d in %lu", sources, targets, count,
			(int)type, (int)op, processors, number((uintptr_t)stream));
}

/* --- The runtime's ------------------------------------------------------------------------ */

cudaError_t cudaDeviceSynchronize(void)
{
	return fake_note("rest");
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	enum cudaStreamCaptureMode was = cudaStreamCaptureModeGlobal;

	*mode = was;
	return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned int flags)
{
	cudaError_t result = fake_note("register %zu %u", bytes, flags);

	(void)memory;
	fake.objects += result == cudaSuccess;
	return result;
}

cudaError_t cudaHostUnregister(void *memory)
{
	(void)memory;
	return fake_destroy(fake_note("unregister"));
}

/* The GPU has the host's memory elsewhere. */
cudaError_t cudaHostGetDevicePointer(void **place, void *memory, unsigned int flags)
{
	(void)flags;
	*place = (char *)memory + PAGE;
	return fake_note("place");
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory)
{
	memset(handle, 0, sizeof(*handle));
	memcpy(handle, &memory, sizeof(memory));
	return fake_note("tell handle");
}

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned int flags)
{
	cudaError_t result = fake_note("open handle %u", flags);

	memcpy(memory, &handle, sizeof(*memory));
	fake.objects += result == cudaSuccess;
	return result;
}

cudaError_t cudaIpcCloseMemHandle(void *memory)
{
	(void)memory;
	return fake_destroy(fake_note("close handle"));
}

/* --- The driver's ------------------------------------------------------------------------- */

static CUresult attribute(int *value, CUdevice_attribute of, CUdevice device)
{
	*value = of != CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED ||
		 !fake_driver.no_descriptors;
	return driver(fake_note("attribute of %d", device));
}

static CUresult wait_word(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags)
{
	(void)word;
	return driver(fake_note("await %u %u in %lu", value, flags, number((uintptr_t)stream)));
}

static CUresult write_word(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags)
{
	cudaError_t result =
		fake_note("write %u %u in %lu", value, flags, number((uintptr_t)stream));

	if (result == cudaSuccess && !fake_driver.silent)
		*(uint32_t *)(uintptr_t)(word - PAGE) = value;
	return driver(result);
}

static CUresult granularity(size_t *bytes, const CUmemAllocationProp *properties,
			    CUmemAllocationGranularity_flags option)
{
	(void)option;
	*bytes = PAGE;
	return driver(fake_note("granularity of %d", properties->location.id));
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
		       const CUmemAllocationProp *properties, unsigned long long flags)
{
	cudaError_t result = fake_note("create %zu", bytes);

	(void)flags;
	if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		result = cudaErrorInvalidValue;
	if (result == cudaSuccess && bytes > fake.free)
		result = cudaErrorMemoryAllocation;
	return driver(fake_make(handle, result));
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
	(void)handle;
	return driver(fake_destroy(fake_note("release")));
}

static CUresult export(void *shareable, CUmemGenericAllocationHandle handle,
		       CUmemAllocationHandleType type, unsigned long long flags)
{
	cudaError_t result = fake_note("export %d", (int)type);

	(void)handle;
	(void)flags;
	if (result == cudaSuccess)
		*(int *)shareable = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return driver(result);
}

static CUresult import(CUmemGenericAllocationHandle *handle, void *shareable,
		       CUmemAllocationHandleType type)
{
	cudaError_t result = fake_note("import %d", (int)type);

	if (fcntl((int)(uintptr_t)shareable, F_GETFD) < 0)
		result = cudaErrorInvalidValue;
	return driver(fake_make(handle, result));
}

/* Of what is mapped nobody here sees more than its address. */
static CUresult reserve(CUdeviceptr *place, size_t bytes, size_t alignment, CUdeviceptr wish,
			unsigned long long flags)
{
	cudaError_t result = fake_note("reserve %zu", bytes);

	(void)alignment;
	(void)wish;
	(void)flags;
	if (result == cudaSuccess) {
		*place = (CUdeviceptr)malloc(1);
		fake.objects++;
	}
	return driver(result);
}

static CUresult unreserve(CUdeviceptr place, size_t bytes)
{
	free((void *)place);
	return driver(fake_destroy(fake_note("unreserve %zu", bytes)));
}

static CUresult map(CUdeviceptr place, size_t bytes, size_t offset,
		    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	cudaError_t result = fake_note("map %zu at %zu", bytes, offset);

	(void)place;
	(void)handle;
	(void)flags;
	fake.objects += result == cudaSuccess;
	return driver(result);
}

static CUresult unmap(CUdeviceptr place, size_t bytes)
{
	(void)place;
	return driver(fake_destroy(fake_note("unmap %zu", bytes)));
}

static CUresult allow(CUdeviceptr place, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	(void)place;
	(void)count;
	return driver(
		fake_note("allow %zu %d to %d", bytes, (int)access->flags, access->location.id));
}

/* Of each the version that cudaTypedefs.h has. */
void *fake_driver_function(const char *symbol, unsigned int version)
{
#define FUNCTION(name, version, function)          \
	{                                          \
		name, version,                     \
		{                                  \
			(void (*)(void))(function) \
		}                                  \
	}
	static const struct {
		const char *name;
		unsigned int version;
		union {
			void (*function)(void);
			void *address;
		} of;
	} functions[] = {
		FUNCTION("cuDeviceGetAttribute", 2000, attribute),
		FUNCTION("cuStreamWaitValue32", 11070, wait_word),
		FUNCTION("cuStreamWriteValue32", 11070, write_word),
		FUNCTION("cuMemGetAllocationGranularity", 10020, granularity),
		FUNCTION("cuMemCreate", 10020, create),
		FUNCTION("cuMemRelease", 10020, release),
		FUNCTION("cuMemExportToShareableHandle", 10020, export),
		FUNCTION("cuMemImportFromShareableHandle", 10020, import),
		FUNCTION("cuMemAddressReserve", 10020, reserve),
		FUNCTION("cuMemAddressFree", 10020, unreserve),
		FUNCTION("cuMemMap", 10020, map),
		FUNCTION("cuMemUnmap", 10020, unmap),
		FUNCTION("cuMemSetAccess", 10020, allow),
	};

	if (fake_driver.missing &&
	    strncmp(symbol, fake_driver.missing, strlen(fake_driver.missing)) == 0)
		return NULL;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		if (strcmp(functions[i].name, symbol) == 0 && functions[i].version == version)
			return functions[i].of.address;
	}
	return NULL;
}
