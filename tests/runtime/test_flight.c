/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dumps of PyTorch's flight recorder: those of a real PyTorch, in tests/fuzz/corpus/flight, and pickles that are written
 * here as torch's C++ writes them and as Python does.
 */
#include "config.h"

#include "base/file.h"
#include "base/text.h"
#include "run/flight.h"
#include "unit.h"

enum { RANKS = 4 };

/* --- Writing pickles ------------------------------------------------------------------------- */

struct pickler {
	struct ddp_text out;
	bool python; /* protocol 4, and lists of two at once */
	char seen[64][80];
	unsigned memo[64], count, number;
};

static void put(struct pickler *p, const char *bytes, size_t size)
{
	ddp_text_put(&p->out, bytes, size);
}

static void put_byte(struct pickler *p, unsigned byte)
{
	put(p, &(char){(char)byte}, 1);
}

static void put_size(struct pickler *p, uint64_t number, int bytes)
{
	for (int i = 0; i < bytes; i++)
		put_byte(p, number >> 8 * i & 0xff);
}

/* Python remembers every list and dictionary, and torch those that are used twice. */
static void put_memo(struct pickler *p)
{
	if (p->python) {
		put_byte(p, 0x94);
	} else {
		put_byte(p, 'q');
		put_byte(p, p->number);
	}
	p->number++;
}

static void put_text(struct pickler *p, const char *text)
{
	for (unsigned i = 0; i < p->count; i++)
		if (strcmp(p->seen[i], text) == 0) {
			put_byte(p, 'h');
			put_byte(p, p->memo[i]);
			return;
		}
	ck_assert_uint_lt(p->count, 64);
	snprintf(p->seen[p->count], sizeof(p->seen[0]), "%s", text);
	p->memo[p->count++] = p->number;
	put_byte(p, p->python ? 0x8c : 'X');
	put_size(p, strlen(text), p->python ? 1 : 4);
	put(p, text, strlen(text));
	put_memo(p);
}

static void put_open(struct pickler *p, char code)
{
	put_byte(p, (unsigned char)code);
	if (p->python)
		put_memo(p);
	put_byte(p, '(');
}

/* Of every width; 1000 is not written as short as it could be. */
static void put_number(struct pickler *p, int64_t number)
{
	if (number > INT32_MAX) {
		put(p, "\x8a\10", 2);
		put_size(p, (uint64_t)number, 8);
	} else if (number < 0 || number == 1000) {
		put_byte(p, 'J');
		put_size(p, (uint64_t)number, 4);
	} else {
		put_byte(p, number > 255 ? 'M' : 'K');
		put_size(p, (uint64_t)number, number > 255 ? 2 : 1);
	}
}

static void put_key(struct pickler *p, const char *key, int64_t number)
{
	put_text(p, key);
	put_number(p, number);
}

/* "1 pair 17 nccl:all_reduce 1000 started retired": the group, its sequence, the operation, its elements or -, how it is. */
static void put_entry(struct pickler *p, const char *line)
{
	char group[16], what[32], name[32], elements[16], state[16], more[16] = "";
	long long sequence;

	ck_assert_int_ge(sscanf(line, "%15s %31s %lld %31s %15s %15s %15s", group, what, &sequence,
				name, elements, state, more),
			 6);
	put_open(p, '}');
	put_text(p, "frames");
	put_open(p, ']');
	put_open(p, '}');
	put_text(p, "name");
	put_text(p, "main");
	put_key(p, "line", 1795517061116693985);
	put_byte(p, 'u');
	put_memo(p);
	put_byte(p, 'h');
	put_byte(p, p->number - 1);
	put_byte(p, 'e');
	put_key(p, "record_id", 3);
	put_text(p, "process_group");
	put_text(p, group);
	put_text(p, what);
	put_byte(p, 0x86);
	if (p->python)
		put_memo(p);
	put_key(p, "collective_seq_id", sequence);
	put_text(p, "profiling_name");
	put_text(p, name);
	put_text(p, "duration_ms");
	put(p, "G@\0\0\0\0\0\0\0", 9);
	put_text(p, "input_sizes");
	put_open(p, ']');
	if (*elements != '-') {
		/* Two dimensions, of a tensor, and another tensor without any. */
		put_open(p, ']');
		put_number(p, atoll(elements) / 2);
		put_number(p, 2);
		put_byte(p, 'e');
	}
	put_byte(p, 'e');
	put_text(p, "input_dtypes");
	/* What torch calls a function for. */
	if (*elements == '-') {
		put(p, "ctorch.jit._pickle\nbuild_list\n(](etR", 36);
	} else {
		put_open(p, ']');
		put_text(p, "Float");
		put_byte(p, 'e');
	}
	put_text(p, "state");
	put_text(p, state);
	put_text(p, "time_discovered_started_ns");
	put_byte(p, 'N');
	put_text(p, "retired");
	put_byte(p, strcmp(more, "retired") == 0 ? 0x88 : 0x89);
	put_text(p, "is_p2p");
	put_byte(p, strcmp(more, "p2p") == 0 ? 0x88 : 0x89);
	put_byte(p, 'u');
}

