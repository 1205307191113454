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
 * DDP_ERR_x on failure; what went wrong, in words, is then in ddp_error() of the handle, or in
 * the struct ddp_error that was passed where there is no handle (which may be NULL).
 *
 * COLLECTIVES. Functions marked "collective" must be called by all ranks, in the same order,
 * with arguments that agree. They end within the time limit (DDP_TIMEOUT): with success on all
 * ranks, or with an error that names who did not come. After an error of the group "peer" the
 * world is lost: a program says so and leaves (ddp_exit); Slurm starts the next attempt.
 *
 * THREADS. A handle is used by one thread at a time. Different handles are independent.
 *
 * VARIABLES. What ddp_init() reads from the environment is in ddp(7).
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

/* --- Errors ---------------------------------------------------------------------------- */

/* X(name, value, text), in groups by who can do something about it. */
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

/* A status with its story; text is "" where all is well. */
struct ddp_error {
	int status;
	char text[DDP_ERROR_SIZE];
};

/* The meaning of [status] in general. Returns a constant text, never NULL. */
DDP_API const char *ddp_strerror(int status);

/* Whether [status] is of the group "peer", so that no collective can work any more. */
DDP_API bool ddp_is_peer_error(int status);

/* The exit status that tells [status] to a shell: 0 for DDP_OK, else 65 to 127. */
DDP_API int ddp_exit_status(int status);

/* --- The world ------------------------------------------------------------------------- */

struct ddp; /* one rank's membership of a world */

struct ddp_options {
	size_t size;	    /* sizeof(struct ddp_options) */
	double timeout;	    /* seconds a collective may take; 0: DDP_TIMEOUT, else 600 */
	const char *method; /* "file", "pmix", "single"; NULL: DDP_METHOD, else what works */
	bool no_signals;    /* leave SIGTERM alone: its records are not written then */
	bool device;	    /* collectives on device memory will be used (ddp_device_*) */
};

#define DDP_OPTIONS_INIT                                          \
	{                                                         \
		sizeof(struct ddp_options), 0, NULL, false, false \
	}

/* Texts live as long as the handle. Nodes are counted by the first rank on each: rank 0's is 0. */
struct ddp_world {
	int rank, size;		    /* who am I, of how many */
	int local_rank, local_size; /* among the ranks of this node */
	int node_rank, node_count;
	int device;	    /* index of the device to use, -1: none */
	double share;	    /* this rank's part of that device, 0: not known */
	int attempt;	    /* how often the job was requeued before */
	int64_t end_time;   /* when the job's time ends, seconds since 1970; 0: not known */
	const char *job;    /* the same on all ranks, different for any two steps */
	const char *host;   /* this node, by Slurm's name where there is one */
	const char *source; /* "srun --ddp", "srun", "torchrun", "single" */
	const char *method; /* how the ranks met: "file", "pmix", "single" */
	const char *wide;   /* the engine between groups: "ucx", "mpi"; "none" with one group */
	double timeout;	    /* seconds */
};

/*
 * Join the world. [options] may be NULL. Collective: it ends when all ranks are there.
 * Returns 0 with a handle in [ddp]. On failure [ddp] is a handle too, good for ddp_error(),
 * ddp_exit() and ddp_destroy() alone (NULL where memory is out, which these accept).
 */
DDP_API int ddp_init(struct ddp **ddp, const struct ddp_options *options);

/*
 * Leave the world: waits for the other ranks, so that none takes this one for lost, then frees
 * everything, [ddp]'s arenas too. After an error it waits for nobody. NULL is legal.
 */
DDP_API void ddp_destroy(struct ddp *ddp);

/* Who am I. Returns a pointer that is valid until ddp_destroy(). */
DDP_API const struct ddp_world *ddp_world(const struct ddp *ddp);

/* The last error of [ddp] in words, "" if there was none. */
DDP_API const char *ddp_error(const struct ddp *ddp);

/* The last error of [ddp] as a number: 0 or DDP_ERR_x. */
DDP_API int ddp_status(const struct ddp *ddp);

/*
 * Tell all ranks to give up, with a reason of the caller's. Each of them fails with
 * DDP_ERR_ABORTED and this text in the collective that it is in or enters next. Not collective.
 */
