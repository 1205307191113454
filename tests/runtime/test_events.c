/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include <ddp.h>

#include "base/checksum.h"
#include "scratch.h"

/* --- A reader of event files ------------------------------------------------------------ */

/* Parts of an Event message. If the event has no summary, the tag is empty. */
struct event {
	double time;
	int64_t step;
	char version[32], tag[2048];
	float value;
};

struct span {
	const unsigned char *at, *end;
};

static uint64_t read_varint(struct span *span)
{
	uint64_t number = 0;
	int shift = 0;

	for (;; shift += 7) {
		ck_assert(span->at < span->end && shift < 64);
		number |= (uint64_t)(*span->at & 0x7f) << shift;
		if (*span->at++ < 0x80)
			return number;
	}
}

/* Removes [size] bytes from the start of [span] and returns them. */
static struct span read_bytes(struct span *span, uint64_t size)
{
	struct span bytes = {span->at, span->at + size};

	ck_assert_uint_le(size, (uint64_t)(span->end - span->at));
	span->at += size;
	return bytes;
}

/* Reads a field. Returns the field's number, and its value in [bytes] or [number]. */
static unsigned read_field(struct span *span, struct span *bytes, uint64_t *number)
{
	uint64_t key = read_varint(span);

	switch (key & 7) {
	case 0:
		*number = read_varint(span);
		break;
	case 1:
		*bytes = read_bytes(span, 8);
		break;
	case 2:
		*bytes = read_bytes(span, read_varint(span));
		break;
	case 5:
		*bytes = read_bytes(span, 4);
		break;
	default:
		ck_abort_msg("wire type %d", (int)(key & 7));
	}
	return (unsigned)(key >> 3);
}

static void copy_text(char *to, size_t capacity, struct span bytes)
{
	size_t size = (size_t)(bytes.end - bytes.at);

	ck_assert_uint_lt(size, capacity);
	memcpy(to, bytes.at, size);
	to[size] = '\0';
}

static void read_value(struct span span, struct event *event)
{
	struct span bytes;
	uint64_t number;

	while (span.at < span.end) {
		unsigned field = read_field(&span, &bytes, &number);

		if (field == 1)
			copy_text(event->tag, sizeof(event->tag), bytes);
		else if (field == 2)
			memcpy(&event->value, bytes.at, sizeof(event->value));
		else
			ck_abort_msg("field %u of a value", field);
	}
}

static void read_event(struct span span, struct event *event)
{
	struct span bytes, summary;
	uint64_t number;

	*event = (struct event){.time = -1, .step = -1};
	while (span.at < span.end) {
		switch (read_field(&span, &bytes, &number)) {
		case 1:
			memcpy(&event->time, bytes.at, sizeof(event->time));
			break;
		case 2:
			event->step = (int64_t)number;
			break;
		case 3:
			copy_text(event->version, sizeof(event->version), bytes);
			break;
		case 5:
			summary = bytes;
			ck_assert_uint_eq(read_field(&summary, &bytes, &number), 1);
			ck_assert_ptr_eq(summary.at, summary.end);
			read_value(bytes, event);
			break;
		default:
			ck_abort_msg("an unknown field of an event");
		}
	}
}

/* Compares the stored checksum with one that is computed bit by bit. */
static void check_crc(struct span bytes, struct span stored)
{
	uint32_t crc = ddp_crc32c_plain(0, bytes.at, (size_t)(bytes.end - bytes.at)), masked;

	memcpy(&masked, stored.at, sizeof(masked));
	masked -= 0xa282ead8u;
	ck_assert_uint_eq(masked >> 17 | masked << 15, crc);
}

static bool next_event(struct span *file, struct event *event)
{
	struct span head, body;
	uint64_t length;

	if (file->at == file->end)
		return false;
	head = read_bytes(file, sizeof(length));
	memcpy(&length, head.at, sizeof(length));
	check_crc(head, read_bytes(file, 4));
	body = read_bytes(file, length);
	check_crc(body, read_bytes(file, 4));
	read_event(body, event);
	return true;
}

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

/* Reads the only file in [directory]. The caller frees [data]. */
static struct span read_file(const char *directory, char **data)
{
	size_t size;

