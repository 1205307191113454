/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.h - labelled images: published files, or drawn ones
 *
 * Images are bytes, channel by channel, row by row, as the published files have them. There is one
 * copy on a node: a plain file is mapped, what was unpacked or drawn lies in memory that the
 * ranks share.
 */
#ifndef TRAIN_SET_H
#define TRAIN_SET_H

#include "ddp.h"

struct set; /* one part of a data set: for training, or for testing */

enum set_kind { SET_MNIST, SET_CIFAR10, SET_CIFAR100, SET_KINDS };

struct set_options {
	enum set_kind kind;
	bool test;
	const char *directory; /* of the published files, gzipped or not; NULL: drawn */
	uint64_t samples;      /* of a drawn set; 0: as many as the published one has */
	uint64_t seed;	       /* of a drawn set */
	struct ddp *ddp;       /* ranks that share it; NULL: nobody */
};

struct set_info {
	const char *title; /* "MNIST in /data, 60,000 images", "60,000 drawn digits" */
	int channels, height, width, classes;
	uint64_t samples;
};

/*
 * What [directory] holds, by the names there: [first] is looked for first, then the others. Not
 * collective: with ranks, ask on one and broadcast; set_open() tells where another lacks the files.
 * Returns a kind, or DDP_ERR_FILE with a line that names the directory and what was looked for.
 */
int set_detect(const char *directory, enum set_kind first, struct ddp_error *error);

/* Bytes of memory for the images of a drawn set of [samples]; ranks that share memory have one copy. */
uint64_t set_drawn_bytes(enum set_kind kind, uint64_t samples);

/*
 * Open a set. MNIST's files may be spelt "train-images.idx3-ubyte" and lie in MNIST/raw; CIFAR's
 * binary files may lie in the directory of their archive, or still in the archive, and have fewer
 * samples than were published. A file that is missing, short, too long, damaged or of another kind
 * fails with one line, the same on all ranks: file, offset, what was expected and what was found.
 * Collective where options->ddp is.
 */
int set_open(struct set **set, const struct set_options *options, struct ddp_error *error);

/* Before ddp_destroy(), with which the shared memory goes. Not collective. NULL is legal. */
void set_close(struct set *set);

const struct set_info *set_info(const struct set *set);

/*
 * The label of sample [index], and its image: channels x height x width bytes, which stay there.
 * A drawn one is drawn now if nobody has asked before; it depends on seed and index alone.
 */
int set_label(const struct set *set, uint64_t index);
const uint8_t *set_image(struct set *set, uint64_t index);

#endif /* TRAIN_SET_H */
