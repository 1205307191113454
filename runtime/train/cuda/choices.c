/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/type.h"
#include "choices.h"

static const char *const forms[] = {"pieces", "whole"};

void choices_key(const struct conv_options *options, const char *pass, size_t batch,
		 const struct choices_place *place, char key[CHOICES_KEY])
{
	bool forward = strcmp(pass, "forward") == 0;

	snprintf(
		key, CHOICES_KEY,
		"%s %zux%dx%dx%d to %d, %dx%d, stride %d, pad %d%s%s; %s%s%s; sm_%d%d, cuDNN %zu, %zu MiB",
		pass, batch, options->height, options->width, options->in, options->out,
		options->size, options->size, options->stride, options->pad,
		forward && options->bias ? ", bias" : "", forward && options->relu ? ", ReLU" : "",
		ddp_type_name(options->type),
		options->type == DDP_F32 && options->tf32 ? " as tf32" : "",
		options->deterministic ? ", deterministic" : "", place->major, place->minor,
		place->version, place->workspace >> 20);
}

/* A number that is not negative, behind blanks; the rest of the text after it. */
static const char *read_number(const char *text, int64_t *number)
{
	char *end;
	long long value;

	text += strspn(text, " ");
	if (*text < '0' || *text > '9')
		return NULL;
	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno != 0)
		return NULL;
	*number = value;
	return end;
}

static const char *read_form(const char *text, bool *whole)
{
	for (int form = 0; form < 2; form++) {
		size_t length = strlen(forms[form]);

		if (strncmp(text, forms[form], length) == 0 && text[length] == ' ') {
			*whole = form == 1;
			return text + length;
		}
	}
	return NULL;
}

static const char *read_knob(const char *text, struct choices_knob *knob)
{
	text = read_number(text, &knob->kind);
	if (!text || *text != ':')
		return NULL;
	return read_number(text + 1, &knob->value);
}

/* To the end of the line. */
static bool parse(const char *text, struct choices_plan *plan)
{
	struct choices_plan read = {.count = 0};

	text = read_form(text, &read.whole);
	if (text)
		text = read_number(text, &read.engine);
	while (text && *text == ' ' && read.count < CHOICES_KNOBS)
		text = read_knob(text, &read.knobs[read.count++]);
	if (!text || (*text != '\n' && *text != '\0'))
		return false;
	*plan = read;
	return true;
}

/* The line after this one, or the end. */
static const char *next_line(const char *line)
{
	line += strcspn(line, "\n");
	return *line ? line + 1 : line;
}

/* What follows "NAME=KEY: " where the line has that key, else NULL. */
static const char *match(const char *line, const char *key)
{
	size_t name = strcspn(line, "=\n"), length = strlen(key);

	if (line[name] != '=' || strncmp(line + name + 1, key, length) != 0)
		return NULL;
	line += name + 1 + length;
	return strncmp(line, ": ", 2) == 0 ? line + 2 : NULL;
}

bool choices_find(const char *choices, const char *key, struct choices_plan *plan)
{
	bool found = false;

	for (const char *line = choices; line && *line; line = next_line(line)) {
		const char *text = match(line, key);

		if (text && parse(text, plan))
			found = true;
	}
	return found;
}

void choices_format(const struct choices_plan *plan, char text[CHOICES_PLAN])
{
	size_t length = (size_t)snprintf(text, CHOICES_PLAN, "%s %" PRId64, forms[plan->whole],
					 plan->engine);

	for (int i = 0; i < plan->count && length < CHOICES_PLAN; i++)
		length += (size_t)snprintf(text + length, CHOICES_PLAN - length,
					   " %" PRId64 ":%" PRId64, plan->knobs[i].kind,
					   plan->knobs[i].value);
}

bool choices_same(const struct choices_plan *a, const struct choices_plan *b)
{
	if (a->whole != b->whole || a->engine != b->engine || a->count != b->count)
		return false;
	for (int i = 0; i < a->count; i++)
		if (a->knobs[i].kind != b->knobs[i].kind || a->knobs[i].value != b->knobs[i].value)
			return false;
	return true;
}

/* Whether [text] has a line with the same words behind "=". */
static bool has_line(const char *text, const char *line)
{
	const char *from = line + strcspn(line, "=\n");
	size_t length = strcspn(from, "\n");

	for (; *text; text = next_line(text)) {
		const char *other = text + strcspn(text, "=\n");

		if (strcspn(other, "\n") == length && strncmp(other, from, length) == 0)
			return true;
	}
	return false;
}

char *choices_join(const char *old, const char *more)
{
	size_t room = strlen(old ? old : "") + strlen(more ? more : "") + 3;
	char *text = malloc(room), *end = text;

	if (!text)
		return NULL;
	end += sprintf(end, "%s", old ? old : "");
	if (end > text && end[-1] != '\n')
		end += sprintf(end, "\n");
	for (const char *line = more; line && *line; line = next_line(line)) {
		int length = (int)strcspn(line, "\n");

		if (length > 0 && !has_line(text, line))
			end += sprintf(end, "%.*s\n", length, line);
	}
	return text;
}
