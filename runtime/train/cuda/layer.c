/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/type.h"
#include "base/xalloc.h"
#include "conv-plan.h"
#include "cuda-kernels.h"
#include "layer.h"

/* NVIDIA's headers are not written for these. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cublasLt.h>
#pragma GCC diagnostic pop

/* Since 9.8 a plan needs no handle until it runs. */
#if CUDNN_VERSION < 90800
#error "cuDNN 9.8 or newer is needed"
#endif
enum { OLDEST = 90800 };

/*
 * How many proposals are timed, in rounds of so many runs in one graph; the fastest round counts. Heuristics are right
 * about the first in most cases, and within the first few nearly always.
 */
enum { TRIES = 4, ROUNDS = 4, RUNS = 4 };

/* Where rounds of one plan differ so much, all were disturbed. */
#define BUSY 1.5f

/* One pair for all layers of a device: a handle costs memory there, and tens of milliseconds. */
struct layers {
	struct device *device;
	cudnnHandle_t cudnn;
	cublasLtHandle_t cublas;
};

/* A product of matrices by cublasLt, described once and run many times. */
struct product {
	cublasLtMatmulDescOpaque_t description;
	cublasLtMatrixLayoutOpaque_t a, b, d;
	cublasLtMatmulAlgo_t algorithm;
	size_t workspace;
	bool sums; /* the bias's gradient comes with that of the weights */
};

struct layer {
	struct layer_options options;
	struct layers *layers;
	struct conv_plan *plans[LAYER_PASSES]; /* of a convolution: */
	struct product products[LAYER_PASSES]; /* of a dense layer */
};

/* --- Failures ------------------------------------------------------------------------------- */

const char *layers_describe(void)
{
	static char text[32];
	size_t version = cudnnGetVersion();

	snprintf(text, sizeof(text), "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
		 version % 100);
	return text;
}

static int failed(const struct layers *layers, int code, const char *what, const char *text,
		  struct ddp_error *error)
{
	const struct device_info *info = device_info(layers->device);

	return ddp_error_set(error, code, "GPU %d (%s): %s: %s", info->index, info->name, what,
			     text);
}

/* What fails for want of memory is told as such: its remedy is another. */
static int cudnn_failed(const struct layers *layers, cudnnStatus_t status, const char *what,
			struct ddp_error *error)
{
	int code = DDP_ERR_ENGINE;
	char said[256] = "", text[512];

	if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
	    status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
		code = DDP_ERR_MEMORY;
	else if (CUDNN_STATUS_CATEGORY((int)status) == CUDNN_STATUS_NOT_SUPPORTED)
		code = DDP_ERR_UNSUPPORTED;
	cudnnGetLastErrorString(said, sizeof(said));
	snprintf(text, sizeof(text), "%s: %s%s%s", layers_describe(), cudnnGetErrorString(status),
		 *said ? ": " : "", said);
	return failed(layers, code, what, text, error);
}

static int cublas_failed(const struct layers *layers, cublasStatus_t status, const char *what,
			 struct ddp_error *error)
{
	size_t version = cublasLtGetVersion();
	int code = DDP_ERR_ENGINE;
	char text[256];

	if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH)
		code = DDP_ERR_UNSUPPORTED;
	else if (status == CUBLAS_STATUS_ALLOC_FAILED)
		code = DDP_ERR_MEMORY;
	snprintf(text, sizeof(text), "cublasLt %zu.%zu.%zu: %s", version / 10000,
		 version / 100 % 100, version % 100, cublasLtGetStatusString(status));
	return failed(layers, code, what, text, error);
}

/* --- Handles -------------------------------------------------------------------------------- */

