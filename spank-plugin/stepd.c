/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stepd.c - the plugin in slurmstepd: collect facts, let launch/ decide, set variables
 *
 * A step runs as one world, or not at all:
 *
 *  1. user_init runs once per node, as the user, before a container plugin changes the view of the
 *     file system. It checks the node, and on rank 0's node it claims the port. An error is stored,
 *     since a failure here would be invisible to the user, or would drain the node.
 *  2. task_init runs in each task after Slurm has bound devices. It sets variables. A task that
 *     must not train prints the reason, sets a flag in a page that user_init mapped, and exits.
 *  3. task_exit runs in slurmstepd, as root. If the flag is set, it asks slurmctld to end the step
 *     on all nodes. If a task fails, it waits until srun has read the task's last lines. When all
 *     tasks of the node have exited, it also releases the claimed port.
 *
 * If srun refused the step, every task exits in task_init, and no request to slurmctld is needed.
 */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_version.h>
#include <slurm/spank.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mps.h"
#include "context.h"
#include "launch/format.h"
#include "launch/plan.h"
#include "launch/rendezvous.h"
#include "launch/starter.h"
#include "launch/task.h"
#include "slurmctl.h"

enum {
	UNSEEN_NODES_MAX = 4, /* at most so many nodes report that they do not see the directory */
	REASON_MS = 100,      /* pause in which srun prints why a step is refused */
	LINES_MS = 60,	      /* pause in which srun reads the last lines of a failed task */
};

static struct {
	struct ddp_message broken; /* error in this node's plugstack.conf; "" if there is none */
	bool asked;		   /* --ddp reached this node */
	bool active;
	struct ddp_message problem; /* why the tasks must not train; "" if there is no problem */
	struct ddp_channel channel;
	/*
	 * Set by a task that must not train. The flag is in a page that the tasks share. execve()
	 * unmaps the page, so no program can write it. NULL if there is no page.
	 */
	atomic_bool *is_refused;
	bool is_end_requested;
	bool has_failed; /* a task of this node */
	uint32_t claimed_port;
	uint32_t exited; /* number of tasks that have exited */
	int claim;	 /* descriptor; -1: none */
	char **env;	 /* the step's environment in user_init */
	bool directory_seen;
	struct ddp_message directory_problem;
	struct stat mounts; /* mount namespace in which the directory was checked */
	bool mps;
	uint64_t gpu_memory;		 /* MiB, from this node's plugstack.conf */
	char program[DDP_NAME_SIZE / 4]; /* name of the tasks' program; "" if unknown */
} stepd = {.claim = -1};

static int on_option(int id, const char *argument, int remote)
{
	(void)argument; /* srun has checked the argument, and the channel contains it */
	(void)remote;
	if (id == DDP_OPT_DDP)
		stepd.asked = true;
	else if (id == DDP_OPT_NO_DDP)
		stepd.asked = false;
	return 0;
}

/* Read those arguments in plugstack.conf that describe this node's GPUs. srun reads the others. */
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
		ddp_say_error("the plugin is disabled, because its line in plugstack.conf is "
			      "wrong: %s",
			      message.text);
	return 0;
}

int ddp_stepd_init(spank_t spank, int argc, char **argv)
{
	struct ddp_message message;

	if (read_arguments(argc, argv, &message) < 0)
		ddp_fail(&stepd.broken,
			 "the plugin is disabled, because its line in plugstack.conf on this node "
			 "is wrong: %s",
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
			break; /* out of memory: return the shorter list, which is also valid */
	return copy;
}

static void keep_program(const char *path)
{
	const char *slash = strrchr(path, '/');

	(void)ddp_format(stepd.program, sizeof(stepd.program), "%s", slash ? slash + 1 : path);
}

static bool is_ordinary_step(spank_t spank, bool has_channel)
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
	/* For a launcher, srun sets the channel only if it refuses the step. */
	return has_channel || !ddp_is_launcher(argv[0]);
}

/*
 * Whether the channel belongs to another step. This can happen if an srun without the plugin passes
 * on the channel of an outer step.
 */
