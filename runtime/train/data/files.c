/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - published sets: MNIST's IDX files, and the binary versions of CIFAR
 *
 * A plain file stays where it is mapped. What is gzipped or in an archive is unpacked by one rank
 * of each node, into memory of the node.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "set-private.h"

/* --- Finding ------------------------------------------------------------------------------- */

static const struct layout {
	const char *title;
	const char *below[2]; /* where the files are, in the directory */
	const char *archive;  /* that they came in */
	/* For training, for testing. MNIST: spellings of the images; CIFAR: all files. */
	const char *names[2][SET_PARTS + 1];
	uint64_t most[2]; /* samples of a file */
	size_t labels;	  /* bytes before an image */
} layouts[SET_KINDS] = {
	[SET_MNIST] = {"MNIST",
		       {"", "MNIST/raw/"}, /* as torchvision has it */
		       NULL,
		       {{"train-images-idx3-ubyte", "train-images.idx3-ubyte"},
			{"t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"}},
		       {0, 0},
		       0},
	[SET_CIFAR10] = {"CIFAR-10",
			 {"", "cifar-10-batches-bin/"},
			 "cifar-10-binary.tar",
			 {{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
			   "data_batch_4.bin", "data_batch_5.bin"},
			  {"test_batch.bin"}},
			 {10000, 10000},
			 1},
	[SET_CIFAR100] = {"CIFAR-100",
			  {"", "cifar-100-binary/"},
			  "cifar-100-binary.tar",
			  {{"train.bin"}, {"test.bin"}},
			  {50000, 10000},
			  2},
};

static const char *const mnist_labels[2][2] = {
	{"train-labels-idx1-ubyte", "train-labels.idx1-ubyte"},
	{"t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte"},
};

/* The versions of CIFAR that others read. */
static const char *const foreign[] = {
	"cifar-10-batches-py",	  "cifar-10-python.tar.gz",  "cifar-10-batches-mat",
	"cifar-10-matlab.tar.gz", "cifar-100-python",	     "cifar-100-python.tar.gz",
	"cifar-100-matlab",	  "cifar-100-matlab.tar.gz", NULL};

