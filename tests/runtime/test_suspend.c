/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_suspend.c - ranks that Slurm suspends in each kind of wait, and a slow file system
 *
 * Ranks are processes. They are stopped with SIGSTOP, and their clocks are set ahead by an hour
 * before they continue, so a long suspension takes no time. One rank, the late one, waits at a gate
 * before the call in which the others wait for it. Clocks of ranks that wait can also be set ahead
 * by less than a second at a time, so that time limits end soon.
 */
#include "config.h"

#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "ranks.h"

#define SECOND UINT64_C(1000000000)
#define HOUR (3600 * SECOND)

enum { SUSPENSIONS = 12, ALL = -1 };

/* Memory that the test and all ranks share. */
static struct {
	struct {
		_Atomic uint64_t ahead;	   /* nanoseconds by which the rank's clocks are ahead */
		_Atomic unsigned readings; /* of the monotonic clock: a rank that waits checks */
		_Atomic uint64_t sleep;	   /* nanoseconds of the longest sleep */
		_Atomic unsigned lists;	   /* number of directories listed */
	} rank[RANKS_MOST];
	_Atomic int late;   /* the rank at the gate; -1: none yet */
	_Atomic bool open;  /* the gate is open */
	_Atomic int passes; /* number of collectives for which the gate is open */
} * board;

static int self = -1; /* number of this rank; -1: this is the test */
static enum gate { GATE_NONE, GATE_OPEN, GATE_CONNECT } gate_in_call;
static uint64_t listing_takes; /* nanoseconds by which each listing sets the clocks ahead */

/* --- Wrapped functions ---------------------------------------------------------------------- */

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __real_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __real_poll(struct pollfd *fds, nfds_t count, int milliseconds);
int __wrap_poll(struct pollfd *fds, nfds_t count, int milliseconds);
int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time,
		 const sigset_t *signals);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time,
		 const sigset_t *signals);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static void wait_at_gate(void)
{
	atomic_store(&board->late, self);
	while (!atomic_load(&board->open))
		usleep(1000);
}

static void note_sleep(const struct timespec *time)
{
	uint64_t length =
		time ? (uint64_t)time->tv_sec * SECOND + (uint64_t)time->tv_nsec : UINT64_MAX;

	if (self >= 0 && length > atomic_load(&board->rank[self].sleep))
		atomic_store(&board->rank[self].sleep, length);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	int result = __real_clock_gettime(clock, time);
	uint64_t now;

	if (self < 0 || (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE))
		return result;
	atomic_fetch_add(&board->rank[self].readings, clock == CLOCK_MONOTONIC);
	now = (uint64_t)time->tv_nsec + atomic_load(&board->rank[self].ahead);
	time->tv_sec += (time_t)(now / SECOND);
	time->tv_nsec = (long)(now % SECOND);
	return result;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
	if (gate_in_call == GATE_CONNECT)
		wait_at_gate();
	return __real_connect(fd, address, size);
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	if (gate_in_call == GATE_OPEN && strncmp(path, "/proc/", 6) == 0 && strstr(path, "/fd/"))
		wait_at_gate();
	return __real_open(path, flags, mode);
}

DIR *__wrap_opendir(const char *path)
{
	if (self >= 0) {
		atomic_fetch_add(&board->rank[self].lists, 1);
		atomic_fetch_add(&board->rank[self].ahead, listing_takes);
	}
	return __real_opendir(path);
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	note_sleep(time);
	return __real_nanosleep(time, left);
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int milliseconds)
{
	const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};

	note_sleep(milliseconds < 0 ? NULL : &time);
	return __real_poll(fds, count, milliseconds);
}

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time,
		 const sigset_t *signals)
{
	note_sleep(time);
	return __real_ppoll(fds, count, time, signals);
}

long __wrap_syscall(long number, ...)
{
	long argument[6];
	va_list arguments;

	va_start(arguments, number);
	for (int i = 0; i < 6; i++)
		argument[i] = va_arg(arguments, long);
	va_end(arguments);
	if (number == SYS_futex && argument[1] == FUTEX_WAIT)
		note_sleep((const struct timespec *)argument[3]);
	return __real_syscall(number, argument[0], argument[1], argument[2], argument[3],
			      argument[4], argument[5]);
}

/* --- Control of the ranks --------------------------------------------------------------------- */

static struct ranks ranks;

static void board_new(void)
{
	board = unit_shared(sizeof(*board));
	board->late = -1;
}

static bool has_ended(int rank)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)ranks.pids[rank], &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid != 0;
}

