/* SPDX-License-Identifier: Apache-2.0 */
/* draw.c - draw synthetic digits and objects, and their labels */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ddp.h"
#include "draw.h"

/* --- Random numbers ------------------------------------------------------------------------ */

/* values of ddp_random()'s argument [layer], distinct from those of networks and batches */
enum { LABELS = 0x20000, DIGIT, DIGIT_NOISE, OBJECT, OBJECT_NOISE, OBJECT_PATTERN };

/* A stream of random numbers for (seed, index, layer). */
struct dice {
	uint64_t seed, index;
	uint32_t layer, block;
	uint32_t words[4];
	unsigned left;
};

static uint32_t dice_word(struct dice *dice)
{
	if (dice->left == 0) {
		ddp_random(dice->seed, 0, dice->index, dice->layer, dice->block++, dice->words);
		dice->left = 4;
	}
	return dice->words[--dice->left];
}

/* Returns a random integer from 0 to [limit] - 1. */
static int dice_below(struct dice *dice, int limit)
{
	return (int)(((uint64_t)dice_word(dice) * (uint64_t)limit) >> 32);
}

/* Returns a random number between [low] and [high] with a uniform distribution. */
static float dice_between(struct dice *dice, float low, float high)
{
	return low + (high - low) * ddp_random_uniform(dice_word(dice));
}

/* Returns a random number between [low] and [high] with a triangular distribution. */
static float dice_near(struct dice *dice, float low, float high)
{
	float sum = ddp_random_uniform(dice_word(dice)) + ddp_random_uniform(dice_word(dice));

	return low + (high - low) * 0.5f * sum;
}

/*
 * Writes [count] random bytes. [count] must be a multiple of 16. The bytes are drawn with a [layer]
 * of their own and not from the words of [dice], so that each call of ddp_random() gives 16 bytes.
 */
static void dice_noise(const struct dice *dice, uint32_t layer, uint8_t *noise, uint32_t count)
{
	for (uint32_t i = 0; i < count; i += 16) {
		uint32_t words[4];

		ddp_random(dice->seed, 0, dice->index, layer, i, words);
		for (uint32_t j = 0; j < 16; j++)
			noise[i + j] = (uint8_t)(words[j / 4] >> 8 * (j % 4));
	}
}

/* --- Labels -------------------------------------------------------------------------------- */

void draw_labels(uint64_t seed, uint64_t block, int classes, uint8_t *labels)
{
	struct dice dice = {.seed = seed, .index = block, .layer = LABELS};

	for (int i = 0; i < classes; i++) {
		int other = dice_below(&dice, i + 1);

		labels[i] = labels[other];
		labels[other] = (uint8_t)i;
	}
}

int draw_label(uint64_t seed, uint64_t index, int classes)
{
	uint8_t labels[DRAW_CLASSES] = {0};

	draw_labels(seed, index / (uint64_t)classes, classes, labels);
	return labels[index % (uint64_t)classes];
}

/* --- Digits -------------------------------------------------------------------------------- */

enum { VARIANTS = 3, STROKES = 3 };

/*
 * Handwritten shapes of the ten digits. A shape has up to three strokes, and a stroke is a list of
 * points that lines connect. x is 0 to 60, y is 0 (top) to 100.
 */
