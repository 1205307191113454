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

#include "base/checksum.h"
#include "base/watch.h"
#include "contract.h"
#include "info.h"
#include "node-tests.h"

#define SUM_TIME 0.4  /* seconds */
#define WAIT_MOST 0.1 /* largest fraction of an all-reduce's time in which a rank waits for a CPU */
#define SUM_BYTES ((size_t)1 << 18)
#define GPU_BYTES_LEAST ((size_t)1 << 20)
#define GPU_BYTES_MOST ((size_t)64 << 20)

enum {
	POLL = 5000000, /* time between two checks of child processes, in nanoseconds */
	SUMS = 4,	/* number of all-reduces between two checks of the time */
	NAME_SIZE = 64,
	PATH_SIZE = 4096,
	EXIT_UNTESTED = 1 /* exit status of a GPU's process if libddp has no engine for the GPU */
};

/* A rank of a test: for node [node] of [nodes], or for one of the [gpus] GPUs of that node. */
struct test_rank {
	const char *test, *directory;
	int node, nodes;
	bool is_of_gpus;
	int gpu, gpus; /* gpu is -1 for the rank of a node */
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
 * Reap those [children] that have ended, and set their process ids to 0. Unless [result] is NULL,
 * include their results in it. Returns the number of children that still run.
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
		info_preflight_say("failed", test, "", (double)NAN, "",
				   "cannot start a process: %s", strerror(errno));
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
			if (late == 0 && result >= 0)
				info_preflight_say("cut", test, "", (double)NAN, "", "%s",
						   "the time of the node is over");
			result = -1;
			kill(children[i], SIGKILL);
		}
	/*
	 * A process holds its GPU until it has ended, and the driver may delay this end. Wait up to
	 * a second.
	 */
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

/* Set the variables from which ddp_init() reads the rank and the world. */
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
	/* The parent process ends a test at its limit. The timeout here only has to be longer. */
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

/* Fill [data] with small integers, so that their sums over up to 60,000 ranks are exact. */
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

/* --- All-reduces --------------------------------------------------------------------------- */

/* Returns the seconds that this thread has waited for a CPU; 0 if the kernel does not report it. */
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

/* All-reduce [memory], which is GPU memory unless [gpu] is negative. */
static int sum(struct ddp *ddp, int gpu, void *memory, size_t bytes, enum ddp_op op)
{
	size_t count = bytes / sizeof(float);
	int status;

	if (gpu < 0)
		return ddp_all_reduce(ddp, memory, memory, count, DDP_F32, op);
	status = ddp_device_all_reduce(ddp, memory, memory, count, DDP_F32, op, NULL);
	return status == 0 ? ddp_device_wait(ddp, NULL) : status;
}

/*
 * Sets [rate] to the bytes per second of the fastest of several all-reduces, since other jobs may
 * use the network and the CPUs. The time of the slowest rank counts. Messages of GPUs become larger
 * while time is left. In host memory, only all-reduces in which the ranks hardly waited for a CPU
 * are considered. If there are none, sets [is_busy]: busy CPUs limited the rate, which says nothing
 * about the network.
 */
static int measure(struct ddp *ddp, int gpu, void *memory, double *rate, bool *is_busy)
{
	double best[2] = {0, 0}, started = ddp_seconds();
	/* The last element of [times] is the time since the start, so that all ranks stop together. */
	double times[SUMS + 1] = {0}, waits[SUMS] = {0};
	size_t bytes = gpu < 0 ? SUM_BYTES : GPU_BYTES_LEAST;
	int status = 0;

	while (status == 0 && times[SUMS] < SUM_TIME) {
		for (int i = 0; i < SUMS && status == 0; i++) {
			double waited = waited_s(), begun = ddp_seconds();

			status = sum(ddp, gpu, memory, bytes, DDP_MAX);
			times[i] = ddp_seconds() - begun;
			waits[i] = gpu < 0 ? waited_s() - waited : 0;
		}
		times[SUMS] = ddp_seconds() - started;
		if (status == 0)
			status = ddp_all_reduce(ddp, times, times, SUMS + 1, DDP_F64, DDP_MAX);
		if (status == 0)
			status = ddp_all_reduce(ddp, waits, waits, SUMS, DDP_F64, DDP_MAX);
		for (int i = 0; i < SUMS && status == 0; i++) {
			double *most = &best[waits[i] > WAIT_MOST * times[i]];

			*most = fmax(*most, (double)bytes / times[i]);
		}
		if (gpu >= 0 && bytes < GPU_BYTES_MOST)
			bytes *= 4;
	}
	*is_busy = best[0] <= 0;
	*rate = best[*is_busy];
	return status;
}

/*
 * Copy [data] to GPU memory or, with [back], from it. Without [copier], both are the same memory.
 */
static int copy(struct info_copier *copier, void *memory, float *data, bool back)
{
	return !copier || info_copy(copier, memory, data, SUM_BYTES, back) ? 0 : DDP_ERR_ENGINE;
}

static int reduce(struct ddp *ddp, int gpu, size_t *wrong, double *rate, bool *is_busy)
{
	struct info_copier *copier = gpu < 0 ? NULL : info_copier_open(gpu);
	const struct ddp_world *world = ddp_world(ddp);
	float *data = malloc(SUM_BYTES);
	void *memory = data;
	int status = ddp_agree(ddp, data && (gpu < 0 || copier) ? 0 : DDP_ERR_ENGINE,
			       "ddp-info has no memory, or cannot copy between the host and a GPU");

	if (status == 0 && gpu >= 0)
		status = ddp_device_alloc(ddp, GPU_BYTES_MOST, &memory);
	if (status == 0) {
		fill(data, world->rank);
		status = copy(copier, memory, data, false);
	}
	if (status == 0)
		status = sum(ddp, gpu, memory, SUM_BYTES, DDP_SUM);
	if (status == 0)
		status = copy(copier, memory, data, true);
	if (status == 0) {
		*wrong = count_wrong(data, world->size);
		status = measure(ddp, gpu, memory, rate, is_busy);
	}
	free(data);
	return status;
}

