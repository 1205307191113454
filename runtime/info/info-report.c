/* SPDX-License-Identifier: Apache-2.0 */
/* info-report.c - the report of ddp-info, as a table and as JSON */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/mps.h"
#include "base/text.h"
#include "info.h"

/* --- Tables for people --------------------------------------------------------------------- */

/* Add a cell, with control characters replaced by "?". */
static void add_cell(struct ddp_text *cells, const char *text)
{
	ddp_text_plain(cells, text);
	ddp_text_add(cells, "\t");
}

/* If the rank shares its GPU, add whether it uses MPS, and what MPS limits. */
static void add_mps(struct ddp_text *cells, const struct info_card *card)
{
	bool threads = card->threads > 0, memory = card->memory_limit[0];

	if (info_is_shared(card) && !info_through_mps(card)) {
		ddp_text_add(cells, "no");
	} else if (info_is_shared(card)) {
		if (threads)
			ddp_text_add(cells, "%.4g %% of threads", card->threads);
		if (memory)
			ddp_text_add(cells, "%s%s of memory", threads ? ", " : "",
				     card->memory_limit);
		ddp_text_add(cells, "%s", threads || memory ? "" : "no limits");
	}
	ddp_text_add(cells, "\t");
}

static void add_ranks(struct ddp_text *text, const struct info_report *report)
{
	static const struct ddp_table_column columns[] = {
		{.head = "rank"},
		{.head = "node", .words = true},
		{.head = "local"},
		{.head = "pid"},
		{.head = "CPUs", .words = true},
		{.head = "device"},
		{.head = "name", .words = true},
		{.head = "UUID", .words = true},
		{.head = "share"},
		{.head = "shared by", .words = true},
		{.head = "MPS", .words = true},
		{.head = "between nodes", .words = true},
		{.head = "endpoint reached", .words = true},
	};
	struct ddp_text cells = {.data = NULL};

	for (int rank = 0; rank < report->world->size; rank++) {
		const struct info_card *card = &report->cards[rank];

		ddp_text_add(&cells, "%d\t", card->rank);
		add_cell(&cells, card->host);
		ddp_text_add(&cells, "%d/%d\t%d\t%s\t", card->local_rank, card->local_size,
			     card->pid, card->cpu_list);
		ddp_text_add(&cells, card->device < 0 ? "\t" : "%d\t", card->device);
		add_cell(&cells, card->device_name);
		add_cell(&cells, card->uuid);
		ddp_text_add(&cells, card->share > 0 ? "%.4g\t" : "\t", card->share);
		add_cell(&cells, card->sharers);
		add_mps(&cells, card);
		add_cell(&cells, card->transport);
		add_cell(&cells, card->reached < 0 ? "" : card->reached ? "yes" : "NO");
	}
	ddp_text_table(text, columns, sizeof(columns) / sizeof(columns[0]), &cells, SIZE_MAX);
	ddp_text_free(&cells);
}

static void add_selftest(struct ddp_text *text, const struct info_selftest *test)
{
	static const struct ddp_table_column columns[] = {
		{.head = "  all-reduce"},
		{.head = "   median"},
		{.head = "     best"},
		{.head = " bandwidth"},
		{.head = "result", .words = true},
	};
	struct ddp_text cells = {.data = NULL};

	if (test->device)
		ddp_text_add(text, "\nin GPU memory, %s:\n", test->path);
	else
		ddp_text_add(text, "\n");
	for (int i = 0; i < test->count; i++) {
		const struct info_timing *timing = &test->timings[i];
		int shift = timing->bytes >= 1u << 20 ? 20 : timing->bytes >= 1u << 10 ? 10 : 0;
		const char *unit = shift == 20 ? "MiB" : shift == 10 ? "KiB" : "B";

		ddp_text_add(&cells, "%zu %s\t%.1f us\t%.1f us\t%.2f GB/s\t",
			     timing->bytes >> shift, unit, timing->median * 1e6, timing->best * 1e6,
			     (double)timing->bytes / timing->median * 1e-9);
		ddp_text_add(&cells, timing->wrong ? "WRONG in %llu elements\t" : "exact\t",
			     (unsigned long long)timing->wrong);
	}
	ddp_text_table(text, columns, sizeof(columns) / sizeof(columns[0]), &cells, SIZE_MAX);
	ddp_text_free(&cells);
}

