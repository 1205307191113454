/* SPDX-License-Identifier: Apache-2.0 */
/* ddp-run.c - srun --ddp, and again when the program fails */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "run-attempt.h"
#include "run-options.h"
#include "verdict.h"

enum {
	EXIT_USAGE = 2,
	HELP_LIMIT = 10,
	ASKS = 5,	     /* questions until Slurm answers one */
	ASK_AGAIN = 5,	     /* seconds after it did not */
	ANSWER_LIMIT = 8,    /* for a node that did not answer before */
	REFUSED_WAIT = 10,   /* after it refused a step, at first; then twice that, and so on */
	SIGNAL_TIME = 60,    /* of sbatch's --signal, by default */
	CHECKPOINT_DEPTH = 5 /* of directories that may be one */
};

struct launch {
	struct run_options options;
	const char *job;
	struct srun_options srun; /* as srun --help has them */
	char **words;		  /* srun's options, the program, its arguments */
	size_t words_count;
	size_t program; /* where it begins in them */
	enum attempt_output output;
	bool to_files;	     /* srun's --output or --error names a file, or none */
	bool hidden;	     /* --output does */
	char requeue_id[64]; /* of the job, to scontrol requeue; "": it may not be requeued */
	double signal_s; /* before the job's end, Slurm sends a signal to ranks alone; 0: it does not */

	struct node_list first; /* nodes of the first attempt */
	int ranks;		/* that it had; 0: not known */
	struct node_list next;	/* nodes of the next one; none: srun chooses */
	struct node_list
		avoid; /* drained, or their ranks failed first repeatedly: the last to be chosen */
	struct node_list bad;	/* were lost, or did not answer, once; Slurm may not have noticed */
	struct node_list steps; /* numbers of the attempts' steps */
	char nodes_word[32], ranks_word[32];
	char *list_word; /* what is said of them to srun */
	bool overlap;	 /* a step may not be over, in Slurm's eyes */
};

/* --- srun's command line ----------------------------------------------------------------------- */

static bool read_help(struct srun_options *options, const char *command)
{
	char *const argv[] = {(char *)command, "--help", NULL};
	struct ddp_text out = {.data = NULL};
	bool good = evidence_run(argv, HELP_LIMIT, &out) == 0 && out.data;

	if (good)
		srun_options_read(options, out.data, strcmp(command, "salloc") == 0);
	else
		fprintf(stderr, "ddp-run: %s --help gave no answer: is Slurm installed here?\n",
			command);
	ddp_text_free(&out);
	return good;
}

/* Find out where the program begins, which only srun itself knows for sure. */
static bool find_program(struct launch *launch)
{
	const char *unknown;

	if (!read_help(&launch->srun, "srun"))
		return false;
	unknown = srun_unknown(&launch->srun, launch->words);
	if (unknown && run_options_have(unknown)) {
		fprintf(stderr, "ddp-run: %s: options of ddp-run come before those of srun\n",
			unknown);
		return false;
	}
	launch->program = srun_program(&launch->srun, launch->words);
	return true;
}

static bool is_given(struct launch *launch, const char *name, const char **value)
{
	return srun_given(&launch->srun, launch->words, name, value);
}

/* Of a heterogeneous step srun numbers the tasks of each component from 0 when it tells of them. */
static bool is_heterogeneous(struct launch *launch)
{
	const char *groups = "";

	for (size_t i = 0; i < launch->words_count; i++)
		if (strcmp(launch->words[i], ":") == 0)
			return true;
	/* --pack-group is the name of --het-group in older releases. srun still accepts it. */
	(void)(is_given(launch, "het-group", &groups) || is_given(launch, "pack-group", &groups));
	return strpbrk(groups, ",-");
}

/* How many words the option at [word] takes, if it is --relative, which srun refuses beside a list of nodes; else 0. */
static size_t relative_words(const struct launch *launch, char *word)
{
	char *pair[] = {word, (char *)"0", NULL};
	const char *value;

	/* Of letters in one word, as -lr1, the others count. */
	if (word[0] == '-' && word[1] != '-' && word[1] != 'r')
		return 0;
	return srun_given(&launch->srun, pair, "relative", &value)
		       ? srun_program(&launch->srun, pair)
		       : 0;
}

/*
 * srun's words: what we say first, so that the user's count; but what we say of nodes behind, where the user's would have been right
 * for the first attempt alone. With [append], files keep what earlier attempts wrote. Freed by free().
 */
static char **srun_words(const struct launch *launch, bool append)
{
	char **words = ddp_xcalloc(launch->words_count + 16, sizeof(*words), "srun's words");
	size_t count = 0, at = 0;

	words[count++] = "srun";
	words[count++] = "--ddp";
	words[count++] = "--kill-on-bad-exit=1";
	words[count++] = "--wait=0";
	if (launch->output == ATTEMPT_LABELLED)
		words[count++] = "--label";
	if (launch->overlap)
		words[count++] = "--overlap";
	if (append)
		words[count++] = "--open-mode=append";
	if (launch->nodes_word[0]) {
		while (at < launch->program) {
			char *pair[] = {launch->words[at], (char *)"0", NULL};
			size_t drop, width;

			if (strcmp(launch->words[at], "--") == 0)
				break;
			drop = launch->list_word ? relative_words(launch, launch->words[at]) : 0;
			width = srun_program(&launch->srun, pair);
			at += drop;
			for (; drop == 0 && width > 0; width--)
				words[count++] = launch->words[at++];
		}
		words[count++] = (char *)launch->nodes_word;
		if (launch->ranks_word[0])
			words[count++] = (char *)launch->ranks_word;
		if (launch->list_word)
			words[count++] = launch->list_word;
	}
	while (launch->words[at])
		words[count++] = launch->words[at++];
	return words;
}

/* --- Before the first attempt ------------------------------------------------------------------ */

