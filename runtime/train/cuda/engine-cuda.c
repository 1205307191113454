/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine-cuda.c - the GPU engine: open, memory and close
 *
 * step.c runs steps, walk.c enqueues operations, and data.c copies the data set to the device.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/type.h"
#include "base/xalloc.h"
#include "cuda-engine.h"

/* --- Connection to the other ranks ------------------------------------------------------- */

/* Connects the devices of all ranks, once. Not needed for one rank. Collective. */
static int cuda_join(struct ddp *ddp, struct ddp_error *error)
{
	int status = ddp_world(ddp)->size == 1 ? 0 : ddp_device_join(ddp);

	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(ddp)) : 0;
}

/* --- Memory ------------------------------------------------------------------------------ */

/* Remedies that are part of the error texts of failed allocations. */

static const char smaller_batch[] = "Lower --batch.";
static const char smaller_model[] =
	"Use a smaller network, or an optimizer with fewer values per parameter.";

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Returns the number of floats of a NORM's statistics, rounded up to a multiple of 64. */
static size_t statistics_of(size_t channels)
{
	return (1 + 2 * channels + 63) / 64 * 64;
}

/* --- Scratch memory ----------------------------------------------------------------------------- */

static size_t math_scratch(const struct engine *engine, const struct program_op *op,
			   const struct unit *unit)
{
	struct graph_shape out = op->node->out;
	size_t rows = engine->setup.batch * (size_t)out.height * (size_t)out.width;
	size_t most = 0;

	if (op->node->bias >= 0)
		most = kernel_sums_bytes(rows, (size_t)out.channels);
	if (unit->layer)
		return larger(most, layer_scratch(unit->layer));
	return larger(most, kernel_first_bytes(&unit->first, engine->setup.batch));
}

static size_t scratch_bytes(const struct engine *engine)
{
	size_t most = kernel_norm2_bytes(engine->setup.model->count);

	most = larger(most, kernel_loss_bytes(engine->setup.batch));
	for (int i = 0; i < engine->program->op_count; i++) {
		const struct program_op *op = &engine->program->ops[i];
		const struct unit *unit = &engine->units[i];

		if (op->kind == PROGRAM_MATH)
			most = larger(most, math_scratch(engine, op, unit));
		else if (op->kind == PROGRAM_NORM)
			most = larger(most, kernel_sums_bytes(engine->setup.batch * unit->norm.rows,
							      unit->norm.channels));
	}
	return most;
}

/* --- Allocation --------------------------------------------------------------------------------- */

/* Elements of the largest weight whose gradient cuDNN writes in the type of activations. */
static size_t most_narrow(const struct engine *engine)
{
	size_t most = 0;

	for (int i = 0; i < engine->program->op_count; i++) {
		int weight = engine->program->ops[i].node->weight;

		if (engine->units[i].narrow)
			most = larger(most, engine->setup.model->graph->parameters[weight].count);
	}
	return most;
}

/* Bytes of the gradients. With virtual ranks they have the layout of the model's memory. */
static size_t gradient_bytes(const struct engine *engine)
{
	struct ddp_gradients *gradients = engine->setup.model->gradients;
	size_t count;

	if (engine->setup.parts == 0)
		return ddp_gradients_bytes(gradients);
	(void)ddp_gradients_all(gradients, &count);
	return count * sizeof(float);
}

/* Allocations, each of which holds several arrays. */
struct kinds {
	struct device_parts model;
	struct device_parts
		/*
		 * device memory that libddp allocates for sums over ranks; the gradients are first
		 */
		summed;
	struct device_parts host;
};

static void divide_norms(struct engine *engine, struct device_parts *model,
			 struct device_parts *summed)
{
	struct cuda_memory *memory = &engine->memory;
	size_t each = statistics_of(engine->channels) * sizeof(float);

	if (engine->channels == 0)
		return;
	for (int i = 0; i < engine->program->op_count; i++) {
		struct unit *unit = &engine->units[i];

		unit->statistics =
			device_part(model, statistics_of(unit->norm.channels) * sizeof(float));
	}
	memory->moments = device_part(model, each);
	memory->sums = device_part(summed, each);
	if (engine->sync_norm)
		memory->gathered = device_part(summed, (size_t)engine->ranks * each);
}

