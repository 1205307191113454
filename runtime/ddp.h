/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp.h - data-parallel programs in C
 *
 * A program that calls ddp_init() becomes one rank of a world: under `srun --ddp`, under a plain
 * srun, under torchrun, or alone. The ranks sum their gradients, draw disjoint samples, evaluate
 * together, and write checkpoints that do not depend on the number of ranks.
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
 * DDP_ERR_x on failure. ddp_error() returns the text of the handle's last error. Functions without
 * a handle write the error to their struct ddp_error, which may be NULL.
 *
 * COLLECTIVES. Functions marked "collective" must be called by all ranks, in the same order, with
 * arguments that agree. A collective ends within the time limit (DDP_TIMEOUT): with success on all
 * ranks, or with an error that names the ranks that did not arrive. After an error of the group
 * "peer" no collective is possible any more, and the program should call ddp_exit(). If all ranks
 * make a call with wrong arguments, they get an error of the group "caller", and may continue; if
 * only some do, all get DDP_ERR_MISMATCH. If a rank fails alone for another reason, such as
 * memory, the other ranks get DDP_ERR_ABORTED with that rank's text. A rank that only sends in a
 * call, such as the root of a broadcast, can return 0 from it and get such an error later, at the
 * latest in its next ddp_barrier(). The error that ended the world remains the handle's last error.
 *
 * THREADS. A handle is used by one thread at a time. Different handles are independent.
 *
 * FORKS. A handle belongs to the process that called ddp_init(). In a forked child, calls with the
 * handle, or with its gradients, fail with DDP_ERR_STATE and do not reach the world; ddp_destroy()
 * and ddp_beat() do nothing; ddp_exit() writes the buffers of FILEs and ends the child with the
 * handle's status. ddp_world(), ddp_error(), ddp_status() and ddp_log() work. Memory of
 * ddp_arena_create() and ddp_shared_create() stays shared with the parent; the child may read it.
 *
 * VARIABLES. slurm-ddp(7) lists the environment variables that ddp_init() reads.
 *
 * VERSIONS. A program that was built with libddp.so.1 works with every later libddp.so.1, without a
 * new build. Until the soname changes, a release may only
 *  - add functions, values of enum ddp_status and macros;
 *  - append members to structures that begin with their size, and to struct ddp_world, which libddp
 *    allocates;
 *  - change texts of messages, and speed.
 * Other structures and enumerations do not change. A release reads the checkpoints of all earlier
 * releases. All ranks of a world must run the same release, which ddp_init() checks. A program that
 * uses an added function needs the release that added the function, or a later one. Use
 * DDP_VERSION_NUMBER in #if to test for a release.
 *
 * libtool's -version-info C:R:A in runtime/Makefile.am changes once per release:
 *  - only code changed: R + 1;
 *  - functions or members were added: C + 1, R = 0, A + 1;
 *  - anything was removed or changed: C + 1, R = 0, A = 0, and the soname becomes libddp.so.(C-A).
 * The first release is 1:0:0, because libddp.so.0 was the name during development, when these rules
 * did not apply.
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

/* The release of this header, as a text and as a number: major * 10000 + minor * 100 + patch. */
#define DDP_VERSION "1.0.0"
#define DDP_VERSION_NUMBER 10000

/*
 * Returns the release of the library that the program runs with, such as "1.0.0". It may be later
 * than DDP_VERSION, the release of the header.
 */
DDP_API const char *ddp_version(void);

/* --- Errors ---------------------------------------------------------------------------- */

/* X(name, value, text), grouped by the party that can repair the error. */
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

/* A status, and a text that describes the error. The text is "" if the status is 0. */
struct ddp_error {
	int status;
	char text[DDP_ERROR_SIZE];
};

/* Returns a constant text that describes [status] in general. The result is never NULL. */
DDP_API const char *ddp_strerror(int status);

/*
 * Returns whether [status] belongs to the group "peer". After such an error, no collective is
 * possible any more.
 */
DDP_API bool ddp_is_peer_error(int status);

/* Returns the exit status for [status]: 0 for DDP_OK, else 65 to 127. */
DDP_API int ddp_exit_status(int status);

/* --- The world ------------------------------------------------------------------------- */

struct ddp; /* a rank's handle of its world */

