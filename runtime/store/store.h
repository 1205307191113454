/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - rendezvous: ranks that know only their numbers exchange small keys and values
 *
 * Ranks publish what the others need to reach them over faster channels. The order of calls is
 * put..., fence, get..., repeatedly; every rank takes part in every fence. The methods are file,
 * pmix (a module) and single; a caller need not know which one is used.
 *
 * store/ calls base/ and world/. Start reading in store.c, then the opening of file-store.c, the
 * protocol of the rendezvous directory.
 */
#ifndef DDP_STORE_STORE_H
#define DDP_STORE_STORE_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"
#include "record.h"
#include "world/identity.h"

#define DDP_STORE_VERSION 2

/* A method's own structure begins with this one. */
struct ddp_store {
	const struct ddp_store_method *method;
	const struct ddp_identity *identity;
	struct ddp_values values;   /* put since the last fence */
	bool fenced, broken;	    /* a fence succeeded; a fence failed */
	char abort[DDP_ERROR_SIZE]; /* message of the first rank that aborted; "": none */
};

struct ddp_store_method {
	struct ddp_module_head head; /* kind "store" */

	/*
	 * Whether the method works in this job. Returns 1, or 0 with the reason in [error]. Must
	 * not wait.
	 */
	int (*probe)(const struct ddp_identity *identity, struct ddp_error *error);

	/* Returns 0 with [store], whose method-specific members are set; close() frees it. */
	int (*open)(struct ddp_store **store, const struct ddp_identity *identity,
		    const struct ddp_watch *watch, struct ddp_error *error);

	/* As ddp_store_fence(), for the values of this rank in store->values. */
	int (*fence)(struct ddp_store *store, const struct ddp_watch *watch,
		     struct ddp_error *error);

	/*
	 * Point [body] to what [rank] put before the last fence. It stays valid until the next
	 * call.
	 * Returns 0, DDP_ERR_FORMAT if it is damaged, or another DDP_ERR_x.
	 */
	int (*read)(struct ddp_store *store, int rank, const uint8_t **body, size_t *length,
		    struct ddp_error *error);

	/* As ddp_store_abort(). */
	void (*abort)(struct ddp_store *store, const char *text);

	/* If a rank has aborted, set store->abort. Must be quick. */
	void (*poll_abort)(struct ddp_store *store);

	/* Free all but store->values; [clean] as for ddp_store_close(). */
	void (*close)(struct ddp_store *store, bool clean);
};

extern const struct ddp_store_method ddp_store_file;

/*
 * Make the rendezvous directory if the ranks of an earlier world have removed it, unless srun made
 * it.
 * Returns 0 or DDP_ERR_FILE.
 */
int ddp_store_make_directory(const struct ddp_identity *identity, struct ddp_error *error);

/*
 * Choose a method and open it. [name] NULL: DDP_METHOD, else the first of file, pmix, single that
 * works; single is for one rank only. [identity] must outlive the store.
 * Returns 0; DDP_ERR_UNSUPPORTED with the reason for each method; or the error of the method's
 * open().
 */
int ddp_store_open(struct ddp_store **store, const char *name, const struct ddp_identity *identity,
		   const struct ddp_log *log, const struct ddp_watch *watch,
		   struct ddp_error *error);

/* Copy [value] for the next fence. */
int ddp_store_put(struct ddp_store *store, const char *key, const void *value, size_t size,
		  struct ddp_error *error);

/*
 * Wait until all ranks have called this. Then the values put since the last fence can be read, and
 * those put before it no longer. A failed fence aborts the store: no further fence is possible.
 * DDP_ERR_TIMEOUT names the missing ranks, with their nodes if known, and the time waited;
 * DDP_ERR_ABORTED has the message of the rank that aborted.
 */
int ddp_store_fence(struct ddp_store *store, const struct ddp_watch *watch,
		    struct ddp_error *error);

/*
 * Copy what [rank] put under [key] before the last fence. On entry [size] is the capacity of
 * [value], on return the size of the key's value. Returns 0; DDP_ERR_ARGUMENT if the key is
 * missing; DDP_ERR_FORMAT if the value does not fit or is damaged.
 */
int ddp_store_get(struct ddp_store *store, int rank, const char *key, void *value, size_t *size,
		  struct ddp_error *error);

/* Publish [text] to all ranks, at best effort; only the first text counts. Not signal safe. */
void ddp_store_abort(struct ddp_store *store, const char *text);

/*
 * Returns the message of a rank that aborted, with its rank and node, or NULL. Quick: may be called
 * a few times per second.
 */
const char *ddp_store_aborted(struct ddp_store *store);

/*
 * Free the store; NULL is legal. [clean] means that all ranks have succeeded, so that its files can
 * go.
 */
void ddp_store_close(struct ddp_store *store, bool clean);

#endif /* DDP_STORE_STORE_H */
