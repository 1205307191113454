/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight.c - run ddp-info --preflight on nodes, read its results, and judge them
 *
 * A run is one step of Slurm with one process on each node. The processes run a fixed programme of
 * tests and write a line for each result; info/node-tests.h describes both. ddp-run only reads the
 * lines. A run is over when srun exits, or when the time of each process has passed, which begins
 * with the process's first line.
 *
 *  1. If a process writes no line at all, Slurm could not start it, or could not reach a node that
 *     forwards the request (TreeWidth). Therefore ddp-run starts a separate step on each such node
 *     before the end of the run. Nodes that do not answer have failed. The others are tested again.
 *  2. If a process writes a first line but no last line, its node has failed: processes write the
 *     last line in time even if a test hangs. If no process writes a last line, the job was
 *     suspended, and there is no verdict.
 *  3. Nodes that waited for failed nodes are tested again, without the failed nodes. Nodes with a
 *     slow result, or without an answer from a partner, are tested again with healthy partners.
 *
 * There are at most two runs, each with half of the time. If srun cannot start a process, it ends
 * the step. Such a run does not count.
 */
#include "config.h"

#include "ddp-run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/watch.h"
#include "base/xalloc.h"
#include "contract.h"
#include "launch/rendezvous.h"
#include "preflight-report.h"
#include "srun-output.h"

/* Times, in seconds. */
#define TURN 0.2	/* interval between turns of the loop */
#define TOTAL 30.0	/* time limit for all tests */
#define ROUND_MORE 2.0	/* added to the time limit for each round of --preflight=full */
#define ANSWER_MORE 3.0 /* time for a process to write its last line after its programme */
#define LEAVE 3.0	/* wait for srun to exit */
#define PROBE_AT 0.3	/* fraction of a run's time after which nodes without a line are probed */

enum {
	FIELDS = 9, /* fields of a line of a node */
	RUNS = 2
};

/* A node in the current run, unless noted otherwise. */
struct peer {
	bool in_run;
	int rank;	  /* rank of the node's process; -1: it has written no line */
	int partner;	  /* rank of the partner in the current round */
	double heard_at;  /* time of the first line, as in flight.awake */
	double clock;	  /* offset of the node's clock; NAN: unknown */
	size_t rows;	  /* index of the node's newest row, of all runs; SIZE_MAX: none */
	char last[24];	  /* last test that the node reported */
	char ended[96];	  /* how the process ended early; "": it did not */
	int absent;	  /* number of runs in which the node wrote no line */
	bool is_untested; /* other nodes kept this one from being tested */
};

/* Steps that a thread starts on the nodes without a line, to find those that do not answer. */
struct probe {
	pthread_t thread;
	struct node_list nodes;
	double limit; /* seconds */
	struct nodes_answers answers;
};

struct flight {
	struct launch *launch;
	struct preflight_results results;
	size_t capacity;
	struct peer *peer; /* one for each node */
	/* One for each rank of the current run. */
	struct preflight_node *seen;
	int *node_of; /* node of each rank; -1: unknown */

	pid_t srun;
	int from, step_fd;   /* descriptors of srun's output, and of the plugin's message */
	struct probe *probe; /* NULL: none was started */
	struct ddp_text input;
	int run;       /* number of the run, from 1 */
	bool ended;    /* srun has closed its output */
	bool aborted;  /* srun could not start a process, and ends the step */
	bool is_whole; /* all nodes that have not failed are in the run */
	/* Rounds of pairs in this run: those that have results, and all rounds of the programme. */
	int rounds, rounds_wanted;
	char dir[PATH_MAX];  /* failure directory; "": none */
	char meet[PATH_MAX]; /* without the plugin: rendezvous directory */
	char why[256];	     /* srun's last error */
	struct srun_said said;
	double seconds; /* time of the programme */
	struct ddp_watch
		clock;	/* limits the time of all runs; does not advance while ddp-run is stopped */
	double awake;	/* time on this clock, read once per turn */
	double begun;	/* value of awake at the first line; negative: none */
	double started; /* value of awake when the run began */
};

/* --- Rows ---------------------------------------------------------------------------------- */

static struct preflight_row *add_row(struct flight *flight, int node, int partner, const char *test)
{
	struct preflight_row *row;

	flight->results.rows = ddp_xgrow(flight->results.rows, flight->results.count,
					 &flight->capacity, sizeof(*row), "results");
	row = &flight->results.rows[flight->results.count++];
	*row = (struct preflight_row){.node = node,
				      .partner = partner,
				      .run = flight->run,
				      .next = flight->peer[node].rows,
				      .value = (double)NAN};
	flight->peer[node].rows = flight->results.count - 1;
	snprintf(row->test, sizeof(row->test), "%s", test);
	return row;
}