struct ddp_options {
	size_t size;	/* sizeof(struct ddp_options) */
	double timeout; /* time limit of a collective, in seconds; 0: DDP_TIMEOUT, else 600 */
	/*
	 * rendezvous method: "file", "pmix", "single"; NULL: DDP_METHOD, else the first that works
	 */
	const char *method;
	/* install no SIGTERM handler; then SIGTERM writes no failure record */
	bool no_signals;
	/* the program will use collectives on device memory (ddp_device_*) */
	bool device;
	/*
	 * Members of later releases. With [world_size] above 0, the program chooses the world: its
	 * ranks are those that pass the same [job] and [directory], and rank and size do not come
	 * from the environment. A process can join several such worlds at the same time, in an
	 * order that is the same on all ranks of two worlds.
	 */
	int rank, world_size;
	/*
	 * this rank's number on its node; number of ranks there; both 0: all ranks are on one node
	 */
	int local_rank, local_size;
	int node_rank, node_count;
	const char *job; /* name of the world */
	/*
	 * Directory for the rendezvous, on storage that all ranks can access. The program creates
	 * it, empty and private, and removes it after all ranks have called ddp_destroy().
	 */
	const char *directory;
};

#define DDP_OPTIONS_INIT                                                                        \
	{                                                                                       \
		sizeof(struct ddp_options), 0, NULL, false, false, 0, 0, 0, 0, 0, 0, NULL, NULL \
	}

/* Texts are valid as long as the handle. Nodes are numbered in the order of their lowest ranks. */
struct ddp_world {
	int rank, size;
	/* this rank's number on its node; number of ranks on the node */
	int local_rank, local_size;
	int node_rank, node_count;
	int device;	  /* index of the device to use, -1: none */
	double share;	  /* fraction of the device that this rank may use; 0: unknown */
	int attempt;	  /* number of requeues of the job so far */
	int64_t end_time; /* end of the job's time limit, seconds since 1970; 0: not known */
	/* name of the job step: equal on all ranks, different for any two steps */
	const char *job;
	const char *host; /* name of this node: Slurm's, else the host's */
	/*
	 * origin of these values: "srun --ddp or ddp-exec", "srun", "torchrun", "single", "program"
	 */
	const char *source;
	const char *method; /* rendezvous method: "file", "pmix", "single" */
	const char *wide;   /* the engine between groups: "tcp", "mpi"; "none" with one group */
	double timeout;	    /* time limit of a collective, in seconds */
	/*
	 * this rank's transport, such as "TCP (eth0, 10.0.0.7:4242, 3 connections)"; "" with one
	 * group
	 */
	const char *transport;
	int group_size; /* number of ranks that share memory with this one, itself included */
};

/*
 * Join the world. [options] may be NULL. Collective: the call returns when all ranks have arrived.
 * Returns 0 with a handle in [ddp]. On failure, [ddp] gets a handle that only ddp_error(),
 * ddp_exit() and ddp_destroy() accept; it is NULL, which these functions accept too, if memory is
 * short.
 */
DDP_API int ddp_init(struct ddp **ddp, const struct ddp_options *options);

/*
 * Leave the world, then free the handle and its arenas. Waits for the other ranks, so that no rank
 * reports this rank as lost. After an error it does not wait. [ddp] may be NULL.
 */
DDP_API void ddp_destroy(struct ddp *ddp);

/* Returns rank, size and so on. The result is valid until ddp_destroy(). */
DDP_API const struct ddp_world *ddp_world(const struct ddp *ddp);

/* Returns the text of the last error of [ddp], or "" if there was none. */
DDP_API const char *ddp_error(const struct ddp *ddp);

/* Returns the status of the last error of [ddp]: 0 or a DDP_ERR_x. */
DDP_API int ddp_status(const struct ddp *ddp);

/*
 * Abort the world. On each rank, the current or the next collective fails with DDP_ERR_ABORTED and
 * this rank's text. Any thread may call ddp_abort() while another thread is in a collective on host
 * memory, which then ends with that error. Not collective.
 */
DDP_API void ddp_abort(struct ddp *ddp, const char *format, ...) DDP_FORMAT(2, 3);

/*
 * Show ddp-run --hang that this rank makes progress: update the time of the file DDP_HEARTBEAT, at
 * most once a second. Each collective does the same when it ends. A program must call ddp_beat()
 * only if it works for a long time between two collectives. If DDP_HEARTBEAT is not set, the call
 * takes a few nanoseconds.
 */
DDP_API void ddp_beat(struct ddp *ddp);

/*
 * Print [ddp]'s error in the format of ddp_log(). Report it to the other ranks, unless another rank
 * has reported it first. Then exit with ddp_exit_status(). Does not return. After an error, no exit
 * handlers run, and the buffers of FILEs are written for at most two seconds, because another
 * thread may block in a call on a FILE.
 */
