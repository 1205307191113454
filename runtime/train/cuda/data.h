/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h - data set on the device, and tables with the samples of announced steps
 *
 * All images are on the device as bytes, as in set.h: 47 MB for MNIST, 154 MB for CIFAR-10. They
 * are copied on first use, which takes milliseconds. A synthetic set is drawn at that time.
 *
 * The device has a table of the announced steps, normally the steps of an epoch. So nothing is
 * copied for a single step. A step that was not announced gets a separate table. Sequence of calls:
 *
 *   data_announce(data, batch, each, rates, 0, error) after the device has read the last table
 *   data_is_next(data, batch, global, rate) whether this step is the next in the table
 *   data_send(data, ..., error) unless data->sent: copy the table
 *   data_gather(data, ...) enqueue the kernel that starts the step
 *   data_advance(data) advance on the host
 */
#ifndef TRAIN_CUDA_DATA_H
#define TRAIN_CUDA_DATA_H

#include "cuda-kernels.h"
#include "data/batch.h"
#include "device.h"
#include "optim/optim.h"

struct data_setup {
	struct device *device;
	struct set *set;
	const struct net *net;
	const struct optim *optim; /* NULL: for evaluation */
	size_t batch;		   /* samples per step at most */
	size_t samples;		   /* samples per table at most */
	uint64_t first; /* sample to copy first; ranks that draw a set start at different samples */
	int ranks;
};

/* The batch under way. The pointers do not change, so that captured graphs can use them. */
struct data_block {
	const struct kernel_order *order;
	uint64_t *orders;
	int32_t *labels;
};

struct data {
	struct data_setup setup;
	struct kernel_images images;
	size_t bytes; /* bytes of an image */
	bool is_copied;

	struct kernel_step *step; /* on the device */
	struct data_block block;

	/* The table of steps in pinned host memory, and on the device. */
	uint8_t *host, *table;
	struct data_layout {
		size_t entries, corrections, places, indices, bytes;
	} layout;
	struct kernel_next all;	    /* common to all steps: seed, epoch, augment */
	size_t count, next, sample; /* number of steps; next step; first sample of the next step */
	bool sent;
};

/*
 * Allocates [data] for [setup], whose pointers must outlive [data]. Free [data] with free(). The
 * device memory is freed with the device. Returns 0, DDP_ERR_ARGUMENT if the set has more samples
 * than an index can have, or device_alloc()'s error with the size of the images and a remedy.
 */
int data_open(struct data **data, const struct data_setup *setup, struct ddp_error *error);

/*
 * Writes a table of steps over [batch], with [each] samples of this rank per step. [rates] has a
 * learning rate for each step. [global]: samples of all ranks per step; 0: all ranks have as many
 * samples as this rank. Steps beyond the capacity of the table are ignored. The first call waits
 * for COMPUTE. Returns 0, DDP_ERR_ARGUMENT for an index that is not in the set, or the device's
 * error.
 */
int data_announce(struct data *data, const struct batch *batch, size_t each, const double *rates,
		  size_t global, struct ddp_error *error);

bool data_is_next(const struct data *data, const struct batch *batch, size_t global, double rate);

/*
 * Enqueues a copy of the table to the device on COMPUTE, from the next step on, which is step
 * [sequence]. [updates]: number of optimizer steps that the device has done, or up to KERNEL_SLOTS
 * fewer. [state]: new state for the next step; NULL: unchanged.
 */
int data_send(struct data *data, uint64_t sequence, uint64_t updates,
	      const struct kernel_state *state, struct ddp_error *error);

/* Enqueues kernel_gather() on COMPUTE, which writes the images of the next step to [x]. */
void data_gather(const struct data *data, const struct kernel_result *results, size_t batch,
		 void *x, enum ddp_type type);

void data_advance(struct data *data);

#endif /* TRAIN_CUDA_DATA_H */
