/* SPDX-License-Identifier: Apache-2.0 */
/* buckets.c - assign a bucket and an offset to each gradient */
#include "config.h"

#include <stdlib.h>

#include "buckets.h"

size_t ddp_buckets_assign(const size_t *bytes, size_t count, size_t first, size_t limit,
			  size_t *bucket)
{
	size_t open = 0, size = 0;
	bool empty = true;

	for (size_t i = 0; i < count; i++) {
		bucket[i] = open;
		size += bytes[i];
		empty = false;
		if (size >= (open == 0 ? first : limit)) {
			open++;
			size = 0;
			empty = true;
		}
	}
	return empty ? open : open + 1;
}

/* Set [bytes] to the size of each gradient, in the order in which gradients become ready. */
static int compute_bytes(const struct ddp_parameter *parameters, size_t count, size_t size,
			 size_t *bytes, struct ddp_error *error)
{
	size_t total = 0;

	for (size_t i = 0; i < count; i++) {
		const struct ddp_parameter *parameter = &parameters[count - 1 - i];

		if (__builtin_mul_overflow(parameter->count, size, &bytes[i]) ||
		    __builtin_add_overflow(total, bytes[i], &total) ||
		    __builtin_add_overflow(total, DDP_VIEW_ALIGNMENT, &total))
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "gradients: %zu elements of %s are too many",
					     parameter->count, parameter->name);
	}
	return 0;
}

/* Set the offsets of the views: one after the other, each at a multiple of DDP_VIEW_ALIGNMENT. */
static void place_views(struct ddp_layout *layout, const struct ddp_parameter *parameters,
			const size_t *bucket, size_t size)
{
	size_t step = DDP_VIEW_ALIGNMENT / size, count = layout->view_count;

	for (size_t i = 0; i < count; i++) {
		struct ddp_bucket *into = &layout->buckets[bucket[i]];
		struct ddp_view *view = &layout->views[count - 1 - i];

		view->count = parameters[count - 1 - i].count;
		view->offset = layout->elements;
		view->bucket = bucket[i];
		layout->elements += (view->count + step - 1) / step * step;
		if (into->members++ == 0)
			into->offset = view->offset;
		into->count = layout->elements - into->offset;
	}
}

int ddp_layout_create(struct ddp_layout *layout, const struct ddp_parameter *parameters,
		      size_t count, size_t size, size_t first, size_t limit,
		      struct ddp_error *error)
{
	size_t *bytes = calloc(count, sizeof(*bytes));
	size_t *bucket = calloc(count, sizeof(*bucket));
	int status;

	*layout = (struct ddp_layout){.view_count = count};
	layout->views = calloc(count, sizeof(*layout->views));
	if (!bytes || !bucket || !layout->views)
		goto memory;
	status = compute_bytes(parameters, count, size, bytes, error);
	if (status < 0)
		goto out;
	layout->bucket_count = ddp_buckets_assign(bytes, count, first, limit, bucket);
	layout->buckets = calloc(layout->bucket_count, sizeof(*layout->buckets));
	if (!layout->buckets)
		goto memory;
	place_views(layout, parameters, bucket, size);
	ddp_layout_reset(layout);
	goto out;
memory:
	status = ddp_error_set(error, DDP_ERR_MEMORY,
			       "gradients: out of memory for the layout of %zu parameters", count);
out:
	if (status < 0)
		ddp_layout_destroy(layout);
	free(bucket);
	free(bytes);
	return status;
}

void ddp_layout_destroy(struct ddp_layout *layout)
{
	free(layout->buckets);
	free(layout->views);
	*layout = (struct ddp_layout){0};
}

size_t ddp_layout_largest(const struct ddp_layout *layout)
{
	size_t largest = 0;

	for (size_t i = 0; i < layout->bucket_count; i++) {
		if (layout->buckets[i].count > largest)
			largest = layout->buckets[i].count;
	}
	return largest;
}

void ddp_layout_reset(struct ddp_layout *layout)
{
	for (size_t i = 0; i < layout->view_count; i++)
		layout->views[i].ready = false;
	for (size_t i = 0; i < layout->bucket_count; i++)
		layout->buckets[i].waiting = layout->buckets[i].members;
}
