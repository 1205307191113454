/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-engine.c - the engine between devices (ddp_nccl.so), from its opening to its end */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "nccl-engine.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* The oldest NCCL that works. */
enum { OLDEST = 21800 };

/* Bytes of the larger all-reduce that opens the connections: past what goes in one message. */
enum { WARM_BYTES = 4 << 20 };

static const char *const methods[] = {"plain", "registered", "in windows"};

/* Seconds: an orderly end waits for the other ranks of the node, the other for nobody. */
#define CLOSE_SECONDS 10.0
#define GIVE_UP_SECONDS 2.0

_Static_assert(sizeof(ncclUniqueId) <= DDP_DEVICE_ID, "an identity of NCCL fits");

/* --- The communicator ------------------------------------------------------------------- */

/* A step of forming it, in a thread: NCCL waits for other ranks in it, and has no deadline. */
struct step {
	const struct ddp_device *device; /* what open() set; it outlives the call */
	ncclUniqueId id;
	ncclComm_t comm;
	char *memory;
	struct ddp_error error;
};

static int make_identity(struct ddp_device *device, uint8_t id[DDP_DEVICE_ID],
			 struct ddp_error *error)
{
	ncclUniqueId unique;
	int status, was = ddp_card_enter(device->index);

	memset(id, 0, DDP_DEVICE_ID);
	status = ddp_nccl_result(device, ncclGetUniqueId(&unique), error,
				 "making an identity (it holds an address of this node; "
				 "NCCL_SOCKET_IFNAME chooses the interface)");
	if (!status)
		memcpy(id, &unique, sizeof(unique));
	ddp_card_leave(device->index, was);
	return status;
}

/*
 * All that is left undefined is NCCL's to choose, and the user's by NCCL_*; that goes for the
 * use of graphs, too, as captured and plain collectives are mixed here. Blocking calls, because
 * the others start a thread for every collective.
 */
static void form(void *arguments)
{
	struct step *step = arguments;
	const struct ddp_device *device = step->device;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t comm = NULL;
	ncclResult_t result;

	config.blocking = 1;
#if NCCL_HAS(2, 27, 3)
	if (device->version >= NCCL_VERSION(2, 27, 3))
		config.commName = "ddp";
#endif
	if (ddp_nccl_cuda(device, cudaSetDevice(device->index), &step->error, "taking it"))
		return;
	result = ncclCommInitRankConfig(&comm, device->size, step->id, device->rank, &config);
	ddp_nccl_result(device, result, &step->error, "forming the communicator of %d ranks",
			device->size);
	if (result == ncclSuccess)
		step->comm = comm;
}

/*
 * NCCL connects in the first collective of each kind, inside a call that has no deadline. Have
 * it do so now, within one: later calls enqueue and return, and a first capture finds the
 * connections that it needs.
 */
static int warm_up(struct step *step)
{
	const struct ddp_device *device = step->device;
	cudaStream_t stream = device->stream;
	ncclComm_t comm = step->comm;
	ncclResult_t result;
	char *memory;

	TRY(device, cudaSetDevice(device->index), &step->error, "taking it");
	TRY(device, cudaMalloc((void **)&step->memory, WARM_BYTES), &step->error,
	    "allocating %d bytes", WARM_BYTES);
	memory = step->memory;
	TRY(device, cudaMemsetAsync(memory, 0, WARM_BYTES, stream), &step->error,
	    "clearing %d bytes", WARM_BYTES);
	result = ncclAllReduce(memory, memory, 1, ncclFloat32, ncclSum, comm, stream);
	if (result == ncclSuccess)
		result = ncclAllReduce(memory, memory, WARM_BYTES / sizeof(float), ncclFloat32,
				       ncclSum, comm, stream);
	if (result == ncclSuccess)
		result = ncclBroadcast(memory, memory, 1, ncclUint8, 0, comm, stream);
	if (result == ncclSuccess)
		result = ncclAllGather(memory + device->rank, memory, 1, ncclUint8, comm, stream);
	return ddp_nccl_result(device, result, &step->error, "connecting the %d ranks",
			       device->size);
}

