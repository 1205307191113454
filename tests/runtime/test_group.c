/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "local/group-private.h"
#include "unit.h"

enum { LARGEST = (2 << 20) + 4096 + 64 }; /* bytes of a member's largest vector, rounded up */

#define PLENTY 500.0 /* timeout in seconds of waits that must not time out */

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

/* --- Members ---------------------------------------------------------------------------------- */

enum { MEMBERS = 8 };

/* Data that all members of a group share. */
struct board {
	char ticket[DDP_GROUP_TICKET];
	_Atomic int ready;		  /* the ticket is valid */
	_Atomic int count;		  /* for use by bodies */
	struct ddp_error errors[MEMBERS]; /* error of each member's last call in the body */
	char failures[MEMBERS][512];
};

/*
 * A member's thread. Its body reports failures with member_fail(), because Check's assertions work
 * only in the thread that runs the test.
 */
struct member {
	pthread_t thread;
	int index, size;
	struct ddp_group *group;
	struct ddp_watch watch;
	struct ddp_error error;
	void (*body)(struct member *);
};

static struct board board; /* of the last members_run() */

/* Reports a failure of [member]. Only a member's first failure is kept. */
static __attribute__((format(printf, 2, 3))) void member_fail(struct member *member,
							      const char *format, ...)
{
	char *text = board.failures[member->index];
	va_list arguments;

	if (*text)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(board.failures[0]), format, arguments);
	va_end(arguments);
}

/*
 * World ranks of the members. They differ from the indices in the group, and messages must contain
 * the ranks.
 */
static const int member_ranks[MEMBERS] = {10, 11, 12, 13, 14, 15, 16, 17};

static const struct ddp_log quiet = {.level = DDP_LEVEL_ERROR};

/* Creates or attaches to the group, meets the other members, and runs the body. */
static void *member_run(void *argument)
{
	struct member *member = argument;
	struct ddp_group_options options = {.index = member->index,
					    .size = member->size,
					    .ranks = member_ranks,
					    .host = "n2",
					    .directory = "",
					    .log = &quiet};
	int status;

	ddp_simd_choose(&options.simd, NULL);
	if (member->index == 0) {
		status = ddp_group_create(&member->group, &options, board.ticket, &member->error);
		atomic_store(&board.ready, 1);
	} else {
		while (!atomic_load(&board.ready))
			usleep(100);
		status = ddp_group_attach(&member->group, &options, board.ticket, &member->watch,
					  &member->error);
	}
	if (status == 0)
		status = ddp_group_meet(member->group, &member->watch, &member->error);
	if (status < 0)
		member_fail(member, "start: %s", member->error.text);
	else
		member->body(member);
	board.errors[member->index] = member->error;
	ddp_group_destroy(member->group);
	return NULL;
}

/* Runs [body] in [size] members. No wait in the group may time out. */
static void members_run(int size, void (*body)(struct member *))
{
	struct member members[MEMBERS];

	memset(&board, 0, sizeof(board));
	for (int m = 0; m < size; m++) {
		members[m] = (struct member){.index = m,
					     .size = size,
					     .watch = ddp_watch_start(PLENTY, NULL, NULL),
					     .body = body};
		ck_assert_int_eq(pthread_create(&members[m].thread, NULL, member_run, &members[m]),
				 0);
	}
	for (int m = 0; m < size; m++)
		pthread_join(members[m].thread, NULL);
	for (int m = 0; m < size; m++)
		ck_assert_msg(!*board.failures[m], "%d members, member %d: %s", size, m,
			      board.failures[m]);
}

/* --- Vectors -------------------------------------------------------------------------------- */

/*
 * Numbers of elements: the longest vector in a cache line of its step (12), the longest short
 * vector if members spin (1024) or do not (2048), one buffer (32768), several buffers, and numbers
 * beside these.
 */
static const size_t lengths[] = {0,    1,    3,	   12,	  13,	 16,	17,	1024,  1025,
				 2048, 2049, 4099, 32768, 32769, 65536, 100003, 524289};

/*
 * Element [i] of [member]'s vector: a small integer, so that sums are exact. Each round has a
 * different [salt].
 */
static float value_of(int member, size_t i, uint32_t salt)
{
	return (float)((int)((i * 7 + (size_t)member * 5 + salt) % 31) - 15);
}

/* A vector repeats its values after this number of elements. */
enum { PERIOD = 31 };

static void sums_of(int size, uint32_t salt, float add, float scale, float sums[PERIOD])
{
	for (size_t i = 0; i < PERIOD; i++) {
		sums[i] = add;
		for (int m = 0; m < size; m++)
			sums[i] += value_of(m, i, salt);
		sums[i] *= scale;
	}
}

