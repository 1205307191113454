/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reducer.h - one bucket's sum, as it is or compressed on the way
 */
#ifndef DDP_GRADIENT_REDUCER_H
#define DDP_GRADIENT_REDUCER_H

#include "base/error.h"

struct ddp_reducer {
	struct ddp *ddp;
	enum ddp_type type, wire;
	double scale; /* of the sum */
	void *packed; /* an arena for the largest bucket in [wire]; NULL where that is [type] */
	bool device;  /* data are on a device, and so is what is [packed]: the caller's to set */
	void *stream; /* there */
};

/*
 * How [sum] of [size] ranks is split into a factor before the conversion to [wire] and one after
 * the way back: their product is [sum]. In f16, which ends at 65504, the sum of gradients that
 * fit might not, so they are divided before by the power of two that is not less than [size]:
 * that is exact but for subnormal numbers, whose last bits dividing by [size] would lose too.
 * bf16 has the range of f32.
 */
void ddp_reducer_factors(enum ddp_type wire, int size, double sum, double *before, double *after);

/* Prepare for buckets of at most [largest] elements. Collective, if wire is not type. */
int ddp_reducer_create(struct ddp_reducer *reducer, struct ddp *ddp, enum ddp_type type,
		       enum ddp_type wire, double scale, size_t largest);

/*
 * Sum [count] elements at [data], which lie in an arena, over all ranks; the last [exact] of them go as [type]
 * in any case. On a device it is enqueued. Collective.
 * Returns 0, or an error that is in the handle too.
 */
int ddp_reducer_run(const struct ddp_reducer *reducer, void *data, size_t count, size_t exact);

#endif /* DDP_GRADIENT_REDUCER_H */
