/* SPDX-License-Identifier: Apache-2.0 */
/* primitive.c - choose, create and run oneDNN's primitives */
#include "config.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/type.h"
#include "base/xalloc.h"
#include "dnnl.h"
#include "primitive.h"

#define TEXT 160

struct primitive {
	char text[TEXT];
	struct primitive_options options;
	dnnl_primitive_desc_t descriptor;
	dnnl_primitive_t it;
	dnnl_memory_t memory[ARRAYS]; /* NULL: the primitive has no such array */
	int names[ARRAYS];	      /* argument numbers, DNNL_ARG_x */
	void *data[ARRAYS];
};

/* --- Library ---------------------------------------------------------------------------- */

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static dnnl_status_t engine_status;
static char version[32], instructions[32], library[80];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void library_open(void)
{
	const dnnl_version_t *numbers = dnnl_version();
	const char *name = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());

	snprintf(version, sizeof(version), "%d.%d.%d", numbers->major, numbers->minor,
		 numbers->patch);
	if (strncmp(name, "cpu_isa_", 8) == 0)
		name += 8;
	for (size_t i = 0; name[i] && i + 1 < sizeof(instructions); i++)
		instructions[i] = (char)toupper((unsigned char)name[i]);
	snprintf(library, sizeof(library), "oneDNN %s, %s", version, instructions);
	engine_status = dnnl_engine_create(&engine, dnnl_cpu, 0);
	if (engine_status == dnnl_success)
		engine_status = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
}

const char *primitive_library(void)
{
	pthread_once(&once, library_open);
	return library;
}

/* --- Errors ----------------------------------------------------------------------------- */

static int dnnl_error(struct ddp_error *error, dnnl_status_t status, const char *text,
		      const char *call)
{
	if (status == dnnl_unimplemented)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "oneDNN %s does not support a %s on a CPU with %s", version,
				     text, instructions);
	return ddp_error_set(error, status == dnnl_out_of_memory ? DDP_ERR_MEMORY : DDP_ERR_ENGINE,
			     "%.*s of oneDNN %s failed with \"%s\" for a %s",
			     (int)strcspn(call, "("), call, version, dnnl_status2str(status), text);
}

