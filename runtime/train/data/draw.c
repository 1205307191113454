/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ddp.h"
#include "draw.h"

/* --- Random numbers ------------------------------------------------------------------------ */

/* layer numbers of ddp_random() used here, distinct from those of networks and batches */
enum { LABELS = 0x20000, DIGIT, DIGIT_NOISE, OBJECT, OBJECT_NOISE };

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

/* An integer from 0 to [limit] - 1. */
static int dice_below(struct dice *dice, int limit)
{
	return (int)(((uint64_t)dice_word(dice) * (uint64_t)limit) >> 32);
}

/* Uniformly distributed between [low] and [high]. */
static float dice_between(struct dice *dice, float low, float high)
{
	return low + (high - low) * ddp_random_uniform(dice_word(dice));
}

/* Between [low] and [high] with a triangular distribution. */
static float dice_near(struct dice *dice, float low, float high)
{
	float sum = ddp_random_uniform(dice_word(dice)) + ddp_random_uniform(dice_word(dice));

	return low + (high - low) * 0.5f * sum;
}

/*
 * Random bytes for the image's pixels. They have a [layer] of their own, so that each call of
 * ddp_random() gives 16 bytes.
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

static float least(float a, float b)
{
	return a < b ? a : b;
}

static float most(float a, float b)
{
	return a > b ? a : b;
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

/* --- Digits: strokes ----------------------------------------------------------------------- */

enum { VARIANTS = 3, STROKES = 3, POINTS = 14, PIECES = 3 };

/*
 * Handwritten shapes of the ten digits, as strokes. x is 0 to 60, y is 0 (top) to 100. "~": a curve
 * through the points; "-": lines between the points.
 */
static const char *const glyphs[10][VARIANTS][STROKES] = {
	{{"~ 30,0 9,16 0,50 9,84 30,100 51,84 60,50 51,16 30,0"},
	 {"~ 42,6 18,4 2,36 4,78 26,99 50,84 60,46 50,10 28,6"}},
	{{"- 30,0 30,100"}, {"- 12,22 32,0 32,100"}, {"- 12,20 32,0 32,100", "- 10,100 54,100"}},
	{{"~ 4,24 14,6 34,0 54,14 52,36 32,66 3,98", "- 3,98 60,98"},
	 {"~ 4,18 22,2 46,6 54,28 40,60 14,92 4,92 12,80 34,92 62,96"}},
	{{"~ 6,10 28,0 50,11 47,33 22,46", "~ 22,46 52,56 58,79 34,100 2,88"},
	 {"- 6,2 54,2 24,42", "~ 24,42 53,52 57,80 30,100 2,88"}},
	{{"- 14,2 4,56 60,54", "- 46,10 42,100"}, {"- 44,100 44,0 0,66 62,66"}},
	{{"- 54,2 14,2 10,44", "~ 10,44 36,38 57,56 53,84 28,100 2,90"},
	 {"~ 18,6 10,42 36,44 54,62 48,88 24,100 2,92", "- 18,6 60,0"}},
	{{"~ 46,0 20,20 4,52 6,84 28,100 50,88 51,65 30,53 7,66"},
	 {"~ 34,0 12,36 2,72 18,98 44,94 50,70 32,57 5,76"}},
	{{"- 3,4 58,4 24,100"},
	 {"- 3,4 58,4 24,100", "- 16,50 56,48"},
	 {"~ 3,16 14,6 36,8 57,2 38,44 26,100"}},
	{{"~ 30,46 9,32 9,10 30,0 51,10 51,30 30,46 6,66 7,91 30,100 54,91 54,66 30,46"},
	 {"~ 50,12 28,0 9,14 20,40 46,60 52,86 28,100 7,86 16,62 42,38 50,12"}},
	{{"~ 52,28 40,47 16,46 6,24 20,4 44,4 52,26", "- 52,26 50,100"},
	 {"~ 53,26 38,47 15,44 6,22 22,3 46,6 54,30 50,72 34,102"},
	 {"~ 52,28 40,47 16,46 6,24 20,4 44,4 54,28 54,68 38,97 10,94"}},
};

struct point {
	float x, y;
};

/* A stroke as a sequence of lines between points. */
struct path {
	int count;
	struct point points[POINTS * PIECES];
};

/* Distortion of a digit: a linear map, and two waves that displace points. */
struct bend {
	float xx, xy, yx, yy;
	float depth[2], pitch[2], phase[2];
};

/* A point between p[1] and p[2] on a Catmull-Rom curve. */
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

