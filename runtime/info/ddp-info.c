/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddp-info.c - print a table of all ranks and warnings, and run a self-test. With --check, check
 * the installation of the plugin
 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "info.h"
#include "node-tests.h"

/* The exit statuses that are not from ddp_exit_status(). */
enum { EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_WARNED = 3 };

#define LIMIT_DEFAULT (8u << 20)
#define LIMIT_MOST (1u << 30)

#define SECONDS_DEFAULT 60.0

struct options {
	int json, test, device, strict, check, here, preflight; /* flags of options */
	size_t most; /* largest vector of the self-test, in bytes; 0 if not given */
	const char *nodes, *partition;
	const char *plan; /* value of --preflight; NULL: not given */
	double limit;	  /* time limit of --check, in seconds; 0: not given */
};

static const char usage[] =
	"usage: srun -N2 -n4 --ddp ddp-info [OPTION...]\n"
	"       ddp-info --check [OPTION...]\n"
	"\n"
	"Print a table of all ranks and warnings about their setup; then test an all-reduce of\n"
	"vectors of several sizes, check the sums, and measure the time.\n"
	"\n"
	"  --json          print one JSON object instead\n"
	"  --no-test       do not run the all-reduce test\n"
	"  --device        run the test in GPU memory, also if ranks share a GPU\n"
	"  --max-bytes N   size of the largest vector, 4 to 1G; K, M or G may follow [8M]\n"
	"  --strict        exit with status 3 if there are warnings\n"
	"  --help, --version\n"
	"\n"
	"--check, for administrators, outside of a step: check whether the plugin is installed\n"
	"correctly on this host and, through srun, on every node that is not busy.\n"
	"\n"
	"  -w, --nodelist NODES     check only these nodes, also if they are busy\n"
	"  -p, --partition PART     check only nodes of this partition\n"
	"  --limit SECONDS          time limit for slurmctld, and for each srun, 1 to 3600 [60]\n"
	"  --here                   check only this host, without srun\n"
	"\n"
	"--preflight[=SECONDS[,full]] [FILE...]\n"
	"                           run the tests of ddp-run --preflight, with one process on each\n"
	"                           node, for at most SECONDS [30]; prints one line for each result,\n"
	"                           see ddp-info(1)\n"
	"\n"
	"Exit status: 0 no errors; 1 wrong sums or a WRONG verdict, or stdout cannot be written;\n"
	"2 invalid options; 3 warnings, with --strict; 65 and above an error of libddp, see slurm-ddp(7).\n";

/*
 * Parse a number of bytes from 4 to 1G, with an optional K, M or G. Returns 0 for any other text.
 */
static size_t parse_bytes(const char *text)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);
	unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;

	if (end == text || *text == '-' || (*end && (!shift || end[1])) || value > LIMIT_MOST)
		return 0;
	value <<= shift;
	return value >= 4 && value <= LIMIT_MOST ? (size_t)value : 0;
}

static double parse_limit(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	return end != text && !*end && value >= 1 && value <= 3600 ? value : 0;
}

/* Check that the options can be combined. Returns -1 to continue, else the exit status. */
static int verify(const struct options *options)
{
	bool sites = options->nodes || options->partition || options->limit > 0 || options->here;

	if (options->device && !options->test)
		fputs("ddp-info: --device needs the test. Remove --no-test.\n", stderr);
	else if (options->check && (options->device || options->most || !options->test))
		fputs("ddp-info: --check runs no all-reduce. Remove --device, --max-bytes and "
		      "--no-test.\n",
		      stderr);
	else if (sites && !options->check)
		fputs("ddp-info: -w, -p, --limit and --here need --check\n", stderr);
	else if (options->preflight && (options->check || options->json || options->device ||
					options->strict || options->most || !options->test))
		fputs("ddp-info: --preflight cannot be combined with other options\n", stderr);
	else if (options->here && (options->nodes || options->partition))
		fputs("ddp-info: --here checks only this machine. Remove -w and -p.\n", stderr);
	else
		return -1;
	return EXIT_USAGE;
}

/* Returns [status]. If it is 0 but stdout could not be written, returns EXIT_WRONG. */
static int finish(int status)
{
	return ddp_stdio_flush("ddp-info") < 0 && status == 0 ? EXIT_WRONG : status;
}

/* Parse the options. Returns -1 to continue, or the exit status. All ranks return the same. */
static int parse(int argc, char **argv, struct options *options)
{
	const struct option list[] = {{"json", no_argument, &options->json, true},
				      {"no-test", no_argument, &options->test, false},
				      {"device", no_argument, &options->device, true},
				      {"strict", no_argument, &options->strict, true},
				      {"check", no_argument, &options->check, true},
				      {"here", no_argument, &options->here, true},
				      {"preflight", optional_argument, NULL, 'f'},
				      {"max-bytes", required_argument, NULL, 'm'},
				      {"nodelist", required_argument, NULL, 'w'},
				      {"partition", required_argument, NULL, 'p'},
				      {"limit", required_argument, NULL, 'l'},
				      {"help", no_argument, NULL, 'h'},
				      {"version", no_argument, NULL, 'v'},
				      {NULL, 0, NULL, 0}};
	int c;

	*options = (struct options){.test = true};
	while ((c = getopt_long(argc, argv, "w:p:", list, NULL)) != -1) {
		switch (c) {
		case 0:
			break;
		case 'm':
			options->most = parse_bytes(optarg);
			if (options->most)
				break;
			fprintf(stderr, "ddp-info: --max-bytes %s is not valid. Give 4 to 1G.\n",
				optarg);
			return EXIT_USAGE;
		case 'l':
			options->limit = parse_limit(optarg);
			if (options->limit > 0)
				break;
			fprintf(stderr,
				"ddp-info: --limit %s is not valid. Give 1 to 3600 seconds.\n",
				optarg);
			return EXIT_USAGE;
		case 'w':
			options->nodes = optarg;
			break;
		case 'p':
			options->partition = optarg;
			break;
		case 'f':
			options->preflight = true;
			options->plan = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			return finish(0);
		case 'v':
			printf("ddp-info %s\n", PACKAGE_VERSION);
			return finish(0);
		default:
			fputs("try ddp-info --help\n", stderr);
			return EXIT_USAGE;
		}
	}
	if (optind == argc || options->preflight)
		return verify(options);
	fprintf(stderr, "ddp-info: unexpected argument %s\n", argv[optind]);
	return EXIT_USAGE;
}

