/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lockstep.c - members go forward together, wait for each other, and find out who is missing
 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/type.h"
#include "group-private.h"

/* --- Sleeping and waking ------------------------------------------------------------------------- */

/* Shared futexes: the members may be processes. */
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

/* Wake whoever sleeps, after an abort. */
static void wake_all(struct ddp_group *group)
{
	futex_wake(&group->head->joined);
	futex_wake(&group->head->arrived);
	for (int m = 0; m < group->size; m++)
		for (int i = 0; i < DDP_LINES; i++)
			futex_wake(&group->slots[m]->lines[i].step);
}

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
 * End the group with [cause], unless it ended before.
 * Returns the status that stands, with its text in [error].
 */
static int group_fail(struct ddp_group *group, const struct ddp_error *cause,
		      struct ddp_error *error)
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
 * Whether [member]'s process has certainly ended, according to /proc. A process without a known
 * start has not: its pid may mean another process there.
 */
static bool has_ended(const struct ddp_group *group, int member)
{
	const struct ddp_slot *slot = group->slots[member];
	uint64_t start = slot->start;
	int status = ddp_process_start(slot->pid, &start);

	return slot->start && (status == -ESRCH || start != slot->start);
}

/*
 * Returns the descriptor of [member]'s process, to be polled, or a negative number.
 * If the process has no descriptor to spare, the next call tries again.
 */
static int watch_process(struct ddp_group *group, int member)
{
	const struct ddp_slot *slot = group->slots[member];
	int *fd = &group->pidfds[member];
	struct rlimit limit;

	if (*fd != NOT_OPENED)
		return *fd;
	*fd = (int)syscall(SYS_pidfd_open, slot->pid, 0);
	if (*fd < 0) {
		bool busy = errno == EMFILE || errno == ENFILE || errno == ENOMEM;

		return *fd = busy ? NOT_OPENED : NOT_POSSIBLE;
	}
	/*
	 * The pid may have been used again before the descriptor was opened. And half of all
	 * descriptors remain the program's: for further members /proc is read.
	 */
	if (has_ended(group, member) ||
	    (getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)*fd >= limit.rlim_cur / 2)) {
		close(*fd);
		*fd = NOT_POSSIBLE;
	}
	return *fd;
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
	return poll->fd >= 0 ? poll->revents != 0 : has_ended(group, member);
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
	/* poll() refuses more entries than RLIMIT_NOFILE, valid or not. */
	if (poll(group->polls, (nfds_t)group->size, 0) < 0)
		for (int m = 0; m < group->size; m++)
			(void)poll(&group->polls[m], 1, 0);
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

/* Look whether the wait for [member] has to end: abort, watch, lost processes. */
static int check_wait(struct ddp_group *group, int member, const struct ddp_watch *watch,
		      struct ddp_error *error)
{
	struct ddp_error cause;
	int status = ddp_group_aborted(group, error);

	if (status == 0 && find_cause(group, member, watch, &cause) < 0)
		status = group_fail(group, &cause, error);
	return status;
}

/* --- Calls --------------------------------------------------------------------------------- */

enum { CALL_TEXT = 160 };

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
	if (notice->digest == group->digest)
		return 0;
	*notice = (struct ddp_notice){
		.digest = group->digest,
		.action = action,
		.type = call->type,
		.op = call->op,
		.root = root,
		.count = call->count,
		.bytes = bytes,
	};
	snprintf(notice->name, sizeof(notice->name), "%s", call->name);
	return 0;
}

/* --- Members that disagree ---------------------------------------------------------------- */

/* A peer's memory: nothing in it is believed to be a text, or an index. */
static void say_call(const struct ddp_group *group, const struct ddp_notice *notice,
		     char text[CALL_TEXT])
{
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
}

/* [member]'s line has another digest: end the group. Returns DDP_ERR_MISMATCH. */
static int call_mismatch(struct ddp_group *group, int member, struct ddp_error *error)
{
	unsigned parity = group->first % DDP_LINES;
	const struct ddp_notice *own = &group->slots[group->index]->notices[parity];
	const struct ddp_notice *other = &group->slots[member]->notices[parity];
	char first[CALL_TEXT], second[CALL_TEXT];
	struct ddp_error cause;

	say_call(group, own, first);
	say_call(group, other, second);
	ddp_error_set(&cause, DDP_ERR_MISMATCH, "rank %d on %s calls %s, rank %d calls %s",
		      group->ranks[group->index], group->host, first, group->ranks[member], second);
	return group_fail(group, &cause, error);
}