int layers_open(struct layers **result, struct device *device, struct ddp_error *error)
{
	struct layers *layers = ddp_xcalloc(1, sizeof(*layers), "handles of cuDNN");
	cudnnStatus_t dnn = CUDNN_STATUS_SUCCESS;
	cublasStatus_t blas = CUBLAS_STATUS_SUCCESS;
	int status = 0;

	*result = NULL;
	layers->device = device;
	if (cudnnGetVersion() < OLDEST)
		status = ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				       "%s is too old: 9.8 or newer is needed", layers_describe());
	if (status == 0 && (dnn = cudnnCreate(&layers->cudnn)) != CUDNN_STATUS_SUCCESS)
		status = cudnn_failed(layers, dnn, "opening the library", error);
	if (status == 0 && (blas = cublasLtCreate(&layers->cublas)) != CUBLAS_STATUS_SUCCESS)
		status = cublas_failed(layers, blas, "opening the library", error);
	if (status < 0)
		layers_close(layers);
	else
		*result = layers;
	return status;
}

void layers_close(struct layers *layers)
{
	if (!layers)
		return;
	if (layers->cublas)
		cublasLtDestroy(layers->cublas);
	if (layers->cudnn)
		cudnnDestroy(layers->cudnn);
	free(layers);
}

/* --- Timing plans --------------------------------------------------------------------------- */

static int run_plan(const struct layers *layers, const struct conv_plan *plan,
		    void *tensors[CONV_TENSORS], void *scratch, struct ddp_error *error)
{
	void *stream = device_stream(layers->device, DEVICE_COMPUTE);
	cudnnStatus_t status = conv_plan_run(plan, layers->cudnn, stream, tensors, scratch);
	char title[256];

	if (status == CUDNN_STATUS_SUCCESS)
		return 0;
	conv_title(&plan->problem, title, sizeof(title));
	return cudnn_failed(layers, status, title, error);
}

/* What is tried, and memory that it runs on. */
struct trial {
	const struct layers *layers;
	struct conv_plan *plan;
	void *tensors[CONV_TENSORS], *scratch;
	cudaEvent_t begin, end;
};

static int open_trial(struct trial *trial, const struct conv_problem *problem, size_t scratch,
		      struct ddp_error *error)
{
	static const char what[] = "trying the plans of a convolution", remedy[] = "lower --batch";
	struct device_taking taking = {trial->layers->device, 0, error};

	for (int i = CONV_X; i < CONV_TENSORS; i++)
		trial->tensors[i] = device_take(&taking, conv_bytes(problem, (enum conv_tensor)i),
						what, remedy);
	trial->scratch = device_take(&taking, scratch, what, remedy);
	(void)cudaEventCreate(&trial->begin);
	(void)cudaEventCreate(&trial->end);
	return taking.status < 0 ? taking.status : device_check(taking.device, what, error);
}

static void close_trial(struct trial *trial)
{
	struct device *device = trial->layers->device;

	for (int i = CONV_X; i < CONV_TENSORS; i++)
		device_free(device, trial->tensors[i]);
	device_free(device, trial->scratch);
	if (trial->begin)
		cudaEventDestroy(trial->begin);
	if (trial->end)
		cudaEventDestroy(trial->end);
}

/* [runs] of it, and wait for them; with [graph] they are recorded. */
static int try_plan(struct trial *trial, int runs, struct device_graph **graph,
		    struct ddp_error *error)
{
	struct device *device = trial->layers->device;
	int status = graph ? device_capture_begin(device, error) : 0, ended;

	if (status < 0)
		return status;
	for (int i = 0; i < runs && status == 0; i++)
		status =
			run_plan(trial->layers, trial->plan, trial->tensors, trial->scratch, error);
	if (!graph)
		return status < 0 ? status : device_wait(device, DEVICE_COMPUTE, error);
	ended = device_capture_end(device, graph, status < 0 ? NULL : error);
	return status < 0 ? status : ended;
}

/* Milliseconds of one launch. */
static int time_launch(struct trial *trial, struct device_graph *graph, float *time,
		       struct ddp_error *error)
{
	struct device *device = trial->layers->device;
	cudaStream_t stream = device_stream(device, DEVICE_COMPUTE);
	int status;

