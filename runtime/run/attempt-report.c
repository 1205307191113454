/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempt-report.c - write the files of an attempt for the report: attempt.json, the last output,
 * and the report itself
 */
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
#include "facts.h"
#include "failure-report.h"
#include "verdict.h"

enum {
	TAILS_MOST = 64,	  /* maximum number of ranks whose last output is written */
	EVIDENCE_LIMIT = 1 << 20, /* maximum bytes copied from a file */
	REPORT_LIMIT = 64 << 20	  /* bytes */
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
		    ddp_file_read(from_path, EVIDENCE_LIMIT, &data, &part.iov_len, NULL) == 0) {
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
		fprintf(stderr, "ddp-run: %s: there is no report\n", why);
		return false;
	}
	fprintf(stderr, "ddp-run: %s: the report goes to %s\n", why, dir);
	copy_files(attempt->dir, dir);
	snprintf(attempt->dir, sizeof(attempt->dir), "%s", dir);
	return true;
}

/* --- attempt.json -------------------------------------------------------------------------- */

static void put_names(struct ddp_text *text, const char *key, const struct node_list *list)
{
	ddp_put_begin(text, key, '[');
	for (size_t i = 0; i < list->count; i++)
		ddp_put_string(text, NULL, list->name[i]);
	ddp_text_add(text, "]");
}

static void put_tasks(struct ddp_text *text, const struct srun_said *said)
{
	ddp_put_begin(text, "tasks", '[');
	for (size_t i = 0; i < said->count; i++) {
		const struct srun_task *task = &said->task[i];

		ddp_put_begin(text, NULL, '{');
		ddp_put_count(text, "rank", (uint64_t)task->rank);
		ddp_put_string(text, "node", task->node);
		ddp_put_string(text, "how", facts_how_name(task->how));
		ddp_put_count(text, "code", (uint64_t)task->code);
		ddp_put_number(text, "time", task->time);
		ddp_text_add(text, "}");
	}
	ddp_text_add(text, "]");
}

static void put_next(struct ddp_text *text, const struct attempt *attempt)
{
	static const char *const acts[] = {
		[RUN_STOP] = "stop", [RUN_RESTART] = "restart", [RUN_REQUEUE] = "requeue"};

	ddp_put_string(text, "next", acts[attempt->decision.act]);
	ddp_put_string(text, "next_why", attempt->decision.why);
	if (attempt->decision.act != RUN_RESTART)
		return;
	put_names(text, "next_nodes", attempt->next_nodes);
	if (attempt->ranks > 0 && attempt->nodes.count > 0)
		ddp_put_count(text, "next_ranks",
			      (uint64_t)attempt->ranks / attempt->nodes.count *
				      attempt->next_nodes->count);
	if (attempt->next_after_s >= 0)
		ddp_put_number(text, "next_after", attempt->next_after_s);
}

static int write_json(const struct attempt *attempt, const struct ddp_text *text,
		      struct ddp_error *error)
{
	if (!attempt->dir[0])
		return ddp_error_set(error, DDP_ERR_FILE, "step %s.%s has no failure directory",
				     attempt->job, attempt->step);
	return ddp_file_write_text(attempt->dir, "attempt.json", text, error);
}

/* --- The last output ----------------------------------------------------------------------- */

/*
 * Write the last output of all ranks together, and of each rank. If there are many ranks, write
 * only the output of ranks that the report may mention.
 */
static int write_tails(const struct attempt *attempt, struct tails *tails, struct ddp_error *error)
{
	bool few = attempt->ranks > 0 && attempt->ranks <= TAILS_MOST;
	int status = tails_write(tails, attempt->dir, TAILS_ALL, error), missing = 0;
	struct facts facts;

	for (int i = 0; few && i < attempt->ranks && status == 0; i++)
		status = tails_write(tails, attempt->dir, i, error);
	if (few || status < 0)
		return status;
	status = facts_read(&facts, attempt->dir, error);
	if (status < 0)
		return status;
	verdict_judge(&facts);
	for (int i = 0; i < facts.size && status == 0; i++) {
		int order = facts.ranks[i].order;

		if (i == facts.first || (order > 0 && order <= TAILS_MOST) ||
		    (facts.arrivals[i].missing && missing++ < TAILS_MOST))
			status = tails_write(tails, attempt->dir, i, error);
	}
	facts_free(&facts);
	return status;
}

