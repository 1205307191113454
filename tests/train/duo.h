/* SPDX-License-Identifier: Apache-2.0 */
/*
 * duo.h - the CPU engine and the CUDA engine on an emulated GPU, for comparison
 *
 * Each engine trains its own model. The models start with the same values, and both get the same
 * batches. Some batches are short.
 */
#ifndef DDP_TESTS_DUO_H
#define DDP_TESTS_DUO_H

#include "workshop.h"

enum { DUO_RANKS = 8, DUO_BATCHES = 4 };

/*
 * Number of nodes of the graph that this process has captured last; set by
 * tests/emulated/queue-host.c.
 */
extern size_t queues_nodes;

struct duo {
	struct workshop shop; /* model and setup of the CPU engine */
	/* setup of the CUDA engine; may be changed before duo_engines() */
	struct engine_setup setup;
	struct model *model;
	struct engine *engine;
	struct ddp_scaler scaler;
	uint64_t steps[2]; /* steps that each engine has started: CPU, CUDA */
};

static inline void duo_copy(struct model *to, const struct model *from)
{
	memcpy(to->values, from->values, to->count * sizeof(float));
	for (int i = 0; i < MODEL_SLOTS; i++)
		memcpy(to->slots[i], from->slots[i], to->count * sizeof(float));
	memcpy(to->buffers, from->buffers, to->buffer_count * sizeof(float));
}

/*
 * Sets the GPU of this rank, before duo_open(). Ranks with the same letter share a GPU. libddp's
 * device collectives are the emulations of tests/runtime in host memory (HOST_MODULES).
 */
static inline void duo_seat(const char *modules, char gpu)
{
	setenv("DDP_MODULES", modules, 1);
	setenv("DDP_HOST_GPU", (const char[]){gpu, '\0'}, 1);
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
}

static inline void duo_open(struct duo *duo, const struct net *net, enum ddp_type wire)
{
	struct ddp_error error;

	memset(duo, 0, sizeof(*duo));
	workshop_open(&duo->shop, net);
	duo->shop.optim.momentum = 0.9;
	workshop_must(model_create(&duo->model, duo->shop.ddp, duo->shop.graph, 2, wire, true, 0,
				   &error),
		      "model", error.text);
	duo_copy(duo->model, duo->shop.model);
	duo->scaler = (struct ddp_scaler)DDP_SCALER_INIT;
	duo->setup = duo->shop.setup;
	duo->setup.model = duo->model;
}

static inline void duo_push(struct duo *duo)
{
	struct ddp_error error;

	workshop_must(engine_cuda.push(duo->engine, &error), "push", error.text);
}

static inline void duo_pull(struct duo *duo)
{
	struct ddp_error error;

	workshop_must(engine_cuda.pull(duo->engine, &error), "pull", error.text);
}

static inline void duo_engine(struct duo *duo)
{
	struct ddp_error error;

	workshop_must(engine_cuda.open(&duo->engine, &duo->setup, &error), "open", error.text);
	duo_push(duo);
}

static inline void duo_engines(struct duo *duo)
{
	struct workshop *shop = &duo->shop;

	shop->setup.smoothing = duo->setup.smoothing;
	shop->setup.clip = duo->setup.clip;
	shop->setup.sync_norm = duo->setup.sync_norm;
	shop->setup.no_dropout = duo->setup.no_dropout;
	workshop_engine(shop, &math_plain);
	duo_engine(duo);
}

static inline void duo_close(struct duo *duo)
{
	engine_cuda.close(duo->engine);
	model_destroy(duo->model);
	workshop_close(&duo->shop);
}

/* Number of samples of rank [rank] in step [step]; and of all [size] ranks together. */
static inline size_t duo_count(uint64_t step, int rank)
{
	static const size_t counts[DUO_BATCHES][DUO_RANKS] = {{8, 5, 1, 3, 8, 1, 7, 8},
							      {8, 8, 8, 8, 8, 8, 8, 8},
							      {3, 1, 1, 2, 1, 1, 4, 1},
							      {4, 6, 1, 1, 8, 1, 2, 5}};

	return counts[step % DUO_BATCHES][rank];
}

