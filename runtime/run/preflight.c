/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight.c - run ddp-info --preflight on nodes, control it, and judge its results
 *
 * One step of Slurm runs one process on each node. ddp-run sends commands to all of them through
 * srun's stdin and reads their results from srun's stdout; info/node-tests.h has the protocol. Each
 * phase ends when all nodes have answered, or at its limit:
 *
 *  1. start    Each process prints its node's name. The time limit counts from the first one. If srun cannot start a process, it ends
 *              the step; the tests then begin again without that node.
 *  2. node     Tests of the node. If a value is slow, they are repeated on that node alone.
 *  3. pairs    Rounds of pairs. A node that has failed takes no further part. Slow pairs are repeated.
 *  4. all      One all-reduce of the remaining nodes.
 */
#include "config.h"

#include "ddp-run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
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
#include "facts.h"
#include "preflight-report.h"
#include "srun-output.h"

/* Times, in seconds. */
#define TURN 0.2	    /* interval between turns of the loop */
#define TOTAL 30.0	    /* time limit for all tests */
#define ROUND_MORE 2.0	    /* added to the time limit for each round of --preflight=full */
#define ANSWER_MORE 3.0	    /* added to the limit of a test, until the answer must arrive */
#define LEFT_LEAST 3.0	    /* minimum time for another round */
#define LEFT_LEAST_GPU 12.0 /* with GPUs, whose test gets a third of it, and NCCL starts slowly */
#define LEAVE 3.0	    /* wait for srun to exit */
#define ENDED_MORE 1.0	  /* wait for srun to report further ended processes, after one has ended */
#define STATES_LIMIT 10.0 /* time limit for Slurm to report the states of nodes */

enum {
	FIELDS = 8,	  /* fields of a line of a node */
	SHARED_TESTS = 3, /* rows of shared_tests */
	REPEATS = 4,	  /* repetitions of the tests of slow nodes */
	PAIR_REPEATS = 16 /* number of rounds with slow pairs only */
};

struct peer {
	int rank;	 /* rank of the node's process; -1: not started */
	int done;	 /* last phase that the node completed; -1: none */
	char gone[160];	 /* why no process is started on the node; "": a process is started */
	char ended[96];	 /* how the process ended before srun's input did; "": it has not ended */
	bool asked;	 /* the node takes part in the current phase */
	bool unanswered; /* the node did not answer in time, or its process ended */
	char begun[24];	 /* last test that the node began in this phase */
	double heard_at; /* time of the node's last line, as in ddp_seconds() */
};

struct flight {
	struct launch *launch;
	struct preflight_results results;
	size_t capacity;
	struct peer *peer; /* one for each node */
	int *partners;	   /* partner of each node in this phase; -1: none */
	int *node_of;	   /* node of each rank; -1: unknown */

	pid_t srun;
	int to, from, step_fd; /* srun's stdin, srun's output, the pipe for the plugin's message */
	struct ddp_text input;
	bool ended;	/* srun has closed its output */
	bool aborted;	/* srun could not start a process, and ends the step */
	bool stopping;	/* ddp-run is ending the step */
	bool cut_short; /* too little time was left to begin again */
	bool shared; /* all nodes have the same error, so other results count only if a node has failed */
	bool dropped[SHARED_TESTS]; /* tests of shared_tests that failed alike on all nodes */
	char dir[PATH_MAX];	    /* failure directory; "": none */
	char meet[PATH_MAX];	    /* without the plugin: rendezvous directory */
	char why[256];		    /* srun's last error */
	struct srun_said said;
	size_t first_repeated; /* index of the row that was repeated last */
	bool has_gpu_sums;     /* rounds include tests of GPUs */

	int phase;
	size_t phase_rows;		/* number of rows before the phase */
	double phase_time, phase_limit; /* phase_limit: time limit of each test */
	double limit, end; /* time limit and end of all tests; [end] as in ddp_seconds() */
};

static bool is_strict(const struct launch *launch)
{
	return run_options_have_word(&launch->options, RUN_OPTION_PREFLIGHT, "strict");
}

/* --- Rows ---------------------------------------------------------------------------------- */

static struct preflight_row *add_row(struct flight *flight, int node, int partner, const char *test)
{
	struct preflight_row *row;

	if (flight->results.count == flight->capacity) {
		size_t capacity = 2 * flight->capacity + 64;
		struct preflight_row *rows = ddp_xcalloc(capacity, sizeof(*rows), "results");

		memcpy(rows, flight->results.rows, flight->results.count * sizeof(*rows));
		free(flight->results.rows);
		flight->results.rows = rows;
		flight->capacity = capacity;
	}
	row = &flight->results.rows[flight->results.count++];
	*row = (struct preflight_row){.node = node, .partner = partner, .value = (double)NAN};
	snprintf(row->test, sizeof(row->test), "%s", test);
	return row;
}

/* Whether both texts are about the same GPU or file, whose name precedes a colon. */
static bool is_same_item(const char *a, const char *b)
{
	size_t length = strcspn(a, ":");

	return length == strcspn(b, ":") && strncmp(a, b, length) == 0;
}

