/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's management library knows, where there is one. It is looked for when it is needed; its few
 * types are written out here, so that no header of it is.
 */
#include "config.h"

#include <dlfcn.h>
#include <unistd.h>

#include "card-memory.h"

enum { NVML_MOST = 128 };

struct nvml_process {
	unsigned int pid;
	unsigned long long bytes; /* all ones: not known */
	unsigned int instance, part;
};

struct nvml {
	int (*init)(void);
	int (*shutdown)(void);
	int (*find)(const char *uuid, void **handle);
	int (*processes)(void *handle, unsigned int *count, struct nvml_process *processes);
};

static int load(void *library, struct nvml *nvml)
{
	*(void **)&nvml->init = dlsym(library, "nvmlInit_v2");
	*(void **)&nvml->shutdown = dlsym(library, "nvmlShutdown");
	*(void **)&nvml->find = dlsym(library, "nvmlDeviceGetHandleByUUID");
	*(void **)&nvml->processes = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
	return nvml->init && nvml->shutdown && nvml->find && nvml->processes;
}

static size_t ask(const struct nvml *nvml, const char *uuid)
{
	struct nvml_process processes[NVML_MOST];
	unsigned int count = NVML_MOST;
	size_t bytes = 0;
	void *handle;

	if (nvml->init() != 0)
		return 0;
	if (nvml->find(uuid, &handle) != 0 || nvml->processes(handle, &count, processes) != 0)
		count = 0;
	nvml->shutdown();
	for (unsigned int i = 0; i < count; i++) {
		if (processes[i].pid == (unsigned int)getpid() && processes[i].bytes != ~0ull)
			bytes += (size_t)processes[i].bytes;
	}
	return bytes;
}

size_t ddp_card_held(const char *uuid)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	struct nvml nvml;
	size_t bytes = 0;

	if (!library)
		return 0;
	if (load(library, &nvml))
		bytes = ask(&nvml, uuid);
	dlclose(library);
	return bytes;
}
