/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "conv-cudnn.h"

static void fail(struct parts *parts, cudnnStatus_t status, const char *what)
{
	char said[256] = "";

	cudnnGetLastErrorString(said, sizeof(said));
	parts->status = status;
	snprintf(parts->text, sizeof(parts->text), "%s: %s%s%s", what, cudnnGetErrorString(status),
		 *said ? ": " : "", said);
}

cudnnBackendDescriptor_t parts_add(struct parts *parts, cudnnBackendDescriptorType_t type)
{
	cudnnBackendDescriptor_t *place = &parts->list[parts->count];
	cudnnStatus_t status;

	if (parts->status != CUDNN_STATUS_SUCCESS)
		return NULL;
	status = parts->count < PARTS ? cudnnBackendCreateDescriptor(type, place)
				      : CUDNN_STATUS_INTERNAL_ERROR;
	if (status != CUDNN_STATUS_SUCCESS) {
		fail(parts, status, "descriptor");
		return NULL;
	}
	parts->count++;
	return *place;
}

void parts_set(struct parts *parts, cudnnBackendDescriptor_t descriptor,
	       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
	       const void *values)
{
	cudnnStatus_t status;
	char what[64];

	if (parts->status != CUDNN_STATUS_SUCCESS)
		return;
	status = cudnnBackendSetAttribute(descriptor, name, type, count, values);
	if (status == CUDNN_STATUS_SUCCESS)
		return;
	snprintf(what, sizeof(what), "setting attribute %d", (int)name);
	fail(parts, status, what);
}

void parts_finish(struct parts *parts, cudnnBackendDescriptor_t descriptor, const char *what)
{
	cudnnStatus_t status;

	if (parts->status != CUDNN_STATUS_SUCCESS)
		return;
	status = cudnnBackendFinalize(descriptor);
	if (status != CUDNN_STATUS_SUCCESS)
		fail(parts, status, what);
}

int64_t parts_get(struct parts *parts, cudnnBackendDescriptor_t descriptor,
		  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
		  void *values)
{
	cudnnStatus_t status;
	int64_t count = 0;
	char what[64];

	if (parts->status != CUDNN_STATUS_SUCCESS)
		return 0;
	status = cudnnBackendGetAttribute(descriptor, name, type, room, &count, values);
	if (status == CUDNN_STATUS_SUCCESS)
		return count < room ? count : room;
	snprintf(what, sizeof(what), "asking for attribute %d", (int)name);
	fail(parts, status, what);
	return 0;
}

void parts_empty(struct parts *parts)
{
	while (parts->count > 0)
		cudnnBackendDestroyDescriptor(parts->list[--parts->count]);
	memset(parts, 0, sizeof(*parts));
}

void parts_set_part(struct parts *parts, cudnnBackendDescriptor_t descriptor,
		    cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
	parts_set(parts, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void parts_set_number(struct parts *parts, cudnnBackendDescriptor_t descriptor,
		      cudnnBackendAttributeName_t name, int64_t value)
{
	parts_set(parts, descriptor, name, CUDNN_TYPE_INT64, 1, &value);
}
