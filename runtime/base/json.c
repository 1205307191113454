/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - parse JSON in place, without allocation and recursion */
#include "config.h"

#include <string.h>

#include "json.h"
#include "text.h"

#define EXPONENT_MAX 5000 /* with a larger exponent, every number is infinite or 0 */

void ddp_json_start(struct ddp_json *json, char *text, size_t size)
{
	*json = (struct ddp_json){.begin = text, .at = text, .end = text + size};
}

bool ddp_json_fail(struct ddp_json *json, const char *wrong)
{
	if (!json->wrong)
		json->wrong = wrong;
	return false;
}

static void skip_space(struct ddp_json *json)
{
	while (json->at < json->end &&
	       (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
		json->at++;
}

/* Skip white space, then read [byte] if it is the next byte. Returns whether it was. */
static bool accept(struct ddp_json *json, char byte)
{
	skip_space(json);
	if (json->wrong || json->at == json->end || *json->at != byte)
		return false;
	json->at++;
	return true;
}

bool ddp_json_open(struct ddp_json *json, char bracket)
{
	if (accept(json, bracket))
		return true;
	return ddp_json_fail(json, bracket == '{' ? "an object expected" : "an array expected");
}

bool ddp_json_more(struct ddp_json *json, char bracket, bool first)
{
	if (accept(json, bracket))
		return false;
	if (first || accept(json, ','))
		return !json->wrong;
	return ddp_json_fail(json, bracket == '}' ? "',' or '}' expected" : "',' or ']' expected");
}

/* Read four hexadecimal digits. Returns the number, or UINT32_MAX. */
static uint32_t read_hex(struct ddp_json *json)
{
	uint32_t code = 0;

	if (json->end - json->at < 4)
		return UINT32_MAX;
	for (int i = 0; i < 4; i++) {
		unsigned char byte = (unsigned char)*json->at++;
		unsigned digit = byte - '0', letter = (byte | 0x20u) - 'a';

		if (digit > 9 && letter > 5)
			return UINT32_MAX;
		code = code << 4 | (digit <= 9 ? digit : letter + 10);
	}
	return code;
}

/* Write character [code], at most 0x10ffff, to [out]. Returns the number of bytes, 1 to 4. */
static size_t put_utf8(char *out, uint32_t code)
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = (char)(0xc0 | code >> 6);
		out[1] = (char)(0x80 | (code & 0x3f));
		return 2;
	}
	if (code < 0x10000) {
		out[0] = (char)(0xe0 | code >> 12);
		out[1] = (char)(0x80 | (code >> 6 & 0x3f));
		out[2] = (char)(0x80 | (code & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | code >> 18);
	out[1] = (char)(0x80 | (code >> 12 & 0x3f));
	out[2] = (char)(0x80 | (code >> 6 & 0x3f));
	out[3] = (char)(0x80 | (code & 0x3f));
	return 4;
}

/*
 * Read the digits after "\u". Returns the number of bytes written to [out]; 0 if they are not
 * valid.
 */
static size_t read_unicode(struct ddp_json *json, char *out)
{
	uint32_t code = read_hex(json), low;

	if (code == UINT32_MAX || code == 0) {
		ddp_json_fail(json, code ? "four hexadecimal digits expected after \\u"
					 : "a zero byte in a string");
		return 0;
	}
	if (code < 0xd800 || code > 0xdfff)
		return put_utf8(out, code);
	if (code > 0xdbff || json->end - json->at < 2 || json->at[0] != '\\' || json->at[1] != 'u')
		goto error;
	json->at += 2;
	low = read_hex(json);
	if (low < 0xdc00 || low > 0xdfff)
		goto error;
	return put_utf8(out, 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff)));
error:
	ddp_json_fail(json, "half of a surrogate pair in a string");
	return 0;
}

