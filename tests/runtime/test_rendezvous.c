/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that meet, that are missing, that give up; and which method is chosen.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "crowd.h"
#include "store/attempt.h"

/* --- All is well ------------------------------------------------------------------------ */

static const struct {
	int size;
	bool own;
	deed run;
	int fences;
} worlds[] = {
	{1, false, meet_twice, 2}, {2, false, meet_once, 1}, {3, true, meet_often, 4},
	{5, false, meet_often, 4}, {8, true, meet_twice, 2}, {8, false, meet_often, 4},
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
	begin_ranks(directory, worlds[_i].own, 0, worlds[_i].size, worlds[_i].size, worlds[_i].run);
	end(0, worlds[_i].size);
	succeeded(0, worlds[_i].size, worlds[_i].fences);
	/* Nothing stays: what we made is gone, what we were given is empty. */
	ck_assert_int_eq(unit_entries(directory), worlds[_i].own ? 0 : -1);
	ck_assert_int_eq(unit_entries(parent), worlds[_i].own ? 1 : -1);
}

static void come_late(struct rank *rank)
{
	milliseconds(200);
	meet_twice(rank);
}

TEST_LOOP(test_late, 0, 3)
{
	const char *directory = fresh_directory();

	/* _i is the late one. */
	for (int i = 0; i < 3; i++)
		begin_ranks(directory, false, i, 1, 3, i == _i ? come_late : meet_twice);
	end(0, 3);
	succeeded(0, 3, 2);
}

/* Worlds one after the other in one directory, without any order among their ranks. */
static void meet_again_and_again(struct rank *rank)
{
	uint64_t seed = 0x9e3779b97f4a7c15u + (uint64_t)rank->identity.rank;

	for (int i = 0; i < 8 && rank->error.status == 0; i++) {
		milliseconds((int)unit_random(&seed, 12));
		meet_times(rank, 1 + i % 3);
	}
}

TEST_LOOP(test_one_after_the_other, 0, 2)
{
	const char *directory = fresh_directory();

	if (_i)
		ck_assert_int_eq(ddp_file_mkdirs(directory, 0700, NULL), 0);
	begin_ranks(directory, _i, 0, 4, 4, meet_again_and_again);
	end(0, 4);
	succeeded(0, 4, 1 + 2 + 3 + 1 + 2 + 3 + 1 + 2);
	ck_assert_int_eq(unit_entries(directory), _i ? 0 : -1);
}

/* --- Somebody is missing ---------------------------------------------------------------- */

TEST(test_missing)
{
	const char *directory = fresh_directory();

	begin_few(directory, 0, 3, 5, 0);
	end(0, 3);
	for (int i = 0; i < 3; i++) {
		SAID(i, "2 of 5 ranks did not arrive in 60 s: ranks 3, 4", directory);
		ck_assert(reports[i].status == DDP_ERR_TIMEOUT ||
			  reports[i].status == DDP_ERR_ABORTED);
	}
}

static void meet_in_short(struct rank *rank)
{
	rank->watch = ddp_watch_start(0.3, NULL, NULL);
	meet_once(rank);
}

TEST(test_no_rank_0)
{
	const char *directory = fresh_directory();

	begin_ranks(directory, false, 1, 2, 3, meet_in_short);
	end(1, 2);
	SAID(1, "rank 0 did not arrive in 0.3 s", directory);
	SAID(2, "rank 0 did not arrive in 0.3 s");
	ck_assert_int_eq(reports[1].status, DDP_ERR_TIMEOUT);
}

/* Once all others wait for the table. */
TEST_LOOP(test_rank_0_dies, 0, 2)
{
	const char *directory = fresh_directory();

	begin_ranks(directory, false, 0, 1, 3, die_open);
	end(0, 1);
	begin_few(directory, 1, _i + 1, 3, 0);
	end(1, _i + 1);
	for (int i = 1; i < _i + 2; i++) {
		if (_i == 0)
			SAID(i, "1 of 3 ranks did not arrive in 60 s: rank 2;",
			     "rank 0 on n0 (process ", "has ended");
		else
			SAID(i, "rank 0 on n0 (process ", "did not publish");
	}
}

TEST(test_killed_between)
{
	const char *directory = fresh_directory();

	begin_few(directory, 0, 2, 4, 1);
	begin_ranks(directory, false, 2, 2, 4, die_after_one);
	end(0, 4);
	for (int i = 0; i < 2; i++) {
		SAID(i, "2 of 4 ranks did not arrive in 60 s: ranks 2 on n2, 3 on n3");
		ck_assert_int_eq(reports[i].fences, 1);
	}
}

