/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_program.c - memory plan of compiled networks, tables of networks that are rejected, and
 * dropout masks
 *
 * tests/interop compares the parameters, initial weights and losses of mnist and cifar with PyTorch's.
 */
#include "config.h"

#include <math.h>

#include "cpu/engine-private.h"
#include "networks.h"
#include "unit.h"

static const struct {
	const char *name; /* name of a predefined network or of a network in networks.h */
	const struct net *net;
	double most; /* limit in bytes per image, for training in f32 */
} rows[] = {
	{"mnist", NULL, 284e3}, {"cifar", NULL, 5.2e6},	       {"like mnist", &like_mnist, 80e3},
	{"odd", &odd, 15e3},	{"residual", &residual, 40e3}, {"tangled", &tangled, 80e3},
};

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

/* Areas that are used at the same time do not overlap, and no area exceeds the returned size. */
TEST_ROWS(test_areas, rows)
{
	static const size_t images[] = {1, 3, 64};
	struct program_options options = engine_program_options(DDP_F32, true, true);
	struct net *own = rows[_i].net ? NULL : net_create(rows[_i].name, 0);
	struct program *program;
	struct graph *graph;

	ck_assert_int_eq(graph_create(&graph, own ? own : rows[_i].net, NULL), 0);
	program = program_create(graph, &options);
	for (size_t i = 0; i < 3; i++) {
		for (int mode = 0; mode < PROGRAM_MODES; mode++) {
			size_t all = program_place(program, (enum program_mode)mode, images[i]);

			check_areas(rows[_i].name, program, (enum program_mode)mode, images[i],
				    all);
			ck_assert_msg((double)all <= rows[_i].most * (double)images[i] + (1 << 20),
				      "%s: %zu bytes for %zu images", rows[_i].name, all,
				      images[i]);
		}
	}
	program_destroy(program);
	graph_destroy(graph);
	net_destroy(own);
}

/* --- Inconsistent tables ---------------------------------------------------------------- */

#define CONV(outputs_, ...)                                                                 \
	{                                                                                   \
		.kind = NET_CONV, .name = "c", .outputs = outputs_, .size = 3, .stride = 1, \
		__VA_ARGS__                                                                 \
	}
#define DENSE                                                  \
	{                                                      \
		.kind = NET_DENSE, .name = "fc", .outputs = 10 \
	}

/* Tables for an image of 8 x 8 x 3 and ten classes. */
static const struct {
	struct net_layer layers[4];
	const char *piece;
} wrong[] = {
	{{CONV(4, .back = 2), DENSE}, "layer 0 "},
	{{{.kind = NET_AVERAGE_POOL}, CONV(4), DENSE}, "layer 1 "},
	{{{.kind = NET_MAX_POOL, .size = 3}, DENSE}, "layer 0 "},
	{{CONV(3), {.kind = NET_ADD}, DENSE}, "layer 1 "},
	{{CONV(3), {.kind = NET_ADD, .other = 2}, DENSE}, "layer 1 "},
	{{{.kind = NET_RELU}, CONV(3), {.kind = NET_ADD, .other = 2}, DENSE}, "layer 2 "},
	{{{.kind = NET_RELU}, {.kind = NET_DENSE, .name = "fc", .outputs = 10, .back = 2}},
	 "layer 0 "},
	{{{.kind = NET_DENSE, .name = "fc", .outputs = 9}}, "layer 0 "},
};

static struct net small_net(const struct net_layer *layers, size_t most)
{
	struct net net = {.name = "small",
			  .channels = 3,
			  .height = 8,
			  .width = 8,
			  .classes = 10,
			  .deviation = {1, 1, 1},
			  .layers = layers};

	/* A convolution of size 0 ends the table, since the unused elements are zero. */
	while (net.count < most &&
	       (layers[net.count].kind != NET_CONV || layers[net.count].size > 0))
		net.count++;
	return net;
}

TEST_ROWS(test_wrong, wrong)
{
	struct net net = small_net(wrong[_i].layers, ROWS(wrong[_i].layers));
	struct ddp_error error = {0, ""};
	struct graph *graph;

	ck_assert_int_eq(graph_create(&graph, &net, &error), DDP_ERR_ARGUMENT);
	ck_assert_ptr_null(graph);
	unit_has("small", error.text, wrong[_i].piece);
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
	struct dropout dropout;
	static uint8_t keep[ORDERS * ELEMENTS / 8];
	uint64_t orders[ORDERS];
	double rate = 1 - 1 / rates[_i].scale, all = ORDERS * ELEMENTS, dropped = 0;

	for (uint64_t i = 0; i < ORDERS; i++)
		orders[i] = i;
	dropout_set(&dropout, rates[_i].rate, 3);
	ck_assert_uint_eq(dropout.limit, rates[_i].limit);
	ck_assert_int_eq(dropout.planes, rates[_i].planes);
	ck_assert_double_eq_tol((double)dropout.scale, rates[_i].scale, 1e-6 * rates[_i].scale);
	dropout_draw(&dropout, 1, 2, orders, ORDERS, ELEMENTS, keep);
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
	struct dropout dropout;
	uint64_t orders[3] = {5, 1000000007, 6};
	uint8_t together[3 * 1000 / 8 + 1], alone[1000 / 8 + 1];
	size_t equal = 0;

	dropout_set(&dropout, 0.25f, 3);
	dropout_draw(&dropout, 1, 2, orders, 3, count, together);
	for (size_t i = 0; i < 3; i++) {
		dropout_draw(&dropout, 1, 2, &orders[i], 1, count, alone);
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
