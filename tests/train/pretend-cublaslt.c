/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "pretend.h"

enum { WORKSPACE = 1000 };

cublasStatus_t __wrap_cublasLtCreate(cublasLtHandle_t *handle);
cublasStatus_t __wrap_cublasLtDestroy(cublasLtHandle_t handle);
cublasStatus_t __wrap_cublasLtMatmulAlgoGetHeuristic(
	cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
	cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
	cublasLtMatmulPreference_t preference, int room, cublasLtMatmulHeuristicResult_t results[],
	int *count);
cublasStatus_t __wrap_cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
				     const void *alpha, const void *a,
				     cublasLtMatrixLayout_t a_form, const void *b,
				     cublasLtMatrixLayout_t b_form, const void *beta, const void *c,
				     cublasLtMatrixLayout_t c_form, void *d,
				     cublasLtMatrixLayout_t d_form,
				     const cublasLtMatmulAlgo_t *algorithm, void *workspace,
				     size_t workspace_size, cudaStream_t stream);

static int anything;

cublasStatus_t __wrap_cublasLtCreate(cublasLtHandle_t *handle)
{
	*handle = (cublasLtHandle_t)(void *)&anything;
	pretend.handles++;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t __wrap_cublasLtDestroy(cublasLtHandle_t handle)
{
	(void)handle;
	pretend.handles--;
	return CUBLAS_STATUS_SUCCESS;
}

static int32_t word(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t name)
{
	int32_t value = 0;

	cublasLtMatmulDescGetAttribute(description, name, &value, sizeof(value), NULL);
	return value;
}

cublasStatus_t __wrap_cublasLtMatmulAlgoGetHeuristic(
	cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
	cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
	cublasLtMatmulPreference_t preference, int room, cublasLtMatmulHeuristicResult_t results[],
	int *count)
{
	int32_t epilogue = word(description, CUBLASLT_MATMUL_DESC_EPILOGUE);
	uint64_t most = 0;

	if (!handle || !a || !b || !c || !d || room < 1)
		return CUBLAS_STATUS_INVALID_VALUE;
	cublasLtMatmulPreferenceGetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
					     &most, sizeof(most), NULL);
	*count = pretend.no_epilogues && epilogue != CUBLASLT_EPILOGUE_DEFAULT ? 0 : 1;
	memset(results, 0, sizeof(*results));
	results[0].workspaceSize = WORKSPACE < most ? WORKSPACE : (size_t)most;
	results[0].state = CUBLAS_STATUS_SUCCESS;
	return CUBLAS_STATUS_SUCCESS;
}

/* Columns first, as cublasLt says. */
struct matrix {
	enum ddp_type type;
	uint64_t rows, columns;
	int64_t stride;
};

static struct matrix matrix_of(cublasLtMatrixLayout_t layout)
{
	struct matrix it = {DDP_F32, 0, 0, 0};
	uint32_t type = 0;

	cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof(type),
					 NULL);
	cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &it.rows,
					 sizeof(it.rows), NULL);
	cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &it.columns,
					 sizeof(it.columns), NULL);
	cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_LD, &it.stride,
					 sizeof(it.stride), NULL);
	it.type = type == CUDA_R_16BF ? DDP_BF16 : type == CUDA_R_16F ? DDP_F16 : DDP_F32;
	if (it.stride < (int64_t)it.rows)
		abort();
	return it;
}

/* Of the matrix as it is multiplied. */
static double get(const void *array, const struct matrix *matrix, bool turned, uint64_t row,
		  uint64_t column)
{
	uint64_t r = turned ? column : row, c = turned ? row : column;

	if (r >= matrix->rows || c >= matrix->columns)
		abort();
	return pretend_load(array, r + c * (uint64_t)matrix->stride, matrix->type);
}

cublasStatus_t __wrap_cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
				     const void *alpha, const void *a,
				     cublasLtMatrixLayout_t a_form, const void *b,
				     cublasLtMatrixLayout_t b_form, const void *beta, const void *c,
				     cublasLtMatrixLayout_t c_form, void *d,
				     cublasLtMatrixLayout_t d_form,
				     const cublasLtMatmulAlgo_t *algorithm, void *workspace,
				     size_t workspace_size, cudaStream_t stream)
{
	struct matrix of_a = matrix_of(a_form), of_b = matrix_of(b_form), of_d = matrix_of(d_form);
	bool turn_a = word(description, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
	bool turn_b = word(description, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
	int32_t epilogue = word(description, CUBLASLT_MATMUL_DESC_EPILOGUE);
	uint64_t inner = turn_a ? of_a.rows : of_a.columns;
	const void *bias = NULL;

	(void)stream;
	if (!handle || !algorithm || c != d || c_form != d_form || workspace_size != WORKSPACE ||
	    *(const float *)alpha < 1 || *(const float *)alpha > 1 || *(const float *)beta < 0 ||
	    *(const float *)beta > 0)
		return CUBLAS_STATUS_INVALID_VALUE;
	memset(workspace, 0xff, workspace_size);
	cublasLtMatmulDescGetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
				       sizeof(bias), NULL);
	pretend.plain += epilogue == CUBLASLT_EPILOGUE_DEFAULT;
	for (uint64_t column = 0; column < of_d.columns; column++)
		for (uint64_t row = 0; row < of_d.rows; row++) {
			double sum = 0;

			for (uint64_t i = 0; i < inner; i++)
				sum += get(a, &of_a, turn_a, row, i) *
				       get(b, &of_b, turn_b, i, column);
			if (epilogue & CUBLASLT_EPILOGUE_BIAS)
				sum += pretend_load(bias, row, of_d.type);
			if ((epilogue & CUBLASLT_EPILOGUE_RELU) && sum < 0)
				sum = 0;
			pretend_store(d, row + column * (uint64_t)of_d.stride, of_d.type, sum);
		}
	return CUBLAS_STATUS_SUCCESS;
}