/* In a task of a step, srun would wait for resources that the step has itself, or start ranks in ranks. */
static bool is_in_step(void)
{
	const char *step = getenv("SLURM_STEP_ID"), *job = getenv("SLURM_JOB_ID");

	return step && job && strtoull(step, NULL, 10) < 0xfffffff0 && evidence_in_step(job, step);
}

static int run_in_allocation(struct launch *launch, char **argv)
{
	int more = (int)launch->options.number[RUN_OPTION_SPARE_NODES];
	struct srun_options salloc;
	char **shared, **words, self[PATH_MAX], nodes[32];
	const char *value = "";
	size_t count = 0, most = 8;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0 || !read_help(&salloc, "salloc"))
		return EXIT_USAGE;
	self[n] = '\0';
	if (more > 0 && (!is_given(launch, "nodes", &value) || atoi(value) < 1 ||
			 strspn(value, "0123456789") != strlen(value))) {
		fputs("ddp-run: --spare-nodes without an allocation: give srun's -N, as a number\n",
		      stderr);
		return EXIT_USAGE;
	}
	shared = srun_shared(&launch->srun, launch->words, &salloc);
	for (char **at = shared; *at; at++)
		most++;
	for (char **at = argv; *at; at++)
		most++;
	words = ddp_xcalloc(most, sizeof(*words), "salloc's words");
	words[count++] = "salloc";
	words[count++] = "--no-kill";
	/* srun changes the directory. If salloc did as well, a relative path would count twice. */
	for (size_t i = 0; shared[i]; i++)
		if (strncmp(shared[i], "--chdir=", strlen("--chdir=")) != 0)
			words[count++] = shared[i];
	if (more > 0) {
		snprintf(nodes, sizeof(nodes), "--nodes=%d", atoi(value) + more);
		words[count++] = nodes;
	}
	words[count++] = self;
	for (char **at = argv + 1; *at; at++)
		words[count++] = *at;
	execvp(words[0], words);
	fprintf(stderr, "ddp-run: cannot start salloc: %s\n", strerror(errno));
	return 127;
}

/* nodes_of_job(), of a Slurm that may be away for a moment. */
static struct node_list ask_nodes(const struct launch *launch, char state[32],
				  struct node_list *drained)
{
	struct node_list all;
	enum run_end end;

	for (int i = 1;; i++) {
		all = nodes_of_job(launch->job, state, 32, drained);
		if (*state || i == ASKS || attempt_told(&end))
			return all;
		nodes_free(&all);
		attempt_wait(ASK_AGAIN);
	}
}

/* Of all nodes of the job, as many as the first attempt may have; the others are spares. */
static bool set_spares_aside(struct launch *launch)
{
	int spares = (int)launch->options.number[RUN_OPTION_SPARE_NODES], use, asked;
	const char *value = "", *tasks = getenv("SLURM_NTASKS");
	struct node_list all;
	char state[32];

	if (spares == 0)
		return true;
	all = ask_nodes(launch, state, NULL);
	use = (int)all.count - spares;
	if (is_given(launch, "nodes", &value)) {
		asked = atoi(value);
		nodes_free(&all);
		if (asked <= use)
			return true;
		fprintf(stderr,
			"ddp-run: --spare-nodes %d: job %s has %d nodes, of which -N takes %d\n",
			spares, launch->job, use + spares, asked);
		return false;
	}
	if (use < 1) {
		fprintf(stderr,
			"ddp-run: --spare-nodes %d: job %s has %d nodes: none would be left\n",
			spares, launch->job, (int)all.count);
		nodes_free(&all);
		return false;
	}
	snprintf(launch->nodes_word, sizeof(launch->nodes_word), "--nodes=%d", use);
	if (tasks && !is_given(launch, "ntasks", &value)) {
		if (atoi(tasks) % (int)all.count != 0) {
			fprintf(stderr,
				"ddp-run: --spare-nodes %d: %s tasks are not the same number on each of %d "
				"nodes: give srun's -N and -n\n",
				spares, tasks, (int)all.count);
			nodes_free(&all);
			return false;
		}
		snprintf(launch->ranks_word, sizeof(launch->ranks_word), "--ntasks=%d",
			 atoi(tasks) / (int)all.count * use);
	}
	nodes_free(&all);
	return true;
}

/* [said]: of the job, by Slurm. */
static bool can_requeue(const char *job, const char *said)
{
	size_t size;

	if (*nodes_field(said, "BatchFlag", &size) != '1') {
		fprintf(stderr,
			"ddp-run: --requeue: job %s is no batch job, which Slurm could start "
			"again: leave it out, or use sbatch\n",
			job);
		return false;
	}
	if (*nodes_field(said, "Requeue", &size) != '0')
		return true;
	fprintf(stderr, "ddp-run: --requeue: Slurm may not requeue job %s: add #SBATCH --requeue\n",
		job);
	return false;
}

/*
 * Name the job for scontrol requeue. The JobId of one task of a job array is also the number of the array, and would requeue all tasks:
 * [said] by Slurm of the job names the task.
 */
static void find_requeue_id(struct launch *launch, const char *said)
{
	size_t job_size, task_size;
	const char *job = nodes_field(said, "ArrayJobId", &job_size);
	const char *task = nodes_field(said, "ArrayTaskId", &task_size);

	if (task_size > 0)
		snprintf(launch->requeue_id, sizeof(launch->requeue_id), "%.*s_%.*s", (int)job_size,
			 job, (int)task_size, task);
	else
		snprintf(launch->requeue_id, sizeof(launch->requeue_id), "%s", launch->job);
}

/*
 * How [job] was submitted, in one line, into [line]; nothing where nobody knows. [said] by Slurm of the job tells it from Slurm 25.11 on, and before
 * that the accounting does, where there is one.
 */