/* Waits until all ranks but the late one have checked their waits, or have ended. */
static void await_checks(void)
{
	enum { CHECKS = 3 };

	for (int rank = 0; rank < ranks.size; rank++) {
		unsigned before = board->rank[rank].readings;

		while (rank != board->late && board->rank[rank].readings - before < CHECKS &&
		       !has_ended(rank))
			usleep(1000);
	}
}

/* A rank that sleeps has published what the others need to wait for the late one alone. */
static void await_late(void)
{
	while (board->late < 0)
		usleep(1000);
	for (int rank = 0; rank < ranks.size; rank++)
		while (rank != board->late && board->rank[rank].sleep == 0 && !has_ended(rank))
			usleep(1000);
	await_checks();
}

/* Suspends rank [which], or ALL ranks, for an hour. */
static void suspend(int which)
{
	siginfo_t info;

	for (int rank = 0; rank < ranks.size; rank++)
		if ((which == ALL || rank == which) && !has_ended(rank)) {
			kill(ranks.pids[rank], SIGSTOP);
			(void)waitid(P_PID, (id_t)ranks.pids[rank], &info,
				     WSTOPPED | WEXITED | WNOWAIT);
			atomic_fetch_add(&board->rank[rank].ahead, HOUR);
		}
	for (int rank = 0; rank < ranks.size; rank++)
		if (which == ALL || rank == which)
			kill(ranks.pids[rank], SIGCONT);
	await_checks();
}

static void expect_short_sleeps(void)
{
	for (int rank = 0; rank < ranks.size; rank++)
		ck_assert_uint_le(board->rank[rank].sleep, SECOND / 2);
}

/* --- Suspended in each kind of wait -------------------------------------------------------------- */

enum stage { BEFORE, JOINING, REDUCING, LEAVING };

static const struct wait {
	const char *name, *layout;
	enum stage stage; /* call before which, or in which, a rank is late */
	enum gate gate;	  /* for JOINING */
	int late;	  /* for other stages */
} waits[] = {
	{"rendezvous", "2", BEFORE, GATE_NONE, 1},
	{"rendezvous without rank 0", "2", BEFORE, GATE_NONE, 0},
	{"joining a group", "2", JOINING, GATE_OPEN, 1},
	{"connecting groups", "1,1", JOINING, GATE_CONNECT, 1},
	{"all-reduce in a group", "3", REDUCING, GATE_NONE, 1},
	{"all-reduce over TCP", "1,1", REDUCING, GATE_NONE, 0},
	{"all-reduce in groups and over TCP", "2,1", REDUCING, GATE_NONE, 2},
	{"leaving", "1,1", LEAVING, GATE_NONE, 1},
};

static const struct wait *current;
static const char *limit; /* DDP_TIMEOUT */

static void be_late_in(enum stage stage, int rank)
{
	if (stage == current->stage && rank == current->late)
		wait_at_gate();
}

static int body_late(int rank)
{
	struct ddp *ddp;
	float x = 1;

	self = rank;
	setenv("DDP_TIMEOUT", limit, 1);
	be_late_in(BEFORE, rank);
	gate_in_call = current->gate;
	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	gate_in_call = GATE_NONE;
	be_late_in(REDUCING, rank);
	RANK_OK(ddp, ddp_all_reduce(ddp, &x, &x, 1, DDP_F32, DDP_SUM));
	be_late_in(LEAVING, rank);
	ddp_destroy(ddp);
	return 0;
}

/*
 * All ranks are suspended several times, then each rank alone. The limit is less than an hour, but
 * more than the suspensions cost if each of them falls into a call that may block.
 */
TEST_ROWS(test_suspended, waits)
{
	int failed;

	current = &waits[_i];
	limit = "3000";
	board_new();
	ranks_start(&ranks, current->layout, body_late);
	await_late();
	for (int which = ALL; which < ranks.size; which++)
		for (int i = 0; i < SUSPENSIONS; i++)
			suspend(which);
	atomic_store(&board->open, true);
	ranks_wait(&ranks, false);
	failed = ranks_failed(&ranks);
	ck_assert_msg(failed < 0, "%s: rank %d ended with %d:\n%s", current->name, failed,
		      failed < 0 ? 0 : ranks.statuses[failed],
		      failed < 0 ? "" : ranks.text[failed]);
	expect_short_sleeps();
}

/* --- The rank that is named after a suspension ---------------------------------------------------- */

static const struct wait faults[] = {
	{"rendezvous", "3", BEFORE, GATE_NONE, 1},
	{"all-reduce in a group", "3", REDUCING, GATE_NONE, 1},
	{"all-reduce over TCP", "1,1,1", REDUCING, GATE_NONE, 1},
	{"a member waits for one that waits for another group", "2,1", REDUCING, GATE_NONE, 2},
	{"a rank without a column waits for the late one's group", "2,2", REDUCING, GATE_NONE, 3},
};

