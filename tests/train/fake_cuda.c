/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda.c - a GPU engine for tests, which computes with the CPU engine and reports results late
 *
 * The engine returns an error if the trainer makes a forbidden call while steps are in progress.
 * Ranks that share a device use libddp's modules for shared devices, which tests/runtime emulates in
 * host memory. Environment variables:
 *
 *   FAKE_LAG      a step is reported this number of steps later
 *   FAKE_BURST    number of steps that are reported together
 *   FAKE_GOOD     with --amp fp16, a step is skipped after this number of good steps
 *   FAKE_DEVICES  number of devices; CUDA_VISIBLE_DEVICES, if set, is used instead
 *   FAKE_NONE     rank that has no device
 *   FAKE_BARE     rank that has no ddp_gpu.so
 *   FAKE_LOST     rank that is killed before it joins
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine.h"

enum { FAKE_MOST = 64 };

struct fake {
	struct engine *cpu;
	struct engine_setup setup;
	uint64_t lag, burst, good;
	/* steps that were not skipped, including those not reported yet */
	uint64_t updates;
	uint64_t reported;	  /* number of these steps that were reported */
	struct ddp_scaler scaler; /* state on the device, which is newer than the trainer's */
	bool pushed;		  /* no step was run since push() */
	struct {
		struct engine_step step;
		struct ddp_scaler scaler;
	} ring[FAKE_MOST];
	uint64_t begun, ended; /* number of steps started; number of steps reported */
	float *kept;	       /* copy of the model before a step that will be skipped */
	char describe[128], device[64];
};

static struct fake *fake_of(const struct engine *engine)
{
	union {
		const struct engine *engine;
		struct fake *fake;
	} both = {engine};

	return both.fake;
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value && *value ? strtoull(value, NULL, 10) : otherwise;
}

static bool is_rank(const char *name)
{
	const char *rank = getenv("RANK"), *wanted = getenv(name);

	return wanted && rank && strcmp(rank, wanted) == 0;
}

/* --- Devices -------------------------------------------------------------------------------- */

static bool fake_available(struct ddp_error *error)
{
	if (!is_rank("FAKE_NONE"))
		return true;
	ddp_error_set(error, DDP_ERR_UNSUPPORTED, "the driver is for CUDA 9.2");
	return false;
}

/* Returns the names of devices. Like CUDA, shows a process only its first MIG slice. */
static int fake_devices(char (*names)[ENGINE_DEVICE_NAME], int most, struct ddp_error *error)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	int count = (int)setting("FAKE_DEVICES", 1), seen = 0;

	if (count == 0)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED, "all GPUs are broken");
	for (; seen < count && (!list || *list); seen++) {
		size_t length = list ? strcspn(list, ",") : 0;
		bool slice = list && strncmp(list, "MIG-", 4) == 0;

		if (seen < most && list)
			snprintf(names[seen], ENGINE_DEVICE_NAME, "%s%.*s",
				 slice ? "" : "GPU-fake-", (int)length, list);
		else if (seen < most)
			snprintf(names[seen], ENGINE_DEVICE_NAME, "GPU-fake-%d", seen);
		if (list)
			list += length + (list[length] == ',');
		if (slice)
			return 1;
	}
	return seen;
}

/*
 * Loads modules from the directory of this module, or from its subdirectory "bare", which has no
 * ddp_gpu.so.
 */
static int fake_join(struct ddp *ddp, struct ddp_error *error)
{
	char bare[4096];
	int status;

	snprintf(bare, sizeof(bare), "%s/../bare", getenv("DDP_MODULES"));
	if (is_rank("FAKE_LOST"))
		raise(SIGKILL);
	if (is_rank("FAKE_BARE"))
		setenv("DDP_MODULES", bare, 1);
	status = ddp_device_join(ddp);
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(ddp)) : 0;
}

/* --- Open and close ------------------------------------------------------------------------- */

static void fake_close(struct engine *engine)
{
	struct fake *fake = fake_of(engine);

	engine_cpu.close(fake->cpu);
	free(fake->kept);
	free(fake);
}

static void describe(struct fake *fake)
{
	char shared[64] = "";

	if (fake->setup.share > 0)
		snprintf(shared, sizeof(shared), ", share %.3f", fake->setup.share);
	snprintf(fake->describe, sizeof(fake->describe), "fake, %llu behind%s%s%s%s",
		 (unsigned long long)fake->lag, shared, fake->setup.tf32 ? ", tf32" : "",
		 fake->setup.deterministic ? ", deterministic" : "",
		 fake->setup.exact ? ", exact" : "");
	snprintf(fake->device, sizeof(fake->device), "GPU %d, NVIDIA Fake 9000",
		 ddp_world(fake->setup.ddp)->device);
}

static int fake_open(struct engine **engine, const struct engine_setup *setup,
		     struct ddp_error *error)
{
	struct engine_setup cpu = *setup;
	struct fake *fake;
	int status;

	fake = calloc(1, sizeof(*fake));
	if (!fake)
		return DDP_ERR_MEMORY;
	fake->setup = *setup;
	fake->lag = setting("FAKE_LAG", 0);
	fake->burst = setting("FAKE_BURST", 1);
	fake->good = setting("FAKE_GOOD", 4);
	cpu.tf32 = false;
	cpu.type = DDP_F32;
	cpu.scaler = NULL;
	fake->kept = malloc((1 + MODEL_SLOTS) * setup->model->count * sizeof(float));
	status = engine_cpu.open(&fake->cpu, &cpu, error);
	if (status < 0) {
		free(fake->kept);
		free(fake);
		return status;
	}
	describe(fake);
	*engine = (struct engine *)fake;
	return 0;
}

