/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - format strings into buffers of limited size, and parse numbers
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

/* Number of bytes of a path, including the terminating zero. */
#define DDP_PATH_SIZE 4096

/* An error message that a function returns to its caller. */
struct ddp_message {
	char text[DDP_MESSAGE_SIZE];
};

/*
 * Format a message into [message], truncated to its size. The random end of a rendezvous
 * directory's name is replaced by "*"; see base/hide.h. Always returns -1, so that a caller can
 * write "return ddp_fail(...)".
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
 * Copy [text] to [buf] of [size] bytes, with control characters written as escapes such as "\\x1b".
 * Without escapes, users' strings could forge lines of a log or control a terminal. Text that does
 * not fit is truncated.
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
 * Find [name] in [env], a NULL-terminated list of strings NAME=VALUE. [env] can be NULL.
 * Returns the value, which is part of [env], or NULL if there is none.
 */
const char *ddp_env_get(char *const *env, const char *name);

/* Like ddp_env_get(), but an empty value counts as missing, as in most frameworks. */
const char *ddp_env_filled(char *const *env, const char *name);

/* --- Template of --ddp-rdzv --------------------------------------------------------------- */

/*
 * Values of placeholders: %j is the job id, %s the step id, %u the user's name, and %n the node of
 * rank 0. Any other '%' is rejected, and so are '?' and '#', because the path becomes part of a
 * URL, and a parser of the URL would cut the path there.
 */
struct ddp_template_values {
	const char *job, *step, *user,
		*node; /* NULL if unknown; it is then an error if a template uses the value */
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
 * Write to [path] the directories before the first placeholder of [template]. For "/scratch/a%u/x",
 * this is "/scratch".
 */
void ddp_template_fixed(const char *template, char *path, size_t size);

/* Returns whether [path] can be part of a file:// URL without escapes. */
bool ddp_path_fits_url(const char *path);

#endif /* DDP_FORMAT_H */
