/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun.c - the plugin in srun, as the user: decides what all ranks must agree on
 *
 *   1. Before the step exists: read and check the options.
 *   2. When the step exists: find rank 0's node, choose the port, create the rendezvous directory,
 *      and pass all to the tasks in an environment variable, the channel.
 *   3. At the end: remove that directory.
 *
 * If --ddp fails here, the channel has the reason, and each task exits before the program starts.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurm_version.h>
#include <slurm/spank.h>

#include "context.h"
#include "contract.h"
#include "launch/format.h"
#include "launch/nodelist.h"
#include "launch/plan.h"
#include "launch/rendezvous.h"
#include "launch/starter.h"
#include "launch/step-choices.h"
#include "launch/task.h"
#include "slurmctl.h"

extern char **environ;

static struct {
	struct ddp_values values;
	struct ddp_message disabled; /* why the plugin is disabled; "" if it is not */
	struct ddp_channel channel;
	struct ddp_rendezvous rdzv;
	unsigned
		components; /* number of components of the step so far; more than 1 if it is heterogeneous */
	pid_t owner; /* pid of srun, since srun's children must not clean up */
	uid_t user;  /* user before the step exists; with --uid=USER, srun changes to USER later */
	int run;     /* descriptor for messages to ddp-run, or -1 */
} srun = {.rdzv.parent = -1, .run = -1};

/*
 * Check a directory early if its path is known already. Skipped for root, since --uid may change
 * the user later.
 */
static int check_directory(const char *directory, struct ddp_message *message)
{
	char cwd[DDP_PATH_SIZE / 2], path[DDP_PATH_SIZE];

	if (strchr(directory, '%') || geteuid() == 0)
		return 0;
	if (*directory == '/')
		return ddp_rendezvous_usable(directory, message);
	if (!getcwd(cwd, sizeof(cwd)) ||
	    ddp_format(path, sizeof(path), "%s/%s", cwd, directory) < 0)
		return 0;
	return ddp_rendezvous_usable(path, message);
}

/*
 * Called for each option. Everything that is possible is checked here, before the step exists,
 * because an error here ends srun even if plugstack.conf says "optional". A later error does not.
 */
static int on_option(int id, const char *argument, int remote)
{
	struct ddp_message message;

	if (remote)
		return 0;
	if (ddp_set_option(&srun.values, id, argument) < 0)
		return -1;
	if (id != DDP_OPT_RDZV || check_directory(srun.values.directory, &message) == 0)
		return 0;
	ddp_say_error("%s", message.text);
	return -1;
}

int ddp_srun_init(spank_t spank, int argc, char **argv)
{
	struct ddp_message message;

	ddp_values_init(&srun.values);
	srun.owner = getpid();
	if (ddp_values_from_plugstack(&srun.values, argc, argv, &message) < 0)
		ddp_fail(&srun.disabled,
			 "the plugin is disabled, because its line in plugstack.conf on this host "
			 "is wrong. Report this to your administrator: %s",
			 message.text);
	return ddp_register_options(spank, on_option);
}

/* Store the channel in the environment of the tasks. */
static int publish(void)
{
	char *text = malloc(DDP_CHANNEL_SIZE);
	int rv = -1;

	if (text && ddp_channel_encode(&srun.channel, text, DDP_CHANNEL_SIZE) == 0 &&
	    setenv(DDP_CHANNEL_NAME, text, 1) == 0)
		rv = 0;
	if (rv < 0)
		ddp_say_error("%s does not fit into the environment", DDP_CHANNEL_NAME);
	free(text);
	return rv;
}

/*
 * Report the reason why the step must not train, and store it in the channel. With "optional" in
 * plugstack.conf, Slurm starts the tasks in spite of the error. The tasks exit in task_init.
 */
static int refuse(const char *why)
{
	ddp_say_error("%s", why);
	(void)ddp_format(srun.channel.problem, sizeof(srun.channel.problem), "%s", why);
	/* Publish the channel now, because later components of a heterogeneous step inherit it. */
	(void)publish();
	return -1;
}

