/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "kept.h"

struct ddp_kept {
	struct ddp_kept *next;
	max_align_t data[];
};

void *ddp_kept_add(struct ddp *ddp, size_t size)
{
	struct ddp_kept *kept;

	if (size > SIZE_MAX - sizeof(*kept))
		return NULL;
	kept = calloc(1, sizeof(*kept) + size);
	if (!kept)
		return NULL;
	kept->next = ddp->kept;
	ddp->kept = kept;
	return kept->data;
}

void ddp_kept_free(struct ddp *ddp)
{
	while (ddp->kept) {
		struct ddp_kept *kept = ddp->kept;

		ddp->kept = kept->next;
		free(kept);
	}
}
