/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_json.c - the JSON reader. Each letter of the input's first line is a call; the other lines
 * are the JSON text
 */
#include "config.h"

#include "base/json.h"
#include "base/text.h"
#include "fuzz.h"

/* Fails unless [string] and its end are within the text that was read. */
static void check_string(const struct ddp_json *json, const char *string)
{
	HOLDS(!json->wrong);
	HOLDS(string >= json->begin && string + strlen(string) < json->at);
	HOLDS(ddp_utf8_valid(string));
}

/* Makes one call of the reader. Returns whether it succeeded. */
static bool ask(struct ddp_json *json, char letter)
{
	const char *string;
	uint64_t number;
	double real;

	switch (letter) {
	case '{':
	case '[':
		return ddp_json_open(json, letter);
	case '}':
	case ']':
		return ddp_json_more(json, letter, false) || !json->wrong;
	case 'o':
	case 'a':
		return ddp_json_more(json, letter == 'o' ? '}' : ']', true) || !json->wrong;
	case 'k':
	case 's':
		string = letter == 'k' ? ddp_json_key(json) : ddp_json_string(json);
		if (string)
			check_string(json, string);
		return string != NULL;
	case 'n':
		return ddp_json_number(json, &number);
	case 'r':
		return ddp_json_real(json, &real);
	case 'v':
		return ddp_json_skip(json);
	default:
		return ddp_json_end(json);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *line = memchr(data, '\n', size);
	size_t questions = line ? (size_t)(line - data) : 0;
	size_t length = line ? size - questions - 1 : 0;
	struct ddp_json json;
	char *text;

	if (!line)
		return 0;
	/* in a block that has exactly the text's size, so that a read beyond the end is detected */
	text = malloc(length ? length : 1);
	HOLDS(text);
	memcpy(text, line + 1, length);
	ddp_json_start(&json, text, length);
	for (size_t i = 0; i < questions; i++) {
		const char *at = json.at, *wrong = json.wrong;
		bool answered = ask(&json, (char)data[i]);

		HOLDS(json.at >= at && json.at <= json.end);
		HOLDS(answered == !json.wrong);
		HOLDS(!wrong || json.wrong == wrong);
	}
	free(text);
	return 0;
}
