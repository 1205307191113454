/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "set-private.h"

/* Samples for training and for testing, as published. */
static const uint64_t published[SET_KINDS][2] = {
	[SET_MNIST] = {60000, 10000},
	[SET_CIFAR10] = {50000, 10000},
	[SET_CIFAR100] = {50000, 10000},
};

/* Sets for testing are drawn from another seed: no image of one is in the other. */
static const uint64_t test_seed = UINT64_C(0x5bd1e9955bd1e995);

static int draw_all_labels(struct set *set, struct ddp_error *error)
{
	uint64_t classes = (uint64_t)set->info.classes;
	uint64_t blocks = (set->info.samples + classes - 1) / classes;

	set->labels = calloc(blocks, classes);
	if (!set->labels)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %" PRIu64 " labels",
				     set->info.samples);
	for (uint64_t block = 0; block < blocks; block++)
		draw_labels(set->seed, block, set->info.classes, &set->labels[block * classes]);
	return 0;
}

/* First a byte for each image, then the images. */
static int layout(const struct set *set, size_t *first, size_t *bytes, struct ddp_error *error)
{
	uint64_t samples = set->info.samples;

	if (samples > (UINT64_C(1) << 40) / set->image_bytes)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%" PRIu64 " drawn images: more than memory can have",
				     samples);
	*first = (samples + 63) / 64 * 64;
	*bytes = *first + samples * set->image_bytes;
	return 0;
}

int set_open_drawn(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	uint8_t *memory;
	size_t first = 0, bytes = 0;
	int status;

	set->info.samples =
		options->samples ? options->samples : published[options->kind][options->test];
	set->seed = options->test ? options->seed ^ test_seed : options->seed;
	snprintf(set->title, sizeof(set->title), "%" PRIu64 " drawn %s", set->info.samples,
		 options->kind == SET_MNIST ? "digits" : "objects");
	status = layout(set, &first, &bytes, error);
	if (status == 0)
		status = draw_all_labels(set, error);
	status =
		share_agree(options->ddp, status, "drawn images", set->info.samples, &bytes, error);
	if (status == 0)
		status = share_create(&set->share, options->ddp, bytes, error);
	if (status < 0)
		return status;
	memory = set->share.memory;
	set->drawn = (_Atomic uint8_t *)memory;
	set->canvas = memory + first;
	set->image_stride = set->image_bytes;
	set->label_stride = 1;
	set->parts[0] = (struct set_part){set->canvas, set->labels, set->info.samples};
	return 0;
}

/*
 * Ranks that draw the same image at once copy the same bytes to the same place: who sees that it
 * is drawn sees it whole.
 */
const uint8_t *set_draw_image(struct set *set, uint64_t index)
{
	uint8_t *image = set->canvas + index * set->image_bytes;
	uint8_t fresh[3 * DRAW_OBJECT * DRAW_OBJECT];

	if (atomic_load_explicit(&set->drawn[index], memory_order_acquire))
		return image;
	if (set->kind == SET_MNIST)
		draw_digit(set->seed, index, fresh);
	else
		draw_object(set->seed, index, set->info.classes, fresh);
	memcpy(image, fresh, set->image_bytes);
	atomic_store_explicit(&set->drawn[index], 1, memory_order_release);
	return image;
}
