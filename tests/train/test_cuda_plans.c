/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of convolutions, for GPUs that are not there
 *
 * cuDNN builds plans for the properties of a GPU, given as text: so graphs are seen by its heuristics and engines
 * here, though nothing runs. And plans as text, which need neither.
 */
#include "config.h"

#include <stdio.h>

#include "cuda/conv-plan.h"
#include "net/graph.h"
#include "net/net.h"
#include "unit.h"

enum { SKIPPED = 77, LIST = 4 };

/* --- GPUs ----------------------------------------------------------------------------------- */

static const struct card {
	const char *name;
	int clock, cache; /* of the memory; bytes of level 2 */
	size_t memory;
} cards[] = {
	{"NVIDIA H100 80GB HBM3", 2619000, 50 << 20, 85029158912},
	{"NVIDIA H200", 3201000, 60 << 20, 150110011392},
};

enum { CARDS = sizeof(cards) / sizeof(cards[0]) };

static struct conv_gpu gpus[CARDS];

/* As cuDNN 9.19 reads them; the names are not documented: cuDNN says which it misses. */
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

/* --- Our networks --------------------------------------------------------------------------- */

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

/* By the network's tables; [batch] is also that of tests. */
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

/*
 * There is a plan that is not cuDNN's last resort, and with tensor cores where nothing is timed and they may be used:
 * not with one channel. It can be built, and built again from its text.
 */