/* --- Waiting for a line ----------------------------------------------------------------- */

/* How long to spin: about what falling asleep and being woken would cost. Nanoseconds. */
#define SPIN_TIME 30000u
/* How long to give the CPU to others before sleeping, where members share CPUs. */
#define YIELD_TIME 50000u
/* The first sleep; each further one is twice as long, up to DDP_WATCH_PERIOD. */
#define FIRST_SLEEP 100000u

enum {
	EAGER_SPINS = 64, /* without a pause: the line is on its way */
	CLOCK_SPINS = 32, /* between looks at the clock */
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
 * Have [bytes] of this member's in its cache for writing: the others, who read them, have them
 * too, and a wait is a good time to get them back. A hint, where it is known.
 */
static void ask_for(const char *memory, size_t bytes)
{
#if defined(__x86_64__)
	for (size_t at = 0; at < bytes; at += DDP_ALIGN)
		__asm__ volatile("prefetchw %0" : : "m"(memory[at]));
#else
	(void)memory, (void)bytes;
#endif
}

/* What one wait sleeps on: sleeps while [word] is [value]. */
struct bed {
	_Atomic uint32_t *word;
	uint32_t value;
	_Atomic uint32_t *sleepers;
};

static bool line_arrived(struct ddp_group *group, const struct ddp_line *line)
{
	return atomic_load_explicit(&line->step, memory_order_acquire) == group->step;
}

/*
 * Members that spin sleep on the line that they miss. Where they do not, which is where there
 * are many for few CPUs, all sleep on the count of arrivals, and the last one wakes them: one
 * sleep a step instead of one for each member.
 */
static struct bed find_bed(struct ddp_group *group, int member)
{
	struct ddp_slot *slot = group->slots[member];
	struct ddp_group_head *head = group->head;
	struct bed bed = {.word = &head->arrived, .sleepers = &head->sleepers};

	if (group->spins) {
		bed.word = &slot->lines[group->step % DDP_LINES].step;
		bed.sleepers = &slot->sleepers;
	}
	bed.value = atomic_load(bed.word);
	return bed;
}

/*
 * A member that spins publishes without a fence between its line and its look at [sleepers], as
 * a fence would cost more than all the rest. So a wake can be missed by who falls asleep in the
 * same instant; FIRST_SLEEP is short for that.
 */
static int sleep_for(struct ddp_group *group, int member, const struct ddp_watch *watch,
		     struct ddp_error *error)
{
	const struct ddp_line *line = &group->slots[member]->lines[group->step % DDP_LINES];
	uint64_t length = FIRST_SLEEP, checked = ddp_now();

	while (!line_arrived(group, line)) {
		struct bed bed = find_bed(group, member);
		uint64_t now = ddp_now(), most = DDP_WATCH_PERIOD;

		if (now - checked >= DDP_WATCH_PERIOD || now >= watch->deadline) {
			int status = check_wait(group, member, watch, error);

			/* The end of a later call is not the end of this one. */
			if (status < 0)
				return line_arrived(group, line) ? 0 : status;
			checked = now;
		}
		if (watch->deadline > now && watch->deadline - now < most)
			most = watch->deadline - now;
		length = length < most ? length : most;
		atomic_store(bed.sleepers, 1);
		if (!line_arrived(group, line) && atomic_load(&group->head->aborted) == 0)
			futex_sleep(bed.word, bed.value, length);
		if (atomic_load(&group->head->aborted) != 0)
			return line_arrived(group, line) ? 0 : ddp_group_aborted(group, error);
		length *= 2;
	}
	return 0;
}

/* Returns whether the line came. */
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
 * Where members share CPUs the one that is waited for may want this one's: let it run. If all
 * are here, that costs less than sleeping; if others compute, it ends with the time they get.
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

	ask_for(ddp_step_buffer(group, group->index, group->step + 1), group->expected);
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
	 * Counts, and the product, wrap alike. A member that saw this line may have added its next
	 * arrival before this one.
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
		if (line->digest != group->digest)
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
		futex_sleep(&head->joined, joined, DDP_WATCH_PERIOD);
	}
	return 0;
}
