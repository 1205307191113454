/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.c - published data sets (MNIST's IDX files, CIFAR's binary version) and synthetic ones
 *
 * Files are memory-mapped and used in place.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "base/xalloc.h"
#include "draw.h"
#include "set.h"

enum { SET_PARTS = 5 };

struct set_file {
	char path[PATH_MAX];
	const uint8_t *bytes;
	uint64_t size;
};

/* A contiguous range of samples. */
struct set_part {
	const uint8_t *images, *labels;
	uint64_t samples;
};

struct set {
	struct set_info info;
	char title[512];
	enum set_kind kind;
	struct set_part parts[SET_PARTS]; /* unused parts have no samples */
	size_t image_bytes;
	size_t image_stride, label_stride;
	struct ddp *ddp;
	struct set_file files[SET_PARTS]; /* files of a published set */

	/* Synthetic sets only. */
	uint64_t seed;		/* different for training and testing */
	_Atomic uint8_t *drawn; /* whether image [i] was drawn; NULL: a published set */
	uint8_t *canvas;
	uint8_t *labels; /* labels in this rank's memory, not shared */
};

/* --- Shared memory and agreement of the ranks ---------------------------------------------- */

struct count_report {
	uint64_t number;
	char host[64];
};

/* Makes an error on one rank an error on all ranks. Collective. */
static int agree(struct set *set, int status, struct ddp_error *error)
{
	status = ddp_agree(set->ddp, status, error->text);
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(set->ddp)) : 0;
}

/*
 * Compares the numbers of all ranks. Returns 0 if they are equal, else an error that names the
 * first rank whose number differs from that of rank 0.
 */
static int compare(const struct count_report *reports, int size, const char *what,
		   struct ddp_error *error)
{
	for (int i = 1; i < size; i++)
		if (reports[i].number != reports[0].number)
			return ddp_error_set(error, DDP_ERR_MISMATCH,
					     "rank 0 on %s has %" PRIu64
					     " %s, but rank %d on %s has %" PRIu64
					     ". Give all ranks the same data.",
					     reports[0].host, reports[0].number, what, i,
					     reports[i].host, reports[i].number);
	return 0;
}

/*
 * Fails on all ranks if [number] is not equal on all ranks. The error text calls the number [what].
 * Collective. Returns 0, DDP_ERR_MISMATCH or an error of ddp_all_gather().
 */
static int compare_number(struct set *set, const char *what, uint64_t number,
			  struct ddp_error *error)
{
	const struct ddp_world *world = ddp_world(set->ddp);
	struct count_report own = {.number = number}, *reports;
	int status;

	reports = ddp_xcalloc((size_t)world->size, sizeof(own), "counts of all ranks");
	snprintf(own.host, sizeof(own.host), "%s", world->host);
	status = ddp_all_gather(set->ddp, &own, reports, sizeof(own));
	if (status < 0)
		ddp_error_set(error, status, "%s", ddp_error(set->ddp));
	else
		status = compare(reports, world->size, what, error);
	free(reports);
	return status;
}

/* --- Synthetic sets ------------------------------------------------------------------------ */

/* Image format and published numbers of samples for training and testing. */
static const struct shape {
	int channels, side, classes;
	uint64_t samples[2];
} shapes[SET_KINDS] = {
	[SET_MNIST] = {1, DRAW_DIGIT, 10, {60000, 10000}},
	[SET_CIFAR10] = {3, DRAW_OBJECT, 10, {50000, 10000}},
	[SET_CIFAR100] = {3, DRAW_OBJECT, 100, {50000, 10000}},
};

/* Combined with the seed of the test part, so that training and test part have different images. */
static const uint64_t test_seed = UINT64_C(0x5bd1e9955bd1e995);

uint64_t set_drawn_bytes(enum set_kind kind, uint64_t samples)
{
	const struct shape *shape = &shapes[kind];

	return samples * (uint64_t)(1 + shape->channels * shape->side * shape->side);
}

