/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set-private.h - a set from inside: what its kinds fill in
 */
#ifndef TRAIN_SET_PRIVATE_H
#define TRAIN_SET_PRIVATE_H

#include <stdatomic.h>

#include "draw.h"
#include "set.h"
#include "share.h"
#include "source.h"

enum { SET_PARTS = 5, SET_TITLE = 512 };

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
	char title[SET_TITLE];
	enum set_kind kind;
	struct set_part parts[SET_PARTS]; /* those behind the last have no samples */
	size_t image_bytes;		  /* of one image */
	size_t image_stride, label_stride;
	struct share share;

	/* A set of files. */
	struct set_file files[SET_PARTS];
	struct source *archive;

	/* A drawn set. */
	uint64_t seed;		/* of this part: testing has another than training */
	_Atomic uint8_t *drawn; /* whether image [i] is there; NULL: a set of files */
	uint8_t *canvas;	/* the images */
	uint8_t *labels;	/* this rank's own */
};

/* Open the published files, the fields above are filled in. Collective. */
int set_open_mnist(struct set *set, const struct set_options *options, struct ddp_error *error);
int set_open_cifar(struct set *set, const struct set_options *options, struct ddp_error *error);

/*
 * Look in [directory] for a file with one of [names], also gzipped, also in [below]; lists end
 * with NULL. Returns 0 with it open; 1 where there is none, or an error.
 */
int set_find_file(struct source **source, const char *directory, const char *const *below,
		  const char *const *names, struct ddp_error *error);

/*
 * The files are open (or [status] says why not): have the bytes of all in place, unpacked where
 * they must be. Collective.
 */
int set_load_files(struct set *set, struct ddp *ddp, int status, struct ddp_error *error);

/*
 * The parts are in place, [status] says; check their labels and that all ranks have as many
 * samples. Collective.
 */
int set_check(struct set *set, const struct set_options *options, int status,
	      struct ddp_error *error);

/* "[path]", or "[archive]: [member]". */
const char *set_file_name(const struct set *set, const struct set_file *file, char *text,
			  size_t size);

/* A drawn one. Collective. */
int set_open_drawn(struct set *set, const struct set_options *options, struct ddp_error *error);
const uint8_t *set_draw_image(struct set *set, uint64_t index);

#endif /* TRAIN_SET_PRIVATE_H */
