/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

static const char *const names[] = {
#define STATE_NAME(id, name) name,
	STATE_FIELDS(STATE_NAME)
#undef STATE_NAME
};

/* --- Filling ------------------------------------------------------------------------------- */

static void put(struct state *state, enum state_field field, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void put(struct state *state, enum state_field field, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(state->values[field], STATE_VALUE, format, arguments);
	va_end(arguments);
}

static void put_count(struct state *state, enum state_field field, uint64_t value)
{
	put(state, field, "%llu", (unsigned long long)value);
}

/* Digits enough to read back the same number. */
static void put_number(struct state *state, enum state_field field, double value)
{
	put(state, field, "%.17g", value);
}

static void put_training(struct state *state, const struct run *run)
{
	const struct set_info *info = set_info(run->train);

	put(state, STATE_NETWORK, "%s", run->net->name);
	put_count(state, STATE_CLASSES, (uint64_t)info->classes);
	put(state, STATE_OPTIMIZER, "%s", option_text(run->options, OPTION_OPTIMIZER));
	put_count(state, STATE_SEED, run->seed);
	put_count(state, STATE_IMAGES, info->samples);
	put(state, STATE_DATA, "%s", info->title);
	put_count(state, STATE_RANKS, (uint64_t)run->world->size);
	put_count(state, STATE_BATCH, run_global_batch(run));
	put(state, STATE_ENGINE, "%s", run->class->head.name);
}

static void put_progress(struct state *state, const struct run *run)
{
	const struct progress *progress = &run->progress;

	put_count(state, STATE_EPOCH, progress->epoch);
	put_count(state, STATE_POSITION, progress->position);
	put_count(state, STATE_STEP, progress->step);
	put_count(state, STATE_UPDATES, progress->updates);
	put_number(state, STATE_LOSS, progress->loss);
	put_count(state, STATE_HITS, progress->hits);
	put_count(state, STATE_SAMPLES, progress->samples);
	put_number(state, STATE_BEST, progress->best);
	put_count(state, STATE_BEST_EPOCH, progress->best_epoch);
	put_number(state, STATE_SCALE, (double)run->scaler.scale);
	put_count(state, STATE_GOOD_STEPS, (uint64_t)run->scaler.good_steps);
}

static void add_pair(struct state *state, const char *prefix, const char *name, const char *value)
{
	char *key = state->keys[state->count];

	snprintf(key, STATE_KEY, "%s%s", prefix, name);
	state->pairs[state->count++] = (struct ddp_pair){key, value};
}

/* Engines whose choices are kept, in the order of their fields. */
static const char *const engines[KEEPER_ENGINES] = {"cpu", "cuda"};

/* The run's own, or what an earlier one with engine number [i] chose. */
static const char *choices_of(const struct run *run, int i)
{
	if (run->engine && strcmp(run->class->head.name, engines[i]) == 0)
		return run->class->choices(run->engine);
	return run->keeper.choices[i];
}

const char *state_choices(const struct run *run)
{
	for (int i = 0; i < KEEPER_ENGINES; i++)
		if (strcmp(run->class->head.name, engines[i]) == 0)
			return run->keeper.choices[i];
	return NULL;
}

void state_fill(struct state *state, const struct run *run)
{
	state->count = 0;
	put_training(state, run);
	put_progress(state, run);
	for (int i = 0; i < STATE_COUNT; i++)
		add_pair(state, "train.", names[i],
			 i == STATE_CHOICES_CPU || i == STATE_CHOICES_CUDA
				 ? choices_of(run, i - STATE_CHOICES_CPU)
				 : state->values[i]);
	for (int i = 0; i < OPTION_COUNT; i++) {
		if (!option_matters((enum option_id)i))
			continue;
		state->options[state->count - STATE_COUNT] = (enum option_id)i;
		add_pair(state, "option.", option_rows[i].name,
			 option_text(run->options, (enum option_id)i));
	}
}

/* --- Taking ---------------------------------------------------------------------------------- */

struct reading {
	const struct state *state;
	struct run *run;
	int status;
};

static const char *get(const struct state *state, enum state_field field)
{
	return state->pairs[field].value ? state->pairs[field].value : "";
}

static int fail(struct reading *reading, enum state_field field)
{
	const struct run *run = reading->run;

	reading->status =
		ddp_error_set(&reading->run->error, DDP_ERR_FORMAT,
			      "the newest checkpoint in %s is none of ddp-train's: its metadata %s "
			      "is \"%.40s\"; give another directory, or --fresh to begin anew",
			      run->keeper.directory, names[field], get(reading->state, field));
	return reading->status;
}

static double get_number(struct reading *reading, enum state_field field)
{
	const char *text = get(reading->state, field);
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end)
		fail(reading, field);
	return value;
}

