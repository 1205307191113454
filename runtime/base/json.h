/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - a strict JSON parser
 *
 * The parser works in place: it decodes and zero-terminates each string within the text. So it
 * allocates nothing, and it does not recurse. It refuses strings that contain zero bytes.
 *
 * Errors are sticky. json->wrong describes the first error, and json->at is the error's position.
 * Every later call fails, so the caller needs only one check, at the end.
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
	const char *wrong; /* constant text of the first error, or NULL if there was no error */
};

/* Start to parse [size] bytes of [text]. The parser modifies the text. */
void ddp_json_start(struct ddp_json *json, char *text, size_t size);

/* Set the error [wrong], unless there is an earlier one. Returns false. */
bool ddp_json_fail(struct ddp_json *json, const char *wrong);

/* Read the bracket that starts an object or array: [bracket] is '{' or '['. */
bool ddp_json_open(struct ddp_json *json, char bracket);

/*
 * Returns whether the object or array has another member. [first] must be true before the first
 * member, and false later. If there is no other member, reads the closing [bracket], '}' or ']'.
 */
bool ddp_json_more(struct ddp_json *json, char bracket, bool first);

/* Read a string. Returns it as UTF-8, stored in the parsed text, or NULL after an error. */
char *ddp_json_string(struct ddp_json *json);

/* Read a string and the colon after it. */
char *ddp_json_key(struct ddp_json *json);

/* Read a number. ddp_json_number() accepts integers of at least 0, ddp_json_real() any number. */
bool ddp_json_number(struct ddp_json *json, uint64_t *number);
bool ddp_json_real(struct ddp_json *json, double *number);

/* Skip white space. Returns the next byte without reading it, or 0 at the end or after an error. */
char ddp_json_peek(struct ddp_json *json);

/* Skip one value of any type. Objects and arrays in it may be nested at most 64 deep. */
bool ddp_json_skip(struct ddp_json *json);

/* Check that only white space is left to parse. */
bool ddp_json_end(struct ddp_json *json);

#endif /* DDP_BASE_JSON_H */