static void warm(void *arguments)
{
	(void)warm_up(arguments);
}

/* Have [call] make [step]. That no rank never came is known: all cards were there. */
static int make_step(struct ddp_device *device, void (*call)(void *arguments), struct step *step,
		     const struct ddp_watch *watch, struct ddp_error *error)
{
	const char *interface = getenv("NCCL_SOCKET_IFNAME");
	int status = ddp_bounded_call(&device->stuck, call, step, sizeof(*step), watch, error);

	if (status != DDP_ERR_TIMEOUT || error->text[0])
		return status;
	return ddp_error_set(
		error, status,
		"%s: NCCL did not form the communicator of %d ranks in %g s; the cards of all %d were "
		"seen, so a rank is gone or hangs since, or the network that NCCL takes does not join "
		"them (NCCL_SOCKET_IFNAME is %s; NCCL_DEBUG=INFO tells more)",
		device->who, device->size, watch->limit, device->size,
		interface ? interface : "unset");
}

/* NCCL cannot give up a blocking communicator that is not there yet. */
static int form_all(struct ddp_device *device, struct step *step, const struct ddp_watch *watch,
		    struct ddp_error *error)
{
	const char *hint = "; NCCL_DEBUG=INFO tells more";
	int status = make_step(device, form, step, watch, error);

	if (status)
		return status;
	/* It refuses what the cards could not show: say what is behind it. */
	if (strstr(step->error.text, "Duplicate GPU"))
		hint = strncmp(device->card.uuid, "MIG-", 4) == 0
			       ? "; NCCL before 2.30 takes two MIG slices of one GPU for one device: "
				 "use slices of different GPUs"
			       : "; one rank per GPU is needed";
	if (step->error.status)
		return ddp_error_set(error, step->error.status, "%s%s", step->error.text, hint);
	pthread_mutex_lock(&device->lock);
	device->comm = step->comm;
	pthread_mutex_unlock(&device->lock);
	return 0;
}

/* Where it failed its memory stays: freeing it could wait for kernels that do not end. */
static int warm_all(struct ddp_device *device, struct step *step, const struct ddp_watch *watch,
		    struct ddp_error *error)
{
	int status = device->size == 1 ? 0 : make_step(device, warm, step, watch, error);

	if (status || device->size == 1)
		return status;
	if (step->error.status) {
		*error = step->error;
		return error->status;
	}
	status = ddp_nccl_wait(device, NULL, watch, error);
	if (status)
		return status;
	return ddp_nccl_cuda(device, cudaFree(step->memory), error, "freeing %d bytes", WARM_BYTES);
}

static int connect_ranks(struct ddp_device *device, const uint8_t id[DDP_DEVICE_ID],
			 const struct ddp_watch *watch, struct ddp_error *error)
{
	struct step step = {.device = device};
	struct ddp_error story = {0, ""};
	int status = ddp_nccl_health(device, &story);

	if (!status && device->comm)
		return ddp_error_set(error, DDP_ERR_STATE, "%s: connected already", device->who);
	device->limit = watch->limit;
	memcpy(&step.id, id, sizeof(step.id));
	if (!status)
		status = form_all(device, &step, watch, &story);
	if (!status)
		status = warm_all(device, &step, watch, &story);
	if (!status)
		status = ddp_nccl_watch_start(device, &story);
	if (!status) {
		ddp_log_print(device->log, DDP_LEVEL_INFO, "nccl",
			      "NCCL %d.%d.%d: communicator of %d ranks, memory %s",
			      device->version / 10000, device->version / 100 % 100,
			      device->version % 100, device->size, methods[device->method]);
		return 0;
	}
	story.status = status;
	ddp_nccl_fail(device, &story);
	if (error)
		*error = story;
	return status;
}

/* --- Giving up -------------------------------------------------------------------------- */

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

static void set_warning(struct ddp_device *device, void (*call)(void *owner), void *owner)
{
	device->owner = owner;
	device->warn = call;
}