/*
 * Add a line about how the ranks of one node are connected, if a node has several: by shared
 * memory, or by the engine that connects nodes.
 */
static void add_within(struct ddp_text *text, const struct info_report *report)
{
	const char *wide = report->world->wide;
	struct ddp_text apart = {.data = NULL};
	bool sharing = false;

	for (int rank = 0; rank < report->world->size; rank++) {
		const struct info_card *card = &report->cards[rank];

		if (card->local_size > 1 && card->group_size == card->local_size)
			sharing = true;
		else if (card->local_size > 1 && card->local_rank == 0)
			ddp_text_add(&apart, "%s%s", apart.data ? ", " : "", card->host);
	}
	if (sharing && apart.data)
		ddp_text_add(text, "within nodes: shared memory; %s on %s\n", wide, apart.data);
	else if (sharing || apart.data)
		ddp_text_add(text, "within nodes: %s\n", sharing ? "shared memory" : wide);
	ddp_text_free(&apart);
}

void info_report_table(const struct info_report *report, struct ddp_text *out)
{
	const struct ddp_world *world = report->world;

	ddp_text_add(
		out,
		"%s: %d rank%s on %d node%s, started by %s, rendezvous by %s, between nodes: %s\n",
		world->job, world->size, world->size > 1 ? "s" : "", world->node_count,
		world->node_count > 1 ? "s" : "", world->source, world->method, world->wide);
	if (report->cards[0].endpoint[0])
		ddp_text_add(out, "endpoint %s\n", report->cards[0].endpoint);
	add_within(out, report);
	ddp_text_add(out, "\n");
	add_ranks(out, report);
	ddp_text_add(out, report->warnings->count + report->advice->count ? "\n" : "");
	for (int i = 0; i < report->warnings->count; i++)
		ddp_text_add(out, "warning: %s\n", report->warnings->text[i]);
	for (int i = 0; i < report->advice->count; i++)
		ddp_text_add(out, "advice: %s\n", report->advice->text[i]);
	if (report->test)
		add_selftest(out, report->test);
}

/* --- JSON ---------------------------------------------------------------------------------- */

/* Write a text. An unknown value (an empty text, or below the number 0) is written as null. */
static void put_known(struct ddp_text *out, const char *key, const char *text)
{
	ddp_put_string(out, key, *text ? text : NULL);
}

static void put_positive(struct ddp_text *out, const char *key, double value)
{
	ddp_put_number(out, key, value > 0 ? value : (double)NAN);
}

static void put_card(struct ddp_text *out, const struct info_card *card)
{
	ddp_put_begin(out, NULL, '{');
	ddp_put_count(out, "rank", (uint64_t)card->rank);
	ddp_put_count(out, "node_rank", (uint64_t)card->node_rank);
	ddp_put_count(out, "local_rank", (uint64_t)card->local_rank);
	ddp_put_count(out, "local_size", (uint64_t)card->local_size);
	ddp_put_count(out, "group_size", (uint64_t)card->group_size);
	ddp_put_count(out, "pid", (uint64_t)card->pid);
	ddp_put_number(out, "device", card->device >= 0 ? card->device : (double)NAN);
	put_positive(out, "share", card->share);
	if (card->reached < 0)
		ddp_put_string(out, "endpoint_reached", NULL);
	else
		ddp_put_bool(out, "endpoint_reached", card->reached > 0);
	put_known(out, "node", card->host);
	put_known(out, "cpus", card->cpu_list);
	put_known(out, "device_name", card->device_name);
	put_known(out, "uuid", card->uuid);
	put_known(out, "libraries", card->libraries);
	put_known(out, "transport", card->transport);
	put_known(out, "gpu_of_node", card->slot);
	put_known(out, "trouble", card->trouble);
	put_positive(out, "memory_total", (double)card->total);
	put_positive(out, "memory_free", (double)card->free);
	put_positive(out, "memory_context", (double)card->context);
	put_positive(out, "memory_share", card->share * (double)card->total);
	ddp_text_add(out, "}");
}

