/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - a network's parameters, gradients, optimizer state and buffers in host memory
 *
 * All arrays that have one value per parameter element use the layout in which libddp stores the
 * gradients (ddp_gradients_all()), so that an optimizer step is one loop over flat arrays. The CPU
 * engine trains in this memory. The GPU engine copies the model from this memory (push) and back to
 * it (pull).
 *
 * SHARED. If all ranks share memory, model_share() makes one copy of values and optimizer slots for
 * all ranks. Each rank updates one part of the copy (model_part()). Once all ranks have updated
 * their parts, each rank reads the other parts.
 *
 * STEP VECTOR. A small vector follows the gradients and is summed with them in every step. It has
 * the number of stop requests, the loss, the hits and the number of samples.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include "graph.h"

enum model_step {
	MODEL_STOP, /* number of ranks that want to stop */
	MODEL_LOSS, /* sum over samples, or 0 if the engine does not set it */
	MODEL_HITS,
	MODEL_SAMPLES,
	MODEL_STEP_SIZE = 16
};

enum { MODEL_SLOTS = 2 };

struct model {
	const struct graph *graph;
	/* index 0 is the step vector; the graph's parameters are 1 .. parameter_count */
	struct ddp_gradients *gradients;
	float *grads;  /* all gradients, contiguous; NULL: they are on a device */
	float *values; /* parameters, at the offsets of their gradients in grads */
	/* optimizer state; NULL for slots that the optimizer does not need */
	float *slots[MODEL_SLOTS];
	size_t count;	    /* number of trained elements in each of these arrays */
	bool shared;	    /* values and slots are shared by all ranks */
	size_t *offsets;    /* offset of each parameter in these arrays */
	float *step_vector; /* MODEL_STEP_SIZE elements, in grads after [count]; or NULL */
	float *buffers;	    /* all buffers, contiguous */
	size_t *buffer_offsets;
	size_t buffer_count; /* elements of all buffers */
	int64_t batches;     /* num_batches_tracked at the start of the training */
};

/*
 * Creates a model of [graph], which must outlive it, with [slots] optimizer slots. All values are
 * zero. [wire] is the type in which gradients are sent between nodes. With [device] the engine
 * allocates the gradients. [virtual_ranks] is as in ddp.h (0: none). Collective.
 */
int model_create(struct model **model, struct ddp *ddp, const struct graph *graph, int slots,
		 enum ddp_type wire, bool device, size_t virtual_ranks, struct ddp_error *error);

/* Must be called before ddp_destroy(). NULL is legal. */
void model_destroy(struct model *model);

/*
 * If there are several ranks and all share memory, replaces values and slots by one zeroed copy for
 * all ranks. Otherwise changes nothing. Later initialisations (model_init(), files) write equal
 * values from all ranks into the copy. To be called right after model_create(). Collective.
 */
int model_share(struct model *model, struct ddp *ddp, struct ddp_error *error);

/*
 * Computes the range [begin, end) of the arrays that [rank] of [ranks] updates. Together, the
 * ranges cover arrays of [count] elements. Their lengths differ by at most one cache line.
 */
void model_part(size_t count, int rank, int ranks, size_t *begin, size_t *end);

/*
 * Sets parameters and buffers to the initial values that PyTorch gives them after
 * manual_seed([seed]).
 */
void model_init(struct model *model, uint64_t seed);

/* Returns false if a parameter has a nan or an infinity. */
bool model_is_finite(const struct model *model);

/* Values and gradient of parameter [index], and values of buffer [index]. */
float *model_value(const struct model *model, size_t index);
float *model_gradient(const struct model *model, size_t index);
float *model_buffer(const struct model *model, size_t index);

/*
 * The model as tensors with PyTorch's names and layout, for files. The tensors are the parameters,
 * the buffers and, if created with [optimizer], the slots ("optimizer.0.conv1.weight"). All
 * counters such as "bn1.num_batches_tracked" have the same value. Their tensors point to [steps],
 * so this struct must not be moved. After a file was loaded, [steps] has the file's value.
 */
struct model_tensors {
	struct ddp_tensor *list;
	size_t count;
	void *memory;
	int64_t steps;
};

void model_tensors_create(struct model_tensors *tensors, const struct model *model, bool optimizer);
void model_tensors_destroy(struct model_tensors *tensors);

/*
 * model_tensors_export() copies the model to the tensors, and model_tensors_import() copies the
 * tensors to the model. [steps] is the number of steps of the training so far.
 */
void model_tensors_export(struct model_tensors *tensors, const struct model *model, int64_t steps);
void model_tensors_import(const struct model_tensors *tensors, struct model *model, int64_t steps);

/*
 * Reads parameters and buffers from a safetensors file with PyTorch's names, on every rank. Ignores
 * tensors that the model does not have. Returns 0, or an error that names the file and the tensor
 * that is missing or has another shape or type. If an error is returned, the model has not changed.
 */
int model_read(struct model *model, const char *path, struct ddp_error *error);

#endif /* TRAIN_MODEL_H */
