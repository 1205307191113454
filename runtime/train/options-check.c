/* SPDX-License-Identifier: Apache-2.0 */
/* options-check.c - which options go with which */
#include "config.h"

#include <string.h>

#include "options-table.h"

/* [option] was given, and what it belongs to is not so. */
static bool check_owner(const struct options *options, enum option option, enum option owner,
			const char *word)
{
	if (!options->given[option] || strcmp(options->values[owner], word) == 0)
		return true;
	return options_complain("--%s is of --%s %s, and this is %s", option_rows[option].name,
				option_rows[owner].name, word, options->values[owner]);
}

static bool check_checkpoint(const struct options *options)
{
	static const enum option parts[] = {OPTION_CHECKPOINT_STEPS, OPTION_KEEP, OPTION_FRESH,
					    OPTION_MARGIN};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (options->given[parts[i]] && !options->given[OPTION_CHECKPOINT])
			return options_complain("--%s needs --checkpoint DIR",
						option_rows[parts[i]].name);
	if (!options->given[OPTION_EVALUATE])
		return true;
	if (options->given[OPTION_INIT] == options->given[OPTION_CHECKPOINT])
		return options_complain("--evaluate: what? Give --init FILE or --checkpoint DIR%s",
					options->given[OPTION_INIT] ? ", not both" : "");
	for (enum option i = OPTION_FRESH; i <= OPTION_SAVE_MODEL; i++)
		if ((i == OPTION_FRESH || i == OPTION_SAVE_MODEL) && options->given[i])
			return options_complain("--evaluate trains nothing: --%s cannot go with it",
						option_rows[i].name);
	return true;
}

/* A file that two options write, or that one would read after another has written it. */
static bool check_files(const struct options *options)
{
	static const enum option files[] = {OPTION_REPORT, OPTION_LOG_JSON, OPTION_SAVE_MODEL,
					    OPTION_INIT};
	const size_t count = sizeof(files) / sizeof(files[0]);

	for (size_t i = 0; i < count; i++)
		for (size_t j = i + 1; j < count; j++) {
			const char *file = options->values[files[i]];

			/* A model may take the place of the one that it began with. */
			if (files[i] != OPTION_SAVE_MODEL && *file && strcmp(file, "-") != 0 &&
			    strcmp(file, options->values[files[j]]) == 0)
				return options_complain(
					"--%s and --%s are both %s: one would overwrite the other",
					option_rows[files[i]].name, option_rows[files[j]].name,
					file);
		}
	return true;
}

bool options_check(const struct options *options)
{
	if (options->given[OPTION_BATCH] && option_count(options, OPTION_GLOBAL_BATCH) > 0)
		return options_complain(
			"--batch %s and --global-batch %s: give one of them; --batch is of "
			"each rank, --global-batch of all together",
			option_text(options, OPTION_BATCH),
			option_text(options, OPTION_GLOBAL_BATCH));
	if (options->given[OPTION_SAMPLES] && options->given[OPTION_DATA])
		return options_complain("--samples is of drawn images, and --data %s has files",
					option_text(options, OPTION_DATA));
	return check_owner(options, OPTION_MOMENTUM, OPTION_OPTIMIZER, "sgd") &&
	       check_owner(options, OPTION_NESTEROV, OPTION_OPTIMIZER, "sgd") &&
	       check_owner(options, OPTION_GAMMA, OPTION_SCHEDULE, "step") &&
	       check_owner(options, OPTION_STEP_SIZE, OPTION_SCHEDULE, "step") &&
	       check_checkpoint(options) && check_files(options);
}
