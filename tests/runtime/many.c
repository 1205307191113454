/* SPDX-License-Identifier: Apache-2.0 */
/*
 * many - time a rendezvous of many ranks through files: many [-s] [-k KEYS] DIRECTORY RANKS
 *
 * For tests/bench/bench-rendezvous. The ranks are processes that start at the same time. Each rank
 * puts a key, fences, gets the keys of KEYS ranks (default: all), and fences again. The program
 * prints three numbers: milliseconds until the last rank is done, CPU time per rank in
 * microseconds, and polls per rank.
 *
 * With -s the ranks are coroutines in one process, with virtual clocks. A rank's clock advances by
 * its CPU time and by the time that it would sleep. The rank whose clock is earliest runs next. So
 * the milliseconds are those of a machine with one core per rank.
 */
#include "config.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "store/store.h"

enum { STACK = 64 * 1024 };

/* A simulated rank. */
struct actor {
	ucontext_t context;
	void *stack;
	uint64_t clock;
	bool done;
};

struct shared {
	_Atomic int ready, failed;
	_Atomic uint64_t last; /* time at which the last rank was done */
	_Atomic uint64_t polls, cpu_time;
};

static struct shared *shared;
static const char *directory;
static int size, keys = -1;
static int start_pipe[2]; /* the ranks start when the write end is closed */

static struct actor *actors, *current; /* current: the running rank; NULL without -s */
static ucontext_t stage;
static uint64_t resumed; /* CPU time at which [current] was resumed */

static uint64_t cpu_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void __wrap_ddp_watch_sleep(const struct ddp_watch *watch, uint64_t nanoseconds);
void __real_ddp_watch_sleep(const struct ddp_watch *watch, uint64_t nanoseconds);

/* Replaces libddp's sleep (linker option --wrap). */
void __wrap_ddp_watch_sleep(const struct ddp_watch *watch, uint64_t nanoseconds)
{
	shared->polls++;
	if (!current) {
		__real_ddp_watch_sleep(watch, nanoseconds);
		return;
	}
	current->clock += nanoseconds;
	swapcontext(&current->context, &stage);
}

static uint64_t now(void)
{
	return current ? current->clock + (cpu_now() - resumed) : ddp_now();
}

static int get_keys(struct ddp_store *store, int rank, struct ddp_error *error)
{
	for (int i = 0; i < (keys < 0 ? size : keys); i++) {
		char value[32];
		size_t room = sizeof(value);
		int status =
			ddp_store_get(store, (rank + i) % size, "address", value, &room, error);

		if (status < 0)
			return status;
	}
	return 0;
}

static int meet(int rank, struct ddp_identity *identity, struct ddp_error *error)
{
	struct ddp_watch watch = ddp_watch_start(60, NULL, NULL);
	struct ddp_store *store = NULL;
	char value[32] = "192.168.100.200:12345";
	int status;

	status = ddp_store_open(&store, "file", identity, NULL, &watch, error);
	if (status == 0)
		status = ddp_store_put(store, "address", value, sizeof(value), error);
	if (status == 0)
		status = ddp_store_fence(store, &watch, error);
	if (status == 0)
		status = get_keys(store, rank, error);
	if (status == 0)
		status = ddp_store_fence(store, &watch, error);
	if (status == 0) {
		uint64_t mine = now(), last = shared->last;

		while (last < mine && !atomic_compare_exchange_weak(&shared->last, &last, mine))
			;
	}
	ddp_store_close(store, status == 0);
	return status;
}

static void run(int rank)
{
	struct ddp_identity *identity = calloc(1, sizeof(*identity));
	struct ddp_error *error = calloc(1, sizeof(*error));

	if (!identity || !error)
		abort();
	*identity = (struct ddp_identity){.rank = rank, .size = size, .own = true};
	strcpy(identity->job, "bench");
	strcpy(identity->host, "n1");
	snprintf(identity->directory, sizeof(identity->directory), "%s", directory);
	if (meet(rank, identity, error) < 0 && shared->failed++ < 3)
		fprintf(stderr, "many: rank %d: %s\n", rank, error->text);
	free(identity);
	free(error);
}

/* --- Processes -------------------------------------------------------------------------- */

static void begin_process(int rank)
{
	pid_t process = fork();
	uint64_t began;
	char byte;

	if (process == 0) {
		close(start_pipe[1]);
		shared->ready++;
		if (read(start_pipe[0], &byte, 1) != 0)
			_exit(1);
		began = cpu_now();
		run(rank);
		shared->cpu_time += cpu_now() - began;
		_exit(0);
	}
	if (process < 0)
		shared->failed++;
}

/* Starts all ranks and waits for them. Returns the time of the start. */
static uint64_t run_processes(void)
{
	uint64_t began;

	if (pipe(start_pipe) < 0)
		abort();
	for (int i = 0; i < size; i++)
		begin_process(i);
	while (shared->ready + shared->failed < size)
		usleep(1000);
	began = ddp_now();
	close(start_pipe[1]);
	while (wait(NULL) > 0)
		;
	return began;
}

/* --- Simulated ranks -------------------------------------------------------------------- */

static void act(int rank)
{
	run(rank);
	actors[rank].done = true;
	swapcontext(&actors[rank].context, &stage);
}

/* Returns the rank whose clock is earliest, or NULL if all ranks are done. */
static struct actor *next_actor(void)
{
	struct actor *next = NULL;

	for (int i = 0; i < size; i++)
		if (!actors[i].done && (!next || actors[i].clock < next->clock))
			next = &actors[i];
	return next;
}

static void begin_actor(int rank)
{
	struct actor *actor = &actors[rank];

	actor->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (actor->stack == MAP_FAILED || getcontext(&actor->context) < 0)
		abort();
	actor->context.uc_stack.ss_sp = actor->stack;
	actor->context.uc_stack.ss_size = STACK;
	makecontext(&actor->context, (void (*)(void))(void *)act, 1, rank);
}

static void run_actors(void)
{
	actors = calloc((size_t)size, sizeof(*actors));
	if (!actors)
		abort();
	for (int i = 0; i < size; i++)
		begin_actor(i);
	while ((current = next_actor())) {
		uint64_t cpu_time;

		resumed = cpu_now();
		swapcontext(&stage, &current->context);
		cpu_time = cpu_now() - resumed;
		current->clock += cpu_time;
		shared->cpu_time += cpu_time;
	}
	for (int i = 0; i < size; i++)
		munmap(actors[i].stack, STACK);
	free(actors);
}

int main(int argc, char **argv)
{
	bool simulate = false;
	struct rlimit files;
	uint64_t began = 0;
	int option;

	while ((option = getopt(argc, argv, "sk:")) != -1) {
		if (option == 's')
			simulate = true;
		else if (option == 'k')
			keys = atoi(optarg);
		else
			return 2;
	}
	if (argc - optind != 2 || (size = atoi(argv[optind + 1])) < 1)
		return 2;
	directory = argv[optind];
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	if (simulate)
		run_actors();
	else
		began = run_processes();
	printf("%.3f %.1f %.1f\n", (double)(shared->last - began) / 1e6,
	       (double)shared->cpu_time / 1e3 / size, (double)shared->polls / size);
	return shared->failed ? 1 : 0;
}
