/* SPDX-License-Identifier: Apache-2.0 */
/* failure-report.c - compose report.txt and report.json from facts and verdict */
#include "config.h"

#include "failure-report.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/hide.h"
#include "base/json.h"
#include "base/xalloc.h"

/* Limits that keep the report on one screen. */
enum {
	TAIL_LINES = 20,
	TRACEBACK_LINES = 14,
	NAMED = 6, /* ranks under "also failed", and ranks under "as a result" */
	HUNG = 16, /* hung ranks */
	WIDEST = 160,
};

enum { REPORT_LIMIT = 64 << 20 }; /* bytes */

/* --- Output of ranks ----------------------------------------------------------------------- */

struct lines {
	char *text, **line;
	size_t count;
};

static void lines_free(struct lines *lines)
{
	free(lines->text);
	free(lines->line);
}

/* Remove terminal escape sequences (cursor movement, colours), which begin with ESC. */
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

/* Returns the visible part of a line that a progress bar has overwritten. */
static char *last_state(char *line)
{
	size_t length = strlen(line);
	char *back;

	while (length > 0 && line[length - 1] == '\r')
		line[--length] = '\0';
	back = strrchr(line, '\r');
	return back ? back + 1 : line;
}

/*
 * Returns the last [most] lines of [text], as a terminal displays them. [text] may be "" or NULL.
 */
static struct lines lines_of(const char *text, size_t most)
{
	struct lines lines = {.text = ddp_xstrdup(text ? text : "", "the report")};
	size_t count = 0;
	char *rest, *line;

	for (const char *at = lines.text; *at; at++)
		count += *at == '\n' || !at[1];
	lines.line = ddp_xcalloc(count + 1, sizeof(*lines.line), "the report");
	for (rest = lines.text; (line = strsep(&rest, "\n")) && (rest || *line);) {
		if (count-- > most)
			continue;
		line = last_state(line);
		drop_escapes(line);
		lines.line[lines.count++] = line;
	}
	return lines;
}

static bool is_in(const struct lines *lines, const char *line)
{
	for (size_t i = 0; i < lines->count; i++)
		if (strcmp(lines->line[i], line) == 0)
			return true;
	return false;
}

/*
 * A line that can be printed on a terminal: at most WIDEST columns, with tabs replaced by blanks.
 * The text is valid as long as a result of ddp_show().
 */
struct plain {
	char text[4 * WIDEST + 32];
};

static struct plain plain(const char *line)
{
	struct ddp_text cut = {.data = NULL}, out = {.data = NULL};
	size_t columns = 0, length;
	struct plain plain;

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
	ddp_text_add(&cut, "%s", *line ? "..." : "");
	ddp_text_plain(&out, cut.data ? cut.data : "");
	snprintf(plain.text, sizeof(plain.text), "%s", out.data ? out.data : "");
	ddp_text_free(&cut);
	ddp_text_free(&out);
	return plain;
}

static void put_lines(struct ddp_text *out, const char *before, const struct lines *lines)
{
	for (size_t i = 0; i < lines->count; i++)
		ddp_text_add(out, "%s%s\n", before, plain(lines->line[i]).text);
}

/* --- Phrases ------------------------------------------------------------------------------- */

static const char *plural(double count)
{
	return count == 1 ? "" : "s";
}

/* Returns a time such as "14:02:11", in this host's time zone. */
static struct ddp_shown show_time(double seconds)
{
	time_t whole = (time_t)seconds;
	struct tm broken;
	char text[32] = "";

	if (localtime_r(&whole, &broken))
		strftime(text, sizeof(text), "%H:%M:%S", &broken);
	return ddp_show("%s", text);
}

/* Returns a duration such as "12.3 s" or "4 min". */
static struct ddp_shown show_seconds(double seconds)
{
	if (seconds >= 600)
		return ddp_show("%.0f min", seconds / 60);
	return ddp_show("%.*f s", seconds < 1 ? 2 : 1, seconds);
}

