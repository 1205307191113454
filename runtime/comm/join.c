/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - how a rank joins the world
 *
 * 1. If nodes have several ranks, the first rank of each node, the leader, makes shared
 *    memory. All ranks meet in the store, and the other ranks map the memory.
 * 2. All ranks publish a card, which says whether the rank shares memory and what its address is,
 *    and meet. If a rank of a node cannot share memory, no rank of that node does.
 * 3. The leaders read all cards. All ranks build the same topology from them.
 * 4. If there is a single node, but it has several groups, all ranks publish an address, and
 *    meet.
 * 5. The groups connect.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings.h"
#include "ddp-private.h"
#include "recorder.h"

/* --- Rendezvous -------------------------------------------------------------------------- */

/* Keys of the store. */
#define KEY_CARD "card"
#define KEY_TICKET "ticket"
#define KEY_ADDRESS "address"
#define KEY_NOT_SHARED "not-shared"

enum { CACHE_LINE = 64 };

/* --- Published data ---------------------------------------------------------------------- */

/* Read DDP_LOCAL and DDP_WIDE before the ranks meet, so that invalid values fail early. */
static int read_settings(struct ddp *ddp)
{
	int sharing, engine;
	int status = ddp_setting_word(DDP_SET_DDP_LOCAL, ddp_sharing_words, &sharing, &ddp->error);

	if (status == 0)
		status = ddp_setting_word(DDP_SET_DDP_WIDE, ddp_host_engine_names, &engine,
					  &ddp->error);
	if (status < 0)
		return status;
	ddp->sharing = (enum ddp_sharing)sharing;
	ddp->shares = ddp->sharing != DDP_SHARING_OFF;
	return 0;
}

/* Returns whether the world certainly has more than one group. */
static bool needs_engine(const struct ddp *ddp)
{
	return ddp->identity.size > 1 &&
	       (ddp->identity.node_count > 1 || ddp->sharing == DDP_SHARING_OFF);
}

static bool is_leader(const struct ddp *ddp)
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
		.sharing = (int32_t)ddp->sharing,
		.shares = ddp->shares,
		.pid = (int32_t)getpid(),
	};

	clock_gettime(CLOCK_REALTIME, &now);
	card.began = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	snprintf(card.host, sizeof(card.host), "%.*s", DDP_HOST_NAME - 1, identity->host);
	return card;
}

static int open_engine(struct ddp *ddp, struct ddp_host_card *address,
		       const struct ddp_watch *watch)
{
	const struct ddp_host_setup setup = {
		.rank = ddp->identity.rank,
		.size = ddp->identity.size,
		.watch = watch,
		.end = ddp_end,
		.log = &ddp->log,
	};

	ddp->engine =
		ddp_host_engine_find(ddp_setting_get(DDP_SET_DDP_WIDE), &ddp->log, &ddp->error);
	if (!ddp->engine)
		return ddp->error.status;
	return ddp->engine->open(&ddp->host, &setup, address, &ddp->error);
}

static int make_directory(void *owner)
{
	struct ddp_error error = {0};

	return ddp_store_make_directory(&((struct ddp *)owner)->identity, &error);
}

static void group_options(struct ddp *ddp, const int *ranks, struct ddp_group_options *options)
{
	/* The rendezvous directory exists if srun made it; else the file method makes it. */
	bool exists = ddp->identity.own || ddp->store->method == &ddp_store_file;

	*options = (struct ddp_group_options){
		.index = ddp->shares ? ddp->identity.local_rank : 0,
		.size = ddp->shares ? ddp->identity.local_size : 1,
		.ranks = ranks,
		.host = ddp->identity.host,
		.directory = exists ? ddp->identity.directory : NULL,
		.make_directory = make_directory,
		.owner = ddp,
		.simd = ddp->simd,
		.log = &ddp->log,
	};
}

/*
 * Create the shared memory. The ranks have not met yet, so only this rank's number is known, and
 * not those of the other members.
 */
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

