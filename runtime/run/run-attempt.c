/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run-attempt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "contract.h"
#include "tails.h"
#include "verdict.h"

/* Seconds. */
#define LOOK_EVERY 0.25	  /* at what moves, and at what should have ended */
#define PROBE_AFTER 2.0	  /* a rank failed and the step is still there: do the nodes answer? */
#define PROBE_LIMIT 8.0	  /* for a node to answer */
#define GATHER_LIMIT 20.0 /* for evidence of a hang */
#define KILLED_AFTER 1.0  /* for ranks that were sent SIGKILL to be gone */
#define LOST_WAIT 3.0	  /* for what is left of a step that has lost a node */
#define KILL_MARGIN 10.0  /* behind Slurm's KillWait */
#define HANG_NORMAL 600.0 /* where a heart has beaten */
#define CANCEL_LIMIT 2.0  /* for scancel, which otherwise waits for nodes that are lost */
#define HANG_GRACE 2.0	  /* for ranks that hang, after SIGTERM */
#define ASK_MOST 60.0	  /* until Slurm is asked again about a step of which it did not tell */
#define SWEEP_AGAIN 5.0	  /* after nodes could not be asked */
#define SIGINT_AGAIN 2.0  /* srun counts whole seconds */
#define SAME_SIGNAL 1.0 /* timeout(1) sends a signal to its child, and again to the process group */
#define REQUEUE_LIMIT 30.0 /* for scontrol requeue */
#define SIGNAL_EARLY 60.0  /* at most, Slurm sends a signal before its time */
#define WARNED_FOR \
	1800.0 /* after SIGUSR1 or SIGUSR2 an end is its doing; and so far ahead of the job's end Slurm may send it */

enum {
	SWEEPS = 5,
	TAILS_MOST = 64,	 /* ranks whose last lines are left for a report */
	EVIDENCE_LIMIT = 1 << 20 /* bytes of a file */
};

static int signals = -1;
static bool told;   /* to end, and not by Slurm */
static bool warned; /* by SIGUSR1 or SIGUSR2, with no attempt running */

/* What Slurm said of the job; the end of it it does not take back. */
static struct {
	const char *id, *requeue_id;
	bool unanswered; /* when it was asked last */
	bool suspended;	 /* then */
	bool ending;
	bool limit;	/* for its time limit */
	bool preempted; /* for another job */
	bool requeued;
	double signal_s; /* before its time limit, Slurm sends a signal to ranks alone; 0: it does not */
	double left; /* seconds until its time limit */
} job = {.left = INFINITY};

/* --- Output ------------------------------------------------------------------------------------ */

struct relay {
	pthread_t thread;
	bool started;
	int from, to;
	struct run *run;
	struct srun_labels labels;
	double now;  /* when the bytes came that are being taken */
	char *plain; /* those of them that go out, without labels */
	size_t size;
};

struct run {
	const struct attempt_plan *plan;
	struct attempt *attempt;
	pid_t srun;
	int step;	  /* the plugin's words about the step; -1: they were read */
	double step_next; /* when Slurm is asked about the step; 0: it has answered */
	double step_wait; /* seconds until it is asked again */
	struct relay out, err;
	atomic_bool over;     /* srun has ended: what is in its pipes is the last */
	_Atomic double moved; /* when something came out, or a heart beat */
	_Atomic double
		first_bad; /* when srun told that the step ends, for a task or a node; 0: it did not */
	struct tails *tails;
	char id[80]; /* of the step: "4.0" */
	bool beaten; /* a heart has */

	/* Ending it. */
	double sigint_at;  /* the last SIGINT was handed on */
	int last_signal;   /* that was handed on */
	double last_at;	   /* when */
	double told_at;	   /* a signal that ends ranks was handed on; 0: none was */
	double warned_at;  /* SIGUSR1 or SIGUSR2 came last; 0: none did */
	double probe_next; /* when nodes are asked whether they answer; 0: not */
	double probe_wait; /* seconds until they are asked again, ever more */
	double kill_at;	   /* SIGKILL for what is left of ranks; 0: not */
	double leave_at;   /* srun itself is ended; 0: not */
	double asked_at;   /* Slurm was, for a step */
	bool unasked;	   /* it was told that nodes could not be asked */
	bool hung;
	bool killed; /* srun was, by somebody else */
};

/* What [rank] wrote, or srun itself. */
static void take_bytes(void *data, int rank, const char *bytes, size_t size)
{
	struct relay *relay = data;
	struct run *run = relay->run;

	memcpy(relay->plain + relay->size, bytes, size);
	relay->size += size;
	tails_take(run->tails, rank, bytes, size);
	/* Of one rank it is known by itself, and not by a label. */
	if (relay->to == STDERR_FILENO)
		srun_hear(&run->attempt->said, run->plan->output == ATTEMPT_ONE_RANK ? -1 : rank,
			  bytes, size, relay->now);
}

