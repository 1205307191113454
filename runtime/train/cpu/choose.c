/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/type.h"
#include "base/watch.h"
#include "engine-private.h"
#include "program/memo.h"

/* --- What was chosen --------------------------------------------------------------------- */

/*
 * Choices are told as text, "conv2 forward winograd, conv2 gradients list": a layer, what of it, and
 * how.
 */
enum { CHOICE_NAME = 32, CHOICE_KEY = 512 };

static void read_model_name(char *name, size_t size)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(name, size, "?");
	while (file && fgets(line, sizeof(line), file)) {
		char *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) != 0 || !colon)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		snprintf(name, size, "%.*s", (int)strcspn(colon, "\t\n"), colon);
		break;
	}
	if (file)
		fclose(file);
}

/* [what] of [op], and all that its time depends on: a key of the memo. */
static void choice_key(const struct engine *engine, const struct program_op *op, const char *what,
		       char key[CHOICE_KEY])
{
	const struct net_layer *layer = op->node->layer;
	struct graph_shape in = op->node->in;
	char cpu[128];

	read_model_name(cpu, sizeof(cpu));
	snprintf(
		key, CHOICE_KEY,
		"%s; %s, %s; %dx%dx%d, %d of %d, stride %d, pad %d%s; %s, %zu by %zu, %d threads; %s",
		cpu, engine->math->describe(), engine->kernels->name, in.height, in.width,
		in.channels, op->node->out.channels, layer->size, layer->stride, layer->pad,
		op->relu ? ", ReLU" : "", ddp_type_name(engine->setup.type), engine->setup.batch,
		op->piece, engine->threads, what);
}

/* Copy to [name] what [choices] say of [what] of layer [layer]; it stays if they say nothing. */
static void choice_restore(const char *choices, const char *layer, const char *what,
			   char name[CHOICE_NAME])
{
	char begin[CHOICE_NAME + GRAPH_NAME];
	size_t length;

	snprintf(begin, sizeof(begin), "%s %s ", layer, what);
	length = strlen(begin);
	for (const char *item = choices; *item; item += strcspn(item, ",")) {
		item += strspn(item, ", ");
		if (strncmp(item, begin, length) == 0)
			snprintf(name, CHOICE_NAME, "%.*s", (int)strcspn(item + length, ","),
				 item + length);
	}
}

/*
 * A clock for work of the engine. Of one thread it is the time that it had, which others on the
 * machine do not lengthen; of several, which wait for each other, that of the clock.
 */
static double choice_seconds(const struct engine *engine)
{
	struct timespec now;

	if (engine->threads > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) < 0)
		return ddp_seconds();
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- Lists of gradients ------------------------------------------------------------------ */

/*
 * Whether the gradients of a convolution before a max-pool come from the list of what it left, or
 * from dense passes over all of it: the results are the same but for rounding, and which is faster
 * depends on the CPU, as one that multiplies matrices in bfloat16 does better with dense ones.
 * Both are tried on made-up values, as many of them zero as in a network that learns.
 */

enum { LIST_IMAGES = 32, LIST_RUNS = 3 };

static const char gradients_of[] = "gradients", list[] = "list", dense[] = "dense";

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
	size_t images = engine->setup.batch < LIST_IMAGES ? engine->setup.batch : LIST_IMAGES;

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

	for (int i = 0; i <= LIST_RUNS; i++) {
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

static bool measure_lists(const struct engine *engine, const struct program_op *op)
{
	struct trial trial;
	bool answer = trial_open(&trial, engine, op) && is_dense_faster(&trial);

	trial_close(&trial);
	return answer;
}

static bool look_up_list(const struct engine *engine, const struct program_op *op,
			 struct memo *memo)
{
	char key[CHOICE_KEY], name[CHOICE_NAME];
	bool answer;

	choice_key(engine, op, gradients_of, key);
	if (memo_find(memo, key, name, sizeof(name)) &&
	    (strcmp(name, dense) == 0 || strcmp(name, list) == 0))
		return strcmp(name, dense) == 0;
	answer = measure_lists(engine, op);
	memo_add(memo, key, answer ? dense : list);
	return answer;
}

static bool restored(const struct engine *engine, const struct program_op *op)
{
	char name[CHOICE_NAME] = "";

	choice_restore(engine->setup.choices, op->name, gradients_of, name);
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
		engine->dense[op->layer] = engine->setup.choices ? restored(engine, op)
								 : look_up_list(engine, op, &memo);
	}
	memo_close(&memo);
	status = ddp_broadcast(engine->setup.ddp, engine->dense,
			       engine->setup.model->graph->node_count * sizeof(bool), 0);
	return status < 0 ? engine_fail(engine, status, error) : 0;
}

