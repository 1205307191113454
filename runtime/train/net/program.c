/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.c - compiles a graph into operations, connects gradients and plans memory
 */
#include "config.h"

#include <stdlib.h>

#include "base/xalloc.h"
#include "program.h"

/* --- Memory plan ------------------------------------------------------------------------- */

/*
 * Areas are placed in order of size, the largest first. Each area gets the lowest offset at which
 * it does not overlap an area that was placed before and is in use at the same time.
 */

static size_t size_of(const struct program *program, const struct program_area *area, size_t images)
{
	size_t bytes = area->bytes * images + area->fixed, unit = program->alignment;

	return (bytes + unit - 1) / unit * unit;
}

static bool is_used(const struct program_area *area, enum program_mode mode)
{
	return area->first[mode] <= area->last[mode];
}

/* offset of an area that is not placed yet; larger than every offset */
static const size_t unplaced = SIZE_MAX;

static bool overlaps(const struct program_area *a, const struct program_area *b,
		     enum program_mode mode)
{
	return is_used(b, mode) && b->offset[mode] != unplaced && a->first[mode] <= b->last[mode] &&
	       b->first[mode] <= a->last[mode];
}

/* Returns the end of an area that overlaps [area] at [offset], or 0 if no area does. */
static size_t obstacle(const struct program *program, const struct program_area *area,
		       size_t offset, enum program_mode mode, size_t images)
{
	size_t end = offset + size_of(program, area, images);

	for (int i = 0; i < program->area_count; i++) {
		const struct program_area *at = &program->areas[i];
		size_t bytes = size_of(program, at, images);

		if (overlaps(area, at, mode) && at->offset[mode] < end &&
		    offset < at->offset[mode] + bytes)
			return at->offset[mode] + bytes;
	}
	return 0;
}

/*
 * Returns the lowest offset at which [area] overlaps no placed area. If a placed area overlaps, the
 * search continues at the end of that area, because no earlier offset is possible.
 */
static size_t find_offset(const struct program *program, const struct program_area *area,
			  enum program_mode mode, size_t images)
{
	size_t offset = 0, next;

	while ((next = obstacle(program, area, offset, mode, images)) > 0)
		offset = next;
	return offset;
}

static struct program_area *largest_left(struct program *program, enum program_mode mode,
					 size_t images)
{
	struct program_area *largest = NULL;

	for (int i = 0; i < program->area_count; i++) {
		struct program_area *area = &program->areas[i];

		if (is_used(area, mode) && area->offset[mode] == unplaced &&
		    (!largest ||
		     size_of(program, area, images) > size_of(program, largest, images)))
			largest = area;
	}
	return largest;
}

size_t program_place(struct program *program, enum program_mode mode, size_t images)
{
	struct program_area *area;
	size_t all = 0;

	for (int i = 0; i < program->area_count; i++)
		program->areas[i].offset[mode] = unplaced;
	while ((area = largest_left(program, mode, images))) {
		size_t offset = find_offset(program, area, mode, images);
		size_t end = offset + size_of(program, area, images);

		area->offset[mode] = offset;
		all = end > all ? end : all;
	}
	return all;
}

size_t program_place_both(struct program *program, size_t batch, size_t test_batch, size_t least,
			  size_t *piece)
{
	size_t bytes = program_place(program, PROGRAM_TRAIN, batch), need, pieces = 1;
	size_t limit = bytes > least ? bytes : least;

	for (;; pieces++) {
		*piece = (test_batch + pieces - 1) / pieces;
		need = program_place(program, PROGRAM_TEST, *piece);
		if (need <= limit || *piece <= 1)
			return need > bytes ? need : bytes;
	}
}

/* --- Gradients, and the times at which areas are in use ---------------------------------- */

/*
 * A ReLU or dropout that is a separate operation is computed in place if no other operation reads
 * its input. All element-wise operations of the backward pass are in place, too. If two operations
 * compute a gradient of the same value, the operation that runs first in the backward pass writes
 * its gradient, and the other operation adds its own to that.
 */

static int program_area(struct program *program, size_t bytes, size_t fixed)
{
	struct program_area *area = &program->areas[program->area_count];

	*area = (struct program_area){.bytes = bytes, .fixed = fixed};
	for (int mode = 0; mode < PROGRAM_MODES; mode++) {
		area->first[mode] = 1;
		area->last[mode] = 0;
	}
	return program->area_count++;
}

