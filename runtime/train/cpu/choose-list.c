/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the gradients of a convolution before a max-pool come from the list of what it left, or
 * from dense passes over all of it: the results are the same but for rounding, and which is faster
 * depends on the CPU, as one that multiplies matrices in bfloat16 does better with dense ones.
 * Both are tried on made-up values, as many of them zero as in a network that learns.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "choice.h"
#include "program/memo.h"

enum { IMAGES = 32, RUNS = 3 };

static const char what[] = "gradients", list[] = "list", dense[] = "dense";

/* Both ways and what they work on. */
struct trial {
	const struct engine *engine;
	const struct program_op *op;
	size_t images;
	size_t read, results, pooled; /* elements */
	float rate;		      /* of the dropout */
	char *x, *dx, *dy;	      /* of the convolution, */
	char *end, *slopes;	      /* of what follows it */
	uint8_t *which, *keep;
	float *weights, *bias;
	struct kernel_list *list;
	struct kernel_window window;
	struct math_layer *math;
};

/* --- What they work on -------------------------------------------------------------------------- */

static void trial_close(struct trial *trial)
{
	void *const all[] = {trial->x,	   trial->dx,	trial->dy,	trial->end, trial->slopes,
			     trial->which, trial->keep, trial->weights, trial->bias};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		free(all[i]);
	kernel_list_destroy(trial->list);
	trial->engine->math->destroy(trial->math);
}

static void *room(size_t bytes)
{
	size_t whole = (bytes + 63) / 64 * 64;
	void *memory = aligned_alloc(64, whole);

	return memory ? memset(memory, 0, whole) : NULL;
}

static bool allocate(struct trial *trial)
{
	size_t size = ddp_type_size(trial->engine->setup.type);
	const struct graph_node *node = trial->op->node;
	size_t window = (size_t)(node->layer->size * node->layer->size);

	trial->x = room(trial->read * size);
	trial->dx = room(trial->read * size);
	trial->dy = room(trial->results * size);
	trial->end = room(trial->pooled * size);
	trial->slopes = room(trial->pooled * size);
	trial->which = room(trial->pooled);
	trial->keep = room(trial->pooled / 8 + 1);
	trial->weights = room(window * (size_t)node->in.channels * (size_t)node->out.channels *
			      sizeof(float));
	trial->bias = room((size_t)node->out.channels * sizeof(float));
	return trial->x && trial->dx && trial->dy && trial->end && trial->slopes && trial->which &&
	       trial->keep && trial->weights && trial->bias;
}

/* [part] of 4 are positive, of the others [other]. */
static void fill(const struct trial *trial, char *to, size_t count, uint32_t part, float other)
{
	size_t size = ddp_type_size(trial->engine->setup.type);

	for (size_t i = 0; i < count; i++) {
		uint32_t bits[4];
		float value;

		ddp_random(1, 0, i, 0, 0, bits);
		value = bits[0] % 4 < part ? 1 + ddp_random_uniform(bits[1]) : other;
		trial->engine->kernels->narrow(&value, to + i * size, 1, trial->engine->setup.type);
	}
}

static void fill_all(const struct trial *trial)
{
	fill(trial, trial->x, trial->read, 2, 0);
	fill(trial, trial->end, trial->pooled, 3, 0);
	fill(trial, trial->slopes, trial->pooled, 2, -1);
	for (size_t i = 0; i < trial->pooled; i++) {
		uint32_t bits[4];

		ddp_random(2, 0, i, 0, 0, bits);
		trial->which[i] = bits[0] % 4;
		if (ddp_random_uniform(bits[1]) >= trial->rate)
			trial->keep[i / 8] |= (uint8_t)(1 << i % 8);
	}
}

static bool trial_open(struct trial *trial, const struct engine *engine,
		       const struct program_op *op)
{
	struct math_options options = engine_math_options(engine, op);
	size_t images = engine->setup.batch < IMAGES ? engine->setup.batch : IMAGES;

	*trial = (struct trial){.engine = engine, .op = op, .images = images};
	trial->window = engine_window(op->node);
	trial->read = images * graph_size(op->node->in);
	trial->results = images * graph_size(op->node->out);
	trial->pooled = trial->results / 4;
	if (op->dropout != PROGRAM_NONE)
		trial->rate = engine->program->ops[op->dropout].node->layer->rate;
	options.batch = images;
	if (!allocate(trial) || engine->math->create(&trial->math, &options, NULL) < 0 ||
	    kernel_list_create(&trial->list, &trial->window, images, NULL) < 0)
		return false;
	fill_all(trial);
	return engine->math->load(trial->math, trial->weights, trial->bias, NULL) == 0;
}

/* --- Time ----------------------------------------------------------------------------------------- */

/* The shortest of a few runs of [run] after the first; -1: it failed. */
static double shortest(const struct trial *trial, int (*run)(const struct trial *))
{
	double best = -1;

	for (int i = 0; i <= RUNS; i++) {
		double begin = choice_seconds(trial->engine), took;

		if (run(trial) < 0)
			return -1;
		took = choice_seconds(trial->engine) - begin;
		if (i > 0 && (best < 0 || took < best))
			best = took;
	}
	return best;
}