static void values_of(int member, uint32_t salt, float values[PERIOD])
{
	for (size_t i = 0; i < PERIOD; i++)
		values[i] = value_of(member, i, salt);
}

/*
 * Returns the first index at which [vector] differs from the repeated values [want]; [count] if
 * they are equal.
 */
static size_t first_difference(const float *vector, size_t count, const float want[PERIOD])
{
	for (size_t i = 0; i < count; i += PERIOD)
		for (size_t k = 0; k < PERIOD && i + k < count; k++)
			if (vector[i + k] != want[k])
				return i + k;
	return count;
}

/* A member's vectors: in a shared region and in private memory. */
struct memory {
	struct ddp_region *region;
	char *shared, *own;
};

static bool memory_make(struct member *member, struct memory *memory)
{
	if (ddp_region_create(&memory->region, member->group, LARGEST * 2, &member->watch,
			      &member->error) < 0) {
		member_fail(member, "region: %s", member->error.text);
		return false;
	}
	memory->shared = ddp_region_part(memory->region, member->index);
	memory->own = aligned_alloc(64, LARGEST * 2);
	return true;
}

static void memory_free(struct memory *memory)
{
	ddp_region_destroy(memory->region);
	free(memory->own);
}

/*
 * Places of a round's vectors, as flags: private memory for sending, private memory for receiving,
 * separate vectors for the two, unaligned addresses.
 */
enum { OWN_SEND = 1, OWN_RECV = 2, OTHER_RECV = 4, UNALIGNED = 8, PLACES = 16 };

static float *send_at(const struct memory *memory, unsigned places)
{
	char *base = places & OWN_SEND ? memory->own : memory->shared;

	return (float *)(void *)(base + (places & UNALIGNED ? 4 : 0));
}

static float *recv_at(const struct memory *memory, unsigned places)
{
	char *base = places & OWN_RECV ? memory->own : memory->shared;

	if (!(places & OTHER_RECV))
		return send_at(memory, places);
	return (float *)(void *)(base + LARGEST + (places & UNALIGNED ? 8 : 0));
}

static void fill_vector(float *vector, int member, size_t count, uint32_t salt)
{
	float values[PERIOD];

	values_of(member, salt, values);
	for (size_t i = 0; i < count; i += PERIOD)
		memcpy(vector + i, values,
		       sizeof(float) * (count - i < PERIOD ? count - i : PERIOD));
}

/* --- Rounds: one collective each ------------------------------------------------------------ */

static bool round_all_reduce(struct member *member, struct memory *memory, size_t count,
			     unsigned places, uint32_t salt)
{
	struct ddp_call call = {.kind = 1,
				.type = DDP_F32,
				.op = DDP_SUM,
				.count = count,
				.sequence = salt,
				.name = "all-reduce"};
	float *send = send_at(memory, places), *recv = recv_at(memory, places);
	float scale = salt % 2 ? 0.5f : 1, want[PERIOD];
	size_t bad;

	fill_vector(send, member->index, count, salt);
	if (ddp_group_all_reduce(member->group, &call, send, recv, (double)scale, &member->watch,
				 &member->error) < 0) {
		member_fail(member, "all-reduce: %s", member->error.text);
		return false;
	}
	sums_of(member->size, salt, 0, scale, want);
	bad = first_difference(recv, count, want);
	if (bad < count)
		member_fail(member, "all-reduce of %zu, how %u: [%zu] is %g, not %g", count, places,
			    bad, (double)recv[bad], (double)want[bad % PERIOD]);
	return bad == count;
}

static bool round_broadcast(struct member *member, struct memory *memory, size_t count,
			    unsigned places, uint32_t salt)
{
	struct ddp_call call = {.kind = 2, .name = "broadcast"};
	int root = (int)(salt % (uint32_t)member->size);
	float *data = send_at(memory, places), want[PERIOD];
	size_t bad;

	fill_vector(data, member->index, count, salt);
	if (ddp_group_broadcast(member->group, &call, data, count * sizeof(float), root,
				&member->watch, &member->error) < 0) {
		member_fail(member, "broadcast: %s", member->error.text);
		return false;
	}
	values_of(root, salt, want);
	bad = first_difference(data, count, want);
	if (bad < count)
		member_fail(member, "broadcast of %zu from %d, how %u: [%zu] is %g", count, root,
			    places, bad, (double)data[bad]);
	return bad == count;
}

