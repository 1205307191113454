/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - a network's parameters, gradients, optimizer state and buffers in host memory
 *
 * All arrays that have one value per parameter element use libddp's layout of the gradients
 * (ddp_gradients_all()), so that an optimizer step is one loop over flat arrays. The CPU engine
 * trains in this memory. An engine with memory of its own copies from it (push) and to it (pull).
 *
 * SHARED. After model_share(), if all ranks share memory, there is one copy of values and optimizer
 * slots. Each rank updates one part of them (model_part()) and reads the other parts after all
 * ranks have updated theirs.
 *
 * STEP VECTOR. The gradients are followed by a small vector that is summed with them in every step.
 * It carries stop requests, the loss, hits and samples.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include "graph.h"

enum model_step {
	MODEL_STOP, /* number of ranks that want to stop */
	MODEL_LOSS, /* sum over samples; 0 unless the engine sets it */
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
	size_t count;	 /* trained elements of each of these arrays */
	bool shared;	 /* values and slots are shared by all ranks */
	size_t *offsets; /* of each parameter in these arrays */
	float *step_vector; /* the step vector, MODEL_STEP_SIZE elements of grads after [count]; or NULL */
	enum ddp_type wire; /* type of gradients sent between ranks */
	float *buffers;	    /* all buffers, contiguous */
	size_t *buffer_offsets;
	size_t buffer_count; /* elements of all buffers */
	int64_t batches;     /* num_batches_tracked at the start of the training */
	float *scratch;	     /* space for the largest parameter, freed by model_init() */
};

/*
 * Allocates zeroed memory for [graph], which must outlive it, and [slots] optimizer slots. [wire]
 * is the type of gradients sent between nodes. With [device] the engine allocates the gradients.
 * [virtual_ranks] is as in ddp.h; 0: none. Collective.
 */
int model_create(struct model **model, struct ddp *ddp, const struct graph *graph, int slots,
		 enum ddp_type wire, bool device, size_t virtual_ranks, struct ddp_error *error);

/* Must be called before ddp_destroy(). NULL is legal. */
void model_destroy(struct model *model);

/*
 * Replaces values and slots by one zeroed copy for all ranks, if there are several ranks and all
 * share memory. Otherwise changes nothing. Afterwards all ranks write equal values into it
 * (model_init(), files). To be called right after model_create(). Collective.
 */
int model_share(struct model *model, struct ddp *ddp, struct ddp_error *error);

/*
 * Computes the range [begin, end) of the arrays that [rank] of [ranks] updates. The ranges cover
 * the arrays and have equal lengths up to one cache line.
 */
void model_part(size_t count, int rank, int ranks, size_t *begin, size_t *end);

/*
 * Sets parameters to PyTorch's initial values for manual_seed([seed]), and buffers to theirs. May
 * be called once.
 */
void model_init(struct model *model, uint64_t seed);

/* Returns false if a parameter has a nan or an infinity. */
bool model_is_finite(const struct model *model);

/* Values and gradient of parameter [index], and values of buffer [index]. */
float *model_value(const struct model *model, size_t index);
float *model_gradient(const struct model *model, size_t index);
float *model_buffer(const struct model *model, size_t index);

/*
 * The model as tensors with PyTorch's names and layout, for files: parameters, buffers (also
 * "bn1.num_batches_tracked", which all have the value [steps]) and, with [optimizer], the slots as
 * "optimizer.0.conv1.weight". The tensors own their memory. The struct must not be moved: tensors
 * point to [steps]. After a file was loaded, [steps] has the file's value.
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
 * Copy from the model to the tensors (export) or from the tensors to the model (import), after
 * [steps] steps of the training.
 */
void model_tensors_export(struct model_tensors *tensors, const struct model *model, int64_t steps);
void model_tensors_import(const struct model_tensors *tensors, struct model *model, int64_t steps);

/*
 * Reads parameters and buffers from a safetensors file with PyTorch's names, on every rank. Tensors
 * that the model does not have are ignored. Returns 0, or an error that names the file and the
 * tensor that is missing or has another shape or type. After an error the model is unchanged.
 */
int model_read(struct model *model, const char *path, struct ddp_error *error);

#endif /* TRAIN_MODEL_H */
