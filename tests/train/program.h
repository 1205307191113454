/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - runs ddp-train in a directory of the test
 */
#ifndef DDP_TESTS_PROGRAM_H
#define DDP_TESTS_PROGRAM_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "unit.h"

enum { PROGRAM_WORDS = 48, PROGRAM_TEXT = 65536 };

struct program {
	pid_t pid;
	int status; /* exit status, or -signal */
	char output[PROGRAM_TEXT], errors[PROGRAM_TEXT];
};

static char program_path[4096], program_directory[64];

/*
 * Creates a directory and makes it the working directory and TMPDIR. Unsets Slurm's variables and
 * hides GPUs.
 */
static void program_begin(void)
{
	static const char *const gone[] = {"DDP_RANK",	   "DDP_SIZE",	    "DDP_JOB",
					   "SLURM_JOB_ID", "SLURM_STEP_ID", "RANK",
					   "WORLD_SIZE",   "SLURM_PROCID",  "DDP_RENDEZVOUS",
					   "DDP_LOG",	   "DDP_SIMD"};
	const char *top = getenv("top_builddir"), *asan = getenv("ASAN_OPTIONS");
	char relative[4000];

	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		unsetenv(gone[i]);
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	/* LeakSanitizer crashes when it scans the threads of libgomp, which oneDNN uses. */
	snprintf(relative, sizeof(relative), "%s:detect_leaks=0", asan ? asan : "");
	setenv("ASAN_OPTIONS", relative, 1);
	snprintf(relative, sizeof(relative), "%s/runtime/train/ddp-train", top ? top : "../..");
	ck_assert_msg(realpath(relative, program_path) != NULL, "%s is missing", relative);
	snprintf(program_directory, sizeof(program_directory), "/tmp/ddp-runs.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(program_directory));
	ck_assert_int_eq(chdir(program_directory), 0);
	setenv("TMPDIR", program_directory, 1);
}

/* Creates a link [name] to [path] in the build tree. */
static inline void program_borrow(const char *path, const char *name)
{
	char target[PATH_MAX];

	ck_assert_msg(realpath(path, target) != NULL, "%s is missing", path);
	ck_assert_int_eq(symlink(target, name), 0);
}

/*
 * Creates a directory "modules" from which ddp-train loads its modules: all modules of the build
 * tree, with the module [cuda] of tests/train as the GPU engine.
 */
static inline void program_modules(const char *cuda)
{
	const char *given = getenv("DDP_MODULES");
	char path[PATH_MAX + 600], name[300];
	DIR *directory = opendir(given ? given : "");
	struct dirent *entry;

	(void)mkdir("modules", 0700);
	snprintf(path, sizeof(path), "%.*s/../../tests/train/.libs/%s.so",
		 (int)(strrchr(program_path, '/') - program_path), program_path, cuda);
	program_borrow(path, "modules/ddp_cuda.so");
	while (directory && (entry = readdir(directory))) {
		snprintf(name, sizeof(name), "modules/%s", entry->d_name);
		snprintf(path, sizeof(path), "%s/%s", given, entry->d_name);
		if (strncmp(entry->d_name, "ddp_", 4) == 0 && strstr(entry->d_name, ".so") &&
		    access(name, F_OK) < 0)
			program_borrow(path, name);
	}
	if (directory)
		closedir(directory);
	snprintf(path, sizeof(path), "%s/modules", program_directory);
	setenv("DDP_MODULES", path, 1);
}

/* Makes a new directory, beside the directories of other tests, the working directory. */
static inline void program_enter(void)
{
	char name[] = "test-XXXXXX";

	ck_assert_int_eq(chdir(program_directory), 0);
	ck_assert_ptr_nonnull(mkdtemp(name));
	ck_assert_int_eq(chdir(name), 0);
}

static void program_end(void)
{
	ck_assert_int_eq(chdir("/"), 0);
	unit_remove(program_directory);
}

static inline void program_redirect(const char *path, int stream)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	dup2(fd, stream);
	close(fd);
}

/* Starts ddp-train in a new process group. Spaces in [line] separate the arguments. */
static inline void program_start(struct program *program, const char *line)
{
	static char words[4096];
	char *argv[PROGRAM_WORDS] = {program_path};
	int count = 1;

	snprintf(words, sizeof(words), "%s", line);
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		argv[count++] = word;
	ck_assert_int_lt(count, PROGRAM_WORDS);
	fflush(NULL);
	program->pid = fork();
	ck_assert_int_ge(program->pid, 0);
	if (program->pid > 0)
		return;
	setpgid(0, 0);
	signal(SIGTERM, SIG_DFL); /* Check installs handlers */
	signal(SIGINT, SIG_DFL);
	program_redirect("output", STDOUT_FILENO);
	program_redirect("errors", STDERR_FILENO);
	execv(program_path, argv);
	_exit(99);
}

