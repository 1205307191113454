/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c - fill struct facts from srun's messages, the output of the ranks, and files */
#include "config.h"

#include "ddp-run.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/command.h"
#include "base/file.h"
#include "base/json.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "contract.h"
#include "inspect.h"

enum {
	RANKS_MOST = 1 << 17,
	FILE_LIMIT = 1 << 20,  /* bytes */
	DECODE_LIMIT = 20,     /* seconds to decode all dumps */
	MOST_DUMPS = 1000,     /* number of dumps beyond which the time limit does not grow */
	DUMPS_PER_SECOND = 10, /* the time limit grows by a second for this many dumps */
	ARRIVAL_BYTES = 1024,  /* bytes of the decoder's output for each rank */
	NODES_LIMIT = 5,       /* seconds for Slurm to describe nodes */
	NODES_ASKED = 16,
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

/* --- Memory -------------------------------------------------------------------------------- */

/* Returns [old], a list of [count] elements of [size] bytes, extended by [more] zeroed elements. */
static void *extend(void *old, size_t count, size_t more, size_t size)
{
	void *new = ddp_xcalloc(count + more, size, "the report");

	if (count)
		memcpy(new, old, count * size);
	free(old);
	return new;
}

/* Transfer [memory] to [facts], which frees it with facts_free(). Returns [memory]. */
static void *keep(struct facts *facts, void *memory)
{
	size_t count = facts->kept_count++;

	/* The list is extended when its length is a power of two, or 0. */
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

/* Returns the entry of [rank], which is added if necessary. Returns NULL if [rank] is too large. */
static struct facts_rank *rank_at(struct facts *facts, size_t rank)
{
	size_t had = (size_t)facts->size;

	if (rank >= RANKS_MOST)
		return NULL;
	if (rank >= had) {
		facts->ranks = extend(facts->ranks, had, rank + 1 - had, sizeof(*facts->ranks));
		facts->arrivals =
			extend(facts->arrivals, had, rank + 1 - had, sizeof(*facts->arrivals));
		facts->size = (int)rank + 1;
		for (; had <= rank; had++) {
			facts->ranks[had].heartbeat_age = -1;
			facts->ranks[had].stack.place = STACK_UNKNOWN;
		}
	}
	return &facts->ranks[rank];
}

/* Returns the entry of node [name], added if necessary. */
static struct facts_node *node_at(struct facts *facts, const char *name)
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
 * Returns the content of file [name] in [dir], with a zero byte at the end, and sets
 * [size]. Returns NULL if the file cannot be read.
 */
static char *read_text(struct facts *facts, const char *dir, const char *name, size_t *size)
{
	char path[PATH_MAX + 300], *text = NULL;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return ddp_file_read(path, FILE_LIMIT, &text, size, NULL) == 0 ? keep(facts, text) : NULL;
}

/* --- JSON ---------------------------------------------------------------------------------- */

/*
 * A member of a JSON object. Each destination stores the value if it has the destination's type. A
 * value without a destination of its type is skipped.
 */
struct member {
	const char *key;
	double *number;
	const char **string;
	const struct member *members; /* members of the value, if it is an object */
};

/*
 * Parse a JSON object. [members] ends with an entry without a key. Members of the object that are
 * not in [members] are skipped.
 */
static void read_members(struct ddp_json *json, const struct member *members)
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
		} else if (member->members && type == '{') {
			read_members(json, member->members);
		} else {
			(void)ddp_json_skip(json);
		}
	}
}

/* --- srun's messages and the output of the ranks ------------------------------------------- */

/* If srun printed several messages about a rank, use the first one. */
static void add_tasks(struct facts *facts, const struct srun_said *said)
{
	int order = 0;

	for (size_t i = 0; i < said->count; i++) {
		const struct srun_task *task = &said->task[i];
		struct facts_rank *rank = rank_at(facts, (size_t)task->rank);

		if (!rank || rank->order > 0)
			continue;
		rank->how = task->how;
		rank->code = task->code;
		rank->time = task->time;
		rank->order = ++order;
		snprintf(rank->node, sizeof(rank->node), "%s", task->node);
	}
}

/*
 * Returns the last output of [rank] from tails_text(), or NULL if there is none. Zero bytes become
 * "?". Slurm's own lines are dropped, since the report contains their facts in another form.
 */
