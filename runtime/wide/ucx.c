/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx.c - the engine between groups over UCX (ddp_ucx.so)
 *
 * One worker, with an endpoint to each peer in peer-failure mode. Messages are UCX's tagged
 * ones, the sender's rank in the tag's upper bits; what is said out of turn are letters, active
 * messages that need no receive.
 */
#include "config.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

#include "host.h"
#include "ucx-setup.h"
#include "ucx-sockets.h"

/* How long a clean end waits for the goodbyes of the peers. */
#define GOODBYE 800000000u
/* How long letters may take to leave at any other end. */
#define POSTING 50000000u
/* A wait this long is looked at: whether the kernel still gets through. */
#define LONG_WAIT 1000000000u

/* What a rank publishes: this, where it listens over TCP, and UCX's address. */
struct card {
	uint32_t magic;
	uint16_t major, minor; /* of UCX */
	uint64_t place;
	uint64_t listeners; /* struct ddp_ucx_end each */
};

enum { CARD_MAGIC = 0x78637564 };

/* How long a request that is given up may end by itself before its connection is closed. */
#define PATIENCE 20000000u
#define FORCE_LIMIT 200000000u

enum letter_kind { DDP_LETTER_NOTE, DDP_LETTER_BYE, DDP_LETTER_ASK, DDP_LETTER_ANSWER };

struct peer {
	struct ddp_host *host;
	ucp_ep_h endpoint; /* NULL: not connected */
	ucs_status_t lost; /* UCS_OK, or why the endpoint is of no use any more */
	bool bye;	   /* it left in peace */
	bool answered;	   /* the last question */
};

/* A message that is on its way; free ones are kept. */
struct flight {
	struct ddp_host *host;
	struct ddp_host_request *request; /* NULL: nobody waits for it any more */
	void *handle;
	bool receive;
	struct flight *next;
};

struct ddp_host {
	const struct ddp_log *log;
	int rank, size;
	ucp_context_h context;
	ucp_worker_h worker;
	int events; /* to poll for what the worker waits for */
	bool watch_sockets;
	struct ddp_ucx_door door;
	struct ddp_ucx_ends ours; /* the pass: where our connections come from */
	uint64_t watched;	  /* when sockets were last looked at */

	void *address; /* what peers need to know */
	size_t address_size;

	struct peer *peers; /* [size] */
	int lost;	    /* the first peer that was lost, -1: none */
	bool losses;	    /* receives of lost peers are still to be ended */

	struct flight *flights, *spare;

	int letters; /* on their way */
	int noted;   /* who sent the note, -1: none */
	char note[DDP_HOST_NOTE];
};

/* --- Messages ------------------------------------------------------------------------- */

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

/* --- Flights -------------------------------------------------------------------------- */

static struct flight *take_off(struct ddp_host *host, struct ddp_host_request *request, int peer,
			       bool receive)
{
	struct flight *flight = host->spare;

	if (flight)
		host->spare = flight->next;
	else if (!(flight = malloc(sizeof(*flight))))
		return NULL;
	*flight = (struct flight){
		.host = host, .request = request, .receive = receive, .next = host->flights};
	host->flights = flight;
	request->engine = flight;
	request->peer = peer;
	request->status = 0;
	return flight;
}

static void land(struct flight *flight, ucs_status_t status)
{
	struct ddp_host *host = flight->host;
	struct flight **link = &host->flights;

	while (*link != flight)
		link = &(*link)->next;
	*link = flight->next;
	flight->next = host->spare;
	host->spare = flight;
	if (flight->request)
		finish(flight->request, status);
}

/* When the worker is gone. */
static void free_flights(struct ddp_host *host)
{
	struct flight *flight;

	while ((flight = host->flights ? host->flights : host->spare)) {
		if (flight == host->flights)
			host->flights = flight->next;
		else
			host->spare = flight->next;
		free(flight);
	}
}

/* --- Sends ---------------------------------------------------------------------------- */

static void sent(void *handle, ucs_status_t status, void *user)
{
	land(user, status);
	ucp_request_free(handle);
}

