/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "pretend-gpu.h"
#include "pretend-private.h"
#include "pretend.h"

/* Attributes as they were set, of the descriptors that are alive. */
enum { RECORDS = 4096 };
static struct pretend_record records[RECORDS];
static int record_count;

static cudnnBackendDescriptor_t properties;

cudnnStatus_t __real_cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
						  cudnnBackendDescriptor_t *descriptor);
cudnnStatus_t __wrap_cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
						  cudnnBackendDescriptor_t *descriptor);
cudnnStatus_t __real_cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t __wrap_cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t __real_cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
					      cudnnBackendAttributeName_t name,
					      cudnnBackendAttributeType_t type, int64_t count,
					      const void *values);
cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
					      cudnnBackendAttributeName_t name,
					      cudnnBackendAttributeType_t type, int64_t count,
					      const void *values);
cudnnStatus_t __real_cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t __wrap_cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor);

const struct pretend_record *pretend_find(cudnnBackendDescriptor_t descriptor,
					  cudnnBackendAttributeName_t name)
{
	for (int i = 0; i < record_count; i++)
		if (records[i].descriptor == descriptor && records[i].name == name)
			return &records[i];
	return NULL;
}

const struct pretend_record *pretend_must_find(cudnnBackendDescriptor_t descriptor,
					       cudnnBackendAttributeName_t name)
{
	const struct pretend_record *record = pretend_find(descriptor, name);

	if (!record)
		abort();
	return record;
}

cudnnBackendDescriptor_t pretend_part(cudnnBackendDescriptor_t descriptor,
				      cudnnBackendAttributeName_t name)
{
	return pretend_must_find(descriptor, name)->values[0].pointer;
}

cudnnStatus_t __wrap_cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
						  cudnnBackendDescriptor_t *descriptor)
{
	cudnnStatus_t status = __real_cudnnBackendCreateDescriptor(type, descriptor);

	if (status == CUDNN_STATUS_SUCCESS)
		pretend.descriptors++;
	return status;
}

cudnnStatus_t __wrap_cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
	int kept = 0;

	for (int i = 0; i < record_count; i++)
		if (records[i].descriptor != descriptor)
			records[kept++] = records[i];
	record_count = kept;
	pretend_forget(descriptor);
	pretend.descriptors--;
	return __real_cudnnBackendDestroyDescriptor(descriptor);
}

static size_t size_of(cudnnBackendAttributeType_t type)
{
	switch (type) {
	case CUDNN_TYPE_INT64:
	case CUDNN_TYPE_DOUBLE:
	case CUDNN_TYPE_VOID_PTR:
	case CUDNN_TYPE_BACKEND_DESCRIPTOR:
		return 8;
	case CUDNN_TYPE_BOOLEAN:
	case CUDNN_TYPE_CHAR:
		return 1;
	default:
		return 4;
	}
}

cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
					      cudnnBackendAttributeName_t name,
					      cudnnBackendAttributeType_t type, int64_t count,
					      const void *values)
{
	struct pretend_record *record = &records[record_count];

	if (count <= PRETEND_VALUES) {
		if (record_count++ == RECORDS)
			abort();
		*record = (struct pretend_record){
			.descriptor = descriptor, .name = name, .count = count};
		for (int64_t i = 0; i < count; i++)
			memcpy(&record->values[i], (const char *)values + (size_t)i * size_of(type),
			       size_of(type));
	}
	/* Not the real one's. */
	if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
		return CUDNN_STATUS_SUCCESS;
	return __real_cudnnBackendSetAttribute(descriptor, name, type, count, values);
}

/*
 * Heuristics and engines learn of the GPU here, which else is that of the graph's handle: cuDNN does not
 * ask for the calling thread's.
 */
cudnnStatus_t __wrap_cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
	cudnnBackendAttributeName_t name = CUDNN_ATTR_ENGINEHEUR_DEVICEPROP;
	cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

	if (pretend_find(descriptor, CUDNN_ATTR_OPERATIONGRAPH_OPS) &&
	    !pretend_find(descriptor, CUDNN_ATTR_OPERATIONGRAPH_HANDLE))
		return CUDNN_STATUS_NOT_INITIALIZED;
	if (pretend_find(descriptor, CUDNN_ATTR_ENGINE_GLOBAL_INDEX))
		name = CUDNN_ATTR_ENGINE_DEVICEPROP;
	else if (!pretend_find(descriptor, CUDNN_ATTR_ENGINEHEUR_MODE))
		return __real_cudnnBackendFinalize(descriptor);
	status = __real_cudnnBackendSetAttribute(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
						 &properties);
	return status == CUDNN_STATUS_SUCCESS ? __real_cudnnBackendFinalize(descriptor) : status;
}

bool pretend_begin(void)
{
	cudnnStatus_t status;

	__real_cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties);
	__real_cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
					CUDNN_TYPE_CHAR, (int64_t)strlen(pretend_gpu), pretend_gpu);
	status = __real_cudnnBackendFinalize(properties);
	if (status == CUDNN_STATUS_SUCCESS)
		pretend_load_engines(&(struct conv_limits){
			.handle = (cudnnHandle_t)(void *)&properties, .workspace = 1 << 20});
	return status == CUDNN_STATUS_SUCCESS;
}

void pretend_end(void)
{
	__real_cudnnBackendDestroyDescriptor(properties);
}