static inline void program_read(const char *path, char *text)
{
	int fd = open(path, O_RDONLY);
	ssize_t got = fd < 0 ? 0 : read(fd, text, PROGRAM_TEXT - 1);

	text[got > 0 ? got : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

static inline void program_wait(struct program *program)
{
	int status;

	while (waitpid(program->pid, &status, 0) < 0)
		ck_assert_int_eq(errno, EINTR);
	program->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
	program_read("output", program->output);
	program_read("errors", program->errors);
}

/* Runs ddp-train and waits for it. Its exit status must be [want]. */
static inline void program_run(struct program *program, int want, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static inline void program_run(struct program *program, int want, const char *format, ...)
{
	char line[4096];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	program_start(program, line);
	program_wait(program);
	ck_assert_msg(program->status == want, "ddp-train %s ended with %d, not %d:\n%s%s", line,
		      program->status, want, program->output, program->errors);
}

/* Whether [text] is one line. A warning that there are fewer CPUs than ranks does not count. */
static inline bool program_is_one_line(const char *text)
{
	const char *end = strchr(text, '\n');

	if (end && strncmp(text, "ddp-train: warning: ", 20) == 0 &&
	    strstr(text, " ranks share ") && strstr(text, " ranks share ") < end && end[1])
		end = strchr(end + 1, '\n');
	return end && !end[1];
}

/* Returns the number of entries of the directory [path] that start with [prefix]. */
static inline int program_count_files(const char *path, const char *prefix)
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	int count = 0;

	while (directory && (entry = readdir(directory)))
		count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
	if (directory)
		closedir(directory);
	return count;
}

static inline void program_sleep(int milliseconds)
{
	struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000L};

	nanosleep(&pause, NULL);
}

/*
 * Waits until the directory [path] has [count] entries that start with [prefix]. Check's timeout
 * ends the wait.
 */
static inline void program_await(const char *path, const char *prefix, int count)
{
	while (program_count_files(path, prefix) < count)
		program_sleep(5);
}

/* Finds at most [most] child processes of [parent]. Returns the number found. */
static inline int program_children(pid_t parent, pid_t *children, int most)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int count = 0;

	while (proc && (entry = readdir(proc)) && count < most) {
		char path[300], text[512];
		const char *end;
		int fd, owner = 0;
		ssize_t got;

		snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
		fd = atoi(entry->d_name) > 0 ? open(path, O_RDONLY) : -1;
		if (fd < 0)
			continue;
		got = read(fd, text, sizeof(text) - 1);
		text[got > 0 ? got : 0] = '\0';
		close(fd);
		end = strrchr(text, ')');
		if (end && sscanf(end + 1, " %*c %d", &owner) == 1 && owner == parent)
			children[count++] = atoi(entry->d_name);
	}
	if (proc)
		closedir(proc);
	return count;
}

/* Returns the number of [key] in the JSON object at [line]. The key must exist. */
static inline double program_number(const char *line, const char *key)
{
	char name[64];
	const char *at;

	snprintf(name, sizeof(name), "\"%s\":", key);
	at = strstr(line, name);
	ck_assert_msg(at && at < strchr(line, '\n'), "no %s in %.200s", key, line);
	return strtod(at + strlen(name), NULL);
}

/* Reads the number of [key] in every object of [event] in the file [path]. Returns their count. */
static inline int program_numbers(const char *path, const char *event, const char *key,
				  double *numbers, int most)
{
	static char text[PROGRAM_TEXT];
	char start[64];
	int count = 0;

	snprintf(start, sizeof(start), "{\"event\": \"%s\"", event);
	program_read(path, text);
	for (const char *at = text; (at = strstr(at, start)) && count < most; at++)
		numbers[count++] = program_number(at, key);
	return count;
}

static inline bool program_same_file(const char *one, const char *two)
{
	char a[4096], b[4096];
	FILE *files[2] = {fopen(one, "r"), fopen(two, "r")};
	size_t n = 1;
	bool same = files[0] && files[1];

	while (same && n > 0) {
		n = fread(a, 1, sizeof(a), files[0]);
		same = fread(b, 1, sizeof(b), files[1]) == n && memcmp(a, b, n) == 0;
	}
	for (int i = 0; i < 2; i++)
		if (files[i])
			fclose(files[i]);
	return same;
}

#endif /* DDP_TESTS_PROGRAM_H */
