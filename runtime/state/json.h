/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - a strict reader for the JSON of a safetensors header
 *
 * Objects, arrays, strings and whole numbers from 0 on; no other value occurs there. It reads in
 * place: a string is decoded and ended by a zero byte where it lies, which it always has room
 * for, so nothing is allocated and nothing recurses.
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
#ifndef DDP_STATE_JSON_H
#define DDP_STATE_JSON_H

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

bool ddp_json_number(struct ddp_json *json, uint64_t *number);

/* Nothing but white space may follow. */
bool ddp_json_end(struct ddp_json *json);

#endif /* DDP_STATE_JSON_H */