DDP_API void ddp_abort(struct ddp *ddp, const char *format, ...) DDP_FORMAT(2, 3);

/*
 * Tell whoever watches this rank (ddp-run --hang) that it goes on: touches the file DDP_HEARTBEAT, once a second at
 * most. Collectives do it by themselves when they have ended; a program that is long between them does it in between.
 * A few nanoseconds where nobody watches.
 */
DDP_API void ddp_beat(struct ddp *ddp);

/*
 * Print [ddp]'s error, with the prefix of the log, tell the other ranks if it is not from
 * them, and leave the process with ddp_exit_status(). Does not return.
 */
DDP_API void ddp_exit(struct ddp *ddp);

enum ddp_level { DDP_LEVEL_ERROR, DDP_LEVEL_WARNING, DDP_LEVEL_INFO, DDP_LEVEL_DEBUG };

/*
 * One line on stderr, "ddp[3@n2]: text", if DDP_LOG asks for [level]; by default errors of all
 * ranks, and warnings and infos of rank 0 alone. [subsystem] is a word for DDP_LOG's filter.
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

/* Bytes of one element of [type], 0 if there is no such type. */
DDP_API size_t ddp_type_size(enum ddp_type type);

/*
 * Combine [count] elements of all ranks: recv[i] = send[i] of rank 0 op ... op send[i] of the
 * last rank. The order of the sum is fixed; 16-bit types are summed in f32 and rounded once
 * per group. [send] may be [recv]; if that lies in an arena, at the same place on all ranks,
 * nothing is copied. Collective.
 */
DDP_API int ddp_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
			   enum ddp_type type, enum ddp_op op);

/* Copy [bytes] of [buffer] from rank [root] to all. Collective. */
DDP_API int ddp_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root);

/* Put [bytes] of each rank's [send] into [recv], in rank order: size x [bytes]. Collective. */
DDP_API int ddp_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes);

/*
 * All ranks go on, or none: [status] is 0, or the DDP_ERR_x that this rank has met by itself, such
 * as a file that it cannot open; [text] tells it then, NULL is ddp_strerror().
 * Returns, on all ranks, 0 or the error of the first rank that has one, whose text is ddp_error()'s,
 * with rank and host unless all ranks say the same. Collective.
 */
DDP_API int ddp_agree(struct ddp *ddp, int status, const char *text);

/* Wait until all ranks are here. Collective. */
DDP_API int ddp_barrier(struct ddp *ddp);

/*
 * Memory from which all-reduce works without a copy: [bytes], the same on all ranks, zeroed,
 * aligned to 64 at least, shared with the ranks of this node. Collective.
 */
DDP_API int ddp_arena_create(struct ddp *ddp, size_t bytes, void **memory);

/*
 * Memory of [bytes], zeroed, one piece for all ranks that share memory, such as those of a node:
 * for what they read, a data set. It is not for collectives. Who writes while others read sees to
 * it that they notice (C11 atomics). It goes with ddp_destroy(), or with ddp_arena_destroy().
 * Collective.
 */
DDP_API int ddp_shared_create(struct ddp *ddp, size_t bytes, void **memory);

/* Give an arena back; [memory] is what ddp_arena_create() gave, or NULL. Collective. */
DDP_API int ddp_arena_destroy(struct ddp *ddp, void *memory);

/* Ranks that can share one device, at most. */
enum { DDP_DEVICE_RANKS = 64 };

/*
 * Take this rank's device, world->device, for collectives on its memory, where ddp_options.device
 * did not at ddp_init(): for programs that learn later whether they need it. Where it was taken
 * already nothing happens. Where a rank has no device that works, none takes one, all get that
 * rank's error, and the world goes on without. Ranks that share a device must share memory too
 * (DDP_LOCAL). Collective.
 */
DDP_API int ddp_device_join(struct ddp *ddp);

/*
 * Whether collectives on device memory may be part of a CUDA graph: not where ranks share a device, whose
 * turns have numbers. The same on all ranks; false before ddp_device_join().
 */
DDP_API bool ddp_device_captures(const struct ddp *ddp);

