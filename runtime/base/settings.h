/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.h - what the user set in the environment; what for libddp is, from one table
 */
#ifndef DDP_BASE_SETTINGS_H
#define DDP_BASE_SETTINGS_H

#include "error.h"

enum ddp_setting {
#define DDP_SETTING(name, value, text) DDP_SET_##name,
#include "settings.def"
#undef DDP_SETTING
	DDP_SETTING_COUNT
};

struct ddp_setting_info {
	const char *name, *value, *text;
};

/* Of the variables [name] and following, up to NULL, the value of the first that is set and not empty; NULL: none is. */
const char *ddp_getenv(const char *name, ...) __attribute__((sentinel));

/* The row of [setting]: name, default, text. Constant memory. */
const struct ddp_setting_info *ddp_setting_info(enum ddp_setting setting);

/*
 * The value of [setting]: the environment's, unless missing or empty, else the default.
 * Returns a pointer into the environment or to constant memory, never NULL.
 */
const char *ddp_setting_get(enum ddp_setting setting);

/*
 * The number of seconds that [setting] says, fractions allowed, more than 0.
 * Returns 0, or DDP_ERR_ENVIRONMENT with a text that says name, value and what is possible.
 */
int ddp_setting_seconds(enum ddp_setting setting, double *seconds, struct ddp_error *error);

/*
 * Which of [words] (NULL-terminated) [setting] says; -1 for "" .
 * Returns 0, or DDP_ERR_ENVIRONMENT with a text that lists the words.
 */
int ddp_setting_word(enum ddp_setting setting, const char *const *words, int *index,
		     struct ddp_error *error);

#endif /* DDP_BASE_SETTINGS_H */