static bool is_stale(spank_t spank)
{
	uint32_t job = 0, step = 0;

	return spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS &&
	       spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	       (stepd.channel.job != job || stepd.channel.step != step);
}

static int read_channel(spank_t spank, struct ddp_message *message)
{
	const char *text = ddp_env_get(stepd.env, DDP_CHANNEL_NAME);

	if (text && ddp_channel_decode(text, &stepd.channel, message) < 0)
		return -1;
	/* A refused step has no tasks that could pass its channel on, so this one is not stale. */
	if (text && stepd.channel.problem[0])
		return ddp_fail(message, "%s", stepd.channel.problem);
	if (!text || is_stale(spank)) {
		stepd.active = stepd.asked;
		return ddp_fail(
			message,
			"srun left no plan for this step. Install the plugin of slurm-ddp where srun "
			"runs.");
	}
	return 0;
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
			       "node %s does not see %s, which srun made on %s (%s). Give a "
			       "directory that all nodes share with --ddp-rdzv=DIR.",
			       host, ch->directory, ch->from, why.text);
}

/*
 * Check whether the task sees the directory. It may not, although the node does, because the job
 * has its own /tmp (job_container/tmpfs, namespace/tmpfs) or a container. That is not an error,
 * since env:// does not need the directory.
 * Returns 0, or -1 if neither the task nor the node sees a directory that the user chose.
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
				"tasks on node %s do not see %s, because they have other mounts "
				"than the node (%s). Give a directory that tasks see with "
				"--ddp-rdzv=DIR.",
				host, ch->directory, why.text);
	}
	if (stepd.directory_seen || node_sees || !ch->directory[0] || !ch->base_asked)
		return 0;
	return ddp_fail(message, "%s", stepd.directory_problem.text);
}

/*
 * Returns the name of this node in Slurm. It is read from [env], the task's environment. Before
 * task_init, [env] is NULL, and the name is read from slurmstepd's environment.
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

/*
 * Remove the marks that srun or sbatch set for nodes without the plugin. A marked channel comes
 * from the script of a job with --ddp. If it reaches a step, the script's srun ran on a node
 * without the plugin.
 */
static void remove_marks(spank_t spank, char *const *env)
{
	const char *channel = ddp_env_get(env, DDP_CHANNEL_NAME);

	if (channel && strcmp(channel, DDP_NOT_LOADED) == 0) {
		stepd.asked = true;
		(void)spank_unsetenv(spank, DDP_CHANNEL_NAME);
	}
	for (size_t i = 0; i < DDP_PLAN_MARKED; i++) {
		const char *name = ddp_variable_info(ddp_plan_marked[i])->name;
		const char *value = ddp_env_get(env, name);

		if (value && strcmp(value, DDP_NOT_LOADED) == 0)
			(void)spank_unsetenv(spank, name);
	}
}

/*
 * On rank 0's node: claim the port on which rank 0 will listen. With contain_spank, this function
 * runs in a clone of slurmstepd. The claim then ends with the clone, whose descriptors are closed.
 */
static void claim_port(struct ddp_message *problem)
{
	struct ddp_endpoint endpoint = ddp_endpoint_choose(&stepd.channel, stepd.env);

	if (strcmp(host_name(NULL), stepd.channel.node) != 0 || !endpoint.number)
		return;
	stepd.claimed_port = endpoint.number;
	(void)ddp_task_claim_port(&endpoint, stepd.channel.node, &stepd.claim, problem);
}

