/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h - record of a GPU's memory that this rank has allocated, and its limit
 *
 * Used by device_alloc(), also in the emulation. Does not call CUDA.
 */
#ifndef TRAIN_CUDA_LEDGER_H
#define TRAIN_CUDA_LEDGER_H

#include "device.h"

/* OTHERS: device memory that was allocated elsewhere and is freed there. */
enum ledger_kind { LEDGER_DEVICE, LEDGER_HOST, LEDGER_OTHERS };

struct ledger_entry {
	struct ledger_entry *next;
	void *memory;
	size_t bytes;
	enum ledger_kind kind;
};

struct ledger {
	size_t used, most; /* bytes of device memory now, and maximum so far */
	size_t context;	   /* bytes used by CUDA itself */
	struct ledger_entry *entries;
};

/*
 * Sets the limit in [info] for a rank with [share] (0: all) of a GPU with [available] free bytes,
 * after CUDA has allocated ledger->context. Returns 0, or DDP_ERR_MEMORY if less is free. A small
 * difference is accepted, as the driver reserves some memory.
 */
int ledger_limit(const struct ledger *ledger, struct device_info *info, size_t available,
		 double share, struct ddp_error *error);

bool ledger_allows(const struct ledger *ledger, const struct device_info *info, size_t bytes);

/*
 * Sets [error] to the reason why [bytes] for [what] were not allocated: the limit, or CUDA's text
 * [said] with the GPU's [available] bytes. [remedy] may be NULL. Returns DDP_ERR_MEMORY.
 */
int ledger_refuse(const struct ledger *ledger, const struct device_info *info, size_t available,
		  size_t bytes, const char *what, const char *remedy, const char *said,
		  struct ddp_error *error);

void ledger_add(struct ledger *ledger, void *memory, size_t bytes, enum ledger_kind kind);

/* The entry that contains the address [memory], or NULL. */
const struct ledger_entry *ledger_find(const struct ledger *ledger, const void *memory);

/*
 * Removes the entry of [memory], or any entry if it is NULL, and copies it to [entry]. Returns
 * false if there is none.
 */
bool ledger_remove(struct ledger *ledger, const void *memory, struct ledger_entry *entry);

#endif /* TRAIN_CUDA_LEDGER_H */
