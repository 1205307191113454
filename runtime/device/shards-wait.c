/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards-wait.c - waiting for turns, what is said when they do not come, and the end of all waits
 *
 * A result counts when the stream is at rest and nobody had released the words by then: `released` is set
 * before the first word is, so it is looked at after the stream.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "shards.h"

enum { LIST_SIZE = 256 };

/* Nanoseconds after which a rank that has not looked is not waiting. */
#define SILENCE UINT64_C(1000000000)

static int say_mismatch(const struct ddp_device *device, int other, uint32_t turn,
			struct ddp_error *error)
{
	const struct ddp_shards_call *call = &device->calls[turn % DDP_SHARD_KEPT];

	return ddp_error_set(
		error, DDP_ERR_MISMATCH,
		"ranks %d and %d share a GPU and did not enqueue the same sum there: #%u "
		"is %zu x %s, %s, on rank %d; count, type, operation and place in memory "
		"of ddp_device_alloc() must be the same on all",
		device->ddp->identity.rank, device->ranks[other], turn - DDP_SHARD_FIRST + 1,
		call->count, ddp_type_name((uint32_t)call->type), ddp_op_name((uint32_t)call->op),
		device->ddp->identity.rank);
}

/* Whether others meant something else by what was enqueued, as far as they have told. */
static int find_mismatch(const struct ddp_device *device, struct ddp_error *error)
{
	uint32_t since = device->turn - (DDP_SHARD_FIRST - 1);
	int other;

	if (since > DDP_SHARD_KEPT / 2)
		since = DDP_SHARD_KEPT / 2;
	for (uint32_t turn = device->turn - since + 1; since > 0; since--, turn++) {
		other = ddp_shard_page_compare(device->page, device->members, device->member, turn);
		if (other >= 0)
			return say_mismatch(device, other, turn, error);
	}
	return 0;
}

/* "2, 3", as far as there is room. */
static void add_rank(char list[LIST_SIZE], int rank)
{
	size_t used = strlen(list);

	if (used < LIST_SIZE - 16)
		snprintf(list + used, LIST_SIZE - used, "%s%d", used ? ", " : "", rank);
}

/* The followers whose word [turn] lacks. Returns how many. */
static int list_missing(const struct ddp_device *device, uint32_t turn, char list[LIST_SIZE])
{
	int missing = 0;

	*list = '\0';
	for (int member = 1; member < device->members; member++) {
		if (ddp_shard_reached(ddp_shards_word(device, member), turn))
			continue;
		add_rank(list, device->ranks[member]);
		missing++;
	}
	return missing;
}

/* The ranks of this node that have not waited for a sum of late: they hang, or do something else. */
static int list_silent(const struct ddp_device *device, char list[LIST_SIZE])
{
	const struct ddp_topology *topology = device->ddp->topology;
	int group = topology->places[device->ddp->identity.rank].group, silent = 0;
	uint64_t now = ddp_now();

	*list = '\0';
	for (int member = 0; member < ddp_topology_members(topology, group); member++) {
		if (now < atomic_load(&ddp_shards_part(device, member)->looked) + SILENCE)
			continue;
		add_rank(list, ddp_topology_rank(topology, group, member));
		silent++;
	}
	return silent;
}

/* The turn that is under way here: the first that has not ended. */
static bool under_way(const struct ddp_device *device, uint32_t *turn)
{
	*turn = device->members > 1 ? ddp_shards_word(device, 0) + 1 : device->turn;
	return device->busy && ddp_shard_reached(device->turn, *turn);
}

/* Whether it is not a rank of this node that is waited for. */
static bool waits_for_others(const struct ddp_device *device)
{
	char list[LIST_SIZE];
	uint32_t turn;

	return ddp_shards_wide(device) && under_way(device, &turn) &&
	       list_missing(device, turn, list) == 0 && list_silent(device, list) == 0;
}