/* A thread, since writing may block as long as whoever reads our output likes. */
static void *relay_bytes(void *data)
{
	struct relay *relay = data;
	struct run *run = relay->run;
	const struct srun_said *said = &run->attempt->said;
	enum attempt_output output = run->plan->output;
	static _Thread_local char bytes[1 << 16], plain[sizeof(bytes) + sizeof(relay->labels)];
	bool open = true, tasks = !said->mixed && !run->plan->stays;

	relay->plain = plain;
	for (;;) {
		struct pollfd wait = {.fd = relay->from, .events = POLLIN};
		bool over = run->over;
		ssize_t n;

		if (poll(&wait, 1, over ? 0 : 100) == 0) {
			if (over)
				break;
			continue;
		}
		n = read(relay->from, bytes, sizeof(bytes));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		run->moved = ddp_seconds();
		relay->now = ddp_date(NULL);
		relay->size = 0;
		if (output == ATTEMPT_LABELLED || output == ATTEMPT_LABELS_STAY)
			srun_unlabel(&relay->labels, bytes, (size_t)n, take_bytes, relay);
		else
			take_bytes(relay, output == ATTEMPT_ONE_RANK ? 0 : TAILS_ALL, bytes,
				   (size_t)n);
		tails_log(run->tails);
		if (output == ATTEMPT_LABELLED)
			open = open && ddp_file_write_all(relay->to, plain, relay->size) >= 0;
		else
			open = open && ddp_file_write_all(relay->to, bytes, (size_t)n) >= 0;
		if (relay->to != STDERR_FILENO)
			continue;
		if (run->first_bad == 0 &&
		    (said->ending || srun_lost_node(said) || (tasks && said->count > 0)))
			run->first_bad = ddp_seconds();
	}
	return NULL;
}

static void relay_start(struct relay *relay, struct run *run, int from, int to)
{
	*relay = (struct relay){.from = from, .to = to, .run = run};
	relay->started = pthread_create(&relay->thread, NULL, relay_bytes, relay) == 0;
	if (!relay->started)
		fprintf(stderr, "ddp-run: no thread for output: %s\n", strerror(errno));
}

static void relay_end(struct relay *relay)
{
	if (relay->started)
		pthread_join(relay->thread, NULL);
	if (relay->from >= 0)
		close(relay->from);
}

/* --- Processes --------------------------------------------------------------------------------- */

/* Whether this process has a controlling terminal. */
static bool has_terminal(void)
{
	int fd = open("/dev/tty", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0 || tcgetpgrp(STDIN_FILENO) >= 0 || tcgetpgrp(STDOUT_FILENO) >= 0 ||
	       tcgetpgrp(STDERR_FILENO) >= 0;
}

/*
 * SIGTERM or SIGHUP to the process group, as from timeout(1), would make srun kill the ranks at once. At a terminal srun must stay
 * in the group, for Ctrl-C, Ctrl-Z and what is typed.
 */
static void be_child(pid_t parent)
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

static void set_number(const char *name, int number)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", number);
	setenv(name, text, 1);
}

static bool start_srun(struct run *run)
{
	const struct attempt_plan *plan = run->plan;
	int step[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
	pid_t parent = getpid();

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, step) < 0 ||
	    (plan->output != ATTEMPT_TERMINAL &&
	     (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)))
		return false;
	run->srun = fork();
	if (run->srun == 0) {
		be_child(parent);
		set_number(DDP_RUN_RESTART, plan->number);
		set_number(DDP_RUN_RESTARTS_MAX, plan->restarts);
		set_number(DDP_RUN_FD, step[1]);
		setenv(DDP_RUN_ID, plan->run_id, 1);
		unsetenv("SLURM_DDP_RESTARTS");
		fcntl(step[1], F_SETFD, 0);
		if (plan->output != ATTEMPT_TERMINAL) {
			dup2(out[1], STDOUT_FILENO);
			dup2(err[1], STDERR_FILENO);
		}
		execvp(plan->argv[0], plan->argv);
		fprintf(stderr, "ddp-run: cannot start srun: %s\n", strerror(errno));
		_exit(127);
	}
	close(step[1]);
	run->step = step[0];
	if (plan->output != ATTEMPT_TERMINAL) {
		close(out[1]);
		close(err[1]);
		relay_start(&run->out, run, out[0], STDOUT_FILENO);
		relay_start(&run->err, run, err[0], STDERR_FILENO);
	}
	return run->srun > 0;
}

/* --- The step ---------------------------------------------------------------------------------- */

static void copy_word(char *to, size_t size, const char *words, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = words; at && *at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (strncmp(at, name, length) == 0 && at[length] == ' ') {
			snprintf(to, size, "%.*s", (int)strcspn(at + length + 1, "\n"),
				 at + length + 1);
			return;
		}
	}
}

/* Which nodes and how many ranks it has: Slurm knows. Where it does not answer it is asked again, ever less often. */
static void ask_step(struct run *run)
{
	struct attempt *attempt = run->attempt;
	struct ddp_text out = {.data = NULL};
	char *const argv[] = {"scontrol", "-o", "show", "step", (char *)attempt->said.step, NULL};
	size_t size;

	if (evidence_run(argv, 5, &out) == 0 && out.data) {
		const char *field = nodes_field(out.data, "NodeList", &size);

		if (size > 0)
			nodes_expand(&attempt->nodes, field, size);
		field = nodes_field(out.data, "Tasks", &size);
		attempt->ranks = size > 0 && attempt->nodes.count > 0 ? atoi(field) : 0;
		if (attempt->nodes.count > 0)
			attempt->said.nodes = &attempt->nodes;
	}
	ddp_text_free(&out);
	run->step_wait = run->step_wait < ASK_MOST / 2 ? 2 * run->step_wait + 1 : ASK_MOST;
	run->step_next = attempt->nodes.count > 0 ? 0 : ddp_seconds() + run->step_wait;
}

