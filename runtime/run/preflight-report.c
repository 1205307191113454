/* SPDX-License-Identifier: Apache-2.0 */
/* preflight-report.c - print and store the results of a preflight */
#include "config.h"

#include "preflight-report.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define FILE_NAME "preflight.json"

static const char *node_name(const struct preflight_results *results, int node)
{
	return results->nodes->name[node];
}

/* Returns 0 for a number that would be printed as -0.00. */
static double without_minus(double value)
{
	return fabs(value) < 0.005 ? 0 : value;
}

static void add_value(struct ddp_text *cells, double value, const char *unit)
{
	int digits = *unit && fabs(value) < 10 ? 2 : 0; /* a value without a unit is a count */

	if (!isnan(value))
		ddp_text_add(cells, "%.*f%s%s", digits, without_minus(value), *unit ? " " : "",
			     unit);
}

static void add_cells(struct ddp_text *cells, const struct preflight_results *results,
		      const struct preflight_row *row)
{
	ddp_text_plain(cells, row->node < 0 ? "all" : node_name(results, row->node));
	if (row->partner >= 0) {
		ddp_text_add(cells, ", ");
		ddp_text_plain(cells, node_name(results, row->partner));
	}
	ddp_text_add(cells, "\t%s\t", row->test);
	add_value(cells, row->value, row->unit);
	ddp_text_add(cells, "\t");
	if (row->verdict != PREFLIGHT_OK)
		add_value(cells, row->median, row->unit);
	ddp_text_add(cells, "\t%s\t", preflight_word(row->verdict));
	ddp_text_plain(cells, row->text);
	ddp_text_add(cells, "\t");
}

/*
 * Add one line for all results that passed and have the test and kind of result [first]. Returns
 * false, and adds nothing, if an earlier result has this test and kind.
 */
static bool add_summary(struct ddp_text *cells, const struct preflight_results *results,
			size_t first)
{
	const struct preflight_row *of = &results->rows[first];
	bool is_of_gpu = strncmp(of->test, "GPU", 3) == 0 && strcmp(of->test, "GPU sum") != 0;
	double low = (double)INFINITY, high = -(double)INFINITY;
	size_t count = 0;

	for (size_t i = 0; i < results->count; i++) {
		const struct preflight_row *row = &results->rows[i];

		if (row->verdict != PREFLIGHT_OK || strcmp(row->test, of->test) != 0 ||
		    strcmp(row->kind, of->kind) != 0)
			continue;
		if (i < first)
			return false;
		count++;
		low = fmin(low, row->value);
		high = fmax(high, row->value);
	}
	ddp_text_add(cells, "%zu %s%s\t%s\t", count,
		     of->partner >= 0			? "pair"
		     : is_of_gpu			? "GPU"
		     : strcmp(of->test, "program") == 0 ? "file"
							: "node",
		     count == 1 ? "" : "s", of->test);
	if (low < high)
		ddp_text_add(cells, "%.*f to ", *of->unit && fabs(low) < 10 ? 2 : 0,
			     without_minus(low));
	if (low <= high)
		add_value(cells, high, of->unit);
	ddp_text_add(cells, "\t");
	add_value(cells, of->median, of->unit);
	ddp_text_add(cells, "\t%s\t\t", preflight_word(PREFLIGHT_OK));
	return true;
}

static size_t count_nodes(const struct preflight_results *results, enum preflight_verdict verdict)
{
	size_t count = 0;

	for (size_t i = 0; i < results->nodes->count; i++)
		count += results->verdicts[i] == verdict;
	return count;
}

/* Whether [row] needs no report. A pair is not tested if the time of one of its nodes was over. */
static bool is_good(const struct preflight_row *row)
{
	return row->verdict == PREFLIGHT_OK || row->verdict == PREFLIGHT_UNTESTED;
}

/* Add the table: passed rows share one line for each test, and every other row has its own line. */
static void add_table(struct ddp_text *text, const struct preflight_results *results)
{
	static const struct ddp_table_column columns[] = {{.head = "node", .words = true},
							  {.head = "test", .words = true},
							  {.head = "measured"},
							  {.head = "median"},
							  {.head = "verdict", .words = true},
							  {.head = "remark", .words = true}};
	struct ddp_text cells = {.data = NULL};

	for (size_t i = 0; i < results->count; i++)
		if (results->rows[i].verdict == PREFLIGHT_OK)
			(void)add_summary(&cells, results, i);
	for (int i = 0; i < 2; i++) {
		if (*results->all[i].test)
			add_cells(&cells, results, &results->all[i]);
		if (!*results->untested[i])
			continue;
		ddp_text_add(&cells, "%s\t%s\t\t\tnot tested\t", i ? "GPUs" : "pairs",
			     i ? "GPU sum" : "pair");
		ddp_text_plain(&cells, results->untested[i]);
		ddp_text_add(&cells, "\t");
	}
	for (size_t i = 0; i < results->count; i++)
		if (!is_good(&results->rows[i]))
			add_cells(&cells, results, &results->rows[i]);
	ddp_text_table(text, columns, sizeof(columns) / sizeof(columns[0]), &cells, SIZE_MAX);
	ddp_text_free(&cells);
}

