/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/draw.h"
#include "unit.h"

/* --- Labels ----------------------------------------------------------------------------- */

static const int class_counts[] = {1, 2, 10, 100};

/* Each block of as many samples as classes has every class once, in an order of its own. */
TEST_ROWS(test_labels, class_counts)
{
	int classes = class_counts[_i], moved = 0;
	uint8_t labels[DRAW_CLASSES];

	for (uint64_t block = 0; block < 50; block++) {
		bool seen[DRAW_CLASSES] = {false};

		draw_labels(11, block, classes, labels);
		for (int i = 0; i < classes; i++) {
			int label =
				draw_label(11, block * (uint64_t)classes + (uint64_t)i, classes);

			ck_assert_int_eq(labels[i], label);
			ck_assert(label >= 0 && label < classes && !seen[label]);
			seen[label] = true;
			moved += label != i;
		}
	}
	ck_assert_int_ge(moved, 50 * (classes - 1) / 3);
}

/* --- Images ----------------------------------------------------------------------------- */

enum { DIGIT_BYTES = DRAW_DIGIT * DRAW_DIGIT, OBJECT_BYTES = 3 * DRAW_OBJECT * DRAW_OBJECT };

static const struct {
	const char *name;
	int classes; /* of objects; 0: digits */
	size_t bytes;
	uint64_t sum; /* of the first images of seed 1, FNV-1a */
} kinds[] = {
	{"digits", 0, DIGIT_BYTES, 0x528f350d6ac1fa97},
	{"10 classes", 10, OBJECT_BYTES, 0x193a0bd419ad91b2},
	{"100 classes", 100, OBJECT_BYTES, 0x74bb7c5e84e07d7e},
};

static void draw(int kind, uint64_t seed, uint64_t index, uint8_t *image)
{
	if (kinds[kind].classes == 0)
		draw_digit(seed, index, image);
	else
		draw_object(seed, index, kinds[kind].classes, image);
}

/* The same bytes with every compiler and instruction set. */
TEST_ROWS(test_bytes, kinds)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325);
	uint8_t image[OBJECT_BYTES];

	for (uint64_t index = 0; index < 300; index++) {
		draw(_i, 1, index, image);
		for (size_t i = 0; i < kinds[_i].bytes; i++)
			sum = (sum ^ image[i]) * UINT64_C(0x100000001b3);
	}
	ck_assert_msg(sum == kinds[_i].sum, "%s: the images have sum %#llx, want %#llx",
		      kinds[_i].name, (unsigned long long)sum, (unsigned long long)kinds[_i].sum);
}

/* A function of seed and index: the same again, whatever was drawn between; else another. */
TEST_ROWS(test_pure, kinds)
{
	uint8_t first[OBJECT_BYTES + 1], again[OBJECT_BYTES + 1];
	size_t bytes = kinds[_i].bytes;

	first[bytes] = again[bytes] = 0xa5;
	draw(_i, 7, 40, first);
	for (int other = 0; other < 3; other++) {
		draw(_i, other == 1 ? 8 : 7, other == 2 ? UINT64_C(1) << 33 : 41, again);
		ck_assert(memcmp(first, again, bytes) != 0);
	}
	draw(_i, 7, 40, again);
	ck_assert_mem_eq(first, again, bytes + 1);
}

/* Pixels have the mean and deviation that the networks' tables expect, or nearly. */
TEST_ROWS(test_levels, kinds)
{
	double mean = 0, square = 0, count = 400.0 * (double)kinds[_i].bytes;
	uint8_t image[OBJECT_BYTES];

	for (uint64_t index = 0; index < 400; index++) {
		draw(_i, 5, index, image);
		for (size_t i = 0; i < kinds[_i].bytes; i++) {
			mean += image[i] / 255.0 / count;
			square += image[i] / 255.0 * image[i] / 255.0 / count;
		}
	}
	square -= mean * mean;
	if (kinds[_i].classes == 0)
		ck_assert(mean > 0.09 && mean < 0.17 && square > 0.03 && square < 0.12);
	else
		ck_assert(mean > 0.40 && mean < 0.55 && square > 0.03 && square < 0.08);
}

/*
 * A digit stays in its image: the outermost pixels are dark, and there is ink of one piece in the
 * middle.
 */
TEST(test_margin)
{
	uint8_t image[DIGIT_BYTES];

	for (uint64_t index = 0; index < 2000; index++) {
		int ink = 0, beyond = 0; /* looked at once: an assertion costs a write to a pipe */

		draw_digit(3, index, image);
		for (int i = 0; i < DIGIT_BYTES; i++) {
			int y = i / DRAW_DIGIT, x = i % DRAW_DIGIT;
			bool edge = y == 0 || x == 0 || y == DRAW_DIGIT - 1 || x == DRAW_DIGIT - 1;

			ink += image[i] > 100;
			beyond += edge && image[i] >= 60;
		}
		ck_assert_msg(beyond == 0, "digit %d: %d pixels at its edge", (int)index, beyond);
		ck_assert_msg(ink >= 15 && ink < 330, "digit %d: %d pixels of ink", (int)index,
			      ink);
	}
}

UNIT_MAIN("draw", NULL)
