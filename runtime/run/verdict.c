/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/hide.h"
#include "facts.h"
#include "verdict.h"

/* One screen: lines of each part, and columns. */
enum {
	TAIL_LINES = 20,
	TRACEBACK_LINES = 14,
	NAMED = 6, /* ranks that followed, each with its reason */
	HUNG = 16, /* ranks that hung */
	WIDEST = 160,
};

/* --- Lines of others --------------------------------------------------------------------------- */

struct lines {
	char *text, **line;
	size_t count;
};

static void lines_free(struct lines *lines)
{
	free(lines->text);
	free(lines->line);
	*lines = (struct lines){.text = NULL};
}

/* Without what moves a terminal's cursor or colours its text, which begins with ESC. */
static void drop_escapes(char *line)
{
	char *out = line;

	for (const char *at = line; *at; at++) {
		if (*at != '\x1b') {
			*out++ = *at;
			continue;
		}
		if (at[1] == '[') {
			at += 2;
			at += strspn(at, "0123456789;:<=>? !\"#$%&'()*+,-./");
		} else if (at[1]) {
			at++;
		}
		if (!*at)
			break;
	}
	*out = '\0';
}

/* What is seen of a line that a progress bar has written over again and again. */
static char *last_state(char *line)
{
	size_t length = strlen(line);
	char *back;

	while (length > 0 && line[length - 1] == '\r')
		line[--length] = '\0';
	back = strrchr(line, '\r');
	return back ? back + 1 : line;
}

/* The lines of [text], the last [most] of them, as a terminal would show them; "" and NULL have none. */
static struct lines lines_of(const char *text, size_t most)
{
	struct lines lines = {.text = text ? strdup(text) : NULL};
	size_t count = 0, skip;
	char *rest, *line;

	if (!lines.text)
		return lines;
	for (const char *at = lines.text; *at; at++)
		count += *at == '\n' || !at[1];
	lines.line = calloc(count + 1, sizeof(*lines.line));
	if (!lines.line)
		return lines;
	skip = count > most ? count - most : 0;
	for (rest = lines.text; (line = strsep(&rest, "\n")) && (rest || *line);) {
		if (skip > 0) {
			skip--;
			continue;
		}
		line = last_state(line);
		drop_escapes(line);
		lines.line[lines.count++] = line;
	}
	return lines;
}

/* Add [line] as it may go to a terminal, with tabs as blanks, cut where it is too long. */
static void put_plain(struct ddp_text *out, const char *line)
{
	struct ddp_text cut = {.data = NULL};
	size_t columns = 0, length;

	for (size_t left = strlen(line); left > 0 && columns < WIDEST;
	     line += length, left -= length) {
		length = ddp_utf8_length(line, left);
		length = length ? length : 1;
		if (*line == '\t')
			ddp_text_put(&cut, "    ", 4);
		else
			ddp_text_put(&cut, line, length);
		columns += *line == '\t' ? 4 : 1;
	}
	if (*line)
		ddp_text_put(&cut, "...", 3);
	if (cut.data)
		ddp_text_plain(out, cut.data);
	out->failed = out->failed || cut.failed;
	ddp_text_free(&cut);
}

static void put_lines(struct ddp_text *out, const char *before, const struct lines *lines)
{
	for (size_t i = 0; i < lines->count; i++) {
		ddp_text_add(out, "%s", before);
		put_plain(out, lines->line[i]);
		ddp_text_put(out, "\n", 1);
	}
}

/* --- Words -------------------------------------------------------------------------------------- */

static const char *plural(double count)
{
	return count == 1 ? "" : "s";
}

/* "14:02:11" of the clock here. */
static struct ddp_shown show_time(double seconds)
{
	time_t whole = (time_t)seconds;
	struct tm broken;
	char text[32] = "";

	if (localtime_r(&whole, &broken))
		strftime(text, sizeof(text), "%H:%M:%S", &broken);
	return ddp_show("%s", text);
}

/* "12.3 s", "4 min". */
static struct ddp_shown show_seconds(double seconds)
{
	if (seconds < 1)
		return ddp_show("%.2f s", seconds);
	if (seconds < 600)
		return ddp_show("%.1f s", seconds);
	return ddp_show("%.0f min", seconds / 60);
}

static void put_list(struct ddp_text *out, char *const *list)
{
	for (size_t i = 0; list[i]; i++) {
		ddp_text_add(out, "%s", i ? "," : "");
		put_plain(out, list[i]);
	}
}

