/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_channel.c - decoding of SLURM_DDP_STEP, and of lists with the same escapes (DDP_OURS) */
#include "config.h"

#include "channel.h"
#include "fuzz.h"

static char text[DDP_CHANNEL_SIZE], again[DDP_CHANNEL_SIZE];

/* If the input can be decoded to a channel, encoding and decoding it again changes nothing. */
static void check_decode(const char *input)
{
	static struct ddp_channel first, second;
	struct ddp_message message = {""};
	char name[2 * DDP_NAME_SIZE];

	if (ddp_channel_decode(input, &first, &message) < 0) {
		HOLDS(message.text[0] != '\0');
		return;
	}
	HOLDS(message.text[0] == '\0');
	if (ddp_channel_directory_name(&first, name, sizeof(name)) == 0)
		HOLDS(strncmp(name, first.cluster, strlen(first.cluster)) == 0);
	if (ddp_channel_encode(&first, text, sizeof(text)) < 0)
		return;
	HOLDS(strpbrk(text, "\n \t") == NULL);
	HOLDS(ddp_channel_decode(text, &second, &message) == 0);
	HOLDS(ddp_channel_encode(&second, again, sizeof(again)) == 0);
	HOLDS(strcmp(text, again) == 0);
	HOLDS(strcmp(first.directory, second.directory) == 0);
	HOLDS(strcmp(first.problem, second.problem) == 0);
	HOLDS(first.job == second.job && first.end_time == second.end_time);
	/*
	 * If the buffer is one byte too small, that is an error, and nothing is written beyond the
	 * buffer.
	 */
	HOLDS(ddp_channel_encode(&first, again, strlen(text)) < 0);
}

/* A value that is added to a list can be read, and other values stay unchanged. */
static void check_list(const char *value)
{
	char list[512] = "BEFORE=1", got[512], was[512];

	strcpy(was, list);
	if (ddp_list_add(list, sizeof(list), "NAME", value) < 0) {
		HOLDS(strcmp(list, was) == 0);
		HOLDS(3 * strlen(value) + sizeof("BEFORE=1;NAME=") + 4 > sizeof(list));
		return;
	}
	HOLDS(ddp_list_get(list, "NAME", got, sizeof(got)) == 0);
	HOLDS(strcmp(got, value) == 0);
	HOLDS(ddp_list_get(list, "NAME", got, strlen(value) + 1) == 0);
	HOLDS(ddp_list_get(list, "NAME", got, strlen(value)) < 0 || !*value);
	HOLDS(ddp_list_get(list, "BEFORE", got, sizeof(got)) == 0);
	HOLDS(strcmp(got, "1") == 0);
	HOLDS(ddp_list_get(list, "AME", got, sizeof(got)) < 0);
	if (ddp_list_add(list, sizeof(list), "AFTER", value) == 0) {
		HOLDS(ddp_list_get(list, "AFTER", got, sizeof(got)) == 0);
		HOLDS(strcmp(got, value) == 0);
	}
}

/* The list has unknown content. If a value fits in the buffer, it is a terminated string. */
static void check_foreign_list(const char *list)
{
	char got[64];

	memset(got, 'x', sizeof(got));
	if (ddp_list_get(list, "MASTER_PORT", got, sizeof(got)) == 0) {
		HOLDS(memchr(got, '\0', sizeof(got)));
		HOLDS(strstr(list, "MASTER_PORT="));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *input = fuzz_text(data, size);
	char *prefixed = malloc(size + 4);

	HOLDS(prefixed);
	check_decode(input);
	sprintf(prefixed, "v2;%s", input);
	check_decode(prefixed);
	check_list(input);
	check_foreign_list(input);
	free(prefixed);
	free(input);
	return 0;
}
