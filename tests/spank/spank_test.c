/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "spank_test.h"

extern char **environ;

static char scratch[256];
static char **original;

static void setup(void)
{
	static char *const bare[] = {"PATH=/usr/bin:/bin", NULL};

	original = fake_env_copy(environ);
	fake_process_end(fake_process(S_CTX_ERROR, "", NULL)); /* reads DDP_PLUGIN */
	fake_env_become(bare);
	fake_forget();
	memset(&fake_slurmctld, 0, sizeof(fake_slurmctld));
	unit_directory(scratch, sizeof(scratch));
	ck_assert_int_eq(chdir(scratch), 0);
}

static void teardown(void)
{
	ck_assert_int_eq(chdir("/"), 0);
	unit_remove(scratch);
	fake_env_become(original);
	fake_env_free(original);
	ck_assert_msg(fake_slurmctld.answers == 0, "%u answers of slurmctld are not given back",
		      fake_slurmctld.answers);
	fake_forget();
}

void spank_use(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
}

void expect_var(const char *row, const struct fake_step *step, uint32_t rank, const char *name,
		const char *want)
{
	const char *got = fake_var(step, rank, name);

	ck_assert_msg(got ? want && strcmp(got, want) == 0 : !want,
		      "%s: rank %u has %s \"%s\", want \"%s\"%s", row, rank, name,
		      got ? got : "(none)", want ? want : "(none)", fake_transcript());
}

void expect_vars(const char *row, const struct fake_step *step, uint32_t rank, const char *wants)
{
	char *copy = strdup(wants ? wants : ""), *rest = copy, *word;

	while ((word = strsep(&rest, " "))) {
		char *equals = strchr(word, '=');

		if (*word == '-') {
			expect_var(row, step, rank, word + 1, NULL);
		} else if (equals) {
			*equals = '\0';
			expect_var(row, step, rank, word, equals + 1);
		}
	}
	free(copy);
}

void expect_messages(const char *row, int levels, const char *text, unsigned times)
{
	ck_assert_msg(fake_said(levels, text) == times, "%s: \"%s\" was not printed %u times:%s",
		      row, text, times, fake_transcript());
}

void expect_pieces(const char *row, int levels, const char *pieces)
{
	char *copy = strdup(pieces), *rest = copy, *piece;

	while ((piece = strsep(&rest, "|")))
		ck_assert_msg(fake_said(levels, piece), "%s: no message contains \"%s\":%s", row,
			      piece, fake_transcript());
	free(copy);
}

void expect_silence(const char *row)
{
	ck_assert_msg(!fake_said(FAKE_ANY, ""), "%s: printed a message:%s", row, fake_transcript());
}

void expect_refused(const char *row, const struct fake_step *step, const char *why)
{
	for (uint32_t r = 0; r < fake_ranks(step); r++) {
		const char *error = fake_var(step, r, "DDP_ERROR");

		ck_assert_msg(step->result[r] == -1, "%s: rank %u was not refused%s", row, r,
			      fake_transcript());
		ck_assert_msg(error && strstr(error, why),
			      "%s: rank %u has DDP_ERROR \"%s\", want \"%s\"", row, r,
			      error ? error : "(none)", why);
		expect_vars(
			row, step, r,
			"-RANK -WORLD_SIZE -LOCAL_RANK -MASTER_ADDR -MASTER_PORT -DDP_RANK -DDP_SIZE "
			"-DDP_RENDEZVOUS -DDP_INIT_METHOD -DDP_INIT_FILE -SLURM_DDP_STEP");
	}
}

void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	ck_assert_msg(file && fputs(text, file) >= 0 && fclose(file) == 0, "cannot write %s", path);
}
