/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.c - times the backward pass of mnist's second convolution with lists and with oneDNN
 *
 *     kernels f32|bf16 ROUNDS
 *
 * For bench-kernels. In each round every side runs once. Prints a line for each side: name, pass,
 * and the median in milliseconds. A batch has 64 images. One in seven of the convolution's
 * gradients is not zero, as with initial weights and dropout.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/kernels.h"
#include "cpu/math.h"

enum { BATCH = 64, LINE = 64, SIDES = 32, ROUNDS = 1000 };

static const struct kernel_window window = {26, 26, 32, 64, 3};

struct bench {
	enum ddp_type type;
	const struct kernels *kernels;
	const struct math *math;
	struct math_layer *layer;
	struct kernel_list *list;
	void *x, *dx, *y;
	void *dy, *pooled; /* dense gradient; the same gradient after max-pooling */
	uint8_t *which, *keep;
	float *weights, *gradient, *bias;
};

struct side {
	char name[64];
	const char *pass;
	int (*run)(struct bench *bench, int number);
	int number; /* number of one of oneDNN's algorithms */
	double times[ROUNDS];
};

static void fail(const char *text)
{
	fprintf(stderr, "kernels: %s\n", text);
	exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static void *memory(size_t bytes)
{
	void *memory = aligned_alloc(LINE, (bytes + LINE) / LINE * LINE);

	if (!memory)
		fail("out of memory");
	return memset(memory, 0, (bytes + LINE) / LINE * LINE);
}

/* Returns random numbers between -1 and 1, plus [middle]. */
static void *numbers(const struct bench *bench, size_t count, float middle)
{
	float *wide = memory(count * sizeof(*wide));
	void *array = memory(count * sizeof(*wide));

	for (size_t i = 0; i < count; i++)
		wide[i] = (float)rand() / (float)RAND_MAX * 2 - 1 + middle;
	bench->kernels->narrow(wide, array, count, bench->type);
	free(wide);
	return array;
}

static int run_list(struct bench *bench, int number)
{
	(void)number;
	bench->kernels->list(&window, BATCH, bench->pooled, bench->y, bench->which, bench->keep,
			     4.0f / 3, bench->list, bench->bias, bench->type);
	return 0;
}

static int run_list_weights(struct bench *bench, int number)
{
	(void)number;
	bench->kernels->list_weights(&window, bench->list, BATCH, bench->x, bench->gradient,
				     bench->type);
	return 0;
}

static int run_list_data(struct bench *bench, int number)
{
	(void)number;
	bench->kernels->list_data(&window, bench->list, BATCH, bench->weights, NULL, bench->dx,
				  bench->type);
	return 0;
}

static int run_pool_back(struct bench *bench, int number)
{
	(void)number;
	bench->kernels->max_pool_back(bench->pooled, bench->which, bench->dy, BATCH, 24, 24, 64,
				      bench->type);
	return 0;
}

static int run_weights(struct bench *bench, int number)
{
	int status = bench->math->choose(bench->layer, MATH_BACK_WEIGHTS, number, NULL);

	return status < 0 ? status
			  : bench->math->back_weights(bench->layer, BATCH, bench->x, bench->dy,
						      bench->gradient, bench->bias, NULL);
}

static int run_data(struct bench *bench, int number)
{
	int status = bench->math->choose(bench->layer, MATH_BACK_DATA, number, NULL);

	return status < 0 ? status
			  : bench->math->back_data(bench->layer, BATCH, bench->dy, bench->dx, NULL);
}

static void bench_open(struct bench *bench)
{
	const struct math_options options = {26,    26,	  32,	64,    3,	    1,	   0,
					     false, true, true, false, bench->type, BATCH, 1};
	size_t read = (size_t)BATCH * 26 * 26 * 32, pooled = (size_t)BATCH * 144 * 64;
	struct ddp_error error = {0};

	bench->kernels = kernels_choose(&error);
	if (!bench->kernels || kernel_list_create(&bench->list, &window, BATCH, &error) < 0)
		fail(error.text);
	bench->math =
		ddp_module_open("onednn", "math", MATH_VERSION, sizeof(*bench->math), NULL, &error);
	if (!bench->math || !bench->math->has(bench->type, &error) ||
	    bench->math->create(&bench->layer, &options, &error) < 0)
		fail(error.text);
	bench->x = numbers(bench, read, 0);
	bench->dx = numbers(bench, read, 0);
	bench->dy = numbers(bench, pooled * 4, 0);
	bench->pooled = numbers(bench, pooled, 0);
	bench->y = numbers(bench, pooled, 0.5f);
	bench->which = memory(pooled);
	bench->keep = memory(pooled / 8);
	for (size_t i = 0; i < pooled; i++) {
		bench->which[i] = (uint8_t)(rand() >> 4 & 3);
		if (rand() >> 4 & 3)
			bench->keep[i / 8] = (uint8_t)(bench->keep[i / 8] | 1 << i % 8);
	}
	bench->weights = memory((size_t)64 * 288 * sizeof(float));
	bench->gradient = memory((size_t)64 * 288 * sizeof(float));
	bench->bias = memory(64 * sizeof(float));
	if (bench->math->load(bench->layer, bench->weights, bench->bias, &error) < 0)
		fail(error.text);
}

static void side_add(struct side *sides, int *count, const char *name, const char *pass,
		     int (*run)(struct bench *bench, int number), int number)
{
	struct side *side = &sides[*count];

	if (*count == SIDES)
		fail("oneDNN has more algorithms than expected");
	snprintf(side->name, sizeof(side->name), "%s", name);
	side->pass = pass;
	side->run = run;
	side->number = number;
	++*count;
}

static int sides_fill(struct side *sides, const struct bench *bench)
{
	const struct math *math = bench->math;
	int count = 0;

	side_add(sides, &count, "list", "find", run_list, 0);
	side_add(sides, &count, "list", "weights", run_list_weights, 0);
	side_add(sides, &count, "list", "data", run_list_data, 0);
	side_add(sides, &count, "dense", "find", run_pool_back, 0);
	for (int i = 0; i < math->algorithms(bench->layer, MATH_BACK_WEIGHTS); i++)
		side_add(sides, &count, math->algorithm(bench->layer, MATH_BACK_WEIGHTS, i),
			 "weights", run_weights, i);
	for (int i = 0; i < math->algorithms(bench->layer, MATH_BACK_DATA); i++)
		side_add(sides, &count, math->algorithm(bench->layer, MATH_BACK_DATA, i), "data",
			 run_data, i);
	return count;
}

static int later(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) -
	       (*(const double *)a < *(const double *)b);
}

int main(int argc, char **argv)
{
	static struct side sides[SIDES];
	struct bench bench = {0};
	int rounds = argc == 3 ? atoi(argv[2]) : 0, count;

	if (rounds < 1 || rounds > ROUNDS)
		fail("usage: kernels f32|bf16 ROUNDS");
	bench.type = strcmp(argv[1], "bf16") == 0 ? DDP_BF16 : DDP_F32;
	bench_open(&bench);
	count = sides_fill(sides, &bench);
	for (int round = -1; round < rounds; round++) /* the first round is not counted */
		for (int i = 0; i < count; i++) {
			double begin = now();

			if (sides[i].run(&bench, sides[i].number) < 0)
				fail(sides[i].name);
			if (round >= 0)
				sides[i].times[round] = now() - begin;
		}
	printf("# %s, kernels for %s; %zu of %d gradients are not zero\n", bench.math->describe(),
	       bench.kernels->name, kernel_list_count(bench.list), BATCH * 576 * 64);
	for (int i = 0; i < count; i++) {
		qsort(sides[i].times, (size_t)rounds, sizeof(double), later);
		printf("%s %s %.4f\n", sides[i].name, sides[i].pass, sides[i].times[rounds / 2]);
	}
	return 0;
}
