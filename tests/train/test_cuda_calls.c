/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the CUDA engine, on a GPU that is emulated: what comes later than it was asked for, what is
 * handed over, what is refused.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "cuda/layer.h"
#include "duo.h"
#include "networks.h"

enum { STEPS = 20 };

/* --- A GPU that hangs ------------------------------------------------------------------------------- */

/* One rank waits for nobody who could be told of: it has the time limit all the same, and ends. */
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
	ck_assert_msg(strstr(error.text, "GPU 0: what was under way did not end in 300 s") &&
			      strstr(error.text, "; 3 steps have ended, "),
		      "%s", error.text);
	engine_cuda.close(duo.engine);
	_exit(0); /* what hangs is left behind */
}

/* --- Loss scaling -------------------------------------------------------------------------------- */

/* A scale that overflows is lowered until it does not; until then nothing changes. */
TEST(test_overflow)
{
	struct engine_step told;
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
	told = duo_steps(&duo, true, 1, 0.1);
	unit_number("too large", "skipped", (int64_t)told.skipped, 1);
	duo_pull(&duo);
	ck_assert(memcmp(before, duo.model->values, bytes) == 0);
	ck_assert_float_eq(duo.scaler.scale, ldexpf(1, 30));
	told = duo_steps(&duo, true, 7, 0.1);
	/* 2^30 and 2^20 at most are too large as well; then it grows after four good steps. */
	ck_assert_uint_le(told.skipped, 2);
	unit_number("lowered", "steps", (int64_t)told.steps, 7);
	ck_assert_float_eq(duo.scaler.scale, ldexpf(2, 30 - 10 * (int)told.skipped));
	unit_number("lowered", "good steps", duo.scaler.good_steps, 7 - (int)told.skipped - 4);
	duo_pull(&duo);
	ck_assert(memcmp(before, duo.model->values, bytes) != 0);
	free(before);
	duo_close(&duo);
}

/* --- Lag ------------------------------------------------------------------------------------------- */

/* Steps are told in order, each once, as many calls later each time. */
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
	duo_told("all", &want, &sum, 1e-6);
	done = duo_settle(&duo);
	unit_number("settled again", "steps", (int64_t)done.steps, 0);
	duo_close(&duo);
}

/* What is under way when the model is pulled is told later, and is in the model. */
TEST(test_pull)
{
	struct engine_step done;
	struct duo duo;

	duo_open(&duo, &residual, DDP_F32);
	duo_engines(&duo);
	for (int i = 0; i < 3; i++)
		duo_step(&duo, true, 0.05, false);
	duo_pull(&duo);
	duo_steps(&duo, false, 3, 0.05);
	duo_near("pulled", "models", duo_apart(duo.shop.model, duo.model), 1e-5);
	done = duo_settle(&duo);
	unit_number("settled", "steps", (int64_t)done.steps, 3);
	duo_close(&duo);
}

/* --- What is foretold ------------------------------------------------------------------------------- */

enum { FORETOLD = 21, FORETOLD_STEPS = 3 };

/* An epoch of two full batches and a short one; [turn] is what is done with what was foretold. */
static void train_epoch(struct duo *duo, int turn, bool foretell)
{
	double rates[FORETOLD_STEPS] = {1e-3, 2e-3, 5e-4};
	struct batch all = workshop_batch(&duo->shop, 3, FORETOLD);
	struct engine_step done;
	struct ddp_error error;

	all.epoch = (uint64_t)turn;
	all.augment = true;
	if (foretell)
		workshop_must(engine_cuda.expect(duo->engine, &all, rates, &error), "expect",
			      error.text);
	if (turn == 1)
		rates[1] = 3e-3; /* the second step is another one, and so is what comes then */
	for (size_t i = 0; i < FORETOLD_STEPS; i++) {
		struct batch batch = all;

		batch.indices += i * WORKSHOP_BATCH;
		batch.orders += i * WORKSHOP_BATCH;
		batch.count = i < 2 ? WORKSHOP_BATCH : FORETOLD - 2 * WORKSHOP_BATCH;
		batch.seed += turn == 2 && i == 0;
		if (turn == 3 && i == 1) {
			duo_settle(duo);
			duo_pull(duo);
			duo_push(duo);
			duo->steps[1] = 70;
		}
		workshop_must(engine_cuda.step(duo->engine, &batch, batch.count, ++duo->steps[1],
					       rates[i], false, &done, &error),
			      "step", error.text);
	}
}

