/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels_samples.c - kernel_gather(): images have the same bits as from batch_images(); labels and
 * the start of a step
 */
#include "data/batch.h"
#include "harness.h"

/*
 * Number of images in a set of random images, which replaces train/data/set.c; and of samples in a
 * batch.
 */
enum { IMAGES = 11, BATCH = 7 };

struct set {
	size_t bytes; /* bytes of an image */
	uint8_t *pixels;
};

const uint8_t *set_image(struct set *set, uint64_t index)
{
	return set->pixels + index * set->bytes;
}

/* batch.c calls this function. */
int set_label(const struct set *set, uint64_t index)
{
	return (int)((index + set->bytes) % 10);
}

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
	 .height = 8,
	 .width = 7,
	 .mean = {0.5f, 0.25f, 0.125f},
	 .deviation = {0.3f, 0.2f, 0.1f},
	 .pad = 2,
	 .flip = true},
	{.channels = 1, .height = 8, .width = 3, .mean = {0.5f}, .deviation = {0.7f}, .flip = true},
	{.channels = 4,
	 .height = 6,
	 .width = 7,
	 .mean = {0.1f, 0.2f, 0.3f, 0.4f},
	 .deviation = {1, 2, 3, 4},
	 .pad = 5},
	{.channels = 2, .height = 4, .width = 1, .deviation = {1, 1}, .pad = 1, .flip = true},
};

struct job {
	const struct net *net;
	struct set set;
	uint64_t indices[BATCH];
	uint64_t orders[BATCH], seed, epoch;
	size_t count; /* samples in the batch */
	bool augment;
};

static struct job job_new(const struct net *net, size_t count, bool augment)
{
	struct job job = {.net = net, .count = count, .augment = augment};

	job.set.bytes = (size_t)net->channels * (size_t)net->height * (size_t)net->width;
	job.set.pixels = host_new(IMAGES * job.set.bytes);
	for (size_t i = 0; i < IMAGES * job.set.bytes; i++)
		job.set.pixels[i] = (uint8_t)draw(256);
	for (int i = 0; i < BATCH; i++) {
		job.indices[i] = draw(IMAGES);
		job.orders[i] = (uint64_t)draw(UINT32_MAX) << draw(24);
	}
	job.seed = draw64();
	job.epoch = (uint64_t)draw(UINT32_MAX) >> draw(32);
	return job;
}

/* Returns the images of batch_images(), followed by black images up to the size of the batch. */
static float *plain_images(struct job *job)
{
	struct set black = {0, host_new(job->set.bytes)};
	struct batch batch = {job->indices, job->orders, job->count,
			      job->seed,    job->epoch,	 job->augment};
	float *images = host_new(BATCH * job->set.bytes * sizeof(*images));

	batch_images(job->net, &job->set, &batch, images, DDP_F32);
	batch.count = BATCH - job->count;
	batch.augment = false;
	batch_images(job->net, &black, &batch, images + job->count * job->set.bytes, DDP_F32);
	return images;
}

static struct kernel_images images_new(const struct job *job)
{
	uint8_t labels[IMAGES];
	struct kernel_images images = {.net = *job->net};

	for (uint64_t i = 0; i < IMAGES; i++)
		labels[i] = (uint8_t)set_label(&job->set, i);
	images.pixels = device_new(IMAGES * job->set.bytes, job->set.pixels);
	images.labels = device_new(sizeof(labels), labels);
	return images;
}

static struct kernel_step *step_new(const struct job *job)
{
	const struct kernel_step step = {.next = {.scale = 3, .updates = 41},
					 .order = {.seed = job->seed,
						   .epoch = job->epoch,
						   .count = (uint32_t)job->count,
						   .augment = job->augment}};

	return device_new(sizeof(step), &step);
}

static void check_job(struct job *job, const struct point *p)
{
	struct array *x = array_new(p->type, BATCH * job->set.bytes, 0);
	struct kernel_images images = images_new(job);
	struct kernel_step *step = step_new(job), now;
	int32_t labels[BATCH], *device_labels = device_new(sizeof(labels), NULL);
	uint32_t indices[BATCH];

	for (int i = 0; i < BATCH; i++)
		indices[i] = (uint32_t)job->indices[i];
	kernel_gather(stream, &images, step, device_new(job->count * sizeof(*indices), indices),
		      device_new(job->count * sizeof(*job->orders), job->orders), BATCH, x->data,
		      device_labels, p->type);
	array_fetch(x);
	device_move(labels, device_labels, sizeof(labels));
	device_move(&now, step, sizeof(now));
	expect_all("pixel", x, plain_images(job));
	for (size_t i = 0; i < BATCH; i++) {
		bool there = i < job->count;

		expect(labels[i] == (there ? set_label(&job->set, job->indices[i]) : 0),
		       "label %zu is %d", i, labels[i]);
	}
	expect(now.state.scale == 3 && now.state.updates == 41, "the state of the step is wrong");
}

static void check_gather(const struct point *p)
{
	static const size_t counts[] = {0, 1, 5, BATCH};

	for (int i = 0; i < 2 * ROWS(counts); i++) {
		struct job job = job_new(&nets[p->size], counts[i / 2], i % 2);

		check_job(&job, p);
	}
}

static const struct test tests[] = {{"gather", check_gather, ROWS(nets), .skews = 1}};

int main(int argc, char **argv)
{
	return harness_run(argc, argv, tests, ROWS(tests));
}
