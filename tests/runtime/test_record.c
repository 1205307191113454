/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_record.c - file names, records and tables of the rendezvous, and the detection of damaged
 * files
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "crowd.h"
#include "store/meeting.h"

/* --- Names and records -------------------------------------------------------------------- */

static const struct {
	const char *name;
	enum ddp_name kind;
	uint64_t meeting;
	uint32_t fence;
} names[] = {
	{"0123456789abcdef.ranks", DDP_NAME_RANKS, 0x0123456789abcdef, 0},
	{"ffffffffffffffff.abort", DDP_NAME_ABORT, UINT64_MAX, 0},
	{"0000000000000000.table.0", DDP_NAME_TABLE, 0, 0},
	{"0000000000000001.table.4294967295", DDP_NAME_TABLE, 1, UINT32_MAX},
	{"0000000000000001.table.4294967296", DDP_NAME_FOREIGN, 1, 0},
	{"0000000000000001.table.01", DDP_NAME_FOREIGN, 1, 0},
	{"0000000000000001.table.", DDP_NAME_FOREIGN, 1, 0},
	{"0000000000000001.table.0.tmp.3", DDP_NAME_OTHER, 1, 0},
	{"0000000000000001.table.99999999999999999999", DDP_NAME_FOREIGN, 1, 0},
	{"0000000000000001.new", DDP_NAME_NEW, 1, 0},
	{"0000000000000001.now", DDP_NAME_OTHER, 1, 0},
	{"0000000000000001.abort.3", DDP_NAME_OTHER, 1, 0},
	{"0000000000000001.abort.3.tmp.17", DDP_NAME_OTHER, 1, 0},
	{"0000000000000001.abort.txt", DDP_NAME_FOREIGN, 0, 0},
	{"0000000000000001.log.tmp.17", DDP_NAME_FOREIGN, 0, 0},
	{"0000000000000001.ranks.d", DDP_NAME_FOREIGN, 0, 0},
	{"0000000000000001.", DDP_NAME_FOREIGN, 0, 0},
	{"0000000000000001", DDP_NAME_FOREIGN, 0, 0},
	{"000000000000001.ranks", DDP_NAME_FOREIGN, 0, 0},
	{"00000000000000001.ranks", DDP_NAME_FOREIGN, 0, 0},
	{"000000000000000A.ranks", DDP_NAME_FOREIGN, 0, 0},
	{"store", DDP_NAME_FOREIGN, 0, 0},
	{"", DDP_NAME_FOREIGN, 0, 0},
};

TEST_ROWS(test_names, names)
{
	uint64_t meeting = 0;
	uint32_t fence = 0;

	ck_assert_msg(ddp_meeting_parse(names[_i].name, &meeting, &fence) == names[_i].kind, "%s",
		      names[_i].name);
	if (names[_i].kind != DDP_NAME_FOREIGN)
		ck_assert_uint_eq(meeting, names[_i].meeting);
	if (names[_i].kind == DDP_NAME_TABLE)
		ck_assert_uint_eq(fence, names[_i].fence);
}

/* If the rendezvous path has the maximum length, the name of a rank's temporary file still fits. */
TEST(test_longest_name)
{
	ck_assert_uint_le(sizeof("/0123456789abcdef.ranks/4294967295.4294967295"
				 ".tmp.01234567-01234567-01234567"),
			  DDP_NAME_SIZE);
}

static const struct {
	const char *name;
	bool good;
	uint32_t fence, rank;
} rank_names[] = {
	{"0.0", true, 0, 0},
	{"12.4095", true, 12, 4095},
	{"4294967295.1", true, UINT32_MAX, 1},
	{"00.1", false, 0, 0},
	{"0.01", false, 0, 0},
	{"1.2.3", false, 0, 0},
	{"1.", false, 0, 0},
	{".1", false, 0, 0},
	{"hello", false, 0, 0},
	{"1.2 ", false, 0, 0},
	{"-1.2", false, 0, 0},
	{"1.4294967296", false, 0, 0},
	{"0.1.tmp.7", false, 0, 0},
	{"", false, 0, 0},
};

TEST_ROWS(test_rank_names, rank_names)
{
	uint32_t fence = 0, rank = 0;

	ck_assert_msg(ddp_meeting_parse_rank(rank_names[_i].name, &fence, &rank) ==
			      rank_names[_i].good,
		      "%s", rank_names[_i].name);
	if (!rank_names[_i].good)
		return;
	ck_assert_uint_eq(fence, rank_names[_i].fence);
	ck_assert_uint_eq(rank, rank_names[_i].rank);
}

/* Encodes a record with two values. Returns the record's size. */
static size_t make_record(uint8_t data[512], uint32_t rank, uint64_t meeting, uint64_t process)
{
	struct ddp_record record = {.format = DDP_RECORD_FORMAT,
				    .meeting = meeting,
				    .process = process,
				    .job = 7,
				    .rank = rank,
				    .size = 3,
				    .pid = 77,
				    .release = PACKAGE_VERSION,
				    .host = "n1"};
	struct ddp_values values = {0};
	uint8_t *made;
	size_t size;

	ck_assert_int_eq(ddp_values_put(&values, "rank", &rank, sizeof(rank), NULL), 0);
	ck_assert_int_eq(ddp_values_put(&values, "address", "10.0.0.1:9", 10, NULL), 0);
	made = ddp_values_encode(&values, &record, &size);
	ck_assert(made && size <= 512);
	memcpy(data, made, size);
	free(made);
	ddp_values_clear(&values);
	return size;
}

