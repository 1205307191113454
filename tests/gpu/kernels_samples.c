/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a data set's bytes to a batch: the device's against batch_images(), to the bit; and the step that begins. Needs
 * train/data/batch.c and base/random.c.
 */
#include "arrays.h"
#include "data/batch.h"
#include "optim/loop.h"

/* --- A set -------------------------------------------------------------------------------------- */

enum { IMAGES = 11, BATCH = 7 };

struct set {
	size_t bytes; /* of an image */
	uint8_t *pixels;
};

const uint8_t *set_image(struct set *set, uint64_t index)
{
	return set->pixels + index * set->bytes;
}

/* batch.c wants it, for labels. */
int set_label(const struct set *set, uint64_t index)
{
	return (int)((index + set->bytes) % 10);
}

static struct set set_make(size_t bytes, uint64_t *random)
{
	struct set set = {bytes, malloc(IMAGES * bytes + 1)};

	for (size_t i = 0; i < IMAGES * bytes; i++)
		set.pixels[i] = (uint8_t)draw(random, 256);
	return set;
}

/* --- Networks ----------------------------------------------------------------------------------- */

static const struct net nets[] = {
	{.channels = 1, .height = 28, .width = 28, .mean = {0.1307f}, .deviation = {0.3081f}},
	{.channels = 3,
	 .height = 32,
	 .width = 32,
	 .mean = {0.4914f, 0.4822f, 0.4465f},
	 .deviation = {0.247f, 0.2435f, 0.2616f},
	 .pad = 4,
	 .flip = true},
	{.channels = 3,
	 .height = 5,
	 .width = 7,
	 .mean = {0.5f, 0.25f, 0.125f},
	 .deviation = {0.3f, 0.2f, 0.1f},
	 .pad = 2,
	 .flip = true},
	{.channels = 1, .height = 9, .width = 3, .mean = {0.5f}, .deviation = {0.7f}, .flip = true},
	{.channels = 4,
	 .height = 6,
	 .width = 5,
	 .mean = {0.1f, 0.2f, 0.3f, 0.4f},
	 .deviation = {1, 2, 3, 4},
	 .pad = 5},
	{.channels = 2, .height = 1, .width = 1, .deviation = {1, 1}, .pad = 1, .flip = true},
};

struct draws {
	uint64_t indices[BATCH], orders[BATCH];
	uint32_t narrow[BATCH]; /* the indices again */
	uint64_t seed, epoch;
};

/* All bits of what random numbers depend on. */
static struct draws draws_make(uint64_t *random)
{
	struct draws draws;

	for (int i = 0; i < BATCH; i++) {
		draws.narrow[i] = draw(random, IMAGES);
		draws.indices[i] = draws.narrow[i];
		draws.orders[i] = (uint64_t)draw(random, UINT32_MAX) << draw(random, 24);
	}
	draws.seed = (uint64_t)draw(random, UINT32_MAX) << 32 | draw(random, UINT32_MAX);
	draws.epoch = (uint64_t)draw(random, UINT32_MAX) >> draw(random, 32);
	return draws;
}

/* What batch_images() makes of them, and behind that black images. */
static float *plain_images(const struct net *net, struct set *set, const struct draws *draws,
			   size_t count, bool augment)
{
	uint8_t *black = calloc(set->bytes, 1);
	struct set night = {0, black};
	struct batch batch = {draws->indices, draws->orders, count,
			      draws->seed,    draws->epoch,  augment};
	float *images = malloc(BATCH * set->bytes * sizeof(*images));

	batch_images(net, set, &batch, images, DDP_F32);
	batch.count = BATCH - count;
	batch.augment = false;
	batch_images(net, &night, &batch, images + count * set->bytes, DDP_F32);
	free(black);
	return images;
}

/* Device memory of a test, in one piece each. */
struct there {
	void *pixels, *labels, *indices, *places, *corrections;
	struct kernel_step *step;
	int32_t *batch_labels;
	uint64_t *batch_orders;
	struct kernel_result *results;
};

static struct kernel_images images_of(const struct net *net, const struct there *there)
{
	struct kernel_images images = {.channels = net->channels,
				       .height = net->height,
				       .width = net->width,
				       .pad = net->pad,
				       .flip = net->flip,
				       .pixels = there->pixels,
				       .labels = there->labels};

	memcpy(images.mean, net->mean, sizeof(images.mean));
	memcpy(images.deviation, net->deviation, sizeof(images.deviation));
	return images;
}

enum { SEQUENCE = 3 * KERNEL_SLOTS + 5, UPDATES = 41, FIRST = 38 };
static const double rate = 0.123;