void attempt_write(const struct launch *launch, struct attempt *attempt, struct tails *tails)
{
	struct ddp_text text = {.data = NULL};
	struct ddp_error error;

	if (!attempt->step[0] || attempt->unreported)
		return;
	ddp_put_begin(&text, NULL, '{');
	ddp_put_string(&text, "run_id", job.id);
	ddp_put_count(&text, "job", strtoull(attempt->job, NULL, 10));
	ddp_put_count(&text, "step", strtoull(attempt->step, NULL, 10));
	ddp_put_count(&text, "attempt", (uint64_t)attempt->number);
	ddp_put_count(&text, "restarts", (uint64_t)launch->options.number[RUN_OPTION_RESTARTS]);
	ddp_put_begin(&text, "command", '[');
	for (char **at = launch->words; *at; at++)
		ddp_put_string(&text, NULL, *at);
	ddp_text_add(&text, "]");
	put_names(&text, "nodes", &attempt->nodes);
	if (attempt->ranks > 0)
		ddp_put_count(&text, "ranks", (uint64_t)attempt->ranks);
	ddp_put_number(&text, "started", attempt->started);
	ddp_put_number(&text, "ended", attempt->ended);
	ddp_put_count(&text, "status", (uint64_t)attempt->status);
	ddp_put_string(&text, "kind", run_end_name(attempt->end));
	if (attempt->said.not_found)
		ddp_put_string(&text, "refusal", attempt->said.refusal);
	put_tasks(&text, &attempt->said);
	put_names(&text, "silent_nodes", &attempt->silent);
	ddp_put_count(&text, "lost", srun_lost_node(&attempt->said));
	if (attempt->quiet_s > 0)
		ddp_put_number(&text, "quiet", attempt->quiet_s);
	if (attempt->decided)
		put_next(&text, attempt);
	ddp_text_add(&text, "}\n");
	if (!text.failed && write_json(attempt, &text, &error) < 0 &&
	    (!move_directory(attempt, error.text) || write_json(attempt, &text, NULL) < 0)) {
		attempt->dir[0] = '\0';
		attempt->unreported = true;
	}
	ddp_text_free(&text);
	if (tails && attempt->dir[0] && write_tails(attempt, tails, &error) < 0 &&
	    move_directory(attempt, error.text))
		(void)write_tails(attempt, tails, NULL);
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

static void copy_report(const char *dir, const char *to)
{
	char path[PATH_MAX + 16], *data = NULL;
	struct ddp_error error;
	size_t size;
	int status;

	snprintf(path, sizeof(path), "%s/report.json", dir);
	status = ddp_file_read(path, REPORT_LIMIT, &data, &size, &error);
	if (status == 0)
		status = write_copy(to, data, size, &error);
	if (status != 0)
		fprintf(stderr, "ddp-run: --report %s: %s\n", to,
			status < 0 ? error.text : "there is no report to copy");
	free(data);
}

void attempt_report(const struct launch *launch, struct attempt *attempt, FILE *screen)
{
	const char *copy = launch->options.text[RUN_OPTION_REPORT];
	struct ddp_error error;

	attempt_write(launch, attempt, NULL);
	if (!attempt->dir[0]) {
		if (screen && attempt->step[0])
			fprintf(screen, "ddp-run: step %s.%s ended with status %d (%s): %s\n",
				attempt->job, attempt->step, attempt->status,
				run_end_name(attempt->end), attempt->decision.why);
		return;
	}
	if (ddp_verdict_write(attempt->dir, screen, &error) < 0 && screen)
		fprintf(stderr, "ddp-run: %s\n", error.text);
	if (copy && (screen || is_file(copy)))
		copy_report(attempt->dir, copy);
}
