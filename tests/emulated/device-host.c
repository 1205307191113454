/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device-host.c - device.h without a GPU, with host memory and the queues of queue-host.h
 *
 *   DDP_SEED              seed of the random order of work (printed if not set)
 *   DDP_EMULATED_MEMORY   memory of the GPU in bytes
 *   DDP_EMULATED_CONTEXT  bytes of that memory that each process's CUDA context uses
 *   DDP_EMULATED_GPUS     number of GPUs; 0: no driver
 *   DDP_EMULATED_HANGS    1: work that is enqueued from now on never runs
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ledger.h"
#include "queue-host.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>

void device_guard(void *memory, size_t bytes)
{
	ASAN_POISON_MEMORY_REGION(memory, bytes);
}
#endif

enum { ALIGNMENT = 256 };

struct device {
	struct device_info info;
	struct ledger ledger;
	double patience;
	struct queues *queues;
};

/* --- Open --------------------------------------------------------------------------------- */

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static bool hangs(void)
{
	return setting("DDP_EMULATED_HANGS", 0) > 0;
}

static uint64_t seed(void)
{
	static uint64_t chosen;
	struct timespec now;

	if (getenv("DDP_SEED"))
		return setting("DDP_SEED", 0);
	if (!chosen) {
		clock_gettime(CLOCK_REALTIME, &now);
		chosen = (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32;
		printf("# emulated GPU: DDP_SEED=%llu\n", (unsigned long long)chosen);
		fflush(stdout);
	}
	return chosen;
}

static bool is_available(struct ddp_error *error)
{
	if (setting("DDP_EMULATED_GPUS", 16) > 0)
		return true;
	ddp_error_set(error, DDP_ERR_UNSUPPORTED, "no driver (DDP_EMULATED_GPUS is 0)");
	return false;
}

static void describe(struct device_info *info, int index)
{
	*info = (struct device_info){
		.name = "emulated GPU", .index = index, .major = 9, .cuda = 13000};
	snprintf(info->uuid, sizeof(info->uuid), "GPU-00000000-0000-0000-0000-%012d", index);
	info->total = setting("DDP_EMULATED_MEMORY", (uint64_t)8 << 30);
}

int device_list(char (*uuids)[DEVICE_UUID], int most, struct ddp_error *error)
{
	int count = (int)setting("DDP_EMULATED_GPUS", 16);

	if (!is_available(error))
		return DDP_ERR_UNSUPPORTED;
	for (int i = 0; i < count && i < most; i++) {
		struct device_info info;

		describe(&info, i);
		memcpy(uuids[i], info.uuid, DEVICE_UUID);
	}
	return count;
}

int device_open(struct device **device, int index, double share, struct ddp_error *error)
{
	struct device *opened;
	int status;

	*device = NULL;
	if (!is_available(error))
		return DDP_ERR_UNSUPPORTED;
	if (index < 0 || (uint64_t)index >= setting("DDP_EMULATED_GPUS", 16))
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "there is no emulated GPU %d", index);
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a device");
	describe(&opened->info, index);
	opened->ledger.context = (size_t)setting("DDP_EMULATED_CONTEXT", 0);
	status = ledger_limit(&opened->ledger, &opened->info,
			      opened->info.total - opened->ledger.context, share, error);
	opened->queues = queues_create(seed() + (uint64_t)index);
	if (!status && !opened->queues)
		status = ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a device");
	if (status)
		device_close(opened);
	else
		*device = opened;
	return status;
}

/*
 * Returns whether no work remains. Work that waits for another rank has a second to finish. After a
 * failure, work is discarded.
 */
bool device_is_idle(const struct device *device)
{
	bool rests = !device || (!hangs() && queues_rest(device->queues));

	for (int i = 0; !rests && !hangs() && i < 1000; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		rests = queues_rest(device->queues);
	}
	if (!rests)
		fprintf(stderr, "emulated GPU: unfinished work is left\n");
	return rests;
}

void device_close(struct device *device)
{
	struct ledger_entry entry;

	if (!device || hangs())
		return;
	queues_destroy(device->queues);
	while (ledger_remove(&device->ledger, NULL, &entry)) {
		if (entry.kind != LEDGER_OTHERS)
			free(entry.memory);
	}
	free(device);
}

const struct device_info *device_info(const struct device *device)
{
	return &device->info;
}

void *device_stream(const struct device *device, enum device_stream stream)
{
	return queues_stream(device->queues, stream);
}

/* --- Memory ------------------------------------------------------------------------------- */

static int take_memory(struct device *device, void **memory, size_t bytes, enum ledger_kind kind,
		       const char *what, struct ddp_error *error)
{
	/*
	 * Do not round up, so that AddressSanitizer detects an access to the first byte after the
	 * end.
	 */
	size_t whole = bytes ? bytes : 1;

	*memory = NULL;
	if (posix_memalign(memory, ALIGNMENT, whole))
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory on the host for %s", what);
	ledger_add(&device->ledger, *memory, whole, kind);
	memset(*memory, 0, whole);
	return 0;
}

int device_may(struct device *device, size_t bytes, const char *what, const char *remedy,
	       struct ddp_error *error)
{
	if (ledger_allows(&device->ledger, &device->info, bytes))
		return 0;
	return ledger_refuse(&device->ledger, &device->info, device->info.total, bytes, what,
			     remedy, "emulated", error);
}

int device_alloc(struct device *device, void **memory, size_t bytes, const char *what,
		 const char *remedy, struct ddp_error *error)
{
	int status = device_may(device, bytes, what, remedy, error);

	*memory = NULL;
	return status ? status : take_memory(device, memory, bytes, LEDGER_DEVICE, what, error);
}

