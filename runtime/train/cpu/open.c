/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine before its first step: what it is made of, and how much memory that takes.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/type.h"
#include "engine-private.h"

enum { PAGE = 2 << 20 };

/* Bytes that stay in the second cache of any CPU with AVX2 or more, with some room left. */
enum { CACHE = 1 << 20 };

/* An evaluation may need so much although training does not. */
static const size_t least_memory = (size_t)8 << 20;

static int out_of_memory(struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_MEMORY,
			     "CPU engine: out of memory; a smaller --batch needs less");
}

/* In large pages where the system has them for who asks. */
static int allocate(struct engine *engine, struct ddp_error *error)
{
	size_t bytes = (engine->bytes + PAGE - 1) / PAGE * PAGE;

	engine->memory = aligned_alloc(PAGE, bytes ? bytes : PAGE);
	engine->scratch = calloc(4 * engine->channels + 1, sizeof(float));
	if (!engine->memory || !engine->scratch)
		return out_of_memory(error);
	madvise(engine->memory, bytes, MADV_HUGEPAGE);
	memset(engine->memory, 0, engine->bytes);
	return 0;
}

/* The test set is evaluated in pieces that need no more memory than training. */
static void place(struct engine *engine)
{
	const struct engine_setup *setup = &engine->setup;
	size_t limit, need, pieces = 1;

	engine->bytes = program_place(engine->program, PROGRAM_TRAIN, setup->batch);
	limit = engine->bytes > least_memory ? engine->bytes : least_memory;
	for (;; pieces++) {
		engine->piece = (setup->test_batch + pieces - 1) / pieces;
		need = program_place(engine->program, PROGRAM_TEST, engine->piece);
		if (need <= limit || engine->piece <= 1)
			break;
	}
	if (need > engine->bytes)
		engine->bytes = need;
}

struct math_options engine_math_options(const struct engine *engine, const struct program_op *op)
{
	const struct net_layer *layer = op->node->layer;
	struct graph_shape in = op->node->in;
	size_t batch = engine->setup.batch;
	struct math_options options = {
		.height = in.height,
		.width = in.width,
		.in = in.channels,
		.out = op->node->out.channels,
		.size = layer->size,
		.stride = layer->stride > 0 ? layer->stride : 1,
		.pad = layer->pad,
		.dense = layer->kind == NET_DENSE,
		.bias = op->node->bias >= 0,
		.relu = op->relu,
		.first = !engine->program->values[op->input].wanted,
		.type = engine->setup.type,
		.batch = engine->piece > batch ? engine->piece : batch,
		.threads = engine->threads,
	};

	if (options.dense) {
		options.in = (int)graph_size(in);
		options.height = options.width = options.size = 1;
	}
	return options;
}

static int create_math(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	struct math_options options = engine_math_options(engine, op);
	struct unit *unit = &engine->units[index];
	int status = engine->math->create(&unit->math, &options, error);

	unit->window = engine_window(op->node);
	if (status == 0 && op->listed)
		status = kernel_list_create(&unit->list, &unit->window, engine->setup.batch, error);
	return status;
}

static int create_unit(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	struct unit *unit = &engine->units[index];
	size_t channels = (size_t)op->node->in.channels;

	if ((size_t)op->node->out.channels > channels)
		channels = (size_t)op->node->out.channels;
	if (channels > engine->channels)
		engine->channels = channels;
	if (op->kind == PROGRAM_MATH)
		return create_math(engine, index, error);
	if (op->kind == PROGRAM_DROPOUT) {
		dropout_set_rate(&unit->dropout, op->node->layer->rate);
		unit->dropout.layer = (uint32_t)op->layer;
	}
	if (op->kind == PROGRAM_NORM) {
		unit->mean = calloc(2 * channels, sizeof(float));
		if (!unit->mean)
			return out_of_memory(error);
		unit->inverse = unit->mean + channels;
		if (engine->setup.sync_norm && ddp_world(engine->setup.ddp)->size > 1)
			engine->sync_norm = true;
	}
	return 0;
}

