/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dense.h - fully connected layers on a GPU
 *
 * dense-cublaslt.c: forward with bias and ReLU in cublasLt's epilogue; gradients without. Tests link
 * tests/emulated/dense-host.c in its place. x: batch x in, weights: out x in, y: batch x out, all
 * row by row in [type]; bias and gradients of weights f32.
 */
#ifndef TRAIN_CUDA_DENSE_H
#define TRAIN_CUDA_DENSE_H

#include "ddp.h"
#include "device.h"

struct dense;

struct dense_options {
	const char *name;
	size_t in, out;
	bool bias, relu, first;
	enum ddp_type type;
	bool tf32, deterministic;
	size_t batch, test_batch; /* 0: none */
};

/* As conv.h's. Algorithms are cublasLt's first suggestion: nothing is timed. */
int dense_create(struct dense **dense, struct device *device, const struct dense_options *options,
		 struct ddp_error *error);
void dense_destroy(struct dense *dense);
size_t dense_scratch(const struct dense *dense);
int dense_forward(struct dense *dense, enum device_stream stream, bool test, const void *x,
		  const void *weights, const float *bias, void *y, void *scratch,
		  struct ddp_error *error);
int dense_back_data(struct dense *dense, enum device_stream stream, const void *dy,
		    const void *weights, void *dx, void *scratch, struct ddp_error *error);
int dense_back_weights(struct dense *dense, enum device_stream stream, const void *x,
		       const void *dy, float *weights, void *scratch, struct ddp_error *error);

#endif /* TRAIN_CUDA_DENSE_H */
