/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - a graph compiled into operations, and its memory plan
 *
 * An operation is one node of the graph, or several nodes that are computed together: a convolution
 * and its ReLU, or BatchNorm with an addition and a ReLU. Operations run from the first to the last
 * (forward), then from the last to the first (backward). An area is memory for one value or one
 * gradient. Areas that are not in use at the same time can overlap. If a batch has fewer images
 * than the area has space for, its values are at the start of the area.
 *
 * LISTS. If a max-pool follows a convolution, most gradients of the convolution's output are zero.
 * An engine can then compute the convolution's backward pass from a list of the nonzero gradients.
 */
#ifndef TRAIN_PROGRAM_H
#define TRAIN_PROGRAM_H

#include "graph.h"

enum { PROGRAM_NONE = -1, PROGRAM_IMAGE = 0 /* index of the input image's value */ };

/* PROGRAM_TRAIN also computes gradients, and keeps the values that they need. */
enum program_mode { PROGRAM_TRAIN, PROGRAM_TEST, PROGRAM_MODES };

/*
 * Memory that a mode uses from time [first] to time [last], or not at all if first > last. Times
 * number the forward operations, then the loss, then the backward operations.
 */
struct program_area {
	size_t bytes; /* bytes per image */
	size_t fixed; /* additional bytes for any number of images */
	int first[PROGRAM_MODES], last[PROGRAM_MODES];
	size_t offset[PROGRAM_MODES];
};

struct program_value {
	size_t elements;    /* elements per image */
	int readers;	    /* number of operations that read this value */
	bool wanted;	    /* whether the gradient of this value is needed */
	int data, gradient; /* areas */
	/*
	 * Area of a second gradient, or PROGRAM_NONE. The operation that computes the value adds
	 * the second gradient to the first in its backward pass.
	 */
	int second;
};

enum program_kind {
	PROGRAM_MATH, /* convolution or dense layer, optionally with a ReLU */
	PROGRAM_NORM, /* BatchNorm, optionally with an addition and a ReLU */
	PROGRAM_ADD,  /* addition, optionally with a ReLU */
	PROGRAM_RELU,
	PROGRAM_MAX_POOL,
	PROGRAM_AVERAGE_POOL,
	PROGRAM_DROPOUT
};

struct program_op {
	enum program_kind kind;
	const struct graph_node *node; /* node with the parameters, window or rate */
	int layer;		       /* number of the node, for random numbers */
	const char *name;	       /* name in messages: "conv1", "layer 4" */
	int input, other, output;      /* values; other may be PROGRAM_NONE */
	bool relu;

	/*
	 * Another operation has already written the gradient of the input ([accumulate]) or of the
	 * second input ([accumulate_other]), and this operation adds to it. If [temporary] is an
	 * area, it receives the summand for the input.
	 */
	bool accumulate, accumulate_other;
	/*
	 * The summand stays in [temporary], and the operation that made the input reads both
	 * gradients.
	 */
	bool left;
	int temporary; /* this member and the next two are areas */
	int which;     /* MAX_POOL: positions of the maxima */
	int keep;      /* DROPOUT: one bit per element */

	/*
	 * The operation after a ReLU applies the ReLU's mask, while the gradient is in the cache.
	 * That operation has [masks] set; the operation with the ReLU has [masked] set. Used for a
	 * max-pool (which masks a quarter of the positions only), a list, or dropout.
	 */
	bool masks, masked;

	/*
	 * If only max-pool [pool] reads a convolution, the convolution computes the pool too, for
	 * [piece] images at a time. Memory holds the convolution's results of these images only, so
	 * they stay in the cache.
	 */
	int pool;
	size_t piece;
	/*
	 * This operation has no forward work: a convolution does the work of its pool, and a pool
	 * that of its dropout.
	 */
	bool inner;

	/*
	 * Set for a convolution with ReLU and 2 x 2 pool whose backward pass uses a list. The list
	 * has the gradients that are nonzero after the backward pass of a [dropout], the pool and
	 * the ReLU. So pool and dropout have no backward work.
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
	size_t alignment; /* alignment of areas in bytes */
	/*
	 * Indices of areas. Labels are i32. Logits and their gradients are f32 if
	 * program_options.wide was set, else in the network's type.
	 */
	int labels, logits, logit_gradients;
};

struct program_options {
	enum ddp_type type;
	bool dropout;
	size_t alignment; /* alignment of areas in bytes; 0: 64 */
	size_t cache;	  /* bytes for a piece of convolution and max-pool; 0: do not fuse them */
	/*
	 * Returns whether the engine can compute this convolution's gradients from a list; NULL:
	 * never.
	 */
	bool (*has_list)(const struct graph_node *node);
	bool keep; /* dropout keeps its masks */
	/*
	 * In the backward pass, dropout also applies the mask of a ReLU before it, which it derives
	 * from its own results. If a max-pool is between the two, the pool does the work of dropout
	 * too, and the dropout is [inner].
	 */
	bool drop_masks;
	bool joins; /* BatchNorm's backward pass can add two gradients of its output */
	bool wide;  /* the loss is computed from f32 logits and gives f32 gradients */
};

/* Compiles [graph], which must outlive the program. */
struct program *program_create(const struct graph *graph, const struct program_options *options);
void program_destroy(struct program *program);

/*
 * Assigns offsets to the areas of [mode] for [images]. Returns the bytes of memory that the areas
 * need together.
 */
size_t program_place(struct program *program, enum program_mode mode, size_t images);

/*
 * Assigns the offsets of both modes: for a [batch] in training, and for [piece] images in an
 * evaluation. Sets [piece] to the largest equal part of [test_batch] that needs no more memory than
 * training, or no more than [least] bytes. Returns the bytes of memory that the areas need.
 */
size_t program_place_both(struct program *program, size_t batch, size_t test_batch, size_t least,
			  size_t *piece);

/*
 * Returns the value whose gradient the backward pass of [op] reads. This is the output of [op] or,
 * with a list, the output of the last operation that the list covers.
 */
int program_gradient(const struct program *program, const struct program_op *op);

/* Returns the output of the last operation. */
const struct program_value *program_result(const struct program *program);

#endif /* TRAIN_PROGRAM_H */
