/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first convolution's ways side by side: cuda-kernels.h's own, cuDNN's on the image's channels, and cuDNN's on 8
 * channels of which the others are zeros, as its engines for tensor cores want them. All must give the same; what
 * each takes is printed, which decides what the engine does: "stem: ..." lines. Times are of launches in a
 * stream, one behind the other; the way back has the ReLU's and the bias's gradients in it.
 */
#include "arrays.h"
#include "base/watch.h"
#include "layer.h"

enum { PADDED = 8, SIZE = 3 };

static const struct stem {
	const char *name;
	int side, in, out, pad;
	bool bias; /* and a ReLU */
} stems[] = {
	{"mnist's conv1", 28, 1, 32, 0, true},
	{"cifar's conv1", 32, 3, 64, 1, false},
};

struct way {
	const struct stem *stem;
	size_t batch, rows;
	int channels; /* that are read; 0: the own kernels */
	struct layer *layer;
	struct array x, weights, bias, y, dy, dz, dw, db;
	struct kernel_scratch scratch;
};

static struct ddp_error error;
static struct layers *layers;

/* --- What is computed ---------------------------------------------------------------------------- */

static struct kernel_first first_of(const struct stem *stem)
{
	return (struct kernel_first){stem->side, stem->side, stem->out};
}

static void forward(struct way *way)
{
	const struct kernel_first first = first_of(way->stem);

	if (way->channels == 0)
		kernel_first(arrays_stream, &first, way->batch, way->x.data, way->weights.data,
			     way->bias.data, way->stem->bias, way->y.data, way->x.type);
	else
		arrays_check(layer_forward(way->layer, false, way->x.data, way->weights.data,
					   way->stem->bias ? way->bias.data : NULL, way->y.data,
					   way->scratch.memory, &error),
			     &error);
}

static void back(struct way *way)
{
	const struct kernel_first first = first_of(way->stem);
	const void *dz = way->stem->bias ? way->dz.data : way->dy.data;
	enum ddp_type type = way->x.type;

	if (way->channels == 0) {
		kernel_first_back(arrays_stream, &first, way->batch, way->x.data, way->dy.data,
				  way->y.data, &way->scratch, way->dw.data, way->db.data, type);
		return;
	}
	if (way->stem->bias) {
		kernel_relu_back(arrays_stream, way->dy.data, way->y.data, 1, way->dz.data,
				 way->dy.count, type);
		kernel_column_sums(arrays_stream, dz, way->rows, (size_t)way->stem->out,
				   &way->scratch, way->db.data, type);
	}
	arrays_check(layer_back_weights(way->layer, way->x.data, dz, way->dw.data, NULL,
					way->scratch.memory, &error),
		     &error);
}

/* --- Memory ------------------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* [count] pixels of [channels], the first [there] of which are drawn: the same for each way. */
static struct array pixels_make(enum ddp_type type, size_t count, int channels, int there,
				uint64_t random)
{
	struct array array = array_make(type, count * (size_t)channels, 0);

	for (size_t i = 0; i < count; i++)
		for (int c = 0; c < there; c++)
			array_put(&array, i * (size_t)channels + (size_t)c,
				  (double)draw(&random, 129) / 64 - 1);
	array_send(&array);
	return array;
}

static void way_open(struct way *way, const struct stem *stem, size_t batch, int channels,
		     enum ddp_type type)
{
	int side = stem->side + 2 * stem->pad - SIZE + 1, reads = channels ? channels : stem->in;
	size_t pixels = batch * (size_t)(stem->side * stem->side), out = (size_t)stem->out;
	size_t taps = out * SIZE * SIZE, bytes;
	struct layer_options options = {.name = "stem",
					.height = stem->side,
					.width = stem->side,
					.in = reads,
					.out = stem->out,
					.size = SIZE,
					.stride = 1,
					.pad = stem->pad,
					.bias = stem->bias,
					.relu = stem->bias,
					.first = true,
					.type = type,
					.batch = batch};

	*way = (struct way){.stem = stem, .batch = batch, .channels = channels};
	way->rows = batch * (size_t)(side * side);
	way->x = pixels_make(type, pixels, reads, stem->in, 1);
	way->weights = pixels_make(channels ? type : DDP_F32, taps, reads, stem->in, 2);
	way->bias = pixels_make(channels ? type : DDP_F32, out, 1, 1, 3);
	way->dy = pixels_make(type, way->rows, stem->out, stem->out, 4);
	way->y = array_make(type, way->rows * out, 0);
	way->dz = array_make(type, way->rows * out, 0);
	way->dw = array_make(channels ? type : DDP_F32, taps * (size_t)reads, 0);
	way->db = array_make(DDP_F32, out, 0);
	bytes = kernel_sums_bytes(way->rows, out);
	if (channels) {
		struct plans plans = {.memory = device_info(arrays_device)->limit};

		arrays_check(layer_create(&way->layer, layers, &options, &plans, &error), &error);
		bytes = larger(bytes, layer_scratch(way->layer));
		ddp_text_free(&plans.taken);
	} else {
		const struct kernel_first first = first_of(stem);

		bytes = larger(bytes, kernel_first_bytes(&first, batch));
	}
	way->scratch = scratch_make(bytes);
}

