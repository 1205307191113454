/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/set.h"
#include "ranks.h"
#include "scratch.h"

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
	struct set_options options = {
		.kind = kind, .test = test, .directory = scratch(under), .ddp = ranks_alone()};
	struct ddp_error error;
	struct set *set;

	ck_assert_msg(set_open(&set, &options, &error) == 0, "%s", error.text);
	return set;
}

/* The line [text] must be [want]. "@" in [want] stands for the directory [under]. */
static void check_line(const char *under, const char *text, const char *want)
{
	const char *directory = scratch(under);
	char line[2048];
	size_t length = 0;

	for (; *want; want++)
		length += (size_t)snprintf(line + length, sizeof(line) - length, "%.*s",
					   *want == '@' ? (int)strlen(directory) : 1,
					   *want == '@' ? directory : want);
	ck_assert_str_eq(text, line);
}

/* Opening the set must fail with the line [want]. */
static void open_bad(enum set_kind kind, bool test, const char *under, int status, const char *want)
{
	struct set_options options = {
		.kind = kind, .test = test, .directory = scratch(under), .ddp = ranks_alone()};
	struct ddp_error error;
	struct set *set;

	ck_assert_int_eq(set_open(&set, &options, &error), status);
	ck_assert_ptr_null(set);
	check_line(under, error.text, want);
}

/* --- MNIST ------------------------------------------------------------------------------ */

static const struct {
	const char *under, *images, *labels;
	bool test;
} spellings[] = {
	{"plain", "train-images-idx3-ubyte", "train-labels-idx1-ubyte", false},
	{"dots", "train-images.idx3-ubyte", "train-labels.idx1-ubyte", false},
	{"test", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", true},
	{"raw", "MNIST/raw/train-images-idx3-ubyte", "MNIST/raw/train-labels-idx1-ubyte", false},
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
	struct ddp_error error;
	struct set *set;

	put(under, spellings[_i].images, idx_images());
	put(under, spellings[_i].labels, idx_labels());
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
	int at, byte; /* replace the byte at [at] by [byte]; -1: none */
	int size;     /* new size of the file; 0: unchanged */
	const char *want;
} damages[] = {
	{"magic", IMAGES_FILE, 3, 1, 0,
	 "@/train-images-idx3-ubyte begins with 00000801, but an IDX file of bytes in 3 dimensions begins "
	 "with 00000803"},
	{"kind", LABELS_FILE, 2, 9, 0,
	 "@/train-labels-idx1-ubyte begins with 00000901, but an IDX file of bytes in 1 dimension begins "
	 "with 00000801"},
	{"high", IMAGES_FILE, 11, 27, 0,
	 "the images in @/train-images-idx3-ubyte are 27 pixels high, not 28 (byte 8)"},
	{"wide", IMAGES_FILE, 12, 1, 0,
	 "the images in @/train-images-idx3-ubyte are 16777244 pixels wide, not 28 (byte 12)"},
	{"none", IMAGES_FILE, 7, 0, 0, "@/train-images-idx3-ubyte has no samples (byte 4)"},
	{"short", IMAGES_FILE, -1, 0, IMAGES - 1,
	 "@/train-images-idx3-ubyte has 3935 bytes, but a header of 16 and 5 samples of 784 bytes are "
	 "3936"},
	{"long", IMAGES_FILE, -1, 0, IMAGES + 1,
	 "@/train-images-idx3-ubyte has 3937 bytes, but a header of 16 and 5 samples of 784 bytes are "
	 "3936"},
	{"more", IMAGES_FILE, 5, 200, 0,
	 "@/train-images-idx3-ubyte has 3936 bytes, but a header of 16 and 13107205 samples of 784 "
	 "bytes are 10276048736"},
	{"header", LABELS_FILE, -1, 0, 7,
	 "@/train-labels-idx1-ubyte has 7 bytes, but the header of an IDX file has 8"},
	{"empty", LABELS_FILE, -1, 0, -1,
	 "@/train-labels-idx1-ubyte has 0 bytes, but the header of an IDX file has 8"},
	{"fewer", LABELS_FILE, 7, 4, LABELS - 1,
	 "@/train-labels-idx1-ubyte has 4 labels, but @/train-images-idx3-ubyte has 5 images"},
	{"label", LABELS_FILE, 10, 10, 0,
	 "@/train-labels-idx1-ubyte has label 10 for image 2 (byte 10), but labels are 0 to 9"},
};

TEST_ROWS(test_mnist_damage, damages)
{
	const char *under = damages[_i].under;
	struct bytes files[2] = {idx_images(), idx_labels()};
	struct bytes *file = &files[damages[_i].which];

	if (damages[_i].at >= 0)
		file->data[damages[_i].at] = (uint8_t)damages[_i].byte;
	if (damages[_i].size)
		file->size = damages[_i].size < 0 ? 0 : (size_t)damages[_i].size;
	put(under, "train-images-idx3-ubyte", files[IMAGES_FILE]);
	put(under, "train-labels-idx1-ubyte", files[LABELS_FILE]);
	open_bad(SET_MNIST, false, under, DDP_ERR_FORMAT, damages[_i].want);
}

TEST(test_mnist_missing)
{
	put("half", "train-images-idx3-ubyte", idx_images());
	open_bad(
		SET_MNIST, false, "half", DDP_ERR_FILE,
		"@ has neither train-labels-idx1-ubyte nor MNIST/raw/train-labels-idx1-ubyte, which "
		"training on MNIST needs");
	open_bad(SET_MNIST, true, "half", DDP_ERR_FILE,
		 "@ has neither t10k-images-idx3-ubyte nor MNIST/raw/t10k-images-idx3-ubyte, which "
		 "testing on MNIST needs");
	mkdir(scratch("half/train-labels-idx1-ubyte"), 0700);
	open_bad(SET_MNIST, false, "half", DDP_ERR_FORMAT,
		 "@/train-labels-idx1-ubyte is not a file");
	ck_assert_int_eq(rmdir(scratch("half/train-labels-idx1-ubyte")), 0);
	ck_assert_int_eq(mkfifo(scratch("half/train-labels-idx1-ubyte"), 0600), 0);
	open_bad(SET_MNIST, false, "half", DDP_ERR_FORMAT,
		 "@/train-labels-idx1-ubyte is not a file");
}

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

static void put_batches(const char *under, const char *below)
{
	char name[64];

	for (size_t i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "%s%s", below, batches[i]);
		put(under, name, cifar_records(i * 3, 3, 1));
	}
}

