/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - query and requeue the Slurm job in which ddp-run runs */
#include "config.h"

#include "ddp-run.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "base/text.h"
#include "facts.h"

enum {
	ANSWER_LIMIT = 10,  /* time limit for queries before the first attempt, in seconds */
	UPDATE_LIMIT = 5,   /* seconds, while ranks run */
	REQUEUE_LIMIT = 30, /* seconds */
	SIGNAL_TIME = 60,   /* sbatch's default for the time of --signal, in seconds */
	KILL_WAIT = 30	    /* seconds: Slurm's default */
};

struct run_job job = {.left_s = INFINITY};

/* --- Submission ---------------------------------------------------------------------------- */

struct submission {
	struct ddp_text line;	    /* command line of sbatch or salloc; empty if it is unknown */
	struct ddp_text directives; /* the "#SBATCH" lines of the script */
	bool has_script;
};

/*
 * Read how the job was submitted. Since Slurm 25.11, scontrol's [answer] contains the command line.
 * Before, only the accounting database contains it, if the cluster has one.
 */
static void read_submission(struct submission *given, const char *answer)
{
	char *const sacct[] = {"sacct",	     "-X", "-n",	   "-P", "-o",
			       "SubmitLine", "-j", (char *)job.id, NULL};
	char *const scontrol[] = {"scontrol", "write", "batch_script", (char *)job.id, "-", NULL};
	static const char key[] = "\n   SubmitLine=";
	struct ddp_text accounting = {.data = NULL}, script = {.data = NULL};
	const char *found = strstr(answer, key);

	if (found)
		found += strlen(key);
	else if (nodes_run(sacct, ANSWER_LIMIT, &accounting) == 0)
		found = accounting.data;
	if (found)
		ddp_text_put(&given->line, found, strcspn(found, "\n"));
	given->has_script = nodes_run(scontrol, ANSWER_LIMIT, &script) == 0 && script.data;
	for (char *rest = given->has_script ? script.data : NULL, *line;
	     (line = strsep(&rest, "\n"));)
		if (strncmp(line, "#SBATCH", strlen("#SBATCH")) == 0)
			ddp_text_add(&given->directives, "%s\n", line);
	ddp_text_free(&accounting);
	ddp_text_free(&script);
}

/* Copy to [value], which has 64 bytes, the value of the last --signal in [text]. */
static void find_signal(const char *text, char *value)
{
	for (const char *at = text; at && (at = strstr(at, "--signal")); at++)
		(void)sscanf(at, "--signal%*[= ]%63[^ \t\r\n]", value);
}

/*
 * Returns the time of the job's --signal in seconds before the job's end, if Slurm sends it to the
 * ranks but not to ddp-run (without "B:"). Returns 0 without a signal of this kind, or if its time
 * is before the job's start. Prints how the signal affects --requeue.
 */
static double signal_time(const struct submission *given, const char *answer)
{
	const char *variable = getenv("SBATCH_SIGNAL"), *colon, *time;
	char value[64] = "";
	double seconds;

	find_signal(given->directives.data, value);
	if (variable)
		snprintf(value, sizeof(value), "%s", variable);
	find_signal(given->line.data, value);
	colon = strchr(value, ':');
	if (!*value || (colon && memchr(value, 'B', (size_t)(colon - value))))
		return 0;
	time = strchr(value, '@');
	seconds = time ? atof(time + 1) : SIGNAL_TIME;
	if (seconds + JOB_SIGNAL_EARLY > nodes_seconds(answer, "TimeLimit")) {
		fprintf(stderr,
			"ddp-run: the job's time limit is hardly longer than the time of "
			"--signal=%s, so Slurm sends the signal when the job starts. An end at "
			"that time is not attributed to the signal.\n",
			value);
		return 0;
	}
	fprintf(stderr,
		"ddp-run: Slurm sends --signal=%s to the ranks only, so an end at that time is "
		"attributed to the signal. Use --signal=B:%s and \"exec ddp-run\", so that "
		"ddp-run forwards the signal.\n",
		value, colon ? colon + 1 : value);
	return seconds;
}

/* Whether [text] may contain --no-kill, or -k among short options. */
static bool may_have_no_kill(const char *text)
{
	static const char blank[] = " \t\r\n";

	for (const char *word = text; word && *word; word += strcspn(word, blank)) {
		word += strspn(word, blank);
		if (strncmp(word, "--no-k", 6) == 0 ||
		    (word[0] == '-' && word[1] != '-' && memchr(word, 'k', strcspn(word, blank))))
			return true;
	}
	return false;
}

