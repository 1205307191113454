/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - copy the data set and the data of each step to the device */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "data.h"
#include "optim/loop.h"

/* --- Open --------------------------------------------------------------------------------------- */

static uint64_t *orders(struct kernel_step *step)
{
	return (void *)(step + 1);
}

static uint32_t *indices(const struct data *data, struct kernel_step *step)
{
	return (void *)(orders(step) + data->setup.batch);
}

/* Sets the pointers to the device memory. Called twice, as described at struct device_parts. */
static void divide(struct data *data, size_t samples, struct device_parts *parts)
{
	data->images.pixels = device_part(parts, samples * data->bytes);
	data->images.labels = device_part(parts, samples);
	data->step = device_part(parts, data->slot_bytes);
	data->block.labels = device_part(parts, data->setup.batch * sizeof(int32_t));
}

int data_open(struct data **result, const struct data_setup *setup, struct ddp_error *error)
{
	static const char remedy[] =
		"The whole set must fit into the GPU's memory. Train with fewer images (--samples "
		"of a drawn set), or on CPUs (--engine cpu).";
	const struct set_info *info = set_info(setup->set);
	struct data *data = *result = ddp_xcalloc(1, sizeof(*data), "a data set on a GPU");
	struct device_parts parts = {NULL, 0};
	size_t sample = sizeof(uint64_t) + sizeof(uint32_t);
	void *memory, *slots;
	char what[640];
	int status;

	data->setup = *setup;
	data->slot_bytes = (sizeof(*data->step) + setup->batch * sample + 7) / 8 * 8;
	data->images.net = *setup->net;
	data->bytes = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
	snprintf(what, sizeof(what), "the images of %s", info->title);
	divide(data, info->samples, &parts);
	status = device_alloc(setup->device, &memory, parts.bytes, what, remedy, error);
	if (status == 0)
		status = device_alloc_host(setup->device, &slots, KERNEL_SLOTS * data->slot_bytes,
					   "the data of steps", error);
	if (status < 0)
		return status;
	parts = (struct device_parts){memory, 0};
	divide(data, info->samples, &parts);
	data->slots = slots;
	data->block.order = &data->step->order;
	data->block.orders = orders(data->step);
	return 0;
}

/* --- Copy of the set ---------------------------------------------------------------------------- */

enum { PIECE = 4 << 20 };

/* Copies the images to the device in pieces, because images are not contiguous in a file. */
static int copy_set(struct data *data, struct ddp_error *error)
{
	const struct data_setup *setup = &data->setup;
	uint64_t samples = set_info(setup->set)->samples, most = PIECE / data->bytes, count;
	uint8_t *piece = ddp_xcalloc(most, data->bytes + 1, "images on their way");
	uint8_t *labels = piece + most * data->bytes;
	int status = 0;

	for (uint64_t done = 0; status == 0 && done < samples; done += count) {
		uint64_t at = (setup->first + done) % samples;

		count = samples - at < samples - done ? samples - at : samples - done;
		count = count < most ? count : most;
		for (uint64_t i = 0; i < count; i++) {
			memcpy(piece + i * data->bytes, set_image(setup->set, at + i), data->bytes);
			labels[i] = (uint8_t)set_label(setup->set, at + i);
		}
		status = device_copy(setup->device, DEVICE_COMPUTE,
				     (void *)(data->images.pixels + at * data->bytes), piece,
				     count * data->bytes, error);
		if (status == 0)
			status = device_copy(setup->device, DEVICE_COMPUTE,
					     (void *)(data->images.labels + at), labels, count,
					     error);
	}
	free(piece);
	data->is_copied = status == 0;
	return status;
}

/* --- Steps -------------------------------------------------------------------------------------- */

static void set_samples(const struct data *data, const struct batch *batch,
			struct kernel_step *slot)
{
	for (size_t i = 0; i < batch->count; i++) {
		indices(data, slot)[i] = (uint32_t)batch->indices[i];
		orders(slot)[i] = batch->orders[i];
	}
}

static struct kernel_order order_of(const struct data *data, const struct batch *batch,
				    const struct data_step *step)
{
	struct kernel_order order = {.seed = batch->seed,
				     .epoch = batch->epoch,
				     .sequence = step->sequence,
				     .updates = step->updates,
				     .share = 1.0f / (float)(step->global > 0 ? step->global : 1),
				     .count = (uint32_t)batch->count,
				     .augment = batch->augment,
				     .stop = step->stop};

	for (uint64_t i = 0; data->setup.optim && i <= step->unsure; i++) {
		struct optim_numbers numbers =
			optim_numbers_of(data->setup.optim, step->updates + 1 + i, step->rate);

		order.paces[i] = (struct kernel_pace){numbers.rate, numbers.root, numbers.shrink};
	}
	return order;
}

int data_send(struct data *data, const struct batch *batch, const struct data_step *step,
	      struct ddp_error *error)
{
	char *slot = data->slots + step->sequence % KERNEL_SLOTS * data->slot_bytes;
	struct kernel_step *host = (void *)slot;
	size_t from = offsetof(struct kernel_step, order);
	int status = data->is_copied ? 0 : copy_set(data, error);

	if (status < 0)
		return status;
	set_samples(data, batch, host);
	host->order = order_of(data, batch, step);
	if (step->state) {
		host->next = *step->state;
		from = offsetof(struct kernel_step, next);
	}
	return device_copy(data->setup.device, DEVICE_COMPUTE, (char *)data->step + from,
			   slot + from, data->slot_bytes - from, error);
}

void data_gather(const struct data *data, size_t batch, void *x, enum ddp_type type)
{
	kernel_gather(device_stream(data->setup.device, DEVICE_COMPUTE), &data->images, data->step,
		      indices(data, data->step), data->block.orders, batch, x, data->block.labels,
		      type);
}
