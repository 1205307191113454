/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_staged_failure.c - a rank that shares a GPU dies, stops, fails or aborts: the other ranks
 * name that rank and end, use no incomplete result, and leave no files
 */
#include "config.h"

#include "gpus.h"
#include "host-stream.h"

/* DDP_TIMEOUT in seconds: short, but long enough for a rank that is not stuck */
#define LIMIT "4"

static struct gpus_layout layout; /* layout of the running test */
static int victim;

static bool is_peer_status(int status)
{
	return status >= ddp_exit_status(DDP_ERR_TIMEOUT) &&
	       status <= ddp_exit_status(DDP_ERR_MISMATCH);
}

static void expect_output(const struct ranks *ranks, int rank, const char *piece)
{
	for (int i = 0; i < ranks->size && !strstr(ranks->text[rank], piece); i++)
		fprintf(stderr, "rank %d ended with %d: %s\n", i, ranks->statuses[i],
			ranks->text[i]);
	ck_assert_msg(strstr(ranks->text[rank], piece), "%s %s: rank %d does not print \"%s\": %s",
		      layout.nodes, layout.gpus, rank, piece, ranks->text[rank]);
}

/* --- The ranks' work ------------------------------------------------------------------------- */

/* Repeats all kinds of operations forever, so that a rank can die in any of them. */
static int body_work(int rank)
{
	float *foreign = gpus_foreign(GPUS_SOME);
	char name[16];
	struct ddp *ddp;
	void *direct;
	int fd;

	setenv("DDP_TIMEOUT", LIMIT, 1);
	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	RANK_OK(ddp, ddp_device_join(ddp));
	snprintf(name, sizeof(name), "up-%d", rank);
	for (unsigned int salt = 0;; salt += 100) {
		RANK_OK(ddp, ddp_device_alloc(ddp, GPUS_SOME, &direct));
		for (int i = 0; i < 3; i++)
			gpus_sum_some(ddp, direct, salt);
		gpus_sum_some(ddp, foreign, salt);
		RANK_OK(ddp, ddp_device_broadcast(ddp, foreign, 1000, 0, NULL));
		RANK_OK(ddp, ddp_device_free(ddp, direct));
		if (salt == 0) {
			fd = open(name, O_CREAT | O_WRONLY, 0600);
			close(fd);
		}
	}
	return 97;
}

/* Waits until every rank has completed a round or ended. The caller checks their output later. */
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

/* Waits until all ranks except the victim have ended, then kills the victim, which SIGSTOP may have stopped. */
static void wait_for_living(struct ranks *ranks)
{
	siginfo_t info;

	for (int rank = 0; rank < ranks->size; rank++)
		if (rank != victim)
			waitid(P_PID, (id_t)ranks->pids[rank], &info, WEXITED | WNOWAIT);
	kill(ranks->pids[victim], SIGKILL);
	ranks_wait(ranks, false);
}

/*
 * Whether [rank] is the only rank of its node. Then only ranks of other nodes name it, and these do
 * not know its process.
 */
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

/* Returns the name by which the other ranks' messages call the victim. */
static const char *victim_name(void)
{
	static char name[32];

	snprintf(name, sizeof(name), is_alone(victim) ? "%d" : "rank %d", victim);
	return name;
}

static bool all_name_victim(const struct ranks *ranks)
{
	for (int rank = 0; rank < ranks->size; rank++)
		if (rank != victim && !strstr(ranks->text[rank], victim_name()))
			return false;
	return true;
}

static void check_living(const struct ranks *ranks)
{
	for (int rank = 0; rank < ranks->size; rank++) {
		if (rank == victim)
			continue;
		expect_output(ranks, rank, victim_name());
		ck_assert_msg(is_peer_status(ranks->statuses[rank]),
			      "%s %s, without %d: rank %d ended with %d: %s", layout.nodes,
			      layout.gpus, victim, rank, ranks->statuses[rank], ranks->text[rank]);
	}
}

/* --- Killed at any moment ------------------------------------------------------------------ */

static const struct gpus_layout kill_layouts[] = {
	{"2", "aa"},	 {"4", "aaaa"},	   {"4", "aabb"},  {"5", "ababb"},
	{"2,2", "aabb"}, {"2,3", "aabbc"}, {"2,1", "aab"},
};

/* Several worlds run at the same time, because their ranks mostly wait for the timeout. */
TEST_ROWS(test_kills, kill_layouts)
{
	enum { WORLDS = 3 };
	uint64_t state = unit_seed(1) + (uint64_t)_i;
	int files = ranks_shared_files(), victims[WORLDS];
	static struct ranks ranks[WORLDS];

	layout = kill_layouts[_i];
	for (int rounds = getenv("DDP_LONG") ? 3 : 1; rounds > 0; rounds--) {
		for (int w = 0; w < WORLDS; w++)
			gpus_start(&ranks[w], &layout, body_work);
		for (int w = 0; w < WORLDS; w++) {
			victims[w] = w == 0 ? 0 : (int)unit_random(&state, (uint32_t)ranks[w].size);
			wait_until_up(&ranks[w]);
			usleep(unit_random(&state, 60000));
			kill(ranks[w].pids[victims[w]], SIGKILL);
		}
		for (int w = 0; w < WORLDS; w++) {
			victim = victims[w];
			wait_for_living(&ranks[w]);
			check_living(&ranks[w]);
		}
	}
	ranks_await_shared_files(files);
}

