/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model. What it takes for granted, and why that leaves nothing out:
 *
 * - Memory, words and flags are sequentially consistent. The real ones are atomics of a page that the device
 *   reads and writes in the order of its stream, with the fences of cuStreamWaitValue/WriteValue.
 * - Work on memory begins and ends in two steps. What it writes is torn between them; two that overlap, of
 *   which one writes, are an error, unless `released` is set.
 * - A host has no steps for enqueueing and waiting. A stream that has nothing to do yet is no other than one
 *   that is slow, and each order of slow streams is visited; so hosts are as far ahead as they like, up
 *   to all turns. Where a host decides at some point of its stream that it had enqueued no more, the stream
 *   is at rest: such a member may leave at any point between two pieces of work.
 * - Looking at a result is the end of CONSUME: from then on the host can find its stream at rest and look at
 *   `released`, which is never taken back. A wrong result and no flag at that moment is an error. Later
 *   looks see no less.
 * - Who died takes no step as a host; its stream stops at any later point, or does not: its steps may
 *   be taken, and nobody may need them. Its memory stays.
 * - Releasing hosts store the words in any order, each as often as it needs: passes over all words are
 *   among these orders. A store that changes nothing is no step. Each further step makes progress, which is
 *   checked, so that there is no way to go on for ever.
 * - All free values are one, since every turn takes each of them for reached (test_shard_protocol.c).
 *
 * Two reductions, left away by [full], where `released` is set and the node is told. Then
 * no result is taken any more, whatever is in the memory, and the only question is whether all can leave.
 * - Contents are forgotten, and work on memory is done at once: it delays nobody, and nobody sees it.
 * - All survivors have noticed: it obliges them to nothing but allows them to store and to leave.
 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/shard-protocol.h"
#include "interleave-private.h"

enum { TABLE_FIRST = 1 << 16 };

static const char *const work_names[] = {"produce", "sum",   "wide", "spread",
					 "consume", "write", "wait"};

/* --- Visits ----------------------------------------------------------------------------- */

static uint64_t hash(const struct state *state)
{
	const unsigned char *bytes = (const unsigned char *)state;
	uint64_t hash = 0xcbf29ce484222325u, word;

	for (size_t i = 0; i < sizeof(*state); i += sizeof(word)) {
		memcpy(&word, bytes + i, sizeof(word));
		hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 29;
	}
	return hash;
}

static void *grown(void *memory, size_t bytes)
{
	void *more = realloc(memory, bytes);

	if (!more)
		abort();
	return more;
}

/* Where [state] is in the table, or the place for it. */
static size_t slot_of(const struct search *search, const struct state *state)
{
	size_t slot = hash(state) & (search->slots - 1);

	while (search->table[slot] &&
	       memcmp(&search->visits[search->table[slot] - 1].state, state, sizeof(*state)) != 0)
		slot = (slot + 1) & (search->slots - 1);
	return slot;
}

static void make_room(struct search *search)
{
	if (search->count == search->room) {
		search->room = search->room ? 2 * search->room : TABLE_FIRST / 2;
		search->visits = grown(search->visits, search->room * sizeof(*search->visits));
	}
	if (2 * search->count < search->slots)
		return;
	search->slots = search->slots ? 2 * search->slots : TABLE_FIRST;
	search->table = grown(search->table, search->slots * sizeof(*search->table));
	memset(search->table, 0, search->slots * sizeof(*search->table));
	for (size_t i = 0; i < search->count; i++)
		search->table[slot_of(search, &search->visits[i].state)] = (uint32_t)i + 1;
}

