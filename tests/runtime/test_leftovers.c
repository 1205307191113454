/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks find where they meet: earlier attempts, other jobs, strange files, no directory, no
 * room.
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
#include "store/attempt.h"

/* --- What earlier attempts left --------------------------------------------------------- */

static void die_at_fence(struct rank *rank)
{
	rank->watch = ddp_watch_start(0.15, NULL, NULL);
	if (open_rank(rank) && put_values(rank, 0))
		ddp_store_fence(rank->store, &rank->watch, NULL);
	raise(SIGKILL);
}

static void wait_at_second(struct rank *rank)
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
	begin_ranks(directory, false, 0, 1, 4, die_open);
	end(0, 1);
}

/* Killed while waiting, so that nothing is given up. */
static void kill_ranks(int first, int count)
{
	for (int i = first; i < first + count; i++)
		kill(reports[i].process, SIGKILL);
	end(first, count);
}

static void leave_records(const char *directory)
{
	begin_ranks(directory, false, 0, 3, 4, meet_once);
	milliseconds(60);
	kill_ranks(0, 3);
}

static void leave_table(const char *directory)
{
	begin_ranks(directory, false, 0, 4, 4, die_after_one);
	end(0, 4);
}

static void leave_second_fence(const char *directory)
{
	begin_ranks(directory, false, 0, 3, 4, wait_at_second);
	begin_ranks(directory, false, 3, 1, 4, die_after_one);
	for (int i = 0; i < 4; i++)
		wait_for_stage(i, 1);
	milliseconds(20);
	kill_ranks(0, 4);
}

static void leave_abort(const char *directory)
{
	begin_ranks(directory, false, 0, 3, 4, die_at_fence);
	end(0, 3);
}

/* What lies there when the disk filled up, or a kill came in the middle of a write. */
static void leave_halves(const char *directory)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/00000000000000aa.new", directory);
	ck_assert_int_eq(ddp_file_mkdirs(path, 0700, NULL), 0);
	touch(path, "hello.tmp.17");
	snprintf(path, sizeof(path), "%s/00000000000000bb.ranks", directory);
	ck_assert_int_eq(ddp_file_mkdirs(path, 0700, NULL), 0);
	touch(path, "hello");
	touch(path, "0.1.tmp.17");
	touch(path, "0.1");
	touch(directory, "00000000000000bb.table.0.tmp.17");
	touch(directory, "00000000000000cc.table.0");
	touch(directory, "00000000000000cc.abort");
	touch(directory, "00000000000000dd.abort.3");
	touch(directory, "00000000000000ee.socket");
	milliseconds(20); /* so that it is older than the next attempt */
}

static void (*const leftovers[])(const char *) = {
	leave_nothing, leave_open,	   leave_records, leave_table,
	leave_abort,   leave_second_fence, leave_halves,
};

/* _i: which leftover; and whether rank 0 comes first, or last. */
TEST_LOOP(test_leftovers, 0, 2 * ROWS(leftovers))
{
	const char *directory = fresh_directory();
	bool last = _i % 2;

	leftovers[_i / 2](directory);
	memset(reports, 0, RANKS * sizeof(*reports));
	if (last) {
		begin_ranks(directory, false, 1, 3, 4, meet_twice);
		milliseconds(60);
	}
	begin_ranks(directory, false, 0, 1, 4, meet_twice);
	if (!last)
		begin_ranks(directory, false, 1, 3, 4, meet_twice);
	end(0, 4);
	succeeded(0, 4, 2);
	ck_assert_int_eq(unit_entries(directory), -1);
}

static void meet_before_a_socket(struct rank *rank)
{
	bool well = open_rank(rank) && meet(rank, 0);

	if (rank->identity.rank == 1)
		touch(rank->identity.directory, "00000000000000ee.socket");
	well = well && meet(rank, 1);
	ddp_store_close(rank->store, well);
}