/*
 * Returns the row for a result. If neither this phase nor a phase that it repeats has the row, adds
 * it.
 */
static struct preflight_row *find_row(struct flight *flight, int node, int partner,
				      char *const field[5])
{
	bool gpu = strncmp(field[4], "GPU ", 4) == 0; /* each GPU has its own rows */
	int low = partner >= 0 && partner < node ? partner : node,
	    high = partner < node ? node : partner;

	for (size_t i = flight->phase_rows; i < flight->results.count; i++) {
		struct preflight_row *row = &flight->results.rows[i];

		if (row->node == low && row->partner == (partner < 0 ? -1 : high) &&
		    strcmp(row->test, field[0]) == 0 && strcmp(row->kind, field[1]) == 0 &&
		    (!gpu || is_same_item(row->text, field[4])))
			return row;
	}
	return add_row(flight, low, partner < 0 ? -1 : high, field[0]);
}

static void set_silent(struct flight *flight, struct preflight_row *row)
{
	row->verdict = PREFLIGHT_SILENT;
	row->value = (double)NAN;
	snprintf(row->text, sizeof(row->text), "no answer in %.0f s", flight->phase_limit);
}

/* Add a row for node [node], which has not answered in [test] and takes no further part. */
static void add_unanswered(struct flight *flight, int node, const char *test)
{
	struct preflight_row *row = add_row(flight, node, -1, test);
	struct peer *peer = &flight->peer[node];

	set_silent(flight, row);
	if (*peer->ended) {
		row->verdict = PREFLIGHT_FAILED;
		snprintf(row->text, sizeof(row->text), "%s", peer->ended);
	}
	peer->unanswered = true;
}

/*
 * Set the offset of a node's clock, and its upper bound: the time at which the node received the
 * command minus the time in the command. The lower bound is the time in the node's answer minus the
 * time at which the answer arrived here.
 */
static void set_clock(const struct flight *flight, struct preflight_row *row)
{
	double low = row->value + flight->phase_time - ddp_date(NULL);

	row->most = row->value;
	row->value = (low + row->most) / 2;
}

/* --- Lines of nodes ------------------------------------------------------------------------ */

static enum preflight_verdict read_event(const char *event)
{
	return strcmp(event, "slow") == 0     ? PREFLIGHT_SLOW
	       : strcmp(event, "failed") == 0 ? PREFLIGHT_FAILED
	       : strcmp(event, "silent") == 0 ? PREFLIGHT_SILENT
					      : PREFLIGHT_OK;
}

/*
 * Store a result in [row]. [field] has the test, kind, value, unit and text. If [row] has a result,
 * keep the worse one, or the better one of two rates.
 */
static void read_result(struct flight *flight, struct preflight_row *row, const char *event,
			char *const field[5])
{
	enum preflight_verdict verdict = read_event(event);
	double value = *field[2] ? strtod(field[2], NULL) : (double)NAN;
	bool is_rate = strcmp(event, "rate") == 0;

	if (verdict < row->verdict && !(is_rate && row->is_rate))
		return;
	/* The process of a repeated test may have had too little time. */
	if (verdict == PREFLIGHT_SILENT && row->is_rate && !isnan(row->value))
		return;
	if (is_rate && row->is_rate && value < row->value)
		return;
	row->verdict = verdict;
	row->is_rate = is_rate;
	row->value = value;
	row->most = is_rate && row->partner >= 0 ? strtod(field[4], NULL) : 0;
	snprintf(row->kind, sizeof(row->kind), "%s", field[1]);
	snprintf(row->unit, sizeof(row->unit), "%s", field[3]);
	snprintf(row->text, sizeof(row->text), "%s", field[4]);
	if (verdict == PREFLIGHT_SILENT)
		set_silent(flight, row);
	if (strcmp(row->test, PREFLIGHT_CLOCK) == 0)
		set_clock(flight, row);
}

/*
 * Tests that may fail on all nodes for the same reason, and the cause that the report then gives.
 */
static const struct {
	const char *test, *of;
} shared_tests[SHARED_TESTS] = {{"program", "the command"},
				{"directory", "the directory"},
				{"GPU sum", "NCCL or its settings"}};

static int find_shared(const char *test)
{
	for (int i = 0; i < SHARED_TESTS; i++)
		if (strcmp(test, shared_tests[i].test) == 0)
			return i;
	return -1;
}

static void read_test(struct flight *flight, int node, const char *event, char *const field[5])
{
	bool is_gpu = strncmp(field[0], "GPU ", 4) == 0;
	bool is_pair =
		strcmp(field[0], PREFLIGHT_PAIR) == 0 || strcmp(field[0], PREFLIGHT_GPU_PAIR) == 0;
	int partner = is_pair ? flight->partners[node] : -1;
	int shared = find_shared(field[0]);
	struct preflight_row *all;

	if (shared >= 0 && flight->dropped[shared])
		return;
	flight->has_gpu_sums |= is_gpu && (is_pair || strcmp(field[0], "GPU sum") == 0) &&
				strcmp(event, "untested") != 0;
	if (strcmp(event, "untested") == 0) {
		snprintf(flight->results.untested[is_gpu], sizeof(flight->results.untested[0]),
			 "%s", field[4]);
	} else if (strcmp(field[0], is_gpu ? "GPU all" : "all") == 0) {
		all = &flight->results.all[is_gpu];
		snprintf(all->test, sizeof(all->test), "%s", field[0]);
		read_result(flight, all, event, field);
	} else if (!is_pair || partner >= 0) {
		read_result(flight, find_row(flight, node, partner, field), event, field);
	}
}

