/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parameters.h - the parameters of each network, as PyTorch 1.13.1 makes them after
 * manual_seed(1) on a processor with AVX2: shape, first and last value (tests/interop/networks.py)
 */
#ifndef TESTS_TRAIN_PARAMETERS_H
#define TESTS_TRAIN_PARAMETERS_H

#include <stdint.h>

struct parameter_row {
	const char *name;
	int dimensions;
	int64_t shape[4];
	float first, last;
};

static const struct parameter_row mnist_rows[] = {
	{"conv1.weight", 4, {32, 1, 3, 3}, 0x1.5fc0c6p-3f, 0x1.1f36cp-2f},
	{"conv1.bias", 1, {32}, -0x1.02a62p-4f, 0x1.f82496p-4f},
	{"conv2.weight", 4, {64, 32, 3, 3}, -0x1.7e34f6p-7f, 0x1.b95e7ap-9f},
	{"conv2.bias", 1, {64}, -0x1.a6f65ap-6f, -0x1.ad4d38p-6f},
	{"fc1.weight", 2, {128, 9216}, 0x1.6c8746p-8f, 0x1.59b12cp-11f},
	{"fc1.bias", 1, {128}, -0x1.97a82p-9f, -0x1.366f3cp-7f},
	{"fc2.weight", 2, {10, 128}, 0x1.f9c532p-5f, 0x1.48a106p-5f},
	{"fc2.bias", 1, {10}, -0x1.27916p-4f, 0x1.9b5d6ep-5f},
};

