/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine-cuda.h - the GPU engine's class, exported by ddp_cuda.so
 */
#ifndef TRAIN_CUDA_ENGINE_CUDA_H
#define TRAIN_CUDA_ENGINE_CUDA_H

#include "engine.h"

extern const struct engine_class engine_cuda;

/* Returns the number of nodes in the graph of a step, or 0 if no step was captured. */
size_t cuda_nodes(const struct engine *engine);

#endif /* TRAIN_CUDA_ENGINE_CUDA_H */
