/* SPDX-License-Identifier: Apache-2.0 */
/*
 * srun.c - inside srun, as the user: decide once what all ranks must agree on
 *
 * Before the step exists: read the options and refuse bad ones, and put what is known into the
 * channel variable, which reaches every component of a heterogeneous step from here. Once it
 * exists: find rank 0's node, choose the port, make the rendezvous directory. At the end:
 * remove that.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
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

extern char **environ;

static struct {
	struct ddp_values values;
	struct ddp_message disabled; /* why the plugin is of no use here; "" if it is */
	struct ddp_channel channel;
	struct ddp_rendezvous rdzv;
	unsigned components; /* of a heterogeneous step, so far */
	uint32_t job;	     /* SLURM_JOB_ID, of a heterogeneous job's first component */
	pid_t owner;	     /* a child of srun must not clean up */
	uid_t user;	     /* before the step exists; srun --uid=USER becomes that user then */
	int run;	     /* where ddp-run listens, or -1 */
} srun = {.rdzv.parent = -1, .run = -1};

/* MASTER_PORT of the user's own must be a port, or rank 0 would find that out much later. */
static int check_users_port(struct ddp_message *message)
{
	const char *port = ddp_users_value(environ, DDP_NAME(MASTER_PORT));
	uint64_t number;

	if (port && ddp_parse_number(port, 1, 65535, &number) < 0)
		return ddp_fail(message,
				"MASTER_PORT=%.100s in your environment is not a port, 1 to "
				"65535; unset it and one is chosen",
				port);
	return 0;
}

/* A directory whose path is known already can be checked before there is a step, unless --uid may follow. */
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
 * Whatever can be refused is refused here: an option's refusal ends srun also where the line in
 * plugstack.conf says "optional", and any later one does not.
 */
static int take(int id, const char *argument, int remote)
{
	struct ddp_message message;

	if (remote)
		return 0;
	if (ddp_take_option(&srun.values, id, argument) < 0)
		return -1;
	if ((id == DDP_OPT_DDP && check_users_port(&message) < 0) ||
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
			 "disabled by its line in plugstack.conf on this host: %s; tell your "
			 "administrator",
			 message.text);
	return ddp_register_options(spank, take);
}

/* Put the channel, as far as it is known, where the tasks will find it. */
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
 * Say why the step must not train, and say it to the tasks too: with "optional" in
 * plugstack.conf Slurm goes on whatever we return.
 */
static int refuse(const char *why)
{
	ddp_say_error("%s", why);
	(void)ddp_format(srun.channel.problem, sizeof(srun.channel.problem), "%s", why);
	(void)publish();
	return -1;
}

