/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.c - find a step's processes on this node, and write their state to files */
#include "config.h"

#include "inspect.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "contract.h"
#include "nodes.h"
#include "stacks.h"

/* Older C libraries do not define these numbers of system calls, which all architectures share. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#define SYS_pidfd_send_signal 424
#endif

enum {
	OUTPUT_LIMIT = 1 << 18, /* maximum bytes of a file about a rank */
	PROCESSES = 4096,	/* maximum number of processes of the step on a node */
	STACKS = 2,	     /* processes per rank, besides its programs, whose stacks are read */
	DEBUGGERS = 7,	     /* threads that read stacks of processes, besides the main thread */
	IDLE_TIME = 1000000, /* microseconds without running that make a thread idle */
	RAS_LIMIT = 4,	     /* seconds to wait for NCCL's RAS service */
	DUMP_LIMIT = 12,     /* seconds to wait for PyTorch's dumps */
};

/* --- Processes ----------------------------------------------------------------------------- */

struct process {
	long pid, parent;
	int rank;
	char state;
	char name[32];
	bool task;		    /* Slurm started the process, not another process of the rank */
	bool program;		    /* the process is the rank's program, not a shell or launcher */
	unsigned long long started; /* time of start, in clock ticks since boot */
	bool asked;	   /* the process was asked for a dump of PyTorch's flight recorder */
	char *environment; /* content of /proc/<pid>/environ, of [size] bytes */
	size_t size;
};

struct step {
	const char *job, *step;
	struct process *all;
	int count;
};

/*
 * Returns the content of /proc/[pid]/[name] and sets [size], or returns NULL if the file cannot be
 * opened. The caller frees the content with free().
 */
static char *read_proc(long pid, const char *name, size_t *size)
{
	struct ddp_text text = {.data = NULL};
	char path[64], piece[4096];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%ld/%s", pid, name);
	file = fopen(path, "re");
	if (!file)
		return NULL;
	ddp_text_put(&text, "", 0);
	for (size_t n; (n = fread(piece, 1, sizeof(piece), file)) > 0;)
		ddp_text_put(&text, piece, n);
	fclose(file);
	*size = text.size;
	return text.data;
}

long inspect_next_number(DIR *dir)
{
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]))
			return atol(entry->d_name);
	if (dir)
		closedir(dir);
	return 0;
}

/* Returns the value of environment variable [name] of [process], or NULL if it is unset. */
static const char *variable(const struct process *process, const char *name)
{
	const char *at = process->environment, *end = at + process->size;
	size_t n = strlen(name);

	for (; at < end; at += strlen(at) + 1)
		if (strncmp(at, name, n) == 0 && at[n] == '=')
			return at + n + 1;
	return NULL;
}

static bool has_value(const struct process *process, const char *name, const char *value)
{
	const char *has = variable(process, name);

	return has && value ? strcmp(has, value) == 0 : has == value;
}

/*
 * Read the environment of [process], which the caller frees with free(). If the main thread has
 * ended, only the /proc files of other threads contain the environment.
 */
static void read_environment(struct process *process)
{
	char name[64];
	DIR *threads;

	process->environment = read_proc(process->pid, "environ", &process->size);
	if (process->environment && process->size > 0)
		return;
	snprintf(name, sizeof(name), "/proc/%ld/task", process->pid);
	threads = opendir(name);
	for (long thread; (thread = inspect_next_number(threads));) {
		if (process->environment && process->size > 0)
			continue;
		free(process->environment);
		snprintf(name, sizeof(name), "task/%ld/environ", thread);
		process->environment = read_proc(process->pid, name, &process->size);
	}
}

/* Parse "4711 (python3) S 4700 ..."; the name in parentheses may contain any character. */
static bool read_stat(struct process *process)
{
	size_t size;
	char *text = read_proc(process->pid, "stat", &size);
	char *open = text ? strchr(text, '(') : NULL, *close = text ? strrchr(text, ')') : NULL;
	bool good =
		open && close > open &&
		sscanf(close + 1,
		       " %c %ld %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
		       "%*s %llu",
		       &process->state, &process->parent, &process->started) == 3;

	if (good)
		snprintf(process->name, sizeof(process->name), "%.*s", (int)(close - open - 1),
			 open + 1);
	free(text);
	return good;
}