static void find_submit_line(const char *job, const char *said, struct ddp_text *line)
{
	char *const sacct[] = {"sacct",	     "-X", "-n",	"-P", "-o",
			       "SubmitLine", "-j", (char *)job, NULL};
	static const char key[] = "\n   SubmitLine=";
	struct ddp_text out = {.data = NULL};
	const char *found = strstr(said, key);

	if (found)
		found += strlen(key);
	else if (evidence_run(sacct, HELP_LIMIT, &out) == 0)
		found = out.data;
	if (found)
		ddp_text_put(line, found, strcspn(found, "\n"));
	ddp_text_free(&out);
}

/* Add the script of batch job [job] to [script]. Returns whether Slurm has it. */
static bool read_script(const char *job, struct ddp_text *script)
{
	char *const argv[] = {"scontrol", "write", "batch_script", (char *)job, "-", NULL};

	return evidence_run(argv, HELP_LIMIT, script) == 0 && script->data;
}

/* Copy the value of --signal in [line], which ends at a newline, into [value] of 64 bytes. */
static void find_signal(const char *line, char *value)
{
	const char *end = line + strcspn(line, "\n"), *at = strstr(line, "--signal");

	for (; at && at < end; at = strstr(at + 1, "--signal"))
		(void)sscanf(at, "--signal%*[= ]%63[^ \t\r\n]", value);
}

/*
 * The time in seconds before the end of batch job [job] at which Slurm sends the ranks a signal, but not ddp-run: --signal without
 * "B:". Without it, 0. With it, a line says what that means for --requeue.
 */
static double look_for_signal(const char *job, const char *said)
{
	struct ddp_text line = {.data = NULL}, script = {.data = NULL};
	const char *given = getenv("SBATCH_SIGNAL"), *colon, *time;
	char value[64] = "";

	if (read_script(job, &script))
		for (const char *at = script.data; at; at = strchr(at, '\n')) {
			at += *at == '\n';
			if (strncmp(at, "#SBATCH", strlen("#SBATCH")) == 0)
				find_signal(at, value);
		}
	if (given)
		snprintf(value, sizeof(value), "%s", given);
	find_submit_line(job, said, &line);
	if (line.data)
		find_signal(line.data, value);
	ddp_text_free(&line);
	ddp_text_free(&script);
	colon = strchr(value, ':');
	if (!*value || (colon && memchr(value, 'B', (size_t)(colon - value))))
		return 0;
	fprintf(stderr,
		"ddp-run: Slurm sends --signal=%s to the ranks alone, so an attempt that ends then is taken for ended by "
		"it; with --signal=B:%s and \"exec ddp-run\" ddp-run receives it, and passes it on\n",
		value, colon ? colon + 1 : value);
	time = strchr(value, '@');
	return time ? atof(time + 1) : SIGNAL_TIME;
}

/* Whether --no-kill, or -k, may be among the words of [line], which is cut up. Who has it is not to be told to add it. */
static bool may_have_no_kill(char *line)
{
	for (char *word; (word = strsep(&line, " \t\r"));)
		if (strncmp(word, "--no-k", 6) == 0 ||
		    (word[0] == '-' && word[1] != '-' && strchr(word, 'k')))
			return true;
	return false;
}

/*
 * Slurm ends a job that lost a node, and ddp-run with it, unless it was submitted with --no-kill. It keeps that to itself; so
 * this is told only where all of how the job was submitted is known.
 */
static void look_for_no_kill(const char *job, const char *said)
{
	struct ddp_text line = {.data = NULL}, out = {.data = NULL};
	bool batch, given;

	find_submit_line(job, said, &line);
	batch = line.data && strstr(line.data, "sbatch");
	if (!batch && !(line.data && strstr(line.data, "salloc")))
		goto done;
	if (getenv(batch ? "SBATCH_NO_KILL" : "SALLOC_NO_KILL") ||
	    (batch && !read_script(job, &out)))
		goto done;
	given = may_have_no_kill(line.data);
	for (char *rest = out.data, *at; !given && (at = strsep(&rest, "\n"));)
		given = strncmp(at, "#SBATCH", 7) == 0 && may_have_no_kill(at);
	if (!given)
		fprintf(stderr,
			"ddp-run: job %s was submitted without --no-kill: when it loses a node Slurm ends all of "
			"it, and neither --min-nodes nor --spare-nodes helps: add %s\n",
			job, batch ? "#SBATCH --no-kill" : "salloc's --no-kill");
done:
	ddp_text_free(&line);
	ddp_text_free(&out);
}

/* Whether srun has option [name] of its own, which variable [variable] stands for as well, NULL: none does. */
static bool is_said(struct launch *launch, const char *name, const char *variable)
{
	const char *value;

	return is_given(launch, name, &value) || (variable && getenv(variable));
}

/* Whether there is one rank, as far as the command line says so. */
static bool is_one_rank(struct launch *launch)
{
	const char *tasks = getenv("SLURM_NTASKS");

	if (!is_given(launch, "ntasks", &tasks) &&
	    (is_said(launch, "nodes", NULL) || is_said(launch, "ntasks-per-node", NULL)))
		return false;
	return tasks && strcmp(tasks, "1") == 0;
}

/* Whether srun's option [name], or else [variable], names a file or "none". Output of "all" tasks or of one task goes to srun's own. */
static bool goes_to_file(struct launch *launch, const char *name, const char *variable)
{
	const char *value = getenv(variable);

	(void)is_given(launch, name, &value);
	return value && strcmp(value, "all") != 0 && value[strspn(value, "0123456789")];
}

/*
 * What tells whose output is whose. srun's labels do, and are taken off again, unless srun does something else with the output
 * than to hand on whole lines, and then there can be no --logs.
 */
