/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue-host.h - streams and graphs without a GPU, as unfriendly as a GPU may be
 *
 * Work is done when somebody waits, and never before it has to be; of all that could come next, chance
 * decides (DDP_SEED). Only the order within a stream, queues_order() and waits hold: where one of
 * these is missing, data are wrong for some seeds. That is what the emulation is for.
 *
 * COLLECTIVE work of a rank is done in the order in which it was submitted, over all streams: each
 * waits for other ranks, which do the same. One thread uses a set of queues.
 *
 * What kernels get as their stream is a struct host_stream (tests/runtime/host-stream.h), too: libddp's engines
 * over host memory enqueue on it.
 */
#ifndef QUEUE_HOST_H
#define QUEUE_HOST_H

#include <stdint.h>

#include "device.h"

struct queues;

/*
 * [call] does it, every time, and returns 0 then, QUEUE_LATER where it is to be called again, since another rank has
 * not come; or an error. [forget] frees [data] when it is never done again.
 */
enum { QUEUE_LATER = 1 };
struct queue_work {
	int (*call)(void *data, struct ddp_error *error);
	void (*forget)(void *data);
	void *data;
	bool collective;
};

/* Returns NULL without memory. */
struct queues *queues_create(uint64_t seed);

/* What was not done will never be. NULL is legal. */
void queues_destroy(struct queues *queues);

/* What kernels and stand-ins get as their stream. */
void *queues_stream(struct queues *queues, enum device_stream stream);

/* Enqueue or, where the stream is captured, record. [work] is owned by the queue, also on failure. */
void queues_submit(void *stream, const struct queue_work *work);

/* Whether the stream is being captured. */
bool queues_captured(const struct queues *queues, enum device_stream stream);

/* device_order(), device_ended(), device_capture_...() and so on. */
int queues_order(struct queues *queues, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error);
int queues_ended(struct queues *queues, enum device_stream stream, struct ddp_error *error);
int queues_wait(struct queues *queues, enum device_stream stream, struct ddp_error *error);
int queues_capture_begin(struct queues *queues, struct ddp_error *error);
int queues_capture_end(struct queues *queues, struct device_graph **graph, struct ddp_error *error);
int queues_launch(struct queues *queues, struct device_graph *graph, struct ddp_error *error);

/* Do a few things that may be done now, or none. Returns the first failure of what was done, ever. */
int queues_poke(struct queues *queues, struct ddp_error *error);

/* Do all. */
int queues_drain(struct queues *queues, struct ddp_error *error);

/* Do all that may be done without another rank that has not come by then. Returns whether it was all. */
bool queues_rest(struct queues *queues);

/* device_uncount(), after all work; false where [memory] was never counted. */
bool host_uncount(struct device *device, void *memory);

#endif /* QUEUE_HOST_H */
