/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "set-private.h"

enum { LAYOUTS = 2 };

/* The binary versions: records of labels, the last of which is meant, and an image. */
static const struct layout {
	const char *title;
	const char *below[3];	 /* where the files are, in the directory */
	const char *archives[3]; /* that they came in */
	const char *names[2][SET_PARTS + 1];
	uint64_t most[2]; /* samples of a file */
	size_t labels;	  /* bytes before an image */
} layouts[LAYOUTS] = {
	{"CIFAR-10",
	 {"", "cifar-10-batches-bin/"},
	 {"cifar-10-binary.tar"},
	 {{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
	   "data_batch_5.bin"},
	  {"test_batch.bin"}},
	 {10000, 10000},
	 1},
	{"CIFAR-100",
	 {"", "cifar-100-binary/"},
	 {"cifar-100-binary.tar"},
	 {{"train.bin"}, {"test.bin"}},
	 {50000, 10000},
	 2},
};

/* --- Opening ------------------------------------------------------------------------------- */

static int open_archive(struct set *set, const struct layout *layout,
			const struct set_options *options, struct ddp_error *error)
{
	const char *const *names = layout->names[options->test];
	int status = set_find_file(&set->archive, options->directory, layout->below,
				   layout->archives, error);

	if (status == 1)
		return ddp_error_set(error, DDP_ERR_FILE,
				     "%s: no %s for %s: looked for %s, there and in %s, and for "
				     "%s.gz",
				     options->directory, layout->title,
				     options->test ? "testing" : "training", names[0],
				     layout->below[1], layout->archives[0]);
	for (int i = 0; status == 0 && names[i]; i++) {
		set->files[i].member = names[i];
		set->files[i].length = layout->most[options->test] * set->image_stride;
	}
	return status;
}

/* [what] is the end of a sentence. */
static int wrong_length(const struct set *set, const struct set_file *file, const char *what,
			uint64_t expected, struct ddp_error *error)
{
	char name[PATH_MAX];

	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: ends at byte %" PRIu64 ", expected %" PRIu64 ": %s",
			     set_file_name(set, file, name, sizeof(name)), file->length, expected,
			     what);
}

/* Whole records, as many as were published or fewer. */
static int check_length(const struct set *set, const struct set_file *file, uint64_t most,
			struct ddp_error *error)
{
	uint64_t record = set->image_stride, records = file->length / record;
	char what[96];

	snprintf(what, sizeof(what), "%" PRIu64 " records of %" PRIu64 " bytes", most, record);
	if (records > most || (records == most && file->length % record > 0))
		return wrong_length(set, file, what, most * record, error);
	snprintf(what, sizeof(what), "whole records of %" PRIu64 " bytes", record);
	if (file->length % record > 0 || records == 0)
		return wrong_length(set, file, what, (records + 1) * record, error);
	return 0;
}

/* Files in the directory, where the first of them is there; else the archive. */
static int open_files(struct set *set, const struct layout *layout,
		      const struct set_options *options, struct ddp_error *error)
{
	const char *const *names = layout->names[options->test];
	uint64_t most = layout->most[options->test];
	int status = 0;

	for (int i = 0; status == 0 && names[i]; i++) {
		struct set_file *file = &set->files[i];
		const char *const one[] = {names[i], NULL};

		status =
			set_find_file(&file->source, options->directory, layout->below, one, error);
		if (status == 1 && i == 0)
			return open_archive(set, layout, options, error);
		if (status == 1)
			return ddp_error_set(error, DDP_ERR_FILE,
					     "%s: %s is there, but no %s, there or in %s",
					     options->directory, source_path(set->files[0].source),
					     names[i], layout->below[1]);
		if (status == 0 && source_packed(file->source)) {
			file->length = (most + 1) * set->image_stride;
		} else if (status == 0) {
			file->length = source_size(file->source);
			status = check_length(set, file, most, error);
		}
	}
	return status;
}

int set_open_cifar(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	const struct layout *layout = &layouts[options->kind == SET_CIFAR100];
	const char *const *names = layout->names[options->test];
	int status;

	set->image_stride = layout->labels + set->image_bytes;
	set->label_stride = set->image_stride;
	status = open_files(set, layout, options, error);
	status = set_load_files(set, options->ddp, status, error);
	if (status < 0)
		return status;
	for (int i = 0; status == 0 && names[i]; i++) {
		const struct set_file *file = &set->files[i];

		status = check_length(set, file, layout->most[options->test], error);
		set->parts[i] = (struct set_part){file->bytes + layout->labels,
						  file->bytes + layout->labels - 1,
						  file->length / set->image_stride};
	}
	return set_check(set, options, status, error);
}
