/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_failure.c - a rank dies or hangs in each stage: the other ranks name that rank and end, and
 * leave no files
 *
 * Ranks are processes. The tests check messages, and that ranks end within the timeout. They do not
 * check how long an operation takes.
 */
#include "config.h"

#include <limits.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "comm/ddp-private.h"
#include "comm/recorder.h"
#include "ranks.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Number of worlds that run at the same time. The ranks mostly wait for the timeout. */
enum { WORLDS = 8 };

/* DDP_TIMEOUT in seconds: long enough to start all worlds. */
#define LIMIT "20"

enum stage { BEFORE, JOINED, REDUCING };
enum ending { KILLED, STOPPED, LEFT };

struct fault {
	const char *name;
	const char *layout;
	int victim;
	enum stage stage;
	enum ending ending;
};

static const struct fault faults[] = {
	{"killed before the start", "3", 1, BEFORE, KILLED},
	{"rank 0 killed before the start", "2,1", 0, BEFORE, KILLED},
	{"killed after the start", "3", 2, JOINED, KILLED},
	{"rank 0 killed after the start", "3", 0, JOINED, KILLED},
	{"killed, alone on its node", "1,1", 1, JOINED, KILLED},
	{"killed, carrier on another node", "2,2", 2, JOINED, KILLED},
	{"killed, no carrier, on another node", "1,2", 2, JOINED, KILLED},
	{"killed among all-reduces", "4", 3, REDUCING, KILLED},
	{"killed among all-reduces, two nodes", "2,2", 3, REDUCING, KILLED},
	{"killed among all-reduces, three nodes", "1,1,1", 1, REDUCING, KILLED},
	{"stopped before the start", "3", 2, BEFORE, STOPPED},
	{"stopped after the start", "3", 1, JOINED, STOPPED},
	{"stopped, no carrier, on another node", "1,2", 2, JOINED, STOPPED},
	{"stopped, carrier on another node", "2,2", 2, REDUCING, STOPPED},
	{"stopped, rank 0", "2,1", 0, REDUCING, STOPPED},
	{"exited with 0", "3", 1, JOINED, LEFT},
	{"exited with 0, another node", "1,2", 1, REDUCING, LEFT},
};

static const struct fault *fault; /* fault of the world that the test starts or checks */

static void die_if_victim(enum stage stage)
{
	int rank = atoi(getenv("RANK"));

	if (rank != fault->victim || stage != fault->stage)
		return;
	if (fault->ending == KILLED)
		raise(SIGKILL);
	else if (fault->ending == STOPPED)
		raise(SIGSTOP);
	else
		_exit(0);
}

static int body(int rank)
{
	enum { COUNT = 100000 };
	struct ddp *ddp;
	void *arena;

	(void)rank;
	setenv("DDP_TIMEOUT", LIMIT, 1);
	die_if_victim(BEFORE);
	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	RANK_OK(ddp, ddp_arena_create(ddp, COUNT * sizeof(float), &arena));
	die_if_victim(JOINED);
	for (int i = 0; i < 100000; i++) {
		if (i == 50)
			die_if_victim(REDUCING);
		RANK_OK(ddp,
			ddp_all_reduce(ddp, arena, arena, i % 2 ? COUNT : 3, DDP_F32, DDP_MAX));
	}
	return 97; /* must not be reached */
}

/* The other ranks must name the victim, and end with an exit status that means a lost peer. */
static void expect_victim_named(const struct ranks *ranks, int rank)
{
	char name[32];

	snprintf(name, sizeof(name), "rank %d", fault->victim);
	/* A list of missing ranks has only the victim's number. */
	if (fault->stage == BEFORE)
		snprintf(name, sizeof(name), "%d", fault->victim);
	ck_assert_msg(strstr(ranks->text[rank], name), "%s: rank %d does not name rank %d: %s",
		      fault->name, rank, fault->victim, ranks->text[rank]);
	ck_assert_msg(ranks->statuses[rank] >= ddp_exit_status(DDP_ERR_TIMEOUT) &&
			      ranks->statuses[rank] <= ddp_exit_status(DDP_ERR_ABORTED),
		      "%s: rank %d ended with %d: %s", fault->name, rank, ranks->statuses[rank],
		      ranks->text[rank]);
}

/* Waits until all other ranks have ended, and then kills the victim, which may be stopped. */
static void wait_for_living(struct ranks *ranks)
{
	siginfo_t info;

	for (int rank = 0; rank < ranks->size; rank++)
		if (rank != fault->victim)
			waitid(P_PID, (id_t)ranks->pids[rank], &info, WEXITED | WNOWAIT);
	kill(ranks->pids[fault->victim], SIGKILL);
}

