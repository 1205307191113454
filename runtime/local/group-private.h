/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group-private.h - layout of a group's shared memory, and functions shared by the files of local/
 *
 * Members proceed in steps. In each step, every member publishes one line and waits for the lines
 * of all other members. A collective takes one or more steps. So no member is more than one step
 * ahead of another:
 *
 *   - A line or notice of step s is written before s is published, and read until the reader
 *     publishes s+1. It is written again for s+2, after all have published s+1: two of each are
 *     enough.
 *   - A buffer of step s may be read until the reader publishes s+2 (a staged all-reduce reads the
 *     results of s after s+1), and may be written again for s+3. There are four, because the number
 *     of buffers must divide 2^32: step numbers wrap.
 */
#ifndef DDP_LOCAL_GROUP_PRIVATE_H
#define DDP_LOCAL_GROUP_PRIVATE_H

#include <stdatomic.h>
#include <string.h>

#include "base/keyed-hash.h"
#include "group.h"

enum {
	DDP_LINES = 2,
	DDP_BUFFERS = 4,
	DDP_LANES = 2,	       /* shared vectors of the two halves of an all-reduce */
	DDP_LINE_PAYLOAD = 48, /* bytes of payload in a line */
	DDP_SEPARATION = 128,  /* bytes between data of different writers: two cache lines */
	DDP_ALIGN = 64,	       /* of slices, in bytes */
	DDP_CALL_NAME = 24,
	DDP_CPU_WORDS = 64, /* 4096 CPUs */
	DDP_SEGMENT_HEAD = 4096,
	DDP_BUFFER_BYTES = 128 << 10,
	DDP_LANE_BYTES = 8 << 20, /* largest piece of a vector between reduce and publish */
	/* Largest vector, in bytes, that every member reduces as a whole, which saves a step. */
	DDP_SHORT_SPINNING = 4 << 10,
	DDP_SHORT_SLEEPING = 8 << 10,
};

struct ddp_segment {
	char *base; /* NULL: no segment */
	size_t bytes;
	int fd;	     /* in the creator, until the other members have mapped it; else -1 */
	bool shared; /* [base] is the creator's mapping, used by threads of the creator's process */
};

/* Socket through which member 0 passes descriptors: a file in the rendezvous directory. */
struct ddp_socket {
	char name[24]; /* "": none */
	uint8_t secret[DDP_HASH_SIZE];
};

struct ddp_passing;

/* Kind of a call. With struct ddp_call, this is what members must agree on. */
enum ddp_action {
	DDP_ACTION_BARRIER,
	DDP_ACTION_ALL_REDUCE,
	DDP_ACTION_REDUCE,
	DDP_ACTION_PUBLISH,
	DDP_ACTION_BROADCAST,
	DDP_ACTION_ALL_GATHER,
	DDP_ACTION_REGION,
};

struct ddp_line {
	_Alignas(DDP_SEPARATION) _Atomic uint32_t step; /* stored last; also the futex word */
	uint32_t unused;
	uint64_t digest; /* of the call */
	char payload[DDP_LINE_PAYLOAD];
};

/* Description of the call for messages; only [digest] is compared. */
struct ddp_notice {
	uint64_t digest;
	uint32_t action;
	uint32_t type, op;
	int32_t root; /* member; for reduce and publish the number of slices */
	uint64_t count, bytes;
	char name[DDP_CALL_NAME];
};

enum ddp_state { DDP_MEMBER_NONE, DDP_MEMBER_JOINED, DDP_MEMBER_LEFT };

/* Data of one member, which only that member writes, except [sleepers]. */
struct ddp_slot {
	struct ddp_line lines[DDP_LINES];
	_Alignas(
		DDP_SEPARATION) _Atomic uint32_t sleepers; /* a member sleeps on one of the lines */
	_Alignas(DDP_SEPARATION) struct ddp_notice notices[DDP_LINES];
	_Alignas(DDP_SEPARATION) _Atomic uint32_t state;
	_Atomic uint32_t away; /* the member is waiting for other groups */
	int32_t pid;
	uint64_t start; /* start time of the process, from ddp_process_start(); 0: unknown */
	uint64_t pids;	/* pid namespace of [pid] */
	uint64_t cpus[DDP_CPU_WORDS];
	_Alignas(DDP_SEGMENT_HEAD) char buffers[DDP_BUFFERS][DDP_BUFFER_BYTES];
	char lanes[DDP_LANES][DDP_LANE_BYTES];
};

