/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group-private.h - the memory of a group, and the files that work on it
 *
 * Members go forward in steps. In a step each publishes one line and waits for the lines of all
 * others; a collective is one step or some. So nobody is ever more than one step ahead:
 *
 * - A line, or a notice, of step s is written before s is published and read until the reader
 *   publishes s+1. It is written again for s+2, after all have published s+1: two are enough.
 * - A buffer of step s may be read until the reader publishes s+2 (a staged all-reduce reads
 *   the results of s after s+1). It may be written again for s+3. There are four, because the
 *   number of buffers must divide 2^32: steps wrap.
 */
#ifndef DDP_LOCAL_GROUP_PRIVATE_H
#define DDP_LOCAL_GROUP_PRIVATE_H

#include <stdatomic.h>
#include <string.h>

#include "group.h"

enum {
	DDP_LINES = 2,
	DDP_BUFFERS = 4,
	DDP_LANES = 2,	    /* of the two halves of an all-reduce */
	DDP_LINE_ROOM = 48, /* bytes that travel with the line itself */
	DDP_APART = 128,    /* bytes between what different members write: two cache lines */
	DDP_ALIGN = 64,	    /* of slices */
	DDP_CALL_NAME = 24,
	DDP_CPU_WORDS = 64, /* 4096 CPUs */
	DDP_SEGMENT_HEAD = 4096,
	DDP_BUFFER_BYTES = 128 << 10,
	DDP_LANE_BYTES = 8 << 20, /* of one piece between reduce and publish */
	/* Up to here everybody reduces everything, as one step less counts for more. */
	DDP_SHORT_SPINNING = 4 << 10,
	DDP_SHORT_SLEEPING = 8 << 10,
};

struct ddp_segment {
	char *base; /* NULL: none */
	size_t bytes;
	int fd;	     /* of who made it, until the others have it; -1 */
	bool shared; /* the mapping is the one of the process that made it */
};

/* What a call does; with struct ddp_call, what members must agree on. */
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
	_Alignas(DDP_APART) _Atomic uint32_t step; /* stored last; the word to sleep on */
	uint32_t unused;
	uint64_t digest; /* of the call */
	char room[DDP_LINE_ROOM];
};

/* The call in full, for messages; [digest] alone is compared. */
struct ddp_notice {
	uint64_t digest;
	uint32_t action;
	uint32_t type, op;
	int32_t root; /* member; of reduce and publish, the number of slices */
	uint64_t count, bytes;
	char name[DDP_CALL_NAME];
};

enum ddp_state { DDP_MEMBER_NONE, DDP_MEMBER_JOINED, DDP_MEMBER_LEFT };

/* One member's; written by it alone, but for [sleepers]. */
struct ddp_slot {
	struct ddp_line lines[DDP_LINES];
	_Alignas(DDP_APART) _Atomic uint32_t sleepers; /* somebody sleeps on a line */
	_Alignas(DDP_APART) struct ddp_notice notices[DDP_LINES];
	_Alignas(DDP_APART) _Atomic uint32_t state;
	_Atomic uint32_t away; /* it waits for other groups */
	int32_t pid;
	uint64_t start; /* of the process, as ddp_process_start(); 0: unknown */
	uint64_t pids;	/* the namespace that [pid] is of */
	uint64_t cpus[DDP_CPU_WORDS];
	_Alignas(DDP_SEGMENT_HEAD) char buffers[DDP_BUFFERS][DDP_BUFFER_BYTES];
	char lanes[DDP_LANES][DDP_LANE_BYTES];
};

/* Behind the segment's own head; then a slot for each member. */
struct ddp_group_head {
	uint32_t slot_bytes; /* another libddp may have another layout */
	uint32_t size;
	_Atomic uint32_t joined;
	/* Where members do not spin: arrivals in all steps. The last one of a step wakes all. */
	_Alignas(DDP_APART) _Atomic uint32_t arrived;
	_Atomic uint32_t sleepers;
	_Alignas(DDP_APART) _Atomic uint32_t claimed; /* by the one who writes [text] */
	_Atomic int32_t aborted;		      /* the status, once [text] is there */
	char text[DDP_ERROR_SIZE];
};

