/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_identity.c - a rank's identity from any environment. Each line of the input is a variable */
#include "config.h"

#include "fuzz.h"
#include "identity/identity.h"

enum { ENV_MAX = 64 };

static void check_numbers(const struct ddp_identity *id)
{
	HOLDS(id->rank >= 0 && id->rank < id->size);
	HOLDS(id->local_rank >= 0 && id->local_rank < id->local_size);
	HOLDS(id->node_rank >= 0 && id->node_rank < id->node_count);
	HOLDS(id->local_size <= id->size && id->node_count <= id->size);
	HOLDS((id->node_count == 1) == (id->local_size == id->size));
	HOLDS(id->device >= -1 && id->attempt >= 0 && id->end_time >= 0);
	HOLDS(id->share >= 0 && id->share <= 1);
	HOLDS(id->source != DDP_SOURCE_SINGLE || id->size == 1);
}

static void check_texts(const struct ddp_identity *id)
{
	HOLDS(memchr(id->job, '\0', sizeof(id->job)) && *id->job);
	HOLDS(memchr(id->host, '\0', sizeof(id->host)) && *id->host);
	HOLDS(memchr(id->directory, '\0', sizeof(id->directory)));
	HOLDS(memchr(id->records, '\0', sizeof(id->records)));
	HOLDS(!id->own || *id->directory);
	HOLDS(id->own == (id->source == DDP_SOURCE_PLUGIN && *id->directory));
	/* Whatever the names of job and run are, the records stay in one entry of .ddp. */
	HOLDS(strrchr(id->records, '/') && strstr(id->records, "/.ddp/failed-"));
	HOLDS(strncmp(strrchr(id->records, '/'), "/failed-", 8) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct ddp_surroundings around = {.hostname = "host",
						       .directory = "/home/u",
						       .process = 7,
						       .parent = 6,
						       .devices = 2};
	static struct ddp_identity first, second;
	char *text = fuzz_text(data, size), *env[ENV_MAX + 1], *line = text;
	struct ddp_error error;
	int n = 0, status;

	for (char *next; line && n < ENV_MAX; line = next) {
		next = fuzz_next_line(line);
		env[n++] = line;
	}
	env[n] = NULL;
	memset(&error, 0, sizeof(error));
	memset(&first, 0xaa, sizeof(first));
	memset(&second, 0x55, sizeof(second));
	status = ddp_identity_read(env, &around, &first, &error);
	HOLDS(status == ddp_identity_read(env, &around, &second, NULL));
	HOLDS(status == 0 || status == DDP_ERR_ENVIRONMENT || status == DDP_ERR_ABORTED);
	HOLDS(error.status == status && (status == 0) == (*error.text == '\0'));
	if (status == 0) {
		check_numbers(&first);
		check_texts(&first);
		HOLDS(strcmp(first.job, second.job) == 0);
		HOLDS(strcmp(first.directory, second.directory) == 0);
	}
	free(text);
	return 0;
}
