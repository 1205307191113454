/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "group-private.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum { NOT_OPENED = -1, NOT_POSSIBLE = -2, LIST_SIZE = 512, TEXT_SIZE = 128 };

/* How long to wait for a text that another member is writing. */
#define CLAIM_TIME 100000000u

/* Nanoseconds of patience with members that are away. */
#define PATIENCE UINT64_C(5000000000)

/* --- The end of the group ----------------------------------------------------------------- */

void ddp_group_abort(struct ddp_group *group, int status, const char *text)
{
	struct ddp_group_head *head = group->head;
	uint32_t nobody = 0;

	if (!atomic_compare_exchange_strong(&head->claimed, &nobody, 1))
		return;
	snprintf(head->text, sizeof(head->text), "%s", text);
	atomic_store(&head->aborted, status < 0 ? status : DDP_ERR_ABORTED);
	ddp_wake_all(group);
}

int ddp_group_aborted(const struct ddp_group *group, struct ddp_error *error)
{
	struct ddp_group_head *head = group->head;
	int status = atomic_load_explicit(&head->aborted, memory_order_acquire);

	if (status >= 0)
		return 0;
	return ddp_error_set(error, status, "%.*s", DDP_ERROR_SIZE - 1, head->text);
}

int ddp_group_fail(struct ddp_group *group, const struct ddp_error *cause, struct ddp_error *error)
{
	uint64_t end = ddp_now() + CLAIM_TIME;
	int status;

	ddp_group_abort(group, cause->status, cause->text);
	do {
		status = ddp_group_aborted(group, error);
	} while (status == 0 && ddp_now() < end);
	/* Who was writing died of it. */
	return status < 0 ? status : ddp_error_set(error, cause->status, "%s", cause->text);
}

/* --- Who is missing ----------------------------------------------------------------------- */

/* ": it did not arrive in all-reduce #17", "" outside of calls. */
static void say_where(const struct ddp_group *group, const char *before, const char *verb,
		      char text[TEXT_SIZE])
{
	const struct ddp_call *call = group->call;
	int used;

	*text = '\0';
	if (!call)
		return;
	used = snprintf(text, TEXT_SIZE, "%s%s %.*s", before, verb, DDP_CALL_NAME, call->name);
	if (call->sequence)
		snprintf(text + used, (size_t)(TEXT_SIZE - used), " #%llu",
			 (unsigned long long)call->sequence);
}

/* The steps that [member] published, in one of its two lines. */
static uint32_t member_step(const struct ddp_group *group, int member)
{
	struct ddp_line *lines = group->slots[member]->lines;
	uint32_t a = atomic_load(&lines[0].step), b = atomic_load(&lines[1].step);

	return (int32_t)(a - b) > 0 ? a : b;
}

/* Whether [member] is there: in the group, or in this step of the call. */
static bool is_there(const struct ddp_group *group, int member)
{
	if (atomic_load(&group->slots[member]->state) == DDP_MEMBER_NONE)
		return false;
	return !group->call || (int32_t)(member_step(group, member) - group->step) >= 0;
}

/* Whether [member] began the call at least. */
static bool has_begun(const struct ddp_group *group, int member)
{
	return group->call && (int32_t)(member_step(group, member) - group->first) >= 0;
}

static bool is_away(const struct ddp_group *group, int member)
{
	return atomic_load(&group->slots[member]->away) != 0;
}

/* Whether nobody but members that are away is missing. */
static bool waits_for_away(const struct ddp_group *group)
{
	for (int m = 0; m < group->size; m++)
		if (m != group->index && !is_there(group, m) && !is_away(group, m))
			return false;
	return true;
}

static int say_late(const struct ddp_group *group, const struct ddp_watch *watch,
		    struct ddp_error *cause)
{
	char list[LIST_SIZE] = "", where[TEXT_SIZE];
	int missing = 0;
	size_t used = 0;
	bool begun = true, all = waits_for_away(group);

