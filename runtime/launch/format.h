/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - bounded strings, and parsing of numbers
 *
 * All variables, paths and messages are formatted by these functions, in the caller's buffer.
 * Truncation is always reported.
 */
#ifndef DDP_FORMAT_H
#define DDP_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DDP_MESSAGE_SIZE 1024

/* Bytes of a path with its terminating zero. */
#define DDP_PATH_SIZE 4096

/* An error message that a function returns to its caller. */
struct ddp_message {
	char text[DDP_MESSAGE_SIZE];
};

/*
 * Format [message], truncated to its size. The random end of a rendezvous directory's name is
 * replaced by "*" (base/hide.h). Always returns -1, so that a caller can write "return
 * ddp_fail(...)".
 */
int ddp_fail(struct ddp_message *message, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Format into [buf] of [size] bytes.
 * Returns 0, or -1 with [buf] empty if the text does not fit.
 */
int ddp_format(char *buf, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Copy [text] to [buf] of [size] bytes, with control characters written as "\\x1b", so that users'
 * strings can neither forge lines of a log nor control a terminal. Text that does not fit is
 * truncated.
 */
void ddp_escape(const char *text, char *buf, size_t size);

/*
 * Parse [text] as a decimal number from [lo] to [hi]: digits only, no sign, no blank.
 * Returns 0, or -1 with [value] unchanged.
 */
int ddp_parse_number(const char *text, uint64_t lo, uint64_t hi, uint64_t *value);

/* Like ddp_parse_number(), for the first [length] bytes of [text]. */
int ddp_parse_number_n(const char *text, size_t length, uint64_t lo, uint64_t hi, uint64_t *value);

/*
 * Find [name] in [env], a NULL-terminated list of NAME=VALUE (or NULL).
 * Returns its value, a pointer into [env], or NULL.
 */
const char *ddp_env_get(char *const *env, const char *name);

/* Like ddp_env_get(), but an empty value counts as missing, as in most frameworks. */
const char *ddp_env_filled(char *const *env, const char *name);

/* --- Template of --ddp-rdzv --------------------------------------------------------------- */

/*
 * %j is the job id, %s the step id, %u the user's name, %n rank 0's node. Other '%', and '?' and
 * '#', are rejected, since the path becomes part of a URL and a parser of the URL would cut the
 * path there.
 */
struct ddp_template_values {
	const char *job, *step, *user,
		*node; /* each can be NULL (unknown); a template that uses it is then an error */
};

/*
 * Check that [template] is valid. [what] names the setting in the message.
 * Returns 0, or -1 with a message.
 */
int ddp_template_check(const char *template, const char *what, struct ddp_message *message);

/*
 * Expand the placeholders of [template] into [path].
 * Returns 0, or -1 with a message.
 */
int ddp_template_expand(const char *template, const struct ddp_template_values *values, char *path,
			size_t size, struct ddp_message *message);

/*
 * Write the directories before the first placeholder of [template] to [path]: "/scratch" for
 * "/scratch/a%u/x".
 */
void ddp_template_fixed(const char *template, char *path, size_t size);

/* Returns whether [path] can be part of a file:// URL without escapes. */
bool ddp_path_fits_url(const char *path);

#endif /* DDP_FORMAT_H */