/*
 * Collectives on device memory (after ddp_device_join()), enqueued on [stream], a cudaStream_t; NULL
 * is the library's own stream. They return when enqueued; ddp_device_wait() waits with the time
 * limit, and where it fails nothing that came before it is to be used. Ranks that share a device sum
 * there, in memory of ddp_device_alloc() without a copy where [recv] lies at the same place of it
 * on all ranks; other memory is worked through in pieces. Collective.
 */
DDP_API int ddp_device_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
				  enum ddp_type type, enum ddp_op op, void *stream);
DDP_API int ddp_device_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root,
				 void *stream);
DDP_API int ddp_device_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes,
				  void *stream);
DDP_API int ddp_device_wait(struct ddp *ddp, void *stream);

/*
 * Whether what collectives on device memory gave so far is good: for who learnt in another way than by
 * ddp_device_wait() that they have ended, as from a word that a kernel behind them wrote. Never waits.
 */
DDP_API int ddp_device_check(struct ddp *ddp);

/*
 * Device memory, zeroed, that the engine knows (registered where the version can). Collective.
 * Once a collective was captured into a CUDA graph, registered memory that was freed returns to the
 * device only in ddp_destroy(), because NCCL may use it until its communicator ends.
 */
DDP_API int ddp_device_alloc(struct ddp *ddp, size_t bytes, void **memory);
DDP_API int ddp_device_free(struct ddp *ddp, void *memory);

/* --- Sampling -------------------------------------------------------------------------- */

struct ddp_sampler; /* which samples are mine, and in which order */

struct ddp_sampler_options {
	size_t size;	  /* sizeof(struct ddp_sampler_options) */
	uint64_t samples; /* of the data set */
	int rank, ranks;  /* whose part, of how many */
	uint64_t seed;	  /* with the epoch, gives the order */
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
 * is drawn when an epoch's first sample is asked for, into 4 bytes for each sample of the set.
 * Returns 0 with a sampler at the start of epoch 0, DDP_ERR_ARGUMENT or DDP_ERR_MEMORY.
 */
DDP_API int ddp_sampler_create(struct ddp_sampler **sampler,
			       const struct ddp_sampler_options *options, struct ddp_error *error);
DDP_API void ddp_sampler_destroy(struct ddp_sampler *sampler);

/* Samples of this rank in each whole epoch. */
DDP_API uint64_t ddp_sampler_length(const struct ddp_sampler *sampler);

/*
 * The next sample of this rank. Returns 1 with it in [index], or 0 at the end of the epoch;
 * the call after that is in the next epoch, without anybody calling set_epoch.
 */
DDP_API int ddp_sampler_next(struct ddp_sampler *sampler, uint64_t *index);

/* Up to [count] of them. Returns how many, 0 at the end of the epoch (and goes on as above). */
DDP_API size_t ddp_sampler_take(struct ddp_sampler *sampler, uint64_t *indices, size_t count);

/* Start [epoch] from its beginning. Where it has just begun by itself, nothing changes. */
DDP_API void ddp_sampler_set_epoch(struct ddp_sampler *sampler, uint64_t epoch);

/* The epoch of the next sample: the next one as soon as the end of one was told. */
DDP_API uint64_t ddp_sampler_epoch(const struct ddp_sampler *sampler);

/*
 * Where all ranks together are in the epoch, in samples of the whole order, if each has taken
 * as many as this one; at most the number of samples. Keep rank 0's: with an exact sampler it
 * is never behind the others'.
 */
DDP_API uint64_t ddp_sampler_position(const struct ddp_sampler *sampler);

/*
 * Go on there, with any number of ranks: the samples from [position] to the end of the order
 * are dealt among them anew, none twice and none left out, by the rules of a whole epoch: the
 * tail is filled up from the beginning of the order, or dropped, or dealt unevenly. With as
 * many ranks as before, what follows is what would have followed. The next epoch is a whole one.
 * Returns 0, or DDP_ERR_ARGUMENT where [position] is more than the number of samples.
 */
DDP_API int ddp_sampler_seek(struct ddp_sampler *sampler, uint64_t epoch, uint64_t position,
			     struct ddp_error *error);

/*
 * Position in the epoch's order (not the index) of the sample that ddp_sampler_next() gives
 * next: with seed, epoch and layer it is the counter of random numbers.
 */
DDP_API uint64_t ddp_sampler_order(const struct ddp_sampler *sampler);

/*
 * Four 32-bit random numbers that depend on the arguments alone (Philox4x32-10): the same on
 * every rank, machine and device, whatever was drawn before. [block] counts draws of one layer.
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
	size_t size;	      /* sizeof(struct ddp_gradients_options) */
	enum ddp_type type;   /* of the views: DDP_F32 or DDP_F64; on a device DDP_F32 */
	enum ddp_type wire;   /* on the way: as [type], or DDP_BF16 or DDP_F16 to halve it */
	size_t first_bytes;   /* limit of the first bucket, 0: 1 MiB or less, as PyTorch */
	size_t bucket_bytes;  /* limit of the others, 0: 25 MiB; reaching it closes a bucket */
	bool sum;	      /* leave the sum; else it is divided by the number of ranks */
	size_t exact;	      /* so many of the first parameters go as [type] in any case: counts */
	bool device;	      /* views in device memory: ddp_gradients_place() */
	size_t virtual_ranks; /* of all ranks together; 0: none, sums are of the ranks */
};

