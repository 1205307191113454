/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info.h - ddp-info: what each rank knows of its place, what that says of all of them, and a self-test
 *
 * info/ is the program ddp-info. It calls ddp.h and base/; its --check also uses the plugin's table of options and wide/'s
 * rules for networks. Start reading in ddp-info.c.
 *
 * Each rank fills a card; all have the cards of all. From these alone follow who shares a GPU, what
 * looks wrong, and the report.
 */
#ifndef DDP_INFO_H
#define DDP_INFO_H

#include "base/text.h"

/* --- What a rank knows of its place -------------------------------------------------------- */

struct info_card {
	int32_t rank, node_rank, local_rank, local_size;
	int32_t group_size; /* ranks that share memory with it, itself included */
	int32_t pid;
	int32_t visible;   /* devices that it sees, -1: not said */
	int32_t device;	   /* -1: none */
	int32_t reached;   /* endpoint: 1 yes, 0 no, -1 not tried */
	int32_t mps;	   /* enum ddp_mps_state of CUDA's daemon on its node */
	int32_t client;	   /* of MPS, says the driver: 1, 0, -1 not said */
	int32_t exclusive; /* the GPU is for one process at a time */
	int32_t first;	   /* the lowest rank on its GPU; -1: not known */
	int32_t mates;	   /* ranks on its GPU, itself included; 0: not known */
	int32_t whole; /* whole GPUs for all ranks of its node, if each is a task of a step; else 0 */
	int32_t node_cpus; /* CPUs of its node, 0: not known */
	int32_t own_cpus;  /* CPUs that Slurm allocated for it, at most those of [cpus] */
	double share;	   /* 0: not known */
	double threads;	   /* percent of the GPU's that MPS is to keep it to, 0: all */
	uint64_t total;	   /* bytes of the GPU's memory, 0: not known */
	uint64_t free;	   /* of these, when ddp-info began; 0: not known */
	uint64_t context;  /* bytes that a CUDA context takes, 0: not known */
	uint64_t shm;	   /* bytes of /dev/shm, 0: not known */
	cpu_set_t cpus;	   /* that it may use */
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
	char transport[96]; /* between groups: "TCP (eth0, 10.0.0.7:4242, 3 connections)" */
	char libraries[96]; /* versions that must be alike: "CUDA driver 13.0" */
};

/* Fill [card] with what this process can find out by itself. */
void info_card_fill(struct info_card *card, const struct ddp_world *world);

/*
 * Can rank 0's endpoint be reached from every node? Rank 0 listens on its port, one rank of each
 * other node connects; cards get reached and why_not. Where there is no endpoint, or the port is
 * in use, nobody tries. Collective. Returns 0 or a DDP_ERR_x.
 */
int info_card_reach(struct info_card *card, struct ddp *ddp);

/* Take a CUDA context on the device, note in [card] what memory it takes, and give it back. */
void info_card_context(struct info_card *card);

struct info_copier; /* copies between the host and a GPU */

/* For the device [index]; NULL where the driver lets nobody copy. It is not given back. */
struct info_copier *info_copier_open(int index);

/* From [host] to [device], or back. */
bool info_copy(struct info_copier *copier, void *device, void *host, size_t bytes, bool back);

/* --- What that says of all of them: pure, cards in, words out ------------------------------ */

/*
 * Set first, mates and sharers of the [cards] of all [size] ranks, in rank order. A GPU is known by
 * its node and UUID, that of a slice under MIG; without a driver to ask, by Slurm's number of it on
 * the node. Who poses as several hosts (NCCL_HOSTID) shares it all the same, which libddp's sums do
 * not count so (device/cards.h).
 */
void info_sharing_find(struct info_card *cards, int size);

/* A GPU of which somebody has a part only. */
struct info_sharing {
	int first, ranks;	   /* the lowest of them, and how many */
	double least, most, sum;   /* of their shares; 0: not known */
	double bytes;		   /* that the shares come to */
	double slowest, quickest;  /* percent of threads; 0: no limit */
	bool mps, threads, memory; /* they go through MPS, which keeps these limits */
};

/*
 * After info_sharing_find(): whether [rank] is the first on a GPU that several ranks share, or of
 * which it has a part only. Then all about it is in [sharing].
 */
bool info_sharing_at(const struct info_card *cards, int size, int rank,
		     struct info_sharing *sharing);

/* "GPU-... on n1". */
void info_sharing_name(const struct info_card *card, char *text, size_t size);

enum { INFO_WARNINGS = 16, INFO_WARNING_SIZE = 320 };

/* What is likely to be wrong. A line says what is, and what to do about it. */
struct info_warnings {
	int count;
	char text[INFO_WARNINGS][INFO_WARNING_SIZE];
};

/* Look at the [cards] of all [size] ranks, in rank order, after info_sharing_find(). */
void info_warn(const struct info_card *cards, int size, struct info_warnings *warnings);

/* The same for what is right, and could be better. */
void info_advise(const struct info_card *cards, int size, struct info_warnings *advice);

/* --- The self-test: an all-reduce of every size, verified and timed ------------------------ */

struct info_timing {
	size_t bytes;
	double median; /* seconds, of the slowest rank */
	double best;
	uint64_t wrong; /* elements, over all ranks */
};

struct info_selftest {
	bool device;	  /* in memory of GPUs */
	const char *path; /* ddp_device_path() */
	int count;
	struct info_timing timings[16];
};

/*
 * All-reduce float vectors of 4 bytes to [limit] in an arena; with test->device in memory of this
 * rank's GPU, after ddp_device_join(). Collective.
 * Returns 0, also where sums were wrong, or a DDP_ERR_x.
 */
int info_selftest_run(struct info_selftest *test, struct ddp *ddp, size_t limit);

/* Elements that were wrong in all of [test]. */
uint64_t info_selftest_wrong(const struct info_selftest *test);

/* --- The report ---------------------------------------------------------------------------- */

struct info_report {
	const struct ddp_world *world;
	const struct info_card *cards; /* world->size of them, after info_sharing_find() */
	const struct info_warnings *warnings, *advice;
	const struct info_selftest *test; /* NULL: not run */
};

/* Columns that say nothing for any rank (no devices, no shares) are left out. */
void info_report_table(const struct info_report *report, struct ddp_text *out);

/* One object; keys are stable: ranks, sharing, warnings, advice, selftest. */
void info_report_json(const struct info_report *report, struct ddp_text *out);

#endif /* DDP_INFO_H */
