/* SPDX-License-Identifier: Apache-2.0 */
/* gpu-sharing.c - count the ranks of each GPU, divide its memory, and describe both */
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
 * Whether two ranks use the same GPU. If their values of NCCL_HOSTID differ, they count as
 * different GPUs, because NCCL then treats the ranks as being on different hosts.
 */
static bool is_same_gpu(const struct sharing_seat *a, const struct sharing_seat *b)
{
	return *a->device && strcmp(a->device, b->device) == 0 &&
	       strcmp(a->host_id, b->host_id) == 0;
}

/* If the GPU of a rank is unknown, the rank counts as the only one on its GPU. */
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

void sharing_describe(const struct sharing_seat *seats, int size, char *text, size_t bytes)
{
	int ranks = 0, gpus = 0, served = 0, index = 0, used;
	double least = 1, most = 0;

	*text = '\0';
	for (int rank = 0; rank < size; rank++) {
		const struct sharing_seat *seat = &seats[rank];

		if (sharing_ranks(seats, size, seat) < 2)
			continue;
		ranks++;
		gpus += is_first(seats, rank);
		served += seat->mps;
		index = seat->index > 0 ? seat->index : 0;
		least = seat->share < least ? seat->share : least;
		most = seat->share > most ? seat->share : most;
	}
	if (ranks == 0)
		return;
	used = gpus == 1 ? snprintf(text, bytes, "%d ranks share GPU %d, ", ranks, index)
			 : snprintf(text, bytes, "%d ranks share %d GPUs, ", ranks, gpus);
	if (least < most)
		used += snprintf(text + used, bytes - (size_t)used, "%.3g to ", 100 * least);
	snprintf(text + used, bytes - (size_t)used, "%.3g %% of its memory each, %s", 100 * most,
		 served == 0	   ? "by time-slicing"
		 : served == ranks ? "by MPS"
				   : "some by MPS");
}