/* Writes [stroke] with random displacements of its points. */
static void path_write(struct path *path, const char *stroke, struct dice *dice)
{
	struct point points[POINTS];
	int count = 0;
	char *next;

	for (const char *at = stroke + 1; *at; at = next, count++) {
		points[count].x = (float)strtol(at, &next, 10) - 30 + dice_near(dice, -9, 9);
		points[count].y = (float)strtol(next + 1, &next, 10) - 50 + dice_near(dice, -9, 9);
	}
	if (*stroke == '~') {
		path_curve(path, points, count);
		return;
	}
	path->count = count;
	memcpy(path->points, points, (size_t)count * sizeof(points[0]));
}

/* --- Digits: distortion -------------------------------------------------------------------- */

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

/* Approximates a sine with period 1. [turns] must not be negative. */
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

/*
 * Random position of the digit's middle on one axis. The digit extends [half] to both sides of the
 * middle.
 */
static float shift(struct dice *dice, float half, float space)
{
	float limit = least(3.5f, space - half);

	return (float)DRAW_DIGIT * 0.5f + dice_near(dice, -limit, limit);
}

/* Moves the digit near the centre, and shrinks it if it would touch the edges. */
static void paths_place(struct path *paths, int count, float space, struct dice *dice)
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
	scale = least(1.0f, space / most(half.x, half.y));
	x = shift(dice, half.x * scale, space) - (low.x + half.x) * scale;
	y = shift(dice, half.y * scale, space) - (low.y + half.y) * scale;
	for (int i = 0; i < count; i++)
		for (int j = 0; j < paths[i].count; j++)
			paths[i].points[j] = (struct point){paths[i].points[j].x * scale + x,
							    paths[i].points[j].y * scale + y};
}

/* --- Digits: pixels ------------------------------------------------------------------------ */

static int clamp(int value, int low, int high)
{
	return value < low ? low : value > high ? high : value;
}

/* Squared distance of each pixel's centre from the nearest stroke. */
typedef float canvas[DRAW_DIGIT][DRAW_DIGIT];

/*
 * Lowers each distance to that from the line between [a] and [b], if this is nearer. Visits all
 * columns, so that the loop is vectorised.
 */
