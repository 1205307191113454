/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c - separate ranks that followed from the rank that failed first; find hung ranks */
#include "config.h"

#include "verdict.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

/* In seconds. Slurm waits longer than this between SIGTERM and SIGKILL. */
#define AT_ONCE 1.0

/* In seconds. A longer time between the last heartbeats of two ranks is not by chance. */
#define LONG_BEFORE 5.0

static const char with_step[] = "ended with the step";

/* --- Ranks that follow --------------------------------------------------------------------- */

/*
 * Whether [text] begins with "rank 0 has left" or "rank 0 on n1 has left". Sets [number] to the rank
 * with whose name it begins, or to -1.
 */
static bool has_left(const char *text, int *number)
{
	int end = 0;

	*number = -1;
	sscanf(text, "rank %d has left%n", number, &end);
	if (end == 0)
		sscanf(text, "rank %d on %*s has left%n", number, &end);
	return end > 0;
}

/*
 * Returns the first other rank that [text], a message of [rank], names; -1: none. A rank in a
 * prefix "from rank 2 on n2: " or "rank 2 on n2: " sent the message, so it counts only if the rest
 * names no rank. "rank 1 on n1 calls all-reduce, but rank 0 has left with ddp_destroy" names rank
 * 0, and "rank 1 on n1 calls all-reduce, but this rank has left with ddp_destroy" names its sender.
 */
static int find_named(const char *text, int rank)
{
	int named = -1, sender = -1, number, end = 0;
	bool names_itself = false;

	for (;;) {
		const char *prefix = text + (strncmp(text, "from ", 5) == 0 ? 5 : 0);

		end = 0;
		if (sscanf(prefix, "rank %d on %*[^: ]: %n", &number, &end) != 1 || end == 0)
			break;
		sender = number;
		text = prefix + end;
	}
	if (strstr(text, "this rank has left"))
		return sender == rank ? -1 : sender;
	for (; (text = strstr(text, "rank ")); text++) {
		if (has_left(text, &number))
			return number == rank ? -1 : number;
		names_itself |= number == rank;
		if (named < 0)
			named = number;
	}
	if (names_itself)
		return -1;
	return named < 0 && sender != rank ? sender : named;
}

/* Returns the signal that ended the rank, or that a shell reported as its exit status; 0: none. */
static int signal_of(const struct facts_rank *rank)
{
	if (rank->how == FACTS_SIGNAL)
		return rank->code;
	return rank->how == FACTS_EXIT && rank->code > 128 && rank->code < 128 + NSIG
		       ? rank->code - 128
		       : 0;
}

static bool ended_badly(const struct facts_rank *rank)
{
	return rank->order > 0 || rank->message;
}

static void __attribute__((format(printf, 3, 4)))
set(struct facts_rank *rank, bool follows, const char *format, ...)
{
	va_list arguments;

	rank->follows = follows;
	va_start(arguments, format);
	vsnprintf(rank->why, sizeof(rank->why), format, arguments);
	va_end(arguments);
}

/*
 * Decide from the rank's message, and from how it ended, whether it follows another rank: whether
 * it failed because of that rank. Returns the rank that the message names, or -1 if it names none.
 */
static int judge_message(struct facts_rank *rank, int number)
{
	const char *message = rank->message;
	int named = rank->libddp ? find_named(message, number) : -1;
	enum pattern_meaning meaning =
		message && !rank->libddp ? pattern_message(message) : LINE_OTHER;

	if (named >= 0 || meaning == LINE_PEER || meaning == LINE_CONNECTION ||
	    meaning == LINE_STOPPED)
		set(rank, true, "%.*s", (int)strcspn(message, "\n"), message);
	/* A rank that exits slowly after an exception ends with the step, but did not follow. */
	else if (signal_of(rank) == SIGTERM && !rank->uncaught)
		set(rank, true, "%s", with_step);
	else if (!message && rank->how == FACTS_EXIT && rank->code > 64 && rank->code < 127 &&
		 ddp_is_peer_error(64 - rank->code)) /* exit status of libddp for this error */
		set(rank, true, "%s", ddp_strerror(64 - rank->code));
	return named;
}

