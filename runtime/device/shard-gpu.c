/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard-gpu.c - the engine of shared GPUs (ddp_shard.so): a GPU, its streams, words that they write and await, and
 * memory that several processes have
 *
 * Words are of host memory, and no kernel has to do with them.
 * Writing has the driver's memory barrier before it (flags 0): what the stream wrote before, be it into memory of
 * another process, is there for all when the word is. Awaiting is (int32_t)(*word - value) >= 0, which is the
 * default, as in shard-protocol.h. It needs no flush of remote writes: those are another device's, and what is awaited
 * here was written by this GPU, whose caches its own later kernels share.
 *
 * Memory is made, exported, and mapped to addresses; its maker's handle goes at once, since mappings keep it alive, and
 * so does a descriptor that is on its way. Where the driver exports no descriptors (an old one, some containers),
 * cudaMalloc() and CUDA's older handles do: then memory must be released by who imported it before it is by who made it.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bounded.h"
#include "base/card-cuda.h"
#include "base/card-memory.h"
#include "base/text.h"
#include "shard-engine.h"
#include "sum.h"

#define MIB ((size_t)1 << 20)

/* What cudaMalloc() gives less than is part of a block with others' memory, and all of it is exported. */
#define LEAST (2 * MIB)

/*
 * The driver's functions that the runtime has no like of, as cuda.h has them, and since when. Words are of CUDA 11.7:
 * before, an option of the kernel module switched them on, and it was off.
 */
#define FUNCTIONS(F)                                         \
	F(wait, cuStreamWaitValue32, 11070)                  \
	F(write, cuStreamWriteValue32, 11070)                \
	F(device, cuDeviceGet, 2000)                         \
	F(attribute, cuDeviceGetAttribute, 2000)             \
	F(granularity, cuMemGetAllocationGranularity, 10020) \
	F(create, cuMemCreate, 10020)                        \
	F(release, cuMemRelease, 10020)                      \
	F(export, cuMemExportToShareableHandle, 10020)       \
	F(import, cuMemImportFromShareableHandle, 10020)     \
	F(reserve, cuMemAddressReserve, 10020)               \
	F(unreserve, cuMemAddressFree, 10020)                \
	F(map, cuMemMap, 10020)                              \
	F(unmap, cuMemUnmap, 10020)                          \
	F(access, cuMemSetAccess, 10020)
#define MEMBER(member, function, version) __typeof__(function) *member;
#define ENTRY(member, function, version) {#function, version},

struct driver {
	FUNCTIONS(MEMBER)
};

static const struct ddp_card_function functions[] = {FUNCTIONS(ENTRY)};

_Static_assert(CU_STREAM_WAIT_VALUE_GEQ == 0 && CU_STREAM_WRITE_VALUE_DEFAULT == 0,
	       "the defaults are what is meant");
_Static_assert(sizeof(cudaIpcMemHandle_t) <= DDP_SHARD_HANDLE, "a handle fits");

struct block {
	struct block *next;
	void *base;
	size_t bytes; /* whole pages of the GPU */
	bool mapped;  /* else of cudaMalloc(), or, if it is theirs, of cudaIpcOpenMemHandle() */
	bool theirs;  /* another rank's */
};

struct ddp_shard_gpu {
	int index;
	double share;
	char name[128];
	char who[DDP_CARD_WHO]; /* "shared GPU 1 (NVIDIA H200)", for messages */
	char uuid[48];
	int processors;
	size_t limit; /* bytes that this rank may have */
	size_t used;  /* of these, by alloc() */

	/* Sums and words of who has no stream; and what waits: no turn is ever on that one. */
	cudaStream_t stream, setup;
	struct driver driver;

	bool descriptors;		/* memory is exported as a descriptor, else by a handle */
	char why[256];			/* why not */
	CUmemAllocationProp properties; /* of memory that is */
	size_t granularity;
	struct block *blocks;

	char *page; /* what know() was told; and as the GPU has it */
	CUdeviceptr place;
	size_t page_bytes;
};