/* Whether process [pid] has the title that slurmstepd sets for step [step] of job [job]. */
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

bool inspect_in_step(const char *job, const char *step)
{
	struct process process = {.pid = getppid()};
	char part[128], *cgroup;
	size_t size;
	bool is;

	for (; process.pid > 1 && read_stat(&process); process.pid = process.parent)
		if (strcmp(process.name, "slurmstepd") == 0)
			return is_slurmstepd(process.pid, job, step);
	/*
	 * The parent processes cannot be read, or a daemon has become the parent. Check the control
	 * group instead.
	 */
	snprintf(part, sizeof(part), "/job_%.40s/step_%.40s/", job, step);
	cgroup = read_proc(getpid(), "cgroup", &size);
	is = cgroup && strstr(cgroup, part);
	free(cgroup);
	return is;
}

/*
 * Whether variable [name] was set inside this task: at least one parent process up to slurmstepd
 * does not have it. Parents that cannot be read are skipped.
 */
static bool is_new_here(const char *name)
{
	struct process process = {.pid = getppid()};
	bool lacks = false;

	while (!lacks && process.pid > 1 && read_stat(&process) &&
	       strcmp(process.name, "slurmstepd") != 0) {
		process.environment = read_proc(process.pid, "environ", &process.size);
		lacks = process.environment && !variable(&process, name);
		free(process.environment);
		process.pid = process.parent;
	}
	return lacks;
}

const char *inspect_launcher(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
					    "MV2_COMM_WORLD_RANK", "TORCHELASTIC_RUN_ID"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]) && is_new_here(names[i]))
			return names[i];
	return NULL;
}

/*
 * Whether [process] belongs to [job]. A task of a later component of a heterogeneous job has the
 * number of the first component in SLURM_JOB_ID; step numbers are unique among the components.
 */
static bool is_of_job(const struct process *process, const char *job)
{
	const char *size = variable(process, "SLURM_HET_SIZE");
	bool is = has_value(process, "SLURM_JOB_ID", job);

	for (int i = 1; i < (size ? atoi(size) : 0) && !is; i++)
		is = has_value(process, ddp_show("SLURM_JOB_ID_HET_GROUP_%d", i).text, job);
	return is;
}

/*
 * Whether [process] belongs to the step on this cluster and node, so that it may be killed. The
 * cluster must be compared, because several clusters can share a host, and each can have a job 1, a
 * step 0 and a node n1. The node must be compared, because all nodes of a private cluster can be on
 * one host. On success, sets the environment of [process], which the caller frees with free().
 */
static bool is_of_step(struct process *process, const char *job, const char *step)
{
	const char *node = getenv("SLURMD_NODENAME"), *rank;

	read_environment(process);
	if (!process->environment)
		return false;
	rank = variable(process, "SLURM_PROCID");
	if (rank && is_of_job(process, job) && has_value(process, "SLURM_STEP_ID", step) &&
	    has_value(process, "SLURM_CLUSTER_NAME", getenv("SLURM_CLUSTER_NAME")) &&
	    has_value(process, "SLURM_CONF", getenv("SLURM_CONF")) &&
	    (!node || has_value(process, "SLURMD_NODENAME", node)) && read_stat(process)) {
		process->rank = atoi(rank);
		return true;
	}
	free(process->environment);
	process->environment = NULL;
	return false;
}

/*
 * Whether [pid] is a task of the step that hides its environment: its parent is the step's
 * slurmstepd, but it has no variables of Slurm or they cannot be read. The process may belong to
 * another cluster on this host, so it must not be killed. Sets [process], without the environment.
 */
static bool is_hidden_task(struct process *process, long pid, const char *job, const char *step)
{
	bool is = false;

	*process = (struct process){.pid = pid};
	process->environment = read_proc(pid, "environ", &process->size);
	if ((!process->environment || !variable(process, "SLURM_PROCID")) && read_stat(process) &&
	    !strchr("ZX", process->state))
		is = is_slurmstepd(process->parent, job, step);
	free(process->environment);
	process->environment = NULL;
	process->size = 0;
	return is;
}

static bool has_hidden_task(const char *job, const char *step)
{
	DIR *dir = opendir("/proc");
	struct process process;
	bool has = false;

	for (long pid; (pid = inspect_next_number(dir));)
		has = has || is_hidden_task(&process, pid, job, step);
	return has;
}