static int value_area(struct program *program, int index)
{
	return program_area(program, program->values[index].elements * ddp_type_size(program->type),
			    0);
}

/* --- Values --------------------------------------------------------------------------------- */

static void want_gradients(struct program *program)
{
	for (int i = 0; i < program->op_count; i++) {
		const struct program_op *op = &program->ops[i];

		program->values[op->output].wanted =
			op->kind == PROGRAM_MATH || op->kind == PROGRAM_NORM ||
			program->values[op->input].wanted ||
			(op->other != PROGRAM_NONE && program->values[op->other].wanted);
	}
}

static void place_values(struct program *program, const struct program_options *options)
{
	program->values[PROGRAM_IMAGE].data = value_area(program, PROGRAM_IMAGE);
	for (int i = 0; i < program->op_count; i++) {
		struct program_op *op = &program->ops[i];
		struct program_value *output = &program->values[op->output];
		const struct program_value *input = &program->values[op->input];
		bool alone = op->kind == PROGRAM_RELU || op->kind == PROGRAM_DROPOUT;

		if (op->piece > 0)
			output->data = program_area(program, 0,
						    op->piece * output->elements *
							    ddp_type_size(program->type));
		else if (alone && op->input != PROGRAM_IMAGE && input->readers == 1)
			output->data = input->data;
		else
			output->data = value_area(program, op->output);
		if (op->kind == PROGRAM_MAX_POOL)
			op->which = program_area(program, output->elements, 0);
		if (op->kind == PROGRAM_DROPOUT && options->keep)
			op->keep = program_area(program, (output->elements + 7) / 8, 0);
	}
}

/* --- Gradient lists and fused pools --------------------------------------------------------- */

/* Returns the only operation that reads [value] if its kind is [kind], else PROGRAM_NONE. */
static int reader_of(const struct program *program, int value, enum program_kind kind)
{
	if (program->values[value].readers != 1)
		return PROGRAM_NONE;
	for (int i = 0; i < program->op_count; i++) {
		if (program->ops[i].input == value || program->ops[i].other == value)
			return program->ops[i].kind == kind ? i : PROGRAM_NONE;
	}
	return PROGRAM_NONE;
}

/* Returns how many images fit into [cache] bytes, with input and output of convolution [op]. */
static size_t piece_of(const struct program *program, const struct program_op *op, size_t cache)
{
	size_t each = program->values[op->input].elements + program->values[op->output].elements;
	size_t piece = cache / (each * ddp_type_size(program->type));

	return piece > 0 ? piece : 1;
}

static void find_pools(struct program *program, size_t cache)
{
	for (int i = 0; i < program->op_count; i++) {
		struct program_op *op = &program->ops[i];
		int pool = op->kind == PROGRAM_MATH
				   ? reader_of(program, op->output, PROGRAM_MAX_POOL)
				   : PROGRAM_NONE;

		if (pool == PROGRAM_NONE)
			continue;
		op->masked = program->ops[pool].masks = op->relu;
		if (cache == 0)
			continue;
		op->pool = pool;
		op->piece = piece_of(program, op, cache);
		program->ops[pool].inner = true;
	}
}

static bool can_list(const struct program_op *op, const struct program_options *options)
{
	const struct net_layer *layer = op->node->layer;

	return op->pool != PROGRAM_NONE && op->relu && layer->kind == NET_CONV &&
	       layer->stride <= 1 && layer->pad == 0 && options->has_list(op->node);
}

static void make_list(struct program *program, struct program_op *op)
{
	int dropout = reader_of(program, program->ops[op->pool].output, PROGRAM_DROPOUT);

	op->listed = true;
	op->dropout = dropout;
	program->ops[op->pool].skipped = true;
	if (dropout != PROGRAM_NONE)
		program->ops[dropout].skipped = true;
}

/* Let [op] apply the ReLU mask of the preceding operation to the gradient that [op] computes. */
static void mask_before(struct program *program, struct program_op *op)
{
	for (int i = 0; i < program->op_count; i++) {
		struct program_op *before = &program->ops[i];

		if (before->output == op->input && before->kind == PROGRAM_MATH && before->relu &&
		    !before->masked && program->values[op->input].readers == 1)
			before->masked = op->masks = true;
	}
}

static void find_lists(struct program *program, const struct program_options *options)
{
	for (int i = 0; i < program->op_count; i++) {
		struct program_op *op = &program->ops[i];

		if (can_list(op, options))
			make_list(program, op);
	}
	for (int i = 0; i < program->op_count; i++) {
		if (program->ops[i].listed)
			mask_before(program, &program->ops[i]);
	}
}

