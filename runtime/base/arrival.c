/* SPDX-License-Identifier: Apache-2.0 */
/* arrival.c - parse the ranks' records, and find ranks that did not reach the last collective */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrival.h"

enum { NAMED = 16 }; /* missing ranks that a message lists; the others are counted */

void ddp_arrival_read(char *text, struct ddp_arrival *arrival)
{
	char *line, *state = NULL, *comma;

	arrival->there = true;
	for (line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
		if (sscanf(line, "rank %*d of %*d on %127[^,], pid %ld, world %" SCNu64,
			   arrival->host, &arrival->pid, &arrival->world) > 0)
			continue;
		if (!arrival->reason[0] &&
		    sscanf(line, "after %lf s: %511[^\n]", &arrival->after, arrival->reason) == 2)
			continue;
		if (sscanf(line, "slow: %255[^\n]", arrival->slow) == 1)
			continue;
		if (*line != '#')
			continue;
		arrival->waits = strstr(line, "not ended") || strstr(line, "failed: ");
		comma = strchr(line, ',');
		if (comma)
			*comma = '\0';
		snprintf(arrival->last, sizeof(arrival->last), "%s", line);
		arrival->sequence = strtoull(line + 1, NULL, 10);
	}
}

void ddp_arrival_keep_last_world(struct ddp_arrival *all, int size)
{
	uint64_t last = 0;

	for (int rank = 0; rank < size; rank++)
		if (all[rank].world > last)
			last = all[rank].world;
	for (int rank = 0; rank < size; rank++)
		if (all[rank].world != 0 && all[rank].world < last)
			all[rank] = (struct ddp_arrival){0};
}

/*
 * Sets [missing] of all ranks. Returns a rank that waits in the furthest collective, or NULL if no
 * rank waits.
 */
static const struct ddp_arrival *compare(struct ddp_arrival *all, int size)
{
	const struct ddp_arrival *most = NULL;
	bool has_silent = false;

	for (int rank = 0; rank < size; rank++) {
		all[rank].missing = false;
		has_silent = has_silent || (!all[rank].there && !all[rank].outside);
		if (all[rank].there && all[rank].waits && !all[rank].outside &&
		    (!most || all[rank].sequence > most->sequence))
			most = &all[rank];
	}
	for (int rank = 0; rank < size && most; rank++)
		all[rank].missing =
			!all[rank].outside &&
			(has_silent ? !all[rank].there : all[rank].sequence < most->sequence);
	return most;
}

/*
 * Write the numbers of the missing ranks to [text], for example "3, 5 and 2 more". Returns how many
 * ranks are missing.
 */
static int name_missing(const struct ddp_arrival *all, int size, char *text, size_t capacity)
{
	size_t used = 0;
	int count = 0;

	text[0] = '\0';
	for (int rank = 0; rank < size; rank++) {
		if (!all[rank].missing)
			continue;
		if (count++ >= NAMED || used >= capacity)
			continue;
		used += (size_t)snprintf(text + used, capacity - used, "%s%d",
					 count > 1 ? ", " : "", rank);
	}
	if (count > NAMED && used < capacity)
		snprintf(text + used, capacity - used, " and %d more", count - NAMED);
	return count;
}

/*
 * Set [word] to the start of the operation, the second word of arrival->last. Returns the
 * operation's length.
 */
static size_t operation(const struct ddp_arrival *arrival, const char **word)
{
	*word = arrival->last + strcspn(arrival->last, " ");
	*word += **word == ' ';
	return strcspn(*word, " ");
}

/*
 * Returns a rank whose last collective has the same number as the last collective of rank [most],
 * but another operation. Returns -1 if every rank has the same operation.
 */
static int find_other(const struct ddp_arrival *all, int size, const struct ddp_arrival *most)
{
	const char *word, *others;
	size_t length = operation(most, &word);

	for (int rank = 0; rank < size; rank++)
		if (all[rank].there && !all[rank].outside && all[rank].sequence == most->sequence &&
		    (operation(&all[rank], &others) != length ||
		     strncmp(word, others, length) != 0))
			return rank;
	return -1;
}

void ddp_arrival_describe(struct ddp_arrival *all, int size, char *text, size_t capacity)
{
	const struct ddp_arrival *most = compare(all, size);
	char names[256];
	int count, other;

	if (!most) {
		snprintf(text, capacity, "no rank waits in a collective");
		return;
	}
	count = name_missing(all, size, names, sizeof(names));
	other = count == 0 ? find_other(all, size, most) : -1;
	if (other >= 0)
		snprintf(text, capacity, "ranks differ: rank %d is in %s, and rank %d in %s",
			 (int)(most - all), most->last, other, all[other].last);
	else if (count == 0)
		snprintf(text, capacity, "all ranks are in %s", most->last);
	else
		snprintf(text, capacity, "did not arrive in %s: rank%s %s", most->last,
			 count > 1 ? "s" : "", names);
}
