/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info.h - ddp-info: facts about each rank, findings from the facts of all ranks, and a self-test
 *
 * info/ is the program ddp-info. It calls ddp.h and base/. Its option --check runs the script
 * check-site and check-facts.c, which uses the plugin's table of options and the rules of wide/ for
 * networks. Start reading in ddp-info.c.
 *
 * Each rank fills in a card (struct info_card), and an all-gather gives all cards to every rank.
 * The shared GPUs, the warnings and the report are computed from the cards alone.
 */
#ifndef DDP_INFO_H
#define DDP_INFO_H

#include "base/text.h"

/* --- Facts about one rank ------------------------------------------------------------------ */

struct info_card {
	int32_t rank, node_rank, local_rank, local_size;
	int32_t group_size; /* ranks that share memory with this rank, including this rank */
	int32_t pid;
	int32_t visible; /* devices in CUDA_VISIBLE_DEVICES; -1: unset */
	int32_t device;	 /* the device in use; -1: no device */
	int32_t reached; /* 1: this rank reached the endpoint; 0: it did not; -1: not tried */
	int32_t mps;	 /* enum ddp_mps_state of the MPS daemon on the node */
	int32_t client;	 /* 1: the driver reports MPS for this rank; 0: it does not; -1: unknown */
	int32_t exclusive; /* 1: the GPU is in exclusive mode, for one process at a time */
	int32_t first;	   /* lowest rank on the same GPU; -1: unknown */
	int32_t mates;	   /* number of ranks on the same GPU, including this rank; 0: unknown */
	int32_t whole; /* GPUs of the step on this node if its tasks use them together; else 0 */
	int32_t node_cpus; /* CPUs of the node; 0: unknown */
	int32_t own_cpus;  /* CPUs that Slurm allocated for this rank; at most those of [cpus] */
	double share;	   /* fraction of the GPU; 0: unknown */
	double threads;	   /* MPS limit of GPU threads, in percent; 0: no limit */
	uint64_t total;	   /* bytes of GPU memory; 0: unknown */
	uint64_t free;	   /* bytes of GPU memory that were free at the start; 0: unknown */
	uint64_t context;  /* bytes of GPU memory that a CUDA context uses; 0: unknown */
	uint64_t shm;	   /* bytes of /dev/shm; 0: unknown */
	cpu_set_t cpus;	   /* CPUs on which this rank is allowed to run */
	char host[64];
	char cpu_list[64]; /* "0-3,8", cut with "..." */
	char uuid[48];	   /* UUID of the device; "": unknown */
	char slot[16];	   /* index of the device in Slurm's numbering on the node; "": unknown */
	char sharers[32];  /* ranks on the same GPU, such as "0-3", if there are several */
	char trouble[96];  /* the driver's reason for refusing the device; "": none */
	char mps_directory[96]; /* where the MPS daemon's socket is expected */
	char memory_limit[24];	/* MPS limit of memory, "4G" in CUDA's format; "": no limit */
	char device_name[64];
	char endpoint[96];  /* MASTER_ADDR:MASTER_PORT; "": none */
	char why_not[96];   /* why the endpoint was not reached, if reached is 0 */
	char transport[96]; /* between groups: "TCP (eth0, 10.0.0.7:4242, 3 connections)" */
	char libraries[96]; /* versions that must be equal on all ranks: "CUDA driver 13.0" */
};

/* Fill in [card] with the facts that do not depend on other ranks. */
void info_card_fill(struct info_card *card, const struct ddp_world *world);

/* Returns the number of devices in [list], a value of CUDA_VISIBLE_DEVICES, or -1 if it is NULL. */
int info_visible_devices(const char *list);

/*
 * Test whether each node can connect to rank 0's endpoint, and set the members reached and why_not.
 * Rank 0 listens on the port, and one rank of each other node connects to it. There is no test if
 * there is no endpoint, or if the port is in use. Collective. Returns 0 or a DDP_ERR_x.
 */
int info_card_reach(struct info_card *card, struct ddp *ddp);

/*
 * Create a CUDA context on the device, set card->context to the memory that the context uses, and
 * release the context.
 */
void info_card_context(struct info_card *card);

/* Driver functions: member of struct info_driver, parameter types, symbol name. */
#define INFO_DRIVER_CALLS(X)                                                                     \
	X(init, (unsigned), "cuInit")                                                            \
	X(version, (int *), "cuDriverGetVersion")                                                \
	X(count, (int *), "cuDeviceGetCount")                                                    \
	X(get, (int *device, int index), "cuDeviceGet")                                          \
	X(name, (char *, int, int device), "cuDeviceGetName")                                    \
	X(uuid, (unsigned char *, int device), "cuDeviceGetUuid")                                \
	X(total, (size_t *, int device), "cuDeviceTotalMem_v2")                                  \
	X(attribute, (int *, int, int device), "cuDeviceGetAttribute")                           \
	X(retain, (void **context, int device), "cuDevicePrimaryCtxRetain")                      \
	X(release, (int device), "cuDevicePrimaryCtxRelease_v2")                                 \
	X(current, (void *context), "cuCtxSetCurrent")                                           \
	X(wait, (void), "cuCtxSynchronize")                                                      \
	X(alloc, (unsigned long long *, size_t), "cuMemAlloc_v2")                                \
	X(release_memory, (unsigned long long), "cuMemFree_v2")                                  \
	X(pin, (void **, size_t), "cuMemAllocHost_v2")                                           \
	X(unpin, (void *), "cuMemFreeHost")                                                      \
	X(in, (unsigned long long, const void *, size_t), "cuMemcpyHtoD_v2")                     \
	X(out, (void *, unsigned long long, size_t), "cuMemcpyDtoH_v2")                          \
	X(load, (void **module, const void *), "cuModuleLoadData")                               \
	X(find, (void **function, void *module, const char *), "cuModuleGetFunction")            \
	X(launch,                                                                                \
	  (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, \
	   void **, void **),                                                                    \
	  "cuLaunchKernel")                                                                      \
	X(error, (int, const char **), "cuGetErrorString")

