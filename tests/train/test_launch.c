/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_launch.c - ranks without Slurm: their number, identity and ends
 *
 * launch_ranks() starts this program again as each rank. main() recognises that it runs as a rank
 * by the environment.
 */
#include "config.h"

#include <ddp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#include "launch.h"
#include "program.h"

enum { LAUNCH_MOST = 8 };

/* --- Actions of a rank; the first argument selects one ------------------------------------ */

static int join_world(int ranks)
{
	struct ddp *ddp;
	int32_t sum;

	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	sum = ddp_world(ddp)->rank;
	if (ddp_all_reduce(ddp, &sum, &sum, 1, DDP_I32, DDP_SUM) < 0)
		ddp_exit(ddp);
	if (ddp_world(ddp)->size != ranks || sum != ranks * (ranks - 1) / 2 ||
	    ddp_world(ddp)->local_size != ranks)
		return 98;
	ddp_destroy(ddp);
	return 0;
}

static int record_cpus(int rank)
{
	cpu_set_t set;
	char name[64];

	sched_getaffinity(0, sizeof(set), &set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &set)) {
			snprintf(name, sizeof(name), "cpu-%d-%d", cpu, rank);
			close(open(name, O_WRONLY | O_CREAT, 0600));
		}
	return 0;
}

/* Creates a file whose name has this rank's share in thousandths. */
static int record_share(int rank)
{
	const char *share = getenv("DDP_SHARE");
	char name[64];

	snprintf(name, sizeof(name), "share-%.0f-%d", share ? 1000 * atof(share) : 0, rank);
	close(open(name, O_WRONLY | O_CREAT, 0600));
	return 0;
}

static void mark(const char *what, int rank)
{
	char name[64];

	snprintf(name, sizeof(name), "%s-%d", what, rank);
	close(open(name, O_WRONLY | O_CREAT, 0600));
}

static volatile sig_atomic_t got;

static void on_signal(int number)
{
	got = number;
}

/* Creates a file, waits for a signal, and exits with the signal's number. */
static int await_signal(int rank, bool blocks_signals)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		signal(numbers[i], blocks_signals ? SIG_IGN : on_signal);
	mark("ready", rank);
	while (!got)
		program_sleep(5);
	return got;
}

static int be_rank(const char *what)
{
	int rank = atoi(getenv("RANK")), ranks = atoi(getenv("WORLD_SIZE"));

	if (strcmp(what, "join") == 0)
		return join_world(ranks);
	if (strcmp(what, "shared") == 0)
		return launch_shares_batch() ? 7 : 8;
	if (strcmp(what, "cpus") == 0)
		return record_cpus(rank);
	if (strcmp(what, "shares") == 0)
		return record_share(rank);
	/* One rank fails. Soon after, the other ranks fail with an error that names it. */
	if (strcmp(what, "second") == 0)
		return rank == 1 ? (program_sleep(100), 5) : ddp_exit_status(DDP_ERR_ABORTED);
	if (strcmp(what, "dies") == 0 && rank == 1)
		raise(SIGKILL);
	if (strcmp(what, "fails") == 0 && rank == 1)
		return 6;
	if (strcmp(what, "deaf") == 0)
		return await_signal(rank, true);
	if (strcmp(what, "late") == 0) { /* ignore the failure, but exit on SIGTERM */
		if (rank == 1)
			return 6;
		signal(SIGTERM, on_signal);
		while (!got)
			program_sleep(5);
		return 9;
	}
	if (strcmp(what, "wait") == 0 || strcmp(what, "dies") == 0)
		return await_signal(rank, false);
	return 0;
}

/* --- Start --------------------------------------------------------------------------------- */

static int devices; /* number of devices passed to launch_ranks() */

/*
 * Starts a child process, which runs [count] ranks with the action [what]. Returns the child's id.
 */
static pid_t launch(int count, bool shared, const char *what)
{
	char *argv[] = {(char *)"test_launch", (char *)what, NULL};
	pid_t pid;

	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid > 0)
		return pid;
	setpgid(0, 0);
	for (int number = 1; number < SIGCHLD; number++)
		signal(number, SIG_DFL);
	program_redirect("errors", STDERR_FILENO);
	_exit(launch_ranks(count, devices, shared, argv));
}

