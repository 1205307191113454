/* SPDX-License-Identifier: Apache-2.0 */
/* page-curves.c - which charts a page has */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "chart.h"
#include "page-data.h"

static const char *const colours[PAGE_NAMED] = {"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"};

/* What all charts of a page have in common: the steps. */
struct steps {
	struct axis axis;
	bool epochs; /* the axis counts these */
	double each; /* steps of an epoch */
};

static void steps_of(struct steps *steps, const struct page *page)
{
	double low = INFINITY, high = -INFINITY;

	for (int i = 0; i < CURVES; i++) {
		const struct curve *curve = &page->curves[i];

		if (curve->used == 0)
			continue;
		low = fmin(low, curve->points[0].x);
		high = fmax(high, curve->points[curve->used - 1].x);
	}
	steps->each = (double)(page->run->steps ? page->run->steps : 1);
	/* A run from the beginning is shown from there, also by one that goes on with it. */
	if (page->run->begin == 0 || low < 0.05 * high)
		low = fmin(low, 0);
	if (!(high > low))
		low = high - 1;
	steps->epochs = high - low >= 1.5 * steps->each;
	if (isfinite(low) && isfinite(high))
		axis_whole(&steps->axis, low, high, steps->epochs ? steps->each : 1);
}

static struct chart chart_on(const struct steps *steps, const char *id, const char *title)
{
	return (struct chart){
		.id = id,
		.title = title,
		.unit = "",
		.factor = 1,
		.x = &steps->axis,
		.x_name = steps->epochs ? "epoch" : "step",
		.steps = steps->each,
	};
}

static void draw_loss(struct text *out, const struct page *page, const struct steps *steps)
{
	struct chart chart = chart_on(steps, "loss", "Loss");
	double low, high;

	chart_add(&chart, "train", "c0", &page->curves[CURVE_LOSS], SERIES_LINE);
	chart_add(&chart, "test", "c1", &page->curves[CURVE_TEST_LOSS], SERIES_DOTS);
	chart.series[0].band = true;
	if (!chart_range(&chart, &low, &high))
		return;
	axis_loss(&chart.y, low, high);
	chart.note = chart.y.kind == AXIS_LOG ? "logarithmic" : NULL;
	chart_draw(out, &chart);
}

/* The best share of right answers that has an error left: the scale is one of errors. */
static double best_but_all(const struct chart *chart)
{
	double best = -INFINITY;

	for (int i = 0; i < chart->count; i++) {
		const struct curve *curve = chart->series[i].curve;

		for (size_t j = 0; j < curve->used; j++)
			if (curve->points[j].count && curve->points[j].mean < 1)
				best = fmax(best, curve->points[j].mean);
	}
	return best;
}

static void draw_hits(struct text *out, const struct page *page, const struct steps *steps)
{
	struct chart chart = chart_on(steps, "accuracy", "Accuracy");
	double low, high;

	chart.unit = " %";
	chart.factor = 100;
	chart_add(&chart, "train", "c0", &page->curves[CURVE_HITS], SERIES_LINE);
	chart_add(&chart, "test", "c1", &page->curves[CURVE_TEST_HITS], SERIES_DOTS);
	chart.series[0].band = true;
	if (!chart_range(&chart, &low, &high))
		return;
	axis_hits(&chart.y, low, fmax(low, fmin(high, best_but_all(&chart))));
	chart.note =
		chart.y.kind == AXIS_ERROR ? "top 1, %, spread by the errors left" : "top 1, %";
	chart_draw(out, &chart);
}

/* One curve, whose axis begins at 0. */
static void draw_one(struct text *out, struct chart *chart, const struct curve *curve,
		     const char *colour, enum series_style style)
{
	double low, high;

	chart_add(chart, chart->title, colour, curve, style);
	if (!chart_range(chart, &low, &high))
		return;
	axis_round(&chart->y, 0, high, 1);
	chart_draw(out, chart);
}

static void draw_speed(struct text *out, const struct page *page, const struct steps *steps)
{
	struct chart chart = chart_on(steps, "throughput", "Throughput");

	chart.unit = " img/s";
	chart.note = "img/s of all ranks together";
	draw_one(out, &chart, &page->curves[CURVE_SPEED], "c0", SERIES_LINE);
}

static const char own_work[] = "img/s in its own work, without waiting for the others";

static void add_named_ranks(struct chart *chart, const struct page *page, char (*names)[96])
{
	for (int rank = 0; rank < page->run->ranks; rank++) {
		snprintf(names[rank], sizeof(names[rank]), "%s:%d", page->all[rank].node, rank);
		chart_add(chart, names[rank], colours[rank], &page->each[rank], SERIES_LINE);
	}
}

/* Which of many curves hangs lowest cannot be seen. */
static void name_slowest(const struct page *page, char *note, size_t size)
{
	double lowest = INFINITY;
	int slowest = -1;

	for (int rank = 0; rank < page->run->ranks; rank++) {
		double speed = sink_speed(page->all[rank].samples, sink_work(&page->all[rank]));

		if (speed > 0 && speed < lowest) {
			lowest = speed;
			slowest = rank;
		}
	}
	if (slowest >= 0)
		snprintf(note, size, "%s; the slowest over all is %s:%d", own_work,
			 page->all[slowest].node, slowest);
}

static void add_many_ranks(struct chart *chart, const struct page *page)
{
	chart_add(chart, "median", "c0", &page->curves[CURVE_MEDIAN], SERIES_LINE);
	chart_add(chart, "fastest", "c2", &page->curves[CURVE_FASTEST], SERIES_LINE);
	chart_add(chart, "slowest", "c1", &page->curves[CURVE_SLOWEST], SERIES_LINE);
	for (int rank = 0; page->each && rank < page->run->ranks; rank++)
		chart_add(chart, "", "c0", &page->each[rank], SERIES_FAINT);
	chart->low = &page->curves[CURVE_SLOWEST];
	chart->high = &page->curves[CURVE_FASTEST];
}

static void draw_each(struct text *out, const struct page *page, const struct steps *steps)
{
	struct chart chart = chart_on(steps, "ranks-speed", "Speed of each rank");
	char names[PAGE_NAMED][96], note[200] = "";
	double low, high;

	chart.unit = " img/s";
	chart.note = own_work;
	if (page->run->ranks <= PAGE_NAMED) {
		add_named_ranks(&chart, page, names);
	} else {
		add_many_ranks(&chart, page);
		name_slowest(page, note, sizeof(note));
		chart.note = note;
	}
	if (!chart_range(&chart, &low, &high))
		return;
	/* Differences between ranks are small: the axis need not begin at 0. */
	axis_round(&chart.y, low > 0.5 * high ? low - 0.1 * (high - low) : 0, high, 1);
	chart_draw(out, &chart);
}

void page_draw_curves(struct text *out, const struct page *page)
{
	struct steps steps = {0};
	struct chart chart;

	steps_of(&steps, page);
	draw_loss(out, page, &steps);
	draw_hits(out, page, &steps);
	draw_speed(out, page, &steps);
	if (page->run->ranks > 1)
		draw_each(out, page, &steps);
	chart = chart_on(&steps, "rate", "Learning rate");
	draw_one(out, &chart, &page->curves[CURVE_RATE], "c3", SERIES_STEPS);
	chart = chart_on(&steps, "scale", "Loss scale");
	draw_one(out, &chart, &page->curves[CURVE_SCALE], "c4", SERIES_STEPS);
}
