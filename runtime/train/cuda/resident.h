/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resident.h - a data set that lies on the device
 *
 * There is room for all images from the beginning, as bytes, as set.h has them: 47 MB for MNIST, 154 MB
 * for CIFAR-10. An image goes there when it is asked for first, whether it is read from a file or drawn
 * then: so the first step waits for its own samples alone, and when each sample was asked for once,
 * nothing is copied any more. To bring files whole at the beginning would make the first step later and no
 * step quicker: packing a batch costs the host some 10 us, which the device's steps cover.
 *
 * Labels stay on the host (batch_labels()); the ring (ring.h) takes them along.
 */
#ifndef TRAIN_CUDA_RESIDENT_H
#define TRAIN_CUDA_RESIDENT_H

#include "data/set.h"
#include "device.h"

struct resident;

/* Buffers in which images are packed for the way; each has a mark of the device's for itself. */
enum { RESIDENT_MARKS = 4, RESIDENT_PIECE = 1 << 20 };

/*
 * Reserve memory for all samples of [set]; [mark] is the first of RESIDENT_MARKS marks of
 * device_mark() that nobody else uses. Waits. device and set must outlive it.
 * Returns 0, DDP_ERR_ARGUMENT for more samples than an index has room for, or device_alloc()'s error:
 * how much the images take, and what to lower.
 */
int resident_open(struct resident **resident, struct device *device, struct set *set, int mark,
		  struct ddp_error *error);

/* When nothing is under way on COPY and COMPUTE. NULL is legal. */
void resident_close(struct resident *resident);

/* All images, N, C, H, W: for kernel_gather(). What was never asked for is black. Constant. */
const uint8_t *resident_pixels(const struct resident *resident);

/*
 * See to it that samples [indices] are there for what is enqueued on COMPUTE from here on: what is
 * missing is copied on COPY, and COMPUTE is made to wait for COPY then, else it is not touched. Waits
 * only where all buffers are on their way. Not while a graph is captured.
 * Returns 0, DDP_ERR_ARGUMENT for an index beyond the set, or the device's error, after which the
 * device is of no use.
 */
int resident_bring(struct resident *resident, const uint64_t *indices, size_t count,
		   struct ddp_error *error);

/* How many samples are there, or on their way. */
uint64_t resident_count(const struct resident *resident);

#endif /* TRAIN_CUDA_RESIDENT_H */
