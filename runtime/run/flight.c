/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flight.h"

enum {
	VALUES_MOST = 1 << 22, /* in a dump */
	KEYS_MOST = 256,       /* that are looked at in a dictionary */
	TENSORS_MOST = 4096,   /* of a collective, and dimensions of each */
	DIMENSIONS_MOST = 16,
	GROUPS_OF_RANK = 256,
	GROUPS_MOST = 4096,
};

/* --- Pickles --------------------------------------------------------------------------------- */

enum kind {
	OTHER, /* None, a float, what a call would return */
	MARK,
	NUMBER, /* True and False too */
	TEXT,
	LIST, /* a tuple too */
	DICT, /* a list of key, value, key, value */
};

struct value {
	enum kind kind;
	uint32_t size; /* of a text, which lies in the dump */
	union {
		int64_t number;
		const char *text;
		uint64_t box; /* of a list */
	};
};

/* The elements of a list are a chain of cells; cell 0 ends one. A list may be in others, and in itself. */
struct cell {
	struct value value;
	uint32_t next;
};

struct box {
	uint32_t first, last;
};

/* An array that grows. */
struct heap {
	void *data;
	size_t count, room;
};

struct pickle {
	const unsigned char *at, *end;
	bool wrong;
	struct heap stack, memo; /* values */
	struct heap cells, boxes;
};

/* One more element of [size] bytes, not set; NULL: no memory, or too many. */
static void *grow(struct heap *heap, size_t size)
{
	if (heap->count == heap->room) {
		size_t room = heap->room ? 2 * heap->room : 256;
		void *data = room <= VALUES_MOST ? realloc(heap->data, room * size) : NULL;

		if (!data)
			return NULL;
		heap->data = data;
		heap->room = room;
	}
	return (char *)heap->data + heap->count++ * size;
}

static void push(struct pickle *p, struct value value)
{
	struct value *top = grow(&p->stack, sizeof(*top));

	p->wrong = p->wrong || !top;
	if (top)
		*top = value;
}

static struct value pop(struct pickle *p)
{
	const struct value *values = p->stack.data;

	if (p->stack.count == 0) {
		p->wrong = true;
		return (struct value){.kind = OTHER};
	}
	return values[--p->stack.count];
}

/* A number of [size] bytes, the least significant one first. */
static uint64_t take(struct pickle *p, size_t size)
{
	uint64_t number = 0;

	if ((size_t)(p->end - p->at) < size) {
		p->wrong = true;
		return 0;
	}
	for (size_t i = 0; i < size && i < sizeof(number); i++)
		number |= (uint64_t)p->at[i] << 8 * i;
	p->at += size;
	return number;
}

static void push_number(struct pickle *p, int64_t number)
{
	push(p, (struct value){.kind = NUMBER, .number = number});
}

/* LONG1: with its sign in the last byte. What is longer than 64 bits is no number of a dump. */
static void push_long(struct pickle *p)
{
	size_t size = take(p, 1);
	uint64_t number = take(p, size);

	if (size > sizeof(number))
		push(p, (struct value){.kind = OTHER});
	else if (size > 0 && size < sizeof(number) && number >> (8 * size - 1))
		push_number(p, (int64_t)(number | UINT64_MAX << 8 * size));
	else
		push_number(p, (int64_t)number);
}

static void push_text(struct pickle *p, uint64_t size)
{
	const char *text = (const char *)p->at;

	if (size > UINT32_MAX || (uint64_t)(p->end - p->at) < size) {
		p->wrong = true;
		return;
	}
	push(p, (struct value){.kind = TEXT, .size = (uint32_t)size, .text = text});
	p->at += size;
}

static void skip_line(struct pickle *p)
{
	const unsigned char *end = memchr(p->at, '\n', (size_t)(p->end - p->at));

	p->wrong = p->wrong || !end;
	p->at = end ? end + 1 : p->end;
}

