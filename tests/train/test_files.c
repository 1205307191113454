/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdarg.h>

#include "data/set.h"
#include "ranks.h"
#include "scratch.h"

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

enum { SAMPLES = 5, IMAGE = 784, IMAGES = 16 + SAMPLES * IMAGE, LABELS = 8 + SAMPLES };

/* --- Creating files --------------------------------------------------------------------- */

struct bytes {
	uint8_t *data;
	size_t size;
};

static struct bytes bytes_new(size_t size)
{
	struct bytes bytes = {calloc(1, size + 64), size};

	ck_assert_ptr_nonnull(bytes.data);
	return bytes;
}

static uint8_t pixel(uint64_t sample, size_t i)
{
	return (uint8_t)(sample * 59 + i * 7 + i / 256);
}

static struct bytes idx_images(void)
{
	static const uint8_t header[16] = {0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, 28, 0, 0, 0, 28};
	struct bytes bytes = bytes_new(IMAGES);

	memcpy(bytes.data, header, sizeof(header));
	for (size_t i = 0; i < SAMPLES * IMAGE; i++)
		bytes.data[16 + i] = pixel(i / IMAGE, i % IMAGE);
	return bytes;
}

static struct bytes idx_labels(void)
{
	static const uint8_t header[8] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};
	struct bytes bytes = bytes_new(LABELS);

	memcpy(bytes.data, header, sizeof(header));
	for (size_t i = 0; i < SAMPLES; i++)
		bytes.data[8 + i] = (uint8_t)(9 - i);
	return bytes;
}

/* Creates [records] CIFAR records with [labels] label bytes each, starting with sample [first]. */
static struct bytes cifar_records(uint64_t first, size_t records, size_t labels)
{
	size_t record = labels + 3072;
	struct bytes bytes = bytes_new(records * record);

	for (size_t i = 0; i < records * record; i++)
		bytes.data[i] = pixel(first + i / record, i % record - labels);
	for (size_t i = 0; i < records; i++) {
		bytes.data[i * record] = (uint8_t)((first + i) % 10);
		bytes.data[i * record + labels - 1] =
			(uint8_t)((first + i) % (labels == 2 ? 100 : 10));
	}
	return bytes;
}

static struct bytes packed(struct bytes plain)
{
#ifdef HAVE_ZLIB
	struct bytes bytes = bytes_new(plain.size * 2 + 256);
	z_stream stream = {.next_in = plain.data, .avail_in = (uInt)plain.size};

	ck_assert_int_eq(
		deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
	stream.next_out = bytes.data;
	stream.avail_out = (uInt)bytes.size;
	ck_assert_int_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
	bytes.size = stream.total_out;
	deflateEnd(&stream);
	free(plain.data);
	return bytes;
#else
	plain.data[0] = 0x1f;
	plain.data[1] = 0x8b;
	return plain;
#endif
}

static void tar_add(struct bytes *tar, const char *name, struct bytes file)
{
	size_t padded = (file.size + 511) / 512 * 512;
	unsigned sum = 0;
	char *header;

	tar->data = realloc(tar->data, tar->size + 512 + padded);
	ck_assert_ptr_nonnull(tar->data);
	header = (char *)tar->data + tar->size;
	memset(header, 0, 512 + padded);
	snprintf(header, 100, "%s", name);
	snprintf(header + 124, 12, "%011zo", file.size);
	memset(header + 148, ' ', 8);
	header[156] = strchr(name, '.') ? '0' : '5';
	memcpy(header + 257, "ustar\00000", 8);
	for (int i = 0; i < 512; i++)
		sum += (uint8_t)header[i];
	snprintf(header + 148, 8, "%06o", sum);
	memcpy(header + 512, file.data, file.size);
	tar->size += 512 + padded;
	free(file.data);
}

static void tar_end(struct bytes *tar)
{
	tar->data = realloc(tar->data, tar->size + 1024);
	memset(tar->data + tar->size, 0, 1024);
	tar->size += 1024;
}

/* Writes a file to the subdirectory [under] of the test's directory. */
static void put(const char *under, const char *name, struct bytes bytes)
{
	char path[128];

	mkdir(scratch(under), 0700);
	snprintf(path, sizeof(path), "%s/%s", under, name);
	if (strrchr(name, '/')) {
		*strrchr(path, '/') = '\0';
		for (char *slash = strchr(path + strlen(under) + 1, '/'); slash;
		     slash = strchr(slash + 1, '/')) {
			*slash = '\0';
			mkdir(scratch(path), 0700);
			*slash = '/';
		}
		mkdir(scratch(path), 0700);
		snprintf(path, sizeof(path), "%s/%s", under, name);
	}
	scratch_file(path, bytes.data, bytes.size);
	free(bytes.data);
}

static struct set *open_good(enum set_kind kind, bool test, const char *under)
{
	struct set_options options = {.kind = kind, .test = test, .directory = scratch(under)};
	struct ddp_error error;
	struct set *set;

