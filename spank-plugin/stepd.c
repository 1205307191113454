/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_version.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/mps.h"
#include "context.h"
#include "core/format.h"
#include "core/plan.h"
#include "rendezvous.h"

/* --- Is a port taken? -------------------------------------------------------------------- */

/*
 * Asks the kernel for its listening sockets instead of binding: a bind would itself take the
 * port for a moment, and rank 0 may bind with options of its own. The question goes over
 * netlink, because reading /proc/net/tcp walks through every connection and takes milliseconds.
 */

enum { STATE_LISTEN = 0x0a };

/* One table has a header line, then "sl: address:port address:port state queues timer retr uid". */
static bool look(const char *path, uint32_t port, uid_t *uid)
{
	FILE *file = fopen(path, "re");
	char line[512];
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		unsigned local, state, owner;

		if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %u",
			   &local, &state, &owner) != 3)
			continue;
		if (state == STATE_LISTEN && local == port) {
			*uid = (uid_t)owner;
			found = true;
		}
	}
	fclose(file);
	return found;
}

/* One question to the kernel: who listens at [port]? */
static int ask(int fd, int family, uint32_t port)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} question = {
		.head = {.nlmsg_len = sizeof(question),
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		.body = {.sdiag_family = (uint8_t)family,
			 .sdiag_protocol = IPPROTO_TCP,
			 .idiag_states = 1U << STATE_LISTEN,
			 .id.idiag_sport = htons((uint16_t)port)},
	};

	return send(fd, &question, sizeof(question), 0) == (ssize_t)sizeof(question) ? 0 : -1;
}

/* Returns 1 and the owner, 0 if nobody listens, -1 if the kernel does not say. */
static int hear(int fd, uint32_t port, uid_t *uid)
{
	union {
		struct nlmsghdr head;
		char bytes[8192];
	} answer;
	int found = 0;

	for (;;) {
		ssize_t n = recv(fd, &answer, sizeof(answer), 0);
		const struct nlmsghdr *h = &answer.head;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		for (unsigned left = (unsigned)n; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
			const struct inet_diag_msg *m = NLMSG_DATA(h);

			if (h->nlmsg_type == NLMSG_DONE)
				return found;
			if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
			    h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
				return -1;
			if (ntohs(m->id.idiag_sport) == port) {
				*uid = m->idiag_uid;
				found = 1;
			}
		}
	}
}

static int look_by_netlink(uint32_t port, uid_t *uid)
{
	static const int families[] = {AF_INET, AF_INET6};
	const struct timeval limit = {.tv_sec = 1};
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	int rv = fd < 0 ? -1 : 0;

	if (rv == 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	for (size_t i = 0; rv == 0 && i < 2; i++)
		rv = ask(fd, families[i], port) < 0 ? -1 : hear(fd, port, uid);
	if (fd >= 0)
		close(fd);
	return rv;
}

/*
 * Tell whether a TCP socket of this network namespace listens on [port], and whose it is.
 * Returns true with the owner in [uid], or false; where the kernel does not say, false.
 */
static bool port_listening(uint32_t port, uid_t *uid)
{
	/* /proc/net/tcp takes milliseconds: it walks through all connections. */
	int rv = look_by_netlink(port, uid);

	if (rv >= 0)
		return rv > 0;
	return look("/proc/net/tcp", port, uid) || look("/proc/net/tcp6", port, uid);
}

/* --- Hooks ------------------------------------------------------------------------------- */

/*
 * On the nodes: collect facts, ask the core, set variables
 *
 * user_init runs once for each node, as the user and before any container plugin changes the
 * view of the file system, so all looking is done there. task_init runs in each task, after
 * Slurm has bound devices, and only sets variables; but where the task has file systems of its own by
 * then, the directory is looked for once more. Whatever goes wrong before task_init is
 * kept until then: failing earlier would go unseen or drain the node.
 */

enum { BLIND_NODES_MAX = 4 }; /* that say that they do not see the directory */

static struct {
	struct ddp_message
		broken; /* what is wrong with this node's plugstack.conf; "" if nothing */
	bool asked;	/* --ddp reached this node */
	bool active;
	struct ddp_message problem; /* why the tasks must not train; "" if all is well */
	bool problem_said;	    /* by srun already */
	struct ddp_channel channel;
	char **env; /* the step's environment, as user_init saw it */
	bool directory_seen;
	struct ddp_message directory_problem;
	struct stat mounts; /* the mount namespace that was looked at */
	bool mps;
	uint64_t gpu_memory;		 /* by this node's own line in plugstack.conf */
	char program[DDP_NAME_SIZE / 4]; /* that the tasks run; "" if it is not known */
} stepd;

static int take(int id, const char *argument, int remote)
{
	(void)argument; /* checked in srun, whose channel carries the values */
	(void)remote;
	if (id == DDP_OPT_DDP)
		stepd.asked = true;
	else if (id == DDP_OPT_NO_DDP)
		stepd.asked = false;
	return 0;
}

/* What concerns the step comes from srun, what concerns the node's GPUs from the node. */
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
		ddp_say_error("disabled by its line in plugstack.conf: %s", message.text);
	return 0;
}

