/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine-cuda.c - the engine of GPUs: what it is made of before its first step, and its end
 *
 * Steps are step.c's, operations walk.c's, the data set's way to the device data.c's.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/type.h"
#include "base/xalloc.h"
#include "cuda-engine.h"
#include "engine-cuda.h"

/* --- Joining the other ranks ------------------------------------------------------------- */

/*
 * Sums over ranks are libddp's: of gradients (ddp_gradients), on REDUCE while COMPUTE goes on with earlier
 * layers; where they may not be in its graph, behind all layers. One rank needs no device of libddp's, and no
 * communicator; nor do virtual ranks, whose sums are in host memory (step.c).
 */

int cuda_told(const struct engine *engine, int status, struct ddp_error *error)
{
	const char *text = ddp_error(engine->setup.ddp);
	const uint64_t *ended = engine->setup.parts > 0 ? NULL : engine->memory.progress;
	uint64_t begun;

	if (status >= 0)
		return 0;
	if (!ended)
		return ddp_error_set(error, status, "%s", text);
	begun = engine->launched * ddp_gradients_buckets(engine->setup.model->gradients);
	return ddp_error_set(error, status,
			     "%s (of the sums of gradients %llu have ended, and %llu were begun at "
			     "most)",
			     text, (unsigned long long)*ended, (unsigned long long)begun);
}

/* Join libddp's engine between devices, once; one rank needs none. Collective. */
static int cuda_join(struct ddp *ddp, struct ddp_error *error)
{
	int status = ddp_world(ddp)->size == 1 ? 0 : ddp_device_join(ddp);

	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(ddp)) : 0;
}

static void cuda_sums_free(struct engine *engine, void *memory)
{
	if (!memory || engine->ranks == 1)
		return;
	device_uncount(engine->device, memory);
	(void)ddp_device_free(engine->setup.ddp, memory);
}

/* --- Gradients ---------------------------------------------------------------------------------- */

int cuda_sums_ready(struct engine *engine, int parameter, struct ddp_error *error)
{
	size_t index = parameter == CUDA_WORD ? 0 : (size_t)parameter + 1;

	if (parameter == -1 || engine->sums_later)
		return 0;
	return cuda_told(engine,
			 ddp_gradients_ready_on(engine->setup.model->gradients, index,
						cuda_stream(engine)),
			 error);
}

int cuda_sums_finish(struct engine *engine, struct ddp_error *error)
{
	return cuda_told(engine,
			 ddp_gradients_finish_on(engine->setup.model->gradients,
						 cuda_stream(engine)),
			 error);
}

/* --- Memory ------------------------------------------------------------------------------ */

/*
 * What of the device's memory the engine takes, and what to lower where it is too much.
 */

static const char smaller_batch[] = "lower --batch";
static const char narrower[] = "take a smaller network, or an optimizer that keeps less";

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Of a NORM, in floats: arrays begin at multiples of 64. */
static size_t statistics_of(size_t channels)
{
	return (1 + 2 * channels + 63) / 64 * 64;
}

/* --- Scratch ------------------------------------------------------------------------------------ */

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
	size_t classes = program_result(engine->program)->elements, inputs;
	const struct program *program = engine->program;

	inputs = program->values[program->ops[program->op_count - 1].input].elements;
	most = larger(most, kernel_loss_bytes(engine->setup.batch, classes));
	if (kernel_last_fits(inputs, classes))
		most = larger(most, kernel_last_bytes(engine->setup.batch, inputs, classes));
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

/* For sums over ranks. Collective. */
static void *take_shared(struct engine *engine, struct device_taking *taking, size_t bytes)
{
	static const char what[] = "sums over ranks";
	void *place = NULL;

	if (engine->ranks == 1)
		return device_take(taking, bytes, what, NULL);
	if (taking->status == 0)
		taking->status = device_may(engine->device, bytes, what, NULL, taking->error);
	if (taking->status == 0)
		taking->status = cuda_told(
			engine, ddp_device_alloc(engine->setup.ddp, bytes, &place), taking->error);
	if (taking->status == 0)
		device_count(engine->device, place, bytes);
	return place;
}

