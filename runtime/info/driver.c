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
#include <stdlib.h>
#include <string.h>

#include "card.h"
#include "device/card-memory.h"

/* Of CUdevice_attribute and CUcomputemode. */
enum {
	ATTRIBUTE_MODE = 20,
	ATTRIBUTE_MPS = 133, /* contexts on it go through MPS */
	MODE_EXCLUSIVE = 3,  /* one process at a time */
};

typedef int device_handle;

struct driver {
	int (*init)(unsigned);
	int (*version)(int *);
	int (*get)(device_handle *, int);
	int (*name)(char *, int, device_handle);
	int (*uuid)(unsigned char[16], device_handle);
	int (*whole_uuid)(unsigned char[16], device_handle);
	int (*total)(size_t *, device_handle);
	int (*attribute)(int *, int, device_handle);
	int (*retain)(void **context, device_handle);
	int (*release)(device_handle);
	int (*error)(int, const char **);
};

static bool load(void *library, struct driver *driver)
{
	*(void **)&driver->init = dlsym(library, "cuInit");
	*(void **)&driver->version = dlsym(library, "cuDriverGetVersion");
	*(void **)&driver->get = dlsym(library, "cuDeviceGet");
	*(void **)&driver->name = dlsym(library, "cuDeviceGetName");
	*(void **)&driver->whole_uuid = dlsym(library, "cuDeviceGetUuid");
	/* The second version tells the slices of one GPU apart. */
	*(void **)&driver->uuid = dlsym(library, "cuDeviceGetUuid_v2");
	if (!driver->uuid)
		driver->uuid = driver->whole_uuid;
	*(void **)&driver->total = dlsym(library, "cuDeviceTotalMem_v2");
	*(void **)&driver->attribute = dlsym(library, "cuDeviceGetAttribute");
	*(void **)&driver->retain = dlsym(library, "cuDevicePrimaryCtxRetain");
	*(void **)&driver->release = dlsym(library, "cuDevicePrimaryCtxRelease_v2");
	*(void **)&driver->error = dlsym(library, "cuGetErrorString");
	return driver->init && driver->version && driver->get && driver->name && driver->uuid &&
	       driver->whole_uuid && driver->total && driver->attribute && driver->retain &&
	       driver->release && driver->error;
}

static void fill_uuid(const struct driver *driver, device_handle device, struct info_card *card)
{
	unsigned char id[DDP_CARD_UUID], whole[DDP_CARD_UUID];

	if (driver->uuid(id, device) == 0)
		ddp_card_print_uuid(card->uuid, sizeof(card->uuid), id,
				    driver->whole_uuid(whole, device) == 0 &&
					    memcmp(id, whole, sizeof(id)) != 0);
}

/* The driver's own count is what a share is a part of; that of the management library has more in it. */
static void fill_memory(const struct driver *driver, device_handle device, struct info_card *card)
{
	uint64_t total;
	size_t bytes;

	if (card->uuid[0])
		(void)ddp_card_memory(card->uuid, &total, &card->free);
	if (driver->total(&bytes, device) == 0)
		card->total = bytes;
}

static void fill(const struct driver *driver, device_handle device, struct info_card *card)
{
	int value;

	fill_uuid(driver, device, card);
	fill_memory(driver, device, card);
	if (driver->name(card->device_name, (int)sizeof(card->device_name), device) != 0)
		card->device_name[0] = '\0';
	if (driver->version(&value) == 0)
		snprintf(card->libraries, sizeof(card->libraries), "CUDA driver %d.%d",
			 value / 1000, value % 1000 / 10);
	if (driver->attribute(&value, ATTRIBUTE_MODE, device) == 0)
		card->exclusive = value == MODE_EXCLUSIVE;
	/* Older drivers do not know the question. */
	if (driver->attribute(&value, ATTRIBUTE_MPS, device) == 0)
		card->client = value != 0;
}

/* It stays loaded: the driver has threads of its own. Returns whether [device] can be asked about. */
static bool open_driver(struct driver *driver, int index, device_handle *device,
			struct info_card *card)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *why = NULL;
	int status;

	if (!library || !load(library, driver))
		return false;
	status = driver->init(0);
	if (status == 0)
		status = driver->get(device, index);
	if (status == 0)
		return true;
	if (driver->error(status, &why) != 0 || !why)
		why = "not a known error";
	snprintf(card->trouble, sizeof(card->trouble), "%s (%d)", why, status);
	return false;
}

void info_card_device(struct info_card *card, int index)
{
	struct driver driver;
	device_handle device;

	if (open_driver(&driver, index, &device, card))
		fill(&driver, device, card);
}

void info_card_context(struct info_card *card)
{
	uint64_t total, before, after;
	struct driver driver;
	device_handle device;
	void *context;

	if (!card->uuid[0] || !open_driver(&driver, card->device, &device, card) ||
	    !ddp_card_memory(card->uuid, &total, &before) || driver.retain(&context, device) != 0)
		return;
	if (ddp_card_memory(card->uuid, &total, &after) && after < before)
		card->context = before - after;
	driver.release(device);
}

struct info_copier {
	int (*current)(void *context);
	int (*in)(unsigned long long device, const void *host, size_t bytes);
	int (*out)(void *host, unsigned long long device, size_t bytes);
	void *context; /* the device's own, which libddp uses too */
};

static bool load_copier(void *library, struct info_copier *copier)
{
	*(void **)&copier->current = dlsym(library, "cuCtxSetCurrent");
	*(void **)&copier->in = dlsym(library, "cuMemcpyHtoD_v2");
	*(void **)&copier->out = dlsym(library, "cuMemcpyDtoH_v2");
	return copier->current && copier->in && copier->out;
}

struct info_copier *info_copier_open(int index)
{
	struct info_copier *copier = calloc(1, sizeof(*copier));
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	struct info_card unused = {.rank = 0};
	struct driver driver;
	device_handle device;

	if (copier && library && open_driver(&driver, index, &device, &unused) &&
	    load_copier(library, copier) && driver.retain(&copier->context, device) == 0)
		return copier;
	free(copier);
	return NULL;
}

bool info_copy_in(struct info_copier *copier, void *device, const void *host, size_t bytes)
{
	return copier->current(copier->context) == 0 &&
	       copier->in((uintptr_t)device, host, bytes) == 0;
}

bool info_copy_out(struct info_copier *copier, void *host, const void *device, size_t bytes)
{
	return copier->current(copier->context) == 0 &&
	       copier->out(host, (uintptr_t)device, bytes) == 0;
}
