/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp.h - data-parallel programs in C
 *
 * A program that calls ddp_init() becomes one rank of a world: under `srun --ddp`, under a
 * plain srun, under torchrun, or alone. The ranks share gradients, draw disjoint samples,
 * evaluate together and write checkpoints that do not depend on their number.
 *
 *	struct ddp *ddp;
 *
 *	if (ddp_init(&ddp, NULL) < 0)
 *		ddp_exit(ddp);
 *	printf("rank %d of %d\n", ddp_world(ddp)->rank, ddp_world(ddp)->size);
 *	if (ddp_all_reduce(ddp, x, x, n, DDP_F32, DDP_SUM) < 0)
 *		ddp_exit(ddp);
 *	ddp_destroy(ddp);
 *
 * RETURN VALUES. A function that can fail returns 0 (or a count) on success and a negative
 * DDP_ERR_x on failure. The text of the error is in ddp_error() of the handle. Functions without a
 * handle write it to their struct ddp_error, which may be NULL.
 *
 * COLLECTIVES. Functions marked "collective" must be called by all ranks, in the same order,
 * with arguments that agree. They end within the time limit (DDP_TIMEOUT): with success on all
 * ranks, or with an error that names the ranks that did not arrive. After an error of the group
 * "peer" no collective is possible any more: the program should call ddp_exit().
 *
 * THREADS. A handle is used by one thread at a time. Different handles are independent.
 *
 * VARIABLES. ddp(7) lists the environment variables that ddp_init() reads.
 *
 * VERSIONS. A program that was built with libddp.so.1 works with every later libddp.so.1, without a new build.
 * Until the soname changes, a release may only
 *  - add functions, values of enum ddp_status and macros;
 *  - append members to structures that begin with their size, and to struct ddp_world, which libddp allocates;
 *  - change texts of messages, and speed.
 * Other structures and enumerations stay as they are, and so do files: a release reads checkpoints of all earlier ones.
 * All ranks of a world must run the same release; ddp_init() checks that. A program that uses an added function
 * needs the release that added it, or a later one: DDP_VERSION_NUMBER is for #if.
 *
 * libtool's -version-info C:R:A in runtime/Makefile.am changes once per release:
 *  - only code changed: R + 1;
 *  - functions or members were added: C + 1, R = 0, A + 1;
 *  - anything was removed or changed: C + 1, R = 0, A = 0, which is the next soname, libddp.so.(C - A).
 * The first release is 1:0:0, since libddp.so.0 was the name in development, without any of these rules.
 */
#ifndef DDP_H
#define DDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DDP_API __attribute__((visibility("default")))
#define DDP_FORMAT(text, first) __attribute__((format(printf, text, first)))
#else
#define DDP_API
#define DDP_FORMAT(text, first)
#endif

/* --- Version --------------------------------------------------------------------------- */

/* The release of this header. The number is major * 10000 + minor * 100 + patch. */
#define DDP_VERSION "1.0.0"
#define DDP_VERSION_NUMBER 10000

/* The release of the library that the program runs with, such as "1.0.0", which may be later than DDP_VERSION. */
DDP_API const char *ddp_version(void);

/* --- Errors ---------------------------------------------------------------------------- */

/* X(name, value, text), grouped by who can repair the error. */
#define DDP_STATUS_MAP(X)                                            \
	/* the caller */                                             \
	X(ARGUMENT, -1, "invalid argument")                          \
	X(STATE, -2, "not possible in this state")                   \
	X(UNSUPPORTED, -3, "not supported by this build or machine") \
	/* this process or this machine */                           \
	X(ENVIRONMENT, -10, "the environment is contradictory")      \
	X(SYSTEM, -11, "a system call failed")                       \
	X(MEMORY, -12, "out of memory")                              \
	X(FILE, -13, "a file cannot be read or written")             \
	X(FORMAT, -14, "a file is damaged or of another kind")       \
	X(ENGINE, -15, "an engine failed")                           \
	/* a peer: the world is lost */                              \
	X(TIMEOUT, -20, "a rank did not arrive in time")             \
	X(PEER, -21, "a rank is gone")                               \
	X(ABORTED, -22, "another rank gave up")                      \
	X(MISMATCH, -23, "the ranks do not agree")

