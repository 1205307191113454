/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/type.h"
#include "dnnl.h"
#include "layer.h"
#include "plan.h"

/* --- Variants ---------------------------------------------------------------------------- */

/* Variants of one kind: oneDNN's implementations of it, in its order, [most] of them at most. */
struct family {
	const char *name;
	bool dense, winograd, columns;
	enum layout layout, weights;
	int most;
};

/*
 * Dense layers take the caller's layout: what is saved by a layout of oneDNN's own is less than
 * the reorder of the weights costs (measured, f32 and bf16, at 64 images).
 */
static const struct family families[] = {
	{"direct", false, false, false, LAYOUT_PLAIN, LAYOUT_ANY, VARIANT_SKIPS + 1},
	{"blocked", false, false, false, LAYOUT_ANY, LAYOUT_ANY, 1},
	{"winograd", false, true, false, LAYOUT_ANY, LAYOUT_ANY, 1},
	{"columns", false, false, true, LAYOUT_PLAIN, LAYOUT_ANY, 1},
	{"direct", true, false, false, LAYOUT_PLAIN, LAYOUT_PLAIN, 1},
	{"packed", true, false, false, LAYOUT_PLAIN, LAYOUT_ANY, 1},
};

#define FAMILIES (sizeof(families) / sizeof(families[0]))

void variant_ask(struct plan_options *options, const struct variant *variant,
		 const struct math_options *layer, enum math_pass pass, size_t count)
{
	/* Gradients of weights as the caller has them: the product is as fast, the reorder saved. */
	bool plain = variant->columns && pass == MATH_BACK_WEIGHTS;

	*options = (struct plan_options){.layer = *layer,
					 .pass = pass,
					 .count = count,
					 .winograd = variant->winograd,
					 .columns = variant->columns,
					 .skip = variant->skip,
					 .x = variant->layout,
					 .weights = plain ? LAYOUT_PLAIN : variant->weights,
					 .y = variant->layout};
}

/* Rows of windows that are no more than so many bytes are worth a trial. */
#define COLUMNS ((size_t)80 << 20)

static bool columns_suit(const struct plan_options *options)
{
	struct columns columns;

	columns_init(&columns, options);
	return (columns.size > 1 || columns.stride > 1) && columns_bytes(&columns) <= COLUMNS;
}

/* The next of [family], where [number] of it were found. */
static int variant_find(struct pass *found, const struct family *family, int number,
			const struct math_options *layer, enum math_pass pass,
			struct ddp_error *error)
{
	static const char *const ends[VARIANT_SKIPS + 1] = {"", "2"};
	struct variant *variant = &found->variants[found->variant_count];
	struct plan_options options;
	struct plan_offer offer;
	int rc;

	*variant = (struct variant){.winograd = family->winograd,
				    .columns = family->columns,
				    .layout = family->layout,
				    .weights = family->weights};
	snprintf(variant->name, VARIANT_NAME, "%s%s", family->name, ends[number]);
	for (int i = 0; i < number; i++)
		variant->skip[i] = (variant - number + i)->implementation;
	variant_ask(&options, variant, layer, pass, layer->batch);
	if (family->columns && !columns_suit(&options))
		return DDP_ERR_UNSUPPORTED;
	if (family->columns)
		columns_ask(&options);
	rc = plan_probe(&options, &offer, error);
	if (rc)
		return rc;
	memcpy(variant->implementation, offer.name, PLAN_NAME);
	variant->turns = !offer.plain || family->columns;
	return 0;
}

/* Whether the last variant does the same as one before it: not worth a choice. */
static bool known(const struct pass *found)
{
	const struct variant *last = &found->variants[found->variant_count];

	for (const struct variant *variant = found->variants; variant < last; variant++)
		if (strcmp(variant->implementation, last->implementation) == 0 &&
		    variant->turns == last->turns)
			return true;
	return false;
}

static int family_find(struct pass *found, const struct family *family,
		       const struct math_options *layer, enum math_pass pass,
		       struct ddp_error *error)
{
	for (int number = 0; number < family->most; number++) {
		int rc = variant_find(found, family, number, layer, pass, error);

		if (rc)
			return rc == DDP_ERR_UNSUPPORTED && number ? 0 : rc;
		if (known(found))
			break;
		found->variant_count++;
	}
	return 0;
}

int variants_find(struct pass *found, const struct math_options *layer, enum math_pass pass,
		  struct ddp_error *error)
{
	struct ddp_error refused;

