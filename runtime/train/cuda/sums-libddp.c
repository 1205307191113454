/* SPDX-License-Identifier: Apache-2.0 */
/* Sums by libddp's engine between devices. One rank needs none, and no communicator. */
#include "config.h"

#include "sums.h"

static bool is_alone(const struct ddp *ddp)
{
	return !ddp || ddp_world(ddp)->size == 1;
}

/* libddp's story of what went wrong. */
static int told(struct ddp *ddp, int status, struct ddp_error *error)
{
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(ddp)) : 0;
}

int sums_join(struct ddp *ddp, struct ddp_error *error)
{
	return is_alone(ddp) ? 0 : told(ddp, ddp_device_join(ddp), error);
}

int sums_alloc(struct ddp *ddp, struct device *device, void **memory, size_t bytes,
	       struct ddp_error *error)
{
	int status;

	if (is_alone(ddp))
		return device_alloc(device, memory, bytes, "sums over ranks", NULL, error);
	*memory = NULL;
	status = sums_join(ddp, error);
	if (!status)
		status = device_may(device, bytes, "sums over ranks", NULL, error);
	if (!status)
		status = told(ddp, ddp_device_alloc(ddp, bytes, memory), error);
	if (status)
		return status;
	status = device_count(device, *memory, bytes, error);
	if (!status)
		status = device_zero(device, DEVICE_COMPUTE, *memory, bytes, error);
	return status ? status : device_wait(device, DEVICE_COMPUTE, error);
}

bool sums_captures(const struct ddp *ddp)
{
	return is_alone(ddp) || ddp_device_captures(ddp);
}

void sums_free(struct ddp *ddp, struct device *device, void *memory)
{
	if (!memory)
		return;
	if (is_alone(ddp)) {
		device_free(device, memory);
		return;
	}
	device_uncount(device, memory);
	(void)ddp_device_free(ddp, memory);
}

int sums_reduce(struct ddp *ddp, struct device *device, enum device_stream stream, void *data,
		size_t count, enum ddp_type type, struct ddp_error *error)
{
	if (is_alone(ddp))
		return 0;
	return told(ddp,
		    ddp_device_all_reduce(ddp, data, data, count, type, DDP_SUM,
					  device_stream(device, stream)),
		    error);
}

int sums_gather(struct ddp *ddp, struct device *device, enum device_stream stream, const void *send,
		void *recv, size_t bytes, struct ddp_error *error)
{
	if (is_alone(ddp))
		return send == recv ? 0 : device_copy(device, stream, recv, send, bytes, error);
	return told(ddp,
		    ddp_device_all_gather(ddp, send, recv, bytes, device_stream(device, stream)),
		    error);
}

int sums_broadcast(struct ddp *ddp, struct device *device, enum device_stream stream, void *data,
		   size_t bytes, int root, struct ddp_error *error)
{
	if (is_alone(ddp))
		return 0;
	return told(ddp,
		    ddp_device_broadcast(ddp, data, bytes, root, device_stream(device, stream)),
		    error);
}

int sums_wait(struct ddp *ddp, struct device *device, enum device_stream stream,
	      struct ddp_error *error)
{
	if (is_alone(ddp))
		return device_wait(device, stream, error);
	return told(ddp, ddp_device_wait(ddp, device_stream(device, stream)), error);
}

int sums_check(struct ddp *ddp, struct ddp_error *error)
{
	return is_alone(ddp) ? 0 : told(ddp, ddp_device_check(ddp), error);
}
