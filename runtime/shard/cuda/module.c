/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "gpu.h"

DDP_API const struct ddp_shard_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_SHARD_VERSION, sizeof(struct ddp_shard_engine), "shard",
		 "shard", PACKAGE_VERSION},
	.open = ddp_shard_gpu_open,
	.alloc = ddp_shard_gpu_alloc,
	.disclose = ddp_shard_gpu_disclose,
	.import = ddp_shard_gpu_import,
	.release = ddp_shard_gpu_release,
	.know = ddp_shard_gpu_know,
	.wait = ddp_shard_gpu_wait,
	.write = ddp_shard_gpu_write,
	.sum = ddp_shard_gpu_sum,
	.copy = ddp_shard_gpu_copy,
	.zero = ddp_shard_gpu_zero,
	.idle = ddp_shard_gpu_idle,
	.captured = ddp_shard_gpu_captured,
	.stream = ddp_shard_gpu_own,
	.describe = ddp_shard_gpu_describe,
	.close = ddp_shard_gpu_close,
};
