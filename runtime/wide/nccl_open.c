/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_device.h"

enum { OLDEST = 21800, PAGE = 4096 };

int ddp_nccl_enter(const struct ddp_device *device)
{
	int was = device->index;

	if (cudaGetDevice(&was) != cudaSuccess)
		(void)cudaGetLastError();
	if (was != device->index)
		(void)cudaSetDevice(device->index);
	return was;
}

void ddp_nccl_leave(const struct ddp_device *device, int was)
{
	if (was != device->index)
		(void)cudaSetDevice(was);
}

static int check_nccl(int *version, struct ddp_error *error)
{
	if (ncclGetVersion(version) != ncclSuccess)
		*version = 0;
	if (*version >= OLDEST)
		return 0;
	return ddp_error_set(
		error, DDP_ERR_UNSUPPORTED,
		"engine nccl: libnccl.so.2 is version %d.%d.%d, 2.18 or newer is needed",
		*version / 10000, *version / 100 % 100, *version % 100);
}

/* The stream, the events and the word: everything that needs no peer. */
static int take(struct ddp_device *device, struct ddp_error *error)
{
	int least = 0, greatest = 0, status;

	status = ddp_nccl_cuda(device, cudaDeviceGetStreamPriorityRange(&least, &greatest), error,
			       "taking the device");
	if (!status)
		status = ddp_nccl_cuda(device,
				       cudaStreamCreateWithPriority(
					       &device->stream, cudaStreamNonBlocking, greatest),
				       error, "creating a stream");
	if (!status)
		status = ddp_nccl_cuda(
			device, cudaEventCreateWithFlags(&device->waited, cudaEventDisableTiming),
			error, "creating an event");
	for (int i = 0; i < DDP_NCCL_EVENTS && !status; i++)
		status = ddp_nccl_cuda(device,
				       cudaEventCreateWithFlags(&device->work[i].event,
								cudaEventDisableTiming),
				       error, "creating an event");
	if (!status)
		status = ddp_nccl_cuda(device, cudaMalloc((void **)&device->word, sizeof(int32_t)),
				       error, "allocating a word");
	if (!status)
		status = ddp_nccl_cuda(
			device, cudaHostAlloc((void **)&device->page, PAGE, cudaHostAllocPortable),
			error, "allocating a page of pinned memory");
	return status;
}

int ddp_nccl_open(struct ddp_device **device, int rank, int size, int index, double share,
		  const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_device *new;
	int version = 0, status, was;
	char who[32];

	*device = NULL;
	snprintf(who, sizeof(who), "rank %d", rank);
	status = ddp_card_check("nccl", who, index, error);
	if (!status)
		status = check_nccl(&version, error);
	if (status)
		return status;
	new = calloc(1, sizeof(*new));
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the engine nccl");
	new->rank = rank;
	new->size = size;
	new->index = index;
	snprintf(new->who, sizeof(new->who), "rank %d, device %d", rank, index);
	new->share = share;
	new->log = log;
	new->version = version;
	pthread_mutex_init(&new->lock, NULL);
	was = ddp_nccl_enter(new);
	status = ddp_nccl_identify(new, error);
	if (!status)
		status = take(new, error);
	ddp_nccl_leave(new, was);
	if (status) {
		ddp_nccl_close(new);
		return status;
	}
	*device = new;
	return 0;
}

int ddp_nccl_card(struct ddp_device *device, struct ddp_device_card *card, struct ddp_error *error)
{
	(void)error;
	*card = device->card;
	return 0;
}

void ddp_nccl_describe(struct ddp_device *device, char *text, size_t size)
{
	char share[32] = "";

	if (device->share > 0 && device->share < 1)
		snprintf(share, sizeof(share), ", share %.2f", device->share);
	snprintf(text, size, "NCCL %d.%d.%d, device %d: %s (%s)%s, memory %s",
		 device->version / 10000, device->version / 100 % 100, device->version % 100,
		 device->index, device->name, device->card.uuid, share,
		 ddp_nccl_memory_method(device));
}
