/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - ddp_init() and ddp_destroy(): who is this rank, how it meets the others, and its handle */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings.h"
#include "ddp-private.h"
#include "recorder.h"

extern char **environ;

/* --- Memory that goes with the handle ----------------------------------------------------- */

struct ddp_kept {
	struct ddp_kept *next;
	max_align_t data[];
};

void *ddp_keep(struct ddp *ddp, size_t size)
{
	struct ddp_kept *kept;

	if (size > SIZE_MAX - sizeof(*kept))
		return NULL;
	kept = calloc(1, sizeof(*kept) + size);
	if (!kept)
		return NULL;
	kept->next = ddp->kept;
	ddp->kept = kept;
	return kept->data;
}

static void free_kept(struct ddp *ddp)
{
	while (ddp->kept) {
		struct ddp_kept *kept = ddp->kept;

		ddp->kept = kept->next;
		free(kept);
	}
}

/* --- Who am I ---------------------------------------------------------------------------- */

/* GPUs of this machine, which a process outside Slurm may use all. */
static int count_devices(void)
{
	char path[32];
	int count = 0;

	for (int i = 0; i < 64; i++) {
		snprintf(path, sizeof(path), "/dev/nvidia%d", i);
		count += access(path, F_OK) == 0;
	}
	return count;
}

static int read_identity(struct ddp *ddp)
{
	char hostname[256] = "localhost";
	char directory[PATH_MAX];
	struct ddp_surroundings surroundings = {
		.hostname = hostname,
		.process = (long)getpid(),
		.parent = (long)getppid(),
		.devices = count_devices(),
	};

	gethostname(hostname, sizeof(hostname) - 1);
	surroundings.directory = getcwd(directory, sizeof(directory)) ? directory : ".";
	return ddp_identity_read(environ, &surroundings, &ddp->identity, &ddp->error);
}

static void fill_world(struct ddp *ddp)
{
	const struct ddp_identity *identity = &ddp->identity;

	ddp->world = (struct ddp_world){
		.rank = identity->rank,
		.size = identity->size,
		.local_rank = identity->local_rank,
		.local_size = identity->local_size,
		.node_rank = identity->node_rank,
		.node_count = identity->node_count,
		.device = identity->device,
		.share = identity->share,
		.attempt = identity->attempt,
		.end_time = identity->end_time,
		.job = identity->job,
		.host = identity->host,
		.source = ddp_source_name(identity->source),
		.method = "none",
		.wide = "none",
		.timeout = ddp->timeout,
	};
}

static int read_options(struct ddp *ddp, const struct ddp_options *options)
{
	int status = ddp_log_open(&ddp->log, &ddp->error);

	if (status < 0)
		return status;
	if (options && options->size != sizeof(*options))
		return ddp_error_set(&ddp->error, DDP_ERR_ARGUMENT,
				     "ddp_init: options of %zu bytes, this libddp has %zu: begin "
				     "with DDP_OPTIONS_INIT, and build against the ddp.h of the "
				     "library that is used",
				     options->size, sizeof(*options));
	status = ddp_setting_seconds(DDP_SET_DDP_TIMEOUT, &ddp->timeout, &ddp->error);
	if (status < 0)
		return status;
	if (options && options->timeout != 0) {
		if (!(options->timeout > 0) || options->timeout > 1e9)
			return ddp_error_set(&ddp->error, DDP_ERR_ARGUMENT,
					     "ddp_init: a timeout of %g s: give more than 0",
					     options->timeout);
		ddp->timeout = options->timeout;
	}
	return ddp_simd_choose(&ddp->simd, &ddp->error);
}

/* A requeued job has the same number: its records must not be taken for the first attempt's. */
static int open_recorder(struct ddp *ddp, bool signals)
{
	const struct ddp_identity *identity = &ddp->identity;
	char directory[PATH_MAX + 16];

	snprintf(directory, sizeof(directory), "%s", identity->records);
	if (identity->attempt > 0 && *identity->records)
		snprintf(directory, sizeof(directory), "%s.%d", identity->records,
			 identity->attempt);
	ddp->recorder = ddp_recorder_create(directory, identity->job, identity->rank,
					    identity->size, identity->host);
	if (!ddp->recorder)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for the recorder");
	ddp_recorder_watch(ddp->recorder, identity->heartbeat);
	if (signals && identity->size > 1)
		ddp_recorder_on_term(ddp->recorder);
	return 0;
}

