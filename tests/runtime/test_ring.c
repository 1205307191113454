/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ring.c - collectives between nodes, whose members are threads, over an engine that injects
 * faults (fabric.h)
 *
 * Inputs are small integers, so that sums are exact in every type and order.
 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>

#include "fabric.h"
#include "unit.h"
#include "wide/ring.h"

enum { MOST = 9, LONG = 50000 };

static uint64_t seed(void)
{
	const char *text = getenv("DDP_SEED");

	return text ? strtoull(text, NULL, 0) | 1 : 0x9e3779b97f4a7c15;
}

struct member;
typedef void member_run(struct member *member);

struct member {
	pthread_t thread;
	struct fabric *fabric;
	struct ddp_column column;
	member_run *run;
	const void *row; /* row of the test's table */
	uint32_t sequence;
	double limit;
	int (*check)(void *owner, struct ddp_error *error);
	int status;
	struct ddp_error error;
	char wrong[DDP_ERROR_SIZE + 128]; /* text of the first error */
	uint64_t sum;			  /* checksum of the results */
};

static const char *name_of(void *owner, int rank)
{
	static const char *const names[] = {"rank 0 on n0", "rank 1 on n1", "rank 2 on n2",
					    "rank 3 on n3", "rank 4 on n4", "rank 5 on n5",
					    "rank 6 on n6", "rank 7 on n7", "rank 8 on n8"};

	(void)owner;
	return names[rank];
}

static void *member_main(void *argument)
{
	struct member *member = argument;

	member->run(member);
	return NULL;
}

/*
 * Initializes a column (one member per node) of [size] members, whose threads execute [run]. A test
 * may set a member's [run] to NULL, so that it does not start.
 */
static void column_open(struct member *members, int size, size_t scratch, member_run *run,
			const void *row)
{
	static const int ranks[MOST] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
	struct fabric *fabric = fabric_create(size, seed());

	for (int i = 0; i < size; i++)
		members[i] = (struct member){.fabric = fabric,
					     .column = {.engine = &fabric_engine,
							.host = fabric_host(fabric, i),
							.index = i,
							.size = size,
							.ranks = ranks,
							.name = name_of,
							.scratch = aligned_alloc(64, scratch),
							.scratch_bytes = scratch},
					     .run = run,
					     .row = row,
					     .limit = 60};
}

static void column_run(struct member *members)
{
	for (int i = 0; i < members->column.size; i++)
		if (members[i].run)
			ck_assert_int_eq(pthread_create(&members[i].thread, NULL, member_main,
							&members[i]),
					 0);
	for (int i = 0; i < members->column.size; i++)
		if (members[i].run)
			pthread_join(members[i].thread, NULL);
}

static void column_close(struct member *members)
{
	for (int i = 0; i < members->column.size; i++)
		free(members[i].column.scratch);
	fabric_destroy(members->fabric);
}

static struct ddp_column_call call_of(struct member *member, const char *name)
{
	return (struct ddp_column_call){++member->sequence, member->sequence * 2654435761u, name};
}

static struct ddp_watch watch_of(const struct member *member)
{
	return ddp_watch_start(member->limit, member->check, (void *)member);
}

/* --- Numbers in every type ---------------------------------------------------------------- */

/*
 * A number small enough that the sum of nine is exact in bf16, and not negative, so that U8 can
 * hold it.
 */
static int input(int rank, size_t i)
{
	return (int)((i * 7 + (size_t)rank * 5 + i / 251) % 17);
}

static uint16_t bf16_of(int value)
{
	float number = (float)value;
	uint32_t bits;

	memcpy(&bits, &number, sizeof(bits));
	return (uint16_t)(bits >> 16);
}

/* Converts an integer from 0 to 2047. */
static uint16_t f16_of(int value)
{
	int exponent = 0;

	if (!value)
		return 0;
	while (value >> (exponent + 1))
		exponent++;
	return (uint16_t)((exponent + 15) << 10 | (value << (10 - exponent) & 1023));
}