/*
 * Let dropout apply the mask of a ReLU before it. If dropout keeps a value, dropout's result is
 * above zero exactly if the ReLU's result is, even with a max-pool between the two.
 */
static void mask_by_dropout(struct program *program)
{
	for (int i = 0; i < program->op_count; i++) {
		struct program_op *op = &program->ops[i];
		int reader = reader_of(program, op->output, PROGRAM_DROPOUT);

		if (reader == PROGRAM_NONE)
			continue;
		if (op->kind == PROGRAM_MATH && op->relu && !op->masked)
			op->masked = program->ops[reader].masks = true;
		if (op->kind == PROGRAM_MAX_POOL && op->masks) {
			op->dropout = reader;
			program->ops[reader].inner = true;
		}
	}
}

int program_gradient(const struct program *program, const struct program_op *op)
{
	if (!op->listed)
		return op->output;
	return program->ops[op->dropout != PROGRAM_NONE ? op->dropout : op->pool].output;
}

/* --- Gradients ------------------------------------------------------------------------------ */

/*
 * Assigns [area], or a new area if [area] is PROGRAM_NONE, to the gradient of [value]. If the
 * gradient already has an area, returns true, and the operation must add to the gradient.
 */
static bool assign_gradient(struct program *program, int value, int area)
{
	if (program->values[value].gradient != PROGRAM_NONE)
		return true;
	program->values[value].gradient = area != PROGRAM_NONE ? area : value_area(program, value);
	return false;
}

/*
 * Assigns areas to the gradients of the inputs of [op]. If BatchNorm or an addition no longer needs
 * the gradient of its output, the gradient of [other] reuses that area.
 */
static void assign_gradients(struct program *program, struct program_op *op)
{
	int own = program->values[program_gradient(program, op)].gradient;
	bool in_place = op->kind == PROGRAM_NORM || op->kind == PROGRAM_ADD ||
			op->kind == PROGRAM_RELU || op->kind == PROGRAM_DROPOUT;
	bool both = op->other != PROGRAM_NONE && program->values[op->other].wanted;

	if (both) {
		op->accumulate_other = assign_gradient(program, op->other, own);
		in_place = op->kind == PROGRAM_ADD && op->accumulate_other;
	}
	if (!program->values[op->input].wanted)
		return;
	op->accumulate = assign_gradient(program, op->input, in_place ? own : PROGRAM_NONE);
	if (op->accumulate && op->kind != PROGRAM_ADD)
		op->temporary = value_area(program, op->input);
}

static void connect_gradients(struct program *program)
{
	const struct program_op *end = &program->ops[program->op_count - 1];

	assign_gradient(program, end->output, PROGRAM_NONE);
	for (int i = program->op_count - 1; i >= 0; i--) {
		struct program_op *op = &program->ops[i];

		if (!op->skipped && program->values[op->output].wanted)
			assign_gradients(program, op);
	}
}

/*
 * If two gradients of a BatchNorm's output would be added, leaves the gradient that is computed
 * later in its own area. BatchNorm's backward pass then adds the two.
 */
static void leave_second_gradients(struct program *program)
{
	for (int i = 0; i < program->op_count; i++) {
		struct program_op *op = &program->ops[i];
		struct program_value *input = &program->values[op->input];

		for (int maker = 0; op->temporary != PROGRAM_NONE && maker < i; maker++) {
			if (program->ops[maker].output != op->input ||
			    program->ops[maker].kind != PROGRAM_NORM ||
			    input->second != PROGRAM_NONE)
				continue;
			input->second = op->temporary;
			op->left = true;
		}
	}
}

/* --- Times ---------------------------------------------------------------------------------- */

static void touch(struct program *program, int area, enum program_mode mode, int time)
{
	struct program_area *at;

	if (area == PROGRAM_NONE)
		return;
	at = &program->areas[area];
	if (at->first[mode] > at->last[mode]) {
		at->first[mode] = at->last[mode] = time;
		return;
	}
	at->first[mode] = time < at->first[mode] ? time : at->first[mode];
	at->last[mode] = time > at->last[mode] ? time : at->last[mode];
}

static void touch_value(struct program *program, int value, enum program_mode mode, int time)
{
	if (value != PROGRAM_NONE)
		touch(program, program->values[value].data, mode, time);
}