static bool record_contains(const struct ranks *ranks, const char *name, const char *piece)
{
	char command[512];

	snprintf(command, sizeof(command), "grep -rqsF -- '%s' %s/.ddp/failed-*/%s", piece,
		 ranks->directory, name);
	return system(command) == 0;
}

static void check_records(const struct ranks *ranks)
{
	char piece[64], name[32];

	if (fault->stage == BEFORE)
		return;
	for (int rank = 0; rank < ranks->size; rank++) {
		if (rank == fault->victim)
			continue;
		snprintf(piece, sizeof(piece), "rank %d of %d on", rank, ranks->size);
		snprintf(name, sizeof(name), "rank-%d", rank);
		ck_assert_msg(record_contains(ranks, name, piece), "%s: no record of rank %d",
			      fault->name, rank);
	}
}

static void check_fault(struct ranks *ranks)
{
	wait_for_living(ranks);
	ranks_wait(ranks, true);
	for (int rank = 0; rank < ranks->size; rank++)
		if (rank != fault->victim)
			expect_victim_named(ranks, rank);
	check_records(ranks);
	unit_remove(ranks->directory);
}

TEST(test_faults)
{
	static struct ranks ranks[ROWS(faults)];

	for (int i = 0; i < ROWS(faults); i++) {
		fault = &faults[i];
		ranks_start(&ranks[i], fault->layout, body);
	}
	for (int i = 0; i < ROWS(faults); i++) {
		fault = &faults[i];
		check_fault(&ranks[i]);
	}
}

/*
 * Each rank is in another container. Linux before 5.3 has no pidfds, so only a closed
 * connection shows that a rank has ended.
 */
static const struct {
	struct fault fault;
	bool has_pidfds;
} contained[] = {
	{{"killed in a container", "3", 1, JOINED, KILLED}, true},
	{{"killed in a container, no pidfds", "3", 1, REDUCING, KILLED}, false},
	{{"exited in a container, no pidfds", "3", 2, JOINED, LEFT}, false},
};

static bool has_pidfds;

static int body_contained(int rank)
{
	enter_container();
	setenv("DDP_LOCAL", "on", 1);
	RANK_CHECK(has_pidfds || forbid_call(SYS_pidfd_open, ENOSYS));
	return body(rank);
}

TEST_ROWS(test_fault_in_container, contained)
{
	static struct ranks ranks;

	if (!has_containers()) {
		printf("no containers: this user may make no namespaces\n");
		return;
	}
	fault = &contained[_i].fault;
	has_pidfds = contained[_i].has_pidfds;
	ranks_start(&ranks, fault->layout, body_contained);
	check_fault(&ranks);
	for (int rank = 0; rank < ranks.size; rank++)
		if (rank != fault->victim)
			UNIT_SAYS(fault->name, ranks.text[rank], ") is gone: it ");
}

/* --- Few file descriptors ----------------------------------------------------------------- */

