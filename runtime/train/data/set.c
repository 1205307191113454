/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "set-private.h"

static const struct {
	int channels, side, classes;
} shapes[SET_KINDS] = {
	[SET_MNIST] = {1, 28, 10},
	[SET_CIFAR10] = {3, 32, 10},
	[SET_CIFAR100] = {3, 32, 100},
};

static struct set *set_new(const struct set_options *options)
{
	struct set *set = calloc(1, sizeof(*set));
	int side = shapes[options->kind].side;

	if (!set)
		return NULL;
	set->kind = options->kind;
	set->info.title = set->title;
	set->info.channels = shapes[options->kind].channels;
	set->info.height = side;
	set->info.width = side;
	set->info.classes = shapes[options->kind].classes;
	set->image_bytes = (size_t)(set->info.channels * side * side);
	return set;
}

int set_open(struct set **set, const struct set_options *options, struct ddp_error *error)
{
	int status;

	*set = set_new(options);
	if (!*set) {
		if (options->ddp)
			ddp_abort(options->ddp, "out of memory while opening a data set");
		return ddp_error_set(error, DDP_ERR_MEMORY, "out of memory for a data set");
	}
	if (!options->directory)
		status = set_open_drawn(*set, options, error);
	else if (options->kind == SET_MNIST)
		status = set_open_mnist(*set, options, error);
	else
		status = set_open_cifar(*set, options, error);
	if (status == 0)
		return 0;
	set_close(*set);
	*set = NULL;
	return status;
}

void set_close(struct set *set)
{
	if (!set)
		return;
	for (int i = 0; i < SET_PARTS; i++)
		source_close(set->files[i].source);
	source_close(set->archive);
	share_destroy(&set->share);
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
		return set_draw_image(set, index);
	part = part_of(set, &index);
	return part->images + index * set->image_stride;
}
