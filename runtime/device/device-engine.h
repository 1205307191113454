/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device-engine.h - interface of the engines that move device memory between ranks
 *
 * An engine is a module that fills in struct ddp_device_engine; device-calls.c opens it. Engines
 * call base/, gpu/, CUDA and NCCL. They also call the check() of a watch that the caller passes.
 * Start reading in gpu.c, the smaller engine; nccl-engine.c uses NCCL.
 *
 * ddp_nccl.so has all functions except pin(), copy() and captured(). ddp_gpu.so works without NCCL.
 * It lacks identity(), connect(), the collectives, health() and abort(). For ddp_gpu.so,
 * device-calls.c implements collectives with its copy() and with the collectives on host memory.
 *
 * This header uses no CUDA types. A stream is passed as a void pointer; NULL means the engine's own
 * stream. Functions enqueue their work and return. Only wait() waits for enqueued work.
 */
#ifndef DDP_DEVICE_ENGINE_H
#define DDP_DEVICE_ENGINE_H

#include "base/log.h"
#include "base/module.h"
#include "base/watch.h"

#define DDP_DEVICE_VERSION 7

enum { DDP_DEVICE_ID = 256 };

struct ddp_device; /* private to each engine */

/*
 * Description of a rank's device. All ranks exchange their descriptions before they choose NCCL or
 * staged sums.
 */
struct ddp_gpu {
	int32_t rank;
	int32_t index;	    /* the device's number on this rank */
	int32_t version;    /* version of NCCL: 10000 major + 100 minor + patch; 0: no NCCL */
	int32_t multi_rank; /* NCCL_MULTI_RANK_GPU_ENABLE is 1 */
	char uuid[48];	    /* UUID of the device, or of its MIG slice */
	char bus[16];	    /* PCI address; all MIG slices of a GPU have the same one */
	char host[64];	    /* name of the host, for messages */
	uint64_t boot;	    /* hash of the kernel's boot ID, or of NCCL_HOSTID */
	uint64_t bytes;
};

/*
 * Choose NCCL or staged sums from the [gpus] of all [size] ranks. Every rank gets the same result.
 * Returns 0 for NCCL; 1 for staged sums, with the reason in [why], such as "2 ranks share GPU 0 on
 * n1"; DDP_ERR_MISMATCH if the ranks have different versions of NCCL.
 */
int ddp_device_choose(const struct ddp_gpu *gpus, int size, char *why, size_t why_size,
		      struct ddp_error *error);

struct ddp_device_engine {
	struct ddp_module_head head; /* kind "device" */

	/*
	 * Open the device [index], and fill in [gpu] except the rank, which the caller has set.
	 * Does not communicate with other ranks.
	 */
	int (*open)(struct ddp_device **device, struct ddp_gpu *gpu, int rank, int size, int index,
		    const struct ddp_log *log, struct ddp_error *error);

	/* On rank 0, create the identity that all ranks pass to connect(). */
	int (*identity)(struct ddp_device *device, uint8_t id[DDP_DEVICE_ID],
			struct ddp_error *error);

	/*
	 * Create the communicator of all ranks. The ranks' devices must be different (choice.c).
	 * Fails at the watch's deadline. The watch's time limit also applies to each later call
	 * that enqueues work, because such a call can block inside the engine.
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
	 * alloc() returns zeroed device memory of this rank. free() accepts NULL. free() sets
	 * [bytes] to the size of the freed memory, or to 0 if the engine keeps the memory until
	 * close(). close() frees all remaining memory.
	 */
	int (*alloc)(struct ddp_device *device, size_t bytes, void **memory,
		     struct ddp_error *error);
	int (*free)(struct ddp_device *device, void *memory, size_t *bytes,
		    struct ddp_error *error);

	void *(*stream)(struct ddp_device *device);

	/*
	 * These functions need neither peers nor a communicator. They use streams of the calling
	 * thread's device, and all can be captured into a CUDA graph.
	 *  - order() makes [later] wait for the work that is now enqueued on [earlier].
	 *  - convert() converts [count] elements to another type, multiplied by [factor] in f32.
	 *    One type is DDP_F32; the other is DDP_F32 or has 16 bits. If the types are equal, the
	 *    conversion can be in place.
	 *  - count() increments [word], which is host memory that the device can access. Only one
	 *    stream at a time is allowed to count in a word.
	 */
	int (*order)(void *later, void *earlier, struct ddp_error *error);
	int (*convert)(void *stream, void *to, enum ddp_type to_type, const void *from,
		       enum ddp_type from_type, size_t count, float factor,
		       struct ddp_error *error);
	int (*count)(void *stream, uint64_t *word, struct ddp_error *error);

	/*
	 * Only ddp_gpu.so has pin() and copy(). pin() maps host [memory] on the device, at the same
	 * address, until close(). copy() copies between device memory and pinned memory, in either
	 * direction, and can be captured.
	 */
	int (*pin)(struct ddp_device *device, void *memory, size_t bytes, struct ddp_error *error);
	int (*copy)(struct ddp_device *device, void *to, const void *from, size_t bytes,
		    void *stream, struct ddp_error *error);

	/*
	 * ddp_gpu.so only. Returns whether a capture of [stream] into a CUDA graph is in progress.
	 */
	bool (*captured)(struct ddp_device *device, void *stream);

	/*
	 * Wait for the work that is enqueued on [stream]. If [word] is not NULL (ddp_gpu.so only),
	 * wait only until count() on [stream] has incremented [word] to [value]. The watch, or an
	 * error of the engine, ends the wait early.
	 */
	int (*wait)(struct ddp_device *device, void *stream, const uint64_t *word, uint64_t value,
		    const struct ddp_watch *watch, struct ddp_error *error);

	/*
	 * ddp_nccl.so only. health() returns the error (DDP_ERR_x) of a collective that has failed
	 * since it was enqueued, else 0. It never blocks. abort() ends collectives within
	 * [seconds], and returns whether it succeeded.
	 */
	int (*health)(struct ddp_device *device, struct ddp_error *error);
	bool (*abort)(struct ddp_device *device, double seconds);

	void (*close)(struct ddp_device *device);
};

#endif /* DDP_DEVICE_ENGINE_H */