static const char *list_leaders(const struct ddp_device *device, char list[LIST_SIZE])
{
	*list = '\0';
	for (int shard = 0; shard < device->sharing->groups; shard++)
		add_rank(list, ddp_topology_rank(device->sharing, shard, 0));
	return list;
}

static int say_late(const struct ddp_device *device, const struct ddp_watch *watch,
		    struct ddp_error *error)
{
	const char *host = device->ddp->identity.host;
	int shards = device->sharing->groups, missing, silent;
	char list[LIST_SIZE];
	uint32_t turn;

	if (!under_way(device, &turn))
		return ddp_error_set(error, DDP_ERR_TIMEOUT,
				     "rank %d: the stream did not end in %g s, and no sum is under "
				     "way in it",
				     device->ddp->identity.rank, watch->limit);
	missing = list_missing(device, turn, list);
	turn -= DDP_SHARD_FIRST - 1;
	if (missing > 0)
		return ddp_error_set(
			error, DDP_ERR_TIMEOUT,
			"rank%s %s on %s did not arrive in sum #%u of the %d ranks of one "
			"GPU in %g s",
			missing > 1 ? "s" : "", list, host, turn, device->members, watch->limit);
	if (shards == 1)
		return ddp_error_set(
			error, DDP_ERR_TIMEOUT,
			"rank %d on %s did not end sum #%u of the %d ranks of one GPU, "
			"which it leads, in %g s",
			device->ranks[0], host, turn, device->members, watch->limit);
	silent = list_silent(device, list);
	if (silent > 0)
		return ddp_error_set(
			error, DDP_ERR_TIMEOUT,
			"sum #%u among %d GPUs did not end in %g s, and rank%s %s on %s "
			"did not wait for it",
			turn, shards, watch->limit, silent > 1 ? "s" : "", list, host);
	return ddp_error_set(
		error, DDP_ERR_TIMEOUT,
		"sum #%u among %d GPUs (led by ranks %s) did not end in %g s, for which "
		"all ranks of %s wait",
		turn, shards, list_leaders(device, list), watch->limit, host);
}

/* Seconds to hear from the ranks of another node whom they lost: on busy nodes one of them takes a second to say. */
#define HEAR_SECONDS 2.0

/*
 * [error] says that something is lost, and not whose fault it is: those who know tell, so hear them for a moment.
 * Leaders, who may know something, are quicker than those who hear it of them.
 */
static int hear(struct ddp_device *device, int status, struct ddp_error *error)
{
	struct ddp_watch watch = ddp_watch_start(device->wide ? HEAR_SECONDS : 2 * HEAR_SECONDS,
						 ddp_look_around, device->ddp);
	struct ddp_error told = {0, ""};
	int heard;

	do {
		ddp_watch_sleep(&watch, DDP_WATCH_PERIOD / 2);
		heard = ddp_watch_check(&watch, &told);
	} while (heard == 0);
	return *told.text ? ddp_error_set(error, heard, "%s", told.text) : status;
}

int ddp_shards_explain(struct ddp_device *device, int status, struct ddp_error *error)
{
	struct ddp_error story = *error;
	char list[LIST_SIZE];

	if (status >= 0)
		return status;
	status = ddp_error_set(
		error, status,
		"between %d GPUs, which are ranks there and led by ranks %s here: %.600s",
		device->sharing->groups, list_leaders(device, list), story.text);
	return ddp_is_peer_error(status) ? hear(device, status, error) : status;
}

/* Seconds that a wait for other GPUs has longer: their ranks know better whom they wait for. */
#define GRACE_WIDE 2.0

/* What a wait is for: the end of [stream], or where that is NULL of [turn] on all members. */
struct end {
	void *stream;
	uint32_t turn;
};

/* --- The end of all waits ------------------------------------------------------------- */

static void release_words(struct ddp_device *device)
{
	ddp_shard_page_release(device->page, device->members,
			       ddp_shards_wide(device) ? device->member : -1, device->turn);
}