enum ddp_status {
	DDP_OK = 0,
#define DDP_STATUS_ENUM(name, value, text) DDP_ERR_##name = (value),
	DDP_STATUS_MAP(DDP_STATUS_ENUM)
#undef DDP_STATUS_ENUM
};

#define DDP_ERROR_SIZE 1024

/* A status and its text, which is "" if the status is 0. */
struct ddp_error {
	int status;
	char text[DDP_ERROR_SIZE];
};

/* The general meaning of [status]. Returns a constant text, never NULL. */
DDP_API const char *ddp_strerror(int status);

/* Whether [status] is of the group "peer", after which no collective is possible any more. */
DDP_API bool ddp_is_peer_error(int status);

/* The exit status for [status]: 0 for DDP_OK, else 65 to 127. */
DDP_API int ddp_exit_status(int status);

/* --- The world ------------------------------------------------------------------------- */

struct ddp; /* one rank's membership of a world */

struct ddp_options {
	size_t size;	/* sizeof(struct ddp_options) */
	double timeout; /* of a collective, in seconds; 0: DDP_TIMEOUT, else 600 */
	const char
		*method; /* "file", "pmix", "single"; NULL: DDP_METHOD, else the first that works */
	bool no_signals; /* install no handler for SIGTERM; it then writes no records */
	bool device;	 /* collectives on device memory will be used (ddp_device_*) */
};

#define DDP_OPTIONS_INIT                                          \
	{                                                         \
		sizeof(struct ddp_options), 0, NULL, false, false \
	}

/* Texts are valid as long as the handle. Nodes are numbered in the order of their lowest ranks. */
struct ddp_world {
	int rank, size;
	int local_rank, local_size; /* among the ranks of this node */
	int node_rank, node_count;
	int device;	    /* index of the device to use, -1: none */
	double share;	    /* this rank's part of the device, 0: not known */
	int attempt;	    /* number of requeues of the job so far */
	int64_t end_time;   /* end of the job's time limit, seconds since 1970; 0: not known */
	const char *job;    /* equal on all ranks, different for any two steps */
	const char *host;   /* this node: Slurm's name for it, else the host's name */
	const char *source; /* "srun --ddp", "srun", "torchrun", "single" */
	const char *method; /* rendezvous method: "file", "pmix", "single" */
	const char *wide;   /* the engine between groups: "tcp", "mpi"; "none" with one group */
	double timeout;	    /* seconds */
	const char *
		transport; /* of this rank, "TCP (eth0, 10.0.0.7:4242, 3 connections)"; "" with one group */
	int group_size; /* ranks that share memory with this one, itself included */
};

/*
 * Join the world. [options] may be NULL. Collective: it ends when all ranks have arrived.
 * Returns 0 with a handle in [ddp]. On failure [ddp] is a handle, too, for ddp_error(),
 * ddp_exit() and ddp_destroy() only (NULL if memory is out, which these accept).
 */
DDP_API int ddp_init(struct ddp **ddp, const struct ddp_options *options);

/*
 * Leave the world: wait for the other ranks, so that none reports this one as lost, then free
 * the handle and its arenas. After an error it does not wait. NULL is legal.
 */
DDP_API void ddp_destroy(struct ddp *ddp);

/* Rank, size and so on. Returns a pointer that is valid until ddp_destroy(). */
DDP_API const struct ddp_world *ddp_world(const struct ddp *ddp);

/* The text of the last error of [ddp], "" if there was none. */
DDP_API const char *ddp_error(const struct ddp *ddp);

/* The status of the last error of [ddp]: 0 or DDP_ERR_x. */
DDP_API int ddp_status(const struct ddp *ddp);

/*
 * Abort the world with a reason. Each rank fails with DDP_ERR_ABORTED and this text in the
 * collective that it is in or enters next. Not collective.
 */
DDP_API void ddp_abort(struct ddp *ddp, const char *format, ...) DDP_FORMAT(2, 3);

/*
 * Show ddp-run --hang that this rank makes progress: touch the file DDP_HEARTBEAT, once a second at most. Each collective
 * does so when it has ended. A program calls it if it works for a long time between two collectives. It takes a few nanoseconds
 * if DDP_HEARTBEAT is not set.
 */
DDP_API void ddp_beat(struct ddp *ddp);

/*
 * Print [ddp]'s error, with the prefix of the log, report it to the other ranks unless it came from
 * them, and exit with ddp_exit_status(). Does not return.
 */