int ddp_stepd_init(spank_t spank, int argc, char **argv)
{
	struct ddp_message message;

	if (read_arguments(argc, argv, &message) < 0)
		ddp_fail(&stepd.broken, "disabled by its line in plugstack.conf on this node: %s",
			 message.text);
	(void)ddp_register_options(spank, take);
	return 0;
}

/* --- Once for each node --------------------------------------------------------------- */

static char **copy_env(char *const *env)
{
	size_t n = 0;
	char **copy;

	while (env && env[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < n; i++)
		if (!(copy[i] = strdup(env[i])))
			break; /* the list ends here; a short one is still a list */
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
 * A complete channel names its step. One of another step came with the environment, past every
 * srun that would have dropped it.
 */
static bool is_stale(spank_t spank)
{
	uint32_t job = 0, step = 0;

	return stepd.channel.complete && spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS &&
	       spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	       (stepd.channel.job != job || stepd.channel.step != step);
}

/* The base of a later component's channel, with what it can know put in. */
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

/* A later component of a heterogeneous step: the whole record is in the directory. */
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
	stepd.problem_said = stepd.channel.problem[0] != '\0';
	if (stepd.problem_said)
		return ddp_fail(message, "%s", stepd.channel.problem);
	return stepd.channel.complete ? 0 : complete_channel(message);
}

static void note_mounts(struct stat *mounts)
{
	if (stat("/proc/self/ns/mnt", mounts) < 0)
		*mounts = (struct stat){0};
}

/* Look whether this node shares the rendezvous directory. */
static void look_at_directory(const char *host)
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
 * In a task, whose job may have a /tmp of its own (job_container/tmpfs, namespace/tmpfs) or a container: what
 * counts is what it sees. A directory that the node has and the task has not is no refusal: env:// needs none.
 * Returns 0, or -1 where neither sees what was asked for.
 */
static int look_from_task(const char *host, struct ddp_message *message)
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
				"tasks on node %s do not see %s, which the node has, for they have "
				"file systems of their own (%s); give a directory that they see "
				"with --ddp-rdzv=DIR",
				host, ch->directory, why.text);
	}
	if (stepd.directory_seen || node_sees || !ch->directory[0] || !ch->base_asked)
		return 0;
	return ddp_fail(message, "%s", stepd.directory_problem.text);
}

/* This node's name as Slurm has it: in a task's environment, and in slurmstepd's own before. */
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
	/* The step's environment is still srun's, which may have run on another node. */
	look_at_directory(host_name(NULL));
	return 0;
}

/* --- In each task --------------------------------------------------------------------- */

static uint32_t count_cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 0;
}

/* From 23.02 on slurmstepd has it from the step's credential; before, the variable is anybody's. */
static void find_end_time(char *const *env)
{
	const char *end = ddp_env_get(env, "SLURM_JOB_END_TIME");

	if (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0) && !stepd.channel.end_time)
		(void)ddp_parse_number(end, 1, INT64_MAX, &stepd.channel.end_time);
}

static int collect(spank_t spank, struct ddp_facts *facts, struct ddp_message *message)
{
	uint32_t local_size = 0;
	char **env = NULL, parts[DDP_NAME_SIZE];

	if (spank_get_item(spank, S_JOB_ENV, &env) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &local_size) != ESPANK_SUCCESS)
		return ddp_fail(message, "Slurm does not say what this task is");
	find_end_time(env);
	*facts = (struct ddp_facts){
		.channel = &stepd.channel,
		.step_env = stepd.env,
		.task_env = env,
		.host = host_name(env),
		.directory_seen = stepd.directory_seen,
		.directory_problem = stepd.directory_problem.text,
		.program = stepd.program,
		.mps = stepd.mps,
		.gpu_memory = stepd.gpu_memory,
		.cpu_mask = count_cpus(),
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
			.parts = ddp_channel_parts(&stepd.channel, facts->host, parts),
			.mode = (enum ddp_local_rank_mode)stepd.channel.local_rank,
		},
		&facts->devices);
	return 0;
}

/*
 * Rank 0 is about to listen. Where the user gave an address of another store, or the number
 * comes from elsewhere, the look is still right: it is this node's port that counts.
 */
static int look_at_port(const struct ddp_facts *facts, const struct ddp_plan *plan,
			struct ddp_message *message)
{
	const struct ddp_change *address = ddp_plan_find(plan, DDP_NAME(MASTER_ADDR));
	const struct ddp_change *port = ddp_plan_find(plan, DDP_NAME(MASTER_PORT));
	bool users = port && port->action == DDP_ACTION_KEEP;
	uint64_t number;
	uid_t uid = 0;

