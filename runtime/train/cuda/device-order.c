/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <sched.h>
#include <time.h>

#include "base/watch.h"
#include "device-private.h"

/* Seconds in which the end of a stream is looked for without sleep, and with short ones; these, and longer ones. */
static const double spin = 200e-6, soon = 1;
enum { NAP = 50000, LONG_NAP = 1000000 /* nanoseconds */ };

/* An event may be set again as soon as somebody was told to wait for it: its old meaning stays with that. */
int device_order(struct device *device, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error)
{
	cudaEvent_t event = device->ordered[earlier];
	int status;

	if (later == earlier)
		return 0;
	status = device_error(device, cudaEventRecord(event, device->streams[earlier]), error,
			      "recording an event");
	if (!status)
		status = device_error(device, cudaStreamWaitEvent(device->streams[later], event, 0),
				      error, "putting streams in order");
	return status;
}

int device_mark(struct device *device, enum device_stream stream, int slot, struct ddp_error *error)
{
	int status = 0;

	if (!device->marks[slot])
		status = device_error(device,
				      cudaEventCreateWithFlags(&device->marks[slot],
							       cudaEventDisableTiming),
				      error, "making an event");
	if (!status)
		status = device_error(device,
				      cudaEventRecord(device->marks[slot], device->streams[stream]),
				      error, "recording an event");
	return status;
}

int device_reached(struct device *device, int slot, struct ddp_error *error)
{
	cudaError_t result;

	if (!device->marks[slot])
		return 1;
	result = cudaEventQuery(device->marks[slot]);
	if (result == cudaSuccess)
		return 1;
	if (result != cudaErrorNotReady)
		return device_error(device, result, error, "work that was under way failed");
	(void)cudaGetLastError();
	return 0;
}

void device_patience(struct device *device, double seconds)
{
	device->patience = seconds;
}

static void pause_after(double waited)
{
	struct timespec nap = {0, waited < soon ? NAP : LONG_NAP};

	if (waited < spin)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

/* cudaStreamSynchronize() would never come back from a GPU that hangs. */
int device_await(struct device *device, cudaStream_t stream, struct ddp_error *error,
		 const char *what)
{
	double begin = ddp_seconds(), waited = 0;
	cudaError_t result;

	while ((result = cudaStreamQuery(stream)) == cudaErrorNotReady) {
		(void)cudaGetLastError();
		waited = ddp_seconds() - begin;
		if (device->patience > 0 && waited >= device->patience)
			return ddp_error_set(
				error, DDP_ERR_ENGINE,
				"GPU %d (%s): what was under way did not end in %g s "
				"(DDP_TIMEOUT): it hangs; see the kernel's log for Xid, and drain "
				"the node if that happens again",
				device->info.index, device->info.name, device->patience);
		pause_after(waited);
	}
	return device_error(device, result, error, "%s", what);
}

int device_wait(struct device *device, enum device_stream stream, struct ddp_error *error)
{
	return device_await(device, device->streams[stream], error,
			    "work that was under way failed");
}

int device_check(struct device *device, const char *what, struct ddp_error *error)
{
	return device_error(device, cudaGetLastError(), error, "enqueuing %s", what);
}