	for (int m = 0; m < group->size; m++) {
		if (m == group->index || is_there(group, m) || (is_away(group, m) && !all))
			continue;
		begun = begun && has_begun(group, m);
		if (used < sizeof(list) - 16)
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d",
						 missing ? ", " : "", group->ranks[m]);
		missing++;
	}
	say_where(group, " ", begun ? "did not go on in" : "did not arrive in", where);
	return ddp_error_set(cause, DDP_ERR_TIMEOUT, "rank%s %s on %s%s in %g s (%d of %d did)",
			     missing > 1 ? "s" : "", list, group->host,
			     *where ? where : " did not come to the group", watch->limit,
			     group->size - missing, group->size);
}

/* --- Lost processes ----------------------------------------------------------------------- */

/*
 * Numbers of processes are used again, so what was opened is looked at once.
 * Returns the descriptor, to be polled, or a negative number.
 */
static int watch_process(struct ddp_group *group, int member)
{
	const struct ddp_slot *slot = group->slots[member];
	int *fd = &group->pidfds[member];

	if (*fd != NOT_OPENED)
		return *fd;
	*fd = (int)syscall(SYS_pidfd_open, slot->pid, 0);
	if (*fd >= 0 && ddp_process_start(slot->pid) != slot->start) {
		close(*fd);
		*fd = NOT_POSSIBLE;
	}
	return *fd < 0 ? *fd = NOT_POSSIBLE : *fd;
}

/* Joined, not left, of another process, whose number means something here. */
static bool can_be_lost(const struct ddp_group *group, int member)
{
	const struct ddp_slot *slot = group->slots[member], *own = group->slots[group->index];

	return atomic_load(&slot->state) == DDP_MEMBER_JOINED && slot->pid != own->pid &&
	       slot->pids == own->pids;
}

static bool is_lost(const struct ddp_group *group, int member, const struct pollfd *poll)
{
	const struct ddp_slot *slot = group->slots[member];

	if (poll->fd >= 0)
		return poll->revents != 0;
	return ddp_process_start(slot->pid) != slot->start;
}

static int say_lost(const struct ddp_group *group, int member, const char *what,
		    struct ddp_error *error)
{
	char where[TEXT_SIZE];

	say_where(group, ": it ", is_there(group, member) ? "was in" : "did not arrive in", where);
	return ddp_error_set(error, DDP_ERR_PEER, "rank %d on %s (pid %d) %s%s",
			     group->ranks[member], group->host, group->slots[member]->pid, what,
			     where);
}

int ddp_group_look(struct ddp_group *group, struct ddp_error *error)
{
	for (int m = 0; m < group->size; m++) {
		bool watched = m != group->index && can_be_lost(group, m);

		group->polls[m] = (struct pollfd){.fd = watched ? watch_process(group, m) : -1,
						  .events = POLLIN};
	}
	if (poll(group->polls, (nfds_t)group->size, 0) < 0 && errno != EINTR)
		return 0;
	/* It may have left and gone since: look at its word again, after its process. */
	for (int m = 0; m < group->size; m++)
		if (m != group->index && can_be_lost(group, m) &&
		    is_lost(group, m, &group->polls[m]) && can_be_lost(group, m))
			return say_lost(group, m, "is gone", error);
	return 0;
}

/* --- The end of a wait -------------------------------------------------------------------- */

static int find_cause(struct ddp_group *group, int member, const struct ddp_watch *watch,
		      struct ddp_error *cause)
{
	int status, check;

	ddp_error_clear(cause);
	check = ddp_watch_check(watch, cause);
	if (check < 0 && *cause->text)
		return check;
	status = ddp_group_look(group, cause);
	if (status < 0)
		return status;
	if (member >= 0 && atomic_load(&group->slots[member]->state) == DDP_MEMBER_LEFT &&
	    !is_there(group, member))
		return say_lost(group, member, "has left", cause);
	if (check == 0 || (waits_for_away(group) && ddp_now() < watch->deadline + PATIENCE))
		return 0;
	return say_late(group, watch, cause);
}

void ddp_group_away(struct ddp_group *group, bool away)
{
	atomic_store_explicit(&group->slots[group->index]->away, away, memory_order_release);
}

int ddp_wait_check(struct ddp_group *group, int member, const struct ddp_watch *watch,
		   struct ddp_error *error)
{
	struct ddp_error cause;
	int status = ddp_group_aborted(group, error);

	if (status == 0 && find_cause(group, member, watch, &cause) < 0)
		status = ddp_group_fail(group, &cause, error);
	return status;
}