/* A leader leaves the other GPUs before its stream goes on, or it would bring them what is no sum. */
static bool release(struct ddp_device *device, double seconds)
{
	struct ddp_poll poll = {0};
	struct ddp_watch watch;

	if (device->page)
		atomic_store(&device->page->released, 1);
	if (device->wide)
		(void)device->between->abort(device->wide, seconds);
	if (!device->page)
		return true;
	release_words(device);
	watch = ddp_watch_start(seconds, NULL, NULL);
	/* A stream that cannot say how far it is will not move any more. */
	while (device->busy && device->engine->idle(device->gpu, device->stream, NULL) == 0) {
		if (ddp_watch_poll(&watch, &poll, NULL) < 0)
			return false;
		release_words(device);
	}
	device->busy = false;
	return true;
}

/* First the story, so that whoever finds its words released finds it, too. */
int ddp_shards_fail(struct ddp_device *device, struct ddp_error *error)
{
	struct ddp *ddp = device->ddp;

	if (!device->failure.status) {
		device->failure = *error;
		if (!ddp->lost)
			ddp->error = *error;
		if (ddp_is_peer_error(error->status))
			(void)ddp_fail_call(ddp, error->status);
		else
			ddp_tell_failure(ddp);
		(void)release(device, DDP_SHARDS_REST);
	}
	*error = device->failure;
	return error->status;
}

bool ddp_shards_abort(struct ddp_device *device, double seconds)
{
	struct ddp_error story = {0, ""};

	if (!device->failure.status) {
		ddp_error_set(&story, DDP_ERR_ABORTED,
			      "rank %d gave up the sums on the GPU that it shares",
			      device->ddp->identity.rank);
		(void)ddp_shards_fail(device, &story);
	}
	return device->busy ? release(device, seconds) : true;
}

/* --- How it is ------------------------------------------------------------------------ */

static int look_between(struct ddp_device *device, struct ddp_error *error)
{
	if (!device->wide)
		return 0;
	return ddp_shards_explain(device, device->between->health(device->wide, error), error);
}

/* Somebody released the words, and told why before; or the engine between GPUs gave up. */
static int say_released(struct ddp_device *device, struct ddp_error *error)
{
	int status = find_mismatch(device, error);

	if (status < 0)
		return status;
	status = look_between(device, error);
	if (ddp_is_peer_error(status))
		return status;
	if (status == 0)
		status = ddp_error_set(error, DDP_ERR_ABORTED,
				       "the sums on the GPU that rank %d shares were given up",
				       device->ddp->identity.rank);
	return hear(device, status, error);
}

/* What all have ended by now they must have meant alike, whoever waits for it. */
static int compare_ended(const struct ddp_device *device, struct ddp_error *error)
{
	uint32_t turn = ddp_shards_word(device, 0);

	if (!device->busy || device->members == 1)
		return 0;
	if (!ddp_shard_reached(device->turn, turn))
		turn = device->turn;
	if (ddp_shard_page_compare(device->page, device->members, device->member, turn) < 0)
		return 0;
	return find_mismatch(device, error);
}

/*
 * The story of the node, too: a leader that others freed may have summed what was none, and the leaders of the
 * other GPUs find no word of it in their own pages.
 */
static int find_failure(struct ddp_device *device, struct ddp_error *error)
{
	int status;

	if (device->page && atomic_load(&device->page->released))
		return say_released(device, error);
	status = ddp_group_aborted(device->ddp->group, error);
	if (status == 0 && device->page)
		status = compare_ended(device, error);
	if (status < 0)
		return status;
	return look_between(device, error);
}

int ddp_shards_health(struct ddp_device *device, struct ddp_error *error)
{
	struct ddp_error story = device->failure;
	int status = story.status ? story.status : find_failure(device, &story);

	if (status < 0 && error)
		*error = story;
	return status;
}

/* --- Waiting -------------------------------------------------------------------------- */

