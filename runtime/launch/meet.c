/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c - exchange texts among the tasks of a step through libddp's store */
#include "config.h"

#include "meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"

struct meet {
	struct ddp_identity identity;
	struct ddp_store *store;
	double limit_s;
	bool failed;
};

static int fail(struct meet *meet, const struct ddp_error *error, struct ddp_message *message)
{
	meet->failed = true;
	return ddp_fail(message, "%s", error->text);
}

static int put_and_fence(struct meet *meet, const char *key, const void *value, size_t size,
			 struct ddp_message *message)
{
	struct ddp_watch watch = ddp_watch_start(meet->limit_s, NULL, NULL);
	struct ddp_error error;

	if ((value && ddp_store_put(meet->store, key, value, size, &error) < 0) ||
	    ddp_store_fence(meet->store, &watch, &error) < 0)
		return fail(meet, &error, message);
	return 0;
}

int meet_open(struct meet **opened, int rank, int size, const char *host, const char *job,
	      const char *directory, double limit_s, const struct meet_card *card,
	      struct ddp_message *message)
{
	struct meet *meet = calloc(1, sizeof(*meet));
	struct ddp_watch watch = ddp_watch_start(limit_s, NULL, NULL);
	struct ddp_identity *id = meet ? &meet->identity : NULL;
	struct ddp_error error;

	*opened = NULL;
	if (!meet)
		return ddp_fail(message, "out of memory");
	*id = (struct ddp_identity){.rank = rank, .size = size};
	meet->limit_s = limit_s;
	if (ddp_format(id->host, sizeof(id->host), "%s", host) < 0 ||
	    ddp_format(id->job, sizeof(id->job), "%s", job) < 0 ||
	    ddp_format(id->directory, sizeof(id->directory), "%s", directory) < 0) {
		free(meet);
		return ddp_fail(message, "the path %.200s... is too long", directory);
	}
	if (ddp_store_open(&meet->store, "file", id, NULL, &watch, &error) < 0)
		fail(meet, &error, message);
	else
		(void)put_and_fence(meet, "card", card, sizeof(*card), message);
	if (meet->failed) {
		meet_close(meet);
		return -1;
	}
	*opened = meet;
	return 0;
}

int meet_read(struct meet *meet, int rank, struct meet_card *card, struct ddp_message *message)
{
	size_t size = sizeof(*card);
	struct ddp_error error;

	if (ddp_store_get(meet->store, rank, "card", card, &size, &error) < 0)
		return fail(meet, &error, message);
	if (size != sizeof(*card))
		return ddp_fail(message,
				"rank %d runs another release of ddp-exec. Install one "
				"release on all nodes.",
				rank);
	card->gpus[sizeof(card->gpus) - 1] = '\0';
	return 0;
}

int meet_share(struct meet *meet, char *text, size_t size, struct ddp_message *message)
{
	bool is_first = meet->identity.rank == 0;
	struct ddp_error error;

	if (put_and_fence(meet, "text", is_first ? text : NULL, strlen(text) + 1, message) < 0)
		return -1;
	if (!is_first && ddp_store_get(meet->store, 0, "text", text, &size, &error) < 0)
		return fail(meet, &error, message);
	return 0;
}

void meet_close(struct meet *meet)
{
	if (!meet)
		return;
	ddp_store_close(meet->store, !meet->failed);
	free(meet);
}
