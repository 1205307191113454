/* SPDX-License-Identifier: Apache-2.0 */
/* srun-output.c - split srun's output by rank, and find its messages about the step */
#include "config.h"

#include "srun-output.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/xalloc.h"

/* --- Labels -------------------------------------------------------------------------------- */

/* Slurm sends at most this many bytes of a line at once. */
enum { PIECE = 1024 };

/* Returns the text after the label in "  12: text"; NULL: the line has no label. */
static const char *skip_label(const char *line, int *rank)
{
	int length = 0;

	if (strspn(line, " ") == strcspn(line, "0123456789") &&
	    sscanf(line, "%9d:%n", rank, &length) == 1 && length > 0 && line[length] == ' ')
		return line + length + 1;
	return NULL;
}

/* Pass the part of the line that has arrived to [output]. With [ended], the line is complete. */
static void pass_line(struct srun_labels *labels, bool ended, srun_output *output, void *data)
{
	const char *from = NULL;
	size_t size = labels->length;
	int rank = -1;

	labels->line[size] = '\0';
	if (ended && !labels->cut)
		from = skip_label(labels->line, &rank);
	if (from) {
		size -= (size_t)(from - labels->line);
		/* Slurm added the newline after a full piece; the rank did not write it. */
		size -= size == PIECE + 1;
	}
	output(data, from ? rank : -1, from ? from : labels->line, size);
	labels->length = 0;
	labels->cut = !ended;
}

void srun_unlabel(struct srun_labels *labels, const char *bytes, size_t size, srun_output *output,
		  void *data)
{
	for (const char *end = bytes + size; bytes < end; bytes++) {
		labels->line[labels->length++] = *bytes;
		if (*bytes == '\n' || labels->length == sizeof(labels->line) - 1)
			pass_line(labels, *bytes == '\n', output, data);
	}
}

/* --- Messages ------------------------------------------------------------------------------ */

/* Returns the signal whose strsignal() text is the beginning of [text]; 0: none. */
static int find_signal(const char *text)
{
	for (int i = 1; i < SIGRTMIN; i++) {
		const char *name = strsignal(i);

		if (name && strncmp(text, name, strlen(name)) == 0)
			return i;
	}
	return 0;
}

/* Add a copy of [task] for each task number in [numbers], such as "s 0-1,3" or " 2". */
static void add_tasks(struct srun_said *said, const char *numbers, struct srun_task task)
{
	char *end;

	for (const char *at = strchr(numbers, ' '); at; at = *end == ',' ? end + 1 : NULL) {
		long first = strtol(at, &end, 10), last = first;

		if (end == at || first < 0)
			return;
		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		for (long i = first; i <= last && last < 1 << 20; i++) {
			said->task = ddp_xgrow(said->task, said->count, &said->capacity,
					       sizeof(*said->task), "failed tasks");
			task.rank = (int)i;
			said->task[said->count++] = task;
		}
	}
}

/*
 * Add the tasks of LINE_TASKS: part 2 has their numbers, part 1 their node, part 3 how they ended.
 */
static void read_tasks(struct srun_said *said, const struct pattern_part *part, double now)
{
	struct srun_task task = {.time = now};
	struct pattern_part code[PATTERN_PARTS];

	/* The first colon of a valid line follows the node's name. */
	if (memchr(part[1].text, ':', part[1].length))
		return;
	said->last = said->count;
	switch (pattern_find(PATTERN_END, part[3].text, part[3].length, code)) {
	case LINE_EXITED:
		task.how = FACTS_EXIT;
		task.code = atoi(code[1].text);
		break;
	case LINE_OOM:
		task.how = FACTS_OOM;
		break;
	default:
		task.how = FACTS_SIGNAL;
		task.code = find_signal(part[3].text);
		if (task.code == 0)
			return;
	}
	snprintf(task.node, sizeof(task.node), "%.*s", (int)part[1].length, part[1].text);
	add_tasks(said, part[2].text, task);
}

/* Add [node] to [list], unless it is known not to be a node of this step. */
static void add_node(const struct srun_said *said, struct node_list *list, const char *node)
{
	const struct node_list *ours = said->nodes;
	char name[FACTS_NAME];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(node, " \t,;:"), node);
	if (!ours || nodes_have(ours, name))
		nodes_add(list, name);
}

