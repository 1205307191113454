/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host-stream.h - streams of a device that is host memory
 *
 * What is enqueued on a stream is a deed: it is done in the stream's order, and tried again later where it says that
 * it is not done yet, since another rank has not come. The modules of this directory work on the streams
 * of whoever calls them: the tests' and their own, which are threads that are late on purpose, before each
 * deed (seed DDP_SEED); or the emulated GPU's (tests/emulated/queue-host.h).
 */
#ifndef DDP_TESTS_HOST_STREAM_H
#define DDP_TESTS_HOST_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of what a deed is told. */
enum { HOST_ROOM = 1200 };

/*
 * [run] is called with a room that is a copy of [room] until it returns true. Of those that are [collective] all ranks
 * do as many in the same order, whatever streams they are on.
 */
struct host_deed {
	bool (*run)(void *room);
	const void *room;
	size_t size;
	bool collective;
};

struct host_stream;

struct host_stream_class {
	void (*add)(struct host_stream *stream, const struct host_deed *deed);
	bool (*idle)(struct host_stream *stream);
	bool (*captured)(struct host_stream *stream);
	/* [later] goes on behind what is on [earlier] now; both are of this class. */
	int (*order)(struct host_stream *later, struct host_stream *earlier);
};

struct host_stream {
	const struct host_stream_class *class;
};

static inline void host_stream_add(struct host_stream *stream, bool (*run)(void *room),
				   const void *room, size_t size)
{
	stream->class->add(stream, &(struct host_deed){run, room, size, false});
}

static inline bool host_stream_idle(struct host_stream *stream)
{
	return stream->class->idle(stream);
}

/* Whether [call] is to fail: with DDP_HOST_FAIL=call:R:n the nth that rank R makes. */
bool host_fails(const char *call);

/* --- Threads ------------------------------------------------------------------------------ */

struct host_stream *host_stream_open(void);

/* NULL is legal. One that is not idle is left to the end of the process; then it returns false. */
bool host_stream_close(struct host_stream *stream);

/* For tests: from now on it is captured, or is no longer. */
void host_stream_capture(struct host_stream *stream, bool captured);

/* Rest for [microseconds]. */
void host_rest(unsigned int microseconds);

#endif /* DDP_TESTS_HOST_STREAM_H */
