/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page-html.c - the document: well-formed as XML too, so that any reader can take it apart
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/watch.h"
#include "page-assets.h"
#include "page-data.h"

static void draw_head(struct text *out, const struct page *page)
{
	text_add(out, "<!DOCTYPE html>\n"
		      "<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
		      "<meta charset=\"utf-8\"/>\n"
		      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
		      "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
		      /* The page asks nobody for anything, whatever may be in its texts. */
		      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
		      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>\n<title>");
	text_html(out, page->run->title);
	text_add(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n", page_css);
}

static void draw_state(struct text *out, const struct page *page, const struct report_end *end)
{
	char now[40];

	if (end) {
		bool finished = strcmp(end->reason, "finished") == 0;

		text_add(out, "<p class=\"state %s\">", finished ? "good" : "early");
		text_html(out, end->reason);
		text_add(out, "</p>\n");
		return;
	}
	page_date(now, sizeof(now));
	text_add(out,
		 "<p class=\"state going\">not ended</p>\n<p class=\"sub\">This is how it "
		 "stood at %s, ",
		 now);
	if (page->epoch_count)
		text_add(out, "after epoch %u of %u.",
			 page->epochs[(page->epoch_count - 1) % PAGE_EPOCHS].epoch,
			 page->run->epochs);
	else
		text_add(out, "before the end of the first epoch.");
	text_add(out, " The page is written anew after each epoch.</p>\n");
}

static void draw_title(struct text *out, const struct page *page, const struct report_end *end)
{
	const struct report_run *run = page->run;

	text_add(out, "<header>\n<h1>");
	text_html(out, run->title);
	text_add(out, "</h1>\n");
	draw_state(out, page, end);
	text_add(out, "<p class=\"sub\">");
	if (*run->job) {
		text_add(out, "job ");
		text_html(out, run->job);
		text_add(out, " · ");
	}
	text_html(out, run->engine);
	text_add(out, " · begun %s", page->begun);
	if (run->begin)
		text_add(out, " · went on from step %s; times and tables are from there on",
			 show_count((double)run->begin).text);
	text_add(out, "</p>\n</header>\n");
}

static void draw_tile(struct text *out, const char *name, const char *value, const char *more)
{
	text_add(out, "<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>\n", name, value, more);
}

static void draw_tiles(struct text *out, const struct page *page, const struct report_end *end,
		       double seconds)
{
	const struct report_run *run = page->run;
	double best = end ? end->best_top1 : page->best;
	unsigned best_epoch = end ? end->best_epoch : page->best_epoch;
	const struct curve_point *loss = curve_last(&page->curves[CURVE_LOSS]);
	double training = seconds - page->all[0].evaluation;
	char more[80];

	text_add(out, "<dl class=\"tiles\">\n");
	snprintf(more, sizeof(more), "test, after epoch %u", best_epoch);
	if (best_epoch)
		draw_tile(out, "Best accuracy", show_percent(best).text, more);
	if (loss)
		draw_tile(out, "Loss", show_loss(loss->mean).text, "train, at last");
	draw_tile(out, "Throughput", show_count(sink_speed(page->samples, training)).text,
		  "img/s while training");
	draw_tile(out, "Time", show_seconds(seconds).text, "all in all");
	snprintf(more, sizeof(more), "on %d node%s", run->nodes, run->nodes == 1 ? "" : "s");
	draw_tile(out, run->ranks == 1 ? "Rank" : "Ranks", show_count(run->ranks).text, more);
	snprintf(more, sizeof(more), "samples, %s an epoch", show_count((double)run->steps).text);
	draw_tile(out, "Step", show_count((double)run->batch).text, more);
	text_add(out, "</dl>\n");
}

static void draw_epoch(struct text *out, const struct report_epoch *epoch, bool best)
{
	text_add(out, "<tr%s><td>%u</td><td>%s</td><td>%s</td>", best ? " class=\"best\"" : "",
		 epoch->epoch, show_loss(epoch->train_loss).text,
		 show_percent(epoch->train_top1).text);
	if (epoch->evaluated)
		text_add(out, "<td>%s</td><td>%s</td><td>%s</td>", show_loss(epoch->loss).text,
			 show_percent(epoch->top1).text, show_percent(epoch->top5).text);
	else
		text_add(out, "<td></td><td></td><td></td>");
	text_add(out, "<td>%s</td>", show_seconds(epoch->seconds).text);
	if (epoch->evaluated)
		text_add(out, "<td>%s</td>", show_seconds(epoch->evaluation).text);
	else
		text_add(out, "<td></td>");
	text_add(out, "</tr>\n");
}

static void draw_epochs(struct text *out, const struct page *page, unsigned best)
{
	size_t count = page->epoch_count;
	size_t first = count > PAGE_EPOCHS ? count - PAGE_EPOCHS : 0;

	if (count == 0)
		return;
	text_add(out, "<section id=\"epochs\"><h2>Epochs</h2>\n<div class=\"scroll\"><table>\n"
		      "<thead><tr><th scope=\"col\">epoch</th><th scope=\"col\">train loss</th>"
		      "<th scope=\"col\">train top 1</th><th scope=\"col\">test loss</th>"
		      "<th scope=\"col\">test top 1</th><th scope=\"col\">test top 5</th>"
		      "<th scope=\"col\">training</th><th scope=\"col\">evaluation</th>"
		      "</tr></thead>\n<tbody>\n");
	for (size_t i = first; i < count; i++)
		draw_epoch(out, &page->epochs[i % PAGE_EPOCHS],
			   page->epochs[i % PAGE_EPOCHS].epoch == best);
	text_add(out, "</tbody></table></div>\n");
	if (first > 0)
		text_add(out, "<p>The first %zu are left out here.</p>\n", first);
	text_add(out, "</section>\n");
}

static void draw_configuration(struct text *out, const struct report_run *run)
{
	if (run->configuration_count == 0)
		return;
	text_add(out, "<section id=\"configuration\"><h2>Configuration</h2>\n"
		      "<dl class=\"pairs\">\n");
	for (size_t i = 0; i < run->configuration_count; i++) {
		text_add(out, "<div><dt>");
		text_html(out, run->configuration[i].key);
		text_add(out, "</dt><dd>");
		text_html(out, *run->configuration[i].value ? run->configuration[i].value : "–");
		text_add(out, "</dd></div>\n");
	}
	text_add(out, "</dl></section>\n");
}

static void draw_file(struct text *out, const char *what, const char *path)
{
	if (!path || !*path)
		return;
	text_add(out, "<div><dt>%s</dt><dd>", what);
	text_html(out, path);
	text_add(out, "</dd></div>\n");
}

static void draw_files(struct text *out, const struct report_end *end)
{
	if (!end || (!end->checkpoint && !end->model))
		return;
	text_add(out, "<section id=\"files\"><h2>Files</h2>\n<dl class=\"pairs wide\">\n");
	draw_file(out, "checkpoint", end->checkpoint);
	draw_file(out, "model", end->model);
	text_add(out, "</dl></section>\n");
}

static void draw_log(struct text *out, const struct page *page)
{
	size_t count = page->line_count;

	if (count == 0)
		return;
	text_add(out, "<section id=\"log\"><h2>Log</h2>\n<ol>\n");
	for (size_t i = count > PAGE_LINES ? count - PAGE_LINES : 0; i < count; i++) {
		const struct page_line *line = &page->lines[i % PAGE_LINES];

		text_add(out, "<li%s><time>%s</time> ", line->warning ? " class=\"bad\"" : "",
			 show_clock(line->seconds).text);
		text_html(out, line->text ? line->text : "");
		text_add(out, "</li>\n");
	}
	text_add(out, "</ol></section>\n");
}

void page_draw(struct text *out, const struct page *page, const struct report_end *end)
{
	double seconds = end ? end->seconds : ddp_seconds() - page->opened;
	const struct report_rank *ranks = end && end->ranks ? end->ranks : page->all;
	unsigned best = end ? end->best_epoch : page->best_epoch;

	draw_head(out, page);
	draw_title(out, page, end);
	text_add(out, "<main>\n");
	draw_tiles(out, page, end, seconds);
	text_add(out, "<div class=\"charts %s\">\n",
		 page->run->ranks <= PAGE_NAMED ? "few" : "many");
	page_draw_curves(out, page);
	page_draw_times(out, page, ranks, seconds);
	text_add(out, "</div>\n");
	draw_epochs(out, page, best);
	page_draw_ranks(out, page, ranks, seconds);
	draw_configuration(out, page->run);
	draw_files(out, end);
	draw_log(out, page);
	text_add(out,
		 "</main>\n<footer>ddp-train %s</footer>\n<script>//<![CDATA[\n%s//]]>"
		 "</script>\n</body>\n</html>\n",
		 PACKAGE_VERSION, page_js);
}
