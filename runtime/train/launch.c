/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/watch.h"
#include "launch-private.h"

#define MARK "DDP_TRAIN_LAUNCH" /* "shared" or "each", for ranks that launch_ranks() started */

enum { RANKS_BY_DEFAULT = 8, EXIT_USAGE = 2 };

/* --- How many ------------------------------------------------------------------------------- */

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* A task of srun's; batch scripts and interactive shells have no step, or one of its own kind. */
static bool is_task(void)
{
	const char *step = variable("SLURM_STEP_ID");

	return step && variable("SLURM_JOB_ID") && variable("SLURM_PROCID") &&
	       strtoull(step, NULL, 10) <= 0xfffffff0ull;
}

bool launch_is_launched(void)
{
	return variable(MARK) != NULL;
}

bool launch_is_rank(void)
{
	return launch_is_launched() || (variable("RANK") && variable("WORLD_SIZE")) ||
	       variable("DDP_RANK") || variable("DDP_ERROR") || is_task();
}

bool launch_shares_batch(void)
{
	const char *mark = variable(MARK);

	return mark && strcmp(mark, "shared") == 0;
}

/* Of how many ranks the one that this process is. */
static long world_size(void)
{
	static const char *const names[] = {"DDP_SIZE", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (variable(names[i]))
			return strtol(variable(names[i]), NULL, 10);
	return 1;
}

/* One for each of what computes: GPUs, or else CPUs, [most] of these at most. */
static int count_places(const struct options *options, int most)
{
	const char *engine = option_text(options, OPTION_ENGINE);
	int devices = strcmp(engine, "cpu") == 0 ? 0 : launch_devices();
	int cpus = launch_cpus();

	if (devices > 0)
		return devices;
	/* One rank is enough to say that there is no GPU. */
	if (strcmp(engine, "cuda") == 0)
		return 1;
	return cpus < most ? cpus : most;
}

/* As many as there are places, but so that each has the same number of samples. */
static int count_by_default(const struct options *options)
{
	uint64_t batch = option_count(options, OPTION_GLOBAL_BATCH);
	int count = count_places(options, RANKS_BY_DEFAULT);

	if (batch == 0)
		batch = option_count(options, OPTION_BATCH);
	while (batch % (uint64_t)count != 0)
		count--;
	return count;
}

int launch_count(const struct options *options)
{
	const char *given =
		options->given[OPTION_RANKS] ? option_text(options, OPTION_RANKS) : NULL;
	bool rank = launch_is_rank();

	if (launch_is_launched() || (rank && !given))
		return 1;
	if (rank && (world_size() != 1 || variable("DDP_ERROR"))) {
		fprintf(stderr,
			"ddp-train: --ranks %s: this is one of %ld ranks that were started already; "
			"leave --ranks out\n",
			given, world_size());
		return -1;
	}
	if (!given)
		return count_by_default(options);
	return strcmp(given, "all") == 0 ? count_places(options, INT_MAX) : atoi(given);
}

int launch_gpus(const struct options *options)
{
	const char *ranks = option_text(options, OPTION_RANKS);

	if (!options->given[OPTION_RANKS] || strcmp(ranks, "all") == 0 ||
	    strcmp(option_text(options, OPTION_ENGINE), "cpu") == 0)
		return 0;
	return launch_devices();
}

/* --- One rank --------------------------------------------------------------------------------- */

static void set_number(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(name, text, 1);
}

/* What torchrun would set; what an outer step left is not about this rank. */
static void set_environment(int rank, int count, bool shared, const char *directory)
{
	static const char *const gone[] = {"DDP_RANK",	     "DDP_SIZE",       "DDP_LOCAL_RANK",
					   "DDP_LOCAL_SIZE", "DDP_NODE_RANK",  "DDP_JOB",
					   "DDP_ATTEMPT",    "SLURM_DDP_STEP", "MASTER_PORT"};
	const char *end = variable("DDP_END_TIME");

	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		unsetenv(gone[i]);
	if (end)
		setenv("SLURM_JOB_END_TIME", end, 1);
	set_number("RANK", rank);
	set_number("WORLD_SIZE", count);
	set_number("LOCAL_RANK", rank);
	set_number("LOCAL_WORLD_SIZE", count);
	set_number("GROUP_RANK", 0);
	set_number("GROUP_WORLD_SIZE", 1);
	set_number("TORCHELASTIC_RESTART_COUNT", 0);
	setenv("TORCHELASTIC_RUN_ID", "ddp-train", 1);
	setenv("DDP_RENDEZVOUS", directory, 1);
	setenv(MARK, shared ? "shared" : "each", 1);
}

struct launch {
	struct launch_directory directory;
	sigset_t signals, before;
	pid_t *pids; /* 0: ended */
	int count, running, devices;
	double share;	   /* of a GPU, for all of its ranks */
	int passed;	   /* the last signal that was passed on, 0: none */
	int interrupts;	   /* SIGINTs so far */
	int status;	   /* for this process */
	bool blamed;	   /* status is that of a rank that failed by itself */
	uint64_t deadline; /* when the others are ended, UINT64_MAX: never */
	int severity;	   /* of what they are ended by: SIGTERM first */
};

static void become_rank(const struct launch *launch, int rank, bool shared, pid_t parent,
			char **argv)
{
	/* With no launcher nobody would pass signals on, nor tell who failed. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	sigprocmask(SIG_SETMASK, &launch->before, NULL);
	launch_bind(rank, launch->count);
	launch_show_device(rank);
	launch_share_device(rank, launch->count, launch->devices, launch->share);
	set_environment(rank, launch->count, shared, launch->directory.path);
	execv("/proc/self/exe", argv);
	fprintf(stderr, "ddp-train: cannot start rank %d: %s\n", rank, strerror(errno));
	_exit(1);
}

/* --- All of them ------------------------------------------------------------------------------- */

static void signal_all(const struct launch *launch, int number)
{
	for (int i = 0; i < launch->count; i++)
		if (launch->pids[i] > 0)
			kill(launch->pids[i], number);
}

/* The others have [seconds] to notice, and to say it. */
static void set_deadline(struct launch *launch, uint64_t seconds)
{
	launch->deadline = ddp_now() + seconds * 1000000000u;
}

/* An error that a rank was told of by others is less of a reason than one of its own. */
static bool is_echo(int status)
{
	for (int error = DDP_ERR_MISMATCH; error <= DDP_ERR_TIMEOUT; error++)
		if (status == ddp_exit_status(error))
			return true;
	return false;
}

static void note_end(struct launch *launch, int rank, int result)
{
	int status = WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result);
	bool own = !is_echo(status);

	launch->pids[rank] = 0;
	launch->running--;
	if (WIFSIGNALED(result) && launch->severity == 0 && WTERMSIG(result) != launch->passed)
		fprintf(stderr, "ddp-train: rank %d was killed by signal %d (%s)\n", rank,
			WTERMSIG(result), strsignal(WTERMSIG(result)));
	if (status == 0 || (launch->blamed && launch->status != 0))
		return;
	if (launch->status == 0 || own)
		launch->status = status;
	launch->blamed = own;
	if (launch->deadline == UINT64_MAX && launch->severity == 0)
		set_deadline(launch, 10);
}

static void reap(struct launch *launch)
{
	int result;
	pid_t pid;

	while ((pid = waitpid(-1, &result, WNOHANG)) > 0)
		for (int i = 0; i < launch->count; i++)
			if (launch->pids[i] == pid)
				note_end(launch, i, result);
}

/* What a terminal sends it sends to the ranks as well. */
static void pass_on(struct launch *launch, const siginfo_t *info)
{
	launch->passed = info->si_signo;
	launch->interrupts += info->si_signo == SIGINT;
	if (launch->interrupts > 2)
		signal_all(launch, SIGKILL);
	else if (info->si_code != SI_KERNEL)
		signal_all(launch, info->si_signo);
}

static void end_them(struct launch *launch)
{
	signal_all(launch, launch->severity == 0 ? SIGTERM : SIGKILL);
	launch->severity++;
	set_deadline(launch, 5);
}

static void wait_all(struct launch *launch)
{
	while (launch->running > 0) {
		uint64_t now = ddp_now(),
			 left = launch->deadline > now ? launch->deadline - now : 0;
		struct timespec limit = {3600, 0};
		siginfo_t info;
		int number;

		if (left / 1000000000u < 3600)
			limit = (struct timespec){(time_t)(left / 1000000000u),
						  (long)(left % 1000000000u)};
		number = sigtimedwait(&launch->signals, &info, &limit);
		if (number == SIGCHLD)
			reap(launch);
		else if (number > 0)
			pass_on(launch, &info);
		else if (errno == EAGAIN && ddp_now() >= launch->deadline)
			end_them(launch);
	}
}

/* A signal that the caller ignores, such as SIGHUP after nohup, stays ignored. */
static void block_signals(struct launch *launch)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};
	struct sigaction action;

	sigemptyset(&launch->signals);
	sigaddset(&launch->signals, SIGCHLD);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(&launch->signals, numbers[i]);
	/* Who ignores SIGCHLD has no children to wait for. */
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_BLOCK, &launch->signals, &launch->before);
}

