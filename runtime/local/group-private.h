/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group-private.h - layout of a group's shared memory, and functions shared by the files of local/
 *
 * Members proceed in steps. In each step, every member publishes one line (struct ddp_line) and
 * waits for the lines of all other members. A collective takes one or more steps. Therefore no
 * member is more than one step ahead of another:
 *
 *   - A member writes its line and notice (struct ddp_notice) of step s before it publishes s.
 *     Others read them until they publish s+1. The member reuses their memory for step s+2, after
 *     all members have published s+1. So each member needs two lines and two notices.
 *   - Others can read a buffer of step s until they publish s+2, because a staged all-reduce reads
 *     the results of s after s+1. The member could reuse the buffer for step s+3. So three
 *     buffers would be enough, but there are four: step numbers wrap, so the number of buffers must
 *     divide 2^32.
 */
#ifndef DDP_LOCAL_GROUP_PRIVATE_H
#define DDP_LOCAL_GROUP_PRIVATE_H

#include <stdatomic.h>
#include <string.h>

#include "base/fork.h"
#include "base/keyed-hash.h"
#include "group.h"

enum {
	DDP_LINES = 2,
	DDP_BUFFERS = 4,
	/* number of lanes of a member: shared memory for the two halves of an all-reduce */
	DDP_LANES = 2,
	DDP_LINE_PAYLOAD = 48,
	DDP_SEPARATION = 128, /* bytes between data of different writers: two cache lines */
	DDP_ALIGN = 64,	      /* alignment of slices, in bytes */
	DDP_CALL_NAME = 120,
	DDP_CPU_WORDS = 64, /* 64-bit words of a CPU set: 4096 CPUs */
	DDP_SEGMENT_HEAD = 4096,
	DDP_BUFFER_BYTES = 128 << 10,
	/* bytes of a lane, which holds one piece of an all-reduce in two halves */
	DDP_LANE_BYTES = 8 << 20,
	/*
	 * Bytes of the longest vector that every member reduces as a whole, which saves a step. The
	 * limit depends on whether waiting members spin or sleep.
	 */
	DDP_SHORT_SPINNING = 4 << 10,
	DDP_SHORT_SLEEPING = 8 << 10,
};

struct ddp_segment {
	char *base; /* NULL if the segment is not open */
	size_t bytes;
	/* descriptor in the creator until the other members have mapped the segment; else -1 */
	int fd;
	/* [base] is the creator's mapping, which threads of the creator's process share */
	bool shared;
};

/* Socket through which member 0 passes descriptors. It is a file in the rendezvous directory. */
struct ddp_socket {
	char name[24]; /* "": none */
	uint8_t secret[DDP_HASH_SIZE];
};

struct ddp_passing;

/* Kind of a call. All members must make a call of the same kind with the same struct ddp_call. */
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
	/* published step, which is stored last; also the word of the futex */
	_Alignas(DDP_SEPARATION) _Atomic uint32_t step;
	uint32_t sequence; /* number of the collective */
	uint64_t digest;   /* hash of the call */
	char payload[DDP_LINE_PAYLOAD];
};

/* Description of the call, for messages. Only the digest and the number in the line are compared. */
struct ddp_notice {
	uint64_t digest;
	uint32_t action, kind;
	uint32_t type, op;
	/* member number of the root; number of slices in the two halves of an all-reduce */
	int32_t root;
	uint64_t count, bytes;
	char name[DDP_CALL_NAME];
};

enum ddp_state { DDP_MEMBER_NONE, DDP_MEMBER_JOINED, DDP_MEMBER_LEFT };

/* Data of one member. Only that member writes it, except [sleepers]. */
struct ddp_slot {
	struct ddp_line lines[DDP_LINES];
	/* not 0 if another member sleeps until a line of this member changes */
	_Alignas(DDP_SEPARATION) _Atomic uint32_t sleepers;
	_Alignas(DDP_SEPARATION) struct ddp_notice notices[DDP_LINES];
	_Alignas(DDP_SEPARATION) _Atomic uint32_t state;
	_Atomic uint32_t away;	 /* not 0 while this member waits for other groups */
	_Atomic uint32_t checks; /* number of times that this member has checked its own wait */
	int32_t pid;
	uint64_t start; /* start time of the process, from ddp_process_start(), or 0 if unknown */
	uint64_t pids;	/* pid namespace of [pid] */
	uint64_t cpus[DDP_CPU_WORDS];
	_Alignas(DDP_SEGMENT_HEAD) char buffers[DDP_BUFFERS][DDP_BUFFER_BYTES];
	char lanes[DDP_LANES][DDP_LANE_BYTES];
};