/* A rank that SIGKILL ended long after another rank failed was killed with the step. */
static void judge_kills(struct facts *facts)
{
	double earliest = 0;

	for (int i = 0; i < facts->size; i++)
		if (facts->ranks[i].time > 0 && (earliest == 0 || facts->ranks[i].time < earliest))
			earliest = facts->ranks[i].time;
	for (int i = 0; i < facts->size; i++)
		if (!facts->ranks[i].follows && signal_of(&facts->ranks[i]) == SIGKILL &&
		    facts->ranks[i].time > earliest + AT_ONCE)
			set(&facts->ranks[i], true, "%s", with_step);
}

/*
 * In a refused step, the cause is a rank that exited on the node that refused it. Slurm kills the
 * other ranks, although srun may report them earlier, so they follow.
 */
static void judge_refusal(struct facts *facts)
{
	for (int i = 0; i < facts->size && facts->refused_by[0]; i++)
		if (strcmp(facts->ranks[i].node, facts->refused_by) != 0 ||
		    signal_of(&facts->ranks[i]) != 0)
			set(&facts->ranks[i], true, "%s", with_step);
}

/* --- The first rank ------------------------------------------------------------------------ */

/*
 * Returns when the rank failed, according to srun. If the rank exited without a message, AT_ONCE is
 * added, because it may have lost the connection to a rank that was killed at the same time.
 */
static double failed_at(const struct facts_rank *rank)
{
	bool quiet = rank->how == FACTS_EXIT && !rank->message && signal_of(rank) == 0;

	return rank->time + (quiet ? AT_ONCE : 0);
}

/*
 * Whether the exceptions of two ranks have different times. Lines of another node may arrive 40 ms
 * late. Times from error files are whole seconds.
 */
static bool differ(double raised, double than)
{
	if (raised <= 0 || than <= 0)
		return false;
	if (raised == floor(raised) || than == floor(than))
		return floor(raised) != floor(than);
	return fabs(raised - than) > 0.05;
}

static bool is_earlier(const struct facts_rank *rank, const struct facts_rank *than)
{
	if (differ(rank->raised, than->raised))
		return rank->raised < than->raised;
	if (rank->time > 0 && than->time > 0 && failed_at(rank) != failed_at(than))
		return failed_at(rank) < failed_at(than);
	if (rank->order > 0 && than->order > 0)
		return rank->order < than->order;
	return rank->order > 0 && than->order == 0;
}

/* Returns the rank that failed first among those for which [is] returns true; -1: none. */
static int find_earliest(const struct facts *facts, bool (*is)(const struct facts_rank *rank))
{
	int first = -1;

	for (int i = 0; i < facts->size; i++)
		if (is(&facts->ranks[i]) &&
		    (first < 0 || is_earlier(&facts->ranks[i], &facts->ranks[first])))
			first = i;
	return first;
}

/* Returns the facts about the node of [rank], or NULL if there are none. */
static const struct facts_node *find_node(const struct facts *facts, const struct facts_rank *rank)
{
	for (int n = 0; n < facts->known_count; n++)
		if (strcmp(facts->known[n].name, rank->node) == 0)
			return &facts->known[n];
	return NULL;
}

/* Whether the node of [rank] is lost. */
static bool is_lost(const struct facts *facts, const struct facts_rank *rank)
{
	const struct facts_node *node = find_node(facts, rank);

	return node && (node->silent || node->failed);
}

/* Returns the first rank whose node is lost, or -1 if there is none. */
static int find_lost(const struct facts *facts)
{
	for (int i = 0; i < facts->size; i++)
		if (is_lost(facts, &facts->ranks[i]))
			return i;
	return -1;
}

/*
 * Returns the first rank that did not arrive in the collective in which other ranks wait; -1: none.
 */
static int find_missing(const struct facts *facts)
{
	for (int i = 0; i < facts->size; i++)
		if (facts->arrivals[i].missing)
			return i;
	return -1;
}

