/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "facts.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/command.h"
#include "base/file.h"
#include "base/json.h"
#include "base/xalloc.h"
#include "contract.h"

enum {
	RANKS_MOST = 1 << 17,
	FILE_LIMIT = 1 << 20,  /* bytes */
	DECODE_LIMIT = 20,     /* seconds to decode all dumps */
	MOST_DUMPS = 1000,     /* number of dumps beyond which the time limit does not grow */
	DUMPS_PER_SECOND = 10, /* the time limit grows by a second for this many dumps */
	ARRIVAL_BYTES = 1024,  /* bytes of the decoder's output for each rank */
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

bool facts_is_kind(const struct facts *facts, const char *kind)
{
	return facts->kind && strcmp(facts->kind, kind) == 0;
}

/* --- Memory -------------------------------------------------------------------------------- */

/* Returns [old] with [more] zeroed elements of [size] bytes after the first [count]. */
static void *extend(void *old, size_t count, size_t more, size_t size)
{
	void *new = ddp_xcalloc(count + more, size, "the report");

	if (count)
		memcpy(new, old, count * size);
	free(old);
	return new;
}

/* Register [memory] to be freed with [facts]. Returns [memory]. */
static void *keep(struct facts *facts, void *memory)
{
	size_t count = facts->kept_count++;

	/* The capacity of the list is always a power of two. */
	if ((count & (count - 1)) == 0)
		facts->kept = extend(facts->kept, count, count + 1, sizeof(*facts->kept));
	facts->kept[count] = memory;
	return memory;
}

static char *keep_copy(struct facts *facts, const char *text, size_t length)
{
	char *copy = keep(facts, ddp_xcalloc(length + 1, 1, "the report"));

	memcpy(copy, text, length);
	return copy;
}

/* Returns the entry of [rank], added if necessary; NULL if [rank] is not a valid rank. */
static struct facts_rank *rank_at(struct facts *facts, double rank)
{
	size_t had = (size_t)facts->size, more;

	if (!(rank >= 0 && rank < RANKS_MOST))
		return NULL;
	if (rank >= facts->size) {
		more = (size_t)rank + 1 - had;
		facts->ranks = extend(facts->ranks, had, more, sizeof(*facts->ranks));
		facts->arrivals = extend(facts->arrivals, had, more, sizeof(*facts->arrivals));
		facts->size = (int)rank + 1;
		for (; had < (size_t)facts->size; had++)
			facts->ranks[had].heartbeat_age = -1;
	}
	return &facts->ranks[(int)rank];
}

struct facts_node *facts_node(struct facts *facts, const char *name)
{
	size_t count = (size_t)facts->known_count;

