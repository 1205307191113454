/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_leftovers.c - rendezvous directories that have files of earlier meetings or other jobs, have
 * foreign files or wrong permissions, or are on a full file system
 */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "crowd.h"
#include "store/meeting.h"

/* --- Files of earlier meetings -------------------------------------------------------------- */

static void die_at_fence(struct rank *rank)
{
	rank->watch = ddp_watch_start(0.15, NULL, NULL);
	if (open_rank(rank) && put_values(rank, 0))
		ddp_store_fence(rank->store, &rank->watch, NULL);
	raise(SIGKILL);
}

static void wait_in_second_fence(struct rank *rank)
{
	if (open_rank(rank) && meet(rank, 0) && put_values(rank, 1))
		ddp_store_fence(rank->store, &rank->watch, NULL);
}

static void leave_nothing(const char *directory)
{
	(void)directory;
}

static void leave_open(const char *directory)
{
	start_ranks(directory, false, 0, 1, 4, die_open);
	wait_ranks(0, 1);
}

/* Kills ranks while they wait, so that they cannot report an abort. */
static void kill_ranks(int first, int count)
{
	for (int i = first; i < first + count; i++)
		kill(reports[i].process, SIGKILL);
	wait_ranks(first, count);
}

static void leave_records(const char *directory)
{
	start_ranks(directory, false, 0, 3, 4, meet_once);
	sleep_ms(60);
	kill_ranks(0, 3);
}

static void leave_table(const char *directory)
{
	start_ranks(directory, false, 0, 4, 4, die_after_one);
	wait_ranks(0, 4);
}

static void leave_second_fence(const char *directory)
{
	start_ranks(directory, false, 0, 3, 4, wait_in_second_fence);
	start_ranks(directory, false, 3, 1, 4, die_after_one);
	for (int i = 0; i < 4; i++)
		wait_for_stage(i, 1);
	sleep_ms(20);
	kill_ranks(0, 4);
}

static void leave_abort(const char *directory)
{
	start_ranks(directory, false, 0, 3, 4, die_at_fence);
	wait_ranks(0, 3);
}

/* Creates the files that remain if the disk fills up or a rank is killed during a write. */
static void leave_incomplete_files(const char *directory)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/00000000000000aa.new", directory);
	ck_assert_int_eq(ddp_file_mkdirs(path, 0700, NULL), 0);
	create_file(path, "hello.tmp.17");
	snprintf(path, sizeof(path), "%s/00000000000000bb.ranks", directory);
	ck_assert_int_eq(ddp_file_mkdirs(path, 0700, NULL), 0);
	create_file(path, "hello");
	create_file(path, "0.1.tmp.17");
	create_file(path, "0.1");
	create_file(directory, "00000000000000bb.table.0.tmp.17");
	create_file(directory, "00000000000000cc.table.0");
	create_file(directory, "00000000000000cc.abort");
	create_file(directory, "00000000000000dd.abort.3");
	create_file(directory, "00000000000000dd.abort.3.tmp.17");
	create_file(directory, "00000000000000dd.now");
	create_file(directory, "00000000000000ee.socket");
	sleep_ms(20); /* so that the files are older than the next meeting */
}

static void (*const leftovers[])(const char *) = {
	leave_nothing, leave_open,	   leave_records,	   leave_table,
	leave_abort,   leave_second_fence, leave_incomplete_files,
};

/* _i / 2 is the index of the leftover. If _i is odd, rank 0 starts last. */
TEST_LOOP(test_leftovers, 0, 2 * ROWS(leftovers))
{
	const char *directory = fresh_directory();
	bool last = _i % 2;

	leftovers[_i / 2](directory);
	memset(reports, 0, RANKS * sizeof(*reports));
	if (last) {
		start_ranks(directory, false, 1, 3, 4, meet_twice);
		sleep_ms(60);
	}
	start_ranks(directory, false, 0, 1, 4, meet_twice);
	if (!last)
		start_ranks(directory, false, 1, 3, 4, meet_twice);
	wait_ranks(0, 4);
	expect_success(0, 4, 2);
	ck_assert_int_eq(unit_entries(directory), -1);
}

