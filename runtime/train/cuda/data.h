/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h - a data set that lies on the device
 *
 * All its images, as bytes, as set.h has them: 47 MB for MNIST, 154 MB for CIFAR-10. They are brought when a
 * batch is asked for first, which takes milliseconds; a drawn set is drawn then. Labels stay on the host
 * (batch_labels()); the ring (ring.h) takes them along.
 */
#ifndef TRAIN_CUDA_DATA_H
#define TRAIN_CUDA_DATA_H

#include "data/batch.h"
#include "device.h"

struct data;

/*
 * Reserve memory for all samples of [set]. device and set must outlive it.
 * Returns 0, DDP_ERR_ARGUMENT for more samples than an index has room for, or device_alloc()'s error:
 * how much the images take, and what to lower.
 */
int data_open(struct data **data, struct device *device, struct set *set, struct ddp_error *error);

/* The memory on the device goes with the device. NULL is legal. */
void data_close(struct data *data);

/* All images, N, C, H, W: for kernel_gather(). Constant. */
const uint8_t *data_pixels(const struct data *data);

/*
 * See to it that the images of [batch] are there for what is enqueued on COMPUTE from here on. The first time it
 * waits for COMPUTE. Images are brought from sample [first] on, round to it: ranks that draw them together begin
 * at different ones.
 * Returns 0, DDP_ERR_ARGUMENT for an index beyond the set, or the device's error.
 */
int data_bring(struct data *data, uint64_t first, const struct batch *batch,
	       struct ddp_error *error);

#endif /* TRAIN_CUDA_DATA_H */