#define DDP_GRADIENTS_OPTIONS_INIT                                                               \
	{                                                                                        \
		sizeof(struct ddp_gradients_options), DDP_F32, DDP_F32, 0, 0, false, 0, false, 0 \
	}

/*
 * Lay out the gradients of [parameters], listed in the order of the forward pass, so that they
 * become ready from the last to the first. Names and counts must agree on all ranks. Collective.
 */
DDP_API int ddp_gradients_create(struct ddp_gradients **gradients, struct ddp *ddp,
				 const struct ddp_gradients_options *options,
				 const struct ddp_parameter *parameters, size_t count);

/*
 * Not collective, but ddp_destroy() comes after it, which frees the views. NULL is legal.
 */
DDP_API void ddp_gradients_destroy(struct ddp_gradients *gradients);

/* Where backward writes the gradient of parameter [index]; it stays there. */
DDP_API void *ddp_gradients_view(struct ddp_gradients *gradients, size_t index);

/* Elements from the first view of all to that of [index]. */
DDP_API size_t ddp_gradients_offset(const struct ddp_gradients *gradients, size_t index);

/*
 * The views in one piece, for an optimizer: elements in [count]. Views lie in the order of the
 * buckets, each aligned to 64 bytes; what is between them is zero and must stay so.
 */
DDP_API void *ddp_gradients_all(struct ddp_gradients *gradients, size_t *count);

/* Which bucket parameter [index] is in; buckets are summed from 0 on. */
DDP_API size_t ddp_gradients_bucket(const struct ddp_gradients *gradients, size_t index);
DDP_API size_t ddp_gradients_buckets(const struct ddp_gradients *gradients);

/*
 * The gradient of [index] is written. When a bucket is complete, and those before it are, its
 * sum begins. Any thread of the backward pass may call it, one at a time; until finish, no other
 * collective of the handle may be called. Does nothing while sync is off. Collective in effect.
 * Returns 0, or the error of a sum that had begun, which finish returns too.
 */
DDP_API int ddp_gradients_ready(struct ddp_gradients *gradients, size_t index);

/*
 * Wait for all sums: the views hold the same values on all ranks then. A parameter for which
 * ready was not called is taken as it stands. While sync is off it waits for nothing and sums
 * nothing. Begins the next step. Collective.
 */
DDP_API int ddp_gradients_finish(struct ddp_gradients *gradients);

/*
 * Whether the steps from here on are summed; false is PyTorch's no_sync(): backward adds to the
 * views, and the next step with sync sums what has come together. A step in which a gradient
 * was ready already ends as it began.
 */
DDP_API void ddp_gradients_set_sync(struct ddp_gradients *gradients, bool sync);

