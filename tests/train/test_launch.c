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

static volatile sig_atomic_t got;

static void on_signal(int number)
{
	got = number;
}

/* Creates a file, waits for a signal, and exits with the signal's number. */
static int await_signal(int rank, bool blocks_signals)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
	char name[64];

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		signal(numbers[i], blocks_signals ? SIG_IGN : on_signal);
	snprintf(name, sizeof(name), "ready-%d", rank);
	close(open(name, O_WRONLY | O_CREAT, 0600));
	while (!got)
		program_sleep(5);
	return got;
}

static int be_rank(const char *what)
{
	int rank = atoi(getenv("RANK"));

	if (strcmp(what, "cpus") == 0)
		return record_cpus(rank);
	/* One rank fails. Soon after, the other ranks fail with an error that names it. */
	if (strcmp(what, "second") == 0)
		return rank == 1 ? (program_sleep(100), 5) : ddp_exit_status(DDP_ERR_ABORTED);
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
	if (strcmp(what, "wait") == 0)
		return await_signal(rank, false);
	return 0;
}

/* --- Start --------------------------------------------------------------------------------- */

/*
 * Starts a child process, which runs [count] ranks with the action [what]. Returns the child's id.
 */
static pid_t launch(int count, const char *what)
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
	_exit(launch_ranks(count, 0, false, argv));
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

/* Each CPU belongs to a rank. If there are enough CPUs, it belongs to only one. */
TEST_LOOP(test_cpus, 1, 4)
{
	cpu_set_t set;
	char prefix[32];
	int cpus;

	ck_assert_int_eq(result(launch(_i, "cpus")), 0);
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

/*
 * One rank fails, and others lose this peer. The launcher's exit status is that of the rank that
 * failed.
 */
TEST(test_cause)
{
	ck_assert_int_eq(result(launch(4, "second")), 5);
	check_clean();
}

/* A rank that does not react to another rank's failure is ended. */
TEST(test_late)
{
	ck_assert_int_eq(result(launch(3, "late")), 6);
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
	pid_t pid = launch(3, "deaf"), ranks[LAUNCH_MOST];

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
	ck_assert_int_eq(result(launch(2, "wait")), 1);
	program_read("errors", text);
	ck_assert_ptr_nonnull(strstr(text, "/proc/nowhere"));
	ck_assert_ptr_nonnull(strstr(text, "TMPDIR"));
}

#define NOT_LOADED "-1 (ddp.so is not loaded on this node)"

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
	{"no plugin on this node",
	 {"RANK", NOT_LOADED, "WORLD_SIZE", NOT_LOADED},
	 {"mnist", "-n", "2"},
	 true,
	 1},
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