/*
 * Write a text such as "8 x NVIDIA H100 80GB HBM3, NCCL 2.28.9" to [kind]. ddp-run compares rates
 * only if their kinds are equal: equal GPUs and an equal path.
 */
static int describe(struct ddp *ddp, const struct test_rank *test_rank, char kind[96])
{
	const char *path = ddp_device_path(ddp);
	char name[NAME_SIZE] = "";
	int64_t most[2]; /* maxima of the name's hash and its negative, to find other names */
	int status;

	info_preflight_gpu_name(test_rank->gpu, name, sizeof(name));
	most[0] = (int64_t)(ddp_hash(DDP_HASH_INIT, name, strlen(name)) >> 1);
	most[1] = -most[0];
	status = ddp_all_reduce(ddp, most, most, 2, DDP_I64, DDP_MAX);
	snprintf(kind, 96, "%d x %s, %.*s", test_rank->gpus,
		 most[0] != -most[1] ? "several kinds" : name, (int)strcspn(path, ","), path);
	return status;
}

/* Returns the length of the first sentence of [text], without its period. */
static int first_sentence(const char *text)
{
	const char *end = strstr(text, ". ");

	return (int)(end ? (size_t)(end - text) : strcspn(text, ";"));
}

/* Run the test in a child process. Returns its exit status, which is described in run_test(). */
static int run_rank(void *data, int i)
{
	struct test_rank *test_rank = data;
	bool is_gpu = test_rank->is_of_gpus, is_busy = false, untested;
	double rate = 0, gpus = fmax(0, test_rank->gpus); /* negative if their test did not end */
	struct ddp *ddp = NULL;
	char kind[96] = "";
	size_t wrong = 0;
	int status;

	test_rank->gpu = is_gpu ? i : -1;
	status = join(&ddp, test_rank);
	if (status == 0 && is_gpu)
		status = ddp_device_join(ddp);
	/* These errors are not faults of the node: the program may use another version of NCCL. */
	untested = is_gpu && (status == DDP_ERR_UNSUPPORTED || status == DDP_ERR_MISMATCH);
	if (status == 0)
		status = is_gpu ? describe(ddp, test_rank, kind)
				: ddp_all_reduce(ddp, &gpus, &gpus, 1, DDP_F64, DDP_MIN);
	if (status == 0)
		status = reduce(ddp, test_rank->gpu, &wrong, &rate, &is_busy);
	if (untested)
		info_preflight_say("untested", test_rank->test, "", (double)NAN, "", "%.*s",
				   first_sentence(ddp_error(ddp)), ddp_error(ddp));
	else if (status < 0 || wrong > 0)
		say_failed(test_rank, status, ddp, wrong);
	else if (ddp_world(ddp)->rank == 0)
		info_preflight_say(is_busy ? "fact" : "rate", test_rank->test,
				   is_busy ? "busy CPUs" : kind, rate * (is_gpu ? 1e-9 : 1e-6),
				   is_gpu ? "GB/s" : "MB/s", "%s", "");
	ddp_destroy(ddp);
	return is_gpu ? (untested ? EXIT_UNTESTED : 0) : status < 0 ? 0 : (int)gpus;
}

/*
 * Run the ranks of a node, or of its GPUs. For GPUs, returns EXIT_UNTESTED if libddp has no engine
 * for them. For a node, returns the smallest number of GPUs that a node has.
 */
static int run_test(struct test_rank *test_rank, const struct ddp_watch *end)
{
	if (mkdir(test_rank->directory, 0700) < 0 && errno != EEXIST) {
		info_preflight_say("failed", test_rank->test, "", (double)NAN, "",
				   "cannot make %s: %s", test_rank->directory, strerror(errno));
		return -1;
	}
	return info_preflight_run(test_rank->test, test_rank->is_of_gpus ? test_rank->gpus : 1,
				  run_rank, test_rank, test_rank->limit, end);
}

void info_preflight_gpu_sum(const char *test, const char *directory, int number, int size,
			    int *gpus, double limit, const struct ddp_watch *end)
{
	struct test_rank test_rank = {.test = test,
				      .directory = directory,
				      .node = number,
				      .nodes = size,
				      .is_of_gpus = true,
				      .gpus = *gpus,
				      .limit = limit};

	if (run_test(&test_rank, end) == EXIT_UNTESTED)
		*gpus = 0;
}

void info_preflight_sum(const char *test, const char *directory, int number, int size, int *gpus,
			double limit, const struct ddp_watch *end)
{
	struct test_rank test_rank = {.test = test,
				      .directory = directory,
				      .node = number,
				      .nodes = size,
				      .gpus = *gpus,
				      .limit = limit};
	char name[24], path[PATH_SIZE];
	int tested = run_test(&test_rank, end);

	if (tested <= 0)
		return;
	snprintf(name, sizeof(name), "GPU %s", test);
	snprintf(path, sizeof(path), "%s-gpus", directory);
	info_preflight_gpu_sum(name, path, number, size, &tested, limit, end);
	if (tested == 0)
		*gpus = 0;
}
