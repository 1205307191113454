/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.h - ranks of one GPU as processes, for shards.c and the bench of them
 *
 * Ranks meet by files in a directory of their own, as torchrun's do. Whoever starts them never touches CUDA,
 * which is not to be forked. With SHARDS_ON_HOST the device is host memory, as in tests/runtime/shard-host.c:
 * that tries the programs themselves.
 */
#ifndef DDP_TESTS_SHARDS_GPU_H
#define DDP_TESTS_SHARDS_GPU_H

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

enum { RANKS_MOST = 16, RANK_DIED = 98, RANK_LEFT = 3 };

/* --- The device --------------------------------------------------------------------------- */

#ifdef SHARDS_ON_HOST

static inline bool device_in(void *device, const void *host, size_t bytes)
{
	memcpy(device, host, bytes);
	return true;
}

static inline bool device_out(void *host, const void *device, size_t bytes)
{
	memcpy(host, device, bytes);
	return true;
}

static inline void *device_plain(size_t bytes)
{
	return calloc(1, bytes);
}

static inline void device_plain_free(void *memory)
{
	free(memory);
}

static inline size_t device_available(size_t *total)
{
	*total = (size_t)8 << 30;
	return *total;
}

#else

#include <cuda_runtime_api.h>

/* Memory of a stream that was not waited for is another's. */
static inline bool device_in(void *device, const void *host, size_t bytes)
{
	return cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice) == cudaSuccess &&
	       cudaDeviceSynchronize() == cudaSuccess;
}

static inline bool device_out(void *host, const void *device, size_t bytes)
{
	return cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}

static inline void *device_plain(size_t bytes)
{
	void *memory = NULL;

	return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : NULL;
}

static inline void device_plain_free(void *memory)
{
	cudaFree(memory);
}

static inline size_t device_available(size_t *total)
{
	size_t available = 0;

	*total = 0;
	return cudaMemGetInfo(&available, total) == cudaSuccess ? available : 0;
}

#endif

/* --- Ranks -------------------------------------------------------------------------------- */

/* What all processes of a program see. */
struct common {
	int under_way;	    /* ranks whose sums have begun */
	size_t free, total; /* of the device, as a process of its own saw it */
	uint64_t digest;    /* of what a world computed */
	double figures[64];
};

static struct common *common;

struct ranks {
	int size;
	char directory[64];
	pid_t pids[RANKS_MOST];
	int statuses[RANKS_MOST]; /* exit status, or -signal */
};

static inline void put_number(const char *name, double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.9g", value);
	setenv(name, text, 1);
}

/* A rank that torchrun started, whose share is an equal part. */
static inline void rank_environment(int rank, int size)
{
	static const char *const gone[] = {"DDP_ERROR",	   "DDP_RANK",	     "DDP_SIZE",
					   "DDP_JOB",	   "DDP_RENDEZVOUS", "DDP_DEVICE",
					   "SLURM_PROCID", "SLURM_JOB_ID"};

	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		unsetenv(gone[i]);
	put_number("RANK", rank);
	put_number("WORLD_SIZE", size);
	put_number("LOCAL_RANK", rank);
	put_number("LOCAL_WORLD_SIZE", size);
	put_number("GROUP_RANK", 0);
	put_number("GROUP_WORLD_SIZE", 1);
	setenv("TORCHELASTIC_RUN_ID", "test", 1);
	setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
	setenv("TORCHELASTIC_MAX_RESTARTS", "0", 1);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", "7", 1);
	put_number("DDP_SHARE", 1.0 / size);
#ifdef SHARDS_ON_HOST
	setenv("DDP_HOST_GPU", "a", 1);
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
#endif
}

/* In a new process: what it prints goes into a file, but for rank 0's. Rank 0's destructors run too. */
static inline void rank_main(const struct ranks *ranks, int rank, int (*body)(int rank, int size))
{
	char path[128];
	int status;

	snprintf(path, sizeof(path), "%s/out-%d", ranks->directory, rank);
	if ((rank > 0 && !freopen(path, "w", stdout)) || chdir(ranks->directory) < 0)
		_exit(RANK_DIED);
	if (rank > 0)
		dup2(fileno(stdout), STDERR_FILENO);
	rank_environment(rank, ranks->size);
	status = body(rank, ranks->size);
	fflush(NULL);
	exit(status);
}

