/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/batch.h"
#include "ranks.h"

enum { SAMPLES = 64, ROOM = 3 * 32 * 32 };

static const struct net digits = {
	.channels = 1, .height = 28, .width = 28, .mean = {0.1307f}, .deviation = {0.3081f}};
static const struct net objects = {.channels = 3,
				   .height = 32,
				   .width = 32,
				   .mean = {0.4914f, 0.4822f, 0.4465f},
				   .deviation = {0.2470f, 0.2435f, 0.2616f},
				   .pad = 4,
				   .flip = true};

static struct set *open_set(enum set_kind kind)
{
	struct set_options options = {
		.kind = kind, .samples = SAMPLES, .seed = 3, .ddp = ranks_alone()};
	struct ddp_error error;
	struct set *set;

	ck_assert_msg(set_open(&set, &options, &error) == 0, "%s", error.text);
	return set;
}

static uint16_t rounded(float value)
{
	uint32_t bits, below;

	memcpy(&bits, &value, sizeof(bits));
	below = bits & 0xffff;
	bits >>= 16;
	return (uint16_t)(bits + (below > 0x8000 || (below == 0x8000 && bits & 1)));
}

/* --- Crops ------------------------------------------------------------------------------ */

/* Returns the byte at (y, x) that the image must have after padding, cropping and mirroring. */
static uint8_t expected(const struct net *net, const uint8_t *image, struct batch_crop crop,
			int channel, int y, int x)
{
	int from_x = (crop.mirrored ? net->width - 1 - x : x) + crop.left, from_y = y + crop.top;

	if (from_x < 0 || from_x >= net->width || from_y < 0 || from_y >= net->height)
		return 0;
	return image[(channel * net->height + from_y) * net->width + from_x];
}

static void check_image(const struct net *net, const uint8_t *image, struct batch_crop crop,
			const float *f32, const uint16_t *bf16)
{
	for (int y = 0; y < net->height; y++) {
		for (int x = 0; x < net->width; x++) {
			for (int c = 0; c < net->channels; c++) {
				int at = (y * net->width + x) * net->channels + c;
				float want = (float)expected(net, image, crop, c, y, x) / 255.0f;

				want = (want - net->mean[c]) / net->deviation[c];
				ck_assert_msg(f32[at] == want && bf16[at] == rounded(want),
					      "crop %d %d %d: %a at %d %d %d, want %a", crop.top,
					      crop.left, crop.mirrored, (double)f32[at], c, y, x,
					      (double)want);
			}
		}
	}
}

/* Compares every possible crop, in both types, with the corresponding part of the padded image. */
TEST(test_crops)
{
	enum { COUNT = 1200, PLACES = 9 * 9 * 2 };
	struct set *set = open_set(SET_CIFAR10);
	uint64_t index, order;
	struct batch batch = {.indices = &index,
			      .orders = &order,
			      .count = 1,
			      .seed = 5,
			      .epoch = 2,
			      .augment = true};
	static float f32[ROOM];
	static uint16_t bf16[ROOM];
	bool seen[9][9][2] = {{{false}}};
	int places = 0;

	for (order = 0; order < COUNT; order++) {
		struct batch_crop crop = batch_crop(&objects, &batch, 0);
		bool *place;

		ck_assert(abs(crop.top) <= 4 && abs(crop.left) <= 4);
		place = &seen[crop.top + 4][crop.left + 4][crop.mirrored];
		if (*place)
			continue;
		*place = true;
		places++;
		index = order % SAMPLES;
		batch_images(&objects, set, &batch, f32, DDP_F32);
		batch_images(&objects, set, &batch, bf16, DDP_BF16);
		check_image(&objects, set_image(set, index), crop, f32, bf16);
	}
	/* Each of the 162 crops is missing with probability 1/1700, so only few may be missing. */
	ck_assert_int_ge(places, PLACES - 4);
	set_close(set);
}

/*
 * The crop of a sample depends on seed, epoch and order. It does not depend on the batch or index.
 */
TEST(test_random)
{
	uint64_t indices[2] = {7, 9}, orders[2] = {100, 101};
	struct batch batch = {indices, orders, 2, 1, 4, true}, other;
	struct batch_crop one, two;
	int differ[3] = {0};

	for (int i = 0; i < 200; i++, orders[1]++) {
		one = batch_crop(&objects, &batch, 1);
		other = (struct batch){&indices[0], &orders[1], 1, 1, 4, true};
		two = batch_crop(&objects, &other, 0);
		ck_assert(one.top == two.top && one.left == two.left &&
			  one.mirrored == two.mirrored);
		for (int what = 0; what < 3; what++) {
			other = batch;
			other.seed += what == 0;
			other.epoch += what == 1;
			two = batch_crop(&objects, &other, what == 2 ? 0 : 1);
			differ[what] += one.top != two.top || one.left != two.left ||
					one.mirrored != two.mirrored;
		}
	}
	for (int what = 0; what < 3; what++)
		ck_assert_int_gt(differ[what], 150);
}

/* Images stay unchanged without the augment option, and for networks without augmentation. */
TEST(test_plain)
{
	uint64_t index = 3, order = 8;
	struct batch batch = {&index, &order, 1, 1, 1, false};
	struct batch_crop crop = batch_crop(&objects, &batch, 0);

	ck_assert(crop.top == 0 && crop.left == 0 && !crop.mirrored);
	batch.augment = true;
	crop = batch_crop(&digits, &batch, 0);
	ck_assert(crop.top == 0 && crop.left == 0 && !crop.mirrored);
}

TEST(test_order)
{
	static const struct batch_crop whole = {0, 0, false};
	struct set *set = open_set(SET_MNIST);
	uint64_t indices[3] = {9, 0, 63}, orders[3] = {0, 1, 2};
	struct batch batch = {indices, orders, 3, 1, 0, true};
	static float f32[3][784];
	static uint16_t bf16[3][784];
	int32_t labels[3];

	batch_images(&digits, set, &batch, f32, DDP_F32);
	batch_images(&digits, set, &batch, bf16, DDP_BF16);
	batch_labels(set, &batch, labels);
	for (int i = 0; i < 3; i++) {
		check_image(&digits, set_image(set, indices[i]), whole, f32[i], bf16[i]);
		ck_assert_int_eq(labels[i], set_label(set, indices[i]));
	}
	set_close(set);
}

UNIT_MAIN("batch", NULL)
