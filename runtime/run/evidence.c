/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/command.h"
#include "base/file.h"
#include "base/watch.h"
#include "contract.h"
#include "facts.h"
#include "srun-line.h"
#include "verdict.h"

/* Of all architectures. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#define SYS_pidfd_send_signal 424
#endif

extern char **environ;

enum {
	OUTPUT_LIMIT = 1 << 18, /* bytes of a command's output */
	NODES_ASKED = 16,
	PROCESSES = 4096, /* of the step on a node */
	STACKS = 3,	  /* processes of a rank whose stacks are taken */
	NOTHING_THERE = 3 /* exit status: the node has no process of the step */
};

/* --- A command with a limit -------------------------------------------------------------------- */

/* For Slurm's commands: nothing of ddp, or they would set up ranks. */
static bool is_ours(const char *variable)
{
	return strncmp(variable, "SLURM_DDP", strlen("SLURM_DDP")) == 0 ||
	       strstr(variable, "SPANK_OPTION_ddp") != NULL;
}

/*
 * For a step of our own beside the user's: what they ask for theirs srun would ask for again, and refuse it beside what we
 * say, as SLURM_NTASKS_PER_GPU. What is left says where Slurm is.
 */
static bool is_request(const char *variable)
{
	static const char *const kept[] = {
		"SLURM_CONF=",	  "SLURM_CLUSTER_NAME=", "SLURM_WORKING_CLUSTER=",
		"SLURM_STEPMGR=", "SLURM_HET_SIZE=",	 "SLURM_JWT=",
		"SLURM_SACK_"};

	if (is_ours(variable))
		return true;
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (strncmp(variable, kept[i], strlen(kept[i])) == 0)
			return false;
	return strncmp(variable, "SLURM_", strlen("SLURM_")) == 0;
}

static void drop(bool (*is_dropped)(const char *))
{
	for (size_t i = 0; environ[i];) {
		char name[256];

		if (is_dropped(environ[i]) &&
		    snprintf(name, sizeof(name), "%.*s", (int)strcspn(environ[i], "="),
			     environ[i]) < (int)sizeof(name) &&
		    unsetenv(name) == 0)
			continue;
		i++;
	}
}

static void drop_ours(void)
{
	drop(is_ours);
}
static void drop_requests(void)
{
	drop(is_request);
}

static int run_command(char *const argv[], double limit, size_t most, void (*prepare)(void),
		       struct ddp_text *out)
{
	const struct ddp_command how = {
		.limit = limit,
		.grace = 1, /* srun ends its step on SIGTERM, if it can */
		.most = most,
		.merged = true,
		.prepare = prepare,
	};
	struct ddp_command_said said;
	int status;

	ddp_command_run(argv, &how, &said);
	status = said.timed_out ? -1 : said.status;
	if (said.out.data)
		ddp_text_put(out, said.out.data, said.out.size);
	ddp_command_said_free(&said);
	return status;
}

int evidence_run(char *const argv[], double limit, struct ddp_text *out)
{
	return run_command(argv, limit, OUTPUT_LIMIT, drop_ours, out);
}

int evidence_ask(char *const argv[], double limit, size_t most, struct ddp_text *out)
{
	return run_command(argv, limit, most, drop_ours, out);
}

static void write_text(const char *dir, const char *name, const struct ddp_text *text)
{
	struct iovec part = {text->data, text->size};
	char path[PATH_MAX + 300];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (text->size > 0 && !text->failed)
		(void)ddp_file_write(path, &part, 1, 0600, false, NULL);
}

static const char *node_name(void);
static long tell_memory(const char *dir, const char *job);

/* --- Where ddp-run is ---------------------------------------------------------------------------- */

static void add_node(struct ddp_text *list, int *count, const char *name)
{
	/* What Slurm would take for a list of many, or for an option, is no name of one. */
	if (!*name || *name == '-' || strpbrk(name, ",[] ") || *count >= NODES_ASKED ||
	    (list->data && strstr(list->data, name)))
		return;
	ddp_text_add(list, "%s%s", list->size ? "," : "", name);
	(*count)++;
}

