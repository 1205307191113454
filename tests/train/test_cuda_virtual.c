/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_virtual.c - virtual ranks of the CUDA engine on emulated GPUs
 *
 * The bits do not depend on the number of ranks, or on whether ranks share a GPU. The CPU engine's
 * results differ by rounding only.
 */
#include "config.h"

#include <stdio.h>
#include <sys/mman.h>

#include "duo.h"
#include "networks.h"
#include "ranks.h"

/* --- Networks ----------------------------------------------------------------------------------- */

/* Returns [net] with random crops and mirroring. */
static struct net augmented(const struct net *net)
{
	struct net it = *net;

	it.pad = 3;
	it.flip = true;
	return it;
}

static const struct {
	const char *name;
	const struct net *net;
	bool augment;
	enum ddp_type type;
	double clip, most; /* largest distance from the CPU engine */
} rows[] = {
	{"like mnist", &like_mnist, false, DDP_F32, 0, 1e-5},
	{"like mnist, bf16, clipped", &like_mnist, false, DDP_BF16, 0.5, 0.3},
	{"like mnist, fp16", &like_mnist, false, DDP_F16, 0, 0.2},
	{"residual, augmented", &residual, true, DDP_F32, 0, 1e-5},
	{"residual, augmented, bf16", &residual, true, DDP_BF16, 0, 0.6},
};

enum { STEPS = 6, MOST_BATCH = 3, MOST_VIRTUAL = 8, MOST_BYTES = 1 << 20 };

/* Results of a world, which the test reads. */
static struct world {
	struct engine_step report;
	size_t bytes;
	uint8_t model[MOST_BYTES];
} * worlds;

static int row, virtual_ranks, world;

/* --- A rank ------------------------------------------------------------------------------------- */

/* Opens both models with host memory for the gradients of virtual ranks. */
static void open_virtual(struct duo *duo, const struct net *net)
{
	struct ddp_error error;
	struct model *model;

	duo_open(duo, net, DDP_F32);
	for (int i = 0; i < 2; i++) {
		struct model **at = i ? &duo->model : &duo->shop.model;

		workshop_must(model_create(&model, duo->shop.ddp, duo->shop.graph, 2, DDP_F32,
					   false, (size_t)virtual_ranks, &error),
			      "model", error.text);
		duo_copy(model, *at);
		model_destroy(*at);
		*at = model;
	}
	duo->setup.model = duo->model;
	duo->shop.setup.model = duo->shop.model;
}

static void set_up(struct engine_setup *setup, int size)
{
	setup->parts = (size_t)(virtual_ranks / size);
	setup->batch = MOST_BATCH;
	setup->clip = rows[row].clip;
	setup->deterministic = true;
	/* the share as if all ranks were on one GPU */
	setup->share = 1.0 / size;
}

/* Runs a step in which each virtual rank has its own samples, the same number for each. */
static struct engine_step train_step(struct duo *duo, bool other, uint64_t step)
{
	const struct engine_class *class = other ? &engine_cuda : &engine_cpu;
	struct engine *engine = other ? duo->engine : duo->shop.engine;
	size_t parts = duo->setup.parts, each = MOST_BATCH - step % MOST_BATCH;
	uint64_t indices[MOST_BATCH * MOST_VIRTUAL], orders[MOST_BATCH * MOST_VIRTUAL];
	struct batch batch = {indices, orders, parts * each, 3, 2 + step / 4, true};
	struct engine_step done;
	struct ddp_error error;

	for (size_t i = 0; i < batch.count; i++) {
		size_t rank = (size_t)ddp_world(duo->shop.ddp)->rank * parts + i / each;

		orders[i] = step * 100 + i % each * (uint64_t)virtual_ranks + rank;
		indices[i] = orders[i] * 7 % WORKSHOP_SAMPLES;
	}
	workshop_must(class->step(engine, &batch, (size_t)virtual_ranks * each, step + 1, 0.02,
				  false, &done, &error),
		      "step", error.text);
	return done;
}

static struct engine_step train(struct duo *duo, bool other)
{
	struct engine_step sum = {0}, done;

	for (uint64_t i = 0; i < STEPS; i++) {
		done = train_step(duo, other, i);
		duo_add(&sum, &done);
	}
	return sum;
}