/* --- Convolutions ------------------------------------------------------------------------ */

/*
 * Which algorithm computes each pass of each convolution. All ranks use the same one, since they
 * round differently; a rank whose CPU lacks it brings all back to the exact one.
 */

/* Seconds after which the time of a run is known. */
#define ENOUGH 20e-3
/* What no further run will make up for. */
#define FAR 1.5

enum { RUNS = 3 };

/* As choices() says it. */
static const char *const pass_names[MATH_PASSES] = {"forward", "backward data", "backward weights"};

/* One question: which algorithm for [pass] of operation [index]? */
struct question {
	struct engine *engine;
	int index;
	enum math_pass pass;
};

static const struct program_op *op_of(const struct question *question)
{
	return &question->engine->program->ops[question->index];
}

static struct math_layer *layer_of(const struct question *question)
{
	return question->engine->units[question->index].math;
}

static int *choice_of(const struct question *question)
{
	return &question->engine->units[question->index].choices[question->pass];
}

static int algorithms(const struct question *question)
{
	const struct program_op *op = op_of(question);
	const struct program_value *input = &question->engine->program->values[op->input];

	if (op->kind != PROGRAM_MATH || (op->listed && question->pass != MATH_FORWARD) ||
	    (question->pass == MATH_BACK_DATA && !input->wanted))
		return 1;
	return question->engine->math->algorithms(layer_of(question), question->pass);
}

static const char *algorithm(const struct question *question, int number)
{
	return question->engine->math->algorithm(layer_of(question), question->pass, number);
}

/* The number of [name], -1 where it is not known here. */
static int number_of(const struct question *question, const char *name)
{
	for (int i = 0; i < algorithms(question); i++) {
		if (strcmp(algorithm(question, i), name) == 0)
			return i;
	}
	return -1;
}

/* --- What is fastest ------------------------------------------------------------------------- */

static int run(const struct question *question, struct ddp_error *error)
{
	const struct engine *engine = question->engine;
	const struct program_op *op = op_of(question);
	const struct model *model = engine->setup.model;
	int bias = op->node->bias;
	size_t count = engine->setup.batch, piece = op->piece;

	switch (question->pass) {
	case MATH_FORWARD:
		return engine->math->forward(layer_of(question),
					     piece > 0 && piece < count ? piece : count,
					     engine_value(engine, op->input),
					     engine_value(engine, op->output), error);
	case MATH_BACK_DATA:
		return engine->math->back_data(layer_of(question), count,
					       engine_gradient(engine, op->output),
					       op->temporary != PROGRAM_NONE
						       ? engine_room(engine, op->temporary)
						       : engine_gradient(engine, op->input),
					       error);
	default:
		return engine->math->back_weights(
			layer_of(question), count, engine_value(engine, op->input),
			engine_gradient(engine, op->output),
			model_gradient(model, (size_t)op->node->weight),
			bias < 0 ? NULL : model_gradient(model, (size_t)bias), error);
	}
}