/* Where a vector lies, told in a line's room. */
struct ddp_span {
	uint32_t region;   /* its number, 0: none */
	uint32_t receives; /* the same of recv */
	uint64_t at, receives_at;
	uint32_t staged; /* the first chunk is in the buffer */
	uint32_t unused;
};

struct ddp_group {
	int index, size;
	enum ddp_simd simd;
	const struct ddp_log *log;
	int *ranks;
	char *host;
	struct ddp_segment segment;
	struct ddp_group_head *head;
	struct ddp_slot **slots;
	struct ddp_region *regions;
	uint32_t region_count; /* ever made */
	bool spins;

	uint32_t step;		     /* the last one that this member published */
	uint64_t digest;	     /* of the call */
	const struct ddp_call *call; /* NULL outside of calls */
	uint32_t first;		     /* step of the call */
	size_t expected;	     /* bytes of the next step's buffer that will be wanted soon */

	/* Between reduce and publish. */
	uint32_t lane;
	bool direct; /* the vectors are in a region, at [place] */
	struct ddp_span place;

	int *pidfds; /* -1: not opened, -2: not possible */
	struct pollfd *polls;
	const void **from; /* [size], for kernels */
	void **to;
};

/* --- lockstep.c -------------------------------------------------------------------------- */

/*
 * Begin a call: its digest goes into each line from here on.
 * Returns 0, or what ended the group before.
 */
int ddp_call_begin(struct ddp_group *group, const struct ddp_call *call, enum ddp_action action,
		   size_t bytes, int root, struct ddp_error *error);

/* The call is over. Returns [status]. */
static inline int ddp_call_end(struct ddp_group *group, int status)
{
	group->call = NULL;
	return status;
}

/* This member's line of the next step, for its room. */
static inline struct ddp_line *ddp_step_line(struct ddp_group *group)
{
	return &group->slots[group->index]->lines[(group->step + 1) % DDP_LINES];
}

_Static_assert((UINT64_C(1) << 32) % DDP_LINES == 0 && (UINT64_C(1) << 32) % DDP_BUFFERS == 0 &&
		       (UINT64_C(1) << 32) % DDP_LANES == 0,
	       "the numbers of lines, buffers and lanes divide 2^32, where steps wrap");

/* [member]'s buffer of [step]: the next one's is this member's to fill. */
static inline char *ddp_step_buffer(struct ddp_group *group, int member, uint32_t step)
{
	return group->slots[member]->buffers[step % DDP_BUFFERS];
}

/* Publish the next step and wait for all others. Returns 0, or an error that ended the group. */
int ddp_step(struct ddp_group *group, const struct ddp_watch *watch, struct ddp_error *error);

/* [member]'s line of the last step. */
static inline const struct ddp_line *ddp_step_other(struct ddp_group *group, int member)
{
	return &group->slots[member]->lines[group->step % DDP_LINES];
}

/* Wait until all have joined. */
int ddp_wait_joined(struct ddp_group *group, const struct ddp_watch *watch,
		    struct ddp_error *error);

/* --- group.c ---------------------------------------------------------------------------- */

/* The place of [bytes] at [send] and [recv]. */
struct ddp_span ddp_span_find(const struct ddp_group *group, const void *send, const void *recv,
			      size_t bytes);

/* Where [at] of region [number] is in [member]'s part. */
char *ddp_span_memory(const struct ddp_group *group, uint32_t number, int member, uint64_t at);

/*
 * Find when process [pid] started, in clock ticks since boot.
 * Returns 0; -ESRCH if the process does not exist or all of its threads have ended; or another
 * -errno, which says nothing about the process (-EMFILE, for example).
 */
int ddp_process_start(int pid, uint64_t *start);

#endif /* DDP_LOCAL_GROUP_PRIVATE_H */
