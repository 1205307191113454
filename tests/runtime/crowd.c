/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "crowd.h"
#include "store/meeting.h"

char base[256];
struct report *reports;

/* --- Worlds ----------------------------------------------------------------------------- */

static void set_up(void)
{
	snprintf(base, sizeof(base), "%s/ddp-crowd.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(base))
		abort();
	reports = mmap(NULL, RANKS * sizeof(*reports), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (reports == MAP_FAILED)
		abort();
}

static void tear_down(void)
{
	munmap(reports, RANKS * sizeof(*reports));
	unit_remove(base);
}

void crowd_use(TCase *tcase)
{
	tcase_add_unchecked_fixture(tcase, set_up, tear_down);
}

const char *fresh_directory(void)
{
	static char path[512];
	static int count;

	memset(reports, 0, RANKS * sizeof(*reports));
	snprintf(path, sizeof(path), "%s/%ld-%d/.ddp/c.1.0.0", base, (long)getpid(), count++);
	return path;
}

struct rank make_rank(const char *directory, bool own, int number, int size)
{
	struct rank rank = {.report = &reports[number]};

	rank.identity = (struct ddp_identity){.rank = number, .size = size, .own = own};
	snprintf(rank.identity.job, sizeof(rank.identity.job), "c.1.0");
	snprintf(rank.identity.host, sizeof(rank.identity.host), "n%d", number);
	snprintf(rank.identity.directory, sizeof(rank.identity.directory), "%s", directory);
	rank.watch = ddp_watch_start(20, NULL, NULL);
	return rank;
}

void start_rank(struct rank *rank, rank_function run)
{
	pid_t parent = getpid(), process = fork();

	ck_assert_int_ge(process, 0);
	if (process > 0) {
		rank->report->process = process;
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	run(rank);
	rank->report->status = rank->error.status;
	snprintf(rank->report->text, sizeof(rank->report->text), "%s", rank->error.text);
	_exit(0);
}

void wait_ranks(int first, int count)
{
	for (int i = first; i < first + count; i++)
		if (reports[i].process > 0)
			ck_assert_int_eq(waitpid(reports[i].process, &reports[i].exit, 0),
					 reports[i].process);
}

void start_ranks(const char *directory, bool own, int first, int count, int size, rank_function run)
{
	for (int i = first; i < first + count; i++) {
		struct rank rank = make_rank(directory, own, i, size);

		start_rank(&rank, run);
	}
}

void sleep_ms(int count)
{
	struct timespec time = {count / 1000, count % 1000 * 1000000};

	nanosleep(&time, NULL);
}

static int stage_of(int rank)
{
	return __atomic_load_n(&reports[rank].stage, __ATOMIC_ACQUIRE);
}

static void set_stage(struct rank *rank, int stage)
{
	__atomic_store_n(&rank->report->stage, stage, __ATOMIC_RELEASE);
}

void wait_for_stage(int rank, int stage)
{
	while (stage_of(rank) < stage)
		sleep_ms(1);
}

bool is_waiting(const char *directory, int rank)
{
	struct ddp_meetings list;
	char path[PATH_MAX];

	if (ddp_meetings_list(directory, &list, NULL) != 0 || list.count == 0)
		return false;
	ddp_meeting_path(path, directory, list.meetings[0].number,
			 rank == 0 ? ".ranks/hello" : ".ranks/0.%d", rank);
	return access(path, F_OK) == 0;
}

void wait_for_record(const char *directory, int rank)
{
	while (!is_waiting(directory, rank))
		sleep_ms(1);
}

void expect_error(int rank, const char *const *pieces)
{
	char row[32];

	snprintf(row, sizeof(row), "rank %d", rank);
	ck_assert_msg(reports[rank].status < 0, "%s succeeded", row);
	unit_pieces(row, reports[rank].text, pieces);
}

void expect_success(int first, int count, int fences)
{
	char all[4096] = "";
	size_t used = 0;

	for (int i = first; i < first + count && used < sizeof(all); i++)
		used += (size_t)snprintf(all + used, sizeof(all) - used, " rank %d: %d fences, %s;",
					 i, reports[i].fences, reports[i].text);
	for (int i = first; i < first + count; i++) {
		ck_assert_msg(reports[i].status == 0, "%s", all);
		ck_assert_int_eq(reports[i].exit, 0);
		ck_assert_int_eq(reports[i].fences, fences);
		ck_assert(!reports[i].mixed);
	}
}

/* --- Functions of ranks ------------------------------------------------------------------- */

bool open_rank(struct rank *rank)
{
	return ddp_store_open(&rank->store, "file", &rank->identity, NULL, &rank->watch,
			      &rank->error) == 0;
}

/*
 * Size of the value that [rank] puts at [fence]. Some values are empty, and some nearly fill a
 * record.
 */
static size_t value_size(int rank, int fence)
{
	static const size_t sizes[] = {0, 1, 100, 5000, 60000};

	return sizes[(rank + fence) % 5];
}

static uint8_t value_byte(int world, int rank, int fence, size_t at)
{
	return (uint8_t)(world * 101 + rank * 31 + fence * 7 + (int)at);
}

bool put_values(struct rank *rank, int fence)
{
	static uint8_t value[65536];
	size_t size = value_size(rank->identity.rank, fence);
	uint32_t number = (uint32_t)(1000 * fence + rank->identity.rank);

	for (size_t i = 0; i < size; i++)
		value[i] = value_byte(rank->world, rank->identity.rank, fence, i);
	return ddp_store_put(rank->store, "value", value, size, &rank->error) == 0 &&
	       ddp_store_put(rank->store, "number", &number, sizeof(number), &rank->error) == 0;
}

/* Returns the world in which rank [other] put this value; -1: neither world. */
static int world_of(const uint8_t *value, size_t size, int other, int fence)
{
	for (int world = 0; world < 2; world++) {
		size_t same = 0;

		while (same < size && value[same] == value_byte(world, other, fence, same))
			same++;
		if (same == size)
			return world;
	}
	return -1;
}

static void check_world(struct rank *rank, int other, int world)
{
	char *seen = &rank->report->worlds[other], name = (char)('a' + world);

	if (world != rank->world)
		rank->report->mixed = true;
	if (world < 0 || (*seen && *seen != name))
		rank->report->torn = true;
	*seen = name;
}

static bool check_value(struct rank *rank, int other, int fence)
{
	static uint8_t value[65536];
	size_t size = sizeof(value);
	uint32_t number = 0;

	if (ddp_store_get(rank->store, other, "value", value, &size, &rank->error) < 0)
		return false;
	if (size != value_size(other, fence))
		rank->report->torn = rank->report->mixed = true;
	if (size > 0)
		check_world(rank, other, world_of(value, size, other, fence));
	size = sizeof(number);
	if (ddp_store_get(rank->store, other, "number", &number, &size, &rank->error) < 0)
		return false;
	if (size != sizeof(number) || number != (uint32_t)(1000 * fence + other))
		rank->report->torn = rank->report->mixed = true;
	return true;
}

bool meet(struct rank *rank, int fence)
{
	if (!put_values(rank, fence) ||
	    ddp_store_fence(rank->store, &rank->watch, &rank->error) < 0)
		return false;
	for (int i = 0; i < rank->identity.size; i++)
		if (!check_value(rank, (i + rank->identity.rank) % rank->identity.size, fence))
			return false;
	rank->report->fences++;
	set_stage(rank, rank->report->fences);
	return true;
}

void meet_times(struct rank *rank, int fences)
{
	bool well = open_rank(rank);

	for (int i = 0; well && i < fences; i++)
		well = meet(rank, i);
	ddp_store_close(rank->store, well);
}

void meet_once(struct rank *rank)
{
	meet_times(rank, 1);
}

void meet_twice(struct rank *rank)
{
	meet_times(rank, 2);
}

void meet_four_times(struct rank *rank)
{
	meet_times(rank, 4);
}

/* Ends the wait of [owner] once all ranks that start_until_waiting() started wait. */
static int is_over(void *owner, struct ddp_error *error)
{
	const struct rank *rank = owner;

	(void)error;
	for (int i = 0; i < RANKS; i++)
		if (reports[i].comes && !is_waiting(rank->identity.directory, i))
			return 0;
	return DDP_ERR_TIMEOUT;
}

static void meet_until_over(struct rank *rank)
{
	rank->watch = ddp_watch_start(60, is_over, rank);
	meet_once(rank);
}

void start_until_waiting(const char *directory, int first, int count, int size)
{
	for (int i = first; i < first + count; i++)
		reports[i].comes = true;
	start_ranks(directory, false, first, count, size, meet_until_over);
}

bool put_record(struct rank *rank, uint64_t meeting, struct ddp_record record)
{
	static const uint8_t values[] = {3, 'k', 'e', 'y', 1, 0, 0, 0, 'v'};
	uint8_t head[DDP_RECORD_HEAD];
	struct iovec parts[2] = {{head, sizeof(head)}, {(void *)(uintptr_t)values, sizeof(values)}};
	char path[PATH_MAX];

	record.kind = DDP_RECORD_OF_RANK;
	if (!record.meeting)
		record.meeting = meeting;
	ddp_record_seal(&record, values, sizeof(values));
	if (record.pid == 666) /* write a damaged record */
		record.check ^= 1;
	ddp_record_encode(&record, head);
	ddp_meeting_path(path, rank->identity.directory, meeting, ".ranks/0.1");
	return ddp_file_write(path, parts, 2, 0, true, NULL) == 0;
}

void die_after_one(struct rank *rank)
{
	if (open_rank(rank))
		meet(rank, 0);
	raise(SIGKILL);
}

void die_open(struct rank *rank)
{
	open_rank(rank);
	raise(SIGKILL);
}

void meet_twice_then_fail(struct rank *rank)
{
	if (open_rank(rank) && meet(rank, 0))
		meet(rank, 1);
	ddp_store_close(rank->store, false);
}

void create_file(const char *directory, const char *name)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq((int)write(fd, "x", 1), 1);
	close(fd);
}
