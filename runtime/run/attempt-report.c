/* SPDX-License-Identifier: Apache-2.0 */
/* attempt-report.c - judge an attempt, and write its files: the last output and the report */
#include "config.h"

#include "ddp-run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/settings.h"
#include "base/text.h"
#include "contract.h"
#include "failure-report.h"
#include "verdict.h"

enum {
	TAILS_MOST = 64,     /* maximum number of ranks whose last output is written */
	COPY_LIMIT = 1 << 20 /* maximum bytes copied from a file */
};

/* --- A full disk --------------------------------------------------------------------------- */

static void copy_files(const char *dir, const char *to)
{
	DIR *open = *dir ? opendir(dir) : NULL;
	struct dirent *entry;

	while (open && (entry = readdir(open))) {
		char from_path[PATH_MAX + 300], to_path[PATH_MAX + 300], *data = NULL;
		struct iovec part;

		snprintf(from_path, sizeof(from_path), "%s/%s", dir, entry->d_name);
		snprintf(to_path, sizeof(to_path), "%s/%s", to, entry->d_name);
		if (entry->d_name[0] != '.' &&
		    ddp_file_read(from_path, COPY_LIMIT, &data, &part.iov_len, NULL) == 0) {
			part.iov_base = data;
			(void)ddp_file_write(to_path, &part, 1, 0600, false, NULL);
		}
		free(data);
	}
	if (open)
		closedir(open);
}

/*
 * If the failure directory does not exist or cannot be written, use a directory on this node
 * instead. Prints the reason [why].
 */
static bool move_directory(struct attempt *attempt, const char *why)
{
	const char *base = ddp_getenv("TMPDIR", NULL);
	char dir[PATH_MAX];

	if (snprintf(dir, sizeof(dir), "%s/ddp-run-%s.%s-XXXXXX", base ? base : "/tmp",
		     attempt->job, attempt->step) >= (int)sizeof(dir) ||
	    !mkdtemp(dir)) {
		fprintf(stderr, "ddp-run: %s. The report is not kept in a file.\n", why);
		return false;
	}
	fprintf(stderr, "ddp-run: %s. The report is in %s\n", why, dir);
	copy_files(attempt->dir, dir);
	snprintf(attempt->dir, sizeof(attempt->dir), "%s", dir);
	return true;
}

/* --- The last output ----------------------------------------------------------------------- */

/*
 * Write the last output of all ranks together, and of each rank. If there are many ranks, write
 * only the output of ranks that the report may mention.
 */
static int write_tails(const struct attempt *attempt, struct ddp_error *error)
{
	bool few = attempt->ranks > 0 && attempt->ranks <= TAILS_MOST;
	int status = tails_write(attempt->tails, attempt->dir, TAILS_ALL, error), missing = 0;
	const struct facts *facts = &attempt->facts;

	for (int i = 0; i < facts->size && status == 0; i++) {
		int order = facts->ranks[i].order;

		if (few || i == facts->first || (order > 0 && order <= TAILS_MOST) ||
		    (facts->arrivals[i].missing && missing++ < TAILS_MOST))
			status = tails_write(attempt->tails, attempt->dir, i, error);
	}
	return status;
}

/* --- The report ---------------------------------------------------------------------------- */

/* Whether [path] is a regular file, or does not exist. */
static bool is_file(const char *path)
{
	struct stat st;

	return lstat(path, &st) < 0 || S_ISREG(st.st_mode);
}

bool attempt_can_report(const struct launch *launch)
{
	const char *copy = launch->options.text[RUN_OPTION_REPORT];
	const char *logs = launch->options.text[RUN_OPTION_LOGS];
	const char *slash = copy ? strrchr(copy, '/') : NULL;
	char directory[PATH_MAX] = ".";
	struct stat st;

	if (logs && (ddp_file_mkdirs(logs, 0777, NULL) < 0 || access(logs, W_OK | X_OK) < 0)) {
		fprintf(stderr,
			"ddp-run: cannot write --logs %s: %s. Give a directory in which you can write.\n",
			logs, strerror(errno));
		return false;
	}
	if (!copy)
		return true;
	if (slash)
		snprintf(directory, sizeof(directory), "%.*s", (int)(slash - copy) + 1, copy);
	if (stat(copy, &st) == 0 && S_ISDIR(st.st_mode))
		errno = EISDIR;
	else if (is_file(copy) ? access(directory, W_OK | X_OK) == 0
			       : access(copy, W_OK) == 0 || errno == ENOENT ||
					 (stat(copy, &st) == 0 && ddp_file_output(&st) >= 0))
		return true;
	fprintf(stderr,
		"ddp-run: cannot write --report %s: %s. Give a file in a directory in which you can write.\n",
		copy, strerror(errno));
	return false;
}