/* Whether [id], such as "4.0 ON n1", may be this step. Returns true if this step is unknown. */
static bool is_ours(const struct srun_said *said, const char *id)
{
	const char *ours = said->step;
	size_t length = ours ? strlen(ours) : 0;

	return !ours || (strncmp(id, ours, length) == 0 && !isdigit((unsigned char)id[length]));
}

/*
 * Whether the error message [text] can be about the program. Examples: "/bin/x: No such file or
 * directory", "bad interpreter(/bin/y): ".
 */
static bool is_program(const struct srun_said *said, const char *text)
{
	const char *name = said->program ? strrchr(said->program, '/') : NULL;
	const char *end = strstr(text, ": "), *begin = end;

	name = name ? name + 1 : said->program;
	/* srun may change the directory of the program, so compare only the last component. */
	if (!name || !*name || strncmp(text, "bad interpreter(", strlen("bad interpreter(")) == 0)
		return true;
	while (begin && begin > text && begin[-1] != '/')
		begin--;
	return begin && (size_t)(end - begin) == strlen(name) &&
	       strncmp(begin, name, strlen(name)) == 0;
}

/*
 * Handle the message that srun ends the step because of a task, which the previous message named.
 * If messages of other steps are mixed in, all earlier messages were about other steps, so their
 * tasks are dropped. With --kill-on-bad-exit=0, they are kept: srun ends the step only because of
 * late tasks, so earlier messages are about this step.
 */
static void read_ending(struct srun_said *said)
{
	if (said->mixed && !said->stays && !said->ending && said->last < said->count) {
		said->count -= said->last;
		memmove(said->task, said->task + said->last, said->count * sizeof(*said->task));
	}
	said->ending = true;
}

void srun_add_raised(struct srun_said *said, int rank, double time)
{
	char number[16];
	struct srun_task task;

	snprintf(number, sizeof(number), " %d", rank);
	add_tasks(said, number, (struct srun_task){.how = FACTS_RAISED, .time = time});
	task = said->task[said->count - 1];
	memmove(said->task + 1, said->task, (said->count - 1) * sizeof(*said->task));
	said->task[0] = task;
}

bool srun_lost_node(const struct srun_said *said)
{
	return said->broken || said->lost.count > 0 || said->missed.count > 0;
}

/*
 * Store the first step that a message of srun names. Messages in the output of ranks are ignored,
 * since they may come from an srun that the rank started.
 */
static void name_step(struct srun_said *said, int rank, const char *step)
{
	if (!said->named[0] && rank < 0 && !said->mixed)
		snprintf(said->named, sizeof(said->named), "%.60s", step);
}

bool srun_is_same_reason(const struct srun_refusal *refusal, const struct srun_refusal *other)
{
	return refusal->node[0] && other->node[0] && strcmp(refusal->node, other->node) != 0 &&
	       strcmp(refusal->reason, other->reason) == 0;
}

/* If [at], in the text that starts at [begin], is [word], returns its length; else 0. */
static size_t match_word(const char *begin, const char *at, const char *word)
{
	size_t length = word ? strlen(word) : 0;

	return length > 0 && strncmp(at, word, length) == 0 &&
			       (at == begin || !isalnum((unsigned char)at[-1])) &&
			       !isalnum((unsigned char)at[length])
		       ? length
		       : 0;
}

/* Store a refusal of the step: part 2 of the message is the node, and part 3 the reason. */
static void read_refusal(struct srun_said *said, const char *text, const struct pattern_part *part)
{
	struct srun_refusal by_node = {.node = ""};
	const char *begin = part[3].text;
	size_t used = 0;

	snprintf(by_node.node, sizeof(by_node.node), "%.*s", (int)part[2].length, part[2].text);
	for (const char *at = begin; *at && used < sizeof(by_node.reason) - 1; used++) {
		size_t length = match_word(begin, at, by_node.node);

		length = length ? length : match_word(begin, at, said->step);
		by_node.reason[used] = length ? '*' : *at;
		at += length ? length : 1;
	}
	if (!said->refused) {
		said->by_node = by_node;
		snprintf(said->refusal, sizeof(said->refusal), "%s", text);
	}
	said->refused = true;
	said->usage_error = said->usage_error || srun_is_same_reason(&said->by_node, &by_node);
}