/* The plugin's words, which it writes at once. */
static void read_step(struct run *run)
{
	struct attempt *attempt = run->attempt;
	static char words[2 * PATH_MAX + 128];
	ssize_t n = read(run->step, words, sizeof(words) - 1);

	if (n < 0 && errno == EINTR)
		return;
	close(run->step);
	run->step = -1;
	if (n <= 0)
		return;
	words[n] = '\0';
	copy_word(attempt->job, sizeof(attempt->job), words, "job");
	copy_word(attempt->step, sizeof(attempt->step), words, "step");
	copy_word(attempt->dir, sizeof(attempt->dir), words, "failed");
	copy_word(attempt->beats, sizeof(attempt->beats), words, "rendezvous");
	if (!attempt->step[0])
		return;
	snprintf(run->id, sizeof(run->id), "%s.%s", attempt->job, attempt->step);
	attempt->said.step = run->id;
	attempt->began = ddp_date(NULL);
	ask_step(run);
	if (run->plan->on_step)
		run->plan->on_step(run->plan->data, attempt->began);
	run->moved = ddp_seconds();
}

/* scancel for the step; [signal] NULL: so that Slurm ends it. */
static void cancel(const struct run *run, const char *signal)
{
	struct ddp_text out = {.data = NULL};
	char option[32];
	char *argv[] = {"scancel", "-Q", (char *)run->id, option, NULL};

	if (signal)
		snprintf(option, sizeof(option), "--signal=%s", signal);
	else
		argv[3] = NULL;
	(void)evidence_run(argv, CANCEL_LIMIT, &out);
	ddp_text_free(&out);
}

double attempt_kill_wait(void)
{
	static double seconds = -1;
	char *const argv[] = {"scontrol", "show", "config", NULL};
	struct ddp_text out = {.data = NULL};
	const char *line;

	if (seconds >= 0)
		return seconds;
	seconds = 30;
	if (evidence_run(argv, 5, &out) == 0 && out.data) {
		line = strstr(out.data, "\nKillWait");
		line = line ? strchr(line, '=') : NULL;
		if (line)
			seconds = atof(line + 1);
	}
	ddp_text_free(&out);
	return seconds;
}

void attempt_requeue(void)
{
	char *const argv[] = {"scontrol", "requeue", (char *)job.requeue_id, NULL};
	struct ddp_text out = {.data = NULL};
	int status;

	if (job.requeued)
		return;
	job.requeued = true;
	status = evidence_run(argv, REQUEUE_LIMIT, &out);
	/* Slurm itself did where the job is pending. */
	if (status == 0 || (out.data && strstr(out.data, "pending")))
		fprintf(stderr, "ddp-run: job %s is given back to Slurm\n", job.requeue_id);
	else
		fprintf(stderr, "ddp-run: scontrol requeue %s failed: %s\n", job.requeue_id,
			out.data ? out.data : "no answer");
	ddp_text_free(&out);
}

/* In a job of this state steps go on, or will. */
static bool is_alive(const char *state, size_t size)
{
	static const char *const alive[] = {"RUNNING",	"SUSPENDED", "CONFIGURING",
					    "RESIZING", "SIGNALING", "STOPPED"};

	for (size_t i = 0; i < sizeof(alive) / sizeof(alive[0]); i++)
		if (size == strlen(alive[i]) && strncmp(state, alive[i], size) == 0)
			return true;
	return false;
}

/*
 * Whether Slurm is ending the whole job, and tells the ranks itself; then nodes take no further step. Once it is completing, to
 * requeue it takes nothing from its ranks, and Slurm may kill us together with them: so that is done here.
 */
static bool is_job_ending(void)
{
	char *const argv[] = {"scontrol", "-o", "show", "job", (char *)job.id, NULL};
	struct ddp_text out = {.data = NULL};
	const char *field;
	bool over;
	size_t size;

	job.unanswered = evidence_run(argv, 5, &out) != 0 || !out.data;
	if (!job.unanswered) {
		field = nodes_field(out.data, "JobState", &size);
		job.suspended = size > 0 && (strncmp(field, "SUSPENDED", size) == 0 ||
					     strncmp(field, "STOPPED", size) == 0);
		over = size > 0 && !is_alive(field, size);
		field = nodes_field(out.data, "Reason", &size);
		if (over && strncmp(field, "TimeLimit", strlen("TimeLimit")) == 0)
			job.limit = true;
		/* In the grace time of its partition it still is running. */
		field = nodes_field(out.data, "PreemptTime", &size);
		if (size > 0 && strncmp(field, "None", size) != 0)
			job.preempted = true;
		job.ending = job.ending || over || job.preempted;
		job.left =
			nodes_seconds(out.data, "TimeLimit") - nodes_seconds(out.data, "RunTime");
		if (job.requeue_id && over && (job.limit || job.preempted))
			attempt_requeue();
	}
	ddp_text_free(&out);
	return job.ending;
}

/* --- Signals ----------------------------------------------------------------------------------- */