/* Returns the task with this rank that started first, or NULL if there is none. */
static struct process *find_task(const struct step *step, int rank)
{
	struct process *first = NULL;

	for (int i = 0; i < step->count; i++)
		if (step->all[i].task && step->all[i].rank == rank &&
		    (!first || step->all[i].started < first->started))
			first = &step->all[i];
	return first;
}

static bool is_child(const struct process *child, const struct process *parent)
{
	return child->parent == parent->pid && child->rank == parent->rank;
}

/*
 * Whether [process] is a shell, or a launcher that starts the rank's program. A launcher is
 * recognized by its name, or because its children have torchrun's variables and it does not.
 */
static bool is_launcher(const struct step *step, const struct process *process)
{
	static const char *const names[] = {"sh",	    "bash",	  "dash",     "zsh",
					    "ksh",	    "csh",	  "tcsh",     "fish",
					    "time",	    "timeout",	  "nsys",     "ncu",
					    "singularity",  "apptainer",  "starter",  "uv",
					    "starter-suid", "accelerate", "torchrun", "deepspeed"};
	static const char worker[] = "TORCHELASTIC_RESTART_COUNT";

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(process->name, names[i]) == 0)
			return true;
	for (int i = 0; i < step->count; i++)
		if (is_child(&step->all[i], process) && variable(&step->all[i], worker) &&
		    !variable(process, worker))
			return true;
	return false;
}

/* Mark [process] as a program or, if it is a launcher, the programs below it. */
static void mark_programs(const struct step *step, struct process *process)
{
	process->program = !is_launcher(step, process);
	for (int i = 0; i < step->count && !process->program; i++)
		if (is_child(&step->all[i], process))
			mark_programs(step, &step->all[i]);
}

static struct step find_step(const char *job, const char *step)
{
	struct step found = {job, step, ddp_xcalloc(PROCESSES + 1, sizeof(*found.all), "processes"),
			     0};
	DIR *dir = opendir("/proc");

	for (long pid; (pid = inspect_next_number(dir));) {
		struct process process = {.pid = pid};

		if (found.count < PROCESSES && is_of_step(&process, job, step))
			found.all[found.count++] = process;
	}
	for (int i = 0; i < found.count; i++) {
		found.all[i].task = true;
		for (int k = 0; k < found.count; k++)
			if (found.all[k].pid == found.all[i].parent &&
			    found.all[k].rank == found.all[i].rank)
				found.all[i].task = false;
	}
	/*
	 * A rank can have several processes whose parent is not in the step. Only the first is the
	 * task that Slurm started. The others are orphans, so they are not searched for programs.
	 */
	for (int i = 0; i < found.count; i++)
		if (find_task(&found, found.all[i].rank) == &found.all[i])
			mark_programs(&found, &found.all[i]);
	return found;
}

static void free_step(struct step *step)
{
	for (int i = 0; i < step->count; i++)
		free(step->all[i].environment);
	free(step->all);
}

/* --- State of a rank ----------------------------------------------------------------------- */

static void __attribute__((format(printf, 3, 4)))
write_text(const char *dir, const struct ddp_text *text, const char *format, ...)
{
	char name[FACTS_NAME + 32];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(name, sizeof(name), format, arguments);
	va_end(arguments);
	if (text->size > 0 && !text->failed)
		(void)ddp_file_write_text(dir, name, text, NULL);
}

const char *inspect_node(void)
{
	static char name[FACTS_NAME];
	const char *node = getenv("SLURMD_NODENAME");

	if (!name[0] && (node || gethostname(name, sizeof(name) - 1) == 0))
		snprintf(name, sizeof(name), "%s", node ? node : name);
	return name;
}

/* Returns the seconds since the last heartbeat; negative: there was none. */
static double heartbeat_age(const struct process *process)
{
	const char *path = variable(process, DDP_NAME(DDP_HEARTBEAT));
	struct stat st;
	double age;

	if (!path || stat(path, &st) < 0)
		return -1;
	age = ddp_date(NULL) - ddp_date(&st.st_mtim);
	return age > 0 ? age : 0;
}

static void add_file(struct ddp_text *out, long pid, const char *name)
{
	size_t size;
	char *text = read_proc(pid, name, &size);

	if (text)
		ddp_text_put(out, text, size);
	free(text);
}

