/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step is enqueued, and told of some steps later. The host never waits for the device in the loop but to be so
 * many steps ahead and no more. It looks at what the steps tell; only where nothing comes for long is the device
 * asked, and then libddp, which knows how long it may take and who is missing.
 */
#include "config.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/watch.h"
#include "cuda-engine.h"

/* --- What a step is ----------------------------------------------------------------------------- */

/* The norm is asked for where it, or whether it is a number, matters. */
static int optimize(struct engine *engine, struct ddp_error *error)
{
	const struct engine_setup *setup = &engine->setup;
	const struct cuda_memory *memory = &engine->memory;
	bool asked = setup->clip > 0 || engine->scaling;
	struct kernel_scratch scratch = cuda_scratch(engine);
	size_t count = setup->model->count;
	struct kernel_gradients gradients = {memory->gradients, memory->narrow_gradients,
					     memory->marks};
	struct kernel_end end = {.step = engine->train->step,
				 .norm2 = asked ? memory->norm2 : NULL,
				 .clip = setup->clip,
				 .word = memory->gradients + count,
				 .results = memory->results};
	void *stream = cuda_stream(engine);

	if (asked)
		kernel_norm2(stream, &gradients, count, memory->state, &scratch, memory->norm2,
			     setup->type);
	kernel_optimize(stream, setup->optim, &end, memory->values, &gradients, memory->slots,
			memory->narrow, count, setup->type);
	return device_check(engine->device, "the optimizer", error);
}

/* From the images to the gradients. */
static int backwards(struct engine *engine, struct ddp_error *error)
{
	int status;

	engine->mode = PROGRAM_TRAIN;
	engine->batch = engine->setup.batch;
	engine->block = engine->train->block;
	data_gather(engine->train, engine->memory.results, engine->batch,
		    cuda_value(engine, PROGRAM_IMAGE), engine->setup.type);
	status = cuda_forward(engine, error);
	if (status < 0)
		return status;
	status = cuda_backward(engine, error);
	return status == 0 && !engine->sums_later ? cuda_sums_finish(engine, error) : status;
}

/* All of a step on COMPUTE and REDUCE. */
static int enqueue(struct engine *engine, struct ddp_error *error)
{
	int status = backwards(engine, error);

	return status == 0 ? optimize(engine, error) : status;
}

static int capture(struct engine *engine, int (*part)(struct engine *, struct ddp_error *),
		   struct device_graph **result, struct ddp_error *error)
{
	struct device_graph *graph = NULL;
	int status = device_capture_begin(engine->device, error), end;

	if (status < 0)
		return status;
	status = part(engine, error);
	end = device_capture_end(engine->device, &graph, status < 0 ? NULL : error);
	if (status == 0)
		status = end;
	if (status == 0)
		*result = graph;
	else
		device_graph_destroy(graph);
	return status;
}

/*
 * Both graphs, before one is launched: making a graph may wait for the device, which may then wait for no sum that some
 * rank has yet to enqueue.
 */
static int capture_all(struct engine *engine, struct ddp_error *error)
{
	bool two = engine->manner == CUDA_TWO_GRAPHS;
	int status;

	engine->sums_later = two;
	status = capture(engine, two ? backwards : enqueue, &engine->graphs[0], error);
	engine->sums_later = false;
	return status == 0 && two ? capture(engine, optimize, &engine->graphs[1], error) : status;
}

/*
 * The first step of all is done as it comes: libraries load what they need, and NCCL connects, neither
 * of which may be while a graph is made. It counts as any other.
 */
static int launch(struct engine *engine, struct ddp_error *error)
{
	int status = 0;

	if (engine->launched == 0 || engine->manner == CUDA_BY_CALL)
		return enqueue(engine, error);
	if (!engine->graphs[0])
		status = capture_all(engine, error);
	if (status == 0)
		status = device_launch(engine->device, engine->graphs[0], error);
	if (status < 0 || engine->manner == CUDA_ONE_GRAPH)
		return status;
	status = cuda_sums_finish(engine, error);
	return status == 0 ? device_launch(engine->device, engine->graphs[1], error) : status;
}

/* --- Waiting ------------------------------------------------------------------------------------- */

/* Seconds in which a step is looked for without sleep, and in which libddp is not asked. */
static const double spin = 200e-6, patience = 1;
enum { NAP = 50000 /* nanoseconds */ };

int cuda_break(struct engine *engine, int status)
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
		return cuda_break(engine, cuda_told(engine, status, error));
	}
	status = device_wait(engine->device, DEVICE_COMPUTE, &inner);
	if (status == 0)
		return 0;
	if (engine->launched > 0)
		ddp_error_set(error, status, "%.900s; %llu steps have ended, %llu were begun",
			      inner.text, (unsigned long long)engine->told,
			      (unsigned long long)engine->launched);
	else
		ddp_error_set(error, status, "%s", inner.text);
	return cuda_break(engine, status);
}

