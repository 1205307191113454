/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-exec.c - the program in "srun ddp-exec PROGRAM", which sets the variables of srun --ddp on
 * clusters without the plugin
 *
 *  1. Each task reads from its environment which task of which step it is (place.c).
 *  2. The tasks meet in a directory and exchange their lists of GPUs (meet.c).
 *  3. Rank 0 makes the decisions that the plugin makes in srun: address, port, rendezvous
 *     directory. It passes them to the other ranks in a record.
 *  4. Each task plans its environment as the plugin does in slurmstepd (plan.c), and becomes the
 *     program. No other process remains.
 *
 * A step runs as one world, or not at all. If rank 0 fails, its record says so, and no task starts
 * the program. A task that fails later ends the step with scancel, unless all tasks fail.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/command.h"
#include "base/file.h"
#include "base/hide.h"
#include "base/mps.h"
#include "base/settings.h"
#include "base/watch.h"
#include "contract.h"
#include "exec-options.h"
#include "meet.h"
#include "nodelist.h"
#include "place.h"
#include "rendezvous.h"
#include "starter.h"
#include "step-choices.h"
#include "task.h"

extern char **environ;

enum {
	EXIT_USAGE = 2,
	EXIT_CANNOT = 126, /* the program exists but cannot be executed; sh has the same status */
	EXIT_MISSING = 127,
	LINE_SIZE = 3 * DDP_PATH_SIZE,
	SHARED_SIZE = 60000, /* maximum number of bytes of rank 0's record */
	SILENT_S = 2,	     /* see stay_silent() */
	SLURM_LIMIT = 5,     /* time limit for squeue and scancel, in seconds */
	GPUS_MAX = 1024,     /* maximum number of GPUs on a node */
};

#define MEET_LIMIT 120.0 /* seconds; DDP_TIMEOUT overrides it */

static struct exec_options options;
static struct ddp_channel channel;
static struct ddp_rendezvous rdzv = {.parent = -1}; /* used by rank 0 only */
static struct ddp_task task = {.size = 1, .local_size = 1, .nodes = 1};
static uint32_t *local_ranks; /* ranks of this node, an array of task.local_size */
static char host[DDP_NAME_SIZE];
static char *run_file; /* file to report the step to ddp-run; NULL if ddp-run did not start it */
/* All tasks of this node have the same error, so only the first of them prints it. */
static bool is_error_of_node;
/*
 * Whether other tasks start the program although this task has failed: no, perhaps, or certainly.
 */
static enum { NONE_STARTS, OTHERS_MAY_START, OTHERS_START } failure;
static char **step_env; /* environment as it was before Slurm bound the task to devices */
static char meeting[DDP_PATH_SIZE]; /* directory in which the tasks meet; "": they could not meet */
static struct meet_card card;

/* --- Messages ------------------------------------------------------------------------------ */

static void print_line(FILE *stream, const char *name, char *text)
{
	static char line[LINE_SIZE];

	ddp_hide(text);
	ddp_escape(text, line, sizeof(line));
	fprintf(stream, "%s: %s\n", name, line);
}

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
	static char text[LINE_SIZE];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	print_line(options.given[EXEC_OPTION_PRINT] ? stdout : stderr, "ddp", text);
}

/*
 * Wait for [wait], or until SIGTERM, which means that the step ends. Returns whether SIGTERM came.
 * The signal stays blocked, so this task can exit with its own exit status.
 */
static bool await_end(struct timespec wait)
{
	sigset_t term;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	return sigtimedwait(&term, NULL, &wait) == SIGTERM;
}

/* Give another task time to print the error, since srun can end all tasks once one has exited. */
static void stay_silent(void)
{
	(void)await_end((struct timespec){.tv_sec = SILENT_S});
}

/*
 * Print an error. If [one] is set, only this task has the error. Otherwise all tasks have it, since
 * it is in the command line or in the environment, and only rank 0 prints it.
 */
static void __attribute__((format(printf, 2, 3))) complain(bool one, const char *format, ...)
{
	const char *rank = ddp_env_filled(environ, "SLURM_PROCID");
	static char text[LINE_SIZE];
	va_list ap;
	int used;

	if (!one && rank && strcmp(rank, "0") != 0) {
		stay_silent();
		return;
	}
	va_start(ap, format);
	used = snprintf(text, sizeof(text), "%s", one ? "" : DDP_USAGE_ERROR);
	vsnprintf(text + used, sizeof(text) - (size_t)used, format, ap);
	va_end(ap);
	print_line(stderr, "ddp-exec", text);
}

