/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_version.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/mps.h"
#include "context.h"
#include "core/format.h"
#include "core/plan.h"
#include "rendezvous.h"
#include "task.h"

/*
 * stepd.c - the plugin in slurmstepd: collect facts, let core/ decide, set variables
 *
 * user_init runs once per node, as the user, before a container plugin changes the view of the file
 * system. All checks are made there. task_init runs in each task after Slurm has bound devices, and
 * only sets variables. If the task has its own file systems by then, task_init checks the directory
 * again. An error before task_init is stored until task_init: an earlier failure would be invisible
 * to the user, or drain the node.
 */

enum {
	UNSEEN_NODES_MAX = 4
}; /* maximum number of nodes that report that they do not see the directory */

static struct {
	struct ddp_message broken; /* error in this node's plugstack.conf; "" if there is none */
	bool asked;		   /* --ddp reached this node */
	bool active;
	struct ddp_message problem; /* why the tasks must not train; "" if there is no problem */
	bool is_problem_reported;   /* srun has reported it */
	struct ddp_channel channel;
	char **env; /* the step's environment in user_init */
	bool directory_seen;
	struct ddp_message directory_problem;
	struct stat mounts; /* mount namespace in which the directory was checked */
	bool mps;
	uint64_t gpu_memory;		 /* MiB, from this node's plugstack.conf */
	char program[DDP_NAME_SIZE / 4]; /* name of the tasks' program; "" if unknown */
} stepd;

static int on_option(int id, const char *argument, int remote)
{
	(void)argument; /* srun has checked it, and the channel has the value */
	(void)remote;
	if (id == DDP_OPT_DDP)
		stepd.asked = true;
	else if (id == DDP_OPT_NO_DDP)
		stepd.asked = false;
	return 0;
}

/* Read the arguments about this node's GPUs. srun reads the arguments about the step. */
static int read_arguments(int argc, char **argv, struct ddp_message *message)
{
	struct ddp_values values;

	ddp_values_init(&values);
	if (ddp_values_from_plugstack(&values, argc, argv, message) < 0)
		return -1;
	stepd.gpu_memory = values.gpu_memory;
	return 0;
}

int ddp_slurmd_init(int argc, char **argv)
{
	struct ddp_message message;

	if (read_arguments(argc, argv, &message) < 0)
		ddp_say_error("disabled, since its line in plugstack.conf is wrong: %s",
			      message.text);
	return 0;
}

int ddp_stepd_init(spank_t spank, int argc, char **argv)
{
	struct ddp_message message;

	if (read_arguments(argc, argv, &message) < 0)
		ddp_fail(&stepd.broken,
			 "disabled, since its line in plugstack.conf on this node is wrong: %s",
			 message.text);
	(void)ddp_register_options(spank, on_option);
	return 0;
}

/* --- Once per node -------------------------------------------------------------------- */

static char **copy_env(char *const *env)
{
	size_t n = 0;
	char **copy;

	while (env && env[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < n; i++)
		if (!(copy[i] = strdup(env[i])))
			break; /* out of memory: the shorter list is still valid */
	return copy;
}

static void keep_program(const char *path)
{
	const char *slash = strrchr(path, '/');

	(void)ddp_format(stepd.program, sizeof(stepd.program), "%s", slash ? slash + 1 : path);
}

static bool is_ordinary_step(spank_t spank)
{
	uint32_t step;
	char **argv = NULL;
	int argc = 0;

	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
	    step > SLURM_MAX_NORMAL_STEP_ID)
		return false;
	if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1 || !argv)
		return true;
	keep_program(argv[0]);
	return !ddp_is_launcher(argv[0]);
}

/*
 * Whether the channel belongs to another step: the environment may be inherited without an srun
 * that removes the outer step's channel. A complete channel names its step.
 */
static bool is_stale(spank_t spank)
{
	uint32_t job = 0, step = 0;

	return stepd.channel.complete && spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS &&
	       spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	       (stepd.channel.job != job || stepd.channel.step != step);
}

/*
 * Expand the base directory in a later component's channel, with the values that are known on this
 * node.
 */
