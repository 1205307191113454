/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>

#include "scratch.h"

/* The piece that nobody uses now. A thread that finds it taken makes one of its own. */
static struct scratch spare;
static size_t users;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *scratch_alloc(size_t size)
{
	void *data;

	return posix_memalign(&data, SCRATCH_ALIGN, size ? size : 1) == 0 ? data : NULL;
}

void scratch_trim(void)
{
	pthread_mutex_lock(&lock);
	free(spare.data);
	spare = (struct scratch){0};
	pthread_mutex_unlock(&lock);
}

void scratch_open(void)
{
	pthread_mutex_lock(&lock);
	users++;
	pthread_mutex_unlock(&lock);
}

void scratch_close(void)
{
	pthread_mutex_lock(&lock);
	if (--users == 0) {
		free(spare.data);
		spare = (struct scratch){0};
	}
	pthread_mutex_unlock(&lock);
}

int scratch_take(struct scratch *scratch, size_t size)
{
	pthread_mutex_lock(&lock);
	*scratch = spare;
	spare = (struct scratch){0};
	pthread_mutex_unlock(&lock);
	if (scratch->size >= size)
		return 0;
	free(scratch->data);
	scratch->data = scratch_alloc(size);
	scratch->size = scratch->data ? size : 0;
	return scratch->data ? 0 : -1;
}

void scratch_give(struct scratch *scratch)
{
	void *unwanted;

	pthread_mutex_lock(&lock);
	unwanted = scratch->data;
	if (scratch->size > spare.size) {
		unwanted = spare.data;
		spare = *scratch;
	}
	pthread_mutex_unlock(&lock);
	free(unwanted);
	*scratch = (struct scratch){0};
}