static int run_list(const struct trial *trial)
{
	const struct kernels *kernels = trial->engine->kernels;
	const struct program_op *op = trial->op;
	enum ddp_type type = trial->engine->setup.type;

	kernels->list(&trial->window, trial->images, trial->slopes, trial->end, trial->which,
		      trial->keep, 1, trial->list, trial->bias, type);
	kernels->list_weights(&trial->window, trial->list, trial->images, trial->x, trial->weights,
			      type);
	if (trial->engine->program->values[op->input].wanted)
		kernels->list_data(&trial->window, trial->list, trial->images, trial->weights,
				   op->masks ? trial->x : NULL, trial->dx, type);
	return 0;
}

/* What goes with dense passes: the way back through dropout, pool and ReLU. */
static int run_passes(const struct trial *trial)
{
	const struct kernels *kernels = trial->engine->kernels;
	enum ddp_type type = trial->engine->setup.type;
	struct graph_shape out = trial->op->node->out;

	if (trial->rate > 0)
		kernels->mask(trial->slopes, trial->slopes, trial->keep, 1, trial->pooled, type);
	kernels->relu_back(trial->slopes, trial->end, trial->slopes, trial->pooled, type);
	kernels->max_pool_back(trial->slopes, trial->which, trial->dy, trial->images, out.height,
			       out.width, out.channels, type);
	if (trial->op->masks)
		kernels->relu_back(trial->dx, trial->x, trial->dx, trial->read, type);
	return 0;
}

static int run_weights(const struct trial *trial)
{
	return trial->engine->math->back_weights(trial->math, trial->images, trial->x, trial->dy,
						 trial->weights, trial->bias, NULL);
}

static int run_data(const struct trial *trial)
{
	return trial->engine->math->back_data(trial->math, trial->images, trial->dy, trial->dx,
					      NULL);
}

/* Of the fastest algorithm. */
static double shortest_pass(const struct trial *trial, enum math_pass pass,
			    int (*run)(const struct trial *))
{
	const struct math *math = trial->engine->math;
	double best = -1;

	for (int i = math->algorithms(trial->math, pass) - 1; i >= 0; i--) {
		double took;

		if (math->choose(trial->math, pass, i, NULL) < 0 ||
		    math->load(trial->math, trial->weights, trial->bias, NULL) < 0)
			continue;
		took = shortest(trial, run);
		if (took >= 0 && (best < 0 || took < best))
			best = took;
	}
	return best;
}

static bool is_dense_faster(const struct trial *trial)
{
	double listed = shortest(trial, run_list), passes = shortest(trial, run_passes);
	double weights = shortest_pass(trial, MATH_BACK_WEIGHTS, run_weights), data = 0;

	if (trial->engine->program->values[trial->op->input].wanted)
		data = shortest_pass(trial, MATH_BACK_DATA, run_data);
	return weights >= 0 && data >= 0 && passes + weights + data < listed;
}

/* --- Choose --------------------------------------------------------------------------------------- */

static bool measure(const struct engine *engine, const struct program_op *op)
{
	struct trial trial;
	bool answer = trial_open(&trial, engine, op) && is_dense_faster(&trial);

	trial_close(&trial);
	return answer;
}

static bool look_up(const struct engine *engine, const struct program_op *op, struct memo *memo)
{
	char key[CHOICE_KEY], name[CHOICE_NAME];
	bool answer;

	choice_key(engine, op, what, key);
	if (memo_find(memo, key, name, sizeof(name)) &&
	    (strcmp(name, dense) == 0 || strcmp(name, list) == 0))
		return strcmp(name, dense) == 0;
	answer = measure(engine, op);
	memo_add(memo, key, answer ? dense : list);
	return answer;
}

static bool restored(const struct engine *engine, const struct program_op *op)
{
	char name[CHOICE_NAME] = "";

	choice_restore(engine->setup.choices, op->name, what, name);
	return strcmp(name, list) != 0;
}

int engine_choose_lists(struct engine *engine, struct ddp_error *error)
{
	const struct program *program = engine->program;
	struct memo memo;
	int status;

	memo_open(&memo);
	for (int i = 0; i < program->op_count; i++) {
		const struct program_op *op = &program->ops[i];

		if (!op->listed)
			continue;
		engine->lists[op->layer] = true;
		if (ddp_world(engine->setup.ddp)->rank > 0)
			continue;
		engine->dense[op->layer] =
			engine->setup.choices ? restored(engine, op) : look_up(engine, op, &memo);
	}
	memo_close(&memo);
	status = ddp_broadcast(engine->setup.ddp, engine->dense,
			       engine->setup.model->graph->node_count * sizeof(bool), 0);
	return status < 0 ? engine_fail(engine, status, error) : 0;
}