/* Follows the segment's own head; the members' slots follow it. */
struct ddp_group_head {
	uint32_t slot_bytes; /* differs if another release of libddp has another layout */
	uint32_t size;
	_Atomic uint32_t joined;
	/*
	 * Used if members do not spin: number of arrivals in all steps. The last member of a step
	 * wakes the others.
	 */
	_Alignas(DDP_SEPARATION) _Atomic uint32_t arrived;
	_Atomic uint32_t sleepers;
	_Alignas(DDP_SEPARATION) _Atomic uint32_t claimed; /* 1 once a member writes [text] */
	_Atomic int32_t aborted;			   /* the status; set after [text] */
	char text[DDP_ERROR_SIZE];
};

/* Location of a vector, published in a line. */
struct ddp_span {
	uint32_t region;   /* number of the region of send, 0: none */
	uint32_t receives; /* the same for recv */
	uint64_t at, receives_at;
	uint32_t staged; /* the first chunk is in the buffer */
	uint32_t unused;
};

struct ddp_group {
	int index, size;
	enum ddp_simd simd;
	const struct ddp_log *log;
	int *ranks;
	char *host, *directory;
	struct ddp_segment segment;
	/* member 0 only, until all members have attached; NULL: none */
	struct ddp_passing *passing;
	int passing_errno; /* member 0 only: error if there is no socket; 0: no directory */
	struct ddp_group_head *head;
	struct ddp_slot **slots;
	struct ddp_region *regions;
	uint32_t region_count; /* number of regions ever created */
	bool spins;

	uint32_t step;		     /* the last one that this member published */
	uint64_t digest;	     /* of the current call */
	const struct ddp_call *call; /* NULL outside of calls */
	uint32_t first;		     /* first step of the call */
	size_t expected; /* bytes of the next step's buffer that will probably be written */

	/* State between reduce and publish. */
	uint32_t lane;
	bool direct; /* the vectors are in regions, at [place] */
	struct ddp_span place;

	int *pidfds; /* opened, or received by passing.c; -1: not opened, -2: not possible */
	int *links;  /* connections of passing.c between member 0 and the others; -1: none */
	struct pollfd *polls;
	const void **from; /* [size] elements, for kernels */
	void **to;
};

/* --- lockstep.c -------------------------------------------------------------------------- */

/*
 * Start a call. Its digest is published in each line from here on.
 * Returns 0, or the error that has ended the group.
 */
int ddp_call_begin(struct ddp_group *group, const struct ddp_call *call, enum ddp_action action,
		   size_t bytes, int root, struct ddp_error *error);

/* End the call. Returns [status]. */
static inline int ddp_call_end(struct ddp_group *group, int status)
{
	group->call = NULL;
	return status;
}

/* This member's line of the next step; its payload is to be written. */
static inline struct ddp_line *ddp_step_line(struct ddp_group *group)
{
	return &group->slots[group->index]->lines[(group->step + 1) % DDP_LINES];
}

_Static_assert((UINT64_C(1) << 32) % DDP_LINES == 0 && (UINT64_C(1) << 32) % DDP_BUFFERS == 0 &&
		       (UINT64_C(1) << 32) % DDP_LANES == 0,
	       "the numbers of lines, buffers and lanes divide 2^32, where steps wrap");

/* [member]'s buffer of [step]. A member writes its own buffer of the next step. */
static inline char *ddp_step_buffer(struct ddp_group *group, int member, uint32_t step)
{
	return group->slots[member]->buffers[step % DDP_BUFFERS];
}

/*
 * Publish the next step and wait for all other members. Returns 0, or an error that ended the
 * group.
 */
int ddp_step(struct ddp_group *group, const struct ddp_watch *watch, struct ddp_error *error);

