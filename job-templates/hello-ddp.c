/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hello-ddp.c - a complete data-parallel training on one page
 *
 *	cc -o hello-ddp hello-ddp.c $(pkg-config --cflags --libs ddp)
 *	srun -N2 -n4 --ddp ./hello-ddp
 *
 * It fits y = 3x + 1 to noisy points. Each rank draws its part of the points, the gradients are
 * averaged, and all ranks take the same step. A second run in the same directory, with any
 * number of ranks, continues from the checkpoint.
 */
#include <stdio.h>

#include <ddp.h>

enum { SAMPLES = 4096, BATCH = 32, EPOCHS = 4 };

/* The data set: sample [i] is a function of i, so no file is needed. */
static void sample(uint64_t i, float *x, float *y)
{
	uint32_t bits[4];

	ddp_random(1, 0, i, 0, 0, bits);
	*x = 2 * ddp_random_uniform(bits[0]) - 1;
	*y = 3 * *x + 1 + 0.1f * (ddp_random_uniform(bits[1]) - 0.5f);
}

int main(void)
{
	float weight = 0, bias = 0;
	struct ddp_tensor state[] = {{"weight", DDP_F32, 0, {0}, &weight},
				     {"bias", DDP_F32, 0, {0}, &bias}};
	struct ddp_parameter parameters[] = {{"weight", 1}, {"bias", 1}};
	struct ddp_sampler_options options = DDP_SAMPLER_OPTIONS_INIT;
	struct ddp_gradients *gradients;
	struct ddp_sampler *sampler;
	struct ddp *ddp;
	uint64_t index[BATCH], epoch = 0;
	size_t n;

	if (ddp_init(&ddp, NULL) < 0)
		ddp_exit(ddp);
	options.samples = SAMPLES;
	options.rank = ddp_world(ddp)->rank;
	options.ranks = ddp_world(ddp)->size;
	if (ddp_sampler_create(&sampler, &options, NULL) < 0 ||
	    ddp_gradients_create(&gradients, ddp, NULL, parameters, 2) < 0 ||
	    ddp_checkpoint_load(ddp, "hello-checkpoints", &epoch, state, 2, NULL, 0) < 0)
		ddp_exit(ddp);
	if (ddp_world(ddp)->rank == 0 && epoch > 0)
		printf("continuing after epoch %d of hello-checkpoints\n", (int)epoch);

	for (; epoch < EPOCHS; epoch++) {
		double sums[2] = {0, 0}; /* sum of the losses, number of samples */

		ddp_sampler_set_epoch(sampler, epoch);
		while ((n = ddp_sampler_take(sampler, index, BATCH)) > 0) {
			float *dw = ddp_gradients_view(gradients, 0);
			float *db = ddp_gradients_view(gradients, 1);

			*dw = *db = 0;
			for (size_t i = 0; i < n; i++) {
				float x, y, error;

				sample(index[i], &x, &y);
				error = weight * x + bias - y;
				*dw += 2 * error * x / (float)n;
				*db += 2 * error / (float)n;
				sums[0] += (double)(error * error);
				sums[1] += 1;
			}
			if (ddp_gradients_ready(gradients, 1) < 0 ||
			    ddp_gradients_ready(gradients, 0) < 0 ||
			    ddp_gradients_finish(gradients) < 0)
				ddp_exit(ddp);
			weight -= 0.1f * *dw;
			bias -= 0.1f * *db;
		}
		if (ddp_all_reduce(ddp, sums, sums, 2, DDP_F64, DDP_SUM) < 0 ||
		    ddp_checkpoint_save(ddp, "hello-checkpoints", epoch + 1, state, 2, NULL, 0, 2) <
			    0)
			ddp_exit(ddp);
		if (ddp_world(ddp)->rank == 0)
			printf("epoch %d: loss %.4f, y = %.3fx + %.3f\n", (int)epoch + 1,
			       sums[0] / sums[1], (double)weight, (double)bias);
	}
	ddp_gradients_destroy(gradients);
	ddp_sampler_destroy(sampler);
	ddp_destroy(ddp);
	return 0;
}
