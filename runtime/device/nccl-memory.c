/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "nccl-engine.h"

/* Sizes are rounded up to this, which NCCL wants of windows. */
enum { ALIGNMENT = 4096 };

/* Seconds that freeing may take before it is a failure. */
#define FREE_SECONDS 10.0

/* One way for all ranks, as their versions are equal. */
enum method { PLAIN, REGISTERED, WINDOWS };

/*
 * In windows NCCL runs kernels of another kind, between GPUs of one node. From 2.28.3 on they did not wait for the
 * kernel in front of them on the stream, whose results they read, until 2.30.7; nor did ncclCommAbort() end them
 * before 2.29.7.
 */
static enum method method_of(const struct ddp_device *device)
{
#if NCCL_HAS(2, 27, 3)
	if (device->version >= NCCL_VERSION(2, 30, 7) && ncclCommWindowRegister &&
	    ncclCommWindowDeregister && ncclMemAlloc && ncclMemFree)
		return WINDOWS;
#endif
#if NCCL_HAS(2, 19, 1)
	if (device->version >= NCCL_VERSION(2, 19, 1) && ncclCommRegister && ncclCommDeregister &&
	    ncclMemAlloc && ncclMemFree)
		return REGISTERED;
#endif
	(void)device;
	return PLAIN;
}

const char *ddp_nccl_memory_method(const struct ddp_device *device)
{
	static const char *const names[] = {"plain", "registered", "windows"};

	return names[method_of(device)];
}

/* --- One rank's part --------------------------------------------------------------------- */

static int obtain(const struct ddp_device *device, struct ddp_nccl_memory *memory,
		  struct ddp_error *error)
{
#if NCCL_HAS(2, 19, 1)
	if (method_of(device) != PLAIN) {
		memory->nccl = true;
		return ddp_nccl_result(device, ncclMemAlloc(&memory->base, memory->bytes), error,
				       "allocating %zu bytes", memory->bytes);
	}
#endif
	return ddp_nccl_cuda(device, cudaMalloc(&memory->base, memory->bytes), error,
			     "allocating %zu bytes", memory->bytes);
}

/* In the order of whoever goes on, on any stream. */
static void clear(const struct ddp_device *device, const struct ddp_nccl_memory *memory,
		  struct ddp_error *error)
{
	cudaError_t result = cudaMemsetAsync(memory->base, 0, memory->bytes, device->stream);

	if (result == cudaSuccess)
		result = cudaStreamSynchronize(device->stream);
	ddp_nccl_cuda(device, result, error, "clearing %zu bytes", memory->bytes);
}

static int give_back(const struct ddp_device *device, struct ddp_nccl_memory *memory,
		     struct ddp_error *error)
{
	void *base = memory->base;

	memory->base = NULL;
	if (!base)
		return 0;
#if NCCL_HAS(2, 19, 1)
	if (memory->nccl)
		return ddp_nccl_result(device, ncclMemFree(base), error, "freeing %zu bytes",
				       memory->bytes);
#endif
	return ddp_nccl_cuda(device, cudaFree(base), error, "freeing %zu bytes", memory->bytes);
}

static ncclResult_t enroll(const struct ddp_device *device, ncclComm_t comm,
			   struct ddp_nccl_memory *memory)
{
	switch (method_of(device)) {
#if NCCL_HAS(2, 27, 3)
	case WINDOWS: {
		ncclWindow_t window = NULL;
		ncclResult_t result = ncclCommWindowRegister(comm, memory->base, memory->bytes,
							     &window, NCCL_WIN_COLL_SYMMETRIC);

		memory->window = window;
		return result;
	}
#endif
#if NCCL_HAS(2, 19, 1)
	case REGISTERED:
		return ncclCommRegister(comm, memory->base, memory->bytes, &memory->handle);
#endif
	default:
		(void)comm;
		return ncclSuccess;
	}
}

static ncclResult_t withdraw(ncclComm_t comm, struct ddp_nccl_memory *memory)
{
	ncclResult_t result = ncclSuccess;

	memory->known = false;
#if NCCL_HAS(2, 27, 3)
	if (memory->window)
		result = ncclCommWindowDeregister(comm, (ncclWindow_t)memory->window);
	memory->window = NULL;
#endif
#if NCCL_HAS(2, 19, 1)
	if (memory->handle && result == ncclSuccess)
		result = ncclCommDeregister(comm, memory->handle);
	memory->handle = NULL;
#endif
	(void)comm;
	return result;
}

/* --- In a thread, as each of these can wait for another rank ------------------------------- */

enum step { ENROLL, WITHDRAW, FREE };
static const char *const doing[] = {"registering", "deregistering", "deregistering"};

struct task {
	const struct ddp_device *device;
	ncclComm_t comm;
	struct ddp_nccl_memory memory;
	enum step step;
	struct ddp_error error;
};

static void run(void *arguments)
{
	struct task *task = arguments;
	ncclResult_t result = ncclSuccess;

	(void)cudaSetDevice(task->device->index);
	if (task->step == ENROLL)
		result = enroll(task->device, task->comm, &task->memory);
	else
		result = withdraw(task->comm, &task->memory);
	ddp_nccl_result(task->device, result, &task->error, "%s %zu bytes", doing[task->step],
			task->memory.bytes);
	if (task->step == FREE && !task->error.status)
		(void)give_back(task->device, &task->memory, &task->error);
}

/*
 * Returns 0 with what NCCL said in [failed]; or why the wait for it ended in [error], which is the end of the
 * engine: nothing else is to be asked of it.
 */
static int run_bounded(struct ddp_device *device, enum step step, struct ddp_nccl_memory *memory,
		       const struct ddp_watch *watch, struct ddp_error *failed,
		       struct ddp_error *error)
{
	struct task task = {
		.device = device, .comm = device->comm, .memory = *memory, .step = step};
	int status = ddp_bounded_call(&device->stuck, run, &task, sizeof(task), watch, error);

