/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h - data set on the device, and the samples and numbers of each step
 *
 * All images are on the device as bytes, as in set.h: 47 MB for MNIST, 154 MB for CIFAR-10. They
 * are copied on first use, which takes milliseconds. A synthetic set is drawn at that time.
 *
 * Before each step, data_send() writes what the step needs to a slot in pinned host memory, and
 * enqueues a copy of the slot to the device on COMPUTE, where steps run. The device memory is the
 * same for all steps, so that captured graphs can read it, and a copy waits for the step before it.
 * There are KERNEL_SLOTS slots. Step n reuses the slot of step n - KERNEL_SLOTS. The engine has
 * read that step's result (see CUDA_LAG), so the copy from the slot has ended. Virtual ranks and
 * evaluations use one slot again and again, and wait for the device each time.
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
	size_t batch;		   /* maximum samples per step */
	uint64_t first; /* sample to copy first; ranks that draw a set start at different samples */
};

/* Numbers of a step. */
struct data_step {
	uint64_t sequence; /* number of the step */
	uint64_t updates;  /* minimum number of optimizer steps before this one */
	uint64_t unsure;   /* further steps under way, each of which loss scaling can skip */
	size_t global;	   /* samples of all ranks */
	double rate;
	bool stop;			  /* this rank wants to stop */
	const struct kernel_state *state; /* new state for this step; NULL: unchanged */
};

/* The batch under way. The pointers do not change, so that captured graphs can use them. */
struct data_block {
	const struct kernel_order *order;
	const uint64_t *orders;
	int32_t *labels;
};

struct data {
	struct data_setup setup;
	struct kernel_images images;
	size_t bytes; /* bytes of an image */
	bool is_copied;

	/*
	 * The device memory at [step] and each slot have the same layout: a struct kernel_step,
	 * then the orders and indices of the step's samples.
	 */
	struct kernel_step *step;
	char *slots;
	size_t slot_bytes;
	struct data_block block;
};

/*
 * Allocates [data] for [setup], whose pointers must stay valid as long as [data]. Free [data] with
 * free(). Its device memory is freed when the device is closed. Returns 0, or device_alloc()'s
 * error with the size of the images and a remedy.
 */
int data_open(struct data **data, const struct data_setup *setup, struct ddp_error *error);

/*
 * Enqueues a copy of the data for a step over [batch] to the device. The first call also copies the
 * data set. Returns 0 or the device's error.
 */
int data_send(struct data *data, const struct batch *batch, const struct data_step *step,
	      struct ddp_error *error);

/* Enqueues kernel_gather() on COMPUTE, which writes the images of the step to [x]. */
void data_gather(const struct data *data, size_t batch, void *x, enum ddp_type type);

#endif /* TRAIN_CUDA_DATA_H */
