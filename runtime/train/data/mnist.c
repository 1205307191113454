/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>

#include "idx.h"
#include "set-private.h"

static const struct {
	const char *what, *names[3];
} wanted[2][2] = {
	{{"images for training", {"train-images-idx3-ubyte", "train-images.idx3-ubyte"}},
	 {"labels for training", {"train-labels-idx1-ubyte", "train-labels.idx1-ubyte"}}},
	{{"images for testing", {"t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"}},
	 {"labels for testing", {"t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte"}}},
};

/* Where torchvision puts them, too. */
static const char *const below[] = {"", "MNIST/raw/", NULL};

static int open_file(struct set *set, int which, const struct set_options *options, uint32_t *count,
		     struct ddp_error *error)
{
	const char *const *names = wanted[options->test][which].names;
	struct set_file *file = &set->files[which];
	int status = set_find_file(&file->source, options->directory, below, names, error);

	if (status == 1)
		return ddp_error_set(error, DDP_ERR_FILE,
				     "%s: no MNIST %s: looked for %s and %s, plain and .gz, there "
				     "and in MNIST/raw",
				     options->directory, wanted[options->test][which].what,
				     names[0], names[1]);
	if (status == 0)
		status = idx_header(file->source, which == 0 ? 3 : 1, (uint32_t)set->info.height,
				    count, error);
	if (status < 0)
		return status;
	file->first = source_offset(file->source);
	file->length = which == 0 ? *count * set->image_bytes : *count;
	return 0;
}

static int open_files(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	uint32_t images = 0, labels = 0;
	int status = open_file(set, 0, options, &images, error);

	if (status == 0)
		status = open_file(set, 1, options, &labels, error);
	if (status < 0 || images == labels)
		return status;
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: byte 4: %" PRIu32 " labels, expected %" PRIu32
			     ", as many as images in %s",
			     source_path(set->files[1].source), labels, images,
			     source_path(set->files[0].source));
}

/* What was unpacked can have turned out shorter than the header said. */
static int check_length(const struct set *set, int which, uint64_t expected,
			struct ddp_error *error)
{
	const struct set_file *file = &set->files[which];

	if (file->length == expected)
		return 0;
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: ends at byte %" PRIu64 " unpacked, expected %" PRIu64,
			     source_path(file->source), file->first + file->length,
			     file->first + expected);
}

int set_open_mnist(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	int status = open_files(set, options, error);
	uint64_t samples = set->files[1].length;

	status = set_load_files(set, options->ddp, status, error);
	if (status < 0)
		return status;
	set->image_stride = set->image_bytes;
	set->label_stride = 1;
	status = check_length(set, 0, samples * set->image_bytes, error);
	if (status == 0)
		status = check_length(set, 1, samples, error);
	if (status == 0)
		set->parts[0] =
			(struct set_part){set->files[0].bytes, set->files[1].bytes, samples};
	return set_check(set, options, status, error);
}
