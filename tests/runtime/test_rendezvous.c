/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rendezvous.c - ranks that all arrive, are missing, are late or abort; and the choice of a
 * method
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "crowd.h"
#include "store/meeting.h"

/* --- All ranks arrive --------------------------------------------------------------------- */

static const struct {
	int size;
	bool own;
	rank_function run;
	int fences;
} worlds[] = {
	{1, false, meet_twice, 2},	{2, false, meet_once, 1}, {3, true, meet_four_times, 4},
	{5, false, meet_four_times, 4}, {8, true, meet_twice, 2}, {8, false, meet_four_times, 4},
};

TEST_ROWS(test_meet, worlds)
{
	const char *directory = fresh_directory();
	char parent[512];

	if (worlds[_i].own)
		ck_assert_int_eq(ddp_file_mkdirs(directory, 0700, NULL), 0);
	snprintf(parent, sizeof(parent), "%s", directory);
	*strrchr(parent, '/') = '\0';
	ck_assert_int_eq(ddp_file_mkdirs(parent, 0700, NULL), 0);
	start_ranks(directory, worlds[_i].own, 0, worlds[_i].size, worlds[_i].size, worlds[_i].run);
	wait_ranks(0, worlds[_i].size);
	expect_success(0, worlds[_i].size, worlds[_i].fences);
	/*
	 * A directory that the ranks created must be removed. A directory that existed must be
	 * empty.
	 */
	ck_assert_int_eq(unit_entries(directory), worlds[_i].own ? 0 : -1);
	ck_assert_int_eq(unit_entries(parent), worlds[_i].own ? 1 : -1);
}

/*
 * Several worlds use one directory one after the other. The ranks of each world start in any order.
 */
static void meet_in_successive_worlds(struct rank *rank)
{
	uint64_t seed = 0x9e3779b97f4a7c15u + (uint64_t)rank->identity.rank;

	for (int i = 0; i < 8 && rank->error.status == 0; i++) {
		sleep_ms((int)unit_random(&seed, 12));
		meet_times(rank, 1 + i % 3);
	}
}

TEST_LOOP(test_successive_worlds, 0, 2)
{
	const char *directory = fresh_directory();

	if (_i)
		ck_assert_int_eq(ddp_file_mkdirs(directory, 0700, NULL), 0);
	start_ranks(directory, _i, 0, 4, 4, meet_in_successive_worlds);
	wait_ranks(0, 4);
	expect_success(0, 4, 1 + 2 + 3 + 1 + 2 + 3 + 1 + 2);
	ck_assert_int_eq(unit_entries(directory), _i ? 0 : -1);
}

/* --- Ranks are missing ------------------------------------------------------------------ */

static void meet_within_300_ms(struct rank *rank)
{
	rank->watch = ddp_watch_start(0.3, NULL, NULL);
	meet_once(rank);
}

TEST(test_no_rank_0)
{
	const char *directory = fresh_directory();

	start_ranks(directory, false, 1, 2, 3, meet_within_300_ms);
	wait_ranks(1, 2);
	EXPECT_ERROR(1, "rank 0 did not arrive in 0.3 s", directory);
	EXPECT_ERROR(2, "rank 0 did not arrive in 0.3 s");
	ck_assert_int_eq(reports[1].status, DDP_ERR_TIMEOUT);
}

/* Rank 0 dies before it publishes the table for which the other ranks wait. */
TEST_LOOP(test_rank_0_dies, 0, 2)
{
	const char *directory = fresh_directory();

	start_ranks(directory, false, 0, 1, 3, die_open);
	wait_ranks(0, 1);
	start_until_waiting(directory, 1, _i + 1, 3);
	wait_ranks(1, _i + 1);
	for (int i = 1; i < _i + 2; i++) {
		if (_i == 0)
			EXPECT_ERROR(i, "1 of 3 ranks did not arrive in 60 s: rank 2. ",
				     "rank 0 on n0 (process ", "has ended");
		else
			EXPECT_ERROR(i, "rank 0 on n0 (process ", "did not publish");
	}
}

