/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - growing text, JSON output, texts from other programs, numbers and tables */
#include "config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

/* --- Growing text ---------------------------------------------------------------------------- */

/* Make space for [more] bytes and a terminating zero byte. */
static bool grow(struct ddp_text *text, size_t more)
{
	size_t capacity = text->capacity ? text->capacity : 256;
	char *data;

	if (text->failed)
		return false;
	while (capacity - text->size <= more)
		capacity *= 2;
	if (capacity == text->capacity)
		return true;
	data = realloc(text->data, capacity);
	text->failed = !data;
	if (!data)
		return false;
	text->data = data;
	text->capacity = capacity;
	return true;
}

void ddp_text_put(struct ddp_text *text, const char *bytes, size_t size)
{
	if (!grow(text, size))
		return;
	if (size > 0) /* [bytes] can be NULL if [size] is 0 */
		memcpy(text->data + text->size, bytes, size);
	text->size += size;
	text->data[text->size] = '\0';
}

void ddp_text_add(struct ddp_text *text, const char *format, ...)
{
	va_list arguments;
	int size;

	va_start(arguments, format);
	size = vsnprintf(NULL, 0, format, arguments);
	va_end(arguments);
	if (size < 0 || !grow(text, (size_t)size))
		return;
	va_start(arguments, format);
	vsnprintf(text->data + text->size, (size_t)size + 1, format, arguments);
	va_end(arguments);
	text->size += (size_t)size;
}

void ddp_text_clear(struct ddp_text *text)
{
	text->size = 0;
	text->failed = false;
	if (text->data)
		text->data[0] = '\0';
}

void ddp_text_free(struct ddp_text *text)
{
	free(text->data);
	*text = (struct ddp_text){.data = NULL};
}

/* --- Text from other sources ----------------------------------------------------------------- */

static const char unknown[] = "\xef\xbf\xbd"; /* U+FFFD */

void ddp_text_json(struct ddp_text *text, const char *string)
{
	static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
	size_t left = strlen(string), length;

	ddp_text_put(text, "\"", 1);
	for (; left > 0; string += length ? length : 1, left -= length ? length : 1) {
		const char *found = strchr(special, *string);

		length = ddp_utf8_length(string, left);
		if (length == 0)
			ddp_text_add(text, "%s", unknown);
		else if (found)
			ddp_text_add(text, "\\%c", letters[found - special]);
		else if ((unsigned char)*string < 0x20 || *string == '<')
			ddp_text_add(text, "\\u%04x", (unsigned)*string);
		else
			ddp_text_put(text, string, length);
	}
	ddp_text_put(text, "\"", 1);
}

void ddp_text_plain(struct ddp_text *text, const char *string)
{
	size_t left = strlen(string), length;

	for (; left > 0; string += length ? length : 1, left -= length ? length : 1) {
		unsigned char first = (unsigned char)string[0], second = (unsigned char)string[1];

		length = ddp_utf8_length(string, left);
		if (length == 0)
			ddp_text_add(text, "%s", unknown);
		/* U+0080 to U+009F are control characters as well */
		else if (first < 0x20 || first == 0x7f || (first == 0xc2 && second < 0xa0))
			ddp_text_add(text, "?");
		else
			ddp_text_put(text, string, length);
	}
}

void ddp_text_json_number(struct ddp_text *text, double number)
{
	char shortest[40];

	if (!isfinite(number)) {
		ddp_text_add(text, "null");
		return;
	}
	snprintf(shortest, sizeof(shortest), "%.9g", number);
	if (strtod(shortest, NULL) != number)
		snprintf(shortest, sizeof(shortest), "%.17g", number);
	ddp_text_add(text, "%s", shortest);
}

/* --- JSON ------------------------------------------------------------------------------------ */

/*
 * Add a comma if needed, and [key] if there is one. After a blank or a newline no comma is added: a
 * caller that adds one of these adds the comma before it.
 */
