/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From nodes to operations: what is computed together.
 */
#include "config.h"

#include <stdlib.h>

#include "base/error.h"
#include "program.h"

/* Rooms that an operation needs at most, and a program besides. */
enum { ROOMS_EACH = 8, ROOMS_MORE = 8 };

enum { ALIGNMENT = 64 };

/* What is known of a node while operations are made. */
struct place {
	int reader; /* the only node that reads it, PROGRAM_NONE: none or several */
	int head;   /* the first node of the operation that ends with this one */
	bool inner; /* another one ends its operation */
	int value;
};

struct builder {
	const struct graph *graph;
	struct program *program;
	struct place *places;
};

static enum net_kind kind_of(const struct builder *builder, int node)
{
	return builder->graph->nodes[node].layer->kind;
}

static void find_readers(struct builder *builder)
{
	const struct graph *graph = builder->graph;

	for (size_t i = 0; i < graph->node_count; i++)
		builder->places[i] = (struct place){PROGRAM_NONE, (int)i, false, PROGRAM_NONE};
	for (int i = 0; i < (int)graph->node_count; i++) {
		const struct graph_node *node = &graph->nodes[i];

		if (node->input >= 0)
			builder->places[node->input].reader = i;
		if (node->other >= 0)
			builder->places[node->other].reader = i;
	}
	for (size_t i = 0; i < graph->node_count; i++) {
		if (graph->nodes[i].readers != 1)
			builder->places[i].reader = PROGRAM_NONE;
	}
}

/* The node that reads [node] alone, if it is of [kind] and not taken. */
static int next_of(const struct builder *builder, int node, enum net_kind kind)
{
	int next = builder->places[node].reader;

	if (next == PROGRAM_NONE || kind_of(builder, next) != kind ||
	    builder->places[next].head != next)
		return PROGRAM_NONE;
	return next;
}

/* The operation that ends with [last] ends with [next] instead. */
static int extend(struct builder *builder, int last, int next)
{
	builder->places[next].head = builder->places[last].head;
	builder->places[last].inner = true;
	return next;
}

/* Of two BatchNorms that an addition reads, the later one takes it. */
static bool takes_addition(const struct builder *builder, int norm, int add)
{
	const struct graph_node *node = &builder->graph->nodes[add];
	int other = node->input == norm ? node->other : node->input;

	return other < norm || next_of(builder, other, NET_ADD) != add ||
	       kind_of(builder, other) != NET_NORM;
}

static void fuse(struct builder *builder)
{
	for (int i = 0; i < (int)builder->graph->node_count; i++) {
		enum net_kind kind = kind_of(builder, i);
		int last = i, next;

		if (builder->places[i].head != i)
			continue;
		next = kind == NET_NORM ? next_of(builder, last, NET_ADD) : PROGRAM_NONE;
		if (next != PROGRAM_NONE && takes_addition(builder, i, next))
			last = extend(builder, last, next);
		next = next_of(builder, last, NET_RELU);
		if (next != PROGRAM_NONE &&
		    (kind == NET_NORM || kind == NET_CONV || kind == NET_DENSE || kind == NET_ADD))
			extend(builder, last, next);
	}
}

static enum program_kind op_kind(enum net_kind kind)
{
	switch (kind) {
	case NET_NORM:
		return PROGRAM_NORM;
	case NET_RELU:
		return PROGRAM_RELU;
	case NET_MAX_POOL:
		return PROGRAM_MAX_POOL;
	case NET_AVERAGE_POOL:
		return PROGRAM_AVERAGE_POOL;
	case NET_DROPOUT:
		return PROGRAM_DROPOUT;
	case NET_ADD:
		return PROGRAM_ADD;
	default:
		return PROGRAM_MATH;
	}
}

static int value_of(const struct builder *builder, int node)
{
	return node < 0 ? PROGRAM_IMAGE : builder->places[node].value;
}

static int add_value(struct program *program, struct graph_shape shape)
{
	program->values[program->value_count] = (struct program_value){
		.shape = shape,
		.elements = graph_size(shape),
		.data = PROGRAM_NONE,
		.gradient = PROGRAM_NONE,
		.second = PROGRAM_NONE,
		.again = PROGRAM_NONE,
	};
	return program->value_count++;
}

