/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dnnl.h - common interface to oneDNN 2 and 3
 *
 * The directory onednn/ is the module ddp_onednn.so, which implements struct math of cpu/math.h. It
 * calls base/ and oneDNN. Start reading in onednn.c, then primitive.h.
 *
 * Memory descriptors are structs in version 2 and objects in version 3. Primitive descriptors are
 * created in two steps in version 2 and in one step in version 3. Only dnnl.h and dnnl.c depend on
 * the version.
 */
#ifndef TRAIN_ONEDNN_DNNL_H
#define TRAIN_ONEDNN_DNNL_H

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include "cpu/math.h"

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t descriptor_t;
#else
typedef const dnnl_memory_desc_t *descriptor_t;
#endif

/* Parameters of a memory descriptor. 0 [dimensions] mean that there is no descriptor. */
struct form {
	int dimensions;
	dnnl_dims_t sizes;
	dnnl_data_type_t type;
	dnnl_format_tag_t tag;
};

/* A memory descriptor, or all bytes zero if there is none. */
struct descriptor {
	dnnl_memory_desc_t it;
};

dnnl_status_t descriptor_make(struct descriptor *descriptor, const struct form *form);
descriptor_t descriptor_of(const struct descriptor *descriptor);
void descriptor_free(struct descriptor *descriptor);

/* Parameters of a primitive descriptor. Dense layers do not use [algorithm], [stride] and [pad]. */
struct request {
	enum math_pass pass;
	bool dense, relu;
	descriptor_t x, weights, bias, y; /* arrays or gradients; layout "any" is allowed */
	dnnl_alg_kind_t algorithm;
	dnnl_dims_t stride, pad;
	dnnl_primitive_desc_t hint; /* descriptor of the forward pass, for the other passes */
	const char *skip;	    /* name of an implementation to skip, or NULL */
};

/*
 * Creates the descriptor of the first suitable implementation on [engine], except request->skip.
 * The caller must provide the scratchpad when the primitive runs. Returns dnnl_unimplemented if
 * there is no implementation.
 */
dnnl_status_t request_ask(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
			  const struct request *request);

/* Name of the implementation: "brgconv:avx512_core". */
const char *implementation_name(const_dnnl_primitive_desc_t descriptor);

#endif /* TRAIN_ONEDNN_DNNL_H */
