/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event-loop.c - run srun, and react to its output, to signals and to time limits
 *
 * An attempt has these states, in this order. In each state, srun's exit ends the attempt.
 *
 *  STARTING   srun waits for resources. When the plugin or ddp-exec reports that a step has
 *             started, the state becomes RUNNING.
 *  RUNNING    Ranks run. It becomes ENDING if srun reports a failure, if ddp-run receives SIGTERM
 *             or SIGHUP, if the ranks hang (--hang), or if a rank has printed an exception and
 *             does not exit (--exit-limit).
 *  ENDING     Slurm or scancel has sent SIGTERM to the ranks. It becomes KILLING if they do not
 *             exit in time, or if a node is lost.
 *  KILLING    scancel has sent SIGKILL to the ranks. It becomes LEAVING if srun does not exit in
 *             time.
 *  LEAVING    srun was killed. A new step on each node kills the step's remaining processes.
 *
 * EVENT_TABLE lists the events that cause these transitions.
 */
#include "config.h"

#include "ddp-run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "base/watch.h"
#include "contract.h"
#include "facts.h"
#include "launch/rendezvous.h"

/* Times, in seconds. */
#define TURN 0.25	     /* interval between two turns of the event loop */
#define PROBE_AFTER 2.0	     /* time from the failure of a rank to the first probe of the nodes */
#define PROBE_LIMIT 8.0	     /* time limit for a node to answer a probe */
#define INSPECT_LIMIT 40.0   /* time limit for reading the stacks of ranks with tracebacks */
#define GATHER_LIMIT 60.0    /* time limit for collecting evidence of a hang */
#define KILLED_AFTER 1.0     /* time that ranks have to exit after SIGKILL */
#define LOST_WAIT 3.0	     /* time that the other ranks have to exit after a node was lost */
#define LOST_LEAVE 0.5	     /* time that srun has to exit after the other ranks received SIGKILL */
#define KILL_MARGIN 10.0     /* time that srun has to exit, in addition to Slurm's KillWait */
#define STEP_LIMIT 5.0	     /* time limit for Slurm to describe a step */
#define CANCEL_LIMIT 2.0     /* time limit for scancel, which otherwise waits for lost nodes */
#define HANG_GRACE 2.0	     /* time between SIGTERM and SIGKILL for hung ranks */
#define ASK_MOST 60.0	     /* longest time between probes of the step's nodes */
#define EXIT_AGAIN 1.0	     /* interval between checks for ranks that do not exit */
#define SWEEP_AGAIN 5.0	     /* wait before SIGKILL is tried again on nodes that did not answer */
#define SIGINT_AGAIN 2.0     /* srun ends the ranks if two SIGINT arrive within a (whole) second */
#define SAME_SIGNAL 1.0	     /* repeats within this time are ignored: timeout(1) signals twice */
#define SIGNAL_EARLY 60.0    /* Slurm may send the signal of --signal this much early */
#define ANNOUNCED_FOR 1800.0 /* SIGUSR1 or SIGUSR2 explains an end within this time */

enum { SWEEPS = 5 };

enum state { STARTING, RUNNING, ENDING, KILLING, LEAVING };

/*
 * An event is raised with the time at which it is due, so timers are events, too. Each turn of the
 * loop handles one event: the first in this table that is due and that the state allows. Other
 * events wait. While Slurm ends the whole job, no event is handled, because Slurm signals the ranks
 * itself and starts no step that could probe a node.
 *
 * Columns: name, first and last state in which the event is handled, handler.
 */
#define EVENT_TABLE(X)                                                                             \
	X(NO_STEP, STARTING, STARTING, on_no_step) /* a restart got no step within --hang */       \
	X(NODES, RUNNING, KILLING, on_nodes)	   /* ask Slurm for the nodes of the step */       \
	X(FAILURE, RUNNING, KILLING, on_failure)   /* srun has reported a failure */               \
	X(HANG, RUNNING, RUNNING, on_hang) /* no output and no heartbeat for the time of --hang */ \
	X(EXIT, RUNNING, RUNNING, on_exit_limit) /* --exit-limit has passed after a traceback */   \
	X(PROBE, ENDING, KILLING, on_probe)	 /* probe the nodes, at growing intervals */       \
	X(KILL, ENDING, ENDING, on_kill)	 /* --grace has passed, or a node is lost */       \
	X(LEAVE, ENDING, KILLING, on_leave)	 /* KillWait has passed, or no process is left */

#define EVENT(name, first, last, handler) name,
enum event { EVENT_TABLE(EVENT) EVENTS };
#undef EVENT

struct run {
	const struct launch *launch;
	struct attempt *attempt, *last;
	enum state state;
	/* ddp_seconds() when the event is due; 0: not raised; INFINITY: handled */
	double due[EVENTS];
	double nodes_wait_s, probe_wait_s;
	pid_t srun;
	int step_fd; /* socket on which the plugin reports the start of a step; -1: closed */
	char step_file[PATH_MAX]; /* ddp-exec's report of the step; "": no file, or already read */
	char step[80];		  /* "<job>.<step>", such as "4.0" */
	struct relay relay;
	bool has_heartbeat;
	bool reported_unknown; /* a line about nodes that could not be probed was printed */
	bool hung;
	/*
	 * programs of the ranks at time inspected_at, after half of the time of --hang without
	 * output
	 */
	struct nodes_programs programs;
	double inspected_at;
	struct raised_rank *raised; /* ranks that did not exit after an exception */
	size_t raised_count;
	bool reported_doubtful; /* the message about a rank that may still work was printed */
	bool reported_written;	/* the message about bytes that srun does not pass on was printed */
	bool srun_killed;	/* another process than ddp-run killed srun */
	int last_signal;	/* last signal that was forwarded to the ranks */
	double last_signal_at, sigint_at;
	double announced_at; /* time of SIGUSR1 or SIGUSR2; 0: none */
};