static bool is_there(char path[PATH_MAX], const char *directory, const char *below,
		     const char *name, const char *ending)
{
	snprintf(path, PATH_MAX, "%s/%s%s%s", directory, below, name, ending);
	return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* The [path] of a file with one of [count] names, also gzipped. */
static bool find(const struct layout *layout, const char *directory, const char *const *names,
		 int count, char path[PATH_MAX])
{
	for (int below = 0; below < 2; below++)
		for (int i = 0; i < count; i++)
			if (is_there(path, directory, layout->below[below], names[i], "") ||
			    is_there(path, directory, layout->below[below], names[i], ".gz"))
				return true;
	return false;
}

static bool holds(const struct layout *layout, const char *directory)
{
	int spellings = layout->archive ? 1 : 2;
	char path[PATH_MAX];

	return find(layout, directory, layout->names[false], spellings, path) ||
	       find(layout, directory, layout->names[true], spellings, path) ||
	       (layout->archive && find(layout, directory, &layout->archive, 1, path));
}

int set_detect(const char *directory, enum set_kind first, struct ddp_error *error)
{
	char path[PATH_MAX];
	struct stat info;

	if (stat(directory, &info) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "%s", directory);
	if (!S_ISDIR(info.st_mode))
		return ddp_error_set(error, DDP_ERR_FILE,
				     "%s is not a directory: give the one that has the files",
				     directory);
	for (int i = 0; i < SET_KINDS; i++) {
		int kind = ((int)first + i) % SET_KINDS;

		if (holds(&layouts[kind], directory))
			return kind;
	}
	for (const char *const *name = foreign; *name; name++)
		if (is_there(path, directory, "", *name, ""))
			return ddp_error_set(error, DDP_ERR_FILE,
					     "%s is not the binary version of CIFAR, which alone "
					     "is read: ddp-get-data fetches it",
					     path);
	return ddp_error_set(error, DDP_ERR_FILE,
			     "%s: no data set: looked for train-images-idx3-ubyte (MNIST), "
			     "data_batch_1.bin (CIFAR-10) and train.bin (CIFAR-100), also gzipped "
			     "or in their archives; ddp-get-data fetches them",
			     directory);
}

/* "[path]", or "[archive]: [member]". */
static const char *file_name(const struct set *set, const struct set_file *file,
			     char text[PATH_MAX])
{
	if (file->source)
		snprintf(text, PATH_MAX, "%s", file->source->path);
	else
		snprintf(text, PATH_MAX, "%s: %s", set->archive->path, file->member);
	return text;
}

/* --- Unpacking ----------------------------------------------------------------------------- */

/* Memory of a node for files that are unpacked: the bytes of each begin at a multiple of 64. */
struct unpacked {
	_Atomic uint32_t taken;	     /* by the rank that fills it */
	uint64_t lengths[SET_PARTS]; /* as they turned out */
	_Alignas(64) uint8_t bytes[];
};

static bool is_packed(const struct set *set, const struct set_file *file)
{
	return set->archive || (file->source && file->source->gzipped);
}

static uint64_t padded(uint64_t length)
{
	return (length + 63) / 64 * 64;
}

/* Where the bytes of file [number] are among those unpacked; behind the last: how many they are. */
static uint64_t place_of(const struct set *set, int number)
{
	uint64_t place = 0;

	for (int i = 0; i < number; i++)
		if (is_packed(set, &set->files[i]))
			place += padded(set->files[i].length);
	return place;
}

static int unpack_files(struct set *set, struct unpacked *unpacked, struct ddp_error *error)
{
	for (int i = 0; i < SET_PARTS; i++) {
		struct set_file *file = &set->files[i];
		int64_t got;
		int status;

		if (!is_packed(set, file))
			continue;
		got = source_take(file->source, unpacked->bytes + place_of(set, i), file->length,
				  error);
		status = got < 0 ? (int)got : source_finish(file->source, error);
		if (status < 0)
			return status;
		unpacked->lengths[i] = (uint64_t)got;
	}
	return 0;
}

static int unpack_member(struct set *set, const struct source_member *member,
			 struct unpacked *unpacked, struct ddp_error *error)
{
	struct source *archive = set->archive;
	uint8_t *bytes = NULL;
	int status;

	for (int i = 0; i < SET_PARTS && member->file; i++) {
		struct set_file *file = &set->files[i];

		if (!file->member || strcmp(file->member, member->name) != 0)
			continue;
		if (member->bytes > file->length)
			return ddp_error_set(error, DDP_ERR_FORMAT,
					     "%s: %s has %" PRIu64 " bytes, expected %" PRIu64
					     " at most",
					     archive->path, member->name, member->bytes,
					     file->length);
		bytes = unpacked->bytes + place_of(set, i);
		unpacked->lengths[i] = member->bytes;
	}
	status = source_read(archive, bytes, member->bytes, member->name, error);
	if (status < 0)
		return status;
	return source_read(archive, NULL, member->padding, member->name, error);
}

static int unpack_archive(struct set *set, struct unpacked *unpacked, struct ddp_error *error)
{
	struct source_member member;
	int64_t rest;
	int status;

	while ((status = source_member(set->archive, &member, error)) == 1) {
		status = unpack_member(set, &member, unpacked, error);
		if (status < 0)
			return status;
	}
	if (status < 0)
		return status;
	/* To the end of the file: only there has gzip its checksum. */
	rest = source_take(set->archive, NULL, UINT64_MAX, error);
	if (rest < 0)
		return (int)rest;
	for (int i = 0; i < SET_PARTS; i++)
		if (set->files[i].member && unpacked->lengths[i] == 0)
			return ddp_error_set(error, DDP_ERR_FORMAT, "%s: has no %s in it",
					     set->archive->path, set->files[i].member);
	return 0;
}

/* Have the largest [bytes] that a rank has, on all. Collective. Returns 0 or the error. */
static int find_most(struct set *set, size_t *bytes, struct ddp_error *error)
{
	int64_t most = (int64_t)*bytes;
	int status = set->ddp ? ddp_all_reduce(set->ddp, &most, &most, 1, DDP_I64, DDP_MAX) : 0;

	*bytes = (size_t)most;
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(set->ddp)) : 0;
}

/*
 * The files are open (or [status] says why not): have the bytes of all in place, unpacked where
 * they must be. Collective.
 */
static int load_files(struct set *set, int status, struct ddp_error *error)
{
	struct unpacked *unpacked = NULL;
	const uint8_t *place = NULL;
	size_t room = place_of(set, SET_PARTS);

	status = set_agree(set, status, error);
	if (status == 0)
		status = find_most(set, &room, error);
	if (status == 0 && room > 0) {
		status = set_create_memory(set, sizeof(*unpacked) + room, error);
		if (status < 0)
			return status;
		unpacked = set->memory;
		place = unpacked->bytes;
		if (atomic_exchange(&unpacked->taken, 1) == 0)
			status = set->archive ? unpack_archive(set, unpacked, error)
					      : unpack_files(set, unpacked, error);
		status = set_agree(set, status, error);
	}
	for (int i = 0; i < SET_PARTS && status == 0; i++) {
		struct set_file *file = &set->files[i];

		if (is_packed(set, file)) {
			file->bytes = place;
			place += padded(file->length);
			file->length = unpacked->lengths[i];
		} else if (file->source) {
			file->bytes = file->source->map + file->first;
		}
	}
	return status;
}