/* --- Variables of ddp-run ------------------------------------------------------------------ */

/*
 * Read the variables that ddp-run set, and remove them, because the program and the steps that it
 * starts must not use them.
 */
static int read_run(struct ddp_channel *ch, struct ddp_message *message)
{
	const char *file = ddp_env_filled(environ, DDP_RUN_FILE);
	int rv = ddp_step_read_run(ch, environ, message);

	if (file && !(run_file = strdup(file)))
		rv = ddp_fail(message, "out of memory");
	ddp_step_drop_run();
	return rv;
}

static void report_step(void)
{
	struct ddp_text text = {.data = NULL};
	struct ddp_error error;
	const char *nodes = ddp_env_filled(environ, "SLURM_STEP_NODELIST");
	char *slash = run_file ? strrchr(run_file, '/') : NULL;

	if (!slash)
		return;
	ddp_text_add(&text, "job %u\nstep %u\n", channel.job, channel.step);
	if (channel.failed[0])
		ddp_text_add(&text, "failed %s\nrendezvous %s\n", channel.failed,
			     channel.directory);
	if (nodes)
		ddp_text_add(&text, "nodes %s\nranks %u\n", nodes, task.size);
	*slash = '\0';
	if (ddp_file_write_text(run_file, slash + 1, &text, &error) < 0)
		say("cannot report the step to ddp-run: %s", error.text);
	ddp_text_free(&text);
}

/* --- Commands of Slurm --------------------------------------------------------------------- */

/*
 * In the child process: remove the user's defaults for squeue and scancel, which could hide jobs.
 * Ignore the signal that scancel sends to all processes of the step.
 */
static void prepare_command(void)
{
	char **kept = environ;

	for (char **entry = environ; *entry; entry++)
		if (strncmp(*entry, "SQUEUE_", 7) != 0 && strncmp(*entry, "SCANCEL_", 8) != 0 &&
		    strncmp(*entry, "SLURM_CLUSTERS=", 15) != 0)
			*kept++ = *entry;
	*kept = NULL;
	(void)signal(SIGTERM, SIG_IGN);
}

static const struct ddp_command slurm_command = {
	.limit = SLURM_LIMIT, .grace = 1, .prepare = prepare_command};

/*
 * Find [job] among the user's jobs that have not ended, in all partitions. Asks Slurm only once.
 * Returns 1 with the number of [restarts]; 0 if the job has ended; -1 if Slurm does not answer.
 */
static int find_job(uint32_t job, uint32_t *restarts)
{
	static struct ddp_command_said said;
	static bool is_queried;
	unsigned id, count;
	char user[32];
	char *const argv[] = {"squeue",
			      "-ha",
			      "--local",
			      user,
			      "--states=PD,R,S,CG,CF,ST,SI,SO,RQ,RS",
			      "--Format=JobID:12,RestartCnt:12",
			      NULL};
	int length = 0;

	snprintf(user, sizeof(user), "--user=%u", geteuid());
	if (!is_queried)
		ddp_command_run(argv, &slurm_command, &said);
	is_queried = true;
	if (said.status != 0)
		return -1;
	for (const char *at = said.out.data; at && sscanf(at, "%u %u%n", &id, &count, &length) == 2;
	     at += length)
		if (id == job) {
			*restarts = count;
			return 1;
		}
	return 0;
}

/*
 * Whether [job], and with it all its steps, has ended. Returns false if Slurm does not answer, or
 * if its answer does not contain this process's own job and is therefore wrong.
 */
static bool has_ended(uint32_t job, uint32_t step)
{
	uint32_t restarts;

	(void)step;
	return find_job(channel.job, &restarts) == 1 && find_job(job, &restarts) == 0;
}

/* Meet the other tasks. The result is that of meet_open(). */
static int meet_others(struct meet **meet, double limit_s, struct ddp_message *message)
{
	char job[DDP_NAME_SIZE + 64];

	snprintf(job, sizeof(job), "%s.%u.%u", channel.cluster, channel.job, channel.step);
	return meet_open(meet, (int)task.rank, (int)task.size, host, job, meeting, limit_s, &card,
			 message);
}

/*
 * End the step, because this task has failed and other tasks may run the program. If all tasks have
 * failed, they meet again here, and need no signal. If the tasks could not meet at the start, this
 * is unknown, so the signal is SIGTERM, which tasks that wait here block. Under ddp-run, srun ends
 * the step.
 */