static bool have_others_ended(void)
{
	for (int rank = 0; rank < ranks.size; rank++)
		if (rank != current->late && !has_ended(rank))
			return false;
	return true;
}

/* Lets time pass, in which all waiting ranks check their waits, until these ranks have failed. */
static void pass_limits(void)
{
	while (!have_others_ended()) {
		for (int rank = 0; rank < ranks.size; rank++)
			atomic_fetch_add(&board->rank[rank].ahead, SECOND * 2 / 5);
		await_checks();
	}
}

static void expect_named(int rank)
{
	char late[16], host[64] = "", other[128];

	snprintf(late, sizeof(late), current->stage == BEFORE ? ": rank %d" : "rank %d on",
		 current->late);
	gethostname(host, sizeof(host) - 1);
	ck_assert_msg(strstr(ranks.text[rank], late), "%s: rank %d: %s", current->name, rank,
		      ranks.text[rank]);
	for (int i = 0; i < ranks.size; i++) {
		snprintf(other, sizeof(other), "rank %d on %s did not", i, host);
		ck_assert_msg(i == current->late || !strstr(ranks.text[rank], other),
			      "%s: rank %d: %s", current->name, rank, ranks.text[rank]);
	}
}

/* The late rank never arrives. */
TEST_ROWS(test_named_after_a_suspension, faults)
{
	current = &faults[_i];
	limit = "10";
	board_new();
	ranks_start(&ranks, current->layout, body_late);
	await_late();
	suspend(ALL);
	pass_limits();
	kill(ranks.pids[current->late], SIGKILL);
	ranks_wait(&ranks, false);
	for (int rank = 0; rank < ranks.size; rank++)
		if (rank != current->late)
			expect_named(rank);
	expect_short_sleeps();
}

/* --- A slow file system --------------------------------------------------------------------------- */

static const struct {
	const char *name;
	double takes; /* seconds that rank 0 needs to list a directory */
	/* seconds after which a limit of 600 s ends, with the calls before and after the wait */
	double least, most;
} servers[] = {
	{"slow", 10, 600, 700},
	/* each call counts 30 s */
	{"suspended in each call", 3600, 19 * 3600, 1e9},
};

static int server;

static int body_slow_files(int rank)
{
	struct ddp *ddp;

	self = rank;
	setenv("DDP_TIMEOUT", "600", 1);
	if (rank == 1)
		wait_at_gate();
	listing_takes = (uint64_t)(servers[server].takes * 1e9);
	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	return 1;
}

/* Rank 0 waits for rank 1 in the rendezvous directory. */
TEST_ROWS(test_slow_files, servers)
{
	double passed;

	server = _i;
	board_new();
	ranks_start(&ranks, "2", body_slow_files);
	while (!has_ended(0))
		usleep(1000);
	passed = (double)board->rank[0].ahead * 1e-9;
	kill(ranks.pids[1], SIGKILL);
	ranks_wait(&ranks, false);
	UNIT_SAYS(servers[_i].name, ranks.text[0], "rank 1", "did not arrive in 600 s");
	ck_assert_msg(passed >= servers[_i].least && passed <= servers[_i].most,
		      "%s: the limit ended after %g s in %u calls", servers[_i].name, passed,
		      board->rank[0].lists);
}

/* --- A slow rank ------------------------------------------------------------------------------- */

enum { ROUNDS = 12, PER_ROUND = 25 };

/* Rank 1 is between collectives whenever all ranks are suspended, and rank 0 waits for it. */
static int body_paced(int rank)
{
	struct ddp *ddp;
	float x = 0;

	self = rank;
	ddp = ranks_join();
	for (int i = 0; i < ROUNDS * PER_ROUND; i++) {
		if (rank == 1 && i == atomic_load(&board->passes))
			atomic_store(&board->late, rank);
		while (rank == 1 && i >= atomic_load(&board->passes))
			usleep(1000);
		RANK_OK(ddp, ddp_all_reduce(ddp, &x, &x, 1, DDP_F32, DDP_SUM));
	}
	ddp_destroy(ddp);
	return 0;
}

TEST(test_suspended_rank_is_not_slow)
{
	board_new();
	ranks_start(&ranks, "2", body_paced);
	for (int i = 0; i < ROUNDS; i++) {
		await_late();
		suspend(ALL);
		atomic_store(&board->late, -1);
		atomic_fetch_add(&board->passes, PER_ROUND);
	}
	ranks_wait(&ranks, false);
	ck_assert_int_lt(ranks_failed(&ranks), 0);
	ck_assert_ptr_null(strstr(ranks.text[0], "is slow"));
}

UNIT_MAIN("suspend", NULL)
