/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where values and gradients lie. What may be computed in place is: ReLU and dropout by
 * themselves, since nobody looks at what they read any more, and backwards whatever is element by
 * element. A gradient that two operations give is written by the first of them, from the end, and
 * added to by the other.
 */
#include "config.h"

#include "base/error.h"
#include "program.h"

/* A value is large that is so great a part of all. */
enum { LARGE = 64 };

int program_room(struct program *program, size_t bytes, size_t fixed)
{
	struct program_room *room = &program->rooms[program->room_count];

	*room = (struct program_room){.bytes = bytes, .fixed = fixed};
	for (int mode = 0; mode < PROGRAM_MODES; mode++) {
		room->first[mode] = 1;
		room->last[mode] = 0;
	}
	return program->room_count++;
}

/* One that holds what value [index] does. */
static int value_room(struct program *program, int index)
{
	return program_room(program, program->values[index].elements * ddp_type_size(program->type),
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
	program->values[PROGRAM_IMAGE].data = value_room(program, PROGRAM_IMAGE);
	for (int i = 0; i < program->op_count; i++) {
		struct program_op *op = &program->ops[i];
		struct program_value *output = &program->values[op->output];
		const struct program_value *input = &program->values[op->input];
		bool alone = op->kind == PROGRAM_RELU || op->kind == PROGRAM_DROPOUT;

		if (op->piece > 0)
			output->data = program_room(program, 0,
						    op->piece * output->elements *
							    ddp_type_size(program->type));
		else if (alone && op->input != PROGRAM_IMAGE && input->readers == 1)
			output->data = input->data;
		else
			output->data = value_room(program, op->output);
		if (op->kind == PROGRAM_MAX_POOL)
			op->which = program_room(program, output->elements, 0);
		if (op->kind == PROGRAM_DROPOUT && options->keep)
			op->keep = program_room(program, (output->elements + 7) / 8, 0);
	}
}

/* --- Lists ---------------------------------------------------------------------------------- */

/* The operation that reads [value] alone, if it is of [kind]. */
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

/* So many images that what is read and what is pooled of them stay in [cache] bytes. */
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

static bool can_list(const struct program *program, const struct program_op *op,
		     const struct program_options *options)
{
	const struct net_layer *layer = op->node->layer;

	return op->pool != PROGRAM_NONE && op->relu && layer->kind == NET_CONV &&
	       layer->stride <= 1 && layer->pad == 0 && program->type != DDP_F16 &&
	       program->ops[op->pool].node->layer->size == 2 && options->has_list(op->node);
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

/* Let [op] do the part of a ReLU before it, while the gradient that it makes is at hand. */
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

		if (can_list(program, op, options) &&
		    !(options->dense && options->dense[op->layer]))
			make_list(program, op);
	}
	for (int i = 0; i < program->op_count; i++) {
		if (program->ops[i].listed)
			mask_before(program, &program->ops[i]);
	}
}

/* What dropout leaves is above zero where the ReLU's result is, be it behind a max-pool. */
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

/* --- Again ---------------------------------------------------------------------------------- */

/*
 * What a BatchNorm makes for a convolution alone is soon made again from what it read, which is kept
 * in any case. That is done for the large ones: each holds memory from the beginning of a step to
 * its end. In bfloat16 they hold half as much, and steps are so short that the time would show.
 */
static void find_again(struct program *program)
{
	size_t all = 0;

	for (int i = 0; i < program->value_count; i++)
		all += program->values[i].elements;
	for (int i = 0; i < program->op_count; i++) {
		const struct program_op *op = &program->ops[i];
		struct program_value *value = &program->values[op->output];

		if (program->type != DDP_F32 || op->kind != PROGRAM_NORM ||
		    op->other != PROGRAM_NONE || value->elements < all / LARGE ||
		    reader_of(program, op->output, PROGRAM_MATH) == PROGRAM_NONE)
			continue;
		value->again = value_room(program, op->output);
		value->maker = i;
	}
}

/* --- Gradients ------------------------------------------------------------------------------ */

/*
 * Where the gradient of [value] goes that an operation makes: [room], or one of its own.
 * Returns whether there is one already, to be added to.
 */