DDP_API void ddp_exit(struct ddp *ddp);

enum ddp_level { DDP_LEVEL_ERROR, DDP_LEVEL_WARNING, DDP_LEVEL_INFO, DDP_LEVEL_DEBUG };

/*
 * Print a line on stderr, "ddp[3@n2]: text", if DDP_LOG includes [level]; by default errors of all
 * ranks, and warnings and infos of rank 0 only. [subsystem] is a word for DDP_LOG's filter.
 *
 * libddp itself warns of a rank for which the others wait: every few seconds the ranks exchange the times that they spent
 * between collectives on host memory. DDP_LOG=error turns the warning off, not the exchange.
 */
DDP_API void ddp_log(const struct ddp *ddp, enum ddp_level level, const char *subsystem,
		     const char *format, ...) DDP_FORMAT(4, 5);

/* --- Collectives ----------------------------------------------------------------------- */

/* X(name, bytes, name in safetensors) */
#define DDP_TYPE_MAP(X)    \
	X(F32, 4, "F32")   \
	X(F64, 8, "F64")   \
	X(BF16, 2, "BF16") \
	X(F16, 2, "F16")   \
	X(I32, 4, "I32")   \
	X(I64, 8, "I64")   \
	X(U8, 1, "U8")

enum ddp_type {
#define DDP_TYPE_ENUM(name, bytes, text) DDP_##name,
	DDP_TYPE_MAP(DDP_TYPE_ENUM)
#undef DDP_TYPE_ENUM
		DDP_TYPE_COUNT
};

enum ddp_op { DDP_SUM, DDP_MAX, DDP_MIN, DDP_OP_COUNT };

/* Bytes of one element of [type], 0 for an unknown type. */
DDP_API size_t ddp_type_size(enum ddp_type type);

/*
 * Combine [count] elements of all ranks: recv[i] = send[i] of rank 0 op ... op send[i] of the
 * last rank. The order of the sum is fixed; 16-bit types are summed in f32 and rounded once
 * per group. [send] may be [recv]. If [recv] is in an arena, at the same offset on all ranks,
 * nothing is copied. Collective.
 */
DDP_API int ddp_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
			   enum ddp_type type, enum ddp_op op);

/* Copy [bytes] of [buffer] from rank [root] to all ranks. Collective. */
DDP_API int ddp_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root);

/* Copy [bytes] of each rank's [send] to [recv] of all ranks, in rank order: size x [bytes]. Collective. */
DDP_API int ddp_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes);

/*
 * Agree whether all ranks continue. [status] is 0, or a DDP_ERR_x that this rank alone has found, such as
 * a file that it cannot open, with its [text]; NULL: ddp_strerror().
 * Returns on all ranks 0, or the error of the lowest rank that has one. ddp_error() then has its text, with
 * rank and host unless all ranks have the same text. Collective.
 */
DDP_API int ddp_agree(struct ddp *ddp, int status, const char *text);

/* Wait until all ranks have called it. Collective. */
DDP_API int ddp_barrier(struct ddp *ddp);

/*
 * Allocate [bytes], equal on all ranks, that all-reduce uses without a copy: zeroed, aligned to 64 at
 * least, shared with the ranks of this node. Collective.
 */
DDP_API int ddp_arena_create(struct ddp *ddp, size_t bytes, void **memory);

/*
 * Allocate [bytes], zeroed, once for all ranks that share memory, such as those of a node, for example for a
 * data set. It is not for collectives. Ranks that write while others read synchronize with C11
 * atomics. ddp_destroy() or ddp_arena_destroy() frees it. Collective.
 */
DDP_API int ddp_shared_create(struct ddp *ddp, size_t bytes, void **memory);

/* Free an arena; [memory] is from ddp_arena_create() or ddp_shared_create(), or NULL. Collective. */
DDP_API int ddp_arena_destroy(struct ddp *ddp, void *memory);

/*
 * Prepare collectives on the memory of this rank's device, world->device, as ddp_options.device does in
 * ddp_init(), for programs that decide later. A second call does nothing. If a rank has no device that
 * works, all ranks get that rank's error, and the world continues without devices. Collective.
 *
 * NCCL works on the devices if no two ranks have the same one; with NCCL 2.30 or newer and NCCL_MULTI_RANK_GPU_ENABLE=1
 * on all ranks also if some share one. Else, and if a rank has no NCCL, collectives are staged: data is copied to pinned
 * memory of the host, summed there with the bits of ddp_all_reduce(), and copied back.
 */