static bool choose_output(struct launch *launch)
{
	static const struct {
		const char *name, *variable;
		enum attempt_output output;
	} said[] = {{"pty", NULL, ATTEMPT_TERMINAL},
		    {"output", "SLURM_STDOUTMODE", ATTEMPT_MIXED},
		    {"error", "SLURM_STDERRMODE", ATTEMPT_MIXED},
		    {"unbuffered", "SLURM_UNBUFFEREDIO", ATTEMPT_MIXED}};

	launch->hidden = goes_to_file(launch, "output", "SLURM_STDOUTMODE");
	launch->to_files = launch->hidden || goes_to_file(launch, "error", "SLURM_STDERRMODE");
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		if (!is_said(launch, said[i].name, said[i].variable))
			continue;
		launch->output = said[i].output;
		if (!launch->options.text[RUN_OPTION_LOGS])
			return true;
		fprintf(stderr,
			"ddp-run: --logs %s: with srun's --%s nothing tells whose output is whose: leave one "
			"of them out\n",
			launch->options.text[RUN_OPTION_LOGS], said[i].name);
		return false;
	}
	launch->output = is_said(launch, "label", "SLURM_LABELIO") ? ATTEMPT_LABELS_STAY
			 : is_one_rank(launch)			   ? ATTEMPT_ONE_RANK
								   : ATTEMPT_LABELLED;
	return true;
}

/* Whether others go on where a rank fails: --kill-on-bad-exit=0, behind ours. */
static bool stays(struct launch *launch)
{
	const char *value = "";

	return is_given(launch, "kill-on-bad-exit", &value) && *value && atoi(value) == 0;
}

/* As a node that cannot start the program has it; NULL: that is not known. */
static const char *program_name(struct launch *launch)
{
	bool other = is_said(launch, "multi-prog", NULL) || is_said(launch, "bcast", "SLURM_BCAST");

	return other ? NULL : launch->words[launch->program];
}

/*
 * Files alone count, since each attempt that dies as it writes one leaves newer directories; and not those that by their names
 * have not been written to their end.
 */
static void find_newest(DIR *dir, int depth, double *newest)
{
	struct dirent *entry;

	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;
		struct stat st;
		DIR *below;
		int fd;

		if (name[0] == '.' || strstr(name, ".tmp") || strncmp(name, "tmp", 3) == 0 ||
		    fstatat(dirfd(dir), name, &st, 0) < 0)
			continue;
		if (!S_ISDIR(st.st_mode)) {
			if (ddp_date(&st.st_mtim) > *newest)
				*newest = ddp_date(&st.st_mtim);
			continue;
		}
		fd = depth > 0 ? openat(dirfd(dir), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
		below = fd >= 0 ? fdopendir(fd) : NULL;
		if (below) {
			find_newest(below, depth - 1, newest);
			closedir(below);
		} else if (fd >= 0) {
			close(fd);
		}
	}
}

/*
 * When the newest file in the directory that DDP_CHECKPOINT names was written; see struct run_past. If this node does not see that
 * directory, as an s3:// or one of another node, nothing is known of checkpoints. After an attempt that [failed] a line says so, once.
 */
static double newest_checkpoint(bool failed)
{
	static bool reported;
	const char *path = ddp_getenv("DDP_CHECKPOINT", NULL);
	DIR *dir = path ? opendir(path) : NULL;
	double newest = 0;

	if (!dir) {
		if (path && failed && !reported)
			fprintf(stderr,
				"ddp-run: cannot open DDP_CHECKPOINT %s on this node: %s: progress is judged by where attempts fail\n",
				path, strerror(errno));
		reported = reported || (path && failed);
		return -1;
	}
	find_newest(dir, CHECKPOINT_DEPTH, &newest);
	closedir(dir);
	return newest;
}

/* Whether the job is one that the options are for; where it will not do all that they promise a line says so. */
static bool look_at_job(struct launch *launch)
{
	const double *number = launch->options.number;
	bool requeue = number[RUN_OPTION_REQUEUE] != 0;
	bool lose = number[RUN_OPTION_MIN_NODES] > 0 || number[RUN_OPTION_SPARE_NODES] > 0;
	char *const show[] = {"scontrol", "show", "job", (char *)launch->job, NULL};
	struct ddp_text out = {.data = NULL};
	const char *said, *restarts;
	bool good, again;
	int requeued;
	size_t size;

	if (!requeue && !lose)
		return true;
	said = evidence_run(show, HELP_LIMIT, &out) == 0 && out.data ? out.data : "";
	/* A job that is submitted from a requeued one has the variable of that one. */
	restarts = nodes_field(said, "Restarts", &size);
	requeued = atoi(size > 0 ? restarts : ddp_getenv("SLURM_RESTART_COUNT", NULL) ?: "0");
	good = !requeue || can_requeue(launch->job, said);
	again = good && requeue &&
		run_may_requeue(requeued, (int)number[RUN_OPTION_MAX_REQUEUES],
				newest_checkpoint(false), nodes_date(said, "SubmitTime"),
				nodes_seconds(said, "TimeLimit"));
	if (good && requeue && !again)
		fprintf(stderr,
			"ddp-run: job %s was requeued %d times, and DDP_CHECKPOINT has no checkpoint from the last time that it "
			"ran: it is not requeued again, see --max-requeues\n",
			launch->job, requeued);
	if (again) {
		find_requeue_id(launch, said);
		launch->signal_s = look_for_signal(launch->job, said);
	}
	if (good && lose)
		look_for_no_kill(launch->job, said);
	ddp_text_free(&out);
	return good;
}

/* --- Between attempts -------------------------------------------------------------------------- */

/* Of nodes that were bad those that still do not answer. */
static struct node_list still_silent(const struct launch *launch, const struct node_list *nodes,
				     const struct node_list *last)
{
	struct nodes_answers said = {.with_ranks = 0};
	struct node_list doubtful = {.name = NULL};

	for (size_t i = 0; i < nodes->count; i++)
		if (nodes_have(&launch->bad, nodes->name[i]) && !nodes_have(last, nodes->name[i]))
			nodes_add(&doubtful, nodes->name[i]);
	if (doubtful.count > 0)
		nodes_probe(&doubtful, launch->job, "0", false, ANSWER_LIMIT, &said);
	nodes_free(&doubtful);
	nodes_free(&said.unasked);
	return said.silent;
}