static int expand_base(char *base, size_t size, struct ddp_message *message)
{
	const char *job = ddp_env_filled(stepd.env, "SLURM_HET_JOB_ID");
	struct ddp_template_values with = {.user = stepd.channel.user};

	if (!stepd.channel.base_asked)
		return ddp_format(base, size, "%s", stepd.channel.base);
	with.job = job ? job : ddp_env_filled(stepd.env, "SLURM_JOB_ID");
	with.step = ddp_env_filled(stepd.env, "SLURM_STEP_ID");
	return ddp_template_expand(stepd.channel.base, &with, base, size, message);
}

/* Read the whole record from the directory, in a later component of a heterogeneous step. */
static int complete_channel(struct ddp_message *message)
{
	struct ddp_message why = {""};
	char nonce[DDP_NONCE_SIZE], base[DDP_PATH_SIZE];

	memcpy(nonce, stepd.channel.nonce, sizeof(nonce));
	if (expand_base(base, sizeof(base), message) < 0)
		return -1;
	if (ddp_rendezvous_find(base, nonce, &stepd.channel, &why) < 0)
		return ddp_fail(
			message,
			"a heterogeneous step needs a directory that all nodes share, and %s "
			"is none: %s; give one with --ddp-rdzv=DIR",
			base, why.text);
	return 0;
}

static int read_channel(spank_t spank, struct ddp_message *message)
{
	const char *text = ddp_env_get(stepd.env, DDP_CHANNEL_NAME);

	if (text && ddp_channel_decode(text, &stepd.channel, message) < 0)
		return -1;
	if (!text || is_stale(spank)) {
		stepd.active = stepd.asked;
		return ddp_fail(message,
				"srun left no plan for this step; is the plugin of slurm-ddp "
				"installed where srun ran?");
	}
	stepd.is_problem_reported = stepd.channel.problem[0] != '\0';
	if (stepd.is_problem_reported)
		return ddp_fail(message, "%s", stepd.channel.problem);
	return stepd.channel.complete ? 0 : complete_channel(message);
}

static void note_mounts(struct stat *mounts)
{
	if (stat("/proc/self/ns/mnt", mounts) < 0)
		*mounts = (struct stat){0};
}

static void check_directory(const char *host)
{
	const struct ddp_channel *ch = &stepd.channel;
	struct ddp_message why = {""};

	note_mounts(&stepd.mounts);
	if (!ch->directory[0]) {
		(void)ddp_fail(&stepd.directory_problem, "%s", ch->no_directory);
		return;
	}
	stepd.directory_seen = ddp_rendezvous_check(ch->directory, ch->nonce, &why) == 0;
	if (!stepd.directory_seen)
		(void)ddp_fail(&stepd.directory_problem,
			       "node %s does not share %s with %s, where srun ran "
			       "(%s); give a shared one with --ddp-rdzv=DIR",
			       host, ch->directory, ch->from, why.text);
}

/*
 * Check in a task whether it sees the directory. Its job may have its own /tmp
 * (job_container/tmpfs, namespace/tmpfs) or a container. If the node sees the directory and the
 * task does not, that is not an error, since env:// does not need it.
 * Returns 0, or -1 if neither sees a directory that the user chose.
 */
static int check_directory_in_task(const char *host, struct ddp_message *message)
{
	const struct ddp_channel *ch = &stepd.channel;
	struct ddp_message why = {""};
	bool node_sees = stepd.directory_seen;
	struct stat mounts;

	note_mounts(&mounts);
	if (ch->directory[0] &&
	    (mounts.st_ino != stepd.mounts.st_ino || mounts.st_dev != stepd.mounts.st_dev)) {
		stepd.directory_seen = ddp_rendezvous_check(ch->directory, ch->nonce, &why) == 0;
		if (node_sees && !stepd.directory_seen)
			(void)ddp_fail(
				&stepd.directory_problem,
				"tasks on node %s do not see %s, although the node does: they have "
				"other mounts (%s); give a directory that tasks see with "
				"--ddp-rdzv=DIR",
				host, ch->directory, why.text);
	}
	if (stepd.directory_seen || node_sees || !ch->directory[0] || !ch->base_asked)
		return 0;
	return ddp_fail(message, "%s", stepd.directory_problem.text);
}

