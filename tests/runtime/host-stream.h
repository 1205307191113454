/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host-stream.h - streams of an emulated device
 *
 * A stream runs its operations in the order in which they were enqueued. An operation that must
 * wait for another rank returns false, and the stream calls it again later. The modules in this
 * directory use two kinds of streams: threads, which delay operations by random times (seed:
 * DDP_SEED), and the streams of the emulated GPU (tests/emulated/queue-host.h).
 */
#ifndef DDP_TESTS_HOST_STREAM_H
#define DDP_TESTS_HOST_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum size in bytes of an operation's argument. */
enum { HOST_ARGUMENT = 1200 };

/*
 * The stream copies [size] bytes at [argument] and calls [run] with the copy until [run] returns
 * true. All ranks must enqueue the same [collective] operations in the same order; the streams may
 * differ.
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
	/*
	 * Makes [later] wait for the operations that are on [earlier] now. Both streams must be of
	 * the same kind.
	 */
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

/*
 * Whether this call of [call] must fail. DDP_HOST_FAIL=CALL:R:N makes the Nth call by rank R fail.
 */
bool host_fails(const char *call);

/* --- Streams that are threads ------------------------------------------------------------- */

struct host_stream *host_stream_open(void);

/*
 * Closes the stream and returns true. If the stream is not idle, frees nothing and returns false.
 * NULL is legal.
 */
bool host_stream_close(struct host_stream *stream);

/* For tests: sets whether the stream is being captured. */
void host_stream_capture(struct host_stream *stream, bool captured);

void host_sleep(unsigned int microseconds);

#endif /* DDP_TESTS_HOST_STREAM_H */
