/* SPDX-License-Identifier: Apache-2.0 */
/*
 * axis.h - where a value is on a scale, and which values the scale names
 */
#ifndef TRAIN_REPORT_AXIS_H
#define TRAIN_REPORT_AXIS_H

enum axis_kind {
	AXIS_LINEAR,
	AXIS_LOG,   /* of the value */
	AXIS_ERROR, /* of what is missing to 1: 0.9, 0.99 and 0.999 are as far from each other */
};

enum { AXIS_TICKS = 16 };

struct axis_tick {
	double place; /* 0 to 1 */
	char label[24];
};

struct axis {
	enum axis_kind kind;
	double low, high; /* of the scale: values, logarithms */
	double least;	  /* of AXIS_ERROR: what is missing at least */
	struct axis_tick ticks[AXIS_TICKS];
	int count;
};

/* Where [value] is: 0 at the low end, 1 at the high end; a little outside for what is outside. */
double axis_place(const struct axis *axis, double value);

/* Round numbers from [low] to [high], which are widened to such; labels show value * [factor]. */
void axis_round(struct axis *axis, double low, double high, double factor);

/* From [low] to [high] and a little more; ticks are whole multiples of [unit], labelled in units. */
void axis_whole(struct axis *axis, double low, double high, double unit);

/* By logarithm where values that are above 0 differ much, else round from 0. */
void axis_loss(struct axis *axis, double low, double high);

/* Shares of right answers in percent: by what is missing where the best are near 1. */
void axis_hits(struct axis *axis, double low, double high);

#endif /* TRAIN_REPORT_AXIS_H */
