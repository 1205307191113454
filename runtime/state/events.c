/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.c - write curves to event files, which TensorBoard displays
 *
 * An event file is a sequence of records. A record has the length of the message (8 bytes), the
 * checksum of the length, a protobuf message of type Event, and the checksum of the message.
 * Numbers are little endian. Checksums are CRC-32C, masked as TensorFlow masks them.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/text.h"
#include "base/watch.h"

enum {
	BUFFER_SIZE = 65536,
	TAG_SIZE = 1024,	      /* longest tag, in bytes */
	RECORD_SIZE = TAG_SIZE + 128, /* longest record, in bytes */
};

/* Time after which ddp_events_scalar() writes buffered points to the file, in nanoseconds. */
#define FLUSH_PERIOD (UINT64_C(10) * 1000000000)

struct ddp_events {
	int fd;
	char *path;
	struct ddp_error error; /* the first error */
	bool broken;		/* a write has failed, and later writes do nothing */
	uint64_t flushed;	/* time of the last flush, a value of ddp_now() */
	off_t written;		/* size of all complete records in the file */
	size_t used;
	char buffer[BUFFER_SIZE];
};

/* A protobuf message that is being written. RECORD_SIZE is large enough for every message. */
struct message {
	size_t size;
	char data[RECORD_SIZE];
};

static void put_bytes(struct message *message, const void *data, size_t size)
{
	memcpy(message->data + message->size, data, size);
	message->size += size;
}

static void put_varint(struct message *message, uint64_t number)
{
	for (; number >= 0x80; number >>= 7)
		message->data[message->size++] = (char)(number | 0x80);
	message->data[message->size++] = (char)number;
}

/* Wire types of protobuf. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_key(struct message *message, unsigned field, unsigned kind)
{
	put_varint(message, field << 3 | kind);
}

static void put_field(struct message *message, unsigned field, const void *data, size_t size)
{
	put_key(message, field, BYTES);
	put_varint(message, size);
	put_bytes(message, data, size);
}

static void put_time(struct message *event)
{
	double seconds = ddp_date(NULL);

	put_key(event, 1, FIXED64);
	put_bytes(event, &seconds, sizeof(seconds));
}

static uint32_t masked_crc(const void *data, size_t size)
{
	uint32_t crc = ddp_crc32c(0, data, size);

	return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void fail(struct ddp_events *events, int status, const char *what)
{
	if (events->error.status == DDP_OK)
		ddp_error_errno(&events->error, status, "%s %s", what, events->path);
}

void ddp_events_flush(struct ddp_events *events)
{
	if (!events)
		return;
	events->flushed = ddp_now();
	if (!events->broken && ddp_file_write_all(events->fd, events->buffer, events->used) < 0) {
		fail(events, DDP_ERR_FILE, "cannot write");
		/* Readers would treat the file as damaged if it ended in a partial record. */
		if (ftruncate(events->fd, events->written) < 0)
			fail(events, DDP_ERR_FILE, "cannot truncate");
		events->broken = true;
	}
	if (!events->broken)
		events->written += (off_t)events->used;
	events->used = 0;
}

static void append(struct ddp_events *events, const void *data, size_t size)
{
	memcpy(events->buffer + events->used, data, size);
	events->used += size;
}

static void add_record(struct ddp_events *events, const struct message *event)
{
	uint64_t length = event->size;
	uint32_t head = masked_crc(&length, sizeof(length));
	uint32_t body = masked_crc(event->data, event->size);

	if (BUFFER_SIZE - events->used < event->size + 16)
		ddp_events_flush(events);
	append(events, &length, sizeof(length));
	append(events, &head, sizeof(head));
	append(events, event->data, event->size);
	append(events, &body, sizeof(body));
}

static int open_file(struct ddp_events *events, const char *directory, struct ddp_error *error)
{
	static _Atomic unsigned numbers;
	char host[HOST_NAME_MAX + 1] = "", path[PATH_MAX];

	gethostname(host, sizeof(host) - 1);
	do {
		if (snprintf(path, sizeof(path), "%s/events.out.tfevents.%010lld.%s.%ld.%u",
			     directory, (long long)time(NULL), *host ? host : "localhost",
			     (long)getpid(), numbers++) >= (int)sizeof(path))
			return ddp_error_set(error, DDP_ERR_FILE, "the path %.100s... is too long",
					     directory);
		events->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	} while (events->fd < 0 && errno == EEXIST);
	if (events->fd < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot create %s", path);
	events->path = strdup(path);
	if (!events->path)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", path);
	return 0;
}

int ddp_events_open(struct ddp_events **events, const char *directory, struct ddp_error *error)
{
	static const char version[] = "brain.Event:2";
	struct message first = {.size = 0};
	int status;

	ddp_error_clear(error);
	*events = calloc(1, sizeof(**events));
	if (!*events)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", directory);
	(*events)->fd = -1;
	status = ddp_file_mkdirs(directory, 0777, error);
	if (status == 0)
		status = open_file(*events, directory, error);
	if (status < 0) {
		ddp_events_close(*events, NULL);
		*events = NULL;
		return status;
	}
	put_time(&first);
	put_field(&first, 3, version, sizeof(version) - 1);
	add_record(*events, &first);
	ddp_events_flush(*events);
	return 0;
}

void ddp_events_scalar(struct ddp_events *events, const char *tag, int64_t step, double value)
{
	struct message event = {.size = 0}, scalar = {.size = 0}, summary = {.size = 0};
	size_t size = strlen(tag);
	float number = (float)value;

	if (!events || events->broken)
		return;
	if (size == 0 || size > TAG_SIZE || !ddp_utf8_valid(tag)) {
		if (events->error.status == DDP_OK)
			ddp_error_set(&events->error, DDP_ERR_ARGUMENT,
				      "%s: \"%.100s\" cannot be a tag. Use 1 to %d bytes of UTF-8.",
				      events->path, tag, TAG_SIZE);
		return;
	}
	put_field(&scalar, 1, tag, size);
	put_key(&scalar, 2, FIXED32);
	put_bytes(&scalar, &number, sizeof(number));
	put_field(&summary, 1, scalar.data, scalar.size);
	put_time(&event);
	put_key(&event, 2, VARINT);
	put_varint(&event, (uint64_t)step);
	put_field(&event, 5, summary.data, summary.size);
	add_record(events, &event);
	if (ddp_now() - events->flushed >= FLUSH_PERIOD)
		ddp_events_flush(events);
}

int ddp_events_close(struct ddp_events *events, struct ddp_error *error)
{
	int status;

	ddp_error_clear(error);
	if (!events)
		return 0;
	if (events->fd >= 0) {
		ddp_events_flush(events);
		if (fsync(events->fd) < 0 && errno != EINVAL)
			fail(events, DDP_ERR_FILE, "cannot sync");
		if (close(events->fd) < 0)
			fail(events, DDP_ERR_FILE, "cannot close");
	}
	status = events->error.status;
	if (status < 0)
		ddp_error_set(error, status, "%s", events->error.text);
	free(events->path);
	free(events);
	return status;
}
