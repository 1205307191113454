/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "job.h"
#include "scratch.h"

static const enum plan_slot results[] = {
	[MATH_FORWARD] = PLAN_Y, [MATH_BACK_DATA] = PLAN_X, [MATH_BACK_WEIGHTS] = PLAN_WEIGHTS};

static size_t up(size_t bytes)
{
	return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

static void job_place(struct job *job, enum plan_slot slot, size_t bytes)
{
	job->offsets[slot] = job->bytes;
	job->bytes += up(bytes);
}

/* The reorder of [slot], if any, and its place behind the scratch memory of primitives. */
static int job_turn(struct job *job, enum plan_slot slot, struct ddp_error *error)
{
	int rc = slot == job->result ? plan_leave(&job->turns[slot], job->plan, slot, error)
				     : plan_enter(&job->turns[slot], job->plan, slot, error);

	if (rc == 0 && job->turns[slot])
		job_place(job, slot, plan_bytes(job->plan, slot));
	return rc;
}

static size_t job_scratch(const struct job *job)
{
	size_t bytes = plan_scratch(job->plan);

	for (int slot = 0; slot < PLAN_SLOTS; slot++)
		if (job->turns[slot] && plan_scratch(job->turns[slot]) > bytes)
			bytes = plan_scratch(job->turns[slot]);
	if (job->has_columns && columns_scratch(&job->columns) > bytes)
		bytes = columns_scratch(&job->columns);
	return up(bytes);
}

static int job_fill(struct job *job, struct ddp_error *error)
{
	size_t scratch;
	int rc = 0;

	if (job->has_columns)
		job_place(job, PLAN_X, columns_bytes(&job->columns));
	else
		rc = job_turn(job, PLAN_X, error);
	if (rc == 0)
		rc = job_turn(job, PLAN_Y, error);
	if (rc == 0 && job->weights)
		rc = weights_want(job->weights, &job->copy, job->plan, error);
	else if (rc == 0)
		rc = job_turn(job, PLAN_WEIGHTS, error);
	scratch = job_scratch(job);
	for (int slot = 0; slot < PLAN_SLOTS; slot++)
		job->offsets[slot] += scratch;
	job->bytes += scratch;
	return rc;
}

int job_create(struct job **job, const struct plan_options *options, struct weights *weights,
	       struct ddp_error *error)
{
	struct job *made = calloc(1, sizeof(*made));
	struct plan_options asked = *options;
	int rc;

	if (!made)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a primitive");
	made->result = results[options->pass];
	made->weights = made->result == PLAN_WEIGHTS ? NULL : weights;
	made->has_columns = options->columns;
	columns_init(&made->columns, options);
	if (options->columns)
		columns_ask(&asked);
	rc = plan_create(&made->plan, &asked, error);
	if (rc == 0)
		rc = job_fill(made, error);
	if (rc == 0)
		*job = made;
	else
		job_destroy(made);
	return rc;
}

void job_destroy(struct job *job)
{
	if (!job)
		return;
	if (job->weights)
		weights_drop(job->weights, job->copy);
	for (int slot = 0; slot < PLAN_SLOTS; slot++)
		plan_destroy(job->turns[slot]);
	plan_destroy(job->plan);
	free(job);
}

static int turn(struct plan *plan, void *from, void *to, void *scratch, struct ddp_error *error)
{
	void *const data[PLAN_SLOTS] = {[PLAN_X] = from, [PLAN_Y] = to};

	return plan_run(plan, data, scratch, error);
}

/* From the caller's [data] to what the primitive takes. */
static int job_enter(struct job *job, void *const data[PLAN_SLOTS], void *own[PLAN_SLOTS],
		     char *scratch, struct ddp_error *error)
{
	int rc = 0;

	for (int slot = 0; slot < PLAN_SLOTS && rc == 0; slot++) {
		bool columns = slot == PLAN_X && job->has_columns;

		own[slot] = job->turns[slot] || columns ? scratch + job->offsets[slot] : data[slot];
		if (slot == (int)job->result)
			continue;
		if (columns)
			columns_gather(&job->columns, data[slot], own[slot]);
		else if (job->turns[slot])
			rc = turn(job->turns[slot], data[slot], own[slot], scratch, error);
	}
	return rc;
}

/* And its result back. */
static int job_leave(struct job *job, void *const data[PLAN_SLOTS], void *const own[PLAN_SLOTS],
		     char *scratch, struct ddp_error *error)
{
	enum plan_slot slot = job->result;

	if (slot == PLAN_X && job->has_columns)
		columns_scatter(&job->columns, own[slot], data[slot], scratch);
	else if (job->turns[slot])
		return turn(job->turns[slot], own[slot], data[slot], scratch, error);
	return 0;
}

static int job_compute(struct job *job, void *const data[PLAN_SLOTS], void *weights, char *scratch,
		       struct ddp_error *error)
{
	void *own[PLAN_SLOTS];
	int rc = job_enter(job, data, own, scratch, error);

	if (job->weights)
		own[PLAN_WEIGHTS] = weights;
	if (rc == 0)
		rc = plan_run(job->plan, own, scratch, error);
	if (rc == 0)
		rc = job_leave(job, data, own, scratch, error);
	return rc;
}

int job_run(struct job *job, void *const data[PLAN_SLOTS], struct ddp_error *error)
{
	struct scratch scratch;
	void *weights = NULL;
	int rc = job->weights ? weights_get(job->weights, job->copy, &weights, error) : 0;

	if (rc)
		return rc;
	if (scratch_take(&scratch, job->bytes))
		return ddp_error_set(error, DDP_ERR_MEMORY,
				     "no memory (%zu bytes) to compute a layer", job->bytes);
	rc = job_compute(job, data, weights, scratch.data, error);
	scratch_give(&scratch);
	return rc;
}
