/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_device.h"

_Static_assert(sizeof(ncclUniqueId) <= DDP_DEVICE_ID, "an identity of NCCL fits");

/* Bytes of the larger all-reduce that opens the connections: past what goes in one message. */
enum { WARM_BYTES = 4 << 20 };

/* What the thread that forms the communicator works on. */
struct forming {
	const struct ddp_device *device; /* what open() set; it outlives the call */
	ncclUniqueId id;
	ncclComm_t comm;
	ncclResult_t result;
	struct ddp_error error;
};

struct warming {
	const struct ddp_device *device;
	ncclComm_t comm;
	void *memory;
	struct ddp_error error;
};

int ddp_nccl_identity(struct ddp_device *device, uint8_t id[DDP_DEVICE_ID], struct ddp_error *error)
{
	ncclUniqueId unique;
	int status, was = ddp_nccl_enter(device);

	memset(id, 0, DDP_DEVICE_ID);
	status = ddp_nccl_result(device, ncclGetUniqueId(&unique), error,
				 "making an identity (it holds an address of this node; "
				 "NCCL_SOCKET_IFNAME chooses the interface)");
	if (!status)
		memcpy(id, &unique, sizeof(unique));
	ddp_nccl_leave(device, was);
	return status;
}

/*
 * All that is left undefined is NCCL's to choose, and the user's by NCCL_*; that goes for the
 * use of graphs, too, as captured and plain collectives are mixed here. Blocking calls, because
 * the others start a thread for every collective.
 */
static void form(void *arguments)
{
	struct forming *forming = arguments;
	const struct ddp_device *device = forming->device;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t comm = NULL;

	config.blocking = 1;
#if NCCL_HAS(2, 27, 3)
	if (device->version >= NCCL_VERSION(2, 27, 3))
		config.commName = "ddp";
#endif
	forming->error.status =
		ddp_nccl_cuda(device, cudaSetDevice(device->index), &forming->error, "taking it");
	if (forming->error.status)
		return;
	forming->result =
		ncclCommInitRankConfig(&comm, device->size, forming->id, device->rank, &config);
	ddp_nccl_result(device, forming->result, &forming->error,
			"forming the communicator of %d ranks", device->size);
	if (forming->result == ncclSuccess)
		forming->comm = comm;
}

/* NCCL refuses what the preflight could not see; say what is behind it. */
static int explain(const struct ddp_device *device, const struct forming *forming,
		   struct ddp_error *error)
{
	const char *hint = "; NCCL_DEBUG=INFO tells more";

	if (strstr(forming->error.text, "Duplicate GPU"))
		hint = strncmp(device->card.uuid, "MIG-", 4) == 0
			       ? "; NCCL before 2.30 takes two MIG slices of one GPU for one device: "
				 "use slices of different GPUs"
			       : "; one rank per GPU is needed";
	return ddp_error_set(error, forming->error.status, "%s%s", forming->error.text, hint);
}

/* All cards were there, so it is not a rank that never came. */
static int say_late(const struct ddp_device *device, int status, const struct ddp_watch *watch,
		    struct ddp_error *error)
{
	const char *interface = getenv("NCCL_SOCKET_IFNAME");

	if (status != DDP_ERR_TIMEOUT || (error && error->text[0]))
		return status;
	return ddp_error_set(
		error, status,
		"rank %d, device %d: NCCL did not form the communicator of %d ranks in %g s; the "
		"cards of all %d were seen, so a rank is gone or hangs since, or the network that "
		"NCCL takes does not join them (NCCL_SOCKET_IFNAME is %s%s; NCCL_DEBUG=INFO tells "
		"more)",
		device->rank, device->index, device->size, watch->limit, device->size,
		interface ? "" : "unset", interface ? interface : "");
}

static int form_bounded(struct ddp_device *device, const uint8_t id[DDP_DEVICE_ID],
			const struct ddp_watch *watch, struct ddp_error *error)
{
	struct forming forming = {.device = device};
	struct ddp_bounded *bounded;
	int status;

	memcpy(&forming.id, id, sizeof(forming.id));
	status = ddp_bounded_start(&bounded, form, &forming, sizeof(forming), error);
	if (status)
		return status;
	status = ddp_bounded_wait(bounded, watch, error);
	if (status) {
		/* NCCL cannot give up a blocking communicator that is not there yet. */
		device->stuck = bounded;
		return say_late(device, status, watch, error);
	}
	forming = *(struct forming *)ddp_bounded_arguments(bounded);
	ddp_bounded_leave(bounded);
	if (forming.error.status)
		return explain(device, &forming, error);
	pthread_mutex_lock(&device->lock);
	device->comm = forming.comm;
	pthread_mutex_unlock(&device->lock);
	return 0;
}

