/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard-gpu.c - the engine of shared GPUs (ddp_shard.so): a GPU, its streams, and words that they write and await
 *
 * Words are of host memory, and no kernel has to do with them.
 * Writing has the driver's memory barrier before it (flags 0): what the stream wrote before, be it into memory of
 * another process, is there for all when the word is. Awaiting is (int32_t)(*word - value) >= 0, which is the
 * default, as in shard-protocol.h. It needs no flush of remote writes: those are another device's, and what is awaited
 * here was written by this GPU, whose caches its own later kernels share.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bounded.h"
#include "shard-gpu.h"
#include "sum.h"

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

/* --- Words ---------------------------------------------------------------------------- */

#define REMEDY                                                                                    \
	"ranks share a GPU by a driver for CUDA 11.7 or newer, outside of virtual machines that " \
	"forbid it; or run one rank on each GPU (srun --gpus-per-task=1)"

/* How long a trial may take. */
#define TRIAL_SECONDS 10.0
enum { TRIAL = 7, TRIAL_BYTES = 4096 };

_Static_assert(CU_STREAM_WAIT_VALUE_GEQ == 0 && CU_STREAM_WRITE_VALUE_DEFAULT == 0,
	       "the defaults are what is meant");

/* Of CUDA 11.7: before, an option of the kernel module switched them on, and it was off. */
static const struct ddp_card_function functions[] = {{"cuStreamWaitValue32", 11070},
						     {"cuStreamWriteValue32", 11070}};

static cudaError_t await(const struct ddp_shard_gpu *gpu, cudaStream_t stream, CUdeviceptr word,
			 uint32_t value)
{
	return ddp_shard_gpu_result(gpu->words.wait(stream, word, value, CU_STREAM_WAIT_VALUE_GEQ));
}

static cudaError_t put(const struct ddp_shard_gpu *gpu, cudaStream_t stream, CUdeviceptr word,
		       uint32_t value)
{
	return ddp_shard_gpu_result(
		gpu->words.write(stream, word, value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

/* --- A trial -------------------------------------------------------------------------- */

static int refuse_gpu(const struct ddp_shard_gpu *gpu, const char *what, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED, "shared GPU %d (%s): %s; " REMEDY,
			     gpu->index, gpu->name, what);
}

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
	cudaError_t result;
	void *place = NULL;

	result = cudaHostGetDevicePointer(&place, word, 0);
	if (result == cudaSuccess)
		result = put(gpu, gpu->setup, (CUdeviceptr)place, TRIAL);
	if (result == cudaSuccess)
		result = await(gpu, gpu->setup, (CUdeviceptr)place, TRIAL);
	if (result == cudaErrorNotSupported || result == cudaErrorNotPermitted) {
		(void)cudaGetLastError();
		return refuse_gpu(gpu, "its driver lets no stream write and await words", error);
	}
	if (result == cudaSuccess)
		result = await_end(gpu->setup);
	*ended = result != cudaErrorNotReady;
	if (result == cudaErrorNotReady ||
	    (result == cudaSuccess && *(const volatile uint32_t *)word != TRIAL))
		return refuse_gpu(gpu, "a stream wrote a word that never came", error);
	return ddp_card_error(gpu->who, result, error, "trying a stream that awaits a word");
}

static int try_words(struct ddp_shard_gpu *gpu, struct ddp_error *error)
{
	uint32_t *word = NULL;
	bool ended = true;
	int status;

	if (!ddp_card_load(&gpu->words, functions, 2))
		return refuse_gpu(gpu, "its driver has no streams that await words", error);
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

/* --- The page ------------------------------------------------------------------------- */

static int know_page(struct ddp_shard_gpu *gpu, void *page, size_t bytes, struct ddp_error *error)
{
	int was, status;
	void *place = NULL;

	if (gpu->page)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "shared GPU %d: it has its page of words", gpu->index);
	was = ddp_card_enter(gpu->index);
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
		gpu->place = (CUdeviceptr)place;
	}
	ddp_card_leave(gpu->index, was);
	return status;
}

/* Where the GPU has [word]: 0 for what is none. */
static CUdeviceptr place_of(const struct ddp_shard_gpu *gpu, const void *word)
{
	uintptr_t offset = (uintptr_t)word - (uintptr_t)gpu->page;

	if (!gpu->page || (uintptr_t)word < (uintptr_t)gpu->page || offset % sizeof(uint32_t) ||
	    offset >= gpu->page_bytes)
		return 0;
	return gpu->place + offset;
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
	was = ddp_card_enter(gpu->index);
	status = ddp_card_error(gpu->who, call(gpu, stream_of(gpu, stream), place, value), error,
				"making a stream %s a word", doing);
	ddp_card_leave(gpu->index, was);
	return status;
}