/*
 * For loops that look whether something has come: give the processor away for a moment. After a second of
 * that since [begin] it is cuda_wait(), and 1 is returned: it must have come then.
 */
static int pause_for(struct engine *engine, double begin, struct ddp_error *error)
{
	double waited = ddp_seconds() - begin;
	struct timespec nap = {0, NAP};
	int status;

	if (waited >= patience) {
		status = cuda_wait(engine, error);
		return status < 0 ? status : 1;
	}
	if (waited < spin)
		sched_yield();
	else
		nanosleep(&nap, NULL);
	return 0;
}

/* A skipped step's loss may be no number: its overflow is what was skipped for. */
static void hold(struct engine *engine, const struct kernel_result *result)
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
 * What a step told counts once no sum is known to have been given up: one that was lets its stream go on. With
 * one graph a sum that fails ends nothing, and nothing is told.
 */
static int trust(struct engine *engine, struct ddp_error *error)
{
	if (engine->manner == CUDA_ONE_GRAPH || engine->setup.parts > 0)
		return 0;
	return cuda_told(engine, ddp_device_check(engine->setup.ddp), error);
}

/* The oldest step that was not told, if it has ended. */
static bool collect(struct engine *engine)
{
	uint64_t sequence = engine->told + 1;
	const struct kernel_result *result = &engine->memory.results[sequence % KERNEL_SLOTS];

	/* It is written last, by the device: what is read after it is of the same step. */
	if (__atomic_load_n(&result->sequence, __ATOMIC_ACQUIRE) != sequence)
		return false;
	engine->last = *result;
	engine->updates = result->updates;
	engine->told = sequence;
	return true;
}

static int wait_for_one(struct engine *engine, struct ddp_error *error)
{
	double begin = ddp_seconds();
	int ended = 0;

	while (!collect(engine)) {
		/* The device is asked when nothing has come for a while: whether it works. */
		int status = ddp_seconds() - begin < spin
				     ? 0
				     : device_ended(engine->device, DEVICE_COMPUTE, error);

		if (status < 0)
			return status;
		if (ended > 0)
			return ddp_error_set(error, DDP_ERR_ENGINE,
					     "CUDA engine: a step has ended and told nothing");
		ended = pause_for(engine, begin, error);
		if (ended < 0)
			return ended;
	}
	ended = trust(engine, error);
	if (ended < 0)
		return ended;
	hold(engine, &engine->last);
	return 0;
}

int cuda_catch_up(struct engine *engine, size_t most, struct ddp_error *error)
{
	int status = 0;

	while (status == 0 && engine->launched - engine->told > most)
		status = wait_for_one(engine, error);
	return cuda_break(engine, status);
}

/* --- What it is told ---------------------------------------------------------------------------- */

/* data_foretell() of training: the device has to have read what was sent before. */
static int foretell(struct engine *engine, const struct batch *batch, size_t each,
		    const double *rates, size_t global, struct ddp_error *error)
{
	int status = engine->told < engine->sent ? cuda_wait(engine, error) : 0;

	return status < 0 ? status
			  : data_foretell(engine->train, batch, each, rates, global, error);
}

int cuda_expect(struct engine *engine, const struct batch *batch, const double *rates,
		struct ddp_error *error)
{
	return cuda_break(engine, foretell(engine, batch, engine->setup.batch, rates, 0, error));
}

/* Of the first step after a push, which is the optimizer's [step]. */
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

/* Step [sequence] goes to the device, unless it is there. */
static int send(struct engine *engine, uint64_t sequence, uint64_t step, struct ddp_error *error)
{
	struct kernel_state state = first_state(engine, step);

	if (engine->anew)
		engine->updates = state.updates;
	else if (engine->train->sent)
		return 0;
	engine->sent = sequence;
	return data_send(engine->train, sequence, engine->updates, engine->anew ? &state : NULL,
			 error);
}

/* --- The calls ------------------------------------------------------------------------------------ */

static int begin_step(struct engine *engine, const struct batch *batch, size_t global,
		      uint64_t step, double rate, bool stop, struct ddp_error *error)
{
	struct data *data = engine->train;
	uint64_t sequence = engine->launched + 1;
	int status = 0;

	if (!data_is_next(data, batch, global, rate))
		status = foretell(engine, batch, batch->count, &rate, global > 0 ? global : 1,
				  error);
	if (status == 0)
		status = send(engine, sequence, step, error);
	if (status < 0)
		return status;
	/* The step reads it when it begins; that which had the slot has been told. */
	engine->memory.results[sequence % KERNEL_SLOTS].stop = stop;
	status = launch(engine, error);
	if (status < 0)
		return status;
	data_pass(data);
	engine->launched = sequence;
	engine->anew = false;
	return 0;
}

