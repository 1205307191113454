/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card.h - what a rank knows of its place, for the table of ddp-info
 */
#ifndef DDP_INFO_CARD_H
#define DDP_INFO_CARD_H

#include <ddp.h>

struct info_card {
	int32_t rank, node_rank, local_rank, local_size;
	int32_t pid;
	int32_t cpus;	       /* how many this rank may use */
	int32_t visible;       /* devices that it sees, -1: not said */
	int32_t device;	       /* -1: none */
	int32_t reached;       /* endpoint: 1 yes, 0 no, -1 not tried */
	double share;	       /* 0: not known */
	uint64_t cpu_mask[16]; /* CPUs 0 to 1023 */
	char host[64];
	char cpu_list[64]; /* "0-3,8", cut with "..." */
	char uuid[48];	   /* of the device, "" if not known */
	char device_name[64];
	char endpoint[96];  /* MASTER_ADDR:MASTER_PORT, "" if none */
	char why_not[96];   /* if not reached */
	char release[32];   /* of libddp */
	char libraries[96]; /* versions that must be alike: "NCCL 2.28.9, driver 580" */
};

/* Fill [card] with what this process can find out by itself. */
void info_card_fill(struct info_card *card, const struct ddp_world *world);

/* The CPUs of [mask] as "0-3,8" in [text]. Pure. */
void info_cpu_list(const uint64_t mask[16], char *text, size_t size);

/* Ask the driver about device [index]: UUID, name, versions; leaves them "" without a driver. */
void info_card_device(struct info_card *card, int index);

#endif /* DDP_INFO_CARD_H */