void attempt_begin(const char *id, const char *requeue_id, double signal_s)
{
	static const int handed[] = {SIGTERM, SIGHUP,  SIGINT,	SIGQUIT,
				     SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD};
	sigset_t set;

	job.id = id;
	job.requeue_id = requeue_id;
	job.signal_s = signal_s;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(handed) / sizeof(handed[0]); i++)
		sigaddset(&set, handed[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/*
 * A terminal's signals reach srun as they reach us. After one SIGINT srun only tells how the ranks are; after another within a
 * second it ends them and says so, unless it is told to be quiet. Under --pty a terminal sends none. SIGTERM and SIGHUP would
 * make srun end the ranks at once, so these go to the ranks by scancel, and srun stays till they have ended.
 *
 * SIGUSR1 and SIGUSR2, which warn of the end, srun hands on to the ranks; where there are none yet they would kill it, or be lost.
 */
static void hand_on(struct run *run, const struct signalfd_siginfo *info)
{
	int number = (int)info->ssi_signo;
	bool terminal = info->ssi_code == SI_KERNEL, step = run->attempt->step[0];

	if (number == SIGUSR1 || number == SIGUSR2) {
		run->warned_at = ddp_seconds();
		kill(run->srun, step ? number : SIGTERM);
		return;
	}
	if ((number == SIGTERM || number == SIGHUP) && is_job_ending()) {
		if (!step)
			kill(run->srun, number);
		return;
	}
	if (number != SIGINT || run->plan->output == ATTEMPT_TERMINAL ||
	    ddp_seconds() - run->sigint_at < SIGINT_AGAIN)
		told = true;
	if (number == SIGINT)
		run->sigint_at = ddp_seconds();
	if (number == SIGINT || number == SIGQUIT || !step) {
		if (!terminal)
			kill(run->srun, number);
		return;
	}
	cancel(run, number == SIGTERM ? "TERM" : "HUP");
	if (run->told_at == 0)
		run->told_at = ddp_seconds();
}

static bool is_told(void)
{
	struct signalfd_siginfo info;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2)
			warned = true;
		else if (info.ssi_signo != SIGCHLD && info.ssi_signo != SIGCONT && !is_job_ending())
			told = true;
	return told || warned || job.ending;
}

bool attempt_told(enum run_end *end)
{
	if (!is_told())
		return false;
	if (job.preempted)
		*end = RUN_END_PREEMPTED;
	else if (job.limit)
		*end = RUN_END_TIME_LIMIT;
	else if (told || job.ending)
		*end = RUN_END_CANCELLED;
	else
		*end = RUN_END_WARNED;
	return true;
}

void attempt_wait(double seconds)
{
	double end = ddp_seconds() + seconds, left;

	while (!is_told() && (left = end - ddp_seconds()) > 0) {
		struct pollfd wait = {.fd = signals, .events = POLLIN};

		(void)poll(&wait, 1, (int)(left * 1000) + 1);
	}
}

/* Whether the signal was handed on just before, and is not one that srun counts. */
static bool is_same_signal(const struct run *run, const struct signalfd_siginfo *info)
{
	return info->ssi_signo != SIGINT && (int)info->ssi_signo == run->last_signal &&
	       ddp_seconds() - run->last_at < SAME_SIGNAL;
}

static void read_signals(struct run *run)
{
	struct signalfd_siginfo info;

	while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		if (info.ssi_signo == SIGCONT)
			run->moved = ddp_seconds(); /* we did not look either */
		else if (info.ssi_signo != SIGCHLD && !is_same_signal(run, &info)) {
			hand_on(run, &info);
			run->last_signal = (int)info.ssi_signo;
			run->last_at = ddp_seconds();
		}
}

/* --- Watching ---------------------------------------------------------------------------------- */

/* When the newest heart beat is taken from the files, which are opened for that: NFS remembers attributes of others. */
static void look_at_hearts(struct run *run)
{
	DIR *dir = run->attempt->beats[0] ? opendir(run->attempt->beats) : NULL;
	struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		struct stat st;
		double ago;
		int fd;

		if (strncmp(entry->d_name, DDP_DIR_BEAT, strlen(DDP_DIR_BEAT)) != 0)
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0 && fstat(fd, &st) == 0) {
			run->beaten = true;
			ago = ddp_date(NULL) - ddp_date(&st.st_mtim);
			if (ago < 0)
				ago = 0;
			if (ddp_seconds() - ago > run->moved)
				run->moved = ddp_seconds() - ago;
		}
		if (fd >= 0)
			close(fd);
	}
	closedir(dir);
}

static void tell_unasked(struct run *run, const struct node_list *nodes, const char *why)
{
	char *names;

	if (run->unasked)
		return;
	run->unasked = true;
	names = nodes_joined(nodes);
	fprintf(stderr, "ddp-run: whether %s %s is not known: %s\n",
		nodes->count ? names : "the step's nodes", nodes->count == 1 ? "answers" : "answer",
		why);
	free(names);
}

/* Ask [nodes] for processes of the step. Those that do not answer are silent. Returns how many others have some, or may have. */
static size_t ask_nodes(struct run *run, const struct node_list *nodes)
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
		tell_unasked(run, &said.unasked, said.why);
	nodes_answers_free(&said);
	return busy;
}

