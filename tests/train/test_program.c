/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_program.c - operations and memory plan of compiled networks; dropout masks
 */
#include "config.h"

#include <math.h>

#include "cpu/engine-private.h"
#include "networks.h"
#include "unit.h"

static const struct {
	const char *name; /* name of a predefined network or of a network in networks.h */
	const struct net *net;
	int ops, pools, lists;
	double most; /* limit in bytes per image, for training in f32 */
} rows[] = {
	/* These operations: conv1, conv2, pool, dropout, fc1, dropout, fc2. */
	{"mnist", NULL, 7, 1, 1, 284e3},
	/* These operations: 20 convolutions, 20 BatchNorms with their additions, a pool and fc. */
	{"cifar", NULL, 42, 0, 0, 5.2e6},
	{"like mnist", &like_mnist, 8, 1, 1, 80e3},
	{"odd", &odd, 5, 1, 1, 15e3},
	{"residual", &residual, 15, 0, 0, 40e3},
	{"tangled", &tangled, 18, 0, 0, 80e3},
};

struct compiled {
	struct net *own;
	struct graph *graph;
	struct program *program;
};

static void compile(struct compiled *compiled, int row, bool dropout, bool lists)
{
	struct program_options options = engine_program_options(DDP_F32, dropout, lists);
	struct ddp_error error;

	compiled->own = rows[row].net ? NULL : net_create(rows[row].name, 0);
	ck_assert_int_eq(graph_create(&compiled->graph,
				      rows[row].net ? rows[row].net : compiled->own, &error),
			 0);
	ck_assert_int_eq(program_create(&compiled->program, compiled->graph, &options, &error), 0);
}

static void discard(struct compiled *compiled)
{
	program_destroy(compiled->program);
	graph_destroy(compiled->graph);
	net_destroy(compiled->own);
}

static int pools_of(const struct program *program)
{
	int pools = 0;

	for (int i = 0; i < program->op_count; i++)
		pools += program->ops[i].inner;
	return pools;
}

static int lists_of(const struct program *program)
{
	int lists = 0;

	for (int i = 0; i < program->op_count; i++)
		lists += program->ops[i].listed;
	return lists;
}

TEST_ROWS(test_ops, rows)
{
	struct compiled compiled;

	compile(&compiled, _i, true, true);
	unit_number(rows[_i].name, "operations", compiled.program->op_count, rows[_i].ops);
	unit_number(rows[_i].name, "pools", pools_of(compiled.program), rows[_i].pools);
	unit_number(rows[_i].name, "lists", lists_of(compiled.program), rows[_i].lists);
	discard(&compiled);
	compile(&compiled, _i, false, false);
	unit_number(rows[_i].name, "lists", lists_of(compiled.program), 0);
	for (int i = 0; i < compiled.program->op_count; i++)
		ck_assert_int_ne(compiled.program->ops[i].kind, PROGRAM_DROPOUT);
	discard(&compiled);
}

static size_t size_of(const struct program_area *area, size_t images)
{
	return area->bytes * images + area->fixed;
}

static bool overlap(const struct program_area *a, const struct program_area *b,
		    enum program_mode mode, size_t images)
{
	return a->offset[mode] < b->offset[mode] + size_of(b, images) &&
	       b->offset[mode] < a->offset[mode] + size_of(a, images);
}

static void check_areas(const char *row, const struct program *program, enum program_mode mode,
			size_t images, size_t all)
{
	for (int i = 0; i < program->area_count; i++) {
		const struct program_area *a = &program->areas[i];

		if (a->first[mode] > a->last[mode])
			continue;
		ck_assert_uint_eq(a->offset[mode] % 64, 0);
		ck_assert_uint_le(a->offset[mode] + size_of(a, images), all);
		for (int j = 0; j < i; j++) {
			const struct program_area *b = &program->areas[j];

			ck_assert_msg(b->first[mode] > b->last[mode] ||
					      b->first[mode] > a->last[mode] ||
					      a->first[mode] > b->last[mode] ||
					      !overlap(a, b, mode, images),
				      "%s: areas %d and %d meet", row, i, j);
		}
	}
}

