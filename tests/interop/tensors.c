/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.c - reads and writes libddp's files, for libddp.bats
 *
 *     tensors list FILE                   print name, type and dimensions, one tensor per line
 *     tensors copy FROM TO                read FROM and write TO
 *     tensors save FROM DIRECTORY STEP    save the tensors as a checkpoint
 *     tensors load LIKE DIRECTORY TO      load the newest checkpoint into tensors with the names,
 *                                         types and shapes of those in LIKE, and write TO
 *     tensors events DIRECTORY            write an event file of a hundred points
 */
#include "config.h"

#include <ddp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const type_names[] = {
#define TYPE_NAME(name, bytes, text) text,
	DDP_TYPE_MAP(TYPE_NAME)
#undef TYPE_NAME
		"-",
};

static void check(int status, const struct ddp_error *error)
{
	if (status >= 0)
		return;
	fprintf(stderr, "tensors: %s\n", error->text);
	exit(ddp_exit_status(status));
}

static struct ddp_tensors *open_file(const char *path)
{
	struct ddp_tensors *file;
	struct ddp_error error;

	check(ddp_tensors_open(&file, path, &error), &error);
	return file;
}

static int list(char **arguments)
{
	struct ddp_tensors *file = open_file(arguments[0]);
	const struct ddp_tensor *tensors;
	size_t count;

	tensors = ddp_tensors_list(file, &count);
	for (size_t i = 0; i < count; i++) {
		printf("%s %s", tensors[i].name, type_names[tensors[i].type]);
		for (int k = 0; k < tensors[i].dimensions; k++)
			printf(" %" PRId64, tensors[i].shape[k]);
		printf("\n");
	}
	ddp_tensors_close(file);
	return 0;
}

/* The metadata that every file of the tests has. */
static struct ddp_pair format_of(const struct ddp_tensors *file)
{
	return (struct ddp_pair){"format", ddp_tensors_metadata(file, "format")};
}

static int copy(char **arguments)
{
	struct ddp_tensors *file = open_file(arguments[0]);
	struct ddp_pair format = format_of(file);
	const struct ddp_tensor *tensors;
	struct ddp_error error;
	size_t count;

	tensors = ddp_tensors_list(file, &count);
	check(ddp_tensors_save(arguments[1], tensors, count, &format, 1, &error), &error);
	ddp_tensors_close(file);
	return 0;
}

static struct ddp *join(void)
{
	struct ddp *ddp;

	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	return ddp;
}

static int save(char **arguments)
{
	struct ddp *ddp = join();
	struct ddp_tensors *file = open_file(arguments[0]);
	struct ddp_pair format = format_of(file);
	const struct ddp_tensor *tensors;
	size_t count;

	tensors = ddp_tensors_list(file, &count);
	if (ddp_checkpoint_save(ddp, arguments[1], strtoull(arguments[2], NULL, 10), tensors, count,
				&format, 1, 0) < 0)
		ddp_exit(ddp);
	ddp_tensors_close(file);
	ddp_destroy(ddp);
	return 0;
}

/*
 * Returns tensors with the names, types and shapes of those in [file], filled with zeros. They are
 * never freed.
 */
static struct ddp_tensor *make_like(const struct ddp_tensors *file, size_t *count)
{
	const struct ddp_tensor *tensors = ddp_tensors_list(file, count);
	struct ddp_tensor *like = calloc(*count + 1, sizeof(*like));

	for (size_t i = 0; like && i < *count; i++) {
		like[i] = tensors[i];
		like[i].data = calloc(ddp_tensor_count(&like[i]) + 1, ddp_type_size(like[i].type));
	}
	return like;
}

static int load(char **arguments)
{
	struct ddp *ddp = join();
	struct ddp_tensors *file = open_file(arguments[0]);
	struct ddp_pair format = {"format", NULL};
	struct ddp_error error;
	uint64_t step;
	size_t count;
	struct ddp_tensor *tensors = make_like(file, &count);
	int status = ddp_checkpoint_load(ddp, arguments[1], &step, tensors, count, &format, 1);

	if (status < 0)
		ddp_exit(ddp);
	if (status == 0)
		return 1;
	printf("step %" PRIu64 "\n", step);
	check(ddp_tensors_save(arguments[2], tensors, count, &format, 1, &error), &error);
	ddp_tensors_close(file);
	ddp_destroy(ddp);
	return 0;
}

static int events(char **arguments)
{
	struct ddp_events *events;
	struct ddp_error error;

	check(ddp_events_open(&events, arguments[0], &error), &error);
	for (int i = 0; i < 100; i++)
		ddp_events_scalar(events, i % 2 ? "loss/train" : "précision", i * 100,
				  1.0 / (i + 1));
	check(ddp_events_close(events, &error), &error);
	return 0;
}

static const struct {
	const char *name;
	int arguments;
	int (*run)(char **arguments);
} commands[] = {
	{"list", 1, list}, {"copy", 2, copy},	  {"save", 3, save},
	{"load", 3, load}, {"events", 1, events},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(argv[1], commands[i].name) == 0 && argc == commands[i].arguments + 2)
			return commands[i].run(argv + 2);
	fprintf(stderr, "tensors: wrong arguments\n");
	return 2;
}