DDP_API int ddp_device_join(struct ddp *ddp);

/*
 * Returns how collectives on device memory travel, for a log: for example "NCCL 2.28.9" or "staged through host memory,
 * 2 ranks share GPU 0 on n1". "" before ddp_device_join().
 */
DDP_API const char *ddp_device_path(const struct ddp *ddp);

/*
 * Whether collectives on device memory may be part of a CUDA graph. Staged ones may not, since the host takes part.
 * The same on all ranks; false before ddp_device_join().
 */
DDP_API bool ddp_device_captures(const struct ddp *ddp);

/*
 * Collectives on device memory (after ddp_device_join()), enqueued on [stream], a cudaStream_t; NULL
 * is the library's stream. They return when enqueued. ddp_device_wait() waits with the time
 * limit; if it fails, no earlier result is valid. Staged ones wait for the stream and return
 * with the result. Collective.
 */
DDP_API int ddp_device_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
				  enum ddp_type type, enum ddp_op op, void *stream);
DDP_API int ddp_device_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root,
				 void *stream);
DDP_API int ddp_device_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes,
				  void *stream);
DDP_API int ddp_device_wait(struct ddp *ddp, void *stream);

/*
 * Whether the results of collectives on device memory so far are valid, for a caller that knows without ddp_device_wait()
 * that they have ended, for example from a word that a later kernel wrote. Never waits.
 */
DDP_API int ddp_device_check(struct ddp *ddp);

/*
 * Allocate device memory, zeroed, and registered with the engine if its version supports that. Collective.
 * Once a collective was captured into a CUDA graph, registered memory that was freed returns to the
 * device only in ddp_destroy(), because NCCL may use it until its communicator ends.
 */
DDP_API int ddp_device_alloc(struct ddp *ddp, size_t bytes, void **memory);
DDP_API int ddp_device_free(struct ddp *ddp, void *memory);

/* --- Sampling -------------------------------------------------------------------------- */

struct ddp_sampler; /* the order of this rank's samples */

struct ddp_sampler_options {
	size_t size;	  /* sizeof(struct ddp_sampler_options) */
	uint64_t samples; /* of the data set */
	int rank, ranks;
	uint64_t seed; /* the order depends on seed and epoch */
	bool shuffle;
	bool drop_last; /* drop the tail that does not divide, instead of repeating samples */
	bool exact;	/* for evaluation: every sample once, ranks may differ by one */
};

#define DDP_SAMPLER_OPTIONS_INIT                                                   \
	{                                                                          \
		sizeof(struct ddp_sampler_options), 0, 0, 1, 0, true, false, false \
	}

/*
 * PyTorch's DistributedSampler, index for index: same seed, same epoch, same order. The order
 * is computed when an epoch's first sample is requested, into 4 bytes for each sample of the set.
 * Returns 0 with a sampler at the start of epoch 0, DDP_ERR_ARGUMENT or DDP_ERR_MEMORY.
 */
DDP_API int ddp_sampler_create(struct ddp_sampler **sampler,
			       const struct ddp_sampler_options *options, struct ddp_error *error);
DDP_API void ddp_sampler_destroy(struct ddp_sampler *sampler);

/* Number of samples of this rank in an epoch. */
DDP_API uint64_t ddp_sampler_length(const struct ddp_sampler *sampler);

/*
 * Get the next sample of this rank. Returns 1 with [index] set, or 0 at the end of the epoch. The call
 * after that returns the first sample of the next epoch; no set_epoch is needed.
 */
DDP_API int ddp_sampler_next(struct ddp_sampler *sampler, uint64_t *index);

/* Get up to [count] samples. Returns their number, 0 at the end of the epoch, as above. */
DDP_API size_t ddp_sampler_take(struct ddp_sampler *sampler, uint64_t *indices, size_t count);

/* Start [epoch] from its first sample. */
DDP_API void ddp_sampler_set_epoch(struct ddp_sampler *sampler, uint64_t epoch);

/* The epoch of the next sample. After the end of an epoch was returned it is the next epoch. */
DDP_API uint64_t ddp_sampler_epoch(const struct ddp_sampler *sampler);

