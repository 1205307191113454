/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device-private.h"
#include "wide/card-uuid.h"

/* Of a process that has a context and little more, with the libraries that a training loads. */
#define USUAL_CONTEXT ((size_t)512 << 20)

/* How long device_close() waits for work that is under way, in steps of so many nanoseconds. */
enum { CLOSE_STEPS = 5000, CLOSE_NANOSECONDS = 1000000 };

/* --- Whether there is one ----------------------------------------------------------------- */

static int no_driver(struct ddp_error *error)
{
	return ddp_error_set(
		error, DDP_ERR_UNSUPPORTED,
		"no driver: libcuda.so.1 is not on this machine; nodes with GPUs have it");
}

static int old_driver(int driver, struct ddp_error *error)
{
	return ddp_error_set(
		error, DDP_ERR_UNSUPPORTED,
		"the driver is for CUDA %d.%d, this program needs %d.%d or newer: install "
		"a newer driver, or build with an older toolkit",
		driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
		CUDART_VERSION % 1000 / 10);
}

/* How many GPUs can be used, or why none can. */
static int count_devices(struct ddp_error *error)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int driver = 0, count = 0;
	cudaError_t result;

	result = cudaDriverGetVersion(&driver);
	if (result == cudaErrorStubLibrary || (result == cudaSuccess && driver == 0))
		return no_driver(error);
	if (result == cudaSuccess)
		result = cudaGetDeviceCount(&count);
	if (result == cudaErrorInsufficientDriver) {
		(void)cudaGetLastError();
		return driver == 0 ? no_driver(error) : old_driver(driver, error);
	}
	if (result == cudaErrorNoDevice || (result == cudaSuccess && count == 0)) {
		(void)cudaGetLastError();
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"no GPU is visible (CUDA_VISIBLE_DEVICES is %s%s); ask for one with "
			"--gres=gpu:1",
			visible ? visible : "not set", visible && !*visible ? "empty" : "");
	}
	if (result != cudaSuccess)
		return device_info_error(&(struct device_info){.index = 0}, result, error,
					 "looking for GPUs");
	return count;
}

bool device_available(struct ddp_error *error)
{
	return count_devices(error) > 0;
}

/* --- Opening ------------------------------------------------------------------------------ */

static int choose(const struct device_info *info, struct ddp_error *error)
{
	int count = count_devices(error), status;

	if (count < 0)
		return count;
	if (info->index < 0 || info->index >= count)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "GPU %d: this process sees %d (CUDA_VISIBLE_DEVICES, --gres)",
				     info->index, count);
	status = device_info_error(info, cudaSetDevice(info->index), error, "opening it");
	/* Whoever waits leaves the processor to others: there is one for each rank, if that. */
	if (!status && cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) != cudaSuccess)
		(void)cudaGetLastError();
	return status;
}

static int look(struct device_info *info, struct ddp_error *error)
{
	struct cudaDeviceProp properties;
	int status;

	status = device_info_error(info, cudaGetDeviceProperties(&properties, info->index), error,
				   "asking for its properties");
	if (status)
		return status;
	snprintf(info->name, sizeof(info->name), "%.*s", (int)sizeof(info->name) - 1,
		 properties.name);
	info->major = properties.major;
	info->minor = properties.minor;
	info->processors = properties.multiProcessorCount;
	ddp_card_uuid(info->uuid, sizeof(info->uuid), info->index, properties.uuid.bytes);
	(void)cudaDriverGetVersion(&info->driver);
	(void)cudaRuntimeGetVersion(&info->cuda);
	return 0;
}

int device_list(char (*uuids)[DEVICE_UUID], int most, struct ddp_error *error)
{
	int count = count_devices(error), status = 0;

	for (int i = 0; i < count && i < most && !status; i++) {
		struct device_info info = {.index = i};

		status = look(&info, error);
		memcpy(uuids[i], info.uuid, DEVICE_UUID);
	}
	return status < 0 ? status : count;
}

/*
 * What CUDA's context takes, which is there now and nothing else of ours: as the driver counts it for this
 * process. Where it does not (in containers it may not see its own processes), it is no more than what all
 * processes have together; and since others may have started at the same time, no more than what is usual.
 */
static size_t measure_context(const struct device_info *info, const struct ledger_card *card)
{
	size_t all = info->total > card->free ? info->total - card->free : 0;
	size_t held = ddp_card_held(info->uuid);

	if (held == 0)
		held = USUAL_CONTEXT;
	return held < all ? held : all;
}

