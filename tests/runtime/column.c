/* SPDX-License-Identifier: Apache-2.0 */
/*
 * column - one member of a column that all-reduces through an engine between nodes, for scripts
 *
 *     column loop RANK SIZE DIRECTORY BYTES SECONDS     all-reduce until an error occurs
 *     column time RANK SIZE DIRECTORY BYTES COUNT...    print the microseconds of each all-reduce
 *     column sum RANK SIZE DIRECTORY BYTES COUNT...     the same, and check the sums
 *
 * Members exchange addresses through files in DIRECTORY. DDP_WIDE selects the engine, and
 * DDP_MODULES has its module.
 * loop prints "under way" after five all-reduces, each with a time limit of SECONDS. At the first
 * error it prints the error's text and exits with its status. time prints "BYTES MICROSECONDS" for
 * each of COUNT all-reduces of BYTES. sum exits with status 1 if a sum is wrong.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings.h"
#include "wide/ring.h"

enum { MOST = 1024 };

struct member {
	struct ddp_log log;
	struct ddp_column column;
	int ranks[MOST];
	uint32_t sequence;
};

static const char *name_of(void *owner, int rank)
{
	static char text[32];

	(void)owner;
	snprintf(text, sizeof(text), "rank %d", rank);
	return text;
}

static void die(const struct ddp_error *error)
{
	printf("%s\n", error->text);
	fflush(stdout);
	_exit(ddp_exit_status(error->status));
}

static void end(void *owner, int status, const char *text)
{
	struct ddp_error error;

	(void)owner;
	ddp_error_set(&error, status, "%s", text);
	die(&error);
}

static void check(int status, const struct ddp_error *error)
{
	if (status < 0)
		die(error);
}

/* --- Meeting ----------------------------------------------------------------------------- */

static void publish(const char *directory, const char *what, int rank, const void *data,
		    size_t size)
{
	char name[512], final[512];
	FILE *file;

	snprintf(name, sizeof(name), "%s/.%s%d", directory, what, rank);
	snprintf(final, sizeof(final), "%s/%s%d", directory, what, rank);
	file = fopen(name, "w");
	if (!file || (size > 0 && fwrite(data, 1, size, file) != size) || fclose(file) != 0 ||
	    rename(name, final) != 0) {
		perror(name);
		exit(1);
	}
}

static size_t read_published(const char *directory, const char *what, int rank, void *data,
			     size_t room)
{
	char name[512];
	FILE *file;
	size_t size;

	snprintf(name, sizeof(name), "%s/%s%d", directory, what, rank);
	for (int i = 0; !(file = fopen(name, "r")); i++) {
		if (i == 30000)
			exit(1);
		usleep(1000);
	}
	size = fread(data, 1, room, file);
	fclose(file);
	return size;
}

static void meet(struct member *member, int rank, int size, const char *directory)
{
	struct ddp_column *column = &member->column;
	static struct ddp_host_card cards[MOST];
	int partners[MOST], count;
	struct ddp_error error = {0};
	struct ddp_watch watch = ddp_watch_start(60, NULL, NULL);
	const struct ddp_host_setup setup = {rank, size, &watch, end, &member->log};
	struct ddp_host_card own;

	check(ddp_log_open(&member->log, &error), &error);
	column->engine =
		ddp_host_engine_find(ddp_setting_get(DDP_SET_DDP_WIDE), &member->log, &error);
	if (!column->engine)
		die(&error);
	check(column->engine->open(&column->host, &setup, &own, &error), &error);
	publish(directory, "", rank, own.data, own.bytes);
	count = ddp_column_partners(size, rank, partners);
	for (int i = 0; i < size; i++)
		member->ranks[i] = i;
	if (column->engine->all_peers)
		for (int i = count = 0; i < size; i++)
			if (i != rank)
				partners[count++] = i;
	for (int i = 0; i < count; i++) {
		cards[i].rank = partners[i];
		cards[i].bytes =
			read_published(directory, "", partners[i], cards[i].data, DDP_HOST_CARD);
	}
	check(column->engine->meet(column->host, cards, count, &watch, &error), &error);
	column->index = rank;
	column->size = size;
	column->ranks = member->ranks;
	column->name = name_of;
	column->scratch = aligned_alloc(64, DDP_COLUMN_SCRATCH);
	check(ddp_simd_choose(&column->simd, &error), &error);
}

static int all_reduce(struct member *member, float *data, size_t bytes, double limit,
		      struct ddp_error *error)
{
	struct ddp_column_call call = {++member->sequence, (uint32_t)bytes, "all-reduce"};
	struct ddp_watch watch = ddp_watch_start(limit, NULL, NULL);

	return ddp_column_all_reduce(&member->column, &call, data, bytes / sizeof(float), DDP_F32,
				     DDP_SUM, &watch, error);
}

/* --- Commands ----------------------------------------------------------------------------- */

static void loop(struct member *member, float *data, size_t bytes, double limit)
{
	struct ddp_error error;
	uint64_t last = ddp_now();
	int status;

	while ((status = all_reduce(member, data, bytes, limit, &error)) == 0) {
		last = ddp_now();
		if (member->sequence == 5) {
			printf("under way\n");
			fflush(stdout);
		}
	}
	printf("after %u all-reduces and %.1f s: %s\n", member->sequence - 1,
	       (double)(ddp_now() - last) * 1e-9, error.text);
	fflush(stdout);
	member->column.engine->close(member->column.host, false);
	exit(ddp_exit_status(status));
}

/* Sets every element of rank R to R + 1. */
static void fill(struct member *member, float *data, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof(float); i++)
		data[i] = (float)(member->column.index + 1);
}

static void verify(struct member *member, const float *data, size_t bytes)
{
	int size = member->column.size;
	float want = (float)(size * (size + 1) / 2);

	for (size_t i = 0; i < bytes / sizeof(float); i++)
		if (data[i] != want) {
			printf("sum %zu of all-reduce %u is %g, not %g\n", i, member->sequence,
			       (double)data[i], (double)want);
			fflush(stdout);
			_exit(1);
		}
}

static void measure(struct member *member, float *data, size_t bytes, int count, bool checked)
{
	struct ddp_error error;

	for (int i = -2; i < count; i++) {
		uint64_t start;

		if (checked)
			fill(member, data, bytes);
		start = ddp_now();
		check(all_reduce(member, data, bytes, 60, &error), &error);
		if (i >= 0 && member->column.index == 0)
			printf("%zu %.2f\n", bytes, (double)(ddp_now() - start) * 1e-3);
		if (checked)
			verify(member, data, bytes);
	}
}

int main(int argc, char **argv)
{
	struct member member = {.sequence = 0};
	char text[128];
	float *data;

	if (argc < 7 || argc % 2 == 0) {
		fprintf(stderr,
			"usage: column loop|time|sum RANK SIZE DIRECTORY BYTES SECONDS|COUNT...\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	meet(&member, atoi(argv[2]), atoi(argv[3]), argv[4]);
	data = calloc(1, 256 << 20);
	if (!data || !member.column.scratch)
		return 1;
	if (strcmp(argv[1], "loop") == 0)
		loop(&member, data, strtoul(argv[5], NULL, 10), strtod(argv[6], NULL));
	for (int i = 5; i + 1 < argc; i += 2)
		measure(&member, data, strtoul(argv[i], NULL, 10), atoi(argv[i + 1]),
			strcmp(argv[1], "sum") == 0);
	member.column.engine->describe(member.column.host, text, sizeof(text));
	fprintf(stderr, "%s\n", text);
	member.column.engine->close(member.column.host, true);
	free(member.column.scratch);
	free(data);
	return 0;
}
