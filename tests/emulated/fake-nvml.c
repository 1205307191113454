/* SPDX-License-Identifier: Apache-2.0 */
/* The test is linked with --wrap for these three. */
#include "fake-nvml.h"

#include <string.h>

struct fake_nvml fake_nvml;

static int nvml_nothing(void)
{
	return 0;
}

static int nvml_find(const char *uuid, void **handle)
{
	*handle = &fake_nvml;
	return strncmp(uuid, "GPU-", 4);
}

static int nvml_processes(const void *handle, unsigned int *count, struct fake_process *list)
{
	(void)handle;
	*count = fake_nvml.count;
	memcpy(list, fake_nvml.processes, sizeof(fake_nvml.processes));
	return 0;
}

void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlsym(void *library, const char *name);
int __wrap_dlclose(void *library);

void *__wrap_dlopen(const char *name, int flags)
{
	(void)flags;
	return fake_nvml.there && strcmp(name, "libnvidia-ml.so.1") == 0 ? &fake_nvml : NULL;
}

void *__wrap_dlsym(void *library, const char *name)
{
	union {
		void *data;
		int (*find)(const char *, void **);
		int (*list)(const void *, unsigned int *, struct fake_process *);
		int (*nothing)(void);
	} function = {.nothing = nvml_nothing};

	(void)library;
	if (strcmp(name, "nvmlDeviceGetHandleByUUID") == 0)
		function.find = nvml_find;
	else if (strstr(name, "Processes"))
		function.list = nvml_processes;
	return function.data;
}

int __wrap_dlclose(void *library)
{
	return library != &fake_nvml;
}