/* --- MNIST --------------------------------------------------------------------------------- */

enum { IDX_BYTES = 0x08, IDX_DIMENSIONS = 3 };

static uint32_t big_endian(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
	       bytes[3];
}

/*
 * Read the header of an IDX file of bytes in so many [dimensions], all but the first of [side];
 * the first becomes [count]. A plain file must be as long as that says.
 */
static int read_header(struct source *source, int dimensions, uint32_t side, uint32_t *count,
		       struct ddp_error *error)
{
	uint8_t header[4 * (1 + IDX_DIMENSIONS)];
	uint32_t magic = IDX_BYTES << 8 | (uint32_t)dimensions;
	uint64_t size = 4 * (1 + (uint64_t)dimensions), bytes = 1, expected;
	int status = source_read(source, header, size, "the header of an IDX file", error);

	if (status < 0)
		return status;
	if (big_endian(header) != magic)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: byte 0: magic number %08" PRIx32 ", expected %08" PRIx32
				     ": IDX, bytes in %d dimension%s",
				     source->path, big_endian(header), magic, dimensions,
				     dimensions == 1 ? "" : "s");
	for (int i = 1; i < dimensions; i++) {
		uint32_t found = big_endian(header + 4 + 4 * i);

		if (found != side)
			return ddp_error_set(error, DDP_ERR_FORMAT,
					     "%s: byte %d: images are %" PRIu32
					     " pixels %s, expected %" PRIu32,
					     source->path, 4 + 4 * i, found,
					     i == 1 ? "high" : "wide", side);
		bytes *= side;
	}
	*count = big_endian(header + 4);
	if (*count == 0)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: byte 4: no samples, expected one at least", source->path);
	expected = size + *count * bytes;
	if (source->gzipped || source->size == expected)
		return 0;
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: ends at byte %" PRIu64 ", expected %" PRIu64 ": %" PRIu32
			     " samples of %" PRIu64 " bytes after %" PRIu64,
			     source->path, source->size, expected, *count, bytes, size);
}

/* File 0 has the images, file 1 the labels. */
static int open_mnist_file(struct set *set, int which, const struct set_options *options,
			   uint32_t *count, struct ddp_error *error)
{
	const struct layout *layout = &layouts[SET_MNIST];
	const char *const *names =
		which ? mnist_labels[options->test] : layout->names[options->test];
	struct set_file *file = &set->files[which];
	char path[PATH_MAX];
	int status;

	if (!find(layout, options->directory, names, 2, path))
		return ddp_error_set(error, DDP_ERR_FILE,
				     "%s: no MNIST %s for %s: looked for %s and %s, plain and .gz, "
				     "there and in MNIST/raw",
				     options->directory, which ? "labels" : "images",
				     options->test ? "testing" : "training", names[0], names[1]);
	status = source_open(&file->source, path, error);
	if (status == 0)
		status = read_header(file->source, which ? 1 : 3, (uint32_t)set->info.height, count,
				     error);
	if (status < 0)
		return status;
	file->first = file->source->at;
	file->length = which ? *count : *count * set->image_bytes;
	return 0;
}

static int open_mnist(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	uint32_t images = 0, labels = 0;
	int status = open_mnist_file(set, 0, options, &images, error);

	if (status == 0)
		status = open_mnist_file(set, 1, options, &labels, error);
	if (status < 0 || images == labels)
		return status;
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: byte 4: %" PRIu32 " labels, expected %" PRIu32
			     ", as many as images in %s",
			     set->files[1].source->path, labels, images,
			     set->files[0].source->path);
}

/* What was unpacked can have turned out shorter than the header said. */
static int place_mnist(struct set *set, const uint64_t expected[2], struct ddp_error *error)
{
	set->image_stride = set->image_bytes;
	set->label_stride = 1;
	for (int i = 0; i < 2; i++) {
		const struct set_file *file = &set->files[i];

		if (file->length != expected[i])
			return ddp_error_set(error, DDP_ERR_FORMAT,
					     "%s: ends at byte %" PRIu64
					     " unpacked, expected %" PRIu64,
					     file->source->path, file->first + file->length,
					     file->first + expected[i]);
	}
	set->parts[0] =
		(struct set_part){set->files[0].bytes, set->files[1].bytes, set->files[1].length};
	return 0;
}

/* --- CIFAR --------------------------------------------------------------------------------- */

