/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - the memory of a group: its segment, joining and leaving, and further regions
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "group-private.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The beginning of each segment; what is behind belongs to the owner. */
struct segment_head {
	uint64_t token[2];
	uint64_t bytes;
	_Atomic uint32_t sharers; /* users of the mapping in the process that made it */
};

enum { LARGE = 2 << 20 };

struct ddp_region {
	struct ddp_region *next;
	struct ddp_group *group; /* NULL once it is destroyed */
	struct ddp_segment segment;
	uint32_t number; /* the same on all members */
	int index;
	size_t bytes, stride, first;
};

/* --- Segments ------------------------------------------------------------------------------ */

/*
 * Memory that several processes of one user map. A memfd: it has no name, so nothing is left
 * behind, and it is sealed, so that no peer can shrink it under our feet. Others find it by a
 * ticket, a line of text, through /proc. Threads of the process that made it share its mapping.
 */

/* What a ticket says. */
struct ticket {
	int pid, fd;
	uint64_t token[2];
	size_t bytes;
	uintptr_t base; /* where it is mapped in the process [pid] */
};

enum { TICKET_FIELDS = 6, PATH_SIZE = 64, STAT_SIZE = 1024 };

/* Fields of /proc/PID/stat. */
enum { THREADS_FIELD = 20, START_FIELD = 22 };

/*
 * The name, field 2, may hold anything: fields are counted from its last parenthesis on. If only the
 * main thread has ended, the state is Z although the process lives: its other threads run.
 */
static int parse_start(const char *stat, uint64_t *start)
{
	const char *next = strrchr(stat, ')');
	bool zombie;

	if (!next || next[1] != ' ')
		return -EINVAL;
	if (next[2] == 'X')
		return -ESRCH;
	zombie = next[2] == 'Z';
	for (int field = 3; field <= START_FIELD && next; field++) {
		next = strchr(next + 1, ' ');
		if (next && zombie && field == THREADS_FIELD && strtol(next, NULL, 10) <= 1)
			return -ESRCH;
	}
	if (!next)
		return -EINVAL;
	*start = strtoull(next, NULL, 10);
	return 0;
}

int ddp_process_start(int pid, uint64_t *start)
{
	char path[32], stat[STAT_SIZE];
	ssize_t length;
	int fd, status;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	length = read(fd, stat, sizeof(stat) - 1);
	status = length < 0 ? -errno : 0;
	close(fd);
	if (status < 0)
		return status;
	stat[length] = '\0';
	return parse_start(stat, start);
}

static struct segment_head *head_of(const struct ddp_segment *segment)
{
	return (struct segment_head *)(void *)segment->base;
}

/* All who need it have it: from here on the ticket is worth nothing. */
static void segment_seal(struct ddp_segment *segment)
{
	if (segment->fd >= 0)
		close(segment->fd);
	segment->fd = -1;
}

/* Unmap and close. Legal on one that is not open. */
static void segment_close(struct ddp_segment *segment)
{
	segment_seal(segment);
	if (segment->base &&
	    (!segment->shared || atomic_fetch_sub(&head_of(segment)->sharers, 1) == 1))
		munmap(segment->base, segment->bytes);
	segment->base = NULL;
}

