/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - interface of engines, which compute the steps of a training
 *
 * train/ is the program ddp-train, a client of libddp: it calls ddp.h, base/ and its own
 * directories. All engines use net/, data/ and optim/. cpu/ and cuda/ are engines: each fills a
 * struct engine_class. cpu/ is built in, cuda/ is a module. report/ shows a run. The files in
 * train/ itself are the trainer, which calls all of these. Start reading in run.h, then loop.c.
 *
 * An engine computes whole steps: forward pass, backward pass with concurrent sums of gradients,
 * optimizer. Only the trainer knows epochs, files and output. Only an engine knows kernels.
 */
#ifndef TRAIN_ENGINE_H
#define TRAIN_ENGINE_H

#include "base/module.h"
#include "data/batch.h"
#include "net/model.h"
#include "optim/optim.h"

#define ENGINE_VERSION 10

struct engine; /* defined by each engine */

enum engine_phase {
	ENGINE_DATA,	/* reading, cropping, copying samples */
	ENGINE_COMPUTE, /* forward and backward pass, optimizer */
	ENGINE_REDUCE,	/* waiting for sums of gradients and of SyncBatchNorm's statistics */
	ENGINE_PHASES
};

enum { ENGINE_DEVICE_NAME = 64 };

struct engine_setup {
	struct ddp *ddp;
	struct model *model;
	struct set *train, *test;
	const struct optim *optim;
	size_t batch;	    /* maximum samples per step of this rank or of one virtual rank */
	size_t parts;	    /* virtual ranks of this rank; 0: none */
	size_t test_batch;  /* maximum samples per call of evaluate() */
	enum ddp_type type; /* type of activations: DDP_F32, DDP_BF16, DDP_F16 */
	float smoothing;
	double clip;		   /* maximum norm of the gradients; 0: no clipping */
	bool sync_norm;		   /* SyncBatchNorm */
	bool exact;		   /* use direct convolutions only, and skip no gradients */
	bool tf32;		   /* allow tf32 for products of f32, if the engine supports it */
	bool deterministic;	   /* equal bits in every run; some engines always do so */
	bool no_dropout;	   /* for tests */
	int threads;		   /* threads of this rank; 0: OMP_NUM_THREADS, or one per CPU */
	double share;		   /* fraction of the device's memory for this rank; 0: all */
	struct ddp_scaler *scaler; /* fp16 only, else NULL */
	/* Prints a line before an operation that takes long. Set on rank 0 only. */
	void (*say)(void *listener, const char *text);
	void *listener;
};

/*
 * Results, over all ranks, of steps that have finished. Each step is reported once. An engine can
 * run several steps ahead (equally many on all ranks), and report a step in a later call or in
 * settle().
 */
struct engine_step {
	uint64_t steps;	  /* number of steps; 0: none has finished since the last report */
	uint64_t skipped; /* steps among [steps] without effect, as gradients overflowed */
	bool stop;   /* a rank wants to stop: all ranks stop after the last step that was started */
	double loss; /* sum over the samples of all ranks */
	uint64_t hits, samples;
	double seconds[ENGINE_PHASES]; /* seconds of this rank in each phase */
};

struct engine_class {
	struct ddp_module_head head; /* kind "engine"; name "cpu", "cuda" */

	/*
	 * The engine, not model_create(), allocates and sums the gradients. Gradients of virtual
	 * ranks are an exception: libddp sums them on the host, in memory of model_create().
	 */
	bool device_gradients;

	/* The engine for CPUs lacks the next two functions. */

	/*
	 * Counts the devices that this process sees, and sets the names of the first [most]
	 * devices: "GPU-..." or "MIG-...". A device has the same name in every process. Opens no
	 * device. Returns the number, or DDP_ERR_x with the reason why there is no device.
	 */
	int (*devices)(char (*names)[ENGINE_DEVICE_NAME], int most, struct ddp_error *error);

	/*
	 * Checks that ranks that share devices can sum gradients there. Called before the engine is
	 * opened. The result is equal on all ranks unless a rank was lost. Collective.
	 */
	int (*join)(struct ddp *ddp, struct ddp_error *error);

	/*
	 * Compiles the graph of setup->model. On failure, [error] names the unsupported layer or
	 * setting. Collective.
	 */
	int (*open)(struct engine **engine, const struct engine_setup *setup,
		    struct ddp_error *error);

	/*
	 * Runs or enqueues one step over [batch], which is not empty. [global]: samples of all
	 * ranks. The loss is the mean over these. [step]: number of the optimizer step, from 1, if
	 * no step under way is skipped. An engine that has skipped steps since the last push()
	 * subtracts their number. [rate]: learning rate. [stop]: this rank wants to stop.
	 *
	 * With virtual ranks, [batch] has equally many samples for each of them, one virtual rank
	 * after the other. Each virtual rank gets a separate forward and backward pass. Collective.
	 */
	int (*step)(struct engine *engine, const struct batch *batch, size_t global, uint64_t step,
		    double rate, bool stop, struct engine_step *done, struct ddp_error *error);

	/*
	 * Waits for the unfinished steps and reports them in [done]. Must be called before the
	 * model, setup->scaler or the clock are read. If settle is NULL, a step is finished when
	 * step() returns. Collective.
	 */
	int (*settle)(struct engine *engine, struct engine_step *done, struct ddp_error *error);

	/*
	 * Evaluates [batch], samples of the test set, without dropout and with BatchNorm's running
	 * statistics. Adds the results to [evaluation]. Not collective.
	 */
	int (*evaluate)(struct engine *engine, const struct batch *batch,
			struct ddp_evaluation *evaluation, struct ddp_error *error);

	/*
	 * push() copies the model from host memory to the engine, after the trainer changed it.
	 * pull() copies the engine's model to host memory, for an evaluation or a checkpoint.
	 * BatchNorm's running statistics are those of this rank. Both are collective.
	 */
	int (*push)(struct engine *engine, struct ddp_error *error);
	int (*pull)(struct engine *engine, struct ddp_error *error);

	/* For people: "oneDNN 2.6.3, AVX-512". */
	const char *(*describe)(const struct engine *engine);

	/*
	 * device() returns the name of the device ("GPU 0, NVIDIA H200"), memory() the peak use of
	 * its memory in bytes. Both are NULL if the engine uses CPUs and the process's memory.
	 */
	const char *(*device)(const struct engine *engine);
	uint64_t (*memory)(const struct engine *engine);

	/* CPU threads that compute. NULL: --threads, else one. */
	int (*threads)(const struct engine *engine);

	void (*close)(struct engine *engine);
};

/* The engine for CPUs, which is always available, and that for GPUs, which is in ddp_cuda.so. */
extern const struct engine_class engine_cpu, engine_cuda;

/*
 * Returns the engine for GPUs. If this machine cannot run it, returns NULL with DDP_ERR_UNSUPPORTED
 * and a text that gives the reason or names the package to install.
 */
const struct engine_class *engine_find_cuda(const struct ddp_log *log, struct ddp_error *error);

/*
 * Whether a GPU driver is installed on this node. Loads the driver's library, but calls no function
 * of it. If there is no driver, the GPU engine's module and its large libraries need not be loaded.
 */
bool engine_has_driver(struct ddp_error *error);

#endif /* TRAIN_ENGINE_H */
