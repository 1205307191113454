/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "facts.h"

/* Seconds: Slurm waits for longer than this between SIGTERM and SIGKILL. */
#define AT_ONCE 1.0

/* Seconds between two beats that are no coincidence. */
#define LONG_BEFORE 5.0

/* --- What a rank said last ------------------------------------------------------------------- */

static char *copy(const char *text, size_t length)
{
	while (length > 0 && (text[length - 1] == '\r' || text[length - 1] == ' '))
		length--;
	return length ? strndup(text, length) : NULL;
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/*
 * Of the output: the last exception that Python or C++ did not catch, else libddp's last line about it. [ours] is set
 * where it is the latter.
 */
static char *find_words(const char *tail, bool *ours)
{
	static const char python[] = "Traceback (most recent call last)", cpp[] = "  what():  ";
	const char *raised = NULL, *told = NULL;
	bool inside = false;
	const char *found;

	for (const char *line = tail; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		if (begins(line, python)) {
			inside = true;
		} else if (begins(line, cpp)) {
			raised = line + strlen(cpp);
		} else if (inside && *line != ' ' && *line != '\n' && *line != '\t') {
			raised = line;
			inside = false;
		} else if (begins(line, "ddp[") && (found = strstr(line, "]: ")) &&
			   (size_t)(found - line) < strcspn(line, "\n")) {
			size_t length = strcspn(line, "\n");
			const char *records = strstr(line, "; records are in ");

			if (!records || (size_t)(records - line) >= length)
				told = found + strlen("]: ");
		}
	}
	*ours = !raised && told;
	found = raised ? raised : told;
	return found ? copy(found, strcspn(found, "\n")) : NULL;
}

/* The last of libddp's lines of [rank] in the output of all ranks. */
static char *find_line(const char *tail, int rank)
{
	char begin[32];
	bool ours;
	char *words = NULL;

	snprintf(begin, sizeof(begin), "ddp[%d@", rank);
	for (const char *line = tail; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (begins(line, begin)) {
			char *one = strndup(line, strcspn(line, "\n"));
			char *found = one ? find_words(one, &ours) : NULL;

			free(one);
			if (found) {
				free(words);
				words = found;
			}
		}
	return words;
}

/* What libddp's record and the output add to rank [number]. Returns whether the message is libddp's own. */
static bool learn(struct facts *facts, int number)
{
	const struct ddp_arrival *arrival = &facts->arrivals[number];
	struct facts_rank *rank = &facts->ranks[number];
	bool ours = false;

	if (!rank->node[0])
		snprintf(rank->node, sizeof(rank->node), "%s", arrival->host);
	if (rank->pid == 0)
		rank->pid = arrival->pid;
	if (rank->message)
		return false;
	if (arrival->reason[0] && strcmp(arrival->reason, "SIGTERM") != 0) {
		rank->message = strdup(arrival->reason);
		return true;
	}
	if (rank->tail && rank->order > 0)
		rank->message = find_words(rank->tail, &ours);
	if (!rank->message && facts->tail && rank->order > 0) {
		rank->message = find_line(facts->tail, number);
		ours = rank->message != NULL;
	}
	return ours;
}

/* --- Who followed ---------------------------------------------------------------------------- */

/*
 * The first rank that [text] of [rank] names, where it does not name this one; -1: none. Who told of it, "from rank 2 on
 * n2: ", is not meant.
 */
static int find_named(const char *text, int rank)
{
	int named = -1, number, end = 0;

	while (sscanf(text, "from rank %*d on %*[^:]: %n", &end) == 0 && end > 0) {
		text += end;
		end = 0;
	}
	for (; (text = strstr(text, "rank ")); text++) {
		if (sscanf(text, "rank %d", &number) != 1)
			continue;
		if (number == rank)
			return -1;
		if (named < 0)
			named = number;
	}
	return named;
}

/* Words of those whose peer is gone: of sockets, gloo, NCCL and PyTorch. */
static bool is_about_peer(const char *message)
{
	static const char *const words[] = {
		"Connection reset by peer",
		"Connection closed by peer",
		"Connection refused",
		"Broken pipe",
		"closed by remote peer",
		"failed to recv, got 0 bytes",
		"remote process exited or there was a network error",
		"Application timeout caused pair closure",
		"Timed out waiting",
		"timed out after",
		"collective operation timeout",
		"client socket has timed out",
		"Socket Timeout",
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(message, words[i]))
			return true;
	return false;
}

/* libddp's exit statuses for what another rank did. */
static bool is_peers_status(int code)
{
	return code > 64 && code < 127 && ddp_is_peer_error(64 - code);
}

/* The signal that ended it, also behind a shell; 0: none. */
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

static void __attribute__((format(printf, 2, 3)))
follow(struct facts_rank *rank, const char *format, ...)
{
	va_list arguments;

	rank->follows = true;
	va_start(arguments, format);
	vsnprintf(rank->why, sizeof(rank->why), format, arguments);
	va_end(arguments);
}

/* By what the rank itself says, and how it ended. Returns the rank that it names, or -1. */
static int judge_words(struct facts_rank *rank, int number, bool ours)
{
	int named = ours ? find_named(rank->message, number) : -1;

	if (named >= 0 || (rank->message && !ours && is_about_peer(rank->message)))
		follow(rank, "%.*s", (int)strcspn(rank->message, "\n"), rank->message);
	else if (rank->how == FACTS_CANCELLED || signal_of(rank) == SIGTERM)
		follow(rank, "ended with the step");
	else if (!rank->message && rank->how == FACTS_EXIT && is_peers_status(rank->code))
		follow(rank, "%s", ddp_strerror(64 - rank->code));
	return named;
}

/* Who is killed long after another ended badly was killed with the step. */
static void judge_kills(struct facts *facts)
{
	double earliest = 0;

	for (int i = 0; i < facts->size; i++)
		if (facts->ranks[i].time > 0 && (earliest == 0 || facts->ranks[i].time < earliest))
			earliest = facts->ranks[i].time;
	for (int i = 0; i < facts->size; i++)
		if (!facts->ranks[i].follows && signal_of(&facts->ranks[i]) == SIGKILL &&
		    facts->ranks[i].time > earliest + AT_ONCE)
			follow(&facts->ranks[i], "ended with the step");
}

/* When it failed, by srun's word. Who only exits, and says nothing, may well have lost one that was killed. */
static double moment(const struct facts_rank *rank)
{
	bool quiet = rank->how == FACTS_EXIT && !rank->message && signal_of(rank) == 0;

	return rank->time + (quiet ? AT_ONCE : 0);
}

static bool is_earlier(const struct facts_rank *rank, const struct facts_rank *than)
{
	if (rank->raised > 0 && than->raised > 0 && rank->raised != than->raised)
		return rank->raised < than->raised;
	if (rank->time > 0 && than->time > 0 && moment(rank) != moment(than))
		return moment(rank) < moment(than);
	if (rank->order > 0 && than->order > 0)
		return rank->order < than->order;
	return rank->order > 0 && than->order == 0;
}

static bool is_lost(struct facts *facts, const struct facts_rank *rank)
{
	if (rank->how == FACTS_NODE)
		return true;
	for (int i = 0; i < facts->known_count; i++)
		if (facts->known[i].silent && strcmp(facts->known[i].name, rank->node) == 0)
			return true;
	return false;
}

/* Where a slurmstepd is gone or hangs, srun is told of the ends of other ranks only. Returns one of its ranks, or -1. */
static int find_untold(const struct facts *facts)
{
	int untold = -1;
	bool told = false;

	for (int i = 0; i < facts->size && facts_is_kind(facts, "node"); i++) {
		const struct facts_rank *rank = &facts->ranks[i];

		told = told || rank->order > 0;
		if (untold < 0 && !ended_badly(rank))
			untold = i;
	}
	return told ? untold : -1;
}

/* Where all follow: the one that most name, else one that others wait for, or that was lost, else the earliest. */
static int find_culprit(const struct facts *facts, const int *votes, int untold)
{
	int most = -1;

	for (int i = 0; i < facts->size; i++)
		if (votes[i] > 0 && (most < 0 || votes[i] > votes[most]))
			most = i;
	for (int i = 0; i < facts->size && most < 0; i++)
		if (facts->arrivals[i].missing)
			return i;
	if (most < 0)
		most = untold;
	if (most >= 0)
		return most;
	for (int i = 0; i < facts->size; i++)
		if (ended_badly(&facts->ranks[i]) &&
		    (most < 0 || is_earlier(&facts->ranks[i], &facts->ranks[most])))
			most = i;
	return most;
}

static void judge_end(struct facts *facts, const int *votes)
{
	int first = -1, untold = find_untold(facts);

	judge_kills(facts);
	for (int i = 0; i < facts->size; i++) {
		const struct facts_rank *rank = &facts->ranks[i];

		if (!rank->follows && ended_badly(rank) &&
		    (first < 0 || is_earlier(rank, &facts->ranks[first])))
			first = i;
	}
	/* srun kills the others where it loses a slurmstepd. */
	if (untold >= 0 && first >= 0 && signal_of(&facts->ranks[first]) == SIGKILL)
		first = untold;
	/* Who is on a node that is lost says nothing. */
	for (int i = 0; i < facts->size && (first < 0 || facts_is_kind(facts, "node")); i++)
		if (is_lost(facts, &facts->ranks[i])) {
			first = i;
			facts->ranks[i].how = FACTS_NODE;
			break;
		}
	facts->first = first < 0 ? find_culprit(facts, votes, untold) : first;
	if (facts->first < 0)
		return;
	facts->ranks[facts->first].follows = false;
	facts->ranks[facts->first].why[0] = '\0';
	if (untold >= 0 && !ended_badly(&facts->ranks[facts->first]) &&
	    facts->ranks[facts->first].how == FACTS_UNKNOWN)
		facts->ranks[facts->first].how = FACTS_SLURMSTEPD;
	if (first < 0 && votes[facts->first] > 0)
		snprintf(facts->ranks[facts->first].why, FACTS_WHY, "others name it");
	else if (first < 0 && facts->arrivals[facts->first].missing)
		snprintf(facts->ranks[facts->first].why, FACTS_WHY, "it %.200s",
			 facts->collectives);
	for (int i = 0; i < facts->size; i++)
		if (i != facts->first && ended_badly(&facts->ranks[i]) &&
		    !facts->ranks[i].follows && !facts->ranks[i].message)
			follow(&facts->ranks[i], "ended later");
}

/* --- Hangs ----------------------------------------------------------------------------------- */

static const char *describe_state(const struct facts_rank *rank)
{
	switch (rank->state) {
	case 'T':
	case 't':
		return "it is stopped";
	case 'Z':
	case 'X':
		return "its process has ended, and nothing has taken note of it";
	case '-':
		return "it has no process on its node any more";
	default:
		return rank->parent[0] && strcmp(rank->parent, "slurmstepd") != 0
			       ? "the slurmstepd that started it is gone"
			       : NULL;
	}
}

static int stand_out(struct facts *facts, int rank, const char *format, ...) DDP_FORMAT(3, 4);
static int stand_out(struct facts *facts, int rank, const char *format, ...)
{
	struct facts_rank *of = &facts->ranks[rank];
	va_list arguments;

	of->follows = false;
	va_start(arguments, format);
	vsnprintf(of->why, sizeof(of->why), format, arguments);
	va_end(arguments);
	return rank;
}

/* The rank whose heart stopped long before that of another did; -1: none. */
static int find_silent_heart(const struct facts *facts)
{
	int oldest = -1;
	double newest = 0;

	for (int i = 0; i < facts->size; i++) {
		double beat = facts->ranks[i].beat;

		if (beat < 0)
			continue;
		if (oldest < 0 || beat < newest)
			newest = beat;
		if (oldest < 0 || beat > facts->ranks[oldest].beat)
			oldest = i;
	}
	return oldest >= 0 && facts->ranks[oldest].beat > newest + LONG_BEFORE ? oldest : -1;
}

static void judge_hang(struct facts *facts)
{
	int silent;

	for (int i = 0; i < facts->size; i++) {
		/* What the end of the step did to it comes after. */
		facts->ranks[i].follows = false;
		facts->ranks[i].why[0] = '\0';
	}
	for (int i = 0; i < facts->size; i++)
		if (is_lost(facts, &facts->ranks[i])) {
			facts->first = stand_out(facts, i, "its node does not answer");
			return;
		}
	for (int i = 0; i < facts->size; i++)
		if (describe_state(&facts->ranks[i])) {
			facts->first = stand_out(facts, i, "%s", describe_state(&facts->ranks[i]));
			return;
		}
	for (int i = 0; i < facts->size; i++)
		if (facts->arrivals[i].missing) {
			facts->first = stand_out(facts, i, "it %s", facts->collectives);
			return;
		}
	silent = find_silent_heart(facts);
	if (silent >= 0)
		facts->first = stand_out(facts, silent,
					 "its heart beat last %.0f s ago, those of others later",
					 facts->ranks[silent].beat);
	for (int i = 0; i < facts->size && silent < 0; i++)
		if (facts->ranks[i].state == 'D')
			silent = facts->first = stand_out(
				facts, i, "it waits in the kernel, for a disk or a file server");
}

/* --- All of it ------------------------------------------------------------------------------- */

static void judge_collectives(struct facts *facts)
{
	bool any = false;

	for (int i = 0; i < facts->size; i++)
		any = any || facts->arrivals[i].there;
	if (any || flight_arrivals(&facts->flight, facts->arrivals, facts->size))
		ddp_arrival_describe(facts->arrivals, facts->size, facts->collectives,
				     sizeof(facts->collectives));
}

/* Nobody failed where the step was ended from outside. */
static bool was_ended(const struct facts *facts)
{
	return facts_is_kind(facts, "cancelled") || facts_is_kind(facts, "timelimit") ||
	       facts_is_kind(facts, "steplimit") || facts_is_kind(facts, "preempted") ||
	       facts_is_kind(facts, "refused");
}

void facts_judge(struct facts *facts)
{
	int *votes = calloc((size_t)facts->size + 1, sizeof(*votes));

	facts->first = -1;
	judge_collectives(facts);
	for (int i = 0; i < facts->size && votes; i++) {
		bool ours = learn(facts, i);
		int named = judge_words(&facts->ranks[i], i, ours);

		if (named >= 0 && named < facts->size)
			votes[named]++;
	}
	if (facts_is_kind(facts, "hang"))
		judge_hang(facts);
	else if (votes && !was_ended(facts))
		judge_end(facts, votes);
	free(votes);
}