struct kernel_window engine_window(const struct graph_node *node)
{
	return (struct kernel_window){node->in.height, node->in.width, node->in.channels,
				      node->out.channels, node->layer->size};
}

bool engine_has_list(const struct graph_node *node)
{
	struct kernel_window window = engine_window(node);

	return kernels_has_list(&window);
}

struct program_options engine_program_options(enum ddp_type type, bool dropout, bool lists)
{
	return (struct program_options){
		.type = type,
		.dropout = dropout,
		.cache = CACHE,
		.has_list = lists ? engine_has_list : NULL,
		.again = true,
		.keep = true,
		.wide = true,
	};
}

/* With all lists that are possible, and then without those that are slower. */
static int compile(struct engine *engine, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	const struct graph *graph = setup->model->graph;
	struct program_options options =
		engine_program_options(setup->type, !setup->no_dropout, !setup->exact);
	int status;

	engine->lists = calloc(graph->node_count, sizeof(bool));
	engine->dense = calloc(graph->node_count, sizeof(bool));
	if (!engine->lists || !engine->dense)
		return out_of_memory(error);
	status = program_create(&engine->program, graph, &options, error);
	if (status < 0 || setup->exact)
		return status;
	status = engine_choose_lists(engine, error);
	if (status < 0)
		return status;
	program_destroy(engine->program);
	options.dense = engine->dense;
	return program_create(&engine->program, graph, &options, error);
}

static int create_units(struct engine *engine, struct ddp_error *error)
{
	int status = 0;

	engine->units = calloc((size_t)engine->program->op_count, sizeof(*engine->units));
	if (!engine->units)
		return out_of_memory(error);
	place(engine);
	for (int i = 0; status == 0 && i < engine->program->op_count; i++)
		status = create_unit(engine, i, error);
	return status == 0 ? allocate(engine, error) : status;
}

static int check(const struct engine *engine, struct ddp_error *error)
{
	if (engine->setup.type != DDP_F32 && engine->setup.type != DDP_BF16)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "activations of type %s: a CPU trains in f32 or bf16; use "
				     "--amp=bf16 or --amp=off",
				     ddp_type_name(engine->setup.type));
	if (engine->setup.tf32)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "--amp tf32 is of GPUs: a CPU trains in f32 or bf16; use "
				     "--amp=bf16 or --amp=off");
	if (engine->math->has(engine->setup.type, error))
		return 0;
	return DDP_ERR_UNSUPPORTED;
}

static void describe(struct engine *engine)
{
	snprintf(engine->describe, sizeof(engine->describe), "%s, kernels for %s, %d thread%s",
		 engine->math->describe(), engine->kernels->name, engine->threads,
		 engine->threads == 1 ? "" : "s");
}

void engine_destroy(struct engine *engine)
{
	if (!engine)
		return;
	for (int i = 0; engine->units && i < engine->program->op_count; i++) {
		engine->math->destroy(engine->units[i].math);
		kernel_list_destroy(engine->units[i].list);
		free(engine->units[i].mean);
	}
	free(engine->units);
	program_destroy(engine->program);
	free(engine->memory);
	free(engine->scratch);
	free(engine->choices);
	free(engine->lists);
	free(engine->dense);
	free(engine);
}

int engine_create(struct engine **result, const struct engine_setup *setup, const struct math *math,
		  struct ddp_error *error)
{
	struct engine *engine = calloc(1, sizeof(*engine));
	int status;

	*result = NULL;
	if (!engine)
		return out_of_memory(error);
	engine->setup = *setup;
	engine->math = math;
	engine->stale = true;
	engine->threads = setup->threads;
	engine->kernels = kernels_choose(error);
	status = engine->kernels ? check(engine, error) : DDP_ERR_ENVIRONMENT;
	if (status == 0 && engine->threads == 0)
		status = engine_threads(setup->ddp, &engine->threads, error);
	if (status == 0)
		status = compile(engine, error);
	if (status == 0)
		status = create_units(engine, error);
	if (status == 0)
		status = engine_choose(engine, error);
	if (status < 0) {
		engine_destroy(engine);
		return status;
	}
	describe(engine);
	*result = engine;
	return 0;
}