/* Steps that were foretold, and those that were not although others were, are the same to the bit. */
TEST(test_foretold)
{
	struct duo duos[2];

	for (int foretell = 0; foretell < 2; foretell++) {
		struct duo *duo = &duos[foretell];

		duo_open(duo, &like_mnist, DDP_F32);
		duo->shop.optim = optim_default(OPTIM_ADAMW);
		duo->setup.type = DDP_F16;
		duo->setup.scaler = &duo->scaler;
		duo->scaler.scale = ldexpf(1, 24);
		duo->scaler.interval = 3;
		duo_engine(duo);
		for (int turn = 0; turn < 6; turn++)
			train_epoch(duo, turn, foretell && turn != 4);
		duo_settle(duo);
		duo_pull(duo);
	}
	ck_assert_float_eq(duos[0].scaler.scale, duos[1].scaler.scale);
	ck_assert(memcmp(duos[0].model->values, duos[1].model->values,
			 duos[0].model->count * sizeof(float)) == 0);
	duo_close(&duos[0]);
	duo_close(&duos[1]);
}

/* --- Checkpoints ----------------------------------------------------------------------------------- */

TEST(test_roundtrip)
{
	struct model_tensors before, after;
	struct duo duo;

	duo_open(&duo, &residual, DDP_F32);
	duo_engine(&duo);
	duo_steps(&duo, true, 2, 0.05);
	duo_pull(&duo);
	model_tensors_create(&before, duo.model, true);
	model_tensors_export(&before, duo.model, 2);
	duo_push(&duo);
	memset(duo.model->values, 0, duo.model->count * sizeof(float));
	memset(duo.model->slots[0], 0, duo.model->count * sizeof(float));
	memset(duo.model->buffers, 0, duo.model->buffer_count * sizeof(float));
	duo_pull(&duo);
	model_tensors_create(&after, duo.model, true);
	model_tensors_export(&after, duo.model, 2);
	for (size_t i = 0; i < before.count; i++)
		ck_assert_msg(memcmp(before.list[i].data, after.list[i].data,
				     ddp_tensor_count(&before.list[i]) *
					     ddp_type_size(before.list[i].type)) == 0,
			      "%s has changed", before.list[i].name);
	model_tensors_destroy(&before);
	model_tensors_destroy(&after);
	duo_close(&duo);
}

static void hand_over(const struct model *from, struct model *to)
{
	struct model_tensors tensors;

	model_tensors_create(&tensors, from, true);
	model_tensors_export(&tensors, from, 1);
	model_tensors_import(&tensors, to, 1);
	model_tensors_destroy(&tensors);
}

/* CPU, GPU, CPU: as if it had been the CPU all the time. The step's number goes along. */
TEST(test_moves)
{
	struct duo duo, plain;

	duo_open(&plain, &residual, DDP_F32);
	plain.shop.optim = optim_default(OPTIM_ADAMW);
	workshop_engine(&plain.shop, &math_plain);
	duo_steps(&plain, false, 9, 1e-3);
	duo_open(&duo, &residual, DDP_F32);
	duo.shop.optim = optim_default(OPTIM_ADAMW);
	duo_engines(&duo);
	duo_steps(&duo, false, 3, 1e-3);
	hand_over(duo.shop.model, duo.model);
	duo_push(&duo);
	duo.steps[1] = 3;
	duo_steps(&duo, true, 3, 1e-3);
	duo_pull(&duo);
	hand_over(duo.model, duo.shop.model);
	engine_cpu.push(duo.shop.engine, NULL);
	duo.steps[0] = 6;
	duo_steps(&duo, false, 3, 1e-3);
	duo_near("moved", "models", duo_apart(plain.shop.model, duo.shop.model), 1e-4);
	model_destroy(plain.model);
	workshop_close(&plain.shop);
	duo_close(&duo);
}

