/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu-memory.c - calls to the driver's management library, NVML
 *
 * NVML is opened with dlopen() at the first use, because a node without a driver lacks it. The few
 * types of NVML that are needed are declared here, so that its header is not needed.
 */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "gpu-memory.h"

void ddp_gpu_print_uuid(char *text, size_t size, const unsigned char id[DDP_GPU_UUID], bool slice)
{
	size_t used = (size_t)snprintf(text, size, "%s", slice ? "MIG-" : "GPU-");

	for (int i = 0; i < DDP_GPU_UUID && used + 3 < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%02x",
					 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
}

enum { PROCESSES = 128 };

struct nvml_process {
	unsigned int pid;
	unsigned long long bytes; /* all bits 1: unknown */
	unsigned int instance, part;
};

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml {
	void *library, *gpu;
	int (*shutdown)(void);
	int (*processes)(void *gpu, unsigned int *count, struct nvml_process *processes);
	int (*memory)(void *gpu, struct nvml_memory *memory);
};

static bool find_gpu(struct nvml *nvml, const char *uuid)
{
	int (*init)(void);
	int (*by_uuid)(const char *uuid, void **gpu);

	*(void **)&init = dlsym(nvml->library, "nvmlInit_v2");
	*(void **)&by_uuid = dlsym(nvml->library, "nvmlDeviceGetHandleByUUID");
	*(void **)&nvml->shutdown = dlsym(nvml->library, "nvmlShutdown");
	*(void **)&nvml->processes =
		dlsym(nvml->library, "nvmlDeviceGetComputeRunningProcesses_v3");
	*(void **)&nvml->memory = dlsym(nvml->library, "nvmlDeviceGetMemoryInfo");
	if (!init || !by_uuid || !nvml->shutdown || init() != 0)
		return false;
	if (by_uuid(uuid, &nvml->gpu) == 0)
		return true;
	nvml->shutdown();
	return false;
}

static bool begin(struct nvml *nvml, const char *uuid)
{
	nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!nvml->library)
		return false;
	if (find_gpu(nvml, uuid))
		return true;
	dlclose(nvml->library);
	return false;
}

static void end(struct nvml *nvml)
{
	nvml->shutdown();
	dlclose(nvml->library);
}

size_t ddp_gpu_held(const char *uuid)
{
	struct nvml_process processes[PROCESSES];
	unsigned int count = PROCESSES;
	struct nvml nvml;
	size_t bytes = 0;

	if (!begin(&nvml, uuid))
		return 0;
	if (!nvml.processes || nvml.processes(nvml.gpu, &count, processes) != 0)
		count = 0;
	end(&nvml);
	for (unsigned int i = 0; i < count; i++)
		if (processes[i].pid == (unsigned int)getpid() && processes[i].bytes != ~0ull)
			bytes += (size_t)processes[i].bytes;
	return bytes;
}

bool ddp_gpu_memory(const char *uuid, uint64_t *total, uint64_t *available)
{
	struct nvml_memory memory;
	struct nvml nvml;
	bool known;

	if (!begin(&nvml, uuid))
		return false;
	known = nvml.memory && nvml.memory(nvml.gpu, &memory) == 0;
	end(&nvml);
	if (known) {
		*total = memory.total;
		*available = memory.free;
	}
	return known;
}

/* Call NVML's function [name] for a GPU. The value is whether the function exists and succeeded. */
#define ASK(nvml, name, types, ...)                                 \
	({                                                          \
		int(*function) types;                               \
		*(void **)&function = dlsym((nvml)->library, name); \
		function &&function((nvml)->gpu, __VA_ARGS__) == 0; \
	})

bool ddp_gpu_read_health(const char *uuid, struct ddp_gpu_health *health)
{
	/* Values of NVML's nvmlClocksThrottleReasons. */
	enum { HW_SLOWDOWN = 0x8, SW_THERMAL = 0x20, HW_THERMAL = 0x40, HW_POWER_BRAKE = 0x80 };
	/*
	 * Values of NVML's nvmlMemoryErrorType_t (UNCORRECTED) and nvmlEccCounterType_t (VOLATILE).
	 */
	enum { UNCORRECTED = 1, VOLATILE = 0 };
	unsigned int rows[2], pending = 0, failed = 0;
	unsigned long long reasons = 0;
	struct nvml nvml;

	*health = (struct ddp_gpu_health){.ecc_errors = 0};
	if (!begin(&nvml, uuid))
		return false;
	if (!ASK(&nvml, "nvmlDeviceGetTotalEccErrors", (void *, int, int, unsigned long long *),
		 UNCORRECTED, VOLATILE, &health->ecc_errors))
		health->ecc_errors = 0;
	if (ASK(&nvml, "nvmlDeviceGetRemappedRows",
		(void *, unsigned int *, unsigned int *, unsigned int *, unsigned int *), &rows[0],
		&rows[1], &pending, &failed)) {
		health->remap_pending = pending;
		health->remap_failed = failed;
	}
	if (ASK(&nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", (void *, unsigned long long *),
		&reasons)) {
		health->is_hot = reasons & (SW_THERMAL | HW_THERMAL);
		health->is_slowed = reasons & (HW_SLOWDOWN | HW_POWER_BRAKE);
	}
	if (!ASK(&nvml, "nvmlDeviceGetCurrPcieLinkWidth", (void *, unsigned int *),
		 &health->width) ||
	    !ASK(&nvml, "nvmlDeviceGetMaxPcieLinkWidth", (void *, unsigned int *),
		 &health->width_most))
		health->width = health->width_most = 0;
	if (!ASK(&nvml, "nvmlDeviceGetCurrPcieLinkGeneration", (void *, unsigned int *),
		 &health->generation) ||
	    !ASK(&nvml, "nvmlDeviceGetMaxPcieLinkGeneration", (void *, unsigned int *),
		 &health->generation_most))
		health->generation = health->generation_most = 0;
	end(&nvml);
	return true;
}