/* Large alignments are made by hand: reserve more, give the margins back. */
static char *map_aligned(int fd, size_t bytes, size_t alignment)
{
	size_t room = bytes + alignment, before;
	char *memory = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *base;

	if (memory == MAP_FAILED)
		return NULL;
	before = (alignment - (uintptr_t)memory % alignment) % alignment;
	base = mmap(memory + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (base == MAP_FAILED) {
		munmap(memory, room);
		return NULL;
	}
	if (before)
		munmap(memory, before);
	if (alignment > before)
		munmap(base + bytes, alignment - before);
	/* Where the administrator lets shared memory have them (shmem_enabled=advise). */
	if (alignment > DDP_SEGMENT_HEAD)
		madvise(base, bytes, MADV_HUGEPAGE);
	return base;
}

static int make_file(struct ddp_segment *segment, size_t bytes, struct ddp_error *error)
{
	segment->fd = memfd_create("ddp", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (segment->fd < 0)
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "shared memory: memfd_create");
	if (ftruncate(segment->fd, (off_t)bytes) < 0)
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "shared memory of %zu bytes", bytes);
	if (fcntl(segment->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "shared memory: sealing it");
	return 0;
}

/*
 * Make a segment of [bytes], zeroed, mapped at a multiple of [alignment], and its [ticket].
 * Returns 0 or DDP_ERR_SYSTEM.
 */
static int segment_create(struct ddp_segment *segment, size_t bytes, size_t alignment,
			  char ticket[DDP_GROUP_TICKET], struct ddp_error *error)
{
	uint64_t token[2];
	int status;

	*segment = (struct ddp_segment){.fd = -1};
	if (getrandom(token, sizeof(token), 0) != sizeof(token))
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "shared memory: getrandom");
	status = make_file(segment, bytes, error);
	if (status < 0)
		goto fail;
	segment->base = map_aligned(segment->fd, bytes, alignment);
	if (!segment->base) {
		status = ddp_error_errno(error, DDP_ERR_SYSTEM, "shared memory: mapping %zu bytes",
					 bytes);
		goto fail;
	}
	segment->bytes = bytes;
	segment->shared = true;
	*head_of(segment) = (struct segment_head){.token = {token[0], token[1]}, .bytes = bytes};
	atomic_store(&head_of(segment)->sharers, 1);
	snprintf(ticket, DDP_GROUP_TICKET, "%d %d %016" PRIx64 "%016" PRIx64 " %zu %" PRIxPTR,
		 (int)getpid(), segment->fd, token[0], token[1], bytes, (uintptr_t)segment->base);
	return 0;
fail:
	segment_close(segment);
	return status;
}

static bool read_ticket(struct ticket *ticket, const char *text)
{
	return sscanf(text, "%d %d %16" SCNx64 "%16" SCNx64 " %zu %" SCNxPTR, &ticket->pid,
		      &ticket->fd, &ticket->token[0], &ticket->token[1], &ticket->bytes,
		      &ticket->base) == TICKET_FIELDS &&
	       ticket->bytes >= DDP_SEGMENT_HEAD;
}

/* Pids of another namespace lead anywhere: only the token tells. */
static int check_file(int fd, const char *path, const struct ticket *ticket,
		      struct ddp_error *error)
{
	struct segment_head head;

	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    head.token[0] != ticket->token[0] || head.token[1] != ticket->token[1] ||
	    head.bytes != ticket->bytes)
		return ddp_error_set(error, DDP_ERR_SYSTEM,
				     "%s is something else: another pid namespace", path);
	return 0;
}

/*
 * Map the segment of [text] and prove by its token that it is that one.
 * Returns 0, or DDP_ERR_SYSTEM with a text that names the path and what failed.
 */
static int segment_attach(struct ddp_segment *segment, const char *text, size_t alignment,
			  struct ddp_error *error)
{
	struct ticket ticket;
	char path[PATH_SIZE];
	uint64_t start;
	int fd, status;

	*segment = (struct ddp_segment){.fd = -1};
	if (!read_ticket(&ticket, text))
		return ddp_error_set(error, DDP_ERR_SYSTEM, "\"%s\" is no ticket", text);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", ticket.pid, ticket.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && ddp_process_start(ticket.pid, &start) == -ESRCH)
		return ddp_error_set(error, DDP_ERR_PEER,
				     "its process %d is gone, or of another pid namespace",
				     ticket.pid);
	if (fd < 0)
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "opening %s", path);
	status = check_file(fd, path, &ticket, error);
	if (status < 0)
		goto out;
	segment->bytes = ticket.bytes;
	segment->shared = ticket.pid == getpid();
	if (segment->shared) {
		segment->base = (char *)ticket.base; /* NOLINT(performance-no-int-to-ptr) */
		atomic_fetch_add(&head_of(segment)->sharers, 1);
	} else {
		segment->base = map_aligned(fd, ticket.bytes, alignment);
	}
	if (!segment->base)
		status = ddp_error_errno(error, DDP_ERR_SYSTEM, "mapping %zu bytes of %s",
					 ticket.bytes, path);