static int find_node(const struct flight *flight, const char *name)
{
	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (strcmp(flight->results.nodes->name[i], name) == 0)
			return (int)i;
	return -1;
}

/* Parse a message such as "n5: Communication connection failure". */
static void read_launch_failure(struct flight *flight, const char *text)
{
	char name[FACTS_NAME];
	size_t length = strcspn(text, ":");
	int node;

	snprintf(name, sizeof(name), "%.*s", (int)length, text);
	node = find_node(flight, name);
	if (node < 0)
		return;
	snprintf(flight->peer[node].gone, sizeof(flight->peer[node].gone),
		 "srun cannot start a process%s", text + length);
	flight->aborted = !flight->stopping;
}

/* A process that ended before srun's input did counts as failed. */
static void read_ended(struct flight *flight, const struct srun_task *task)
{
	int node = find_node(flight, task->node);

	if (node < 0 || flight->stopping)
		return;
	snprintf(flight->peer[node].ended, sizeof(flight->peer[node].ended),
		 task->how == FACTS_EXIT     ? "ddp-info ended with exit status %d"
		 : task->how == FACTS_SIGNAL ? "ddp-info was ended by signal %d"
					     : "ddp-info was killed for lack of memory",
		 task->code);
}

static void read_srun_line(struct flight *flight, const char *line)
{
	struct pattern_part part[PATTERN_PARTS];
	size_t count = flight->said.count;

	if (pattern_find(PATTERN_SRUN, line, strlen(line), part) == LINE_LAUNCH_FAILED)
		read_launch_failure(flight, part[2].text);
	srun_parse_messages(&flight->said, -1, line, strlen(line), 0);
	srun_parse_messages(&flight->said, -1, "\n", 1, 0);
	for (; count < flight->said.count; count++)
		read_ended(flight, &flight->said.task[count]);
	if (strncmp(line, "srun: error: ", strlen("srun: error: ")) == 0)
		snprintf(flight->why, sizeof(flight->why), "%s", line);
}

static void read_line(struct flight *flight, char *line)
{
	char *field[FIELDS], *rest = line;
	int count = 0, rank, node;

	if (strncmp(line, "ddp-preflight\t", strlen("ddp-preflight\t")) != 0) {
		read_srun_line(flight, line);
		return;
	}
	while (count < FIELDS && (field[count] = strsep(&rest, "\t")))
		count++;
	rank = count == FIELDS ? atoi(field[1]) : -1;
	if (rank < 0 || rank >= (int)flight->results.nodes->count)
		return;
	if (strcmp(field[2], "hello") == 0 && (node = find_node(flight, field[7])) >= 0) {
		flight->node_of[rank] = node;
		flight->peer[node].rank = rank;
	}
	node = flight->node_of[rank];
	if (node < 0)
		return;
	flight->peer[node].heard_at = ddp_seconds();
	if (strcmp(field[2], "hello") == 0)
		return;
	if (strcmp(field[2], "done") == 0)
		flight->peer[node].done = atoi(field[5]);
	else if (strcmp(field[2], "begin") == 0)
		snprintf(flight->peer[node].begun, sizeof(flight->peer[node].begun), "%s",
			 field[3]);
	else if (flight->peer[node].asked) /* not a late result of an earlier phase */
		read_test(flight, node, field[2], field + 3);
}

static void read_lines(struct flight *flight)
{
	char buffer[16384], *end;
	ssize_t n = read(flight->from, buffer, sizeof(buffer));

	if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
		flight->ended = true;
	if (n <= 0)
		return;
	ddp_text_put(&flight->input, buffer, (size_t)n);
	while (flight->input.size > 0 &&
	       (end = memchr(flight->input.data, '\n', flight->input.size))) {
		size_t used = (size_t)(end - flight->input.data) + 1;

		*end = '\0';
		read_line(flight, flight->input.data);
		memmove(flight->input.data, end + 1, flight->input.size - used);
		flight->input.size -= used;
	}
}

/* Read the plugin's message about the step; see contract.h. */
static void read_step(struct flight *flight)
{
	char message[2 * PATH_MAX + 128];
	ssize_t n = read(flight->step_fd, message, sizeof(message) - 1);

	close(flight->step_fd);
	flight->step_fd = -1;
	if (n <= 0)
		return;
	message[n] = '\0';
	(void)sscanf(message, "job %*s step %*s failed %4095[^\n]", flight->dir);
}

/* --- Phases -------------------------------------------------------------------------------- */

static bool has_any_started(const struct flight *flight)
{
	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (flight->peer[i].rank >= 0)
			return true;
	return false;
}

static bool has_started(const struct flight *flight)
{
	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (flight->peer[i].rank < 0 && !*flight->peer[i].gone && !*flight->peer[i].ended)
			return false;
	return true;
}

