/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl-host.c - an emulation of ddp_nccl.so in host memory: collectives between processes of one
 * host. With WITHOUT_NCCL defined, it emulates ddp_gpu.so, which has no collectives
 *
 * The ranks share a memfd of rank 0, which they open through /proc, so no file remains. An
 * operation that waits for an ended rank waits until the communicator is aborted, like a kernel of
 * NCCL. Environment variables:
 *
 *   DDP_HOST_GPU    name of the rank's GPU; unset: all ranks have the same GPU
 *   DDP_HOST_GPUS   set: each device of each node is a different GPU
 *   DRIVER_FAULT    nodes and faults, as in tests/cluster/driver.c: "n2 sum,n3 crash" makes sums
 *                   of n2 wrong, and ends processes of n3 in their first collective
 *   DDP_HOST_VAGUE  error texts do not mention a peer; otherwise they are as short as NCCL's
 */
#include "config.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/kernel.h"
#include "device/device-engine.h"
#include "host-stream.h"

enum { RANKS = 16, SLOT_BYTES = 64 << 10, MEMORIES = 64, NCCL = 22809 };

struct seat {
	_Alignas(128) atomic_uint steps;
	atomic_int pid;
	_Alignas(128) char slot[SLOT_BYTES];
};

struct area {
	struct seat seats[RANKS];
};

struct ddp_device {
	int rank, size, index;
	struct host_stream *own;
	enum ddp_simd simd;
	int fd; /* memfd with the area; rank 0 only */
	struct area *area;
	int pidfds[RANKS];
	unsigned int steps;
	/* collectives outside graphs, which run in the order of their numbers over all streams */
	unsigned long issued; /* number of enqueued collectives */
	atomic_ulong served;  /* number of completed collectives */
	void *memories[MEMORIES];
	size_t sizes[MEMORIES];
	atomic_bool aborted;
	atomic_int failed; /* status of [failure]; 0: none */
	struct ddp_error failure;
};

/* --- Steps -------------------------------------------------------------------------------- */

static void fail(struct ddp_device *device, int status, const char *why)
{
	if (atomic_load(&device->failed))
		return;
	ddp_error_set(&device->failure, status, "rank %d, device %d: %s", device->rank,
		      device->index, why);
	atomic_store(&device->failed, status);
}

static bool is_gone(int pidfd)
{
	struct pollfd poll_one = {.fd = pidfd, .events = POLLIN};

	return pidfd >= 0 && poll(&poll_one, 1, 0) > 0;
}

static void fail_if_gone(struct ddp_device *device, int rank)
{
	if (!is_gone(device->pidfds[rank]))
		return;
	if (getenv("DDP_HOST_VAGUE"))
		fail(device, DDP_ERR_ENGINE, "unhandled system error");
	else
		fail(device, DDP_ERR_PEER, "remote process exited or there was a network error");
}

static void take_step(struct ddp_device *device)
{
	atomic_store(&device->area->seats[device->rank].steps, ++device->steps);
}

/* Whether all ranks have completed this rank's last step. */
static bool all_have(struct ddp_device *device)
{
	bool all = true;

	for (int rank = 0; rank < device->size; rank++) {
		if (atomic_load(&device->area->seats[rank].steps) >= device->steps)
			continue;
		all = false;
		fail_if_gone(device, rank);
	}
	return all;
}

/* --- Collectives, as operations ----------------------------------------------------------- */

enum kind { REDUCE, BROADCAST, GATHER };
enum phase { FILL, READ, RELEASE };

struct collective {
	struct ddp_device *device;
	enum kind kind;
	const char *send;
	char *recv;
	size_t count; /* elements of [type] per rank */
	enum ddp_type type;
	enum ddp_op op;
	int root;

	bool ticketed;
	unsigned long ticket;
	enum phase phase;
	size_t at, piece;
};

