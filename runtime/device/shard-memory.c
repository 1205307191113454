/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that several processes have. It is made, exported, and mapped to addresses; its maker's handle goes at
 * once, since mappings keep it alive, and so does a descriptor that is on its way. Where the driver exports no
 * descriptors (an old one, some containers), cudaMalloc() and CUDA's older handles do: then memory must be
 * released by who imported it before it is by who made it.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card-memory.h"
#include "shard-gpu.h"

/* In the order of struct ddp_shard_functions. */
static const struct ddp_card_function functions[] = {
	{"cuDeviceGet", 2000},
	{"cuDeviceGetAttribute", 2000},
	{"cuMemGetAllocationGranularity", 10020},
	{"cuMemCreate", 10020},
	{"cuMemRelease", 10020},
	{"cuMemExportToShareableHandle", 10020},
	{"cuMemImportFromShareableHandle", 10020},
	{"cuMemAddressReserve", 10020},
	{"cuMemAddressFree", 10020},
	{"cuMemMap", 10020},
	{"cuMemUnmap", 10020},
	{"cuMemSetAccess", 10020},
};

_Static_assert(sizeof(functions) / sizeof(functions[0]) ==
		       sizeof(struct ddp_shard_functions) / sizeof(void *),
	       "each function has its name");

#define MIB ((size_t)1 << 20)

/* What cudaMalloc() gives less than is part of a block with others' memory, and all of it is exported. */
#define LEAST (2 * MIB)

_Static_assert(sizeof(cudaIpcMemHandle_t) <= DDP_SHARD_HANDLE, "a handle fits");

static size_t whole(const struct ddp_shard_gpu *gpu, size_t bytes)
{
	size_t page = gpu->descriptors ? gpu->granularity : LEAST;

	return bytes > SIZE_MAX - page ? 0 : (bytes ? (bytes + page - 1) / page : 1) * page;
}

/* --- The list ----------------------------------------------------------------------------- */

static int keep(struct ddp_shard_gpu *gpu, void *base, size_t bytes, enum ddp_shard_kind kind,
		bool counted, struct ddp_error *error)
{
	struct ddp_shard_block *block = malloc(sizeof(*block));

	if (!block)
		return ddp_error_set(error, DDP_ERR_MEMORY, "shared GPU %d: no memory on the host",
				     gpu->index);
	*block = (struct ddp_shard_block){gpu->blocks, base, bytes, kind, counted};
	gpu->blocks = block;
	gpu->used += counted ? bytes : 0;
	return 0;
}

static void unmap(struct ddp_shard_gpu *gpu, CUdeviceptr place, size_t bytes)
{
	(void)gpu->driver.unmap(place, bytes);
	(void)gpu->driver.unreserve(place, bytes);
}

static void give_back(struct ddp_shard_gpu *gpu, void *base, size_t bytes, enum ddp_shard_kind kind)
{
	if (kind == DDP_SHARD_MAPPED)
		unmap(gpu, (CUdeviceptr)base, bytes);
	else if (kind == DDP_SHARD_OWN)
		(void)cudaFree(base);
	else
		(void)cudaIpcCloseMemHandle(base);
	(void)cudaGetLastError();
}

void ddp_shard_gpu_release(struct ddp_shard_gpu *gpu, void *memory)
{
	struct ddp_shard_block **link = &gpu->blocks, *block;
	int was;

	while (*link && (*link)->base != memory)
		link = &(*link)->next;
	block = *link;
	if (!block)
		return;
	*link = block->next;
	gpu->used -= block->counted ? block->bytes : 0;
	was = ddp_card_enter(gpu->index);
	give_back(gpu, block->base, block->bytes, block->kind);
	ddp_card_leave(gpu->index, was);
	free(block);
}

/* --- The share ---------------------------------------------------------------------------- */

static void amount(char text[32], size_t bytes)
{
	if (bytes >= 1024 * MIB)
		snprintf(text, 32, "%.1f GiB", (double)bytes / (1024.0 * (double)MIB));
	else
		snprintf(text, 32, "%.1f MiB", (double)bytes / (double)MIB);
}

/* Without a share the card decides. What the process holds is more than what alloc() gave, where it is known. */
static int check_share(const struct ddp_shard_gpu *gpu, size_t bytes, struct ddp_error *error)
{
	char wanted[32], used[32], most[32];
	size_t held;

	if (!(gpu->share > 0 && gpu->share < 1))
		return 0;
	held = ddp_card_held(gpu->uuid);
	if (held < gpu->used)
		held = gpu->used;
	if (bytes <= gpu->limit && held <= gpu->limit - bytes)
		return 0;
	amount(wanted, bytes);
	amount(used, held);
	amount(most, gpu->limit);
	return ddp_error_set(
		error, DDP_ERR_MEMORY,
		"shared GPU %d (%s): no room for %s that its ranks share: this rank's "
		"share is %s (DDP_SHARE %.3g), of which it uses %s; ask for more shards, "
		"or use less memory",
		gpu->index, gpu->name, wanted, most, gpu->share, used);
}

