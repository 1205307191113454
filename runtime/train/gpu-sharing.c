/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "gpu-sharing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mps.h"
#include "base/settings.h"

/* --- Who -------------------------------------------------------------------------------------- */

/* libddp has refused words that it does not know. */
static bool shares_memory(void)
{
	static const char *const switches[] = {"off", "on", NULL};
	int on = -1;

	return ddp_setting_word(DDP_SET_DDP_LOCAL, switches, &on, NULL) < 0 || on != 0;
}

void sharing_look(struct sharing_seat *seat, const struct ddp_world *world)
{
	const char *posing = getenv("NCCL_HOSTID");
	const char *pipes = ddp_mps_directory(getenv(DDP_MPS_PIPE_DIRECTORY));

	snprintf(seat->host, sizeof(seat->host), "%s", world->host);
	snprintf(seat->posing, sizeof(seat->posing), "%s", posing ? posing : "");
	seat->share = world->share;
	seat->index = world->device;
	seat->node = world->node_rank;
	seat->memory = shares_memory();
	seat->mps = ddp_mps_look(pipes) == DDP_MPS_SERVES;
}

/* The same GPU for two ranks; those that pose as two hosts are told apart by NCCL, too. */
static bool same(const struct sharing_seat *a, const struct sharing_seat *b)
{
	return *a->device && strcmp(a->device, b->device) == 0 && strcmp(a->posing, b->posing) == 0;
}

/* A GPU that nobody knows is a rank's own. */
int sharing_ranks(const struct sharing_seat *seats, int size, const struct sharing_seat *seat)
{
	int count = 0;

	for (int rank = 0; rank < size; rank++)
		count += same(&seats[rank], seat) || &seats[rank] == seat;
	return count;
}

/* The first rank of a GPU stands for it. */
static bool is_first(const struct sharing_seat *seats, int rank)
{
	for (int before = 0; before < rank; before++)
		if (same(&seats[before], &seats[rank]))
			return false;
	return true;
}

/* --- Whether ---------------------------------------------------------------------------------- */

static bool hinders(const struct sharing_seat *a, const struct sharing_seat *b)
{
	return same(a, b) && (a->node != b->node || !a->memory || !b->memory);
}

static void say_no_memory(const struct sharing_seat *seats, int a, int b, char *text, size_t room)
{
	int used = snprintf(text, room, "ranks %d and %d are both on %.63s of %.63s, ", a, b,
			    seats[a].device, seats[a].host);

	if (seats[a].node != seats[b].node)
		snprintf(text + used, room - (size_t)used,
			 "but not of one node, and ranks that share a GPU share memory too: start "
			 "them as ranks of one node, or give each a GPU or a MIG slice");
	else
		snprintf(text + used, room - (size_t)used,
			 "and share no memory (DDP_LOCAL=off), without which they cannot sum on "
			 "it: leave DDP_LOCAL out, or give each rank a GPU or a MIG slice");
}

bool sharing_hinders(const struct sharing_seat *seats, int size, char *text, size_t room)
{
	for (int b = 0; b < size; b++) {
		int count = sharing_ranks(seats, size, &seats[b]);

		for (int a = 0; a < b; a++) {
			if (!hinders(&seats[a], &seats[b]))
				continue;
			say_no_memory(seats, a, b, text, room);
			return true;
		}
		if (count <= DDP_DEVICE_RANKS)
			continue;
		snprintf(text, room,
			 "%d ranks are on %.63s of %.63s, and %d at most can share one: start "
			 "fewer, or on more GPUs",
			 count, seats[b].device, seats[b].host, DDP_DEVICE_RANKS);
		return true;
	}
	return false;
}

void sharing_divide(struct sharing_seat *seats, int size)
{
	for (int rank = 0; rank < size; rank++) {
		int count = sharing_ranks(seats, size, &seats[rank]);

		if (!(seats[rank].share > 0) && count > 1)
			seats[rank].share = 1.0 / count;
	}
}

/* --- What is said ----------------------------------------------------------------------------- */

/* Of GPUs that ranks share. */
struct tally {
	int ranks, gpus, fewest, most;
	double least, largest; /* share */
	bool too_much;	       /* the shares of one are more than all of it */
	int served;	       /* ranks that MPS serves */
	const struct sharing_seat *first;
};

/* The share of one rank of a GPU with [count] of them. */
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
			sum += same(&seats[other], &seats[rank]) ? seats[other].share : 0;
		tally->too_much = tally->too_much || sum > 1.001;
	}
}

static const char *part(double share, char text[24])
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

static int say_who(const struct tally *tally, char *text, size_t room)
{
	if (tally->gpus == 1 && strncmp(tally->first->device, "MIG-", 4) == 0)
		return snprintf(text, room, "%d ranks share a MIG slice", tally->ranks);
	if (tally->gpus == 1)
		return snprintf(text, room, "%d ranks share GPU %d", tally->ranks,
				tally->first->index > 0 ? (int)tally->first->index : 0);
	if (tally->fewest == tally->most)
		return snprintf(text, room, "%d ranks share %d GPUs, %d on each", tally->ranks,
				tally->gpus, tally->most);
	return snprintf(text, room, "%d ranks share %d GPUs, %d to %d on each", tally->ranks,
			tally->gpus, tally->fewest, tally->most);
}

void sharing_tell(const struct sharing_seat *seats, int size, char *text, size_t room)
{
	struct tally tally = {.ranks = 0};
	char least[24], largest[24];
	const char *a, *b, *how;
	size_t used;

	*text = '\0';
	count_all(&tally, seats, size);
	if (tally.ranks == 0)
		return;
	a = part(tally.least, least);
	b = part(tally.largest, largest);
	how = tally.served == tally.ranks ? "by MPS" : "by time-slicing";
	if (tally.served > 0 && tally.served < tally.ranks)
		how = "some by MPS, some by time-slicing";
	used = (size_t)say_who(&tally, text, room);
	snprintf(text + used, room - used, ", %s%s%s of its memory each, %s%s", a,
		 strcmp(a, b) == 0 ? "" : " to ", strcmp(a, b) == 0 ? "" : b, how,
		 tally.too_much ? "; DDP_SHARE gives away more than there is" : "");
}