	for (size_t i = 0; i < FAMILIES; i++) {
		bool first = found->variant_count == 0;
		int rc;

		if (families[i].dense != layer->dense)
			continue;
		/* A dense layer needs one way alone. */
		if (layer->dense && !first)
			break;
		rc = family_find(found, &families[i], layer, pass, first ? error : &refused);
		if (rc && rc != DDP_ERR_UNSUPPORTED)
			return rc;
	}
	if (found->variant_count == 0 || found->variants[0].winograd)
		return DDP_ERR_UNSUPPORTED;
	return 0;
}

/* --- Plans ------------------------------------------------------------------------------- */

#define TEXT 160

/* The scratchpad is one more array of a primitive. */
#define SLOT_SCRATCH PLAN_SLOTS
#define SLOTS (PLAN_SLOTS + 1)

struct plan {
	char text[TEXT]; /* for errors */
	struct plan_options options;
	dnnl_primitive_desc_t descriptor;
	dnnl_primitive_t primitive;
	dnnl_memory_t memory[SLOTS];
	int names[SLOTS]; /* DNNL_ARG_x; 0: the primitive has no such array */
	void *data[SLOTS];
};

/* --- Failures --------------------------------------------------------------------------- */

static int refuse(struct ddp_error *error, dnnl_status_t status, const char *text, const char *call)
{
	if (status == dnnl_unimplemented)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "oneDNN %s has nothing for %s on a CPU with %s",
				     plan_version(), text, plan_instructions());
	return ddp_error_set(error, status == dnnl_out_of_memory ? DDP_ERR_MEMORY : DDP_ERR_ENGINE,
			     "oneDNN %s, %s: %.*s says \"%s\"", plan_version(), text,
			     (int)strcspn(call, "("), call, dnnl_status2str(status));
}