/*
 * The rank writes its record and dies. The first fence succeeds, and the second one reports the
 * loss.
 */
static void die_with_record(struct rank *rank)
{
	struct ddp_meetings list;
	struct ddp_record record;

	do
		sleep_ms(1);
	while (ddp_meetings_list(rank->identity.directory, &list, NULL) != 0 || list.count == 0);
	ddp_record_init(&record, &rank->identity, NULL);
	put_record(rank, list.meetings[0].number, record);
	raise(SIGKILL);
}

TEST(test_killed_after_writing_its_record)
{
	const char *directory = fresh_directory();
	struct rank rank = make_rank(directory, false, 0, 2);

	start_ranks(directory, false, 1, 1, 2, die_with_record);
	rank.watch = ddp_watch_start(60, NULL, NULL);
	ck_assert(open_rank(&rank));
	ck_assert_int_eq(ddp_store_fence(rank.store, &rank.watch, NULL), 0);
	rank.watch = ddp_watch_start(0.3, NULL, NULL);
	ck_assert_int_eq(ddp_store_fence(rank.store, &rank.watch, &rank.error), DDP_ERR_TIMEOUT);
	UNIT_SAYS("rank 0", rank.error.text, "1 of 2 ranks", ": rank 1 on n1");
	ck_assert_int_eq(ddp_store_fence(rank.store, &rank.watch, &rank.error), DDP_ERR_STATE);
	ddp_store_close(rank.store, false);
	wait_ranks(1, 1);
}

/* --- Ranks abort ------------------------------------------------------------------------- */

static void abort_after_fence(struct rank *rank)
{
	if (open_rank(rank) && meet(rank, 0)) {
		sleep_ms(50);
		ddp_store_abort(rank->store, "first reason");
		ddp_store_abort(rank->store, "second reason");
	}
	ddp_store_close(rank->store, false);
}

TEST_LOOP(test_abort, 0, 4)
{
	const char *directory = fresh_directory();

	for (int i = 0; i < 4; i++)
		start_ranks(directory, false, i, 1, 4, i == _i ? abort_after_fence : meet_twice);
	wait_ranks(0, 4);
	for (int i = 0; i < 4; i++) {
		char text[64];

		if (i == _i)
			continue;
		snprintf(text, sizeof(text), "rank %d on n%d: first reason", _i, _i);
		EXPECT_ERROR(i, text);
		ck_assert_int_eq(reports[i].status, DDP_ERR_ABORTED);
	}
}

static void wait_for_abort(struct rank *rank)
{
	const char *text;

	if (!open_rank(rank) || !meet(rank, 0))
		return;
	while (!(text = ddp_store_aborted(rank->store)))
		sleep_ms(1);
	ddp_error_set(&rank->error, DDP_ERR_ABORTED, "%s", text);
	ddp_store_close(rank->store, false);
}

static void start_after_abort(struct rank *rank)
{
	struct ddp_meetings list;

	do
		sleep_ms(1);
	while (ddp_meetings_list(rank->identity.directory, &list, NULL) != 0 || list.count == 0 ||
	       !list.meetings[0].aborted);
	meet_once(rank);
}

/* A rank that started in time but arrives after the abort gets the reason of the abort. */
TEST(test_abort_before_arrival)
{
	const char *directory = fresh_directory();

	start_ranks(directory, false, 2, 1, 3, start_after_abort);
	sleep_ms(30);
	start_until_waiting(directory, 0, 2, 3);
	wait_ranks(0, 3);
	ck_assert_int_eq(reports[2].status, DDP_ERR_ABORTED);
	EXPECT_ERROR(2, "1 of 3 ranks did not arrive in 60 s: rank 2");
}

/* If two ranks abort at the same time, all ranks get the same reason. */
TEST(test_two_ranks_abort)
{
	const char *directory = fresh_directory();

	start_ranks(directory, false, 0, 2, 5, wait_for_abort);
	start_ranks(directory, false, 2, 2, 5, abort_after_fence);
	start_ranks(directory, false, 4, 1, 5, wait_for_abort);
	wait_ranks(0, 5);
	ck_assert_str_eq(reports[0].text, reports[1].text);
	ck_assert_str_eq(reports[0].text, reports[4].text);
	EXPECT_ERROR(0, "first reason");
}

