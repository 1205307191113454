/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conv-cudnn.h"
#include "library.h"

/* Of a line of choices: the layer's name and pass, the key, the plan. */
enum { LINE = CHOICES_KEY + CHOICES_PLAN + 64 };

struct conv {
	struct conv_options options;
	char name[64];
	struct library *library;
	struct conv_plan *plans[CONV_PASSES]; /* a test's may be the forward pass's */
	char choices[CONV_PASSES * LINE];
};

/* What a pass is called where it is chosen: its plan depends on its batch, not on its purpose. */
static const char *const words[CONV_PASSES] = {"forward", "forward", "back-data", "back-weights"};
static const char *const labels[CONV_PASSES] = {"forward", "test", "back-data", "back-weights"};

const char *conv_describe(void)
{
	static char text[32];
	size_t version = cudnnGetVersion();

	snprintf(text, sizeof(text), "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
		 version % 100);
	return text;
}

/* Images of a pass; 0: there is no such pass, or it is another's. */
static size_t batch_of(const struct conv_options *options, enum conv_pass pass)
{
	switch (pass) {
	case CONV_TEST:
		return options->test_batch == options->batch ? 0 : options->test_batch;
	case CONV_BACK_DATA:
		return options->first ? 0 : options->batch;
	default:
		return options->batch;
	}
}

static int note_choice(struct conv *conv, enum conv_pass pass, const char *key,
		       struct ddp_error *error)
{
	size_t length = strlen(conv->choices);
	char plan[CHOICES_PLAN], *all;

	choices_format(&conv->plans[pass]->choice, plan);
	snprintf(conv->choices + length, sizeof(conv->choices) - length, "%s.%s=%s: %s\n",
		 conv->name, labels[pass], key, plan);
	all = choices_join(conv->library->choices, conv->choices + length);
	if (!all)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory for its plans",
				     conv->name);
	free(conv->library->choices);
	conv->library->choices = all;
	return 0;
}

static int choose(struct conv *conv, enum conv_pass pass, const char *choices,
		  struct ddp_error *error)
{
	const struct device_info *info = device_info(conv->library->device);
	struct conv_problem problem = {&conv->options, pass, batch_of(&conv->options, pass), true};
	struct choices_place place = {info->major, info->minor, cudnnGetVersion(), 0};
	struct choices_plan saved;
	char key[CHOICES_KEY];
	bool found;
	int err;

	if (problem.batch == 0)
		return 0;
	place.workspace = conv_workspace(&problem, info->limit);
	choices_key(&conv->options, words[pass], problem.batch, &place, key);
	/* Layers of one shape have one plan, so that what is kept of them is what they had. */
	found = choices_find(conv->library->choices, key, &saved) ||
		choices_find(choices, key, &saved);
	err = conv_choose(&conv->plans[pass], conv->library, &problem, found ? &saved : NULL,
			  error);
	return err < 0 ? err : note_choice(conv, pass, key, error);
}

int conv_create(struct conv **conv, struct device *device, const struct conv_options *options,
		const char *choices, struct ddp_error *error)
{
	struct conv *it = calloc(1, sizeof(*it));
	int err;

	*conv = NULL;
	if (!it)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory for its plans",
				     options->name);
	it->options = *options;
	snprintf(it->name, sizeof(it->name), "%s", options->name);
	it->options.name = it->name;
	err = library_open(&it->library, device, error);
	for (int pass = 0; pass < CONV_PASSES && err == 0; pass++)
		err = choose(it, (enum conv_pass)pass, choices, error);
	if (err < 0)
		conv_destroy(it);
	else
		*conv = it;
	return err;
}

void conv_destroy(struct conv *conv)
{
	if (!conv)
		return;
	for (int pass = 0; pass < CONV_PASSES; pass++)
		conv_plan_destroy(conv->plans[pass]);
	library_close(conv->library);
	free(conv);
}

size_t conv_scratch(const struct conv *conv)
{
	size_t most = 0;

	for (int pass = 0; pass < CONV_PASSES; pass++) {
		size_t bytes = conv->plans[pass] ? conv_plan_scratch(conv->plans[pass]) : 0;

		if (bytes > most)
			most = bytes;
	}
	return most;
}

const char *conv_choices(const struct conv *conv)
{
	return conv->choices;
}

/* cuDNN's packs of pointers have no const, though they write to results alone. */
static void *loose(const void *pointer)
{
	union {
		const void *from;
		void *to;
	} both = {pointer};

	return both.to;
}

int conv_forward(struct conv *conv, enum device_stream stream, bool test, const void *x,
		 const void *weights, const float *bias, void *y, void *scratch,
		 struct ddp_error *error)
{
	const struct conv_plan *plan = conv->plans[CONV_FORWARD];
	struct conv_memory memory = {{[CONV_X] = loose(x),
				      [CONV_WEIGHTS] = loose(weights),
				      [CONV_BIAS] = loose(bias),
				      [CONV_Y] = y},
				     scratch};

	if (test && conv->plans[CONV_TEST])
		plan = conv->plans[CONV_TEST];
	return conv_plan_run(plan, conv->library, stream, &memory, error);
}

int conv_back_data(struct conv *conv, enum device_stream stream, const void *dy,
		   const void *weights, void *dx, void *scratch, struct ddp_error *error)
{
	struct conv_memory memory = {
		{[CONV_X] = dx, [CONV_WEIGHTS] = loose(weights), [CONV_Y] = loose(dy)}, scratch};

	if (!conv->plans[CONV_BACK_DATA])
		return ddp_error_set(error, DDP_ERR_STATE,
				     "%s: nobody wanted the gradient of what it reads", conv->name);
	return conv_plan_run(conv->plans[CONV_BACK_DATA], conv->library, stream, &memory, error);
}

int conv_back_weights(struct conv *conv, enum device_stream stream, const void *x, const void *dy,
		      float *weights, void *scratch, struct ddp_error *error)
{
	struct conv_memory memory = {
		{[CONV_X] = loose(x), [CONV_WEIGHTS] = weights, [CONV_Y] = loose(dy)}, scratch};

	return conv_plan_run(conv->plans[CONV_BACK_WEIGHTS], conv->library, stream, &memory, error);
}
