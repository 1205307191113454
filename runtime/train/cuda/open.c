/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine before its first step: what it is made of.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/type.h"
#include "engine-private.h"

#define EPSILON 1e-5f
#define MOMENTUM 0.1f

/* Of rooms: what vector loads and cuDNN's fastest plans want, and a line of the cache. */
enum { ALIGNMENT = 256 };

/* An evaluation may need so much although training does not. */
static const size_t least_memory = (size_t)32 << 20;

static int out_of_memory(struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_MEMORY,
			     "CUDA engine: out of memory in the host's memory");
}

static int check(const struct engine_setup *setup, struct ddp_error *error)
{
	if (setup->type == DDP_F32 || setup->type == DDP_BF16 || setup->type == DDP_F16)
		return 0;
	return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			     "activations of type %s: a GPU trains in f32, bf16 or fp16; use "
			     "--amp=bf16, --amp=fp16 or --amp=off",
			     ddp_type_name(setup->type));
}

/* Whether f32 is multiplied with all of its digits, and how to have it otherwise. */
static void describe_type(struct engine *engine)
{
	size_t used = strlen(engine->describe);

	if (engine->setup.type == DDP_F32)
		snprintf(engine->describe + used, sizeof(engine->describe) - used, "%s",
			 engine->setup.tf32 ? ", f32 as tf32 (exact: --amp=off)"
					    : ", exact f32 (faster: --amp=tf32)");
}

static int open_device(struct engine *engine, struct ddp_error *error)
{
	const struct ddp_world *world = ddp_world(engine->setup.ddp);
	const struct device_info *info;
	int index = world->device > 0 ? world->device : 0;
	const struct engine_setup *setup = &engine->setup;
	double share = setup->share > 0 ? setup->share : world->share;
	int status = device_open(&engine->device, index, share, error);

	if (status < 0)
		return status;
	device_patience(engine->device, world->timeout);
	info = device_info(engine->device);
	snprintf(engine->name, sizeof(engine->name), "GPU %d, %s", info->index, info->name);
	snprintf(engine->describe, sizeof(engine->describe), "%s, CUDA %d.%d, sm_%d%d",
		 layers_describe(), info->cuda / 1000, info->cuda % 1000 / 10, info->major,
		 info->minor);
	describe_type(engine);
	return 0;
}

/* --- Operations --------------------------------------------------------------------------------- */

/* The test set is evaluated in pieces that need no more memory than training. */
static void place(struct engine *engine)
{
	const struct engine_setup *setup = &engine->setup;
	size_t most = setup->test ? setup->test_batch : 0, limit, need, pieces = 1;
	size_t *bytes = &engine->memory.rooms_bytes;

	*bytes = program_place(engine->program, PROGRAM_TRAIN, setup->batch);
	limit = *bytes > least_memory ? *bytes : least_memory;
	for (;; pieces++) {
		engine->piece = (most + pieces - 1) / pieces;
		need = program_place(engine->program, PROGRAM_TEST, engine->piece);
		if (need <= limit || engine->piece <= 1)
			break;
	}
	*bytes = need > *bytes ? need : *bytes;
}

static void create_norm(struct engine *engine, const struct program_op *op, struct unit *unit)
{
	struct graph_shape in = op->node->in;

	unit->norm = (struct kernel_norm){.rows = (size_t)in.height * (size_t)in.width,
					  .channels = (size_t)in.channels,
					  .epsilon = EPSILON,
					  .momentum = MOMENTUM};
	if (unit->norm.channels > engine->channels)
		engine->channels = unit->norm.channels;
	engine->sync_norm = engine->setup.sync_norm && engine->ranks > 1;
}

static void create_dropout(const struct program_op *op, struct unit *unit)
{
	struct dropout dropout;

	dropout_set_rate(&dropout, op->node->layer->rate);
	unit->dropout = (struct kernel_dropout){.limit = dropout.limit,
						.planes = dropout.planes,
						.scale = dropout.scale,
						.layer = (uint32_t)op->layer};
}

static int create_units(struct engine *engine, struct ddp_error *error)
{
	engine->units = calloc((size_t)engine->program->op_count, sizeof(*engine->units));
	if (!engine->units)
		return out_of_memory(error);
	for (int i = 0; i < engine->program->op_count; i++) {
		const struct program_op *op = &engine->program->ops[i];

		if (op->kind == PROGRAM_NORM)
			create_norm(engine, op, &engine->units[i]);
		else if (op->kind == PROGRAM_DROPOUT)
			create_dropout(op, &engine->units[i]);
	}
	return cuda_plans_open(engine, error);
}

static int compile(struct engine *engine, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	struct program_options options = {
		.type = setup->type,
		.dropout = !setup->no_dropout,
		.alignment = ALIGNMENT,
		.drop_masks = true,
		.joins = true,
	};
	int status = program_create(&engine->program, setup->model->graph, &options, error);

	if (status == 0)
		place(engine);
	return status;
}

