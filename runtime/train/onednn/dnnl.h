/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dnnl.h - what differs between oneDNN 2 and 3
 *
 * Descriptors of memory are structs in version 2 and objects in version 3, those of primitives are
 * made in two steps or in one. Nothing else here knows which version it is.
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

/* What a descriptor of memory is to be; [dimensions] 0: there is none. */
struct form {
	int dimensions;
	dnnl_dims_t sizes;
	dnnl_data_type_t type;
	dnnl_format_tag_t tag;
};

/* All zeros: none. */
struct descriptor {
	dnnl_memory_desc_t it;
};

dnnl_status_t descriptor_make(struct descriptor *descriptor, const struct form *form);
descriptor_t descriptor_of(const struct descriptor *descriptor);
void descriptor_free(struct descriptor *descriptor);

/* A primitive that is asked for; a dense layer has no [algorithm], [stride] and [pad]. */
struct request {
	enum math_pass pass;
	bool dense, relu;
	descriptor_t x, weights, bias, y; /* or their gradients; of forms that may be "any" */
	dnnl_alg_kind_t algorithm;
	dnnl_dims_t stride, pad;
	dnnl_primitive_desc_t hint; /* of the forward pass, for the others */
	const char *skip;	    /* an implementation not to take, or NULL */
};

/*
 * The descriptor of the first implementation that fits and is not to be skipped, on [engine], with
 * a scratchpad of the caller's. Returns dnnl_unimplemented where there is none.
 */
dnnl_status_t request_ask(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
			  const struct request *request);

/* Of the implementation: "brgconv:avx512_core". */
const char *implementation_name(const_dnnl_primitive_desc_t descriptor);

#endif /* TRAIN_ONEDNN_DNNL_H */
