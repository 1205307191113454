/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.c - runs ddp-train's networks and optimizers, for libddp.bats
 *
 *     network init NET CLASSES SEED FILE  write the initial weights
 *     network copy NET CLASSES FROM TO    read FROM into a model, and write the model to TO
 *     network optim KIND DECAY MOMENTUM NESTEROV FROM TO
 *                                         read values, and gradients and rates of each step, from
 *                                         FROM; write the values after each step, and the slots
 *                                         at the end, to TO
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/model.h"
#include "optim/optim.h"

static void check(int status, const struct ddp_error *error)
{
	if (status >= 0)
		return;
	fprintf(stderr, "network: %s\n", error->text);
	exit(ddp_exit_status(status));
}

static void *allocate(size_t bytes)
{
	void *memory = calloc(bytes, 1);

	if (!memory)
		check(DDP_ERR_MEMORY, &(struct ddp_error){DDP_ERR_MEMORY, "out of memory"});
	return memory;
}

static int find_word(const char *const *words, const char *word)
{
	for (int i = 0; words[i]; i++) {
		if (strcmp(words[i], word) == 0)
			return i;
	}
	fprintf(stderr, "network: %s is not known\n", word);
	exit(EXIT_FAILURE);
}

/* --- Networks ---------------------------------------------------------------------------- */

struct session {
	struct ddp *ddp;
	struct net *net;
	struct graph *graph;
	struct model *model;
	struct model_tensors tensors;
};

static void begin(struct session *session, char **arguments)
{
	struct ddp_error error;

	if (ddp_init(&session->ddp, NULL) < 0)
		ddp_exit(session->ddp);
	session->net = net_create(arguments[0], atoi(arguments[1]));
	if (!session->net)
		exit(EXIT_FAILURE);
	check(graph_create(&session->graph, session->net, &error), &error);
	check(model_create(&session->model, session->ddp, session->graph, 0, DDP_F32, false, 0,
			   &error),
	      &error);
	model_tensors_create(&session->tensors, session->model, false);
}

static void save(struct session *session, const char *path)
{
	static const struct ddp_pair metadata = {"format", "pt"};
	struct ddp_error error;

	model_tensors_export(&session->tensors, session->model, 0);
	check(ddp_tensors_save(path, session->tensors.list, session->tensors.count, &metadata, 1,
			       &error),
	      &error);
}

static int end(struct session *session)
{
	model_tensors_destroy(&session->tensors);
	model_destroy(session->model);
	graph_destroy(session->graph);
	net_destroy(session->net);
	ddp_destroy(session->ddp);
	return 0;
}

static int init(char **arguments)
{
	struct session session = {0};

	begin(&session, arguments);
	model_init(session.model, strtoull(arguments[2], NULL, 10));
	save(&session, arguments[3]);
	return end(&session);
}

static int copy(char **arguments)
{
	struct session session = {0};
	struct ddp_error error;

	begin(&session, arguments);
	check(model_read(session.model, arguments[2], &error), &error);
	save(&session, arguments[3]);
	return end(&session);
}

/* --- Optimizers -------------------------------------------------------------------------- */

static const struct ddp_tensor *find(const struct ddp_tensors *file, const char *name)
{
	const struct ddp_tensor *tensor = ddp_tensors_find(file, name);

	if (!tensor) {
		fprintf(stderr, "network: no tensor %s\n", name);
		exit(EXIT_FAILURE);
	}
	return tensor;
}

/* Runs all steps of [file]. Stores the values after each step in [trace]. */
static void train(const struct optim *optim, const struct ddp_tensors *file, float *trace,
		  float *const slots[2])
{
	const struct ddp_tensor *gradients = find(file, "gradients");
	size_t steps = (size_t)gradients->shape[0], count = (size_t)gradients->shape[1];
	float *values = allocate(count * sizeof(*values)),
	      *gradient = allocate(count * sizeof(*gradient));

	memcpy(values, find(file, "values")->data, count * sizeof(*values));
	for (size_t i = 0; i < steps; i++) {
		double rate;

		memcpy(&rate, (const char *)find(file, "rates")->data + i * sizeof(rate),
		       sizeof(rate));
		memcpy(gradient, (const char *)gradients->data + i * count * sizeof(*gradient),
		       count * sizeof(*gradient));
		optim_step(optim, i + 1, rate, values, gradient, slots, count);
		memcpy(trace + i * count, values, count * sizeof(*values));
	}
	free(gradient);
	free(values);
}

static int optimize(char **arguments)
{
	struct optim optim = optim_default((enum optim_kind)find_word(optim_names(), arguments[0]));
	struct ddp_tensor out[3];
	struct ddp_tensors *file;
	struct ddp_error error;
	float *slots[2];
	int64_t steps, count;

	optim.decay = strtod(arguments[1], NULL);
	optim.momentum = strtod(arguments[2], NULL);
	optim.nesterov = atoi(arguments[3]);
	check(ddp_tensors_open(&file, arguments[4], &error), &error);
	steps = find(file, "gradients")->shape[0];
	count = find(file, "gradients")->shape[1];
	out[0] = (struct ddp_tensor){
		"trace", DDP_F32, 2, {steps, count}, allocate((size_t)(steps * count) * 4)};
	for (int i = 0; i < 2; i++) {
		slots[i] = allocate((size_t)count * sizeof(float));
		out[1 + i] =
			(struct ddp_tensor){i ? "slot1" : "slot0", DDP_F32, 1, {count}, slots[i]};
	}
	train(&optim, file, out[0].data, slots);
	check(ddp_tensors_save(arguments[5], out, 3, NULL, 0, &error), &error);
	ddp_tensors_close(file);
	for (int i = 0; i < 3; i++)
		free(out[i].data);
	return 0;
}

static const struct {
	const char *name;
	int arguments;
	int (*run)(char **arguments);
} commands[] = {
	{"init", 4, init},
	{"copy", 4, copy},
	{"optim", 6, optimize},
};

int main(int count, char **arguments)
{
	for (size_t i = 0; count > 1 && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(arguments[1], commands[i].name) == 0 &&
		    count == 2 + commands[i].arguments)
			return commands[i].run(arguments + 2);
	}
	fprintf(stderr, "network: see network.c\n");
	return EXIT_FAILURE;
}