/*
 * Which nodes answer; srun waits for ever for tasks of those that do not, and of a slurmstepd that is gone, though no
 * process of the step may be left.
 */
static void probe(struct run *run)
{
	struct attempt *attempt = run->attempt;

	if (attempt->nodes.count == 0)
		ask_step(run);
	if (job.unanswered || attempt->nodes.count == 0) {
		tell_unasked(run, &attempt->nodes, "Slurm does not answer");
		return;
	}
	if (ask_nodes(run, &attempt->nodes) == 0)
		run->leave_at = ddp_seconds() + LOST_WAIT;
	if (attempt->silent.count > 0 && run->kill_at == 0)
		run->kill_at = ddp_seconds() + LOST_WAIT;
}

static struct node_list answering_nodes(const struct attempt *attempt)
{
	struct node_list answering = {.name = NULL};

	for (size_t i = 0; i < attempt->nodes.count; i++)
		if (!nodes_have(&attempt->silent, attempt->nodes.name[i]))
			nodes_add(&answering, attempt->nodes.name[i]);
	return answering;
}

static void end_hang(struct run *run, double quiet)
{
	struct attempt *attempt = run->attempt;
	struct node_list answering;
	struct ddp_error error;
	char *names;

	run->hung = true;
	attempt->quiet = quiet;
	fprintf(stderr, "ddp-run: nothing has moved in step %s.%s for %.0f s: ending it\n",
		attempt->job, attempt->step, quiet);
	probe(run);
	answering = answering_nodes(attempt);
	names = nodes_joined(&answering);
	if (attempt->dir[0] && answering.count > 0 &&
	    ddp_evidence_gather(attempt->dir, attempt->job, attempt->step, names, GATHER_LIMIT,
				&error) < 0)
		fprintf(stderr, "ddp-run: %s\n", error.text);
	free(names);
	nodes_free(&answering);
	/* libddp's ranks leave a record of where they hang; one that is stopped needs SIGCONT for that. */
	cancel(run, "CONT");
	cancel(run, "TERM");
	run->told_at = ddp_seconds();
	if (run->kill_at == 0)
		run->kill_at =
			run->told_at + (run->plan->grace > 0 ? run->plan->grace : HANG_GRACE);
}

static bool is_due(double at, double now)
{
	return at > 0 && now >= at;
}

/*
 * srun waits without end for nodes that are busy. At first they may be busy with what the user wants; later with what is left
 * of the last step, as a rule.
 */
static void look_for_step(struct run *run, double now)
{
	double hang = run->plan->hang, limit = hang < 0 ? HANG_NORMAL : hang;

	if (run->plan->number == 0 || limit == 0 || now - run->asked_at < limit)
		return;
	run->asked_at = now;
	if (is_job_ending() || job.suspended)
		return;
	fprintf(stderr, "ddp-run: Slurm has started no step for %.0f s: ending srun\n", limit);
	kill(run->srun, SIGKILL);
}

/* What a step that should be over is still given; and whether one that should move does. */
static void look(struct run *run)
{
	const struct attempt_plan *plan = run->plan;
	double now = ddp_seconds(), began, hang = plan->hang, first_bad = run->first_bad;
	bool lost = run->attempt->silent.count > 0;

	if (!run->attempt->step[0])
		look_for_step(run, now);
	if (!run->attempt->step[0] || job.ending)
		return;
	if (is_due(run->step_next, now)) {
		ask_step(run);
		return;
	}
	if (first_bad == 0 && run->told_at == 0) {
		if (hang == 0 || now - run->moved < (hang < 0 ? HANG_NORMAL : hang))
			return;
		look_at_hearts(run);
		if ((hang < 0 || plan->hidden) && !run->beaten)
			return;
		if (now - run->moved < (hang < 0 ? HANG_NORMAL : hang) || is_job_ending())
			return;
		/* Under salloc the ranks of a suspended job are stopped, and we are not. */
		if (job.suspended)
			run->moved = now;
		else
			end_hang(run, now - run->moved);
		return;
	}
	began = first_bad > 0 && (run->told_at == 0 || first_bad < run->told_at) ? first_bad
										 : run->told_at;
	if (run->probe_next == 0)
		run->probe_next = began + PROBE_AFTER;
	if (plan->grace > 0 && run->kill_at == 0)
		run->kill_at = began + plan->grace;
	/* Ranks that only were told to end have all the time that Slurm gives them, unless --grace says how much. */
	if (run->leave_at == 0 && (run->hung || first_bad > 0))
		run->leave_at =
			began + (plan->grace > 0 ? plan->grace : attempt_kill_wait()) + KILL_MARGIN;
	if (is_due(run->probe_next, now)) {
		run->probe_wait = run->probe_wait > 0 ? 2 * run->probe_wait : PROBE_AFTER;
		run->probe_next = now + run->probe_wait;
		if (!lost && !is_job_ending())
			probe(run);
		return;
	}
	if (is_due(run->kill_at, now)) {
		cancel(run, "KILL");
		run->kill_at = now + 3600;
		run->probe_next = now + KILLED_AFTER;
		if (lost)
			run->leave_at = now + 0.5;
	}
	if (is_due(run->leave_at, now)) {
		kill(run->srun, SIGKILL);
		cancel(run, NULL);
		run->attempt->left = true;
		run->leave_at = now + 3600;
	}
}

