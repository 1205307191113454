/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that share GPUs, when one of them dies, stops, fails or means something else: the others say which and
 * leave, nobody uses a result that is none, nothing is left.
 */
#include "config.h"

#include <dirent.h>

#include "shards.h"

/* In seconds: long for who waits for nothing, not for a test. */
#define LIMIT "4"

static struct shards_layout layout; /* of the test that runs */
static int victim;

static bool is_peer_status(int status)
{
	return status >= ddp_exit_status(DDP_ERR_TIMEOUT) &&
	       status <= ddp_exit_status(DDP_ERR_MISMATCH);
}

static void check_said(const struct ranks *ranks, int rank, const char *piece)
{
	for (int i = 0; i < ranks->size && !strstr(ranks->text[rank], piece); i++)
		fprintf(stderr, "rank %d ended with %d: %s\n", i, ranks->statuses[i],
			ranks->text[i]);
	ck_assert_msg(strstr(ranks->text[rank], piece), "%s %s: rank %d does not say \"%s\": %s",
		      layout.nodes, layout.gpus, rank, piece, ranks->text[rank]);
}

/* --- What ranks do while one dies ---------------------------------------------------------- */

enum { COUNT = 3001, AHEAD = 5 };

/* Sums ahead, and then what they came to: a wait that succeeds vouches for all of them. */
static void sum_some(struct ddp *ddp, float *data, unsigned int salt)
{
	static float want[COUNT], got[COUNT];

	for (unsigned int i = 0; i < AHEAD; i++) {
		shards_values(got, DDP_F32, COUNT, ddp_world(ddp)->rank, salt + i);
		shards_in(data + i * COUNT, got, sizeof(got));
	}
	for (unsigned int i = 0; i < AHEAD; i++)
		RANK_OK(ddp, ddp_device_all_reduce(ddp, data + i * COUNT, data + i * COUNT, COUNT,
						   DDP_F32, DDP_SUM, NULL));
	RANK_OK(ddp, ddp_device_wait(ddp, NULL));
	for (unsigned int i = 0; i < AHEAD; i++) {
		shards_expect(want, DDP_F32, DDP_SUM, COUNT, salt + i);
		shards_out(got, data + i * COUNT, sizeof(got));
		RANK_CHECK(memcmp(got, want, sizeof(got)) == 0);
	}
}

/* For ever, with everything that a rank can be in the middle of. */
static int body_work(int rank)
{
	float *foreign = shards_foreign(AHEAD * COUNT * sizeof(float));
	char name[16];
	struct ddp *ddp;
	void *direct;
	int fd;

	setenv("DDP_TIMEOUT", LIMIT, 1);
	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	RANK_OK(ddp, ddp_device_join(ddp));
	snprintf(name, sizeof(name), "up-%d", rank);
	fd = open(name, O_CREAT | O_WRONLY, 0600);
	close(fd);
	for (unsigned int salt = 0;; salt += AHEAD) {
		RANK_OK(ddp, ddp_device_alloc(ddp, AHEAD * COUNT * sizeof(float), &direct));
		for (int i = 0; i < 3; i++)
			sum_some(ddp, direct, salt);
		sum_some(ddp, foreign, salt);
		RANK_OK(ddp, ddp_device_broadcast(ddp, foreign, 1000, 0, NULL));
		RANK_OK(ddp, ddp_device_free(ddp, direct));
	}
	return 97;
}

/* One that ends before is found by what it said. */
static void wait_until_up(const struct ranks *ranks)
{
	char path[128];
	siginfo_t info;

	for (int rank = 0; rank < ranks->size; rank++) {
		snprintf(path, sizeof(path), "%s/up-%d", ranks->directory, rank);
		info.si_pid = 0;
		while (access(path, F_OK) < 0 && info.si_pid == 0) {
			usleep(1000);
			waitid(P_PID, (id_t)ranks->pids[rank], &info, WEXITED | WNOWAIT | WNOHANG);
		}
	}
}

/* Those that live end first, by themselves; then the one that is stopped. */
static void wait_for_living(struct ranks *ranks)
{
	siginfo_t info;

	for (int rank = 0; rank < ranks->size; rank++)
		if (rank != victim)
			waitid(P_PID, (id_t)ranks->pids[rank], &info, WEXITED | WNOWAIT);
	kill(ranks->pids[victim], SIGKILL);
	ranks_wait(ranks, false);
}

