/* SPDX-License-Identifier: Apache-2.0 */
/* lockstep.c - publish steps, wait for the other members' steps, and detect missing members */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/type.h"
#include "group-private.h"

/* --- Futexes ------------------------------------------------------------------------------ */

/* Does not use FUTEX_PRIVATE, because the members may be processes. */
static void futex_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t nanoseconds)
{
	struct timespec time = {.tv_sec = (time_t)(nanoseconds / 1000000000u),
				.tv_nsec = (long)(nanoseconds % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT, value, &time, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void wake_all(struct ddp_group *group)
{
	futex_wake(&group->head->joined);
	futex_wake(&group->head->arrived);
	for (int m = 0; m < group->size; m++)
		for (int i = 0; i < DDP_LINES; i++)
			futex_wake(&group->slots[m]->lines[i].step);
}

enum { NOT_OPENED = -1, NOT_POSSIBLE = -2, LIST_SIZE = 512, TEXT_SIZE = 192 };

/* Longest wait for the text of an abort that another member is writing, in seconds. */
#define CLAIM_TIME 0.1

/* --- Abort -------------------------------------------------------------------------------- */

void ddp_group_abort(struct ddp_group *group, int status, const char *text)
{
	struct ddp_group_head *head = group->head;
	uint32_t nobody = 0;

	if (!atomic_compare_exchange_strong(&head->claimed, &nobody, 1))
		return;
	snprintf(head->text, sizeof(head->text), "%s", text);
	atomic_store(&head->aborted, status);
	wake_all(group);
}

int ddp_group_aborted(const struct ddp_group *group, struct ddp_error *error)
{
	struct ddp_group_head *head = group->head;
	int status = atomic_load_explicit(&head->aborted, memory_order_acquire);

	if (status >= 0)
		return 0;
	return ddp_error_set(error, status, "%.*s", DDP_ERROR_SIZE - 1, head->text);
}

/*
 * Abort the group with [cause], unless it was aborted before.
 * Returns the status of the first abort, with its text in [error].
 */
static int group_fail(struct ddp_group *group, const struct ddp_error *cause,
		      struct ddp_error *error)
{
	struct ddp_watch watch = ddp_watch_start(CLAIM_TIME, NULL, NULL);
	int status;

	ddp_group_abort(group, cause->status, cause->text);
	do {
		status = ddp_group_aborted(group, error);
	} while (status == 0 && ddp_watch_check(&watch, NULL) == 0);
	/*
	 * If there is no status yet, the member that set [claimed] ended before it wrote the text.
	 */
	return status < 0 ? status : ddp_error_set(error, cause->status, "%s", cause->text);
}

/* --- Missing members ---------------------------------------------------------------------- */

/* Format a text such as ": it did not arrive in all-reduce #17"; "" if there is no current call. */
static void format_call(const struct ddp_group *group, const char *before, const char *verb,
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

/* Returns the last step that [member] has published, which is the higher one in its two lines. */
static uint32_t member_step(const struct ddp_group *group, int member)
{
	struct ddp_line *lines = group->slots[member]->lines;
	uint32_t a = atomic_load(&lines[0].step), b = atomic_load(&lines[1].step);

	return (int32_t)(a - b) > 0 ? a : b;
}

/* Returns whether [member] has joined and, during a call, has published the current step. */
static bool has_arrived(const struct ddp_group *group, int member)
{
	if (atomic_load(&group->slots[member]->state) == DDP_MEMBER_NONE)
		return false;
	return !group->call || (int32_t)(member_step(group, member) - group->step) >= 0;
}

static bool has_begun(const struct ddp_group *group, int member)
{
	return group->call && (int32_t)(member_step(group, member) - group->first) >= 0;
}

static bool is_away(const struct ddp_group *group, int member)
{
	return atomic_load(&group->slots[member]->away) != 0;
}

static bool misses_only_away(const struct ddp_group *group)
{
	for (int m = 0; m < group->size; m++)
		if (m != group->index && !has_arrived(group, m) && !is_away(group, m))
			return false;
	return true;
}

/*
 * Returns whether any of the missing members has checked its own wait within the time limit. If
 * none has, their processes hang or are stopped.
 */
static bool is_checking(struct ddp_group *group, const struct ddp_watch *watch)
{
	uint64_t now = ddp_watch_now(watch);
	uint32_t checks = 0;

	for (int m = 0; m < group->size; m++)
		if (m != group->index && !has_arrived(group, m))
			checks += atomic_load(&group->slots[m]->checks);
	/*
	 * At the first check in a call, [checked] still has a value of an earlier call or of
	 * another thread, so reset it.
	 */
	if (checks != group->checks || group->checked_step != group->first) {
		group->checks = checks;
		group->checked = now;
		group->checked_step = group->first;
	}
	return (double)(now - group->checked) < watch->limit * 1e9;
}

static int set_timeout_error(const struct ddp_group *group, const struct ddp_watch *watch,
			     struct ddp_error *cause)
{
	char list[LIST_SIZE] = "", where[TEXT_SIZE];
	int missing = 0;
	size_t used = 0;
	bool has_started = true, all = misses_only_away(group);

	for (int m = 0; m < group->size; m++) {
		if (m == group->index || has_arrived(group, m) || (is_away(group, m) && !all))
			continue;
		has_started = has_started && has_begun(group, m);
		if (used < sizeof(list) - 16)
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d",
						 missing ? ", " : "", group->ranks[m]);
		missing++;
	}
	format_call(group, " ", has_started || all ? "did not continue" : "did not arrive in",
		    where);
	return ddp_error_set(cause, DDP_ERR_TIMEOUT, "rank%s %s on %s%s in %g s (%d of %d did)",
			     missing > 1 ? "s" : "", list, group->host,
			     *where ? where : " did not join the group", watch->limit,
			     group->size - missing, group->size);
}

/* --- Lost processes ----------------------------------------------------------------------- */

/*
 * Returns whether [member]'s process has certainly ended, according to /proc. If the member's start
 * time is unknown, returns false, since another process may have the same pid now.
 */
static bool has_ended(const struct ddp_group *group, int member)
{
	const struct ddp_slot *slot = group->slots[member];
	uint64_t start = slot->start;
	int status = ddp_process_start(slot->pid, &start);

	return slot->start && (status == -ESRCH || start != slot->start);
}

/*
 * Returns a pidfd of [member]'s process, for poll(), or a negative number. If no descriptor was
 * available, the next call of this function tries again.
 */
static int open_pidfd(struct ddp_group *group, int member)
{
	const struct ddp_slot *slot = group->slots[member];
	int *fd = &group->pidfds[member];

	if (*fd != NOT_OPENED)
		return *fd;
	*fd = ddp_pidfd_open(slot->pid);
	if (*fd < 0) {
		bool busy = errno == EMFILE || errno == ENFILE || errno == ENOMEM;

		return *fd = busy ? NOT_OPENED : NOT_POSSIBLE;
	}
	/*
	 * The pid may have been reused before the pidfd was opened. Descriptors of the upper half
	 * are closed; for such members /proc is read.
	 */
	if (has_ended(group, member) || !ddp_is_low_descriptor(*fd)) {
		close(*fd);
		*fd = NOT_POSSIBLE;
	}
	return *fd;
}

static bool is_in_own_namespace(const struct ddp_group *group, int member)
{
	return group->slots[member]->pids == group->slots[group->index]->pids;
}

/*
 * Returns whether [member] has joined, has not left, and can be checked: by its pid, or through a
 * connection to its process.
 */
static bool can_be_lost(const struct ddp_group *group, int member)
{
	const struct ddp_slot *slot = group->slots[member], *own = group->slots[group->index];

	if (atomic_load(&slot->state) != DDP_MEMBER_JOINED)
		return false;
	return is_in_own_namespace(group, member) ? slot->pid != own->pid
						  : group->links[member] >= 0;
}

static bool is_lost(const struct ddp_group *group, int member, const struct pollfd *poll)
{
	return poll->fd >= 0 ? poll->revents != 0 : has_ended(group, member);
}

static int set_lost_error(const struct ddp_group *group, int member, const char *what,
			  struct ddp_error *error)
{
	char where[TEXT_SIZE];

	format_call(group, ": it ", has_arrived(group, member) ? "was in" : "did not arrive in",
		    where);
	return ddp_error_set(error, DDP_ERR_PEER, "rank %d on %s (pid %d) %s%s",
			     group->ranks[member], group->host, group->slots[member]->pid, what,
			     where);
}

int ddp_group_check_members(struct ddp_group *group, struct ddp_error *error)
{
	atomic_fetch_add(&group->slots[group->index]->checks, 1);
	for (int m = 0; m < group->size; m++) {
		group->polls[m] = (struct pollfd){.fd = -1, .events = POLLIN};
		if (m == group->index || !can_be_lost(group, m))
			continue;
		if (is_in_own_namespace(group, m))
			group->polls[m].fd = open_pidfd(group, m);
		else if (group->pidfds[m] >= 0)
			group->polls[m].fd = group->pidfds[m];
		/* Check for POLLHUP only, because a descriptor may be waiting to be received. */
		else
			group->polls[m] = (struct pollfd){.fd = group->links[m]};
	}
	/*
	 * poll() fails if there are more entries than RLIMIT_NOFILE, even invalid ones. Then poll
	 * each alone.
	 */
	if (poll(group->polls, (nfds_t)group->size, 0) < 0)
		for (int m = 0; m < group->size; m++)
			(void)poll(&group->polls[m], 1, 0);
	/* The member may have left before its process ended, so check its state again. */
	for (int m = 0; m < group->size; m++)
		if (m != group->index && can_be_lost(group, m) &&
		    is_lost(group, m, &group->polls[m]) && can_be_lost(group, m))
			return set_lost_error(group, m, "is gone", error);
	return 0;
}

/* --- End of a wait ------------------------------------------------------------------------ */

static int find_cause(struct ddp_group *group, int member, const struct ddp_watch *watch,
		      struct ddp_error *cause)
{
	int status, check;

	ddp_error_clear(cause);
	check = ddp_watch_check(watch, cause);
	if (check < 0 && *cause->text)
		return check;
	status = ddp_group_check_members(group, cause);
	if (status < 0)
		return status;
	if (member >= 0 && atomic_load(&group->slots[member]->state) == DDP_MEMBER_LEFT &&
	    !has_arrived(group, member))
		return set_lost_error(group, member, "has left", cause);
	if (check == 0)
		return 0;
	if (misses_only_away(group) && is_checking(group, watch))
		return 0;
	return set_timeout_error(group, watch, cause);
}

void ddp_group_away(struct ddp_group *group, bool away)
{
	atomic_store_explicit(&group->slots[group->index]->away, away, memory_order_release);
}

/*
 * Check whether the wait for [member] must end: because of an abort, the watch, or a lost process.
 */
static int check_wait(struct ddp_group *group, int member, const struct ddp_watch *watch,
		      struct ddp_error *error)
{
	struct ddp_error cause;
	int status = ddp_group_aborted(group, error);

	if (status == 0 && find_cause(group, member, watch, &cause) < 0)
		status = group_fail(group, &cause, error);
	return status;
}

/* --- Calls -------------------------------------------------------------------------------- */

enum { CALL_TEXT = 256 };

static uint64_t mix(uint64_t digest, uint64_t word)
{
	digest = (digest ^ word) * 0x9fb21c651e98df25u;
	return digest ^ digest >> 32;
}

static uint64_t digest_call(const struct ddp_call *call, enum ddp_action action, size_t bytes,
			    int root)
{
	uint64_t digest = ((uint64_t)action + 1) << 32 | (uint32_t)root;

	digest = mix(digest, (uint64_t)call->kind << 32 | call->type << 8 | call->op);
	digest = mix(digest, call->count);
	return mix(digest, bytes);
}

int ddp_call_begin(struct ddp_group *group, const struct ddp_call *call, enum ddp_action action,
		   size_t bytes, int root, struct ddp_error *error)
{
	struct ddp_slot *slot = group->slots[group->index];
	struct ddp_notice *notice = &slot->notices[(group->step + 1) % DDP_LINES];

	if (atomic_load_explicit(&group->head->aborted, memory_order_acquire) != 0)
		return ddp_group_aborted(group, error);
	group->call = call;
	group->first = group->step + 1;
	group->digest = digest_call(call, action, bytes, root);
	group->sequence = (uint32_t)call->sequence;
	/*
	 * If the notice has the digest of this call, it need not be written again. The exception is
	 * a refusal, because refusals with the same digest can have different names.
	 */
	if (notice->digest == group->digest && !ddp_call_is_refusal(call->kind))
		return 0;
	*notice = (struct ddp_notice){
		.digest = group->digest,
		.action = action,
		.kind = call->kind,
		.type = call->type,
		.op = call->op,
		.root = root,
		.count = call->count,
		.bytes = bytes,
	};
	snprintf(notice->name, sizeof(notice->name), "%s", call->name);
	return 0;
}

/* --- Members with different calls --------------------------------------------------------- */

/*
 * Format the call that [member] has announced in its notice and in its line of [parity]. The member
 * could have written anything to shared memory, so strings and indices are checked.
 */
static void format_notice(const struct ddp_group *group, int member, unsigned parity,
			  char text[CALL_TEXT])
{
	const struct ddp_notice *notice = &group->slots[member]->notices[parity];
	uint32_t sequence = group->slots[member]->lines[parity].sequence;
	const char *name = notice->name;
	int width = DDP_CALL_NAME - 1;
	int root =
		notice->root >= 0 && notice->root < group->size ? group->ranks[notice->root] : -1;

	switch (notice->action) {
	case DDP_ACTION_ALL_REDUCE:
	case DDP_ACTION_REDUCE:
	case DDP_ACTION_PUBLISH:
		snprintf(text, CALL_TEXT, "%.*s of %llu %s (%s)%s", width, name,
			 (unsigned long long)notice->count, ddp_type_name(notice->type),
			 ddp_op_name(notice->op),
			 notice->action == DDP_ACTION_PUBLISH ? ", its second half" : "");
		break;
	case DDP_ACTION_BROADCAST:
		snprintf(text, CALL_TEXT, "%.*s of %llu bytes from rank %d", width, name,
			 (unsigned long long)notice->bytes, root);
		break;
	case DDP_ACTION_ALL_GATHER:
	case DDP_ACTION_REGION:
		snprintf(text, CALL_TEXT, "%.*s of %llu bytes", width, name,
			 (unsigned long long)notice->bytes);
		break;
	default:
		snprintf(text, CALL_TEXT, "%.*s", width, name);
	}
	if (sequence)
		snprintf(text + strlen(text), CALL_TEXT - strlen(text), " #%u", sequence);
}

/*
 * Abort because [member]'s line contains another call than this member's. Returns DDP_ERR_MISMATCH.
 */
static int call_mismatch(struct ddp_group *group, int member, struct ddp_error *error)
{
	unsigned parity = group->first % DDP_LINES;
	char first[CALL_TEXT], second[CALL_TEXT];
	struct ddp_error cause;

	format_notice(group, group->index, parity, first);
	format_notice(group, member, parity, second);
	ddp_error_set(&cause, DDP_ERR_MISMATCH, "rank %d on %s %s %s, but rank %d %s %s",
		      group->ranks[group->index], group->host, ddp_call_verb(group->call->kind),
		      first, group->ranks[member],
		      ddp_call_verb(group->slots[member]->notices[parity].kind), second);
	return group_fail(group, &cause, error);
}

int ddp_group_check_refusals(const struct ddp_group *group, uint64_t made, struct ddp_error *error)
{
	uint32_t next = group->step + 1;
	char refusal[CALL_TEXT];

	/* No member reuses its line or notice of the next step before this member's next step. */
	for (int m = 0; m < group->size; m++) {
		const struct ddp_slot *slot = group->slots[m];
		const struct ddp_notice *notice = &slot->notices[next % DDP_LINES];

		if (atomic_load_explicit(&slot->lines[next % DDP_LINES].step,
					 memory_order_acquire) != next ||
		    !ddp_call_is_refusal(notice->kind) || notice->count >= made)
			continue;
		format_notice(group, m, next % DDP_LINES, refusal);
		return ddp_error_set(error, DDP_ERR_MISMATCH,
				     "rank %d on %s calls %s after %llu collectives on device "
				     "memory, but rank %d made %llu",
				     group->ranks[m], group->host, refusal,
				     (unsigned long long)notice->count, group->ranks[group->index],
				     (unsigned long long)made);
	}
	return 0;
}

/* --- Waiting for a line ----------------------------------------------------------------- */

/* Nanoseconds to spin: about the time to fall asleep and wake up. */
#define SPIN_TIME 30000u
/* Nanoseconds to yield the CPU before sleeping, if members share CPUs. */
#define YIELD_TIME 50000u
/* Nanoseconds of the first sleep. Each further sleep is twice as long, up to DDP_WATCH_PERIOD. */
#define FIRST_SLEEP 100000u

enum {
	/* number of spins without a pause at first, since the line usually arrives soon */
	EAGER_SPINS = 64,
	CLOCK_SPINS = 32, /* spins between two reads of the clock */
};

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/*
 * Prefetch [bytes] of this member's memory for writing. The other members have read them, so they
 * are in the other CPUs' caches. A wait is a good time to get them back. This is only a hint.
 */
static void prefetch_for_writing(const char *memory, size_t bytes)
{
#if defined(__x86_64__)
	for (size_t at = 0; at < bytes; at += DDP_ALIGN)
		__asm__ volatile("prefetchw %0" : : "m"(memory[at]));
#else
	(void)memory, (void)bytes;
#endif
}

/* A futex. A thread can sleep on [word] as long as the word has the value [value]. */
struct futex {
	_Atomic uint32_t *word;
	uint32_t value;
	_Atomic uint32_t *sleepers;
};

static bool line_arrived(struct ddp_group *group, const struct ddp_line *line)
{
	return atomic_load_explicit(&line->step, memory_order_acquire) == group->step;
}

/*
 * Returns the futex on which this member sleeps. If members spin, this is the line of the missing
 * member. If they do not spin, there may be many members on few CPUs. Then all members sleep on the
 * count of arrivals, and the last member that arrives wakes them. So each member sleeps once per
 * step, instead of once per missing member.
 */
static struct futex find_futex(struct ddp_group *group, int member)
{
	struct ddp_slot *slot = group->slots[member];
	struct ddp_group_head *head = group->head;
	struct futex futex = {.word = &head->arrived, .sleepers = &head->sleepers};

	if (group->spins) {
		futex.word = &slot->lines[group->step % DDP_LINES].step;
		futex.sleepers = &slot->sleepers;
	}
	futex.value = atomic_load(futex.word);
	return futex;
}

/*
 * A spinning member publishes its line without a fence before it checks [sleepers], since a fence
 * would cost more than the whole step. Therefore a member that falls asleep in the same instant can
 * miss its wake-up. FIRST_SLEEP is short for this reason.
 */
static int sleep_for(struct ddp_group *group, int member, const struct ddp_watch *watch,
		     struct ddp_error *error)
{
	const struct ddp_line *line = &group->slots[member]->lines[group->step % DDP_LINES];
	uint64_t length = FIRST_SLEEP, now = ddp_watch_now(watch), checked = now;

	while (!line_arrived(group, line)) {
		struct futex futex = find_futex(group, member);
		uint64_t most = DDP_WATCH_PERIOD;

		if (now - checked >= DDP_WATCH_PERIOD || now >= watch->deadline) {
			int status = check_wait(group, member, watch, error);

			/*
			 * If the line has arrived, this call has succeeded, and the abort belongs
			 * to a later call.
			 */
			if (status < 0)
				return line_arrived(group, line) ? 0 : status;
			checked = now;
		}
		if (watch->deadline > now && watch->deadline - now < most)
			most = watch->deadline - now;
		length = length < most ? length : most;
		atomic_store(futex.sleepers, 1);
		if (!line_arrived(group, line) && atomic_load(&group->head->aborted) == 0)
			futex_sleep(futex.word, futex.value, length);
		if (atomic_load(&group->head->aborted) != 0)
			return line_arrived(group, line) ? 0 : ddp_group_aborted(group, error);
		now = ddp_watch_now(watch);
		length *= 2;
	}
	return 0;
}

/* Spin until [line] arrives, at most for SPIN_TIME. Returns whether it has arrived. */
static bool spin_for(struct ddp_group *group, const struct ddp_line *line)
{
	uint64_t begin = 0, now;

	for (int i = 0; i < EAGER_SPINS; i++)
		if (line_arrived(group, line))
			return true;
	do {
		for (int i = 0; i < CLOCK_SPINS; i++) {
			if (line_arrived(group, line))
				return true;
			relax();
		}
		now = ddp_now();
		begin = begin ? begin : now;
	} while (now - begin < SPIN_TIME);
	return false;
}

/*
 * The missing member may need this CPU, so yield the CPU. If all members are ready to run, this
 * costs less than sleeping. If other processes compute, it takes as long as their time slices.
 */
static bool yield_for(struct ddp_group *group, const struct ddp_line *line)
{
	uint64_t begin = ddp_now();

	do {
		sched_yield();
		if (line_arrived(group, line))
			return true;
	} while (ddp_now() - begin < YIELD_TIME);
	return false;
}

static __attribute__((noinline)) int wait_for(struct ddp_group *group, int member,
					      const struct ddp_watch *watch,
					      struct ddp_error *error)
{
	const struct ddp_line *line = &group->slots[member]->lines[group->step % DDP_LINES];

	prefetch_for_writing(ddp_step_buffer(group, group->index, group->step + 1),
			     group->expected);
	if (group->spins ? spin_for(group, line) : yield_for(group, line))
		return 0;
	return sleep_for(group, member, watch, error);
}

/* --- Steps -------------------------------------------------------------------------------- */

static void publish(struct ddp_group *group)
{
	struct ddp_slot *slot = group->slots[group->index];
	struct ddp_group_head *head = group->head;
	struct ddp_line *line = ddp_step_line(group);
	uint32_t arrived;

	line->digest = group->digest;
	line->sequence = group->sequence;
	group->step++;
	atomic_store_explicit(&line->step, group->step, memory_order_release);
	if (group->spins) {
		if (atomic_load_explicit(&slot->sleepers, memory_order_relaxed)) {
			atomic_store(&slot->sleepers, 0);
			futex_wake(&line->step);
		}
		return;
	}
	/*
	 * The count and the product wrap in the same way. A member that has seen this member's line
	 * can increment the count for the next step before this member does for this step.
	 */
	arrived = atomic_fetch_add(&head->arrived, 1) + 1;
	if ((int32_t)(arrived - group->step * (uint32_t)group->size) >= 0 &&
	    atomic_exchange(&head->sleepers, 0))
		futex_wake(&head->arrived);
}

int ddp_step(struct ddp_group *group, const struct ddp_watch *watch, struct ddp_error *error)
{
	int status;

	publish(group);
	for (int m = 0; m < group->size; m++) {
		const struct ddp_line *line = ddp_step_other(group, m);

		if (m == group->index)
			continue;
		if (!line_arrived(group, line)) {
			status = wait_for(group, m, watch, error);
			if (status < 0)
				return status;
		}
		if (line->digest != group->digest || line->sequence != group->sequence)
			return call_mismatch(group, m, error);
	}
	return 0;
}

/* --- Joining ------------------------------------------------------------------------------ */

int ddp_wait_joined(struct ddp_group *group, const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_group_head *head = group->head;
	uint32_t size = (uint32_t)group->size;
	uint32_t joined = atomic_fetch_add(&head->joined, 1) + 1;

	if (joined == size)
		futex_wake(&head->joined);
	while ((joined = atomic_load(&head->joined)) < size) {
		int status = check_wait(group, -1, watch, error);

		if (status < 0)
			return status;
		if (!group->passing || ddp_group_serve(group, DDP_WATCH_PERIOD))
			futex_sleep(&head->joined, joined, DDP_WATCH_PERIOD);
	}
	return 0;
}