static int ucx_send(struct ddp_host *host, int peer, uint64_t tag, const void *data, size_t bytes,
		    struct ddp_host_request *request, struct ddp_error *error)
{
	struct peer *to = &host->peers[peer];
	struct flight *flight = take_off(host, request, peer, false);
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

/* --- Receives ------------------------------------------------------------------------- */

static void received(void *handle, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user)
{
	struct flight *flight = user;

	if (status == UCS_OK && flight->request) {
		flight->request->tag = info->sender_tag & CALLERS_BITS;
		flight->request->bytes = info->length;
	}
	land(flight, status);
	ucp_request_free(handle);
}

static int ucx_recv(struct ddp_host *host, int peer, uint64_t tag, uint64_t mask, void *data,
		    size_t bytes, struct ddp_host_request *request, struct ddp_error *error)
{
	struct flight *flight = take_off(host, request, peer, true);
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

/* End the receives of peers that are lost. */
static void end_receives(struct ddp_host *host)
{
	struct flight *flight, *next;

	host->losses = false;
	for (flight = host->flights; flight; flight = next) {
		next = flight->next;
		if (flight->receive && flight->request &&
		    host->peers[flight->request->peer].lost != UCS_OK)
			ucp_request_cancel(host->worker, flight->handle);
	}
}

/* --- Giving up ------------------------------------------------------------------------ */

static void wait_for(struct ddp_host *host, const struct ddp_host_request *request,
		     uint64_t nanoseconds)
{
	uint64_t until = ddp_now() + nanoseconds;

	while (request->status == 0 && ddp_now() < until)
		ucp_worker_progress(host->worker);
}

/* Close [peer]'s endpoint at once; nothing of it is on its way afterwards. */
static void force_close(struct ddp_host *host, struct peer *peer)
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
static void ucx_cancel(struct ddp_host *host, struct ddp_host_request *request)
{
	struct flight *flight = request->engine;

	if (request->status != 0)
		return;
	if (flight->receive)
		ucp_request_cancel(host->worker, flight->handle);
	wait_for(host, request, PATIENCE);
	if (request->status == 0) {
		force_close(host, &host->peers[request->peer]);
		wait_for(host, request, FORCE_LIMIT);
	}
	if (request->status != 0)
		return;
	ddp_log_print(host->log, DDP_LEVEL_WARNING, "ucx",
		      "a message from or to rank %d cannot be cancelled", request->peer);
	flight->request = NULL;
	request->status = DDP_ERR_ABORTED;
}

/* --- Letters -------------------------------------------------------------------------- */

enum { LETTERS = 0 }; /* the active message that we use */

struct header {
	int32_t sender, kind;
};

/* What UCX reads until it says that the letter is gone. */
struct letter {
	struct ddp_host *host;
	struct header header;
	char text[];
};

static void letter_gone(void *handle, ucs_status_t status, void *user)
{
	struct letter *letter = user;

	(void)status;
	letter->host->letters--;
	free(letter);
	if (handle)
		ucp_request_free(handle);
}

/* Send one, if [peer] can be reached; [text] may be NULL. */
static void send_letter(struct ddp_host *host, int peer, enum letter_kind kind, const char *text)
{
	struct peer *to = &host->peers[peer];
	size_t size = text ? strnlen(text, DDP_HOST_NOTE - 1) : 0;
	struct letter *letter;
	ucs_status_ptr_t handle;

	if (!to->endpoint || to->lost != UCS_OK || !(letter = malloc(sizeof(*letter) + size)))
		return;
	letter->host = host;
	letter->header = (struct header){host->rank, (int32_t)kind};
	if (size)
		memcpy(letter->text, text, size);
	host->letters++;
	handle = ucp_am_send_nbx(
		to->endpoint, LETTERS, &letter->header, sizeof(letter->header), letter->text, size,
		&(const ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
							     UCP_OP_ATTR_FIELD_USER_DATA |
							     UCP_OP_ATTR_FIELD_FLAGS,
					     .flags = UCP_AM_SEND_FLAG_EAGER,
					     .cb.send = letter_gone,
					     .user_data = letter});
	if (!UCS_PTR_IS_PTR(handle))
		letter_gone(NULL, UCS_PTR_RAW_STATUS(handle), letter);
}

static void note_came(struct ddp_host *host, int sender, const char *text, size_t length)
{
	if (host->noted >= 0)
		return;
	host->noted = sender;
	snprintf(host->note, sizeof(host->note), "%.*s", (int)length, text);
}

static ucs_status_t letter_came(void *owner, const void *start, size_t start_size, void *data,
				size_t size, const ucp_am_recv_param_t *parameters)
{
	struct ddp_host *host = owner;
	struct header header;

	if (start_size != sizeof(header) || size > DDP_HOST_NOTE ||
	    parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
		return UCS_OK;
	memcpy(&header, start, sizeof(header));
	if (header.sender < 0 || header.sender >= host->size)
		return UCS_OK;
	switch ((enum letter_kind)header.kind) {
	case DDP_LETTER_NOTE:
		note_came(host, header.sender, data, size);
		break;
	case DDP_LETTER_BYE:
		host->peers[header.sender].bye = true;
		break;
	case DDP_LETTER_ASK:
		send_letter(host, header.sender, DDP_LETTER_ANSWER, NULL);
		break;
	case DDP_LETTER_ANSWER:
		host->peers[header.sender].answered = true;
		break;
	}
	return UCS_OK;
}

/* Take letters from now on. */
static int open_letters(struct ddp_host *host, struct ddp_error *error)
{
	const ucp_am_handler_param_t parameters = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
								 UCP_AM_HANDLER_PARAM_FIELD_CB |
								 UCP_AM_HANDLER_PARAM_FIELD_ARG,
						   .id = LETTERS,
						   .cb = letter_came,
						   .arg = host};
	ucs_status_t status = ucp_worker_set_am_recv_handler(host->worker, &parameters);

	if (status == UCS_OK)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENGINE, "UCX has no active messages here: %s",
			     ucs_status_string(status));
}

/* Let letters leave, for at most [nanoseconds]. */
static void post_letters(struct ddp_host *host, uint64_t nanoseconds)
{
	uint64_t until = ddp_now() + nanoseconds;

	while (host->letters > 0 && ddp_now() < until)
		ucp_worker_progress(host->worker);
}

/* --- Open ----------------------------------------------------------------------------- */

static const char *value_of(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "not set";
}

/* [what] failed for want of a way to talk: say what decides about the ways. */
static int no_way(struct ddp_error *error, const char *what, ucs_status_t status)
{
	return ddp_error_set(error, DDP_ERR_ENGINE,
			     "UCX %s %s: %s (UCX_NET_DEVICES is %s, UCX_TLS is %s)",
			     ucp_get_version_string(), what, ucs_status_string(status),
			     value_of("UCX_NET_DEVICES"), value_of("UCX_TLS"));
}

/* Whether UCX has more to offer than talking to itself. */
static bool has_network(const struct ddp_host *host)
{
	char *info = NULL, *line, *rest;
	size_t length;
	FILE *stream = open_memstream(&info, &length);
	bool found = false;

	if (stream)
		ucp_context_print_info(host->context, stream);
	if (!stream || fclose(stream) != 0)
		found = true; /* nobody knows; a peer cannot be reached then */
	for (line = info ? strtok_r(info, "\n", &rest) : NULL; line && !found;
	     line = strtok_r(NULL, "\n", &rest))
		found = strstr(line, " resource ") && !strstr(line, " self/");
	free(info);
	return found;
}

static int check_release(const struct ddp_host *host, struct ddp_error *error)
{
	unsigned major, minor, patch;

	ucp_get_version(&major, &minor, &patch);
	if (major != UCP_API_MAJOR)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "libucp is UCX %u.%u.%u, libddp was built for UCX %d.%d",
				     major, minor, patch, UCP_API_MAJOR, UCP_API_MINOR);
	if (minor != UCP_API_MINOR)
		ddp_log_print(host->log, DDP_LEVEL_INFO, "ucx",
			      "libucp is UCX %u.%u.%u, libddp was built for UCX %d.%d", major,
			      minor, patch, UCP_API_MAJOR, UCP_API_MINOR);
	return 0;
}

