/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_ranks.c - the CUDA engine on several ranks, each with its own emulated GPU, compared
 * with the CPU engine
 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "duo.h"
#include "networks.h"
#include "ranks.h"

static const struct {
	const char *name;
	const struct net *net;
	bool sync_norm;
	enum ddp_type wire;
	double most; /* largest distance of models */
	enum ddp_type type;
} rows[] = {
	{"like mnist, bf16 on the wire", &like_mnist, false, DDP_BF16, 0.02, DDP_F32},
	{"tangled, synchronised", &tangled, true, DDP_F32, 1e-4, DDP_F32},
	{"like mnist", &like_mnist, false, DDP_F32, 1e-5, DDP_F32},
	{"residual", &residual, false, DDP_F32, 1e-4, DDP_F32},
	{"residual, synchronised", &residual, true, DDP_F32, 1e-4, DDP_F32},
	{"like mnist, fp16 on the wire", &like_mnist, false, DDP_F16, 0.002, DDP_F32},
	{"like mnist, in bf16", &like_mnist, false, DDP_F32, 0.3, DDP_BF16},
};

enum { STEPS = 12 };

static int row;

static int both(int rank)
{
	struct engine_step want, got;
	struct duo duo;
	double apart;

	duo_seat(HOST_MODULES, (char)('a' + rank));
	/* rank 0 chooses the plans for all ranks */
	setenv("DDP_EMULATED_CHOOSES", rank == 0 ? "1" : "0", 1);
	duo_open(&duo, rows[row].net, rows[row].wire);
	duo.setup.sync_norm = rows[row].sync_norm;
	duo.setup.type = rows[row].type;
	duo_engines(&duo);
	want = duo_steps(&duo, false, STEPS, 1e-3);
	got = duo_steps(&duo, true, STEPS, 1e-3);
	RANK_CHECK(got.steps == want.steps && got.samples == want.samples);
	RANK_CHECK(rows[row].most > 1e-3 || got.hits == want.hits);
	RANK_CHECK(fabs(got.loss - want.loss) <= rows[row].most * want.loss);
	duo_pull(&duo);
	apart = duo_apart(duo.shop.model, duo.model);
	if (!(apart <= rows[row].most))
		fprintf(stderr, "%s: %.3g apart\n", rows[row].name, apart);
	RANK_CHECK(apart <= rows[row].most);
	RANK_CHECK(rows[row].wire == DDP_F32 || apart > 1e-6);
	ranks_equal(duo.shop.ddp, duo.model->values, duo.model->count * sizeof(float));
	if (rows[row].sync_norm)
		ranks_equal(duo.shop.ddp, duo.model->buffers,
			    duo.model->buffer_count * sizeof(float));
	RANK_CHECK(queues_nodes > 0);
	duo_close(&duo);
	return 0;
}

TEST_LOOP(test_two, 0, 2)
{
	row = _i;
	ranks_run("2", both);
}

TEST_LOOP(test_four, 0, unit_rows(2, ROWS(rows)))
{
	row = _i;
	ranks_run("4", both);
}

static int seats; /* 1: each rank has its own GPU; 0: all ranks share a GPU */

/* If one rank requests a stop, all ranks get the request in the same call. */
static int stops(int rank)
{
	struct engine_step done;
	struct duo duo;
	int heard = -1;

	duo_seat(HOST_MODULES, (char)('a' + seats * rank));
	duo_open(&duo, &odd, DDP_F32);
	duo_engine(&duo);
	for (int i = 0; i < STEPS; i++) {
		done = duo_step(&duo, true, 0.01, rank == 1 && i == 1);
		if (done.stop)
			heard = i;
	}
	RANK_CHECK(heard >= 1);
	ranks_equal(duo.shop.ddp, &heard, sizeof(heard));
	duo_settle(&duo);
	duo_close(&duo);
	return 0;
}

TEST_LOOP(test_stop, 0, 2)
{
	seats = _i;
	ranks_run("2", stops);
}

/* An overflow on one rank makes all ranks skip the step. */
static int overflows(int rank)
{
	struct engine_step report;
	struct duo duo;

	duo_seat(HOST_MODULES, (char)('a' + seats * rank));
	duo_open(&duo, &like_mnist, DDP_F32);
	duo.setup.type = DDP_F16;
	duo.setup.scaler = &duo.scaler;
	duo.scaler.scale = ldexpf(1, 40);
	duo_engine(&duo);
	report = duo_steps(&duo, true, 1, 0.1);
	RANK_CHECK(report.skipped == 1 && duo.scaler.scale == ldexpf(1, 39));
	duo_pull(&duo);
	RANK_CHECK(memcmp(duo.model->values, duo.shop.model->values,
			  duo.model->count * sizeof(float)) == 0);
	duo_close(&duo);
	return 0;
}

TEST_LOOP(test_overflow, 0, 2)
{
	seats = _i;
	ranks_run("2", overflows);
}

UNIT_MAIN("cuda ranks", NULL)
