/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - groups of ranks that share memory
 *
 * local/ implements a group's memory and its collectives. It calls base/ only, and the caller's
 * watch. Start reading in group-private.h, whose opening comment is the protocol, then lockstep.c
 * (waits) and reduce.c (collectives).
 *
 * A group has one memory segment (a memfd, so that nothing remains after a crash), which each
 * member maps. Members are numbered from 0 to size-1 in the order of their world ranks. They are
 * processes, or threads of one process with a handle each.
 *
 * All members make the same calls in the same order. Each call is described in the member's slot,
 * so that members that make different calls are detected (DDP_ERR_MISMATCH, naming both), and
 * members that are missing are named (DDP_ERR_TIMEOUT, DDP_ERR_PEER).
 *
 * Waiting: if each member has its own CPU, spin briefly, else yield the CPU briefly; then sleep on
 * a futex for at most DDP_WATCH_PERIOD at a time, checking the watch in between. A member whose
 * process has ended, or is a zombie, is detected through a pidfd or, if this process has used half
 * of its descriptors, through /proc.
 */
#ifndef DDP_LOCAL_GROUP_H
#define DDP_LOCAL_GROUP_H

#include "base/kernel.h"
#include "base/log.h"
#include "base/watch.h"

struct ddp_group;

enum { DDP_GROUP_TICKET = 256 };

struct ddp_group_options {
	int index, size;  /* in the group */
	const int *ranks; /* world rank of each member, for messages; copied */
	const char *host; /* for messages; copied */

	/*
	 * Directory shared by the members, for a socket that passes descriptors between containers;
	 * NULL or "": none; copied.
	 */
	const char *directory;
	/* On member 0: make the directory if it is missing. Returns 0 or DDP_ERR_x. NULL: none. */
	int (*make_directory)(void *owner);
	void *owner; /* argument of make_directory() */
	enum ddp_simd simd;
	const struct ddp_log *log;
};

/* Description of a call, for comparison and for messages. */
struct ddp_call {
	uint32_t kind; /* chosen by the caller: all-reduce, broadcast, ... */
	uint32_t type, op;
	uint64_t count;
	uint64_t sequence; /* number of the collective in the world, for messages */
	const char *name;  /* "all-reduce", for messages */
};

/*
 * On member 0: create the segment, and write to [ticket] what other members need to map it.
 * Returns 0 with [group].
 */
int ddp_group_create(struct ddp_group **group, const struct ddp_group_options *options,
		     char ticket[DDP_GROUP_TICKET], struct ddp_error *error);

/*
 * On the other members: map the segment of [ticket], and check that it is the right one. Meanwhile
 * member 0 must call ddp_group_serve() or ddp_group_meet().
 * Returns 0; DDP_ERR_SYSTEM naming both ranks, the failure and a remedy; DDP_ERR_PEER if member 0
 * has ended; or the watch's error.
 */
int ddp_group_attach(struct ddp_group **group, const struct ddp_group_options *options,
		     const char *ticket, const struct ddp_watch *watch, struct ddp_error *error);

/*
 * On member 0: pass the memory to members that connect, until all have attached, for at most
 * [nanoseconds].
 * Returns whether all have attached.
 */
bool ddp_group_serve(struct ddp_group *group, uint64_t nanoseconds);

/* On member 0: stop listening for members, and remove the socket from the directory. */
void ddp_group_stop_serving(struct ddp_group *group);

/* Set the members' world ranks, if member 0 did not know them at creation. */
void ddp_group_rename(struct ddp_group *group, const int *ranks);

/* Wait until all members have attached. Afterwards no member needs another's descriptor. */
int ddp_group_meet(struct ddp_group *group, const struct ddp_watch *watch, struct ddp_error *error);

/* Unmap and close. Not collective. NULL is legal. */
void ddp_group_destroy(struct ddp_group *group);

/*
 * Mark this member as ended cleanly: from here on, its process may end without being reported as
 * lost.
 */
void ddp_group_leave(struct ddp_group *group);

