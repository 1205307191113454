/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "segment.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* What a ticket says. */
struct ticket {
	int pid, fd;
	uint64_t token[2];
	size_t bytes;
	uintptr_t base; /* where it is mapped in the process [pid] */
};

enum { TICKET_FIELDS = 6, PATH_SIZE = 64, START_FIELD = 22, STAT_SIZE = 1024 };

/* The name, field 2, may hold anything: fields are counted from its last parenthesis on. */
static uint64_t parse_start(const char *stat)
{
	const char *next = strrchr(stat, ')');

	if (!next || next[1] != ' ' || next[2] == 'Z' || next[2] == 'X')
		return 0;
	for (int field = 2; field < START_FIELD && next; field++)
		next = strchr(next + 1, ' ');
	return next ? strtoull(next, NULL, 10) : 0;
}

uint64_t ddp_process_start(int pid)
{
	char path[32], stat[STAT_SIZE];
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	length = read(fd, stat, sizeof(stat) - 1);
	close(fd);
	if (length <= 0)
		return 0;
	stat[length] = '\0';
	return parse_start(stat);
}

static struct ddp_segment_head *segment_head(const struct ddp_segment *segment)
{
	return (struct ddp_segment_head *)(void *)segment->base;
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

int ddp_segment_create(struct ddp_segment *segment, size_t bytes, size_t alignment,
		       char ticket[DDP_GROUP_TICKET], struct ddp_error *error)
{
	uint64_t token[2];
	int status;

	*segment = (struct ddp_segment)DDP_SEGMENT_INIT;
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
	*segment_head(segment) =
		(struct ddp_segment_head){.token = {token[0], token[1]}, .bytes = bytes};
	atomic_store(&segment_head(segment)->sharers, 1);
	snprintf(ticket, DDP_GROUP_TICKET, "%d %d %016" PRIx64 "%016" PRIx64 " %zu %" PRIxPTR,
		 (int)getpid(), segment->fd, token[0], token[1], bytes, (uintptr_t)segment->base);
	return 0;
fail:
	ddp_segment_close(segment);
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
	struct ddp_segment_head head;

	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    head.token[0] != ticket->token[0] || head.token[1] != ticket->token[1] ||
	    head.bytes != ticket->bytes)
		return ddp_error_set(error, DDP_ERR_SYSTEM,
				     "%s is something else: another pid namespace", path);
	return 0;
}

int ddp_segment_attach(struct ddp_segment *segment, const char *text, size_t alignment,
		       struct ddp_error *error)
{
	struct ticket ticket;
	char path[PATH_SIZE];
	int fd, status;

	*segment = (struct ddp_segment)DDP_SEGMENT_INIT;
	if (!read_ticket(&ticket, text))
		return ddp_error_set(error, DDP_ERR_SYSTEM, "\"%s\" is no ticket", text);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", ticket.pid, ticket.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && ddp_process_start(ticket.pid) == 0)
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
		atomic_fetch_add(&segment_head(segment)->sharers, 1);
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

void ddp_segment_seal(struct ddp_segment *segment)
{
	if (segment->fd >= 0)
		close(segment->fd);
	segment->fd = -1;
}

void ddp_segment_close(struct ddp_segment *segment)
{
	ddp_segment_seal(segment);
	if (segment->base &&
	    (!segment->shared || atomic_fetch_sub(&segment_head(segment)->sharers, 1) == 1))
		munmap(segment->base, segment->bytes);
	segment->base = NULL;
}

int ddp_segment_touch(void *memory, size_t bytes, struct ddp_error *error)
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