static int signals = -1;
static bool end_requested; /* by a signal, unless Slurm sent it to end the job */
static bool announced; /* SIGUSR1 or SIGUSR2 came while no attempt ran: Slurm will end the job */

/* --- srun ---------------------------------------------------------------------------------- */

static bool has_terminal(void)
{
	int fd = open("/dev/tty", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0 || tcgetpgrp(STDIN_FILENO) >= 0 || tcgetpgrp(STDOUT_FILENO) >= 0 ||
	       tcgetpgrp(STDERR_FILENO) >= 0;
}

/*
 * Without a terminal, srun gets its own process group. If timeout(1) sends SIGTERM or SIGHUP to
 * ddp-run's group, srun must not receive the signal, because srun would kill the ranks at once.
 * With a terminal, srun must stay in ddp-run's group, for Ctrl-C, Ctrl-Z and input.
 */
void attempt_prepare_child(pid_t parent)
{
	sigset_t none;

	if (!has_terminal())
		setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(127);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/*
 * Create [directory]/.ddp and write its path to [path]. Returns true if files can be created in it.
 */
static bool make_parent(char path[PATH_MAX - 64], const char *directory)
{
	struct ddp_message message;

	return snprintf(path, PATH_MAX - 64, "%s/" DDP_DIR_PARENT, directory) < PATH_MAX - 64 &&
	       ddp_rendezvous_make_parent(directory, &message) == 0;
}

/*
 * Choose the file in which ddp-exec on rank 0 reports the step. The file must be in a directory
 * that all nodes share: the working directory, or the home directory if no file can be created in
 * the working directory.
 */
static void name_step_file(struct run *run)
{
	char directory[PATH_MAX - 80], parent[PATH_MAX - 64];
	const char *home = getenv("HOME");

	if (!run->launch->exec[0] || !getcwd(directory, sizeof(directory)))
		return;
	if (!make_parent(parent, directory) && (!home || !make_parent(parent, home)))
		return;
	snprintf(run->step_file, sizeof(run->step_file), "%s/run-%.32s.%d.%d", parent, job.id,
		 (int)getpid(), run->attempt->number);
}

static bool start_srun(struct run *run)
{
	const struct launch *launch = run->launch;
	char **words = launch_words(launch, run->attempt->number);
	int step[2], out[2], err[2];
	bool relayed = launch->output != OUTPUT_TERMINAL;
	pid_t parent = getpid();

	name_step_file(run);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, step) < 0 ||
	    (relayed && (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)))
		return false;
	run->srun = fork();
	if (run->srun == 0) {
		attempt_prepare_child(parent);
		setenv(DDP_RUN_RESTART, ddp_show("%d", run->attempt->number).text, 1);
		setenv(DDP_RUN_RESTARTS_MAX,
		       ddp_show("%.0f", launch->options.number[RUN_OPTION_RESTARTS]).text, 1);
		if (run->step_file[0])
			setenv(DDP_RUN_FILE, run->step_file, 1);
		else
			setenv(DDP_RUN_FD, ddp_show("%d", step[1]).text, 1);
		setenv(DDP_RUN_ID, job.id, 1);
		unsetenv("SLURM_DDP_RESTARTS");
		fcntl(step[1], F_SETFD, 0);
		if (relayed) {
			dup2(out[1], STDOUT_FILENO);
			dup2(err[1], STDERR_FILENO);
		}
		execvp(words[0], words);
		fprintf(stderr, "ddp-run: cannot start srun: %s\n", strerror(errno));
		_exit(127);
	}
	free(words);
	close(step[1]);
	run->step_fd = step[0];
	if (relayed) {
		close(out[1]);
		close(err[1]);
		relay_start(&run->relay, (int[]){out[0], err[0]});
	}
	return run->srun > 0;
}

/*
 * Returns true while srun runs. When srun has exited, stores its exit status in the attempt and
 * returns false.
 */
static bool is_running(struct run *run)
{
	int status;
	pid_t ended = waitpid(run->srun, &status, WNOHANG);

	if (ended == 0 || (ended < 0 && errno == EINTR))
		return true;
	if (ended == run->srun) {
		run->attempt->status =
			WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		run->srun_killed = WIFSIGNALED(status) && !run->attempt->abandoned;
	}
	return false;
}

/* --- Events -------------------------------------------------------------------------------- */

/* Raise [event] so that it is due in [seconds]. An event that is already raised does not change. */
static void raise_in(struct run *run, enum event event, double seconds)
{
	if (run->due[event] == 0)
		run->due[event] = ddp_seconds() + seconds;
}

static void set_state(struct run *run, enum state state)
{
	if (run->state < state)
		run->state = state;
}

/* Run scancel for the step. [option] sets the signal for the ranks; NULL: scancel ends the step. */
static void cancel(const struct run *run, const char *option)
{
	char *argv[] = {"scancel", "-Q", (char *)run->step, (char *)option, NULL};
	struct ddp_text out = {.data = NULL};

	(void)nodes_run(argv, CANCEL_LIMIT, &out);
	ddp_text_free(&out);
}

static void set_ending(struct run *run)
{
	set_state(run, ENDING);
	raise_in(run, PROBE, PROBE_AFTER);
	if (run->launch->grace_s > 0)
		raise_in(run, KILL, run->launch->grace_s);
}

/*
 * After a failure, Slurm ends the ranks within its KillWait, or ddp-run kills them after --grace.
 * Set the time at which srun must have exited.
 */
static void on_failure(struct run *run)
{
	double kill_s;

	set_ending(run);
	if (run->launch->grace_s <= 0)
		kill_s = job_kill_wait();
	else /* handle_signal() may have raised KILL before, so read the time that is left */
		kill_s = run->state < KILLING ? run->due[KILL] - ddp_seconds() : 0;
	raise_in(run, LEAVE, kill_s + KILL_MARGIN);
}

