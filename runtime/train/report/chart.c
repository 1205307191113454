/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "chart.h"

void chart_add(struct chart *chart, const char *name, const char *colour, const struct curve *curve,
	       enum series_style style)
{
	if (chart->count < CHART_SERIES && curve_first(curve))
		chart->series[chart->count++] = (struct series){
			.name = name, .colour = colour, .curve = curve, .style = style};
}

bool chart_range(const struct chart *chart, double *low, double *high)
{
	*low = INFINITY;
	*high = -INFINITY;
	for (int i = 0; i < chart->count; i++)
		curve_range(chart->series[i].curve, low, high);
	return *low <= *high;
}

/* --- Paths ------------------------------------------------------------------------------ */

static double across(const struct chart *chart, double x)
{
	return 1000 * axis_place(chart->x, x);
}

static double down(const struct chart *chart, double y)
{
	return 1000 * (1 - axis_place(&chart->y, y));
}

static void draw_line(struct text *out, const struct chart *chart, const struct series *series)
{
	const struct curve *curve = series->curve;
	bool pen = false; /* it is down */

	for (size_t i = 0; i < curve->used; i++) {
		const struct curve_point *point = &curve->points[i];

		if (point->count == 0) {
			pen = false;
			continue;
		}
		if (pen && series->style == SERIES_STEPS)
			text_add(out, "H%.1f", across(chart, point->x));
		text_add(out, "%s%.1f,%.1f", pen ? "L" : "M", across(chart, point->x),
			 down(chart, point->mean));
		pen = true;
	}
}

static void draw_dots(struct text *out, const struct chart *chart, const struct series *series)
{
	const struct curve *curve = series->curve;

	text_add(out, "<path class=\"dots %s\" d=\"", series->colour);
	for (size_t i = 0; i < curve->used; i++)
		if (curve->points[i].count)
			text_add(out, "M%.1f,%.1fh0", across(chart, curve->points[i].x),
				 down(chart, curve->points[i].mean));
	text_add(out, "\"/>\n");
}

/* There along the highs, back along the lows; gaps are bridged. */
static void draw_band(struct text *out, const struct chart *chart, const struct curve *lows,
		      const struct curve *highs, const char *colour)
{
	bool begun = false;

	text_add(out, "<path class=\"band %s\" d=\"", colour);
	for (size_t i = 0; i < highs->used; i++) {
		if (highs->points[i].count == 0)
			continue;
		text_add(out, "%s%.1f,%.1f", begun ? "L" : "M", across(chart, highs->points[i].x),
			 down(chart, highs->points[i].high));
		begun = true;
	}
	for (size_t i = lows->used; begun && i > 0; i--)
		if (lows->points[i - 1].count)
			text_add(out, "L%.1f,%.1f", across(chart, lows->points[i - 1].x),
				 down(chart, lows->points[i - 1].low));
	text_add(out, "%s\"/>\n", begun ? "Z" : "");
}

/* What page.js reads out: steps and values of the points, in the order of the path's. */
static void draw_values(struct text *out, const struct chart *chart, const struct series *series)
{
	const struct curve *curve = series->curve;

	text_add(out, " data-name=\"");
	text_html(out, series->name);
	text_add(out, "\" data-p=\"");
	for (size_t i = 0; i < curve->used; i++)
		if (curve->points[i].count)
			text_add(out, "%.1f %.1f ", across(chart, curve->points[i].x),
				 down(chart, curve->points[i].mean));
	text_add(out, "\" data-v=\"");
	for (size_t i = 0; i < curve->used; i++)
		if (curve->points[i].count)
			text_add(out, "%.0f %.4g ", curve->points[i].x,
				 curve->points[i].mean * chart->factor);
	text_add(out, "\"");
}

static void draw_series(struct text *out, const struct chart *chart, const struct series *series)
{
	if (series->band && series->curve->merge > 1)
		draw_band(out, chart, series->curve, series->curve, series->colour);
	text_add(out, "<path class=\"%s %s\" d=\"",
		 series->style == SERIES_FAINT ? "faint" : "line", series->colour);
	draw_line(out, chart, series);
	text_add(out, "\"");
	if (series->style != SERIES_FAINT)
		draw_values(out, chart, series);
	text_add(out, "/>\n");
	if (series->style == SERIES_DOTS)
		draw_dots(out, chart, series);
}

/* --- Around them ------------------------------------------------------------------------ */

