/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum-tests.c - all-reduces between nodes, and between GPUs, for ddp-info --preflight
 *
 * Nodes form a world of libddp with one rank for each node. GPUs form a world with one rank, and
 * one process, for each GPU: libddp reads rank and device from the environment, and NCCL needs one
 * process for each GPU. libddp chooses the path. NCCL uses NVLink or PCIe within a node and the
 * network between nodes; without NCCL, host memory is used.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/watch.h"
#include "contract.h"
#include "info.h"
#include "node-tests.h"

#define SUM_TIME 0.4  /* seconds */
#define WAIT_MOST 0.1 /* part of an all-reduce that its ranks may wait for a CPU */
#define SUM_BYTES ((size_t)1 << 18)
#define GPU_BYTES_LEAST ((size_t)1 << 20)
#define GPU_BYTES_MOST ((size_t)64 << 20)

enum {
	POLL = 5000000, /* nanoseconds between two checks of child processes */
	SUMS = 4,	/* number of all-reduces between two checks of the time */
	NAME_SIZE = 64,
	PATH_SIZE = 4096,
	EXIT_UNTESTED = 1 /* exit status of a GPU's process if libddp has no engine for the GPU */
};

/* A rank of a test: for node [node] of [nodes], or for one of the [gpus] GPUs of that node. */
struct test_rank {
	const char *test, *directory;
	int node, nodes;
	int gpu, gpus; /* gpu -1: the rank of the node */
	double limit;
};

/* --- Child processes ----------------------------------------------------------------------- */

/* Returns the process id of a child that exits with work([data], i); negative: an error. */
static pid_t start_child(int (*work)(void *data, int i), void *data, int i)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(getppid() == parent ? work(data, i) : EXIT_FAILURE);
	}
	return pid;
}

/*
 * Reap the [children] that have ended, and set their numbers to 0. Unless [result] is NULL, update the
 * result of the test. Returns the number of children that are left.
 */
static int reap(const char *test, pid_t *children, int count, int *result)
{
	int left = 0, status;

	for (int i = 0; i < count; i++) {
		if (children[i] <= 0 || waitpid(children[i], &status, WNOHANG) != children[i]) {
			left += children[i] > 0;
			continue;
		}
		children[i] = 0;
		if (!result)
			continue;
		if (WIFEXITED(status) && *result >= 0 && WEXITSTATUS(status) > *result)
			*result = WEXITSTATUS(status);
		if (!WIFSIGNALED(status))
			continue;
		info_preflight_say("failed", test, "", (double)NAN, "",
				   "process %d of the test was ended by signal %d", i,
				   WTERMSIG(status));
		*result = -1;
	}
	return left;
}

int info_preflight_run(const char *test, int count, int (*work)(void *data, int i), void *data,
		       double limit, const struct ddp_watch *end)
{
	struct ddp_watch watch = ddp_watch_start(limit, NULL, NULL);
	pid_t children[INFO_GPUS_MOST];
	int result = 0, late = 0;

	for (int i = 0; i < count; i++) {
		children[i] = start_child(work, data, i);
		if (children[i] > 0)
			continue;
		info_preflight_say("failed", test, "", (double)NAN, "", "fork: %s",
				   strerror(errno));
		result = -1;
	}
	while (reap(test, children, count, &result) > 0) {
		late = ddp_watch_check(&watch, NULL);
		if (late < 0 || ddp_watch_check(end, NULL) < 0)
			break;
		ddp_watch_sleep(&watch, POLL);
	}
	if (late < 0)
		info_preflight_say("silent", test, "", (double)NAN, "", "no answer in %.0f s",
				   limit);
	for (int i = 0; i < count; i++)
		if (children[i] > 0) {
			result = -1;
			kill(children[i], SIGKILL);
		}
	/* A process holds its GPU until it has ended, which a driver may delay. */
	watch = ddp_watch_start(1, NULL, NULL);
	while (result < 0 && ddp_watch_check(&watch, NULL) == 0 &&
	       reap(test, children, count, NULL) > 0)
		ddp_watch_sleep(&watch, POLL);
	return result;
}

/* --- Worlds -------------------------------------------------------------------------------- */

static void set_number(const char *name, int value)
{
	setenv(name, ddp_show("%d", value).text, 1);
}