/*
 * End srun, because a restart got no step in the time of --hang. srun would wait indefinitely for
 * busy nodes, on which processes of the previous step usually remain. The first attempt has no
 * limit, because it may wait for other steps of the user.
 */
static void on_no_step(struct run *run)
{
	double limit = run->launch->hang_s;

	if (job_update() || job.suspended) {
		run->due[NO_STEP] = ddp_seconds() + limit;
		return;
	}
	fprintf(stderr, "ddp-run: Slurm has started no step for %.0f s, so ddp-run ends srun\n",
		limit);
	kill(run->srun, SIGKILL);
}

/* Claim the nodes of the step, which are now known, and use them to parse srun's messages. */
static void set_nodes(struct attempt *attempt)
{
	attempt->said.nodes = &attempt->nodes;
	claims_set(&attempt->nodes);
}

/* Query the nodes and the number of ranks of the step from Slurm. */
static void on_nodes(struct run *run)
{
	struct attempt *attempt = run->attempt;
	struct ddp_text out = {.data = NULL};
	char *const argv[] = {"scontrol", "-o", "show", "step", run->step, NULL};
	size_t size;

	if (nodes_run(argv, STEP_LIMIT, &out) == 0 && out.data) {
		const char *field = nodes_field(out.data, "NodeList", &size);

		if (size > 0)
			nodes_expand(&attempt->nodes, field, size);
		field = nodes_field(out.data, "Tasks", &size);
		attempt->ranks = size > 0 && attempt->nodes.count > 0 ? atoi(field) : 0;
	}
	ddp_text_free(&out);
	if (attempt->nodes.count > 0) {
		set_nodes(attempt);
		run->due[NODES] = INFINITY;
		return;
	}
	run->nodes_wait_s = fmin(2 * run->nodes_wait_s + 1, ASK_MOST);
	run->due[NODES] = ddp_seconds() + run->nodes_wait_s;
}

static void report_unknown(struct run *run, const struct node_list *nodes, const char *why)
{
	char *names;

	if (run->reported_unknown)
		return;
	run->reported_unknown = true;
	names = nodes_joined(nodes);
	fprintf(stderr, "ddp-run: cannot find out whether %s %s: %s\n",
		nodes->count ? names : "the step's nodes", nodes->count == 1 ? "answers" : "answer",
		why);
	free(names);
}

/*
 * Probe [nodes], and add those that do not answer to attempt->silent. Returns the number of nodes
 * that may still have processes of the step.
 */
static size_t probe_nodes(struct run *run, const struct node_list *nodes)
{
	struct attempt *attempt = run->attempt;
	struct nodes_answers said = {.with_ranks = 0};
	size_t busy;

	nodes_probe(nodes, attempt->job, attempt->step, false, PROBE_LIMIT, &said);
	busy = said.with_ranks + said.silent.count + said.unasked.count;
	for (size_t i = 0; i < said.silent.count; i++) {
		fprintf(stderr, "ddp-run: node %s does not answer\n", said.silent.name[i]);
		nodes_add(&attempt->silent, said.silent.name[i]);
	}
	if (said.unasked.count > 0)
		report_unknown(run, &said.unasked, said.why);
	nodes_answers_free(&said);
	return busy;
}

/*
 * Probe the step's nodes. srun waits indefinitely for tasks on nodes that do not answer, and for
 * tasks whose slurmstepd was killed, even if no process of the step is left.
 */
static void probe(struct run *run)
{
	struct attempt *attempt = run->attempt;

	if (attempt->nodes.count == 0)
		on_nodes(run);
	if (job.unanswered || attempt->nodes.count == 0) {
		report_unknown(run, &attempt->nodes, "Slurm does not answer");
		return;
	}
	if (probe_nodes(run, &attempt->nodes) == 0)
		run->due[LEAVE] = ddp_seconds() + LOST_WAIT;
	if (attempt->silent.count > 0)
		raise_in(run, KILL, LOST_WAIT);
}

static void on_probe(struct run *run)
{
	run->probe_wait_s = run->probe_wait_s > 0 ? 2 * run->probe_wait_s : PROBE_AFTER;
	run->due[PROBE] = ddp_seconds() + run->probe_wait_s;
	if (run->attempt->silent.count == 0 && !job_update())
		probe(run);
}

static struct node_list answering_nodes(const struct attempt *attempt)
{
	struct node_list answering = {.name = NULL};

	for (size_t i = 0; i < attempt->nodes.count; i++)
		if (!nodes_have(&attempt->silent, attempt->nodes.name[i]))
			nodes_add(&answering, attempt->nodes.name[i]);
	return answering;
}

/*
 * Kill the ranks. After a failure Slurm is already ending the step, and scancel has no effect on
 * such a step. Therefore a new step on the same nodes kills the processes.
 */
static void on_kill(struct run *run)
{
	struct nodes_answers said = {.with_ranks = 0};
	struct node_list answering = answering_nodes(run->attempt);

	cancel(run, "--signal=KILL");
	if (run->relay.failed_at > 0 && answering.count > 0)
		nodes_probe(&answering, run->attempt->job, run->attempt->step, true, PROBE_LIMIT,
			    &said);
	nodes_answers_free(&said);
	nodes_free(&answering);
	set_state(run, KILLING);
	run->due[PROBE] = ddp_seconds() + KILLED_AFTER;
	if (run->attempt->silent.count > 0)
		run->due[LEAVE] = ddp_seconds() + LOST_LEAVE;
}

static void on_leave(struct run *run)
{
	kill(run->srun, SIGKILL);
	cancel(run, NULL);
	set_state(run, LEAVING);
	run->attempt->abandoned = true;
}