/* --- Meeting the others ------------------------------------------------------------------ */

/* Keys of the store. */
#define KEY_CARD "card"
#define KEY_TICKET "ticket"
#define KEY_ADDRESS "address"
#define KEY_PASS "pass"

enum { COLUMN_SCRATCH = 4 << 20, CACHE_LINE = 64 };

/* --- What each rank tells ---------------------------------------------------------------- */

/* DDP_LOCAL, DDP_WIDE: refused here where they are not understood. */
static int read_settings(struct ddp *ddp)
{
	static const char *const switches[] = {"off", "on", NULL};
	int local;
	int status = ddp_setting_word(DDP_SET_DDP_LOCAL, switches, &local, &ddp->error);

	ddp->shares = local != 0;
	return status;
}

/* Whether there will be more than one group, before anybody was asked. */
static bool needs_engine(const struct ddp *ddp)
{
	return ddp->identity.size > 1 && (ddp->identity.node_count > 1 || !ddp->shares);
}

static bool leads(const struct ddp *ddp)
{
	return ddp->identity.local_rank == 0 || !ddp->shares;
}

static struct ddp_card own_card(const struct ddp *ddp)
{
	const struct ddp_identity *identity = &ddp->identity;
	struct timespec now;
	struct ddp_card card = {
		.node_rank = identity->node_rank,
		.node_count = identity->node_count,
		.local_rank = identity->local_rank,
		.local_size = identity->local_size,
		.shares = ddp->shares,
		.pid = (int32_t)getpid(),
	};

	clock_gettime(CLOCK_REALTIME, &now);
	card.began = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	snprintf(card.host, sizeof(card.host), "%.*s", DDP_HOST_NAME - 1, identity->host);
	return card;
}

static int open_engine(struct ddp *ddp, const struct ddp_watch *watch)
{
	ddp->engine =
		ddp_host_engine_find(ddp_setting_get(DDP_SET_DDP_WIDE), &ddp->log, &ddp->error);
	if (!ddp->engine)
		return ddp->error.status;
	return ddp->engine->open(&ddp->host, ddp->identity.rank, ddp->identity.size, watch, ddp_end,
				 &ddp->log, &ddp->error);
}

/* Put card, ticket of the group's memory and address of the engine, then meet the others. */
static int exchange(struct ddp *ddp, const struct ddp_watch *watch)
{
	struct ddp_card card = own_card(ddp);
	const void *address;
	size_t size;
	int status;

	status = ddp_store_put(ddp->store, KEY_CARD, &card, sizeof(card), &ddp->error);
	if (status == 0 && leads(ddp))
		status = ddp_store_put(ddp->store, KEY_TICKET, ddp->ticket, sizeof(ddp->ticket),
				       &ddp->error);
	if (status == 0 && needs_engine(ddp)) {
		status = open_engine(ddp, watch);
		if (status == 0)
			status = ddp->engine->address(ddp->host, &address, &size, &ddp->error);
		if (status == 0)
			status = ddp_store_put(ddp->store, KEY_ADDRESS, address, size, &ddp->error);
	}
	if (status == 0)
		status = ddp_store_fence(ddp->store, watch, &ddp->error);
	return status;
}

static int get_card(struct ddp *ddp, int rank, struct ddp_card *card)
{
	size_t size = sizeof(*card);
	int status = ddp_store_get(ddp->store, rank, KEY_CARD, card, &size, &ddp->error);

	if (status == 0 && size != sizeof(*card))
		status = ddp_error_set(&ddp->error, DDP_ERR_MISMATCH,
				       "rank %d runs another release of libddp", rank);
	return status;
}

/* --- The group --------------------------------------------------------------------------- */

/* If [rank] is of this node, note it in [ranks]. Returns how many were noted: 0 or 1. */
static int note_mate(struct ddp *ddp, int rank, int *ranks, int *status)
{
	const struct ddp_identity *identity = &ddp->identity;
	struct ddp_card card;

	*status = get_card(ddp, rank, &card);
	if (*status < 0 || card.node_rank != identity->node_rank || card.local_rank < 0 ||
	    card.local_rank >= identity->local_size || ranks[card.local_rank] >= 0)
		return 0;
	ranks[card.local_rank] = rank;
	return 1;
}

/*
 * Find the ranks of this node: where Slurm deals them in blocks they lie around this one, so
 * that nobody reads the cards of all.
 */
