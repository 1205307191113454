/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - a strict reader for JSON
 *
 * It reads in place: a string is decoded and ended by a zero byte where it lies, which it always has room
 * for, so nothing is allocated and nothing recurses. Strings with zero bytes are refused.
 *
 * The first violation sticks: json->wrong says what, json->at where, every later call fails, and
 * the caller looks once, at the end.
 *
 *	ddp_json_open(&json, '{');
 *	for (bool first = true; ddp_json_more(&json, '}', first); first = false) {
 *		const char *key = ddp_json_key(&json);
 *		...read one value
 *	}
 */
#ifndef DDP_BASE_JSON_H
#define DDP_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddp_json {
	char *begin, *at, *end;
	const char *wrong; /* a constant text; NULL while all is well */
};

/* Read [size] bytes of [text], which is changed. */
void ddp_json_start(struct ddp_json *json, char *text, size_t size);

/* What is wrong with the text, if nothing was before. Returns false. */
bool ddp_json_fail(struct ddp_json *json, const char *wrong);

/* An object or array begins: [bracket] is '{' or '['. */
bool ddp_json_open(struct ddp_json *json, char bracket);

/* Whether another member follows; if not, [bracket], '}' or ']', was read. */
bool ddp_json_more(struct ddp_json *json, char bracket, bool first);

/* A string without zero bytes. Returns it in the text, as UTF-8, or NULL. */
char *ddp_json_string(struct ddp_json *json);

/* A string and a colon. */
char *ddp_json_key(struct ddp_json *json);

/* A whole number from 0 on; and any number. */
bool ddp_json_number(struct ddp_json *json, uint64_t *number);
bool ddp_json_real(struct ddp_json *json, double *number);

/* The byte that comes next after white space, '"' of a string; 0 at the end, or where something is wrong. */
char ddp_json_peek(struct ddp_json *json);

/* One value, whatever it is, in which objects and arrays lie in one another up to 64 deep. */
bool ddp_json_skip(struct ddp_json *json);

/* Nothing but white space may follow. */
bool ddp_json_end(struct ddp_json *json);

#endif /* DDP_BASE_JSON_H */
