/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue-host.h - streams and graphs without a GPU, with the most unfavourable order of work
 *
 * Work runs only when a caller waits. If several operations may run next, one is chosen at random
 * (seed: DDP_SEED). Only three things guarantee an order: a stream, queues_order(), and waits. If
 * the program forgets one of these, some seeds give wrong data.
 *
 * A rank's COLLECTIVE work runs in the order of submission, over all streams, because it waits for
 * other ranks, which use the same order. Only one thread may use a set of queues.
 *
 * The stream that kernels get is also a struct host_stream (tests/runtime/host-stream.h). The
 * emulated modules of libddp enqueue their work on it.
 */
#ifndef QUEUE_HOST_H
#define QUEUE_HOST_H

#include <stdint.h>

#include "device.h"

struct queues;

/*
 * [call] runs the work. It returns 0 when the work is done; QUEUE_LATER if another rank has not
 * arrived, and then it is called again; or an error. After the last call, [forget] frees [data].
 */
enum { QUEUE_LATER = 1 };
struct queue_work {
	int (*call)(void *data, struct ddp_error *error);
	void (*forget)(void *data);
	void *data;
	bool collective;
};

/* Returns NULL if memory is exhausted. */
struct queues *queues_create(uint64_t seed);

/* Frees the queues. Discards work that is not done. NULL is legal. */
void queues_destroy(struct queues *queues);

/* Returns the stream argument for kernels and emulated functions. */
void *queues_stream(struct queues *queues, enum device_stream stream);

/*
 * Enqueues [work]. If the stream is being captured, records it instead. The queue owns [work] even
 * if the call fails.
 */
void queues_submit(void *stream, const struct queue_work *work);

bool queues_captured(const struct queues *queues, enum device_stream stream);

/* Implementations of device_order(), device_ended(), device_capture_...() and so on. */
int queues_order(struct queues *queues, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error);
int queues_ended(struct queues *queues, enum device_stream stream, struct ddp_error *error);
int queues_wait(struct queues *queues, enum device_stream stream, struct ddp_error *error);
int queues_capture_begin(struct queues *queues, struct ddp_error *error);
int queues_capture_end(struct queues *queues, struct device_graph **graph, struct ddp_error *error);
int queues_launch(struct queues *queues, struct device_graph *graph, struct ddp_error *error);

/* Number of nodes of the graph that this process has captured last. */
extern size_t queues_nodes;

/* Runs a random number of operations. Returns the first error so far. */
int queues_poke(struct queues *queues, struct ddp_error *error);

int queues_drain(struct queues *queues, struct ddp_error *error);

/* Runs all operations that do not wait for another rank. Returns whether no operation remains. */
bool queues_rest(struct queues *queues);

#endif /* QUEUE_HOST_H */