/* How a rank ended: "was killed by SIGSEGV". */
static struct ddp_shown show_end(const struct facts_rank *rank)
{
	switch (rank->how) {
	case FACTS_EXIT:
		return ddp_show("exit status %d", rank->code);
	case FACTS_SIGNAL:
		return ddp_show("killed by %s", facts_signal(rank->code).text);
	case FACTS_OOM:
		return ddp_show("killed for want of memory");
	case FACTS_NODE:
		return ddp_show("lost with its node");
	case FACTS_SLURMSTEPD:
		return ddp_show("lost with its slurmstepd");
	case FACTS_CANCELLED:
		return ddp_show("cancelled");
	case FACTS_LATE:
		return ddp_show("ran %d s longer than another rank", rank->code);
	case FACTS_UNKNOWN:
		break;
	}
	return ddp_show(rank->message ? "failed" : "ended");
}

/* --- The text ------------------------------------------------------------------------------------- */

static void put_place(struct ddp_text *out, int number, const struct facts_rank *rank)
{
	ddp_text_add(out, "rank %d", number);
	if (rank->node[0]) {
		ddp_text_add(out, " on ");
		put_plain(out, rank->node);
	}
	if (rank->pid > 0)
		ddp_text_add(out, ", pid %ld", rank->pid);
}

static void put_head(struct ddp_text *out, const struct facts *facts)
{
	const struct facts_rank *first = facts->first >= 0 ? &facts->ranks[facts->first] : NULL;
	double when = first && first->time > 0 ? first->time : facts->ended;

	ddp_text_add(out, "ddp-run: ");
	if (facts->job > 0)
		ddp_text_add(out, "step %.0f.%.0f, ", facts->job, facts->step);
	ddp_text_add(out, "attempt %.0f of %.0f", facts->attempt + 1, facts->restarts + 1);
	if (facts_is_kind(facts, "hang"))
		ddp_text_add(out, ", hung: nothing moved for %s", show_seconds(facts->quiet).text);
	else if (facts_is_kind(facts, "cancelled"))
		ddp_text_add(out, ", was cancelled");
	else if (facts_is_kind(facts, "timelimit"))
		ddp_text_add(out, ", reached the job's time limit");
	else if (facts_is_kind(facts, "steplimit"))
		ddp_text_add(out, ", reached the time limit of its step");
	else if (facts_is_kind(facts, "preempted"))
		ddp_text_add(out, ", made room for another job");
	else if (facts_is_kind(facts, "warned"))
		ddp_text_add(out, ", ended after a warning");
	else if (facts_is_kind(facts, "refused"))
		ddp_text_add(out, ", was not started");
	else
		ddp_text_add(out, ", failed");
	if (when > 0)
		ddp_text_add(out, " at %s", show_time(when).text);
	if (when > 0 && facts->started > 0 && when >= facts->started)
		ddp_text_add(out, ", %s after its start", show_seconds(when - facts->started).text);
	ddp_text_put(out, "\n", 1);
}

/* Whether [line] stands in [lines] as well. */
static bool is_in(const struct lines *lines, const char *line)
{
	for (size_t i = 0; i < lines->count; i++)
		if (strcmp(lines->line[i], line) == 0)
			return true;
	return false;
}

/* The rank's output, or where nothing tells whose it is that of all, without the lines of the traceback, which were shown. */
static void put_output(struct ddp_text *out, const struct facts *facts,
		       const struct facts_rank *rank, const struct lines *traceback)
{
	bool own = rank && rank->tail;
	struct lines tail = lines_of(own ? rank->tail : facts->tail, TAIL_LINES),
		     rest = {.count = 0};

	rest.line = calloc(tail.count + 1, sizeof(*rest.line));
	for (size_t i = 0; i < tail.count && rest.line; i++)
		if (!is_in(traceback, tail.line[i]))
			rest.line[rest.count++] = tail.line[i];
	if (rest.count > 0)
		ddp_text_add(out, "  %s last line%s%s:\n", own ? "its" : "the",
			     plural((double)rest.count), own ? "" : " of all ranks");
	put_lines(out, "    ", &rest);
	lines_free(&rest);
	lines_free(&tail);
}

