/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "engine-cuda.h"
#include "engine-private.h"

static const char *cuda_describe(const struct engine *engine)
{
	return engine->describe;
}

static const char *cuda_choices(const struct engine *engine)
{
	return engine->plans.taken ? engine->plans.taken : "";
}

static const char *cuda_device(const struct engine *engine)
{
	return engine->name;
}

static uint64_t cuda_used(const struct engine *engine)
{
	size_t most = 0;

	device_used(engine->device, &most);
	return most + device_context(engine->device);
}

size_t cuda_nodes(const struct engine *engine)
{
	size_t nodes = 0;

	for (int i = 0; i < CUDA_GRAPHS; i++)
		nodes += engine->graphs[i] ? device_graph_nodes(engine->graphs[i]) : 0;
	return nodes;
}

const struct engine_class engine_cuda = {
	.head = {DDP_MODULE_MAGIC, ENGINE_VERSION, sizeof(struct engine_class), "engine", "cuda",
		 PACKAGE_VERSION},
	.device_gradients = true,
	.available = device_available,
	.devices = device_list,
	.join = cuda_join,
	.open = cuda_open,
	.expect = cuda_expect,
	.step = cuda_step,
	.settle = cuda_settle,
	.evaluate = cuda_evaluate,
	.push = cuda_push,
	.pull = cuda_pull,
	.describe = cuda_describe,
	.choices = cuda_choices,
	.device = cuda_device,
	.memory = cuda_used,
	.close = cuda_close,
};

/* What ddp_module_open() looks for. */
extern const struct engine_class ddp_module
	__attribute__((alias("engine_cuda"), visibility("default")));
