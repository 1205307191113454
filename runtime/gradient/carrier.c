/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "carrier.h"

struct ddp_carrier {
	int (*work)(void *owner, uint64_t job);
	void *owner;
	pthread_t thread;
	pthread_mutex_t mutex; /* of all below */
	pthread_cond_t changed;
	uint64_t posted, done;
	int status; /* the first error */
	bool stop;
};

/* One job, with the mutex held before and after. */
static void carry(struct ddp_carrier *carrier)
{
	uint64_t job = carrier->done;
	int status = carrier->status;

	if (status == 0) {
		pthread_mutex_unlock(&carrier->mutex);
		status = carrier->work(carrier->owner, job);
		pthread_mutex_lock(&carrier->mutex);
	}
	if (status < 0)
		carrier->status = status;
	carrier->done++;
	pthread_cond_broadcast(&carrier->changed);
}

static void *run(void *argument)
{
	struct ddp_carrier *carrier = argument;

	pthread_mutex_lock(&carrier->mutex);
	while (!carrier->stop) {
		if (carrier->done < carrier->posted)
			carry(carrier);
		else
			pthread_cond_wait(&carrier->changed, &carrier->mutex);
	}
	pthread_mutex_unlock(&carrier->mutex);
	return NULL;
}

/* A thread inherits its creator's mask, and SIGTERM is for the thread that trains. */
static int start(struct ddp_carrier *carrier)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	rc = pthread_create(&carrier->thread, NULL, run, carrier);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int ddp_carrier_create(struct ddp_carrier **result, int (*work)(void *owner, uint64_t job),
		       void *owner, struct ddp_error *error)
{
	struct ddp_carrier *carrier = calloc(1, sizeof(*carrier));
	int rc;

	*result = NULL;
	if (!carrier)
		return ddp_error_set(error, DDP_ERR_MEMORY, "gradients: out of memory");
	carrier->work = work;
	carrier->owner = owner;
	pthread_mutex_init(&carrier->mutex, NULL);
	pthread_cond_init(&carrier->changed, NULL);
	rc = start(carrier);
	if (rc != 0) {
		pthread_cond_destroy(&carrier->changed);
		pthread_mutex_destroy(&carrier->mutex);
		free(carrier);
		errno = rc;
		return ddp_error_errno(error, DDP_ERR_SYSTEM,
				       "gradients: starting the communication thread");
	}
	*result = carrier;
	return 0;
}

void ddp_carrier_destroy(struct ddp_carrier *carrier)
{
	if (!carrier)
		return;
	pthread_mutex_lock(&carrier->mutex);
	carrier->stop = true;
	pthread_cond_broadcast(&carrier->changed);
	pthread_mutex_unlock(&carrier->mutex);
	pthread_join(carrier->thread, NULL);
	pthread_cond_destroy(&carrier->changed);
	pthread_mutex_destroy(&carrier->mutex);
	free(carrier);
}

int ddp_carrier_post(struct ddp_carrier *carrier)
{
	int status;

	pthread_mutex_lock(&carrier->mutex);
	carrier->posted++;
	status = carrier->status;
	pthread_cond_broadcast(&carrier->changed);
	pthread_mutex_unlock(&carrier->mutex);
	return status;
}

int ddp_carrier_wait(struct ddp_carrier *carrier)
{
	int status;

	pthread_mutex_lock(&carrier->mutex);
	while (carrier->done < carrier->posted)
		pthread_cond_wait(&carrier->changed, &carrier->mutex);
	status = carrier->status;
	pthread_mutex_unlock(&carrier->mutex);
	return status;
}