/*
 * Whether [row] justifies draining a node. A low CPU time does not, because it depends on other
 * jobs. A slow rate that was compared with only a few others does not, either.
 */
static bool is_drain_reason(const struct preflight_row *row)
{
	return row->verdict > PREFLIGHT_SLOW ||
	       (row->verdict == PREFLIGHT_SLOW &&
		(!row->is_rate ||
		 (row->compared >= PREFLIGHT_SPREAD_LEAST && strcmp(row->test, "CPU time") != 0)));
}

/*
 * Whether [row] is about a pair of [node] with a node that has failed. The failure of the other
 * node then explains the row's verdict.
 */
static bool is_explained(const struct preflight_results *results, const struct preflight_row *row,
			 int node)
{
	return row->partner >= 0 &&
	       results->verdicts[row->node == node ? row->partner : row->node] >= PREFLIGHT_FAILED;
}

/*
 * Whether [a] explains the verdict on [node] better than [b] does. A failed test of the node alone
 * is better than a failed pair, because pairs also fail after the node's process has ended.
 */
static bool is_better_reason(const struct preflight_results *results, int node,
			     const struct preflight_row *a, const struct preflight_row *b)
{
	bool failed = a->verdict >= PREFLIGHT_FAILED && b->verdict >= PREFLIGHT_FAILED;

	if (is_explained(results, a, node) != is_explained(results, b, node))
		return is_explained(results, b, node);
	if (a->verdict == b->verdict && is_drain_reason(a) != is_drain_reason(b))
		return is_drain_reason(a);
	if ((a->partner < 0) != (b->partner < 0) && (failed || a->verdict == b->verdict))
		return a->partner < 0;
	return a->verdict > b->verdict;
}

/*
 * Returns the row that explains best why [node] failed or is slow, or NULL if there is none. It is
 * a row about the node, or about one of its pairs. Failures on all nodes are not considered.
 */
static const struct preflight_row *find_reason(const struct preflight_results *results, int node)
{
	const struct preflight_row *reason = NULL;

	for (size_t i = 0; i < results->count; i++) {
		const struct preflight_row *row = &results->rows[i];

		if ((row->node == node || row->partner == node) && !row->is_shared &&
		    (!reason || is_better_reason(results, node, row, reason)))
			reason = row;
	}
	return reason;
}

static void add_reason(struct ddp_text *text, const struct preflight_row *row)
{
	bool is_compared = row->verdict < PREFLIGHT_FAILED && !isnan(row->median);

	ddp_text_add(text, "%s%s: ", row->test, row->partner >= 0 ? "s" : "");
	if (is_compared) {
		add_value(text, row->value, row->unit);
		ddp_text_add(text, ", median ");
		add_value(text, row->median, row->unit);
	}
	if (*row->text) {
		ddp_text_add(text, "%s", is_compared ? ", " : "");
		ddp_text_plain(text, row->text);
	} else if (!is_compared) {
		ddp_text_add(text, "%s", preflight_word(row->verdict));
	}
}

/* Returns the first slow or failed pair that counts for neither of its two nodes; NULL: none. */
static const struct preflight_row *find_unassigned(const struct preflight_results *results)
{
	for (size_t i = 0; i < results->count; i++) {
		const struct preflight_row *row = &results->rows[i];

		enum preflight_verdict least =
			row->verdict > PREFLIGHT_FAILED ? PREFLIGHT_FAILED : row->verdict;

		if (row->partner >= 0 && !row->is_shared && least > PREFLIGHT_OK &&
		    results->verdicts[row->node] < least && results->verdicts[row->partner] < least)
			return row;
	}
	return NULL;
}

static void add_untested(struct ddp_text *text, const struct preflight_results *results)
{
	size_t count = count_nodes(results, PREFLIGHT_UNTESTED);

	for (size_t i = 0, named = 0; i < results->nodes->count && count > 0; i++)
		if (results->verdicts[i] == PREFLIGHT_UNTESTED)
			ddp_text_add(text, "%s%s",
				     named++ ? ","
					     : "nodes that are used although some tests did not "
					       "run: ",
				     node_name(results, (int)i));
	ddp_text_add(text, "%s", count > 0 ? "\n" : "");
}

/* Whether an earlier row already reports that this test failed on all nodes. */
static bool is_repeated(const struct preflight_results *results, size_t row)
{
	for (size_t i = 0; i < row; i++)
		if (results->rows[i].is_shared &&
		    strcmp(results->rows[i].test, results->rows[row].test) == 0 &&
		    strcmp(results->rows[i].kind, results->rows[row].kind) == 0)
			return true;
	return false;
}

/* Add a line for each test that has failed on all nodes. */
static void add_shared(struct ddp_text *text, const struct preflight_results *results)
{
	for (size_t i = 0; i < results->count; i++) {
		const struct preflight_row *row = &results->rows[i];

		if (!row->is_shared || is_repeated(results, i))
			continue;
		ddp_text_add(text, "test %s failed on all %s, so the cause is %s and not a node: ",
			     row->test, row->partner < 0 ? "nodes" : "pairs",
			     preflight_find_cause(results->rows, results->count, row));
		ddp_text_plain(text, row->text);
		ddp_text_add(text, "\n");
	}
}