static void store(void *data, enum ddp_type type, size_t i, int value)
{
	switch (type) {
	case DDP_F32:
		((float *)data)[i] = (float)value;
		break;
	case DDP_F64:
		((double *)data)[i] = value;
		break;
	case DDP_BF16:
		((uint16_t *)data)[i] = bf16_of(value);
		break;
	case DDP_F16:
		((uint16_t *)data)[i] = f16_of(value);
		break;
	case DDP_I32:
		((int32_t *)data)[i] = value;
		break;
	case DDP_I64:
		((int64_t *)data)[i] = value;
		break;
	default:
		((uint8_t *)data)[i] = (uint8_t)value;
	}
}

static int combined(int size, enum ddp_op op, size_t i)
{
	int result = input(0, i);

	for (int rank = 1; rank < size; rank++) {
		int value = input(rank, i);

		if (op == DDP_SUM)
			result += value;
		else if (op == DDP_MAX)
			result = value > result ? value : result;
		else
			result = value < result ? value : result;
	}
	return result;
}

/* --- All-reduce ----------------------------------------------------------------------------- */

static const size_t scratches[] = {DDP_COLUMN_SCRATCH, DDP_COLUMN_SCRATCH_FULL};

/* Calls all-reduce once. Stores an error in member->wrong. */
static void reduce_once(struct member *member, size_t count, enum ddp_type type, enum ddp_op op)
{
	struct ddp_column_call call = call_of(member, "all-reduce");
	struct ddp_watch watch = watch_of(member);
	size_t bytes = count * ddp_type_size(type);
	char *data = malloc(bytes + 1), *want = malloc(bytes + 1);
	int size = member->column.size, status;

	for (size_t i = 0; i < count; i++) {
		store(data, type, i, input(member->column.index, i));
		store(want, type, i, combined(size, op, i));
	}
	data[bytes] = 77;
	status = ddp_column_all_reduce(&member->column, &call, data, count, type, op, &watch,
				       &member->error);
	if (!*member->wrong && (status != 0 || data[bytes] != 77 || memcmp(data, want, bytes) != 0))
		snprintf(member->wrong, sizeof(member->wrong),
			 "member %d of %d, %zu of type %d, op %d, scratch %zu: %s",
			 member->column.index, size, count, (int)type, (int)op,
			 member->column.scratch_bytes,
			 status < 0 ? member->error.text : "wrong numbers");
	free(data);
	free(want);
}

static void run_reductions(struct member *member)
{
	const size_t counts[] = {0, 1, 2, (size_t)member->column.size + 1, 33, 1021, 20011, LONG};

	for (int type = 0; type < DDP_TYPE_COUNT; type++)
		for (int op = 0; op < DDP_OP_COUNT; op++)
			for (int i = 0; i < ROWS(counts); i++)
				if (counts[i] < LONG || type == DDP_F32)
					reduce_once(member, counts[i], (enum ddp_type)type,
						    (enum ddp_op)op);
}

static void expect_no_errors(struct member *members)
{
	for (int i = 0; i < members->column.size; i++)
		ck_assert_msg(!*members[i].wrong, "%s (DDP_SEED=%#llx)", members[i].wrong,
			      (unsigned long long)seed());
	unit_number("the fabric", "open messages", fabric_open(members->fabric), 0);
	unit_number("the fabric", "overlaps", fabric_overlaps(members->fabric), 0);
}

TEST_LOOP(test_all_reduce, 0, 2 * MOST)
{
	struct member members[MOST];

	column_open(members, _i / 2 + 1, scratches[_i % 2], run_reductions, NULL);
	column_run(members);
	expect_no_errors(members);
	column_close(members);
}

