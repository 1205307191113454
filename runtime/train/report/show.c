/* SPDX-License-Identifier: Apache-2.0 */
/* show.c - numbers as people read them */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

struct shown show_count(double number)
{
	struct shown digits, shown;
	size_t size, used = 0;

	if (!isfinite(number) || fabs(number) >= 1e15) {
		snprintf(shown.text, sizeof(shown.text), "%.3g", number);
		return shown;
	}
	snprintf(digits.text, sizeof(digits.text), "%.0f", number);
	size = strlen(digits.text);
	for (size_t i = 0; i < size; i++) {
		shown.text[used++] = digits.text[i];
		if ((size - i) % 3 == 1 && i + 1 < size && digits.text[i] != '-')
			shown.text[used++] = ',';
	}
	shown.text[used] = '\0';
	return shown;
}

struct shown show_loss(double loss)
{
	struct shown shown;
	double size = fabs(loss);
	bool plain = size == 0 || (size >= 0.001 && size < 10000);

	snprintf(shown.text, sizeof(shown.text), plain ? "%.4f" : "%.3g", loss);
	if (isnan(loss))
		snprintf(shown.text, sizeof(shown.text), "nan");
	return shown;
}

struct shown show_percent(double fraction)
{
	struct shown shown;

	snprintf(shown.text, sizeof(shown.text), "%.2f %%", 100 * fraction);
	if (isnan(fraction))
		snprintf(shown.text, sizeof(shown.text), "nan");
	return shown;
}

/* [seconds] in whole ones, 0 to a hundred years. */
static long whole(double seconds)
{
	return seconds > 0 ? (long)(fmin(seconds, 3.2e9) + 0.5) : 0;
}

struct shown show_seconds(double seconds)
{
	struct shown shown;
	long all = whole(seconds);

	if (!(seconds >= 59.95))
		snprintf(shown.text, sizeof(shown.text), "%.1f s", seconds > 0 ? seconds : 0);
	else if (all < 3600)
		snprintf(shown.text, sizeof(shown.text), "%ld min %02ld s", all / 60, all % 60);
	else if (all < 86400)
		snprintf(shown.text, sizeof(shown.text), "%ld h %02ld min", all / 3600,
			 all / 60 % 60);
	else
		snprintf(shown.text, sizeof(shown.text), "%ld d %ld h", all / 86400,
			 all / 3600 % 24);
	return shown;
}

struct shown show_clock(double seconds)
{
	struct shown shown;
	long all = whole(seconds);

	if (all < 3600)
		snprintf(shown.text, sizeof(shown.text), "%ld:%02ld", all / 60, all % 60);
	else if (all < 360000)
		snprintf(shown.text, sizeof(shown.text), "%ld:%02ld:%02ld", all / 3600,
			 all / 60 % 60, all % 60);
	else
		snprintf(shown.text, sizeof(shown.text), "%ld d", all / 86400);
	return shown;
}

struct shown show_bytes(uint64_t bytes)
{
	struct shown shown;
	double mebi = (double)bytes / 1048576;

	if (mebi < 9.95)
		snprintf(shown.text, sizeof(shown.text), "%.1f MiB", mebi);
	else if (mebi < 10240)
		snprintf(shown.text, sizeof(shown.text), "%.0f MiB", mebi);
	else
		snprintf(shown.text, sizeof(shown.text), "%.1f GiB", mebi / 1024);
	return shown;
}
