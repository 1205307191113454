/* SPDX-License-Identifier: Apache-2.0 */
/* node-tests.c - the preflight's tests of this node, and the programme of tests with other nodes */
#include "config.h"

#include "node-tests.h"

#include <dirent.h>
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
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/watch.h"
#include "contract.h"

/* Bytes that each thread copies. Source and target together exceed the thread's part of a cache. */
#define COPY_BYTES ((size_t)16 << 20)
#define COPY_PIECE ((size_t)1 << 20) /* bytes of the unit that is timed */
#define COPY_TIME 0.3		     /* seconds */
#define PRODUCT_TIME 0.6

enum {
	SIDE = 96, /* rows and columns of the matrices */
	THREADS_MOST = 1024,
	REPETITIONS = 3,	/* additional tests of CPUs, if the node is tested again */
	SPACE_LEAST = 16 << 20, /* free bytes that the directory must have */
	PATH_SIZE = 4096
};

/* --- Memory and CPUs ----------------------------------------------------------------------- */

/* The elements are integers, so that the product is exact in any order of summation. */
static float left[SIDE][SIDE], right[SIDE][SIDE], product[SIDE][SIDE];

struct thread {
	pthread_t id;
	void *(*run)(void *thread);
	double end;  /* end of the test, on the clock of ddp_seconds() */
	double best; /* seconds of the fastest unit of work, which was probably not interrupted */
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
	/* For the tests of ddp-run: the node that the variable names computes wrong results. */
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
 * Run [count] threads for [seconds]. Returns the sum of their rates, in units of work per second.
 * The rate of a thread is that of its fastest unit.
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
 * Write to [kind] the number of CPUs of this process and their model, since ddp-run compares rates
 * only if their kinds are equal. Returns the number of CPUs.
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
	/* Report all CPUs of the node, of which Slurm may have allocated only some. */
	info_preflight_say("config", "CPUs", name, (double)sysconf(_SC_NPROCESSORS_ONLN), "", "%s",
			   "");
	info_preflight_say("config", "RAM", name,
			   (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) /
				   (1 << 30),
			   "GiB", "%s", "");
	return count < THREADS_MOST ? count : THREADS_MOST;
}

static int test_cpus(void *data, int unused)
{
	static struct thread threads[THREADS_MOST];
	char kind[96];
	int count = describe_cpus(kind, sizeof(kind));
	double rate, cpu = 0, took = 0;
	size_t wrong = 0;

	(void)data, (void)unused;
	rate = run_threads(threads, count, run_copy, COPY_TIME);
	info_preflight_say("rate", "memory", kind, rate * 2 * COPY_PIECE * 1e-9, "GB/s", "%s", "");
	fill_matrices();
	rate = run_threads(threads, count, run_product, PRODUCT_TIME);
	for (int i = 0; i < count; i++) {
		wrong += threads[i].wrong;
		cpu += threads[i].cpu;
		took += threads[i].took;
	}
	if (wrong > 0)
		info_preflight_say("failed", "product", kind, (double)NAN, "",
				   "%zu elements of matrix products on CPUs are wrong", wrong);
	else
		info_preflight_say("rate", "product", kind, rate * 2 * SIDE * SIDE * SIDE * 1e-9,
				   "GFLOP/s", "%s", "");
	if (took > 0)
		info_preflight_say("rate", "CPU time", kind, 100 * cpu / took, "%", "%s", "");
	return 0;
}

/* --- Files and clock ----------------------------------------------------------------------- */

/* Returns the absolute path of [path] for messages, or [path] if it cannot be found. */
static const char *absolute(const char *path)
{
	static char absolute[PATH_SIZE];

	return realpath(path, absolute) ? absolute : path;
}

static bool test_space(const char *test, const char *path)
{
	struct statvfs space;
	double bytes;

	if (statvfs(path, &space) < 0) {
		info_preflight_say("failed", test, "", (double)NAN, "", "%s: %s", path,
				   strerror(errno));
		return false;
	}
	bytes = (double)space.f_bavail * (double)space.f_frsize;
	if (bytes >= SPACE_LEAST) {
		info_preflight_say("fact", test, "", bytes / (1 << 20), "MiB", "%s", "");
		return true;
	}
	info_preflight_say("failed", test, "", bytes / (1 << 20), "MiB",
			   "%s is full: %.0f bytes are free", absolute(path), bytes);
	return false;
}

