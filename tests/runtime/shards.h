/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.h - real ranks on devices that are host memory, some on one
 *
 * A layout says which ranks are on which node, as in ranks.h, and by a letter for each rank which GPU it has.
 * The device's memory is reached by the functions below alone.
 */
#ifndef DDP_TESTS_SHARDS_H
#define DDP_TESTS_SHARDS_H

#include "ranks.h"

struct shards_layout {
	const char *nodes, *gpus;
};

/* For all tests of [tcase]: a directory of modules, of the device's and the real ones. */
void shards_use(TCase *tcase);

/* As ranks_start() and ranks_run(). */
void shards_start(struct ranks *ranks, const struct shards_layout *layout, int (*body)(int rank));
void shards_run(const struct shards_layout *layout, int (*body)(int rank));

/* --- In a rank ---------------------------------------------------------------------------- */

extern const struct shards_layout *shards_layout; /* of this world */

/* Its handle, with its device. */
struct ddp *shards_join(void);

/* As RANK_BODY() and RANKS_TEST(). */
#define SHARDS_BODY(name) RANK_BODY_OF(name, shards_join)
#define SHARDS_TEST(test, layouts)                     \
	static int test##_body(int rank);              \
	TEST_ROWS(test, layouts)                       \
	{                                              \
		shards_run(&layouts[_i], test##_body); \
	}                                              \
	SHARDS_BODY(test##_body)

/* Whether ranks share devices here. */
bool shards_shared(void);

/* [count] numbers of [rank], any bits of integers, floats of many sizes; another [salt], others. */
void shards_values(void *data, enum ddp_type type, size_t count, int rank, unsigned int salt);

/* What all ranks' numbers come to: those of a GPU in the order of ranks, then those of the GPUs. */
void shards_expect(void *want, enum ddp_type type, enum ddp_op op, size_t count, unsigned int salt);

/*
 * Some sums ahead in memory of SHARDS_SOME bytes, and what they came to: a wait that succeeds vouches for all
 * of them. Ends the rank where one fails.
 */
enum { SHARDS_COUNT = 3001, SHARDS_AHEAD = 5, SHARDS_SOME = SHARDS_COUNT * SHARDS_AHEAD * 4 };
void shards_sum_some(struct ddp *ddp, float *data, unsigned int salt);

/* --- The device ---------------------------------------------------------------------------- */

void shards_in(void *device, const void *host, size_t bytes);
void shards_out(void *host, const void *device, size_t bytes);

/* Memory of the device that libddp knows nothing of. */
void *shards_foreign(size_t bytes);
void shards_foreign_free(void *memory);

/* How much of it this process maps still. */
int shards_mappings(void);

void *shards_stream(void);
void shards_stream_close(void *stream);
void shards_stream_capture(void *stream, bool captured);

#endif /* DDP_TESTS_SHARDS_H */
