/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - real ranks for tests: processes with the variables that torchrun sets
 *
 * A layout has the number of ranks on each node: "2,1" means three ranks on two nodes. All ranks
 * run on this host, but ranks of different nodes use TCP. Each rank runs in a temporary directory
 * and writes its stderr to a file there.
 */
#ifndef DDP_TESTS_RANKS_H
#define DDP_TESTS_RANKS_H

#include <ddp.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

enum { RANKS_MOST = 16, RANKS_TEXT = 8192 };

struct ranks {
	const char *layout;
	int size;
	char directory[64];
	pid_t pids[RANKS_MOST];
	int statuses[RANKS_MOST];	   /* exit status, or -signal */
	char text[RANKS_MOST][RANKS_TEXT]; /* stderr of each rank */
};

static inline void ranks_number(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(name, text, 1);
}

/* Sets the environment of local rank [local] of [count] on node [node]. */
static inline void ranks_environment(int rank, int size, int local, int count, int node, int nodes)
{
	static const char *const gone[] = {
		"DDP_RANK",	"DDP_SIZE",	"DDP_JOB", "DDP_RENDEZVOUS",
		"SLURM_PROCID", "SLURM_JOB_ID", NULL};

	for (int i = 0; gone[i]; i++)
		unsetenv(gone[i]);
	ranks_number("RANK", rank);
	ranks_number("WORLD_SIZE", size);
	ranks_number("LOCAL_RANK", local);
	ranks_number("LOCAL_WORLD_SIZE", count);
	ranks_number("GROUP_RANK", node);
	ranks_number("GROUP_WORLD_SIZE", nodes);
	setenv("TORCHELASTIC_RUN_ID", "test", 1);
	setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
	setenv("TORCHELASTIC_MAX_RESTARTS", "0", 1);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", "7", 1);
	/* use the loopback interface only */
	setenv("DDP_SOCKET_IFNAME", "lo", 1);
	/* a rank that hangs fails with a message before Check ends the test */
	setenv("DDP_TIMEOUT", "240", 0);
}

