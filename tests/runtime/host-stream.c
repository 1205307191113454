/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host-stream.h"

struct queued {
	struct queued *next;
	bool (*run)(void *argument);
	_Alignas(16) unsigned char argument[HOST_ARGUMENT];
};

struct thread {
	struct host_stream stream;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct queued *first, **last;
	atomic_ulong enqueued, ended;
	uint64_t random;
	bool stop;
	atomic_bool captured;
};

static struct thread *of(struct host_stream *stream)
{
	return (struct thread *)(void *)stream;
}

void host_sleep(unsigned int microseconds)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)microseconds * 1000}, NULL);
}

static uint32_t random_below(struct thread *thread, uint32_t below)
{
	thread->random ^= thread->random >> 12;
	thread->random ^= thread->random << 25;
	thread->random ^= thread->random >> 27;
	return (uint32_t)((thread->random * 0x2545f4914f6cdd1d) >> 32) % below;
}

/* Waits for a random time: usually 0, sometimes up to 50 us, seldom up to 2 ms. */
static void delay(struct thread *thread)
{
	uint32_t luck = random_below(thread, 64);

	if (luck == 0)
		host_sleep(random_below(thread, 2000));
	else if (luck < 8)
		host_sleep(random_below(thread, 50));
}

static struct queued *take(struct thread *thread)
{
	struct queued *operation;

	pthread_mutex_lock(&thread->lock);
	while (!thread->first && !thread->stop)
		pthread_cond_wait(&thread->changed, &thread->lock);
	operation = thread->first;
	if (operation) {
		thread->first = operation->next;
		if (!thread->first)
			thread->last = &thread->first;
	}
	pthread_mutex_unlock(&thread->lock);
	return operation;
}

static void *work(void *argument)
{
	struct thread *thread = argument;
	struct queued *operation;

	while ((operation = take(thread))) {
		delay(thread);
		for (int i = 0; !operation->run(operation->argument); i++)
			if (i > 100)
				host_sleep(i > 1000 ? 1000 : 20);
		free(operation);
		atomic_fetch_add(&thread->ended, 1);
	}
	return NULL;
}

/* --- The stream interface ----------------------------------------------------------------- */

static void add(struct host_stream *stream, const struct host_operation *what)
{
	struct queued *operation = calloc(1, sizeof(*operation));
	struct thread *thread = of(stream);

	if (!operation || what->size > HOST_ARGUMENT)
		abort();
	operation->run = what->run;
	memcpy(operation->argument, what->argument, what->size);
	atomic_fetch_add(&thread->enqueued, 1);
	pthread_mutex_lock(&thread->lock);
	*thread->last = operation;
	thread->last = &operation->next;
	pthread_cond_signal(&thread->changed);
	pthread_mutex_unlock(&thread->lock);
}

static bool idle(struct host_stream *stream)
{
	unsigned long enqueued = atomic_load(&of(stream)->enqueued);

	return atomic_load(&of(stream)->ended) >= enqueued;
}

static bool captured(struct host_stream *stream)
{
	return atomic_load(&of(stream)->captured);
}

struct until {
	struct thread *thread;
	unsigned long ended;
};

static bool run_until(void *argument)
{
	const struct until *until = argument;

	return atomic_load(&until->thread->ended) >= until->ended;
}

static int order(struct host_stream *later, struct host_stream *earlier)
{
	struct until until = {of(earlier), atomic_load(&of(earlier)->enqueued)};

	host_stream_add(later, run_until, &until, sizeof(until));
	return 0;
}

static const struct host_stream_class class = {add, idle, captured, order};

/* --- Opening and closing ------------------------------------------------------------------ */

struct host_stream *host_stream_open(void)
{
	const char *seed = getenv("DDP_SEED");
	struct thread *thread = calloc(1, sizeof(*thread));

	if (!thread)
		return NULL;
	thread->stream.class = &class;
	thread->last = &thread->first;
	thread->random =
		(seed ? strtoull(seed, NULL, 10) : 1) * 2654435761u + (uint64_t)getpid() * 2 + 1;
	pthread_mutex_init(&thread->lock, NULL);
	pthread_cond_init(&thread->changed, NULL);
	if (pthread_create(&thread->thread, NULL, work, thread) != 0) {
		free(thread);
		return NULL;
	}
	return &thread->stream;
}

bool host_stream_close(struct host_stream *stream)
{
	struct thread *thread = of(stream);

	if (!stream)
		return true;
	if (!idle(stream))
		return false;
	pthread_mutex_lock(&thread->lock);
	thread->stop = true;
	pthread_cond_signal(&thread->changed);
	pthread_mutex_unlock(&thread->lock);
	pthread_join(thread->thread, NULL);
	pthread_mutex_destroy(&thread->lock);
	pthread_cond_destroy(&thread->changed);
	free(thread);
	return true;
}

void host_stream_capture(struct host_stream *stream, bool captured_now)
{
	atomic_store(&of(stream)->captured, captured_now);
}

/* --- Failures on request ------------------------------------------------------------------ */

bool host_fails(const char *call)
{
	static int calls;
	const char *request = getenv("DDP_HOST_FAIL"), *rank = getenv("RANK");
	size_t length = strlen(call);

	if (!request || strncmp(request, call, length) != 0 || request[length] != ':' || !rank)
		return false;
	if (atoi(request + length + 1) != atoi(rank))
		return false;
	return ++calls == atoi(strrchr(request, ':') + 1);
}
