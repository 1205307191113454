/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "share.h"

/* --- Memory -------------------------------------------------------------------------------- */

int share_create(struct share *share, struct ddp *ddp, size_t bytes, struct ddp_error *error)
{
	int status;

	*share = (struct share){.ddp = ddp, .bytes = bytes};
	if (ddp) {
		status = ddp_shared_create(ddp, bytes, &share->memory);
		return status < 0 ? ddp_error_set(error, status, "%s", ddp_error(ddp)) : 0;
	}
	share->memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (share->memory != MAP_FAILED)
		return 0;
	share->memory = NULL;
	return ddp_error_errno(error, DDP_ERR_MEMORY, "%zu bytes for a data set", bytes);
}

void share_destroy(struct share *share)
{
	if (share->memory && !share->ddp)
		munmap(share->memory, share->bytes);
	share->memory = NULL;
}

/* --- Agreement ----------------------------------------------------------------------------- */

struct report {
	uint64_t number, size;
	int32_t status, padding;
	char host[64];
};

/* The first of [size] reports with an error, -1 if there is none; [count] gets how many. */
static int first_failed(const struct report *reports, int size, int *count)
{
	int first = -1;

	*count = 0;
	for (int i = size - 1; i >= 0; i--) {
		if (reports[i].status == 0)
			continue;
		first = i;
		++*count;
	}
	return first;
}

/* The error of rank [root] becomes everybody's. */
static int tell(struct ddp *ddp, int root, const struct report *report, bool all,
		struct ddp_error *error)
{
	struct ddp_error told = *error;
	int status = ddp_broadcast(ddp, &told, sizeof(told), root);

	if (status < 0)
		return ddp_error_set(error, status, "%s", ddp_error(ddp));
	if (all)
		return ddp_error_set(error, report->status, "%s", told.text);
	return ddp_error_set(error, report->status, "%s (rank %d on %s)", told.text, root,
			     report->host);
}

static int compare(const struct report *reports, int size, const char *what,
		   struct ddp_error *error)
{
	for (int i = 1; i < size; i++)
		if (reports[i].number != reports[0].number)
			return ddp_error_set(error, DDP_ERR_MISMATCH,
					     "%" PRIu64 " %s on %s (rank 0), but %" PRIu64
					     " on %s (rank %d): give all ranks the same data",
					     reports[0].number, what, reports[0].host,
					     reports[i].number, reports[i].host, i);
	return 0;
}

static int agree(struct ddp *ddp, const struct report *own, struct report *reports,
		 const char *what, size_t *most, struct ddp_error *error)
{
	int size = ddp_world(ddp)->size, failed, first;
	int status = ddp_all_gather(ddp, own, reports, sizeof(*own));

	if (status < 0)
		return ddp_error_set(error, status, "%s", ddp_error(ddp));
	first = first_failed(reports, size, &failed);
	if (first >= 0)
		return tell(ddp, first, &reports[first], failed == size, error);
	for (int i = 0; i < size; i++)
		if (reports[i].size > *most)
			*most = reports[i].size;
	return compare(reports, size, what, error);
}

int share_agree(struct ddp *ddp, int status, const char *what, uint64_t number, size_t *most,
		struct ddp_error *error)
{
	struct ddp_error unread = {0, ""};
	struct report report = {.number = number, .size = *most, .status = status};
	struct report *reports;

	if (!ddp)
		return status;
	if (!error)
		error = &unread;
	snprintf(report.host, sizeof(report.host), "%s", ddp_world(ddp)->host);
	reports = calloc((size_t)ddp_world(ddp)->size, sizeof(*reports));
	if (!reports) {
		ddp_abort(ddp, "out of memory while opening a data set");
		return ddp_error_set(error, DDP_ERR_MEMORY, "out of memory for a data set");
	}
	status = agree(ddp, &report, reports, what, most, error);
	free(reports);
	return status;
}

/* --- Filling ------------------------------------------------------------------------------- */

/* At the beginning of the memory. */
struct head {
	_Atomic uint32_t taken; /* by the rank that fills it */
	uint32_t padding;
	uint64_t notes[SHARE_NOTES];
};

_Static_assert(sizeof(struct head) <= SHARE_HEAD, "the head has its place");

int share_fill(struct share *share, struct ddp *ddp, size_t bytes, share_filler *fill,
	       void *context, struct ddp_error *error)
{
	struct head *head;
	size_t most = 0;
	int status = share_create(share, ddp, SHARE_HEAD + bytes, error);

	if (status < 0)
		return status;
	head = share->memory;
	if (atomic_exchange(&head->taken, 1) == 0)
		status = fill(context, (uint8_t *)share->memory + SHARE_HEAD, head->notes, error);
	return share_agree(ddp, status, "", 0, &most, error);
}

const uint8_t *share_bytes(const struct share *share)
{
	return (const uint8_t *)share->memory + SHARE_HEAD;
}

const uint64_t *share_notes(const struct share *share)
{
	return ((const struct head *)share->memory)->notes;
}
