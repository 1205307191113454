/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm computes each pass of each convolution. All ranks use the same one, since they
 * round differently; a rank whose CPU lacks it brings all back to the exact one.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "choice.h"
#include "engine-private.h"
#include "program/memo.h"

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
