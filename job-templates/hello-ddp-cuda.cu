/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hello-ddp-cuda.cu - a short, complete data-parallel training on GPUs
 *
 *	nvcc -o hello-ddp-cuda hello-ddp-cuda.cu $(pkg-config --cflags --libs ddp)
 *	srun -N2 --ntasks-per-node=4 --gres=gpu:4 --ddp ./hello-ddp-cuda
 *
 * It fits y = 3x + 1. Each rank draws its own points. Gradients are in GPU memory and are averaged by NCCL, or, if ranks share
 * a GPU (--gres=shard:N), through host memory. The host waits for the GPU only to print.
 */
#include <cuda_runtime.h>
#include <stdio.h>

#include <ddp.h>

enum { POINTS = 256, STEPS = 300, SHOWN = 100 };

/* Computes the derivative of the mean squared error over POINTS points with respect to the weight or the bias. */
static __global__ void slope(const float *model, float *to, bool by_weight, unsigned int seed)
{
	unsigned int random = (seed * POINTS + threadIdx.x) * 2654435761u;
	float x = (float)(random >> 8) / (1 << 23) - 1;
	float error = model[0] * x + model[1] - (3 * x + 1);
	__shared__ float sum;

	if (threadIdx.x == 0)
		sum = 0;
	__syncthreads();
	atomicAdd(&sum, 2 * error * (by_weight ? x : 1) / POINTS);
	__syncthreads();
	if (threadIdx.x == 0)
		*to = sum;
}

static __global__ void update(float *model, const float *weight, const float *bias)
{
	model[0] -= 0.1f * *weight;
	model[1] -= 0.1f * *bias;
}

static void must(struct ddp *ddp, cudaError_t result)
{
	if (result == cudaSuccess)
		return;
	ddp_abort(ddp, "CUDA: %s", cudaGetErrorString(result));
	ddp_exit(ddp);
}

int main(void)
{
	struct ddp_parameter parameters[] = {{"weight", 1}, {"bias", 1}};
	struct ddp_gradients_options options = DDP_GRADIENTS_OPTIONS_INIT;
	struct ddp_options world = DDP_OPTIONS_INIT;
	struct ddp_gradients *gradients;
	float *model, *weight, *bias, now[2];
	cudaStream_t stream;
	struct ddp *ddp;
	void *memory;

	world.device = options.device = true;
	if (ddp_init(&ddp, &world) < 0)
		ddp_exit(ddp);
	must(ddp, cudaSetDevice(ddp_world(ddp)->device));
	must(ddp, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	must(ddp, cudaMalloc(&model, sizeof(now)));
	must(ddp, cudaMemsetAsync(model, 0, sizeof(now), stream));

	if (ddp_gradients_create(&gradients, ddp, &options, parameters, 2) < 0 ||
	    ddp_device_alloc(ddp, ddp_gradients_bytes(gradients), &memory) < 0 ||
	    ddp_gradients_place(gradients, memory, NULL, NULL) < 0)
		ddp_exit(ddp);
	weight = (float *)ddp_gradients_view(gradients, 0);
	bias = (float *)ddp_gradients_view(gradients, 1);

	for (int step = 1; step <= STEPS; step++) {
		unsigned int seed = step * ddp_world(ddp)->size + ddp_world(ddp)->rank;

		slope<<<1, POINTS, 0, stream>>>(model, bias, false, seed);
		if (ddp_gradients_ready_on(gradients, 1, stream) < 0)
			ddp_exit(ddp);
		slope<<<1, POINTS, 0, stream>>>(model, weight, true, seed);
		if (ddp_gradients_ready_on(gradients, 0, stream) < 0 ||
		    ddp_gradients_finish_on(gradients, stream) < 0)
			ddp_exit(ddp);
		update<<<1, 1, 0, stream>>>(model, weight, bias);
		must(ddp, cudaGetLastError());
		if (step % SHOWN != 0)
			continue;
		must(ddp, cudaMemcpyAsync(now, model, sizeof(now), cudaMemcpyDefault, stream));
		if (ddp_device_wait(ddp, stream) < 0)
			ddp_exit(ddp);
		if (ddp_world(ddp)->rank == 0)
			printf("step %d: y = %.3fx + %.3f\n", step, (double)now[0], (double)now[1]);
	}
	ddp_gradients_destroy(gradients);
	ddp_device_free(ddp, memory);
	ddp_destroy(ddp);
	return 0;
}