static void push_list(struct pickle *p, enum kind kind)
{
	struct box *box = grow(&p->boxes, sizeof(*box));

	p->wrong = p->wrong || !box;
	if (!box)
		return;
	*box = (struct box){0, 0};
	push(p, (struct value){.kind = kind, .box = p->boxes.count - 1});
}

static void append(struct pickle *p, const struct value *list, struct value value)
{
	struct box *box = (struct box *)p->boxes.data + list->box;
	struct cell *cell, *cells;

	if (p->cells.count == 0)
		(void)grow(&p->cells, sizeof(*cell));
	cell = grow(&p->cells, sizeof(*cell));
	p->wrong = p->wrong || !cell;
	if (!cell)
		return;
	*cell = (struct cell){.value = value};
	cells = p->cells.data;
	if (box->first)
		cells[box->last].next = (uint32_t)(cell - cells);
	else
		box->first = (uint32_t)(cell - cells);
	box->last = (uint32_t)(cell - cells);
}

/* Where on the stack what follows the last mark begins; without a mark the dump is wrong. */
static size_t find_mark(struct pickle *p)
{
	const struct value *values = p->stack.data;
	size_t at = p->stack.count;

	while (at > 0 && values[at - 1].kind != MARK)
		at--;
	p->wrong = p->wrong || at == 0;
	return at;
}

/* Put what is from [from] on into the [kind] that is [below] elements under it, which stays. */
static void put_into(struct pickle *p, enum kind kind, size_t from, size_t below)
{
	const struct value *values = p->stack.data;

	if (p->wrong || from < below || from > p->stack.count ||
	    values[from - below].kind != kind ||
	    (kind == DICT && (p->stack.count - from) % 2 != 0)) {
		p->wrong = true;
		return;
	}
	for (size_t i = from; i < p->stack.count && !p->wrong; i++)
		append(p, &values[from - below], values[i]);
	p->stack.count = from - below + 1;
}

/* A list of what is from [from] on; with [marked], in the place of the mark under it. */
static void make_tuple(struct pickle *p, size_t from, bool marked)
{
	struct value *values, list;

	if (p->wrong || from > p->stack.count)
		p->wrong = true;
	push_list(p, LIST);
	if (p->wrong)
		return;
	list = pop(p);
	values = p->stack.data;
	for (size_t i = from; i < p->stack.count && !p->wrong; i++)
		append(p, &list, values[i]);
	p->stack.count = from - (size_t)marked;
	push(p, list);
}

/* torch and Python number what they remember one by one. */
static void remember(struct pickle *p, size_t number)
{
	struct value *values, top = pop(p);

	if (p->wrong || number > p->memo.count ||
	    (number == p->memo.count && !grow(&p->memo, sizeof(*values)))) {
		p->wrong = true;
		return;
	}
	values = p->memo.data;
	values[number] = top;
	push(p, top);
}

static void recall(struct pickle *p, size_t number)
{
	const struct value *values = p->memo.data;

	if (number >= p->memo.count)
		p->wrong = true;
	else
		push(p, values[number]);
}

