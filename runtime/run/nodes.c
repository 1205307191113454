/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.c - run Slurm's commands, parse lists of nodes, and probe nodes with steps */
#include "config.h"

#include "nodes.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/command.h"
#include "base/settings.h"
#include "base/xalloc.h"
#include "patterns.h"

extern char **environ;

enum {
	PROBES = 64,		/* number of nodes probed at the same time */
	OUTPUT_LIMIT = 1 << 18, /* bytes of a command's output */
	NODE_OUTPUT = 1 << 13,	/* additional bytes for each node on which the command runs */
	STATE_SIZE = 8192,	/* maximum bytes of scontrol's line about a node */
	ASK_LIMIT = 10		/* seconds for slurmctld to answer */
};

/* --- Commands ------------------------------------------------------------------------------ */

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/*
 * Whether [variable] is removed from the environment of a command. Variables of slurm-ddp are
 * always removed. With [requests], Slurm's variables are removed, too, except those that locate
 * Slurm. Otherwise srun would repeat requests such as SLURM_NTASKS_PER_GPU, and refuse to start a
 * step beside the user's step.
 */
static bool is_dropped(const char *variable, bool requests)
{
	static const char *const kept[] = {
		"SLURM_CONF=",	  "SLURM_CLUSTER_NAME=", "SLURM_WORKING_CLUSTER=",
		"SLURM_STEPMGR=", "SLURM_HET_SIZE=",	 "SLURM_JWT=",
		"SLURM_SACK_"};

	if (begins(variable, "SLURM_DDP") || strstr(variable, "SPANK_OPTION_ddp"))
		return true;
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (begins(variable, kept[i]))
			return false;
	return requests && (begins(variable, "SLURM_") || begins(variable, "SRUN_"));
}

static void drop_variables(bool requests)
{
	for (size_t i = 0; environ[i];) {
		char name[256];

		if (!is_dropped(environ[i], requests) ||
		    snprintf(name, sizeof(name), "%.*s", (int)strcspn(environ[i], "="),
			     environ[i]) >= (int)sizeof(name) ||
		    unsetenv(name) < 0)
			i++;
	}
}

static void drop_ours(void)
{
	drop_variables(false);
}

void nodes_drop_requests(void)
{
	drop_variables(true);
}

static int run_command(char *const argv[], double limit, size_t most, void (*prepare)(void),
		       struct ddp_text *out)
{
	const struct ddp_command how = {
		.limit = limit,
		.grace = 1, /* seconds for srun to end its step after SIGTERM */
		.most = most,
		.merged = true,
		.prepare = prepare,
	};
	struct ddp_command_said said;

	ddp_command_run(argv, &how, &said);
	if (said.out.data)
		ddp_text_put(out, said.out.data, said.out.size);
	ddp_command_said_free(&said);
	return said.timed_out ? -1 : said.status;
}

int nodes_run(char *const argv[], double limit, struct ddp_text *out)
{
	return run_command(argv, limit, OUTPUT_LIMIT, drop_ours, out);
}

const char *nodes_field(const char *answer, const char *key, size_t *size)
{
	size_t length = strlen(key);
	/*
	 * The user chooses JobName. Skip it, since it can contain "JobState=". UserId follows it.
	 */
	const char *name = strstr(answer, " JobName="),
		   *next = name ? strstr(name, " UserId=") : NULL;

	for (const char *at = answer; (at = strstr(at, key)); at += length) {
		if ((at != answer && at[-1] != ' ' && at[-1] != '\n') || at[length] != '=' ||
		    (name && at > name + 1 && next && at < next))
			continue;
		at += length + 1;
		*size = strcspn(at, " \n");
		return at;
	}
	*size = 0;
	return "";
}

double nodes_seconds(const char *answer, const char *key)
{
	size_t size;
	const char *field = nodes_field(answer, key, &size), *dash = memchr(field, '-', size);
	int hours, minutes, seconds;

	if (sscanf(dash ? dash + 1 : field, "%d:%d:%d", &hours, &minutes, &seconds) != 3)
		return INFINITY;
	return (dash ? atoi(field) : 0) * 86400.0 + hours * 3600.0 + minutes * 60.0 + seconds;
}

