/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device-engine.h - interface of the engines that move device memory between ranks
 *
 * device/ has the engines, which are modules that fill in this table when comm/ opens them, and
 * cards.h, which chooses one engine for all ranks. It calls base/, gpu/, CUDA and NCCL, and the
 * watch that comm/ passes to it. Start reading here, then in gpu.c, the smaller engine;
 * nccl-engine.c uses NCCL.
 *
 * ddp_nccl.so has all functions except pin(), copy(), captured() and await(). ddp_gpu.so needs no
 * NCCL and has no collectives, health() and abort(): comm/device-calls.c builds collectives from
 * its copies and the host's collectives.
 *
 * This header uses no CUDA types: a stream is a void pointer, and NULL is the engine's own stream.
 * Functions enqueue and return; only wait() and await() wait.
 */
#ifndef DDP_DEVICE_ENGINE_H
#define DDP_DEVICE_ENGINE_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"

#define DDP_DEVICE_VERSION 5

enum { DDP_DEVICE_ID = 256 };

struct ddp_device; /* private to each engine */

/* Description of a rank's device. All ranks exchange these before they choose a path for sums. */
struct ddp_device_card {
	int32_t rank;
	int32_t index;	    /* of the device, in the rank's numbering */
	int32_t version;    /* of NCCL: 10000 major + 100 minor + patch; 0: no NCCL */
	int32_t multi_rank; /* NCCL_MULTI_RANK_GPU_ENABLE=1 */
	char uuid[48];	    /* of the device, or of its MIG slice */
	char bus[16];	    /* PCI address, the same for all MIG slices of a GPU */
	char host[64];	    /* for messages */
	uint64_t boot;	    /* boot id of the kernel, or a hash of NCCL_HOSTID */
	uint64_t bytes;	    /* size of the device's memory */
};

struct ddp_device_engine {
	struct ddp_module_head head; /* kind "device" */

	/*
	 * Open device [index] and fill in [card], which is zeroed except for its rank. Needs no
	 * peer.
	 */
	int (*open)(struct ddp_device **device, struct ddp_device_card *card, int rank, int size,
		    int index, const struct ddp_log *log, struct ddp_error *error);

	/* Rank 0: create an identity for connect() on all ranks. */
	int (*identity)(struct ddp_device *device, uint8_t id[DDP_DEVICE_ID],
			struct ddp_error *error);

	/*
	 * Create the communicator of ranks that have one device each (cards.h). Fails at the
	 * deadline of the watch. The limit of the watch is also how long a later call that only
	 * enqueues may block inside the engine.
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
	 * alloc() returns zeroed device memory of this rank. enroll() is collective, and waits:
	 * with [known] it registers memory of alloc(), which makes sums of it faster. If a rank has
	 * [refused], all ranks undo that, without [known]: memory that is registered on some ranks
	 * only is undefined behaviour. An error ends the engine; NULL: there is nothing to
	 * register. free() accepts NULL; close() frees what is left.
	 */
	int (*alloc)(struct ddp_device *device, size_t bytes, void **memory,
		     const struct ddp_watch *watch, struct ddp_error *error);
	int (*enroll)(struct ddp_device *device, void *memory, bool known,
		      struct ddp_error *refused, const struct ddp_watch *watch,
		      struct ddp_error *error);
	int (*free)(struct ddp_device *device, void *memory, struct ddp_error *error);

	/* Returns the engine's own stream. */
	void *(*stream)(struct ddp_device *device);

	/*
	 * These need no peer and no communicator, and use streams of the calling thread's device.
	 * order(): [later] waits for what is on [earlier] now. convert(): [count] elements of one
	 * type become elements of another, multiplied by [factor] in f32; one type is DDP_F32, the
	 * other is that or has 16 bits; in-place conversion is allowed if the types are equal.
	 * count(): increment [counter] on the device and store it in [word], which the host reads.
	 * All may be captured.
	 */
	int (*order)(void *later, void *earlier, struct ddp_error *error);
	int (*convert)(void *stream, void *to, enum ddp_type to_type, const void *from,
		       enum ddp_type from_type, size_t count, float factor,
		       struct ddp_error *error);
	int (*count)(void *stream, uint64_t *counter, uint64_t *word, struct ddp_error *error);

	/*
	 * ddp_gpu.so only. pin() maps host [memory] on the device at the same address, until
	 * close(). copy() copies in either direction between device and pinned memory, and may be
	 * captured.
	 */
	int (*pin)(struct ddp_device *device, void *memory, size_t bytes, struct ddp_error *error);
	int (*copy)(struct ddp_device *device, void *to, const void *from, size_t bytes,
		    void *stream, struct ddp_error *error);

	/* ddp_gpu.so only. Returns whether [stream] is being captured into a CUDA graph. */
	bool (*captured)(struct ddp_device *device, void *stream);

	/*
	 * ddp_gpu.so only. Wait until [word], which count() on [stream] stores, has reached
	 * [value].
	 */
	int (*await)(struct ddp_device *device, void *stream, const uint64_t *word, uint64_t value,
		     const struct ddp_watch *watch, struct ddp_error *error);

	/*
	 * Wait for what is enqueued on [stream]. Ends early by the watch, or by an error of the
	 * engine.
	 */
	int (*wait)(struct ddp_device *device, void *stream, const struct ddp_watch *watch,
		    struct ddp_error *error);

	/*
	 * ddp_nccl.so only. health() returns an error (DDP_ERR_x) that occurred in the meantime,
	 * else 0, without a call that can block. abort() ends collectives within [seconds], and
	 * returns whether it succeeded.
	 */
	int (*health)(struct ddp_device *device, struct ddp_error *error);
	bool (*abort)(struct ddp_device *device, double seconds);

	void (*close)(struct ddp_device *device);
};

#endif /* DDP_DEVICE_ENGINE_H */