/*
 * Returns the program of [task], which may run below a shell: one that is stopped or has ended, or
 * the first one. Returns [task] if there is none.
 */
static const struct process *find_program(const struct step *step, const struct process *task)
{
	const struct process *found = NULL;

	for (int i = 0; i < step->count; i++)
		if (step->all[i].program && step->all[i].rank == task->rank &&
		    (!found || strchr("tTZ", step->all[i].state)))
			found = &step->all[i];
	return found ? found : task;
}

/*
 * Write proc-<rank>.txt. The file describes the task's program and its command. For each thread, it
 * has the thread's number, where the thread waits in the kernel, and the thread's name.
 */
static void write_process(const char *dir, const struct process *task,
			  const struct process *program)
{
	struct ddp_text out = {.data = NULL};
	double age = heartbeat_age(task);
	char path[64], name[64], *command;
	size_t size = 0;
	DIR *threads;

	ddp_text_add(&out, "node %s\npid %ld\nstate %c\nwchan ", inspect_node(), task->pid,
		     program->state);
	add_file(&out, program->pid, "wchan");
	ddp_text_add(&out, "\nparent ");
	add_file(&out, task->parent, "comm");
	if (age >= 0)
		ddp_text_add(&out, "beat %.3f\n", age);
	command = read_proc(program->pid, "cmdline", &size);
	for (size_t i = 0; i + 1 < size; i++)
		if (!command[i] || command[i] == '\n')
			command[i] = ' ';
	ddp_text_add(&out, "command %s\n\n", command ? command : "");
	free(command);
	add_file(&out, program->pid, "status");
	snprintf(path, sizeof(path), "/proc/%ld/task", program->pid);
	threads = opendir(path);
	for (long thread; (thread = inspect_next_number(threads));) {
		if (out.size >= OUTPUT_LIMIT)
			continue;
		ddp_text_add(&out, "thread %ld ", thread);
		snprintf(name, sizeof(name), "task/%ld/wchan", thread);
		add_file(&out, program->pid, name);
		ddp_text_add(&out, " ");
		snprintf(name, sizeof(name), "task/%ld/comm", thread);
		add_file(&out, program->pid, name);
	}
	write_text(dir, &out, "proc-%d.txt", task->rank);
	ddp_text_free(&out);
}

/*
 * Write files about ranks that ran on this node according to the plugin's record, but were not
 * found. Either they hide their environment, or they have no process any more.
 */
static void write_others(const char *dir, const struct step *step)
{
	DIR *open = opendir(dir);
	struct dirent *entry;

	while (open && (entry = readdir(open))) {
		struct ddp_text out = {.data = NULL};
		struct process hidden;
		char path[PATH_MAX + 300], *text = NULL, node[FACTS_NAME] = "";
		int rank, i = 0;
		long pid = 0;
		size_t size;

		if (sscanf(entry->d_name, DDP_DIR_TASK "%d", &rank) != 1)
			continue;
		while (i < step->count && step->all[i].rank != rank)
			i++;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (i < step->count || ddp_file_read(path, OUTPUT_LIMIT, &text, &size, NULL) != 0 ||
		    sscanf(text, "%127s %ld", node, &pid) != 2 ||
		    strcmp(node, inspect_node()) != 0) {
			/* Nothing to do: the rank was found, or it ran on another node. */
		} else if (is_hidden_task(&hidden, pid, step->job, step->step)) {
			hidden.rank = rank;
			write_process(dir, &hidden, &hidden);
		} else {
			ddp_text_add(&out, "node %s\npid %ld\nstate -\n", node, pid);
			write_text(dir, &out, "proc-%d.txt", rank);
		}
		free(text);
		ddp_text_free(&out);
	}
	if (open)
		closedir(open);
}

/* Whether [process] runs a Python interpreter. */
static bool is_python(const struct process *process)
{
	char link[64], path[PATH_MAX], *slash;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%ld/exe", process->pid);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	slash = strrchr(path, '/');
	return slash && strncmp(slash, "/python", 7) == 0;
}

/*
 * Add the stacks of [process], from the first of these debuggers that succeeds. "py-spy --native"
 * takes two seconds for a process with PyTorch, and gdb takes ten.
 */