/* What [call] of CUDA's gives while the GPU is current, as ddp_card_error() has it. */
#define ON_GPU(gpu, call, ...)                                                 \
	__extension__({                                                        \
		int was_ = ddp_card_enter((gpu)->index);                       \
		int status_ = ddp_card_error((gpu)->who, (call), __VA_ARGS__); \
                                                                               \
		ddp_card_leave((gpu)->index, was_);                            \
		status_;                                                       \
	})

/* The driver's results have the numbers of the runtime's. */
static cudaError_t result_of(CUresult result)
{
	return (cudaError_t)result;
}

static int gpu_error(const struct ddp_shard_gpu *gpu, int status, const char *what,
		     struct ddp_error *error)
{
	return ddp_error_set(error, status, "%s: %s", gpu->who, what);
}

static cudaStream_t stream_of(const struct ddp_shard_gpu *gpu, void *stream)
{
	return stream ? (cudaStream_t)stream : gpu->stream;
}

/* Whether [stream] has ended: cudaSuccess, cudaErrorNotReady or an error. Breaks no capture of any thread. */
static cudaError_t query(cudaStream_t stream)
{
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaError_t result;

	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	result = cudaStreamQuery(stream);
	if (result != cudaSuccess)
		(void)cudaGetLastError();
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	return result;
}

/* --- Words: a trial of them ------------------------------------------------------------- */

#define REMEDY                                                                                      \
	"; ranks share a GPU by a driver for CUDA 11.7 or newer, outside of virtual machines that " \
	"forbid it; or run one rank on each GPU (srun --gpus-per-task=1)"

/* How long a trial may take. */
#define TRIAL_SECONDS 10.0
enum { TRIAL = 7, TRIAL_BYTES = 4096 };

/* Whether [stream] ends within some seconds. */
static cudaError_t await_end(cudaStream_t stream)
{
	struct ddp_watch watch = ddp_watch_start(TRIAL_SECONDS, NULL, NULL);
	struct ddp_poll poll = {0};
	cudaError_t result;

	do
		result = query(stream);
	while (result == cudaErrorNotReady && ddp_watch_poll(&watch, &poll, NULL) == 0);
	return result;
}

/* What does not end keeps its word: freeing it would wait. */
static int try_word(struct ddp_shard_gpu *gpu, uint32_t *word, bool *ended, struct ddp_error *error)
{
	const struct driver *driver = &gpu->driver;
	cudaError_t result;
	void *place = NULL;

	result = cudaHostGetDevicePointer(&place, word, 0);
	if (result == cudaSuccess)
		result = result_of(driver->write(gpu->setup, (CUdeviceptr)place, TRIAL, 0));
	if (result == cudaSuccess)
		result = result_of(driver->wait(gpu->setup, (CUdeviceptr)place, TRIAL, 0));
	if (result == cudaErrorNotSupported || result == cudaErrorNotPermitted) {
		(void)cudaGetLastError();
		return gpu_error(gpu, DDP_ERR_UNSUPPORTED,
				 "its driver lets no stream write and await words" REMEDY, error);
	}
	if (result == cudaSuccess)
		result = await_end(gpu->setup);
	*ended = result != cudaErrorNotReady;
	if (result == cudaErrorNotReady ||
	    (result == cudaSuccess && *(const volatile uint32_t *)word != TRIAL))
		return gpu_error(gpu, DDP_ERR_UNSUPPORTED,
				 "a stream wrote a word that never came" REMEDY, error);
	return ddp_card_error(gpu->who, result, error, "trying a stream that awaits a word");
}