/* Whether the process of a node that takes part in this phase has ended. */
static bool has_any_ended(const struct flight *flight)
{
	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (flight->peer[i].asked && *flight->peer[i].ended)
			return true;
	return false;
}

/*
 * Whether all processes have ended. If so, Slurm ended the step, which says nothing about the
 * nodes.
 */
static bool has_step_ended(const struct flight *flight)
{
	for (size_t i = 0; i < flight->results.nodes->count; i++) {
		const struct peer *peer = &flight->peer[i];

		if (peer->rank >= 0 && !peer->unanswered && !*peer->ended)
			return false;
	}
	return true;
}

/* Whether the node has exceeded the limit of a test since its last line. */
static bool is_late(const struct flight *flight, const struct peer *peer)
{
	return peer->heard_at <= ddp_seconds() - flight->phase_limit - ANSWER_MORE;
}

/*
 * Whether all nodes of this phase, more than [least], have stopped answering. That is a suspended
 * job, or an srun or ddp-run that was stopped, and says nothing about the nodes.
 */
static bool is_suspended(const struct flight *flight, int least)
{
	int asked = 0;

	for (size_t i = 0; i < flight->results.nodes->count; i++) {
		const struct peer *peer = &flight->peer[i];

		if (peer->asked &&
		    (peer->done >= flight->phase || !is_late(flight, peer) || *peer->ended))
			return false;
		asked += peer->asked;
	}
	return asked > least;
}

/*
 * Whether each node that takes part in this phase has completed it, or has exceeded the limit of a
 * test.
 */
static bool is_done(const struct flight *flight)
{
	for (size_t i = 0; i < flight->results.nodes->count; i++) {
		const struct peer *peer = &flight->peer[i];

		if (peer->asked && peer->done < flight->phase && !is_late(flight, peer) &&
		    !*peer->ended)
			return false;
	}
	return true;
}

/*
 * Read lines until [is_reached] returns true, srun ends, ddp-run is requested to end, or [seconds]
 * have passed.
 */
static void wait_for(struct flight *flight, double seconds,
		     bool (*is_reached)(const struct flight *flight))
{
	double end = ddp_seconds() + seconds;

	while (!flight->ended && !flight->aborted && !is_reached(flight) && ddp_seconds() < end &&
	       !attempt_end_requested()) {
		struct pollfd wait[] = {{.fd = flight->from, .events = POLLIN},
					{.fd = flight->step_fd, .events = POLLIN}};

		if (poll(wait, 2, (int)(TURN * 1000)) <= 0)
			continue;
		if (wait[1].revents)
			read_step(flight);
		if (wait[0].revents)
			read_lines(flight);
	}
}

static double left_s(const struct flight *flight)
{
	return flight->end - ddp_seconds();
}

static bool can_go_on(const struct flight *flight)
{
	return left_s(flight) > (flight->has_gpu_sums ? LEFT_LEAST_GPU : LEFT_LEAST) &&
	       !flight->ended && !flight->aborted && !attempt_end_requested();
}

static void judge(struct flight *flight)
{
	preflight_judge(flight->results.rows, flight->results.count,
			(int)flight->results.nodes->count,
			flight->launch->options.number[RUN_OPTION_PREFLIGHT_SLOW],
			flight->results.verdicts);
}

/* Whether [node] takes no part in the next phase. A node that failed may later prove to be good. */
static bool is_out(const struct flight *flight, int node)
{
	const struct peer *peer = &flight->peer[node];

	return *peer->gone || peer->unanswered ||
	       flight->results.verdicts[node] >= PREFLIGHT_FAILED;
}

/*
 * Run a phase. [entries] are the numbers in the command, one for each node; a node with -1 takes no
 * part. With [repeated] the results are compared with those of all earlier phases. If srun is
 * stopped and its stdin is full, the command is lost, and no node answers.
 */
