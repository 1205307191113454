/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - ranks that share memory
 *
 * A group is one memory segment (a memfd, so that nothing is left behind whatever happens),
 * mapped by each member. Members are numbered 0 to size-1 by their order in the world; they are
 * processes, or threads of one process (then each has a handle of its own).
 *
 * All members make the same calls in the same order. Each call publishes what it is in the
 * member's slot, so that members which disagree are told apart (DDP_ERR_MISMATCH, naming both),
 * and who has not come is known (DDP_ERR_TIMEOUT, DDP_ERR_PEER, naming it).
 *
 * Waiting: a short spin where the members have a CPU each, else the CPU is given to others for a
 * moment; then a futex in pieces of at most DDP_WATCH_PERIOD, with the watch looked at in between.
 * A member whose process has ended, or is a zombie, is noticed by a pidfd, or, if this process has
 * used half of its descriptors, by /proc.
 */
#ifndef DDP_LOCAL_GROUP_H
#define DDP_LOCAL_GROUP_H

#include "base/log.h"
#include "base/watch.h"
#include "kernel.h"

struct ddp_group;

enum { DDP_GROUP_TICKET = 128 };

struct ddp_group_options {
	int index, size;  /* in the group */
	const int *ranks; /* world rank of each member, for messages; copied */
	const char *host; /* for messages; copied */
	enum ddp_simd simd;
	const struct ddp_log *log;
};

/* What a call is, for comparison and for messages. */
struct ddp_call {
	uint32_t kind; /* of the caller's choice: all-reduce, broadcast, ... */
	uint32_t type, op;
	uint64_t count;
	uint64_t sequence; /* the world's number of the collective, for messages */
	const char *name;  /* "all-reduce", for messages */
};

/*
 * Member 0: make the segment and write into [ticket] what the others need to find it.
 * Returns 0 with [group].
 */
int ddp_group_create(struct ddp_group **group, const struct ddp_group_options *options,
		     char ticket[DDP_GROUP_TICKET], struct ddp_error *error);

/*
 * The others: map the segment of [ticket] and prove that it is the same memory.
 * Returns 0, or DDP_ERR_SYSTEM naming both ranks, what failed, and DDP_LOCAL=off as remedy.
 */
int ddp_group_attach(struct ddp_group **group, const struct ddp_group_options *options,
		     const char *ticket, struct ddp_error *error);

/* Give the members their world ranks, where member 0 did not know them yet. */
void ddp_group_rename(struct ddp_group *group, const int *ranks);

/* Wait until all members have attached; after it no member needs another's file descriptor. */
int ddp_group_meet(struct ddp_group *group, const struct ddp_watch *watch, struct ddp_error *error);

/* Unmap and close; waits for nobody. NULL is legal. */
void ddp_group_destroy(struct ddp_group *group);

/*
 * Leave word that this member ended well: from here on its process may go without being
 * taken for lost.
 */
void ddp_group_leave(struct ddp_group *group);

/*
 * Between true and false this member waits for other groups and not for this one. Those who
 * wait for it meanwhile have patience, some seconds beyond their deadline, since it will tell
 * them who is to blame.
 */
void ddp_group_away(struct ddp_group *group, bool away);

/*
 * Make everybody's waits end with DDP_ERR_ABORTED and [text], or take back nothing: the first
 * text stands. Callable from any thread of any member.
 */
void ddp_group_abort(struct ddp_group *group, int status, const char *text);

/* Whether somebody aborted: its status (<0) with the text, else 0. Quick. */
int ddp_group_aborted(const struct ddp_group *group, struct ddp_error *error);

/*
 * Look whether a member's process is gone that has not left: DDP_ERR_PEER with its name, else
 * 0. A few microseconds; waiting calls do it themselves, the owner's watch may do it elsewhere.
 */
int ddp_group_look(struct ddp_group *group, struct ddp_error *error);

/*
 * Memory of [bytes] for each member in one further segment: [memory][m] is where member m's
 * part is mapped here; parts are zeroed and 2 MiB-aligned where large. Collective.
 */
struct ddp_region;
int ddp_region_create(struct ddp_region **region, struct ddp_group *group, size_t bytes,
		      const struct ddp_watch *watch, struct ddp_error *error);

/* The same, but its pages come when they are first used: for memory that may stay unused. */
int ddp_region_reserve(struct ddp_region **region, struct ddp_group *group, size_t bytes,
		       const struct ddp_watch *watch, struct ddp_error *error);
void *ddp_region_part(const struct ddp_region *region, int member);
void ddp_region_destroy(struct ddp_region *region); /* not collective; NULL is legal */

/* Where [pointer] lies in this member's part of a region of [group]; NULL if in none. */
struct ddp_region *ddp_region_find(const struct ddp_group *group, const void *pointer, size_t bytes,
				   size_t *offset);

/* Collectives of the group. [data] may lie in a region; then nothing is copied. */
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
 * The two halves of an all-reduce with something between: [slices] of the vector, slice s
 * belongs to member s (s < slices <= size). After reduce the owner finds the group's sum of its
 * slice in [slice] (in the group's memory, [count] elements), may replace it by the sum of all
 * groups, and publish then brings every slice to every member's [recv]. Both are one call each;
 * long vectors are worked through in pieces, the same in all groups: loop until [done].
 */
struct ddp_group_pass {
	const struct ddp_call *call;
	const void *send;
	void *recv;
	double scale; /* applied by publish, after the work between */
	int slices;

	size_t at;    /* progress; 0 at first */
	void *slice;  /* of this member, NULL if it owns none */
	size_t count; /* elements in it */
	bool done;
};
int ddp_group_reduce(struct ddp_group *group, struct ddp_group_pass *pass,
		     const struct ddp_watch *watch, struct ddp_error *error);
int ddp_group_publish(struct ddp_group *group, struct ddp_group_pass *pass,
		      const struct ddp_watch *watch, struct ddp_error *error);

/* For tests: whether members spin. */
bool ddp_group_spins(const struct ddp_group *group);

#endif /* DDP_LOCAL_GROUP_H */
