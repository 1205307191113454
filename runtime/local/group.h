/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - groups of ranks that share memory
 *
 * local/ implements a group's memory and its collectives. It calls only base/ and the check() of
 * the caller's watch. Start reading in group-private.h, whose opening comment is the protocol, then
 * lockstep.c (waits) and reduce.c (collectives).
 *
 * A group has one memory segment, which each member maps. The segment is a memfd, so that nothing
 * remains after a crash. Members are numbered from 0 to size-1 in the order of their world ranks. A
 * member is a process, or a thread that has its own handle.
 *
 * All members make the same calls in the same order. Each member describes its call in shared
 * memory. If two members make different calls, both get DDP_ERR_MISMATCH, which names both. A
 * missing member is named by DDP_ERR_TIMEOUT or DDP_ERR_PEER.
 *
 * A waiting member spins briefly if each member has its own CPU; otherwise it briefly yields its
 * CPU. Then it sleeps on a futex, at most DDP_WATCH_PERIOD at a time, and checks the watch after
 * each sleep. It detects through a pidfd that another member's process has ended, even if that
 * process is a zombie. If this process has used half of its descriptors, it reads /proc instead.
 */
#ifndef DDP_LOCAL_GROUP_H
#define DDP_LOCAL_GROUP_H

#include "base/kernel.h"
#include "base/log.h"
#include "base/watch.h"

struct ddp_group;

enum { DDP_GROUP_TICKET = 256 };

struct ddp_group_options {
	int index, size;  /* this member's number in the group; number of members */
	const int *ranks; /* world rank of each member, for messages; copied */
	const char *host; /* this node's name, for messages; copied */

	/*
	 * Directory that all members see. It gets a socket that passes descriptors between
	 * containers. NULL or "": no socket. Copied.
	 */
	const char *directory;
	/*
	 * Called on member 0 to make the directory if it is missing. Returns 0 or DDP_ERR_x. May be
	 * NULL.
	 */
	int (*make_directory)(void *owner);
	void *owner; /* argument of make_directory() */
	enum ddp_simd simd;
	const struct ddp_log *log;
};

/* Description of a call: members compare it, and messages contain it. */
struct ddp_call {
	uint32_t kind; /* number chosen by the caller for all-reduce, broadcast, ... */
	uint32_t type, op;
	uint64_t count;
	uint64_t sequence; /* number of the collective in the world */
	const char *name;  /* "all-reduce", for messages */
};

/*
 * On member 0: create the segment, and write to [ticket] the text with which other members can map
 * it. Returns 0 with [group], or a DDP_ERR_x.
 */
int ddp_group_create(struct ddp_group **group, const struct ddp_group_options *options,
		     char ticket[DDP_GROUP_TICKET], struct ddp_error *error);

/*
 * On the other members, map the segment of [ticket], and check that it is the right one. While a
 * member does this, member 0 must call ddp_group_serve() or ddp_group_meet().
 * Returns 0; DDP_ERR_SYSTEM with a text that has both ranks, the failure and a remedy; DDP_ERR_PEER
 * if member 0 has ended; or the watch's error.
 */
int ddp_group_attach(struct ddp_group **group, const struct ddp_group_options *options,
		     const char *ticket, const struct ddp_watch *watch, struct ddp_error *error);

/*
 * On member 0, pass the memory to members that connect, until all members have attached, but at
 * most for [nanoseconds].
 * Returns whether all members have attached.
 */
bool ddp_group_serve(struct ddp_group *group, uint64_t nanoseconds);

/* On member 0, stop listening for members, and remove the socket from the directory. */
void ddp_group_stop_serving(struct ddp_group *group);

/* Set the members' world ranks. Needed if member 0 did not know them when it created the group. */
void ddp_group_rename(struct ddp_group *group, const int *ranks);

/*
 * Wait until all members have attached. After that, no member needs a descriptor of another member.
 */
int ddp_group_meet(struct ddp_group *group, const struct ddp_watch *watch, struct ddp_error *error);

/* Unmap the group's memory and free [group], which may be NULL. Not collective. */
void ddp_group_destroy(struct ddp_group *group);

/*
 * Mark this member as ended cleanly. From then on, other members do not report it as lost when its
 * process ends.
 */