static void run_phase(struct flight *flight, const char *word, const int *entries, bool repeated)
{
	struct ddp_text command = {.data = NULL};
	bool is_last = strcmp(word, "all") == 0;
	int unfinished = 0;

	flight->phase++;
	flight->phase_rows = repeated ? 0 : flight->results.count;
	flight->phase_limit = fmax(fmin(flight->limit / 3, left_s(flight) / (is_last ? 2 : 3)), 1);
	flight->phase_time = ddp_date(NULL);
	for (size_t i = 0; i < flight->results.nodes->count; i++) {
		flight->peer[i].asked = entries[i] >= 0;
		flight->peer[i].heard_at = ddp_seconds();
		flight->peer[i].begun[0] = '\0';
	}
	ddp_text_add(&command, "%s %d %.1f %.6f", word, flight->phase, flight->phase_limit,
		     flight->phase_time);
	for (size_t rank = 0; rank < flight->results.nodes->count; rank++)
		ddp_text_add(&command, " %d",
			     flight->node_of[rank] < 0 ? -1 : entries[flight->node_of[rank]]);
	ddp_text_add(&command, "\n");
	if (!command.failed)
		(void)!write(flight->to, command.data, command.size);
	ddp_text_free(&command);
	wait_for(flight, fmax(left_s(flight), flight->phase_limit + ANSWER_MORE), is_done);
	if (has_any_ended(flight)) {
		wait_for(flight, ENDED_MORE, has_step_ended);
		flight->ended |= has_step_ended(flight);
	}
	flight->ended |= is_suspended(flight, strcmp(word, "pair") == 0 ? 2 : 1);
	for (size_t i = 0; i < flight->results.nodes->count && !flight->ended && !flight->aborted;
	     i++) {
		struct peer *peer = &flight->peer[i];

		if (!peer->asked || peer->done >= flight->phase || attempt_end_requested())
			continue;
		/*
		 * A node that still sends lines had too little time, as has a repetition: the node
		 * keeps its verdict, and takes no further part. "all" excludes no node.
		 */
		if (!*peer->ended && (repeated || is_last || !is_late(flight, peer))) {
			peer->unanswered = true;
			unfinished += !repeated && !is_last;
		} else {
			add_unanswered(flight, (int)i, *peer->begun ? peer->begun : word);
		}
	}
	if (unfinished > 0)
		fprintf(stderr,
			"ddp-run: --preflight: %d nodes had too little time for all tests: increase --preflight-limit\n",
			unfinished);
	/* A rate that arrives after the judgement would be reported as ok. */
	for (size_t i = 0; i < flight->results.nodes->count; i++)
		flight->peer[i].asked = false;
	judge(flight);
}

/* Returns the numbers for a command, with -1 for each node. */
static int *new_entries(const struct flight *flight)
{
	int *entries = ddp_xcalloc(flight->results.nodes->count, sizeof(int), "numbers of nodes");

	memset(entries, -1, flight->results.nodes->count * sizeof(int));
	return entries;
}

/* Number all nodes that take part, from 0. Returns the number of these nodes. */
static int number_nodes(const struct flight *flight, int *entries)
{
	int count = 0;

	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (!is_out(flight, (int)i))
			entries[i] = count++;
	return count;
}

static void pair(struct flight *flight, int *entries, int node, int partner)
{
	flight->partners[node] = partner;
	flight->partners[partner] = node;
	entries[node] = flight->peer[partner].rank;
	entries[partner] = flight->peer[node].rank;
}

static void run_round(struct flight *flight, const int *alive, int count, int round)
{
	int *places = ddp_xcalloc((size_t)count, sizeof(int), "places"),
	    *entries = new_entries(flight);

	preflight_pairs(count, round, places);
	for (int i = 0; i < count; i++)
		if (places[i] > i && !is_out(flight, alive[i]) && !is_out(flight, alive[places[i]]))
			pair(flight, entries, alive[i], alive[places[i]]);
	run_phase(flight, "pair", entries, false);
	free(places);
	free(entries);
}

static void run_pairs(struct flight *flight)
{
	const struct run_options *options = &flight->launch->options;
	bool full = run_options_have_word(options, RUN_OPTION_PREFLIGHT, "full");
	int *entries = new_entries(flight), *alive = new_entries(flight);
	int count = number_nodes(flight, entries);

	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (entries[i] >= 0)
			alive[entries[i]] = (int)i;
	flight->results.rounds_wanted = preflight_rounds(count, full);
	if (full && !options->text[RUN_OPTION_PREFLIGHT_LIMIT])
		flight->end += ROUND_MORE * flight->results.rounds_wanted;
	while (flight->results.rounds < flight->results.rounds_wanted && can_go_on(flight) &&
	       !*flight->results.untested[0]) {
		run_round(flight, alive, count, flight->results.rounds);
		flight->results.rounds += !*flight->results.untested[0];
	}
	free(entries);
	free(alive);
}

/*
 * Repeat slow tests of pairs or of nodes, since other processes may have slowed them down. The
 * better value is used. Returns false if there are no slow tests.
 */
static bool repeat_once(struct flight *flight, bool of_pairs)
{
	int *entries = new_entries(flight), count = 0;
	size_t first = 0;

	/* If several pairs of a node are slow, repeat one of them in each round, in turn. */
	for (size_t i = 1; i <= flight->results.count; i++) {
		size_t at = (flight->first_repeated + i) % flight->results.count;
		const struct preflight_row *row = &flight->results.rows[at];

		if (row->verdict != PREFLIGHT_SLOW || !row->is_rate ||
		    (row->partner >= 0) != of_pairs || is_out(flight, row->node) ||
		    entries[row->node] >= 0 ||
		    (of_pairs && (is_out(flight, row->partner) || entries[row->partner] >= 0)))
			continue;
		if (of_pairs)
			pair(flight, entries, row->node, row->partner);
		else
			entries[row->node] = 0;
		if (count++ == 0)
			first = at;
	}
	flight->first_repeated = first;
	if (count > 0)
		run_phase(flight, of_pairs ? "pair" : "node", entries, true);
	free(entries);
	return count > 0;
}

static void repeat_slow(struct flight *flight, bool of_pairs, int most)
{
	for (int i = 0; i < most && can_go_on(flight) && repeat_once(flight, of_pairs); i++)
		;
}

