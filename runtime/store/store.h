/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - how ranks that know nothing of each other but their numbers meet
 *
 * Small blobs only: what one needs to reach the others by faster means. The order of calls is
 * put..., fence, get..., again and again; every rank takes part in every fence. Methods are
 * rows of a table, or modules; a caller names none of them.
 */
#ifndef DDP_STORE_H
#define DDP_STORE_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"
#include "world/identity.h"

#define DDP_STORE_VERSION 1

enum {
	DDP_STORE_KEY = 32,	 /* bytes of a key, its end included */
	DDP_STORE_VALUE = 65536, /* bytes of all values of a rank between two fences */
};

/* What a method keeps for itself begins with this. */
struct ddp_store {
	const struct ddp_store_method *method;
	const struct ddp_identity *identity;
	const struct ddp_log *log;
};

struct ddp_store_method {
	struct ddp_module_head head; /* kind "store" */

	/* Whether it can work here. Returns 1; or 0 with the reason in [error]. No waiting. */
	int (*probe)(const struct ddp_identity *identity, struct ddp_error *error);

	/* Returns 0 with [store], which close() frees. */
	int (*open)(struct ddp_store **store, const struct ddp_identity *identity,
		    const struct ddp_log *log, const struct ddp_watch *watch,
		    struct ddp_error *error);

	/* Keep a copy of [value] under [key] for the next fence. */
	int (*put)(struct ddp_store *store, const char *key, const void *value, size_t size,
		   struct ddp_error *error);

	/*
	 * Wait until all ranks are here; what they put since the last fence can be had then,
	 * and what they put before it no longer. DDP_ERR_TIMEOUT names who is missing, with
	 * node where it is known, and for how long; DDP_ERR_ABORTED is what another said.
	 */
	int (*fence)(struct ddp_store *store, const struct ddp_watch *watch,
		     struct ddp_error *error);

	/*
	 * What [rank] put under [key] before the last fence: [size] is the room in [value], then
	 * the bytes that are there. Returns 0; DDP_ERR_ARGUMENT where there is no such key;
	 * DDP_ERR_FORMAT where it is larger than the room or damaged.
	 */
	int (*get)(struct ddp_store *store, int rank, const char *key, void *value, size_t *size,
		   struct ddp_error *error);

	/* Leave [text] for all ranks, at best effort; the first one stands. Signal safe: no. */
	void (*abort)(struct ddp_store *store, const char *text);

	/* Whether a rank has aborted: 1 with its text, else 0. Quick: called a few times a second. */
	int (*aborted)(struct ddp_store *store, char *text, size_t size);

	/* Free; [clean] where all ranks came to their end, so that nothing of it is needed. */
	void (*close)(struct ddp_store *store, bool clean);
};

/* The methods that libddp itself has. */
extern const struct ddp_store_method ddp_store_file;

/*
 * Choose by [name] (NULL: DDP_METHOD, else the first of file, pmix, single that works; single
 * works for a world of one only), and open it.
 * Returns 0; DDP_ERR_UNSUPPORTED with each method and why not; or what open returned.
 */
int ddp_store_open(struct ddp_store **store, const char *name, const struct ddp_identity *identity,
		   const struct ddp_log *log, const struct ddp_watch *watch,
		   struct ddp_error *error);

/* NULL is legal. */
void ddp_store_close(struct ddp_store *store, bool clean);

#endif /* DDP_STORE_H */