static bool round_all_gather(struct member *member, struct memory *memory, size_t count,
			     unsigned places, uint32_t salt)
{
	struct ddp_call call = {.kind = 3, .name = "all-gather"};
	float *send = send_at(memory, places);
	float *recv = malloc(count * sizeof(float) * (size_t)member->size + 1);
	float want[PERIOD];
	size_t bad;
	int status;

	fill_vector(send, member->index, count, salt);
	status = ddp_group_all_gather(member->group, &call, send, recv, count * sizeof(float),
				      &member->watch, &member->error);
	if (status < 0)
		member_fail(member, "all-gather: %s", member->error.text);
	for (int m = 0; m < member->size && status == 0; m++) {
		values_of(m, salt, want);
		bad = first_difference(recv + (size_t)m * count, count, want);
		if (bad == count)
			continue;
		member_fail(member, "all-gather of %zu, how %u: [%zu] of %d is wrong", count,
			    places, bad, m);
		status = -1;
	}
	free(recv);
	return status == 0;
}

/* A member leaves the barrier only after all members have entered it. */
static bool round_barrier(struct member *member, struct memory *memory, size_t count,
			  unsigned places, uint32_t salt)
{
	struct ddp_call call = {.kind = 4, .name = "barrier"};
	int before, after;

	(void)memory, (void)count, (void)places, (void)salt;
	before = atomic_fetch_add(&board.count, 1) / member->size;
	if (ddp_group_barrier(member->group, &call, &member->watch, &member->error) < 0) {
		member_fail(member, "barrier: %s", member->error.text);
		return false;
	}
	after = atomic_load(&board.count);
	if (after < (before + 1) * member->size)
		member_fail(member, "barrier: only %d arrived before", after);
	return ddp_group_barrier(member->group, &call, &member->watch, &member->error) == 0;
}

typedef bool round_function(struct member *member, struct memory *memory, size_t count,
			    unsigned places, uint32_t salt);

static round_function *const rounds[] = {round_all_reduce, round_broadcast, round_all_gather,
					 round_barrier};

/* --- All collectives, with vectors of every length and place ------------------------------ */

/* Runs all rounds, with a fourth of the places for each length. All members use the same places. */
static void body_lengths(struct member *member)
{
	struct memory memory;
	uint32_t salt = 0;
	bool good = memory_make(member, &memory);

	for (int v = 0; v < ROWS(lengths) && good; v++)
		for (unsigned places = 0; places < PLACES && good; places++) {
			size_t count = lengths[v];

			if ((places ^ (unsigned)v) % 4)
				continue;
			if (count > 70000 && UNDER_TSAN)
				continue; /* too slow */
			for (int r = 0; r < ROWS(rounds) && good; r++)
				good = rounds[r](member, &memory, count, places, salt++);
		}
	memory_free(&memory);
}

static uint64_t mixed_seed; /* seed of body_mixed() */

/*
 * Runs random rounds. In each round a random member may be late. All members draw the same random
 * numbers.
 */
static void body_mixed(struct member *member)
{
	static const size_t counts[] = {0, 1, 12, 13, 1024, 1025, 2049, 5000, 32769, 140001};
	uint64_t state = mixed_seed;
	struct memory memory;
	bool good = memory_make(member, &memory);

	for (uint32_t i = 0; i < 300 && good; i++) {
		uint32_t function = unit_random(&state, ROWS(rounds));
		uint32_t count = unit_random(&state, i % 8 ? 6 : ROWS(counts));
		unsigned places = unit_random(&state, PLACES);
		uint32_t late = unit_random(&state, 16), salt = unit_random(&state, 1000000);

		if ((uint32_t)member->index == late)
			usleep(unit_random(&state, 300));
		else
			unit_random(&state, 300);
		if (salt % 5 == 0)
			places = (unsigned)member->index % 2 ? places : 0;
		good = rounds[function](member, &memory, counts[count], places, salt);
		if (!good)
			member_fail(member, "round %u", i);
	}
	memory_free(&memory);
}

/* Numbers of members. */
static const int member_counts[] = {5, 1, 2};

TEST_ROWS(test_lengths, member_counts)
{
	members_run(member_counts[_i], body_lengths);
}

TEST_ROWS(test_mixed, member_counts)
{
	mixed_seed = unit_seed(1);
	members_run(member_counts[_i], body_mixed);
}

/* --- A vector that is reduced in several pieces ---------------------------------------------- */

/* A vector of 5 million elements is reduced in three pieces. */
static void body_long_pass(struct member *member)
{
	enum { COUNT = 5000001 };
	struct ddp_call call = {
		.kind = 1, .type = DDP_F32, .op = DDP_SUM, .count = COUNT, .name = "all-reduce"};
	float *vector = malloc(COUNT * sizeof(float)), want[PERIOD];
	struct ddp_group_pass pass = {
		.call = &call, .send = vector, .recv = vector, .scale = 1, .slices = member->size};
	int status, pieces = 0;

	fill_vector(vector, member->index, COUNT, 1);
	do {
		status = ddp_group_reduce(member->group, &pass, &member->watch, &member->error);
		if (status == 0)
			status = ddp_group_publish(member->group, &pass, &member->watch,
						   &member->error);
		pieces++;
	} while (status == 0 && !pass.done);
	sums_of(member->size, 1, 0, 1, want);
	if (status < 0 || first_difference(vector, COUNT, want) < COUNT || pieces != 3)
		member_fail(member, "%d pieces, %s", pieces, member->error.text);
	free(vector);
}

