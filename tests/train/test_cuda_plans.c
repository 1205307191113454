/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of convolutions, for a GPU that is not there
 *
 * cuDNN builds plans for the properties of a GPU, given as text: so the graphs of conv-cudnn-graph.c
 * are seen by its heuristics and engines here, though nothing runs. The properties are an H200's.
 */
#include "config.h"

#include <stdio.h>

#include "cuda/conv-cudnn.h"
#include "net/graph.h"
#include "net/tables.h"
#include "networks.h"
#include "pretend-gpu.h"
#include "unit.h"

enum { SKIPPED = 77, MIB = 1 << 20, LIST = 16 };

static struct parts gpu;
static struct conv_limits limits = {.workspace = (size_t)64 * MIB};

/* Whether this cuDNN takes them: their names are not documented, and of another version they may differ. */
static bool describe_gpu(void)
{
	limits.properties = parts_add(&gpu, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
	parts_set(&gpu, limits.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
		  CUDNN_TYPE_CHAR, (int64_t)strlen(pretend_gpu), pretend_gpu);
	parts_finish(&gpu, limits.properties, "properties");
	return gpu.status == CUDNN_STATUS_SUCCESS;
}

/* --- Our networks --------------------------------------------------------------------------- */

static const struct kind {
	const char *name;
	enum ddp_type type;
	bool tf32, deterministic;
} kinds[] = {
	{"bf16", DDP_BF16, false, false},
	{"f16", DDP_F16, false, false},
	{"tf32", DDP_F32, true, false},
	{"f32", DDP_F32, false, false},
	{"bf16, deterministic", DDP_BF16, false, true},
	{"f32, deterministic", DDP_F32, false, true},
};

static const struct {
	const struct net *net;
	size_t batch;
} runs[] = {
	{&net_mnist, 64},  {&net_mnist, 512}, {&net_mnist, 1000}, {&net_cifar, 64},
	{&net_cifar, 512}, {&like_mnist, 7},  {&residual, 3},
};

static struct conv_options options_of(const struct graph_node *node, const struct kind *kind)
{
	const struct net_layer *layer = node->layer;

	return (struct conv_options){
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
		.deterministic = kind->deterministic,
	};
}

/* A form of a pass: the first proposal is built, and built again from its text. Returns how many there are. */
static int check_form(const struct conv_problem *problem, const char *name)
{
	struct choices_plan list[LIST], found;
	char text[512] = "", words[CHOICES_PLAN], line[CHOICES_PLAN + 16];
	int count = conv_plans(problem, &limits, list, LIST, text, sizeof(text));
	struct conv_plan *plan, *again;

	if (count == 0)
		return 0;
	plan = conv_plan_create(problem, &limits, &list[0], text, sizeof(text));
	ck_assert_msg(plan, "%s: %s", name, text);
	choices_format(&list[0], words);
	snprintf(line, sizeof(line), "a=k: %s\n", words);
	ck_assert_msg(choices_find(line, "k", &found), "%s: %s", name, line);
	again = conv_plan_create(problem, &limits, &found, text, sizeof(text));
	ck_assert_msg(again && again->workspace == plan->workspace, "%s: %s", name, text);
	ck_assert_msg(plan->workspace <= limits.workspace, "%s: %zu", name, plan->workspace);
	conv_plan_destroy(plan);
	conv_plan_destroy(again);
	return count;
}

/* There is a plan in one form or the other; and one that does the bias, which is what makes it fast. */
static void check_pass(const struct conv_options *options, enum conv_pass pass, size_t batch,
		       const char *kind)
{
	struct conv_problem problem = {options, pass, batch, true};
	char name[320];
	int whole, pieces = 0;

	conv_title(&problem, name, sizeof(name));
	whole = check_form(&problem, name);
	problem.whole = false;
	if (conv_has_pieces(options, pass))
		pieces = check_form(&problem, name);
	ck_assert_msg(whole + pieces > 0, "%s, %s: no plan", kind, name);
	if (pass == CONV_FORWARD && options->in % 8 == 0)
		ck_assert_msg(whole > 0, "%s, %s: no plan that does all", kind, name);
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

static void check_network(const struct net *net, size_t batch, const struct kind *kind)
{
	struct graph *graph = NULL;

	ck_assert_int_eq(graph_create(&graph, net, NULL), 0);
	for (size_t i = 0; i < graph->node_count; i++) {
		struct conv_options options;

		if (graph->nodes[i].layer->kind != NET_CONV || seen(graph, i))
			continue;
		options = options_of(&graph->nodes[i], kind);
		for (int pass = 0; pass < CONV_PASSES; pass++)
			if (pass != CONV_TEST)
				check_pass(&options, (enum conv_pass)pass, batch, kind->name);
	}
	graph_destroy(graph);
}

START_TEST(test_networks)
{
	for (int i = 0; i < ROWS(runs); i++)
		check_network(runs[i].net, runs[i].batch, &kinds[_i]);
}
END_TEST

/* --- What may not be taken ------------------------------------------------------------------ */

static struct conv_options layer1(enum ddp_type type)
{
	return (struct conv_options){.name = "layer1",
				     .height = 32,
				     .width = 32,
				     .in = 64,
				     .out = 64,
				     .size = 3,
				     .stride = 1,
				     .pad = 1,
				     .type = type};
}

/* Proposals for [wide] options of which those for [narrow] ones lack some: building these is refused. */
static void check_refusals(const struct conv_options *wide, const struct conv_options *narrow,
			   enum conv_pass pass)
{
	struct conv_problem all = {wide, pass, 512, true}, few = {narrow, pass, 512, true};
	struct choices_plan list[LIST];
	char text[512] = "";
	int refused = 0, count = conv_plans(&all, &limits, list, LIST, text, sizeof(text));

	ck_assert_int_gt(count, 0);
	for (int i = 0; i < count; i++) {
		struct conv_plan *plan =
			conv_plan_create(&few, &limits, &list[i], text, sizeof(text));

		if (!plan && strstr(text, "arithmetic"))
			refused++;
		conv_plan_destroy(plan);
	}
	ck_assert_msg(refused > 0, "all %d may be taken", count);
	count = conv_plans(&few, &limits, list, LIST, text, sizeof(text));
	ck_assert_msg(count > 0, "none may be taken: %s", text);
	for (int i = 0; i < count; i++) {
		struct conv_plan *plan =
			conv_plan_create(&few, &limits, &list[i], text, sizeof(text));

		ck_assert_msg(plan || !strstr(text, "arithmetic"), "%s", text);
		conv_plan_destroy(plan);
	}
}

START_TEST(test_tf32_is_refused)
{
	struct conv_options exact = layer1(DDP_F32), tf32 = exact;

	tf32.tf32 = true;
	check_refusals(&tf32, &exact, CONV_FORWARD);
}
END_TEST

START_TEST(test_nondeterministic_is_refused)
{
	struct conv_options any = layer1(DDP_F32), same = any;

	same.deterministic = true;
	check_refusals(&any, &same, CONV_BACK_WEIGHTS);
}
END_TEST

START_TEST(test_scratch_is_limited)
{
	struct conv_options options = layer1(DDP_BF16);
	struct conv_problem problem = {&options, CONV_BACK_WEIGHTS, 512, false};
	struct conv_limits none = {.properties = limits.properties};
	struct choices_plan list[LIST];
	char text[512] = "";
	int more = 0, count = conv_plans(&problem, &limits, list, LIST, text, sizeof(text));

	for (int i = 0; i < count; i++) {
		struct conv_plan *plan =
			conv_plan_create(&problem, &limits, &list[i], text, sizeof(text));

		if (plan && plan->workspace > 0) {
			more++;
			ck_assert_ptr_null(
				conv_plan_create(&problem, &none, &list[i], text, sizeof(text)));
			ck_assert_msg(strstr(text, "bytes of scratch memory"), "%s", text);
		}
		conv_plan_destroy(plan);
	}
	ck_assert_int_gt(more, 0);
}
END_TEST

static const struct {
	const char *name;
	struct choices_plan choice;
} nonsense[] = {
	{"no such engine", {true, 9999, 0, {{0, 0}}}},
	{"no such knob", {true, 0, 1, {{43, 1}}}},
	{"no such value", {true, 28, 2, {{2, 12345}, {3, 999}}}},
	{"no such kind of knob", {true, 0, 1, {{5000, 1}}}},
};

START_TEST(test_nonsense_is_refused)
{
	struct conv_options options = layer1(DDP_BF16);
	struct conv_problem problem = {&options, CONV_FORWARD, 64, true};
	char text[512] = "";

	ck_assert_ptr_null(
		conv_plan_create(&problem, &limits, &nonsense[_i].choice, text, sizeof(text)));
	ck_assert_msg(strstr(text, "CUDNN_STATUS_"), "%s: %s", nonsense[_i].name, text);
}
END_TEST

START_TEST(test_bad_graph_is_told)
{
	struct conv_options options = layer1(DDP_BF16);
	struct conv_problem problem = {&options, CONV_FORWARD, 64, true};
	struct choices_plan list[LIST];
	char text[512] = "";

	options.stride = 1;
	options.pad = -1;
	ck_assert_int_eq(conv_plans(&problem, &limits, list, LIST, text, sizeof(text)), 0);
	ck_assert_msg(strstr(text, "CUDNN_STATUS_"), "%s", text);
}
END_TEST

static void fill(TCase *tcase)
{
	UNIT_ROWS(tcase, test_networks, kinds);
	tcase_add_test(tcase, test_tf32_is_refused);
	tcase_add_test(tcase, test_nondeterministic_is_refused);
	tcase_add_test(tcase, test_scratch_is_limited);
	UNIT_ROWS(tcase, test_nonsense_is_refused, nonsense);
	tcase_add_test(tcase, test_bad_graph_is_told);
}

int main(void)
{
	int failed;

	if (!describe_gpu() && cudnnGetVersion() / 100 != 919) {
		printf("this cuDNN has other names for the properties of a GPU: %s\n", gpu.text);
		return SKIPPED;
	}
	if (gpu.status != CUDNN_STATUS_SUCCESS) {
		printf("%s\n", gpu.text);
		return EXIT_FAILURE;
	}
	pretend_load_engines(&limits);
	failed = unit_run("cuda_plans", fill);
	parts_empty(&gpu);
	return failed;
}
