/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "driver.h"
#include "wide/card-cuda.h"

static const struct entry {
	const char *name;
	unsigned int version; /* of CUDA, whose function of this name is meant */
	size_t place;
} entries[] = {
	{"cuDeviceGet", 2000, offsetof(struct ddp_shard_driver, device)},
	{"cuDeviceGetAttribute", 2000, offsetof(struct ddp_shard_driver, attribute)},
	{"cuStreamWaitValue32", 11070, offsetof(struct ddp_shard_driver, wait)},
	{"cuStreamWriteValue32", 11070, offsetof(struct ddp_shard_driver, write)},
	{"cuMemGetAllocationGranularity", 10020, offsetof(struct ddp_shard_driver, granularity)},
	{"cuMemCreate", 10020, offsetof(struct ddp_shard_driver, create)},
	{"cuMemRelease", 10020, offsetof(struct ddp_shard_driver, release)},
	{"cuMemExportToShareableHandle", 10020, offsetof(struct ddp_shard_driver, export)},
	{"cuMemImportFromShareableHandle", 10020, offsetof(struct ddp_shard_driver, import)},
	{"cuMemAddressReserve", 10020, offsetof(struct ddp_shard_driver, reserve)},
	{"cuMemAddressFree", 10020, offsetof(struct ddp_shard_driver, unreserve)},
	{"cuMemMap", 10020, offsetof(struct ddp_shard_driver, map)},
	{"cuMemUnmap", 10020, offsetof(struct ddp_shard_driver, unmap)},
	{"cuMemSetAccess", 10020, offsetof(struct ddp_shard_driver, access)},
};

const char *ddp_shard_driver_load(struct ddp_shard_driver *driver)
{
	const char *missing = NULL;

	memset(driver, 0, sizeof(*driver));
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		void *function = ddp_card_driver(entries[i].name, entries[i].version);

		/* POSIX lets an address of data be one of a function, ISO C does not. */
		memcpy((char *)driver + entries[i].place, &function, sizeof(function));
		if (!function && !missing)
			missing = entries[i].name;
	}
	return missing;
}

bool ddp_shard_driver_has_words(const struct ddp_shard_driver *driver)
{
	return driver->device && driver->attribute && driver->wait && driver->write;
}

bool ddp_shard_driver_has_memory(const struct ddp_shard_driver *driver)
{
	return driver->granularity && driver->create && driver->release && driver->export &&
	       driver->import && driver->reserve && driver->unreserve && driver->map &&
	       driver->unmap && driver->access;
}
