/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine-cuda.h - the engine of GPUs, as the module ddp_cuda.so has it
 */
#ifndef TRAIN_CUDA_ENGINE_CUDA_H
#define TRAIN_CUDA_ENGINE_CUDA_H

#include "engine.h"

extern const struct engine_class engine_cuda;

/* Nodes of the graph that is launched for a step; 0: there is none yet. */
size_t cuda_nodes(const struct engine *engine);

#endif /* TRAIN_CUDA_ENGINE_CUDA_H */