/* What BatchNorm [head], which ends with [last], adds to its results. */
static int addend(const struct builder *builder, int head, int last)
{
	for (int node = head; node != last;) {
		const struct graph_node *next;

		node = builder->places[node].reader;
		next = &builder->graph->nodes[node];
		if (next->layer->kind == NET_ADD)
			return value_of(builder, next->input == head ? next->other : next->input);
	}
	return PROGRAM_NONE;
}

static void add_op(struct builder *builder, int last)
{
	struct program *program = builder->program;
	int head = builder->places[last].head;
	const struct graph_node *node = &builder->graph->nodes[head];
	struct program_op *op = &program->ops[program->op_count++];

	*op = (struct program_op){
		.kind = op_kind(node->layer->kind),
		.node = node,
		.layer = head,
		.name = node->layer->name ? node->layer->name : "",
		.input = value_of(builder, node->input),
		.other = PROGRAM_NONE,
		.relu = last != head && kind_of(builder, last) == NET_RELU,
		.temporary = PROGRAM_NONE,
		.which = PROGRAM_NONE,
		.keep = PROGRAM_NONE,
		.pool = PROGRAM_NONE,
		.dropout = PROGRAM_NONE,
	};
	if (op->kind == PROGRAM_ADD)
		op->other = value_of(builder, node->other);
	else if (op->kind == PROGRAM_NORM)
		op->other = addend(builder, head, last);
	op->output = add_value(program, builder->graph->nodes[last].out);
	builder->places[last].value = op->output;
	program->values[op->input].readers++;
	if (op->other != PROGRAM_NONE)
		program->values[op->other].readers++;
}

static void build(struct builder *builder, const struct program_options *options)
{
	const struct graph *graph = builder->graph;
	const struct net *net = graph->net;

	add_value(builder->program, (struct graph_shape){net->height, net->width, net->channels});
	find_readers(builder);
	fuse(builder);
	for (int i = 0; i < (int)graph->node_count; i++) {
		const struct graph_node *node = &graph->nodes[i];

		if (builder->places[i].inner)
			continue;
		if (node->layer->kind == NET_DROPOUT &&
		    (!options->dropout || !(node->layer->rate > 0)))
			builder->places[i].value = value_of(builder, node->input);
		else
			add_op(builder, i);
	}
}

static struct program *allocate(size_t nodes)
{
	struct program *program = calloc(1, sizeof(*program));

	if (!program)
		return NULL;
	program->room_limit = (int)nodes * ROOMS_EACH + ROOMS_MORE;
	program->ops = calloc(nodes + 1, sizeof(*program->ops));
	program->values = calloc(nodes + 1, sizeof(*program->values));
	program->rooms = calloc((size_t)program->room_limit, sizeof(*program->rooms));
	if (program->ops && program->values && program->rooms)
		return program;
	program_destroy(program);
	return NULL;
}

int program_create(struct program **result, const struct graph *graph,
		   const struct program_options *options, struct ddp_error *error)
{
	struct builder builder = {.graph = graph};
	int status;

	*result = NULL;
	builder.places = calloc(graph->node_count + 1, sizeof(*builder.places));
	builder.program = allocate(graph->node_count);
	if (!builder.places || !builder.program) {
		status = ddp_error_set(error, DDP_ERR_MEMORY, "network %s: out of memory",
				       graph->net->name);
		goto out;
	}
	builder.program->type = options->type;
	builder.program->alignment = options->alignment ? options->alignment : ALIGNMENT;
	build(&builder, options);
	status = program_connect(builder.program, options, error);
	if (status < 0)
		goto out;
	*result = builder.program;
	builder.program = NULL;
out:
	program_destroy(builder.program);
	free(builder.places);
	return status;
}

void program_destroy(struct program *program)
{
	if (!program)
		return;
	free(program->ops);
	free(program->values);
	free(program->rooms);
	free(program);
}

const struct program_value *program_result(const struct program *program)
{
	return &program->values[program->ops[program->op_count - 1].output];
}