/* Returns how a rank ended, such as "killed by SIGSEGV". */
static struct ddp_shown show_end(const struct facts_rank *rank)
{
	static const struct {
		const char *before, *after;
	} words[] = {
#define FACTS_HOW(id, name, before, after) {before, after},
		FACTS_HOWS(FACTS_HOW)
#undef FACTS_HOW
	};
	const char *before = words[rank->how].before, *after = words[rank->how].after;

	if (rank->how == FACTS_UNKNOWN)
		return ddp_show(rank->message && !rank->follows ? "failed" : "ended");
	if (rank->how == FACTS_SIGNAL)
		return ddp_show("%s%s", before, facts_signal(rank->code).text);
	return after ? ddp_show("%s%d%s", before, rank->code, after) : ddp_show("%s", before);
}

/* --- report.txt ---------------------------------------------------------------------------- */

static void put_place(struct ddp_text *out, int number, const struct facts_rank *rank)
{
	ddp_text_add(out, "rank %d", number);
	if (rank->node[0])
		ddp_text_add(out, " on %s", plain(rank->node).text);
	if (rank->pid > 0)
		ddp_text_add(out, ", pid %ld", rank->pid);
}

static void put_head(struct ddp_text *out, const struct attempt *attempt)
{
	static const char *const words[] = {
		[RUN_END_CANCELLED] = "was cancelled",
		[RUN_END_HANG] = "hung",
		[RUN_END_TIME_LIMIT] = "reached the job's time limit",
		[RUN_END_STEP_LIMIT] = "reached the time limit of its step",
		[RUN_END_PREEMPTED] = "was preempted by another job",
		[RUN_END_WARNED] = "ended after a signal that announced the end of the job",
		[RUN_END_REFUSED] = "was not started"};
	const struct facts *facts = &attempt->facts;
	const struct facts_rank *first = facts->first >= 0 ? &facts->ranks[facts->first] : NULL;
	bool known = first && first->time > 0 && facts->end != RUN_END_HANG;
	double when = known ? first->time : attempt->ended;

	ddp_text_add(out, "ddp-run: step %s.%s, attempt %d of %d, ", attempt->job, attempt->step,
		     attempt->number + 1, attempt->restarts + 1);
	ddp_text_add(out, "%s at %s", words[facts->end] ? words[facts->end] : "failed",
		     show_time(when).text);
	if (when >= attempt->started)
		ddp_text_add(out, ", %s after its start",
			     show_seconds(when - attempt->started).text);
	if (facts->end == RUN_END_HANG)
		ddp_text_add(out, ", with no output or heartbeat for %s",
			     show_seconds(attempt->quiet_s).text);
	ddp_text_add(out, "\n");
}

/*
 * Print the last output of [rank]. If [rank] is NULL or printed nothing, print that of all ranks.
 * Lines in [traceback] are omitted, since the report has already printed them.
 */
static void put_output(struct ddp_text *out, const struct facts *facts,
		       const struct facts_rank *rank, const struct lines *traceback)
{
	bool own = rank && rank->tail;
	struct lines tail = lines_of(own ? rank->tail : facts->tail, TAIL_LINES);
	size_t count = 0;

	for (size_t i = 0; i < tail.count; i++)
		if (!is_in(traceback, tail.line[i]))
			tail.line[count++] = tail.line[i];
	tail.count = count;
	if (count > 0)
		ddp_text_add(out, "  %s last line%s%s:\n", own ? "its" : "the",
			     plural((double)count), own ? "" : " of all ranks");
	put_lines(out, "    ", &tail);
	lines_free(&tail);
}

/* Returns the reason why the step was refused, or NULL if it was not refused. */
static const char *find_refusal(const struct attempt *attempt)
{
	const struct srun_said *said = &attempt->said;

	return said->not_found || said->refused || said->usage_error ? said->refusal : NULL;
}