/* A layer needs weights before it can be timed. */
static int load(const struct question *question)
{
	const struct engine *engine = question->engine;
	const struct graph_node *node = op_of(question)->node;
	const struct model *model = engine->setup.model;

	return engine->math->load(layer_of(question), model_value(model, (size_t)node->weight),
				  node->bias < 0 ? NULL : model_value(model, (size_t)node->bias),
				  NULL);
}

/*
 * The shortest of a few runs of algorithm [number], after one that makes what it needs; less of them
 * where one is long enough to be measured well, or far from [best]. -1: it cannot run.
 */
static double measure(const struct question *question, int number, double best)
{
	const struct math *math = question->engine->math;
	double shortest = -1, all = 0;

	if (math->choose(layer_of(question), question->pass, number, NULL) < 0 ||
	    load(question) < 0)
		return -1;
	for (int i = 0; i <= RUNS && all < ENOUGH; i++) {
		double begin = choice_seconds(question->engine), took;

		if (run(question, NULL) < 0)
			return -1;
		took = choice_seconds(question->engine) - begin;
		if (i > 0 && (shortest < 0 || took < shortest))
			shortest = took;
		all += i > 0 ? took : 0;
		if (i > 0 && best > 0 && took > FAR * best)
			break;
	}
	return shortest;
}

static int fastest(const struct question *question)
{
	double best = -1;
	int chosen = 0;

	for (int i = 0; i < algorithms(question); i++) {
		double took = measure(question, i, best);

		if (took >= 0 && (best < 0 || took < best)) {
			best = took;
			chosen = i;
		}
	}
	return chosen;
}

/* From the memo, or measured now and noted there. */
static void look_up(const struct question *question, struct memo *memo, char *name)
{
	char key[CHOICE_KEY];

	choice_key(question->engine, op_of(question), pass_names[question->pass], key);
	if (memo_find(memo, key, name, CHOICE_NAME) && number_of(question, name) >= 0)
		return;
	snprintf(name, CHOICE_NAME, "%s", algorithm(question, fastest(question)));
	memo_add(memo, key, name);
}

/* --- All of them ------------------------------------------------------------------------------ */

/* The name of an algorithm for each question; empty: there is but one. */
struct answer {
	char name[CHOICE_NAME];
};

#define FOR_ALL(question, engine)                                            \
	for (struct question question = {(engine), 0, MATH_FORWARD};         \
	     question.index < (engine)->program->op_count; question.index++) \
		for (question.pass = MATH_FORWARD; question.pass < MATH_PASSES; question.pass++)

/* Convolutions of which something is to be measured. */
static int count_unknown(struct engine *engine, const struct memo *memo)
{
	char key[CHOICE_KEY], name[CHOICE_NAME];
	int count = 0, last = -1;

	FOR_ALL(question, engine)
	{
		if (question.index == last || algorithms(&question) <= 1)
			continue;
		choice_key(engine, op_of(&question), pass_names[question.pass], key);
		if (memo_find(memo, key, name, sizeof(name)) && number_of(&question, name) >= 0)
			continue;
		last = question.index;
		count++;
	}
	return count;
}

/* It takes a while, and nothing is seen of it. */
static void announce(struct engine *engine, const struct memo *memo)
{
	const struct engine_setup *setup = &engine->setup;
	int count = setup->say && !setup->choices ? count_unknown(engine, memo) : 0;
	char text[128];

	if (count == 0)
		return;
	snprintf(text, sizeof(text),
		 "timing algorithms of %d convolution%s, once for this machine and shape", count,
		 count == 1 ? "" : "s");
	setup->say(setup->listener, text);
}

static struct answer *answer_of(const struct question *question, struct answer *answers)
{
	return &answers[question->index * MATH_PASSES + (int)question->pass];
}

