/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax, cross entropy and its gradient against doubles, and in f32 against the CPU's. Needs
 * train/cpu/kernels.c.
 */
#include "arrays.h"

/* The CPU's; its header has cuda-kernels.h's names. */
double kernels_loss(const float *logits, const int32_t *labels, size_t count, size_t classes,
		    float smoothing, float scale, float *gradient, uint64_t *hits);

enum { MOST = 2100 }; /* samples */

struct job {
	size_t batch, count, classes;
	float smoothing;
	enum ddp_type type;
	size_t skew;
	struct kernel_order order;
	struct kernel_state state;
	struct array logits, slopes;
	int32_t labels[MOST];
	float word[KERNEL_WORD];
};

static struct job job;

/* --- Both sides --------------------------------------------------------------------------------- */

static void run(void)
{
	void *labels = bytes_make(job.batch * sizeof(*job.labels), job.labels);
	void *order = bytes_make(sizeof(job.order), &job.order);
	void *state = bytes_make(sizeof(job.state), &job.state);
	float *word = bytes_make(sizeof(job.word), NULL);
	struct kernel_scratch scratch = scratch_make(kernel_loss_bytes(job.batch, job.classes));
	const struct kernel_loss loss = {
		order,	       state, labels, (uint32_t)job.batch, (uint32_t)job.classes,
		job.smoothing, word};

	kernel_loss(arrays_stream, &loss, job.logits.data, job.slopes.data, &scratch, job.type);
	array_fetch(&job.slopes);
	bytes_fetch(job.word, word, sizeof(job.word));
	device_free(arrays_device, labels);
	device_free(arrays_device, order);
	device_free(arrays_device, state);
	device_free(arrays_device, word);
	scratch_free(&scratch);
}

static float scale_of(const struct job *j)
{
	return j->order.share * j->state.scale;
}

/* Of row [i]: how far it may be off follows from f32's 2^-24 and from the logits' size. */
static double plain_row(size_t i, double *hits)
{
	const float *row = job.logits.values + i * job.classes;
	size_t label = (size_t)job.labels[i], best = 0;
	double sum = 0, mean = 0, smoothing = (double)job.smoothing, scale = (double)scale_of(&job);
	double part = smoothing / (double)job.classes, top, rest;

	for (size_t k = 1; k < job.classes; k++)
		if (row[k] > row[best] || (isnan(row[k]) && !isnan(row[best])))
			best = k;
	top = (double)row[best];
	for (size_t k = 0; k < job.classes; k++) {
		sum += k == best ? 0 : exp((double)row[k] - top);
		mean += ((double)row[k] - top) / (double)job.classes;
	}
	rest = log1p(sum) + (top - top);
	for (size_t k = 0; k < job.classes; k++) {
		double power = (double)row[k] - top - rest;
		double slope = k == label ? expm1(power) + smoothing - part : exp(power) - part;
		double bound = (fmin(fabs(power), 200) + 8) * 0x1p-23 * (fabs(slope) + part);

		if (k == label)
			bound += (double)job.smoothing * 0x1p-23;
		if (isnan(slope))
			array_exact("a slope", &job.slopes, i * job.classes + k, slope);
		else
			array_near("a slope", &job.slopes, i * job.classes + k, scale * slope,
				   scale * bound + 1e-40);
	}
	*hits += best == label;
	return rest - (1 - smoothing) * ((double)row[label] - top) -
	       (smoothing > 0 ? smoothing * mean : 0);
}

/* [blur]: of the loss, whose logits are rounded on their way. */
static void compare_word(double loss, double hits, double blur)
{
	const double want[KERNEL_WORD] = {job.order.stop, loss, hits, (double)job.count};
	static const char *const names[KERNEL_WORD] = {"stop", "loss", "hits", "count"};

	for (int i = 0; i < KERNEL_WORD; i++) {
		double got = (double)job.word[i];
		double bound = i == 1 ? fabs(loss) * 1e-6 + 1e-12 + blur : 0;

		if (!(fabs(got - want[i]) <= bound || (isnan(got) && isnan(want[i]))))
			array_differs(names[i], 0, got, want[i], bound);
	}
}