/* The sum of these numbers depends on the order of addition. All members must get the same bits. */
static void run_bits(struct member *member)
{
	static const size_t counts[] = {1, 17, 4099, LONG};

	for (int row = 0; row < ROWS(counts); row++) {
		struct ddp_column_call call = call_of(member, "all-reduce");
		struct ddp_watch watch = watch_of(member);
		uint64_t random = 88172645463325252u + (uint64_t)member->column.index;
		float *data = malloc(counts[row] * sizeof(*data));

		for (size_t i = 0; i < counts[row]; i++)
			data[i] = (float)unit_random(&random, 1u << 30) / 3e5f;
		member->status = ddp_column_all_reduce(&member->column, &call, data, counts[row],
						       DDP_F32, DDP_SUM, &watch, &member->error);
		for (size_t i = 0; i < counts[row]; i++) {
			uint32_t bits;

			memcpy(&bits, &data[i], sizeof(bits));
			member->sum = member->sum * 31 + bits;
		}
		free(data);
	}
}

TEST_LOOP(test_bits, 0, MOST)
{
	struct member members[MOST];
	uint64_t before = 0;

	/* The second round has another order of arrival, and must give the same bits. */
	for (int round = 0; round < 2; round++) {
		column_open(members, _i + 1, DDP_COLUMN_SCRATCH_FULL, run_bits, NULL);
		column_run(members);
		for (int i = 0; i <= _i; i++) {
			ck_assert_msg(members[i].status == 0, "%s", members[i].error.text);
			ck_assert_uint_eq(members[i].sum, members[0].sum);
		}
		ck_assert(round == 0 || members[0].sum == before);
		before = members[0].sum;
		column_close(members);
	}
}

/* --- Other collectives ------------------------------------------------------------------------ */

static void expect(struct member *member, bool good, const char *what, size_t bytes)
{
	if (!good && !*member->wrong)
		snprintf(member->wrong, sizeof(member->wrong), "member %d of %d, %s of %zu: %s",
			 member->column.index, member->column.size, what, bytes,
			 *member->error.text ? member->error.text : "wrong bytes");
}

static void run_broadcasts(struct member *member)
{
	static const size_t sizes[] = {0, 1, 257, 70001, 3 << 20};

	for (int row = 0; row < ROWS(sizes); row++)
		for (int root = 0; root < member->column.size; root++) {
			struct ddp_column_call call = call_of(member, "broadcast");
			struct ddp_watch watch = watch_of(member);
			size_t bytes = sizes[row];
			char *data = malloc(bytes + 1);
			bool good;

			if (bytes > 100000 && root != member->column.size / 2) {
				free(data);
				continue;
			}
			memset(data, member->column.index == root ? 'a' + root : '-', bytes);
			good = ddp_column_broadcast(&member->column, &call, data, bytes, root,
						    &watch, &member->error) == 0;
			for (size_t i = 0; i < bytes && good; i++)
				good = data[i] == 'a' + root;
			expect(member, good, "broadcast", bytes);
			free(data);
		}
}

static void run_gathers(struct member *member)
{
	static const size_t sizes[] = {0, 1, 1000, 300001};

	for (int row = 0; row < ROWS(sizes); row++) {
		struct ddp_column_call call = call_of(member, "all-gather");
		struct ddp_watch watch = watch_of(member);
		size_t offsets[MOST + 1] = {0};
		char *data;
		bool good;

		/* The members' parts have different sizes, and some parts are empty. */
		for (int i = 0; i < member->column.size; i++)
			offsets[i + 1] = offsets[i] + (i % 3 == 1 ? 0 : sizes[row] + (size_t)i);
		data = malloc(offsets[member->column.size] + 1);
		memset(data, '-', offsets[member->column.size]);
		memset(data + offsets[member->column.index], 'a' + member->column.index,
		       offsets[member->column.index + 1] - offsets[member->column.index]);
		good = ddp_column_all_gather(&member->column, &call, data, offsets, &watch,
					     &member->error) == 0;
		for (int i = 0; i < member->column.size; i++)
			for (size_t at = offsets[i]; at < offsets[i + 1] && good; at++)
				good = data[at] == 'a' + i;
		expect(member, good, "all-gather", sizes[row]);
		free(data);
	}
}