static int open_context(struct ddp_host *host, struct ddp_error *error)
{
	const ucp_params_t parameters = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
		.estimated_num_eps = (size_t)host->size};
	ucp_config_t *config;
	ucs_status_t status;
	int rc = ddp_ucx_configure(host->log, &config, &host->watch_sockets, error);

	if (rc < 0)
		return rc;
	status = ucp_init(&parameters, config, &host->context);
	ucp_config_release(config);
	if (status == UCS_OK && !has_network(host))
		status = UCS_ERR_NO_DEVICE;
	return status == UCS_OK ? 0 : no_way(error, "finds no network device", status);
}

/* Put together what this rank publishes; [address] is UCX's. */
static int write_card(struct ddp_host *host, const void *address, size_t size,
		      struct ddp_error *error)
{
	struct card card = {.magic = CARD_MAGIC, .place = ddp_ucx_place()};
	struct ddp_ucx_ends listeners = {NULL, 0};
	unsigned major, minor, patch;
	int status = ddp_ucx_find_listeners(&host->door, &listeners, error);
	size_t bytes = (size_t)listeners.count * sizeof(*listeners.list);
	char *at = NULL;

	ucp_get_version(&major, &minor, &patch);
	card.major = (uint16_t)major;
	card.minor = (uint16_t)minor;
	card.listeners = (uint64_t)listeners.count;
	host->address_size = sizeof(card) + bytes + size;
	if (status == 0 && !(at = host->address = malloc(host->address_size)))
		status = ddp_error_set(error, DDP_ERR_MEMORY, "no memory for UCX");
	if (at) {
		at = mempcpy(at, &card, sizeof(card));
		if (bytes)
			at = mempcpy(at, listeners.list, bytes);
		memcpy(at, address, size);
	}
	free(listeners.list);
	return status;
}