/* The device's f32 and the CPU's doubles, rounded: within what f32 loses. */
static void compare_cpu(void)
{
	float *gradient = malloc((job.count * job.classes + 1) * sizeof(*gradient));
	uint64_t hits = 0;
	double loss = kernels_loss(job.logits.values, job.labels, job.count, job.classes,
				   job.smoothing, scale_of(&job), gradient, &hits);

	if (!(fabs(loss - (double)job.word[1]) <= 1e-6 * fabs(loss) + 1e-6))
		array_differs("the CPU's loss", 0, (double)job.word[1], loss, 1e-6 * loss);
	if (hits != (uint64_t)job.word[2])
		array_differs("the CPU's hits", 0, (double)job.word[2], (double)hits, 0);
	for (size_t i = 0; job.type == DDP_F32 && i < job.count * job.classes; i++)
		array_near("the CPU's slope", &job.slopes, i, (double)gradient[i],
			   (double)scale_of(&job) * 1e-6);
	free(gradient);
}

static void compare(bool finite)
{
	double loss = 0, hits = 0;

	for (size_t i = 0; i < job.count; i++)
		loss += plain_row(i, &hits);
	for (size_t i = job.count * job.classes; i < job.slopes.count; i++)
		array_exact("a slope of a sample that is not there", &job.slopes, i, 0);
	compare_word(loss, hits, 0);
	if (finite)
		compare_cpu();
}

/* --- Tables ------------------------------------------------------------------------------------- */

/* Logits up to [size], in steps, so that the largest one is often not alone. */
static void job_begin(double size)
{
	uint64_t random = arrays_seed + job.classes * 1000 + job.batch;

	job.order = (struct kernel_order){.count = (uint32_t)job.count,
					  .share = 1 / 77.0f,
					  .stop = (uint32_t)(job.batch & 1)};
	job.state = (struct kernel_state){.scale = job.type == DDP_F16 ? 1024 : 1};
	job.logits = array_make(job.type, job.batch * job.classes, job.skew);
	job.slopes = array_make(job.type, job.batch * job.classes, job.skew);
	for (size_t i = 0; i < job.logits.count; i++)
		array_put(&job.logits, i, size * ((double)draw(&random, 129) / 64 - 1));
	for (size_t i = 0; i < job.batch; i++)
		job.labels[i] = (int32_t)draw(&random, (uint32_t)job.classes);
	array_fill_with(&job.slopes, 77);
}

static void job_end(void)
{
	array_free(&job.logits);
	array_free(&job.slopes);
}

static const struct {
	size_t batch, classes;
} shapes[] = {
	{1, 1},	   {1, 10}, {64, 10}, {255, 10}, {257, 10}, {520, 10}, {33, 2},	   {40, 16},
	{300, 16}, {8, 17}, {9, 17},  {1, 32},	 {7, 100},  {64, 100}, {20, 1000}, {3, 1500},
};

static void test_shape(int s)
{
	static const double sizes[] = {0.5, 8, 60};
	static const float smoothings[] = {0, 0.1f};
	size_t batch = shapes[s].batch;
	const size_t counts[] = {0, 1, batch - batch / 3, batch};

	for (int c = 0; c < ROWS(counts); c++)
		for (int m = 0; m < ROWS(smoothings); m++) {
			job.batch = batch;
			job.count = counts[c];
			job.classes = shapes[s].classes;
			job.smoothing = smoothings[m];
			job.skew = (size_t)c % 2;
			job_begin(sizes[(c + m) % ROWS(sizes)]);
			array_send(&job.logits);
			run();
			compare(true);
			job_end();
		}
	array_row("loss: %s, %zu rows of %zu, all or fewer of them there", arrays_name(job.type),
		  batch, shapes[s].classes);
}

/* More blocks than a block has threads: several parts for each of them to sum. */
static void test_blocks(void)
{
	job.batch = job.count = MOST;
	job.classes = 17;
	job.smoothing = 0.1f;
	job.skew = 0;
	job_begin(8);
	array_send(&job.logits);
	run();
	compare(true);
	array_row("loss: %s, %zu rows of 17", arrays_name(job.type), job.batch);
	job_end();
}

