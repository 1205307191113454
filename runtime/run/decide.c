/* SPDX-License-Identifier: Apache-2.0 */
/* decide.c - rules that decide what to do after an attempt */
#include "config.h"

#include "decide.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * Number of seconds before the job's end. A program that stops within them has probably stopped in
 * order to save its state.
 */
enum { LAST = 120 };

const char *run_end_name(enum run_end end)
{
	static const char *const names[] = {
#define RUN_END(id, name) name,
		RUN_ENDS(RUN_END)
#undef RUN_END
	};

	return names[end];
}

static struct run_decision __attribute__((format(printf, 4, 5)))
decide(enum run_act act, int status, int nodes, const char *format, ...)
{
	struct run_decision decision = {act, status, nodes, ""};
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(decision.why, sizeof(decision.why), format, arguments);
	va_end(arguments);
	return decision;
}

/*
 * Whether the attempts make no progress. If the times of checkpoints are known, a newer checkpoint
 * is progress, even if a rank fails at the same line each time. Otherwise, a different point of
 * failure is progress. A lost node or a refusal shows nothing about the program's progress.
 */
static bool is_stuck(const struct run_past *past, int count)
{
	const struct run_past *last = &past[RUN_SAME - 1];

	if (count < RUN_SAME)
		return false;
	for (int i = 0; i < RUN_SAME; i++)
		if (past[i].end == RUN_END_NODE || past[i].again ||
		    (past[i].refused && last->saved >= 0))
			return false;
	if (last->saved >= 0)
		return last->saved <= past[0].saved;
	for (int i = 0; i < RUN_SAME; i++)
		if (!last->point[0] || strcmp(past[i].point, last->point) != 0)
			return false;
	return true;
}

/*
 * Whether an attempt may have failed because of the end of the job's time, although nothing reports
 * that. An attempt that took less time than is left has crashed, and a requeue would not help.
 */
static bool is_near_end(const struct run_past *last)
{
	return last->left < LAST && last->took > last->left;
}

struct run_decision run_decide(const struct run_rules *rules, const struct run_past *past,
			       int count, const struct run_nodes *nodes)
{
	/* Only a requeue can continue the program after these ends of an attempt. */
	static const char *const ends_of_job[RUN_END_REFUSED + 1] = {
		[RUN_END_TIME_LIMIT] = "Slurm ended the job",
		[RUN_END_PREEMPTED] = "Slurm ended the job",
		[RUN_END_WARNED] = "a signal announced the end of the job",
		[RUN_END_STOPPED] = "the program stopped on request"};
	const struct run_past *last = &past[count < RUN_SAME ? count - 1 : RUN_SAME - 1];
	int least = rules->min_nodes ? rules->min_nodes : nodes->wanted;
	/*
	 * srun's status is 0 if ranks exit with 0 when ddp-run ends a hang, or when Slurm ends the
	 * ranks on the remaining nodes after a node was lost.
	 */
	int bad = last->status ? last->status : RUN_STATUS_BAD;

	if (last->end == RUN_END_GOOD)
		return decide(RUN_STOP, last->status, 0, "the program ended well");
	if (last->end == RUN_END_REFUSED && !last->again)
		return decide(RUN_STOP, last->status, 0,
			      "another attempt would fail in the same way");
	if (last->end == RUN_END_CANCELLED)
		return decide(RUN_STOP, last->status, 0, "%s",
			      last->forced ? "srun received SIGTERM or SIGHUP"
					   : "the program was cancelled");
	if (ends_of_job[last->end])
		return decide(rules->requeue ? RUN_REQUEUE : RUN_STOP, last->status, 0, "%s",
			      ends_of_job[last->end]);
	if (is_stuck(past, count))
		return decide(RUN_STOP, RUN_STATUS_STUCK, 0, "%d attempts in a row %s", RUN_SAME,
			      last->saved >= 0 ? "left no newer checkpoint"
					       : "ended at the same point");
	if (rules->requeue && is_near_end(last))
		return decide(RUN_REQUEUE, last->status, 0, "%.0f s are left of the job's time",
			      last->left);
	if (count > rules->restarts)
		return decide(RUN_STOP, bad, 0, "the limit of %d restarts is reached",
			      rules->restarts);
	if (nodes->usable >= nodes->wanted)
		return decide(RUN_RESTART, bad, nodes->wanted, "restart %d of %d", count,
			      rules->restarts);
	if (nodes->usable >= least && !nodes->fixed)
		return decide(RUN_RESTART, bad, nodes->usable, "restart %d of %d, with fewer nodes",
			      count, rules->restarts);
	if (rules->requeue)
		return decide(RUN_REQUEUE, RUN_STATUS_NODES, 0, "%d of %d nodes can be used",
			      nodes->usable, nodes->wanted);
	if (nodes->fixed && nodes->usable >= least)
		return decide(RUN_STOP, RUN_STATUS_NODES, 0, "%d of %d nodes can be used, and %s",
			      nodes->usable, nodes->wanted, nodes->why);
	return decide(RUN_STOP, RUN_STATUS_NODES, 0, "the program needs %d nodes and has %d", least,
		      nodes->usable);
}

const char *run_bad_node(const struct run_past *past, int count)
{
	const struct run_past *last = &past[count < RUN_SAME ? count - 1 : RUN_SAME - 1];

	return count > 1 && last->node[0] && strcmp(last[0].node, last[-1].node) == 0 ? last->node
										      : NULL;
}

bool run_may_requeue(int requeued, int most, double saved, double submitted, double limit)
{
	return requeued < most || (saved > 0 && saved > submitted - limit);
}

bool run_cannot_continue(const struct run_raised *rank)
{
	if (rank->place == STACK_ENDS)
		return rank->uncaught || (rank->is_checked && !rank->active && !rank->others);
	return rank->place == STACK_UNKNOWN && rank->uncaught && !rank->active;
}

bool run_is_doubtful(const struct run_raised *rank)
{
	if (rank->place == STACK_UNKNOWN)
		return rank->uncaught || !rank->active;
	return rank->place == STACK_ENDS || (rank->uncaught && !rank->active);
}
