/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card.c - fill in a rank's card: CPUs, GPU, MPS, endpoint
 *
 * The CUDA driver is loaded at run time, because ddp-info also runs on nodes without a driver. The
 * driver's ABI is stable. Its few types are declared here, so that the build needs no CUDA toolkit.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/gpu-memory.h"
#include "base/mps.h"
#include "base/text.h"
#include "info.h"

/* --- The driver ---------------------------------------------------------------------------- */

/* Values of CUdevice_attribute and CUcomputemode. */
enum {
	ATTRIBUTE_MODE = 20,
	ATTRIBUTE_MPS = 133, /* whether contexts on the device use MPS */
	MODE_EXCLUSIVE = 3,  /* only one process at a time can use the GPU */
};

bool info_driver_load(struct info_driver *driver)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

#define LOADED(member, arguments, name) &&(*(void **)&driver->member = dlsym(library, name))
	if (!(library INFO_DRIVER_CALLS(LOADED)))
		return false;
	/*
	 * cuDeviceGetUuid_v2() returns the UUID of a MIG slice. For a slice, cuDeviceGetUuid()
	 * returns the UUID of the whole GPU.
	 */
	if (!(*(void **)&driver->slice_uuid = dlsym(library, "cuDeviceGetUuid_v2")))
		driver->slice_uuid = driver->uuid;
	return true;
}

const char *info_driver_error(const struct info_driver *driver, int status)
{
	const char *text = NULL;

	return driver->error(status, &text) == 0 && text ? text : "unknown error";
}

/*
 * Load the driver, and get the driver's [device] for [index]. Returns false on failure. If the
 * driver refused the device, stores the reason in card->trouble.
 */
static bool open_driver(struct info_driver *driver, int index, int *device, struct info_card *card)
{
	int status;

	if (!info_driver_load(driver))
		return false;
	status = driver->init(0);
	if (status == 0)
		status = driver->get(device, index);
	if (status != 0)
		snprintf(card->trouble, sizeof(card->trouble), "%s (%d)",
			 info_driver_error(driver, status), status);
	return status == 0;
}

/* Fill in UUID, name, memory, versions and MPS. Without a driver, [card] does not change. */
static void fill_device(struct info_card *card)
{
	unsigned char id[DDP_GPU_UUID], whole[DDP_GPU_UUID];
	struct info_driver driver;
	int device, value;
	uint64_t total;
	size_t bytes;

	if (!open_driver(&driver, card->device, &device, card))
		return;
	if (driver.slice_uuid(id, device) == 0)
		ddp_gpu_print_uuid(card->uuid, sizeof(card->uuid), id,
				   driver.uuid(whole, device) == 0 &&
					   memcmp(id, whole, sizeof(id)) != 0);
	/*
	 * card->total is the total reported by the driver, because shares are fractions of it. NVML
	 * reports a larger one.
	 */
	if (card->uuid[0])
		(void)ddp_gpu_memory(card->uuid, &total, &card->free);
	if (driver.total(&bytes, device) == 0)
		card->total = bytes;
	if (driver.name(card->device_name, (int)sizeof(card->device_name), device) != 0)
		card->device_name[0] = '\0';
	if (driver.version(&value) == 0)
		snprintf(card->libraries, sizeof(card->libraries), "CUDA driver %d.%d",
			 value / 1000, value % 1000 / 10);
	if (driver.attribute(&value, ATTRIBUTE_MODE, device) == 0)
		card->exclusive = value == MODE_EXCLUSIVE;
	/* Older drivers do not support this attribute. */
	if (driver.attribute(&value, ATTRIBUTE_MPS, device) == 0)
		card->client = value != 0;
}

void info_card_context(struct info_card *card)
{
	uint64_t total, before, after;
	struct info_driver driver;
	void *context;
	int device;

	if (!card->uuid[0] || !open_driver(&driver, card->device, &device, card) ||
	    !ddp_gpu_memory(card->uuid, &total, &before) || driver.retain(&context, device) != 0)
		return;
	if (ddp_gpu_memory(card->uuid, &total, &after) && after < before)
		card->context = before - after;
	driver.release(device);
}

