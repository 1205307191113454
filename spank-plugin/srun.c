/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun.c - the plugin in srun, as the user: decides what all ranks must agree on
 *
 *   1. Before the step exists: read and check the options, and put what is known into the channel
 *      variable. From there it reaches every component of a heterogeneous step.
 *   2. When the step exists: find rank 0's node, choose the port, create the rendezvous directory.
 *   3. At the end: remove that directory.
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
#include "core/format.h"
#include "core/nodelist.h"
#include "core/plan.h"
#include "core/starter.h"
#include "rendezvous.h"
#include "slurmctl.h"
#include "step-choices.h"

extern char **environ;

static struct {
	struct ddp_values values;
	struct ddp_message disabled; /* why the plugin is disabled; "" if it is not */
	struct ddp_channel channel;
	struct ddp_rendezvous rdzv;
	unsigned components; /* number of components of a heterogeneous step so far */
	uint32_t job; /* SLURM_JOB_ID; in a heterogeneous job, the id of the first component */
	pid_t owner;  /* pid of srun, since srun's children must not clean up */
	uid_t user;   /* user before the step exists; later, srun --uid=USER changes to USER */
	int run;      /* descriptor to ddp-run, or -1 */
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
 * Check everything that can be checked before the step exists: an error of an option ends srun even
 * if plugstack.conf says "optional", while a later error does not.
 */
static int on_option(int id, const char *argument, int remote)
{
	struct ddp_message message;

	if (remote)
		return 0;
	if (ddp_set_option(&srun.values, id, argument) < 0)
		return -1;
	if ((id == DDP_OPT_DDP && ddp_step_check_port(environ, &message) < 0) ||
	    (id == DDP_OPT_RDZV && check_directory(srun.values.directory, &message) < 0)) {
		ddp_say_error("%s", message.text);
		return -1;
	}
	return 0;
}

int ddp_srun_init(spank_t spank, int argc, char **argv)
{
	struct ddp_message message;

	ddp_values_init(&srun.values);
	srun.owner = getpid();
	if (ddp_values_from_plugstack(&srun.values, argc, argv, &message) < 0)
		ddp_fail(&srun.disabled,
			 "disabled, since its line in plugstack.conf on this host is wrong: %s; "
			 "tell your administrator",
			 message.text);
	return ddp_register_options(spank, on_option);
}

/* Put the known part of the channel into the environment of the tasks. */
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
 * Report why the step must not train, and put the reason into the channel for the tasks: with
 * "optional" in plugstack.conf, Slurm starts them in spite of the error.
 */
static int refuse(const char *why)
{
	ddp_say_error("%s", why);
	(void)ddp_format(srun.channel.problem, sizeof(srun.channel.problem), "%s", why);
	(void)publish();
	return -1;
}

/* Warn about options that have no effect without --ddp. */
static void warn_ineffective_options(void)
{
	if (srun.values.source[DDP_OPT_DDP] == DDP_FROM_COMMAND)
		return; /* --no-ddp: intended */
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
	if (srun.components++ > 0) {
		if (strstr(ch->base, "%n"))
			return ddp_fail(message,
					"--ddp-rdzv=%s: %%n cannot be used in a heterogeneous "
					"step, whose components do not know rank 0's node",
					ch->base);
		return 0;
	}
	ch->local_rank = srun.values.local_rank;
	ch->share = srun.values.share;
	ch->verbose = srun.values.verbose;
	describe_self(ch);
	if (ddp_step_draw_secrets(ch) < 0)
		return ddp_fail(message, "cannot draw random numbers: %s", strerror(errno));
	if (ddp_step_check_port(environ, message) < 0)
		return -1;
	return ddp_step_choose_base(ch, srun.values.directory, find_home(), message);
}

/* --- With ddp-run: read its variables, and report to it ------------------------------------ */

/*
 * Read ddp-run's variables, and remove them from the environment, so that no task or other srun
 * uses them.
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

int ddp_srun_options_read(void)
{
	struct ddp_message message = {"the path of the working directory is too long"}, from_run;
	int run_status;

	/*
	 * A batch script or task inherits the channel of an outer step, which does not apply to
	 * this step.
	 */
	if (srun.components == 0)
		unsetenv(DDP_CHANNEL_NAME);
	run_status = read_run_variables(&srun.channel, &from_run);
	if (ddp_values_from_env(&srun.values, environ, &message) < 0)
		return refuse(message.text);
	if (!srun.values.enabled) {
		warn_ineffective_options();
		return 0;
	}
	if (run_status < 0)
		return refuse(from_run.text);
	if (begin(&message) < 0)
		return refuse(message.text);
	return publish();
}

