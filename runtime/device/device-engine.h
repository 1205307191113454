/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device-engine.h - an engine that moves device memory between ranks (ddp_nccl.so)
 *
 * No CUDA type here: a stream is a void pointer, NULL the engine's own. Calls enqueue and
 * return; wait() waits.
 */
#ifndef DDP_DEVICE_ENGINE_H
#define DDP_DEVICE_ENGINE_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"

#define DDP_DEVICE_VERSION 3

enum { DDP_DEVICE_ID = 256 };

struct ddp_device; /* an engine's own */

/* What a rank must tell the others before they form a communicator. */
struct ddp_device_card {
	int32_t rank;
	int32_t version; /* of the engine's library: 10000 major + 100 minor + patch */
	char uuid[48];	 /* of the device, or of its MIG slice */
	char host[64];	 /* for messages */
	uint64_t boot;	 /* which kernel, or what NCCL_HOSTID says instead */
};

struct ddp_device_engine {
	struct ddp_module_head head; /* kind "device" */

	/* Take device [index]; no peer is needed yet. */
	int (*open)(struct ddp_device **device, int rank, int size, int index,
		    const struct ddp_log *log, struct ddp_error *error);

	/* About this rank, for the others. */
	int (*card)(struct ddp_device *device, struct ddp_device_card *card,
		    struct ddp_error *error);

	/* Rank 0: a new identity, to be handed to all. */
	int (*identity)(struct ddp_device *device, uint8_t id[DDP_DEVICE_ID],
			struct ddp_error *error);

	/*
	 * Form the communicator, after the cards of all ranks were found to go together
	 * (cards.h), of ranks that have no device twice. Ends by the deadline; the watch's
	 * limit is also how long a later call that only enqueues may block inside the engine.
	 */
	int (*connect)(struct ddp_device *device, const uint8_t id[DDP_DEVICE_ID],
		       const struct ddp_watch *watch, struct ddp_error *error);

	int (*all_reduce)(struct ddp_device *device, const void *send, void *recv, size_t count,
			  enum ddp_type type, enum ddp_op op, void *stream,
			  struct ddp_error *error);
	int (*broadcast)(struct ddp_device *device, void *data, size_t bytes, int root,
			 void *stream, struct ddp_error *error);
	int (*all_gather)(struct ddp_device *device, const void *send, void *recv, size_t bytes,
			  void *stream, struct ddp_error *error);

	/*
	 * Device memory of this rank, zeroed; where ranks share GPUs it is collective. enroll() is, and waits: with
	 * [known] it registers memory of alloc(), which makes sums of it faster; what is [refused] here is to be
	 * taken back on all ranks, without [known], as registered on one and not on another is undefined. Its
	 * error is the end of the engine; NULL: there is nothing to register. free() takes NULL; close() frees
	 * what is left.
	 */
	int (*alloc)(struct ddp_device *device, size_t bytes, void **memory,
		     const struct ddp_watch *watch, struct ddp_error *error);
	int (*enroll)(struct ddp_device *device, void *memory, bool known,
		      struct ddp_error *refused, const struct ddp_watch *watch,
		      struct ddp_error *error);
	int (*free)(struct ddp_device *device, void *memory, struct ddp_error *error);

	/* The engine's own stream. */
	void *(*stream)(struct ddp_device *device);

	/*
	 * What needs no peer and no communicator, on streams of the calling thread's device: [later] goes on
	 * behind what is on [earlier] now; [count] elements of one type become elements of another one,
	 * which may be the same in place, times [factor] in f32, where one of the types is DDP_F32 and the other
	 * that or of 16 bits; [counter] on the device is one more and goes to [word], which the host reads.
	 * May be captured.
	 */
	int (*order)(void *later, void *earlier, struct ddp_error *error);
	int (*convert)(void *stream, void *to, enum ddp_type to_type, const void *from,
		       enum ddp_type from_type, size_t count, float factor,
		       struct ddp_error *error);
	int (*count)(void *stream, uint64_t *counter, uint64_t *word, struct ddp_error *error);

	/* Wait for what is enqueued on [stream], with the watch and the engine's own errors. */
	int (*wait)(struct ddp_device *device, void *stream, const struct ddp_watch *watch,
		    struct ddp_error *error);

	/* An error that happened meanwhile: DDP_ERR_x, else 0. No device call that can block. */
	int (*health)(struct ddp_device *device, struct ddp_error *error);

	/*
	 * Call [call] whenever the engine gives up by itself, before what is under way ends without its
	 * result; from any of its threads, more than once. Before connect().
	 */
	void (*warn)(struct ddp_device *device, void (*call)(void *owner), void *owner);

	/* Give up: at most [seconds] in a helper thread. Returns whether it came back. */
	bool (*abort)(struct ddp_device *device, double seconds);

	void (*close)(struct ddp_device *device);
};

#endif /* DDP_DEVICE_ENGINE_H */