/* Continue without shared memory, and return 0. If DDP_LOCAL is "on", return the error instead. */
static int do_without_sharing(struct ddp *ddp)
{
	snprintf(ddp->not_shared, sizeof(ddp->not_shared), "%s", ddp->error.text);
	if (ddp->sharing == DDP_SHARING_ON)
		return ddp_error_set(
			&ddp->error, ddp->error.status,
			"%.800s. With DDP_LOCAL=auto the ranks of %.63s use %s instead.",
			ddp->not_shared, ddp->identity.host, ddp_setting_get(DDP_SET_DDP_WIDE));
	ddp->shares = false;
	ddp_error_clear(&ddp->error);
	return 0;
}

/*
 * On the leader of a node, create the shared memory and publish its ticket. If there is no memory,
 * publish "".
 */
static int prepare_memory(struct ddp *ddp, const struct ddp_watch *watch)
{
	int status = 0;

	(void)watch;
	if (!is_leader(ddp))
		return 0;
	if (create_group(ddp) < 0)
		status = do_without_sharing(ddp);
	return status < 0 ? status
			  : ddp_store_put(ddp->store, KEY_TICKET, ddp->ticket, sizeof(ddp->ticket),
					  &ddp->error);
}

static int prepare_engine(struct ddp *ddp, const struct ddp_watch *watch)
{
	struct ddp_host_card address;
	int status = open_engine(ddp, &address, watch);

	return status < 0 ? status
			  : ddp_store_put(ddp->store, KEY_ADDRESS, address.data, address.bytes,
					  &ddp->error);
}

/* Publish the reason if this rank cannot share memory, and its address for other groups. */
static int prepare_world(struct ddp *ddp, const struct ddp_watch *watch)
{
	int status = 0;

	if (*ddp->not_shared)
		status = ddp_store_put(ddp->store, KEY_NOT_SHARED, ddp->not_shared,
				       sizeof(ddp->not_shared), &ddp->error);
	return status < 0 || !needs_engine(ddp) ? status : prepare_engine(ddp, watch);
}

/*
 * A rank that cannot join waits so many seconds for the other ranks, so that they can read the
 * reason.
 */
#define FAILED_WAIT 30.0

/*
 * Call [prepare], and publish this rank's card. If [prepare] failed, the card contains the error's
 * text. Then meet the other ranks.
 */
static int publish_and_meet(struct ddp *ddp, const struct ddp_watch *watch,
			    int (*prepare)(struct ddp *, const struct ddp_watch *))
{
	struct ddp_watch failed_watch;
	struct ddp_card card = own_card(ddp);
	struct ddp_error failure = {0};
	int status;

	ddp_watch_block(); /* [prepare] can block in files or name resolution */
	status = prepare(ddp, watch);
	ddp_watch_unblock();
	if (status < 0) {
		failure = ddp->error;
		snprintf(card.failure, sizeof(card.failure), "%.*s", DDP_CARD_FAILURE - 1,
			 failure.text);
		failed_watch = ddp_watch_start(FAILED_WAIT, watch->check, watch->owner);
		if (ddp->timeout > FAILED_WAIT)
			watch = &failed_watch;
	}
	status = ddp_store_put(ddp->store, KEY_CARD, &card, sizeof(card), &ddp->error);
	if (status == 0)
		status = ddp_store_fence(ddp->store, watch, &ddp->error);
	if (failure.status == 0)
		return status;
	ddp->error = failure;
	return failure.status;
}

static int get_card(struct ddp *ddp, int rank, struct ddp_card *card)
{
	size_t size = sizeof(*card);
	int status = ddp_store_get(ddp->store, rank, KEY_CARD, card, &size, &ddp->error);

	if (status == 0 && size != sizeof(*card))
		status = ddp_error_set(&ddp->error, DDP_ERR_MISMATCH,
				       "rank %d runs another release of libddp. Install one "
				       "release on all nodes.",
				       rank);
	card->host[sizeof(card->host) - 1] = '\0';
	card->failure[sizeof(card->failure) - 1] = '\0';
	if (status == 0 && *card->failure)
		status = ddp_error_set(&ddp->error, DDP_ERR_ABORTED, "from rank %d on %s: %s", rank,
				       card->host, card->failure);
	return status;
}

