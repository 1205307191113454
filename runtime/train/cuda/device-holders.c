/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who else uses a GPU: the driver's management library knows, where there is one. It is looked for
 * when it is needed; its few types are written out here, so that no header of it is.
 */
#include "config.h"

#include <dlfcn.h>
#include <unistd.h>

#include "device-private.h"

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

static bool load(void *library, struct nvml *nvml)
{
	*(void **)&nvml->init = dlsym(library, "nvmlInit_v2");
	*(void **)&nvml->shutdown = dlsym(library, "nvmlShutdown");
	*(void **)&nvml->find = dlsym(library, "nvmlDeviceGetHandleByUUID");
	*(void **)&nvml->processes = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
	return nvml->init && nvml->shutdown && nvml->find && nvml->processes;
}

static unsigned int ask(const struct nvml *nvml, const char *uuid,
			struct nvml_process processes[NVML_MOST])
{
	unsigned int count = NVML_MOST;
	void *handle;

	if (nvml->init() != 0)
		return 0;
	if (nvml->find(uuid, &handle) != 0 || nvml->processes(handle, &count, processes) != 0)
		count = 0;
	nvml->shutdown();
	return count;
}

/* Those that the driver knows of, or none. */
static int look(const struct device_info *info, struct ledger_holder holders[NVML_MOST])
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	struct nvml_process processes[NVML_MOST];
	struct nvml nvml;
	int count;

	if (!library)
		return 0;
	count = load(library, &nvml) ? (int)ask(&nvml, info->uuid, processes) : 0;
	for (int i = 0; i < count; i++) {
		holders[i].pid = processes[i].pid;
		holders[i].bytes = processes[i].bytes == ~0ull ? 0 : (size_t)processes[i].bytes;
	}
	dlclose(library);
	return count;
}

void device_holders(const struct device_info *info, const struct engine_mate *mates, int mate_count,
		    char text[LEDGER_HOLDERS])
{
	struct ledger_holder holders[NVML_MOST];
	int count = look(info, holders);

	ledger_tell_holders(holders, count, mates, mate_count, text);
}

size_t device_held(const struct device_info *info)
{
	struct ledger_holder holders[NVML_MOST];
	int count = look(info, holders);

	for (int i = 0; i < count; i++)
		if (holders[i].pid == (unsigned int)getpid())
			return holders[i].bytes;
	return 0;
}