static void canvas_line(canvas squares, struct point a, struct point b, float reach)
{
	float dx = b.x - a.x, dy = b.y - a.y, over = 1.0f / (dx * dx + dy * dy + 1e-6f);
	int first = clamp((int)(least(a.y, b.y) - reach - 0.5f), 0, DRAW_DIGIT - 1);
	int last = clamp((int)(most(a.y, b.y) + reach + 0.5f), 0, DRAW_DIGIT - 1);

	for (int row = first; row <= last; row++) {
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

/*
 * Converts distances to pixels: lines of [radius] with soft edges on a noisy, nearly black ground.
 */
static void canvas_ink(canvas squares, float radius, struct dice *dice, uint8_t *image)
{
	const float *square = &squares[0][0];
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
		image[i] = (uint8_t)least(value, 255.0f);
	}
}

void draw_digit(uint64_t seed, uint64_t index, uint8_t *image)
{
	const char *const(*variants)[STROKES] = glyphs[draw_label(seed, index, 10)];
	const char *const *strokes;
	struct dice dice = {.seed = seed, .index = index, .layer = DIGIT};
	int choices = 0, count = 0;
	struct path paths[STROKES];
	struct bend bend;
	canvas squares;
	float radius;

	while (choices < VARIANTS && variants[choices][0])
		choices++;
	strokes = variants[dice_below(&dice, choices)];
	bend = bend_draw(&dice);
	radius = dice_near(&dice, 0.5f, 1.9f);
	for (; count < STROKES && strokes[count]; count++) {
		path_write(&paths[count], strokes[count], &dice);
		for (int i = 0; i < paths[count].count; i++)
			paths[count].points[i] = bend_point(&bend, paths[count].points[i]);
	}
	paths_place(paths, count, 13.0f - radius, &dice);
	for (int i = 0; i < DRAW_DIGIT * DRAW_DIGIT; i++)
		squares[i / DRAW_DIGIT][i % DRAW_DIGIT] = 1e4f;
	for (int i = 0; i < count; i++)
		for (int j = 0; j + 1 < paths[i].count; j++)
			canvas_line(squares, paths[i].points[j], paths[i].points[j + 1],
				    radius + 1.0f);
	canvas_ink(squares, radius, &dice, image);
}

/* --- Objects: shapes ----------------------------------------------------------------------- */

enum { PLANE = DRAW_OBJECT * DRAW_OBJECT, COLORS = 3, KINDS = 10, CLUTTER = 3 };

struct color {
	float c[COLORS];
};

/* A rotated square of the image: its centre, and the change of (u, v) per pixel to the right. */
struct place {
	float x, y, right_u, right_v;
};

static float magnitude(float a)
{
	return a < 0 ? -a : a;
}

static float length(float u, float v)
{
	return sqrtf(u * u + v * v);
}

/* Distance of a point from the edge of shape [kind], of radius about 1; negative outside. */
static float shape(int kind, float u, float v)
{
	float a = magnitude(u), b = magnitude(v);

	switch (kind) {
	case 0: /* disc */
		return 0.85f - length(u, v);
	case 1: /* ring */
		return 0.2f - magnitude(length(u, v) - 0.75f);
	case 2: /* square */
		return 0.75f - most(a, b);
	case 3: /* triangle */
		return least(v + 0.55f, 0.5f * (0.95f - v) - 0.9f * a + 0.05f);
	case 4: /* cross */
		return most(least(0.95f - a, 0.26f - b), least(0.95f - b, 0.26f - a));
	case 5: /* crescent */
		return least(0.9f - length(u, v), length(u - 0.45f, v) - 0.68f);
	case 6: /* two discs */
		return 0.44f - length(a - 0.52f, v);
	case 7: /* two bars */
		return least(0.9f - a, 0.22f - magnitude(b - 0.5f));
	case 8: /* corner */
		return least(least(0.75f - a, 0.75f - b), most(-0.28f - u, -0.28f - v));
	default: /* four-pointed star */
		return 0.8f * (1.0f - sqrtf(a) - sqrtf(b)) + 0.08f;
	}
}

/* --- Objects: textures --------------------------------------------------------------------- */

/* A triangle wave with period 1, between 0 and 1. */
static float zigzag(float t)
{
	t -= (float)(int)(t + 64.0f) - 64.0f;
	return 2.0f * magnitude(t - 0.5f);
}

static float hard(float value)
{
	return value > 0.5f ? 1.0f : 0.0f;
}

/* Fraction of the second colour at a point of texture [kind]. */
static float texture(int kind, float u, float v, float inside)
{
	switch (kind) {
	case 0: /* plain */
		return 0.0f;
	case 1: /* wide stripes */
		return hard(zigzag(1.6f * u));
	case 2: /* fine stripes */
		return hard(zigzag(3.4f * v));
	case 3: /* checks */
		return hard(zigzag(1.3f * u)) != hard(zigzag(1.3f * v)) ? 1.0f : 0.0f;
	case 4: /* dots */
		return hard(0.22f + 0.5f * zigzag(2.0f * u) * zigzag(2.0f * v));
	case 5: /* gradient */
		return least(most(0.5f + 0.6f * u, 0.0f), 1.0f);
	case 6: /* rings */
		return hard(zigzag(2.2f * length(u, v)));
	case 7: /* outline */
		return inside < 0.12f ? 1.0f : 0.0f;
	case 8: /* two halves */
		return u + v > 0.0f ? 1.0f : 0.0f;
	default: /* grid */
		return zigzag(2.2f * u) > 0.72f || zigzag(2.2f * v) > 0.72f ? 1.0f : 0.0f;
	}
}

/* --- Objects: painting --------------------------------------------------------------------- */

static struct color color_draw(struct dice *dice)
{
	struct color color;

	for (int i = 0; i < COLORS; i++)
		color.c[i] = dice_between(dice, 15, 240);
	return color;
}

/* A colour that contrasts with [other]. */
static struct color color_apart(struct dice *dice, const struct color *other)
{
	struct color color = color_draw(dice);
	float apart = 0;

	for (int i = 0; i < COLORS; i++)
		apart += magnitude(color.c[i] - other->c[i]);
	for (int i = 0; apart < 110 && i < COLORS; i++)
		color.c[i] += color.c[i] < 128 ? 70.0f : -70.0f;
	return color;
}

static struct color color_at(const float *image, struct place place)
{
	struct color color;

	for (int i = 0; i < COLORS; i++)
		color.c[i] = image[i * PLANE + (int)place.y * DRAW_OBJECT + (int)place.x];
	return color;
}

static struct place place_draw(struct dice *dice, float margin, float least_radius, float radius)
{
	float tangent = dice_between(dice, -1, 1), over = 1.0f / (1.0f + tangent * tangent);
	float size = dice_between(dice, least_radius, radius);
	float sign = dice_below(dice, 2) ? 1.0f : -1.0f;
	struct place place;

	place.x = dice_between(dice, margin, (float)DRAW_OBJECT - margin);
	place.y = dice_between(dice, margin, (float)DRAW_OBJECT - margin);
	place.right_u = sign * (1.0f - tangent * tangent) * over / size;
	place.right_v = 2.0f * tangent * over / size;
	return place;
}

/* Fills the image with a gradient between two colours in a random direction. */
static void paint_ground(float *image, struct dice *dice)
{
	struct color from = color_draw(dice), to = color_draw(dice);
	struct place place = place_draw(dice, DRAW_OBJECT / 4, DRAW_OBJECT / 2, DRAW_OBJECT);

	for (int y = 0; y < DRAW_OBJECT; y++) {
		for (int x = 0; x < DRAW_OBJECT; x++) {
			float t = ((float)x - place.x) * place.right_u -
				  ((float)y - place.y) * place.right_v;

			t = least(most(0.5f + 0.5f * t, 0.0f), 1.0f);
			for (int i = 0; i < COLORS; i++)
				image[i * PLANE + y * DRAW_OBJECT + x] =
					from.c[i] + t * (to.c[i] - from.c[i]);
		}
	}
}

/* Paints shape [form] with texture [kind] in two colours, with antialiased edges. */
static void paint_shape(float *image, struct place place, int form, int kind,
			const struct color colors[2])
{
	const float reach = 1.1f;
	float per_pixel = length(place.right_u, place.right_v);
	int radius = (int)(reach / per_pixel) + 1;
	int top = (int)place.y - radius, left = (int)place.x - radius;

	for (int y = top < 0 ? 0 : top; y <= top + 2 * radius && y < DRAW_OBJECT; y++) {
		for (int x = left < 0 ? 0 : left; x <= left + 2 * radius && x < DRAW_OBJECT; x++) {
			float dx = (float)x + 0.5f - place.x, dy = (float)y + 0.5f - place.y;
			float u = dx * place.right_u - dy * place.right_v;
			float v = dx * place.right_v + dy * place.right_u;
			float inside = shape(form, u, v);
			float cover = least(0.5f + inside / per_pixel, 1.0f), t;

			if (cover <= 0.0f)
				continue;
			t = texture(kind, u, v, inside);
			for (int i = 0; i < COLORS; i++) {
				float *pixel = &image[i * PLANE + y * DRAW_OBJECT + x];
				float ink = colors[0].c[i] + t * (colors[1].c[i] - colors[0].c[i]);

				*pixel += cover * (ink - *pixel);
			}
		}
	}
}

/* Paints small random shapes that do not depend on the class. */
static void paint_clutter(float *image, struct dice *dice)
{
	int count = dice_below(dice, CLUTTER + 1);

	for (int i = 0; i < count; i++) {
		struct color colors[2] = {color_draw(dice), color_draw(dice)};
		struct place place = place_draw(dice, 0, 2, 4);
		int form = dice_below(dice, KINDS);

		paint_shape(image, place, form, dice_below(dice, 2), colors);
	}
}

/* Converts the picture to bytes, with random noise and brightness. */
static void develop(const float *picture, struct dice *dice, uint8_t *image)
{
	float strength = dice_between(dice, 5, 50), light = dice_between(dice, 0.7f, 1.05f);
	float low = dice_between(dice, 0, 30);

	dice_noise(dice, OBJECT_NOISE, image, COLORS * PLANE);
	for (int i = 0; i < COLORS * PLANE; i++) {
		float noise = (float)image[i] / 255.0f - 0.5f;
		float value = low + picture[i] * light + noise * strength;

		image[i] = (uint8_t)least(most(value, 0.0f), 255.0f);
	}
}

void draw_object(uint64_t seed, uint64_t index, int classes, uint8_t *image)
{
	struct dice dice = {.seed = seed, .index = index, .layer = OBJECT};
	int class = draw_label(seed, index, classes);
	int other = dice_below(&dice, KINDS);
	struct place place = place_draw(&dice, 11, 7.5f, 13);
	struct color ground, colors[2];
	float picture[COLORS * PLANE];

	paint_ground(picture, &dice);
	paint_clutter(picture, &dice);
	ground = color_at(picture, place);
	colors[0] = color_apart(&dice, &ground);
	colors[1] = color_apart(&dice, &colors[0]);
	paint_shape(picture, place, class % KINDS, classes > KINDS ? class / KINDS : other, colors);
	paint_clutter(picture, &dice);
	develop(picture, &dice, image);
}
