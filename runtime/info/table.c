/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "sharing.h"

enum { CELL = 96 };

/* A column: its head, and how a card's cell is written; an empty cell says nothing. */
struct column {
	const char *head;
	void (*write)(const struct info_card *card, char cell[CELL]);
	bool right;
};

static void write_rank(const struct info_card *card, char cell[CELL])
{
	snprintf(cell, CELL, "%d", card->rank);
}

static void write_node(const struct info_card *card, char cell[CELL])
{
	snprintf(cell, CELL, "%s", card->host);
}

static void write_local(const struct info_card *card, char cell[CELL])
{
	snprintf(cell, CELL, "%d/%d", card->local_rank, card->local_size);
}

static void write_pid(const struct info_card *card, char cell[CELL])
{
	snprintf(cell, CELL, "%d", card->pid);
}

static void write_cpus(const struct info_card *card, char cell[CELL])
{
	snprintf(cell, CELL, "%s", card->cpu_list);
}

static void write_device(const struct info_card *card, char cell[CELL])
{
	if (card->device >= 0)
		snprintf(cell, CELL, "%d", card->device);
}

static void write_uuid(const struct info_card *card, char cell[CELL])
{
	snprintf(cell, CELL, "%s", card->uuid);
}

static void write_name(const struct info_card *card, char cell[CELL])
{
	snprintf(cell, CELL, "%s", card->device_name);
}

static void write_share(const struct info_card *card, char cell[CELL])
{
	if (card->share > 0)
		snprintf(cell, CELL, "%.4g", card->share);
}

static void write_sharers(const struct info_card *card, char cell[CELL])
{
	snprintf(cell, CELL, "%s", card->sharers);
}

static void write_reached(const struct info_card *card, char cell[CELL])
{
	if (card->reached >= 0)
		snprintf(cell, CELL, "%s", card->reached ? "yes" : "NO");
}

static const struct column columns[] = {
	{"rank", write_rank, true},
	{"node", write_node, false},
	{"local", write_local, true},
	{"pid", write_pid, true},
	{"CPUs", write_cpus, false},
	{"device", write_device, true},
	{"name", write_name, false},
	{"UUID", write_uuid, false},
	{"share", write_share, true},
	{"shared by", write_sharers, false},
	{"endpoint reached", write_reached, false},
};

enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static void measure(const struct info_report *report, int widths[COLUMNS])
{
	for (int i = 0; i < COLUMNS; i++) {
		widths[i] = 0;
		for (int rank = 0; rank < report->world->size; rank++) {
			char cell[CELL] = "";

			columns[i].write(&report->cards[rank], cell);
			if ((int)strlen(cell) > widths[i])
				widths[i] = (int)strlen(cell);
		}
		if (widths[i] && widths[i] < (int)strlen(columns[i].head))
			widths[i] = (int)strlen(columns[i].head);
	}
}

/* One row, [card] NULL for the heads. */
static void print_row(const struct info_card *card, const int widths[COLUMNS], FILE *out)
{
	char line[COLUMNS * (CELL + 2) + 1] = "";
	size_t used = 0;

	for (int i = 0; i < COLUMNS; i++) {
		char cell[CELL] = "";

		if (!widths[i])
			continue;
		if (card)
			columns[i].write(card, cell);
		else
			snprintf(cell, sizeof(cell), "%s", columns[i].head);
		used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%*s",
					 used ? "  " : "",
					 columns[i].right ? widths[i] : -widths[i],
					 card && !*cell ? "-" : cell);
	}
	while (used > 0 && line[used - 1] == ' ')
		line[--used] = '\0';
	fprintf(out, "%s\n", line);
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

/* GPUs that as many ranks share in the same way, the first of them by its first rank. */
struct way {
	char how[INFO_SHARING_SIZE];
	int first, ranks, gpus;
};

enum { WAYS = 16 };

/* The ways of all GPUs: a thousand nodes have few. Returns how many; more are not told. */
static int find_ways(const struct info_report *report, struct way ways[WAYS])
{
	int count = 0;

	for (int rank = 0; rank < report->world->size; rank++) {
		struct info_sharing sharing;
		char how[INFO_SHARING_SIZE];
		int i = 0;

		if (!info_sharing_at(report->cards, report->world->size, rank, &sharing))
			continue;
		info_sharing_how(report->cards, &sharing, how);
		while (i < count &&
		       (ways[i].ranks != sharing.ranks || strcmp(ways[i].how, how) != 0))
			i++;
		if (i == WAYS)
			continue;
		if (i == count) {
			ways[count] = (struct way){.first = rank, .ranks = sharing.ranks};
			memcpy(ways[count++].how, how, sizeof(how));
		}
		ways[i].gpus++;
	}
	return count;
}

static void print_way(const struct info_report *report, const struct way *way, FILE *out)
{
	const struct info_card *card = &report->cards[way->first];
	char name[160];

	info_sharing_name(card, name, sizeof(name));
	if (way->ranks > 1)
		fprintf(out, "%d ranks (%s) share %s %s", way->ranks, card->sharers, name,
			way->how);
	else
		fprintf(out, "rank %d shares %s %s", card->rank, name, way->how);
	if (way->gpus > 1)
		fprintf(out, "; likewise %d more GPU%s", way->gpus - 1, way->gpus > 2 ? "s" : "");
	fprintf(out, "\n");
}

static void print_sharing(const struct info_report *report, FILE *out)
{
	struct way ways[WAYS];
	int count = find_ways(report, ways);

	if (count)
		fprintf(out, "\n");
	for (int i = 0; i < count; i++)
		print_way(report, &ways[i], out);
}

void info_report_table(const struct info_report *report, FILE *out)
{
	const struct ddp_world *world = report->world;
	int widths[COLUMNS];

	fprintf(out, "%s: %d rank%s on %d node%s, started by %s, met by %s, between nodes: %s\n",
		world->job, world->size, world->size > 1 ? "s" : "", world->node_count,
		world->node_count > 1 ? "s" : "", world->source, world->method, world->wide);
	if (report->cards[0].endpoint[0])
		fprintf(out, "endpoint %s\n", report->cards[0].endpoint);
	fprintf(out, "\n");
	measure(report, widths);
	print_row(NULL, widths, out);
	for (int rank = 0; rank < world->size; rank++)
		print_row(&report->cards[rank], widths, out);
	print_sharing(report, out);
	if (report->warnings->count)
		fprintf(out, "\n");
	for (int i = 0; i < report->warnings->count; i++)
		fprintf(out, "warning: %s\n", report->warnings->text[i]);
	if (report->test)
		print_selftest(report, out);
}
