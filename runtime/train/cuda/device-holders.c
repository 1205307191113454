/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who else uses a GPU: the driver's management library knows, where there is one. It is looked for
 * when it is needed; its few types are written out here, so that no header of it is.
 */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "device-private.h"

enum { NVML_MOST = 64, NVML_TOLD = 3 };

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

/* The process that holds most and was not told, NULL: none. */
static struct nvml_process *largest(struct nvml_process *processes, unsigned int count)
{
	struct nvml_process *found = NULL;

	for (unsigned int i = 0; i < count; i++) {
		if (processes[i].bytes == ~0ull || processes[i].bytes == 0 ||
		    processes[i].pid == (unsigned int)getpid())
			continue;
		if (!found || processes[i].bytes > found->bytes)
			found = &processes[i];
	}
	return found;
}

void device_holders(const struct device_info *info, char text[DEVICE_HOLDERS])
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	struct nvml_process processes[NVML_MOST], *holder;
	size_t used = 0;
	struct nvml nvml;
	unsigned int count;

	text[0] = '\0';
	if (!library)
		return;
	count = load(library, &nvml) ? ask(&nvml, info->uuid, processes) : 0;
	for (int i = 0; i < NVML_TOLD && (holder = largest(processes, count)); i++) {
		used += (size_t)snprintf(text + used, DEVICE_HOLDERS - used,
					 "%sprocess %u holds %.1f GiB", used ? ", " : "",
					 holder->pid, (double)holder->bytes / 0x1p30);
		holder->bytes = 0;
	}
	dlclose(library);
}
