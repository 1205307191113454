/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - the CPU's engine is always there, others are modules of their own */
#include "config.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"
#include "engine.h"

#define DRIVER "libcuda.so.1"

static const char *const modules[] = {"cuda"};

enum { MODULES = sizeof(modules) / sizeof(modules[0]) };

static const struct engine_class *open_module(const char *name, const struct ddp_log *log,
					      struct ddp_error *error)
{
	const struct engine_class *class =
		ddp_module_open(name, "engine", ENGINE_VERSION, sizeof(*class), log, error);

	if (!class || (class->available && !class->available(error)))
		return NULL;
	return class;
}

const struct engine_class *engine_find(const char *name, const struct ddp_log *log,
				       struct ddp_error *error)
{
	if (strcmp(name, "cpu") == 0)
		return &engine_cpu;
	for (int i = 0; i < MODULES; i++) {
		if (strcmp(name, modules[i]) == 0)
			return open_module(name, log, error);
	}
	ddp_error_set(error, DDP_ERR_UNSUPPORTED, "no engine is called %s: use auto, cpu or cuda",
		      name);
	return NULL;
}

bool engine_has_driver(struct ddp_error *error)
{
	void *driver = dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL);

	if (!driver)
		ddp_error_set(error, DDP_ERR_UNSUPPORTED, "no driver for GPUs (" DRIVER ")");
	return driver != NULL;
}