/* Warn about options that have no effect without --ddp. */
static void warn_ineffective_options(void)
{
	if (srun.values.source[DDP_OPT_DDP] == DDP_FROM_COMMAND)
		return; /* the user gave --no-ddp */
	for (int id = 0; id < DDP_OPT_COUNT; id++)
		if (id != DDP_OPT_DDP && srun.values.source[id] == DDP_FROM_COMMAND)
			ddp_say("--%s does nothing without --ddp",
				ddp_option((enum ddp_option_id)id)->option);
}

/* Returns HOME or, after srun --uid=USER, the home directory of USER. */
static const char *find_home(void)
{
	const struct passwd *pw = geteuid() == srun.user ? NULL : getpwuid(geteuid());

	return geteuid() == srun.user ? ddp_env_filled(environ, "HOME") : pw ? pw->pw_dir : NULL;
}

static void describe_self(struct ddp_channel *ch)
{
	ch->pid = (uint32_t)getpid();
	ch->began = ddp_process_began(ch->pid);
	srun.user = geteuid();
	if (gethostname(ch->from, sizeof(ch->from) - 1) < 0)
		ch->from[0] = '\0';
	ddp_step_find_user(ch, srun.values.directory);
}

static int begin(struct ddp_message *message)
{
	struct ddp_channel *ch = &srun.channel;

	if (srun.disabled.text[0])
		return ddp_fail(message, "%s", srun.disabled.text);
	ch->local_rank = srun.values.local_rank;
	ch->share = srun.values.share;
	ch->launcher_allowed = srun.values.launcher_allowed;
	ch->verbose = srun.values.verbose;
	describe_self(ch);
	if (ddp_step_draw_secrets(ch) < 0)
		return ddp_fail(message, "cannot draw random numbers: %s", strerror(errno));
	return ddp_step_choose_base(ch, srun.values.directory, find_home(), message);
}

/* --- With ddp-run: read its variables, and report to it ------------------------------------ */

/*
 * Read the variables that ddp-run set, then remove them from the environment, so that neither tasks
 * nor other sruns use them.
 */
static int read_run_variables(struct ddp_channel *ch, struct ddp_message *message)
{
	const char *fd = ddp_env_filled(environ, DDP_RUN_FD);
	uint64_t number;
	struct stat st;
	int rv = ddp_step_read_run(ch, environ, message);

	if (rv == 0 && ddp_parse_number(fd, 3, INT_MAX, &number) == 0 &&
	    fstat((int)number, &st) == 0 && (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode))) {
		srun.run = (int)number;
		(void)fcntl(srun.run, F_SETFD, FD_CLOEXEC);
	}
	ddp_step_drop_run();
	return rv;
}

static void report_to_run(const struct ddp_channel *ch)
{
	char text[2 * DDP_PATH_SIZE + 128];
	int n;

	if (srun.run < 0)
		return;
	n = snprintf(text, sizeof(text), "job %u\nstep %u\n", ch->job, ch->step);
	if (ch->failed[0])
		n += snprintf(text + n, sizeof(text) - (size_t)n, "failed %s\nrendezvous %s\n",
			      ch->failed, ch->directory);
	if (write(srun.run, text, (size_t)n) < 0)
		ddp_say("cannot report the step to ddp-run: %s", strerror(errno));
	/* srun's children share the descriptor; shutdown() ends ddp-run's read in spite of that. */
	(void)shutdown(srun.run, SHUT_WR);
	close(srun.run);
	srun.run = -1;
}

/*
 * Whether a word of srun's command line contains [text]. The words are checked because SPANK does
 * not report srun's own options. They include the arguments of the user's program.
 */