/* A bit for each unit of a narrow gradient. */
static void mark_narrow(const struct engine *engine, uint32_t *marks)
{
	const struct model *model = engine->setup.model;

	for (int i = 0; i < engine->program->op_count; i++) {
		int weight = engine->program->ops[i].node->weight;
		size_t begin, end;

		if (!engine->units[i].narrow)
			continue;
		begin = model->offsets[weight] / KERNEL_UNIT;
		end = (model->offsets[weight] + model->graph->parameters[weight].count - 1) /
		      KERNEL_UNIT;
		for (size_t unit = begin; unit <= end; unit++)
			marks[unit / 32] |= UINT32_C(1) << unit % 32;
	}
}

static void take_marks(struct engine *engine, struct device_taking *taking, const char *what)
{
	size_t words = engine->setup.model->count / KERNEL_UNIT / 32 + 1;
	uint32_t *marks = ddp_xcalloc(words, sizeof(*marks), what);
	size_t bytes = words * sizeof(*marks);

	mark_narrow(engine, marks);
	engine->memory.marks = device_take(taking, bytes, what, NULL);
	if (taking->status == 0)
		taking->status = device_copy(engine->device, DEVICE_COMPUTE, engine->memory.marks,
					     marks, bytes, taking->error);
	free(marks);
}

static void take_model(struct engine *engine, struct device_taking *taking)
{
	const struct model *model = engine->setup.model;
	struct cuda_memory *memory = &engine->memory;
	size_t floats = model->count * sizeof(float);
	size_t bytes = model->count * ddp_type_size(engine->setup.type);
	static const char gradients[] = "gradients in the type of activations";

	memory->values = device_take(taking, floats, "parameters", narrower);
	for (int i = 0; i < MODEL_SLOTS; i++) {
		if (model->slots[i])
			memory->slots[i] =
				device_take(taking, floats, "the optimizer's values", narrower);
	}
	memory->buffers = device_take(taking, model->buffer_count * sizeof(float),
				      "running statistics", narrower);
	if (engine->setup.type == DDP_F32)
		return;
	memory->narrow =
		device_take(taking, bytes, "parameters in the type of activations", narrower);
	memory->narrow_gradients = device_take(taking, bytes, gradients, narrower);
	/* Of several ranks, or virtual ones, what is summed is wide: nothing is marked. */
	if (engine->ranks == 1 && engine->setup.parts == 0)
		take_marks(engine, taking, gradients);
}

/*
 * Where BatchNorm's sums are on COMPUTE and no graph has any, gradients' are there, too, in one order with them. Those
 * of virtual ranks lie as in the model's memory.
 */
static void take_gradients(struct engine *engine, struct device_taking *taking)
{
	struct ddp_gradients *gradients = engine->setup.model->gradients;
	enum device_stream stream = engine->manner == CUDA_BY_CALL ? DEVICE_COMPUTE : DEVICE_REDUCE;
	struct cuda_memory *memory = &engine->memory;

	if (engine->setup.parts > 0) {
		size_t all;

		(void)ddp_gradients_all(gradients, &all);
		memory->gradients = device_take(taking, all * sizeof(float), "gradients", NULL);
		return;
	}
	memory->gradients = take_shared(engine, taking, ddp_gradients_bytes(gradients));
	if (taking->status == 0)
		taking->status =
			cuda_told(engine,
				  ddp_gradients_place(gradients, memory->gradients,
						      device_stream(engine->device, stream),
						      memory->progress),
				  taking->error);
}

static void take_norms(struct engine *engine, struct device_taking *taking)
{
	static const char what[] = "statistics of BatchNorm";
	struct cuda_memory *memory = &engine->memory;
	size_t each = statistics_of(engine->channels) * sizeof(float), all = 0;
	int count = engine->program->op_count;
	float *statistics;

	if (engine->channels == 0)
		return;
	for (int i = 0; i < count; i++)
		all += statistics_of(engine->units[i].norm.channels);
	statistics = device_take(taking, all * sizeof(float), what, NULL);
	memory->moments = device_take(taking, each, what, NULL);
	memory->sums = engine->sync_norm ? take_shared(engine, taking, each)
					 : device_take(taking, each, what, NULL);
	if (engine->sync_norm)
		memory->gathered = take_shared(engine, taking, (size_t)engine->ranks * each);
	for (int i = 0; i < count && taking->status == 0; i++) {
		engine->units[i].statistics = statistics;
		statistics += statistics_of(engine->units[i].norm.channels);
	}
}