static void begin_value(struct ddp_text *text, const char *key)
{
	if (text->size > 0 && !strchr("{[ \n", text->data[text->size - 1]))
		ddp_text_put(text, ", ", 2);
	if (!key)
		return;
	ddp_text_json(text, key);
	ddp_text_put(text, ": ", 2);
}

void ddp_put_begin(struct ddp_text *text, const char *key, char bracket)
{
	begin_value(text, key);
	ddp_text_put(text, &bracket, 1);
}

void ddp_put_string(struct ddp_text *text, const char *key, const char *string)
{
	begin_value(text, key);
	if (string)
		ddp_text_json(text, string);
	else
		ddp_text_put(text, "null", 4);
}

void ddp_put_number(struct ddp_text *text, const char *key, double number)
{
	begin_value(text, key);
	ddp_text_json_number(text, number);
}

void ddp_put_count(struct ddp_text *text, const char *key, uint64_t count)
{
	begin_value(text, key);
	ddp_text_add(text, "%llu", (unsigned long long)count);
}

void ddp_put_bool(struct ddp_text *text, const char *key, bool value)
{
	begin_value(text, key);
	ddp_text_add(text, "%s", value ? "true" : "false");
}

/* --- Numbers for people ---------------------------------------------------------------------- */

struct ddp_shown ddp_show(const char *format, ...)
{
	struct ddp_shown shown;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(shown.text, sizeof(shown.text), format, arguments);
	va_end(arguments);
	return shown;
}

struct ddp_shown ddp_show_bytes(uint64_t number)
{
	double mebi = (double)number / 0x1p20;

	if (mebi < 1)
		return ddp_show("%llu bytes", (unsigned long long)number);
	if (mebi < 10240)
		return ddp_show(mebi < 9.95 ? "%.1f MiB" : "%.0f MiB", mebi);
	return ddp_show("%.1f GiB", mebi / 1024);
}

struct ddp_shown ddp_show_count(double number)
{
	struct ddp_shown digits = ddp_show("%.0f", number), shown;
	size_t size = strlen(digits.text), used = 0;

	if (!isfinite(number) || fabs(number) >= 1e15)
		return ddp_show("%.3g", number);
	for (size_t i = 0; i < size; i++) {
		shown.text[used++] = digits.text[i];
		if ((size - i) % 3 == 1 && i + 1 < size && digits.text[i] != '-')
			shown.text[used++] = ',';
	}
	shown.text[used] = '\0';
	return shown;
}

void ddp_list_numbers(bool (*has)(const void *set, int number), const void *set, int count,
		      char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (int number = 0; number < count; number++) {
		char range[32];
		int last = number;

		if (!has(set, number))
			continue;
		while (last + 1 < count && has(set, last + 1))
			last++;
		snprintf(range, sizeof(range), last > number ? "%s%d-%d" : "%s%d", used ? "," : "",
			 number, last);
		if (used + strlen(range) + 4 >= size) {
			snprintf(text + used, size - used, "...");
			return;
		}
		used += (size_t)snprintf(text + used, size - used, "%s", range);
		number = last;
	}
}

static bool has_cpu(const void *set, int cpu)
{
	return CPU_ISSET((size_t)cpu, (const cpu_set_t *)set);
}

void ddp_list_cpus(const cpu_set_t *set, char *text, size_t size)
{
	ddp_list_numbers(has_cpu, set, CPU_SETSIZE, text, size);
}

/* --- Line wrapping --------------------------------------------------------------------------- */

enum { PRINT_WIDTH = 79 };

int ddp_print_words(int column, int indent, const char *text, size_t length)
{
	while (length > 0) {
		const char *blank = memchr(text, ' ', length);
		int word = (int)(blank ? (size_t)(blank - text) : length);

		if (column > indent && column + 1 + word > PRINT_WIDTH) {
			putchar('\n');
			column = 0;
		}
		if (column > indent)
			column += printf(" ");
		if (column < indent)
			column += printf("%*s", indent - column, "");
		column += printf("%.*s", word, text);
		length -= (size_t)word + (blank != NULL);
		text += word + (blank != NULL);
	}
	return column;
}