TEST(test_cifar10)
{
	struct ddp_error error;

	put_batches("ten", "");
	put("ten", "test_batch.bin", cifar_records(0, 12, 1));
	ck_assert_int_eq(set_detect(scratch("ten"), SET_MNIST, &error), SET_CIFAR10);
	check_cifar(open_good(SET_CIFAR10, false, "ten"), 15, 10);
	check_cifar(open_good(SET_CIFAR10, true, "ten"), 12, 10);
	put_batches("tenbelow", "cifar-10-batches-bin/");
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

TEST(test_cifar_damage)
{
	struct bytes bytes = cifar_records(0, 3, 1);

	bytes.size -= 10;
	put("part", "test_batch.bin", bytes);
	open_bad(SET_CIFAR10, true, "part", DDP_ERR_FORMAT,
		 "@/test_batch.bin has 9209 bytes, but 3 whole records of 3073 bytes are 9219");
	put("part", "test_batch.bin", bytes_new(10001 * 3073));
	open_bad(
		SET_CIFAR10, true, "part", DDP_ERR_FORMAT,
		"@/test_batch.bin has 30733073 bytes, but 10000 records of 3073 bytes are 30730000");
	put("part", "test_batch.bin", bytes_new(10000 * 3073 + 1));
	open_bad(
		SET_CIFAR10, true, "part", DDP_ERR_FORMAT,
		"@/test_batch.bin has 30730001 bytes, but 10000 records of 3073 bytes are 30730000");
	put_batches("part", "");
	unlink(scratch("part/data_batch_4.bin"));
	open_bad(SET_CIFAR10, false, "part", DDP_ERR_FILE,
		 "@ has neither data_batch_4.bin nor cifar-10-batches-bin/data_batch_4.bin, which "
		 "training on CIFAR-10 needs");
	open_bad(
		SET_CIFAR100, false, "part", DDP_ERR_FILE,
		"@ has neither train.bin nor cifar-100-binary/train.bin, which training on CIFAR-100 "
		"needs");
	put("part", "test_batch.bin", bytes_new(0));
	open_bad(SET_CIFAR10, true, "part", DDP_ERR_FORMAT,
		 "@/test_batch.bin has 0 bytes, but 1 whole record of 3073 bytes are 3073");
	bytes = cifar_records(0, 3, 2);
	bytes.data[3074 + 1] = 100;
	put("part", "test.bin", bytes);
	open_bad(SET_CIFAR100, true, "part", DDP_ERR_FORMAT,
		 "@/test.bin has label 100 for image 1 (byte 3075), but labels are 0 to 99");
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
	static const char *const nothing[] = {"/nothing has no data set",
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
	put("both", "train-images-idx3-ubyte", bytes_new(5));
	put("both", "train.bin", bytes_new(5));
	ck_assert_int_eq(set_detect(scratch("both"), SET_MNIST, &error), SET_MNIST);
	ck_assert_int_eq(set_detect(scratch("both"), SET_CIFAR10, &error), SET_CIFAR100);
}

/* Packed sets, and the line that names the command that unpacks them. */
static const struct {
	const char *under, *name;
	enum set_kind kind;
	const char *want;
} packs[] = {
	{"gz", "train-images-idx3-ubyte.gz", SET_MNIST,
	 "@/train-images-idx3-ubyte.gz is compressed. Run gunzip -k @/*.gz"},
	{"gzraw", "MNIST/raw/train-images.idx3-ubyte.gz", SET_MNIST,
	 "@/MNIST/raw/train-images.idx3-ubyte.gz is compressed. Run gunzip -k @/MNIST/raw/*.gz"},
	{"bingz", "data_batch_1.bin.gz", SET_CIFAR10,
	 "@/data_batch_1.bin.gz is compressed. Run gunzip -k @/*.gz"},
	{"targz", "cifar-10-binary.tar.gz", SET_CIFAR10,
	 "@/cifar-10-binary.tar.gz is an archive. Run tar -xf @/cifar-10-binary.tar.gz -C @"},
	{"tar", "cifar-100-binary.tar", SET_CIFAR100,
	 "@/cifar-100-binary.tar is an archive. Run tar -xf @/cifar-100-binary.tar -C @"},
};

TEST_ROWS(test_packed, packs)
{
	const char *under = packs[_i].under;
	struct ddp_error error;

	put(under, packs[_i].name, bytes_new(5));
	ck_assert_int_eq(set_detect(scratch(under), SET_MNIST, &error), DDP_ERR_FILE);
	check_line(under, error.text, packs[_i].want);
	open_bad(packs[_i].kind, false, under, DDP_ERR_FILE, packs[_i].want);
}

/* --- Ranks ------------------------------------------------------------------------------ */

/* All ranks read the same set. */
static int read_together(int rank)
{
	static const char *const unders[] = {"rplain", "rten"};
	struct ddp *ddp = ranks_join();

	for (int i = 0; i < 2; i++) {
		struct set_options options = {.kind = i == 1 ? SET_CIFAR10 : SET_MNIST,
					      .directory = scratch(unders[i]),
					      .ddp = ddp};
		struct ddp_error error = {0, ""};
		struct set *set;

		if (set_open(&set, &options, &error) < 0) {
			fprintf(stderr, "rank %d: %s\n", rank, error.text);
			_exit(97);
		}
		RANK_CHECK(set_info(set)->samples == (i == 1 ? 15 : SAMPLES));
		for (uint64_t j = 0; j < set_info(set)->samples; j++) {
			RANK_CHECK(set_label(set, j) == (i == 1 ? (int)j % 10 : 9 - (int)j));
			for (size_t at = 0; at < IMAGE; at++)
				RANK_CHECK(set_image(set, j)[at] == pixel(j, at));
		}
		set_close(set);
	}
	ddp_destroy(ddp);
	return 0;
}

static const char *const layouts[] = {"2", "3", "2,1"};

TEST_ROWS(test_ranks_read, layouts)
{
	put("rplain", "train-images-idx3-ubyte", idx_images());
	put("rplain", "train-labels-idx1-ubyte", idx_labels());
	put_batches("rten", "");
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
	RANK_CHECK(strstr(error.text,
			  "/rbad/train-labels-idx1-ubyte has label 77 for image 0 (byte "
			  "8), but labels are 0 to 9"));
	/* the file is missing on all ranks, so the error names no rank */
	options.test = true;
	options.directory = scratch("rplain");
	RANK_CHECK(set_open(&set, &options, &error) == DDP_ERR_FILE);
	RANK_CHECK(strstr(error.text, "which testing on MNIST needs") &&
		   !strstr(error.text, "rank "));
	RANK_OK(ddp, ddp_barrier(ddp));
	ddp_destroy(ddp);
	return 0;
}

TEST_ROWS(test_ranks_fail, layouts)
{
	struct bytes labels = idx_labels();

	labels.data[8] = 77;
	put("rplain", "train-images-idx3-ubyte", idx_images());
	put("rplain", "train-labels-idx1-ubyte", idx_labels());
	put("rbad", "train-images-idx3-ubyte", idx_images());
	put("rbad", "train-labels-idx1-ubyte", labels);
	ranks_run(layouts[_i], fail_together);
}

UNIT_MAIN("files", scratch_use)
