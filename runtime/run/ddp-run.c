/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-run.c - run srun --ddp, and restart it after a failure
 *
 * 	command-line.c, job.c	 check the command line and the job; without a job, run ddp-run under salloc
 * 	event-loop.c, relay.c	 run, watch and end srun
 * 	attempt-report.c	 read the facts about an attempt, judge them, and write the report
 * 	preflight.c		 test nodes, with --preflight
 * 	decide.c, next-nodes.c	 decide whether to restart the program, and on which nodes
 * 	claims.c		 keep the nodes from other ddp-runs of the job
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fts.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/settings.h"
#include "base/watch.h"
#include "contract.h"
#include "ddp-run.h"
#include "failure-report.h"
#include "inspect.h"

enum {
	EXIT_USAGE = 2,
	REFUSED_WAIT = 10,   /* seconds; doubled for each further refusal in a row */
	CHECKPOINT_DEPTH = 5 /* levels of directories searched for checkpoint files */
};

/* --- Checkpoints --------------------------------------------------------------------------- */

/*
 * Returns the time of the newest file below [path]. Directories do not count, because an attempt
 * that is killed while it writes a checkpoint leaves a new directory. Files with names of
 * incomplete files (".*", "*.tmp*", "tmp*") do not count either.
 */
static double find_newest(const char *path)
{
	char *paths[] = {(char *)path, NULL};
	FTS *tree = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, NULL);
	double newest = 0;

	for (FTSENT *entry; tree && (entry = fts_read(tree));) {
		const char *name = entry->fts_name;
		bool partial =
			name[0] == '.' || strstr(name, ".tmp") || strncmp(name, "tmp", 3) == 0;

		if (entry->fts_info == FTS_D && entry->fts_level > 0 &&
		    (partial || entry->fts_level > CHECKPOINT_DEPTH))
			(void)fts_set(tree, entry, FTS_SKIP);
		else if (!partial && (entry->fts_info == FTS_F || entry->fts_info == FTS_DEFAULT))
			newest = fmax(newest, ddp_date(&entry->fts_statp->st_mtim));
	}
	if (tree)
		fts_close(tree);
	return newest;
}

/*
 * Returns the time of the newest file in DDP_CHECKPOINT, in the form of run_past.saved. Returns -1
 * if this node cannot open the directory, as for an s3:// address or a local directory of another
 * node. If an attempt has [failed], also prints this, but only once.
 */
static double newest_checkpoint(bool failed)
{
	static bool reported;
	const char *path = ddp_getenv("DDP_CHECKPOINT", NULL);
	DIR *dir = path ? opendir(path) : NULL;

	if (!dir) {
		if (path && failed && !reported)
			fprintf(stderr,
				"ddp-run: cannot open DDP_CHECKPOINT %s on this node: %s. "
				"Attempts that fail at the same point count as no progress.\n",
				path, strerror(errno));
		reported = reported || (path && failed);
		return -1;
	}
	closedir(dir);
	return find_newest(path);
}

/* --- The attempts -------------------------------------------------------------------------- */

/* Wait before a retry. The wait doubles with each refusal in a row. */
static void wait_after_refusal(const struct run_past *past, const struct run_past *now)
{
	int wait = REFUSED_WAIT;

	while (now > past && (--now)->again)
		wait *= 2;
	fprintf(stderr, "ddp-run: the step was refused; ddp-run tries again in %d s\n", wait);
	attempt_wait(wait);
}

/* Describe an attempt in the form that run_decide() needs. */
static struct run_past describe(const struct attempt *attempt)
{
	bool failed = attempt->end == RUN_END_EXIT || attempt->end == RUN_END_SIGNAL ||
		      attempt->end == RUN_END_HANG || attempt->end == RUN_END_STEP_LIMIT;
	struct run_past past = {.end = attempt->end,
				.status = attempt->status,
				.forced = attempt->said.forced,
				.refused = attempt->said.refused,
				.took = attempt->ended - attempt->started,
				.left = job.left_s,
				.saved = newest_checkpoint(failed)};

	failure_point(attempt, past.point, sizeof(past.point), past.node, sizeof(past.node));
	return past;
}

