/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include <ddp.h>

#include "scratch.h"

/* --- Records of event files (tests/interop/libddp.bats parses the messages in Python) -------- */

static const char *only_file(const char *directory)
{
	static char path[1024];
	DIR *dir = opendir(directory);
	struct dirent *entry;
	int count = 0;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		count++;
	}
	closedir(dir);
	ck_assert_int_eq(count, 1);
	return path;
}

/* A file, and the part of it that next_event() has not read. */
struct events_file {
	unsigned char *data;
	size_t at, size;
};

/* Reads the only file in [directory]. The caller frees the data. */
static struct events_file read_file(const char *directory)
{
	struct events_file file = {.at = 0};

	file.data = (unsigned char *)scratch_read(only_file(directory), &file.size);
	return file;
}

/*
 * Returns the next message without its time, in hexadecimal, or NULL at the end. The length and
 * four bytes of checksum are before the message, four more after it. The message begins with a key
 * and the time.
 */
static const char *next_event(struct events_file *file)
{
	enum { TIME = 9 };
	static char text[4096];
	uint64_t length;

	if (file->at == file->size)
		return NULL;
	memcpy(&length, file->data + file->at, sizeof(length));
	ck_assert(length > TIME && length < sizeof(text) / 2 &&
		  file->size - file->at >= length + 16);
	for (size_t i = TIME; i < length; i++)
		sprintf(text + 2 * (i - TIME), "%02x", file->data[file->at + 12 + i]);
	file->at += length + 16;
	return text;
}

static int count_events(const char *directory)
{
	struct events_file file = read_file(directory);
	int count = 0;

	while (next_event(&file))
		count++;
	free(file.data);
	return count;
}

/* --- Tests ------------------------------------------------------------------------------ */

static const struct {
	const char *tag;
	int64_t step;
	double value;
	const char *want; /* step, and the summary with tag and value */
} points[] = {
	{"a", 0, 2.5, "10002a0a0a080a01611500002040"},
	{"a", INT64_MAX, 1e300, "10ffffffffffffffff7f2a0a0a080a0161150000807f"}, /* infinite */
	{"a", -1, -INFINITY, "10ffffffffffffffffff012a0a0a080a016115000080ff"},
	{"\xc3\xa9", 127, -0.0, "107f2a0b0a090a02c3a91500000080"},
	{" ", 128, 16777217.0, "1080012a0a0a080a0120150000804b"},
};

TEST(test_points)
{
	const char *directory = scratch("points/below");
	struct ddp_events *events;
	struct events_file file;

	ck_assert_int_eq(ddp_events_open(&events, directory, NULL), 0);
	for (int i = 0; i < ROWS(points); i++)
		ddp_events_scalar(events, points[i].tag, points[i].step, points[i].value);
	ck_assert_int_eq(ddp_events_close(events, NULL), 0);
	file = read_file(directory);
	unit_text("the first event", "version", next_event(&file),
		  "1a0d627261696e2e4576656e743a32");
	for (int i = 0; i < ROWS(points); i++)
		unit_text(points[i].tag, "message", next_event(&file), points[i].want);
	ck_assert_ptr_null(next_event(&file));
	free(file.data);
}

/* TensorBoard recognizes the file's name, and two files of a process have different names. */
TEST(test_name)
{
	const char *directory = scratch("name");
	struct ddp_events *first, *second;
	char host[256] = "", want[512], got[1024];
	long long start = (long long)time(NULL), seconds = 0;
	unsigned number = 0;
	int end = 0;

	gethostname(host, sizeof(host) - 1);
	ck_assert_int_eq(ddp_events_open(&first, directory, NULL), 0);
	snprintf(got, sizeof(got), "%s", strrchr(only_file(directory), '/') + 1);
	snprintf(want, sizeof(want), "events.out.tfevents.%%10lld.%s.%ld.%%u%%n", host,
		 (long)getpid());
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	ck_assert_int_eq(sscanf(got, want, &seconds, &number, &end), 2);
#pragma GCC diagnostic pop
	ck_assert_uint_eq((size_t)end, strlen(got));
	ck_assert(seconds >= start && seconds <= (long long)time(NULL));
	ck_assert_int_eq(remove(only_file(directory)), 0);
	ck_assert_int_eq(ddp_events_open(&second, directory, NULL), 0);
	ck_assert_str_ne(strrchr(only_file(directory), '/') + 1, got);
	ck_assert_int_eq(ddp_events_close(first, NULL), 0);
	ck_assert_int_eq(ddp_events_close(second, NULL), 0);
}

