/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "group-private.h"

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

/* --- Sleeping and waking ------------------------------------------------------------------ */

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

void ddp_wake_all(struct ddp_group *group)
{
	futex_wake(&group->head->joined);
	futex_wake(&group->head->arrived);
	for (int m = 0; m < group->size; m++)
		for (int i = 0; i < DDP_LINES; i++)
			futex_wake(&group->slots[m]->lines[i].step);
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
			int status = ddp_wait_check(group, member, watch, error);

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
	/* Counts, and the product, wrap alike. */
	if (atomic_fetch_add(&head->arrived, 1) + 1 == group->step * (uint32_t)group->size &&
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
			return ddp_call_mismatch(group, m, error);
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
		int status = ddp_wait_check(group, -1, watch, error);

		if (status < 0)
			return status;
		futex_sleep(&head->joined, joined, DDP_WATCH_PERIOD);
	}
	return 0;
}
