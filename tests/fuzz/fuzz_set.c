/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_set.c - a data set's file of any bytes. Either the file is rejected with a message, or all
 * samples of the set can be read
 */
#include "config.h"

#include <sys/mman.h>
#include <unistd.h>

#include "data/set.h"
#include "fuzz.h"

enum { SAMPLES = 2, LABELS = 5 }; /* numbers of images and labels in the corpus */

static char directory[] = "/tmp/fuzz-set-XXXXXX";

/* The input is the file [name]. The other file of the set is valid. */
static const struct {
	enum set_kind kind;
	bool test;
	const char *name, *other;
	uint32_t count; /* number of labels or images in the valid file */
} ways[] = {
	{SET_MNIST, false, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", SAMPLES},
	{SET_MNIST, true, "t10k-labels-idx1-ubyte", "t10k-images-idx3-ubyte", LABELS},
	{SET_CIFAR10, true, "test_batch.bin", NULL, 0},
	{SET_CIFAR100, true, "test.bin", NULL, 0},
};

enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static void clean(void)
{
	for (int i = 0; i < WAYS; i++) {
		unlink(path_of(ways[i].name));
		if (ways[i].other)
			unlink(path_of(ways[i].other));
	}
	rmdir(directory);
}

static void put_good(const char *name, uint32_t count)
{
	static uint8_t bytes[16 + LABELS * 784] = {0, 0, 8, 1,	0, 0, 0, 0,
						   0, 0, 0, 28, 0, 0, 0, 28};
	bool images = strstr(name, "images");
	size_t size = images ? 16 + count * 784 : 8 + count;
	FILE *file = fopen(path_of(name), "w");

	bytes[3] = images ? 3 : 1;
	bytes[7] = (uint8_t)count;
	bytes[11] = images ? 28 : 0; /* the fourth label; in a file of images, the height */
	HOLDS(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

/* Creates a file in memory, and links with the tested names to it. */
static int prepare(void)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	char path[64];

	HOLDS(fd >= 0 && mkdtemp(directory) && atexit(clean) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (int i = 0; i < WAYS; i++) {
		HOLDS(symlink(path, path_of(ways[i].name)) == 0);
		if (ways[i].other)
			put_good(ways[i].other, ways[i].count);
	}
	return fd;
}

static void check(int way)
{
	struct set_options options = {
		.kind = ways[way].kind, .test = ways[way].test, .directory = directory};
	struct ddp_error error = {0, ""};
	const struct set_info *info;
	uint64_t sum = 0;
	struct set *set;
	int status = set_open(&set, &options, &error);

	if (status < 0) {
		HOLDS(!set && status == error.status && error.text[0]);
		return;
	}
	info = set_info(set);
	HOLDS(error.text[0] == '\0' && info->samples > 0);
	HOLDS(ways[way].count == 0 || info->samples == ways[way].count);
	for (uint64_t i = 0; i < info->samples; i++) {
		const uint8_t *image = set_image(set, i);

		HOLDS(set_label(set, i) >= 0 && set_label(set, i) < info->classes);
		for (int j = 0; j < info->channels * info->height * info->width; j++)
			sum += image[j];
	}
	HOLDS(sum <= info->samples * 3072 * 255);
	set_close(set);
}

/* --- Stubs of libddp's functions, which are not linked: a world of one rank ---------------- */

static char agreed[DDP_ERROR_SIZE];

int ddp_all_gather(struct ddp *ddp, const void *in, void *out, size_t bytes)
{
	(void)ddp;
	memcpy(out, in, bytes);
	return 0;
}

int ddp_agree(struct ddp *ddp, int status, const char *text)
{
	(void)ddp;
	snprintf(agreed, sizeof(agreed), "%s", status < 0 ? text : "");
	return status;
}

int ddp_shared_create(struct ddp *ddp, size_t bytes, void **memory)
{
	(void)ddp, (void)bytes, (void)memory;
	abort();
}

void ddp_abort(struct ddp *ddp, const char *format, ...)
{
	(void)ddp, (void)format;
	abort();
}

const struct ddp_world *ddp_world(const struct ddp *ddp)
{
	static const struct ddp_world world = {.size = 1, .host = "host"};

	(void)ddp;
	return &world;
}

const char *ddp_error(const struct ddp *ddp)
{
	(void)ddp;
	return agreed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;

	if (fd < 0)
		fd = prepare();
	HOLDS(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
	for (int i = 0; i < WAYS; i++)
		check(i);
	return 0;
}
