/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_calls.c - functions of the CUDA engine on an emulated GPU: late results, errors
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "duo.h"
#include "networks.h"

enum { STEPS = 20 };

/* --- A GPU that hangs ------------------------------------------------------------------------------- */

/* A single rank has the timeout too, although no other rank waits for it. */
TEST_LOOP(test_hangs, 0, 2)
{
	struct ddp_error error = {0, ""};
	struct engine_step done;
	struct duo duo;
	int status = 0, steps;

	duo_open(&duo, &like_mnist, DDP_F32);
	((struct ddp_world *)ddp_world(duo.shop.ddp))->timeout = 300;
	duo_engine(&duo);
	duo_steps(&duo, true, 3, 0.01);
	setenv("DDP_EMULATED_HANGS", "1", 1);
	for (steps = 3; status == 0 && steps < STEPS; steps++) {
		struct batch batch = duo_batch(&duo, (uint64_t)steps);

		status = _i == 0 ? engine_cuda.step(duo.engine, &batch, 8, (uint64_t)steps + 1,
						    0.01, false, &done, &error)
				 : engine_cuda.pull(duo.engine, &error);
	}
	unit_number("hangs", "status", status, DDP_ERR_ENGINE);
	ck_assert_msg(strstr(error.text, "GPU 0: work did not finish within 300 s") &&
			      strstr(error.text, "(3 steps have ended, "),
		      "%s", error.text);
	engine_cuda.close(duo.engine);
	_exit(0); /* exit without waiting for the GPU */
}

/* --- Loss scaling -------------------------------------------------------------------------------- */

/* If gradients overflow, the scale is lowered until they do not. Skipped steps change nothing. */
TEST(test_overflow)
{
	struct engine_step report;
	struct duo duo;
	float *before;
	size_t bytes;

	duo_open(&duo, &like_mnist, DDP_F32);
	duo.setup.type = DDP_F16;
	duo.setup.scaler = &duo.scaler;
	duo.scaler.scale = ldexpf(1, 40);
	duo.scaler.backoff = ldexp(1, -10);
	duo.scaler.interval = 4;
	duo_engine(&duo);
	bytes = duo.model->count * sizeof(float);
	before = malloc(bytes);
	memcpy(before, duo.model->values, bytes);
	report = duo_steps(&duo, true, 1, 0.1);
	unit_number("too large", "skipped", (int64_t)report.skipped, 1);
	duo_pull(&duo);
	ck_assert(memcmp(before, duo.model->values, bytes) == 0);
	ck_assert_float_eq(duo.scaler.scale, ldexpf(1, 30));
	report = duo_steps(&duo, true, 7, 0.1);
	/*
	 * A scale of 2^30 overflows, and perhaps 2^20. Then the scale grows after four good steps.
	 */
	ck_assert_uint_le(report.skipped, 2);
	unit_number("lowered", "steps", (int64_t)report.steps, 7);
	ck_assert_float_eq(duo.scaler.scale, ldexpf(2, 30 - 10 * (int)report.skipped));
	unit_number("lowered", "good steps", duo.scaler.good_steps, 7 - (int)report.skipped - 4);
	duo_pull(&duo);
	ck_assert(memcmp(before, duo.model->values, bytes) != 0);
	free(before);
	duo_close(&duo);
}

/* --- Lag ------------------------------------------------------------------------------------------- */

/* Steps are reported once each, in order, and always the same number of calls later. */
TEST(test_lag)
{
	struct engine_step sum = {0}, done, want;
	int lag = -1;
	struct duo duo;

	duo_open(&duo, &odd, DDP_F32);
	duo_engines(&duo);
	for (int i = 0; i < STEPS; i++) {
		done = duo_step(&duo, true, 0.01, i == 3);
		if (lag < 0 && done.steps > 0)
			lag = i;
		unit_number("steps told", "number", (int64_t)done.steps, lag >= 0);
		ck_assert(done.stop == (lag >= 0 && i == 3 + lag));
		duo_add(&sum, &done);
	}
	ck_assert_int_gt(lag, 0);
	done = duo_settle(&duo);
	unit_number("settled", "steps", (int64_t)done.steps, lag);
	duo_add(&sum, &done);
	want = duo_steps(&duo, false, STEPS, 0.01);
	duo_compare_results("all", &want, &sum, 1e-6);
	done = duo_settle(&duo);
	unit_number("settled again", "steps", (int64_t)done.steps, 0);
	duo_close(&duo);
}

/* --- Data of steps ---------------------------------------------------------------------------------- */

/*
 * The data of a step stays valid until the step has ended, so that steps under way have the same
 * bits as steps for which the host waits. As the first steps are skipped, the host knows of fewer
 * optimizer steps than the device.
 */
TEST(test_slots)
{
	struct engine_step sums[2] = {{0}}, done;
	struct duo duos[2];

	for (int waits = 0; waits < 2; waits++) {
		struct duo *duo = &duos[waits];

		duo_open(duo, &like_mnist, DDP_F32);
		duo->shop.optim = optim_default(OPTIM_ADAMW);
		duo->setup.type = DDP_F16;
		duo->setup.scaler = &duo->scaler;
		duo->scaler.scale = ldexpf(1, 40);
		duo->scaler.backoff = ldexp(1, -10);
		duo_engine(duo);
		for (int i = 0; i < STEPS; i++) {
			done = duo_step(duo, true, 1e-3 / (1 + i), false);
			duo_add(&sums[waits], &done);
			if (!waits && i < STEPS - 1)
				continue;
			done = duo_settle(duo);
			duo_add(&sums[waits], &done);
		}
		duo_pull(duo);
	}
	ck_assert(sums[0].skipped > 0 && sums[0].skipped == sums[1].skipped);
	ck_assert_float_eq(duos[0].scaler.scale, duos[1].scaler.scale);
	ck_assert(memcmp(duos[0].model->values, duos[1].model->values,
			 duos[0].model->count * sizeof(float)) == 0);
	duo_close(&duos[0]);
	duo_close(&duos[1]);
}

/* --- Errors --------------------------------------------------------------------------------------- */

static void refuse(struct duo *duo, int status, const char *const *pieces)
{
	struct ddp_error error = {0};

	ck_assert_int_eq(engine_cuda.open(&duo->engine, &duo->setup, &error), status);
	ck_assert_ptr_null(duo->engine);
	unit_pieces("refused", error.text, pieces);
}

TEST(test_refused)
{
	struct duo duo;

	duo_open(&duo, &like_mnist, DDP_F32);
	setenv("DDP_EMULATED_MEMORY", "3000000", 1);
	duo.setup.batch = 512;
	refuse(&duo, DDP_ERR_MEMORY,
	       (const char *const[]){"activations of 512 samples", "Lower --batch.", NULL});
	unsetenv("DDP_EMULATED_MEMORY");
	duo_close(&duo);
}

UNIT_MAIN("cuda_calls", NULL)