/*
 * Returns this node's name in Slurm, from the task's environment or, before task_init, from
 * slurmstepd's.
 */
static const char *host_name(char *const *env)
{
	static char name[DDP_NAME_SIZE];
	const char *node = ddp_env_filled(env, "SLURMD_NODENAME");

	if (!node)
		node = getenv("SLURMD_NODENAME");
	if (node)
		return node;
	if (!name[0] && gethostname(name, sizeof(name) - 1) < 0)
		strcpy(name, "this node");
	return name;
}

int ddp_stepd_user_init(spank_t spank)
{
	char **env = NULL;

	if (spank_get_item(spank, S_JOB_ENV, &env) != ESPANK_SUCCESS)
		return 0;
	if (!is_ordinary_step(spank)) {
		if (ddp_env_get(env, DDP_CHANNEL_NAME))
			(void)spank_unsetenv(spank, DDP_CHANNEL_NAME);
		return 0;
	}
	if (!stepd.asked && !ddp_env_get(env, DDP_CHANNEL_NAME))
		return 0;
	stepd.active = true;
	stepd.env = copy_env(env);
	if (!stepd.env) {
		ddp_fail(&stepd.problem, "out of memory");
		return 0;
	}
	if (read_channel(spank, &stepd.problem) < 0)
		return 0;
	if (stepd.broken.text[0]) {
		stepd.problem = stepd.broken;
		return 0;
	}
	stepd.mps = ddp_mps_look(ddp_mps_directory(ddp_env_get(env, DDP_MPS_PIPE_DIRECTORY))) ==
		    DDP_MPS_SERVES;
	/*
	 * The step's environment is srun's environment until now, and srun may have run on another
	 * node.
	 */
	check_directory(host_name(NULL));
	return 0;
}

/* --- In each task --------------------------------------------------------------------- */

/*
 * Read the job's end. Since Slurm 23.02 slurmstepd sets the variable from the step's credential.
 * Before 23.02 users may have set it.
 */
static void find_end_time(char *const *env)
{
	const char *end = ddp_env_get(env, "SLURM_JOB_END_TIME");

	if (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0) && !stepd.channel.end_time)
		(void)ddp_parse_number(end, 1, INT64_MAX, &stepd.channel.end_time);
}

static int collect(spank_t spank, struct ddp_facts *facts, struct ddp_message *message)
{
	uint32_t local_size = 0;
	char **env = NULL;

	if (spank_get_item(spank, S_JOB_ENV, &env) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &local_size) != ESPANK_SUCCESS)
		return ddp_fail(
			message,
			"Slurm does not provide this task's environment and number of tasks");
	find_end_time(env);
	*facts = (struct ddp_facts){
		.channel = &stepd.channel,
		.step_env = stepd.env,
		.task_env = env,
		.host = host_name(env),
		.node_cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
		.directory_seen = stepd.directory_seen,
		.directory_problem = stepd.directory_problem.text,
		.program = stepd.program,
		.mps = stepd.mps,
		.gpu_memory = stepd.gpu_memory,
		.cpu_mask = ddp_task_cpus(),
	};
	if (ddp_task_read(env, local_size, stepd.channel.order, &facts->task, message) < 0)
		return -1;
	ddp_devices_decide(
		&(struct ddp_device_facts){
			.step_env = stepd.env,
			.task_env = env,
			.local_id = facts->task.local_rank,
			.local_size = local_size,
			.node_id = facts->task.node_id,
			.shards_per_gpu = ddp_channel_shards(&stepd.channel, facts->host),
			.mode = (enum ddp_local_rank_mode)stepd.channel.local_rank,
		},
		&facts->devices);
	return 0;
}

/*
 * Report that this node does not see the directory, to explain why its ranks lack variables. If no
 * directory exists, only rank 0 reports that. Without --ddp-verbose only the first nodes report.
 */
