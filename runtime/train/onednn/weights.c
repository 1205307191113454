/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/error.h"
#include "scratch.h"
#include "weights.h"

struct weights_copy {
	struct weights_copy *next;
	size_t users;
	struct plan *enter; /* from the caller's weights to it */
	void *data;
	bool fresh;
};

void weights_load(struct weights *weights, const float *plain)
{
	weights->plain = plain;
	for (struct weights_copy *copy = weights->copies; copy; copy = copy->next)
		copy->fresh = false;
}

static void copy_free(struct weights_copy *copy)
{
	plan_destroy(copy->enter);
	free(copy->data);
	free(copy);
}

static int copy_create(struct weights_copy **copy, struct plan *enter, struct ddp_error *error)
{
	struct weights_copy *made = calloc(1, sizeof(*made));
	void *data = scratch_alloc(plan_bytes(enter, PLAN_Y));

	if (!made || !data) {
		free(made);
		free(data);
		plan_destroy(enter);
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a copy of weights");
	}
	*made = (struct weights_copy){.enter = enter, .data = data};
	*copy = made;
	return 0;
}

int weights_want(struct weights *weights, struct weights_copy **copy, const struct plan *plan,
		 struct ddp_error *error)
{
	struct plan *enter;
	int rc;

	for (*copy = weights->copies; *copy; *copy = (*copy)->next)
		if (plan_fits((*copy)->enter, PLAN_Y, plan)) {
			(*copy)->users++;
			return 0;
		}
	rc = plan_enter(&enter, plan, PLAN_WEIGHTS, error);
	if (rc || !enter)
		return rc;
	rc = copy_create(copy, enter, error);
	if (rc)
		return rc;
	(*copy)->users = 1;
	(*copy)->next = weights->copies;
	weights->copies = *copy;
	return 0;
}

void weights_drop(struct weights *weights, struct weights_copy *copy)
{
	struct weights_copy **link = &weights->copies;

	if (!copy || --copy->users)
		return;
	while (*link != copy)
		link = &(*link)->next;
	*link = copy->next;
	copy_free(copy);
}

static int copy_refresh(struct weights_copy *copy, const float *plain, struct ddp_error *error)
{
	void *const data[PLAN_SLOTS] = {[PLAN_X] = (void *)plain, [PLAN_Y] = copy->data};
	struct scratch scratch;
	int rc;

	if (scratch_take(&scratch, plan_scratch(copy->enter)))
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to reorder weights");
	rc = plan_run(copy->enter, data, scratch.data, error);
	scratch_give(&scratch);
	copy->fresh = rc == 0;
	return rc;
}

int weights_get(struct weights *weights, struct weights_copy *copy, void **data,
		struct ddp_error *error)
{
	if (!weights->plain)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "a layer computes before its weights "
				     "were loaded");
	*data = copy ? copy->data : (void *)weights->plain;
	return copy && !copy->fresh ? copy_refresh(copy, weights->plain, error) : 0;
}
