/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine-private.h - what the CPU's engine is made of, for its files and tests
 */
#ifndef TRAIN_ENGINE_PRIVATE_H
#define TRAIN_ENGINE_PRIVATE_H

#include "base/text.h"
#include "engine.h"
#include "kernels.h"
#include "math.h"
#include "net/dropout.h"
#include "net/program.h"

/* What an operation has besides its row of the program. */
struct unit {
	struct math_layer *math;
	int choices[MATH_PASSES];
	struct kernel_list *list;
	struct kernel_window window; /* of the list */
	struct dropout dropout;
	float *mean, *inverse; /* NORM: of the batch */
	double rows;	       /* NORM: behind these */
};

struct engine {
	struct engine_setup setup;
	const struct math *math;
	const struct kernels *kernels;
	struct program *program;
	struct unit *units; /* of each operation */
	enum program_mode mode;
	bool back; /* on the way back: values that are computed again lie elsewhere */

	char *memory; /* of all areas */
	size_t bytes;
	size_t piece;	/* images of the test set that are evaluated at once */
	float *scratch; /* four values for each channel of the widest layer */
	size_t channels;
	int threads;
	size_t part; /* which of setup->parts is at work */

	bool stale;	/* the layers have not seen the model's values */
	bool sync_norm; /* and there are others */
	double seconds[ENGINE_PHASES];
	bool *lists, *dense; /* of each node: may have a list; goes without */
	char describe[256];
	struct ddp_text choices;
};

/* engine_cpu.open() with [math]. Collective. */
int engine_create(struct engine **engine, const struct engine_setup *setup, const struct math *math,
		  struct ddp_error *error);

/* What value [index] and its gradient are now. */
void *engine_value(const struct engine *engine, int index);
void *engine_gradient(const struct engine *engine, int index);
void *engine_area(const struct engine *engine, int area);

/* The last error of the handle, as one of this call. Returns [status]. */
int engine_fail(const struct engine *engine, int status, struct ddp_error *error);

/*
 * Algorithms: setup->choices, or for each layer and pass that has several what was fastest on rank
 * 0, now or in an earlier run. Fills choices. Collective.
 */
int engine_choose(struct engine *engine, struct ddp_error *error);

/*
 * Likewise between lists and dense passes, before there are layers: fills lists and dense.
 * Collective.
 */
int engine_choose_lists(struct engine *engine, struct ddp_error *error);

/* The convolution at [node] as the kernels of lists know it, and whether they can do it. */
struct kernel_window engine_window(const struct graph_node *node);

/* What the CPU's engine wants of its program, with all lists that are possible. */
struct program_options engine_program_options(enum ddp_type type, bool dropout, bool lists);

/* What the library is told of the layer of [op]. */
struct math_options engine_math_options(const struct engine *engine, const struct program_op *op);

/* Threads for this rank where it may use what its CPUs allow. Collective. */
int engine_threads(struct ddp *ddp, int *threads, struct ddp_error *error);

/* All operations over [count] images. [batch]: what dropout draws; NULL: evaluation. */
int engine_forward(struct engine *engine, const struct batch *batch, size_t count,
		   struct ddp_error *error);

/* From the gradient of the last value to those of all parameters, each told as ready. */
int engine_backward(struct engine *engine, size_t count, struct ddp_error *error);

#endif /* TRAIN_ENGINE_PRIVATE_H */
