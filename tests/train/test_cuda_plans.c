/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_plans.c - plans of convolutions, on a machine without GPUs
 *
 * cuDNN builds plans for a GPU whose properties it gets as text. So cuDNN's heuristics and engines
 * check the graphs, although no plan runs.
 */
#include "config.h"

#include <stdio.h>

#include "cuda/conv-plan.h"
#include "net/graph.h"
#include "net/net.h"
#include "unit.h"

enum { SKIPPED = 77 };

/* --- GPUs ----------------------------------------------------------------------------------- */

static const struct card {
	const char *name;
	int clock, cache; /* clock of the memory; bytes of the L2 cache */
	size_t memory;
} cards[] = {
	{"NVIDIA H100 80GB HBM3", 2619000, 50 << 20, 85029158912},
	{"NVIDIA H200", 3201000, 60 << 20, 150110011392},
};

enum { CARDS = sizeof(cards) / sizeof(cards[0]) };

static struct conv_gpu gpus[CARDS];

/*
 * These keys are the ones that cuDNN 9.19 reads. They are not documented, but cuDNN names missing
 * ones.
 */
static cudnnStatus_t describe_gpu(const struct card *card, struct conv_gpu *gpu)
{
	cudnnBackendDescriptor_t *it = &gpu->properties;
	char text[1024];
	int length = snprintf(
		text, sizeof(text),
		"{\"deviceVer\": 900, \"driverVer\": 13000, \"cudaDeviceId\": 0,"
		" \"multiProcessorCount\": 132, \"smClockRateKHz\": 1980000,"
		" \"memClockRateKHz\": %d, \"l2CacheSize\": %d, \"warpSize\": 32,"
		" \"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64],"
		" \"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448,"
		" \"reservedSharedMemoryPerBlock\": 1024, \"regsPerBlock\": 65536,"
		" \"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, \"maxCtasPerSM\": 32,"
		" \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"isTccDriver\": 0,"
		" \"supportCoopLaunch\": 1, \"totalGlobalMem\": %zu,"
		" \"deviceName\": \"%s\", \"name\": \"%s\"}",
		card->clock, card->cache, card->memory, card->name, card->name);
	cudnnStatus_t status =
		cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, it);

	if (status == CUDNN_STATUS_SUCCESS)
		status = cudnnBackendSetAttribute(*it, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
						  CUDNN_TYPE_CHAR, length, text);
	return status == CUDNN_STATUS_SUCCESS ? cudnnBackendFinalize(*it) : status;
}

/* --- Networks ------------------------------------------------------------------------------- */

static const struct kind {
	const char *name;
	enum ddp_type type;
	bool tf32;
} kinds[] = {
	{"f32", DDP_F32, false},
	{"tf32", DDP_F32, true},
	{"bf16", DDP_BF16, false},
	{"f16", DDP_F16, false},
};

/* Returns the options of a node in the network's table. [batch] is also the test batch. */
static struct layer_options options_of(const struct graph_node *node, const struct kind *kind,
				       bool deterministic, size_t batch)
{
	const struct net_layer *layer = node->layer;

	return (struct layer_options){
		.name = layer->name,
		.height = node->in.height,
		.width = node->in.width,
		.in = node->in.channels,
		.out = node->out.channels,
		.size = layer->size,
		.stride = layer->stride,
		.pad = layer->pad,
		.bias = layer->bias,
		.relu = layer->bias,
		.type = kind->type,
		.tf32 = kind->tf32,
		.deterministic = deterministic,
		.batch = batch,
	};
}

/* Returns how many candidates of [plan] use the same engine as candidate [it]. */
static int count_same(const struct conv_plan *plan, const struct conv_candidate *it)
{
	int count = 0;

	for (int i = 0; i < plan->count; i++)
		count += plan->list[i].engine == it->engine;
	return count;
}

/*
 * There must be a plan with the requested arithmetic that needs no more memory than allowed. If
 * tensor cores are allowed, all plans must use them, except with one channel. An engine has at most
 * two plans. The plan's number must give the same plan again.
 */