/* Of the node that ddp-run is on, if that is one of the job's, the cgroup is at hand. */
static void look_at_memory(struct facts *facts)
{
	char job[32];
	struct facts_node *node;
	long kills;

	snprintf(job, sizeof(job), "%.0f", facts->job);
	kills = facts->job > 0 ? tell_memory(facts->dir, job) : 0;
	node = kills > 0 ? facts_node(facts, node_name()) : NULL;
	if (node)
		node->kills = kills;
}

void evidence_ask_nodes(struct facts *facts)
{
	struct ddp_text list = {.data = NULL}, out = {.data = NULL};
	char path[PATH_MAX + 16];
	int count = 0;

	snprintf(path, sizeof(path), "%s/nodes.txt", facts->dir);
	if (access(path, F_OK) == 0)
		return;
	look_at_memory(facts);
	for (int i = 0; i < facts->known_count; i++)
		add_node(&list, &count, facts->known[i].name);
	if (facts->first >= 0)
		add_node(&list, &count, facts->ranks[facts->first].node);
	for (int i = 0; i < facts->size; i++)
		if (facts->ranks[i].how == FACTS_NODE)
			add_node(&list, &count, facts->ranks[i].node);
	if (count > 0 && !list.failed) {
		char *const argv[] = {"scontrol", "-o", "show", "node", list.data, NULL};

		if (evidence_run(argv, 5, &out) == 0)
			write_text(facts->dir, "nodes.txt", &out);
		facts_read_nodes(facts);
	}
	ddp_text_free(&list);
	ddp_text_free(&out);
}

/*
 * Run [program], a list of words that ends with NULL, once on each of [nodes], "n1,n2", in a step of [job] beside its others;
 * [loud] is srun's -Q or -v. Returns what evidence_run() does of srun.
 */
static int run_on_nodes(const char *loud, const char *job, const char *nodes, char *const program[],
			double limit, struct ddp_text *out)
{
	char of[64], at[32], count[32];
	char *argv[32] = {"srun",	  (char *)loud,		 of,
			  "--overlap",	  "--gres=none",	 "--mpi=none",
			  "--input=none", "--cpu-bind=none",	 "--kill-on-bad-exit=0",
			  "--wait=0",	  "--export=ALL",	 at,
			  count,	  "--ntasks-per-node=1", "--job-name=" EVIDENCE_STEP,
			  "-w",		  (char *)nodes};
	size_t words = 0;
	unsigned names = 1;

	for (const char *p = nodes; *p; p++)
		names += *p == ',';
	snprintf(of, sizeof(of), "--jobid=%.40s", job);
	snprintf(at, sizeof(at), "--nodes=%u", names);
	snprintf(count, sizeof(count), "--ntasks=%u", names);
	while (argv[words])
		words++;
	while (*program && words + 1 < sizeof(argv) / sizeof(argv[0]))
		argv[words++] = *program++;
	return run_command(argv, limit, OUTPUT_LIMIT, drop_requests, out);
}

/* Where ddp-run itself is, which nodes find at the same place. Returns false where that is not known. */
static bool find_self(char self[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);

	if (n >= 0)
		self[n] = '\0';
	return n >= 0;
}