static int try_words(struct ddp_shard_gpu *gpu, struct ddp_error *error)
{
	const unsigned int flags = cudaHostAllocPortable | cudaHostAllocMapped;
	uint32_t *word = NULL;
	bool ended = true;
	int status;

	if (!gpu->driver.wait || !gpu->driver.write)
		return gpu_error(gpu, DDP_ERR_UNSUPPORTED,
				 "its driver has no streams that await words" REMEDY, error);
	DDP_CARD_TRY(gpu->who, cudaHostAlloc((void **)&word, TRIAL_BYTES, flags), error,
		     "pinning a page of the host");
	*word = 0;
	status = try_word(gpu, word, &ended, error);
	if (ended)
		(void)cudaFreeHost(word);
	return status;
}

/* --- Words: the page ------------------------------------------------------------------ */

static int know_page(struct ddp_shard_gpu *gpu, void *page, size_t bytes, struct ddp_error *error)
{
	const unsigned int flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
	void *place = NULL;
	int status;

	if (gpu->page)
		return gpu_error(gpu, DDP_ERR_STATE, "it has its page of words", error);
	status = ON_GPU(gpu, cudaHostRegister(page, bytes, flags), error,
			"pinning the %zu bytes of the host that its ranks share", bytes);
	if (status)
		return status;
	status = ON_GPU(gpu, cudaHostGetDevicePointer(&place, page, 0), error,
			"mapping the words that its ranks share");
	if (status) {
		(void)cudaHostUnregister(page);
		return status;
	}
	gpu->page = page;
	gpu->page_bytes = bytes;
	gpu->place = (CUdeviceptr)place;
	return 0;
}

/* On [stream], by [call] of the driver, which is [doing] in messages. */
static int enqueue(struct ddp_shard_gpu *gpu, void *stream, const void *word, uint32_t value,
		   CUresult (*call)(CUstream, CUdeviceptr, cuuint32_t, unsigned int),
		   const char *doing, struct ddp_error *error)
{
	uintptr_t offset = (uintptr_t)word - (uintptr_t)gpu->page;

	if (!gpu->page || (uintptr_t)word < (uintptr_t)gpu->page || offset % sizeof(uint32_t) ||
	    offset >= gpu->page_bytes)
		return gpu_error(gpu, DDP_ERR_ARGUMENT, "a word that is not in the page it knows",
				 error);
	return ON_GPU(gpu, result_of(call(stream_of(gpu, stream), gpu->place + offset, value, 0)),
		      error, "making a stream %s a word", doing);
}

static int wait_word(struct ddp_shard_gpu *gpu, void *stream, const void *word, uint32_t value,
		     struct ddp_error *error)
{
	return enqueue(gpu, stream, word, value, gpu->driver.wait, "await", error);
}

static int write_word(struct ddp_shard_gpu *gpu, void *stream, void *word, uint32_t value,
		      struct ddp_error *error)
{
	return enqueue(gpu, stream, word, value, gpu->driver.write, "write", error);
}

/* --- Streams -------------------------------------------------------------------------- */

static int sum(struct ddp_shard_gpu *gpu, void *stream, void *const *to, int targets,
	       const void *const *from, int sources, size_t count, enum ddp_type type,
	       enum ddp_op op, struct ddp_error *error)
{
	if ((unsigned int)type >= DDP_TYPE_COUNT || (unsigned int)op >= DDP_OP_COUNT)
		return gpu_error(gpu, DDP_ERR_ARGUMENT, "a sum of an unknown type or operation",
				 error);
	if (sources < 1 || sources > DDP_SHARD_SOURCES || targets < 1 ||
	    targets > DDP_SHARD_SOURCES)
		return gpu_error(gpu, DDP_ERR_ARGUMENT, "a sum of more ranks than can share a GPU",
				 error);
	if (count == 0)
		return 0;
	return ON_GPU(gpu,
		      (ddp_shard_kernel_sum(stream_of(gpu, stream), gpu->processors, to, targets,
					    from, sources, count, type, op),
		       cudaGetLastError()),
		      error, "adding %zu elements of %d ranks", count, sources);
}

static int copy(struct ddp_shard_gpu *gpu, void *stream, void *to, const void *from, size_t bytes,
		struct ddp_error *error)
{
	cudaStream_t queue = stream_of(gpu, stream);