/* Kernels that are given up end like any others, without a result. */
bool ddp_nccl_give_up(struct ddp_device *device)
{
	struct leaving leaving = {.index = device->index};
	bool begun = true;

	if (device->warn)
		device->warn(device->owner);
	pthread_mutex_lock(&device->lock);
	leaving.comm = device->comm;
	device->comm = NULL;
	if (!device->failure.status)
		ddp_error_set(&device->failure, DDP_ERR_ABORTED,
			      "%s: the communicator was given up", device->who);
	/* Without a thread for it the communicator is left as it is, like one that hangs. */
	if (leaving.comm)
		begun = ddp_bounded_start(&device->leaving, give_up, &leaving, sizeof(leaving),
					  NULL) == 0;
	pthread_mutex_unlock(&device->lock);
	return begun;
}

static bool abort_device(struct ddp_device *device, double seconds)
{
	struct ddp_watch watch = ddp_watch_start(seconds, NULL, NULL);

	return ddp_nccl_give_up(device) && ddp_bounded_wait(&device->leaving, &watch, NULL) == 0 &&
	       ddp_bounded_wait(&device->stuck, &watch, NULL) == 0;
}

/* Sizes are rounded up to this, which NCCL wants of windows. */
enum { ALIGNMENT = 4096 };

/* Seconds that freeing may take before it is a failure. */
#define FREE_SECONDS 10.0

/*
 * One way for all ranks, as their versions are equal.
 * In windows NCCL runs kernels of another kind, between GPUs of one node. From 2.28.3 on they did not wait for the
 * kernel in front of them on the stream, whose results they read, until 2.30.7; nor did ncclCommAbort() end them
 * before 2.29.7.
 */
static enum ddp_nccl_method method_of(int version)
{
#if NCCL_HAS(2, 27, 3)
	if (version >= NCCL_VERSION(2, 30, 7) && ncclCommWindowRegister &&
	    ncclCommWindowDeregister && ncclMemAlloc && ncclMemFree)
		return DDP_NCCL_WINDOWS;
#endif
#if NCCL_HAS(2, 19, 1)
	if (version >= NCCL_VERSION(2, 19, 1) && ncclCommRegister && ncclCommDeregister &&
	    ncclMemAlloc && ncclMemFree)
		return DDP_NCCL_REGISTERED;
#endif
	(void)version;
	return DDP_NCCL_PLAIN;
}

/* --- Memory: one rank's part --------------------------------------------------------------------- */

static int obtain(const struct ddp_device *device, struct ddp_nccl_memory *memory,
		  struct ddp_error *error)
{
#if NCCL_HAS(2, 19, 1)
	if (device->method != DDP_NCCL_PLAIN)
		return ddp_nccl_result(device, ncclMemAlloc(&memory->base, memory->bytes), error,
				       "allocating %zu bytes", memory->bytes);
#endif
	return ddp_nccl_cuda(device, cudaMalloc(&memory->base, memory->bytes), error,
			     "allocating %zu bytes", memory->bytes);
}

/* In the order of whoever goes on, on any stream. */
static int clear(const struct ddp_device *device, const struct ddp_nccl_memory *memory,
		 struct ddp_error *error)
{
	cudaError_t result = cudaMemsetAsync(memory->base, 0, memory->bytes, device->stream);

	if (result == cudaSuccess)
		result = cudaStreamSynchronize(device->stream);
	return ddp_nccl_cuda(device, result, error, "clearing %zu bytes", memory->bytes);
}

static int give_back(const struct ddp_device *device, struct ddp_nccl_memory *memory,
		     struct ddp_error *error)
{
	void *base = memory->base;

	memory->base = NULL;
	if (!base)
		return 0;
#if NCCL_HAS(2, 19, 1)
	if (device->method != DDP_NCCL_PLAIN)
		return ddp_nccl_result(device, ncclMemFree(base), error, "freeing %zu bytes",
				       memory->bytes);
#endif
	return ddp_nccl_cuda(device, cudaFree(base), error, "freeing %zu bytes", memory->bytes);
}