/* --- What is told and refused ------------------------------------------------------------------------ */

TEST(test_tells)
{
	struct duo duo;

	duo_open(&duo, &like_mnist, DDP_F32);
	duo_engine(&duo);
	UNIT_SAYS("describe", engine_cuda.describe(duo.engine), "CUDA 13.0", "sm_90");
	UNIT_SAYS("device", engine_cuda.device(duo.engine), "GPU 0, ");
	ck_assert_uint_gt(engine_cuda.memory(duo.engine), duo.model->count * 4 * sizeof(float));
	ck_assert_ptr_nonnull(engine_cuda.choices(duo.engine));
	duo_close(&duo);
}

/*
 * What was chosen is kept for other runs, unless all runs are to be alike. What a training had before it went on counts
 * more, and stays its own where a busy GPU chose it.
 */
TEST(test_plans)
{
	char cache[] = "/tmp/ddp-plans.XXXXXX", path[64], had[512] = "";
	struct memo memo;
	struct duo duo;

	ck_assert_ptr_nonnull(mkdtemp(cache));
	setenv("XDG_CACHE_HOME", cache, 1);
	for (int i = 0; i < 4; i++) {
		char key[PLANS_KEY], plan[PLANS_PLAN], saved[PLANS_PLAN] = "none";
		const char *chosen;

		duo_open(&duo, &like_mnist, DDP_F32);
		duo.setup.deterministic = i == 0;
		duo.setup.choices = i == 3 ? had : NULL;
		duo_engine(&duo);
		chosen = engine_cuda.choices(duo.engine);
		ck_assert_int_eq(sscanf(chosen, "%*[^=]=%255[^:]: %255[^\n]", key, plan), 2);
		memo_open(&memo);
		memo_find(&memo, key, saved, sizeof(saved));
		memo_close(&memo);
		if (i < 3)
			unit_text("plans", "saved", saved, i == 0 ? "none" : plan);
		else
			ck_assert(strncmp(chosen, had, strlen(had)) == 0 && !strstr(saved, "77"));
		snprintf(had, sizeof(had), "%.*s: 77 busy\n", (int)strcspn(chosen, ":"), chosen);
		duo_close(&duo);
	}
	snprintf(path, sizeof(path), "%s/slurm-ddp/algorithms", cache);
	ck_assert_int_eq(remove(path), 0);
	snprintf(path, sizeof(path), "%s/slurm-ddp", cache);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(rmdir(cache), 0);
}

static void refuse(struct duo *duo, int status, const char *const *pieces)
{
	struct ddp_error error = {0};

	ck_assert_int_eq(engine_cuda.open(&duo->engine, &duo->setup, &error), status);
	ck_assert_ptr_null(duo->engine);
	unit_pieces("refused", error.text, pieces);
}

TEST(test_refused)
{
	const uint64_t beyond = WORKSHOP_SAMPLES;
	struct ddp_error error;
	struct engine_step done;
	struct batch batch;
	struct duo duo;

	duo_open(&duo, &like_mnist, DDP_F32);
	setenv("DDP_EMULATED_MEMORY", "3000000", 1);
	duo.setup.batch = 512;
	refuse(&duo, DDP_ERR_MEMORY,
	       (const char *const[]){"activations of 512 samples", "lower --batch", NULL});
	unsetenv("DDP_EMULATED_MEMORY");
	duo.setup.batch = WORKSHOP_BATCH;
	duo_engine(&duo);
	batch = workshop_batch(&duo.shop, 0, 1);
	batch.indices = &beyond;
	ck_assert_int_eq(engine_cuda.step(duo.engine, &batch, 1, 1, 0, false, &done, &error),
			 DDP_ERR_ARGUMENT);
	UNIT_SAYS("beyond the set", error.text, "sample 24 of ", ": there is none");
	duo_close(&duo);
}

UNIT_MAIN("cuda_calls", NULL)