/* The next world's ranks may have one already. */
TEST(test_socket_of_the_next_world_stays)
{
	const char *directory = fresh_directory();

	begin_ranks(directory, false, 0, 3, 3, meet_before_a_socket);
	end(0, 3);
	succeeded(0, 3, 2);
	ck_assert_int_eq(unit_entries(directory), 1);
}

/*
 * File times are the nodes', as on Lustre, and the clock of the node of an aborted attempt's rank 0 is an hour ahead: new
 * ranks do not join that attempt.
 */
TEST(test_aborted_attempt_from_the_future_is_passed_by)
{
	const struct timespec later[2] = {{.tv_sec = time(NULL) + 3600, .tv_nsec = 1},
					  {.tv_sec = time(NULL) + 3600, .tv_nsec = 1}};
	const char *directory = fresh_directory();
	struct ddp_attempts list;
	char path[PATH_MAX];

	leave_abort(directory);
	ck_assert_int_eq(ddp_attempts_list(directory, &list, NULL), 0);
	ck_assert(list.count == 1 && list.attempts[0].aborted);
	ddp_attempt_path(path, directory, list.attempts[0].number, ".ranks/hello");
	ck_assert_int_eq(utimensat(AT_FDCWD, path, later, 0), 0);
	memset(reports, 0, RANKS * sizeof(*reports));
	begin_ranks(directory, false, 1, 2, 3, meet_once);
	milliseconds(60);
	begin_ranks(directory, false, 0, 1, 3, meet_once);
	end(0, 3);
	succeeded(0, 3, 1);
}

static void begin_anew(struct rank *rank)
{
	wait_for_stage(0, 2);
	rank->watch = ddp_watch_start(3, NULL, NULL);
	meet_once(rank);
}

/* When the test began; 0: nobody is paused. */
static uint64_t began;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

/*
 * A process that is about to learn its age is paused, as by a busy host: for longer than any attempt
 * of this test is old.
 */
int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	if (clock == CLOCK_BOOTTIME && began > 0)
		milliseconds((int)((ddp_now() - began) / 1000000) + 100);
	return __real_clock_gettime(clock, time);
}

/*
 * A rank whose process is replaced by another one does not slip into the running attempt, _i: even
 * if it is paused where it asks which of the two is older.
 */
TEST_LOOP(test_began_anew, 0, 2)
{
	const char *directory = fresh_directory();

	began = _i ? ddp_now() : 0;
	begin_ranks(directory, false, 0, 2, 3, meet_often);
	begin_ranks(directory, false, 2, 1, 3, meet_twice);
	end(2, 1);
	memset(&reports[2], 0, sizeof(reports[2]));
	begin_ranks(directory, false, 2, 1, 3, begin_anew);
	end(2, 1);
	SAID(2, "found only an earlier attempt's rank 0, process ", " on n0");
	kill_ranks(0, 2);
}

static void take_over(struct rank *rank)
{
	wait_for_stage(0, 1);
	wait_for_stage(1, 1);
	open_rank(rank);
	while (!*reports[0].text || !*reports[1].text)
		milliseconds(1);
	ddp_store_close(rank->store, false);
}

/* Another rank 0 clears the directory under the feet of those that wait in it. */
TEST(test_taken_over)
{
	const char *directory = fresh_directory();
	struct rank other = make_rank(directory, false, 0, 3);

	begin_ranks(directory, false, 0, 2, 3, wait_and_tell);
	begin_ranks(directory, false, 2, 1, 3, die_after_one);
	other.report = &reports[3];
	snprintf(other.identity.job, sizeof(other.identity.job), "c.2.0");
	snprintf(other.identity.host, sizeof(other.identity.host), "n9");
	begin(&other, take_over);
	end(0, 4);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(reports[i].fences, 1);
		SAID(i, "another process (", " on n9) has started as rank 0",
		     "do two jobs use it?");
	}
}

/* --- A client that keeps listings --------------------------------------------------------- */

/*
 * An NFS client at its worst: files that other processes create in a directory show only when this process lists the
 * directory after it has removed a file from it.
 */
