/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - error handling of a run, and numbers of steps and samples */
#include "config.h"

#include "run.h"

int run_pass_on(struct run *run, int status)
{
	return ddp_error_set(&run->error, status, "%s", ddp_error(run->ddp));
}

int run_pass_on_shared(struct run *run, int status)
{
	run->shared = !ddp_is_peer_error(status);
	return run_pass_on(run, status);
}

int run_agree(struct run *run, int status)
{
	if (status < 0 && ddp_is_peer_error(status))
		return status;
	if (run->world->size == 1)
		return status < 0 ? status : 0;
	status = ddp_agree(run->ddp, status, run->error.text);
	return status < 0 ? run_pass_on_shared(run, status) : 0;
}

uint64_t run_global_batch(const struct run *run)
{
	return (uint64_t)run->batch * (uint64_t)run->total_parts;
}

/* Steps that [samples] need. They are divided evenly among the parts, rounded up. */
static uint64_t steps_for(const struct run *run, uint64_t samples)
{
	uint64_t mine = (samples + run->total_parts - 1) / run->total_parts;

	return (mine + run->batch - 1) / run->batch;
}

uint64_t run_steps(const struct run *run)
{
	uint64_t left = set_info(run->train)->samples - run->progress.position;

	return run->progress.step + steps_for(run, left);
}

double run_position(const struct run *run)
{
	const struct run_progress *progress = &run->progress;
	uint64_t pending = run->pending * run_global_batch(run);
	uint64_t finished = progress->position > pending ? progress->position - pending : 0;

	return progress->epoch + (double)finished / (double)set_info(run->train)->samples;
}

uint64_t run_whole_steps(const struct run *run)
{
	return steps_for(run, set_info(run->train)->samples);
}