/* Returns when a file with these properties was changed, on the clock of ddp_seconds(). */
static double changed_at(const struct stat *st)
{
	return ddp_seconds() - fmax(ddp_date(NULL) - ddp_date(&st->st_mtim), 0);
}

/*
 * Read the time of the last heartbeat from the heartbeat files' timestamps. Open each file first,
 * because NFS caches the attributes of files that are not open.
 */
static void read_heartbeats(struct run *run)
{
	DIR *dir = run->attempt->heartbeats[0] ? opendir(run->attempt->heartbeats) : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct stat st;
		int fd;

		if (strncmp(entry->d_name, DDP_DIR_BEAT, strlen(DDP_DIR_BEAT)) != 0)
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0 && fstat(fd, &st) == 0) {
			run->has_heartbeat = true;
			run->relay.active_at = fmax(run->relay.active_at, changed_at(&st));
		}
		if (fd >= 0)
			close(fd);
	}
	if (dir)
		closedir(dir);
}

static void read_signals(struct run *run);

/* Call [work] in a thread, since debuggers may take a minute, and forward signals meanwhile. */
static void call_beside_signals(struct run *run, void *(*work)(void *), void *data)
{
	struct pollfd wait = {.fd = signals, .events = POLLIN};
	pthread_t thread;

	if (pthread_create(&thread, NULL, work, data) != 0) {
		(void)work(data);
		return;
	}
	while (pthread_tryjoin_np(thread, NULL) == EBUSY)
		if (poll(&wait, 1, (int)(TURN * 1000)) > 0)
			read_signals(run);
}

static void *gather(void *data)
{
	const struct attempt *attempt = data;
	struct node_list answering = answering_nodes(attempt);
	char *names = nodes_joined(&answering);
	struct ddp_error error;

	if (attempt->dir[0] && answering.count > 0 &&
	    nodes_gather(attempt->dir, attempt->job, attempt->step, names, GATHER_LIMIT, &error) <
		    0)
		fprintf(stderr, "ddp-run: %s\n", error.text);
	free(names);
	nodes_free(&answering);
	return NULL;
}

/* Collect evidence about the ranks, then end them, because they will not exit by themselves. */
static void end_ranks(struct run *run)
{
	struct attempt *attempt = run->attempt;

	probe(run);
	call_beside_signals(run, gather, attempt);
	/*
	 * A rank without a process may have ended with status 0. srun reports such ranks on SIGINT.
	 */
	attempt->said.asked = true;
	if (run->launch->output != OUTPUT_TERMINAL)
		kill(run->srun, SIGINT);
	/*
	 * On SIGTERM, a rank that uses libddp records the call in which it hangs. A stopped rank
	 * needs SIGCONT before it can receive SIGTERM.
	 */
	cancel(run, "--signal=CONT");
	cancel(run, "--signal=TERM");
	on_failure(run);
	raise_in(run, KILL, HANG_GRACE);
}

static void end_hang(struct run *run, double quiet_s)
{
	size_t count;

	run->hung = true;
	run->attempt->quiet_s = quiet_s;
	fprintf(stderr,
		"ddp-run: step %s has had no output and no heartbeat for %.0f s, so ddp-run ends "
		"it\n",
		run->step, quiet_s);
	/*
	 * A rank's traceback can be the cause of the hang if PyTorch's hook printed it, or if the
	 * rank has printed nothing since.
	 */
	count = tails_raised(run->relay.tails, INFINITY, &run->raised);
	for (size_t i = 0; i < count; i++)
		if (run->raised[i].uncaught || !run->raised[i].printed)
			run->raised[run->raised_count++] = run->raised[i];
	end_ranks(run);
}

struct search {
	const struct attempt *attempt;
	const char *ranks;
	double limit;
	struct nodes_programs *programs;
	bool complete;
};

static void *search_programs(void *data)
{
	struct search *search = data;
	char *names = nodes_joined(&search->attempt->nodes);

	search->complete = nodes_find_programs(search->attempt->job, search->attempt->step, names,
					       search->ranks, search->limit, search->programs);
	free(names);
	return NULL;
}

/* Find the programs of all ranks; the parameters are those of nodes_find_programs(). */
static bool find_programs(struct run *run, const char *ranks, double limit,
			  struct nodes_programs *programs)
{
	struct search search = {run->attempt, ranks, limit, programs, false};

	call_beside_signals(run, search_programs, &search);
	return search.complete;
}

/*
 * Whether a rank has written bytes, or its program has ended, since the inspection after half of
 * the time of --hang. srun may show neither. It passes on bytes without a newline, such as a
 * progress bar, only by the kilobyte, and Slurm may need time to end a task. CPU time is no
 * evidence of progress, because ranks may poll while they wait for another rank.
 */
static bool have_progressed(struct run *run)
{
	struct nodes_programs now;
	bool complete, have;
	int rank;

	complete = find_programs(run, "-", PROBE_LIMIT, &now);
	have = nodes_have_written(&run->programs, &now, &rank);
	if (have && !run->reported_written)
		fprintf(stderr,
			"ddp-run: rank %d of step %s writes bytes that srun does not pass on, "
			"such as a line without a newline. These bytes count as output.\n",
			rank, run->step);
	run->reported_written = run->reported_written || have;
	free(now.all);
	return have || (complete && now.count < run->programs.count);
}