/*
 * Add to [reserved] the nodes on which other steps of the job run. A step that shares a node with the [last] attempt, as one that
 * watches all nodes, reserves none.
 */
static void find_reserved(const struct launch *launch, const struct node_list *last,
			  struct node_list *reserved)
{
	char *const show[] = {"scontrol", "-o", "show", "step", (char *)launch->job, NULL};
	struct ddp_text out = {.data = NULL};

	(void)evidence_run(show, HELP_LIMIT, &out);
	for (char *rest = out.data, *line; (line = strsep(&rest, "\n"));) {
		size_t id_size, state_size, name_size, size;
		const char *id = nodes_field(line, "StepId", &id_size);
		const char *state = nodes_field(line, "State", &state_size);
		const char *name = nodes_field(line, "Name", &name_size);
		const char *field = nodes_field(line, "NodeList", &size);
		const char *dot = memchr(id, '.', id_size);
		struct node_list nodes = {.name = NULL};
		bool shares = false;
		char step[32];

		if (!dot || strncmp(state, "RUNNING", state_size) != 0 ||
		    (name_size == strlen(EVIDENCE_STEP) &&
		     strncmp(name, EVIDENCE_STEP, name_size) == 0))
			continue;
		snprintf(step, sizeof(step), "%.*s", (int)(id + id_size - dot - 1), dot + 1);
		if (strspn(step, "0123456789") != strlen(step) || nodes_have(&launch->steps, step))
			continue;
		nodes_expand(&nodes, field, size);
		for (size_t i = 0; i < nodes.count; i++)
			shares = shares || nodes_have(last, nodes.name[i]);
		for (size_t i = 0; i < nodes.count && !shares; i++)
			nodes_add(reserved, nodes.name[i]);
		nodes_free(&nodes);
	}
	ddp_text_free(&out);
}

/* Drop from [all] what is not in the last attempt and is no spare: nodes of other steps, and those that -w leaves out or -x names. */
static void drop_reserved(struct launch *launch, const struct node_list *last,
			  struct node_list *all)
{
	struct node_list reserved = {.name = NULL}, wanted = {.name = NULL}, left = {.name = NULL};
	const char *hosts = "", *excluded = "";
	/* A name with a slash is a file of names. */
	bool given = is_given(launch, "nodelist", &hosts), file = strchr(hosts, '/') != NULL;

	find_reserved(launch, last, &reserved);
	if (given && !file)
		nodes_expand(&wanted, hosts, strlen(hosts));
	if (is_given(launch, "exclude", &excluded) && !strchr(excluded, '/'))
		nodes_expand(&reserved, excluded, strlen(excluded));
	/* srun adds nodes to a list of fewer than it needs. */
	given = file || (given && wanted.count >= launch->first.count);
	for (size_t i = 0; i < all->count; i++) {
		const char *name = all->name[i];

		if (nodes_have(last, name) ||
		    (!nodes_have(&reserved, name) && (!given || nodes_have(&wanted, name))))
			nodes_add(&left, name);
	}
	nodes_free(&reserved);
	nodes_free(&wanted);
	nodes_free(all);
	*all = left;
}

/* Nodes for the next attempt: those that are left of the last, then others of the job; nodes to avoid come last. */
static struct node_list choose_nodes(struct launch *launch, const struct attempt *attempt)
{
	const struct node_list *last = attempt->nodes.count ? &attempt->nodes : &launch->next;
	char state[32];
	struct node_list all = ask_nodes(launch, state, &launch->avoid), usable = {.name = NULL},
			 silent;

	if (!*state) {
		fprintf(stderr,
			"ddp-run: Slurm does not say which nodes job %s has: those of the last attempt are taken\n",
			launch->job);
		for (size_t i = 0; i < last->count; i++)
			nodes_add(&all, last->name[i]);
	}
	drop_reserved(launch, last, &all);
	silent = still_silent(launch, &all, last);
	for (size_t i = 0; i < attempt->said.lost.count; i++) {
		fprintf(stderr, "ddp-run: node %s is lost\n", attempt->said.lost.name[i]);
		nodes_add(&launch->bad, attempt->said.lost.name[i]);
	}
	for (size_t i = 0; i < attempt->silent.count; i++)
		nodes_add(&launch->bad, attempt->silent.name[i]);
	for (int pass = 0; pass < 4; pass++)
		for (size_t i = 0; i < all.count; i++) {
			bool was_in = nodes_have(last, all.name[i]);

			if (was_in == (pass % 2 == 0) &&
			    nodes_have(&launch->avoid, all.name[i]) == (pass >= 2) &&
			    !nodes_have(&attempt->said.lost, all.name[i]) &&
			    !nodes_have(&attempt->silent, all.name[i]) &&
			    !nodes_have(&attempt->unable, all.name[i]) &&
			    !nodes_have(&silent, all.name[i]))
				nodes_add(&usable, all.name[i]);
		}
	nodes_free(&all);
	nodes_free(&silent);
	return usable;
}

/* Say to srun which nodes the next attempt has: the first [count] of [usable]. */
static void use_nodes(struct launch *launch, const struct node_list *usable, int count)
{
	nodes_free(&launch->next);
	for (int i = 0; i < count; i++)
		nodes_add(&launch->next, usable->name[i]);
	snprintf(launch->nodes_word, sizeof(launch->nodes_word), "--nodes=%d", count);
	if (launch->ranks > 0 && launch->ranks % (int)launch->first.count == 0)
		snprintf(launch->ranks_word, sizeof(launch->ranks_word), "--ntasks=%d",
			 launch->ranks / (int)launch->first.count * count);
	else if (launch->ranks > 0)
		snprintf(launch->ranks_word, sizeof(launch->ranks_word), "--ntasks=%d",
			 launch->ranks);
	free(launch->list_word);
	{
		struct ddp_text word = {.data = NULL};
		char *names = nodes_joined(&launch->next);

		ddp_text_add(&word, "--nodelist=%s", names);
		launch->list_word = word.data;
		free(names);
	}
}

