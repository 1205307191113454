/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "node-tests.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/watch.h"
#include "contract.h"

/* Bytes of each thread. The source and the target together exceed the thread's part of a cache. */
#define COPY_BYTES ((size_t)16 << 20)
#define COPY_PIECE ((size_t)1 << 20) /* bytes of the unit that is timed */
#define COPY_TIME 0.3		     /* seconds */
#define PRODUCT_TIME 0.6

enum {
	SIDE = 96, /* rows and columns of the matrices */
	THREADS_MOST = 1024,
	SPACE_LEAST = 16 << 20, /* free bytes that the directory must have */
	PATH_SIZE = 4096
};

static int rank;
static const char *rendezvous;
static int phase;
static double phase_limit = 10; /* time limit of each test in the current phase, in seconds */
static int gpus;		/* number of GPUs of this node whose sums are tested */

static void say_fact(const char *test, double value, const char *unit)
{
	info_preflight_say("fact", test, "", value, unit, "%s", "");
}

/* --- Memory and CPUs ----------------------------------------------------------------------- */

/* The matrices contain integers, so that their product is exact in any order of summation. */
static float left[SIDE][SIDE], right[SIDE][SIDE], product[SIDE][SIDE];

struct thread {
	pthread_t id;
	void *(*run)(void *thread);
	double end;  /* end of the test, on the clock of ddp_seconds() */
	double best; /* seconds of the fastest unit of work; short units are not all interrupted */
	double cpu, took; /* CPU time and wall time, in seconds */
	size_t wrong;	  /* number of wrong elements */
};

static void fill_matrices(void)
{
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			left[i][j] = (float)((i * 7 + j * 3) % 17 - 8);
			right[i][j] = (float)((i * 5 + j * 11) % 13 - 6);
		}
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			int sum = 0;

			for (int k = 0; k < SIDE; k++)
				sum += (int)left[i][k] * (int)right[k][j];
			product[i][j] = (float)sum;
		}
}

static void multiply(float out[SIDE][SIDE])
{
	memset(out, 0, sizeof(product));
	for (int i = 0; i < SIDE; i++)
		for (int k = 0; k < SIDE; k++)
			for (int j = 0; j < SIDE; j++)
				out[i][j] += left[i][k] * right[k][j];
#ifdef PREFLIGHT_FAULT
	/* For the tests of ddp-run: the node with this name computes wrong results. */
	const char *node = getenv("SLURMD_NODENAME"), *wrong = getenv("DDP_PREFLIGHT_FAULT");

	if (node && wrong && strcmp(node, wrong) == 0)
		out[SIDE / 2][SIDE / 3] += 1;
#endif
}

static size_t count_wrong(float out[SIDE][SIDE])
{
	size_t wrong = 0;

	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++)
			wrong += out[i][j] != product[i][j];
	return wrong;
}

static double thread_seconds(void)
{
	struct timespec time;

	return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) < 0 ? 0 : ddp_date(&time);
}

static void *run_product(void *data)
{
	struct thread *thread = data;
	double cpu = thread_seconds(), started = ddp_seconds();
	static _Thread_local float out[SIDE][SIDE];

	for (double now = started; now < thread->end;) {
		multiply(out);
		thread->best = fmin(thread->best, ddp_seconds() - now);
		thread->wrong += count_wrong(out);
		now = ddp_seconds();
	}
	thread->cpu = thread_seconds() - cpu;
	thread->took = ddp_seconds() - started;
	return NULL;
}

static void *run_copy(void *data)
{
	struct thread *thread = data;
	char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);

	if (from && to) {
		memset(from, 1, COPY_BYTES);
		memset(to, 2, COPY_BYTES);
		for (size_t at = 0, done = 0; done < COPY_BYTES || ddp_seconds() < thread->end;
		     done += COPY_PIECE) {
			double started = ddp_seconds();

			memcpy(to + at, from + at, COPY_PIECE);
			thread->best = fmin(thread->best, ddp_seconds() - started);
			from[at] = to[at + 1]; /* so that the copy is not optimized away */
			at = (at + COPY_PIECE) % COPY_BYTES;
		}
	}
	free(from);
	free(to);
	return NULL;
}

/*
 * Run [count] threads for [seconds]. Returns the sum of the threads' best rates, in units of work
 * per second.
 */
static double run_threads(struct thread *threads, int count, void *(*run)(void *), double seconds)
{
	double end = ddp_seconds() + seconds, rate = 0;
	int started = 0;

	for (; started < count; started++) {
		threads[started] = (struct thread){.end = end, .best = (double)INFINITY};
		if (pthread_create(&threads[started].id, NULL, run, &threads[started]) != 0)
			break;
	}
	for (int i = 0; i < started; i++) {
		pthread_join(threads[i].id, NULL);
		rate += 1 / threads[i].best;
	}
	return rate;
}

/*
 * Write the number and the name of the CPUs that this process may use to [kind], since rates are
 * compared only within a kind. Returns the number of CPUs.
 */