/*
 * For an engine without the CPU engine's options, each value has its own area, which has space for
 * a whole batch and the requested alignment.
 */
TEST_ROWS(test_plain, rows)
{
	struct program_options options = {.type = DDP_BF16, .dropout = true, .alignment = 256};
	struct compiled compiled;
	int masks = 0;

	compile(&compiled, _i, true, true);
	program_destroy(compiled.program);
	ck_assert_int_eq(program_create(&compiled.program, compiled.graph, &options, NULL), 0);
	unit_number(rows[_i].name, "operations", compiled.program->op_count, rows[_i].ops);
	unit_number(rows[_i].name, "pieces", pools_of(compiled.program), 0);
	unit_number(rows[_i].name, "lists", lists_of(compiled.program), 0);
	for (int i = 0; i < compiled.program->op_count; i++) {
		const struct program_op *op = &compiled.program->ops[i];

		ck_assert_int_eq(op->keep, PROGRAM_NONE);
		ck_assert_int_eq(op->pool, PROGRAM_NONE);
		ck_assert(!op->masks || op->kind == PROGRAM_MAX_POOL);
		masks += op->masks;
	}
	unit_number(rows[_i].name, "pools that mask", masks, rows[_i].pools);
	program_place(compiled.program, PROGRAM_TRAIN, 3);
	for (int i = 0; i < compiled.program->area_count; i++)
		if (compiled.program->areas[i].first[PROGRAM_TRAIN] <=
		    compiled.program->areas[i].last[PROGRAM_TRAIN])
			ck_assert_uint_eq(compiled.program->areas[i].offset[PROGRAM_TRAIN] % 256,
					  0);
	ck_assert_int_eq(compiled.program->logits, program_result(compiled.program)->data);
	ck_assert_int_eq(compiled.program->logit_gradients,
			 program_result(compiled.program)->gradient);
	discard(&compiled);
}

/* Areas that are used at the same time do not overlap, and no area exceeds the returned size. */
TEST_ROWS(test_areas, rows)
{
	static const size_t images[] = {1, 3, 64};
	struct compiled compiled;

	compile(&compiled, _i, true, true);
	for (size_t i = 0; i < 3; i++) {
		for (int mode = 0; mode < PROGRAM_MODES; mode++) {
			size_t all =
				program_place(compiled.program, (enum program_mode)mode, images[i]);

			check_areas(rows[_i].name, compiled.program, (enum program_mode)mode,
				    images[i], all);
			ck_assert_msg((double)all <= rows[_i].most * (double)images[i] + (1 << 20),
				      "%s: %zu bytes for %zu images", rows[_i].name, all,
				      images[i]);
		}
	}
	discard(&compiled);
}

/* The values of a pool and of its dropout share an area. So do their gradients. */
static void check_in_place(const struct program *program, int a, int b)
{
	ck_assert_int_eq(program->values[a].data, program->values[b].data);
	ck_assert_int_eq(program->values[a].gradient, program->values[b].gradient);
}

/*
 * mnist has two dropouts: the pool before the first one computes it, and the second one follows a
 * dense layer.
 */
TEST_ROWS(test_drop_masks, rows)
{
	struct program_options options = {.type = DDP_F32, .dropout = true, .drop_masks = true};
	struct compiled compiled;
	int pools = 0, dropouts = 0, masked = 0, inner = 0;

	compile(&compiled, _i, true, true);
	program_destroy(compiled.program);
	ck_assert_int_eq(program_create(&compiled.program, compiled.graph, &options, NULL), 0);
	for (int i = 0; i < compiled.program->op_count; i++) {
		const struct program_op *op = &compiled.program->ops[i];

		pools += op->masks && op->kind == PROGRAM_MAX_POOL;
		dropouts += op->masks && op->kind == PROGRAM_DROPOUT;
		masked += op->masked;
		inner += op->inner;
		if (op->kind == PROGRAM_MAX_POOL && op->dropout != PROGRAM_NONE)
			check_in_place(compiled.program, op->output,
				       compiled.program->ops[op->dropout].output);
	}
	unit_number(rows[_i].name, "pools that mask", pools, rows[_i].pools);
	unit_number(rows[_i].name, "dropouts that mask", dropouts, _i == 0 || _i == 2);
	unit_number(rows[_i].name, "dropouts in pools", inner, _i == 0 || _i == 2);
	unit_number(rows[_i].name, "ReLUs that are masked", masked, pools + dropouts);
	check_areas(rows[_i].name, compiled.program, PROGRAM_TRAIN, 3,
		    program_place(compiled.program, PROGRAM_TRAIN, 3));
	discard(&compiled);
}

