/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tails.h - for --logs: what each rank printed, as sattach --label tells it
 *
 * srun --label would tell it too, but its output cannot be turned back into that of srun without: Slurm sends long lines
 * in pieces of 1,024 bytes, and --label ends each piece, and each last line, with a line's end that the rank did not write. So
 * srun's output stays as it is, and a second client of the step, sattach, has the labels; here pieces are put together. It is
 * not there without --logs: a step that has a second client took 2 s longer to tell of the end of a task (Slurm 22.05).
 */
#ifndef DDP_RUN_TAILS_H
#define DDP_RUN_TAILS_H

#include <stddef.h>
#include <sys/types.h>

struct tails;

/* All of it goes to files in directory [logs], and the last of it is kept. */
struct tails *tails_create(const char *logs);
void tails_destroy(struct tails *tails);

/* Take [size] more bytes of the labelled output. */
void tails_take(struct tails *tails, const char *bytes, size_t size);

/* Leave tail-<rank>.txt of all ranks that printed something in [dir]. */
void tails_write(const struct tails *tails, const char *dir);

#endif /* DDP_RUN_TAILS_H */