out:
	close(fd);
	return status;
}

/*
 * Have pages for [bytes] at [memory] now, on the node of the calling thread where they are new.
 * Returns 0 or DDP_ERR_MEMORY.
 */
static int segment_touch(void *memory, size_t bytes, struct ddp_error *error)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t)memory / page * page;
	size_t length = bytes + ((uintptr_t)memory - begin);

	if (madvise((char *)memory - ((uintptr_t)memory - begin), length, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return ddp_error_errno(error, DDP_ERR_MEMORY, "pages for %zu bytes", bytes);
	/* Linux before 5.14. An atomic or leaves what a peer may have written meanwhile. */
	for (size_t at = 0; at < bytes; at += page)
		__atomic_fetch_or((char *)memory + at, 0, __ATOMIC_RELAXED);
	return 0;
}

/* --- CPUs --------------------------------------------------------------------------------- */

/* Where this thread may run. */
static void get_cpus(uint64_t cpus[DDP_CPU_WORDS])
{
	size_t bytes = DDP_CPU_WORDS * sizeof(*cpus);

	/* A machine with more CPUs than that has enough. */
	memset(cpus, 0, bytes);
	if (sched_getaffinity(0, bytes, (cpu_set_t *)(void *)cpus) < 0)
		memset(cpus, 0xff, bytes);
}

static bool is_within(const uint64_t *cpus, const uint64_t *others)
{
	for (int i = 0; i < DDP_CPU_WORDS; i++)
		if (cpus[i] & ~others[i])
			return false;
	return true;
}

static int count_cpus(const uint64_t *cpus)
{
	int count = 0;

	for (int i = 0; i < DDP_CPU_WORDS; i++)
		count += __builtin_popcountll(cpus[i]);
	return count;
}

/* For each member's CPUs, and for all of them: are more members bound to them than they are? */
static bool enough_cpus(struct ddp_slot *const *slots, int size)
{
	uint64_t all[DDP_CPU_WORDS] = {0};

	for (int m = 0; m < size; m++) {
		int bound = 0;

		for (int i = 0; i < DDP_CPU_WORDS; i++)
			all[i] |= slots[m]->cpus[i];
		for (int other = 0; other < size; other++)
			bound += is_within(slots[other]->cpus, slots[m]->cpus);
		if (bound > count_cpus(slots[m]->cpus))
			return false;
	}
	return size <= count_cpus(all);
}

/* A number for the namespace that this process's pid is of. */
static uint64_t pid_namespace(void)
{
	struct stat status;

	return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}

/* --- Joining and leaving ------------------------------------------------------------------ */

_Static_assert(sizeof(struct ddp_group_head) <= DDP_SEGMENT_HEAD, "the slots begin behind it");

static size_t segment_bytes(int size)
{
	return DDP_SEGMENT_HEAD * 2 + (size_t)size * sizeof(struct ddp_slot);
}

static struct ddp_group *group_new(const struct ddp_group_options *options)
{
	size_t size = (size_t)options->size;
	struct ddp_group *group = calloc(1, sizeof(*group));

	if (!group)
		return NULL;
	group->index = options->index;
	group->size = options->size;
	group->simd = options->simd;
	group->log = options->log;
	group->segment = (struct ddp_segment){.fd = -1};
	group->host = strdup(options->host);
	group->ranks = calloc(size, sizeof(*group->ranks));
	group->slots = calloc(size, sizeof(struct ddp_slot *));
	group->pidfds = calloc(size, sizeof(*group->pidfds));
	group->polls = calloc(size, sizeof(*group->polls));
	group->from = calloc(size, sizeof(void *));
	group->to = calloc(size, sizeof(void *));
	for (size_t m = 0; group->pidfds && m < size; m++)
		group->pidfds[m] = -1;
	if (!group->host || !group->ranks || !group->slots || !group->pidfds || !group->polls ||
	    !group->from || !group->to) {
		ddp_group_destroy(group);
		return NULL;
	}
	ddp_group_rename(group, options->ranks);
	return group;
}

/* The segment is mapped: find what is in it, and be in it. */
static int group_join(struct ddp_group *group, struct ddp_error *error)
{
	char *slots = group->segment.base + DDP_SEGMENT_HEAD * 2;
	struct ddp_slot *own;
	int status;

	for (int m = 0; m < group->size; m++)
		group->slots[m] =
			(struct ddp_slot *)(void *)(slots + (size_t)m * sizeof(struct ddp_slot));
	own = group->slots[group->index];
	status = segment_touch(own, offsetof(struct ddp_slot, buffers), error);
	if (status < 0)
		return status;
	own->pid = getpid();
	if (ddp_process_start(own->pid, &own->start) < 0)
		own->start = 0;
	own->pids = pid_namespace();
	get_cpus(own->cpus);
	atomic_store(&own->state, DDP_MEMBER_JOINED);
	return 0;
}

int ddp_group_create(struct ddp_group **group, const struct ddp_group_options *options,
		     char ticket[DDP_GROUP_TICKET], struct ddp_error *error)
{
	struct ddp_group *new = group_new(options);
	int status;

	*group = NULL;
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a group of %d ranks",
				     options->size);
	status = segment_create(&new->segment, segment_bytes(options->size), DDP_SEGMENT_HEAD,
				ticket, error);
	if (status < 0)
		goto fail;
	new->head = (struct ddp_group_head *)(void *)(new->segment.base + DDP_SEGMENT_HEAD);
	new->head->slot_bytes = sizeof(struct ddp_slot);
	new->head->size = (uint32_t)options->size;
	status = group_join(new, error);
	if (status < 0)
		goto fail;
	*group = new;
	return 0;
fail:
	ddp_group_destroy(new);
	return status;
}

