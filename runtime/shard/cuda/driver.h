/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.h - the functions of CUDA's driver that its runtime has no like of
 *
 * They are asked for by name when a GPU is opened: libcuda.so.1 is not linked, so that a node without a
 * driver can load the module and say so.
 */
#ifndef DDP_SHARD_CUDA_DRIVER_H
#define DDP_SHARD_CUDA_DRIVER_H

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC diagnostic pop

#include <stdbool.h>
#include <stddef.h>

/*
 * As cuda.h has them. Those of streams are of CUDA 11.7: before, an option of the kernel module switched
 * them on, and it was off.
 */
struct ddp_shard_driver {
	CUresult (*device)(CUdevice *device, int ordinal);
	CUresult (*attribute)(int *value, CUdevice_attribute attribute, CUdevice device);
	CUresult (*wait)(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags);
	CUresult (*write)(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags);

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

/*
 * Fill in [driver]; what the driver lacks is NULL.
 * Returns the name of the first such function, NULL: it has all.
 */
const char *ddp_shard_driver_load(struct ddp_shard_driver *driver);

/* Whether [driver] has all that wait and write words; or all that is needed of memory. */
bool ddp_shard_driver_has_words(const struct ddp_shard_driver *driver);
bool ddp_shard_driver_has_memory(const struct ddp_shard_driver *driver);

#endif /* DDP_SHARD_CUDA_DRIVER_H */
