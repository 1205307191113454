/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpus.h - real ranks on devices that are host memory, some on one
 *
 * A layout says which ranks are on which node, as in ranks.h, and by a letter for each rank which GPU it has.
 * The device's memory is reached by the functions below alone.
 */
#ifndef DDP_TESTS_GPUS_H
#define DDP_TESTS_GPUS_H

#include "ranks.h"

struct gpus_layout {
	const char *nodes, *gpus;
};

/* For all tests of [tcase]: a directory of modules, of the device's and the real ones. */
void gpus_use(TCase *tcase);

/* As ranks_start() and ranks_run(). */
void gpus_start(struct ranks *ranks, const struct gpus_layout *layout, int (*body)(int rank));
void gpus_run(const struct gpus_layout *layout, int (*body)(int rank));

/* --- In a rank ---------------------------------------------------------------------------- */

extern const struct gpus_layout *gpus_layout; /* of this world */

/* Its handle, with its device. */
struct ddp *gpus_join(void);

/* As RANK_BODY() and RANKS_TEST(). */
#define GPUS_BODY(name) RANK_BODY_OF(name, gpus_join)
#define GPUS_TEST(test, layouts)                     \
	static int test##_body(int rank);            \
	TEST_ROWS(test, layouts)                     \
	{                                            \
		gpus_run(&layouts[_i], test##_body); \
	}                                            \
	GPUS_BODY(test##_body)

/* Whether ranks share devices here. */
bool gpus_shared(void);

/* [count] numbers of [rank], any bits of integers, floats of many sizes; another [salt], others. */
void gpus_values(void *data, enum ddp_type type, size_t count, int rank, unsigned int salt);

/* What all ranks' numbers come to in host memory. Collective. */
void gpus_expect(struct ddp *ddp, void *want, enum ddp_type type, enum ddp_op op, size_t count,
		 unsigned int salt);

/*
 * Some sums ahead in memory of GPUS_SOME bytes, and what they came to: a wait that succeeds vouches for all
 * of them. Ends the rank where one fails.
 */
enum { GPUS_COUNT = 3001, GPUS_AHEAD = 5, GPUS_SOME = GPUS_COUNT * GPUS_AHEAD * 4 };
void gpus_sum_some(struct ddp *ddp, float *data, unsigned int salt);

/* --- The device ---------------------------------------------------------------------------- */

void gpus_in(void *device, const void *host, size_t bytes);
void gpus_out(void *host, const void *device, size_t bytes);

/* Memory of the device that libddp knows nothing of. */
void *gpus_foreign(size_t bytes);
void gpus_foreign_free(void *memory);

void *gpus_stream(void);
void gpus_stream_close(void *stream);
void gpus_stream_capture(void *stream, bool captured);

#endif /* DDP_TESTS_GPUS_H */