static void start_all(struct launch *launch, bool shared, char **argv)
{
	pid_t parent = getpid();

	fflush(NULL);
	for (int rank = 0; rank < launch->count; rank++) {
		pid_t pid = fork();

		if (pid == 0)
			become_rank(launch, rank, shared, parent, argv);
		if (pid < 0) {
			fprintf(stderr, "ddp-train: cannot start rank %d: %s\n", rank,
				strerror(errno));
			launch->status = 1;
			signal_all(launch, SIGKILL);
			launch->severity = 2;
			return;
		}
		launch->pids[rank] = pid;
		launch->running++;
	}
}

int launch_ranks(int count, int devices, bool shared, char **argv)
{
	struct launch launch = {.count = count, .devices = devices, .deadline = UINT64_MAX};

	if (!launch_knows_share(&launch.share))
		return EXIT_USAGE;
	launch.pids = calloc((size_t)count, sizeof(*launch.pids));
	if (!launch.pids || launch_directory_create(&launch.directory) < 0) {
		free(launch.pids);
		return 1;
	}
	block_signals(&launch);
	start_all(&launch, shared, argv);
	wait_all(&launch);
	launch_directory_destroy(&launch.directory);
	free(launch.pids);
	sigprocmask(SIG_SETMASK, &launch.before, NULL);
	return launch.status;
}