/* Test that the user can write a file in the working directory. */
static int test_directory(void *data, int i)
{
	char name[128];
	int fd, failed = 0;

	(void)data, (void)i;
	if (!test_space("directory", "."))
		return 0;
	snprintf(name, sizeof(name), ".ddp-preflight-%s-%d", getenv("SLURMD_NODENAME") ?: "",
		 (int)getpid());
	fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	/* If there is a quota, or over NFS, the error may occur only in write() or close(). */
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
	return 0;
}

static int test_shm(void *data, int i)
{
	(void)data, (void)i;
	return !test_space("/dev/shm", "/dev/shm");
}

/* Find the program [name] as execvp() does. If there is none, sets errno and returns false. */
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

/* Test that [files] can be read, by reading them, because NFS checks permissions only then. */
static int test_files(void *data, int unused)
{
	char *const *files = data;

	(void)unused;
	for (int i = 0; files[i]; i++) {
		char path[PATH_SIZE], byte;
		int fd = -1;

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
	return 0;
}

static int test_gpus(void *data, int i)
{
	(void)data, (void)i;
	return info_preflight_gpus();
}

/* --- The programme ------------------------------------------------------------------------- */

#define TIME 30.0     /* default of the programme's time, in seconds */
#define NODE_PART 0.5 /* fraction of this time that a test of the node can take */
#define SUM_PART 0.3  /* fraction of this time that a sum can take, after all nodes have arrived */
/*
 * Nanoseconds between two listings of a directory, at first and at last; and between changes of it.
 */
#define LIST_FIRST UINT64_C(2000000)
#define LIST_LAST UINT64_C(20000000)
#define CHANGE_EVERY UINT64_C(1000000000)

struct programme {
	const char *rendezvous; /* rendezvous directory; NULL if the nodes share none */
	int rank, size;
	int gpus;      /* number of this node's GPUs for which sums are tested */
	bool is_again; /* this is a second run, which tests nodes again */
	double seconds;
	struct ddp_watch end;
};

static void test_node(struct programme *programme, char *const *files)
{
	const struct {
		const char *test;
		int (*run)(void *data, int i);
	} tests[] = {{"program", test_files},
		     {"directory", test_directory},
		     {"/dev/shm", test_shm},
		     {"product", test_cpus},
		     {"GPU product", test_gpus}};
	double limit = programme->seconds * NODE_PART;
	char path[PATH_SIZE];

	/*
	 * In a second run, repeat the test. ddp-run uses the best rate, and other processes seldom
	 * disturb all repetitions.
	 */
	for (int i = 0; i < REPETITIONS && programme->is_again && 4 * i < programme->seconds; i++)
		(void)info_preflight_run("product", 1, test_cpus, NULL, limit, &programme->end);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		programme->gpus = info_preflight_run(tests[i].test, 1, tests[i].run, (void *)files,
						     limit, &programme->end);
	if (programme->gpus > 1 && programme->rendezvous) {
		snprintf(path, sizeof(path), "%s/node-%d", programme->rendezvous, programme->rank);
		info_preflight_gpu_sum("GPU sum", path, 0, 1, &programme->gpus, limit,
				       &programme->end);
	}
}

/*
 * Returns the lowest rank from [first] to [last] that has not created its file in [directory], or
 * -1 if all have.
 */
static int find_missing(const char *directory, int first, int last)
{
	bool *present = calloc((size_t)last + 1, sizeof(*present));
	DIR *dir = opendir(directory);
	int missing = first;

	for (struct dirent *entry; dir && present && (entry = readdir(dir));) {
		char *end;
		long rank = strtol(entry->d_name, &end, 10);

		if (end != entry->d_name && !*end && rank >= 0 && rank <= last)
			present[rank] = true;
	}
	while (present && missing <= last && present[missing])
		missing++;
	if (dir)
		closedir(dir);
	free(present);
	return missing > last ? -1 : missing;
}

/*
 * Announce this node in [directory], and wait for the nodes [first] to [last]. Nodes list the
 * directory, since an NFS client shows a changed listing sooner than a name that was missing before;
 * see store/file-store.c. Returns false at the end of the programme's time.
 */
static bool meet(const struct programme *programme, const char *test, const char *directory,
		 int round, int first, int last)
{
	char name[24], path[PATH_SIZE + 32];
	uint64_t pause = LIST_FIRST, changed = ddp_now();
	int written = -1, missing, file;

	snprintf(name, sizeof(name), "%d", programme->rank);
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	if ((mkdir(directory, 0700) < 0 && errno != EEXIST) ||
	    (file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) < 0) {
		info_preflight_say("failed", "rendezvous", "", (double)NAN, "",
				   "cannot write %s: %s", path, strerror(errno));
		return false;
	}
	close(file);
	while ((missing = find_missing(directory, first, last)) >= 0) {
		if (missing != written)
			info_preflight_say("wait", test, "", round, "", "%d", missing);
		written = missing;
		if (ddp_watch_check(&programme->end, NULL) < 0)
			return false;
		ddp_watch_sleep(&programme->end, pause);
		pause = pause < LIST_LAST ? 2 * pause : pause;
		if (ddp_now() - changed < CHANGE_EVERY)
			continue;
		snprintf(path, sizeof(path), ".change-%d", programme->rank);
		ddp_file_change_directory(directory, path);
		changed = ddp_now();
	}
	info_preflight_say("met", test, "", round, "", "%d", first);
	return true;
}

/* Run the rounds of pairs, and the sum of all nodes, until the end of the programme's time. */
static void test_sums(struct programme *programme, int rounds)
{
	double limit = programme->seconds * SUM_PART;
	char met[PATH_SIZE], sum[PATH_SIZE + 8];
	int rank = programme->rank, size = programme->size;

	for (int round = 0; round <= rounds && size > 1; round++) {
		bool is_pair = round < rounds;
		int partner = is_pair ? info_preflight_partner(size, round, rank) : 0;
		int low = partner < rank ? partner : rank;

		if (partner < 0)
			continue;
		snprintf(met, sizeof(met), "%s/round-%d-%d", programme->rendezvous, round,
			 is_pair ? low : 0);
		snprintf(sum, sizeof(sum), "%s-sum", met);
		if (is_pair && meet(programme, "pair", met, round, partner, partner))
			info_preflight_sum("pair", sum, rank != low, 2, &programme->gpus, limit,
					   &programme->end);
		else if (!is_pair && meet(programme, "all", met, round, 0, size - 1))
			info_preflight_sum("all", sum, rank, size, &programme->gpus, limit,
					   &programme->end);
		if (ddp_watch_check(&programme->end, NULL) < 0)
			return;
	}
}

/* Returns the number in the first of two variables that is set, or [otherwise]. */
static int number_of(const char *name, const char *slurm, int otherwise)
{
	const char *value = getenv(name) ?: getenv(slurm);

	return value ? atoi(value) : otherwise;
}

int info_preflight(const char *plan, char *const *files)
{
	struct programme programme = {.rank = number_of(DDP_NAME(DDP_RANK), "SLURM_PROCID", 0),
				      .size = number_of(DDP_NAME(DDP_SIZE), "SLURM_STEP_NUM_TASKS",
							1),
				      .seconds = plan && atof(plan) > 0 ? atof(plan) : TIME};
	const char *node = getenv("SLURMD_NODENAME");
	const char *directory = getenv(DDP_NAME(DDP_RENDEZVOUS));
	int rounds = info_preflight_rounds(programme.size, plan && strstr(plan, ",full"));
	char host[256] = "";

	programme.end = ddp_watch_start(programme.seconds, NULL, NULL);
	programme.rendezvous = directory ? strdup(directory) : NULL;
	info_preflight_set_rank(programme.rank);
	(void)gethostname(host, sizeof(host) - 1);
	info_preflight_say("hello", "start", "", rounds, "", "%s", node ? node : host);
	test_node(&programme, files);
	if (programme.rendezvous)
		test_sums(&programme, rounds);
	else if (rounds > 0)
		info_preflight_say("untested", "pair", "", (double)NAN, "",
				   "the nodes share no directory, see --ddp-rdzv");
	info_preflight_say("end", "", "", (double)NAN, "", "%s", "");
	return 0;
}