static void meet_before_a_socket(struct rank *rank)
{
	bool well = open_rank(rank) && meet(rank, 0);

	if (rank->identity.rank == 1)
		create_file(rank->identity.directory, "00000000000000ee.socket");
	well = well && meet(rank, 1);
	ddp_store_close(rank->store, well);
}

/*
 * The end of a world does not remove a socket of another rank in the directory, because the socket
 * may belong to the next world.
 */
TEST(test_socket_of_the_next_world_stays)
{
	const char *directory = fresh_directory();

	start_ranks(directory, false, 0, 3, 3, meet_before_a_socket);
	wait_ranks(0, 3);
	expect_success(0, 3, 2);
	ck_assert_int_eq(unit_entries(directory), 1);
}

/*
 * The hello file of an aborted meeting is dated an hour ahead. This happens on file systems that
 * use the node's clock, such as Lustre. New ranks must not join that meeting.
 */
TEST(test_aborted_meeting_dated_ahead_is_ignored)
{
	const struct timespec later[2] = {{.tv_sec = time(NULL) + 3600, .tv_nsec = 1},
					  {.tv_sec = time(NULL) + 3600, .tv_nsec = 1}};
	const char *directory = fresh_directory();
	struct ddp_meetings list;
	char path[PATH_MAX];

	leave_abort(directory);
	ck_assert_int_eq(ddp_meetings_list(directory, &list, NULL), 0);
	ck_assert(list.count == 1 && list.meetings[0].aborted);
	ddp_meeting_path(path, directory, list.meetings[0].number, ".ranks/hello");
	ck_assert_int_eq(utimensat(AT_FDCWD, path, later, 0), 0);
	memset(reports, 0, RANKS * sizeof(*reports));
	start_ranks(directory, false, 1, 2, 3, meet_once);
	sleep_ms(60);
	start_ranks(directory, false, 0, 1, 3, meet_once);
	wait_ranks(0, 3);
	expect_success(0, 3, 1);
}

static void restart_rank(struct rank *rank)
{
	wait_for_stage(0, 2);
	rank->watch = ddp_watch_start(3, NULL, NULL);
	meet_once(rank);
}

/* Start of the test. 0: __wrap_clock_gettime() does not pause. */
static uint64_t began;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

/*
 * Pauses a process that reads its start time, as a busy host might do. The pause is longer than the
 * age of any meeting of this test.
 */
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	if (clock == CLOCK_BOOTTIME && began > 0)
		sleep_ms((int)((ddp_now() - began) / 1000000) + 100);
	return __real_clock_gettime(clock, time);
}

/*
 * A rank's process has ended and a new process of the rank starts: it does not join the running
 * meeting. With _i = 1, the new process is paused before it compares its start time with the
 * meeting's.
 */
TEST_LOOP(test_restarted_rank_does_not_join, 0, 2)
{
	const char *directory = fresh_directory();

	began = _i ? ddp_now() : 0;
	start_ranks(directory, false, 0, 2, 3, meet_four_times);
	start_ranks(directory, false, 2, 1, 3, meet_twice);
	wait_ranks(2, 1);
	memset(&reports[2], 0, sizeof(reports[2]));
	start_ranks(directory, false, 2, 1, 3, restart_rank);
	wait_ranks(2, 1);
	EXPECT_ERROR(2, "found only the files of an earlier meeting's rank 0, process ", " on n0");
	kill_ranks(0, 2);
}

static void start_as_other_rank_0(struct rank *rank)
{
	wait_for_stage(0, 1);
	wait_for_stage(1, 1);
	open_rank(rank);
	while (!*reports[0].text || !*reports[1].text)
		sleep_ms(1);
	ddp_store_close(rank->store, false);
}

/*
 * A process of another job starts as rank 0 and clears the directory in which ranks wait. The
 * waiting ranks fail and name that process.
 */
