/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.h - sums on devices that ranks share
 *
 * An engine between devices (device-engine.h) made of two: that of one GPU's ranks (shard-engine.h), and
 * where there are several GPUs the one between these, which only the leaders are in. Only
 * all-reduce is a turn of shard-protocol.h; broadcast and all-gather are sums with zeros.
 *
 * The world is lost once a sum fails: the first failure is kept, all ranks are told of it, then the words are
 * released until the own streams are at rest.
 */
#ifndef DDP_DEVICE_SHARDS_H
#define DDP_DEVICE_SHARDS_H

#include "cards.h"
#include "comm/ddp-private.h"
#include "passing.h"
#include "shard-engine.h"
#include "shard-protocol.h"

/* Bytes that memory of others is worked through at a time, and moves that are under way at most. */
enum { DDP_SHARDS_PIECE = 4 << 20, DDP_SHARDS_AHEAD = 512 };

/* Seconds until a stream must be at rest, after all its waits were ended. */
#define DDP_SHARDS_REST 3.0

/* Memory that all ranks have as much of. */
struct ddp_shards_memory {
	struct ddp_shards_memory *next;
	uint32_t number; /* the same on all ranks */
	size_t bytes;
	void *base;
	struct ddp_shard_memory own;	/* where it is not of the engine between GPUs */
	void *parts[DDP_SHARD_MEMBERS]; /* a leader: where each member's lies here, [0] the base */
};

/* Each rank's part of the region of its node. */
struct ddp_shards_part {
	struct ddp_shard_page page;	       /* of a leader: its shard's */
	char name[DDP_PASSING_NAME];	       /* and where it listens */
	_Alignas(128) _Atomic uint64_t looked; /* when this rank last did, in a wait */
};

/* What a turn was, for messages. */
struct ddp_shards_call {
	size_t count;
	enum ddp_type type;
	enum ddp_op op;
};

struct ddp_device {
	struct ddp *ddp;
	struct ddp_topology *sharing;
	int member, members;
	const int32_t *ranks; /* of the members */

	const struct ddp_shard_engine *engine;
	struct ddp_shard_gpu *gpu;
	const struct ddp_device_engine *between; /* GPUs */
	struct ddp_device *wide;		 /* NULL but on leaders of several shards */

	struct ddp_region *region; /* a part of each rank of the node */
	struct ddp_shard_page *page;
	struct ddp_passing *passing; /* of a leader */
	const char *name;	     /* where the leader listens */

	struct ddp_shards_memory *memory, *staging;
	uint32_t numbers; /* of memory, given so far */

	uint32_t turn;	/* the last one */
	uint64_t chain; /* of all turns so far: what differs once differs ever after */
	void *stream;	/* of the last turn */
	bool busy;	/* it is not known to have ended */
	struct ddp_shards_call calls[DDP_SHARD_KEPT];

	struct ddp_error failure; /* the first */
};

/* Whether other GPUs take part. */
static inline bool ddp_shards_wide(const struct ddp_device *device)
{
	return device->sharing->groups > 1;
}

/* What member's word says by now. */
static inline uint32_t ddp_shards_word(const struct ddp_device *device, int member)
{
	return atomic_load(&device->page->words[member].value);
}

/* The part of a member of this rank's group, which is its node. */
static inline struct ddp_shards_part *ddp_shards_part(const struct ddp_device *device, int member)
{
	return ddp_region_part(device->region, member);
}

/* The stream that a caller means. */
static inline void *ddp_shards_stream(const struct ddp_device *device, void *stream)
{
	return stream ? stream : device->engine->stream(device->gpu);
}

/* --- device-calls.c ---------------------------------------------------------------------- */

/*
 * Tell all ranks how this one's part went, and hear how theirs did, so that all go on or none does.
 * Returns 0 where [status] was 0 on all ranks; else what one of them failed with, the same on all.
 */
int ddp_devices_agree(struct ddp *ddp, int status);

/* The same where some ranks come by a wait of their own, as long as the time limit. */
int ddp_devices_agree_late(struct ddp *ddp, int status);

/*
 * Have [engine] register memory of its alloc() on all ranks or on none; without is slower, and no failure. Collective; a
 * rank whose [device] is NULL has nothing to register.
 * Returns 0 or a DDP_ERR_x.
 */
int ddp_devices_enroll(struct ddp *ddp, const struct ddp_device_engine *engine,
		       struct ddp_device *device, void *memory);

/* --- shards.c ---------------------------------------------------------------------------- */

extern const struct ddp_device_engine ddp_shards_engine;

/*
 * Form it, after ddp->device was opened. Collective. ddp->device is closed, and where all is well replaced; [sharing]
 * is the engine's from here on.
 * Returns 0 or a DDP_ERR_x, the same on all ranks.
 */
int ddp_shards_join(struct ddp *ddp, struct ddp_topology *sharing);

/* --- shards-turn.c ----------------------------------------------------------------------- */

int ddp_shards_all_reduce(struct ddp_device *device, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, void *stream,
			  struct ddp_error *error);
int ddp_shards_broadcast(struct ddp_device *device, void *data, size_t bytes, int root,
			 void *stream, struct ddp_error *error);
int ddp_shards_all_gather(struct ddp_device *device, const void *send, void *recv, size_t bytes,
			  void *stream, struct ddp_error *error);

/* --- shards-wait.c ----------------------------------------------------------------------- */

int ddp_shards_wait(struct ddp_device *device, void *stream, const struct ddp_watch *watch,
		    struct ddp_error *error);

/* Wait until the streams of all members have ended [turn]. */
int ddp_shards_wait_turn(struct ddp_device *device, uint32_t turn, struct ddp_error *error);

/* Wait until what turns are enqueued has ended here, whichever stream they are on. */
int ddp_shards_settle(struct ddp_device *device, struct ddp_error *error);

int ddp_shards_health(struct ddp_device *device, struct ddp_error *error);

/*
 * The end: keep [error] as the failure, unless there is one, tell all ranks, end all waits.
 * Returns its status.
 */
int ddp_shards_fail(struct ddp_device *device, struct ddp_error *error);

bool ddp_shards_abort(struct ddp_device *device, double seconds);

/*
 * A failure [status] of the engine between GPUs, whose ranks are GPUs: say so; where a rank is lost, what those say who know which.
 * Returns its status.
 */
int ddp_shards_explain(struct ddp_device *device, int status, struct ddp_error *error);

#endif /* DDP_DEVICE_SHARDS_H */