/*
 * The position of all ranks together in the epoch's order, if each rank has got as many samples as
 * this one; at most the number of samples. A checkpoint should keep rank 0's: with an exact sampler no
 * other rank's is larger.
 */
DDP_API uint64_t ddp_sampler_position(const struct ddp_sampler *sampler);

/*
 * Continue at [position] of [epoch], with any number of ranks. The samples from there to the end of the
 * order are divided among the ranks, each sample once, by the rules of a whole epoch for the tail. With as many ranks
 * as before, the samples are those of an epoch without interruption. The next epoch is a whole one.
 * Returns 0, or DDP_ERR_ARGUMENT if [position] is more than the number of samples.
 */
DDP_API int ddp_sampler_seek(struct ddp_sampler *sampler, uint64_t epoch, uint64_t position,
			     struct ddp_error *error);

/*
 * Position in the epoch's order (not the index) of the next sample that ddp_sampler_next() returns. With
 * seed, epoch and layer it is the counter of random numbers.
 */
DDP_API uint64_t ddp_sampler_order(const struct ddp_sampler *sampler);

/*
 * Four 32-bit random numbers that depend on the arguments only (Philox4x32-10), so they are equal on
 * every rank, machine and device. [block] counts draws of one layer.
 * Different arguments give different draws as long as epochs are below 2^24 and orders below
 * 2^40; beyond these two may coincide.
 */
DDP_API void ddp_random(uint64_t seed, uint64_t epoch, uint64_t order, uint32_t layer,
			uint32_t block, uint32_t out[4]);

/* [bits] of ddp_random() as a number in [0, 1), in steps of 2^-24. */
DDP_API float ddp_random_uniform(uint32_t bits);

/* --- Gradients ------------------------------------------------------------------------- */

struct ddp_gradients; /* the gradients of a model, in buckets that are summed while backward runs */

struct ddp_parameter {
	const char *name; /* for messages */
	size_t count;	  /* elements */
};

struct ddp_gradients_options {
	size_t size;	     /* sizeof(struct ddp_gradients_options) */
	enum ddp_type type;  /* of the views: DDP_F32 or DDP_F64; on a device DDP_F32 */
	enum ddp_type wire;  /* of messages: [type], or DDP_BF16 or DDP_F16 to halve them */
	size_t first_bytes;  /* limit of the first bucket, 0: 1 MiB or less, as PyTorch */
	size_t bucket_bytes; /* limit of the others, 0: 25 MiB; reaching it closes a bucket */
	bool sum;	     /* compute the sum; else the mean over the ranks */
	size_t exact; /* number of first parameters that are always sent as [type], such as counters */
	bool device;	      /* views in device memory: ddp_gradients_place() */
	size_t virtual_ranks; /* of all ranks together; 0: none, sums are of the ranks */
};

#define DDP_GRADIENTS_OPTIONS_INIT                                                               \
	{                                                                                        \
		sizeof(struct ddp_gradients_options), DDP_F32, DDP_F32, 0, 0, false, 0, false, 0 \
	}

/*
 * Allocate the gradients of [parameters], listed in the order of the forward pass, so that they
 * become ready from the last to the first. Names and counts must agree on all ranks. Collective.
 */
DDP_API int ddp_gradients_create(struct ddp_gradients **gradients, struct ddp *ddp,
				 const struct ddp_gradients_options *options,
				 const struct ddp_parameter *parameters, size_t count);

/*
 * Call it before ddp_destroy(), which frees the views. Not collective. NULL is legal.
 */
DDP_API void ddp_gradients_destroy(struct ddp_gradients *gradients);

/* The address of the gradient of parameter [index], which does not change. */
DDP_API void *ddp_gradients_view(struct ddp_gradients *gradients, size_t index);

/* Elements from the first view of all to that of [index]. */
DDP_API size_t ddp_gradients_offset(const struct ddp_gradients *gradients, size_t index);

/*
 * All views as one array of [count] elements, for an optimizer. Views are in the order of the
 * buckets, each aligned to 64 bytes. Elements between them are zero and must stay zero.
 */
DDP_API void *ddp_gradients_all(struct ddp_gradients *gradients, size_t *count);