static void check_pass(const struct layer_options *options, enum layer_pass pass, const char *kind,
		       const struct card *card, const struct conv_gpu *gpu)
{
	struct conv_problem problem = conv_problem(options, pass, card->memory);
	bool exact = options->type == DDP_F32 && !options->tf32;
	char why[CONV_WHY] = "", title[256], name[512];
	struct conv_plan *plan = conv_plan_create(&problem, gpu, 0, CONV_TRIES, why), *again;
	const struct conv_candidate *it;

	conv_title(&problem, title, sizeof(title));
	snprintf(name, sizeof(name), "%s, %s, %s", card->name, kind, title);
	if (!plan)
		ck_abort_msg("%s: no plan: %s", name, why);
	for (it = plan->list; it < plan->list + plan->count; it++)
		if (it->workspace > problem.workspace || (exact && it->tensor_cores) ||
		    (!exact && options->in > 1 && !it->tensor_cores) || it->slow ||
		    count_same(plan, it) > CONV_SAME)
			ck_abort_msg("%s: proposal %d of engine %d: %zu bytes of scratch memory, "
				     "tensor cores: %d, slow: %d",
				     name, it->number, it->engine, it->workspace, it->tensor_cores,
				     it->slow);
	again = conv_plan_create(&problem, gpu, it[-1].number, 1, why);
	ck_assert_msg(again && again->count == 1 && again->list[0].number == it[-1].number,
		      "%s: proposal %d is not found again", name, it[-1].number);
	conv_plan_destroy(again);
	conv_plan_destroy(plan);
}

static bool seen(const struct graph *graph, size_t index)
{
	const struct graph_node *node = &graph->nodes[index];

	for (size_t i = 0; i < index; i++) {
		const struct graph_node *other = &graph->nodes[i];

		if (other->layer->kind == NET_CONV &&
		    memcmp(&other->in, &node->in, sizeof(node->in)) == 0 &&
		    memcmp(&other->out, &node->out, sizeof(node->out)) == 0 &&
		    other->layer->size == node->layer->size)
			return true;
	}
	return false;
}

static void check_network(const struct net *net, size_t batch, const struct kind *kind,
			  bool deterministic, int card)
{
	static const enum layer_pass passes[] = {LAYER_FORWARD, LAYER_BACK_DATA,
						 LAYER_BACK_WEIGHTS};
	struct graph *graph = NULL;
	bool first = true;

	ck_assert_int_eq(graph_create(&graph, net, NULL), 0);
	for (size_t i = 0; i < graph->node_count; i++) {
		struct layer_options options;

		if (graph->nodes[i].layer->kind != NET_CONV || seen(graph, i))
			continue;
		options = options_of(&graph->nodes[i], kind, deterministic, batch);
		for (int pass = 0; pass < ROWS(passes); pass++)
			if (!first || passes[pass] != LAYER_BACK_DATA)
				check_pass(&options, passes[pass], kind->name, &cards[card],
					   &gpus[card]);
		first = false;
	}
	graph_destroy(graph);
}

/*
 * Tests with all batch sizes take a minute. By default three sizes are tested: the smallest, a
 * usual one, and the largest usual one.
 */
TEST_ROWS(test_networks, kinds)
{
	struct net *mnist = net_create("mnist", 0), *cifar = net_create("cifar", 0);
	bool all = getenv("DDP_LONG") != NULL;

	for (size_t batch = 4; batch <= 1024; batch *= 2)
		for (int card = 0; card < CARDS; card++) {
			if (!all && (card == 0 ? batch != 128 : batch != 4 && batch != 512))
				continue;
			for (int deterministic = 0; deterministic < 2; deterministic++) {
				check_network(mnist, batch, &kinds[_i], deterministic, card);
				check_network(cifar, batch, &kinds[_i], deterministic, card);
			}
		}
	net_destroy(mnist);
	net_destroy(cifar);
}

/* --- Rejected proposals --------------------------------------------------------------------- */

static struct layer_options layer1(enum ddp_type type)
{
	return (struct layer_options){.name = "layer1",
				      .height = 32,
				      .width = 32,
				      .in = 64,
				      .out = 64,
				      .size = 3,
				      .stride = 1,
				      .pad = 1,
				      .type = type,
				      .batch = 512};
}

TEST(test_scratch_is_limited)
{
	struct layer_options options = layer1(DDP_F32);
	struct conv_problem large = conv_problem(&options, LAYER_BACK_DATA, (size_t)64 << 30);
	struct conv_problem small = conv_problem(&options, LAYER_BACK_DATA, (size_t)1 << 30);
	struct conv_plan *plans[2];
	char why[CONV_WHY];

	ck_assert_uint_eq(small.workspace, (size_t)128 << 20);
	plans[0] = conv_plan_create(&large, &gpus[0], 0, 1, why);
	plans[1] = conv_plan_create(&small, &gpus[0], 0, 1, why);
	ck_assert(plans[0] && plans[1]);
	ck_assert_uint_gt(plans[0]->list[0].workspace, small.workspace);
	ck_assert_uint_le(plans[1]->list[0].workspace, small.workspace);
	ck_assert(!conv_is_same(&large, &small));
	conv_plan_destroy(plans[0]);
	conv_plan_destroy(plans[1]);
}

