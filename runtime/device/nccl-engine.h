/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl-engine.h - what the files of the NCCL engine share
 *
 * Whatever may block behind a lost peer or a hung kernel runs in a bounded call (bounded.h):
 * forming, registering, giving up, closing. The watchdog looks at what NCCL and the device say
 * meanwhile and keeps the first failure; after it nothing is asked of them but to give up.
 */
#ifndef DDP_DEVICE_NCCL_ENGINE_H
#define DDP_DEVICE_NCCL_ENGINE_H

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <nccl.h>
#pragma GCC diagnostic pop

#include <pthread.h>
#include <stdatomic.h>

#include "base/bounded.h"
#include "base/card-cuda.h"
#include "device-engine.h"

/* What this file is compiled with; ddp_device.version says what it runs with. */
#define NCCL_HAS(major, minor, patch) (NCCL_VERSION_CODE >= NCCL_VERSION(major, minor, patch))

#if !NCCL_HAS(2, 18, 0)
#error "NCCL 2.18 or newer is needed"
#endif

/* Newer than the oldest NCCL that works: NULL where the library at run time lacks them. */
#if NCCL_HAS(2, 19, 1)
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister
#endif
#if NCCL_HAS(2, 27, 3)
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister
#endif

enum { DDP_NCCL_EVENTS = 64 }; /* collectives that are followed at a time */

/* A collective that was enqueued and is not known to have ended. */
struct ddp_nccl_work {
	cudaEvent_t event;
	uint64_t sequence; /* 0: the place is free */
	uint64_t since;
	const char *name; /* "all-reduce" */
	size_t count;
	const char *unit; /* "f32", "bytes" */
};

/* How NCCL knows memory: in one way on all ranks. */
enum ddp_nccl_method { DDP_NCCL_PLAIN, DDP_NCCL_REGISTERED, DDP_NCCL_WINDOWS };

/* Memory that alloc() gave. */
struct ddp_nccl_memory {
	struct ddp_nccl_memory *next;
	void *base;
	size_t bytes;
	void *handle; /* of ncclCommRegister, or of ncclCommWindowRegister; NULL: not registered */
	bool freed;   /* by its owner; see [captured] */
};

struct ddp_device {
	const struct ddp_log *log;
	int rank, size, index;
	int version; /* of NCCL, at run time */
	enum ddp_nccl_method method;
	char who[48]; /* "rank 1, device 0", for messages */
	struct ddp_device_card card;

	cudaStream_t stream;
	cudaEvent_t waited; /* wait()'s own */
	struct ddp_nccl_memory *memory;
	/*
	 * A collective was captured into a graph. NCCL may then use memory until the communicator
	 * ends: ncclCommDeregister() returns success but keeps the registration while a graph has a
	 * reference, and the reference of a destroyed graph remains until a later call (NCCL's
	 * register.cc, and persistentDestructor() in enqueue.cc).
	 */
	bool captured;

	void (*warn)(void *owner); /* before giving up; NULL: nobody asked */
	void *owner;

	double limit;		      /* seconds that a call may block inside NCCL */
	struct ddp_bounded *stuck;    /* a call that was not waited for to its end */
	struct ddp_bounded *watchdog; /* from connect() to close() */
	atomic_bool stop;	      /* the watchdog is to end */

	pthread_mutex_t lock;	     /* for all that follows; held over nothing that blocks */
	ncclComm_t comm;	     /* NULL before connect(), and once given up */
	struct ddp_bounded *leaving; /* ncclCommAbort, once given up */
	struct ddp_error failure;    /* the first */
	struct ddp_nccl_work work[DDP_NCCL_EVENTS];
	struct ddp_nccl_work entering; /* since: 0 unless a call is inside NCCL */
	uint64_t sequence;
};

/* What CUDA says, as ddp_card_error(). */
#define ddp_nccl_cuda(device, ...) ddp_card_error((device)->who, __VA_ARGS__)
#define TRY(device, ...) DDP_CARD_TRY((device)->who, __VA_ARGS__)

/* --- nccl-engine.c ----------------------------------------------------------------------- */

/*
 * Take the communicator away, if it is there, and begin ncclCommAbort in a thread. Does not wait.
 * Returns false where there is no thread to be had.
 */
bool ddp_nccl_give_up(struct ddp_device *device);

/* --- nccl-work.c ------------------------------------------------------------------------- */

/*
 * Put what NCCL [result] means into [error], after a formatted "what was done".
 * Returns 0 for ncclSuccess, else DDP_ERR_PEER, DDP_ERR_TIMEOUT or DDP_ERR_ENGINE.
 */
int ddp_nccl_result(const struct ddp_device *device, ncclResult_t result, struct ddp_error *error,
		    const char *format, ...) DDP_FORMAT(4, 5);

/* Keep [error] as the failure of [device], unless it has one. */
void ddp_nccl_fail(struct ddp_device *device, const struct ddp_error *error);

/* Returns 0, or the failure of [device]; after a look at NCCL's own asynchronous error. */
int ddp_nccl_health(struct ddp_device *device, struct ddp_error *error);

int ddp_nccl_all_reduce(struct ddp_device *device, const void *send, void *recv, size_t count,
			enum ddp_type type, enum ddp_op op, void *stream, struct ddp_error *error);
int ddp_nccl_broadcast(struct ddp_device *device, void *data, size_t bytes, int root, void *stream,
		       struct ddp_error *error);
int ddp_nccl_all_gather(struct ddp_device *device, const void *send, void *recv, size_t bytes,
			void *stream, struct ddp_error *error);
int ddp_nccl_wait(struct ddp_device *device, void *stream, const struct ddp_watch *watch,
		  struct ddp_error *error);

int ddp_nccl_order(void *later, void *earlier, struct ddp_error *error);
int ddp_nccl_convert(void *stream, void *to, enum ddp_type to_type, const void *from,
		     enum ddp_type from_type, size_t count, float factor, struct ddp_error *error);
int ddp_nccl_count(void *stream, uint64_t *counter, uint64_t *word, struct ddp_error *error);

int ddp_nccl_watch_start(struct ddp_device *device, struct ddp_error *error);

/* End the watchdog. Returns false if it hangs in a call of CUDA and was left behind. */
bool ddp_nccl_watch_stop(struct ddp_device *device);

#endif /* DDP_DEVICE_NCCL_ENGINE_H */