/* --- Dropout ------------------------------------------------------------------------------------ */

static const struct {
	float rate;
	uint32_t limit;
	int planes;
	double scale;
} rates[] = {
	{0.5f, 1, 1, 2},
	{0.25f, 1, 2, 4.0 / 3},
	{0.75f, 3, 2, 4},
	{0.1f, 3277, 15, 1 / (1 - 6554.0 / 65536)},
	{1e-9f, 1, 16, 1 / (1 - 1.0 / 65536)},
	{1, 65535, 16, 65536},
};

enum { ORDERS = 64, ELEMENTS = 1000 };

static bool bit_of(const uint8_t *keep, size_t at)
{
	return keep[at / 8] >> at % 8 & 1;
}

/* The fraction of dropped elements is the rate, within five standard deviations. */
TEST_ROWS(test_rate, rates)
{
	struct dropout dropout = {.seed = 1, .epoch = 2, .layer = 3};
	static uint8_t keep[ORDERS * ELEMENTS / 8];
	uint64_t orders[ORDERS];
	double rate = 1 - 1 / rates[_i].scale, all = ORDERS * ELEMENTS, dropped = 0;

	for (uint64_t i = 0; i < ORDERS; i++)
		orders[i] = i;
	dropout_set_rate(&dropout, rates[_i].rate);
	ck_assert_uint_eq(dropout.limit, rates[_i].limit);
	ck_assert_int_eq(dropout.planes, rates[_i].planes);
	ck_assert_double_eq_tol((double)dropout.scale, rates[_i].scale, 1e-6 * rates[_i].scale);
	dropout_draw(&dropout, orders, ORDERS, ELEMENTS, keep);
	for (size_t i = 0; i < ORDERS * ELEMENTS; i++)
		dropped += !bit_of(keep, i);
	ck_assert_msg(fabs(dropped - all * rate) < 5 * sqrt(all * rate * (1 - rate)) + 1,
		      "%g dropped of %g at %g", dropped, all, rate);
}

/* A sample's mask is the same in every batch, and no other sample has the same mask. */
TEST_LOOP(test_alone, 0, 7)
{
	static const size_t counts[] = {1, 7, 32, 37, 128, 129, 1000};
	size_t count = counts[_i];
	struct dropout dropout = {.seed = 1, .epoch = 2, .layer = 3};
	uint64_t orders[3] = {5, 1000000007, 6};
	uint8_t together[3 * 1000 / 8 + 1], alone[1000 / 8 + 1];
	size_t equal = 0;

	dropout_set_rate(&dropout, 0.25f);
	dropout_draw(&dropout, orders, 3, count, together);
	for (size_t i = 0; i < 3; i++) {
		dropout_draw(&dropout, &orders[i], 1, count, alone);
		for (size_t e = 0; e < count; e++) {
			ck_assert(bit_of(together, i * count + e) == bit_of(alone, e));
			equal += bit_of(alone, e) == bit_of(together, e);
		}
	}
	for (size_t k = 3 * count; k < (3 * count + 7) / 8 * 8; k++)
		ck_assert(!bit_of(together, k));
	if (count >= 128)
		ck_assert_uint_lt(equal, 3 * count);
}

UNIT_MAIN("program", NULL)