static void read_line(struct srun_said *said, int rank, const char *line, double now)
{
	struct pattern_part part[PATTERN_PARTS];
	enum pattern_meaning meaning = pattern_find(PATTERN_SRUN, line, strlen(line), part);
	const struct node_list *nodes = said->nodes;
	const char *why;
	size_t index;

	if (rank >= 0 && strncmp(line, "srun: ", strlen("srun: ")) == 0)
		return;
	if (strncmp(line, "srun: error: ", strlen("srun: error: ")) == 0)
		said->errors = true;
	switch (meaning) {
	case LINE_NO_FILE:
		said->no_file = true;
		snprintf(said->refusal, sizeof(said->refusal), "%s",
			 line + strlen("srun: error: "));
		break;
	case LINE_NODE_LOST:
		add_node(said, &said->lost, part[1].text);
		break;
	case LINE_LAUNCH_FAILED:
		if (strncmp(part[1].text, "StepId=", strlen("StepId=")) == 0) {
			name_step(said, rank, part[1].text + strlen("StepId="));
			if (!is_ours(said, part[1].text + strlen("StepId=")))
				break;
		}
		add_node(said, &said->missed, part[2].text);
		if (!said->missed_why[0] && (why = strstr(part[2].text, ": ")))
			snprintf(said->missed_why, sizeof(said->missed_why), "%s", why + 2);
		break;
	case LINE_SLURMSTEPD_LOST:
		said->broken = true;
		index = strtoul(part[3].text, NULL, 10);
		if (nodes && index < nodes->count)
			nodes_add(&said->stepd_lost, nodes->name[index]);
		break;
	case LINE_TASKS:
		read_tasks(said, part, now);
		break;
	case LINE_INTERRUPTED:
		said->cancelled = said->cancelled || is_ours(said, part[1].text);
		break;
	case LINE_FORCED:
		/*
		 * srun also prints this message after a second Ctrl-C, and ddp-run may have
		 * received only one.
		 */
		said->forced = said->forced || !said->cancelled;
		break;
	case LINE_FIRST_EXITED:
		said->wait = atoi(part[1].text);
		break;
	case LINE_LATE:
		if (said->wait <= 0 || !is_ours(said, part[1].text))
			break;
		said->late = true;
		said->last = said->count;
		add_tasks(said, part[2].text,
			  (struct srun_task){.how = FACTS_LATE, .code = said->wait, .time = now});
		break;
	case LINE_ENDED:
		if (said->asked && is_ours(said, part[1].text))
			add_tasks(said, part[2].text,
				  (struct srun_task){.how = FACTS_EXIT, .time = now});
		break;
	case LINE_NOT_LAUNCHED:
		said->not_launched =
			said->not_launched || (said->asked && is_ours(said, part[1].text));
		break;
	case LINE_ABORTED:
		/*
		 * LINE_CANCELLED may be lost. If srun printed no error, slurmctld ended the step.
		 */
		said->aborted = said->aborted || (!said->errors && !said->late);
		said->cancelled = said->cancelled || (said->aborted && !said->mixed);
		break;
	case LINE_ENDING:
		name_step(said, rank, part[2].text);
		if (is_ours(said, part[2].text))
			read_ending(said);
		break;
	case LINE_TIME_LIMIT:
	case LINE_PREEMPTED:
	case LINE_CANCELLED:
		if (!is_ours(said, part[2].text))
			break;
		said->cancelled = said->cancelled || (said->count == 0 && !srun_lost_node(said));
		said->limit = said->limit || meaning == LINE_TIME_LIMIT;
		said->preempted = said->preempted || meaning == LINE_PREEMPTED;
		break;
	case LINE_STEP_REFUSED:
		read_refusal(said, strstr(line, "ddp: "), part);
		break;
	case LINE_USAGE_ERROR:
		said->usage_error = true;
		snprintf(said->refusal, sizeof(said->refusal), "%s", part[3].text);
		break;
	case LINE_NOT_STARTED:
		if (said->not_found || !is_program(said, part[2].text))
			break;
		said->not_found = true;
		snprintf(said->refusal, sizeof(said->refusal), "execve(): %s", part[2].text);
		break;
	default:
		break;
	}
}

