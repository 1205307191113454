/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.c - steps, evaluation, and copies of the model between host and device
 *
 * A step is enqueued, and its result is read some steps later. The host waits for the device only
 * to limit the number of unfinished steps. While the host waits, it polls the results in host
 * memory. If no result arrives for a while, the host checks the device for errors. Finally the host
 * waits through libddp, which has a time limit and names missing ranks.
 */
#include "config.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/watch.h"
#include "cuda-engine.h"

/* --- Parts of a step ---------------------------------------------------------------------------- */

/* Enqueues the optimizer. The norm is computed only for clipping and loss scaling. */
static int optimize(struct engine *engine, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	const struct cuda_memory *memory = &engine->memory;
	bool needs_norm = setup->clip > 0 || engine->scaling;
	struct kernel_scratch scratch = cuda_scratch(engine);
	size_t count = setup->model->count;
	struct kernel_end end = {.step = engine->train->step,
				 .norm2 = needs_norm ? memory->norm2 : NULL,
				 .clip = setup->clip,
				 .word = memory->gradients + count,
				 .results = memory->results};
	void *stream = cuda_stream(engine);

	if (needs_norm)
		kernel_norm2(stream, memory->gradients, count, memory->state, &scratch,
			     memory->norm2);
	kernel_optimize(stream, setup->optim, &end, memory->values, memory->gradients,
			memory->slots, memory->narrow, count, setup->type);
	return device_check(engine->device, "the optimizer", error);
}

/* Makes COMPUTE wait until all gradients are summed. */
static int finish_sums(struct engine *engine, struct ddp_error *error)
{
	return cuda_fail(engine,
			 ddp_gradients_finish_on(engine->setup.model->gradients,
						 cuda_stream(engine)),
			 error);
}

/* Enqueues the kernels of a step from the gathering of images to the gradients. */
static int backwards(struct engine *engine, struct ddp_error *error)
{
	int status;

	engine->mode = PROGRAM_TRAIN;
	engine->batch = engine->setup.batch;
	engine->block = engine->train->block;
	data_gather(engine->train, engine->batch, cuda_value(engine, PROGRAM_IMAGE),
		    engine->setup.type);
	status = cuda_forward(engine, error);
	if (status < 0)
		return status;
	status = cuda_backward(engine, error);
	return status == 0 && !engine->by_host ? finish_sums(engine, error) : status;
}

/* Enqueues all kernels and sums of a step on COMPUTE and REDUCE. */
static int enqueue(struct engine *engine, struct ddp_error *error)
{
	int status = backwards(engine, error);

	return status == 0 ? optimize(engine, error) : status;
}

static int capture(struct engine *engine, struct ddp_error *error)
{
	struct device_graph *graph = NULL;
	int status = device_capture_begin(engine->device, error), end;

	if (status < 0)
		return status;
	status = enqueue(engine, error);
	end = device_capture_end(engine->device, &graph, status < 0 ? NULL : error);
	if (status == 0)
		status = end;
	if (status == 0)
		engine->graph = graph;
	else
		device_graph_destroy(graph);
	return status;
}

/*
 * Launches a step. The first step is enqueued without a graph, so that libraries load and NCCL
 * connects. Both are impossible during a capture.
 */
static int launch(struct engine *engine, struct ddp_error *error)
{
	int status = 0;

	if (engine->launched == 0 || engine->by_call)
		return enqueue(engine, error);
	if (!engine->graph)
		status = capture(engine, error);
	return status == 0 ? device_launch(engine->device, engine->graph, error) : status;
}

/* --- Wait for results ---------------------------------------------------------------------------- */

/* seconds of polling without sleep [spin], and of polling until libddp waits instead */
static const double spin = 200e-6, poll_limit = 1;
enum { POLL_PAUSE_NS = 50000 /* nanoseconds */ };

/* Sets engine->broken if [status] is an error. Returns [status]. */
static int break_engine(struct engine *engine, int status)
{
	if (status < 0)
		engine->broken = true;
	return status;
}

int cuda_wait(struct engine *engine, struct ddp_error *error)
{
	struct ddp_error inner;
	int status;

	if (engine->ranks > 1) {
		status = ddp_device_wait(engine->setup.ddp, cuda_stream(engine));
		return break_engine(engine, cuda_fail(engine, status, error));
	}
	status = device_wait(engine->device, DEVICE_COMPUTE, &inner);
	if (status == 0)
		return 0;
	if (engine->launched > 0)
		ddp_error_set(error, status, "%.900s (%llu steps have ended, %llu were started)",
			      inner.text, (unsigned long long)engine->results_read,
			      (unsigned long long)engine->launched);
	else
		ddp_error_set(error, status, "%s", inner.text);
	return break_engine(engine, status);
}