/*
 * Find a rank whose slurmstepd is gone or hangs. srun does not report the end of such a rank. It
 * reports other ranks if their status is not 0. Returns a rank that srun did not report, if
 * possible on a node whose slurmstepd srun lost. Returns -1 if there is none.
 */
static int find_unnamed(const struct facts *facts)
{
	int unnamed = -1;
	bool named = false, on_lost = false;

	for (int i = 0; i < facts->size && facts->end == RUN_END_NODE; i++) {
		const struct facts_node *node = find_node(facts, &facts->ranks[i]);

		named = named || facts->ranks[i].order > 0;
		if (ended_badly(&facts->ranks[i]) ||
		    (unnamed >= 0 && (on_lost || !node || !node->stepd_lost)))
			continue;
		unnamed = i;
		on_lost = node && node->stepd_lost;
	}
	return named || on_lost ? unnamed : -1;
}

/*
 * Returns the first rank that srun could not start, and sets its node if srun missed only one node.
 * A rank that has started has left the name of its node, or srun has reported its end. -1: none.
 */
static int find_unstarted(const struct facts *facts)
{
	const struct facts_node *missed = NULL;
	int count = 0;

	for (int n = 0; n < facts->known_count; n++)
		if (facts->known[n].missed && count++ == 0)
			missed = &facts->known[n];
	for (int i = 0; i < facts->size && missed && facts->end == RUN_END_NODE; i++) {
		struct facts_rank *rank = &facts->ranks[i];

		if (ended_badly(rank) || rank->node[0])
			continue;
		if (count == 1)
			snprintf(rank->node, sizeof(rank->node), "%s", missed->name);
		return i;
	}
	return -1;
}

static void set_unstarted(const struct facts *facts, struct facts_rank *rank)
{
	rank->how = FACTS_NOT_STARTED;
	if (is_lost(facts, rank))
		set(rank, false, "node %s does not answer", rank->node);
	else
		set(rank, false, "srun reports \"%s\"", facts->missed_why);
}

static bool is_leader(const struct facts_rank *rank)
{
	return ended_badly(rank) && !rank->follows;
}

/*
 * Whether the rank reported an error other than a lost peer, but Slurm ended it before it exited.
 * Other ranks may notice its closed connections and exit first.
 */
static bool is_interrupted(const struct facts_rank *rank)
{
	return rank->message && strcmp(rank->why, with_step) == 0;
}

/* Whether the rank lost a connection, perhaps to a server outside the training. */
static bool is_disconnected(const struct facts_rank *rank)
{
	return rank->message && !rank->libddp && pattern_message(rank->message) == LINE_CONNECTION;
}

/*
 * Find a rank that ended with status 0 too early. srun does not report such a rank. Returns the
 * first rank that srun did not report, if a reported rank has lost a peer, or else -1.
 */
static int find_finished(const struct facts *facts)
{
	int finished = -1;
	bool peer_lost = false;

	for (int i = facts->size - 1; i >= 0; i--) {
		const struct facts_rank *rank = &facts->ranks[i];

		peer_lost = peer_lost || (rank->follows && strcmp(rank->why, with_step) != 0);
		if (!ended_badly(rank))
			finished = i;
	}
	return peer_lost ? finished : -1;
}

/*
 * If exactly one rank reported no error and was ended by Slurm, and the others reported a lost or
 * late peer, that rank was the peer. Returns this rank, or -1 if the case is another.
 */
static int find_quiet(const struct facts *facts)
{
	int quiet = -1;
	bool peer_lost = false;

	for (int i = 0; i < facts->size; i++) {
		if (facts->ranks[i].message) {
			peer_lost = true;
			continue;
		}
		if (quiet >= 0 || strcmp(facts->ranks[i].why, with_step) != 0)
			return -1;
		quiet = i;
	}
	return peer_lost ? quiet : -1;
}

