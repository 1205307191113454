/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - growing strings, JSON output, sanitizing of foreign text, numbers and tables for
 * terminals
 */
#ifndef DDP_BASE_TEXT_H
#define DDP_BASE_TEXT_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ddp.h"

/* A growing string; initialize with zeros. Zero-terminated once anything was added. */
struct ddp_text {
	char *data;
	size_t size, capacity;
	bool failed; /* out of memory: later additions are missing */
};

void ddp_text_add(struct ddp_text *text, const char *format, ...) DDP_FORMAT(2, 3);
void ddp_text_put(struct ddp_text *text, const char *bytes, size_t size);

/* Make [text] empty and keep its memory; make it empty and free its memory. */
void ddp_text_clear(struct ddp_text *text);
void ddp_text_free(struct ddp_text *text);

/*
 * Add [string] as a JSON string in quotes, with "<" escaped, so that it cannot end the HTML element
 * that contains it; add it for a terminal, with control characters replaced by "?". Both replace
 * invalid UTF-8 by U+FFFD.
 */
void ddp_text_json(struct ddp_text *text, const char *string);
void ddp_text_plain(struct ddp_text *text, const char *string);

/*
 * Add [number] with enough digits to read back the same; null if it is not finite, which JSON
 * lacks.
 */
void ddp_text_json_number(struct ddp_text *text, double number);

/*
 * Add "key": value to a JSON object, or a value to an array if [key] is NULL, with a comma before
 * it if needed. A NULL [string] becomes null. To close what ddp_put_begin() opened with '{' or '[',
 * add the other bracket with ddp_text_add().
 */
void ddp_put_begin(struct ddp_text *text, const char *key, char bracket);
void ddp_put_string(struct ddp_text *text, const char *key, const char *string);
void ddp_put_number(struct ddp_text *text, const char *key, double number);
void ddp_put_count(struct ddp_text *text, const char *key, uint64_t count);
void ddp_put_bool(struct ddp_text *text, const char *key, bool value);

/*
 * A short text returned by value, for use in an expression: ddp_show_count(x).text is valid until
 * its end.
 */
struct ddp_shown {
	char text[40];
};
struct ddp_shown ddp_show(const char *format, ...) DDP_FORMAT(1, 2);
struct ddp_shown ddp_show_count(double number);	  /* "3,912" */
struct ddp_shown ddp_show_bytes(uint64_t number); /* "64 MiB", "31.9 GiB" */

/*
 * Write the numbers below [count] for which has(set, number) is true to [text], as "0-3,8"; "..."
 * marks a cut at [size].
 */
void ddp_list_numbers(bool (*has)(const void *set, int number), const void *set, int count,
		      char *text, size_t size);

/* Write the CPUs of [set] in the same format. */
void ddp_list_cpus(const cpu_set_t *set, char *text, size_t size);

/*
 * Print [length] bytes of [text], starting in [column], wrapped at 79 columns with following lines
 * indented by [indent].
 * Returns the column after the last word.
 */
int ddp_print_words(int column, int indent, const char *text, size_t length);

/* Width of [string] on a terminal, assuming that each character takes one column. */
size_t ddp_text_columns(const char *string);

struct ddp_table_column {
	const char *head; /* heading; blanks in it widen the column */
	bool words;	  /* left-aligned, for words; else right-aligned, for numbers */
	size_t least;	  /* smallest width if the line is too wide; 0: not reducible */
};

/*
 * Add a table of [count] columns, at most 16. [cells] has the rows; a tab ends each cell. An empty
 * cell is shown as "-"; a column with only empty cells is omitted. If the lines are wider than
 * [widest], columns that may be reduced are cut, starting with the first.
 */
void ddp_text_table(struct ddp_text *text, const struct ddp_table_column *columns, size_t count,
		    const struct ddp_text *cells, size_t widest);

/* Bytes of the first character of [text], which has [size] bytes; 0 if it is not UTF-8. */
size_t ddp_utf8_length(const char *text, size_t size);

bool ddp_utf8_valid(const char *text);

#endif /* DDP_BASE_TEXT_H */
