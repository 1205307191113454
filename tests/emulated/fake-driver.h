/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake-driver.h - what runtime/shard/cuda calls of CUDA beyond fake-cuda.h: memory of several processes, words
 */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include "fake-cuda.h"
#include "shard/cuda/sum.h"

struct fake_driver {
	const char *missing; /* the driver lacks functions whose names begin so */
	bool no_descriptors; /* says the card's attribute */
	bool silent;	     /* words are not written */
	size_t held;	     /* what this process holds, by NVML */
};

extern struct fake_driver fake_driver;

/* As fake_reset(), of both. */
void fake_driver_reset(void);

#endif /* FAKE_DRIVER_H */