/* [member]'s line of the last step. */
static inline const struct ddp_line *ddp_step_other(struct ddp_group *group, int member)
{
	return &group->slots[member]->lines[group->step % DDP_LINES];
}

/* Wait until all members have joined. */
int ddp_wait_joined(struct ddp_group *group, const struct ddp_watch *watch,
		    struct ddp_error *error);

/* --- segment.c --------------------------------------------------------------------------- */

/*
 * Create a segment of [bytes] zero bytes, mapped at a multiple of [alignment], and its [ticket].
 * Returns 0 or DDP_ERR_SYSTEM.
 */
int ddp_segment_create(struct ddp_segment *segment, const struct ddp_group *group, size_t bytes,
		       size_t alignment, char ticket[DDP_GROUP_TICKET], struct ddp_error *error);

/*
 * Map the segment of [ticket], and check by its token that it is the right one.
 * Returns 0; DDP_ERR_SYSTEM with a text that names the failure and a remedy; DDP_ERR_PEER if its
 * creator has ended; or the watch's error.
 */
int ddp_segment_attach(struct ddp_segment *segment, struct ddp_group *group, const char *ticket,
		       size_t alignment, const struct ddp_watch *watch, struct ddp_error *error);

/* Close the descriptor once every member has mapped the segment. This invalidates the ticket. */
void ddp_segment_seal(struct ddp_segment *segment);

/* Unmap and close the segment. Legal for one that is not open. */
void ddp_segment_close(struct ddp_segment *segment);

/*
 * Get the start time of process [pid], in clock ticks since boot.
 * Returns 0; -ESRCH if the process does not exist or all of its threads have ended; or another
 * -errno, which does not indicate the state of the process (-EMFILE, for example).
 */
int ddp_process_start(int pid, uint64_t *start);

/* Returns a pidfd of process [pid], or -1 with errno (ENOSYS before Linux 5.3). */
int ddp_pidfd_open(int pid);

/* Whether [fd] is in the lower half of descriptors. The other half is left to the program. */
bool ddp_is_low_descriptor(int fd);

/*
 * Allocate the pages of [bytes] at [memory] now, new ones on the NUMA node of the calling thread.
 * Returns 0 or DDP_ERR_MEMORY.
 */
int ddp_segment_touch(void *memory, size_t bytes, struct ddp_error *error);

/* The segment's token, two random words in its memory. */
const uint64_t *ddp_segment_token(const struct ddp_segment *segment);

/* Number of this process's pid namespace; 0: unknown. */
uint64_t ddp_pid_namespace(void);

/* --- passing.c --------------------------------------------------------------------------- */

/*
 * On member 0: listen in [directory] for [members].
 * Returns NULL with errno if that is not possible; members then can use only /proc.
 */
struct ddp_passing *ddp_passing_listen(const char *directory, int members);
const struct ddp_socket *ddp_passing_socket(const struct ddp_passing *passing);

/* Stop listening and remove the socket's name. Connections to members stay open. NULL is legal. */
void ddp_passing_close(struct ddp_passing *passing);

/*
 * On another member: connect to [socket], store the connection in group->links, and receive the
 * memory with [token].
 * Returns its descriptor; DDP_ERR_SYSTEM with errno; or the watch's error.
 */
int ddp_passing_connect(struct ddp_group *group, const struct ddp_socket *socket,
			const uint64_t token[2], const struct ddp_watch *watch,
			struct ddp_error *error);

/*
 * Send the descriptor of the memory with [token] over a connection, or receive it from member 0,
 * without waiting.
 * Return 0, or the descriptor; -1 with errno.
 */
int ddp_passing_send(int link, const uint64_t token[2], int fd);
int ddp_passing_receive(struct ddp_group *group, const uint64_t token[2]);

/* --- group.c ---------------------------------------------------------------------------- */

/* Find [bytes] at [send] and at [recv] in the group's regions. */
struct ddp_span ddp_span_find(const struct ddp_group *group, const void *send, const void *recv,
			      size_t bytes);

/* Address of offset [at] in [member]'s part of region [number]. */
char *ddp_span_memory(const struct ddp_group *group, uint32_t number, int member, uint64_t at);

#endif /* DDP_LOCAL_GROUP_PRIVATE_H */