static bool has_argument(const char *text)
{
	FILE *file = fopen("/proc/self/cmdline", "re");
	bool found = false;
	size_t size = 0;
	char *word = NULL;

	while (file && !found && getdelim(&word, &size, '\0', file) > 0)
		found = strstr(word, text) != NULL;
	free(word);
	if (file)
		fclose(file);
	return found;
}

/* --- In a task of a --ddp step --------------------------------------------------------------- */

/*
 * Whether this srun runs in rank 0 of a --ddp step. A job that was submitted in a step inherits the
 * step's variables, but has another job id. Batch scripts and shells of salloc are no ranks.
 */
static bool is_in_rank0(void)
{
	const char *name = ddp_env_filled(environ, DDP_NAME(DDP_JOB));
	const char *rank = ddp_env_filled(environ, DDP_NAME(DDP_RANK));
	const char *job = ddp_env_filled(environ, "SLURM_JOB_ID");
	const char *step = ddp_env_filled(environ, "SLURM_STEP_ID");
	char end[64];
	size_t n;

	if (!name || !rank || strcmp(rank, "0") != 0 || !job || !step ||
	    ddp_format(end, sizeof(end), ".%s.%s", job, step) < 0)
		return false;
	n = strlen(name);
	return n > strlen(end) && strcmp(name + n - strlen(end), end) == 0;
}

/* Warn if this srun will wait, without a message, for CPUs of the step in which it runs. */
static void warn_nested_srun(void)
{
	if (is_in_rank0() && !getenv("SLURM_OVERLAP") && !has_argument("--overl") &&
	    !has_argument("--jobid"))
		ddp_say("this srun runs in a task of step %s.%s, and waits until CPUs of the job are "
			"free. The step keeps its CPUs until it ends. Write srun --overlap to share them.",
			ddp_env_get(environ, "SLURM_JOB_ID"),
			ddp_env_get(environ, "SLURM_STEP_ID"));
}

int ddp_srun_options_read(void)
{
	struct ddp_message message = {"the path of the working directory is too long"};
	struct ddp_message from_run = {""};
	int run_status = 0;

	/* Slurm calls this function once for each component of a heterogeneous step. */
	if (srun.components++ == 0) {
		/* In a batch script or a task, this can be the channel of an outer step. */
		unsetenv(DDP_CHANNEL_NAME);
		run_status = read_run_variables(&srun.channel, &from_run);
		warn_nested_srun();
	}
	if (ddp_values_from_env(&srun.values, environ, &message) < 0)
		return refuse(message.text);
	if (!srun.values.enabled) {
		warn_ineffective_options();
		return 0;
	}
	if (srun.components > 1)
		return refuse(
			"--ddp cannot be used in a heterogeneous step, which has several components. "
			"Start the program in one component.");
	/* Remove an outer step's value: Slurm sets none for a step without reserved ports. */
	unsetenv("SLURM_STEP_RESV_PORTS");
	if (run_status < 0)
		return refuse(from_run.text);
	if (begin(&message) < 0)
		return refuse(message.text);
	return 0;
}

/* --- After the step was created ------------------------------------------------------- */

/* Set the numbers and the cluster of the step. Returns 0, or -1 if this is not an ordinary step. */
static int identify(spank_t spank, struct ddp_channel *ch)
{
	const char *cluster = ddp_env_filled(environ, "SLURM_CLUSTER_NAME");

	if (spank_get_item(spank, S_JOB_ID, &ch->job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &ch->step) != ESPANK_SUCCESS ||
	    ch->step > SLURM_MAX_NORMAL_STEP_ID)
		return -1;
	if (!cluster)
		cluster = ddp_cluster_name();
	return ddp_format(ch->cluster, sizeof(ch->cluster), "%s", cluster ? cluster : "cluster");
}

/*
 * Whether rank 0 is certainly on the first node of [list], and the nodes' first tasks are in node
 * order. This is so if the step has all nodes of the job, with three exceptions: the user placed
 * the tasks; the topology places them (since Slurm 26.05); or the names in [list] are in another
 * order than the step's nodes, as after the job was shrunk or with SwitchAsNodeRank. [list] is the
 * job's SLURM_NODELIST, which srun has just set; SLURM_STEP_NODELIST would be an outer step's.
 */
