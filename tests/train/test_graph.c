/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph.c - networks: the shapes, parameters and buffers that follow from their tables */
#include "config.h"

#include "net/graph.h"
#include "unit.h"

static struct graph *place(const struct net *net)
{
	struct ddp_error error = {0, ""};
	struct graph *graph;

	ck_assert_msg(graph_create(&graph, net, &error) == 0, "%s", error.text);
	return graph;
}

/* --- Networks (tests/interop compares parameters and initial weights with PyTorch's) ------ */

static const struct {
	const char *name;
	int classes;
	size_t count, weights, buffers;
} nets[] = {
	{"mnist", 0, 8, 1199882, 0},
	{"mnist", 26, 8, 1199882 + 16 * 129, 0},
	{"cifar", 0, 62, 11173962, 40},
	{"cifar", 100, 62, 11173962 + 90 * 513, 40},
};

TEST_ROWS(test_parameters, nets)
{
	struct net *net = net_create(nets[_i].name, nets[_i].classes);
	struct graph *graph = place(net);
	size_t weights = 0;

	for (size_t i = 0; i < graph->parameter_count; i++)
		weights += graph->parameters[i].count;
	unit_number(net->name, "parameters", (int64_t)graph->parameter_count,
		    (int64_t)nets[_i].count);
	unit_number(net->name, "weights", (int64_t)graph->weights, (int64_t)nets[_i].weights);
	unit_number(net->name, "sum", (int64_t)weights, (int64_t)nets[_i].weights);
	unit_number(net->name, "buffers", (int64_t)graph->buffer_count, (int64_t)nets[_i].buffers);
	graph_destroy(graph);
	net_destroy(net);
}

/*
 * Shapes and inputs of some nodes, which show that the network's table is correct. Input -1 is the
 * image.
 */
static const struct {
	const char *net;
	int node, input, other, readers;
	enum net_kind kind;
	struct graph_shape out;
} placed[] = {
	{"mnist", 0, -1, -1, 1, NET_CONV, {26, 26, 32}},
	{"mnist", 3, 2, -1, 1, NET_RELU, {24, 24, 64}},
	{"mnist", 4, 3, -1, 1, NET_MAX_POOL, {12, 12, 64}},
	{"mnist", 6, 5, -1, 1, NET_DENSE, {1, 1, 128}},
	{"mnist", 9, 8, -1, 0, NET_DENSE, {1, 1, 10}},
	{"cifar", 2, 1, -1, 2, NET_RELU, {32, 32, 64}},
	{"cifar", 8, 7, 2, 1, NET_ADD, {32, 32, 64}},
	{"cifar", 16, 15, -1, 2, NET_RELU, {32, 32, 64}},
	{"cifar", 17, 16, -1, 1, NET_CONV, {16, 16, 128}},
	{"cifar", 22, 16, -1, 1, NET_CONV, {16, 16, 128}},
	{"cifar", 24, 23, 21, 1, NET_ADD, {16, 16, 128}},
	{"cifar", 64, 63, -1, 1, NET_RELU, {4, 4, 512}},
	{"cifar", 65, 64, -1, 1, NET_AVERAGE_POOL, {1, 1, 512}},
	{"cifar", 66, 65, -1, 0, NET_DENSE, {1, 1, 10}},
};

TEST_ROWS(test_nodes, placed)
{
	struct net *net = net_create(placed[_i].net, 0);
	struct graph *graph = place(net);
	const struct graph_node *node = &graph->nodes[placed[_i].node];

	unit_number(net->name, "kind", (int64_t)node->layer->kind, (int64_t)placed[_i].kind);
	unit_number(net->name, "input", node->input, placed[_i].input);
	unit_number(net->name, "other", node->other, placed[_i].other);
	unit_number(net->name, "readers", node->readers, placed[_i].readers);
	unit_number(net->name, "height", node->out.height, placed[_i].out.height);
	unit_number(net->name, "width", node->out.width, placed[_i].out.width);
	unit_number(net->name, "channels", node->out.channels, placed[_i].out.channels);
	graph_destroy(graph);
	net_destroy(net);
}