/*
 * Warn if the job was submitted without --no-kill: when a node is lost, Slurm ends such a job, and
 * ddp-run with it. If not all options of the submission are known, there is no warning.
 */
static void warn_of_kill(const struct submission *given)
{
	const char *line = given->line.data ? given->line.data : "";
	bool batch = strstr(line, "sbatch");

	if ((batch ? !given->has_script : !strstr(line, "salloc")) ||
	    getenv(batch ? "SBATCH_NO_KILL" : "SALLOC_NO_KILL") || may_have_no_kill(line) ||
	    (batch && may_have_no_kill(given->directives.data)))
		return;
	fprintf(stderr,
		"ddp-run: job %s was submitted without --no-kill, so Slurm ends the whole job if "
		"a node is lost, despite --min-nodes and --spare-nodes. Add %s.\n",
		job.id, batch ? "#SBATCH --no-kill" : "salloc's --no-kill");
}

static bool can_requeue(const char *answer)
{
	size_t size;

	if (*nodes_field(answer, "BatchFlag", &size) != '1')
		fprintf(stderr,
			"ddp-run: Slurm cannot requeue job %s, because it is not a batch job. "
			"Remove --requeue, or use sbatch.\n",
			job.id);
	else if (*nodes_field(answer, "Requeue", &size) == '0')
		fprintf(stderr,
			"ddp-run: Slurm does not allow a requeue of job %s. Add #SBATCH "
			"--requeue.\n",
			job.id);
	else
		return true;
	return false;
}

/*
 * For a task of a job array, set requeue_id to the number of the task. The JobId of one of the
 * tasks is also the number of the array, for which scontrol requeue would requeue all tasks.
 */
static void set_requeue_id(const char *answer)
{
	size_t job_size, task_size;
	const char *array = nodes_field(answer, "ArrayJobId", &job_size);
	const char *task = nodes_field(answer, "ArrayTaskId", &task_size);

	if (task_size > 0)
		snprintf(job.requeue_id, sizeof(job.requeue_id), "%.*s_%.*s", (int)job_size, array,
			 (int)task_size, task);
	else
		snprintf(job.requeue_id, sizeof(job.requeue_id), "%s", job.id);
}

/*
 * Set requeue_id, unless the job was already requeued as often as the options allow. In that case,
 * print a line.
 */
static void allow_requeue(const struct run_options *options, double saved, const char *answer)
{
	if (run_may_requeue(job.requeues, (int)options->number[RUN_OPTION_MAX_REQUEUES], saved,
			    nodes_date(answer, "SubmitTime"), nodes_seconds(answer, "TimeLimit"))) {
		set_requeue_id(answer);
		return;
	}
	fprintf(stderr,
		"ddp-run: job %s was requeued %d times, and DDP_CHECKPOINT %s. The job is not "
		"requeued again; see --max-requeues.\n",
		job.id, job.requeues,
		ddp_getenv("DDP_CHECKPOINT", NULL) ? "has no checkpoint from its last run"
						   : "is not set");
}

bool job_check(const struct run_options *options, double saved)
{
	const double *number = options->number;
	bool requeue = number[RUN_OPTION_REQUEUE] != 0;
	bool lose = number[RUN_OPTION_MIN_NODES] > 0 || number[RUN_OPTION_SPARE_NODES] > 0;
	char *const show[] = {"scontrol", "show", "job", (char *)job.id, NULL};
	struct submission given = {.has_script = false};
	struct ddp_text out = {.data = NULL};
	const char *answer, *restarts;
	bool allowed;
	size_t size;

	if (!requeue && !lose && !options->text[RUN_OPTION_LOGS])
		return true;
	answer = nodes_run(show, ANSWER_LIMIT, &out) == 0 && out.data ? out.data : "";
	/*
	 * Prefer the number from scontrol. If a requeued job submitted this one,
	 * SLURM_RESTART_COUNT may be inherited from that job.
	 */
	restarts = nodes_field(answer, "Restarts", &size);
	job.requeues = atoi(size > 0 ? restarts : ddp_getenv("SLURM_RESTART_COUNT", NULL) ?: "0");
	allowed = !requeue || can_requeue(answer);
	if (allowed && requeue)
		allow_requeue(options, saved, answer);
	if (allowed && (lose || job.requeue_id[0]))
		read_submission(&given, answer);
	if (job.requeue_id[0])
		job.signal_s = signal_time(&given, answer);
	if (allowed && lose)
		warn_of_kill(&given);
	ddp_text_free(&given.line);
	ddp_text_free(&given.directives);
	ddp_text_free(&out);
	return allowed;
}