static bool is_message(const char *line)
{
	struct pattern_part part[PATTERN_PARTS];

	return pattern_find(PATTERN_SRUN, line, strlen(line), part) != LINE_OTHER;
}

/* Returns the message of srun that follows a progress bar in [line]; [line] if there is none. */
static const char *skip_bar(const char *line)
{
	for (const char *at = line; (at = strstr(at, "srun: ")); at++)
		if (is_message(at))
			return at;
	return line;
}

static void add_byte(struct srun_said *said, char byte)
{
	enum { HALF = sizeof(said->line) / 2 };

	said->line[said->length] = '\0';
	/* Keep the beginning of a long message, but the end of a long progress bar. */
	if (said->length == sizeof(said->line) - 1 && said->redrawn && !is_message(said->line)) {
		said->length -= HALF;
		memmove(said->line, said->line + HALF, said->length);
	}
	if (said->length < sizeof(said->line) - 1)
		said->line[said->length++] = byte ? byte : '?';
}

void srun_parse_messages(struct srun_said *said, int rank, const char *bytes, size_t size,
			 double now)
{
	/* If another rank wrote the incomplete line, drop that line. */
	if (rank != said->writer)
		said->length = 0;
	said->writer = rank;
	for (size_t i = 0; i < size; i++) {
		if (bytes[i] != '\n' && bytes[i] != '\r') {
			add_byte(said, bytes[i]);
			continue;
		}
		said->line[said->length] = '\0';
		said->length = 0;
		read_line(said, rank, said->redrawn && rank < 0 ? skip_bar(said->line) : said->line,
			  now);
		said->redrawn = bytes[i] == '\r';
	}
}

void srun_said_free(struct srun_said *said)
{
	free(said->task);
	nodes_free(&said->lost);
	nodes_free(&said->missed);
	nodes_free(&said->stepd_lost);
	*said = (struct srun_said){.task = NULL};
}

/* --- Errors of ranks ----------------------------------------------------------------------- */

/* Returns [line] after PyTorch's prefix, and sets [prefix] to the rank in it; -1: no prefix. */
static const char *skip_prefix(const char *line, int *prefix)
{
	int length = 0;

	*prefix = -1;
	if (sscanf(line, "[rank%9d]:%n", prefix, &length) == 1 && length > 0 && line[length] == ' ')
		return line + length + 1;
	*prefix = -1;
	return line;
}

/* Returns [line] after the margin of an ExceptionGroup, such as "    | ". */
static const char *skip_margin(const char *line)
{
	const char *bar = line + strspn(line, " ");

	return strncmp(bar, "| ", 2) == 0 || strncmp(bar, "+ ", 2) == 0 ? bar + 2 : line;
}

static bool set_error(struct rank_error *error, enum pattern_meaning by, const char *text,
		      size_t length)
{
	while (length > 0 && strchr("\r ", text[length - 1]))
		length--;
	if (length == 0)
		return false;
	snprintf(error->text, sizeof(error->text), "%.*s", (int)length, text);
	error->printed_by = by;
	error->prefix = by == LINE_TRACEBACK ? error->parsed_prefix : -1;
	return true;
}

/* Whether the exception whose traceback ends here replaces the error found so far. */
static bool counts(const struct rank_error *error)
{
	if (error->kind == LINE_THREAD)
		return !error->text[0] || error->printed_by == LINE_LIBDDP;
	return error->kind != LINE_IGNORED && (error->parsed_prefix >= 0 || error->prefix < 0);
}

/*
 * Whether [line] is one of the frames of a traceback. The package rich draws a box around frames.
 */
static bool is_frame(const char *line)
{
	static const char *const beginnings[] = {" ", "\t", "│", "╰"};

	for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++)
		if (strncmp(line, beginnings[i], strlen(beginnings[i])) == 0)
			return true;
	return false;
}

/* Whether [line] can follow the first line of a traceback. */
static bool is_first_frame(const char *line)
{
	return strncmp(line, "  File ", 7) == 0 || strncmp(line, "│", strlen("│")) == 0;
}