static int result(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		ck_assert_int_eq(errno, EINTR);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Fails unless the rendezvous directory was removed. */
static void check_clean(void)
{
	ck_assert_int_eq(program_count_files(program_directory, "ddp-train-"), 0);
}

TEST_LOOP(test_world, 1, 4)
{
	ck_assert_int_eq(result(launch(_i, false, "join")), 0);
	check_clean();
}

TEST(test_shared)
{
	ck_assert_int_eq(result(launch(2, true, "shared")), 7);
	ck_assert_int_eq(result(launch(2, false, "shared")), 8);
	ck_assert(!launch_shares_batch());
}

/* Each CPU belongs to a rank. If there are enough CPUs, it belongs to only one. */
TEST_LOOP(test_cpus, 1, 4)
{
	cpu_set_t set;
	char prefix[32];
	int cpus;

	ck_assert_int_eq(result(launch(_i, false, "cpus")), 0);
	sched_getaffinity(0, sizeof(set), &set);
	cpus = CPU_COUNT(&set);
	ck_assert_int_eq(program_count_files(".", "cpu-"), cpus > _i ? cpus : _i);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		snprintf(prefix, sizeof(prefix), "cpu-%d-", cpu);
		if (CPU_ISSET((size_t)cpu, &set) && cpus >= _i)
			ck_assert_int_eq(program_count_files(".", prefix), 1);
		else if (CPU_ISSET((size_t)cpu, &set))
			ck_assert_int_ge(program_count_files(".", prefix), 1);
	}
}

/* GPUs are assigned to ranks in turn. The ranks of a GPU divide the launcher's share of it. */
static const struct {
	const char *name, *share; /* DDP_SHARE of the launcher; NULL: unset */
	int ranks, devices;
	const char *want[4]; /* expected values of the first ranks */
} divisions[] = {
	{"four on one", NULL, 4, 1, {"share-250-0", "share-250-1", "share-250-2", "share-250-3"}},
	{"a half of one", "0.5", 2, 1, {"share-250-0", "share-250-1"}},
	{"three on two", NULL, 3, 2, {"share-500-0", "share-0-1", "share-500-2"}},
	{"three on two in part", "0.8", 3, 2, {"share-400-0", "share-800-1", "share-400-2"}},
	{"one each", NULL, 2, 2, {"share-0-0", "share-0-1"}},
	{"not known", NULL, 2, 0, {"share-0-0", "share-0-1"}},
};

TEST_ROWS(test_shares, divisions)
{
	if (divisions[_i].share)
		setenv("DDP_SHARE", divisions[_i].share, 1);
	devices = divisions[_i].devices;
	ck_assert_int_eq(result(launch(divisions[_i].ranks, false, "shares")), 0);
	ck_assert_int_eq(program_count_files(".", "share-"), divisions[_i].ranks);
	for (int i = 0; i < 4 && divisions[_i].want[i]; i++)
		ck_assert_msg(access(divisions[_i].want[i], F_OK) == 0, "%s: %s is missing",
			      divisions[_i].name, divisions[_i].want[i]);
}

/* An invalid DDP_SHARE is rejected, because its parts for the ranks could look valid. */
TEST_LOOP(test_no_share, 0, 5)
{
	static const char *const wrong[] = {"2", "0", "-0.5", "0.5x", "half"};

	setenv("DDP_SHARE", wrong[_i], 1);
	devices = 1;
	ck_assert_int_eq(result(launch(4, false, "shares")), 2);
	ck_assert_int_eq(program_count_files(".", "share-"), 0);
	check_clean();
}

/*
 * One rank fails, and others lose this peer. The launcher's exit status is that of the rank that
 * failed.
 */
TEST(test_cause)
{
	ck_assert_int_eq(result(launch(4, false, "second")), 5);
	check_clean();
}

TEST(test_killed_rank)
{
	pid_t pid = launch(2, false, "dies");
	char text[PROGRAM_TEXT];

	program_await(".", "ready-0", 1);
	/* wait for the rank's file; before that, SIGTERM would end rank 1 */
	do {
		program_sleep(5);
		program_read("errors", text);
	} while (!strstr(text, "ddp-train: rank 1 was killed by signal 9"));
	kill(pid, SIGTERM);
	ck_assert_int_eq(result(pid), 128 + SIGKILL);
	check_clean();
}

/* A rank that does not react to another rank's failure is ended. */
TEST(test_late)
{
	ck_assert_int_eq(result(launch(3, false, "late")), 6);
	check_clean();
}

static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};

TEST_ROWS(test_signals, signals)
{
	pid_t pid = launch(3, false, "wait");

	program_await(".", "ready-", 3);
	kill(pid, signals[_i]);
	ck_assert_int_eq(result(pid), signals[_i]);
	check_clean();
}

/* If a terminal is closed, only the session's leader gets SIGHUP. */
TEST(test_hangup)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave;
	char *argv[] = {(char *)"test_launch", (char *)"wait", NULL};
	pid_t pid;

	ck_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	ck_assert_int_ge(slave, 0);
	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(master);
		prctl(PR_SET_PDEATHSIG,
		      SIGKILL); /* Check's timeout would end only its own session */
		for (int number = 1; number < SIGCHLD; number++)
			signal(number, SIG_DFL);
		if (setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
			_exit(99);
		_exit(launch_ranks(2, 0, false, argv));
	}
	close(slave);
	program_await(".", "ready-", 2);
	close(master);
	ck_assert_int_eq(result(pid), SIGHUP);
	check_clean();
}

