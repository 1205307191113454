/* SPDX-License-Identifier: Apache-2.0 */
/* Sums that are finished are counted in host memory */
#include "device.h"
#include "kernels.h"
#include "tap.h"

static struct device *gpu;
static struct ddp_error problem;

static struct {
	uint64_t *sums;
	uint64_t *progress; /* of the host */
} there;

static bool alloc_all(void)
{
	return device_alloc(gpu, (void **)&there.sums, sizeof(*there.sums), "a test", NULL,
			    &problem) == 0 &&
	       device_alloc_host(gpu, (void **)&there.progress, 2 * sizeof(*there.progress),
				 "a test", &problem) == 0;
}

/* Waits as a host does that never waits for the device, but looks after it. */
static bool comes(const uint64_t *from, uint64_t want)
{
	int status = device_mark(gpu, DEVICE_REDUCE, 0, &problem);

	while (status == 0 && __atomic_load_n(from, __ATOMIC_ACQUIRE) != want)
		status = device_reached(gpu, 0, &problem);
	return __atomic_load_n(from, __ATOMIC_ACQUIRE) == want;
}

static void test_progress(void)
{
	bool right = true;

	there.progress[0] = there.progress[1] = 7;
	for (uint64_t i = 1; i <= 3; i++) {
		kernel_progress(device_stream(gpu, DEVICE_REDUCE), there.sums, there.progress);
		right = right && comes(there.progress, i);
	}
	ok(right && there.progress[1] == 7, "sums that are finished are counted");
}

int main(void)
{
	if (!device_available(&problem)) {
		printf("1..0 # SKIP %s\n", problem.text);
		return EXIT_SUCCESS;
	}
	if (device_open(&gpu, 0, 0, &problem) < 0 || !alloc_all()) {
		printf("Bail out! %s\n", problem.text);
		return EXIT_FAILURE;
	}
	test_progress();
	ok(device_check(gpu, "counting", &problem) == 0, "every launch was taken");
	device_close(gpu);
	return tap_end();
}