/* Head of a group. It follows the segment's own head, and precedes the members' slots. */
struct ddp_group_head {
	/* size of a slot; it differs between releases of libddp whose layouts differ */
	uint32_t slot_bytes;
	uint32_t size;
	_Atomic uint32_t joined;
	/*
	 * Number of arrivals in all steps, if members do not spin. The last member to arrive in a
	 * step wakes the others.
	 */
	_Alignas(DDP_SEPARATION) _Atomic uint32_t arrived;
	_Atomic uint32_t sleepers;
	/* set to 1 by the member that writes [text] */
	_Alignas(DDP_SEPARATION) _Atomic uint32_t claimed;
	_Atomic int32_t aborted; /* the status; set after [text] */
	char text[DDP_ERROR_SIZE];
};

/* Location of a vector in shared memory, as published in a line. */
struct ddp_span {
	uint32_t region;	  /* number of the region with the vector to send; 0: none */
	uint32_t receives;	  /* number of the region for the result; 0: none */
	uint64_t at, receives_at; /* offsets in these regions */
	uint32_t staged;	  /* the first chunk of the vector is in the buffer */
	uint32_t unused;
};

struct ddp_group {
	int index, size;
	enum ddp_simd simd;
	const struct ddp_log *log;
	int *ranks;
	char *host, *directory;
	struct ddp_segment segment;
	/* listener of member 0 until all members have attached; else NULL */
	struct ddp_passing *passing;
	/* why member 0 has no socket: an errno, or 0 if there is no directory for it */
	int passing_errno;
	struct ddp_group_head *head;
	struct ddp_slot **slots;
	struct ddp_region *regions;
	uint32_t region_count; /* number of regions ever created */
	bool spins;

	uint32_t step;		     /* last step that this member published */
	uint64_t digest;	     /* hash of the current call */
	uint32_t sequence;	     /* number of the current call's collective */
	const struct ddp_call *call; /* current call, or NULL */
	uint32_t first;		     /* first step of the call */
	/*
	 * [checks] is the sum of the missing members' checks, computed in the call that began with
	 * [checked_step]
	 */
	uint32_t checks, checked_step;
	uint64_t checked; /* awake time at which the sum last changed in this call */
	/* bytes that this member will probably write to the next step's buffer */
	size_t expected;

	/* The next three members are kept from ddp_group_reduce() to ddp_group_publish(). */
	uint32_t lane;
	bool direct; /* the vectors are in regions; [place] is their location */
	struct ddp_span place;

	int *pidfds; /* pidfd of each member's process; -1: not opened, -2: not possible */
	int *links;  /* connections of passing.c, all to or from member 0; -1: none */
	struct pollfd *polls;
	const void **from; /* [size] pointers to source vectors, for kernels */
	void **to;
};

/* --- lockstep.c -------------------------------------------------------------------------- */

/*
 * Start a call. Until the next call, each line of this member contains the digest of [call].
 * Returns 0, or the error that has ended the group.
 */
int ddp_call_begin(struct ddp_group *group, const struct ddp_call *call, enum ddp_action action,
		   size_t bytes, int root, struct ddp_error *error);

/* End the current call. Returns [status]. */
static inline int ddp_call_end(struct ddp_group *group, int status)
{
	group->call = NULL;
	return status;
}

/* Returns this member's line for the next step. The caller must write the payload of the line. */
static inline struct ddp_line *ddp_step_line(struct ddp_group *group)
{
	return &group->slots[group->index]->lines[(group->step + 1) % DDP_LINES];
}

_Static_assert((UINT64_C(1) << 32) % DDP_LINES == 0 && (UINT64_C(1) << 32) % DDP_BUFFERS == 0 &&
		       (UINT64_C(1) << 32) % DDP_LANES == 0,
	       "the numbers of lines, buffers and lanes divide 2^32, where steps wrap");

/* Returns [member]'s buffer for [step]. A member writes only to its own buffer of the next step. */
static inline char *ddp_step_buffer(struct ddp_group *group, int member, uint32_t step)
{
	return group->slots[member]->buffers[step % DDP_BUFFERS];
}

/*
 * Publish this member's next step, and wait until all other members have published it. Returns 0,
 * or an error. An error ends the group.
 */
int ddp_step(struct ddp_group *group, const struct ddp_watch *watch, struct ddp_error *error);

/* Returns the line of [member] for the step that all members have published last. */
static inline const struct ddp_line *ddp_step_other(struct ddp_group *group, int member)
{
	return &group->slots[member]->lines[group->step % DDP_LINES];
}