static void touch_gradient(struct program *program, int value, int time)
{
	if (value != PROGRAM_NONE)
		touch(program, program->values[value].gradient, PROGRAM_TRAIN, time);
}

static void touch_forward(struct program *program, const struct program_op *op,
			  enum program_mode mode, int time)
{
	touch_value(program, op->input, mode, time);
	touch_value(program, op->other, mode, time);
	touch_value(program, op->output, mode, time);
	touch(program, op->which, mode, time);
	touch(program, op->keep, mode, time);
	if (op->pool != PROGRAM_NONE) {
		touch_value(program, program->ops[op->pool].output, mode, time);
		touch(program, program->ops[op->pool].which, mode, time);
	}
}

static void touch_list(struct program *program, const struct program_op *op, int time)
{
	touch_value(program, program_gradient(program, op), PROGRAM_TRAIN, time);
	touch(program, program->ops[op->pool].which, PROGRAM_TRAIN, time);
	if (op->dropout != PROGRAM_NONE)
		touch(program, program->ops[op->dropout].keep, PROGRAM_TRAIN, time);
}

/* Marks the areas that the backward pass of [op] uses as used at [time]. */
static void touch_back(struct program *program, const struct program_op *op, int time)
{
	if (op->kind == PROGRAM_MATH || op->kind == PROGRAM_NORM)
		touch_value(program, op->input, PROGRAM_TRAIN, time);
	if ((op->relu && !op->masked) || op->kind == PROGRAM_RELU ||
	    (op->masks && (op->kind == PROGRAM_MAX_POOL || op->kind == PROGRAM_DROPOUT)))
		touch_value(program, op->output, PROGRAM_TRAIN, time);
	if (op->listed)
		touch_list(program, op, time);
	touch(program, op->which, PROGRAM_TRAIN, time);
	touch(program, op->keep, PROGRAM_TRAIN, time);
	touch(program, op->temporary, PROGRAM_TRAIN, time);
	touch_gradient(program, program_gradient(program, op), time);
	touch_gradient(program, op->input, time);
	touch_gradient(program, op->other, time);
	touch(program, program->values[op->output].second, PROGRAM_TRAIN, time);
}

static void set_times(struct program *program)
{
	int count = program->op_count, result = program->ops[count - 1].output;

	for (int i = 0; i < PROGRAM_MODES; i++) {
		enum program_mode mode = (enum program_mode)i;

		touch_value(program, PROGRAM_IMAGE, mode, 0);
		touch(program, program->labels, mode, 0);
		for (int op = 0; op < count; op++)
			touch_forward(program, &program->ops[op], mode, op);
		touch_value(program, result, mode, count);
		touch(program, program->labels, mode, count);
		touch(program, program->logits, mode, count);
	}
	touch(program, program->logit_gradients, PROGRAM_TRAIN, count);
	touch_gradient(program, result, count);
	for (int i = count - 1; i >= 0; i--) {
		const struct program_op *op = &program->ops[i];

		if (!op->skipped && program->values[op->output].wanted)
			touch_back(program, op, 2 * count - i);
	}
}

/* Assigns areas to values and gradients, and computes when each area is in use. */
static void program_connect(struct program *program, const struct program_options *options)
{
	const struct program_value *result;

	want_gradients(program);
	find_pools(program, options->cache);
	place_values(program, options);
	if (options->has_list)
		find_lists(program, options);
	if (options->drop_masks)
		mask_by_dropout(program);
	connect_gradients(program);
	if (options->joins)
		leave_second_gradients(program);
	result = program_result(program);
	program->labels = program_area(program, sizeof(int32_t), 0);
	program->logits = result->data;
	program->logit_gradients = result->gradient;
	if (program->type != DDP_F32 && options->wide) {
		program->logits = program_area(program, result->elements * sizeof(float), 0);
		program->logit_gradients =
			program_area(program, result->elements * sizeof(float), 0);
	}
	set_times(program);
}

/* --- Operations -------------------------------------------------------------------------- */

/* maximum number of areas: AREAS_EACH per operation, and AREAS_MORE of the program */
enum { AREAS_EACH = 8, AREAS_MORE = 8 };

enum { ALIGNMENT = 64 };

/* State of a node while operations are made. */
struct node_state {
	int reader; /* the only node that reads this node; PROGRAM_NONE: none or several */
	int head;   /* first node of the operation that ends with this node */
	bool inner; /* the operation of this node ends with a later node */
	int value;
};