/*
 * Add a row that shows that [node] has failed as a whole. [test] must not be the name of a test
 * that nodes report.
 */
static void add_failed(struct flight *flight, int node, const char *test,
		       enum preflight_verdict verdict, const char *text)
{
	struct preflight_row *row = add_row(flight, node, -1, test);

	row->verdict = verdict;
	snprintf(row->text, sizeof(row->text), "%s", text);
}

/* Whether [node] itself has failed. Pairs of a node may fail because of their other node. */
static bool is_out(const struct flight *flight, int node)
{
	const struct preflight_row *row;

	for (size_t i = flight->peer[node].rows; i != SIZE_MAX; i = row->next) {
		row = &flight->results.rows[i];
		if (row->partner < 0 && !row->is_shared && row->verdict >= PREFLIGHT_FAILED)
			return true;
	}
	return false;
}

/* Whether both texts begin with the same name of a GPU or file, before a colon. */
static bool is_same_item(const char *a, const char *b)
{
	size_t length = strcspn(a, ":");

	return length == strcspn(b, ":") && strncmp(a, b, length) == 0;
}

/* Returns the row for a result. If there is none yet, adds one. */
static struct preflight_row *find_row(struct flight *flight, int node, int partner,
				      const char *test, const char *kind, const char *text)
{
	bool gpu = strncmp(text, "GPU ", 4) == 0; /* each GPU has its own rows */
	int low = partner >= 0 && partner < node ? partner : node,
	    high = partner < node ? node : partner;

	for (size_t i = flight->peer[low].rows, next; i != SIZE_MAX; i = next) {
		struct preflight_row *row = &flight->results.rows[i];

		next = row->next;
		if (row->partner == (partner < 0 ? -1 : high) && strcmp(row->test, test) == 0 &&
		    (partner >= 0 || strcmp(row->kind, kind) == 0) &&
		    (!gpu || is_same_item(row->text, text)))
			return row;
	}
	return add_row(flight, low, partner < 0 ? -1 : high, test);
}

/* --- Lines of nodes ------------------------------------------------------------------------ */

/* Store a result in [row], unless preflight_replaces() prefers the result that is there. */
static void read_result(const struct flight *flight, struct preflight_row *row, const char *event,
			const char *kind, const char *number, const char *unit, const char *text)
{
	struct preflight_row newer = *row;

	newer.run = flight->run;
	newer.verdict = strcmp(event, "cut") == 0      ? PREFLIGHT_UNTESTED
			: strcmp(event, "slow") == 0   ? PREFLIGHT_SLOW
			: strcmp(event, "failed") == 0 ? PREFLIGHT_FAILED
			: strcmp(event, "silent") == 0 ? PREFLIGHT_SILENT
						       : PREFLIGHT_OK;
	newer.is_rate = strcmp(event, "rate") == 0;
	newer.is_config = strcmp(event, "config") == 0;
	newer.value = *number ? strtod(number, NULL) : (double)NAN;
	snprintf(newer.kind, sizeof(newer.kind), "%s", kind);
	snprintf(newer.unit, sizeof(newer.unit), "%s", unit);
	snprintf(newer.text, sizeof(newer.text), "%s", text);
	if (preflight_replaces(&newer, row))
		*row = newer;
}

/* Read the result of a test of [node]. [field] has the event, test, kind, value, unit and text. */
static void read_test(struct flight *flight, int node, char *const field[6])
{
	bool is_gpu = strncmp(field[1], "GPU ", 4) == 0;
	bool is_pair =
		strcmp(field[1], PREFLIGHT_PAIR) == 0 || strcmp(field[1], PREFLIGHT_GPU_PAIR) == 0;
	bool is_all = strcmp(field[1], is_gpu ? "GPU all" : "all") == 0;
	bool is_cut = strcmp(field[0], "cut") == 0;
	int rank = flight->peer[node].partner;
	int partner = is_pair && rank >= 0 ? flight->node_of[rank] : -1;
	struct preflight_row *row = &flight->results.all[is_gpu];

	if ((is_all && !flight->is_whole) || (is_cut && !is_all && !is_pair))
		return;
	if (strcmp(field[0], "untested") == 0) {
		snprintf(flight->results.untested[is_gpu], sizeof(flight->results.untested[0]),
			 "%s", field[5]);
		return;
	}
	if (is_all)
		snprintf(row->test, sizeof(row->test), "%s", field[1]);
	else if (is_pair && (partner < 0 || partner == node))
		return;
	else
		row = find_row(flight, node, partner, field[1], field[2], field[5]);
	read_result(flight, row, field[0], field[2], field[3], field[4], field[5]);
	if (is_pair && !is_cut && flight->seen[flight->peer[node].rank].round >= flight->rounds)
		flight->rounds = flight->seen[flight->peer[node].rank].round + 1;
}