/* If the launcher is killed, its ranks end too, even if they block signals. */
TEST(test_killed)
{
	pid_t pid = launch(3, false, "deaf"), ranks[LAUNCH_MOST];

	program_await(".", "ready-", 3);
	ck_assert_int_eq(program_children(pid, ranks, LAUNCH_MOST), 3);
	kill(pid, SIGKILL);
	ck_assert_int_eq(result(pid), -SIGKILL);
	for (int i = 0; i < 3; i++)
		while (kill(ranks[i], 0) == 0)
			program_sleep(5);
}

TEST(test_no_directory)
{
	char text[PROGRAM_TEXT];

	setenv("TMPDIR", "/proc/nowhere", 1);
	ck_assert_int_eq(result(launch(2, false, "join")), 1);
	program_read("errors", text);
	ck_assert_ptr_nonnull(strstr(text, "/proc/nowhere"));
	ck_assert_ptr_nonnull(strstr(text, "TMPDIR"));
}

/* --- Number of ranks ------------------------------------------------------------------------ */

static const struct {
	const char *name;
	const char *env[8]; /* names and values of variables */
	const char *words[4];
	bool rank;
	/* -2: the largest divisor of the batch that is at most 8 and the number of CPUs */
	int count;
} counts[] = {
	{"alone", {NULL}, {"mnist"}, false, -2},
	{"three", {NULL}, {"mnist", "-n", "3"}, false, 3},
	{"shared global batch", {NULL}, {"mnist", "--global-batch", "1"}, false, 1},
	{"one virtual rank", {NULL}, {"mnist", "--virtual-ranks", "1"}, false, 1},
	{"plain srun",
	 {"SLURM_JOB_ID", "5", "SLURM_STEP_ID", "0", "SLURM_PROCID", "1"},
	 {"mnist"},
	 true,
	 1},
	{"batch script",
	 {"SLURM_JOB_ID", "5", "SLURM_PROCID", "0"},
	 {"mnist", "-n", "2"},
	 false,
	 2},
	{"batch step",
	 {"SLURM_JOB_ID", "5", "SLURM_STEP_ID", "4294967291", "SLURM_PROCID", "0"},
	 {"mnist", "-n", "2"},
	 false,
	 2},
	{"batch step of Slurm 26.05",
	 {"SLURM_JOB_ID", "5", "SLURM_STEP_ID", "-5", "SLURM_PROCID", "0"},
	 {"mnist", "-n", "2"},
	 false,
	 2},
	{"shell of one task",
	 {"SLURM_JOB_ID", "5", "SLURM_STEP_ID", "0", "SLURM_PROCID", "0"},
	 {"mnist", "-n", "2"},
	 true,
	 2},
	{"srun --ddp", {"DDP_RANK", "0", "DDP_SIZE", "2"}, {"mnist"}, true, 1},
	{"srun --ddp and -n", {"DDP_RANK", "0", "DDP_SIZE", "2"}, {"mnist", "-n", "2"}, true, -1},
	{"torchrun", {"RANK", "0", "WORLD_SIZE", "2"}, {"mnist"}, true, 1},
	{"launched", {"DDP_TRAIN_LAUNCH", "each"}, {"mnist", "-n", "3"}, true, 1},
};

TEST_ROWS(test_count, counts)
{
	const char *argv[6] = {"ddp-train"};
	struct options options;
	int words = 0, want = counts[_i].count, cpus;
	cpu_set_t set;

	for (; counts[_i].words[words]; words++)
		argv[words + 1] = counts[_i].words[words];
	ck_assert_int_eq(options_parse(&options, words + 1, (char **)argv), OPTIONS_RUN);
	for (int i = 0; counts[_i].env[i]; i += 2)
		setenv(counts[_i].env[i], counts[_i].env[i + 1], 1);
	sched_getaffinity(0, sizeof(set), &set);
	cpus = CPU_COUNT(&set) < 8 ? CPU_COUNT(&set) : 8;
	while (64 % cpus)
		cpus--;
	ck_assert_msg(launch_is_rank() == counts[_i].rank, "%s: is a rank: %d", counts[_i].name,
		      !counts[_i].rank);
	unit_number(counts[_i].name, "count", launch_count(&options), want == -2 ? cpus : want);
}

static void fill(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, program_begin, program_end);
}

int main(int argc, char **argv)
{
	if (launch_is_launched() && argc > 1)
		return be_rank(argv[1]);
	return unit_run("launch", fill);
}