/*
 * If every rank follows another one: returns the rank that most other ranks name. If no rank is
 * named, returns a rank that Slurm ended after its error, else one that other ranks wait for, else
 * [unreported], else one whose connection may have been to another server, else one that reported
 * no error, else the rank that failed first.
 */
static int find_culprit(const struct facts *facts, const int *votes, int unreported)
{
	int most = -1;

	for (int i = 0; i < facts->size; i++)
		if (votes[i] > 0 && (most < 0 || votes[i] > votes[most]))
			most = i;
	if (most < 0)
		most = find_earliest(facts, is_interrupted);
	if (most < 0)
		most = find_missing(facts);
	if (most < 0)
		most = unreported;
	if (most < 0)
		most = find_earliest(facts, is_disconnected);
	if (most < 0)
		most = find_quiet(facts);
	return most < 0 ? find_earliest(facts, ended_badly) : most;
}

/*
 * With srun's --wait, ranks are late if they still run this long after another rank has ended with
 * status 0. srun does not report that rank. If most ranks are late, they are right, and the rank
 * that ended early is the cause. Returns the first rank that ended early, or -1.
 */
static int find_early(const struct facts *facts)
{
	int late = 0, first = -1;

	for (int i = facts->size - 1; i >= 0; i--) {
		late += facts->ranks[i].how == FACTS_LATE;
		if (!ended_badly(&facts->ranks[i]))
			first = i;
	}
	return 2 * late > facts->size ? first : -1;
}

static void judge_end(struct facts *facts, const int *votes)
{
	int first, unstarted = find_unstarted(facts), lost = find_lost(facts),
		   unnamed = find_unnamed(facts), culprit, early,
		   finished = unnamed < 0 ? find_finished(facts) : -1, quiet = find_quiet(facts),
		   reported = find_earliest(facts, ended_badly);
	struct facts_rank *rank;

	judge_refusal(facts);
	judge_kills(facts);
	first = find_earliest(facts, is_leader);
	/*
	 * If srun loses a slurmstepd, it kills the other ranks, so their SIGKILL is not the cause.
	 */
	if (facts->lost && unnamed >= 0 && first >= 0 && signal_of(&facts->ranks[first]) == SIGKILL)
		first = unnamed;
	if (unstarted >= 0) {
		first = unstarted;
	} else if (lost >= 0 && (first < 0 || facts->end == RUN_END_NODE)) {
		/* A rank on a lost node leaves no message. */
		first = lost;
		for (int i = 0; i < facts->size; i++)
			if (i == lost ||
			    (!ended_badly(&facts->ranks[i]) && is_lost(facts, &facts->ranks[i])))
				facts->ranks[i].how = FACTS_NODE;
	}
	early = first >= 0 && facts->ranks[first].how == FACTS_LATE ? find_early(facts) : -1;
	if (early >= 0) {
		first = early;
		facts->ranks[early].how = FACTS_EXIT;
	}
	culprit = first < 0 ? find_culprit(facts, votes, unnamed < 0 ? finished : unnamed) : first;
	facts->first = culprit;
	if (culprit < 0)
		return;
	rank = &facts->ranks[culprit];
	if (unnamed >= 0 && !ended_badly(rank) && rank->how == FACTS_UNKNOWN)
		rank->how = FACTS_SLURMSTEPD;
	/* If srun reports other ranks but not this one, this rank has ended with status 0. */
	if (rank->how == FACTS_UNKNOWN && unnamed < 0 && reported >= 0 &&
	    facts->ranks[reported].order > 0)
		rank->how = FACTS_EXIT;
	if (first < 0 && votes[culprit] > 0)
		set(rank, false, "other ranks name it");
	else if (first < 0 && facts->arrivals[culprit].missing)
		set(rank, false, "it %.200s", facts->collectives);
	else if (first < 0 && culprit == finished)
		set(rank, false, "and other ranks lost the connection to it");
	else if (culprit == unstarted)
		set_unstarted(facts, rank);
	else if (first < 0 && culprit == quiet)
		set(rank, false, "and the other ranks waited for it");
	else
		set(rank, false, "%s",
		    early >= 0					   ? "and most other ranks ran on"
		    : facts->lost && rank->how == FACTS_SLURMSTEPD ? "since it lost the slurmstepd"
								   : "");
	for (int i = 0; i < facts->size; i++)
		if (i != culprit && ended_badly(&facts->ranks[i]) && !facts->ranks[i].follows &&
		    !facts->ranks[i].message)
			set(&facts->ranks[i], true, "ended later");
}

