// SPDX-License-Identifier: Apache-2.0
/*
 * cuda-on-host.cc - runs the threads of a block as fibers or, in kernels without barriers, as a
 * loop
 */
#include "cuda-on-host.h"

#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifdef ASAN
#include <sanitizer/common_interface_defs.h>
#endif

/* Without this, valgrind takes a switch to an adjacent stack for a very large frame. */
#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#ifndef VALGRIND_STACK_REGISTER
#define VALGRIND_STACK_REGISTER(start, end) 0
#endif

/* For functions that switch stacks and report each switch to AddressSanitizer. */
#define SWITCHES __attribute__((noinline, no_sanitize("address")))

host_index threadIdx, blockIdx, blockDim, gridDim;

namespace
{

enum { STACK = 1 << 17 };

/* A stack from which execution can switch away and back. The scheduler's stack is the caller's. */
struct fiber {
	/* for __builtin_setjmp(), which, unlike swapcontext(), makes no system call */
	void *place[5];
	char *stack;
	const void *bottom;
	size_t size;
	void *fake;
	bool begun, ended;
};

std::vector<std::unique_ptr<fiber>> fibers;
fiber scheduler;
fiber *current;
const std::function<void()> *running;
bool meeting;

// --- Switch between fibers ----------------------------------------------------------------- */

void leave(fiber *from, fiber *to)
{
#ifdef ASAN
	__sanitizer_start_switch_fiber(&from->fake, to->bottom, to->size);
#else
	(void)from;
	(void)to;
#endif
}

void arrived(fiber *at, fiber *from)
{
#ifdef ASAN
	__sanitizer_finish_switch_fiber(at->fake, &from->bottom, &from->size);
#else
	(void)at;
	(void)from;
#endif
}

/* A fiber never ends. When its thread has ended, the fiber waits for the next block. */
void live()
{
	arrived(current, &scheduler);
	for (;;) {
		fiber *self = current;

		(*running)();
		self->ended = true;
		__syncthreads();
	}
}

SWITCHES void jump(fiber *to)
{
	__builtin_longjmp(to->place, 1);
}

SWITCHES void begin(fiber *to)
{
	ucontext_t context;

	getcontext(&context);
	context.uc_stack.ss_sp = to->stack;
	context.uc_stack.ss_size = STACK;
	context.uc_link = nullptr;
	makecontext(&context, live, 0);
	to->begun = true;
	setcontext(&context);
	abort();
}

SWITCHES void go(fiber *from, fiber *to)
{
	leave(from, to);
	if (__builtin_setjmp(from->place) == 0) {
		if (to->begun)
			jump(to);
		begin(to);
	}
}

// --- Blocks -----------------------------------------------------------------------------------

void prepare(size_t threads)
{
	while (fibers.size() < threads) {
		auto fresh = std::make_unique<fiber>();

		fresh->stack = (char *)malloc(STACK);
		fresh->bottom = fresh->stack;
		fresh->size = STACK;
		(void)VALGRIND_STACK_REGISTER(fresh->stack, fresh->stack + STACK);
		fibers.push_back(std::move(fresh));
	}
	for (size_t i = 0; i < threads; i++)
		fibers[i]->ended = false;
	scheduler.begun = true;
}

void set_indices(unsigned blocks, unsigned threads)
{
	gridDim = {blocks, 1, 1};
	blockDim = {threads, 1, 1};
}

unsigned run_to_barrier(unsigned threads, bool reverse)
{
	unsigned ended = 0;

	for (unsigned i = 0; i < threads; i++) {
		threadIdx.x = reverse ? threads - 1 - i : i;
		current = fibers[threadIdx.x].get();
		go(&scheduler, current);
		arrived(&scheduler, current);
		ended += current->ended;
	}
	return ended;
}

/*
 * Runs all fibers up to each barrier in turn, until all have ended. Fails if only some have ended.
 */
void run_block(unsigned threads)
{
	unsigned ended = 0;

	prepare(threads);
	for (unsigned phase = 0; ended == 0; phase++)
		ended = run_to_barrier(threads, (phase + blockIdx.x) % 2);
	if (ended < threads) {
		fprintf(stderr, "a kernel's block: %u of %u threads came to no barrier\n", ended,
			threads);
		abort();
	}
}

} // namespace

void __syncthreads()
{
	fiber *self = current;

	if (!meeting) {
		fprintf(stderr, "__syncthreads() in a kernel that LAUNCH_EACH launched\n");
		abort();
	}
	go(self, &scheduler);
	arrived(self, &scheduler);
}

void host_not_aligned(const void *address, int bytes)
{
	fprintf(stderr, "a kernel moves %d bytes at once at %p\n", bytes, address);
	abort();
}

void host_run_each(unsigned blocks, unsigned threads, const std::function<void()> &body)
{
	set_indices(blocks, threads);
	for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
		for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
			body();
}

void host_run_blocks(unsigned blocks, unsigned threads, const std::function<void()> &body)
{
	static bool reverse;

	set_indices(blocks, threads);
	running = &body;
	meeting = true;
	reverse = !reverse;
	for (unsigned i = 0; i < blocks; i++) {
		blockIdx.x = reverse ? blocks - 1 - i : i;
		run_block(threads);
	}
	meeting = false;
}

/* Frees the stacks, so that leak checkers do not report them. */
static struct stacks {
	~stacks()
	{
		for (auto &fiber : fibers)
			free(fiber->stack);
		fibers.clear();
	}
} stacks;