	(void)cudaEventRecord(trial->begin, stream);
	status = device_launch(device, graph, error);
	(void)cudaEventRecord(trial->end, stream);
	if (status == 0)
		status = device_wait(device, DEVICE_COMPUTE, error);
	(void)cudaEventElapsedTime(time, trial->begin, trial->end);
	return status < 0 ? status : device_check(device, "the time of a convolution", error);
}

/*
 * The fastest and the slowest of a few rounds as a step will run it, in a graph; what a kernel needs is loaded by a run
 * outside of one, and the graph itself by a first launch, which does not count.
 */
static int time_plan(struct trial *trial, float *best, float *worst, struct ddp_error *error)
{
	struct device_graph *graph = NULL;
	float time = 0;
	int status = try_plan(trial, 1, NULL, error);

	if (status == 0)
		status = try_plan(trial, RUNS, &graph, error);
	*best = *worst = 0;
	for (int round = 0; round <= ROUNDS && status == 0; round++) {
		status = time_launch(trial, graph, &time, error);
		*best = round <= 1 || time < *best ? time : *best;
		*worst = round <= 1 || time > *worst ? time : *worst;
	}
	device_graph_destroy(graph);
	return status;
}

/* --- Choosing a plan ------------------------------------------------------------------------ */

/*
 * The fastest of [count] plans, by its index. Those that do not run or cannot be captured are out; the last one's error
 * is told where none is left. Where nothing may depend on the time, the first that runs.
 */
static int choose(struct trial *trial, struct conv_plan **plans, int count, bool *busy,
		  struct ddp_error *error)
{
	float least = 0, best, worst;
	int chosen = -1, status = 0;

	for (int i = 0; i < count; i++) {
		if (!plans[i])
			continue;
		trial->plan = plans[i];
		status = time_plan(trial, &best, &worst, error);
		if (status < 0)
			continue;
		*busy = *busy || worst > BUSY * best;
		if (chosen >= 0 && best >= least)
			continue;
		chosen = i;
		least = best;
		if (plans[i]->problem.options->deterministic)
			break;
	}
	if (chosen < 0)
		return status;
	ddp_error_clear(error);
	return chosen;
}

/* One that was not known; [text] is what it is. */
static int find_plan(const struct layers *layers, const struct conv_problem *problem,
		     struct conv_plan **plan, char text[PLANS_PLAN], struct ddp_error *error)
{
	const struct conv_gpu gpu = {.handle = layers->cudnn};
	struct trial trial = {.layers = layers};
	char list[TRIES][PLANS_PLAN], why[CONV_WHY], title[256], said[CONV_WHY + 64];
	int status = 0, built = 0, count = conv_propose(problem, &gpu, list, TRIES, why);
	struct conv_plan *plans[TRIES] = {NULL};
	size_t scratch = 0;
	bool busy = false;

	for (int i = 0; i < count; i++) {
		plans[i] = conv_plan_create(problem, &gpu, list[i], why);
		if (plans[i] && plans[i]->workspace > scratch)
			scratch = plans[i]->workspace;
		built += plans[i] != NULL;
	}
	if (built > 0) {
		status = open_trial(&trial, problem, scratch, error);
		if (status == 0)
			status = choose(&trial, plans, count, &busy, error);
		close_trial(&trial);
	} else {
		conv_title(problem, title, sizeof(title));
		snprintf(said, sizeof(said), "%s has no plan: %s", layers_describe(), why);
		status = failed(layers, DDP_ERR_UNSUPPORTED, title, said, error);
	}
	if (status >= 0) {
		snprintf(text, PLANS_PLAN, "%s%s", list[status],
			 busy && !problem->options->deterministic ? " busy" : "");
		*plan = plans[status];
		plans[status] = NULL;
	}
	for (int i = 0; i < count; i++)
		conv_plan_destroy(plans[i]);
	return status < 0 ? status : 0;
}

