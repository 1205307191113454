/* SPDX-License-Identifier: Apache-2.0 */
/* layer.c - time and run the plans of convolutions and the products of dense layers */
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

/* NVIDIA's headers cause the warnings that are disabled here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cublasLt.h>
#pragma GCC diagnostic pop

/* Since cuDNN 9.8, plans can be built without a handle. */
#if CUDNN_VERSION < 90800
#error "cuDNN 9.8 or newer is needed"
#endif
enum { OLDEST = 90800 };

/* Each plan is timed ROUNDS times, as a graph of RUNS runs. The fastest time counts. */
enum { ROUNDS = 4, RUNS = 4 };

/*
 * Handles of the libraries. All layers of a device share them, because a handle needs device
 * memory, and tens of milliseconds to create.
 */
struct layers {
	struct device *device;
	struct conv_plan *plans; /* chosen plans, one per distinct problem */
	char slow[256];		 /* title of the first slow plan; "": none */
	cudnnHandle_t cudnn;
	cublasLtHandle_t cublas;
};

/* A cublasLt matrix product, described once and run many times. */
struct product {
	cublasLtMatmulDescOpaque_t description;
	cublasLtMatrixLayoutOpaque_t a, b, d;
	cublasLtMatmulAlgo_t algorithm;
	size_t workspace;
	bool sums; /* whether the product also computes the gradient of the bias */
};

struct layer {
	struct layer_options options;
	struct layers *layers;
	struct conv_plan *plans[LAYER_PASSES]; /* plans of a convolution, which [layers] owns */
	struct product products[LAYER_PASSES]; /* products of a dense layer */
};

/* --- Errors --------------------------------------------------------------------------------- */

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

/*
 * Returns the error for cuDNN's [status]. A failed allocation becomes DDP_ERR_MEMORY, because its
 * remedy is different.
 */
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
				       "%s is too old. Install 9.8 or newer.", layers_describe());
	if (status == 0)
		dnn = cudnnCreate(&layers->cudnn);
	/* The stream must be set before a capture begins. */
	if (status == 0 && dnn == CUDNN_STATUS_SUCCESS)
		dnn = cudnnSetStream(layers->cudnn, device_stream(device, DEVICE_COMPUTE));
	if (dnn != CUDNN_STATUS_SUCCESS)
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
	while (layers->plans) {
		struct conv_plan *plan = layers->plans;

		layers->plans = plan->next;
		conv_plan_destroy(plan);
	}
	if (layers->cublas)
		cublasLtDestroy(layers->cublas);
	if (layers->cudnn)
		cudnnDestroy(layers->cudnn);
	free(layers);
}

const char *layers_slow(const struct layers *layers)
{
	return *layers->slow ? layers->slow : NULL;
}

/* --- Timing plans --------------------------------------------------------------------------- */

/* Enqueues plan [index]. [problem] is used only for the error text. */
static int run_plan(const struct layers *layers, const struct conv_problem *problem,
		    const struct conv_plan *plan, int index, void *tensors[CONV_TENSORS],
		    void *scratch, struct ddp_error *error)
{
	cudnnStatus_t status = conv_plan_run(plan, index, layers->cudnn, tensors, scratch);
	char title[256];

	if (status == CUDNN_STATUS_SUCCESS)
		return 0;
	conv_title(problem, title, sizeof(title));
	return cudnn_failed(layers, status, title, error);
}

/* Candidate that is being timed, and the memory that it needs. */
struct trial {
	const struct layers *layers;
	struct conv_plan *plan;
	int index;
	void *memory, *tensors[CONV_TENSORS], *scratch;
	cudaEvent_t begin, end;
};

/* Sets the pointers to the memory. Called twice, as described at struct device_parts. */
static void divide(struct trial *trial, struct device_parts *parts)
{
	const struct conv_plan *plan = trial->plan;
	size_t scratch = 0;

	for (int i = 0; i < plan->count; i++)
		if (plan->list[i].workspace > scratch)
			scratch = plan->list[i].workspace;
	for (int i = CONV_X; i < CONV_TENSORS; i++)
		trial->tensors[i] =
			device_part(parts, conv_bytes(&plan->problem, (enum conv_tensor)i));
	trial->scratch = device_part(parts, scratch);
}