/* --- State of the job ---------------------------------------------------------------------- */

/* Whether steps of a job in [state] run or may still start. */
static bool has_steps(const char *state, size_t size)
{
	static const char *const live[] = {"RUNNING",  "SUSPENDED", "CONFIGURING",
					   "RESIZING", "SIGNALING", "STOPPED"};

	for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++)
		if (size == strlen(live[i]) && strncmp(state, live[i], size) == 0)
			return true;
	return false;
}

/*
 * Slurm announces the end of a job by a signal. If the signal has ended the batch script, and so
 * the job, report how ddp-run can receive it instead.
 */
static void report_script(const char *answer)
{
	size_t size;
	const char *code = nodes_field(answer, "ExitCode", &size), *colon = memchr(code, ':', size);
	int number = colon ? atoi(colon + 1) : 0;

	if (number == SIGUSR1 || number == SIGUSR2)
		fprintf(stderr,
			"ddp-run: %s has ended the batch script, and with it job %s. Start "
			"ddp-run with \"exec ddp-run\", so that ddp-run receives the signal and "
			"forwards it to the ranks.\n",
			facts_signal(number).text, job.id);
}

bool job_update(void)
{
	char *const argv[] = {"scontrol", "-o", "show", "job", (char *)job.id, NULL};
	struct ddp_text out = {.data = NULL};
	const char *field;
	bool over;
	size_t size;

	job.unanswered = nodes_run(argv, UPDATE_LIMIT, &out) != 0 || !out.data;
	if (!job.unanswered) {
		field = nodes_field(out.data, "JobState", &size);
		job.suspended = size > 0 && (strncmp(field, "SUSPENDED", size) == 0 ||
					     strncmp(field, "STOPPED", size) == 0);
		over = size > 0 && !has_steps(field, size);
		if (over && !job.ending)
			report_script(out.data);
		field = nodes_field(out.data, "Reason", &size);
		if (over && strncmp(field, "TimeLimit", strlen("TimeLimit")) == 0)
			job.timed_out = true;
		/* A preempted job continues to run during the grace time of its partition. */
		field = nodes_field(out.data, "PreemptTime", &size);
		if (size > 0 && strncmp(field, "None", size) != 0)
			job.preempted = true;
		job.ending = job.ending || over || job.preempted;
		job.left_s =
			nodes_seconds(out.data, "TimeLimit") - nodes_seconds(out.data, "RunTime");
		if (over && (job.timed_out || job.preempted))
			job_requeue();
	}
	ddp_text_free(&out);
	return job.ending;
}

void job_requeue(void)
{
	static bool requeued;
	char *const argv[] = {"scontrol", "requeue", job.requeue_id, NULL};
	struct ddp_text out = {.data = NULL};
	int status;

	if (requeued || !job.requeue_id[0])
		return;
	requeued = true;
	status = nodes_run(argv, REQUEUE_LIMIT, &out);
	/* If the job is pending, Slurm has already requeued it. */
	if (status == 0 || (out.data && strstr(out.data, "pending")))
		fprintf(stderr, "ddp-run: job %s is requeued\n", job.requeue_id);
	else
		fprintf(stderr, "ddp-run: scontrol requeue %s failed: %s\n", job.requeue_id,
			out.data ? out.data : "no answer");
	ddp_text_free(&out);
}

double job_kill_wait(void)
{
	static double seconds = -1;
	char *const argv[] = {"scontrol", "show", "config", NULL};
	struct ddp_text out = {.data = NULL};
	const char *value = NULL;

	if (seconds >= 0)
		return seconds;
	if (nodes_run(argv, UPDATE_LIMIT, &out) == 0 && out.data &&
	    (value = strstr(out.data, "\nKillWait")))
		value = strchr(value, '=');
	seconds = value ? atof(value + 1) : KILL_WAIT;
	ddp_text_free(&out);
	return seconds;
}