static void take_logits(struct engine *engine, struct device_taking *taking)
{
	static const char what[] = "results of the test set";
	struct cuda_memory *memory = &engine->memory;
	size_t bytes = engine->piece * program_result(engine->program)->elements * sizeof(float);

	if (engine->piece == 0)
		return;
	memory->logits_host = device_take_host(taking, bytes, what);
	if (engine->setup.type != DDP_F32)
		memory->logits = device_take(taking, bytes, what, NULL);
	engine->labels = ddp_xcalloc(engine->piece, sizeof(*engine->labels), "labels");
}

/*
 * Device memory for all of it, once the units are there: what is missing is told with what to
 * lower. The largest part comes last: it is what can be lowered. Collective.
 */
static int cuda_memory_open(struct engine *engine, struct ddp_error *error)
{
	struct device_taking taking = {engine->device, 0, error};
	struct cuda_memory *memory = &engine->memory;
	char what[64];

	take_model(engine, &taking);
	memory->norm2 = device_take(&taking, sizeof(*memory->norm2), "the state of steps", NULL);
	memory->tickets = device_take(&taking, KERNEL_TICKETS * sizeof(*memory->tickets),
				      "the state of steps", NULL);
	memory->results = device_take_host(&taking, KERNEL_SLOTS * sizeof(*memory->results),
					   "what steps tell");
	memory->progress =
		device_take_host(&taking, sizeof(*memory->progress), "the count of sums");
	take_gradients(engine, &taking);
	take_norms(engine, &taking);
	take_logits(engine, &taking);
	/* By now libraries have loaded what they need. */
	device_measure(engine->device);
	memory->scratch = device_take(&taking, scratch_bytes(engine),
				      "scratch memory of convolutions", smaller_batch);
	snprintf(what, sizeof(what), "activations of %zu samples", engine->setup.batch);
	memory->areas = device_take(&taking, memory->areas_bytes, what, smaller_batch);
	return taking.status;
}

/* --- Opening ----------------------------------------------------------------------------- */

#define EPSILON 1e-5f
#define MOMENTUM 0.1f

/* Of areas: what vector loads and cuDNN's fastest plans want, and a line of the cache. */
enum { ALIGNMENT = 256 };

/* An evaluation may need so much although training does not. */
static const size_t least_memory = (size_t)32 << 20;

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
	/* Whether f32 is multiplied with all of its digits, and how to have it otherwise. */
	snprintf(engine->describe, sizeof(engine->describe), "%s, CUDA %d.%d, sm_%d%d%s",
		 layers_describe(), info->cuda / 1000, info->cuda % 1000 / 10, info->major,
		 info->minor,
		 setup->type != DDP_F32 ? ""
		 : setup->tf32		? ", f32 as tf32 (exact: --amp=off)"
					: ", exact f32 (faster: --amp=tf32)");
	return 0;
}

/* --- Operations --------------------------------------------------------------------------------- */

/* The test set is evaluated in pieces that need no more memory than training. */
static void place(struct engine *engine)
{
	const struct engine_setup *setup = &engine->setup;
	size_t most = setup->test ? setup->test_batch : 0, limit, need, pieces = 1;
	size_t *bytes = &engine->memory.areas_bytes;

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

/* A max-pool that masks for a layer's ReLU has the gradient of that layer's bias at hand. */
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

		if (op->kind == PROGRAM_NORM)
			create_norm(engine, op, &engine->units[i]);
		else if (op->kind == PROGRAM_DROPOUT)
			create_dropout(op, &engine->units[i]);
	}
	status = cuda_plans_open(engine, error);
	if (status == 0)
		share_sums(engine);
	return status;
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
	size_t most = larger(engine->setup.batch, engine->piece);
	char what[64];

	for (int i = 0; i < engine->program->value_count; i++) {
		if (most * engine->program->values[i].elements > UINT32_MAX)
			return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
					     "batches of %zu samples: a layer's values are more "
					     "than 2^32; lower --batch",
					     most);
	}
	snprintf(what, sizeof(what), "activations of %zu samples", engine->setup.batch);
	return device_may(engine->device, engine->memory.areas_bytes, what, smaller_batch, error);
}

/* --- Sets --------------------------------------------------------------------------------------- */

