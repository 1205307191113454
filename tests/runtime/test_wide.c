/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_wide.c - each engine between nodes, with processes on loopback: collectives, and the errors
 * of the other processes if one is killed, stops, aborts or leaves
 *
 * MPI's launcher starts MPI processes. The ranks of these processes differ from their MPI ranks.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "wide/ring.h"
#include "wide/tcp-private.h"

#ifdef HAVE_MPI
/* Open MPI 5 and its PMIx leak memory, which LeakSanitizer must ignore. */
const char *__lsan_default_suppressions(void) __attribute__((visibility("default")));

const char *__lsan_default_suppressions(void)
{
	return "leak:libmpi\nleak:libopen-pal\nleak:libpmix\nleak:vasprintf\n";
}
#endif

enum { MOST = 4 };

/* Function that runs in each process. Returns the process's exit status: 0 if it found no error. */
struct member;
typedef int member_run(struct member *member);

/* Engines that this build has. */
static const struct engine {
	const char *name, *described[2];
	const char *launcher; /* NULL: the test forks the processes */
} engines[] = {
	{"tcp", {"TCP (lo, 127.0.0.1", " connection"}, NULL},
#ifdef HAVE_MPIRUN
	{"mpi", {"MPI", "."}, MPIRUN},
#endif
};
#define ENGINES ROWS(engines)

static const struct engine *engine; /* engine that the test or the process uses now */

static void select_engine(const struct engine *which)
{
	engine = which;
	setenv("DDP_WIDE", engine->name, 1);
}

/*
 * The tests loop over all engines and, for each, over some rows. Selects the engine of test number
 * [i] and returns the row.
 */
static int select_engine_of(int i)
{
	select_engine(&engines[i % ENGINES]);
	return i / ENGINES;
}

struct member {
	struct ddp_log log;
	struct ddp_column column;
	int ranks[MOST];
	uint32_t sequence;
	double limit;
	int wire; /* socket to the test */
	struct ddp_error error;
};

/* Each process sends this to the test once. */
struct report {
	int status;
	char text[DDP_ERROR_SIZE];
};

struct process {
	pid_t id;
	int wire;
};

static const char *name_of(void *owner, int rank)
{
	static const char *const names[] = {"rank 0 on n0", "rank 1 on n1", "rank 2 on n2",
					    "rank 3 on n3"};

	(void)owner;
	return names[rank];
}

/*
 * Signals whose handlers an engine must not change. The program has its own handler for one of
 * them.
 */
static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGHUP};
static void (*before[ROWS(signals)])(int);

static void handle(int number)
{
	_exit(128 + number);
}

static void record_signal_handlers(void)
{
	signal(SIGFPE, handle);
	for (int i = 0; i < ROWS(signals); i++) {
		struct sigaction action;

		sigaction(signals[i], NULL, &action);
		before[i] = action.sa_handler;
	}
}

/* --- In the processes --------------------------------------------------------------------- */

static void transfer(int fd, void *data, size_t size, bool out)
{
	char *at = data;

	while (size) {
		ssize_t done = out ? write(fd, at, size) : read(fd, at, size);

		if (done <= 0) {
			fprintf(stderr, "process %d: the other end of the wire is gone\n",
				getpid());
			_exit(99);
		}
		at += done;
		size -= (size_t)done;
	}
}

static struct ddp_column_call call_of(struct member *member, const char *name, size_t bytes)
{
	return (struct ddp_column_call){++member->sequence, (uint32_t)bytes, name};
}

static int print_error(struct member *member)
{
	fprintf(stderr, "rank %d: %s\n", member->column.index, member->error.text);
	return 1;
}

/* Sends this member's address to the test, and receives the addresses of all members. */
static void exchange_cards(struct member *member, const struct ddp_host_card *own,
			   struct ddp_host_card cards[static MOST])
{
	transfer(member->wire, (void *)(uintptr_t)own, sizeof(*own), true);
	transfer(member->wire, cards, MOST * sizeof(*cards), false);
}

/* if the text that end() gets contains this text, end() reports success on [end_wire] */
static const char *expected_end;
static int end_wire;

/* Called by an engine if a call to its library will not return. */
static void end(void *owner, int status, const char *text)
{
	(void)owner;
	if (expected_end && status == DDP_ERR_MISMATCH && strstr(text, expected_end)) {
		status = 0;
		transfer(end_wire, &status, sizeof(status), true);
		sleep(2); /* like ddp_exit(), so that the launcher does not kill the other ranks */
		_exit(0);
	}
	fprintf(stderr, "process %d: %s\n", getpid(), text);
	_exit(ddp_exit_status(status));
}

/*
 * Opens the engine and meets the other members within [limit] seconds. An absent member does not
 * meet them, but waits for its end.
 */
static int meet_within(struct member *member, int rank, int size, double limit, bool absent)
{
	struct ddp_column *column = &member->column;
	struct ddp_watch watch = ddp_watch_start(30, NULL, NULL);
	const struct ddp_host_setup setup = {rank, size, &watch, end, &member->log};
	struct ddp_host_card own = {.rank = rank}, cards[MOST];
	struct ddp_error *error = &member->error;

	column->engine = ddp_host_engine_find(engine->name, NULL, error);
	if (!column->engine || column->engine->open(&column->host, &setup, &own, error) < 0)
		return error->status;
	exchange_cards(member, &own, cards);
	for (int i = 0; i < size; i++)
		member->ranks[i] = i;
	memmove(&cards[rank], &cards[rank + 1], (size_t)(size - rank - 1) * sizeof(*cards));
	while (absent)
		pause();
	watch = ddp_watch_start(limit, NULL, NULL);
	return column->engine->meet(column->host, cards, size - 1, &watch, error);
}

