/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/draw.h"
#include "unit.h"

/* --- Labels ----------------------------------------------------------------------------- */

static const int class_counts[] = {1, 2, 10, 100};

/* Samples are drawn in blocks with one sample of each class, in random order. */
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
	int classes; /* number of classes of objects; 0: digits */
	size_t bytes;
	uint64_t sum; /* FNV-1a hash of the first images with seed 1 */
} kinds[] = {
	{"digits", 0, DIGIT_BYTES, 0xce6db9cf6abfad51},
	{"10 classes", 10, OBJECT_BYTES, 0xd1629cfcae4fe033},
	{"100 classes", 100, OBJECT_BYTES, 0xac8cec499b04b2a6},
};

static void draw(int kind, uint64_t seed, uint64_t index, uint8_t *image)
{
	if (kinds[kind].classes == 0)
		draw_digit(seed, index, image);
	else
		draw_object(seed, index, kinds[kind].classes, image);
}

/* Every compiler and instruction set gives the same bytes. */
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

UNIT_MAIN("draw", NULL)
