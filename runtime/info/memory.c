/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - how much of a GPU's memory is free
 *
 * The CUDA driver tells that only to who has a context, which takes some itself. Its management library
 * needs none; it is looked for at run time, and its types are written out here.
 */
#include "config.h"

#include <dlfcn.h>

#include "card.h"

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml {
	int (*init)(void);
	int (*shutdown)(void);
	int (*find)(const char *uuid, void **handle);
	int (*memory)(void *handle, struct nvml_memory *memory);
};

static bool load(void *library, struct nvml *nvml)
{
	*(void **)&nvml->init = dlsym(library, "nvmlInit_v2");
	*(void **)&nvml->shutdown = dlsym(library, "nvmlShutdown");
	*(void **)&nvml->find = dlsym(library, "nvmlDeviceGetHandleByUUID");
	*(void **)&nvml->memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
	return nvml->init && nvml->shutdown && nvml->find && nvml->memory;
}

static bool ask(const struct nvml *nvml, const char *uuid, struct nvml_memory *memory)
{
	void *handle;
	bool known;

	if (nvml->init() != 0)
		return false;
	known = nvml->find(uuid, &handle) == 0 && nvml->memory(handle, memory) == 0;
	nvml->shutdown();
	return known;
}

bool info_memory(const char *uuid, uint64_t *total, uint64_t *free)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	struct nvml_memory memory;
	struct nvml nvml;
	bool known;

	if (!library)
		return false;
	known = load(library, &nvml) && ask(&nvml, uuid, &memory);
	if (known) {
		*total = memory.total;
		*free = memory.free;
	}
	dlclose(library);
	return known;
}
