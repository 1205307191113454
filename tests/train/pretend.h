/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pretend.h - a GPU that is not there, for the files that call cuDNN and cublasLt
 *
 * Descriptors, heuristics and plans are cuDNN's own, for the properties of a GPU; what needs one is
 * done here, on the host, at once: handles, events, running a plan (by the graph that was described),
 * cublasLt's algorithms and products. The linker's --wrap puts these in the place of the libraries'
 * functions; device.h and four kernels are defined outright. Memory of the "device" is the host's.
 */
#ifndef DDP_TESTS_PRETEND_H
#define DDP_TESTS_PRETEND_H

#include "cuda/conv-cudnn.h"

/* What happens next, and what has happened. */
struct pretend {
	/* Times of plans, in the order in which they are first launched in a graph; 1 beyond these. */
	float times[16];
	int broken;	    /* so many plans fail, the first to run */
	int uncapturable;   /* so many plans fail while they are captured */
	bool idle;	    /* plans that run compute nothing */
	int handles;	    /* open, of both libraries */
	int descriptors;    /* of cuDNN, alive */
	int timed;	    /* plans */
	int runs;	    /* of plans */
	size_t allocations; /* pieces of memory, alive */
	size_t exhausted;   /* allocations of so many bytes or more fail; 0: none does */
	int plain;	    /* products that had no epilogue */
	bool no_epilogues;  /* cublasLt has none */
};
extern struct pretend pretend;

/* One number of [type] at [index]. */
double pretend_load(const void *array, size_t index, enum ddp_type type);
void pretend_store(void *array, size_t index, enum ddp_type type, double value);

/* Whether this cuDNN takes the properties of a GPU; before anything else. */
bool pretend_begin(void);
void pretend_end(void);

/* Plans are counted from here on. */
void pretend_restart(void);

struct device *pretend_device(void);

#endif /* DDP_TESTS_PRETEND_H */
