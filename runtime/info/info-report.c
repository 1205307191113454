/* SPDX-License-Identifier: Apache-2.0 */
/* info-report.c - the table for people, and the same as JSON */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/mps.h"
#include "base/text.h"
#include "info.h"

/* --- The rows of the table ----------------------------------------------------------------- */

enum { CELL = 96 };

enum { RANK, NODE, LOCAL, PID, CPUS, DEVICE, NAME, UUID, SHARE, SHARERS, REACHED, COLUMNS };

static const struct {
	const char *head;
	bool right;
} columns[COLUMNS] = {
	[RANK] = {"rank", true},
	[NODE] = {"node", false},
	[LOCAL] = {"local", true},
	[PID] = {"pid", true},
	[CPUS] = {"CPUs", false},
	[DEVICE] = {"device", true},
	[NAME] = {"name", false},
	[UUID] = {"UUID", false},
	[SHARE] = {"share", true},
	[SHARERS] = {"shared by", false},
	[REACHED] = {"endpoint reached", false},
};

/* What [card] has in [column]; "" says nothing. */
static const char *write_cell(const struct info_card *card, int column, char cell[CELL])
{
	cell[0] = '\0';
	switch (column) {
	case NODE:
		return card->host;
	case CPUS:
		return card->cpu_list;
	case NAME:
		return card->device_name;
	case UUID:
		return card->uuid;
	case SHARERS:
		return card->sharers;
	case REACHED:
		return card->reached < 0 ? "" : card->reached ? "yes" : "NO";
	case RANK:
		snprintf(cell, CELL, "%d", card->rank);
		break;
	case LOCAL:
		snprintf(cell, CELL, "%d/%d", card->local_rank, card->local_size);
		break;
	case PID:
		snprintf(cell, CELL, "%d", card->pid);
		break;
	case DEVICE:
		if (card->device >= 0)
			snprintf(cell, CELL, "%d", card->device);
		break;
	case SHARE:
		if (card->share > 0)
			snprintf(cell, CELL, "%.4g", card->share);
		break;
	default:
		break;
	}
	return cell;
}

/* One row, [card] NULL for the heads. */
static void print_row(const struct info_card *card, const int widths[COLUMNS], FILE *out)
{
	char line[COLUMNS * (CELL + 2) + 1] = "", cell[CELL];
	size_t used = 0;

	for (int i = 0; i < COLUMNS; i++) {
		const char *text = card ? write_cell(card, i, cell) : columns[i].head;

		if (widths[i])
			used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%*s",
						 used ? "  " : "",
						 columns[i].right ? widths[i] : -widths[i],
						 *text ? text : "-");
	}
	while (used > 0 && line[used - 1] == ' ')
		line[--used] = '\0';
	fprintf(out, "%s\n", line);
}

static void print_rows(const struct info_report *report, FILE *out)
{
	int widths[COLUMNS] = {0}, size = report->world->size;
	char cell[CELL];

	for (int i = 0; i < COLUMNS; i++) {
		for (int rank = 0; rank < size; rank++) {
			int width = (int)strlen(write_cell(&report->cards[rank], i, cell));

			if (width > widths[i])
				widths[i] = width;
		}
		if (widths[i] && widths[i] < (int)strlen(columns[i].head))
			widths[i] = (int)strlen(columns[i].head);
	}
	print_row(NULL, widths, out);
	for (int rank = 0; rank < size; rank++)
		print_row(&report->cards[rank], widths, out);
}

static void print_bytes(size_t bytes, char *text, size_t size)
{
	if (bytes >= 1u << 20)
		snprintf(text, size, "%zu MiB", bytes >> 20);
	else if (bytes >= 1u << 10)
		snprintf(text, size, "%zu KiB", bytes >> 10);
	else
		snprintf(text, size, "%zu B", bytes);
}