/* Each row has one or two of these; what is no number is larger than all, the first of equals counts. */
static void test_rare(size_t classes)
{
	const double rare[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 60000, -60000};
	uint64_t random = arrays_seed;

	job.batch = job.count = 40;
	job.classes = classes;
	job.smoothing = 0;
	job.skew = 0;
	job_begin(2);
	for (size_t i = 0; i < 2 * job.batch; i++)
		array_put(&job.logits, i / 2 * classes + draw(&random, (uint32_t)classes),
			  rare[draw(&random, ROWS(rare))]);
	array_send(&job.logits);
	run();
	compare(false);
	array_row("loss: %s, %zu classes, logits that are no numbers, or too large",
		  arrays_name(job.type), classes);
	job_end();
}

/* --- With a dense layer ------------------------------------------------------------------------- */

static const struct {
	size_t batch, count, inputs, classes;
} layers[] = {
	{64, 64, 128, 10}, {64, 41, 128, 10}, {1, 1, 8, 1},    {7, 7, 5, 3},
	{3, 0, 16, 10},	   {20, 20, 64, 32},  {9, 9, 1024, 2}, {700, 650, 24, 5},
};

struct layer {
	struct array x, weights, bias, dx, dw, db;
	double *slopes, loss, hits;
};

static void layer_plain(struct layer *l, int s, float smoothing, double scale)
{
	size_t inputs = layers[s].inputs, classes = layers[s].classes;
	double part = (double)smoothing / (double)classes;

	for (size_t n = 0; n < layers[s].count; n++) {
		double logits[32], sum = 0, mean = 0, *slopes = l->slopes + n * classes;
		size_t best = 0, label = (size_t)job.labels[n];

		for (size_t k = 0; k < classes; k++) {
			logits[k] = (double)l->bias.values[k];
			for (size_t i = 0; i < inputs; i++)
				logits[k] += (double)l->x.values[n * inputs + i] *
					     (double)l->weights.values[k * inputs + i];
			best = logits[k] > logits[best] ? k : best;
		}
		for (size_t k = 0; k < classes; k++) {
			sum += exp(logits[k] - logits[best]);
			mean += (logits[k] - logits[best]) / (double)classes;
		}
		for (size_t k = 0; k < classes; k++)
			slopes[k] = scale * (exp(logits[k] - logits[best]) / sum - part -
					     (k == label ? 1 - (double)smoothing : 0));
		l->loss += log(sum) - (1 - (double)smoothing) * (logits[label] - logits[best]) -
			   (double)smoothing * mean;
		l->hits += best == label;
	}
}

/* A logit is a sum of so many products in f32, whose partial sums are rounded: by so much, taken together. */
static double logits_blur(size_t inputs)
{
	return (double)inputs * 0x1p-24;
}

static void layer_compare(const struct layer *l, int s, double drop, double scale)
{
	size_t inputs = layers[s].inputs, classes = layers[s].classes, count = layers[s].count;
	double wide = scale * (1 + logits_blur(inputs) / 0x1p-16), rows = sqrt((double)count) + 1;

	for (size_t i = 0; i < l->dx.count; i++) {
		double want = 0;

		for (size_t k = 0; k < classes; k++)
			want += l->slopes[i / inputs * classes + k] *
				(double)l->weights.values[k * inputs + i % inputs];
		if (drop > 0)
			want = l->x.values[i] > 0 ? want * drop : 0;
		array_near("dx", &l->dx, i, want, 4e-6 * wide);
	}
	for (size_t i = 0; i < l->dw.count; i++) {
		double want = 0;

		for (size_t n = 0; n < count; n++)
			want += l->slopes[n * classes + i / inputs] *
				(double)l->x.values[n * inputs + i % inputs];
		array_near("a weight's gradient", &l->dw, i, want, 2e-6 * wide * rows);
	}
	for (size_t i = 0; i < classes; i++) {
		double want = 0;

		for (size_t n = 0; n < count; n++)
			want += l->slopes[n * classes + i];
		array_near("a bias's gradient", &l->db, i, want, 2e-6 * wide * rows);
	}
}

