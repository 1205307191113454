/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h - a data set on the device, and which of its samples the steps to come are made of
 *
 * All images lie there, as bytes, as set.h has them: 47 MB for MNIST, 154 MB for CIFAR-10. They are brought
 * when something is asked of them first, which takes milliseconds; a drawn set is drawn then.
 *
 * Of steps that are known the device has a table, an epoch's at once: nothing is copied for a step. A
 * step that comes otherwise, or that nobody foretold, is a table for itself.
 *
 *	data_foretell(data, batch, each, rates, 0, error)	once the device has read what was sent: some steps
 *	data_is_next(data, batch, global, rate)			whether this step is what comes next
 *	data_send(data, ..., error)				unless data->sent: what comes next goes to the device
 *	data_gather(data, ...)					which makes it the step under way
 *	data_pass(data)						on the host, too
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
	size_t batch;		   /* samples of a step at most */
	size_t samples;		   /* that are foretold at most */
	uint64_t
		first; /* sample that is brought first: ranks that draw a set begin at different ones */
	int ranks;
};

/* The batch under way on the device: constant, for captured graphs. */
struct data_block {
	const struct kernel_order *order;
	uint64_t *orders;
	int32_t *labels;
};

struct data {
	struct data_setup setup;
	struct kernel_images images;
	size_t bytes; /* of an image */
	bool there;

	struct kernel_step *step; /* on the device */
	struct data_block block;

	/* Steps that are known: on the host, pinned, and as they were sent. */
	uint8_t *host, *table;
	struct data_layout {
		size_t entries, corrections, places, indices, bytes;
	} layout;
	struct kernel_next all;	    /* of all of them: seed, epoch, augment */
	size_t count, next, sample; /* steps; the next one, and its first sample */
	bool sent;
};

/*
 * Memory for [setup], whose pointers must outlive it; to be freed, while what lies on the device goes with that.
 * Returns 0, DDP_ERR_ARGUMENT for more samples than an index has room for, or device_alloc()'s error:
 * how much the images take, and what to lower.
 */
int data_open(struct data **data, const struct data_setup *setup, struct ddp_error *error);

/*
 * Steps over [batch], [each] samples of this rank in a step, [rates] of the steps; all ranks have as many, but
 * [global], unless 0, is how many all have in each step. What there is no room for is forgotten. The first time of all
 * it waits for COMPUTE.
 * Returns 0, DDP_ERR_ARGUMENT for an index beyond the set, or the device's error.
 */
int data_foretell(struct data *data, const struct batch *batch, size_t each, const double *rates,
		  size_t global, struct ddp_error *error);

bool data_is_next(const struct data *data, const struct batch *batch, size_t global, double rate);

/*
 * Enqueue, on COMPUTE, the copy of what is known from the next step on: step [sequence]. [updates]: steps of the
 * optimizer that the device has done at least, and at most KERNEL_SLOTS less than it may have. [state], unless NULL, is the
 * next step's.
 */
int data_send(struct data *data, uint64_t sequence, uint64_t updates,
	      const struct kernel_state *state, struct ddp_error *error);

/* Enqueue on COMPUTE: the next step's images in [x]; [results]: of kernel_gather(). */
void data_gather(const struct data *data, const struct kernel_result *results, size_t batch,
		 void *x, enum ddp_type type);

/* The next step is the one behind it. */
void data_pass(struct data *data);

#endif /* TRAIN_CUDA_DATA_H */