static int find_mates(struct ddp *ddp, int *ranks)
{
	const struct ddp_identity *identity = &ddp->identity;
	int first = identity->rank - identity->local_rank;
	int found = 0, status = 0;

	for (int i = 0; i < identity->local_size; i++)
		ranks[i] = -1;
	if (first < 0 || first + identity->local_size > identity->size)
		first = 0;
	for (int i = 0; i < identity->size && found < identity->local_size && status == 0; i++)
		found += note_mate(ddp, (first + i) % identity->size, ranks, &status);
	if (status < 0 || found == identity->local_size)
		return status;
	return ddp_error_set(&ddp->error, DDP_ERR_MISMATCH,
			     "rank %d on %s says its node has %d ranks, but %d ranks say they are "
			     "there",
			     identity->rank, identity->host, identity->local_size, found);
}

static void group_options(const struct ddp *ddp, const int *ranks,
			  struct ddp_group_options *options)
{
	*options = (struct ddp_group_options){
		.index = ddp->shares ? ddp->identity.local_rank : 0,
		.size = ddp->shares ? ddp->identity.local_size : 1,
		.ranks = ranks,
		.host = ddp->identity.host,
		.simd = ddp->simd,
		.log = &ddp->log,
	};
}

/* The leader makes the segment before the fence; it does not know its mates' ranks yet. */
static int create_group(struct ddp *ddp)
{
	struct ddp_group_options options;
	int *ranks = calloc((size_t)ddp->identity.local_size, sizeof(*ranks));
	int status;

	if (!ranks)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d ranks",
				     ddp->identity.local_size);
	ranks[0] = ddp->identity.rank;
	group_options(ddp, ranks, &options);
	status = ddp_group_create(&ddp->group, &options, ddp->ticket, &ddp->error);
	free(ranks);
	return status;
}

static int attach_group(struct ddp *ddp, const int *ranks)
{
	struct ddp_group_options options;
	size_t size = sizeof(ddp->ticket);
	int status;

	status = ddp_store_get(ddp->store, ranks[0], KEY_TICKET, ddp->ticket, &size, &ddp->error);
	if (status < 0)
		return status;
	group_options(ddp, ranks, &options);
	return ddp_group_attach(&ddp->group, &options, ddp->ticket, &ddp->error);
}

/* --- The world --------------------------------------------------------------------------- */

/* The leader of the group reads everybody's card. */
static int read_cards(struct ddp *ddp, struct ddp_card *cards)
{
	int status = 0;

	for (int rank = 0; rank < ddp->identity.size && status == 0; rank++) {
		status = get_card(ddp, rank, &cards[rank]);
		cards[rank].host[DDP_HOST_NAME - 1] = '\0';
	}
	return status;
}

static int tell_group(struct ddp *ddp, void *data, size_t bytes, const struct ddp_watch *watch)
{
	struct ddp_call call = {.kind = UINT32_MAX, .count = bytes, .name = "start"};

	return ddp_group_broadcast(ddp->group, &call, data, bytes, 0, watch, &ddp->error);
}

/* The leader hands the cards, or why it has none, to its group through the shared memory. */
static int find_topology(struct ddp *ddp, const struct ddp_watch *watch)
{
	int size = ddp->identity.size, status;
	struct ddp_card *cards = calloc((size_t)size, sizeof(*cards));
	struct ddp_error found = {0};

	if (!cards)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d ranks", size);
	if (leads(ddp) && read_cards(ddp, cards) < 0)
		found = ddp->error;
	status = tell_group(ddp, &found, sizeof(found), watch);
	if (status == 0 && found.status < 0)
		status = ddp_error_set(&ddp->error, found.status, "%s", found.text);
	if (status == 0)
		status = tell_group(ddp, cards, (size_t)size * sizeof(*cards), watch);
	if (status == 0) {
		ddp_recorder_set_world(ddp->recorder, cards[0].began);
		status = ddp_topology_create(&ddp->topology, cards, size, &ddp->error);
	}
	if (status == 0)
		ddp->world.node_rank = ddp_topology_node(cards, size, ddp->identity.rank);
	free(cards);
	return status;
}

static int connect_peer(struct ddp *ddp, int rank, uint8_t *address)
{
	size_t size = DDP_HOST_ADDRESS;
	int status = ddp_store_get(ddp->store, rank, KEY_ADDRESS, address, &size, &ddp->error);

	if (status == 0)
		status = ddp->engine->connect(ddp->host, rank, address, size, &ddp->error);
	return status;
}