static void end_step(void)
{
	/* One scancel suffices, so the ranks wait for different times. */
	struct timespec wait = {.tv_nsec = task.rank % 500 * 2000000L};
	char step[32], option[] = "--signal=KILL";
	char *const argv[] = {"scancel", option, step, NULL};
	struct ddp_message message;
	struct ddp_command_said said;
	struct meet *meet;
	const char *why;

	if (failure == NONE_STARTS || task.size == 1 || channel.run)
		return;
	if (failure == OTHERS_MAY_START && !meeting[0]) {
		strcpy(option, "--signal=TERM");
		wait.tv_sec = SILENT_S;
	} else if (failure == OTHERS_MAY_START && meet_others(&meet, SILENT_S, &message) == 0) {
		meet_close(meet);
		return;
	}
	if (await_end(wait))
		return;
	snprintf(step, sizeof(step), "%u.%u", channel.job, channel.step);
	ddp_command_run(argv, &slurm_command, &said);
	why = said.err.size > 0 ? said.err.data : "scancel failed";
	/* If the end of the step killed scancel, scancel has succeeded. */
	if (said.status != 0 && (said.timed_out || said.status <= 128))
		complain(true,
			 "cannot end step %s (%.*s), so its other tasks continue. Type scancel %s.",
			 step, (int)strcspn(why, "\n"), why, step);
	ddp_command_said_free(&said);
}

/* --- Rank 0 decides ------------------------------------------------------------------------ */

static int choose_address(struct ddp_message *message)
{
	const char *users = ddp_users_value(environ, DDP_NAME(MASTER_ADDR));

	if (place_own_address(channel.node, options.values.suffix, channel.address,
			      sizeof(channel.address), message) == 0)
		return 0;
	return users ? ddp_format(channel.address, sizeof(channel.address), "%.255s", users) : -1;
}

/*
 * Create the rendezvous directory. Returns 0, or -1 with a message. If nobody chose the directory,
 * a failure is not an error, and channel.no_directory has the reason.
 */
static int make_directory(const char *base, struct ddp_message *message)
{
	if (ddp_rendezvous_make(&rdzv, base, &channel, message) == 0)
		return 0;
	if (channel.base_asked)
		return -1;
	return ddp_format(channel.no_directory, sizeof(channel.no_directory), "%s", message->text);
}

/* --- Each task ----------------------------------------------------------------------------- */

/*
 * Set [seen] for each number in [list], such as "0,2". Returns false if the list has another form.
 */
static bool mark_gpus(bool seen[GPUS_MAX], const char *list)
{
	while (*list) {
		size_t n = strcspn(list, ",");
		uint64_t number;

		if (ddp_parse_number_n(list, n, 0, GPUS_MAX - 1, &number) < 0)
			return false;
		seen[number] = true;
		list += n;
		list += *list == ',';
	}
	return true;
}

/* Write to [list] the numbers n with seen[n], in Slurm's format. Returns how many there are. */
static uint32_t list_gpus(const bool seen[GPUS_MAX], char *list, size_t size)
{
	uint32_t count = 0;

	*list = '\0';
	for (unsigned i = 0; i < GPUS_MAX; i++)
		if (seen[i])
			snprintf(list + strlen(list), size - strlen(list), "%s%u",
				 count++ ? "," : "", i);
	return count;
}

/*
 * In step_env, replace the task's devices by [gpus], all devices of the step on this node. Without
 * [known], only the number of entries in [gpus] is right, so SLURM_STEP_GPUS is removed.
 */
static int replace_devices(const char *gpus, bool known)
{
	static const char *const names[] = {"SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES",
					    "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
					    "ZE_AFFINITY_MASK"};
	const size_t count = sizeof(names) / sizeof(names[0]);
	size_t kept = 0;

	for (size_t i = 0, n; step_env[i]; i++) {
		for (n = 0; n < count; n++)
			if (strncmp(step_env[i], names[n], strlen(names[n])) == 0 &&
			    step_env[i][strlen(names[n])] == '=')
				break;
		if (n == 0 && !known)
			continue;
		step_env[kept] = step_env[i];
		if (n < count && asprintf(&step_env[kept], "%s=%s", names[n], gpus) < 0)
			return -1;
		kept++;
	}
	step_env[kept] = NULL;
	return 0;
}