/* Returns the number of nodes that answered in the first phase. */
static int count_tested(const struct flight *flight)
{
	int count = 0;

	for (size_t i = 0; i < flight->results.nodes->count; i++)
		count += flight->peer[i].done >= 0;
	return count;
}

/*
 * Whether all tested nodes have failed like [row]: with the same error of a file or, if there are
 * several nodes, with any error of NCCL.
 */
static bool is_shared(const struct flight *flight, const struct preflight_row *row)
{
	bool is_gpu = strcmp(row->test, "GPU sum") == 0;
	int count = 0;

	if (row->verdict < PREFLIGHT_FAILED || find_shared(row->test) < 0)
		return false;
	for (size_t i = 0; i < flight->results.count; i++) {
		const struct preflight_row *other = &flight->results.rows[i];

		count += other->verdict >= PREFLIGHT_FAILED &&
			 flight->peer[other->node].done >= flight->phase &&
			 strcmp(other->test, row->test) == 0 &&
			 (is_gpu || is_same_item(other->text, row->text));
	}
	return count == count_tested(flight) && count > is_gpu;
}

/*
 * Whether the shared error in [row] means that the program would fail, too: the program cannot be
 * read, or the directory is full (in that case the row has the free space).
 */
static bool ends_tests(const struct preflight_row *row)
{
	return strcmp(row->test, "program") == 0 || !isnan(row->value);
}

/*
 * If all tested nodes fail alike to read the program, to write to the directory, or to sum on their
 * GPUs, the nodes are not the cause: print a line, and remove these rows. Returns true if the
 * program would fail, too, because it cannot be read or the directory is full; in that case no
 * pairs are tested.
 */
static bool drop_shared(struct flight *flight)
{
	struct preflight_results *results = &flight->results;
	bool *shared = ddp_xcalloc(results->count + 1, sizeof(*shared), "results");
	size_t kept = 0;
	int test;

	for (size_t i = 0; i < results->count; i++) {
		shared[i] = is_shared(flight, &results->rows[i]);
		flight->shared |= shared[i] && ends_tests(&results->rows[i]);
	}
	for (size_t i = 0; i < results->count; i++) {
		const struct preflight_row *row = &results->rows[i];

		if (!shared[i]) {
			results->rows[kept++] = *row;
			continue;
		}
		test = find_shared(row->test);
		if (!flight->dropped[test])
			fprintf(stderr,
				"ddp-run: --preflight: %s on all nodes: an error of %s, not of the nodes\n",
				row->text, shared_tests[test].of);
		flight->dropped[test] = true;
	}
	results->count = kept;
	free(shared);
	judge(flight);
	return flight->shared;
}

static void run_phases(struct flight *flight)
{
	int *entries = new_entries(flight);
	bool has_gpus;

	flight->limit = flight->launch->options.number[RUN_OPTION_PREFLIGHT_LIMIT];
	if (flight->limit <= 0)
		flight->limit = TOTAL;
	/* The time that Slurm needs to start the step says nothing about the nodes. */
	wait_for(flight, flight->limit, has_any_started);
	if (flight->end <= 0)
		flight->end = ddp_seconds() + flight->limit;
	flight->phase_limit = flight->limit / 3;
	if (!has_any_started(flight)) {
		free(entries);
		return;
	}
	wait_for(flight, flight->phase_limit, has_started);
	for (size_t i = 0; i < flight->results.nodes->count && !flight->ended && !flight->aborted;
	     i++)
		if (flight->peer[i].rank < 0 && !is_out(flight, (int)i))
			add_unanswered(flight, (int)i, "start");
	if (number_nodes(flight, entries) > 0)
		run_phase(flight, "node", entries, false);
	if (!flight->aborted && drop_shared(flight)) {
		free(entries);
		return;
	}
	/* Tests of GPUs take long, so the rounds come first. */
	has_gpus = flight->has_gpu_sums;
	if (!has_gpus)
		repeat_slow(flight, false, REPEATS);
	run_pairs(flight);
	repeat_slow(flight, true, PAIR_REPEATS);
	if (has_gpus)
		repeat_slow(flight, false, REPEATS);
	memset(entries, -1, flight->results.nodes->count * sizeof(int));
	flight->has_gpu_sums = false;
	if (number_nodes(flight, entries) > 1 && can_go_on(flight) && !*flight->results.untested[0])
		run_phase(flight, "all", entries, false);
	free(entries);
}

/* --- srun ---------------------------------------------------------------------------------- */

static void add_option(char **words, size_t *count, const char *name, const char *value)
{
	char *word;

	if (value && asprintf(&word, "--%s=%s", name, value) >= 0)
		words[(*count)++] = word;
}

/*
 * Add [launch]'s program, and its first argument if that is a file, since the program may be an
 * interpreter. If the program runs in a container, add nothing.
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

/* Returns the directory for the rendezvous that the user gave; NULL: none. */
static const char *find_base(const struct launch *launch)
{
	return launch_option(launch, "ddp-rdzv", "SLURM_DDP_RDZV");
}

/*
 * Without the plugin, create the directories, and let the processes of the tests be ranks that are
 * started by hand. ddp-exec is not used, because it would wait for all nodes.
 */