static void put_first(struct ddp_text *out, const struct facts *facts)
{
	const struct facts_rank *rank;
	struct lines traceback, message;

	if (facts->refusal) {
		put_plain(out, facts->refusal);
		ddp_text_put(out, "\n", 1);
	}
	if (facts->first < 0) {
		if (facts_is_kind(facts, "hang"))
			ddp_text_add(out, "no rank stands out\n");
		else if (!facts->kind || facts_is_kind(facts, "exit") ||
			 facts_is_kind(facts, "signal"))
			ddp_text_add(out, "srun's exit status is %.0f, and no rank told why\n",
				     facts->status);
		put_output(out, facts, NULL, &(struct lines){.count = 0});
		return;
	}
	rank = &facts->ranks[facts->first];
	put_place(out, facts->first, rank);
	if (facts_is_kind(facts, "hang")) {
		ddp_text_add(out, ": ");
		put_plain(out, rank->why);
	} else {
		ddp_text_add(out, ", failed first: %s%s", show_end(rank).text,
			     rank->why[0] ? ", " : "");
		put_plain(out, rank->why);
	}
	ddp_text_put(out, "\n", 1);
	message = lines_of(rank->message, TRACEBACK_LINES);
	traceback = lines_of(rank->traceback, TRACEBACK_LINES);
	if (message.count > 0 && !is_in(&traceback, message.line[0]))
		put_lines(out, "  ", &message);
	put_lines(out, "    ", &traceback);
	if (rank->tail || traceback.count == 0)
		put_output(out, facts, rank, &traceback);
	lines_free(&message);
	lines_free(&traceback);
}

static bool same_end(const struct facts_rank *a, const struct facts_rank *b)
{
	return b->follows && a->how == b->how && a->code == b->code && strcmp(a->why, b->why) == 0;
}

struct group {
	const struct facts_rank *ranks, *like;
};

static bool is_like(const void *set, int number)
{
	const struct group *group = set;

	return same_end(group->like, &group->ranks[number]);
}

/* Those that followed, by how they ended. */
static void put_followers(struct ddp_text *out, const struct facts *facts)
{
	int groups = 0, left = 0;
	char numbers[120];

	for (int i = 0; i < facts->size; i++) {
		const struct facts_rank *rank = &facts->ranks[i];
		struct group group = {facts->ranks, rank};
		bool told = !rank->follows;

		for (int before = 0; before < i && !told; before++)
			told = same_end(rank, &facts->ranks[before]);
		if (told)
			continue;
		if (groups++ >= NAMED) {
			left++;
			continue;
		}
		ddp_list_numbers(is_like, &group, facts->size, numbers, sizeof(numbers));
		ddp_text_add(out, "followed: rank%s %s: %s, ", strpbrk(numbers, ",-") ? "s" : "",
			     numbers, show_end(rank).text);
		put_plain(out, rank->why);
		ddp_text_put(out, "\n", 1);
	}
	if (left > 0)
		ddp_text_add(out, "followed: others, in %d more ways\n", left);
}

/* Ranks that failed too, and of which nothing says that they only followed. */
static void put_others(struct ddp_text *out, const struct facts *facts)
{
	const char *what = facts_is_kind(facts, "refused") ? "not started" : "also failed";
	int told = 0;

	for (int i = 0; i < facts->size; i++) {
		const struct facts_rank *rank = &facts->ranks[i];

		if (i == facts->first || rank->follows || (rank->order == 0 && !rank->message) ||
		    facts_is_kind(facts, "hang") || told++ >= NAMED)
			continue;
		ddp_text_add(out, "%s: ", what);
		put_place(out, i, rank);
		ddp_text_add(out, ": %s", show_end(rank).text);
		if (rank->message) {
			ddp_text_add(out, ", ");
			put_plain(out, rank->message);
		}
		ddp_text_put(out, "\n", 1);
	}
	if (told > NAMED)
		ddp_text_add(out, "%s: %d more\n", what, told - NAMED);
}

/* What each rank of a hang does, as far as somebody looked. */
static void put_hung(struct ddp_text *out, const struct facts *facts)
{
	int told = 0;

	for (int i = 0; i < facts->size; i++) {
		const struct facts_rank *rank = &facts->ranks[i];

		if (!rank->state || told++ >= HUNG)
			continue;
		ddp_text_add(out, "  ");
		put_place(out, i, rank);
		if (rank->state == '-')
			ddp_text_add(out, ": no process");
		else
			ddp_text_add(out, ": state %c", rank->state);
		if (rank->wchan[0] && strcmp(rank->wchan, "0") != 0) {
			ddp_text_add(out, " in ");
			put_plain(out, rank->wchan);
		}
		if (rank->beat >= 0)
			ddp_text_add(out, ", heart beat %s before", show_seconds(rank->beat).text);
		if (rank->stacks)
			ddp_text_add(out, ", stacks-%d.txt", i);
		ddp_text_put(out, "\n", 1);
	}
	if (told > HUNG)
		ddp_text_add(out, "  and %d ranks more\n", told - HUNG);
}

