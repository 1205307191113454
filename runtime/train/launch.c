/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c - starts ranks without Slurm, divides CPUs and GPUs among them, and waits for their end
 *
 * A process that has called CUDA must not fork. So the launcher counts the GPUs in a child process.
 */
#include "config.h"

#include "launch.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/settings.h"
#include "base/text.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "engine.h"

#define MARK "DDP_TRAIN_LAUNCH" /* set to "shared" or "each" for ranks started by launch_ranks() */
#define VISIBLE "CUDA_VISIBLE_DEVICES"
#define SHARE "DDP_SHARE"
#define PREFIX "ddp-train-"

enum {
	RANKS_BY_DEFAULT = 8,
	EXIT_USAGE = 2,
	DRIVER_TIMEOUT_S = 60, /* time limit for a driver that has to initialise its GPUs */
};

/* --- CPUs ---------------------------------------------------------------------------------- */

struct cpu {
	int package, core, number;
};

static int read_topology(int cpu, const char *name)
{
	char path[128];
	FILE *file;
	int value = 0;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

static int compare_cpus(const void *a, const void *b)
{
	const struct cpu *one = a, *two = b;

	if (one->package != two->package)
		return one->package - two->package;
	return one->core != two->core ? one->core - two->core : one->number - two->number;
}

int launch_cpus(void)
{
	cpu_set_t set;
	int count = sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);

	return count > 0 ? count : 1;
}

/*
 * Binds this process, which becomes rank [rank] of [count], to a part of its CPUs. The CPUs are
 * divided into [count] parts. If there are enough cores, each part has whole cores. If there are
 * more ranks than CPUs, some ranks share a CPU. After a failure, the process keeps all its CPUs.
 */
static void bind_cpus(int rank, int count)
{
	struct cpu cpus[CPU_SETSIZE];
	int found = 0, first, end;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &set))
			cpus[found++] = (struct cpu){read_topology(cpu, "physical_package_id"),
						     read_topology(cpu, "core_id"), cpu};
	if (found == 0)
		return;
	qsort(cpus, (size_t)found, sizeof(*cpus), compare_cpus);
	first = (int)((long)rank * found / count);
	end = (int)((long)(rank + 1) * found / count);
	CPU_ZERO(&set);
	for (int i = first; i < end || i == first; i++)
		CPU_SET((size_t)cpus[i].number, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* --- GPUs ---------------------------------------------------------------------------------- */

/* Counts the GPUs. Must run in a child process. */
static int count_gpus(void)
{
	const struct engine_class *class;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	class = engine_has_driver(NULL) ? engine_find_cuda(NULL, NULL) : NULL;
	if (!class)
		return 0;
	return class->devices(NULL, 0, NULL);
}

/*
 * Reads the number of GPUs from the child's pipe. Returns 0 if the child crashes or hangs. The
 * child's exit status is not used, because it is lost if SIGCHLD is ignored.
 */
static int read_count(int fd, pid_t child)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	bool hangs = poll(&ready, 1, DRIVER_TIMEOUT_S * 1000) == 0;
	int count = 0;

	if (hangs) {
		fprintf(stderr,
			"ddp-train: the GPU driver did not answer within %d s, so the training "
			"continues without GPUs\n",
			DRIVER_TIMEOUT_S);
		kill(child, SIGKILL);
	}
	if (hangs || read(fd, &count, sizeof(count)) != sizeof(count) || count < 0)
		count = 0;
	/* A process that hangs in a driver can ignore even SIGKILL, so do not wait for it. */
	waitpid(child, NULL, hangs ? WNOHANG : 0);
	return count;
}