/* A node that has no ddp-run answers all the same; then there may be processes. */
enum evidence_found evidence_look_for(const char *job, const char *step, const char *node,
				      bool kill, double limit, char *why, size_t size)
{
	char self[PATH_MAX], script[64];
	char *const program[] = {
		"sh",	     "-c",	   script, self, kill ? "--sweep" : "--look",
		(char *)job, (char *)step, NULL};
	struct ddp_text out = {.data = NULL};
	enum evidence_found found = EVIDENCE_UNKNOWN;
	int status;

	snprintf(script, sizeof(script), "\"$0\" \"$@\"; [ $? -ne %d ] || exit %d", NOTHING_THERE,
		 NOTHING_THERE);
	status = find_self(self) ? run_on_nodes("-v", job, node, program, limit, &out) : 127;
	if (status == NOTHING_THERE)
		found = EVIDENCE_NONE;
	else if (status == 0)
		found = EVIDENCE_SOME;
	else if (srun_missed_node(out.data ? out.data : "", status == -1))
		found = EVIDENCE_SILENT;
	else
		srun_reason(out.data ? out.data : "", why, size);
	ddp_text_free(&out);
	return found;
}

int ddp_evidence_gather(const char *dir, const char *job, const char *step, const char *nodes,
			double limit, struct ddp_error *error)
{
	char self[PATH_MAX], seconds[32];
	char *const program[] = {self,	       "--gather", (char *)dir, (char *)job,
				 (char *)step, seconds,	   NULL};
	struct ddp_text out = {.data = NULL};
	int status;

	if (!find_self(self))
		return ddp_error_errno(error, DDP_ERR_SYSTEM, "cannot find ddp-run itself");
	snprintf(seconds, sizeof(seconds), "%.1f", limit * 0.8);
	status = run_on_nodes("-Q", job, nodes, program, limit, &out);
	if (status == -1)
		status = ddp_error_set(error, DDP_ERR_TIMEOUT,
				       "not all of nodes %.200s told what their ranks do in %g s",
				       nodes, limit);
	else if (status != 0)
		status = ddp_error_set(error, DDP_ERR_SYSTEM,
				       "srun on nodes %.200s ended with %d: %.500s", nodes, status,
				       out.data ? out.data : "");
	ddp_text_free(&out);
	return status;
}

void ddp_evidence_discard(const char *dir)
{
	DIR *open = opendir(dir);
	char above[PATH_MAX];
	struct dirent *entry;
	char *slash;

	if (!open)
		return;
	while ((entry = readdir(open)))
		if (entry->d_name[0] != '.')
			(void)unlinkat(dirfd(open), entry->d_name, 0);
	closedir(open);
	if (rmdir(dir) < 0 || snprintf(above, sizeof(above), "%s", dir) >= (int)sizeof(above))
		return;
	slash = strrchr(above, '/');
	if (!slash)
		return;
	*slash = '\0';
	slash = strrchr(above, '/');
	if (strcmp(slash ? slash + 1 : above, DDP_DIR_PARENT) == 0)
		(void)rmdir(above);
}

/* --- On a node: which processes are the step's ----------------------------------------------------- */

struct process {
	long pid, parent;
	int rank;
	char state;
	char name[32];
	bool task;	   /* what Slurm started, and no child of it */
	bool asked;	   /* for a dump of PyTorch's flight recorder */
	char *environment; /* /proc/<pid>/environ, with its size */
	size_t size;
};

static char *read_proc(long pid, const char *name, size_t *size)
{
	char path[64], piece[4096];
	char *text = NULL;
	FILE *out = open_memstream(&text, size);
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && out && (n = read(fd, piece, sizeof(piece))) > 0)
		fwrite(piece, 1, (size_t)n, out);
	if (out)
		fclose(out);
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && text)
		return text;
	free(text);
	return NULL;
}

static const char *variable(const char *environment, size_t size, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = environment; at < environment + size; at += strlen(at) + 1)
		if (strncmp(at, name, n) == 0 && at[n] == '=')
			return at + n + 1;
	return NULL;
}

static bool is_same(const struct process *process, const char *name, const char *value)
{
	const char *has = variable(process->environment, process->size, name);

	return has && value && strcmp(has, value) == 0;
}

