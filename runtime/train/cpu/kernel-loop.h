/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel-loop.h - all kernels of one instruction set
 *
 * Included by one file for each, which defines what kernel-vector.h says, and NAME of the set.
 */
#include "kernel-elements.h"
#include "kernel-list.h"
#include "kernel-norm.h"
#include "kernel-pool.h"

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)

const struct kernels JOIN(kernels_, NAME) = {
	.name = TEXT(NAME),
	.max_pool = max_pool,
	.max_pool_back = max_pool_back,
	.mask = mask,
	.relu_back = relu_back,
	.relu = relu,
	.add = add,
	.moments = moments,
	.norm = norm,
	.norm_sums = norm_sums,
	.norm_back = norm_back,
	.average_pool = average_pool,
	.average_pool_back = average_pool_back,
	.loss = kernels_loss,
	.list = list,
	.list_weights = list_weights,
	.list_data = list_data,
	.narrow = narrow,
	.widen = widen,
};