static void map_page(struct ddp_message *problem)
{
	void *page = mmap(NULL, sizeof(*stepd.is_refused), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		ddp_fail(problem, "out of memory");
	else
		stepd.is_refused = page;
}

/* Check the node. If there is an error in [problem], none of the node's tasks may train. */
static void check_node(spank_t spank, struct ddp_message *problem)
{
	char *const *env = stepd.env;

	if (!env) {
		ddp_fail(problem, "out of memory");
		return;
	}
	if (read_channel(spank, problem) < 0)
		return;
	if (stepd.broken.text[0]) {
		*problem = stepd.broken;
		return;
	}
	stepd.mps = ddp_mps_look(ddp_mps_directory(ddp_env_get(env, DDP_MPS_PIPE_DIRECTORY))) ==
		    DDP_MPS_SERVES;
	/*
	 * The step's environment is still that of srun, and may contain the name of another node.
	 * So use the name in slurmstepd's environment.
	 */
	check_directory(host_name(NULL));
	claim_port(problem);
}

int ddp_stepd_user_init(spank_t spank)
{
	char **env = NULL;
	bool has_channel;

	if (spank_get_item(spank, S_JOB_ENV, &env) != ESPANK_SUCCESS)
		return 0;
	remove_marks(spank, env);
	if (spank_get_item(spank, S_JOB_ENV, &env) != ESPANK_SUCCESS)
		return 0;
	has_channel = ddp_env_filled(env, DDP_CHANNEL_NAME) != NULL;
	if (!is_ordinary_step(spank, has_channel)) {
		if (ddp_env_get(env, DDP_CHANNEL_NAME))
			(void)spank_unsetenv(spank, DDP_CHANNEL_NAME);
		return 0;
	}
	if (!stepd.asked && !has_channel)
		return 0;
	stepd.active = true;
	stepd.env = copy_env(env);
	map_page(&stepd.problem);
	if (!stepd.problem.text[0])
		check_node(spank, &stepd.problem);
	return 0;
}

/* --- In each task --------------------------------------------------------------------- */

/*
 * Read the end of the job. Since Slurm 23.02, slurmstepd sets the variable from the step's
 * credential. Before, the variable is ignored, since users may have set it.
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
	if (ddp_task_read(env, local_size, stepd.channel.first_node, &facts->task, message) < 0)
		return -1;
	ddp_devices_decide(
		&(struct ddp_device_facts){
			.step_env = stepd.env,
			.task_env = env,
			.local_id = facts->task.local_rank,
			.local_size = local_size,
			.node_id = facts->task.node_id,
			.shards_per_gpu = stepd.channel.shards,
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
		ddp_say("DDP_INIT_METHOD stays unset, because there is no rendezvous directory: %s",
			stepd.directory_problem.text);
}

static int apply(spank_t spank, const struct ddp_plan *plan, struct ddp_message *message)
{
	for (size_t i = 0; i < plan->n_changes; i++) {
		const struct ddp_change *c = &plan->changes[i];
		spank_err_t rc = ESPANK_SUCCESS;

		/*
		 * Also set variables whose value is kept, because a container's hook may have
		 * replaced the value.
		 */
		if (c->action == DDP_ACTION_UNSET)
			rc = spank_unsetenv(spank, c->name);
		else
			rc = spank_setenv(spank, c->name, c->value, 1);
		if (rc != ESPANK_SUCCESS)
			return ddp_fail(message, "cannot set %s: %s", c->name, spank_strerror(rc));
	}
	return 0;
}

static void print_reason(const char *why)
{
	/* Start the line with the node's name, as slurmstepd itself did before 25.05. */
	if (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0))
		ddp_say_error("%s: %s", host_name(NULL), why);
	else
		ddp_say_error("%s", why);
}

/*
 * End this task and the step, for a reason that other tasks may not have. This calls _exit(),
 * because Slurm would ignore a returned error if plugstack.conf says "optional".
 */
static void __attribute__((noreturn)) refuse(const char *why)
{
	print_reason(why);
	if (stepd.is_refused)
		*stepd.is_refused = true;
	_exit(EXIT_FAILURE);
}

/* End this task because of an error of the whole node, which only the node's first task reports. */
static void __attribute__((noreturn)) refuse_node(spank_t spank)
{
	uint32_t local = 0;

	if (stepd.channel.problem[0])
		_exit(EXIT_FAILURE); /* srun has reported the problem, and all tasks exit */
	if (spank_get_item(spank, S_TASK_ID, &local) == ESPANK_SUCCESS && local > 0)
		_exit(EXIT_FAILURE);
	refuse(stepd.problem.text);
}

