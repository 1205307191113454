/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - growing strings, JSON output, cleaning of texts from other programs, and numbers and
 * tables for people
 */
#ifndef DDP_BASE_TEXT_H
#define DDP_BASE_TEXT_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ddp.h"

/* A growing string. Initialize it with zeros. [data] is zero-terminated once text was added. */
struct ddp_text {
	char *data;
	size_t size, capacity;
	bool failed; /* memory was short, so [data] lacks this and all later additions */
};

void ddp_text_add(struct ddp_text *text, const char *format, ...) DDP_FORMAT(2, 3);
void ddp_text_put(struct ddp_text *text, const char *bytes, size_t size);

/* Make [text] empty: ddp_text_clear() keeps its memory, ddp_text_free() frees it. */
void ddp_text_clear(struct ddp_text *text);
void ddp_text_free(struct ddp_text *text);

/*
 * ddp_text_json() adds [string] as a JSON string in quotes. "<" is escaped, so that the string
 * cannot end an HTML element that contains it. ddp_text_plain() adds [string] for a terminal, with
 * control characters replaced by "?". Both replace invalid UTF-8 by U+FFFD.
 */
void ddp_text_json(struct ddp_text *text, const char *string);
void ddp_text_plain(struct ddp_text *text, const char *string);

/*
 * Add [number] with enough digits to read the same number back. A number that is not finite becomes
 * null, because JSON lacks it.
 */
void ddp_text_json_number(struct ddp_text *text, double number);

/*
 * Add "key": value to a JSON object or, if [key] is NULL, a value to an array. A comma is added
 * first if needed. A NULL [string] becomes null. ddp_put_begin() opens an object or array with '{'
 * or '['; close it by adding the other bracket with ddp_text_add().
 */
void ddp_put_begin(struct ddp_text *text, const char *key, char bracket);
void ddp_put_string(struct ddp_text *text, const char *key, const char *string);
void ddp_put_number(struct ddp_text *text, const char *key, double number);
void ddp_put_count(struct ddp_text *text, const char *key, uint64_t count);
void ddp_put_bool(struct ddp_text *text, const char *key, bool value);

/*
 * A short text that a function returns by value, for use in an expression. For example, the pointer
 * ddp_show_bytes(x).text is valid until the end of the full expression.
 */
struct ddp_shown {
	char text[40];
};
struct ddp_shown ddp_show(const char *format, ...) DDP_FORMAT(1, 2);
struct ddp_shown ddp_show_count(double number);	  /* such as "3,912" */
struct ddp_shown ddp_show_bytes(uint64_t number); /* such as "64 MiB", "31.9 GiB" */

/*
 * Write the numbers below [count] for which has(set, number) is true to [text], such as "0-3,8". If
 * [size] is too small, the list is cut and ends with "...".
 */
void ddp_list_numbers(bool (*has)(const void *set, int number), const void *set, int count,
		      char *text, size_t size);

/* Write the CPUs of [set] in the format of ddp_list_numbers(). */
void ddp_list_cpus(const cpu_set_t *set, char *text, size_t size);

/*
 * Print [length] bytes of [text]. The cursor is in [column] before. Lines are wrapped at 79
 * columns; further lines are indented by [indent].
 * Returns the column after the last word.
 */
int ddp_print_words(int column, int indent, const char *text, size_t length);

/* Returns the width of [string] on a terminal if each character has one column. */
size_t ddp_text_columns(const char *string);

struct ddp_table_column {
	const char *head; /* heading; blanks in it widen the column */
	bool words;	  /* true for words, left-aligned; false for numbers, right-aligned */
	/*
	 * minimum width to which the column may be cut if the table is too wide; 0 to never cut it
	 */
	size_t least;
};

/*
 * Add a table of [count] columns, at most 16. [cells] has the rows, with a tab after each cell. An
 * empty cell is shown as "-"; a column that has only empty cells is omitted. If the lines are wider
 * than [widest], columns are cut to their minimum width, the first columns first.
 */
void ddp_text_table(struct ddp_text *text, const struct ddp_table_column *columns, size_t count,
		    const struct ddp_text *cells, size_t widest);

/*
 * Returns the bytes of the first character of [text], which has [size] bytes; 0 if it is not UTF-8.
 */
size_t ddp_utf8_length(const char *text, size_t size);

bool ddp_utf8_valid(const char *text);

#endif /* DDP_BASE_TEXT_H */