/* Sets all pointers except areas and scratch; see device_part(). */
static void divide(struct engine *engine, struct kinds *kinds)
{
	const struct model *model = engine->setup.model;
	struct device_parts *own = &kinds->model;
	struct device_parts *summed = engine->ranks > 1 ? &kinds->summed : own;
	struct cuda_memory *memory = &engine->memory;
	size_t floats = model->count * sizeof(float), size = ddp_type_size(engine->setup.type);
	size_t results = engine->piece * program_result(engine->program)->elements * sizeof(float);
	bool narrow = engine->setup.type != DDP_F32;

	memory->gradients = device_part(summed, gradient_bytes(engine));
	memory->values = device_part(own, floats);
	for (int i = 0; i < MODEL_SLOTS; i++)
		memory->slots[i] = model->slots[i] ? device_part(own, floats) : NULL;
	memory->buffers = device_part(own, model->buffer_count * sizeof(float));
	memory->narrow = narrow ? device_part(own, model->count * size) : NULL;
	memory->narrow_gradient = narrow ? device_part(own, most_narrow(engine) * size) : NULL;
	memory->logits = narrow ? device_part(own, results) : NULL;
	memory->norm2 = device_part(own, sizeof(*memory->norm2));
	memory->tickets = device_part(own, KERNEL_TICKETS * sizeof(*memory->tickets));
	divide_norms(engine, own, summed);
	memory->results = device_part(&kinds->host, KERNEL_SLOTS * sizeof(*memory->results));
	memory->progress = device_part(&kinds->host, sizeof(*memory->progress));
	memory->logits_host = device_part(&kinds->host, results);
}

/* Allocates device memory that libddp can sum over ranks. Collective. */
static int alloc_summed(struct engine *engine, size_t bytes, void **memory, struct ddp_error *error)
{
	int status = device_may(engine->device, bytes, "gradients", smaller_model, error);

	if (status == 0)
		status = cuda_fail(engine, ddp_device_alloc(engine->setup.ddp, bytes, memory),
				   error);
	if (status == 0)
		device_count(engine->device, *memory, bytes);
	return status;
}

static int alloc_kinds(struct engine *engine, struct ddp_error *error)
{
	struct kinds bytes = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
	void *model, *summed = NULL, *host;
	int status;

	divide(engine, &bytes);
	status = device_alloc(engine->device, &model, bytes.model.bytes,
			      "the model and the optimizer's values", smaller_model, error);
	if (status == 0)
		status = device_alloc_host(engine->device, &host, bytes.host.bytes,
					   "results of steps", error);
	if (status == 0 && engine->ranks > 1)
		status = alloc_summed(engine, bytes.summed.bytes, &summed, error);
	/* On an error, set all pointers to NULL, so that nothing is freed. */
	bytes = (struct kinds){{status == 0 ? model : NULL, 0},
			       {status == 0 ? summed : NULL, 0},
			       {status == 0 ? host : NULL, 0}};
	divide(engine, &bytes);
	return status;
}

/*
 * Passes memory and stream for the gradients to libddp. If BatchNorm's sums are in host memory too,
 * both kinds of sums use COMPUTE, so that all sums are in one order.
 */
static int place_gradients(struct engine *engine, struct ddp_error *error)
{
	bool one_order = engine->by_call && engine->sync_norm;
	enum device_stream stream = one_order ? DEVICE_COMPUTE : DEVICE_REDUCE;

	if (engine->setup.parts > 0)
		return 0;
	return cuda_fail(
		engine,
		ddp_gradients_place(engine->setup.model->gradients, engine->memory.gradients,
				    device_stream(engine->device, stream), engine->memory.progress),
		error);
}

/* Allocates activations last, as they are the largest part and can be reduced with --batch. */
static int open_areas(struct engine *engine, struct ddp_error *error)
{
	struct cuda_memory *memory = &engine->memory;
	void *areas = NULL;
	char what[64];
	int status;

	/* All libraries are loaded now, so their memory can be measured. */
	device_measure(engine->device);
	status = device_alloc(engine->device, &memory->scratch, scratch_bytes(engine),
			      "scratch memory of convolutions", smaller_batch, error);
	snprintf(what, sizeof(what), "activations of %zu samples", engine->setup.batch);
	if (status == 0)
		status = device_alloc(engine->device, &areas, memory->areas_bytes, what,
				      smaller_batch, error);
	memory->areas = areas;
	return status;
}

/* --- Opening ----------------------------------------------------------------------------- */