/* Flushed events are in the file before it is closed. A full buffer is flushed. */
TEST(test_flush)
{
	const char *directory = scratch("flush");
	struct ddp_events *events;

	ck_assert_int_eq(ddp_events_open(&events, directory, NULL), 0);
	ddp_events_scalar(events, "x", 1, 1);
	ddp_events_flush(events);
	ck_assert_int_eq(count_events(directory), 2);
	for (int i = 0; i < 10000; i++)
		ddp_events_scalar(events, "x", i, i);
	ck_assert_int_gt(count_events(directory), 5000);
	ck_assert_int_lt(count_events(directory), 10002);
	ck_assert_int_eq(ddp_events_close(events, NULL), 0);
	ck_assert_int_eq(count_events(directory), 10002);
}

/* On a full disk the last record in the file is complete, and close() returns the error. */
TEST(test_full_disk)
{
	const char *directory = scratch("full");
	struct ddp_events *events;
	struct ddp_error error;

	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(ddp_events_open(&events, directory, NULL), 0);
	ddp_events_scalar(events, "before", 1, 1);
	ddp_events_flush(events);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, RLIM_INFINITY}), 0);
	for (int i = 0; i < 10000; i++)
		ddp_events_scalar(events, "x", i, i);
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
	ddp_events_scalar(events, "after", 2, 2);
	ck_assert_int_eq(ddp_events_close(events, &error), DDP_ERR_FILE);
	ck_assert_int_eq(error.status, DDP_ERR_FILE);
	UNIT_SAYS("text", error.text, "cannot write", directory, "File too large");
	ck_assert_int_eq(count_events(directory), 2);
}

static char long_tag[1025 + 1];

/*
 * An event with an invalid tag is not written, and close() returns an error. Other events are
 * written.
 */
TEST_LOOP(test_invalid_tag, 0, 4)
{
	static const char *const tags[] = {"", "\xff", "a\xc3", long_tag};
	const char *directory = scratch("tags");
	struct ddp_events *events;
	struct ddp_error error;

	memset(long_tag, 'x', sizeof(long_tag) - 1);
	ck_assert_int_eq(ddp_events_open(&events, directory, NULL), 0);
	ddp_events_scalar(events, tags[_i], 1, 1);
	ddp_events_scalar(events, long_tag + 1, 2, 2);
	ck_assert_int_eq(ddp_events_close(events, &error), DDP_ERR_ARGUMENT);
	UNIT_SAYS("text", error.text, "cannot be a tag");
	ck_assert_int_eq(count_events(directory), 2);
	ck_assert_int_eq(remove(only_file(directory)), 0);
}

TEST(test_open_fails)
{
	const char *file = scratch_file("file", "", 0);
	struct ddp_events *events;
	struct ddp_error error;

	ck_assert_int_eq(ddp_events_open(&events, file, &error), DDP_ERR_FILE);
	ck_assert_ptr_null(events);
	UNIT_SAYS("text", error.text, file, "Not a directory");
	ck_assert_int_eq(ddp_events_open(&events, scratch("file/below"), NULL), DDP_ERR_FILE);
	ck_assert_int_eq(ddp_events_close(NULL, &error), 0);
	ck_assert_int_eq(error.status, 0);
	/* Ranks that write no events pass NULL. */
	ddp_events_scalar(NULL, "x", 1, 1);
	ddp_events_flush(NULL);
}

UNIT_MAIN("events", scratch_use)