/* --- The whole --------------------------------------------------------------------------------- */

/* Returns false when srun has ended, with its status. */
static bool is_running(struct run *run)
{
	int status;
	pid_t got = waitpid(run->srun, &status, WNOHANG);

	if (got == 0 || (got < 0 && errno == EINTR))
		return true;
	if (got == run->srun) {
		run->attempt->status =
			WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		run->killed = WIFSIGNALED(status) && !run->attempt->left;
	}
	return false;
}

static void wait_for_srun(struct run *run)
{
	while (is_running(run)) {
		struct pollfd wait[] = {{.fd = signals, .events = POLLIN},
					{.fd = run->step, .events = POLLIN}};

		if (poll(wait, 2, (int)(LOOK_EVERY * 1000)) > 0) {
			if (wait[1].revents)
				read_step(run);
			if (wait[0].revents)
				read_signals(run);
		}
		look(run);
	}
}

/* What still is in pipes when srun has ended. */
static void drain(struct run *run)
{
	run->over = true;
	if (run->step >= 0) {
		struct pollfd wait = {.fd = run->step, .events = POLLIN};

		if (poll(&wait, 1, 0) > 0)
			read_step(run);
		if (run->step >= 0)
			close(run->step);
	}
	relay_end(&run->out);
	relay_end(&run->err);
}

/*
 * Ranks of a slurmstepd that hangs are out of Slurm's reach, and the next attempt wants their place. While Slurm does not answer they
 * are out of ours.
 */
static void sweep(const struct run *run)
{
	const struct attempt *attempt = run->attempt;
	struct node_list left = answering_nodes(attempt);

	for (int i = 0; left.count > 0; i++) {
		struct nodes_answers said = {.with_ranks = 0};

		nodes_probe(&left, attempt->job, attempt->step, true, PROBE_LIMIT, &said);
		nodes_free(&left);
		nodes_free(&said.silent);
		left = said.unasked;
		if (i == SWEEPS - 1 || left.count == 0 || is_told())
			break;
		attempt_wait(SWEEP_AGAIN);
		cancel(run, NULL);
	}
	nodes_free(&left);
}

/* Ranks whose srun somebody else has killed live on. */
static void end_orphans(struct run *run)
{
	struct attempt *attempt = run->attempt;

	if (!run->killed || !attempt->step[0] || is_job_ending())
		return;
	fprintf(stderr, "ddp-run: srun was killed: ending step %s\n", run->id);
	cancel(run, NULL);
	attempt->left = true;
}

/*
 * Whether it ended because of a warning. A rank that fails after one obeyed it; one that ends well may have had all its work done,
 * unless Slurm was about to end the job.
 */
static bool is_warned(const struct run *run)
{
	double took = run->attempt->ended - run->attempt->started;

	/* A time that had come before it began warned nobody. */
	if (job.signal_s > 0 && job.left < job.signal_s + SIGNAL_EARLY &&
	    job.left + took > job.signal_s)
		return true;
	return run->warned_at > 0 && ddp_seconds() - run->warned_at < WARNED_FOR &&
	       (run->attempt->status != 0 || job.left < WARNED_FOR);
}

/* Whether Slurm cancelled the step. It kills the ranks then; with another status, a step of the program was cancelled. */
static bool is_cancelled(const struct attempt *attempt)
{
	const struct srun_said *said = &attempt->said;

	return attempt->step[0] && (said->cancelled || (said->aborted && attempt->status > 128));
}

/*
 * Whether Slurm ended the step for a time limit that was not the job's, as of srun's --time. If Slurm has not answered, the limit
 * counts as the job's.
 */
static bool is_step_limit(const struct srun_said *said)
{
	return said->limit && !job.limit && !job.ending && !job.unanswered && job.left > 0;
}

/* Whether no rank failed before rank 0 ended, or the first did as rank 0. Slurm ends rank 0 for one that failed, too. */
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

/* Slurm's reason, which it says of a step in words that srun prints; ours where we ended it. */
static enum run_end judge(const struct run *run)
{
	const struct attempt *attempt = run->attempt;
	const struct srun_said *said = &attempt->said;

	if (said->preempted || job.preempted)
		return RUN_END_PREEMPTED;
	if (job.limit || (said->limit && !is_step_limit(said)))
		return RUN_END_TIME_LIMIT;
	if (attempt->silent.count > 0 || said->lost.count > 0)
		return RUN_END_NODE;
	if (run->hung)
		return RUN_END_HANG;
	if (said->limit && !told)
		return RUN_END_STEP_LIMIT;
	if (attempt->status == 0 && !job.ending && !attempt->stopped[0] && !said->late)
		return is_warned(run) ? RUN_END_WARNED : RUN_END_GOOD;
	if (told || job.ending || is_cancelled(attempt))
		return RUN_END_CANCELLED;
	if (is_warned(run))
		return RUN_END_WARNED;
	if (attempt->left && !run->killed)
		return RUN_END_NODE;
	if (!attempt->step[0] || said->not_found)
		return RUN_END_REFUSED;
	if (said->late)
		return RUN_END_EXIT;
	if (attempt->stopped[0] && is_first_as_rank_0(said))
		return RUN_END_STOPPED;
	if (said->count > 0 && said->task[0].how != FACTS_EXIT)
		return RUN_END_SIGNAL;
	return said->count == 0 && attempt->status > 128 ? RUN_END_SIGNAL : RUN_END_EXIT;
}

