/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - a GPU for the CUDA engine: memory, streams, order between streams, graphs
 *
 * This header has no CUDA types; a stream is a void pointer. device.c calls the CUDA runtime.
 * Instead of device.c, tests link tests/emulated/device-host.c, whose device is host memory.
 *
 * Functions enqueue work and return, unless they are said to wait. Functions that return int return
 * 0 or DDP_ERR_x, with a text that names the GPU, the operation and, if known, a remedy.
 */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct device;
struct device_graph;

/* COMPUTE runs steps. REDUCE has a higher priority and runs sums. */
enum device_stream { DEVICE_COMPUTE, DEVICE_REDUCE, DEVICE_STREAMS };

enum { DEVICE_UUID = 64 };

struct device_info {
	char name[128];		/* "NVIDIA H200" */
	char uuid[DEVICE_UUID]; /* "GPU-..." or "MIG-..." */
	int index;		/* number of the GPU in this process */
	int major, minor;	/* compute capability */
	int cuda;		/* version of the runtime: 1000 major + 10 minor */
	size_t total;		/* bytes of memory */
	size_t limit;		/* part of [total] that this rank may use */
};

/*
 * Counts the GPUs that this process sees, and sets [uuids] of the first [most], as in device_info.
 * Opens no GPU. Returns the number of GPUs, or an error with the reason why there is no usable GPU,
 * such as no driver or an old one.
 */
int device_list(char (*uuids)[DEVICE_UUID], int most, struct ddp_error *error);

/*
 * Opens GPU [index] and makes it the current one of the calling thread. [share]: fraction of the
 * GPU's memory for this rank, including the memory that CUDA itself uses; 0: all. Fails if less
 * memory is free.
 */
int device_open(struct device **device, int index, double share, struct ddp_error *error);

/*
 * Returns whether all work is done, or ends within some seconds. If it returns false, for example
 * because a lost rank never joins a sum, the caller must free no memory or cuDNN object, as CUDA
 * would wait for the work. The end of the process frees them. Returns true for NULL.
 */
bool device_is_idle(const struct device *device);

/* Closes the device, without waiting for work that may never end. NULL is legal. */
void device_close(struct device *device);

const struct device_info *device_info(const struct device *device);
void *device_stream(const struct device *device, enum device_stream stream);

/* --- Memory ------------------------------------------------------------------------------- */

/*
 * device_alloc() allocates zeroed device memory, aligned to 256 bytes, which counts towards the
 * limit. device_alloc_host() allocates host memory that the GPU can access. Error texts contain
 * [what], such as "activations of 512 samples", and, unless it is NULL, [remedy], such as "Lower
 * --batch." Both functions wait. device_close() frees memory that was not freed before.
 */
int device_alloc(struct device *device, void **memory, size_t bytes, const char *what,
		 const char *remedy, struct ddp_error *error);
int device_alloc_host(struct device *device, void **memory, size_t bytes, const char *what,
		      struct ddp_error *error);
void device_free(struct device *device, void *memory);

/*
 * Divides one allocation into several arrays. A function that sets pointers with device_part() is
 * called twice. In the first call [base] is NULL: device_part() returns NULL and adds up [bytes].
 * In the second call [base] is the allocation, and [bytes] is 0 at the start.
 */
struct device_parts {
	char *base;
	size_t bytes;
};
enum { DEVICE_ALIGNMENT = 256 };

/*
 * Makes AddressSanitizer report accesses to [bytes] after an array. Defined only in the emulation.
 */
void device_guard(void *memory, size_t bytes) __attribute__((weak));

static inline void *device_part(struct device_parts *parts, size_t bytes)
{
	size_t offset = parts->bytes, end = offset + bytes, gap = device_guard ? 1 : 0;

	parts->bytes = (end + gap + DEVICE_ALIGNMENT - 1) / DEVICE_ALIGNMENT * DEVICE_ALIGNMENT;
	if (device_guard && parts->base)
		device_guard(parts->base + end, parts->bytes - end);
	return parts->base ? parts->base + offset : NULL;
}

/*
 * For memory that libddp allocates on the device for this rank: device_may() checks that [bytes]
 * more for [what] are within the limit. device_count() adds an allocation to the count.
 */
int device_may(struct device *device, size_t bytes, const char *what, const char *remedy,
	       struct ddp_error *error);
void device_count(struct device *device, void *memory, size_t bytes);

/* Maximum bytes of device memory that were allocated at the same time. */
size_t device_most(const struct device *device);

/*
 * Bytes that CUDA and its libraries use, which count as part of this rank's share. device_measure()
 * updates the number after libraries were loaded. If the driver does not report it, the number is
 * an estimate.
 */
size_t device_context(const struct device *device);
void device_measure(struct device *device);

/*
 * Copies [bytes] bytes between host and device, in either direction, or on the device. If the host
 * memory is not from device_alloc_host(), waits for all work on [stream].
 */
int device_copy(struct device *device, enum device_stream stream, void *to, const void *from,
		size_t bytes, struct ddp_error *error);

/* --- Order between streams ---------------------------------------------------------------- */

/*
 * Makes all work that is enqueued on [later] after this call wait for all work enqueued on
 * [earlier] before this call.
 */
int device_order(struct device *device, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error);

/* Returns 1 if all work on [stream] is done, 0 if not, or an error. */
int device_ended(struct device *device, enum device_stream stream, struct ddp_error *error);

/*
 * Sets the time limit of device_wait() and other waiting calls, in seconds; 0: no limit (the
 * default). These calls wait for work of this GPU only, not of other ranks, so the limit is reached
 * only if the GPU hangs.
 */
void device_set_timeout(struct device *device, double seconds);

/* Waits for all work on [stream]. For single ranks, setup and tests. */
int device_wait(struct device *device, enum device_stream stream, struct ddp_error *error);

/* Called after kernel launches. If a launch failed, returns an error that names [what]. */
int device_check(struct device *device, const char *what, struct ddp_error *error);

/* --- Graphs ------------------------------------------------------------------------------- */

/*
 * Between begin and end, work enqueued on COMPUTE is recorded and not run. The same is true of a
 * stream that device_order() has made wait for COMPUTE. Before the end, COMPUTE must be made to
 * wait for that stream.
 */
int device_capture_begin(struct device *device, struct ddp_error *error);
int device_capture_end(struct device *device, struct device_graph **graph, struct ddp_error *error);

int device_launch(struct device *device, struct device_graph *graph, struct ddp_error *error);

/*
 * Destroys the graph. A graph that contains collectives must be destroyed before their communicator
 * is aborted. Does nothing for NULL.
 */
void device_graph_destroy(struct device_graph *graph);

#endif /* TRAIN_DEVICE_H */