static const char *const glyphs[10][VARIANTS][STROKES] = {
	{{"30,0 9,16 0,50 9,84 30,100 51,84 60,50 51,16 30,0"},
	 {"42,6 18,4 2,36 4,78 26,99 50,84 60,46 50,10 28,6"}},
	{{"30,0 30,100"}, {"12,22 32,0 32,100"}, {"12,20 32,0 32,100", "10,100 54,100"}},
	{{"4,24 14,6 34,0 54,14 52,36 32,66 3,98", "3,98 60,98"},
	 {"4,18 22,2 46,6 54,28 40,60 14,92 4,92 12,80 34,92 62,96"}},
	{{"6,10 28,0 50,11 47,33 22,46", "22,46 52,56 58,79 34,100 2,88"},
	 {"6,2 54,2 24,42", "24,42 53,52 57,80 30,100 2,88"}},
	{{"14,2 4,56 60,54", "46,10 42,100"}, {"44,100 44,0 0,66 62,66"}},
	{{"54,2 14,2 10,44", "10,44 36,38 57,56 53,84 28,100 2,90"},
	 {"18,6 10,42 36,44 54,62 48,88 24,100 2,92", "18,6 60,0"}},
	{{"46,0 20,20 4,52 6,84 28,100 50,88 51,65 30,53 7,66"},
	 {"34,0 12,36 2,72 18,98 44,94 50,70 32,57 5,76"}},
	{{"3,4 58,4 24,100"},
	 {"3,4 58,4 24,100", "16,50 56,48"},
	 {"3,16 14,6 36,8 57,2 38,44 26,100"}},
	{{"30,46 9,32 9,10 30,0 51,10 51,30 30,46 6,66 7,91 30,100 54,91 54,66 30,46"},
	 {"50,12 28,0 9,14 20,40 46,60 52,86 28,100 7,86 16,62 42,38 50,12"}},
	{{"52,28 40,47 16,46 6,24 20,4 44,4 52,26", "52,26 50,100"},
	 {"53,26 38,47 15,44 6,22 22,3 46,6 54,30 50,72 34,102"},
	 {"52,28 40,47 16,46 6,24 20,4 44,4 54,28 54,68 38,97 10,94"}},
};

struct point {
	float x, y;
};

/* Affine map from the coordinates of a glyph, relative to its middle, to pixels. */
struct map {
	float xx, xy, x, yx, yy, y;
};

static struct map map_draw(struct dice *dice)
{
	float height = dice_near(dice, 0.13f, 0.215f);
	float width = height * dice_near(dice, 0.7f, 1.35f);
	struct map map;

	map.xx = width;
	map.xy = height * dice_near(dice, -0.7f, 0.6f);
	map.yx = width * dice_near(dice, -0.3f, 0.3f);
	map.yy = height;
	map.x = 0.5f * (float)DRAW_DIGIT + dice_near(dice, -3, 3);
	map.y = 0.5f * (float)DRAW_DIGIT + dice_near(dice, -3, 3);
	return map;
}

/* Squared distance of each pixel's centre from the nearest stroke. */
typedef float canvas[DRAW_DIGIT][DRAW_DIGIT];

/* Lowers each distance to that from the line between [a] and [b], if this is nearer. */
static void canvas_line(canvas squares, struct point a, struct point b)
{
	float dx = b.x - a.x, dy = b.y - a.y, over = 1.0f / (dx * dx + dy * dy + 1e-6f);

	for (int row = 0; row < DRAW_DIGIT; row++) {
		float *square = squares[row];
		float y = (float)row + 0.5f - a.y;

		for (int column = 0; column < DRAW_DIGIT; column++) {
			float x = (float)column + 0.5f - a.x;
			float t = (x * dx + y * dy) * over;
			float far, away;

			t = t < 0.0f ? 0.0f : t;
			t = t > 1.0f ? 1.0f : t;
			far = x - t * dx;
			away = y - t * dy;
			far = far * far + away * away;
			square[column] = far < square[column] ? far : square[column];
		}
	}
}

/* Draws [stroke] with random displacements of its points. */
static void canvas_stroke(canvas squares, const char *stroke, const struct map *map,
			  struct dice *dice)
{
	struct point last = {0, 0};
	char *next;

	for (const char *at = stroke; *at; at = next) {
		float x = (float)strtol(at, &next, 10) - 30 + dice_near(dice, -9, 9);
		float y = (float)strtol(next + 1, &next, 10) - 50 + dice_near(dice, -9, 9);
		struct point point = {map->xx * x + map->xy * y + map->x,
				      map->yx * x + map->yy * y + map->y};

		if (at != stroke)
			canvas_line(squares, last, point);
		last = point;
	}
}