/* What a node is that runs jobs, or will, with nothing else said of it: "MIXED+PLANNED". */
static bool is_well(const struct facts_node *node)
{
	static const char *const well[] = {"ALLOCATED", "MIXED", "IDLE", "COMPLETING", "PLANNED"};
	const size_t count = sizeof(well) / sizeof(well[0]);

	for (const char *at = node->state; at && *at; at += *at == '+') {
		size_t i = 0;

		while (i < count && (strncmp(at, well[i], strlen(well[i])) != 0 ||
				     !strchr("+", at[strlen(well[i])])))
			i++;
		if (i == count)
			return false;
		at += strlen(well[i]);
	}
	return true;
}

static void put_nodes(struct ddp_text *out, const struct facts *facts)
{
	for (int i = 0; i < facts->known_count; i++) {
		const struct facts_node *node = &facts->known[i];
		bool told = node->silent ? node->state != NULL : !is_well(node);

		if (!node->silent && !told && node->kills == 0)
			continue;
		ddp_text_add(out, "node ");
		put_plain(out, node->name);
		ddp_text_add(out, ":");
		if (node->silent)
			ddp_text_add(out, " does not answer%s", told ? "," : "");
		if (told) {
			ddp_text_add(out, " Slurm says ");
			put_plain(out, node->state);
		}
		if (told && node->reason) {
			ddp_text_add(out, " (");
			put_plain(out, node->reason);
			ddp_text_add(out, ")");
		}
		if (node->kills > 0)
			ddp_text_add(
				out,
				"%s the job's cgroup counts %ld process%s killed for want of memory",
				node->silent || told ? "," : "", node->kills,
				node->kills == 1 ? "" : "es");
		ddp_text_put(out, "\n", 1);
	}
}

static void put_next(struct ddp_text *out, const struct facts *facts)
{
	if (!facts->next)
		return;
	ddp_text_add(out, "next: ");
	if (strcmp(facts->next, "restart") == 0)
		ddp_text_add(out, "started again");
	else if (strcmp(facts->next, "requeue") == 0)
		ddp_text_add(out, "given back to Slurm");
	else if (strcmp(facts->next, "stop") == 0)
		ddp_text_add(out, "stopped");
	else
		put_plain(out, facts->next);
	if (facts->next_nodes[0]) {
		ddp_text_add(out, " on ");
		put_list(out, facts->next_nodes);
	}
	if (facts->next_ranks > 0)
		ddp_text_add(out, " with %.0f rank%s", facts->next_ranks,
			     plural(facts->next_ranks));
	if (facts->next_after > 0)
		ddp_text_add(out, ", %s later", show_seconds(facts->next_after).text);
	if (facts->next_why && *facts->next_why) {
		ddp_text_add(out, ": ");
		put_plain(out, facts->next_why);
	}
	ddp_text_put(out, "\n", 1);
}

static void put_report(struct ddp_text *out, const struct facts *facts)
{
	put_head(out, facts);
	put_first(out, facts);
	put_others(out, facts);
	put_followers(out, facts);
	if (facts->collectives[0] &&
	    strcmp(facts->collectives, "no rank waits in a collective") != 0) {
		ddp_text_add(out, "collectives: ");
		put_plain(out, facts->collectives);
		ddp_text_put(out, "\n", 1);
	}
	put_hung(out, facts);
	put_nodes(out, facts);
	if (facts->dumps > 0)
		ddp_text_add(out,
			     "PyTorch's flight recorder left %d dump%s: torchfrtrace --prefix fr- ",
			     facts->dumps, plural(facts->dumps));
	if (facts->dumps > 0) {
		put_plain(out, facts->dir);
		ddp_text_put(out, "\n", 1);
	}
	if (facts->ras)
		ddp_text_add(out, "NCCL's RAS told of its communicators: ras.txt\n");
	put_next(out, facts);
	ddp_text_add(out, "all of it: ddp-run --explain ");
	put_plain(out, facts->dir);
	ddp_text_put(out, "\n", 1);
}