/* Two numbers, since NCCL sends its own in the clear. */
static int draw_secrets(struct ddp_channel *ch)
{
	uint64_t random[2];

	if (getrandom(random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
		return -1;
	ch->magic = random[1] | 1;
	return ddp_format(ch->nonce, sizeof(ch->nonce), "%016llx", (unsigned long long)random[0]);
}

/* An option without --ddp does nothing; that is a slip of the hand, not a wish. */
static void tell_useless_options(void)
{
	if (srun.values.source[DDP_OPT_DDP] == DDP_FROM_COMMAND)
		return; /* --no-ddp: a wish indeed */
	for (int id = 0; id < DDP_OPT_COUNT; id++)
		if (id != DDP_OPT_DDP && srun.values.source[id] == DDP_FROM_COMMAND)
			ddp_say("--%s does nothing without --ddp",
				ddp_option((enum ddp_option_id)id)->option);
}

/* HOME, but not that of root where srun --uid=USER has become USER. */
static const char *find_home(void)
{
	const struct passwd *pw = geteuid() == srun.user ? NULL : getpwuid(geteuid());

	return geteuid() == srun.user ? ddp_env_filled(environ, "HOME") : pw ? pw->pw_dir : NULL;
}

/*
 * Where nobody named a directory: the working directory, or, where others could exchange that, as those of
 * projects whose group may write, the user's home. Refused below if that is not better.
 */
static const char *choose_default(const char *cwd)
{
	const char *home = find_home();
	struct ddp_message message;

	if (!home || *home != '/' || ddp_rendezvous_usable(cwd, &message) == 0 ||
	    ddp_rendezvous_usable(home, &message) < 0)
		return cwd;
	return home;
}

/* The directory under which the rendezvous is made, absolute, its placeholders still in it. */
static int choose_base(struct ddp_message *message)
{
	const char *wanted = srun.values.directory;
	struct ddp_channel *ch = &srun.channel;
	char cwd[DDP_PATH_SIZE / 2];

	ch->base_asked = *wanted != '\0';
	if (*wanted == '/')
		return ddp_format(ch->base, sizeof(ch->base), "%s", wanted);
	if (!getcwd(cwd, sizeof(cwd))) {
		if (*wanted)
			return ddp_fail(message,
					"the working directory is not known (%s); give "
					"--ddp-rdzv an absolute path",
					strerror(errno));
		ch->base[0] = '\0';
		return 0;
	}
	if (*wanted && strpbrk(cwd, "?#%"))
		return ddp_fail(message,
				"%s: a rendezvous URL cannot carry '?', '#' or '%%'; give "
				"--ddp-rdzv an absolute path without them",
				cwd);
	if (!*wanted)
		return ddp_format(ch->base, sizeof(ch->base), "%s", choose_default(cwd));
	return ddp_format(ch->base, sizeof(ch->base), "%s/%s", cwd, wanted);
}

/* The user's name for %u; a look-up can be a question to a server, so only where it is used. */
static void find_user(struct ddp_channel *ch)
{
	const struct passwd *pw = strstr(srun.values.directory, "%u") ? getpwuid(geteuid()) : NULL;

	if (!pw || ddp_format(ch->user, sizeof(ch->user), "%s", pw->pw_name) < 0)
		(void)ddp_format(ch->user, sizeof(ch->user), "%u", geteuid());
}

static void describe_self(struct ddp_channel *ch)
{
	ch->pid = (uint32_t)getpid();
	ch->began = ddp_process_began(ch->pid);
	srun.user = geteuid();
	if (gethostname(ch->from, sizeof(ch->from) - 1) < 0)
		ch->from[0] = '\0';
	find_user(ch);
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
	if (draw_secrets(ch) < 0)
		return ddp_fail(message, "no random number to be had: %s", strerror(errno));
	if (check_users_port(message) < 0)
		return -1;
	return choose_base(message);
}

/* --- ddp-run, where it started srun: what it says, and what it is told ------------------------ */

/* No task and no other srun is to take this for its own, so it leaves the environment. */
static int hear_run(struct ddp_channel *ch, struct ddp_message *message)
{
	const struct {
		const char *name;
		uint32_t *value;
	} numbers[] = {{DDP_RUN_RESTART, &ch->restart}, {DDP_RUN_RESTARTS_MAX, &ch->restarts_max}};
	const char *fd = ddp_env_filled(environ, DDP_RUN_FD);
	const char *id = ddp_env_filled(environ, DDP_RUN_ID);
	uint64_t number;
	struct stat st;
	int rv = 0;

	for (size_t i = 0; rv == 0 && i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		const char *text = ddp_env_filled(environ, numbers[i].name);

		if (!text)
			continue;
		if (ddp_parse_number(text, 0, UINT32_MAX, &number) < 0)
			rv = ddp_fail(message, "%s=%.100s is no number; ddp-run sets it: unset it",
				      numbers[i].name, text);
		ch->run = 1;
		*numbers[i].value = (uint32_t)number;
	}
	if (id && ddp_format(ch->run_id, sizeof(ch->run_id), "%s", id) < 0)
		rv = ddp_fail(message,
			      DDP_RUN_ID "=%.100s... is too long; ddp-run sets it: unset it", id);
	if (rv == 0 && ddp_parse_number(fd, 3, INT_MAX, &number) == 0 &&
	    fstat((int)number, &st) == 0 && (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode))) {
		srun.run = (int)number;
		(void)fcntl(srun.run, F_SETFD, FD_CLOEXEC);
	}
	unsetenv(DDP_RUN_RESTART);
	unsetenv(DDP_RUN_RESTARTS_MAX);
	unsetenv(DDP_RUN_ID);
	unsetenv(DDP_RUN_FD);
	return rv;
}

/* Which step this is, and where it leaves what went wrong. */
static void tell_run(const struct ddp_channel *ch)
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
		ddp_say("cannot tell ddp-run which step this is: %s", strerror(errno));
	/* srun has a child, which has it too: only this ends what ddp-run reads. */
	(void)shutdown(srun.run, SHUT_WR);
	close(srun.run);
	srun.run = -1;
}

