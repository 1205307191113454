/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h - what was allocated on a GPU, against what this rank may have of it
 *
 * Behind device_alloc(), here and in the emulation: pure bookkeeping and texts, without CUDA.
 */
#ifndef TRAIN_CUDA_LEDGER_H
#define TRAIN_CUDA_LEDGER_H

#include "device.h"

/* OTHERS: of the device too, but not ours to free. */
enum ledger_kind { LEDGER_DEVICE, LEDGER_HOST, LEDGER_OTHERS };

struct ledger_entry {
	struct ledger_entry *next;
	void *memory;
	size_t bytes;
	enum ledger_kind kind;
};

struct ledger {
	size_t used, most; /* bytes of the device */
	size_t context;	   /* and those of CUDA itself: not ours to free */
	struct ledger_entry *entries;
};

/*
 * Set the limit of a rank with [share] (0: all) of a card, of which [available] bytes are free and CUDA has taken
 * the ledger's context already.
 * Returns 0; DDP_ERR_MEMORY where less is free. A little less is no reason: the driver keeps some for itself.
 */
int ledger_limit(const struct ledger *ledger, struct device_info *info, size_t available,
		 double share, struct ddp_error *error);

/* Whether [bytes] more are within the limit. */
bool ledger_allows(const struct ledger *ledger, const struct device_info *info, size_t bytes);

/*
 * Why [bytes] for [what] cannot be had, in [error]: by the limit, else since only [available] are free on the card.
 * [remedy] may be NULL. Returns DDP_ERR_MEMORY.
 */
int ledger_refuse(const struct ledger *ledger, const struct device_info *info, size_t available,
		  size_t bytes, const char *what, const char *remedy, struct ddp_error *error);

/* [memory] is there now. */
void ledger_add(struct ledger *ledger, void *memory, size_t bytes, enum ledger_kind kind);

/* The entry in which [memory] lies, NULL: none. */
const struct ledger_entry *ledger_find(const struct ledger *ledger, const void *memory);

/*
 * Take the entry of [memory], or with NULL any, out of the ledger.
 * Returns false where there is none; else [entry] is a copy of it.
 */
bool ledger_take(struct ledger *ledger, const void *memory, struct ledger_entry *entry);

#endif /* TRAIN_CUDA_LEDGER_H */