static int look_at_memory(struct device *device, double share, struct ddp_error *error)
{
	struct device_info *info = &device->info;
	size_t *context = &device->ledger.context;
	char holders[LEDGER_HOLDERS] = "";
	struct ledger_card card = {.holders = holders};
	int status;

	status = device_info_error(info, cudaMemGetInfo(&card.free, &info->total), error,
				   "asking for its memory");
	if (status)
		return status;
	*context = measure_context(info, &card);
	if (ledger_limit(info, &card, *context, share, NULL) == 0)
		return 0;
	device_holders(info, device->mates, device->mate_count, holders);
	return ledger_limit(info, &card, *context, share, error);
}

static int make_streams(struct device *device, struct ddp_error *error)
{
	int least = 0, greatest = 0;
	int status;

	status = device_error(device, cudaDeviceGetStreamPriorityRange(&least, &greatest), error,
			      "asking for priorities");
	for (int i = 0; i < DEVICE_STREAMS && !status; i++) {
		status = device_error(
			device,
			cudaStreamCreateWithPriority(&device->streams[i], cudaStreamNonBlocking,
						     i == DEVICE_REDUCE ? greatest : least),
			error, "making a stream");
		if (!status)
			status = device_error(device,
					      cudaEventCreateWithFlags(&device->ordered[i],
								       cudaEventDisableTiming),
					      error, "making an event");
	}
	if (!status)
		status = device_error(
			device, cudaStreamCreateWithFlags(&device->setup, cudaStreamNonBlocking),
			error, "making a stream");
	return status;
}

int device_open_among(struct device **device, int index, double share,
		      const struct engine_mate *mates, int mate_count, struct ddp_error *error)
{
	int status;

	*device = calloc(1, sizeof(**device));
	if (!*device)
		return ddp_error_set(error, DDP_ERR_MEMORY, "GPU %d: no memory on the host", index);
	(*device)->info.index = index;
	(*device)->mates = mates;
	(*device)->mate_count = mate_count;
	status = choose(&(*device)->info, error);
	if (!status)
		status = look(&(*device)->info, error);
	if (!status)
		status = look_at_memory(*device, share, error);
	if (!status)
		status = make_streams(*device, error);
	if (status) {
		device_close(*device);
		*device = NULL;
	}
	return status;
}

/* --- Closing ------------------------------------------------------------------------------ */

/* Nothing was left under way, or it failed, and CUDA frees what it has without waiting. */
static bool is_idle(const struct device *device)
{
	bool idle = !device->setup || cudaStreamQuery(device->setup) != cudaErrorNotReady;

	for (int i = 0; i < DEVICE_STREAMS && idle; i++)
		idle = !device->streams[i] ||
		       cudaStreamQuery(device->streams[i]) != cudaErrorNotReady;
	(void)cudaGetLastError();
	return idle;
}

bool device_rests(const struct device *device)
{
	struct timespec pause = {0, CLOSE_NANOSECONDS};

	if (!device)
		return true;
	for (int i = 0; i < CLOSE_STEPS; i++) {
		if (is_idle(device))
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

static void end_capture(struct device *device)
{
	cudaGraph_t graph = NULL;

	if (device->capturing &&
	    cudaStreamEndCapture(device->streams[DEVICE_COMPUTE], &graph) == cudaSuccess)
		(void)cudaGraphDestroy(graph);
	(void)cudaGetLastError();
	device->capturing = false;
}

static void destroy_streams(struct device *device)
{
	for (int i = 0; i < DEVICE_MARKS; i++) {
		if (device->marks[i])
			(void)cudaEventDestroy(device->marks[i]);
	}
	for (int i = 0; i < DEVICE_STREAMS; i++) {
		if (device->ordered[i])
			(void)cudaEventDestroy(device->ordered[i]);
		if (device->streams[i])
			(void)cudaStreamDestroy(device->streams[i]);
	}
	if (device->setup)
		(void)cudaStreamDestroy(device->setup);
}

void device_close(struct device *device)
{
	struct ledger_entry entry;

	if (!device)
		return;
	end_capture(device);
	if (!device_rests(device))
		return;
	while (ledger_take(&device->ledger, NULL, &entry)) {
		if (entry.kind == LEDGER_DEVICE)
			(void)cudaFree(entry.memory);
		else if (entry.kind == LEDGER_HOST)
			(void)cudaFreeHost(entry.memory);
	}
	destroy_streams(device);
	(void)cudaGetLastError();
	free(device);
}

const struct device_info *device_info(const struct device *device)
{
	return &device->info;
}

void *device_stream(const struct device *device, enum device_stream stream)
{
	return device->streams[stream];
}
