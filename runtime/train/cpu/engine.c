/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.c - the CPU engine: threads, memory plan, step and evaluation
 */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/type.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "engine-private.h"

/* --- Open -------------------------------------------------------------------------------- */

enum { PAGE = 2 << 20 };

/* number of bytes that fit into the second-level cache of every CPU with AVX2 or more */
enum { CACHE = 1 << 20 };

/* An evaluation is always allowed this much memory, even if training needs less. */
static const size_t test_memory_min = (size_t)8 << 20;

/* Allocates the memory, in huge pages if the system provides them on request. */
static int allocate(struct engine *engine, struct ddp_error *error)
{
	size_t bytes = (engine->bytes + PAGE - 1) / PAGE * PAGE;

	engine->memory = aligned_alloc(PAGE, bytes ? bytes : PAGE);
	if (!engine->memory)
		return ddp_error_set(error, DDP_ERR_MEMORY,
				     "the CPU engine is out of memory. Use a smaller --batch.");
	engine->scratch = ddp_xcalloc(4 * engine->channels + 1, sizeof(float), "BatchNorm");
	madvise(engine->memory, bytes, MADV_HUGEPAGE);
	memset(engine->memory, 0, engine->bytes);
	return 0;
}

static int create_math(struct engine *engine, int index, struct ddp_error *error)
{
	const struct program_op *op = &engine->program->ops[index];
	struct math_options options = engine_math_options(engine, op);
	struct unit *unit = &engine->units[index];
	int status = engine->math->create(&unit->math, &options, error);

	unit->window = engine_window(op->node);
	if (status == 0 && !engine->setup.exact && engine->math->choose)
		engine_choose(engine, op, unit->math);
	if (op->listed)
		unit->list = kernel_list_create(&unit->window, engine->setup.batch);
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
	if (op->kind == PROGRAM_DROPOUT)
		dropout_set(&unit->dropout, op->node->layer->rate, op->layer);
	if (op->kind == PROGRAM_NORM) {
		unit->mean = ddp_xcalloc(2 * channels, sizeof(float), "BatchNorm");
		unit->inverse = unit->mean + channels;
		if (engine->setup.sync_norm && ddp_world(engine->setup.ddp)->size > 1)
			engine->sync_norm = true;
	}
	return 0;
}

static bool engine_has_list(const struct graph_node *node)
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
		.keep = true,
		.wide = true,
	};
}

static int compile(struct engine *engine, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	struct program_options options;
	int status = setup->exact ? 0 : engine_choose_level(engine, error);

	if (status < 0)
		return status;
	options = engine_program_options(setup->type, !setup->no_dropout,
					 !setup->exact && choose_lists(setup->type, engine->level));
	engine->program = program_create(setup->model->graph, &options);
	return 0;
}

static int create_units(struct engine *engine, struct ddp_error *error)
{
	int status = 0;

	engine->units = ddp_xcalloc((size_t)engine->program->op_count, sizeof(*engine->units),
				    "the CPU engine");
	engine->bytes =
		program_place_both(engine->program, engine->setup.batch, engine->setup.test_batch,
				   test_memory_min, &engine->piece);
	for (int i = 0; status == 0 && i < engine->program->op_count; i++)
		status = create_unit(engine, i, error);
	return status == 0 ? allocate(engine, error) : status;
}

/*
 * Threads of a rank: OMP_NUM_THREADS, which srun --ddp and torchrun set. Without that variable: the
 * CPUs that the rank may use, divided by the number of ranks of the node that share some of these
 * CPUs.
 */
struct seat {
	int node;
	cpu_set_t cpus;
};

static int count_sharers(const struct seat *seats, int count, const struct seat *mine)
{
	int found = 0;

	for (int i = 0; i < count; i++) {
		cpu_set_t both;

		CPU_AND(&both, &seats[i].cpus, &mine->cpus);
		found += seats[i].node == mine->node && CPU_COUNT(&both) > 0;
	}
	return found > 0 ? found : 1;
}

/* Returns the first number in OMP_NUM_THREADS, 8 for "8,2". Returns 0 if there is none. */
static int read_omp_num_threads(void)
{
	const char *text = getenv("OMP_NUM_THREADS");
	long number = text ? strtol(text, NULL, 10) : 0;

	return number > 0 && number <= CPU_SETSIZE ? (int)number : 0;
}

