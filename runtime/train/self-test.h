/* SPDX-License-Identifier: Apache-2.0 */
/* self-test.h - comparison of a GPU with the CPU engine (--self-test) */
#ifndef TRAIN_SELF_TEST_H
#define TRAIN_SELF_TEST_H

/*
 * Trains the network [net], or each network if [net] is NULL, for a few steps on CPUs and on a GPU.
 * Prints one line with the differences of the losses. Returns the exit status: 0 if the differences
 * are small, 1 if they are not or after an error.
 */
int self_test(const char *net);

#endif /* TRAIN_SELF_TEST_H */
