/* SPDX-License-Identifier: Apache-2.0 */
/*
 * single.c - the method "single": a world of one rank, which meets itself
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "record.h"

struct single {
	struct ddp_rendezvous base;
	struct ddp_puts next, last; /* before and after the fence */
	char abort[DDP_ERROR_SIZE];
	bool aborted;
};

static int single_probe(const struct ddp_identity *identity, struct ddp_error *error)
{
	if (identity->size == 1)
		return 1;
	ddp_error_set(error, DDP_ERR_UNSUPPORTED, "the world has %d ranks", identity->size);
	return 0;
}

static int single_open(struct ddp_rendezvous **rendezvous, const struct ddp_identity *identity,
		       const struct ddp_log *log, const struct ddp_watch *watch,
		       struct ddp_error *error)
{
	struct single *single = calloc(1, sizeof(*single));

	(void)watch;
	*rendezvous = NULL;
	if (!single)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the rendezvous");
	single->base = (struct ddp_rendezvous){&ddp_rendezvous_single, identity, log};
	*rendezvous = &single->base;
	return 0;
}

static int single_put(struct ddp_rendezvous *rendezvous, const char *key, const void *value,
		      size_t size, struct ddp_error *error)
{
	return ddp_puts_add(&((struct single *)rendezvous)->next, key, value, size, error);
}

static int single_fence(struct ddp_rendezvous *rendezvous, const struct ddp_watch *watch,
			struct ddp_error *error)
{
	struct single *single = (struct single *)rendezvous;

	(void)watch;
	if (single->aborted)
		return ddp_error_set(error, DDP_ERR_ABORTED, "%s", single->abort);
	ddp_puts_clear(&single->last);
	single->last = single->next;
	single->next = (struct ddp_puts){0};
	return 0;
}

static int single_get(struct ddp_rendezvous *rendezvous, int rank, const char *key, void *value,
		      size_t *size, struct ddp_error *error)
{
	const struct single *single = (const struct single *)rendezvous;

	if (rank != 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "rendezvous: there is no rank %d of 1", rank);
	return ddp_puts_get(single->last.body, single->last.size, rank, key, value, size, error);
}

static void single_abort(struct ddp_rendezvous *rendezvous, const char *text)
{
	struct single *single = (struct single *)rendezvous;

	if (!single->aborted)
		snprintf(single->abort, sizeof(single->abort), "rank 0 on %s: %.700s",
			 single->base.identity->host, text);
	single->aborted = true;
}

static int single_aborted(struct ddp_rendezvous *rendezvous, char *text, size_t size)
{
	const struct single *single = (const struct single *)rendezvous;

	if (!single->aborted)
		return 0;
	if (size > 0)
		snprintf(text, size, "%s", single->abort);
	return 1;
}

static void single_close(struct ddp_rendezvous *rendezvous, bool clean)
{
	struct single *single = (struct single *)rendezvous;

	(void)clean;
	ddp_puts_clear(&single->next);
	ddp_puts_clear(&single->last);
	free(single);
}

const struct ddp_rendezvous_method ddp_rendezvous_single = {
	.head = {DDP_MODULE_MAGIC, DDP_RENDEZVOUS_VERSION, sizeof(struct ddp_rendezvous_method),
		 "rendezvous", "single", PACKAGE_VERSION},
	.probe = single_probe,
	.open = single_open,
	.put = single_put,
	.fence = single_fence,
	.get = single_get,
	.abort = single_abort,
	.aborted = single_aborted,
	.close = single_close,
};