static void set_descriptors(rlim_t count)
{
	struct rlimit limit;

	RANK_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = count;
	RANK_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/*
 * Rank 0 may have FEW descriptors, of which libddp uses at most half, so it has none for most
 * ranks. Then it has no descriptor left, and rank 1 is late: it is not reported as lost. At last
 * the limit is below the number of ranks, and a rank ends, which is reported.
 */
enum { FEW = 24 };

static int few_victim;

static int body_few_descriptors(int rank)
{
	struct ddp *ddp;
	int used, fd;

	if (rank == 0)
		set_descriptors(FEW);
	ddp = ranks_join();
	used = unit_entries("/proc/self/fd");
	RANK_CHECK(rank > 0 || used <= FEW / 2 + 1); /* and that of the directory */
	fd = open("/dev/null", O_RDONLY);
	close(fd);
	if (rank == 0)
		set_descriptors((rlim_t)fd);
	usleep(rank == 1 ? 1500000 : 0);
	RANK_OK(ddp, ddp_barrier(ddp));
	if (rank == 0)
		set_descriptors(RANKS_MOST / 2 - 1);
	if (rank == few_victim)
		_exit(0);
	RANK_CHECK(ddp_is_peer_error(ddp_barrier(ddp)));
	RANK_CHECK(strstr(ddp_error(ddp), few_victim == 1 ? "rank 1 on" : "rank 7 on"));
	return 0;
}

TEST_LOOP(test_few_descriptors, 0, 2)
{
	few_victim = _i == 0 ? 1 : 7;
	ranks_run("8", body_few_descriptors);
}

/* --- Several programs in one step ------------------------------------------------------------ */

/* Calls all-reduce repeatedly. Rank [victim] is killed after its first all-reduce. */
static _Noreturn void run_program(int rank, int victim)
{
	struct ddp *ddp = ranks_join();
	float x = 0;

	for (;;) {
		RANK_OK(ddp, ddp_all_reduce(ddp, &x, &x, 1, DDP_F32, DDP_SUM));
		if (rank == victim)
			raise(SIGKILL);
	}
}

static int body_programs(int rank)
{
	char directory[PATH_MAX];

	/* The plugin sets the same directory for all programs of a step. */
	RANK_CHECK(getcwd(directory, sizeof(directory) - 64));
	strcat(directory, "/.ddp");
	(void)mkdir(directory, 0700);
	strcat(directory, "/t-1.0.0-0123456789abcdef");
	(void)mkdir(directory, 0700);
	setenv("DDP_RENDEZVOUS", directory, 1);
	setenv("DDP_JOB", "t.1.0", 1);
	ranks_number("DDP_RANK", rank);
	ranks_number("DDP_SIZE", 3);
	ranks_number("DDP_LOCAL_RANK", rank);
	ranks_number("DDP_LOCAL_SIZE", 3);
	ranks_number("DDP_NODE_RANK", 0);
	for (int victim = 2; victim > 0; victim--) {
		pid_t program = fork();

		if (program == 0)
			run_program(rank, victim);
		RANK_CHECK(waitpid(program, NULL, 0) == program);
	}
	return 0;
}

static int count_pieces(const char *text, const char *piece)
{
	int count = 0;

	while ((text = strstr(text, piece))) {
		text += strlen(piece);
		count++;
	}
	return count;
}

TEST(test_second_program_of_a_step_replaces_records)
{
	static struct ranks ranks;

	ranks_start(&ranks, "3", body_programs);
	ranks_wait(&ranks, true);
	for (int rank = 0; rank < 3; rank++)
		ck_assert_int_eq(ranks.statuses[rank], 0);
	ck_assert(record_contains(&ranks, "rank-0", "rank 1"));
	ck_assert(record_contains(&ranks, "rank-2", "rank 1"));
	unit_remove(ranks.directory);
}

/* --- A rank that aborts ------------------------------------------------------------------ */

static int body_abort(int rank)
{
	struct ddp *ddp;
	float x = 0;

	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	if (rank == 1) {
		ddp_abort(ddp, "the data set %s is empty", "digits");
		ddp_exit(ddp);
	}
	while (ddp_all_reduce(ddp, &x, &x, 1, DDP_F32, DDP_SUM) == 0)
		;
	ddp_exit(ddp);
	return 97;
}

TEST_LOOP(test_abort, 0, 3)
{
	static const char *const layouts[] = {"3", "1,1", "1,2"};
	static struct ranks ranks;

	ranks_start(&ranks, layouts[_i], body_abort);
	ranks_wait(&ranks, false);
	for (int rank = 0; rank < ranks.size; rank++) {
		ck_assert_msg(ranks.statuses[rank] == ddp_exit_status(DDP_ERR_ABORTED),
			      "%s: rank %d ended with %d: %s", layouts[_i], rank,
			      ranks.statuses[rank], ranks.text[rank]);
		ck_assert_msg(strstr(ranks.text[rank], "rank 1 on ") &&
				      strstr(ranks.text[rank], "the data set digits is empty"),
			      "%s: rank %d prints %s", layouts[_i], rank, ranks.text[rank]);
	}
}

/* --- A thread that blocks in stdio ----------------------------------------------------------- */

static void *read_pipe(void *file)
{
	char byte;

	return fread(&byte, 1, 1, file) == 1 ? file : NULL;
}

/* Starts a thread that reads from a pipe without data. Returns when the thread holds the FILE. */
static void block_in_stdio(void)
{
	int ends[2];
	pthread_t thread;
	FILE *file;

	RANK_CHECK(pipe(ends) == 0);
	file = fdopen(ends[0], "r");
	RANK_CHECK(file && pthread_create(&thread, NULL, read_pipe, file) == 0);
	while (ftrylockfile(file) == 0) {
		funlockfile(file);
		sched_yield();
	}
}

static int body_blocked(int rank)
{
	struct ddp *ddp = ranks_join();

	if (rank == 1) {
		RANK_CHECK(freopen("stdout-1", "w", stdout));
		printf("the last line");
		block_in_stdio();
		ddp_abort(ddp, "the data set is empty");
	} else {
		RANK_CHECK(ddp_barrier(ddp) < 0);
	}
	ddp_exit(ddp);
	return 97;
}

TEST(test_exit_while_a_thread_reads_a_pipe)
{
	static struct ranks ranks;
	char path[128], text[32] = "";
	FILE *file;

	ranks_start(&ranks, "2", body_blocked);
	ranks_wait(&ranks, true);
	for (int rank = 0; rank < 2; rank++)
		ck_assert_msg(ranks.statuses[rank] == ddp_exit_status(DDP_ERR_ABORTED),
			      "rank %d ended with %d: %s", rank, ranks.statuses[rank],
			      ranks.text[rank]);
	snprintf(path, sizeof(path), "%s/stdout-1", ranks.directory);
	file = fopen(path, "r");
	ck_assert(file && fgets(text, sizeof(text), file) && fclose(file) == 0);
	ck_assert_str_eq(text, "the last line");
	unit_remove(ranks.directory);
}

/* --- Aborts while gradients are summed ----------------------------------------------------- */

enum { SUMMED = 20, ELEMENTS = 75000, ABORTS = 8 };

static int pause_us; /* time between the last ddp_gradients_ready() and the abort */

/* Rank 0 aborts in the backward pass of step 1, while libddp's thread sums the first buckets. */
static int body_abort_in_step(int rank)
{
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;
	struct ddp_parameter parameters[SUMMED];
	struct ddp_gradients *gradients;
	struct ddp *ddp = ranks_join();

	options.bucket_bytes = options.first_bytes = 256 << 10;
	for (int i = 0; i < SUMMED; i++)
		parameters[i] = (struct ddp_parameter){"weight", ELEMENTS};
	RANK_OK(ddp, ddp_gradients_create(&gradients, ddp, &options, parameters, SUMMED));
	for (int step = 0; step < 2; step++) {
		for (size_t i = SUMMED; i-- > 0;) {
			RANK_OK(ddp, ddp_gradients_ready(gradients, i));
			if (rank > 0 || step == 0 || i != SUMMED / 3)
				continue;
			usleep((useconds_t)pause_us);
			ddp_abort(ddp, "the data set digits is empty");
			ddp_exit(ddp);
		}
		RANK_OK(ddp, ddp_gradients_finish(gradients));
	}
	return 97;
}

TEST(test_abort_in_step)
{
	static struct ranks ranks;

	for (int i = 0; i < ABORTS; i++) {
		pause_us = i * 300;
		ranks_start(&ranks, i % 3 == 0 ? "2,2" : "1,1,1,1", body_abort_in_step);
		ranks_wait(&ranks, false);
		for (int rank = 0; rank < ranks.size; rank++)
			ck_assert_msg(ranks.statuses[rank] == ddp_exit_status(DDP_ERR_ABORTED) &&
					      strstr(ranks.text[rank], "rank 0 on ") &&
					      strstr(ranks.text[rank],
						     "the data set digits is empty"),
				      "%s: rank %d ended with %d: %s", ranks.layout, rank,
				      ranks.statuses[rank], ranks.text[rank]);
	}
}

/* --- Mismatched calls -------------------------------------------------------------------- */

static const char *const mismatch_layouts[] = {"2", "3", "1,1", "1,1,1"};

enum { KIND, COUNT, OPERATION, TYPE, ROOT, BYTES, LENGTH, MISMATCHES };

/* Calls of rank 1 and of the others, as messages describe them. */
static const char *const mismatches[MISMATCHES][2] = {
	[KIND] = {"calls barrier", "calls all-reduce of 100 F32 (sum)"},
	[COUNT] = {"calls all-reduce of 101 F32 (sum)", "calls all-reduce of 100 F32 (sum)"},
	[OPERATION] = {"calls all-reduce of 100 F32 (max)", "calls all-reduce of 100 F32 (sum)"},
	[TYPE] = {"calls all-reduce of 100 I32 (sum)", "calls all-reduce of 100 F32 (sum)"},
	[ROOT] = {"calls broadcast of 400 bytes from rank 1",
		  "calls broadcast of 400 bytes from rank 0"},
	[BYTES] = {"calls all-gather of 404 bytes", "calls all-gather of 400 bytes"},
	[LENGTH] = {"calls all-reduce of 30000 F32 (sum)", "calls all-gather of 400 bytes"},
};

static int mismatch;

static int call_another(struct ddp *ddp, bool odd)
{
	static char data[2 * 120000];

	if (mismatch == ROOT)
		return ddp_broadcast(ddp, data, 400, odd);
	if (mismatch == BYTES || (mismatch == LENGTH && !odd))
		return ddp_all_gather(ddp, data, data + 120000,
				      mismatch == BYTES && odd ? 404 : 400);
	if (mismatch == KIND && odd)
		return ddp_barrier(ddp);
	return ddp_all_reduce(ddp, data, data,
			      mismatch == LENGTH	 ? 30000
			      : mismatch == COUNT && odd ? 101
							 : 100,
			      mismatch == TYPE && odd ? DDP_I32 : DDP_F32,
			      mismatch == OPERATION && odd ? DDP_MAX : DDP_SUM);
}

static int body_mismatch(int rank)
{
	char first[DDP_ERROR_SIZE];
	struct ddp *ddp;

	setenv("DDP_TIMEOUT", LIMIT, 1);
	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	/* A rank that only sends in its call detects the mismatch in the next one. */
	RANK_CHECK(call_another(ddp, rank == 1) < 0 || ddp_barrier(ddp) < 0);
	snprintf(first, sizeof(first), "%s", ddp_error(ddp));
	RANK_CHECK(ddp_barrier(ddp) < 0 && strcmp(ddp_error(ddp), first) == 0);
	ddp_exit(ddp);
	return 97;
}

/* Each rank's error has both calls if the ranks are on one node; over TCP, at least one rank's. */
TEST_LOOP(test_mismatch, 0, MISMATCHES *ROWS(mismatch_layouts))
{
	static struct ranks ranks;
	int reported = 0;

	mismatch = _i % MISMATCHES;
	ranks_start(&ranks, mismatch_layouts[_i / MISMATCHES], body_mismatch);
	ranks_wait(&ranks, false);
	for (int rank = 0; rank < ranks.size; rank++) {
		ck_assert_int_ge(ranks.statuses[rank], ddp_exit_status(DDP_ERR_TIMEOUT));
		reported += ranks.statuses[rank] == ddp_exit_status(DDP_ERR_MISMATCH);
		if (!strchr(ranks.layout, ','))
			UNIT_SAYS(ranks.layout, ranks.text[rank], mismatches[mismatch][0],
				  mismatches[mismatch][1]);
	}
	ck_assert_msg(reported > 0, "%s: no rank reports a mismatch: %s", ranks.layout,
		      ranks.text[0]);
}

static bool sums;

/*
 * A rank leaves too early. A barrier of the other ranks must not succeed with it. With three nodes,
 * the rank that leaves and two ranks that sum would wait for each other in a circle.
 */
static int body_left(int rank)
{
	struct ddp *ddp;
	float data[4] = {0};

	setenv("DDP_TIMEOUT", LIMIT, 1);
	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	if (rank == 1) {
		ddp_destroy(ddp);
		return 0;
	}
	RANK_CHECK((sums ? ddp_all_reduce(ddp, data, data, 4, DDP_F32, DDP_SUM)
			 : ddp_barrier(ddp)) < 0);
	ddp_exit(ddp);
	return 97;
}

TEST_LOOP(test_left, 0, 2 * ROWS(mismatch_layouts))
{
	static struct ranks ranks;

	sums = _i % 2;
	ranks_start(&ranks, mismatch_layouts[_i / 2], body_left);
	ranks_wait(&ranks, false);
	ck_assert_int_eq(ranks.statuses[1], 0);
	for (int rank = 0; rank < ranks.size; rank++)
		ck_assert_msg(rank == 1 || (strstr(ranks.text[rank], "rank 1 ") &&
					    strstr(ranks.text[rank], "has left with ddp_destroy")),
			      "%s: rank %d: %s", ranks.layout, rank, ranks.text[rank]);
}

/* --- SIGTERM, as Slurm sends it at the end ------------------------------------------------- */

static int body_sigterm(int rank)
{
	struct ddp *ddp;
	int fd;
	char name[16];

	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	RANK_OK(ddp, ddp_barrier(ddp));
	snprintf(name, sizeof(name), "up-%d", rank);
	fd = open(name, O_CREAT | O_WRONLY, 0600);
	close(fd);
	for (;;)
		pause();
	return 97;
}

TEST(test_sigterm_writes_records)
{
	static struct ranks ranks;
	char path[128];

	ranks_start(&ranks, "2", body_sigterm);
	for (int rank = 0; rank < 2; rank++) {
		snprintf(path, sizeof(path), "%s/up-%d", ranks.directory, rank);
		while (access(path, F_OK) < 0)
			usleep(1000);
	}
	for (int rank = 0; rank < 2; rank++)
		kill(ranks.pids[rank], SIGTERM);
	ranks_wait(&ranks, true);
	for (int rank = 0; rank < 2; rank++)
		ck_assert_int_eq(ranks.statuses[rank], -SIGTERM);
	ck_assert(record_contains(&ranks, "rank-0", "SIGTERM"));
	ck_assert(record_contains(&ranks, "rank-1", "barrier, begun"));
	unit_remove(ranks.directory);
}

/*
 * Starts a child with fork(), such as a data loader's worker. Returns 0 if SIGTERM ends the child.
 */
static int body_worker(int rank)
{
	struct ddp *ddp = ranks_join();
	int status = 0;
	pid_t worker;

	RANK_OK(ddp, ddp_barrier(ddp));
	worker = rank == 1 ? fork() : 0;
	if (rank == 1 && worker == 0)
		for (;;)
			pause();
	if (worker > 0) {
		kill(worker, SIGTERM);
		RANK_CHECK(waitpid(worker, &status, 0) == worker);
		RANK_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	}
	RANK_OK(ddp, ddp_barrier(ddp));
	ddp_destroy(ddp);
	return 0;
}

TEST(test_sigterm_to_a_forked_worker_writes_no_record)
{
	static struct ranks ranks;

	ranks_start(&ranks, "2", body_worker);
	ranks_wait(&ranks, true);
	for (int rank = 0; rank < 2; rank++)
		ck_assert_msg(ranks.statuses[rank] == 0, "rank %d: %s", rank, ranks.text[rank]);
	ck_assert(!record_contains(&ranks, "rank-1", "rank 1 of 2"));
	unit_remove(ranks.directory);
}

/* Rank 1 is killed, but its child is running and has copies of its descriptors. */
static pid_t *orphan;

static int body_orphan(int rank)
{
	struct ddp *ddp = ranks_join();
	pid_t worker = rank == 1 ? fork() : 0;

	if (rank == 1 && worker == 0)
		for (;;)
			pause();
	if (rank == 1) {
		*orphan = worker;
		raise(SIGKILL);
	}
	RANK_OK(ddp, ddp_barrier(ddp));
	return 0;
}

/* Layouts in which rank 0 detects the loss by TCP, and by a process descriptor. */
static const struct {
	const char *layout, *text;
} orphans[] = {{"1,1", "lost the connection to rank 1"}, {"2", ") is gone: it did not arrive in"}};

TEST_ROWS(test_killed_rank_is_detected_while_its_child_runs, orphans)
{
	static struct ranks ranks;

	orphan = unit_shared(sizeof(*orphan));
	setenv("DDP_TIMEOUT", "20", 1);
	ranks_start(&ranks, orphans[_i].layout, body_orphan);
	ranks_wait(&ranks, false);
	ck_assert_int_eq(kill(*orphan, SIGKILL), 0);
	munmap(orphan, sizeof(*orphan));
	UNIT_SAYS("rank 0", ranks.text[0], orphans[_i].text);
	ck_assert_int_eq(ranks.statuses[0], ddp_exit_status(DDP_ERR_PEER));
}

/*
 * Rank 1 is killed while rank 0 calls nothing. Then rank 0 only sends, so it detects the end of the
 * connection by a send.
 */
static pid_t *victim;

static int body_send_to_killed(int rank)
{
	struct ddp *ddp = ranks_join();
	char path[64], text[512] = "";
	int status = 0, fd;

	if (rank == 1) {
		*victim = getpid();
		raise(SIGKILL);
	}
	while (!strstr(text, ") Z ")) {
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)*(volatile pid_t *)victim);
		fd = open(path, O_RDONLY);
		if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0)
			*text = '\0';
		close(fd);
	}
	while (status == 0)
		status = ddp_broadcast(ddp, path, sizeof(path), 0);
	RANK_CHECK(status == DDP_ERR_PEER);
	ddp_exit(ddp);
	return 97;
}