static void print_selftest(const struct info_report *report, FILE *out)
{
	const struct info_selftest *test = report->test;

	fprintf(out, "\n%s  all-reduce     median       best   bandwidth  result\n",
		test->device ? "in memory of GPUs:\n" : "");
	for (int i = 0; i < test->count; i++) {
		const struct info_timing *timing = &test->timings[i];
		char bytes[32];

		print_bytes(timing->bytes, bytes, sizeof(bytes));
		fprintf(out, "%12s %7.1f us %7.1f us %6.2f GB/s  ", bytes, timing->median * 1e6,
			timing->best * 1e6, (double)timing->bytes / timing->median * 1e-9);
		if (timing->wrong)
			fprintf(out, "WRONG in %llu elements\n", (unsigned long long)timing->wrong);
		else
			fprintf(out, "exact\n");
	}
}

/* --- How GPUs are shared ------------------------------------------------------------------- */

static void add_range(struct ddp_text *text, double least, double most)
{
	ddp_text_add(text, least < most ? "%.4g to %.4g" : "%.4g", least, most);
}

static const char *enforced(const struct info_sharing *sharing)
{
	if (sharing->threads && sharing->memory)
		return "MPS enforces both limits";
	if (sharing->threads)
		return "MPS enforces the limit of threads, memory is kept to by agreement";
	if (sharing->memory)
		return "MPS enforces the limit of memory";
	return sharing->least > 0 ? "by agreement, nothing enforces it" : "nothing is enforced";
}

/* Add what GPUs that are shared alike have in common. */
static void add_how(struct ddp_text *text, const struct info_card *card,
		    const struct info_sharing *sharing)
{
	if (!sharing->mps) {
		ddp_text_add(text, "by time-slicing: %s kernels take turns; ",
			     sharing->ranks > 1 ? "their" : "its own and others'");
	} else if (!sharing->threads && !sharing->memory) {
		ddp_text_add(text, "through MPS, without limits; ");
	} else {
		ddp_text_add(text, "through MPS (%s",
			     sharing->threads ? "threads limited to " : "");
		if (sharing->threads) {
			add_range(text, sharing->slowest, sharing->quickest);
			ddp_text_add(text, " %%");
		}
		if (sharing->memory)
			ddp_text_add(text, "%s to %s",
				     sharing->threads ? ", memory" : "memory limited",
				     card->memory_limit);
		ddp_text_add(text, "); ");
	}
	if (sharing->least > 0) {
		add_range(text, sharing->least, sharing->most);
		ddp_text_add(text, " of it%s", sharing->ranks > 1 ? " each" : "");
		if (card->total && sharing->least == sharing->most)
			ddp_text_add(text, ", %.1f of %.1f GiB",
				     sharing->least * (double)card->total / 0x1p30,
				     (double)card->total / 0x1p30);
	} else {
		ddp_text_add(text, "no share is known");
	}
	ddp_text_add(text, "; %s", enforced(sharing));
}

/* GPUs that as many ranks share in the same way, the first of them by its first rank. */
struct way {
	struct ddp_text how;
	int first, ranks, gpus;
};

enum { WAYS = 16 };

/* The ways of all GPUs: a thousand nodes have few. Returns how many; more are not told. */
static int find_ways(const struct info_report *report, struct way ways[WAYS])
{
	struct info_sharing sharing;
	int count = 0, i;

	for (int rank = 0; rank < report->world->size; rank++) {
		struct way way = {.first = rank};

		if (!info_sharing_at(report->cards, report->world->size, rank, &sharing))
			continue;
		way.ranks = sharing.ranks;
		add_how(&way.how, &report->cards[rank], &sharing);
		for (i = 0; i < count; i++)
			if (ways[i].ranks == way.ranks && way.how.data &&
			    strcmp(ways[i].how.data, way.how.data) == 0)
				break;
		if (i < count || count == WAYS || way.how.failed)
			ddp_text_free(&way.how);
		else
			ways[count++] = way;
		if (i < count)
			ways[i].gpus++;
	}
	return count;
}

