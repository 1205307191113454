/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda_runtime_api.h>
#pragma GCC diagnostic pop

#include "card-uuid.h"

/*
 * The driver's functions by address: libcuda is not linked, so that a node without a driver can load
 * the module and say so.
 */
typedef int (*get_device)(int *device, int ordinal);
typedef int (*get_uuid)(cudaUUID_t *uuid, int device);

static void *driver_function(const char *name, unsigned int version)
{
#if CUDART_VERSION >= 12050
	enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
	void *function = NULL;

	if (cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found) ==
		    cudaSuccess &&
	    found == cudaDriverEntryPointSuccess)
		return function;
	(void)cudaGetLastError();
#else
	(void)name;
	(void)version;
#endif
	return NULL;
}

/* cuDeviceGetUuid of CUDA 9.2 names the GPU, that of 11.4 the MIG slice where there is one. */
static bool driver_uuid(int ordinal, unsigned int version, cudaUUID_t *uuid)
{
	/* POSIX lets an address of data be one of a function, ISO C does not. */
	union {
		void *address;
		get_device device;
		get_uuid uuid;
	} a, b;
	int handle;

	a.address = driver_function("cuDeviceGet", 2000);
	b.address = driver_function("cuDeviceGetUuid", version);
	return a.address && b.address && a.device(&handle, ordinal) == 0 &&
	       b.uuid(uuid, handle) == 0;
}

void ddp_card_uuid(char *text, size_t size, int ordinal, const char properties[DDP_CARD_UUID])
{
	cudaUUID_t slice, whole;
	size_t length;
	bool mig = false;

	if (!driver_uuid(ordinal, 11040, &slice))
		memcpy(slice.bytes, properties, sizeof(slice.bytes));
	else if (driver_uuid(ordinal, 9020, &whole))
		mig = memcmp(&slice, &whole, sizeof(slice)) != 0;
	length = (size_t)snprintf(text, size, "%s", mig ? "MIG-" : "GPU-");
	for (size_t i = 0; i < sizeof(slice.bytes) && length + 3 < size; i++)
		length += (size_t)snprintf(text + length, size - length, "%s%02x",
					   i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
					   (unsigned char)slice.bytes[i]);
}