TEST(test_killed_rank_has_not_left)
{
	static struct ranks ranks;

	victim = unit_shared(sizeof(*victim));
	ranks_start(&ranks, "1,1", body_send_to_killed);
	waitid(P_PID, (id_t)ranks.pids[0], &(siginfo_t){0}, WEXITED | WNOWAIT);
	ranks_wait(&ranks, false);
	munmap(victim, sizeof(*victim));
	unit_pieces("rank 0", ranks.text[0],
		    (const char *[]){"lost the connection to rank 1", ": it closed the connection",
				     NULL});
	ck_assert_int_eq(ranks.statuses[0], ddp_exit_status(DDP_ERR_PEER));
}

/*
 * Six groups, of which 0 and 3 exchange no messages. Group 0 starts to wait first, the others 12 s
 * later. Rank 4 in group 3 never waits. Rank 1's timeout ends first, and rank 1 then waits for the
 * report that rank 0 receives.
 */
static int body_different_start(int rank)
{
	struct ddp *ddp = ranks_join();

	if (rank > 1)
		sleep(12);
	if (rank == 4)
		raise(SIGSTOP);
	RANK_OK(ddp, ddp_barrier(ddp));
	return 0;
}

TEST(test_silent_rank_is_named_by_groups_that_waited_longer)
{
	static struct ranks ranks;

	setenv("DDP_TIMEOUT", "20", 1);
	ranks_start(&ranks, "2,1,1,1,1,1", body_different_start);
	for (int rank = 0; rank < ranks.size; rank++)
		if (rank != 4)
			waitid(P_PID, (id_t)ranks.pids[rank], &(siginfo_t){0}, WEXITED | WNOWAIT);
	kill(ranks.pids[4], SIGKILL);
	ranks_wait(&ranks, false);
	for (int rank = 0; rank < ranks.size; rank++)
		if (rank != 4)
			unit_pieces("rank", ranks.text[rank],
				    (const char *[]){"rank 4 on ", " did not answer", NULL});
}

