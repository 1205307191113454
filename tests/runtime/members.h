/* SPDX-License-Identifier: Apache-2.0 */
/*
 * members.h - runs a test in the members of a group, which are threads, processes, or processes in
 * containers (user and pid namespaces)
 *
 * A test's body runs in every member. The body reports failures with member_fail(), because Check's
 * assertions work only in the thread and process that runs the test.
 */
#ifndef DDP_TESTS_MEMBERS_H
#define DDP_TESTS_MEMBERS_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "local/group.h"
#include "unit.h"

enum { MEMBERS = 8 };

#if defined(__SANITIZE_THREAD__)
#define MEMBERS_THREADS_ONLY 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MEMBERS_THREADS_ONLY 1
#endif
#endif
#ifndef MEMBERS_THREADS_ONLY
#define MEMBERS_THREADS_ONLY 0
#endif

enum member_kind { THREADS, PROCESSES, CONTAINERS };

static const char *const member_kind_names[] = {"threads", "processes", "containers"};

/* Directory of the group's socket; "": the group has no directory. */
static char members_directory[256];

/* Number of a system call that fails with ENOSYS in member processes; 0: none. */
static int members_missing;

/* Memory that all members share. */
struct board {
	char ticket[DDP_GROUP_TICKET];
	_Atomic int ready; /* the ticket is valid */
	_Atomic int count; /* for use by bodies */
	_Atomic int pids[MEMBERS];
	struct ddp_error errors[MEMBERS]; /* error of each member's last call in the body */
	char failures[MEMBERS][512];
};

struct member {
	int index, size;
	enum member_kind kind;
	struct board *board;
	struct ddp_group *group; /* NULL: the body creates it */
	struct ddp_watch watch;
	struct ddp_error error;
	void (*body)(struct member *);
};

/* Reports a failure of [member]. Only a member's first failure is kept. */
static inline __attribute__((format(printf, 2, 3))) void member_fail(struct member *member,
								     const char *format, ...)
{
	char *text = member->board->failures[member->index];
	va_list arguments;

	if (*text)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(member->board->failures[0]), format, arguments);
	va_end(arguments);
}

/*
 * World ranks of the members. They differ from the indices in the group, and messages must contain
 * the ranks.
 */
static const int member_ranks[MEMBERS] = {10, 11, 12, 13, 14, 15, 16, 17};

static inline struct ddp_group_options member_options(const struct member *member)
{
	static const struct ddp_log log = {.level = DDP_LEVEL_ERROR};
	struct ddp_group_options options = {.index = member->index,
					    .size = member->size,
					    .ranks = member_ranks,
					    .host = "n2",
					    .directory = members_directory,
					    .log = &log};

	ddp_simd_choose(&options.simd, NULL);
	return options;
}

/* Creates or attaches to the group, meets the other members, and runs the body. */
static inline void member_run(struct member *member)
{
	struct ddp_group_options options = member_options(member);
	struct board *board = member->board;
	int status;

	board->pids[member->index] = getpid();
	if (member->index == 0) {
		status = ddp_group_create(&member->group, &options, board->ticket, &member->error);
		atomic_store(&board->ready, 1);
	} else {
		while (!atomic_load(&board->ready))
			usleep(100);
		status = ddp_group_attach(&member->group, &options, board->ticket, &member->watch,
					  &member->error);
	}
	if (status == 0)
		status = ddp_group_meet(member->group, &member->watch, &member->error);
	if (status < 0)
		member_fail(member, "start: %s", member->error.text);
	else
		member->body(member);
	board->errors[member->index] = member->error;
	ddp_group_destroy(member->group);
}

static inline void *member_thread(void *argument)
{
	member_run(argument);
	return NULL;
}

/*
 * Makes system call [number] fail with [error] in this process. Returns false if the kernel does
 * not permit that.
 */
static inline bool forbid_call(int number, int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {ROWS(filter), filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/*
 * Creates new user and pid namespaces and returns in their second process, because a SIGKILL from
 * inside does not end the first one. The calling process waits and exits with the status of the
 * second process.
 */
static inline void enter_container(void)
{
	int status;

	if (unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
		_exit(1);
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (pid == 0)
			continue;
		waitpid(pid, &status, 0);
		/*
		 * The kernel kills all processes of the namespace when its first process exits. So
		 * wait for all of them.
		 */
		while (wait(NULL) > 0)
			;
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
	}
}

/* Whether this user may create user and pid namespaces. */
static inline bool has_containers(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0);
	return waitpid(pid, &status, 0) == pid && status == 0;
}

static inline void member_processes(struct member *members, int size)
{
	pid_t pids[MEMBERS];
	int status;

	for (int m = 0; m < size; m++) {
		pids[m] = fork();
		if (pids[m] == 0) {
			if (members[m].kind == CONTAINERS)
				enter_container();
			if (members_missing && !forbid_call(members_missing, ENOSYS))
				_exit(1);
			alarm(600); /* ends a process that hangs after a failed test */
			/* libddp gets descriptor 0, as in a program without standard input */
			close(STDIN_FILENO);
			member_run(&members[m]);
			unit_find_leaks();
			_exit(0);
		}
		ck_assert_int_gt(pids[m], 0);
	}
	for (int m = 0; m < size; m++) {
		while (waitpid(pids[m], &status, 0) < 0)
			ck_assert_int_eq(errno, EINTR);
		if (!WIFEXITED(status) && WTERMSIG(status) != SIGKILL)
			member_fail(&members[m], "ended by signal %d", WTERMSIG(status));
	}
}

static inline void member_threads(struct member *members, int size)
{
	pthread_t threads[MEMBERS];

	for (int m = 0; m < size; m++)
		ck_assert_int_eq(pthread_create(&threads[m], NULL, member_thread, &members[m]), 0);
	for (int m = 0; m < size; m++)
		pthread_join(threads[m], NULL);
}

static inline struct board *board_new(void)
{
	return unit_shared(sizeof(struct board));
}

/*
 * Runs [body] in [size] members. Each wait in the group has a timeout of [limit] seconds. Returns
 * the board, which the caller frees with board_free().
 */
static inline struct board *members_run(enum member_kind kind, int size, double limit,
					void (*body)(struct member *))
{
	struct board *board = board_new();
	struct member members[MEMBERS];

	for (int m = 0; m < size; m++)
		members[m] = (struct member){.index = m,
					     .size = size,
					     .kind = kind,
					     .board = board,
					     .watch = ddp_watch_start(limit, NULL, NULL),
					     .body = body};
	if (kind != THREADS)
		member_processes(members, size);
	else
		member_threads(members, size);
	for (int m = 0; m < size; m++)
		ck_assert_msg(!*board->failures[m], "%d %s, member %d: %s", size,
			      member_kind_names[kind], m, board->failures[m]);
	return board;
}

static inline void board_free(struct board *board)
{
	munmap(board, sizeof(*board));
}

#endif /* DDP_TESTS_MEMBERS_H */