/* "4711 (python3) S 4700 ...", whose name may hold anything. */
static bool read_stat(struct process *process)
{
	size_t size;
	char *text = read_proc(process->pid, "stat", &size), *open, *close;
	bool good;

	open = text ? strchr(text, '(') : NULL;
	close = text ? strrchr(text, ')') : NULL;
	good = open && close > open &&
	       sscanf(close + 1, " %c %ld", &process->state, &process->parent) == 2;
	if (good)
		snprintf(process->name, sizeof(process->name), "%.*s", (int)(close - open - 1),
			 open + 1);
	free(text);
	return good;
}

/* Whether a process above us, up to the one that Slurm started, began without variable [name]; so far as they can be read. */
static bool is_new_here(const char *name)
{
	struct process process = {.pid = getppid()};
	bool lacks = false;

	while (!lacks && process.pid > 1 && read_stat(&process) &&
	       strcmp(process.name, "slurmstepd") != 0) {
		process.environment = read_proc(process.pid, "environ", &process.size);
		lacks = process.environment && !variable(process.environment, process.size, name);
		free(process.environment);
		process.pid = process.parent;
	}
	return lacks;
}

/* Whether process [pid] is the slurmstepd of step [step] of job [job], by the title that slurmstepd gives itself. */
static bool is_slurmstepd(long pid, const char *job, const char *step)
{
	char title[128];
	size_t size;
	char *command = read_proc(pid, "cmdline", &size);
	bool is;

	snprintf(title, sizeof(title), "slurmstepd: [%.40s.%.40s]", job, step);
	is = command && strncmp(command, title, strlen(title)) == 0;
	free(command);
	return is;
}

bool evidence_in_step(const char *job, const char *step)
{
	struct process process = {.pid = getppid()};
	char part[128], *cgroup;
	size_t size;
	bool is;

	for (; process.pid > 1 && read_stat(&process); process.pid = process.parent)
		if (strcmp(process.name, "slurmstepd") == 0)
			return is_slurmstepd(process.pid, job, step);
	/* The parents cannot be read, or a daemon has replaced them. */
	snprintf(part, sizeof(part), "/job_%.40s/step_%.40s/", job, step);
	cgroup = read_proc(getpid(), "cgroup", &size);
	is = cgroup && strstr(cgroup, part);
	free(cgroup);
	return is;
}

const char *evidence_launcher(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
					    "MV2_COMM_WORLD_RANK", "TORCHELASTIC_RUN_ID"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]) && is_new_here(names[i]))
			return names[i];
	return NULL;
}

/* Whether it has [name] as we have it, or not at all where we have none. */
static bool is_as_ours(const struct process *process, const char *name)
{
	const char *has = variable(process->environment, process->size, name);
	const char *ours = getenv(name);

	return has && ours ? strcmp(has, ours) == 0 : has == ours;
}

/*
 * Clusters may share a host, each with a job 1 and a step 0 and a node n1 of its own, and all nodes of a private one do:
 * what is not of our cluster and node is not ours to look at, and least of all to kill.
 */
static bool is_of_step(struct process *process, const char *job, const char *step)
{
	const char *rank;

	process->environment = read_proc(process->pid, "environ", &process->size);
	if (!process->environment)
		return false;
	rank = variable(process->environment, process->size, "SLURM_PROCID");
	if (rank && is_same(process, "SLURM_JOB_ID", job) &&
	    is_same(process, "SLURM_STEP_ID", step) && is_as_ours(process, "SLURM_CLUSTER_NAME") &&
	    is_as_ours(process, "SLURM_CONF") &&
	    (!getenv("SLURMD_NODENAME") || is_as_ours(process, "SLURMD_NODENAME")) &&
	    read_stat(process)) {
		process->rank = atoi(rank);
		return true;
	}
	free(process->environment);
	process->environment = NULL;
	return false;
}

/*
 * Whether it is a task of the step that hides its environment: it has none of Slurm's, or may not be read, and its parent is the
 * step's slurmstepd, by the title that this gives itself. Of a cluster on this host it may be any, so it is not one to kill.
 */