/* --- Steps ---------------------------------------------------------------------------------- */

static void copy_model(struct fake *fake, bool back)
{
	const struct model *model = fake->setup.model;
	float *parts[1 + MODEL_SLOTS] = {model->values, model->slots[0], model->slots[1]};

	for (size_t i = 0; i <= MODEL_SLOTS; i++) {
		float *kept = fake->kept + i * model->count;

		if (parts[i])
			memcpy(back ? parts[i] : kept, back ? kept : parts[i],
			       model->count * sizeof(float));
	}
}

/* Reports the oldest [count] steps of those not reported yet. */
static void report(struct fake *fake, uint64_t count, struct engine_step *done)
{
	memset(done, 0, sizeof(*done));
	for (; count > 0; count--, fake->ended++) {
		const struct engine_step *one = &fake->ring[fake->ended % FAKE_MOST].step;

		done->steps++;
		done->skipped += one->skipped;
		done->stop = done->stop || one->stop;
		done->loss += one->loss;
		done->hits += one->hits;
		done->samples += one->samples;
		for (int phase = 0; phase < ENGINE_PHASES; phase++)
			done->seconds[phase] += one->seconds[phase];
		fake->reported += 1 - one->skipped;
		if (fake->setup.scaler)
			*fake->setup.scaler = fake->ring[fake->ended % FAKE_MOST].scaler;
	}
}

static int check_step(struct fake *fake, uint64_t step, struct ddp_error *error)
{
	if (fake->pushed)
		fake->reported = fake->updates = step - 1;
	fake->pushed = false;
	if (step == fake->reported + (fake->begun - fake->ended) + 1)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENGINE, "step %llu, after %llu and %llu under way",
			     (unsigned long long)step, (unsigned long long)fake->reported,
			     (unsigned long long)(fake->begun - fake->ended));
}

static int fake_step(struct engine *engine, const struct batch *batch, size_t global, uint64_t step,
		     double rate, bool stop, struct engine_step *done, struct ddp_error *error)
{
	struct fake *fake = fake_of(engine);
	bool skip = fake->setup.scaler && (uint64_t)fake->scaler.good_steps == fake->good;
	struct engine_step *mine = &fake->ring[fake->begun % FAKE_MOST].step;
	int status = check_step(fake, step, error);

	if (skip)
		copy_model(fake, false);
	if (status == 0)
		status = engine_cpu.step(fake->cpu, batch, global, fake->updates + 1, rate, stop,
					 mine, error);
	if (status < 0)
		return status;
	if (skip)
		copy_model(fake, true);
	if (skip)
		engine_cpu.push(fake->cpu, error);
	mine->skipped = skip;
	fake->updates += !skip;
	if (fake->setup.scaler)
		ddp_scaler_update(&fake->scaler, skip);
	fake->ring[fake->begun++ % FAKE_MOST].scaler = fake->scaler;
	report(fake, fake->begun - fake->ended >= fake->lag + fake->burst ? fake->burst : 0, done);
	return 0;
}

static int fake_settle(struct engine *engine, struct engine_step *done, struct ddp_error *error)
{
	struct fake *fake = fake_of(engine);

	(void)error;
	report(fake, fake->begun - fake->ended, done);
	return 0;
}

static int check_settled(const struct fake *fake, const char *what, struct ddp_error *error)
{
	if (fake->begun == fake->ended)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENGINE, "%s, with %llu steps under way", what,
			     (unsigned long long)(fake->begun - fake->ended));
}

static int fake_evaluate(struct engine *engine, const struct batch *batch,
			 struct ddp_evaluation *evaluation, struct ddp_error *error)
{
	struct fake *fake = fake_of(engine);
	int status = check_settled(fake, "evaluation", error);

	return status < 0 ? status : engine_cpu.evaluate(fake->cpu, batch, evaluation, error);
}

static int fake_push(struct engine *engine, struct ddp_error *error)
{
	struct fake *fake = fake_of(engine);
	int status = check_settled(fake, "push", error);

	if (fake->setup.scaler)
		fake->scaler = *fake->setup.scaler;
	fake->pushed = true;
	return status < 0 ? status : engine_cpu.push(fake->cpu, error);
}

static int fake_pull(struct engine *engine, struct ddp_error *error)
{
	struct fake *fake = fake_of(engine);
	int status = check_settled(fake, "pull", error);

	return status < 0 ? status : engine_cpu.pull(fake->cpu, error);
}

/* --- Properties ----------------------------------------------------------------------------- */

static const char *fake_describe(const struct engine *engine)
{
	return fake_of(engine)->describe;
}

static const char *fake_device(const struct engine *engine)
{
	return fake_of(engine)->device;
}

static uint64_t fake_memory(const struct engine *engine)
{
	(void)engine;
	return 12345ull << 20;
}

DDP_API const struct engine_class ddp_module = {
	.head = {DDP_MODULE_MAGIC, ENGINE_VERSION, sizeof(struct engine_class), "engine", "cuda",
		 PACKAGE_VERSION},
	.available = fake_available,
	.devices = fake_devices,
	.join = fake_join,
	.open = fake_open,
	.step = fake_step,
	.settle = fake_settle,
	.evaluate = fake_evaluate,
	.push = fake_push,
	.pull = fake_pull,
	.describe = fake_describe,
	.device = fake_device,
	.memory = fake_memory,
	.close = fake_close,
};
