/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that share GPUs and mean different sums, or of which one cannot have what all want: each step is all
 * ranks' or nobody's, and what cannot work is refused in words that help.
 */
#include "config.h"

#include "shards.h"

static struct shards_layout layout; /* of the test that runs */

static void check_said(const struct ranks *ranks, int rank, const char *piece)
{
	ck_assert_msg(strstr(ranks->text[rank], piece), "%s %s: rank %d does not say \"%s\": %s",
		      layout.nodes, layout.gpus, rank, piece, ranks->text[rank]);
}

/* --- Ranks that do not mean the same --------------------------------------------------------- */

static const struct call {
	size_t at, count;
	enum ddp_type type;
	enum ddp_op op;
	bool foreign;
} right = {256, 1000, DDP_F32, DDP_SUM, false};

static const struct call wrong[] = {
	{256, 999, DDP_F32, DDP_SUM, false},  {256, 1000, DDP_I32, DDP_SUM, false},
	{256, 1000, DDP_F32, DDP_MAX, false}, {260, 1000, DDP_F32, DDP_SUM, false},
	{256, 1000, DDP_F32, DDP_SUM, true},  {256, 0, DDP_F32, DDP_SUM, false},
	{0, 3 << 20, DDP_F32, DDP_SUM, true},
};
static const struct call *wrong_one;

/* Rank 1 is wrong, once, among calls that all make. */
static int body_mismatch(int rank)
{
	char *foreign = shards_foreign(3 << 22), *place;
	struct ddp *ddp;
	void *direct;
	int status = 0;

	setenv("DDP_TIMEOUT", "4", 1);
	ddp = shards_join();
	RANK_OK(ddp, ddp_device_alloc(ddp, 8192, &direct));
	for (int i = 0; i < 20 && status == 0; i++) {
		const struct call *call = rank == 1 && i == 7 ? wrong_one : &right;

		place = (call->foreign ? foreign : (char *)direct) + call->at;
		status = ddp_device_all_reduce(ddp, place, place, call->count, call->type, call->op,
					       NULL);
	}
	if (status == 0)
		status = ddp_device_wait(ddp, NULL);
	/* On another GPU it all looks well, until the next sum. */
	if (status == 0 && rank == 3)
		status = ddp_device_all_reduce(ddp, direct, direct, 1, DDP_F32, DDP_SUM, NULL);
	if (status == 0 && rank == 3)
		status = ddp_device_wait(ddp, NULL);
	RANK_CHECK(status == DDP_ERR_MISMATCH);
	RANK_CHECK(ddp_device_wait(ddp, NULL) == DDP_ERR_MISMATCH);
	RANK_CHECK(ddp_device_all_reduce(ddp, direct, direct, 1, DDP_F32, DDP_SUM, NULL) < 0);
	ddp_exit(ddp);
	return 97;
}

TEST_ROWS(test_mismatch, wrong)
{
	static const struct shards_layout both[] = {{"2", "aa"}, {"4", "aaab"}};
	static struct ranks ranks;

	for (int i = 0; i < ROWS(both); i++) {
		layout = both[i];
		wrong_one = &wrong[_i];
		shards_start(&ranks, &layout, body_mismatch);
		ranks_wait(&ranks, false);
		for (int rank = 0; rank < ranks.size; rank++) {
			ck_assert_msg(ranks.statuses[rank] == ddp_exit_status(DDP_ERR_MISMATCH),
				      "row %d, rank %d ended with %d: %s", _i, rank,
				      ranks.statuses[rank], ranks.text[rank]);
			check_said(&ranks, rank, "did not enqueue the same sum");
			ck_assert(strstr(ranks.text[rank], "ranks 1 and ") ||
				  strstr(ranks.text[rank], " and 1 share"));
		}
	}
}

SHARDS_BODY(body_bytes_differ)
{
	void *memory;

	RANK_CHECK(ddp_device_alloc(ddp, rank == 1 ? 4096 : 8192, &memory) == DDP_ERR_MISMATCH);
	RANK_CHECK(!memory);
}

TEST_LOOP(test_bytes_differ, 0, 2)
{
	static const struct shards_layout both[] = {{"3", "aaa"}, {"2", "ab"}};

	shards_run(&both[_i], body_bytes_differ);
}

/* --- One that fails -------------------------------------------------------------------------- */

/* What fails, with which status: of a GPU that ranks share, and of the engine between GPUs. */
static const struct {
	struct shards_layout layout;
	const char *fail;
	int status;
	const char *said;
} allocs[] = {
	{{"3", "aaa"}, "alloc:1:2", DDP_ERR_MEMORY, "rank 1 on "},
	{{"3", "aaa"}, "alloc:2:2", DDP_ERR_MEMORY, "rank 2 on "},
	{{"3", "aaa"}, "alloc:0:2", DDP_ERR_MEMORY, "rank 0 on "},
	{{"3", "aaa"}, "import:0:3", DDP_ERR_ENGINE, "rank 0 on "},
	{{"3", "aaa"}, "import:0:4", DDP_ERR_ENGINE, "import()"},
	{{"2", "ab"}, "memory:1:1", DDP_ERR_MEMORY, "as asked"},
	{{"2", "ab"}, "enroll:1:1", 0, NULL},
	{{"4", "aabb"}, "memory:2:2", DDP_ERR_MEMORY, "as asked"},
	{{"4", "aabb"}, "enroll:2:2", 0, NULL},
};
static int row;

