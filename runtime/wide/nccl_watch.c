/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "nccl_device.h"

/* Nanoseconds between two looks, and seconds that the watchdog is given to end. */
#define PERIOD 100000000u
#define STOP_SECONDS 2.0

/*
 * Ask the device how far it is: retire what has ended. Collectives in a CUDA graph have no
 * event; their counters in [page] are to be looked at here.
 */
static void look_at_work(struct ddp_device *device)
{
	struct ddp_error story = {0, ""};
	struct ddp_nccl_work work;
	cudaError_t result;

	while (ddp_nccl_oldest(device, &work)) {
		result = ddp_nccl_query(work.event);
		if (result == cudaErrorNotReady)
			return;
		ddp_nccl_retire(device, &work);
		if (result == cudaSuccess)
			continue;
		story.status =
			ddp_nccl_cuda(device, result, &story, "%s %llu of %zu %s", work.name,
				      (unsigned long long)work.sequence, work.count, work.unit);
		ddp_nccl_fail(device, &story);
		return;
	}
}

/* A call that only enqueues can block where NCCL still has to connect: end that, too. */
static void look_at_call(struct ddp_device *device)
{
	struct ddp_error story = {0, ""};
	struct ddp_nccl_work work;
	double seconds;

	pthread_mutex_lock(&device->lock);
	work = device->entering;
	pthread_mutex_unlock(&device->lock);
	if (!work.since)
		return;
	seconds = (double)(ddp_now() - work.since) * 1e-9;
	if (seconds < device->limit)
		return;
	ddp_error_set(&story, DDP_ERR_TIMEOUT,
		      "rank %d, device %d: %s %llu of %zu %s among %d ranks could not be enqueued "
		      "in %.1f s (limit %g s): NCCL waits for a rank that did not enter it",
		      device->rank, device->index, work.name, (unsigned long long)work.sequence,
		      work.count, work.unit, device->size, seconds, device->limit);
	ddp_nccl_fail(device, &story);
	ddp_nccl_give_up(device);
}

/* A capture of another thread must not notice: cudaEventQuery() would break it. */
static void watch(void *arguments)
{
	struct ddp_device *device = *(struct ddp_device **)arguments;
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
	struct ddp_watch forever = ddp_watch_start(1e9, NULL, NULL);

	(void)cudaSetDevice(device->index);
	(void)cudaThreadExchangeStreamCaptureMode(&mode);
	while (!atomic_load(&device->stop)) {
		if (ddp_nccl_health(device, NULL) == 0) {
			look_at_call(device);
			look_at_work(device);
		}
		for (int i = 0; i < 10 && !atomic_load(&device->stop); i++)
			ddp_watch_sleep(&forever, PERIOD / 10);
	}
}

int ddp_nccl_watch_start(struct ddp_device *device, struct ddp_error *error)
{
	return ddp_bounded_start(&device->watchdog, watch, &device, sizeof(device), error);
}

bool ddp_nccl_watch_stop(struct ddp_device *device)
{
	struct ddp_watch limit = ddp_watch_start(STOP_SECONDS, NULL, NULL);
	struct ddp_bounded *watchdog = device->watchdog;

	if (!watchdog)
		return true;
	device->watchdog = NULL;
	atomic_store(&device->stop, true);
	(void)ddp_bounded_wait(watchdog, &limit, NULL);
	return ddp_bounded_leave(watchdog);
}