/*
 * Set step_env to the environment before Slurm bound this task to some devices. The step's devices
 * on this node are those of all its tasks together. If these are fewer than SLURM_GPUS_ON_NODE,
 * because some tasks have none, only their number is known.
 */
static int make_step_env(struct meet *meet, struct ddp_message *message)
{
	const char *own = ddp_env_filled(environ, "SLURM_STEP_GPUS");
	const char *number = ddp_env_filled(environ, "SLURM_GPUS_ON_NODE");
	bool seen[GPUS_MAX] = {false}, known;
	char all[8 * GPUS_MAX];
	uint64_t on_node = 0;
	struct meet_card other;
	size_t n = 0;

	while (environ[n])
		n++;
	step_env = calloc(n + 1, sizeof(*step_env));
	if (!step_env)
		return ddp_fail(message, "out of memory");
	memcpy(step_env, environ, n * sizeof(*step_env));
	if (!own || !mark_gpus(seen, own))
		return 0;
	for (uint32_t i = 0; meet && i < task.local_size; i++) {
		if (meet_read(meet, (int)local_ranks[i], &other, message) < 0)
			return -1;
		(void)mark_gpus(seen, other.gpus);
	}
	(void)ddp_parse_number(number, 1, GPUS_MAX, &on_node);
	known = list_gpus(seen, all, sizeof(all)) >= on_node;
	if (!known) {
		for (uint64_t i = 0; i < GPUS_MAX; i++)
			seen[i] = i < on_node;
		(void)list_gpus(seen, all, sizeof(all));
	}
	if ((!known || strcmp(all, own) != 0) && replace_devices(all, known) < 0)
		return ddp_fail(message, "out of memory");
	return 0;
}

static int make_plan(struct ddp_facts *facts, struct ddp_plan *plan, struct ddp_message *message)
{
	const char *program = options.program[0] ? options.program[0] : "";
	const char *slash = strrchr(program, '/');

	task.node_rank = ddp_node_rank(task.node_id, channel.first_node);
	*facts = (struct ddp_facts){
		.task = task,
		.channel = &channel,
		.step_env = step_env,
		.task_env = environ,
		.host = host,
		.directory_seen = channel.directory[0] != '\0',
		.directory_problem = channel.no_directory,
		.program = slash ? slash + 1 : program,
		.mps = ddp_mps_look(ddp_mps_directory(
			       ddp_env_get(environ, DDP_MPS_PIPE_DIRECTORY))) == DDP_MPS_SERVES,
		.cpu_mask = ddp_task_cpus(),
		.node_cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
	};
	ddp_devices_decide(
		&(struct ddp_device_facts){
			.step_env = step_env,
			.task_env = environ,
			.local_id = task.local_rank,
			.local_size = task.local_size,
			.node_id = task.node_id,
			.shards_per_gpu = channel.shards,
			.mode = options.values.local_rank,
		},
		&facts->devices);
	if (facts->devices.unlisted)
		return ddp_fail(message, DDP_USAGE_ERROR
				"with --gpu-bind=none this Slurm does not say which GPUs of a node "
				"the step has. Remove --gpu-bind=none, and request GPUs with "
				"--gpus-per-node=N, so that each task sees all of them.");
	if (ddp_endpoint_check(&channel, step_env, environ, task.nodes, message) < 0)
		return -1;
	return ddp_plan_make(facts, plan, message);
}

static int apply(const struct ddp_plan *plan, struct ddp_message *message)
{
	for (size_t i = 0; i < plan->n_changes; i++) {
		const struct ddp_change *c = &plan->changes[i];
		int rv = c->action == DDP_ACTION_UNSET ? unsetenv(c->name)
						       : setenv(c->name, c->value, 1);

		if (rv < 0)
			return ddp_fail(message, "cannot set %s: %s", c->name, strerror(errno));
	}
	return 0;
}

/* --- A task of a step ---------------------------------------------------------------------- */

static uint32_t number_of(const char *name)
{
	uint64_t number = 0;

	(void)ddp_parse_number(ddp_env_filled(environ, name), 0, UINT32_MAX, &number);
	return (uint32_t)number;
}