static int meet(struct member *member, int rank, int size)
{
	struct ddp_column *column = &member->column;

	if (meet_within(member, rank, size, 30, false) < 0)
		return print_error(member);
	column->index = rank;
	column->size = size;
	column->ranks = member->ranks;
	column->name = name_of;
	column->scratch_bytes = DDP_COLUMN_SCRATCH_FULL;
	column->scratch = aligned_alloc(64, DDP_COLUMN_SCRATCH_FULL);
	return 0;
}

static int barrier(struct member *member)
{
	struct ddp_column_call call = call_of(member, "barrier", 0);
	struct ddp_watch watch = ddp_watch_start(member->limit, NULL, NULL);

	return ddp_column_barrier(&member->column, &call, &watch, &member->error);
}

static int reduce(struct member *member, float *data, size_t count)
{
	struct ddp_column_call call = call_of(member, "all-reduce", count);
	struct ddp_watch watch = ddp_watch_start(member->limit, NULL, NULL);

	return ddp_column_all_reduce(&member->column, &call, data, count, DDP_F32, DDP_SUM, &watch,
				     &member->error);
}

static void leave(struct member *member, bool clean)
{
	member->column.engine->close(member->column.host, clean);
	free(member->column.scratch);
}

/* Stands for report_meeting(), which run_member() calls instead of meet() and this function. */
static int run_meet(struct member *member)
{
	(void)member;
	return 1;
}

/*
 * Rank 1 is absent. Sends the other ranks' errors to the test, and waits for its end, since MPI's
 * launcher would kill the other processes.
 */
static _Noreturn void report_meeting(struct member *member, int rank, int size)
{
	struct report report = {0};

	report.status = meet_within(member, rank, size, member->limit, rank == 1);
	snprintf(report.text, sizeof(report.text), "%s", member->error.text);
	transfer(member->wire, &report, sizeof(report), true);
	for (;;)
		pause();
}

/* --- In the test -------------------------------------------------------------------------- */

static _Noreturn void run_member(member_run *run, int wire, int rank, int size, double limit)
{
	struct member member = {.limit = limit, .wire = wire};
	int status;

	member.log = (struct ddp_log){.level = DDP_LEVEL_WARNING, .rank = rank};
	if (run == run_meet)
		report_meeting(&member, rank, size);
	status = meet(&member, rank, size) ? 1 : run(&member);
	if (!engine->launcher)
		_exit(status);
	/*
	 * MPI processes are not children of the test, so they send their status. They run all exit
	 * handlers, which must not hang.
	 */
	transfer(wire, &status, sizeof(status), true);
	exit(status);
}

static struct process start(member_run *run, int rank, int size, double limit)
{
	struct process process;
	int wires[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wires), 0);
	process.id = fork();
	ck_assert_int_ge(process.id, 0);
	process.wire = wires[0];
	if (process.id == 0) {
		close(wires[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_member(run, wires[1], rank, size, limit);
	}
	close(wires[1]);
	return process;
}

/* --- Processes that MPI's launcher starts ------------------------------------------------- */

static member_run run_all, reduce_until_error, run_other_call, run_longer, run_longer_pieces,
	run_note, run_leave, run_left, run_check_handlers, run_overdue;
static member_run *const runs[] = {
	run_all,   reduce_until_error, run_other_call,	   run_longer,	run_longer_pieces, run_note,
	run_leave, run_left,	       run_check_handlers, run_overdue, run_meet};
static pid_t launcher;
/*
 * TMPDIR of the launcher. Killed processes leave files there, which would disturb a later process
 * with the same id.
 */
static char launcher_files[256];

static struct sockaddr_un socket_of(pid_t test, socklen_t *length)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int text = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "ddp-test-wide-%d", test);

	*length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)text);
	return name;
}

/* The first bytes that a process sends to the test. */
struct introduction {
	int rank;
	pid_t id;
};

