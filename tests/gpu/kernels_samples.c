/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a data set's bytes to a batch: the device's against batch_images(), to the bit. Needs
 * train/data/batch.c and sampling/random.c.
 */
#include "arrays.h"
#include "data/batch.h"

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

static struct kernel_images images_of(const struct net *net)
{
	struct kernel_images images = {.channels = net->channels,
				       .height = net->height,
				       .width = net->width,
				       .pad = net->pad,
				       .flip = net->flip};

	memcpy(images.mean, net->mean, sizeof(images.mean));
	memcpy(images.deviation, net->deviation, sizeof(images.deviation));
	return images;
}

static void gather(const struct net *net, const struct set *set, const struct draws *draws,
		   size_t count, bool augment, struct array *x)
{
	struct kernel_images images = images_of(net);
	struct kernel_order order = {.seed = draws->seed,
				     .epoch = draws->epoch,
				     .count = (uint32_t)count,
				     .augment = augment};
	void *on_device = bytes_make(sizeof(order), &order);
	void *pixels = bytes_make(IMAGES * set->bytes, set->pixels);
	void *indices = bytes_make(count * sizeof(*draws->narrow), draws->narrow);
	void *orders = bytes_make(count * sizeof(*draws->orders), draws->orders);

	kernel_gather(arrays_stream, &images, pixels, on_device, indices, orders, BATCH, x->data,
		      x->type);
	array_fetch(x);
	device_free(arrays_device, on_device);
	device_free(arrays_device, pixels);
	device_free(arrays_device, indices);
	device_free(arrays_device, orders);
}

static void check_gather(const struct net *net, enum ddp_type type, size_t skew, size_t count,
			 bool augment, uint64_t *random)
{
	size_t bytes = (size_t)net->channels * (size_t)net->height * (size_t)net->width;
	struct set set = set_make(bytes, random);
	struct draws draws = draws_make(random);
	struct array x = array_make(type, BATCH * bytes, skew);
	float *want = plain_images(net, &set, &draws, count, augment);

	array_fill_with(&x, 77);
	gather(net, &set, &draws, count, augment, &x);
	for (size_t i = 0; i < x.count; i++)
		array_exact("a number of an image", &x, i, (double)want[i]);
	free(want);
	free(set.pixels);
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