static inline bool ranks_start(struct ranks *ranks, int size, int (*body)(int rank, int size))
{
	*ranks = (struct ranks){.size = size};
	common->under_way = 0;
	snprintf(ranks->directory, sizeof(ranks->directory), "%s", "/tmp/ddp-shards.XXXXXX");
	if (!mkdtemp(ranks->directory))
		return ok(false, "a directory for %d ranks", size);
	fflush(NULL);
	for (int rank = 0; rank < size; rank++) {
		ranks->pids[rank] = fork();
		if (ranks->pids[rank] == 0)
			rank_main(ranks, rank, body);
	}
	return true;
}

static inline int rank_unlink(const char *path, const struct stat *info, int kind, struct FTW *at)
{
	(void)info;
	(void)kind;
	(void)at;
	return remove(path);
}

/* What rank [rank] printed that went wrong, and what it said. */
static inline void rank_tell(const struct ranks *ranks, int rank)
{
	char path[128], line[1200];
	FILE *file;

	snprintf(path, sizeof(path), "%s/out-%d", ranks->directory, rank);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "ok", 2) != 0)
			printf("# rank %d: %s", rank, line);
	}
	if (file)
		fclose(file);
}

/* Wait for all. Returns how many did not end with [want], but for rank [but], which is killed. */
static inline int ranks_wait(struct ranks *ranks, int want, int but)
{
	int wrong = 0;

	for (int rank = 0; rank < ranks->size; rank++) {
		int status = 0;

		while (waitpid(ranks->pids[rank], &status, 0) < 0 && errno == EINTR)
			;
		ranks->statuses[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
		if (ranks->statuses[rank] == (rank == but ? -SIGKILL : want))
			continue;
		wrong++;
		printf("# rank %d ended with %d\n", rank, ranks->statuses[rank]);
		rank_tell(ranks, rank);
	}
	nftw(ranks->directory, rank_unlink, 16, FTW_DEPTH | FTW_PHYS);
	return wrong;
}

/* All of [size] ranks run [body] and end with 0. */
static inline bool ranks_run(int size, int (*body)(int rank, int size), const char *what)
{
	struct ranks ranks;

	return ranks_start(&ranks, size, body) &&
	       ok(ranks_wait(&ranks, 0, -1) == 0, "%d ranks on one GPU: %s", size, what);
}

/* --- Around them -------------------------------------------------------------------------- */

/* In a process of its own: what [look] says of the device. */
static inline bool alone(bool (*look)(void))
{
	int status = -1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		bool good = look();

		fflush(NULL);
		_exit(good ? EXIT_SUCCESS : EXIT_FAILURE);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static inline bool look_at_memory(void)
{
	common->free = device_available(&common->total);
	return common->total > 0;
}

/* Returns whether there is a device; else says that [program] is skipped. */
static inline bool shards_begin(const char *program)
{
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (common == MAP_FAILED)
		return ok(false, "%s: no memory", program);
	if (alone(look_at_memory))
		return true;
	printf("1..1\nok 1 - %s # skip no GPU can be used\n", program);
	return false;
}

/* --- In a rank ---------------------------------------------------------------------------- */

/* Whether [call] worked; else it is told. */
#define WORKS(ddp, call) works(ddp, (call), #call)

static inline bool works(struct ddp *ddp, int status, const char *call)
{
	if (status >= 0)
		return true;
	ok(false, "%s: %s", call, ddp_error(ddp));
	return false;
}

/* A handle with its device, or NULL. */
static inline struct ddp *join(int rank)
{
	struct ddp *ddp;

	if (ddp_init(&ddp, NULL) == 0 && ddp_device_join(ddp) == 0)
		return ddp;
	printf("# rank %d could not join: %s\n", rank, ddp_error(ddp));
	ddp_destroy(ddp);
	return NULL;
}

#endif /* DDP_TESTS_SHARDS_GPU_H */