/* --- Virtual ranks ------------------------------------------------------------------------------- */

/*
 * Their gradients are summed in host memory. There ddp_gradients has sums that are the same bits on any number of
 * ranks, over shared memory, UCX and MPI, whether ranks share GPUs or not; sums of whole numbers over NCCL would need
 * the same once more in kernels, the gradients of all of a rank's virtual ranks on the device, and a fallback for
 * where there is no NCCL. The price is the way to the host and back. Next to it launches cost little, so a
 * pass is enqueued call by call, without a graph, and behind each the host waits.
 */

/* What lies in the device's gradients, the step's word with it, to the model's, or back. */
static int copy_gradients(struct engine *engine, bool up, struct ddp_error *error)
{
	float *device = engine->memory.gradients, *host;
	size_t count;

	host = ddp_gradients_all(engine->setup.model->gradients, &count);
	return device_copy(engine->device, DEVICE_COMPUTE, up ? device : host, up ? host : device,
			   count * sizeof(float), error);
}

/* One virtual rank's gradients into the sums, which are there with the last one; [reduce]: the seconds of that. */
static int pass(struct engine *engine, double *reduce, struct ddp_error *error)
{
	double begin;
	int status;

	engine->sums_later = true;
	status = backwards(engine, error);
	engine->sums_later = false;
	/* A copy to memory that is not pinned waits in the driver, which knows no time limit. */
	if (status == 0)
		status = cuda_wait(engine, error);
	begin = ddp_seconds();
	if (status == 0)
		status = copy_gradients(engine, false, error);
	if (status == 0)
		status = cuda_told(engine, ddp_gradients_finish(engine->setup.model->gradients),
				   error);
	*reduce += ddp_seconds() - begin;
	return status;
}

/* A step over [batch], the samples of each part one after the other. Each is a table for itself. */
static int begin_parts(struct engine *engine, const struct batch *batch, size_t global,
		       uint64_t step, double rate, bool stop, double *reduce,
		       struct ddp_error *error)
{
	size_t parts = engine->setup.parts;
	uint64_t sequence = engine->launched + 1;
	struct batch part = *batch;
	int status = 0;

	part.count /= parts;
	engine->memory.results[sequence % KERNEL_SLOTS].stop = stop;
	for (engine->part = 0; status == 0 && engine->part < parts; engine->part++) {
		status = foretell(engine, &part, part.count, &rate, global > 0 ? global : 1, error);
		if (status == 0)
			status = send(engine, sequence, step, error);
		if (status == 0)
			status = pass(engine, reduce, error);
		part.indices += part.count;
		part.orders += part.orders ? part.count : 0;
	}
	if (status == 0)
		status = copy_gradients(engine, true, error);
	if (status == 0)
		status = optimize(engine, error);
	if (status < 0)
		return status;
	engine->launched = sequence;
	engine->anew = false;
	return 0;
}

static void hand_over(struct engine *engine, struct engine_step *done)
{
	*done = engine->held;
	memset(&engine->held, 0, sizeof(engine->held));
}

int cuda_step(struct engine *engine, const struct batch *batch, size_t global, uint64_t step,
	      double rate, bool stop, struct engine_step *done, struct ddp_error *error)
{
	size_t lag = engine->manner == CUDA_BY_CALL ? CUDA_LAG_BY_CALL : CUDA_LAG;
	double begin = ddp_seconds(), begun = begin, reduce = 0;
	int status;

	memset(done, 0, sizeof(*done));
	if (engine->setup.parts > 0) {
		status = begin_parts(engine, batch, global, step, rate, stop, &reduce, error);
	} else {
		status = begin_step(engine, batch, global, step, rate, stop, error);
		begun = ddp_seconds();
	}
	if (status < 0)
		return cuda_break(engine, status);
	status = cuda_catch_up(engine, lag, error);
	if (status < 0)
		return status;
	hand_over(engine, done);
	done->seconds[ENGINE_DATA] = begun - begin;
	done->seconds[ENGINE_REDUCE] = reduce;
	done->seconds[ENGINE_COMPUTE] = ddp_seconds() - begun - reduce;
	return 0;
}

int cuda_settle(struct engine *engine, struct engine_step *done, struct ddp_error *error)
{
	double begin = ddp_seconds();
	int status = cuda_catch_up(engine, 0, error);

	memset(done, 0, sizeof(*done));
	if (status < 0)
		return status;
	hand_over(engine, done);
	done->seconds[ENGINE_COMPUTE] = ddp_seconds() - begin;
	/* After a push the scale is what was pushed. */
	if (engine->scaling && engine->last.sequence > 0 && !engine->anew) {
		engine->setup.scaler->scale = engine->last.scale;
		engine->setup.scaler->good_steps = engine->last.good_steps;
	}
	return 0;
}
