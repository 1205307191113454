/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/text.h"
#include "base/xalloc.h"
#include "draw.h"
#include "set-private.h"

/* --- What the ranks share ------------------------------------------------------------------ */

struct report {
	uint64_t number;
	char host[64];
};

int set_agree(struct set *set, int status, struct ddp_error *error)
{
	if (!set->ddp)
		return status;
	status = ddp_agree(set->ddp, status, error->text);
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(set->ddp)) : 0;
}

/* Where ranks have different numbers, the first that differs from rank 0's. Returns 0 or the error. */
static int compare(const struct report *reports, int size, const char *what,
		   struct ddp_error *error)
{
	for (int i = 1; i < size; i++)
		if (reports[i].number != reports[0].number)
			return ddp_error_set(error, DDP_ERR_MISMATCH,
					     "%" PRIu64 " %s on %s (rank 0), but %" PRIu64
					     " on %s (rank %d): give all ranks the same data",
					     reports[0].number, what, reports[0].host,
					     reports[i].number, reports[i].host, i);
	return 0;
}

int set_compare(struct set *set, const char *what, uint64_t number, struct ddp_error *error)
{
	const struct ddp_world *world = set->ddp ? ddp_world(set->ddp) : NULL;
	struct report own = {.number = number}, *reports;
	int status;

	if (!world)
		return 0;
	reports = ddp_xcalloc((size_t)world->size, sizeof(own), "what ranks say of a data set");
	snprintf(own.host, sizeof(own.host), "%s", world->host);
	status = ddp_all_gather(set->ddp, &own, reports, sizeof(own));
	if (status < 0)
		ddp_error_set(error, status, "%s", ddp_error(set->ddp));
	else
		status = compare(reports, world->size, what, error);
	free(reports);
	return status;
}

int set_create_memory(struct set *set, size_t bytes, struct ddp_error *error)
{
	int status;

	if (set->ddp) {
		status = ddp_shared_create(set->ddp, bytes, &set->memory);
		return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(set->ddp)) : 0;
	}
	set->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	set->memory_bytes = bytes;
	if (set->memory != MAP_FAILED)
		return 0;
	set->memory = NULL;
	return ddp_error_errno(error, DDP_ERR_MEMORY, "%zu bytes for a data set", bytes);
}

/* --- Drawn sets ---------------------------------------------------------------------------- */

/* Samples as published, for training and for testing. */
static const struct shape {
	int channels, side, classes;
	uint64_t samples[2];
} shapes[SET_KINDS] = {
	[SET_MNIST] = {1, DRAW_DIGIT, 10, {60000, 10000}},
	[SET_CIFAR10] = {3, DRAW_OBJECT, 10, {50000, 10000}},
	[SET_CIFAR100] = {3, DRAW_OBJECT, 100, {50000, 10000}},
};

/* Sets for testing are drawn from another seed: no image of one is in the other. */
static const uint64_t test_seed = UINT64_C(0x5bd1e9955bd1e995);

/* In memory there is first a byte for each image, then the images. */
static int open_drawn(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	uint64_t samples =
		options->samples ? options->samples : shapes[options->kind].samples[options->test];
	size_t first = (samples + 63) / 64 * 64, bytes = first + samples * set->image_bytes;
	uint64_t classes = (uint64_t)set->info.classes, blocks = (samples + classes - 1) / classes;
	int status = 0;

	set->info.samples = samples;
	set->seed = options->test ? options->seed ^ test_seed : options->seed;
	snprintf(set->title, sizeof(set->title), "%s drawn %s",
		 ddp_show_count((double)samples).text,
		 options->kind == SET_MNIST ? "digits" : "objects");
	if (samples > (UINT64_C(1) << 40) / set->image_bytes)
		status = ddp_error_set(error, DDP_ERR_ARGUMENT,
				       "%" PRIu64 " drawn images: more than memory can have",
				       samples);
	status = set_agree(set, status, error);
	if (status == 0)
		status = set_compare(set, "drawn images", samples, error);
	if (status == 0)
		status = set_create_memory(set, bytes, error);
	if (status < 0)
		return status;
	set->labels = ddp_xcalloc(blocks, classes, "labels");
	for (uint64_t block = 0; block < blocks; block++)
		draw_labels(set->seed, block, set->info.classes, &set->labels[block * classes]);
	set->drawn = set->memory;
	set->canvas = (uint8_t *)set->memory + first;
	set->image_stride = set->image_bytes;
	set->label_stride = 1;
	set->parts[0] = (struct set_part){set->canvas, set->labels, samples};
	return 0;
}

/*
 * Ranks that draw the same image at once copy the same bytes to the same place: who sees that it
 * is drawn sees it whole.
 */
static const uint8_t *draw_image(struct set *set, uint64_t index)
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

/* --- Sets ---------------------------------------------------------------------------------- */

int set_open(struct set **set, const struct set_options *options, struct ddp_error *error)
{
	const struct shape *shape = &shapes[options->kind];
	struct set *new = ddp_xcalloc(1, sizeof(*new), "a data set");
	int status;

	*set = NULL;
	new->kind = options->kind;
	new->ddp = options->ddp;
	new->info = (struct set_info){.title = new->title,
				      .channels = shape->channels,
				      .height = shape->side,
				      .width = shape->side,
				      .classes = shape->classes};
	new->image_bytes = (size_t)(shape->channels * shape->side * shape->side);
	status = options->directory ? set_open_files(new, options, error)
				    : open_drawn(new, options, error);
	if (status == 0)
		*set = new;
	else
		set_close(new);
	return status;
}

void set_close(struct set *set)
{
	if (!set)
		return;
	for (int i = 0; i < SET_PARTS; i++)
		source_close(set->files[i].source);
	source_close(set->archive);
	if (set->memory && !set->ddp)
		munmap(set->memory, set->memory_bytes);
	free(set->labels);
	free(set);
}

const struct set_info *set_info(const struct set *set)
{
	return &set->info;
}

/* The part that has sample [index], which becomes its place there. */
static const struct set_part *part_of(const struct set *set, uint64_t *index)
{
	const struct set_part *part = set->parts;

	for (; *index >= part->samples; part++)
		*index -= part->samples;
	return part;
}

int set_label(const struct set *set, uint64_t index)
{
	const struct set_part *part = part_of(set, &index);

	return part->labels[index * set->label_stride];
}

const uint8_t *set_image(struct set *set, uint64_t index)
{
	const struct set_part *part;

	if (set->drawn)
		return draw_image(set, index);
	part = part_of(set, &index);
	return part->images + index * set->image_stride;
}