static int open_worker(struct ddp_host *host, struct ddp_error *error)
{
	const ucp_worker_params_t parameters = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
						.thread_mode = UCS_THREAD_MODE_SERIALIZED};
	ucp_address_t *address;
	size_t size;
	struct ddp_ucx_ports others = ddp_ucx_find_ports(NULL);
	struct ddp_ucx_pause *pause = ddp_ucx_pause_begin();
	ucs_status_t status = ucp_worker_create(host->context, &parameters, &host->worker);
	int rc;

	host->door.ports = ddp_ucx_find_ports(&others);
	ddp_ucx_door_hold(&host->door, host->size);
	ddp_ucx_pause_end(pause);
	if (status == UCS_OK)
		status = ucp_worker_get_efd(host->worker, &host->events);
	if (status == UCS_OK)
		status = ucp_worker_get_address(host->worker, &address, &size);
	if (status != UCS_OK)
		return no_way(error, "cannot open a device", status);
	rc = write_card(host, address, size, error);
	ucp_worker_release_address(host->worker, address);
	return rc;
}

static int ucx_address(struct ddp_host *host, const void **data, size_t *size,
		       struct ddp_error *error)
{
	if (host->address_size > DDP_HOST_ADDRESS)
		return ddp_error_set(error, DDP_ERR_ENGINE,
				     "UCX's address has %zu bytes, more than %d: name the devices "
				     "to use in UCX_NET_DEVICES",
				     host->address_size, DDP_HOST_ADDRESS);
	*data = host->address;
	*size = host->address_size;
	return 0;
}

/* --- Peers ---------------------------------------------------------------------------- */

static void peer_lost(void *user, ucp_ep_h endpoint, ucs_status_t status)
{
	struct peer *peer = user;
	struct ddp_host *host = peer->host;
	int rank = (int)(peer - host->peers);

	(void)endpoint;
	if (peer->lost == UCS_OK)
		peer->lost = status;
	if (!peer->bye && host->lost < 0)
		host->lost = rank;
	host->losses = true;
	ddp_log_print(host->log, DDP_LEVEL_DEBUG, "ucx", "rank %d: %s%s", rank,
		      ucs_status_string(status), peer->bye ? ", after it left" : "");
}

static int ucx_connect(struct ddp_host *host, int peer, const void *data, size_t size,
		       struct ddp_error *error)
{
	struct peer *to = &host->peers[peer];
	const char *at = (const char *)data + sizeof(struct card);
	struct card card, own;
	ucs_status_t status;
	char what[64];
	int rc = 0;

	if (size <= sizeof(card) || to->endpoint)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "rank %d: %s", peer,
				     to->endpoint ? "connected twice" : "no address of UCX");
	memcpy(&card, data, sizeof(card));
	memcpy(&own, host->address, sizeof(own));
	if (card.magic != CARD_MAGIC)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %d uses another engine than UCX", peer);
	if (card.listeners > (size - sizeof(card)) / sizeof(struct ddp_ucx_end))
		return ddp_error_set(error, DDP_ERR_FORMAT, "rank %d: a damaged address of UCX",
				     peer);
	if (card.major != own.major || card.minor != own.minor)
		ddp_log_print(host->log, DDP_LEVEL_WARNING, "ucx",
			      "rank %d has UCX %u.%u, this one %u.%u", peer, card.major, card.minor,
			      own.major, own.minor);
	for (uint64_t i = 0; i < card.listeners && rc == 0; i++) {
		struct ddp_ucx_end end;

		memcpy(&end, at, sizeof(end));
		at += sizeof(end);
		if (card.place == own.place || !ddp_ucx_is_loopback(&end))
			rc = ddp_ucx_add_end(&host->door.there, &end, peer, error);
	}
	if (rc < 0)
		return rc;
	to->host = host;
	status = ucp_ep_create(
		host->worker,
		&(const ucp_ep_params_t){.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
						       UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
						       UCP_EP_PARAM_FIELD_ERR_HANDLER,
					 .address = (const void *)at,
					 .err_mode = UCP_ERR_HANDLING_MODE_PEER,
					 .err_handler = {.cb = peer_lost, .arg = to}},
		&to->endpoint);
	if (status == UCS_OK)
		return 0;
	to->endpoint = NULL;
	snprintf(what, sizeof(what), "has no way from rank %d to rank %d", host->rank, peer);
	return no_way(error, what, status);
}

