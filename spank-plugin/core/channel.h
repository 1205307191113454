/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel.h - what srun tells every task
 *
 * What all ranks must agree on is decided once, in srun, and travels in one variable,
 *
 *     SLURM_DDP_STEP=v1;key=value;...
 *
 * whose name begins with SLURM so that it survives --export=NONE. The later components of a
 * heterogeneous step see only the part that was known before the step existed; they find the
 * whole record, in the same form, in the file "step" of the rendezvous directory.
 * Unknown keys are skipped: a node may run an older plugin than srun does.
 */
#ifndef DDP_CORE_CHANNEL_H
#define DDP_CORE_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"

#define DDP_CHANNEL_NAME "SLURM_DDP_STEP"

enum {
	DDP_NONCE_SIZE = 17, /* 16 hexadecimal digits and the end */
	DDP_NAME_SIZE = 256, /* a host, a cluster, an address */
	DDP_LIST_SIZE = 4096,
	DDP_ORDER_SIZE = 16384,
	DDP_CHANNEL_SIZE = 65536,
};

struct ddp_channel {
	/* known before the step exists */
	char nonce[DDP_NONCE_SIZE];
	char base[DDP_PATH_SIZE]; /* directory or template; "" if there is none */
	uint32_t base_asked;	  /* 1: the user or the administrator named it */
	uint32_t local_rank;	  /* enum ddp_local_rank_mode */
	uint32_t share;		  /* enum ddp_share_mode */
	uint32_t verbose;
	uint64_t magic;		  /* NCCL_SOCKET_MAGIC; 0: none */
	char from[DDP_NAME_SIZE]; /* host that srun runs on */
	char user[DDP_NAME_SIZE]; /* the user's name, for %u */
	uint32_t run;		  /* 1: ddp-run started srun, and the next three hold */
	uint32_t restart, restarts_max;
	char run_id[DDP_NAME_SIZE];

	/* known once the step exists */
	uint32_t complete; /* 1: the fields below hold */
	char cluster[DDP_NAME_SIZE];
	uint32_t job, step, attempt;
	char node[DDP_NAME_SIZE];   /* NodeName of rank 0 */
	char order[DDP_ORDER_SIZE]; /* SLURM_NODEIDs by the first rank on each; "" if as they are */
	char address[DDP_NAME_SIZE];   /* MASTER_ADDR */
	uint32_t port;		       /* MASTER_PORT */
	char port_from[32];	       /* for people: "computed", "yours", ... */
	uint32_t ras_port;	       /* NCCL_RAS_ADDR; 0: none to be had */
	uint32_t reserved_first;       /* 1: a port that Slurm reserved wins over [port] */
	char directory[DDP_PATH_SIZE]; /* rendezvous directory; "" if there is none */
	char failed[DDP_PATH_SIZE];    /* under ddp-run, for what goes wrong; "" if there is none */
	uint64_t end_time;	       /* 0: Slurm does not say */
	char no_directory[DDP_MESSAGE_SIZE]; /* why there is none, for people */
	char shards[DDP_LIST_SIZE]; /* "8", or "n1:8,n2:16", shards of one GPU; "" if not known */
	char parts
		[DDP_LIST_SIZE]; /* "1/4+4/4", or "n1:1/4+4/4,n2:2/4+2/4", of several GPUs; "" if not known */
	char site_shards[16]; /* the administrator's number, where Slurm's data say none */
	uint32_t pid;	      /* srun's own, and when it began: is it still there? */
	uint64_t began;
	uint32_t standalone; /* 1: torchrun must not be told of other nodes */
	uint32_t stop;	     /* 1: the [problem] is the user's to mend, nothing may run */
	char problem[DDP_MESSAGE_SIZE]; /* why the step must not train; "" if all is well */
};

/*
 * Write [channel] into [buf] of [size] bytes.
 * Returns 0, or -1 if it does not fit.
 */
int ddp_channel_encode(const struct ddp_channel *channel, char *buf, size_t size);

/*
 * Read [text] into [channel], all of which is set: fields that [text] lacks are zero or empty.
 * Returns 0, or -1 with a message if [text] is of another version or malformed.
 */
int ddp_channel_decode(const char *text, struct ddp_channel *channel, struct ddp_message *message);

/*
 * Append ";name=value" to the list in [buf], the value escaped as in the channel.
 * Returns 0, or -1 if it does not fit; [buf] then is unchanged.
 */
int ddp_list_add(char *buf, size_t size, const char *name, const char *value);

/*
 * Find [name] in a [list] that ddp_list_add made and write its value into [value].
 * Returns 0, or -1 if it is missing or does not fit.
 */
int ddp_list_get(const char *list, const char *name, char *value, size_t size);

/*
 * The name of a step's directory, "<cluster>-<job>.<step>.<attempt>-<nonce>".
 * Returns 0, or -1 if it does not fit or the cluster's name has a slash.
 */
int ddp_channel_directory_name(const struct ddp_channel *channel, char *name, size_t size);

/*
 * The shards of one GPU of [node], from channel.shards.
 * Returns 0 where it is not known.
 */
uint32_t ddp_channel_shards(const struct ddp_channel *channel, const char *node);

/*
 * The parts of [node]'s GPUs that the job has, "1/4+4/4", from channel.parts; [parts] has DDP_NAME_SIZE bytes.
 * Returns [parts], "" where they are not known.
 */
const char *ddp_channel_parts(const struct ddp_channel *channel, const char *node, char *parts);

#endif /* DDP_CORE_CHANNEL_H */