/* --- JSON ------------------------------------------------------------------------------------------- */

static void json_list(struct ddp_text *out, const char *key, char *const *list)
{
	ddp_put_begin(out, key, '[');
	for (size_t i = 0; list[i]; i++)
		ddp_put_string(out, NULL, list[i]);
	ddp_text_add(out, "]");
}

static void json_lines(struct ddp_text *out, const char *key, const char *text, size_t most)
{
	struct lines lines = lines_of(text, most);

	ddp_put_begin(out, key, '[');
	for (size_t i = 0; i < lines.count; i++)
		ddp_put_string(out, NULL, lines.line[i]);
	ddp_text_add(out, "]");
	lines_free(&lines);
}

static void json_word(struct ddp_text *out, const char *key, const char *word)
{
	ddp_put_string(out, key, word && *word ? word : NULL);
}

/* 0 stands for what is not known. */
static void json_known(struct ddp_text *out, const char *key, double number)
{
	if (number == 0)
		ddp_put_string(out, key, NULL);
	else if (number > 0 && number < 1e15 && number == (double)(uint64_t)number)
		ddp_put_count(out, key, (uint64_t)number);
	else
		ddp_put_number(out, key, number);
}

/* What is told of every rank. */
static void json_rank(struct ddp_text *out, const struct facts *facts, int number)
{
	const struct facts_rank *rank = &facts->ranks[number];
	const struct ddp_arrival *arrival = &facts->arrivals[number];

	ddp_put_count(out, "rank", (uint64_t)number);
	json_word(out, "node", rank->node);
	json_known(out, "pid", (double)rank->pid);
	json_word(out, "how", facts_how_name(rank->how));
	if (rank->how == FACTS_EXIT || rank->how == FACTS_SIGNAL)
		ddp_put_number(out, "code", rank->code);
	if (rank->how == FACTS_SIGNAL)
		ddp_put_string(out, "signal", facts_signal(rank->code).text);
	json_known(out, "time", rank->time);
	ddp_put_bool(out, "follows", rank->follows);
	json_word(out, "why", rank->why);
	json_word(out, "message", rank->message);
	if (arrival->there) {
		json_word(out, "collective", arrival->last);
		ddp_put_bool(out, "waits", arrival->waits);
	}
	if (facts->collectives[0])
		ddp_put_bool(out, "missing", arrival->missing);
	if (!rank->state)
		return;
	ddp_put_string(out, "state", (const char[]){rank->state, '\0'});
	json_word(out, "wchan", rank->wchan);
	json_word(out, "command", rank->command);
	if (rank->beat >= 0)
		ddp_put_number(out, "beat", rank->beat);
	ddp_put_bool(out, "stacks", rank->stacks);
}

static void json_first(struct ddp_text *out, const struct facts *facts)
{
	const struct facts_rank *rank;

	if (facts->first < 0) {
		ddp_put_string(out, "first", NULL);
		return;
	}
	rank = &facts->ranks[facts->first];
	ddp_put_begin(out, "first", '{');
	json_rank(out, facts, facts->first);
	json_known(out, "raised", rank->raised);
	json_lines(out, "traceback", rank->traceback, SIZE_MAX);
	json_lines(out, "tail", rank->tail, TAIL_LINES);
	ddp_text_add(out, "}");
}

static void json_nodes(struct ddp_text *out, const struct facts *facts)
{
	ddp_put_begin(out, "nodes_concerned", '[');
	for (int i = 0; i < facts->known_count; i++) {
		const struct facts_node *node = &facts->known[i];

		ddp_put_begin(out, NULL, '{');
		ddp_put_string(out, "node", node->name);
		ddp_put_bool(out, "silent", node->silent);
		ddp_put_string(out, "state", node->state);
		ddp_put_string(out, "reason", node->reason);
		ddp_put_count(out, "oom_kills", (uint64_t)node->kills);
		ddp_text_add(out, "}");
	}
	ddp_text_add(out, "]");
}