/* The usual means and deviations for normalisation. */
static const struct {
	const char *net;
	int channels, side, pad;
	bool flip;
	float mean[3], deviation[3];
} inputs[] = {
	{"mnist", 1, 28, 0, false, {0.1307f}, {0.3081f}},
	{"cifar", 3, 32, 4, true, {0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}},
};

TEST_ROWS(test_input, inputs)
{
	struct net *net = net_create(inputs[_i].net, 0);

	ck_assert_int_eq(net->channels, inputs[_i].channels);
	ck_assert_int_eq(net->height, inputs[_i].side);
	ck_assert_int_eq(net->width, inputs[_i].side);
	ck_assert_int_eq(net->pad, inputs[_i].pad);
	ck_assert(net->flip == inputs[_i].flip);
	ck_assert_mem_eq(net->mean, inputs[_i].mean, sizeof(inputs[_i].mean));
	ck_assert_mem_eq(net->deviation, inputs[_i].deviation, sizeof(inputs[_i].deviation));
	net_destroy(net);
}

TEST(test_names)
{
	for (const char *const *name = net_names(); *name; name++) {
		struct net *net = net_create(*name, 0);

		ck_assert_ptr_nonnull(net);
		ck_assert_str_eq(net->name, *name);
		net_destroy(net);
	}
	ck_assert_ptr_null(net_create("imagenet", 0));
	net_destroy(NULL);
	graph_destroy(NULL);
}

/* --- Inconsistent tables ----------------------------------------------------------------- */

#define CONV(outputs_, ...)                                                                 \
	{                                                                                   \
		.kind = NET_CONV, .name = "c", .outputs = outputs_, .size = 3, .stride = 1, \
		__VA_ARGS__                                                                 \
	}
#define DENSE                                                  \
	{                                                      \
		.kind = NET_DENSE, .name = "fc", .outputs = 10 \
	}

/* Tables for an image of 8 x 8 x 3 and ten classes. */
static const struct {
	struct net_layer layers[4];
	const char *piece;
} wrong[] = {
	{{CONV(4, .back = 2), DENSE}, "layer 0 "},
	{{{.kind = NET_AVERAGE_POOL}, CONV(4), DENSE}, "layer 1 "},
	{{{.kind = NET_MAX_POOL, .size = 3}, DENSE}, "layer 0 "},
	{{CONV(3), {.kind = NET_ADD}, DENSE}, "layer 1 "},
	{{CONV(3), {.kind = NET_ADD, .other = 2}, DENSE}, "layer 1 "},
	{{{.kind = NET_RELU}, CONV(3), {.kind = NET_ADD, .other = 2}, DENSE}, "layer 2 "},
	{{{.kind = NET_RELU}, {.kind = NET_DENSE, .name = "fc", .outputs = 10, .back = 2}},
	 "layer 0 "},
	{{{.kind = NET_DENSE, .name = "fc", .outputs = 9}}, "layer 0 "},
};

static struct net small_net(const struct net_layer *layers, size_t most)
{
	struct net net = {.name = "small",
			  .channels = 3,
			  .height = 8,
			  .width = 8,
			  .classes = 10,
			  .deviation = {1, 1, 1},
			  .layers = layers};

	/* A convolution of size 0 ends the table, since the unused elements are zero. */
	while (net.count < most &&
	       (layers[net.count].kind != NET_CONV || layers[net.count].size > 0))
		net.count++;
	return net;
}

TEST_ROWS(test_wrong, wrong)
{
	struct net net = small_net(wrong[_i].layers, ROWS(wrong[_i].layers));
	struct ddp_error error = {0, ""};
	struct graph *graph;

	ck_assert_int_eq(graph_create(&graph, &net, &error), DDP_ERR_ARGUMENT);
	ck_assert_ptr_null(graph);
	unit_has("small", error.text, wrong[_i].piece);
}

UNIT_MAIN("graph", NULL)
