/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "nccl_device.h"

/* Seconds: an orderly end waits for the other ranks of the node, the other for nobody. */
#define CLOSE_SECONDS 10.0
#define GIVE_UP_SECONDS 2.0

struct leaving {
	ncclComm_t comm;
	int index;
};

static void give_up(void *arguments)
{
	const struct leaving *leaving = arguments;

	(void)cudaSetDevice(leaving->index);
	(void)ncclCommAbort(leaving->comm);
}

void ddp_nccl_warn(struct ddp_device *device, void (*call)(void *owner), void *owner)
{
	device->owner = owner;
	device->warn = call;
}

/* Kernels that are given up end like any others, without a result. */
void ddp_nccl_give_up(struct ddp_device *device)
{
	struct leaving leaving = {.index = device->index};

	if (device->warn)
		device->warn(device->owner);
	pthread_mutex_lock(&device->lock);
	leaving.comm = device->comm;
	device->comm = NULL;
	if (!device->failure.status)
		ddp_error_set(&device->failure, DDP_ERR_ABORTED,
			      "rank %d, device %d: the communicator was given up", device->rank,
			      device->index);
	/* Without a thread for it the communicator is left as it is, like one that hangs. */
	if (leaving.comm)
		(void)ddp_bounded_start(&device->leaving, give_up, &leaving, sizeof(leaving), NULL);
	pthread_mutex_unlock(&device->lock);
}

/* Wait for [bounded], if there is one. Returns whether it came back; then it is gone. */
static bool settle(struct ddp_bounded **bounded, const struct ddp_watch *watch)
{
	if (!*bounded)
		return true;
	if (ddp_bounded_wait(*bounded, watch, NULL) < 0)
		return false;
	ddp_bounded_leave(*bounded);
	*bounded = NULL;
	return true;
}

bool ddp_nccl_abort(struct ddp_device *device, double seconds)
{
	struct ddp_watch watch = ddp_watch_start(seconds, NULL, NULL);
	bool had;

	pthread_mutex_lock(&device->lock);
	had = device->comm != NULL;
	pthread_mutex_unlock(&device->lock);
	ddp_nccl_give_up(device);
	if (had && !device->leaving)
		return false;
	return settle(&device->leaving, &watch) && settle(&device->stuck, &watch);
}

/* --- An orderly end ---------------------------------------------------------------------- */

/* Everything that CUDA gave to open(); as far as open() came. */
static void release(struct ddp_device *device)
{
	for (int i = 0; i < DDP_NCCL_EVENTS; i++) {
		if (device->work[i].event)
			(void)cudaEventDestroy(device->work[i].event);
	}
	if (device->waited)
		(void)cudaEventDestroy(device->waited);
	if (device->word)
		(void)cudaFree(device->word);
	if (device->page)
		(void)cudaFreeHost(device->page);
	if (device->stream)
		(void)cudaStreamDestroy(device->stream);
	(void)cudaGetLastError();
}

/* NCCL wants memory deregistered, the communicator ended, and then the memory freed. */
static void end(void *arguments)
{
	struct ddp_device *device = *(struct ddp_device **)arguments;

	(void)cudaSetDevice(device->index);
	ddp_nccl_memory_deregister(device);
	if (device->comm) {
		(void)ncclCommFinalize(device->comm);
		(void)ncclCommDestroy(device->comm);
	}
	ddp_nccl_memory_free(device);
	release(device);
}

static bool end_bounded(struct ddp_device *device)
{
	struct ddp_watch watch = ddp_watch_start(CLOSE_SECONDS, NULL, NULL);
	struct ddp_bounded *bounded;

	if (ddp_bounded_start(&bounded, end, &device, sizeof(device), NULL) < 0)
		return false;
	(void)ddp_bounded_wait(bounded, &watch, NULL);
	return ddp_bounded_leave(bounded);
}

/* After a failure nothing of CUDA is freed: it could wait for a kernel that does not end. */
static bool drop(struct ddp_device *device)
{
	bool back = ddp_nccl_abort(device, GIVE_UP_SECONDS);

	if (!back) {
		ddp_bounded_leave(device->leaving);
		ddp_bounded_leave(device->stuck);
	}
	while (back && device->memory) {
		struct ddp_nccl_memory *memory = device->memory;

		device->memory = memory->next;
		free(memory);
	}
	return back;
}

void ddp_nccl_close(struct ddp_device *device)
{
	bool back;

	if (!device)
		return;
	back = ddp_nccl_watch_stop(device);
	if (!ddp_nccl_health(device, NULL))
		back = end_bounded(device) && back;
	else
		back = drop(device) && back;
	if (!back) {
		ddp_log_print(device->log, DDP_LEVEL_WARNING, "nccl",
			      "device %d: a call into NCCL hangs and is left behind",
			      device->index);
		return;
	}
	pthread_mutex_destroy(&device->lock);
	free(device);
}