/*
 * The ranks of a node share the images. Their memory starts with one byte per image, which says
 * whether it was drawn. Images follow. Collective.
 */
static int open_drawn(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	uint64_t samples =
		options->samples ? options->samples : shapes[options->kind].samples[options->test];
	size_t first = (samples + 63) / 64 * 64, bytes = first + samples * set->image_bytes;
	uint64_t classes = (uint64_t)set->info.classes, blocks = (samples + classes - 1) / classes;
	void *memory;
	int status;

	set->info.samples = samples;
	set->seed = options->test ? options->seed ^ test_seed : options->seed;
	snprintf(set->title, sizeof(set->title), "%s drawn %s",
		 ddp_show_count((double)samples).text,
		 options->kind == SET_MNIST ? "digits" : "objects");
	status = compare_number(set, "drawn images", samples, error);
	if (status < 0)
		return status;
	status = ddp_shared_create(set->ddp, bytes, &memory);
	if (status < 0)
		return ddp_error_set(error, status, "%s", ddp_error(set->ddp));
	set->labels = ddp_xcalloc(blocks, classes, "labels");
	for (uint64_t block = 0; block < blocks; block++)
		draw_labels(set->seed, block, set->info.classes, &set->labels[block * classes]);
	set->drawn = memory;
	set->canvas = (uint8_t *)memory + first;
	set->image_stride = set->image_bytes;
	set->label_stride = 1;
	set->parts[0] = (struct set_part){set->canvas, set->labels, samples};
	return 0;
}

/*
 * Ranks that draw the same image at the same time write equal bytes to the same address. The flag
 * is set after the image was written, so a rank that reads the flag as set reads the whole image.
 */
static const uint8_t *draw_image(struct set *set, uint64_t index)
{
	uint8_t *image = set->canvas + index * set->image_bytes;
	uint8_t fresh[3 * DRAW_OBJECT * DRAW_OBJECT];

	if (atomic_load_explicit(&set->drawn[index], memory_order_acquire))
		return image;
	if (set->kind == SET_MNIST)
		draw_digit(set->seed, index, fresh);
	else
		draw_object(set->seed, index, set->info.classes, fresh);
	memcpy(image, fresh, set->image_bytes);
	atomic_store_explicit(&set->drawn[index], 1, memory_order_release);
	return image;
}

/* --- Published files: search ------------------------------------------------------------- */

