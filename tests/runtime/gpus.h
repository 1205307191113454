/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpus.h - real ranks whose devices are emulated in host memory
 *
 * A layout has the number of ranks on each node, as in ranks.h, and a letter for each rank, which
 * names its GPU. Ranks with the same letter share a GPU.
 */
#ifndef DDP_TESTS_GPUS_H
#define DDP_TESTS_GPUS_H

#include "ranks.h"

struct gpus_layout {
	const char *nodes, *gpus;
};

/*
 * Sets DDP_MODULES for all tests of [tcase]: the modules for devices are emulations, all others are
 * real.
 */
void gpus_use(TCase *tcase);

/* Like ranks_start() and ranks_run() in ranks.h, for ranks with devices. */
void gpus_start(struct ranks *ranks, const struct gpus_layout *layout, int (*body)(int rank));
void gpus_run(const struct gpus_layout *layout, int (*body)(int rank));

/* --- Functions for a rank ----------------------------------------------------------------- */

extern const struct gpus_layout *gpus_layout; /* layout of the running test */

/* Like ranks_join(), and calls ddp_device_join() too. */
struct ddp *gpus_join(void);

/* Like RANK_BODY() and RANKS_TEST() in ranks.h, for ranks with devices. */
#define GPUS_BODY(name) RANK_BODY_OF(name, gpus_join)
#define GPUS_TEST(test, layouts)                     \
	static int test##_body(int rank);            \
	TEST_ROWS(test, layouts)                     \
	{                                            \
		gpus_run(&layouts[_i], test##_body); \
	}                                            \
	GPUS_BODY(test##_body)

bool gpus_shared(void);

/*
 * Fills [data] with [count] pseudorandom numbers that depend on [rank] and [salt]: integers of any
 * value, or floats of various magnitudes.
 */
void gpus_values(void *data, enum ddp_type type, size_t count, int rank, unsigned int salt);

/* Computes in host memory the all-reduce of all ranks' gpus_values(). All ranks must call it. */
void gpus_expect(struct ddp *ddp, void *want, enum ddp_type type, enum ddp_op op, size_t count,
		 unsigned int salt);

/*
 * Enqueues GPUS_AHEAD all-reduces in [data], which has GPUS_SOME bytes, waits once, and checks all
 * results. Ends the rank if a result is wrong.
 */
enum { GPUS_COUNT = 3001, GPUS_AHEAD = 5, GPUS_SOME = GPUS_COUNT * GPUS_AHEAD * 4 };
void gpus_sum_some(struct ddp *ddp, float *data, unsigned int salt);

/* --- Device memory ------------------------------------------------------------------------ */

/* Allocates device memory that is not registered with libddp, to be freed with free(). */
void *gpus_foreign(size_t bytes);

void *gpus_stream(void);
void gpus_stream_close(void *stream);

#endif /* DDP_TESTS_GPUS_H */
