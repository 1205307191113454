/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c - ddp-ranks: print the ranks of a step of srun --ddp
 *
 *     srun -N2 --ddp ddp-ranks
 *
 * Every rank writes a row to the rendezvous directory, and rank 0 prints all rows. The program is
 * also an example of how to use the variables of slurm-ddp(7) in C.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "contract.h" /* once installed: <ddp/contract.h> */

#define DEADLINE 90 /* seconds; over NFS a new file may be invisible for 60 */
#define MAX_SECONDS 86400
#define MAX_RANKS 1000000
#define MAX_NAMED 8 /* number of missing ranks that a message names */
#define CELL 128
#define PATH_SIZE 4096

enum column { RANK, NODE, LOCAL_RANK, DEVICE, SHARE, ENDPOINT, COLUMNS };

static const struct {
	const char *title;
	bool left; /* aligned to the left, as text is; numbers are aligned to the right */
} columns[COLUMNS] = {
	[RANK] = {"rank", false},
	[NODE] = {"node", true},
	[LOCAL_RANK] = {"local rank", false},
	[DEVICE] = {"device", false},
	[SHARE] = {"share", false},
	[ENDPOINT] = {"endpoint", true},
};

struct row {
	char cell[COLUMNS][CELL]; /* cell[RANK] is empty until the rank has arrived */
};

/* Returns the value of variable [name], or "-" if it is unset or empty. */
static const char *value(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : "-";
}

/* Returns the number in [text], or -1 if it is not a number from [low] to [high]. */
static int number(const char *text, int low, int high)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	return errno || end == text || *end || n < low || n > high ? -1 : (int)n;
}

static void set(struct row *row, enum column column, const char *text)
{
	snprintf(row->cell[column], CELL, "%s", text);
}

/* Prefer Slurm's name of the node: nodes of a private cluster can have the same host name. */
static void set_node(struct row *row)
{
	const char *name = getenv("SLURMD_NODENAME");

	if (name && *name)
		set(row, NODE, name);
	else if (gethostname(row->cell[NODE], CELL))
		set(row, NODE, "-");
	row->cell[NODE][CELL - 1] = '\0';
}

static void set_endpoint(struct row *row)
{
	const char *address = value(DDP_NAME(MASTER_ADDR));
	bool ipv6 = strchr(address, ':');

	snprintf(row->cell[ENDPOINT], CELL, "%s%.96s%s:%.8s", ipv6 ? "[" : "", address,
		 ipv6 ? "]" : "", value(DDP_NAME(MASTER_PORT)));
}

static void describe(struct row *row)
{
	set(row, RANK, value(DDP_NAME(DDP_RANK)));
	set_node(row);
	set(row, LOCAL_RANK, value(DDP_NAME(DDP_LOCAL_RANK)));
	set(row, DEVICE, value(DDP_NAME(DDP_DEVICE)));
	set(row, SHARE, value(DDP_NAME(DDP_SHARE)));
	set_endpoint(row);
}

/* Returns 0, or -1 after a message if [dir] is too long. */
static int row_path(char path[PATH_SIZE], const char *dir, int rank, const char *suffix)
{
	int length = snprintf(path, PATH_SIZE, "%s/ranks.%d%s", dir, rank, suffix);

	if (length >= 0 && length < PATH_SIZE)
		return 0;
	fprintf(stderr, "ddp-ranks: %s: path too long\n", dir);
	return -1;
}

/* Write the row and flush it to storage. Returns 0, or -1 with errno set. */
static int row_write(const char *path, const struct row *row)
{
	FILE *file = fopen(path, "w");
	bool failed;

	if (!file)
		return -1;
	for (int c = 0; c < COLUMNS; c++)
		fprintf(file, "%s%c", row->cell[c], c + 1 < COLUMNS ? '\t' : '\n');
	failed = fflush(file) || ferror(file) || fsync(fileno(file));
	return fclose(file) || failed ? -1 : 0;
}

/*
 * Publish the row atomically, so that rank 0 never reads an incomplete row.
 * Returns 0, or -1 after a message.
 */
static int publish(const char *dir, int rank, const struct row *row)
{
	char draft[PATH_SIZE], path[PATH_SIZE];

	if (row_path(draft, dir, rank, ".new") || row_path(path, dir, rank, ""))
		return -1;
	if (!row_write(draft, row) && !rename(draft, path))
		return 0;
	fprintf(stderr, "ddp-ranks: rank %d: cannot write %s: %s\n", rank, path, strerror(errno));
	return -1;
}

/* Split [line] into the cells of [row]. Returns false if it has too few cells. */
static bool row_parse(char *line, struct row *row)
{
	char *rest = line;

	line[strcspn(line, "\n")] = '\0';
	for (int c = 0; c < COLUMNS; c++) {
		const char *cell = strsep(&rest, "\t");

		if (!cell)
			return false;
		set(row, (enum column)c, cell);
	}
	return true;
}

/* Read the row of [rank] into [row]. Returns false if the rank has not published it yet. */
static bool collect(const char *dir, int rank, struct row *row)
{
	char path[PATH_SIZE], line[COLUMNS * CELL];
	bool there;
	FILE *file;

	if (row_path(path, dir, rank, ""))
		return false;
	file = fopen(path, "r");
	if (!file)
		return false;
	there = fgets(line, sizeof(line), file) && row_parse(line, row);
	fclose(file);
	return there;
}

