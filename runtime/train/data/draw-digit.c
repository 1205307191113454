/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "dice.h"
#include "draw.h"
#include "glyphs.h"

enum { SIDE = DRAW_DIGIT, PIECES = 3, PATH_POINTS = GLYPH_POINTS * PIECES };

struct point {
	float x, y;
};

/* Points of one stroke, joined by lines. */
struct path {
	int count;
	struct point points[PATH_POINTS];
};

/* How this digit is bent: a linear map, and two waves that move points sideways. */
struct bend {
	float xx, xy, yx, yy;
	float depth[2], pitch[2], phase[2];
};

/* Squares of distances from the middle of each pixel to the nearest stroke. */
struct canvas {
	float square[SIDE][SIDE];
};

static float least(float a, float b)
{
	return a < b ? a : b;
}

static float most(float a, float b)
{
	return a > b ? a : b;
}

/* --- Strokes to points --------------------------------------------------------------------- */

/* A point of the curve through four points, between the second and the third. */
static struct point curve_point(const struct point p[4], float t)
{
	float a = t * (-0.5f + t * (1.0f - 0.5f * t));
	float b = 1.0f + t * t * (-2.5f + 1.5f * t);
	float c = t * (0.5f + t * (2.0f - 1.5f * t));
	float d = t * t * (-0.5f + 0.5f * t);

	return (struct point){a * p[0].x + b * p[1].x + c * p[2].x + d * p[3].x,
			      a * p[0].y + b * p[1].y + c * p[2].y + d * p[3].y};
}

static void path_curve(struct path *path, const struct point *points, int count)
{
	path->count = 0;
	for (int i = 0; i + 1 < count; i++) {
		struct point four[4] = {points[i ? i - 1 : 0], points[i], points[i + 1],
					points[i + 2 < count ? i + 2 : count - 1]};

		for (int piece = 0; piece < PIECES; piece++)
			path->points[path->count++] =
				curve_point(four, (float)piece / (float)PIECES);
	}
	path->points[path->count++] = points[count - 1];
}

/* The stroke as this writer's hand makes it: no two are alike. */
static void path_write(struct path *path, const struct glyph_stroke *stroke, struct dice *dice)
{
	struct point points[GLYPH_POINTS];

	for (int i = 0; i < stroke->count; i++) {
		points[i].x = (float)stroke->points[i][0] - 30 + dice_near(dice, -9, 9);
		points[i].y = (float)stroke->points[i][1] - 50 + dice_near(dice, -9, 9);
	}
	if (!stroke->straight) {
		path_curve(path, points, stroke->count);
		return;
	}
	path->count = stroke->count;
	memcpy(path->points, points, (size_t)stroke->count * sizeof(points[0]));
}

/* --- Bending ------------------------------------------------------------------------------- */

static struct bend bend_draw(struct dice *dice)
{
	float height = dice_near(dice, 0.13f, 0.215f),
	      width = height * dice_near(dice, 0.7f, 1.35f);
	float slant = dice_near(dice, -0.5f, 0.4f), tangent = dice_near(dice, -0.2f, 0.2f);
	float over = 1.0f / (1.0f + tangent * tangent);
	float cosine = (1.0f - tangent * tangent) * over, sine = 2.0f * tangent * over;
	struct bend bend;

	bend.xx = cosine * width;
	bend.xy = (slant * cosine - sine) * height;
	bend.yx = sine * width;
	bend.yy = (slant * sine + cosine) * height;
	for (int i = 0; i < 2; i++) {
		bend.depth[i] = dice_near(dice, -2.4f, 2.4f);
		bend.pitch[i] = dice_between(dice, 0.02f, 0.06f);
		bend.phase[i] = dice_between(dice, 0, 1);
	}
	return bend;
}

/* Nearly a sine; [turns] are not negative. */
static float wave(float turns)
{
	float t = turns - (float)(int)turns - 0.5f;

	return 16.0f * t * (0.5f - (t < 0 ? -t : t));
}

static struct point bend_point(const struct bend *bend, struct point p)
{
	struct point q = {bend->xx * p.x + bend->xy * p.y, bend->yx * p.x + bend->yy * p.y};
	float x = q.x + bend->depth[0] * wave(8.0f + bend->phase[0] + q.y * bend->pitch[0]);
	float y = q.y + bend->depth[1] * wave(8.0f + bend->phase[1] + q.x * bend->pitch[1]);

	return (struct point){x, y};
}

/* How far from the middle it may lie along one axis, whose half it takes is [half]. */
static float shift(struct dice *dice, float half, float room)
{
	float limit = least(3.5f, room - half);

	return (float)SIDE * 0.5f + dice_near(dice, -limit, limit);
}