static bool is_hidden_task(struct process *process, const char *job, const char *step)
{
	char *environment;
	bool is = false;
	size_t size;

	environment = read_proc(process->pid, "environ", &size);
	if ((!environment || !variable(environment, size, "SLURM_PROCID")) && read_stat(process) &&
	    !strchr("ZX", process->state))
		is = is_slurmstepd(process->parent, job, step);
	free(environment);
	return is;
}

static bool has_hidden_task(const char *job, const char *step)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	bool has = false;

	while (dir && !has && (entry = readdir(dir))) {
		struct process process = {.pid = atol(entry->d_name)};

		has = process.pid > 0 && is_hidden_task(&process, job, step);
	}
	if (dir)
		closedir(dir);
	return has;
}

static int find_processes(struct process *all, const char *job, const char *step)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int count = 0;

	while (dir && count < PROCESSES && (entry = readdir(dir))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		all[count] = (struct process){.pid = atol(entry->d_name)};
		count += is_of_step(&all[count], job, step);
	}
	if (dir)
		closedir(dir);
	return count;
}

static bool is_task(const struct process *all, int count, const struct process *process)
{
	for (int i = 0; i < count; i++)
		if (all[i].pid == process->parent && all[i].rank == process->rank)
			return false;
	return true;
}

/* --- What a rank does -------------------------------------------------------------------------------- */

static const char *node_name(void)
{
	static char name[FACTS_NAME];
	const char *node = getenv("SLURMD_NODENAME");

	if (!name[0] && (node || gethostname(name, sizeof(name) - 1) == 0))
		snprintf(name, sizeof(name), "%s", node ? node : name);
	return name;
}

/* How long ago its heart beat; less than 0: it never did. */
static double heart(const struct process *process)
{
	const char *path = variable(process->environment, process->size, DDP_NAME(DDP_HEARTBEAT));
	struct stat st;
	double since;

	if (!path || stat(path, &st) < 0)
		return -1;
	since = ddp_date(NULL) - ddp_date(&st.st_mtim);
	return since > 0 ? since : 0;
}

static void add_file(struct ddp_text *out, long pid, const char *name)
{
	size_t size;
	char *text = read_proc(pid, name, &size);

	if (text)
		ddp_text_put(out, text, size);
	free(text);
}

static void add_command(struct ddp_text *out, long pid)
{
	size_t size = 0;
	char *text = read_proc(pid, "cmdline", &size);

	for (size_t i = 0; i + 1 < size; i++)
		if (!text[i] || text[i] == '\n')
			text[i] = ' ';
	ddp_text_add(out, "command %s\n", text ? text : "");
	free(text);
}

/* Of each thread its number, name, and where in the kernel it waits. */
static void add_threads(struct ddp_text *out, long pid)
{
	char path[64];
	DIR *dir;
	struct dirent *entry;

	snprintf(path, sizeof(path), "/proc/%ld/task", pid);
	dir = opendir(path);
	while (dir && out->size < OUTPUT_LIMIT && (entry = readdir(dir))) {
		char name[300];

		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		ddp_text_add(out, "thread %.20s ", entry->d_name);
		snprintf(name, sizeof(name), "task/%.20s/wchan", entry->d_name);
		add_file(out, pid, name);
		ddp_text_put(out, " ", 1);
		snprintf(name, sizeof(name), "task/%.20s/comm", entry->d_name);
		add_file(out, pid, name);
	}
	if (dir)
		closedir(dir);
}

static void tell_process(const char *dir, const struct process *process)
{
	struct ddp_text out = {.data = NULL};
	double beat = heart(process);
	char name[64];

	ddp_text_add(&out, "node %s\npid %ld\nstate %c\nwchan ", node_name(), process->pid,
		     process->state);
	add_file(&out, process->pid, "wchan");
	ddp_text_add(&out, "\nparent ");
	add_file(&out, process->parent, "comm");
	if (beat >= 0)
		ddp_text_add(&out, "beat %.3f\n", beat);
	add_command(&out, process->pid);
	ddp_text_add(&out, "\n");
	add_file(&out, process->pid, "status");
	add_threads(&out, process->pid);
	snprintf(name, sizeof(name), "proc-%d.txt", process->rank);
	write_text(dir, name, &out);
	ddp_text_free(&out);
}