struct info_copier {
	struct info_driver driver;
	void *context; /* the device's primary context, which libddp uses as well */
};

struct info_copier *info_copier_open(int index)
{
	struct info_copier *copier = calloc(1, sizeof(*copier));
	struct info_card unused;
	int device;

	if (copier && open_driver(&copier->driver, index, &device, &unused) &&
	    copier->driver.retain(&copier->context, device) == 0)
		return copier;
	free(copier);
	return NULL;
}

bool info_copy(struct info_copier *copier, void *device, void *host, size_t bytes, bool back)
{
	const struct info_driver *driver = &copier->driver;

	return driver->current(copier->context) == 0 &&
	       (back ? driver->out(host, (uintptr_t)device, bytes)
		     : driver->in((uintptr_t)device, host, bytes)) == 0;
}

/* --- The card ------------------------------------------------------------------------------ */

int info_visible_devices(const char *list)
{
	int count = 0;

	if (!list)
		return -1;
	for (const char *at = list; *at; at++)
		count += *at != ',' && (at == list || at[-1] == ',');
	return strcmp(list, "-1") == 0 || strcmp(list, "NoDevFiles") == 0 ? 0 : count;
}

/*
 * Returns the number of GPUs of the step on this node, if its tasks can use all of them. Returns 0
 * if each task has its own GPUs or shards, or if the ranks are not Slurm tasks.
 */
static int whole_gpus(const struct ddp_world *world, int visible)
{
	const char *tasks = getenv("SLURM_STEP_NUM_TASKS");

	if (!tasks || atoi(tasks) != world->size || strcmp(world->source, "single") == 0 ||
	    getenv("SLURM_SHARDS_ON_NODE") || getenv("SLURM_GPUS_PER_TASK"))
		return 0;
	return visible > 0 ? visible : 0;
}

/*
 * Set card->slot to the index of the device in Slurm's numbering on the node. The index in
 * CUDA_VISIBLE_DEVICES does not identify the device, because it may differ between tasks.
 */
static void fill_slot(struct info_card *card)
{
	const char *list = getenv("SLURM_STEP_GPUS");

	if (!list || info_visible_devices(list) != card->visible)
		return;
	for (int i = 0; i < card->device && *list; i++) {
		list += strcspn(list, ",");
		list += *list == ',';
	}
	snprintf(card->slot, sizeof(card->slot), "%.*s", (int)strcspn(list, ","), list);
}

static void fill_mps(struct info_card *card)
{
	const char *directory = ddp_mps_directory(getenv(DDP_MPS_PIPE_DIRECTORY));

	card->mps = (int32_t)ddp_mps_look(directory);
	card->threads = ddp_mps_threads(getenv(DDP_MPS_THREADS));
	snprintf(card->mps_directory, sizeof(card->mps_directory), "%s", directory);
	ddp_mps_memory(getenv(DDP_MPS_MEMORY), card->device, card->memory_limit,
		       sizeof(card->memory_limit));
}