/* The dump with a line for each entry; [groups] are lines "1 [0, 1]", of pg_config. */
static void put_dump(struct pickler *p, const char *entries, const char *groups)
{
	char line[160], *rest;
	int count = 0;

	put_byte(p, 0x80);
	put_byte(p, p->python ? 4 : 2);
	if (p->python) {
		put_byte(p, 0x95);
		put_size(p, 12345, 8);
	}
	put_open(p, '}');
	put_text(p, "version");
	put_text(p, "2.10");
	put_text(p, "pg_config");
	put_open(p, '}');
	for (const char *at = groups; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		rest = strchr(line, ' ');
		*rest++ = '\0';
		put_text(p, line);
		put_open(p, '}');
		put_text(p, "ranks");
		put_text(p, rest);
		put_byte(p, 'u');
	}
	put_byte(p, 'u');
	put_text(p, "pg_status");
	put_open(p, '}');
	put_byte(p, 'u');
	put_text(p, "entries");
	put_open(p, ']');
	for (const char *at = entries; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		if (p->python && count++ > 0 && count % 2 == 1)
			put(p, "e(", 2);
		put_entry(p, line);
	}
	put(p, "eu.", 3);
	ck_assert(!p->out.failed);
}

/* --- What is made of them ------------------------------------------------------------------------ */

#define DONE(sequence) "0 default_pg " #sequence " nccl:all_reduce 1000 completed\n"
#define WAITS(sequence) "0 default_pg " #sequence " nccl:all_reduce 1000 started\n"
#define ALL "0 [0, 1, 2, 3]\n"
#define TEAMS(own) ALL "1 " own "\n"

