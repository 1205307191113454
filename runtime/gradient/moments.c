/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "comm/context.h"
#include "moments.h"

struct moments {
	double count, mean, m2;
};

size_t ddp_moments_bytes(size_t channels)
{
	return sizeof(double) + 2 * channels * sizeof(float);
}

static double part_count(const char *part)
{
	double count;

	memcpy(&count, part, sizeof(count));
	return count;
}

static double part_value(const char *part, size_t index)
{
	float value;

	memcpy(&value, part + sizeof(double) + index * sizeof(value), sizeof(value));
	return (double)value;
}

static void add(struct moments *to, double count, double mean, double m2)
{
	double delta = mean - to->mean, whole = to->count + count;

	to->mean += delta * (count / whole);
	to->m2 += m2 + delta * delta * (to->count * count / whole);
	to->count = whole;
}

void ddp_moments_combine(const void *data, size_t parts, size_t channels, double *count,
			 float *mean, float *m2)
{
	size_t bytes = ddp_moments_bytes(channels);

	*count = 0;
	for (size_t i = 0; i < parts; i++)
		*count += part_count((const char *)data + i * bytes);
	for (size_t channel = 0; channel < channels; channel++) {
		struct moments whole = {0, 0, 0};

		for (size_t i = 0; i < parts; i++) {
			const char *part = (const char *)data + i * bytes;

			if (part_count(part) > 0)
				add(&whole, part_count(part), part_value(part, channel),
				    part_value(part, channels + channel));
		}
		mean[channel] = (float)whole.mean;
		m2[channel] = (float)whole.m2;
	}
}

int ddp_all_reduce_moments(struct ddp *ddp, double *count, float *mean, float *m2, size_t channels)
{
	size_t bytes = ddp_moments_bytes(channels), size = (size_t)ddp->world.size;
	char *mine = NULL, *all = NULL;
	int status;

	if (!(*count >= 0)) {
		ddp_error_set(&ddp->error, DDP_ERR_ARGUMENT, "moments: a count of %g", *count);
		return ddp_fail_call(ddp, DDP_ERR_ARGUMENT);
	}
	mine = malloc(bytes);
	all = calloc(size, bytes);
	if (!mine || !all) {
		ddp_error_set(&ddp->error, DDP_ERR_MEMORY,
			      "moments: out of memory for %zu channels of %zu ranks", channels,
			      size);
		status = ddp_fail_call(ddp, DDP_ERR_MEMORY);
		goto out;
	}
	memcpy(mine, count, sizeof(*count));
	if (channels > 0) {
		memcpy(mine + sizeof(*count), mean, channels * sizeof(*mean));
		memcpy(mine + sizeof(*count) + channels * sizeof(*mean), m2,
		       channels * sizeof(*m2));
	}
	status = ddp_all_gather(ddp, mine, all, bytes);
	if (status == 0)
		ddp_moments_combine(all, size, channels, count, mean, m2);
out:
	free(all);
	free(mine);
	return status;
}