static void set_directories(struct flight *flight, char name[64])
{
	const char *base = find_base(flight->launch);
	char here[PATH_MAX / 2] = "", directory[PATH_MAX - 128];

	snprintf(name, 64, "preflight-%.32s-%d", job.id, (int)getpid());
	if ((!base || *base != '/') && !getcwd(here, sizeof(here)))
		return;
	if (snprintf(directory, sizeof(directory), "%s%s%s", here, base && *here ? "/" : "",
		     base ? base : "") >= (int)sizeof(directory))
		return;
	snprintf(flight->meet, sizeof(flight->meet), "%s/" DDP_DIR_PARENT, directory);
	(void)mkdir(flight->meet, 0700);
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

/* Returns the nodes on which processes are started. */
static struct node_list find_present(const struct flight *flight)
{
	struct node_list nodes = {.name = NULL};

	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (!*flight->peer[i].gone)
			nodes_add(&nodes, flight->results.nodes->name[i]);
	return nodes;
}

static char **preflight_words(const struct flight *flight)
{
	char info[PATH_MAX];
	static const char *const fixed[] = {"--overlap",	   "--mpi=none",
					    "--input=all",	   "--cpu-bind=none",
					    "--no-kill",	   "--wait=0",
					    "--export=ALL",	   "--kill-on-bad-exit=0",
					    "--ntasks-per-node=1", ("--job-name=" EVIDENCE_STEP)};
	char **words = ddp_xcalloc(40, sizeof(char *), "words of srun");
	struct node_list nodes = find_present(flight);
	const char *number = ddp_xstrdup(ddp_show("%zu", nodes.count).text, "words of srun");
	const struct launch *launch = flight->launch;
	size_t count = 0;

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
	words[count++] = "--preflight";
	add_files(words, &count, launch);
	return words;
}

static bool start(struct flight *flight)
{
	int in[2], out[2], step[2];
	char name[64];
	pid_t parent = getpid();
	char **words = preflight_words(flight);

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
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
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		dup2(out[1], STDERR_FILENO);
		execvp(words[0], words);
		fprintf(stderr, "srun: error: cannot start srun: %s\n", strerror(errno));
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	close(step[1]);
	flight->to = in[1];
	flight->from = out[0];
	flight->step_fd = step[0];
	fcntl(flight->to, F_SETFL, O_NONBLOCK);
	return flight->srun > 0;
}

static bool never(const struct flight *flight)
{
	(void)flight;
	return false;
}

/* Wait up to [seconds] for srun to exit. Returns whether srun has exited. */
static bool has_ended(struct flight *flight, double seconds)
{
	double end = ddp_seconds() + seconds;

	wait_for(flight, seconds, never);
	while (waitpid(flight->srun, NULL, WNOHANG) == 0) {
		if (ddp_seconds() > end)
			return false;
		usleep(20000);
	}
	return true;
}

/*
 * End srun, which exits at the end of its input if the processes on all nodes exit. Returns whether
 * Slurm may still consider the step as running.
 */
static bool stop(struct flight *flight)
{
	bool left;

	close(flight->to);
	flight->stopping = true;
	flight->aborted = false;
	left = !has_ended(flight, LEAVE);
	/* On SIGTERM srun ends the step. */
	if (left && kill(flight->srun, SIGTERM) == 0 && !has_ended(flight, LEAVE)) {
		kill(flight->srun, SIGKILL);
		(void)waitpid(flight->srun, NULL, 0);
	}
	close(flight->from);
	if (flight->step_fd >= 0)
		close(flight->step_fd);
	if (*flight->meet)
		attempt_remove_rendezvous(flight->meet);
	return left;
}

/* --- A preflight --------------------------------------------------------------------------- */

static void set_found(const struct flight *flight, struct preflight_found *found)
{
	enum preflight_verdict failed =
		is_strict(flight->launch) ? PREFLIGHT_SLOW : PREFLIGHT_FAILED;

	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (flight->results.verdicts[i] >= failed)
			nodes_add(&found->failed, flight->results.nodes->name[i]);
		else if (flight->results.verdicts[i] == PREFLIGHT_SLOW)
			nodes_add(&found->slow, flight->results.nodes->name[i]);
}

static bool has_failed(const struct flight *flight)
{
	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (flight->results.verdicts[i] >= PREFLIGHT_FAILED)
			return true;
	return false;
}

static void free_flight(struct flight *flight)
{
	free(flight->peer);
	free(flight->node_of);
	free(flight->partners);
	free(flight->results.verdicts);
	free(flight->results.rows);
	ddp_text_free(&flight->input);
	srun_said_free(&flight->said);
}

/* For the nodes in [gone], set why no process is started on them, from their states in Slurm. */
static void set_gone(struct flight *flight, const struct node_list *gone)
{
	char *names = nodes_joined(gone);
	char *const show[] = {"scontrol", "-o", "show", "node", names, NULL};
	struct ddp_text out = {.data = NULL};

	if (gone->count > 0)
		(void)evidence_run(show, STATES_LIMIT, &out);
	for (size_t i = 0; i < flight->results.nodes->count; i++)
		if (nodes_have(gone, flight->results.nodes->name[i]))
			snprintf(flight->peer[i].gone, sizeof(flight->peer[i].gone),
				 "Slurm says that it is down");
	for (char *rest = out.data, *line; (line = strsep(&rest, "\n"));) {
		char name[FACTS_NAME];
		size_t size;
		const char *field = nodes_field(line, "NodeName", &size);
		int node;

		snprintf(name, sizeof(name), "%.*s", (int)size, field);
		node = find_node(flight, name);
		field = nodes_field(line, "State", &size);
		if (node >= 0 && size > 0)
			snprintf(flight->peer[node].gone, sizeof(flight->peer[node].gone),
				 "Slurm says %.*s", (int)size, field);
	}
	ddp_text_free(&out);
	free(names);
}

/*
 * Discard the results and the processes of a step that srun aborted. Mark the nodes that are gone
 * as failed.
 */
static void begin_again(struct flight *flight)
{
	flight->phase = -1;
	flight->results.count = 0;
	flight->results.rounds = flight->results.rounds_wanted = 0;
	for (int i = 0; i < 2; i++)
		flight->results.all[i] = (struct preflight_row){
			.node = -1, .partner = -1, .value = (double)NAN, .median = (double)NAN};
	flight->ended = flight->stopping = false;
	ddp_text_clear(&flight->input);
	for (size_t i = 0; i < flight->results.nodes->count; i++) {
		struct peer *peer = &flight->peer[i];
		struct preflight_row *row;

		flight->node_of[i] = -1;
		peer->rank = peer->done = -1;
		peer->begun[0] = peer->ended[0] = '\0';
		peer->unanswered = false;
		if (!*peer->gone)
			continue;
		row = add_row(flight, (int)i, -1, "start");
		row->verdict = PREFLIGHT_FAILED;
		memcpy(row->text, peer->gone, sizeof(row->text));
	}
	judge(flight);
}

/*
 * Start the step and run the phases. If srun cannot start a process on some nodes, do the same
 * without these nodes, while there is time.
 */
static bool run_tests(struct flight *flight)
{
	struct node_list present;
	bool again, ended;

	do {
		begin_again(flight);
		if (!start(flight))
			return false;
		run_phases(flight);
		ended = flight->ended;
		again = flight->aborted;
		flight->launch->overlap |= stop(flight) || again;
		flight->ended = ended;
		present = find_present(flight);
		/* Discard all results. Only the nodes on which no process starts are known. */
		if (again && present.count > 0 && flight->end > 0 && left_s(flight) <= LEFT_LEAST) {
			begin_again(flight);
			judge(flight);
			flight->cut_short = true;
		}
		again = again && present.count > 0 && !flight->cut_short &&
			!attempt_end_requested();
		nodes_free(&present);
		if (again && *flight->dir) {
			ddp_evidence_discard(flight->dir);
			flight->dir[0] = '\0';
		}
	} while (again);
	return true;
}

bool preflight_check(void)
{
	char info[PATH_MAX] = "ddp-info";

	if (nodes_find_beside("ddp-info", info, sizeof(info)) && access(info, X_OK) == 0)
		return true;
	fprintf(stderr, "ddp-run: --preflight: cannot run %s: install it beside ddp-run\n", info);
	return false;
}

bool preflight_run(struct launch *launch, const struct node_list *nodes,
		   const struct node_list *gone, const char *dir, struct preflight_found *found)
{
	struct flight flight = {
		.launch = launch,
		.results = {.nodes = nodes,
			    .slow = launch->options.number[RUN_OPTION_PREFLIGHT_SLOW]},
		.step_fd = -1,
		.phase = -1};
	double started = ddp_seconds();
	bool has_result, keep = false;

	flight.peer = ddp_xcalloc(nodes->count, sizeof(*flight.peer), "nodes");
	flight.results.verdicts =
		ddp_xcalloc(nodes->count, sizeof(*flight.results.verdicts), "nodes");
	flight.node_of = new_entries(&flight);
	flight.partners = new_entries(&flight);
	set_gone(&flight, gone);
	if (!run_tests(&flight)) {
		fprintf(stderr, "ddp-run: --preflight: cannot start srun: %s\n", strerror(errno));
		free_flight(&flight);
		return false;
	}
	flight.results.took = ddp_seconds() - started;
	has_result = (flight.cut_short || (!flight.ended && has_any_started(&flight))) &&
		     !attempt_end_requested();
	if (has_result && flight.shared && !has_failed(&flight)) {
		has_result = false;
	} else if (has_result) {
		keep = !preflight_report(&flight.results, dir && *dir ? dir : flight.dir);
		set_found(&flight, found);
	} else {
		for (size_t i = 0; i < gone->count; i++)
			nodes_add(&found->failed, gone->name[i]);
		fprintf(stderr, "ddp-run: --preflight: the tests did not run to their end%s%s%s\n",
			*flight.why ? ": " : "", flight.why,
			dir || attempt_end_requested() ? "" : "; the program starts without them");
	}
	if (*flight.dir && keep && !(dir && *dir))
		fprintf(stderr, "ddp-run: all results are in %s\n", flight.dir);
	else if (*flight.dir)
		ddp_evidence_discard(flight.dir);
	free_flight(&flight);
	return has_result;
}