static int ucx_pass(struct ddp_host *host, const void **data, size_t *size, struct ddp_error *error)
{
	int status = ddp_ucx_find_connections(&host->door, &host->ours, error);

	*data = host->ours.list;
	*size = (size_t)host->ours.count * sizeof(*host->ours.list);
	if (status == 0 && *size > DDP_HOST_PASS)
		return ddp_error_set(error, DDP_ERR_ENGINE,
				     "UCX has %d connections over TCP, more than %zu: name the "
				     "devices to use in UCX_NET_DEVICES",
				     host->ours.count, DDP_HOST_PASS / sizeof(*host->ours.list));
	return status;
}

static int ucx_admit(struct ddp_host *host, int peer, const void *data, size_t size,
		     struct ddp_error *error)
{
	struct ddp_ucx_end end;
	int status = 0;

	if (size % sizeof(end))
		return ddp_error_set(error, DDP_ERR_FORMAT, "rank %d: a damaged pass of UCX", peer);
	for (size_t i = 0; i < size / sizeof(end) && status == 0; i++) {
		memcpy(&end, (const char *)data + i * sizeof(end), sizeof(end));
		if (end.rank == host->rank)
			status = ddp_ucx_add_end(&host->door.guests, &end, peer, error);
	}
	return status;
}

static int ucx_meet(struct ddp_host *host, const struct ddp_watch *watch, struct ddp_error *error)
{
	int status = ddp_ucx_door_open(&host->door, watch, error);

	ddp_ucx_door_shut(&host->door, host->log);
	return status;
}

static int ucx_broken(struct ddp_host *host, int *peer, char *why, size_t size)
{
	if (host->lost < 0)
		return 0;
	*peer = host->lost;
	snprintf(why, size, "%s", ucs_status_string(host->peers[host->lost].lost));
	return 1;
}

static void ucx_note(struct ddp_host *host, int peer, const char *text)
{
	send_letter(host, peer, DDP_LETTER_NOTE, text);
}

static int ucx_noted(struct ddp_host *host, int *peer, char *text, size_t size)
{
	if (host->noted < 0)
		return 0;
	*peer = host->noted;
	snprintf(text, size, "%s", host->note);
	return 1;
}

static void ucx_ask(struct ddp_host *host, int peer)
{
	host->peers[peer].answered = false;
	send_letter(host, peer, DDP_LETTER_ASK, NULL);
}

static bool ucx_answered(struct ddp_host *host, int peer)
{
	return host->peers[peer].answered;
}

/* --- Time ----------------------------------------------------------------------------- */

static int ucx_progress(struct ddp_host *host)
{
	unsigned happened = ucp_worker_progress(host->worker);

	if (host->losses)
		end_receives(host);
	return happened > 0;
}

static void ucx_idle(struct ddp_host *host, uint64_t nanoseconds)
{
	struct pollfd events = {.fd = host->events, .events = POLLIN};
	struct timespec time = {.tv_sec = (time_t)(nanoseconds / 1000000000u),
				.tv_nsec = (long)(nanoseconds % 1000000000u)};
	uint64_t now = ddp_now();

	if (now - host->watched >= LONG_WAIT) {
		host->watched = now;
		if (host->watch_sockets)
			ddp_ucx_bound_sockets(&host->door.ports);
	}
	if (ucp_worker_arm(host->worker) == UCS_OK)
		ppoll(&events, 1, &time, NULL);
}

/* --- For people ----------------------------------------------------------------------- */