#define EPSILON 1e-5f
#define MOMENTUM 0.1f

/* An evaluation is always allowed this much memory, even if training needs less. */
static const size_t test_memory_min = (size_t)32 << 20;

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
	device_set_timeout(engine->device, world->timeout);
	info = device_info(engine->device);
	snprintf(engine->name, sizeof(engine->name), "GPU %d, %s", info->index, info->name);
	/* The description says how f32 is multiplied, and which option changes that. */
	snprintf(engine->describe, sizeof(engine->describe), "%s, CUDA %d.%d, sm_%d%d%s",
		 layers_describe(), info->cuda / 1000, info->cuda % 1000 / 10, info->major,
		 info->minor,
		 setup->type != DDP_F32 ? ""
		 : setup->tf32		? ", f32 as tf32 (exact: --amp=off)"
					: ", exact f32 (faster: --amp=tf32)");
	return 0;
}

/* --- Operations --------------------------------------------------------------------------------- */

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

/*
 * If a max-pool applies the ReLU mask of a layer, makes the pool also compute the gradient of that
 * layer's bias.
 */
static void share_sums(struct engine *engine)
{
	const struct program_op *ops = engine->program->ops;
	int count = engine->program->op_count;

	for (int i = 0; i < count; i++) {
		struct unit *unit = &engine->units[i];

		unit->sums = -1;
		if (unit->layer && ops[i].node->bias >= 0)
			unit->has_sums = layer_has_sums(unit->layer);
		for (int k = 0; k < i; k++) {
			struct unit *front = &engine->units[k];

			if (ops[i].kind != PROGRAM_MAX_POOL || !ops[i].masks ||
			    ops[k].output != ops[i].input || !front->layer ||
			    ops[k].node->bias < 0 || front->has_sums)
				continue;
			unit->sums = ops[k].node->bias;
			front->has_sums = true;
		}
	}
}

static int create_units(struct engine *engine, struct ddp_error *error)
{
	int status;

	engine->units = ddp_xcalloc((size_t)engine->program->op_count, sizeof(*engine->units),
				    "the network");
	for (int i = 0; i < engine->program->op_count; i++) {
		const struct program_op *op = &engine->program->ops[i];
		struct unit *unit = &engine->units[i];

		if (op->kind == PROGRAM_NORM)
			create_norm(engine, op, unit);
		else if (op->kind == PROGRAM_DROPOUT)
			dropout_set(&unit->dropout, op->node->layer->rate, op->layer);
	}
	status = cuda_plans_open(engine, error);
	if (status == 0)
		share_sums(engine);
	return status;
}

static void compile(struct engine *engine)
{
	const struct engine_setup *setup = &engine->setup;
	struct program_options options = {
		.type = setup->type,
		.dropout = !setup->no_dropout,
		.alignment = DEVICE_ALIGNMENT,
		.drop_masks = true,
		.joins = true,
	};

	engine->program = program_create(setup->model->graph, &options);
	engine->memory.areas_bytes = program_place_both(
		engine->program, setup->batch, setup->test_batch, test_memory_min, &engine->piece);
}

/*
 * Fails if activations do not fit into the GPU's memory, or have more elements than the kernels'
 * 32-bit indices allow. Called before plans are requested from cuDNN. If memory is too small,
 * device_may() reports the sizes.
 */
static int check_size(struct engine *engine, struct ddp_error *error)
{
	size_t most = larger(engine->setup.batch, engine->piece);
	char what[64];

	for (int i = 0; i < engine->program->value_count; i++) {
		if (most * engine->program->values[i].elements > UINT32_MAX)
			return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
					     "a layer has more than 2^32 values for batches of "
					     "%zu samples. Lower --batch.",
					     most);
	}
	snprintf(what, sizeof(what), "activations of %zu samples", engine->setup.batch);
	return device_may(engine->device, engine->memory.areas_bytes, what, smaller_batch, error);
}

/* --- Data sets ---------------------------------------------------------------------------------- */

static int open_set(struct engine *engine, struct data **data, struct set *set,
		    struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	const struct ddp_world *world = ddp_world(setup->ddp);
	bool train = data == &engine->train;
	const struct data_setup wanted = {
		.device = engine->device,
		.set = set,
		.net = setup->model->graph->net,
		.optim = train ? setup->optim : NULL,
		.batch = train ? setup->batch : engine->piece,
		.first = set_info(set)->samples * (uint64_t)world->local_rank /
			 (uint64_t)world->local_size,
	};

	return data_open(data, &wanted, error);
}

