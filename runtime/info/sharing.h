/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharing.h - which ranks share a GPU, how, and who sees to it that they keep their shares
 *
 * Pure: cards in, words out. A GPU is known by its node and UUID, that of a slice under MIG; without a driver to
 * ask, by Slurm's number of it on the node. Who poses as several hosts (NCCL_HOSTID) shares it all the same, which
 * libddp's sums do not count so (device/cards.h).
 */
#ifndef DDP_INFO_SHARING_H
#define DDP_INFO_SHARING_H

#include "card.h"

/* A GPU of which somebody has a part only. */
struct info_sharing {
	int first, ranks;	   /* the lowest of them, and how many */
	double least, most, sum;   /* of their shares; 0: not known */
	double bytes;		   /* that the shares come to */
	double slowest, quickest;  /* percent of threads; 0: no limit */
	bool mps, threads, memory; /* they go through MPS, which keeps these limits */
};

enum { INFO_SHARING_SIZE = 400 };

/* Set first, mates and sharers of the [cards] of all [size] ranks, in rank order. */
void info_sharing_find(struct info_card *cards, int size);

/*
 * After that: whether [rank] is the first on a GPU that several ranks share, or of which it has
 * a part only. Then all about it is in [sharing].
 */
bool info_sharing_at(const struct info_card *cards, int size, int rank,
		     struct info_sharing *sharing);

/* "GPU-... on n1". */
void info_sharing_name(const struct info_card *card, char *text, size_t size);

/* "by time-slicing: ..." or "through MPS ...": the same for GPUs that are shared alike. */
void info_sharing_how(const struct info_card *cards, const struct info_sharing *sharing,
		      char text[INFO_SHARING_SIZE]);

#endif /* DDP_INFO_SHARING_H */
