/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - interface of the engines that move host memory between groups
 *
 * wide/ has the engines, which fill in this table, and the collectives over any engine (ring.h). It
 * calls base/, and what comm/ passes to it: the watch, the function that ends the process, and the
 * names of ranks. Start reading here, then in ring.c; for an engine, in tcp-private.h.
 *
 * An engine sends messages between two ranks. Each message has a tag. Receives from a peer are
 * started in the order of that peer's sends, and the engine matches them in this order. The caller
 * compares the tags. The engines are tcp, which is part of libddp, and mpi, a module (ddp_mpi.so).
 * Only one thread at a time uses an engine. A note is the text of a failure, which an engine sends
 * to all peers.
 */
#ifndef DDP_WIDE_HOST_H
#define DDP_WIDE_HOST_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"

#define DDP_HOST_VERSION 10

/* Maximum sizes, in bytes, of a card, a note and a message. */
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
	char data[DDP_HOST_CARD]; /* address and so on, in the engine's own format */
};

struct ddp_host_request {
	uint64_t tag; /* set by a receive: tag of the message */
	size_t bytes; /* set by a receive: bytes that arrived */
	int status;   /* 0: pending; 1: done; negative: DDP_ERR_x */
};

/* Events of peers that are not messages. */
enum ddp_host_event {
	DDP_HOST_QUIET,
	DDP_HOST_NOTED, /* a peer sent a note */
	DDP_HOST_LOST,	/* the connection to a peer ended without its close() */
};

/* Function that reports the failure of [owner] with [status] and [text], and exits. */
typedef void ddp_host_end(void *owner, int status, const char *text);

struct ddp_host_setup {
	int rank, size;
	/* watch that can end open(); its [owner] is also passed to [end] */
	const struct ddp_watch *watch;
	/* function for an engine whose library cannot return an error */
	ddp_host_end *end;
	const struct ddp_log *log;
};

struct ddp_host_engine {
	struct ddp_module_head head; /* kind "wide" */

	/*
	 * Time that ddp_exit() waits after a failure, in microseconds. Needed if the exit of this
	 * process ends other processes before they can report the failure.
	 */
	unsigned int linger;

	bool all_peers; /* meet() needs the cards of all peers of the column */

	/*
	 * Initialize the engine, and fill in [card] for this rank. This can wait for other ranks.
	 * The watch of [setup] ends the wait.
	 */
	int (*open)(struct ddp_host **host, const struct ddp_host_setup *setup,
		    struct ddp_host_card *card, struct ddp_error *error);

	/*
	 * Connect to peers, which call meet() at the same time: if [all_peers] is set, to every
	 * peer of the column, else to the peers of ddp_column_partners(). [cards] contains the
	 * cards of these peers. The text of DDP_ERR_TIMEOUT names a peer that did not connect.
	 * Before meet(), no function below may be called except close().
	 */
	int (*meet)(struct ddp_host *host, const struct ddp_host_card *cards, int count,
		    const struct ddp_watch *watch, struct ddp_error *error);

	/*
	 * Start a message. [request] must remain valid while its status is 0. recv() receives the
	 * next message of [peer]. The receive ends with DDP_ERR_MISMATCH if that message is longer
	 * than [bytes], or with DDP_ERR_PEER if the connection ends. [bytes] is at most
	 * DDP_HOST_MESSAGE.
	 */
	int (*send)(struct ddp_host *host, int peer, uint64_t tag, const void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error);
	int (*recv)(struct ddp_host *host, int peer, uint64_t tag, void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error);

	/*
	 * Make progress on all requests. If no request can make progress, wait at most
	 * [nanoseconds] for events. Returns a positive number if something happened.
	 */
	int (*progress)(struct ddp_host *host, uint64_t nanoseconds);

	/*
	 * End all requests of a failed call. Afterwards their memory may be reused, and send() and
	 * recv() must not be called any more.
	 */
	void (*cancel)(struct ddp_host *host);

	/*
	 * Returns DDP_HOST_NOTED with the first note and its sender. If there is no note, returns
	 * DDP_HOST_LOST with the first peer that was lost, and the reason.
	 */
	enum ddp_host_event (*event)(struct ddp_host *host, int *peer, char *text, size_t size);

	/*
	 * Iterate over the peers from which a message has arrived before its receive. The caller sets
	 * [position] to 0 before the first call. Returns the next such peer, with the tag of its
	 * oldest message, or -1 if there is no further one. NULL if the engine does not know tags.
	 */
	int (*early)(struct ddp_host *host, int *position, uint64_t *tag);

	/*
	 * Send [text] to all peers, ahead of queued messages. It may fail to arrive. Used for an
	 * abort.
	 */
	void (*note)(struct ddp_host *host, const char *text);

	/*
	 * If [ask] is true, send a liveness query to all peers, whose progress() answers it.
	 * Returns the number of peers that have not answered the last query, with the lowest of
	 * them in [first]. Peers that wait answer; peers that do not reach the call do not.
	 */
	int (*silent)(struct ddp_host *host, bool ask, int *first);

	/*
	 * Describe the transport for ddp-info, such as "TCP (eth0, 10.0.0.7:4242, 3 connections)".
	 */
	void (*describe)(struct ddp_host *host, char *text, size_t size);

	/*
	 * Close all connections. If [clean], first send queued data and wait for the peers' close,
	 * at most for some seconds.
	 */
	void (*close)(struct ddp_host *host, bool clean);
};

/* Names of the engines, NULL-terminated. The first is the default. */
extern const char *const ddp_host_engine_names[];

/*
 * Find the engine [name]. "tcp" is part of libddp; the others are modules. Returns the engine, or
 * NULL with the error of ddp_module_open().
 */
const struct ddp_host_engine *ddp_host_engine_find(const char *name, const struct ddp_log *log,
						   struct ddp_error *error);

#endif /* DDP_WIDE_HOST_H */
