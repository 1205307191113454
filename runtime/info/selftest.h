/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest.h - an all-reduce of every size, verified and timed
 */
#ifndef DDP_INFO_SELFTEST_H
#define DDP_INFO_SELFTEST_H

#include <ddp.h>

enum { INFO_SIZES = 16 };

struct info_timing {
	size_t bytes;
	double median; /* seconds, of the slowest rank */
	double best;
	uint64_t wrong; /* elements, over all ranks */
};

struct info_selftest {
	bool device; /* in memory of GPUs */
	int count;
	struct info_timing timings[INFO_SIZES];
};

/*
 * All-reduce float vectors of 4 bytes to [limit] in an arena; with test->device in memory of the GPU
 * [index], after ddp_device_join(). Collective.
 * Returns 0, also where sums were wrong, or a DDP_ERR_x.
 */
int info_selftest_run(struct ddp *ddp, size_t limit, int index, struct info_selftest *test);

/* Elements that were wrong in all of [test]. */
uint64_t info_selftest_wrong(const struct info_selftest *test);

#endif /* DDP_INFO_SELFTEST_H */