static const struct {
	struct gpus_layout layout;
	int victim;
} stops[] = {{{"3", "aaa"}, 1},	 {{"3", "aaa"}, 0},    {{"4", "aabb"}, 3},
	     {{"4", "aabb"}, 2}, {{"2,2", "aabb"}, 1}, {{"2,2", "aabb"}, 2}};

static void stop_one(struct ranks *ranks, int w)
{
	gpus_start(ranks, &stops[w].layout, body_work);
	wait_until_up(ranks);
	usleep(20000);
	kill(ranks->pids[stops[w].victim], SIGSTOP);
}

/*
 * A rank is stopped, and the other ranks name it. On a busy machine they may name another late rank
 * instead, but not in three attempts.
 */
TEST(test_stops)
{
	static struct ranks ranks[ROWS(stops)];

	for (int w = 0; w < ROWS(stops); w++)
		stop_one(&ranks[w], w);
	for (int w = 0; w < ROWS(stops); w++) {
		layout = stops[w].layout;
		victim = stops[w].victim;
		wait_for_living(&ranks[w]);
		for (int again = 0; again < 2 && !all_name_victim(&ranks[w]); again++) {
			stop_one(&ranks[w], w);
			wait_for_living(&ranks[w]);
		}
		check_living(&ranks[w]);
	}
}

/* --- A rank that aborts ---------------------------------------------------------------------- */

static int body_abort(int rank)
{
	struct ddp *ddp;
	void *memory, *stream;

	setenv("DDP_TIMEOUT", LIMIT, 1);
	ddp = gpus_join();
	stream = gpus_stream();
	RANK_OK(ddp, ddp_device_alloc(ddp, GPUS_SOME, &memory));
	RANK_OK(ddp, ddp_barrier(ddp));
	if (rank == victim)
		ddp_abort(ddp, "the disk is full");
	RANK_CHECK(ddp_device_all_reduce(ddp, memory, memory, 1000, DDP_F32, DDP_SUM, stream) < 0);
	while (!host_stream_idle(stream))
		host_sleep(100);
	gpus_stream_close(stream);
	if (rank != victim)
		RANK_CHECK(strstr(ddp_error(ddp), "the disk is full"));
	RANK_CHECK(ddp_device_free(ddp, memory) < 0);
	ddp_destroy(ddp);
	return 0;
}

TEST_LOOP(test_abort, 0, 2)
{
	layout = (struct gpus_layout){"3", "aaa"};
	victim = _i;
	gpus_run(&layout, body_abort);
}

/* --- The remaining ranks ------------------------------------------------------------------ */

/* The remaining ranks can destroy their handles and exit with 0. */
static int body_survive(int rank)
{
	struct ddp *ddp;
	void *memory;

	setenv("DDP_TIMEOUT", LIMIT, 1);
	ddp = gpus_join();
	RANK_OK(ddp, ddp_device_alloc(ddp, GPUS_SOME, &memory));
	gpus_sum_some(ddp, memory, 1);
	RANK_OK(ddp, ddp_barrier(ddp));
	if (rank == victim)
		raise(SIGKILL);
	for (int i = 0; i < 50; i++)
		if (ddp_device_all_reduce(ddp, memory, memory, 1000, DDP_F32, DDP_SUM, NULL) < 0)
			break;
	RANK_CHECK(ddp_device_wait(ddp, NULL) < 0);
	RANK_CHECK(ddp_device_wait(ddp, NULL) < 0);
	ddp_destroy(ddp);
	return 0;
}

TEST(test_survivors_can_destroy)
{
	static const struct gpus_layout both[] = {{"3", "aaa"}, {"4", "aabb"}};
	static struct ranks ranks;

	for (int i = 0; i < ROWS(both); i++)
		for (victim = 0; victim < 3; victim++) {
			layout = both[i];
			gpus_start(&ranks, &layout, body_survive);
			ranks_wait(&ranks, false);
			for (int rank = 0; rank < ranks.size; rank++)
				ck_assert_msg(
					ranks.statuses[rank] == (rank == victim ? -SIGKILL : 0),
					"%s without %d: rank %d ended with %d: %s", layout.gpus,
					victim, rank, ranks.statuses[rank], ranks.text[rank]);
		}
}

/* --- A device that fails -------------------------------------------------------------------- */

/*
 * The rank whose device fails returns DDP_ERR_ENGINE. The other ranks name that rank and return
 * DDP_ERR_ABORTED.
 */
static const char *const device_failures[] = {"copy:0:20", "wait:1:30", "wait:0:30", "copy:2:20"};

static int row;

static int body_device_failure(int rank)
{
	setenv("DDP_HOST_FAIL", device_failures[row], 1);
	return body_work(rank);
}

TEST_ROWS(test_device_failure, device_failures)
{
	static struct ranks ranks;
	char name[32];

	row = _i;
	layout = (struct gpus_layout){"4", "aabb"};
	gpus_start(&ranks, &layout, body_device_failure);
	ranks_wait(&ranks, false);
	victim = atoi(strchr(device_failures[_i], ':') + 1);
	snprintf(name, sizeof(name), "rank %d on ", victim);
	for (int rank = 0; rank < ranks.size; rank++) {
		ck_assert_msg(ranks.statuses[rank] == ddp_exit_status(rank == victim
									      ? DDP_ERR_ENGINE
									      : DDP_ERR_ABORTED),
			      "%s: rank %d ended with %d: %s", device_failures[_i], rank,
			      ranks.statuses[rank], ranks.text[rank]);
		expect_output(&ranks, rank, "as asked");
		if (rank != victim)
			expect_output(&ranks, rank, name);
	}
}

UNIT_MAIN("staged failure", gpus_use)
