/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - what all ranks put before a fence, as rank 0 published it in one file
 *
 * A rank reads the head, and then what it asks for; nobody but rank 0 handles all of it. The
 * file stays readable for those who have it open after its name is gone.
 */
#ifndef DDP_RENDEZVOUS_TABLE_H
#define DDP_RENDEZVOUS_TABLE_H

#include "record.h"

struct ddp_table;

/*
 * Publish as [path] the [size] bytes of [records], where [index] says which are whose, in the
 * order of ranks. [head] says rank 0, the attempt and the fence.
 * Returns 0, DDP_ERR_FILE or DDP_ERR_MEMORY.
 */
int ddp_table_write(const char *path, const struct ddp_record *head, const struct ddp_index *index,
		    const uint8_t *records, size_t size, struct ddp_error *error);

/*
 * Open [path], which must be the table of [mine]'s attempt and fence and match it, and hold
 * [mine]'s own record.
 * Returns 0; 1 where it is not there (yet); DDP_ERR_FILE, DDP_ERR_FORMAT, DDP_ERR_MISMATCH,
 * DDP_ERR_MEMORY.
 */
int ddp_table_open(struct ddp_table **table, const char *path, const struct ddp_record *mine,
		   struct ddp_error *error);

/* NULL is legal. */
void ddp_table_close(struct ddp_table *table);

/*
 * Read [rank]'s record, checked, and point [body] (unless NULL) to what it put, which stays
 * until the next call.
 * Returns 0, DDP_ERR_ARGUMENT, DDP_ERR_FILE, DDP_ERR_FORMAT or DDP_ERR_MEMORY.
 */
int ddp_table_get(struct ddp_table *table, int rank, struct ddp_record *record,
		  const uint8_t **body, struct ddp_error *error);

#endif /* DDP_RENDEZVOUS_TABLE_H */
