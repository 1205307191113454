/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chart.h - curves over steps as a figure of HTML with SVG inside
 *
 * The drawing stretches with the page while lines and letters keep their size: curves are in an
 * SVG of 1000 by 1000 that is scaled without its strokes, all else is placed by percentages.
 */
#ifndef TRAIN_REPORT_CHART_H
#define TRAIN_REPORT_CHART_H

#include "axis.h"
#include "curve.h"
#include "text.h"

enum { CHART_SERIES = 72 };

enum series_style {
	SERIES_LINE,
	SERIES_DOTS,  /* a line, with a dot at each point */
	SERIES_STEPS, /* a value holds until the next point */
	SERIES_FAINT, /* one of many: no name, no read-out */
};

struct series {
	const char *name;
	const char *colour; /* a class of page.css: "c0" to "c9" */
	const struct curve *curve;
	enum series_style style;
	bool band; /* and the extremes of what came together */
};

struct chart {
	const char *id, *title;
	const char *note; /* what is drawn, in a phrase; may be NULL */
	const char *unit; /* of the y axis, shown after values: " %", " img/s" */
	double factor;	  /* values are shown multiplied by it */
	const struct axis *x;
	const char *x_name;
	double steps; /* of an epoch, for the read-out */
	struct axis y;
	struct series series[CHART_SERIES];
	int count;
	const struct curve *low, *high; /* a band between two curves, or NULL */
};

void chart_add(struct chart *chart, const char *name, const char *colour, const struct curve *curve,
	       enum series_style style);

/* Extremes of all series; false if there is not one point. */
bool chart_range(const struct chart *chart, double *low, double *high);

/* Nothing is added for a chart without points. */
void chart_draw(struct text *out, const struct chart *chart);

#endif /* TRAIN_REPORT_CHART_H */
