/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device-private.h - what the files that call CUDA share
 */
#ifndef TRAIN_CUDA_DEVICE_PRIVATE_H
#define TRAIN_CUDA_DEVICE_PRIVATE_H

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda_runtime_api.h>
#pragma GCC diagnostic pop

#include "ledger.h"

struct device {
	struct device_info info;
	struct ledger ledger;
	const struct engine_mate *mates; /* of this rank, on this GPU */
	int mate_count;
	cudaStream_t streams[DEVICE_STREAMS];
	cudaStream_t setup;		     /* for what waits: never captured */
	cudaEvent_t ordered[DEVICE_STREAMS]; /* device_order()'s, by the earlier stream */
	cudaEvent_t marks[DEVICE_MARKS];     /* NULL: never set */
	bool capturing;
	double patience; /* seconds of a wait, 0: any */
};

/* Returns 0, or what CUDA's [result] means for people, in [error], after what was being done. */
int device_error(const struct device *device, cudaError_t result, struct ddp_error *error,
		 const char *format, ...) DDP_FORMAT(4, 5);

/* The same where no device is open: [info] has its index, and its name or "". */
int device_info_error(const struct device_info *info, cudaError_t result, struct ddp_error *error,
		      const char *what);

/* Wait for [stream] as device_wait() does; [what] is what fails there. */
int device_await(struct device *device, cudaStream_t stream, struct ddp_error *error,
		 const char *what);

/* Who else uses the GPU, as far as the driver tells: as ledger_tell_holders() has it. */
void device_holders(const struct device_info *info, const struct engine_mate *mates, int mate_count,
		    char text[LEDGER_HOLDERS]);

/* Whether [bytes] more for [what] are within the limit, else why not. */
int device_may(struct device *device, size_t bytes, const char *what, const char *remedy,
	       struct ddp_error *error);

/* Count memory that others allocated, and no longer. */
int device_count(struct device *device, void *memory, size_t bytes, struct ddp_error *error);
void device_uncount(struct device *device, void *memory);

#endif /* TRAIN_CUDA_DEVICE_PRIVATE_H */