/* --- Owner of the directory -------------------------------------------------------------- */

/*
 * Ranks write no record if another user could replace .ddp by a link to another directory, or has
 * done so. test_file tests which directories are safe.
 */
TEST_LOOP(test_directory_owner, 0, 2)
{
	const struct ddp_call call = {.name = "barrier"};
	char top[64], path[256];
	struct ddp_recorder *recorder;

	unit_directory(top, sizeof(top));
	snprintf(path, sizeof(path), "%s/.ddp", top);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(chmod(top, _i == 0 ? 01777 : 0777), 0);
	strcat(path, "/failed-1.0");
	recorder = ddp_recorder_create(path, "1.0", 1, 2, "here");
	ddp_recorder_begin(recorder, &call);
	ddp_recorder_dump(recorder, "a test");
	ddp_recorder_destroy(recorder);
	strcat(path, "/rank-1");
	ck_assert_int_eq(access(path, F_OK), _i == 0 ? 0 : -1);
	unit_remove(top);
}

/* --- The heartbeat ------------------------------------------------------------------------- */

static time_t modification_time(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_mtime : -1;
}

/* A successful collective changes the heartbeat file. A running or failed one does not. */
TEST(test_heartbeat)
{
	static const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	const struct ddp_call call = {.name = "barrier"};
	struct ddp_recorder *recorder = ddp_recorder_create("", "1.0", 0, 1, "here");
	char top[64], path[96];

	unit_directory(top, sizeof(top));
	snprintf(path, sizeof(path), "%s/beat-0", top);
	ddp_recorder_begin(recorder, &call);
	ddp_recorder_end(recorder, 0);
	ck_assert_int_eq(modification_time(path), -1);
	ddp_recorder_watch(recorder, path);
	ddp_recorder_begin(recorder, &call);
	ck_assert_int_eq(modification_time(path), -1);
	ddp_recorder_end(recorder, 0);
	ck_assert_int_gt(modification_time(path), 1000);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(utimensat(AT_FDCWD, path, long_ago, 0), 0);
		usleep(1100000);
		if (i == 1) {
			ddp_recorder_beat(recorder);
			break;
		}
		ddp_recorder_begin(recorder, &call);
		ck_assert_int_eq(modification_time(path), 1000);
		ddp_recorder_end(recorder, DDP_ERR_TIMEOUT);
		ck_assert_int_eq(modification_time(path), 1000);
		ddp_recorder_begin(recorder, &call);
		ddp_recorder_end(recorder, 0);
		ck_assert_int_gt(modification_time(path), 1000);
	}
	ck_assert_int_gt(modification_time(path), 1000);
	ddp_recorder_destroy(recorder);
	ddp_recorder_beat(NULL);

	/* If the heartbeat file cannot be written, that is not an error. */
	recorder = ddp_recorder_create("", "1.0", 0, 1, "here");
	ddp_recorder_watch(recorder, "/nowhere/beat-0");
	ddp_recorder_beat(recorder);
	ddp_recorder_beat(recorder);
	ddp_recorder_destroy(recorder);
	unit_remove(top);
}

