/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "nccl_device.h"

DDP_API const struct ddp_device_engine ddp_module = {
	.head = {DDP_MODULE_MAGIC, DDP_DEVICE_VERSION, sizeof(struct ddp_device_engine), "device",
		 "nccl", PACKAGE_VERSION},
	.open = ddp_nccl_open,
	.card = ddp_nccl_card,
	.identity = ddp_nccl_identity,
	.connect = ddp_nccl_connect,
	.all_reduce = ddp_nccl_all_reduce,
	.broadcast = ddp_nccl_broadcast,
	.all_gather = ddp_nccl_all_gather,
	.alloc = ddp_nccl_alloc,
	.free = ddp_nccl_free,
	.stream = ddp_nccl_stream,
	.order = ddp_nccl_order,
	.convert = ddp_nccl_convert,
	.count = ddp_nccl_count,
	.wait = ddp_nccl_wait,
	.health = ddp_nccl_health,
	.warn = ddp_nccl_warn,
	.abort = ddp_nccl_abort,
	.describe = ddp_nccl_describe,
	.close = ddp_nccl_close,
};