static void put_first(struct ddp_text *out, const struct attempt *attempt)
{
	const struct facts *facts = &attempt->facts;
	const char *refusal = find_refusal(attempt);
	bool hang = facts->end == RUN_END_HANG;
	const struct facts_rank *rank;
	struct lines traceback, message;

	if (refusal)
		ddp_text_add(out, "%s\n", plain(refusal).text);
	if (facts->first < 0) {
		if (hang)
			ddp_text_add(out, "no rank differs from the others\n");
		else if (facts->end == RUN_END_EXIT || facts->end == RUN_END_SIGNAL)
			ddp_text_add(out,
				     "srun's exit status is %d, and no rank reported a reason\n",
				     attempt->status);
		put_output(out, facts, NULL, &(struct lines){.count = 0});
		return;
	}
	rank = &facts->ranks[facts->first];
	put_place(out, facts->first, rank);
	if (rank->how == FACTS_NOT_STARTED)
		ddp_text_add(out, " %s: %s\n", show_end(rank).text, plain(rank->why).text);
	else if (hang)
		ddp_text_add(out, ": %s\n", plain(rank->why).text);
	else
		ddp_text_add(out, ", failed first: %s%s%s\n", show_end(rank).text,
			     rank->why[0] ? ", " : "", plain(rank->why).text);
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

/* Print the ranks that also failed, except those that ended because another rank did. */
static void put_others(struct ddp_text *out, const struct facts *facts)
{
	const char *what = facts->end == RUN_END_REFUSED ? "not started"
			   : facts->first < 0		 ? "failed"
							 : "also failed";
	int count = 0;

	for (int i = 0; i < facts->size; i++) {
		const struct facts_rank *rank = &facts->ranks[i];

		if (i == facts->first || rank->follows ||
		    ((rank->order == 0 || (facts->first < 0 && facts->end == RUN_END_CANCELLED)) &&
		     !rank->message && rank->how != FACTS_NODE) ||
		    facts->end == RUN_END_HANG || count++ >= NAMED)
			continue;
		ddp_text_add(out, "%s: ", what);
		put_place(out, i, rank);
		ddp_text_add(out, ": %s%s%s\n", show_end(rank).text, rank->message ? ", " : "",
			     plain(rank->message ? rank->message : "").text);
	}
	if (count > NAMED)
		ddp_text_add(out, "%s: %d more\n", what, count - NAMED);
}

struct group {
	const struct facts_rank *ranks, *like;
};

static bool is_like(const void *set, int number)
{
	const struct group *group = set;
	const struct facts_rank *like = group->like, *rank = &group->ranks[number];

	return rank->follows && rank->how == like->how && rank->code == like->code &&
	       strcmp(rank->why, like->why) == 0;
}

static void put_followers(struct ddp_text *out, const struct facts *facts)
{
	char numbers[120];
	int groups = 0;

	for (int i = 0; i < facts->size; i++) {
		struct group group = {facts->ranks, &facts->ranks[i]};
		bool shown = !facts->ranks[i].follows;

		for (int before = 0; before < i && !shown; before++)
			shown = is_like(&group, before);
		if (shown || groups++ >= NAMED)
			continue;
		ddp_list_numbers(is_like, &group, facts->size, numbers, sizeof(numbers));
		ddp_text_add(out, "as a result: rank%s %s: %s, %s\n",
			     strpbrk(numbers, ",-") ? "s" : "", numbers, show_end(group.like).text,
			     plain(group.like->why).text);
	}
	if (groups > NAMED)
		ddp_text_add(out, "as a result: other ranks, in %d more groups\n", groups - NAMED);
}

static void put_hung(struct ddp_text *out, const struct facts *facts)
{
	int count = 0;

	for (int i = 0; i < facts->size; i++) {
		const struct facts_rank *rank = &facts->ranks[i];

		if (!rank->state || count++ >= HUNG)
			continue;
		ddp_text_add(out, "  ");
		put_place(out, i, rank);
		if (rank->state == '-')
			ddp_text_add(out, ": no process");
		else
			ddp_text_add(out, ": state %c", rank->state);
		if (rank->wchan[0] && strcmp(rank->wchan, "0") != 0)
			ddp_text_add(out, " in %s", plain(rank->wchan).text);
		if (rank->heartbeat_age >= 0)
			ddp_text_add(out, ", last heartbeat %s before",
				     show_seconds(rank->heartbeat_age).text);
		if (rank->stacks)
			ddp_text_add(out, ", stacks-%d.txt", i);
		ddp_text_add(out, "\n");
	}
	if (count > HUNG)
		ddp_text_add(out, "  and %d more ranks\n", count - HUNG);
}

/* Whether the state of the node, such as "MIXED+PLANNED", allows jobs to run on the node. */
static bool is_well(const struct facts_node *node)
{
	static const char well[] = "+ALLOCATED+MIXED+IDLE+COMPLETING+PLANNED+";
	char word[64];

	for (const char *at = node->state; at && *at; at += *at == '+') {
		snprintf(word, sizeof(word), "+%.*s+", (int)strcspn(at, "+"), at);
		if (!strstr(well, word))
			return false;
		at += strcspn(at, "+");
	}
	return true;
}

static void put_nodes(struct ddp_text *out, const struct facts *facts)
{
	for (int i = 0; i < facts->known_count; i++) {
		const struct facts_node *node = &facts->known[i];
		bool state = node->silent ? node->state != NULL : !is_well(node);

		if (!node->silent && !state && node->oom_kills == 0)
			continue;
		ddp_text_add(out, "node %s:%s", plain(node->name).text,
			     node->silent ? " does not answer" : "");
		if (state)
			ddp_text_add(out, "%s Slurm says %s", node->silent ? "," : "",
				     plain(node->state).text);
		if (state && node->reason)
			ddp_text_add(out, " (%s)", plain(node->reason).text);
		if (node->oom_kills > 0)
			ddp_text_add(
				out,
				"%s the job's cgroup counts %ld process%s killed for lack of memory",
				node->silent || state ? "," : "", node->oom_kills,
				node->oom_kills == 1 ? "" : "es");
		ddp_text_add(out, "\n");
	}
}

/* Returns the number of ranks of the next attempt, or 0 if it is unknown or there is no restart. */
static int count_next_ranks(const struct attempt *attempt)
{
	int nodes = (int)attempt->nodes.count;

	return attempt->decision.act == RUN_RESTART && nodes > 0
		       ? attempt->ranks * (int)attempt->next_nodes->count / nodes
		       : 0;
}

static const struct {
	const char *name, *words;
} acts[] = {[RUN_STOP] = {"stop", "stopped"},
	    [RUN_RESTART] = {"restart", "started again"},
	    [RUN_REQUEUE] = {"requeue", "requeued"}};

static void put_next(struct ddp_text *out, const struct attempt *attempt)
{
	enum run_act act = attempt->decision.act;
	int ranks = count_next_ranks(attempt);

	ddp_text_add(out, "next: %s", acts[act].words);
	for (size_t i = 0; act == RUN_RESTART && i < attempt->next_nodes->count; i++)
		ddp_text_add(out, "%s%s", i ? "," : " on ",
			     plain(attempt->next_nodes->name[i]).text);
	if (ranks > 0)
		ddp_text_add(out, " with %d rank%s", ranks, plural(ranks));
	if (attempt->next_after_s > 0)
		ddp_text_add(out, ", %s later", show_seconds(attempt->next_after_s).text);
	ddp_text_add(out, act == RUN_RESTART ? " (%s)\n" : ", because %s\n",
		     plain(attempt->decision.why).text);
}

static void put_text(struct ddp_text *out, const struct attempt *attempt)
{
	const struct facts *facts = &attempt->facts;

	if (facts->end == RUN_END_REFUSED && attempt->said.usage_error) {
		ddp_text_add(out, "ddp-run: step %s.%s was refused, and a restart cannot help: ",
			     attempt->job, attempt->step);
		ddp_text_plain(out, attempt->said.refusal);
		ddp_text_add(out, "\n");
		return;
	}
	put_head(out, attempt);
	put_first(out, attempt);
	put_others(out, facts);
	put_followers(out, facts);
	if (facts->collectives[0] &&
	    strcmp(facts->collectives, "no rank waits in a collective") != 0)
		ddp_text_add(out, "collectives: %s\n", plain(facts->collectives).text);
	if (facts->size > 0 && facts->arrivals[0].slow[0])
		ddp_text_add(out, "before: %s\n", plain(facts->arrivals[0].slow).text);
	put_hung(out, facts);
	put_nodes(out, facts);
	if (facts->dumps > 0) {
		ddp_text_add(out, "PyTorch's flight recorder left %d dump%s", facts->dumps,
			     plural(facts->dumps));
		if (facts->undecoded[0])
			ddp_text_add(out, ", which were not decoded (%s)", facts->undecoded);
		ddp_text_add(out, ". Print them: torchfrtrace --prefix fr- %s\n",
			     plain(attempt->dir).text);
	}
	if (facts->ras)
		ddp_text_add(out, "ras.txt has the state of NCCL's communicators, from NCCL's RAS "
				  "service\n");
	put_next(out, attempt);
	if (attempt->dir[0])
		ddp_text_add(out, "print this report again: ddp-run --explain %s\n",
			     plain(attempt->dir).text);
}

/* --- report.json --------------------------------------------------------------------------- */

static void json_list(struct ddp_text *out, const char *key, char *const *list)
{
	ddp_put_begin(out, key, '[');
	for (size_t i = 0; list[i]; i++)
		ddp_put_string(out, NULL, list[i]);
	ddp_text_add(out, "]");
}

static void json_names(struct ddp_text *out, const char *key, const struct node_list *list)
{
	ddp_put_begin(out, key, '[');
	for (size_t i = 0; i < list->count; i++)
		ddp_put_string(out, NULL, list->name[i]);
	ddp_text_add(out, "]");
}

static void json_lines(struct ddp_text *out, const char *key, const char *text, size_t most)
{
	struct lines lines = lines_of(text, most);

	lines.line[lines.count] = NULL;
	json_list(out, key, lines.line);
	lines_free(&lines);
}

static void json_word(struct ddp_text *out, const char *key, const char *word)
{
	ddp_put_string(out, key, word && *word ? word : NULL);
}

/* Write [number], or null if it is 0, which means unknown. */
static void json_known(struct ddp_text *out, const char *key, double number)
{
	if (number == 0)
		ddp_put_string(out, key, NULL);
	else if (number > 0 && number < 1e15 && number == (double)(uint64_t)number)
		ddp_put_count(out, key, (uint64_t)number);
	else
		ddp_put_number(out, key, number);
}

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
	if (rank->heartbeat_age >= 0)
		ddp_put_number(out, "beat", rank->heartbeat_age);
	ddp_put_bool(out, "stacks", rank->stacks);
}