/*
 * After an attempt whose nodes are all left: whether another node of the job is better than one of them. Then the next attempt
 * has the first attempt->nodes.count of [usable].
 */
static bool replace_nodes(struct launch *launch, const struct attempt *attempt, const char *bad,
			  struct node_list *usable)
{
	char state[32];
	struct node_list drained = {.name = NULL},
			 all = nodes_of_job(launch->job, state, sizeof(state), &drained);
	bool any = false;

	nodes_free(&all);
	for (size_t i = 0; i < drained.count; i++)
		nodes_add(&launch->avoid, drained.name[i]);
	if (bad)
		nodes_add(&launch->avoid, bad);
	for (size_t i = 0; i < attempt->nodes.count; i++)
		any = any || nodes_have(&launch->avoid, attempt->nodes.name[i]);
	if (!*state || !any) {
		nodes_free(&drained);
		return false;
	}
	any = false;
	*usable = choose_nodes(launch, attempt);
	for (size_t i = attempt->nodes.count; i < usable->count; i++) {
		const char *name = usable->name[i];

		if (!nodes_have(&attempt->nodes, name))
			continue;
		any = true;
		fprintf(stderr, "ddp-run: node %s is replaced: %s\n", name,
			nodes_have(&drained, name)
				? "Slurm has drained it"
				: "its ranks failed first in two attempts in a row");
	}
	nodes_free(&drained);
	return any;
}

/* Whether the number of nodes may change. */
static const char *why_fixed(struct launch *launch)
{
	const char *value;

	if (launch->ranks == 0 || launch->first.count == 0)
		return "Slurm did not say how many ranks there were";
	if (launch->ranks % (int)launch->first.count != 0)
		return "they had different numbers of ranks";
	if (is_given(launch, "multi-prog", &value))
		return "--multi-prog numbers the ranks";
	return NULL;
}

/* Whether [path] is a file, or will be one. */
static bool is_file(const char *path)
{
	struct stat there;

	return lstat(path, &there) < 0 || S_ISREG(there.st_mode);
}

/* A file is replaced at once; what is none, as /dev/stderr, a link or a pipe, is written to, and stays what it is. */
static int write_copy(const char *to, char *data, size_t size, struct ddp_error *error)
{
	struct iovec part = {data, size};
	struct stat there, ours;
	int fd = -1;

	if (is_file(to))
		return ddp_file_write(to, &part, 1, 0644, false, error);
	/* Opened anew, a file that is our own output would be written to from its beginning. */
	for (int i = STDOUT_FILENO; i <= STDERR_FILENO && fd < 0 && stat(to, &there) == 0; i++)
		if (fstat(i, &ours) == 0 && ours.st_dev == there.st_dev &&
		    ours.st_ino == there.st_ino)
			fd = fcntl(i, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0644);
	if (fd < 0 || ddp_file_write_all(fd, data, size) < 0) {
		int status = ddp_error_errno(error, DDP_ERR_FILE, "cannot write %s", to);

		if (fd >= 0)
			close(fd);
		return status;
	}
	close(fd);
	return 0;
}

static void copy_report(const char *dir, const char *to)
{
	char path[PATH_MAX + 16], *data = NULL;
	struct ddp_error error;
	size_t size;
	int status;

	snprintf(path, sizeof(path), "%s/report.json", dir);
	status = ddp_file_read(path, 64u << 20, &data, &size, &error);
	if (status == 0)
		status = write_copy(to, data, size, &error);
	if (status != 0)
		fprintf(stderr, "ddp-run: --report %s: %s\n", to,
			status < 0 ? error.text : "there is no report to copy");
	free(data);
}

/* Told after each attempt that failed, and where there is no directory for a report in a line. */
static void tell(const struct attempt_plan *plan, struct attempt *attempt,
		 const struct attempt_next *next, FILE *screen)
{
	struct ddp_error error;

	attempt_tell(plan, attempt, next);
	if (attempt->dir[0]) {
		if (ddp_verdict_write(attempt->dir, screen, &error) < 0 && screen)
			fprintf(stderr, "ddp-run: %s\n", error.text);
		return;
	}
	if (screen && attempt->step[0])
		fprintf(screen, "ddp-run: step %s.%s ended with status %d (%s): %s\n", attempt->job,
			attempt->step, attempt->status, run_end_name(attempt->end),
			next->decision->why);
}

/* An attempt that failed, and what came next, to be told again when that has begun. */
struct told {
	struct attempt_plan plan;
	struct attempt attempt;
	struct attempt_next *next;
	const char *report; /* where a copy goes; NULL: nowhere */
};

static void tell_later(void *data, double began)
{
	struct told *last = data;

	if (!last->attempt.dir[0])
		return;
	last->next->after = began - last->attempt.ended;
	tell(&last->plan, &last->attempt, last->next, NULL);
	if (last->report && is_file(last->report))
		copy_report(last->attempt.dir, last->report);
}

/*
 * A refusal that nodes which are gone explain is a lost node; on the first attempt it is the user's. Returns whether another one may
 * pass, as where slurmctld starts again: then it says nothing of the command, which has passed before.
 */