/* --- A slow rank ------------------------------------------------------------------------- */

static const struct {
	int size;
	struct ddp_pace paces[5]; /* pace of each rank */
	int slow;
	uint32_t median; /* median of the other ranks */
} paces[] = {
	{2, {{100, 5000}, {4000, 5000}}, 1, 100},
	{2,
	 {{3500, 5000}, {4000, 5000}},
	 -1,
	 3500}, /* the difference is at most a tenth of the time */
	{2, {{3499, 5000}, {4000, 5000}}, 1, 3499},
	{3, {{4900, 5000}, {100, 5000}, {200, 5000}}, 0, 200},
	{5, {{10, 5000}, {20, 5000}, {30, 5000}, {4000, 5000}, {3900, 5000}}, 3, 30},
	{5, {{2000, 5000}, {2000, 5000}, {2000, 5000}, {2000, 5000}, {2000, 5000}}, -1, 2000},
	{2, {{0, 900}, {800, 900}}, -1, 0}, /* the measured time is too short */
};

TEST_ROWS(test_slow_find, paces)
{
	uint32_t median;

	ck_assert_int_eq(ddp_slow_find(paces[_i].paces, paces[_i].size, &median), paces[_i].slow);
	ck_assert_uint_eq(median, paces[_i].median);
}

