/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"

struct data {
	struct device *device;
	struct set *set;
	size_t bytes; /* of an image */
	uint8_t *pixels;
	bool there;
};

/* --- Opening ------------------------------------------------------------------------------------ */

static int alloc_pixels(struct data *data, struct ddp_error *error)
{
	const struct set_info *info = set_info(data->set);
	void *memory = NULL;
	char what[640];
	int status;

	if (info->samples > UINT32_MAX)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: a GPU's kernels count %" PRIu32 " samples at most",
				     info->title, UINT32_MAX);
	snprintf(what, sizeof(what), "the images of %s", info->title);
	status = device_alloc(
		data->device, &memory, info->samples * data->bytes, what,
		"the whole set lies on the GPU: train with fewer images (--samples of a "
		"drawn set), or on CPUs (--engine cpu)",
		error);
	data->pixels = memory;
	return status;
}

int data_open(struct data **data, struct device *device, struct set *set, struct ddp_error *error)
{
	const struct set_info *info = set_info(set);
	int status;

	*data = calloc(1, sizeof(**data));
	if (!*data)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a data set on a GPU");
	(*data)->device = device;
	(*data)->set = set;
	(*data)->bytes = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
	status = alloc_pixels(*data, error);
	if (status == 0)
		return 0;
	data_close(*data);
	*data = NULL;
	return status;
}

void data_close(struct data *data)
{
	free(data);
}

const uint8_t *data_pixels(const struct data *data)
{
	return data->pixels;
}

/* --- Bringing ----------------------------------------------------------------------------------- */

enum { PIECE = 4 << 20 };

/* Images [at, at + count), by way of [piece]: a file's have other things between them. */
static int bring_piece(struct data *data, uint8_t *piece, uint64_t at, uint64_t count,
		       struct ddp_error *error)
{
	for (uint64_t i = 0; i < count; i++)
		memcpy(piece + i * data->bytes, set_image(data->set, at + i), data->bytes);
	return device_copy(data->device, DEVICE_COMPUTE, data->pixels + at * data->bytes, piece,
			   count * data->bytes, error);
}

static int bring_all(struct data *data, uint64_t first, struct ddp_error *error)
{
	uint64_t samples = set_info(data->set)->samples, most = PIECE / data->bytes, count;
	uint8_t *piece = malloc(most * data->bytes);
	int status = 0;

	if (!piece)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for images on their way");
	for (uint64_t done = 0; status == 0 && done < samples; done += count) {
		uint64_t at = (first + done) % samples;

		count = samples - at < samples - done ? samples - at : samples - done;
		count = count < most ? count : most;
		status = bring_piece(data, piece, at, count, error);
	}
	free(piece);
	data->there = status == 0;
	return status;
}

int data_bring(struct data *data, uint64_t first, const struct batch *batch,
	       struct ddp_error *error)
{
	const struct set_info *info = set_info(data->set);

	for (size_t i = 0; i < batch->count; i++) {
		if (batch->indices[i] >= info->samples)
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "sample %" PRIu64 " of %s: there is none",
					     batch->indices[i], info->title);
	}
	return data->there ? 0 : bring_all(data, first, error);
}