static void draw_axes(struct text *out, const struct chart *chart)
{
	text_add(out, "<g class=\"axes\" aria-hidden=\"true\">\n");
	for (int i = 0; i < chart->y.count; i++) {
		const struct axis_tick *tick = &chart->y.ticks[i];
		double y = 100 * (1 - tick->place);

		text_add(out,
			 "<line x1=\"0\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>"
			 "<text x=\"-8\" y=\"%.2f%%\" dy=\".33em\" text-anchor=\"end\">%s</text>\n",
			 y, y, y, tick->label);
	}
	for (int i = 0; i < chart->x->count; i++) {
		const struct axis_tick *tick = &chart->x->ticks[i];
		double x = 100 * tick->place;

		text_add(out,
			 "<line class=\"tick\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"100%%\" "
			 "y2=\"100%%\"/><text x=\"%.2f%%\" y=\"100%%\" dy=\"1.5em\" "
			 "text-anchor=\"middle\">%s</text>\n",
			 x, x, x, tick->label);
	}
	text_add(out,
		 "<text class=\"name\" x=\"100%%\" y=\"100%%\" dy=\"2.9em\" "
		 "text-anchor=\"end\">%s</text>\n</g>\n",
		 chart->x_name);
}

static void draw_legend(struct text *out, const struct chart *chart)
{
	int named = 0;

	for (int i = 0; i < chart->count; i++)
		named += chart->series[i].style != SERIES_FAINT;
	if (named < 2)
		return;
	text_add(out, "<span class=\"legend\">");
	for (int i = 0; i < chart->count; i++) {
		if (chart->series[i].style == SERIES_FAINT)
			continue;
		text_add(out, "<span><i class=\"%s\"></i>", chart->series[i].colour);
		text_html(out, chart->series[i].name);
		text_add(out, "</span> ");
	}
	text_add(out, "</span>");
}

/* The chart in words, for those who do not see it. */
static void draw_words(struct text *out, const struct chart *chart)
{
	text_add(out, "<title id=\"%s-t\">", chart->id);
	text_html(out, chart->title);
	text_add(out, "</title>\n<desc id=\"%s-d\">", chart->id);
	for (int i = 0; i < chart->count; i++) {
		const struct series *series = &chart->series[i];
		const struct curve_point *first = curve_first(series->curve);
		const struct curve_point *last = curve_last(series->curve);

		if (series->style == SERIES_FAINT)
			continue;
		text_html(out, series->name);
		text_add(out, ": from %.4g%s at step %.0f to %.4g%s at step %.0f. ",
			 first->mean * chart->factor, chart->unit, first->x,
			 last->mean * chart->factor, chart->unit, last->x);
	}
	text_add(out, "</desc>\n");
}

static void draw_bad(struct text *out, const struct chart *chart)
{
	for (int i = 0; i < chart->count; i++) {
		const struct series *series = &chart->series[i];

		if (series->curve->bad < 0 || series->style == SERIES_FAINT)
			continue;
		text_add(out, "<p class=\"bad\">");
		text_html(out, series->name);
		text_add(out, ": not finite (nan or inf) from step %s on</p>\n",
			 show_count(series->curve->bad).text);
	}
}

void chart_draw(struct text *out, const struct chart *chart)
{
	if (chart->count == 0)
		return;
	text_add(out, "<figure class=\"chart\" id=\"%s\" data-unit=\"%s\" data-steps=\"%.0f\">\n",
		 chart->id, chart->unit, chart->steps);
	text_add(out, "<figcaption><h2>");
	text_html(out, chart->title);
	text_add(out, "</h2>");
	draw_legend(out, chart);
	if (chart->note) {
		text_add(out, "<small>");
		text_html(out, chart->note);
		text_add(out, "</small>");
	}
	text_add(out,
		 "</figcaption>\n<div class=\"plot\">\n"
		 "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"frame\" role=\"img\" "
		 "tabindex=\"0\" aria-labelledby=\"%s-t %s-d\" width=\"100%%\" height=\"220\">\n",
		 chart->id, chart->id);
	draw_words(out, chart);
	draw_axes(out, chart);
	text_add(out,
		 "<svg class=\"curves\" viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" "
		 "width=\"100%%\" height=\"100%%\">\n");
	if (chart->low && chart->high)
		draw_band(out, chart, chart->low, chart->high, chart->series[0].colour);
	for (int i = chart->count; i > 0; i--)
		draw_series(out, chart, &chart->series[i - 1]);
	text_add(out, "</svg>\n</svg>\n</div>\n");
	draw_bad(out, chart);
	text_add(out, "</figure>\n");
}