static bool has_fault(const char *fault)
{
	const char *faults = getenv("DRIVER_FAULT"), *node = getenv("SLURMD_NODENAME");
	char list[256], wanted[64];

	snprintf(list, sizeof(list), ",%s,", faults ? faults : "");
	snprintf(wanted, sizeof(wanted), ",%s %s,", node ? node : "", fault);
	return strstr(list, wanted) != NULL;
}

static void fill_slot(const struct collective *it)
{
	size_t unit = ddp_type_size(it->type);

	memcpy(it->device->area->seats[it->device->rank].slot, it->send + it->at * unit,
	       it->piece * unit);
}

static void read_slots(const struct collective *it)
{
	struct ddp_device *device = it->device;
	size_t unit = ddp_type_size(it->type);
	const void *from[RANKS];
	void *to[1] = {it->recv + it->at * unit};

	for (int rank = 0; rank < device->size; rank++)
		from[rank] = device->area->seats[rank].slot;
	if (it->kind == REDUCE)
		ddp_kernel_get(it->type, it->op, device->simd)(to, 1, from, device->size, it->piece,
							       1);
	if (it->kind == REDUCE && has_fault("sum"))
		*(char *)to[0] ^= 1;
	else if (it->kind == BROADCAST)
		memcpy(to[0], from[it->root], it->piece * unit);
	for (int rank = 0; it->kind == GATHER && rank < device->size; rank++)
		memcpy(it->recv + ((size_t)rank * it->count + it->at) * unit, from[rank],
		       it->piece * unit);
}

/*
 * Runs a collective piece by piece: every rank fills its slot, reads all slots, and releases its
 * slot.
 */
static bool advance(struct collective *it)
{
	size_t most = SLOT_BYTES / ddp_type_size(it->type);

	while (it->at < it->count) {
		if (it->phase != FILL && !all_have(it->device))
			return false;
		if (it->phase == FILL) {
			it->piece = it->count - it->at < most ? it->count - it->at : most;
			fill_slot(it);
		} else if (it->phase == READ) {
			read_slots(it);
		} else {
			it->at += it->piece;
			it->phase = FILL;
			continue;
		}
		take_step(it->device);
		it->phase++;
	}
	return true;
}

static bool run_collective(void *argument)
{
	struct collective *it = argument;
	struct ddp_device *device = it->device;
	bool aborted = atomic_load(&device->aborted);

	if (!aborted && it->ticketed && atomic_load(&device->served) != it->ticket)
		return false;
	if (!aborted && !advance(it))
		return false;
	if (it->ticketed)
		atomic_fetch_add(&device->served, 1);
	return true;
}

static int host_health(struct ddp_device *device, struct ddp_error *error)
{
	int status = atomic_load(&device->failed);

	return status ? ddp_error_set(error, status, "%s", device->failure.text) : 0;
}

static struct host_stream *stream_of(const struct ddp_device *device, void *stream)
{
	return stream ? stream : device->own;
}

/* Enqueues a collective. One that is captured in a graph gets no sequence number, since the graph fixes the order. */
static int submit(struct collective collective, void *stream, struct ddp_error *error)
{
	struct ddp_device *device = collective.device;
	struct host_stream *to = stream_of(device, stream);
	struct host_operation operation = {run_collective, &collective, sizeof(collective), true};
	int status;

	if (has_fault("crash"))
		abort();
	/* Like NCCL, return an error at once if a rank has ended. */
	for (int rank = 0; rank < device->size; rank++)
		fail_if_gone(device, rank);
	status = host_health(device, error);
	if (status < 0 || collective.count == 0)
		return status;
	collective.ticketed = !to->class->captured(to);
	if (collective.ticketed)
		collective.ticket = device->issued++;
	to->class->add(to, &operation);
	return 0;
}

static int host_all_reduce(struct ddp_device *device, const void *send, void *recv, size_t count,
			   enum ddp_type type, enum ddp_op op, void *stream,
			   struct ddp_error *error)
{
	return submit((struct collective){.device = device,
					  .kind = REDUCE,
					  .send = send,
					  .recv = recv,
					  .count = count,
					  .type = type,
					  .op = op},
		      stream, error);
}

