/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "preflight-verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

#define SPREADS 2.0    /* standard deviations below the median at which a value is slow */
#define CLOCK_MOST 1.0 /* largest offset of a clock, in seconds */

const char *preflight_word(enum preflight_verdict verdict)
{
	static const char *const words[] = {
#define PREFLIGHT_VERDICT(name, word) word,
		PREFLIGHT_VERDICTS(PREFLIGHT_VERDICT)
#undef PREFLIGHT_VERDICT
	};

	return words[verdict];
}

/* --- The tournament ------------------------------------------------------------------------ */

int preflight_rounds(int nodes, bool full)
{
	int all = nodes < 2 ? 0 : nodes - 1 + nodes % 2, rounds = 1;

	for (int reached = 1; reached < nodes; reached *= 2)
		rounds++;
	return full || rounds > all ? all : rounds;
}

/*
 * Use the circle method: if the number of nodes is even, the last node keeps its position on the
 * circle, and the others move by one position in each round.
 */
void preflight_pairs(int nodes, int round, int *partner)
{
	int places = nodes + nodes % 2, circle = places - 1;

	for (int i = 0; i < nodes; i++) {
		/*
		 * Two nodes are partners if the sum of their numbers is 2 * round, modulo the size
		 * of the circle.
		 */
		int other =
			i == circle ? round % circle : (2 * (round % circle) + circle - i) % circle;

		if (other == i)
			other = circle;
		partner[i] = other < nodes ? other : -1;
	}
}

/* --- Medians ------------------------------------------------------------------------------- */

static bool is_compared(const struct preflight_row *row)
{
	return row->is_rate && row->verdict < PREFLIGHT_FAILED && !isnan(row->value);
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

/* Mark the slow rows of one test and kind. The median of two values is the larger one. */
static void mark_group(struct preflight_row **sorted, size_t count, double slow)
{
	double median = sorted[count / 2]->value, limit = slow * median;

	if (count >= PREFLIGHT_SPREAD_LEAST)
		limit = fmin(limit, fmax(median - SPREADS * find_spread(sorted, count, median),
					 limit / 3));
	for (size_t i = 0; i < count; i++) {
		sorted[i]->median = median;
		sorted[i]->compared = count;
		sorted[i]->verdict = fmax(sorted[i]->value, sorted[i]->most) < limit
					     ? PREFLIGHT_SLOW
					     : PREFLIGHT_OK;
	}
}

static void mark_slow(struct preflight_row *rows, size_t count, double slow)
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
	for (size_t i = 1; i <= compared; i++)
		if (i == compared || strcmp(sorted[i]->test, sorted[first]->test) != 0 ||
		    strcmp(sorted[i]->kind, sorted[first]->kind) != 0) {
			mark_group(sorted + first, i - first, slow);
			first = i;
		}
	free(sorted);
}

/* --- Clocks -------------------------------------------------------------------------------- */

static bool is_clock(const struct preflight_row *row)
{
	return row->verdict < PREFLIGHT_FAILED && strcmp(row->test, PREFLIGHT_CLOCK) == 0;
}

/*
 * Returns the row of the right clock: the median, so that a wrong clock of ddp-run's host is not an
 * error of all nodes. Of fewer than three clocks, returns NULL: that of ddp-run's host is right.
 */
static const struct preflight_row *find_right_clock(const struct preflight_row *rows, size_t count)
{
	const struct preflight_row **clocks = ddp_xcalloc(count + 1, sizeof(*clocks), "clocks"),
				   *right;
	size_t number = 0;

	for (size_t i = 0; i < count; i++)
		if (is_clock(&rows[i]))
			clocks[number++] = &rows[i];
	qsort(clocks, number, sizeof(*clocks), compare_rows);
	right = number < 3 ? NULL : clocks[number / 2];
	free(clocks);
	return right;
}

static void mark_clocks(struct preflight_row *rows, size_t count)
{
	const struct preflight_row *right = find_right_clock(rows, count);
	double middle = right ? right->value : 0, most = right ? right->most - right->value : 0;

	most += CLOCK_MOST;
	for (size_t i = 0; i < count; i++) {
		double offset = rows[i].value - middle, width = rows[i].most - rows[i].value;

		if (!is_clock(&rows[i]))
			continue;
		rows[i].verdict = fabs(offset) - width > most ? PREFLIGHT_SLOW : PREFLIGHT_OK;
		rows[i].text[0] = '\0';
		if (rows[i].verdict == PREFLIGHT_SLOW)
			snprintf(rows[i].text, sizeof(rows[i].text), "its clock is %.1f s %s",
				 fabs(offset), offset > 0 ? "ahead" : "behind");
	}
}

/* --- Nodes --------------------------------------------------------------------------------- */

/* Numbers of a node's pairs that were tested, and that are slow or failed. */
struct pairs {
	int all, bad;
};

static bool is_pair(const struct preflight_row *row, const char *test)
{
	return row->partner >= 0 && strcmp(row->test, test) == 0;
}

/*
 * For each node, count its pairs in [test], except pairs with a node whose verdict is already
 * [level] or worse.
 */
static void count_pairs(const struct preflight_row *rows, size_t count, const char *test,
			const enum preflight_verdict *verdicts, enum preflight_verdict level,
			struct pairs *pairs)
{
	for (size_t i = 0; i < count; i++) {
		bool bad = rows[i].verdict >= level;

		if (!is_pair(&rows[i], test) || verdicts[rows[i].node] >= level ||
		    verdicts[rows[i].partner] >= level)
			continue;
		pairs[rows[i].node].all++;
		pairs[rows[i].partner].all++;
		pairs[rows[i].node].bad += bad;
		pairs[rows[i].partner].bad += bad;
	}
}

bool preflight_all_pairs_failed(const struct preflight_row *rows, size_t count, const char *test)
{
	size_t pairs = 0, failed = 0;

	for (size_t i = 0; i < count; i++) {
		pairs += is_pair(&rows[i], test);
		failed += is_pair(&rows[i], test) && rows[i].verdict >= PREFLIGHT_FAILED;
	}
	return pairs > 1 && failed == pairs;
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

	if (preflight_all_pairs_failed(rows, count, test))
		return;
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
	mark_slow(rows, count, slow);
	mark_clocks(rows, count);
	for (int i = 0; i < nodes; i++)
		verdicts[i] = PREFLIGHT_OK;
	for (size_t i = 0; i < count; i++)
		if (rows[i].partner < 0 && rows[i].verdict > verdicts[rows[i].node])
			verdicts[rows[i].node] = rows[i].verdict;
	for (enum preflight_verdict level = PREFLIGHT_FAILED; level >= PREFLIGHT_SLOW; level--) {
		find_causes(rows, count, PREFLIGHT_PAIR, nodes, level, verdicts);
		find_causes(rows, count, PREFLIGHT_GPU_PAIR, nodes, level, verdicts);
	}
}
