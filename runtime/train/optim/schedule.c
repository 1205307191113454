/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "optim.h"

static const char *const names[SCHEDULE_KINDS + 1] = {
	[SCHEDULE_CONSTANT] = "constant",
	[SCHEDULE_STEP] = "step",
	[SCHEDULE_COSINE] = "cosine",
};

const char *const *schedule_names(void)
{
	return names;
}

/* One multiplication after the other, whose roundings a power would not repeat. */
static double step_rate(const struct schedule *schedule, unsigned epoch)
{
	double rate = schedule->rate;

	for (unsigned i = schedule->every > 0 ? epoch / schedule->every : 0; i > 0; i--)
		rate *= schedule->gamma;
	return rate;
}

static double cosine_rate(const struct schedule *schedule, unsigned epoch)
{
	if (schedule->epochs == 0)
		return schedule->rate;
	return schedule->rate * (1 + cos(M_PI * epoch / schedule->epochs)) / 2;
}

static double epoch_rate(const struct schedule *schedule, unsigned epoch)
{
	if (schedule->kind == SCHEDULE_STEP)
		return step_rate(schedule, epoch);
	if (schedule->kind == SCHEDULE_COSINE)
		return cosine_rate(schedule, epoch);
	return schedule->rate;
}

double schedule_rate(const struct schedule *schedule, unsigned epoch, uint64_t step, uint64_t steps)
{
	double rate = epoch_rate(schedule, epoch);
	/* The end of the step, so that the first one already learns. */
	double done = epoch + (steps > 0 ? (double)(step + 1) / (double)steps : 0);

	return done < schedule->warmup ? rate * done / schedule->warmup : rate;
}
