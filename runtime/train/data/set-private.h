/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set-private.h - a set from inside: what drawn and published ones fill in
 */
#ifndef TRAIN_SET_PRIVATE_H
#define TRAIN_SET_PRIVATE_H

#include "set.h"
#include "source.h"

enum { SET_PARTS = 5 };

/* One file, or member of an archive: what of it is read, and where that lies in the end. */
struct set_file {
	struct source *source;	/* NULL: a member of the archive */
	const char *member;	/* its name there */
	uint64_t first, length; /* of the bytes that are read */
	const uint8_t *bytes;
};

/* Samples that follow each other. */
struct set_part {
	const uint8_t *images, *labels;
	uint64_t samples;
};

struct set {
	struct set_info info;
	char title[512];
	enum set_kind kind;
	struct set_part parts[SET_PARTS]; /* those behind the last have no samples */
	size_t image_bytes;		  /* of one image */
	size_t image_stride, label_stride;
	struct ddp *ddp; /* NULL: this process alone */
	void *memory;	 /* of the node, for what is unpacked or drawn */
	size_t memory_bytes;

	/* A set of files. */
	struct set_file files[SET_PARTS];
	struct source *archive;

	/* A drawn set. */
	uint64_t seed;		/* of this part: testing has another than training */
	_Atomic uint8_t *drawn; /* whether image [i] is there; NULL: a set of files */
	uint8_t *canvas;	/* the images */
	uint8_t *labels;	/* this rank's own */
};

/* As ddp_agree() with [error]'s text; of this process alone it is [status]. Collective. */
int set_agree(struct set *set, int status, struct ddp_error *error);

/*
 * All ranks fail where [number], called [what], differs between them. Collective.
 * Returns 0, DDP_ERR_MISMATCH or what ddp_all_gather() returns.
 */
int set_compare(struct set *set, const char *what, uint64_t number, struct ddp_error *error);

/*
 * Have set->memory, of [bytes], zeroed, for the ranks that share memory. Collective.
 * Returns 0, DDP_ERR_MEMORY, or what ddp_shared_create() returns.
 */
int set_create_memory(struct set *set, size_t bytes, struct ddp_error *error);

/* Open published files, the fields above are filled in. Collective. */
int set_open_files(struct set *set, const struct set_options *options, struct ddp_error *error);

#endif /* TRAIN_SET_PRIVATE_H */