	for (int i = 0; i < facts->known_count; i++)
		if (strcmp(facts->known[i].name, name) == 0)
			return &facts->known[i];
	facts->known = extend(facts->known, count, 1, sizeof(*facts->known));
	snprintf(facts->known[count].name, sizeof(facts->known[count].name), "%s", name);
	facts->known_count++;
	return &facts->known[count];
}

void facts_free(struct facts *facts)
{
	for (size_t i = 0; i < facts->kept_count; i++)
		free(facts->kept[i]);
	free(facts->kept);
	free(facts->ranks);
	free(facts->arrivals);
	free(facts->known);
	*facts = (struct facts){.first = -1};
}

/*
 * Returns the content of file [name] in the directory, with a zero byte at the end, and sets
 * [size]. Returns NULL if the file cannot be read.
 */
static char *read_text(struct facts *facts, const char *name, size_t *size)
{
	char path[PATH_MAX + 300], *text = NULL;

	snprintf(path, sizeof(path), "%s/%s", facts->dir, name);
	return ddp_file_read(path, FILE_LIMIT, &text, size, NULL) == 0 ? keep(facts, text) : NULL;
}

/* --- JSON ---------------------------------------------------------------------------------- */

/*
 * A member of a JSON object, with one destination for each type that its value may have. A value of
 * another type is skipped.
 */
struct member {
	const char *key;
	double *number;
	const char **string;
	const char ***list;	      /* for a list of strings */
	const struct member *members; /* for an object: its members */
	void (*element)(struct facts *facts,
			struct ddp_json *json); /* for another list: parses each element */
};

static const char **read_list(struct facts *facts, struct ddp_json *json)
{
	size_t count = 0;
	char **list = ddp_xcalloc(1, sizeof(*list), "the report");

	ddp_json_open(json, '[');
	for (bool first = true; ddp_json_more(json, ']', first); first = false) {
		char *text = ddp_json_peek(json) == '"' ? ddp_json_string(json) : NULL;

		if (!text) {
			(void)ddp_json_skip(json);
			continue;
		}
		list = extend(list, count + 1, 1, sizeof(*list));
		list[count++] = text;
	}
	return keep(facts, list);
}

/*
 * Parse an object with these [members]. A member without a key ends the list. Unknown members are
 * skipped.
 */
static void read_members(struct facts *facts, struct ddp_json *json, const struct member *members)
{
	ddp_json_open(json, '{');
	for (bool first = true; ddp_json_more(json, '}', first); first = false) {
		const char *key = ddp_json_key(json);
		const struct member *member = members;
		char type = ddp_json_peek(json);

		while (key && member->key && strcmp(member->key, key) != 0)
			member++;
		if (member->string && type == '"') {
			*member->string = ddp_json_string(json);
		} else if (member->number && type && strchr("-0123456789", type)) {
			(void)ddp_json_real(json, member->number);
		} else if (member->list && type == '[') {
			*member->list = read_list(facts, json);
		} else if (member->members && type == '{') {
			read_members(facts, json, member->members);
		} else if (member->element && type == '[') {
			ddp_json_open(json, '[');
			for (bool one = true; ddp_json_more(json, ']', one); one = false)
				member->element(facts, json);
		} else {
			(void)ddp_json_skip(json);
		}
	}
}

/* --- attempt.json -------------------------------------------------------------------------- */

/*
 * Written by ddp-run. Each member may be missing; unknown ones are skipped:
 *
 *     {"run_id": "r", "job": 12, "step": 3, "attempt": 0, "restarts": 3, "command": ["python3", "train.py"],
 *      "nodes": ["n1", "n2"], "ranks": 4, "started": 1795000000.25, "ended": 1795000012.5, "status": 137,
 *      "kind": "exit|signal|node|hang|cancelled|timelimit|steplimit|preempted|warned|stopped|refused",
 *      "refusal": "execve(): train: No such file or directory",
 *      "tasks": [{"rank": 2, "node": "n2", "how": "exit|signal|oom|late", "code": 9, "time": 1795000012.5}],
 *      "silent_nodes": ["n2"], "lost": 1, "quiet": 300.0,
 *      "next": "restart|requeue|stop", "next_nodes": ["n1"], "next_ranks": 2, "next_after": 0.12, "next_why": ""}
 *
 * Times are seconds since 1970. tasks are in the order of srun's messages. lost: 1 if srun reported that it lost a node or a
 * slurmstepd.
 */

static void read_silent(struct facts *facts, struct ddp_json *json)
{
	const char *name = ddp_json_string(json);

	if (name)
		facts_node(facts, name)->silent = true;
}

/* If srun printed several messages about a rank, use the first one. */
static void read_task(struct facts *facts, struct ddp_json *json)
{
	static const char none[] = "";
	const char *node = none, *how = none;
	double number = -1, code = 0, time = 0;
	const struct member members[] = {{"rank", .number = &number}, {"code", .number = &code},
					 {"time", .number = &time},   {"node", .string = &node},
					 {"how", .string = &how},     {.key = NULL}};
	struct facts_rank *rank;
	int order = 1;

	read_members(facts, json, members);
	rank = json->wrong ? NULL : rank_at(facts, number);
	if (!rank || rank->order > 0)
		return;
	for (int i = 0; i < facts->size; i++)
		order += facts->ranks[i].order > 0;
	for (enum facts_how at = FACTS_UNKNOWN; at < FACTS_HOW_COUNT; at++)
		if (strcmp(facts_how_name(at), how) == 0)
			rank->how = at;
	rank->code = (int)code;
	rank->time = time;
	rank->order = order;
	if (*node)
		snprintf(rank->node, sizeof(rank->node), "%s", node);
}

static void read_attempt(struct facts *facts)
{
	double ranks = 0;
	const struct member members[] = {
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
		{"tasks", .element = read_task},
		{"silent_nodes", .element = read_silent},
		{"lost", .number = &facts->lost},
		{"quiet", .number = &facts->quiet},
		{"next", .string = &facts->next},
		{"next_nodes", .list = &facts->next_nodes},
		{"next_ranks", .number = &facts->next_ranks},
		{"next_after", .number = &facts->next_after},
		{"next_why", .string = &facts->next_why},
		{.key = NULL},
	};
	struct ddp_json json;
	size_t size;
	char *text = read_text(facts, "attempt.json", &size);

	if (!text)
		return;
	ddp_json_start(&json, text, size);
	read_members(facts, &json, members);
	if (ranks >= 1)
		(void)rank_at(facts, ranks - 1);
}

/* --- Files of one rank --------------------------------------------------------------------- */

struct file {
	struct facts *facts;
	struct facts_rank *rank;
	char *text; /* a zero byte follows its [size] bytes */
	size_t size;
};

/* Parse task-<rank>, which the plugin wrote: the node and the pid, "n1 4711". */
static void read_place(struct file *file)
{
	char node[FACTS_NAME];

	(void)sscanf(file->text, "%127s %ld", file->rank->node[0] ? node : file->rank->node,
		     &file->rank->pid);
}

/*
 * Parse error-<rank>.json: {"message": {"message": "Type: text", "extraInfo": {"py_callstack": "",
 * "timestamp": "1"}}}, or {"message": "text"}.
 */
static void read_error(struct file *file)
{
	struct facts_rank *rank = file->rank;
	const char *stamp = NULL;
	const struct member extra[] = {{"py_callstack", .string = &rank->traceback},
				       {"timestamp", .string = &stamp, .number = &rank->raised},
				       {.key = NULL}};
	const struct member inner[] = {{"message", .string = &rank->message},
				       {"extraInfo", .members = extra},
				       {.key = NULL}};
	const struct member outer[] = {{"message", .string = &rank->message, .members = inner},
				       {.key = NULL}};
	struct ddp_json json;
	struct ddp_text cut = {.data = NULL};

	ddp_json_start(&json, file->text, file->size);
	read_members(file->facts, &json, outer);
	if (stamp)
		rank->raised = strtod(stamp, NULL);
	/* If the process was killed while it wrote the file, the JSON is incomplete. */
	if (json.wrong && !rank->message) {
		ddp_text_add(&cut, "an error file that is incomplete: %s", json.wrong);
		rank->message = keep(file->facts, cut.data);
	}
}

/* Remove zero bytes, and lines of Slurm, since the report has their content in another form. */
static const char *clean_output(char *text, size_t size)
{
	struct pattern_part part[PATTERN_PARTS];
	char *out = text;

	for (size_t i = 0; i < size; i++)
		if (!text[i])
			text[i] = '?';
	for (char *line = text, *next; *line; line = next) {
		size_t length = strcspn(line, "\n");

		next = line + length + (line[length] == '\n');
		if (pattern_find(PATTERN_OUTPUT, line, length, part) == LINE_SLURM)
			continue;
		memmove(out, line, (size_t)(next - line));
		out += next - line;
	}
	*out = '\0';
	return text;
}

static void read_tail(struct file *file)
{
	file->rank->tail = clean_output(file->text, file->size);
}

static void read_process(struct file *file)
{
	struct facts_rank *rank = file->rank;

	for (char *line, *rest = file->text; (line = strsep(&rest, "\n"));) {
		if (strncmp(line, "command ", 8) == 0 && !rank->command)
			rank->command = line + 8;
		(void)sscanf(line, "pid %ld", &rank->pid);
		(void)sscanf(line, "node %127s", rank->node);
		(void)sscanf(line, "state %c", &rank->state);
		(void)sscanf(line, "wchan %127s", rank->wchan);
		(void)sscanf(line, "parent %31s", rank->parent);
		(void)sscanf(line, "beat %lf", &rank->heartbeat_age);
	}
}

static void read_stacks(struct file *file)
{
	file->rank->stacks = file->size > 0;
}

static void read_record(struct file *file)
{
	ddp_arrival_read(file->text, &file->facts->arrivals[file->rank - file->facts->ranks]);
}

static void read_rank_file(struct facts *facts, const char *name)
{
	static const struct {
		const char *prefix, *suffix;
		void (*read)(struct file *file);
	} kinds[] = {
		{DDP_DIR_TASK, "", read_place},	  {DDP_DIR_ERROR, ".json", read_error},
		{"tail-", ".txt", read_tail},	  {"proc-", ".txt", read_process},
		{"stacks-", ".txt", read_stacks}, {"rank-", "", read_record},
		{DDP_DIR_DUMP, "", NULL},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct file file = {.facts = facts};
		size_t n = strlen(kinds[i].prefix);
		double number;
		char *end;

		if (strncmp(name, kinds[i].prefix, n) != 0 || name[n] < '0' || name[n] > '9')
			continue;
		number = (double)strtoul(name + n, &end, 10);
		file.rank = strcmp(end, kinds[i].suffix) == 0 ? rank_at(facts, number) : NULL;
		if (file.rank && !kinds[i].read)
			facts->dumps++;
		else if (file.rank && (file.text = read_text(facts, name, &file.size)))
			kinds[i].read(&file);
	}
}

void facts_stopped(const char *dir, char *why, size_t size)
{
	struct facts facts = {.first = -1};
	struct pattern_part part[PATTERN_PARTS];
	struct ddp_text plain = {.data = NULL};
	const char *message;

	*why = '\0';
	snprintf(facts.dir, sizeof(facts.dir), "%s", dir);
	if (*dir)
		read_rank_file(&facts, DDP_DIR_ERROR "0.json");
	message = facts.size > 0 ? facts.ranks[0].message : NULL;
	if (message &&
	    pattern_find(PATTERN_MESSAGE, message, strlen(message), part) == LINE_STOPPED) {
		ddp_text_plain(&plain, part[1].text);
		snprintf(why, size, "%s", plain.data ? plain.data : "");
	}
	ddp_text_free(&plain);
	facts_free(&facts);
}

/* --- Dumps of PyTorch's flight recorder ---------------------------------------------------- */

/* Whether only root or the owner of ddp-run can have written file [path]. */
static bool is_trusted(const char *path)
{
	struct stat self, info;

	return stat("/proc/self/exe", &self) == 0 && stat(path, &info) == 0 &&
	       S_ISREG(info.st_mode) && !(info.st_mode & S_IWOTH) &&
	       (info.st_uid == 0 || info.st_uid == self.st_uid) && access(path, R_OK) == 0;
}

/*
 * Find decode-dumps: in ddp-run's directory, as in a build tree; else in the installation that
 * contains ddp-run, which may have been moved; else in DDP_LIBEXEC_DIR.
 */
static void find_decoder(char path[PATH_MAX])
{
	static const char *const places[] = {"decode-dumps", "../libexec/" PACKAGE "/decode-dumps"};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (nodes_find_beside(places[i], path, PATH_MAX) && is_trusted(path))
			return;
	snprintf(path, PATH_MAX, "%s", DDP_LIBEXEC_DIR "/decode-dumps");
}

/* Write to [why] why dumps were not decoded; "" if they were. */
static void explain_decoder(const struct ddp_command_said *said, double limit, const char *path,
			    char *why, size_t size)
{
	*why = '\0';
	if (said->timed_out)
		snprintf(why, size, "python3 took more than %g s", limit);
	else if (said->status == 127)
		snprintf(why, size, "no python3 on this host");
	else if (said->status > 128)
		snprintf(why, size, "python3 was killed by %s",
			 facts_signal(said->status - 128).text);
	else if (said->status != 0 && access(path, R_OK) != 0)
		snprintf(why, size, "%.90s is missing", path);
	else if (said->status != 0)
		snprintf(why, size, "python3 ended with exit status %d", said->status);
}

/* Returns the decoder's output, a JSON text of [size] bytes. Sets facts->undecoded on failure. */
static char *decode_dumps(struct facts *facts, size_t *size)
{
	/* ddp-run writes several reports on one attempt, but decodes the dumps only once. */
	static struct {
		char dir[PATH_MAX], why[sizeof(facts->undecoded)];
		int size, dumps;
		struct ddp_text out;
	} last;
	int counted = facts->dumps < MOST_DUMPS ? facts->dumps : MOST_DUMPS;
	double limit = DECODE_LIMIT + counted / DUMPS_PER_SECOND;
	const struct ddp_command how = {
		.limit = limit, .grace = 1, .most = ((size_t)facts->size + 1) * ARRIVAL_BYTES};
	struct ddp_command_said said;
	char path[PATH_MAX], ranks[16];
	/* -I and -S restrict imports to Python's own modules. */
	char *const argv[] = {"python3", "-I", "-S", path, facts->dir, ranks, NULL};

	if (strcmp(last.dir, facts->dir) != 0 || last.size != facts->size ||
	    last.dumps != facts->dumps) {
		find_decoder(path);
		snprintf(ranks, sizeof(ranks), "%d", facts->size);
		ddp_command_run(argv, &how, &said);
		explain_decoder(&said, limit, path, last.why, sizeof(last.why));
		ddp_text_free(&last.out);
		ddp_text_put(&last.out, said.out.data ? said.out.data : "", said.out.size);
		ddp_command_said_free(&said);
		memcpy(last.dir, facts->dir, sizeof(last.dir));
		last.size = facts->size;
		last.dumps = facts->dumps;
	}
	memcpy(facts->undecoded, last.why, sizeof(facts->undecoded));
	*size = last.out.size;
	return keep_copy(facts, last.out.data, last.out.size);
}

/* Parse an element of the decoder's list: the last collective of a rank. */
static void read_arrival(struct facts *facts, struct ddp_json *json)
{
	double rank = -1, there = 0, waits = 0, sequence = 0;
	const char *last = "";
	const struct member members[] = {
		{"rank", .number = &rank},   {"there", .number = &there},
		{"waits", .number = &waits}, {"sequence", .number = &sequence},
		{"last", .string = &last},   {.key = NULL}};

	read_members(facts, json, members);
	if (json->wrong || rank < 0 || rank >= facts->size || sequence < 0)
		return;
	facts->arrivals[(int)rank] = (struct ddp_arrival){
		.there = there != 0,
		.waits = waits != 0,
		.sequence = sequence < 0x1p64 ? (uint64_t)sequence : UINT64_MAX};
	snprintf(facts->arrivals[(int)rank].last, sizeof(facts->arrivals[0].last), "%s", last);
}

/* Set [arrivals] from the dumps, unless a rank left a record of libddp. */
static void read_dumps(struct facts *facts)
{
	struct ddp_json json;
	size_t size;
	char *text;

	for (int i = 0; i < facts->size; i++)
		if (facts->arrivals[i].there)
			return;
	if (facts->dumps == 0)
		return;
	text = decode_dumps(facts, &size);
	if (facts->undecoded[0])
		return;
	ddp_json_start(&json, text, size);
	ddp_json_open(&json, '[');
	for (bool first = true; ddp_json_more(&json, ']', first); first = false) {
		/* Ranks that are not in the list are not members of the process group. */
		for (int i = 0; i < facts->size && first; i++)
			facts->arrivals[i].outside = true;
		read_arrival(facts, &json);
	}
	if (!ddp_json_end(&json)) {
		memset(facts->arrivals, 0, (size_t)facts->size * sizeof(*facts->arrivals));
		snprintf(facts->undecoded, sizeof(facts->undecoded),
			 "the output of python3 is not valid");
	}
}

/* --- Files about nodes --------------------------------------------------------------------- */

void facts_read_nodes(struct facts *facts)
{
	size_t size;
	char *text = read_text(facts, "nodes.txt", &size);

	for (char *line; (line = strsep(&text, "\n"));) {
		const char *at = nodes_field(line, "NodeName", &size), *stamp;
		struct facts_node *node =
			size > 0 ? facts_node(facts, keep_copy(facts, at, size)) : NULL;

		if (!node)
			continue;
		at = nodes_field(line, "State", &size);
		node->state = size > 0 ? keep_copy(facts, at, size) : NULL;
		at = nodes_field(line, "Reason", &size);
		node->reason = NULL;
		if (size == 0)
			continue;
		/* Cut "Not responding [slurm@2026-11-23T13:00:00]" before the time. */
		size = strcspn(at, "]");
		stamp = memrchr(at, '[', size);
		if (stamp)
			for (size = (size_t)(stamp - at); size > 0 && at[size - 1] == ' ';)
				size--;
		node->reason = keep_copy(facts, at, size);
	}
}

static void read_memory(struct facts *facts, const char *name)
{
	size_t n = strlen("memory-"), length = strlen(name), size;
	struct facts_node *node;
	char *text;

	if (strncmp(name, "memory-", n) != 0 || length < n + 5 ||
	    strcmp(name + length - 4, ".txt") != 0)
		return;
	node = facts_node(facts, keep_copy(facts, name + n, length - n - 4));
	text = read_text(facts, name, &size);
	if (text)
		(void)sscanf(text, "oom_kill %ld", &node->oom_kills);
}

/* --- Messages ------------------------------------------------------------------------------ */

/*
 * Find an error message in [tail], the output of one rank: the last uncaught exception of Python or
 * C++; else the last error line of libddp, and then set [libddp]. If [tail] is the output of all
 * ranks, [rank] selects libddp's lines about that rank; otherwise [rank] is -1.
 */
static const char *find_message(struct facts *facts, const char *tail, int rank, bool *libddp)
{
	struct pattern_part part[PATTERN_PARTS], found = {NULL, 0};
	char label[32];
	bool inside = false;

	*libddp = rank >= 0;
	snprintf(label, sizeof(label), "%d@", rank);
	for (const char *line = tail; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t length = strcspn(line, "\n");
		enum pattern_meaning meaning = pattern_find(PATTERN_OUTPUT, line, length, part);
		bool is_label = rank < 0 || (meaning == LINE_LIBDDP &&
					     strncmp(part[1].text, label, strlen(label)) == 0);

		if (!is_label)
			continue;
		if (meaning == LINE_TRACEBACK) {
			inside = true;
		} else if (meaning == LINE_CPP) {
			found = part[1];
			*libddp = false;
		} else if (inside && length > 0 && *line != ' ' && *line != '\t') {
			found = (struct pattern_part){line, length};
			inside = *libddp = false;
		} else if (meaning == LINE_LIBDDP && (!found.text || *libddp)) {
			found = part[2];
			*libddp = true;
		}
	}
	while (found.length > 0 && strchr("\r ", found.text[found.length - 1]))
		found.length--;
	*libddp = *libddp && found.length > 0;
	return found.length ? keep_copy(facts, found.text, found.length) : NULL;
}

/* Complete rank [number]: add its node and message from libddp's record and from the output. */
static void complete_rank(struct facts *facts, int number)
{
	const struct ddp_arrival *arrival = &facts->arrivals[number];
	struct facts_rank *rank = &facts->ranks[number];

	if (!rank->node[0])
		snprintf(rank->node, sizeof(rank->node), "%s", arrival->host);
	if (rank->pid == 0)
		rank->pid = arrival->pid;
	if (rank->message)
		return;
	if (arrival->reason[0] && strcmp(arrival->reason, "SIGTERM") != 0) {
		rank->message = arrival->reason;
		rank->libddp = true;
		return;
	}
	if (rank->tail && rank->order > 0)
		rank->message = find_message(facts, rank->tail, -1, &rank->libddp);
	if (!rank->message && facts->tail && rank->order > 0)
		rank->message = find_message(facts, facts->tail, number, &rank->libddp);
}

/* --- The directory ------------------------------------------------------------------------- */

int facts_read(struct facts *facts, const char *path, struct ddp_error *error)
{
	static const char *none[] = {NULL};
	DIR *dir = opendir(path);
	struct dirent *entry;
	bool records = false;
	size_t size;
	char *text;

	*facts = (struct facts){.first = -1, .command = none, .nodes = none, .next_nodes = none};
	if (!dir)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot open %s", path);
	snprintf(facts->dir, sizeof(facts->dir), "%s", path);
	read_attempt(facts);
	text = read_text(facts, "tail.txt", &size);
	facts->tail = text ? clean_output(text, size) : NULL;
	while ((entry = readdir(dir))) {
		read_rank_file(facts, entry->d_name);
		read_memory(facts, entry->d_name);
		facts->ras = facts->ras || strcmp(entry->d_name, "ras.txt") == 0;
	}
	closedir(dir);
	ddp_arrival_keep_last_world(facts->arrivals, facts->size);
	facts_read_nodes(facts);
	read_dumps(facts);
	for (int i = 0; i < facts->size; i++) {
		complete_rank(facts, i);
		records = records || facts->arrivals[i].there;
	}
	if (records)
		ddp_arrival_describe(facts->arrivals, facts->size, facts->collectives,
				     sizeof(facts->collectives));
	return 0;
}

void ddp_evidence_discard(const char *dir)
{
	DIR *open = opendir(dir);
	char above[PATH_MAX];
	struct dirent *entry;
	char *slash;

	if (!open)
		return;
	while ((entry = readdir(open)))
		if (entry->d_name[0] != '.')
			(void)unlinkat(dirfd(open), entry->d_name, 0);
	closedir(open);
	if (rmdir(dir) < 0 || snprintf(above, sizeof(above), "%s", dir) >= (int)sizeof(above))
		return;
	slash = strrchr(above, '/');
	if (!slash)
		return;
	*slash = '\0';
	slash = strrchr(above, '/');
	if (strcmp(slash ? slash + 1 : above, DDP_DIR_PARENT) == 0)
		(void)rmdir(above);
}
