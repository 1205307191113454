/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi-program.c - a program that uses MPI itself, and initializes libddp twice between
 * MPI_Init_thread and MPI_Finalize
 *
 * With an argument, the program calls MPI_Init instead, so that MPI has no thread support.
 */
#include <mpi.h>
#include <stdio.h>

#include <ddp.h>

int main(int argc, char **argv)
{
	int level, number = 1;

	(void)argv;
	if (argc > 1)
		MPI_Init(NULL, NULL);
	else
		MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
	for (int i = 0; i < 2; i++) {
		struct ddp *ddp;
		float sum;

		if (ddp_init(&ddp, NULL) < 0)
			ddp_exit(ddp);
		sum = (float)ddp_world(ddp)->rank;
		if (ddp_all_reduce(ddp, &sum, &sum, 1, DDP_F32, DDP_SUM) < 0)
			ddp_exit(ddp);
		printf("libddp: %g\n", (double)sum);
		ddp_destroy(ddp);
	}
	MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	printf("MPI: %d\n", number);
	MPI_Finalize();
	return 0;
}