/* Returns the length of the common beginning of [text] and [line]; all digits count as equal. */
static size_t count_same(const char *text, const char *line)
{
	size_t i = 0;

	while (text[i] && (text[i] == line[i] ||
			   (isdigit((unsigned char)text[i]) && isdigit((unsigned char)line[i]))))
		i++;
	return i;
}

/*
 * Parse [line], the next line after a traceback that began after other text. A beginning of that
 * text that this line repeats is a prefix of all lines, for example from sed.
 */
static void parse_expected(struct rank_error *error, const char *line)
{
	const char *rest;
	int prefix;

	for (size_t i = count_same(error->before, line) + 1; i-- > 0;) {
		rest = skip_prefix(line + i, &prefix);
		if (prefix == error->parsed_prefix && is_first_frame(rest)) {
			error->state = ERROR_TRACEBACK;
			error->before[i] = '\0';
			return;
		}
	}
	(void)skip_prefix(line, &prefix);
	if (prefix != error->parsed_prefix)
		return; /* a line of another writer */
	error->state = ERROR_OUTSIDE;
	error->before[0] = '\0';
}

static bool begins_traceback(enum pattern_meaning meaning)
{
	return meaning >= LINE_TRACEBACK && meaning <= LINE_CHAINED;
}

/*
 * Whether the text before [at] in [line] can be a progress bar or a time, and not the beginning of a
 * sentence, such as "worker: Traceback" or "ERROR Exception ignored".
 */
static bool follows_bar(const char *line, const char *at)
{
	if (at > line && !isalnum((unsigned char)at[-1]) && !strchr(" :", at[-1]))
		return true;
	while (line < at && !isalpha((unsigned char)*line))
		line++;
	return line == at;
}

/*
 * Returns the beginning of a traceback, or of a line that introduces one, after other text in
 * [line], such as a progress bar; [line] if there is none. Within a traceback, only the prefix of
 * PyTorch's hook shows that the text is not part of an exception or of a frame.
 */
static const char *skip_text(const char *line, bool inside)
{
	struct pattern_part part[PATTERN_PARTS];
	const char *first = NULL, *rest;
	size_t length = strlen(line);
	enum pattern_meaning whole;
	int prefix;

	for (const char *at = line; !first && (at = strstr(at, "[rank")); at++) {
		rest = skip_prefix(at, &prefix);
		if (prefix >= 0 && (!inside || follows_bar(line, at)) &&
		    begins_traceback(pattern_find(PATTERN_OUTPUT, rest, strlen(rest), part)))
			first = at;
	}
	for (size_t i = 0; i < patterns_count && !inside && (!first || *first != '['); i++) {
		const struct pattern *row = &patterns[i];

		if (row->source != PATTERN_OUTPUT || !begins_traceback(row->meaning) ||
		    row->text[0] == '%')
			continue;
		rest = memmem(line, length, row->text, strcspn(row->text, "%"));
		if (rest && (!first || rest < first) &&
		    (row->meaning == LINE_TRACEBACK || follows_bar(line, rest)) &&
		    pattern_match(row->text, rest, strlen(rest), part))
			first = rest;
	}
	if (!first)
		return line;
	/* The pattern of an ExceptionGroup matches after any text, so also after "[rank0]: ". */
	whole = pattern_find(PATTERN_OUTPUT, line, length, part);
	return whole == LINE_OTHER || (whole == LINE_GROUP && *first == '[') ? first : line;
}

/* Parse a line of a traceback after its first line. Returns true if the line completes an error. */
static bool parse_traceback(struct rank_error *error, const char *line)
{
	if (error->state == ERROR_GROUP_NAMED) {
		line += strspn(line, " ");
		if (strncmp(line, "+-+-", 4) == 0)
			error->state = ERROR_GROUP;
		else if (strncmp(line, "+--", 3) == 0)
			error->state = ERROR_OUTSIDE;
		return false;
	}
	if (!*line || is_frame(line))
		return false;
	error->state = error->state == ERROR_GROUP ? ERROR_GROUP_NAMED : ERROR_OUTSIDE;
	return counts(error) && set_error(error, LINE_TRACEBACK, line, strlen(line));
}

