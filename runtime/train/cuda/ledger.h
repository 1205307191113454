/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.h - what was allocated on a GPU, against what this rank may have of it
 *
 * Behind device_alloc() and its mates: pure bookkeeping and texts, without CUDA.
 */
#ifndef TRAIN_CUDA_LEDGER_H
#define TRAIN_CUDA_LEDGER_H

#include "device.h"
#include "engine.h"
#include "wide/card-memory.h"

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

enum { LEDGER_HOLDERS = 256 };

/*
 * The largest of [holders], without this process: "process 4711 holds 70.1 GiB, rank 2 of this job (process 4712)
 * holds 20.0 GiB", or "".
 */
void ledger_tell_holders(struct ddp_card_holder *holders, int count,
			 const struct engine_mate *mates, int mate_count,
			 char text[LEDGER_HOLDERS]);

/* What the card says when it is asked for memory: of all processes. */
struct ledger_card {
	size_t free;
	const char *holders; /* "process 4711 holds 70.1 GiB", or "" */
};

/* Whether [bytes] more are within the limit. */
bool ledger_allows(const struct ledger *ledger, const struct device_info *info, size_t bytes);

/*
 * Why [bytes] for [what] cannot be had, in [error]: by the limit, else by the card. [remedy] may be NULL.
 * Returns DDP_ERR_MEMORY.
 */
int ledger_refuse(const struct ledger *ledger, const struct device_info *info,
		  const struct ledger_card *card, size_t bytes, const char *what,
		  const char *remedy, struct ddp_error *error);

/* [memory] is there now. Returns false where the process has no memory for the entry. */
bool ledger_add(struct ledger *ledger, void *memory, size_t bytes, enum ledger_kind kind);

/* The entry in which [memory] lies, NULL: none. */
const struct ledger_entry *ledger_find(const struct ledger *ledger, const void *memory);

/*
 * Take the entry of [memory], or with NULL any, out of the ledger.
 * Returns false where there is none; else [entry] is a copy of it.
 */
bool ledger_take(struct ledger *ledger, const void *memory, struct ledger_entry *entry);

/*
 * What a rank with [share] (0: all) of a card may have, of which CUDA has taken [context] already; or with less
 * than that free, DDP_ERR_MEMORY. A little less is no reason: the driver keeps some for itself.
 */
int ledger_limit(struct device_info *info, const struct ledger_card *card, size_t context,
		 double share, struct ddp_error *error);

#endif /* TRAIN_CUDA_LEDGER_H */