/* Records of labels, the last of which is meant, and an image: as many as published or fewer. */
static int check_length(const struct set *set, const struct set_file *file, uint64_t most,
			struct ddp_error *error)
{
	uint64_t record = set->image_stride, records = file->length / record, expected;
	char what[96], name[PATH_MAX];

	if (records > most || (records == most && file->length % record > 0)) {
		expected = most * record;
		snprintf(what, sizeof(what), "%" PRIu64 " records of %" PRIu64 " bytes", most,
			 record);
	} else if (file->length % record > 0 || records == 0) {
		expected = (records + 1) * record;
		snprintf(what, sizeof(what), "whole records of %" PRIu64 " bytes", record);
	} else {
		return 0;
	}
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s: ends at byte %" PRIu64 ", expected %" PRIu64 ": %s",
			     file_name(set, file, name), file->length, expected, what);
}

static int open_archive(struct set *set, const struct layout *layout,
			const struct set_options *options, struct ddp_error *error)
{
	const char *const *names = layout->names[options->test];
	char path[PATH_MAX];

	if (!find(layout, options->directory, &layout->archive, 1, path))
		return ddp_error_set(error, DDP_ERR_FILE,
				     "%s: no %s for %s: looked for %s, there and in %s, and for "
				     "%s.gz",
				     options->directory, layout->title,
				     options->test ? "testing" : "training", names[0],
				     layout->below[1], layout->archive);
	for (int i = 0; names[i]; i++) {
		set->files[i].member = names[i];
		set->files[i].length = layout->most[options->test] * set->image_stride;
	}
	return source_open(&set->archive, path, error);
}

/* Files in the directory, where the first of them is there; else the archive. */
static int open_cifar(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	const struct layout *layout = &layouts[options->kind];
	const char *const *names = layout->names[options->test];
	uint64_t most = layout->most[options->test];
	char path[PATH_MAX];
	int status = 0;

	set->image_stride = set->label_stride = layout->labels + set->image_bytes;
	for (int i = 0; status == 0 && names[i]; i++) {
		struct set_file *file = &set->files[i];

		if (!find(layout, options->directory, &names[i], 1, path)) {
			if (i == 0)
				return open_archive(set, layout, options, error);
			return ddp_error_set(error, DDP_ERR_FILE,
					     "%s: %s is there, but no %s, there or in %s",
					     options->directory, set->files[0].source->path,
					     names[i], layout->below[1]);
		}
		status = source_open(&file->source, path, error);
		if (status < 0)
			return status;
		if (file->source->gzipped) {
			file->length = (most + 1) * set->image_stride;
		} else {
			file->length = file->source->size;
			status = check_length(set, file, most, error);
		}
	}
	return status;
}

static int place_cifar(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	const struct layout *layout = &layouts[options->kind];
	int status = 0;

	for (int i = 0; status == 0 && layout->names[options->test][i]; i++) {
		const struct set_file *file = &set->files[i];

		status = check_length(set, file, layout->most[options->test], error);
		set->parts[i] = (struct set_part){file->bytes + layout->labels,
						  file->bytes + layout->labels - 1,
						  file->length / set->image_stride};
	}
	return status;
}

/* --- Opening ------------------------------------------------------------------------------- */

static int check_labels(const struct set *set, int number, struct ddp_error *error)
{
	const struct set_part *part = &set->parts[number];
	const struct set_file *file = &set->files[set->kind == SET_MNIST ? 1 : number];
	char name[PATH_MAX];

	for (uint64_t i = 0; i < part->samples; i++) {
		const uint8_t *label = part->labels + i * set->label_stride;

		if (*label >= set->info.classes)
			return ddp_error_set(error, DDP_ERR_FORMAT,
					     "%s: byte %" PRIu64 ": label %d of image %" PRIu64
					     ", expected 0 to %d",
					     file_name(set, file, name),
					     file->first + (uint64_t)(label - file->bytes), *label,
					     i, set->info.classes - 1);
	}
	return 0;
}

int set_open_files(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	bool mnist = options->kind == SET_MNIST;
	int status = mnist ? open_mnist(set, options, error) : open_cifar(set, options, error);
	uint64_t expected[2] = {set->files[0].length, set->files[1].length};

	status = load_files(set, status, error);
	if (status < 0)
		return status;
	status = mnist ? place_mnist(set, expected, error) : place_cifar(set, options, error);
	for (int i = 0; status == 0 && i < SET_PARTS; i++) {
		status = check_labels(set, i, error);
		set->info.samples += set->parts[i].samples;
	}
	snprintf(set->title, sizeof(set->title), "%s in %s, %s images", layouts[set->kind].title,
		 options->directory, ddp_show_count((double)set->info.samples).text);
	status = set_agree(set, status, error);
	return status < 0 ? status : set_compare(set, "images", set->info.samples, error);
}
