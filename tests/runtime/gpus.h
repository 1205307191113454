/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpus.h - real ranks whose devices are emulated in host memory
 *
 * A layout has the number of ranks on each node, as in ranks.h, and for each rank a letter that
 * names its GPU; equal letters mean a shared GPU. Tests access device memory only through the
 * functions below.
 */
#ifndef DDP_TESTS_GPUS_H
#define DDP_TESTS_GPUS_H

#include "ranks.h"

struct gpus_layout {
	const char *nodes, *gpus;
};

/* Sets up DDP_MODULES for all tests of [tcase]: emulated modules for devices, real ones otherwise. */
void gpus_use(TCase *tcase);

/* Like ranks_start() and ranks_run(). */
void gpus_start(struct ranks *ranks, const struct gpus_layout *layout, int (*body)(int rank));
void gpus_run(const struct gpus_layout *layout, int (*body)(int rank));

/* --- In a rank ---------------------------------------------------------------------------- */

extern const struct gpus_layout *gpus_layout; /* of the running test */

/* Like ranks_join(); also joins the device. */
struct ddp *gpus_join(void);

/* Like RANK_BODY() and RANKS_TEST(). */
#define GPUS_BODY(name) RANK_BODY_OF(name, gpus_join)
#define GPUS_TEST(test, layouts)                     \
	static int test##_body(int rank);            \
	TEST_ROWS(test, layouts)                     \
	{                                            \
		gpus_run(&layouts[_i], test##_body); \
	}                                            \
	GPUS_BODY(test##_body)

/* Whether ranks of the layout share a device. */
bool gpus_shared(void);

/*
 * Fills [data] with [count] pseudorandom numbers of [rank]: integers of any bits, floats of various
 * magnitudes. [salt] selects the sequence.
 */
void gpus_values(void *data, enum ddp_type type, size_t count, int rank, unsigned int salt);

/* Computes the expected all-reduce of gpus_values() in host memory. Collective. */
void gpus_expect(struct ddp *ddp, void *want, enum ddp_type type, enum ddp_op op, size_t count,
		 unsigned int salt);

/*
 * Enqueues GPUS_AHEAD all-reduces in [data], which has GPUS_SOME bytes, waits once, and checks all
 * results. Ends the rank if one is wrong.
 */
enum { GPUS_COUNT = 3001, GPUS_AHEAD = 5, GPUS_SOME = GPUS_COUNT * GPUS_AHEAD * 4 };
void gpus_sum_some(struct ddp *ddp, float *data, unsigned int salt);

/* --- The device ---------------------------------------------------------------------------- */

void gpus_in(void *device, const void *host, size_t bytes);
void gpus_out(void *host, const void *device, size_t bytes);

/* Device memory that is not registered with libddp. */
void *gpus_foreign(size_t bytes);
void gpus_foreign_free(void *memory);

void *gpus_stream(void);
void gpus_stream_close(void *stream);
void gpus_stream_capture(void *stream, bool captured);

#endif /* DDP_TESTS_GPUS_H */
