/* SPDX-License-Identifier: Apache-2.0 */
/* ddp-train.c - main program: options, launch, training */
#include "config.h"

#include <signal.h>
#include <stdio.h>

#include "base/bounded.h"
#include "base/file.h"
#include "launch.h"
#include "run.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

/*
 * Trains as a rank. The trainer handles SIGTERM and other signals itself, to stop at the end of a
 * step, so libddp must not handle them.
 */
static int train(const struct options *options)
{
	struct ddp_options settings = DDP_OPTIONS_INIT;
	struct ddp *ddp;
	bool failed;
	int status;

	stop_watch();
	settings.no_signals = true;
	if (ddp_init(&ddp, &settings) < 0)
		ddp_exit(ddp);
	status = trainer_run(ddp, options);
	failed = status > TRAINER_DIVERGED;
	fflush(stdout);
	/*
	 * Under launch_ranks(), skip libddp's failure summary: it would name failure records that
	 * the launcher removes.
	 */
	if (!failed || !launch_is_launched())
		ddp_destroy(ddp);
	/* Exit without destructors: another thread can hang in a call to the driver. */
	if (failed)
		ddp_flush_and_exit(status);
	return status;
}

/* Warns of too many ranks. Called before the first step, which can then take minutes. */
static void check_ranks(int ranks)
{
	int cpus = launch_cpus();

	if (ranks > cpus)
		options_warn(
			"%d ranks share %d CPU%s, so steps take longer than with a rank for each "
			"CPU",
			ranks, cpus, cpus == 1 ? "" : "s");
}

int main(int argc, char **argv)
{
	struct options options;
	enum options_verdict verdict;
	int count;

	ddp_stdio_open();
	verdict = options_parse(&options, argc, argv);
	if (verdict == OPTIONS_DONE)
		return ddp_stdio_flush("ddp-train") < 0 ? EXIT_FAILED : 0;
	if (verdict != OPTIONS_RUN)
		return EXIT_USAGE;
	/* Continue if the reader of the log ends. */
	signal(SIGPIPE, SIG_IGN);
	/* Let a write beyond "ulimit -f" fail with EFBIG, so that the message names the file. */
	signal(SIGXFSZ, SIG_IGN);
	if (option_flag(&options, OPTION_SELF_TEST))
		return self_test(options.net);
	count = launch_count(&options);
	if (count < 0)
		return EXIT_USAGE;
	check_ranks(count);
	if (count > 1)
		return launch_ranks(count, launch_gpus(&options), !options.given[OPTION_RANKS],
				    argv);
	return train(&options);
}