static void layer_run(struct layer *l, int s, float smoothing, float drop)
{
	size_t inputs = layers[s].inputs, classes = layers[s].classes, batch = layers[s].batch;
	struct kernel_scratch scratch = scratch_make(kernel_last_bytes(batch, inputs, classes));
	const struct kernel_last last = {(uint32_t)inputs, l->x.data,  l->weights.data,
					 l->bias.data,	   l->dx.data, l->dw.data,
					 l->db.data,	   drop};
	void *labels = bytes_make(batch * sizeof(*job.labels), job.labels);
	void *order = bytes_make(sizeof(job.order), &job.order);
	void *state = bytes_make(sizeof(job.state), &job.state);
	float *word = bytes_make(sizeof(job.word), NULL), *first;
	const struct kernel_loss loss = {
		order, state, labels, (uint32_t)batch, (uint32_t)classes, smoothing, word};

	first = malloc(l->dw.count * sizeof(*first));
	for (int i = 0; i < 2; i++) {
		kernel_last(arrays_stream, &loss, &last, &scratch, job.type);
		array_fetch(&l->dw);
		if (i == 0)
			memcpy(first, l->dw.values, l->dw.count * sizeof(*first));
	}
	for (size_t i = 0; i < l->dw.count; i++)
		array_exact("a weight's gradient again", &l->dw, i, (double)first[i]);
	array_fetch(&l->dx);
	array_fetch(&l->db);
	bytes_fetch(job.word, word, sizeof(job.word));
	free(first);
	device_free(arrays_device, labels);
	device_free(arrays_device, order);
	device_free(arrays_device, state);
	device_free(arrays_device, word);
	scratch_free(&scratch);
}

static void test_layer(int s, float smoothing, float drop, size_t skew)
{
	size_t inputs = layers[s].inputs, classes = layers[s].classes, batch = layers[s].batch;
	struct layer l = {.x = array_make(job.type, batch * inputs, skew),
			  .weights = array_make(job.type, classes * inputs, skew),
			  .bias = array_make(DDP_F32, classes, skew),
			  .dx = array_make(job.type, batch * inputs, skew),
			  .dw = array_make(DDP_F32, classes * inputs, skew),
			  .db = array_make(DDP_F32, classes, skew),
			  .slopes = calloc(batch * classes, sizeof(double))};
	struct array *arrays[] = {&l.x, &l.weights, &l.bias, &l.dx, &l.dw, &l.db};
	uint64_t random = arrays_seed + (uint64_t)s;
	double scale;

	job.count = layers[s].count;
	job.order = (struct kernel_order){.count = (uint32_t)job.count, .share = 1 / 8.0f};
	job.state = (struct kernel_state){.scale = job.type == DDP_F16 ? 64 : 1};
	for (int i = 0; i < ROWS(arrays); i++)
		array_fill(arrays[i], 0, &random);
	for (size_t i = 0; i < batch; i++)
		job.labels[i] = (int32_t)draw(&random, (uint32_t)classes);
	layer_run(&l, s, smoothing, drop);
	scale = (double)scale_of(&job);
	layer_plain(&l, s, smoothing, scale);
	layer_compare(&l, s, (double)drop, scale);
	compare_word(l.loss, l.hits, logits_blur(inputs) * sqrt((double)layers[s].count));
	for (int i = 0; i < ROWS(arrays); i++)
		array_free(arrays[i]);
	free(l.slopes);
}

static void test_layers(int s)
{
	ok(kernel_last_fits(layers[s].inputs, layers[s].classes), "a layer that fits");
	test_layer(s, 0, 0, 0);
	test_layer(s, 0.1f, 2, 0);
	test_layer(s, 0.1f, 0, 1);
	array_row("last layer: %s, %zu to %zu, %zu of %zu rows there", arrays_name(job.type),
		  layers[s].inputs, layers[s].classes, layers[s].count, layers[s].batch);
}

int main(void)
{
	if (!arrays_begin("kernels of the loss"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	for (int t = 0; t < ROWS(arrays_types); t++) {
		job.type = arrays_types[t];
		for (int s = 0; s < ROWS(shapes); s++)
			test_shape(s);
		test_blocks();
		test_rare(10);
		test_rare(100);
		for (int s = 0; s < ROWS(layers); s++)
			test_layers(s);
	}
	return arrays_end();
}
