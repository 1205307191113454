/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "srun-line.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/xalloc.h"

/* --- Its options ------------------------------------------------------------------------------- */

/* "  -A, --account=name   words", "      --nice[=value]": two blanks at least, then the option. */
static bool read_option(struct srun_option *option, const char *line)
{
	size_t length;

	*option = (struct srun_option){.letter = 0};
	line += strspn(line, " \t");
	if (line[0] == '-' && isalnum((unsigned char)line[1]) && line[2] == ',') {
		option->letter = line[1];
		line += 3 + strspn(line + 3, " ");
	}
	if (strncmp(line, "--", 2) != 0)
		return false;
	line += 2;
	length = strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
	if (length == 0 || length >= sizeof(option->name))
		return false;
	memcpy(option->name, line, length);
	option->takes = line[length] == '='		       ? SRUN_VALUE
			: strncmp(line + length, "[=", 2) == 0 ? SRUN_OPTIONAL
							       : SRUN_NOTHING;
	/* The help does not show these values, that of --container in Slurm 22.05 only. */
	if (strcmp(option->name, "container") == 0 && option->takes == SRUN_NOTHING &&
	    line[length] == ' ' && line[length + 1] == ' ')
		option->takes = SRUN_VALUE;
	if (strcmp(option->name, "kill-on-bad-exit") == 0 || strcmp(option->name, "no-kill") == 0)
		option->takes = SRUN_OPTIONAL;
	return true;
}

static bool has_option(const struct srun_options *options, const char *name)
{
	for (size_t i = 0; i < options->count; i++)
		if (strcmp(options->option[i].name, name) == 0)
			return true;
	return false;
}

/*
 * Options with a value that the help texts of Slurm 20.11 to 26.05 list never, only with the task plugin that they are for, or in
 * another form (slurm_opt.c, srun's and salloc's opt.c).
 */
static const struct {
	const char *name;
	char letter;
	bool salloc; /* salloc has it as well */
} unlisted[] = {
	{"accel-bind", 0, false},
	{"cluster", 0, true},
	{"context", 0, true},
	{"cpu-bind", 0, false},
	{"cpu_bind", 0, false},
	{"extra", 0, true},
	{"extra-node-info", 'B', true},
	{"gid", 0, true},
	{"hint", 0, true},
	{"mem-bind", 0, true},
	{"msg-timeout", 0, false},
	{"network", 0, true},
	{"nodefile", 'F', true},
	{"ntasks-per-gpu", 0, true},
	{"ntasks-per-tres", 0, true},
	{"open-mode", 0, false},
	{"pack-group", 0, false},
	{"prefer", 0, true},
	{"resources", 0, true},
	{"segment", 0, true},
	{"tasks-per-node", 0, true},
	{"treewidth", 0, false},
	{"uid", 0, true},
};

enum { UNLISTED = sizeof(unlisted) / sizeof(unlisted[0]) };

void srun_options_read(struct srun_options *options, const char *help, bool salloc)
{
	size_t lines = 1;

	for (const char *at = help; *at; at++)
		lines += *at == '\n';
	*options = (struct srun_options){
		.option =
			ddp_xcalloc(lines + UNLISTED, sizeof(*options->option), "srun's options")};
	for (const char *at = help; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		options->count += read_option(&options->option[options->count], at);
	}
	for (size_t i = 0; i < UNLISTED; i++) {
		struct srun_option *option = &options->option[options->count];

		if (has_option(options, unlisted[i].name) || (salloc && !unlisted[i].salloc))
			continue;
		snprintf(option->name, sizeof(option->name), "%s", unlisted[i].name);
		option->letter = unlisted[i].letter;
		option->takes = SRUN_VALUE;
		options->count++;
	}
}

const struct srun_option *srun_option_find(const struct srun_options *options, const char *name,
					   size_t length, char letter)
{
	const struct srun_option *found = NULL;

	for (size_t i = 0; i < options->count; i++) {
		const struct srun_option *option = &options->option[i];

		if (letter) {
			if (option->letter == letter)
				return option;
		} else if (strncmp(option->name, name, length) == 0) {
			if (!option->name[length])
				return option;
			if (found)
				return NULL;
			found = option;
		}
	}
	return found;
}

/* Reads the options of a command line, one after the other. */
struct reader {
	const struct srun_options *options;
	char **at;			  /* the next word */
	const char *letters;		  /* that are left of the last; NULL: it is a long option */
	const struct srun_option *option; /* that was read; NULL: srun knows none such */
	const char *value;		  /* of it; NULL: it has none */
};

