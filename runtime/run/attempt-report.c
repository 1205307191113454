/* SPDX-License-Identifier: Apache-2.0 */
/* attempt-report.c - judge an attempt, and write its files: the last output and the report */
#include "config.h"

#include "ddp-run.h"

#include <dirent.h>
#include <fcntl.h>
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
 * Use a directory on this node instead of the failure directory, which does not exist or cannot be
 * written. Prints [why].
 */
static bool move_directory(struct attempt *attempt, const char *why)
{
	const char *base = ddp_getenv("TMPDIR", NULL);
	char dir[PATH_MAX];

	if (snprintf(dir, sizeof(dir), "%s/ddp-run-%s.%s-XXXXXX", base ? base : "/tmp",
		     attempt->job, attempt->step) >= (int)sizeof(dir) ||
	    !mkdtemp(dir)) {
		fprintf(stderr, "ddp-run: %s: the report is not kept in a file\n", why);
		return false;
	}
	fprintf(stderr, "ddp-run: %s: the report goes to %s\n", why, dir);
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

/* Replace a regular file; write to a link, a device or a pipe. */
static int write_copy(const char *to, char *data, size_t size, struct ddp_error *error)
{
	struct iovec part = {data, size};
	int fd = -1, status = 0;
	struct stat st;

	if (is_file(to))
		return ddp_file_write(to, &part, 1, 0644, false, error);
	/*
	 * If ddp-run's own output goes to [to], use that descriptor: open() would start at the
	 * beginning of the file.
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
		fprintf(stderr, "ddp-run: --report %s: %s\n", copy, error.text);
	ddp_text_free(&text);
	ddp_text_free(&json);
}

void attempt_discard(const char *dir)
{
	DIR *open = opendir(dir);
	char above[PATH_MAX];
	struct dirent *entry;
	char *slash;

	if (!open)
		return;
	while ((entry = readdir(open)))
		if (entry->d_name[0] != '.')
			(void)unlinkat(dirfd(open), entry->d_name, 0);
	closedir(open);
	if (rmdir(dir) < 0 || snprintf(above, sizeof(above), "%s", dir) >= (int)sizeof(above))
		return;
	slash = strrchr(above, '/');
	if (!slash)
		return;
	*slash = '\0';
	slash = strrchr(above, '/');
	if (strcmp(slash ? slash + 1 : above, DDP_DIR_PARENT) == 0)
		(void)rmdir(above);
}
