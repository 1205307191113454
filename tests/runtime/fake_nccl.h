/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nccl.h - a CUDA runtime and an NCCL of one page, to be told how to fail
 *
 * It has no device and no peer: "device memory" is the heap's, a collective of any size gives
 * back what this rank sent. A test that passes with it proves the engine's own logic (order of
 * calls, deadlines, who is told what) and nothing about CUDA, NCCL or data.
 */
#ifndef DDP_TESTS_FAKE_NCCL_H
#define DDP_TESTS_FAKE_NCCL_H

#include <stdbool.h>

struct fake_nccl {
	int driver;	   /* cudaDriverGetVersion; 0: none */
	int devices;	   /* that can be seen */
	int version;	   /* ncclGetVersion */
	bool mig;	   /* the device is a slice */
	bool elsewhere;	   /* every device has a context of this process */
	bool busy;	   /* no event ever comes */
	bool capturing;	   /* every stream is */
	bool sick;	   /* events say that the device faulted */
	int async;	   /* ncclCommGetAsyncError */
	const char *hang;  /* the call that does not come back until fake_nccl_release() */
	const char *fail;  /* the call that fails, as NCCL or CUDA calls fail */
	const char *story; /* ncclGetLastError */
};

/* As a test begins: a device, NCCL 2.28.9, everything works. Set what is to be otherwise. */
struct fake_nccl *fake_nccl_reset(void);

/* Calls that hang come back, at once and from now on. */
void fake_nccl_release(void);

/* Whether the [names] were called in this order, others between them allowed. */
bool fake_nccl_called(const char *const *names);

/* How often [name] was called. */
int fake_nccl_count(const char *name);

/* What all-reduce, broadcast or all-gather was last told: elements, and NCCL's type and op. */
struct fake_nccl_call {
	const char *name;
	size_t count;
	int type, op, root;
	void *stream;
};
struct fake_nccl_call fake_nccl_last(void);

/* What the configuration of the communicator said. */
int fake_nccl_blocking(void);
const char *fake_nccl_comm_name(void);

/* Allocations and objects that were not given back. */
int fake_nccl_left(void);

#endif /* DDP_TESTS_FAKE_NCCL_H */
