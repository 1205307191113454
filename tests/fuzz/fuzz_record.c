/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_record.c - files in the rendezvous directory: records and tables of any bytes, and files of
 * any name
 */
#include "config.h"

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "store/meeting.h"

static const struct ddp_record mine = {.format = DDP_RECORD_FORMAT,
				       .meeting = 5,
				       .process = 42,
				       .job = 7,
				       .rank = 1,
				       .size = 3,
				       .release = PACKAGE_VERSION,
				       .host = "n1"};

/* Fails unless every value that is found is within the data. */
static void check_values(const uint8_t *data, size_t size)
{
	char value[64];
	size_t room = sizeof(value);
	struct ddp_error error = {0};
	int status = ddp_values_get(data, size, 0, "key", value, &room, &error);

	HOLDS(status == 0 || *error.text);
	HOLDS(status != 0 || room <= sizeof(value));
	/* If the key does not exist yet, a value can be added and then found. */
	if (status == DDP_ERR_ARGUMENT) {
		struct ddp_values values = {0};

		room = sizeof(value);
		HOLDS(ddp_values_put(&values, "key", data, size < 64 ? size : 64, NULL) == 0);
		HOLDS(ddp_values_get(values.body, values.size, 0, "key", value, &room, NULL) == 0);
		HOLDS(room == (size < 64 ? size : 64) && memcmp(value, data, room) == 0);
		ddp_values_clear(&values);
	}
}

static void check_record(const uint8_t *data, size_t size)
{
	struct ddp_error error = {0};
	uint8_t again[DDP_RECORD_HEAD], third[DDP_RECORD_HEAD];
	struct ddp_record record, second;

	if (ddp_record_decode(&record, data, size, "input", &error) < 0) {
		HOLDS(*error.text);
		return;
	}
	HOLDS(strlen(record.host) < sizeof(record.host));
	HOLDS(strlen(record.release) < sizeof(record.release));
	ddp_record_encode(&record, again);
	HOLDS(ddp_record_decode(&second, again, sizeof(again), "again", NULL) == 0);
	ddp_record_encode(&second, third);
	HOLDS(memcmp(again, third, sizeof(again)) == 0);
	if (ddp_record_match(&record, &mine, &error) < 0)
		HOLDS(*error.text);
	if (ddp_record_read(&record, NULL, data, size, "input", &error) == 0)
		check_values(data + DDP_RECORD_HEAD, record.length);
}

/*
 * Puts a correct head and checksum before the input and reads it as a record, so that its body is
 * parsed.
 */
static void check_sealed(const uint8_t *data, size_t size)
{
	struct ddp_record record = mine;
	uint8_t *copy = malloc(DDP_RECORD_HEAD + size);

	HOLDS(copy);
	record.kind = DDP_RECORD_OF_RANK;
	ddp_record_seal(&record, data, size);
	ddp_record_encode(&record, copy);
	memcpy(copy + DDP_RECORD_HEAD, data, size);
	check_record(copy, DDP_RECORD_HEAD + size);
	free(copy);
}

/* Opens [data] as a table's file and checks every record that it returns. */
static void check_table(const uint8_t *data, size_t size)
{
	static int fd = -1;
	static char path[64];
	struct ddp_record record;
	struct ddp_table *table;

	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		HOLDS(fd >= 0);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	HOLDS(ftruncate(fd, 0) == 0);
	HOLDS(pwrite(fd, data, size, 0) == (ssize_t)size);
	if (ddp_table_open(&table, path, &mine, NULL) != 0)
		return;
	for (int rank = -1; rank < 4; rank++) {
		const uint8_t *body;

		if (ddp_table_get(table, rank, &record, &body, NULL) == 0)
			check_values(body, record.length);
	}
	ddp_table_close(table);
}

/* Puts a correct head before the input, and reads it as a table. */
static void check_headed(const uint8_t *data, size_t size)
{
	struct ddp_record record = mine;
	uint8_t *file = malloc(DDP_RECORD_HEAD + size);

	HOLDS(file);
	record.kind = DDP_RECORD_OF_ALL;
	record.rank = 0;
	record.length = size;
	ddp_record_encode(&record, file);
	memcpy(file + DDP_RECORD_HEAD, data, size);
	check_table(file, DDP_RECORD_HEAD + size);
	free(file);
}

/* Puts a correct index before the input, and reads it as the three records of a table. */
static void check_indexed(const uint8_t *data, size_t size)
{
	struct iovec part = {(void *)(uintptr_t)data, size};
	const struct iovec parts[3] = {part, part, part};
	struct ddp_record record = mine;
	uint8_t *file;

	record.rank = 0;
	file = ddp_table_encode(&record, parts, &size);
	HOLDS(file);
	check_table(file, size);
	free(file);
}

/*
 * Each name has exactly one kind. If the parts of a name are formatted again, they give the same
 * name.
 */
static void check_name(const char *name)
{
	char path[PATH_MAX];
	uint64_t meeting;
	uint32_t fence, rank;
	enum ddp_name kind = ddp_meeting_parse(name, &meeting, &fence);

	if (kind == DDP_NAME_TABLE)
		ddp_meeting_path(path, "", meeting, ".table.%u", fence);
	else if (kind == DDP_NAME_RANKS)
		ddp_meeting_path(path, "", meeting, ".ranks");
	else if (kind == DDP_NAME_ABORT)
		ddp_meeting_path(path, "", meeting, ".abort");
	if (kind == DDP_NAME_TABLE || kind == DDP_NAME_RANKS || kind == DDP_NAME_ABORT)
		HOLDS(strcmp(path + 1, name) == 0);
	if (!ddp_meeting_parse_rank(name, &fence, &rank))
		return;
	snprintf(path, sizeof(path), "%u.%u", fence, rank);
	HOLDS(strcmp(path, name) == 0);
	HOLDS(kind == DDP_NAME_FOREIGN);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *name = fuzz_text(data, size);

	check_name(name);
	free(name);
	check_record(data, size);
	check_values(data, size);
	check_sealed(data, size);
	check_headed(data, size);
	check_indexed(data, size);
	return 0;
}