static void add_stacks(struct ddp_text *out, const struct process *process, double end)
{
	char pid[24];
	char *const native[] = {"py-spy", "dump", "--native", "--pid", pid, NULL};
	char *const spy[] = {"py-spy", "dump", "--pid", pid, NULL};
	/* The outermost frames, which "bt -30" prints, show whether Python is exiting. */
	char *const gdb[] = {"gdb",
			     "-nx",
			     "-batch",
			     "-p",
			     pid,
			     "-ex",
			     "set pagination off",
			     "-ex",
			     "thread apply all bt 40",
			     "-ex",
			     "thread apply 1 bt -30",
			     NULL};
	char *const *const debuggers[] = {native, spy, gdb};
	size_t before = out->size, header;
	bool found = false;
	int status = 127;

	snprintf(pid, sizeof(pid), "%ld", process->pid);
	if (process->program)
		ddp_text_add(out, STACK_PROGRAM ", %s\n", process->pid, process->name);
	else
		ddp_text_add(out, "--- pid %ld, %s\n", process->pid, process->name);
	header = out->size;
	for (int i = is_python(process) ? 0 : 2; i < 3 && status != 0 && ddp_seconds() < end; i++) {
		if (found)
			out->size = header;
		status = nodes_run(debuggers[i], end - ddp_seconds(), out);
		found = found || status != 127;
	}
	if (found)
		return;
	/* No debugger is installed. */
	out->size = before;
	if (out->data)
		out->data[before] = '\0';
}

/* Write stacks-<rank>.txt: the stacks of the rank's programs, and of up to STACKS other processes. */
static void write_stacks(const char *dir, const struct step *step, int rank, double end)
{
	struct ddp_text out = {.data = NULL};
	int others = 0;

	for (int program = 1; program >= 0; program--)
		for (int i = 0; i < step->count && ddp_seconds() < end; i++)
			if (step->all[i].rank == rank && step->all[i].program == program &&
			    (program || others++ < STACKS))
				add_stacks(&out, &step->all[i], end);
	write_text(dir, &out, "stacks-%d.txt", rank);
	ddp_text_free(&out);
}

struct stacks_work {
	const char *dir;
	const struct step *step;
	double end;
	atomic_int next;
};

static void *write_stacks_of_ranks(void *data)
{
	struct stacks_work *work = data;

	for (int i; (i = atomic_fetch_add(&work->next, 1)) < work->step->count;)
		if (find_task(work->step, work->step->all[i].rank) == &work->step->all[i])
			write_stacks(work->dir, work->step, work->step->all[i].rank, work->end);
	return NULL;
}

/* Write the stacks of all ranks, several ranks in parallel. */
static void write_all_stacks(const char *dir, const struct step *step, double end)
{
	struct stacks_work work = {.dir = dir, .step = step, .end = end};
	pthread_t threads[DEBUGGERS];
	int started = 0;

	while (started < DEBUGGERS && started + 1 < step->count &&
	       pthread_create(&threads[started], NULL, write_stacks_of_ranks, &work) == 0)
		started++;
	write_stacks_of_ranks(&work);
	while (started > 0)
		pthread_join(threads[--started], NULL);
}

/* --- PyTorch's flight recorder, NCCL's RAS, the cgroup ------------------------------------- */

/*
 * Request a dump from PyTorch's flight recorder by a byte in its trigger pipe. PyTorch writes the
 * dump within about a second. Returns false if no process has the pipe open for reading.
 */
static bool ask_recorder(const struct process *process)
{
	const char *stem = variable(process, DDP_NAME(TORCH_NCCL_DEBUG_INFO_PIPE_FILE));
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

/* Whether each rank that was asked for a dump has written it. */
static bool has_dumps(const char *dir, const struct step *step)
{
	char path[PATH_MAX + 32];

	for (int i = 0; i < step->count; i++) {
		snprintf(path, sizeof(path), "%s/" DDP_DIR_DUMP "%d", dir, step->all[i].rank);
		if (step->all[i].asked && access(path, F_OK) < 0)
			return false;
	}
	return true;
}

/*
 * Connect to an address such as "localhost:61235". Returns a socket on which each read and write
 * waits at most [limit] seconds, or -1 on failure.
 */
static int connect_to(const char *address, double limit)
{
	const long whole = (long)limit;
	const struct timeval wait = {whole, (suseconds_t)((limit - (double)whole) * 1e6)};
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	char host[256];
	const char *port = address ? strrchr(address, ':') : NULL;
	int fd = -1;

	if (!port ||
	    snprintf(host, sizeof(host), "%.*s", (int)(port - address), address) >=
		    (int)sizeof(host) ||
	    getaddrinfo(host, port + 1, &hints, &found) != 0)
		return -1;
	for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
		fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0);
		if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0 ||
				setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0 ||
				connect(fd, at->ai_addr, at->ai_addrlen) < 0)) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(found);
	return fd;
}

