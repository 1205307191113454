/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - what trains a model: the CPU's (cpu/), or a module with one of its own
 *
 * An engine does whole steps: forward, backward with the sums of gradients under way, optimizer.
 * It knows nothing of epochs, files and people; the trainer knows nothing of kernels.
 */
#ifndef TRAIN_ENGINE_H
#define TRAIN_ENGINE_H

#include "base/module.h"
#include "data/batch.h"
#include "net/model.h"
#include "optim/optim.h"

#define ENGINE_VERSION 6

struct engine; /* an engine's own */

enum engine_phase {
	ENGINE_DATA,	/* reading, cropping, copying samples */
	ENGINE_COMPUTE, /* forward, backward, optimizer */
	ENGINE_REDUCE,	/* waiting for sums of gradients (and for SyncBatchNorm's) */
	ENGINE_PHASES
};

enum { ENGINE_DEVICE_NAME = 64 };

struct engine_setup {
	struct ddp *ddp;
	struct model *model;
	struct set *train, *test; /* test may be NULL */
	const struct optim *optim;
	size_t batch;		   /* samples of a step at most, of this rank or of one part */
	size_t parts;		   /* virtual ranks of this rank; 0: none */
	size_t test_batch;	   /* of an evaluation */
	enum ddp_type type;	   /* of activations: DDP_F32, DDP_BF16, DDP_F16 */
	float smoothing;	   /* of labels */
	double clip;		   /* the norm that gradients are clipped to; 0: not */
	bool sync_norm;		   /* SyncBatchNorm */
	bool exact;		   /* direct convolutions alone, no gradients skipped */
	bool tf32;		   /* f32 may be multiplied as tf32, where the engine has it */
	bool deterministic;	   /* the same bits every time, where that is not so anyway */
	bool no_dropout;	   /* for comparisons */
	int threads;		   /* of this rank; 0: what its CPUs allow */
	double share;		   /* of its device's memory that this rank may have; 0: all */
	const char *choices;	   /* algorithms that an earlier run chose; NULL: choose now */
	struct ddp_scaler *scaler; /* of fp16; NULL elsewhere */
	/* A line for people, of what takes long; NULL: nobody reads it. Of rank 0 alone. */
	void (*say)(void *listener, const char *text);
	void *listener;
};

/*
 * What all ranks did in the steps that have ended and were not told before. An engine may be some
 * steps behind, as many on all ranks: it tells of a step in a later call, or in settle().
 */
struct engine_step {
	uint64_t steps;	  /* how many; 0: none has ended meanwhile */
	uint64_t skipped; /* of these: the loss scale overflowed, nothing was changed */
	bool stop;	  /* a rank wants to stop: all stop, after the step that was begun last */
	double loss;	  /* sum over the samples of all ranks */
	uint64_t hits, samples;
	double seconds[ENGINE_PHASES]; /* of this rank */
};

struct engine_class {
	struct ddp_module_head head; /* kind "engine"; name "cpu", "cuda" */

	/*
	 * Gradients are in memory of the engine's, and summed there: model_create() allocates none. Those of virtual
	 * ranks are model_create()'s in any case: libddp sums them in host memory.
	 */
	bool device_gradients;

	/* Whether this machine has what it needs, else why not. NULL: it always has. */
	bool (*available)(struct ddp_error *error);

	/*
	 * The devices that this process sees: how many, and what the first [most] of them are,
	 * "GPU-..." or "MIG-...", the same text for whoever sees the same device. Opens none.
	 * Returns their number, or a DDP_ERR_x with why there is none. NULL: there is nothing to count.
	 */
	int (*devices)(char (*names)[ENGINE_DEVICE_NAME], int most, struct ddp_error *error);

	/*
	 * Let ranks that share devices find out whether they can sum there, before anything else is opened. The
	 * same on all ranks, but where one is lost. NULL: nothing is needed for that. Collective.
	 */
	int (*join)(struct ddp *ddp, struct ddp_error *error);

	/*
	 * Compile the graph of setup->model. Names in the error what cannot be done here.
	 * Collective.
	 */
	int (*open)(struct engine **engine, const struct engine_setup *setup,
		    struct ddp_error *error);

	/*
	 * What steps will come, as far as is known: over [batch], setup->batch samples of this rank in each and what is
	 * left in the last, of each other rank as many, with [rates]. A step that comes otherwise is as good, and slower.
	 * NULL: of no use here. Not with several parts. Collective.
	 */
	int (*expect)(struct engine *engine, const struct batch *batch, const double *rates,
		      struct ddp_error *error);

	/*
	 * One step over [batch], which may be empty on a rank, with learning rate [rate]; [global]
	 * samples of all ranks take part, [step] counts optimizer steps from 1; where steps are under way
	 * it is what it will be if none of them is skipped, and an engine that skips counts itself from
	 * the last push() on. With several parts [batch] is that of each, one after the other, equally many samples, and
	 * a forward and backward pass is over one of them. The loss is the mean over all samples of all ranks.
	 * [stop]: this rank wants to stop. Collective.
	 */
	int (*step)(struct engine *engine, const struct batch *batch, size_t global, uint64_t step,
		    double rate, bool stop, struct engine_step *done, struct ddp_error *error);

	/*
	 * Wait for the steps that are under way; [done] as above. NULL: none ever is. Before the
	 * model, setup->scaler or the clock are looked at. Collective.
	 */
	int (*settle)(struct engine *engine, struct engine_step *done, struct ddp_error *error);

	/*
	 * Add [batch] of the test set to [evaluation], without dropout and with NORM's running
	 * statistics. Not collective.
	 */
	int (*evaluate)(struct engine *engine, const struct batch *batch,
			struct ddp_evaluation *evaluation, struct ddp_error *error);

	/*
	 * push: the model in host memory was changed by others. pull: bring it up to date for them,
	 * before an evaluation or a checkpoint; running statistics are rank 0's then, unless they
	 * are synchronised. Collective, both.
	 */
	int (*push)(struct engine *engine, struct ddp_error *error);
	int (*pull)(struct engine *engine, struct ddp_error *error);

	/* "oneDNN 2.6.3, AVX-512"; algorithms chosen, for the log and for setup->choices. */
	const char *(*describe)(const struct engine *engine);
	const char *(*choices)(const struct engine *engine);

	/*
	 * The device, "GPU 0, NVIDIA H200", and the most bytes of its memory that were used; NULL: the
	 * CPUs, and the process's own.
	 */
	const char *(*device)(const struct engine *engine);
	uint64_t (*memory)(const struct engine *engine);

	void (*close)(struct engine *engine);
};

/* The engine of CPUs; always there. */
extern const struct engine_class engine_cpu;

/*
 * The engine called [name], "cpu" or "cuda", if this machine has what it needs.
 * Returns NULL with DDP_ERR_UNSUPPORTED and why, or what to install.
 */
const struct engine_class *engine_find(const char *name, const struct ddp_log *log,
				       struct ddp_error *error);

/*
 * Whether this node has a driver for GPUs, which is loaded, and not asked for anything. Where it
 * has none, a module for them is not worth opening: its libraries are large.
 */
bool engine_has_driver(struct ddp_error *error);

#endif /* TRAIN_ENGINE_H */
