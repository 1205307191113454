/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - interface of the engines that move host memory between groups
 *
 * wide/ has the engines, which fill in this table, and in ring.h the collectives over any of them.
 * It calls base/ only, and what comm/ passes to it: the watch, the function that ends the process,
 * and the names of ranks. Start reading here, then in ring.c and, for an engine, in tcp-private.h.
 *
 * An engine sends messages with a tag between two ranks. Receives from a peer are started in the
 * order of its sends, and the engine matches them in that order; the caller compares the tags. The
 * engines are tcp, which is part of libddp, and mpi, a module (ddp_mpi.so). Only one thread at a
 * time uses an engine.
 */
#ifndef DDP_WIDE_HOST_H
#define DDP_WIDE_HOST_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"

#define DDP_HOST_VERSION 8

/* Maximum bytes of a card, a note and a message. */
enum {
	DDP_HOST_CARD = 512,
	DDP_HOST_NOTE = 1100,
	DDP_HOST_MESSAGE = 256 << 20,
};

struct ddp_host; /* private to each engine */

/* Data that a rank publishes for its peers. */
struct ddp_host_card {
	int rank;
	size_t bytes;
	char data[DDP_HOST_CARD]; /* private to the engine */
};

struct ddp_host_request {
	uint64_t tag; /* after a receive: tag of the message */
	size_t bytes; /* after a receive: bytes that arrived */
	int status;   /* 0: pending; 1: done; negative: DDP_ERR_x */
};

/* Events of peers that are not messages. */
enum ddp_host_event {
	DDP_HOST_QUIET,
	DDP_HOST_NOTED, /* a peer sent a note */
	DDP_HOST_LOST,	/* the connection to a peer ended without its close() */
};

/* Report that [owner] failed with [status] and [text], and exit the process. */
typedef void ddp_host_end(void *owner, int status, const char *text);

struct ddp_host_setup {
	int rank, size;
	const struct ddp_watch *watch; /* limits open(); its owner is also the argument of [end] */
	ddp_host_end *end;	       /* for an engine whose library cannot return an error */
	const struct ddp_log *log;
};

struct ddp_host_engine {
	struct ddp_module_head head; /* kind "wide" */

	/*
	 * Microseconds that ddp_exit() waits after a failure, because the exit of this process ends
	 * others that have yet to report theirs.
	 */
	unsigned int linger;

	bool all_peers; /* the engine needs a connection to every peer of the column */

	/*
	 * Initialize the engine and fill in the [card] of this rank. May wait for other ranks, as
	 * long as [setup]->watch allows.
	 */
	int (*open)(struct ddp_host **host, const struct ddp_host_setup *setup,
		    struct ddp_host_card *card, struct ddp_error *error);

	/*
	 * Connect to the peers in [cards], which call meet() as well: to every peer if [all_peers]
	 * is set, else to those of ddp_column_partners(). DDP_ERR_TIMEOUT names a peer that did not
	 * connect. The functions below, except close(), may be called only after this one.
	 */
	int (*meet)(struct ddp_host *host, const struct ddp_host_card *cards, int count,
		    const struct ddp_watch *watch, struct ddp_error *error);

	/*
	 * Start a message. [request] must remain valid until its status is not 0. A receive accepts
	 * the next message of [peer]. It ends with DDP_ERR_MISMATCH if that is longer than [bytes],
	 * or DDP_ERR_PEER if the connection ends. A message has at most DDP_HOST_MESSAGE bytes.
	 */
	int (*send)(struct ddp_host *host, int peer, uint64_t tag, const void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error);
	int (*recv)(struct ddp_host *host, int peer, uint64_t tag, void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error);

	/*
	 * Make progress on all requests. If there is none to make, wait at most [nanoseconds] for
	 * events. Returns a positive number if something happened.
	 */
	int (*progress)(struct ddp_host *host, uint64_t nanoseconds);

	/*
	 * End all requests after a failed call. When this returns, their memory may be reused;
	 * send() and recv() must not be called any more.
	 */
	void (*cancel)(struct ddp_host *host);

	/*
	 * Returns the first note and its sender; without one, the first peer that was lost, and
	 * why.
	 */
	enum ddp_host_event (*event)(struct ddp_host *host, int *peer, char *text, size_t size);

	/*
	 * Send [text] to all peers, before messages that are queued, without a guarantee that it
	 * arrives. Used for an abort.
	 */
	void (*note)(struct ddp_host *host, const char *text);

	/*
	 * With [ask], send a liveness query to all peers; progress() answers such a query. Returns
	 * how many peers have not answered the last query, and the lowest of them in [first]. This
	 * distinguishes peers that wait from those that do not reach the call.
	 */
	int (*silent)(struct ddp_host *host, bool ask, int *first);

	/*
	 * Describe the transport for ddp-info, such as "TCP (eth0, 10.0.0.7:4242, 3 connections)".
	 */
	void (*describe)(struct ddp_host *host, char *text, size_t size);

	/*
	 * Close all connections. [clean]: first send what is queued and wait for the peers' close,
	 * at most for some seconds.
	 */
	void (*close)(struct ddp_host *host, bool clean);
};

/* Names of the engines, NULL-terminated. The first is the default. */
extern const char *const ddp_host_engine_names[];

/*
 * Find the engine [name]: "tcp" is part of libddp, others are modules. Returns it, or NULL with the
 * error of ddp_module_open().
 */
const struct ddp_host_engine *ddp_host_engine_find(const char *name, const struct ddp_log *log,
						   struct ddp_error *error);

#endif /* DDP_WIDE_HOST_H */