	if (bytes == 0)
		return 0;
	return ON_GPU(gpu, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue), error,
		      "copying %zu bytes", bytes);
}

static int zero(struct ddp_shard_gpu *gpu, void *stream, void *memory, size_t bytes,
		struct ddp_error *error)
{
	if (bytes == 0)
		return 0;
	return ON_GPU(gpu, cudaMemsetAsync(memory, 0, bytes, stream_of(gpu, stream)), error,
		      "clearing %zu bytes", bytes);
}

static int is_idle(struct ddp_shard_gpu *gpu, void *stream, struct ddp_error *error)
{
	cudaError_t result;
	int status = ON_GPU(gpu,
			    (result = query(stream_of(gpu, stream)),
			     result == cudaErrorNotReady ? cudaSuccess : result),
			    error, "waiting for a stream");

	return status ? status : result == cudaSuccess;
}

/* The legacy stream may do nothing while another is captured. Other errors are idle()'s to tell. */
static bool is_captured(struct ddp_shard_gpu *gpu, void *stream)
{
	enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	cudaError_t result;

	result = cudaStreamIsCapturing(stream_of(gpu, stream), &status);
	if (result != cudaSuccess)
		(void)cudaGetLastError();
	return result == cudaErrorStreamCaptureImplicit || status != cudaStreamCaptureStatusNone;
}

static void *own_stream(struct ddp_shard_gpu *gpu)
{
	return gpu->stream;
}

/* --- Memory: the list --------------------------------------------------------------------- */

static size_t whole(const struct ddp_shard_gpu *gpu, size_t bytes)
{
	size_t page = gpu->descriptors ? gpu->granularity : LEAST;

	return bytes > SIZE_MAX - page ? 0 : (bytes ? (bytes + page - 1) / page : 1) * page;
}

static void unmap(struct ddp_shard_gpu *gpu, void *base, size_t bytes)
{
	(void)gpu->driver.unmap((CUdeviceptr)base, bytes);
	(void)gpu->driver.unreserve((CUdeviceptr)base, bytes);
}

static void give_back(struct ddp_shard_gpu *gpu, const struct block *block)
{
	if (block->mapped)
		unmap(gpu, block->base, block->bytes);
	else if (block->theirs)
		(void)cudaIpcCloseMemHandle(block->base);
	else
		(void)cudaFree(block->base);
	(void)cudaGetLastError();
}

/* Note [block], or give it back where that cannot be. */
static int keep(struct ddp_shard_gpu *gpu, const struct block *block, struct ddp_error *error)
{
	struct block *kept = malloc(sizeof(*kept));

	if (!kept) {
		give_back(gpu, block);
		return gpu_error(gpu, DDP_ERR_MEMORY, "no memory on the host", error);
	}
	*kept = *block;
	kept->next = gpu->blocks;
	gpu->blocks = kept;
	gpu->used += block->theirs ? 0 : block->bytes;
	return 0;
}

static void release(struct ddp_shard_gpu *gpu, void *memory)
{
	struct block **link = &gpu->blocks, *block;
	int was;

	while (*link && (*link)->base != memory)
		link = &(*link)->next;
	block = *link;
	if (!block)
		return;
	*link = block->next;
	gpu->used -= block->theirs ? 0 : block->bytes;
	was = ddp_card_enter(gpu->index);
	give_back(gpu, block);
	ddp_card_leave(gpu->index, was);
	free(block);
}

/* --- Memory: the share -------------------------------------------------------------------- */

/* Without a share the card decides. What the process holds is more than what alloc() gave, where it is known. */
static int check_share(const struct ddp_shard_gpu *gpu, size_t bytes, struct ddp_error *error)
{
	size_t held;

	if (!(gpu->share > 0 && gpu->share < 1))
		return 0;
	held = ddp_card_held(gpu->uuid);
	if (held < gpu->used)
		held = gpu->used;
	if (bytes <= gpu->limit && held <= gpu->limit - bytes)
		return 0;
	return ddp_error_set(
		error, DDP_ERR_MEMORY,
		"%s: no room for %s that its ranks share: this rank's share is %s "
		"(DDP_SHARE %.3g), of which it uses %s; ask for more shards, or use less "
		"memory",
		gpu->who, ddp_show_bytes(bytes).text, ddp_show_bytes(gpu->limit).text, gpu->share,
		ddp_show_bytes(held).text);
}