	if (status == DDP_ERR_TIMEOUT && !error->text[0])
		ddp_error_set(error, status, "%s: NCCL did not end %s %zu bytes in %g s",
			      device->who, doing[step], memory->bytes, watch->limit);
	if (status) {
		error->status = status;
		ddp_nccl_fail(device, error);
		return status;
	}
	*memory = task.memory;
	*failed = task.error;
	return 0;
}

/* --- All ranks together ------------------------------------------------------------------ */

/*
 * Find out whether [mine] is true on all ranks: registered on one and not on another is
 * undefined, and a rank that failed alone would leave the others waiting.
 */
static int agree(struct ddp_device *device, bool mine, bool *all, const struct ddp_watch *watch,
		 struct ddp_error *error)
{
	int status;

	*all = mine;
	if (device->size == 1)
		return 0;
	*device->host_word = mine;
	TRY(device,
	    cudaMemcpyAsync(device->word, device->host_word, sizeof(*device->word),
			    cudaMemcpyHostToDevice, device->stream),
	    error, "copying a word");
	status = ddp_nccl_all_reduce(device, device->word, device->word, 1, DDP_I32, DDP_MIN, NULL,
				     error);
	if (status)
		return status;
	TRY(device,
	    cudaMemcpyAsync(device->host_word, device->word, sizeof(*device->word),
			    cudaMemcpyDeviceToHost, device->stream),
	    error, "copying a word");
	status = ddp_nccl_wait(device, NULL, watch, error);
	if (!status)
		*all = *device->host_word != 0;
	return status;
}

/* Register on all ranks or on none; memory without is slower, and no failure. */
static int enroll_all(struct ddp_device *device, struct ddp_nccl_memory *memory,
		      const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_error failed = {0, ""};
	int status;

	if (method_of(device) == PLAIN)
		return 0;
	status = run_bounded(device, ENROLL, memory, watch, &failed, error);
	if (!status)
		status = agree(device, failed.status == 0, &memory->known, watch, error);
	if (status || memory->known)
		return status;
	ddp_log_print(device->log, DDP_LEVEL_WARNING, "nccl",
		      "%zu bytes are not registered, all-reduce of them is slower: %s",
		      memory->bytes, failed.status ? failed.text : "another rank failed to");
	return run_bounded(device, WITHDRAW, memory, watch, &failed, error);
}

static int obtain_all(struct ddp_device *device, struct ddp_nccl_memory *memory,
		      const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_error failed = {0, ""};
	int was = ddp_card_enter(device->index), status;
	bool all;

	if (obtain(device, memory, &failed))
		memory->base = NULL;
	else
		clear(device, memory, &failed);
	status = agree(device, failed.status == 0, &all, watch, error);
	if (!status && !all) {
		(void)give_back(device, memory, NULL);
		if (failed.status)
			status = ddp_error_set(error, DDP_ERR_MEMORY, "%s", failed.text);
		else
			status = ddp_error_set(error, DDP_ERR_MEMORY,
					       "%s: another rank could not "
					       "allocate its %zu bytes",
					       device->who, memory->bytes);
	}
	ddp_card_leave(device->index, was);
	return status;
}

int ddp_nccl_alloc(struct ddp_device *device, size_t bytes, void **memory,
		   const struct ddp_watch *watch, struct ddp_error *error)
{
	struct ddp_error story = {0, ""};
	struct ddp_nccl_memory *new;
	int status;

	*memory = NULL;
	if (bytes == 0 || bytes > SIZE_MAX - ALIGNMENT)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "device memory of %zu bytes", bytes);
	status = ddp_nccl_health(device, error);
	if (status)
		return status;
	if (!device->comm)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "%s: device memory comes after connecting", device->who);
	new = calloc(1, sizeof(*new));
	if (!new)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory to note device memory");
	new->bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT *ALIGNMENT;
	status = obtain_all(device, new, watch, &story);
	if (!status)
		status = enroll_all(device, new, watch, &story);
	if (status && error)
		*error = story;
	if (!new->base) {
		free(new);
		return status;
	}
	/* Also where it failed: close() frees it, if it still can. */
	new->next = device->memory;
	device->memory = new;
	*memory = status ? NULL : new->base;
	return status;
}

int ddp_nccl_free(struct ddp_device *device, void *memory, struct ddp_error *error)
{
	struct ddp_watch watch = ddp_watch_start(FREE_SECONDS, NULL, NULL);
	struct ddp_error story = {0, ""}, failed = {0, ""};
	struct ddp_nccl_memory **link, *found;
	int status;

	if (!memory)
		return 0;
	for (link = &device->memory; *link && (*link)->base != memory; link = &(*link)->next)
		;
	found = *link;
	if (!found)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "%s: %p is no memory of the engine",
				     device->who, memory);
	status = ddp_nccl_health(device, error);
	if (status)
		return status;
	*link = found->next;
	status = run_bounded(device, FREE, found, &watch, &failed, &story);
	free(found);
	if (!status)
		story = failed;
	if (story.status && error)
		*error = story;
	return story.status;
}

/* --- close() ----------------------------------------------------------------------------- */

void ddp_nccl_memory_deregister(struct ddp_device *device)
{
	for (struct ddp_nccl_memory *memory = device->memory; memory; memory = memory->next)
		(void)withdraw(device->comm, memory);
}

void ddp_nccl_memory_free(struct ddp_device *device)
{
	while (device->memory) {
		struct ddp_nccl_memory *memory = device->memory;

		device->memory = memory->next;
		(void)give_back(device, memory, NULL);
		free(memory);
	}
}