/* Store the results of an attempt that later attempts need. */
static void record_attempt(struct launch *launch, const struct attempt *attempt)
{
	launch->overlap |= attempt->abandoned;
	nodes_add(&launch->steps, attempt->step);
	/*
	 * If the preflight excluded nodes, the first attempt has fewer nodes than planned. Compute
	 * the number of ranks on all planned nodes.
	 */
	if (attempt->number == 0 && attempt->ranks > 0 && attempt->nodes.count > 0 &&
	    launch->first.count > attempt->nodes.count)
		launch->ranks =
			attempt->ranks / (int)attempt->nodes.count * (int)launch->first.count;
	else if (attempt->number == 0 || launch->ranks == 0)
		launch->ranks = attempt->ranks;
	if (launch->first.count == 0)
		nodes_add_all(&launch->first, &attempt->nodes);
}

/* Warn if a limit of Slurm makes --grace or --hang less effective than its value says. */
static void warn_of_limits(const struct launch *launch)
{
	const char *grace = launch->options.text[RUN_OPTION_GRACE];
	const char *hang = launch->options.text[RUN_OPTION_HANG];

	if (launch->grace_s > 0 && launch->grace_s > job_kill_wait())
		fprintf(stderr,
			"ddp-run: --grace %s is longer than Slurm's KillWait. After a rank fails, "
			"Slurm kills the others within %.0f s.\n",
			grace, job_kill_wait());
	if (!hang || launch->hang_s == 0)
		return;
	if (launch->stdout_to_file)
		fprintf(stderr,
			"ddp-run: srun writes output to a file, which ddp-run does not read, so "
			"--hang %s counts only heartbeats and detects no hang without them. See "
			"DDP_HEARTBEAT in slurm-ddp(7).\n",
			hang);
	else if (launch->stderr_to_file)
		fprintf(stderr,
			"ddp-run: srun writes stderr to a file, which ddp-run does not read, so "
			"--hang %s counts only stdout and heartbeats. See DDP_HEARTBEAT in "
			"slurm-ddp(7).\n",
			hang);
}

/* At the first restart, warn about what ddp-run cannot check if DDP_CHECKPOINT is not set. */
static void warn_of_checkpoint(void)
{
	static bool warned;

	if (!warned && !ddp_getenv("DDP_CHECKPOINT", NULL))
		fprintf(stderr,
			"ddp-run: DDP_CHECKPOINT is not set, so attempts that fail at the same "
			"point count as no progress. Set it to the directory of the checkpoints. "
			"A program that loads none starts from its beginning.\n");
	warned = true;
}

static int run(struct launch *launch)
{
	struct run_rules rules = {.restarts = (int)launch->options.number[RUN_OPTION_RESTARTS],
				  .min_nodes = (int)launch->options.number[RUN_OPTION_MIN_NODES],
				  .requeue = job.requeue_id[0] != '\0'};
	static struct attempt attempts[2]; /* the current attempt and the previous one */
	struct run_past past[RUN_SAME];
	struct run_decision *decision;
	off_t input = lseek(STDIN_FILENO, 0, SEEK_CUR);

	warn_of_limits(launch);
	if (launch->options.number[RUN_OPTION_PREFLIGHT] > 0) {
		int status = nodes_preflight(launch, &rules);

		if (status >= 0)
			return status;
	}
	for (int number = 0;; number++) {
		struct attempt *attempt = &attempts[number % 2];
		struct run_past *now = &past[number < RUN_SAME ? number : RUN_SAME - 1];
		struct run_nodes nodes;
		enum run_end requested;
		bool refused, again;

		attempt_free(attempt);
		attempt_run(launch, number, number > 0 ? &attempts[(number + 1) % 2] : NULL,
			    attempt);
		record_attempt(launch, attempt);
		if (number >= RUN_SAME)
			memmove(past, past + 1, sizeof(past) - sizeof(*past));
		refused = attempt->end == RUN_END_REFUSED;
		again = nodes_check_refusal(launch, attempt);
		attempt_judge(attempt);
		if (launch->options.number[RUN_OPTION_PREFLIGHT] > 0 && !refused)
			nodes_preflight_again(launch, attempt);
		*now = describe(attempt);
		now->again = again;
		nodes = nodes_count(launch, attempt);
		decision = &attempt->decision;
		*decision = run_decide(&rules, past, number + 1, &nodes);
		if (decision->act == RUN_RESTART && now->again)
			wait_after_refusal(past, now);
		requested = decision->act == RUN_STOP ? RUN_END_GOOD : attempt_end_requested();
		if (requested) {
			now->end = requested;
			*decision = run_decide(&rules, past, number + 1, &nodes);
		}
		if (decision->act == RUN_RESTART) {
			warn_of_checkpoint();
			nodes_choose(launch, attempt, run_bad_node(past, number + 1));
		}
		if (attempt->end == RUN_END_STOPPED)
			fprintf(stderr, "ddp-run: step %s.%s stopped on request: %s\n",
				attempt->job, attempt->step, attempt->stop_reason);
		if (attempt->end != RUN_END_GOOD && attempt->end != RUN_END_STOPPED)
			attempt_report(launch, attempt, stderr);
		else if (attempt->dir[0])
			attempt_discard(attempt->dir);
		if (decision->act != RUN_RESTART)
			break;
		if (input >= 0)
			(void)lseek(STDIN_FILENO, input, SEEK_SET);
	}
	if (decision->act == RUN_REQUEUE)
		job_requeue();
	return decision->status;
}