/* The record is there, the process no longer: the fence succeeds, the next one tells. */
static void die_with_record(struct rank *rank)
{
	struct ddp_attempts list;
	struct ddp_record record;

	do
		milliseconds(1);
	while (ddp_attempts_list(rank->identity.directory, &list, NULL) != 0 || list.count == 0);
	ddp_record_init(&record, &rank->identity, NULL);
	put_record(rank, list.attempts[0].number, record);
	raise(SIGKILL);
}

TEST(test_killed_during)
{
	const char *directory = fresh_directory();
	struct rank rank = make_rank(directory, false, 0, 2);

	begin_ranks(directory, false, 1, 1, 2, die_with_record);
	rank.watch = ddp_watch_start(60, NULL, NULL);
	ck_assert(open_rank(&rank));
	ck_assert_int_eq(ddp_store_fence(rank.store, &rank.watch, NULL), 0);
	rank.watch = ddp_watch_start(0.3, NULL, NULL);
	ck_assert_int_eq(ddp_store_fence(rank.store, &rank.watch, &rank.error), DDP_ERR_TIMEOUT);
	UNIT_SAYS("rank 0", rank.error.text, "1 of 2 ranks", ": rank 1 on n1");
	ck_assert_int_eq(ddp_store_fence(rank.store, &rank.watch, &rank.error), DDP_ERR_STATE);
	ddp_store_close(rank.store, false);
	end(1, 1);
}

/* --- Somebody gives up ------------------------------------------------------------------ */

static void give_up_in_fence(struct rank *rank)
{
	if (open_rank(rank) && meet(rank, 0)) {
		milliseconds(50);
		ddp_store_abort(rank->store, "out of coffee");
		ddp_store_abort(rank->store, "second thoughts");
	}
	ddp_store_close(rank->store, false);
}

TEST_LOOP(test_abort, 0, 4)
{
	const char *directory = fresh_directory();

	/* _i is the one that gives up. */
	for (int i = 0; i < 4; i++)
		begin_ranks(directory, false, i, 1, 4, i == _i ? give_up_in_fence : meet_twice);
	end(0, 4);
	for (int i = 0; i < 4; i++) {
		char text[64];

		if (i == _i)
			continue;
		snprintf(text, sizeof(text), "rank %d on n%d: out of coffee", _i, _i);
		SAID(i, text);
		ck_assert_int_eq(reports[i].status, DDP_ERR_ABORTED);
	}
}

static void look_for_abort(struct rank *rank)
{
	const char *text;

	if (!open_rank(rank) || !meet(rank, 0))
		return;
	while (!(text = ddp_store_aborted(rank->store)))
		milliseconds(1);
	ddp_error_set(&rank->error, DDP_ERR_ABORTED, "%s", text);
	ddp_store_close(rank->store, false);
}

static void come_too_late(struct rank *rank)
{
	struct ddp_attempts list;

	do
		milliseconds(1);
	while (ddp_attempts_list(rank->identity.directory, &list, NULL) != 0 || list.count == 0 ||
	       !list.attempts[0].aborted);
	meet_once(rank);
}

/* Who was there all the time, but comes when it is over, is told so. */
TEST(test_abort_before)
{
	const char *directory = fresh_directory();

	begin_ranks(directory, false, 2, 1, 3, come_too_late);
	milliseconds(30);
	begin_few(directory, 0, 2, 3, 0);
	end(0, 3);
	ck_assert_int_eq(reports[2].status, DDP_ERR_ABORTED);
	SAID(2, "1 of 3 ranks did not arrive in 60 s: rank 2");
}

/* Two give up at once: all are told the same. */
TEST(test_first_abort_stands)
{
	const char *directory = fresh_directory();

	begin_ranks(directory, false, 0, 2, 5, look_for_abort);
	begin_ranks(directory, false, 2, 2, 5, give_up_in_fence);
	begin_ranks(directory, false, 4, 1, 5, look_for_abort);
	end(0, 5);
	ck_assert_str_eq(reports[0].text, reports[1].text);
	ck_assert_str_eq(reports[0].text, reports[4].text);
	SAID(0, "out of coffee");
}

static int gone(void *owner, struct ddp_error *error)
{
	const struct rank *rank = owner;

	for (int i = 0; i < 3; i++)
		if (i != rank->identity.rank && !is_waiting(rank->identity.directory, i))
			return 0;
	return ddp_error_set(error, DDP_ERR_PEER, "the neighbour is gone");
}

