/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pretend-gpu.h - the properties of an H200, as cuDNN 9.19 reads them
 *
 * The names are not documented: cuDNN says which it misses.
 */
#ifndef DDP_TESTS_PRETEND_GPU_H
#define DDP_TESTS_PRETEND_GPU_H

#include "cuda/conv-cudnn.h"

static const char pretend_gpu[] =
	"{\"deviceVer\": 900, \"driverVer\": 13000, \"cudaDeviceId\": 0,"
	" \"multiProcessorCount\": 132, \"smClockRateKHz\": 1980000,"
	" \"memClockRateKHz\": 3201000, \"l2CacheSize\": 62914560, \"warpSize\": 32,"
	" \"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64],"
	" \"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448,"
	" \"reservedSharedMemoryPerBlock\": 1024, \"regsPerBlock\": 65536,"
	" \"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, \"maxCtasPerSM\": 32,"
	" \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"isTccDriver\": 0,"
	" \"supportCoopLaunch\": 1, \"totalGlobalMem\": 150110011392,"
	" \"deviceName\": \"NVIDIA H200\", \"name\": \"NVIDIA H200\"}";

/* cuDNN loads its engines when it is first asked: once here, and not in the process of each test. */
static inline void pretend_load_engines(const struct conv_limits *limits)
{
	struct conv_options options = {.height = 8,
				       .width = 8,
				       .in = 8,
				       .out = 8,
				       .size = 1,
				       .stride = 1,
				       .type = DDP_F16};
	struct conv_problem problem = {&options, CONV_FORWARD, 1, true};
	struct choices_plan choice;
	char text[256];

	conv_plans(&problem, limits, &choice, 1, text, sizeof(text));
}

#endif /* DDP_TESTS_PRETEND_GPU_H */
