/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx.h - what the files of ddp_ucx.so share
 *
 * One worker, with an endpoint to each peer in peer-failure mode. Messages are UCX's tagged
 * ones, the sender's rank in the tag's upper bits; what is said out of turn are letters, active
 * messages that need no receive.
 */
#ifndef DDP_WIDE_UCX_H
#define DDP_WIDE_UCX_H

#include <ucp/api/ucp.h>

#include "host.h"

enum ddp_letter { DDP_LETTER_NOTE, DDP_LETTER_BYE, DDP_LETTER_ASK, DDP_LETTER_ANSWER };

struct ddp_ucx_peer {
	struct ddp_host *host;
	ucp_ep_h endpoint; /* NULL: not connected */
	ucs_status_t lost; /* UCS_OK, or why the endpoint is of no use any more */
	bool bye;	   /* it left in peace */
	bool answered;	   /* the last question */
};

/* Ports that sockets of this process listen on. */
struct ddp_ucx_ports {
	int count;
	uint16_t list[64];
};

/* A message that is on its way; free ones are kept. */
struct ddp_ucx_flight {
	struct ddp_host *host;
	struct ddp_host_request *request; /* NULL: nobody waits for it any more */
	void *handle;
	bool receive;
	struct ddp_ucx_flight *next;
};

struct ddp_host {
	const struct ddp_log *log;
	int rank, size;
	ucp_context_h context;
	ucp_worker_h worker;
	int events; /* to poll for what the worker waits for */
	bool watch_sockets;
	struct ddp_ucx_ports ports; /* UCX's */
	uint64_t watched;	    /* when sockets were last looked at */

	void *address; /* what peers need to know */
	size_t address_size;

	struct ddp_ucx_peer *peers; /* [size] */
	int lost;		    /* the first peer that was lost, -1: none */
	bool losses;		    /* receives of lost peers are still to be ended */

	struct ddp_ucx_flight *flights, *spare;

	int letters; /* on their way */
	int noted;   /* who sent the note, -1: none */
	char note[DDP_HOST_NOTE];
};

/* --- ucx-setup.c ----------------------------------------------------------------------- */

/*
 * UCX's configuration, with our defaults for what the user did not set.
 * Returns 0 with [config]; sets host->watch_sockets.
 */
int ddp_ucx_configure(struct ddp_host *host, ucp_config_t **config, struct ddp_error *error);

/* Undo what UCX did to the process when it was loaded: its signal handlers. */
void ddp_ucx_calm(void);

/* The ports that are listened on and are not among [others], which may be NULL. */
struct ddp_ucx_ports ddp_ucx_find_ports(const struct ddp_ucx_ports *others);

/* Bound the time that the kernel tries to get through on sockets of UCX's. */
void ddp_ucx_bound_sockets(struct ddp_host *host);

/* --- ucx-message.c --------------------------------------------------------------------- */

int ddp_ucx_send(struct ddp_host *host, int peer, uint64_t tag, const void *data, size_t bytes,
		 struct ddp_host_request *request, struct ddp_error *error);
int ddp_ucx_recv(struct ddp_host *host, int peer, uint64_t tag, uint64_t mask, void *data,
		 size_t bytes, struct ddp_host_request *request, struct ddp_error *error);
void ddp_ucx_cancel(struct ddp_host *host, struct ddp_host_request *request);

/* End the receives of peers that are lost. */
void ddp_ucx_end_receives(struct ddp_host *host);

/* Close [peer]'s endpoint at once; nothing of it is on its way afterwards. */
void ddp_ucx_force(struct ddp_host *host, struct ddp_ucx_peer *peer);

/* When the worker is gone. */
void ddp_ucx_free_flights(struct ddp_host *host);

/* --- ucx-letter.c ---------------------------------------------------------------------- */

/* Take letters from now on. */
int ddp_ucx_open_letters(struct ddp_host *host, struct ddp_error *error);

/* Send one, if [peer] can be reached; [text] may be NULL. */
void ddp_ucx_letter(struct ddp_host *host, int peer, enum ddp_letter kind, const char *text);

/* Let letters leave, for at most [nanoseconds]. */
void ddp_ucx_post(struct ddp_host *host, uint64_t nanoseconds);

#endif /* DDP_WIDE_UCX_H */