static struct {
	bool on, fresh;
	struct {
		char path[512];
		unsigned removals; /* from this directory */
		unsigned seen;	   /* removals at the last fresh listing, plus 1 */
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

TEST(test_arrivals_are_seen_though_the_listing_is_kept)
{
	const char *directory = fresh_directory();

	client.on = true;
	begin_ranks(directory, false, 1, 2, 3, meet_once);
	milliseconds(60);
	begin_ranks(directory, false, 0, 1, 3, meet_once);
	client.on = false;
	end(0, 3);
	succeeded(0, 3, 1);
}

/* End the wait once this process has removed a file from the directory of ranks. */
static int end_after_removal(void *owner, struct ddp_error *error)
{
	(void)owner;
	for (int i = 0; i < ROWS(client.listed); i++)
		if (strstr(client.listed[i].path, ".ranks") && client.listed[i].removals > 0)
			return ddp_error_set(error, DDP_ERR_STATE, "a file was removed");
	return 0;
}

/* Rank 0 alone lists the directory of ranks: the size of the world does not delay its changes. */
TEST(test_rank_0_of_a_large_world_changes_the_directory_of_ranks)
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

static void begin_job(const char *directory, int first, int world, const char *job)
{
	for (int i = 0; i < 3; i++) {
		struct rank rank = make_rank(directory, false, i, 3);

		rank.world = world;
		rank.report = &reports[first + i];
		rank.watch = ddp_watch_start(0.6, NULL, NULL);
		snprintf(rank.identity.job, sizeof(rank.identity.job), "%s", job);
		begin(&rank, meet_often);
	}
}

/* Different jobs are never mixed, and one of them at least is told. */
TEST_LOOP(test_two_jobs, 0, 8)
{
	const char *directory = fresh_directory();

	begin_job(directory, 0, 0, "c.1.0");
	milliseconds(_i);
	begin_job(directory, 3, 1, "c.2.0");
	end(0, 6);
	for (int i = 0; i < 6; i++)
		ck_assert_msg(!reports[i].mixed, "rank %d of job %d got the other's", i % 3, i / 3);
	for (int i = 0; i < 6; i += 3)
		if (reports[i].status == 0)
			ck_assert_int_eq(reports[i].fences, 4);
}

/*
 * One world launched twice at once, and nothing tells the two apart: whoever is well has met as
 * one world, each rank once, in which all that are well agree on who was there.
 */
TEST_LOOP(test_twice_at_once, 0, 4)
{
	const char *directory = fresh_directory();

	begin_job(directory, 0, 0, "c.1.0");
	begin_job(directory, 3, 1, "c.1.0");
	end(0, 6);
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

/* --- Those who do not fit --------------------------------------------------------------- */

TEST(test_foreign_files)
{
	static const char *const names[] = {"store",
					    "step",
					    "README",
					    "00000000000000AA.ranks",
					    "00000000000000aa",
					    "000000000000000a.ranks.d",
					    "0123456789abcdef.log",
					    "0123456789abcdef.pt.tmp.7"};
	const char *directory = fresh_directory();
	char path[PATH_MAX];

	ck_assert_int_eq(ddp_file_mkdirs(directory, 0700, NULL), 0);
	for (int i = 0; i < ROWS(names); i++)
		touch(directory, names[i]);
	snprintf(path, sizeof(path), "%s/0123456789abcdef.d", directory);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	touch(path, "notes");
	begin_ranks(directory, false, 0, 3, 3, meet_twice);
	end(0, 3);
	succeeded(0, 3, 2);
	ck_assert_int_eq(unit_entries(directory), ROWS(names) + 1);
	ck_assert_int_eq(unit_entries(path), 1);
}

TEST_LOOP(test_size, 0, 2)
{
	static const struct {
		int rank;
		const char *text;
	} rows[] = {{1, "rank 1 on n1 says the world has 8 ranks, rank 0 on n0 says 3"},
		    {6, "rank 6 on n6 says the world has 8 ranks, rank 0 on n0 says 3"}};
	const char *directory = fresh_directory();

	begin_ranks(directory, false, 0, 1, 3, meet_once);
	begin_ranks(directory, false, 2, 1, 3, meet_once);
	wait_for_record(directory, 2);
	begin_ranks(directory, false, rows[_i].rank, 1, 8, meet_once);
	end(0, RANKS);
	SAID(0, rows[_i].text);
	SAID(2, rows[_i].text);
	SAID(rows[_i].rank, rows[_i].text);
	ck_assert_int_eq(reports[0].status, DDP_ERR_MISMATCH);
	ck_assert_int_eq(reports[2].status, DDP_ERR_ABORTED);
}

static const struct {
	const char *name;
	int status;
	struct ddp_record record; /* differs in this from a good one */
	const char *pieces;
} forged[] = {
	{"release",
	 DDP_ERR_MISMATCH,
	 {.release = "9.9.9"},
	 "rank 1 on n1 has libddp 9.9.9|rank 0 on n0 has " PACKAGE_VERSION "|install one"},
	{"format", DDP_ERR_MISMATCH, {.format = 7}, "rank 1 on n1|format 7|format 1"},
	{"job", DDP_ERR_MISMATCH, {.job = 1}, "rank 1 on n1|different jobs"},
	{"damaged", DDP_ERR_FORMAT, {.pid = 666}, ".ranks/0.1: damaged, its checksum is wrong"},
	{"attempt", DDP_ERR_FORMAT, {.attempt = 1}, ".ranks/0.1|of this attempt"},
	{"fence", DDP_ERR_FORMAT, {.fence = 1}, ".ranks/0.1|at fence 0"},
	{"rank", DDP_ERR_FORMAT, {.rank = 2}, ".ranks/0.1: not the record of rank 1"},
};

TEST_ROWS(test_forged, forged)
{
	const char *directory = fresh_directory();
	struct rank zero = make_rank(directory, false, 0, 2),
		    one = make_rank(directory, false, 1, 2);
	struct ddp_record record;
	const struct ddp_record *want = &forged[_i].record;
	struct ddp_attempts list;

	ck_assert(open_rank(&zero));
	ck_assert_int_eq(ddp_attempts_list(directory, &list, NULL), 0);
	ck_assert_int_eq(ddp_record_init(&record, &one.identity, NULL), 0);
	if (*want->release)
		strcpy(record.release, want->release);
	record.format = want->format ? want->format : record.format;
	record.job = want->job ? want->job : record.job;
	record.pid = want->pid ? want->pid : record.pid;
	record.rank = want->rank ? want->rank : record.rank;
	record.attempt = want->attempt;
	record.fence = want->fence;
	ck_assert(put_record(&one, list.attempts[0].number, record));
	ck_assert_int_eq(ddp_store_fence(zero.store, &zero.watch, &zero.error), forged[_i].status);
	unit_has(forged[_i].name, zero.error.text, forged[_i].pieces);
	/* A rank that joined by then is told. */
	ck_assert_int_eq(ddp_attempts_list(directory, &list, NULL), 0);
	ck_assert(list.attempts[0].aborted);
	ddp_store_close(zero.store, false);
}

/* --- The directory ---------------------------------------------------------------------- */

TEST_LOOP(test_directory, 0, 7)
{
	static const struct {
		const char *name, *text;
	} rows[] = {{"link", "is a symbolic link"},
		    {"writable", "other users can write to"},
		    {"file", "Not a directory"},
		    {"own, missing", "No such file"},
		    {"foreign", "belongs to user 4711"},
		    {"in a foreign one", "belongs to user 4711, who could replace"},
		    {"in a group's", "is writable for group 4711"}};
	const char *directory = fresh_directory();
	struct rank rank = make_rank(directory, false, _i % 2, 2);
	char parent[512];

	snprintf(parent, sizeof(parent), "%s", directory);
	*strrchr(parent, '/') = '\0';
	ck_assert_int_eq(ddp_file_mkdirs(parent, 0700, NULL), 0);
	if (_i == 0)
		ck_assert_int_eq(symlink(base, directory), 0);
	if (_i == 2)
		touch(parent, strrchr(directory, '/') + 1);
	if (_i == 1 || _i == 4)
		ck_assert_int_eq(mkdir(directory, 0700), 0);
	if (_i == 1)
		ck_assert_int_eq(chmod(directory, 0770), 0);
	rank.identity.own = _i == 3;
	if (_i >= 4 && chown(_i == 4 ? directory : parent, _i == 6 ? geteuid() : 4711, 4711) < 0)
		return; /* not root: there is nobody else whose it could be */
	if (_i == 6)
		ck_assert_int_eq(chmod(parent, 0770), 0);
	ck_assert_msg(!open_rank(&rank), "%s", rows[_i].name);
	ck_assert_int_eq(rank.error.status, DDP_ERR_FILE);
	UNIT_SAYS(rows[_i].name, rank.error.text, rows[_i].text, _i < 5 ? directory : parent);
}

TEST_LOOP(test_removed, 0, 2)
{
	const char *directory = fresh_directory();

	begin_ranks(directory, _i, 0, 0, 3, NULL);
	if (_i)
		ck_assert_int_eq(ddp_file_mkdirs(directory, 0700, NULL), 0);
	begin_ranks(directory, _i, 0, 2, 3, wait_and_tell);
	begin_ranks(directory, _i, 2, 1, 3, die_after_one);
	for (int i = 0; i < 3; i++)
		wait_for_stage(i, 1);
	milliseconds(20);
	for (int i = 0; i < 3; i++)
		unit_remove(directory);
	end(0, 3);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(reports[i].status, DDP_ERR_FILE);
		SAID(i, "was removed while the ranks were using it", directory);
	}
}

/* A file system of our own with little room, where that is allowed. */
static bool mount_small(const char *path)
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

/* What it has to give does not fit. */
static void fill_disk(struct rank *rank)
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

/* _i is the rank that has too much; the limit of a process does where mounting is forbidden. */
TEST_LOOP(test_full_disk, 0, 3)
{
	const char *directory = fresh_directory();
	struct rank rank;
	bool mounted;

	ck_assert_int_eq(ddp_file_mkdirs(directory, 0700, NULL), 0);
	mounted = mount_small(directory);
	for (int i = 1; i < 3; i++)
		begin_ranks(directory, true, (_i + i) % 3, 1, 3, meet_once);
	for (int i = 1; i < 3 && _i > 0; i++)
		wait_for_record(directory, (_i + i) % 3);
	rank = make_rank(directory, true, _i, 3);
	rank.world = !mounted;
	begin(&rank, fill_disk);
	end(0, 3);
	SAID(_i, mounted ? "No space left on device" : "File too large", directory);
	ck_assert_int_eq(reports[_i].status, DDP_ERR_FILE);
	for (int i = 0; i < 3; i++)
		if (i != _i) {
			/* It may have met the full disk itself. */
			ck_assert_msg(reports[i].status == DDP_ERR_ABORTED ||
					      reports[i].status == DDP_ERR_FILE,
				      "rank %d: %s", i, reports[i].text);
			SAID(i, directory);
		}
	if (mounted)
		umount2(directory, MNT_DETACH);
}

TEST(test_read_only)
{
	const char *directory = fresh_directory();

	ck_assert_int_eq(ddp_file_mkdirs(directory, 0700, NULL), 0);
	if (!mount_small(directory))
		return;
	ck_assert_int_eq(
		mount("tmpfs", directory, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=64k,mode=700"), 0);
	begin_ranks(directory, true, 0, 1, 2, meet_once);
	end(0, 1);
	ck_assert_int_eq(reports[0].status, DDP_ERR_FILE);
	SAID(0, "Read-only file system", directory);
	umount2(directory, MNT_DETACH);
}

UNIT_MAIN("leftovers", crowd_use)
