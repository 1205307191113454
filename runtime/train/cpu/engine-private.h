/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine-private.h - internals of the CPU engine, for its files and tests
 *
 * The directory cpu/ trains on CPUs. It calls ddp.h, base/, net/, data/, optim/ and a library for
 * convolutions and matrix products (math.h). Start reading in engine.c (open, step), then pass.c
 * (operations). kernels.h has the engine's own kernels.
 */
#ifndef TRAIN_ENGINE_PRIVATE_H
#define TRAIN_ENGINE_PRIVATE_H

#include "base/text.h"
#include "engine.h"
#include "kernels.h"
#include "math.h"
#include "net/dropout.h"
#include "net/program.h"

/* State that the engine keeps for each operation of the program. */
struct unit {
	struct math_layer *math;
	struct kernel_list *list;
	struct kernel_window window;
	struct dropout dropout;
	float *mean, *inverse; /* NORM: mean and 1/deviation of the batch */
	double rows;	       /* NORM: number of rows behind [mean] and [inverse] */
};

/* Instruction sets that determine the choice of algorithms. CHOOSE_AVX2: there is no AVX-512. */
enum choose_level { CHOOSE_AVX2, CHOOSE_AVX512, CHOOSE_AMX };

struct engine {
	struct engine_setup setup;
	const struct math *math;
	const struct kernels *kernels;
	struct program *program;
	struct unit *units; /* indexed by operation */
	enum program_mode mode;

	char *memory;
	size_t bytes;
	size_t piece;	/* number of test images per forward pass of an evaluation */
	float *scratch; /* four floats for each channel of the widest layer */
	size_t channels;
	int threads;
	size_t part; /* index of the virtual rank that is running */

	bool stale;	/* whether the layers must reload the model's values */
	bool sync_norm; /* whether SyncBatchNorm is used by several ranks */
	double seconds[ENGINE_PHASES];
	enum choose_level level;
	char describe[256];
};

/* Creates an engine that uses the library [math], as engine_cpu.open() does. Collective. */
int engine_create(struct engine **engine, const struct engine_setup *setup, const struct math *math,
		  struct ddp_error *error);

/* Return the address of value [index], or of memory area [area], for engine->mode. */
void *engine_value(const struct engine *engine, int index);
void *engine_area(const struct engine *engine, int area);

/* Copies the last error of the ddp handle to [error]. Returns [status]. */
int engine_fail(const struct engine *engine, int status, struct ddp_error *error);

/* The level for [library], which is the text of math->describe(). */
enum choose_level choose_level(const char *library);

/* Sets engine->level to the lowest level of any rank. Collective. */
int engine_choose_level(struct engine *engine, struct ddp_error *error);

/*
 * Whether the gradients of a convolution before a max-pool are computed from a list of its nonzero
 * output gradients. Otherwise dense passes compute them from all output gradients. The results are
 * equal except for rounding. Dense passes are faster only in bf16 with AMX: measured with mnist in
 * f32 and bf16, with AVX2, AVX-512, AVX512_BF16 and AMX.
 */
bool choose_lists(enum ddp_type type, enum choose_level level);

/* Number of the fastest algorithm for [pass] of [layer], a convolution with [options]. */
int choose_algorithm(const struct math *math, const struct math_layer *layer,
		     const struct math_options *options, enum math_pass pass,
		     enum choose_level level);

/* Chooses the algorithms for the passes of [layer], which computes [op]. */
void engine_choose(const struct engine *engine, const struct program_op *op,
		   struct math_layer *layer);

/* Returns the description of the convolution at [node] that the list kernels need. */
struct kernel_window engine_window(const struct graph_node *node);

/*
 * Returns the CPU engine's options for program_create(). If [lists] is true, every layer that
 * supports a list of nonzero gradients uses one.
 */
struct program_options engine_program_options(enum ddp_type type, bool dropout, bool lists);

struct math_options engine_math_options(const struct engine *engine, const struct program_op *op);

/* Computes this rank's number of threads from OMP_NUM_THREADS or its CPUs. Collective. */
int engine_threads(struct ddp *ddp, int *threads, struct ddp_error *error);

/*
 * Runs the forward pass of all operations over [count] images. [batch] has the seed and the samples
 * for dropout, or is NULL for an evaluation.
 */
int engine_forward(struct engine *engine, const struct batch *batch, size_t count,
		   struct ddp_error *error);

/*
 * Runs the backward pass from the gradient of the last value. Reports each parameter's gradient to
 * libddp as soon as that gradient is complete.
 */
int engine_backward(struct engine *engine, size_t count, struct ddp_error *error);

#endif /* TRAIN_ENGINE_PRIVATE_H */
