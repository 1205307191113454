/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - how much of GPU 0's memory is taken, seen from outside of whoever takes it
 *
 *	memory hold	make a context, say so, and keep it until stdin ends: the bare CUDA context
 *	memory watch	print the bytes that all processes together have, whenever more than before, until stdin ends
 */
#include <cuda_runtime_api.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PERIOD = 5 }; /* milliseconds */

/* Whether stdin has ended, after [milliseconds] at most; -1: wait for it. */
static int ended(int milliseconds)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	char byte;

	return poll(&input, 1, milliseconds) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

static int watch(void)
{
	size_t most = 0, available = 0, total = 0;

	do {
		if (cudaMemGetInfo(&available, &total) != cudaSuccess)
			return EXIT_FAILURE;
		if (total - available > most) {
			most = total - available;
			printf("%zu\n", most);
			fflush(stdout);
		}
	} while (!ended(PERIOD));
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	cudaError_t result;

	if (argc != 2 || (strcmp(argv[1], "hold") != 0 && strcmp(argv[1], "watch") != 0)) {
		fprintf(stderr, "usage: memory hold|watch\n");
		return 2;
	}
	result = cudaFree(NULL);
	if (result != cudaSuccess) {
		fprintf(stderr, "memory: %s\n", cudaGetErrorString(result));
		return EXIT_FAILURE;
	}
	if (strcmp(argv[1], "watch") == 0)
		return watch();
	puts("0");
	fflush(stdout);
	while (!ended(-1))
		;
	return EXIT_SUCCESS;
}