/*
 * THE SAME BITS ON ANY NUMBER OF RANKS. With ddp_gradients_options.virtual_ranks, V, a step sums the gradients of V
 * virtual ranks, and the sum depends neither on their order nor on which rank has which: bit for bit the same on 1 rank
 * and on V, over every engine. Of R ranks, which must divide V (1024 at most), rank r works through virtual ranks
 * r * V / R to (r + 1) * V / R - 1, one after the other:
 *
 *	for (int v = first; v < first + V / R; v++) {
 *		...backward over the samples of virtual rank v, into the views;
 *		...ddp_gradients_ready() as its gradients are written
 *		ddp_gradients_finish(gradients);
 *	}
 *	...the optimizer
 *
 * Each finish but the last of a step keeps the views' gradients aside, where it takes nobody to wait for; buckets are
 * summed while the last backward runs. The mean is over V. Steps without sync are no virtual rank's: they add to the
 * next one's. Gradients that are to be the same on other ranks are the caller's part: the same samples, the same
 * number of threads. Each takes part as a multiple of 2^-51 (with 1024 virtual ranks 2^-43) of the largest one of its
 * parameter. Inf and nan stay; all nans are one. It takes 8 bytes on the way to other hosts for each element, on each
 * rank as much memory as V / R - 1 models' gradients, and views in host memory.
 */

/*
 * ON A DEVICE. With ddp_gradients_options.device the views lie in device memory of the caller's:
 * ddp_gradients_bytes() of it, zeroed, from ddp_device_alloc(), which NCCL and ranks that share a GPU sum
 * without a copy; a rank that is alone and has joined no device takes any, and has one stream. Sums are enqueued
 * on [stream], NULL: the library's own. After each bucket, where there are several ranks, the device writes the
 * number of buckets that were summed so far to [progress], host memory that it reaches (cudaHostAlloc), unless
 * that is NULL.
 *
 *	ddp_gradients_create(&gradients, ddp, &options, parameters, count);
 *	ddp_device_alloc(ddp, ddp_gradients_bytes(gradients), &memory);
 *	ddp_gradients_place(gradients, memory, NULL, NULL);
 *	...each step: kernels on a stream, and behind each layer's
 *		ddp_gradients_ready_on(gradients, index, stream);
 *	ddp_gradients_finish_on(gradients, stream);
 *	...the optimizer's kernels, on the same stream
 *
 * Nothing waits but streams: ddp_device_wait() tells whether the sums are good. The rank's device is the
 * calling thread's (cudaSetDevice). Norm, clip and scaler are of host memory alone: a kernel of the
 * optimizer's has the gradients at hand.
 */
DDP_API size_t ddp_gradients_bytes(const struct ddp_gradients *gradients);
DDP_API int ddp_gradients_place(struct ddp_gradients *gradients, void *memory, void *stream,
				uint64_t *progress);

/*
 * As ddp_gradients_ready(), of a gradient that is written by what is on [stream] now; and as
 * ddp_gradients_finish(), but that it is [stream] which waits for all sums. Both may be captured into a
 * CUDA graph where ddp_device_captures() is true. Where it is not, a graph has the backward pass without
 * them: launch it, then call finish_on alone, which enqueues all sums behind it. By the thread that uses
 * the handle. Graphs that have them are destroyed before ddp_device_free() of the views and before ddp_destroy():
 * NCCL waits for that. Collective.
 */
DDP_API int ddp_gradients_ready_on(struct ddp_gradients *gradients, size_t index, void *stream);
DDP_API int ddp_gradients_finish_on(struct ddp_gradients *gradients, void *stream);

/*
 * The 2-norm of all gradients; call after finish. Of those on a device it is nan, with DDP_ERR_UNSUPPORTED in
 * the handle.
 */
DDP_API double ddp_gradients_norm(const struct ddp_gradients *gradients);

/* PyTorch's clip_grad_norm_: scale so that the norm is at most [limit]. Returns the old norm. */
DDP_API double ddp_gradients_clip(struct ddp_gradients *gradients, double limit);

/* PyTorch's GradScaler: plain data, to be kept in a checkpoint as it stands. */
struct ddp_scaler {
	float scale; /* what the loss is multiplied by */
	double growth, backoff;
	int32_t interval;   /* steps without overflow until the scale grows */
	int32_t good_steps; /* so far */
};

#define DDP_SCALER_INIT                     \
	{                                   \
		65536.0f, 2.0, 0.5, 2000, 0 \
	}

/*
 * Divide [count] summed gradients by the scale, once a step. Returns true if one of them is not
 * finite: the step is to be skipped then. As the sum carries inf and nan, all ranks find the same.
 */