static int host_broadcast(struct ddp_device *device, void *data, size_t bytes, int root,
			  void *stream, struct ddp_error *error)
{
	return submit((struct collective){.device = device,
					  .kind = BROADCAST,
					  .send = data,
					  .recv = data,
					  .count = bytes,
					  .type = DDP_U8,
					  .root = root},
		      stream, error);
}

static int host_all_gather(struct ddp_device *device, const void *send, void *recv, size_t bytes,
			   void *stream, struct ddp_error *error)
{
	return submit((struct collective){.device = device,
					  .kind = GATHER,
					  .send = send,
					  .recv = recv,
					  .count = bytes,
					  .type = DDP_U8},
		      stream, error);
}

/* --- Streams ------------------------------------------------------------------------------ */

static void *host_own(struct ddp_device *device)
{
	return device->own;
}

static int host_order(void *later, void *earlier, struct ddp_error *error)
{
	struct host_stream *of = later;
	int status = of->class->order(of, earlier);

	return status < 0 ? ddp_error_set(error, status, "streams cannot be put in order") : 0;
}

struct converting {
	void *to;
	const void *from;
	enum ddp_type to_type, from_type;
	size_t count;
	float factor;
};

static bool run_convert(void *argument)
{
	const struct converting *it = argument;
	size_t to = ddp_type_size(it->to_type), from = ddp_type_size(it->from_type);

	for (size_t i = 0; i < it->count; i++) {
		float number;

		ddp_convert(&number, DDP_F32, (const char *)it->from + i * from, it->from_type, 1,
			    DDP_SIMD_PLAIN);
		number *= it->factor;
		ddp_convert((char *)it->to + i * to, it->to_type, &number, DDP_F32, 1,
			    DDP_SIMD_PLAIN);
	}
	return true;
}

static int host_convert(void *stream, void *to, enum ddp_type to_type, const void *from,
			enum ddp_type from_type, size_t count, float factor,
			struct ddp_error *error)
{
	struct converting converting = {to, from, to_type, from_type, count, factor};

	(void)error;
	host_stream_add(stream, run_convert, &converting, sizeof(converting));
	return 0;
}

static bool run_count(void *argument)
{
	__atomic_fetch_add(*(uint64_t **)argument, 1, __ATOMIC_RELEASE);
	return true;
}

static int host_count(void *stream, uint64_t *word, struct ddp_error *error)
{
	(void)error;
	host_stream_add(stream, run_count, &word, sizeof(word));
	return 0;
}

/* --- Connecting ---------------------------------------------------------------------------- */

static void describe(struct ddp_gpu *gpu, int index)
{
	const char *name = getenv("DDP_HOST_GPU"), *host = getenv("NCCL_HOSTID");

#ifndef WITHOUT_NCCL
	gpu->version = getenv("NCCL_MULTI_RANK_GPU_ENABLE") ? 23003 : NCCL;
#endif
	gpu->boot = host ? ddp_hash(DDP_HASH_INIT, host, strlen(host)) : 1;
	gpu->bytes = (uint64_t)1 << 30;
	if (getenv("DDP_HOST_GPUS"))
		snprintf(gpu->uuid, sizeof(gpu->uuid), "GPU-%.20s-%d",
			 getenv("SLURMD_NODENAME") ?: "", index);
	else
		snprintf(gpu->uuid, sizeof(gpu->uuid), "GPU-%s", name ? name : "host");
	gethostname(gpu->host, sizeof(gpu->host) - 1);
}