static int describe(struct ddp_message *message)
{
	const char *cluster = ddp_env_filled(environ, "SLURM_CLUSTER_NAME");
	const char *node = ddp_env_filled(environ, "SLURMD_NODENAME");

	if (!cluster) /* after srun --jobid, only this variable has it: NAME:HOST:PORT:... */
		cluster = ddp_env_filled(environ, "SLURM_WORKING_CLUSTER");
	if (!cluster)
		cluster = "cluster";
	if (!node && gethostname(host, sizeof(host) - 1) < 0)
		strcpy(host, "this node");
	if (node)
		(void)ddp_format(host, sizeof(host), "%s", node);
	channel.local_rank = options.values.local_rank;
	channel.share = options.values.share;
	channel.launcher_allowed = options.values.launcher_allowed;
	channel.verbose = options.values.verbose || options.given[EXEC_OPTION_PRINT];
	channel.attempt = number_of("SLURM_RESTART_COUNT");
	channel.step = number_of("SLURM_STEP_ID");
	channel.job = place_job(environ);
	(void)ddp_format(channel.from, sizeof(channel.from), "%s", host);
	(void)ddp_format(channel.node, sizeof(channel.node), "%s", host);
	ddp_step_find_user(&channel, options.values.directory);
	/*
	 * Since Slurm 23.02, slurmstepd sets SLURM_JOB_END_TIME from the step's credential. Older
	 * releases do not set it in a step.
	 */
	(void)ddp_parse_number(ddp_env_filled(environ, "SLURM_JOB_END_TIME"), 1, INT64_MAX,
			       &channel.end_time);
	if (ddp_format(channel.cluster, sizeof(channel.cluster), "%.*s", (int)strcspn(cluster, ":"),
		       cluster) < 0)
		return ddp_fail(message, "SLURM_CLUSTER_NAME=%.100s... is too long", cluster);
	return 0;
}

/*
 * On rank 0: check that no other process uses the port, and claim it. The program inherits the
 * claim, which ends with the program.
 */
static int check_port(const struct ddp_facts *facts, struct ddp_message *message)
{
	struct ddp_endpoint endpoint = ddp_endpoint_choose(&channel, step_env);
	int claim;

	if (task.rank != 0)
		return 0;
	if (ddp_task_claim_port(&endpoint, host, &claim, message) < 0)
		return -1;
	if (claim >= 0)
		(void)fcntl(claim, F_SETFD, 0);
	return ddp_task_check_port(facts, message);
}

/*
 * Set [base] to the directory in which rank 0 creates .ddp and the rendezvous directory, and
 * [meeting] to the directory in which the tasks meet. All tasks make the same choice.
 */
static int choose_directories(char *base, struct ddp_message *message)
{
	struct ddp_template_values with = {.user = channel.user};
	char job[16], step[16], node[DDP_NODE_SIZE];
	uint64_t tag;

	if (ddp_step_choose_base(&channel, options.values.directory,
				 ddp_env_filled(environ, "HOME"), message) < 0)
		return -1;
	if (!channel.base[0])
		return ddp_fail(message, "the working directory is not known");
	snprintf(job, sizeof(job), "%u", channel.job);
	snprintf(step, sizeof(step), "%u", channel.step);
	with.job = job;
	with.step = step;
	if (channel.base_asked && strstr(channel.base, "%n")) {
		if (place_first_node(environ, &task, node, sizeof(node), message) < 0)
			return -1;
		with.node = node;
	}
	if (!channel.base_asked)
		(void)ddp_format(base, DDP_PATH_SIZE, "%s", channel.base);
	else if (ddp_template_expand(channel.base, &with, base, DDP_PATH_SIZE, message) < 0)
		return -1;
	tag = ddp_hash(DDP_HASH_INIT, channel.cluster, strlen(channel.cluster));
	if (ddp_format(meeting, sizeof(meeting),
		       "%s/" DDP_DIR_PARENT "/" DDP_DIR_EXEC "%s.%s.%u-%08x", base, job, step,
		       channel.attempt, (unsigned)(tag >> 32)) < 0)
		return ddp_fail(message, "the path %.200s... is too long", base);
	return 0;
}

/*
 * On rank 0: make all decisions, and store them in the record for which the other ranks wait. The
 * caller stores an error in the record.
 */
static int lead(const char *base, struct ddp_facts *facts, struct ddp_plan *plan,
		struct ddp_message *message)
{
	channel.first_node = task.node_id;
	/* Ask Slurm for the attempt: sbatch passes SLURM_RESTART_COUNT on to other jobs. */
	if (ddp_env_filled(environ, "SLURM_RESTART_COUNT"))
		(void)find_job(channel.job, &channel.attempt);
	if (choose_address(message) < 0)
		return -1;
	if (ddp_step_draw_secrets(&channel) < 0)
		return ddp_fail(message, "cannot draw random numbers: %s", strerror(errno));
	ddp_step_choose_port(&channel, &options.values, true);
	if (make_directory(base, message) < 0 || make_plan(facts, plan, message) < 0 ||
	    check_port(facts, message) < 0)
		return -1;
	/* ddp-run must know the step before any rank starts its program. */
	report_step();
	return 0;
}

