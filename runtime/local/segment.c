/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.c - memory that several processes of one user map
 *
 * A segment is a memfd. It has no name, so that nothing remains after a crash. It is sealed, so
 * that no peer can shrink it. Another process opens the segment with its ticket, a line of text. If
 * that process is in the creator's pid namespace, it uses /proc; otherwise it uses the socket of
 * passing.c. Threads of the creator's process use the creator's mapping.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "group-private.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Head of each segment. The module that owns the segment uses the bytes after the head. */
struct segment_head {
	uint64_t token[2];
	uint64_t bytes;
	/* number of threads of the creator's process that use the mapping */
	_Atomic uint32_t sharers;
};

struct ticket {
	int pid, fd;
	uint64_t token[2];
	size_t bytes;
	uintptr_t base; /* address of the creator's mapping, for threads of process [pid] */
	uint64_t pids;	/* pid namespace of [pid] */
	/* why the creator has no socket: an errno, or 0 if it has no directory for it */
	int why;
	struct ddp_socket socket;
};

enum { TICKET_FIELDS = 8, TICKET_FIELDS_SOCKET = 10, PATH_SIZE = 64 };

static struct segment_head *head_of(const struct ddp_segment *segment)
{
	return (struct segment_head *)(void *)segment->base;
}

const uint64_t *ddp_segment_token(const struct ddp_segment *segment)
{
	return head_of(segment)->token;
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
	    (!segment->shared || atomic_fetch_sub(&head_of(segment)->sharers, 1) == 1))
		munmap(segment->base, segment->bytes);
	segment->base = NULL;
}

/* --- Creation ----------------------------------------------------------------------------- */

/*
 * Map [fd], or new memory if [fd] is -1, at a multiple of [alignment]. To do this, reserve a larger
 * address range, and then unmap the parts that are not needed.
 */
