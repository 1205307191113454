/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choose.c - rule for the algorithm of each pass of a convolution, and for lists or dense gradients
 *
 * The rule was made from the times of tests/bench/convolutions (tests/results/convolutions-*.log).
 * It depends on the layer, the batch and the CPU's instructions. Algorithms round differently, so
 * all ranks use the lowest instruction level of any rank.
 */
#include "config.h"

#include <string.h>

#include "base/error.h"
#include "engine-private.h"

enum choose_level choose_level(const char *library)
{
	if (strstr(library, "AMX"))
		return CHOOSE_AMX;
	return strstr(library, "AVX512") || strstr(library, "AVX10") ? CHOOSE_AVX512 : CHOOSE_AVX2;
}

int engine_choose_level(struct engine *engine, struct ddp_error *error)
{
	int32_t level = (int32_t)choose_level(engine->math->describe());
	int status = ddp_all_reduce(engine->setup.ddp, &level, &level, 1, DDP_I32, DDP_MIN);

	engine->level = (enum choose_level)level;
	return status < 0 ? engine_fail(engine, status, error) : 0;
}

bool choose_lists(enum ddp_type type, enum choose_level level)
{
	return type != DDP_BF16 || level < CHOOSE_AMX;
}

/* Number of algorithm [name] of a pass; 0 (direct) if the library lacks it for this layer. */
static int find(const struct math *math, const struct math_layer *layer, enum math_pass pass,
		const char *name)
{
	int number = math->algorithms(layer, pass) - 1;

	while (number > 0 && strcmp(math->algorithm(layer, pass, number), name) != 0)
		number--;
	return number;
}

/* Returns the name of the fastest algorithm other than Winograd's. */
static const char *name_algorithm(const struct math_options *layer, enum math_pass pass,
				  enum choose_level level, int pixels)
{
	bool amx = layer->type == DDP_BF16 && level == CHOOSE_AMX;

	if (amx && layer->in == 1)
		return "direct2";
	if (amx && layer->size == 1 && pass != MATH_FORWARD)
		return "columns";
	if (amx && layer->stride == 2 && pass == MATH_BACK_WEIGHTS && pixels <= 64)
		return "columns";
	if (layer->size == 1 || pixels > 16)
		return "direct";
	return amx || level == CHOOSE_AVX2 || pass == MATH_BACK_WEIGHTS ? "columns" : "blocked";
}

int choose_algorithm(const struct math *math, const struct math_layer *layer,
		     const struct math_options *options, enum math_pass pass,
		     enum choose_level level)
{
	int pixels =
		math_out_size(options, options->height) * math_out_size(options, options->width);
	int winograd = find(math, layer, pass, "winograd");

	/*
	 * Winograd's algorithm transforms the weights in each step. For few pixels, the
	 * transformation takes longer than the time that the algorithm saves.
	 */
	if (winograd > 0 && level >= CHOOSE_AVX512 && options->in >= 32 &&
	    options->batch * (size_t)pixels >= 512)
		return winograd;
	return find(math, layer, pass, name_algorithm(options, pass, level, pixels));
}

void engine_choose(const struct engine *engine, const struct program_op *op,
		   struct math_layer *layer)
{
	const struct math *math = engine->math;
	struct math_options options = engine_math_options(engine, op);

	options.batch = engine->setup.batch;
	for (enum math_pass i = MATH_FORWARD; i < MATH_PASSES; i++) {
		bool runs = !(i == MATH_BACK_DATA && options.first) &&
			    !(i != MATH_FORWARD && op->listed);

		if (runs && !options.dense)
			math->choose(layer, i,
				     choose_algorithm(math, layer, &options, i, engine->level));
	}
}