static bool look_again(const struct launch *launch, struct attempt *attempt, int number)
{
	const struct node_list *last = launch->next.count ? &launch->next : &launch->first;
	struct node_list all;
	bool gone = false;
	char state[32];

	if (attempt->end != RUN_END_REFUSED || attempt->said.not_found || number == 0)
		return false;
	all = ask_nodes(launch, state, NULL);
	for (size_t i = 0; i < last->count; i++)
		gone = gone || !nodes_have(&all, last->name[i]);
	nodes_free(&all);
	if (*state && gone)
		attempt->end = RUN_END_NODE;
	return attempt->end == RUN_END_REFUSED && (!*state || strcmp(state, "RUNNING") == 0);
}

/*
 * A program that only some nodes of the attempt cannot start is missing there: these nodes are bad, if the job has enough others.
 * The tasks there exit with the error number of execve(); slurmstepd's message names the node in some releases only.
 */
static void look_for_unable(struct launch *launch, struct attempt *attempt)
{
	int least = (int)launch->options.number[RUN_OPTION_MIN_NODES];
	const struct srun_said *said = &attempt->said;
	struct node_list usable;
	char *names;

	if (attempt->end != RUN_END_REFUSED || !said->not_found)
		return;
	for (size_t i = 0; i < said->count; i++)
		if (said->task[i].how == FACTS_EXIT && said->task[i].code == said->task[0].code)
			nodes_add(&attempt->unable, said->task[i].node);
	if (attempt->unable.count == 0 || attempt->unable.count >= attempt->nodes.count)
		return;
	usable = choose_nodes(launch, attempt);
	if ((int)usable.count >= (least ? least : (int)launch->first.count)) {
		names = nodes_joined(&attempt->unable);
		fprintf(stderr, "ddp-run: the program cannot be started on %s\n", names);
		free(names);
		for (size_t i = 0; i < attempt->unable.count; i++)
			nodes_add(&launch->avoid, attempt->unable.name[i]);
		attempt->end = RUN_END_NODE;
	}
	nodes_free(&usable);
}

/* Let some time go by after a refusal, the more the more there were in a row. */
static void wait_after_refusal(const struct run_past *past, const struct run_past *now)
{
	int wait = REFUSED_WAIT;

	while (now > past && (--now)->again)
		wait *= 2;
	fprintf(stderr, "ddp-run: the step was refused: it is tried again in %d s\n", wait);
	attempt_wait(wait);
}

/* --- The attempts ------------------------------------------------------------------------------ */

static struct run_decision decide(struct launch *launch, const struct run_rules *rules,
				  const struct run_past *past, int count,
				  const struct attempt *attempt, struct node_list *usable)
{
	int wanted = (int)launch->first.count;
	struct run_nodes nodes = {.wanted = wanted, .usable = wanted};

	if (attempt->end == RUN_END_NODE) {
		*usable = choose_nodes(launch, attempt);
		nodes.usable = (int)usable->count;
		nodes.why = why_fixed(launch);
		nodes.fixed = nodes.why != NULL;
	}
	return run_decide(rules, past, count, &nodes);
}