static int describe_cpus(char *kind, size_t size)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256], name[64] = "";
	cpu_set_t set;
	int count = 1;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		count = CPU_COUNT(&set);
	while (file && !*name && fgets(line, sizeof(line), file))
		(void)sscanf(line, "model name%*[ \t:]%63[^\t\n]", name);
	if (file)
		fclose(file);
	snprintf(kind, size, "%d x %s", count, *name ? name : "CPU");
	return count < THREADS_MOST ? count : THREADS_MOST;
}

/* Returns how often Intel cores were throttled since the node started; -1: unknown. */
static double count_throttled(void)
{
	double sum = -1;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		char path[96];
		long long count;
		FILE *file;

		snprintf(path, sizeof(path),
			 "/sys/devices/system/cpu/cpu%d/thermal_throttle/core_throttle_count", cpu);
		file = fopen(path, "re");
		if (!file)
			break;
		if (fscanf(file, "%lld", &count) == 1)
			sum = (sum < 0 ? 0 : sum) + (double)count;
		fclose(file);
	}
	return sum;
}

static void test_cpus(void)
{
	static struct thread threads[THREADS_MOST];
	char kind[96];
	int count = describe_cpus(kind, sizeof(kind));
	double throttled = count_throttled(), rate, cpu = 0, took = 0;
	size_t wrong = 0;

	info_preflight_begin("memory");
	rate = run_threads(threads, count, run_copy, COPY_TIME);
	info_preflight_say("rate", "memory", kind, rate * 2 * COPY_PIECE * 1e-9, "GB/s", "%s", "");
	info_preflight_begin("product");
	fill_matrices();
	rate = run_threads(threads, count, run_product, PRODUCT_TIME);
	for (int i = 0; i < count; i++) {
		wrong += threads[i].wrong;
		cpu += threads[i].cpu;
		took += threads[i].took;
	}
	throttled = count_throttled() - throttled;
	if (wrong > 0)
		info_preflight_say("failed", "product", kind, (double)NAN, "",
				   "%zu elements of matrix products on CPUs are wrong", wrong);
	else if (throttled > 0)
		info_preflight_say("rate", "product", kind, rate * 2 * SIDE * SIDE * SIDE * 1e-9,
				   "GFLOP/s", "CPUs were throttled %.0f times", throttled);
	else
		info_preflight_say("rate", "product", kind, rate * 2 * SIDE * SIDE * SIDE * 1e-9,
				   "GFLOP/s", "%s", "");
	if (took > 0)
		info_preflight_say("rate", "CPU time", kind, 100 * cpu / took, "%", "%s", "");
}

/* --- Files and clock ----------------------------------------------------------------------- */

/* Returns the absolute path of [path] for messages, if it has one. */
static const char *absolute(const char *path)
{
	static char absolute[PATH_SIZE];

	return realpath(path, absolute) ? absolute : path;
}

static bool test_space(const char *test, const char *path)
{
	struct statvfs space;
	double bytes;

	info_preflight_begin(test);
	if (statvfs(path, &space) < 0) {
		info_preflight_say("failed", test, "", (double)NAN, "", "%s: %s", path,
				   strerror(errno));
		return false;
	}
	bytes = (double)space.f_bavail * (double)space.f_frsize;
	if (bytes >= SPACE_LEAST) {
		say_fact(test, bytes / (1 << 20), "MiB");
		return true;
	}
	info_preflight_say("failed", test, "", bytes / (1 << 20), "MiB",
			   "%s is full: %.0f bytes are free", absolute(path), bytes);
	return false;
}

/* Test that the user can write a file in the working directory. */
static void test_directory(void)
{
	char name[64];
	int fd, failed = 0;

	if (!test_space("directory", "."))
		return;
	snprintf(name, sizeof(name), ".ddp-preflight-%d-%d", rank, (int)getpid());
	fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	/* With a quota, or over NFS, an error may occur only in write() or close(). */
	if (fd < 0 || write(fd, "", 1) != 1)
		failed = errno;
	if (fd >= 0 && close(fd) < 0)
		failed = errno;
	if (fd >= 0)
		(void)unlink(name);
	if (failed)
		info_preflight_say("failed", "directory", "", (double)NAN, "",
				   "cannot write a file in %s: %s", absolute("."),
				   strerror(failed));
}

/* Find [name] as execvp() does. Returns false and sets errno if there is no such program. */
static bool find_program(const char *name, char path[PATH_SIZE])
{
	const char *list = getenv("PATH");

	snprintf(path, PATH_SIZE, "%s", name);
	if (strchr(name, '/'))
		return true;
	for (; list && *list; list += strspn(list, ":")) {
		int length = (int)strcspn(list, ":");

		snprintf(path, PATH_SIZE, "%.*s/%s", length, list, name);
		if (access(path, X_OK) == 0)
			return true;
		list += length;
	}
	errno = ENOENT;
	return false;
}

