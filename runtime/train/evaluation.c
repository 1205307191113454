/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/watch.h"
#include "run.h"

/*
 * Running statistics are rank 0's, as PyTorch has it; with SyncBatchNorm all ranks have the same.
 */
static int share_buffers(struct run *run)
{
	struct model *model = run->model;
	int status;

	if (model->buffer_count == 0 || run->world->size == 1 ||
	    option_flag(run->options, OPTION_SYNC_NORM))
		return 0;
	status = run->class->pull(run->engine, &run->error);
	if (status < 0)
		return status;
	status = ddp_broadcast(run->ddp, model->buffers, model->buffer_count * sizeof(float), 0);
	if (status < 0)
		return run_pass_on(run, status);
	return run->class->push(run->engine, &run->error);
}

/* This rank's part. */
static int evaluate_part(struct run *run, struct ddp_sampler *sampler,
			 struct ddp_evaluation *evaluation)
{
	struct batch batch = {.indices = run->indices, .orders = run->orders, .seed = run->seed};
	int status = 0;

	while (status == 0 &&
	       (batch.count = ddp_sampler_take(sampler, run->indices, run->test_batch)) > 0)
		status = run->class->evaluate(run->engine, &batch, evaluation, &run->error);
	return status;
}

int run_evaluate(struct run *run, struct ddp_evaluation *evaluation, double *seconds)
{
	struct ddp_sampler_options options = DDP_SAMPLER_OPTIONS_INIT;
	struct ddp_sampler *sampler = NULL;
	double begin = ddp_seconds();
	int status = run_settle(run);

	if (status == 0)
		status = share_buffers(run);
	memset(evaluation, 0, sizeof(*evaluation));
	options.samples = set_info(run->test)->samples;
	options.rank = run->world->rank;
	options.ranks = run->world->size;
	options.shuffle = false;
	options.exact = true;
	if (status == 0)
		status = ddp_sampler_create(&sampler, &options, &run->error);
	if (status == 0)
		status = evaluate_part(run, sampler, evaluation);
	ddp_sampler_destroy(sampler);
	if (status < 0)
		return status;
	run->meter.mine.evaluation += ddp_seconds() - begin;
	status = ddp_evaluation_reduce(run->ddp, evaluation);
	*seconds = ddp_seconds() - begin;
	return status < 0 ? run_pass_on(run, status) : 0;
}