/* Dumps of ranks 0 to 3, NULL: none; and what is said. */
static const struct row {
	const char *name, *entries[RANKS], *groups[RANKS], *said;
} rows[] = {
	{"a rank that is behind",
	 {DONE(300) WAITS(301), DONE(300) WAITS(301), DONE(300), DONE(300) WAITS(301)},
	 {ALL, ALL, ALL, ALL},
	 "did not arrive in #301 nccl:all_reduce 1000 Float: rank 2"},
	{"others are enqueued behind the one that waits",
	 {WAITS(5) WAITS(6) WAITS(7), DONE(4) WAITS(5), DONE(4), WAITS(5)},
	 {ALL, ALL, ALL, ALL},
	 "did not arrive in #5 nccl:all_reduce 1000 Float: rank 2"},
	{"a rank without a dump",
	 {DONE(1) WAITS(2), NULL, WAITS(2), WAITS(2)},
	 {ALL, NULL, ALL, ALL},
	 "did not arrive in #2 nccl:all_reduce 1000 Float: rank 1"},
	{"a rank that was in no collective at all",
	 {WAITS(1), WAITS(1), WAITS(1), ""},
	 {ALL, ALL, ALL, ""},
	 "did not arrive in #1 nccl:all_reduce 1000 Float: rank 3"},
	{"all are in it",
	 {WAITS(9), WAITS(9), WAITS(9), WAITS(9)},
	 {ALL, ALL, ALL, ALL},
	 "all ranks are in #9 nccl:all_reduce 1000 Float"},
	{"none waits",
	 {DONE(9), DONE(9), DONE(9), DONE(8)},
	 {ALL, ALL, ALL, ALL},
	 "no rank waits in a collective"},
	{"operations that do not belong together",
	 {WAITS(9), WAITS(9), "0 default_pg 9 nccl:broadcast 70000 started", WAITS(9)},
	 {ALL, ALL, ALL, ALL},
	 "ranks differ: rank 0 is in #9 nccl:all_reduce 1000 Float, and rank 2 in #9 nccl:broadcast 70000 Float"},
	{"a collective without tensors, of a group that the dumps do not describe",
	 {"0 default_pg 9 gloo:barrier - scheduled", "0 default_pg 9 gloo:barrier - scheduled", "",
	  ""},
	 {"", "", "", ""},
	 "did not arrive in #9 gloo:barrier: ranks 2, 3"},
	{"who is sent to is no matter of all ranks",
	 {"0 default_pg 9 nccl:send 8 started p2p", DONE(3), WAITS(4), DONE(3)},
	 {ALL, ALL, ALL, ALL},
	 "did not arrive in #4 nccl:all_reduce 1000 Float: ranks 0, 1, 3"},
	{"gloo's that are retired have ended, NCCL's that are have not",
	 {"0 default_pg 3 gloo:all_reduce 8 scheduled retired\n0 default_pg 4 gloo:all_reduce 8 scheduled",
	  "0 default_pg 3 gloo:all_reduce 8 scheduled retired",
	  "0 default_pg 4 nccl:all_reduce 8 scheduled retired",
	  "0 default_pg 4 nccl:all_reduce 8 scheduled"},
	 {ALL, ALL, ALL, ALL},
	 "did not arrive in #4 gloo:all_reduce 8 Float: rank 1"},
	{"parts of what was sent together never end by themselves",
	 {"0 default_pg 8 nccl:all_gather 8 scheduled\n" DONE(8), DONE(8) WAITS(9),
	  DONE(8) WAITS(9), DONE(8) WAITS(9)},
	 {ALL, ALL, ALL, ALL},
	 "did not arrive in #9 nccl:all_reduce 1000 Float: rank 0"},
	{"a group of two, of which others are no part",
	 {DONE(3) "1 pair 9 nccl:all_gather 8 started",
	  DONE(3) "1 pair 8 nccl:all_gather 8 completed", DONE(3), DONE(3)},
	 {TEAMS("[0, 1]"), TEAMS("[0, 1]"), ALL, ALL},
	 "did not arrive in #9 nccl:all_gather 8 Float of group pair: rank 1"},
	{"a group without a description has its name",
	 {"1 undefined 9 nccl:all_gather 8 started", "1 undefined 8 nccl:all_gather 8 completed",
	  "", ""},
	 {TEAMS("[0, 1]"), TEAMS("[0, 1]"), ALL, ALL},
	 "did not arrive in #9 nccl:all_gather 8 Float of group 1: rank 1"},
	{"who is missing because it waits elsewhere is not the one",
	 {WAITS(4), DONE(3) "1 pair 9 nccl:all_gather 8 started",
	  DONE(3) "1 pair 8 nccl:all_gather 8 completed", WAITS(4)},
	 {ALL, TEAMS("[1, 2]"), TEAMS("[1, 2]"), ALL},
	 "did not arrive in #9 nccl:all_gather 8 Float of group pair: rank 2"},
	{"nor who is missing because it waits for one other rank",
	 {"1 left 4 nccl:all_reduce 8 started",
	  "1 left 3 nccl:all_reduce 8 completed\n0 default_pg 0 nccl:recv 8 started p2p",
	  "2 right 4 nccl:all_reduce 8 started", "2 right 3 nccl:all_reduce 8 completed"},
	 {"1 [0, 1]", "1 [0, 1]", "2 [2, 3]", "2 [2, 3]"},
	 "did not arrive in #4 nccl:all_reduce 8 Float of group right: rank 3"},
	{"of which the last decides",
	 {"1 left 4 nccl:all_reduce 8 started",
	  "1 left 3 nccl:all_reduce 8 completed\n0 default_pg 0 nccl:recv 8 scheduled p2p\n"
	  "0 default_pg 0 nccl:coalesced - completed p2p",
	  "2 right 4 nccl:all_reduce 8 started",
	  "2 right 3 nccl:all_reduce 8 completed\n0 default_pg 0 nccl:recv 8 started p2p"},
	 {"1 [0, 1]", "1 [0, 1]", "2 [2, 3]", "2 [2, 3]"},
	 "did not arrive in #4 nccl:all_reduce 8 Float of group left: rank 1"},
	{"the same where all meet elsewhere alone",
	 {"1 left 4 nccl:all_reduce 8 started",
	  "1 left 3 nccl:all_reduce 8 completed\n2 pair 9 nccl:all_gather 8 started",
	  "2 pair 8 nccl:all_gather 8 completed", ""},
	 {"1 [0, 1]", "1 [0, 1]\n2 [1, 2]", "2 [1, 2]", ""},
	 "did not arrive in #9 nccl:all_gather 8 Float of group pair: rank 2"},
	{"groups of one name with other ranks are others",
	 {"1 mesh 9 nccl:all_gather 8 started", "1 mesh 9 nccl:all_gather 8 started",
	  "1 mesh 7 nccl:all_gather 8 started", "1 mesh 6 nccl:all_gather 8 completed"},
	 {"1 [0, 1]", "1 [0, 1]", "1 [2, 3]", "1 [2, 3]"},
	 "did not arrive in #7 nccl:all_gather 8 Float of group mesh: rank 3"},
};

