/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - texts that grow, numbers as people and programs read them
 */
#ifndef TRAIN_REPORT_TEXT_H
#define TRAIN_REPORT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A text being put together; begin with zeros. Always ended by a zero byte once something is in. */
struct text {
	char *data;
	size_t size, room;
	bool failed; /* there was no memory: what was added since is missing */
};

void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_put(struct text *text, const char *bytes, size_t size);

/* Empty, with its memory kept; and without. */
void text_clear(struct text *text);
void text_free(struct text *text);

/* Bytes of the character that [string] begins with; 0 if it is not UTF-8. */
size_t text_character(const char *string);

/*
 * Add [string] for a place where it cannot do harm: in HTML (also within quotes), as a JSON string
 * with its quotes, on a terminal. What is not UTF-8 becomes U+FFFD, in HTML control characters
 * too, on a terminal these become "?".
 */
void text_html(struct text *text, const char *string);
void text_json(struct text *text, const char *string);
void text_plain(struct text *text, const char *string);

/* Add [number] so that it reads back the same; null where it is not finite, as JSON has no other. */
void text_json_number(struct text *text, double number);

/* A number to be shown: show_x(...).text lives to the end of the expression. */
struct shown {
	char text[40];
};

struct shown show_count(double number);	    /* "3,912" */
struct shown show_loss(double loss);	    /* "0.0812", "nan" */
struct shown show_percent(double fraction); /* "98.03 %" */
struct shown show_seconds(double seconds);  /* "0.9 s", "12.3 s", "4 min 05 s", "2 h 07 min" */
struct shown show_clock(double seconds);    /* "0:42", "1:02:03" */
struct shown show_bytes(uint64_t bytes);    /* "82 MiB" */

#endif /* TRAIN_REPORT_TEXT_H */