static void add_report(struct ddp_text *text, const struct preflight_results *results)
{
	size_t failed =
		count_nodes(results, PREFLIGHT_FAILED) + count_nodes(results, PREFLIGHT_SILENT);
	size_t slow = count_nodes(results, PREFLIGHT_SLOW);
	const struct preflight_row *pair = find_unassigned(results);

	ddp_text_add(text, "preflight of %zu node%s in %.1f s", results->nodes->count,
		     results->nodes->count == 1 ? "" : "s", results->took);
	if (results->rounds_wanted > 0)
		ddp_text_add(text, ", %d of %d rounds of pairs", results->rounds,
			     results->rounds_wanted);
	ddp_text_add(text, ": %zu failed, %zu slow\n", failed, slow);
	add_table(text, results);
	for (size_t i = 0; i < results->nodes->count; i++) {
		const struct preflight_row *reason = find_reason(results, (int)i);
		enum preflight_verdict verdict = results->verdicts[i];

		if (verdict == PREFLIGHT_OK || verdict == PREFLIGHT_UNTESTED || !reason)
			continue;
		ddp_text_add(text, "node %s %s in test ", node_name(results, (int)i),
			     verdict == PREFLIGHT_DIFFERS ? "differs"
			     : verdict == PREFLIGHT_SLOW  ? "is slow"
							  : "has failed");
		add_reason(text, reason);
		ddp_text_add(text, "\n");
		if (!is_drain_reason(reason))
			continue;
		ddp_text_add(
			text,
			"  an administrator would type: scontrol update nodename=%s state=drain reason=\"",
			node_name(results, (int)i));
		add_reason(text, reason);
		ddp_text_add(text, "\"\n");
	}
	add_untested(text, results);
	add_shared(text, results);
	if (pair)
		ddp_text_add(
			text,
			"the test of the pair %s and %s does not show which of these nodes is the "
			"cause\n",
			node_name(results, pair->node), node_name(results, pair->partner));
}

static void put_row(struct ddp_text *text, const struct preflight_results *results,
		    const struct preflight_row *row)
{
	ddp_put_begin(text, NULL, '{');
	ddp_put_string(text, "node", row->node < 0 ? NULL : node_name(results, row->node));
	if (row->partner >= 0)
		ddp_put_string(text, "partner", node_name(results, row->partner));
	ddp_put_string(text, "test", row->test);
	ddp_put_string(text, "kind", row->kind);
	ddp_put_number(text, "value", row->value);
	ddp_put_string(text, "unit", row->unit);
	ddp_put_number(text, "median", row->median);
	ddp_put_string(text, "verdict", preflight_word(row->verdict));
	ddp_put_string(text, "text", row->text);
	ddp_text_add(text, "}");
}

/* Write preflight.json. If it cannot be written, prints a message and returns false. */
static bool write_json(const struct preflight_results *results, const char *dir, const char *report)
{
	struct ddp_text text = {.data = NULL};
	struct ddp_error error;
	bool written;

	ddp_put_begin(&text, NULL, '{');
	ddp_put_number(&text, "seconds", results->took);
	ddp_put_count(&text, "rounds", (uint64_t)results->rounds);
	if (*results->untested[0])
		ddp_put_string(&text, "untested", results->untested[0]);
	if (*results->untested[1])
		ddp_put_string(&text, "untested_gpus", results->untested[1]);
	ddp_put_number(&text, "slow", results->slow);
	ddp_put_begin(&text, "nodes", '{');
	for (size_t i = 0; i < results->nodes->count; i++)
		ddp_put_string(&text, node_name(results, (int)i),
			       preflight_word(results->verdicts[i]));
	ddp_text_add(&text, "}");
	ddp_put_begin(&text, "tests", '[');
	for (size_t i = 0; i < results->count; i++)
		put_row(&text, results, &results->rows[i]);
	for (int i = 0; i < 2; i++)
		if (*results->all[i].test)
			put_row(&text, results, &results->all[i]);
	ddp_text_add(&text, "]");
	ddp_put_string(&text, "report", report);
	ddp_text_add(&text, "}\n");
	written = !text.failed && ddp_file_write_text(dir, FILE_NAME, &text, &error) == 0;
	if (!text.failed && !written)
		fprintf(stderr, "ddp-run: %s\n", error.text);
	ddp_text_free(&text);
	return written;
}

bool preflight_report(const struct preflight_results *results, const char *dir)
{
	bool good = is_good(&results->all[0]) && is_good(&results->all[1]);
	struct ddp_text text = {.data = NULL};
	bool written = false;

	for (size_t i = 0; i < results->count; i++)
		good = good && is_good(&results->rows[i]);
	add_report(&text, results);
	if (!text.failed) {
		fprintf(stderr, "ddp-run: %s", text.data);
		written = *dir && write_json(results, dir, text.data);
	}
	ddp_text_free(&text);
	return written && !good;
}
