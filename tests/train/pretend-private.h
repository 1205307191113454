/* SPDX-License-Identifier: Apache-2.0 */
/* pretend-private.h - what the parts of pretend.h know of each other */
#ifndef DDP_TESTS_PRETEND_PRIVATE_H
#define DDP_TESTS_PRETEND_PRIVATE_H

#include <stdbool.h>

#include "library.h"

/* An attribute of a descriptor, as it was set. */
enum { PRETEND_VALUES = 8 };
struct pretend_record {
	cudnnBackendDescriptor_t descriptor;
	cudnnBackendAttributeName_t name;
	int64_t count;
	union {
		int64_t number;
		void *pointer;
		int word;
	} values[PRETEND_VALUES];
};

/* NULL: never set. */
const struct pretend_record *pretend_find(cudnnBackendDescriptor_t descriptor,
					  cudnnBackendAttributeName_t name);

/* The same where it must have been set, and the descriptor that it is. */
const struct pretend_record *pretend_must_find(cudnnBackendDescriptor_t descriptor,
					       cudnnBackendAttributeName_t name);
cudnnBackendDescriptor_t pretend_part(cudnnBackendDescriptor_t descriptor,
				      cudnnBackendAttributeName_t name);

/* Do the [operations] of a graph, with the tensors that [pack] says. */
void pretend_compute(const struct pretend_record *operations, cudnnBackendDescriptor_t pack);

/* It may have been a plan, whose address another one will have. */
void pretend_forget(cudnnBackendDescriptor_t plan);

bool pretend_is_capturing(void);

/* The plan that ran last, by its number in the order of first runs. */
int pretend_last_plan(void);

/* A graph of that plan was launched: a time for the next event. */
void pretend_launched(int plan);

#endif /* DDP_TESTS_PRETEND_PRIVATE_H */
