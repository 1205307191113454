/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memo.h - cache file, kept between runs, for measurements of this kind of machine
 *
 * The file is in $XDG_CACHE_HOME/slurm-ddp or ~/.cache/slurm-ddp. Each line is "key TAB value". A
 * file that cannot be read, written or parsed is ignored. If two runs write the file at the same
 * time, the values of the last run remain.
 */
#ifndef TRAIN_MEMO_H
#define TRAIN_MEMO_H

#include <stdbool.h>
#include <stddef.h>

struct memo {
	char *text; /* content of the file; NULL: empty */
	bool changed;
};

/* Reads the cache file. Never fails: without a readable file the memo is empty. */
void memo_open(struct memo *memo);

/*
 * Copies the value of [key] to [value]. Returns false if the key is missing, or if the value does
 * not fit into [size] bytes.
 */
bool memo_find(const struct memo *memo, const char *key, char *value, size_t size);

/* Adds or replaces the value of [key]. Key and value must not contain tabs or line ends. */
void memo_add(struct memo *memo, const char *key, const char *value);

/* Writes the file if a value was added, and frees the memory. */
void memo_close(struct memo *memo);

#endif /* TRAIN_MEMO_H */