static int make_plan(struct layer *layer, enum layer_pass pass, struct plans *plans,
		     struct ddp_error *error)
{
	static const char *const passes[] = {"forward", "test", "back-data", "back-weights"};
	const struct layers *layers = layer->layers;
	const struct conv_gpu gpu = {.handle = layers->cudnn};
	struct conv_problem problem = conv_problem(&layer->options, pass, plans->memory);
	char key[PLANS_KEY], text[PLANS_PLAN], label[96], why[CONV_WHY];
	int status = 0;

	conv_key(&problem, device_info(layers->device), plans->shared, key);
	if (plans_find(plans, key, text))
		layer->plans[pass] = conv_plan_create(&problem, &gpu, text, why);
	if (!layer->plans[pass])
		status = find_plan(layers, &problem, &layer->plans[pass], text, error);
	snprintf(label, sizeof(label), "%s.%s", layer->options.name, passes[pass]);
	if (status == 0)
		plans_take(plans, label, key, text);
	return status;
}

/* --- Dense layers --------------------------------------------------------------------------- */

/* Views of arenas lie at multiples of 64 bytes in f32, so of 32 in half of that. */
enum { ALIGNMENT = 32 };

/* What cublasLt is said to want at most on recent GPUs. */
static const size_t most_workspace = (size_t)32 << 20;

#define TRY(call)                                   \
	do {                                        \
		cublasStatus_t tried = (call);      \
		if (tried != CUBLAS_STATUS_SUCCESS) \
			return tried;               \
	} while (0)

static cublasStatus_t set(struct product *product, cublasLtMatmulDescAttributes_t name,
			  int32_t value)
{
	return cublasLtMatmulDescSetAttribute(&product->description, name, &value, sizeof(value));
}

static cublasStatus_t set_bias(struct product *product, const void *bias)
{
	return cublasLtMatmulDescSetAttribute(
		&product->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
}

static cublasStatus_t lay_out(cublasLtMatrixLayoutOpaque_t *layout, enum ddp_type type, size_t rows,
			      size_t columns, bool turned)
{
	cudaDataType_t of = type == DDP_BF16  ? CUDA_R_16BF
			    : type == DDP_F16 ? CUDA_R_16F
					      : CUDA_R_32F;

	return cublasLtMatrixLayoutInit(layout, of, turned ? columns : rows,
					turned ? rows : columns,
					(int64_t)(turned ? columns : rows));
}

/*
 * By the first suggestion, with [epilogue]. Partial sums are added up in f32, and in one order: not in the output's
 * type, and not in place in the order in which they are ready.
 */
static cublasStatus_t suggest(struct product *product, cublasLtHandle_t handle,
			      cublasLtEpilogue_t epilogue)
{
	static const uint32_t alignment = ALIGNMENT;
	static const uint32_t schemes =
		CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	static const struct {
		cublasLtMatmulPreferenceAttributes_t name;
		const void *value;
		size_t size;
	} wishes[] = {
		{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most_workspace, sizeof(most_workspace)},
		{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof(alignment)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof(alignment)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof(alignment)},
		{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof(alignment)},
	};
	cublasLtMatmulPreferenceOpaque_t preference;
	cublasLtMatmulHeuristicResult_t result;
	int count = 0;

	TRY(set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, (int32_t)epilogue));
	TRY(cublasLtMatmulPreferenceInit(&preference));
	for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++)
		TRY(cublasLtMatmulPreferenceSetAttribute(&preference, wishes[i].name,
							 wishes[i].value, wishes[i].size));
	TRY(cublasLtMatmulAlgoGetHeuristic(handle, &product->description, &product->a, &product->b,
					   &product->d, &product->d, &preference, 1, &result,
					   &count));
	if (count == 0)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	product->algorithm = result.algo;
	product->workspace = result.workspaceSize;
	return result.state;
}