/* Number of GPUs for ranks on this machine. Opens no device. */
static int count_devices(void)
{
	int ends[2], count = 0;
	pid_t child;

	/* In a job without GPUs, the node's GPUs belong to other jobs, so they are not counted. */
	if ((!getenv(VISIBLE) && ddp_getenv("SLURM_JOB_ID", NULL)) || pipe(ends) < 0)
		return 0;
	fflush(NULL);
	child = fork();
	if (child == 0) {
		count = count_gpus();
		_exit(write(ends[1], &count, sizeof(count)) == sizeof(count) ? 0 : 1);
	}
	close(ends[1]);
	if (child > 0)
		count = read_count(ends[0], child);
	close(ends[0]);
	return count;
}

/*
 * Reads DDP_SHARE, the fraction of each GPU that this process may use. The default is 1. If the
 * value is invalid, prints an error message and returns false.
 */
static bool read_share(double *share)
{
	const char *mine = ddp_getenv(SHARE, NULL);
	char *end;

	*share = 1;
	if (!mine)
		return true;
	*share = strtod(mine, &end);
	if (!*end && *share > 0 && *share <= 1)
		return true;
	fprintf(stderr,
		"ddp-train: " SHARE
		"=%.100s is not a part of a GPU. Set it to a number above 0 and at most 1, or "
		"unset it.\n",
		mine);
	return false;
}

/*
 * Sets DDP_SHARE in the child that becomes rank [rank] of [count]. Ranks on the same GPU get equal
 * parts of [share]. [devices] is the number of GPUs, or 0 if it is unknown or there are none.
 */
static void share_device(int rank, int count, int devices, double share)
{
	int ranks = devices > 0 ? count / devices + (rank % devices < count % devices) : 1;

	if (ranks > 1)
		setenv(SHARE, ddp_show("%.12f", share / ranks).text, 1);
}

/* --- Rendezvous directory -------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
	(void)info;
	(void)kind;
	(void)at;
	return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

static void remove_tree(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Returns the directory in which launchers create rendezvous directories. */
static const char *base(void)
{
	const char *given = getenv("TMPDIR");

	return given && *given == '/' ? given : "/tmp";
}

/* Creates a rendezvous directory and sets [path]. Returns 0, or -1 after an error message. */
static int create_directory(char path[PATH_MAX])
{
	if (snprintf(path, PATH_MAX, "%s/" PREFIX "XXXXXX", base()) < PATH_MAX && mkdtemp(path))
		return 0;
	fprintf(stderr,
		"ddp-train: cannot create a directory for the ranks in %s: %s. Set TMPDIR to "
		"another directory.\n",
		base(), strerror(errno));
	return -1;
}

/* --- Number of ranks ------------------------------------------------------------------------ */

/*
 * Whether this process is a task of srun. In batch scripts and interactive shells, which are not,
 * SLURM_STEP_ID is either unset or one of Slurm's special numbers.
 */
static bool is_task(void)
{
	const char *step = ddp_getenv("SLURM_STEP_ID", NULL);

	return step && ddp_getenv("SLURM_JOB_ID", NULL) && ddp_getenv("SLURM_PROCID", NULL) &&
	       strtoull(step, NULL, 10) <= 0xfffffff0ull;
}

bool launch_is_launched(void)
{
	return ddp_getenv(MARK, NULL) != NULL;
}

bool launch_is_rank(void)
{
	return ddp_getenv(MARK, "DDP_RANK", NULL) || is_task() ||
	       (ddp_getenv("RANK", NULL) && ddp_getenv("WORLD_SIZE", NULL));
}

bool launch_shares_batch(void)
{
	const char *mark = ddp_getenv(MARK, NULL);

	return mark && strcmp(mark, "shared") == 0;
}