/* What member 0's library made must be what this one would make. */
static int check_layout(struct ddp_group *group, struct ddp_error *error)
{
	size_t bytes = segment_bytes(group->size);

	if (group->segment.bytes != bytes || group->head->slot_bytes != sizeof(struct ddp_slot) ||
	    group->head->size != (uint32_t)group->size)
		return ddp_error_set(error, DDP_ERR_SYSTEM,
				     "it has %zu bytes for %u ranks, not %zu for %d: the versions "
				     "of libddp differ",
				     group->segment.bytes, group->head->size, bytes, group->size);
	return 0;
}

static int group_attach(struct ddp_group *group, const char *ticket, struct ddp_error *error)
{
	int status = segment_attach(&group->segment, ticket, DDP_SEGMENT_HEAD, error);

	if (status < 0)
		return status;
	group->head = (struct ddp_group_head *)(void *)(group->segment.base + DDP_SEGMENT_HEAD);
	status = check_layout(group, error);
	return status < 0 ? status : group_join(group, error);
}

int ddp_group_attach(struct ddp_group **group, const struct ddp_group_options *options,
		     const char *ticket, struct ddp_error *error)
{
	struct ddp_group *new = group_new(options);
	struct ddp_error cause;
	int status;

	*group = NULL;
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a group of %d ranks",
				     options->size);
	status = group_attach(new, ticket, &cause);
	if (status < 0) {
		ddp_group_destroy(new);
		return ddp_error_set(error, status,
				     "rank %d on %s cannot share the memory of rank %d: %s; "
				     "DDP_LOCAL=off does without",
				     options->ranks[options->index], options->host,
				     options->ranks[0], cause.text);
	}
	*group = new;
	return 0;
}