double nodes_date(const char *answer, const char *key)
{
	struct tm date = {.tm_isdst = -1};
	size_t size;

	return strptime(nodes_field(answer, key, &size), "%Y-%m-%dT%H:%M:%S", &date)
		       ? (double)mktime(&date)
		       : 0;
}

/* --- Lists --------------------------------------------------------------------------------- */

void nodes_add(struct node_list *list, const char *name)
{
	char(*more)[FACTS_NAME];

	if (nodes_have(list, name))
		return;
	more = realloc(list->name, (list->count + 1) * sizeof(*more));
	if (!more)
		return;
	list->name = more;
	snprintf(list->name[list->count++], FACTS_NAME, "%s", name);
}

void nodes_add_all(struct node_list *list, const struct node_list *more)
{
	for (size_t i = 0; i < more->count; i++)
		nodes_add(list, more->name[i]);
}

bool nodes_have(const struct node_list *list, const char *name)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->name[i], name) == 0)
			return true;
	return false;
}

bool nodes_have_any(const struct node_list *list, const struct node_list *names)
{
	for (size_t i = 0; i < names->count; i++)
		if (nodes_have(list, names->name[i]))
			return true;
	return false;
}

void nodes_free(struct node_list *list)
{
	free(list->name);
	*list = (struct node_list){.name = NULL};
}

char *nodes_joined(const struct node_list *list)
{
	char *text = ddp_xcalloc(list->count + 1, FACTS_NAME + 1, "names of nodes");
	char *at = text;

	for (size_t i = 0; i < list->count; i++)
		at += sprintf(at, "%s%s", i ? "," : "", list->name[i]);
	return text;
}

void nodes_expand(struct node_list *list, const char *hosts, size_t size)
{
	struct ddp_text names = {.data = NULL}, out = {.data = NULL};
	bool simple = !memchr(hosts, '[', size);

	ddp_text_put(&names, hosts, size);
	if (!simple) {
		char *const argv[] = {"scontrol", "show", "hostnames", names.data, NULL};

		if (nodes_run(argv, ASK_LIMIT, &out) != 0)
			ddp_text_clear(&out);
	}
	for (char *rest = simple ? names.data : out.data, *name; (name = strsep(&rest, ",\n"));)
		if (*name)
			nodes_add(list, name);
	ddp_text_free(&out);
	ddp_text_free(&names);
}

