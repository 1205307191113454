/* SPDX-License-Identifier: Apache-2.0 */
/* all-reduce-mpi NAME [fresh|again] - the MPI side of bench-all-reduce, which compiles this file */
#include <mpi.h>

#include "all-reduce.h"

static void reduce(void *data, float *vector, size_t bytes)
{
	(void)data;
	MPI_Allreduce(MPI_IN_PLACE, vector, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
		      MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	struct bench_side side = {.name = argc > 1 ? argv[1] : "mpi",
				  .fresh = argc > 2 && strcmp(argv[2], "fresh") == 0,
				  .reduce = reduce};
	float *vector;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &side.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &side.ranks);
	vector = aligned_alloc(4096, BENCH_LARGEST);
	memset(vector, 0, BENCH_LARGEST);
	bench_run(&side, vector);
	free(vector);
	MPI_Finalize();
	return 0;
}
