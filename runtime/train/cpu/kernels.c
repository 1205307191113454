/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - choose the kernels, allocate lists for convolutions, and compute the loss */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "kernels.h"

/* number of bytes of an image that stay in the first-level cache while all channels are computed */
enum { BAND = 34 << 10 };

const struct kernels *const kernels_tables[DDP_SIMD_COUNT] = {&kernels_plain, &kernels_avx2,
							      &kernels_avx512};

const struct kernels *kernels_choose(struct ddp_error *error)
{
	enum ddp_simd simd;

	return ddp_simd_choose(&simd, error) < 0 ? NULL : kernels_tables[simd];
}

/* --- Lists ---------------------------------------------------------------------------------- */

bool kernels_has_list(const struct kernel_window *window)
{
	return window->size == 3 && window->in > 0 && window->in % 16 == 0 && window->out > 0 &&
	       window->height > 3 && window->width > 3 &&
	       (uint64_t)window->height * (uint64_t)window->width * (uint64_t)window->in <
		       UINT32_MAX;
}

/* Allocates zeroed memory aligned to cache lines: access to a vector across two lines is slow. */
static void *list_memory(size_t count, size_t size)
{
	return ddp_xaligned(count * size, "a list of gradients");
}

static void list_place(struct kernel_list *list, const struct kernel_window *window)
{
	size_t row = (size_t)window->width * (size_t)window->in * sizeof(float);
	size_t fit = BAND / row;

	list->rows = (size_t)(window->height - 2) / 2;
	list->columns = (size_t)(window->width - 2) / 2;
	list->pitch = KERNEL_WHOLE(window->out);
	list->words = (list->pitch + KERNEL_WORD - 1) / KERNEL_WORD;
	list->band = fit < 4 ? 1 : (fit - 2) / 2;
	list->channel_size = KERNEL_WHOLE(list->band * list->columns);
}

struct kernel_list *kernel_list_create(const struct kernel_window *window, size_t images)
{
	size_t image = (size_t)window->height * (size_t)window->width * (size_t)window->in;
	struct kernel_list *list = ddp_xcalloc(1, sizeof(*list), "a list of gradients");
	size_t pixels;

	list_place(list, window);
	pixels = images * list->rows * list->columns;
	list->values = list_memory(pixels * list->pitch, sizeof(*list->values));
	list->bits = list_memory(pixels * list->words * 4, sizeof(*list->bits));
	list->pixels = list_memory(list->rows * list->columns, sizeof(*list->pixels));
	list->image = list_memory(image, sizeof(*list->image));
	list->weights = list_memory((size_t)window->out * 9 * (size_t)window->in, sizeof(float));
	list->channel = list_memory(list->pitch * list->channel_size, sizeof(*list->channel));
	list->place = list_memory(list->pitch * list->channel_size, sizeof(*list->place));
	list->filled = list_memory(list->pitch, sizeof(*list->filled));
	for (size_t p = 0; p < list->rows * list->columns; p++)
		list->pixels[p] = (int32_t)(2 * (p / list->columns) * (size_t)window->width +
					    2 * (p % list->columns));
	return list;
}

void kernel_list_destroy(struct kernel_list *list)
{
	if (!list)
		return;
	free(list->filled);
	free(list->place);
	free(list->channel);
	free(list->weights);
	free(list->pixels);
	free(list->image);
	free(list->bits);
	free(list->values);
	free(list);
}

/* --- Loss ----------------------------------------------------------------------------------- */

/* Index of the first of the largest values. NaN is larger than all numbers. */
static size_t row_largest(const float *row, size_t classes)
{
	size_t best = 0;

	for (size_t k = 1; k < classes; k++)
		if (row[k] > row[best] || (isnan(row[k]) && !isnan(row[best])))
			best = k;
	return best;
}

/* Computes the loss of one row in f64. For few classes, the cost of f64 does not matter. */
static double row_loss(const float *row, size_t label, size_t classes, double smoothing,
		       double scale, float *gradient, uint64_t *hits)
{
	size_t best = row_largest(row, classes);
	double top = (double)row[best], sum = 0, mean = 0, log_sum;

	for (size_t k = 0; k < classes; k++) {
		sum += exp((double)row[k] - top);
		mean += ((double)row[k] - top) / (double)classes;
	}
	log_sum = log(sum);
	for (size_t k = 0; k < classes && gradient; k++) {
		double want = smoothing / (double)classes + (k == label ? 1 - smoothing : 0);

		gradient[k] = (float)(scale * (exp((double)row[k] - top - log_sum) - want));
	}
	*hits += best == label;
	return log_sum - (1 - smoothing) * ((double)row[label] - top) -
	       (smoothing > 0 ? smoothing * mean : 0);
}

double kernels_loss(const float *logits, const int32_t *labels, size_t count, size_t classes,
		    float smoothing, float scale, float *gradient, uint64_t *hits)
{
	double loss = 0;

	for (size_t i = 0; i < count; i++)
		loss += row_loss(logits + i * classes, (size_t)labels[i], classes,
				 (double)smoothing, (double)scale,
				 gradient ? gradient + i * classes : NULL, hits);
	return loss;
}