static ncclResult_t enroll(const struct ddp_device *device, ncclComm_t comm,
			   struct ddp_nccl_memory *memory)
{
#if NCCL_HAS(2, 27, 3)
	if (device->method == DDP_NCCL_WINDOWS) {
		ncclWindow_t window = NULL;
		ncclResult_t result = ncclCommWindowRegister(comm, memory->base, memory->bytes,
							     &window, NCCL_WIN_COLL_SYMMETRIC);

		memory->handle = window;
		return result;
	}
#endif
#if NCCL_HAS(2, 19, 1)
	if (device->method == DDP_NCCL_REGISTERED)
		return ncclCommRegister(comm, memory->base, memory->bytes, &memory->handle);
#endif
	(void)device, (void)comm, (void)memory;
	return ncclSuccess;
}

static ncclResult_t withdraw(const struct ddp_device *device, ncclComm_t comm,
			     struct ddp_nccl_memory *memory)
{
	void *handle = memory->handle;

	memory->handle = NULL;
#if NCCL_HAS(2, 27, 3)
	if (handle && device->method == DDP_NCCL_WINDOWS)
		return ncclCommWindowDeregister(comm, (ncclWindow_t)handle);
#endif
#if NCCL_HAS(2, 19, 1)
	if (handle)
		return ncclCommDeregister(comm, handle);
#endif
	(void)device, (void)comm, (void)handle;
	return ncclSuccess;
}

/* In a thread, as each of these can wait for another rank. */
enum act { ENROLL, WITHDRAW, FREE };

struct task {
	const struct ddp_device *device;
	ncclComm_t comm;
	struct ddp_nccl_memory memory;
	enum act act;
	const char *doing;
	struct ddp_error error;
};

static void run(void *arguments)
{
	struct task *task = arguments;
	ncclResult_t result = ncclSuccess;

	(void)cudaSetDevice(task->device->index);
	if (task->act == ENROLL)
		result = enroll(task->device, task->comm, &task->memory);
	else
		result = withdraw(task->device, task->comm, &task->memory);
	ddp_nccl_result(task->device, result, &task->error, "%s %zu bytes", task->doing,
			task->memory.bytes);
	if (task->act == FREE && !task->error.status)
		(void)give_back(task->device, &task->memory, &task->error);
}

/*
 * Returns 0 with what NCCL said in [failed]; or why the wait for it ended in [error], which is the end of the
 * engine: nothing else is to be asked of it.
 */
static int run_bounded(struct ddp_device *device, enum act act, struct ddp_nccl_memory *memory,
		       const struct ddp_watch *watch, struct ddp_error *failed,
		       struct ddp_error *error)
{
	struct task task = {.device = device,
			    .comm = device->comm,
			    .memory = *memory,
			    .act = act,
			    .doing = act == ENROLL ? "registering" : "deregistering"};
	int status = ddp_bounded_call(&device->stuck, run, &task, sizeof(task), watch, error);

	if (status == DDP_ERR_TIMEOUT && !error->text[0])
		ddp_error_set(error, status, "%s: NCCL did not end %s %zu bytes in %g s",
			      device->who, task.doing, memory->bytes, watch->limit);
	if (status) {
		error->status = status;
		ddp_nccl_fail(device, error);
		return status;
	}
	*memory = task.memory;
	*failed = task.error;
	return 0;
}

/* The place of [memory] in the list, or the list's end if it is not there or was freed. */
static struct ddp_nccl_memory **find_memory(struct ddp_device *device, const void *memory)
{
	struct ddp_nccl_memory **link = &device->memory;

	while (*link && ((*link)->base != memory || (*link)->freed))
		link = &(*link)->next;
	return link;
}

static int enroll_memory(struct ddp_device *device, void *memory, bool known,
			 struct ddp_error *refused, const struct ddp_watch *watch,
			 struct ddp_error *error)
{
	struct ddp_nccl_memory *found = *find_memory(device, memory);
	struct ddp_error story = {0, ""};
	int status;

	if (!found || device->method == DDP_NCCL_PLAIN)
		return 0;
	status = ddp_nccl_health(device, error);
	if (status)
		return status;
	status = run_bounded(device, known ? ENROLL : WITHDRAW, found, watch, refused, &story);
	if (status && error)
		*error = story;
	return status;
}