/* Follow [code], one of those that torch writes, and Python for the same things by protocols 2 to 5. */
static void follow(struct pickle *p, unsigned char code)
{
	size_t count = p->stack.count;

	switch (code) {
	case 0x80: /* PROTO */
		(void)take(p, 1);
		break;
	case 0x95: /* FRAME */
		(void)take(p, 8);
		break;
	case '(':
		push(p, (struct value){.kind = MARK});
		break;
	case 'N':
		push(p, (struct value){.kind = OTHER});
		break;
	case 'G': /* a double */
		(void)take(p, 8);
		push(p, (struct value){.kind = OTHER});
		break;
	case 0x88: /* NEWTRUE, NEWFALSE */
	case 0x89:
		push_number(p, code == 0x88);
		break;
	case 'K':
		push_number(p, (int64_t)take(p, 1));
		break;
	case 'M':
		push_number(p, (int64_t)take(p, 2));
		break;
	case 'J':
		push_number(p, (int32_t)take(p, 4));
		break;
	case 0x8a:
		push_long(p);
		break;
	case 0x8c: /* SHORT_BINUNICODE, BINUNICODE, BINUNICODE8 */
		push_text(p, take(p, 1));
		break;
	case 'X':
		push_text(p, take(p, 4));
		break;
	case 0x8d:
		push_text(p, take(p, 8));
		break;
	case ']':
	case ')':
		push_list(p, LIST);
		break;
	case '}':
		push_list(p, DICT);
		break;
	case 'a': /* APPEND, APPENDS */
		put_into(p, LIST, count - 1, 1);
		break;
	case 'e':
		put_into(p, LIST, find_mark(p), 2);
		break;
	case 's': /* SETITEM, SETITEMS */
		put_into(p, DICT, count - 2, 1);
		break;
	case 'u':
		put_into(p, DICT, find_mark(p), 2);
		break;
	case 't':
		make_tuple(p, find_mark(p), true);
		break;
	case 0x85: /* TUPLE1 to TUPLE3 */
	case 0x86:
	case 0x87:
		make_tuple(p, count - (code - 0x84U), false);
		break;
	case 'q': /* BINPUT, LONG_BINPUT, MEMOIZE */
		remember(p, take(p, 1));
		break;
	case 'r':
		remember(p, take(p, 4));
		break;
	case 0x94:
		remember(p, p->memo.count);
		break;
	case 'h': /* BINGET, LONG_BINGET */
		recall(p, take(p, 1));
		break;
	case 'j':
		recall(p, take(p, 4));
		break;
	case 'c': /* GLOBAL: a list of one type is the call of a function with it */
		skip_line(p);
		skip_line(p);
		push(p, (struct value){.kind = OTHER});
		break;
	case 'R': /* REDUCE */
		(void)pop(p);
		(void)pop(p);
		push(p, (struct value){.kind = OTHER});
		break;
	default:
		p->wrong = true;
	}
}

/* Returns the one value that it is; OTHER where it is wrong. */
static struct value read_pickle(struct pickle *p)
{
	while (!p->wrong && p->at < p->end && *p->at != '.') {
		unsigned char code = *p->at++;

		follow(p, code);
	}
	if (p->wrong || p->at == p->end || p->stack.count != 1)
		return (struct value){.kind = OTHER};
	return *(struct value *)p->stack.data;
}

static void free_pickle(struct pickle *p)
{
	free(p->stack.data);
	free(p->memo.data);
	free(p->cells.data);
	free(p->boxes.data);
}

/* The first element of [list]; NULL: there is none, or it is none. */
static const struct cell *first_of(const struct pickle *p, const struct value *list)
{
	const struct box *boxes = p->boxes.data;
	const struct cell *cells = p->cells.data;

	if (!list || (list->kind != LIST && list->kind != DICT) || !boxes[list->box].first)
		return NULL;
	return &cells[boxes[list->box].first];
}

static const struct cell *next_of(const struct pickle *p, const struct cell *cell)
{
	return cell->next ? (const struct cell *)p->cells.data + cell->next : NULL;
}

static bool is_text(const struct value *value, const char *text)
{
	return value && value->kind == TEXT && value->size == strlen(text) &&
	       memcmp(value->text, text, value->size) == 0;
}

static bool begins(const struct value *value, const char *with)
{
	return value && value->kind == TEXT && value->size >= strlen(with) &&
	       memcmp(value->text, with, strlen(with)) == 0;
}

/* The value of [key], which is a text; NULL: it has none of that [kind]. */
static const struct value *member(const struct pickle *p, const struct value *dict, const char *key,
				  enum kind kind)
{
	const struct cell *cell = dict && dict->kind == DICT ? first_of(p, dict) : NULL;

	for (int i = 0; cell && i < KEYS_MOST; i++, cell = next_of(p, next_of(p, cell)))
		if (is_text(&cell->value, key)) {
			const struct value *value = &next_of(p, cell)->value;

			return value->kind == kind ? value : NULL;
		}
	return NULL;
}

/* --- What the entries of one dump say ------------------------------------------------------------- */

