/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conv-cudnn.h"

/* More proposals than anyone asks for. */
enum { RESULTS = 40 };

/* What an engine says of itself: a bit for each of cuDNN's notes. */
struct notes {
	unsigned int numbers, behaviour;
};

static bool has(const struct notes *notes, cudnnBackendNumericalNote_t note)
{
	return notes->numbers & (1u << note);
}

static bool is_compiled(const struct notes *notes)
{
	return notes->behaviour & (1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
}

/*
 * Sums are f32 throughout; Winograd's larger tiles lose more digits than a test of gradients allows.
 * An engine that multiplies f32 in tensor cores rounds to tf32 before.
 */
static bool may_take(const struct conv_options *options, const struct notes *notes)
{
	bool exact = options->type == DDP_F32 && !options->tf32;

	if (has(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) ||
	    has(notes, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) ||
	    has(notes, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13))
		return false;
	if (options->deterministic && has(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
		return false;
	return !exact || (!has(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) &&
			  !has(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
}

static struct notes read_notes(struct parts *parts, cudnnBackendDescriptor_t engine)
{
	cudnnBackendNumericalNote_t numbers[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
	struct notes notes = {0, 0};
	int64_t count =
		parts_get(parts, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
			  CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, numbers);

	for (int64_t i = 0; i < count; i++)
		notes.numbers |= 1u << numbers[i];
	count = parts_get(parts, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
			  CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, behaviour);
	for (int64_t i = 0; i < count; i++)
		notes.behaviour |= 1u << behaviour[i];
	return notes;
}

static void read_knobs(struct parts *parts, cudnnBackendDescriptor_t config,
		       struct choices_plan *choice)
{
	cudnnBackendDescriptor_t list[CHOICES_KNOBS];
	int64_t count;

	for (int i = 0; i < CHOICES_KNOBS; i++)
		list[i] = parts_add(parts, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
	count = parts_get(parts, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
			  CUDNN_TYPE_BACKEND_DESCRIPTOR, CHOICES_KNOBS, list);
	choice->count = (int)count;
	for (int64_t i = 0; i < count; i++) {
		cudnnBackendKnobType_t kind = 0;

		parts_get(parts, list[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
			  &kind);
		parts_get(parts, list[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
			  &choice->knobs[i].value);
		choice->knobs[i].kind = kind;
	}
}

/* Whether what [config] says could be read, and may be taken. */
static bool read_config(cudnnBackendDescriptor_t config, const struct conv_problem *problem,
			const struct conv_limits *limits, struct choices_plan *choice)
{
	struct parts parts = {.count = 0};
	cudnnBackendDescriptor_t engine = parts_add(&parts, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	struct notes notes;
	int64_t bytes = 0;
	bool fits;

	*choice = (struct choices_plan){.whole = problem->whole};
	parts_get(&parts, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
		  &engine);
	parts_get(&parts, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
		  &choice->engine);
	notes = read_notes(&parts, engine);
	fits = may_take(problem->options, &notes) && is_compiled(&notes) == limits->compile;
	parts_get(&parts, config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
	if (fits)
		read_knobs(&parts, config, choice);
	fits = fits && parts.status == CUDNN_STATUS_SUCCESS && (size_t)bytes <= limits->workspace;
	parts_empty(&parts);
	return fits;
}

static bool listed(const struct choices_plan *list, int count, const struct choices_plan *choice)
{
	for (int i = 0; i < count; i++)
		if (choices_same(&list[i], choice))
			return true;
	return false;
}

/* Behind [count] that are there; returns how many there are then. */
static int add_proposals(struct parts *parts, const struct conv_problem *problem,
			 const struct conv_limits *limits, cudnnBackendDescriptor_t heuristic,
			 struct choices_plan *list, int count, int room)
{
	cudnnBackendDescriptor_t results[RESULTS];
	int64_t found;

	for (int i = 0; i < RESULTS; i++)
		results[i] = parts_add(parts, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	found = parts_get(parts, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
			  CUDNN_TYPE_BACKEND_DESCRIPTOR, RESULTS, results);
	for (int64_t i = 0; i < found && count < room; i++)
		if (read_config(results[i], problem, limits, &list[count]) &&
		    !listed(list, count, &list[count]))
			count++;
	return count;
}

/* One kind of heuristics. */
static int ask(struct parts *parts, const struct conv_problem *problem,
	       const struct conv_limits *limits, cudnnBackendDescriptor_t graph,
	       cudnnBackendHeurMode_t mode, struct choices_plan *list, int count, int room)
{
	cudnnBackendDescriptor_t it = parts_add(parts, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);

	parts_set_part(parts, it, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
	parts_set(parts, it, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	if (limits->properties)
		parts_set_part(parts, it, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, limits->properties);
	parts_finish(parts, it, "heuristics");
	return add_proposals(parts, problem, limits, it, list, count, room);
}

int conv_plans(const struct conv_problem *problem, const struct conv_limits *limits,
	       struct choices_plan *list, int room, char *text, size_t size)
{
	static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
						       CUDNN_HEUR_MODE_FALLBACK};
	struct parts base = {.count = 0}, parts = {.count = 0};
	cudnnBackendDescriptor_t graph = conv_graph(&base, problem, limits->handle);
	int count = 0;

	snprintf(text, size, "%s", graph ? "no engine that may be taken" : base.text);
	for (size_t i = 0; graph && i < sizeof(modes) / sizeof(*modes) && count < room; i++) {
		count = ask(&parts, problem, limits, graph, modes[i], list, count, room);
		if (parts.status != CUDNN_STATUS_SUCCESS)
			snprintf(text, size, "%s", parts.text);
		parts_empty(&parts);
	}
	parts_empty(&base);
	return count;
}

/* --- Plans ---------------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t add_engine(struct parts *parts, cudnnBackendDescriptor_t graph,
					   const struct conv_limits *limits, int64_t number)
{
	cudnnBackendDescriptor_t it = parts_add(parts, CUDNN_BACKEND_ENGINE_DESCRIPTOR);

	parts_set_part(parts, it, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
	parts_set_number(parts, it, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, number);
	if (limits->properties)
		parts_set_part(parts, it, CUDNN_ATTR_ENGINE_DEVICEPROP, limits->properties);
	parts_finish(parts, it, "engine");
	return it;
}

static cudnnBackendDescriptor_t add_knob(struct parts *parts, const struct choices_knob *knob)
{
	cudnnBackendDescriptor_t it = parts_add(parts, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
	cudnnBackendKnobType_t kind = (cudnnBackendKnobType_t)knob->kind;

	parts_set(parts, it, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &kind);
	parts_set_number(parts, it, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, knob->value);
	parts_finish(parts, it, "knob");
	return it;
}

static cudnnBackendDescriptor_t add_config(struct parts *parts, cudnnBackendDescriptor_t engine,
					   const struct choices_plan *choice)
{
	cudnnBackendDescriptor_t it, knobs[CHOICES_KNOBS];

	for (int i = 0; i < choice->count; i++)
		knobs[i] = add_knob(parts, &choice->knobs[i]);
	it = parts_add(parts, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	parts_set_part(parts, it, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
	if (choice->count > 0)
		parts_set(parts, it, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
			  CUDNN_TYPE_BACKEND_DESCRIPTOR, choice->count, knobs);
	parts_finish(parts, it, "configuration of an engine");
	return it;
}

static cudnnBackendDescriptor_t add_plan(struct parts *parts, cudnnBackendDescriptor_t config)
{
	cudnnBackendDescriptor_t it = parts_add(parts, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

	parts_set_part(parts, it, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
	parts_finish(parts, it, "plan");
	return it;
}

static bool build(struct conv_plan *plan, const struct conv_limits *limits, char *text, size_t size)
{
	struct parts *parts = &plan->parts;
	cudnnBackendDescriptor_t graph = conv_graph(&plan->graph, &plan->problem, limits->handle);
	cudnnBackendDescriptor_t engine;
	struct notes notes;
	int64_t bytes = 0;

	if (!graph) {
		snprintf(text, size, "%s", plan->graph.text);
		return false;
	}
	engine = add_engine(parts, graph, limits, plan->choice.engine);
	notes = read_notes(parts, engine);
	plan->plan = add_plan(parts, add_config(parts, engine, &plan->choice));
	parts_get(parts, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
		  &bytes);
	plan->workspace = (size_t)bytes;
	if (parts->status != CUDNN_STATUS_SUCCESS)
		snprintf(text, size, "%s", parts->text);
	else if (!may_take(plan->problem.options, &notes))
		snprintf(text, size, "the engine's arithmetic is not what was asked for");
	else if (plan->workspace > limits->workspace)
		snprintf(text, size, "it needs %zu bytes of scratch memory, %zu are allowed",
			 plan->workspace, limits->workspace);
	else
		return true;
	return false;
}

struct conv_plan *conv_plan_create(const struct conv_problem *problem,
				   const struct conv_limits *limits,
				   const struct choices_plan *choice, char *text, size_t size)
{
	struct conv_plan *plan = calloc(1, sizeof(*plan));

	if (!plan) {
		snprintf(text, size, "no memory");
		return NULL;
	}
	plan->problem = *problem;
	plan->problem.whole = choice->whole;
	plan->choice = *choice;
	if (build(plan, limits, text, size))
		return plan;
	conv_plan_destroy(plan);
	return NULL;
}

void conv_plan_destroy(struct conv_plan *plan)
{
	if (!plan)
		return;
	parts_empty(&plan->parts);
	parts_empty(&plan->graph);
	free(plan);
}
