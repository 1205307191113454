/* SPDX-License-Identifier: Apache-2.0 */
/* dnnl.c - descriptors for oneDNN 2 and 3 */
#include "config.h"

#include <stddef.h>
#include <string.h>

#include "dnnl.h"

/* --- Memory descriptors: a struct in version 2, an object in version 3 ------------------- */

#if DNNL_VERSION_MAJOR >= 3
dnnl_status_t descriptor_make(struct descriptor *descriptor, const struct form *form)
{
	if (form->dimensions == 0)
		return dnnl_success;
	return dnnl_memory_desc_create_with_tag(&descriptor->it, form->dimensions, form->sizes,
						form->type, form->tag);
}

descriptor_t descriptor_of(const struct descriptor *descriptor)
{
	return descriptor->it;
}

void descriptor_free(struct descriptor *descriptor)
{
	if (descriptor->it)
		dnnl_memory_desc_destroy(descriptor->it);
}
#else
dnnl_status_t descriptor_make(struct descriptor *descriptor, const struct form *form)
{
	if (form->dimensions == 0)
		return dnnl_success;
	return dnnl_memory_desc_init_by_tag(&descriptor->it, form->dimensions, form->sizes,
					    form->type, form->tag);
}

descriptor_t descriptor_of(const struct descriptor *descriptor)
{
	return descriptor->it.ndims ? &descriptor->it : NULL;
}

void descriptor_free(struct descriptor *descriptor)
{
	(void)descriptor;
}
#endif

/* --- Primitive descriptors: two steps in version 2, one in version 3 ----------------------- */

const char *implementation_name(const_dnnl_primitive_desc_t descriptor)
{
	const char *name = "";

	(void)dnnl_primitive_desc_query(descriptor, dnnl_query_impl_info_str, 0, (void *)&name);
	return name;
}

static bool skipped(const_dnnl_primitive_desc_t descriptor, const char *skip)
{
	return skip && strcmp(implementation_name(descriptor), skip) == 0;
}

#if DNNL_VERSION_MAJOR >= 3
static const dnnl_dims_t no_dilation = {0, 0};

static dnnl_status_t ask_convolution(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
				     const struct request *r, dnnl_primitive_attr_t attributes)
{
	switch (r->pass) {
	case MATH_BACK_DATA:
		return dnnl_convolution_backward_data_primitive_desc_create(
			result, engine, r->algorithm, r->x, r->weights, r->y, r->stride,
			no_dilation, r->pad, r->pad, r->hint, attributes);
	case MATH_BACK_WEIGHTS:
		return dnnl_convolution_backward_weights_primitive_desc_create(
			result, engine, r->algorithm, r->x, r->weights, r->bias, r->y, r->stride,
			no_dilation, r->pad, r->pad, r->hint, attributes);
	default:
		return dnnl_convolution_forward_primitive_desc_create(
			result, engine, dnnl_forward_training, r->algorithm, r->x, r->weights,
			r->bias, r->y, r->stride, no_dilation, r->pad, r->pad, attributes);
	}
}

static dnnl_status_t ask_dense(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
			       const struct request *r, dnnl_primitive_attr_t attributes)
{
	switch (r->pass) {
	case MATH_BACK_DATA:
		return dnnl_inner_product_backward_data_primitive_desc_create(
			result, engine, r->x, r->weights, r->y, r->hint, attributes);
	case MATH_BACK_WEIGHTS:
		return dnnl_inner_product_backward_weights_primitive_desc_create(
			result, engine, r->x, r->weights, r->bias, r->y, r->hint, attributes);
	default:
		return dnnl_inner_product_forward_primitive_desc_create(result, engine,
									dnnl_forward_training, r->x,
									r->weights, r->bias, r->y,
									attributes);
	}
}

static dnnl_status_t append_relu(dnnl_post_ops_t operations)
{
	return dnnl_post_ops_append_eltwise(operations, dnnl_eltwise_relu, 0.0f, 0.0f);
}

static dnnl_status_t skip_implementation(dnnl_primitive_desc_t *result, const char *skip)
{
	dnnl_status_t status = dnnl_success;

	while (status == dnnl_success && skipped(*result, skip))
		status = dnnl_primitive_desc_next_impl(*result);
	if (status == dnnl_success)
		return status;
	dnnl_primitive_desc_destroy(*result);
	*result = NULL;
	return status == dnnl_last_impl_reached ? dnnl_unimplemented : status;
}
#else
/*
 * Selects the first implementation whose name is not r->skip. Implementations are compared by name
 * and not by number, because the iterator of oneDNN 2.6 returns the implementations in oneDNN's
 * primitive cache twice.
 */
