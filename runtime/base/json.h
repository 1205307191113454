/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - a strict JSON parser
 *
 * Works in place: a string is decoded and zero-terminated in place, so nothing is
 * allocated, and nothing recurses. Strings that contain zero bytes are refused.
 *
 * Errors are sticky: json->wrong describes the first one, json->at is its position, every later
 * call fails, and the caller checks once, at the end.
 *
 *  ddp_json_open(&json, '{');
 *  for (bool first = true; ddp_json_more(&json, '}', first); first = false) {
 *      const char *key = ddp_json_key(&json);
 *      ...read one value
 *  }
 */
#ifndef DDP_BASE_JSON_H
#define DDP_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddp_json {
	char *begin, *at, *end;
	const char *wrong; /* constant text; NULL: no error */
};

/* Start to parse [size] bytes of [text], which is modified. */
void ddp_json_start(struct ddp_json *json, char *text, size_t size);

/* Record an error, unless there is one already. Returns false. */
bool ddp_json_fail(struct ddp_json *json, const char *wrong);

/* Read the start of an object or array, '{' or '[' in [bracket]. */
bool ddp_json_open(struct ddp_json *json, char bracket);

/* Whether another member follows; if not, [bracket], '}' or ']', was read. */
bool ddp_json_more(struct ddp_json *json, char bracket, bool first);

/* Read a string. Returns it, in the text, as UTF-8, or NULL. */
char *ddp_json_string(struct ddp_json *json);

/* Read a string and a colon. */
char *ddp_json_key(struct ddp_json *json);

/* Read an integer of at least 0; read any number. */
bool ddp_json_number(struct ddp_json *json, uint64_t *number);
bool ddp_json_real(struct ddp_json *json, double *number);

/* Returns the next byte after white space; 0 at the end or after an error. */
char ddp_json_peek(struct ddp_json *json);

/* Skip one value of any type, with objects and arrays nested at most 64 deep. */
bool ddp_json_skip(struct ddp_json *json);

/* Check that only white space follows. */
bool ddp_json_end(struct ddp_json *json);

#endif /* DDP_BASE_JSON_H */