/* The bucket of parameter [index]. Buckets are summed in order, from 0. */
DDP_API size_t ddp_gradients_bucket(const struct ddp_gradients *gradients, size_t index);
DDP_API size_t ddp_gradients_buckets(const struct ddp_gradients *gradients);

/*
 * Report that the gradient of [index] is written. The sum of a bucket begins when it and all earlier buckets are
 * complete. Any thread of the backward pass may call it, one at a time. Until ddp_gradients_finish() no other
 * collective of the handle may be called. Does nothing while sync is off. Collective in effect.
 * Returns 0, or the error of an earlier sum, which ddp_gradients_finish() returns, too.
 */
DDP_API int ddp_gradients_ready(struct ddp_gradients *gradients, size_t index);

/*
 * Wait for all sums. The views then have the same values on all ranks. A parameter that was not reported
 * ready is summed with the values in its view. While sync is off nothing is summed. Begins the next step.
 * Collective.
 */
DDP_API int ddp_gradients_finish(struct ddp_gradients *gradients);

/*
 * Turn sums on or off for the next steps. Off is PyTorch's no_sync(): the backward pass adds to the
 * views, and the next step with sync sums the accumulated gradients. A step in which a gradient
 * was reported ready already is not changed.
 */
DDP_API void ddp_gradients_set_sync(struct ddp_gradients *gradients, bool sync);

/*
 * BIT-EQUAL SUMS ON ANY NUMBER OF RANKS. With ddp_gradients_options.virtual_ranks, V, a step sums the gradients of V
 * virtual ranks. The sum does not depend on their order, nor on which rank computes which: it is bit-equal on 1 to V ranks
 * and over every engine. The number of ranks R must divide V (1024 at most). Rank r computes virtual ranks
 * r * V / R to (r + 1) * V / R - 1, one after the other:
 *
 *	for (int v = first; v < first + V / R; v++) {
 *		...backward over the samples of virtual rank v, into the views;
 *		...ddp_gradients_ready() as its gradients are written
 *		ddp_gradients_finish(gradients);
 *	}
 *	...the optimizer
 *
 * Each finish but the last of a step stores the views' gradients without waiting for other ranks. Buckets are summed while the
 * last backward pass runs. The mean is over V. Steps without sync belong to no virtual rank: they add to the
 * next one. The caller must compute equal gradients for a virtual rank on any rank, from the same samples with the same
 * number of threads. Each gradient is rounded to a multiple of 2^-51 (with 1024 virtual ranks 2^-43) of the largest one of its
 * parameter. Inf and nan stay; all nans become one nan. Messages to other hosts have 8 bytes for each element, each
 * rank needs memory for the gradients of V / R - 1 models, and views are in host memory.
 */

/*
 * ON A DEVICE. With ddp_gradients_options.device the views are in device memory of the caller:
 * ddp_gradients_bytes() bytes, zeroed, from ddp_device_alloc(), which NCCL sums
 * without a copy. A single rank that has joined no device may use other memory, and one stream. Sums are enqueued
 * on [stream], NULL: the library's stream. With several ranks, after each bucket the
 * number of buckets summed so far is written to [progress], host memory that the device can access (cudaHostAlloc),
 * unless that is NULL. ddp_gradients_place() is collective.
 *
 *	ddp_gradients_create(&gradients, ddp, &options, parameters, count);
 *	ddp_device_alloc(ddp, ddp_gradients_bytes(gradients), &memory);
 *	ddp_gradients_place(gradients, memory, NULL, NULL);
 *	...each step: kernels on a stream, and after those of each layer
 *		ddp_gradients_ready_on(gradients, index, stream);
 *	ddp_gradients_finish_on(gradients, stream);
 *	...the optimizer's kernels, on the same stream
 *
 * Only streams wait; ddp_device_wait() returns whether the sums are valid. Staged sums (ddp_device_join()) are computed
 * in finish_on, bucket by bucket; a bucket is copied to the host as soon as its gradients are ready. The rank's device must be the
 * current device of the calling thread (cudaSetDevice). Norm, clip and scaler work on host memory only.
 */
DDP_API size_t ddp_gradients_bytes(const struct ddp_gradients *gradients);
DDP_API int ddp_gradients_place(struct ddp_gradients *gradients, void *memory, void *stream,
				uint64_t *progress);

