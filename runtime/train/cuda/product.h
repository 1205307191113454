/* SPDX-License-Identifier: Apache-2.0 */
/*
 * product.h - one product of matrices by cublasLt, described once and run many times
 *
 * cublasLt counts columns first: to it, a matrix of ours is its transpose, and y = x W' is y' = W x'.
 * What is said here is in its terms: D (rows x columns, of [out]) = A B, where A and B are stored as
 * they are, or transposed, in [type].
 */
#ifndef TRAIN_CUDA_PRODUCT_H
#define TRAIN_CUDA_PRODUCT_H

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cublasLt.h>
#pragma GCC diagnostic pop

#include <stdbool.h>
#include <stddef.h>

#include "ddp.h"

struct product_form {
	size_t rows, columns, inner;
	bool turn_a, turn_b; /* stored inner x rows; stored columns x inner */
	bool bias, relu;     /* of D's rows, in its type */
	enum ddp_type type, out;
	bool tf32;
};

/* All zeros: none. */
struct product {
	cublasLtMatmulDesc_t description;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algorithm;
	size_t workspace;
};

/* Describe it, and take cublasLt's first suggestion. What fails is to be freed too. */
cublasStatus_t product_make(struct product *product, const struct product_form *form,
			    cublasLtHandle_t handle);
void product_free(struct product *product);

cublasStatus_t product_run(const struct product *product, cublasLtHandle_t handle, void *stream,
			   const void *a, const void *b, const void *bias, void *d,
			   void *workspace);

#endif /* TRAIN_CUDA_PRODUCT_H */