/* --- Connections ------------------------------------------------------------------------- */

/* The calls block while NCCL connects, so they are made here. */
static void warm(void *arguments)
{
	struct warming *warming = arguments;
	const struct ddp_device *device = warming->device;
	cudaStream_t stream = device->stream;
	ncclResult_t result;
	char *memory;

	warming->error.status =
		ddp_nccl_cuda(device, cudaSetDevice(device->index), &warming->error, "taking it");
	if (!warming->error.status)
		warming->error.status =
			ddp_nccl_cuda(device, cudaMalloc(&warming->memory, WARM_BYTES),
				      &warming->error, "allocating %d bytes", WARM_BYTES);
	if (!warming->error.status)
		warming->error.status =
			ddp_nccl_cuda(device,
				      cudaMemsetAsync(warming->memory, 0, WARM_BYTES, stream),
				      &warming->error, "clearing %d bytes", WARM_BYTES);
	if (warming->error.status)
		return;
	memory = warming->memory;
	result = ncclAllReduce(memory, memory, 1, ncclFloat32, ncclSum, warming->comm, stream);
	if (result == ncclSuccess)
		result = ncclAllReduce(memory, memory, WARM_BYTES / sizeof(float), ncclFloat32,
				       ncclSum, warming->comm, stream);
	if (result == ncclSuccess)
		result = ncclBroadcast(memory, memory, 1, ncclUint8, 0, warming->comm, stream);
	if (result == ncclSuccess)
		result = ncclAllGather(memory + device->rank, memory, 1, ncclUint8, warming->comm,
				       stream);
	ddp_nccl_result(device, result, &warming->error, "connecting the %d ranks", device->size);
}

/*
 * NCCL connects in the first collective of each kind, inside a call that has no deadline. Have
 * it do so now, within one: later calls enqueue and return, and a first capture finds the
 * connections that it needs.
 */
static int warm_bounded(struct ddp_device *device, const struct ddp_watch *watch,
			struct ddp_error *error)
{
	struct warming warming = {.device = device, .comm = device->comm};
	struct ddp_bounded *bounded;
	int status;

	if (device->size == 1)
		return 0;
	status = ddp_bounded_start(&bounded, warm, &warming, sizeof(warming), error);
	if (status)
		return status;
	status = ddp_bounded_wait(bounded, watch, error);
	if (status) {
		device->stuck = bounded;
		return say_late(device, status, watch, error);
	}
	warming = *(struct warming *)ddp_bounded_arguments(bounded);
	ddp_bounded_leave(bounded);
	if (warming.error.status) {
		/* Its memory stays: freeing it could wait for kernels that do not end. */
		ddp_error_set(error, warming.error.status, "%s", warming.error.text);
		return warming.error.status;
	}
	status = ddp_nccl_wait(device, NULL, watch, error);
	if (!status)
		status = ddp_nccl_cuda(device, cudaFree(warming.memory), error, "freeing %d bytes",
				       WARM_BYTES);
	return status;
}

int ddp_nccl_connect(struct ddp_device *device, const uint8_t id[DDP_DEVICE_ID],
		     const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_error story = {0, ""};
	int status = ddp_nccl_health(device, &story);

	if (!status && device->comm)
		return ddp_error_set(error, DDP_ERR_STATE, "rank %d, device %d: connected already",
				     device->rank, device->index);
	device->limit = watch->limit;
	if (!status)
		status = form_bounded(device, id, watch, &story);
	if (!status)
		status = warm_bounded(device, watch, &story);
	if (!status)
		status = ddp_nccl_watch_start(device, &story);
	if (!status) {
		ddp_log_print(device->log, DDP_LEVEL_INFO, "nccl", "communicator of %d ranks",
			      device->size);
		return 0;
	}
	story.status = status;
	ddp_nccl_fail(device, &story);
	if (error)
		*error = story;
	return status;
}
