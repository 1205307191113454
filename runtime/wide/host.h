/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - an engine that moves host memory between groups
 *
 * Point to point, and tagged. Receives from a peer are begun in the order of its sends, so that an
 * engine may go by the order or by the tags. The collectives are ring.h's, the same for every
 * engine. Engines are modules (ddp_ucx.so, ddp_mpi.so). One thread at a time uses an engine.
 */
#ifndef DDP_WIDE_HOST_H
#define DDP_WIDE_HOST_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"

#define DDP_HOST_VERSION 5

/* Bytes of an address, of a pass and of a note at most; bits of a tag that are the caller's. */
enum {
	DDP_HOST_ADDRESS = 8192,
	DDP_HOST_PASS = 49152,
	DDP_HOST_NOTE = 1100,
	DDP_HOST_TAG = 44,
};

struct ddp_host; /* an engine's own */

struct ddp_host_request {
	uint64_t tag; /* after a receive: the tag as it came, with the bits that were masked */
	size_t bytes; /* after a receive: how many came */
	int status;   /* 0 pending, 1 done, <0 DDP_ERR_x */
	int peer;
	void *engine; /* the engine's own */
};

/* Tell that [status] with [text] is the end of [owner], and leave the process. */
typedef void ddp_host_end(void *owner, int status, const char *text);

struct ddp_host_engine {
	struct ddp_module_head head; /* kind "wide" */

	/* Microseconds that ddp_exit() stays after a failure: so that others hear of it whom the end of this process ends. */
	unsigned int linger;

	/*
	 * May wait for the other ranks to be here, too; [watch] ends that. A library that keeps the
	 * thread that calls it for longer than watch->limit, or while watch->check() tells of an end,
	 * cannot be left: then the engine calls [end] of watch->owner, in a thread of its own. It
	 * calls these two while the caller is in the library, and never two of them at a time.
	 */
	int (*open)(struct ddp_host **host, int rank, int size, const struct ddp_watch *watch,
		    ddp_host_end *end, const struct ddp_log *log, struct ddp_error *error);

	/* This rank's address, at most DDP_HOST_ADDRESS bytes, in memory of the engine's. */
	int (*address)(struct ddp_host *host, const void **data, size_t *size,
		       struct ddp_error *error);

	/* Prepare to talk to [peer], whose address is [data]; no waiting. */
	int (*connect)(struct ddp_host *host, int peer, const void *data, size_t size,
		       struct ddp_error *error);

	/*
	 * After connect() to all peers: by what they know this rank from a stranger, at most
	 * DDP_HOST_PASS bytes, in memory of the engine's. For the ranks of the job alone.
	 */
	int (*pass)(struct ddp_host *host, const void **data, size_t *size,
		    struct ddp_error *error);

	/* [peer]'s pass: who shows it is let in. */
	int (*admit)(struct ddp_host *host, int peer, const void *data, size_t size,
		     struct ddp_error *error);

	/*
	 * Let in those who were admitted, and nobody after them. What follows may be called only
	 * then. DDP_ERR_TIMEOUT names who did not come.
	 */
	int (*meet)(struct ddp_host *host, const struct ddp_watch *watch, struct ddp_error *error);

	/*
	 * Begin; [request] is the caller's, in place until its status is not 0. A receive takes
	 * the next message of [peer] whose tag agrees in the bits of [mask]; one that is longer
	 * than [bytes] ends it with DDP_ERR_MISMATCH, the end of [peer] with DDP_ERR_PEER.
	 */
	int (*send)(struct ddp_host *host, int peer, uint64_t tag, const void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error);
	int (*recv)(struct ddp_host *host, int peer, uint64_t tag, uint64_t mask, void *data,
		    size_t bytes, struct ddp_host_request *request, struct ddp_error *error);

	/* Move things on. Returns more than 0 if something happened. */
	int (*progress)(struct ddp_host *host);

	/* Wait for events at most [nanoseconds]; for waits that have spun enough. */
	void (*idle)(struct ddp_host *host, uint64_t nanoseconds);

	/* Give [request] up; its memory may be reused when this returns. */
	void (*cancel)(struct ddp_host *host, struct ddp_host_request *request);

	/*
	 * The first peer that was lost and did not close() cleanly, and why: 1, or 2 where this process may be ended
	 * for that at any moment; else 0.
	 */
	int (*broken)(struct ddp_host *host, int *peer, char *why, size_t size);

	/* Send [text] to [peer] out of turn, at best effort (an abort). */
	void (*note)(struct ddp_host *host, int peer, const char *text);

	/* The first note that came: 1 with who sent it, else 0. */
	int (*noted)(struct ddp_host *host, int *peer, char *text, size_t size);

	/*
	 * Ask [peer] whether it calls progress(), which answers by itself; later, whether it has
	 * answered the last question. Tells who waits from who does not come.
	 */
	void (*ask)(struct ddp_host *host, int peer);
	bool (*answered)(struct ddp_host *host, int peer);

	/* Release and transports in words, "UCX 1.13.1 (tcp)", for ddp-info. */
	void (*describe)(struct ddp_host *host, char *text, size_t size);

	/* Close all. [clean]: flush and let peers end in peace, at most some seconds; else at once. */
	void (*close)(struct ddp_host *host, bool clean);
};

/*
 * Find the engine [name]: "tcp" is part of libddp, others are modules.
 * Returns it, or NULL with the text of ddp_module_open().
 */
const struct ddp_host_engine *ddp_host_engine_find(const char *name, const struct ddp_log *log,
						   struct ddp_error *error);

#endif /* DDP_WIDE_HOST_H */