static cublasLtEpilogue_t epilogue_of(const struct layer_options *options)
{
	if (options->bias)
		return options->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
	return options->relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

/*
 * cublasLt counts columns first: to it, a matrix of ours is its transpose. So y' = W x', dx' = W' dy', dW' = x' dy:
 * primes as cublasLt sees what lies row by row. Gradients of weights are f32.
 */
static cublasStatus_t make_product(struct product *product, const struct layer_options *options,
				   enum layer_pass pass, cublasLtHandle_t handle)
{
	/* Heuristics look at the alignment of a pointer to the bias, and not at what is there. */
	const void *bias = (const void *)(uintptr_t)ALIGNMENT; // NOLINT
	size_t batch = pass == LAYER_TEST ? options->test_batch : options->batch;
	size_t in = (size_t)options->in, out = (size_t)options->out;
	bool weights = pass == LAYER_BACK_WEIGHTS, forward = !weights && pass != LAYER_BACK_DATA;
	size_t rows = forward ? out : in, columns = weights ? out : batch;
	size_t inner = forward ? in : weights ? batch : out;
	enum ddp_type type = options->type;
	bool tf32 = type == DDP_F32 && options->tf32;

	TRY(cublasLtMatmulDescInit(&product->description,
				   tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
				   CUDA_R_32F));
	TRY(set(product, CUBLASLT_MATMUL_DESC_TRANSA, forward ? CUBLAS_OP_T : CUBLAS_OP_N));
	TRY(set(product, CUBLASLT_MATMUL_DESC_TRANSB, weights ? CUBLAS_OP_T : CUBLAS_OP_N));
	if (options->bias && (forward || weights))
		TRY(set_bias(product, bias));
	TRY(lay_out(&product->a, type, rows, inner, forward));
	TRY(lay_out(&product->b, type, inner, columns, weights));
	TRY(lay_out(&product->d, weights ? DDP_F32 : type, rows, columns, false));
	if (forward)
		return suggest(product, handle, epilogue_of(options));
	/* Sums over dy, which is B, are not there for all types and shapes. */
	if (weights && options->bias)
		product->sums =
			suggest(product, handle, CUBLASLT_EPILOGUE_BGRADB) == CUBLAS_STATUS_SUCCESS;
	return product->sums ? CUBLAS_STATUS_SUCCESS
			     : suggest(product, handle, CUBLASLT_EPILOGUE_DEFAULT);
}

/* Forwards a is the weights, b is x; backwards the weights and dy, or x and dy. */
static cublasStatus_t run_product(struct product *product, const struct layers *layers,
				  const void *a, const void *b, const void *bias, void *d,
				  void *workspace)
{
	const float one = 1, zero = 0;

	if (product->sums && !bias)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (bias)
		TRY(set_bias(product, bias));
	return cublasLtMatmul(layers->cublas, &product->description, &one, a, &product->a, b,
			      &product->b, &zero, d, &product->d, d, &product->d,
			      &product->algorithm, workspace, product->workspace,
			      device_stream(layers->device, DEVICE_COMPUTE));
}

static int product_failed(const struct layer *layer, enum layer_pass pass, cublasStatus_t status,
			  struct ddp_error *error)
{
	const struct conv_problem problem = conv_problem(&layer->options, pass, 0);
	char title[256];

	conv_title(&problem, title, sizeof(title));
	return cublas_failed(layer->layers, status, title, error);
}

/* --- Layers --------------------------------------------------------------------------------- */

static bool has_pass(const struct layer_options *options, enum layer_pass pass)
{
	if (pass == LAYER_TEST)
		return options->test_batch > 0 && options->test_batch != options->batch;
	return pass != LAYER_BACK_DATA || !options->first;
}

int layer_create(struct layer **result, struct layers *layers, const struct layer_options *options,
		 struct plans *plans, struct ddp_error *error)
{
	struct layer *layer = ddp_xcalloc(1, sizeof(*layer), "a layer");
	int status = 0;

	*result = NULL;
	layer->options = *options;
	layer->layers = layers;
	for (int i = 0; i < LAYER_PASSES && status == 0; i++) {
		enum layer_pass pass = (enum layer_pass)i;
		cublasStatus_t made = CUBLAS_STATUS_SUCCESS;

		if (has_pass(options, pass) && options->dense)
			made = make_product(&layer->products[pass], options, pass, layers->cublas);
		else if (has_pass(options, pass))
			status = make_plan(layer, pass, plans, error);
		if (made != CUBLAS_STATUS_SUCCESS)
			status = product_failed(layer, pass, made, error);
	}
	if (status < 0)
		layer_destroy(layer);
	else
		*result = layer;
	return status;
}

void layer_destroy(struct layer *layer)
{
	if (!layer)
		return;
	for (int pass = 0; pass < LAYER_PASSES; pass++)
		conv_plan_destroy(layer->plans[pass]);
	free(layer);
}

size_t layer_scratch(const struct layer *layer)
{
	size_t most = 0;

	for (int pass = 0; pass < LAYER_PASSES; pass++) {
		const struct conv_plan *plan = layer->plans[pass];
		size_t bytes = plan ? plan->workspace : layer->products[pass].workspace;

		most = bytes > most ? bytes : most;
	}
	return most;
}

/* Of cuDNN's packs of pointers one is written to. */
static int run(struct layer *layer, enum layer_pass pass, const void *x, const void *weights,
	       const void *bias, const void *y, void *scratch, struct ddp_error *error)
{
	const struct layers *layers = layer->layers;
	void *tensors[CONV_TENSORS] = {[CONV_X] = (void *)x,
				       [CONV_WEIGHTS] = (void *)weights,
				       [CONV_BIAS] = (void *)bias,
				       [CONV_Y] = (void *)y};
	const void *a = pass == LAYER_BACK_WEIGHTS ? x : weights;
	const void *b = pass == LAYER_FORWARD || pass == LAYER_TEST ? x : y;
	void *d = tensors[pass == LAYER_BACK_DATA      ? CONV_X
			  : pass == LAYER_BACK_WEIGHTS ? CONV_WEIGHTS
						       : CONV_Y];
	cublasStatus_t status;

	if (!layer->options.dense)
		return run_plan(layers, layer->plans[pass], tensors, scratch, error);
	status = run_product(&layer->products[pass], layers, a, b, bias, d, scratch);
	return status == CUBLAS_STATUS_SUCCESS ? 0 : product_failed(layer, pass, status, error);
}

int layer_forward(struct layer *layer, bool test, const void *x, const void *weights,
		  const void *bias, void *y, void *scratch, struct ddp_error *error)
{
	enum layer_pass pass =
		test && has_pass(&layer->options, LAYER_TEST) ? LAYER_TEST : LAYER_FORWARD;
	const struct layer_options *o = &layer->options;
	struct device *device = layer->layers->device;
	int status = run(layer, pass, x, weights, bias, y, scratch, error);

	/* cuDNN has no graph of a ReLU alone for some shapes. */
	if (status < 0 || o->dense || o->bias || !o->relu)
		return status;
	kernel_relu(device_stream(device, DEVICE_COMPUTE), y, y,
		    conv_bytes(&layer->plans[pass]->problem, CONV_Y) / ddp_type_size(o->type),
		    o->type);
	return device_check(device, o->name, error);
}

int layer_back_data(struct layer *layer, const void *dy, const void *weights, void *dx,
		    void *scratch, struct ddp_error *error)
{
	return run(layer, LAYER_BACK_DATA, dx, weights, NULL, dy, scratch, error);
}

bool layer_has_sums(const struct layer *layer)
{
	return layer->products[LAYER_BACK_WEIGHTS].sums;
}

int layer_back_weights(struct layer *layer, const void *x, const void *dy, void *weights,
		       float *bias, void *scratch, struct ddp_error *error)
{
	return run(layer, LAYER_BACK_WEIGHTS, x, weights, layer_has_sums(layer) ? bias : NULL, dy,
		   scratch, error);
}