int engine_threads(struct ddp *ddp, int *threads, struct ddp_error *error)
{
	const struct ddp_world *world = ddp_world(ddp);
	struct seat mine = {.node = world->node_rank};
	struct seat *seats = ddp_xcalloc((size_t)world->size, sizeof(*seats), "the CPU engine");
	int status, omp_threads = read_omp_num_threads(), cpus;

	CPU_ZERO(&mine.cpus);
	/*
	 * If the machine has more CPUs than cpu_set_t holds, use one thread, unless OMP_NUM_THREADS
	 * is set.
	 */
	if (sched_getaffinity(0, sizeof(mine.cpus), &mine.cpus) < 0)
		CPU_SET(0, &mine.cpus);
	status = ddp_all_gather(ddp, &mine, seats, sizeof(mine));
	cpus = CPU_COUNT(&mine.cpus) / count_sharers(seats, world->size, &mine);
	*threads = cpus > 1 ? cpus : 1;
	if (omp_threads > 0)
		*threads = omp_threads;
	free(seats);
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(ddp)) : 0;
}

/*
 * Limits the threads to the CPUs of this process, as more threads only wait for each other. With
 * virtual ranks the results depend on the number of threads, so that number is kept.
 */
static void limit_threads(struct engine *engine)
{
	const struct engine_setup *setup = &engine->setup;
	char text[128];
	cpu_set_t set;
	int cpus;

	if (setup->parts > 0 || sched_getaffinity(0, sizeof(set), &set) < 0)
		return;
	cpus = CPU_COUNT(&set);
	if (engine->threads <= cpus)
		return;
	snprintf(text, sizeof(text),
		 "rank 0 uses %d thread%s instead of %d, because it has %d CPU%s", cpus,
		 cpus == 1 ? "" : "s", engine->threads, cpus, cpus == 1 ? "" : "s");
	if (setup->say)
		setup->say(setup->listener, text);
	engine->threads = cpus;
}

static int check(const struct engine *engine, struct ddp_error *error)
{
	if (engine->setup.type != DDP_F32 && engine->setup.type != DDP_BF16)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "a CPU trains in f32 or bf16, not in %s. Use --amp=bf16 or "
				     "--amp=off.",
				     ddp_type_name(engine->setup.type));
	if (engine->setup.tf32)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"--amp=tf32 needs a GPU. Use --amp=bf16 or --amp=off on CPUs.");
	if (engine->math->has && !engine->math->has(engine->setup.type, error))
		return DDP_ERR_UNSUPPORTED;
	return 0;
}

static void describe(struct engine *engine)
{
	snprintf(engine->describe, sizeof(engine->describe), "%s, kernels for %s, %d thread%s",
		 engine->math->describe(), engine->kernels->name, engine->threads,
		 engine->threads == 1 ? "" : "s");
}

static void engine_destroy(struct engine *engine)
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
	free(engine);
}

int engine_create(struct engine **result, const struct engine_setup *setup, const struct math *math,
		  struct ddp_error *error)
{
	struct engine *engine = ddp_xcalloc(1, sizeof(*engine), "the CPU engine");
	int status;

	*result = NULL;
	engine->setup = *setup;
	engine->math = math;
	engine->stale = true;
	engine->threads = setup->threads;
	engine->kernels = kernels_choose(error);
	status = engine->kernels ? check(engine, error) : DDP_ERR_ENVIRONMENT;
	if (status == 0 && engine->threads == 0)
		status = engine_threads(setup->ddp, &engine->threads, error);
	if (status == 0) {
		limit_threads(engine);
		status = compile(engine, error);
	}
	if (status == 0)
		status = create_units(engine, error);
	if (status < 0) {
		engine_destroy(engine);
		return status;
	}
	describe(engine);
	*result = engine;
	return 0;
}

static int cpu_open(struct engine **engine, const struct engine_setup *setup,
		    struct ddp_error *error)
{
	struct ddp_error missing;
	const struct math *math;

