/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/type.h"
#include "model.h"

enum { SHAPE_TEXT = 128 };

/* "[32, 1, 3, 3]" */
static const char *shape_text(char *text, const struct ddp_tensor *tensor)
{
	size_t at = 0;

	text[at++] = '[';
	for (int i = 0; i < tensor->dimensions && at < SHAPE_TEXT - 24; i++)
		at += (size_t)snprintf(text + at, SHAPE_TEXT - at, "%s%" PRId64, i ? ", " : "",
				       tensor->shape[i]);
	memcpy(text + at, "]", 2);
	return text;
}

/* People save the wrapper instead of what it wraps. */
static bool is_wrapped(const struct ddp_tensors *file, const char *name)
{
	char wrapped[GRAPH_NAME + 8];

	snprintf(wrapped, sizeof(wrapped), "module.%s", name);
	return ddp_tensors_find(file, wrapped);
}

/* The tensor of [file] that [want] asks for, by name, type and shape. */
static int find(const struct ddp_tensors *file, const char *path, const struct ddp_tensor *want,
		const struct ddp_tensor **found, struct ddp_error *error)
{
	const struct ddp_tensor *got = *found = ddp_tensors_find(file, want->name);
	char here[SHAPE_TEXT], there[SHAPE_TEXT];

	if (!got)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s: there is no tensor %s%s", path,
				     want->name,
				     is_wrapped(file, want->name)
					     ? ", but a module's: save model.module.state_dict()"
					     : "");
	if (got->type != want->type)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s: %s is %s, not %s", path,
				     want->name,
				     got->type == DDP_TYPE_COUNT ? "of a type that is not known"
								 : ddp_type_name(got->type),
				     ddp_type_name(want->type));
	if (got->dimensions != want->dimensions ||
	    memcmp(got->shape, want->shape, (size_t)want->dimensions * sizeof(want->shape[0])))
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: %s has shape %s, the network's has %s", path, want->name,
				     shape_text(there, got), shape_text(here, want));
	return 0;
}

int model_read(struct model *model, const char *path, struct ddp_error *error)
{
	struct model_tensors tensors = {0};
	struct ddp_tensors *file = NULL;
	int status = model_tensors_create(&tensors, model, false, error);

	if (status == 0)
		status = ddp_tensors_open(&file, path, error);
	for (size_t i = 0; status == 0 && i < tensors.count; i++) {
		const struct ddp_tensor *want = &tensors.list[i], *found;

		/* A counter; files of other writers need not have it. */
		if (want->data == &tensors.steps)
			continue;
		status = find(file, path, want, &found, error);
		if (status == 0)
			memcpy(want->data, found->data, ddp_tensor_count(want) * sizeof(float));
	}
	if (status == 0)
		model_tensors_import(&tensors, model);
	if (file)
		ddp_tensors_close(file);
	model_tensors_destroy(&tensors);
	return status;
}