static inline size_t duo_global(uint64_t step, int size)
{
	size_t all = 0;

	for (int rank = 0; rank < size; rank++)
		all += duo_count(step, rank);
	return all;
}

static inline struct batch duo_batch(const struct duo *duo, uint64_t step)
{
	int rank = ddp_world(duo->shop.ddp)->rank;
	size_t from =
		(size_t)(5 * step + 6 * (uint64_t)rank) % (WORKSHOP_SAMPLES - WORKSHOP_BATCH + 1);
	struct batch batch = workshop_batch(&duo->shop, from, duo_count(step, rank));

	batch.epoch = 2 + step / DUO_BATCHES;
	batch.augment = true;
	return batch;
}

static inline void duo_add(struct engine_step *sum, const struct engine_step *done)
{
	sum->steps += done->steps;
	sum->skipped += done->skipped;
	sum->stop = sum->stop || done->stop;
	sum->loss += done->loss;
	sum->hits += done->hits;
	sum->samples += done->samples;
}

static inline struct engine_step duo_step(struct duo *duo, bool other, double rate, bool stop)
{
	const struct engine_class *class = other ? &engine_cuda : &engine_cpu;
	struct engine *engine = other ? duo->engine : duo->shop.engine;
	uint64_t step = duo->steps[other]++;
	struct batch batch = duo_batch(duo, step);
	size_t global = duo_global(step, ddp_world(duo->shop.ddp)->size);
	struct engine_step done;
	struct ddp_error error;

	workshop_must(class->step(engine, &batch, global, step + 1, rate, stop, &done, &error),
		      "step", error.text);
	return done;
}

static inline struct engine_step duo_settle(struct duo *duo)
{
	struct engine_step done;
	struct ddp_error error;

	workshop_must(engine_cuda.settle(duo->engine, &done, &error), "settle", error.text);
	return done;
}

/* Runs [count] steps. Returns the sum of their results. */
static inline struct engine_step duo_steps(struct duo *duo, bool other, int count, double rate)
{
	struct engine_step sum = {0}, done;

	for (int i = 0; i < count; i++) {
		done = duo_step(duo, other, rate, false);
		duo_add(&sum, &done);
	}
	if (other) {
		done = duo_settle(duo);
		duo_add(&sum, &done);
	}
	return sum;
}

/*
 * Returns the largest distance of two models' arrays: values, optimizer slots, running statistics.
 */
static inline double duo_apart(const struct model *a, const struct model *b)
{
	double apart = workshop_distance(a->values, b->values, a->count);

	for (int i = 0; i < MODEL_SLOTS; i++)
		apart = fmax(apart, workshop_distance(a->slots[i], b->slots[i], a->count));
	return fmax(apart, workshop_distance(a->buffers, b->buffers, a->buffer_count));
}

/* Compares the results that the engines reported for the same steps. */
static inline void duo_compare_results(const char *row, const struct engine_step *want,
				       const struct engine_step *got, double tolerance)
{
	unit_number(row, "steps", (int64_t)got->steps, (int64_t)want->steps);
	unit_number(row, "skipped", (int64_t)got->skipped, 0);
	unit_number(row, "samples", (int64_t)got->samples, (int64_t)want->samples);
	unit_number(row, "hits", (int64_t)got->hits, (int64_t)want->hits);
	ck_assert_msg(fabs(got->loss - want->loss) <= tolerance * want->loss,
		      "%s: loss is %.9g, want %.9g", row, got->loss, want->loss);
}

static inline void duo_near(const char *row, const char *what, double apart, double most)
{
	ck_assert_msg(apart <= most, "%s: %s are %.3g apart", row, what, apart);
}

#endif /* DDP_TESTS_DUO_H */