/* Returns false where there is none any more: at "--", where the program begins, or at the end. */
static bool read_next(struct reader *reader)
{
	reader->value = NULL;
	if (!reader->letters || !*reader->letters) {
		const char *word = *reader->at;

		if (!word || word[0] != '-' || !word[1] || strcmp(word, "--") == 0)
			return false;
		reader->at++;
		reader->letters = word[1] == '-' ? NULL : word + 1;
		if (!reader->letters) {
			size_t length = strcspn(word + 2, "=");

			reader->option = srun_option_find(reader->options, word + 2, length, 0);
			if (word[2 + length])
				reader->value = word + 3 + length;
		}
	}
	if (reader->letters) {
		reader->option = srun_option_find(reader->options, "", 0, *reader->letters++);
		if (reader->option && reader->option->takes != SRUN_NOTHING) {
			if (*reader->letters)
				reader->value = reader->letters + (*reader->letters == '=');
			reader->letters = NULL;
		}
	}
	if (!reader->value && reader->option && reader->option->takes == SRUN_VALUE && *reader->at)
		reader->value = *reader->at++;
	return true;
}

size_t srun_program(const struct srun_options *options, char **words)
{
	struct reader reader = {.options = options, .at = words};

	while (read_next(&reader))
		;
	return (size_t)(reader.at - words) + (*reader.at && strcmp(*reader.at, "--") == 0);
}

bool srun_given(const struct srun_options *options, char **words, const char *name,
		const char **value)
{
	struct reader reader = {.options = options, .at = words};
	bool given = false;

	while (read_next(&reader))
		if (reader.option && strcmp(reader.option->name, name) == 0) {
			given = true;
			*value = reader.value ? reader.value : "";
		}
	return given;
}

const char *srun_unknown(const struct srun_options *options, char **words)
{
	struct reader reader = {.options = options, .at = words};

	while (read_next(&reader))
		if (!reader.option && !reader.letters)
			return reader.at[-1];
	return NULL;
}

char **srun_shared(const struct srun_options *options, char **words,
		   const struct srun_options *others)
{
	struct reader reader = {.options = options, .at = words};
	size_t most = 1, count = 0;
	char **list;

	while (read_next(&reader))
		most++;
	list = ddp_xcalloc(most, sizeof(*list), "salloc's options");
	reader = (struct reader){.options = options, .at = words};
	while (read_next(&reader)) {
		struct ddp_text text = {.data = NULL};

		if (!reader.option || !has_option(others, reader.option->name))
			continue;
		ddp_text_add(&text, "--%s", reader.option->name);
		if (reader.value)
			ddp_text_add(&text, "=%s", reader.value);
		list[count++] = ddp_xstrdup(text.data ? text.data : "", "salloc's options");
		ddp_text_free(&text);
	}
	return list;
}

/* --- Whose its output is ------------------------------------------------------------------------ */

/* Bytes of a line that Slurm sends at once. */
enum { PIECE = 1024 };

/* Where a line that begins with "  12: " goes on; NULL: it has no label. */
static const char *behind_label(const char *line, int *rank)
{
	int length = 0;

	if (strspn(line, " ") == strcspn(line, "0123456789") &&
	    sscanf(line, "%9d:%n", rank, &length) == 1 && length > 0 && line[length] == ' ')
		return line + length + 1;
	return NULL;
}

/* What there is of a line, which may have [ended]. */
static void take_line(struct srun_labels *labels, bool ended, srun_take *take, void *data)
{
	const char *from = NULL;
	size_t size = labels->length;
	int rank = -1;

	labels->line[size] = '\0';
	if (ended && !labels->cut)
		from = behind_label(labels->line, &rank);
	if (from) {
		size -= (size_t)(from - labels->line);
		/* The line's end behind a whole piece is not the rank's. */
		size -= size == PIECE + 1;
	}
	take(data, from ? rank : -1, from ? from : labels->line, size);
	labels->length = 0;
	labels->cut = !ended;
}

void srun_unlabel(struct srun_labels *labels, const char *bytes, size_t size, srun_take *take,
		  void *data)
{
	for (const char *end = bytes + size; bytes < end; bytes++) {
		labels->line[labels->length++] = *bytes;
		if (*bytes == '\n' || labels->length == sizeof(labels->line) - 1)
			take_line(labels, *bytes == '\n', take, data);
	}
}

/* --- What it says ------------------------------------------------------------------------------ */

/* The signal of strsignal()'s text that [text] begins with; 0: none. */
static int signal_of(const char *text)
{
	for (int i = 1; i < NSIG; i++) {
		const char *name = i < SIGRTMIN ? strsignal(i) : NULL;

		if (name && strncmp(text, name, strlen(name)) == 0)
			return i;
	}
	return 0;
}

