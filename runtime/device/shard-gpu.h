/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard-gpu.h - what the files of the engine of shared GPUs share
 */
#ifndef DDP_DEVICE_SHARD_GPU_H
#define DDP_DEVICE_SHARD_GPU_H

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda.h>
#pragma GCC diagnostic pop

#include "card-cuda.h"
#include "shard-engine.h"

enum { DDP_SHARD_GPU_TEXT = 256 };

/* The driver's functions that the runtime has no like of, as cuda.h has them: of words, and of memory. */
struct ddp_shard_words {
	CUresult (*wait)(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags);
	CUresult (*write)(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags);
};

struct ddp_shard_functions {
	CUresult (*device)(CUdevice *device, int ordinal);
	CUresult (*attribute)(int *value, CUdevice_attribute attribute, CUdevice device);
	CUresult (*granularity)(size_t *bytes, const CUmemAllocationProp *properties,
				CUmemAllocationGranularity_flags option);
	CUresult (*create)(CUmemGenericAllocationHandle *handle, size_t bytes,
			   const CUmemAllocationProp *properties, unsigned long long flags);
	CUresult (*release)(CUmemGenericAllocationHandle handle);
	CUresult (*export)(void *shareable, CUmemGenericAllocationHandle handle,
			   CUmemAllocationHandleType type, unsigned long long flags);
	CUresult (*import)(CUmemGenericAllocationHandle *handle, void *shareable,
			   CUmemAllocationHandleType type);
	CUresult (*reserve)(CUdeviceptr *place, size_t bytes, size_t alignment, CUdeviceptr wish,
			    unsigned long long flags);
	CUresult (*unreserve)(CUdeviceptr place, size_t bytes);
	CUresult (*map)(CUdeviceptr place, size_t bytes, size_t offset,
			CUmemGenericAllocationHandle handle, unsigned long long flags);
	CUresult (*unmap)(CUdeviceptr place, size_t bytes);
	CUresult (*access)(CUdeviceptr place, size_t bytes, const CUmemAccessDesc *access,
			   size_t count);
};

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
	struct ddp_shard_words words;

	bool descriptors;	      /* memory is exported as a descriptor, else by a handle */
	char why[DDP_SHARD_GPU_TEXT]; /* why not */
	struct ddp_shard_functions driver; /* for descriptors */
	CUmemAllocationProp properties;	   /* of such memory */
	size_t granularity;
	struct ddp_shard_block *blocks;

	char *page; /* what know() was told; and as the GPU has it */
	CUdeviceptr place;
	size_t page_bytes;
};

/* The driver's results have the numbers of the runtime's. */
static inline cudaError_t ddp_shard_gpu_result(CUresult result)
{
	return (cudaError_t)result;
}

/* --- shard-memory.c ---------------------------------------------------------------------- */

/* Choose how memory is exported, by doing it once. */
void ddp_shard_gpu_try_descriptors(struct ddp_shard_gpu *gpu);

int ddp_shard_gpu_alloc(struct ddp_shard_gpu *gpu, size_t bytes, struct ddp_shard_memory *memory,
			struct ddp_error *error);
int ddp_shard_gpu_import(struct ddp_shard_gpu *gpu, const struct ddp_shard_memory *theirs,
			 void **memory, struct ddp_error *error);
void ddp_shard_gpu_release(struct ddp_shard_gpu *gpu, void *memory);

#endif /* DDP_DEVICE_SHARD_GPU_H */