void ddp_group_rename(struct ddp_group *group, const int *ranks)
{
	memcpy(group->ranks, ranks, (size_t)group->size * sizeof(*ranks));
}

int ddp_group_meet(struct ddp_group *group, const struct ddp_watch *watch, struct ddp_error *error)
{
	int status = ddp_wait_joined(group, watch, error);

	if (status < 0)
		return status;
	segment_seal(&group->segment);
	group->spins = enough_cpus(group->slots, group->size);
	return 0;
}

void ddp_group_leave(struct ddp_group *group)
{
	atomic_store(&group->slots[group->index]->state, DDP_MEMBER_LEFT);
}

void ddp_group_destroy(struct ddp_group *group)
{
	if (!group)
		return;
	for (struct ddp_region *region = group->regions; region; region = region->next)
		region->group = NULL;
	for (int m = 0; group->pidfds && m < group->size; m++)
		if (group->pidfds[m] >= 0)
			close(group->pidfds[m]);
	segment_close(&group->segment);
	free(group->to);
	free(group->from);
	free(group->polls);
	free(group->pidfds);
	free(group->slots);
	free(group->ranks);
	free(group->host);
	free(group);
}

bool ddp_group_spins(const struct ddp_group *group)
{
	return group->spins;
}

/* --- Regions ------------------------------------------------------------------------------- */

/* What a member says about its part in the making of a region. */
struct report {
	int32_t status;
	struct ddp_error error;
	char ticket[DDP_GROUP_TICKET];
};

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static struct ddp_region *region_new(struct ddp_group *group, size_t bytes)
{
	struct ddp_region *region = calloc(1, sizeof(*region));

	if (!region)
		return NULL;
	region->segment = (struct ddp_segment){.fd = -1};
	region->index = group->index;
	region->bytes = bytes;
	region->first = bytes >= LARGE ? LARGE : DDP_SEGMENT_HEAD;
	region->stride = round_up(bytes ? bytes : 1, region->first);
	return region;
}

void *ddp_region_part(const struct ddp_region *region, int member)
{
	return region->segment.base + region->first + (size_t)member * region->stride;
}

/* --- Regions: made together -------------------------------------------------------------- */

static int region_segment(struct ddp_group *group, struct ddp_region *region, char *ticket,
			  struct ddp_error *error)
{
	size_t bytes;

	if (region->stride < region->bytes ||
	    __builtin_mul_overflow(region->stride, (size_t)group->size, &bytes) ||
	    __builtin_add_overflow(bytes, region->first, &bytes) || bytes > INT64_MAX)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%zu bytes for each of %d ranks",
				     region->bytes, group->size);
	return segment_create(&region->segment, bytes, region->first, ticket, error);
}

/*
 * A step in which each tells how its part went, so that all fail together or none does.
 * [report] is this member's, and member 0's afterwards.
 */
static int region_agree(struct ddp_group *group, struct report *report,
			const struct ddp_watch *watch, struct ddp_error *error)
{
	const struct report *other;
	int status;

	memcpy(ddp_step_buffer(group, group->index, group->step + 1), report, sizeof(*report));
	status = ddp_step(group, watch, error);
	if (status < 0)
		return status;
	for (int m = 0; m < group->size; m++) {
		other = (const void *)ddp_step_buffer(group, m, group->step);
		if (other->status < 0)
			return ddp_error_set(error, other->status, "an arena on rank %d: %.*s",
					     group->ranks[m], DDP_ERROR_SIZE - 1,
					     other->error.text);
	}
	memcpy(report, ddp_step_buffer(group, 0, group->step), sizeof(*report));
	report->ticket[sizeof(report->ticket) - 1] = '\0';
	return 0;
}

/*
 * Each makes the pages of its own part, where they are to be, and the others find them there;
 * unless the region is [sparse], whose pages come when they are used. Members agree after each
 * step that can fail: all of them have the region, or none has.
 */
