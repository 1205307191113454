/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - a graph as an engine runs it: operations over values in memory that they share
 *
 * An operation is one node of the graph, or several that are computed in one go: a convolution
 * and its ReLU, BatchNorm with an addition and a ReLU. Operations run from the first to the last
 * and back again; from these times follows who may use the same memory. Values of a batch that is
 * not full lie at the beginning of their memory.
 */
#ifndef TRAIN_PROGRAM_H
#define TRAIN_PROGRAM_H

#include "graph.h"

enum { PROGRAM_NONE = -1, PROGRAM_IMAGE = 0 /* the value that is the input */ };

/* Training has the gradients too, and keeps what they need. */
enum program_mode { PROGRAM_TRAIN, PROGRAM_TEST, PROGRAM_MODES };

/* Memory that is used from one time to another; a mode that does not use it has first > last. */
struct program_area {
	size_t bytes; /* for each image */
	size_t fixed; /* besides */
	int first[PROGRAM_MODES], last[PROGRAM_MODES];
	size_t offset[PROGRAM_MODES];
};

struct program_value {
	struct graph_shape shape;
	size_t elements;    /* of one image */
	int readers;	    /* operations */
	bool wanted;	    /* its gradient */
	int data, gradient; /* areas */
	int second; /* the area of a gradient that its maker adds to the other one; or none */
	int again;  /* the area of a value that is computed again for the way back */
	int maker;  /* of such a one: the operation */
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
	const struct graph_node *node; /* the one with parameters, window or rate */
	int layer;		       /* its number: of random numbers */
	const char *name;	       /* for messages and choices: "conv1", "layer 4" */
	int input, other, output;      /* values; other: PROGRAM_NONE where there is none */
	bool relu;

	/* A gradient that another operation wrote before is added to: through [temporary]. */
	bool accumulate, accumulate_other;
	bool left;     /* to the maker of the input, which reads both */
	int temporary; /* areas from here on */
	int which;     /* MAX_POOL: where the maximum was */
	int keep;      /* DROPOUT: a bit for each element */

	/* A ReLU's part of the way back may be done by the operation behind it, which has the gradient
	 * at hand: a max-pool in a quarter of the places, a list, dropout. */
	bool masks, masked;

	/*
	 * A convolution whose results nobody reads but max-pool [pool] computes both, [piece] images
	 * at a time, which stay in the cache in between; nobody sees all its results.
	 */
	int pool;
	size_t piece;
	bool inner; /* that pool, or a dropout that a pool does: it has nothing to do forwards */

	/*
	 * Of such a convolution + ReLU before a 2 x 2 pool, the gradients may come from the list of
	 * those that the pool, and a [dropout] behind it, left; these have nothing to do backwards
	 * then.
	 */
	bool listed;
	int dropout;
	bool skipped; /* the pool, the dropout */
};

struct program {
	enum ddp_type type;
	struct program_op *ops;
	int op_count;
	struct program_value *values;
	int value_count;
	struct program_area *areas;
	int area_count;
	size_t alignment;		     /* of areas */
	int labels, logits, logit_gradients; /* areas: i32, and f32 where the type is another */
};

struct program_options {
	enum ddp_type type;
	bool dropout;
	size_t alignment; /* of areas, in bytes; 0: 64 */
	size_t cache;	  /* convolutions before a pool go in pieces that fit it; 0: as a whole */
	/* Whether the engine can make a list of the gradient of this convolution; NULL: of none. */
	bool (*has_list)(const struct graph_node *node);
	const bool *dense; /* of each node: no list for it; NULL: none such */
	bool again;	   /* large results of BatchNorm may be computed again */
	bool keep;	   /* dropout keeps what it has drawn */
	/* Dropout masks by its results on the way back, for a ReLU before it too. Where a max-pool is
	 * between the two, that does all, and knows its [dropout], which is inner. */
	bool drop_masks;
	bool joins; /* BatchNorm's way back adds up two gradients of what it made */
	bool wide;  /* the loss is computed from f32 and gives f32 */
};

/*
 * Compile [graph], which must outlive it.
 * Returns 0, or DDP_ERR_ARGUMENT with the layer that nobody reads.
 */
int program_create(struct program **program, const struct graph *graph,
		   const struct program_options *options, struct ddp_error *error);
void program_destroy(struct program *program);

/* Place the areas of [mode] for [images]. Returns the bytes that all of them need. */
size_t program_place(struct program *program, enum program_mode mode, size_t images);

/* The value whose gradient [op] begins with: its output, or that of the last one it stands for. */
int program_gradient(const struct program *program, const struct program_op *op);

/* The last value. */
const struct program_value *program_result(const struct program *program);

#endif /* TRAIN_PROGRAM_H */