/* Starts a process for each rank of [layout]. The process exits with the result of [body]. */
static inline void ranks_start(struct ranks *ranks, const char *layout, int (*body)(int rank))
{
	int counts[RANKS_MOST], nodes = 0;

	memset(ranks, 0, sizeof(*ranks));
	ranks->layout = layout;
	for (const char *at = layout; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		ranks->size += counts[nodes++] = atoi(at);
	ck_assert_int_le(ranks->size, RANKS_MOST);
	snprintf(ranks->directory, sizeof(ranks->directory), "/tmp/ddp-ranks.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(ranks->directory));
	fflush(NULL);
	for (int node = 0, rank = 0; node < nodes; node++) {
		for (int local = 0; local < counts[node]; local++, rank++) {
			char path[128];
			int fd;

			ranks->pids[rank] = fork();
			ck_assert_int_ge(ranks->pids[rank], 0);
			if (ranks->pids[rank] > 0)
				continue;
			signal(SIGTERM, SIG_DFL); /* Check installs a handler */
			snprintf(path, sizeof(path), "%s/stderr-%d", ranks->directory, rank);
			fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
			dup2(fd, STDERR_FILENO);
			close(fd);
			/* libddp gets descriptor 0, as in a program without standard input */
			close(STDIN_FILENO);
			if (chdir(ranks->directory) < 0)
				_exit(99);
			ranks_environment(rank, ranks->size, local, counts[node], node, nodes);
			fd = body(rank);
			fflush(NULL);
			_exit(fd);
		}
	}
}

/*
 * Waits for all ranks and reads their stderr files. Removes the temporary directory unless [keep].
 */
static inline void ranks_wait(struct ranks *ranks, bool keep)
{
	for (int rank = 0; rank < ranks->size; rank++) {
		char path[128];
		ssize_t got = 0;
		int status, fd;

		while (waitpid(ranks->pids[rank], &status, 0) < 0)
			ck_assert_int_eq(errno, EINTR);
		ranks->statuses[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
		snprintf(path, sizeof(path), "%s/stderr-%d", ranks->directory, rank);
		fd = open(path, O_RDONLY);
		if (fd >= 0)
			got = read(fd, ranks->text[rank], RANKS_TEXT - 1);
		ranks->text[rank][got > 0 ? got : 0] = '\0';
		close(fd);
	}
	if (!keep)
		unit_remove(ranks->directory);
}

/*
 * Returns the failed rank whose output best explains the failure; -1: no rank failed. A rank that a
 * signal or RANK_CHECK() ended comes first, because others may have failed because of it.
 */
static inline int ranks_failed(const struct ranks *ranks)
{
	int failed = -1;

	for (int rank = 0; rank < ranks->size; rank++)
		if (ranks->statuses[rank] != 0 &&
		    (failed < 0 || ranks->statuses[rank] < 0 || ranks->statuses[rank] == 98))
			failed = rank;
	return failed;
}

/* Runs [body] in all ranks of [layout]. Every rank must exit with 0. */
static inline void ranks_run(const char *layout, int (*body)(int rank))
{
	static struct ranks ranks;
	int rank;

	ranks_start(&ranks, layout, body);
	ranks_wait(&ranks, false);
	rank = ranks_failed(&ranks);
	ck_assert_msg(rank < 0, "layout %s, rank %d ended with %d:\n%s", layout, rank,
		      rank < 0 ? 0 : ranks.statuses[rank], rank < 0 ? "" : ranks.text[rank]);
}

/* Number of libddp's files in /dev/shm, including files of other programs on this host. */
static inline int ranks_shared_files(void)
{
	DIR *directory = opendir("/dev/shm");
	const struct dirent *entry;
	int count = 0;

	while (directory && (entry = readdir(directory)))
		count += strstr(entry->d_name, "ddp") != NULL;
	if (directory)
		closedir(directory);
	return count;
}

/*
 * Waits until /dev/shm has at most [files] files of libddp, because other programs may have files
 * there for a moment. Check's timeout ends the wait.
 */
static inline void ranks_await_shared_files(int files)
{
	while (ranks_shared_files() > files)
		usleep(10000);
}

/* --- Containers --------------------------------------------------------------------------- */

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

/* --- Functions for a rank ----------------------------------------------------------------- */

/* In a rank: if [condition] is false, prints it and exits with 98. */
#define RANK_CHECK(condition)                                                            \
	do {                                                                             \
		if (!(condition)) {                                                      \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, \
				#condition);                                             \
			fflush(stderr);                                                  \
			_exit(98);                                                       \
		}                                                                        \
	} while (0)

/* In a rank: if [call] fails, prints the error and exits. */
#define RANK_OK(ddp, call)                                                            \
	do {                                                                          \
		if ((call) < 0) {                                                     \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
				ddp_error(ddp));                                      \
			ddp_exit(ddp);                                                \
		}                                                                     \
	} while (0)

static inline struct ddp *ranks_join(void)
{
	struct ddp *ddp;

	RANK_OK(ddp, ddp_init(&ddp, NULL));
	return ddp;
}

/* Returns the world of this process alone. It is joined once, and never left. */
static inline struct ddp *ranks_alone(void)
{
	static struct ddp *ddp;

	if (!ddp)
		ddp = ranks_join();
	return ddp;
}

/*
 * Defines a rank's body: the block after the macro runs in each rank between ddp_init() and
 * ddp_destroy(), with the variables [rank] and [ddp]. Afterwards no descriptor is left.
 */
#define RANK_BODY(name) RANK_BODY_OF(name, ranks_join)
#define RANK_BODY_OF(name, join)                                    \
	static void name##_joined(struct ddp *ddp, int rank);       \
	static int name(int rank)                                   \
	{                                                           \
		int files = unit_entries("/proc/self/fd");          \
		struct ddp *ddp = join();                           \
                                                                    \
		name##_joined(ddp, rank);                           \
		ddp_destroy(ddp);                                   \
		RANK_CHECK(unit_entries("/proc/self/fd") <= files); \
		return 0;                                           \
	}                                                           \
	static void name##_joined(struct ddp *ddp, int rank CK_ATTRIBUTE_UNUSED)

/* Defines a test: the block after the macro runs in all ranks of each layout. */
#define RANKS_TEST(test, layouts)                    \
	static int test##_body(int rank);            \
	TEST_ROWS(test, layouts)                     \
	{                                            \
		ranks_run(layouts[_i], test##_body); \
	}                                            \
	RANK_BODY(test##_body)

/* In a rank: fails unless all ranks have the same [data]. All ranks must call it. */
static inline void ranks_equal(struct ddp *ddp, const void *data, size_t bytes)
{
	size_t size = (size_t)ddp_world(ddp)->size;
	char *all = malloc(size * bytes);

	RANK_CHECK(all);
	RANK_OK(ddp, ddp_all_gather(ddp, data, all, bytes));
	for (size_t i = 1; i < size; i++)
		RANK_CHECK(memcmp(all, all + i * bytes, bytes) == 0);
	free(all);
}

#endif /* DDP_TESTS_RANKS_H */
