/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c - what the CUDA driver says of a device
 *
 * The driver is looked for at run time: ddp-info runs on nodes that have none. Its ABI is stable;
 * the few types are written out here so that no toolkit is needed to build.
 */
#include "config.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "card.h"

typedef int device_handle;

struct driver {
	int (*init)(unsigned);
	int (*version)(int *);
	int (*get)(device_handle *, int);
	int (*name)(char *, int, device_handle);
	int (*uuid)(unsigned char[16], device_handle);
};

static bool load(void *library, struct driver *driver)
{
	*(void **)&driver->init = dlsym(library, "cuInit");
	*(void **)&driver->version = dlsym(library, "cuDriverGetVersion");
	*(void **)&driver->get = dlsym(library, "cuDeviceGet");
	*(void **)&driver->name = dlsym(library, "cuDeviceGetName");
	/* The second version tells the slices of one GPU apart. */
	*(void **)&driver->uuid = dlsym(library, "cuDeviceGetUuid_v2");
	if (!driver->uuid)
		*(void **)&driver->uuid = dlsym(library, "cuDeviceGetUuid");
	return driver->init && driver->version && driver->get && driver->name && driver->uuid;
}

static void print_uuid(const unsigned char id[16], char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "GPU-");

	for (int i = 0; i < 16 && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%02x",
					 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
}

void info_card_device(struct info_card *card, int index)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	struct driver driver;
	unsigned char id[16];
	device_handle device;
	int version = 0;

	if (!library)
		return;
	/* It stays loaded: the driver has threads of its own. */
	if (!load(library, &driver) || driver.init(0) != 0 || driver.get(&device, index) != 0)
		return;
	if (driver.uuid(id, device) == 0)
		print_uuid(id, card->uuid, sizeof(card->uuid));
	if (driver.name(card->device_name, (int)sizeof(card->device_name), device) != 0)
		card->device_name[0] = '\0';
	if (driver.version(&version) == 0)
		snprintf(card->libraries, sizeof(card->libraries), "CUDA driver %d.%d",
			 version / 1000, version % 1000 / 10);
}