/* Alone on its node a rank has nobody who knows its process: it is named among the leaders. */
static bool is_alone(int rank)
{
	int count = 0, first = 0;

	for (const char *at = layout.nodes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		count = atoi(at);
		if (rank < first + count)
			break;
		first += count;
	}
	return count == 1;
}

static void check_living(const struct ranks *ranks)
{
	char name[32];

	snprintf(name, sizeof(name), is_alone(victim) ? "%d" : "rank %d", victim);
	for (int rank = 0; rank < ranks->size; rank++) {
		if (rank == victim)
			continue;
		check_said(ranks, rank, name);
		ck_assert_msg(is_peer_status(ranks->statuses[rank]),
			      "%s %s, without %d: rank %d ended with %d: %s", layout.nodes,
			      layout.gpus, victim, rank, ranks->statuses[rank], ranks->text[rank]);
	}
}

/* --- Killed at any moment ------------------------------------------------------------------ */

static const struct shards_layout kill_layouts[] = {
	{"2", "aa"},	 {"4", "aaaa"},	   {"4", "aabb"},  {"5", "ababb"},
	{"2,2", "aabb"}, {"2,3", "aabbc"}, {"2,1", "aab"},
};

/* Files that UCX or we would leave; others on this host have their own. */
static int shared_memory_files(void)
{
	DIR *directory = opendir("/dev/shm");
	const struct dirent *entry;
	int count = 0;

	while (directory && (entry = readdir(directory)))
		count += strncmp(entry->d_name, "ucx_", 4) == 0 || strstr(entry->d_name, "ddp");
	if (directory)
		closedir(directory);
	return count;
}

/* Leaders and followers in turns. */
START_TEST(test_kills)
{
	const char *seed = getenv("DDP_SEED");
	uint64_t state = (seed ? strtoull(seed, NULL, 10) : 1) * 2 + 1;
	int rounds = getenv("DDP_LONG") ? 50 : 10, files = shared_memory_files();
	static struct ranks ranks;

	state += (uint64_t)_i;
	layout = kill_layouts[_i];
	rounds = rounds / ROWS(kill_layouts) + 2;
	for (int round = 0; round < rounds; round++) {
		shards_start(&ranks, &layout, body_work);
		victim = round == 0 ? 0 : (int)unit_random(&state, (uint32_t)ranks.size);
		wait_until_up(&ranks);
		usleep(unit_random(&state, 60000));
		kill(ranks.pids[victim], SIGKILL);
		wait_for_living(&ranks);
		check_living(&ranks);
	}
	ck_assert_int_le(shared_memory_files(), files);
}
END_TEST

/* While they meet: a list of those that never came names it at least. */
START_TEST(test_early_kills)
{
	uint64_t state = 77;
	static struct ranks ranks;
	char number[16];

	layout = (struct shards_layout){"4", "aabb"};
	for (int round = 0; round < 6; round++) {
		shards_start(&ranks, &layout, body_work);
		victim = (int)unit_random(&state, 4);
		usleep(unit_random(&state, 100000));
		kill(ranks.pids[victim], SIGKILL);
		wait_for_living(&ranks);
		snprintf(number, sizeof(number), "%d", victim);
		for (int rank = 0; rank < ranks.size; rank++) {
			if (rank == victim)
				continue;
			check_said(&ranks, rank, number);
			ck_assert(is_peer_status(ranks.statuses[rank]));
		}
	}
}
END_TEST

static const struct {
	struct shards_layout layout;
	int victim;
} stops[] = {{{"3", "aaa"}, 1},	 {{"3", "aaa"}, 0},    {{"4", "aabb"}, 3},
	     {{"4", "aabb"}, 2}, {{"2,2", "aabb"}, 1}, {{"2,2", "aabb"}, 2}};

START_TEST(test_stops)
{
	static struct ranks ranks;

	layout = stops[_i].layout;
	victim = stops[_i].victim;
	shards_start(&ranks, &layout, body_work);
	wait_until_up(&ranks);
	usleep(20000);
	kill(ranks.pids[victim], SIGSTOP);
	wait_for_living(&ranks);
	check_living(&ranks);
}
END_TEST

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

	setenv("DDP_TIMEOUT", LIMIT, 1);
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

START_TEST(test_mismatch)
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
END_TEST

static int body_bytes_differ(int rank)
{
	struct ddp *ddp = shards_join();
	void *memory;

	RANK_CHECK(ddp_device_alloc(ddp, rank == 1 ? 4096 : 8192, &memory) == DDP_ERR_MISMATCH);
	RANK_CHECK(!memory);
	ddp_destroy(ddp);
	return 0;
}

