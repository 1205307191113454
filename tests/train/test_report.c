/* SPDX-License-Identifier: Apache-2.0 */
/* test_report.c - a training's output: lines, live line, JSON, page */
#include "config.h"

#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/report.h"
#include "scratch.h"

enum { RANKS = 3, EPOCHS = 4, STEPS = 100 };

static const struct report_pair configuration[] = {{"lr", "1.0"}, {"data", ""}};

static struct report_place places[RANKS];
static struct report_work work[RANKS]; /* work of the whole run */

static struct report_run run_of(const char *title)
{
	memset(work, 0, sizeof(work));
	for (int rank = 0; rank < RANKS; rank++) {
		snprintf(places[rank].node, sizeof(places[rank].node), "n%d", rank);
		snprintf(places[rank].device, sizeof(places[rank].device), "CPU %d", rank);
		places[rank].threads = 1;
	}
	return (struct report_run){
		.title = title,
		.command = "ddp-train mnist",
		.engine = "cpu",
		.job = "7",
		.ranks = RANKS,
		.nodes = RANKS,
		.configuration = configuration,
		.configuration_count = 2,
		.epochs = EPOCHS,
		.steps = STEPS,
		.batch = 30,
		.end = EPOCHS * STEPS,
		.places = places,
		.work = work,
	};
}

/*
 * Reports steps, with an interval of one second after every 10 steps. Rank 2 works 10 % more than
 * the others.
 */
static void report_steps(struct report *report, uint64_t total, double loss)
{
	struct report_work ranks[RANKS] = {0};
	struct report_interval interval = {
		.epoch = (unsigned)((total - 1) / STEPS) + 1,
		.step = (total - 1) % STEPS + 1,
		.steps = STEPS,
		.total = total,
		.position = (double)total / STEPS,
		.loss = loss,
		.top1 = 0.5,
		.rate = 0.1,
		.samples = 300,
		.seconds = 1,
		.work = ranks,
	};

	for (int rank = 0; rank < RANKS; rank++) {
		ranks[rank].samples = 100;
		ranks[rank].seconds[ENGINE_COMPUTE] = rank == 2 ? 0.88 : 0.8;
		ranks[rank].seconds[ENGINE_REDUCE] = rank == 2 ? 0.02 : 0.1;
	}
	report_interval(report, &interval);
}

static void report_epoch_end(struct report *report, unsigned number, double loss)
{
	struct report_epoch epoch = {
		.epoch = number,
		.total = (uint64_t)number * STEPS,
		.train_loss = loss,
		.train_top1 = 0.936,
		.samples = 3000,
		.evaluated = true,
		.loss = 0.0612,
		.top1 = 0.9803,
		.top5 = 0.9998,
		.test_samples = 10000,
		.evaluation = 0.9,
		.best = number == 1,
	};

	report_epoch(report, &epoch);
}

static void report_run_end(struct report *report, const char *reason)
{
	struct report_end end = {
		.reason = reason,
		.best_top1 = 0.9803,
		.best_epoch = 1,
		.seconds = 50,
		.model = "out.safetensors",
	};

	for (int rank = 0; rank < RANKS; rank++) {
		work[rank].seconds[ENGINE_COMPUTE] = 25;
		work[rank].evaluation = 10;
		work[rank].samples = 4000;
		work[rank].resident = 64 << 20;
	}
	report_end(report, &end);
}

static void report_full_run(struct report *report)
{
	report_log(report, "conv1: %s", "direct");
	for (uint64_t total = 10; total <= EPOCHS * STEPS; total += 10) {
		report_steps(report, total, 1.0 / (double)total);
		if (total % STEPS == 0)
			report_epoch_end(report, (unsigned)(total / STEPS), 0.2104);
	}
	report_run_end(report, "finished");
}

static void report_finished_before(struct report *report)
{
	struct report_end end = {.reason = "finished before", .seconds = 0.5};

	report_end(report, &end);
}

