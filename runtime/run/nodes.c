/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "nodes.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "base/xalloc.h"

enum {
	PROBES = 64,	   /* at once */
	STATE_SIZE = 8192, /* bytes of scontrol's line about a node, at most */
	ASK_LIMIT = 10	   /* seconds for an answer of slurmctld */
};

void nodes_add(struct node_list *list, const char *name)
{
	char(*more)[FACTS_NAME];

	if (nodes_have(list, name))
		return;
	more = realloc(list->name, (list->count + 1) * sizeof(*more));
	if (!more)
		return;
	list->name = more;
	snprintf(list->name[list->count++], FACTS_NAME, "%s", name);
}

bool nodes_have(const struct node_list *list, const char *name)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->name[i], name) == 0)
			return true;
	return false;
}

void nodes_free(struct node_list *list)
{
	free(list->name);
	*list = (struct node_list){.name = NULL};
}

char *nodes_joined(const struct node_list *list)
{
	char *text = ddp_xcalloc(list->count + 1, FACTS_NAME + 1, "names of nodes");
	char *at = text;

	for (size_t i = 0; i < list->count; i++)
		at += sprintf(at, "%s%s", i ? "," : "", list->name[i]);
	return text;
}

void nodes_expand(struct node_list *list, const char *hosts, size_t size)
{
	struct ddp_text out = {.data = NULL};
	char *copy = ddp_xcalloc(size + 1, 1, "names of nodes");
	char *const argv[] = {"scontrol", "show", "hostnames", copy, NULL};
	char *rest, *name;

	memcpy(copy, hosts, size);
	if (!strchr(copy, '[')) {
		for (rest = copy; (name = strsep(&rest, ","));)
			if (*name)
				nodes_add(list, name);
	} else if (evidence_run(argv, ASK_LIMIT, &out) == 0 && out.data) {
		for (rest = out.data; (name = strsep(&rest, "\n"));)
			if (*name)
				nodes_add(list, name);
	}
	ddp_text_free(&out);
	free(copy);
}

const char *nodes_field(const char *answer, const char *key, size_t *size)
{
	size_t length = strlen(key);

	for (const char *at = answer; (at = strstr(at, key)); at += length) {
		if ((at != answer && at[-1] != ' ' && at[-1] != '\n') || at[length] != '=')
			continue;
		at += length + 1;
		*size = strcspn(at, " \n");
		return at;
	}
	*size = 0;
	return "";
}

double nodes_seconds(const char *answer, const char *key)
{
	size_t size;
	const char *field = nodes_field(answer, key, &size), *dash = memchr(field, '-', size);
	int hours, minutes, seconds;

	if (sscanf(dash ? dash + 1 : field, "%d:%d:%d", &hours, &minutes, &seconds) != 3)
		return INFINITY;
	return (dash ? atoi(field) : 0) * 86400.0 + hours * 3600.0 + minutes * 60.0 + seconds;
}

double nodes_date(const char *answer, const char *key)
{
	struct tm date = {.tm_isdst = -1};
	size_t size;

	return strptime(nodes_field(answer, key, &size), "%Y-%m-%dT%H:%M:%S", &date)
		       ? (double)mktime(&date)
		       : 0;
}

/* --- Who answers ------------------------------------------------------------------------------- */

struct answer {
	enum evidence_found found;
	char why[256];
};

struct probe {
	const struct node_list *nodes;
	const char *job, *step;
	bool kill;
	double limit;
	atomic_size_t next;
	struct answer *answer; /* of each */
};

static void *probe_nodes(void *data)
{
	struct probe *probe = data;

	for (size_t i; (i = atomic_fetch_add(&probe->next, 1)) < probe->nodes->count;) {
		struct answer *answer = &probe->answer[i];

		answer->found = evidence_look_for(probe->job, probe->step, probe->nodes->name[i],
						  probe->kill, probe->limit, answer->why,
						  sizeof(answer->why));
	}
	return NULL;
}

/* Of nodes that could not be asked: Slurm may have given them up, and refuses steps on them. */
static void look_for_given_up(const char *job, struct nodes_answers *answers)
{
	struct node_list unasked = answers->unasked, left = nodes_of_job(job, NULL, 0, NULL);

	if (left.count > 0) {
		answers->unasked = (struct node_list){.name = NULL};
		for (size_t i = 0; i < unasked.count; i++)
			nodes_add(nodes_have(&left, unasked.name[i]) ? &answers->unasked
								     : &answers->silent,
				  unasked.name[i]);
		nodes_free(&unasked);
	}
	nodes_free(&left);
}

