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

/* Wait for [bounded], if there is one. Returns whether it came back; then it is gone. */
static bool settle(struct ddp_bounded **bounded, const struct ddp_watch *watch)
{
	if (!*bounded)
		return true;
	if (ddp_bounded_wait(*bounded, watch, NULL) < 0)
		return false;
	ddp_bounded_leave(*bounded);
	*bounded = NULL;
	return true;
}

static bool abort_device(struct ddp_device *device, double seconds)
{
	struct ddp_watch watch = ddp_watch_start(seconds, NULL, NULL);

	return ddp_nccl_give_up(device) && settle(&device->leaving, &watch) &&
	       settle(&device->stuck, &watch);
}

/* --- The end ---------------------------------------------------------------------------- */

/*
 * As far as open() came. NCCL wants memory deregistered, the communicator ended, and then the
 * memory freed.
 */
static void end(void *arguments)
{
	struct ddp_device *device = *(struct ddp_device **)arguments;

	(void)cudaSetDevice(device->index);
	ddp_nccl_memory_deregister(device);
	if (device->comm) {
		(void)ncclCommFinalize(device->comm);
		(void)ncclCommDestroy(device->comm);
	}
	ddp_nccl_memory_free(device);
	for (int i = 0; i < DDP_NCCL_EVENTS; i++) {
		if (device->work[i].event)
			(void)cudaEventDestroy(device->work[i].event);
	}
	if (device->waited)
		(void)cudaEventDestroy(device->waited);
	if (device->word)
		(void)cudaFree(device->word);
	if (device->host_word)
		(void)cudaFreeHost(device->host_word);
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
	while (back && device->memory) {
		struct ddp_nccl_memory *memory = device->memory;

		device->memory = memory->next;
		free(memory);
	}
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
	snprintf(device->name, sizeof(device->name), "%s", properties.name);
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
	TRY(device, cudaMalloc((void **)&device->word, sizeof(int32_t)), error,
	    "allocating a word");
	TRY(device,
	    cudaHostAlloc((void **)&device->host_word, sizeof(int32_t), cudaHostAllocPortable),
	    error, "allocating a page of pinned memory");
	return 0;
}

static int open_device(struct ddp_device **device, int rank, int size, int index, double share,
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
	new->share = share;
	new->log = log;
	new->version = version;
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

static void describe(struct ddp_device *device, char *text, size_t size)
{
	char share[32] = "";

	if (device->share > 0 && device->share < 1)
		snprintf(share, sizeof(share), ", share %.2f", device->share);
	snprintf(text, size, "NCCL %d.%d.%d, device %d: %s (%s)%s, memory %s",
		 device->version / 10000, device->version / 100 % 100, device->version % 100,
		 device->index, device->name, device->card.uuid, share,
		 ddp_nccl_memory_method(device));
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
	.alloc = ddp_nccl_alloc,
	.free = ddp_nccl_free,
	.stream = get_stream,
	.order = ddp_nccl_order,
	.convert = ddp_nccl_convert,
	.count = ddp_nccl_count,
	.wait = ddp_nccl_wait,
	.health = ddp_nccl_health,
	.warn = set_warning,
	.abort = abort_device,
	.describe = describe,
	.close = close_device,
};
