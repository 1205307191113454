/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terminal.h - the other end of a pty: what would be on the screen
 *
 * It knows what a live line may use: carriage return, line feed, clear to the end of the line,
 * colours. Anything else is strange.
 */
#ifndef DDP_TESTS_TERMINAL_H
#define DDP_TESTS_TERMINAL_H

#include <pthread.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "unit.h"

enum { TERMINAL_COLUMNS = 600, TERMINAL_LINES = 65536 };

struct terminal {
	size_t width;
	int fd;
	pthread_t reader;
	char cells[TERMINAL_COLUMNS][5]; /* the line of the cursor: a character each */
	size_t at;			 /* the cursor's column */
	size_t widest;			 /* columns that a line which was not ended has taken */
	bool colours, strange;
	char last[4 * TERMINAL_COLUMNS]; /* the live line when it was last whole */
	char lines[TERMINAL_LINES];	 /* those that were ended */
	size_t ended;			 /* bytes of them */
	char line[4 * TERMINAL_COLUMNS]; /* what terminal_line() gave */
};

/* The line of the cursor without the blanks at its end. */
static inline const char *terminal_line(struct terminal *terminal)
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

static inline void terminal_clear(struct terminal *terminal, size_t from)
{
	for (size_t i = from; i < TERMINAL_COLUMNS; i++)
		terminal->cells[i][0] = '\0';
}

/* The line is about to be changed: it is as wide now as it was meant to be. */
static inline void terminal_look(struct terminal *terminal)
{
	if (terminal_line(terminal)[0])
		memcpy(terminal->last, terminal->line, sizeof(terminal->last));
	if (terminal->at > terminal->widest)
		terminal->widest = terminal->at;
}

/* Returns the bytes of the escape sequence at [text]. */
static inline size_t terminal_escape(struct terminal *terminal, const char *text)
{
	size_t size = 1;

	if (text[size] != '[') {
		terminal->strange = true;
		return size;
	}
	for (size++; text[size] && (text[size] < '@' || text[size] > '~');)
		size++;
	if (text[size] == 'K')
		terminal_clear(terminal, terminal->at);
	else if (text[size] == 'm')
		terminal->colours = true;
	else
		terminal->strange = true;
	return size + 1;
}

static inline size_t terminal_put(struct terminal *terminal, const char *text)
{
	size_t size = 1;

	if (*text == '\033')
		return terminal_escape(terminal, text);
	if (*text == '\r') {
		if (text[1] != '\n')
			terminal_look(terminal);
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

static inline void *terminal_read(void *argument)
{
	struct terminal *terminal = argument;
	static char text[1 << 20];
	size_t used = 0;
	ssize_t got;

	/* The pty says EIO when the last one of the other side is gone. */
	while (used < sizeof(text) - 1 &&
	       (got = read(terminal->fd, text + used, sizeof(text) - 1 - used)) > 0)
		used += (size_t)got;
	text[used] = '\0';
	for (size_t i = 0; i < used;)
		i += terminal_put(terminal, text + i);
	return NULL;
}

/* Read what is written to the pty with master [fd], until its other side is closed. */
static inline void terminal_start(struct terminal *terminal, int fd)
{
	terminal->fd = fd;
	ck_assert_int_eq(pthread_create(&terminal->reader, NULL, terminal_read, terminal), 0);
}

static inline void terminal_finish(struct terminal *terminal)
{
	pthread_join(terminal->reader, NULL);
}

#endif /* DDP_TESTS_TERMINAL_H */
