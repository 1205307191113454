/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "device-private.h"

void device_holders(const struct device_info *info, const struct engine_mate *mates, int mate_count,
		    char text[LEDGER_HOLDERS])
{
	struct ddp_card_holder holders[DDP_CARD_HOLDERS];
	int count = ddp_card_holders(info->uuid, holders);

	ledger_tell_holders(holders, count, mates, mate_count, text);
}

static int refuse(struct device *device, size_t bytes, const char *what, const char *remedy,
		  struct ddp_error *error)
{
	char holders[LEDGER_HOLDERS] = "";
	struct ledger_card card = {.holders = holders};
	size_t total;

	(void)cudaGetLastError();
	if (cudaMemGetInfo(&card.free, &total) != cudaSuccess)
		(void)cudaGetLastError();
	device_holders(&device->info, device->mates, device->mate_count, holders);
	return ledger_refuse(&device->ledger, &device->info, &card, bytes, what, remedy, error);
}

int device_may(struct device *device, size_t bytes, const char *what, const char *remedy,
	       struct ddp_error *error)
{
	if (ledger_allows(&device->ledger, &device->info, bytes))
		return 0;
	return refuse(device, bytes, what, remedy, error);
}

static int keep(struct device *device, void *memory, size_t bytes, enum ledger_kind kind,
		struct ddp_error *error)
{
	if (ledger_add(&device->ledger, memory, bytes, kind))
		return 0;
	return ddp_error_set(error, DDP_ERR_MEMORY, "GPU %d: no memory on the host",
			     device->info.index);
}

static int fill_zero(struct device *device, void *memory, size_t bytes, const char *what,
		     struct ddp_error *error)
{
	char doing[256];
	int status;

	snprintf(doing, sizeof(doing), "clearing %s", what);
	status = device_error(device, cudaMemsetAsync(memory, 0, bytes, device->setup), error, "%s",
			      doing);
	return status ? status : device_await(device, device->setup, error, doing);
}

/* cudaFree() would wait for a GPU that hangs. */
static void give_back(struct device *device, void *memory)
{
	if (memory && cudaStreamQuery(device->setup) != cudaErrorNotReady)
		(void)cudaFree(memory);
	(void)cudaGetLastError();
}

int device_alloc(struct device *device, void **memory, size_t bytes, const char *what,
		 const char *remedy, struct ddp_error *error)
{
	size_t whole = bytes ? bytes : 1;
	cudaError_t result;
	int status = device_may(device, bytes, what, remedy, error);

	*memory = NULL;
	if (status < 0)
		return status;
	result = cudaMalloc(memory, whole);
	if (result == cudaErrorMemoryAllocation) {
		*memory = NULL;
		return refuse(device, bytes, what, remedy, error);
	}
	status = device_error(device, result, error, "allocating %zu bytes for %s", bytes, what);
	if (!status)
		status = fill_zero(device, *memory, whole, what, error);
	if (!status)
		status = keep(device, *memory, whole, LEDGER_DEVICE, error);
	if (status) {
		give_back(device, *memory);
		*memory = NULL;
	}
	return status;
}

int device_alloc_host(struct device *device, void **memory, size_t bytes, const char *what,
		      struct ddp_error *error)
{
	size_t whole = bytes ? bytes : 1;
	int status;

	*memory = NULL;
	status = device_error(
		device, cudaHostAlloc(memory, whole, cudaHostAllocPortable | cudaHostAllocMapped),
		error, "pinning %zu bytes of the host for %s", bytes, what);
	if (status) {
		*memory = NULL;
		return status;
	}
	memset(*memory, 0, whole);
	status = keep(device, *memory, whole, LEDGER_HOST, error);
	if (status) {
		(void)cudaFreeHost(*memory);
		*memory = NULL;
	}
	return status;
}

void device_free(struct device *device, void *memory)
{
	struct ledger_entry entry;

	if (!memory || !ledger_take(&device->ledger, memory, &entry))
		return;
	if (entry.kind == LEDGER_DEVICE)
		(void)cudaFree(memory);
	else if (entry.kind == LEDGER_HOST)
		(void)cudaFreeHost(memory);
	(void)cudaGetLastError();
}

int device_count(struct device *device, void *memory, size_t bytes, struct ddp_error *error)
{
	return keep(device, memory, bytes, LEDGER_OTHERS, error);
}

void device_uncount(struct device *device, void *memory)
{
	struct ledger_entry entry;

	(void)ledger_take(&device->ledger, memory, &entry);
}

size_t device_used(const struct device *device, size_t *most)
{
	if (most)
		*most = device->ledger.most;
	return device->ledger.used;
}

size_t device_context(const struct device *device)
{
	return device->ledger.context;
}

/* What the driver counts for this process and we did not allocate; it may round what we did. */
void device_measure(struct device *device)
{
	size_t held = ddp_card_held(device->info.uuid);

	if (held > device->ledger.used + device->ledger.context)
		device->ledger.context = held - device->ledger.used;
}

/* --- Copies ------------------------------------------------------------------------------- */

/* The host's own memory, which is neither ours nor known to CUDA. */
static bool is_pageable(const struct device *device, const void *memory)
{
	struct cudaPointerAttributes attributes;

	if (ledger_find(&device->ledger, memory))
		return false;
	if (cudaPointerGetAttributes(&attributes, memory) == cudaSuccess)
		return attributes.type == cudaMemoryTypeUnregistered;
	(void)cudaGetLastError();
	return true;
}

static bool is_captured(const struct device *device, enum device_stream stream)
{
	enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

	if (device->capturing &&
	    cudaStreamIsCapturing(device->streams[stream], &status) != cudaSuccess)
		(void)cudaGetLastError();
	return status != cudaStreamCaptureStatusNone;
}

/*
 * Of pageable memory CUDA promises neither way that it is done with it on return: it "may be", where the
 * driver stages it, and is not where the GPU reads the host's memory itself. So it is waited for.
 */
int device_copy(struct device *device, enum device_stream stream, void *to, const void *from,
		size_t bytes, struct ddp_error *error)
{
	bool wait;
	int status;

	if (bytes == 0)
		return 0;
	wait = is_pageable(device, to) || is_pageable(device, from);
	if (wait && is_captured(device, stream))
		return ddp_error_set(error, DDP_ERR_STATE,
				     "GPU %d: a copy in a graph, of memory that is neither the "
				     "GPU's nor pinned",
				     device->info.index);
	status = device_error(device,
			      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
					      device->streams[stream]),
			      error, "copying %zu bytes", bytes);
	return status || !wait ? status : device_wait(device, stream, error);
}

int device_zero(struct device *device, enum device_stream stream, void *memory, size_t bytes,
		struct ddp_error *error)
{
	if (bytes == 0)
		return 0;
	return device_error(device, cudaMemsetAsync(memory, 0, bytes, device->streams[stream]),
			    error, "clearing %zu bytes", bytes);
}
