/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convolutions.c - time of each algorithm of the convolutions of a network, for the rule in
 * train/cpu/choose.c
 *
 *     convolutions NET BATCH f32|bf16 [THREADS]
 *
 * Prints a line for each shape and pass: input, outputs, window, stride, pass, and milliseconds of
 * each algorithm, of which the shortest run counts. An asterisk marks the rule's choice. To measure
 * another CPU, set DNNL_MAX_CPU_ISA to AVX2, AVX512_CORE or AVX512_CORE_BF16.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/watch.h"
#include "base/xalloc.h"
#include "cpu/engine-private.h"

enum { RUNS = 5 };

struct bench {
	const struct math *math;
	struct math_options options;
	struct math_layer *layer;
	void *x, *y;
	float *weights, *gradients, *bias;
};

static void must(bool done, const struct ddp_error *error)
{
	if (done)
		return;
	fprintf(stderr, "convolutions: %s\n", error->text);
	exit(EXIT_FAILURE);
}

/* CPU time, which other processes do not change, or wall time if threads wait for each other. */
static double seconds(int threads)
{
	struct timespec now;

	if (threads > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) < 0)
		return ddp_seconds();
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run_pass(const struct bench *bench, enum math_pass pass)
{
	const struct math *math = bench->math;
	size_t count = bench->options.batch;
	struct ddp_error error;
	int status;

	if (pass == MATH_FORWARD)
		status = math->forward(bench->layer, count, bench->x, bench->y, &error);
	else if (pass == MATH_BACK_DATA)
		status = math->back_data(bench->layer, count, bench->y, bench->x, &error);
	else
		status = math->back_weights(bench->layer, count, bench->x, bench->y,
					    bench->gradients, bench->bias, &error);
	must(status == 0, &error);
}

static double shortest(const struct bench *bench, enum math_pass pass)
{
	double least = 0;

	for (int i = 0; i <= RUNS; i++) {
		double begin = seconds(bench->options.threads), took;

		run_pass(bench, pass);
		took = seconds(bench->options.threads) - begin;
		if (i == 1 || (i > 1 && took < least))
			least = took;
	}
	return least;
}

static void print_pass(const struct bench *bench, enum math_pass pass)
{
	static const char *const names[] = {"forward", "data", "weights"};
	const struct math_options *options = &bench->options;
	int chosen = choose_algorithm(bench->math, bench->layer, options, pass,
				      choose_level(bench->math->describe()));

	printf("%2dx%2dx%-3d -> %-3d %dx%d/%d %-8s", options->height, options->width, options->in,
	       options->out, options->size, options->size, options->stride, names[pass]);
	for (int i = 0; i < bench->math->algorithms(bench->layer, pass); i++) {
		bench->math->choose(bench->layer, pass, i);
		bench->math->load(bench->layer, bench->weights, bench->bias);
		printf(" %s%s %.2f", i == chosen ? "*" : "",
		       bench->math->algorithm(bench->layer, pass, i), 1e3 * shortest(bench, pass));
	}
	puts("");
	fflush(stdout);
}

/* Memory for [count] numbers, all of which are 0.046 in either type. */
static void *filled(size_t count)
{
	void *data = ddp_xcalloc(count, sizeof(float), "a convolution");

	return memset(data, 0x3d, count * sizeof(float));
}

static void print_layer(const struct bench *setup, const struct graph_node *node)
{
	struct bench bench = *setup;
	struct math_options *options = &bench.options;
	const struct net_layer *layer = node->layer;
	size_t weights = (size_t)(layer->size * layer->size * node->in.channels * layer->outputs);
	struct ddp_error error;

	options->height = node->in.height;
	options->width = node->in.width;
	options->in = node->in.channels;
	options->out = node->out.channels;
	options->size = layer->size;
	options->stride = layer->stride > 0 ? layer->stride : 1;
	options->pad = layer->pad;
	options->bias = options->relu = node->bias >= 0;
	options->first = node->input < 0;
	bench.x = filled(options->batch * graph_size(node->in));
	bench.y = filled(options->batch * graph_size(node->out));
	bench.weights = filled(weights);
	bench.gradients = filled(weights);
	bench.bias = filled((size_t)options->out);
	must(bench.math->create(&bench.layer, options, &error) == 0, &error);
	for (enum math_pass pass = MATH_FORWARD; pass < MATH_PASSES; pass++)
		if (pass != MATH_BACK_DATA || !options->first)
			print_pass(&bench, pass);
	bench.math->destroy(bench.layer);
	free(bench.x);
	free(bench.y);
	free(bench.weights);
	free(bench.gradients);
	free(bench.bias);
}

/* Whether an earlier layer has the same shape. */
static bool is_known(const struct graph *graph, const struct graph_node *node)
{
	for (const struct graph_node *one = graph->nodes; one < node; one++)
		if (one->layer->kind == NET_CONV && one->layer->size == node->layer->size &&
		    memcmp(&one->in, &node->in, sizeof(node->in)) == 0 &&
		    memcmp(&one->out, &node->out, sizeof(node->out)) == 0)
			return true;
	return false;
}

int main(int argc, char **argv)
{
	struct bench bench = {.options = {.type = DDP_F32, .threads = 1}};
	struct net *net = argc > 3 ? net_create(argv[1], 0) : NULL;
	struct graph *graph = NULL;
	struct ddp_error error;

	if (!net) {
		fprintf(stderr, "usage: convolutions mnist|cifar BATCH f32|bf16 [THREADS]\n");
		return 2;
	}
	bench.options.batch = strtoul(argv[2], NULL, 10);
	bench.options.type = strcmp(argv[3], "bf16") == 0 ? DDP_BF16 : DDP_F32;
	bench.options.threads = argc > 4 ? atoi(argv[4]) : 1;
	bench.math =
		ddp_module_open("onednn", "math", MATH_VERSION, sizeof(struct math), NULL, &error);
	must(bench.math && bench.math->has(bench.options.type, &error), &error);
	printf("%s, %s, batch %s, %d threads\n", bench.math->describe(), argv[3], argv[2],
	       bench.options.threads);
	must(graph_create(&graph, net, &error) == 0, &error);
	for (size_t i = 0; i < graph->node_count; i++)
		if (graph->nodes[i].layer->kind == NET_CONV && !is_known(graph, &graph->nodes[i]))
			print_layer(&bench, &graph->nodes[i]);
	graph_destroy(graph);
	net_destroy(net);
	return EXIT_SUCCESS;
}
