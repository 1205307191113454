/* SPDX-License-Identifier: Apache-2.0 */
/* page-ranks.c - where each rank's time went, and the table of ranks */
#include "config.h"

#include <stdlib.h>

#include "page-data.h"
#include "rows.h"

/* --- Bars ------------------------------------------------------------------------------- */

static const struct part {
	const char *name, *colour; /* a class of page.css */
	size_t offset;
} parts[] = {
	{"compute", "p-compute", offsetof(struct shares, compute)},
	{"all-reduce", "p-reduce", offsetof(struct shares, reduce)},
	{"data", "p-data", offsetof(struct shares, data)},
	{"evaluation", "p-test", offsetof(struct shares, test)},
	{"other", "p-other", offsetof(struct shares, other)},
};

enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static double part_of(const struct shares *shares, const struct part *part)
{
	return *(const double *)((const char *)shares + part->offset);
}

static void draw_bar(struct text *out, int rank, const struct report_rank *one, double seconds)
{
	struct shares shares = rank_shares(one, seconds);
	double at = 0;

	text_add(out, "<div class=\"bar\"><span>");
	text_html(out, one->node);
	text_add(out,
		 ":%d</span><svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" "
		 "width=\"100%%\" height=\"100%%\" aria-label=\"rank %d:",
		 rank, rank);
	for (int i = 0; i < PARTS; i++)
		text_add(out, " %s %.1f %%%s", parts[i].name, 100 * part_of(&shares, &parts[i]),
			 i + 1 < PARTS ? "," : "\">\n");
	for (int i = 0; i < PARTS; i++) {
		double share = part_of(&shares, &parts[i]);

		if (share <= 0)
			continue;
		text_add(out,
			 "<rect class=\"%s\" x=\"%.2f%%\" width=\"%.2f%%\" height=\"100%%\">"
			 "<title>rank %d, %s: %.1f %%, %s</title></rect>\n",
			 parts[i].colour, 100 * at, 100 * share, rank, parts[i].name, 100 * share,
			 show_seconds(share * seconds).text);
		at += share;
	}
	text_add(out, "</svg><span>%.1f %%</span></div>\n", 100 * shares.compute);
}

struct ranked {
	double work;
	int rank;
};

static int more_work_first(const void *a, const void *b)
{
	const struct ranked *left = a, *right = b;

	return (left->work < right->work) - (left->work > right->work);
}

static int lower_rank_first(const void *a, const void *b)
{
	return ((const struct ranked *)a)->rank - ((const struct ranked *)b)->rank;
}

/* The ranks to be shown: all, or those that work longest, for which the others wait. */
static struct ranked *choose(const struct report_rank *ranks, int count, int *shown)
{
	struct ranked *all = calloc((size_t)count, sizeof(*all));

	*shown = all ? count : 0;
	for (int rank = 0; all && rank < count; rank++)
		all[rank] = (struct ranked){sink_work(&ranks[rank]), rank};
	if (all && count > PAGE_RANKS) {
		qsort(all, (size_t)count, sizeof(*all), more_work_first);
		*shown = PAGE_RANKS;
		qsort(all, (size_t)*shown, sizeof(*all), lower_rank_first);
	}
	return all;
}

void page_draw_times(struct text *out, const struct page *page, const struct report_rank *ranks,
		     double seconds)
{
	int shown;
	struct ranked *chosen = choose(ranks, page->run->ranks, &shown);

	text_add(out,
		 "<figure class=\"times%s\" id=\"times\">\n<figcaption><h2>Where the time "
		 "went</h2><span class=\"legend\">",
		 shown > 16 ? " dense" : "");
	for (int i = 0; i < PARTS; i++)
		text_add(out, "<span><i class=\"%s\"></i>%s</span> ", parts[i].colour,
			 parts[i].name);
	text_add(out, "</span><small>share of %s for each rank; at the right, compute",
		 show_seconds(seconds).text);
	if (shown < page->run->ranks)
		text_add(out, "; the %d of %d ranks that worked longest", shown, page->run->ranks);
	text_add(out, "</small></figcaption>\n");
	for (int i = 0; i < shown; i++)
		draw_bar(out, chosen[i].rank, &ranks[chosen[i].rank], seconds);
	text_add(out, "</figure>\n");
	free(chosen);
}

/* --- Table ------------------------------------------------------------------------------ */

static void draw_row(struct text *out, const struct row *row, bool last)
{
	text_add(out, last ? "<tr class=\"sum\">" : "<tr>");
	for (enum column column = 0; column < COLUMNS; column++) {
		text_add(out, column_words(column) ? "<td class=\"w\">" : "<td>");
		text_html(out, row->cells[column]);
		text_add(out, "</td>");
	}
	text_add(out, "</tr>\n");
}

void page_draw_ranks(struct text *out, const struct page *page, const struct report_rank *ranks,
		     double seconds)
{
	struct row *rows;
	int count = rows_create(&rows, page->run, ranks, seconds);
	int shown = count > PAGE_ROWS ? PAGE_ROWS : count;

	text_add(out, "<section id=\"ranks\"><h2>Ranks</h2>\n<div class=\"scroll\"><table>\n"
		      "<thead><tr>");
	for (enum column column = 0; column < COLUMNS; column++)
		text_add(out, "<th scope=\"col\"%s>%s</th>",
			 column_words(column) ? " class=\"w\"" : "", column_title(column));
	text_add(out, "</tr></thead>\n<tbody>\n");
	for (int i = 0; i < shown - (count > 1); i++)
		draw_row(out, &rows[i], false);
	if (count > 0)
		draw_row(out, &rows[count - 1], count > 1);
	text_add(out, "</tbody></table></div>\n");
	if (shown < count)
		text_add(out, "<p>The ranks from %d on are left out here.</p>\n", shown - 1);
	text_add(out, "</section>\n");
	free(rows);
}