DDP_API void ddp_exit(struct ddp *ddp);

enum ddp_level { DDP_LEVEL_ERROR, DDP_LEVEL_WARNING, DDP_LEVEL_INFO, DDP_LEVEL_DEBUG };

/*
 * Print a line on stderr, such as "ddp[3@n2]: text", if DDP_LOG includes [level]. By default, all
 * ranks print errors, and only rank 0 prints warnings and infos. [subsystem] is a word by which
 * DDP_LOG can select lines.
 *
 * libddp itself prints a warning about a slow rank. To find a slow rank, the ranks exchange the
 * times that they spent between collectives on host memory, every few seconds. DDP_LOG=error turns
 * off the warning, but not the exchange.
 */
DDP_API void ddp_log(const struct ddp *ddp, enum ddp_level level, const char *subsystem,
		     const char *format, ...) DDP_FORMAT(4, 5);

/* --- Collectives ----------------------------------------------------------------------- */

/* X(name, bytes per element, name in safetensors) */
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

/* Returns the size of one element of [type] in bytes, or 0 for an unknown type. */
DDP_API size_t ddp_type_size(enum ddp_type type);

/*
 * Combine [count] elements of all ranks: recv[i] becomes send[i] of rank 0 op ... op send[i] of the
 * last rank. The order of the sum is fixed. 16-bit types are summed in f32, and rounded once per
 * group. [send] may be equal to [recv]. If [recv] is in an arena, at the same offset on all ranks,
 * the data is not copied. Collective.
 */
DDP_API int ddp_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
			   enum ddp_type type, enum ddp_op op);

/* Copy [bytes] of [buffer] from rank [root] to all ranks. Collective. */
DDP_API int ddp_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root);

/*
 * Copy [bytes] of [send] of each rank to [recv] of all ranks, in the order of ranks. [recv] has
 * [bytes] times the number of ranks. Collective.
 */
DDP_API int ddp_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes);

/*
 * Agree whether all ranks continue. [status] is 0, or a DDP_ERR_x that this rank alone has found,
 * for example because it cannot open a file. [text] describes the error; NULL: ddp_strerror().
 * Returns 0 on all ranks; or, on all ranks, the error of the lowest rank that has one. ddp_error()
 * then has that rank's text, preceded by its rank and host unless all ranks have the same text.
 * Collective.
 */
DDP_API int ddp_agree(struct ddp *ddp, int status, const char *text);

/* Wait until all ranks have called ddp_barrier(). Collective. */
DDP_API int ddp_barrier(struct ddp *ddp);

/*
 * Allocate [bytes] that ddp_all_reduce() uses without a copy. The memory is zeroed, aligned to at
 * least 64 bytes, and shared with the ranks of this node. [bytes] must be equal on all ranks.
 * Collective.
 */
DDP_API int ddp_arena_create(struct ddp *ddp, size_t bytes, void **memory);

/*
 * Allocate [bytes], zeroed, once for all ranks that share memory, for example for a data set that
 * all ranks of a node read. The memory is not for collectives. If ranks write while others read,
 * they must synchronize with C11 atomics. ddp_destroy() or ddp_arena_destroy() frees the memory.
 * Collective.
 */
DDP_API int ddp_shared_create(struct ddp *ddp, size_t bytes, void **memory);

/* Free [memory] of ddp_arena_create() or ddp_shared_create(). NULL is legal. Collective. */
DDP_API int ddp_arena_destroy(struct ddp *ddp, void *memory);

/*
 * Prepare collectives on the memory of this rank's device, world->device. For programs that decide
 * after ddp_init(); ddp_options.device has the same effect in ddp_init(). A second call does
 * nothing. If a rank has no device that works, all ranks get that rank's error, and the world
 * continues without devices. If NCCL fails to connect the devices, the world ends. Collective.
 *
 * NCCL is used if no two ranks have the same device. NCCL 2.30 or newer also lets ranks share a
 * device, if NCCL_MULTI_RANK_GPU_ENABLE=1 is set on all ranks. Otherwise, and if a rank has no
 * NCCL, collectives are staged: data is copied to pinned memory of the host, summed there with the
 * same result as ddp_all_reduce(), and copied back.
 */
DDP_API int ddp_device_join(struct ddp *ddp);

/*
 * Returns the path of collectives on device memory, for a log: for example "NCCL 2.28.9" or "staged
 * through host memory, 2 ranks share GPU 0 on n1"; "" before ddp_device_join().
 */