static void report_unseen_directory(const struct ddp_facts *facts)
{
	if (facts->task.node_rank >= UNSEEN_NODES_MAX && !stepd.channel.verbose)
		return;
	if (facts->task.local_rank == 0 && facts->task.rank != 0 && !stepd.directory_seen &&
	    stepd.channel.directory[0] && strcmp(facts->host, stepd.channel.node) != 0)
		ddp_say("no rendezvous directory: %s; DDP_INIT_METHOD stays unset",
			stepd.directory_problem.text);
}

static int apply(spank_t spank, const struct ddp_plan *plan, struct ddp_message *message)
{
	for (size_t i = 0; i < plan->n_changes; i++) {
		const struct ddp_change *c = &plan->changes[i];
		spank_err_t rc = ESPANK_SUCCESS;

		/*
		 * Variables with a kept value are set as well, since a container's hook may have
		 * replaced the value.
		 */
		if (c->action == DDP_ACTION_UNSET)
			rc = spank_unsetenv(spank, c->name);
		else
			rc = spank_setenv(spank, c->name, c->value, 1);
		if (rc != ESPANK_SUCCESS && message)
			return ddp_fail(message, "cannot set %s: %s", c->name, spank_strerror(rc));
	}
	return 0;
}

/*
 * Keep the task from training. With "required" in plugstack.conf, returning -1 ends the task. With
 * "optional" Slurm starts the task nevertheless, and the task gets only DDP_ERROR.
 */
static int refuse(spank_t spank, const char *why, bool is_reported)
{
	struct ddp_plan plan;
	char **env = NULL;

	/* Before 25.05 slurmstepd starts its lines with the node's name. */
	if (is_reported && SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0))
		ddp_say_error("%s: %s", host_name(NULL), why);
	else if (is_reported)
		ddp_say_error("%s", why);
	(void)spank_get_item(spank, S_JOB_ENV, &env);
	if (ddp_plan_refuse(env, why, &plan) == 0) {
		(void)apply(spank, &plan, NULL);
		ddp_plan_clear(&plan);
	}
	return -1;
}

/*
 * Report an error of the whole node, in the node's first task. If srun refused the program, exit
 * here, in the task's own process: with "optional" in plugstack.conf, Slurm would start the task in
 * spite of the error.
 */
static int refuse_node(spank_t spank)
{
	uint32_t local = 0;

	if (stepd.channel.stop)
		_exit(EXIT_FAILURE);
	(void)spank_get_item(spank, S_TASK_ID, &local);
	return refuse(spank, stepd.problem.text, local == 0 && !stepd.is_problem_reported);
}

int ddp_stepd_task_init(spank_t spank)
{
	struct ddp_message message;
	struct ddp_facts facts;
	struct ddp_plan plan;

	if (!stepd.active)
		return 0;
	/*
	 * End this rank when slurmstepd ends. Without slurmstepd the rank would continue without
	 * output, Slurm would not notice its exit, and Slurm could not end it. execve() keeps this
	 * setting, because privileges were dropped before.
	 */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!stepd.problem.text[0])
		(void)check_directory_in_task(host_name(NULL), &stepd.problem);
	if (stepd.problem.text[0])
		return refuse_node(spank);
	if (collect(spank, &facts, &message) < 0 || ddp_plan_make(&facts, &plan, &message) < 0)
		return refuse(spank, message.text, true);
	if (ddp_task_check_port(&facts, &plan, &message) < 0 || apply(spank, &plan, &message) < 0) {
		ddp_plan_clear(&plan);
		return refuse(spank, message.text, true);
	}
	ddp_task_say_plan(&facts, &plan, ddp_say);
	report_unseen_directory(&facts);
	if (stepd.channel.failed[0] && facts.directory_seen)
		ddp_rendezvous_enlist(stepd.channel.failed, facts.task.rank, facts.host);
	ddp_plan_clear(&plan);
	return 0;
}

void ddp_stepd_exit(void)
{
	for (size_t i = 0; stepd.env && stepd.env[i]; i++)
		free(stepd.env[i]);
	free(stepd.env);
	stepd.env = NULL;
}
