/* SPDX-License-Identifier: Apache-2.0 */
/*
 * samples.cu - converts bytes of a data set to the images of a batch
 *
 * For each element, one byte is read and two or four are written. A thread has 16 elements. For 512
 * images of CIFAR, 1.5 MB are read and 3 MB written, which takes less time than a launch. The
 * latency is that of two dependent loads, the index and the bytes. During these loads a thread
 * computes its crop, which is equal for all threads of an image.
 */
#include "data/batch.h"
extern "C" {
#include "optim/loop.h"
}
#include "cuda-kernels.h"
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "philox.cuh"

/* The crop that batch_crop() computes. */
struct crop {
	int top, left;
	bool mirrored;
};

static __device__ inline struct crop crop_of(const struct kernel_images *images,
					     const struct kernel_next *next, size_t sample)
{
	uint32_t places = 2 * (uint32_t)images->pad + 1;
	struct crop crop = {0, 0, false};
	struct philox_words random;

	if (!next->augment || (images->pad == 0 && !images->flip))
		return crop;
	random = philox_random(next->seed, next->epoch, next->places[sample], BATCH_LAYER_CROP, 0);
	crop.top = (int)__umulhi(random.words[0], places) - images->pad;
	crop.left = (int)__umulhi(random.words[1], places) - images->pad;
	crop.mirrored = images->flip && random.words[2] >> 31;
	return crop;
}

/* Position of an element in an image (order H, W, C). */
struct spot {
	int row, column, channel;
};

static __device__ inline struct spot spot_of(const struct kernel_images *images, uint32_t element)
{
	uint32_t channels = (uint32_t)images->channels, width = (uint32_t)images->width;
	uint32_t pixel = element / channels;

	return {(int)(pixel / width), (int)(pixel % width), (int)(element % channels)};
}

static __device__ inline struct spot spot_next(const struct kernel_images *images, struct spot spot)
{
	if (++spot.channel < images->channels)
		return spot;
	spot.channel = 0;
	if (++spot.column < images->width)
		return spot;
	spot.column = 0;
	spot.row++;
	return spot;
}

/* The pixel at [spot] after the crop; black outside of the image. */
static __device__ inline uint8_t pixel_of(const struct kernel_images *images, const uint8_t *image,
					  struct crop crop, struct spot spot)
{
	int column = crop.mirrored ? images->width - 1 - spot.column : spot.column;
	int x = column + crop.left, y = spot.row + crop.top;

	if (x < 0 || x >= images->width || y < 0 || y >= images->height)
		return 0;
	return image[(spot.channel * images->height + y) * images->width + x];
}

/* Selects a value without indexing: the compiler would copy an indexed argument array to memory. */
static __device__ inline float channel_of(const float values[4], int channel)
{
	return channel < 2 ? (channel < 1 ? values[0] : values[1])
			   : (channel < 3 ? values[2] : values[3]);
}

/*
 * Normalises a pixel with two divisions and one difference, each rounded as on the host and in
 * torchvision.
 */
static __device__ inline float level_of(const struct kernel_images *images, uint8_t pixel,
					int channel)
{
	float level = __fdiv_rn((float)pixel, 255.0f);

	level = __fsub_rn(level, channel_of(images->mean, channel));
	return __fdiv_rn(level, channel_of(images->deviation, channel));
}

/*
 * Makes the next step the current one. Runs in one thread. Must not change [next], which other
 * threads still read. [results] is volatile because the host writes the stop request.
 */
static __device__ void begin(struct kernel_step *step, const volatile struct kernel_result *results)
{
	const struct kernel_next *next = &step->next;
	struct kernel_order *order = &step->order;

	if (next->corrections) {
		const struct optim_correction *correction =
			&next->corrections[next->state.updates + 1 - next->first];

		order->pace.rate = (float)-(next->entry.rate / correction->first);
		order->pace.root = correction->root;
		order->pace.shrink = next->entry.shrink;
	}
	order->stop = results ? results[next->sequence % KERNEL_SLOTS].stop : 0;
	order->seed = next->seed;
	order->epoch = next->epoch;
	order->share = next->entry.share;
	order->count = next->entry.count;
	step->state = next->state;
}

/* Destination of a batch. An image has [packs] packs of elements. */
struct target {
	void *x;
	int32_t *labels;
	uint64_t *orders;
	uint32_t batch, packs;
};

/* Loads all bytes of a thread first, so that their latencies overlap. */
template <typename T, int V = PACK<T>>
static __global__ void gather(struct kernel_images images, struct kernel_step *step,
			      const struct kernel_result *results, struct target to)
{
	const struct kernel_next *next = &step->next;
	uint32_t index = (uint32_t)thread_index();
	uint32_t sample = index / to.packs, element = index % to.packs * V;
	bool there = sample < to.batch && sample < next->entry.count;
	uint32_t image = there ? next->indices[sample] : 0;
	const uint8_t *pixels = images.pixels + (size_t)image * to.packs * V;
	struct spot spot = spot_of(&images, element);
	struct crop crop = {0, 0, false};
	uint8_t bytes[V];
	int channels[V];

	if (index == 0)
		begin(step, results);
	if (sample >= to.batch)
		return;
	if (there)
		crop = crop_of(&images, next, sample);
	UNROLL
	for (int v = 0; v < V; v++, spot = spot_next(&images, spot)) {
		channels[v] = spot.channel;
		bytes[v] = there ? pixel_of(&images, pixels, crop, spot) : 0;
	}
	pack_store((T *)to.x + (size_t)index * V,
		   pack_of<T, V>([&](int v) { return level_of(&images, bytes[v], channels[v]); }));
	if (element == 0) {
		to.labels[sample] = there ? images.labels[image] : 0;
		to.orders[sample] = there ? next->places[sample] : 0;
	}
}

void kernel_gather(void *stream, const struct kernel_images *images, struct kernel_step *step,
		   const struct kernel_result *results, size_t batch, void *x, int32_t *labels,
		   uint64_t *orders, enum ddp_type type)
{
	size_t elements = (size_t)images->channels * (size_t)images->height * (size_t)images->width;
	struct target to = {x, labels, orders, (uint32_t)batch,
			    (uint32_t)(elements / (size_t)pack_count(type))};

	WITH_TYPE(type, T,
		  LAUNCH_EACH((gather<T>), batch * to.packs, stream, *images, step, results, to))
}