DDP_API const char *ddp_device_path(const struct ddp *ddp);

/*
 * Returns whether a CUDA graph can contain collectives on device memory. It cannot contain staged
 * ones, since the host sums their data. The result is the same on all ranks; false before
 * ddp_device_join().
 */
DDP_API bool ddp_device_captures(const struct ddp *ddp);

/*
 * Collectives on device memory, which need ddp_device_join(). They are enqueued on [stream], a
 * cudaStream_t, and return at once; NULL is the library's own stream. ddp_device_wait() waits for
 * their end, with the time limit. If it fails, no earlier result is valid. Staged collectives wait
 * for the stream and return with the result. Collective.
 */
DDP_API int ddp_device_all_reduce(struct ddp *ddp, const void *send, void *recv, size_t count,
				  enum ddp_type type, enum ddp_op op, void *stream);
DDP_API int ddp_device_broadcast(struct ddp *ddp, void *buffer, size_t bytes, int root,
				 void *stream);
DDP_API int ddp_device_all_gather(struct ddp *ddp, const void *send, void *recv, size_t bytes,
				  void *stream);
DDP_API int ddp_device_wait(struct ddp *ddp, void *stream);

/*
 * Returns 0 if the results of all collectives on device memory so far are valid, else the error.
 * Call this if the program knows without ddp_device_wait() that the collectives have ended, for
 * example from a word that a later kernel wrote. Never waits.
 */
DDP_API int ddp_device_check(struct ddp *ddp);

/*
 * Allocate or free device memory. New memory is zeroed. Collective. Once a collective was captured
 * into a CUDA graph, NCCL may use the memory until its communicator ends. Memory that is freed
 * after such a capture returns to the device only in ddp_destroy().
 */
DDP_API int ddp_device_alloc(struct ddp *ddp, size_t bytes, void **memory);
DDP_API int ddp_device_free(struct ddp *ddp, void *memory);

/* --- Sampling -------------------------------------------------------------------------- */

struct ddp_sampler; /* the order of this rank's samples */

struct ddp_sampler_options {
	size_t size;	  /* sizeof(struct ddp_sampler_options) */
	uint64_t samples; /* samples in the data set */
	int rank, ranks;
	uint64_t seed; /* the order depends on seed and epoch */
	bool shuffle;
	/* drop the samples that do not divide evenly, instead of repeating some */
	bool drop_last;
	/* for evaluation: use every sample once, so ranks can differ by one sample */
	bool exact;
};

#define DDP_SAMPLER_OPTIONS_INIT                                                   \
	{                                                                          \
		sizeof(struct ddp_sampler_options), 0, 0, 1, 0, true, false, false \
	}

/*
 * Create PyTorch's DistributedSampler: with the same seed and epoch, the indices have the same
 * order. The order is computed when an epoch's first sample is requested. It needs 4 bytes for each
 * sample of the data set.
 * Returns 0 with a sampler at the start of epoch 0, DDP_ERR_ARGUMENT or DDP_ERR_MEMORY.
 */
DDP_API int ddp_sampler_create(struct ddp_sampler **sampler,
			       const struct ddp_sampler_options *options, struct ddp_error *error);
DDP_API void ddp_sampler_destroy(struct ddp_sampler *sampler);

/* Returns how many samples this rank gets in an epoch. */
DDP_API uint64_t ddp_sampler_length(const struct ddp_sampler *sampler);

/*
 * Get the next sample of this rank. Returns 1 and sets [index], or returns 0 at the end of the
 * epoch. After that, the next call returns the first sample of the next epoch, without a call of
 * ddp_sampler_set_epoch().
 */
DDP_API int ddp_sampler_next(struct ddp_sampler *sampler, uint64_t *index);

/*
 * Get up to [count] samples of this rank. Returns how many there were, or 0 at the end of the
 * epoch, as ddp_sampler_next() does.
 */
DDP_API size_t ddp_sampler_take(struct ddp_sampler *sampler, uint64_t *indices, size_t count);

/* Start [epoch] from its first sample. */
DDP_API void ddp_sampler_set_epoch(struct ddp_sampler *sampler, uint64_t epoch);

/*
 * Returns the epoch of the next sample. Once a call has reported the end of an epoch, this is the
 * following epoch.
 */
DDP_API uint64_t ddp_sampler_epoch(const struct ddp_sampler *sampler);

/*
 * Returns the position in the epoch's order that all ranks together have reached, if each rank has
 * got as many samples as this rank. It is at most the number of samples. A checkpoint should
 * contain rank 0's position, because with [exact] no other rank has a larger position.
 */