static int find_node(const struct flight *flight, const char *name)
{
	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (strcmp(flight->results.nodes->name[i], name) == 0)
			return (int)i;
	return -1;
}

/* Returns the number in [text], or -1 if it is not a rank of this run. */
static int read_rank(const struct flight *flight, const char *text)
{
	char *end;
	long rank = strtol(text, &end, 10);

	return end != text && rank >= 0 && rank < (long)flight->results.nodes->count ? (int)rank
										     : -1;
}

/*
 * Read a line of a node; info/node-tests.h describes the fields. Also estimate the offset of the
 * node's clock. It is at least the time in the line minus the time at which the line arrives, so
 * the maximum of this difference over all lines is used.
 */
static void read_node_line(struct flight *flight, char *line)
{
	char *field[FIELDS], *rest = line;
	int count = 0, rank, node;
	struct preflight_node *seen;
	struct peer *peer;

	while (count < FIELDS && (field[count] = strsep(&rest, "\t")))
		count++;
	rank = count == FIELDS ? read_rank(flight, field[1]) : -1;
	if (rank < 0)
		return;
	seen = &flight->seen[rank];
	if (strcmp(field[3], "hello") == 0 && (node = find_node(flight, field[8])) >= 0) {
		flight->node_of[rank] = node;
		flight->peer[node].rank = rank;
		flight->peer[node].heard_at = flight->awake;
		if (flight->begun < 0)
			flight->begun = flight->awake;
		flight->rounds_wanted = atoi(field[6]);
	}
	node = flight->node_of[rank];
	if (node < 0)
		return;
	peer = &flight->peer[node];
	peer->clock = fmax(peer->clock, strtod(field[2], NULL) - ddp_date(NULL));
	if (*field[4])
		snprintf(peer->last, sizeof(peer->last), "%s", field[4]);
	if (strcmp(field[3], "end") == 0) {
		seen->has_ended = true;
	} else if (strcmp(field[3], "wait") == 0 || strcmp(field[3], "met") == 0) {
		seen->round = atoi(field[6]);
		peer->partner = read_rank(flight, field[8]);
		seen->partner = strcmp(field[3], "wait") == 0 ? peer->partner : -1;
	} else if (strcmp(field[3], "hello") != 0) {
		read_test(flight, node, field + 3);
	}
}

/* Parse a message such as "n5: Communication connection failure". */
static void read_launch_failure(struct flight *flight, const char *text)
{
	char name[FACTS_NAME], why[160];
	size_t length = strcspn(text, ":");
	int node;

	snprintf(name, sizeof(name), "%.*s", (int)length, text);
	node = find_node(flight, name);
	if (node < 0)
		return;
	if (!is_out(flight, node)) {
		snprintf(why, sizeof(why), "srun cannot start a process%s", text + length);
		add_failed(flight, node, "start", PREFLIGHT_FAILED, why);
	}
	flight->aborted = true;
}

static void read_srun_line(struct flight *flight, const char *line)
{
	struct pattern_part part[PATTERN_PARTS];
	size_t count = flight->said.count;

	if (pattern_find(PATTERN_SRUN, line, strlen(line), part) == LINE_LAUNCH_FAILED)
		read_launch_failure(flight, part[2].text);
	srun_parse_messages(&flight->said, -1, line, strlen(line), 0);
	srun_parse_messages(&flight->said, -1, "\n", 1, 0);
	for (; count < flight->said.count; count++) {
		const struct srun_task *task = &flight->said.task[count];
		int node = find_node(flight, task->node);

		if (node < 0)
			continue;
		snprintf(flight->peer[node].ended, sizeof(flight->peer[node].ended),
			 task->how == FACTS_EXIT     ? "ddp-info ended with exit status %d"
			 : task->how == FACTS_SIGNAL ? "ddp-info was ended by signal %d"
						     : "ddp-info was killed for lack of memory",
			 task->code);
	}
	if (strncmp(line, "srun: error: ", strlen("srun: error: ")) == 0)
		snprintf(flight->why, sizeof(flight->why), "%s", line);
}

