/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - a network's numbers in host memory: parameters, gradients, optimizer, buffers
 *
 * All arrays of one value for each parameter element are laid out as libddp lays out the
 * gradients (ddp_gradients_all), so that an optimizer is one loop over all. The CPU engine trains
 * in this memory; an engine with memory of its own pushes and pulls.
 *
 * SHARED. After model_share(), where all ranks share memory, there is one copy of values and slots for all
 * of them: each updates a part (model_part()), and looks at the others' when all are done.
 *
 * THE WORD. Behind the gradients travels a small vector that every step sums for free: whether a
 * rank was asked to stop, the loss, hits and samples.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include "graph.h"

enum model_word {
	MODEL_STOP, /* ranks that want to stop */
	MODEL_LOSS, /* sum over samples, 0 unless it is put there */
	MODEL_HITS,
	MODEL_SAMPLES,
	MODEL_WORD = 16
};

enum { MODEL_SLOTS = 2 };

struct model {
	const struct graph *graph;
	struct ddp_gradients *gradients; /* parameters of the graph are 1 .. parameter_count */
	float *grads;			 /* all of them in one piece; NULL: on a device */
	float *values;			 /* parameters, where their gradients are in grads */
	float *slots[MODEL_SLOTS];	 /* the optimizer's; NULL beyond what it needs */
	size_t count;			 /* elements of these arrays that are trained */
	bool shared;			 /* values and slots, by all ranks */
	size_t *offsets;		 /* of each parameter in them */
	float *word;			 /* MODEL_WORD elements of grads, beyond count, or NULL */
	enum ddp_type wire;		 /* of gradients on their way between ranks */
	float *buffers;			 /* all buffers, one after the other */
	size_t *buffer_offsets;
	size_t buffer_count; /* elements */
	int64_t batches;     /* num_batches_tracked that the training began with */
	float *scratch;	     /* of the largest parameter, until model_init() */
};

/*
 * Memory for [graph], which must outlive it, with so many optimizer [slots], zeroed. [wire] is
 * the type of gradients on their way between nodes; with [device] an engine places them on its own;
 * [virtual_ranks] as in ddp.h, 0: none. Collective.
 */
int model_create(struct model **model, struct ddp *ddp, const struct graph *graph, int slots,
		 enum ddp_type wire, bool device, size_t virtual_ranks, struct ddp_error *error);

/* Before ddp_destroy(). NULL is legal. */
void model_destroy(struct model *model);

/*
 * One copy of values and slots, zeroed, for all ranks, if there are several and all share memory; else
 * nothing changes. All ranks put the same into them, as below and from files. Right after
 * model_create(). Collective.
 */
int model_share(struct model *model, struct ddp *ddp, struct ddp_error *error);

/*
 * The part of the arrays that rank [rank] of [ranks] updates: from [begin] to before [end]. Parts are as
 * equal as lines of the cache allow, and together they are everything. Pure.
 */
void model_part(size_t count, int rank, int ranks, size_t *begin, size_t *end);

/* PyTorch's initial values for manual_seed([seed]), and buffers at their beginning. Once. */
void model_init(struct model *model, uint64_t seed);

/* Of parameter [index]: its values, its gradient. */
float *model_value(const struct model *model, size_t index);
float *model_gradient(const struct model *model, size_t index);
float *model_buffer(const struct model *model, size_t index);

/*
 * The numbers as tensors with PyTorch's names and layout, for files: parameters, buffers
 * ("bn1.num_batches_tracked" too, all with the value [steps]), and where [optimizer], its slots as
 * "optimizer.0.conv1.weight". The tensors have memory of their own, and the struct must stay where
 * it is: [steps] is the data of those counters, and has what a file says after a load.
 */
struct model_tensors {
	struct ddp_tensor *list;
	size_t count;
	void *memory;
	int64_t steps;
};

void model_tensors_create(struct model_tensors *tensors, const struct model *model, bool optimizer);
void model_tensors_destroy(struct model_tensors *tensors);

/* Copy the model's numbers into the tensors, or the tensors' into the model, after so many [steps] of the training. */
void model_tensors_export(struct model_tensors *tensors, const struct model *model, int64_t steps);
void model_tensors_import(const struct model_tensors *tensors, struct model *model, int64_t steps);

/*
 * Read parameters and buffers from a safetensors file with PyTorch's names, on every rank.
 * Returns 0, or an error that names file and tensor: missing, of another shape or type; the model
 * is as it was then. What else the file has does not matter.
 */
int model_read(struct model *model, const char *path, struct ddp_error *error);

#endif /* TRAIN_MODEL_H */