/* Test that [files] can be read. The test reads them, because NFS checks permissions only then. */
static void test_files(char *const *files)
{
	for (int i = 0; files[i]; i++) {
		char path[PATH_SIZE], byte;
		int fd = -1;

		info_preflight_begin("program");
		if (i > 0)
			snprintf(path, sizeof(path), "%s", files[i]);
		if ((i > 0 || find_program(files[i], path)) &&
		    (fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0 && read(fd, &byte, 1) >= 0 &&
		    (i > 0 || access(path, X_OK) == 0))
			info_preflight_say("fact", "program", files[i], (double)NAN, "", "%s", "");
		else
			info_preflight_say("failed", "program", files[i], (double)NAN, "",
					   "cannot read %s: %s", files[i], strerror(errno));
		if (fd >= 0)
			close(fd);
	}
}

/*
 * Report the offset of this node's clock from [launch], the time on the launch host. The offset
 * includes the delay of the message, which ddp-run subtracts.
 */
static void test_clock(double launch)
{
	if (launch > 0)
		info_preflight_say("fact", "clock", "", ddp_date(NULL) - launch, "s", "%s", "");
}

/* --- GPUs ---------------------------------------------------------------------------------- */

/*
 * Test the GPUs in a child process: if this process used the driver itself, it could not fork other
 * processes that use it. Returns the number of GPUs that passed.
 */
static int test_gpus(void)
{
	pid_t pid = info_preflight_fork();
	int status = 0;

	if (pid == 0)
		_exit(info_preflight_gpus());
	if (pid < 0)
		info_preflight_say("failed", "devices", "", (double)NAN, "", "fork: %s",
				   strerror(errno));
	else if (waitpid(pid, &status, 0) == pid && WIFEXITED(status))
		return WEXITSTATUS(status);
	if (WIFSIGNALED(status))
		info_preflight_say("failed", "devices", "", (double)NAN, "",
				   "the tests of GPUs were ended by signal %d", WTERMSIG(status));
	return 0;
}

/* Returns the path of a directory [name] in which the ranks of a test meet. */
static const char *meeting(char path[PATH_SIZE], const char *name, int number)
{
	snprintf(path, PATH_SIZE, "%s/%s-%d-%d", rendezvous, name, phase, number);
	return path;
}

static void test_node(char *const *files, double launch)
{
	char path[PATH_SIZE];

	test_clock(launch);
	test_files(files);
	test_directory();
	test_space("/dev/shm", "/dev/shm");
	test_cpus();
	gpus = test_gpus();
	if (gpus > 1 && rendezvous)
		info_preflight_gpu_sum("GPU sum", meeting(path, "node", rank), 0, 1, &gpus,
				       phase_limit);
}

/* --- Commands ------------------------------------------------------------------------------ */

/*
 * Returns entry [index] of the numbers in [list], or -1 if [list] is shorter. Sets [count] to the
 * number of entries that are not negative.
 */
static int read_entry(const char *list, int index, int *count)
{
	int entry = -1;
	char *end;

	*count = 0;
	for (int i = 0;; i++, list = end) {
		long value = strtol(list, &end, 10);

		if (end == list)
			return entry;
		*count += value >= 0;
		if (i == index)
			entry = (int)value;
	}
}

static void run_command(const char *command, char *const *files)
{
	char word[16], path[PATH_SIZE];
	int used = 0, count, entry;
	double launch;

	if (sscanf(command, "%15s %d %lf %lf%n", word, &phase, &phase_limit, &launch, &used) < 4)
		return;
	entry = read_entry(command + used, rank, &count);
	if (strcmp(word, "node") == 0) {
		if (entry >= 0)
			test_node(files, launch);
	} else if (entry >= 0 && !rendezvous) {
		info_preflight_say("untested", word, "", (double)NAN, "",
				   "the nodes share no directory, see --ddp-rdzv");
	} else if (entry >= 0 && strcmp(word, "pair") == 0) {
		info_preflight_sum("pair", meeting(path, "pair", entry < rank ? entry : rank),
				   entry < rank, 2, &gpus, phase_limit);
	} else if (entry >= 0 && strcmp(word, "all") == 0) {
		info_preflight_sum("all", meeting(path, "all", 0), entry, count, &gpus,
				   phase_limit);
	}
	info_preflight_say("done", "", "", phase, "", "%s", "");
}

int info_preflight(char *const *files)
{
	const char *node = getenv("SLURMD_NODENAME");
	const char *number = getenv(DDP_NAME(DDP_RANK)) ?: getenv("SLURM_PROCID");
	const char *directory = getenv(DDP_NAME(DDP_RENDEZVOUS));
	char host[256] = "", *line = NULL;
	bool directed = false;
	size_t size = 0;

	rank = number ? atoi(number) : 0;
	info_preflight_set_rank(rank);
	rendezvous = directory ? strdup(directory) : NULL;
	(void)gethostname(host, sizeof(host) - 1);
	info_preflight_say("hello", "", "", ddp_date(NULL), "", "%s", node ? node : host);
	while (getline(&line, &size, stdin) > 0) {
		directed = true;
		run_command(line, files);
	}
	if (!directed)
		test_node(files, 0);
	free(line);
	return 0;
}
