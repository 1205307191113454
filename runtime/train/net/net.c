/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tables.h"

static const struct net *const nets[] = {&net_mnist, &net_cifar};
static const char *const names[] = {"mnist", "cifar", NULL};

enum { NETS = sizeof(nets) / sizeof(nets[0]) };

_Static_assert(sizeof(names) / sizeof(names[0]) == NETS + 1, "each network has its name");

/* A network with layers of its own, in one piece of memory. */
struct copy {
	struct net net;
	struct net_layer layers[];
};

static struct net *net_copy(const struct net *from, int classes)
{
	struct copy *copy = malloc(sizeof(*copy) + from->count * sizeof(copy->layers[0]));

	if (!copy)
		return NULL;
	copy->net = *from;
	memcpy(copy->layers, from->layers, from->count * sizeof(copy->layers[0]));
	if (classes > 0) {
		copy->net.classes = classes;
		copy->layers[from->count - 1].outputs = classes;
	}
	copy->net.layers = copy->layers;
	return &copy->net;
}

struct net *net_create(const char *name, int classes)
{
	for (size_t i = 0; i < NETS; i++) {
		if (strcmp(nets[i]->name, name) == 0)
			return net_copy(nets[i], classes);
	}
	return NULL;
}

void net_destroy(struct net *net)
{
	free(net);
}

const char *const *net_names(void)
{
	return names;
}
