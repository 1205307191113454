/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - rendezvous: ranks that know only their numbers exchange small keys and values
 *
 * Each rank publishes the data with which other ranks can reach it over faster channels. First each
 * rank puts its values, then it calls fence, and then it gets values of other ranks. This can be
 * repeated. A fence waits for all ranks; after it, their values can be read. The methods are file,
 * pmix (a module) and single. Callers use all methods in the same way.
 *
 * store/ calls base/ and identity/. Start reading in store.c, then the opening comment of
 * file-store.c, which is the protocol of the rendezvous directory.
 */
#ifndef DDP_STORE_STORE_H
#define DDP_STORE_STORE_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"
#include "identity/identity.h"
#include "record.h"

#define DDP_STORE_VERSION 3

/* Common part of a store. The structure of each method begins with it. */
struct ddp_store {
	const struct ddp_store_method *method;
	const struct ddp_identity *identity;
	struct ddp_values values; /* values that were put since the last fence */
	bool fenced, broken;	  /* fenced: a fence has succeeded; broken: one has failed */
	/* message of the first rank that aborted; "" if none has */
	char abort[DDP_ERROR_SIZE];
};

struct ddp_store_method {
	struct ddp_module_head head; /* kind "store" */

	/*
	 * Returns 1 if the method works in this job. Otherwise returns 0, with the reason in
	 * [error]. This function must not wait.
	 */
	int (*probe)(const struct ddp_identity *identity, struct ddp_error *error);

	/*
	 * Open a store. Returns 0 and sets [store], or returns DDP_ERR_x. Only the members that the
	 * method adds are set; the caller sets the common members. close() frees the store.
	 */
	int (*open)(struct ddp_store **store, const struct ddp_identity *identity,
		    const struct ddp_watch *watch, struct ddp_error *error);

	/* Do the work of ddp_store_fence(). store->values has the values of this rank. */
	int (*fence)(struct ddp_store *store, const struct ddp_watch *watch,
		     struct ddp_error *error);

	/*
	 * Set [body] to the keys and values that [rank] put before the last fence. The body is
	 * valid until the next call.
	 * Returns 0, DDP_ERR_FORMAT if the record is damaged, or another DDP_ERR_x.
	 */
	int (*read)(struct ddp_store *store, int rank, const uint8_t **body, size_t *length,
		    struct ddp_error *error);

	/* As ddp_store_abort(). */
	void (*abort)(struct ddp_store *store, const char *text);

	/* If a rank has aborted, copy its message to store->abort. This function must be fast. */
	void (*poll_abort)(struct ddp_store *store);

	/* Free everything except store->values. [clean] is the argument of ddp_store_close(). */
	void (*close)(struct ddp_store *store, bool clean);
};

extern const struct ddp_store_method ddp_store_file;

/*
 * Create the rendezvous directory again if the ranks of an earlier world have removed it. If srun
 * creates the directory, do nothing.
 * Returns 0 or DDP_ERR_FILE.
 */
int ddp_store_make_directory(const struct ddp_identity *identity, struct ddp_error *error);

/*
 * Choose a method, and open a store with it. [name] is the name of the method. If [name] is NULL,
 * DDP_METHOD is used or, if that is unset, the first method that works of file, pmix and single.
 * The method single is for one rank only. [identity] must exist as long as the store.
 * Returns 0; DDP_ERR_UNSUPPORTED with the reason for each method; or the error of the method's
 * open().
 */
int ddp_store_open(struct ddp_store **store, const char *name, const struct ddp_identity *identity,
		   const struct ddp_log *log, const struct ddp_watch *watch,
		   struct ddp_error *error);

/* Copy [value], which ddp_store_fence() will publish under [key]. */
int ddp_store_put(struct ddp_store *store, const char *key, const void *value, size_t size,
		  struct ddp_error *error);

/*
 * Wait until all ranks have called ddp_store_fence(). Then all ranks can read the values that were
 * put since the last fence. Older values can no longer be read. If a fence fails, the store is
 * aborted, and no further fence is possible. DDP_ERR_TIMEOUT names the missing ranks, their nodes
 * if known, and the time waited. DDP_ERR_ABORTED has the message of the rank that aborted.
 */
int ddp_store_fence(struct ddp_store *store, const struct ddp_watch *watch,
		    struct ddp_error *error);

/*
 * Copy the value that [rank] put under [key] before the last fence. On entry, [size] is the
 * capacity of [value]; on return, it is the size of the key's value. Returns 0; DDP_ERR_ARGUMENT if
 * the key is missing; DDP_ERR_FORMAT if the value does not fit or is damaged.
 */
int ddp_store_get(struct ddp_store *store, int rank, const char *key, void *value, size_t *size,
		  struct ddp_error *error);

/*
 * Try to publish [text] to all ranks. If several ranks call this, only the text of the first rank
 * is published. Not async-signal-safe.
 */
void ddp_store_abort(struct ddp_store *store, const char *text);

/*
 * Returns the message of a rank that aborted, with its rank and node, or NULL if no rank has. May
 * be called a few times per second.
 */
const char *ddp_store_aborted(struct ddp_store *store);

/*
 * Free the store, which may be NULL. [clean] is true if all ranks have succeeded. Then the store's
 * files are removed.
 */
void ddp_store_close(struct ddp_store *store, bool clean);

#endif /* DDP_STORE_STORE_H */
