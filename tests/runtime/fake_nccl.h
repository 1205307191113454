/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nccl.h - a minimal CUDA runtime and NCCL that fail on request
 *
 * The fake has no device and no peer: device memory is on the heap, and a collective returns the
 * data that this rank sent. Tests with the fake check the logic of ddp_nccl.so (order of calls,
 * deadlines, error messages), but not CUDA, NCCL or data.
 */
#ifndef DDP_TESTS_FAKE_NCCL_H
#define DDP_TESTS_FAKE_NCCL_H

#include <stdbool.h>

struct fake_nccl {
	int driver;	   /* result of cudaDriverGetVersion(); 0: no driver */
	int devices;	   /* visible devices */
	int version;	   /* result of ncclGetVersion() */
	bool mig;	   /* the device is a MIG instance */
	bool has_contexts; /* this process has a context on every device */
	bool busy;	   /* no event completes */
	bool capturing;	   /* every stream is being captured */
	bool faulted;	   /* events report a device fault */
	int async;	   /* result of ncclCommGetAsyncError() */
	const char *hang;  /* name of the call that hangs until fake_nccl_release() */
	const char *fail;  /* name of the call that fails, with the usual error of NCCL or CUDA */
	const char *last_error; /* result of ncclGetLastError() */
};

/*
 * Resets the fake to one device and NCCL 2.28.9, with no failures. Returns its settings, which the
 * test may change.
 */
struct fake_nccl *fake_nccl_reset(void);

/* Makes all hanging calls return. Later calls do not hang. */
void fake_nccl_release(void);

/* Whether the [names] were called in this order. Other calls may be between them. */
bool fake_nccl_called(const char *const *names);

int fake_nccl_count(const char *name);

/*
 * Arguments of the last all-reduce, broadcast or all-gather. Type and operation are NCCL's values.
 */
struct fake_nccl_call {
	const char *name;
	size_t count;
	int type, op, root;
	void *stream;
};
struct fake_nccl_call fake_nccl_last(void);

/* Values in the configuration with which the communicator was created. */
int fake_nccl_blocking(void);
const char *fake_nccl_comm_name(void);

/* Number of allocations and handles that the program has not freed. */
int fake_nccl_left(void);

#endif /* DDP_TESTS_FAKE_NCCL_H */
