/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - crop, flip and normalize the images of a step, and collect its labels */
#include "config.h"

#include <string.h>

#include "base/type.h"
#include "batch.h"

/* Normalised values of the pixel values 0 to 255, for each channel. */
union levels {
	float f32[NET_CHANNELS][256];
	uint16_t bf16[NET_CHANNELS][256];
};

/*
 * Computes the normalised values with the same sequence of operations as torchvision's ToTensor and
 * Normalize, so that the bits are equal.
 */
static void levels_fill(union levels *levels, const struct net *net, enum ddp_type type)
{
	for (int channel = 0; channel < net->channels; channel++) {
		for (int value = 0; value < 256; value++) {
			float level = (float)value / 255.0f;

			level = (level - net->mean[channel]) / net->deviation[channel];
			if (type == DDP_BF16)
				levels->bf16[channel][value] = ddp_to_bf16(level);
			else
				levels->f32[channel][value] = level;
		}
	}
}

struct batch_crop batch_crop(const struct net *net, const struct batch *batch, size_t i)
{
	struct batch_crop crop = {0, 0, false};
	uint64_t places = 2 * (uint64_t)net->pad + 1;
	uint32_t words[4];

	if (!batch->augment || (net->pad == 0 && !net->flip))
		return crop;
	ddp_random(batch->seed, batch->epoch, batch->orders[i], BATCH_LAYER_CROP, 0, words);
	crop.top = (int)(words[0] * places >> 32) - net->pad;
	crop.left = (int)(words[1] * places >> 32) - net->pad;
	crop.mirrored = net->flip && words[2] >> 31;
	return crop;
}

/*
 * Columns [begin, end) of a cropped image are inside the original image. Column [begin] is column
 * [first] of the original image, and each further column is [step] columns from the last.
 */
struct span {
	int begin, end;
	ptrdiff_t first, step;
};

static struct span span_of(const struct net *net, struct batch_crop crop)
{
	int width = net->width, left = crop.left;
	struct span span = {left < 0 ? -left : 0, left > 0 ? width - left : width, 0, 1};

	span.first = span.begin + left;
	if (crop.mirrored) {
		int begin = width - span.end;

		span.first = span.end - 1 + left;
		span.end = width - span.begin;
		span.begin = begin;
		span.step = -1;
	}
	return span;
}

/* Writes one row of one channel: pixels of [from] in the columns of [span], black elsewhere. */
#define DEFINE_ROW(name, element)                                                            \
	static void name(const element *level, const uint8_t *from, const struct span *span, \
			 ptrdiff_t width, ptrdiff_t channels, element *to)                   \
	{                                                                                    \
		ptrdiff_t begin = span->begin, end = span->end, step = span->step;           \
                                                                                             \
		for (ptrdiff_t x = 0; x < begin; x++)                                        \
			to[x * channels] = level[0];                                         \
		for (ptrdiff_t x = begin; x < end; x++)                                      \
			to[x * channels] = level[from[(x - begin) * step]];                  \
		for (ptrdiff_t x = end; x < width; x++)                                      \
			to[x * channels] = level[0];                                         \
	}

DEFINE_ROW(row_f32, float)
DEFINE_ROW(row_bf16, uint16_t)

/* Converts an image from planes (C, H, W) to channels last (H, W, C). */
static void image(const struct net *net, const union levels *levels, const uint8_t *from,
		  struct batch_crop crop, void *to, enum ddp_type type)
{
	const struct span inside = span_of(net, crop);
	const struct span outside = {.end = 0};
	ptrdiff_t width = net->width, channels = net->channels;

	for (ptrdiff_t i = 0; i < channels * net->height; i++) {
		ptrdiff_t channel = i / net->height, row = i % net->height;
		ptrdiff_t y = row + crop.top, at = row * width * channels + channel;
		bool there = y >= 0 && y < net->height;
		const struct span *span = there ? &inside : &outside;
		const uint8_t *pixels = from;

		if (there)
			pixels += (channel * net->height + y) * width + span->first;
		if (type == DDP_BF16)
			row_bf16(levels->bf16[channel], pixels, span, width, channels,
				 (uint16_t *)to + at);
		else
			row_f32(levels->f32[channel], pixels, span, width, channels,
				(float *)to + at);
	}
}

void batch_images(const struct net *net, struct set *set, const struct batch *batch, void *images,
		  enum ddp_type type)
{
	size_t bytes = (size_t)net->channels * (size_t)net->height * (size_t)net->width *
		       ddp_type_size(type);
	union levels levels;

	levels_fill(&levels, net, type);
	for (size_t i = 0; i < batch->count; i++)
		image(net, &levels, set_image(set, batch->indices[i]), batch_crop(net, batch, i),
		      (char *)images + i * bytes, type);
}

void batch_labels(const struct set *set, const struct batch *batch, int32_t *labels)
{
	for (size_t i = 0; i < batch->count; i++)
		labels[i] = set_label(set, batch->indices[i]);
}