/* If [to] is a regular file, replace it. If [to] is a link, a device or a pipe, write into it. */
static int write_copy(const char *to, char *data, size_t size, struct ddp_error *error)
{
	struct iovec part = {data, size};
	int fd = -1, status = 0;
	struct stat st;

	if (is_file(to))
		return ddp_file_write(to, &part, 1, 0644, false, error);
	/*
	 * If ddp-run's stdout or stderr is the file [to], write through that descriptor, because
	 * open() would start at the beginning of the file.
	 */
	if (stat(to, &st) == 0 && (fd = ddp_file_output(&st)) >= 0)
		fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0644);
	if (fd < 0 || ddp_file_write_all(fd, data, size) < 0)
		status = ddp_error_errno(error, DDP_ERR_FILE, "cannot write %s", to);
	if (fd >= 0)
		close(fd);
	return status;
}

void attempt_judge(struct attempt *attempt)
{
	if (!attempt->step[0] || attempt->end == RUN_END_GOOD)
		return;
	facts_read(&attempt->facts, attempt);
	verdict_judge(&attempt->facts);
	attempt->end = attempt->facts.end;
}

/* Compose the report, and write it and the last output to the failure directory. */
static int write_files(const struct attempt *attempt, struct ddp_text *text, struct ddp_text *json,
		       struct ddp_error *error)
{
	int status = 0;

	ddp_text_clear(text);
	ddp_text_clear(json);
	failure_report(attempt, text, json);
	if (!attempt->dir[0])
		return ddp_error_set(error, DDP_ERR_FILE, "step %s.%s has no failure directory",
				     attempt->job, attempt->step);
	if (text->failed || json->failed)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the report on %s",
				     attempt->dir);
	if (attempt->tails)
		status = write_tails(attempt, error);
	if (status == 0)
		status = ddp_file_write_text(attempt->dir, "report.txt", text, error);
	return status < 0 ? status : ddp_file_write_text(attempt->dir, "report.json", json, error);
}

void attempt_report(const struct launch *launch, struct attempt *attempt, FILE *screen)
{
	const char *copy = launch->options.text[RUN_OPTION_REPORT];
	struct ddp_text text = {.data = NULL}, json = {.data = NULL};
	struct ddp_error error;

	if (!attempt->step[0] || (!screen && !attempt->dir[0]))
		return;
	if (screen)
		facts_ask_nodes(&attempt->facts, attempt);
	/* The report on a usage error is one line, for which no other directory is needed. */
	if (write_files(attempt, &text, &json, &error) < 0 &&
	    (attempt->said.usage_error || !move_directory(attempt, error.text) ||
	     write_files(attempt, &text, &json, NULL) < 0)) {
		attempt->dir[0] = '\0';
		(void)write_files(attempt, &text, &json, NULL);
	}
	tails_destroy(attempt->tails);
	attempt->tails = NULL;
	if (screen && text.data)
		fputs(text.data, screen);
	if (copy && (screen || is_file(copy)) && json.data &&
	    write_copy(copy, json.data, json.size, &error) < 0)
		fprintf(stderr, "ddp-run: %s. Give another file to --report.\n", error.text);
	ddp_text_free(&text);
	ddp_text_free(&json);
}

void attempt_discard(const char *dir)
{
	char above[PATH_MAX], *paths[] = {(char *)dir, NULL};
	FTS *tree;

	if (!strstr(dir, "/" DDP_DIR_PARENT "/") || strlen(dir) >= sizeof(above))
		return;
	tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	for (FTSENT *entry; tree && (entry = fts_read(tree));)
		if (entry->fts_info == FTS_DP)
			(void)rmdir(entry->fts_path);
		else if (entry->fts_info != FTS_D)
			(void)unlink(entry->fts_path);
	if (tree)
		fts_close(tree);
	strcpy(above, dir);
	*strrchr(above, '/') = '\0';
	(void)rmdir(above);
}
