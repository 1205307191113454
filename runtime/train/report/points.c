/* SPDX-License-Identifier: Apache-2.0 */
/* points.c - curves for TensorBoard */
#include "config.h"

#include "sink.h"

/* The share of [phase] in the time that all ranks spent in steps. */
static double share(const struct report_rank *ranks, int count, int phase)
{
	double part = 0, all = 0;

	for (int rank = 0; rank < count; rank++)
		for (int other = 0; other < ENGINE_PHASES; other++) {
			all += ranks[rank].seconds[other];
			part += other == phase ? ranks[rank].seconds[other] : 0;
		}
	return all > 0 ? part / all : 0;
}

void points_beat(struct ddp_events *events, const struct report_run *run,
		 const struct report_beat *beat)
{
	static const char *const tags[ENGINE_PHASES] = {
		[ENGINE_DATA] = "time/data",
		[ENGINE_COMPUTE] = "time/compute",
		[ENGINE_REDUCE] = "time/all_reduce",
	};
	int64_t step = (int64_t)beat->total;

	ddp_events_scalar(events, "train/loss", step, beat->loss);
	ddp_events_scalar(events, "train/top1", step, beat->top1);
	ddp_events_scalar(events, "train/lr", step, beat->rate);
	ddp_events_scalar(events, "train/images_per_second", step,
			  sink_speed(beat->samples, beat->seconds));
	if (beat->scale > 0)
		ddp_events_scalar(events, "train/loss_scale", step, beat->scale);
	for (int phase = 0; beat->ranks && phase < ENGINE_PHASES; phase++)
		ddp_events_scalar(events, tags[phase], step, share(beat->ranks, run->ranks, phase));
}

void points_epoch(struct ddp_events *events, const struct report_epoch *epoch)
{
	int64_t step = (int64_t)epoch->total;

	if (epoch->evaluated) {
		ddp_events_scalar(events, "test/loss", step, epoch->loss);
		ddp_events_scalar(events, "test/top1", step, epoch->top1);
		ddp_events_scalar(events, "test/top5", step, epoch->top5);
	}
	ddp_events_flush(events);
}
