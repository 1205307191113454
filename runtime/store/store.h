/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - how ranks that know nothing of each other but their numbers meet
 *
 * Keys and values, small ones only: what one needs to reach the others by faster means. The
 * order of calls is put..., fence, get..., again and again; every rank takes part in every
 * fence. Methods are rows of a table, or modules; a caller names none of them.
 */
#ifndef DDP_STORE_STORE_H
#define DDP_STORE_STORE_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"
#include "record.h"
#include "world/identity.h"

#define DDP_STORE_VERSION 2

/* What a method keeps for itself begins with this. */
struct ddp_store {
	const struct ddp_store_method *method;
	const struct ddp_identity *identity;
	struct ddp_values values;   /* put since the last fence */
	bool fenced, broken;	    /* a fence succeeded; one failed */
	char abort[DDP_ERROR_SIZE]; /* what the first one to give up said; "": nobody did */
};

struct ddp_store_method {
	struct ddp_module_head head; /* kind "store" */

	/* Whether it can work here. Returns 1; or 0 with the reason in [error]. No waiting. */
	int (*probe)(const struct ddp_identity *identity, struct ddp_error *error);

	/* Returns 0 with [store], all of whose own part is set, and which close() frees. */
	int (*open)(struct ddp_store **store, const struct ddp_identity *identity,
		    const struct ddp_watch *watch, struct ddp_error *error);

	/* As ddp_store_fence(); store->values are what this rank puts. */
	int (*fence)(struct ddp_store *store, const struct ddp_watch *watch,
		     struct ddp_error *error);

	/*
	 * Point [body] to what [rank] put before the last fence, which stays until the next call.
	 * Returns 0, DDP_ERR_FORMAT where it is damaged, or another DDP_ERR_x.
	 */
	int (*read)(struct ddp_store *store, int rank, const uint8_t **body, size_t *length,
		    struct ddp_error *error);

	/* As ddp_store_abort(). */
	void (*abort)(struct ddp_store *store, const char *text);

	/* Look whether a rank has aborted, and set store->abort then. Quick. */
	void (*hear_abort)(struct ddp_store *store);

	/* Free all but store->values; [clean] as for ddp_store_close(). */
	void (*close)(struct ddp_store *store, bool clean);
};

extern const struct ddp_store_method ddp_store_file;

/*
 * Choose by [name] (NULL: DDP_METHOD, else the first of file, pmix, single that works; single
 * works for a world of one only), and open it. [identity] stays with the store.
 * Returns 0; DDP_ERR_UNSUPPORTED with each method and why not; or what open returned.
 */
int ddp_store_open(struct ddp_store **store, const char *name, const struct ddp_identity *identity,
		   const struct ddp_log *log, const struct ddp_watch *watch,
		   struct ddp_error *error);

/* Keep a copy of [value] under [key] for the next fence. */
int ddp_store_put(struct ddp_store *store, const char *key, const void *value, size_t size,
		  struct ddp_error *error);

/*
 * Wait until all ranks are here; what they put since the last fence can be had then, and what
 * they put before it no longer. A fence that fails is an abort, and the last one.
 * DDP_ERR_TIMEOUT names who is missing, with node where it is known, and for how long;
 * DDP_ERR_ABORTED is what another said.
 */
int ddp_store_fence(struct ddp_store *store, const struct ddp_watch *watch,
		    struct ddp_error *error);

/*
 * What [rank] put under [key] before the last fence: [size] is the room in [value], then the
 * bytes that are there. Returns 0; DDP_ERR_ARGUMENT where there is no such key; DDP_ERR_FORMAT
 * where it is larger than the room or damaged.
 */
int ddp_store_get(struct ddp_store *store, int rank, const char *key, void *value, size_t *size,
		  struct ddp_error *error);

/* Leave [text] for all ranks, at best effort; the first one stands. Signal safe: no. */
void ddp_store_abort(struct ddp_store *store, const char *text);

/*
 * Whether a rank has aborted: returns what it said, with its rank and node, or NULL. Quick: called
 * a few times a second.
 */
const char *ddp_store_aborted(struct ddp_store *store);

/*
 * Free; [clean] where all ranks came to their end, so that nothing of it is needed. NULL is
 * legal.
 */
void ddp_store_close(struct ddp_store *store, bool clean);

#endif /* DDP_STORE_STORE_H */
