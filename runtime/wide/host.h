/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - an engine that moves host memory between groups
 *
 * wide/ has the engines, which fill this table, and in ring.h the collectives over any of them. It calls base/ only, and
 * what comm/ gives it: the watch, the end of the process and names of ranks. Start reading here, then ring.c and, for an
 * engine, tcp-private.h.
 *
 * Messages between two ranks, with a tag. Receives from a peer are started in the order of its sends,
 * and an engine matches them in that order; the caller compares the tags. The collectives are
 * ring.h's, the same for every engine: tcp, which is part of libddp, and mpi, a module (ddp_mpi.so).
 * One thread at a time uses an engine.
 */
#ifndef DDP_WIDE_HOST_H
#define DDP_WIDE_HOST_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"

#define DDP_HOST_VERSION 8

/* Bytes of a card, a note and a message at most. */
enum {
	DDP_HOST_CARD = 512,
	DDP_HOST_NOTE = 1100,
	DDP_HOST_MESSAGE = 256 << 20,
};

struct ddp_host; /* an engine's own */

/* What a rank publishes for its peers. */
struct ddp_host_card {
	int rank;
	size_t bytes;
	char data[DDP_HOST_CARD]; /* the engine's */
};

struct ddp_host_request {
	uint64_t tag; /* after a receive: the tag as it came */
	size_t bytes; /* after a receive: how many came */
	int status;   /* 0 pending, 1 done, <0 DDP_ERR_x */
};

/* What an engine reports of its peers beside messages. */
enum ddp_host_event {
	DDP_HOST_QUIET,
	DDP_HOST_NOTED, /* a peer sent a note */
	DDP_HOST_LOST,	/* a peer was lost, which did not close() cleanly */
};

/* Report that [status] with [text] is the end of [owner], and leave the process. */
typedef void ddp_host_end(void *owner, int status, const char *text);

struct ddp_host_setup {
	int rank, size;
	const struct ddp_watch *watch; /* of the start; its owner is also that of [end] */
	ddp_host_end *end;	       /* for an engine whose library cannot return an error */
	const struct ddp_log *log;
};

struct ddp_host_engine {
	struct ddp_module_head head; /* kind "wide" */

	/* Microseconds that ddp_exit() stays after a failure, if the end of this process ends others that have yet to report it. */
	unsigned int linger;

	bool all_peers; /* it needs a connection to each peer of the column */

	/* Prepare this rank, and fill its [card]. May wait for the other ranks; [setup]->watch ends that. */
	int (*open)(struct ddp_host **host, const struct ddp_host_setup *setup,
		    struct ddp_host_card *card, struct ddp_error *error);

	/*
	 * Connect with the peers of [cards], which call meet() too: all with [all_peers], else those of
	 * ddp_column_partners(). DDP_ERR_TIMEOUT names a peer that did not connect.
	 * The functions below, but close(), may be called afterwards only.
	 */
	int (*meet)(struct ddp_host *host, const struct ddp_host_card *cards, int count,
		    const struct ddp_watch *watch, struct ddp_error *error);

	/*
	 * Start a message. [request] stays in place until its status is not 0. A receive accepts
	 * the next message of [peer]; one that is longer than [bytes] ends it with DDP_ERR_MISMATCH,
	 * the end of [peer] with DDP_ERR_PEER. A message has at most DDP_HOST_MESSAGE bytes.
	 */
	int (*send)(struct ddp_host *host, int peer, uint64_t tag, const void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error);
	int (*recv)(struct ddp_host *host, int peer, uint64_t tag, void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error);

	/*
	 * Make progress with all requests. If none can be made, wait at most [nanoseconds] for events.
	 * Returns more than 0 if something happened.
	 */
	int (*progress)(struct ddp_host *host, uint64_t nanoseconds);

	/*
	 * End all requests, after a call has failed. Their memory may be reused when this returns; send() and
	 * recv() may not be called any more.
	 */
	void (*cancel)(struct ddp_host *host);

	/* The first note and who sent it; without one, the first peer that was lost, and why. */
	enum ddp_host_event (*event)(struct ddp_host *host, int *peer, char *text, size_t size);

	/* Send [text] to all peers before messages that wait, at best effort (an abort). */
	void (*note)(struct ddp_host *host, const char *text);

	/*
	 * With [ask], ask all peers whether they call progress(), which answers by itself. Returns how many
	 * have not answered the last question, the lowest of them in [first]. Distinguishes a peer that
	 * waits from one that does not come.
	 */
	int (*silent)(struct ddp_host *host, bool ask, int *first);

	/* Transport in words, "TCP (eth0, 10.0.0.7:4242, 3 connections)", for ddp-info. */
	void (*describe)(struct ddp_host *host, char *text, size_t size);

	/* Close all. [clean]: flush and let peers end in peace, at most some seconds; else at once. */
	void (*close)(struct ddp_host *host, bool clean);
};

/* Names of the engines, and NULL. The first is the default. */
extern const char *const ddp_host_engine_names[];

/*
 * Find the engine [name]: "tcp" is part of libddp, others are modules.
 * Returns it, or NULL with the text of ddp_module_open().
 */
const struct ddp_host_engine *ddp_host_engine_find(const char *name, const struct ddp_log *log,
						   struct ddp_error *error);

#endif /* DDP_WIDE_HOST_H */
