/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - a graph compiled into operations, and its memory plan
 *
 * An operation is one node of the graph, or several that are computed together: a convolution and
 * its ReLU, or BatchNorm with an addition and a ReLU. Operations run from the first to the last
 * (forward), then from the last to the first (backward). Areas of memory that are not in use at the
 * same time share addresses. The values of a partial batch are at the start of their area.
 */
#ifndef TRAIN_PROGRAM_H
#define TRAIN_PROGRAM_H

#include "graph.h"

enum { PROGRAM_NONE = -1, PROGRAM_IMAGE = 0 /* index of the input image's value */ };

/* PROGRAM_TRAIN also computes gradients, and keeps the values that they need. */
enum program_mode { PROGRAM_TRAIN, PROGRAM_TEST, PROGRAM_MODES };

/* Memory in use from time [first] to [last] of a mode; first > last if the mode does not use it. */
struct program_area {
	size_t bytes; /* per image */
	size_t fixed; /* in addition, independent of the number of images */
	int first[PROGRAM_MODES], last[PROGRAM_MODES];
	size_t offset[PROGRAM_MODES];
};

struct program_value {
	struct graph_shape shape;
	size_t elements;    /* per image */
	int readers;	    /* number of operations that read it */
	bool wanted;	    /* its gradient is needed */
	int data, gradient; /* areas */
	/*
	 * area of a second gradient, which the operation that made the value adds to the first; or
	 * none
	 */
	int second;
	int again; /* area into which the value is recomputed for the backward pass; or none */
	int maker; /* operation that recomputes the value, if [again] */
};

enum program_kind {
	PROGRAM_MATH, /* convolution or dense layer [+ ReLU] */
	PROGRAM_NORM, /* BatchNorm [+ addition] [+ ReLU] */
	PROGRAM_ADD,  /* addition [+ ReLU] */
	PROGRAM_RELU,
	PROGRAM_MAX_POOL,
	PROGRAM_AVERAGE_POOL,
	PROGRAM_DROPOUT
};

struct program_op {
	enum program_kind kind;
	const struct graph_node *node; /* node with the parameters, window or rate */
	int layer;		       /* number of the node, for random numbers */
	const char *name;	       /* for messages and algorithm choices: "conv1", "layer 4" */
	int input, other, output;      /* values; other may be PROGRAM_NONE */
	bool relu;

	/*
	 * The input's (other's) gradient was already written by another operation. This one adds to
	 * it, through [temporary].
	 */
	bool accumulate, accumulate_other;
	/* the gradient stays in [temporary]; the operation that made the input reads both */
	bool left;
	int temporary; /* this member and the next two are areas */
	int which;     /* MAX_POOL: positions of the maxima */
	int keep;      /* DROPOUT: one bit per element */

	/*
	 * The next operation applies a ReLU's mask to the gradient while it is in the cache: a
	 * max-pool (on a quarter of the positions), a list, or dropout. [masks] is set in that
	 * operation, [masked] in the one with the ReLU.
	 */
	bool masks, masked;

	/*
	 * A convolution that only max-pool [pool] reads computes the pool too, [piece] images at a
	 * time, whose results stay in the cache. The convolution's results are never all in memory.
	 */
	int pool;
	size_t piece;
	/*
	 * done by another operation: a pool by its convolution, a dropout by its pool; no forward
	 * work
	 */
	bool inner;

	/*
	 * For such a convolution + ReLU before a 2 x 2 pool, gradients may be computed from the
	 * list of nonzero gradients that the pool, and a [dropout] after it, leave. Pool and
	 * dropout then do nothing in the backward pass.
	 */
	bool listed;
	int dropout;
	bool skipped; /* a pool or dropout without backward work */
};

struct program {
	enum ddp_type type;
	struct program_op *ops;
	int op_count;
	struct program_value *values;
	int value_count;
	struct program_area *areas;
	int area_count;
	size_t alignment; /* of areas, in bytes */
	/* areas: i32, and f32 if the network's type is another */
	int labels, logits, logit_gradients;
};

struct program_options {
	enum ddp_type type;
	bool dropout;
	size_t alignment; /* of areas, in bytes; 0: 64 */
	size_t cache; /* bytes; convolutions before a pool run in pieces that fit; 0: whole batch */
	/*
	 * Returns whether the engine can compute this convolution's gradients from a list; NULL:
	 * never.
	 */
	bool (*has_list)(const struct graph_node *node);
	const bool *dense; /* by node: whether to use no list; NULL: lists are allowed everywhere */
	bool again;	   /* large BatchNorm results may be recomputed in the backward pass */
	bool keep;	   /* dropout keeps its masks */
	/*
	 * In the backward pass dropout also applies the mask of a ReLU before it, derived from its
	 * own results. If a max-pool is between the two, the pool does the work of both; its
	 * [dropout] is then inner.
	 */
	bool drop_masks;
	bool joins; /* BatchNorm's backward pass can add two gradients of its output */
	bool wide;  /* the loss is computed from f32 logits and gives f32 gradients */
};

/*
 * Compiles [graph], which must outlive the program. Returns 0, or DDP_ERR_ARGUMENT with the layer
 * whose output is unused.
 */
int program_create(struct program **program, const struct graph *graph,
		   const struct program_options *options, struct ddp_error *error);
void program_destroy(struct program *program);

/* Assigns offsets to the areas of [mode] for [images]. Returns the bytes that all of them take. */
size_t program_place(struct program *program, enum program_mode mode, size_t images);

/*
 * The value whose gradient [op] starts from: its output, or the output of the last operation that
 * its list includes.
 */
int program_gradient(const struct program *program, const struct program_op *op);

/* The output of the last operation. */
const struct program_value *program_result(const struct program *program);

#endif /* TRAIN_PROGRAM_H */