/* --- Group ------------------------------------------------------------------------------- */

struct mates {
	int *ranks;
	int apart; /* lowest local rank that does not share memory, or -1 if all share memory */
};

/* If [rank] is on this node, add it to [mates]. Returns the number of ranks added, 0 or 1. */
static int add_mate(struct ddp *ddp, int rank, struct mates *mates, int *status)
{
	const struct ddp_identity *identity = &ddp->identity;
	struct ddp_card card;

	*status = get_card(ddp, rank, &card);
	if (*status < 0 || card.node_rank != identity->node_rank || card.local_rank < 0 ||
	    card.local_rank >= identity->local_size || mates->ranks[card.local_rank] >= 0)
		return 0;
	mates->ranks[card.local_rank] = rank;
	if (!card.shares && (mates->apart < 0 || card.local_rank < mates->apart))
		mates->apart = card.local_rank;
	return 1;
}

/*
 * Find the ranks of this node. With Slurm's block distribution, their numbers are close to this
 * rank's number. So the search starts at this rank's number, and need not read all cards. The
 * caller must always free mates->ranks.
 */
static int find_mates(struct ddp *ddp, struct mates *mates)
{
	const struct ddp_identity *identity = &ddp->identity;
	int first = identity->rank - identity->local_rank;
	int found = 0, status = 0;

	mates->apart = -1;
	mates->ranks = calloc((size_t)identity->local_size, sizeof(*mates->ranks));
	if (!mates->ranks)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d ranks",
				     identity->local_size);
	for (int i = 0; i < identity->local_size; i++)
		mates->ranks[i] = -1;
	if (first < 0 || first + identity->local_size > identity->size)
		first = 0;
	for (int i = 0; i < identity->size && found < identity->local_size && status == 0; i++)
		found += add_mate(ddp, (first + i) % identity->size, mates, &status);
	if (status < 0 || found == identity->local_size)
		return status;
	return ddp_error_set(&ddp->error, DDP_ERR_MISMATCH,
			     "rank %d on %s expects %d ranks on its node, but %d ranks are on it",
			     identity->rank, identity->host, identity->local_size, found);
}

static int attach_group(struct ddp *ddp, const int *ranks, const struct ddp_watch *watch)
{
	struct ddp_group_options options;
	size_t size = sizeof(ddp->ticket);
	int status;

	status = ddp_store_get(ddp->store, ranks[0], KEY_TICKET, ddp->ticket, &size, &ddp->error);
	if (status < 0)
		return status;
	if (!*ddp->ticket)
		ddp_error_set(&ddp->error, DDP_ERR_SYSTEM, "rank %d on %s has no shared memory",
			      ranks[0], ddp->identity.host);
	else {
		group_options(ddp, ranks, &options);
		status = ddp_group_attach(&ddp->group, &options, ddp->ticket, watch, &ddp->error);
	}
	return ddp->error.status == DDP_ERR_SYSTEM ? do_without_sharing(ddp) : status;
}

/*
 * Time during which share_memory() answers ranks that map this leader's memory, in nanoseconds.
 * After that, the leader answers them while it waits in the store.
 */
#define SERVE_TIME UINT64_C(500000000)

static int share_memory(struct ddp *ddp, const struct ddp_watch *watch)
{
	struct mates mates = {.ranks = NULL};
	int status = publish_and_meet(ddp, watch, prepare_memory);

	if (status == 0)
		status = find_mates(ddp, &mates);
	if (status == 0 && ddp->group) {
		ddp_group_rename(ddp->group, mates.ranks);
		ddp_group_serve(ddp->group, SERVE_TIME);
	} else if (status == 0 && !is_leader(ddp)) {
		status = attach_group(ddp, mates.ranks, watch);
	}
	free(mates.ranks);
	return status;
}

