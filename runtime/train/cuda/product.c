/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdint.h>
#include <string.h>

#include "product.h"

/* Views of arenas lie at multiples of 64 bytes in f32, so of 32 in half of that. */
enum { ALIGNMENT = 32 };

/* What cublasLt is said to want at most on recent GPUs. */
static const size_t most_workspace = (size_t)32 << 20;

static cudaDataType_t data_type(enum ddp_type type)
{
	switch (type) {
	case DDP_BF16:
		return CUDA_R_16BF;
	case DDP_F16:
		return CUDA_R_16F;
	default:
		return CUDA_R_32F;
	}
}

/* B is dy where weights' gradients are made. */
static cublasLtEpilogue_t epilogue(const struct product *product,
				   const struct layer_options *options, bool forward)
{
	if (!forward)
		return product->sums ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_DEFAULT;
	if (options->bias)
		return options->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
	return options->relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

static cublasStatus_t set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t name,
			  int32_t value)
{
	return cublasLtMatmulDescSetAttribute(description, name, &value, sizeof(value));
}

static cublasStatus_t set_bias(cublasLtMatmulDesc_t description, const void *bias)
{
	return cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
					      sizeof(bias));
}

static cublasStatus_t lay_out(cublasLtMatrixLayout_t *layout, enum ddp_type type, size_t rows,
			      size_t columns, bool turned)
{
	return cublasLtMatrixLayoutCreate(layout, data_type(type), turned ? columns : rows,
					  turned ? rows : columns,
					  (int64_t)(turned ? columns : rows));
}

/*
 * Partial sums are added up in f32, and in one order: not in the output's type, and not in place in
 * the order in which they are ready.
 */
static cublasStatus_t prefer(cublasLtMatmulPreference_t preference)
{
	const uint32_t schemes =
		CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	const uint32_t alignment = ALIGNMENT;
	const cublasLtMatmulPreferenceAttributes_t matrices[] = {
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
	cublasStatus_t status =
		cublasLtMatmulPreferenceSetAttribute(preference,
						     CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
						     &most_workspace, sizeof(most_workspace));

	if (status == CUBLAS_STATUS_SUCCESS)
		status = cublasLtMatmulPreferenceSetAttribute(
			preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
			sizeof(schemes));
	for (size_t i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
		status = cublasLtMatmulPreferenceSetAttribute(preference, matrices[i], &alignment,
							      sizeof(alignment));
	return status;
}

static cublasStatus_t choose(struct product *product, cublasLtHandle_t handle)
{
	cublasLtMatmulPreference_t preference = NULL;
	cublasLtMatmulHeuristicResult_t result;
	cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
	int count = 0;

	if (status == CUBLAS_STATUS_SUCCESS)
		status = prefer(preference);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = cublasLtMatmulAlgoGetHeuristic(handle, product->description, product->a,
							product->b, product->d, product->d,
							preference, 1, &result, &count);
	if (preference)
		cublasLtMatmulPreferenceDestroy(preference);
	if (status != CUBLAS_STATUS_SUCCESS)
		return status;
	if (count == 0)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	product->algorithm = result.algo;
	product->workspace = result.workspaceSize;
	return result.state;
}

/*
 * y' = W x', dx' = W' dy', dW' = x' dy: primes as cublasLt sees what lies row by row. Gradients of weights are f32.
 */
cublasStatus_t product_make(struct product *product, const struct layer_options *options,
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
	cublasStatus_t status =
		cublasLtMatmulDescCreate(&product->description,
					 tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
					 CUDA_R_32F);

	if (status == CUBLAS_STATUS_SUCCESS)
		status = set(product->description, CUBLASLT_MATMUL_DESC_TRANSA,
			     forward ? CUBLAS_OP_T : CUBLAS_OP_N);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = set(product->description, CUBLASLT_MATMUL_DESC_TRANSB,
			     weights ? CUBLAS_OP_T : CUBLAS_OP_N);
	product->sums = weights && options->bias;
	if (status == CUBLAS_STATUS_SUCCESS)
		status = set(product->description, CUBLASLT_MATMUL_DESC_EPILOGUE,
			     (int32_t)epilogue(product, options, forward));
	if (status == CUBLAS_STATUS_SUCCESS && (forward || weights) && options->bias)
		status = set_bias(product->description, bias);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = lay_out(&product->a, type, rows, inner, forward);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = lay_out(&product->b, type, inner, columns, weights);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = lay_out(&product->d, weights ? DDP_F32 : type, rows, columns, false);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = choose(product, handle);
	if (status == CUBLAS_STATUS_SUCCESS || !product->sums)
		return status;
	/* Not for all types and shapes: then without. */
	product->sums = false;
	status = set(product->description, CUBLASLT_MATMUL_DESC_EPILOGUE,
		     (int32_t)epilogue(product, options, forward));
	return status == CUBLAS_STATUS_SUCCESS ? choose(product, handle) : status;
}

void product_free(struct product *product)
{
	if (product->d)
		cublasLtMatrixLayoutDestroy(product->d);
	if (product->b)
		cublasLtMatrixLayoutDestroy(product->b);
	if (product->a)
		cublasLtMatrixLayoutDestroy(product->a);
	if (product->description)
		cublasLtMatmulDescDestroy(product->description);
	memset(product, 0, sizeof(*product));
}

cublasStatus_t product_run(const struct product *product, cublasLtHandle_t handle, void *stream,
			   const void *a, const void *b, const void *bias, void *d, void *workspace)
{
	const float one = 1, zero = 0;
	cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

	if (bias)
		status = set_bias(product->description, bias);
	if (status != CUBLAS_STATUS_SUCCESS)
		return status;
	return cublasLtMatmul(handle, product->description, &one, a, product->a, b, product->b,
			      &zero, d, product->d, d, product->d, &product->algorithm, workspace,
			      product->workspace, stream);
}