/* On rank 0. */
static void answer_all(struct engine *engine, struct answer *answers)
{
	const char *choices = engine->setup.choices;
	struct memo memo;

	memo_open(&memo);
	announce(engine, &memo);
	FOR_ALL(question, engine)
	{
		struct answer *answer = answer_of(&question, answers);

		if (algorithms(&question) <= 1)
			continue;
		if (choices)
			choice_restore(choices, op_of(&question)->name, pass_names[question.pass],
				       answer->name);
		else
			look_up(&question, &memo, answer->name);
	}
	memo_close(&memo);
}

/* Number 0 for what some rank refuses: [numbers] are those of this rank's algorithms, or -1. */
static int settle(struct engine *engine, int32_t *numbers, size_t count, struct ddp_error *error)
{
	struct ddp *ddp = engine->setup.ddp;
	int32_t *can = numbers + count;
	int status;

	for (size_t i = 0; i < count; i++)
		can[i] = numbers[i] >= 0;
	status = ddp_all_reduce(ddp, can, can, count, DDP_I32, DDP_MIN);
	if (status < 0)
		return engine_fail(engine, status, error);
	FOR_ALL(question, engine)
	{
		size_t i = (size_t)(question.index * MATH_PASSES) + question.pass;

		*choice_of(&question) = can[i] ? numbers[i] : 0;
		if (status == 0 && algorithms(&question) > 1)
			status = engine->math->choose(layer_of(&question), question.pass,
						      *choice_of(&question), error);
	}
	return status;
}

/* Let all ranks take rank 0's [answers]; where a rank cannot, none does. */
static int agree(struct engine *engine, struct answer *answers, int32_t *numbers, size_t count,
		 struct ddp_error *error)
{
	int status = ddp_broadcast(engine->setup.ddp, answers, count * sizeof(*answers), 0);

	if (status < 0)
		return engine_fail(engine, status, error);
	FOR_ALL(question, engine)
	{
		const char *name = answer_of(&question, answers)->name;
		int32_t *number = &numbers[question.index * MATH_PASSES + (int)question.pass];

		*number = *name ? number_of(&question, name) : 0;
		if (*number > 0 &&
		    engine->math->choose(layer_of(&question), question.pass, *number, NULL) < 0)
			*number = -1;
	}
	return settle(engine, numbers, count, error);
}

/* "conv2 forward winograd, conv2 gradients list" */
static int describe(struct engine *engine, struct ddp_error *error)
{
	size_t size = 0;
	FILE *text = open_memstream(&engine->choices, &size);

	if (!text)
		return ddp_error_set(error, DDP_ERR_MEMORY, "CPU engine: out of memory");
	FOR_ALL(question, engine)
	{
		const struct program_op *op = op_of(&question);
		const char *comma = ftell(text) > 0 ? ", " : "";

		if (algorithms(&question) > 1)
			fprintf(text, "%s%s %s %s", comma, op->name, pass_names[question.pass],
				algorithm(&question, *choice_of(&question)));
		if (question.pass == MATH_BACK_WEIGHTS && engine->lists[op->layer])
			fprintf(text, "%s%s gradients %s", ftell(text) > 0 ? ", " : "", op->name,
				op->listed ? "list" : "dense");
	}
	if (fclose(text) == 0)
		return 0;
	return ddp_error_set(error, DDP_ERR_MEMORY, "CPU engine: out of memory");
}

int engine_choose(struct engine *engine, struct ddp_error *error)
{
	size_t count = (size_t)engine->program->op_count * MATH_PASSES;
	struct answer *answers = calloc(count, sizeof(*answers));
	int32_t *numbers = calloc(2 * count, sizeof(*numbers));
	int status = 0;

	if (!answers || !numbers) {
		status = ddp_error_set(error, DDP_ERR_MEMORY, "CPU engine: out of memory");
		goto out;
	}
	if (!engine->setup.exact) {
		if (ddp_world(engine->setup.ddp)->rank == 0)
			answer_all(engine, answers);
		status = agree(engine, answers, numbers, count, error);
	}
	if (status == 0)
		status = describe(engine, error);
out:
	free(answers);
	free(numbers);
	return status;
}