static const char *read_tail(struct facts *facts, struct tails *tails, int rank)
{
	struct pattern_part part[PATTERN_PARTS];
	struct ddp_text text = {.data = NULL};
	char *out;

	tails_text(tails, rank, &text);
	if (text.size == 0) {
		ddp_text_free(&text);
		return NULL;
	}
	out = keep(facts, text.data);
	for (size_t i = 0; i < text.size; i++)
		if (!text.data[i])
			text.data[i] = '?';
	for (char *line = text.data, *next; *line; line = next) {
		size_t length = strcspn(line, "\n");

		next = line + length + (line[length] == '\n');
		if (pattern_find(PATTERN_OUTPUT, line, length, part) == LINE_SLURM)
			continue;
		memmove(out, line, (size_t)(next - line));
		out += next - line;
	}
	*out = '\0';
	return text.data;
}

/* --- Files of one rank --------------------------------------------------------------------- */

struct file {
	struct facts *facts;
	struct facts_rank *rank;
	char *text; /* the file's [size] bytes, followed by a zero byte */
	size_t size;
};

/* Parse task-<rank>, which the plugin wrote. It has the node and the pid, such as "n1 4711". */
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
	read_members(&json, outer);
	if (stamp)
		rank->raised = strtod(stamp, NULL);
	/* If the process was killed while it wrote the file, the JSON is incomplete. */
	if (json.wrong && !rank->message) {
		ddp_text_add(&cut, "the rank's error file is incomplete: %s", json.wrong);
		rank->message = keep(file->facts, cut.data);
	}
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
	stack_parse_file(&file->rank->stack, file->text);
}

static void read_record(struct file *file)
{
	ddp_arrival_read(file->text, &file->facts->arrivals[file->rank - file->facts->ranks]);
}