static void read_lines(struct flight *flight)
{
	char buffer[16384], *end;
	ssize_t n = read(flight->from, buffer, sizeof(buffer));
	size_t used = 0;

	if (n <= 0) {
		flight->ended = true;
		return;
	}
	ddp_text_put(&flight->input, buffer, (size_t)n);
	while (flight->input.size > used &&
	       (end = memchr(flight->input.data + used, '\n', flight->input.size - used))) {
		char *line = flight->input.data + used;

		*end = '\0';
		if (strncmp(line, "ddp-preflight\t", strlen("ddp-preflight\t")) == 0)
			read_node_line(flight, line);
		else
			read_srun_line(flight, line);
		used = (size_t)(end - flight->input.data) + 1;
	}
	memmove(flight->input.data, flight->input.data + used, flight->input.size - used);
	flight->input.size -= used;
}

/* --- The time of a run --------------------------------------------------------------------- */

/*
 * Whether the run is over: each process has ended early, or its time has passed. The time of a
 * process begins with its first line.
 */
static bool is_over(const struct flight *flight)
{
	double time = flight->seconds + ANSWER_MORE;

	if (flight->begun < 0)
		return flight->awake > flight->started + RUNS * time;
	for (size_t i = 0; i < flight->results.nodes->count; i++) {
		const struct peer *peer = &flight->peer[i];
		double begun = peer->rank < 0 ? flight->begun : peer->heard_at;

		if (peer->in_run && !*peer->ended && flight->awake <= begun + time)
			return false;
	}
	return true;
}

static void *run_probe(void *data)
{
	struct probe *probe = data;

	nodes_probe(&probe->nodes, job.id, "0", false, probe->limit, &probe->answers);
	return NULL;
}

static void free_probe(struct flight *flight)
{
	if (flight->probe) {
		nodes_free(&flight->probe->nodes);
		nodes_answers_free(&flight->probe->answers);
	}
	free(flight->probe);
	flight->probe = NULL;
}

/*
 * Start a separate step on each node that has written no line. For the run's own step, Slurm may
 * forward the request through another node, which may hang. These steps are started directly.
 */
static void start_probe(struct flight *flight)
{
	struct probe *probe = ddp_xcalloc(1, sizeof(*probe), "a probe of nodes");

	flight->probe = probe;
	probe->limit = flight->seconds * (1 - PROBE_AT);
	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (flight->peer[i].in_run && flight->peer[i].rank < 0)
			nodes_add(&probe->nodes, flight->results.nodes->name[i]);
	if (probe->nodes.count == 0 || pthread_create(&probe->thread, NULL, run_probe, probe) != 0)
		free_probe(flight);
}

/*
 * Wait for the end of the probe. If srun has named a node that it cannot reach, or if ddp-run must
 * end, do not wait: the thread continues on its own.
 */
static void await_probe(struct flight *flight)
{
	while (flight->probe && pthread_tryjoin_np(flight->probe->thread, NULL) == EBUSY) {
		if (flight->aborted || attempt_end_requested())
			flight->probe = NULL;
		usleep(20000);
	}
}

static void read_clock(struct flight *flight)
{
	flight->awake = (double)ddp_watch_now(&flight->clock) * 1e-9;
}

/* Read lines until the run is over, srun exits, or ddp-run must end. */
static void read_run(struct flight *flight)
{
	bool probed = false;

	while (!flight->ended && !flight->aborted && !attempt_end_requested()) {
		struct pollfd wait = {.fd = flight->from, .events = POLLIN};
		int ready = poll(&wait, 1, (int)(TURN * 1000));

		read_clock(flight);
		if (ready > 0) {
			read_lines(flight);
			continue;
		}
		if (is_over(flight))
			return;
		if (probed || flight->begun < 0 ||
		    flight->awake < flight->begun + flight->seconds * PROBE_AT)
			continue;
		probed = true;
		start_probe(flight);
	}
}

/* --- Judgement ----------------------------------------------------------------------------- */

static void judge(struct flight *flight)
{
	struct preflight_results *results = &flight->results;

	preflight_judge(results->rows, results->count, (int)results->nodes->count, results->slow,
			results->verdicts);
	for (size_t i = 0; i < results->nodes->count; i++)
		if (flight->peer[i].is_untested && results->verdicts[i] < PREFLIGHT_UNTESTED)
			results->verdicts[i] = PREFLIGHT_UNTESTED;
}