static dnnl_status_t pick(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
			  const_dnnl_op_desc_t operation, const struct request *r,
			  dnnl_primitive_attr_t attributes)
{
	dnnl_primitive_desc_iterator_t iterator;
	dnnl_status_t status = dnnl_primitive_desc_iterator_create(&iterator, operation, attributes,
								   engine, r->hint);

	if (status != dnnl_success)
		return status;
	while (status == dnnl_success) {
		*result = dnnl_primitive_desc_iterator_fetch(iterator);
		if (!*result)
			status = dnnl_out_of_memory;
		if (!*result || !skipped(*result, r->skip))
			break;
		dnnl_primitive_desc_destroy(*result);
		*result = NULL;
		status = dnnl_primitive_desc_iterator_next(iterator);
	}
	dnnl_primitive_desc_iterator_destroy(iterator);
	return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}

static dnnl_status_t ask_convolution(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
				     const struct request *r, dnnl_primitive_attr_t attributes)
{
	dnnl_convolution_desc_t operation;
	dnnl_status_t status;

	switch (r->pass) {
	case MATH_BACK_DATA:
		status = dnnl_convolution_backward_data_desc_init(&operation, r->algorithm, r->x,
								  r->weights, r->y, r->stride,
								  r->pad, r->pad);
		break;
	case MATH_BACK_WEIGHTS:
		status = dnnl_convolution_backward_weights_desc_init(&operation, r->algorithm, r->x,
								     r->weights, r->bias, r->y,
								     r->stride, r->pad, r->pad);
		break;
	default:
		status = dnnl_convolution_forward_desc_init(&operation, dnnl_forward_training,
							    r->algorithm, r->x, r->weights, r->bias,
							    r->y, r->stride, r->pad, r->pad);
		break;
	}
	return status == dnnl_success ? pick(result, engine, &operation, r, attributes) : status;
}

static dnnl_status_t ask_dense(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
			       const struct request *r, dnnl_primitive_attr_t attributes)
{
	dnnl_inner_product_desc_t operation;
	dnnl_status_t status;

	switch (r->pass) {
	case MATH_BACK_DATA:
		status = dnnl_inner_product_backward_data_desc_init(&operation, r->x, r->weights,
								    r->y);
		break;
	case MATH_BACK_WEIGHTS:
		status = dnnl_inner_product_backward_weights_desc_init(&operation, r->x, r->weights,
								       r->bias, r->y);
		break;
	default:
		status = dnnl_inner_product_forward_desc_init(&operation, dnnl_forward_training,
							      r->x, r->weights, r->bias, r->y);
		break;
	}
	return status == dnnl_success ? pick(result, engine, &operation, r, attributes) : status;
}

static dnnl_status_t append_relu(dnnl_post_ops_t operations)
{
	return dnnl_post_ops_append_eltwise(operations, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
}

/* Does nothing in version 2, where pick() has already skipped the implementation. */
static dnnl_status_t skip_implementation(dnnl_primitive_desc_t *result, const char *skip)
{
	(void)result;
	(void)skip;
	return dnnl_success;
}
#endif

/* Sets that the caller provides the scratchpad and, with [relu], that a ReLU follows. */
static dnnl_status_t attributes_make(dnnl_primitive_attr_t *attributes, bool relu)
{
	dnnl_post_ops_t operations = NULL;
	dnnl_status_t status = dnnl_primitive_attr_create(attributes);

	if (status == dnnl_success)
		status = dnnl_primitive_attr_set_scratchpad_mode(*attributes,
								 dnnl_scratchpad_mode_user);
	if (status != dnnl_success || !relu)
		return status;
	status = dnnl_post_ops_create(&operations);
	if (status == dnnl_success)
		status = append_relu(operations);
	if (status == dnnl_success)
		status = dnnl_primitive_attr_set_post_ops(*attributes, operations);
	if (operations)
		dnnl_post_ops_destroy(operations);
	return status;
}

dnnl_status_t request_ask(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
			  const struct request *request)
{
	dnnl_primitive_attr_t attributes = NULL;
	dnnl_status_t status = attributes_make(&attributes, request->relu);

	if (status == dnnl_success)
		status = request->dense ? ask_dense(result, engine, request, attributes)
					: ask_convolution(result, engine, request, attributes);
	if (attributes)
		dnnl_primitive_attr_destroy(attributes);
	return status == dnnl_success ? skip_implementation(result, request->skip) : status;
}