static bool first_node_runs_rank0(spank_t spank, const char *list)
{
	const char *distribution = ddp_env_filled(environ, "SLURM_DISTRIBUTION");
	bool laid_out = SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0) ||
			(distribution && strncmp(distribution, "arbitrary", 9) == 0) ||
			ddp_env_filled(environ, "SLURM_HOSTFILE");
	uint32_t nodes = 0;

	return list && spank_get_item(spank, S_JOB_NNODES, &nodes) == ESPANK_SUCCESS && nodes > 0 &&
	       ddp_nodelist_count(list) == (long)nodes &&
	       (nodes == 1 || (!laid_out && ddp_nodelist_is_plain(list)));
}

/* Set the name of rank 0's node. Queries slurmctld only if the placement is unusual. */
static int find_node(spank_t spank, struct ddp_channel *ch, struct ddp_message *message)
{
	const char *list = ddp_env_filled(environ, "SLURM_NODELIST");

	if (first_node_runs_rank0(spank, list))
		return ddp_nodelist_nth(list, 0, ch->node, sizeof(ch->node));
	if (ddp_ask_first_node(ch->job, ch->step, ch->node, sizeof(ch->node), &ch->first_node) == 0)
		return 0;
	return ddp_fail(
		message,
		"slurmctld does not say which node runs rank 0 of step %u.%u. Start the step again.",
		ch->job, ch->step);
}

static int choose_address(struct ddp_channel *ch)
{
	char address[DDP_NAME_SIZE] = "";

	if (!srun.values.suffix[0])
		(void)ddp_ask_address(ch->node, address, sizeof(address));
	return ddp_address_choose(ch->node, address, srun.values.suffix, ch->address,
				  sizeof(ch->address));
}

/* Whether this srun runs on rank 0's node. This is possible in a batch script. */
static bool is_on_rank0s_node(const struct ddp_channel *ch)
{
	const char *own = ddp_env_filled(environ, "SLURMD_NODENAME");

	return own && strcmp(own, ch->node) == 0;
}

/*
 * If srun runs as root, check that the fixed part of the path rdzv= in plugstack.conf exists. root
 * would create it with mode 0700, and users could not enter it.
 */
static int check_site_directory(struct ddp_message *message)
{
	const char *template = srun.values.directory;
	char path[DDP_PATH_SIZE];
	struct stat st;

	if (srun.values.source[DDP_OPT_RDZV] != DDP_FROM_PLUGSTACK || *template != '/' ||
	    geteuid() != 0)
		return 0;
	ddp_template_fixed(template, path, sizeof(path));
	if (stat(path, &st) == 0 || errno != ENOENT)
		return 0;
	return ddp_fail(message,
			"%s does not exist, but rdzv=%s of plugstack.conf needs it. Make it, with "
			"mode 1777 if users make their own directories in it.",
			path, template);
}

static int choose_directory(struct ddp_channel *ch, struct ddp_message *message)
{
	struct ddp_template_values with = {.user = ch->user, .node = ch->node};
	char job[16], step[16], base[DDP_PATH_SIZE];

	if (geteuid() != srun.user) {
		ddp_step_find_user(ch, srun.values.directory);
		if (ddp_step_choose_base(ch, srun.values.directory, find_home(), message) < 0)
			return -1;
	}
	snprintf(job, sizeof(job), "%u", ch->job);
	snprintf(step, sizeof(step), "%u", ch->step);
	with.job = job;
	with.step = step;
	if (!ch->base[0])
		return ddp_fail(message, "srun's working directory is not known");
	if (!ch->base_asked)
		return ddp_rendezvous_make(&srun.rdzv, ch->base, ch, message);
	if (check_site_directory(message) < 0)
		return -1;
	if (ddp_template_expand(ch->base, &with, base, sizeof(base), message) < 0)
		return -1;
	return ddp_rendezvous_make(&srun.rdzv, base, ch, message);
}