static int alloc_memory(struct ddp_device *device, size_t bytes, void **memory,
			const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_error story = {0, ""};
	struct ddp_nccl_memory *new;
	int status, was;

	(void)watch;
	*memory = NULL;
	if (bytes == 0 || bytes > SIZE_MAX - ALIGNMENT)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "device memory of %zu bytes", bytes);
	status = ddp_nccl_health(device, error);
	if (status)
		return status;
	new = calloc(1, sizeof(*new));
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to note device memory");
	new->bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT *ALIGNMENT;
	was = ddp_card_enter(device->index);
	if (obtain(device, new, &story))
		new->base = NULL;
	else if (clear(device, new, &story))
		(void)give_back(device, new, NULL);
	ddp_card_leave(device->index, was);
	if (!new->base) {
		free(new);
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s", story.text);
	}
	new->next = device->memory;
	device->memory = new;
	*memory = new->base;
	return 0;
}

static int free_memory(struct ddp_device *device, void *memory, struct ddp_error *error)
{
	struct ddp_watch watch = ddp_watch_start(FREE_SECONDS, NULL, NULL);
	struct ddp_error story = {0, ""}, failed = {0, ""};
	struct ddp_nccl_memory **link = find_memory(device, memory), *found = *link;
	int status;

	if (!memory)
		return 0;
	if (!found)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "%s: %p is no memory of the engine",
				     device->who, memory);
	status = ddp_nccl_health(device, error);
	if (status)
		return status;
	if (device->captured && found->handle) {
		found->freed = true;
		status = run_bounded(device, WITHDRAW, found, &watch, &failed, &story);
	} else {
		*link = found->next;
		status = run_bounded(device, FREE, found, &watch, &failed, &story);
		free(found);
	}
	if (!status)
		story = failed;
	if (story.status && error)
		*error = story;
	return story.status;
}

/* --- The end ---------------------------------------------------------------------------- */

/* With what it is of, if [freed]. */
static void forget_memory(struct ddp_device *device, bool freed)
{
	while (device->memory) {
		struct ddp_nccl_memory *memory = device->memory;

		device->memory = memory->next;
		if (freed)
			(void)give_back(device, memory, NULL);
		free(memory);
	}
}

/*
 * As far as open() came. NCCL wants memory deregistered, the communicator ended, and then the
 * memory freed.
 */
static void end(void *arguments)
{
	struct ddp_device *device = *(struct ddp_device **)arguments;

	(void)cudaSetDevice(device->index);
	for (struct ddp_nccl_memory *memory = device->memory; memory; memory = memory->next)
		(void)withdraw(device, device->comm, memory);
	if (device->comm) {
		(void)ncclCommFinalize(device->comm);
		(void)ncclCommDestroy(device->comm);
	}
	forget_memory(device, true);
	for (int i = 0; i < DDP_NCCL_EVENTS; i++) {
		if (device->work[i].event)
			(void)cudaEventDestroy(device->work[i].event);
	}
	if (device->waited)
		(void)cudaEventDestroy(device->waited);
	if (device->stream)
		(void)cudaStreamDestroy(device->stream);
	(void)cudaGetLastError();
}

/* After a failure nothing of CUDA is freed: it could wait for a kernel that does not end. */
static bool drop(struct ddp_device *device)
{
	bool back = abort_device(device, GIVE_UP_SECONDS);

	if (!back) {
		ddp_bounded_leave(device->leaving);
		ddp_bounded_leave(device->stuck);
	}
	if (back)
		forget_memory(device, false);
	return back;
}

