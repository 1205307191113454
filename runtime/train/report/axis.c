/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "axis.h"
#include "text.h"

/* Ticks closer than this, as a share of the axis, would have labels that touch. */
static const double closest = 0.085;

static double scale(const struct axis *axis, double value)
{
	switch (axis->kind) {
	case AXIS_LOG:
		return log10(fmax(value, 1e-300));
	case AXIS_ERROR:
		return -log10(fmax(1 - value, axis->least));
	default:
		return value;
	}
}

double axis_place(const struct axis *axis, double value)
{
	double place = (scale(axis, value) - axis->low) / (axis->high - axis->low);

	return fmin(fmax(place, -0.5), 1.5);
}

static void axis_tick(struct axis *axis, double value, const char *label)
{
	double place = axis_place(axis, value);

	if (axis->count == AXIS_TICKS || place < -1e-9 || place > 1 + 1e-9)
		return;
	if (axis->count > 0 && place - axis->ticks[axis->count - 1].place < closest)
		return;
	axis->ticks[axis->count].place = place;
	snprintf(axis->ticks[axis->count].label, sizeof(axis->ticks[0].label), "%s", label);
	axis->count++;
}

/* The least of 1, 2, 5 times a power of ten that is at least [least]. */
static double round_step(double least)
{
	double power = pow(10, floor(log10(least)));

	for (int i = 0; i < 3; i++) {
		double step = power * (double[]){1, 2, 5}[i];

		if (step >= least * (1 - 1e-9))
			return step;
	}
	return 10 * power;
}

/* [value], a multiple of [step], with as many digits as tell it from the next one. */
static struct shown label(double value, double step, double most)
{
	int digits = (int)fmax(0, -floor(log10(step) + 1e-9));
	struct shown shown;

	if (step >= 1000 && most >= 1e5 && value > 0)
		snprintf(shown.text, sizeof(shown.text), "%.4gk", value / 1000);
	else if (step >= 1)
		return show_count(value);
	else if (digits > 6)
		snprintf(shown.text, sizeof(shown.text), "%.3g", value);
	else
		snprintf(shown.text, sizeof(shown.text), "%.*f", digits, value);
	return shown;
}

void axis_round(struct axis *axis, double low, double high, double factor)
{
	double step;

	if (!(high > low))
		high = low + (low != 0 ? fabs(low) : 1);
	step = round_step((high - low) / 5);
	*axis = (struct axis){.low = floor(low / step + 1e-9) * step,
			      .high = ceil(high / step - 1e-9) * step};
	low = axis->low;
	high = axis->high;
	/* A line at an end is drawn whole. */
	axis->low -= 0.015 * (high - low);
	axis->high += 0.015 * (high - low);
	for (int i = 0; low + i * step < high + step / 2; i++) {
		double value = low + i * step;

		axis_tick(axis, value, label(value * factor, step * factor, high * factor).text);
	}
}

void axis_whole(struct axis *axis, double low, double high, double unit)
{
	double step;

	if (!(high > low))
		high = low + 1;
	*axis = (struct axis){.low = low, .high = high + 0.008 * (high - low)};
	step = fmax(round_step((high - low) / unit / 8), 1);
	for (double value = ceil(low / unit / step) * step; value * unit <= high * (1 + 1e-12);
	     value += step)
		axis_tick(axis, value * unit, show_count(value).text);
}

static void axis_log(struct axis *axis, double low, double high)
{
	double decades = log10(high / low);
	double room = 0.03 * decades;

	*axis = (struct axis){
		.kind = AXIS_LOG, .low = log10(low) - room, .high = log10(high) + room};
	for (double power = pow(10, floor(axis->low)); power <= high * 10; power *= 10) {
		for (int i = 0; i < 3; i++) {
			double value = power * (double[]){1, 2, 5}[i];
			char text[24];

			if (decades > 3.2 && i > 0)
				continue;
			snprintf(text, sizeof(text), "%.3g", value);
			axis_tick(axis, value, text);
		}
	}
}

void axis_loss(struct axis *axis, double low, double high)
{
	if (low > 0 && high / low >= 15 && isfinite(high))
		axis_log(axis, low, high);
	else
		axis_round(axis, fmin(low, 0), high, 1);
}

void axis_hits(struct axis *axis, double low, double high)
{
	static const double right[] = {0,     0.2,   0.5,   0.8,    0.9,    0.95,   0.98,   0.99,
				       0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 0.99999};

	if (!(high > 0.95 && low < 0.9)) {
		axis_round(axis, low, fmin(high, 1), 100);
		return;
	}
	/* What is all right has an error of 0: it is drawn a little above the rest. */
	high = fmin(high, 0.99999);
	*axis = (struct axis){.kind = AXIS_ERROR, .least = (1 - high) / 1.3};
	axis->low = -log10(1 - fmax(low, 0)) - 0.03;
	axis->high = -log10(axis->least) + 0.03;
	for (unsigned i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
		char text[24];

		snprintf(text, sizeof(text), "%.5g", 100 * right[i]);
		/* What is beyond has no place of its own. */
		if (1 - right[i] >= axis->least)
			axis_tick(axis, right[i], text);
	}
}
