/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.h - labelled images, published or synthetic
 *
 * The directory data/ reads or draws data sets and makes batches of them. It calls ddp.h and base/,
 * and includes net/net.h for the shapes of images. Start reading here, then batch.h.
 *
 * Images are bytes in planes (C, H, W), as in the published files. There is one copy per node:
 * published files are mapped, and synthetic images are in memory that the node's ranks share.
 */
#ifndef TRAIN_SET_H
#define TRAIN_SET_H

#include "ddp.h"

struct set; /* the training part or the test part of a data set */

enum set_kind { SET_MNIST, SET_CIFAR10, SET_CIFAR100, SET_KINDS };

struct set_options {
	enum set_kind kind;
	bool test;
	const char *directory; /* directory of published files, unpacked; NULL: synthetic */
	uint64_t samples;      /* size of a synthetic set; 0: as many as the published set has */
	uint64_t seed;	       /* seed of a synthetic set */
	struct ddp *ddp;       /* ranks that share the set */
};

struct set_info {
	const char *title; /* "MNIST in /data, 60,000 images", "60,000 drawn digits" */
	int channels, height, width, classes;
	uint64_t samples;
};

/*
 * Returns the kind of the data set in [directory], recognised by the names of the files. The search
 * starts with kind [first]. If no kind is found, returns DDP_ERR_FILE with a text that names the
 * directory and the files that were searched for. Not collective: each rank searches on its own. If
 * the ranks have different files, set_open() fails.
 */
int set_detect(const char *directory, enum set_kind first, struct ddp_error *error);

/*
 * Returns the bytes of memory that the images of a synthetic set of [samples] samples need. Ranks
 * on the same node share one copy.
 */
uint64_t set_drawn_bytes(enum set_kind kind, uint64_t samples);

/*
 * Opens a set. MNIST's files may have names such as "train-images.idx3-ubyte", and may be in the
 * subdirectory MNIST/raw. CIFAR's binary files may be in the archive's subdirectory, and may have
 * fewer samples than the published files. It is an error if a file is missing, packed, too short,
 * too long or of another kind. The error text is the same on all ranks, and names the file, the
 * offset, the expected value and the value found. Collective.
 */
int set_open(struct set **set, const struct set_options *options, struct ddp_error *error);

/*
 * Closes the set. Must be called before ddp_destroy(), which frees the shared memory. Not
 * collective. Does nothing for NULL.
 */
void set_close(struct set *set);

const struct set_info *set_info(const struct set *set);

/*
 * Return the label and the image of sample [index]. An image has channels x height x width bytes
 * and stays valid until set_close(). A synthetic image is drawn on first use.
 */
int set_label(const struct set *set, uint64_t index);
const uint8_t *set_image(struct set *set, uint64_t index);

#endif /* TRAIN_SET_H */
