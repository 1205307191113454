/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plans.c - chooses the algorithms of convolutions and dense layers, the same on all ranks
 *
 * Rank 0 times cuDNN's first proposals while the other ranks wait. All ranks use rank 0's choice.
 * The choice is not stored: each start of ddp-train times the proposals again.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "cuda-engine.h"

/* --- Operations --------------------------------------------------------------------------------- */

/* Chosen plans of an operation, in the form that layer_create() uses. */
struct chosen {
	int32_t passes[LAYER_PASSES];
};

/* Whether kernel_first() can compute the layer. */
static bool is_thin(const struct layer_options *options)
{
	return options->first && options->bias && options->in == 1 &&
	       options->out == KERNEL_FIRST_OUT && options->size == KERNEL_FIRST_SIZE &&
	       options->stride == 1 && options->pad == 0;
}

static int create_layer(struct engine *engine, const struct program_op *op, struct unit *unit,
			size_t memory, struct chosen *chosen, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	const struct net_layer *layer = op->node->layer;
	bool dense = layer->kind == NET_DENSE;
	struct layer_options options = {
		.name = op->name,
		.dense = dense,
		.height = dense ? 1 : op->node->in.height,
		.width = dense ? 1 : op->node->in.width,
		.in = dense ? (int)graph_size(op->node->in) : op->node->in.channels,
		.out = op->node->out.channels,
		.size = dense ? 1 : layer->size,
		.stride = dense || layer->stride == 0 ? 1 : layer->stride,
		.pad = dense ? 0 : layer->pad,
		.bias = op->node->bias >= 0,
		.relu = op->relu,
		.first = !engine->program->values[op->input].wanted,
		.type = setup->type,
		.tf32 = setup->tf32,
		.deterministic = setup->deterministic,
		.batch = setup->batch,
		.test_batch = engine->piece,
	};

	if (is_thin(&options)) {
		unit->first = (struct kernel_first){options.height, options.width};
		return 0;
	}
	unit->narrow = !dense && options.type != DDP_F32;
	return layer_create(&unit->layer, engine->layers, &options, memory, chosen->passes, error);
}

static int create_all(struct engine *engine, size_t memory, struct chosen *chosen,
		      struct ddp_error *error)
{
	int status = layers_open(&engine->layers, engine->device, error);

	for (int i = 0; status == 0 && i < engine->program->op_count; i++) {
		const struct program_op *op = &engine->program->ops[i];

		if (op->kind == PROGRAM_MATH)
			status = create_layer(engine, op, &engine->units[i], memory, &chosen[i],
					      error);
	}
	return status;
}

/* --- All ranks ---------------------------------------------------------------------------------- */

/*
 * Sets [memory] to the GPU memory that a rank may use, the minimum over all ranks. With virtual
 * ranks there is no limit, because the plans must not depend on the number of ranks or on GPU
 * sharing.
 */
static int agree_memory(struct engine *engine, size_t *memory, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	int64_t least = (int64_t)device_info(engine->device)->limit;
	int status = 0;

	if (setup->parts > 0)
		least = INT64_MAX;
	else if (engine->ranks > 1)
		status = ddp_all_reduce(setup->ddp, &least, &least, 1, DDP_I64, DDP_MIN);
	*memory = (size_t)least;
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(setup->ddp)) : 0;
}

/* Calls create_all(). Reports the duration of the call, and a slow plan if there is one. */
static int choose_all(struct engine *engine, size_t memory, struct chosen *chosen,
		      struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	double begin = ddp_seconds();
	int status = create_all(engine, memory, chosen, error);
	const char *slow;
	char text[512];

	if (status < 0 || !setup->say)
		return status;
	slow = layers_slow(engine->layers);
	if (slow) {
		snprintf(text, sizeof(text), "cuDNN has only a slow engine for %s. Lower --batch.",
			 slow);
		setup->say(setup->listener, text);
	}
	snprintf(text, sizeof(text), "plans of convolutions chosen in %.1f s",
		 ddp_seconds() - begin);
	setup->say(setup->listener, text);
	return 0;
}

int cuda_plans_open(struct engine *engine, struct ddp_error *error)
{
	struct ddp *ddp = engine->setup.ddp;
	int count = engine->program->op_count, status;
	bool leader = ddp_world(ddp)->rank == 0;
	struct chosen *chosen =
		ddp_xcalloc((size_t)count, sizeof(*chosen), "plans of convolutions");
	size_t memory;

	_Static_assert(LAYER_CHOOSE == -1, "all bits are set");
	memset(chosen, LAYER_CHOOSE, (size_t)count * sizeof(*chosen));
	status = agree_memory(engine, &memory, error);
	if (status == 0 && leader)
		status = choose_all(engine, memory, chosen, error);
	if (ddp_world(ddp)->size > 1) {
		status = ddp_agree(ddp, status, status < 0 ? error->text : NULL);
		if (status == 0)
			status = ddp_broadcast(ddp, chosen, (size_t)count * sizeof(*chosen), 0);
		if (status < 0)
			ddp_error_set(error, status, "%s", ddp_error(ddp));
	}
	if (status == 0 && !leader)
		status = create_all(engine, memory, chosen, error);
	free(chosen);
	return status;
}