static void json_first(struct ddp_text *out, const struct facts *facts)
{
	const struct facts_rank *rank = facts->first < 0 ? NULL : &facts->ranks[facts->first];

	if (!rank) {
		ddp_put_string(out, "first", NULL);
		return;
	}
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
		ddp_put_count(out, "oom_kills", (uint64_t)node->oom_kills);
		ddp_text_add(out, "}");
	}
	ddp_text_add(out, "]");
}

static void put_json(struct ddp_text *out, const struct attempt *attempt, const char *text)
{
	const struct node_list none = {.name = NULL};
	const struct facts *facts = &attempt->facts;
	enum run_act act = attempt->decision.act;

	ddp_put_begin(out, NULL, '{');
	json_word(out, "run_id", attempt->run_id);
	ddp_put_count(out, "job", strtoull(attempt->job, NULL, 10));
	ddp_put_count(out, "step", strtoull(attempt->step, NULL, 10));
	ddp_put_number(out, "attempt", attempt->number);
	ddp_put_number(out, "restarts", attempt->restarts);
	ddp_put_string(out, "kind", run_end_name(attempt->end));
	ddp_put_number(out, "status", attempt->status);
	json_known(out, "started", attempt->started);
	json_known(out, "ended", attempt->ended);
	json_known(out, "quiet", attempt->quiet_s);
	json_list(out, "command", attempt->command);
	json_names(out, "nodes", &attempt->nodes);
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
	if (facts->size > 0)
		json_word(out, "slow", facts->arrivals[0].slow);
	json_nodes(out, facts);
	ddp_put_count(out, "flight_recorder_dumps", (uint64_t)facts->dumps);
	ddp_put_bool(out, "ras", facts->ras);
	json_word(out, "refusal", find_refusal(attempt));
	ddp_put_string(out, "next", acts[act].name);
	json_names(out, "next_nodes", act == RUN_RESTART ? attempt->next_nodes : &none);
	json_known(out, "next_ranks", count_next_ranks(attempt));
	json_known(out, "next_after", attempt->next_after_s < 0 ? 0 : attempt->next_after_s);
	json_word(out, "next_why", attempt->decision.why);
	ddp_put_string(out, "report", text);
	ddp_text_add(out, "}\n");
}