	if (facts->task.rank != 0 || !port || !port->value ||
	    (address && address->action == DDP_ACTION_KEEP))
		return 0;
	if (ddp_parse_number(port->value, 1, 65535, &number) < 0)
		return ddp_fail(message, "MASTER_PORT=%.100s is not a port", port->value);
	if (!port_listening((uint32_t)number, &uid))
		return 0;
	return ddp_fail(message,
			"port %s of %s, where rank 0 runs, is taken by a process of user %u; %s",
			port->value, facts->host, uid,
			users ? "unset MASTER_PORT and a free one is chosen"
			      : "start the step again, or choose another with --ddp-port=LO-HI");
}

static bool speaks(const struct ddp_task *id, enum ddp_speaker speaker)
{
	return speaker == DDP_SPEAKER_STEP ? id->rank == 0 : id->local_rank == 0;
}

/* Its value lets a stranger in, and output is often readable by others. */
static bool is_secret(const char *name)
{
	return strcmp(name, DDP_NAME(NCCL_SOCKET_MAGIC)) == 0 ||
	       strcmp(name, DDP_NAME(DDP_OURS)) == 0;
}

static const char *value_in(const struct ddp_plan *plan, const char *name)
{
	const struct ddp_change *change = ddp_plan_find(plan, name);

	return change && change->value ? change->value : "-";
}

static void say_plan(const struct ddp_facts *facts, const struct ddp_plan *plan)
{
	static const char *const verbs[] = {"set", "unset", "kept"};
	const struct ddp_task *id = &facts->task;

	for (size_t i = 0; i < plan->n_notes; i++)
		if (speaks(id, plan->notes[i].speaker))
			ddp_say("%s", plan->notes[i].text);
	if (!stepd.channel.verbose)
		return;
	if (id->rank != 0) {
		ddp_say("rank %u of %u on %s: local %u of %u, LOCAL_RANK=%s, device %s, share %s",
			id->rank, id->size, facts->host, id->local_rank, id->local_size,
			value_in(plan, DDP_NAME(LOCAL_RANK)), value_in(plan, DDP_NAME(DDP_DEVICE)),
			value_in(plan, DDP_NAME(DDP_SHARE)));
		return;
	}
	for (size_t i = 0; i < plan->n_changes; i++) {
		const struct ddp_change *c = &plan->changes[i];
		bool shown = c->value && !(c->action == DDP_ACTION_SET && is_secret(c->name));

		ddp_say("rank 0 on %s: %s %s%s%s (%s)", facts->host, verbs[c->action], c->name,
			shown ? "=" : "", shown ? c->value : "", c->why);
	}
}

/*
 * Rank 0 says that there is no directory. A node that alone does not see it must say so too, or
 * its ranks would be without the variables and nobody would know why; but a thousand nodes need
 * not say the same.
 */
static void say_blind(const struct ddp_facts *facts)
{
	if (facts->task.node_rank >= BLIND_NODES_MAX && !stepd.channel.verbose)
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

		/* A kept value may have been replaced by a container's hook meanwhile. */
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
 * The task must not train. With "required" in plugstack.conf, -1 ends it; with "optional" Slurm
 * starts it all the same, and then DDP_ERROR is all it gets.
 */
static int refuse(spank_t spank, const char *why, bool aloud)
{
	struct ddp_plan plan;
	char **env = NULL;

	/* slurmstepd begins its lines with its node's name, up to 25.05. */
	if (aloud && SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0))
		ddp_say_error("%s: %s", host_name(NULL), why);
	else if (aloud)
		ddp_say_error("%s", why);
	(void)spank_get_item(spank, S_JOB_ENV, &env);
	if (ddp_plan_refuse(env, why, &plan) == 0) {
		(void)apply(spank, &plan, NULL);
		ddp_plan_clear(&plan);
	}
	return -1;
}

/*
 * What concerns the whole node is said by its first task. What must not run ends here, in the task's own process:
 * where plugstack.conf says "optional", Slurm would start it whatever is returned.
 */
static int refuse_node(spank_t spank)
{
	uint32_t local = 0;

	if (stepd.channel.stop)
		_exit(EXIT_FAILURE);
	(void)spank_get_item(spank, S_TASK_ID, &local);
	return refuse(spank, stepd.problem.text, local == 0 && !stepd.problem_said);
}

int ddp_stepd_task_init(spank_t spank)
{
	struct ddp_message message;
	struct ddp_facts facts;
	struct ddp_plan plan;

	if (!stepd.active)
		return 0;
	/*
	 * A rank whose slurmstepd was killed would train on without output, and nobody would hear of its end or could bring
	 * it about: it ends with it. The program's execve() keeps that, as privileges were dropped before.
	 */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!stepd.problem.text[0])
		(void)look_from_task(host_name(NULL), &stepd.problem);
	if (stepd.problem.text[0])
		return refuse_node(spank);
	if (collect(spank, &facts, &message) < 0 || ddp_plan_make(&facts, &plan, &message) < 0)
		return refuse(spank, message.text, true);
	if (look_at_port(&facts, &plan, &message) < 0 || apply(spank, &plan, &message) < 0) {
		ddp_plan_clear(&plan);
		return refuse(spank, message.text, true);
	}
	say_plan(&facts, &plan);
	say_blind(&facts);
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