/* Whether no step can run on a node in this state, such as "DOWN*" or "IDLE+NOT_RESPONDING". */
static bool is_gone(const char *state, size_t size)
{
	static const char *const gone[] = {"DOWN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "*"};

	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		if (memmem(state, size, gone[i], strlen(gone[i])))
			return true;
	return false;
}

/*
 * Parse scontrol's [lines] about nodes. The job's nodes on which steps can run are added to [left],
 * and the drained ones among them also to [drained]. Other nodes are added to both [gone] and
 * [left], unless [gone] is NULL.
 */
static void read_states(const struct node_list *of_job, struct node_list *left,
			struct node_list *drained, struct node_list *gone, char *lines)
{
	for (char *line; (line = strsep(&lines, "\n"));) {
		size_t name_length, state_length;
		const char *name = nodes_field(line, "NodeName", &name_length);
		const char *state = nodes_field(line, "State", &state_length);
		char copy[FACTS_NAME];

		snprintf(copy, sizeof(copy), "%.*s", (int)name_length, name);
		if (name_length == 0 || (is_gone(state, state_length) && !gone))
			continue;
		if (is_gone(state, state_length))
			nodes_add(gone, copy);
		else if (!nodes_have(of_job, copy))
			continue;
		nodes_add(left, copy);
		if (drained && memmem(state, state_length, "DRAIN", strlen("DRAIN")))
			nodes_add(drained, copy);
	}
}

struct node_list nodes_of_job(const char *job, char *state, size_t size, struct node_list *drained,
			      struct node_list *gone)
{
	char *const ask_job[] = {"scontrol", "-o", "show", "job", (char *)job, NULL};
	struct ddp_text out = {.data = NULL}, names = {.data = NULL}, states = {.data = NULL};
	struct node_list all = {.name = NULL}, left = {.name = NULL};
	const char *own = ddp_getenv("SLURM_JOB_ID", "SLURM_JOBID", NULL);
	const char *began = ddp_getenv("SLURM_JOB_NODELIST", "SLURM_NODELIST", NULL);
	const char *field;
	size_t length;

	snprintf(state, size, "%s", "");
	if (nodes_run(ask_job, ASK_LIMIT, &out) == 0 && out.data) {
		field = nodes_field(out.data, "JobState", &length);
		snprintf(state, size, "%.*s", (int)length, field);
		field = nodes_field(out.data, "NodeList", &length);
		/*
		 * If a node is down, Slurm removes it from a job with --no-kill. Such nodes are
		 * still in the job's original list, so query them, too.
		 */
		if (gone && own && strcmp(own, job) == 0 && began)
			ddp_text_add(&names, "%s,", began);
		ddp_text_put(&names, field, length);
		if (length > 0 && strncmp(field, "(null)", 6) != 0)
			nodes_expand(&all, field, length);
	}
	if (all.count > 0) {
		/*
		 * Pass Slurm's compressed list, because a list of all names may be too long for an
		 * argument.
		 */
		char *const ask_nodes[] = {"scontrol", "-o", "show", "node", names.data, NULL};

		if (run_command(ask_nodes, ASK_LIMIT, (all.count + 1) * STATE_SIZE, drop_ours,
				&states) == 0)
			read_states(&all, &left, drained, gone, states.data);
		else
			snprintf(state, size, "%s", "");
	}
	ddp_text_free(&out);
	ddp_text_free(&names);
	ddp_text_free(&states);
	nodes_free(&all);
	return left;
}

/* --- Steps of ddp-run ---------------------------------------------------------------------- */

/*
 * Get the path of ddp-run's executable, which is the same on all nodes. Returns false if it is
 * unknown.
 */
static bool find_self(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);

	if (n >= 0)
		path[n] = '\0';
	return n >= 0;
}

bool nodes_find_beside(const char *name, char *path, size_t size)
{
	char self[PATH_MAX];
	char *slash = find_self(self, sizeof(self)) ? strrchr(self, '/') : NULL;

	return slash &&
	       (size_t)snprintf(path, size, "%.*s/%s", (int)(slash - self), self, name) < size;
}

/*
 * Returns the job for srun's --jobid: [job], but for a later component of a heterogeneous job the
 * first component. Then sets [group] to the option of srun that selects the later component.
 */
static const char *find_leader(const char *job, char group[32])
{
	int size = atoi(ddp_getenv("SLURM_HET_SIZE", NULL) ?: "0");
	const char *id = NULL;

	group[0] = '\0';
	for (int i = 1; i < size && !group[0]; i++) {
		id = ddp_getenv(ddp_show("SLURM_JOB_ID_HET_GROUP_%d", i).text, NULL);
		if (id && strcmp(id, job) == 0)
			snprintf(group, 32, "--het-group=%d", i);
	}
	id = group[0] ? ddp_getenv("SLURM_JOB_ID", "SLURM_JOBID", NULL) : NULL;
	return id ? id : job;
}

/*
 * Start a new step of [job] that runs ddp-run with [arguments], a NULL-terminated list, once on
 * each of the [nodes], such as "n1,n2". Unless [script] is NULL, the step runs it in /bin/sh, with
 * this command line as "$0" "$@". [loud] is srun's option -Q or -v. Returns the result of
 * nodes_run(), or 127 if the path of ddp-run is unknown.
 */