/* Move what was written near the middle, and make it smaller where it would touch the edges. */
static void paths_place(struct path *paths, int count, float room, struct dice *dice)
{
	struct point low = {1e9f, 1e9f}, high = {-1e9f, -1e9f}, half;
	float scale, x, y;

	for (int i = 0; i < count; i++) {
		for (int j = 0; j < paths[i].count; j++) {
			struct point p = paths[i].points[j];

			low = (struct point){least(low.x, p.x), least(low.y, p.y)};
			high = (struct point){most(high.x, p.x), most(high.y, p.y)};
		}
	}
	half = (struct point){(high.x - low.x) * 0.5f, (high.y - low.y) * 0.5f};
	scale = least(1.0f, room / most(half.x, half.y));
	x = shift(dice, half.x * scale, room) - (low.x + half.x) * scale;
	y = shift(dice, half.y * scale, room) - (low.y + half.y) * scale;
	for (int i = 0; i < count; i++)
		for (int j = 0; j < paths[i].count; j++)
			paths[i].points[j] = (struct point){paths[i].points[j].x * scale + x,
							    paths[i].points[j].y * scale + y};
}

/* --- Ink ----------------------------------------------------------------------------------- */

static int clamp(int value, int low, int high)
{
	return value < low ? low : value > high ? high : value;
}

/* Columns are all visited: so many at once are no dearer than a few. */
static void canvas_line(struct canvas *canvas, struct point a, struct point b, float reach)
{
	float dx = b.x - a.x, dy = b.y - a.y, over = 1.0f / (dx * dx + dy * dy + 1e-6f);
	int first = clamp((int)(least(a.y, b.y) - reach - 0.5f), 0, SIDE - 1);
	int last = clamp((int)(most(a.y, b.y) + reach + 0.5f), 0, SIDE - 1);

	for (int row = first; row <= last; row++) {
		float *square = canvas->square[row];
		float y = (float)row + 0.5f - a.y;

		for (int column = 0; column < SIDE; column++) {
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

/* Pixels from distances: ink of [radius] with soft edges, over paper that is not quite black. */
static void canvas_ink(const struct canvas *canvas, float radius, struct dice *dice, uint8_t *image)
{
	const float *square = &canvas->square[0][0];
	float light = dice_between(dice, 170, 290), soft = dice_between(dice, 0.6f, 1.1f);
	float grain = dice_between(dice, 0, 0.25f), dust = dice_between(dice, 0, 40);
	float noise[SIDE * SIDE];

	for (uint32_t i = 0; i < SIDE * SIDE; i += 16) {
		uint32_t words[4];

		ddp_random(dice->seed, 0, dice->index, DICE_DIGIT_NOISE, i, words);
		for (uint32_t j = 0; j < 16; j++)
			noise[i + j] = (float)(words[j / 4] >> 8 * (j % 4) & 0xff) / 256.0f;
	}
	for (int i = 0; i < SIDE * SIDE; i++) {
		float ink = 0.5f + (radius - sqrtf(square[i])) * soft;
		float value;

		ink = ink < 0.0f ? 0.0f : ink;
		ink = ink > 1.0f ? 1.0f : ink;
		value = ink * light * (1.0f - grain * noise[i]) + (1.0f - ink) * dust * noise[i];
		image[i] = (uint8_t)least(value, 255.0f);
	}
}

void draw_digit(uint64_t seed, uint64_t index, uint8_t *image)
{
	const struct glyph_digit *digit = &glyph_digits[draw_label(seed, index, 10)];
	struct dice dice = dice_take(seed, index, DICE_DIGIT);
	const struct glyph *glyph = &digit->glyphs[dice_below(&dice, digit->variants)];
	struct bend bend = bend_draw(&dice);
	struct path paths[GLYPH_STROKES];
	float radius = dice_near(&dice, 0.5f, 1.9f);
	struct canvas canvas;
	int count = 0;

	for (; count < GLYPH_STROKES && glyph->strokes[count].count > 0; count++) {
		path_write(&paths[count], &glyph->strokes[count], &dice);
		for (int i = 0; i < paths[count].count; i++)
			paths[count].points[i] = bend_point(&bend, paths[count].points[i]);
	}
	paths_place(paths, count, 13.0f - radius, &dice);
	for (int i = 0; i < SIDE * SIDE; i++)
		canvas.square[i / SIDE][i % SIDE] = 1e4f;
	for (int i = 0; i < count; i++)
		for (int j = 0; j + 1 < paths[i].count; j++)
			canvas_line(&canvas, paths[i].points[j], paths[i].points[j + 1],
				    radius + 1.0f);
	canvas_ink(&canvas, radius, &dice, image);
}
