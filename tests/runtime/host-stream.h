/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host-stream.h - streams of an emulated device
 *
 * An operation on a stream runs in the stream's order. It returns false while it has to wait for
 * another rank, and is then called again. The modules in this directory work with two classes of
 * streams: threads, which delay operations by random times (seed: DDP_SEED), and the streams of the
 * emulated GPU (tests/emulated/queue-host.h).
 */
#ifndef DDP_TESTS_HOST_STREAM_H
#define DDP_TESTS_HOST_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum size of an operation's argument in bytes. */
enum { HOST_ARGUMENT = 1200 };

/*
 * [run] is called with a copy of [argument], of [size] bytes, until it returns true. All ranks
 * enqueue the same number of [collective] operations in the same order, on any streams.
 */
struct host_operation {
	bool (*run)(void *argument);
	const void *argument;
	size_t size;
	bool collective;
};

struct host_stream;

struct host_stream_class {
	void (*add)(struct host_stream *stream, const struct host_operation *operation);
	bool (*idle)(struct host_stream *stream);
	bool (*captured)(struct host_stream *stream);
	/* Makes [later] wait for the operations that are on [earlier] now. Both are of this class. */
	int (*order)(struct host_stream *later, struct host_stream *earlier);
};

struct host_stream {
	const struct host_stream_class *class;
};

static inline void host_stream_add(struct host_stream *stream, bool (*run)(void *argument),
				   const void *argument, size_t size)
{
	stream->class->add(stream, &(struct host_operation){run, argument, size, false});
}

static inline bool host_stream_idle(struct host_stream *stream)
{
	return stream->class->idle(stream);
}

/* Whether this use of [call] has to fail: DDP_HOST_FAIL=CALL:R:N makes the Nth call by rank R fail. */
bool host_fails(const char *call);

/* --- Threads ------------------------------------------------------------------------------ */

struct host_stream *host_stream_open(void);

/* Returns false, and frees nothing, if the stream is not idle. NULL is legal. */
bool host_stream_close(struct host_stream *stream);

/* For tests: sets whether the stream is being captured. */
void host_stream_capture(struct host_stream *stream, bool captured);

void host_sleep(unsigned int microseconds);

#endif /* DDP_TESTS_HOST_STREAM_H */
