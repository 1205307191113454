/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_loss.c - kernels of softmax, cross entropy and its gradient, compared with double
 * precision and with the CPU's kernel
 */
#include "harness.h"

/* Declared here because the header, train/cpu/kernels.h, has the same names as cuda-kernels.h. */
double kernels_loss(const float *logits, const int32_t *labels, size_t count, size_t classes,
		    float smoothing, float scale, float *gradient, uint64_t *hits);

/* Arguments of both kernels, except arrays. */
struct job {
	size_t batch, count, classes;
	float smoothing, scale; /* scale of gradients */
	int32_t *labels;
	struct kernel_loss loss;
};

static struct job job_new(enum ddp_type type, size_t batch, size_t count, size_t classes,
			  float smoothing)
{
	struct kernel_order order = {
		.count = (uint32_t)count, .share = 1 / 77.0f, .stop = (uint32_t)(batch & 1)};
	struct kernel_state state = {.scale = type == DDP_F16 ? 1024 : 1};
	struct job job = {
		batch,
		count,
		classes,
		smoothing,
		order.share * state.scale,
		host_new(batch * sizeof(*job.labels)),
		{.batch = (uint32_t)batch, .classes = (uint32_t)classes, .smoothing = smoothing}};

	for (size_t i = 0; i < batch; i++)
		job.labels[i] = (int32_t)draw((uint32_t)classes);
	job.loss.order = device_new(sizeof(order), &order);
	job.loss.state = device_new(sizeof(state), &state);
	job.loss.labels = device_new(batch * sizeof(*job.labels), job.labels);
	job.loss.word = device_new(KERNEL_WORD * sizeof(float), NULL);
	return job;
}

/* Checks the numbers that the step reports. [bound] is the tolerance of the loss. */
static void expect_word(const struct job *job, double loss, double hits, double bound)
{
	float word[KERNEL_WORD];

	device_move(word, job->loss.word, sizeof(word));
	expect_within("stop", 0, (double)word[0], (double)(job->batch & 1), 0);
	expect_within("loss", 0, (double)word[1], loss, bound);
	expect_within("hits", 0, (double)word[2], hits, 0);
	expect_within("count", 0, (double)word[3], (double)job->count, 0);
}

/* --- The loss --------------------------------------------------------------------------- */

/*
 * Returns the loss of row [i], and checks the row's gradients. The tolerances follow from f32's
 * precision of 2^-24 and from the size of the logits. NaN counts as larger than all numbers. Of
 * equal logits, the first one counts.
 */
static double expect_row(const struct job *job, const struct array *logits,
			 const struct array *slopes, size_t i, double *hits)
{
	const float *row = logits->values + i * job->classes;
	size_t label = (size_t)job->labels[i], best = 0;
	double smoothing = (double)job->smoothing, scale = (double)job->scale;
	double part = smoothing / (double)job->classes, sum = 0, mean = 0, top, rest;

	for (size_t k = 1; k < job->classes; k++)
		if (row[k] > row[best] || (isnan(row[k]) && !isnan(row[best])))
			best = k;
	top = (double)row[best];
	for (size_t k = 0; k < job->classes; k++) {
		sum += k == best ? 0 : exp((double)row[k] - top);
		mean += ((double)row[k] - top) / (double)job->classes;
	}
	rest = log1p(sum) + (top - top);
	for (size_t k = 0; k < job->classes; k++) {
		double power = (double)row[k] - top - rest;
		double slope = k == label ? expm1(power) + smoothing - part : exp(power) - part;
		double bound = (fmin(fabs(power), 200) + 8) * 0x1p-23 * (fabs(slope) + part) +
			       (k == label ? smoothing * 0x1p-23 : 0);

		if (isnan(slope))
			expect_exact("gradient", slopes, i * job->classes + k, slope);
		else
			expect_near("gradient", slopes, i * job->classes + k, scale * slope,
				    scale * bound + 1e-40);
	}
	*hits += best == label;
	return rest - (1 - smoothing) * ((double)row[label] - top) -
	       (smoothing > 0 ? smoothing * mean : 0);
}

