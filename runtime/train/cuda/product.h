/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.h - one product of matrices by cublasLt, described once and run many times
 *
 * cublasLt counts columns first: to it, a matrix of ours is its transpose, and y = x W' is y' = W x'.
 */
#ifndef TRAIN_CUDA_PRODUCT_H
#define TRAIN_CUDA_PRODUCT_H

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cublasLt.h>
#pragma GCC diagnostic pop

#include "layer.h"

/* All zeros: none. */
struct product {
	cublasLtMatmulDesc_t description;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algorithm;
	size_t workspace;
	bool sums; /* the bias's gradient comes with that of the weights */
};

/* A pass of a dense layer, by cublasLt's first suggestion. What fails is to be freed too. */
cublasStatus_t product_make(struct product *product, const struct layer_options *options,
			    enum layer_pass pass, cublasLtHandle_t handle);
void product_free(struct product *product);

/*
 * Forwards a is the weights, b is x; backwards the weights and dy, or x and dy. [bias] is NULL where there is none; with
 * [sums] it is where its gradient goes.
 */
cublasStatus_t product_run(const struct product *product, cublasLtHandle_t handle, void *stream,
			   const void *a, const void *b, const void *bias, void *d,
			   void *workspace);

#endif /* TRAIN_CUDA_PRODUCT_H */