TEST_LOOP(test_broadcast, 0, MOST)
{
	struct member members[MOST];

	column_open(members, _i + 1, DDP_COLUMN_SCRATCH, run_broadcasts, NULL);
	column_run(members);
	expect_no_errors(members);
	column_close(members);
}

TEST_LOOP(test_all_gather, 0, MOST)
{
	struct member members[MOST];

	column_open(members, _i + 1, DDP_COLUMN_SCRATCH, run_gathers, NULL);
	column_run(members);
	expect_no_errors(members);
	column_close(members);
}

/* A member leaves round k only after all members have entered it. */
static _Atomic int entered;

static void run_barriers(struct member *member)
{
	for (int round = 1; round <= 20; round++) {
		struct ddp_column_call call = call_of(member, "barrier");
		struct ddp_watch watch = watch_of(member);
		bool good;

		entered++;
		good = ddp_column_barrier(&member->column, &call, &watch, &member->error) == 0 &&
		       entered >= round * member->column.size;
		expect(member, good, "barrier", 0);
	}
}

TEST_LOOP(test_barrier, 0, MOST)
{
	struct member members[MOST];

	entered = 0;
	column_open(members, _i + 1, DDP_COLUMN_SCRATCH, run_barriers, NULL);
	column_run(members);
	expect_no_errors(members);
	column_close(members);
}

/* --- Faults ----------------------------------------------------------------------------------- */

enum fault { ABSENT, BROKEN, DROPPED, OTHER_CALL, OTHER_COUNT, CHECK_FAILS };

static const struct fault_row {
	const char *name;
	enum fault fault;
	int size;
	size_t count;
	/* status of at least one member; other members may have DDP_ERR_ABORTED */
	int first;
	const char *text; /* part of the error of all members except the faulty one */
} faults[] = {
	{"absent, 2, small", ABSENT, 2, 10, DDP_ERR_TIMEOUT,
	 "rank 1 on n1 did not answer in all-reduce #1 in 0.2 s"},
	{"absent, 4, small", ABSENT, 4, 10, DDP_ERR_TIMEOUT,
	 "rank 1 on n1 did not answer in all-reduce #1 in 0.2 s"},
	{"absent, 5, large", ABSENT, 5, LONG, DDP_ERR_TIMEOUT,
	 "rank 1 on n1 did not answer in all-reduce #1 in 0.2 s"},
	{"broken, 2, small", BROKEN, 2, 10, DDP_ERR_PEER,
	 "lost the connection to rank 1 on n1 in all-reduce #1: cut on purpose"},
	{"broken, 4, large", BROKEN, 4, LONG, DDP_ERR_PEER,
	 "lost the connection to rank 1 on n1 in all-reduce #1: cut on purpose"},
	{"dropped, 3, large", DROPPED, 3, LONG, DDP_ERR_TIMEOUT, "all-reduce #1 in 0.2 s"},
	{"other call, 2, small", OTHER_CALL, 2, 10, DDP_ERR_MISMATCH, "another call than"},
	{"other call, 5, large", OTHER_CALL, 5, LONG, DDP_ERR_MISMATCH, "another call than"},
	{"other count, 2, small", OTHER_COUNT, 2, 10, DDP_ERR_MISMATCH, "bytes in all-reduce #1"},
	{"other count, 4, large", OTHER_COUNT, 4, LONG, DDP_ERR_MISMATCH, "bytes in all-reduce #1"},
	{"check fails, 2, small", CHECK_FAILS, 2, 10, DDP_ERR_MEMORY, "out of memory on purpose"},
	{"check fails, 5, large", CHECK_FAILS, 5, LONG, DDP_ERR_MEMORY, "out of memory on purpose"},
};

static int out_of_memory(void *owner, struct ddp_error *error)
{
	(void)owner;
	return ddp_error_set(error, DDP_ERR_MEMORY, "out of memory on purpose");
}