/* --- After the step was created ------------------------------------------------------- */

static uint32_t env_number(const char *name)
{
	uint64_t number;

	if (ddp_parse_number(ddp_env_get(environ, name), 0, UINT32_MAX, &number) < 0)
		return 0;
	return (uint32_t)number;
}

/* Set the step's identity. Returns 0, or -1 if the step has no ranks. */
static int identify(spank_t spank, struct ddp_channel *ch)
{
	const char *cluster = ddp_env_filled(environ, "SLURM_CLUSTER_NAME");
	char **argv = NULL;
	int argc = 0;

	if (spank_get_item(spank, S_JOB_ID, &ch->job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &ch->step) != ESPANK_SUCCESS ||
	    ch->step > SLURM_MAX_NORMAL_STEP_ID)
		return -1;
	if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argc > 0 && argv &&
	    ddp_is_launcher(argv[0]))
		return -1;
	srun.job = ch->job;
	if (srun.components > 1)
		ch->job = ddp_ask_first_job(ch->job, ch->step, ch->pid, &srun.job);
	if (!cluster)
		cluster = ddp_cluster_name();
	ch->attempt = env_number("SLURM_RESTART_COUNT");
	return ddp_format(ch->cluster, sizeof(ch->cluster), "%s", cluster ? cluster : "cluster");
}

/*
 * Whether rank 0 is certainly on the first node of [list], and the nodes' first tasks are in node
 * order. This is so if the step has all nodes of the job, with three exceptions: the user placed
 * the tasks; the topology places them (since Slurm 26.05); or names sort differently from the
 * step's nodes, as after the job was shrunk or with SwitchAsNodeRank. [list] is the job's
 * SLURM_NODELIST, which srun has just set; SLURM_STEP_NODELIST would be an outer step's.
 */
static bool first_node_runs_rank0(spank_t spank, const char *list)
{
	const char *distribution = ddp_env_filled(environ, "SLURM_DISTRIBUTION");
	bool laid_out = SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0) ||
			(distribution && strncmp(distribution, "arbitrary", 9) == 0) ||
			ddp_env_filled(environ, "SLURM_HOSTFILE");
	uint32_t nodes = 0;

	return list && srun.components == 1 &&
	       spank_get_item(spank, S_JOB_NNODES, &nodes) == ESPANK_SUCCESS && nodes > 0 &&
	       ddp_nodelist_count(list) == (long)nodes &&
	       (nodes == 1 || (!laid_out && ddp_nodelist_is_plain(list)));
}

/* Set rank 0's node and the order of the nodes. Queries slurmctld only for an unusual placement. */
static int find_node(spank_t spank, struct ddp_channel *ch, struct ddp_message *message)
{
	const char *list = ddp_env_filled(environ, "SLURM_NODELIST");
	struct ddp_layout layout;

	if (first_node_runs_rank0(spank, list))
		return ddp_nodelist_nth(list, 0, ch->node, sizeof(ch->node));
	if (ddp_ask_layout(ch->job, ch->step, srun.components, ch->pid, &layout) == 0) {
		strcpy(ch->node, layout.node);
		strcpy(ch->order, layout.order);
		if (layout.order_cut)
			ddp_say("the order of this step's nodes is too long: NODE_RANK counts them by "
				"SLURM_NODEID, except for rank 0's node, which is node 0");
		return 0;
	}
	return ddp_fail(message,
			"slurmctld does not say which node runs rank 0 of step %u.%u; set "
			"MASTER_ADDR yourself or try again",
			ch->job, ch->step);
}

static int choose_address(struct ddp_channel *ch)
{
	const char *users = ddp_users_value(environ, DDP_NAME(MASTER_ADDR));
	char address[DDP_NAME_SIZE] = "";

	if (users)
		return ddp_format(ch->address, sizeof(ch->address), "%s", users);
	if (!srun.values.suffix[0])
		(void)ddp_ask_address(ch->node, address, sizeof(address));
	return ddp_address_choose(ch->node, address, srun.values.suffix, ch->address,
				  sizeof(ch->address));
}

/*
 * Choose the port. The components of a heterogeneous job have different reserved ports but must use
 * the same port.
 */