static void put_json(struct ddp_text *out, const struct facts *facts)
{
	ddp_put_begin(out, NULL, '{');
	json_word(out, "run_id", facts->run_id);
	json_known(out, "job", facts->job);
	ddp_put_number(out, "step", facts->step);
	ddp_put_number(out, "attempt", facts->attempt);
	ddp_put_number(out, "restarts", facts->restarts);
	json_word(out, "kind", facts->kind);
	ddp_put_number(out, "status", facts->status);
	json_known(out, "started", facts->started);
	json_known(out, "ended", facts->ended);
	json_known(out, "quiet", facts->quiet);
	json_list(out, "command", facts->command);
	json_list(out, "nodes", facts->nodes);
	ddp_put_count(out, "size", (uint64_t)facts->size);
	json_first(out, facts);
	ddp_put_begin(out, "ranks", '[');
	for (int i = 0; i < facts->size; i++) {
		ddp_put_begin(out, NULL, '{');
		json_rank(out, facts, i);
		ddp_text_add(out, "}");
	}
	ddp_text_add(out, "]");
	json_lines(out, "tail", facts->tail, TAIL_LINES);
	json_word(out, "collectives", facts->collectives);
	json_nodes(out, facts);
	ddp_put_count(out, "flight_recorder_dumps", (uint64_t)facts->dumps);
	ddp_put_bool(out, "ras", facts->ras);
	json_word(out, "refusal", facts->refusal);
	json_word(out, "next", facts->next);
	json_list(out, "next_nodes", facts->next_nodes);
	json_known(out, "next_ranks", facts->next_ranks);
	json_known(out, "next_after", facts->next_after);
	json_word(out, "next_why", facts->next_why);
	ddp_text_add(out, "}\n");
}

/* --- verdict.h ----------------------------------------------------------------------------------------- */

static int write_text(const struct facts *facts, const char *name, const struct ddp_text *text,
		      struct ddp_error *error)
{
	char path[PATH_MAX + 16];
	struct iovec part = {text->data, text->size};

	if (text->failed)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the report on %s",
				     facts->dir);
	snprintf(path, sizeof(path), "%s/%s", facts->dir, name);
	return ddp_file_write(path, &part, 1, 0600, false, error);
}

static void show(const struct facts *facts, FILE *screen, struct ddp_text *text)
{
	put_report(text, facts);
	if (text->data)
		ddp_hide(text->data);
	text->size = text->data ? strlen(text->data) : 0;
	if (screen && text->data) {
		fputs(text->data, screen);
		fflush(screen);
	}
}

int ddp_verdict_explain(const char *dir, FILE *screen, struct ddp_error *error)
{
	struct ddp_text text = {.data = NULL};
	struct facts facts;
	int status = facts_read(&facts, dir, error);

	if (status < 0)
		return status;
	show(&facts, screen, &text);
	if (text.failed)
		status =
			ddp_error_set(error, DDP_ERR_MEMORY, "no memory for the report on %s", dir);
	ddp_text_free(&text);
	facts_free(&facts);
	return status;
}

int ddp_verdict_write(const char *dir, FILE *screen, struct ddp_error *error)
{
	struct ddp_text text = {.data = NULL}, json = {.data = NULL};
	struct facts facts;
	int status = facts_read(&facts, dir, error);

	if (status < 0)
		return status;
	evidence_ask_nodes(&facts);
	show(&facts, screen, &text);
	put_json(&json, &facts);
	status = write_text(&facts, "report.txt", &text, error);
	if (status == 0)
		status = write_text(&facts, "report.json", &json, error);
	ddp_text_free(&text);
	ddp_text_free(&json);
	facts_free(&facts);
	return status;
}

int ddp_verdict_point(const char *dir, char *point, size_t size, char *node, size_t node_size,
		      struct ddp_error *error)
{
	const struct facts_rank *rank;
	struct facts facts;
	size_t used;
	int status = facts_read(&facts, dir, error);

	point[0] = '\0';
	snprintf(node, node_size, "%s", "");
	if (status < 0)
		return status;
	if (facts.first >= 0) {
		rank = &facts.ranks[facts.first];
		snprintf(node, node_size, "%s", rank->node);
		snprintf(point, size, "rank %d, %s%s", facts.first,
			 facts_is_kind(&facts, "hang") ? "hangs" : show_end(rank).text,
			 rank->message ? ": " : "");
		/* Numbers are of this attempt: a pid, an address, how long it took. */
		used = strlen(point);
		for (const char *at = rank->message ? rank->message : "";
		     *at && *at != '\n' && used + 2 < size; at++) {
			bool digit = isdigit((unsigned char)*at);

			if (digit && point[used - 1] == '#')
				continue;
			point[used++] = (char)(digit			     ? '#'
					       : iscntrl((unsigned char)*at) ? '?'
									     : *at);
		}
		point[used] = '\0';
	}
	facts_free(&facts);
	return 0;
}