START_TEST(test_bytes_differ)
{
	static const struct shards_layout three = {"3", "aaa"};

	shards_run(&three, body_bytes_differ);
}
END_TEST

/* --- One that fails -------------------------------------------------------------------------- */

/* What fails, with which status; whether it was found when memory was asked for. */
static const struct {
	const char *fail;
	int status;
	const char *said;
} allocs[] = {
	{"alloc:1:2", DDP_ERR_MEMORY, "rank 1 on "}, {"alloc:2:2", DDP_ERR_MEMORY, "rank 2 on "},
	{"alloc:0:2", DDP_ERR_MEMORY, "rank 0 on "}, {"import:0:3", DDP_ERR_ENGINE, "rank 0 on "},
	{"import:0:4", DDP_ERR_ENGINE, "import()"},
};
static int row;

/* None gets the memory, nothing of it is left, and the next is all right. */
static int body_alloc(int rank)
{
	struct ddp *ddp;
	void *memory;

	(void)rank;
	setenv("DDP_HOST_FAIL", allocs[row].fail, 1);
	ddp = shards_join();
	RANK_CHECK(ddp_device_alloc(ddp, 5000, &memory) == allocs[row].status);
	RANK_CHECK(!memory && strstr(ddp_error(ddp), allocs[row].said));
	RANK_OK(ddp, ddp_device_alloc(ddp, AHEAD * COUNT * sizeof(float), &memory));
	sum_some(ddp, memory, 5);
	RANK_OK(ddp, ddp_device_free(ddp, memory));
	ddp_destroy(ddp);
	return 0;
}

START_TEST(test_alloc)
{
	static const struct shards_layout three = {"3", "aaa"};

	row = _i;
	shards_run(&three, body_alloc);
}
END_TEST

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

START_TEST(test_join)
{
	static const struct shards_layout four = {"4", "aabb"};

	row = _i;
	shards_run(&four, body_join);
}
END_TEST

/* A device that breaks under way is an error of its own rank; the others hear of it. */
static const char *const breaks[] = {"sum:0:20", "idle:1:30", "idle:0:30", "sum:2:20"};

static int body_break(int rank)
{
	setenv("DDP_HOST_FAIL", breaks[row], 1);
	return body_work(rank);
}

START_TEST(test_break)
{
	static struct ranks ranks;
	char name[32];

	row = _i;
	layout = (struct shards_layout){"4", "aabb"};
	shards_start(&ranks, &layout, body_break);
	ranks_wait(&ranks, false);
	victim = atoi(strchr(breaks[_i], ':') + 1);
	snprintf(name, sizeof(name), "rank %d on ", victim);
	for (int rank = 0; rank < ranks.size; rank++) {
		ck_assert_msg(ranks.statuses[rank] == ddp_exit_status(rank == victim
									      ? DDP_ERR_ENGINE
									      : DDP_ERR_ABORTED),
			      "%s: rank %d ended with %d: %s", breaks[_i], rank,
			      ranks.statuses[rank], ranks.text[rank]);
		check_said(&ranks, rank, "as asked");
		if (rank != victim)
			check_said(&ranks, rank, name);
	}
}
END_TEST

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
START_TEST(test_local_off)
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
END_TEST

/* Without the module on one rank; the world goes on. */
static int body_no_module(int rank)
{
	char empty[32] = "no-modules";
	struct ddp *ddp = ranks_join();
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
	ddp_destroy(ddp);
	return 0;
}

START_TEST(test_no_module)
{
	static const struct shards_layout two = {"2", "aa"};

	shards_run(&two, body_no_module);
}
END_TEST

static void fill(TCase *tcase)
{
	tcase_set_timeout(tcase, getenv("DDP_LONG") ? 3600 : 300);
	tcase_add_unchecked_fixture(tcase, shards_set_up, shards_tear_down);
	UNIT_ROWS(tcase, test_kills, kill_layouts);
	tcase_add_test(tcase, test_early_kills);
	UNIT_ROWS(tcase, test_stops, stops);
	UNIT_ROWS(tcase, test_mismatch, wrong);
	tcase_add_test(tcase, test_bytes_differ);
	UNIT_ROWS(tcase, test_alloc, allocs);
	UNIT_ROWS(tcase, test_join, joins);
	UNIT_ROWS(tcase, test_break, breaks);
	tcase_add_test(tcase, test_local_off);
	tcase_add_test(tcase, test_no_module);
}

int main(void)
{
	return unit_run("shards_failure", fill);
}