static void run_fault(struct member *member)
{
	const struct fault_row *row = member->row;
	bool faulty = member->column.index == 1;
	struct ddp_column_call call = call_of(member, "all-reduce");
	struct ddp_watch watch = watch_of(member);
	size_t count = row->count;
	float *data;

	if (faulty && row->fault == OTHER_CALL)
		call.check ^= 0x10000;
	if (faulty && row->fault == OTHER_COUNT)
		count += 3 * (size_t)row->size;
	data = calloc(count, sizeof(*data));
	member->status = ddp_column_all_reduce(&member->column, &call, data, count, DDP_F32,
					       DDP_SUM, &watch, &member->error);
	/* a later access is an error that sanitizers report */
	free(data);
}

TEST_ROWS(test_fault, faults)
{
	const struct fault_row *row = &faults[_i];
	struct member members[MOST];
	bool first = false;

	column_open(members, row->size, DDP_COLUMN_SCRATCH_FULL, run_fault, row);
	for (int i = 0; i < row->size; i++)
		members[i].limit = row->fault == ABSENT || row->fault == DROPPED ? 0.2 : 60;
	if (row->fault == ABSENT || row->fault == BROKEN)
		members[1].run = NULL;
	if (row->fault == BROKEN)
		fabric_break(members->fabric, 1);
	if (row->fault == DROPPED)
		fabric_drop(members->fabric, 1, 2);
	if (row->fault == CHECK_FAILS)
		members[1].check = out_of_memory;
	/* Without member 0, member 1 has to wait, so that its check is called. */
	if (row->fault == CHECK_FAILS)
		members[0].run = NULL;
	column_run(members);
	for (int i = 0; i < row->size; i++) {
		if (!members[i].run)
			continue;
		first |= members[i].status == row->first;
		ck_assert_msg(members[i].status == row->first ||
				      members[i].status == DDP_ERR_ABORTED,
			      "%s: member %d: %d, %s", row->name, i, members[i].status,
			      members[i].error.text);
		unit_pieces(row->name, members[i].error.text, (const char *[]){row->text, NULL});
	}
	ck_assert_msg(first, "%s: no member has status %d", row->name, row->first);
	unit_number(row->name, "open messages", fabric_open(members->fabric), 0);
	column_close(members);
}

TEST(test_scratch)
{
	struct member members[MOST];
	struct ddp_column_call call = {1, 1, "all-reduce"};
	struct ddp_error error;
	float data = 1;

	column_open(members, 2, DDP_COLUMN_SCRATCH, NULL, NULL);
	members[0].column.scratch_bytes--;
	ck_assert_int_eq(ddp_column_all_reduce(&members[0].column, &call, &data, 1, DDP_F32,
					       DDP_SUM, NULL, &error),
			 DDP_ERR_ARGUMENT);
	unit_text("scratch", "text", error.text,
		  "4095 bytes of scratch for all-reduce, at least 4096 are needed");
	column_close(members);
}

/* --- Partners --------------------------------------------------------------------------------- */

static bool is_partner(int size, int index, int other)
{
	int partners[DDP_COLUMN_PARTNERS];
	int count = ddp_column_partners(size, index, partners);

	for (int i = 0; i < count; i++)
		if (partners[i] == other)
			return true;
	return false;
}

TEST(test_partners_are_mutual_and_few)
{
	for (int size = 1; size <= 1030; size += size < 70 ? 1 : 137)
		for (int index = 0; index < size; index++) {
			int partners[DDP_COLUMN_PARTNERS];
			int count = ddp_column_partners(size, index, partners);

			ck_assert_msg(count <= 3 * 11, "%d of %d: %d partners", index, size, count);
			for (int i = 0; i < count; i++)
				ck_assert_msg(is_partner(size, partners[i], index),
					      "%d of %d is no partner of %d", index, size,
					      partners[i]);
		}
}

UNIT_MAIN("ring", NULL)