static void on_hang(struct run *run)
{
	double limit = run->launch->hang_s, now = ddp_seconds(), quiet_s;
	bool inspected;

	if (now - run->relay.active_at >= limit / 2)
		read_heartbeats(run);
	quiet_s = now - run->relay.active_at;
	inspected = run->inspected_at > run->relay.active_at;
	run->due[HANG] = fmax(run->relay.active_at + (inspected ? limit : limit / 2), now + TURN);
	if (quiet_s < (inspected ? limit : limit / 2) ||
	    (run->launch->needs_heartbeat && !run->has_heartbeat) || job_update())
		return;
	/*
	 * Under salloc, Slurm stops the ranks of a suspended job, but not ddp-run. The suspended
	 * time does not count as a hang.
	 */
	if (job.suspended) {
		run->relay.active_at = now;
	} else if (!inspected) {
		free(run->programs.all);
		(void)find_programs(run, "-", PROBE_LIMIT, &run->programs);
		run->inspected_at = now;
	} else if (have_progressed(run) || run->state > RUNNING) {
		run->relay.active_at = ddp_seconds();
	} else {
		read_heartbeats(run); /* heartbeats may have come during have_progressed() */
		if (run->relay.active_at <= run->inspected_at)
			end_hang(run, quiet_s);
	}
}

/* Whether the heartbeat file of [rank] was changed after time [at]. */
static bool has_heartbeat_since(const struct run *run, int rank, double at)
{
	char path[PATH_MAX + 32];
	struct stat st;

	snprintf(path, sizeof(path), "%s/" DDP_DIR_BEAT "%d", run->attempt->heartbeats, rank);
	return run->attempt->heartbeats[0] && stat(path, &st) == 0 && changed_at(&st) > at;
}

/* Reports once that [rank] is checked again. [ends]: its program ends, and a rank still prints. */
static void report_doubtful(struct run *run, const struct raised_rank *rank, bool ends)
{
	if (!run->reported_doubtful)
		fprintf(stderr,
			"ddp-run: rank %d of step %s has not exited %.0f s after an exception, and %s. "
			"ddp-run checks it again every %g s. %s\n",
			rank->rank, run->step, ddp_seconds() - rank->at,
			ends ? "ranks still print" : "no debugger shows whether it still works",
			run->launch->exit_limit_s,
			ends ? "If it cannot end, type scancel."
			     : "Install py-spy or gdb if its node has neither, or use --hang.");
	run->reported_doubtful = true;
}

/*
 * Whether [rank] cannot continue after its traceback, according to the stacks in [programs]. If
 * [complete] is set, all nodes have answered, so a rank without a program has exited. If the rank
 * may continue, also decides whether the rank is checked again. This check began at time [now].
 */
static bool cannot_continue(struct run *run, const struct raised_rank *rank,
			    const struct nodes_programs *programs, bool complete, double now)
{
	struct run_raised raised = {.place = STACK_UNKNOWN,
				    .uncaught = rank->uncaught,
				    .active = rank->active || has_heartbeat_since(run, rank->rank,
										  rank->checked_at),
				    .is_checked = rank->checked_at > rank->at,
				    .others = run->relay.active_at > rank->checked_at};
	bool found = false, again;

	for (size_t i = 0; i < programs->count; i++) {
		enum stack_place place = (enum stack_place)programs->all[i].place;

		if (programs->all[i].rank != rank->rank)
			continue;
		found = true;
		raised.place = place < raised.place ? place : raised.place;
	}
	if ((found || !complete) && run_cannot_continue(&raised))
		return true;
	again = (found || !complete) && run_is_doubtful(&raised);
	tails_set_checked(run->relay.tails, rank, again ? now : INFINITY);
	if (again && found && (raised.place != STACK_ENDS || raised.is_checked))
		report_doubtful(run, rank, raised.place == STACK_ENDS);
	return false;
}

/*
 * Check the ranks that have not exited within --exit-limit after they printed a traceback. If the
 * check is not conclusive for a rank, the rank is checked again after the same time. A traceback
 * alone does not end the step, because programs may log exceptions and continue.
 */
static void on_exit_limit(struct run *run)
{
	double now = ddp_seconds();
	struct raised_rank *raised;
	struct nodes_programs programs;
	struct ddp_text ranks = {.data = NULL};
	size_t count;
	bool complete;

	run->due[EXIT] = now + EXIT_AGAIN;
	count = tails_raised(run->relay.tails, now - run->launch->exit_limit_s, &raised);
	if (count == 0 || job_update() || job.suspended) {
		free(raised);
		return;
	}
	for (size_t i = 0; i < count; i++)
		ddp_text_add(&ranks, "%s%d%s", i ? "," : "", raised[i].rank,
			     raised[i].uncaught ? "" : "?");
	complete = find_programs(run, ranks.data, INSPECT_LIMIT, &programs);
	for (size_t i = 0; i < count; i++)
		if (cannot_continue(run, &raised[i], &programs, complete, now))
			raised[run->raised_count++] = raised[i];
	free(programs.all);
	ddp_text_free(&ranks);
	if (run->state > RUNNING)
		run->raised_count = 0; /* a signal has ended the attempt */
	if (run->raised_count == 0) {
		free(raised);
		return;
	}
	run->raised = raised;
	fprintf(stderr,
		"ddp-run: rank %d of step %s has not exited %.0f s after an exception, so ddp-run "
		"ends the step\n",
		run->raised[0].rank, run->step, ddp_seconds() - run->raised[0].at);
	end_ranks(run);
}

#define EVENT(name, first, last, handler) {first, last, handler},
static const struct {
	enum state first, last;
	void (*handler)(struct run *run);
} events[EVENTS] = {EVENT_TABLE(EVENT)};
#undef EVENT

static void handle_event(struct run *run)
{
	double now = ddp_seconds();

	if (run->relay.failed_at > 0)
		raise_in(run, FAILURE, 0);
	for (int i = 0; i < EVENTS && !job.ending; i++)
		if (run->due[i] > 0 && run->due[i] <= now && events[i].first <= run->state &&
		    run->state <= events[i].last) {
			run->due[i] = INFINITY;
			events[i].handler(run);
			return;
		}
}

/*
 * Parse the step's nodes and number of ranks from the plugin's [message]. Returns false if they are
 * missing. The message is needed because Slurm no longer reports them once the step has ended.
 */