int device_alloc_host(struct device *device, void **memory, size_t bytes, const char *what,
		      struct ddp_error *error)
{
	return take_memory(device, memory, bytes, LEDGER_HOST, what, error);
}

/* Like cudaFree(), waits for all enqueued work, which may use the memory. */
void device_free(struct device *device, void *memory)
{
	struct ledger_entry entry;

	if (!memory)
		return;
	queues_drain(device->queues, NULL);
	if (!ledger_remove(&device->ledger, memory, &entry)) {
		fputs("emulated GPU: device_free() of memory that is not from device_alloc()\n",
		      stderr);
		abort();
	}
	free(entry.memory);
}

void device_count(struct device *device, void *memory, size_t bytes)
{
	ledger_add(&device->ledger, memory, bytes, LEDGER_OTHERS);
}

size_t device_context(const struct device *device)
{
	return device->ledger.context;
}

void device_measure(struct device *device)
{
	(void)device;
}

size_t device_most(const struct device *device)
{
	return device->ledger.most;
}

/* --- Copies ------------------------------------------------------------------------------- */

struct copy {
	void *to;
	const void *from;
	size_t bytes;
	char staged[];
};

static int copy_now(void *data, struct ddp_error *error)
{
	struct copy *copy = data;

	(void)error;
	memmove(copy->to, copy->from, copy->bytes);
	return 0;
}

/*
 * Whether the [bytes] at [memory] are ordinary host memory. If they start in an allocation, they
 * must end in it.
 */
static int is_pageable(const struct device *device, const void *memory, size_t bytes,
		       struct ddp_error *error)
{
	const struct ledger_entry *entry = ledger_find(&device->ledger, memory);

	if (entry &&
	    (size_t)((const char *)memory - (const char *)entry->memory) + bytes > entry->bytes)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "emulated GPU: a copy of %zu bytes leaves its memory", bytes);
	return !entry;
}

static int enqueue_copy(struct device *device, enum device_stream stream, void *to,
			const void *from, size_t bytes, bool stage, struct ddp_error *error)
{
	struct queue_work work = {.call = copy_now, .forget = free};
	struct copy *copy = malloc(sizeof(*copy) + (stage ? bytes : 0));

	if (!copy)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a copy of %zu bytes",
				     bytes);
	*copy = (struct copy){to, from, bytes};
	if (stage)
		copy->from = memcpy(copy->staged, from, bytes);
	work.data = copy;
	queues_submit(device_stream(device, stream), &work);
	return 0;
}

int device_copy(struct device *device, enum device_stream stream, void *to, const void *from,
		size_t bytes, struct ddp_error *error)
{
	int stage = is_pageable(device, from, bytes, error), wait, status;

	if (bytes == 0)
		return 0;
	wait = stage < 0 ? stage : is_pageable(device, to, bytes, error);
	if (wait < 0)
		return wait;
	if ((stage || wait) && queues_captured(device->queues, stream))
		return ddp_error_set(error, DDP_ERR_STATE,
				     "GPU %d: a copy in a graph, of memory that is neither the "
				     "GPU's nor pinned",
				     device->info.index);
	status = enqueue_copy(device, stream, to, from, bytes, stage, error);
	return status || !wait ? status : queues_wait(device->queues, stream, error);
}

/* --- Order and graphs --------------------------------------------------------------------- */

int device_order(struct device *device, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error)
{
	return queues_order(device->queues, later, earlier, error);
}

int device_ended(struct device *device, enum device_stream stream, struct ddp_error *error)
{
	return hangs() ? 0 : queues_ended(device->queues, stream, error);
}

void device_set_timeout(struct device *device, double seconds)
{
	device->patience = seconds;
}

/* Returns a timeout at once, so that tests need not wait for it. */
static int wait_for_timeout(const struct device *device, struct ddp_error *error)
{
	while (!(device->patience > 0))
		pause();
	return ddp_error_set(error, DDP_ERR_ENGINE,
			     "GPU %d: work did not finish within %g s (DDP_TIMEOUT)",
			     device->info.index, device->patience);
}

int device_wait(struct device *device, enum device_stream stream, struct ddp_error *error)
{
	if (hangs())
		return wait_for_timeout(device, error);
	return queues_wait(device->queues, stream, error);
}

int device_check(struct device *device, const char *what, struct ddp_error *error)
{
	(void)what;
	return hangs() ? 0 : queues_poke(device->queues, error);
}

int device_capture_begin(struct device *device, struct ddp_error *error)
{
	return queues_capture_begin(device->queues, error);
}

int device_capture_end(struct device *device, struct device_graph **graph, struct ddp_error *error)
{
	return queues_capture_end(device->queues, graph, error);
}

int device_launch(struct device *device, struct device_graph *graph, struct ddp_error *error)
{
	return queues_launch(device->queues, graph, error);
}

/* --- Kernels ------------------------------------------------------------------------------ */

struct kernel {
	void (*call)(void *);
	void (*forget)(void *);
	void *data;
};

static int call_kernel(void *data, struct ddp_error *error)
{
	struct kernel *kernel = data;

	(void)error;
	kernel->call(kernel->data);
	return 0;
}

static void forget_kernel(void *data)
{
	struct kernel *kernel = data;

	kernel->forget(kernel->data);
	free(kernel);
}

/* declared in cuda-on-host.h */
void host_submit(void *stream, void (*call)(void *), void (*forget)(void *), void *data);

void host_submit(void *stream, void (*call)(void *), void (*forget)(void *), void *data)
{
	struct kernel *kernel = malloc(sizeof(*kernel));

	if (!kernel) {
		fputs("emulated GPU: out of memory\n", stderr);
		abort();
	}
	*kernel = (struct kernel){call, forget, data};
	queues_submit(stream, &(struct queue_work){call_kernel, forget_kernel, kernel,
						   .collective = false});
}