int ddp_srun_options_read(void)
{
	struct ddp_message message = {"the path of the working directory is too long"}, from_run;
	int heard;

	/* An outer step's plan, which a batch script or a task inherited, is not this step's. */
	if (srun.components == 0)
		unsetenv(DDP_CHANNEL_NAME);
	heard = hear_run(&srun.channel, &from_run);
	if (ddp_values_from_env(&srun.values, environ, &message) < 0)
		return refuse(message.text);
	if (!srun.values.enabled) {
		tell_useless_options();
		return 0;
	}
	if (heard < 0)
		return refuse(from_run.text);
	if (begin(&message) < 0)
		return refuse(message.text);
	return publish();
}

/* --- The step exists ------------------------------------------------------------------ */

static uint32_t env_number(const char *name)
{
	uint64_t number;

	if (ddp_parse_number(ddp_env_get(environ, name), 0, UINT32_MAX, &number) < 0)
		return 0;
	return (uint32_t)number;
}

/* Which step this is. Returns 0, or -1 if it is none that has ranks. */
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
 * If the step has all nodes of the job, task 0 runs on the first, and the first task of each node follows that of
 * the node before. Exceptions: the user laid the tasks out by hand; from Slurm 26.05 on, the topology does; the
 * names sort differently than the nodes of the step do, as after the job was shrunk or with SwitchAsNodeRank.
 * SLURM_NODELIST is the job's and srun has just set it; SLURM_STEP_NODELIST would be an outer step's here.
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

/* Rank 0's node and the order of all, by the layout; slurmctld is asked only where it is not plain. */
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
			ddp_say("this step's nodes are in no order that fits: NODE_RANK counts them by "
				"SLURM_NODEID, but for rank 0's, which is node 0");
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

/* The kernel's range for outgoing connections, which a listener had better avoid. */
static struct ddp_port_range ephemeral_range(void)
{
	struct ddp_port_range range = {32768, 60999};
	FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
	unsigned lo, hi;

	if (file) {
		if (fscanf(file, "%u %u", &lo, &hi) == 2 && lo <= hi)
			range = (struct ddp_port_range){lo, hi};
		fclose(file);
	}
	return range;
}

static void set_port(struct ddp_channel *ch, uint32_t port, uint32_t ras_port, const char *from)
{
	ch->port = port;
	ch->ras_port = ras_port <= 65535 ? ras_port : 0;
	(void)ddp_format(ch->port_from, sizeof(ch->port_from), "%s", from);
}

/* The user's, else the option's, else one that Slurm reserved, else one computed. */
static void choose_port(struct ddp_channel *ch)
{
	const char *users = ddp_users_value(environ, DDP_NAME(MASTER_PORT));
	uint64_t hash = ddp_step_hash(ch->cluster, ch->job, ch->step, ch->attempt);
	bool optional = srun.values.source[DDP_OPT_PORT] != DDP_FROM_DEFAULT;
	struct ddp_port_range range = optional ? srun.values.ports : srun.values.site_ports;
	uint32_t computed = ddp_port_compute(range, ephemeral_range(), hash), ports[2] = {0, 0};
	char reserved[512] = "";
	uint64_t number;

	if (users && ddp_parse_number(users, 1, 65535, &number) == 0) {
		if (optional)
			ddp_say("MASTER_PORT=%s of your environment is used, --ddp-port is not",
				users);
		set_port(ch, (uint32_t)number, (uint32_t)number + 1, "yours");
		return;
	}
	set_port(ch, computed, computed + 1, optional ? "--ddp-port" : "computed");
	if (optional)
		return;
	/* Components of a heterogeneous job have reserved ports each, and must agree on one. */
	if (srun.components > 1 &&
	    ddp_ask_ports(ch->job, ch->step, reserved, sizeof(reserved)) == 0 &&
	    ddp_ports_reserved(reserved, ports, 2) > 0)
		set_port(ch, ports[0], ports[1], "reserved by Slurm");
	else
		ch->reserved_first = srun.components == 1;
}