static int open_sets(struct engine *engine, struct ddp_error *error)
{
	int status = open_set(engine, &engine->train, engine->setup.train, error);

	if (status == 0)
		engine->memory.state = &engine->train->step->state;
	if (status < 0)
		return status;
	engine->labels = ddp_xcalloc(engine->piece, sizeof(*engine->labels), "labels");
	return open_set(engine, &engine->test, engine->setup.test, error);
}

/* --- Open and close ----------------------------------------------------------------------------- */

static int open_all(struct engine *engine, struct ddp_error *error)
{
	int status = open_device(engine, error);

	if (status < 0)
		return status;
	compile(engine);
	if ((status = check_size(engine, error)) < 0 ||
	    (status = create_units(engine, error)) < 0 ||
	    (engine->ranks > 1 && (status = cuda_join(engine->setup.ddp, error)) < 0))
		return status;
	engine->by_call = engine->setup.parts > 0 ||
			  (engine->ranks > 1 && !ddp_device_captures(engine->setup.ddp));
	if ((status = alloc_kinds(engine, error)) < 0 ||
	    (status = place_gradients(engine, error)) < 0 ||
	    (status = open_sets(engine, error)) < 0)
		return status;
	return open_areas(engine, error);
}

/* Frees the objects of CUDA and its libraries. This waits for the device. */
static void close_device(struct engine *engine)
{
	for (int i = 0; engine->units && i < engine->program->op_count; i++)
		layer_destroy(engine->units[i].layer);
	layers_close(engine->layers);
	if (engine->ranks > 1 && engine->memory.gradients)
		(void)ddp_device_free(engine->setup.ddp, engine->memory.gradients);
	device_close(engine->device);
}

/*
 * Closes the engine. Destroys the graph first, because it contains collectives of the communicator.
 * If a rank was lost, libddp aborts the sums, so that they end. If work on the device does not end,
 * the objects of CUDA are not freed.
 */
static void cuda_close(struct engine *engine)
{
	if (!engine)
		return;
	/*
	 * Only check for a lost rank here, and do not abort the communicator: the graph, which has
	 * its collectives, must be destroyed before ncclCommAbort() is called.
	 */
	if (engine->ranks > 1 && !engine->broken)
		engine->broken = ddp_device_check(engine->setup.ddp) < 0;
	if (!engine->broken)
		cuda_wait(engine, NULL);
	device_graph_destroy(engine->graph);
	if (engine->broken && engine->ranks > 1)
		(void)ddp_device_free(engine->setup.ddp, NULL);
	if (device_is_idle(engine->device))
		close_device(engine);
	program_destroy(engine->program);
	free(engine->train);
	free(engine->test);
	free(engine->labels);
	free(engine->units);
	free(engine);
}

static int cuda_open(struct engine **result, const struct engine_setup *setup,
		     struct ddp_error *error)
{
	struct engine *engine = ddp_xcalloc(1, sizeof(*engine), "the engine");
	int status;

	*result = NULL;
	ddp_xalloc_tell(ddp_abort, setup->ddp);
	engine->setup = *setup;
	engine->ranks = setup->parts > 0 ? 1 : ddp_world(setup->ddp)->size;
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

/* --- Engine class ------------------------------------------------------------------------ */

static const char *cuda_describe(const struct engine *engine)
{
	return engine->describe;
}

static const char *cuda_device(const struct engine *engine)
{
	return engine->name;
}

static uint64_t cuda_used(const struct engine *engine)
{
	return device_most(engine->device) + device_context(engine->device);
}

const struct engine_class engine_cuda = {
	.head = {DDP_MODULE_MAGIC, ENGINE_VERSION, sizeof(struct engine_class), "engine", "cuda",
		 PACKAGE_VERSION},
	.device_gradients = true,
	.devices = device_list,
	.join = cuda_join,
	.open = cuda_open,
	.step = cuda_step,
	.settle = cuda_settle,
	.evaluate = cuda_evaluate,
	.push = cuda_push,
	.pull = cuda_pull,
	.describe = cuda_describe,
	.device = cuda_device,
	.memory = cuda_used,
	.close = cuda_close,
};

/* Symbol for ddp_module_open(). */
extern const struct engine_class ddp_module
	__attribute__((alias("engine_cuda"), visibility("default")));