/* On the other ranks: use the record of rank 0. */
static int follow(struct ddp_facts *facts, struct ddp_plan *plan, struct ddp_message *message)
{
	struct ddp_message why = {""};

	if (channel.problem[0]) {
		failure = NONE_STARTS;
		return -1;
	}
	if (channel.directory[0] &&
	    ddp_rendezvous_check(channel.directory, channel.nonce, &why) < 0) {
		is_error_of_node = true;
		failure = OTHERS_START;
		return ddp_fail(message,
				"node %s does not see %s, which rank 0 made on %s (%s). "
				"Give a directory that all nodes share with "
				"--ddp-rdzv=DIR.",
				host, channel.directory, channel.node, why.text);
	}
	return make_plan(facts, plan, message);
}

/*
 * Make the decisions on rank 0, and send them to all ranks in a record. Returns 0. Returns -1 with
 * a message if this rank failed, and -1 if rank 0 failed.
 */
static int agree(struct meet *meet, const char *base, struct ddp_facts *facts,
		 struct ddp_plan *plan, struct ddp_message *message)
{
	uint32_t local_rank = channel.local_rank, share = channel.share, verbose = channel.verbose;
	static char text[SHARED_SIZE];
	struct ddp_message shared = {""};
	int rv = 0;

	rv = make_step_env(meet, message);
	if (task.rank == 0) {
		if (rv == 0)
			rv = lead(base, facts, plan, message);
		if (rv < 0) {
			(void)ddp_format(channel.problem, sizeof(channel.problem), "%s",
					 message->text);
			/* The other ranks exit when they have read the record. */
			complain(true, "%s", message->text);
		}
		if (meet && ddp_channel_encode(&channel, text, sizeof(text)) < 0)
			rv = ddp_fail(message, "the record of this step is too long");
	}
	if (meet && meet_share(meet, text, sizeof(text), &shared) < 0)
		return rv < 0 ? rv : ddp_fail(message, "%s", shared.text);
	failure = task.rank == 0 && rv < 0 ? NONE_STARTS : OTHERS_MAY_START;
	if (task.rank == 0)
		return rv;
	if (ddp_channel_decode(text, &channel, message) < 0)
		return -1;
	channel.local_rank = local_rank;
	channel.share = share;
	channel.verbose = verbose;
	return rv < 0 ? rv : follow(facts, plan, message);
}

/*
 * Called if the tasks could not meet. Make the decisions from what each task knows. Fail if the
 * tasks might decide differently.
 */
static int guess(const char *why, struct ddp_facts *facts, struct ddp_plan *plan,
		 struct ddp_message *message)
{
	const char *users = ddp_users_value(environ, DDP_NAME(MASTER_ADDR));

	if (channel.base_asked)
		return ddp_fail(message, "%s", why);
	(void)ddp_format(channel.no_directory, sizeof(channel.no_directory), "%s", why);
	meeting[0] = '\0';
	failure = OTHERS_MAY_START;
	if (!users &&
	    place_first_node(environ, &task, channel.node, sizeof(channel.node), message) < 0)
		return -1;
	if (users)
		(void)ddp_format(channel.address, sizeof(channel.address), "%s", users);
	else
		(void)ddp_address_choose(channel.node, "", options.values.suffix, channel.address,
					 sizeof(channel.address));
	if (!users && !place_resolves(channel.address))
		return ddp_fail(
			message,
			"%s, the name of rank 0's node, does not resolve here. Set MASTER_ADDR, "
			"or give a directory that all nodes share with --ddp-rdzv=DIR, or "
			"increase DDP_TIMEOUT (seconds) if a task started late. The tasks could "
			"not meet: %s",
			channel.address, why);
	ddp_step_choose_port(&channel, &options.values, false);
	is_error_of_node = false;
	failure = NONE_STARTS;
	if (make_step_env(NULL, message) < 0 || make_plan(facts, plan, message) < 0)
		return -1;
	failure = OTHERS_START;
	if (check_port(facts, message) < 0)
		return -1;
	failure = OTHERS_MAY_START;
	if (task.rank == 0)
		report_step();
	return 0;
}