/* The optimizer's step UPDATES + 1 is corrections[UPDATES + 1 - FIRST]. */
static struct there there_make(const struct set *set, const struct draws *draws, size_t count,
			       bool augment)
{
	struct kernel_step step = {.order = {.count = 77}};
	struct optim_correction corrections[UPDATES + 2 - FIRST] = {{0}};
	struct ddp_error error = {0, ""};
	struct there there;
	uint8_t labels[IMAGES];
	void *results = NULL;

	for (uint64_t i = 0; i < IMAGES; i++)
		labels[i] = (uint8_t)set_label(set, i);
	corrections[UPDATES + 1 - FIRST] = (struct optim_correction){0.7, 0.3f};
	there.pixels = bytes_make(IMAGES * set->bytes, set->pixels);
	there.labels = bytes_make(sizeof(labels), labels);
	there.indices = bytes_make(count * sizeof(*draws->narrow), draws->narrow);
	there.places = bytes_make(count * sizeof(*draws->orders), draws->orders);
	there.corrections = bytes_make(sizeof(corrections), corrections);
	there.batch_labels = bytes_make(BATCH * sizeof(*there.batch_labels), NULL);
	there.batch_orders = bytes_make(BATCH * sizeof(*there.batch_orders), NULL);
	step.next = (struct kernel_next){
		.seed = draws->seed,
		.epoch = draws->epoch,
		.sequence = SEQUENCE,
		.augment = augment,
		.entry = {rate, 0.99f, 0.25f, (uint32_t)count},
		.indices = there.indices,
		.places = there.places,
		.corrections = augment ? there.corrections : NULL,
		.first = FIRST,
		.state = {.scale = 3, .updates = UPDATES},
	};
	there.step = bytes_make(sizeof(step), &step);
	arrays_check(device_alloc_host(arrays_device, &results,
				       KERNEL_SLOTS * sizeof(*there.results), "a test", &error),
		     &error);
	there.results = memset(results, 0, KERNEL_SLOTS * sizeof(*there.results));
	there.results[SEQUENCE % KERNEL_SLOTS].stop = augment;
	return there;
}

static void there_free(const struct there *there)
{
	device_free(arrays_device, there->pixels);
	device_free(arrays_device, there->labels);
	device_free(arrays_device, there->indices);
	device_free(arrays_device, there->places);
	device_free(arrays_device, there->corrections);
	device_free(arrays_device, there->batch_labels);
	device_free(arrays_device, there->batch_orders);
	device_free(arrays_device, there->step);
	device_free(arrays_device, there->results);
}

/* Labels and places of the batch, and the step under way. */
static void check_rest(const struct there *there, const struct set *set, const struct draws *draws,
		       size_t count, bool augment)
{
	struct kernel_step now;
	int32_t labels[BATCH];
	uint64_t orders[BATCH];
	bool good;

	bytes_fetch(labels, there->batch_labels, sizeof(labels));
	bytes_fetch(orders, there->batch_orders, sizeof(orders));
	bytes_fetch(&now, there->step, sizeof(now));
	for (size_t i = 0; i < BATCH; i++) {
		int label = i < count ? set_label(set, draws->indices[i]) : 0;

		if (labels[i] != label)
			array_differs("a label", i, labels[i], label, 0);
		if (orders[i] != (i < count ? draws->orders[i] : 0))
			array_differs("a place", i, (double)orders[i], (double)draws->orders[i], 0);
	}
	good = now.order.count == count && now.order.share == 0.25f &&
	       now.order.seed == draws->seed && now.order.epoch == draws->epoch &&
	       now.order.stop == augment && now.state.scale == 3 && now.state.updates == UPDATES &&
	       now.next.indices == there->indices;
	if (augment)
		good = good && now.order.pace.rate == (float)-(rate / 0.7) &&
		       now.order.pace.root == 0.3f && now.order.pace.shrink == 0.99f;
	if (!good)
		array_differs("the step under way", 0, 0, 1, 0);
}

static void check_gather(const struct net *net, enum ddp_type type, size_t skew, size_t count,
			 bool augment, uint64_t *random)
{
	size_t bytes = (size_t)net->channels * (size_t)net->height * (size_t)net->width;
	struct set set = set_make(bytes, random);
	struct draws draws = draws_make(random);
	struct there there = there_make(&set, &draws, count, augment);
	struct kernel_images images = images_of(net, &there);
	struct array x = array_make(type, BATCH * bytes, skew);
	float *want = plain_images(net, &set, &draws, count, augment);

	array_fill_with(&x, 77);
	kernel_gather(arrays_stream, &images, there.step, there.results, BATCH, x.data,
		      there.batch_labels, there.batch_orders, x.type);
	array_fetch(&x);
	for (size_t i = 0; i < x.count; i++)
		array_exact("a number of an image", &x, i, (double)want[i]);
	check_rest(&there, &set, &draws, count, augment);
	free(want);
	free(set.pixels);
	there_free(&there);
	array_free(&x);
}

static void test_gather(const struct net *net, enum ddp_type type)
{
	static const size_t counts[] = {0, 1, 5, BATCH};
	uint64_t random = arrays_seed;

	for (int c = 0; c < ROWS(counts); c++)
		for (size_t skew = 0; skew < 2; skew++)
			for (int augment = 0; augment < 2; augment++)
				check_gather(net, type, skew, counts[c], augment, &random);
	array_row("gather: %s, %d x %d x %d, 0 to %d of %d", arrays_name(type), net->channels,
		  net->height, net->width, BATCH, BATCH);
}

int main(void)
{
	if (!arrays_begin("kernels of samples"))
		return tap_failed ? tap_end() : EXIT_SUCCESS;
	for (int t = 0; t < ROWS(arrays_types); t++)
		for (int n = 0; n < ROWS(nets); n++)
			test_gather(&nets[n], arrays_types[t]);
	return arrays_end();
}