/* The other ranks would not get the error of a rank that has not joined the meeting yet. */
static int fail_once_all_wait(void *owner, struct ddp_error *error)
{
	const struct rank *rank = owner;

	for (int i = 0; i < 3; i++)
		if (!is_waiting(rank->identity.directory, i))
			return 0;
	return ddp_error_set(error, DDP_ERR_PEER, "the callback's error");
}

static void meet_with_callback(struct rank *rank)
{
	rank->watch = ddp_watch_start(20, fail_once_all_wait, rank);
	meet_once(rank);
}

/*
 * If a rank's watch callback returns an error, the rank's wait ends, and the other ranks get the
 * error's text.
 */
TEST_LOOP(test_watch, 0, 3)
{
	const char *directory = fresh_directory();

	/* Rank _i has the callback. Rank 3 never starts. */
	for (int i = 0; i < 3; i++)
		start_ranks(directory, false, i, 1, 4, i == _i ? meet_with_callback : meet_once);
	wait_ranks(0, 3);
	for (int i = 0; i < 3; i++) {
		EXPECT_ERROR(i, "the callback's error");
		ck_assert_int_eq(reports[i].status, i == _i ? DDP_ERR_PEER : DDP_ERR_ABORTED);
	}
}

/* --- Choice of the method --------------------------------------------------------------- */

static const struct {
	const char *name;
	const char *argument, *variable; /* argument of ddp_store_open(); value of DDP_METHOD */
	bool directory;
	int size;
	const char *method; /* NULL: error */
	int status;
	const char *pieces;
} choices[] = {
	{"one rank, with a directory", NULL, NULL, true, 1, "single", 0, NULL},
	{"one rank", NULL, NULL, false, 1, "single", 0, NULL},
	{"no method works", NULL, NULL, false, 2, NULL, DDP_ERR_UNSUPPORTED,
	 "no rendezvous method works for these 2 ranks|file: srun --ddp gave this task no directory|pmix: PMIX_RANK is not set|single: the world has 2 ranks"},
	{"method of the variable", NULL, "single", true, 1, "single", 0, NULL},
	{"argument over variable", "file", "single", true, 1, "file", 0, NULL},
	{"requested method does not work", "single", NULL, true, 2, NULL, DDP_ERR_UNSUPPORTED,
	 "method single|the world has 2 ranks"},
	{"method of the variable does not work", NULL, "file", false, 1, NULL, DDP_ERR_UNSUPPORTED,
	 "DDP_METHOD=file|remove the cause in that line|--ddp-rdzv=DIR"},
	{"unknown argument", "mpi", NULL, true, 1, NULL, DDP_ERR_ARGUMENT,
	 "mpi|file, pmix or single"},
	{"unknown variable", NULL, "mpi", true, 1, NULL, DDP_ERR_ENVIRONMENT,
	 "DDP_METHOD=mpi|file, pmix or single"},
};

TEST_ROWS(test_choice, choices)
{
	const char *name = choices[_i].name;
	struct rank rank = make_rank(choices[_i].directory ? fresh_directory() : "", false, 0,
				     choices[_i].size);
	int status;

	unsetenv("PMIX_RANK");
	unsetenv("DDP_METHOD");
	if (choices[_i].variable)
		setenv("DDP_METHOD", choices[_i].variable, 1);
	status = ddp_store_open(&rank.store, choices[_i].argument, &rank.identity, NULL,
				&rank.watch, &rank.error);
	unit_number(name, "status", status, choices[_i].status);
	if (choices[_i].method)
		unit_text(name, "method", rank.store->method->head.name, choices[_i].method);
	else
		ck_assert(!rank.store);
	unit_has(name, rank.error.text, choices[_i].pieces);
	ddp_store_close(rank.store, true);
	unsetenv("DDP_METHOD");
}

UNIT_MAIN("rendezvous", crowd_use)
