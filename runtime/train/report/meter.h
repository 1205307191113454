/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meter.h - what the live line says, fitted to the width of a terminal
 */
#ifndef TRAIN_REPORT_METER_H
#define TRAIN_REPORT_METER_H

#include "text.h"

/* The most important first: a narrow line goes without the last ones. */
enum meter_field {
	METER_EPOCH,
	METER_STEP,
	METER_LOSS,
	METER_LEFT,
	METER_SPEED,
	METER_HITS,
	METER_BAR,
	METER_SLOWEST,
	METER_FIELDS
};

struct meter {
	char fields[METER_FIELDS][96]; /* "": nothing to say; the bar is drawn from [done] */
	size_t widths[METER_FIELDS];   /* the widest so far, so that the line does not tremble */
	double done;		       /* share of the epoch */
	bool utf8, colour;
	bool alarm; /* the slowest rank is worth a look */
};

/* Columns of [string], each of whose characters is taken for one column wide. */
size_t meter_columns(const char *string);

/* Add the line to [out], at most [room] columns. Returns how many it takes. */
size_t meter_compose(struct meter *meter, size_t room, struct text *out);

#endif /* TRAIN_REPORT_METER_H */