/* Judge a node whose process has written no line. */
static void judge_absent(struct flight *flight, int node)
{
	const struct node_list *silent = flight->probe ? &flight->probe->answers.silent : NULL;
	struct peer *peer = &flight->peer[node];

	peer->absent++;
	if (*peer->ended)
		add_failed(flight, node, "start", PREFLIGHT_FAILED, peer->ended);
	else if (silent && nodes_have(silent, flight->results.nodes->name[node]))
		add_failed(flight, node, "start", PREFLIGHT_SILENT, "no step starts on this node");
	/* A node that answers the probe may be healthy: a silent node can have hidden it. */
	else if (peer->absent > 1 && (!silent || silent->count == 0))
		add_failed(flight, node, "start", PREFLIGHT_SILENT,
			   "no process of the tests starts on this node");
}

/* Judge the nodes of a run that is over. Returns false if there is no verdict. */
static bool judge_run(struct flight *flight)
{
	struct preflight_results *results = &flight->results;
	int count = (int)results->nodes->count;
	bool has_any_ended = flight->aborted;

	for (int i = 0; i < count; i++)
		has_any_ended |= flight->seen[i].has_ended;
	if (!has_any_ended || flight->said.cancelled || flight->said.broken ||
	    attempt_end_requested())
		return false;
	for (int i = 0; i < count; i++) {
		struct peer *peer = &flight->peer[i];
		struct preflight_row *clock;
		int rank = peer->rank;

		if (!peer->in_run)
			continue;
		/* If srun ended the step, the nodes' processes were ended during their tests. */
		peer->is_untested = flight->aborted || rank < 0;
		if (flight->aborted)
			continue;
		if (rank < 0) {
			judge_absent(flight, i);
			continue;
		}
		clock = find_row(flight, i, -1, PREFLIGHT_CLOCK, "", "");
		clock->value = peer->clock;
		snprintf(clock->unit, sizeof(clock->unit), "s");
		if (!flight->seen[rank].has_ended && *peer->ended)
			add_failed(flight, i, "tests", PREFLIGHT_FAILED, peer->ended);
		else if (!flight->seen[rank].has_ended)
			add_failed(flight, i, "tests", PREFLIGHT_SILENT,
				   ddp_show("no answer in %.0f s after test %s", flight->seconds,
					    peer->last)
					   .text);
		else if (flight->rounds_wanted > 0 && !*results->untested[0])
			peer->is_untested = preflight_is_blocked(flight->seen, count, rank);
	}
	if (flight->rounds >= results->rounds) {
		results->rounds = flight->rounds;
		results->rounds_wanted = flight->rounds_wanted;
	}
	judge(flight);
	return true;
}

/* --- The nodes of a run -------------------------------------------------------------------- */

/*
 * Whether [row] is a reason to test its nodes again. A node that reports its own fault is not
 * tested again.
 */
static bool is_doubtful(const struct flight *flight, const struct preflight_row *row)
{
	if (row->verdict < PREFLIGHT_SLOW)
		return false;
	if (row->partner < 0)
		return row->is_rate || strcmp(row->test, PREFLIGHT_CLOCK) == 0;
	return !row->is_shared && !is_out(flight, row->node) && !is_out(flight, row->partner);
}

/*
 * Choose the nodes of the next run. The first run has all nodes. The second run has the nodes whose
 * verdict is in doubt, and healthy partners: as many as these nodes, but at least two. Returns
 * false if there is no node to test.
 */
static bool choose_nodes(struct flight *flight)
{
	int count = (int)flight->results.nodes->count, chosen = 0, partners, left = 0;

	for (int i = 0; i < count; i++)
		flight->peer[i].in_run = flight->run == 0 || flight->peer[i].is_untested;
	for (size_t i = 0; i < flight->results.count; i++) {
		const struct preflight_row *row = &flight->results.rows[i];

		if (!is_doubtful(flight, row))
			continue;
		flight->peer[row->node].in_run = true;
		if (row->partner >= 0)
			flight->peer[row->partner].in_run = true;
	}
	for (int i = 0; i < count; i++) {
		flight->peer[i].in_run &= !is_out(flight, i);
		chosen += flight->peer[i].in_run;
		left += !is_out(flight, i);
	}
	partners = chosen > 2 ? chosen : 2;
	for (int i = 0; i < count && chosen > 0 && partners > 0; i++)
		if (!flight->peer[i].in_run && flight->results.verdicts[i] == PREFLIGHT_OK &&
		    !is_out(flight, i)) {
			flight->peer[i].in_run = true;
			chosen++;
			partners--;
		}
	flight->is_whole = chosen == left;
	return chosen > 0;
}