TEST(test_long_pass)
{
	members_run(2, body_long_pass);
}

/* --- Steps beyond 2^32 ------------------------------------------------------------------------ */

/* A barrier that uses the board, not the group. */
static void board_meet(const struct member *member)
{
	_Atomic int *count = &board.count;
	int all = (atomic_fetch_add(count, 1) / member->size + 1) * member->size;

	while (atomic_load(count) < all)
		sched_yield();
}

/* Sets the group's state to its state after [step] steps. All members call it. */
static void set_step(struct member *member, uint32_t step)
{
	struct ddp_group *group = member->group;
	struct ddp_line *lines = group->slots[member->index]->lines;

	board_meet(member);
	group->step = step;
	lines[step % DDP_LINES].step = step;
	lines[(step + 1) % DDP_LINES].step = step - 1;
	if (member->index == 0)
		group->head->arrived = step * (uint32_t)member->size;
	board_meet(member);
}

static void body_wrap(struct member *member)
{
	static const size_t counts[] = {3, 1000, 32768, 100003};
	struct memory memory;
	uint32_t salt = 0;

	if (!memory_make(member, &memory))
		return;
	for (uint32_t before = 0; before < 4; before++)
		for (int r = 0; r < ROWS(rounds); r++)
			for (int c = 0; c < ROWS(counts); c++) {
				set_step(member, UINT32_MAX - before);
				for (int i = 0; i < 4; i++)
					(void)rounds[r](member, &memory, counts[c],
							OWN_SEND | OWN_RECV, salt++);
			}
	memory_free(&memory);
}

TEST_ROWS(test_wrap, member_counts)
{
	members_run(member_counts[_i], body_wrap);
}

static int call_barrier(struct member *member)
{
	const struct ddp_call call = {.sequence = 17, .name = "barrier"};

	return ddp_group_barrier(member->group, &call, &member->watch, &member->error);
}

static int row; /* _i of the running test, for bodies */

/* --- Members that do not arrive --------------------------------------------------------------- */

/* Members 0 and [step_by] arrive. Their wait times out once both wait. */
struct present {
	struct ddp_group *group;
	int step_by; /* index of the second member */
};

static int is_over(void *owner, struct ddp_error *error)
{
	const struct present *present = owner;

	(void)error;
	for (int m = 0; m <= present->step_by; m += present->step_by) {
		struct ddp_line *lines = present->group->slots[m]->lines;

		if ((int32_t)(lines[0].step - present->group->step) < 0 &&
		    (int32_t)(lines[1].step - present->group->step) < 0)
			return 0;
	}
	return DDP_ERR_TIMEOUT;
}

static void body_missing(struct member *member)
{
	struct present present = {member->group, 2};
	int status;

	/* Members 1 and 3 arrive after the timeout of the others. */
	if (member->index % 2)
		while (atomic_load(&board.count) < 2)
			usleep(1000);
	else
		member->watch = ddp_watch_start(PLENTY, is_over, &present);
	status = call_barrier(member);
	atomic_fetch_add(&board.count, 1);
	if (status != DDP_ERR_TIMEOUT)
		member_fail(member, "%d: %s", status, member->error.text);
}

TEST(test_missing)
{
	members_run(4, body_missing);
	for (int m = 0; m < 4; m++)
		unit_text("missing", "text", board.errors[m].text,
			  "ranks 11, 13 on n2 did not arrive in barrier #17 in 500 s (2 of 4 "
			  "did)");
}

/* A member that reduces but does not publish is reported as missing. */
static void body_publish_missing(struct member *member)
{
	struct ddp_call call = {.kind = 1,
				.type = DDP_F32,
				.op = DDP_SUM,
				.count = 100000,
				.sequence = 5,
				.name = "all-reduce"};
	static _Thread_local float data[100000];
	struct ddp_group_pass pass = {
		.call = &call, .send = data, .recv = data, .scale = 1, .slices = member->size};
	struct present present = {member->group, 1};
	int status = ddp_group_reduce(member->group, &pass, &member->watch, &member->error);

	member->watch = ddp_watch_start(PLENTY, is_over, &present);
	if (status == 0 && member->index < 2)
		status = ddp_group_publish(member->group, &pass, &member->watch, &member->error);
	if (status != (member->index < 2 ? DDP_ERR_TIMEOUT : 0))
		member_fail(member, "%d: %s", status, member->error.text);
}