TEST(test_record)
{
	uint8_t data[512];
	size_t size = make_record(data, 1, 0x0123456789abcdef, 42);
	struct ddp_record record;
	char host[16];
	size_t room = sizeof(host);

	ck_assert_int_eq(ddp_record_read(&record, NULL, data, size, "x", NULL), 0);
	ck_assert_uint_eq(record.meeting, 0x0123456789abcdef);
	ck_assert_uint_eq(record.process, 42);
	ck_assert_uint_eq(record.rank, 1);
	ck_assert_uint_eq(record.size, 3);
	ck_assert_str_eq(record.host, "n1");
	ck_assert_str_eq(record.release, PACKAGE_VERSION);
	ck_assert_int_eq(ddp_values_get(data + DDP_RECORD_HEAD, record.length, 1, "address", host,
					&room, NULL),
			 0);
	ck_assert_uint_eq(room, 10);
	ck_assert_mem_eq(host, "10.0.0.1:9", 10);
}

/* A record is rejected if a bit is inverted or the last bytes are missing. */
TEST(test_record_flips)
{
	uint8_t data[512];
	size_t size = make_record(data, 1, 5, 42);
	struct ddp_record record;

	for (size_t bit = 0; bit < 8 * size; bit++) {
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_msg(ddp_record_read(&record, NULL, data, size, "x", NULL) < 0, "bit %zu",
			      bit);
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t less = 0; less < size; less++)
		ck_assert_msg(ddp_record_read(&record, NULL, data, less, "x", NULL) < 0,
			      "%zu bytes", less);
}

/* The error for a record of another release mentions the release, not damage. */
TEST(test_record_release)
{
	uint8_t data[512];
	size_t size = make_record(data, 1, 5, 42);
	struct ddp_record record, mine;
	struct ddp_error error;

	ck_assert_int_eq(ddp_record_decode(&mine, data, size, "x", NULL), 0);
	data[size - 1] ^= 1;
	ck_assert_int_eq(ddp_record_read(&record, &mine, data, size, "x", &error), DDP_ERR_FORMAT);
	snprintf(mine.release, sizeof(mine.release), "9.9");
	ck_assert_int_eq(ddp_record_read(&record, &mine, data, size, "x", &error),
			 DDP_ERR_MISMATCH);
	ck_assert_ptr_nonnull(strstr(error.text, "install one release on all nodes"));
}

static const struct {
	const char *name, *key;
	size_t size;
	int status;
} values_rows[] = {
	{"shortest", "k", 0, 0},
	{"longest", "k234567890123456789012345678901", 1, 0},
	{"empty", "", 1, DDP_ERR_ARGUMENT},
	{"too long", "k2345678901234567890123456789012", 1, DDP_ERR_ARGUMENT},
	{"twice", "first", 1, DDP_ERR_ARGUMENT},
	{"all there is", "k", DDP_STORE_VALUE - 5, 0},
	{"a byte more", "k", DDP_STORE_VALUE - 4, DDP_ERR_ARGUMENT},
};

TEST_ROWS(test_values, values_rows)
{
	static uint8_t value[DDP_STORE_VALUE], got[DDP_STORE_VALUE];
	struct ddp_values values = {0};
	size_t room = sizeof(got);

	memset(value, 0x5a, sizeof(value));
	ck_assert_int_eq(ddp_values_put(&values, "first", value, 5, NULL), 0);
	unit_number(values_rows[_i].name, "status",
		    ddp_values_put(&values, values_rows[_i].key, value, values_rows[_i].size, NULL),
		    values_rows[_i].status);
	if (values_rows[_i].status == 0) {
		ck_assert_int_eq(ddp_values_get(values.body, values.size, 0, values_rows[_i].key,
						got, &room, NULL),
				 0);
		ck_assert_uint_eq(room, values_rows[_i].size);
		ck_assert_int_eq(memcmp(got, value, room), 0);
	}
	room = 4;
	ck_assert_int_eq(ddp_values_get(values.body, values.size, 0, "first", got, &room, NULL),
			 DDP_ERR_FORMAT);
	ck_assert_uint_eq(room, 5);
	ck_assert_int_eq(ddp_values_get(values.body, values.size, 0, "firs", got, &room, NULL),
			 DDP_ERR_ARGUMENT);
	ddp_values_clear(&values);
}

TEST(test_values_count)
{
	struct ddp_values values = {0};
	char key[16];

	for (int i = 0; i < DDP_STORE_KEYS; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		ck_assert_int_eq(ddp_values_put(&values, key, NULL, 0, NULL), 0);
	}
	ck_assert_int_eq(ddp_values_put(&values, "more", NULL, 0, NULL), DDP_ERR_ARGUMENT);
	ddp_values_clear(&values);
}

