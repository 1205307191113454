/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - rendezvous: ranks that know only their numbers exchange small keys and values
 *
 * Each rank publishes the data with which other ranks can reach it over faster channels. The order
 * of calls is put..., fence, get..., repeatedly. A fence waits for all ranks; then their values can
 * be read. The methods are file, pmix (a module) and single. A caller need not know which method is
 * used.
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
	 * Returns 1 if the method works in this job, or 0 with the reason in [error]. Must not
	 * wait.
	 */
	int (*probe)(const struct ddp_identity *identity, struct ddp_error *error);

	/*
	 * Open a store. Returns 0 with [store], whose method-specific members are set, or
	 * DDP_ERR_x. close() frees the store.
	 */
	int (*open)(struct ddp_store **store, const struct ddp_identity *identity,
		    const struct ddp_watch *watch, struct ddp_error *error);

	/* As ddp_store_fence(). The values of this rank are in store->values. */
	int (*fence)(struct ddp_store *store, const struct ddp_watch *watch,
		     struct ddp_error *error);

	/*
	 * Set [body] to the keys and values that [rank] put before the last fence. They stay valid
	 * until the next call.
	 * Returns 0, DDP_ERR_FORMAT if the record is damaged, or another DDP_ERR_x.
	 */
	int (*read)(struct ddp_store *store, int rank, const uint8_t **body, size_t *length,
		    struct ddp_error *error);

	/* As ddp_store_abort(). */
	void (*abort)(struct ddp_store *store, const char *text);

	/* If a rank has aborted, set store->abort. Must take little time. */
	void (*poll_abort)(struct ddp_store *store);

	/* Free everything except store->values. [clean] is that of ddp_store_close(). */
	void (*close)(struct ddp_store *store, bool clean);
};

extern const struct ddp_store_method ddp_store_file;

/*
 * Make the rendezvous directory again if the ranks of an earlier world have removed it. Does
 * nothing if srun makes the directory.
 * Returns 0 or DDP_ERR_FILE.
 */
int ddp_store_make_directory(const struct ddp_identity *identity, struct ddp_error *error);

/*
 * Choose a method and open it. [name] is the method; NULL: DDP_METHOD or, if it is unset, the first
 * method of file, pmix, single that works. single is for one rank only. [identity] must outlive the
 * store.
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
 * Try to publish [text] to all ranks. Only the first rank's text has an effect. Not
 * async-signal-safe.
 */
void ddp_store_abort(struct ddp_store *store, const char *text);

/*
 * Returns the message of a rank that aborted, with its rank and node, or NULL. Can be called a few
 * times per second.
 */
const char *ddp_store_aborted(struct ddp_store *store);

/*
 * Free the store. [clean] is true if all ranks have succeeded, so that the store's files can be
 * removed. NULL is legal.
 */
void ddp_store_close(struct ddp_store *store, bool clean);

#endif /* DDP_STORE_STORE_H */