/*
 * Become the script check-site. It is in the same installation as this program, which may have been
 * moved. Returns only if check-site cannot be run.
 */
static int check(const struct options *options)
{
	char self[PATH_MAX] = "", script[PATH_MAX + 64], limit[16];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash = n > 0 ? memrchr(self, '/', (size_t)n) : NULL;

	slash = slash ? memrchr(self, '/', (size_t)(slash - self)) : NULL;
	snprintf(script, sizeof(script), "%.*s/libexec/" PACKAGE "/check-site",
		 slash ? (int)(slash - self) : 0, self);
	if (access(script, X_OK) < 0)
		strcpy(script, DDP_LIBEXEC_DIR "/check-site");
	snprintf(limit, sizeof(limit), "%.0f",
		 ceil(options->limit > 0 ? options->limit : SECONDS_DEFAULT));
	execl(script, script, self, DDP_PLUGSTACK_DIR, limit, options->nodes ? options->nodes : "",
	      options->partition ? options->partition : "", options->here ? "1" : "0",
	      options->json ? "1" : "0", options->strict ? "1" : "0", (char *)NULL);
	fprintf(stderr, "ddp-info: cannot run %s: %s. Install slurm-ddp-tools again.\n", script,
		strerror(errno));
	return EXIT_WRONG;
}

static int report(struct ddp *ddp, const struct options *options, const struct info_card *cards,
		  const struct info_selftest *test)
{
	struct info_warnings warnings, advice;
	struct info_report facts = {ddp_world(ddp), cards, &warnings, &advice,
				    options->test ? test : NULL};
	struct ddp_text text = {.data = NULL};

	info_warn(cards, facts.world->size, &warnings);
	info_advise(cards, facts.world->size, &advice);
	if (facts.world->rank == 0) {
		(options->json ? info_report_json : info_report_table)(&facts, &text);
		fputs(text.failed ? "" : text.data, stdout);
		ddp_text_free(&text);
	}
	if (options->test && info_selftest_wrong(test) > 0)
		return EXIT_WRONG;
	return options->strict && warnings.count ? EXIT_WARNED : 0;
}

/*
 * Exchange the cards of all ranks. If GPUs are shared, exchange them again, after the first rank of
 * each shared GPU has measured the memory of a CUDA context. Only one rank measures it, because
 * measurements at the same time would disturb each other.
 */
static int gather(struct ddp *ddp, struct info_card *card, struct info_card *cards)
{
	const struct ddp_world *world = ddp_world(ddp);
	struct info_sharing sharing;
	bool any = false;
	int status = info_card_reach(card, ddp);

	if (status == 0)
		status = ddp_all_gather(ddp, card, cards, sizeof(*card));
	if (status < 0)
		return status;
	info_sharing_find(cards, world->size);
	for (int rank = 0; rank < world->size; rank++)
		any = info_sharing_at(cards, world->size, rank, &sharing) || any;
	if (!any)
		return 0;
	if (info_sharing_at(cards, world->size, world->rank, &sharing))
		info_card_context(card);
	status = ddp_all_gather(ddp, card, cards, sizeof(*card));
	if (status == 0)
		info_sharing_find(cards, world->size);
	return status;
}

/*
 * Run the self-test. If ddp_device_join() fails, print the table first, since the caller then
 * prints the error and exits.
 */
static int run_test(struct ddp *ddp, struct options *options, const struct info_card *cards,
		    struct info_selftest *test)
{
	int status = 0;

	test->device = options->device;
	if (options->device)
		status = ddp_device_join(ddp);
	if (status < 0) {
		options->test = false;
		report(ddp, options, cards, test);
		fflush(stdout);
		return status;
	}
	test->path = ddp_device_path(ddp);
	return info_selftest_run(test, ddp, options->most ? options->most : LIMIT_DEFAULT);
}

int main(int argc, char **argv)
{
	struct info_selftest test = {.count = 0};
	struct info_card card, *cards = NULL;
	struct options options;
	struct ddp *ddp;
	int status;

	ddp_stdio_open();
	if (argc > 1 && strcmp(argv[1], "--check-facts") == 0) {
		info_check_facts(argc - 2, argv + 2);
		return finish(0);
	}
	status = parse(argc, argv, &options);
	if (status >= 0)
		return status;
	if (options.preflight)
		return finish(info_preflight(options.plan, argv + optind));
	if (options.check)
		return check(&options);
	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	cards = calloc((size_t)ddp_world(ddp)->size, sizeof(*cards));
	if (!cards)
		ddp_exit(NULL);
	info_card_fill(&card, ddp_world(ddp));
	if (gather(ddp, &card, cards) < 0 ||
	    (options.test && run_test(ddp, &options, cards, &test) < 0))
		ddp_exit(ddp);
	status = report(ddp, &options, cards, &test);
	free(cards);
	ddp_destroy(ddp);
	return finish(status);
}