struct info_driver {
#define INFO_MEMBER(member, arguments, name) int(*member) arguments;
	INFO_DRIVER_CALLS(INFO_MEMBER)
#undef INFO_MEMBER
	int (*slice_uuid)(unsigned char *, int device); /* returns the UUID of a MIG slice itself */
};

/*
 * Load the CUDA driver. It is never unloaded, because it starts threads. Returns false if it is
 * missing or lacks a function.
 */
bool info_driver_load(struct info_driver *driver);

/* Returns the driver's text for [status]. */
const char *info_driver_error(const struct info_driver *driver, int status);

struct info_copier; /* state for copies between the host and a GPU */

/*
 * Open a copier for device [index]. The copier exists until the process ends. Returns NULL if the
 * driver does not allow copies.
 */
struct info_copier *info_copier_open(int index);

/* Copy from [host] to [device], or with [back] from [device] to [host]. */
bool info_copy(struct info_copier *copier, void *device, void *host, size_t bytes, bool back);

/* --- Findings: computed from the cards alone ----------------------------------------------- */

/*
 * Set first, mates and sharers of the [cards] of all [size] ranks, in rank order. A GPU is
 * identified by its node and UUID (a MIG slice has its own UUID); without a driver, by its node and
 * Slurm's index on the node. NCCL_HOSTID is ignored, unlike in device/choice.c, which serves NCCL:
 * ranks with different values may still share a GPU.
 */
void info_sharing_find(struct info_card *cards, int size);

/* Whether the rank shares its GPU with other ranks, or has a part of it. */
bool info_is_shared(const struct info_card *card);

/*
 * Whether the rank uses MPS. If the driver is too old to report that, the rank is assumed to use
 * MPS if an MPS daemon exists.
 */
bool info_through_mps(const struct info_card *card);

/* A GPU that several ranks share, or a part of a GPU that one rank has. */
struct info_sharing {
	int first, ranks; /* lowest rank on the GPU, and number of ranks */
	double sum;	  /* sum of the shares; 0: unknown */
	double bytes;	  /* GPU memory of all shares together, in bytes */
	double quickest;  /* highest MPS limit of threads, in %; 0: no limit */
	/* all ranks use MPS; MPS limits the threads of all; MPS limits the memory of all */
	bool mps, threads, memory;
};

/*
 * Returns true and fills in [sharing] if [rank] is the lowest rank of a GPU that several ranks
 * share, or of which it has only a part. Call info_sharing_find() first.
 */
bool info_sharing_at(const struct info_card *cards, int size, int rank,
		     struct info_sharing *sharing);

enum { INFO_WARNINGS = 16, INFO_WARNING_SIZE = 320 };

/* Warnings. Each text describes a possible problem and its remedy. */
struct info_warnings {
	int count;
	char text[INFO_WARNINGS][INFO_WARNING_SIZE];
};

/*
 * Find problems in the [cards] of all [size] ranks, in rank order. Call info_sharing_find() first.
 */
void info_warn(const struct info_card *cards, int size, struct info_warnings *warnings);

/* Like info_warn(), but find settings that are correct and could be better. */
void info_advise(const struct info_card *cards, int size, struct info_warnings *advice);

/* --- The self-test: an all-reduce of every size, verified and timed ------------------------ */

struct info_timing {
	size_t bytes;
	double median; /* in seconds; each rank has a median, and this is their maximum */
	double best;
	uint64_t wrong; /* number of wrong elements, summed over all ranks */
};

struct info_selftest {
	bool device;	  /* vectors are in GPU memory */
	const char *path; /* path of the device all-reduces, from ddp_device_path() */
	int count;
	struct info_timing timings[16];
};

/*
 * Test all-reduces of float vectors, from 4 bytes up to [limit] bytes. The vectors are in an arena
 * or, with test->device, in memory of this rank's GPU. With test->device, call ddp_device_join()
 * first. Collective. Returns 0, even if sums were wrong, or a DDP_ERR_x.
 */
int info_selftest_run(struct info_selftest *test, struct ddp *ddp, size_t limit);

uint64_t info_selftest_wrong(const struct info_selftest *test);

/* --- The report ---------------------------------------------------------------------------- */

struct info_report {
	const struct ddp_world *world;
	const struct info_card *cards; /* cards of all ranks, as completed by info_sharing_find() */
	const struct info_warnings *warnings, *advice;
	const struct info_selftest *test; /* NULL: not run */
};

/* Print the table. A column without a value for any rank (devices, shares) is omitted. */
void info_report_table(const struct info_report *report, struct ddp_text *out);

/*
 * Print one JSON object. Its keys do not change between releases: ranks, sharing, warnings, advice,
 * selftest and others (ddp-info(1)).
 */
void info_report_json(const struct info_report *report, struct ddp_text *out);

/* --- Facts for check-site ------------------------------------------------------------------ */

/*
 * Print facts about this host as lines "name=value". [arguments] is a list of [count] arguments
 * from the plugin's line in plugstack.conf.
 */
void info_check_facts(int count, char **arguments);

#endif /* DDP_INFO_H */