static bool read_nodes(struct attempt *attempt, const char *message)
{
	static const char key[] = "\nnodes ", count[] = "\nranks ";
	const char *nodes = strstr(message, key), *ranks = nodes ? strstr(nodes, count) : NULL;

	if (!ranks)
		return false;
	nodes += strlen(key);
	nodes_expand(&attempt->nodes, nodes, strcspn(nodes, "\n"));
	attempt->ranks = attempt->nodes.count > 0 ? atoi(ranks + strlen(count)) : 0;
	if (attempt->nodes.count > 0)
		set_nodes(attempt);
	return attempt->nodes.count > 0;
}

static void begin_step(struct run *run, const char *message)
{
	struct attempt *attempt = run->attempt;
	double began;

	if (sscanf(message, "job %31s step %31s failed %4095[^\n] rendezvous %4095[^\n]",
		   attempt->job, attempt->step, attempt->dir, attempt->heartbeats) < 2)
		return;
	snprintf(run->step, sizeof(run->step), "%s.%s", attempt->job, attempt->step);
	attempt->said.step = run->step;
	set_state(run, RUNNING);
	began = ddp_date(NULL);
	if (!read_nodes(attempt, message))
		on_nodes(run);
	if (run->last) {
		run->last->next_after_s = began - run->last->ended;
		attempt_report(run->launch, run->last, NULL);
	}
	run->relay.active_at = ddp_seconds();
	if (run->launch->hang_s > 0)
		raise_in(run, HANG, run->launch->hang_s / 2);
	if (run->launch->exit_limit_s > 0)
		raise_in(run, EXIT, 0);
}

/*
 * Read the message about the step from [fd], and close [fd]. The message is complete: the plugin
 * sends it with one write(), and ddp-exec renames its file into place.
 */
static void read_message(struct run *run, int fd)
{
	static char message[2 * PATH_MAX + 128];
	ssize_t n = read(fd, message, sizeof(message) - 1);

	close(fd);
	message[n > 0 ? n : 0] = '\0';
	begin_step(run, message);
}

static void read_step(struct run *run)
{
	read_message(run, run->step_fd);
	run->step_fd = -1;
}

/*
 * Whether a listing of the directory contains the file [path]. On NFS, after a lookup of a missing
 * name, listings show a new file of this name long before another lookup finds it.
 */
static bool is_listed(const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	char directory[PATH_MAX];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(directory, sizeof(directory), "%.*s", (int)(name - path), path);
	dir = opendir(directory);
	while (dir && !found && (entry = readdir(dir)))
		found = strcmp(entry->d_name, name) == 0;
	if (dir)
		closedir(dir);
	return found;
}

/* Read the file in which ddp-exec reports the step, if it exists and belongs to this user. */
static void read_step_file(struct run *run)
{
	struct stat st;
	int fd;

	if (!run->step_file[0] || !is_listed(run->step_file))
		return;
	fd = open(run->step_file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	(void)unlink(run->step_file);
	run->step_file[0] = '\0';
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid())
		read_message(run, fd);
	else if (fd >= 0)
		close(fd);
}

/* --- Signals ------------------------------------------------------------------------------- */

