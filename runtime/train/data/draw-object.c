/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "dice.h"
#include "draw.h"

enum { SIDE = DRAW_OBJECT, PLANE = SIDE * SIDE, COLORS = 3, KINDS = 10, CLUTTER = 3 };

struct color {
	float c[COLORS];
};

/* A square of the image, turned: middle, and what a pixel to the right adds to (u, v). */
struct place {
	float x, y, right_u, right_v;
};

/* --- Shapes -------------------------------------------------------------------------------- */

static float magnitude(float a)
{
	return a < 0 ? -a : a;
}

static float least(float a, float b)
{
	return a < b ? a : b;
}

static float most(float a, float b)
{
	return a > b ? a : b;
}

static float length(float u, float v)
{
	return sqrtf(u * u + v * v);
}

/* How far inside shape [kind] a point is, about 1 across; negative outside. */
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
	default: /* star with four tips */
		return 0.8f * (1.0f - sqrtf(a) - sqrtf(b)) + 0.08f;
	}
}

/* --- Textures ------------------------------------------------------------------------------ */

/* A wave of period 1 between 0 and 1, with corners. */
static float wave(float t)
{
	t -= (float)(int)(t + 64.0f) - 64.0f;
	return 2.0f * magnitude(t - 0.5f);
}

static float hard(float value)
{
	return value > 0.5f ? 1.0f : 0.0f;
}

/* Which part of the second colour texture [kind] has at a point. */
static float texture(int kind, float u, float v, float inside)
{
	switch (kind) {
	case 0: /* plain */
		return 0.0f;
	case 1: /* wide stripes */
		return hard(wave(1.6f * u));
	case 2: /* fine stripes */
		return hard(wave(3.4f * v));
	case 3: /* checks */
		return hard(wave(1.3f * u)) != hard(wave(1.3f * v)) ? 1.0f : 0.0f;
	case 4: /* dots */
		return hard(0.22f + 0.5f * wave(2.0f * u) * wave(2.0f * v));
	case 5: /* from one to the other */
		return least(most(0.5f + 0.6f * u, 0.0f), 1.0f);
	case 6: /* rings */
		return hard(wave(2.2f * length(u, v)));
	case 7: /* an edge */
		return inside < 0.12f ? 1.0f : 0.0f;
	case 8: /* halves */
		return u + v > 0.0f ? 1.0f : 0.0f;
	default: /* a net */
		return wave(2.2f * u) > 0.72f || wave(2.2f * v) > 0.72f ? 1.0f : 0.0f;
	}
}

/* --- Painting ------------------------------------------------------------------------------ */

static struct color color_draw(struct dice *dice)
{
	struct color color;

	for (int i = 0; i < COLORS; i++)
		color.c[i] = dice_between(dice, 15, 240);
	return color;
}

/* A colour that can be told from [other]. */
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

/* What is there before anything is drawn over it. */
static struct color color_at(const float *image, struct place place)
{
	struct color color;

	for (int i = 0; i < COLORS; i++)
		color.c[i] = image[i * PLANE + (int)place.y * SIDE + (int)place.x];
	return color;
}

static struct place place_draw(struct dice *dice, float margin, float least_radius, float radius)
{
	float tangent = dice_between(dice, -1, 1), over = 1.0f / (1.0f + tangent * tangent);
	float size = dice_between(dice, least_radius, radius);
	float sign = dice_below(dice, 2) ? 1.0f : -1.0f;
	struct place place;

	place.x = dice_between(dice, margin, (float)SIDE - margin);
	place.y = dice_between(dice, margin, (float)SIDE - margin);
	place.right_u = sign * (1.0f - tangent * tangent) * over / size;
	place.right_v = 2.0f * tangent * over / size;
	return place;
}

/* From one colour to another, in a random direction. */
static void paint_ground(float *image, struct dice *dice)
{
	struct color from = color_draw(dice), to = color_draw(dice);
	struct place place = place_draw(dice, SIDE / 4, SIDE / 2, SIDE);

	for (int y = 0; y < SIDE; y++) {
		for (int x = 0; x < SIDE; x++) {
			float t = ((float)x - place.x) * place.right_u -
				  ((float)y - place.y) * place.right_v;

			t = least(most(0.5f + 0.5f * t, 0.0f), 1.0f);
			for (int i = 0; i < COLORS; i++)
				image[i * PLANE + y * SIDE + x] =
					from.c[i] + t * (to.c[i] - from.c[i]);
		}
	}
}

/* A shape of texture [kind] in two colours; its edges are as soft as pixels are large. */
static void paint_shape(float *image, struct place place, int form, int kind,
			const struct color colors[2])
{
	const float reach = 1.1f;
	float per_pixel = length(place.right_u, place.right_v);
	int radius = (int)(reach / per_pixel) + 1;
	int top = (int)place.y - radius, left = (int)place.x - radius;

	for (int y = top < 0 ? 0 : top; y <= top + 2 * radius && y < SIDE; y++) {
		for (int x = left < 0 ? 0 : left; x <= left + 2 * radius && x < SIDE; x++) {
			float dx = (float)x + 0.5f - place.x, dy = (float)y + 0.5f - place.y;
			float u = dx * place.right_u - dy * place.right_v;
			float v = dx * place.right_v + dy * place.right_u;
			float inside = shape(form, u, v);
			float cover = least(0.5f + inside / per_pixel, 1.0f), t;

			if (cover <= 0.0f)
				continue;
			t = texture(kind, u, v, inside);
			for (int i = 0; i < COLORS; i++) {
				float *pixel = &image[i * PLANE + y * SIDE + x];
				float ink = colors[0].c[i] + t * (colors[1].c[i] - colors[0].c[i]);

				*pixel += cover * (ink - *pixel);
			}
		}
	}
}

/* Small things of any kind, which say nothing about the class. */
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

/* Bytes, with noise of a random strength and a random light over all. */
static void develop(const float *picture, struct dice *dice, uint8_t *image)
{
	float strength = dice_between(dice, 5, 50), light = dice_between(dice, 0.7f, 1.05f);
	float low = dice_between(dice, 0, 30);

	for (uint32_t i = 0; i < COLORS * PLANE; i += 16) {
		uint32_t words[4];

		ddp_random(dice->seed, 0, dice->index, DICE_OBJECT_NOISE, i, words);
		for (uint32_t j = 0; j < 16; j++) {
			float noise = (float)(words[j / 4] >> 8 * (j % 4) & 0xff) / 255.0f - 0.5f;
			float value = low + picture[i + j] * light + noise * strength;

			image[i + j] = (uint8_t)least(most(value, 0.0f), 255.0f);
		}
	}
}

void draw_object(uint64_t seed, uint64_t index, int classes, uint8_t *image)
{
	struct dice dice = dice_take(seed, index, DICE_OBJECT);
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