/* A line of output, split at the places where the text of a traceback can begin. */
struct split_line {
	const char *line, *text;
	int prefix;	 /* rank in PyTorch's prefix "[rank1]: "; -1: none */
	size_t stripped; /* bytes before it that precede each line of the traceback */
	size_t cut;	 /* bytes before the text of a traceback that begins here, such as a bar */
	size_t margin;	 /* bytes before an exception in an ExceptionGroup */
	bool inside;	 /* an earlier line began a traceback */
	bool ours;	 /* the line may be part of that traceback, or there is none */
};

static struct split_line split(const struct rank_error *error, const char *line)
{
	struct pattern_part part[PATTERN_PARTS];
	struct split_line at = {.line = line,
				.inside = error->state > ERROR_EXPECTED,
				.stripped = count_same(error->before, line)};

	if (error->before[at.stripped] ||
	    (at.stripped > 0 && !at.inside &&
	     pattern_find(PATTERN_OUTPUT, line, strlen(line), part) != LINE_OTHER))
		at.stripped = 0;
	at.text = skip_prefix(line + at.stripped, &at.prefix);
	if (at.prefix < 0) {
		const char *start = skip_text(at.text, at.inside);

		at.cut = start > at.text ? (size_t)(start - line) : 0;
		at.text = skip_prefix(start, &at.prefix);
	}
	/* Lines of other writers may be between those of a traceback. */
	at.ours = !at.inside || (at.prefix == error->parsed_prefix &&
				 (!error->before[0] || at.stripped || at.cut));
	if (at.ours && error->state >= ERROR_GROUP)
		at.margin = (size_t)(skip_margin(at.text) - at.text);
	at.text += at.margin;
	return at;
}

static void begin_traceback(struct rank_error *error, const struct split_line *at,
			    enum pattern_meaning meaning)
{
	/* Ignore a traceback of a thread or logger within one that PyTorch's hook prints. */
	if (!at->ours && error->parsed_prefix >= 0)
		return;
	error->parsed_prefix = at->prefix;
	if (at->margin == 0) {
		error->kind = error->next_kind;
		error->next_kind = LINE_OTHER;
		if (at->cut || !at->stripped)
			snprintf(error->before, sizeof(error->before), "%.*s",
				 meaning == LINE_TRACEBACK ? (int)at->cut : 0, at->line);
	}
	if (meaning == LINE_GROUP)
		error->state = ERROR_GROUP;
	else if (at->margin == 0)
		error->state = at->cut ? ERROR_EXPECTED : ERROR_TRACEBACK;
}

bool rank_error_parse(struct rank_error *error, int rank, const char *line)
{
	struct pattern_part part[PATTERN_PARTS];
	struct ddp_shown label = ddp_show("%d@", rank);
	enum pattern_meaning meaning;
	struct split_line at;

	if (error->state == ERROR_EXPECTED)
		parse_expected(error, line);
	at = split(error, line);
	meaning = pattern_find(PATTERN_OUTPUT, at.text, strlen(at.text), part);
	if (rank >= 0 && at.prefix != rank &&
	    (meaning != LINE_LIBDDP || strncmp(part[1].text, label.text, strlen(label.text)) != 0))
		return false;
	switch (meaning) {
	case LINE_IGNORED:
	case LINE_THREAD:
		error->next_kind = meaning;
		return false;
	case LINE_CHAINED:
		error->next_kind = error->kind;
		return false;
	case LINE_CPP:
		return error->prefix < 0 && set_error(error, meaning, part[1].text, part[1].length);
	case LINE_LIBDDP:
		return (!error->text[0] || error->printed_by == LINE_LIBDDP) &&
		       set_error(error, meaning, part[2].text, part[2].length);
	case LINE_GROUP:
	case LINE_TRACEBACK:
		begin_traceback(error, &at, meaning);
		return false;
	default:
		if (!at.inside && *at.text)
			error->next_kind = LINE_OTHER;
		return at.inside && at.ours && parse_traceback(error, at.text);
	}
}

void rank_error_find(struct rank_error *error, const char *output, int rank)
{
	char *copy = ddp_xstrdup(output, "output of ranks"), *rest = copy;

	*error = (struct rank_error){.prefix = -1};
	for (char *line; (line = strsep(&rest, "\n"));)
		(void)rank_error_parse(error, rank, line);
	free(copy);
}