void info_card_fill(struct info_card *card, const struct ddp_world *world)
{
	const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
	const char *allocated = getenv("SLURM_CPUS_PER_TASK");
	struct statvfs shm;

	*card = (struct info_card){
		.rank = world->rank,
		.node_rank = world->node_rank,
		.local_rank = world->local_rank,
		.local_size = world->local_size,
		.group_size = world->group_size,
		.pid = (int32_t)getpid(),
		.visible = info_visible_devices(getenv("CUDA_VISIBLE_DEVICES")),
		.device = world->device,
		.reached = -1,
		.client = -1,
		.first = -1,
		.share = world->share,
		.node_cpus = (int32_t)sysconf(_SC_NPROCESSORS_ONLN),
	};
	card->whole = whole_gpus(world, card->visible);
	if (statvfs("/dev/shm", &shm) == 0)
		card->shm = (uint64_t)shm.f_blocks * shm.f_frsize;
	snprintf(card->host, sizeof(card->host), "%.63s", world->host);
	snprintf(card->transport, sizeof(card->transport), "%s", world->transport);
	if (sched_getaffinity(0, sizeof(card->cpus), &card->cpus) == 0)
		ddp_list_cpus(&card->cpus, card->cpu_list, sizeof(card->cpu_list));
	/*
	 * The mask can contain more CPUs than Slurm allocated, if Slurm does not bind tasks to
	 * CPUs.
	 */
	card->own_cpus = CPU_COUNT(&card->cpus);
	if (allocated && atoi(allocated) > 0 && atoi(allocated) < card->own_cpus)
		card->own_cpus = atoi(allocated);
	if (address && *address && port && *port)
		snprintf(card->endpoint, sizeof(card->endpoint), "%.80s:%.8s", address, port);
	if (world->device < 0)
		return;
	fill_slot(card);
	fill_mps(card);
	fill_device(card);
}

/* --- The endpoint -------------------------------------------------------------------------- */

enum { CONNECT_SECONDS = 3 };

/*
 * Listen on the port of [address] on all addresses of this host, as PyTorch's store does, since
 * MASTER_ADDR may belong to another host. Returns a socket, or -1 if the port is in use.
 */
static int listen_at(const struct addrinfo *address)
{
	int one = 1, fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_storage any = {0};

	if (fd < 0)
		return -1;
	/* Copy only family and port, which are the first members of IPv4 and IPv6 addresses. */
	memcpy(&any, address->ai_addr, offsetof(struct sockaddr_in, sin_addr));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&any, address->ai_addrlen) == 0 && listen(fd, 64) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Try to connect to the endpoint. Returns 0 on success, or an errno value. */
static int connect_to(const struct addrinfo *address)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), number = 0;
	const struct timeval limit = {CONNECT_SECONDS, 0};

	if (fd < 0)
		return errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, address->ai_addr, address->ai_addrlen) < 0)
		number = errno == EINPROGRESS ? ETIMEDOUT : errno;
	close(fd);
	return number;
}

/*
 * On rank 0, listen on MASTER_PORT and return the socket. On other ranks, try to connect, store the
 * result in [card], and return -1.
 */
static int try_endpoint(struct info_card *card)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	int status = getaddrinfo(getenv("MASTER_ADDR"), getenv("MASTER_PORT"), &hints, &list);
	int fd = -1, number = EADDRNOTAVAIL;

	if (card->rank != 0 || status != 0)
		card->reached = 0;
	if (status != 0) {
		snprintf(card->why_not, sizeof(card->why_not),
			 "%.40s; a container needs the host's /etc/hosts", gai_strerror(status));
		return -1;
	}
	for (const struct addrinfo *at = list; at && fd < 0 && number != 0; at = at->ai_next) {
		if (card->rank == 0)
			fd = listen_at(at);
		else
			number = connect_to(at);
	}
	freeaddrinfo(list);
	if (card->rank == 0)
		return fd;
	card->reached = number == 0;
	if (number != 0)
		snprintf(card->why_not, sizeof(card->why_not), "%s", strerror(number));
	return -1;
}

int info_card_reach(struct info_card *card, struct ddp *ddp)
{
	int32_t listening = 0;
	int fd = -1, status;

	if (card->rank == 0 && card->endpoint[0]) {
		fd = try_endpoint(card);
		listening = fd >= 0;
	}
	status = ddp_broadcast(ddp, &listening, sizeof(listening), 0);
	if (status == 0 && listening && card->node_rank != 0 && card->local_rank == 0 &&
	    card->endpoint[0])
		(void)try_endpoint(card);
	if (status == 0)
		status = ddp_barrier(ddp);
	if (fd >= 0)
		close(fd);
	return status;
}
