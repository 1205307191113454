/* SPDX-License-Identifier: Apache-2.0 */
/*
 * curve.h - a curve of any length in bounded memory
 *
 * When its room is full, each two neighbours become one, which keeps their mean and their extremes.
 */
#ifndef TRAIN_REPORT_CURVE_H
#define TRAIN_REPORT_CURVE_H

#include <stddef.h>
#include <stdint.h>

struct curve_point {
	double x;		/* mean of those that came together */
	double mean, low, high; /* of the finite ones */
	uint64_t count;		/* of the finite ones; 0: there is a gap */
};

struct curve {
	struct curve_point *points;
	size_t used, room;
	uint64_t merge; /* values that come together in one point */
	uint64_t taken; /* of them in the last point */
	double bad;	/* x of the first value that was not finite; -1: none */
};

/* [room] is even. Returns 0, or -1 without memory. */
int curve_open(struct curve *curve, size_t room);
void curve_close(struct curve *curve);
void curve_add(struct curve *curve, double x, double value);

/* Extremes of the means, widened into [low] and [high]; begin with INFINITY and -INFINITY. */
void curve_range(const struct curve *curve, double *low, double *high);

/* The last point that is no gap, NULL if there is none; and the first. */
const struct curve_point *curve_last(const struct curve *curve);
const struct curve_point *curve_first(const struct curve *curve);

#endif /* TRAIN_REPORT_CURVE_H */