/*
 * Converts distances to pixels. Lines have a random width and soft edges. The background is noisy
 * and nearly black.
 */
static void canvas_ink(canvas squares, struct dice *dice, uint8_t *image)
{
	const float *square = &squares[0][0];
	float radius = dice_near(dice, 0.5f, 1.9f);
	float light = dice_between(dice, 170, 290), soft = dice_between(dice, 0.6f, 1.1f);
	float grain = dice_between(dice, 0, 0.25f), dust = dice_between(dice, 0, 40);
	uint8_t noise[DRAW_DIGIT * DRAW_DIGIT];

	dice_noise(dice, DIGIT_NOISE, noise, sizeof(noise));
	for (int i = 0; i < DRAW_DIGIT * DRAW_DIGIT; i++) {
		float ink = 0.5f + (radius - sqrtf(square[i])) * soft;
		float dirt = (float)noise[i] / 256.0f, value;

		ink = ink < 0.0f ? 0.0f : ink;
		ink = ink > 1.0f ? 1.0f : ink;
		value = ink * light * (1.0f - grain * dirt) + (1.0f - ink) * dust * dirt;
		image[i] = (uint8_t)(value < 255.0f ? value : 255.0f);
	}
}

void draw_digit(uint64_t seed, uint64_t index, uint8_t *image)
{
	const char *const(*variants)[STROKES] = glyphs[draw_label(seed, index, 10)];
	const char *const *strokes;
	struct dice dice = {.seed = seed, .index = index, .layer = DIGIT};
	struct map map = map_draw(&dice);
	int choices = 0;
	canvas squares;

	while (choices < VARIANTS && variants[choices][0])
		choices++;
	strokes = variants[dice_below(&dice, choices)];
	for (int i = 0; i < DRAW_DIGIT * DRAW_DIGIT; i++)
		squares[i / DRAW_DIGIT][i % DRAW_DIGIT] = 1e4f;
	for (int i = 0; i < STROKES && strokes[i]; i++)
		canvas_stroke(squares, strokes[i], &map, &dice);
	canvas_ink(squares, &dice, image);
}

/* --- Objects ------------------------------------------------------------------------------- */

enum { COLORS = 3, CELLS = 4, CELL = DRAW_OBJECT / CELLS };

/*
 * The contrast can be positive or negative, so that all classes have the same mean image, and a
 * linear model is not accurate. The largest contrast and the share of the noise add up to 1, so
 * that all values fit in a byte.
 */
void draw_object(uint64_t seed, uint64_t index, int classes, uint8_t *image)
{
	const float strongest = 0.7f;
	struct dice dice = {.seed = seed, .index = index, .layer = OBJECT};
	/* The pattern of a class does not depend on the seed. */
	struct dice class = {.index = (uint64_t)draw_label(seed, index, classes)};
	uint8_t pattern[COLORS][CELLS][CELLS];
	int right = dice_below(&dice, DRAW_OBJECT), down = dice_below(&dice, DRAW_OBJECT);
	float contrast = dice_between(&dice, -strongest, strongest);

	dice_noise(&class, OBJECT_PATTERN, &pattern[0][0][0], sizeof(pattern));
	dice_noise(&dice, OBJECT_NOISE, image, COLORS * DRAW_OBJECT * DRAW_OBJECT);
	for (int i = 0; i < COLORS * DRAW_OBJECT * DRAW_OBJECT; i++) {
		int x = (i + right) % DRAW_OBJECT, y = (i / DRAW_OBJECT + down) % DRAW_OBJECT;
		int shade = pattern[i / DRAW_OBJECT / DRAW_OBJECT][y / CELL][x / CELL];
		float value = contrast * ((float)shade - 127.5f) +
			      (1.0f - strongest) * ((float)image[i] - 127.5f);

		image[i] = (uint8_t)(128.0f + value);
	}
}