struct flight_group {
	char name[64], what[64]; /* "0", "default_pg" */
	char *ranks;		 /* "[0, 1]", or "" where the dump does not say */
};

/* Of a rank in a group; or that there is a dump of the rank. */
struct flight_row {
	int rank;
	size_t group; /* SIZE_MAX: the latter */
	struct ddp_arrival arrival;
};

/* Of a dump: the last entry of a group, the first of those that wait. */
struct last {
	const struct value *name, *what; /* of the group */
	const struct value *entry;
	bool waits;
};

struct notes {
	struct last last[GROUPS_OF_RANK];
	size_t count;
	bool alone; /* it waits in an operation with one other rank */
};

static void copy_text(char *copy, size_t room, const struct value *text)
{
	snprintf(copy, room, "%.*s", (int)(text->size < room ? text->size : room), text->text);
}

/* gloo never says that a collective has started or is completed: it retires those that ended. NCCL retires those too that did not. */
static bool has_ended(const struct pickle *p, const struct value *entry)
{
	const struct value *retired = member(p, entry, "retired", NUMBER);

	return is_text(member(p, entry, "state", TEXT), "completed") ||
	       (retired && retired->number &&
		begins(member(p, entry, "profiling_name", TEXT), "gloo:"));
}

/*
 * Take note of [entry]. Returns whether it is one. Of those that are sent together some never end by themselves, but another
 * after them does.
 */
static bool note_entry(const struct pickle *p, const struct value *entry, struct notes *notes)
{
	const struct cell *group = first_of(p, member(p, entry, "process_group", LIST));
	const struct value *alone = member(p, entry, "is_p2p", NUMBER), *name, *what;
	struct last *last = notes->last;
	bool ended;

	if (!group || !next_of(p, group) || !member(p, entry, "collective_seq_id", NUMBER) ||
	    !member(p, entry, "profiling_name", TEXT) || !member(p, entry, "state", TEXT))
		return false;
	name = &group->value;
	what = &next_of(p, group)->value;
	if (name->kind != TEXT || what->kind != TEXT)
		return false;
	ended = has_ended(p, entry);
	if (alone && alone->number) {
		notes->alone = !ended;
		return true;
	}
	while (last < notes->last + notes->count &&
	       (last->name->size != name->size || last->what->size != what->size ||
		memcmp(last->name->text, name->text, name->size) != 0 ||
		memcmp(last->what->text, what->text, what->size) != 0))
		last++;
	if (last == notes->last + notes->count) {
		if (notes->count == GROUPS_OF_RANK)
			return true;
		*last = (struct last){.name = name, .what = what};
		notes->count++;
	}
	if (ended || !last->waits)
		last->entry = entry;
	last->waits = !ended;
	return true;
}

/* "#17 nccl:all_reduce 1000 Float", and of which group, unless that is all ranks. */
static void describe(const struct pickle *p, const struct value *entry,
		     const struct flight_group *group, char *text, size_t room)
{
	const struct value *name = member(p, entry, "profiling_name", TEXT);
	const struct cell *tensor = first_of(p, member(p, entry, "input_sizes", LIST)),
			  *type = first_of(p, member(p, entry, "input_dtypes", LIST));
	int used = snprintf(text, room, "#%lld %.*s",
			    (long long)member(p, entry, "collective_seq_id", NUMBER)->number,
			    (int)(name->size < 48 ? name->size : 48), name->text);
	uint64_t elements = 0;
	int tensors = 0;

	for (const struct cell *each = tensor; each && tensors++ < TENSORS_MOST;
	     each = next_of(p, each)) {
		const struct cell *size = first_of(p, &each->value);
		uint64_t product = 1;

		for (int i = 0; size && i < DIMENSIONS_MOST; i++, size = next_of(p, size))
			product *= size->value.kind == NUMBER ? (uint64_t)size->value.number : 0;
		elements += product;
	}
	if (tensor)
		used += snprintf(text + used, room - (size_t)used, " %llu",
				 (unsigned long long)elements);
	if (type && type->value.kind == TEXT)
		used += snprintf(text + used, room - (size_t)used, " %.*s",
				 (int)(type->value.size < 16 ? type->value.size : 16),
				 type->value.text);
	if (strcmp(group->what, "default_pg") != 0)
		snprintf(text + used, room - (size_t)used, " of group %.30s",
			 group->what[0] && strcmp(group->what, "undefined") != 0 ? group->what
										 : group->name);
}