DDP_API bool ddp_scaler_unscale(const struct ddp_scaler *scaler, float *gradients, size_t count);

/* After each step, with what unscale returned. */
DDP_API void ddp_scaler_update(struct ddp_scaler *scaler, bool found_inf);

/*
 * SyncBatchNorm's statistics: combine [channels] means and sums of squared deviations (m2) of
 * [count] values of each rank into those of all. Exact for unequal counts, also 0, for which the
 * rank's means do not matter; rank order is fixed. [count] becomes the sum. Collective.
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
 * nan is larger than all. A row whose label is no class, such as -1, is not counted at all.
 */
DDP_API void ddp_evaluation_add(struct ddp_evaluation *evaluation, const float *logits,
				const int32_t *labels, size_t samples, size_t classes);

/* Sum over all ranks, each weighted by what it saw. Collective. */
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
 * Write [tensors] and [metadata] as a safetensors file: to a temporary beside [path], synced,
 * renamed, so that [path] is the old file or the new one, never a torn one. Names and texts are
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
 * The tensors of the file in the order of their data, which is mapped read-only; [count] of
 * them. Data that libddp wrote is aligned to its type, that of others need not be. A tensor of a
 * type that libddp lacks has type DDP_TYPE_COUNT and no data.
 */
DDP_API const struct ddp_tensor *ddp_tensors_list(const struct ddp_tensors *tensors, size_t *count);

/* The tensor called [name], NULL if there is none. */
DDP_API const struct ddp_tensor *ddp_tensors_find(const struct ddp_tensors *tensors,
						  const char *name);

/* The metadata of [key], NULL if there is none. */
DDP_API const char *ddp_tensors_metadata(const struct ddp_tensors *tensors, const char *key);

/*
 * Check that [tensors] agree in name, type and shape on all ranks, then copy rank 0's data to
 * all. What DistributedDataParallel does at the start. Collective.
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
 * Fill [tensors] from the newest sound checkpoint of [directory]: rank 0 reads, all get it,
 * whatever number of ranks wrote it. A damaged one is reported and skipped, and renamed to
 * "<name>.damaged" if there is a sound one. Names, types and shapes must agree with the file. [metadata]'s values are replaced by those of the file, also where its
 * tensors do not agree (texts live until ddp_destroy(); NULL where the file lacks the key).
 * Returns 1 with [step] set; 0 if there is none; DDP_ERR_FORMAT if all are damaged, so that no
 * run begins anew over them. Collective.
 */
DDP_API int ddp_checkpoint_load(struct ddp *ddp, const char *directory, uint64_t *step,
				const struct ddp_tensor *tensors, size_t count,
				struct ddp_pair *metadata, size_t pairs);

/*
 * The steps that [directory] has checkpoints of, the largest first, in memory that the caller
 * frees. Not collective.
 * Returns 0, also where there is no directory; DDP_ERR_FILE; DDP_ERR_MEMORY.
 */
DDP_API int ddp_checkpoint_list(const char *directory, uint64_t **steps, size_t *count,
				struct ddp_error *error);

/*
 * Where the checkpoint of [step] in [directory] is, whether there is one or not, in [path] of [size] bytes. Not
 * collective. Returns 0, or DDP_ERR_FILE where that is too few.
 */
DDP_API int ddp_checkpoint_path(char *path, size_t size, const char *directory, uint64_t step,
				struct ddp_error *error);

struct ddp_events; /* a TensorBoard event file */

/* Begin a new event file in [directory], which is made where it is missing. */
DDP_API int ddp_events_open(struct ddp_events **events, const char *directory,
			    struct ddp_error *error);

/*
 * Add one point to the curve [tag], up to 1024 bytes of UTF-8. A full disk is told once, by
 * ddp_events_close(). [events] may be NULL here and in flush: on ranks that write none.
 */
DDP_API void ddp_events_scalar(struct ddp_events *events, const char *tag, int64_t step,
			       double value);
DDP_API void ddp_events_flush(struct ddp_events *events);

/* Returns 0, or what went wrong since it was opened. NULL is legal. */
DDP_API int ddp_events_close(struct ddp_events *events, struct ddp_error *error);

#ifdef __cplusplus
}
#endif

#endif /* DDP_H */