static int wait_word(struct ddp_shard_gpu *gpu, void *stream, const void *word, uint32_t value,
		     struct ddp_error *error)
{
	return enqueue(gpu, stream, word, value, await, "await", error);
}

static int write_word(struct ddp_shard_gpu *gpu, void *stream, void *word, uint32_t value,
		      struct ddp_error *error)
{
	return enqueue(gpu, stream, word, value, put, "write", error);
}

/* --- Streams -------------------------------------------------------------------------- */

static int refuse(const struct ddp_shard_gpu *gpu, const char *what, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_ARGUMENT, "shared GPU %d: %s", gpu->index, what);
}

static int sum(struct ddp_shard_gpu *gpu, void *stream, void *const *to, int targets,
	       const void *const *from, int sources, size_t count, enum ddp_type type,
	       enum ddp_op op, struct ddp_error *error)
{
	int status, was;

	if ((unsigned int)type >= DDP_TYPE_COUNT || (unsigned int)op >= DDP_OP_COUNT)
		return refuse(gpu, "a sum of an unknown type or operation", error);
	if (sources < 1 || sources > DDP_SHARD_SOURCES || targets < 1 ||
	    targets > DDP_SHARD_SOURCES)
		return refuse(gpu, "a sum of more ranks than can share a GPU", error);
	if (count == 0)
		return 0;
	was = ddp_card_enter(gpu->index);
	ddp_shard_kernel_sum(stream_of(gpu, stream), gpu->processors, to, targets, from, sources,
			     count, type, op);
	status = ddp_card_error(gpu->who, cudaGetLastError(), error,
				"adding %zu elements of %d ranks", count, sources);
	ddp_card_leave(gpu->index, was);
	return status;
}

static int copy(struct ddp_shard_gpu *gpu, void *stream, void *to, const void *from, size_t bytes,
		struct ddp_error *error)
{
	int status, was;

	if (bytes == 0)
		return 0;
	was = ddp_card_enter(gpu->index);
	status = ddp_card_error(gpu->who,
				cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
						stream_of(gpu, stream)),
				error, "copying %zu bytes", bytes);
	ddp_card_leave(gpu->index, was);
	return status;
}

static int zero(struct ddp_shard_gpu *gpu, void *stream, void *memory, size_t bytes,
		struct ddp_error *error)
{
	int status, was;

	if (bytes == 0)
		return 0;
	was = ddp_card_enter(gpu->index);
	status = ddp_card_error(gpu->who, cudaMemsetAsync(memory, 0, bytes, stream_of(gpu, stream)),
				error, "clearing %zu bytes", bytes);
	ddp_card_leave(gpu->index, was);
	return status;
}

static int is_idle(struct ddp_shard_gpu *gpu, void *stream, struct ddp_error *error)
{
	int was = ddp_card_enter(gpu->index), status;
	cudaError_t result = query(stream_of(gpu, stream));

	ddp_card_leave(gpu->index, was);
	if (result == cudaErrorNotReady)
		return 0;
	status = ddp_card_error(gpu->who, result, error, "waiting for a stream");
	return status ? status : 1;
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

static void give_back(struct ddp_shard_gpu *gpu)
{
	while (gpu->blocks)
		ddp_shard_gpu_release(gpu, gpu->blocks->base);
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
		give_back(gpu);
	ddp_card_leave(gpu->index, was);
	if (rested)
		free(gpu);
}

/* --- Opening it ----------------------------------------------------------------------- */

static int look(struct ddp_shard_gpu *gpu, struct ddp_error *error)
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

	status = look(gpu, error);
	if (!status)
		status = try_words(gpu, error);
	if (!status)
		ddp_shard_gpu_try_descriptors(gpu);
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
	new->log = log;
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

static void describe(struct ddp_shard_gpu *gpu, char *text, size_t size)
{
	char share[32] = "";

	if (gpu->share > 0 && gpu->share < 1)
		snprintf(share, sizeof(share), ", share %.2f", gpu->share);
	snprintf(text, size, "shared GPU %d: %s (%s)%s, memory by %s", gpu->index, gpu->name,
		 gpu->uuid, share, gpu->descriptors ? "descriptor" : "handle");
}

DDP_API const struct ddp_shard_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_SHARD_VERSION, sizeof(struct ddp_shard_engine), "shard",
		 "shard", PACKAGE_VERSION},
	.open = open_gpu,
	.alloc = ddp_shard_gpu_alloc,
	.import = ddp_shard_gpu_import,
	.release = ddp_shard_gpu_release,
	.know = know_page,
	.wait = wait_word,
	.write = write_word,
	.sum = sum,
	.copy = copy,
	.zero = zero,
	.idle = is_idle,
	.captured = is_captured,
	.stream = own_stream,
	.describe = describe,
	.close = close_gpu,
};
