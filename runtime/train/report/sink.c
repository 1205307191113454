/* SPDX-License-Identifier: Apache-2.0 */
/* sink.c - sums and rates of intervals, and formatting of numbers, for all sinks */
#include "config.h"

#include <math.h>

#include "sink.h"

void sink_add(struct report_interval *sum, const struct report_interval *interval)
{
	double before = (double)sum->samples, now = (double)interval->samples;
	struct report_interval both = *interval;

	if (before > 0) {
		both.loss = (sum->loss * before + interval->loss * now) / (before + now);
		both.top1 = (sum->top1 * before + interval->top1 * now) / (before + now);
		both.samples += sum->samples;
		both.seconds += sum->seconds;
	}
	*sum = both;
}

double sink_speed(const struct report_interval *interval)
{
	return interval->seconds > 0 ? (double)interval->samples / interval->seconds : 0;
}

double sink_work(const struct report_work *work)
{
	return work->seconds[ENGINE_DATA] + work->seconds[ENGINE_COMPUTE];
}

/* --- Formatting ---------------------------------------------------------------------- */

struct ddp_shown show_loss(double loss)
{
	double size = fabs(loss);

	if (isnan(loss))
		return ddp_show("nan");
	return ddp_show(size == 0 || (size >= 0.001 && size < 10000) ? "%.4f" : "%.3g", loss);
}

struct ddp_shown show_percent(double fraction)
{
	return isnan(fraction) ? ddp_show("nan") : ddp_show("%.2f %%", 100 * fraction);
}

/* Rounds [seconds] to an integer, limited to the range from 0 to a hundred years. */
static long whole(double seconds)
{
	return seconds > 0 ? (long)(fmin(seconds, 3.2e9) + 0.5) : 0;
}

struct ddp_shown show_seconds(double seconds)
{
	long all = whole(seconds);

	if (!(seconds >= 59.95))
		return ddp_show("%.1f s", seconds > 0 ? seconds : 0);
	if (all < 3600)
		return ddp_show("%ld min %02ld s", all / 60, all % 60);
	if (all < 86400)
		return ddp_show("%ld h %02ld min", all / 3600, all / 60 % 60);
	return ddp_show("%ld d %ld h", all / 86400, all / 3600 % 24);
}

struct ddp_shown show_clock(double seconds)
{
	long all = whole(seconds);

	if (all < 3600)
		return ddp_show("%ld:%02ld", all / 60, all % 60);
	if (all < 360000)
		return ddp_show("%ld:%02ld:%02ld", all / 3600, all / 60 % 60, all % 60);
	return ddp_show("%ld d", all / 86400);
}