DDP_API uint64_t ddp_sampler_position(const struct ddp_sampler *sampler);

/*
 * Continue at [position] of [epoch], with any number of ranks. Each of the remaining samples of the
 * epoch is assigned to one rank. [drop_last] and [exact] apply to the remaining samples as they
 * apply to a whole epoch. If the number of ranks has not changed, each rank gets the same samples
 * as without an interruption. The next epoch is complete again.
 * Returns 0, or DDP_ERR_ARGUMENT if [position] is more than the number of samples.
 */
DDP_API int ddp_sampler_seek(struct ddp_sampler *sampler, uint64_t epoch, uint64_t position,
			     struct ddp_error *error);

/*
 * Returns the position (not the index) of the next sample in the epoch's order. It is the argument
 * [order] of ddp_random(), which computes random numbers from seed, epoch, order and layer.
 */
DDP_API uint64_t ddp_sampler_order(const struct ddp_sampler *sampler);

/*
 * Get four 32-bit random numbers (Philox4x32-10). They depend only on the arguments, so they are
 * equal on every rank, machine and device. [block] is the number of earlier calls for the same
 * layer. Different arguments give different numbers if epochs are below 2^24 and orders below 2^40.
 * Beyond these limits, different arguments can give the same numbers.
 */
DDP_API void ddp_random(uint64_t seed, uint64_t epoch, uint64_t order, uint32_t layer,
			uint32_t block, uint32_t out[4]);

/* Convert [bits] of ddp_random() to a number of at least 0 and below 1, a multiple of 2^-24. */
DDP_API float ddp_random_uniform(uint32_t bits);

/* --- Gradients ------------------------------------------------------------------------- */

struct ddp_gradients; /* the gradients of a model, in buckets that are summed while backward runs */

struct ddp_parameter {
	const char *name; /* parameter's name, for messages */
	size_t count;	  /* number of elements */
};

struct ddp_gradients_options {
	size_t size;	    /* sizeof(struct ddp_gradients_options) */
	enum ddp_type type; /* type of the views: DDP_F32 or DDP_F64; on a device DDP_F32 */
	/* type of elements in messages: [type], or DDP_BF16 or DDP_F16 to halve the messages */
	enum ddp_type wire;
	/* bytes at which the first bucket is complete; 0: 1 MiB or less, as in PyTorch */
	size_t first_bytes;
	size_t bucket_bytes; /* bytes at which each other bucket is complete; 0: 25 MiB */
	bool sum;	     /* compute the sum; false: the mean over the ranks */
	/* the first [exact] parameters, such as counters, are always sent as [type] */
	size_t exact;
	bool device; /* the views are in device memory; see ddp_gradients_place() */
	/* number of virtual ranks of all ranks together; 0: sum the gradients of the ranks */
	size_t virtual_ranks;
};

#define DDP_GRADIENTS_OPTIONS_INIT                                                               \
	{                                                                                        \
		sizeof(struct ddp_gradients_options), DDP_F32, DDP_F32, 0, 0, false, 0, false, 0 \
	}

/*
 * Allocate memory for the gradients of [parameters]. [parameters] must be in the order of the
 * forward pass, so that gradients become ready from the last to the first. Names and counts must be
 * equal on all ranks. Collective.
 */
DDP_API int ddp_gradients_create(struct ddp_gradients **gradients, struct ddp *ddp,
				 const struct ddp_gradients_options *options,
				 const struct ddp_parameter *parameters, size_t count);

/* Call this before ddp_destroy(), which frees the views. Not collective. NULL is legal. */
DDP_API void ddp_gradients_destroy(struct ddp_gradients *gradients);

/* Returns the address of the gradient of parameter [index]. The address does not change. */
DDP_API void *ddp_gradients_view(struct ddp_gradients *gradients, size_t index);

/* Returns the number of elements between the start of all views and the view of [index]. */
DDP_API size_t ddp_gradients_offset(const struct ddp_gradients *gradients, size_t index);

/*
 * Returns all views as one array of [count] elements, for an optimizer. Views are in the order of
 * the buckets, each aligned to 64 bytes. Elements between two views are zero and must stay zero.
 */
DDP_API void *ddp_gradients_all(struct ddp_gradients *gradients, size_t *count);

/*
 * Returns the number of the bucket that contains parameter [index]. Buckets are summed in order,
 * from 0.
 */
DDP_API size_t ddp_gradients_bucket(const struct ddp_gradients *gradients, size_t index);
DDP_API size_t ddp_gradients_buckets(const struct ddp_gradients *gradients);

