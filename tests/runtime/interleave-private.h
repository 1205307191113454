/* SPDX-License-Identifier: Apache-2.0 */
/*
 * interleave-private.h - what the model's two files share: streams, and the search through their orders
 */
#ifndef DDP_TESTS_INTERLEAVE_PRIVATE_H
#define DDP_TESTS_INTERLEAVE_PRIVATE_H

#include "interleave.h"

enum { INTERLEAVE_EVENTS = 96 };

enum work { PRODUCE, SUM, WIDE, SPREAD, CONSUME, WRITE, WAIT };

struct event {
	enum work work;
	bool begin; /* of work on memory, whose end is the next event */
	int turn;
	int word;
	uint32_t value;
	bool all;
};

struct program {
	struct event events[INTERLEAVE_EVENTS];
	int count;
};

enum phase { RUNS, TELLS, RELEASES, LEFT, DEAD };

/* What is in a member's memory: the input, the local sum or the result of a turn. */
enum { NOTHING, TORN, INPUT, SUMMED, RESULT };

struct state {
	uint32_t words[INTERLEAVE_MEMBERS];
	uint8_t at[INTERLEAVE_MEMBERS]; /* the next event of each stream */
	uint8_t phase[INTERLEAVE_MEMBERS];
	uint8_t memory[INTERLEAVE_MEMBERS];
	uint8_t freed[INTERLEAVE_MEMBERS]; /* words that each host stored; where it counts */
	uint8_t spoilt;			   /* whose work is worth nothing */
	uint8_t looked;			   /* who looked before it read */
	uint8_t released, told, faults;
	uint8_t unused[3];
};

struct visit {
	struct state state;
	uint32_t from; /* the visit before */
	uint8_t member;
	char step[11];
};

struct search {
	const struct interleave_world *world;
	struct program programs[INTERLEAVE_MEMBERS];
	uint32_t free;

	struct visit *visits;
	size_t count, room, at;
	uint32_t *table; /* number of the visit + 1 */
	size_t slots;

	bool wrong;
	char *story;
	size_t size;
};

/* --- interleave-stream.c ------------------------------------------------------------------ */

/* What the stream of [member] does, all turns of it. */
void interleave_write(const struct interleave_world *world, int member, struct program *program);

/* The next event of [member]'s stream. Returns false where it has to wait, or has none. */
bool interleave_step(struct search *search, struct state *state, int member);

bool interleave_is_over(const struct search *search, const struct state *state, int member);

/* What work [member] is in the middle of; NULL: none. */
const struct event *interleave_under_way(const struct search *search, const struct state *state,
					 int member);

/* All members, a bit for each. */
unsigned interleave_all(const struct search *search);

/* --- interleave.c ------------------------------------------------------------------------- */

/* What does not hold; the first is kept, and it has the fewest steps before it. */
void interleave_fail(struct search *search, int member, const char *what);

#endif /* DDP_TESTS_INTERLEAVE_PRIVATE_H */