static void add_task(struct srun_said *said, const struct srun_task *task)
{
	if (said->count == said->room) {
		struct srun_task *more;

		said->room = said->room ? 2 * said->room : 64;
		more = ddp_xcalloc(said->room, sizeof(*more), "what srun says of tasks");
		if (said->count)
			memcpy(more, said->task, said->count * sizeof(*more));
		free(said->task);
		said->task = more;
	}
	said->task[said->count++] = *task;
}

/* Add [task] for each number of "2" or "0-1,3". */
static void add_tasks(struct srun_said *said, const char *numbers, struct srun_task task)
{
	for (const char *at = numbers;;) {
		char *end;
		long first = strtol(at, &end, 10), last = first;

		if (end == at || first < 0)
			return;
		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		for (long i = first; i <= last && last < 1 << 20; i++) {
			task.rank = (int)i;
			add_task(said, &task);
		}
		if (*end != ',')
			return;
		at = end + 1;
	}
}

/* Tasks [numbers] of [node] ended in one way, [how]. */
static void hear_tasks(struct srun_said *said, const char *numbers, const char *how,
		       const char *node, size_t node_length, double now)
{
	struct srun_task task = {.how = FACTS_UNKNOWN, .time = now};
	int signal = signal_of(how);

	if (strncmp(how, "Exited with exit code ", 22) == 0) {
		task.how = FACTS_EXIT;
		task.code = atoi(how + 22);
	} else if (strncmp(how, "Out Of Memory", 13) == 0) {
		task.how = FACTS_OOM;
	} else if (signal) {
		task.how = FACTS_SIGNAL;
		task.code = signal;
	} else {
		return;
	}
	snprintf(task.node, sizeof(task.node), "%.*s", (int)node_length, node);
	add_tasks(said, numbers, task);
}

/* Add [node] to [list] if it may be one of our step's. */
static void hear_node(const struct srun_said *said, struct node_list *list, const char *node)
{
	const struct node_list *ours = said->nodes;
	char name[FACTS_NAME];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(node, " \t,;:"), node);
	if (!ours || nodes_have(ours, name))
		nodes_add(list, name);
}

/* Whether [id], "4.0 ON n1", is of our step, as far as that is known. */
static bool is_ours(const struct srun_said *said, const char *id)
{
	const char *ours = said->step;
	size_t length = ours ? strlen(ours) : 0;

	return !ours || (strncmp(id, ours, length) == 0 && !isdigit((unsigned char)id[length]));
}

/* Whether [words] may be of our program: "/bin/x: No such file or directory", "bad interpreter(/bin/y): ". */
static bool is_program(const struct srun_said *said, const char *words)
{
	const char *name = said->program ? strrchr(said->program, '/') : NULL;
	const char *slash;

	if (!said->program || strncmp(words, "bad interpreter(", strlen("bad interpreter(")) == 0)
		return true;
	name = name ? name + 1 : said->program;
	slash = strstr(words, ": ");
	while (slash && slash > words && slash[-1] != '/')
		slash--;
	return slash && strncmp(slash, name, strlen(name)) == 0 &&
	       strncmp(slash + strlen(name), ": ", 2) == 0;
}

/* srun told of the task that it ends the step for in the line before; earlier ones were of other steps, if they may have been. */
static void hear_ending(struct srun_said *said)
{
	if (said->mixed && !said->ending && said->last < said->count) {
		said->count -= said->last;
		memmove(said->task, said->task + said->last, said->count * sizeof(*said->task));
	}
	said->ending = true;
}

/* "4.0 tasks 1-3: running", of [id]: ranks that still run when srun ends the step for its --wait. */
static void hear_late(struct srun_said *said, const char *id, double now)
{
	const char *numbers = strstr(id, " task");
	const char *end = numbers ? strstr(numbers, ": running") : NULL;

	if (!end || !is_ours(said, id))
		return;
	said->late = true;
	said->last = said->count;
	numbers += strcspn(numbers, "0123456789");
	add_tasks(said, numbers,
		  (struct srun_task){.how = FACTS_LATE, .code = said->wait, .time = now});
}

bool srun_lost_node(const struct srun_said *said)
{
	return said->broken || said->lost.count > 0 || said->missed.count > 0;
}