static long world_size(void)
{
	const char *size = ddp_getenv("DDP_SIZE", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS", NULL);

	return size ? strtol(size, NULL, 10) : 1;
}

/* Number of GPUs. Without GPUs: number of CPUs, at most [most]. */
static int count_places(const struct options *options, int most)
{
	const char *engine = option_text(options, OPTION_ENGINE);
	int devices = strcmp(engine, "cpu") == 0 ? 0 : count_devices();
	int cpus = launch_cpus();

	if (devices > 0)
		return devices;
	/* If there is no GPU, one rank suffices to report the error. */
	if (strcmp(engine, "cuda") == 0)
		return 1;
	return cpus < most ? cpus : most;
}

/*
 * Returns the default number of ranks, one per GPU or CPU. The number is reduced until it divides
 * the batch or, with --virtual-ranks, the number of virtual ranks.
 */
static int count_by_default(const struct options *options)
{
	uint64_t parts = option_count(options, OPTION_VIRTUAL_RANKS);
	int count = count_places(options, RANKS_BY_DEFAULT);

	if (parts == 0)
		parts = option_count(options, OPTION_GLOBAL_BATCH);
	if (parts == 0)
		parts = option_count(options, OPTION_BATCH);
	while (parts % (uint64_t)count != 0)
		count--;
	return count;
}

/* Warns if the job has several nodes, because the launcher uses only the node that it runs on. */
static void warn_about_nodes(void)
{
	const char *nodes = ddp_getenv("SLURM_JOB_NUM_NODES", "SLURM_NNODES", NULL);

	if (nodes && strtol(nodes, NULL, 10) > 1 && !launch_is_rank())
		options_warn(
			"this job has %s nodes, and the training uses only one. Use srun --ddp "
			"ddp-train to use all.",
			nodes);
}

int launch_count(const struct options *options)
{
	const char *given =
		options->given[OPTION_RANKS] ? option_text(options, OPTION_RANKS) : NULL;
	bool rank = launch_is_rank();
	long size = world_size();

	/* A size below 1 is left to ddp_init(), whose error names the variable. */
	if (launch_is_launched() || (rank && (!given || size < 1)))
		return 1;
	if (rank && size > 1) {
		fprintf(stderr,
			"ddp-train: this process is one of %ld ranks that were started already. "
			"Remove --ranks %s.\n",
			size, given);
		return -1;
	}
	warn_about_nodes();
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
	return count_devices();
}

/* --- A rank ----------------------------------------------------------------------------------- */

/*
 * Sets the variables that torchrun would set for the rank. Unsets variables that an outer job step
 * may have set for its own ranks.
 */
static void set_environment(int rank, int count, bool shared, const char *directory)
{
	static const char *const stale[] = {"DDP_RANK",	      "DDP_SIZE",	"DDP_LOCAL_RANK",
					    "DDP_LOCAL_SIZE", "DDP_NODE_RANK",	"DDP_JOB",
					    "DDP_ATTEMPT",    "SLURM_DDP_STEP", "MASTER_PORT"};
	const char *end = ddp_getenv("DDP_END_TIME", NULL);

	for (size_t i = 0; i < sizeof(stale) / sizeof(stale[0]); i++)
		unsetenv(stale[i]);
	if (end)
		setenv("SLURM_JOB_END_TIME", end, 1);
	setenv("RANK", ddp_show("%d", rank).text, 1);
	setenv("WORLD_SIZE", ddp_show("%d", count).text, 1);
	setenv("LOCAL_RANK", ddp_show("%d", rank).text, 1);
	setenv("LOCAL_WORLD_SIZE", ddp_show("%d", count).text, 1);
	setenv("GROUP_RANK", "0", 1);
	setenv("GROUP_WORLD_SIZE", "1", 1);
	setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
	setenv("TORCHELASTIC_RUN_ID", "ddp-train", 1);
	setenv("DDP_RENDEZVOUS", directory, 1);
	setenv(MARK, shared ? "shared" : "each", 1);
}

struct launch {
	char directory[PATH_MAX]; /* rendezvous directory */
	sigset_t signals, before;
	pid_t *pids; /* process of each rank; 0: ended */
	int count, running, devices;
	double share; /* fraction of each GPU for all its ranks together */
	int passed;   /* last signal that was passed on; 0: none */
	int interrupts;
	int status;    /* exit status for this process */
	bool is_cause; /* the rank with [status] failed for another reason than a lost peer */
	struct ddp_watch limit; /* time limit of the remaining ranks */
	int severity;		/* number of signals sent to end the ranks: SIGTERM, then SIGKILL */
};

static void become_rank(const struct launch *launch, int rank, bool shared, pid_t parent,
			char **argv)
{
	/*
	 * End when the launcher ends: without it, nothing would pass on signals or report failures.
	 */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	sigprocmask(SIG_SETMASK, &launch->before, NULL);
	bind_cpus(rank, launch->count);
	share_device(rank, launch->count, launch->devices, launch->share);
	set_environment(rank, launch->count, shared, launch->directory);
	execv("/proc/self/exe", argv);
	fprintf(stderr, "ddp-train: cannot start rank %d: %s\n", rank, strerror(errno));
	_exit(1);
}

/* --- All ranks --------------------------------------------------------------------------------- */

static void signal_all(const struct launch *launch, int number)
{
	for (int i = 0; i < launch->count; i++)
		if (launch->pids[i] > 0)
			kill(launch->pids[i], number);
}

static bool has_limit(const struct launch *launch)
{
	return launch->limit.deadline != UINT64_MAX;
}

/* Whether [status] means that another rank failed first. */
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
	if (status == 0 || (launch->is_cause && launch->status != 0))
		return;
	if (launch->status == 0 || own)
		launch->status = status;
	launch->is_cause = own;
	if (!has_limit(launch) && launch->severity == 0)
		launch->limit = ddp_watch_start(10, NULL, NULL);
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

/*
 * Passes a signal on to the ranks, unless the ranks have received it already. Keys such as Ctrl-C
 * send a signal to all foreground processes, including the ranks. If the terminal is closed, the
 * session's leader gets SIGHUP, and other processes get it only after the leader has ended.
 */
static void pass_signal(struct launch *launch, const siginfo_t *info)
{
	launch->passed = info->si_signo;
	launch->interrupts += info->si_signo == SIGINT;
	if (launch->interrupts > 2)
		signal_all(launch, SIGKILL);
	else if (info->si_code != SI_KERNEL || info->si_signo == SIGHUP)
		signal_all(launch, info->si_signo);
}

static void end_ranks(struct launch *launch)
{
	signal_all(launch, launch->severity == 0 ? SIGTERM : SIGKILL);
	launch->severity++;
	launch->limit = ddp_watch_start(5, NULL, NULL);
}

static void wait_all(struct launch *launch)
{
	while (launch->running > 0) {
		static const struct timespec period = {0, DDP_WATCH_PERIOD};
		siginfo_t info;
		int number =
			sigtimedwait(&launch->signals, &info, has_limit(launch) ? &period : NULL);

		if (number == SIGCHLD)
			reap(launch);
		else if (number > 0)
			pass_signal(launch, &info);
		if (has_limit(launch) && ddp_watch_check(&launch->limit, NULL) < 0)
			end_ranks(launch);
	}
}

/*
 * Blocks the signals that the launcher waits for. Signals that are ignored, such as SIGHUP under
 * nohup, stay ignored.
 */
static void block_signals(struct launch *launch)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};
	struct sigaction action;

	sigemptyset(&launch->signals);
	sigaddset(&launch->signals, SIGCHLD);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(&launch->signals, numbers[i]);
	/* If SIGCHLD were ignored, waitpid() would not return the children's statuses. */
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
	struct launch launch = {
		.count = count, .devices = devices, .limit = ddp_watch_start(-1, NULL, NULL)};

	if (!read_share(&launch.share))
		return EXIT_USAGE;
	launch.pids = ddp_xcalloc((size_t)count, sizeof(*launch.pids), "the ranks");
	if (create_directory(launch.directory) < 0) {
		free(launch.pids);
		return 1;
	}
	block_signals(&launch);
	start_all(&launch, shared, argv);
	wait_all(&launch);
	remove_tree(launch.directory);
	free(launch.pids);
	sigprocmask(SIG_SETMASK, &launch.before, NULL);
	return launch.status;
}