void attempt_begin(void)
{
	static const int handled[] = {SIGTERM, SIGHUP,	SIGINT,	 SIGQUIT,
				      SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
		sigaddset(&set, handled[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/*
 * SIGINT: at a terminal, srun receives it directly. After the first SIGINT, srun only prints the
 * state of the ranks. After a second one within a second, it ends the ranks and prints a line,
 * unless --quiet is given. With --pty, the terminal sends no signals.
 * SIGTERM and SIGHUP: srun would end the ranks at once. Therefore ddp-run sends these signals to
 * the ranks with scancel, and srun runs until the ranks exit.
 * SIGUSR1 and SIGUSR2 announce the end of the job. ddp-run sends them to srun, which forwards them
 * to the ranks. Before the ranks run, they would kill srun or be lost, so srun receives SIGTERM
 * instead.
 * [run] is NULL if no attempt runs.
 */
static void handle_signal(struct run *run, const struct signalfd_siginfo *info)
{
	int number = (int)info->ssi_signo;
	bool step = run && run->state >= RUNNING;

	if (number == SIGUSR1 || number == SIGUSR2) {
		if (run) {
			run->announced_at = ddp_seconds();
			kill(run->srun, step ? number : SIGTERM);
		} else {
			announced = true;
		}
		return;
	}
	if ((!run || number == SIGTERM || number == SIGHUP) && job_update()) {
		if (run && !step)
			kill(run->srun, number);
		return;
	}
	if (!run || number != SIGINT || run->launch->output == OUTPUT_TERMINAL ||
	    ddp_seconds() - run->sigint_at < SIGINT_AGAIN)
		end_requested = true;
	if (!run)
		return;
	if (number == SIGINT)
		run->sigint_at = ddp_seconds();
	if (number == SIGINT || number == SIGQUIT || !step) {
		if (info->ssi_code != SI_KERNEL) /* the terminal did not send the signal to srun */
			kill(run->srun, number);
		return;
	}
	cancel(run, number == SIGTERM ? "--signal=TERM" : "--signal=HUP");
	set_ending(run);
}

static void read_signals(struct run *run)
{
	struct signalfd_siginfo info;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		int number = (int)info.ssi_signo;

		if (run)
			read_step_file(run);
		/* Until SIGCONT ddp-run was stopped, and read no output. Ranks have not hung. */
		if (run && number == SIGCONT)
			run->relay.active_at = ddp_seconds();
		if (number == SIGCONT || number == SIGCHLD ||
		    (run && number != SIGINT && number == run->last_signal &&
		     ddp_seconds() - run->last_signal_at < SAME_SIGNAL))
			continue;
		handle_signal(run, &info);
		if (run) {
			run->last_signal = number;
			run->last_signal_at = ddp_seconds();
		}
	}
}

enum run_end attempt_end_requested(void)
{
	read_signals(NULL);
	if (job.preempted)
		return RUN_END_PREEMPTED;
	if (job.timed_out)
		return RUN_END_TIME_LIMIT;
	if (end_requested || job.ending)
		return RUN_END_CANCELLED;
	return announced ? RUN_END_WARNED : RUN_END_GOOD;
}

void attempt_wait(double seconds)
{
	double end = ddp_seconds() + seconds, left;

	while (!attempt_end_requested() && (left = end - ddp_seconds()) > 0) {
		struct pollfd wait = {.fd = signals, .events = POLLIN};

		(void)poll(&wait, 1, (int)(left * 1000) + 1);
	}
}

/* --- The end of an attempt ----------------------------------------------------------------- */

/*
 * Whether SIGUSR1, SIGUSR2 or sbatch's --signal explains the end of the attempt: a rank failed
 * after such a signal, or Slurm was about to end the job.
 */
static bool is_announced(const struct run *run)
{
	const struct attempt *attempt = run->attempt;
	double took = attempt->ended - attempt->started;
	double early = attempt->status == 0 ? JOB_SIGNAL_EARLY : SIGNAL_EARLY;

	/* job.signal_s does not explain the end if its signal was due before the attempt began. */
	if (job.signal_s > 0 && job.left_s < job.signal_s + early &&
	    job.left_s + took > job.signal_s)
		return true;
	return run->announced_at > 0 && ddp_seconds() - run->announced_at < ANNOUNCED_FOR &&
	       (attempt->status != 0 || job.left_s < ANNOUNCED_FOR);
}

/*
 * Whether the end of rank 0 shows how the first rank failed: rank 0 failed first, or with the same
 * exit status as the first rank. Otherwise Slurm may have ended rank 0 because another rank failed.
 */
static bool is_first_as_rank_0(const struct srun_said *said)
{
	const struct srun_task *first = said->task;

	for (size_t i = 0; i < said->count; i++)
		if (said->task[i].rank == 0)
			return i == 0 ||
			       (first->how == FACTS_EXIT && said->task[i].how == FACTS_EXIT &&
				said->task[i].code == first->code);
	return said->count == 0;
}

/* Find out how the attempt ended. The first rule in the table that holds decides. */
static enum run_end find_end(const struct run *run)
{
	const struct attempt *attempt = run->attempt;
	const struct srun_said *said = &attempt->said;
	/*
	 * If Slurm has not answered, a time limit counts as the job's limit, not as srun's --time.
	 */
	bool job_limit = job.timed_out || job.ending || job.unanswered || !(job.left_s > 0);
	/*
	 * Slurm cancels a step by killing its ranks. If srun's exit status does not show that, the
	 * cancelled step is one that the program started.
	 */
	bool cancelled = attempt->step[0] && !said->refused && !said->usage_error &&
			 (said->cancelled || (said->aborted && attempt->status > 128));
	bool good = attempt->status == 0 && !job.ending && !attempt->stop_reason[0] && !said->late;
	bool was_announced = is_announced(run);
	const struct {
		bool holds;
		enum run_end end;
	} rules[] = {
		{said->preempted || job.preempted, RUN_END_PREEMPTED},
		{job.timed_out || (said->limit && job_limit), RUN_END_TIME_LIMIT},
		{attempt->silent.count > 0 || said->lost.count > 0, RUN_END_NODE},
		{run->hung, RUN_END_HANG},
		{run->raised_count > 0, RUN_END_EXIT},
		{said->limit && !end_requested, RUN_END_STEP_LIMIT},
		{good && !was_announced, RUN_END_GOOD},
		{!good && (end_requested || job.ending || cancelled), RUN_END_CANCELLED},
		{was_announced, RUN_END_WARNED},
		{attempt->abandoned && !run->srun_killed, RUN_END_NODE},
		{!attempt->step[0] || said->not_found || said->usage_error, RUN_END_REFUSED},
		{said->late, RUN_END_EXIT},
		{attempt->stop_reason[0] && is_first_as_rank_0(said), RUN_END_STOPPED},
		{said->count > 0 && said->task[0].how != FACTS_EXIT, RUN_END_SIGNAL},
		{said->count == 0 && attempt->status > 128, RUN_END_SIGNAL},
		{true, RUN_END_EXIT},
	};
	size_t i = 0;

	while (!rules[i].holds)
		i++;
	return rules[i].end;
}

/*
 * Returns the attempt's exit status: srun's or, for a refused step, that of a rank that found the
 * reason. Slurm kills the other ranks, so srun itself exits with 128 plus the signal number.
 */
static int find_status(const struct attempt *attempt)
{
	for (size_t i = 0; i < attempt->said.count && attempt->end == RUN_END_REFUSED; i++)
		if (attempt->said.task[i].how == FACTS_EXIT)
			return attempt->said.task[i].code;
	return attempt->status;
}

/*
 * Kill processes of the step that are left, because the next attempt needs their GPUs and memory.
 * Slurm cannot end ranks whose slurmstepd was killed or hangs. While Slurm does not answer, ddp-run
 * cannot start a step to kill them, so it tries several times.
 */
static void kill_leftovers(const struct run *run)
{
	const struct attempt *attempt = run->attempt;
	struct node_list left = answering_nodes(attempt);

	for (int i = 0; left.count > 0; i++) {
		struct nodes_answers said = {.with_ranks = 0};

		nodes_probe(&left, attempt->job, attempt->step, true, PROBE_LIMIT, &said);
		nodes_free(&left);
		nodes_free(&said.silent);
		left = said.unasked;
		if (i == SWEEPS - 1 || left.count == 0 || attempt_end_requested())
			break;
		attempt_wait(SWEEP_AGAIN);
		cancel(run, NULL);
	}
	nodes_free(&left);
}

/* After srun has ended, collect the facts from which find_end() decides. */
static void clean_up(struct run *run)
{
	struct attempt *attempt = run->attempt;
	struct srun_said *said = &attempt->said;
	struct pollfd wait = {.fd = run->step_fd, .events = POLLIN};

	if (run->step_fd >= 0 && poll(&wait, 1, 0) > 0)
		read_step(run);
	if (run->step_fd >= 0)
		close(run->step_fd);
	read_step_file(run);
	relay_end(&run->relay);
	/*
	 * ddp-exec reports the step only after its tasks have met. If a task was lost before, take
	 * the step from srun's messages.
	 */
	if (run->launch->exec[0] && !attempt->step[0] &&
	    sscanf(said->named, "%31[0-9].%31[0-9]", attempt->job, attempt->step) != 2)
		attempt->job[0] = attempt->step[0] = '\0';
	if (run->srun_killed && attempt->step[0] && !job_update()) {
		fprintf(stderr, "ddp-run: srun was killed, so ddp-run ends step %s\n", run->step);
		cancel(run, NULL);
		attempt->abandoned = true;
	}
	/*
	 * Although srun has ended, Slurm may still wait for a slurmstepd: one that was killed, or
	 * one that a slurmd starts late.
	 */
	if ((said->broken || said->missed.count > 0) && attempt->status != 0)
		attempt->abandoned = true;
	/*
	 * If slurmd was killed but its slurmstepd was not, Slurm notices that only when the next
	 * step begins. So probe the nodes on which srun could not start tasks.
	 */
	if (said->missed.count > 0 && attempt->silent.count == 0 && !job.ending)
		(void)probe_nodes(run, &said->missed);
	/*
	 * If ddp-run ended srun before the launch timed out, srun has named no node. Use the nodes
	 * that did not answer instead.
	 */
	if (said->not_launched)
		nodes_add_all(&said->missed, &attempt->silent);
	if (attempt->abandoned)
		kill_leftovers(run);
	attempt->ended = ddp_date(NULL);
	for (size_t i = run->raised_count; i-- > 0;)
		srun_add_raised(said, run->raised[i].rank,
				attempt->ended - (ddp_seconds() - run->raised[i].at));
	/* If srun cannot open a file, it exits before it starts any rank. */
	if (said->no_file && said->count == 0 && attempt->status == 1)
		said->not_found = true;
	if (said->aborted || said->cancelled || said->limit || run->announced_at > 0 ||
	    job.requeue_id[0])
		(void)job_update();
	if (run->last && srun_is_same_reason(&run->last->said.by_node, &said->by_node))
		said->usage_error = true;
	facts_stopped(attempt->dir, attempt->stop_reason, sizeof(attempt->stop_reason));
	/*
	 * Remove the rendezvous directory that ddp-exec or a killed srun has left. Later sruns
	 * would not remove it while Slurm waits for a lost node.
	 */
	if (run->launch->exec[0] || attempt->abandoned) {
		attempt_discard(attempt->heartbeats);
		(void)rmdir(DDP_DIR_PARENT); /* the directory of step_file */
	}
}

/* --- An attempt ---------------------------------------------------------------------------- */

static void loop(struct run *run)
{
	while (is_running(run)) {
		struct pollfd wait[] = {{.fd = signals, .events = POLLIN},
					{.fd = run->step_fd, .events = POLLIN}};

		if (poll(wait, 2, (int)(TURN * 1000)) > 0) {
			if (wait[1].revents)
				read_step(run);
			if (wait[0].revents)
				read_signals(run);
		}
		read_step_file(run);
		handle_event(run);
	}
}

static struct tails *create_tails(const char *dir, int number)
{
	char logs[PATH_MAX], requeue[32] = "";

	if (!dir)
		return tails_create(NULL);
	if (job.requeues > 0)
		snprintf(requeue, sizeof(requeue), "/requeue-%d", job.requeues);
	snprintf(logs, sizeof(logs), "%s%s/attempt-%d", dir, requeue, number);
	return tails_create(logs);
}

void attempt_run(const struct launch *launch, int number, struct attempt *last,
		 struct attempt *attempt)
{
	bool mixed = launch->output != OUTPUT_LABELLED && launch->output != OUTPUT_KEEP_LABELS;
	struct run run = {
		.launch = launch,
		.attempt = attempt,
		.last = last,
		.step_fd = -1,
		.relay = {.output = launch->output,
			  .tails = create_tails(launch->options.text[RUN_OPTION_LOGS], number),
			  .said = &attempt->said}};

	*attempt = (struct attempt){.number = number,
				    .run_id = job.id,
				    .command = launch->words,
				    .restarts = (int)launch->options.number[RUN_OPTION_RESTARTS],
				    .started = ddp_date(NULL),
				    .status = 1,
				    .next_after_s = -1,
				    .tails = run.relay.tails,
				    .facts = {.first = -1},
				    .said = {.program = launch->program_name,
					     .stays = launch->ranks_stay,
					     .mixed = mixed}};
	if (number > 0 && launch->hang_s > 0)
		raise_in(&run, NO_STEP, launch->hang_s);
	if (start_srun(&run))
		loop(&run);
	else
		fprintf(stderr, "ddp-run: cannot start srun: %s\n", strerror(errno));
	clean_up(&run);
	attempt->end = find_end(&run);
	attempt->status = find_status(attempt);
	attempt->said.forced = attempt->said.forced && !end_requested;
	attempt->said.step = NULL;
	attempt->said.nodes = NULL;
	free(run.programs.all);
	free(run.raised);
}

void attempt_free(struct attempt *attempt)
{
	nodes_free(&attempt->nodes);
	nodes_free(&attempt->silent);
	nodes_free(&attempt->unable);
	srun_said_free(&attempt->said);
	tails_destroy(attempt->tails);
	attempt->tails = NULL;
	facts_free(&attempt->facts);
}
