/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memo.h - what was measured on this kind of machine, kept between runs
 *
 * A file of lines "key TAB value" in $XDG_CACHE_HOME/slurm-ddp or ~/.cache/slurm-ddp. It is a help
 * and no more: a file that cannot be read, written or understood is as good as none, and of two runs
 * that write at once one is remembered.
 */
#ifndef TRAIN_MEMO_H
#define TRAIN_MEMO_H

#include <stdbool.h>
#include <stddef.h>

struct memo {
	char *text; /* NULL: nothing is remembered */
	bool changed;
};

/* Never fails: without a file it is empty. */
void memo_open(struct memo *memo);

/* Whether there is a value of [key] that fits into [size] bytes: then it is copied to [value]. */
bool memo_find(const struct memo *memo, const char *key, char *value, size_t size);

/* From now on [value] is that of [key]. Neither has tabs or line ends. */
void memo_add(struct memo *memo, const char *key, const char *value);

/* Write what has changed, and free the memory. */
void memo_close(struct memo *memo);

#endif /* TRAIN_MEMO_H */