static int host_open(struct ddp_device **device, struct ddp_gpu *gpu, int rank, int size, int index,
		     const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_device *new;

	(void)log;
	*device = NULL;
#ifdef WITHOUT_NCCL
	if (host_fails("open"))
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED, "open() fails, as asked");
#endif
	new = calloc(1, sizeof(*new));
	*device = new;
	if (!new || size > RANKS)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no space for %d ranks", size);
	new->rank = rank;
	new->size = size;
	new->index = index;
	new->fd = -1;
	new->own = host_stream_open();
	for (int i = 0; i < RANKS; i++)
		new->pidfds[i] = -1;
	describe(gpu, index);
	return ddp_simd_choose(&new->simd, error);
}

static int host_identity(struct ddp_device *device, uint8_t id[DDP_DEVICE_ID],
			 struct ddp_error *error)
{
	memset(id, 0, DDP_DEVICE_ID);
	device->fd = memfd_create("ddp-between", MFD_CLOEXEC);
	if (device->fd < 0 || ftruncate(device->fd, sizeof(struct area)) < 0)
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "memfd");
	snprintf((char *)id, DDP_DEVICE_ID, "/proc/%ld/fd/%d", (long)getpid(), device->fd);
	return 0;
}

/* Waits until all ranks have arrived. A rank that has not arrived has no process to check. */
static int meet(struct ddp_device *device, const struct ddp_watch *watch, struct ddp_error *error)
{
	for (int rank = 0; rank < device->size; rank++) {
		struct seat *seat = &device->area->seats[rank];

		while (atomic_load(&seat->pid) == 0) {
			int status = ddp_watch_check(watch, error);

			if (status < 0)
				return error->text[0] ? status
						      : ddp_error_set(error, status,
								      "not all ranks arrived");
			host_sleep(100);
		}
		if (rank != device->rank)
			device->pidfds[rank] =
				(int)syscall(SYS_pidfd_open, atomic_load(&seat->pid), 0);
	}
	return 0;
}

static int host_connect(struct ddp_device *device, const uint8_t id[DDP_DEVICE_ID],
			const struct ddp_watch *watch, struct ddp_error *error)
{
	int fd = open((const char *)id, O_RDWR | O_CLOEXEC);
	void *area = MAP_FAILED;

	if (fd >= 0) {
		area = mmap(NULL, sizeof(struct area), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	}
	if (area == MAP_FAILED)
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "%s", (const char *)id);
	device->area = area;
	atomic_store(&device->area->seats[device->rank].pid, (int)getpid());
	ddp_error_clear(error);
	return meet(device, watch, error);
}

/* --- Memory -------------------------------------------------------------------------------- */

static int host_alloc(struct ddp_device *device, size_t bytes, void **memory,
		      struct ddp_error *error)
{
	int place = 0;

	while (place < MEMORIES && device->memories[place])
		place++;
	*memory = place < MEMORIES && !host_fails("memory") ? calloc(1, bytes) : NULL;
	if (!*memory)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no %zu bytes, as asked", bytes);
	device->memories[place] = *memory;
	device->sizes[place] = bytes;
	return 0;
}

static int host_free(struct ddp_device *device, void *memory, size_t *bytes,
		     struct ddp_error *error)
{
	if (!memory)
		return 0;
	for (int i = 0; i < MEMORIES; i++) {
		if (device->memories[i] != memory)
			continue;
		free(memory);
		*bytes = device->sizes[i];
		device->memories[i] = NULL;
		return 0;
	}
	return ddp_error_set(error, DDP_ERR_ARGUMENT, "%p is no memory of the engine", memory);
}

/* --- The end ------------------------------------------------------------------------------- */

#ifdef WITHOUT_NCCL

static bool host_captured(struct ddp_device *device, void *stream)
{
	struct host_stream *of = stream_of(device, stream);

	return of->class->captured(of);
}

#endif

static bool is_reached(const uint64_t *word, uint64_t value)
{
	return word && __atomic_load_n(word, __ATOMIC_ACQUIRE) >= value;
}