/* Take this rank's place in its column, if it has one. */
static int connect_column(struct ddp *ddp)
{
	const struct ddp_topology *topology = ddp->topology;
	const struct ddp_place *place = &topology->places[ddp->identity.rank];
	uint8_t *address = NULL;
	int status = 0;

	ddp->column = (struct ddp_column){.engine = ddp->engine, .host = ddp->host};
	if (topology->groups == 1 || place->member >= topology->columns)
		return 0;
	ddp->column_ranks = calloc((size_t)topology->groups, sizeof(int));
	ddp->column_scratch = aligned_alloc(CACHE_LINE, COLUMN_SCRATCH);
	address = malloc(DDP_HOST_ADDRESS);
	if (!ddp->column_ranks || !ddp->column_scratch || !address) {
		status = ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d groups",
				       topology->groups);
		goto out;
	}
	for (int group = 0; group < topology->groups && status == 0; group++) {
		ddp->column_ranks[group] = ddp_topology_rank(topology, group, place->member);
		if (group != place->group)
			status = connect_peer(ddp, ddp->column_ranks[group], address);
	}
	ddp->column.index = place->group;
	ddp->column.size = topology->groups;
	ddp->column.ranks = ddp->column_ranks;
	ddp->column.simd = ddp->simd;
	ddp->column.name = ddp_rank_name;
	ddp->column.owner = ddp;
	ddp->column.scratch = ddp->column_scratch;
	ddp->column.scratch_bytes = COLUMN_SCRATCH;
out:
	free(address);
	return status;
}

static int put_pass(struct ddp *ddp)
{
	const void *pass;
	size_t size;
	int status = ddp->engine->pass(ddp->host, &pass, &size, &ddp->error);

	if (status == 0)
		status = ddp_store_put(ddp->store, KEY_PASS, pass, size, &ddp->error);
	return status;
}

static int admit_column(struct ddp *ddp)
{
	uint8_t *pass = malloc(DDP_HOST_PASS);
	int status = 0;

	if (!pass)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d ranks",
				     ddp->column.size);
	for (int i = 0; i < ddp->column.size && status == 0; i++) {
		int rank = ddp->column_ranks[i];
		size_t size = DDP_HOST_PASS;

		if (rank == ddp->identity.rank)
			continue;
		status = ddp_store_get(ddp->store, rank, KEY_PASS, pass, &size, &ddp->error);
		if (status == 0)
			status = ddp->engine->admit(ddp->host, rank, pass, size, &ddp->error);
	}
	free(pass);
	return status;
}

/* Let the rest of the column in, and nobody else: also where there is nobody to let in. */
static int meet_column(struct ddp *ddp, const struct ddp_watch *watch)
{
	int status = 0;

	if (ddp->topology->groups > 1) {
		if (ddp->column.size)
			status = put_pass(ddp);
		if (status == 0)
			status = ddp_store_fence(ddp->store, watch, &ddp->error);
		if (status == 0)
			status = admit_column(ddp);
	}
	if (status == 0 && ddp->host)
		status = ddp->engine->meet(ddp->host, watch, &ddp->error);
	return status;
}

/* Map the memory of the group. */
static int meet_group(struct ddp *ddp, const struct ddp_watch *watch)
{
	int *ranks = calloc((size_t)ddp->identity.local_size, sizeof(*ranks));
	int status = 0;

	if (!ranks)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d ranks",
				     ddp->identity.local_size);
	if (ddp->shares)
		status = find_mates(ddp, ranks);
	if (status == 0 && !leads(ddp))
		status = attach_group(ddp, ranks);
	else if (status == 0 && ddp->shares)
		ddp_group_rename(ddp->group, ranks);
	if (status == 0)
		status = ddp_group_meet(ddp->group, watch, &ddp->error);
	free(ranks);
	return status;
}

/*
 * Meet the other ranks: open the store, exchange cards, find the groups, map their memory,
 * open the engine between them, wait for everybody.
 * Returns 0; or a DDP_ERR_x with what is open left for leave_world().
 */
