/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library.h - cuDNN's and cublasLt's handles of a device
 *
 * One pair for each device of the process, shared by all its convolutions and dense layers: a handle
 * costs memory on the device and tens of milliseconds. To be used by one thread.
 */
#ifndef TRAIN_CUDA_LIBRARY_H
#define TRAIN_CUDA_LIBRARY_H

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cublasLt.h>
#include <cudnn_graph.h>
#pragma GCC diagnostic pop

#include "device.h"

struct library {
	struct device *device;
	cudnnHandle_t cudnn;
	cublasLtHandle_t cublas;
	char *choices; /* plans that were chosen since it was opened, as text; NULL: none */
	int users;
	struct library *next;
};

/* The calling thread's GPU is that of [device]. Returns 0 or DDP_ERR_x with the library and the GPU. */
int library_open(struct library **library, struct device *device, struct ddp_error *error);

/* The last one before device_close(). NULL is legal. */
void library_close(struct library *library);

/*
 * Returns the DDP_ERR_x of [status], with "GPU 0 (NVIDIA H200): WHAT: cuDNN 9.19.0: ..." and what
 * cuDNN said last about it; likewise of cublasLt.
 */
int library_cudnn_failed(const struct library *library, cudnnStatus_t status, const char *what,
			 struct ddp_error *error);
int library_cublas_failed(const struct library *library, cublasStatus_t status, const char *what,
			  struct ddp_error *error);

#endif /* TRAIN_CUDA_LIBRARY_H */
