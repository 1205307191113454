/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train-gradients.c - writes the gradients that the CPU engine computes to a safetensors file
 *
 *     train-gradients NET DIRECTORY INIT START COUNT TYPE CONV NEW
 *
 * NET, with the weights in INIT, processes COUNT images of the training set in DIRECTORY, from
 * START on, without dropout and augmentation. TYPE is the type of activations: f32 or bf16. CONV is
 * exact or auto. The gradients of the mean loss are written to NEW, with PyTorch's names. The loss
 * is printed.
 */
#include "config.h"

#include <ddp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/batch.h"
#include "engine.h"
#include "net/model.h"

enum word { NET = 1, DIRECTORY, INIT, START, COUNT, TYPE, CONV, NEW, WORDS };

struct work {
	struct ddp *ddp;
	struct net *net;
	struct graph *graph;
	struct model *model;
	struct set *set;
	struct optim optim;
	struct engine *engine;
};

static void check(int rc, const struct ddp_error *error)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "train-gradients: %s\n", error->text);
	exit(EXIT_FAILURE);
}

static void *allocate(size_t count, size_t size)
{
	struct ddp_error error = {DDP_ERR_MEMORY, "out of memory"};
	void *memory = calloc(count ? count : 1, size);

	check(memory ? 0 : error.status, &error);
	return memory;
}

static void open_world(struct work *work)
{
	struct ddp_options options = DDP_OPTIONS_INIT;

	options.method = "single";
	if (ddp_init(&work->ddp, &options) < 0)
		ddp_exit(work->ddp);
}

static void open_model(struct work *work, char **words)
{
	struct ddp_error error = {0, "no such network"};

	work->net = net_create(words[NET], 0);
	check(work->net ? 0 : DDP_ERR_ARGUMENT, &error);
	check(graph_create(&work->graph, work->net, &error), &error);
	work->optim = optim_default(OPTIM_SGD);
	check(model_create(&work->model, work->ddp, work->graph, optim_slots(&work->optim), DDP_F32,
			   false, 0, &error),
	      &error);
	check(model_read(work->model, words[INIT], &error), &error);
}

static void open_set(struct work *work, char **words)
{
	struct set_options options = {.directory = words[DIRECTORY], .ddp = work->ddp};
	struct ddp_error error = {0, ""};
	int kind = set_detect(words[DIRECTORY],
			      strcmp(words[NET], "mnist") == 0 ? SET_MNIST : SET_CIFAR10, &error);

	check(kind, &error);
	options.kind = (enum set_kind)kind;
	check(set_open(&work->set, &options, &error), &error);
}

static void open_engine(struct work *work, char **words)
{
	struct engine_setup setup = {.ddp = work->ddp,
				     .model = work->model,
				     .train = work->set,
				     .optim = &work->optim,
				     .threads = 1,
				     .no_dropout = true};
	struct ddp_error error = {0, ""};

	setup.batch = setup.test_batch = strtoul(words[COUNT], NULL, 10);
	setup.type = strcmp(words[TYPE], "bf16") == 0 ? DDP_BF16 : DDP_F32;
	setup.exact = strcmp(words[CONV], "exact") == 0;
	check(engine_cpu.open(&work->engine, &setup, &error), &error);
}

/* Runs a step with learning rate 0, after which the gradients are still in the model. */
static void step(struct work *work, char **words)
{
	struct batch batch = {.seed = 1, .count = strtoul(words[COUNT], NULL, 10)};
	uint64_t start = strtoull(words[START], NULL, 10);
	uint64_t *indices = allocate(batch.count, sizeof(*indices));
	struct ddp_error error = {0, ""};
	struct engine_step done;

	for (size_t i = 0; i < batch.count; i++)
		indices[i] = start + i;
	batch.indices = batch.orders = indices;
	check(engine_cpu.step(work->engine, &batch, batch.count, 1, 0.0, false, &done, &error),
	      &error);
	printf("%.9g\n", done.loss / (double)done.samples);
	free(indices);
}

static void write_gradients(const struct work *work, const char *path)
{
	const struct graph *graph = work->graph;
	struct ddp_tensor *tensors = allocate(graph->parameter_count, sizeof(*tensors));
	struct ddp_pair format = {"format", "pt"};
	struct ddp_error error = {0, ""};

	for (size_t i = 0; i < graph->parameter_count; i++) {
		const struct graph_parameter *parameter = &graph->parameters[i];

		tensors[i].name = parameter->name;
		tensors[i].type = DDP_F32;
		tensors[i].dimensions = parameter->dimensions;
		memcpy(tensors[i].shape, parameter->shape, sizeof(parameter->shape));
		tensors[i].data = allocate(parameter->count, sizeof(float));
		graph_export(graph, i, tensors[i].data, model_gradient(work->model, i));
	}
	check(ddp_tensors_save(path, tensors, graph->parameter_count, &format, 1, &error), &error);
	for (size_t i = 0; i < graph->parameter_count; i++)
		free(tensors[i].data);
	free(tensors);
}

static void close_all(struct work *work)
{
	engine_cpu.close(work->engine);
	set_close(work->set);
	model_destroy(work->model);
	graph_destroy(work->graph);
	net_destroy(work->net);
	ddp_destroy(work->ddp);
}

int main(int argc, char **argv)
{
	struct work work = {0};

	if (argc != WORDS) {
		fprintf(stderr, "usage: train-gradients NET DIRECTORY INIT START COUNT f32|bf16 "
				"exact|auto NEW\n");
		return 2;
	}
	open_world(&work);
	open_model(&work, argv);
	open_set(&work, argv);
	open_engine(&work, argv);
	step(&work, argv);
	write_gradients(&work, argv[NEW]);
	close_all(&work);
	return EXIT_SUCCESS;
}