/*
 * Who does not get memory keeps it from all, nothing of it is left, and the next is all right; what is not registered is
 * memory as well.
 */
static int body_alloc(int rank)
{
	struct ddp *ddp;
	void *memory;

	(void)rank;
	setenv("DDP_HOST_FAIL", allocs[row].fail, 1);
	ddp = shards_join();
	RANK_CHECK(ddp_device_alloc(ddp, SHARDS_SOME, &memory) == allocs[row].status);
	if (allocs[row].status) {
		RANK_CHECK(!memory && strstr(ddp_error(ddp), allocs[row].said));
		RANK_OK(ddp, ddp_device_alloc(ddp, SHARDS_SOME, &memory));
	}
	shards_sum_some(ddp, memory, 5);
	RANK_OK(ddp, ddp_device_free(ddp, memory));
	ddp_destroy(ddp);
	return 0;
}

TEST_ROWS(test_alloc, allocs)
{
	row = _i;
	shards_run(&allocs[_i].layout, body_alloc);
}

static const struct {
	const char *fail;
	int status;
} joins[] = {{"open:1:1", DDP_ERR_ENGINE},   {"know:2:1", DDP_ERR_ENGINE},
	     {"know:0:1", DDP_ERR_ENGINE},   {"alloc:1:1", DDP_ERR_MEMORY},
	     {"import:0:1", DDP_ERR_ENGINE}, {"import:2:1", DDP_ERR_ENGINE}};

/* All do without, and can try again. */
static int body_join(int rank)
{
	struct ddp *ddp;
	float x = 1;

	setenv("DDP_HOST_FAIL", joins[row].fail, 1);
	ddp = ranks_join();
	RANK_CHECK(ddp_device_join(ddp) == joins[row].status);
	RANK_CHECK(strstr(ddp_error(ddp), "as asked"));
	RANK_CHECK(!ddp_device_captures(ddp));
	RANK_CHECK(ddp_device_all_reduce(ddp, &x, &x, 1, DDP_F32, DDP_SUM, NULL) == DDP_ERR_STATE);
	RANK_OK(ddp, ddp_all_reduce(ddp, &x, &x, 1, DDP_F32, DDP_SUM));
	RANK_CHECK(x == 4);
	RANK_OK(ddp, ddp_device_join(ddp));
	x = (float)rank;
	RANK_OK(ddp, ddp_device_all_reduce(ddp, &x, &x, 1, DDP_F32, DDP_SUM, NULL));
	RANK_OK(ddp, ddp_device_wait(ddp, NULL));
	RANK_CHECK(x == 6);
	ddp_destroy(ddp);
	return 0;
}

TEST_ROWS(test_join, joins)
{
	static const struct shards_layout four = {"4", "aabb"};

	row = _i;
	shards_run(&four, body_join);
}

/* --- Refused ---------------------------------------------------------------------------------- */

static int body_local_off(int rank)
{
	struct ddp *ddp;

	(void)rank;
	setenv("DDP_LOCAL", "off", 1);
	ddp = ranks_join();
	RANK_CHECK(ddp_device_join(ddp) < 0);
	ddp_exit(ddp);
	return 97;
}

/* All find out by themselves, unless another was quicker to tell. */
TEST(test_local_off)
{
	static struct ranks ranks;

	layout = (struct shards_layout){"3", "aab"};
	shards_start(&ranks, &layout, body_local_off);
	ranks_wait(&ranks, false);
	for (int rank = 0; rank < ranks.size; rank++) {
		ck_assert(ranks.statuses[rank] == ddp_exit_status(DDP_ERR_MISMATCH) ||
			  ranks.statuses[rank] == ddp_exit_status(DDP_ERR_ABORTED));
		check_said(&ranks, rank, "ranks 0 and 1 on ");
		check_said(&ranks, rank, "unset DDP_LOCAL");
	}
}

/* Without the module on one rank; the world goes on. */
RANK_BODY(body_no_module)
{
	char empty[32] = "no-modules";
	float x = 1;

	if (rank == 1) {
		char from[512], to[64];

		snprintf(from, sizeof(from), "%s/ddp_nccl.so", getenv("DDP_MODULES"));
		snprintf(to, sizeof(to), "%s/ddp_nccl.so", empty);
		RANK_CHECK(mkdir(empty, 0700) == 0 && symlink(from, to) == 0);
		setenv("DDP_MODULES", empty, 1);
	}
	RANK_CHECK(ddp_device_join(ddp) == DDP_ERR_UNSUPPORTED);
	RANK_CHECK(strstr(ddp_error(ddp), "rank 1 on ") && strstr(ddp_error(ddp), "ddp_shard.so") &&
		   strstr(ddp_error(ddp), "--gpus-per-task=1") && strstr(ddp_error(ddp), "MIG") &&
		   strstr(ddp_error(ddp), "CPU"));
	RANK_OK(ddp, ddp_all_reduce(ddp, &x, &x, 1, DDP_F32, DDP_SUM));
}

TEST(test_no_module)
{
	static const struct shards_layout two = {"2", "aa"};

	shards_run(&two, body_no_module);
}

UNIT_MAIN("shards_agree", shards_use)
