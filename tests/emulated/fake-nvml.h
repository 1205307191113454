/* SPDX-License-Identifier: Apache-2.0 */
/* fake-nvml.h - a management library of the driver's that says what it is told to, by way of dlopen() */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stdbool.h>

/* As nvml.h has nvmlProcessInfo_t. */
struct fake_process {
	unsigned int pid;
	unsigned long long bytes; /* all ones: not known */
	unsigned int instance, part;
};

struct fake_nvml {
	bool there;
	unsigned int count;
	struct fake_process processes[4];
};

extern struct fake_nvml fake_nvml;

#endif /* FAKE_NVML_H */