static bool give_gradient(struct program *program, int value, int room)
{
	if (program->values[value].gradient != PROGRAM_NONE)
		return true;
	program->values[value].gradient = room != PROGRAM_NONE ? room : value_room(program, value);
	return false;
}

/* BatchNorm and additions pass the gradient on to [other] in its place, where that is free. */
static void give_gradients(struct program *program, struct program_op *op)
{
	int own = program->values[program_gradient(program, op)].gradient;
	bool in_place = op->kind == PROGRAM_NORM || op->kind == PROGRAM_ADD ||
			op->kind == PROGRAM_RELU || op->kind == PROGRAM_DROPOUT;
	bool both = op->other != PROGRAM_NONE && program->values[op->other].wanted;

	if (both) {
		op->accumulate_other = give_gradient(program, op->other, own);
		in_place = op->kind == PROGRAM_ADD && op->accumulate_other;
	}
	if (!program->values[op->input].wanted)
		return;
	op->accumulate = give_gradient(program, op->input, in_place ? own : PROGRAM_NONE);
	if (op->accumulate && op->kind != PROGRAM_ADD)
		op->temporary = value_room(program, op->input);
}

static int connect_gradients(struct program *program, struct ddp_error *error)
{
	const struct program_op *end = &program->ops[program->op_count - 1];

	give_gradient(program, end->output, PROGRAM_NONE);
	for (int i = program->op_count - 1; i >= 0; i--) {
		struct program_op *op = &program->ops[i];

		if (op->skipped || !program->values[op->output].wanted)
			continue;
		if (program->values[program_gradient(program, op)].gradient == PROGRAM_NONE)
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "layer %d (%s): nobody reads what it computes",
					     op->layer, op->name);
		give_gradients(program, op);
	}
	return 0;
}

/* The last gradient that is given to what a BatchNorm made is not added to the others before it. */
static void leave_sums(struct program *program)
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

static void touch(struct program *program, int room, enum program_mode mode, int time)
{
	struct program_room *at;

	if (room == PROGRAM_NONE)
		return;
	at = &program->rooms[room];
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

/* A value on the way back. */
static void touch_kept(struct program *program, int value, int time)
{
	if (program->values[value].again != PROGRAM_NONE)
		touch(program, program->values[value].again, PROGRAM_TRAIN, time);
	else
		touch_value(program, value, PROGRAM_TRAIN, time);
}

/* What each kind of operation looks at again. */
static void touch_back(struct program *program, const struct program_op *op, int time)
{
	if (op->kind == PROGRAM_MATH || op->kind == PROGRAM_NORM)
		touch_kept(program, op->input, time);
	if (op->kind == PROGRAM_MATH && program->values[op->input].again != PROGRAM_NONE)
		touch_value(program, program->ops[program->values[op->input].maker].input,
			    PROGRAM_TRAIN, time);
	if ((op->relu && !op->masked) || op->kind == PROGRAM_RELU ||
	    (op->masks && (op->kind == PROGRAM_MAX_POOL || op->kind == PROGRAM_DROPOUT)))
		touch_kept(program, op->output, time);
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
	touch(program, program->slopes, PROGRAM_TRAIN, count);
	touch_gradient(program, result, count);
	for (int i = count - 1; i >= 0; i--) {
		const struct program_op *op = &program->ops[i];

		if (!op->skipped && program->values[op->output].wanted)
			touch_back(program, op, 2 * count - i);
	}
}

int program_connect(struct program *program, const struct program_options *options,
		    struct ddp_error *error)
{
	const struct program_value *result;
	int status;

	if (program->op_count == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "a network without layers");
	want_gradients(program);
	find_pools(program, options->cache);
	place_values(program, options);
	if (options->has_list)
		find_lists(program, options);
	if (options->drop_masks)
		mask_by_dropout(program);
	if (options->again)
		find_again(program);
	status = connect_gradients(program, error);
	if (status < 0)
		return status;
	if (options->joins)
		leave_sums(program);
	result = program_result(program);
	program->labels = program_room(program, sizeof(int32_t), 0);
	program->logits = result->data;
	program->slopes = result->gradient;
	if (program->type != DDP_F32 && options->wide) {
		program->logits = program_room(program, result->elements * sizeof(float), 0);
		program->slopes = program_room(program, result->elements * sizeof(float), 0);
	}
	set_times(program);
	return 0;
}
