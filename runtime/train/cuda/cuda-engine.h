/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-engine.h - internals of the CUDA engine
 *
 * cuda/ is the module ddp_cuda.so. It calls ddp.h, base/, gpu/, net/, data/ and optim/. CUDA, cuDNN
 * and cuBLASLt are called only in the implementations of device.h, layer.h and cuda-kernels.h.
 * Start reading in engine-cuda.c (open), then step.c and walk.c.
 *
 * A step is a sequence of kernels over memory at fixed addresses. The first step is enqueued
 * directly, so that libraries load and NCCL connects. The second step is captured into a graph,
 * which all further steps launch. Values that differ between steps are in device memory (data.h).
 * If a step has sums in host memory, every step is enqueued directly, call by call.
 */
#ifndef TRAIN_CUDA_ENGINE_H
#define TRAIN_CUDA_ENGINE_H

#include "cuda-kernels.h"
#include "data.h"
#include "engine.h"
#include "layer.h"
#include "net/program.h"

/*
 * Maximum number of steps under way when another step is enqueued. It is equal on all ranks, so
 * that all ranks stop at the same step. It is 0 if steps are enqueued call by call. A GPU's queue
 * holds some hundreds of entries. If a lost rank never joins a sum, a host that fills the queue
 * behind that sum would hang in the driver.
 */
enum { CUDA_LAG = 8, CUDA_LAG_BY_CALL = 0 };

_Static_assert((int)CUDA_LAG < (int)KERNEL_SLOTS - 1, "too few results for steps under way");

/* State of an operation, in addition to its row of the program. */
struct unit {
	struct layer *layer; /* MATH; NULL: the first convolution, which kernel_first() computes */
	bool narrow;	     /* cuDNN writes the weights' gradient in the type of activations */
	/*
	 * MATH: the gradient of the bias is computed together with that of the weights, or by the
	 * pool after the layer
	 */
	bool has_sums;
	int sums; /* MAX_POOL: the bias parameter whose gradient the pool computes; -1: none */
	struct kernel_first first;
	struct dropout dropout;
	struct kernel_norm norm;
	float *statistics; /* NORM: statistics of the batch, on the device */
};

/* Device memory, at fixed addresses. */
struct cuda_memory {
	char *areas;
	size_t areas_bytes;
	void *scratch; /* used by one kernel or library call at a time, on COMPUTE */

	/* Arrays with the layout of the model's arrays; see model.h. */
	float *values, *gradients;
	float *slots[MODEL_SLOTS];
	void *narrow;	       /* values in the type of activations; NULL if that is f32 */
	void *narrow_gradient; /* gradient of one convolution's weights, as written by cuDNN */
	float *buffers;

	const struct kernel_state *state; /* state of the step under way */
	unsigned *tickets;		  /* counters for kernels; see struct kernel_scratch */
	struct kernel_norm2 *norm2;
	float *moments;	 /* BatchNorm: moments of this rank */
	float *gathered; /* BatchNorm: moments of all ranks */
	float *sums;	 /* BatchNorm: backward sums over all ranks */
	float *logits;	 /* logits of the test batch, in f32 */

	/* Host memory that the device can access. */
	float *logits_host;
	struct kernel_result *results; /* results of steps, a ring buffer */
	uint64_t *progress;	       /* number of summed buckets */
};

struct engine {
	struct engine_setup setup;
	struct device *device;
	int ranks; /* ranks that sum on devices; 1 with virtual ranks, whose sums are on the host */
	bool sync_norm; /* SyncBatchNorm, with several ranks */
	bool scaling;	/* loss scaling by setup.scaler */

	struct layers *layers;
	struct program *program;
	struct unit *units; /* indexed by operation */
	size_t channels;    /* channels of the widest NORM */
	size_t piece;	    /* images per forward pass of an evaluation */
	struct cuda_memory memory;

	struct data *train, *test;
	int32_t *labels; /* labels of the test batch, on the host */

	/* Set while operations are enqueued. */
	enum program_mode mode;
	size_t batch; /* images */
	struct data_block block;
	/*
	 * Gradients are copied to the host after the backward pass, and not summed bucket by
	 * bucket.
	 */
	bool by_host;
	size_t part; /* index of the virtual rank */

	bool by_call; /* steps are enqueued call by call, as they have sums in host memory */
	struct device_graph *graph;	 /* captured step; NULL before step 2 and if by_call */
	uint64_t launched, results_read; /* steps enqueued; steps whose results were read */
	uint64_t updates;		 /* optimizer steps that are known to be done */
	bool pushed;			 /* the next step is the first after a push */
	bool broken; /* a call failed, so functions must not wait for the device */

	struct engine_step held; /* results that were read, but not yet reported to the caller */
	struct kernel_result last;

	char describe[256], name[192];
};

/* --- plans.c ----------------------------------------------------------------------------------- */

/* Creates convolutions and dense layers, with the plans that rank 0 chose. Collective. */
int cuda_plans_open(struct engine *engine, struct ddp_error *error);

/* --- walk.c: enqueue operations ---------------------------------------------------------------- */

void *cuda_area(const struct engine *engine, int area);
void *cuda_value(const struct engine *engine, int index);
/* Scratch memory for kernels on COMPUTE. */
struct kernel_scratch cuda_scratch(const struct engine *engine);
/* The COMPUTE stream, on which steps run. */
void *cuda_stream(const struct engine *engine);

/* Enqueues the forward pass of engine->mode over engine->batch images. */
int cuda_forward(struct engine *engine, struct ddp_error *error);
/*
 * Enqueues the loss and the backward pass. Reports the gradient of a parameter to libddp as soon as
 * its kernels are enqueued.
 */
int cuda_backward(struct engine *engine, struct ddp_error *error);

/*
 * Copies libddp's error to [error], and adds the number of gradient sums that were complete to the
 * text. Returns [status].
 */
int cuda_fail(const struct engine *engine, int status, struct ddp_error *error);

/* --- Methods of the engine --------------------------------------------------------------------- */

int cuda_step(struct engine *engine, const struct batch *batch, size_t global, uint64_t step,
	      double rate, bool stop, struct engine_step *done, struct ddp_error *error);
int cuda_settle(struct engine *engine, struct engine_step *done, struct ddp_error *error);
int cuda_evaluate(struct engine *engine, const struct batch *batch,
		  struct ddp_evaluation *evaluation, struct ddp_error *error);
int cuda_push(struct engine *engine, struct ddp_error *error);
int cuda_pull(struct engine *engine, struct ddp_error *error);

/* Waits for all work on COMPUTE, at most as long as libddp's timeout. */
int cuda_wait(struct engine *engine, struct ddp_error *error);

#endif /* TRAIN_CUDA_ENGINE_H */