/*
 * Activations that can never fit are refused before cuDNN is asked for plans of their size: by the
 * device, whose message has all the numbers. Kernels count elements in 32 bits.
 */
static int check_size(struct engine *engine, struct ddp_error *error)
{
	size_t bytes = engine->memory.rooms_bytes, most = engine->setup.batch;
	void *memory = NULL;
	char what[64];
	int status;

	most = engine->piece > most ? engine->piece : most;
	for (int i = 0; i < engine->program->value_count; i++) {
		if (most * engine->program->values[i].elements > UINT32_MAX)
			return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
					     "batches of %zu samples: a layer's values are more "
					     "than 2^32; lower --batch",
					     most);
	}
	if (bytes <= device_info(engine->device)->limit)
		return 0;
	snprintf(what, sizeof(what), "activations of %zu samples", engine->setup.batch);
	status = device_alloc(engine->device, &memory, bytes, what, "lower --batch", error);
	device_free(engine->device, memory);
	return status;
}

/* --- Sets --------------------------------------------------------------------------------------- */

static int open_set(struct engine *engine, struct data **data, struct set *set,
		    struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	const struct ddp_world *world = ddp_world(setup->ddp);
	uint64_t samples = set_info(set)->samples, ranks = (uint64_t)engine->ranks;
	bool train = data == &engine->train;
	const struct data_setup wanted = {
		.device = engine->device,
		.set = set,
		.net = setup->model->graph->net,
		.optim = train ? setup->optim : NULL,
		.batch = train ? setup->batch : engine->piece,
		.samples = train ? (samples + ranks - 1) / ranks : 0,
		.first = samples * (uint64_t)world->local_rank / (uint64_t)world->local_size,
		.ranks = engine->ranks,
		.mark = train ? CUDA_MARK_TRAIN : CUDA_MARK_TEST,
	};

	return data_open(data, &wanted, error);
}

static int open_sets(struct engine *engine, struct ddp_error *error)
{
	int status = open_set(engine, &engine->train, engine->setup.train, error);

	if (status == 0)
		engine->memory.state = &engine->train->step->state;
	if (status < 0 || engine->piece == 0)
		return status;
	return open_set(engine, &engine->test, engine->setup.test, error);
}

/* --- All of it ---------------------------------------------------------------------------------- */

static int open_all(struct engine *engine, struct ddp_error *error)
{
	int status = check(&engine->setup, error);

	if (status < 0 || (status = open_device(engine, error)) < 0 ||
	    (status = compile(engine, error)) < 0 || (status = check_size(engine, error)) < 0 ||
	    (status = create_units(engine, error)) < 0 ||
	    (status = cuda_join(engine->setup.ddp, error)) < 0)
		return status;
	if (engine->ranks == 1 || ddp_device_captures(engine->setup.ddp))
		engine->manner = CUDA_ONE_GRAPH;
	else
		engine->manner = engine->sync_norm ? CUDA_BY_CALL : CUDA_TWO_GRAPHS;
	status = cuda_memory_open(engine, error);
	return status == 0 ? open_sets(engine, error) : status;
}

int cuda_open(struct engine **result, const struct engine_setup *setup, struct ddp_error *error)
{
	struct engine *engine = calloc(1, sizeof(*engine));
	int status;

	*result = NULL;
	if (!engine)
		return out_of_memory(error);
	engine->setup = *setup;
	engine->ranks = ddp_world(setup->ddp)->size;
	engine->scaling = setup->type == DDP_F16 && setup->scaler;
	status = open_all(engine, error);
	if (status < 0) {
		engine->broken = true;
		cuda_close(engine);
		return status;
	}
	*result = engine;
	return 0;
}

/* What CUDA and its libraries hold: they wait for the device before they give it back. */
static void close_device(struct engine *engine)
{
	for (int i = 0; engine->units && i < engine->program->op_count; i++)
		layer_destroy(engine->units[i].layer);
	layers_close(engine->layers);
	data_close(engine->train);
	data_close(engine->test);
	cuda_memory_close(engine);
	device_close(engine->device);
}

/*
 * Graphs go first: they hold the communicator's collectives, and one that is under way is freed when
 * it has ended. A world that is lost gives its sums up then, whereby they end. Behind one that never does the
 * rest is left to the end of the process.
 */
void cuda_close(struct engine *engine)
{
	if (!engine)
		return;
	if (!engine->broken)
		cuda_wait(engine, NULL);
	for (int i = 0; i < CUDA_GRAPHS; i++)
		device_graph_destroy(engine->graphs[i]);
	if (engine->broken && engine->ranks > 1)
		(void)ddp_device_free(engine->setup.ddp, NULL);
	if (device_rests(engine->device))
		close_device(engine);
	program_destroy(engine->program);
	free(engine->units);
	free(engine->plans.known);
	free(engine->plans.taken);
	free(engine);
}