static int run_on_nodes(const char *loud, const char *job, const char *nodes, const char *script,
			const char *const arguments[], double limit, struct ddp_text *out)
{
	char of[64], at[32], count[32], group[32], self[PATH_MAX];
	char *argv[32] = {"srun",	  (char *)loud,		 of,
			  "--overlap",	  "--gres=none",	 "--mpi=none",
			  "--input=none", "--cpu-bind=none",	 "--kill-on-bad-exit=0",
			  "--wait=0",	  "--export=ALL",	 at,
			  count,	  "--ntasks-per-node=1", "--job-name=" NODES_STEP,
			  "-w",		  (char *)nodes};
	size_t words = 0;
	unsigned names = 1;

	if (!find_self(self, sizeof(self)))
		return 127;
	for (const char *p = nodes; *p; p++)
		names += *p == ',';
	snprintf(of, sizeof(of), "--jobid=%.40s", find_leader(job, group));
	snprintf(at, sizeof(at), "--nodes=%u", names);
	snprintf(count, sizeof(count), "--ntasks=%u", names);
	while (argv[words])
		words++;
	if (group[0])
		argv[words++] = group;
	if (script) {
		argv[words++] = "/bin/sh";
		argv[words++] = "-c";
		argv[words++] = (char *)script;
	}
	argv[words++] = self;
	while (*arguments && words + 1 < sizeof(argv) / sizeof(argv[0]))
		argv[words++] = (char *)*arguments++;
	return run_command(argv, limit, OUTPUT_LIMIT + names * NODE_OUTPUT, nodes_drop_requests,
			   out);
}

int nodes_gather(const char *dir, const char *job, const char *step, const char *nodes,
		 double limit, struct ddp_error *error)
{
	const struct ddp_shown seconds = ddp_show("%.1f", limit * 0.8);
	const char *const arguments[] = {"--gather", dir, job, step, seconds.text, NULL};
	struct ddp_text out = {.data = NULL};
	int status = run_on_nodes("-Q", job, nodes, NULL, arguments, limit, &out);

	if (status == -1)
		status = ddp_error_set(
			error, DDP_ERR_TIMEOUT,
			"not all of the nodes %.200s reported on their ranks within %g s", nodes,
			limit);
	else if (status != 0)
		status = ddp_error_set(error, DDP_ERR_SYSTEM,
				       "srun on nodes %.200s ended with exit status %d: %.500s",
				       nodes, status, out.data ? out.data : "");
	ddp_text_free(&out);
	return status;
}

bool nodes_find_programs(const char *job, const char *step, const char *nodes, const char *ranks,
			 double limit, struct nodes_programs *programs)
{
	const struct ddp_shown seconds = ddp_show("%.1f", limit * 0.8);
	const char *const arguments[] = {"--programs", job, step, ranks, seconds.text, NULL};
	struct ddp_text out = {.data = NULL};
	size_t lines = 1; /* number of lines; the last one may lack a newline */
	int status = run_on_nodes("-Q", job, nodes, NULL, arguments, limit, &out);
	char *rest;

	programs->count = 0;
	for (size_t i = 0; i < out.size; i++)
		lines += out.data[i] == '\n';
	programs->all = ddp_xcalloc(lines + 1, sizeof(*programs->all), "programs of ranks");
	rest = out.data;
	for (char *line; (line = strsep(&rest, "\n"));) {
		struct nodes_program *at = &programs->all[programs->count];

		programs->count += sscanf(line, NODES_PROGRAM_OUT, &at->rank, &at->pid,
					  &at->written, &at->place) == 4;
	}
	ddp_text_free(&out);
	return status == 0;
}

bool nodes_have_written(const struct nodes_programs *before, const struct nodes_programs *after,
			int *rank)
{
	for (size_t i = 0; i < before->count; i++)
		for (size_t k = 0; k < after->count; k++)
			if (after->all[k].rank == before->all[i].rank &&
			    after->all[k].pid == before->all[i].pid &&
			    after->all[k].written > before->all[i].written) {
				*rank = after->all[k].rank;
				return true;
			}
	return false;
}

enum answer { HAS_NONE, HAS_RANKS, IS_SILENT, IS_UNASKED };

struct probe {
	const struct node_list *nodes;
	const char *job, *step;
	bool kill;
	double limit;
	atomic_size_t next;
	struct {
		enum answer answer;
		char why[256];
	} * result; /* one for each node */
};

/*
 * Whether srun -v could not reach the node: Slurm created the step, but srun did not connect.
 * [text] is srun's output. With [ended], ddp-run ended srun. Sets [why] to srun's last error.
 */