	/*
	 * OpenMP threads that spin while they wait would take CPU time from other ranks. libgomp
	 * reads this variable when the module, and libgomp with it, is loaded.
	 */
	setenv("OMP_WAIT_POLICY", "passive", 0);
	math = ddp_module_open("onednn", "math", MATH_VERSION, sizeof(*math), NULL, &missing);
	if (!math) {
		ddp_log(setup->ddp, DDP_LEVEL_WARNING, "engine",
			"training without oneDNN is many times slower. Install libdnnl and "
			"ddp_onednn.so (%s).",
			missing.text);
		math = &math_plain;
	}
	return engine_create(engine, setup, math, error);
}

/* --- Step -------------------------------------------------------------------------------------- */

static void read_batch(struct engine *engine, struct set *set, const struct batch *batch)
{
	batch_images(engine->setup.model->graph->net, set, batch,
		     engine_value(engine, PROGRAM_IMAGE), engine->setup.type);
	batch_labels(set, batch, engine_area(engine, engine->program->labels));
}

/* Returns the program's last value for [count] images, converted to f32. */
static float *logits(const struct engine *engine, size_t count)
{
	const struct program *program = engine->program;
	float *wide = engine_area(engine, program->logits);
	const struct program_value *result = program_result(program);

	if (program->logits != result->data)
		engine->kernels->widen(engine_area(engine, result->data), wide,
				       count * result->elements);
	return wide;
}

/* Computes loss and hits for the step vector, and the gradient of the last value. */
static void loss(const struct engine *engine, size_t count, size_t global)
{
	const struct program *program = engine->program;
	const struct program_value *result = program_result(program);
	float *gradients = engine_area(engine, program->logit_gradients);
	float *word = engine->setup.model->step_vector;
	uint64_t hits = 0;
	double sum;

	sum = kernels_loss(logits(engine, count), engine_area(engine, program->labels), count,
			   result->elements, engine->setup.smoothing, 1.0f / (float)global,
			   gradients, &hits);
	if (program->logit_gradients != result->gradient)
		engine->kernels->narrow(gradients, engine_area(engine, result->gradient),
					count * result->elements);
	word[MODEL_LOSS] = (float)sum;
	word[MODEL_HITS] = (float)hits;
	word[MODEL_SAMPLES] = (float)count;
}

/*
 * Waits until the gradients are summed over all ranks. With virtual ranks, the sums start when the
 * last virtual rank has run.
 */
static int finish(struct engine *engine, struct ddp_error *error)
{
	struct model *model = engine->setup.model;
	double begin = ddp_seconds();
	int status = ddp_gradients_ready(model->gradients, 0);

	if (status == 0)
		status = ddp_gradients_finish(model->gradients);
	engine->seconds[ENGINE_REDUCE] += ddp_seconds() - begin;
	return status < 0 ? engine_fail(engine, status, error) : 0;
}

/* Reads the summed step vector and clears it, so that clipping does not count it as a gradient. */
static void read_step_vector(const struct engine *engine, struct engine_step *done)
{
	struct model *model = engine->setup.model;

	done->steps = 1;
	done->stop = model->step_vector[MODEL_STOP] > 0;
	done->loss = (double)model->step_vector[MODEL_LOSS];
	done->hits = (uint64_t)(model->step_vector[MODEL_HITS] + 0.5f);
	done->samples = (uint64_t)(model->step_vector[MODEL_SAMPLES] + 0.5f);
	memset(model->step_vector, 0, MODEL_STEP_SIZE * sizeof(float));
}

/*
 * Updates the parameters. If the ranks share the parameters in memory, each rank updates its part
 * of them and waits for the other ranks.
 */
static int optimize(struct engine *engine, uint64_t step, double rate, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	const struct ddp_world *world = ddp_world(setup->ddp);
	struct model *model = setup->model;
	size_t begin = 0, end = model->count;
	float *slots[MODEL_SLOTS];
	double waited;
	int status;

	if (setup->clip > 0)
		ddp_gradients_clip(model->gradients, setup->clip);
	if (model->shared)
		model_part(model->count, world->rank, world->size, &begin, &end);
	for (int i = 0; i < MODEL_SLOTS; i++)
		slots[i] = model->slots[i] ? model->slots[i] + begin : NULL;
	optim_step(setup->optim, step, rate, model->values + begin, model->grads + begin, slots,
		   end - begin);
	engine->stale = true;
	if (!model->shared)
		return 0;
	waited = ddp_seconds();
	status = ddp_barrier(setup->ddp);
	engine->seconds[ENGINE_REDUCE] += ddp_seconds() - waited;
	return status < 0 ? engine_fail(engine, status, error) : 0;
}

