/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/type.h"
#include "layer.h"

#define TEXT 96

static char description[TEXT];

static void description_make(void)
{
	snprintf(description, sizeof(description), "oneDNN %s, %s", plan_version(),
		 plan_instructions());
}

static const char *onednn_describe(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, description_make);
	return description;
}

/*
 * Whether a usual convolution has native instructions in all passes. bf16 without them is f32
 * arithmetic with conversions: slower than f32.
 */
static bool native(enum ddp_type type, struct plan_offer *offer)
{
	struct plan_options options = {.layer = {.height = 16,
						 .width = 16,
						 .in = 64,
						 .out = 64,
						 .size = 3,
						 .stride = 1,
						 .pad = 1,
						 .type = type,
						 .batch = 8,
						 .threads = 1},
				       .count = 8,
				       .weights = LAYOUT_ANY};

	for (int pass = 0; pass < MATH_PASSES; pass++) {
		options.pass = (enum math_pass)pass;
		if (plan_probe(&options, offer, NULL))
			return false;
		if (type == DDP_BF16 && !strstr(offer->name, "avx512_core_bf16") &&
		    !strstr(offer->name, "amx"))
			return false;
	}
	return true;
}

static bool onednn_has(enum ddp_type type, struct ddp_error *error)
{
	struct plan_offer offer = {.name = "no implementation"};

	if (type != DDP_F32 && type != DDP_BF16) {
		ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			      "%s does not train in %s on a CPU; take bf16 or f32",
			      onednn_describe(), ddp_type_name((uint32_t)type));
		return false;
	}
	if (native(type, &offer))
		return true;
	ddp_error_set(error, DDP_ERR_UNSUPPORTED,
		      "this CPU has no instructions for %s that %s uses (it takes \"%s\")%s",
		      type == DDP_F32 ? "f32" : "bf16", onednn_describe(), offer.name,
		      type == DDP_F32 ? "" : "; take f32");
	return false;
}

static int onednn_algorithms(const struct math_layer *layer, enum math_pass pass)
{
	return layer->passes[pass].variant_count;
}

static const char *onednn_algorithm(const struct math_layer *layer, enum math_pass pass, int number)
{
	return layer->passes[pass].variants[number].name;
}

static int onednn_load(struct math_layer *layer, const float *weights, const float *bias,
		       struct ddp_error *error)
{
	if (!weights || (layer->options.bias && !bias))
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "a layer is loaded without its %s",
				     weights ? "bias" : "weights");
	weights_load(&layer->weights, weights);
	layer->bias = bias;
	return 0;
}

static int onednn_forward(struct math_layer *layer, size_t count, const void *x, void *y,
			  struct ddp_error *error)
{
	void *const data[PLAN_SLOTS] = {
		[PLAN_X] = (void *)x, [PLAN_BIAS] = (void *)layer->bias, [PLAN_Y] = y};

	return count ? layer_run(layer, MATH_FORWARD, count, data, error) : 0;
}

static int onednn_back_data(struct math_layer *layer, size_t count, const void *dy, void *dx,
			    struct ddp_error *error)
{
	void *const data[PLAN_SLOTS] = {[PLAN_X] = dx, [PLAN_Y] = (void *)dy};

	if (layer->options.first)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "the first layer has no gradient of what it reads");
	return count ? layer_run(layer, MATH_BACK_DATA, count, data, error) : 0;
}

static size_t weight_count(const struct math_options *options)
{
	return (size_t)options->out * (size_t)options->in * (size_t)options->size *
	       (size_t)options->size;
}

static int onednn_back_weights(struct math_layer *layer, size_t count, const void *x,
			       const void *dy, float *weights, float *bias, struct ddp_error *error)
{
	void *const data[PLAN_SLOTS] = {[PLAN_X] = (void *)x,
					[PLAN_WEIGHTS] = weights,
					[PLAN_BIAS] = bias,
					[PLAN_Y] = (void *)dy};

	if (count)
		return layer_run(layer, MATH_BACK_WEIGHTS, count, data, error);
	memset(weights, 0, weight_count(&layer->options) * sizeof(*weights));
	if (layer->options.bias)
		memset(bias, 0, (size_t)layer->options.out * sizeof(*bias));
	return 0;
}

__attribute__((visibility("default"))) extern const struct math ddp_module;
const struct math ddp_module = {
	.head = {.magic = DDP_MODULE_MAGIC,
		 .version = MATH_VERSION,
		 .size = sizeof(struct math),
		 .kind = "math",
		 .name = "onednn",
		 .release = PACKAGE_VERSION},
	.describe = onednn_describe,
	.has = onednn_has,
	.create = layer_create,
	.algorithms = onednn_algorithms,
	.algorithm = onednn_algorithm,
	.choose = layer_choose,
	.load = onednn_load,
	.forward = onednn_forward,
	.back_data = onednn_back_data,
	.back_weights = onednn_back_weights,
	.destroy = layer_destroy,
};