/* --- Hangs --------------------------------------------------------------------------------- */

static bool ended_well(const struct facts_rank *rank)
{
	return rank->how == FACTS_EXIT && rank->code == 0;
}

/* Returns the reason why the rank's process cannot continue, or NULL if none is known. */
static const char *describe_state(const struct facts_rank *rank)
{
	if (ended_well(rank))
		return NULL;
	switch (rank->state) {
	case 'T':
	case 't':
		return "it is stopped";
	case 'Z':
	case 'X':
		return "its main thread has ended";
	case '-':
		return "its process no longer exists";
	default:
		return rank->parent[0] && strcmp(rank->parent, "slurmstepd") != 0
			       ? "the slurmstepd that started it is gone"
			       : NULL;
	}
}

/* Returns the rank with the oldest last heartbeat, if another rank's is much newer, or else -1. */
static int find_silent(const struct facts *facts)
{
	int oldest = -1;
	double newest = 0;

	for (int i = 0; i < facts->size; i++) {
		double age = facts->ranks[i].heartbeat_age;

		if (age < 0)
			continue;
		if (oldest < 0 || age < newest)
			newest = age;
		if (oldest < 0 || age > facts->ranks[oldest].heartbeat_age)
			oldest = i;
	}
	return oldest >= 0 && facts->ranks[oldest].heartbeat_age > newest + LONG_BEFORE ? oldest
											: -1;
}

/*
 * Returns the rank for which others wait, according to its stack: one that runs its program while
 * another one waits or has ended; else one that has ended while another one waits; -1: none.
 */
static int find_awaited(const struct facts *facts)
{
	int first[STACK_UNKNOWN + 1] = {-1, -1, -1, -1, -1};

	for (int i = facts->size - 1; i >= 0; i--)
		first[ended_well(&facts->ranks[i]) ? STACK_ENDS : facts->ranks[i].stack.place] = i;
	if (first[STACK_WAITS] < 0 && first[STACK_ENDS] < 0)
		return -1;
	if (first[STACK_RUNS] >= 0)
		return first[STACK_RUNS];
	return first[STACK_WAITS] >= 0 ? first[STACK_ENDS] : -1;
}

static void set_awaited(struct facts_rank *rank)
{
	set(rank, false, "%s, and others wait for it%s%s",
	    rank->stack.place != STACK_RUNS ? "its program has ended" : "it is not in a collective",
	    rank->stack.line[0] ? ": " : "", rank->stack.line);
}

/* Returns the number of ranks that wait in the Python line [line]; -1 if not all ranks wait. */
static int count_in_line(const struct facts *facts, const char *line)
{
	int count = 0;

	for (int i = 0; i < facts->size; i++) {
		const struct stack *stack = &facts->ranks[i].stack;

		if (stack->place != STACK_WAITS || !stack->line[0])
			return -1;
		count += strcmp(stack->line, line) == 0;
	}
	return count;
}

/*
 * If all ranks wait, but in different Python lines, returns the last rank in the line with the
 * fewest ranks. Sets [other] to a rank that waits in another line. Returns -1 in all other cases.
 */
static int find_apart(const struct facts *facts, int *other)
{
	int apart = -1, fewest = facts->size;

	for (int i = 0; i < facts->size; i++) {
		int count = count_in_line(facts, facts->ranks[i].stack.line);

		if (count < 0)
			return -1;
		if (count < facts->size && count <= fewest) {
			fewest = count;
			apart = i;
		}
	}
	for (int i = 0; i < facts->size && apart >= 0; i++)
		if (strcmp(facts->ranks[i].stack.line, facts->ranks[apart].stack.line) != 0)
			*other = i;
	return apart;
}