TEST(test_other_rank_0_takes_the_directory)
{
	const char *directory = fresh_directory();
	struct rank other = make_rank(directory, false, 0, 3);

	start_ranks(directory, false, 0, 2, 3, meet_twice_then_fail);
	start_ranks(directory, false, 2, 1, 3, die_after_one);
	other.report = &reports[3];
	snprintf(other.identity.job, sizeof(other.identity.job), "c.2.0");
	snprintf(other.identity.host, sizeof(other.identity.host), "n9");
	start_rank(&other, start_as_other_rank_0);
	wait_ranks(0, 4);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(reports[i].fences, 1);
		EXPECT_ERROR(i, "another process (", " on n9) has started as rank 0",
			     "Give each job its own directory.");
	}
}

/* --- A client with cached listings -------------------------------------------------------- */

/*
 * The worst case of an NFS client: a process sees other processes' new files in a directory only if
 * it removes a file from the directory and then lists it.
 */
static struct {
	bool on, fresh;
	struct {
		char path[512];
		unsigned removals; /* files that this process has removed from the directory */
		unsigned seen;	   /* value of [removals] at the last fresh listing, plus 1 */
	} listed[8];
	char known[64][64];
	int count;
} client;

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
struct dirent *__real_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);

DIR *__wrap_opendir(const char *path)
{
	int i = 0;

	if (!client.on)
		return __real_opendir(path);
	while (*client.listed[i].path && strcmp(client.listed[i].path, path) != 0)
		i++;
	snprintf(client.listed[i].path, sizeof(client.listed[i].path), "%s", path);
	client.fresh = client.listed[i].seen != client.listed[i].removals + 1;
	client.listed[i].seen = client.listed[i].removals + 1;
	return __real_opendir(path);
}

struct dirent *__wrap_readdir(DIR *dir)
{
	struct dirent *entry;

	while ((entry = __real_readdir(dir)) && client.on) {
		int i = 0;

		while (i < client.count && strcmp(client.known[i], entry->d_name) != 0)
			i++;
		if (i < client.count)
			break;
		if (client.fresh) {
			snprintf(client.known[client.count++], 64, "%.63s", entry->d_name);
			break;
		}
	}
	return entry;
}

int __wrap_unlink(const char *path)
{
	for (int i = 0; i < ROWS(client.listed); i++) {
		size_t length = strlen(client.listed[i].path);

		if (length > 0 && strrchr(path, '/') == path + length &&
		    strncmp(path, client.listed[i].path, length) == 0)
			client.listed[i].removals++;
	}
	return __real_unlink(path);
}

TEST(test_arrivals_are_seen_with_cached_listings)
{
	const char *directory = fresh_directory();

	client.on = true;
	start_ranks(directory, false, 1, 2, 3, meet_once);
	sleep_ms(60);
	start_ranks(directory, false, 0, 1, 3, meet_once);
	client.on = false;
	wait_ranks(0, 3);
	expect_success(0, 3, 1);
}

/* Ends the wait after this process has removed a file from the meeting's .ranks directory. */
static int end_after_removal(void *owner, struct ddp_error *error)
{
	(void)owner;
	for (int i = 0; i < ROWS(client.listed); i++)
		if (strstr(client.listed[i].path, ".ranks") && client.listed[i].removals > 0)
			return ddp_error_set(error, DDP_ERR_STATE, "a file was removed");
	return 0;
}

/*
 * Rank 0 removes a file to get a current listing, in large worlds too. No other rank lists this
 * directory.
 */
TEST(test_rank_0_of_a_large_world_gets_a_current_listing)
{
	struct rank zero = make_rank(fresh_directory(), false, 0, 20000);

	zero.report = &reports[0];
	zero.watch = ddp_watch_start(30, end_after_removal, NULL);
	ck_assert(open_rank(&zero));
	client.on = true;
	ck_assert_int_eq(ddp_store_fence(zero.store, &zero.watch, &zero.error), DDP_ERR_STATE);
	client.on = false;
	ddp_store_close(zero.store, false);
}

/* --- Two jobs --------------------------------------------------------------------------- */

static void start_job(const char *directory, int first, int world, const char *job)
{
	for (int i = 0; i < 3; i++) {
		struct rank rank = make_rank(directory, false, i, 3);

		rank.world = world;
		rank.report = &reports[first + i];
		rank.watch = ddp_watch_start(0.6, NULL, NULL);
		snprintf(rank.identity.job, sizeof(rank.identity.job), "%s", job);
		start_rank(&rank, meet_four_times);
	}
}

