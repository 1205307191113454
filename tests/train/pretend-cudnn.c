/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "pretend-private.h"
#include "pretend.h"

/* Plans in the order in which they ran first. */
enum { PLANS = 64 };
static cudnnBackendDescriptor_t plans[PLANS];
static int plan_count, last_plan, launched_plan;
static uint64_t timed_plans;

cudnnStatus_t __wrap_cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
					 cudnnBackendDescriptor_t pack);
cudnnStatus_t __wrap_cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t __wrap_cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t __wrap_cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudaError_t __wrap_cudaEventCreate(cudaEvent_t *event);
cudaError_t __wrap_cudaEventDestroy(cudaEvent_t event);
cudaError_t __wrap_cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t __wrap_cudaEventElapsedTime(float *time, cudaEvent_t begin, cudaEvent_t end);

static int number_of(cudnnBackendDescriptor_t plan)
{
	int number = 0;

	while (number < plan_count && plans[number] != plan)
		number++;
	if (number == plan_count && plan_count++ == PLANS)
		abort();
	plans[number] = plan;
	return number;
}

void pretend_forget(cudnnBackendDescriptor_t plan)
{
	for (int i = 0; i < plan_count; i++)
		if (plans[i] == plan)
			plans[i] = NULL;
}

int pretend_last_plan(void)
{
	return last_plan;
}

void pretend_launched(int plan)
{
	launched_plan = plan;
}

void pretend_restart(void)
{
	plan_count = 0;
	timed_plans = 0;
	pretend.timed = pretend.runs = 0;
}

cudnnStatus_t __wrap_cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
					 cudnnBackendDescriptor_t pack)
{
	cudnnBackendDescriptor_t config =
		pretend_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
	cudnnBackendDescriptor_t engine = pretend_part(config, CUDNN_ATTR_ENGINECFG_ENGINE);
	const struct pretend_record *operations =
		pretend_must_find(pretend_part(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH),
				  CUDNN_ATTR_OPERATIONGRAPH_OPS);
	const struct pretend_record *pointers =
		pretend_must_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
	int64_t count = 0, bytes = 0;

	last_plan = number_of(plan);
	pretend.runs++;
	for (int64_t i = 0; i < pointers->count; i++)
		if (pointers->values[i].pointer ==
		    pretend_part(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE))
			return CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES;
	if (!handle)
		return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
	if (last_plan < pretend.broken)
		return CUDNN_STATUS_EXECUTION_FAILED;
	if (pretend_is_capturing())
		return last_plan < pretend.uncapturable ? CUDNN_STATUS_NOT_SUPPORTED
							: CUDNN_STATUS_SUCCESS;
	if (pretend.idle)
		return CUDNN_STATUS_SUCCESS;
	cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
				 1, &count, &bytes);
	if (bytes > 0)
		memset(pretend_part(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE), 0xff, (size_t)bytes);
	pretend_compute(operations, pack);
	return CUDNN_STATUS_SUCCESS;
}

/* --- Handles and events --------------------------------------------------------------------- */

static int anything;

cudnnStatus_t __wrap_cudnnCreate(cudnnHandle_t *handle)
{
	*handle = (cudnnHandle_t)(void *)&anything;
	pretend.handles++;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t __wrap_cudnnDestroy(cudnnHandle_t handle)
{
	(void)handle;
	pretend.handles--;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t __wrap_cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
	(void)handle;
	(void)stream;
	return CUDNN_STATUS_SUCCESS;
}

cudaError_t __wrap_cudaEventCreate(cudaEvent_t *event)
{
	*event = (cudaEvent_t)(void *)&anything;
	pretend.handles++;
	return cudaSuccess;
}

cudaError_t __wrap_cudaEventDestroy(cudaEvent_t event)
{
	(void)event;
	pretend.handles--;
	return cudaSuccess;
}

cudaError_t __wrap_cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	(void)event;
	(void)stream;
	return cudaSuccess;
}

cudaError_t __wrap_cudaEventElapsedTime(float *time, cudaEvent_t begin, cudaEvent_t end)
{
	(void)begin;
	(void)end;
	*time = launched_plan < 16 && pretend.times[launched_plan] > 0
			? pretend.times[launched_plan]
			: 1;
	if (!(timed_plans >> launched_plan & 1))
		pretend.timed++;
	timed_plans |= (uint64_t)1 << launched_plan;
	return cudaSuccess;
}