void nodes_probe(const struct node_list *nodes, const char *job, const char *step, bool kill,
		 double limit, struct nodes_answers *answers)
{
	struct probe probe = {
		.nodes = nodes, .job = job, .step = step, .kill = kill, .limit = limit};
	size_t count = nodes->count < PROBES ? nodes->count : PROBES, started = 0;
	pthread_t threads[PROBES];

	probe.answer = ddp_xcalloc(nodes->count + 1, sizeof(*probe.answer), "probes");
	while (started < count && pthread_create(&threads[started], NULL, probe_nodes, &probe) == 0)
		started++;
	if (started == 0)
		probe_nodes(&probe);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < nodes->count; i++) {
		const struct answer *answer = &probe.answer[i];

		answers->with_ranks += answer->found == EVIDENCE_SOME;
		if (answer->found == EVIDENCE_SILENT)
			nodes_add(&answers->silent, nodes->name[i]);
		if (answer->found != EVIDENCE_UNKNOWN)
			continue;
		nodes_add(&answers->unasked, nodes->name[i]);
		snprintf(answers->why, sizeof(answers->why), "%s", answer->why);
	}
	free(probe.answer);
	if (answers->unasked.count > 0)
		look_for_given_up(job, answers);
}

void nodes_answers_free(struct nodes_answers *answers)
{
	nodes_free(&answers->silent);
	nodes_free(&answers->unasked);
}

/* --- The job ----------------------------------------------------------------------------------- */

/* "DOWN*", "IDLE+NOT_RESPONDING": no step can run there. */
static bool is_gone(const char *state, size_t size)
{
	static const char *const gone[] = {"DOWN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "*"};
	char text[128];

	snprintf(text, sizeof(text), "%.*s", (int)size, state);
	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		if (strstr(text, gone[i]))
			return true;
	return false;
}

/* Those of a list of nodes' lines that are not gone, and of them the drained ones. */
static void read_states(struct node_list *left, struct node_list *drained, char *lines)
{
	for (char *line; (line = strsep(&lines, "\n"));) {
		size_t name_length, state_length;
		const char *name = nodes_field(line, "NodeName", &name_length);
		const char *state = nodes_field(line, "State", &state_length);
		char copy[FACTS_NAME];

		snprintf(copy, sizeof(copy), "%.*s", (int)name_length, name);
		if (name_length == 0 || is_gone(state, state_length))
			continue;
		nodes_add(left, copy);
		if (drained && memmem(state, state_length, "DRAIN", strlen("DRAIN")))
			nodes_add(drained, copy);
	}
}

struct node_list nodes_of_job(const char *job, char *state, size_t size, struct node_list *drained)
{
	char *const ask_job[] = {"scontrol", "-o", "show", "job", (char *)job, NULL};
	struct ddp_text out = {.data = NULL}, states = {.data = NULL};
	struct node_list all = {.name = NULL}, left = {.name = NULL};
	const char *field = "";
	size_t length = 0;

	if (size > 0)
		*state = '\0';
	if (evidence_run(ask_job, ASK_LIMIT, &out) == 0 && out.data) {
		field = nodes_field(out.data, "JobState", &length);
		if (size > 0)
			snprintf(state, size, "%.*s", (int)length, field);
		field = nodes_field(out.data, "NodeList", &length);
		if (length > 0 && strncmp(field, "(null)", 6) != 0)
			nodes_expand(&all, field, length);
	}
	if (all.count > 0) {
		/* As Slurm writes it, since the names of all may be too long for a word of a command. */
		char *names = ddp_xcalloc(length + 1, 1, "names of nodes");
		char *const ask_nodes[] = {"scontrol", "-o", "show", "node", names, NULL};

		memcpy(names, field, length);
		if (evidence_ask(ask_nodes, ASK_LIMIT, (all.count + 1) * STATE_SIZE, &states) == 0)
			read_states(&left, drained, states.data);
		else if (size > 0)
			*state = '\0';
		free(names);
	}
	ddp_text_free(&out);
	ddp_text_free(&states);
	nodes_free(&all);
	return left;
}