/* --- Reports ------------------------------------------------------------------------------- */

void failure_report(const struct attempt *attempt, struct ddp_text *text, struct ddp_text *json)
{
	put_text(text, attempt);
	if (text->data) {
		ddp_hide(text->data);
		text->size = strlen(text->data);
	}
	put_json(json, attempt, text->data);
}

bool failure_explain(const char *dir, const char *name, FILE *screen)
{
	char path[PATH_MAX + 32], *data = NULL, *report = NULL;
	struct ddp_json json;
	size_t size;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (ddp_file_read(path, REPORT_LIMIT, &data, &size, NULL) != 0)
		return false;
	ddp_json_start(&json, data, size);
	ddp_json_open(&json, '{');
	for (bool first = true; ddp_json_more(&json, '}', first); first = false) {
		const char *key = ddp_json_key(&json);

		if (key && strcmp(key, "report") == 0)
			report = ddp_json_string(&json);
		else
			(void)ddp_json_skip(&json);
	}
	if (report)
		fputs(report, screen);
	free(data);
	return report != NULL;
}

/* Whether all ranks ended with the same status and the same last line, for example of Python. */
static bool have_same_end(const struct facts *facts)
{
	const struct facts_rank *first = facts->ranks;
	struct lines last = lines_of(first->tail, 1);
	bool same = first->tail && first->how == FACTS_EXIT;

	for (int i = 1; i < facts->size && same; i++) {
		const struct facts_rank *rank = &facts->ranks[i];
		struct lines other = lines_of(rank->tail, 1);

		same = rank->tail && rank->how == FACTS_EXIT && rank->code == first->code &&
		       last.count == other.count &&
		       (last.count == 0 || strcmp(last.line[0], other.line[0]) == 0);
		lines_free(&other);
	}
	lines_free(&last);
	return same;
}

