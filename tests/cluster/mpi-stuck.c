/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi-stuck.c - MPI that does not come back, linked with a program of libddp's
 *
 * From SIGUSR1 on no call of MPI_Testsome() returns, as where MPI waits for a peer that is gone.
 */
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t stuck;

static void get_stuck(int number)
{
	(void)number;
	stuck = 1;
}

__attribute__((constructor)) static void prepare(void)
{
	signal(SIGUSR1, get_stuck);
}

int MPI_Testsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *statuses)
{
	while (stuck)
		pause();
	return PMPI_Testsome(count, requests, ended, indices, statuses);
}
