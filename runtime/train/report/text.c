/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

/* Room for [more] bytes and a zero byte. */
static bool text_grow(struct text *text, size_t more)
{
	size_t room = text->room ? text->room : 256;
	char *data;

	while (room - text->size <= more)
		room *= 2;
	if (room == text->room)
		return true;
	data = realloc(text->data, room);
	if (!data) {
		text->failed = true;
		return false;
	}
	text->data = data;
	text->room = room;
	return true;
}

void text_put(struct text *text, const char *bytes, size_t size)
{
	if (!text_grow(text, size))
		return;
	memcpy(text->data + text->size, bytes, size);
	text->size += size;
	text->data[text->size] = '\0';
}

void text_add(struct text *text, const char *format, ...)
{
	va_list arguments;
	int size;

	va_start(arguments, format);
	size = vsnprintf(NULL, 0, format, arguments);
	va_end(arguments);
	if (size < 0 || !text_grow(text, (size_t)size))
		return;
	va_start(arguments, format);
	vsnprintf(text->data + text->size, (size_t)size + 1, format, arguments);
	va_end(arguments);
	text->size += (size_t)size;
}

void text_clear(struct text *text)
{
	text->size = 0;
	text->failed = false;
	if (text->data)
		text->data[0] = '\0';
}

void text_free(struct text *text)
{
	free(text->data);
	*text = (struct text){0};
}

/* --- Strings of others ------------------------------------------------------------------ */

size_t text_character(const char *string)
{
	const unsigned char *at = (const unsigned char *)string;
	size_t size = *at < 0x80       ? 1
		      : *at >> 5 == 6  ? 2
		      : *at >> 4 == 14 ? 3
		      : *at >> 3 == 30 ? 4
				       : 0;
	uint32_t code = *at;

	if (size < 2)
		return size;
	code &= 0x7fu >> size;
	for (size_t i = 1; i < size; i++) {
		if (at[i] >> 6 != 2)
			return 0;
		code = code << 6 | (at[i] & 0x3f);
	}
	/* The shortest form alone, no halves of UTF-16, nothing beyond Unicode. */
	if (code < (size == 2	? 0x80u
		    : size == 3 ? 0x800u
				: 0x10000u) ||
	    code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return 0;
	return size;
}

static const char unknown[] = "\xef\xbf\xbd"; /* U+FFFD */

static bool is_control(const char *at)
{
	unsigned char first = (unsigned char)at[0];

	/* U+0080 to U+009F drive terminals as well. */
	return first < 0x20 || first == 0x7f || (first == 0xc2 && (unsigned char)at[1] < 0xa0);
}

/*
 * Add one character, of [size] bytes, 0 if it is not UTF-8, in its escaped form.
 * Returns false if it may stand as it is.
 */
typedef bool escaper(struct text *text, const char *at, size_t size);

static void text_escape(struct text *text, const char *string, escaper *escape)
{
	while (*string) {
		size_t size = text_character(string);

		if (!escape(text, string, size))
			text_put(text, string, size);
		string += size ? size : 1;
	}
}

static bool escape_html(struct text *text, const char *at, size_t size)
{
	switch (*at) {
	case '<':
		text_add(text, "&lt;");
		return true;
	case '>':
		text_add(text, "&gt;");
		return true;
	case '&':
		text_add(text, "&amp;");
		return true;
	case '"':
		text_add(text, "&quot;");
		return true;
	case '\'':
		text_add(text, "&#39;");
		return true;
	case '\n':
	case '\t':
		return false;
	default:
		if (size > 0 && !is_control(at))
			return false;
		text_add(text, "%s", unknown);
		return true;
	}
}

static bool escape_json(struct text *text, const char *at, size_t size)
{
	if (size == 0)
		text_add(text, "%s", unknown);
	else if (*at == '"' || *at == '\\')
		text_add(text, "\\%c", *at);
	else if (size == 1 && is_control(at))
		text_add(text, "\\u%04x", (unsigned)*at);
	else
		return false;
	return true;
}

static bool escape_plain(struct text *text, const char *at, size_t size)
{
	if (size == 0)
		text_add(text, "%s", unknown);
	else if (is_control(at))
		text_add(text, "?");
	else
		return false;
	return true;
}

void text_html(struct text *text, const char *string)
{
	text_escape(text, string, escape_html);
}

void text_json(struct text *text, const char *string)
{
	text_put(text, "\"", 1);
	text_escape(text, string, escape_json);
	text_put(text, "\"", 1);
}

void text_plain(struct text *text, const char *string)
{
	text_escape(text, string, escape_plain);
}

void text_json_number(struct text *text, double number)
{
	char shortest[40];

	if (!isfinite(number)) {
		text_add(text, "null");
		return;
	}
	snprintf(shortest, sizeof(shortest), "%.9g", number);
	if (strtod(shortest, NULL) != number)
		snprintf(shortest, sizeof(shortest), "%.17g", number);
	text_put(text, shortest, strlen(shortest));
}
