/* SPDX-License-Identifier: Apache-2.0 */
/* preflight-verdict.c - compare the nodes' results, and decide which nodes failed or are slow */
#include "config.h"

#include "preflight-verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

#define SPREADS 2.0	  /* standard deviations below the median at which a value is slow */
#define CLOCK_MOST 1.0	  /* largest offset of a clock, in seconds */
#define CONFIG_MOST 0.005 /* fraction by which equal values can differ, for example of memory */

const char *preflight_word(enum preflight_verdict verdict)
{
	static const char *const words[] = {
#define PREFLIGHT_VERDICT(name, word) word,
		PREFLIGHT_VERDICTS(PREFLIGHT_VERDICT)
#undef PREFLIGHT_VERDICT
	};

	return words[verdict];
}

bool preflight_replaces(const struct preflight_row *newer, const struct preflight_row *older)
{
	bool is_same_run = newer->run == older->run;

	if (newer->is_rate && older->is_rate)
		return newer->value >= older->value;
	if (newer->verdict == PREFLIGHT_UNTESTED)
		return is_same_run && isnan(older->value);
	if (older->verdict == PREFLIGHT_UNTESTED && is_same_run)
		return !isnan(newer->value);
	return newer->verdict >= older->verdict ||
	       (!is_same_run && older->verdict != PREFLIGHT_FAILED);
}

/* --- Comparisons with other nodes ----------------------------------------------------------- */

static bool is_clock(const struct preflight_row *row)
{
	return strcmp(row->test, PREFLIGHT_CLOCK) == 0;
}

static bool is_compared(const struct preflight_row *row)
{
	return (row->is_rate || row->is_config || is_clock(row)) &&
	       row->verdict < PREFLIGHT_FAILED && !isnan(row->value);
}

static int compare_rows(const void *a, const void *b)
{
	const struct preflight_row *x = *(struct preflight_row *const *)a,
				   *y = *(struct preflight_row *const *)b;
	int order = strcmp(x->test, y->test);

	if (order == 0)
		order = strcmp(x->kind, y->kind);
	return order ? order : (x->value > y->value) - (x->value < y->value);
}

