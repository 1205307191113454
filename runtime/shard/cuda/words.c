/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of host memory that streams write and await, without a kernel.
 *
 * Writing has the driver's memory barrier before it (flags 0): what the stream wrote before, be it into memory of
 * another process, is there for all when the word is. Awaiting is (int32_t)(*word - value) >= 0, which is the
 * default, as in protocol.h. It needs no flush of remote writes: those are another device's, and what is awaited
 * here was written by this GPU, whose caches its own later kernels share.
 */
#include "config.h"

#include <time.h>

#include "gpu.h"

#define REMEDY                                                                                    \
	"ranks share a GPU by a driver for CUDA 11.7 or newer, outside of virtual machines that " \
	"forbid it; or run one rank on each GPU (srun --gpus-per-task=1)"

/* How long a trial may take: steps of a millisecond. */
enum { STEPS = 10000, STEP_NANOSECONDS = 1000000, TRIAL = 7, TRIAL_BYTES = 4096 };

_Static_assert(CU_STREAM_WAIT_VALUE_GEQ == 0 && CU_STREAM_WRITE_VALUE_DEFAULT == 0,
	       "the defaults are what is meant");

static cudaError_t await(const struct ddp_shard_gpu *gpu, cudaStream_t stream, CUdeviceptr word,
			 uint32_t value)
{
	return ddp_shard_gpu_result(
		gpu->driver.wait(stream, word, value, CU_STREAM_WAIT_VALUE_GEQ));
}

static cudaError_t put(const struct ddp_shard_gpu *gpu, cudaStream_t stream, CUdeviceptr word,
		       uint32_t value)
{
	return ddp_shard_gpu_result(
		gpu->driver.write(stream, word, value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

/* --- A trial ------------------------------------------------------------------------------ */

static int refuse(const struct ddp_shard_gpu *gpu, const char *what, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED, "shared GPU %d (%s): %s; " REMEDY,
			     gpu->index, gpu->name, what);
}

/* Whether [stream] ends within some seconds. */
static cudaError_t await_end(cudaStream_t stream)
{
	const struct timespec pause = {0, STEP_NANOSECONDS};
	cudaError_t result = cudaErrorNotReady;

	for (int i = 0; i < STEPS && result == cudaErrorNotReady; i++) {
		result = ddp_shard_gpu_query(stream);
		if (result == cudaErrorNotReady)
			nanosleep(&pause, NULL);
	}
	return result;
}

/* What does not end keeps its word: freeing it would wait. */
static int try_word(struct ddp_shard_gpu *gpu, uint32_t *word, bool *ended, struct ddp_error *error)
{
	cudaError_t result;
	void *place = NULL;

	result = cudaHostGetDevicePointer(&place, word, 0);
	if (result == cudaSuccess)
		result = put(gpu, gpu->setup, (CUdeviceptr)place, TRIAL);
	if (result == cudaSuccess)
		result = await(gpu, gpu->setup, (CUdeviceptr)place, TRIAL);
	if (result == cudaErrorNotSupported || result == cudaErrorNotPermitted) {
		(void)cudaGetLastError();
		return refuse(gpu, "its driver lets no stream write and await words", error);
	}
	if (result == cudaSuccess)
		result = await_end(gpu->setup);
	*ended = result != cudaErrorNotReady;
	if (result == cudaErrorNotReady ||
	    (result == cudaSuccess && *(const volatile uint32_t *)word != TRIAL))
		return refuse(gpu, "a stream wrote a word that never came", error);
	return ddp_card_error(gpu->who, result, error, "trying a stream that awaits a word");
}

int ddp_shard_gpu_try_words(struct ddp_shard_gpu *gpu, struct ddp_error *error)
{
	uint32_t *word = NULL;
	bool ended = true;
	int status;

	if (!ddp_shard_driver_has_words(&gpu->driver))
		return refuse(gpu, "its driver has no streams that await words", error);
	status = ddp_card_error(gpu->who,
				cudaHostAlloc((void **)&word, TRIAL_BYTES,
					      cudaHostAllocPortable | cudaHostAllocMapped),
				error, "pinning a page of the host");
	if (status)
		return status;
	*word = 0;
	status = try_word(gpu, word, &ended, error);
	if (ended)
		(void)cudaFreeHost(word);
	return status;
}

/* --- The page ----------------------------------------------------------------------------- */

int ddp_shard_gpu_know(struct ddp_shard_gpu *gpu, void *page, size_t bytes, struct ddp_error *error)
{
	int was, status;
	void *place = NULL;

	if (gpu->page)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "shared GPU %d: it has its page of words", gpu->index);
	was = ddp_shard_gpu_enter(gpu);
	status = ddp_card_error(
		gpu->who,
		cudaHostRegister(page, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
		error, "pinning the %zu bytes of the host that its ranks share", bytes);
	if (!status) {
		status = ddp_card_error(gpu->who, cudaHostGetDevicePointer(&place, page, 0), error,
					"mapping the words that its ranks share");
		if (status)
			(void)cudaHostUnregister(page);
	}
	if (!status) {
		gpu->page = page;
		gpu->page_bytes = bytes;
		gpu->words = (CUdeviceptr)place;
	}
	ddp_shard_gpu_leave(gpu, was);
	return status;
}

/* Where the GPU has [word]: 0 for what is none. */
static CUdeviceptr place_of(const struct ddp_shard_gpu *gpu, const void *word)
{
	uintptr_t offset = (uintptr_t)word - (uintptr_t)gpu->page;

	if (!gpu->page || (uintptr_t)word < (uintptr_t)gpu->page || offset % sizeof(uint32_t) ||
	    offset >= gpu->page_bytes)
		return 0;
	return gpu->words + offset;
}

/* On [stream], by [call]: await() or put(). [doing] is its word in messages. */
static int enqueue(struct ddp_shard_gpu *gpu, void *stream, const void *word, uint32_t value,
		   cudaError_t (*call)(const struct ddp_shard_gpu *gpu, cudaStream_t stream,
				       CUdeviceptr word, uint32_t value),
		   const char *doing, struct ddp_error *error)
{
	CUdeviceptr place = place_of(gpu, word);
	int status, was;

	if (!place)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "shared GPU %d: a word that is not in the page it knows",
				     gpu->index);
	was = ddp_shard_gpu_enter(gpu);
	status =
		ddp_card_error(gpu->who, call(gpu, ddp_shard_gpu_stream(gpu, stream), place, value),
			       error, "making a stream %s a word", doing);
	ddp_shard_gpu_leave(gpu, was);
	return status;
}

int ddp_shard_gpu_wait(struct ddp_shard_gpu *gpu, void *stream, const void *word, uint32_t value,
		       struct ddp_error *error)
{
	return enqueue(gpu, stream, word, value, await, "await", error);
}

int ddp_shard_gpu_write(struct ddp_shard_gpu *gpu, void *stream, void *word, uint32_t value,
			struct ddp_error *error)
{
	return enqueue(gpu, stream, word, value, put, "write", error);
}
