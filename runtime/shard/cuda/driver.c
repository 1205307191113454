/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "driver.h"

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

/* Older toolkits ask for the function of their own version, and those before 11.3 for none. */
static void *find(const struct entry *entry)
{
	void *function = NULL;
	cudaError_t result = cudaErrorNotSupported;
#if CUDART_VERSION >= 12050
	enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;

	result = cudaGetDriverEntryPointByVersion(entry->name, &function, entry->version,
						  cudaEnableDefault, &found);
	if (found != cudaDriverEntryPointSuccess)
		function = NULL;
#elif CUDART_VERSION >= 12000
	enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;

	result = cudaGetDriverEntryPoint(entry->name, &function, cudaEnableDefault, &found);
	if (found != cudaDriverEntryPointSuccess)
		function = NULL;
#elif CUDART_VERSION >= 11070
	result = cudaGetDriverEntryPoint(entry->name, &function, cudaEnableDefault);
#endif
	if (result == cudaSuccess)
		return function;
	(void)cudaGetLastError();
	return NULL;
}

const char *ddp_shard_driver_load(struct ddp_shard_driver *driver)
{
	const char *missing = NULL;

	memset(driver, 0, sizeof(*driver));
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		void *function = find(&entries[i]);

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
