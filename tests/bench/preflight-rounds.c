/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight-rounds.c - simulates the pair tests of ddp-run --preflight, to choose the number of
 * rounds
 *
 *     preflight-rounds [NODES [CLUSTERS]]
 *
 * In each cluster 10 of 1,000 nodes are slow: their links have half of the others' rate. The rate
 * of a pair is that of its slower node, with log-normal noise. Some pairs are disturbed for a
 * moment, for example by another job, and have half of that rate. Prints two averages per cluster:
 * how many nodes are reported as slow but are not, and how many are slow but are not reported.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/xalloc.h"
#include "info/node-tests.h"
#include "run/preflight-verdict.h"

#define SLOW 0.8 /* default of ddp-run --preflight-slow */

/*
 * Returns a number in (0, 1), uniformly distributed, from an xorshift generator, so that a run can
 * be repeated.
 */
static double uniform(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return ((double)(state >> 11) + 0.5) * 0x1p-53;
}

static double normal(void)
{
	return sqrt(-2 * log(uniform())) * cos(2 * 3.14159265358979 * uniform());
}

struct setting {
	double noise;	  /* standard deviation of the logarithm of a rate */
	double disturbed; /* fraction of the pairs */
};

struct found {
	double wrong, missed;
};

static struct found simulate(int nodes, int rounds, const struct setting *setting)
{
	int slow_nodes = nodes / 100 > 0 ? nodes / 100 : 1;
	size_t count = 0, most = (size_t)nodes * (size_t)rounds / 2 + 1;
	struct preflight_row *rows = ddp_xcalloc(most, sizeof(*rows), "rows");
	enum preflight_verdict *verdicts =
		ddp_xcalloc((size_t)nodes, sizeof(*verdicts), "verdicts");
	bool *slow = ddp_xcalloc((size_t)nodes, sizeof(*slow), "nodes");
	struct found found = {0, 0};

	for (int i = 0; i < slow_nodes;) {
		int node = (int)(uniform() * nodes);

		i += !slow[node];
		slow[node] = true;
	}
	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < nodes; i++) {
			int partner = info_preflight_partner(nodes, round, i);
			double rate = exp(setting->noise * normal());

			if (partner < i)
				continue;
			rate *= slow[i] || slow[partner] ? 0.5 : 1;
			rate *= uniform() < setting->disturbed ? 0.5 : 1;
			rows[count++] = (struct preflight_row){.node = i,
							       .partner = partner,
							       .test = "pair",
							       .is_rate = true,
							       .value = rate};
		}
	}
	preflight_judge(rows, count, nodes, SLOW, verdicts);
	for (int i = 0; i < nodes; i++) {
		found.wrong += !slow[i] && verdicts[i] != PREFLIGHT_OK;
		found.missed += slow[i] && verdicts[i] == PREFLIGHT_OK;
	}
	free(rows);
	free(verdicts);
	free(slow);
	return found;
}

int main(int argc, char **argv)
{
	static const struct setting settings[] = {
		{0.05, 0.01}, {0.10, 0.01}, {0.10, 0.05}, {0.15, 0.05}};
	static const int rounds[] = {1, 2, 3, 4, 6, 8, 11, 16, 32};
	int nodes = argc > 1 ? atoi(argv[1]) : 1000, clusters = argc > 2 ? atoi(argv[2]) : 100;

	printf("%d nodes, %d of them slow, %d clusters: nodes called slow that are not / slow nodes that are missed\n",
	       nodes, nodes / 100 > 0 ? nodes / 100 : 1, clusters);
	printf("%8s", "rounds");
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		printf("   noise %2.0f %%, %2.0f %% disturbed", 100 * settings[i].noise,
		       100 * settings[i].disturbed);
	putchar('\n');
	for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]) && rounds[i] < nodes; i++) {
		printf("%8d", rounds[i]);
		for (size_t j = 0; j < sizeof(settings) / sizeof(settings[0]); j++) {
			struct found sum = {0, 0};

			for (int cluster = 0; cluster < clusters; cluster++) {
				struct found found = simulate(nodes, rounds[i], &settings[j]);

				sum.wrong += found.wrong / clusters;
				sum.missed += found.missed / clusters;
			}
			printf("%16.2f / %8.2f", sum.wrong, sum.missed);
		}
		putchar('\n');
		fflush(stdout);
	}
	return 0;
}
