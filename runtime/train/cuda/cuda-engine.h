/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-engine.h - what the CUDA engine is made of, for its files
 *
 * A step is a list of kernels over memory that does not move: it is enqueued once for real, whereby
 * libraries load what they need and NCCL connects, then once more into a graph, and from then on that graph
 * is launched. What differs from step to step lies on the device (data.h). Sums of ranks that
 * share a GPU have numbers, which no graph can count: they are enqueued anew between two graphs.
 */
#ifndef TRAIN_CUDA_ENGINE_H
#define TRAIN_CUDA_ENGINE_H

#include "cuda-kernels.h"
#include "data.h"
#include "engine.h"
#include "layer.h"
#include "net/dropout.h"
#include "net/program.h"

/*
 * So many steps are under way when another one is begun: on all ranks, so that all stop at the same. Of those that
 * are enqueued call by call none: a queue of a GPU has room for some hundreds, and a host that fills it behind a sum
 * which a lost rank never joins hangs in the driver.
 */
enum { CUDA_LAG = 8, CUDA_LAG_BY_CALL = 0 };

_Static_assert((int)CUDA_LAG < (int)KERNEL_SLOTS - 1, "too few results for steps under way");

/* What an operation has besides its row of the program. */
struct unit {
	struct layer *layer; /* MATH; NULL: the first convolution, by our kernels */
	bool narrow;	     /* the gradients of its weights are in the type of activations */
	bool has_sums; /* MATH: its bias's gradient comes with that of its weights, or of a pool behind it */
	int sums; /* MAX_POOL: the bias in front whose gradient it sums, or -1 */
	struct kernel_first first;
	struct kernel_dropout dropout;
	struct kernel_norm norm;
	float *statistics; /* NORM: of the batch, on the device */
};

/* On the device, where all steps find them. */
struct cuda_memory {
	char *areas;
	size_t areas_bytes;
	void *scratch; /* of one kernel or library call at a time, on COMPUTE */

	/* Laid out as the model's: see model.h. */
	float *values, *gradients;
	float *slots[MODEL_SLOTS];
	void *narrow; /* values in the type of activations; NULL: that is f32 */
	/* Of convolutions' weights, as cuDNN leaves them: one rank's optimizer reads them there, by marks. */
	char *narrow_gradients;
	uint32_t *marks; /* struct kernel_gradients'; NULL: [gradients] has all */
	float *buffers;

	const struct kernel_state *state; /* of the step under way */
	unsigned *tickets;		  /* of kernels: struct kernel_scratch */
	struct kernel_norm2 *norm2;
	float *moments;	 /* of one: of this rank, */
	float *gathered; /* and of all */
	float *sums;	 /* of one, of all ranks */
	float *logits;	 /* of the test batch, f32 */

	/* Of the host, which the device reaches. */
	float *logits_host;
	struct kernel_result *results; /* of steps */
	uint64_t *progress;	       /* buckets of gradients that were summed */
};

/* How a step is enqueued from the second one on. */
enum cuda_manner {
	CUDA_ONE_GRAPH,	 /* all of it */
	CUDA_TWO_GRAPHS, /* what is before the sums of gradients, and what is behind them */
	CUDA_BY_CALL, /* nothing is captured: BatchNorm's or the host's sums are in the midst of it */
};

enum { CUDA_GRAPHS = 2 };

struct engine {
	struct engine_setup setup;
	struct device *device;
	int ranks;	/* that sum on devices: 1 where virtual ranks are summed by the host */
	bool sync_norm; /* and there are others */
	bool scaling;	/* the loss, by setup.scaler */

	struct layers *layers;
	struct plans plans;
	struct program *program;
	struct unit *units; /* of each operation */
	size_t channels;    /* of the widest NORM */
	size_t piece;	    /* images of the test set that are evaluated at once */
	struct cuda_memory memory;

	struct data *train, *test;
	int32_t *labels; /* of the test batch, on the host */

	/* While something is enqueued. */
	enum program_mode mode;
	size_t batch; /* images */
	struct data_block block;
	bool sums_later; /* than what is enqueued */
	size_t part;	 /* which of setup.parts */

	enum cuda_manner manner;
	struct device_graph *graphs[CUDA_GRAPHS]; /* the second one with CUDA_TWO_GRAPHS alone */
	uint64_t launched, told;		  /* steps */
	uint64_t updates; /* steps of the optimizer that are known to be done */
	uint64_t sent;	  /* the step at which the device reads what was foretold last */
	bool anew;	  /* the next step is the first one after a push */
	bool broken;	  /* a call has failed: nothing is waited for any more */

	struct engine_step held;   /* what steps told that the caller was not told yet */
	struct kernel_result last; /* result */

	char describe[256], name[192];
};

/* --- plans.c ----------------------------------------------------------------------------------- */

/*
 * Convolutions and dense layers. What rank 0 chose, now or in an earlier run, is taken by all.
 * Collective.
 */
int cuda_plans_open(struct engine *engine, struct ddp_error *error);

/* --- Enqueueing -------------------------------------------------------------------------------- */

/* Where areas and values are. */
void *cuda_area(const struct engine *engine, int area);
void *cuda_value(const struct engine *engine, int index);
/* What kernels on that stream need for themselves. */
struct kernel_scratch cuda_scratch(const struct engine *engine);
/* The stream that a step is computed on. */
void *cuda_stream(const struct engine *engine);

/* All operations of engine->mode over engine->batch images; in training the last layer may be left to: */
int cuda_forward(struct engine *engine, struct ddp_error *error);
/* The loss, and from its gradient to those of all parameters, each told as ready. */
int cuda_backward(struct engine *engine, struct ddp_error *error);

/* --- engine-cuda.c: sums over ranks -------------------------------------------------------------- */

/* What libddp said, and how far the sums of gradients had come. Returns [status]. */
int cuda_told(const struct engine *engine, int status, struct ddp_error *error);

/*
 * Gradients: memory for them; that of [parameter] (-1: none is meant; CUDA_WORD: the word) is enqueued on
 * COMPUTE, unless engine->sums_later; COMPUTE waits for the sums of all.
 */
enum { CUDA_WORD = -2 };
int cuda_sums_ready(struct engine *engine, int parameter, struct ddp_error *error);
int cuda_sums_finish(struct engine *engine, struct ddp_error *error);

/* --- Calls ------------------------------------------------------------------------------------- */

int cuda_step(struct engine *engine, const struct batch *batch, size_t global, uint64_t step,
	      double rate, bool stop, struct engine_step *done, struct ddp_error *error);
int cuda_expect(struct engine *engine, const struct batch *batch, const double *rates,
		struct ddp_error *error);
int cuda_settle(struct engine *engine, struct engine_step *done, struct ddp_error *error);
int cuda_evaluate(struct engine *engine, const struct batch *batch,
		  struct ddp_evaluation *evaluation, struct ddp_error *error);
int cuda_push(struct engine *engine, struct ddp_error *error);
int cuda_pull(struct engine *engine, struct ddp_error *error);

/* Wait until [most] steps at most are under way; what the others told is held. */
int cuda_catch_up(struct engine *engine, size_t most, struct ddp_error *error);

/* Wait for COMPUTE, with the time limit. */
int cuda_wait(struct engine *engine, struct ddp_error *error);

/* engine->broken from here on. Returns [status]. */
int cuda_break(struct engine *engine, int status);

#endif /* TRAIN_CUDA_ENGINE_H */