static int join_world(struct ddp *ddp, const char *method)
{
	struct ddp_watch watch = ddp_watch_start(ddp->timeout, ddp_look_around, ddp);
	int status = read_settings(ddp);

	if (status == 0)
		status = ddp_store_open(&ddp->store, method, &ddp->identity, &ddp->log, &watch,
					&ddp->error);
	if (status < 0)
		return status;
	ddp->world.method = ddp->store->method->head.name;
	if (leads(ddp))
		status = create_group(ddp);
	if (status == 0)
		status = exchange(ddp, &watch);
	if (status == 0)
		status = meet_group(ddp, &watch);
	if (status < 0)
		return status;
	status = find_topology(ddp, &watch);
	if (status == 0)
		status = connect_column(ddp);
	if (status == 0)
		status = meet_column(ddp, &watch);
	if (status == 0 && ddp->topology->groups > 1)
		ddp->world.wide = ddp->engine->head.name;
	return status;
}

/* Take down what join_world() set up; [clean] where all ranks agreed to end. */
static void leave_world(struct ddp *ddp, bool clean)
{
	if (ddp->group && clean)
		ddp_group_leave(ddp->group);
	if (ddp->host)
		ddp->engine->close(ddp->host, clean);
	ddp->host = NULL;
	ddp_group_destroy(ddp->group);
	ddp->group = NULL;
	ddp_store_close(ddp->store, clean);
	ddp->store = NULL;
	ddp_topology_destroy(ddp->topology);
	ddp->topology = NULL;
	free(ddp->column_ranks);
	free(ddp->column_scratch);
	ddp->column_ranks = NULL;
	ddp->column_scratch = NULL;
}

/* --- The beginning and the end ----------------------------------------------------------- */

static int initialise(struct ddp *ddp, const struct ddp_options *options)
{
	int status = read_options(ddp, options);

	if (status == 0)
		status = read_identity(ddp);
	if (status < 0)
		return status;
	fill_world(ddp);
	ddp_log_name(&ddp->log, ddp->identity.rank, ddp->identity.host);
	status = open_recorder(ddp, !(options && options->no_signals));
	if (status == 0)
		status = join_world(ddp, options ? options->method : NULL);
	if (status == 0)
		status = ddp_barrier(ddp); /* which proves every way between the ranks */
	if (status == 0 && options && options->device)
		status = ddp_device_join(ddp);
	if (status == 0)
		ddp_log(ddp, DDP_LEVEL_INFO, "world",
			"%d ranks on %d nodes, by %s, met by %s, between groups: %s",
			ddp->world.size, ddp->world.node_count, ddp->world.source,
			ddp->world.method, ddp->world.wide);
	return status;
}

int ddp_init(struct ddp **ddp, const struct ddp_options *options)
{
	int status;

	*ddp = calloc(1, sizeof(**ddp));
	if (!*ddp)
		return DDP_ERR_MEMORY;
	(*ddp)->log = (struct ddp_log){.level = DDP_LEVEL_WARNING, .prefix = "ddp: ", .rank = -1};
	status = ddp_fail_call(*ddp, initialise(*ddp, options));
	(*ddp)->joined = status == 0;
	if (status < 0)
		ddp_tell_failure(*ddp); /* the others wait for this rank */
	return status;
}

void ddp_destroy(struct ddp *ddp)
{
	bool clean;

	if (!ddp)
		return;
	/* Arenas go with the group: all ranks are past their use when this barrier is. */
	clean = ddp->joined && !ddp->lost && ddp_barrier(ddp) == 0;
	ddp_arenas_free(ddp);
	if (ddp->device)
		ddp->leave_device(ddp);
	leave_world(ddp, clean);
	if (ddp->lost)
		ddp_tell_summary(ddp);
	ddp_recorder_destroy(ddp->recorder);
	free_kept(ddp);
	free(ddp);
}

void ddp_beat(struct ddp *ddp)
{
	if (!ddp->lost)
		ddp_recorder_beat(ddp->recorder);
}

/* --- What a handle tells ----------------------------------------------------------------- */

const struct ddp_world *ddp_world(const struct ddp *ddp)
{
	return &ddp->world;
}

const char *ddp_error(const struct ddp *ddp)
{
	return ddp ? ddp->error.text : "out of memory";
}

int ddp_status(const struct ddp *ddp)
{
	return ddp ? ddp->error.status : DDP_ERR_MEMORY;
}

void ddp_log(const struct ddp *ddp, enum ddp_level level, const char *subsystem, const char *format,
	     ...)
{
	va_list arguments;

	va_start(arguments, format);
	ddp_log_vprint(&ddp->log, level, subsystem, format, arguments);
	va_end(arguments);
}