void ddp_group_leave(struct ddp_group *group);

/*
 * Announce that this member waits for other groups ([away] is true), or no longer does. Meanwhile,
 * members that wait for this one wait past their deadline, since this member will report the
 * missing rank. They stop if this member has not checked its own wait within the time limit.
 */
void ddp_group_away(struct ddp_group *group, bool away);

/*
 * End the group: all members' waits return [status] and [text]. Only the first call has an effect.
 * Any thread of any member may call this.
 */
void ddp_group_abort(struct ddp_group *group, int status, const char *text);

/*
 * If a member has aborted, returns its status (<0), with its text in [error]; else 0. Takes little
 * time.
 */
int ddp_group_aborted(const struct ddp_group *group, struct ddp_error *error);

/*
 * Check whether another member refuses a collective on device memory that this member has started,
 * and which therefore cannot end. [made] is the number of such collectives of this member. The
 * other member has announced a refusal (ddp_call_is_refusal()) as its next call, with a smaller
 * number in [count]. Call this only between calls of the group.
 * Returns 0, or DDP_ERR_MISMATCH with the member and its call.
 */
int ddp_group_check_refusals(const struct ddp_group *group, uint64_t made, struct ddp_error *error);

/*
 * Check the processes of members that have not left. Returns 0, or DDP_ERR_PEER with a member that
 * has ended. Takes a few microseconds. Collectives do this while they wait. A watch thread is
 * allowed to call this function while the program computes.
 */
int ddp_group_check_members(struct ddp_group *group, struct ddp_error *error);

/*
 * Create a region: a further segment, which has a part of [bytes] for each member. Parts are
 * zeroed, and large parts are aligned to 2 MiB. ddp_region_part() returns the address of a part in
 * this member's mapping. Collective.
 */
struct ddp_region;
int ddp_region_create(struct ddp_region **region, struct ddp_group *group, size_t bytes,
		      const struct ddp_watch *watch, struct ddp_error *error);

/*
 * As ddp_region_create(), but pages are allocated on first use. For memory that may remain unused.
 */
int ddp_region_reserve(struct ddp_region **region, struct ddp_group *group, size_t bytes,
		       const struct ddp_watch *watch, struct ddp_error *error);
void *ddp_region_part(const struct ddp_region *region, int member);
void ddp_region_destroy(struct ddp_region *region); /* not collective; NULL is legal */

/*
 * Find the region of [group] whose part of this member contains [bytes] at [pointer]. [offset] gets
 * their offset in the part. Returns NULL if there is no such region.
 */
struct ddp_region *ddp_region_find(const struct ddp_group *group, const void *pointer, size_t bytes,
				   size_t *offset);

/* Collectives of the group. Data in a region is used in place; other data is copied to buffers. */
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
 * State of an all-reduce in two halves. Between the halves, the caller can sum over all groups. A
 * long vector is processed in pieces, which are the same in all groups. Each piece is divided into
 * [slices]; slice s belongs to member s (s < slices <= size). Repeat these steps until [done]:
 *   1. ddp_group_reduce() sums this member's slice over the group, and sets [slice] to the sums and
 *      [count] to their number.
 *   2. The caller can replace the sums over the group by the sums over all groups.
 *   3. ddp_group_publish() copies every slice to every member's [recv].
 */
struct ddp_group_pass {
	const struct ddp_call *call;
	const void *send;
	void *recv;
	double scale; /* factor that ddp_group_publish() applies */
	int slices;

	size_t at;    /* number of elements that are done; initially 0 */
	void *slice;  /* this member's slice, in the group's memory; NULL if it has none */
	size_t count; /* number of elements of [slice] */
	bool done;
};
int ddp_group_reduce(struct ddp_group *group, struct ddp_group_pass *pass,
		     const struct ddp_watch *watch, struct ddp_error *error);
int ddp_group_publish(struct ddp_group *group, struct ddp_group_pass *pass,
		      const struct ddp_watch *watch, struct ddp_error *error);

/* Returns whether waiting members spin. Used by tests. */
bool ddp_group_spins(const struct ddp_group *group);

#endif /* DDP_LOCAL_GROUP_H */