/*
 * Pauses a polling loop that started at [begin]. After one second, calls cuda_wait() instead and
 * returns 1. The result must have arrived by then.
 */
static int pause_for(struct engine *engine, double begin, struct ddp_error *error)
{
	double waited = ddp_seconds() - begin;
	struct timespec nap = {0, POLL_PAUSE_NS};
	int status;

	if (waited >= poll_limit) {
		status = cuda_wait(engine, error);
		return status < 0 ? status : 1;
	}
	if (waited < spin)
		sched_yield();
	else
		nanosleep(&nap, NULL);
	return 0;
}

/*
 * Adds the result of a step to engine->held. If the step was skipped, its gradients have
 * overflowed, so its loss is added only if the loss is finite.
 */
static void add_result(struct engine *engine, const struct kernel_result *result)
{
	struct engine_step *held = &engine->held;
	double loss = (double)result->word[MODEL_LOSS];

	held->steps++;
	held->skipped += result->skipped != 0;
	held->stop = held->stop || result->word[MODEL_STOP] > 0;
	if (isfinite(loss) || !result->skipped)
		held->loss += loss;
	held->hits += (uint64_t)(result->word[MODEL_HITS] + 0.5f);
	held->samples += (uint64_t)(result->word[MODEL_SAMPLES] + 0.5f);
}

/*
 * Returns an error if a sum was aborted, after which the stream continues with wrong values. With a
 * graph no check is needed: a failed sum stops the step, so no result arrives.
 */
static int check_sums(struct engine *engine, struct ddp_error *error)
{
	if (!engine->by_call || engine->setup.parts > 0)
		return 0;
	return cuda_fail(engine, ddp_device_check(engine->setup.ddp), error);
}

/* If the result of the oldest step under way has arrived, reads it. */
static bool collect(struct engine *engine)
{
	uint64_t sequence = engine->results_read + 1;
	const struct kernel_result *result = &engine->memory.results[sequence % KERNEL_SLOTS];

	/* The device writes [sequence] last, so the other members are complete. */
	if (__atomic_load_n(&result->sequence, __ATOMIC_ACQUIRE) != sequence)
		return false;
	engine->last = *result;
	engine->updates = result->updates;
	engine->results_read = sequence;
	return true;
}

static int wait_for_one(struct engine *engine, struct ddp_error *error)
{
	double begin = ddp_seconds();
	int ended = 0;

	while (!collect(engine)) {
		/* If no result has arrived for some time, check the device for errors. */
		int status = ddp_seconds() - begin < spin
				     ? 0
				     : device_ended(engine->device, DEVICE_COMPUTE, error);

		if (status < 0)
			return status;
		if (ended > 0)
			return ddp_error_set(error, DDP_ERR_ENGINE,
					     "CUDA engine: a step has ended without a result");
		ended = pause_for(engine, begin, error);
		if (ended < 0)
			return ended;
	}
	ended = check_sums(engine, error);
	if (ended < 0)
		return ended;
	add_result(engine, &engine->last);
	return 0;
}

/* Waits until at most [most] steps are under way. Adds their results. */
static int catch_up(struct engine *engine, size_t most, struct ddp_error *error)
{
	int status = 0;

	while (status == 0 && engine->launched - engine->results_read > most)
		status = wait_for_one(engine, error);
	return break_engine(engine, status);
}

/* --- Data of a step ----------------------------------------------------------------------------- */

/* Returns the state for the first step after a push. That step is optimizer step [step]. */
static struct kernel_state first_state(const struct engine *engine, uint64_t step)
{
	const struct ddp_scaler *scaler = engine->setup.scaler;
	struct kernel_state state = {.scale = 1, .updates = step - 1};

	if (engine->scaling) {
		state.scale = scaler->scale;
		state.growth = scaler->growth;
		state.backoff = scaler->backoff;
		state.interval = scaler->interval;
		state.good_steps = scaler->good_steps;
	}
	return state;
}

/* --- Methods -------------------------------------------------------------------------------------- */

static int begin_step(struct engine *engine, const struct batch *batch,
		      const struct data_step *step, struct ddp_error *error)
{
	int status = data_send(engine->train, batch, step, error);

	return status < 0 ? status : launch(engine, error);
}

/* --- Virtual ranks ------------------------------------------------------------------------------- */

/*
 * Gradients of virtual ranks are summed in host memory. There, ddp_gradients gives equal bits on
 * any number of ranks, over shared memory, TCP and MPI, even if ranks share GPUs. Sums over NCCL
 * would need exact integer sums in kernels, device memory for the gradients of all virtual ranks,
 * and a fallback without NCCL. The cost of host memory is the copy to the host and back. Compared
 * to these copies launches are cheap, so a pass is enqueued without a graph, and the host waits for
 * each pass.
 */