/* Calls a oneDNN function. On failure sets [rc] and jumps to out. */
#define TRY(call)                                                        \
	do {                                                             \
		dnnl_status_t try_status = (call);                       \
		if (try_status != dnnl_success) {                        \
			rc = dnnl_error(error, try_status, text, #call); \
			goto out;                                        \
		}                                                        \
	} while (0)

static void describe(char *text, const struct primitive_options *options)
{
	static const char *const passes[] = {"forward", "backward data", "backward weights"};
	const struct math_options *layer = &options->layer;
	const char *type = ddp_type_name((uint32_t)layer->type);

	if (layer->dense)
		snprintf(text, TEXT, "dense layer, %s, %zu x %d -> %d, %s", passes[options->pass],
			 options->count, layer->in, layer->out, type);
	else
		snprintf(text, TEXT,
			 "%sconvolution, %s, %zu x %d x %d x %d -> %d, window %d, stride %d, "
			 "pad %d, %s",
			 options->winograd ? "Winograd " : "", passes[options->pass],
			 options->count, layer->height, layer->width, layer->in, layer->out,
			 layer->size, layer->stride, layer->pad, type);
}

/* --- Parameters -------------------------------------------------------------------------- */

static dnnl_data_type_t type_of(enum ddp_type type)
{
	return type == DDP_BF16 ? dnnl_bf16 : type == DDP_F16 ? dnnl_f16 : dnnl_f32;
}

static struct form form_images(const struct primitive_options *options, int channels, int height,
			       int width)
{
	return (struct form){.dimensions = options->layer.dense ? 2 : 4,
			     .sizes = {(dnnl_dim_t)options->count, channels, height, width},
			     .type = type_of(options->layer.type),
			     .tag = options->layer.dense ? dnnl_nc : dnnl_nhwc};
}

/* Returns the layout of the caller's [array]. */
static struct form form_plain(const struct primitive_options *options, enum array array)
{
	const struct math_options *layer = &options->layer;
	struct form form = {0};

	switch (array) {
	case ARRAY_X:
		form = form_images(options, layer->in, layer->height, layer->width);
		form.type = options->wide ? dnnl_f32 : form.type;
		break;
	case ARRAY_Y:
		form = form_images(options, layer->out, math_out_size(layer, layer->height),
				   math_out_size(layer, layer->width));
		break;
	case ARRAY_WEIGHTS:
		form = (struct form){.dimensions = layer->dense ? 2 : 4,
				     .sizes = {layer->out, layer->in, layer->size, layer->size},
				     .type = dnnl_f32,
				     .tag = layer->dense ? dnnl_oi : dnnl_ohwi};
		break;
	default:
		if (array == ARRAY_BIAS && layer->bias && options->pass != MATH_BACK_DATA)
			form = (struct form){1, {layer->out}, dnnl_f32, dnnl_x};
	}
	return form;
}

/* Returns the layout of [array] that is requested from oneDNN. */
static struct form form_asked(const struct primitive_options *options, enum array array)
{
	struct form form = form_plain(options, array);
	bool images = array == ARRAY_X || array == ARRAY_Y;

	if (array == ARRAY_WEIGHTS && options->pass != MATH_BACK_WEIGHTS)
		form.type = type_of(options->layer.type);
	if ((images && options->any_images) || (array == ARRAY_WEIGHTS && options->any_weights))
		form.tag = dnnl_format_tag_any;
	return form;
}

/*
 * Creates the descriptor of the pass in [options]. For a backward pass, oneDNN needs the forward
 * pass's descriptor as [hint].
 */
static dnnl_status_t ask(dnnl_primitive_desc_t *result, const struct primitive_options *options,
			 dnnl_primitive_desc_t hint)
{
	const struct math_options *layer = &options->layer;
	struct descriptor descriptors[ARRAYS];
	struct request request = {.pass = options->pass,
				  .dense = layer->dense,
				  .relu = layer->relu && options->pass == MATH_FORWARD,
				  .algorithm = options->winograd ? dnnl_convolution_winograd
								 : dnnl_convolution_direct,
				  .stride = {layer->stride, layer->stride},
				  .pad = {layer->pad, layer->pad},
				  .hint = hint,
				  .skip = options->skip};
	dnnl_status_t status = dnnl_success;

	memset(descriptors, 0, sizeof(descriptors));
	for (int i = 0; i < ARRAYS && status == dnnl_success; i++) {
		struct form form = form_asked(options, (enum array)i);

		status = descriptor_make(&descriptors[i], &form);
	}
	request.x = descriptor_of(&descriptors[ARRAY_X]);
	request.weights = descriptor_of(&descriptors[ARRAY_WEIGHTS]);
	request.bias = descriptor_of(&descriptors[ARRAY_BIAS]);
	request.y = descriptor_of(&descriptors[ARRAY_Y]);
	if (status == dnnl_success)
		status = request_ask(result, engine, &request);
	for (int i = 0; i < ARRAYS; i++)
		descriptor_free(&descriptors[i]);
	return status;
}

static dnnl_status_t ask_with_hint(dnnl_primitive_desc_t *result,
				   const struct primitive_options *options)
{
	struct primitive_options forward = *options;
	dnnl_primitive_desc_t hint = NULL;
	dnnl_status_t status;

	if (options->pass == MATH_FORWARD)
		return ask(result, options, NULL);
	forward.pass = MATH_FORWARD;
	forward.skip = NULL;
	forward.layer.relu = false;
	forward.any_images = forward.any_weights = true;
	/* If oneDNN supports only the backward pass, that pass must be requested without a hint. */
	if (ask(&hint, &forward, NULL) != dnnl_success)
		hint = NULL;
	status = ask(result, options, hint);
	if (hint)
		dnnl_primitive_desc_destroy(hint);
	return status;
}

/* --- Primitives -------------------------------------------------------------------------- */

struct role {
	int name;
	dnnl_query_t query;
	int index;
};

/* oneDNN's argument number for each array, and the query for the array's descriptor. */
#define SCRATCH [ARRAY_SCRATCH] = {DNNL_ARG_SCRATCHPAD, dnnl_query_scratchpad_md, 0}
static const struct role roles[MATH_PASSES][ARRAYS] = {
	[MATH_FORWARD] = {[ARRAY_X] = {DNNL_ARG_SRC, dnnl_query_src_md, 0},
			  [ARRAY_WEIGHTS] = {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
			  [ARRAY_BIAS] = {DNNL_ARG_BIAS, dnnl_query_weights_md, 1},
			  [ARRAY_Y] = {DNNL_ARG_DST, dnnl_query_dst_md, 0},
			  SCRATCH},
	[MATH_BACK_DATA] = {[ARRAY_X] = {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0},
			    [ARRAY_WEIGHTS] = {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
			    [ARRAY_Y] = {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
			    SCRATCH},
	[MATH_BACK_WEIGHTS] = {[ARRAY_X] = {DNNL_ARG_SRC, dnnl_query_src_md, 0},
			       [ARRAY_WEIGHTS] = {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md,
						  0},
			       [ARRAY_BIAS] = {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1},
			       [ARRAY_Y] = {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0},
			       SCRATCH},
};
static const struct role reorder_roles[ARRAYS] = {
	[ARRAY_X] = {DNNL_ARG_FROM, dnnl_query_src_md, 0},
	[ARRAY_Y] = {DNNL_ARG_TO, dnnl_query_dst_md, 0},
	SCRATCH,
};

static descriptor_t layout_of(const struct primitive *primitive, enum array array)
{
	descriptor_t layout = NULL;

	if (primitive->memory[array])
		(void)dnnl_memory_get_memory_desc(primitive->memory[array], &layout);
	return layout;
}

static dnnl_status_t make_memory(struct primitive *primitive, int array, const struct role *role)
{
	descriptor_t layout;

	if (role->name == 0)
		return dnnl_success;
	layout = dnnl_primitive_desc_query_md(primitive->descriptor, role->query, role->index);
	if (!layout || dnnl_memory_desc_get_size(layout) == 0)
		return dnnl_success;
	primitive->names[array] = role->name;
	return dnnl_memory_create(&primitive->memory[array], layout, engine, DNNL_MEMORY_NONE);
}

/* Rejects reference implementations and, if Winograd was requested, implementations without it. */
static int check(const struct primitive *primitive, struct ddp_error *error)
{
	const char *name = implementation_name(primitive->descriptor);

	if (strncmp(name, "ref", 3) == 0)
		return ddp_error_set(
			error, DDP_ERR_UNSUPPORTED,
			"oneDNN %s has only the slow reference implementation \"%s\" for "
			"a %s on a CPU with %s",
			version, name, primitive->text, instructions);
	if (primitive->options.winograd && !strstr(name, "wino"))
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "\"%s\" of oneDNN %s does not use Winograd for a %s", name,
				     version, primitive->text);
	return 0;
}

static int finish(struct primitive *primitive, const struct role *arrays, struct ddp_error *error)
{
	const char *text = primitive->text;
	int rc = 0;

	TRY(dnnl_primitive_create(&primitive->it, primitive->descriptor));
	for (int i = 0; i < ARRAYS; i++)
		TRY(make_memory(primitive, i, &arrays[i]));
out:
	return rc;
}

static struct primitive *begin(const struct primitive_options *options)
{
	struct primitive *primitive = ddp_xcalloc(1, sizeof(*primitive), "a primitive");

	primitive->options = *options;
	return primitive;
}

static int begin_pass(struct primitive **primitive, const struct primitive_options *options,
		      struct ddp_error *error)
{
	struct primitive *made = *primitive = begin(options);
	const char *text = made->text;
	int rc = 0;

	describe(made->text, options);
	primitive_library();
	TRY(engine_status);
	TRY(ask_with_hint(&made->descriptor, options));
	rc = check(made, error);
out:
	return rc;
}

static bool is_plain(const struct primitive *primitive, enum array array)
{
	const struct role *role = &roles[primitive->options.pass][array];
	struct form form = form_plain(&primitive->options, array);
	struct descriptor plain = {0};
	bool is = false;

	if (descriptor_make(&plain, &form) == dnnl_success)
		is = dnnl_memory_desc_equal(descriptor_of(&plain),
					    dnnl_primitive_desc_query_md(primitive->descriptor,
									 role->query, role->index));
	descriptor_free(&plain);
	return is;
}

int primitive_probe(const struct primitive_options *options, struct primitive_offer *offer,
		    struct ddp_error *error)
{
	struct primitive *primitive;
	int rc = begin_pass(&primitive, options, error);

	if (rc == 0) {
		snprintf(offer->name, PRIMITIVE_NAME, "%s",
			 implementation_name(primitive->descriptor));
		offer->plain = is_plain(primitive, ARRAY_X) && is_plain(primitive, ARRAY_Y);
	}
	primitive_destroy(primitive);
	return rc;
}

int primitive_create(struct primitive **primitive, const struct primitive_options *options,
		     struct ddp_error *error)
{
	int rc = begin_pass(primitive, options, error);

	if (rc == 0)
		rc = finish(*primitive, roles[options->pass], error);
	if (rc) {
		primitive_destroy(*primitive);
		*primitive = NULL;
	}
	return rc;
}

int primitive_reorder(struct primitive **primitive, const struct primitive *of, enum array array,
		      bool enter, struct ddp_error *error)
{
	struct form form = form_plain(&of->options, array);
	descriptor_t theirs = layout_of(of, array), ours;
	struct primitive *made = NULL;
	struct descriptor plain = {0};
	const char *text = of->text;
	int rc = 0;

	*primitive = NULL;
	TRY(descriptor_make(&plain, &form));
	ours = descriptor_of(&plain);
	if (!theirs || dnnl_memory_desc_equal(ours, theirs))
		goto out;
	made = begin(&of->options);
	made->options.winograd = false;
	snprintf(made->text, TEXT, "reorder for %.140s", of->text);
	text = made->text;
	TRY(dnnl_reorder_primitive_desc_create(&made->descriptor, enter ? ours : theirs, engine,
					       enter ? theirs : ours, engine, NULL));
	rc = check(made, error);
	if (rc == 0)
		rc = finish(made, reorder_roles, error);
out:
	descriptor_free(&plain);
	if (rc == 0)
		*primitive = made;
	else
		primitive_destroy(made);
	return rc;
}

void primitive_destroy(struct primitive *primitive)
{
	if (!primitive)
		return;
	for (int i = 0; i < ARRAYS; i++)
		if (primitive->memory[i])
			dnnl_memory_destroy(primitive->memory[i]);
	if (primitive->it)
		dnnl_primitive_destroy(primitive->it);
	if (primitive->descriptor)
		dnnl_primitive_desc_destroy(primitive->descriptor);
	free(primitive);
}

size_t primitive_bytes(const struct primitive *primitive, enum array array)
{
	descriptor_t layout = layout_of(primitive, array);

	return layout ? dnnl_memory_desc_get_size(layout) : 0;
}

bool primitive_fits(const struct primitive *reorder, const struct primitive *of)
{
	return of->memory[ARRAY_WEIGHTS] &&
	       dnnl_memory_desc_equal(layout_of(reorder, ARRAY_Y), layout_of(of, ARRAY_WEIGHTS));
}

int primitive_run(struct primitive *primitive, void *const data[ARRAYS], struct ddp_error *error)
{
	const char *text = primitive->text;
	dnnl_exec_arg_t arguments[ARRAYS];
	int count = 0, rc = 0;

	for (int i = 0; i < ARRAYS; i++) {
		dnnl_memory_t memory = primitive->memory[i];

		if (!memory)
			continue;
		if (primitive->data[i] != data[i])
			TRY(dnnl_memory_set_data_handle(memory, data[i]));
		primitive->data[i] = data[i];
		arguments[count++] = (dnnl_exec_arg_t){primitive->names[i], memory};
	}
	TRY(dnnl_primitive_execute(primitive->it, stream, count, arguments));
	TRY(dnnl_stream_wait(stream));
out:
	return rc;
}