/*
 * ready_on is ddp_gradients_ready() for a gradient that the work on [stream] so far writes. finish_on is
 * ddp_gradients_finish(), except that [stream] waits for the sums. Both may be captured into a
 * CUDA graph if ddp_device_captures() is true. If it is false, capture only ready_on, for all gradients: the
 * graph copies each bucket to the host, and finish_on after each launch sums the buckets. Launch such a graph only for
 * steps with sums, see ddp_gradients_set_sync(). A graph may also contain neither call; finish_on then copies all
 * buckets, and no other graph may contain ready_on. Call them from the thread that uses the handle. Destroy graphs that contain them
 * before ddp_device_free() of the views and before ddp_destroy(), since NCCL waits for that. Collective.
 */
DDP_API int ddp_gradients_ready_on(struct ddp_gradients *gradients, size_t index, void *stream);
DDP_API int ddp_gradients_finish_on(struct ddp_gradients *gradients, void *stream);

/*
 * The 2-norm of all gradients; call it after finish. For gradients on a device it is nan, with DDP_ERR_UNSUPPORTED in
 * the handle.
 */
DDP_API double ddp_gradients_norm(const struct ddp_gradients *gradients);

/* PyTorch's clip_grad_norm_: scale so that the norm is at most [limit]. Returns the old norm. */
DDP_API double ddp_gradients_clip(struct ddp_gradients *gradients, double limit);

/* PyTorch's GradScaler: plain data that a checkpoint can contain. */
struct ddp_scaler {
	float scale; /* factor of the loss */
	double growth, backoff;
	int32_t interval;   /* steps without overflow until the scale grows */
	int32_t good_steps; /* so far */
};

#define DDP_SCALER_INIT                     \
	{                                   \
		65536.0f, 2.0, 0.5, 2000, 0 \
	}

/*
 * Divide [count] summed gradients by the scale, once in each step. Returns true if one of them is not
 * finite: the program must then skip the step. All ranks get the same result, since sums preserve inf and nan.
 */
DDP_API bool ddp_scaler_unscale(const struct ddp_scaler *scaler, float *gradients, size_t count);

/* Update the scale after each step; [found_inf] is the result of ddp_scaler_unscale(). */
DDP_API void ddp_scaler_update(struct ddp_scaler *scaler, bool found_inf);

/*
 * SyncBatchNorm's statistics: combine [channels] means and sums of squared deviations (m2) of
 * [count] values of each rank into those of all ranks, in rank order. Exact for unequal counts. With a count of 0 the
 * rank's means are ignored. [count] becomes the sum. Collective.
 */
DDP_API int ddp_all_reduce_moments(struct ddp *ddp, double *count, float *mean, float *m2,
				   size_t channels);

/* --- Evaluation ------------------------------------------------------------------------ */

/* Sums over samples; begin with zeros. */
struct ddp_evaluation {
	double loss;
	uint64_t top1, top5, samples;
};

/*
 * Add [samples] rows of [classes] logits with their labels: cross entropy and hits. A label is
 * among the top k if fewer than k classes have a larger logit, or an equal one and a lower index;
 * nan is larger than all numbers. A row whose label is not a class, such as -1, is not counted.
 */
DDP_API void ddp_evaluation_add(struct ddp_evaluation *evaluation, const float *logits,
				const int32_t *labels, size_t samples, size_t classes);

/* Sum over all ranks. Collective. */
DDP_API int ddp_evaluation_reduce(struct ddp *ddp, struct ddp_evaluation *evaluation);

/* --- State ----------------------------------------------------------------------------- */

#define DDP_DIMENSIONS 8

struct ddp_tensor {
	const char *name; /* as in PyTorch's state_dict */
	enum ddp_type type;
	int dimensions;
	int64_t shape[DDP_DIMENSIONS];
	void *data;
};

struct ddp_pair {
	const char *key, *value;
};

/* Elements of [tensor]: 1 for a scalar. */
DDP_API uint64_t ddp_tensor_count(const struct ddp_tensor *tensor);

/*
 * Write [tensors] and [metadata] as a safetensors file: to a temporary file in the same directory, which is synced
 * and renamed, so that [path] is always the old or the new file. Names and texts are
 * UTF-8; pairs without a value are left out.
 */
DDP_API int ddp_tensors_save(const char *path, const struct ddp_tensor *tensors, size_t count,
			     const struct ddp_pair *metadata, size_t pairs,
			     struct ddp_error *error);