/* Copies gradients and the step vector from the device to the model's memory, or back ([up]). */
static int copy_gradients(struct engine *engine, bool up, struct ddp_error *error)
{
	float *device = engine->memory.gradients, *host;
	size_t count;

	host = ddp_gradients_all(engine->setup.model->gradients, &count);
	return device_copy(engine->device, DEVICE_COMPUTE, up ? device : host, up ? host : device,
			   count * sizeof(float), error);
}

/*
 * Computes one virtual rank's gradients and adds them to the sums in host memory. Adds the duration
 * of these sums to [reduce].
 */
static int pass(struct engine *engine, double *reduce, struct ddp_error *error)
{
	double begin;
	int status;

	engine->by_host = true;
	status = backwards(engine, error);
	engine->by_host = false;
	/*
	 * Wait with a time limit before the copy, because a copy to memory that is not pinned waits
	 * in the driver without a limit.
	 */
	if (status == 0)
		status = cuda_wait(engine, error);
	begin = ddp_seconds();
	if (status == 0)
		status = copy_gradients(engine, false, error);
	if (status == 0)
		status = cuda_fail(engine, ddp_gradients_finish(engine->setup.model->gradients),
				   error);
	*reduce += ddp_seconds() - begin;
	return status;
}

/*
 * Runs a step over [batch], which has the samples of all virtual ranks, one virtual rank after the
 * other. All virtual ranks can use the same slot (data.h), because pass() waits for the device.
 */
static int begin_parts(struct engine *engine, const struct batch *batch,
		       const struct data_step *step, double *reduce, struct ddp_error *error)
{
	size_t parts = engine->setup.parts;
	struct batch part = *batch;
	int status = 0;

	part.count /= parts;
	for (engine->part = 0; status == 0 && engine->part < parts; engine->part++) {
		status = data_send(engine->train, &part, step, error);
		if (status == 0)
			status = pass(engine, reduce, error);
		part.indices += part.count;
		part.orders += part.count;
	}
	if (status == 0)
		status = copy_gradients(engine, true, error);
	return status == 0 ? optimize(engine, error) : status;
}

static void return_results(struct engine *engine, struct engine_step *done)
{
	*done = engine->held;
	memset(&engine->held, 0, sizeof(engine->held));
}

int cuda_step(struct engine *engine, const struct batch *batch, size_t global, uint64_t step,
	      double rate, bool stop, struct engine_step *done, struct ddp_error *error)
{
	size_t lag = engine->by_call ? CUDA_LAG_BY_CALL : CUDA_LAG;
	double begin = ddp_seconds(), begun = begin, reduce = 0;
	const struct kernel_state state = first_state(engine, step);
	struct data_step data = {.sequence = engine->launched + 1,
				 .global = global,
				 .rate = rate,
				 .stop = stop,
				 .state = engine->pushed ? &state : NULL};
	uint64_t under_way;
	int status;

	memset(done, 0, sizeof(*done));
	if (engine->pushed)
		engine->updates = state.updates;
	/* Without a loss scale no step is skipped, so the number of optimizer steps is known. */
	under_way = engine->launched - engine->results_read;
	data.updates = engine->updates + (engine->scaling ? 0 : under_way);
	data.unsure = engine->scaling ? under_way : 0;
	if (engine->setup.parts > 0) {
		status = begin_parts(engine, batch, &data, &reduce, error);
	} else {
		status = begin_step(engine, batch, &data, error);
		begun = ddp_seconds();
	}
	if (status < 0)
		return break_engine(engine, status);
	engine->launched = data.sequence;
	engine->pushed = false;
	status = catch_up(engine, lag, error);
	if (status < 0)
		return status;
	return_results(engine, done);
	done->seconds[ENGINE_DATA] = begun - begin;
	done->seconds[ENGINE_REDUCE] = reduce;
	done->seconds[ENGINE_COMPUTE] = ddp_seconds() - begun - reduce;
	return 0;
}

int cuda_settle(struct engine *engine, struct engine_step *done, struct ddp_error *error)
{
	double begin = ddp_seconds();
	int status = catch_up(engine, 0, error);

	memset(done, 0, sizeof(*done));
	if (status < 0)
		return status;
	return_results(engine, done);
	done->seconds[ENGINE_COMPUTE] = ddp_seconds() - begin;
	/* Update the scaler, unless no step has run since the last push. */
	if (engine->scaling && engine->last.sequence > 0 && !engine->pushed) {
		engine->setup.scaler->scale = engine->last.scale;
		engine->setup.scaler->good_steps = engine->last.good_steps;
	}
	return 0;
}