TEST(test_publish_missing)
{
	members_run(3, body_publish_missing);
	unit_text("half", "text", board.errors[0].text,
		  "rank 12 on n2 did not arrive in all-reduce #5 in 500 s (2 of 3 did)");
}

TEST(test_missing_in_meet)
{
	struct member member = {.size = 3, .watch = ddp_watch_start(0.1, NULL, NULL)};

	(void)member_run(&member);
	unit_text("one member", "text", board.failures[0],
		  "start: ranks 11, 12 on n2 did not join the group in 0.1 s (1 of 3 did)");
	ck_assert_int_eq(board.errors[0].status, DDP_ERR_TIMEOUT);
}

/* --- Processes without their main thread ------------------------------------------------------ */

static void *wait_forever(void *argument)
{
	while (true)
		pause();
	return argument;
}

/* A process whose main thread has ended still counts as running, until its last thread ends. */
TEST(test_process_without_main_thread)
{
	char path[64], text[1024] = "";
	uint64_t start = 0, before;
	pthread_t thread;
	siginfo_t info;
	pid_t pid = fork();
	FILE *file;

	if (pid == 0) {
		alarm(600);
		if (pthread_create(&thread, NULL, wait_forever, NULL) == 0)
			pthread_exit(NULL);
		_exit(1);
	}
	ck_assert_int_eq(ddp_process_start(pid, &before), 0);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	while (!strstr(text, ") Z ")) {
		file = fopen(path, "re");
		ck_assert_ptr_nonnull(file);
		ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
		fclose(file);
	}
	ck_assert_int_eq(ddp_process_start(pid, &start), 0);
	ck_assert_uint_eq(start, before);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(ddp_process_start(pid, &start), -ESRCH);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(ddp_process_start(pid, &start), -ESRCH);
}

/* --- Abort ------------------------------------------------------------------------------------ */

static void *abort_later(void *argument)
{
	struct member *member = argument;

	usleep(50000);
	ddp_group_abort(member->group, DDP_ERR_ABORTED, "the disk is full");
	ddp_group_abort(member->group, DDP_ERR_PEER, "second error");
	return NULL;
}

/*
 * A thread of member 0 aborts the group. This ends the barrier of member 1, and the next barrier of
 * member 0.
 */
static void body_abort(struct member *member)
{
	pthread_t thread;
	int status;

	if (member->index == 0) {
		pthread_create(&thread, NULL, abort_later, member);
		pthread_join(thread, NULL);
	}
	status = call_barrier(member);
	if (status != DDP_ERR_ABORTED || strcmp(member->error.text, "the disk is full") != 0)
		member_fail(member, "%d: %s", status, member->error.text);
	ddp_error_clear(&member->error);
	if (ddp_group_aborted(member->group, &member->error) != DDP_ERR_ABORTED)
		member_fail(member, "aborted: %s", member->error.text);
}

TEST(test_abort)
{
	members_run(3, body_abort);
}

/* --- A check that ends a wait ------------------------------------------------------------- */

static int end_third_check(void *owner, struct ddp_error *error)
{
	return ++*(int *)owner < 3 ? 0 : ddp_error_set(error, DDP_ERR_ABORTED, "end of wait");
}

static void body_check_ends_wait(struct member *member)
{
	int calls = 0, status;

	if (member->index == 0) {
		member->watch.check = end_third_check;
		member->watch.owner = &calls;
	} else {
		while (atomic_load(&board.count) == 0)
			usleep(1000);
	}
	status = call_barrier(member);
	atomic_fetch_add(&board.count, 1);
	if (status != DDP_ERR_ABORTED || strcmp(member->error.text, "end of wait") != 0)
		member_fail(member, "%d: %s", status, member->error.text);
}

TEST(test_check_ends_wait)
{
	members_run(2, body_check_ends_wait);
}

/* --- Spinning ---------------------------------------------------------------------------------- */

static cpu_set_t cpus; /* CPUs on which the test may run */

static void body_one_cpu(struct member *member)
{
	if (ddp_group_spins(member->group))
		member_fail(member, "%d members spin on %d CPUs", member->size, CPU_COUNT(&cpus));
}

static void body_enough_cpus(struct member *member)
{
	if (!ddp_group_spins(member->group))
		member_fail(member, "%d members do not spin on %d CPUs", member->size,
			    CPU_COUNT(&cpus));
}