/*
 * Report that the gradient of [index] is written. A bucket's sum begins when this bucket and all
 * earlier ones are complete. Any thread of the backward pass may call this function, but only one
 * at a time. Until ddp_gradients_finish(), no other collective of the handle may be called. Does
 * nothing while sync is off. Collective in effect.
 * Returns 0, or the error of an earlier sum, which ddp_gradients_finish() returns as well.
 */
DDP_API int ddp_gradients_ready(struct ddp_gradients *gradients, size_t index);

/*
 * Wait for all sums, and begin the next step. The views then have the same values on all ranks. The
 * view of a parameter that was not reported ready is summed with its present values. While sync is
 * off, nothing is summed. Collective.
 */
DDP_API int ddp_gradients_finish(struct ddp_gradients *gradients);

/*
 * Turn sums on or off, from the next step on. Off is PyTorch's no_sync(): the backward pass adds to
 * the views, and the next step with sync sums the accumulated gradients. If a gradient of the
 * current step was already reported ready, the setting of the current step does not change.
 */
DDP_API void ddp_gradients_set_sync(struct ddp_gradients *gradients, bool sync);

/*
 * BIT-EQUAL SUMS ON ANY NUMBER OF RANKS. If ddp_gradients_options.virtual_ranks is V, each step
 * sums the gradients of V virtual ranks. The sum has the same bits on 1 to V ranks and with every
 * engine: it depends neither on the order of the virtual ranks nor on which rank computes which of
 * them. V is at most 1024 and a multiple of the number of ranks R. Rank r computes virtual ranks r
 * * V / R to (r + 1) * V / R - 1, one after the other:
 *
 * 	for (int v = first; v < first + V / R; v++) {
 * 		...backward over the samples of virtual rank v, into the views;
 * 		...ddp_gradients_ready() as its gradients are written
 * 		ddp_gradients_finish(gradients);
 * 	}
 * 	...the optimizer
 *
 * ddp_gradients_finish() stores the views' gradients without waiting for other ranks, except for
 * the last virtual rank of a step. During the last backward pass, the buckets are summed. A mean is
 * over V. Backward passes without sync belong to no virtual rank: their gradients are added to the
 * next virtual rank. The caller must compute a virtual rank's gradients with equal bits on any
 * rank: from the same samples, with the same number of threads. Each gradient is rounded to a
 * multiple of 2^-51 (with 1024 virtual ranks 2^-43) of its parameter's largest gradient. Inf and
 * nan propagate; all nans get the same bits. Messages to other hosts have 8 bytes per element. Each
 * rank needs memory for the gradients of V / R - 1 models. The views are in host memory.
 */

/*
 * ON A DEVICE. With ddp_gradients_options.device the views are in device memory:
 * ddp_gradients_bytes() zeroed bytes that the caller gets from ddp_device_alloc(), and which NCCL
 * sums in place. A single rank that has joined no device can use other memory, but must use only
 * one stream. Sums are enqueued on [stream]; NULL: the library's stream. [progress] is host memory
 * that the device can access (cudaHostAlloc), or NULL. ddp_gradients_place() sets it to 0, and with
 * several ranks each summed bucket adds 1. ddp_gradients_place() is collective. Between steps, the
 * caller may clear the memory, and may place it again: graphs with it stay valid.
 *
 * 	ddp_gradients_create(&gradients, ddp, &options, parameters, count);
 * 	ddp_device_alloc(ddp, ddp_gradients_bytes(gradients), &memory);
 * 	ddp_gradients_place(gradients, memory, NULL, NULL);
 * 	...each step: kernels on a stream, and after those of each layer
 * 		ddp_gradients_ready_on(gradients, index, stream);
 * 	ddp_gradients_finish_on(gradients, stream);
 * 	...the optimizer's kernels, on the same stream
 *
 * These calls do not wait for the device. ddp_device_wait() waits, and returns 0 if the sums are
 * valid. Staged sums (ddp_device_join()) are computed in ddp_gradients_finish_on(), bucket by
 * bucket. A bucket is copied to the host as soon as its gradients are ready. The rank's device must
 * be the current device of the calling thread (cudaSetDevice). Norm, clip and scaler work on host
 * memory only.
 */
DDP_API size_t ddp_gradients_bytes(const struct ddp_gradients *gradients);
DDP_API int ddp_gradients_place(struct ddp_gradients *gradients, void *memory, void *stream,
				uint64_t *progress);