/* With --print no program uses the directory. Wait for all ranks, then remove the directory. */
static void clean_up(struct meet *meet)
{
	static char text[SHARED_SIZE];
	struct ddp_message message;

	if (options.given[EXEC_OPTION_PRINT] && (!meet || meet_share(meet, text, 1, &message) == 0))
		ddp_rendezvous_remove(&rdzv);
	else if (task.rank == 0)
		ddp_rendezvous_sweep(&rdzv, &channel, has_ended);
}

static double meet_limit(void)
{
	struct ddp_error error;
	double seconds;

	if (!ddp_env_filled(environ, "DDP_TIMEOUT") ||
	    ddp_setting_seconds(DDP_SET_DDP_TIMEOUT, &seconds, &error) < 0)
		return MEET_LIMIT;
	return seconds;
}

static int set_up_task(struct ddp_facts *facts, struct ddp_plan *plan, struct ddp_message *message)
{
	static char base[DDP_PATH_SIZE];
	const char *gpus = ddp_env_filled(environ, "SLURM_STEP_GPUS");
	const char *rank = ddp_env_get(environ, DDP_NAME(RANK));
	struct ddp_message why = {""};
	struct meet *meet = NULL;
	double begin = ddp_seconds();
	int rv;

	if (place_read_task(environ, &task, &local_ranks, message) < 0)
		return -1;
	is_error_of_node = true;
	if (describe(message) < 0)
		return -1;
	if (rank && strcmp(rank, DDP_NOT_LOADED) == 0) {
		failure = OTHERS_START;
		return ddp_fail(message,
				"srun --ddp set RANK=%s. Omit --ddp, because ddp-exec needs no "
				"plugin on %s.",
				rank, host);
	}
	is_error_of_node = false;
	/* As in the plugin, end this rank when its slurmstepd ends. execve() keeps this setting. */
	if (number_of("SLURM_TASK_PID") == (uint32_t)getpid())
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	ddp_step_read_program(&channel, options.program);
	(void)ddp_format(card.gpus, sizeof(card.gpus), "%s", gpus ? gpus : "");
	if (choose_directories(base, &why) < 0 ||
	    (task.size > 1 && meet_others(&meet, meet_limit(), &why) < 0)) {
		/*
		 * An error before the time limit is an error of all tasks of this node. A timeout
		 * can be an error of this task only, which waited for other tasks in vain.
		 */
		is_error_of_node = ddp_seconds() - begin < meet_limit();
		return guess(why.text, facts, plan, message);
	}
	rv = agree(meet, base, facts, plan, message);
	if (rv == 0) {
		clean_up(meet);
		if (channel.failed[0] && facts->directory_seen)
			ddp_rendezvous_enlist(channel.failed, task.rank, host);
	} else {
		ddp_rendezvous_remove(&rdzv);
	}
	meet_close(meet);
	return rv;
}

/* --- One rank without a step --------------------------------------------------------------- */

static int set_up_alone(struct ddp_facts *facts, struct ddp_plan *plan, struct ddp_message *message)
{
	if (describe(message) < 0)
		return -1;
	channel.job = (uint32_t)getpid();
	(void)ddp_format(channel.address, sizeof(channel.address), "localhost");
	if (ddp_step_draw_secrets(&channel) < 0)
		return ddp_fail(message, "cannot draw random numbers: %s", strerror(errno));
	ddp_step_choose_port(&channel, &options.values, true);
	if (make_step_env(NULL, message) < 0 || make_plan(facts, plan, message) < 0)
		return -1;
	return check_port(facts, message);
}

/* --- The program --------------------------------------------------------------------------- */

/*
 * Whether execvp() can find a file [name]. The error of execvp() does not show this, because it is
 * also EACCES if a directory in PATH cannot be read.
 */
static bool is_there(const char *name)
{
	const char *path = getenv("PATH");
	char file[DDP_PATH_SIZE];
	struct stat st;

	if (strchr(name, '/'))
		return true;
	for (const char *at = path ? path : ""; *at; at += *at == ':') {
		size_t n = strcspn(at, ":");

		if (ddp_format(file, sizeof(file), "%.*s/%s", (int)n, at, name) == 0 &&
		    stat(file, &st) == 0)
			return true;
		at += n;
	}
	return false;
}

