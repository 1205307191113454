/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - environment variables that configure libddp, from the table settings.def */
#ifndef DDP_BASE_SETTINGS_H
#define DDP_BASE_SETTINGS_H

#include "error.h"

enum ddp_setting {
#define DDP_SETTING(name, value, text) DDP_SET_##name,
#include "settings.def"
#undef DDP_SETTING
	DDP_SETTING_COUNT
};

/*
 * Returns the value of the first variable in the NULL-terminated list [name], ... that is set and
 * not empty. Returns NULL if there is none.
 */
const char *ddp_getenv(const char *name, ...) __attribute__((sentinel));

/*
 * Returns the value of [setting] in the environment. If it is missing or empty, returns the
 * default. Never NULL.
 */
const char *ddp_setting_get(enum ddp_setting setting);

/*
 * Parse the value of [setting] as seconds: a number above 0, with or without a fraction.
 * Returns 0, or DDP_ERR_ENVIRONMENT with the name, the value and the valid values.
 */
int ddp_setting_seconds(enum ddp_setting setting, double *seconds, struct ddp_error *error);

/*
 * Find the value of [setting] in the NULL-terminated list [words], and set [index] to its position,
 * or to -1 if the value is "".
 * Returns 0, or DDP_ERR_ENVIRONMENT with a text that lists the words.
 */
int ddp_setting_word(enum ddp_setting setting, const char *const *words, int *index,
		     struct ddp_error *error);

#endif /* DDP_BASE_SETTINGS_H */