/* Checks that the results equal the CPU's within the rounding errors of f32. */
static void expect_as_cpu(const struct job *job, const struct array *logits,
			  const struct array *slopes)
{
	float *gradient = host_new(job->count * job->classes * sizeof(*gradient));
	uint64_t hits = 0;
	double loss = kernels_loss(logits->values, job->labels, job->count, job->classes,
				   job->smoothing, job->scale, gradient, &hits);

	expect_word(job, loss, (double)hits, 1e-6 * fabs(loss) + 1e-6);
	for (size_t i = 0; slopes->type == DDP_F32 && i < job->count * job->classes; i++)
		expect_near("gradient of the CPU", slopes, i, (double)gradient[i],
			    (double)job->scale * 1e-6);
}

static void check_job(const struct job *job, const struct point *p, struct array *logits,
		      bool finite)
{
	struct array *slopes = array_new(p->type, logits->count, p->skew);
	struct kernel_scratch scratch = scratch_new(kernel_loss_bytes(job->batch));
	double loss = 0, hits = 0;

	array_send(logits);
	kernel_loss(stream, &job->loss, logits->data, slopes->data, &scratch, p->type);
	array_fetch(slopes);
	for (size_t i = 0; i < job->count; i++)
		loss += expect_row(job, logits, slopes, i, &hits);
	for (size_t i = job->count * job->classes; i < slopes->count; i++)
		expect_exact("gradient of an absent sample", slopes, i, 0);
	expect_word(job, loss, hits, fabs(loss) * 1e-6 + 1e-12);
	if (finite)
		expect_as_cpu(job, logits, slopes);
}

/* In the last shape, the number of blocks exceeds the number of threads in a block. */
static const struct {
	size_t batch, classes;
} shapes[] = {
	{1, 1},	  {1, 10},   {64, 10},	 {255, 10}, {257, 10},	{520, 10},
	{33, 2},  {40, 16},  {300, 16},	 {8, 17},   {9, 17},	{1, 32},
	{7, 100}, {64, 100}, {20, 1000}, {3, 1500}, {2100, 17},
};

/*
 * The batch may be full or not. Logits are multiples of a step, so that several logits of a row are
 * often the largest.
 */
static void check_loss(const struct point *p)
{
	static const double sizes[] = {0.5, 8, 60};
	size_t batch = shapes[p->size].batch, classes = shapes[p->size].classes;
	const size_t counts[] = {0, 1, batch - batch / 3, batch};

	for (int i = 0; i < 2 * ROWS(counts); i++) {
		struct job job = job_new(p->type, batch, counts[i / 2], classes, i % 2 ? 0.1f : 0);
		struct array *logits = array_new(p->type, batch * classes, p->skew);

		for (size_t k = 0; k < logits->count; k++)
			array_put(logits, k, sizes[i % ROWS(sizes)] * ((double)draw(129) / 64 - 1));
		check_job(&job, p, logits, true);
	}
}

/* In each row, one or two logits are NaN, infinite or large. */
static void check_rare(const struct point *p)
{
	const double rare[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 60000, -60000};
	size_t classes = p->size ? 100 : 10;
	struct job job = job_new(p->type, 40, 40, classes, 0);
	struct array *logits = array_random(p->type, 40 * classes, p->skew, 0);

	for (size_t i = 0; i < 80; i++)
		array_put(logits, i / 2 * classes + draw((uint32_t)classes),
			  rare[draw(ROWS(rare))]);
	check_job(&job, p, logits, false);
}

static const struct test tests[] = {
	{"loss", check_loss, ROWS(shapes), .skews = 2},
	{"loss of NaN and infinite logits", check_rare, 2, .skews = 1},
};

int main(int argc, char **argv)
{
	return harness_run(argc, argv, tests, ROWS(tests));
}
