/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tails.h - the last of what each rank printed; and all of it in files, for --logs
 *
 * Several threads may call these at once.
 */
#ifndef DDP_RUN_TAILS_H
#define DDP_RUN_TAILS_H

#include <stddef.h>

#include "base/error.h"

struct tails;

/* All of it goes to files in directory [logs] as well, NULL: it does not. */
struct tails *tails_create(const char *logs);
void tails_destroy(struct tails *tails);

enum { TAILS_ALL = -1 };

/* Take [size] more bytes of [rank]; TAILS_ALL: nobody knows whose they are. */
void tails_take(struct tails *tails, int rank, const char *bytes, size_t size);

/* Bring the files up to date. */
void tails_log(struct tails *tails);

/*
 * Leave tail-<rank>.txt in [dir], if [rank] printed something; TAILS_ALL: tail.txt, if anybody did. Returns 0, or what
 * ddp_file_write() does.
 */
int tails_write(struct tails *tails, const char *dir, int rank, struct ddp_error *error);

#endif /* DDP_RUN_TAILS_H */
