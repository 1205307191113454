/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wide-mpi - like "column time", with MPI_Allreduce; bench-wide compiles it
 *
 *     wide-mpi BYTES COUNT...
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	float *data = calloc(1, 256 << 20);
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 1; i + 1 < argc && data; i += 2) {
		size_t bytes = strtoul(argv[i], NULL, 10);

		for (int k = -2; k < atoi(argv[i + 1]); k++) {
			double start = MPI_Wtime();

			MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / sizeof(float)), MPI_FLOAT,
				      MPI_SUM, MPI_COMM_WORLD);
			if (k >= 0 && rank == 0)
				printf("%zu %.2f\n", bytes, (MPI_Wtime() - start) * 1e6);
		}
	}
	MPI_Finalize();
	free(data);
	return 0;
}