	ck_assert_msg(set_open(&set, &options, &error) == 0, "%s", error.text);
	return set;
}

/* Opening the set must fail with the line [want]. "@" in [want] stands for the test's directory. */
static void open_bad(enum set_kind kind, bool test, const char *under, int status, const char *want)
{
	const char *directory = scratch(under);
	struct set_options options = {.kind = kind, .test = test, .directory = directory};
	struct ddp_error error;
	struct set *set;
	char text[2048];
	size_t length = 0;

	for (; *want; want++)
		length += (size_t)snprintf(text + length, sizeof(text) - length, "%.*s",
					   *want == '@' ? (int)strlen(directory) : 1,
					   *want == '@' ? directory : want);
	ck_assert_int_eq(set_open(&set, &options, &error), status);
	ck_assert_ptr_null(set);
	ck_assert_str_eq(error.text, text);
}

/* --- MNIST ------------------------------------------------------------------------------ */

static const struct {
	const char *under, *images, *labels;
	bool test, pack_images, pack_labels;
} spellings[] = {
	{"plain", "train-images-idx3-ubyte", "train-labels-idx1-ubyte", false, false, false},
	{"dots", "train-images.idx3-ubyte", "train-labels.idx1-ubyte", false, false, false},
	{"test", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", true, false, false},
	{"raw", "MNIST/raw/train-images-idx3-ubyte", "MNIST/raw/train-labels-idx1-ubyte", false,
	 false, false},
	{"unpacked", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz", true, false, false},
#ifdef HAVE_ZLIB
	{"gz", "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", false, true, true},
	{"gzdots", "t10k-images.idx3-ubyte.gz", "t10k-labels.idx1-ubyte.gz", true, true, true},
	{"one", "train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz", false, false, true},
	{"other", "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte", false, true, false},
	{"named", "train-images-idx3-ubyte", "train-labels-idx1-ubyte", false, true, true},
#endif
};

static void check_mnist(struct set *set)
{
	ck_assert_int_eq((int)set_info(set)->samples, SAMPLES);
	for (uint64_t i = 0; i < SAMPLES; i++) {
		ck_assert_int_eq(set_label(set, i), 9 - (int)i);
		for (size_t at = 0; at < IMAGE; at++)
			ck_assert_int_eq(set_image(set, i)[at], pixel(i, at));
	}
	set_close(set);
}

TEST_ROWS(test_mnist, spellings)
{
	const char *under = spellings[_i].under;
	struct bytes images = idx_images(), labels = idx_labels();
	struct ddp_error error;
	struct set *set;

	put(under, spellings[_i].images, spellings[_i].pack_images ? packed(images) : images);
	put(under, spellings[_i].labels, spellings[_i].pack_labels ? packed(labels) : labels);
	ck_assert_int_eq(set_detect(scratch(under), SET_CIFAR100, &error), SET_MNIST);
	set = open_good(SET_MNIST, spellings[_i].test, under);
	ck_assert_ptr_nonnull(strstr(set_info(set)->title, scratch(under)));
	check_mnist(set);
}

enum which { IMAGES_FILE, LABELS_FILE };

/* Sets in which one file is wrong. */
static const struct {
	const char *under;
	enum which which;
	bool pack;    /* compress the file after the change */
	int at, byte; /* replace the byte at [at] by [byte]; -1: none */
	int size;     /* new size of the file; 0: unchanged */
	const char *want;
} damages[] = {
	{"magic", IMAGES_FILE, false, 3, 1, 0,
	 "@/train-images-idx3-ubyte: byte 0: magic number 00000801, expected 00000803 (IDX, bytes "
	 "in 3 dimensions)"},
	{"kind", LABELS_FILE, false, 2, 9, 0,
	 "@/train-labels-idx1-ubyte: byte 0: magic number 00000901, expected 00000801 (IDX, bytes "
	 "in 1 dimension)"},
	{"high", IMAGES_FILE, false, 11, 27, 0,
	 "@/train-images-idx3-ubyte: byte 8: images are 27 pixels high, expected 28"},
	{"wide", IMAGES_FILE, false, 12, 1, 0,
	 "@/train-images-idx3-ubyte: byte 12: images are 16777244 pixels wide, expected 28"},
	{"none", IMAGES_FILE, false, 7, 0, 0,
	 "@/train-images-idx3-ubyte: byte 4: no samples, expected one at least"},
	{"short", IMAGES_FILE, false, -1, 0, IMAGES - 1,
	 "@/train-images-idx3-ubyte: ends at byte 3935, expected 3936: 5 samples of 784 bytes after "
	 "16"},
	{"long", IMAGES_FILE, false, -1, 0, IMAGES + 1,
	 "@/train-images-idx3-ubyte: ends at byte 3937, expected 3936: 5 samples of 784 bytes after "
	 "16"},
	{"more", IMAGES_FILE, false, 5, 200, 0,
	 "@/train-images-idx3-ubyte: ends at byte 3936, expected 10276048736: 13107205 samples of "
	 "784 bytes after 16"},
	{"header", LABELS_FILE, false, -1, 0, 7,
	 "@/train-labels-idx1-ubyte: ends at byte 7, expected 8: the header of an IDX file from "
	 "byte 0 on"},
	{"empty", LABELS_FILE, false, -1, 0, -1,
	 "@/train-labels-idx1-ubyte: ends before byte 4: it has no data"},
	{"fewer", LABELS_FILE, false, 7, 4, LABELS - 1,
	 "@/train-labels-idx1-ubyte: byte 4: 4 labels, expected 5, as many as images in "
	 "@/train-images-idx3-ubyte"},
	{"label", LABELS_FILE, false, 10, 10, 0,
	 "@/train-labels-idx1-ubyte: byte 10: label 10 of image 2, expected 0 to 9"},
#ifdef HAVE_ZLIB
	{"gz-magic", IMAGES_FILE, true, 0, 60, 0,
	 "@/train-images-idx3-ubyte: byte 0: magic number 3c000803, expected 00000803 (IDX, bytes "
	 "in 3 dimensions)"},
	{"gz-short", IMAGES_FILE, true, -1, 0, IMAGES - 1,
	 "@/train-images-idx3-ubyte: ends at byte 3935 unpacked, expected 3936"},
	{"gz-long", LABELS_FILE, true, -1, 0, LABELS + 1,
	 "@/train-labels-idx1-ubyte: continues after byte 13 unpacked, expected its end there"},
	{"gz-label", LABELS_FILE, true, 12, 255, 0,
	 "@/train-labels-idx1-ubyte: byte 12: label 255 of image 4, expected 0 to 9"},
	{"gz-header", LABELS_FILE, true, -1, 0, 6,
	 "@/train-labels-idx1-ubyte: ends at byte 6 unpacked, expected 8: the header of an IDX file "
	 "from byte 0 on"},
#else
	{"gz", IMAGES_FILE, true, -1, 0, 0,
	 "@/train-images-idx3-ubyte is gzipped, and this ddp-train was built without zlib: unpack "
	 "it, or build with zlib (Debian: zlib1g-dev)"},
#endif
};

TEST_ROWS(test_mnist_damage, damages)
{
	const char *under = damages[_i].under;
	struct bytes files[2] = {idx_images(), idx_labels()};
	struct bytes *file = &files[damages[_i].which];
	int status = DDP_ERR_FORMAT;

	if (damages[_i].at >= 0)
		file->data[damages[_i].at] = (uint8_t)damages[_i].byte;
	if (damages[_i].size)
		file->size = damages[_i].size < 0 ? 0 : (size_t)damages[_i].size;
	if (damages[_i].pack)
		*file = packed(*file);
#ifndef HAVE_ZLIB
	if (damages[_i].pack)
		status = DDP_ERR_UNSUPPORTED;
#endif
	put(under, "train-images-idx3-ubyte", files[IMAGES_FILE]);
	put(under, "train-labels-idx1-ubyte", files[LABELS_FILE]);
	open_bad(SET_MNIST, false, under, status, damages[_i].want);
}

TEST(test_mnist_missing)
{
	put("half", "train-images-idx3-ubyte", idx_images());
	open_bad(SET_MNIST, false, "half", DDP_ERR_FILE,
		 "@: no MNIST labels for training: looked for train-labels-idx1-ubyte and "
		 "train-labels.idx1-ubyte, plain and .gz, there and in MNIST/raw");
	open_bad(SET_MNIST, true, "half", DDP_ERR_FILE,
		 "@: no MNIST images for testing: looked for t10k-images-idx3-ubyte and "
		 "t10k-images.idx3-ubyte, plain and .gz, there and in MNIST/raw");
	mkdir(scratch("half/train-labels-idx1-ubyte"), 0700);
	open_bad(SET_MNIST, false, "half", DDP_ERR_FORMAT, "@/train-labels-idx1-ubyte: not a file");
	ck_assert_int_eq(rmdir(scratch("half/train-labels-idx1-ubyte")), 0);
	ck_assert_int_eq(mkfifo(scratch("half/train-labels-idx1-ubyte"), 0600), 0);
	open_bad(SET_MNIST, false, "half", DDP_ERR_FORMAT, "@/train-labels-idx1-ubyte: not a file");
}

/* --- Damaged gzipped files -------------------------------------------------------------- */

#ifdef HAVE_ZLIB

/* Opening training images with these bytes must fail. The formatted text is the expected line. */
static DDP_FORMAT(3, 4) void gz_bad(const char *under, struct bytes images, const char *format, ...)
{
	char want[512];
	va_list list;

	va_start(list, format);
	vsnprintf(want, sizeof(want), format, list);
	va_end(list);
	put(under, "train-images-idx3-ubyte.gz", images);
	put(under, "train-labels-idx1-ubyte", idx_labels());
	open_bad(SET_MNIST, false, under, DDP_ERR_FORMAT, want);
}

/* The last eight bytes are the checksum and the length of the data. */
static const struct {
	const char *name;
	size_t at, found; /* changed byte, and byte at which that is found, from the end */
	const char *what;
} trailers[] = {{"crc", 7, 4, "data check"}, {"isize", 1, 0, "length check"}};

TEST_ROWS(test_gz_trailer, trailers)
{
	struct bytes bytes = packed(idx_images());

	bytes.data[bytes.size - trailers[_i].at] ^= 0x10;
	gz_bad(trailers[_i].name, bytes,
	       "@/train-images-idx3-ubyte.gz is damaged at byte %zu of the gzipped file: incorrect "
	       "%s; fetch it again",
	       bytes.size - trailers[_i].found, trailers[_i].what);
}

/* A file that was truncated at any length is detected. */
TEST(test_gz_cut)
{
	struct bytes whole = packed(idx_images());

	for (size_t size = 4; size < whole.size; size += size < whole.size - 12 ? 97 : 1) {
		struct bytes part = bytes_new(size);

		memcpy(part.data, whole.data, size);
		gz_bad("cut", part,
		       "@/train-images-idx3-ubyte.gz is damaged at byte %zu of the gzipped file: it "
		       "was cut off; fetch it again",
		       size);
	}
	free(whole.data);
}

TEST(test_gz_tail)
{
	struct bytes bytes = packed(idx_images());

	memcpy(bytes.data + bytes.size, "\0x", 3);
	bytes.size += 3;
	gz_bad("tail", bytes,
	       "@/train-images-idx3-ubyte.gz: continues after byte %zu of the gzipped file, expected "
	       "its end there",
	       bytes.size - 3);
}

/* Returns the [size] bytes of [from] that start at [at]. */
static struct bytes cut(struct bytes from, size_t at, size_t size)
{
	struct bytes bytes = bytes_new(size);

	memcpy(bytes.data, from.data + at, size);
	return bytes;
}

/* As with gzip(1), a file may have several members, some of them empty, and zeros at its end. */
TEST(test_gz_members)
{
	struct bytes whole = idx_images(), all = {NULL, 0};

	/* Split the file within the header, at the end of an image, and within an image. */
	for (int i = 0; i < 5; i++) {
		static const size_t begins[] = {0, 7, 7, 16 + IMAGE, 16 + 2 * IMAGE + 5, IMAGES};
		struct bytes part = packed(cut(whole, begins[i], begins[i + 1] - begins[i]));

		all.data = realloc(all.data, all.size + part.size + 100);
		ck_assert_ptr_nonnull(all.data);
		memcpy(all.data + all.size, part.data, part.size);
		all.size += part.size;
		free(part.data);
	}
	memset(all.data + all.size, 0, 100);
	free(whole.data);
	for (int zeros = 0; zeros < 2; zeros++) {
		struct bytes copy = cut(all, 0, all.size + (zeros ? 100 : 0));

		put("members", "train-images-idx3-ubyte.gz", copy);
		put("members", "train-labels-idx1-ubyte", idx_labels());
		check_mnist(open_good(SET_MNIST, false, "members"));
	}
	all.size -= 1; /* truncate the last member */
	gz_bad("members-cut", all,
	       "@/train-images-idx3-ubyte.gz is damaged at byte %zu of the gzipped file: it was cut "
	       "off; fetch it again",
	       all.size);
}

#endif

/* --- CIFAR ------------------------------------------------------------------------------ */

static const char *const batches[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
				      "data_batch_4.bin", "data_batch_5.bin"};

static void check_cifar(struct set *set, uint64_t samples, int classes)
{
	ck_assert_int_eq((int)set_info(set)->samples, (int)samples);
	for (uint64_t i = 0; i < samples; i++) {
		const uint8_t *image = set_image(set, i);

		ck_assert_int_eq(set_label(set, i), (int)i % classes);
		for (size_t at = 0; at < 3072; at++)
			ck_assert_int_eq(image[at], pixel(i, at));
	}
	set_close(set);
}

static void put_batches(const char *under, const char *below, bool pack)
{
	char name[64];

	for (size_t i = 0; i < 5; i++) {
		struct bytes bytes = cifar_records(i * 3, 3, 1);

		snprintf(name, sizeof(name), "%s%s%s", below, batches[i], pack ? ".gz" : "");
		put(under, name, pack ? packed(bytes) : bytes);
	}
}

TEST(test_cifar10)
{
	struct ddp_error error;

	put_batches("ten", "", false);
	put("ten", "test_batch.bin", cifar_records(0, 12, 1));
	ck_assert_int_eq(set_detect(scratch("ten"), SET_MNIST, &error), SET_CIFAR10);
	check_cifar(open_good(SET_CIFAR10, false, "ten"), 15, 10);
	check_cifar(open_good(SET_CIFAR10, true, "ten"), 12, 10);
	put_batches("tenbelow", "cifar-10-batches-bin/", false);
	ck_assert_int_eq(set_detect(scratch("tenbelow"), SET_MNIST, &error), SET_CIFAR10);
	check_cifar(open_good(SET_CIFAR10, false, "tenbelow"), 15, 10);
}

TEST(test_cifar100)
{
	struct ddp_error error;

	put("hundred", "train.bin", cifar_records(0, 120, 2));
	put("hundred", "cifar-100-binary/test.bin", cifar_records(0, 7, 2));
	ck_assert_int_eq(set_detect(scratch("hundred"), SET_MNIST, &error), SET_CIFAR100);
	check_cifar(open_good(SET_CIFAR100, false, "hundred"), 120, 100);
	check_cifar(open_good(SET_CIFAR100, true, "hundred"), 7, 100);
}

static struct bytes archive(size_t most)
{
	struct bytes tar = {NULL, 0};

	tar_add(&tar, "cifar-10-batches-bin/", bytes_new(0));
	tar_add(&tar, "cifar-10-batches-bin/data_batch_1.bin", cifar_records(0, 3, 1));
	tar_add(&tar, "cifar-10-batches-bin/batches.meta.txt", bytes_new(61));
	for (size_t i = most; i > 1; i--) {
		char name[64];

		snprintf(name, sizeof(name), "cifar-10-batches-bin/%s", batches[i - 1]);
		tar_add(&tar, name, cifar_records((i - 1) * 3, 3, 1));
	}
	tar_add(&tar, "cifar-10-batches-bin/test_batch.bin", cifar_records(0, 2, 1));
	tar_end(&tar);
	return tar;
}

TEST(test_archive)
{
	struct bytes tar = {NULL, 0};
	struct ddp_error error;

	put("tar", "cifar-10-binary.tar", archive(5));
	ck_assert_int_eq(set_detect(scratch("tar"), SET_MNIST, &error), SET_CIFAR10);
	check_cifar(open_good(SET_CIFAR10, false, "tar"), 15, 10);
	check_cifar(open_good(SET_CIFAR10, true, "tar"), 2, 10);
	tar_add(&tar, "cifar-100-binary/test.bin", cifar_records(0, 4, 2));
	tar_end(&tar);
	put("tar", "cifar-100-binary.tar", tar);
	check_cifar(open_good(SET_CIFAR100, true, "tar"), 4, 100);
	open_bad(SET_CIFAR100, false, "tar", DDP_ERR_FORMAT,
		 "@/cifar-100-binary.tar: has no train.bin in it");
#ifdef HAVE_ZLIB
	put("targz", "cifar-10-binary.tar.gz", packed(archive(5)));
	check_cifar(open_good(SET_CIFAR10, false, "targz"), 15, 10);
	put_batches("bingz", "", true);
	check_cifar(open_good(SET_CIFAR10, false, "bingz"), 15, 10);
#endif
}

TEST(test_archive_damage)
{
	struct bytes tar = archive(5);

	tar.data[512 + 512 - 1] ^= 1; /* change a byte in the header of the first batch */
	put("tarsum", "cifar-10-binary.tar", tar);
	open_bad(SET_CIFAR10, false, "tarsum", DDP_ERR_FORMAT,
		 "@/cifar-10-binary.tar: byte 660: a header with checksum 4855, expected 4856: no "
		 "tar archive, or damaged");
	tar = archive(5);
	tar.size = 512 + 512 + 3000;
	put("tarcut", "cifar-10-binary.tar", tar);
	open_bad(SET_CIFAR10, false, "tarcut", DDP_ERR_FORMAT,
		 "@/cifar-10-binary.tar: ends at byte 4024, expected 10243: data_batch_1.bin from "
		 "byte 1024 on");
	put("tarfew", "cifar-10-binary.tar", archive(4));
	open_bad(SET_CIFAR10, false, "tarfew", DDP_ERR_FORMAT,
		 "@/cifar-10-binary.tar: has no data_batch_5.bin in it");
	tar = archive(5);
	tar.data[1024 + 3073] = 10;
	put("tarlabel", "cifar-10-binary.tar", tar);
	open_bad(
		SET_CIFAR10, false, "tarlabel", DDP_ERR_FORMAT,
		"@/cifar-10-binary.tar: data_batch_1.bin: byte 3073: label 10 of image 1, expected "
		"0 to 9");
}

TEST(test_cifar_damage)
{
	struct bytes bytes = cifar_records(0, 3, 1);

	bytes.size -= 10;
	put("part", "test_batch.bin", bytes);
	open_bad(SET_CIFAR10, true, "part", DDP_ERR_FORMAT,
		 "@/test_batch.bin: ends at byte 9209, expected 9219: whole records of 3073 bytes");
	put("part", "test_batch.bin", bytes_new(10001 * 3073));
	open_bad(
		SET_CIFAR10, true, "part", DDP_ERR_FORMAT,
		"@/test_batch.bin: ends at byte 30733073, expected 30730000: 10000 records of 3073 "
		"bytes");
	put("part", "test_batch.bin", bytes_new(10000 * 3073 + 1));
	open_bad(
		SET_CIFAR10, true, "part", DDP_ERR_FORMAT,
		"@/test_batch.bin: ends at byte 30730001, expected 30730000: 10000 records of 3073 "
		"bytes");
	put_batches("part", "", false);
	unlink(scratch("part/data_batch_4.bin"));
	open_bad(SET_CIFAR10, false, "part", DDP_ERR_FILE,
		 "@: @/data_batch_1.bin is there, but no data_batch_4.bin, there or in "
		 "cifar-10-batches-bin/");
	open_bad(SET_CIFAR100, false, "part", DDP_ERR_FILE,
		 "@: no CIFAR-100 for training: it has neither train.bin nor "
		 "cifar-100-binary/train.bin nor cifar-100-binary.tar.gz");
	bytes = cifar_records(0, 3, 2);
	bytes.data[3074 + 1] = 100;
	put("part", "test.bin", bytes);
	open_bad(SET_CIFAR100, true, "part", DDP_ERR_FORMAT,
		 "@/test.bin: byte 3075: label 100 of image 1, expected 0 to 99");
}

/* --- Detection -------------------------------------------------------------------------- */

static void detect_bad(const char *under, const char *const *pieces)
{
	struct ddp_error error;

	ck_assert_int_eq(set_detect(scratch(under), SET_MNIST, &error), DDP_ERR_FILE);
	unit_pieces(under, error.text, pieces);
}

TEST(test_detect)
{
	static const char *const nowhere[] = {"/nowhere: No such file", NULL};
	static const char *const nothing[] = {"/nothing: no data set",
					      "train-images-idx3-ubyte",
					      "data_batch_1.bin",
					      "train.bin",
					      "get-data",
					      NULL};
	static const char *const file[] = {"/nothing/file is not a directory", NULL};
	static const char *const python[] = {"/python/cifar-10-python.tar.gz is not the binary",
					     NULL};
	struct ddp_error error;

	detect_bad("nowhere", nowhere);
	put("nothing", "file", bytes_new(5));
	detect_bad("nothing", nothing);
	detect_bad("nothing/file", file);
	put("python", "cifar-10-python.tar.gz", bytes_new(5));
	detect_bad("python", python);
	put("both", "train-images-idx3-ubyte.gz", bytes_new(5));
	put("both", "train.bin", bytes_new(5));
	ck_assert_int_eq(set_detect(scratch("both"), SET_MNIST, &error), SET_MNIST);
	ck_assert_int_eq(set_detect(scratch("both"), SET_CIFAR10, &error), SET_CIFAR100);
}

/* --- Ranks ------------------------------------------------------------------------------ */

/* All ranks read the same set, whether the files are mapped or one of the ranks unpacks them. */
static int read_together(int rank)
{
	static const char *const unders[] = {"rplain", "rgz", "rtar"};
	struct ddp *ddp = ranks_join();

	for (int i = 0; i < 3; i++) {
		struct set_options options = {.kind = i == 2 ? SET_CIFAR10 : SET_MNIST,
					      .directory = scratch(unders[i]),
					      .ddp = ddp};
		struct ddp_error error = {0, ""};
		struct set *set;

		if (set_open(&set, &options, &error) < 0) {
			fprintf(stderr, "rank %d: %s\n", rank, error.text);
			_exit(97);
		}
		RANK_CHECK(set_info(set)->samples == (i == 2 ? 15 : SAMPLES));
		for (uint64_t j = 0; j < set_info(set)->samples; j++) {
			RANK_CHECK(set_label(set, j) == (i == 2 ? (int)j % 10 : 9 - (int)j));
			for (size_t at = 0; at < IMAGE; at++)
				RANK_CHECK(set_image(set, j)[at] == pixel(j, at));
		}
		set_close(set);
	}
	ddp_destroy(ddp);
	return 0;
}

static const char *const layouts[] = {"1", "2", "3", "2,1"};

static struct bytes perhaps_packed(struct bytes bytes)
{
#ifdef HAVE_ZLIB
	return packed(bytes);
#else
	return bytes;
#endif
}

TEST_ROWS(test_ranks_read, layouts)
{
	put("rplain", "train-images-idx3-ubyte", idx_images());
	put("rplain", "train-labels-idx1-ubyte", idx_labels());
	put("rgz", "train-images-idx3-ubyte", perhaps_packed(idx_images()));
	put("rgz", "train-labels-idx1-ubyte", perhaps_packed(idx_labels()));
	put("rtar", "cifar-10-binary.tar", perhaps_packed(archive(5)));
	ranks_run(layouts[_i], read_together);
}

/* If a rank has an error, all ranks return it, and no rank waits for the others. */
static int fail_together(int rank)
{
	struct ddp *ddp = ranks_join();
	const char *under = rank == 1 ? "rbad" : "rplain";
	struct set_options options = {.kind = SET_MNIST, .directory = scratch(under), .ddp = ddp};
	struct ddp_error error = {0, ""};
	struct set *set;

	RANK_CHECK(set_open(&set, &options, &error) == DDP_ERR_FORMAT && !set);
	RANK_CHECK(strstr(error.text, "rank 1 on ") == error.text);
	RANK_CHECK(strstr(error.text, "/rbad/train-labels-idx1-ubyte: byte 8: label 77 of image 0, "
				      "expected 0 to 9"));
	/* the file is missing on all ranks, so the error names no rank */
	options.test = true;
	options.directory = scratch("rplain");
	RANK_CHECK(set_open(&set, &options, &error) == DDP_ERR_FILE);
	RANK_CHECK(strstr(error.text, "no MNIST images for testing") &&
		   !strstr(error.text, "rank "));
	RANK_OK(ddp, ddp_barrier(ddp));
	ddp_destroy(ddp);
	return 0;
}

/* The rank that unpacks detects the damage, and all ranks return the error. */
static int unpack_badly(int rank)
{
	struct ddp *ddp = ranks_join();
	struct set_options options = {
		.kind = SET_CIFAR10, .directory = scratch("rcut"), .ddp = ddp};
	struct ddp_error error = {0, ""};
	struct set *set;

	(void)rank;
	RANK_CHECK(set_open(&set, &options, &error) == DDP_ERR_FORMAT && !set);
	RANK_CHECK(strstr(error.text, "/rcut/cifar-10-binary.tar: ends at byte 40000"));
	RANK_OK(ddp, ddp_barrier(ddp));
	ddp_destroy(ddp);
	return 0;
}

TEST_ROWS(test_ranks_fail, layouts)
{
	struct bytes labels = idx_labels(), tar = archive(5);

	labels.data[8] = 77;
	tar.size = 40000;
	put("rplain", "train-images-idx3-ubyte", idx_images());
	put("rplain", "train-labels-idx1-ubyte", idx_labels());
	put("rbad", "train-images-idx3-ubyte", idx_images());
	put("rbad", "train-labels-idx1-ubyte", labels);
	put("rcut", "cifar-10-binary.tar", tar);
	ranks_run(layouts[_i], layouts[_i][0] == '1' ? unpack_badly : fail_together);
	ranks_run(layouts[_i], unpack_badly);
}

UNIT_MAIN("files", scratch_use)
