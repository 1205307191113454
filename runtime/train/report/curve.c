/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "curve.h"

int curve_open(struct curve *curve, size_t room)
{
	*curve = (struct curve){.room = room, .merge = 1, .bad = -1};
	curve->points = calloc(room, sizeof(*curve->points));
	return curve->points ? 0 : -1;
}

void curve_close(struct curve *curve)
{
	free(curve->points);
	*curve = (struct curve){.bad = -1};
}

static struct curve_point join(const struct curve_point *a, const struct curve_point *b)
{
	struct curve_point both = {.x = (a->x + b->x) / 2, .count = a->count + b->count};
	double part = both.count ? (double)b->count / (double)both.count : 0;

	if (a->count == 0 || b->count == 0) {
		both = a->count ? *a : *b;
		both.x = (a->x + b->x) / 2;
		return both;
	}
	both.mean = a->mean + (b->mean - a->mean) * part;
	both.low = fmin(a->low, b->low);
	both.high = fmax(a->high, b->high);
	return both;
}

static void halve(struct curve *curve)
{
	for (size_t i = 0; i < curve->used / 2; i++)
		curve->points[i] = join(&curve->points[2 * i], &curve->points[2 * i + 1]);
	curve->used /= 2;
	curve->merge *= 2;
	curve->taken = curve->merge;
}

void curve_add(struct curve *curve, double x, double value)
{
	struct curve_point *last;

	if (!isfinite(value) && curve->bad < 0)
		curve->bad = x;
	if (curve->used == 0 || curve->taken == curve->merge) {
		if (curve->used == curve->room)
			halve(curve);
		curve->taken = 0;
		curve->points[curve->used++] = (struct curve_point){.x = x};
	}
	last = &curve->points[curve->used - 1];
	curve->taken++;
	last->x += (x - last->x) / (double)curve->taken;
	if (!isfinite(value))
		return;
	last->count++;
	last->mean += (value - last->mean) / (double)last->count;
	last->low = last->count == 1 ? value : fmin(last->low, value);
	last->high = last->count == 1 ? value : fmax(last->high, value);
}

void curve_range(const struct curve *curve, double *low, double *high)
{
	for (size_t i = 0; i < curve->used; i++) {
		if (curve->points[i].count == 0)
			continue;
		*low = fmin(*low, curve->points[i].mean);
		*high = fmax(*high, curve->points[i].mean);
	}
}

const struct curve_point *curve_last(const struct curve *curve)
{
	for (size_t i = curve->used; i > 0; i--)
		if (curve->points[i - 1].count)
			return &curve->points[i - 1];
	return NULL;
}

const struct curve_point *curve_first(const struct curve *curve)
{
	for (size_t i = 0; i < curve->used; i++)
		if (curve->points[i].count)
			return &curve->points[i];
	return NULL;
}
