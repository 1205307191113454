/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake-device.h - a device whose streams do one piece of work when they are told to
 *
 * For tests of what the host enqueues: copies read their memory as late as a real device may, so that
 * memory that was used again too early is noticed. A stream waits for others as device_order()
 * says. Nothing of CUDA, no kernels; tests enqueue functions instead (fake_enqueue()).
 */
#ifndef DDP_TESTS_FAKE_DEVICE_H
#define DDP_TESTS_FAKE_DEVICE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device.h"
#include "unit.h"

enum { FAKE_JOBS = 4096 };

struct fake_job {
	void (*call)(void *data); /* or, NULL, a copy */
	void *data, *to;
	const void *from;
	size_t bytes;
	size_t after[DEVICE_STREAMS]; /* jobs of each stream that must have been done */
};

struct fake_queue {
	struct fake_job jobs[FAKE_JOBS];
	size_t count, done;
	size_t after[DEVICE_STREAMS]; /* for jobs to come */
};

struct device {
	struct fake_queue queues[DEVICE_STREAMS];
	struct {
		enum device_stream stream;
		size_t count; /* jobs that must have been done */
	} marks[DEVICE_MARKS];
	int allocations; /* that are there */
	int allowed;	 /* further ones; then memory is out */
	int orders;	 /* calls of device_order() */
	bool broken;	 /* copies fail */
	bool hangs;	 /* no job is done any more */
	char remedy[256], what[256];
};

static struct device fake;

static inline void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.allowed = 1000;
}

/* --- Work ---------------------------------------------------------------------------------- */

static inline struct fake_job *fake_job(enum device_stream stream)
{
	struct fake_queue *queue = &fake.queues[stream];
	struct fake_job *job;

	ck_assert_uint_lt(queue->count, FAKE_JOBS);
	job = &queue->jobs[queue->count++];
	memset(job, 0, sizeof(*job));
	memcpy(job->after, queue->after, sizeof(job->after));
	return job;
}

static inline void fake_enqueue(enum device_stream stream, void (*call)(void *), void *data)
{
	struct fake_job *job = fake_job(stream);

	job->call = call;
	job->data = data;
}

/* Do the next job of [stream], and before it what it waits for. Returns whether there was one. */
static inline bool fake_run_one(enum device_stream stream)
{
	struct fake_queue *queue = &fake.queues[stream];
	struct fake_job *job = &queue->jobs[queue->done];

	if (queue->done == queue->count)
		return false;
	for (int other = 0; other < DEVICE_STREAMS; other++) {
		while (fake.queues[other].done < job->after[other])
			fake_run_one((enum device_stream)other);
	}
	if (job->call)
		job->call(job->data);
	else
		memcpy(job->to, job->from, job->bytes);
	queue->done++;
	return true;
}

static inline void fake_run(enum device_stream stream)
{
	while (fake_run_one(stream))
		continue;
}

/* --- device.h ------------------------------------------------------------------------------ */

void *device_stream(const struct device *device, enum device_stream stream)
{
	return (void *)&device->queues[stream];
}

/* What a kernel's function is given as its stream. */
static inline enum device_stream fake_stream(const void *stream)
{
	return (enum device_stream)((const struct fake_queue *)stream - fake.queues);
}

int device_alloc(struct device *device, void **memory, size_t bytes, const char *what,
		 const char *remedy, struct ddp_error *error)
{
	snprintf(device->what, sizeof(device->what), "%s", what);
	snprintf(device->remedy, sizeof(device->remedy), "%s", remedy ? remedy : "");
	if (device->allowed-- <= 0)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for %s", what);
	*memory = calloc(1, bytes);
	ck_assert_ptr_nonnull(*memory);
	device->allocations++;
	return 0;
}

int device_alloc_host(struct device *device, void **memory, size_t bytes, const char *what,
		      struct ddp_error *error)
{
	return device_alloc(device, memory, bytes, what, NULL, error);
}

void device_free(struct device *device, void *memory)
{
	device->allocations -= memory != NULL;
	free(memory);
}

int device_copy(struct device *device, enum device_stream stream, void *to, const void *from,
		size_t bytes, struct ddp_error *error)
{
	struct fake_job *job;

	if (device->broken)
		return ddp_error_set(error, DDP_ERR_ENGINE, "a fault of the card");
	job = fake_job(stream);
	job->to = to;
	job->from = from;
	job->bytes = bytes;
	return 0;
}

int device_order(struct device *device, enum device_stream later, enum device_stream earlier,
		 struct ddp_error *error)
{
	(void)error;
	device->queues[later].after[earlier] = device->queues[earlier].count;
	device->orders++;
	return 0;
}

int device_mark(struct device *device, enum device_stream stream, int slot, struct ddp_error *error)
{
	(void)error;
	ck_assert_int_lt(slot, DEVICE_MARKS);
	device->marks[slot].stream = stream;
	device->marks[slot].count = device->queues[stream].count;
	return 0;
}

/* Who asks gives the stream the time for one job. */
int device_reached(struct device *device, int slot, struct ddp_error *error)
{
	enum device_stream stream = device->marks[slot].stream;

	(void)error;
	if (device->queues[stream].done >= device->marks[slot].count)
		return 1;
	if (!device->hangs)
		fake_run_one(stream);
	return 0;
}

int device_wait(struct device *device, enum device_stream stream, struct ddp_error *error)
{
	if (device->hangs)
		return ddp_error_set(error, DDP_ERR_ENGINE, "stream %d does not end", (int)stream);
	fake_run(stream);
	return 0;
}

int device_check(struct device *device, const char *what, struct ddp_error *error)
{
	(void)device;
	(void)what;
	(void)error;
	return 0;
}

#endif /* DDP_TESTS_FAKE_DEVICE_H */