static void check_pass(const struct layer_options *options, enum layer_pass pass, const char *kind,
		       const struct card *card, const struct conv_gpu *gpu)
{
	struct conv_problem problem = conv_problem(options, pass, card->memory);
	bool exact = options->type == DDP_F32 && !options->tf32;
	char list[LIST][PLANS_PLAN], why[CONV_WHY] = "", title[256], name[512];
	int count = conv_propose(&problem, gpu, list, LIST, why);
	struct conv_plan *plan;

	conv_title(&problem, title, sizeof(title));
	snprintf(name, sizeof(name), "%s, %s, %s", card->name, kind, title);
	if (count == 0)
		ck_abort_msg("%s: no plan: %s", name, why);
	if (strtol(list[0], NULL, 10) == 0)
		ck_abort_msg("%s: only engine 0 within %zu MiB", name, problem.workspace >> 20);
	plan = conv_plan_create(&problem, gpu, list[0], why);
	if (!plan)
		ck_abort_msg("%s: %s: %s", name, list[0], why);
	if (plan->workspace > problem.workspace || (exact && plan->tensor_cores) ||
	    (options->deterministic && !exact && options->in > 1 && !plan->tensor_cores))
		ck_abort_msg("%s: %s: %zu bytes of scratch memory, tensor cores: %d", name, list[0],
			     plan->workspace, plan->tensor_cores);
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

/* All batches take a minute: else the least, a usual one and the largest usual one. */
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

/* --- What may not be taken ------------------------------------------------------------------ */

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

/* Of a rank that may have little memory. */
TEST(test_scratch_is_limited)
{
	struct layer_options options = layer1(DDP_F32);
	struct conv_problem large = conv_problem(&options, LAYER_BACK_DATA, (size_t)64 << 30);
	struct conv_problem small = conv_problem(&options, LAYER_BACK_DATA, (size_t)1 << 30);
	struct device_info info = {.major = 9};
	char list[LIST][PLANS_PLAN], why[CONV_WHY], keys[2][PLANS_KEY];

	ck_assert_uint_eq(small.workspace, (size_t)128 << 20);
	ck_assert_int_gt(conv_propose(&large, &gpus[0], list, LIST, why), 0);
	ck_assert_ptr_null(conv_plan_create(&small, &gpus[0], list[0], why));
	ck_assert_msg(strstr(why, "bytes of scratch memory"), "%s", why);
	ck_assert_int_gt(conv_propose(&small, &gpus[0], list, LIST, why), 0);
	ck_assert_int_eq(strtol(list[0], NULL, 10), 0);
	conv_key(&large, &info, false, keys[0]);
	conv_key(&small, &info, false, keys[1]);
	ck_assert_str_ne(keys[0], keys[1]);
}

TEST(test_tf32_is_refused)
{
	struct layer_options tf32 = layer1(DDP_F32), exact = tf32;
	struct conv_problem problem, other;
	char list[LIST][PLANS_PLAN], why[CONV_WHY];

	tf32.tf32 = true;
	problem = conv_problem(&tf32, LAYER_FORWARD, (size_t)64 << 30);
	other = conv_problem(&exact, LAYER_FORWARD, (size_t)64 << 30);
	ck_assert_int_gt(conv_propose(&problem, &gpus[1], list, LIST, why), 0);
	ck_assert_ptr_null(conv_plan_create(&other, &gpus[1], list[0], why));
	ck_assert_msg(strstr(why, "arithmetic"), "%s", why);
}

static const char *const nonsense[] = {"9999",	   "0 43:1", "28 2:12345 3:999", "0 5000:1", "",
				       "whole 28", "28 2",   "28 slow"};

TEST_ROWS(test_nonsense_is_refused, nonsense)
{
	struct layer_options options = layer1(DDP_BF16);
	struct conv_problem problem = conv_problem(&options, LAYER_FORWARD, (size_t)64 << 30);
	char why[CONV_WHY] = "";

	ck_assert_ptr_null(conv_plan_create(&problem, &gpus[1], nonsense[_i], why));
	ck_assert_msg(strstr(why, "CUDNN_STATUS_"), "%s: %s", nonsense[_i], why);
}

TEST(test_bad_graph_is_told)
{
	struct layer_options options = layer1(DDP_BF16);
	struct conv_problem problem = conv_problem(&options, LAYER_FORWARD, (size_t)64 << 30);
	char list[LIST][PLANS_PLAN], why[CONV_WHY] = "";

	options.pad = -1;
	ck_assert_int_eq(conv_propose(&problem, &gpus[1], list, LIST, why), 0);
	ck_assert_msg(strstr(why, "CUDNN_STATUS_"), "%s", why);
}

/* --- Text ----------------------------------------------------------------------------------- */

static const struct {
	const char *name, *pass, *key;
	enum ddp_type type;
	bool tf32, deterministic, shared;
} keys[] = {
	{"bf16", "forward",
	 "forward 512x32x32x64 to 64, 3x3, stride 1, pad 1, bias, ReLU; BF16; sm_90, cuDNN ",
	 DDP_BF16, false, false, false},
	{"tf32 is of f32 alone", "forward",
	 "forward 512x32x32x64 to 64, 3x3, stride 1, pad 1, bias, ReLU; F16; sm_90, cuDNN ",
	 DDP_F16, true, false, false},
	{"tf32", "forward",
	 "forward 512x32x32x64 to 64, 3x3, stride 1, pad 1, bias, ReLU; F32 as tf32; sm_90 "
	 "shared, cuDNN ",
	 DDP_F32, true, false, true},
	{"backwards there is no bias", "back-data",
	 "back-data 512x32x32x64 to 64, 3x3, stride 1, pad 1; BF16, deterministic; sm_90, cuDNN ",
	 DDP_BF16, false, true, false},
};

TEST_ROWS(test_key, keys)
{
	struct layer_options options = layer1(keys[_i].type);
	struct device_info info = {.major = 9};
	struct conv_problem problem;
	char key[PLANS_KEY];

	options.bias = options.relu = true;
	options.tf32 = keys[_i].tf32;
	options.deterministic = keys[_i].deterministic;
	problem = conv_problem(&options, *keys[_i].pass == 'f' ? LAYER_FORWARD : LAYER_BACK_DATA,
			       (size_t)1 << 30);
	conv_key(&problem, &info, keys[_i].shared, key);
	ck_assert_msg(strncmp(key, keys[_i].key, strlen(keys[_i].key)) == 0, "%s", key);
	ck_assert_msg(strcmp(key + strlen(key) - strlen(", 128 MiB"), ", 128 MiB") == 0, "%s", key);
}

/* [plan] is what is found; NULL: nothing. */
static const struct {
	const char *name, *taken, *known, *key, *plan;
} finds[] = {
	{"nothing is known", NULL, NULL, "k", NULL},
	{"nothing is known yet", NULL, "", "k", NULL},
	{"with knobs", NULL, "conv2.forward=k: 38 2:1 13:64\n", "k", "38 2:1 13:64"},
	{"of another layer", NULL, "a=k: 1\nb.back-data=l: 2\n", "l", "2"},
	{"the last is the newest", NULL, "a=k: 1\nb=k: 2\n", "k", "2"},
	{"what this run took counts", "a=k: 1\n", "a=k: 2\n", "k", "1"},
	{"without the last line's end", NULL, "a=k: 3", "k", "3"},
	{"a key that begins so", NULL, "a=kk: 1\n", "k", NULL},
	{"a key in a name", NULL, "k: 1\n", "k", NULL},
	{"a key in another line", NULL, "a\n=k: 1\n", "k", "1"},
	{"a damaged line hides none", NULL, "a=k: 1\nb=k: \nc=k\n", "k", "1"},
	{"choices of CPUs", NULL, "conv2 forward winograd, conv2 gradients list", "conv2", NULL},
	{"cut short", NULL, "a=k:", "k", NULL},
};

TEST_ROWS(test_find, finds)
{
	char taken[64] = "", known[64] = "", plan[PLANS_PLAN] = "untouched";
	struct plans plans = {.known = finds[_i].known ? known : NULL,
			      .taken.data = finds[_i].taken ? taken : NULL};
	bool found;

	snprintf(taken, sizeof(taken), "%s", finds[_i].taken ? finds[_i].taken : "");
	snprintf(known, sizeof(known), "%s", finds[_i].known ? finds[_i].known : "");
	found = plans_find(&plans, finds[_i].key, plan);
	unit_number(finds[_i].name, "found", found, finds[_i].plan != NULL);
	unit_text(finds[_i].name, "plan", plan, finds[_i].plan ? finds[_i].plan : "untouched");
}

TEST(test_take)
{
	struct memo memo = {NULL, false};
	struct plans plans = {.memo = &memo};
	char plan[PLANS_PLAN];

	memo_add(&memo, "k", "5");
	memo_add(&memo, "l", "6");
	plans_take(&plans, "a.forward", "k", "1 2:3");
	plans_take(&plans, "b.forward", "k", "7");
	plans_take(&plans, "b.test", "l", "4 busy");
	ck_assert_str_eq(plans.taken.data, "a.forward=k: 1 2:3\nb.test=l: 4 busy\n");
	ddp_text_free(&plans.taken);
	ck_assert(plans_find(&plans, "k", plan));
	ck_assert_str_eq(plan, "1 2:3");
	/* One that was timed on a busy GPU replaces none. */
	ck_assert(plans_find(&plans, "l", plan));
	ck_assert_str_eq(plan, "6");
	ck_assert(!plans_find(&plans, "m", plan));
	free(memo.text);
}

/* cuDNN loads its engines when it is first asked: once here, and not in the process of each test. */
static void load_engines(void)
{
	struct layer_options options = layer1(DDP_F16);
	struct conv_problem problem = conv_problem(&options, LAYER_FORWARD, 0);
	char list[1][PLANS_PLAN], why[CONV_WHY];

	conv_propose(&problem, &gpus[0], list, 1, why);
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
