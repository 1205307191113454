/* SPDX-License-Identifier: Apache-2.0 */
/*
 * samples.cu - converts bytes of a data set to the images of a batch
 *
 * For each element, one byte is read and two or four are written. A thread writes 16 bytes. For 512
 * images of CIFAR, 1.5 MB are read and 3 MB written, which takes less time than a launch. The
 * latency is that of two loads, of which the second (bytes) depends on the first (index). During
 * these loads a thread computes its crop, which is equal for all threads of an image.
 */
#include "cuda-kernels.h"
#include "data/batch.h"
#include "gpu/launch.cuh"
#include "gpu/pack.cuh"
#include "philox.cuh"

/* The crop that batch_crop() computes. */
static __device__ inline struct batch_crop crop_of(const struct net *net,
						   const struct kernel_order *order, uint64_t place)
{
	uint32_t places = 2 * (uint32_t)net->pad + 1;
	struct batch_crop crop = {0, 0, false};
	struct philox_words random;

	if (!order->augment || (net->pad == 0 && !net->flip))
		return crop;
	random = philox_random(order->seed, order->epoch, place, BATCH_LAYER_CROP, 0);
	crop.top = (int)__umulhi(random.words[0], places) - net->pad;
	crop.left = (int)__umulhi(random.words[1], places) - net->pad;
	crop.mirrored = net->flip && random.words[2] >> 31;
	return crop;
}

/* Position of an element in an image. Elements have the order H, W, C. */
struct spot {
	int row, column, channel;
};

static __device__ inline struct spot spot_of(const struct net *net, uint32_t element)
{
	uint32_t channels = (uint32_t)net->channels, width = (uint32_t)net->width;
	uint32_t pixel = element / channels;

	return {(int)(pixel / width), (int)(pixel % width), (int)(element % channels)};
}

static __device__ inline struct spot spot_next(const struct net *net, struct spot spot)
{
	if (++spot.channel < net->channels)
		return spot;
	spot.channel = 0;
	if (++spot.column < net->width)
		return spot;
	spot.column = 0;
	spot.row++;
	return spot;
}

/* The pixel at [spot] after the crop; black outside of the image. */
static __device__ inline uint8_t pixel_of(const struct net *net, const uint8_t *image,
					  struct batch_crop crop, struct spot spot)
{
	int column = crop.mirrored ? net->width - 1 - spot.column : spot.column;
	int x = column + crop.left, y = spot.row + crop.top;

	if (x < 0 || x >= net->width || y < 0 || y >= net->height)
		return 0;
	return image[(spot.channel * net->height + y) * net->width + x];
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
static __device__ inline float level_of(const struct net *net, uint8_t pixel, int channel)
{
	float level = __fdiv_rn((float)pixel, 255.0f);

	level = __fsub_rn(level, channel_of(net->mean, channel));
	return __fdiv_rn(level, channel_of(net->deviation, channel));
}

/* Samples of a batch, and where to write them. An image has [packs] packs of elements. */
struct batch_memory {
	const uint32_t *indices;
	const uint64_t *orders;
	void *x;
	int32_t *labels;
	uint32_t batch, packs;
};

/*
 * A thread loads all its bytes before it uses them, so that their latencies overlap. One thread
 * sets step->state, which no other thread reads.
 */
template <typename T, int V = PACK<T>>
static __global__ void gather(struct kernel_images images, struct kernel_step *step,
			      struct batch_memory memory)
{
	uint32_t index = (uint32_t)thread_index();
	uint32_t sample = index / memory.packs, element = index % memory.packs * V;
	bool there = sample < memory.batch && sample < step->order.count;
	uint32_t image = there ? memory.indices[sample] : 0;
	const uint8_t *pixels = images.pixels + (size_t)image * memory.packs * V;
	const struct net *net = &images.net;
	struct spot spot = spot_of(net, element);
	struct batch_crop crop = {0, 0, false};
	uint8_t bytes[V];
	int channels[V];

	if (index == 0)
		step->state = step->next;
	if (sample >= memory.batch)
		return;
	if (there)
		crop = crop_of(net, &step->order, memory.orders[sample]);
	UNROLL
	for (int v = 0; v < V; v++, spot = spot_next(net, spot)) {
		channels[v] = spot.channel;
		bytes[v] = there ? pixel_of(net, pixels, crop, spot) : 0;
	}
	pack_store((T *)memory.x + (size_t)index * V,
		   pack_of<T, V>([&](int v) { return level_of(net, bytes[v], channels[v]); }));
	if (element == 0)
		memory.labels[sample] = there ? images.labels[image] : 0;
}

void kernel_gather(void *stream, const struct kernel_images *images, struct kernel_step *step,
		   const uint32_t *indices, const uint64_t *orders, size_t batch, void *x,
		   int32_t *labels, enum ddp_type type)
{
	const struct net *net = &images->net;
	size_t elements = (size_t)net->channels * (size_t)net->height * (size_t)net->width;
	struct batch_memory memory = {
		indices, orders,	  x,
		labels,	 (uint32_t)batch, (uint32_t)(elements / (size_t)pack_count(type))};

	WITH_TYPE(type, T,
		  LAUNCH_EACH((gather<T>), batch * memory.packs, stream, *images, step, memory))
}
