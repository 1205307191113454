/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue-host.h - streams and graphs without a GPU, with the most unfavourable order of work
 *
 * Work is done only when a caller waits. If several operations may run next, the choice is random
 * (DDP_SEED). Only the order within a stream, queues_order() and waits is guaranteed. If one of
 * these is missing in the program, data is wrong for some seeds.
 *
 * COLLECTIVE work of a rank is done in the order of submission, over all streams, as it waits for
 * other ranks, which do the same. Only one thread may use a set of queues.
 *
 * The stream that kernels get is also a struct host_stream (tests/runtime/host-stream.h), on which
 * libddp's modules over host memory enqueue work.
 */
#ifndef QUEUE_HOST_H
#define QUEUE_HOST_H

#include <stdint.h>

#include "device.h"

struct queues;

/*
 * [call] does the work, each time it is run. It returns 0, QUEUE_LATER to be called again because
 * another rank has not arrived, or an error. [forget] frees [data] when the work will not be run
 * again.
 */
enum { QUEUE_LATER = 1 };
struct queue_work {
	int (*call)(void *data, struct ddp_error *error);
	void (*forget)(void *data);
	void *data;
	bool collective;
};

/* Returns NULL if there is no memory. */
struct queues *queues_create(uint64_t seed);

/* Discards work that is not done. NULL is legal. */
void queues_destroy(struct queues *queues);

/* The stream argument for kernels and emulated functions. */
void *queues_stream(struct queues *queues, enum device_stream stream);

/*
 * Enqueues [work] or, if the stream is captured, records it. The queue owns [work], also on
 * failure.
 */
void queues_submit(void *stream, const struct queue_work *work);

/* Whether the stream is being captured. */
bool queues_captured(const struct queues *queues, enum device_stream stream);

/* Implement device_order(), device_ended(), device_capture_...() and so on. */
int queues_order(struct queues *queues, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error);
int queues_ended(struct queues *queues, enum device_stream stream, struct ddp_error *error);
int queues_wait(struct queues *queues, enum device_stream stream, struct ddp_error *error);
int queues_capture_begin(struct queues *queues, struct ddp_error *error);
int queues_capture_end(struct queues *queues, struct device_graph **graph, struct ddp_error *error);
int queues_launch(struct queues *queues, struct device_graph *graph, struct ddp_error *error);

/* Runs a random number of operations that may run. Returns the first error so far. */
int queues_poke(struct queues *queues, struct ddp_error *error);

int queues_drain(struct queues *queues, struct ddp_error *error);

/* Runs all operations that do not wait for another rank. Returns whether none is left. */
bool queues_rest(struct queues *queues);

#endif /* QUEUE_HOST_H */
