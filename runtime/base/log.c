/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - parse DDP_LOG, and write log lines to stderr */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hide.h"
#include "log.h"
#include "settings.h"

enum { LINE_SIZE = 2048 };

int ddp_log_open(struct ddp_log *log, struct ddp_error *error)
{
	static const char *const words[] = {"error", "warning", "info", "debug"};
	const char *text = ddp_setting_get(DDP_SET_DDP_LOG);
	const char *word, *colon;
	size_t length;

	*log = (struct ddp_log){.level = DDP_LEVEL_WARNING, .prefix = "ddp: ", .rank = -1};
	word = *text == '+' ? text + 1 : text;
	colon = strchr(word, ':');
	length = colon ? (size_t)(colon - word) : strlen(word);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strlen(words[i]) != length || strncmp(words[i], word, length) != 0)
			continue;
		log->level = (enum ddp_level)i;
		log->all_ranks = *text == '+';
		if (colon)
			snprintf(log->subsystems, sizeof(log->subsystems), ",%s,", colon + 1);
		return 0;
	}
	return ddp_error_set(error, DDP_ERR_ENVIRONMENT,
			     "DDP_LOG=%s is not valid. Use error, warning, info or debug, with + "
			     "before it for all ranks, and :subsystem,... after it for these "
			     "subsystems only.",
			     text);
}

void ddp_log_name(struct ddp_log *log, int rank, const char *host)
{
	log->rank = rank;
	snprintf(log->prefix, sizeof(log->prefix), "ddp[%d@%.64s]: ", rank, host);
}

bool ddp_log_wants(const struct ddp_log *log, enum ddp_level level, const char *subsystem)
{
	char word[64];

	if (level == DDP_LEVEL_ERROR)
		return true;
	if (level > log->level || (log->rank > 0 && !log->all_ranks))
		return false;
	if (!*log->subsystems)
		return true;
	snprintf(word, sizeof(word), ",%s,", subsystem);
	return strstr(log->subsystems, word) != NULL;
}

/*
 * Returns whether to clear the line of the terminal, which may contain a progress bar. Not for
 * errors: ddp-run parses them, also with srun --pty, so they begin without an escape sequence.
 */
static bool must_clear(enum ddp_level level)
{
	const char *term = getenv("TERM");

	return level != DDP_LEVEL_ERROR && isatty(STDERR_FILENO) && term &&
	       strcmp(term, "dumb") != 0;
}

void ddp_log_vprint(const struct ddp_log *log, enum ddp_level level, const char *subsystem,
		    const char *format, va_list arguments)
{
	char line[LINE_SIZE];
	size_t length;

	if (!ddp_log_wants(log, level, subsystem))
		return;
	length = (size_t)snprintf(line, sizeof(line), "%s%s%s", must_clear(level) ? "\r\033[K" : "",
				  log->prefix, level == DDP_LEVEL_WARNING ? "warning: " : "");
	vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
	ddp_hide(line);
	length = strlen(line);
	line[length++] = '\n';
	if (write(STDERR_FILENO, line, length) < 0)
		return; /* if printing fails, the error cannot be reported */
}

void ddp_log_print(const struct ddp_log *log, enum ddp_level level, const char *subsystem,
		   const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	ddp_log_vprint(log, level, subsystem, format, arguments);
	va_end(arguments);
}
