/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "ucx.h"

/* How long a request that is given up may end by itself before its connection is closed. */
#define PATIENCE 20000000u
#define FORCE_LIMIT 200000000u

#define CALLERS_BITS ((UINT64_C(1) << DDP_HOST_TAG) - 1)

static const uint32_t attributes =
	UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;

static uint64_t tag_of(int sender, uint64_t tag)
{
	return (uint64_t)sender << DDP_HOST_TAG | (tag & CALLERS_BITS);
}

static void finish(struct ddp_host_request *request, ucs_status_t status)
{
	request->engine = NULL;
	if (status == UCS_OK)
		request->status = 1;
	else if (status == UCS_ERR_MESSAGE_TRUNCATED)
		request->status = DDP_ERR_MISMATCH;
	else if (status == UCS_ERR_NO_MEMORY)
		request->status = DDP_ERR_MEMORY;
	else
		request->status = DDP_ERR_PEER;
}

/* --- Flights ---------------------------------------------------------------------------- */

static struct ddp_ucx_flight *take_off(struct ddp_host *host, struct ddp_host_request *request,
				       int peer, bool receive)
{
	struct ddp_ucx_flight *flight = host->spare;

	if (flight)
		host->spare = flight->next;
	else if (!(flight = malloc(sizeof(*flight))))
		return NULL;
	*flight = (struct ddp_ucx_flight){
		.host = host, .request = request, .receive = receive, .next = host->flights};
	host->flights = flight;
	request->engine = flight;
	request->peer = peer;
	request->status = 0;
	return flight;
}

static void land(struct ddp_ucx_flight *flight, ucs_status_t status)
{
	struct ddp_host *host = flight->host;
	struct ddp_ucx_flight **link = &host->flights;

	while (*link != flight)
		link = &(*link)->next;
	*link = flight->next;
	flight->next = host->spare;
	host->spare = flight;
	if (flight->request)
		finish(flight->request, status);
}

void ddp_ucx_free_flights(struct ddp_host *host)
{
	struct ddp_ucx_flight *flight;

	while ((flight = host->flights ? host->flights : host->spare)) {
		if (flight == host->flights)
			host->flights = flight->next;
		else
			host->spare = flight->next;
		free(flight);
	}
}

/* --- Sends ------------------------------------------------------------------------------ */

static void sent(void *handle, ucs_status_t status, void *user)
{
	land(user, status);
	ucp_request_free(handle);
}

int ddp_ucx_send(struct ddp_host *host, int peer, uint64_t tag, const void *data, size_t bytes,
		 struct ddp_host_request *request, struct ddp_error *error)
{
	struct ddp_ucx_peer *to = &host->peers[peer];
	struct ddp_ucx_flight *flight = take_off(host, request, peer, false);
	const ucp_request_param_t parameters = {.op_attr_mask = attributes,
						.cb.send = sent,
						.user_data = flight,
						.memory_type = UCS_MEMORY_TYPE_HOST};
	ucs_status_ptr_t handle;

	if (!flight)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a message");
	if (to->lost != UCS_OK || !to->endpoint) {
		land(flight, UCS_ERR_CONNECTION_RESET);
		return 0;
	}
	handle = ucp_tag_send_nbx(to->endpoint, data, bytes, tag_of(host->rank, tag), &parameters);
	if (UCS_PTR_IS_PTR(handle))
		flight->handle = handle;
	else
		land(flight, UCS_PTR_RAW_STATUS(handle));
	return 0;
}

/* --- Receives --------------------------------------------------------------------------- */

static void received(void *handle, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user)
{
	struct ddp_ucx_flight *flight = user;

	if (status == UCS_OK && flight->request) {
		flight->request->tag = info->sender_tag & CALLERS_BITS;
		flight->request->bytes = info->length;
	}
	land(flight, status);
	ucp_request_free(handle);
}

int ddp_ucx_recv(struct ddp_host *host, int peer, uint64_t tag, uint64_t mask, void *data,
		 size_t bytes, struct ddp_host_request *request, struct ddp_error *error)
{
	struct ddp_ucx_flight *flight = take_off(host, request, peer, true);
	/* Always by the callback: what came is told there alone. */
	const ucp_request_param_t parameters = {.op_attr_mask =
							attributes | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
						.cb.recv = received,
						.user_data = flight,
						.memory_type = UCS_MEMORY_TYPE_HOST};
	ucs_status_ptr_t handle;

	if (!flight)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a message");
	handle = ucp_tag_recv_nbx(host->worker, data, bytes, tag_of(peer, tag),
				  mask | ~CALLERS_BITS, &parameters);
	if (UCS_PTR_IS_ERR(handle))
		land(flight, UCS_PTR_STATUS(handle));
	if (request->status != 0)
		return 0;
	flight->handle = handle;
	if (host->peers[peer].lost != UCS_OK)
		host->losses = true;
	return 0;
}

void ddp_ucx_end_receives(struct ddp_host *host)
{
	struct ddp_ucx_flight *flight, *next;

	host->losses = false;
	for (flight = host->flights; flight; flight = next) {
		next = flight->next;
		if (flight->receive && flight->request &&
		    host->peers[flight->request->peer].lost != UCS_OK)
			ucp_request_cancel(host->worker, flight->handle);
	}
}

/* --- Giving up -------------------------------------------------------------------------- */

static void wait_for(struct ddp_host *host, const struct ddp_host_request *request,
		     uint64_t nanoseconds)
{
	uint64_t until = ddp_now() + nanoseconds;

	while (request->status == 0 && ddp_now() < until)
		ucp_worker_progress(host->worker);
}

void ddp_ucx_force(struct ddp_host *host, struct ddp_ucx_peer *peer)
{
	const ucp_request_param_t parameters = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
						.flags = UCP_EP_CLOSE_FLAG_FORCE};
	uint64_t until = ddp_now() + FORCE_LIMIT;
	ucs_status_ptr_t handle;

	if (!peer->endpoint)
		return;
	handle = ucp_ep_close_nbx(peer->endpoint, &parameters);
	peer->endpoint = NULL;
	if (!UCS_PTR_IS_PTR(handle))
		return;
	while (ucp_request_check_status(handle) == UCS_INPROGRESS && ddp_now() < until)
		ucp_worker_progress(host->worker);
	ucp_request_free(handle);
}

/*
 * A receive that nothing has come for ends at once. Where data is on its way, UCX lets go of
 * the memory only when it is through, or the endpoint is closed.
 */
void ddp_ucx_cancel(struct ddp_host *host, struct ddp_host_request *request)
{
	struct ddp_ucx_flight *flight = request->engine;

	if (request->status != 0)
		return;
	if (flight->receive)
		ucp_request_cancel(host->worker, flight->handle);
	wait_for(host, request, PATIENCE);
	if (request->status == 0) {
		ddp_ucx_force(host, &host->peers[request->peer]);
		wait_for(host, request, FORCE_LIMIT);
	}
	if (request->status != 0)
		return;
	ddp_log_print(host->log, DDP_LEVEL_WARNING, "ucx",
		      "a message from or to rank %d cannot be cancelled", request->peer);
	flight->request = NULL;
	request->status = DDP_ERR_ABORTED;
}