/* On one rank of the node, log why the ranks of this node do not share memory. */
static void warn_not_shared(struct ddp *ddp, const struct mates *mates)
{
	struct ddp_log log = ddp->log;
	char reason[DDP_ERROR_SIZE];
	size_t size = sizeof(reason);

	log.all_ranks = true;
	if (ddp_store_get(ddp->store, mates->ranks[mates->apart], KEY_NOT_SHARED, reason, &size,
			  &ddp->error) < 0)
		snprintf(reason, sizeof(reason), "%s", ddp->error.text);
	ddp_error_clear(&ddp->error);
	ddp_log_print(&log, DDP_LEVEL_WARNING, "local",
		      "the %d ranks of %s use %s among themselves instead of shared memory: %.900s",
		      ddp->identity.local_size, ddp->identity.host,
		      ddp_setting_get(DDP_SET_DDP_WIDE), reason);
}

/* If any rank of this node cannot share memory, put each rank of the node into a separate group. */
static int settle_sharing(struct ddp *ddp)
{
	struct mates mates;
	int status = find_mates(ddp, &mates);

	if (status == 0 && mates.apart >= 0) {
		if (ddp->identity.local_rank == 0)
			warn_not_shared(ddp, &mates);
		if (ddp->group)
			ddp_group_leave(ddp->group);
		ddp_group_destroy(ddp->group);
		ddp->group = NULL;
		ddp->shares = false;
	}
	free(mates.ranks);
	return status;
}

/* Meet the members of the group. If memory is not shared, this rank is the only member. */
static int meet_group(struct ddp *ddp, const struct ddp_watch *watch)
{
	int status = ddp->sharing != DDP_SHARING_OFF ? settle_sharing(ddp) : 0;

	if (status == 0 && !ddp->group)
		status = create_group(ddp);
	return status < 0 ? status : ddp_group_meet(ddp->group, watch, &ddp->error);
}

/* --- World ------------------------------------------------------------------------------- */

/* On the leader of a group, read the cards of all ranks. */
static int read_cards(struct ddp *ddp, struct ddp_card *cards)
{
	int status = 0;

	for (int rank = 0; rank < ddp->identity.size && status == 0; rank++)
		status = get_card(ddp, rank, &cards[rank]);
	return status;
}

static int broadcast_in_group(struct ddp *ddp, void *data, size_t bytes,
			      const struct ddp_watch *watch)
{
	struct ddp_call call = {.kind = UINT32_MAX, .count = bytes, .name = "start"};

	return ddp_group_broadcast(ddp->group, &call, data, bytes, 0, watch, &ddp->error);
}

/*
 * The leader broadcasts all cards to its group through shared memory, or its error if it could not
 * read them. Then all members build the topology.
 */
static int find_topology(struct ddp *ddp, const struct ddp_watch *watch)
{
	int size = ddp->identity.size, status;
	struct ddp_card *cards = calloc((size_t)size, sizeof(*cards));
	struct ddp_error failure = {0};

	if (!cards)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d ranks", size);
	if (is_leader(ddp) && read_cards(ddp, cards) < 0)
		failure = ddp->error;
	status = broadcast_in_group(ddp, &failure, sizeof(failure), watch);
	if (status == 0 && failure.status < 0)
		status = ddp_error_set(&ddp->error, failure.status, "%s", failure.text);
	if (status == 0)
		status = broadcast_in_group(ddp, cards, (size_t)size * sizeof(*cards), watch);
	if (status == 0) {
		ddp_recorder_set_world(ddp->recorder, cards[0].began);
		status = ddp_topology_create(&ddp->topology, cards, size, &ddp->error);
	}
	if (status == 0)
		ddp->world.node_rank = ddp_topology_node(cards, size, ddp->identity.rank);
	free(cards);
	return status;
}

static int connect_ranks(struct ddp *ddp, const int *ranks, int count,
			 const struct ddp_watch *watch)
{
	struct ddp_host_card *cards = calloc((size_t)count + 1, sizeof(*cards));
	int status = 0;

	if (!cards)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d addresses",
				     count);
	for (int i = 0; i < count && status == 0; i++) {
		cards[i].rank = ranks[i];
		cards[i].bytes = sizeof(cards[i].data);
		status = ddp_store_get(ddp->store, ranks[i], KEY_ADDRESS, cards[i].data,
				       &cards[i].bytes, &ddp->error);
	}
	if (status == 0)
		status = ddp->engine->meet(ddp->host, cards, count, watch, &ddp->error);
	free(cards);
	return status;
}