static int refuse_bytes(const struct ddp_shard_gpu *gpu, cudaError_t result, size_t bytes,
			struct ddp_error *error)
{
	size_t total, rest = 0;

	if (result != cudaErrorMemoryAllocation)
		return ddp_card_error(gpu->who, result, error,
				      "making %zu bytes that its ranks share", bytes);
	(void)cudaMemGetInfo(&rest, &total);
	(void)cudaGetLastError();
	return ddp_error_set(
		error, DDP_ERR_MEMORY,
		"%s: no room for %s that its ranks share, only %s is free; end what else "
		"runs there, or use fewer ranks on it",
		gpu->who, ddp_show_bytes(bytes).text, ddp_show_bytes(rest).text);
}

/* --- Memory by descriptors ---------------------------------------------------------------- */

/* Give [handle] an address. The mapping holds the memory, so the handle is gone either way. */
static CUresult map(struct ddp_shard_gpu *gpu, CUmemGenericAllocationHandle handle, size_t bytes,
		    void **memory)
{
	const CUmemAccessDesc access = {.location = gpu->properties.location,
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	const struct driver *driver = &gpu->driver;
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
			unmap(gpu, (void *)place, bytes);
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
		unmap(gpu, again, gpu->granularity);
	unmap(gpu, memory, gpu->granularity);
	close(fd);
	return result;
}

/* What the card's attributes say, and the size of its pages. */
static CUresult ask(struct ddp_shard_gpu *gpu)
{
	const CUdevice_attribute attribute =
		CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
	const struct driver *driver = &gpu->driver;
	CUdevice device = 0;
	int supported = 0;
	CUresult result;

	result = driver->device(&device, gpu->index);
	if (result == CUDA_SUCCESS)
		result = driver->attribute(&supported, attribute, device);
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

/* Choose how memory is exported, by doing it once. [all]: the driver has all functions. */
static void try_descriptors(struct ddp_shard_gpu *gpu, bool all)
{
	CUresult result;

	if (!all) {
		snprintf(gpu->why, sizeof(gpu->why), "the driver lacks the functions");
		return;
	}
	result = ask(gpu);
	if (result == CUDA_SUCCESS)
		result = try_once(gpu);
	gpu->descriptors = result == CUDA_SUCCESS;
	if (!gpu->descriptors)
		snprintf(gpu->why, sizeof(gpu->why), "the driver exports no descriptor here (%s)",
			 cudaGetErrorName(result_of(result)));
	(void)cudaGetLastError();
}

/* --- Memory either way -------------------------------------------------------------------- */

static cudaError_t make_plain(size_t bytes, void **memory, unsigned char handle[DDP_SHARD_HANDLE])
{
	cudaIpcMemHandle_t made;
	cudaError_t result;

	result = cudaMalloc(memory, bytes);
	if (result != cudaSuccess)
		return result;
	result = cudaIpcGetMemHandle(&made, *memory);
	if (result == cudaSuccess)
		memcpy(handle, &made, sizeof(made));
	else
		(void)cudaFree(*memory);
	return result;
}

static int make(struct ddp_shard_gpu *gpu, struct block *block, struct ddp_shard_memory *memory,
		struct ddp_error *error)
{
	cudaError_t result;
	int status;

	if (block->mapped)
		result = result_of(make_mapped(gpu, block->bytes, &block->base, &memory->fd));
	else
		result = make_plain(block->bytes, &block->base, memory->handle);
	if (result != cudaSuccess)
		return refuse_bytes(gpu, result, block->bytes, error);
	result = cudaMemsetAsync(block->base, 0, block->bytes, gpu->setup);
	if (result == cudaSuccess)
		result = cudaStreamSynchronize(gpu->setup);
	status = ddp_card_error(gpu->who, result, error, "clearing %zu bytes", block->bytes);
	if (!status)
		return keep(gpu, block, error);
	give_back(gpu, block);
	return status;
}

static int alloc(struct ddp_shard_gpu *gpu, size_t bytes, struct ddp_shard_memory *memory,
		 struct ddp_error *error)
{
	struct block block = {.bytes = whole(gpu, bytes), .mapped = gpu->descriptors};
	int status, was;

	*memory = (struct ddp_shard_memory){.fd = -1, .bytes = bytes};
	if (block.bytes == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "%s: %zu bytes of memory", gpu->who,
				     bytes);
	was = ddp_card_enter(gpu->index);
	status = check_share(gpu, block.bytes, error);
	if (!status)
		status = make(gpu, &block, memory, error);
	ddp_card_leave(gpu->index, was);
	if (!status) {
		memory->base = block.base;
		return 0;
	}
	if (memory->fd >= 0)
		close(memory->fd);
	memory->fd = -1;
	return status;
}

static cudaError_t import_block(struct ddp_shard_gpu *gpu, const struct ddp_shard_memory *theirs,
				struct block *block)
{
	cudaIpcMemHandle_t handle;

	if (block->mapped)
		return result_of(import_mapped(gpu, theirs->fd, block->bytes, &block->base));
	memcpy(&handle, theirs->handle, sizeof(handle));
	return cudaIpcOpenMemHandle(&block->base, handle, cudaIpcMemLazyEnablePeerAccess);
}

static int import(struct ddp_shard_gpu *gpu, const struct ddp_shard_memory *theirs, void **memory,
		  struct ddp_error *error)
{
	struct block block = {
		.bytes = whole(gpu, theirs->bytes), .mapped = theirs->fd >= 0, .theirs = true};
	int status, was;

	*memory = NULL;
	if (block.mapped && !gpu->descriptors)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"%s: another rank passes its memory by a descriptor, which this one cannot "
			"take (%s); start all ranks of a GPU in containers alike",
			gpu->who, gpu->why);
	if (block.bytes == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: %zu bytes of another rank's memory", gpu->who,
				     theirs->bytes);
	was = ddp_card_enter(gpu->index);
	status = ddp_card_error(gpu->who, import_block(gpu, theirs, &block), error,
				"mapping %zu bytes of another rank's memory by its %s",
				theirs->bytes, block.mapped ? "descriptor" : "handle");
	if (!status)
		status = keep(gpu, &block, error);
	ddp_card_leave(gpu->index, was);
	if (!status)
		*memory = block.base;
	return status;
}

/* --- The end -------------------------------------------------------------------------- */

/* Seconds for what is under way on streams that are not ours. */
#define REST_SECONDS 5.0

static void synchronise(void *arguments)
{
	(void)cudaSetDevice(*(const int *)arguments);
	(void)cudaDeviceSynchronize();
}

/* Whether nothing is under way on the GPU that is this process's. One that has failed is at rest too. */
static bool rests(struct ddp_shard_gpu *gpu)
{
	if ((gpu->stream && query(gpu->stream) == cudaErrorNotReady) ||
	    (gpu->setup && query(gpu->setup) == cudaErrorNotReady))
		return false;
	return !gpu->stream ||
	       ddp_bounded_try(synchronise, &gpu->index, sizeof(gpu->index), REST_SECONDS);
}

static void give_back_all(struct ddp_shard_gpu *gpu)
{
	while (gpu->blocks)
		release(gpu, gpu->blocks->base);
	if (gpu->page)
		(void)cudaHostUnregister(gpu->page);
	if (gpu->setup)
		(void)cudaStreamDestroy(gpu->setup);
	if (gpu->stream)
		(void)cudaStreamDestroy(gpu->stream);
	(void)cudaGetLastError();
}

/* Whatever is freed behind a wait that does not end would wait with it. */
static void close_gpu(struct ddp_shard_gpu *gpu)
{
	bool rested;
	int was;

	if (!gpu)
		return;
	was = ddp_card_enter(gpu->index);
	rested = rests(gpu);
	if (rested)
		give_back_all(gpu);
	ddp_card_leave(gpu->index, was);
	if (rested)
		free(gpu);
}

/* --- Opening it ----------------------------------------------------------------------- */

static int read_properties(struct ddp_shard_gpu *gpu, struct ddp_error *error)
{
	struct cudaDeviceProp properties;
	size_t available = 0, total = 0;
	int least = 0, greatest = 0;

	DDP_CARD_TRY(gpu->who, cudaGetDeviceProperties(&properties, gpu->index), error,
		     "asking for its properties");
	snprintf(gpu->name, sizeof(gpu->name), "%.*s", (int)sizeof(gpu->name) - 1, properties.name);
	snprintf(gpu->who, sizeof(gpu->who), "shared GPU %d (%s)", gpu->index, gpu->name);
	gpu->processors = properties.multiProcessorCount;
	ddp_card_uuid(gpu->uuid, sizeof(gpu->uuid), gpu->index, &properties);
	DDP_CARD_TRY(gpu->who, cudaMemGetInfo(&available, &total), error, "asking for its memory");
	gpu->limit =
		gpu->share > 0 && gpu->share < 1 ? (size_t)(gpu->share * (double)total) : total;
	DDP_CARD_TRY(gpu->who, cudaDeviceGetStreamPriorityRange(&least, &greatest), error,
		     "asking for priorities");
	DDP_CARD_TRY(gpu->who,
		     cudaStreamCreateWithPriority(&gpu->stream, cudaStreamNonBlocking, greatest),
		     error, "creating a stream");
	DDP_CARD_TRY(gpu->who, cudaStreamCreateWithFlags(&gpu->setup, cudaStreamNonBlocking), error,
		     "creating a stream");
	return 0;
}

static int take(struct ddp_shard_gpu *gpu, struct ddp_error *error)
{
	int was = ddp_card_enter(gpu->index), status;
	bool all = ddp_card_load(&gpu->driver, functions, sizeof(functions) / sizeof(functions[0]));

	status = read_properties(gpu, error);
	if (!status)
		status = try_words(gpu, error);
	if (!status)
		try_descriptors(gpu, all);
	ddp_card_leave(gpu->index, was);
	return status;
}

static int open_gpu(struct ddp_shard_gpu **gpu, int index, double share, const struct ddp_log *log,
		    struct ddp_error *error)
{
	struct ddp_shard_gpu *new;
	int status;

	*gpu = NULL;
	status = ddp_card_check("shard", "this rank", index, error);
	if (status)
		return status;
	new = calloc(1, sizeof(*new));
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the engine shard");
	new->index = index;
	snprintf(new->who, sizeof(new->who), "shared GPU %d", index);
	new->share = share;
	status = take(new, error);
	if (status) {
		close_gpu(new);
		return status;
	}
	ddp_log_print(log, DDP_LEVEL_DEBUG, "shard",
		      "memory of GPU %d is given to others by %s%s%s", index,
		      new->descriptors ? "descriptor" : "handle", *new->why ? ": " : "", new->why);
	*gpu = new;
	return 0;
}

DDP_API const struct ddp_shard_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_SHARD_VERSION, sizeof(struct ddp_shard_engine), "shard",
		 "shard", PACKAGE_VERSION},
	.open = open_gpu,
	.alloc = alloc,
	.import = import,
	.release = release,
	.know = know_page,
	.wait = wait_word,
	.write = write_word,
	.sum = sum,
	.copy = copy,
	.zero = zero,
	.idle = is_idle,
	.captured = is_captured,
	.stream = own_stream,
	.close = close_gpu,
};