/* --- Tables ---------------------------------------------------------------------------------- */

enum { TABLE_COLUMNS = 16, TABLE_GAP = 2 };

static size_t count_columns(const char *text, size_t size)
{
	size_t columns = 0;

	for (size_t i = 0; i < size; i++)
		columns += ((unsigned char)text[i] & 0xc0) != 0x80;
	return columns;
}

size_t ddp_text_columns(const char *string)
{
	return count_columns(string, strlen(string));
}

/* Add the row at [cells], or the headings if [cells] is NULL. Returns the start of the next row. */
static const char *add_row(struct ddp_text *text, const struct ddp_table_column *columns,
			   size_t count, const size_t *widths, const char *cells)
{
	size_t gap = 0;

	for (size_t i = 0; i < count; i++) {
		const char *cell = cells ? cells : columns[i].head;
		size_t size = strcspn(cell, "\t"), blanks;

		cells = cells ? cells + size + 1 : NULL;
		if (widths[i] == 0)
			continue;
		cell = size > 0 ? cell : "-";
		size = size > 0 ? size : 1;
		while (count_columns(cell, size) > widths[i])
			size--;
		blanks = widths[i] - count_columns(cell, size);
		ddp_text_add(text, "%*s%.*s", (int)(columns[i].words ? gap : gap + blanks), "",
			     (int)size, cell);
		gap = columns[i].words ? TABLE_GAP + blanks : TABLE_GAP;
	}
	ddp_text_add(text, "\n");
	return cells;
}

void ddp_text_table(struct ddp_text *text, const struct ddp_table_column *columns, size_t count,
		    const struct ddp_text *cells, size_t widest)
{
	size_t widths[TABLE_COLUMNS] = {0}, width = 0, size;
	const char *at = cells->data;

	text->failed |= cells->failed;
	if (text->failed || cells->size == 0)
		return;
	for (size_t i = 0; *at; i = (i + 1) % count, at += size + 1) {
		size = strcspn(at, "\t");
		if (widths[i] < count_columns(at, size))
			widths[i] = count_columns(at, size);
	}
	for (size_t i = 0; i < count; i++) {
		if (widths[i] > 0 && widths[i] < ddp_text_columns(columns[i].head))
			widths[i] = ddp_text_columns(columns[i].head);
		if (widths[i] > 0)
			width += widths[i] + (width > 0 ? TABLE_GAP : 0);
	}
	for (size_t i = 0; i < count; i++)
		for (; width > widest && columns[i].least > 0 && widths[i] > columns[i].least;
		     width--)
			widths[i]--;
	add_row(text, columns, count, widths, NULL);
	for (at = cells->data; *at;)
		at = add_row(text, columns, count, widths, at);
}

/* --- UTF-8 ----------------------------------------------------------------------------------- */

size_t ddp_utf8_length(const char *text, size_t size)
{
	const unsigned char *byte = (const unsigned char *)text;
	unsigned low = 0x80, high = 0xbf; /* limits of the second byte of a character */
	size_t length;

	if (size == 0)
		return 0;
	if (byte[0] < 0x80)
		return 1;
	if (byte[0] < 0xc2 || byte[0] > 0xf4)
		return 0;
	length = byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
	if (byte[0] == 0xe0)
		low = 0xa0; /* a lower byte means an overlong encoding */
	if (byte[0] == 0xed)
		high = 0x9f; /* a higher byte means a surrogate */
	if (byte[0] == 0xf0)
		low = 0x90;
	if (byte[0] == 0xf4)
		high = 0x8f; /* a higher byte means a character above U+10FFFF */
	if (size < length || byte[1] < low || byte[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((byte[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

bool ddp_utf8_valid(const char *text)
{
	size_t size = strlen(text);

	while (size > 0) {
		size_t length = ddp_utf8_length(text, size);

		if (length == 0)
			return false;
		text += length;
		size -= length;
	}
	return true;
}
