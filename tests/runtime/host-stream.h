/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host-stream.h - streams of a device that is host memory
 *
 * A stream is a thread that does what was enqueued, in its order, and late on purpose: before each deed it
 * may rest for a moment (seed DDP_SEED). The modules of this directory and the tests take each
 * other's streams.
 */
#ifndef DDP_TESTS_HOST_STREAM_H
#define DDP_TESTS_HOST_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of what a deed is told. */
enum { HOST_ROOM = 1200 };

struct host_deed {
	struct host_deed *next;
	void (*run)(void *room);
	_Alignas(16) unsigned char room[HOST_ROOM];
};

struct host_stream {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t come;
	struct host_deed *first, **last;
	atomic_ulong enqueued, ended;
	uint64_t random;
	bool stop;
	atomic_bool captured; /* tests set it */
};

struct host_stream *host_stream_open(void);

/* [room], of [size] bytes, is copied. */
void host_stream_add(struct host_stream *stream, void (*run)(void *room), const void *room,
		     size_t size);

bool host_stream_idle(struct host_stream *stream);

/* NULL is legal. One that is not idle is left to the end of the process; then it returns false. */
bool host_stream_close(struct host_stream *stream);

/* Rest for [microseconds]. */
void host_rest(unsigned int microseconds);

#endif /* DDP_TESTS_HOST_STREAM_H */
