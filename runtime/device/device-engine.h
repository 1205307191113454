/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device-engine.h - an engine that moves device memory between ranks
 *
 * device/ has the engines, modules that fill this table when comm/ opens them, and cards.h, which chooses one for all
 * ranks. It calls base/ and gpu/, CUDA and NCCL, and the watch that comm/ gives it. Start reading here, then gpu.c, the
 * smaller one; nccl-engine.c has NCCL.
 *
 * ddp_nccl.so has all calls but pin(), copy(), captured() and await(). ddp_gpu.so needs no NCCL and has no
 * collectives, health() and abort(): comm/device-calls.c makes collectives of its copies and the host's.
 *
 * No CUDA type here: a stream is a void pointer, NULL the engine's own. Calls enqueue and
 * return; wait() and await() wait.
 */
#ifndef DDP_DEVICE_ENGINE_H
#define DDP_DEVICE_ENGINE_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"

#define DDP_DEVICE_VERSION 5

enum { DDP_DEVICE_ID = 256 };

struct ddp_device; /* an engine's own */

/* A rank's device, which all ranks learn before they choose a path for sums. */
struct ddp_device_card {
	int32_t rank;
	int32_t index;	    /* of the device, as the rank sees it */
	int32_t version;    /* of NCCL: 10000 major + 100 minor + patch; 0: this rank has none */
	int32_t multi_rank; /* NCCL_MULTI_RANK_GPU_ENABLE=1 */
	char uuid[48];	    /* of the device, or of its MIG slice */
	char bus[16];	    /* PCI address, the same for all MIG slices of a GPU */
	char host[64];	    /* for messages */
	uint64_t boot;	    /* which kernel; or a hash of NCCL_HOSTID */
	uint64_t bytes;	    /* of the device's memory */
};

struct ddp_device_engine {
	struct ddp_module_head head; /* kind "device" */

	/* Take device [index], and describe it in [card], all zeros but its rank. Needs no peer. */
	int (*open)(struct ddp_device **device, struct ddp_device_card *card, int rank, int size,
		    int index, const struct ddp_log *log, struct ddp_error *error);

	/* Rank 0: a new identity, to be handed to all. */
	int (*identity)(struct ddp_device *device, uint8_t id[DDP_DEVICE_ID],
			struct ddp_error *error);

	/*
	 * Form the communicator of ranks that have a device each (cards.h). Ends by the deadline; the watch's
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
	 * Device memory of this rank, zeroed. enroll() is collective, and waits: with
	 * [known] it registers memory of alloc(), which makes sums of it faster. If it is [refused] on a rank, all
	 * ranks withdraw it, without [known]: memory that is registered on some ranks only is undefined. An
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

	/*
	 * Only ddp_gpu.so. pin() lets the device reach [memory] of the host, until close(), by the same address.
	 * copy() goes either way between device and pinned memory, and may be captured.
	 */
	int (*pin)(struct ddp_device *device, void *memory, size_t bytes, struct ddp_error *error);
	int (*copy)(struct ddp_device *device, void *to, const void *from, size_t bytes,
		    void *stream, struct ddp_error *error);

	/* Only ddp_gpu.so. Return whether [stream] is being captured into a CUDA graph. */
	bool (*captured)(struct ddp_device *device, void *stream);

	/* Only ddp_gpu.so. Wait until [word], which count() on [stream] writes, has reached [value]. */
	int (*await)(struct ddp_device *device, void *stream, const uint64_t *word, uint64_t value,
		     const struct ddp_watch *watch, struct ddp_error *error);

	/* Wait for what is enqueued on [stream], with the watch and the engine's own errors. */
	int (*wait)(struct ddp_device *device, void *stream, const struct ddp_watch *watch,
		    struct ddp_error *error);

	/*
	 * Only ddp_nccl.so. health() returns an error that happened meanwhile, DDP_ERR_x, else 0, without a call that can
	 * block. abort() ends collectives, within [seconds]; returns whether it did.
	 */
	int (*health)(struct ddp_device *device, struct ddp_error *error);
	bool (*abort)(struct ddp_device *device, double seconds);

	void (*close)(struct ddp_device *device);
};

#endif /* DDP_DEVICE_ENGINE_H */