static char *map_aligned(int fd, size_t bytes, size_t alignment)
{
	size_t reserved = bytes + alignment, before;
	char *memory = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *base;

	if (memory == MAP_FAILED)
		return NULL;
	before = (alignment - (uintptr_t)memory % alignment) % alignment;
	base = mmap(memory + before, bytes, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
	if (base == MAP_FAILED) {
		munmap(memory, reserved);
		return NULL;
	}
	if (before)
		munmap(memory, before);
	if (alignment > before)
		munmap(base + bytes, alignment - before);
	/*
	 * Request huge pages. The kernel uses them only if the administrator allows huge pages for
	 * shared memory (shmem_enabled=advise).
	 */
	if (alignment > DDP_SEGMENT_HEAD)
		madvise(base, bytes, MADV_HUGEPAGE);
	return base;
}

static int make_file(struct ddp_segment *segment, size_t bytes, struct ddp_error *error)
{
	segment->fd = memfd_create("ddp", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (segment->fd < 0 && (errno == EPERM || errno == ENOSYS))
		return ddp_error_set(
			error, DDP_ERR_SYSTEM,
			"a security policy forbids memfd_create(), which shared memory needs: %m. "
			"In podman, use --security-opt seccomp=unconfined");
	if (segment->fd < 0)
		return ddp_error_errno(error, DDP_ERR_SYSTEM,
				       "cannot make shared memory: memfd_create");
	if (ftruncate(segment->fd, (off_t)bytes) < 0)
		return ddp_error_errno(error, DDP_ERR_SYSTEM,
				       "cannot make shared memory of %zu bytes", bytes);
	if (fcntl(segment->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "cannot seal shared memory");
	return 0;
}

uint64_t ddp_pid_namespace(void)
{
	struct stat status;

	return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}

static void write_ticket(const struct ddp_segment *segment, const struct ddp_group *group,
			 char ticket[DDP_GROUP_TICKET])
{
	const uint64_t *token = ddp_segment_token(segment);
	const struct ddp_socket *socket;
	int used = snprintf(ticket, DDP_GROUP_TICKET,
			    "%d %d %016" PRIx64 "%016" PRIx64 " %zu %" PRIxPTR " %" PRIu64 " %d",
			    (int)getpid(), segment->fd, token[0], token[1], segment->bytes,
			    (uintptr_t)segment->base, ddp_pid_namespace(), group->passing_errno);

	if (!group->passing)
		return;
	socket = ddp_passing_socket(group->passing);
	used += snprintf(ticket + used, (size_t)(DDP_GROUP_TICKET - used), " %s ", socket->name);
	for (int i = 0; i < DDP_HASH_SIZE; i++)
		used += snprintf(ticket + used, (size_t)(DDP_GROUP_TICKET - used), "%02x",
				 socket->secret[i]);
}

int ddp_segment_create(struct ddp_segment *segment, const struct ddp_group *group, size_t bytes,
		       size_t alignment, char ticket[DDP_GROUP_TICKET], struct ddp_error *error)
{
	uint64_t token[2];
	int status;

	*segment = (struct ddp_segment){.fd = -1};
	if (getrandom(token, sizeof(token), 0) != sizeof(token))
		return ddp_error_errno(error, DDP_ERR_SYSTEM,
				       "cannot make shared memory: getrandom");
	/* A group of one member needs no memfd, so it works in a container that forbids memfds. */
	status = group->size > 1 ? make_file(segment, bytes, error) : 0;
	if (status < 0)
		goto fail;
	segment->base = map_aligned(segment->fd, bytes, alignment);
	if (!segment->base) {
		status = ddp_error_errno(error, DDP_ERR_SYSTEM,
					 "cannot map %zu bytes of shared memory", bytes);
		goto fail;
	}
	segment->bytes = bytes;
	segment->shared = true;
	*head_of(segment) = (struct segment_head){.token = {token[0], token[1]}, .bytes = bytes};
	atomic_store(&head_of(segment)->sharers, 1);
	write_ticket(segment, group, ticket);
	return 0;
fail:
	ddp_segment_close(segment);
	return status;
}

/* --- Processes -------------------------------------------------------------------------- */

/* Numbers of fields in /proc/PID/stat. */
enum { THREADS_FIELD = 20, START_FIELD = 22, STAT_SIZE = 1024 };

/*
 * Parse the start time from /proc/PID/stat. Field 2, the name, may contain any character, so fields
 * are counted from its last parenthesis. If only the main thread has ended, the state is Z,
 * although the process lives and its other threads run.
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

int ddp_pidfd_open(int pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

bool ddp_is_low_descriptor(int fd)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) < 0 || (rlim_t)fd < limit.rlim_cur / 2;
}

/* --- Attaching ---------------------------------------------------------------------------- */

static bool read_ticket(struct ticket *ticket, const char *text)
{
	char secret[2 * DDP_HASH_SIZE + 1] = "";
	int fields;

	*ticket = (struct ticket){.pid = 0};
	fields = sscanf(
		text, "%d %d %16" SCNx64 "%16" SCNx64 " %zu %" SCNxPTR " %" SCNu64 " %d %23s %64s",
		&ticket->pid, &ticket->fd, &ticket->token[0], &ticket->token[1], &ticket->bytes,
		&ticket->base, &ticket->pids, &ticket->why, ticket->socket.name, secret);
	for (int i = 0; fields == TICKET_FIELDS_SOCKET && i < DDP_HASH_SIZE; i++)
		if (sscanf(secret + 2 * (size_t)i, "%2hhx", &ticket->socket.secret[i]) != 1)
			return false;
	return (fields == TICKET_FIELDS || fields == TICKET_FIELDS_SOCKET) &&
	       ticket->bytes >= DDP_SEGMENT_HEAD && !strchr(ticket->socket.name, '/');
}

/*
 * Check that the opened file has the token of [ticket]. Another pid namespace can have another
 * process with the same pid, and then [path] is a file of that process.
 */
static int check_file(int fd, const char *path, const struct ticket *ticket,
		      struct ddp_error *error)
{
	struct segment_head head;

	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    head.token[0] != ticket->token[0] || head.token[1] != ticket->token[1] ||
	    head.bytes != ticket->bytes)
		return ddp_error_set(error, DDP_ERR_SYSTEM,
				     "%s is another file, in another pid namespace", path);
	return 0;
}

/* Open the segment through /proc. Returns a descriptor or a DDP_ERR_x. */
static int open_proc(const struct ticket *ticket, struct ddp_error *error)
{
	uint64_t start, own = ddp_pid_namespace();
	char path[PATH_SIZE];
	int fd, status;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", ticket->pid, ticket->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && ddp_process_start(ticket->pid, &start) == -ESRCH)
		return ddp_error_set(error,
				     own && own == ticket->pids ? DDP_ERR_PEER : DDP_ERR_SYSTEM,
				     own && own == ticket->pids
					     ? "process %d has ended"
					     : "process %d is in another pid namespace",
				     ticket->pid);
	if (fd < 0)
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "cannot open %s", path);
	status = check_file(fd, path, ticket, error);
	if (status == 0)
		return fd;
	close(fd);
	return status;
}

/* Returns a remedy for the socket's errno [number]; 0: there is no directory for a socket. */
static const char *remedy(int number)
{
	switch (number) {
	case 0:
		return "Start the program with srun --ddp, and mount its rendezvous directory in "
		       "all containers";
	case ENOENT:
	case ECONNREFUSED:
	case ESTALE:
		return "Mount this directory of the host in every container (podman -v, "
		       "Charliecloud and Apptainer -b, pyxis --container-mounts)";
	case EACCES:
	case EPERM:
		return "A security policy forbids this. In podman, use --security-opt "
		       "label=disable --security-opt seccomp=unconfined";
	default:
		return "Check the limits of the container";
	}
}

/*
 * Open the segment through /proc or through the socket. If this process is in the creator's pid
 * namespace ([own]), try /proc first, because then the creator needs no descriptor for each member.
 * Returns a descriptor or a DDP_ERR_x.
 */
static int open_segment(struct ddp_group *group, const struct ticket *ticket, bool own,
			const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_error socket = {0}, proc = {0};
	bool proc_first = own || (ticket->pids && ticket->pids == ddp_pid_namespace());
	int fd = DDP_ERR_SYSTEM, opened = DDP_ERR_SYSTEM, number = ticket->why;

	if (!own && group->links[0] >= 0) {
		fd = ddp_passing_receive(group, ticket->token);
		return fd >= 0 ? fd
			       : ddp_error_errno(error, DDP_ERR_SYSTEM,
						 "cannot receive a descriptor");
	}
	if (proc_first)
		opened = open_proc(ticket, &proc);
	if (opened >= 0)
		return opened;
	if (!own && *ticket->socket.name) {
		errno = 0;
		fd = ddp_passing_connect(group, &ticket->socket, ticket->token, watch, &socket);
		number = errno;
		if (fd >= 0)
			return fd;
		if (fd != DDP_ERR_SYSTEM)
			return ddp_error_set(error, fd, "%s", socket.text);
	}
	if (!*ticket->socket.name && number) {
		errno = number;
		ddp_error_errno(&socket, DDP_ERR_SYSTEM, "rank %d cannot make a socket in %s",
				group->ranks[0], group->directory);
	}
	if (!proc_first)
		opened = open_proc(ticket, &proc);
	if (opened >= 0)
		return opened;
	if (opened != DDP_ERR_SYSTEM || own)
		return ddp_error_set(error, opened, "%s", proc.text);
	return ddp_error_set(error, DDP_ERR_SYSTEM, "%.300s%s%.200s. %s", socket.text,
			     *socket.text ? "; " : "", proc.text, remedy(number));
}

int ddp_segment_attach(struct ddp_segment *segment, struct ddp_group *group, const char *text,
		       size_t alignment, const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ticket ticket;
	int fd, status = 0;

	*segment = (struct ddp_segment){.fd = -1};
	if (!read_ticket(&ticket, text))
		return ddp_error_set(error, DDP_ERR_SYSTEM,
				     "the ticket of the memory is not valid. Install one release "
				     "of libddp on all nodes");
	segment->shared = ticket.pid == getpid() && ticket.pids == ddp_pid_namespace();
	fd = open_segment(group, &ticket, segment->shared, watch, error);
	if (fd < 0)
		return fd;
	status = check_file(fd, "the memory", &ticket, error);
	if (status < 0)
		goto out;
	segment->bytes = ticket.bytes;
	if (segment->shared) {
		segment->base = (char *)ticket.base; /* NOLINT(performance-no-int-to-ptr) */
		atomic_fetch_add(&head_of(segment)->sharers, 1);
	} else {
		segment->base = map_aligned(fd, ticket.bytes, alignment);
	}
	if (!segment->base)
		status = ddp_error_errno(error, DDP_ERR_SYSTEM, "cannot map %zu bytes",
					 ticket.bytes);
out:
	close(fd);
	return status;
}

int ddp_segment_touch(void *memory, size_t bytes, struct ddp_error *error)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t)memory / page * page;
	size_t length = bytes + ((uintptr_t)memory - begin);

	if (madvise((char *)memory - ((uintptr_t)memory - begin), length, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return ddp_error_errno(error, DDP_ERR_MEMORY,
				       "cannot allocate the pages of %zu bytes", bytes);
	/*
	 * Before Linux 5.14, write to each page. The operation is atomic, so that it does not
	 * overwrite data that a peer writes at the same time.
	 */
	for (size_t at = 0; at < bytes; at += page)
		__atomic_fetch_or((char *)memory + at, 0, __ATOMIC_RELAXED);
	return 0;
}
