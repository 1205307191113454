/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_steps.c - training steps of several ranks, with sampler, gradients, moments and evaluation
 * together
 */
#include "config.h"

#include <math.h>

#include "ranks.h"

static const char *const layouts[] = {"1", "2", "4", "1,1", "2,2", "2,1", "1,1,1"};

/* --- Gradients of a real network --------------------------------------------------------- */

static const struct ddp_parameter mnist[] = {
	{"conv1.weight", 288},	 {"conv1.bias", 32}, {"conv2.weight", 18432}, {"conv2.bias", 64},
	{"fc1.weight", 1179648}, {"fc1.bias", 128},  {"fc2.weight", 1280},    {"fc2.bias", 10},
};

/* Small integers, so that sums are exact in every type. */
static double value(int rank, size_t parameter, size_t i, int step)
{
	return (double)((rank + 1) * (int)((i + parameter) % 7) + step);
}

static double expected(int size, size_t parameter, size_t i, int step)
{
	return (double)(size * (size + 1) / 2 * (int)((i + parameter) % 7) + size * step);
}

static void fill_view(void *view, enum ddp_type type, size_t parameter, int rank, int step)
{
	for (size_t i = 0; i < mnist[parameter].count; i++) {
		if (type == DDP_F64)
			((double *)view)[i] = value(rank, parameter, i, step);
		else
			((float *)view)[i] = (float)value(rank, parameter, i, step);
	}
}

static void check_view(const void *view, enum ddp_type type, size_t parameter, int size, int step)
{
	for (size_t i = 0; i < mnist[parameter].count; i++) {
		double got = type == DDP_F64 ? ((const double *)view)[i]
					     : (double)((const float *)view)[i];

		RANK_CHECK(got == expected(size, parameter, i, step));
	}
}

static void run_steps(struct ddp *ddp, enum ddp_type type, enum ddp_type wire)
{
	const struct ddp_world *world = ddp_world(ddp);
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;
	struct ddp_gradients *gradients;
	double norm;

	options.type = type;
	options.wire = wire;
	options.sum = true;
	RANK_OK(ddp, ddp_gradients_create(&gradients, ddp, &options, mnist, 8));
	RANK_CHECK(ddp_gradients_buckets(gradients) == 2);
	for (int step = 0; step < 3; step++) {
		for (size_t p = 8; p-- > 0;) {
			fill_view(ddp_gradients_view(gradients, p), type, p, world->rank, step);
			RANK_OK(ddp, ddp_gradients_ready(gradients, p));
		}
		RANK_OK(ddp, ddp_gradients_finish(gradients));
		for (size_t p = 0; p < 8; p++)
			check_view(ddp_gradients_view(gradients, p), type, p, world->size, step);
		norm = ddp_gradients_norm(gradients);
		ranks_equal(ddp, &norm, sizeof(norm));
	}
	ddp_gradients_destroy(gradients);
}

RANKS_TEST(test_steps, layouts)
{
	run_steps(ddp, DDP_F32, DDP_F32);
	run_steps(ddp, DDP_F64, DDP_F64);
	run_steps(ddp, DDP_F32, DDP_BF16);
	run_steps(ddp, DDP_F32, DDP_F16);
}

/* --- A model that learns ----------------------------------------------------------------- */

enum { SAMPLES = 203, INPUTS = 3, CLASSES = 4, BATCH = 24, EPOCHS = 6 };

struct model {
	float weight[CLASSES][INPUTS], bias[CLASSES];
};

/*
 * Creates sample [index]: writes its input, a point near one of the four corners of a square, and
 * returns its class.
 */
static int32_t sample(uint64_t index, float input[INPUTS])
{
	uint32_t bits[4];
	int32_t label = (int32_t)(index % CLASSES);

	ddp_random(1, 0, index, 0, 0, bits);
	input[0] = (float)(label & 1) + 0.5f * ddp_random_uniform(bits[0]);
	input[1] = (float)(label >> 1) + 0.5f * ddp_random_uniform(bits[1]);
	input[2] = ddp_random_uniform(bits[2]);
	return label;
}

static void apply(const struct model *model, const float input[INPUTS], float logits[CLASSES])
{
	for (int c = 0; c < CLASSES; c++) {
		logits[c] = model->bias[c];
		for (int i = 0; i < INPUTS; i++)
			logits[c] += model->weight[c][i] * input[i];
	}
}

/* Adds the gradient of one sample's cross entropy, multiplied by [scale]. */
static void add_gradient(const struct model *model, uint64_t index, float scale, float *weight,
			 float *bias)
{
	float input[INPUTS], logits[CLASSES], sum = 0;
	int32_t label = sample(index, input);

	apply(model, input, logits);
	for (int c = 0; c < CLASSES; c++)
		sum += expf(logits[c]);
	for (int c = 0; c < CLASSES; c++) {
		float delta = scale * (expf(logits[c]) / sum - (c == label ? 1.0f : 0.0f));

		bias[c] += delta;
		for (int i = 0; i < INPUTS; i++)
			weight[c * INPUTS + i] += delta * input[i];
	}
}

static void step(struct ddp *ddp, struct model *model, struct ddp_gradients *gradients,
		 const uint64_t *indices, size_t count)
{
	float *weight = ddp_gradients_view(gradients, 0), *bias = ddp_gradients_view(gradients, 1);

	memset(weight, 0, sizeof(model->weight));
	memset(bias, 0, sizeof(model->bias));
	for (size_t i = 0; i < count; i++)
		add_gradient(model, indices[i], 1.0f / (float)count, weight, bias);
	RANK_OK(ddp, ddp_gradients_ready(gradients, 1));
	RANK_OK(ddp, ddp_gradients_ready(gradients, 0));
	RANK_OK(ddp, ddp_gradients_finish(gradients));
	for (int c = 0; c < CLASSES; c++) {
		model->bias[c] -= 2 * bias[c];
		for (int i = 0; i < INPUTS; i++)
			model->weight[c][i] -= 2 * weight[c * INPUTS + i];
	}
}