/*
 * Returns the first rank that did not exit after an exception and that did not follow another rank,
 * or -1 if there is none.
 */
static int find_raised(const struct facts *facts)
{
	int first = -1;

	for (int i = 0; i < facts->size; i++)
		if (facts->ranks[i].how == FACTS_RAISED && !facts->ranks[i].follows &&
		    (first < 0 || is_earlier(&facts->ranks[i], &facts->ranks[first])))
			first = i;
	return first;
}

static void judge_hang(struct facts *facts)
{
	struct facts_rank *ranks = facts->ranks;
	int stopped = -1, blocked = -1, other = -1, missing = find_missing(facts),
	    silent = find_silent(facts), awaited = find_awaited(facts), raised = find_raised(facts),
	    apart = find_apart(facts, &other);

	for (int i = facts->size - 1; i >= 0; i--) {
		/* How a hung rank ended does not show the cause, because ddp-run ended the step. */
		set(&ranks[i], false, "%s", "");
		stopped = describe_state(&ranks[i]) ? i : stopped;
		blocked = ranks[i].state == 'D' ? i : blocked;
	}
	if ((facts->first = find_lost(facts)) >= 0)
		set(&ranks[facts->first], false, "its node does not answer");
	else if ((facts->first = stopped) >= 0)
		set(&ranks[stopped], false, "%s", describe_state(&ranks[stopped]));
	else if ((facts->first = raised) >= 0)
		set(&ranks[raised], false, "it has not exited after an exception");
	else if ((facts->first = missing) >= 0)
		set(&ranks[missing], false, "it %s", facts->collectives);
	else if ((facts->first = awaited) >= 0)
		set_awaited(&ranks[awaited]);
	else if ((facts->first = silent) >= 0)
		set(&ranks[silent], false,
		    "its last heartbeat was %.0f s ago, those of other ranks were later",
		    ranks[silent].heartbeat_age);
	else if ((facts->first = blocked) >= 0)
		set(&ranks[blocked], false,
		    "it waits in the kernel, usually for a disk or a file server");
	else if ((facts->first = apart) >= 0)
		set(&ranks[apart], false, "it waits in %s, and rank %d in %s",
		    ranks[apart].stack.line, other, ranks[other].stack.line);
}

/* Whether the step ended for a reason outside the program, so that no rank failed. */
static bool was_ended(const struct facts *facts)
{
	return facts->end == RUN_END_CANCELLED || facts->end == RUN_END_TIME_LIMIT ||
	       facts->end == RUN_END_STEP_LIMIT || facts->end == RUN_END_PREEMPTED ||
	       facts->end == RUN_END_REFUSED;
}

/*
 * Correct facts->end for the rank that failed first. ddp-run has set it for the rank that srun
 * reported first, which may have followed another rank.
 */
static void correct_end(struct facts *facts)
{
	enum facts_how how = facts->first < 0 ? FACTS_UNKNOWN : facts->ranks[facts->first].how;

	if (facts->end != RUN_END_EXIT && facts->end != RUN_END_SIGNAL)
		return;
	if (how == FACTS_EXIT || how == FACTS_RAISED)
		facts->end = RUN_END_EXIT;
	else if (how == FACTS_SIGNAL || how == FACTS_OOM)
		facts->end = RUN_END_SIGNAL;
}

void verdict_judge(struct facts *facts)
{
	int *votes = ddp_xcalloc((size_t)facts->size + 1, sizeof(*votes), "the report");

	facts->first = -1;
	for (int i = 0; i < facts->size; i++) {
		int named = judge_message(&facts->ranks[i], i);

		if (named >= 0 && named < facts->size)
			votes[named]++;
	}
	if (facts->end == RUN_END_HANG)
		judge_hang(facts);
	else if (!was_ended(facts))
		judge_end(facts, votes);
	correct_end(facts);
	free(votes);
}