static void read_rank_file(struct facts *facts, const char *dir, const char *name)
{
	static const struct {
		const char *prefix, *suffix;
		void (*read)(struct file *file);
	} kinds[] = {
		{DDP_DIR_TASK, "", read_place},	 {DDP_DIR_ERROR, ".json", read_error},
		{"proc-", ".txt", read_process}, {"stacks-", ".txt", read_stacks},
		{"rank-", "", read_record},	 {DDP_DIR_DUMP, "", NULL},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct file file = {.facts = facts};
		size_t n = strlen(kinds[i].prefix);
		size_t number;
		char *end;

		if (strncmp(name, kinds[i].prefix, n) != 0 || name[n] < '0' || name[n] > '9')
			continue;
		number = strtoul(name + n, &end, 10);
		file.rank = strcmp(end, kinds[i].suffix) == 0 ? rank_at(facts, number) : NULL;
		if (file.rank && !kinds[i].read)
			facts->dumps++;
		else if (file.rank && (file.text = read_text(facts, dir, name, &file.size)))
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
	if (*dir)
		read_rank_file(&facts, dir, DDP_DIR_ERROR "0.json");
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
 * Find the program decode-dumps. In a build tree, it is in ddp-run's directory. Otherwise it is in
 * the installation that contains ddp-run, which may have been moved, or else in DDP_LIBEXEC_DIR.
 */
static void find_decoder(char path[PATH_MAX])
{
	static const char *const places[] = {"decode-dumps", "../libexec/" PACKAGE "/decode-dumps"};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (nodes_find_beside(places[i], path, PATH_MAX) && is_trusted(path))
			return;
	snprintf(path, PATH_MAX, "%s", DDP_LIBEXEC_DIR "/decode-dumps");
}

/* Write to [why] the reason why the dumps were not decoded, or "" if they were. */
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
static char *decode_dumps(struct facts *facts, const char *dir, size_t *size)
{
	int counted = facts->dumps < MOST_DUMPS ? facts->dumps : MOST_DUMPS;
	double limit = DECODE_LIMIT + counted / DUMPS_PER_SECOND;
	const struct ddp_command how = {
		.limit = limit, .grace = 1, .most = ((size_t)facts->size + 1) * ARRIVAL_BYTES};
	struct ddp_command_said said;
	char path[PATH_MAX], ranks[16], *out;
	/* -I and -S restrict imports to Python's own modules. */
	char *const argv[] = {"python3", "-I", "-S", path, (char *)dir, ranks, NULL};

	find_decoder(path);
	snprintf(ranks, sizeof(ranks), "%d", facts->size);
	ddp_command_run(argv, &how, &said);
	explain_decoder(&said, limit, path, facts->undecoded, sizeof(facts->undecoded));
	*size = said.out.size;
	out = keep_copy(facts, said.out.data ? said.out.data : "", said.out.size);
	ddp_command_said_free(&said);
	return out;
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

	read_members(json, members);
	if (json->wrong || rank < 0 || rank >= facts->size || sequence < 0)
		return;
	facts->arrivals[(int)rank] = (struct ddp_arrival){
		.there = there != 0,
		.waits = waits != 0,
		.sequence = sequence < 0x1p64 ? (uint64_t)sequence : UINT64_MAX};
	snprintf(facts->arrivals[(int)rank].last, sizeof(facts->arrivals[0].last), "%s", last);
}

/* Set facts->arrivals from the dumps, unless a rank that uses libddp has left a record. */
static void read_dumps(struct facts *facts, const char *dir)
{
	struct ddp_json json;
	size_t size;
	char *text;

	for (int i = 0; i < facts->size; i++)
		if (facts->arrivals[i].there)
			return;
	if (facts->dumps == 0)
		return;
	text = decode_dumps(facts, dir, &size);
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

void facts_read_nodes(struct facts *facts, char *lines)
{
	size_t size;

	for (char *line; (line = strsep(&lines, "\n"));) {
		const char *at = nodes_field(line, "NodeName", &size), *stamp;
		struct facts_node *node =
			size > 0 ? node_at(facts, keep_copy(facts, at, size)) : NULL;

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

static void read_memory(struct facts *facts, const char *dir, const char *name)
{
	size_t n = strlen("memory-"), length = strlen(name), size;
	struct facts_node *node;
	char *text;

	if (strncmp(name, "memory-", n) != 0 || length < n + 5 ||
	    strcmp(name + length - 4, ".txt") != 0)
		return;
	node = node_at(facts, keep_copy(facts, name + n, length - n - 4));
	text = read_text(facts, dir, name, &size);
	if (text)
		(void)sscanf(text, "oom_kill %ld", &node->oom_kills);
}

/* Add [name] to [list], unless Slurm would parse it as a list of nodes or as an option. */
static void add_node(struct node_list *list, const char *name)
{
	if (*name && *name != '-' && !strpbrk(name, ",[] ") && list->count < NODES_ASKED)
		nodes_add(list, name);
}

void facts_ask_nodes(struct facts *facts, const struct attempt *attempt)
{
	struct node_list list = {.name = NULL};
	struct ddp_text out = {.data = NULL};
	/*
	 * If this host is a node of the job, its cgroup shows how many processes of the job the
	 * kernel killed here for lack of memory.
	 */
	long kills = inspect_memory(attempt->dir, attempt->job);
	char *names;

	if (kills > 0)
		node_at(facts, inspect_node())->oom_kills = kills;
	for (int i = 0; i < facts->known_count; i++)
		add_node(&list, facts->known[i].name);
	if (facts->first >= 0)
		add_node(&list, facts->ranks[facts->first].node);
	for (int i = 0; i < facts->size; i++)
		if (facts->ranks[i].how == FACTS_NODE)
			add_node(&list, facts->ranks[i].node);
	names = nodes_joined(&list);
	if (list.count > 0) {
		char *const argv[] = {"scontrol", "-o", "show", "node", names, NULL};

		if (nodes_run(argv, NODES_LIMIT, &out) == 0 && out.size > 0) {
			(void)ddp_file_write_text(attempt->dir, "nodes.txt", &out, NULL);
			facts_read_nodes(facts, out.data);
		}
	}
	free(names);
	nodes_free(&list);
	ddp_text_free(&out);
}

/* --- Messages ------------------------------------------------------------------------------ */

/* Whether the last line of [output] ends with [text]. */
static bool ends_with(const char *output, const char *text)
{
	size_t size = strlen(output), length = strlen(text);

	while (size > 0 && isspace((unsigned char)output[size - 1]))
		size--;
	return size >= length && strncmp(output + size - length, text, length) == 0;
}

/*
 * Set the message of a rank to the last error in [tail], its output. If [tail] is the output of all
 * ranks, [rank] selects the lines that name it; otherwise [rank] is -1.
 */
static void find_message(struct facts *facts, struct facts_rank *of, const char *tail, int rank)
{
	struct rank_error error;

	rank_error_find(&error, tail, rank);
	if (!error.text[0])
		return;
	of->message = keep_copy(facts, error.text, strlen(error.text));
	of->libddp = error.printed_by == LINE_LIBDDP;
	of->uncaught = error.prefix >= 0;
	of->logged = error.printed_by == LINE_TRACEBACK && !of->uncaught;
	of->is_last = ends_with(tail, error.text);
}

/* Complete the facts about rank [number] from libddp's record and from the output. */
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
		find_message(facts, rank, rank->tail, -1);
	if (!rank->message && facts->tail && rank->order > 0)
		find_message(facts, rank, facts->tail, number);
}

/* Set the times of uncaught exceptions for which no error file has the time. */
static void add_times(struct facts *facts, struct tails *tails)
{
	struct raised_rank *raised;
	size_t count = tails_raised(tails, (double)INFINITY, &raised);
	double epoch = ddp_date(NULL) - ddp_seconds();

	for (size_t i = 0; i < count; i++) {
		struct facts_rank *rank = rank_at(facts, (size_t)raised[i].rank);

		if (rank && rank->uncaught && rank->raised <= 0)
			rank->raised = raised[i].at + epoch;
	}
	free(raised);
}

/*
 * If PyTorch's hook has printed an exception of any rank, a traceback that it did not print was
 * logged, or came before PyTorch's start. Such a traceback explains Python's exit status 1. If the
 * hook has printed only that peers were lost, it also explains a rank that printed nothing more.
 */
static void drop_logged(struct facts *facts)
{
	bool hooked = false, lost = true;

	for (int i = 0; i < facts->size; i++) {
		const char *message = facts->ranks[i].uncaught ? facts->ranks[i].message : NULL;

		hooked |= message != NULL;
		lost = lost && (!message || pattern_message(message) == LINE_PEER);
	}
	for (int i = 0; i < facts->size && hooked; i++) {
		struct facts_rank *rank = &facts->ranks[i];

		if (rank->logged && !(rank->how == FACTS_EXIT && rank->code == 1) &&
		    !(lost && rank->is_last))
			rank->message = NULL;
	}
}

/* --- An attempt ---------------------------------------------------------------------------- */

static void read_files(struct facts *facts, const char *path)
{
	DIR *dir = *path ? opendir(path) : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		read_rank_file(facts, path, entry->d_name);
		read_memory(facts, path, entry->d_name);
		facts->ras = facts->ras || strcmp(entry->d_name, "ras.txt") == 0;
	}
	if (dir)
		closedir(dir);
	ddp_arrival_keep_last_world(facts->arrivals, facts->size);
	read_dumps(facts, path);
}

void facts_read(struct facts *facts, const struct attempt *attempt)
{
	bool records = false;

	*facts = (struct facts){.end = attempt->end,
				.refused_by = attempt->said.by_node.node,
				.lost = srun_lost_node(&attempt->said),
				.missed_why = attempt->said.missed_why,
				.first = -1};
	if (attempt->ranks > 0)
		(void)rank_at(facts, (size_t)attempt->ranks - 1);
	add_tasks(facts, &attempt->said);
	for (size_t i = 0; i < attempt->silent.count; i++)
		node_at(facts, attempt->silent.name[i])->silent = true;
	for (size_t i = 0; i < attempt->said.lost.count; i++)
		node_at(facts, attempt->said.lost.name[i])->failed = true;
	for (size_t i = 0; i < attempt->said.missed.count; i++)
		node_at(facts, attempt->said.missed.name[i])->missed = true;
	for (size_t i = 0; i < attempt->said.stepd_lost.count; i++)
		node_at(facts, attempt->said.stepd_lost.name[i])->stepd_lost = true;
	read_files(facts, attempt->dir);
	facts->tail = read_tail(facts, attempt->tails, TAILS_ALL);
	for (int i = 0; i < facts->size; i++) {
		facts->ranks[i].tail = read_tail(facts, attempt->tails, i);
		complete_rank(facts, i);
		records = records || facts->arrivals[i].there;
	}
	add_times(facts, attempt->tails);
	drop_logged(facts);
	if (records)
		ddp_arrival_describe(facts->arrivals, facts->size, facts->collectives,
				     sizeof(facts->collectives));
}