static void print_sharing(const struct info_report *report, FILE *out)
{
	struct way ways[WAYS];
	int count = find_ways(report, ways);
	char name[160];

	if (count)
		fprintf(out, "\n");
	for (int i = 0; i < count; i++) {
		const struct info_card *card = &report->cards[ways[i].first];

		info_sharing_name(card, name, sizeof(name));
		if (ways[i].ranks > 1)
			fprintf(out, "%d ranks (%s) share", ways[i].ranks, card->sharers);
		else
			fprintf(out, "rank %d shares", card->rank);
		fprintf(out, " %s %s", name, ways[i].how.data);
		if (ways[i].gpus > 1)
			fprintf(out, "; likewise %d more GPU%s", ways[i].gpus - 1,
				ways[i].gpus > 2 ? "s" : "");
		fprintf(out, "\n");
		ddp_text_free(&ways[i].how);
	}
}

void info_report_table(const struct info_report *report, FILE *out)
{
	const struct ddp_world *world = report->world;

	fprintf(out, "%s: %d rank%s on %d node%s, started by %s, met by %s, between nodes: %s\n",
		world->job, world->size, world->size > 1 ? "s" : "", world->node_count,
		world->node_count > 1 ? "s" : "", world->source, world->method, world->wide);
	if (report->cards[0].endpoint[0])
		fprintf(out, "endpoint %s\n", report->cards[0].endpoint);
	fprintf(out, "\n");
	print_rows(report, out);
	print_sharing(report, out);
	if (report->warnings->count)
		fprintf(out, "\n");
	for (int i = 0; i < report->warnings->count; i++)
		fprintf(out, "warning: %s\n", report->warnings->text[i]);
	if (report->test)
		print_selftest(report, out);
}

/* --- JSON ---------------------------------------------------------------------------------- */

/* What is not known is null: where a text is empty, or a number 0. */
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

/* A line for the next of a list. */
static void put_line(struct ddp_text *out)
{
	ddp_text_add(out, "%s\n  ", out->data[out->size - 1] == '[' ? "" : ",");
}

void info_report_json(const struct info_report *report, FILE *out)
{
	const struct ddp_world *world = report->world;
	struct ddp_text text = {.data = NULL};
	struct info_sharing sharing;

	ddp_put_begin(&text, NULL, '{');
	ddp_put_string(&text, "version", PACKAGE_VERSION);
	ddp_put_count(&text, "size", (uint64_t)world->size);
	ddp_put_count(&text, "nodes", (uint64_t)world->node_count);
	put_known(&text, "job", world->job);
	put_known(&text, "source", world->source);
	put_known(&text, "method", world->method);
	put_known(&text, "wide", world->wide);
	put_known(&text, "endpoint", report->cards[0].endpoint);
	ddp_put_begin(&text, "ranks", '[');
	for (int rank = 0; rank < world->size; rank++) {
		put_line(&text);
		put_card(&text, &report->cards[rank]);
	}
	ddp_text_add(&text, "]");
	ddp_put_begin(&text, "sharing", '[');
	for (int rank = 0; rank < world->size; rank++)
		if (info_sharing_at(report->cards, world->size, rank, &sharing)) {
			put_line(&text);
			put_sharing(&text, report, &sharing);
		}
	ddp_text_add(&text, "]");
	ddp_put_begin(&text, "warnings", '[');
	for (int i = 0; i < report->warnings->count; i++) {
		put_line(&text);
		ddp_put_string(&text, NULL, report->warnings->text[i]);
	}
	ddp_text_add(&text, "]");
	ddp_put_bool(&text, "selftest_device", report->test && report->test->device);
	if (report->test)
		ddp_put_begin(&text, "selftest", '[');
	else
		ddp_put_string(&text, "selftest", NULL);
	for (int i = 0; report->test && i < report->test->count; i++) {
		put_line(&text);
		put_timing(&text, &report->test->timings[i]);
	}
	ddp_text_add(&text, report->test ? "]}\n" : "}\n");
	fputs(text.failed ? "" : text.data, out);
	ddp_text_free(&text);
}