struct ddp_tensors; /* an open safetensors file */

DDP_API int ddp_tensors_open(struct ddp_tensors **tensors, const char *path,
			     struct ddp_error *error);
DDP_API void ddp_tensors_close(struct ddp_tensors *tensors);

/*
 * The [count] tensors of the file in the order of their data, which is mapped read-only. Data that libddp
 * wrote is aligned to its type; data from other programs may not be. A tensor of a
 * type that libddp does not know has type DDP_TYPE_COUNT and no data.
 */
DDP_API const struct ddp_tensor *ddp_tensors_list(const struct ddp_tensors *tensors, size_t *count);

/* The tensor called [name], NULL if there is none. */
DDP_API const struct ddp_tensor *ddp_tensors_find(const struct ddp_tensors *tensors,
						  const char *name);

/* The metadata of [key], NULL if there is none. */
DDP_API const char *ddp_tensors_metadata(const struct ddp_tensors *tensors, const char *key);

/*
 * Check that [tensors] agree in name, type and shape on all ranks, then copy rank 0's data to
 * all, as DistributedDataParallel does at the start. Collective.
 */
DDP_API int ddp_tensors_broadcast(struct ddp *ddp, const struct ddp_tensor *tensors, size_t count);

/*
 * Write <directory>/checkpoint-<step>.safetensors ([step] in ten digits) with a checksum, from
 * rank 0, and then remove those of smaller steps but the last [keep] - 1 (0: keep all). Keys
 * that begin with "ddp." are the library's. Returns on all ranks when the file is on disk, or
 * with the error that rank 0 had. Collective.
 */
DDP_API int ddp_checkpoint_save(struct ddp *ddp, const char *directory, uint64_t step,
				const struct ddp_tensor *tensors, size_t count,
				const struct ddp_pair *metadata, size_t pairs, int keep);

/*
 * Read [tensors] from the newest valid checkpoint of [directory]. Rank 0 reads it and sends it to all ranks. The number of
 * ranks may differ from that of the run that wrote it. A damaged checkpoint is reported and skipped, and renamed to
 * "<name>.damaged" if there is a valid one. Names, types and shapes must agree with the file. The values of [metadata] are
 * replaced by those of the file, also if its tensors do not agree; NULL if the file does not have the key. They are valid until
 * ddp_destroy().
 * Returns 1 with [step] set; 0 if there is no checkpoint; DDP_ERR_FORMAT if all are damaged, so that no
 * training starts again from step 0 in their place. Collective.
 */
DDP_API int ddp_checkpoint_load(struct ddp *ddp, const char *directory, uint64_t *step,
				const struct ddp_tensor *tensors, size_t count,
				struct ddp_pair *metadata, size_t pairs);

/*
 * List the steps of the checkpoints in [directory], the largest first, in memory that the caller
 * frees. Not collective.
 * Returns 0, also if there is no directory; DDP_ERR_FILE; DDP_ERR_MEMORY.
 */
DDP_API int ddp_checkpoint_list(const char *directory, uint64_t **steps, size_t *count,
				struct ddp_error *error);

/*
 * Write the path of the checkpoint of [step] in [directory], which need not exist, to [path] of [size] bytes. Not
 * collective. Returns 0, or DDP_ERR_FILE if [size] is too small.
 */
DDP_API int ddp_checkpoint_path(char *path, size_t size, const char *directory, uint64_t step,
				struct ddp_error *error);

struct ddp_events; /* a TensorBoard event file */

/* Begin a new event file in [directory], which is made if it is missing. */
DDP_API int ddp_events_open(struct ddp_events **events, const char *directory,
			    struct ddp_error *error);

/*
 * Add one point to the curve [tag], up to 1024 bytes of UTF-8. An error, such as a full disk, is returned by
 * ddp_events_close(). [events] may be NULL here and in ddp_events_flush(), for ranks that write none.
 */
DDP_API void ddp_events_scalar(struct ddp_events *events, const char *tag, int64_t step,
			       double value);
DDP_API void ddp_events_flush(struct ddp_events *events);

/* Returns 0, or the first error since the file was opened. NULL is legal. */
DDP_API int ddp_events_close(struct ddp_events *events, struct ddp_error *error);

#ifdef __cplusplus
}
#endif

#endif /* DDP_H */