static void train(struct ddp *ddp, struct model *model)
{
	static const struct ddp_parameter parameters[] = {{"weight", CLASSES * INPUTS},
							  {"bias", CLASSES}};
	const struct ddp_world *world = ddp_world(ddp);
	struct ddp_sampler_options options = DDP_SAMPLER_OPTIONS_INIT;
	size_t batch = BATCH / (size_t)world->size, count;
	struct ddp_gradients *gradients;
	struct ddp_sampler *sampler;
	uint64_t indices[BATCH];

	options.samples = SAMPLES;
	options.rank = world->rank;
	options.ranks = world->size;
	options.drop_last = true;
	RANK_CHECK(ddp_sampler_create(&sampler, &options, NULL) == 0);
	RANK_OK(ddp, ddp_gradients_create(&gradients, ddp, NULL, parameters, 2));
	while (ddp_sampler_epoch(sampler) < EPOCHS) {
		/*
		 * Use only whole global batches, so that the steps do not depend on the number of
		 * ranks.
		 */
		while ((count = ddp_sampler_take(sampler, indices, batch)) > 0) {
			if (count == batch)
				step(ddp, model, gradients, indices, count);
		}
	}
	ddp_gradients_destroy(gradients);
	ddp_sampler_destroy(sampler);
}

static struct ddp_evaluation evaluate(struct ddp *ddp, const struct model *model)
{
	struct ddp_sampler_options options = DDP_SAMPLER_OPTIONS_INIT;
	struct ddp_evaluation evaluation = {0, 0, 0, 0};
	struct ddp_sampler *sampler;
	float input[INPUTS], logits[CLASSES];
	uint64_t index;

	options.samples = SAMPLES;
	options.rank = ddp_world(ddp)->rank;
	options.ranks = ddp_world(ddp)->size;
	options.shuffle = false;
	options.exact = true;
	RANK_CHECK(ddp_sampler_create(&sampler, &options, NULL) == 0);
	while (ddp_sampler_next(sampler, &index)) {
		int32_t label = sample(index, input);

		apply(model, input, logits);
		ddp_evaluation_add(&evaluation, logits, &label, 1, CLASSES);
	}
	ddp_sampler_destroy(sampler);
	RANK_OK(ddp, ddp_evaluation_reduce(ddp, &evaluation));
	return evaluation;
}

/* Result of a run with one rank, which the test computes before the ranks start. */
static struct model reference;
static struct ddp_evaluation reference_evaluation;

RANK_BODY(body_train)
{
	struct model model = {{{0}}, {0}};
	struct ddp_evaluation evaluation;

	train(ddp, &model);
	ranks_equal(ddp, &model, sizeof(model));
	for (int c = 0; c < CLASSES; c++)
		RANK_CHECK(fabsf(model.bias[c] - reference.bias[c]) < 1e-3f);
	evaluation = evaluate(ddp, &model);
	ranks_equal(ddp, &evaluation, sizeof(evaluation));
	RANK_CHECK(evaluation.samples == SAMPLES);
	RANK_CHECK(evaluation.top5 == SAMPLES);
	RANK_CHECK(evaluation.top1 == reference_evaluation.top1);
	RANK_CHECK(evaluation.top1 > SAMPLES * 9 / 10);
	RANK_CHECK(fabs(evaluation.loss - reference_evaluation.loss) < 1e-2);
}

TEST_ROWS(test_train, layouts)
{
	struct ddp_options options = DDP_OPTIONS_INIT;
	struct ddp *ddp;

	ranks_environment(0, 1, 0, 1, 0, 1);
	options.method = "single";
	options.no_signals = true;
	ck_assert_msg(ddp_init(&ddp, &options) == 0, "%s", ddp_error(ddp));
	memset(&reference, 0, sizeof(reference));
	train(ddp, &reference);
	reference_evaluation = evaluate(ddp, &reference);
	ddp_destroy(ddp);
	ranks_run(layouts[_i], body_train);
}

/* --- Moments ----------------------------------------------------------------------------- */

/* Rank r contributes r + 1 values, r to 2r. The last rank contributes none. */
RANKS_TEST(test_moments, layouts)
{
	int size = ddp_world(ddp)->size, own = rank < size - 1 || size == 1 ? rank + 1 : 0;
	double count = own, total = 0, sum = 0, squares = 0;
	float mean = (float)(1.5 * rank), m2 = 0;

	for (int i = 0; i < own; i++)
		m2 += ((float)(rank + i) - mean) * ((float)(rank + i) - mean);
	for (int r = 0; r < size; r++)
		for (int i = 0; i < (r < size - 1 || size == 1 ? r + 1 : 0); i++) {
			total += 1;
			sum += r + i;
			squares += (r + i) * (r + i);
		}
	RANK_OK(ddp, ddp_all_reduce_moments(ddp, &count, &mean, &m2, 1));
	RANK_CHECK(count == total);
	RANK_CHECK(fabs((double)mean - sum / total) < 1e-6);
	RANK_CHECK(fabs((double)m2 - (squares - sum * sum / total)) < 1e-5);
	ranks_equal(ddp, &mean, sizeof(mean));
	ranks_equal(ddp, &m2, sizeof(m2));
	count = 0;
	mean = m2 = NAN;
	RANK_OK(ddp, ddp_all_reduce_moments(ddp, &count, &mean, &m2, 1));
	RANK_CHECK(count == 0 && mean == 0 && m2 == 0);
}

UNIT_MAIN("steps", NULL)