static void way_close(struct way *way)
{
	struct array *arrays[] = {&way->x,  &way->weights, &way->bias, &way->y,
				  &way->dy, &way->dz,	   &way->dw,   &way->db};

	layer_destroy(way->layer);
	scratch_free(&way->scratch);
	for (int i = 0; i < ROWS(arrays); i++)
		array_free(arrays[i]);
}

/* --- Rows --------------------------------------------------------------------------------------- */

static bool emulated(void)
{
	return strstr(device_info(arrays_device)->name, "emulated") != NULL;
}

static double microseconds(struct way *way, void (*work)(struct way *))
{
	int times = emulated() ? 1 : 200;
	double begin;

	work(way);
	arrays_check(device_wait(arrays_device, DEVICE_COMPUTE, &error), &error);
	begin = ddp_seconds();
	for (int i = 0; i < times; i++)
		work(way);
	arrays_check(device_wait(arrays_device, DEVICE_COMPUTE, &error), &error);
	return (ddp_seconds() - begin) / times * 1e6;
}

/* [want] is what the first way gave, [in] channels wide; bounds are what rounding and the order of sums leave. */
static void compare(const struct way *way, const struct way *want)
{
	int reads = way->channels ? way->channels : way->stem->in, in = way->stem->in;
	double rows = sqrt((double)way->rows);

	for (size_t i = 0; i < way->y.count; i++)
		array_near("y", &way->y, i, (double)want->y.values[i],
			   1e-5 + (way->x.type == DDP_F32
					   ? 0
					   : 0.01 * fabs((double)want->y.values[i])));
	/* A gradient leaves cuDNN in 16 bits. */
	for (size_t i = 0; i < want->dw.count; i++) {
		size_t at = i / (size_t)in * (size_t)reads + i % (size_t)in;
		double value = (double)want->dw.values[i];

		array_near("a weight's gradient", &way->dw, at, value,
			   (way->x.type == DDP_F32 ? 1e-4 : 0.1) * rows);
	}
	for (size_t i = 0; way->stem->bias && i < want->db.count; i++)
		array_near("a bias's gradient", &way->db, i, (double)want->db.values[i],
			   (way->x.type == DDP_F32 ? 1e-5 : 0.1) * rows);
}

static void test_stem(const struct stem *stem, size_t batch, enum ddp_type type)
{
	const int all[] = {0, stem->in, PADDED};
	int begin = stem->in > 1;
	struct way ways[ROWS(all)];

	for (int i = begin; i < ROWS(all); i++) {
		struct way *way = &ways[i];
		double there, and_back;

		way_open(way, stem, batch, all[i], type);
		there = microseconds(way, forward);
		and_back = microseconds(way, back);
		array_fetch(&way->y);
		array_fetch(&way->dw);
		array_fetch(&way->db);
		compare(way, &ways[begin]);
		printf("# stem: %s, %s, batch %zu, %s %d channel%s: %.1f us forwards, %.1f us "
		       "back\n",
		       stem->name, arrays_name(type), batch, all[i] ? "cuDNN on" : "own kernels,",
		       all[i] ? all[i] : stem->in, all[i] > 1 ? "s" : "", there, and_back);
	}
	for (int i = begin; i < ROWS(all); i++)
		way_close(&ways[i]);
	array_row("%s: %s, batch %zu, all ways give the same", stem->name, arrays_name(type),
		  batch);
}

int main(void)
{
	static const size_t batches[] = {64, 128, 512};
	static const enum ddp_type types[] = {DDP_BF16, DDP_F32};

	if (!arrays_begin("the first convolution"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	arrays_check(layers_open(&layers, arrays_device, &error), &error);
	for (int s = 0; s < ROWS(stems); s++)
		for (int t = 0; t < ROWS(types); t++)
			for (int b = 0; b < (emulated() ? 1 : ROWS(batches)); b++)
				test_stem(&stems[s], emulated() ? 3 : batches[b], types[t]);
	layers_close(layers);
	return arrays_end();
}