static void choose_port(struct ddp_channel *ch)
{
	const char *own = ddp_env_filled(environ, "SLURMD_NODENAME"); /* set in a batch script */
	bool on_rank0s_node = own && strcmp(own, ch->node) == 0;
	uint32_t ports[2] = {0, 0};
	char reserved[512] = "";

	if (!ddp_step_choose_port(ch, &srun.values, environ, on_rank0s_node, ddp_say))
		return;
	if (srun.components > 1 &&
	    ddp_ask_ports(ch->job, ch->step, reserved, sizeof(reserved)) == 0 &&
	    ddp_ports_reserved(reserved, ports, 2) > 0)
		ddp_step_set_port(ch, ports[0], ports[1], "reserved by Slurm");
	else
		ch->reserved_first = srun.components == 1;
}

/*
 * If srun runs as root, check that the fixed part of rdzv= in plugstack.conf exists: root would
 * create the directory with mode 0700, so users could not enter it.
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
			"%s does not exist, and rdzv=%s of plugstack.conf needs it; make it, with "
			"mode 1777 if users make their own directories in it",
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
	snprintf(job, sizeof(job), "%u", srun.job);
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
	/* Later components of a heterogeneous step read the whole record from the directory. */
	if (ch->base_asked || srun.components > 1)
		return -1;
	(void)ddp_format(ch->no_directory, sizeof(ch->no_directory), "%s", message->text);
	return 0;
}

/*
 * Check for programs that start ranks themselves: print a hint, or refuse the step. After a refusal
 * no task may run, even with "optional" in plugstack.conf.
 */
static int check_program(spank_t spank, struct ddp_channel *ch, struct ddp_message *message)
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
	ddp_step_read_program(ch, argv);
	verdict = ddp_starter_judge(argv, environ, tasks, nodes, ch->restarts_max, &verdict_text);
	/* all attempts of ddp-run start the same program */
	if (verdict == DDP_VERDICT_TELL && ch->restart == 0)
		ddp_say("%s", verdict_text.text);
	ch->stop = verdict == DDP_VERDICT_REFUSE && !srun.values.launcher_allowed;
	return ch->stop ? ddp_fail(message, "%s", verdict_text.text) : 0;
}

/*
 * Get the job's end, and whether the job has shards. Since Slurm 23.02 the end needs no query,
 * because slurmstepd passes it from the step's credential to the tasks.
 */
static bool ask_job(struct ddp_channel *ch)
{
	bool shards = false;
	time_t end = 0;

	if (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0) && !ddp_cluster_has_shards())
		return false;
	if (ddp_ask_job(ch->job, &end, &shards) == 0 && end > 0)
		ch->end_time = (uint64_t)end;
	return shards;
}

static int decide(spank_t spank, struct ddp_channel *ch, struct ddp_message *message)
{
	const char *list = ddp_env_filled(environ, "SLURM_NODELIST");
	bool shards;

	if (check_program(spank, ch, message) < 0 || find_node(spank, ch, message) < 0 ||
	    choose_address(ch) < 0)
		return -1;
	choose_port(ch);
	shards = ask_job(ch);
	if (srun.values.shards_per_gpu)
		snprintf(ch->site_shards, sizeof(ch->site_shards), "%u",
			 srun.values.shards_per_gpu);
	if (shards && list && ddp_ask_shards(list, ch->shards, sizeof(ch->shards)) > 0)
		ddp_say("the %ld nodes have different numbers of shards per GPU, and the list of these "
			"numbers exceeds %d bytes: DDP_SHARE stays unset, unless the administrator "
			"gives shards_per_gpu=N in plugstack.conf",
			ddp_nodelist_count(list), DDP_LIST_SIZE);
	ch->complete = 1;
	return make_directory(ch, message);
}

int ddp_srun_step_created(spank_t spank)
{
	struct ddp_message message = {"the address of rank 0's node is too long"};
	uint32_t job = 0;

	if (!srun.values.enabled && !srun.channel.problem[0])
		return 0;
	/* Slurm sets this variable only for a step with reserved ports; remove an outer step's. */
	unsetenv("SLURM_STEP_RESV_PORTS");
	if (identify(spank, &srun.channel) < 0) {
		unsetenv(DDP_CHANNEL_NAME);
		return 0;
	}
	if (srun.channel.problem[0])
		return -1;
	if (decide(spank, &srun.channel, &message) < 0)
		return refuse(message.text);
	report_to_run(&srun.channel);
	/*
	 * This call is for a later component, which reads the record from the directory, like all
	 * components but the first.
	 */
	if (spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS && job != srun.channel.job)
		return 0;
	return publish();
}

void ddp_srun_exit(void)
{
	if (srun.owner == getpid())
		ddp_rendezvous_remove(&srun.rdzv);
}