static int open_trial(struct trial *trial, struct ddp_error *error)
{
	static const char what[] = "trying the plans of a convolution";
	struct device *device = trial->layers->device;
	struct device_parts parts = {NULL, 0};
	int status;

	divide(trial, &parts);
	status = device_alloc(device, &trial->memory, parts.bytes, what, "Lower --batch.", error);
	parts = (struct device_parts){trial->memory, 0};
	divide(trial, &parts);
	(void)cudaEventCreate(&trial->begin);
	(void)cudaEventCreate(&trial->end);
	return status < 0 ? status : device_check(device, what, error);
}

static void close_trial(struct trial *trial)
{
	struct device *device = trial->layers->device;

	device_free(device, trial->memory);
	if (trial->begin)
		cudaEventDestroy(trial->begin);
	if (trial->end)
		cudaEventDestroy(trial->end);
}

/* Runs the plan [runs] times and waits. With [graph], captures the runs instead. */
static int try_plan(struct trial *trial, int runs, struct device_graph **graph,
		    struct ddp_error *error)
{
	struct device *device = trial->layers->device;
	int status = graph ? device_capture_begin(device, error) : 0, ended;

	if (status < 0)
		return status;
	for (int i = 0; i < runs && status == 0; i++)
		status = run_plan(trial->layers, &trial->plan->problem, trial->plan, trial->index,
				  trial->tensors, trial->scratch, error);
	if (!graph)
		return status < 0 ? status : device_wait(device, DEVICE_COMPUTE, error);
	ended = device_capture_end(device, graph, status < 0 ? NULL : error);
	return status < 0 ? status : ended;
}

/* Measures the time of one launch of [graph], in milliseconds. */
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
 * Sets [best] to the fastest time. The plan runs in a graph, as it does in a step. Before the timed
 * launches, a run outside of the graph loads the kernels, and a first launch loads the graph.
 */
static int time_plan(struct trial *trial, float *best, struct ddp_error *error)
{
	struct device_graph *graph = NULL;
	float time = 0;
	int status = try_plan(trial, 1, NULL, error);

	if (status == 0)
		status = try_plan(trial, RUNS, &graph, error);
	*best = 0;
	for (int round = 0; round <= ROUNDS && status == 0; round++) {
		status = time_launch(trial, graph, &time, error);
		*best = round <= 1 || time < *best ? time : *best;
	}
	device_graph_destroy(graph);
	return status;
}

/* --- Choice of a plan ----------------------------------------------------------------------- */

/*
 * Returns the index of the fastest candidate or, with --deterministic, of the first candidate that
 * runs. Ignores candidates that cannot run or cannot be captured. If all candidates fail, returns
 * the last error.
 */
static int find_fastest(struct trial *trial, struct ddp_error *error)
{
	const struct conv_plan *plan = trial->plan;
	float least = 0, best;
	int chosen = -1, status = 0;

	for (int i = 0; i < plan->count; i++) {
		trial->index = i;
		status = time_plan(trial, &best, error);
		if (status < 0 || (chosen >= 0 && best >= least))
			continue;
		chosen = i;
		least = best;
		if (plan->options.deterministic)
			break;
	}
	if (chosen < 0)
		return status;
	ddp_error_clear(error);
	return chosen;
}

/* Chooses one of the candidates and destroys the others. */
static int choose(const struct layers *layers, struct conv_plan *plan, struct ddp_error *error)
{
	struct trial trial = {.layers = layers, .plan = plan};
	int status = open_trial(&trial, error);

	if (status == 0)
		status = find_fastest(&trial, error);
	close_trial(&trial);
	if (status < 0)
		return status;
	conv_plan_keep(plan, status);
	return 0;
}

/*
 * Builds the plan of proposal [number]. If [number] is LAYER_CHOOSE, builds and times plans of the
 * first proposals and keeps the fastest.
 */
static int make_plan(struct layers *layers, const struct conv_problem *problem, int32_t number,
		     struct conv_plan **result, struct ddp_error *error)
{
	const struct conv_gpu gpu = {.handle = layers->cudnn};
	bool known = number != LAYER_CHOOSE;
	char why[CONV_WHY], title[256], said[CONV_WHY + 64];
	struct conv_plan *plan =
		conv_plan_create(problem, &gpu, known ? number : 0, known ? 1 : CONV_TRIES, why);
	int status = 0;