/*
 * Two jobs use one directory. No rank gets a value of the other job, and if a job does not fail, it
 * completes all fences.
 */
TEST_LOOP(test_two_jobs, 0, 8)
{
	const char *directory = fresh_directory();

	start_job(directory, 0, 0, "c.1.0");
	sleep_ms(_i);
	start_job(directory, 3, 1, "c.2.0");
	wait_ranks(0, 6);
	for (int i = 0; i < 6; i++)
		ck_assert_msg(!reports[i].mixed, "rank %d of job %d got the other's", i % 3, i / 3);
	for (int i = 0; i < 6; i += 3)
		if (reports[i].status == 0)
			ck_assert_int_eq(reports[i].fences, 4);
}

/*
 * Two identical copies of a world start at the same time. The ranks that succeed have met as one
 * world, which has one process per rank, and all agree on that process.
 */
TEST_LOOP(test_same_world_started_twice, 0, 4)
{
	const char *directory = fresh_directory();

	start_job(directory, 0, 0, "c.1.0");
	start_job(directory, 3, 1, "c.1.0");
	wait_ranks(0, 6);
	for (int i = 0; i < 6; i++) {
		const struct report *mine = &reports[i];

		ck_assert(!mine->torn);
		ck_assert(mine->status == 0 || *mine->text);
		if (mine->status < 0)
			continue;
		ck_assert_int_eq(mine->worlds[i % 3], 'a' + i / 3);
		for (int rank = 0; rank < 3; rank++) {
			const struct report *other =
				&reports[(mine->worlds[rank] - 'a') * 3 + rank];

			if (other->status == 0)
				ck_assert_str_eq(other->worlds, mine->worlds);
		}
	}
}

/* --- Foreign files and records ---------------------------------------------------------- */

TEST(test_foreign_files)
{
	static const char *const names[] = {"store",
					    "step",
					    "README",
					    "00000000000000AA.ranks",
					    "00000000000000aa",
					    "000000000000000a.ranks.d",
					    "0123456789abcdef.log",
					    "0000000000000001.",
					    "000000000000001.ranks",
					    "00000000000000001.ranks",
					    "0000000000000001.abort.txt",
					    "0000000000000001.table.",
					    "0000000000000001.table.01",
					    "0000000000000001.table.4294967296",
					    "0123456789abcdef.pt.tmp.7"};
	const char *directory = fresh_directory();
	char path[PATH_MAX];

	ck_assert_int_eq(ddp_file_mkdirs(directory, 0700, NULL), 0);
	for (int i = 0; i < ROWS(names); i++)
		create_file(directory, names[i]);
	snprintf(path, sizeof(path), "%s/0123456789abcdef.d", directory);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	create_file(path, "notes");
	start_ranks(directory, false, 0, 3, 3, meet_twice);
	wait_ranks(0, 3);
	expect_success(0, 3, 2);
	ck_assert_int_eq(unit_entries(directory), ROWS(names) + 1);
	ck_assert_int_eq(unit_entries(path), 1);
}

TEST_LOOP(test_different_world_sizes, 0, 2)
{
	static const struct {
		int rank;
		const char *text;
	} rows[] = {{1, "rank 1 on n1 says the world has 8 ranks, but rank 0 on n0 says 3"},
		    {6, "rank 6 on n6 says the world has 8 ranks, but rank 0 on n0 says 3"}};
	const char *directory = fresh_directory();

	start_ranks(directory, false, 0, 1, 3, meet_once);
	start_ranks(directory, false, 2, 1, 3, meet_once);
	wait_for_record(directory, 2);
	start_ranks(directory, false, rows[_i].rank, 1, 8, meet_once);
	wait_ranks(0, RANKS);
	EXPECT_ERROR(0, rows[_i].text);
	EXPECT_ERROR(2, rows[_i].text);
	EXPECT_ERROR(rows[_i].rank, rows[_i].text);
	ck_assert_int_eq(reports[0].status, DDP_ERR_MISMATCH);
	ck_assert_int_eq(reports[2].status, DDP_ERR_ABORTED);
}