/*
 * Query NCCL's RAS service at [address], and write its answer to ras.txt. The answer ends when the
 * service closes the connection. Reading stops at time [end].
 */
static void write_ras(const char *dir, const char *address, double end)
{
	static const char question[] = "verbose status\n";
	double limit = end - ddp_seconds();
	struct ddp_text out = {.data = NULL};
	char piece[4096];
	ssize_t n;
	/* A socket timeout of 0 would mean no timeout. */
	int fd = limit > 0.01 ? connect_to(address, limit) : -1;

	if (fd < 0)
		return;
	if (send(fd, question, strlen(question), MSG_NOSIGNAL) == (ssize_t)strlen(question))
		while (ddp_seconds() < end && (n = recv(fd, piece, sizeof(piece), 0)) > 0)
			if (out.size + (size_t)n <= OUTPUT_LIMIT)
				ddp_text_put(&out, piece, (size_t)n);
	close(fd);
	write_text(dir, &out, "ras.txt");
	ddp_text_free(&out);
}

/*
 * Cut the path of a control group after the component "job_<id>". Examples:
 * "/slurm/uid_1/job_5/step_0" (v1), "/system.slice/slurmstepd.scope/job_5/step_0/user/task_0" (v2).
 */
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

/* Returns the number of processes that the kernel killed, from file [path] of a control group. */
static long count_kills(const char *path)
{
	char line[128];
	long kills = 0;
	FILE *file = fopen(path, "re");

	while (file && fgets(line, sizeof(line), file))
		(void)sscanf(line, "oom_kill %ld", &kills);
	if (file)
		fclose(file);
	return kills;
}

/* Like count_kills(), for control group [path] of v1 and the groups of steps and tasks below it. */
static long sum_kills(char *path)
{
	char *paths[] = {path, NULL};
	FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	long kills = 0;

	for (FTSENT *entry; tree && (entry = fts_read(tree));)
		if (strcmp(entry->fts_name, "memory.oom_control") == 0)
			kills += count_kills(entry->fts_path);
	if (tree)
		fts_close(tree);
	return kills;
}

long inspect_memory(const char *dir, const char *job)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	struct ddp_text out = {.data = NULL};
	char line[2304], full[2400];
	long kills = 0;

	while (file && fgets(line, sizeof(line), file)) {
		char *path = strchr(line, '/');
		bool v1 = strstr(line, ":memory:");

		line[strcspn(line, "\n")] = '\0';
		if (!path || !cut_at_job(path, job))
			continue;
		/* With v2 the count of a group includes the groups below it. */
		snprintf(full, sizeof(full),
			 v1 ? "/sys/fs/cgroup/memory%s" : "/sys/fs/cgroup%s/memory.events", path);
		if (v1)
			kills += sum_kills(full);
		else if (strncmp(line, "0::", 3) == 0)
			kills += count_kills(full);
	}
	if (file)
		fclose(file);
	if (kills > 0) {
		ddp_text_add(&out, "oom_kill %ld\n", kills);
		write_text(dir, &out, "memory-%s.txt", inspect_node());
		ddp_text_free(&out);
	}
	return kills;
}

/* --- --look, --sweep, --programs, --gather ------------------------------------------------------------- */

/* Kill process [pid], unless the number has been reused for a process of another step. */
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

int inspect_look_main(char **argv)
{
	struct step step = find_step(argv[2], argv[3]);
	bool found;

	for (int i = 0; i < step.count && strcmp(argv[1], "--sweep") == 0; i++)
		kill_process(step.all[i].pid, argv[2], argv[3]);
	found = step.count > 0 || has_hidden_task(argv[2], argv[3]);
	free_step(&step);
	return found ? 0 : NODES_NO_PROCESS;
}

