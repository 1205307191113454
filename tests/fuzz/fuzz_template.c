/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_template.c - templates of --ddp-rdzv. The first line of the input is the template, the
 * second line is the user's name
 */
#include "config.h"

#include "format.h"
#include "fuzz.h"

/* Computes the expected length of the path, independently of the code that is tested. */
static size_t expected_length(const char *template, const struct ddp_template_values *values)
{
	size_t n = 0;

	for (const char *p = template; *p; p++) {
		if (*p != '%') {
			n++;
			continue;
		}
		p++;
		n += strlen(*p == 'j'	? values->job
			    : *p == 's' ? values->step
			    : *p == 'u' ? values->user
					: values->node);
	}
	return n;
}

static void check_good(const char *template, const struct ddp_template_values *values)
{
	struct ddp_message message = {""};
	static char path[3 * DDP_PATH_SIZE];
	size_t n = expected_length(template, values);

	HOLDS(*template && strlen(template) < DDP_PATH_SIZE / 2);
	HOLDS(!strpbrk(template, "?#\n\t\x7f"));
	if (n + 1 >= sizeof(path)) {
		HOLDS(n < sizeof(path) ||
		      ddp_template_expand(template, values, path, sizeof(path), &message) < 0);
		return;
	}
	memset(path, 'x', sizeof(path));
	HOLDS(ddp_template_expand(template, values, path, n + 1, &message) == 0);
	HOLDS(strlen(path) == n && path[n + 1] == 'x');
	HOLDS(message.text[0] == '\0');
	if (!strchr(template, '%'))
		HOLDS(strcmp(path, template) == 0);
	if (ddp_path_fits_url(values->user))
		HOLDS(ddp_path_fits_url(path));
	HOLDS(ddp_template_expand(template, values, path, n, &message) < 0);
	HOLDS(message.text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ddp_template_values values = {.job = "4294967295", .step = "0", .node = "n-1.ib"};
	const struct ddp_template_values nothing = {.job = NULL};
	char *template = fuzz_text(data, size);
	char *user = fuzz_next_line(template);
	struct ddp_message message = {""};
	char path[256];

	values.user = user ? user : "ann";
	if (ddp_template_check(template, "--ddp-rdzv", &message) == 0) {
		HOLDS(message.text[0] == '\0');
		check_good(template, &values);
	} else {
		HOLDS(strncmp(message.text, "--ddp-rdzv", 10) == 0);
		HOLDS(strlen(message.text) < 400);
	}
	/*
	 * Without the check, or with unknown values, the expansion may fail, but must not cause
	 * memory errors.
	 */
	(void)ddp_template_expand(template, &values, path, sizeof(path), &message);
	if (ddp_template_expand(template, &nothing, path, sizeof(path), &message) == 0)
		HOLDS(!strchr(template, '%'));
	free(template);
	return 0;
}