static const struct layout {
	const char *title;
	const char *below[2]; /* subdirectories that can have the files */
	const char *archive;  /* archive that has the files, without .gz; MNIST has none */
	/* Files for training and for testing. MNIST: the file of images, then that of labels. */
	const char *names[2][SET_PARTS + 1];
	uint64_t most[2]; /* CIFAR: maximum samples per file, for training and testing */
	size_t labels;	  /* CIFAR: label bytes before each image */
} layouts[SET_KINDS] = {
	[SET_MNIST] = {"MNIST",
		       {"", "MNIST/raw/"}, /* as in torchvision */
		       NULL,
		       {{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
			{"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}},
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

/* Files and directories of CIFAR's versions for Python and MATLAB, which are not supported. */
static const char *const unsupported[] = {
	"cifar-10-batches-py",	  "cifar-10-python.tar.gz",  "cifar-10-batches-mat",
	"cifar-10-matlab.tar.gz", "cifar-100-python",	     "cifar-100-python.tar.gz",
	"cifar-100-matlab",	  "cifar-100-matlab.tar.gz", NULL};

/*
 * Finds file [name] with [ending], in the directory or below it. MNIST's files can have a dot
 * instead of the hyphen before "idx". Sets [path].
 */
static bool find(const struct layout *layout, const char *directory, const char *name,
		 const char *ending, char path[PATH_MAX])
{
	for (int i = 0; i < 4; i++) {
		int begin = snprintf(path, PATH_MAX, "%s/%s", directory, layout->below[i / 2]);
		char *idx;

		if (begin >= PATH_MAX)
			return false;
		snprintf(path + begin, (size_t)(PATH_MAX - begin), "%s%s", name, ending);
		idx = strstr(path + begin, "-idx");
		if (idx && i % 2)
			*idx = '.';
		if (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
			return true;
	}
	return false;
}

/* If [directory] has [name] only in packed form, fails with a text that says how to unpack it. */
static int check_packed(const struct layout *layout, const char *directory, const char *name,
			struct ddp_error *error)
{
	char path[PATH_MAX];

	if (find(layout, directory, name, ".gz", path))
		return ddp_error_set(error, DDP_ERR_FILE,
				     "%s is compressed. Run gunzip -k %.*s/*.gz", path,
				     (int)(strrchr(path, '/') - path), path);
	if (layout->archive && (find(layout, directory, layout->archive, ".gz", path) ||
				find(layout, directory, layout->archive, "", path)))
		return ddp_error_set(error, DDP_ERR_FILE, "%s is an archive. Run tar -xf %s -C %s",
				     path, path, directory);
	return 0;
}

int set_detect(const char *directory, enum set_kind first, struct ddp_error *error)
{
	char path[PATH_MAX];
	struct stat info;

	if (stat(directory, &info) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "%s", directory);
	if (!S_ISDIR(info.st_mode))
		return ddp_error_set(
			error, DDP_ERR_FILE,
			"%s is not a directory. Give the directory that has the files.", directory);
	for (int i = 0; i < 2 * SET_KINDS; i++) {
		int kind = ((int)first + i / 2) % SET_KINDS;

		if (find(&layouts[kind], directory, layouts[kind].names[i % 2][0], "", path))
			return kind;
	}
	for (int i = 0; i < 2 * SET_KINDS; i++) {
		const struct layout *layout = &layouts[((int)first + i / 2) % SET_KINDS];
		int status = check_packed(layout, directory, layout->names[i % 2][0], error);

		if (status < 0)
			return status;
	}
	for (const char *const *name = unsupported; *name; name++) {
		snprintf(path, sizeof(path), "%s/%s", directory, *name);
		if (access(path, F_OK) == 0)
			return ddp_error_set(
				error, DDP_ERR_FILE,
				"%s is not the binary version of CIFAR. Fetch the binary "
				"version with ddp-get-data.",
				path);
	}
	return ddp_error_set(error, DDP_ERR_FILE,
			     "%s has no data set: neither train-images-idx3-ubyte (MNIST) nor "
			     "data_batch_1.bin (CIFAR-10) nor train.bin (CIFAR-100). Fetch one "
			     "with ddp-get-data.",
			     directory);
}

/* Maps [file] into memory. Its path must be set. If the file is empty, file->bytes stays NULL. */
static int map_file(struct set_file *file, struct ddp_error *error)
{
	/* With O_NONBLOCK, opening a FIFO does not wait for a writer. */
	int fd = open(file->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), status = 0;
	struct stat info;
	void *map;

	if (fd < 0 || fstat(fd, &info) < 0) {
		status = ddp_error_errno(error, DDP_ERR_FILE, "%s", file->path);
	} else if (!S_ISREG(info.st_mode)) {
		status = ddp_error_set(error, DDP_ERR_FORMAT, "%s is not a file", file->path);
	} else if (info.st_size > 0) {
		map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED) {
			status = ddp_error_errno(error, DDP_ERR_FILE, "cannot map %s", file->path);
		} else {
			file->bytes = map;
			file->size = (uint64_t)info.st_size;
			madvise(map, file->size, MADV_WILLNEED);
		}
	}
	if (fd >= 0)
		close(fd);
	return status;
}

static int map_files(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	const struct layout *layout = &layouts[options->kind];
	const char *const *names = layout->names[options->test];
	int status = 0;

	for (int i = 0; status == 0 && names[i]; i++) {
		if (find(layout, options->directory, names[i], "", set->files[i].path)) {
			status = map_file(&set->files[i], error);
			continue;
		}
		status = check_packed(layout, options->directory, names[i], error);
		if (status == 0)
			status = ddp_error_set(error, DDP_ERR_FILE,
					       "%s has neither %s nor %s%s, which %s on %s needs",
					       options->directory, names[i], layout->below[1],
					       names[i], options->test ? "testing" : "training",
					       layout->title);
	}
	return status;
}

/* --- Published files: MNIST -------------------------------------------------------------- */

enum { IDX_BYTES = 0x08 };

static uint32_t big_endian(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
	       bytes[3];
}

/*
 * Checks the header of an IDX file that has bytes in [dimensions] dimensions. Each dimension except
 * the first must have size [side]. Sets [count] to the size of the first dimension, and [data] to
 * the address after the header.
 */
static int check_header(const struct set_file *file, int dimensions, uint32_t side, uint32_t *count,
			const uint8_t **data, struct ddp_error *error)
{
	uint32_t magic = IDX_BYTES << 8 | (uint32_t)dimensions;
	uint64_t size = 4 * (1 + (uint64_t)dimensions), bytes = 1, expected;

	if (file->size < size)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s has %" PRIu64 " bytes, but the header of an IDX file has "
				     "%" PRIu64,
				     file->path, file->size, size);
	if (big_endian(file->bytes) != magic)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s begins with %08" PRIx32 ", but an IDX file of bytes in "
				     "%d dimension%s begins with %08" PRIx32,
				     file->path, big_endian(file->bytes), dimensions,
				     dimensions == 1 ? "" : "s", magic);
	for (int i = 1; i < dimensions; i++) {
		uint32_t found = big_endian(file->bytes + 4 + 4 * i);

		if (found != side)
			return ddp_error_set(error, DDP_ERR_FORMAT,
					     "the images in %s are %" PRIu32
					     " pixels %s, not %" PRIu32 " (byte %d)",
					     file->path, found, i == 1 ? "high" : "wide", side,
					     4 + 4 * i);
		bytes *= side;
	}
	*count = big_endian(file->bytes + 4);
	*data = file->bytes + size;
	if (*count == 0)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s has no samples (byte 4)",
				     file->path);
	expected = size + *count * bytes;
	if (file->size == expected)
		return 0;
	return ddp_error_set(error, DDP_ERR_FORMAT,
			     "%s has %" PRIu64 " bytes, but a header of %" PRIu64 " and %" PRIu32
			     " samples of %" PRIu64 " bytes are %" PRIu64,
			     file->path, file->size, size, *count, bytes, expected);
}

static int place_mnist(struct set *set, struct ddp_error *error)
{
	const struct set_file *images = &set->files[0], *labels = &set->files[1];
	struct set_part *part = &set->parts[0];
	uint32_t counts[2] = {0, 0};
	int status;

	status = check_header(images, 3, (uint32_t)set->info.height, &counts[0], &part->images,
			      error);
	if (status == 0)
		status = check_header(labels, 1, 0, &counts[1], &part->labels, error);
	if (status < 0)
		return status;
	if (counts[0] != counts[1])
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s has %" PRIu32 " labels, but %s has %" PRIu32 " images",
				     labels->path, counts[1], images->path, counts[0]);
	part->samples = counts[0];
	set->image_stride = set->image_bytes;
	set->label_stride = 1;
	return 0;
}

/* --- Published files: CIFAR -------------------------------------------------------------- */

/*
 * Checks that the file has whole records, at least one and at most [most]. A record is the label
 * bytes and an image.
 */
static int check_length(const struct set_file *file, uint64_t record, uint64_t most,
			struct ddp_error *error)
{
	uint64_t records = file->size / record, expected;
	char what[96];

	if (records > most || (records == most && file->size % record > 0)) {
		expected = most * record;
		snprintf(what, sizeof(what), "%" PRIu64 " records of %" PRIu64 " bytes", most,
			 record);
	} else if (file->size % record > 0 || records == 0) {
		expected = (records + 1) * record;
		snprintf(what, sizeof(what), "%" PRIu64 " whole record%s of %" PRIu64 " bytes",
			 records + 1, records == 0 ? "" : "s", record);
	} else {
		return 0;
	}
	return ddp_error_set(error, DDP_ERR_FORMAT, "%s has %" PRIu64 " bytes, but %s are %" PRIu64,
			     file->path, file->size, what, expected);
}

static int place_cifar(struct set *set, bool test, struct ddp_error *error)
{
	const struct layout *layout = &layouts[set->kind];
	int status = 0;

	set->image_stride = set->label_stride = layout->labels + set->image_bytes;
	for (int i = 0; status == 0 && layout->names[test][i]; i++) {
		const struct set_file *file = &set->files[i];

		status = check_length(file, set->image_stride, layout->most[test], error);
		if (status == 0)
			set->parts[i] = (struct set_part){file->bytes + layout->labels,
							  file->bytes + layout->labels - 1,
							  file->size / set->image_stride};
	}
	return status;
}

/* --- Published files: open --------------------------------------------------------------- */

static int check_labels(const struct set *set, int number, struct ddp_error *error)
{
	const struct set_part *part = &set->parts[number];
	const struct set_file *file = &set->files[set->kind == SET_MNIST ? 1 : number];

	for (uint64_t i = 0; i < part->samples; i++) {
		const uint8_t *label = part->labels + i * set->label_stride;

		if (*label >= set->info.classes)
			return ddp_error_set(error, DDP_ERR_FORMAT,
					     "%s has label %d for image %" PRIu64 " (byte %" PRIu64
					     "), but labels are 0 to %d",
					     file->path, *label, i, (uint64_t)(label - file->bytes),
					     set->info.classes - 1);
	}
	return 0;
}

/* Opens a published set. Collective. */
static int open_files(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	int status = map_files(set, options, error);

	if (status == 0)
		status = set->kind == SET_MNIST ? place_mnist(set, error)
						: place_cifar(set, options->test, error);
	for (int i = 0; status == 0 && i < SET_PARTS; i++) {
		status = check_labels(set, i, error);
		set->info.samples += set->parts[i].samples;
	}
	snprintf(set->title, sizeof(set->title), "%s in %s, %s images", layouts[set->kind].title,
		 options->directory, ddp_show_count((double)set->info.samples).text);
	status = agree(set, status, error);
	return status < 0 ? status : compare_number(set, "images", set->info.samples, error);
}

/* --- Open, close and access ---------------------------------------------------------------- */

int set_open(struct set **set, const struct set_options *options, struct ddp_error *error)
{
	const struct shape *shape = &shapes[options->kind];
	struct set *new = ddp_xcalloc(1, sizeof(*new), "a data set");
	int status;

	*set = NULL;
	new->kind = options->kind;
	new->ddp = options->ddp;
	new->info = (struct set_info){.title = new->title,
				      .channels = shape->channels,
				      .height = shape->side,
				      .width = shape->side,
				      .classes = shape->classes};
	new->image_bytes = (size_t)(shape->channels * shape->side * shape->side);
	status = options->directory ? open_files(new, options, error)
				    : open_drawn(new, options, error);
	if (status == 0)
		*set = new;
	else
		set_close(new);
	return status;
}

void set_close(struct set *set)
{
	if (!set)
		return;
	for (int i = 0; i < SET_PARTS; i++)
		if (set->files[i].bytes)
			munmap((void *)set->files[i].bytes, set->files[i].size);
	free(set->labels);
	free(set);
}

const struct set_info *set_info(const struct set *set)
{
	return &set->info;
}

/* Finds the part that has sample [index], and makes [index] relative to the part's first sample. */
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
		return draw_image(set, index);
	part = part_of(set, &index);
	return part->images + index * set->image_stride;
}