static void describe(const struct flight *flight, struct ddp_arrival *arrivals, char *said,
		     size_t size)
{
	ck_assert(flight_arrivals(flight, arrivals, RANKS));
	ddp_arrival_describe(arrivals, RANKS, said, size);
}

static void check_row(const struct row *row, bool python)
{
	struct ddp_arrival arrivals[RANKS] = {{.there = false}};
	struct flight flight = {.groups = NULL};
	char said[512];

	for (int rank = RANKS - 1; rank >= 0; rank--) {
		struct pickler p = {.python = python};

		if (!row->entries[rank])
			continue;
		put_dump(&p, row->entries[rank], row->groups[rank]);
		ck_assert_msg(flight_read(&flight, rank, p.out.data, p.out.size) == 0,
			      "%s: the dump of rank %d", row->name, rank);
		ddp_text_free(&p.out);
	}
	describe(&flight, arrivals, said, sizeof(said));
	unit_text(row->name, "said", said, row->said);
	flight_free(&flight);
}

TEST_ROWS(test_said, rows)
{
	check_row(&rows[_i], false);
	check_row(&rows[_i], true);
}

/* Of three ranks with gloo rank 2 does not come to the fifth all-reduce; two of them have a group of their own. */
TEST(test_real)
{
	struct ddp_arrival arrivals[RANKS] = {{.there = false}};
	struct flight flight = {.groups = NULL};
	char path[256], said[512], *data;
	size_t size;

	for (int rank = 0; rank < 3; rank++) {
		snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/flight/gloo-%d",
			 getenv("top_srcdir"), rank);
		ck_assert_int_eq(ddp_file_read(path, 1 << 20, &data, &size, NULL), 0);
		ck_assert_int_eq(flight_read(&flight, rank, data, size), 0);
		free(data);
	}
	ck_assert(flight_arrivals(&flight, arrivals, 3));
	ddp_arrival_describe(arrivals, 3, said, sizeof(said));
	ck_assert_str_eq(said, "did not arrive in #5 gloo:all_reduce 100 Float: rank 2");
	ck_assert_str_eq(arrivals[2].last, "#4 gloo:barrier");
	flight_free(&flight);
}