	if (!plan) {
		conv_title(problem, title, sizeof(title));
		snprintf(said, sizeof(said), "%s has no plan: %s", layers_describe(), why);
		return failed(layers, DDP_ERR_UNSUPPORTED, title, said, error);
	}
	if (!known)
		status = choose(layers, plan, error);
	if (status < 0) {
		conv_plan_destroy(plan);
		return status;
	}
	if (plan->list[0].slow && !*layers->slow)
		conv_title(problem, layers->slow, sizeof(layers->slow));
	plan->next = layers->plans;
	layers->plans = plan;
	*result = plan;
	return 0;
}

static int find_plan(struct layer *layer, enum layer_pass pass, size_t memory, int32_t *number,
		     struct ddp_error *error)
{
	struct conv_problem problem = conv_problem(&layer->options, pass, memory);
	struct conv_plan *plan = layer->layers->plans;
	int status = 0;

	while (plan && !conv_is_same(&plan->problem, &problem))
		plan = plan->next;
	if (!plan)
		status = make_plan(layer->layers, &problem, *number, &plan, error);
	if (status < 0)
		return status;
	layer->plans[pass] = plan;
	*number = plan->list[0].number;
	return 0;
}

/* --- Dense layers --------------------------------------------------------------------------- */

/* Bytes. Parameters are aligned to 64 bytes in f32, so their 16-bit copies are aligned to 32. */
enum { ALIGNMENT = 32 };

/* cublasLt's recommended maximum for recent GPUs. */
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

static cublasStatus_t init_layout(cublasLtMatrixLayoutOpaque_t *layout, enum ddp_type type,
				  size_t rows, size_t columns, bool turned)
{
	cudaDataType_t of = type == DDP_BF16  ? CUDA_R_16BF
			    : type == DDP_F16 ? CUDA_R_16F
					      : CUDA_R_32F;

	return cublasLtMatrixLayoutInit(layout, of, turned ? columns : rows,
					turned ? rows : columns,
					(int64_t)(turned ? columns : rows));
}

/*
 * Selects the first algorithm that the heuristics suggest for [epilogue]. Partial sums must be
 * added in f32, not in the output's type, and in a fixed order, not in order of completion.
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
 * cublasLt uses column-major order, so it sees our row-major matrices transposed. In its terms the
 * products are y' = W x', dx' = W' dy', dW' = x' dy. Gradients of weights are f32.
 */
static cublasStatus_t make_product(struct product *product, const struct layer_options *options,
				   enum layer_pass pass, cublasLtHandle_t handle)
{
	/* The heuristics use the alignment of the bias pointer, but do not read the bias. */
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
	TRY(init_layout(&product->a, type, rows, inner, forward));
	TRY(init_layout(&product->b, type, inner, columns, weights));
	TRY(init_layout(&product->d, weights ? DDP_F32 : type, rows, columns, false));
	if (forward)
		return suggest(product, handle, epilogue_of(options));
	/*
	 * The epilogue BGRADB also sums over dy (operand B). It is not supported for all types and
	 * shapes.
	 */
	if (weights && options->bias)
		product->sums =
			suggest(product, handle, CUBLASLT_EPILOGUE_BGRADB) == CUBLAS_STATUS_SUCCESS;
	return product->sums ? CUBLAS_STATUS_SUCCESS
			     : suggest(product, handle, CUBLASLT_EPILOGUE_DEFAULT);
}

/*
 * Runs a product. Operands [a] and [b] are weights and x (forward pass), weights and dy (gradient
 * of x), or x and dy (gradient of the weights).
 */
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
		 size_t memory, int32_t chosen[LAYER_PASSES], struct ddp_error *error)
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
			status = find_plan(layer, pass, memory, &chosen[pass], error);
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
	free(layer);
}

size_t layer_scratch(const struct layer *layer)
{
	size_t most = 0;

	for (int pass = 0; pass < LAYER_PASSES; pass++) {
		const struct conv_plan *plan = layer->plans[pass];
		size_t bytes = plan ? plan->list[0].workspace : layer->products[pass].workspace;

		most = bytes > most ? bytes : most;
	}
	return most;
}

/* Runs one pass. One of x, weights, bias and y is the output, so the casts remove const. */
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

	if (!layer->options.dense) {
		const struct conv_problem problem = conv_problem(&layer->options, pass, 0);

		return run_plan(layers, &problem, layer->plans[pass], 0, tensors, scratch, error);
	}
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

	/*
	 * For some shapes, cuDNN has no graph with a ReLU and no bias. A kernel computes that ReLU.
	 */
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