struct builder {
	const struct graph *graph;
	struct program *program;
	struct node_state *states;
};

static enum net_kind kind_of(const struct builder *builder, int node)
{
	return builder->graph->nodes[node].layer->kind;
}

static void find_readers(struct builder *builder)
{
	const struct graph *graph = builder->graph;

	for (size_t i = 0; i < graph->node_count; i++)
		builder->states[i] = (struct node_state){PROGRAM_NONE, (int)i, false, PROGRAM_NONE};
	for (int i = 0; i < (int)graph->node_count; i++) {
		const struct graph_node *node = &graph->nodes[i];

		if (node->input >= 0)
			builder->states[node->input].reader = i;
		if (node->other >= 0)
			builder->states[node->other].reader = i;
	}
	for (size_t i = 0; i < graph->node_count; i++) {
		if (graph->nodes[i].readers != 1)
			builder->states[i].reader = PROGRAM_NONE;
	}
}

/*
 * Returns the node that reads [node] if it is the only one, its kind is [kind] and it is not yet
 * part of another operation. Otherwise returns PROGRAM_NONE.
 */
static int next_of(const struct builder *builder, int node, enum net_kind kind)
{
	int next = builder->states[node].reader;

	if (next == PROGRAM_NONE || kind_of(builder, next) != kind ||
	    builder->states[next].head != next)
		return PROGRAM_NONE;
	return next;
}

static int extend(struct builder *builder, int last, int next)
{
	builder->states[next].head = builder->states[last].head;
	builder->states[last].inner = true;
	return next;
}

/* If both inputs of an addition are BatchNorms, the addition is fused with the later one. */
static bool fuses_addition(const struct builder *builder, int norm, int add)
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

		if (builder->states[i].head != i)
			continue;
		next = kind == NET_NORM ? next_of(builder, last, NET_ADD) : PROGRAM_NONE;
		if (next != PROGRAM_NONE && fuses_addition(builder, i, next))
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
	return node < 0 ? PROGRAM_IMAGE : builder->states[node].value;
}

static int add_value(struct program *program, struct graph_shape shape)
{
	program->values[program->value_count] = (struct program_value){
		.elements = graph_size(shape),
		.data = PROGRAM_NONE,
		.gradient = PROGRAM_NONE,
		.second = PROGRAM_NONE,
	};
	return program->value_count++;
}

/*
 * Returns the second input of the addition that is fused with BatchNorm [head], or PROGRAM_NONE.
 * [last] is the last node of the operation.
 */
static int addend(const struct builder *builder, int head, int last)
{
	for (int node = head; node != last;) {
		const struct graph_node *next;

		node = builder->states[node].reader;
		next = &builder->graph->nodes[node];
		if (next->layer->kind == NET_ADD)
			return value_of(builder, next->input == head ? next->other : next->input);
	}
	return PROGRAM_NONE;
}

static void add_op(struct builder *builder, int last)
{
	struct program *program = builder->program;
	int head = builder->states[last].head;
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
	builder->states[last].value = op->output;
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

		if (builder->states[i].inner)
			continue;
		if (node->layer->kind == NET_DROPOUT &&
		    (!options->dropout || !(node->layer->rate > 0)))
			builder->states[i].value = value_of(builder, node->input);
		else
			add_op(builder, i);
	}
}

struct program *program_create(const struct graph *graph, const struct program_options *options)
{
	size_t nodes = graph->node_count, areas = nodes * AREAS_EACH + AREAS_MORE;
	struct program *program = ddp_xcalloc(1, sizeof(*program), "the network");
	struct builder builder = {.graph = graph, .program = program};

	program->type = options->type;
	program->alignment = options->alignment ? options->alignment : ALIGNMENT;
	program->ops = ddp_xcalloc(nodes + 1, sizeof(*program->ops), "the network");
	program->values = ddp_xcalloc(nodes + 1, sizeof(*program->values), "the network");
	program->areas = ddp_xcalloc(areas, sizeof(*program->areas), "the network");
	builder.states = ddp_xcalloc(nodes + 1, sizeof(*builder.states), "the network");
	build(&builder, options);
	free(builder.states);
	program_connect(program, options);
	return program;
}

void program_destroy(struct program *program)
{
	if (!program)
		return;
	free(program->ops);
	free(program->values);
	free(program->areas);
	free(program);
}

const struct program_value *program_result(const struct program *program)
{
	return &program->values[program->ops[program->op_count - 1].output];
}