static int has_come(struct ddp_device *device, const struct end *end, struct ddp_error *error)
{
	if (end->stream)
		return device->engine->idle(device->gpu, end->stream, error);
	return ddp_shard_reached(ddp_shards_word(device, 0), end->turn);
}

/* The watch says [status]. Where others are waited for it is not over, for a moment. */
static int look_at_watch(struct ddp_device *device, int status, struct ddp_watch *watch, bool *late,
			 struct ddp_error *error)
{
	if (status != DDP_ERR_TIMEOUT || *error->text)
		return status;
	if (!*late && waits_for_others(device)) {
		*late = true;
		*watch = ddp_watch_later(watch, GRACE_WIDE);
		return 0;
	}
	status = find_mismatch(device, error);
	if (status == 0)
		status = say_late(device, watch, error);
	/* Words that were freed meanwhile say nothing of who is late; whoever freed them does. */
	if (device->page && atomic_load(&device->page->released))
		return say_released(device, error);
	return status;
}

/* Poll, ever more slowly. Returns 0 or what ended the wait, with its text. */
static int poll_end(struct ddp_device *device, const struct end *end, struct ddp_watch watch,
		    struct ddp_error *error)
{
	struct ddp_shards_part *own = ddp_shards_part(device, ddp_own_member(device->ddp));
	struct ddp_poll poll = {0};
	bool late = false;
	int status, come;

	for (;;) {
		atomic_store_explicit(&own->looked, ddp_now(), memory_order_relaxed);
		come = has_come(device, end, error);
		if (come < 0)
			return come;
		status = ddp_shards_health(device, error);
		if (status < 0 || come)
			return status;
		ddp_error_clear(error);
		status = ddp_watch_poll(&watch, &poll, error);
		if (status < 0)
			status = look_at_watch(device, status, &watch, &late, error);
		if (status < 0)
			return status;
	}
}

/* Whether the last turn has ended, as a wait for [stream] has; streams may wait for each other. */
static bool has_ended(struct ddp_device *device, const void *stream)
{
	return device->busy && (stream == device->stream ||
				device->engine->idle(device->gpu, device->stream, NULL) == 1);
}

static int wait_for(struct ddp_device *device, const struct end *end, const struct ddp_watch *watch,
		    struct ddp_error *error)
{
	struct ddp_error story = {0, ""};
	int status = poll_end(device, end, *watch, &story);

	if (status == 0 && has_ended(device, end->stream)) {
		status = compare_ended(device, &story);
		device->busy = status < 0;
	}
	if (status == 0)
		return 0;
	(void)ddp_shards_fail(device, &story);
	if (error)
		*error = story;
	return status;
}

int ddp_shards_wait(struct ddp_device *device, void *stream, const struct ddp_watch *watch,
		    struct ddp_error *error)
{
	struct end end = {.stream = ddp_shards_stream(device, stream)};

	if (device->failure.status)
		return ddp_shards_health(device, error);
	if (device->engine->captured(device->gpu, end.stream))
		return ddp_error_set(error, DDP_ERR_STATE,
				     "rank %d: ddp_device_wait() in the middle of a capture",
				     device->ddp->identity.rank);
	return wait_for(device, &end, watch, error);
}

/* The same for as long as any call of ours may wait. */
static int wait_by_limit(struct ddp_device *device, struct end end, struct ddp_error *error)
{
	struct ddp_watch watch =
		ddp_watch_start(device->ddp->timeout, ddp_look_around, device->ddp);

	return wait_for(device, &end, &watch, error);
}

int ddp_shards_wait_turn(struct ddp_device *device, uint32_t turn, struct ddp_error *error)
{
	if (ddp_shard_reached(ddp_shards_word(device, 0), turn))
		return 0;
	return wait_by_limit(device, (struct end){.turn = turn}, error);
}

int ddp_shards_settle(struct ddp_device *device, struct ddp_error *error)
{
	if (!device->busy)
		return ddp_shards_health(device, error);
	return wait_by_limit(device, (struct end){.stream = device->stream}, error);
}
