/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model.h"

/* The longest: "optimizer.1." before a parameter's. */
enum { NAME = GRAPH_NAME + 16 };

/*
 * The list is in the order of parameters, slots, buffers, counters. Memory has all names first,
 * then the numbers of all tensors but the counters, which all are tensors->steps.
 */
struct plan {
	size_t parameters, slots, buffers, counters;
	size_t tensors, elements;
};

static struct plan plan_of(const struct model *model, bool optimizer)
{
	const struct graph *graph = model->graph;
	struct plan plan = {.parameters = graph->parameter_count, .buffers = graph->buffer_count};

	while (optimizer && plan.slots < MODEL_SLOTS && model->slots[plan.slots])
		plan.slots++;
	for (size_t i = 0; i < graph->node_count; i++)
		plan.counters += graph->nodes[i].layer->kind == NET_NORM;
	plan.tensors = plan.parameters * (1 + plan.slots) + plan.buffers + plan.counters;
	plan.elements = graph->weights * (1 + plan.slots) + model->buffer_count;
	return plan;
}

/* --- The list ---------------------------------------------------------------------------- */

/* What is filled in: the next tensor with its name and data. */
struct cursor {
	struct ddp_tensor *tensor;
	char *name;
	float *data;
};

static void add(struct cursor *cursor, const char *prefix, const char *name, int dimensions,
		const int64_t *shape)
{
	struct ddp_tensor *tensor = cursor->tensor++;

	snprintf(cursor->name, NAME, "%s%s", prefix, name);
	*tensor = (struct ddp_tensor){cursor->name, DDP_F32, dimensions, {0}, cursor->data};
	for (int i = 0; i < dimensions; i++)
		tensor->shape[i] = shape[i];
	cursor->name += NAME;
	cursor->data += ddp_tensor_count(tensor);
}

static void add_parameters(struct cursor *cursor, const struct graph *graph, const char *prefix)
{
	for (size_t i = 0; i < graph->parameter_count; i++) {
		const struct graph_parameter *parameter = &graph->parameters[i];

		add(cursor, prefix, parameter->name, parameter->dimensions, parameter->shape);
	}
}

static void add_counters(struct cursor *cursor, const struct graph *graph, int64_t *steps)
{
	for (size_t i = 0; i < graph->node_count; i++) {
		const struct net_layer *layer = graph->nodes[i].layer;

		if (layer->kind != NET_NORM)
			continue;
		snprintf(cursor->name, NAME, "%s.num_batches_tracked", layer->name);
		*cursor->tensor++ = (struct ddp_tensor){cursor->name, DDP_I64, 0, {0}, steps};
		cursor->name += NAME;
	}
}

int model_tensors_create(struct model_tensors *tensors, const struct model *model, bool optimizer,
			 struct ddp_error *error)
{
	const struct graph *graph = model->graph;
	struct plan plan = plan_of(model, optimizer);
	struct cursor cursor;

	*tensors = (struct model_tensors){.count = plan.tensors};
	tensors->list = calloc(plan.tensors, sizeof(*tensors->list));
	tensors->memory = calloc(plan.tensors * NAME + plan.elements * sizeof(float), 1);
	if (!tensors->list || !tensors->memory) {
		model_tensors_destroy(tensors);
		return ddp_error_set(error, DDP_ERR_MEMORY,
				     "network %s: out of memory for %zu tensors", graph->net->name,
				     plan.tensors);
	}
	cursor.tensor = tensors->list;
	cursor.name = tensors->memory;
	cursor.data = (float *)(void *)(cursor.name + plan.tensors * NAME);
	add_parameters(&cursor, graph, "");
	for (size_t slot = 0; slot < plan.slots; slot++) {
		char prefix[16];

		snprintf(prefix, sizeof(prefix), "optimizer.%u.", (unsigned)slot);
		add_parameters(&cursor, graph, prefix);
	}
	for (size_t i = 0; i < graph->buffer_count; i++) {
		const int64_t shape[1] = {(int64_t)graph->buffers[i].count};

		add(&cursor, "", graph->buffers[i].name, 1, shape);
	}
	add_counters(&cursor, graph, &tensors->steps);
	return 0;
}

void model_tensors_destroy(struct model_tensors *tensors)
{
	if (!tensors)
		return;
	free(tensors->memory);
	free(tensors->list);
	*tensors = (struct model_tensors){0};
}

/* --- Their numbers ----------------------------------------------------------------------- */

/* An array of the model for the [group]th parameters of the list: the values, then the slots. */
static float *array_of(const struct model *model, size_t group)
{
	return group == 0 ? model->values : model->slots[group - 1];
}

/* How many groups of parameters [tensors] has. */
static size_t groups_of(const struct model_tensors *tensors, const struct model *model)
{
	struct plan plan = plan_of(model, false);

	return (tensors->count - plan.buffers - plan.counters) / plan.parameters;
}

static void copy_buffers(const struct model_tensors *tensors, const struct model *model,
			 size_t first, bool out)
{
	const struct graph *graph = model->graph;

	for (size_t i = 0; i < graph->buffer_count; i++) {
		float *here = model_buffer(model, i), *there = tensors->list[first + i].data;

		memcpy(out ? there : here, out ? here : there,
		       graph->buffers[i].count * sizeof(*here));
	}
}

void model_tensors_export(struct model_tensors *tensors, const struct model *model, int64_t steps)
{
	const struct graph *graph = model->graph;
	size_t groups = groups_of(tensors, model), at = 0;

	for (size_t group = 0; group < groups; group++)
		for (size_t i = 0; i < graph->parameter_count; i++)
			graph_export(graph, i, tensors->list[at++].data,
				     array_of(model, group) + model->offsets[i]);
	copy_buffers(tensors, model, at, true);
	tensors->steps = steps;
}

void model_tensors_import(const struct model_tensors *tensors, struct model *model)
{
	const struct graph *graph = model->graph;
	size_t groups = groups_of(tensors, model), at = 0;

	for (size_t group = 0; group < groups; group++)
		for (size_t i = 0; i < graph->parameter_count; i++)
			graph_import(graph, i, array_of(model, group) + model->offsets[i],
				     tensors->list[at++].data);
	copy_buffers(tensors, model, at, false);
}