/* Prepare the next run with the chosen nodes. */
static void begin_run(struct flight *flight)
{
	flight->run++;
	flight->ended = flight->aborted = false;
	flight->begun = -1;
	read_clock(flight);
	flight->started = flight->awake;
	flight->rounds = flight->rounds_wanted = 0;
	ddp_text_clear(&flight->input);
	srun_said_free(&flight->said);
	free_probe(flight);
	if (*flight->dir)
		attempt_discard(flight->dir);
	flight->dir[0] = flight->meet[0] = '\0';
	for (size_t i = 0; i < flight->results.nodes->count; i++) {
		struct peer *peer = &flight->peer[i];

		flight->seen[i] = (struct preflight_node){.round = -1, .partner = -1};
		flight->node_of[i] = -1;
		peer->rank = peer->partner = -1;
		peer->clock = -(double)INFINITY;
		peer->ended[0] = '\0';
	}
	for (int i = 0; i < 2 && flight->is_whole; i++)
		flight->results.all[i] = (struct preflight_row){.node = -1,
								.partner = -1,
								.run = flight->run,
								.value = (double)NAN,
								.median = (double)NAN};
}

/* --- srun ---------------------------------------------------------------------------------- */

static void add_option(char **words, size_t *count, const char *name, const char *value)
{
	char *word;

	if (value && asprintf(&word, "--%s=%s", name, value) >= 0)
		words[(*count)++] = word;
}

/*
 * Add the files that the nodes check: [launch]'s program, and its first argument if that is a file,
 * since the program may be an interpreter. If the program runs in a container, add nothing.
 */
static void add_files(char **words, size_t *count, const struct launch *launch)
{
	char *const *program = &launch->words[launch->program];
	bool elsewhere = launch_option(launch, "chdir", "SLURM_WORKING_DIR") != NULL;
	struct stat status;

	if (!launch->program_name || launch_option(launch, "container", "SLURM_CONTAINER") ||
	    launch_option(launch, "container-image", "SLURM_CONTAINER_IMAGE"))
		return;
	words[(*count)++] = "--";
	words[(*count)++] = program[0];
	if (program[0] && program[1] && (program[1][0] == '/' || !elsewhere) &&
	    stat(program[1], &status) == 0 && S_ISREG(status.st_mode))
		words[(*count)++] = program[1];
}

/* Returns the directory that the user gave for the rendezvous, or NULL. */
static const char *find_base(const struct launch *launch)
{
	return launch_option(launch, "ddp-rdzv", "SLURM_DDP_RDZV");
}

/*
 * Without the plugin, create the directories that the plugin would create. start() passes them to
 * the processes of the tests. ddp-exec cannot create them, because it would wait for all nodes.
 */
static void set_directories(struct flight *flight, char name[64])
{
	const char *base = find_base(flight->launch);
	char here[PATH_MAX / 2] = "", directory[PATH_MAX - 128];
	struct ddp_message message;

	snprintf(name, 64, "preflight-%.32s-%d-%d", job.id, (int)getpid(), flight->run);
	if ((!base || *base != '/') && !getcwd(here, sizeof(here)))
		return;
	if (snprintf(directory, sizeof(directory), "%s%s%s", here, base && *here ? "/" : "",
		     base ? base : "") >= (int)sizeof(directory))
		return;
	if (ddp_rendezvous_make_parent(directory, &message) < 0)
		return;
	snprintf(flight->dir, sizeof(flight->dir), "%s/" DDP_DIR_PARENT "/" DDP_DIR_FAILED "%s",
		 directory, name);
	snprintf(flight->meet, sizeof(flight->meet), "%s/" DDP_DIR_PARENT "/%s", directory, name);
	if (mkdir(flight->meet, 0700) == 0) {
		if (mkdir(flight->dir, 0700) == 0 || errno == EEXIST)
			return;
		(void)rmdir(flight->meet);
	}
	flight->meet[0] = flight->dir[0] = '\0';
}

