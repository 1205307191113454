/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_record.c - records and tables of the rendezvous, and the detection of damaged files
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "crowd.h"
#include "store/meeting.h"

/* --- Records ------------------------------------------------------------------------------ */

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
