/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "contract.h"
#include "facts.h"
#include "nodes.h"

#define RANKS_MOST (1 << 17)

enum {
	FILE_LIMIT = 1 << 20, /* bytes */
	DUMP_LIMIT = 1 << 24, /* of a dump, which has half a megabyte as a rule */
};

struct ddp_shown facts_signal(int number)
{
	static const struct {
		int number;
		const char *name;
	} names[] = {
		{SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},
		{SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},
		{SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"},
		{SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
		{SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
		{SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].number == number)
			return ddp_show("%s", names[i].name);
	return ddp_show("signal %d", number);
}

const char *facts_how_name(enum facts_how how)
{
	static const char *const names[] = {[FACTS_UNKNOWN] = "",
					    [FACTS_EXIT] = "exit",
					    [FACTS_SIGNAL] = "signal",
					    [FACTS_OOM] = "oom",
					    [FACTS_NODE] = "node",
					    [FACTS_SLURMSTEPD] = "slurmstepd",
					    [FACTS_CANCELLED] = "cancelled",
					    [FACTS_LATE] = "late"};

	return names[how];
}

bool facts_is_kind(const struct facts *facts, const char *kind)
{
	return facts->kind && strcmp(facts->kind, kind) == 0;
}

/* --- Room -------------------------------------------------------------------------------- */

/* [rank], of which there may be more than was known. Returns NULL where there is no memory, or no such rank. */
static struct facts_rank *rank_at(struct facts *facts, double rank)
{
	size_t had = (size_t)facts->size, size;
	struct ddp_arrival *arrivals;
	struct facts_rank *ranks;

	if (!(rank >= 0 && rank < RANKS_MOST))
		return NULL;
	if (rank < facts->size)
		return &facts->ranks[(int)rank];
	size = (size_t)rank + 1;
	ranks = realloc(facts->ranks, size * sizeof(*ranks));
	if (ranks)
		facts->ranks = ranks;
	arrivals = realloc(facts->arrivals, size * sizeof(*arrivals));
	if (arrivals)
		facts->arrivals = arrivals;
	if (!ranks || !arrivals)
		return NULL;
	memset(ranks + had, 0, (size - had) * sizeof(*ranks));
	memset(arrivals + had, 0, (size - had) * sizeof(*arrivals));
	for (; had < size; had++)
		ranks[had].beat = -1;
	facts->size = (int)size;
	return &ranks[size - 1];
}

struct facts_node *facts_node(struct facts *facts, const char *name)
{
	struct facts_node *known;

	for (int i = 0; i < facts->known_count; i++)
		if (strcmp(facts->known[i].name, name) == 0)
			return &facts->known[i];
	known = realloc(facts->known, ((size_t)facts->known_count + 1) * sizeof(*known));
	if (!known)
		return NULL;
	facts->known = known;
	known += facts->known_count++;
	*known = (struct facts_node){.silent = false};
	snprintf(known->name, sizeof(known->name), "%s", name);
	return known;
}

static void free_list(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

void facts_free(struct facts *facts)
{
	for (int i = 0; i < facts->size; i++) {
		free(facts->ranks[i].message);
		free(facts->ranks[i].traceback);
		free(facts->ranks[i].tail);
		free(facts->ranks[i].command);
	}
	for (int i = 0; i < facts->known_count; i++) {
		free(facts->known[i].state);
		free(facts->known[i].reason);
	}
	free(facts->ranks);
	free(facts->arrivals);
	free(facts->known);
	flight_free(&facts->flight);
	free(facts->tail);
	free(facts->run_id);
	free(facts->kind);
	free(facts->next);
	free(facts->next_why);
	free(facts->refusal);
	free_list(facts->command);
	free_list(facts->nodes);
	free_list(facts->next_nodes);
	*facts = (struct facts){.first = -1};
}

/* --- attempt.json -------------------------------------------------------------------------- */

/*
 * By ddp-run; each member may be missing, and others are skipped:
 *
 *     {"run_id": "r", "job": 12, "step": 3, "attempt": 0, "restarts": 3, "command": ["python3", "train.py"],
 *      "nodes": ["n1", "n2"], "ranks": 4, "started": 1795000000.25, "ended": 1795000012.5, "status": 137,
 *      "kind": "exit|signal|node|hang|cancelled|timelimit|steplimit|preempted|warned|stopped|refused",
 *      "refusal": "execve(): train: No such file or directory",
 *      "tasks": [{"rank": 2, "node": "n2", "how": "exit|signal|oom|node|cancelled|late", "code": 9, "time": 1795000012.5}],
 *      "silent_nodes": ["n2"], "quiet": 300.0,
 *      "next": "restart|requeue|stop", "next_nodes": ["n1"], "next_ranks": 2, "next_after": 0.12, "next_why": ""}
 *
 * Times are seconds since 1970. tasks are in the order in which srun told of them.
 */

/* A string, or NULL where another value is, which is skipped. */
static char *take_string(struct ddp_json *json)
{
	const char *text;

	if (ddp_json_peek(json) != '"') {
		(void)ddp_json_skip(json);
		return NULL;
	}
	text = ddp_json_string(json);
	return text ? strdup(text) : NULL;
}

/* The later of two members of one name counts. */
static void put_string(struct ddp_json *json, char **text)
{
	free(*text);
	*text = take_string(json);
}

static void put_list(struct ddp_json *json, char ***list)
{
	size_t count = 0;
	char **more;

	free_list(*list);
	*list = calloc(1, sizeof(**list));
	ddp_json_open(json, '[');
	for (bool first = true; ddp_json_more(json, ']', first); first = false) {
		char *text = take_string(json);

		more = text && *list ? realloc(*list, (count + 2) * sizeof(*more)) : NULL;
		if (!more) {
			free(text);
			continue;
		}
		*list = more;
		more[count++] = text;
		more[count] = NULL;
	}
}

static void take_silent(struct facts *facts, struct ddp_json *json)
{
	struct facts_node *node;
	char **names = NULL;

	put_list(json, &names);
	for (size_t i = 0; names && names[i]; i++)
		if ((node = facts_node(facts, names[i])))
			node->silent = true;
	free_list(names);
}

static enum facts_how find_how(const char *word)
{
	for (enum facts_how how = FACTS_UNKNOWN; word && how <= FACTS_LATE; how++)
		if (strcmp(facts_how_name(how), word) == 0)
			return how;
	return FACTS_UNKNOWN;
}

/* srun tells of a rank once; what it says later is an echo. */
static void take_task(struct facts *facts, struct ddp_json *json, int *order)
{
	char *node = NULL, *how = NULL;
	double rank = -1, code = 0, time = 0;
	struct facts_rank *of;

	ddp_json_open(json, '{');
	for (bool first = true; ddp_json_more(json, '}', first); first = false) {
		const char *key = ddp_json_key(json);

		if (!key)
			break;
		if (strcmp(key, "rank") == 0)
			(void)ddp_json_real(json, &rank);
		else if (strcmp(key, "code") == 0)
			(void)ddp_json_real(json, &code);
		else if (strcmp(key, "time") == 0)
			(void)ddp_json_real(json, &time);
		else if (strcmp(key, "node") == 0)
			put_string(json, &node);
		else if (strcmp(key, "how") == 0)
			put_string(json, &how);
		else
			(void)ddp_json_skip(json);
	}
	of = json->wrong ? NULL : rank_at(facts, rank);
	if (of && of->order == 0) {
		of->how = find_how(how);
		of->code = (int)code;
		of->time = time;
		of->order = ++*order;
		if (node)
			snprintf(of->node, sizeof(of->node), "%s", node);
	}
	free(node);
	free(how);
}

static void read_attempt(struct facts *facts, char *text, size_t size)
{
	double ranks = 0;
	const struct {
		const char *key;
		double *number;
		char **string;
		char ***list;
	} members[] = {
		{"run_id", .string = &facts->run_id},
		{"job", .number = &facts->job},
		{"step", .number = &facts->step},
		{"attempt", .number = &facts->attempt},
		{"restarts", .number = &facts->restarts},
		{"command", .list = &facts->command},
		{"nodes", .list = &facts->nodes},
		{"ranks", .number = &ranks},
		{"started", .number = &facts->started},
		{"ended", .number = &facts->ended},
		{"status", .number = &facts->status},
		{"kind", .string = &facts->kind},
		{"refusal", .string = &facts->refusal},
		{"quiet", .number = &facts->quiet},
		{"next", .string = &facts->next},
		{"next_nodes", .list = &facts->next_nodes},
		{"next_ranks", .number = &facts->next_ranks},
		{"next_after", .number = &facts->next_after},
		{"next_why", .string = &facts->next_why},
	};
	struct ddp_json json;
	int order = 0;

	ddp_json_start(&json, text, size);
	ddp_json_open(&json, '{');
	for (bool first = true; ddp_json_more(&json, '}', first); first = false) {
		const char *key = ddp_json_key(&json);
		size_t i = 0;

		if (!key)
			break;
		while (i < sizeof(members) / sizeof(members[0]) && strcmp(members[i].key, key) != 0)
			i++;
		if (strcmp(key, "silent_nodes") == 0) {
			take_silent(facts, &json);
		} else if (strcmp(key, "tasks") == 0) {
			ddp_json_open(&json, '[');
			for (bool one = true; ddp_json_more(&json, ']', one); one = false)
				take_task(facts, &json, &order);
		} else if (i == sizeof(members) / sizeof(members[0]) ||
			   (members[i].number && ddp_json_peek(&json) == 'n')) {
			(void)ddp_json_skip(&json);
		} else if (members[i].number) {
			(void)ddp_json_real(&json, members[i].number);
		} else if (members[i].string) {
			put_string(&json, members[i].string);
		} else {
			put_list(&json, members[i].list);
		}
	}
	if (ranks >= 1)
		(void)rank_at(facts, ranks - 1);
}

/* --- Files of one rank --------------------------------------------------------------------- */

/* "n1 4711": the plugin. */
static void read_task(struct facts_rank *rank, char *text, size_t size)
{
	(void)size;
	if (!rank->node[0])
		(void)sscanf(text, "%127s %ld", rank->node, &rank->pid);
	else
		(void)sscanf(text, "%*s %ld", &rank->pid);
}

static void take_extra(struct facts_rank *rank, struct ddp_json *json)
{
	char *stamp = NULL;

	ddp_json_open(json, '{');
	for (bool first = true; ddp_json_more(json, '}', first); first = false) {
		const char *key = ddp_json_key(json);

		if (!key)
			break;
		if (strcmp(key, "py_callstack") == 0)
			put_string(json, &rank->traceback);
		else if (strcmp(key, "timestamp") != 0)
			(void)ddp_json_skip(json);
		else if (ddp_json_peek(json) == '"')
			put_string(json, &stamp);
		else
			(void)ddp_json_real(json, &rank->raised);
	}
	if (stamp)
		rank->raised = strtod(stamp, NULL);
	free(stamp);
}

static void take_message(struct facts_rank *rank, struct ddp_json *json)
{
	if (ddp_json_peek(json) != '{') {
		put_string(json, &rank->message);
		return;
	}
	ddp_json_open(json, '{');
	for (bool first = true; ddp_json_more(json, '}', first); first = false) {
		const char *key = ddp_json_key(json);

		if (!key)
			break;
		if (strcmp(key, "message") == 0)
			put_string(json, &rank->message);
		else if (strcmp(key, "extraInfo") == 0 && ddp_json_peek(json) == '{')
			take_extra(rank, json);
		else
			(void)ddp_json_skip(json);
	}
}

/* {"message": {"message": "Type: text", "extraInfo": {"py_callstack": "", "timestamp": "1"}}}, or {"message": "text"}. */
static void read_error(struct facts_rank *rank, char *text, size_t size)
{
	struct ddp_json json;

	ddp_json_start(&json, text, size);
	ddp_json_open(&json, '{');
	for (bool first = true; ddp_json_more(&json, '}', first); first = false) {
		const char *key = ddp_json_key(&json);

		if (!key)
			break;
		if (strcmp(key, "message") == 0)
			take_message(rank, &json);
		else
			(void)ddp_json_skip(&json);
	}
	/* The process may have been killed in the middle of it. */
	if (json.wrong && !rank->message &&
	    asprintf(&rank->message, "an error file that says no more: %s", json.wrong) < 0)
		rank->message = NULL;
}

void facts_stopped(const char *dir, char *why, size_t size)
{
	static const char stopped[] = "stopped: ";
	struct facts_rank rank = {.message = NULL};
	struct ddp_text plain = {.data = NULL};
	char path[PATH_MAX + 16], *text = NULL;
	size_t length;

	*why = '\0';
	snprintf(path, sizeof(path), "%s/" DDP_DIR_ERROR "0.json", dir);
	if (*dir && ddp_file_read(path, FILE_LIMIT, &text, &length, NULL) == 0)
		read_error(&rank, text, length);
	if (rank.message && strncmp(rank.message, stopped, strlen(stopped)) == 0) {
		ddp_text_plain(&plain, rank.message + strlen(stopped));
		snprintf(why, size, "%s", plain.data ? plain.data : "");
	}
	ddp_text_free(&plain);
	free(rank.message);
	free(rank.traceback);
	free(text);
}

/* A line of srun's or of a slurmstepd's; from Slurm 25.05 on these begin with the time, which may be a rank's own way too. */
static bool is_slurms(const char *line)
{
	static const char *const begins[] = {"srun: ", "slurmstepd", "salloc: "};
	static const char *const tells[] = {"execve(): ", "*** STEP "};
	int length = 0;

	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		if (strncmp(line, begins[i], strlen(begins[i])) == 0)
			return true;
	(void)sscanf(line, "[%*d-%*d-%*dT%*d:%*d:%*d.%*d] error: %n", &length);
	for (size_t i = 0; i < sizeof(tells) / sizeof(tells[0]) && length > 0; i++)
		if (strncmp(line + length, tells[i], strlen(tells[i])) == 0)
			return true;
	return false;
}

/* Without the lines that Slurm wrote between those of ranks: the report says better what they say. */
static void drop_slurms(char *text)
{
	char *out = text;

	for (char *line = text, *next; *line; line = next) {
		size_t length = strcspn(line, "\n");

		next = line + length + (line[length] == '\n');
		if (is_slurms(line))
			continue;
		memmove(out, line, (size_t)(next - line));
		out += next - line;
	}
	*out = '\0';
}

static char *copy_output(char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (!text[i])
			text[i] = '?';
	drop_slurms(text);
	return strdup(text);
}

static void read_tail(struct facts_rank *rank, char *text, size_t size)
{
	rank->tail = copy_output(text, size);
}

static void read_process(struct facts_rank *rank, char *text, size_t size)
{
	char *rest = NULL;

	(void)size;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (strncmp(line, "command ", 8) == 0 && !rank->command)
			rank->command = strdup(line + 8);
		(void)sscanf(line, "pid %ld", &rank->pid);
		(void)sscanf(line, "node %127s", rank->node);
		(void)sscanf(line, "state %c", &rank->state);
		(void)sscanf(line, "wchan %127s", rank->wchan);
		(void)sscanf(line, "parent %31s", rank->parent);
		(void)sscanf(line, "beat %lf", &rank->beat);
	}
}

static void read_stacks(struct facts_rank *rank, char *text, size_t size)
{
	(void)text;
	rank->stacks = size > 0;
}

static const struct {
	const char *prefix, *suffix;
	void (*read)(struct facts_rank *rank, char *text, size_t size);
} files[] = {
	{DDP_DIR_TASK, "", read_task},	  {DDP_DIR_ERROR, ".json", read_error},
	{"tail-", ".txt", read_tail},	  {"proc-", ".txt", read_process},
	{"stacks-", ".txt", read_stacks}, {"rank-", "", NULL},
	{DDP_DIR_DUMP, "", NULL},
};

/* Read [name], if it is a file of a rank. */
static void read_file(struct facts *facts, const char *name)
{
	char path[PATH_MAX + 300], *text = NULL, *end;
	struct facts_rank *rank = NULL;
	unsigned long number;
	size_t kind, size;
	bool dump;

	for (kind = 0; kind < sizeof(files) / sizeof(files[0]) && !rank; kind++) {
		size_t n = strlen(files[kind].prefix);

		if (strncmp(name, files[kind].prefix, n) != 0 || name[n] < '0' || name[n] > '9')
			continue;
		number = strtoul(name + n, &end, 10);
		if (strcmp(end, files[kind].suffix) == 0)
			rank = rank_at(facts, (double)number);
	}
	if (!rank)
		return;
	kind--;
	dump = strcmp(files[kind].prefix, DDP_DIR_DUMP) == 0;
	facts->dumps += dump;
	snprintf(path, sizeof(path), "%s/%s", facts->dir, name);
	if (ddp_file_read(path, dump ? DUMP_LIMIT : FILE_LIMIT, &text, &size, NULL) != 0)
		return;
	if (files[kind].read)
		files[kind].read(rank, text, size);
	else if (dump)
		(void)flight_read(&facts->flight, (int)(rank - facts->ranks), text, size);
	else
		ddp_arrival_read(text, &facts->arrivals[rank - facts->ranks]);
	free(text);
}

/* --- Files about nodes ----------------------------------------------------------------------- */

/* A copy of nodes_field(), which here goes on to [end]; NULL: there is none, or it says nothing. */
static char *copy_field(const char *line, const char *key, const char *end)
{
	size_t size;
	const char *at = nodes_field(line, key, &size);

	return size > 0 ? strndup(at, strcspn(at, end)) : NULL;
}

void facts_read_nodes(struct facts *facts)
{
	char path[PATH_MAX + 16], *text = NULL, *rest = NULL;
	size_t size;

	snprintf(path, sizeof(path), "%s/nodes.txt", facts->dir);
	if (ddp_file_read(path, FILE_LIMIT, &text, &size, NULL) != 0)
		return;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *name = copy_field(line, "NodeName", " ");
		struct facts_node *node = name ? facts_node(facts, name) : NULL;

		if (node) {
			free(node->state);
			free(node->reason);
			node->state = copy_field(line, "State", " ");
			/* "Not responding [slurm@2026-11-23T13:00:00]", before what follows it. */
			node->reason = copy_field(line, "Reason", "]");
			if (node->reason && strchr(node->reason, '[')) {
				char *stamp = strrchr(node->reason, '[');

				*stamp = '\0';
				while (stamp > node->reason && stamp[-1] == ' ')
					*--stamp = '\0';
			}
		}
		free(name);
	}
	free(text);
}

/* "memory-n1.txt". */
static void read_memory(struct facts *facts, const char *name)
{
	size_t n = strlen("memory-"), length = strlen(name);
	char path[PATH_MAX + 300], *text = NULL, *node_name;
	struct facts_node *node;
	size_t size;

	if (strncmp(name, "memory-", n) != 0 || length < n + 5 ||
	    strcmp(name + length - 4, ".txt") != 0)
		return;
	node_name = strndup(name + n, length - n - 4);
	node = node_name ? facts_node(facts, node_name) : NULL;
	free(node_name);
	snprintf(path, sizeof(path), "%s/%s", facts->dir, name);
	if (node && ddp_file_read(path, FILE_LIMIT, &text, &size, NULL) == 0)
		(void)sscanf(text, "oom_kill %ld", &node->kills);
	free(text);
}

/* --- All of it ------------------------------------------------------------------------------- */

static int read_directory(struct facts *facts, struct ddp_error *error)
{
	DIR *dir = opendir(facts->dir);
	struct dirent *entry;

	if (!dir)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot open %s", facts->dir);
	while ((entry = readdir(dir))) {
		read_file(facts, entry->d_name);
		read_memory(facts, entry->d_name);
		facts->ras = facts->ras || strcmp(entry->d_name, "ras.txt") == 0;
	}
	closedir(dir);
	ddp_arrival_keep_last_world(facts->arrivals, facts->size);
	return 0;
}

/* A list that nobody gave is an empty one. */
static int fill_lists(struct facts *facts)
{
	char ***const lists[] = {&facts->command, &facts->nodes, &facts->next_nodes};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		if (!*lists[i] && !(*lists[i] = calloc(1, sizeof(char *))))
			return -1;
	return 0;
}

int facts_read(struct facts *facts, const char *dir, struct ddp_error *error)
{
	char path[PATH_MAX + 16], *text = NULL;
	size_t size;
	int status;

	*facts = (struct facts){.first = -1};
	if (snprintf(facts->dir, sizeof(facts->dir), "%s", dir) >= (int)sizeof(facts->dir))
		return ddp_error_set(error, DDP_ERR_FILE, "%.200s... is too long", dir);
	snprintf(path, sizeof(path), "%s/attempt.json", dir);
	if (ddp_file_read(path, FILE_LIMIT, &text, &size, NULL) == 0)
		read_attempt(facts, text, size);
	free(text);
	text = NULL;
	snprintf(path, sizeof(path), "%s/tail.txt", dir);
	if (ddp_file_read(path, FILE_LIMIT, &text, &size, NULL) == 0)
		facts->tail = copy_output(text, size);
	free(text);
	status = read_directory(facts, error);
	if (status == 0 && fill_lists(facts) < 0)
		status =
			ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the report on %s", dir);
	if (status < 0) {
		facts_free(facts);
		return status;
	}
	facts_read_nodes(facts);
	facts_judge(facts);
	return 0;
}