static int host_wait(struct ddp_device *device, void *stream, const uint64_t *word, uint64_t value,
		     const struct ddp_watch *watch, struct ddp_error *error)
{
	struct host_stream *of = stream_of(device, stream);

	if (of->class->captured(of))
		return ddp_error_set(error, DDP_ERR_STATE,
				     "the stream is captured into a CUDA graph");
	for (;;) {
		bool was_idle;
		int status;

		if (host_fails("wait"))
			return ddp_error_set(error, DDP_ERR_ENGINE, "a stream broke, as asked");
		/*
		 * Check the value before host_stream_idle(): that call may run all work of an
		 * emulated stream, and so hide that [value] is too low.
		 */
		if (is_reached(word, value))
			return 0;
		was_idle = host_stream_idle(of);
		if (is_reached(word, value))
			return 0;
		if (was_idle)
			break;
		status = ddp_watch_check(watch, error);
		if (status < 0)
			return status;
		host_sleep(100);
	}
	return word ? ddp_error_set(error, DDP_ERR_ENGINE, "a stream has ended too early")
		    : host_health(device, error);
}

#ifdef WITHOUT_NCCL

static int host_pin(struct ddp_device *device, void *memory, size_t bytes, struct ddp_error *error)
{
	(void)device, (void)memory, (void)bytes;
	if (host_fails("pin"))
		return ddp_error_set(error, DDP_ERR_ENGINE, "not pinned, as asked");
	return 0;
}

struct copying {
	void *to;
	const void *from;
	size_t bytes;
};

static bool run_copy(void *argument)
{
	const struct copying *it = argument;

	memmove(it->to, it->from, it->bytes);
	return true;
}

static int host_copy(struct ddp_device *device, void *to, const void *from, size_t bytes,
		     void *stream, struct ddp_error *error)
{
	struct copying copying = {to, from, bytes};

	if (host_fails("copy"))
		return ddp_error_set(error, DDP_ERR_ENGINE, "not copied, as asked");
	host_stream_add(stream_of(device, stream), run_copy, &copying, sizeof(copying));
	return 0;
}

#else

static bool host_abort(struct ddp_device *device, double seconds)
{
	(void)seconds;
	fail(device, DDP_ERR_ABORTED, "the communicator was aborted");
	atomic_store(&device->aborted, true);
	return true;
}

#endif

static void host_close(struct ddp_device *device)
{
	if (!device)
		return;
	atomic_store(&device->aborted, true);
#ifdef WITHOUT_NCCL
	while (!host_stream_idle(device->own))
		host_sleep(100);
#endif
	if (!host_stream_close(device->own))
		return;
	for (int i = 0; i < RANKS; i++)
		if (device->pidfds[i] >= 0)
			close(device->pidfds[i]);
	for (int i = 0; i < MEMORIES; i++)
		free(device->memories[i]);
	if (device->area)
		munmap(device->area, sizeof(*device->area));
	if (device->fd >= 0)
		close(device->fd);
	free(device);
}

DDP_API const struct ddp_device_engine ddp_module = {
#ifdef WITHOUT_NCCL
	.head = {DDP_MODULE_MAGIC, DDP_DEVICE_VERSION, sizeof(struct ddp_device_engine), "device",
		 "gpu", PACKAGE_VERSION},
	.pin = host_pin,
	.copy = host_copy,
	.captured = host_captured,
#else
	.head = {DDP_MODULE_MAGIC, DDP_DEVICE_VERSION, sizeof(struct ddp_device_engine), "device",
		 "nccl", PACKAGE_VERSION},
	.health = host_health,
	.abort = host_abort,
#endif
	.open = host_open,
	.identity = host_identity,
	.connect = host_connect,
	.all_reduce = host_all_reduce,
	.broadcast = host_broadcast,
	.all_gather = host_all_gather,
	.alloc = host_alloc,
	.free = host_free,
	.stream = host_own,
	.order = host_order,
	.convert = host_convert,
	.count = host_count,
	.wait = host_wait,
	.close = host_close,
};