static int compare_numbers(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/*
 * Returns the standard deviation of [count] sorted rows. It is estimated from the median distance
 * to [median], so that outliers have little effect.
 */
static double find_spread(struct preflight_row *const *sorted, size_t count, double median)
{
	double *distances = ddp_xcalloc(count, sizeof(*distances), "distances"), spread;

	for (size_t i = 0; i < count; i++)
		distances[i] = fabs(sorted[i]->value - median);
	qsort(distances, count, sizeof(*distances), compare_numbers);
	spread = 1.4826 * distances[count / 2];
	free(distances);
	return spread;
}

/* Set the median of rates, and mark the slow ones. The larger of two rates is their median. */
static void mark_rates(struct preflight_row **sorted, size_t count, double slow)
{
	double median = sorted[count / 2]->value, limit = slow * median;

	if (count >= PREFLIGHT_SPREAD_LEAST)
		limit = fmin(limit, fmax(median - SPREADS * find_spread(sorted, count, median),
					 limit / 3));
	for (size_t i = 0; i < count; i++) {
		sorted[i]->median = median;
		sorted[i]->compared = count;
		sorted[i]->verdict = sorted[i]->value < limit ? PREFLIGHT_SLOW : PREFLIGHT_OK;
	}
}

/*
 * If exactly one value differs from all others, mark it. If several differ, the nodes are probably
 * not meant to be equal.
 */
static void mark_config(struct preflight_row **sorted, size_t count)
{
	double equal = sorted[count / 2]->value, most = CONFIG_MOST * fabs(equal);
	size_t different = 0;

	for (size_t i = 0; i < count; i++)
		different += fabs(sorted[i]->value - equal) > most;
	for (size_t i = 0; i < count; i++) {
		sorted[i]->median = equal;
		sorted[i]->verdict =
			count > 2 && different == 1 && fabs(sorted[i]->value - equal) > most
				? PREFLIGHT_DIFFERS
				: PREFLIGHT_OK;
	}
}

/*
 * Compare clocks with their median, so that a wrong clock of ddp-run's host is not an error of all
 * nodes. Compare fewer than three clocks with that of ddp-run's host.
 */
static void mark_clocks(struct preflight_row **sorted, size_t count)
{
	double right = count < 3 ? 0 : sorted[count / 2]->value;

	for (size_t i = 0; i < count; i++) {
		struct preflight_row *row = sorted[i];
		double offset = row->value - right;

		row->verdict = fabs(offset) > CLOCK_MOST ? PREFLIGHT_SLOW : PREFLIGHT_OK;
		row->text[0] = '\0';
		if (row->verdict == PREFLIGHT_SLOW)
			snprintf(row->text, sizeof(row->text), "its clock is %.1f s %s",
				 fabs(offset), offset > 0 ? "ahead" : "behind");
	}
}

/* Compare rows with the same test and kind with each other, and set their medians and verdicts. */
static void mark_rows(struct preflight_row *rows, size_t count, double slow)
{
	struct preflight_row **sorted =
		ddp_xcalloc(count + 1, sizeof(struct preflight_row *), "rows");
	size_t compared = 0, first = 0;

	for (size_t i = 0; i < count; i++) {
		rows[i].median = (double)NAN;
		if (is_compared(&rows[i]))
			sorted[compared++] = &rows[i];
	}
	qsort(sorted, compared, sizeof(struct preflight_row *), compare_rows);
	for (size_t i = 1; i <= compared; i++) {
		if (i < compared && strcmp(sorted[i]->test, sorted[first]->test) == 0 &&
		    strcmp(sorted[i]->kind, sorted[first]->kind) == 0)
			continue;
		if (sorted[first]->is_rate)
			mark_rates(sorted + first, i - first, slow);
		else if (sorted[first]->is_config)
			mark_config(sorted + first, i - first);
		else
			mark_clocks(sorted + first, i - first);
		first = i;
	}
	free(sorted);
}

/* --- Nodes --------------------------------------------------------------------------------- */

/* Number of a node's pairs that were tested, and number of them that are slow or failed. */
struct pairs {
	int all, bad;
};

static bool is_pair(const struct preflight_row *row, const char *test)
{
	return row->partner >= 0 && strcmp(row->test, test) == 0;
}

/*
 * Count the pairs of each node in [test]. Pairs with a node whose verdict is already [level] or
 * worse do not count.
 */
static void count_pairs(const struct preflight_row *rows, size_t count, const char *test,
			const enum preflight_verdict *verdicts, enum preflight_verdict level,
			struct pairs *pairs)
{
	for (size_t i = 0; i < count; i++) {
		bool bad = rows[i].verdict >= level;

		if (!is_pair(&rows[i], test) || rows[i].is_shared ||
		    rows[i].verdict == PREFLIGHT_UNTESTED || verdicts[rows[i].node] >= level ||
		    verdicts[rows[i].partner] >= level)
			continue;
		pairs[rows[i].node].all++;
		pairs[rows[i].partner].all++;
		pairs[rows[i].node].bad += bad;
		pairs[rows[i].partner].bad += bad;
	}
}

/*
 * Whether at least two nodes did not answer in the test of [row], and no node answered. A node that
 * failed in another test is not considered, because it may not have started this one.
 */
static bool is_silent_everywhere(const struct preflight_row *rows, size_t count,
				 const struct preflight_row *row)
{
	bool *silent, *failed, answered = row->partner >= 0;
	int nodes = 0, silent_count = 0, rest = 0;

	for (size_t i = 0; i < count; i++)
		if (rows[i].node >= nodes)
			nodes = rows[i].node + 1;
	silent = ddp_xcalloc((size_t)nodes + 1, 2 * sizeof(*silent), "answers of nodes");
	failed = silent + nodes;
	for (size_t i = 0; i < count && !answered; i++) {
		if (rows[i].partner >= 0 || rows[i].node < 0)
			continue;
		if (strcmp(rows[i].test, row->test) != 0)
			failed[rows[i].node] |= rows[i].verdict >= PREFLIGHT_FAILED;
		else if (rows[i].verdict == PREFLIGHT_SILENT)
			silent[rows[i].node] = true;
		else
			answered = true;
	}
	for (int i = 0; i < nodes; i++) {
		silent_count += silent[i];
		rest += !silent[i] && !failed[i];
	}
	free(silent);
	return !answered && silent_count >= 2 && rest == 0;
}

const char *preflight_find_cause(const struct preflight_row *rows, size_t count,
				 const struct preflight_row *row)
{
	static const struct {
		const char *test, *cause;
		size_t least; /* minimum number of failures */
	} causes[] = {{"program", "the command", 1},
		      {"directory", "the directory", 1},
		      {"rendezvous", "the rendezvous directory", 1},
		      {"GPU sum", "NCCL or its settings", 2},
		      {PREFLIGHT_PAIR, "the network or its settings", 2},
		      {PREFLIGHT_GPU_PAIR, "the network or its settings", 2}};
	bool is_program = strcmp(row->test, causes[0].test) == 0; /* its rows' kind is the file */
	size_t failed = 0;

	for (size_t i = 0; i < count; i++) {
		if (strcmp(rows[i].test, row->test) != 0 || rows[i].verdict == PREFLIGHT_UNTESTED ||
		    (is_program && strcmp(rows[i].kind, row->kind) != 0))
			continue;
		if (rows[i].verdict < PREFLIGHT_FAILED)
			return NULL;
		failed++;
	}
	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
		if (strcmp(causes[i].test, row->test) == 0 && failed >= causes[i].least)
			return causes[i].cause;
	return is_silent_everywhere(rows, count, row) ? "the load or --preflight-limit" : NULL;
}

/*
 * Select the node with the most slow or failed pairs, if there are enough of them. Then select the
 * next node in the same way, without the pairs of the first node, and so on.
 */
static void find_causes(const struct preflight_row *rows, size_t count, const char *test, int nodes,
			enum preflight_verdict level, enum preflight_verdict *verdicts)
{
	struct pairs *pairs;
	int worst;

	pairs = ddp_xcalloc((size_t)nodes + 1, sizeof(*pairs), "pairs of nodes");
	do {
		memset(pairs, 0, (size_t)nodes * sizeof(*pairs));
		count_pairs(rows, count, test, verdicts, level, pairs);
		worst = -1;
		for (int i = 0; i < nodes; i++)
			if (pairs[i].bad >= 2 && 2 * pairs[i].bad >= pairs[i].all &&
			    (worst < 0 || pairs[i].bad > pairs[worst].bad))
				worst = i;
		if (worst >= 0)
			verdicts[worst] = level;
	} while (worst >= 0);
	free(pairs);
}

void preflight_judge(struct preflight_row *rows, size_t count, int nodes, double slow,
		     enum preflight_verdict *verdicts)
{
	mark_rows(rows, count, slow);
	for (size_t i = 0; i < count; i++)
		rows[i].is_shared = rows[i].verdict >= PREFLIGHT_FAILED &&
				    preflight_find_cause(rows, count, &rows[i]);
	for (int i = 0; i < nodes; i++)
		verdicts[i] = PREFLIGHT_OK;
	for (size_t i = 0; i < count; i++)
		if (rows[i].partner < 0 && !rows[i].is_shared &&
		    rows[i].verdict > verdicts[rows[i].node])
			verdicts[rows[i].node] = rows[i].verdict;
	for (enum preflight_verdict level = PREFLIGHT_FAILED; level >= PREFLIGHT_SLOW; level--) {
		find_causes(rows, count, PREFLIGHT_PAIR, nodes, level, verdicts);
		find_causes(rows, count, PREFLIGHT_GPU_PAIR, nodes, level, verdicts);
	}
}

/* --- Nodes that wait ----------------------------------------------------------------------- */

/* Returns the node for which [node] waits, and which is not past this round; -1: none. */
static int find_awaited(const struct preflight_node *nodes, int node)
{
	int partner = nodes[node].partner;

	if (partner < 0 || nodes[partner].round > nodes[node].round ||
	    (nodes[partner].round == nodes[node].round && nodes[partner].partner < 0))
		return -1;
	return partner;
}

bool preflight_is_blocked(const struct preflight_node *nodes, int count, int node)
{
	int reason = node, next;

	/* A chain longer than [count] is a cycle. */
	for (int i = 0; i < count && (next = find_awaited(nodes, reason)) >= 0; i++)
		reason = next;
	if (find_awaited(nodes, reason) >= 0)
		return true;
	return !nodes[reason].has_ended || nodes[reason].round < 0;
}