/*
 * Create the rendezvous directory. If the user did not choose the directory, a failure is not an
 * error: one line reports it, and env:// works without a directory.
 */
static int make_directory(struct ddp_channel *ch, struct ddp_message *message)
{
	if (choose_directory(ch, message) == 0) {
		ddp_rendezvous_sweep(&srun.rdzv, ch, ddp_ask_step_ended);
		return 0;
	}
	if (ch->base_asked)
		return -1;
	(void)ddp_format(ch->no_directory, sizeof(ch->no_directory), "%s", message->text);
	return 0;
}

/*
 * Check whether the program starts ranks itself. If so, print a hint, or refuse the step. Sets
 * [is_launcher] to the result of ddp_is_launcher().
 */
static int check_program(spank_t spank, struct ddp_channel *ch, bool *is_launcher,
			 struct ddp_message *message)
{
	uint32_t tasks = 0, nodes = 0;
	struct ddp_message verdict_text = {""};
	enum ddp_verdict verdict;
	char **argv = NULL;
	int argc = 0;

	if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1 ||
	    !argv || spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_NNODES, &nodes) != ESPANK_SUCCESS)
		return 0;
	*is_launcher = ddp_is_launcher(argv[0]);
	ddp_step_read_program(ch, argv);
	verdict = ddp_starter_judge(argv, environ, tasks, nodes, ch->restarts_max, &verdict_text);
	/* Print a hint only in the first attempt, because all attempts start the same program. */
	if (verdict == DDP_VERDICT_TELL && ch->restart == 0)
		ddp_say("%s", verdict_text.text);
	if (verdict == DDP_VERDICT_REFUSE && !srun.values.launcher_allowed)
		return ddp_fail(message, "%s", verdict_text.text);
	return 0;
}

/*
 * Get the job's end and its attempt, and return whether it has shards. Query slurmctld only if
 * needed: for the end before Slurm 23.02, for shards, and for the attempt if the environment has
 * SLURM_RESTART_COUNT, since sbatch passes on the value of an outer job.
 */
static bool ask_job(struct ddp_channel *ch)
{
	struct ddp_job job = {0};

	if (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0) && !ddp_cluster_has_shards() &&
	    !ddp_env_filled(environ, "SLURM_RESTART_COUNT"))
		return false;
	if (ddp_ask_job(ch->job, &job) == 0 && job.end > 0)
		ch->end_time = (uint64_t)job.end;
	ch->attempt = job.restarts;
	return job.has_shards;
}

/* Set the number of shards per GPU, from Slurm or else from the administrator. */
static void find_shards(struct ddp_channel *ch)
{
	const char *list = ddp_env_filled(environ, "SLURM_NODELIST");
	int status = list ? ddp_ask_shards(list, &ch->shards) : -1;

	if (!ch->shards)
		ch->shards = srun.values.shards_per_gpu;
	if (status > 0 && !ch->shards)
		ddp_say("the nodes of this step have different numbers of shards per GPU, so DDP_SHARE is "
			"not set. Select equal nodes, or ask the administrator for shards_per_gpu=N in "
			"plugstack.conf.");
}

/*
 * In a batch script on rank 0's node: check that no other step has claimed the port, before any
 * task starts on other nodes. The plugin on the node checks it again. A port that Slurm reserves is
 * not known here, and neither is the user's port if --export can keep it from the tasks.
 */