/* Set the variables from which ddp_init() reads the world. */
static void set_world(const struct test_rank *test_rank)
{
	int each = test_rank->gpu < 0 ? 1 : test_rank->gpus,
	    local = test_rank->gpu < 0 ? 0 : test_rank->gpu;

	set_number(DDP_NAME(DDP_RANK), test_rank->node * each + local);
	set_number(DDP_NAME(RANK), test_rank->node * each + local);
	set_number(DDP_NAME(DDP_NODE_RANK), test_rank->node);
	set_number(DDP_NAME(DDP_SIZE), test_rank->nodes * each);
	set_number(DDP_NAME(WORLD_SIZE), test_rank->nodes * each);
	set_number(DDP_NAME(GROUP_WORLD_SIZE), test_rank->nodes);
	set_number(DDP_NAME(DDP_LOCAL_RANK), local);
	set_number(DDP_NAME(DDP_LOCAL_SIZE), each);
	setenv(DDP_NAME(DDP_RENDEZVOUS), test_rank->directory, 1);
	if (test_rank->gpu < 0)
		unsetenv(DDP_NAME(DDP_DEVICE));
	else
		set_number(DDP_NAME(DDP_DEVICE), test_rank->gpu);
	unsetenv(DDP_NAME(DDP_SHARE));
	unsetenv(DDP_NAME(DDP_HEARTBEAT));
	/* Slurm's variables describe the whole step, not this world. */
	unsetenv("SLURM_PROCID");
	unsetenv("SLURM_STEP_NUM_TASKS");
}

static int join(struct ddp **ddp, const struct test_rank *test_rank)
{
	struct ddp_options options = DDP_OPTIONS_INIT;

	set_world(test_rank);
	/* The parent process ends a test at its limit. */
	options.timeout = 2 * test_rank->limit;
	options.no_signals = true;
	return ddp_init(ddp, &options);
}

static void say_failed(const struct test_rank *test_rank, int status, const struct ddp *ddp,
		       size_t wrong)
{
	if (wrong > 0)
		info_preflight_say("failed", test_rank->test, "", (double)NAN, "",
				   "%zu elements of a sum are wrong", wrong);
	else
		info_preflight_say(status == DDP_ERR_TIMEOUT ? "silent" : "failed", test_rank->test,
				   "", (double)NAN, "", "%s",
				   ddp ? ddp_error(ddp) : ddp_strerror(status));
}

/* Fill in small integers, so that the sums over up to 60,000 ranks are exact. */
static void fill(float *data, int rank)
{
	for (size_t i = 0; i < SUM_BYTES / sizeof(float); i++)
		data[i] = (float)(i % 251 + (size_t)rank % 8);
}

static size_t count_wrong(const float *data, int size)
{
	size_t ranks = 0, wrong = 0;

	for (size_t i = 0; i < (size_t)size; i++)
		ranks += i % 8;
	for (size_t i = 0; i < SUM_BYTES / sizeof(float); i++)
		wrong += data[i] != (float)(i % 251 * (size_t)size + ranks);
	return wrong;
}

/* --- In host memory ------------------------------------------------------------------------ */