static void look_around(struct rank *rank)
{
	rank->watch = ddp_watch_start(20, gone, rank);
	meet_once(rank);
}

/* What the owner of the watch says ends the wait, and the others hear of it. */
TEST_LOOP(test_watch, 0, 3)
{
	const char *directory = fresh_directory();

	/* _i is the one that looks; rank 3 never comes. */
	for (int i = 0; i < 3; i++)
		begin_ranks(directory, false, i, 1, 4, i == _i ? look_around : meet_once);
	end(0, 3);
	for (int i = 0; i < 3; i++) {
		SAID(i, "the neighbour is gone");
		ck_assert_int_eq(reports[i].status, i == _i ? DDP_ERR_PEER : DDP_ERR_ABORTED);
	}
}

/* --- Which method ----------------------------------------------------------------------- */

static const struct {
	const char *name;
	const char *argument, *variable; /* DDP_METHOD */
	bool directory;
	int size;
	const char *method; /* NULL: refused */
	int status;
	const char *pieces;
} choices[] = {
	{"alone, with a directory", NULL, NULL, true, 1, "single", 0, NULL},
	{"alone", NULL, NULL, false, 1, "single", 0, NULL},
	{"none", NULL, NULL, false, 2, NULL, DDP_ERR_UNSUPPORTED,
	 "no rendezvous method works for these 2 ranks|file: no directory|pmix: PMIX_RANK is not set|single: the world has 2 ranks"},
	{"variable", NULL, "single", true, 1, "single", 0, NULL},
	{"argument over variable", "file", "single", true, 1, "file", 0, NULL},
	{"forced in vain", "single", NULL, true, 2, NULL, DDP_ERR_UNSUPPORTED,
	 "method single|the world has 2 ranks"},
	{"variable in vain", NULL, "file", false, 1, NULL, DDP_ERR_UNSUPPORTED,
	 "DDP_METHOD=file|srun --ddp found none|--ddp-rdzv=DIR"},
	{"unknown", "mpi", NULL, true, 1, NULL, DDP_ERR_ARGUMENT, "mpi|file, pmix and single"},
	{"unknown variable", NULL, "mpi", true, 1, NULL, DDP_ERR_ENVIRONMENT,
	 "DDP_METHOD=mpi|file, pmix and single"},
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

static const char *const alone[] = {"file", "single"};

/* What every method promises, seen by a world of one. */
TEST_ROWS(test_alone, alone)
{
	struct rank rank = make_rank(fresh_directory(), false, 0, 1);
	int value = 3;
	size_t size = sizeof(value);

	ck_assert_int_eq(
		ddp_store_open(&rank.store, alone[_i], &rank.identity, NULL, &rank.watch, NULL), 0);
	ck_assert_int_lt(ddp_store_get(rank.store, 0, "a", &value, &size, NULL), 0);
	ck_assert_int_eq(ddp_store_put(rank.store, "a", &value, sizeof(value), NULL), 0);
	ck_assert_int_lt(ddp_store_get(rank.store, 0, "a", &value, &size, NULL), 0);
	ck_assert_int_eq(ddp_store_fence(rank.store, &rank.watch, NULL), 0);
	value = 4;
	ck_assert_int_eq(ddp_store_put(rank.store, "b", &value, sizeof(value), NULL), 0);
	ck_assert_int_eq(ddp_store_get(rank.store, 0, "a", &value, &size, NULL), 0);
	ck_assert_int_eq(value, 3);
	ck_assert_int_eq(ddp_store_get(rank.store, 1, "a", &value, &size, NULL), DDP_ERR_ARGUMENT);
	ck_assert_int_eq(ddp_store_fence(rank.store, &rank.watch, NULL), 0);
	ck_assert_int_eq(ddp_store_get(rank.store, 0, "a", &value, &size, NULL), DDP_ERR_ARGUMENT);
	ck_assert_int_eq(ddp_store_get(rank.store, 0, "b", &value, &size, NULL), 0);
	ck_assert_int_eq(value, 4);
	ck_assert(!ddp_store_aborted(rank.store));
	ddp_store_abort(rank.store, "enough");
	ddp_store_abort(rank.store, "more");
	ck_assert_str_eq(ddp_store_aborted(rank.store), "rank 0 on n0: enough");
	ck_assert_int_eq(ddp_store_fence(rank.store, &rank.watch, &rank.error), DDP_ERR_ABORTED);
	ck_assert_str_eq(rank.error.text, "rank 0 on n0: enough");
	ddp_store_close(rank.store, false);
	ddp_store_close(NULL, true);
}

UNIT_MAIN("rendezvous", crowd_use)
