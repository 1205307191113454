/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - texts that grow, texts of others, and tables: UTF-8, JSON, terminals
 */
#ifndef DDP_BASE_TEXT_H
#define DDP_BASE_TEXT_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ddp.h"

/* A text being put together; begin with zeros. Once something is in, a zero byte ends it. */
struct ddp_text {
	char *data;
	size_t size, room;
	bool failed; /* there was no memory: what was added since is missing */
};

void ddp_text_add(struct ddp_text *text, const char *format, ...) DDP_FORMAT(2, 3);
void ddp_text_put(struct ddp_text *text, const char *bytes, size_t size);

/* Empty, with its memory kept; and without. */
void ddp_text_clear(struct ddp_text *text);
void ddp_text_free(struct ddp_text *text);

/*
 * Add [string] as a JSON string with its quotes, and without "<", so that it cannot end an element of HTML that it
 * lies in; and for a terminal, where control characters become "?". What is not UTF-8 becomes U+FFFD in both.
 */
void ddp_text_json(struct ddp_text *text, const char *string);
void ddp_text_plain(struct ddp_text *text, const char *string);

/* Add [number] so that it reads back the same; null where it is not finite: JSON has no other. */
void ddp_text_json_number(struct ddp_text *text, double number);

/*
 * Add "key": value to a JSON object, or a value to an array where [key] is NULL, with a comma
 * before it if there is a value already. A [string] that is NULL is null. What ddp_put_begin()
 * begins with '{' or '[' ends by ddp_text_add() of the other bracket.
 */
void ddp_put_begin(struct ddp_text *text, const char *key, char bracket);
void ddp_put_string(struct ddp_text *text, const char *key, const char *string);
void ddp_put_number(struct ddp_text *text, const char *key, double number);
void ddp_put_count(struct ddp_text *text, const char *key, uint64_t count);
void ddp_put_bool(struct ddp_text *text, const char *key, bool value);

/* A few words for people, as an expression: ddp_show_count(x).text lives to its end. */
struct ddp_shown {
	char text[40];
};
struct ddp_shown ddp_show(const char *format, ...) DDP_FORMAT(1, 2);
struct ddp_shown ddp_show_count(double number);	  /* "3,912" */
struct ddp_shown ddp_show_bytes(uint64_t number); /* "64 MiB", "31.9 GiB" */

/* The numbers below [count] that are in [set], as "0-3,8" in [text], cut with "..." behind [size]. */
void ddp_list_numbers(bool (*has)(const void *set, int number), const void *set, int count,
		      char *text, size_t size);

/* The CPUs of [set] in the same way. */
void ddp_list_cpus(const cpu_set_t *set, char *text, size_t size);

/*
 * Print the words of [text], of [length] bytes, from [column] on, in lines of 79 columns that begin at [indent].
 * Returns the column after them.
 */
int ddp_print_words(int column, int indent, const char *text, size_t length);

/* Columns that [string] takes on a terminal, where each of its characters is taken for one wide. */
size_t ddp_text_columns(const char *string);

struct ddp_table_column {
	const char *head; /* of [least] columns and more, perhaps by blanks */
	bool words;	  /* begin at the left; numbers end at the right */
	size_t least;	  /* how narrow it may become where a line is too wide; 0: it may not */
};

/*
 * Add a table of [count] columns, 16 at most, whose rows are in [cells]: a tab ends each cell. An empty one is shown
 * as "-"; a column of none but empty ones is left out. A line that would be wider than [widest] columns is cut where
 * columns may give way, the first of them first.
 */
void ddp_text_table(struct ddp_text *text, const struct ddp_table_column *columns, size_t count,
		    const struct ddp_text *cells, size_t widest);

/* Bytes of the character that [text] of [size] bytes begins with; 0 if it is not UTF-8. */
size_t ddp_utf8_length(const char *text, size_t size);

/* Whether all of the string [text] is UTF-8. */
bool ddp_utf8_valid(const char *text);

/* Write character [code], up to 0x10ffff, to [out]. Returns its bytes, 1 to 4. */
size_t ddp_utf8_put(char *out, uint32_t code);

#endif /* DDP_BASE_TEXT_H */