static void print(struct search *search, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void print(struct search *search, const char *format, ...)
{
	size_t used = strlen(search->story);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(search->story + used, search->size - used, format, arguments);
	va_end(arguments);
}

static void print_steps(struct search *search, size_t at)
{
	if (at == 0)
		return;
	print_steps(search, search->visits[at].from);
	print(search, "%d %s, ", search->visits[at].member, search->visits[at].step);
}

void interleave_fail(struct search *search, int member, const char *what)
{
	if (search->wrong)
		return;
	search->wrong = true;
	print_steps(search, search->at);
	print(search, "then member %d: %s", member, what);
}

/* --- From a state to the next ------------------------------------------------------------- */

/* Whether nobody will take a result any more, so that contents do not count. */
static bool is_given_up(const struct search *search, const struct state *state)
{
	enum interleave_plant plant = search->world->plant;

	return state->released && state->told && !search->world->full && plant != LOOKS_NOT &&
	       plant != LOOKS_FIRST;
}

/* The reductions, and what a member leaves behind. */
static void normalize(const struct search *search, struct state *state)
{
	bool reduced = is_given_up(search, state);

	for (int m = 0; m < search->world->members; m++) {
		const struct program *program = &search->programs[m];

		if (reduced && state->phase[m] < RELEASES)
			state->phase[m] = RELEASES;
		if (reduced)
			state->memory[m] = NOTHING;
		while (reduced && state->at[m] < program->count &&
		       program->events[state->at[m]].work < WRITE)
			state->at[m]++;
		if (state->phase[m] == LEFT)
			state->at[m] = 0;
	}
	if (reduced)
		state->spoilt = state->looked = 0;
}

/* Grows with each step, and cannot grow for ever. */
static int progress(const struct search *search, const struct state *state)
{
	int most = state->released + state->told + state->faults, least = 0;

	for (int m = 0; m < search->world->members; m++) {
		most += 1000 * state->phase[m] + state->at[m];
		least += (state->words[m] == search->free) + __builtin_popcount(state->freed[m]);
	}
	return 64 * most + least;
}

static void reach(struct search *search, struct state *state, int member, const char *what)
{
	struct visit *visit;
	size_t slot;

	normalize(search, state);
	if (progress(search, state) <= progress(search, &search->visits[search->at].state))
		interleave_fail(search, member, "does what can go on for ever");
	make_room(search);
	slot = slot_of(search, state);
	if (search->table[slot])
		return;
	visit = &search->visits[search->count];
	*visit = (struct visit){
		.state = *state, .from = (uint32_t)search->at, .member = (uint8_t)member};
	snprintf(visit->step, sizeof(visit->step), "%s", what);
	search->table[slot] = (uint32_t)++search->count;
}

static bool keeps_count(const struct search *search)
{
	enum interleave_plant plant = search->world->plant;

	return plant == RELEASES_ONCE || plant == FLAG_LAST || plant == TELL_LAST;
}

/* Whether [member] has stored all words that it ever will, where it keeps count. */
static bool has_stored(const struct search *search, const struct state *state, int member)
{
	return !keeps_count(search) || state->freed[member] == interleave_all(search);
}

static void notice(struct search *search, struct state next, int member, int faults)
{
	enum interleave_plant plant = search->world->plant;

	next.faults = (uint8_t)(next.faults + faults);
	next.phase[member] = plant == FLAG_LAST || plant == TELL_LAST ? RELEASES : TELLS;
	next.told |= plant != TELL_LAST;
	next.released |= plant == TELL_LAST;
	reach(search, &next, member, faults ? "ends" : "sees");
}

/* Tell the node, set the flag, store the words; in another order where that is the plant. */
static bool release(struct search *search, const struct state *state, int member)
{
	bool moved = false;
	struct state next = *state;

	if (state->phase[member] == TELLS) {
		next.released = 1;
		next.phase[member] = RELEASES;
		reach(search, &next, member, "flags");
		return true;
	}
	for (int word = 0; word < search->world->members; word++) {
		bool done = keeps_count(search) ? state->freed[member] >> word & 1
						: state->words[word] == search->free;

		next = *state;
		if (done)
			continue;
		next.words[word] = search->free;
		if (keeps_count(search))
			next.freed[member] |= (uint8_t)(1u << word);
		reach(search, &next, member, (char[]){'f', 'r', 'e', 'e', (char)('0' + word), 0});
		moved = true;
	}
	if (has_stored(search, state, member) && !(state->released && state->told)) {
		next = *state;
		next.released = next.told = 1;
		reach(search, &next, member, "late");
		moved = true;
	}
	return moved;
}

/* What [member]'s host can do. Returns whether it can do anything but to leave, or to fail. */
static bool act(struct search *search, const struct state *state, int member)
{
	enum phase phase = state->phase[member];
	bool fragile =
		state->faults < search->world->faults && !interleave_is_over(search, state, member);
	bool moved = false;
	struct state next = *state;

	if (fragile) {
		next.phase[member] = DEAD;
		next.faults++;
		reach(search, &next, member, "dies");
	}
	if (phase == RUNS && fragile)
		notice(search, *state, member, 1);
	if (phase == RUNS && state->faults > 0 && search->world->plant != NOBODY_RELEASES) {
		notice(search, *state, member, 0);
		moved = true;
	}
	if (phase > RUNS)
		moved = release(search, state, member);
	if (phase == RELEASES && state->released && state->told &&
	    !interleave_under_way(search, state, member)) {
		next = *state;
		next.phase[member] = LEFT;
		reach(search, &next, member, "leaves");
	}
	return moved;
}

static void expand(struct search *search)
{
	const struct state state = search->visits[search->at].state;
	bool moved = false;
	int stuck = -1;

	for (int m = 0; m < search->world->members && !search->wrong; m++) {
		struct state next = state;
		bool stepped;

		if (state.phase[m] == LEFT)
			continue;
		stepped = interleave_step(search, &next, m);
		if (stepped)
			reach(search, &next, m,
			      work_names[search->programs[m].events[state.at[m]].work]);
		if (state.phase[m] == DEAD)
			continue;
		moved |= stepped;
		moved |= act(search, &state, m);
		if (!interleave_is_over(search, &state, m))
			stuck = m;
	}
	if (!moved && stuck >= 0)
		interleave_fail(search, stuck, "waits for ever");
}

size_t interleave(const struct interleave_world *world, char *story, size_t size)
{
	struct search search = {.world = world, .story = story, .size = size};
	struct state start = {0};

	*story = '\0';
	search.free = ddp_shard_free_value(world->first);
	if (world->plant == FREE_TOO_FAR)
		search.free = world->first + (uint32_t)world->turns + (1u << 31);
	for (int m = 0; m < world->members; m++) {
		interleave_write(world, m, &search.programs[m]);
		start.words[m] = world->plant == WORDS_AT_ZERO ? 0 : world->first - 1;
	}
	make_room(&search);
	search.visits[0] = (struct visit){.state = start};
	search.table[slot_of(&search, &start)] = 1;
	search.count = 1;
	for (search.at = 0; search.at < search.count && !search.wrong; search.at++)
		expand(&search);
	free(search.visits);
	free(search.table);
	return search.count;
}