/* Run a call of oneDNN; in failure [rc] is set and the rest is skipped. */
#define TRY(call)                                                    \
	do {                                                         \
		dnnl_status_t try_status = (call);                   \
		if (try_status != dnnl_success) {                    \
			rc = refuse(error, try_status, text, #call); \
			goto out;                                    \
		}                                                    \
	} while (0)

static const char *const pass_names[] = {"forward", "backward data", "backward weights"};

static void describe(char *text, const struct plan_options *options)
{
	const struct math_options *layer = &options->layer;
	const char *type = ddp_type_name((uint32_t)layer->type);

	if (layer->dense)
		snprintf(text, TEXT, "dense layer, %s, %zu x %d -> %d, %s",
			 pass_names[options->pass], options->count, layer->in, layer->out, type);
	else
		snprintf(text, TEXT,
			 "%sconvolution, %s, %zu x %d x %d x %d -> %d, window %d, stride %d, "
			 "pad %d, %s",
			 options->winograd ? "Winograd " : "", pass_names[options->pass],
			 options->count, layer->height, layer->width, layer->in, layer->out,
			 layer->size, layer->stride, layer->pad, type);
}

/* --- The library ------------------------------------------------------------------------ */

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static dnnl_status_t engine_status;
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;

static void engine_make(void)
{
	engine_status = dnnl_engine_create(&engine, dnnl_cpu, 0);
	if (engine_status == dnnl_success)
		engine_status = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
}

static dnnl_status_t engine_open(void)
{
	pthread_once(&engine_once, engine_make);
	return engine_status;
}

const char *plan_version(void)
{
	static _Thread_local char text[32];
	const dnnl_version_t *version = dnnl_version();

	snprintf(text, sizeof(text), "%d.%d.%d", version->major, version->minor, version->patch);
	return text;
}

const char *plan_instructions(void)
{
	static _Thread_local char text[32];
	const char *name = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
	size_t i = 0;

	if (strncmp(name, "cpu_isa_", 8) == 0)
		name += 8;
	for (; name[i] && i + 1 < sizeof(text); i++)
		text[i] = (char)toupper((unsigned char)name[i]);
	text[i] = '\0';
	return text;
}

/* --- What to ask for ------------------------------------------------------------ */

static dnnl_data_type_t type_of(enum ddp_type type)
{
	return type == DDP_BF16 ? dnnl_bf16 : type == DDP_F16 ? dnnl_f16 : dnnl_f32;
}

static int out_size(const struct math_options *layer, int size)
{
	return (size + 2 * layer->pad - layer->size) / layer->stride + 1;
}

static void form_image(struct form *form, const struct plan_options *options, int channels,
		       int height, int width)
{
	*form = (struct form){.dimensions = 4,
			      .sizes = {(dnnl_dim_t)options->count, channels, height, width},
			      .type = type_of(options->layer.type),
			      .tag = dnnl_nhwc};
	if (options->layer.dense) {
		form->dimensions = 2;
		form->tag = dnnl_nc;
	}
}

static void form_weights(struct form *form, const struct plan_options *options)
{
	const struct math_options *layer = &options->layer;

	*form = (struct form){.dimensions = layer->dense ? 2 : 4,
			      .sizes = {layer->out, layer->in, layer->size, layer->size},
			      .type = dnnl_f32,
			      .tag = layer->dense ? dnnl_oi : dnnl_ohwi};
}

/* As the caller has the array of [slot]. */
static void form_plain(struct form *form, const struct plan_options *options, enum plan_slot slot)
{
	const struct math_options *layer = &options->layer;

	*form = (struct form){0};
	if (slot == PLAN_X) {
		form_image(form, options, layer->in, layer->height, layer->width);
		form->type = options->wide ? dnnl_f32 : form->type;
	} else if (slot == PLAN_WEIGHTS)
		form_weights(form, options);
	else if (slot == PLAN_Y)
		form_image(form, options, layer->out, out_size(layer, layer->height),
			   out_size(layer, layer->width));
	else if (layer->bias && options->pass != MATH_BACK_DATA)
		*form = (struct form){1, {layer->out}, dnnl_f32, dnnl_x};
}

/* As the primitive is asked to take it. */
static void form_asked(struct form *form, const struct plan_options *options, enum plan_slot slot)
{
	enum layout layout = slot == PLAN_X	    ? options->x
			     : slot == PLAN_WEIGHTS ? options->weights
			     : slot == PLAN_Y	    ? options->y
						    : LAYOUT_PLAIN;

	form_plain(form, options, slot);
	if (slot == PLAN_WEIGHTS && options->pass != MATH_BACK_WEIGHTS)
		form->type = type_of(options->layer.type);
	if (layout == LAYOUT_ANY)
		form->tag = dnnl_format_tag_any;
	else if (layout == LAYOUT_PLANES && !options->layer.dense)
		form->tag = dnnl_nchw;
}

/* The descriptor of the pass that [options] name; backward passes want the forward one as hint. */
static dnnl_status_t ask(dnnl_primitive_desc_t *result, const struct plan_options *options,
			 dnnl_primitive_desc_t hint)
{
	const struct math_options *layer = &options->layer;
	struct descriptor descriptors[PLAN_SLOTS];
	struct question q = {.pass = options->pass,
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
	for (int slot = 0; slot < PLAN_SLOTS && status == dnnl_success; slot++) {
		struct form form;

		form_asked(&form, options, (enum plan_slot)slot);
		status = descriptor_make(&descriptors[slot], &form);
	}
	q.x = descriptor_of(&descriptors[PLAN_X]);
	q.weights = descriptor_of(&descriptors[PLAN_WEIGHTS]);
	q.bias = descriptor_of(&descriptors[PLAN_BIAS]);
	q.y = descriptor_of(&descriptors[PLAN_Y]);
	if (status == dnnl_success)
		status = question_ask(result, engine, &q);
	for (int slot = 0; slot < PLAN_SLOTS; slot++)
		descriptor_free(&descriptors[slot]);
	return status;
}

static dnnl_status_t ask_with_hint(dnnl_primitive_desc_t *result,
				   const struct plan_options *options)
{
	struct plan_options forward = *options;
	dnnl_primitive_desc_t hint = NULL;
	dnnl_status_t status;

	if (options->pass == MATH_FORWARD)
		return ask(result, options, NULL);
	forward.pass = MATH_FORWARD;
	forward.skip = NULL;
	forward.layer.relu = false;
	forward.x = forward.weights = forward.y = LAYOUT_ANY;
	/* No hint is right where oneDNN has the backward pass alone. */
	if (ask(&hint, &forward, NULL) != dnnl_success)
		hint = NULL;
	status = ask(result, options, hint);
	if (hint)
		dnnl_primitive_desc_destroy(hint);
	return status;
}

/* --- Plans ------------------------------------------------------------------------------ */

struct role {
	int name;
	dnnl_query_t query;
	int index;
};

/* What oneDNN calls the array of each slot. */
static const struct role roles[MATH_PASSES][PLAN_SLOTS] = {
	[MATH_FORWARD] = {[PLAN_X] = {DNNL_ARG_SRC, dnnl_query_src_md, 0},
			  [PLAN_WEIGHTS] = {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
			  [PLAN_BIAS] = {DNNL_ARG_BIAS, dnnl_query_weights_md, 1},
			  [PLAN_Y] = {DNNL_ARG_DST, dnnl_query_dst_md, 0}},
	[MATH_BACK_DATA] = {[PLAN_X] = {DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0},
			    [PLAN_WEIGHTS] = {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
			    [PLAN_Y] = {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0}},
	[MATH_BACK_WEIGHTS] = {[PLAN_X] = {DNNL_ARG_SRC, dnnl_query_src_md, 0},
			       [PLAN_WEIGHTS] = {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md,
						 0},
			       [PLAN_BIAS] = {DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md, 1},
			       [PLAN_Y] = {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0}},
};

static const struct role reorder_roles[PLAN_SLOTS] = {
	[PLAN_X] = {DNNL_ARG_FROM, dnnl_query_src_md, 0},
	[PLAN_Y] = {DNNL_ARG_TO, dnnl_query_dst_md, 0},
};

static descriptor_t memory_layout(const struct plan *plan, int slot)
{
	descriptor_t layout = NULL;

	if (plan->memory[slot])
		(void)dnnl_memory_get_memory_desc(plan->memory[slot], &layout);
	return layout;
}

static dnnl_status_t plan_memory(struct plan *plan, int slot, const struct role *role)
{
	descriptor_t layout;
	dnnl_status_t status;

	if (role->name == 0)
		return dnnl_success;
	layout = dnnl_primitive_desc_query_md(plan->descriptor, role->query, role->index);
	if (!layout || dnnl_memory_desc_get_size(layout) == 0)
		return dnnl_success;
	status = dnnl_memory_create(&plan->memory[slot], layout, engine, DNNL_MEMORY_NONE);
	if (status == dnnl_success)
		plan->names[slot] = role->name;
	return status;
}

/* Of the implementation. */
static const char *plan_name(const struct plan *plan)
{
	return question_name(plan->descriptor);
}

static int plan_check(const struct plan *plan, struct ddp_error *error)
{
	const char *name = plan_name(plan);

	if (strncmp(name, "ref", 3) == 0)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "oneDNN %s, %s: only the reference implementation \"%s\" does "
				     "that on a CPU with %s",
				     plan_version(), plan->text, name, plan_instructions());
	if (plan->options.winograd && !strstr(name, "wino"))
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED, "oneDNN %s, %s: \"%s\" is not it",
				     plan_version(), plan->text, name);
	return 0;
}

/* From the descriptor to something that runs. */
static int plan_finish(struct plan *plan, const struct role *arrays, struct ddp_error *error)
{
	static const struct role scratch = {DNNL_ARG_SCRATCHPAD, dnnl_query_scratchpad_md, 0};
	const char *text = plan->text;
	int rc = 0;

	TRY(dnnl_primitive_create(&plan->primitive, plan->descriptor));
	for (int slot = 0; slot < PLAN_SLOTS; slot++)
		TRY(plan_memory(plan, slot, &arrays[slot]));
	TRY(plan_memory(plan, SLOT_SCRATCH, &scratch));
out:
	return rc;
}

static struct plan *plan_begin(const struct plan_options *options, struct ddp_error *error)
{
	struct plan *plan = calloc(1, sizeof(*plan));

	if (plan)
		plan->options = *options;
	else
		ddp_error_set(error, DDP_ERR_MEMORY, "no memory for a primitive");
	return plan;
}

/* A plan without its primitive. */
static int plan_ask(struct plan **plan, const struct plan_options *options, struct ddp_error *error)
{
	struct plan *made = plan_begin(options, error);
	const char *text;
	int rc = 0;

	if (!made)
		return DDP_ERR_MEMORY;
	text = made->text;
	describe(made->text, options);
	TRY(engine_open());
	TRY(ask_with_hint(&made->descriptor, options));
	rc = plan_check(made, error);
out:
	if (rc == 0)
		*plan = made;
	else
		plan_destroy(made);
	return rc;
}

static bool plan_plain(const struct plan *plan, int slot)
{
	const struct role *role = &roles[plan->options.pass][slot];
	struct descriptor plain = {0};
	struct form form;
	bool is = false;

	form_plain(&form, &plan->options, (enum plan_slot)slot);
	if (descriptor_make(&plain, &form) == dnnl_success)
		is = dnnl_memory_desc_equal(descriptor_of(&plain),
					    dnnl_primitive_desc_query_md(plan->descriptor,
									 role->query, role->index));
	descriptor_free(&plain);
	return is;
}

int plan_probe(const struct plan_options *options, struct plan_offer *offer,
	       struct ddp_error *error)
{
	struct plan *plan;
	int rc = plan_ask(&plan, options, error);

	if (rc)
		return rc;
	snprintf(offer->name, PLAN_NAME, "%s", plan_name(plan));
	offer->plain = plan_plain(plan, PLAN_X) && plan_plain(plan, PLAN_Y);
	plan_destroy(plan);
	return 0;
}

int plan_create(struct plan **plan, const struct plan_options *options, struct ddp_error *error)
{
	struct plan *made = NULL;
	int rc = plan_ask(&made, options, error);

	if (rc == 0)
		rc = plan_finish(made, roles[options->pass], error);
	if (rc == 0)
		*plan = made;
	else
		plan_destroy(made);
	return rc;
}

/* A reorder of [slot] of [of]; [to]: from the caller's. */
static int plan_reorder(struct plan **plan, const struct plan *of, enum plan_slot slot, bool to,
			struct ddp_error *error)
{
	struct plan *made = NULL;
	const char *text = of->text;
	struct descriptor plain = {0};
	descriptor_t theirs = memory_layout(of, (int)slot), ours;
	struct form form;
	int rc = 0;

	*plan = NULL;
	form_plain(&form, &of->options, slot);
	TRY(descriptor_make(&plain, &form));
	ours = descriptor_of(&plain);
	if (!theirs || dnnl_memory_desc_equal(ours, theirs) ||
	    (slot == PLAN_X && of->options.x == LAYOUT_PLANES))
		goto out;
	made = plan_begin(&of->options, error);
	if (!made) {
		rc = DDP_ERR_MEMORY;
		goto out;
	}
	made->options.winograd = false;
	snprintf(made->text, TEXT, "reorder for %.140s", of->text);
	text = made->text;
	TRY(dnnl_reorder_primitive_desc_create(&made->descriptor, to ? ours : theirs, engine,
					       to ? theirs : ours, engine, NULL));
	rc = plan_check(made, error);
	if (rc == 0)
		rc = plan_finish(made, reorder_roles, error);
out:
	descriptor_free(&plain);
	if (rc == 0)
		*plan = made;
	else
		plan_destroy(made);
	return rc;
}

int plan_enter(struct plan **plan, const struct plan *of, enum plan_slot slot,
	       struct ddp_error *error)
{
	return plan_reorder(plan, of, slot, true, error);
}

int plan_leave(struct plan **plan, const struct plan *of, enum plan_slot slot,
	       struct ddp_error *error)
{
	return plan_reorder(plan, of, slot, false, error);
}

void plan_destroy(struct plan *plan)
{
	if (!plan)
		return;
	for (int slot = 0; slot < SLOTS; slot++)
		if (plan->memory[slot])
			dnnl_memory_destroy(plan->memory[slot]);
	if (plan->primitive)
		dnnl_primitive_destroy(plan->primitive);
	if (plan->descriptor)
		dnnl_primitive_desc_destroy(plan->descriptor);
	free(plan);
}

static size_t memory_bytes(const struct plan *plan, int slot)
{
	return plan->memory[slot] ? dnnl_memory_desc_get_size(memory_layout(plan, slot)) : 0;
}

size_t plan_bytes(const struct plan *plan, enum plan_slot slot)
{
	return memory_bytes(plan, (int)slot);
}

size_t plan_scratch(const struct plan *plan)
{
	return memory_bytes(plan, SLOT_SCRATCH);
}

bool plan_fits(const struct plan *plan, enum plan_slot slot, const struct plan *of)
{
	return plan->memory[slot] && of->memory[PLAN_WEIGHTS] &&
	       dnnl_memory_desc_equal(memory_layout(plan, (int)slot),
				      memory_layout(of, PLAN_WEIGHTS));
}

static dnnl_status_t plan_point(struct plan *plan, int slot, void *data)
{
	if (!plan->memory[slot] || plan->data[slot] == data)
		return dnnl_success;
	plan->data[slot] = data;
	return dnnl_memory_set_data_handle(plan->memory[slot], data);
}

int plan_run(struct plan *plan, void *const data[PLAN_SLOTS], void *scratch,
	     struct ddp_error *error)
{
	const char *text = plan->text;
	dnnl_exec_arg_t arguments[SLOTS];
	int count = 0, rc = 0;

	for (int slot = 0; slot < SLOTS; slot++) {
		TRY(plan_point(plan, slot, slot == SLOT_SCRATCH ? scratch : data[slot]));
		if (plan->memory[slot])
			arguments[count++] =
				(dnnl_exec_arg_t){plan->names[slot], plan->memory[slot]};
	}
	TRY(dnnl_primitive_execute(plan->primitive, stream, count, arguments));
	TRY(dnnl_stream_wait(stream));
out:
	return rc;
}