static int map_region(struct ddp_group *group, struct ddp_region *region, bool sparse,
		      const struct ddp_watch *watch, struct ddp_error *error)
{
	struct report report = {.status = 0};
	int status;

	if (group->index == 0)
		report.status = region_segment(group, region, report.ticket, &report.error);
	status = region_agree(group, &report, watch, error);
	if (status < 0)
		return status;
	if (group->index > 0)
		report.status = segment_attach(&region->segment, report.ticket, region->first,
					       &report.error);
	if (report.status == 0 && !sparse)
		report.status = segment_touch(ddp_region_part(region, group->index), region->stride,
					      &report.error);
	status = region_agree(group, &report, watch, error);
	segment_seal(&region->segment);
	if (status < 0 || sparse)
		return status;
	report.status = segment_touch(ddp_region_part(region, 0),
				      region->stride * (size_t)group->size, &report.error);
	return region_agree(group, &report, watch, error);
}

static int region_create(struct ddp_region **region, struct ddp_group *group, size_t bytes,
			 bool sparse, const struct ddp_watch *watch, struct ddp_error *error)
{
	static const struct ddp_call call = {.kind = UINT32_MAX, .name = "making of an arena"};
	struct ddp_region *new = region_new(group, bytes);
	int status;

	*region = NULL;
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for an arena");
	status = ddp_call_begin(group, &call, DDP_ACTION_REGION, bytes, 0, error);
	if (status == 0)
		status = ddp_call_end(group, map_region(group, new, sparse, watch, error));
	if (status < 0) {
		ddp_region_destroy(new);
		return status;
	}
	new->number = ++group->region_count;
	new->group = group;
	new->next = group->regions;
	group->regions = new;
	*region = new;
	return 0;
}

int ddp_region_create(struct ddp_region **region, struct ddp_group *group, size_t bytes,
		      const struct ddp_watch *watch, struct ddp_error *error)
{
	return region_create(region, group, bytes, false, watch, error);
}

int ddp_region_reserve(struct ddp_region **region, struct ddp_group *group, size_t bytes,
		       const struct ddp_watch *watch, struct ddp_error *error)
{
	return region_create(region, group, bytes, true, watch, error);
}

void ddp_region_destroy(struct ddp_region *region)
{
	struct ddp_region **link;

	if (!region)
		return;
	if (region->group) {
		for (link = &region->group->regions; *link != region; link = &(*link)->next)
			;
		*link = region->next;
	}
	segment_close(&region->segment);
	free(region);
}

/* --- Regions: found ------------------------------------------------------------------------ */

struct ddp_region *ddp_region_find(const struct ddp_group *group, const void *pointer, size_t bytes,
				   size_t *offset)
{
	for (struct ddp_region *region = group->regions; region; region = region->next) {
		uintptr_t part = (uintptr_t)ddp_region_part(region, region->index);
		uintptr_t at = (uintptr_t)pointer - part;

		if ((uintptr_t)pointer < part || at > region->stride || bytes > region->stride - at)
			continue;
		*offset = at;
		return region;
	}
	return NULL;
}

struct ddp_span ddp_span_find(const struct ddp_group *group, const void *send, const void *recv,
			      size_t bytes)
{
	struct ddp_span place = {0};
	struct ddp_region *region;
	size_t at = 0;

	region = ddp_region_find(group, send, bytes, &at);
	if (region) {
		place.region = region->number;
		place.at = at;
	}
	region = ddp_region_find(group, recv, bytes, &at);
	if (region) {
		place.receives = region->number;
		place.receives_at = at;
	}
	return place;
}

char *ddp_span_memory(const struct ddp_group *group, uint32_t number, int member, uint64_t at)
{
	struct ddp_region *region = group->regions;

	while (region && region->number != number)
		region = region->next;
	return region ? (char *)ddp_region_part(region, member) + at : NULL;
}
