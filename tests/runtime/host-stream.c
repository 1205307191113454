/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host-stream.h"

void host_rest(unsigned int microseconds)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)microseconds * 1000}, NULL);
}

static uint32_t random_below(struct host_stream *stream, uint32_t below)
{
	stream->random ^= stream->random >> 12;
	stream->random ^= stream->random << 25;
	stream->random ^= stream->random >> 27;
	return (uint32_t)((stream->random * 0x2545f4914f6cdd1d) >> 32) % below;
}

/* Mostly at once, sometimes a little late, seldom very late. */
static void dawdle(struct host_stream *stream)
{
	uint32_t luck = random_below(stream, 64);

	if (luck == 0)
		host_rest(random_below(stream, 2000));
	else if (luck < 8)
		host_rest(random_below(stream, 50));
}

static struct host_deed *take(struct host_stream *stream)
{
	struct host_deed *deed;

	pthread_mutex_lock(&stream->lock);
	while (!stream->first && !stream->stop)
		pthread_cond_wait(&stream->come, &stream->lock);
	deed = stream->first;
	if (deed) {
		stream->first = deed->next;
		if (!stream->first)
			stream->last = &stream->first;
	}
	pthread_mutex_unlock(&stream->lock);
	return deed;
}

static void *work(void *argument)
{
	struct host_stream *stream = argument;
	struct host_deed *deed;

	while ((deed = take(stream))) {
		dawdle(stream);
		deed->run(deed->room);
		free(deed);
		atomic_fetch_add(&stream->ended, 1);
	}
	return NULL;
}

struct host_stream *host_stream_open(void)
{
	const char *seed = getenv("DDP_SEED");
	struct host_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->last = &stream->first;
	stream->random =
		(seed ? strtoull(seed, NULL, 10) : 1) * 2654435761u + (uint64_t)getpid() * 2 + 1;
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->come, NULL);
	if (pthread_create(&stream->thread, NULL, work, stream) != 0) {
		free(stream);
		return NULL;
	}
	return stream;
}

void host_stream_add(struct host_stream *stream, void (*run)(void *room), const void *room,
		     size_t size)
{
	struct host_deed *deed = calloc(1, sizeof(*deed));

	if (!deed || size > HOST_ROOM)
		abort();
	deed->run = run;
	memcpy(deed->room, room, size);
	atomic_fetch_add(&stream->enqueued, 1);
	pthread_mutex_lock(&stream->lock);
	*stream->last = deed;
	stream->last = &deed->next;
	pthread_cond_signal(&stream->come);
	pthread_mutex_unlock(&stream->lock);
}

bool host_stream_idle(struct host_stream *stream)
{
	unsigned long enqueued = atomic_load(&stream->enqueued);

	return atomic_load(&stream->ended) >= enqueued;
}

bool host_stream_close(struct host_stream *stream)
{
	if (!stream)
		return true;
	if (!host_stream_idle(stream))
		return false;
	pthread_mutex_lock(&stream->lock);
	stream->stop = true;
	pthread_cond_signal(&stream->come);
	pthread_mutex_unlock(&stream->lock);
	pthread_join(stream->thread, NULL);
	pthread_mutex_destroy(&stream->lock);
	pthread_cond_destroy(&stream->come);
	free(stream);
	return true;
}