/* --- All dumps --------------------------------------------------------------------------------------- */

/* Two groups of one name, such as those of the parts of a mesh, are told apart by their ranks. Returns SIZE_MAX: no room. */
static size_t find_group(struct flight *flight, const struct pickle *p, const struct value *dump,
			 const struct last *last)
{
	struct flight_group group, *groups;
	const struct value *ranks;
	size_t i = 0;

	copy_text(group.name, sizeof(group.name), last->name);
	copy_text(group.what, sizeof(group.what), last->what);
	ranks = member(p, member(p, member(p, dump, "pg_config", DICT), group.name, DICT), "ranks",
		       TEXT);
	group.ranks = ranks ? strndup(ranks->text, ranks->size) : strdup("");
	while (group.ranks && i < flight->group_count &&
	       (strcmp(flight->groups[i].name, group.name) != 0 ||
		strcmp(flight->groups[i].what, group.what) != 0 ||
		strcmp(flight->groups[i].ranks, group.ranks) != 0))
		i++;
	groups = flight->groups;
	if (group.ranks && i == flight->group_count && i < GROUPS_MOST &&
	    (groups = realloc(groups, (i + 1) * sizeof(*groups)))) {
		flight->groups = groups;
		flight->groups[flight->group_count++] = group;
		return i;
	}
	free(group.ranks);
	return group.ranks && i < flight->group_count ? i : SIZE_MAX;
}

int flight_read(struct flight *flight, int rank, const char *data, size_t size)
{
	struct pickle p = {.at = (const unsigned char *)data,
			   .end = (const unsigned char *)data + size};
	struct value dump = read_pickle(&p);
	const struct value *entries = member(&p, &dump, "entries", LIST);
	struct notes *notes = calloc(1, sizeof(*notes));
	struct flight_row *rows = NULL;
	size_t understood = 0;

	for (const struct cell *entry = first_of(&p, entries); entry && notes;
	     entry = next_of(&p, entry))
		understood += note_entry(&p, &entry->value, notes);
	/* A rank that has been in no collective has none. */
	if (notes && entries && (understood > 0 || !first_of(&p, entries)))
		rows = realloc(flight->rows,
			       (flight->row_count + notes->count + 1) * sizeof(*rows));
	if (rows) {
		flight->rows = rows;
		rows[flight->row_count++] = (struct flight_row){
			.rank = rank, .group = SIZE_MAX, .arrival.waits = notes->alone};
	}
	for (size_t i = 0; rows && i < notes->count; i++) {
		const struct last *last = &notes->last[i];
		struct flight_row row = {.rank = rank,
					 .group = find_group(flight, &p, &dump, last)};

		if (row.group == SIZE_MAX)
			continue;
		row.arrival.there = true;
		row.arrival.waits = last->waits;
		row.arrival.sequence =
			(uint64_t)member(&p, last->entry, "collective_seq_id", NUMBER)->number;
		describe(&p, last->entry, &flight->groups[row.group], row.arrival.last,
			 sizeof(row.arrival.last));
		rows[flight->row_count++] = row;
	}
	free(notes);
	free_pickle(&p);
	return rows ? 0 : -1;
}

/* --- The group that tells most ------------------------------------------------------------------------ */

/* What is known of each of [size] ranks, and those of one group side by side. */
struct table {
	int size, count;
	bool *dumped, *waits; /* in any group, or for one other rank */
	bool *inside;
	size_t *row; /* of the group, from 1 on */
	int *rank;   /* of each of those inside, and its arrival */
	struct ddp_arrival *arrivals;
};

