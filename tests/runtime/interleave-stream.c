/* SPDX-License-Identifier: Apache-2.0 */
/* interleave-stream.c - what a stream of the model does, and to whose memory (interleave.c) */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "device/shard-protocol.h"
#include "interleave-private.h"

/* What a member's memory has, and of which turn. */
#define HAS(content, turn) ((uint8_t)((content) + 3 * (turn)))

/* --- Programs --------------------------------------------------------------------------- */

static void add(struct program *program, struct event event)
{
	bool memory = event.work != WRITE && event.work != WAIT;

	if (program->count + 2 > INTERLEAVE_EVENTS)
		abort();
	event.begin = memory;
	program->events[program->count++] = event;
	event.begin = false;
	if (memory)
		program->events[program->count++] = event;
}

/* Make [moves] wrong in the way of [plant]. Returns how many there are then. */
static int spoil(enum interleave_plant plant, int member, struct ddp_shard_move *moves, int count)
{
	int last = count - 1;

	if (plant == DONE_TOO_EARLY && member == 0 && last > 0) {
		struct ddp_shard_move done = moves[last];

		moves[last] = moves[last - 1];
		moves[last - 1] = done;
	}
	if (plant == FOLLOWER_WAITS_NOT && member > 0)
		return last;
	if (plant == FOLLOWER_WAITS_LESS && member > 0)
		moves[last].value--;
	if (plant == LEADER_SKIPS_ONE && member == 0) {
		memmove(moves, moves + 1, (size_t)last * sizeof(*moves));
		return last;
	}
	for (int i = 0; i < count; i++) {
		if (plant == NOT_INTO_ALL && moves[i].act == DDP_SHARD_SUM)
			moves[i].all = false;
		if (plant == SPREAD_TOO_EARLY && i > 0 && moves[i].act == DDP_SHARD_SPREAD) {
			moves[i].act = DDP_SHARD_WIDE;
			moves[i - 1].act = DDP_SHARD_SPREAD;
		}
	}
	return count;
}

static struct event event_of(const struct ddp_shard_move *move, int turn)
{
	static const enum work works[] = {[DDP_SHARD_WRITE] = WRITE,
					  [DDP_SHARD_WAIT] = WAIT,
					  [DDP_SHARD_SUM] = SUM,
					  [DDP_SHARD_WIDE] = WIDE,
					  [DDP_SHARD_SPREAD] = SPREAD};

	return (struct event){works[move->act], false, turn, move->word, move->value, move->all};
}

void interleave_write(const struct interleave_world *world, int member, struct program *program)
{
	struct ddp_shard_move moves[DDP_SHARD_MOVES];
	bool early = world->plant == LENT_TOO_EARLY && member > 0;

	program->count = 0;
	for (int turn = 0; turn < world->turns; turn++) {
		int count = ddp_shard_moves(world->members, member, world->wide,
					    world->first + (uint32_t)turn, moves);

		count = spoil(world->plant, member, moves, count);
		if (!early)
			add(program, (struct event){.work = PRODUCE, .turn = turn});
		for (int i = 0; i < count; i++) {
			add(program, event_of(&moves[i], turn));
			if (early && i == 0)
				add(program, (struct event){.work = PRODUCE, .turn = turn});
		}
		add(program, (struct event){.work = CONSUME, .turn = turn});
	}
}

/* --- One step of a stream ----------------------------------------------------------------- */

bool interleave_is_over(const struct search *search, const struct state *state, int member)
{
	return state->at[member] == search->programs[member].count;
}

const struct event *interleave_under_way(const struct search *search, const struct state *state,
					 int member)
{
	const struct event *events = search->programs[member].events;
	int at = state->at[member];

	return state->phase[member] != LEFT && at > 0 && events[at - 1].begin ? &events[at - 1]
									      : NULL;
}

unsigned interleave_all(const struct search *search)
{
	return (1u << search->world->members) - 1;
}

static unsigned written(const struct search *search, const struct event *event, int member)
{
	switch (event->work) {
	case PRODUCE:
	case WIDE:
		return 1u << member;
	case SUM:
		return event->all ? interleave_all(search) : 1u << member;
	case SPREAD:
		return interleave_all(search) & ~(1u << member);
	default:
		return 0;
	}
}

static unsigned read_by(const struct search *search, const struct event *event, int member)
{
	return event->work == SUM	? interleave_all(search)
	       : event->work == PRODUCE ? 0
					: 1u << member;
}