/* Rank 2 waits 40 ms between collectives, the others 1 ms. Then rank 1 aborts. */
static int body_slow(int rank)
{
	struct ddp *ddp = ranks_join();
	float x = 0;

	for (int i = 0; i < 240; i++) {
		usleep(rank == 2 ? 40000 : 1000);
		RANK_OK(ddp, ddp_all_reduce(ddp, &x, &x, 1, DDP_F32, DDP_SUM));
	}
	if (rank == 1)
		ddp_abort(ddp, "end of the test");
	else
		(void)ddp_barrier(ddp);
	ddp_exit(ddp);
	return 0;
}

TEST(test_slow_rank_is_named_in_the_log_and_in_the_record)
{
	struct ranks ranks;

	ranks_start(&ranks, "2,1", body_slow);
	ranks_wait(&ranks, true);
	ck_assert_msg(strstr(ranks.text[0], "rank 2 on ") && strstr(ranks.text[0], " is slow: "),
		      "%s", ranks.text[0]);
	ck_assert_int_eq(count_pieces(ranks.text[0], " is slow: "), 1);
	ck_assert_ptr_null(strstr(ranks.text[1], " is slow: "));
	ck_assert_msg(record_contains(&ranks, "rank-0", "slow: rank 2 on "),
		      "no record of the slow rank");
	unit_remove(ranks.directory);
}