int ddp_wait_joined(struct ddp_group *group, const struct ddp_watch *watch,
		    struct ddp_error *error);

/* --- segment.c --------------------------------------------------------------------------- */

/*
 * Create a segment of [bytes] zero bytes, mapped at a multiple of [alignment]. Write a ticket to
 * [ticket], a text with which other members can map the segment.
 * Returns 0 or DDP_ERR_SYSTEM.
 */
int ddp_segment_create(struct ddp_segment *segment, const struct ddp_group *group, size_t bytes,
		       size_t alignment, char ticket[DDP_GROUP_TICKET], struct ddp_error *error);

/*
 * Map the segment of [ticket], and check that the segment contains the ticket's token.
 * Returns 0; DDP_ERR_SYSTEM with a text that has the failure and a remedy; DDP_ERR_PEER if the
 * segment's creator has ended; or the watch's error.
 */
int ddp_segment_attach(struct ddp_segment *segment, struct ddp_group *group, const char *ticket,
		       size_t alignment, const struct ddp_watch *watch, struct ddp_error *error);

/* Close the descriptor once every member has mapped the segment. The ticket becomes invalid. */
void ddp_segment_seal(struct ddp_segment *segment);

/* Unmap and close the segment. Do nothing if it is not open. */
void ddp_segment_close(struct ddp_segment *segment);

/*
 * Set [start] to the start time of process [pid], in clock ticks since boot.
 * Returns 0. Returns -ESRCH if the process does not exist or all of its threads have ended. Returns
 * another -errno, such as -EMFILE, if the state of the process could not be read.
 */
int ddp_process_start(int pid, uint64_t *start);

/* Returns a pidfd of process [pid], or -1 with errno set. Before Linux 5.3, errno is ENOSYS. */
int ddp_pidfd_open(int pid);

/*
 * Returns whether [fd] is in the lower half of the possible descriptors. libddp uses only the lower
 * half, and leaves the upper half to the program.
 */
bool ddp_is_low_descriptor(int fd);

/*
 * Allocate the pages of [bytes] at [memory] now. New pages are on the NUMA node of the calling
 * thread. Returns 0 or DDP_ERR_MEMORY.
 */
int ddp_segment_touch(void *memory, size_t bytes, struct ddp_error *error);

/* Returns the token of the segment: two random words that are stored in the segment. */
const uint64_t *ddp_segment_token(const struct ddp_segment *segment);

/* Returns the number of this process's pid namespace, or 0 if it is unknown. */
uint64_t ddp_pid_namespace(void);

/* --- passing.c --------------------------------------------------------------------------- */

/*
 * On member 0, create a socket in [directory] on which [members] can connect.
 * Returns NULL with errno set if that is not possible. In this case members can map the memory only
 * through /proc.
 */
struct ddp_passing *ddp_passing_listen(const char *directory, int members);
const struct ddp_socket *ddp_passing_socket(const struct ddp_passing *passing);

/*
 * Stop listening, and remove the socket from the directory. Connections to members stay open.
 * [passing] may be NULL.
 */
void ddp_passing_close(struct ddp_passing *passing);

/*
 * On a member other than 0, connect to [socket], store the connection in group->links, and receive
 * the memory with [token].
 * Returns the memory's descriptor; DDP_ERR_SYSTEM with errno set; or the watch's error.
 */
int ddp_passing_connect(struct ddp_group *group, const struct ddp_socket *socket,
			const uint64_t token[2], const struct ddp_watch *watch,
			struct ddp_error *error);

/*
 * ddp_passing_send() sends the descriptor [fd] of the memory with [token] over the connection
 * [link]. Returns 0, or -1 with errno. ddp_passing_receive() receives such a descriptor from member
 * 0, and returns it, or -1 with errno. Neither function waits.
 */
int ddp_passing_send(int link, const uint64_t token[2], int fd);
int ddp_passing_receive(struct ddp_group *group, const uint64_t token[2]);

/* --- group.c ---------------------------------------------------------------------------- */

/* Returns the location of [bytes] at [send] and at [recv] in the group's regions. */
struct ddp_span ddp_span_find(const struct ddp_group *group, const void *send, const void *recv,
			      size_t bytes);

/* Returns the address of offset [at] in [member]'s part of region [number]. */
char *ddp_span_memory(const struct ddp_group *group, uint32_t number, int member, uint64_t at);

#endif /* DDP_LOCAL_GROUP_PRIVATE_H */