/* What [event] must find in the memory that it reads. */
static uint8_t needed(const struct search *search, const struct event *event)
{
	bool alone = search->world->members == 1;

	if (event->work == SUM || (event->work == WIDE && alone))
		return HAS(INPUT, event->turn);
	if (event->work == WIDE)
		return HAS(SUMMED, event->turn);
	return HAS(alone && !search->world->wide ? INPUT : RESULT, event->turn);
}

static uint8_t made(const struct search *search, const struct event *event)
{
	if (event->work == PRODUCE)
		return HAS(INPUT, event->turn);
	return HAS(event->work == SUM && search->world->wide ? SUMMED : RESULT, event->turn);
}

/* [event] of [member] is about to overlap with what others do. */
static void collide(struct search *search, struct state *state, const struct event *event,
		    int member)
{
	unsigned writes = written(search, event, member), reads = read_by(search, event, member);

	for (int other = 0; other < search->world->members; other++) {
		const struct event *its = interleave_under_way(search, state, other);
		unsigned touched;

		if (other == member || !its)
			continue;
		touched = writes & (written(search, its, other) | read_by(search, its, other));
		touched |= reads & written(search, its, other);
		if (!touched)
			continue;
		state->spoilt |= (uint8_t)(1u << member | 1u << other);
		if (!state->released)
			interleave_fail(search, member, "works on memory that another works on");
	}
}

static void begin(struct search *search, struct state *state, const struct event *event, int member)
{
	unsigned reads = read_by(search, event, member), writes = written(search, event, member);
	unsigned mine = 1u << member;

	state->spoilt &= (uint8_t)~mine;
	collide(search, state, event, member);
	for (int i = 0; i < search->world->members; i++)
		if ((reads >> i & 1) && state->memory[i] != needed(search, event))
			state->spoilt |= (uint8_t)mine;
	if ((state->spoilt & mine) && event->work == WIDE && !state->told)
		interleave_fail(search, member,
				"gives other GPUs what is no sum, and they do not know");
	if ((state->spoilt & mine) && event->work != CONSUME && !state->released)
		interleave_fail(search, member, "reads what is not of its turn");
	for (int i = 0; i < search->world->members; i++)
		if (writes >> i & 1)
			state->memory[i] = TORN;
	state->looked &= (uint8_t)~mine;
	if (!state->released)
		state->looked |= (uint8_t)mine;
}

/* The host can take the result from here on. */
static void take(struct search *search, const struct state *state, int member)
{
	bool good = !(state->spoilt >> member & 1), taken = !state->released;

	if (search->world->plant == LOOKS_NOT)
		taken = true;
	if (search->world->plant == LOOKS_FIRST)
		taken = state->looked >> member & 1;
	if (taken && !good)
		interleave_fail(search, member, "takes a wrong result");
}

/* Whether the leader has given up NCCL, whose kernels then end with anything. */
static bool is_aborted(const struct search *search, const struct state *state)
{
	bool early = search->world->plant == ABORTS_FIRST;

	return state->phase[0] == RELEASES || (early && state->phase[0] == TELLS);
}

static void end(struct search *search, struct state *state, const struct event *event, int member)
{
	unsigned writes = written(search, event, member), mine = 1u << member;

	if (event->work == WIDE && is_aborted(search, state))
		state->spoilt |= (uint8_t)mine;
	for (int i = 0; i < search->world->members; i++)
		if (writes >> i & 1)
			state->memory[i] = state->spoilt & mine ? TORN : made(search, event);
	if (event->work == CONSUME)
		take(search, state, member);
	state->spoilt &= (uint8_t)~mine;
	state->looked &= (uint8_t)~mine;
}

static bool has_reached(enum interleave_plant plant, uint32_t word, uint32_t value)
{
	if (plant == NO_WRAP)
		return word >= value;
	return plant == EXACTLY ? word == value : ddp_shard_reached(word, value);
}

bool interleave_step(struct search *search, struct state *state, int member)
{
	const struct event *event = &search->programs[member].events[state->at[member]];

	if (interleave_is_over(search, state, member))
		return false;
	if (event->work == WAIT &&
	    !has_reached(search->world->plant, state->words[event->word], event->value))
		return false;
	if (event->work == WRITE)
		state->words[event->word] = event->value;
	else if (event->begin)
		begin(search, state, event, member);
	else if (event->work != WAIT)
		end(search, state, event, member);
	state->at[member]++;
	return true;
}