/* Members inherit the CPU affinity. */
TEST(test_spins)
{
	cpu_set_t all, one;
	int size;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	size = CPU_COUNT(&all) < MEMBERS ? CPU_COUNT(&all) : MEMBERS;
	cpus = all;
	members_run(size, body_enough_cpus);
	if (size < MEMBERS)
		members_run(size + 1, body_one_cpu);
	CPU_ZERO(&one);
	for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	cpus = one;
	members_run(2, body_one_cpu);
	members_run(2, body_mixed);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* --- Wake-up ----------------------------------------------------------------------------------- */

/*
 * The first of two members sleeps in step [step] + 1, and then the second one arrives. [wakes]:
 * whether this arrival wakes the first member. [arrived]: arrivals that the group counted before.
 */
static const struct {
	const char *name;
	uint32_t step, arrived;
	bool wakes;
} arrivals[] = {
	{"the first has not counted its arrival", 0, 0, false},
	{"the first has counted its arrival", 0, 1, true},
	{"the first has counted its next arrival too", 0, 2, true},
	{"wrap: the first has not counted its arrival", UINT32_MAX, UINT32_MAX - 1, false},
	{"wrap: the first has counted its arrival", UINT32_MAX, UINT32_MAX, true},
	{"wrap: the first has counted its next arrival too", UINT32_MAX, 0, true},
};

TEST_ROWS(test_wake, arrivals)
{
	struct ddp_group_options options = {
		.size = 2, .ranks = member_ranks, .host = "n2", .log = &quiet};
	const struct ddp_call call = {.name = "barrier"};
	struct ddp_watch watch = ddp_watch_start(PLENTY, NULL, NULL);
	char ticket[DDP_GROUP_TICKET];
	struct ddp_group *first, *second;
	struct ddp_error error = {0};
	struct ddp_line *line;

	ck_assert_int_eq(ddp_group_create(&first, &options, ticket, &error), 0);
	options.index = 1;
	ck_assert_int_eq(ddp_group_attach(&second, &options, ticket, &watch, &error), 0);
	first->step = second->step = arrivals[_i].step;
	ck_assert_int_eq(ddp_call_begin(first, &call, DDP_ACTION_BARRIER, 0, 0, &error), 0);
	line = ddp_step_line(first);
	line->digest = first->digest;
	line->step = arrivals[_i].step + 1;
	first->head->arrived = arrivals[_i].arrived;
	first->head->sleepers = 1;
	ck_assert_int_eq(ddp_group_barrier(second, &call, &watch, &error), 0);
	ck_assert_msg(!first->head->sleepers == arrivals[_i].wakes, "%s", arrivals[_i].name);
	ddp_group_destroy(second);
	ddp_group_destroy(first);
}

/* --- Regions ----------------------------------------------------------------------------------- */

static void body_regions(struct member *member)
{
	static const size_t sizes[] = {1, 5000, 3 << 20};
	struct ddp_region *regions[ROWS(sizes)];

	for (int r = 0; r < ROWS(sizes); r++) {
		char *part;
		size_t at = 0;

		if (ddp_region_create(&regions[r], member->group, sizes[r], &member->watch,
				      &member->error) < 0) {
			member_fail(member, "%s", member->error.text);
			return;
		}
		part = ddp_region_part(regions[r], member->index);
		for (size_t i = 0; i < sizes[r]; i++)
			if (part[i])
				member_fail(member, "not zero");
		if ((uintptr_t)part % (sizes[r] >= 2 << 20 ? 2 << 20 : 4096))
			member_fail(member, "part at %p", (void *)part);
		part[sizes[r] - 1] = (char)(member->index + 1);
		call_barrier(member);
		for (int m = 0; m < member->size; m++)
			if (((char *)ddp_region_part(regions[r], m))[sizes[r] - 1] != m + 1)
				member_fail(member, "part of %d is not shared", m);
		if (ddp_region_find(member->group, part + sizes[r] - 1, 1, &at) != regions[r] ||
		    at != sizes[r] - 1)
			member_fail(member, "region not found, or offset is %zu", at);
		if (ddp_region_find(member->group, &at, 1, &at) ||
		    ddp_region_find(member->group, part, 8 << 20, &at))
			member_fail(member, "found memory outside of regions");
	}
	call_barrier(member);
	ddp_region_destroy(regions[1]);
	if (ddp_region_find(member->group, regions, 1, &(size_t){0}))
		member_fail(member, "found a destroyed region");
	ddp_region_destroy(regions[2]);
	ddp_region_destroy(regions[0]);
}

TEST(test_regions)
{
	members_run(3, body_regions);
}

/* --- The socket for members in other containers ------------------------------------------------- */

/* Member 0 of a group of two, and a connection to its socket. */
struct connected {
	char directory[256];
	struct sockaddr_un address;
	struct ddp_group *group;
	int fd;
};

static void connect_to_group(struct connected *c)
{
	const struct ddp_group_options options = {.size = 2,
						  .ranks = member_ranks,
						  .host = "n2",
						  .directory = c->directory,
						  .log = &quiet};
	char ticket[DDP_GROUP_TICKET], name[64];
	struct ddp_error error = {0};

	c->fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	unit_directory(c->directory, sizeof(c->directory));
	ck_assert_int_eq(ddp_group_create(&c->group, &options, ticket, &error), 0);
	ck_assert_int_eq(sscanf(ticket, "%*s %*s %*s %*s %*s %*s %*s %63s", name), 1);
	c->address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(c->address.sun_path, sizeof(c->address.sun_path), "%.60s/%.40s", c->directory,
		 name);
	ck_assert_int_eq(connect(c->fd, (struct sockaddr *)&c->address, sizeof(c->address)), 0);
}

/*
 * Peers that connect to a group's socket and are not members. Each sends an index and the first
 * bytes of a 36-byte proof.
 */
static const struct {
	const char *name;
	int index;
	size_t bytes; /* number of bytes of the proof, at most 36 */
} outsiders[] = {
	{"wrong proof", 1, 36}, {"no member", 2, 36}, {"the leader", 0, 36},
	{"negative", -1, 36},	{"short", 1, 20},     {"silent", 1, 0},
};

TEST_ROWS(test_connection_of_no_member, outsiders)
{
	struct connected c;
	char got[64];
	int32_t proof[9] = {outsiders[_i].index};

	connect_to_group(&c);
	ck_assert(!ddp_group_serve(c.group, 1000000));
	ck_assert_int_eq(recv(c.fd, got, sizeof(got), 0), DDP_HASH_SIZE);
	if (outsiders[_i].bytes)
		ck_assert_int_eq(send(c.fd, proof, outsiders[_i].bytes, 0),
				 (ssize_t)outsiders[_i].bytes);
	ck_assert(!ddp_group_serve(c.group, 1000000));
	ck_assert_int_eq(c.group->links[1], -1);
	if (outsiders[_i].bytes)
		ck_assert_int_eq(recv(c.fd, got, sizeof(got), 0), 0);
	ddp_group_destroy(c.group);
	ck_assert_int_eq(recv(c.fd, got, sizeof(got), 0), 0);
	close(c.fd);
	ck_assert_int_eq(rmdir(c.directory), 0);
}

/* Returns the lowest unused descriptor. */
static int free_descriptor(void)
{
	int fd = open("/dev/null", O_RDONLY);

	close(fd);
	return fd;
}

/*
 * Row 0: a connection is refused if libddp would then use more than half of the descriptors. Row 1:
 * if no descriptor is left, the socket's name is still removed.
 */
TEST_LOOP(test_connection_without_descriptor, 0, 2)
{
	struct connected c;
	char got[64];
	struct rlimit limit;
	rlim_t before;

	connect_to_group(&c);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	before = limit.rlim_cur;
	limit.rlim_cur = (rlim_t)free_descriptor() * (_i == 0 ? 2 : 1);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert(!ddp_group_serve(c.group, 1000000));
	limit.rlim_cur = before;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	errno = 0;
	ck_assert_int_le(recv(c.fd, got, sizeof(got), MSG_DONTWAIT), 0);
	ck_assert_int_ne(errno, EAGAIN);
	ck_assert_int_eq(access(c.address.sun_path, F_OK), _i == 0 ? 0 : -1);
	ddp_group_destroy(c.group);
	close(c.fd);
	ck_assert_int_eq(rmdir(c.directory), 0);
}

/* If a region is too large, the call fails in all members. The group can still be used. */
static void body_no_region(struct member *member)
{
	static const size_t sizes[] = {SIZE_MAX / 16, SIZE_MAX / 2, SIZE_MAX - 4096, SIZE_MAX};
	struct ddp_region *region;

	for (int s = 0; s < ROWS(sizes); s++) {
		int status = ddp_region_create(&region, member->group, sizes[s], &member->watch,
					       &member->error);

		if ((status != DDP_ERR_MEMORY && status != DDP_ERR_SYSTEM) || region)
			member_fail(member, "%zu bytes: %d: %s", sizes[s], status,
				    member->error.text);
	}
	if (call_barrier(member) < 0)
		member_fail(member, "barrier: %s", member->error.text);
}

TEST(test_no_region)
{
	members_run(3, body_no_region);
	for (int m = 0; m < 3; m++)
		UNIT_SAYS("no region", board.errors[m].text, "the arena failed on rank 10: ");
}

static _Thread_local int refused; /* index of the madvise() call that fails, from 1; 0: none */

int __real_madvise(void *memory, size_t bytes, int advice);
int __wrap_madvise(void *memory, size_t bytes, int advice);

int __wrap_madvise(void *memory, size_t bytes, int advice)
{
	enum { POPULATE_WRITE = 23 };

	if (advice != POPULATE_WRITE || refused == 0 || --refused > 0)
		return __real_madvise(memory, bytes, advice);
	errno = ENOMEM;
	return -1;
}

/*
 * If a member cannot get pages for its own part (row 0) or for all parts (row 1), the call fails in
 * all members.
 */
static void body_no_pages(struct member *member)
{
	struct ddp_region *region;
	struct memory memory;
	int status;

	refused = member->index == 1 ? row + 1 : 0;
	status = ddp_region_create(&region, member->group, 5000, &member->watch, &member->error);
	if (status != DDP_ERR_MEMORY || region ||
	    !strstr(member->error.text,
		    "the arena failed on rank 11: cannot allocate the pages of "))
		member_fail(member, "%d: %s", status, member->error.text);
	if (!memory_make(member, &memory))
		return;
	round_all_reduce(member, &memory, 32768, 0, 1);
	memory_free(&memory);
}

TEST_LOOP(test_no_pages, 0, 2)
{
	row = _i;
	members_run(3, body_no_pages);
}

/* --- Tickets ----------------------------------------------------------------------------------- */

#define FOREIGN "foreign"
#define SECRET "0123456789abcdef" /* part of a ticket that no message may contain */

static const struct {
	const char *name;
	int size;
	const char *ticket; /* NULL: the correct ticket; FOREIGN: the ticket of another segment */
	int pid, fd;	    /* process id and descriptor in FOREIGN; 0: the correct ones */
	const char *pieces;
} tickets[] = {
	{"correct", 2, NULL, 0, 0, NULL},
	{"another size", 3, NULL, 0, 0, "Install one release of libddp"},
	{"malformed", 2, "nonsense", 0, 0, "the ticket of the memory is not valid"},
	{"empty", 2, "", 0, 0, "the ticket of the memory is not valid"},
	{"another release", 2, "1 2 " SECRET, 0, 0, "the ticket of the memory is not valid"},
	{"another segment's token", 2, FOREIGN, 0, 0, "/proc/|is another file"},
	{"ended process", 2, FOREIGN, INT_MAX - 1, 0, "process 2147483646 has ended"},
	{"closed descriptor", 2, FOREIGN, 0, INT_MAX, "cannot open /proc/|: No such file"},
};

TEST_ROWS(test_ticket, tickets)
{
	struct ddp_group_options options = {
		.size = 2, .ranks = member_ranks, .host = "n2", .log = &quiet};
	struct ddp_watch watch = ddp_watch_start(PLENTY, NULL, NULL);
	char ticket[DDP_GROUP_TICKET], given[DDP_GROUP_TICKET];
	struct ddp_group *first, *second;
	struct ddp_error error = {0};
	int pid = 0, fd = 0, status;

	ck_assert_int_eq(ddp_group_create(&first, &options, ticket, &error), 0);
	ck_assert_int_eq(sscanf(ticket, "%d %d", &pid, &fd), 2);
	snprintf(given, sizeof(given), "%s", tickets[_i].ticket ? tickets[_i].ticket : ticket);
	if (strcmp(given, FOREIGN) == 0)
		snprintf(given, sizeof(given), "%d %d %032d 8192 4096 %llu 0",
			 tickets[_i].pid ? tickets[_i].pid : pid,
			 tickets[_i].fd ? tickets[_i].fd : fd, 1,
			 (unsigned long long)ddp_pid_namespace());
	options.index = 1;
	options.size = tickets[_i].size;
	status = ddp_group_attach(&second, &options, given, &watch, &error);
	ck_assert_int_eq(status, _i == 0 ? 0 : tickets[_i].pid ? DDP_ERR_PEER : DDP_ERR_SYSTEM);
	ck_assert((second != NULL) == (_i == 0));
	ck_assert(ddp_group_serve(first, 0) == (_i == 0));
	if (_i > 0) {
		unit_has(tickets[_i].name, error.text, tickets[_i].pieces);
		ck_assert_ptr_null(strstr(error.text, SECRET));
		UNIT_SAYS(tickets[_i].name, error.text,
			  "rank 11 on n2 cannot share the memory of rank 10");
	}
	ddp_group_destroy(second);
	ddp_group_destroy(first);
}

/* --- Leaks --------------------------------------------------------------------------------------- */

static int count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	char line[512];
	int count = 0;

	while (fgets(line, sizeof(line), file))
		count += strstr(line, "memfd:ddp") != NULL;
	fclose(file);
	return count;
}

TEST(test_nothing_left)
{
	int files = unit_entries("/proc/self/fd");

	members_run(3, body_regions);
	members_run(3, body_publish_missing);
	ck_assert_int_eq(unit_entries("/proc/self/fd"), files);
	ck_assert_int_eq(count_mappings(), 0);
}

UNIT_MAIN("group", NULL)
