/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - strings of bounded size, and numbers out of strings
 *
 * Everything that ends in a variable, a path or a message is put together here,
 * in a buffer of the caller's, and being cut is never silent.
 */
#ifndef DDP_CORE_FORMAT_H
#define DDP_CORE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for one message to a person. */
#define DDP_MESSAGE_SIZE 1024

/* Room for one path, its end included. */
#define DDP_PATH_SIZE 4096

/* A message of the callee's to the caller; empty where there is nothing to say. */
struct ddp_message {
	char text[DDP_MESSAGE_SIZE];
};

/*
 * Put a formatted text into [message], cut at its size; the random end of a rendezvous directory's
 * name is written "*" (base/hide.h).
 * Returns -1 always, so that a caller can return it.
 */
int ddp_fail(struct ddp_message *message, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Format into [buf] of [size] bytes.
 * Returns 0, or -1 with [buf] empty when the text does not fit whole.
 */
int ddp_format(char *buf, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Write [text] into [buf] of [size] bytes, a control character as "\\x1b": what users give must not
 * forge lines of a log, or speak to a terminal. What does not fit is cut.
 */
void ddp_escape(const char *text, char *buf, size_t size);

/*
 * Read [text] as a decimal number of [lo] to [hi]: digits alone, no sign, no blank.
 * Returns 0 with the number in [value], or -1 with [value] untouched.
 */
int ddp_parse_number(const char *text, uint64_t lo, uint64_t hi, uint64_t *value);

/*
 * As ddp_parse_number, but only the first [length] bytes of [text] count.
 * Returns 0 or -1 likewise.
 */
int ddp_parse_number_n(const char *text, size_t length, uint64_t lo, uint64_t hi, uint64_t *value);

/*
 * The value of [name] in [env], a NULL-terminated list of NAME=VALUE (or NULL).
 * Returns a pointer into [env], or NULL where it is missing.
 */
const char *ddp_env_get(char *const *env, const char *name);

/*
 * As ddp_env_get, with an empty value taken for a missing one, as frameworks do.
 * Returns a pointer into [env], or NULL.
 */
const char *ddp_env_filled(char *const *env, const char *name);

/* --- The directory that --ddp-rdzv names --------------------------------------------------- */

/*
 * %j is the job id, %s the step id, %u the user's name, %n the node of rank 0.
 * '?', '#' and any other '%' are refused: the path becomes part of a URL, and
 * readers of that URL would cut it there.
 */
struct ddp_template_values {
	const char *job, *step, *user, *node; /* NULL: not known, using it is an error */
};

/*
 * Tell whether [template] can be used. [what] names it in the message.
 * Returns 0, or -1 with a message.
 */
int ddp_template_check(const char *template, const char *what, struct ddp_message *message);

/*
 * Write [template] with its placeholders replaced into [path].
 * Returns 0, or -1 with a message.
 */
int ddp_template_expand(const char *template, const struct ddp_template_values *values, char *path,
			size_t size, struct ddp_message *message);

/* Write the directories of [template] before its first placeholder into [path]: "/scratch" of "/scratch/a%u/x". */
void ddp_template_fixed(const char *template, char *path, size_t size);

/*
 * Tell whether [path] can be part of a file:// URL as it stands.
 * Returns true or false.
 */
bool ddp_path_fits_url(const char *path);

#endif /* DDP_CORE_FORMAT_H */