/* Returns the number of bytes that the main thread of [process] has written, or 0 if unknown. */
static unsigned long long written_bytes(const struct process *process)
{
	unsigned long long bytes = 0;
	char name[64], *text, *at;
	size_t size;

	snprintf(name, sizeof(name), "task/%ld/io", process->pid);
	text = read_proc(process->pid, name, &size);
	at = text ? strstr(text, "wchar: ") : NULL;
	if (at)
		(void)sscanf(at, "wchar: %llu", &bytes);
	free(text);
	return bytes;
}

/* Whether the main thread of [process] does not run for IDLE_TIME. */
static bool is_idle(const struct process *process)
{
	char name[64], *before, *after;
	size_t size;
	bool is;

	snprintf(name, sizeof(name), "task/%ld/schedstat", process->pid);
	before = read_proc(process->pid, name, &size);
	usleep(IDLE_TIME);
	after = read_proc(process->pid, name, &size);
	is = !before || !after || strcmp(before, after) == 0;
	free(before);
	free(after);
	return is;
}

/*
 * Returns what the main thread of [process] does. With [may_log], the process may be healthy, and is
 * not stopped by a debugger while its main thread runs. Without stacks, a main thread that runs is
 * assumed to run code of the program.
 */
static enum stack_place find_place(const struct process *process, bool may_log, double end)
{
	struct ddp_text out = {.data = NULL};
	struct stack stack = {.place = STACK_UNKNOWN};

	/* The main thread is a zombie. Other threads run, or the process would have ended, too. */
	if (process->state == 'Z')
		return STACK_ENDS;
	if (may_log && !is_idle(process))
		return STACK_RUNS;
	add_stacks(&out, process, end);
	if (out.data)
		stack_parse(&stack, out.data, process->pid);
	ddp_text_free(&out);
	if (stack.place == STACK_UNKNOWN && !may_log && !is_idle(process))
		return STACK_RUNS;
	return stack.place;
}

/* Whether [list], such as "3,17?", contains [rank]. Sets [may_log] if "?" follows the number. */
static bool is_listed(int rank, const char *list, bool *may_log)
{
	char *end;

	for (const char *at = list; isdigit((unsigned char)*at); at = *end ? end + 1 : end) {
		bool is = strtol(at, &end, 10) == rank;

		*may_log = *end == '?';
		end += *may_log;
		if (is)
			return true;
	}
	return false;
}

int inspect_programs_main(char **argv)
{
	double end = ddp_seconds() + strtod(argv[5], NULL);
	struct step step = find_step(argv[2], argv[3]);

	for (int i = 0; i < step.count; i++) {
		const struct process *process = &step.all[i];
		bool may_log, listed = is_listed(process->rank, argv[4], &may_log);

		if (process->program)
			printf(NODES_PROGRAM_OUT "\n", process->rank, process->pid,
			       written_bytes(process),
			       listed ? (int)find_place(process, may_log, end) : STACK_UNKNOWN);
	}
	free_step(&step);
	return 0;
}

int inspect_gather_main(char **argv)
{
	double limit = strtod(argv[5], NULL), end = ddp_seconds() + limit, asked_at;
	struct process *task, *behind;
	const char *dir = argv[2];
	struct step step;

	alarm((unsigned)limit + 2);
	step = find_step(argv[3], argv[4]);
	behind = step.all + step.count;
	for (task = step.all; task < behind; task++)
		if (task->task)
			write_process(dir, task, find_program(&step, task));
	write_others(dir, &step);
	(void)inspect_memory(dir, argv[3]);
	asked_at = ddp_seconds();
	for (task = step.all; task < behind; task++)
		task->asked = task->task && ask_recorder(task);
	/* RAS describes the whole job, so only the node of rank 0 queries it. */
	for (task = step.all; task < behind; task++)
		if (task->task && task->rank == 0)
			write_ras(dir, variable(task, DDP_NAME(NCCL_RAS_ADDR)),
				  ddp_seconds() + RAS_LIMIT);
	write_all_stacks(dir, &step, end);
	/* PyTorch checks its trigger pipe once a second. */
	while (!has_dumps(dir, &step) && ddp_seconds() < asked_at + DUMP_LIMIT)
		usleep(50000);
	free_step(&step);
	return 0;
}