void attempt_free(struct attempt *attempt)
{
	nodes_free(&attempt->nodes);
	nodes_free(&attempt->silent);
	nodes_free(&attempt->unable);
	srun_said_free(&attempt->said);
}

/* --- attempt.json ------------------------------------------------------------------------------ */

static void put_names(struct ddp_text *text, const char *key, const struct node_list *list)
{
	ddp_put_begin(text, key, '[');
	for (size_t i = 0; i < list->count; i++)
		ddp_put_string(text, NULL, list->name[i]);
	ddp_text_add(text, "]");
}

static void put_tasks(struct ddp_text *text, const struct srun_said *said)
{
	ddp_put_begin(text, "tasks", '[');
	for (size_t i = 0; i < said->count; i++) {
		const struct srun_task *task = &said->task[i];

		ddp_put_begin(text, NULL, '{');
		ddp_put_count(text, "rank", (uint64_t)task->rank);
		ddp_put_string(text, "node", task->node);
		ddp_put_string(text, "how", facts_how_name(task->how));
		ddp_put_count(text, "code", (uint64_t)task->code);
		ddp_put_number(text, "time", task->time);
		ddp_text_add(text, "}");
	}
	ddp_text_add(text, "]");
}

/* What others left in [dir], as far as it can be read. */
static void copy_evidence(const char *dir, const char *to)
{
	DIR *open = *dir ? opendir(dir) : NULL;
	struct dirent *entry;

	while (open && (entry = readdir(open))) {
		char from_path[PATH_MAX + 300], to_path[PATH_MAX + 300], *data = NULL;
		struct iovec part;

		snprintf(from_path, sizeof(from_path), "%s/%s", dir, entry->d_name);
		snprintf(to_path, sizeof(to_path), "%s/%s", to, entry->d_name);
		if (entry->d_name[0] != '.' &&
		    ddp_file_read(from_path, EVIDENCE_LIMIT, &data, &part.iov_len, NULL) == 0) {
			part.iov_base = data;
			(void)ddp_file_write(to_path, &part, 1, 0600, false, NULL);
		}
		free(data);
	}
	if (open)
		closedir(open);
}

/* Go on in a directory of our own on this node, where the one for [attempt] is not there or cannot be written, as [why] says. */
static bool move_evidence(struct attempt *attempt, const char *why)
{
	const char *base = ddp_getenv("TMPDIR", NULL);
	char dir[PATH_MAX];

	if (snprintf(dir, sizeof(dir), "%s/ddp-run-%s.%s-XXXXXX", base ? base : "/tmp",
		     attempt->job, attempt->step) >= (int)sizeof(dir) ||
	    !mkdtemp(dir)) {
		fprintf(stderr, "ddp-run: %s: there is no report\n", why);
		return false;
	}
	fprintf(stderr, "ddp-run: %s: the report goes to %s\n", why, dir);
	copy_evidence(attempt->dir, dir);
	snprintf(attempt->dir, sizeof(attempt->dir), "%s", dir);
	return true;
}

static int write_attempt(const struct attempt *attempt, const struct ddp_text *text,
			 struct ddp_error *error)
{
	struct iovec part = {text->data, text->size};
	char path[PATH_MAX + 16];

	if (!attempt->dir[0])
		return ddp_error_set(error, DDP_ERR_FILE,
				     "step %s.%s has no directory for failures", attempt->job,
				     attempt->step);
	snprintf(path, sizeof(path), "%s/attempt.json", attempt->dir);
	return ddp_file_write(path, &part, 1, 0600, false, error);
}

void attempt_tell(const struct attempt_plan *plan, struct attempt *attempt,
		  const struct attempt_next *next)
{
	static const char *const acts[] = {
		[RUN_STOP] = "stop", [RUN_RESTART] = "restart", [RUN_REQUEUE] = "requeue"};
	struct ddp_text text = {.data = NULL};
	struct ddp_error error;

	if (!attempt->step[0] || attempt->untold)
		return;
	ddp_put_begin(&text, NULL, '{');
	ddp_put_string(&text, "run_id", plan->run_id);
	ddp_put_count(&text, "job", strtoull(attempt->job, NULL, 10));
	ddp_put_count(&text, "step", strtoull(attempt->step, NULL, 10));
	ddp_put_count(&text, "attempt", (uint64_t)plan->number);
	ddp_put_count(&text, "restarts", (uint64_t)plan->restarts);
	ddp_put_begin(&text, "command", '[');
	for (char **at = plan->command; *at; at++)
		ddp_put_string(&text, NULL, *at);
	ddp_text_add(&text, "]");
	put_names(&text, "nodes", &attempt->nodes);
	if (attempt->ranks > 0)
		ddp_put_count(&text, "ranks", (uint64_t)attempt->ranks);
	ddp_put_number(&text, "started", attempt->started);
	ddp_put_number(&text, "ended", attempt->ended);
	ddp_put_count(&text, "status", (uint64_t)attempt->status);
	ddp_put_string(&text, "kind", run_end_name(attempt->end));
	if (attempt->said.not_found)
		ddp_put_string(&text, "refusal", attempt->said.refusal);
	put_tasks(&text, &attempt->said);
	put_names(&text, "silent_nodes", &attempt->silent);
	if (attempt->quiet > 0)
		ddp_put_number(&text, "quiet", attempt->quiet);
	if (next) {
		const struct node_list *nodes = next->nodes ? next->nodes : &attempt->nodes;

		ddp_put_string(&text, "next", acts[next->decision->act]);
		ddp_put_string(&text, "next_why", next->decision->why);
		if (next->decision->act == RUN_RESTART) {
			put_names(&text, "next_nodes", nodes);
			if (attempt->ranks > 0 && attempt->nodes.count > 0)
				ddp_put_count(&text, "next_ranks",
					      (uint64_t)attempt->ranks / attempt->nodes.count *
						      nodes->count);
			if (next->after >= 0)
				ddp_put_number(&text, "next_after", next->after);
		}
	}
	ddp_text_add(&text, "}\n");
	if (!text.failed && write_attempt(attempt, &text, &error) < 0 &&
	    (!move_evidence(attempt, error.text) || write_attempt(attempt, &text, NULL) < 0)) {
		attempt->dir[0] = '\0';
		attempt->untold = true;
	}
	ddp_text_free(&text);
}