/* Read the rest of an escape sequence. Returns as read_unicode(). */
static size_t read_escape(struct ddp_json *json, char *out)
{
	static const char letters[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
	const char *found;
	char letter;

	if (json->at == json->end) {
		ddp_json_fail(json, "a string without an end");
		return 0;
	}
	letter = *json->at++;
	if (letter == 'u')
		return read_unicode(json, out);
	found = memchr(letters, letter, sizeof(letters) - 1);
	if (!found) {
		ddp_json_fail(json, "an unknown escape in a string");
		return 0;
	}
	*out = meaning[found - letters];
	return 1;
}

/* Copy one character that is not escaped to [out]. Returns the same as read_unicode(). */
static size_t read_plain(struct ddp_json *json, char *out)
{
	size_t length = ddp_utf8_length(json->at, (size_t)(json->end - json->at));

	if (length == 0 || (unsigned char)*json->at < 0x20) {
		ddp_json_fail(json, length ? "a control character in a string"
					   : "a string that is not UTF-8");
		return 0;
	}
	memmove(out, json->at, length);
	json->at += length;
	return length;
}

char *ddp_json_string(struct ddp_json *json)
{
	char *text, *out;

	if (!accept(json, '"')) {
		ddp_json_fail(json, "a string expected");
		return NULL;
	}
	/* An escape sequence is longer than its value, so [out] never overtakes json->at. */
	text = out = json->at;
	while (json->at < json->end && *json->at != '"') {
		size_t length;

		if (*json->at == '\\') {
			json->at++;
			length = read_escape(json, out);
		} else {
			length = read_plain(json, out);
		}
		if (length == 0)
			return NULL;
		out += length;
	}
	if (json->at == json->end) {
		ddp_json_fail(json, "a string without an end");
		return NULL;
	}
	json->at++;
	*out = '\0';
	return text;
}

char *ddp_json_key(struct ddp_json *json)
{
	char *key = ddp_json_string(json);

	if (key && !accept(json, ':'))
		ddp_json_fail(json, "':' expected");
	return json->wrong ? NULL : key;
}

bool ddp_json_number(struct ddp_json *json, uint64_t *number)
{
	const char *first;

	*number = 0;
	skip_space(json);
	first = json->at;
	while (!json->wrong && json->at < json->end && *json->at >= '0' && *json->at <= '9')
		if (__builtin_mul_overflow(*number, 10u, number) ||
		    __builtin_add_overflow(*number, (uint64_t)(*json->at++ - '0'), number))
			return ddp_json_fail(json, "a number beyond 64 bits");
	if (json->at == first || (*first == '0' && json->at - first > 1))
		return ddp_json_fail(json, "a whole number expected");
	return !json->wrong;
}

/* Read digits, at least one, and append them to [value]. Returns the number of digits. */
static int read_digits(struct ddp_json *json, long double *value)
{
	int count = 0;

	for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; count++)
		*value = *value * 10 + (*json->at++ - '0');
	if (count == 0)
		ddp_json_fail(json, "a number expected");
	return count;
}

/* Like accept(), but does not skip white space. */
static bool accept_next(struct ddp_json *json, char byte)
{
	if (json->wrong || json->at == json->end || *json->at != byte)
		return false;
	json->at++;
	return true;
}

bool ddp_json_real(struct ddp_json *json, double *number)
{
	long double value = 0, exponent = 0;
	bool negative = accept(json, '-'), less;
	int shift = 0;
	char first;

	*number = 0;
	if (!negative)
		skip_space(json);
	first = json->at < json->end ? *json->at : '\0';
	if (json->wrong)
		return false;
	if (read_digits(json, &value) > 1 && first == '0')
		ddp_json_fail(json, "a number that begins with 0");
	if (accept_next(json, '.'))
		shift = -read_digits(json, &value);
	if (accept_next(json, 'e') || accept_next(json, 'E')) {
		less = accept_next(json, '-');
		if (!less)
			(void)accept_next(json, '+');
		read_digits(json, &exponent);
		if (exponent > EXPONENT_MAX)
			exponent = EXPONENT_MAX;
		shift += less ? -(int)exponent : (int)exponent;
	}
	for (; shift > 0 && value != 0; shift--)
		value *= 10;
	for (; shift < 0 && value != 0; shift++)
		value /= 10;
	*number = (double)(negative ? -value : value);
	return !json->wrong;
}

char ddp_json_peek(struct ddp_json *json)
{
	skip_space(json);
	return json->wrong || json->at == json->end ? '\0' : *json->at;
}

static void skip_scalar(struct ddp_json *json)
{
	static const char *const words[] = {"true", "false", "null"};
	char next = ddp_json_peek(json);
	double number;

	if (next == '"') {
		(void)ddp_json_string(json);
		return;
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t length = strlen(words[i]);

		if (next == words[i][0] && (size_t)(json->end - json->at) >= length &&
		    memcmp(json->at, words[i], length) == 0) {
			json->at += length;
			return;
		}
	}
	if (next != '-' && (next < '0' || next > '9'))
		ddp_json_fail(json, "a value expected");
	else
		(void)ddp_json_real(json, &number);
}

bool ddp_json_skip(struct ddp_json *json)
{
	uint64_t arrays = 0; /* one bit per open level: 1 for an array, 0 for an object */
	unsigned depth = 0;
	bool first = false;

	do {
		char next = ddp_json_peek(json);

		first = next == '{' || next == '[';
		if (!first) {
			skip_scalar(json);
		} else if (depth == 64) {
			ddp_json_fail(json, "more than 64 levels of objects and arrays");
		} else {
			json->at++;
			depth++;
			arrays = arrays << 1 | (next == '[');
		}
		while (!json->wrong && depth > 0 &&
		       !ddp_json_more(json, arrays & 1 ? ']' : '}', first)) {
			first = false;
			depth--;
			arrays >>= 1;
		}
		if (depth > 0 && !(arrays & 1))
			(void)ddp_json_key(json);
	} while (!json->wrong && depth > 0);
	return !json->wrong;
}

bool ddp_json_end(struct ddp_json *json)
{
	skip_space(json);
	if (json->at < json->end)
		ddp_json_fail(json, "more text after the end");
	return !json->wrong;
}
