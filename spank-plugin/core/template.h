/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template.h - the directory that --ddp-rdzv names
 *
 * %j is the job id, %s the step id, %u the user's name, %n the node of rank 0.
 * '?', '#' and any other '%' are refused: the path becomes part of a URL, and
 * readers of that URL would cut it there.
 */
#ifndef DDP_CORE_TEMPLATE_H
#define DDP_CORE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "text.h"

struct ddp_template_values {
	const char *job, *step, *user, *node; /* NULL: not known, using it is an error */
};

/*
 * Tell whether [template] can be used. [what] names it in the message.
 * Returns 0, or -1 with a message.
 */
int ddp_template_check(const char *template, const char *what, struct ddp_message *message);

/*
 * Write [template] with its placeholders replaced into [path].
 * Returns 0, or -1 with a message.
 */
int ddp_template_expand(const char *template, const struct ddp_template_values *values, char *path,
			size_t size, struct ddp_message *message);

/*
 * Tell whether [path] can be part of a file:// URL as it stands.
 * Returns true or false.
 */
bool ddp_path_fits_url(const char *path);

#endif /* DDP_CORE_TEMPLATE_H */
