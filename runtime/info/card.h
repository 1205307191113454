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
	int32_t mps;	       /* enum ddp_mps_state of CUDA's daemon on its node */
	int32_t client;	       /* of MPS, says the driver: 1, 0, -1 not said */
	int32_t exclusive;     /* the GPU is for one process at a time */
	int32_t apart;	       /* DDP_LOCAL=off: it shares no memory with others */
	int32_t first;	       /* the lowest rank on its GPU; -1: not known, see sharing.h */
	int32_t mates;	       /* ranks on its GPU, itself included; 0: not known */
	double share;	       /* 0: not known */
	double threads;	       /* percent of the GPU's that MPS is to keep it to, 0: all */
	uint64_t total;	       /* bytes of the GPU's memory, 0: not known */
	uint64_t free;	       /* of these, when ddp-info began; 0: not known */
	uint64_t context;      /* bytes that a CUDA context takes, 0: not known */
	uint64_t cpu_mask[16]; /* CPUs 0 to 1023 */
	char host[64];
	char cpu_list[64];	/* "0-3,8", cut with "..." */
	char uuid[48];		/* of the device, "" if not known */
	char slot[16];		/* Slurm's number of it on the node, "" if not known */
	char sharers[32];	/* ranks on the same GPU, "0-3", where there are several */
	char trouble[96];	/* what the driver says against using the device, "" if nothing */
	char mps_directory[96]; /* where the daemon is looked for */
	char memory_limit[24];	/* that MPS is to keep it to, "4G", as CUDA reads it; "": none */
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

/*
 * Ask the driver about device [index]: UUID, name, memory, versions, MPS; leaves all as it is without
 * a driver.
 */
void info_card_device(struct info_card *card, int index);

/* Take a CUDA context on the device, note in [card] what memory it takes, and give it back. */
void info_card_context(struct info_card *card);

struct info_copier; /* copies between the host and a GPU */

/* For the device [index]; NULL where the driver lets nobody copy. It is not given back. */
struct info_copier *info_copier_open(int index);
bool info_copy_in(struct info_copier *copier, void *device, const void *host, size_t bytes);
bool info_copy_out(struct info_copier *copier, void *host, const void *device, size_t bytes);

#endif /* DDP_INFO_CARD_H */
