/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "gpu-sharing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mps.h"

/* --- Ranks of a GPU --------------------------------------------------------------------------- */

void sharing_fill_seat(struct sharing_seat *seat, const struct ddp_world *world)
{
	const char *host_id = getenv("NCCL_HOSTID");
	const char *pipes = ddp_mps_directory(getenv(DDP_MPS_PIPE_DIRECTORY));

	snprintf(seat->host, sizeof(seat->host), "%s", world->host);
	snprintf(seat->host_id, sizeof(seat->host_id), "%s", host_id ? host_id : "");
	seat->share = world->share;
	seat->index = world->device;
	seat->mps = ddp_mps_look(pipes) == DDP_MPS_SERVES;
}

/*
 * Whether two ranks use one GPU. Different values of NCCL_HOSTID make NCCL treat them as different
 * hosts.
 */
static bool is_same_gpu(const struct sharing_seat *a, const struct sharing_seat *b)
{
	return *a->device && strcmp(a->device, b->device) == 0 &&
	       strcmp(a->host_id, b->host_id) == 0;
}

/* A rank whose GPU is unknown counts as the only rank on that GPU. */
int sharing_ranks(const struct sharing_seat *seats, int size, const struct sharing_seat *seat)
{
	int count = 0;

	for (int rank = 0; rank < size; rank++)
		count += is_same_gpu(&seats[rank], seat) || &seats[rank] == seat;
	return count;
}

static bool is_first(const struct sharing_seat *seats, int rank)
{
	for (int before = 0; before < rank; before++)
		if (is_same_gpu(&seats[before], &seats[rank]))
			return false;
	return true;
}

/* --- Shares --------------------------------------------------------------------------------- */

void sharing_divide(struct sharing_seat *seats, int size)
{
	for (int rank = 0; rank < size; rank++) {
		int count = sharing_ranks(seats, size, &seats[rank]);

		if (!(seats[rank].share > 0) && count > 1)
			seats[rank].share = 1.0 / count;
	}
}

/* --- Description ------------------------------------------------------------------------------ */

/* Totals over the GPUs that several ranks share. */
struct tally {
	int ranks, gpus, fewest, most;
	double least, largest; /* smallest and largest share */
	bool too_much;	       /* the shares of one GPU add up to more than 1 */
	int served;	       /* ranks that MPS serves */
	const struct sharing_seat *first;
};

static void add_rank(struct tally *tally, const struct sharing_seat *seat, int count)
{
	tally->ranks++;
	tally->served += seat->mps;
	if (!tally->first)
		*tally = (struct tally){.ranks = 1,
					.fewest = count,
					.most = count,
					.least = seat->share,
					.largest = seat->share,
					.served = seat->mps,
					.first = seat};
	tally->fewest = count < tally->fewest ? count : tally->fewest;
	tally->most = count > tally->most ? count : tally->most;
	tally->least = seat->share < tally->least ? seat->share : tally->least;
	tally->largest = seat->share > tally->largest ? seat->share : tally->largest;
}

static void count_all(struct tally *tally, const struct sharing_seat *seats, int size)
{
	for (int rank = 0; rank < size; rank++) {
		int count = sharing_ranks(seats, size, &seats[rank]);
		double sum = 0;

		if (count < 2)
			continue;
		add_rank(tally, &seats[rank], count);
		tally->gpus += is_first(seats, rank);
		for (int other = 0; other < size; other++)
			sum += is_same_gpu(&seats[other], &seats[rank]) ? seats[other].share : 0;
		tally->too_much = tally->too_much || sum > 1.001;
	}
}

static const char *name_share(double share, char text[24])
{
	static const char *const words[] = {"all",     "half",	  "a third",   "a quarter",
					    "a fifth", "a sixth", "a seventh", "an eighth",
					    "a ninth", "a tenth"};

	for (int i = 0; i < (int)(sizeof(words) / sizeof(words[0])); i++)
		if (share * (i + 1) > 0.999 && share * (i + 1) < 1.001)
			return words[i];
	snprintf(text, 24, "%.3g %%", 100 * share);
	return text;
}

static int describe_ranks(const struct tally *tally, char *text, size_t bytes)
{
	if (tally->gpus == 1 && strncmp(tally->first->device, "MIG-", 4) == 0)
		return snprintf(text, bytes, "%d ranks share a MIG slice", tally->ranks);
	if (tally->gpus == 1)
		return snprintf(text, bytes, "%d ranks share GPU %d", tally->ranks,
				tally->first->index > 0 ? (int)tally->first->index : 0);
	if (tally->fewest == tally->most)
		return snprintf(text, bytes, "%d ranks share %d GPUs, %d on each", tally->ranks,
				tally->gpus, tally->most);
	return snprintf(text, bytes, "%d ranks share %d GPUs, %d to %d on each", tally->ranks,
			tally->gpus, tally->fewest, tally->most);
}

void sharing_describe(const struct sharing_seat *seats, int size, char *text, size_t bytes)
{
	struct tally tally = {.ranks = 0};
	char least[24], largest[24];
	const char *a, *b, *how;
	size_t used;

	*text = '\0';
	count_all(&tally, seats, size);
	if (tally.ranks == 0)
		return;
	a = name_share(tally.least, least);
	b = name_share(tally.largest, largest);
	how = tally.served == tally.ranks ? "by MPS" : "by time-slicing";
	if (tally.served > 0 && tally.served < tally.ranks)
		how = "some by MPS, some by time-slicing";
	used = (size_t)describe_ranks(&tally, text, bytes);
	snprintf(text + used, bytes - used, ", %s%s%s of its memory each, %s%s", a,
		 strcmp(a, b) == 0 ? "" : " to ", strcmp(a, b) == 0 ? "" : b, how,
		 tally.too_much ? "; the values of DDP_SHARE add up to more than one GPU" : "");
}
