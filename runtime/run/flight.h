/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.h - which collective each rank was in, by the dumps of PyTorch's flight recorder
 *
 * A dump, fr-<rank>, is a pickle that torch's C++ wrote: {"version": "2.10", "entries": [{"process_group": ("0",
 * "default_pg"), "collective_seq_id": 17, "profiling_name": "nccl:all_reduce", "state": "started", ...}, ...],
 * "pg_config": {"0": {"ranks": "[0, 1, 2]", ...}}, ...}, with the entries of all process groups in the order in which
 * they were enqueued. PyTorch 2.4 and later write these members; others are not looked at. Nothing is called that a pickle
 * asks for, and no bytes, whoever wrote them, are believed to be a dump before they have been read to their end.
 */
#ifndef DDP_RUN_FLIGHT_H
#define DDP_RUN_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arrival.h"

/* Of all dumps what counts: of each rank its last collective in each process group. Zero is none. */
struct flight {
	struct flight_group *groups;
	struct flight_row *rows;
	size_t group_count, row_count;
};

/*
 * Add the dump of [rank], [size] bytes of [data].
 * Returns 0; or -1 with nothing added where it cannot be understood, or there is no memory.
 */
int flight_read(struct flight *flight, int rank, const char *data, size_t size);

/*
 * Fill the [size] arrivals of [all], which were all zero, with those of one process group; ranks that are not in it are
 * outside. Ranks that are missing in a group may be waiting in another. So it is a group in which those that are missing
 * wait nowhere; else one where ranks are missing, else one where ranks wait, else any.
 * Returns whether there is one.
 */
bool flight_arrivals(const struct flight *flight, struct ddp_arrival *all, int size);

void flight_free(struct flight *flight);

#endif /* DDP_RUN_FLIGHT_H */
