/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - copy the data set and the tables of announced steps to the device */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "data.h"
#include "optim/loop.h"

/* --- Table of steps ----------------------------------------------------------------------------- */

static size_t steps_of(size_t samples, size_t each)
{
	return samples > each ? (samples + each - 1) / each : 1;
}

/* The table starts with struct kernel_next. The last entry is followed by an entry of zeros. */
static struct data_layout layout_of(size_t samples, size_t steps)
{
	struct data_layout layout;

	layout.entries = sizeof(struct kernel_next);
	layout.corrections = layout.entries + (steps + 1) * sizeof(struct kernel_entry);
	layout.places =
		layout.corrections + (steps + KERNEL_SLOTS) * sizeof(struct optim_correction);
	layout.indices = layout.places + samples * sizeof(uint64_t);
	layout.bytes = layout.indices + samples * sizeof(uint32_t);
	return layout;
}

static struct kernel_entry *entries(const struct data *data, uint8_t *memory)
{
	return (void *)(memory + data->layout.entries);
}

static struct optim_correction *corrections(const struct data *data, uint8_t *memory)
{
	return (void *)(memory + data->layout.corrections);
}

static uint64_t *places(const struct data *data, uint8_t *memory)
{
	return (void *)(memory + data->layout.places);
}

static uint32_t *indices(const struct data *data, uint8_t *memory)
{
	return (void *)(memory + data->layout.indices);
}

/* --- Open --------------------------------------------------------------------------------------- */

static struct kernel_images images_of(const struct net *net)
{
	struct kernel_images images = {.channels = net->channels,
				       .height = net->height,
				       .width = net->width,
				       .pad = net->pad,
				       .flip = net->flip};

	for (int i = 0; i < net->channels; i++) {
		images.mean[i] = net->mean[i];
		images.deviation[i] = net->deviation[i];
	}
	return images;
}

/* Sets the device pointers; see device_part(). [table]: bytes of the table. */
static void divide(struct data *data, size_t samples, size_t table, struct device_parts *parts)
{
	data->images.pixels = device_part(parts, samples * data->bytes);
	data->images.labels = device_part(parts, samples);
	data->table = device_part(parts, table);
	data->step = device_part(parts, sizeof(*data->step));
	data->block.orders = device_part(parts, data->setup.batch * sizeof(uint64_t));
	data->block.labels = device_part(parts, data->setup.batch * sizeof(int32_t));
}

int data_open(struct data **result, const struct data_setup *setup, struct ddp_error *error)
{
	static const char remedy[] =
		"the whole set must fit into the GPU's memory: train with fewer images (--samples of a "
		"drawn set), or on CPUs (--engine cpu)";
	const struct set_info *info = set_info(setup->set);
	struct data *data = *result = ddp_xcalloc(1, sizeof(*data), "a data set on a GPU");
	struct device_parts parts = {NULL, 0};
	size_t samples = setup->samples > setup->batch ? setup->samples : setup->batch;
	size_t bytes = layout_of(samples, steps_of(samples, setup->batch)).bytes;
	void *memory, *host;
	char what[640];
	int status;

	if (info->samples > UINT32_MAX)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: a GPU's kernels count %" PRIu32 " samples at most",
				     info->title, UINT32_MAX);
	data->setup = *setup;
	data->setup.samples = samples;
	data->images = images_of(setup->net);
	data->bytes = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
	snprintf(what, sizeof(what), "the images of %s", info->title);
	divide(data, info->samples, bytes, &parts);
	status = device_alloc(setup->device, &memory, parts.bytes, what, remedy, error);
	if (status == 0)
		status = device_alloc_host(setup->device, &host, bytes, "tables of steps", error);
	if (status < 0)
		return status;
	parts = (struct device_parts){memory, 0};
	divide(data, info->samples, bytes, &parts);
	data->host = host;
	data->block.order = &data->step->order;
	return 0;
}

/* --- Copy of the set ---------------------------------------------------------------------------- */

enum { PIECE = 4 << 20 };

/* Copies the images to the device in pieces, as images are not contiguous in a file. */
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

static uint64_t place_of(const struct batch *batch, size_t i)
{
	return batch->orders ? batch->orders[i] : 0;
}

static int set_samples(struct data *data, const struct batch *batch, size_t count,
		       struct ddp_error *error)
{
	const struct set_info *info = set_info(data->setup.set);