/* As root, srun must not make the fixed part of rdzv= in plugstack.conf: with mode 0700 it would be root's alone. */
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
		find_user(ch);
		if (choose_base(message) < 0)
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
 * Where nobody asked for a directory, none is needed: the nodes say it in one line, and env://
 * goes on.
 */
static int make_directory(struct ddp_channel *ch, struct ddp_message *message)
{
	if (choose_directory(ch, message) == 0) {
		ddp_rendezvous_sweep(&srun.rdzv, ch, ddp_ask_step_ended);
		return 0;
	}
	/* Later components of a heterogeneous step learn everything from the directory. */
	if (ch->base_asked || srun.components > 1)
		return -1;
	(void)ddp_format(ch->no_directory, sizeof(ch->no_directory), "%s", message->text);
	return 0;
}

/*
 * A program that starts ranks itself: say what becomes of it, or refuse it. Nothing may run then, whatever
 * plugstack.conf says: as with an option that is wrong.
 */
static int look_at_program(spank_t spank, struct ddp_channel *ch, struct ddp_message *message)
{
	uint32_t tasks = 0, nodes = 0;
	struct ddp_message judged = {""};
	enum ddp_verdict verdict;
	char **argv = NULL;
	int argc = 0;

	if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1 ||
	    !argv || spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_NNODES, &nodes) != ESPANK_SUCCESS)
		return 0;
	ch->standalone = ddp_starter_is_standalone(argv);
	verdict = ddp_starter_judge(argv, environ, tasks, nodes, ch->restarts_max, &judged);
	/* The attempts of ddp-run are of one program. */
	if (verdict == DDP_VERDICT_TELL && ch->restart == 0)
		ddp_say("%s", judged.text);
	ch->stop = verdict == DDP_VERDICT_REFUSE && !srun.values.launcher_allowed;
	return ch->stop ? ddp_fail(message, "%s", judged.text) : 0;
}

/*
 * When the job ends, and its shards. From 23.02 on the first needs no question: slurmstepd has it from the step's
 * credential and tells the tasks.
 */
static bool ask_job(struct ddp_channel *ch)
{
	bool shards = false;
	time_t end = 0;

	if (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0) && !ddp_cluster_has_shards())
		return false;
	if (ddp_ask_job(ch->job, &end, &shards, ch->parts, sizeof(ch->parts)) == 0 && end > 0)
		ch->end_time = (uint64_t)end;
	return shards;
}

static int decide(spank_t spank, struct ddp_channel *ch, struct ddp_message *message)
{
	const char *list = ddp_env_filled(environ, "SLURM_NODELIST");
	bool shards;

	if (look_at_program(spank, ch, message) < 0 || find_node(spank, ch, message) < 0 ||
	    choose_address(ch) < 0)
		return -1;
	choose_port(ch);
	shards = ask_job(ch);
	if (srun.values.shards_per_gpu)
		snprintf(ch->site_shards, sizeof(ch->site_shards), "%u",
			 srun.values.shards_per_gpu);
	if (shards && list && ddp_ask_shards(list, ch->shards, sizeof(ch->shards)) > 0)
		ddp_say("how many shards a GPU has differs among the %ld nodes, and their list has "
			"more than %d bytes: DDP_SHARE stays unset, unless the administrator says "
			"it with shards_per_gpu=N in plugstack.conf",
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
	/* Slurm sets it for a step that has reserved ports; an outer step's must not stand in. */
	unsetenv("SLURM_STEP_RESV_PORTS");
	if (identify(spank, &srun.channel) < 0) {
		unsetenv(DDP_CHANNEL_NAME);
		return 0;
	}
	if (srun.channel.problem[0])
		return -1;
	if (decide(spank, &srun.channel, &message) < 0)
		return refuse(message.text);
	tell_run(&srun.channel);
	/* Called for a later component: that one finds it in the directory, like all but the first. */
	if (spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS && job != srun.channel.job)
		return 0;
	return publish();
}

void ddp_srun_exit(void)
{
	if (srun.owner == getpid())
		ddp_rendezvous_remove(&srun.rdzv);
}
