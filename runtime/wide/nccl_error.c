/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>

#include "nccl_device.h"

/* NCCL's word for whose fault it is. */
static int status_of(ncclResult_t result)
{
#if NCCL_HAS(2, 30, 3)
	if (result == ncclTimeout)
		return DDP_ERR_TIMEOUT;
#endif
	return result == ncclRemoteError ? DDP_ERR_PEER : DDP_ERR_ENGINE;
}

int ddp_nccl_result(const struct ddp_device *device, ncclResult_t result, struct ddp_error *error,
		    const char *format, ...)
{
	char what[DDP_NCCL_TEXT];
	va_list arguments;
	const char *last;

	if (result == ncclSuccess)
		return 0;
	(void)cudaGetLastError();
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	last = ncclGetLastError(NULL);
	return ddp_error_set(error, status_of(result), "%s: %s: NCCL says: %s%s%s", device->who,
			     what, ncclGetErrorString(result), last && *last ? ": " : "",
			     last ? last : "");
}

void ddp_nccl_fail(struct ddp_device *device, const struct ddp_error *error)
{
	pthread_mutex_lock(&device->lock);
	if (!device->failure.status)
		device->failure = *error;
	pthread_mutex_unlock(&device->lock);
}

/* Under the lock, so that nobody gives the communicator up meanwhile; it is a read of memory. */
static ncclResult_t async_error(struct ddp_device *device)
{
	ncclResult_t result = ncclSuccess;

	if (device->comm && ncclCommGetAsyncError(device->comm, &result) != ncclSuccess)
		return ncclInternalError;
	return result == ncclInProgress ? ncclSuccess : result;
}

int ddp_nccl_health(struct ddp_device *device, struct ddp_error *error)
{
	ncclResult_t result;
	int status;

	pthread_mutex_lock(&device->lock);
	if (!device->failure.status) {
		result = async_error(device);
		ddp_nccl_result(device, result, &device->failure,
				"the communicator of %d ranks broke", device->size);
	}
	status = device->failure.status;
	if (status && error)
		*error = device->failure;
	pthread_mutex_unlock(&device->lock);
	return status;
}