	for (size_t i = 0; i < count; i++) {
		if (batch->indices[i] >= info->samples)
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "sample %" PRIu64 " of %s does not exist",
					     batch->indices[i], info->title);
		indices(data, data->host)[i] = (uint32_t)batch->indices[i];
		places(data, data->host)[i] = place_of(batch, i);
	}
	return 0;
}

static struct kernel_entry entry_of(const struct data *data, size_t count, size_t global,
				    double rate)
{
	const struct optim *optim = data->setup.optim;

	return (struct kernel_entry){.rate = rate,
				     .shrink = optim ? optim_shrink(optim, rate) : 0,
				     .share = 1.0f / (float)(global > 0 ? global : 1),
				     .count = (uint32_t)count};
}

int data_announce(struct data *data, const struct batch *batch, size_t each, const double *rates,
		  size_t global, struct ddp_error *error)
{
	size_t most = data->setup.samples, ranks = (size_t)data->setup.ranks;
	size_t samples = batch->count <= most ? batch->count : most / each * each;
	size_t steps = steps_of(samples, each);
	int status = data->is_copied ? 0 : copy_set(data, error);

	data->count = 0;
	data->layout = layout_of(samples, steps);
	if (status == 0)
		status = set_samples(data, batch, samples, error);
	if (status < 0)
		return status;
	for (size_t i = 0; i < steps; i++) {
		size_t left = samples - i * each, count = left < each ? left : each;

		entries(data, data->host)[i] =
			entry_of(data, count, global > 0 ? global : count * ranks, rates[i]);
	}
	entries(data, data->host)[steps] = (struct kernel_entry){.count = 0};
	data->all = (struct kernel_next){
		.seed = batch->seed, .epoch = batch->epoch, .augment = batch->augment};
	data->count = steps;
	data->next = data->sample = 0;
	data->sent = false;
	return 0;
}

bool data_is_next(const struct data *data, const struct batch *batch, size_t global, double rate)
{
	const struct kernel_entry want = entry_of(data, batch->count, global, rate);
	const struct kernel_next *all = &data->all;
	const struct kernel_entry *entry = &entries(data, data->host)[data->next];

	if (data->next == data->count || entry->count != want.count || entry->rate != rate ||
	    entry->share != want.share || all->seed != batch->seed || all->epoch != batch->epoch ||
	    all->augment != batch->augment)
		return false;
	for (size_t i = 0; i < batch->count; i++) {
		if (indices(data, data->host)[data->sample + i] != batch->indices[i] ||
		    places(data, data->host)[data->sample + i] != place_of(batch, i))
			return false;
	}
	return true;
}

/*
 * Computes the corrections for all steps that the table may need, from optimizer step [updates] + 1
 * on.
 */
static void set_corrections(struct data *data, uint64_t updates)
{
	size_t count = data->count - data->next + KERNEL_SLOTS;

	for (size_t i = 0; i < count; i++)
		corrections(data, data->host)[i] =
			optim_correction(data->setup.optim, updates + 1 + i);
	data->all.corrections = corrections(data, data->table);
	data->all.first = updates + 1;
}

int data_send(struct data *data, uint64_t sequence, uint64_t updates,
	      const struct kernel_state *state, struct ddp_error *error)
{
	const struct kernel_entry *entry = &entries(data, data->host)[data->next];
	struct kernel_next *next = (void *)data->host;
	int status;

	if (data->setup.optim)
		set_corrections(data, updates);
	*next = data->all;
	next->sequence = sequence;
	next->entry = *entry;
	next->indices = indices(data, data->table) + data->sample;
	next->places = places(data, data->table) + data->sample;
	next->following = entries(data, data->table) + data->next + 1;
	if (state)
		next->state = *state;
	status = device_copy(data->setup.device, DEVICE_COMPUTE, data->table, data->host,
			     data->layout.bytes, error);
	if (status == 0)
		status = device_copy(data->setup.device, DEVICE_COMPUTE, &data->step->next, next,
				     state ? sizeof(*next) : offsetof(struct kernel_next, state),
				     error);
	data->sent = status == 0;
	return status;
}

void data_gather(const struct data *data, const struct kernel_result *results, size_t batch,
		 void *x, enum ddp_type type)
{
	kernel_gather(device_stream(data->setup.device, DEVICE_COMPUTE), &data->images, data->step,
		      results, batch, x, data->block.labels, data->block.orders, type);
}

void data_advance(struct data *data)
{
	data->sample += entries(data, data->host)[data->next].count;
	data->next++;
}