static void hear_line(struct srun_said *said, int rank, const char *line, double now)
{
	static const char error[] = "srun: error: ", lost[] = "Node failure on ",
			  first[] = "srun: First task exited ",
			  status[] = "srun: StepId=", launch[] = "Task launch for ",
			  missed[] = " failed on node ", aborted[] = "srun: Job step aborted: ",
			  interrupted[] = "srun: sending Ctrl-C to StepId=",
			  ending[] = "Terminating StepId=", step[] = "*** STEP ",
			  not_found[] = "error: execve(): ", broken[] = "borting, ";
	const char *found, *cancelled;

	if (rank >= 0 && strncmp(line, "srun: ", strlen("srun: ")) == 0)
		return;
	if (strncmp(line, error, strlen(error)) == 0) {
		const char *node = line + strlen(error), *colon = strchr(node, ':');
		const char *numbers, *how;

		said->errors = true;
		if (strncmp(node, lost, strlen(lost)) == 0) {
			hear_node(said, &said->lost, node + strlen(lost));
			return;
		}
		if (strncmp(node, launch, strlen(launch)) == 0) {
			const char *at = strstr(node, missed);

			if (at)
				hear_node(said, &said->missed, at + strlen(missed));
			return;
		}
		/* "aborting, io error with slurmstepd on node 2" */
		found = strstr(node, broken);
		said->broken = said->broken || (found && strstr(found, " node "));
		if (!colon || strncmp(colon, ": task", 6) != 0)
			return;
		numbers = strchr(colon + 2, ' ');
		how = numbers ? strstr(numbers, ": ") : NULL;
		said->last = said->count;
		if (how)
			hear_tasks(said, numbers + 1, how + 2, node, (size_t)(colon - node), now);
		return;
	}
	if (strncmp(line, interrupted, strlen(interrupted)) == 0) {
		said->cancelled = said->cancelled || is_ours(said, line + strlen(interrupted));
		return;
	}
	said->forced = said->forced || strcmp(line, "srun: forcing job termination") == 0;
	if (strncmp(line, first, strlen(first)) == 0)
		said->wait = atoi(line + strlen(first));
	if (said->wait > 0 && strncmp(line, status, strlen(status)) == 0)
		hear_late(said, line + strlen(status), now);
	/* Of a node's own words, below, the last may not come through. Where srun has told of no error, slurmctld ended the step. */
	if (strncmp(line, aborted, strlen(aborted)) == 0) {
		said->aborted = said->aborted || (!said->errors && !said->late);
		said->cancelled = said->cancelled || (said->aborted && !said->mixed);
		return;
	}
	found = strncmp(line, "srun: ", strlen("srun: ")) == 0 ? strstr(line, ending) : NULL;
	if (found) {
		if (is_ours(said, found + strlen(ending)))
			hear_ending(said);
		return;
	}
	if (!strstr(line, "error: "))
		return;
	found = strstr(line, step);
	cancelled = found ? strstr(found, " CANCELLED AT ") : NULL;
	if (cancelled) {
		if (!is_ours(said, found + strlen(step)))
			return;
		said->cancelled = said->cancelled || (said->count == 0 && !srun_lost_node(said));
		said->limit = said->limit || strstr(cancelled, "DUE TO TIME LIMIT");
		said->preempted = said->preempted || strstr(cancelled, "DUE TO PREEMPTION");
		return;
	}
	found = strstr(line, not_found);
	if (!found || said->not_found || !is_program(said, found + strlen(not_found)))
		return;
	said->not_found = true;
	snprintf(said->refusal, sizeof(said->refusal), "%s", found + strlen("error: "));
}

void srun_hear(struct srun_said *said, int rank, const char *bytes, size_t size, double now)
{
	for (size_t i = 0; i < size; i++) {
		if (bytes[i] != '\n') {
			if (said->length < sizeof(said->line) - 1)
				said->line[said->length++] = bytes[i] ? bytes[i] : '?';
			continue;
		}
		said->line[said->length] = '\0';
		said->length = 0;
		hear_line(said, rank, said->line, now);
	}
}

bool srun_missed_node(const char *text, bool ended)
{
	return strstr(text, " failed on node ") || strstr(text, "error: Node failure on ") ||
	       (ended && strstr(text, "srun: launching "));
}

void srun_reason(const char *text, char *why, size_t size)
{
	static const char *const marks[] = {"srun: error: ", "srun: fatal: "};

	snprintf(why, size, "Slurm does not answer");
	for (const char *at = text; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
			if (strncmp(at, marks[i], strlen(marks[i])) == 0)
				snprintf(why, size, "%.*s", (int)strcspn(at, "\n"), at);
	}
}

void srun_said_free(struct srun_said *said)
{
	free(said->task);
	nodes_free(&said->lost);
	nodes_free(&said->missed);
	*said = (struct srun_said){.task = NULL};
}