/* Returns the seconds that this thread was ready to run without a CPU; 0: not reported by the kernel. */
static double waited_s(void)
{
	static int fd = -1;
	unsigned long long nanoseconds;
	char text[96];
	ssize_t n;

	if (fd < 0)
		fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	n = pread(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	return sscanf(text, "%*u %llu", &nanoseconds) == 1 ? (double)nanoseconds * 1e-9 : 0;
}

/*
 * Sets [rate] to the bytes per second of the fastest of several all-reduces, since other jobs may
 * use the network and the CPUs. The time of the slowest rank counts. Only all-reduces in which the
 * ranks hardly waited for a CPU are considered. If there are none, the rate is that of busy CPUs, and
 * says nothing about the network: sets [is_busy].
 */
static int measure(struct ddp *ddp, float *data, double *rate, bool *is_busy)
{
	double best[2] = {(double)INFINITY, (double)INFINITY}, started = ddp_seconds();
	/* The last element of [times] is the time since the start, so that all ranks stop together. */
	double times[SUMS + 1] = {0}, waits[SUMS];
	int status = 0;

	while (status == 0 && times[SUMS] < SUM_TIME) {
		for (int i = 0; i < SUMS && status == 0; i++) {
			double waited = waited_s(), begun = ddp_seconds();

			status = ddp_all_reduce(ddp, data, data, SUM_BYTES / sizeof(float), DDP_F32,
						DDP_MAX);
			times[i] = ddp_seconds() - begun;
			waits[i] = waited_s() - waited;
		}
		times[SUMS] = ddp_seconds() - started;
		if (status == 0)
			status = ddp_all_reduce(ddp, times, times, SUMS + 1, DDP_F64, DDP_MAX);
		if (status == 0)
			status = ddp_all_reduce(ddp, waits, waits, SUMS, DDP_F64, DDP_MAX);
		for (int i = 0; i < SUMS && status == 0; i++) {
			double *least = &best[waits[i] > WAIT_MOST * times[i]];

			*least = fmin(*least, times[i]);
		}
	}
	*is_busy = isinf(best[0]);
	*rate = (double)SUM_BYTES / best[*is_busy];
	return status;
}

/* Sets [gpus] to the minimum number of GPUs on a node. */
static int reduce(struct ddp *ddp, size_t *wrong, double *rate, bool *is_busy, double *gpus)
{
	float *data = malloc(SUM_BYTES);
	const struct ddp_world *world = ddp_world(ddp);
	int status = DDP_ERR_MEMORY;

	if (data) {
		fill(data, world->rank);
		status = ddp_all_reduce(ddp, data, data, SUM_BYTES / sizeof(float), DDP_F32,
					DDP_SUM);
	}
	if (status == 0) {
		*wrong = count_wrong(data, world->size);
		status = measure(ddp, data, rate, is_busy);
	}
	if (status == 0)
		status = ddp_all_reduce(ddp, gpus, gpus, 1, DDP_F64, DDP_MIN);
	free(data);
	return status;
}

/* Run the test in a child process. Returns the number of GPUs that each node has. */
static int run_host(void *data, int i)
{
	const struct test_rank *test_rank = data;
	struct ddp *ddp = NULL;
	size_t wrong = 0;
	double rate = 0, gpus = test_rank->gpus;
	bool is_busy = false;
	int status = join(&ddp, test_rank);

	(void)i;
	if (status == 0)
		status = reduce(ddp, &wrong, &rate, &is_busy, &gpus);
	if (status < 0 || wrong > 0)
		say_failed(test_rank, status, ddp, wrong);
	else
		info_preflight_say(is_busy ? "fact" : "rate", test_rank->test,
				   is_busy ? "busy CPUs" : "", rate * 1e-6, "MB/s", "%s", "");
	ddp_destroy(ddp);
	return status < 0 || gpus < 0 ? 0 : (int)gpus;
}

static bool make_directory(const char *test, const char *directory)
{
	if (mkdir(directory, 0700) == 0 || errno == EEXIST)
		return true;
	info_preflight_say("failed", test, "", (double)NAN, "", "cannot make %s: %s", directory,
			   strerror(errno));
	return false;
}

void info_preflight_sum(const char *test, const char *directory, int number, int size, int *gpus,
			double limit, const struct ddp_watch *end)
{
	struct test_rank test_rank = {.test = test,
				      .directory = directory,
				      .node = number,
				      .nodes = size,
				      .gpu = -1,
				      .gpus = *gpus,
				      .limit = limit};
	char name[24], path[PATH_SIZE];
	int tested;

	if (!make_directory(test, directory))
		return;
	tested = info_preflight_run(test, 1, run_host, &test_rank, limit, end);
	if (tested <= 0)
		return;
	snprintf(name, sizeof(name), "GPU %s", test);
	snprintf(path, sizeof(path), "%s-gpus", directory);
	info_preflight_gpu_sum(name, path, number, size, &tested, limit, end);
	if (tested == 0)
		*gpus = 0;
}

/* --- In GPU memory ------------------------------------------------------------------------- */

static int sum_on_gpu(struct ddp *ddp, void *memory, size_t bytes, enum ddp_op op)
{
	int status = ddp_device_all_reduce(ddp, memory, memory, bytes / sizeof(float), DDP_F32, op,
					   NULL);

	return status == 0 ? ddp_device_wait(ddp, NULL) : status;
}

/* Like measure(), but with larger messages while time is left. */
static int measure_on_gpu(struct ddp *ddp, void *memory, double *rate)
{
	double started = ddp_seconds();
	int status = 0;

	for (size_t bytes = GPU_BYTES_LEAST; bytes <= GPU_BYTES_MOST; bytes *= 4) {
		/* Times of the fastest all-reduce, and of all all-reduces so far. */
		double times[] = {(double)INFINITY, 0};

		for (int i = 0; i < SUMS && status == 0; i++) {
			double begun = ddp_seconds();

			status = sum_on_gpu(ddp, memory, bytes, DDP_MAX);
			times[0] = fmin(times[0], ddp_seconds() - begun);
		}
		times[1] = ddp_seconds() - started;
		if (status == 0)
			status = ddp_all_reduce(ddp, times, times, 2, DDP_F64, DDP_MAX);
		if (status < 0)
			return status;
		*rate = fmax(*rate, (double)bytes / times[0]);
		if (times[1] > SUM_TIME)
			break;
	}
	return status;
}

static int reduce_on_gpu(struct ddp *ddp, int gpu, size_t *wrong, double *rate)
{
	struct info_copier *copier = info_copier_open(gpu);
	const struct ddp_world *world = ddp_world(ddp);
	float *data = malloc(SUM_BYTES);
	void *memory = NULL;
	int status = ddp_agree(ddp, copier && data ? 0 : DDP_ERR_ENGINE,
			       "cannot copy between the host and a GPU");

	if (status == 0)
		status = ddp_device_alloc(ddp, GPU_BYTES_MOST, &memory);
	if (status == 0) {
		fill(data, world->rank);
		status = info_copy(copier, memory, data, SUM_BYTES, false) ? 0 : DDP_ERR_ENGINE;
	}
	if (status == 0)
		status = sum_on_gpu(ddp, memory, SUM_BYTES, DDP_SUM);
	if (status == 0)
		status = info_copy(copier, memory, data, SUM_BYTES, true) ? 0 : DDP_ERR_ENGINE;
	if (status == 0) {
		*wrong = count_wrong(data, world->size);
		status = measure_on_gpu(ddp, memory, rate);
	}
	free(data);
	return status;
}

/*
 * Write a kind such as "8 x NVIDIA H100 80GB HBM3, NCCL 2.28.9", since ddp-run compares only rates
 * of equal GPUs over the same path.
 */
static int describe(struct ddp *ddp, const struct test_rank *test_rank, char kind[96])
{
	const char *path = ddp_device_path(ddp);
	int size = ddp_world(ddp)->size, status;
	char name[NAME_SIZE] = "", *names = calloc((size_t)size, NAME_SIZE);
	bool is_mixed = false;

	info_preflight_gpu_name(test_rank->gpu, name, sizeof(name));
	status = ddp_agree(ddp, names ? 0 : DDP_ERR_MEMORY, NULL);
	if (status == 0)
		status = ddp_all_gather(ddp, name, names, NAME_SIZE);
	for (int i = 1; i < size && status == 0; i++)
		is_mixed = is_mixed || memcmp(names, names + i * NAME_SIZE, NAME_SIZE) != 0;
	snprintf(kind, 96, "%d x %s, %.*s", test_rank->gpus, is_mixed ? "several kinds" : name,
		 (int)strcspn(path, ","), path);
	free(names);
	return status;
}

/* Run the test in the process of one GPU. Returns the exit status. */
static int run_gpu(void *data, int gpu)
{
	struct test_rank *test_rank = data;
	struct ddp *ddp = NULL;
	char kind[96] = "";
	size_t wrong = 0;
	double rate = 0;
	bool untested;
	int status;

	test_rank->gpu = gpu;
	status = join(&ddp, test_rank);
	if (status == 0)
		status = ddp_device_join(ddp);
	/* These errors say nothing about the program, which may use another version of NCCL. */
	untested = status == DDP_ERR_UNSUPPORTED || status == DDP_ERR_MISMATCH;
	if (untested)
		info_preflight_say("untested", test_rank->test, "", (double)NAN, "", "%.*s",
				   (int)strcspn(ddp_error(ddp), ";"), ddp_error(ddp));
	if (status == 0)
		status = describe(ddp, test_rank, kind);
	if (status == 0)
		status = reduce_on_gpu(ddp, gpu, &wrong, &rate);
	if (!untested && (status < 0 || wrong > 0))
		say_failed(test_rank, status, ddp, wrong);
	else if (!untested && ddp_world(ddp)->rank == 0)
		info_preflight_say("rate", test_rank->test, kind, rate * 1e-9, "GB/s", "%s", "");
	ddp_destroy(ddp);
	return untested ? EXIT_UNTESTED : 0;
}

void info_preflight_gpu_sum(const char *test, const char *directory, int number, int size,
			    int *gpus, double limit, const struct ddp_watch *end)
{
	struct test_rank test_rank = {.test = test,
				      .directory = directory,
				      .node = number,
				      .nodes = size,
				      .gpus = *gpus,
				      .limit = limit};

	if (make_directory(test, directory) &&
	    info_preflight_run(test, *gpus, run_gpu, &test_rank, limit, end) == EXIT_UNTESTED)
		*gpus = 0;
}