static int open_set(struct engine *engine, struct data **data, struct set *set,
		    struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	const struct ddp_world *world = ddp_world(setup->ddp);
	uint64_t samples = set_info(set)->samples, ranks = (uint64_t)engine->ranks;
	bool train = data == &engine->train, foretold = train && setup->parts == 0;
	const struct data_setup wanted = {
		.device = engine->device,
		.set = set,
		.net = setup->model->graph->net,
		.optim = train ? setup->optim : NULL,
		.batch = train ? setup->batch : engine->piece,
		.samples = foretold ? (samples + ranks - 1) / ranks : 0,
		.first = samples * (uint64_t)world->local_rank / (uint64_t)world->local_size,
		.ranks = engine->ranks,
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
	int status = open_device(engine, error);

	if (status < 0 || (status = compile(engine, error)) < 0 ||
	    (status = check_size(engine, error)) < 0 ||
	    (status = create_units(engine, error)) < 0 ||
	    (engine->ranks > 1 && (status = cuda_join(engine->setup.ddp, error)) < 0))
		return status;
	if (engine->setup.parts > 0)
		engine->manner = CUDA_BY_CALL;
	else if (engine->ranks == 1 || ddp_device_captures(engine->setup.ddp))
		engine->manner = CUDA_ONE_GRAPH;
	else
		engine->manner = engine->sync_norm ? CUDA_BY_CALL : CUDA_TWO_GRAPHS;
	status = cuda_memory_open(engine, error);
	return status == 0 ? open_sets(engine, error) : status;
}

/* What CUDA and its libraries hold: they wait for the device before they give it back. */
static void close_device(struct engine *engine)
{
	for (int i = 0; engine->units && i < engine->program->op_count; i++)
		layer_destroy(engine->units[i].layer);
	layers_close(engine->layers);
	if (engine->sync_norm) {
		cuda_sums_free(engine, engine->memory.gathered);
		cuda_sums_free(engine, engine->memory.sums);
	}
	cuda_sums_free(engine, engine->memory.gradients);
	device_close(engine->device);
}

/*
 * Graphs go first: they hold the communicator's collectives, and one that is under way is freed when
 * it has ended. A world that is lost gives its sums up then, whereby they end. Behind one that never does the
 * rest is left to the end of the process.
 */
static void cuda_close(struct engine *engine)
{
	if (!engine)
		return;
	/* NCCL gives nothing up before the graphs that hold its collectives are gone. */
	if (engine->ranks > 1 && !engine->broken)
		engine->broken = ddp_device_check(engine->setup.ddp) < 0;
	if (!engine->broken)
		cuda_wait(engine, NULL);
	for (int i = 0; i < CUDA_GRAPHS; i++)
		device_graph_destroy(engine->graphs[i]);
	if (engine->broken && engine->ranks > 1)
		(void)ddp_device_free(engine->setup.ddp, NULL);
	if (device_rests(engine->device))
		close_device(engine);
	program_destroy(engine->program);
	free(engine->train);
	free(engine->test);
	free(engine->labels);
	free(engine->units);
	ddp_text_free(&engine->plans.taken);
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

/* --- The class --------------------------------------------------------------------------- */

static const char *cuda_describe(const struct engine *engine)
{
	return engine->describe;
}

static const char *cuda_choices(const struct engine *engine)
{
	return engine->plans.taken.data ? engine->plans.taken.data : "";
}

static const char *cuda_device(const struct engine *engine)
{
	return engine->name;
}

static uint64_t cuda_used(const struct engine *engine)
{
	size_t most = 0;

	device_used(engine->device, &most);
	return most + device_context(engine->device);
}

size_t cuda_nodes(const struct engine *engine)
{
	size_t nodes = 0;

	for (int i = 0; i < CUDA_GRAPHS; i++)
		nodes += engine->graphs[i] ? device_graph_nodes(engine->graphs[i]) : 0;
	return nodes;
}

const struct engine_class engine_cuda = {
	.head = {DDP_MODULE_MAGIC, ENGINE_VERSION, sizeof(struct engine_class), "engine", "cuda",
		 PACKAGE_VERSION},
	.device_gradients = true,
	.available = device_available,
	.devices = device_list,
	.join = cuda_join,
	.open = cuda_open,
	.expect = cuda_expect,
	.step = cuda_step,
	.settle = cuda_settle,
	.evaluate = cuda_evaluate,
	.push = cuda_push,
	.pull = cuda_pull,
	.describe = cuda_describe,
	.choices = cuda_choices,
	.device = cuda_device,
	.memory = cuda_used,
	.close = cuda_close,
};

/* What ddp_module_open() looks for. */
extern const struct engine_class ddp_module
	__attribute__((alias("engine_cuda"), visibility("default")));
