/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h without a GPU: memory of the host, and the queues of queue-host.h.
 *
 *	DDP_SEED		what the order of the work depends on (else it is printed)
 *	DDP_EMULATED_MEMORY	bytes that the card has
 *	DDP_EMULATED_CONTEXT	bytes of these that each process takes as such
 *	DDP_EMULATED_GPUS	how many there are; 0: no driver
 *	DDP_EMULATED_HANGS	1: from now on nothing that is enqueued is done
 *
 * Memory that was freed is NaN in every type and is kept for a while, so that whoever still uses it is
 * found: readers by their results, writers when it is given up; AddressSanitizer finds both at once.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ledger.h"
#include "queue-host.h"

#if defined(__SANITIZE_ADDRESS__)
#define ASAN true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN true
#endif
#endif
#ifndef ASAN
#define ASAN false
#endif

enum { ALIGNMENT = 256, POISON = 0xff };

struct device {
	struct device_info info;
	struct ledger ledger;
	double patience;
	struct queues *queues;
};

/* --- Opening ------------------------------------------------------------------------------ */

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

bool device_available(struct ddp_error *error)
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

	if (!device_available(error))
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
	if (!device_available(error))
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

/* --- Memory that was freed ---------------------------------------------------------------- */

/* Of all devices, so that a device that is closed and opened again has no secrets. */
enum { KEPT = 32, KEPT_BYTES = 1 << 26 };

static struct kept {
	uint8_t *memory;
	size_t bytes;
} kept[KEPT];
static int kept_next;

static void give_up(struct kept *entry)
{
	for (size_t i = 0; i < entry->bytes; i++) {
		if (entry->memory[i] != POISON) {
			fprintf(stderr,
				"emulated GPU: byte %zu of %zu was written after device_free()\n",
				i, entry->bytes);
			abort();
		}
	}
	free(entry->memory);
	*entry = (struct kept){NULL, 0};
}

static void keep(void *memory, size_t bytes)
{
	memset(memory, POISON, bytes);
	if (!ASAN && bytes <= KEPT_BYTES / KEPT) {
		give_up(&kept[kept_next]);
		kept[kept_next] = (struct kept){memory, bytes};
		kept_next = (kept_next + 1) % KEPT;
		return;
	}
	free(memory);
}

static void __attribute__((destructor)) give_all_up(void)
{
	for (int i = 0; i < KEPT; i++)
		give_up(&kept[i]);
}

/* Work that fails is given up; what waits for another rank is looked at for a second. */
bool device_rests(const struct device *device)
{
	bool rests = !device || (!hangs() && queues_rest(device->queues));

	for (int i = 0; !rests && !hangs() && i < 1000; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		rests = queues_rest(device->queues);
	}
	if (!rests)
		fprintf(stderr, "emulated GPU: what is under way is left behind\n");
	return rests;
}

void device_close(struct device *device)
{
	struct ledger_entry entry;

	if (!device || hangs())
		return;
	queues_destroy(device->queues);
	while (ledger_take(&device->ledger, NULL, &entry)) {
		if (entry.kind != LEDGER_OTHERS)
			keep(entry.memory, entry.bytes);
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
	size_t whole = bytes ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;

	/* Not rounded up under AddressSanitizer, which then sees the first byte behind. */
	if (ASAN)
		whole = bytes ? bytes : 1;
	*memory = NULL;
	if (posix_memalign(memory, ALIGNMENT, whole))
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory on the host for %s", what);
	ledger_add(&device->ledger, *memory, bytes ? bytes : 1, kind);
	memset(*memory, 0, whole);
	return 0;
}

int device_may(struct device *device, size_t bytes, const char *what, const char *remedy,
	       struct ddp_error *error)
{
	if (ledger_allows(&device->ledger, &device->info, bytes))
		return 0;
	return ledger_refuse(&device->ledger, &device->info, device->info.total, bytes, what,
			     remedy, error);
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

/* As cudaFree() does, after all that was enqueued: some of it may use the memory. */
void device_free(struct device *device, void *memory)
{
	struct ledger_entry entry;

	if (!memory)
		return;
	queues_drain(device->queues, NULL);
	if (!ledger_take(&device->ledger, memory, &entry)) {
		fputs("emulated GPU: device_free() of what device_alloc() did not give\n", stderr);
		abort();
	}
	keep(entry.memory, entry.bytes);
}

void device_count(struct device *device, void *memory, size_t bytes)
{
	ledger_add(&device->ledger, memory, bytes, LEDGER_OTHERS);
}

bool host_uncount(struct device *device, void *memory)
{
	const struct ledger_entry *entry = ledger_find(&device->ledger, memory);
	struct ledger_entry taken;

	if (!entry || entry->kind != LEDGER_OTHERS)
		return false;
	queues_drain(device->queues, NULL);
	return ledger_take(&device->ledger, memory, &taken);
}

void device_uncount(struct device *device, void *memory)
{
	(void)host_uncount(device, memory);
}

size_t device_context(const struct device *device)
{
	return device->ledger.context;
}

void device_measure(struct device *device)
{
	(void)device;
}

size_t device_used(const struct device *device, size_t *most)
{
	if (most)
		*most = device->ledger.most;
	return device->ledger.used;
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

/* Whether [bytes] at [memory] are the host's own; what begins in an allocation must end in it. */
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

/* --- Order, graphs ------------------------------------------------------------------------ */

int device_order(struct device *device, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error)
{
	return queues_order(device->queues, later, earlier, error);
}

int device_ended(struct device *device, enum device_stream stream, struct ddp_error *error)
{
	return hangs() ? 0 : queues_ended(device->queues, stream, error);
}

void device_patience(struct device *device, double seconds)
{
	device->patience = seconds;
}

/* Time that passes without anything is none of a test's. */
static int wait_in_vain(const struct device *device, struct ddp_error *error)
{
	while (!(device->patience > 0))
		pause();
	return ddp_error_set(error, DDP_ERR_ENGINE,
			     "GPU %d: what was under way did not end in %g s (DDP_TIMEOUT)",
			     device->info.index, device->patience);
}

int device_wait(struct device *device, enum device_stream stream, struct ddp_error *error)
{
	if (hangs())
		return wait_in_vain(device, error);
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

/* Of cuda-on-host.h. */
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