static void close_device(struct ddp_device *device)
{
	bool back;

	if (!device)
		return;
	back = ddp_nccl_watch_stop(device);
	if (!ddp_nccl_health(device, NULL))
		back = ddp_bounded_try(end, &device, sizeof(device), CLOSE_SECONDS) && back;
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

/* --- Opening it ------------------------------------------------------------------------- */

/* As NCCL does it: NCCL_HOSTID, which tests set, stands for name and boot id. */
static void identify_host(struct ddp_device_card *card)
{
	const char *id = getenv("NCCL_HOSTID");
	char boot[64] = "";
	FILE *file;

	if (gethostname(card->host, sizeof(card->host) - 1) < 0)
		snprintf(card->host, sizeof(card->host), "(no name)");
	file = id ? NULL : fopen(BOOT_ID, "re");
	if (file) {
		if (!fgets(boot, sizeof(boot), file))
			boot[0] = '\0';
		fclose(file);
	}
	/* Without a boot id only the name tells one host from another. */
	if (!id)
		id = *boot ? boot : card->host;
	card->boot = ddp_hash(DDP_HASH_INIT, id, strlen(id));
}

/* Everything that needs no peer. */
static int take(struct ddp_device *device, struct ddp_error *error)
{
	struct cudaDeviceProp properties = {.name = ""};
	int least = 0, greatest = 0;

	identify_host(&device->card);
	TRY(device, cudaGetDeviceProperties(&properties, device->index), error,
	    "asking for its properties");
	ddp_card_uuid(device->card.uuid, sizeof(device->card.uuid), device->index, &properties);
	TRY(device, cudaDeviceGetStreamPriorityRange(&least, &greatest), error,
	    "taking the device");
	TRY(device, cudaStreamCreateWithPriority(&device->stream, cudaStreamNonBlocking, greatest),
	    error, "creating a stream");
	TRY(device, cudaEventCreateWithFlags(&device->waited, cudaEventDisableTiming), error,
	    "creating an event");
	for (int i = 0; i < DDP_NCCL_EVENTS; i++)
		TRY(device,
		    cudaEventCreateWithFlags(&device->work[i].event, cudaEventDisableTiming), error,
		    "creating an event");
	return 0;
}

static int open_device(struct ddp_device **device, int rank, int size, int index,
		       const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_device *new;
	int version = 0, status, was;
	char who[32];

	*device = NULL;
	snprintf(who, sizeof(who), "rank %d", rank);
	status = ddp_card_check("nccl", who, index, error);
	if (status)
		return status;
	if (ncclGetVersion(&version) != ncclSuccess)
		version = 0;
	if (version < OLDEST)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"engine nccl: libnccl.so.2 is version %d.%d.%d, 2.18 or newer is needed",
			version / 10000, version / 100 % 100, version % 100);
	new = calloc(1, sizeof(*new));
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the engine nccl");
	new->rank = rank;
	new->size = size;
	new->index = index;
	snprintf(new->who, sizeof(new->who), "rank %d, device %d", rank, index);
	new->log = log;
	new->version = version;
	new->method = method_of(version);
	new->card.rank = rank;
	new->card.version = version;
	pthread_mutex_init(&new->lock, NULL);
	was = ddp_card_enter(index);
	status = take(new, error);
	ddp_card_leave(index, was);
	if (status) {
		close_device(new);
		return status;
	}
	*device = new;
	return 0;
}

static void *get_stream(struct ddp_device *device)
{
	return device->stream;
}

static int get_card(struct ddp_device *device, struct ddp_device_card *card,
		    struct ddp_error *error)
{
	(void)error;
	*card = device->card;
	return 0;
}

DDP_API const struct ddp_device_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_DEVICE_VERSION, sizeof(struct ddp_device_engine), "device",
		 "nccl", PACKAGE_VERSION},
	.open = open_device,
	.card = get_card,
	.identity = make_identity,
	.connect = connect_ranks,
	.all_reduce = ddp_nccl_all_reduce,
	.broadcast = ddp_nccl_broadcast,
	.all_gather = ddp_nccl_all_gather,
	.alloc = alloc_memory,
	.enroll = enroll_memory,
	.free = free_memory,
	.stream = get_stream,
	.order = ddp_nccl_order,
	.convert = ddp_nccl_convert,
	.count = ddp_nccl_count,
	.wait = ddp_nccl_wait,
	.health = ddp_nccl_health,
	.warn = set_warning,
	.abort = abort_device,
	.close = close_device,
};