/* --- Tables ----------------------------------------------------------------------------- */

static const struct ddp_record table_mine = {.format = DDP_RECORD_FORMAT,
					     .meeting = 5,
					     .process = 42,
					     .job = 7,
					     .rank = 1,
					     .size = 3,
					     .release = PACKAGE_VERSION,
					     .host = "n1"};

static void make_table(const char *path)
{
	uint8_t records[3][512];
	struct iovec parts[3], whole;
	struct ddp_record head = table_mine;

	for (uint32_t rank = 0; rank < 3; rank++)
		parts[rank] = (struct iovec){records[rank],
					     make_record(records[rank], rank, 5, 41 + rank)};
	head.rank = 0;
	whole.iov_base = ddp_table_encode(&head, parts, &whole.iov_len);
	ck_assert(whole.iov_base);
	ck_assert_int_eq(ddp_file_write(path, &whole, 1, 0, false, NULL), 0);
	free(whole.iov_base);
}

/*
 * Reads the table [path]. Each rank's record must be correct, or be refused. Adds the number of
 * refused records to [refused].
 */
static void check_table(const char *path, const char *row, size_t at, int *refused)
{
	struct ddp_table *table;

	if (ddp_table_open(&table, path, &table_mine, NULL) != 0) {
		++*refused;
		return;
	}
	for (uint32_t rank = 0; rank < 3; rank++) {
		struct ddp_record record;
		uint32_t value = 99;
		size_t size = sizeof(value);
		const uint8_t *body;

		if (ddp_table_get(table, (int)rank, &record, &body, NULL) < 0) {
			++*refused;
			continue;
		}
		ck_assert_msg(record.process == 41 + rank &&
				      ddp_values_get(body, record.length, (int)rank, "rank", &value,
						     &size, NULL) == 0 &&
				      value == rank,
			      "%s %zu: rank %u has another's", row, at, rank);
	}
	ddp_table_close(table);
}

TEST(test_table)
{
	char path[512];
	struct ddp_error error = {0};
	struct ddp_record mine = table_mine;
	struct ddp_table *table;
	const uint8_t *body;
	int refused = 0;

	snprintf(path, sizeof(path), "%s/table-%ld", base, (long)getpid());
	ck_assert_int_eq(ddp_table_open(&table, path, &mine, &error), 1);
	make_table(path);
	check_table(path, "whole", 0, &refused);
	ck_assert_int_eq(refused, 0);
	mine.process = 4;
	ck_assert_int_eq(ddp_table_open(&table, path, &mine, &error), DDP_ERR_MISMATCH);
	UNIT_SAYS("process", error.text, "two processes say that they are rank 1");
	mine = table_mine;
	mine.size = 4;
	ck_assert_int_eq(ddp_table_open(&table, path, &mine, &error), DDP_ERR_MISMATCH);
	UNIT_SAYS("size", error.text, "says the world has 3 ranks", "says 4");
	mine = table_mine;
	mine.fence = 1;
	ck_assert_int_eq(ddp_table_open(&table, path, &mine, &error), DDP_ERR_FORMAT);
	mine = table_mine;
	mine.meeting = 6;
	ck_assert_int_eq(ddp_table_open(&table, path, &mine, &error), DDP_ERR_FORMAT);
	ck_assert_int_eq(ddp_table_open(&table, path, &table_mine, NULL), 0);
	ck_assert_int_eq(ddp_table_get(table, 3, &mine, &body, &error), DDP_ERR_ARGUMENT);
	ck_assert_int_eq(ddp_table_get(table, -1, &mine, &body, &error), DDP_ERR_ARGUMENT);
	ddp_table_close(table);
	unlink(path);
}

TEST(test_table_flips)
{
	char path[512];
	int refused = 0, fd;
	uint8_t byte;
	struct stat info;

	snprintf(path, sizeof(path), "%s/flips-%ld", base, (long)getpid());
	make_table(path);
	fd = open(path, O_RDWR);
	ck_assert(fd >= 0 && fstat(fd, &info) == 0);
	for (off_t at = 0; at < info.st_size; at++) {
		int before = refused;
		uint8_t other;

		ck_assert_int_eq((int)pread(fd, &byte, 1, at), 1);
		other = byte ^ (uint8_t)(1 << at % 8);
		ck_assert_int_eq((int)pwrite(fd, &other, 1, at), 1);
		check_table(path, "offset", (size_t)at, &refused);
		ck_assert_msg(refused > before, "offset %lld was not noticed", (long long)at);
		ck_assert_int_eq((int)pwrite(fd, &byte, 1, at), 1);
	}
	refused = 0;
	check_table(path, "mended", 0, &refused);
	ck_assert_int_eq(refused, 0);
	for (off_t size = info.st_size - 1; size >= 0; size--) {
		int before = refused;

		ck_assert_int_eq(ftruncate(fd, size), 0);
		check_table(path, "bytes", (size_t)size, &refused);
		ck_assert_int_gt(refused, before);
	}
	close(fd);
	unlink(path);
}

UNIT_MAIN("record", crowd_use)
