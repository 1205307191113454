/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ucx.h"

/* How long a clean end waits for the goodbyes of the peers. */
#define GOODBYE 800000000u
/* How long letters may take to leave at any other end. */
#define POSTING 50000000u
/* A wait this long is looked at: whether the kernel still gets through. */
#define LONG_WAIT 1000000000u

/* What a rank publishes: this, and UCX's address. */
struct card {
	uint32_t magic;
	uint16_t major, minor; /* of UCX */
};

enum { CARD_MAGIC = 0x78637564 };

static void ucx_close(struct ddp_host *host, bool clean);

/* --- Open ------------------------------------------------------------------------------- */

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
	int rc = ddp_ucx_configure(host, &config, error);

	if (rc < 0)
		return rc;
	status = ucp_init(&parameters, config, &host->context);
	ucp_config_release(config);
	if (status == UCS_OK && !has_network(host))
		status = UCS_ERR_NO_DEVICE;
	return status == UCS_OK ? 0 : no_way(error, "finds no network device", status);
}

static int open_worker(struct ddp_host *host, struct ddp_error *error)
{
	const ucp_worker_params_t parameters = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
						.thread_mode = UCS_THREAD_MODE_SERIALIZED};
	ucp_address_t *address;
	struct card card = {.magic = CARD_MAGIC};
	unsigned major, minor, patch;
	size_t size;
	struct ddp_ucx_ports others = ddp_ucx_find_ports(NULL);
	ucs_status_t status = ucp_worker_create(host->context, &parameters, &host->worker);

	host->ports = ddp_ucx_find_ports(&others);
	if (status == UCS_OK)
		status = ucp_worker_get_efd(host->worker, &host->events);
	if (status == UCS_OK)
		status = ucp_worker_get_address(host->worker, &address, &size);
	if (status != UCS_OK)
		return no_way(error, "cannot open a device", status);
	ucp_get_version(&major, &minor, &patch);
	card.major = (uint16_t)major;
	card.minor = (uint16_t)minor;
	host->address_size = sizeof(card) + size;
	host->address = malloc(host->address_size);
	if (host->address) {
		memcpy(host->address, &card, sizeof(card));
		memcpy((char *)host->address + sizeof(card), address, size);
	}
	ucp_worker_release_address(host->worker, address);
	return host->address ? 0 : ddp_error_set(error, DDP_ERR_MEMORY, "no memory for UCX");
}

static int ucx_open(struct ddp_host **opened, int rank, int size, const struct ddp_log *log,
		    struct ddp_error *error)
{
	struct ddp_host *host = calloc(1, sizeof(*host));
	int status;

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
		status = ddp_ucx_open_letters(host, error);
	if (status < 0)
		ucx_close(host, false);
	else
		*opened = host;
	return status;
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

/* --- Peers ------------------------------------------------------------------------------ */

static void peer_lost(void *user, ucp_ep_h endpoint, ucs_status_t status)
{
	struct ddp_ucx_peer *peer = user;
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
	struct ddp_ucx_peer *to = &host->peers[peer];
	struct card card, own;
	ucs_status_t status;
	char what[64];

	if (size <= sizeof(card) || to->endpoint)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "rank %d: %s", peer,
				     to->endpoint ? "connected twice" : "no address of UCX");
	memcpy(&card, data, sizeof(card));
	memcpy(&own, host->address, sizeof(own));
	if (card.magic != CARD_MAGIC)
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %d uses another engine than UCX", peer);
	if (card.major != own.major || card.minor != own.minor)
		ddp_log_print(host->log, DDP_LEVEL_WARNING, "ucx",
			      "rank %d has UCX %u.%u, this one %u.%u", peer, card.major, card.minor,
			      own.major, own.minor);
	to->host = host;
	status = ucp_ep_create(host->worker,
			       &(const ucp_ep_params_t){
				       .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
						     UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
						     UCP_EP_PARAM_FIELD_ERR_HANDLER,
				       .address = (const void *)((const char *)data + sizeof(card)),
				       .err_mode = UCP_ERR_HANDLING_MODE_PEER,
				       .err_handler = {.cb = peer_lost, .arg = to}},
			       &to->endpoint);
	if (status == UCS_OK)
		return 0;
	to->endpoint = NULL;
	snprintf(what, sizeof(what), "has no way from rank %d to rank %d", host->rank, peer);
	return no_way(error, what, status);
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
	ddp_ucx_letter(host, peer, DDP_LETTER_NOTE, text);
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
	ddp_ucx_letter(host, peer, DDP_LETTER_ASK, NULL);
}

static bool ucx_answered(struct ddp_host *host, int peer)
{
	return host->peers[peer].answered;
}

/* --- Time ------------------------------------------------------------------------------- */

static int ucx_progress(struct ddp_host *host)
{
	unsigned happened = ucp_worker_progress(host->worker);

	if (host->losses)
		ddp_ucx_end_receives(host);
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
		ddp_ucx_bound_sockets(host);
	}
	if (ucp_worker_arm(host->worker) == UCS_OK)
		ppoll(&events, 1, &time, NULL);
}

/* --- For people ------------------------------------------------------------------------- */

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

/* --- Close ------------------------------------------------------------------------------ */

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
		ddp_ucx_letter(host, i, DDP_LETTER_BYE, NULL);
	while ((host->letters > 0 || !all_said_bye(host)) && ddp_now() < until)
		if (!ucp_worker_progress(host->worker))
			ucx_idle(host, DDP_WATCH_PERIOD);
}

static void ucx_close(struct ddp_host *host, bool clean)
{
	if (!host)
		return;
	if (host->worker) {
		if (clean)
			say_bye(host);
		else
			ddp_ucx_post(host, POSTING);
		for (int i = 0; i < host->size; i++)
			ddp_ucx_force(host, &host->peers[i]);
		ucp_worker_destroy(host->worker);
	}
	if (host->context)
		ucp_cleanup(host->context);
	ddp_ucx_free_flights(host);
	free(host->peers);
	free(host->address);
	free(host);
}

DDP_API const struct ddp_host_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_HOST_VERSION, sizeof(struct ddp_host_engine), "wide", "ucx",
		 PACKAGE_VERSION},
	.open = ucx_open,
	.address = ucx_address,
	.connect = ucx_connect,
	.send = ddp_ucx_send,
	.recv = ddp_ucx_recv,
	.progress = ucx_progress,
	.idle = ucx_idle,
	.cancel = ddp_ucx_cancel,
	.broken = ucx_broken,
	.note = ucx_note,
	.noted = ucx_noted,
	.ask = ucx_ask,
	.answered = ucx_answered,
	.describe = ucx_describe,
	.close = ucx_close,
};