static char **preflight_words(const struct flight *flight)
{
	char info[PATH_MAX];
	static const char *const fixed[] = {"--overlap",	   "--mpi=none",
					    "--input=none",	   "--cpu-bind=none",
					    "--no-kill",	   "--wait=0",
					    "--export=ALL",	   "--kill-on-bad-exit=0",
					    "--ntasks-per-node=1", ("--job-name=" NODES_STEP)};
	char **words = ddp_xcalloc(40, sizeof(char *), "words of srun");
	struct node_list nodes = {.name = NULL};
	const struct launch *launch = flight->launch;
	bool full = run_options_have_word(&launch->options, RUN_OPTION_PREFLIGHT, "full");
	const char *number;
	size_t count = 0;

	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (flight->peer[i].in_run)
			nodes_add(&nodes, flight->results.nodes->name[i]);
	number = ddp_xstrdup(ddp_show("%zu", nodes.count).text, "words of srun");

	words[count++] = "srun";
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		words[count++] = (char *)fixed[i];
	add_option(words, &count, "jobid", job.id);
	add_option(words, &count, "nodes", number);
	add_option(words, &count, "ntasks", number);
	add_option(words, &count, "nodelist", nodes_joined(&nodes));
	nodes_free(&nodes);
	if (!launch->exec[0]) {
		words[count++] = "--ddp";
		add_option(words, &count, "ddp-rdzv", find_base(launch));
	}
	add_option(words, &count, "chdir", launch_option(launch, "chdir", "SLURM_WORKING_DIR"));
	(void)nodes_find_beside("ddp-info", info, sizeof(info));
	words[count++] = ddp_xstrdup(info, "words of srun");
	add_option(words, &count, "preflight",
		   ddp_show("%.1f%s%s", flight->seconds, full ? ",full" : "",
			    flight->run > 1 ? ",again" : "")
			   .text);
	add_files(words, &count, launch);
	return words;
}

static bool start(struct flight *flight)
{
	int out[2], step[2];
	char name[64];
	pid_t parent = getpid();
	char **words = preflight_words(flight);

	if (pipe2(out, O_CLOEXEC) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, step) < 0)
		return false;
	if (flight->launch->exec[0])
		set_directories(flight, name);
	flight->srun = fork();
	if (flight->srun == 0) {
		attempt_prepare_child(parent);
		nodes_drop_requests();
		if (*flight->meet) {
			setenv(DDP_NAME(DDP_JOB), name, 1);
			setenv(DDP_NAME(DDP_RENDEZVOUS), flight->meet, 1);
		}
		setenv(DDP_RUN_RESTART, "0", 1);
		setenv(DDP_RUN_RESTARTS_MAX, "0", 1);
		setenv(DDP_RUN_ID, job.id, 1);
		setenv(DDP_RUN_FD, ddp_show("%d", step[1]).text, 1);
		fcntl(step[1], F_SETFD, 0);
		dup2(out[1], STDOUT_FILENO);
		dup2(out[1], STDERR_FILENO);
		execvp(words[0], words);
		fprintf(stderr, "srun: error: cannot start srun: %s\n", strerror(errno));
		_exit(127);
	}
	close(out[1]);
	close(step[1]);
	flight->from = out[0];
	flight->step_fd = step[0];
	return flight->srun > 0;
}

/* Wait up to [seconds] for srun to exit, and discard its output. */
static bool has_exited(struct flight *flight, double seconds)
{
	double end = ddp_seconds() + seconds;
	char buffer[4096];

	while (waitpid(flight->srun, NULL, WNOHANG) == 0) {
		struct pollfd wait = {.fd = flight->from, .events = POLLIN};

		if (ddp_seconds() > end)
			return false;
		if (poll(&wait, 1, 20) > 0 && read(flight->from, buffer, sizeof(buffer)) <= 0)
			usleep(20000);
	}
	return true;
}

/*
 * Wait for srun to exit, or end it, and read the plugin's message about the step (contract.h).
 * Returns whether srun was ended, so that Slurm may still consider the step as running.
 */
static bool stop(struct flight *flight)
{
	bool left = !has_exited(flight, flight->ended ? LEAVE : 0);
	char message[2 * PATH_MAX + 128];
	ssize_t n;

	/* On SIGTERM srun ends the step. */
	if (left && kill(flight->srun, SIGTERM) == 0 && !has_exited(flight, LEAVE)) {
		kill(flight->srun, SIGKILL);
		(void)waitpid(flight->srun, NULL, 0);
	}
	n = recv(flight->step_fd, message, sizeof(message) - 1, MSG_DONTWAIT);
	message[n > 0 ? n : 0] = '\0';
	(void)sscanf(message, "job %*s step %*s failed %4095[^\n]", flight->dir);
	close(flight->from);
	close(flight->step_fd);
	if (*flight->meet)
		attempt_discard(flight->meet);
	return left;
}

/* --- A preflight --------------------------------------------------------------------------- */

