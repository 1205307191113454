/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

/* Whether [value] is inf or nan, without a branch, so that the loop over them is vectors. */
static uint32_t odd(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (bits & 0x7f800000u) == 0x7f800000u;
}

/* The gradient is looked at before it is divided, as PyTorch does. */
bool ddp_scaler_unscale(const struct ddp_scaler *scaler, float *gradients, size_t count)
{
	float inverse = (float)(1 / (double)scaler->scale);
	uint32_t found = 0;

	for (size_t i = 0; i < count; i++) {
		found |= odd(gradients[i]);
		gradients[i] *= inverse;
	}
	return found != 0;
}

void ddp_scaler_update(struct ddp_scaler *scaler, bool found_inf)
{
	float grown;

	if (found_inf) {
		scaler->scale = (float)((double)scaler->scale * scaler->backoff);
		scaler->good_steps = 0;
		return;
	}
	if (++scaler->good_steps != scaler->interval)
		return;
	grown = (float)((double)scaler->scale * scaler->growth);
	if (isfinite(grown))
		scaler->scale = grown;
	scaler->good_steps = 0;
}