/* cuDNN has only slow engines for the gradient of weights over 2^32 elements. */
TEST_LOOP(test_slow, 0, 2)
{
	struct layer_options options = layer1(DDP_BF16);
	struct conv_problem problem;
	char why[CONV_WHY];
	struct conv_plan *plan;

	options.batch = _i == 0 ? 16384 : 65536;
	problem = conv_problem(&options, LAYER_BACK_WEIGHTS, cards[1].memory);
	plan = conv_plan_create(&problem, &gpus[1], 0, 1, why);
	ck_assert_msg(plan != NULL, "%s", why);
	ck_assert_int_eq(plan->list[0].slow, _i);
	conv_plan_destroy(plan);
}

/* After conv_plan_keep(), the list has only the plan that was kept. */
TEST(test_keep)
{
	struct layer_options options = layer1(DDP_BF16);
	struct conv_problem problem = conv_problem(&options, LAYER_FORWARD, (size_t)64 << 30);
	char why[CONV_WHY];
	struct conv_plan *plan = conv_plan_create(&problem, &gpus[1], 0, CONV_TRIES, why);
	int last;

	ck_assert_ptr_nonnull(plan);
	ck_assert_int_gt(plan->count, CONV_SAME);
	last = plan->list[plan->count - 1].number;
	conv_plan_keep(plan, plan->count - 1);
	ck_assert_int_eq(plan->count, 1);
	ck_assert_int_eq(plan->list[0].number, last);
	conv_plan_destroy(plan);
}

TEST(test_bad_graph_is_reported)
{
	struct layer_options options = layer1(DDP_BF16);
	struct conv_problem problem = conv_problem(&options, LAYER_FORWARD, (size_t)64 << 30);
	char why[CONV_WHY] = "";

	options.pad = -1;
	ck_assert_ptr_null(conv_plan_create(&problem, &gpus[1], 0, CONV_TRIES, why));
	ck_assert_msg(strstr(why, "CUDNN_STATUS_"), "%s", why);
}

/* --- Layers of equal shape ------------------------------------------------------------------- */

static const struct {
	const char *name;
	enum layer_pass passes[2];
	size_t test_batch;
	bool bias, relu, tf32; /* options of the second layer */
	bool same;
} pairs[] = {
	{"twice the same", {LAYER_FORWARD, LAYER_FORWARD}, 0, false, false, false, true},
	{"a test of the same batch", {LAYER_FORWARD, LAYER_TEST}, 512, false, false, false, true},
	{"a test of another batch", {LAYER_FORWARD, LAYER_TEST}, 100, false, false, false, false},
	{"two passes", {LAYER_FORWARD, LAYER_BACK_DATA}, 0, false, false, false, false},
	{"a bias", {LAYER_FORWARD, LAYER_FORWARD}, 0, true, false, false, false},
	{"a bias, backwards", {LAYER_BACK_DATA, LAYER_BACK_DATA}, 0, true, true, false, true},
	{"a ReLU without bias is no part",
	 {LAYER_FORWARD, LAYER_FORWARD},
	 0,
	 false,
	 true,
	 false,
	 true},
	{"tf32", {LAYER_FORWARD, LAYER_FORWARD}, 0, false, false, true, false},
};

TEST_ROWS(test_same, pairs)
{
	struct layer_options one = layer1(DDP_F32), other = one;
	struct conv_problem problems[2];

	other.name = "layer2";
	other.test_batch = pairs[_i].test_batch;
	other.bias = pairs[_i].bias;
	other.relu = pairs[_i].relu;
	other.tf32 = pairs[_i].tf32;
	problems[0] = conv_problem(&one, pairs[_i].passes[0], (size_t)1 << 30);
	problems[1] = conv_problem(&other, pairs[_i].passes[1], (size_t)1 << 30);
	unit_number(pairs[_i].name, "same", conv_is_same(&problems[0], &problems[1]),
		    pairs[_i].same);
	unit_number(pairs[_i].name, "same", conv_is_same(&problems[1], &problems[0]),
		    pairs[_i].same);
}

/*
 * cuDNN loads its engines on first use, which is slow. Load them once, before Check forks the
 * tests.
 */
static void load_engines(void)
{
	struct layer_options options = layer1(DDP_F16);
	struct conv_problem problem = conv_problem(&options, LAYER_FORWARD, 0);
	char why[CONV_WHY];

	conv_plan_destroy(conv_plan_create(&problem, &gpus[0], 0, 1, why));
}

int main(void)
{
	int failed;

	for (int i = 0; i < CARDS; i++) {
		cudnnStatus_t status = describe_gpu(&cards[i], &gpus[i]);

		if (status != CUDNN_STATUS_SUCCESS) {
			printf("%s: %s\n", cards[i].name, cudnnGetErrorString(status));
			return cudnnGetVersion() / 100 != 919 ? SKIPPED : EXIT_FAILURE;
		}
	}
	load_engines();
	failed = unit_run("cuda_plans", NULL);
	for (int i = 0; i < CARDS; i++)
		cudnnBackendDestroyDescriptor(gpus[i].properties);
	return failed;
}
