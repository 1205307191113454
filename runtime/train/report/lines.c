/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c - a log that people read in a file */
#include "config.h"

#include "sink.h"

void lines_run(struct text *out, const struct report_run *run)
{
	text_plain(out, run->title);
	text_add(out, "\n%d rank%s on %d node%s, ", run->ranks, run->ranks == 1 ? "" : "s",
		 run->nodes, run->nodes == 1 ? "" : "s");
	text_plain(out, run->engine);
	text_add(out, "\n");
	if (run->epochs)
		text_add(out, "%u epoch%s of %s steps, %s samples a step\n", run->epochs,
			 run->epochs == 1 ? "" : "s", show_count((double)run->steps).text,
			 show_count((double)run->batch).text);
	if (run->begin)
		text_add(out, "goes on from step %s of %s\n", show_count((double)run->begin).text,
			 show_count((double)sink_last_step(run)).text);
}

void lines_beat(struct text *out, const struct report_run *run, const struct report_beat *beat)
{
	text_add(out, "epoch %u step %llu/%llu loss %s top1 %s %s img/s lr %.6g", beat->epoch,
		 (unsigned long long)beat->step, (unsigned long long)run->steps,
		 show_loss(beat->loss).text, show_percent(beat->top1).text,
		 show_count(sink_speed(beat->samples, beat->seconds)).text, beat->rate);
	if (beat->scale > 0)
		text_add(out, " scale %g", beat->scale);
	text_add(out, "\n");
}

static void add_test(struct text *out, const struct report_epoch *epoch)
{
	text_add(out, "test loss %s top1 %s top5 %s of %s in %s", show_loss(epoch->loss).text,
		 show_percent(epoch->top1).text, show_percent(epoch->top5).text,
		 show_count((double)epoch->test_samples).text,
		 show_seconds(epoch->evaluation).text);
}

void lines_epoch(struct text *out, const struct report_epoch *epoch)
{
	if (epoch->samples == 0 && epoch->evaluated) { /* nothing was trained */
		add_test(out, epoch);
		text_add(out, "\n");
		return;
	}
	text_add(out, "epoch %u: train loss %s top1 %s, ", epoch->epoch,
		 show_loss(epoch->train_loss).text, show_percent(epoch->train_top1).text);
	if (epoch->evaluated) {
		add_test(out, epoch);
		text_add(out, ", ");
	}
	text_add(out, "epoch %s", show_seconds(epoch->seconds).text);
	text_add(out, "%s\n", epoch->best ? ", best so far" : "");
}