/* Add the transports that [text], UCX's description of an endpoint, names: "0:tcp/eth0.0". */
static void add_transports(char *list, size_t size, const char *text)
{
	for (text = strstr(text, "lane["); text; text = strstr(text + 1, "lane[")) {
		const char *end = strchr(text, '/'), *name = end;
		char word[32];

		while (name && name > text && name[-1] != ':')
			name--;
		if (!name || end - name >= (ptrdiff_t)sizeof(word) - 2)
			continue;
		snprintf(word, sizeof(word), "%.*s", (int)(end - name), name);
		if (!strstr(list, word) && strlen(list) + strlen(word) + 3 < size)
			sprintf(list + strlen(list), "%s%s", *list ? ", " : "", word);
	}
}

static void ucx_describe(struct ddp_host *host, char *text, size_t size)
{
	char list[128] = "", *info = NULL;
	size_t length;
	FILE *stream = open_memstream(&info, &length);

	for (int i = 0; stream && i < host->size; i++)
		if (host->peers[i].endpoint && host->peers[i].lost == UCS_OK)
			ucp_ep_print_info(host->peers[i].endpoint, stream);
	if (stream && fclose(stream) == 0)
		add_transports(list, sizeof(list), info);
	free(info);
	snprintf(text, size, *list ? "UCX %s (%s)" : "UCX %s", ucp_get_version_string(), list);
}

/* --- Close ---------------------------------------------------------------------------- */

static bool all_said_bye(const struct ddp_host *host)
{
	for (int i = 0; i < host->size; i++)
		if (host->peers[i].endpoint && host->peers[i].lost == UCS_OK && !host->peers[i].bye)
			return false;
	return true;
}

/*
 * Say goodbye and wait for the goodbyes of the others. A socket that is closed while something
 * unread lies in it takes with it what is on its way to the peer; after its goodbye there is
 * nothing more to read.
 */
static void say_bye(struct ddp_host *host)
{
	uint64_t until = ddp_now() + GOODBYE;

	for (int i = 0; i < host->size; i++)
		send_letter(host, i, DDP_LETTER_BYE, NULL);
	while ((host->letters > 0 || !all_said_bye(host)) && ddp_now() < until)
		if (!ucp_worker_progress(host->worker))
			ucx_idle(host, DDP_WATCH_PERIOD);
}

static void ucx_close(struct ddp_host *host, bool clean)
{
	if (!host)
		return;
	if (host->worker) {
		ddp_ucx_door_shut(&host->door, NULL);
		if (clean)
			say_bye(host);
		else
			post_letters(host, POSTING);
		for (int i = 0; i < host->size; i++)
			force_close(host, &host->peers[i]);
		ucp_worker_destroy(host->worker);
	}
	if (host->context)
		ucp_cleanup(host->context);
	free_flights(host);
	ddp_ucx_door_free(&host->door);
	free(host->ours.list);
	free(host->peers);
	free(host->address);
	free(host);
}

static int ucx_open(struct ddp_host **opened, int rank, int size, const struct ddp_watch *watch,
		    ddp_host_end *end, const struct ddp_log *log, struct ddp_error *error)
{
	struct ddp_host *host = calloc(1, sizeof(*host));
	int status;

	(void)watch;
	(void)end;
	*opened = NULL;
	ddp_ucx_calm();
	if (host)
		host->peers = calloc((size_t)size, sizeof(*host->peers));
	if (!host || !host->peers) {
		free(host);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for UCX");
	}
	host->log = log;
	host->rank = rank;
	host->size = size;
	host->lost = host->noted = -1;
	host->watched = ddp_now();
	status = check_release(host, error);
	if (status == 0)
		status = open_context(host, error);
	if (status == 0)
		status = open_worker(host, error);
	if (status == 0)
		status = open_letters(host, error);
	if (status < 0)
		ucx_close(host, false);
	else
		*opened = host;
	return status;
}

DDP_API const struct ddp_host_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_HOST_VERSION, sizeof(struct ddp_host_engine), "wide", "ucx",
		 PACKAGE_VERSION},
	.open = ucx_open,
	.address = ucx_address,
	.connect = ucx_connect,
	.pass = ucx_pass,
	.admit = ucx_admit,
	.meet = ucx_meet,
	.send = ucx_send,
	.recv = ucx_recv,
	.progress = ucx_progress,
	.idle = ucx_idle,
	.cancel = ucx_cancel,
	.broken = ucx_broken,
	.note = ucx_note,
	.noted = ucx_noted,
	.ask = ucx_ask,
	.answered = ucx_answered,
	.describe = ucx_describe,
	.close = ucx_close,
};