static int run(struct launch *launch)
{
	const struct run_options *options = &launch->options;
	struct run_rules rules = {.restarts = (int)options->number[RUN_OPTION_RESTARTS],
				  .min_nodes = (int)options->number[RUN_OPTION_MIN_NODES],
				  .requeue = launch->requeue_id[0] != '\0'};
	struct run_past past[RUN_SAME];
	struct attempt_plan plan = {
		.command = launch->words,
		.restarts = rules.restarts,
		.run_id = launch->job,
		.hang = options->text[RUN_OPTION_HANG] ? options->number[RUN_OPTION_HANG] : -1,
		.grace = options->number[RUN_OPTION_GRACE],
		.logs = options->text[RUN_OPTION_LOGS],
		.stays = stays(launch),
		.program = program_name(launch),
		.output = launch->output,
		.hidden = launch->hidden || launch->output == ATTEMPT_TERMINAL};
	off_t input = lseek(STDIN_FILENO, 0, SEEK_CUR);
	bool append = launch->to_files && !is_said(launch, "open-mode", "SLURM_OPEN_MODE");
	struct attempt_next next = {.after = -1};
	struct told last = {.next = &next, .report = options->text[RUN_OPTION_REPORT]};
	struct run_decision decision;

	if (plan.grace > 0 && plan.grace > attempt_kill_wait())
		fprintf(stderr,
			"ddp-run: --grace %s: where a rank fails Slurm kills the others after its KillWait of %.0f s\n",
			options->text[RUN_OPTION_GRACE], attempt_kill_wait());
	if (plan.hang > 0 && launch->to_files && !launch->hidden)
		fprintf(stderr,
			"ddp-run: --hang %s: srun writes stderr to a file, where ddp-run does not see it: only stdout and heartbeats "
			"count, see DDP_HEARTBEAT in ddp(7)\n",
			options->text[RUN_OPTION_HANG]);
	if (plan.hang > 0 && launch->hidden)
		fprintf(stderr,
			"ddp-run: --hang %s: srun writes output to a file, where ddp-run does not see it: only heartbeats count, see "
			"DDP_HEARTBEAT in ddp(7), and without one no hang is noticed\n",
			options->text[RUN_OPTION_HANG]);
	for (int number = 0;; number++) {
		bool failed;
		struct node_list usable = {.name = NULL};
		struct run_past *now = &past[number < RUN_SAME ? number : RUN_SAME - 1];
		struct attempt attempt;
		struct ddp_error error;

		plan.argv = srun_words(launch, append && number > 0);
		plan.number = number;
		attempt_run(&plan, &attempt);
		free(plan.argv);
		launch->overlap |= attempt.left;
		attempt_free(&last.attempt);
		nodes_add(&launch->steps, attempt.step);
		if (launch->first.count == 0) {
			launch->ranks = attempt.ranks;
			for (size_t i = 0; i < attempt.nodes.count; i++)
				nodes_add(&launch->first, attempt.nodes.name[i]);
		}
		if (number >= RUN_SAME)
			memmove(past, past + 1, sizeof(past) - sizeof(*past));
		failed = attempt.end == RUN_END_EXIT || attempt.end == RUN_END_SIGNAL ||
			 attempt.end == RUN_END_HANG || attempt.end == RUN_END_STEP_LIMIT;
		*now = (struct run_past){.end = attempt.end,
					 .status = attempt.status,
					 .forced = attempt.said.forced,
					 .left = attempt.time_left,
					 .saved = newest_checkpoint(failed)};
		look_for_unable(launch, &attempt);
		now->again = look_again(launch, &attempt, number);
		now->end = attempt.end;
		if (attempt.dir[0] && attempt.end != RUN_END_GOOD &&
		    ddp_verdict_point(attempt.dir, now->point, sizeof(now->point), now->node,
				      sizeof(now->node), &error) < 0)
			now->point[0] = '\0';
		decision = decide(launch, &rules, past, number + 1, &attempt, &usable);
		if (decision.act == RUN_RESTART && now->again)
			wait_after_refusal(past, now);
		next = (struct attempt_next){.decision = &decision, .after = -1};
		if (decision.act != RUN_STOP && attempt_told(&now->end))
			decision = run_decide(&rules, past, number + 1, &(struct run_nodes){0});
		if (decision.act == RUN_RESTART && attempt.end == RUN_END_NODE &&
		    decision.nodes > 0) {
			use_nodes(launch, &usable, decision.nodes);
			launch->overlap = true;
			next.nodes = &launch->next;
		} else if (decision.act == RUN_RESTART && attempt.end != RUN_END_REFUSED &&
			   attempt.nodes.count > 0 && !is_said(launch, "relative", NULL) &&
			   replace_nodes(launch, &attempt, run_bad_node(past, number + 1),
					 &usable)) {
			use_nodes(launch, &usable, (int)attempt.nodes.count);
			next.nodes = &launch->next;
		} else if (decision.act == RUN_RESTART && launch->overlap &&
			   attempt.nodes.count > 0 && !is_said(launch, "relative", NULL)) {
			/* With --overlap srun may choose the nodes of another step. */
			use_nodes(launch, &attempt.nodes, (int)attempt.nodes.count);
		}
		if (attempt.end == RUN_END_STOPPED)
			fprintf(stderr, "ddp-run: step %s.%s stopped on request: %s\n", attempt.job,
				attempt.step, attempt.stopped);
		if (attempt.end == RUN_END_GOOD || attempt.end == RUN_END_STOPPED) {
			if (attempt.dir[0])
				ddp_evidence_discard(attempt.dir);
		} else {
			tell(&plan, &attempt, &next, stderr);
			if (attempt.dir[0] && last.report)
				copy_report(attempt.dir, last.report);
		}
		nodes_free(&usable);
		last.attempt = attempt;
		if (decision.act != RUN_RESTART)
			break;
		last.plan = plan;
		plan.on_step = tell_later;
		plan.data = &last;
		if (input >= 0)
			(void)lseek(STDIN_FILENO, input, SEEK_SET);
	}
	if (decision.act == RUN_REQUEUE)
		attempt_requeue();
	attempt_free(&last.attempt);
	return decision.status;
}

int main(int argc, char **argv)
{
	struct launch launch = {.words = NULL};
	const char *dir, *launcher;
	int status;

	if (argc > 1 && strcmp(argv[1], "--gather") == 0)
		return ddp_evidence_main(argc, argv);
	if (argc > 1 && (strcmp(argv[1], "--look") == 0 || strcmp(argv[1], "--sweep") == 0))
		return ddp_evidence_look_main(argc, argv);
	status = run_options_parse(&launch.options, argv);
	if (status >= 0)
		return status;
	dir = launch.options.text[RUN_OPTION_EXPLAIN];
	if (dir) {
		struct ddp_error error;

		status = ddp_verdict_explain(dir, stdout, &error);
		if (status < 0)
			fprintf(stderr, "ddp-run: %s\n", error.text);
		return status < 0 ? 1 : 0;
	}
	launch.words = launch.options.rest;
	while (launch.words[launch.words_count])
		launch.words_count++;
	if (is_in_step()) {
		fprintf(stderr,
			"ddp-run: this is a task of step %s of job %s already: start ddp-run as you "
			"would start srun, in a batch script or under salloc\n",
			getenv("SLURM_STEP_ID"), getenv("SLURM_JOB_ID"));
		return EXIT_USAGE;
	}
	launcher = evidence_launcher();
	if (launcher) {
		fprintf(stderr,
			"ddp-run: this is a rank of another launcher already, as %s says: start ddp-run as "
			"you would start srun, in a batch script or under salloc\n",
			launcher);
		return EXIT_USAGE;
	}
	if (!find_program(&launch))
		return EXIT_USAGE;
	if (is_heterogeneous(&launch)) {
		fputs("ddp-run: srun does not tell which rank of a heterogeneous step fails: use "
		      "--multi-prog instead, or srun --ddp\n",
		      stderr);
		return EXIT_USAGE;
	}
	launch.job = ddp_getenv("SLURM_JOB_ID", "SLURM_JOBID", NULL);
	(void)is_given(&launch, "jobid", &launch.job);
	if (!launch.job)
		return run_in_allocation(&launch, argv);
	if (!look_at_job(&launch))
		return EXIT_USAGE;
	attempt_begin(launch.job, launch.requeue_id[0] ? launch.requeue_id : NULL, launch.signal_s);
	if (!choose_output(&launch) || !set_spares_aside(&launch))
		return EXIT_USAGE;
	status = run(&launch);
	free(launch.srun.option);
	free(launch.list_word);
	nodes_free(&launch.first);
	nodes_free(&launch.next);
	nodes_free(&launch.bad);
	nodes_free(&launch.steps);
	nodes_free(&launch.avoid);
	return status;
}
