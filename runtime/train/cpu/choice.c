/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/type.h"
#include "base/watch.h"
#include "choice.h"

static void read_model_name(char *name, size_t size)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(name, size, "?");
	while (file && fgets(line, sizeof(line), file)) {
		char *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) != 0 || !colon)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		snprintf(name, size, "%.*s", (int)strcspn(colon, "\t\n"), colon);
		break;
	}
	if (file)
		fclose(file);
}

void choice_key(const struct engine *engine, const struct program_op *op, const char *what,
		char key[CHOICE_KEY])
{
	const struct net_layer *layer = op->node->layer;
	struct graph_shape in = op->node->in;
	char cpu[128];

	read_model_name(cpu, sizeof(cpu));
	snprintf(
		key, CHOICE_KEY,
		"%s; %s, %s; %dx%dx%d, %d of %d, stride %d, pad %d%s; %s, %zu by %zu, %d threads; %s",
		cpu, engine->math->describe(), engine->kernels->name, in.height, in.width,
		in.channels, op->node->out.channels, layer->size, layer->stride, layer->pad,
		op->relu ? ", ReLU" : "", ddp_type_name(engine->setup.type), engine->setup.batch,
		op->piece, engine->threads, what);
}

void choice_restore(const char *choices, const char *layer, const char *what,
		    char name[CHOICE_NAME])
{
	char begin[CHOICE_NAME + GRAPH_NAME];
	size_t length;

	snprintf(begin, sizeof(begin), "%s %s ", layer, what);
	length = strlen(begin);
	for (const char *item = choices; *item; item += strcspn(item, ",")) {
		item += strspn(item, ", ");
		if (strncmp(item, begin, length) == 0)
			snprintf(name, CHOICE_NAME, "%.*s", (int)strcspn(item + length, ","),
				 item + length);
	}
}

double choice_seconds(const struct engine *engine)
{
	struct timespec now;

	if (engine->threads > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) < 0)
		return ddp_seconds();
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
