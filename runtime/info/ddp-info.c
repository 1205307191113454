/* SPDX-License-Identifier: Apache-2.0 */
/* ddp-info.c - every rank in one table, what looks wrong, and a self-test; or is the plugin installed well? */
#include "config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "info.h"
#include "node-tests.h"
#include "site.h"

/* Exit statuses besides those of ddp_exit_status(). */
enum { EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_WARNED = 3 };

#define LIMIT_DEFAULT (8u << 20)
#define LIMIT_MOST (1u << 30)

#define SECONDS_DEFAULT 60.0

struct options {
	int json, test, device, strict, check, here, preflight; /* as getopt_long() sets flags */
	size_t most;						/* bytes, 0: not given */
	const char *nodes, *partition, *node_config;
	double limit; /* seconds, 0: not given */
};

static const char usage[] =
	"usage: srun -N2 -n4 --ddp ddp-info [OPTION...]\n"
	"       ddp-info --check [OPTION...]\n"
	"\n"
	"One table of all ranks, what looks wrong with them, and an all-reduce of every size,\n"
	"verified and timed.\n"
	"\n"
	"  --json          the same for programs, as one JSON object\n"
	"  --no-test       the table and the warnings alone\n"
	"  --device        the test in memory of GPUs, also if ranks share one\n"
	"  --max-bytes N   largest all-reduce of the test, 4 to 1G (K, M, G may follow); 8M\n"
	"  --strict        warnings make the exit status 3\n"
	"  --help, --version\n"
	"\n"
	"--check, for administrators, outside of a step: is the plugin installed as it should be,\n"
	"here and, by srun, on every node that is not busy? One verdict a line.\n"
	"\n"
	"  -w, --nodelist NODES     these nodes\n"
	"  -p, --partition PART     those of this partition\n"
	"  --limit SECONDS          for slurmctld, and for the nodes, to answer, 1 to 3600; 60\n"
	"  --here                   this host alone, without srun\n"
	"\n"
	"--preflight [FILE...]      one process on each node: the tests of ddp-run --preflight, one\n"
	"                           result a line; see ddp-info(1)\n"
	"\n"
	"Exit status: 0 all well; 1 a sum or a verdict was wrong, or stdout cannot be written;\n"
	"2 usage; 3 warnings, with --strict; from 65 on an error of libddp, see ddp(7).\n";

/* 4 to 1G, with K, M or G. Returns 0 for anything else. */
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

/* Options that do not go together. Returns -1 to go on, else the exit status. */
static int verify(const struct options *options)
{
	bool sites = options->nodes || options->partition || options->limit > 0 || options->here;

	if (options->device && !options->test)
		fputs("ddp-info: --device is where the test runs: leave out --no-test\n", stderr);
	else if (options->check && (options->device || options->most || !options->test))
		fputs("ddp-info: --check makes no test: leave out --device, --max-bytes and --no-test\n",
		      stderr);
	else if (sites && !options->check)
		fputs("ddp-info: -w, -p, --limit and --here are for --check: give it too\n",
		      stderr);
	else if (options->preflight && (options->check || options->json || options->device ||
					options->strict || options->most || !options->test))
		fputs("ddp-info: --preflight goes with no other option: give files alone\n",
		      stderr);
	else if (options->here && (options->nodes || options->partition))
		fputs("ddp-info: --here asks no nodes: leave out -w and -p\n", stderr);
	else
		return -1;
	return EXIT_USAGE;
}

/* The exit status [status], or EXIT_WRONG if it is 0 and what was printed could not be written. */
static int finish(int status)
{
	return ddp_stdio_flush("ddp-info") < 0 && status == 0 ? EXIT_WRONG : status;
}

/* Returns -1 to go on, else the exit status. Every rank reads the same arguments. */
static int parse(int argc, char **argv, struct options *options)
{
	const struct option list[] = {{"json", no_argument, &options->json, true},
				      {"no-test", no_argument, &options->test, false},
				      {"device", no_argument, &options->device, true},
				      {"strict", no_argument, &options->strict, true},
				      {"check", no_argument, &options->check, true},
				      {"here", no_argument, &options->here, true},
				      {"preflight", no_argument, &options->preflight, true},
				      {"max-bytes", required_argument, NULL, 'm'},
				      {"nodelist", required_argument, NULL, 'w'},
				      {"partition", required_argument, NULL, 'p'},
				      {"limit", required_argument, NULL, 'l'},
				      {"check-node", required_argument, NULL, 'n'},
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
			fprintf(stderr, "ddp-info: --max-bytes %s: give 4 to 1G\n", optarg);
			return EXIT_USAGE;
		case 'l':
			options->limit = parse_limit(optarg);
			if (options->limit > 0)
				break;
			fprintf(stderr, "ddp-info: --limit %s: give 1 to 3600 seconds\n", optarg);
			return EXIT_USAGE;
		case 'w':
			options->nodes = optarg;
			break;
		case 'p':
			options->partition = optarg;
			break;
		case 'n':
			options->node_config = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			return finish(0);
		case 'v':
			printf("ddp-info %s\n", PACKAGE_VERSION);
			return finish(0);
		default:
			fputs("ddp-info --help lists the options\n", stderr);
			return EXIT_USAGE;
		}
	}
	if (optind == argc || options->preflight)
		return verify(options);
	fprintf(stderr, "ddp-info: %s: no argument is expected\n", argv[optind]);
	return EXIT_USAGE;
}

/* --check, which is no rank of anything. */
static int check(const struct options *options)
{
	const struct site_options site = {.nodes = options->nodes,
					  .partition = options->partition,
					  .limit = options->limit > 0 ? options->limit
								      : SECONDS_DEFAULT,
					  .here = options->here,
					  .json = options->json};
	enum site_level worst = site_check(&site);

	if (worst == SITE_WRONG)
		return EXIT_WRONG;
	return options->strict && worst == SITE_WARNING ? EXIT_WARNED : 0;
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
 * Tell all ranks everything. What a context takes is learned by one rank for each GPU that is shared, so
 * that they do not count each other's.
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

/* Where GPUs cannot be joined the table says what there is, before the error says why. */
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
	status = parse(argc, argv, &options);
	if (status >= 0)
		return status;
	if (options.node_config) {
		site_check_node(options.node_config);
		return 0;
	}
	if (options.preflight)
		return finish(info_preflight(argv + optind));
	if (options.check)
		return finish(check(&options));
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