static bool is_missed(const char *text, bool ended, char *why, size_t size)
{
	struct pattern_part part[PATTERN_PARTS];
	bool missed = false;

	snprintf(why, size, "Slurm does not answer");
	for (const char *line = text, *end; *line; line = *end ? end + 1 : end) {
		enum pattern_meaning meaning;

		end = line + strcspn(line, "\n");
		meaning = pattern_find(PATTERN_SRUN, line, (size_t)(end - line), part);
		missed = missed || meaning == LINE_LAUNCH_FAILED || meaning == LINE_NODE_LOST ||
			 (ended && meaning == LINE_LAUNCHING);
		if (meaning == LINE_FATAL || begins(line, "srun: error: "))
			snprintf(why, size, "%.*s", (int)(end - line), line);
	}
	return missed;
}

static void probe_node(struct probe *probe, size_t i)
{
	const char *const arguments[] = {probe->kill ? "--sweep" : "--look", probe->job,
					 probe->step, NULL};
	struct ddp_text out = {.data = NULL};
	char script[64];
	int status;

	/*
	 * The script ends with 0 or NODES_NO_PROCESS. A node that cannot run ddp-run has answered,
	 * and may have processes of the step, so the status is 0.
	 */
	snprintf(script, sizeof(script), "\"$0\" \"$@\"; [ $? -ne %d ] || exit %d",
		 NODES_NO_PROCESS, NODES_NO_PROCESS);
	status = run_on_nodes("-v", probe->job, probe->nodes->name[i], script, arguments,
			      probe->limit, &out);
	if (status == NODES_NO_PROCESS)
		probe->result[i].answer = HAS_NONE;
	else if (status == 0)
		probe->result[i].answer = HAS_RANKS;
	else
		probe->result[i].answer =
			is_missed(out.data ? out.data : "", status == -1, probe->result[i].why,
				  sizeof(probe->result[i].why))
				? IS_SILENT
				: IS_UNASKED;
	ddp_text_free(&out);
}

static void *probe_nodes(void *data)
{
	struct probe *probe = data;

	for (size_t i; (i = atomic_fetch_add(&probe->next, 1)) < probe->nodes->count;)
		probe_node(probe, i);
	return NULL;
}

/* Nodes that could not be probed because Slurm no longer starts steps on them count as silent. */
static void find_gone(const char *job, struct nodes_answers *answers)
{
	struct node_list unasked = answers->unasked, left = nodes_of_job(job, NULL, 0, NULL, NULL);

	if (left.count > 0) {
		answers->unasked = (struct node_list){.name = NULL};
		for (size_t i = 0; i < unasked.count; i++)
			nodes_add(nodes_have(&left, unasked.name[i]) ? &answers->unasked
								     : &answers->silent,
				  unasked.name[i]);
		nodes_free(&unasked);
	}
	nodes_free(&left);
}

void nodes_probe(const struct node_list *nodes, const char *job, const char *step, bool kill,
		 double limit, struct nodes_answers *answers)
{
	struct probe probe = {
		.nodes = nodes, .job = job, .step = step, .kill = kill, .limit = limit};
	size_t count = nodes->count < PROBES ? nodes->count : PROBES, started = 0;
	pthread_t threads[PROBES];

	probe.result = ddp_xcalloc(nodes->count + 1, sizeof(*probe.result), "probes");
	while (started < count && pthread_create(&threads[started], NULL, probe_nodes, &probe) == 0)
		started++;
	if (started == 0)
		probe_nodes(&probe);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < nodes->count; i++) {
		answers->with_ranks += probe.result[i].answer == HAS_RANKS;
		if (probe.result[i].answer == IS_SILENT)
			nodes_add(&answers->silent, nodes->name[i]);
		if (probe.result[i].answer != IS_UNASKED)
			continue;
		nodes_add(&answers->unasked, nodes->name[i]);
		memcpy(answers->why, probe.result[i].why, sizeof(answers->why));
	}
	free(probe.result);
	if (answers->unasked.count > 0)
		find_gone(job, answers);
}

void nodes_answers_free(struct nodes_answers *answers)
{
	nodes_free(&answers->silent);
	nodes_free(&answers->unasked);
}