static int accept_one(int listener)
{
	struct pollfd ready = {.fd = listener, .events = POLLIN};

	while (poll(&ready, 1, 100) == 0)
		ck_assert_msg(waitpid(launcher, NULL, WNOHANG) == 0,
			      "the launcher ended before all processes had connected");
	return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

static void launch(struct process *processes, member_run *run, int size, double limit)
{
	socklen_t length;
	struct sockaddr_un name = socket_of(getpid(), &length);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), number = 0;
	pid_t test = getpid();
	char command[4096];

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&name, length), 0);
	ck_assert_int_eq(listen(listener, size), 0);
	while (runs[number] != run)
		number++;
	snprintf(command, sizeof(command), "exec %s -np %d /proc/%d/exe member %d %d %d %g",
		 engine->launcher, size, test, test, number, size, limit);
	unit_directory(launcher_files, sizeof(launcher_files));
	launcher = fork();
	ck_assert_int_ge(launcher, 0);
	if (launcher == 0) {
		setenv("TMPDIR", launcher_files, 1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	for (int i = 0; i < size; i++) {
		int wire = accept_one(listener);
		struct introduction introduction;

		ck_assert_int_ge(wire, 0);
		transfer(wire, &introduction, sizeof(introduction), false);
		processes[introduction.rank] = (struct process){introduction.id, wire};
	}
	close(listener);
}

static int number_in(const char *variable, const char *otherwise)
{
	const char *text = getenv(variable);

	return atoi(text ? text : getenv(otherwise));
}

/*
 * Runs main() of a process that MPI's launcher started: member TEST RUN SIZE LIMIT. The rank
 * differs from the MPI rank.
 */
static _Noreturn void run_launched_member(char **arguments)
{
	int size = atoi(arguments[2]);
	struct introduction introduction = {
		size - 1 - number_in("OMPI_COMM_WORLD_RANK", "PMI_RANK"), getpid()};
	int wire = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t length;
	struct sockaddr_un name = socket_of(atoi(arguments[0]), &length);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (connect(wire, (struct sockaddr *)&name, length) < 0)
		_exit(98);
	transfer(wire, &introduction, sizeof(introduction), true);
	record_signal_handlers();
	run_member(runs[atoi(arguments[1])], wire, introduction.rank, size, atof(arguments[3]));
}

/*
 * Waits for the launcher. Its exit status must be an error unless all processes left without error
 * ([clean]).
 */
static void end_launcher(bool clean)
{
	int status;

	if (!engine->launcher)
		return;
	ck_assert_int_eq(waitpid(launcher, &status, 0), launcher);
	unit_remove(launcher_files);
	if (clean)
		unit_number(engine->name, "status of the launcher", status, 0);
}

/* --- All processes --------------------------------------------------------------------------------- */

static void introduce(struct process *processes, int size)
{
	struct ddp_host_card cards[MOST] = {{0}};

	for (int i = 0; i < size; i++)
		transfer(processes[i].wire, &cards[i], sizeof(cards[i]), false);
	for (int i = 0; i < size; i++)
		transfer(processes[i].wire, cards, sizeof(cards), true);
}

static void begin(struct process *processes, member_run *run, int size, double limit)
{
	if (engine->launcher)
		launch(processes, run, size, limit);
	for (int i = 0; i < size && !engine->launcher; i++)
		processes[i] = start(run, i, size, limit);
	introduce(processes, size);
}

static int status_of(struct process *process)
{
	int status;

	if (engine->launcher) {
		if (read(process->wire, &status, sizeof(status)) != sizeof(status))
			status = 128 + SIGKILL;
		close(process->wire);
		return status;
	}
	ck_assert_int_eq(waitpid(process->id, &status, 0), process->id);
	close(process->wire);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect_success(struct process *processes, int size)
{
	for (int i = 0; i < size; i++)
		unit_number(name_of(NULL, i), "exit status", status_of(&processes[i]), 0);
}

/*
 * Runs [size] processes, which must exit with 0. If [clean], MPI's launcher must exit with 0 too.
 */
static void all_run(member_run *run, int size, bool clean)
{
	struct process processes[MOST] = {{0}};

	begin(processes, run, size, 30);
	expect_success(processes, size);
	end_launcher(clean);
}

/* --- Collectives ----------------------------------------------------------------------------- */

static float input(int rank, size_t i)
{
	return (float)((i * 7 + (size_t)rank * 5 + i / 1021) % 1000);
}

static bool reduce_is_right(struct member *member, size_t count)
{
	float *data = malloc(count * sizeof(*data) + 1);
	bool good;

	for (size_t i = 0; i < count; i++)
		data[i] = input(member->column.index, i);
	good = reduce(member, data, count) == 0;
	for (size_t i = 0; i < count && good; i++) {
		float want = 0;

		for (int rank = 0; rank < member->column.size; rank++)
			want += input(rank, i);
		good = data[i] == want;
	}
	free(data);
	return good;
}

static bool broadcast_is_right(struct member *member, size_t bytes, int root)
{
	struct ddp_column_call call = call_of(member, "broadcast", bytes);
	struct ddp_watch watch = ddp_watch_start(member->limit, NULL, NULL);
	char *data = malloc(bytes);
	bool good;

	memset(data, member->column.index == root ? 'a' + root : '-', bytes);
	good = ddp_column_broadcast(&member->column, &call, data, bytes, root, &watch,
				    &member->error) == 0;
	good = good && data[0] == 'a' + root && memcmp(data, data + 1, bytes - 1) == 0;
	free(data);
	return good;
}

static bool gather_is_right(struct member *member, size_t bytes)
{
	struct ddp_column_call call = call_of(member, "all-gather", bytes);
	struct ddp_watch watch = ddp_watch_start(member->limit, NULL, NULL);
	int size = member->column.size, index = member->column.index;
	size_t offsets[MOST + 1];
	char *data = malloc(bytes * (size_t)size);
	bool good;

	for (int i = 0; i <= size; i++)
		offsets[i] = bytes * (size_t)i;
	memset(data + offsets[index], 'a' + index, bytes);
	good = ddp_column_all_gather(&member->column, &call, data, offsets, &watch,
				     &member->error) == 0;
	for (int i = 0; i < size && good; i++)
		good = data[offsets[i]] == 'a' + i && data[offsets[i + 1] - 1] == 'a' + i;
	free(data);
	return good;
}

static int run_all(struct member *member)
{
	static const size_t bytes[] = {4, 4096, 65536, 65540, 1 << 20, 8 << 20};
	char text[128];
	int size = member->column.size;

	for (int i = 0; i < ROWS(bytes); i++)
		if (!reduce_is_right(member, bytes[i] / sizeof(float)) ||
		    !broadcast_is_right(member, bytes[i], i % size) ||
		    !gather_is_right(member, bytes[i] / 2) || barrier(member) < 0)
			return print_error(member);
	member->column.engine->describe(member->column.host, text, sizeof(text));
	leave(member, true);
	return !strstr(text, engine->described[0]) || !strstr(text, engine->described[1]);
}

TEST_LOOP(test_collectives, 0, 3 * ENGINES)
{
	all_run(run_all, 2 + select_engine_of(_i), true);
}

/* --- A peer is lost -------------------------------------------------------------------------- */

enum { WARM = 5 };

/*
 * Calls all-reduce several times with a timeout of 60 s. Then sets the member's timeout to at least
 * ten times the slowest of these.
 */
static int warm_up(struct member *member, float *data, size_t count)
{
	double limit = member->limit, slowest = 0;

	member->limit = 60;
	for (int i = 0; i < WARM; i++) {
		double begin = ddp_seconds();
		int status = reduce(member, data, count);

		if (status < 0)
			return status;
		slowest = fmax(slowest, ddp_seconds() - begin);
	}
	member->limit = fmax(limit, 10 * slowest);
	return 0;
}

/* Warms up, notifies the test, calls all-reduce until an error occurs, and prints the error. */
static int reduce_until_error(struct member *member)
{
	struct report report = {0};
	size_t count = (4 << 20) / sizeof(float);
	float *data = calloc(count, sizeof(*data));

	if (warm_up(member, data, count) < 0)
		return print_error(member);
	transfer(member->wire, "5", 1, true);
	while (report.status == 0)
		report.status = reduce(member, data, count);
	free(data);
	snprintf(report.text, sizeof(report.text), "%s", member->error.text);
	transfer(member->wire, &report, sizeof(report), true);
	leave(member, false);
	return 0;
}

static void wait_for_warm_up(struct process *processes, int size)
{
	char word;

	for (int i = 0; i < size; i++)
		transfer(processes[i].wire, &word, 1, false);
}

/*
 * With TCP, a killed process closes its connection at once, so the status is not DDP_ERR_TIMEOUT.
 * With MPI and four ranks, two ranks that have exchanged no messages may time out on each other.
 */
static const struct {
	const char *name, *engine;
	int signal, size;
	double limit;
	int status;
	const char *text;
} losses[] = {
	{"tcp, kill -9, 2", "tcp", SIGKILL, 2, 50, DDP_ERR_PEER,
	 "lost the connection to rank 1 on n1 in all-reduce #"},
	{"tcp, kill -9, 4", "tcp", SIGKILL, 4, 50, DDP_ERR_PEER,
	 "the connection to rank 1 on n1 in all-reduce #"},
	{"tcp, stop, 2", "tcp", SIGSTOP, 2, 2, DDP_ERR_TIMEOUT,
	 "rank 1 on n1 did not answer in all-reduce #"},
	{"tcp, stop, 4", "tcp", SIGSTOP, 4, 2, DDP_ERR_TIMEOUT,
	 "rank 1 on n1 did not answer in all-reduce #"},
	{"mpi, stop, 2", "mpi", SIGSTOP, 2, 2, DDP_ERR_TIMEOUT,
	 "rank 1 on n1 did not answer in all-reduce #"},
	{"mpi, stop, 4", "mpi", SIGSTOP, 4, 2, DDP_ERR_TIMEOUT, "rank 1 on n1"},
};

TEST_ROWS(test_lost_peer, losses)
{
	const char *name = losses[_i].name;
	struct process processes[MOST] = {{0}};

	for (int i = 0; i < ENGINES; i++)
		if (strcmp(engines[i].name, losses[_i].engine) == 0)
			select_engine(&engines[i]);
	if (!engine)
		return; /* The engine is not in this build. */
	begin(processes, reduce_until_error, losses[_i].size, losses[_i].limit);
	wait_for_warm_up(processes, losses[_i].size);
	ck_assert_int_eq(kill(processes[1].id, losses[_i].signal), 0);
	for (int i = 0; i < losses[_i].size; i++) {
		struct report report;

		if (i == 1)
			continue;
		transfer(processes[i].wire, &report, sizeof(report), false);
		unit_pieces(name, report.text, (const char *[]){losses[_i].text, NULL});
		ck_assert_msg(report.status == losses[_i].status ||
				      report.status == DDP_ERR_ABORTED,
			      "%s: status %d", name, report.status);
		unit_number(name, "exit status", status_of(&processes[i]), 0);
	}
	kill(processes[1].id, SIGKILL);
	status_of(&processes[1]);
	end_launcher(false);
}

/* A rank does not connect. The others' wait ends at the time limit. */
TEST_LOOP(test_meet_absent, 0, ENGINES)
{
	struct process processes[3] = {{0}};

	select_engine_of(_i);
	begin(processes, run_meet, 3, 2);
	for (int i = 0; i < 3; i++) {
		struct report report;

		if (i == 1)
			continue;
		transfer(processes[i].wire, &report, sizeof(report), false);
		unit_number(name_of(NULL, i), "status", report.status, DDP_ERR_TIMEOUT);
		unit_pieces(name_of(NULL, i), report.text,
			    (const char *[]){engine->launcher ? "group did not return within 2 s: "
							      : "rank 1 on ",
					     NULL});
	}
	for (int i = 0; i < 3; i++)
		kill(processes[i].id, SIGKILL);
	for (int i = 0; i < 3; i++)
		status_of(&processes[i]);
	end_launcher(false);
}

#ifdef HAVE_MPIRUN
/* Kills a process that hangs: Open MPI 4.1 sometimes hangs in a call after a peer is lost. */
static void end_if_stuck(const struct process *process)
{
	struct pollfd report = {.fd = process->wire, .events = POLLIN};

	if (poll(&report, 1, 60000) != 0)
		return;
	fprintf(stderr, "process %d does not return from MPI: killed\n", (int)process->id);
	kill(process->id, SIGKILL);
}

/*
 * After the loss of a peer, MPI ends the process, or the process returns a timeout, or it hangs. An
 * error's text must name a rank of the other node, or the MPI call that failed.
 */
TEST_LOOP(test_mpi_peer_killed, 0, unit_rows(1, 2))
{
	struct process processes[MOST] = {{0}};
	int size = _i % 2 ? 4 : 2;

	select_engine(&engines[ENGINES - 1]);
	begin(processes, reduce_until_error, size, 3);
	wait_for_warm_up(processes, size);
	ck_assert_int_eq(kill(processes[1].id, SIGKILL), 0);
	for (int i = 0; i < size; i++) {
		struct report report;

		end_if_stuck(&processes[i]);
		if (read(processes[i].wire, &report, sizeof(report)) == sizeof(report))
			unit_pieces("death", report.text,
				    (const char *[]){size == 2 ? "rank 1 on n1" : "on n",
						     " in all-reduce #", NULL});
		status_of(&processes[i]);
	}
	end_launcher(false);
}
#endif

/* --- Members that disagree ---------------------------------------------------------------- */

/* The members make different calls. Their messages have the same size. */
static int run_other_call(struct member *member)
{
	struct ddp_column_call call = {1, (uint32_t)member->column.index, "all-reduce"};
	struct ddp_watch watch = ddp_watch_start(member->limit, NULL, NULL);
	float data = 1;
	int status = ddp_column_all_reduce(&member->column, &call, &data, 1, DDP_F32, DDP_SUM,
					   &watch, &member->error);

	if ((status != DDP_ERR_MISMATCH && status != DDP_ERR_ABORTED) ||
	    !strstr(member->error.text, "made another call than all-reduce #1"))
		return print_error(member);
	leave(member, false);
	return 0;
}

TEST_LOOP(test_other_call, 0, ENGINES)
{
	select_engine_of(_i);
	all_run(run_other_call, 2, false);
}

/*
 * Rank 1's messages are longer than rank 0 expects. Each rank's error names the other rank, or is
 * the error that the other rank has sent. With MPI, rank 0's process ends.
 */
static int reduce_longer(struct member *member, size_t count)
{
	float *data;
	int status;

	expected_end = "sent more than its peer expects";
	end_wire = member->wire;
	count <<= member->column.index;
	data = calloc(count, sizeof(*data));
	status = reduce(member, data, count);
	free(data);
	if ((status != DDP_ERR_MISMATCH && status != DDP_ERR_ABORTED) ||
	    (!strstr(member->error.text, "rank 1 on n1 sent more than ") &&
	     !strstr(member->error.text, "rank 0 on n0 made another call than all-reduce #1")))
		return print_error(member);
	leave(member, false);
	return 0;
}

static int run_longer(struct member *member)
{
	return reduce_longer(member, 1);
}

static int run_longer_pieces(struct member *member)
{
	return reduce_longer(member, 40000);
}

TEST_LOOP(test_other_count, 0, 2 * ENGINES)
{
	all_run(select_engine_of(_i) ? run_longer_pieces : run_longer, 2, false);
}

/* --- Error notes, and members that leave -------------------------------------------------- */

static int run_note(struct member *member)
{
	int index = member->column.index;

	if (index == 1) {
		if (barrier(member) < 0)
			return print_error(member);
		member->column.engine->note(member->column.host, "a note");
		leave(member, false);
		return 0;
	}
	/* The note may arrive as early as the first barrier. */
	if ((barrier(member) == 0 && barrier(member) == 0) ||
	    member->error.status != DDP_ERR_ABORTED ||
	    strcmp(member->error.text, "from rank 1 on n1: a note") != 0)
		return print_error(member);
	leave(member, false);
	return 0;
}

TEST_LOOP(test_note, 0, 2 * ENGINES)
{
	all_run(run_note, 2 + select_engine_of(_i), false);
}

/*
 * After the last barrier the members leave one after the other. No member reports another one as
 * lost.
 */
static int run_leave(struct member *member)
{
	float data = 1;
	bool good = reduce(member, &data, 1) == 0 && barrier(member) == 0;
	char text[256];
	int peer;

	if (!good)
		return print_error(member);
	transfer(member->wire, "b", 1, true);
	transfer(member->wire, text, 1, false); /* wait for the test */
	good = member->column.engine->event(member->column.host, &peer, text, sizeof(text)) ==
	       DDP_HOST_QUIET;
	leave(member, true);
	return !good;
}

TEST_LOOP(test_leave_in_any_order, 0, 4 * ENGINES)
{
	struct process processes[MOST] = {{0}};
	int turn = select_engine_of(_i), size = 2 + turn / 2;

	begin(processes, run_leave, size, 30);
	wait_for_warm_up(processes, size);
	for (int i = 0; i < size; i++) {
		struct process *process = &processes[turn % 2 ? size - 1 - i : i];

		transfer(process->wire, "g", 1, true);
		usleep(20000);
	}
	expect_success(processes, size);
	end_launcher(true);
}

/* If a rank has left without error, a call that needs this rank fails at once. */
static int run_left(struct member *member)
{
	float data = 1;

	if (barrier(member) < 0)
		return print_error(member);
	if (member->column.index == 1) {
		leave(member, true);
		return 0;
	}
	if (reduce(member, &data, 1) != DDP_ERR_PEER ||
	    !strstr(member->error.text, "rank 1 on n1") || !strstr(member->error.text, "left"))
		return print_error(member);
	leave(member, false);
	return 0;
}

TEST_LOOP(test_call_to_a_rank_that_left, 0, ENGINES)
{
	select_engine_of(_i);
	if (engine->launcher)
		return; /* in MPI_Finalize(), MPI waits for the other ranks */
	all_run(run_left, 2, false);
}

/* --- Signal handlers --------------------------------------------------------------------------- */

static int run_check_handlers(struct member *member)
{
	for (int i = 0; i < ROWS(signals); i++) {
		struct sigaction action;

		sigaction(signals[i], NULL, &action);
		if (action.sa_handler != before[i]) {
			fprintf(stderr, "signal %d has another handler\n", signals[i]);
			return 1;
		}
	}
	leave(member, true);
	return 0;
}

TEST_LOOP(test_signal_handlers_stay, 0, ENGINES)
{
	select_engine_of(_i);
	record_signal_handlers();
	all_run(run_check_handlers, 2, true);
}

/* --- A message that arrives after the timeout --------------------------------------------- */

/*
 * Rank 1's deadline has passed before rank 1 polls for the first time, as if its process had been
 * stopped. But rank 0 has sent all messages, and answers rank 1's query, so the call succeeds.
 */
static int run_overdue(struct member *member)
{
	struct ddp_column_call call;
	struct ddp_watch watch;
	size_t bytes = 32 << 20;
	char *data = malloc(bytes);
	bool good;

	memset(data, member->column.index, bytes);
	good = barrier(member) == 0;
	call = call_of(member, "broadcast", 0);
	watch = ddp_watch_start(member->limit, NULL, NULL);
	if (member->column.index == 1)
		watch.deadline = ddp_watch_now(&watch);
	good = good &&
	       ddp_column_broadcast(&member->column, &call, data, bytes, 0, &watch,
				    &member->error) == 0 &&
	       data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0 && barrier(member) == 0;
	free(data);
	if (!good)
		return print_error(member);
	leave(member, true);
	return 0;
}

TEST_LOOP(test_message_after_the_limit, 0, ENGINES)
{
	select_engine_of(_i);
	all_run(run_overdue, 2, true);
}

/* --- A cancelled call ---------------------------------------------------------------------------- */

enum { HALF_SENT = 64 << 20 };

/* Waits up to 30 s for an event and returns it, with its [peer]. */
static enum ddp_host_event await_event(const struct ddp_host_engine *tcp, struct ddp_host *host,
				       int *peer)
{
	uint64_t until = ddp_now() + UINT64_C(30000000000);
	enum ddp_host_event event;
	char text[DDP_HOST_NOTE];

	do {
		tcp->progress(host, DDP_WATCH_PERIOD);
		event = tcp->event(host, peer, text, sizeof(text));
	} while (event == DDP_HOST_QUIET && ddp_now() < until);
	return event;
}

/*
 * Rank 1 cancels a partly sent message, overwrites its buffer, and sends an error note. Rank 0
 * receives the whole message with the old bytes, and then the note.
 */
static int run_cancel(struct member *member)
{
	const struct ddp_host_engine *tcp = member->column.engine;
	struct ddp_host *host = member->column.host;
	struct ddp_host_request request;
	char *data = malloc(HALF_SENT), word;
	int peer;
	bool good;

	if (member->column.index == 1) {
		memset(data, 'a', HALF_SENT);
		tcp->send(host, 0, 0, data, HALF_SENT, &request, &member->error);
		good = request.status == 0;
		tcp->cancel(host);
		good = good && request.status == DDP_ERR_ABORTED;
		memset(data, 'b', HALF_SENT);
		tcp->note(host, "cancelled");
		transfer(member->wire, "c", 1, true);
		good = await_event(tcp, host, &peer) == DDP_HOST_NOTED && peer == 0 && good;
	} else {
		transfer(member->wire, &word, 1, false);
		tcp->recv(host, 1, 0, data, HALF_SENT, &request, &member->error);
		good = await_event(tcp, host, &peer) == DDP_HOST_NOTED && request.status == 1 &&
		       data[0] == 'a' && memcmp(data, data + 1, HALF_SENT - 1) == 0;
		tcp->note(host, "received");
	}
	free(data);
	leave(member, good);
	return !good;
}

TEST(test_tcp_cancelled_send_arrives_whole)
{
	struct process processes[2];
	char word;

	select_engine(&engines[0]);
	begin(processes, run_cancel, 2, 30);
	transfer(processes[1].wire, &word, 1, false);
	transfer(processes[0].wire, "g", 1, true);
	expect_success(processes, 2);
}

/* --- Two lost peers ------------------------------------------------------------------------------ */

/* Ranks 1 and 2 are killed, in this order. Rank 0 reports the first one. */
static int run_first_lost(struct member *member)
{
	char word;
	int peer = -1;
	bool good;

	if (barrier(member) < 0)
		return print_error(member);
	transfer(member->wire, "b", 1, true);
	transfer(member->wire, &word, 1, false);
	good = await_event(member->column.engine, member->column.host, &peer) == DDP_HOST_LOST &&
	       peer == 1;
	leave(member, false);
	return !good;
}

TEST(test_tcp_first_lost_peer)
{
	struct process processes[3];

	select_engine(&engines[0]);
	begin(processes, run_first_lost, 3, 30);
	wait_for_warm_up(processes, 3);
	for (int i = 1; i < 3; i++) {
		ck_assert_int_eq(kill(processes[i].id, SIGKILL), 0);
		ck_assert_int_eq(status_of(&processes[i]), 128 + SIGKILL);
	}
	transfer(processes[0].wire, "g", 1, true);
	expect_success(processes, 1);
}

/* --- A peer that is ahead ----------------------------------------------------------------------- */

enum { AHEAD = 300, MEGABYTE = 1 << 20 };

/*
 * Receives from rank 1 until no data arrive for a second. Then sends rank 1 a query, and returns
 * whether rank 1 answers it.
 */
static bool is_answered(const struct ddp_host_engine *tcp, struct ddp_host *host)
{
	uint64_t second = UINT64_C(1000000000), last = ddp_now(), until = last + 30 * second;
	int silent, peer;

	while (ddp_now() - last < second && ddp_now() < until)
		if (tcp->progress(host, 0) > 0)
			last = ddp_now();
	silent = tcp->silent(host, true, &peer);
	while (silent && ddp_now() < until) {
		tcp->progress(host, DDP_WATCH_PERIOD);
		silent = tcp->silent(host, false, &peer);
	}
	return !silent;
}

/* Rank 1 sends [data], and rank 0 receives it. Returns the request after its end. */
static struct ddp_host_request pass(struct member *member, void *data, size_t bytes)
{
	const struct ddp_host_engine *tcp = member->column.engine;
	struct ddp_host *host = member->column.host;
	struct ddp_host_request request;

	if (member->column.index == 1)
		tcp->send(host, 0, 0, data, bytes, &request, &member->error);
	else
		tcp->recv(host, 1, 0, data, bytes, &request, &member->error);
	while (request.status == 0)
		tcp->progress(host, DDP_WATCH_PERIOD);
	return request;
}

/* Before rank 0 starts to receive, rank 1 sends more than rank 0 can buffer. */
static int run_ahead(struct member *member)
{
	int *data = calloc(1, MEGABYTE), *last = data + MEGABYTE / sizeof(*data) - 1;
	bool sends = member->column.index == 1;
	bool good = sends || is_answered(member->column.engine, member->column.host);

	for (int i = 0; i < AHEAD && good; i++) {
		*last = sends ? i : -1;
		good = pass(member, data, MEGABYTE).status == 1 && *last == i;
	}
	free(data);
	leave(member, good);
	return !good;
}

TEST(test_tcp_peer_ahead)
{
	select_engine(&engines[0]);
	all_run(run_ahead, 2, true);
}

enum { LARGE = 255, EMPTY = 2000000, LIMIT_KIB = 352 << 10 };

/*
 * Before rank 0 starts to receive, rank 1 sends messages without a payload, after large ones that
 * almost fill rank 0's buffer. Each message needs memory, also an empty one.
 */
static int run_empty_ahead(struct member *member)
{
	char *data = calloc(1, MEGABYTE);
	bool sends = member->column.index == 1;
	bool good = sends || is_answered(member->column.engine, member->column.host);
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	if (usage.ru_maxrss > LIMIT_KIB) {
		fprintf(stderr, "%ld KiB for messages without a receive\n", usage.ru_maxrss);
		good = false;
	}
	for (int i = 0; i < LARGE + EMPTY && good; i++) {
		size_t bytes = i < LARGE ? MEGABYTE : 0;
		struct ddp_host_request request = pass(member, data, bytes);

		good = request.status == 1 && (sends || request.bytes == bytes);
	}
	free(data);
	leave(member, good);
	return !good;
}

TEST(test_tcp_peer_ahead_with_empty_messages)
{
	select_engine(&engines[0]);
	all_run(run_empty_ahead, 2, true);
}

/* --- TCP: missing partners and invalid settings ------------------------------------------------- */

static void open_pair(const struct ddp_host_engine *tcp, const struct ddp_watch *watch,
		      struct ddp_host *hosts[2], struct ddp_host_card cards[2])
{
	static const struct ddp_log log = {.level = DDP_LEVEL_ERROR};
	struct ddp_host_setup setup = {0, 2, watch, end, &log};
	struct ddp_error error;

	for (; setup.rank < 2; setup.rank++)
		ck_assert_int_eq(tcp->open(&hosts[setup.rank], &setup, &cards[setup.rank], &error),
				 0);
}

TEST(test_tcp_partner_missing)
{
	const struct ddp_host_engine *tcp = ddp_host_engine_find("tcp", NULL, NULL);
	struct ddp_watch watch = ddp_watch_start(60, NULL, NULL);
	struct ddp_host *hosts[2];
	struct ddp_host_card cards[2];
	struct ddp_error error;

	open_pair(tcp, &watch, hosts, cards);
	for (int i = 0; i < 2; i++) {
		struct ddp_host_card damaged = cards[1];

		if (i == 0)
			damaged.bytes--;
		else
			damaged.data[0]++;
		ck_assert_int_eq(tcp->meet(hosts[0], &damaged, 1, &watch, &error), DDP_ERR_FORMAT);
		UNIT_SAYS("damaged", error.text, "rank 1", "damaged address");
	}
	watch = ddp_watch_start(0.2, NULL, NULL);
	ck_assert_int_eq(tcp->meet(hosts[0], &cards[1], 1, &watch, &error), DDP_ERR_TIMEOUT);
	unit_pieces("missing", error.text,
		    (const char *[]){"rank 1 on ",
				     " did not connect to 127.0.0.1:", ", lo) in 0.2 s", NULL});
	for (int i = 0; i < 2; i++)
		tcp->close(hosts[i], false);
}

TEST(test_tcp_partner_refuses)
{
	const struct ddp_host_engine *tcp = ddp_host_engine_find("tcp", NULL, NULL);
	struct ddp_watch watch = ddp_watch_start(60, NULL, NULL);
	struct ddp_host *hosts[2];
	struct ddp_host_card cards[2];
	struct ddp_error error;

	open_pair(tcp, &watch, hosts, cards);
	tcp->close(hosts[0], false);
	ck_assert_int_eq(tcp->meet(hosts[1], &cards[0], 1, &watch, &error), DDP_ERR_ENGINE);
	unit_pieces("refused", error.text,
		    (const char *[]){"no connection from ", " (lo) to rank 0 on ",
				     " at 127.0.0.1:", " (lo): Connection refused; ",
				     "DDP_SOCKET_IFNAME selects network interfaces, ",
				     "DDP_TCP_PORTS ports", NULL});
	tcp->close(hosts[1], false);
}

/* Connects a socket to the listener of the rank that published [card]. */
static int connect_to(const struct ddp_host_card *card)
{
	struct ddp_tcp_card address;
	int fd;

	memcpy(&address, card->data, sizeof(address));
	fd = socket(address.address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(fd, &address.address.any, ddp_tcp_address_size(&address.address)),
			 0);
	return fd;
}

/* There are more connections that send nothing than a rank keeps. It closes all of them. */
TEST(test_tcp_connections_of_no_rank)
{
	const struct ddp_host_engine *tcp = ddp_host_engine_find("tcp", NULL, NULL);
	struct ddp_watch watch = ddp_watch_start(0.2, NULL, NULL);
	struct ddp_host *hosts[2];
	struct ddp_host_card cards[2];
	struct ddp_error error;
	int fds[80];
	char byte;

	open_pair(tcp, &watch, hosts, cards);
	for (int i = 0; i < ROWS(fds); i++)
		fds[i] = connect_to(&cards[0]);
	ck_assert_int_eq(tcp->meet(hosts[0], &cards[1], 1, &watch, &error), DDP_ERR_TIMEOUT);
	for (int i = 0; i < ROWS(fds); i++) {
		ck_assert_int_le(recv(fds[i], &byte, 1, 0), 0);
		close(fds[i]);
	}
	for (int i = 0; i < 2; i++)
		tcp->close(hosts[i], false);
}

/* The first message of a connecting rank. */
struct hello {
	uint64_t magic;
	int32_t from, to;
	char nonce[16];
};

enum { HALF = sizeof(struct hello) / 2 };

/* Sends the second half of a HELLO once, and ends the meeting when the answer has arrived. */
static int send_second_half(void *owner, struct ddp_error *error)
{
	int *fd = owner;
	char answer[16];

	if (fd[1]) {
		ck_assert_int_lt(recv(*fd, answer, sizeof(answer), MSG_DONTWAIT), 0);
		ck_assert_int_eq(send(*fd, "nonce of 16 byte", HALF, 0), HALF);
		fd[1] = 0;
	}
	return recv(*fd, answer, sizeof(answer), MSG_DONTWAIT) == sizeof(answer)
		       ? ddp_error_set(error, DDP_ERR_ABORTED, "answered")
		       : 0;
}

/* Rank 0 answers a HELLO of rank 1 that arrives in two parts. */
TEST(test_tcp_hello_in_two_parts)
{
	const struct ddp_host_engine *tcp = ddp_host_engine_find("tcp", NULL, NULL);
	const struct hello hello = {DDP_TCP_MAGIC, 1, 0, ""};
	int fd[2] = {-1, 1};
	struct ddp_watch watch = ddp_watch_start(60, send_second_half, fd);
	struct ddp_host *hosts[2];
	struct ddp_host_card cards[2];
	struct ddp_error error;

	open_pair(tcp, &watch, hosts, cards);
	*fd = connect_to(&cards[0]);
	ck_assert_int_eq(send(*fd, &hello, HALF, 0), HALF);
	ck_assert_int_eq(tcp->meet(hosts[0], &cards[1], 1, &watch, &error), DDP_ERR_ABORTED);
	close(*fd);
	for (int i = 0; i < 2; i++)
		tcp->close(hosts[i], false);
}

TEST(test_tcp_network_text)
{
	struct ddp_tcp_address v4 = {.v4 = {.sin_family = AF_INET}},
			       v6 = {.v6 = {.sin6_family = AF_INET6}};
	char text[DDP_TCP_TEXT];

	v4.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ddp_tcp_network_text(&v4, text);
	ck_assert_str_eq(text, "127.0.0.0/8");
	v6.v6.sin6_addr = in6addr_loopback;
	ddp_tcp_network_text(&v6, text);
	ck_assert_str_eq(text, "::1/128");
}

static const struct {
	const char *name, *value, *text;
} refusals[] = {
	{"DDP_SOCKET_IFNAME", "nowhere9", "DDP_SOCKET_IFNAME=nowhere9 selects no interface; those"},
	{"DDP_SOCKET_IFNAME", "=l", "DDP_SOCKET_IFNAME==l selects no interface; those"},
	{"DDP_TCP_PORTS", "50000", "DDP_TCP_PORTS=50000: give two ports"},
	{"DDP_TCP_PORTS", "5-1", "DDP_TCP_PORTS=5-1: give two ports"},
	{"DDP_TCP_PORTS", "0-10", "DDP_TCP_PORTS=0-10: give two ports"},
	{"DDP_TCP_PORTS", "1-70000", "DDP_TCP_PORTS=1-70000: give two ports"},
};

/* Opens engine [name] for rank 0 of 2. The environment must make that fail. Returns the error. */
static struct ddp_error refuse(const char *name)
{
	struct ddp_log log = {.level = DDP_LEVEL_ERROR};
	struct ddp_watch watch = ddp_watch_start(30, NULL, NULL);
	const struct ddp_host_setup setup = {0, 2, &watch, end, &log};
	const struct ddp_host_engine *which;
	struct ddp_host_card card;
	struct ddp_error error;
	struct ddp_host *host;

	which = ddp_host_engine_find(name, NULL, &error);
	ck_assert_msg(which, "%s", error.text);
	ck_assert_int_eq(which->open(&host, &setup, &card, &error), DDP_ERR_ENVIRONMENT);
	ck_assert_ptr_null(host);
	return error;
}

TEST_ROWS(test_tcp_refuses_setting, refusals)
{
	setenv(refusals[_i].name, refusals[_i].value, 1);
	UNIT_SAYS(refusals[_i].value, refuse("tcp").text, refusals[_i].text);
}

TEST(test_tcp_port_range_is_full)
{
	struct sockaddr_in taken = {.sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(taken);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char range[32];

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&taken, size), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&taken, &size), 0);
	snprintf(range, sizeof(range), "%d-%d", ntohs(taken.sin_port), ntohs(taken.sin_port));
	setenv("DDP_TCP_PORTS", range, 1);
	UNIT_SAYS("full", refuse("tcp").text, range, "none of these ports is free on lo");
	close(fd);
}

#ifdef HAVE_MPI
TEST(test_no_launcher)
{
	static const char *const variables[] = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
						"PMI_FD", "PMI_PORT"};

	for (int i = 0; i < ROWS(variables); i++)
		unsetenv(variables[i]);
	UNIT_SAYS("no launcher", refuse("mpi").text,
		  "the job has 2 ranks, but MPI was started for 1", "srun --mpi=");
}
#endif

int main(int argc, char **argv)
{
	setenv("DDP_SOCKET_IFNAME", "lo", 1);
	if (argc == 6 && strcmp(argv[1], "member") == 0) {
		for (int i = 0; i < ENGINES; i++)
			if (engines[i].launcher)
				select_engine(&engines[i]);
		run_launched_member(argv + 2);
	}
	return unit_run("wide", NULL);
}