/* --- Killed at any moment ---------------------------------------------------------------- */

static void kill_some(uint64_t *state)
{
	static const char *const layouts[] = {"4", "2,2", "1,1,1", "3,1"};
	static const struct fault nobody = {"killed at random", NULL, -1, JOINED, KILLED};
	static struct ranks ranks[WORLDS];
	struct fault faults_now[WORLDS];

	fault = &nobody; /* no rank ends by its own call */
	for (int i = 0; i < WORLDS; i++)
		ranks_start(&ranks[i], layouts[unit_random(state, ROWS(layouts))], body);
	for (int i = 0; i < WORLDS; i++) {
		faults_now[i] = nobody;
		faults_now[i].victim = (int)unit_random(state, (uint32_t)ranks[i].size);
		usleep(unit_random(state, 200000));
		kill(ranks[i].pids[faults_now[i].victim], SIGKILL);
	}
	for (int i = 0; i < WORLDS; i++) {
		fault = &faults_now[i];
		wait_for_living(&ranks[i]);
		ranks_wait(&ranks[i], false);
		/* if the victim died before the start, messages list only its number */
		faults_now[i].stage = BEFORE;
		for (int rank = 0; rank < ranks[i].size; rank++)
			if (rank != fault->victim)
				expect_victim_named(&ranks[i], rank);
	}
}

TEST(test_random_kills)
{
	uint64_t state = unit_seed(1);
	int files = ranks_shared_files();

	for (int rounds = getenv("DDP_LONG") ? 10 : 1; rounds > 0; rounds--)
		kill_some(&state);
	ranks_await_shared_files(files);
}

UNIT_MAIN("failure", NULL)