static int refuse(const struct ddp_shard_gpu *gpu, cudaError_t result, size_t bytes,
		  struct ddp_error *error)
{
	char wanted[32], available[32];
	size_t total, rest = 0;

	if (result != cudaErrorMemoryAllocation)
		return ddp_card_error(gpu->who, result, error,
				      "making %zu bytes that its ranks share", bytes);
	(void)cudaGetLastError();
	if (cudaMemGetInfo(&rest, &total) != cudaSuccess)
		(void)cudaGetLastError();
	amount(wanted, bytes);
	amount(available, rest);
	return ddp_error_set(error, DDP_ERR_MEMORY,
			     "shared GPU %d (%s): no room for %s that its ranks share, only %s is "
			     "free; end what else runs there, or use fewer ranks on it",
			     gpu->index, gpu->name, wanted, available);
}

/* --- By descriptors ----------------------------------------------------------------------- */

/* Give [handle] an address. The mapping holds the memory, so the handle is gone either way. */
static CUresult map(struct ddp_shard_gpu *gpu, CUmemGenericAllocationHandle handle, size_t bytes,
		    void **memory)
{
	const CUmemAccessDesc access = {.location = gpu->properties.location,
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	const struct ddp_shard_functions *driver = &gpu->driver;
	CUdeviceptr place = 0;
	CUresult result;

	result = driver->reserve(&place, bytes, 0, 0, 0);
	if (result == CUDA_SUCCESS) {
		result = driver->map(place, bytes, 0, handle, 0);
		if (result != CUDA_SUCCESS)
			(void)driver->unreserve(place, bytes);
	}
	if (result == CUDA_SUCCESS) {
		result = driver->access(place, bytes, &access, 1);
		if (result != CUDA_SUCCESS)
			unmap(gpu, place, bytes);
	}
	(void)driver->release(handle);
	*memory = result == CUDA_SUCCESS ? (void *)place : NULL;
	return result;
}

static CUresult make_mapped(struct ddp_shard_gpu *gpu, size_t bytes, void **memory, int *fd)
{
	CUmemGenericAllocationHandle handle;
	CUresult result;

	*memory = NULL;
	*fd = -1;
	result = gpu->driver.create(&handle, bytes, &gpu->properties, 0);
	if (result != CUDA_SUCCESS)
		return result;
	result = gpu->driver.export(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (result != CUDA_SUCCESS) {
		*fd = -1;
		(void)gpu->driver.release(handle);
		return result;
	}
	result = map(gpu, handle, bytes, memory);
	if (result != CUDA_SUCCESS) {
		close(*fd);
		*fd = -1;
	}
	return result;
}

static CUresult import_mapped(struct ddp_shard_gpu *gpu, int fd, size_t bytes, void **memory)
{
	CUmemGenericAllocationHandle handle;
	CUresult result;

	*memory = NULL;
	result = gpu->driver.import(&handle, (void *)(uintptr_t)fd,
				    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	return result == CUDA_SUCCESS ? map(gpu, handle, bytes, memory) : result;
}

/* Both ways once, with a page: containers forbid the one or the other at the last moment. */
static CUresult try_once(struct ddp_shard_gpu *gpu)
{
	void *memory, *again;
	CUresult result;
	int fd;

	result = make_mapped(gpu, gpu->granularity, &memory, &fd);
	if (result != CUDA_SUCCESS)
		return result;
	result = import_mapped(gpu, fd, gpu->granularity, &again);
	if (again)
		unmap(gpu, (CUdeviceptr)again, gpu->granularity);
	unmap(gpu, (CUdeviceptr)memory, gpu->granularity);
	close(fd);
	return result;
}

/* What the card's attributes say, and the size of its pages. */
static CUresult ask(struct ddp_shard_gpu *gpu)
{
	const struct ddp_shard_functions *driver = &gpu->driver;
	CUdevice device = 0;
	int supported = 0;
	CUresult result;

	result = driver->device(&device, gpu->index);
	if (result == CUDA_SUCCESS)
		result = driver->attribute(
			&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
			device);
	if (result == CUDA_SUCCESS && !supported)
		result = CUDA_ERROR_NOT_SUPPORTED;
	gpu->properties = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	if (result == CUDA_SUCCESS)
		result = driver->granularity(&gpu->granularity, &gpu->properties,
					     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
	if (result == CUDA_SUCCESS && gpu->granularity == 0)
		result = CUDA_ERROR_NOT_SUPPORTED;
	return result;
}

void ddp_shard_gpu_try_descriptors(struct ddp_shard_gpu *gpu)
{
	CUresult result;

	if (!ddp_card_load(&gpu->driver, functions, sizeof(functions) / sizeof(functions[0]))) {
		snprintf(gpu->why, sizeof(gpu->why), "the driver lacks the functions");
		return;
	}
	result = ask(gpu);
	if (result == CUDA_SUCCESS)
		result = try_once(gpu);
	gpu->descriptors = result == CUDA_SUCCESS;
	if (!gpu->descriptors)
		snprintf(gpu->why, sizeof(gpu->why), "the driver exports no descriptor here (%s)",
			 cudaGetErrorName(ddp_shard_gpu_result(result)));
	(void)cudaGetLastError();
}

/* --- By handles --------------------------------------------------------------------------- */

static cudaError_t make_plain(size_t bytes, void **memory, unsigned char handle[DDP_SHARD_HANDLE])
{
	cudaIpcMemHandle_t made;
	cudaError_t result;

	result = cudaMalloc(memory, bytes);
	if (result != cudaSuccess) {
		*memory = NULL;
		return result;
	}
	result = cudaIpcGetMemHandle(&made, *memory);
	if (result == cudaSuccess) {
		memcpy(handle, &made, sizeof(made));
		return result;
	}
	(void)cudaFree(*memory);
	*memory = NULL;
	return result;
}

static cudaError_t import_plain(const unsigned char handle[DDP_SHARD_HANDLE], void **memory)
{
	cudaIpcMemHandle_t theirs;
	cudaError_t result;

	memcpy(&theirs, handle, sizeof(theirs));
	result = cudaIpcOpenMemHandle(memory, theirs, cudaIpcMemLazyEnablePeerAccess);
	if (result != cudaSuccess)
		*memory = NULL;
	return result;
}

/* --- Either way --------------------------------------------------------------------------- */

static int clear(struct ddp_shard_gpu *gpu, void *memory, size_t bytes, struct ddp_error *error)
{
	cudaError_t result = cudaMemsetAsync(memory, 0, bytes, gpu->setup);

	if (result == cudaSuccess)
		result = cudaStreamSynchronize(gpu->setup);
	return ddp_card_error(gpu->who, result, error, "clearing %zu bytes", bytes);
}

static int make(struct ddp_shard_gpu *gpu, size_t bytes, struct ddp_shard_memory *memory,
		struct ddp_error *error)
{
	enum ddp_shard_kind kind = gpu->descriptors ? DDP_SHARD_MAPPED : DDP_SHARD_OWN;
	cudaError_t result;
	int status;

	if (gpu->descriptors)
		result = ddp_shard_gpu_result(make_mapped(gpu, bytes, &memory->base, &memory->fd));
	else
		result = make_plain(bytes, &memory->base, memory->handle);
	if (result != cudaSuccess)
		return refuse(gpu, result, bytes, error);
	status = clear(gpu, memory->base, bytes, error);
	if (!status)
		status = keep(gpu, memory->base, bytes, kind, true, error);
	if (status) {
		if (memory->fd >= 0)
			close(memory->fd);
		memory->fd = -1;
		give_back(gpu, memory->base, bytes, kind);
		memory->base = NULL;
	}
	return status;
}

int ddp_shard_gpu_alloc(struct ddp_shard_gpu *gpu, size_t bytes, struct ddp_shard_memory *memory,
			struct ddp_error *error)
{
	size_t pages = whole(gpu, bytes);
	int status, was;

	*memory = (struct ddp_shard_memory){.fd = -1, .bytes = bytes};
	if (pages == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "shared GPU %d: %zu bytes of memory",
				     gpu->index, bytes);
	was = ddp_card_enter(gpu->index);
	status = check_share(gpu, pages, error);
	if (!status)
		status = make(gpu, pages, memory, error);
	ddp_card_leave(gpu->index, was);
	return status;
}

static int import(struct ddp_shard_gpu *gpu, const struct ddp_shard_memory *theirs, size_t pages,
		  void **memory, struct ddp_error *error)
{
	enum ddp_shard_kind kind = theirs->fd >= 0 ? DDP_SHARD_MAPPED : DDP_SHARD_IMPORTED;
	cudaError_t result;
	int status;

	if (theirs->fd >= 0)
		result = ddp_shard_gpu_result(import_mapped(gpu, theirs->fd, pages, memory));
	else
		result = import_plain(theirs->handle, memory);
	status = ddp_card_error(gpu->who, result, error,
				"mapping %zu bytes of another rank's memory by its %s",
				theirs->bytes, theirs->fd >= 0 ? "descriptor" : "handle");
	if (!status)
		status = keep(gpu, *memory, pages, kind, false, error);
	if (status && *memory) {
		give_back(gpu, *memory, pages, kind);
		*memory = NULL;
	}
	return status;
}

int ddp_shard_gpu_import(struct ddp_shard_gpu *gpu, const struct ddp_shard_memory *theirs,
			 void **memory, struct ddp_error *error)
{
	size_t pages = whole(gpu, theirs->bytes);
	int status, was;

	*memory = NULL;
	if (theirs->fd >= 0 && !gpu->descriptors)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"shared GPU %d (%s): another rank passes its memory by a "
			"descriptor, which this one cannot take (%s); start all ranks of a "
			"GPU in containers alike",
			gpu->index, gpu->name, gpu->why);
	if (pages == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "shared GPU %d: %zu bytes of another rank's memory",
				     gpu->index, theirs->bytes);
	was = ddp_card_enter(gpu->index);
	status = import(gpu, theirs, pages, memory, error);
	ddp_card_leave(gpu->index, was);
	return status;
}