static int64_t milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * Read rows until all rows have arrived or [seconds] have passed. Returns the number of rows that
 * arrived.
 */
static int gather(const char *dir, struct row *rows, int size, int seconds)
{
	const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
	int64_t end = milliseconds() + (int64_t)seconds * 1000;

	for (;;) {
		int arrived = 0;
		bool late = milliseconds() >= end;

		for (int r = 0; r < size; r++)
			if (*rows[r].cell[RANK] || collect(dir, r, &rows[r]))
				arrived++;
		if (arrived == size || late)
			return arrived;
		nanosleep(&pause, NULL);
	}
}

/* Compute column widths that fit the titles and the rows that arrived. */
static void measure(const struct row *rows, int size, int width[COLUMNS])
{
	for (int c = 0; c < COLUMNS; c++) {
		width[c] = (int)strlen(columns[c].title);
		for (int r = 0; r < size; r++) {
			int length = (int)strlen(rows[r].cell[c]);

			width[c] = length > width[c] ? length : width[c];
		}
	}
}

static void print_cell(const char *text, enum column column, const int width[COLUMNS])
{
	bool last = column + 1 == COLUMNS;

	if (last && columns[column].left)
		printf("%s\n", text);
	else
		printf("%*s%s", columns[column].left ? -width[column] : width[column], text,
		       last ? "\n" : "  ");
}

static void print_table(const struct row *rows, int size)
{
	const char *nodes = value(DDP_NAME(GROUP_WORLD_SIZE));
	int width[COLUMNS];

	measure(rows, size, width);
	printf("%s: %d rank%s on %s node%s\n", value(DDP_NAME(DDP_JOB)), size, size > 1 ? "s" : "",
	       nodes, strcmp(nodes, "1") ? "s" : "");
	for (int c = 0; c < COLUMNS; c++)
		print_cell(columns[c].title, (enum column)c, width);
	for (int r = 0; r < size; r++)
		for (int c = 0; c < COLUMNS && *rows[r].cell[RANK]; c++)
			print_cell(rows[r].cell[c], (enum column)c, width);
}

static void print_missing(const struct row *rows, int size, int arrived, int seconds)
{
	int named = 0;

	fprintf(stderr, "ddp-ranks:");
	for (int r = 0; r < size; r++) {
		if (*rows[r].cell[RANK])
			continue;
		if (named++ < MAX_NAMED)
			fprintf(stderr, "%s rank %d", named > 1 ? "," : "", r);
	}
	if (named > MAX_NAMED)
		fprintf(stderr, " and %d more", named - MAX_NAMED);
	fprintf(stderr, " did not arrive in %d s (%d of %d did)\n", seconds, arrived, size);
}

/* Runs on rank 0. Returns 0 if every rank arrived, else -1 after a message. */
static int report(const char *dir, int size, int seconds)
{
	struct row *rows = calloc((size_t)size, sizeof(*rows));
	int arrived;

	if (!rows) {
		fprintf(stderr, "ddp-ranks: out of memory for %d ranks\n", size);
		return -1;
	}
	arrived = gather(dir, rows, size, seconds);
	print_table(rows, size);
	if (arrived < size)
		print_missing(rows, size, arrived, seconds);
	free(rows);
	return arrived == size ? 0 : -1;
}

/* Without a shared directory each rank prints its own row, in any order. */
static void print_own(const struct row *row, int rank)
{
	if (rank == 0)
		fprintf(stderr, "ddp-ranks: %s is not set, so each rank prints its own line\n",
			DDP_NAME(DDP_RENDEZVOUS));
	for (int c = 0; c < COLUMNS; c++)
		printf("%s %s%s", columns[c].title, row->cell[c], c + 1 < COLUMNS ? ", " : "\n");
}

/* Read rank and size. Returns 0, or -1 after a message if --ddp did not set them. */
static int read_rank(int *rank, int *size)
{
	*rank = number(value(DDP_NAME(DDP_RANK)), 0, MAX_RANKS - 1);
	*size = number(value(DDP_NAME(DDP_SIZE)), 1, MAX_RANKS);
	if (*rank >= 0 && *size > *rank)
		return 0;
	fprintf(stderr, "ddp-ranks: not started with --ddp; try: srun -N2 --ddp ddp-ranks\n");
	return -1;
}

static int run(int seconds)
{
	const char *dir = getenv(DDP_NAME(DDP_RENDEZVOUS));
	struct row row = {0};
	int rank, size;

	if (read_rank(&rank, &size))
		return -1;
	describe(&row);
	if (!dir || !*dir) {
		print_own(&row, rank);
		return 0;
	}
	if (publish(dir, rank, &row))
		return -1;
	return rank == 0 ? report(dir, size, seconds) : 0;
}

int main(int argc, char **argv)
{
	int seconds = argc == 2 ? number(argv[1], 0, MAX_SECONDS) : DEADLINE;

	if (argc > 2 || seconds < 0) {
		fprintf(stderr,
			"usage: srun --ddp ddp-ranks [SECONDS]\n"
			"Print the ranks of the step; rank 0 waits SECONDS for the other ranks [%d].\n",
			DEADLINE);
		return 2;
	}
	if (run(seconds))
		return 1;
	if (fflush(stdout) || ferror(stdout)) {
		perror("ddp-ranks");
		return 1;
	}
	return 0;
}
