/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - what the files of the engine of shared GPUs share
 */
#ifndef DDP_SHARD_CUDA_GPU_H
#define DDP_SHARD_CUDA_GPU_H

#include "driver.h"
#include "shard/engine.h"
#include "wide/card-cuda.h"

enum { DDP_SHARD_GPU_TEXT = 256 };

/* How a block of memory is given back. */
enum ddp_shard_kind {
	DDP_SHARD_MAPPED,   /* a mapping, of memory that any process may have made */
	DDP_SHARD_OWN,	    /* cudaMalloc */
	DDP_SHARD_IMPORTED, /* cudaIpcOpenMemHandle */
};

struct ddp_shard_block {
	struct ddp_shard_block *next;
	void *base;
	size_t bytes; /* whole pages of the GPU */
	enum ddp_shard_kind kind;
	bool counted; /* this rank's */
};

struct ddp_shard_gpu {
	const struct ddp_log *log;
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
	struct ddp_shard_driver driver;

	bool descriptors;		/* memory is exported as a descriptor, else by a handle */
	char why[DDP_SHARD_GPU_TEXT];	/* why not */
	CUmemAllocationProp properties; /* of such memory */
	size_t granularity;
	struct ddp_shard_block *blocks;

	char *page; /* what know() was told; and as the GPU has it */
	CUdeviceptr words;
	size_t page_bytes;
};

/* The driver's results have the numbers of the runtime's. */
static inline cudaError_t ddp_shard_gpu_result(CUresult result)
{
	return (cudaError_t)result;
}

/* --- open.c ------------------------------------------------------------------------------ */

int ddp_shard_gpu_open(struct ddp_shard_gpu **gpu, int index, double share,
		       const struct ddp_log *log, struct ddp_error *error);
void ddp_shard_gpu_describe(struct ddp_shard_gpu *gpu, char *text, size_t size);

/*
 * Make the GPU current for this thread.
 * Returns what was, for ddp_shard_gpu_leave().
 */
int ddp_shard_gpu_enter(const struct ddp_shard_gpu *gpu);
void ddp_shard_gpu_leave(const struct ddp_shard_gpu *gpu, int was);

/* --- close.c ----------------------------------------------------------------------------- */

void ddp_shard_gpu_close(struct ddp_shard_gpu *gpu);

/* --- memory.c ---------------------------------------------------------------------------- */

/* Choose how memory is exported, by doing it once. */
void ddp_shard_gpu_try_descriptors(struct ddp_shard_gpu *gpu);

int ddp_shard_gpu_alloc(struct ddp_shard_gpu *gpu, size_t bytes, struct ddp_shard_memory *memory,
			struct ddp_error *error);
void ddp_shard_gpu_disclose(struct ddp_shard_gpu *gpu, struct ddp_shard_memory *memory);
int ddp_shard_gpu_import(struct ddp_shard_gpu *gpu, const struct ddp_shard_memory *theirs,
			 void **memory, struct ddp_error *error);
void ddp_shard_gpu_release(struct ddp_shard_gpu *gpu, void *memory);

/* --- words.c ----------------------------------------------------------------------------- */

/* Whether streams can write and await words here, by doing it once. */
int ddp_shard_gpu_try_words(struct ddp_shard_gpu *gpu, struct ddp_error *error);

int ddp_shard_gpu_know(struct ddp_shard_gpu *gpu, void *page, size_t bytes,
		       struct ddp_error *error);
int ddp_shard_gpu_wait(struct ddp_shard_gpu *gpu, void *stream, const void *word, uint32_t value,
		       struct ddp_error *error);
int ddp_shard_gpu_write(struct ddp_shard_gpu *gpu, void *stream, void *word, uint32_t value,
			struct ddp_error *error);

/* --- stream.c ---------------------------------------------------------------------------- */

int ddp_shard_gpu_sum(struct ddp_shard_gpu *gpu, void *stream, void *const *to, int targets,
		      const void *const *from, int sources, size_t count, enum ddp_type type,
		      enum ddp_op op, struct ddp_error *error);
int ddp_shard_gpu_copy(struct ddp_shard_gpu *gpu, void *stream, void *to, const void *from,
		       size_t bytes, struct ddp_error *error);
int ddp_shard_gpu_zero(struct ddp_shard_gpu *gpu, void *stream, void *memory, size_t bytes,
		       struct ddp_error *error);
int ddp_shard_gpu_idle(struct ddp_shard_gpu *gpu, void *stream, struct ddp_error *error);
bool ddp_shard_gpu_captured(struct ddp_shard_gpu *gpu, void *stream);
void *ddp_shard_gpu_own(struct ddp_shard_gpu *gpu);

/* As idle(), by CUDA's result. Breaks no capture of this or another thread. */
cudaError_t ddp_shard_gpu_query(cudaStream_t stream);

static inline cudaStream_t ddp_shard_gpu_stream(const struct ddp_shard_gpu *gpu, void *stream)
{
	return stream ? (cudaStream_t)stream : gpu->stream;
}

#endif /* DDP_SHARD_CUDA_GPU_H */