static bool make_table(struct table *table, const struct flight *flight, int size)
{
	size_t room = (size_t)size + 1;

	*table = (struct table){.size = size,
				.dumped = calloc(room, sizeof(bool)),
				.waits = calloc(room, sizeof(bool)),
				.inside = calloc(room, sizeof(bool)),
				.row = calloc(room, sizeof(size_t)),
				.rank = calloc(room, sizeof(int)),
				.arrivals = calloc(room, sizeof(struct ddp_arrival))};
	if (!table->dumped || !table->waits || !table->inside || !table->row || !table->rank ||
	    !table->arrivals)
		return false;
	for (size_t i = 0; i < flight->row_count; i++) {
		const struct flight_row *row = &flight->rows[i];

		if (row->rank < size) {
			table->dumped[row->rank] = true;
			table->waits[row->rank] |= row->arrival.waits;
		}
	}
	return true;
}

static void free_table(struct table *table)
{
	free(table->dumped);
	free(table->waits);
	free(table->inside);
	free(table->row);
	free(table->rank);
	free(table->arrivals);
}

/* Find the ranks of [group]: where no dump says, all if it is the default one, else those that were in a collective of it. */
static void find_ranks(struct table *table, const struct flight *flight, size_t group)
{
	const struct flight_group *of = &flight->groups[group];
	bool all = !of->ranks[0] && strcmp(of->what, "default_pg") == 0;
	char *end;

	for (int i = 0; i < table->size; i++) {
		table->inside[i] = all;
		table->row[i] = 0;
	}
	for (const char *at = of->ranks + strspn(of->ranks, "[, "); *at >= '0' && *at <= '9';
	     at = end + strspn(end, ", ")) {
		unsigned long rank = strtoul(at, &end, 10);

		if (rank < (unsigned long)table->size)
			table->inside[rank] = true;
	}
	for (size_t i = 0; i < flight->row_count; i++) {
		const struct flight_row *row = &flight->rows[i];

		if (row->group == group && row->rank < table->size) {
			table->inside[row->rank] = true;
			table->row[row->rank] = i + 1;
		}
	}
}

/* Put the arrivals of [group] side by side. A rank whose dump has nothing of it has not arrived in its first collective. */
static void fill_table(struct table *table, const struct flight *flight, size_t group)
{
	find_ranks(table, flight, group);
	table->count = 0;
	for (int i = 0; i < table->size; i++) {
		if (!table->inside[i])
			continue;
		table->rank[table->count] = i;
		table->arrivals[table->count++] =
			table->row[i] ? flight->rows[table->row[i] - 1].arrival
				      : (struct ddp_arrival){.there = table->dumped[i]};
	}
}

/* How much the group tells: 3: ranks are missing that wait nowhere; 2: that wait elsewhere; 1: a rank waits; 0: none does. */
static int weigh(struct table *table)
{
	int weight = ddp_arrival_compare(table->arrivals, table->count) ? 1 : 0;

	for (int i = 0; i < table->count; i++)
		if (table->arrivals[i].missing && weight != 2)
			weight = table->waits[table->rank[i]] ? 2 : 3;
	return weight;
}

bool flight_arrivals(const struct flight *flight, struct ddp_arrival *all, int size)
{
	struct table table;
	size_t best = 0;
	int most = -1;
	bool good = make_table(&table, flight, size) && flight->group_count > 0;

	for (size_t i = 0; i < flight->group_count && good && most < 3; i++) {
		int weight;

		fill_table(&table, flight, i);
		weight = weigh(&table);
		if (weight > most) {
			most = weight;
			best = i;
		}
	}
	if (good) {
		fill_table(&table, flight, best);
		for (int i = 0; i < size; i++)
			all[i].outside = true;
		for (int i = 0; i < table.count; i++)
			all[table.rank[i]] = table.arrivals[i];
	}
	free_table(&table);
	return good;
}

void flight_free(struct flight *flight)
{
	for (size_t i = 0; i < flight->group_count; i++)
		free(flight->groups[i].ranks);
	free(flight->groups);
	free(flight->rows);
	*flight = (struct flight){.groups = NULL};
}