static void leave(const struct model *model, const struct engine_step *report)
{
	struct world *to = &worlds[world];
	const float *arrays[] = {model->values, model->slots[0], model->slots[1]};

	to->report = *report;
	to->bytes = 0;
	RANK_CHECK((3 * model->count + model->buffer_count) * sizeof(float) <= MOST_BYTES);
	for (size_t i = 0; i < 4; i++) {
		size_t count = i < 3 ? model->count : model->buffer_count;

		memcpy(to->model + to->bytes, i < 3 ? arrays[i] : model->buffers,
		       count * sizeof(float));
		to->bytes += count * sizeof(float);
	}
}

static int train_all(int rank)
{
	struct net net = rows[row].augment ? augmented(rows[row].net) : *rows[row].net;
	struct engine_step want, got, rest;
	struct duo duo;
	double apart;

	/* The device sums nothing, so the rank needs no module for device collectives. */
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	open_virtual(&duo, &net);
	set_up(&duo.setup, ddp_world(duo.shop.ddp)->size);
	set_up(&duo.shop.setup, ddp_world(duo.shop.ddp)->size);
	duo.setup.type = rows[row].type;
	if (duo.setup.type == DDP_F16)
		duo.setup.scaler = &duo.scaler;
	duo.scaler.scale = 1024;
	duo_engines(&duo);
	want = train(&duo, false);
	got = train(&duo, true);
	rest = duo_settle(&duo);
	duo_add(&got, &rest);
	RANK_CHECK(got.steps == STEPS && want.steps == got.steps && want.samples == got.samples);
	RANK_CHECK(got.skipped == 0 && cuda_nodes(duo.engine) == 0);
	engine_cpu.pull(duo.shop.engine, NULL);
	duo_pull(&duo);
	apart = duo_apart(duo.shop.model, duo.model);
	if (!(apart <= rows[row].most))
		fprintf(stderr, "%s: %.3g apart from the CPU's\n", rows[row].name, apart);
	RANK_CHECK(apart <= rows[row].most);
	ranks_equal(duo.shop.ddp, duo.model->values, duo.model->count * sizeof(float));
	ranks_equal(duo.shop.ddp, duo.model->buffers, duo.model->buffer_count * sizeof(float));
	if (rank == 0)
		leave(duo.model, &got);
	duo_close(&duo);
	return 0;
}

/* --- Tests -------------------------------------------------------------------------------------- */

static void check_same(const char *layout)
{
	const struct world *want = &worlds[0], *got = &worlds[world];

	ck_assert_msg(want->bytes == got->bytes && want->bytes > 0 &&
			      memcmp(want->model, got->model, want->bytes) == 0,
		      "%s: %d virtual ranks on ranks %s have other weights than on one",
		      rows[row].name, virtual_ranks, layout);
	ck_assert_msg(memcmp(&want->report.loss, &got->report.loss, sizeof(want->report.loss)) ==
				      0 &&
			      want->report.hits == got->report.hits,
		      "%s: %d virtual ranks on ranks %s: loss %.17g, not %.17g", rows[row].name,
		      virtual_ranks, layout, got->report.loss, want->report.loss);
}

static void check_all(void)
{
	static const char *const layouts[] = {"1", "2", "4", "1,1"};

	for (world = 0; world < (int)(sizeof(layouts) / sizeof(layouts[0])); world++) {
		ranks_run(layouts[world], train_all);
		check_same(layouts[world]);
	}
}

TEST_LOOP(test_four, 0, unit_rows(2, ROWS(rows)))
{
	row = _i;
	virtual_ranks = 4;
	check_all();
}

TEST_LOOP(test_eight, 0, unit_rows(1, ROWS(rows)))
{
	row = _i;
	virtual_ranks = MOST_VIRTUAL;
	check_all();
}

static void begin_all(void)
{
	worlds = mmap(NULL, 4 * sizeof(*worlds), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ck_assert_ptr_ne(worlds, MAP_FAILED);
}

static void fill(TCase *tcase)
{
	tcase_add_unchecked_fixture(tcase, begin_all, NULL);
}

UNIT_MAIN("cuda virtual ranks", fill)