/* Ranks that the plugin says are here: one that hides its environment, or that has no process. */
static void tell_others(const char *dir, const char *job, const char *step,
			const struct process *all, int count)
{
	DIR *open = opendir(dir);
	struct dirent *entry;

	while (open && (entry = readdir(open))) {
		struct ddp_text out = {.data = NULL};
		char path[PATH_MAX + 300], *text = NULL, node[FACTS_NAME] = "", name[64];
		int rank, i = 0;
		long pid = 0;
		size_t size;

		if (sscanf(entry->d_name, DDP_DIR_TASK "%d", &rank) != 1)
			continue;
		while (i < count && all[i].rank != rank)
			i++;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (i == count && ddp_file_read(path, OUTPUT_LIMIT, &text, &size, NULL) == 0 &&
		    sscanf(text, "%127s %ld", node, &pid) == 2 && strcmp(node, node_name()) == 0) {
			struct process hidden = {.pid = pid, .rank = rank};

			if (is_hidden_task(&hidden, job, step)) {
				tell_process(dir, &hidden);
				free(text);
				continue;
			}
			ddp_text_add(&out, "node %s\npid %ld\nstate -\n", node, pid);
			snprintf(name, sizeof(name), "proc-%d.txt", rank);
			write_text(dir, name, &out);
		}
		free(text);
		ddp_text_free(&out);
	}
	if (open)
		closedir(open);
}

/* --- Stacks -------------------------------------------------------------------------------------------- */

static void add_stacks(struct ddp_text *out, const struct process *process, double end)
{
	bool python = strncmp(process->name, "python", 6) == 0;
	char pid[24];
	char *const spy[] = {"py-spy", "dump", "--pid", pid, NULL};
	char *const gdb[] = {"gdb",
			     "-nx",
			     "-batch",
			     "-p",
			     pid,
			     "-ex",
			     "set pagination off",
			     "-ex",
			     "thread apply all bt 40",
			     NULL};
	size_t before = out->size;
	int status = 127;

	snprintf(pid, sizeof(pid), "%ld", process->pid);
	ddp_text_add(out, "--- pid %ld, %s\n", process->pid, process->name);
	if (python)
		status = evidence_run(spy, end - ddp_seconds(), out);
	if (status != 0 && ddp_seconds() < end)
		status = evidence_run(gdb, end - ddp_seconds(), out);
	if (status != 127)
		return;
	/* Neither is there. */
	out->size = before;
	if (out->data)
		out->data[before] = '\0';
}

static void tell_stacks(const char *dir, const struct process *all, int count, int rank, double end)
{
	struct ddp_text out = {.data = NULL};
	char name[64];
	int taken = 0;

	for (int i = 0; i < count && taken < STACKS && ddp_seconds() < end; i++)
		if (all[i].rank == rank) {
			add_stacks(&out, &all[i], end);
			taken++;
		}
	snprintf(name, sizeof(name), "stacks-%d.txt", rank);
	write_text(dir, name, &out);
	ddp_text_free(&out);
}

/* --- What others know: PyTorch's flight recorder, NCCL's RAS, the cgroup -------------------------------- */

/* A byte into its pipe makes PyTorch write a dump, within a second or so. Returns whether somebody read there. */
static bool ask_recorder(const struct process *process)
{
	const char *stem = variable(process->environment, process->size,
				    DDP_NAME(TORCH_NCCL_DEBUG_INFO_PIPE_FILE));
	char path[PATH_MAX + 32];
	struct stat st;
	bool asked;
	int fd;

	if (!stem ||
	    snprintf(path, sizeof(path), "%s%d.pipe", stem, process->rank) >= (int)sizeof(path))
		return false;
	fd = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return false;
	asked = fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && write(fd, "1", 1) == 1;
	close(fd);
	return asked;
}