/*
 * Whether ddp-run runs inside a rank. It then refuses to run, because srun would wait for resources
 * that the outer step occupies, or each rank would start all ranks again.
 */
static bool is_rank(void)
{
	const char *step = getenv("SLURM_STEP_ID"), *id = getenv("SLURM_JOB_ID");
	const char *launcher = inspect_launcher();
	bool is_task =
		step && id && strtoull(step, NULL, 10) < 0xfffffff0 && inspect_in_step(id, step);

	if (is_task)
		fprintf(stderr,
			"ddp-run: this process is already a task of step %s of job %s. Start "
			"ddp-run like srun, in a batch script or under salloc.\n",
			step, id);
	else if (launcher)
		fprintf(stderr,
			"ddp-run: this process is already a rank of another launcher, because %s "
			"is set. Start ddp-run like srun, in a batch script or under salloc.\n",
			launcher);
	return is_task || launcher;
}

/* [dir] can have two reports: on an attempt, and on the preflight tests that followed it. */
static int explain(const char *dir)
{
	bool preflight = failure_explain(dir, "preflight.json", stdout);

	if (failure_explain(dir, "report.json", stdout) || preflight)
		return 0;
	fprintf(stderr,
		"ddp-run: %s has no report that this release can print. Give a directory " DDP_DIR_PARENT
		"/" DDP_DIR_FAILED "..., or read the report.txt of an older release.\n",
		dir);
	return 1;
}

int main(int argc, char **argv)
{
	/* The command lines with which ddp-run starts itself on nodes. */
	static const struct {
		const char *option;
		int argc;
		int (*run)(char **argv);
	} steps[] = {{"--gather", 6, inspect_gather_main},
		     {"--programs", 6, inspect_programs_main},
		     {"--look", 4, inspect_look_main},
		     {"--sweep", 4, inspect_look_main}};
	static struct launch launch;
	const char *id;
	double saved;
	int status;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (argc == steps[i].argc && strcmp(argv[1], steps[i].option) == 0)
			return steps[i].run(argv);
	ddp_stdio_open();
	status = run_options_parse(&launch.options, argv);
	if (status >= 0)
		return status;
	if (launch.options.text[RUN_OPTION_EXPLAIN])
		return explain(launch.options.text[RUN_OPTION_EXPLAIN]);
	if (is_rank() || !attempt_can_report(&launch) || !launch_parse(&launch) ||
	    (launch.options.number[RUN_OPTION_PREFLIGHT] > 0 && !preflight_check()))
		return EXIT_USAGE;
	id = launch_option(&launch, "jobid", NULL);
	job.id = id ? id : ddp_getenv("SLURM_JOB_ID", "SLURM_JOBID", NULL);
	if (!job.id)
		return launch_allocate(&launch, argv);
	saved = launch.options.number[RUN_OPTION_REQUEUE] > 0 ? newest_checkpoint(false) : -1;
	if (!job_check(&launch.options, saved))
		return EXIT_USAGE;
	/*
	 * job_check() has used the first component of a heterogeneous job, since only that
	 * component can be requeued. The attempts use the component of --het-group.
	 */
	if (!id)
		job.id = launch_variable(&launch, "SLURM_JOB_ID") ?: job.id;
	attempt_begin();
	if (!nodes_reserve_spares(&launch))
		return EXIT_USAGE;
	return run(&launch);
}