/*
 * Announce that this member waits for other groups (true) or no longer does (false). Members that
 * wait for it meanwhile extend their deadline by another time limit and some seconds, since it will
 * report the missing rank.
 */
void ddp_group_away(struct ddp_group *group, bool away);

/*
 * End the group: all members' waits return [status] and [text]. Only the first call has an effect.
 * May be called in any thread of any member.
 */
void ddp_group_abort(struct ddp_group *group, int status, const char *text);

/* If a member has aborted, returns its status (<0) with its text, else 0. Quick. */
int ddp_group_aborted(const struct ddp_group *group, struct ddp_error *error);

/*
 * Check the processes of members that have not left. Returns 0, or DDP_ERR_PEER naming one that has
 * ended. Takes a few microseconds. Calls that wait check by themselves; a watch thread may call this
 * while the program computes.
 */
int ddp_group_check_members(struct ddp_group *group, struct ddp_error *error);

/*
 * Create a further segment with [bytes] for each member. Parts are zeroed, and aligned to 2 MiB if
 * large. ddp_region_part() returns the address at which this member has mapped a part. Collective.
 */
struct ddp_region;
int ddp_region_create(struct ddp_region **region, struct ddp_group *group, size_t bytes,
		      const struct ddp_watch *watch, struct ddp_error *error);

/*
 * As ddp_region_create(), but pages are allocated on first use: for memory that may remain unused.
 */
int ddp_region_reserve(struct ddp_region **region, struct ddp_group *group, size_t bytes,
		       const struct ddp_watch *watch, struct ddp_error *error);
void *ddp_region_part(const struct ddp_region *region, int member);
void ddp_region_destroy(struct ddp_region *region); /* not collective; NULL is legal */

/*
 * Find the region of [group] with [bytes] at [pointer] in this member's part, and the [offset] in
 * the part. Returns NULL if there is none.
 */
struct ddp_region *ddp_region_find(const struct ddp_group *group, const void *pointer, size_t bytes,
				   size_t *offset);

/* Collectives of the group. Data in a region is not copied to buffers. */
int ddp_group_barrier(struct ddp_group *group, const struct ddp_call *call,
		      const struct ddp_watch *watch, struct ddp_error *error);
int ddp_group_all_reduce(struct ddp_group *group, const struct ddp_call *call, const void *send,
			 void *recv, double scale, const struct ddp_watch *watch,
			 struct ddp_error *error);
int ddp_group_broadcast(struct ddp_group *group, const struct ddp_call *call, void *data,
			size_t bytes, int root, const struct ddp_watch *watch,
			struct ddp_error *error);
int ddp_group_all_gather(struct ddp_group *group, const struct ddp_call *call, const void *send,
			 void *recv, size_t bytes, const struct ddp_watch *watch,
			 struct ddp_error *error);

/*
 * An all-reduce in two halves, between which slices can be summed over all groups. The vector is
 * divided into [slices]; slice s belongs to member s (s < slices <= size).
 *   1. ddp_group_reduce() puts the group's sum of the caller's slice into [slice], [count]
 *      elements.
 *   2. The caller may replace it by the sum over all groups.
 *   3. ddp_group_publish() copies every slice to every member's [recv].
 * Long vectors are processed in pieces, which are the same in all groups: repeat until [done].
 */
struct ddp_group_pass {
	const struct ddp_call *call;
	const void *send;
	void *recv;
	double scale; /* applied by publish */
	int slices;

	size_t at;    /* bytes done so far, initially 0 */
	void *slice;  /* in the group's memory; NULL if this member owns none */
	size_t count; /* of [slice], in elements */
	bool done;
};
int ddp_group_reduce(struct ddp_group *group, struct ddp_group_pass *pass,
		     const struct ddp_watch *watch, struct ddp_error *error);
int ddp_group_publish(struct ddp_group *group, struct ddp_group_pass *pass,
		      const struct ddp_watch *watch, struct ddp_error *error);

/* Whether members spin; for tests. */
bool ddp_group_spins(const struct ddp_group *group);

#endif /* DDP_LOCAL_GROUP_H */