/* "localhost:61235": NCCL's answer is a text, which ends with the connection. */
static int connect_to(const char *address)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	char host[256];
	const char *port = strrchr(address, ':');
	int fd = -1;

	if (!port ||
	    snprintf(host, sizeof(host), "%.*s", (int)(port - address), address) >=
		    (int)sizeof(host) ||
	    getaddrinfo(host, port + 1, &hints, &found) != 0)
		return -1;
	for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
		fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) < 0 &&
		    errno != EINPROGRESS) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(found);
	return fd;
}

/* Read what there is; returns false at the end of it. */
static bool read_some(int fd, struct ddp_text *out)
{
	char piece[4096];
	ssize_t n = read(fd, piece, sizeof(piece));

	if (n > 0 && out->size + (size_t)n <= OUTPUT_LIMIT)
		ddp_text_put(out, piece, (size_t)n);
	return n > 0 || (n < 0 && errno == EINTR);
}

static bool wait_for(int fd, short events, double end)
{
	struct pollfd wait = {.fd = fd, .events = events};
	double left = end - ddp_seconds();

	return left > 0 && poll(&wait, 1, (int)(left * 1000) + 1) > 0;
}

static void ask_ras(const char *dir, const char *address, double end)
{
	static const char question[] = "verbose status\n";
	struct ddp_text out = {.data = NULL};
	int fd = address ? connect_to(address) : -1;

	if (fd < 0)
		return;
	if (wait_for(fd, POLLOUT, end) &&
	    send(fd, question, strlen(question), MSG_NOSIGNAL) == (ssize_t)strlen(question))
		while (wait_for(fd, POLLIN, end) && read_some(fd, &out))
			;
	close(fd);
	write_text(dir, "ras.txt", &out);
	ddp_text_free(&out);
}

/* The job's part of "/slurm/uid_1/job_5/step_0", or of v2's "/system.slice/slurmstepd.scope/job_5/step_0/user/task_0". */
static bool cut_at_job(char *path, const char *job)
{
	char word[64], *at;

	snprintf(word, sizeof(word), "/job_%.40s", job);
	at = strstr(path, word);
	if (!at || (at[strlen(word)] && at[strlen(word)] != '/'))
		return false;
	at[strlen(word)] = '\0';
	return true;
}

/* Count of processes that the kernel killed in control group [path], by its file [name]; 0 where that does not say. */
static long count_kills(const char *path, const char *name)
{
	char full[PATH_MAX], line[128];
	long kills = 0;
	FILE *file;

	snprintf(full, sizeof(full), "%.3900s/%s", path, name);
	file = fopen(full, "re");
	while (file && fgets(line, sizeof(line), file))
		(void)sscanf(line, "oom_kill %ld", &kills);
	if (file)
		fclose(file);
	return kills;
}

/* The same of all groups below it as well, which only v2 counts by itself: of a job its steps, their tasks. */
static long sum_kills(const char *path, int depth)
{
	long kills = count_kills(path, "memory.oom_control");
	DIR *dir = depth > 0 ? opendir(path) : NULL;
	struct dirent *entry;
	char below[PATH_MAX];

	while (dir && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
		    snprintf(below, sizeof(below), "%.3600s/%s", path, entry->d_name) > 0)
			kills += sum_kills(below, depth - 1);
	if (dir)
		closedir(dir);
	return kills;
}