/* Add a failed row for each node in [gone]. */
static void set_gone(struct flight *flight, const struct node_list *gone)
{
	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (nodes_have(gone, flight->results.nodes->name[i]))
			add_failed(flight, (int)i, "start", PREFLIGHT_FAILED,
				   "Slurm says that this node is down or does not respond");
	judge(flight);
}

/* Returns the time for one run, without the time in which the last lines arrive. */
static double find_seconds(const struct launch *launch, int nodes)
{
	bool full = run_options_have_word(&launch->options, RUN_OPTION_PREFLIGHT, "full");
	double limit = launch->options.number[RUN_OPTION_PREFLIGHT_LIMIT];

	if (limit <= 0)
		limit = TOTAL + (full ? ROUND_MORE * nodes : 0);
	return limit / RUNS - ANSWER_MORE;
}

/* Run the tests, and those in doubt once more. Returns false if there is no verdict. */
static bool run_tests(struct flight *flight)
{
	int runs = 0;
	bool has_verdict = true;

	flight->clock = ddp_watch_start(RUNS * (flight->seconds + ANSWER_MORE), NULL, NULL);
	while (has_verdict && runs < RUNS && ddp_watch_check(&flight->clock, NULL) == 0 &&
	       choose_nodes(flight)) {
		begin_run(flight);
		if (!start(flight)) {
			snprintf(flight->why, sizeof(flight->why), "cannot start srun: %s",
				 strerror(errno));
			return false;
		}
		read_run(flight);
		await_probe(flight);
		flight->launch->overlap |= stop(flight) || flight->aborted;
		has_verdict = judge_run(flight);
		runs += !flight->aborted;
	}
	return has_verdict;
}

bool preflight_check(void)
{
	char info[PATH_MAX] = "ddp-info";

	if (nodes_find_beside("ddp-info", info, sizeof(info)) && access(info, X_OK) == 0)
		return true;
	fprintf(stderr,
		"ddp-run: cannot run %s for --preflight. Install ddp-info beside ddp-run.\n", info);
	return false;
}

static void free_flight(struct flight *flight)
{
	free(flight->peer);
	free(flight->seen);
	free(flight->node_of);
	free(flight->results.verdicts);
	free(flight->results.rows);
	ddp_text_free(&flight->input);
	srun_said_free(&flight->said);
	free_probe(flight);
}

void preflight_run(struct launch *launch, const struct node_list *nodes,
		   const struct node_list *gone, const char *dir)
{
	bool strict = run_options_have_word(&launch->options, RUN_OPTION_PREFLIGHT, "strict");
	struct flight flight = {
		.launch = launch,
		.results = {.nodes = nodes,
			    .slow = launch->options.number[RUN_OPTION_PREFLIGHT_SLOW]},
		.seconds = find_seconds(launch, (int)nodes->count)};
	enum preflight_verdict failed = strict ? PREFLIGHT_SLOW : PREFLIGHT_FAILED;
	double started = ddp_seconds();
	bool keep = false;

	flight.peer = ddp_xcalloc(nodes->count, sizeof(*flight.peer), "nodes");
	flight.seen = ddp_xcalloc(nodes->count, sizeof(*flight.seen), "nodes");
	for (size_t i = 0; i < nodes->count; i++)
		flight.peer[i].rows = SIZE_MAX;
	flight.node_of = ddp_xcalloc(nodes->count, sizeof(*flight.node_of), "nodes");
	flight.results.verdicts =
		ddp_xcalloc(nodes->count, sizeof(*flight.results.verdicts), "nodes");
	set_gone(&flight, gone);
	if (run_tests(&flight)) {
		flight.results.took = ddp_seconds() - started;
		keep = preflight_report(&flight.results, dir && *dir ? dir : flight.dir);
		for (size_t i = 0; i < nodes->count; i++)
			if (flight.results.verdicts[i] >= failed)
				nodes_add(&launch->failed, nodes->name[i]);
			else if (flight.results.verdicts[i] == PREFLIGHT_SLOW)
				nodes_add(&launch->avoid, nodes->name[i]);
	} else {
		nodes_add_all(&launch->failed, gone);
		fprintf(stderr,
			"ddp-run: the tests of --preflight did not run to their end%s%s%s\n",
			*flight.why ? ": " : "", flight.why,
			dir || attempt_end_requested() ? "" : ". The program starts without them.");
	}
	if (*flight.dir && keep && !(dir && *dir))
		fprintf(stderr, "ddp-run: all results are in %s\n", flight.dir);
	else if (*flight.dir)
		attempt_discard(flight.dir);
	free_flight(&flight);
}