static int probe_port(const struct ddp_channel *ch, struct ddp_message *message)
{
	struct ddp_endpoint endpoint = ddp_endpoint_choose(ch, environ);
	int claim = -1, rv = 0;

	if (!is_on_rank0s_node(ch) || !endpoint.number ||
	    (endpoint.port ? getenv("SLURM_EXPORT_ENV") || getenv("SRUN_EXPORT_ENV") ||
				     has_argument("--export")
			   : ch->reserved_first))
		return 0;
	rv = ddp_task_claim_port(&endpoint, ch->node, &claim, message);
	if (claim >= 0)
		close(claim);
	return rv;
}

static int decide(spank_t spank, struct ddp_channel *ch, struct ddp_message *message)
{
	if (find_node(spank, ch, message) < 0 || choose_address(ch) < 0)
		return -1;
	if (ask_job(ch))
		find_shards(ch);
	ddp_step_choose_port(ch, &srun.values, is_on_rank0s_node(ch));
	if (probe_port(ch, message) < 0)
		return -1;
	return make_directory(ch, message);
}

/*
 * Whether --export, or a variable with its default, assigns a value to [name]. The assignment would
 * have no effect if srun's environment contained [name], so the caller must not set it.
 */
static bool is_assigned(const char *name)
{
	const char *texts[] = {getenv("SLURM_EXPORT_ENV"), getenv("SRUN_EXPORT_ENV")};
	char wanted[64];

	snprintf(wanted, sizeof(wanted), "%s=", name);
	return (texts[0] && strstr(texts[0], wanted)) || (texts[1] && strstr(texts[1], wanted)) ||
	       has_argument(wanted);
}

/*
 * Set the variables that every framework needs to a text that no framework accepts. If a node did
 * not load the plugin, its tasks end at once. On other nodes, the plugin removes the text.
 */
static void mark_environment(spank_t spank)
{
	uint32_t tasks = 0;

	(void)spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks);
	for (size_t i = 0; i < DDP_PLAN_MARKED; i++) {
		const struct ddp_variable_info *info = ddp_variable_info(ddp_plan_marked[i]);
		struct ddp_message note;

		/* Keep the user's value, unless the variable is for the rank's identity. */
		if (info->kind != DDP_KIND_IDENTITY &&
		    (ddp_users_value(environ, info->name) || is_assigned(info->name)))
			continue;
		if (ddp_plan_replaces(environ, info->name,
				      ddp_plan_marked[i] == DDP_VAR_WORLD_SIZE ? tasks : 0, &note))
			ddp_say("%s", note.text);
		(void)setenv(info->name, DDP_NOT_LOADED, 1);
	}
}

int ddp_srun_step_created(spank_t spank)
{
	struct ddp_channel *ch = &srun.channel;
	struct ddp_message message = {"the address of rank 0's node is too long"};
	bool is_ordinary, is_launcher = false;

	if (!srun.values.enabled && !ch->problem[0])
		return 0;
	is_ordinary = identify(spank, ch) == 0;
	/*
	 * This function always returns 0. After an error, srun would exit if plugstack.conf says
	 * "required", and the step would remain until the end of the job. The tasks of a refused
	 * step exit in task_init.
	 */
	if (is_ordinary && !ch->problem[0] &&
	    (check_program(spank, ch, &is_launcher, &message) < 0 ||
	     (!is_launcher && decide(spank, ch, &message) < 0)))
		(void)refuse(message.text);
	if (!is_ordinary) {
		ddp_mark_job(); /* this may be the srun in which salloc runs its shell */
		return 0;
	}
	if (is_launcher && !ch->problem[0]) {
		/*
		 * Slurm merges this environment into an earlier copy. If the channel were unset, a
		 * channel of refuse() would remain in the copy, so set it to "".
		 */
		(void)setenv(DDP_CHANNEL_NAME, "", 1);
		return 0;
	}
	(void)publish(); /* if this fails, there is no channel, and each node refuses the step */
	mark_environment(spank);
	if (!ch->problem[0])
		report_to_run(ch);
	return 0;
}

void ddp_srun_exit(void)
{
	if (srun.owner == getpid())
		ddp_rendezvous_remove(&srun.rdzv);
}