/* --- All of it --------------------------------------------------------------------------------- */

/* Of who failed first or stands out in a hang, and of those that others wait for; that is known by what the attempt has left. */
static int write_culprits(const struct run *run, struct ddp_error *error)
{
	const char *dir = run->attempt->dir;
	struct facts facts;
	int status = facts_read(&facts, dir, error), count = 0;

	if (status < 0)
		return status;
	for (int i = 0; i < facts.size && count < TAILS_MOST && status == 0; i++)
		if (i == facts.first || facts.arrivals[i].missing) {
			status = tails_write(run->tails, dir, i, error);
			count++;
		}
	facts_free(&facts);
	return status;
}

/* For a report: what all ranks printed last, and each of them; where they are many, those of which srun told, and culprits. */
static int write_tails(const struct run *run, struct ddp_error *error)
{
	const struct attempt *attempt = run->attempt;
	bool few = attempt->ranks > 0 && attempt->ranks <= TAILS_MOST;
	size_t count = few ? (size_t)attempt->ranks : attempt->said.count;
	int status = tails_write(run->tails, attempt->dir, TAILS_ALL, error);

	for (size_t i = 0; i < count && i < TAILS_MOST && status == 0; i++)
		status = tails_write(run->tails, attempt->dir,
				     few ? (int)i : attempt->said.task[i].rank, error);
	return few || status < 0 ? status : write_culprits(run, error);
}

void attempt_run(const struct attempt_plan *plan, struct attempt *attempt)
{
	struct run run = {.plan = plan,
			  .attempt = attempt,
			  .step = -1,
			  .out = {.from = -1},
			  .err = {.from = -1}};
	const char *requeues = ddp_getenv("SLURM_RESTART_COUNT", NULL);
	struct ddp_error error;
	char logs[PATH_MAX];

	*attempt = (struct attempt){.started = ddp_date(NULL),
				    .status = 1,
				    .said = {.program = plan->program,
					     .mixed = plan->output != ATTEMPT_LABELLED &&
						      plan->output != ATTEMPT_LABELS_STAY}};
	if (plan->logs)
		snprintf(logs, sizeof(logs), "%s%s%s/attempt-%d", plan->logs,
			 requeues ? "/requeue-" : "", requeues ? requeues : "", plan->number);
	run.tails = tails_create(plan->logs ? logs : NULL);
	run.moved = run.asked_at = ddp_seconds();
	if (start_srun(&run))
		wait_for_srun(&run);
	else
		fprintf(stderr, "ddp-run: cannot start srun: %s\n", strerror(errno));
	drain(&run);
	end_orphans(&run);
	/* srun leaves a step then, but to Slurm the slurmstepd that is gone is not over. */
	if (attempt->said.broken && attempt->status != 0)
		attempt->left = true;
	if (attempt->left)
		sweep(&run);
	attempt->ended = ddp_date(NULL);
	if (attempt->said.aborted || attempt->said.cancelled || attempt->said.limit ||
	    run.warned_at > 0 || job.requeue_id)
		(void)is_job_ending();
	/* A slurmd that is gone alone is noticed when the next step begins. */
	if (attempt->said.missed.count > 0 && attempt->silent.count == 0 && !job.ending)
		(void)ask_nodes(&run, &attempt->said.missed);
	attempt->time_left = job.left;
	facts_stopped(attempt->dir, attempt->stopped, sizeof(attempt->stopped));
	attempt->end = judge(&run);
	attempt->said.forced = attempt->said.forced && !told;
	if (attempt->end != RUN_END_GOOD) {
		attempt_tell(plan, attempt, NULL);
		if (attempt->dir[0] && write_tails(&run, &error) < 0 &&
		    move_evidence(attempt, error.text))
			(void)write_tails(&run, NULL);
	}
	attempt->said.step = NULL;
	attempt->said.nodes = NULL;
	tails_destroy(run.tails);
}