static int run_program(char **argv)
{
	int error;

	execvp(argv[0], argv);
	error = errno == EACCES && !is_there(argv[0]) ? ENOENT : errno;
	complain(true, "%s%scannot start %s: %s", host, host[0] ? ": " : "", argv[0],
		 strerror(error));
	return error == ENOENT ? EXIT_MISSING : EXIT_CANNOT;
}

/*
 * Refuse launchers such as torchrun or mpirun, because each task would become a separate world.
 * Returns false if the program is refused.
 */
static bool judge_program(void)
{
	uint32_t tasks = number_of("SLURM_STEP_NUM_TASKS"),
		 nodes = number_of("SLURM_STEP_NUM_NODES");
	struct ddp_message judged = {""};
	enum ddp_verdict verdict;

	if (!options.program[0])
		return true;
	verdict = ddp_starter_judge(options.program, environ, tasks, nodes, channel.restarts_max,
				    &judged);
	if (verdict == DDP_VERDICT_REFUSE && !options.values.launcher_allowed) {
		complain(false, "%s", judged.text);
		return false;
	}
	if (verdict == DDP_VERDICT_TELL && channel.restart == 0 && number_of("SLURM_PROCID") == 0)
		say("%s", judged.text);
	return true;
}

static int set_up(enum place place)
{
	struct ddp_message message = {""};
	struct ddp_facts facts;
	struct ddp_plan plan = {.n_changes = 0};
	int rv;

	if (read_run(&channel, &message) < 0) {
		complain(false, "%s", message.text);
		return EXIT_USAGE;
	}
	if (place == PLACE_TASK && !judge_program())
		return EXIT_FAILURE;
	if (place == PLACE_ALONE && !options.given[EXEC_OPTION_PRINT] && isatty(STDERR_FILENO) &&
	    is_there("srun"))
		say("this process is a world of one rank. To start one rank for each task, write srun "
		    "ddp-exec.");
	rv = place == PLACE_TASK ? set_up_task(&facts, &plan, &message)
				 : set_up_alone(&facts, &plan, &message);
	if (rv == 0) {
		ddp_task_say_plan(&facts, &plan, say);
		rv = apply(&plan, &message);
	}
	/*
	 * A task that prints no error waits. With --kill-on-bad-exit, the first task that exits
	 * ends all others, even those that are still in the meeting.
	 */
	if (rv < 0 && task.size > 1 &&
	    (channel.problem[0] || (is_error_of_node && task.local_rank > 0)))
		stay_silent();
	else if (rv < 0 && !channel.problem[0])
		complain(true, "%s", message.text);
	ddp_plan_clear(&plan);
	return rv < 0 ? EXIT_FAILURE : 0;
}

int main(int argc, char **argv)
{
	struct ddp_message message = {""};
	enum place place;
	int status;

	(void)argc;
	ddp_stdio_open();
	if (exec_options_parse(&options, argv, environ, &message) < 0) {
		complain(false, "%s", message.text);
		return EXIT_USAGE;
	}
	if (options.given[EXEC_OPTION_HELP])
		exec_options_print_help();
	else if (options.given[EXEC_OPTION_VERSION])
		printf("ddp-exec %s\n", PACKAGE_VERSION);
	if (options.given[EXEC_OPTION_HELP] || options.given[EXEC_OPTION_VERSION])
		return ddp_stdio_flush("ddp-exec") < 0 ? EXIT_FAILURE : 0;
	if (!options.program[0] && !options.given[EXEC_OPTION_PRINT]) {
		complain(false, "no program is given. Write srun ddp-exec [OPTION...] program "
				"[argument...].");
		return EXIT_USAGE;
	}
	place = place_find(environ, &message);
	if (place == PLACE_WRONG) {
		complain(false, "%s", message.text);
		return EXIT_USAGE;
	}
	if (place == PLACE_TASK && place_is_set_up(environ)) {
		if (options.given[EXEC_OPTION_PRINT])
			say("the variables of this step are already set. Use srun --ddp-verbose "
			    "to print them.");
	} else if (!options.program[0] || !ddp_is_launcher(options.program[0])) {
		status = set_up(place);
		if (status != 0) {
			end_step();
			return status;
		}
	} else if (place == PLACE_TASK && !judge_program()) {
		return EXIT_FAILURE;
	}
	if (options.given[EXEC_OPTION_PRINT])
		return ddp_stdio_flush("ddp-exec") < 0 ? EXIT_FAILURE : 0;
	status = run_program(options.program);
	end_step();
	return status;
}