	*data = scratch_read(only_file(directory), &size);
	return (struct span){(unsigned char *)*data, (unsigned char *)*data + size};
}

/* --- Tests ------------------------------------------------------------------------------ */

static const struct {
	const char *tag;
	int64_t step;
	double value;
} points[] = {
	{"loss/train", 0, 2.3025851}, {"loss/train", 1, -0.0},
	{"a", INT64_MAX, 1e300}, /* exceeds float's range, becomes infinite */
	{"a", -1, -INFINITY},	      {"é", 127, 1e-45},
	{" ", 128, 16777217.0},	      {"nan", 16384, NAN},
};

TEST(test_points)
{
	const char *directory = scratch("points/below");
	struct ddp_events *events;
	struct ddp_error error;
	struct event event;
	struct span file;
	char *data;

	ck_assert_int_eq(ddp_events_open(&events, directory, &error), 0);
	for (int i = 0; i < ROWS(points); i++)
		ddp_events_scalar(events, points[i].tag, points[i].step, points[i].value);
	ck_assert_int_eq(ddp_events_close(events, &error), 0);

	file = read_file(directory, &data);
	ck_assert(next_event(&file, &event));
	ck_assert_str_eq(event.version, "brain.Event:2");
	ck_assert(event.time > 1.6e9 && event.time < 1e11);
	for (int i = 0; i < ROWS(points); i++) {
		float want = (float)points[i].value;

		ck_assert(next_event(&file, &event));
		ck_assert_str_eq(event.tag, points[i].tag);
		unit_number(points[i].tag, "step", event.step, points[i].step);
		ck_assert(memcmp(&event.value, &want, sizeof(want)) == 0);
		ck_assert(event.time > 1.6e9 && event.time < 1e11);
	}
	ck_assert(!next_event(&file, &event));
	free(data);
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
	struct event event;
	struct span file;
	char *data;
	int count = 0;

	ck_assert_int_eq(ddp_events_open(&events, directory, NULL), 0);
	ddp_events_scalar(events, "x", 1, 1);
	ddp_events_flush(events);
	file = read_file(directory, &data);
	ck_assert(next_event(&file, &event) && next_event(&file, &event));
	ck_assert(!next_event(&file, &event));
	free(data);
	for (int i = 0; i < 10000; i++)
		ddp_events_scalar(events, "x", i, i);
	file = read_file(directory, &data);
	while (next_event(&file, &event))
		count++;
	ck_assert_int_gt(count, 5000);
	ck_assert_int_lt(count, 10002);
	free(data);
	ck_assert_int_eq(ddp_events_close(events, NULL), 0);
	file = read_file(directory, &data);
	for (count = 0; next_event(&file, &event); count++)
		if (count >= 2)
			ck_assert_int_eq(event.step, count - 2);
	ck_assert_int_eq(count, 10002);
	free(data);
}

/* On a full disk the last record in the file is complete, and close() returns the error. */
TEST(test_full_disk)
{
	const char *directory = scratch("full");
	struct ddp_events *events;
	struct ddp_error error;
	struct event event;
	struct span file;
	char *data;
	int count = 0;

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
	file = read_file(directory, &data);
	while (next_event(&file, &event))
		count++;
	ck_assert_int_eq(count, 2);
	ck_assert_str_eq(event.tag, "before");
	free(data);
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
	struct event event;
	struct span file;
	char *data;

	memset(long_tag, 'x', sizeof(long_tag) - 1);
	ck_assert_int_eq(ddp_events_open(&events, directory, NULL), 0);
	ddp_events_scalar(events, tags[_i], 1, 1);
	ddp_events_scalar(events, long_tag + 1, 2, 2);
	ck_assert_int_eq(ddp_events_close(events, &error), DDP_ERR_ARGUMENT);
	UNIT_SAYS("text", error.text, "cannot be a tag");
	file = read_file(directory, &data);
	ck_assert(next_event(&file, &event) && next_event(&file, &event));
	ck_assert_str_eq(event.tag, long_tag + 1);
	ck_assert(!next_event(&file, &event));
	free(data);
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
