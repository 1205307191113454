/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/watch.h"
#include "kernels.h"
#include "resident.h"

/* Places, then images: on the host and on the device alike, so that one copy takes both. */
struct piece {
	uint8_t *host, *device;
	bool sent; /* at least once: its mark is set */
};

struct resident {
	struct device *device;
	struct set *set;
	uint64_t samples, there;
	size_t bytes; /* of an image */
	size_t room;  /* images of a piece */
	size_t head;  /* bytes of a piece before its images */
	uint8_t *pixels;
	uint64_t *present; /* a bit for each sample */
	struct piece pieces[RESIDENT_MARKS];
	int mark, turn; /* the piece that comes next */
};

/* --- Opening ------------------------------------------------------------------------------ */

static int alloc_piece(struct resident *resident, struct piece *piece, struct ddp_error *error)
{
	size_t bytes = resident->head + resident->room * resident->bytes;
	int status;

	status = device_alloc_host(resident->device, (void **)&piece->host, bytes,
				   "images on their way to the GPU", error);
	if (status == 0)
		status = device_alloc(resident->device, (void **)&piece->device, bytes,
				      "images that have come to the GPU", NULL, error);
	return status;
}

static int alloc_pixels(struct resident *resident, struct ddp_error *error)
{
	char what[640];

	snprintf(what, sizeof(what), "the images of %s", set_info(resident->set)->title);
	return device_alloc(
		resident->device, (void **)&resident->pixels, resident->samples * resident->bytes,
		what,
		"the whole set lies on the GPU: train with fewer images (--samples of a "
		"drawn set), or on CPUs (--engine cpu)",
		error);
}

static void shape(struct resident *resident)
{
	const struct set_info *info = set_info(resident->set);
	size_t each;

	resident->samples = info->samples;
	resident->bytes = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
	each = resident->bytes + sizeof(uint32_t);
	resident->room = each < RESIDENT_PIECE ? RESIDENT_PIECE / each : 1;
	if (resident->room > resident->samples)
		resident->room = resident->samples;
	resident->head = (resident->room * sizeof(uint32_t) + 255) / 256 * 256;
}

static int open_all(struct resident *resident, struct ddp_error *error)
{
	int status;

	shape(resident);
	if (resident->samples > UINT32_MAX)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: a GPU's kernels count %" PRIu32 " samples at most",
				     set_info(resident->set)->title, UINT32_MAX);
	resident->present = calloc(resident->samples / 64 + 1, sizeof(*resident->present));
	if (!resident->present)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a bit for each image");
	status = alloc_pixels(resident, error);
	for (int i = 0; status == 0 && i < RESIDENT_MARKS; i++)
		status = alloc_piece(resident, &resident->pieces[i], error);
	return status;
}

int resident_open(struct resident **resident, struct device *device, struct set *set, int mark,
		  struct ddp_error *error)
{
	int status;

	*resident = calloc(1, sizeof(**resident));
	if (!*resident)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a data set on a GPU");
	(*resident)->device = device;
	(*resident)->set = set;
	(*resident)->mark = mark;
	status = open_all(*resident, error);
	if (status == 0)
		return 0;
	resident_close(*resident);
	*resident = NULL;
	return status;
}

void resident_close(struct resident *resident)
{
	if (!resident)
		return;
	for (int i = 0; i < RESIDENT_MARKS; i++) {
		device_free(resident->device, resident->pieces[i].device);
		device_free(resident->device, resident->pieces[i].host);
	}
	device_free(resident->device, resident->pixels);
	free(resident->present);
	free(resident);
}

const uint8_t *resident_pixels(const struct resident *resident)
{
	return resident->pixels;
}

uint64_t resident_count(const struct resident *resident)
{
	return resident->there;
}

/* --- Bringing ----------------------------------------------------------------------------- */

/* Seconds in which a piece is looked for; then it is waited for, with a limit. */
static const double soon = 1;

/* Until what [piece] had last is on the device: some 20 us, when all pieces are under way. */
static int wait_for(const struct resident *resident, const struct piece *piece,
		    struct ddp_error *error)
{
	static const struct timespec moment = {0, 10000};
	int slot = resident->mark + (int)(piece - resident->pieces);
	double begin = ddp_seconds();
	int reached = 1;

	while (piece->sent && (reached = device_reached(resident->device, slot, error)) == 0) {
		if (ddp_seconds() - begin >= soon)
			return device_wait(resident->device, DEVICE_COPY, error);
		nanosleep(&moment, NULL);
	}
	return reached < 0 ? reached : 0;
}

static int send(struct resident *resident, struct piece *piece, size_t count,
		struct ddp_error *error)
{
	struct device *device = resident->device;
	int status;

	status = device_copy(device, DEVICE_COPY, piece->device, piece->host,
			     resident->head + count * resident->bytes, error);
	if (status < 0)
		return status;
	kernel_scatter(device_stream(device, DEVICE_COPY), piece->device + resident->head,
		       (const uint32_t *)(void *)piece->device, count, resident->bytes,
		       resident->pixels);
	status = device_check(device, "placing images", error);
	/* Behind the kernel too: the next copy would be ordered after it anyway. */
	if (status == 0)
		status = device_mark(device, DEVICE_COPY,
				     resident->mark + (int)(piece - resident->pieces), error);
	piece->sent = status == 0;
	return status;
}

static bool is_present(const struct resident *resident, uint64_t index)
{
	return resident->present[index / 64] >> index % 64 & 1;
}

/* The next sample from indices[*next] on that is missing. Returns whether there is one. */
static bool find_missing(const struct resident *resident, const uint64_t *indices, size_t count,
			 size_t *next)
{
	while (*next < count && is_present(resident, indices[*next]))
		(*next)++;
	return *next < count;
}

/* As many missing samples as there is room for; each once, though it be asked for twice. */
static size_t pack(struct resident *resident, struct piece *piece, const uint64_t *indices,
		   size_t count, size_t *next)
{
	uint32_t *places = (uint32_t *)(void *)piece->host;
	size_t packed = 0;

	while (packed < resident->room && find_missing(resident, indices, count, next)) {
		uint64_t index = indices[(*next)++];

		places[packed] = (uint32_t)index;
		memcpy(piece->host + resident->head + packed * resident->bytes,
		       set_image(resident->set, index), resident->bytes);
		resident->present[index / 64] |= UINT64_C(1) << index % 64;
		packed++;
	}
	resident->there += packed;
	return packed;
}

static int check(const struct resident *resident, const uint64_t *indices, size_t count,
		 struct ddp_error *error)
{
	for (size_t i = 0; i < count; i++) {
		if (indices[i] >= resident->samples)
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "sample %" PRIu64 " of %s: there is none", indices[i],
					     set_info(resident->set)->title);
	}
	return 0;
}

int resident_bring(struct resident *resident, const uint64_t *indices, size_t count,
		   struct ddp_error *error)
{
	int status = check(resident, indices, count, error);
	bool brought = false;
	size_t next = 0;

	if (resident->there == resident->samples)
		return status;
	while (status == 0 && find_missing(resident, indices, count, &next)) {
		struct piece *piece = &resident->pieces[resident->turn];

		resident->turn = (resident->turn + 1) % RESIDENT_MARKS;
		status = wait_for(resident, piece, error);
		if (status == 0)
			status = send(resident, piece, pack(resident, piece, indices, count, &next),
				      error);
		brought = true;
	}
	if (status == 0 && brought)
		status = device_order(resident->device, DEVICE_COMPUTE, DEVICE_COPY, error);
	return status;
}