static const struct parameter_row cifar_rows[] = {
	{"conv1.weight", 4, {64, 3, 3, 3}, 0x1.962b5ep-4f, -0x1.722af4p-4f},
	{"bn1.weight", 1, {64}, 0x1p+0f, 0x1p+0f},
	{"bn1.bias", 1, {64}, 0x0p+0f, 0x0p+0f},
	{"layer1.0.conv1.weight", 4, {64, 64, 3, 3}, 0x1.f80a16p-8f, -0x1.16daf6p-7f},
	{"layer1.0.bn1.weight", 1, {64}, 0x1p+0f, 0x1p+0f},
	{"layer1.0.bn1.bias", 1, {64}, 0x0p+0f, 0x0p+0f},
	{"layer1.0.conv2.weight", 4, {64, 64, 3, 3}, 0x1.5259a6p-5f, -0x1.302408p-5f},
	{"layer1.0.bn2.weight", 1, {64}, 0x1p+0f, 0x1p+0f},
	{"layer1.0.bn2.bias", 1, {64}, 0x0p+0f, 0x0p+0f},
	{"layer1.1.conv1.weight", 4, {64, 64, 3, 3}, 0x1.7b171p-6f, 0x1.33a076p-5f},
	{"layer1.1.bn1.weight", 1, {64}, 0x1p+0f, 0x1p+0f},
	{"layer1.1.bn1.bias", 1, {64}, 0x0p+0f, 0x0p+0f},
	{"layer1.1.conv2.weight", 4, {64, 64, 3, 3}, 0x1.c03ap-10f, -0x1.425a66p-5f},
	{"layer1.1.bn2.weight", 1, {64}, 0x1p+0f, 0x1p+0f},
	{"layer1.1.bn2.bias", 1, {64}, 0x0p+0f, 0x0p+0f},
	{"layer2.0.conv1.weight", 4, {128, 64, 3, 3}, -0x1.173ae4p-5f, -0x1.8fa216p-6f},
	{"layer2.0.bn1.weight", 1, {128}, 0x1p+0f, 0x1p+0f},
	{"layer2.0.bn1.bias", 1, {128}, 0x0p+0f, 0x0p+0f},
	{"layer2.0.conv2.weight", 4, {128, 128, 3, 3}, 0x1.1a6f4ap-7f, -0x1.1b6184p-6f},
	{"layer2.0.bn2.weight", 1, {128}, 0x1p+0f, 0x1p+0f},
	{"layer2.0.bn2.bias", 1, {128}, 0x0p+0f, 0x0p+0f},
	{"layer2.0.downsample.0.weight", 4, {128, 64, 1, 1}, 0x1.64857cp-4f, 0x1.c2ab5p-6f},
	{"layer2.0.downsample.1.weight", 1, {128}, 0x1p+0f, 0x1p+0f},
	{"layer2.0.downsample.1.bias", 1, {128}, 0x0p+0f, 0x0p+0f},
	{"layer2.1.conv1.weight", 4, {128, 128, 3, 3}, -0x1.3e59e6p-6f, -0x1.8a5c7p-7f},
	{"layer2.1.bn1.weight", 1, {128}, 0x1p+0f, 0x1p+0f},
	{"layer2.1.bn1.bias", 1, {128}, 0x0p+0f, 0x0p+0f},
	{"layer2.1.conv2.weight", 4, {128, 128, 3, 3}, 0x1.045238p-8f, 0x1.4a7baep-6f},
	{"layer2.1.bn2.weight", 1, {128}, 0x1p+0f, 0x1p+0f},
	{"layer2.1.bn2.bias", 1, {128}, 0x0p+0f, 0x0p+0f},
	{"layer3.0.conv1.weight", 4, {256, 128, 3, 3}, 0x1.6ae156p-9f, 0x1.3dbfccp-9f},
	{"layer3.0.bn1.weight", 1, {256}, 0x1p+0f, 0x1p+0f},
	{"layer3.0.bn1.bias", 1, {256}, 0x0p+0f, 0x0p+0f},
	{"layer3.0.conv2.weight", 4, {256, 256, 3, 3}, 0x1.484a74p-6f, 0x1.68d14cp-7f},
	{"layer3.0.bn2.weight", 1, {256}, 0x1p+0f, 0x1p+0f},
	{"layer3.0.bn2.bias", 1, {256}, 0x0p+0f, 0x0p+0f},
	{"layer3.0.downsample.0.weight", 4, {256, 128, 1, 1}, 0x1.7dae7cp-9f, 0x1.d39a0ap-5f},
	{"layer3.0.downsample.1.weight", 1, {256}, 0x1p+0f, 0x1p+0f},
	{"layer3.0.downsample.1.bias", 1, {256}, 0x0p+0f, 0x0p+0f},
	{"layer3.1.conv1.weight", 4, {256, 256, 3, 3}, 0x1.51f638p-6f, 0x1.4dd39cp-7f},
	{"layer3.1.bn1.weight", 1, {256}, 0x1p+0f, 0x1p+0f},
	{"layer3.1.bn1.bias", 1, {256}, 0x0p+0f, 0x0p+0f},
	{"layer3.1.conv2.weight", 4, {256, 256, 3, 3}, -0x1.08501cp-7f, -0x1.26386cp-6f},
	{"layer3.1.bn2.weight", 1, {256}, 0x1p+0f, 0x1p+0f},
	{"layer3.1.bn2.bias", 1, {256}, 0x0p+0f, 0x0p+0f},
	{"layer4.0.conv1.weight", 4, {512, 256, 3, 3}, 0x1.e56216p-8f, 0x1.772f56p-8f},
	{"layer4.0.bn1.weight", 1, {512}, 0x1p+0f, 0x1p+0f},
	{"layer4.0.bn1.bias", 1, {512}, 0x0p+0f, 0x0p+0f},
	{"layer4.0.conv2.weight", 4, {512, 512, 3, 3}, -0x1.f94db4p-9f, -0x1.28dd56p-7f},
	{"layer4.0.bn2.weight", 1, {512}, 0x1p+0f, 0x1p+0f},
	{"layer4.0.bn2.bias", 1, {512}, 0x0p+0f, 0x0p+0f},
	{"layer4.0.downsample.0.weight", 4, {512, 256, 1, 1}, -0x1.303b38p-5f, -0x1.02baa8p-6f},
	{"layer4.0.downsample.1.weight", 1, {512}, 0x1p+0f, 0x1p+0f},
	{"layer4.0.downsample.1.bias", 1, {512}, 0x0p+0f, 0x0p+0f},
	{"layer4.1.conv1.weight", 4, {512, 512, 3, 3}, -0x1.d3639ap-7f, 0x1.9d1364p-7f},
	{"layer4.1.bn1.weight", 1, {512}, 0x1p+0f, 0x1p+0f},
	{"layer4.1.bn1.bias", 1, {512}, 0x0p+0f, 0x0p+0f},
	{"layer4.1.conv2.weight", 4, {512, 512, 3, 3}, -0x1.9ac4eap-10f, -0x1.23299ap-8f},
	{"layer4.1.bn2.weight", 1, {512}, 0x1p+0f, 0x1p+0f},
	{"layer4.1.bn2.bias", 1, {512}, 0x0p+0f, 0x0p+0f},
	{"fc.weight", 2, {10, 512}, 0x1.77e738p-7f, -0x1.25bfecp-9f},
	{"fc.bias", 1, {10}, 0x1.e08364p-7f, 0x1.b19f26p-6f},
};

#endif /* TESTS_TRAIN_PARAMETERS_H */