/*
 * ready_on() is ddp_gradients_ready() for a gradient that is written by the work enqueued on
 * [stream] so far. finish_on() is ddp_gradients_finish(), except that [stream] waits for the sums.
 * Call both from the thread that uses the handle.
 *
 * If ddp_device_captures() is true, a CUDA graph may contain both calls. If it is false, a graph
 * may contain only ready_on(), for all gradients: the graph then copies each bucket to the host,
 * and finish_on() after each launch sums the buckets. Launch such a graph only for steps with sums,
 * see ddp_gradients_set_sync(). If a graph contains neither call, finish_on() copies all buckets,
 * and no other graph may contain ready_on().
 *
 * Destroy graphs with these calls before ddp_device_free() of the views and before ddp_destroy(),
 * since NCCL waits for that. Collective.
 */
DDP_API int ddp_gradients_ready_on(struct ddp_gradients *gradients, size_t index, void *stream);
DDP_API int ddp_gradients_finish_on(struct ddp_gradients *gradients, void *stream);

/*
 * Returns the 2-norm of all gradients. Call it after ddp_gradients_finish(). For gradients on a
 * device, the result is nan, and the handle's error is DDP_ERR_UNSUPPORTED.
 */
DDP_API double ddp_gradients_norm(const struct ddp_gradients *gradients);

/*
 * As PyTorch's clip_grad_norm_: multiply all gradients by a factor, so that their norm is at most
 * [limit]. Returns the old norm.
 */
DDP_API double ddp_gradients_clip(struct ddp_gradients *gradients, double limit);

/* State of PyTorch's GradScaler: plain data that a checkpoint can contain. */
struct ddp_scaler {
	float scale; /* factor by which the loss is multiplied */
	double growth, backoff;
	int32_t interval;   /* steps without overflow until the scale grows */
	int32_t good_steps; /* steps without overflow so far */
};

#define DDP_SCALER_INIT                     \
	{                                   \
		65536.0f, 2.0, 0.5, 2000, 0 \
	}

/*
 * Divide [count] summed gradients by the scale. Call this once in each step. Returns true if a
 * gradient is not finite; in this case the program must skip the step. All ranks get the same
 * result, since sums preserve inf and nan.
 */
DDP_API bool ddp_scaler_unscale(const struct ddp_scaler *scaler, float *gradients, size_t count);

/*
 * Update the scale. Call this after each step. [found_inf] is the result of ddp_scaler_unscale().
 */
DDP_API void ddp_scaler_update(struct ddp_scaler *scaler, bool found_inf);

/*
 * Compute the statistics of SyncBatchNorm. Each rank passes the means and the sums of squared
 * deviations (m2) of its [count] values, for each of [channels] channels. They are replaced by the
 * means and m2 of the values of all ranks, combined in the order of ranks. The result is also
 * correct if the counts differ. If a rank's count is 0, its means are ignored. [count] becomes the
 * sum of all counts. Collective.
 */
DDP_API int ddp_all_reduce_moments(struct ddp *ddp, double *count, float *mean, float *m2,
				   size_t channels);

/* --- Evaluation ------------------------------------------------------------------------ */

/* Sums over the samples of an evaluation. Initialize all members with zero. */
struct ddp_evaluation {
	double loss;
	uint64_t top1, top5, samples;
};

/*
 * Add the cross entropy and the hits of [samples] samples. Each sample has a row of [classes]
 * logits, and a label. A label is among the top k if fewer than k classes precede it. A class
 * precedes the label if its logit is larger, or if its logit is equal and its index is lower. nan
 * is larger than all numbers. A sample whose label is not a class, for example -1, is not counted.
 */
DDP_API void ddp_evaluation_add(struct ddp_evaluation *evaluation, const float *logits,
				const int32_t *labels, size_t samples, size_t classes);

/* Sum [evaluation] over all ranks. Collective. */
DDP_API int ddp_evaluation_reduce(struct ddp *ddp, struct ddp_evaluation *evaluation);

/* --- State ----------------------------------------------------------------------------- */

#define DDP_DIMENSIONS 8

struct ddp_tensor {
	const char *name; /* name in PyTorch's state_dict */
	enum ddp_type type;
	int dimensions;
	int64_t shape[DDP_DIMENSIONS];
	void *data;
};

struct ddp_pair {
	const char *key, *value;
};

/* Returns the number of elements of [tensor]; 1 for a scalar. */
DDP_API uint64_t ddp_tensor_count(const struct ddp_tensor *tensor);

