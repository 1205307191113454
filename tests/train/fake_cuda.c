/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda.c - a GPU engine for tests, which computes with the CPU engine
 *
 * Ranks that share a device use libddp's modules for shared devices, which tests/runtime emulates in
 * host memory. Environment variables:
 *
 *   FAKE_DEVICES  number of devices, of which CUDA_VISIBLE_DEVICES, if set, is a list
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

struct fake {
	struct engine *cpu;
	struct engine_setup setup;
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

static bool is_rank(const char *name)
{
	const char *rank = getenv("RANK"), *wanted = getenv(name);

	return wanted && rank && strcmp(rank, wanted) == 0;
}

/* --- Devices -------------------------------------------------------------------------------- */

/* Returns the names of devices. Like CUDA, shows a process only its first MIG slice. */
static int fake_devices(char (*names)[ENGINE_DEVICE_NAME], int most, struct ddp_error *error)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	int count = atoi(getenv("FAKE_DEVICES")), seen = 0;

	if (is_rank("FAKE_NONE"))
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED, "the driver is for CUDA 9.2");
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
	free(fake);
}

static void describe(struct fake *fake)
{
	char shared[64] = "";

	if (fake->setup.share > 0)
		snprintf(shared, sizeof(shared), ", share %.3f", fake->setup.share);
	snprintf(fake->describe, sizeof(fake->describe), "fake%s%s%s%s", shared,
		 fake->setup.tf32 ? ", tf32" : "",
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
	cpu.tf32 = false;
	cpu.type = DDP_F32;
	cpu.scaler = NULL;
	status = engine_cpu.open(&fake->cpu, &cpu, error);
	if (status < 0) {
		free(fake);
		return status;
	}
	describe(fake);
	*engine = (struct engine *)fake;
	return 0;
}

/* --- Steps ---------------------------------------------------------------------------------- */

static int fake_step(struct engine *engine, const struct batch *batch, size_t global, uint64_t step,
		     double rate, bool stop, struct engine_step *done, struct ddp_error *error)
{
	return engine_cpu.step(fake_of(engine)->cpu, batch, global, step, rate, stop, done, error);
}

static int fake_evaluate(struct engine *engine, const struct batch *batch,
			 struct ddp_evaluation *evaluation, struct ddp_error *error)
{
	return engine_cpu.evaluate(fake_of(engine)->cpu, batch, evaluation, error);
}

static int fake_push(struct engine *engine, struct ddp_error *error)
{
	return engine_cpu.push(fake_of(engine)->cpu, error);
}

static int fake_pull(struct engine *engine, struct ddp_error *error)
{
	return engine_cpu.pull(fake_of(engine)->cpu, error);
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
	.devices = fake_devices,
	.join = fake_join,
	.open = fake_open,
	.step = fake_step,
	.evaluate = fake_evaluate,
	.push = fake_push,
	.pull = fake_pull,
	.describe = fake_describe,
	.device = fake_device,
	.memory = fake_memory,
	.close = fake_close,
};