void failure_point(const struct attempt *attempt, char *point, size_t size, char *node,
		   size_t node_size)
{
	const struct facts *facts = &attempt->facts;
	const struct facts_rank *rank = facts->first >= 0 ? &facts->ranks[facts->first] : NULL;
	enum pattern_meaning meaning = LINE_PEER;
	size_t used;
	bool own;

	point[0] = '\0';
	snprintf(node, node_size, "%s", "");
	if (!rank)
		return;
	/*
	 * A rank that ran too long may be healthy and wait for a rank that has ended. So its node
	 * is not suspect, and [node] stays "".
	 */
	if (rank->how != FACTS_LATE)
		snprintf(node, node_size, "%s", rank->node);
	if (rank->message && !rank->libddp)
		meaning = pattern_message(rank->message);
	own = meaning == LINE_OTHER || meaning == LINE_CONNECTION || have_same_end(facts);
	snprintf(point, size, "%s%s%s", own ? "" : ddp_show("rank %d, ", facts->first).text,
		 facts->end == RUN_END_HANG ? "hangs" : show_end(rank).text,
		 rank->message ? ": " : "");
	/* Replace numbers by "#", because pids, addresses and durations differ between attempts. */
	used = strlen(point);
	for (const char *at = rank->message ? rank->message : "";
	     *at && *at != '\n' && used + 2 < size; at++) {
		bool digit = isdigit((unsigned char)*at);

		if (digit && point[used - 1] == '#')
			continue;
		point[used++] = (char)(digit ? '#' : iscntrl((unsigned char)*at) ? '?' : *at);
	}
	point[used] = '\0';
}
