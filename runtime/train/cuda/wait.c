/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host never waits for the device in the loop but to be so many steps ahead and no more. It looks
 * at what the steps tell; only where nothing comes for long does libddp wait, which knows how long it may
 * take and who is missing.
 */
#include "config.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/watch.h"
#include "engine-private.h"

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
	int status = sums_wait(engine->setup.ddp, engine->device, DEVICE_COMPUTE, &inner);

	if (status == 0)
		return 0;
	if (engine->ranks == 1 && engine->launched > 0)
		ddp_error_set(error, status, "%.900s; %llu steps have ended, %llu were begun",
			      inner.text,
			      (unsigned long long)(engine->launched - ring_pending(engine->ring)),
			      (unsigned long long)engine->launched);
	else if (engine->ranks > 1)
		ddp_error_set(error, status,
			      "%s (of the sums of gradients %llu have ended, and "
			      "%llu were begun at most)",
			      inner.text, (unsigned long long)*engine->memory.progress,
			      (unsigned long long)(engine->launched * engine->bucket_count));
	else
		ddp_error_set(error, status, "%s", inner.text);
	return cuda_break(engine, status);
}

int cuda_pause(struct engine *engine, double begin, struct ddp_error *error)
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
	engine->last = *result;
}

/*
 * What a step told counts once no sum is known to have been given up: one that was lets its stream go on. With
 * one graph a sum that fails ends nothing, and nothing is told.
 */
static int trust(struct engine *engine, struct ddp_error *error)
{
	return engine->manner == CUDA_ONE_GRAPH ? 0 : sums_check(engine->setup.ddp, error);
}

/* The mark at the end of the oldest step that was not told. */
static int oldest_mark(const struct engine *engine)
{
	uint64_t oldest = engine->launched - ring_pending(engine->ring);

	return CUDA_MARK_END + (int)(oldest % RING_DEPTH);
}

static int wait_for_one(struct engine *engine, struct ddp_error *error)
{
	double begin = ddp_seconds();
	struct kernel_result result;
	int ended = 0;

	while (ring_collect(engine->ring, &result, 1) == 0) {
		int status = device_reached(engine->device, oldest_mark(engine), error);

		if (status < 0)
			return status;
		if (ended > 0)
			return ddp_error_set(error, DDP_ERR_ENGINE,
					     "CUDA engine: a step has ended and told nothing");
		ended = cuda_pause(engine, begin, error);
		if (ended < 0)
			return ended;
	}
	ended = trust(engine, error);
	if (ended < 0)
		return ended;
	hold(engine, &result);
	return 0;
}

int cuda_catch_up(struct engine *engine, size_t most, struct ddp_error *error)
{
	int status = 0;

	while (status == 0 && ring_pending(engine->ring) > most)
		status = wait_for_one(engine, error);
	return cuda_break(engine, status);
}