/* Forward and backward pass over the [batch] of one part. */
static int pass(struct engine *engine, const struct batch *batch, size_t global, bool stop,
		struct ddp_error *error)
{
	double begin = ddp_seconds();
	int status;

	read_batch(engine, engine->setup.train, batch);
	engine->seconds[ENGINE_DATA] += ddp_seconds() - begin;
	engine->setup.model->step_vector[MODEL_STOP] = stop;
	status = engine_forward(engine, batch, batch->count, error);
	if (status == 0) {
		loss(engine, batch->count, global);
		status = engine_backward(engine, batch->count, error);
	}
	return status < 0 ? status : finish(engine, error);
}

static int cpu_step(struct engine *engine, const struct batch *batch, size_t global, uint64_t step,
		    double rate, bool stop, struct engine_step *done, struct ddp_error *error)
{
	size_t parts = engine->setup.parts > 0 ? engine->setup.parts : 1;
	double begin = ddp_seconds(), *seconds = engine->seconds;
	struct batch part = *batch;
	int status = 0;

	memset(done, 0, sizeof(*done));
	memset(seconds, 0, sizeof(engine->seconds));
	engine->mode = PROGRAM_TRAIN;
	part.count /= parts;
	for (size_t i = 0; status == 0 && i < parts; i++) {
		engine->part = i;
		status = pass(engine, &part, global, stop, error);
		part.indices += part.count;
		part.orders += part.count;
	}
	if (status == 0) {
		read_step_vector(engine, done);
		status = optimize(engine, step, rate, error);
	}
	if (status < 0)
		return status;
	seconds[ENGINE_COMPUTE] =
		ddp_seconds() - begin - seconds[ENGINE_DATA] - seconds[ENGINE_REDUCE];
	memcpy(done->seconds, seconds, sizeof(done->seconds));
	return 0;
}

/* --- Evaluation and other methods ----------------------------------------------------------------- */

static int evaluate_piece(struct engine *engine, const struct batch *batch,
			  struct ddp_evaluation *evaluation, struct ddp_error *error)
{
	int status;

	read_batch(engine, engine->setup.test, batch);
	status = engine_forward(engine, NULL, batch->count, error);
	if (status < 0)
		return status;
	ddp_evaluation_add(evaluation, logits(engine, batch->count),
			   engine_area(engine, engine->program->labels), batch->count,
			   program_result(engine->program)->elements);
	return 0;
}

static int cpu_evaluate(struct engine *engine, const struct batch *batch,
			struct ddp_evaluation *evaluation, struct ddp_error *error)
{
	size_t pieces = (batch->count + engine->piece - 1) / engine->piece, done = 0;
	int status = 0;

	engine->mode = PROGRAM_TEST;
	for (size_t i = 0; status == 0 && i < pieces; i++) {
		struct batch part = *batch;

		part.count = (batch->count - done + pieces - i - 1) / (pieces - i);
		part.indices += done;
		part.orders += done;
		status = evaluate_piece(engine, &part, evaluation, error);
		done += part.count;
	}
	engine->mode = PROGRAM_TRAIN;
	return status;
}

static int cpu_push(struct engine *engine, struct ddp_error *error)
{
	(void)error;
	engine->stale = true;
	return 0;
}

/* The engine computes in the model's host memory. */
static int cpu_pull(struct engine *engine, struct ddp_error *error)
{
	(void)engine;
	(void)error;
	return 0;
}

static const char *cpu_describe(const struct engine *engine)
{
	return engine->describe;
}

static int cpu_threads(const struct engine *engine)
{
	return engine->threads;
}

const struct engine_class engine_cpu = {
	.head = {DDP_MODULE_MAGIC, ENGINE_VERSION, sizeof(struct engine_class), "engine", "cpu",
		 PACKAGE_VERSION},
	.open = cpu_open,
	.step = cpu_step,
	.evaluate = cpu_evaluate,
	.push = cpu_push,
	.pull = cpu_pull,
	.describe = cpu_describe,
	.threads = cpu_threads,
	.close = engine_destroy,
};