/*
 * Connect to the members of this rank's column with which it exchanges messages. A rank without a
 * column connects to no rank.
 */
static int connect_column(struct ddp *ddp, const struct ddp_watch *watch)
{
	int size = ddp->column.size, index = ddp->column.index, count = 0;
	int *ranks = calloc((size_t)size + DDP_COLUMN_PARTNERS, sizeof(*ranks));
	int status;

	if (!ranks)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d ranks", size);
	if (size > 0 && !ddp->engine->all_peers)
		count = ddp_column_partners(size, index, ranks);
	for (int i = 0; i < count; i++)
		ranks[i] = ddp->column_ranks[ranks[i]];
	for (int i = 0; i < size && ddp->engine->all_peers; i++)
		if (i != index)
			ranks[count++] = ddp->column_ranks[i];
	status = connect_ranks(ddp, ranks, count, watch);
	free(ranks);
	return status;
}

static int join_column(struct ddp *ddp)
{
	const struct ddp_topology *topology = ddp->topology;
	const struct ddp_place *place = &topology->places[ddp->identity.rank];

	ddp->column = (struct ddp_column){.engine = ddp->engine, .host = ddp->host};
	if (topology->groups == 1 || place->member >= topology->columns)
		return 0;
	ddp->column_ranks = calloc((size_t)topology->groups, sizeof(int));
	ddp->column.scratch = aligned_alloc(CACHE_LINE, DDP_COLUMN_SCRATCH);
	if (!ddp->column_ranks || !ddp->column.scratch)
		return ddp_error_set(&ddp->error, DDP_ERR_MEMORY, "no memory for %d groups",
				     topology->groups);
	for (int group = 0; group < topology->groups; group++)
		ddp->column_ranks[group] = ddp_topology_rank(topology, group, place->member);
	ddp->column.index = place->group;
	ddp->column.size = topology->groups;
	ddp->column.ranks = ddp->column_ranks;
	ddp->column.simd = ddp->simd;
	ddp->column.name = ddp_rank_name;
	ddp->column.owner = ddp;
	return 0;
}

static void describe_world(struct ddp *ddp)
{
	ddp->world.group_size = ddp->shares ? ddp->identity.local_size : 1;
	if (ddp->topology->groups == 1)
		return;
	ddp->world.wide = ddp->engine->head.name;
	if (ddp->column.size == 0)
		return; /* this rank is not in a column */
	ddp->engine->describe(ddp->host, ddp->transport, sizeof(ddp->transport));
	ddp->world.transport = ddp->transport;
}

static bool has_mates(const struct ddp *ddp)
{
	return ddp->identity.size > ddp->identity.node_count;
}

int ddp_join_world(struct ddp *ddp, const char *method)
{
	struct ddp_watch watch = ddp->watch;
	int status = read_settings(ddp);

	if (status == 0)
		status = ddp_store_open(&ddp->store, method, &ddp->identity, &ddp->log, &watch,
					&ddp->error);
	if (status < 0)
		return status;
	ddp->world.method = ddp->store->method->head.name;
	if (ddp->shares && has_mates(ddp))
		status = share_memory(ddp, &watch);
	if (status == 0)
		status = publish_and_meet(ddp, &watch, prepare_world);
	if (status == 0)
		status = meet_group(ddp, &watch);
	if (status == 0)
		status = find_topology(ddp, &watch);
	if (status == 0 && ddp->topology->groups > 1 && !ddp->host)
		status = publish_and_meet(ddp, &watch, prepare_engine);
	if (status == 0)
		status = join_column(ddp);
	if (status == 0 && ddp->host)
		status = connect_column(ddp, &watch);
	if (status == 0)
		describe_world(ddp);
	return status;
}

void ddp_leave_world(struct ddp *ddp, bool clean)
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
	free(ddp->column.scratch);
	ddp->column_ranks = NULL;
	ddp->column.scratch = NULL;
}
