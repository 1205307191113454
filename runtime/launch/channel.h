/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel.h - data that srun passes to every task
 *
 * srun makes all decisions on which the ranks must agree, and passes them in one variable:
 *
 *     SLURM_DDP_STEP=v2;key=value;...
 *
 * The name begins with SLURM so that the variable survives --export=NONE. The file "step" in the
 * rendezvous directory has the same text. Unknown keys are ignored.
 */
#ifndef DDP_CHANNEL_H
#define DDP_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format.h"

#define DDP_CHANNEL_NAME "SLURM_DDP_STEP"

enum {
	DDP_NONCE_SIZE = 17, /* 16 hexadecimal digits and a terminating zero */
	DDP_NAME_SIZE = 256, /* bytes of a host's or cluster's name, or of an address */
	DDP_CHANNEL_SIZE = 65536,
};

struct ddp_channel {
	/*
	 * These two members are not encoded, because only the process that creates the rendezvous
	 * directory uses them.
	 */
	char base[DDP_PATH_SIZE]; /* path or template of the directory; "" if there is none */
	char user[DDP_NAME_SIZE]; /* user's name, for %u */

	char nonce[DDP_NONCE_SIZE];
	uint32_t base_asked; /* 1 if the user or the administrator chose [base] */
	uint32_t local_rank; /* enum ddp_local_rank_mode */
	uint32_t share;	     /* enum ddp_share_mode */
	uint32_t verbose;
	uint64_t magic;		  /* NCCL_SOCKET_MAGIC; 0: none */
	char from[DDP_NAME_SIZE]; /* host of srun */
	uint32_t run; /* 1: ddp-run started srun, and restart, restarts_max and run_id are valid */
	uint32_t restart, restarts_max;
	char run_id[DDP_NAME_SIZE];
	char cluster[DDP_NAME_SIZE];
	uint32_t job, step, attempt;
	char node[DDP_NAME_SIZE];    /* NodeName of rank 0's node */
	uint32_t first_node;	     /* SLURM_NODEID of rank 0's node */
	char address[DDP_NAME_SIZE]; /* MASTER_ADDR */
	uint32_t port;		     /* MASTER_PORT */
	char port_from[32];	 /* source of the port, for messages: "computed" or "--ddp-port" */
	uint32_t reserved_first; /* 1: a port reserved by Slurm takes precedence over [port] */
	char directory[DDP_PATH_SIZE]; /* rendezvous directory; "" if there is none */
	/* directory for failure records under ddp-run; "" if there is none */
	char failed[DDP_PATH_SIZE];
	uint64_t end_time; /* end of the job's time limit; 0: unknown */
	/* why there is no rendezvous directory, for messages */
	char no_directory[DDP_MESSAGE_SIZE];
	uint32_t shards; /* shards per GPU; 0: unknown */
	uint32_t pid;	 /* process id of srun, to check whether it is running */
	uint64_t began;	 /* start time of that process, since process ids are reused */
	/*
	 * 1: the program is torchrun --standalone, which must not get variables that name other
	 * nodes
	 */
	uint32_t standalone;
	uint32_t starts_ranks;	   /* 1: the program can start a rank for each GPU */
	uint32_t torchrun;	   /* 1: the program is torchrun */
	uint32_t launcher_allowed; /* 1: --ddp-launcher=allow */
	char nproc[32];		   /* value of the program's --nproc-per-node; "" if it has none */
	char problem[DDP_MESSAGE_SIZE]; /* why the step must not train; "" if there is no problem */
};

/*
 * Encode [channel] in [buf] of [size] bytes.
 * Returns 0, or -1 if it does not fit.
 */
int ddp_channel_encode(const struct ddp_channel *channel, char *buf, size_t size);

/*
 * Decode [text] to [channel]. Fields that [text] lacks become zero or empty.
 * Returns 0, or -1 with a message if [text] has another version or is malformed.
 */
int ddp_channel_decode(const char *text, struct ddp_channel *channel, struct ddp_message *message);

/*
 * Append ";name=value" to the list in [buf], with the value escaped as in the channel.
 * Returns 0, or -1 with [buf] unchanged if it does not fit.
 */
int ddp_list_add(char *buf, size_t size, const char *name, const char *value);

/*
 * Find [name] in a [list] made by ddp_list_add(), and write its value to [value].
 * Returns 0, or -1 if it is missing or does not fit.
 */
int ddp_list_get(const char *list, const char *name, char *value, size_t size);

/*
 * Write the name of the step's directory, "<cluster>-<job>.<step>.<attempt>-<nonce>".
 * Returns 0, or -1 if it does not fit or the cluster's name has a slash.
 */
int ddp_channel_directory_name(const struct ddp_channel *channel, char *name, size_t size);

/*
 * Find the value of [name] in [env], if the user set it. An empty value, or a value that an outer
 * --ddp step set, does not count.
 * Returns a pointer into [env], or NULL.
 */
const char *ddp_users_value(char *const *env, const char *name);

#endif /* DDP_CHANNEL_H */