static const struct {
	const char *name;
	int status;
	struct ddp_record record; /* values that differ from a correct record */
	const char *pieces;
} wrong_records[] = {
	{"release",
	 DDP_ERR_MISMATCH,
	 {.release = "9.9.9"},
	 "rank 1 on n1 has libddp 9.9.9|rank 0 on n0 has " PACKAGE_VERSION "|Install one"},
	{"format", DDP_ERR_MISMATCH, {.format = 7}, "rank 1 on n1|format 7|format 1"},
	{"job", DDP_ERR_MISMATCH, {.job = 1}, "rank 1 on n1|different jobs"},
	{"damaged", DDP_ERR_FORMAT, {.pid = 666}, ".ranks/0.1 is damaged: the checksum is wrong"},
	{"meeting", DDP_ERR_FORMAT, {.meeting = 1}, ".ranks/0.1|of this meeting"},
	{"fence", DDP_ERR_FORMAT, {.fence = 1}, ".ranks/0.1|at fence 0"},
	{"rank", DDP_ERR_FORMAT, {.rank = 2}, ".ranks/0.1 is not the record of rank 1"},
};

TEST_ROWS(test_wrong_record, wrong_records)
{
	const char *directory = fresh_directory();
	struct rank zero = make_rank(directory, false, 0, 2),
		    one = make_rank(directory, false, 1, 2);
	struct ddp_record record;
	const struct ddp_record *want = &wrong_records[_i].record;
	struct ddp_meetings list;

	ck_assert(open_rank(&zero));
	ck_assert_int_eq(ddp_meetings_list(directory, &list, NULL), 0);
	ck_assert_int_eq(ddp_record_init(&record, &one.identity, NULL), 0);
	if (*want->release)
		strcpy(record.release, want->release);
	record.format = want->format ? want->format : record.format;
	record.job = want->job ? want->job : record.job;
	record.pid = want->pid ? want->pid : record.pid;
	record.rank = want->rank ? want->rank : record.rank;
	record.meeting = want->meeting;
	record.fence = want->fence;
	ck_assert(put_record(&one, list.meetings[0].number, record));
	ck_assert_int_eq(ddp_store_fence(zero.store, &zero.watch, &zero.error),
			 wrong_records[_i].status);
	unit_has(wrong_records[_i].name, zero.error.text, wrong_records[_i].pieces);
	/* The meeting is marked as aborted, so that ranks which have joined it fail too. */
	ck_assert_int_eq(ddp_meetings_list(directory, &list, NULL), 0);
	ck_assert(list.meetings[0].aborted);
	ddp_store_close(zero.store, false);
}

/* --- The directory ---------------------------------------------------------------------- */

TEST_LOOP(test_directory, 0, 5)
{
	static const struct {
		const char *name, *text;
	} rows[] = {{"link", "is a symbolic link"},
		    {"writable", "other users can write to"},
		    {"file", "Not a directory"},
		    {"own, missing", "No such file"},
		    {"in a foreign one", "belongs to user 4711, who could replace"}};
	const char *directory = fresh_directory();
	struct rank rank = make_rank(directory, false, _i % 2, 2);
	char parent[512];

	snprintf(parent, sizeof(parent), "%s", directory);
	*strrchr(parent, '/') = '\0';
	ck_assert_int_eq(ddp_file_mkdirs(parent, 0700, NULL), 0);
	if (_i == 0)
		ck_assert_int_eq(symlink(base, directory), 0);
	if (_i == 2)
		create_file(parent, strrchr(directory, '/') + 1);
	if (_i == 1)
		ck_assert(mkdir(directory, 0700) == 0 && chmod(directory, 0770) == 0);
	rank.identity.own = _i == 3;
	if (_i == 4 && chown(parent, 4711, 4711) < 0)
		return; /* only root can change the directory's owner */
	ck_assert_msg(!open_rank(&rank), "%s", rows[_i].name);
	ck_assert_int_eq(rank.error.status, DDP_ERR_FILE);
	UNIT_SAYS(rows[_i].name, rank.error.text, rows[_i].text, _i < 4 ? directory : parent);
}