static uint64_t get_count(struct reading *reading, enum state_field field, uint64_t most)
{
	const char *text = get(reading->state, field);
	uint64_t value = strtoull(text, NULL, 10);

	if (!*text || strspn(text, "0123456789") != strlen(text) || strlen(text) > 20 ||
	    value > most)
		fail(reading, field);
	return value;
}

static void take_progress(struct reading *reading, uint64_t step)
{
	struct progress *progress = &reading->run->progress;
	struct ddp_scaler *scaler = &reading->run->scaler;

	progress->total = step;
	progress->epoch = (unsigned)get_count(reading, STATE_EPOCH, INT32_MAX);
	progress->position =
		get_count(reading, STATE_POSITION, set_info(reading->run->train)->samples);
	progress->step = get_count(reading, STATE_STEP, step);
	progress->updates = get_count(reading, STATE_UPDATES, step);
	progress->loss = get_number(reading, STATE_LOSS);
	progress->hits = get_count(reading, STATE_HITS, UINT64_MAX);
	progress->samples = get_count(reading, STATE_SAMPLES, UINT64_MAX);
	progress->best = get_number(reading, STATE_BEST);
	progress->best_epoch = (unsigned)get_count(reading, STATE_BEST_EPOCH, INT32_MAX);
	scaler->scale = (float)get_number(reading, STATE_SCALE);
	scaler->good_steps = (int32_t)get_count(reading, STATE_GOOD_STEPS, INT32_MAX);
}

int state_check(const struct state *state, struct run *run)
{
	static const struct {
		enum state_field field;
		const char *remedy;
	} rows[] = {
		{STATE_NETWORK, "train that network"},
		{STATE_CLASSES, "give the data that it was trained on"},
		{STATE_OPTIMIZER, "give that one with --optimizer"},
		{STATE_SEED, "give that one with --seed"},
		{STATE_IMAGES, "give the data that it was trained on"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		enum state_field field = rows[i].field;

		if (!*get(state, field) || strcmp(get(state, field), state->values[field]) == 0)
			continue;
		return ddp_error_set(&run->error, DDP_ERR_ARGUMENT,
				     "the checkpoint in %s is of another training: %s %s, not %s; "
				     "%s, or another directory, or --fresh to begin anew",
				     run->keeper.directory, names[field], get(state, field),
				     state->values[field], rows[i].remedy);
	}
	return 0;
}

struct story {
	char *text;
	size_t size, used;
};

static void tell(struct story *story, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void tell(struct story *story, const char *format, ...)
{
	va_list arguments;
	int length;

	if (story->used >= story->size)
		return;
	va_start(arguments, format);
	length = vsnprintf(story->text + story->used, story->size - story->used, format, arguments);
	va_end(arguments);
	story->used += (size_t)length;
}

/* "--lr 0.05 (was 0.1)" for each of the options that are not as they were. */
static void tell_changes(const struct state *state, const struct run *run, struct story *story)
{
	static const struct {
		enum state_field field;
		const char *unit;
	} numbers[] = {{STATE_RANKS, "ranks"},
		       {STATE_BATCH, "samples a step"},
		       {STATE_DATA, ""},
		       {STATE_ENGINE, "engine"}};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (strcmp(get(state, numbers[i].field), state->values[numbers[i].field]) != 0)
			tell(story, ", %s %s (was %s)", state->values[numbers[i].field],
			     numbers[i].unit, get(state, numbers[i].field));
	for (size_t i = STATE_COUNT; i < state->count; i++) {
		enum option_id option = state->options[i - STATE_COUNT];
		const char *now = option_text(run->options, option), *was = state->pairs[i].value;

		if (option == OPTION_BATCH || option == OPTION_GLOBAL_BATCH ||
		    option == OPTION_ENGINE || !was || strcmp(now, was) == 0)
			continue;
		tell(story, ", --%s %s (was %s)", option_rows[option].name, *now ? now : "off",
		     *was ? was : "off");
	}
}

/* Algorithms are an engine's own; those of the others are kept for a run on these. */
static int take_choices(const struct state *state, struct run *run)
{
	for (int i = 0; i < KEEPER_ENGINES; i++) {
		const char *choices = state->pairs[STATE_CHOICES_CPU + i].value;

		if (!choices)
			continue;
		run->keeper.choices[i] = strdup(choices);
		if (!run->keeper.choices[i])
			return ddp_error_set(&run->error, DDP_ERR_MEMORY,
					     "no memory for an engine's choices");
	}
	return 0;
}

int state_take(const struct state *state, struct run *run, uint64_t step)
{
	struct keeper *keeper = &run->keeper;
	struct reading reading = {state, run, 0};
	struct story story = {keeper->story, sizeof(keeper->story), 0};
	int status = state_check(state, run);

	if (status < 0)
		return status;
	take_progress(&reading, step);
	if (reading.status < 0)
		return reading.status;
	tell(&story, "resumed from the checkpoint of step %s in %s",
	     ddp_show_count((double)step).text, keeper->directory);
	tell_changes(state, run, &story);
	return take_choices(state, run);
}
