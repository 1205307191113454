/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/watch.h"
#include "run.h"
#include "stop.h"

/* --- Errors -------------------------------------------------------------------------------- */

int run_pass_on(struct run *run, int status)
{
	return ddp_error_set(&run->error, status, "%s", ddp_error(run->ddp));
}

int run_pass_on_shared(struct run *run, int status)
{
	run->shared = !ddp_is_peer_error(status);
	return run_pass_on(run, status);
}

/* What a rank tells of itself: its error, and where it is. */
struct verdict {
	struct ddp_error error;
	char host[64];
};

/*
 * Take the error of the first rank that has one. It is named if others are well, unless it is the
 * first of all, which tells it.
 */
static int take_first(struct run *run, const struct verdict *verdicts)
{
	const struct verdict *first = NULL;
	int size = run->world->size, failed = 0, rank = 0;

	for (int i = size - 1; i >= 0; i--)
		if (verdicts[i].error.status < 0) {
			first = &verdicts[i];
			rank = i;
			failed++;
		}
	if (!first)
		return 0;
	run->shared = true;
	if (failed == size || rank == 0)
		return ddp_error_set(&run->error, first->error.status, "%s", first->error.text);
	return ddp_error_set(&run->error, first->error.status, "rank %d on %s: %.900s", rank,
			     first->host, first->error.text);
}

int run_agree(struct run *run, int status)
{
	struct verdict mine, *all = NULL;

	if (status < 0 && ddp_is_peer_error(status))
		return status;
	if (run->world->size == 1)
		return status < 0 ? status : 0;
	memset(&mine, 0, sizeof(mine));
	if (status < 0)
		mine.error = run->error;
	snprintf(mine.host, sizeof(mine.host), "%s", run->world->host);
	all = calloc((size_t)run->world->size, sizeof(*all));
	if (!all)
		return ddp_error_set(&run->error, DDP_ERR_MEMORY, "no memory for %d ranks' errors",
				     run->world->size);
	status = ddp_all_gather(run->ddp, &mine, all, sizeof(mine));
	status = status < 0 ? run_pass_on(run, status) : take_first(run, all);
	free(all);
	return status;
}

int run_agree_likely(struct run *run, int status)
{
	bool own = status == DDP_ERR_MEMORY || status == DDP_ERR_SYSTEM || status == DDP_ERR_ENGINE;

	return own ? status : run_agree(run, status);
}

/*
 * One line for each thing that went wrong: who has it tells it, and those who wait for this rank.
 * What another rank told them, ranks but the first do not repeat.
 */
static int tell(struct run *run, int status)
{
	bool quiet = run->world->rank != 0 && (run->shared || status == DDP_ERR_ABORTED);

	report_close(run->report, NULL);
	run->report = NULL;
	if (!quiet)
		ddp_log(run->ddp, DDP_LEVEL_ERROR, "train", "%s", run->error.text);
	if (!run->shared && !ddp_is_peer_error(status) && run->world->size > 1)
		ddp_abort(run->ddp, "%s", run->error.text);
	return ddp_exit_status(status);
}

/* --- The end --------------------------------------------------------------------------------- */

static void say_end(struct run *run)
{
	const char *model = option_text(run->options, OPTION_SAVE_MODEL);
	struct report_end told = {
		.reason = run->reason,
		.best_top1 = run->progress.best,
		.best_epoch = run->progress.best_epoch,
		.seconds = ddp_seconds() - run->begin,
		.checkpoint = run->keeper.any ? run->keeper.directory : NULL,
		.model = *model && !run->stopping ? model : NULL,
	};

	report_end(run->report, &told);
}

/* --evaluate: the test set alone. */
static int evaluate_only(struct run *run)
{
	struct ddp_evaluation evaluation;
	struct report_epoch told = {
		.epoch = run->progress.best_epoch,
		.total = run->progress.total,
		.train_loss = (double)NAN,
		.train_top1 = (double)NAN,
		.evaluated = true,
	};
	int status = run_evaluate(run, &evaluation, &told.evaluation);

	if (status < 0)
		return status;
	told.loss = evaluation.loss / (double)evaluation.samples;
	told.top1 = (double)evaluation.top1 / (double)evaluation.samples;
	told.top5 = (double)evaluation.top5 / (double)evaluation.samples;
	told.test_samples = evaluation.samples;
	report_epoch(run->report, &told);
	snprintf(run->reason, sizeof(run->reason), "evaluated");
	run->progress.best = told.top1;
	return meter_end(run);
}

static int run_all(struct run *run)
{
	int status = run_open(run);

	if (status == 0)
		status = run_introduce(run);
	if (status < 0)
		return status;
	if (option_flag(run->options, OPTION_EVALUATE))
		return evaluate_only(run);
	return run_train(run);
}

int trainer_run(struct ddp *ddp, const struct options *options)
{
	struct run *run = calloc(1, sizeof(*run));
	int status;

	if (!run) {
		ddp_abort(ddp, "out of memory");
		return ddp_exit_status(DDP_ERR_MEMORY);
	}
	run->ddp = ddp;
	run->world = ddp_world(ddp);
	run->options = options;
	run->begin = ddp_seconds();
	stop_politely();
	status = run_all(run);
	if (status == 0) {
		say_end(run);
		status = ddp_exit_status(report_close(run->report, NULL));
		status = run->stopping ? TRAINER_STOPPED : status;
	} else {
		status = tell(run, status);
	}
	run_close(run);
	free(run);
	return status;
}
