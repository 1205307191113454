/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pmix.c - aborts by the rendezvous method pmix, in a process with several worlds
 *
 * This file defines the functions of PMIx that communicate, for a step of one rank. As PMIx does,
 * they deliver old events to each new handler.
 */
#include "config.h"

/* PMIx's inline functions cause these warnings. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <pmix.h>
#pragma GCC diagnostic pop

/* The result of this function depends on PMIx's version. */
#define PMIx_Register_event_handler register_handler
static void register_handler(pmix_status_t codes[], size_t code_count, pmix_info_t info[],
			     size_t count, pmix_notification_fn_t handler,
			     pmix_hdlr_reg_cbfunc_t done, void *data);

#include "store/pmix-store.c"
#include "unit.h"

enum { MOST = 8 };

static pmix_notification_fn_t handlers[MOST];
static size_t handler_count;

static struct event {
	pmix_info_t info[4];
	size_t count;
} events[MOST];
static size_t event_count;

static void deliver_event(size_t handler, struct event *event)
{
	handlers[handler](handler, ABORT_CODE, NULL, event->info, event->count, NULL, 0, NULL,
			  NULL);
}

pmix_status_t PMIx_Init(pmix_proc_t *proc, pmix_info_t info[], size_t count)
{
	(void)info;
	(void)count;
	PMIX_LOAD_PROCID(proc, "step", 0);
	return PMIX_SUCCESS;
}

pmix_status_t PMIx_Get(const pmix_proc_t *proc, const char key[], const pmix_info_t info[],
		       size_t count, pmix_value_t **value)
{
	(void)proc;
	(void)info;
	(void)count;
	if (strcmp(key, PMIX_JOB_SIZE) != 0)
		return PMIX_ERR_NOT_FOUND;
	*value = calloc(1, sizeof(**value));
	(*value)->type = PMIX_UINT32;
	(*value)->data.uint32 = 1;
	return PMIX_SUCCESS;
}

static void register_handler(pmix_status_t codes[], size_t code_count, pmix_info_t info[],
			     size_t count, pmix_notification_fn_t handler,
			     pmix_hdlr_reg_cbfunc_t done, void *data)
{
	(void)codes;
	(void)code_count;
	(void)info;
	(void)count;
	handlers[handler_count] = handler;
	for (size_t i = 0; i < event_count; i++)
		deliver_event(handler_count, &events[i]);
	done(PMIX_SUCCESS, handler_count++, data);
}

pmix_status_t PMIx_Notify_event(pmix_status_t status, const pmix_proc_t *source,
				pmix_data_range_t range, const pmix_info_t info[], size_t count,
				pmix_op_cbfunc_t done, void *data)
{
	struct event *event = &events[event_count++];

	(void)status;
	(void)source;
	(void)range;
	event->count = count;
	for (size_t i = 0; i < count; i++) {
		event->info[i] = info[i];
		if (info[i].value.type == PMIX_STRING)
			event->info[i].value.data.string = strdup(info[i].value.data.string);
	}
	for (size_t i = 0; i < handler_count; i++)
		deliver_event(i, event);
	done(PMIX_SUCCESS, data);
	return PMIX_SUCCESS;
}

static struct ddp_store *open_store(void)
{
	static const struct ddp_identity identity = {.rank = 0, .size = 1, .host = "n0"};
	struct ddp_watch watch = ddp_watch_start(20, NULL, NULL);
	struct ddp_error error = {0};
	struct ddp_store *store = NULL;

	ck_assert_msg(ddp_module.open(&store, &identity, &watch, &error) == 0, "%s", error.text);
	return store;
}

static const char *abort_of(struct ddp_store *store)
{
	ddp_module.poll_abort(store);
	return store->abort;
}

TEST(test_abort_ends_only_its_own_world)
{
	struct ddp_store *first = open_store(), *second = open_store(), *later;

	ddp_module.abort(first, "the data set is empty");
	unit_has("first", abort_of(first), "rank 0 on n0: the data set is empty");
	ck_assert_str_eq(abort_of(second), "");
	ddp_module.close(first, false);
	later = open_store();
	ck_assert_str_eq(abort_of(later), "");
	ddp_module.abort(later, "no file");
	ddp_module.abort(later, "a later error");
	unit_has("later", abort_of(later), "rank 0 on n0: no file");
	ck_assert_str_eq(abort_of(second), "");
	ddp_module.close(later, false);
	ddp_module.close(second, false);
}

UNIT_MAIN("pmix", NULL)