TEST_LOOP(test_directory_removed, 0, 2)
{
	const char *directory = fresh_directory();

	start_ranks(directory, _i, 0, 0, 3, NULL);
	if (_i)
		ck_assert_int_eq(ddp_file_mkdirs(directory, 0700, NULL), 0);
	start_ranks(directory, _i, 0, 2, 3, meet_twice_then_fail);
	start_ranks(directory, _i, 2, 1, 3, die_after_one);
	for (int i = 0; i < 3; i++)
		wait_for_stage(i, 1);
	sleep_ms(20);
	for (int i = 0; i < 3; i++)
		unit_remove(directory);
	wait_ranks(0, 3);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(reports[i].status, DDP_ERR_FILE);
		EXPECT_ERROR(i, "was removed while the ranks were using it", directory);
	}
}

/*
 * Mounts a file system of 64 KiB at [path] in a private namespace. Returns false if the kernel does
 * not permit that.
 */
static bool mount_64_kib(const char *path)
{
	uid_t user = getuid();
	char map[64];
	int fd;

	if (unshare(CLONE_NEWNS) < 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
			return false;
		fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
		snprintf(map, sizeof(map), "0 %u 1", user);
		if (fd < 0 || write(fd, map, strlen(map)) < 0)
			return false;
		close(fd);
	}
	(void)mount("none", "/", "none", MS_REC | MS_PRIVATE, "");
	return mount("tmpfs", path, "tmpfs", 0, "size=64k,mode=700") == 0;
}

/*
 * Puts a value that does not fit on the disk. Without a mount, the value exceeds the process's file
 * size limit.
 */
static void put_too_much(struct rank *rank)
{
	static uint8_t much[65000];
	struct rlimit limit = {4096, 4096};

	if (!open_rank(rank))
		return;
	if (rank->world) {
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &limit);
	}
	memset(much, 1, sizeof(much));
	if (ddp_store_put(rank->store, "much", much, sizeof(much), &rank->error) == 0)
		ddp_store_fence(rank->store, &rank->watch, &rank->error);
	ddp_store_close(rank->store, false);
}

/*
 * Rank _i puts a value that does not fit. If mounting is not permitted, a file size limit replaces
 * the full file system.
 */
TEST_LOOP(test_full_disk, 0, 3)
{
	const char *directory = fresh_directory();
	struct rank rank;
	bool mounted;

	ck_assert_int_eq(ddp_file_mkdirs(directory, 0700, NULL), 0);
	mounted = mount_64_kib(directory);
	for (int i = 1; i < 3; i++)
		start_ranks(directory, true, (_i + i) % 3, 1, 3, meet_once);
	for (int i = 1; i < 3 && _i > 0; i++)
		wait_for_record(directory, (_i + i) % 3);
	rank = make_rank(directory, true, _i, 3);
	rank.world = !mounted;
	start_rank(&rank, put_too_much);
	wait_ranks(0, 3);
	EXPECT_ERROR(_i, mounted ? "No space left on device" : "File too large", directory);
	ck_assert_int_eq(reports[_i].status, DDP_ERR_FILE);
	for (int i = 0; i < 3; i++)
		if (i != _i) {
			/* this rank's own write may have failed too */
			ck_assert_msg(reports[i].status == DDP_ERR_ABORTED ||
					      reports[i].status == DDP_ERR_FILE,
				      "rank %d: %s", i, reports[i].text);
			EXPECT_ERROR(i, directory);
		}
	if (mounted)
		umount2(directory, MNT_DETACH);
}

TEST(test_read_only)
{
	const char *directory = fresh_directory();

	ck_assert_int_eq(ddp_file_mkdirs(directory, 0700, NULL), 0);
	if (!mount_64_kib(directory))
		return;
	ck_assert_int_eq(
		mount("tmpfs", directory, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=64k,mode=700"), 0);
	start_ranks(directory, true, 0, 1, 2, meet_once);
	wait_ranks(0, 1);
	ck_assert_int_eq(reports[0].status, DDP_ERR_FILE);
	EXPECT_ERROR(0, "Read-only file system", directory);
	umount2(directory, MNT_DETACH);
}

UNIT_MAIN("leftovers", crowd_use)
