/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h - list of the GPU memory that this rank has allocated, and the limit of that memory
 *
 * device_alloc() uses the list, also in the emulation. This code does not call CUDA.
 */
#ifndef TRAIN_CUDA_LEDGER_H
#define TRAIN_CUDA_LEDGER_H

#include "device.h"

/* LEDGER_OTHERS: device memory that other code allocates and frees. */
enum ledger_kind { LEDGER_DEVICE, LEDGER_HOST, LEDGER_OTHERS };

struct ledger_entry {
	struct ledger_entry *next;
	void *memory;
	size_t bytes;
	enum ledger_kind kind;
};

struct ledger {
	size_t used, most; /* bytes of device memory: used now, and most used so far */
	size_t context;	   /* bytes used by CUDA itself */
	struct ledger_entry *entries;
};

/*
 * Sets the limit in [info] for a rank with [share] (0: all) of a GPU with [available] free bytes,
 * after CUDA has allocated ledger->context. Returns 0, or DDP_ERR_MEMORY if less memory than the
 * share is free. A small difference is accepted, as the driver reserves some memory.
 */
int ledger_limit(const struct ledger *ledger, struct device_info *info, size_t available,
		 double share, struct ddp_error *error);

bool ledger_allows(const struct ledger *ledger, const struct device_info *info, size_t bytes);

/*
 * Sets [error] to the reason why [bytes] for [what] were not allocated. Either the limit was
 * reached, or CUDA failed with the text [said] while [available] bytes were free. [remedy] may be
 * NULL. Returns DDP_ERR_MEMORY.
 */
int ledger_refuse(const struct ledger *ledger, const struct device_info *info, size_t available,
		  size_t bytes, const char *what, const char *remedy, const char *said,
		  struct ddp_error *error);

void ledger_add(struct ledger *ledger, void *memory, size_t bytes, enum ledger_kind kind);

/* Returns the entry whose memory contains the address [memory], or NULL if there is none. */
const struct ledger_entry *ledger_find(const struct ledger *ledger, const void *memory);

/*
 * Removes the entry of [memory], or any entry if [memory] is NULL, and copies it to [entry].
 * Returns false if the entry does not exist.
 */
bool ledger_remove(struct ledger *ledger, const void *memory, struct ledger_entry *entry);

#endif /* TRAIN_CUDA_LEDGER_H */