static void put_sharing(struct ddp_text *out, const struct info_report *report,
			const struct info_sharing *sharing)
{
	const struct info_card *card = &report->cards[sharing->first];
	const char *daemon = card->mps == DDP_MPS_SERVES  ? "serves"
			     : card->mps == DDP_MPS_STALE ? "gone"
							  : "";

	ddp_put_begin(out, NULL, '{');
	ddp_put_string(out, "mode", sharing->mps ? "MPS" : "time-slicing");
	ddp_put_begin(out, "ranks", '[');
	for (int rank = sharing->first; rank < report->world->size; rank++)
		if (report->cards[rank].first == sharing->first)
			ddp_put_count(out, NULL, (uint64_t)rank);
	ddp_text_add(out, "]");
	put_known(out, "node", card->host);
	put_known(out, "uuid", card->uuid);
	put_known(out, "gpu_of_node", card->slot);
	put_positive(out, "share_sum", sharing->sum);
	put_known(out, "mps_daemon", daemon);
	put_known(out, "mps_directory", *daemon ? card->mps_directory : "");
	put_positive(out, "mps_threads", sharing->threads ? sharing->quickest : 0);
	put_known(out, "mps_memory", sharing->memory ? card->memory_limit : "");
	ddp_put_begin(out, "enforced", '[');
	if (sharing->threads)
		ddp_put_string(out, NULL, "threads");
	if (sharing->memory)
		ddp_put_string(out, NULL, "memory");
	ddp_text_add(out, "]}");
}

static void put_timing(struct ddp_text *out, const struct info_timing *timing)
{
	ddp_put_begin(out, NULL, '{');
	ddp_put_count(out, "bytes", timing->bytes);
	ddp_put_number(out, "median_seconds", timing->median);
	ddp_put_number(out, "best_seconds", timing->best);
	ddp_put_count(out, "wrong_elements", timing->wrong);
	ddp_text_add(out, "}");
}

/* Start a line for the next element of an array. */
static void put_line(struct ddp_text *out)
{
	ddp_text_add(out, "%s\n  ", out->data[out->size - 1] == '[' ? "" : ",");
}

static void put_texts(struct ddp_text *out, const char *key, const struct info_warnings *texts)
{
	ddp_put_begin(out, key, '[');
	for (int i = 0; i < texts->count; i++) {
		put_line(out);
		ddp_put_string(out, NULL, texts->text[i]);
	}
	ddp_text_add(out, "]");
}

void info_report_json(const struct info_report *report, struct ddp_text *out)
{
	const struct ddp_world *world = report->world;
	struct info_sharing sharing;

	ddp_put_begin(out, NULL, '{');
	ddp_put_string(out, "version", PACKAGE_VERSION);
	ddp_put_count(out, "size", (uint64_t)world->size);
	ddp_put_count(out, "nodes", (uint64_t)world->node_count);
	put_known(out, "job", world->job);
	put_known(out, "source", world->source);
	put_known(out, "method", world->method);
	put_known(out, "wide", world->wide);
	put_known(out, "endpoint", report->cards[0].endpoint);
	ddp_put_begin(out, "ranks", '[');
	for (int rank = 0; rank < world->size; rank++) {
		put_line(out);
		put_card(out, &report->cards[rank]);
	}
	ddp_text_add(out, "]");
	ddp_put_begin(out, "sharing", '[');
	for (int rank = 0; rank < world->size; rank++)
		if (info_sharing_at(report->cards, world->size, rank, &sharing)) {
			put_line(out);
			put_sharing(out, report, &sharing);
		}
	ddp_text_add(out, "]");
	put_texts(out, "warnings", report->warnings);
	put_texts(out, "advice", report->advice);
	ddp_put_bool(out, "selftest_device", report->test && report->test->device);
	put_known(out, "selftest_path",
		  report->test && report->test->device ? report->test->path : "");
	if (report->test)
		ddp_put_begin(out, "selftest", '[');
	else
		ddp_put_string(out, "selftest", NULL);
	for (int i = 0; report->test && i < report->test->count; i++) {
		put_line(out);
		put_timing(out, &report->test->timings[i]);
	}
	ddp_text_add(out, report->test ? "]}\n" : "}\n");
}
