/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.c - published data sets (MNIST's IDX files, CIFAR's binary version) and synthetic ones
 *
 * Plain files are memory-mapped and used in place. One rank of each node unpacks gzipped files and
 * archives into memory that the node's ranks share.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/xalloc.h"
#include "draw.h"
#include "set.h"
#include "source.h"

enum { SET_PARTS = 5 };

/* A file or member of an archive: which bytes are read, and their address in memory. */
struct set_file {
	struct source *source;	/* NULL: a member of the archive */
	const char *member;	/* file name in the archive */
	uint64_t first, length; /* offset and number of the bytes that are read */
	const uint8_t *bytes;
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
	struct ddp *ddp; /* NULL: this process alone */
	void *memory;	 /* shared by the node's ranks: unpacked files or synthetic images */
	size_t memory_bytes;

	/* Published sets only. */
	struct set_file files[SET_PARTS];
	struct source *archive;

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

/*
 * Calls ddp_agree() with [error]'s text. If this process has no other ranks, returns [status].
 * Collective.
 */
static int agree(struct set *set, int status, struct ddp_error *error)
{
	if (!set->ddp)
		return status;
	status = ddp_agree(set->ddp, status, error->text);
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(set->ddp)) : 0;
}

/*
 * Returns 0 if all ranks have the same number, else an error that names the first rank that differs
 * from rank 0.
 */
static int compare(const struct count_report *reports, int size, const char *what,
		   struct ddp_error *error)
{
	for (int i = 1; i < size; i++)
		if (reports[i].number != reports[0].number)
			return ddp_error_set(error, DDP_ERR_MISMATCH,
					     "%" PRIu64 " %s on %s (rank 0), but %" PRIu64
					     " on %s (rank %d): give all ranks the same data",
					     reports[0].number, what, reports[0].host,
					     reports[i].number, reports[i].host, i);
	return 0;
}

/*
 * Fails on all ranks if [number], called [what] in the message, is not equal on all ranks.
 * Collective. Returns 0, DDP_ERR_MISMATCH or an error of ddp_all_gather().
 */
static int compare_number(struct set *set, const char *what, uint64_t number,
			  struct ddp_error *error)
{
	const struct ddp_world *world = set->ddp ? ddp_world(set->ddp) : NULL;
	struct count_report own = {.number = number}, *reports;
	int status;