/* --- Push and pull ------------------------------------------------------------------------------ */

/* Copies all arrays of the model to the host or, with [up], to the device. */
static int copy_all(struct engine *engine, bool up, struct ddp_error *error)
{
	const struct model *model = engine->setup.model;
	const struct cuda_memory *memory = &engine->memory;
	const struct {
		float *host, *device;
		size_t count;
	} arrays[] = {
		{model->values, memory->values, model->count},
		{model->slots[0], memory->slots[0], model->count},
		{model->slots[1], memory->slots[1], model->count},
		{model->buffers, memory->buffers, model->buffer_count},
	};
	int status = 0;

	for (size_t i = 0; status == 0 && i < sizeof(arrays) / sizeof(arrays[0]); i++) {
		if (arrays[i].host && arrays[i].count > 0)
			status = device_copy(engine->device, DEVICE_COMPUTE,
					     up ? arrays[i].device : arrays[i].host,
					     up ? arrays[i].host : arrays[i].device,
					     arrays[i].count * sizeof(float), error);
	}
	return status;
}

static int push(struct engine *engine, struct ddp_error *error)
{
	const struct model *model = engine->setup.model;
	const struct cuda_memory *memory = &engine->memory;
	int status = catch_up(engine, 0, error);

	if (status == 0)
		status = copy_all(engine, true, error);
	if (status < 0)
		return status;
	if (memory->narrow)
		kernel_narrow(cuda_stream(engine), memory->values, memory->narrow, model->count,
			      engine->setup.type);
	engine->pushed = true;
	return device_check(engine->device, "the model's values", error);
}

int cuda_push(struct engine *engine, struct ddp_error *error)
{
	return break_engine(engine, push(engine, error));
}

static int pull(struct engine *engine, struct ddp_error *error)
{
	int status = catch_up(engine, 0, error);

	if (status == 0)
		status = cuda_wait(engine, error);
	return status == 0 ? copy_all(engine, false, error) : status;
}

int cuda_pull(struct engine *engine, struct ddp_error *error)
{
	return break_engine(engine, pull(engine, error));
}

/* --- Evaluation --------------------------------------------------------------------------------- */

static int forward(struct engine *engine, const struct batch *batch, struct ddp_error *error)
{
	int status = data_send(engine->test, batch, &(struct data_step){.sequence = 1}, error);

	if (status < 0)
		return status;
	engine->mode = PROGRAM_TEST;
	engine->batch = engine->piece;
	engine->block = engine->test->block;
	data_gather(engine->test, engine->batch, cuda_value(engine, PROGRAM_IMAGE),
		    engine->setup.type);
	return cuda_forward(engine, error);
}

/* Copies the logits of the first [count] images to host memory, and waits for the copy. */
static int fetch(struct engine *engine, size_t count, struct ddp_error *error)
{
	const struct program_value *result = program_result(engine->program);
	const struct cuda_memory *memory = &engine->memory;
	const void *logits = cuda_area(engine, result->data);
	size_t all = count * result->elements;
	int status;

	if (engine->setup.type != DDP_F32) {
		kernel_widen(cuda_stream(engine), logits, memory->logits, all, engine->setup.type);
		logits = memory->logits;
	}
	status = device_copy(engine->device, DEVICE_COMPUTE, memory->logits_host, logits,
			     all * sizeof(float), error);
	return status == 0 ? cuda_wait(engine, error) : status;
}

static int evaluate_piece(struct engine *engine, const struct batch *batch,
			  struct ddp_evaluation *evaluation, struct ddp_error *error)
{
	int status = forward(engine, batch, error);

	if (status == 0)
		status = fetch(engine, batch->count, error);
	if (status < 0)
		return status;
	batch_labels(engine->setup.test, batch, engine->labels);
	ddp_evaluation_add(evaluation, engine->memory.logits_host, engine->labels, batch->count,
			   program_result(engine->program)->elements);
	return 0;
}

int cuda_evaluate(struct engine *engine, const struct batch *batch,
		  struct ddp_evaluation *evaluation, struct ddp_error *error)
{
	int status = 0;

	for (size_t done = 0; status == 0 && done < batch->count;) {
		struct batch part = *batch;
		size_t left = batch->count - done;

		part.count = left < engine->piece ? left : engine->piece;
		part.indices += done;
		part.orders += done;
		status = evaluate_piece(engine, &part, evaluation, error);
		done += part.count;
	}
	engine->mode = PROGRAM_TRAIN;
	return break_engine(engine, status);
}
