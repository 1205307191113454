/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/draw.h"
#include "data/set.h"
#include "ranks.h"

/* --- Synthetic sets --------------------------------------------------------------------- */

static const struct {
	const char *name;
	struct set_options options;
	struct set_info info;
} drawn[] = {
	{"digits", {.kind = SET_MNIST, .seed = 1}, {"60,000 drawn digits", 1, 28, 28, 10, 60000}},
	{"digits to test",
	 {.kind = SET_MNIST, .test = true},
	 {"10,000 drawn digits", 1, 28, 28, 10, 10000}},
	{"objects", {.kind = SET_CIFAR10}, {"50,000 drawn objects", 3, 32, 32, 10, 50000}},
	{"objects to test",
	 {.kind = SET_CIFAR10, .test = true},
	 {"10,000 drawn objects", 3, 32, 32, 10, 10000}},
	{"100 classes", {.kind = SET_CIFAR100}, {"50,000 drawn objects", 3, 32, 32, 100, 50000}},
	{"few", {.kind = SET_CIFAR100, .samples = 7}, {"7 drawn objects", 3, 32, 32, 100, 7}},
};

static struct set *open_set(const struct set_options *options)
{
	struct set_options alone = *options;
	struct ddp_error error;
	struct set *set;

	alone.ddp = ranks_alone();
	ck_assert_msg(set_open(&set, &alone, &error) == 0, "%s", error.text);
	return set;
}

static void check_info(const char *name, const struct set *set, const struct set_info *want)
{
	const struct set_info *got = set_info(set);

	unit_text(name, "title", got->title, want->title);
	unit_number(name, "channels", got->channels, want->channels);
	unit_number(name, "height", got->height, want->height);
	unit_number(name, "width", got->width, want->width);
	unit_number(name, "classes", got->classes, want->classes);
	unit_number(name, "samples", (int64_t)got->samples, (int64_t)want->samples);
}

TEST_ROWS(test_drawn_info, drawn)
{
	struct set *set = open_set(&drawn[_i].options);

	check_info(drawn[_i].name, set, &drawn[_i].info);
	set_close(set);
}

/*
 * An image depends on seed and index only, not on the order of access. Its address does not change.
 */
TEST_ROWS(test_drawn_images, drawn)
{
	struct set_options options = {.kind = drawn[_i].options.kind, .samples = 50, .seed = 9};
	int classes = drawn[_i].info.classes;
	struct set *set = open_set(&options);
	uint8_t want[3 * DRAW_OBJECT * DRAW_OBJECT];
	size_t bytes = options.kind == SET_MNIST ? 784 : sizeof(want);

	for (uint64_t i = 0; i < 100; i++) {
		uint64_t index = (i * 37 + 11) % 50;
		const uint8_t *image = set_image(set, index);

		if (options.kind == SET_MNIST)
			draw_digit(9, index, want);
		else
			draw_object(9, index, classes, want);
		ck_assert_mem_eq(image, want, bytes);
		ck_assert_ptr_eq(set_image(set, index), image);
		ck_assert_int_eq(set_label(set, index), draw_label(9, index, classes));
	}
	set_close(set);
}

/* No test image equals a training image. */
TEST(test_drawn_streams)
{
	struct set_options options = {.kind = SET_MNIST, .samples = 20, .seed = 4};
	struct set *train = open_set(&options), *test;

	options.test = true;
	test = open_set(&options);
	for (uint64_t i = 0; i < 20; i++)
		for (uint64_t j = 0; j < 20; j++)
			ck_assert(memcmp(set_image(train, i), set_image(test, j), 784) != 0);
	set_close(train);
	set_close(test);
}

/* --- Ranks ------------------------------------------------------------------------------ */

/*
 * The ranks of a node draw images into shared memory, in different orders. All ranks see the same
 * images as a rank that draws alone.
 */
static int draw_together(int rank)
{
	struct ddp *ddp = ranks_join();
	struct set_options options = {.kind = SET_MNIST, .samples = 300, .seed = 6, .ddp = ddp};
	struct ddp_error error;
	struct set *set;
	uint8_t want[784];

	RANK_CHECK(set_open(&set, &options, &error) == 0);
	for (uint64_t i = 0; i < 300; i++)
		set_image(set, rank % 2 ? 299 - i : i);
	for (uint64_t i = 0; i < 300; i++) {
		draw_digit(6, i, want);
		RANK_CHECK(memcmp(set_image(set, i), want, sizeof(want)) == 0);
	}
	set_close(set);
	ddp_destroy(ddp);
	return 0;
}

static const char *const layouts[] = {"1", "2", "2,1"};

TEST_ROWS(test_ranks_draw, layouts)
{
	ranks_run(layouts[_i], draw_together);
}

/* If the ranks' options differ, they get an error. */
static int draw_apart(int rank)
{
	struct ddp *ddp = ranks_join();
	struct set_options options = {.samples = rank == 1 ? 300 : 200, .ddp = ddp};
	struct ddp_error error;
	struct set *set;

	RANK_CHECK(set_open(&set, &options, &error) == DDP_ERR_MISMATCH);
	RANK_CHECK(set == NULL);
	RANK_CHECK(strstr(error.text, " has 200 drawn images, but rank 1 on ") &&
		   strstr(error.text, " has 300. Give all ranks the same data."));
	ddp_destroy(ddp);
	return 0;
}

TEST(test_ranks_differ)
{
	ranks_run("3", draw_apart);
}

UNIT_MAIN("set", NULL)