	if (!world)
		return 0;
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

/*
 * Allocates set->memory, [bytes] of zeros, shared by the ranks of a node. Collective. Returns 0,
 * DDP_ERR_MEMORY or an error of ddp_shared_create().
 */
static int create_memory(struct set *set, size_t bytes, struct ddp_error *error)
{
	int status;

	if (set->ddp) {
		status = ddp_shared_create(set->ddp, bytes, &set->memory);
		return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(set->ddp)) : 0;
	}
	set->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	set->memory_bytes = bytes;
	if (set->memory != MAP_FAILED)
		return 0;
	set->memory = NULL;
	return ddp_error_errno(error, DDP_ERR_MEMORY, "%zu bytes for a data set", bytes);
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

/* The memory starts with one byte per image (drawn or not). Images follow. */
static int open_drawn(struct set *set, const struct set_options *options, struct ddp_error *error)
{
	uint64_t samples =
		options->samples ? options->samples : shapes[options->kind].samples[options->test];
	size_t first = (samples + 63) / 64 * 64, bytes = first + samples * set->image_bytes;
	uint64_t classes = (uint64_t)set->info.classes, blocks = (samples + classes - 1) / classes;
	int status = 0;

	set->info.samples = samples;
	set->seed = options->test ? options->seed ^ test_seed : options->seed;
	snprintf(set->title, sizeof(set->title), "%s drawn %s",
		 ddp_show_count((double)samples).text,
		 options->kind == SET_MNIST ? "digits" : "objects");
	if (samples > (UINT64_C(1) << 40) / set->image_bytes)
		status = ddp_error_set(error, DDP_ERR_ARGUMENT,
				       "%" PRIu64 " drawn images: more than memory can have",
				       samples);
	status = agree(set, status, error);
	if (status == 0)
		status = compare_number(set, "drawn images", samples, error);
	if (status == 0)
		status = create_memory(set, bytes, error);
	if (status < 0)
		return status;
	set->labels = ddp_xcalloc(blocks, classes, "labels");
	for (uint64_t block = 0; block < blocks; block++)
		draw_labels(set->seed, block, set->info.classes, &set->labels[block * classes]);
	set->drawn = set->memory;
	set->canvas = (uint8_t *)set->memory + first;
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

/* --- Published files: search -------------------------------------------------------------------------------- */

static const struct layout {
	const char *title;
	const char *below[2]; /* subdirectories in which the files may be */
	const char *archive;  /* name of the archive that has the files */
	/*
	 * File names for training and for testing. MNIST: possible names of the file with the
	 * images. CIFAR: all files.
	 */
	const char *names[2][SET_PARTS + 1];
	uint64_t most[2]; /* samples per file at most */
	size_t labels;	  /* label bytes before each image */
} layouts[SET_KINDS] = {
	[SET_MNIST] = {"MNIST",
		       {"", "MNIST/raw/"}, /* as in torchvision */
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

/* Versions of CIFAR for other programs, which are not supported. */
static const char *const unsupported[] = {
	"cifar-10-batches-py",	  "cifar-10-python.tar.gz",  "cifar-10-batches-mat",
	"cifar-10-matlab.tar.gz", "cifar-100-python",	     "cifar-100-python.tar.gz",
	"cifar-100-matlab",	  "cifar-100-matlab.tar.gz", NULL};

static bool is_there(char path[PATH_MAX], const char *directory, const char *below,
		     const char *name, const char *ending)
{
	snprintf(path, PATH_MAX, "%s/%s%s%s", directory, below, name, ending);
	return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* Finds a file with one of [count] names, plain or gzipped. Sets [path]. */
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

static bool has_data_set(const struct layout *layout, const char *directory)
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

		if (has_data_set(&layouts[kind], directory))
			return kind;
	}
	for (const char *const *name = unsupported; *name; name++)
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

/* Composes "[path]" or "[archive]: [member]" for messages. */
static const char *file_name(const struct set *set, const struct set_file *file,
			     char text[PATH_MAX])
{
	if (file->source)
		snprintf(text, PATH_MAX, "%s", file->source->path);
	else
		snprintf(text, PATH_MAX, "%s: %s", set->archive->path, file->member);
	return text;
}

/* --- Published files: unpacking ----------------------------------------------------------------------------- */

/* A node's memory for unpacked files. Each file starts at a multiple of 64 bytes. */
struct unpacked {
	_Atomic uint32_t taken;	     /* set by the first rank, which then fills the memory */
	uint64_t lengths[SET_PARTS]; /* length of each file after unpacking */
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

/* Offset of file [number] in the unpacked bytes. SET_PARTS: the total size. */
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
		got = source_read_some(file->source, unpacked->bytes + place_of(set, i),
				       file->length, error);
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
	int64_t bytes_left;
	int status;

	while ((status = source_member(set->archive, &member, error)) == 1) {
		status = unpack_member(set, &member, unpacked, error);
		if (status < 0)
			return status;
	}
	if (status < 0)
		return status;
	/* Read to the end of the file, so that gzip's checksum is verified. */
	bytes_left = source_read_some(set->archive, NULL, UINT64_MAX, error);
	if (bytes_left < 0)
		return (int)bytes_left;
	for (int i = 0; i < SET_PARTS; i++)
		if (set->files[i].member && unpacked->lengths[i] == 0)
			return ddp_error_set(error, DDP_ERR_FORMAT, "%s: has no %s in it",
					     set->archive->path, set->files[i].member);
	return 0;
}

/* Sets [bytes] to the maximum over all ranks. Collective. Returns 0 or an error. */
static int find_maximum(struct set *set, size_t *bytes, struct ddp_error *error)
{
	int64_t most = (int64_t)*bytes;
	int status = set->ddp ? ddp_all_reduce(set->ddp, &most, &most, 1, DDP_I64, DDP_MAX) : 0;

	*bytes = (size_t)most;
	return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(set->ddp)) : 0;
}

/*
 * Unpacks packed files, and sets the address of each file's bytes. [status] says whether this rank
 * could open the files. Collective.
 */
static int load_files(struct set *set, int status, struct ddp_error *error)
{
	struct unpacked *unpacked = NULL;
	const uint8_t *place = NULL;
	size_t packed_bytes = place_of(set, SET_PARTS);

	status = agree(set, status, error);
	if (status == 0)
		status = find_maximum(set, &packed_bytes, error);
	if (status == 0 && packed_bytes > 0) {
		status = create_memory(set, sizeof(*unpacked) + packed_bytes, error);
		if (status < 0)
			return status;
		unpacked = set->memory;
		place = unpacked->bytes;
		if (atomic_exchange(&unpacked->taken, 1) == 0)
			status = set->archive ? unpack_archive(set, unpacked, error)
					      : unpack_files(set, unpacked, error);
		status = agree(set, status, error);
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

/* --- Published files: MNIST --------------------------------------------------------------------------------- */

enum { IDX_BYTES = 0x08, IDX_DIMENSIONS = 3 };

static uint32_t big_endian(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
	       bytes[3];
}

/*
 * Reads the header of an IDX file of bytes. Sets [count] to the size of the first dimension. Checks
 * that there are [dimensions] dimensions, that all except the first have size [side], and that the
 * length of a plain file fits the header.
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
				     " (IDX, bytes in %d dimension%s)",
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

/* Opens file 0, the images, or file 1, the labels. */
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

/* Sets the addresses of samples. An unpacked file may be shorter than its header says. */
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

/* --- Published files: CIFAR --------------------------------------------------------------------------------- */

/*
 * Checks that the file has whole records (label bytes and an image), at least one and at most
 * [most].
 */
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
				     "%s: no %s for %s: it has neither %s nor %s%s nor %s.gz",
				     options->directory, layout->title,
				     options->test ? "testing" : "training", names[0],
				     layout->below[1], names[0], layout->archive);
	for (int i = 0; names[i]; i++) {
		set->files[i].member = names[i];
		set->files[i].length = layout->most[options->test] * set->image_stride;
	}
	return source_open(&set->archive, path, error);
}

/* Opens the files in the directory or, if the first file is missing, the archive. */
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

/* --- Published files: open ---------------------------------------------------------------------------------- */

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

/* Opens a published set. Collective. */
static int open_files(struct set *set, const struct set_options *options, struct ddp_error *error)
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
		source_close(set->files[i].source);
	source_close(set->archive);
	if (set->memory && !set->ddp)
		munmap(set->memory, set->memory_bytes);
	free(set->labels);
	free(set);
}

const struct set_info *set_info(const struct set *set)
{
	return &set->info;
}

/* Finds the part with sample [index], and makes [index] relative to it. */
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