static long tell_memory(const char *dir, const char *job)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	struct ddp_text out = {.data = NULL};
	char line[2304], name[FACTS_NAME + 32], full[2400];
	long kills = 0;

	while (file && fgets(line, sizeof(line), file)) {
		char *path = strchr(line, '/');

		line[strcspn(line, "\n")] = '\0';
		if (!path || !cut_at_job(path, job))
			continue;
		snprintf(full, sizeof(full), "/sys/fs/cgroup%s%s",
			 strstr(line, ":memory:") ? "/memory" : "", path);
		if (strncmp(line, "0::", 3) == 0)
			kills += count_kills(full, "memory.events");
		else if (strstr(line, ":memory:"))
			kills += sum_kills(full, 4);
	}
	if (file)
		fclose(file);
	if (kills > 0) {
		ddp_text_add(&out, "oom_kill %ld\n", kills);
		snprintf(name, sizeof(name), "memory-%s.txt", node_name());
		write_text(dir, name, &out);
		ddp_text_free(&out);
	}
	return kills;
}

/* Whether each rank that was asked for its dump has left it. */
static bool dumped(const char *dir, const struct process *all, int count)
{
	char path[PATH_MAX + 32];

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/" DDP_DIR_DUMP "%d", dir, all[i].rank);
		if (all[i].asked && access(path, F_OK) < 0)
			return false;
	}
	return true;
}

/* --- Whether anything is left, on a node ------------------------------------------------------------------ */

/* Of numbers that were looked up a while ago, one may be another process's by now. */
static void kill_process(long pid, const char *job, const char *step)
{
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	struct process now = {.pid = pid};

	if (is_of_step(&now, job, step)) {
		if (fd >= 0)
			(void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
		else
			kill((pid_t)pid, SIGKILL);
	}
	free(now.environment);
	if (fd >= 0)
		close(fd);
}

int ddp_evidence_look_main(int argc, char **argv)
{
	struct process *all = calloc(PROCESSES + 1, sizeof(*all));
	int count;

	if (argc != 4 || !all) {
		fprintf(stderr, "ddp-run %s is for ddp-run itself: JOB STEP\n", argv[1]);
		free(all);
		return 2;
	}
	count = find_processes(all, argv[2], argv[3]);
	for (int i = 0; i < count; i++) {
		if (strcmp(argv[1], "--sweep") == 0)
			kill_process(all[i].pid, argv[2], argv[3]);
		free(all[i].environment);
	}
	free(all);
	return count > 0 || has_hidden_task(argv[2], argv[3]) ? 0 : NOTHING_THERE;
}

/* --- All of it, on a node -------------------------------------------------------------------------------- */

int ddp_evidence_main(int argc, char **argv)
{
	double limit = argc == 6 ? strtod(argv[5], NULL) : 0, end = ddp_seconds() + limit;
	const char *dir = argc == 6 ? argv[2] : NULL, *job = argc == 6 ? argv[3] : NULL;
	struct process *all = calloc(PROCESSES + 1, sizeof(*all)), *task;
	int count;

	if (!dir || !all || !(limit > 0)) {
		fputs("ddp-run --gather is for ddp-run itself: DIR JOB STEP SECONDS\n", stderr);
		free(all);
		return 2;
	}
	alarm((unsigned)limit + 2);
	count = find_processes(all, job, argv[4]);
	for (int i = 0; i < count; i++)
		all[i].task = is_task(all, count, &all[i]);
	for (task = all; task < all + count; task++)
		if (task->task)
			tell_process(dir, task);
	tell_others(dir, job, argv[4], all, count);
	(void)tell_memory(dir, job);
	for (task = all; task < all + count; task++)
		if (task->task)
			task->asked = ask_recorder(task);
	/* One process answers for the whole job. */
	for (task = all; task < all + count; task++)
		if (task->task && task->rank == 0)
			ask_ras(dir,
				variable(task->environment, task->size, DDP_NAME(NCCL_RAS_ADDR)),
				end - limit * 3 / 4);
	for (task = all; task < all + count; task++)
		if (task->task)
			tell_stacks(dir, all, count, task->rank, end);
	/* Dumps come from a thread that looks once in a second. */
	while (!dumped(dir, all, count) && ddp_seconds() < end)
		usleep(50000);
	for (int i = 0; i < count; i++)
		free(all[i].environment);
	free(all);
	return 0;
}
