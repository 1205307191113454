/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "device-private.h"

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

int device_wait(struct device *device, enum device_stream stream, struct ddp_error *error)
{
	return device_error(device, cudaStreamSynchronize(device->streams[stream]), error,
			    "work that was under way failed");
}

int device_check(struct device *device, const char *what, struct ddp_error *error)
{
	return device_error(device, cudaGetLastError(), error, "enqueuing %s", what);
}