int ddp_stepd_task_init(spank_t spank)
{
	struct ddp_message message;
	struct ddp_facts facts;
	struct ddp_plan plan;

	if (!stepd.active)
		return 0;
	/*
	 * Let the kernel end this rank when slurmstepd ends. Otherwise, the rank would continue
	 * without output, and Slurm could neither notice its exit nor end it. The setting survives
	 * execve(), because privileges were dropped before.
	 */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!stepd.problem.text[0])
		(void)check_directory_in_task(host_name(NULL), &stepd.problem);
	if (stepd.problem.text[0])
		refuse_node(spank);
	if (collect(spank, &facts, &message) < 0)
		refuse(message.text);
	if (ddp_endpoint_check(&stepd.channel, stepd.env, facts.task_env, facts.task.nodes,
			       &message) < 0) {
		/* All tasks of the step find this mistake. Rank 0 reports it, and exits first. */
		if (facts.task.rank == 0)
			print_reason(message.text);
		else
			sleep(1);
		_exit(EXIT_FAILURE);
	}
	if (ddp_task_check_port(&facts, &message) < 0 ||
	    ddp_plan_make(&facts, &plan, &message) < 0 || apply(spank, &plan, &message) < 0)
		refuse(message.text);
	ddp_task_say_plan(&facts, &plan, ddp_say);
	report_unseen_directory(&facts);
	if (stepd.channel.failed[0] && facts.directory_seen)
		ddp_rendezvous_enlist(stepd.channel.failed, facts.task.rank, facts.host);
	ddp_plan_clear(&plan);
	return 0;
}

static void pause_for(int milliseconds)
{
	const struct timespec pause = {.tv_nsec = milliseconds * 1000000L};

	nanosleep(&pause, NULL);
}

/*
 * When a task has failed, srun --kill-on-bad-exit ends the others, and then reads no more output.
 * A line that is written soon after another one arrives up to 40 ms later, because TCP waits for
 * the acknowledgement of the first. srun learns of the exit after this function. Only the node's
 * first task that fails waits, and none that was killed from outside, which would delay the end of
 * the whole step.
 */
static void wait_for_last_lines(spank_t spank)
{
	int status = 0;

	if (stepd.has_failed ||
	    spank_get_item(spank, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS || status == 0 ||
	    WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL)
		return;
	stepd.has_failed = true;
	pause_for(LINES_MS);
}

static void end_step(spank_t spank)
{
	struct ddp_message message, line;
	uint32_t job = 0, step = 0;

	/* srun reads no output after tasks have been killed, so let it print the reason first. */
	pause_for(REASON_MS);
	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
	    ddp_end_step(job, step, &message) == 0)
		return;
	ddp_fail(&line,
		 "cannot end step %u.%u (%.200s), so its other tasks continue. Type scancel %u.%u.",
		 job, step, message.text, job, step);
	print_reason(line.text);
}

void ddp_stepd_task_exit(spank_t spank)
{
	bool refused = stepd.is_refused ? *stepd.is_refused : stepd.problem.text[0] != '\0';
	uint32_t local_size;

	if (refused && !stepd.channel.problem[0] && !stepd.is_end_requested) {
		stepd.is_end_requested = true;
		end_step(spank);
	} else if (stepd.active && !stepd.is_end_requested) {
		wait_for_last_lines(spank);
	}
	/* srun does not know of the last task's exit yet, so the next step comes after close(). */
	stepd.exited++;
	if (stepd.claim >= 0 &&
	    spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &local_size) == ESPANK_SUCCESS &&
	    stepd.exited >= local_size) {
		/* The descriptor is not ours if user_init ran in a clone. */
		if (ddp_task_has_claim(stepd.claim, stepd.claimed_port))
			close(stepd.claim);
		stepd.claim = -1;
	}
}

void ddp_stepd_exit(void)
{
	for (size_t i = 0; stepd.env && stepd.env[i]; i++)
		free(stepd.env[i]);
	free(stepd.env);
	stepd.env = NULL;
}