/* Reports a run in a child process, whose stdout is [out] and whose stderr is [err]. */
static int report_in_child(const struct report_options *options, int out, int err,
			   void (*report_all)(struct report *report))
{
	struct report_run run = run_of("a run");
	struct report *report;
	pid_t child = fork();
	int status;

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		signal(SIGXFSZ, SIG_IGN);
		dup2(out, STDOUT_FILENO);
		dup2(err, STDERR_FILENO);
		if (report_open(&report, options, &run, NULL) < 0)
			_exit(50);
		report_all(report);
		_exit(report_close(report, NULL) < 0 ? 60 : 0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int run_full_report(const struct report_options *options, int out, int err)
{
	return report_in_child(options, out, err, report_full_run);
}

static char *read_all(const char *name)
{
	size_t size;

	return scratch_read(scratch(name), &size);
}

static int create(const char *name)
{
	int fd = open(scratch(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static int count_of(const char *text, const char *what)
{
	int count = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		count++;
	return count;
}

/* --- Lines and table -------------------------------------------------------------------- */

TEST(all_lines_are_on_stdout)
{
	static const char *const pieces[] = {
		"a run\n3 ranks on 3 nodes, cpu\n4 epochs of 100 steps, 30 samples a step\n",
		"\nconv1: direct\n",
		"\nepoch 1 step 10/100 loss 0.1000 top1 50.00 % 300 img/s lr 0.1\n",
		"\nepoch 4 step 100/100 loss 0.0025 top1 50.00 % 300 img/s lr 0.1\n",
		"\nepoch 1: train loss 0.2104 top1 93.60 %, test loss 0.0612 top1 98.03 % of "
		"10,000 in 0.9 s\nepoch 1: 10.0 s of training, 300 img/s, test top5 99.98 %, best "
		"so far\n",
		"300 img/s, test top5 99.98 %\n",
		"\nfinished: 12,000 samples in 50.0 s, 300 img/s in 40.0 s of training\n"
		"best test top1 98.03 %, after epoch 1\n",
		"\nrank  node     device   threads    img/s    data  compute  reduce    test   other  "
		"  memory\n",
		"\n   2  n2       CPU 2          1      100   0.0 %   50.0 %   0.0 %  20.0 %  30.0 %  "
		"  64 MiB\n",
		"\n all  3 nodes                 3      300   0.0 %   50.0 %   0.0 %  20.0 %  30.0 %  "
		" 192 MiB\n",
		"\nmodel       out.safetensors\n",
		NULL,
	};
	struct report_options options = {.json = NULL};
	int out = create("out"), err = create("err");
	char *text;

	ck_assert_int_eq(run_full_report(&options, out, err), 0);
	text = read_all("out");
	unit_pieces("stdout", text, pieces);
	ck_assert_int_eq(count_of(text, " step "), EPOCHS * STEPS / 10);
	ck_assert_ptr_null(strchr(text, '\r'));
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		ck_assert_msg(strlen(line) <= 100, "%s", line);
	free(text);
	text = read_all("err");
	ck_assert_str_eq(text, "");
	free(text);
	close(out);
	close(err);
}

TEST(quiet_leaves_the_table)
{
	struct report_options options = {.live = true, .quiet = true};
	int out = create("out"), err = create("err");
	char *text;

	ck_assert_int_eq(run_full_report(&options, out, err), 0);
	text = read_all("out");
	ck_assert_int_eq(strncmp(text, "\nfinished: ", 11), 0);
	free(text);
	text = read_all("err");
	ck_assert_str_eq(text, "");
	free(text);
	close(out);
	close(err);
}

TEST(json_on_stdout_is_alone_there)
{
	struct report_options options = {.json = "-"};
	int out = create("out"), err = create("err");
	char *text, *line;
	int lines = 0;

	ck_assert_int_eq(run_full_report(&options, out, err), 0);
	text = read_all("out");
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++)
		ck_assert_msg(strncmp(line, "{\"event\": \"", 11) == 0, "%s", line);
	ck_assert_int_eq(lines, 1 + 1 + EPOCHS * STEPS / 10 + EPOCHS + 1);
	free(text);
	text = read_all("err");
	ck_assert_ptr_nonnull(strstr(text, "rank  node"));
	free(text);
	close(out);
	close(err);
}

/* --- The live line ---------------------------------------------------------------------- */

/*
 * A screen at the master side of a pty. It knows the characters that the live line uses: carriage
 * return, line feed, clear to the end of the line, colours. Any other control character fails the
 * test.
 */
enum { TERMINAL_COLUMNS = 600, TERMINAL_LINES = 65536 };

struct terminal {
	size_t width;
	int fd;
	pthread_t reader;
	char cells[TERMINAL_COLUMNS][5]; /* the cursor's line; one character in each cell */
	size_t at;			 /* the cursor's column */
	size_t widest;			 /* columns of the widest unfinished line */
	bool colours, unexpected_escape;
	char last[4 * TERMINAL_COLUMNS]; /* the last complete live line */
	char lines[TERMINAL_LINES];	 /* finished lines */
	size_t ended;			 /* bytes in [lines] */
	char line[4 * TERMINAL_COLUMNS]; /* result of terminal_line() */
};

/* Returns the cursor's line without trailing blanks. */
static const char *terminal_line(struct terminal *terminal)
{
	size_t end = 0, used = 0;

	terminal->line[0] = '\0';
	for (size_t i = 0; i < TERMINAL_COLUMNS; i++)
		if (terminal->cells[i][0] && terminal->cells[i][0] != ' ')
			end = i + 1;
	for (size_t i = 0; i < end; i++)
		used += (size_t)snprintf(terminal->line + used, sizeof(terminal->line) - used, "%s",
					 terminal->cells[i][0] ? terminal->cells[i] : " ");
	return terminal->line;
}

static void terminal_clear(struct terminal *terminal, size_t from)
{
	for (size_t i = from; i < TERMINAL_COLUMNS; i++)
		terminal->cells[i][0] = '\0';
}

/* Stores a complete live line before it is changed. */
static void terminal_record(struct terminal *terminal)
{
	if (terminal_line(terminal)[0])
		memcpy(terminal->last, terminal->line, sizeof(terminal->last));
	if (terminal->at > terminal->widest)
		terminal->widest = terminal->at;
}

static size_t terminal_escape(struct terminal *terminal, const char *text)
{
	size_t size = 1;

	if (text[size] != '[') {
		terminal->unexpected_escape = true;
		return size;
	}
	for (size++; text[size] && (text[size] < '@' || text[size] > '~');)
		size++;
	if (text[size] == 'K')
		terminal_clear(terminal, terminal->at);
	else if (text[size] == 'm')
		terminal->colours = true;
	else
		terminal->unexpected_escape = true;
	return size + 1;
}

static size_t terminal_put(struct terminal *terminal, const char *text)
{
	size_t size = 1;

	if (*text == '\033')
		return terminal_escape(terminal, text);
	if (*text == '\r') {
		if (text[1] != '\n')
			terminal_record(terminal);
		terminal->at = 0;
	} else if (*text == '\n') {
		terminal->ended += (size_t)snprintf(terminal->lines + terminal->ended,
						    TERMINAL_LINES - terminal->ended, "%s\n",
						    terminal_line(terminal));
		ck_assert_uint_lt(terminal->ended, TERMINAL_LINES);
		terminal_clear(terminal, 0);
	} else {
		while (((unsigned char)text[size] & 0xc0) == 0x80)
			size++;
		ck_assert_uint_lt(terminal->at, TERMINAL_COLUMNS);
		snprintf(terminal->cells[terminal->at++], 5, "%.*s", (int)size, text);
	}
	return size;
}

static void *terminal_read(void *argument)
{
	struct terminal *terminal = argument;
	static char text[1 << 20];
	size_t used = 0;
	ssize_t got;

	/* read() returns EIO after the other side was closed */
	while (used < sizeof(text) - 1 &&
	       (got = read(terminal->fd, text + used, sizeof(text) - 1 - used)) > 0)
		used += (size_t)got;
	text[used] = '\0';
	for (size_t i = 0; i < used;)
		i += terminal_put(terminal, text + i);
	return NULL;
}

/* Reads the output on the pty, whose master side is [fd], until the other side is closed. */
static void terminal_start(struct terminal *terminal, int fd)
{
	terminal->fd = fd;
	ck_assert_int_eq(pthread_create(&terminal->reader, NULL, terminal_read, terminal), 0);
}

static void terminal_finish(struct terminal *terminal)
{
	pthread_join(terminal->reader, NULL);
}

static const struct screen {
	const char *name, *term, *locale;
	bool colour;
	unsigned short width;
	bool shared; /* stdout is the terminal, like stderr */
	const char *shows, *lacks;
} screens[] = {
	{"22", "xterm", "C.UTF-8", true, 22, false, "epoch 4/4  100/100", "loss"},
	{"40", "xterm", "C.UTF-8", true, 40, false, "loss 0.0025", "img/s"},
	{"80", "xterm", "C.UTF-8", true, 80, false, "300 img/s", "slowest"},
	{"200", "xterm", "C.UTF-8", true, 200, false, "left 0:01  slowest n2:2 (+10 %)", "==="},
	{"200 plain", "xterm", "C", true, 200, false, "[======================", "█"},
	{"200 dumb", "dumb", "C.UTF-8", true, 200, false, "[======================", "█"},
	{"80 no colour", "xterm", "C.UTF-8", false, 80, false, "▕█", "==="},
	{"80 shared", "xterm", "C.UTF-8", true, 80, true, "300 img/s", "==="},
	{"1", "xterm", "C.UTF-8", true, 1, false, "", "epoch"},
};

/* Checks the last text that the live line had before it was removed. */
static void check_screen(const struct screen *row, struct terminal *terminal)
{
	/* The echo of Ctrl-C fits behind the line. */
	ck_assert_msg(terminal->widest == 0 || terminal->widest + 2 < row->width, "%s: %zu columns",
		      row->name, terminal->widest);
	ck_assert_msg(strstr(terminal->last, row->shows), "%s: %s", row->name, terminal->last);
	ck_assert_msg(!strstr(terminal->last, row->lacks), "%s: %s", row->name, terminal->last);
	ck_assert_msg(terminal->colours ==
			      (row->colour && strcmp(row->term, "xterm") == 0 && row->width >= 80),
		      "%s: colours", row->name);
	ck_assert_msg(!terminal->unexpected_escape, "%s: unexpected escape sequence", row->name);
	unit_text(row->name, "line after its removal", terminal_line(terminal), "");
}

TEST_ROWS(live_line_fits_and_is_removed, screens)
{
	const struct screen *row = &screens[_i];
	struct winsize size = {.ws_row = 24, .ws_col = row->width};
	struct report_options options = {.live = true};
	static struct terminal terminal;
	int master, slave, out = create("out");
	char *text;

	setenv("TERM", row->term, 1);
	setenv("LC_ALL", row->locale, 1);
	unsetenv("NO_COLOR");
	if (!row->colour)
		setenv("NO_COLOR", "1", 1);
	ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, &size), 0);
	terminal_start(&terminal, master);
	ck_assert_int_eq(run_full_report(&options, row->shared ? slave : out, slave), 0);
	close(slave);
	terminal_finish(&terminal);
	check_screen(row, &terminal);
	if (row->shared) {
		ck_assert_ptr_nonnull(strstr(terminal.lines, "conv1: direct\nepoch 1: train"));
		ck_assert_ptr_null(strstr(terminal.lines, "step 10/"));
	} else {
		text = read_all("out");
		ck_assert_int_eq(count_of(text, " step "), EPOCHS * STEPS / 10);
		free(text);
	}
	close(master);
	close(out);
}

/* --- The JSON log ----------------------------------------------------------------------- */

/* Writes to the file "log" the run that [report_all] reports. Returns the file's contents. */
static char *log_of(bool append, void (*report_all)(struct report *report))
{
	struct report_options options = {.json = scratch("log"), .quiet = true, .append = append};
	struct report_run run = run_of("a \"title\"\\\n\x01\xff é");
	struct report *report;

	ck_assert_int_eq(report_open(&report, &options, &run, NULL), 0);
	report_all(report);
	ck_assert_int_eq(report_close(report, NULL), 0);
	return read_all("log");
}

static void report_special_numbers(struct report *report)
{
	report_steps(report, 10, 0.1);
	report_steps(report, 20, NAN);
	report_steps(report, 30, -INFINITY);
	report_steps(report, 40, 1.0 / 3);
}

TEST(json_has_numbers_in_full_and_null_for_none)
{
	static const char *const pieces[] = {
		"\"title\": \"a \\\"title\\\"\\\\\\n\\u0001\xef\xbf\xbd é\"",
		"\"configuration\": {\"lr\": \"1.0\", \"data\": \"\"}",
		"\"total\": 10, \"loss\": 0.1, ",
		"\"total\": 20, \"loss\": null, ",
		"\"total\": 30, \"loss\": null, ",
		"\"total\": 40, \"loss\": 0.33333333333333331, ",
		"{\"rank\": 2, \"data\": 0, \"compute\": 0.88, \"all_reduce\": 0.02, ",
		NULL,
	};
	char *text = log_of(false, report_special_numbers);

	unit_pieces("log", text, pieces);
	ck_assert_int_eq(count_of(text, "\n"), 5);
	free(text);
}

static void report_one_run(struct report *report)
{
	report_log(report, "one");
}

static void report_two_runs(struct report *report)
{
	report_log(report, "two");
}

/* A resumed run removes an incomplete last line of the log, and then appends to it. */
TEST(json_log_of_a_resumed_run_is_appended)
{
	char *text = log_of(false, report_one_run);
	FILE *file;

	free(text);
	file = fopen(scratch("log"), "a");
	fputs("{\"event\": \"st", file);
	fclose(file);
	text = log_of(true, report_two_runs);
	ck_assert_ptr_nonnull(strstr(text, "\"one\""));
	ck_assert_ptr_nonnull(strstr(text, "\"two\""));
	ck_assert_ptr_null(strstr(text, "\"st{"));
	ck_assert_int_eq(count_of(text, "\n"), 4);
	ck_assert_int_eq(count_of(text, "{\"event\""), 4);
	free(text);
	text = log_of(false, report_two_runs);
	ck_assert_ptr_null(strstr(text, "\"one\""));
	free(text);
}

/* --- Write errors ----------------------------------------------------------------------- */

/* Reports a run whose page's directory is removed before the end. */
static void report_without_directory(struct report *report)
{
	report_steps(report, 10, 1);
	unlink(scratch("gone/page.html"));
	rmdir(scratch("gone"));
	report_run_end(report, "finished");
}

TEST(what_was_not_written_is_not_announced)
{
	struct report_options options = {.page = scratch("gone/page.html"), .json = scratch("log")};
	int out = create("out"), err = create("err");
	char *text;

	ck_assert_int_eq(mkdir(scratch("gone"), 0700), 0);
	ck_assert_int_eq(report_in_child(&options, out, err, report_without_directory), 60);
	text = read_all("out");
	ck_assert_ptr_nonnull(strstr(text, "\nlog         "));
	ck_assert_ptr_null(strstr(text, "\nreport "));
	free(text);
	text = read_all("err");
	ck_assert_ptr_nonnull(strstr(text, "gone/page.html.tmp."));
	free(text);
	close(out);
	close(err);
}

/* On a full disk, the last complete page remains. */
TEST(full_disk_leaves_the_last_page)
{
	struct report_options options = {.page = scratch("page.html")};
	struct report_run run = run_of("a run");
	struct rlimit limit;
	struct report *report;
	struct ddp_error error = {0};
	char *before, *after;

	signal(SIGXFSZ, SIG_IGN);
	options.quiet = true;
	ck_assert_int_eq(report_open(&report, &options, &run, NULL), 0);
	before = read_all("page.html");
	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = 4096;
	setrlimit(RLIMIT_FSIZE, &limit);
	report_steps(report, 10, 1);
	report_epoch_end(report, 1, 1);
	report_epoch_end(report, 2, 1);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
	after = read_all("page.html");
	ck_assert_str_eq(before, after);
	free(after);
	report_epoch_end(report, 3, 1);
	after = read_all("page.html");
	ck_assert_ptr_nonnull(strstr(after, "{\"event\": \"epoch\", "));
	ck_assert_int_eq(report_close(report, &error), DDP_ERR_FILE);
	ck_assert_ptr_nonnull(strstr(error.text, "page.html: File too large"));
	free(before);
	free(after);
}

/* --- The page --------------------------------------------------------------------------- */

/*
 * Returns the page of a run that ended without report_end(). The run has intervals up to step
 * [last].
 */
static char *page_of(uint64_t begin, uint64_t last, bool append, double bad)
{
	struct report_options options = {
		.page = scratch("page.html"), .quiet = true, .append = append};
	struct report_run run = run_of("<script>alert(\"1\")</script><!--&'\x1b[31m\xff");
	struct report *report;

	run.begin = begin;
	ck_assert_int_eq(report_open(&report, &options, &run, NULL), 0);
	for (uint64_t total = begin + 10; total <= last; total += 10)
		report_steps(report, total, total == 150 ? bad : 1.0 / (double)total);
	report_epoch_end(report, (unsigned)(last / STEPS), 0.5);
	ck_assert_int_eq(report_close(report, NULL), 0);
	return read_all("page.html");
}

TEST(page_is_there_after_a_crash)
{
	static const char *const pieces[] = {
		"<script type=\"application/json\" id=\"run\">\n{\"event\": \"run\", ",
		"\"command\": \"ddp-train mnist\"",
		"\"configuration\": {\"lr\": \"1.0\", \"data\": \"\"}",
		"\"total\": 10, \"loss\": 0.1, \"top1\": 0.5, \"lr\": 0.1, \"position\": 0.1, "
		"\"samples\": 300, \"seconds\": 1, \"images_per_second\": 300, \"speeds\": [125, 125, 113.64]}\n",
		"{\"event\": \"epoch\", ",
		"{\"event\": \"now\", ",
		"\"samples\": 9000, \"images_per_second\": 300, ",
		NULL,
	};
	char *page = page_of(0, 300, false, 1);

	unit_pieces("page", page, pieces);
	ck_assert_int_eq(count_of(page, "\n{\"event\": \"step\""), 30);
	ck_assert_int_eq(count_of(page, "\n{\"event\": \"end\""), 0);
	free(page);
}

TEST(page_takes_texts_as_texts)
{
	char *page = page_of(0, 100, false, 1);

	ck_assert_ptr_nonnull(strstr(page,
				     "\"title\": \"\\u003cscript>alert(\\\"1\\\")\\u003c/script>"
				     "\\u003c!--&'\\u001b[31m\xef\xbf\xbd\""));
	ck_assert_int_eq(count_of(page, "</script>"), 2);
	/* The page loads nothing: the only "http" in it is in "http-equiv". */
	ck_assert_int_eq(count_of(page, "http"), count_of(page, "http-equiv"));
	ck_assert_int_eq(count_of(page, "src=") + count_of(page, "href="), 0);
	free(page);
}

/* The steps of a resumed run replace those that the earlier run made after its checkpoint. */
TEST(page_of_a_resumed_run_has_both_parts)
{
	char *page = page_of(0, 300, false, NAN);

	free(page);
	page = page_of(200, 400, true, 1);
	for (int total = 10; total <= 400; total += 10) {
		char text[64];

		snprintf(text, sizeof(text), "\"total\": %d, \"loss\": ", total);
		ck_assert_msg(count_of(page, text) == 1, "%s", text);
	}
	ck_assert_ptr_nonnull(strstr(page, "\"total\": 30, \"loss\": 0.033333333333333333, "));
	ck_assert_ptr_nonnull(strstr(page, "\"total\": 150, \"loss\": null, "));
	free(page);
	scratch_file("page.html", "no page", 7);
	page = page_of(200, 400, true, 1);
	ck_assert_int_eq(count_of(page, "\n{\"event\": \"step\""), 20);
	free(page);
}

/* If the training was already finished before this run, the run reports only that. */
TEST(run_without_training_has_no_table)
{
	struct report_options options = {.json = "-"};
	int out = create("out"), err = create("err");
	char *text;

	ck_assert_int_eq(report_in_child(&options, out, err, report_finished_before), 0);
	text = read_all("err");
	ck_assert_str_eq(text, "\nfinished before: nothing was trained in 0.5 s\n\n");
	free(text);
	close(out);
	close(err);
}

TEST(long_run_takes_no_more_memory)
{
	struct report_options options = {.page = scratch("page.html"), .quiet = true};
	struct report_run run = run_of("a run");
	struct report *report;
	size_t before = 0, after, size;
	char *page;

	run.epochs = 4000;
	ck_assert_int_eq(report_open(&report, &options, &run, NULL), 0);
	for (uint64_t total = 1; total <= 40000; total++) {
		report_steps(report, total, 1.0 / (double)total);
		if (total % 200 == 0)
			report_log(report, "line %llu", (unsigned long long)total);
		if (total % 100 == 0 && total <= 30000)
			report_epoch_end(report, (unsigned)(total / 100), 0.5);
		if (total == 10000)
			before = mallinfo2().uordblks;
	}
	after = mallinfo2().uordblks;
	ck_assert_msg(after < before + 65536, "%zu bytes, %zu before", after, before);
	report_run_end(report, "finished");
	ck_assert_int_eq(report_close(report, NULL), 0);
	page = scratch_read(scratch("page.html"), &size);
	ck_assert_uint_lt(size, 1000000);
	ck_assert_ptr_nonnull(
		strstr(page, "{\"event\": \"left_out\", \"epochs\": 100, \"says\": 0}"));
	free(page);
}

TEST(no_interval_no_epoch_no_rank_is_fine)
{
	struct report_options options = {.page = scratch("page.html"), .json = scratch("log")};
	struct report_run run = {.title = "t", .ranks = 1, .nodes = 1};
	struct report_interval interval = {.epoch = 1};
	struct report_epoch epoch = {.epoch = 1};
	struct report_end end = {.reason = NULL};
	struct report *report;

	options.quiet = true;
	ck_assert_int_eq(report_open(&report, &options, &run, NULL), 0);
	report_epoch(report, &epoch);
	report_interval(report, &interval);
	report_interval(report, &interval);
	report_epoch(report, &epoch);
	report_end(report, &end);
	ck_assert_int_eq(report_close(report, NULL), 0);

	report_interval(NULL, &interval);
	report_epoch(NULL, &epoch);
	report_log(NULL, "%d", 1);
	report_end(NULL, &end);
	ck_assert_int_eq(report_close(NULL, NULL), 0);
}

UNIT_MAIN("report", scratch_use)
