/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - a GPU as the CUDA engine uses it: memory, streams, order among these, graphs
 *
 * No CUDA type here; a stream is a void pointer. device.c calls the CUDA runtime. Tests link
 * tests/emulated/device-host.c in its place, whose device is host memory.
 *
 * All calls enqueue and return, but those that say that they wait. Functions that return int return
 * 0 or a DDP_ERR_x whose text names the GPU, what was being done, and the remedy where there is one.
 */
#ifndef TRAIN_DEVICE_H
#define TRAIN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct device;
struct device_graph;

/* COMPUTE does the step; REDUCE has a higher priority, for sums. */
enum device_stream { DEVICE_COMPUTE, DEVICE_REDUCE, DEVICE_STREAMS };

enum { DEVICE_UUID = 64 };

struct device_info {
	char name[128];		/* "NVIDIA H200" */
	char uuid[DEVICE_UUID]; /* "GPU-...", or "MIG-..." */
	int index;		/* as this process sees them */
	int major, minor;	/* compute capability */
	int cuda;		/* the runtime's version: 1000 major + 10 minor */
	size_t total;		/* bytes of memory */
	size_t limit;		/* of these this rank may have: its share */
};

/* Whether this machine has a GPU that can be used; else why not (no driver, an old one). Opens nothing. */
bool device_available(struct ddp_error *error);

/*
 * The GPUs that this process sees: how many, and the [uuids] of the first [most] of them, as in
 * device_info. Opens none.
 * Returns their number, or an error that says why there is none.
 */
int device_list(char (*uuids)[DEVICE_UUID], int most, struct ddp_error *error);

/*
 * Open GPU [index] and make it the calling thread's. [share] of its memory is this rank's, 0: all of it; what CUDA
 * itself takes is part of that. Fails where less is free.
 */
int device_open(struct device **device, int index, double share, struct ddp_error *error);

/*
 * Whether nothing is under way any more, or ends within some seconds. Where it does not, as behind a sum
 * that a lost rank never joins, nothing may be freed, be it here or by cuDNN: CUDA would wait for it.
 * Only the end of the process frees it then. NULL is legal: true.
 */
bool device_rests(const struct device *device);

/* Waits for nothing that may never end. NULL is legal. */
void device_close(struct device *device);

const struct device_info *device_info(const struct device *device);
void *device_stream(const struct device *device, enum device_stream stream);

/* --- Memory ------------------------------------------------------------------------------- */

/*
 * Device memory, zeroed, aligned to 256 bytes, or host memory that the GPU reads and writes too. [what]
 * is for messages: "activations of 512 samples", with [remedy] ("lower --batch") where there is one.
 * Waits. It goes with device_close() at the latest. Counted against the limit.
 */
int device_alloc(struct device *device, void **memory, size_t bytes, const char *what,
		 const char *remedy, struct ddp_error *error);
int device_alloc_host(struct device *device, void **memory, size_t bytes, const char *what,
		      struct ddp_error *error);
void device_free(struct device *device, void *memory);

/*
 * Likewise, for one thing after the other: up to the first failure, which is kept; from then on NULL is returned, and
 * nothing is done.
 */
struct device_taking {
	struct device *device;
	int status; /* 0 */
	struct ddp_error *error;
};
void *device_take(struct device_taking *taking, size_t bytes, const char *what, const char *remedy);
void *device_take_host(struct device_taking *taking, size_t bytes, const char *what);

/*
 * Memory of the device that others allocated, and this rank has: whether [bytes] more for [what] are within the limit,
 * else why not; count it, and no longer.
 */
int device_may(struct device *device, size_t bytes, const char *what, const char *remedy,
	       struct ddp_error *error);
void device_count(struct device *device, void *memory, size_t bytes);
void device_uncount(struct device *device, void *memory);

/* Bytes of device memory that were allocated, and the most at any time. */
size_t device_used(const struct device *device, size_t *most);

/*
 * What CUDA and its libraries take besides, of this rank's share too; device_measure() looks again, for what
 * libraries took meanwhile. Where the driver does not tell, it is an estimate.
 */
size_t device_context(const struct device *device);
void device_measure(struct device *device);

/*
 * Between host and device, either way, or on the device. Copies of host memory that is not from
 * device_alloc_host(), either way, wait for all that is on [stream].
 */
int device_copy(struct device *device, enum device_stream stream, void *to, const void *from,
		size_t bytes, struct ddp_error *error);

/* --- Order -------------------------------------------------------------------------------- */

/* What is enqueued on [later] from here on begins after all that is on [earlier] now. */
int device_order(struct device *device, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error);

/* Whether all that is on [stream] has ended: 1 yes, 0 not yet, or an error. */
int device_ended(struct device *device, enum device_stream stream, struct ddp_error *error);

/*
 * How long device_wait() and calls that wait may take, in seconds; 0, as at first: as long as it takes. Only a GPU
 * that hangs takes longer: what is awaited here waits for no other rank.
 */
void device_patience(struct device *device, double seconds);

/* Wait for all that is on [stream], so long: for single ranks, setup and tests. */
int device_wait(struct device *device, enum device_stream stream, struct ddp_error *error);

/* After launches of kernels: whether [what] could be enqueued. */
int device_check(struct device *device, const char *what, struct ddp_error *error);

/* --- Graphs ------------------------------------------------------------------------------- */

/*
 * What is enqueued between begin and end, on COMPUTE and on streams that device_order() ties to it,
 * is recorded and not done; by end all of these must have been tied back to COMPUTE.
 */
int device_capture_begin(struct device *device, struct ddp_error *error);
int device_capture_end(struct device *device, struct device_graph **graph, struct ddp_error *error);

/* Do all of it on COMPUTE. */
int device_launch(struct device *device, struct device_graph *graph, struct ddp_error *error);

/* Before the communicator whose collectives it holds is given up. NULL is legal. */
void device_graph_destroy(struct device_graph *graph);

/* How many nodes it has, for the log and tests. */
size_t device_graph_nodes(const struct device_graph *graph);

#endif /* TRAIN_DEVICE_H */