/* --- What is no dump ---------------------------------------------------------------------------- */

#define BYTES(text) text, sizeof(text) - 1

static const struct {
	const char *name, *bytes;
	size_t size;
} refused[] = {
	{"nothing", BYTES("")},
	{"a text", BYTES("dump")},
	{"nothing but the end", BYTES(".")},
	{"no dictionary", BYTES("].")},
	{"no entries", BYTES("}.")},
	{"entries that are no list", BYTES("}\x8c\7entriesK\1s.")},
	{"entries that are something else", BYTES("}\x8c\7entries]K\1as.")},
	{"an end that never comes", BYTES("}\x8c\7entries]s")},
	{"two values", BYTES("}\x8c\7entries]s}.")},
	{"a key without a value", BYTES("}(\x8c\7entriesu.")},
	{"a list into a number", BYTES("K\1(K\2e.")},
	{"items into a list", BYTES("](K\1K\2u.")},
	{"no mark", BYTES("}\x8c\7entries]u.")},
	{"nothing under the mark", BYTES("(e.")},
	{"a tuple of what is not there", BYTES("K\1\x86.")},
	{"a tuple without a mark", BYTES("t.")},
	{"a text that is longer than the dump", BYTES("X\377\377\377\377x.")},
	{"one that is longer than memory", BYTES("\x8d\377\377\377\377\377\377\377\377x.")},
	{"a number that is cut off", BYTES("\x8a\10\1\2")},
	{"what was never remembered", BYTES("h\0.")},
	{"the same, far away", BYTES("j\377\377\377\377.")},
	{"remembered far away", BYTES("}r\377\377\377\177.")},
	{"nothing to remember", BYTES("q\0.")},
	{"a name that is cut off", BYTES("cos\nsystem")},
	{"a call of nothing", BYTES("R.")},
	{"another object", BYTES("cos\nsystem\n(\x8c\4truetR.")},
	{"an unknown code", BYTES("}\x8c\7entries]s\377.")},
};

/* They leave nothing behind. */
TEST_ROWS(test_refused, refused)
{
	struct flight flight = {.groups = NULL};

	ck_assert_msg(flight_read(&flight, 0, refused[_i].bytes, refused[_i].size) == -1, "%s",
		      refused[_i].name);
	ck_assert_uint_eq(flight.row_count + flight.group_count, 0);
	flight_free(&flight);
}

/* Wherever the process was killed that wrote it. */
TEST(test_cut_off)
{
	struct flight flight = {.groups = NULL};
	struct pickler p = {.python = false};

	put_dump(&p, DONE(300) WAITS(301), ALL);
	for (size_t size = 0; size < p.out.size; size++)
		ck_assert_int_eq(flight_read(&flight, 0, p.out.data, size), -1);
	ck_assert_uint_eq(flight.row_count + flight.group_count, 0);
	ck_assert_int_eq(flight_read(&flight, 0, p.out.data, p.out.size), 0);
	ddp_text_free(&p.out);
	flight_free(&flight);
}

/* [count] times [bytes] and then [end] are no dump, and are gone through as fast as others. */
static void check_many(const char *bytes, size_t count, const char *end)
{
	struct flight flight = {.groups = NULL};
	struct ddp_text out = {.data = NULL};

	for (size_t i = 0; i < count; i++)
		ddp_text_put(&out, bytes, strlen(bytes));
	ddp_text_add(&out, "%s", end);
	ck_assert(!out.failed);
	ck_assert_int_eq(flight_read(&flight, 0, out.data, out.size), -1);
	ddp_text_free(&out);
	flight_free(&flight);
}

TEST(test_many)
{
	check_many("(", 3000000, ".");
	check_many("]", 3000000, ".");
	check_many("(]", 1000000, "t.");
	check_many("]\x85", 1000000, "."); /* each in the next */
	check_many("N", 10000000, ".");	   /* more than there is room for */
	check_many("]q\1a", 1, ".");	   /* remembered out of order */
	check_many("]\x94h\1a", 1, ".");
}

UNIT_MAIN("flight", NULL)