/*
 * Write [tensors] and [metadata] as a safetensors file. The data goes to a temporary file in the
 * same directory, which is synced and renamed, so that [path] is always the old or the new file.
 * Names and texts are UTF-8. Pairs without a value are left out.
 */
DDP_API int ddp_tensors_save(const char *path, const struct ddp_tensor *tensors, size_t count,
			     const struct ddp_pair *metadata, size_t pairs,
			     struct ddp_error *error);

struct ddp_tensors; /* an open safetensors file */

DDP_API int ddp_tensors_open(struct ddp_tensors **tensors, const char *path,
			     struct ddp_error *error);
DDP_API void ddp_tensors_close(struct ddp_tensors *tensors);

/*
 * Returns the [count] tensors of the file in the order of their data, which is mapped read-only.
 * Data that libddp wrote is aligned to its type; data from other programs may not be. If libddp
 * does not know a tensor's type, its type is DDP_TYPE_COUNT and it has no data.
 */
DDP_API const struct ddp_tensor *ddp_tensors_list(const struct ddp_tensors *tensors, size_t *count);

/* Returns the tensor called [name], or NULL. */
DDP_API const struct ddp_tensor *ddp_tensors_find(const struct ddp_tensors *tensors,
						  const char *name);

/* Returns the metadata value of [key], or NULL. */
DDP_API const char *ddp_tensors_metadata(const struct ddp_tensors *tensors, const char *key);

/*
 * Check that [tensors] have the same names, types and shapes on all ranks. Then copy rank 0's data
 * to all ranks, as DistributedDataParallel does at its start. Collective.
 */
DDP_API int ddp_tensors_broadcast(struct ddp *ddp, const struct ddp_tensor *tensors, size_t count);

/*
 * On rank 0, write <directory>/checkpoint-<step>.safetensors with a checksum. [step] has at least
 * ten digits in the name. Then remove older checkpoints, those of smaller steps, until [keep] are
 * left. If [keep] is 0, remove none. libddp reserves keys that begin with "ddp.". All ranks return
 * when the file is on disk, or return rank 0's error. Collective.
 */
DDP_API int ddp_checkpoint_save(struct ddp *ddp, const char *directory, uint64_t step,
				const struct ddp_tensor *tensors, size_t count,
				const struct ddp_pair *metadata, size_t pairs, int keep);

/*
 * Read [tensors] from the newest valid checkpoint of [directory]. Rank 0 reads the file and sends
 * the data to all ranks. The number of ranks may differ from that of the run that wrote the
 * checkpoint. A damaged checkpoint is reported and skipped. If there is a valid one, the damaged
 * one is renamed to "<name>.damaged". A checkpoint that cannot be read for another reason, such as a
 * missing permission, ends the search with DDP_ERR_FILE. Names, types and shapes must agree with the
 * file. The file's metadata replaces the values of [metadata], even if the tensors do not agree; a
 * value is NULL if the file does not have its key. The values are valid until ddp_destroy().
 * Returns 1 with [step] set; 0 if there is no checkpoint; DDP_ERR_FORMAT if all checkpoints are
 * damaged, so that the program does not silently start again from step 0. Collective.
 */
DDP_API int ddp_checkpoint_load(struct ddp *ddp, const char *directory, uint64_t *step,
				const struct ddp_tensor *tensors, size_t count,
				struct ddp_pair *metadata, size_t pairs);

/*
 * Set [steps] to an array of the steps of all checkpoints in [directory], the largest step first,
 * and [count] to their number. The caller frees [steps]. Not collective.
 * Returns 0, also if the directory does not exist; DDP_ERR_FILE; or DDP_ERR_MEMORY.
 */
DDP_API int ddp_checkpoint_list(const char *directory, uint64_t **steps, size_t *count,
				struct ddp_error *error);

/*
 * Write the path of the checkpoint of [step] in [directory] to [path], which has [size] bytes. The
 * checkpoint need not exist. Not collective.
 * Returns 0, or DDP_ERR_FILE if [size] is too small.
 */
DDP_API int ddp_checkpoint_path(char *path, size_t size, const char *directory, uint64_t step,
				struct ddp_error *error);

struct ddp_events; /* a TensorBoard event file */

/* Create a new event file in [directory], which is created if it is missing. */
DDP_API int ddp_events_open(struct ddp_events **events, const char *directory,
			    struct ddp_error *error);

/*
 * Add a point to the curve [tag], a UTF-8 string of at most 1024 bytes. An error, such as a full
 * disk, is returned by ddp_events_close(). [events] may be NULL here and in ddp_events_flush(), so
 * that ranks without an event file can make the same calls.
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
