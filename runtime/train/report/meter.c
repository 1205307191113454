/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "meter.h"

enum { BAR_LEAST = 8, BAR_MOST = 26, GAP = 2 };

/* From left to right. */
static const enum meter_field places[METER_FIELDS] = {
	METER_EPOCH, METER_STEP, METER_BAR,  METER_SPEED,
	METER_LOSS,  METER_HITS, METER_LEFT, METER_SLOWEST,
};

size_t meter_columns(const char *string)
{
	size_t count = 0;

	for (; *string; string++)
		count += ((unsigned char)*string & 0xc0) != 0x80;
	return count;
}

/* [count] columns, caps included, as many of them full as [done] says. */
static void add_bar(struct text *out, const struct meter *meter, size_t count)
{
	static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
	size_t cells = count - 2;
	size_t full = (size_t)(fmin(fmax(meter->done, 0), 1) * (double)cells * 8);

	text_add(out, "%s%s", meter->utf8 ? "▕" : "[", meter->colour ? "\033[36m" : "");
	for (size_t cell = 0; cell < cells; cell++) {
		size_t part = full > cell * 8 ? full - cell * 8 : 0;

		if (meter->utf8)
			text_add(out, "%s", part >= 8 ? "█" : eighths[part]);
		else
			text_add(out, "%s", part >= 8 ? "=" : part > 0 ? ">" : " ");
	}
	text_add(out, "%s%s", meter->colour ? "\033[0m" : "", meter->utf8 ? "▏" : "]");
}

static void add_field(struct text *out, const struct meter *meter, enum meter_field field,
		      size_t width)
{
	const char *string = meter->fields[field];
	bool alarm = meter->colour && field == METER_SLOWEST && meter->alarm;

	text_add(out, "%s", alarm ? "\033[33m" : "");
	for (size_t column = meter_columns(string); column < width; column++)
		text_put(out, " ", 1);
	text_add(out, "%s%s", string, alarm ? "\033[0m" : "");
}

/* Which fields fit, in [widths]; 0: not shown. Returns the columns they take. */
static size_t choose(struct meter *meter, size_t room, size_t widths[METER_FIELDS])
{
	size_t used = 0;

	for (int field = 0; field < METER_FIELDS; field++) {
		size_t width = meter_columns(meter->fields[field]);
		size_t gap = used ? GAP : 0;

		/* The last one on the line moves nothing. */
		if (width > 0 && width < meter->widths[field] && field != METER_SLOWEST)
			width = meter->widths[field];
		meter->widths[field] = width;
		if (field == METER_BAR)
			width = BAR_LEAST;
		widths[field] = width > 0 && used + gap + width <= room ? width : 0;
		if (widths[field])
			used += gap + width;
	}
	return used;
}

size_t meter_compose(struct meter *meter, size_t room, struct text *out)
{
	size_t widths[METER_FIELDS];
	size_t used = choose(meter, room, widths);
	bool first = true;

	if (widths[METER_BAR]) {
		size_t more = room - used;

		more = more < BAR_MOST - BAR_LEAST ? more : BAR_MOST - BAR_LEAST;
		widths[METER_BAR] += more;
		used += more;
	}
	for (int place = 0; place < METER_FIELDS; place++) {
		enum meter_field field = places[place];

		if (!widths[field])
			continue;
		text_add(out, "%s", first ? "" : "  ");
		first = false;
		if (field == METER_BAR)
			add_bar(out, meter, widths[field]);
		else
			add_field(out, meter, field, widths[field]);
	}
	return used;
}
