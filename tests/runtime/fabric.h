/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fabric.h - an engine between threads, with faults on demand
 *
 * Large messages are read from the sender's memory when the receive meets them, so that memory
 * which is touched too early shows. Messages of different senders arrive in any order.
 */
#ifndef DDP_TESTS_FABRIC_H
#define DDP_TESTS_FABRIC_H

#include "wide/host.h"

struct fabric; /* what the members share */

/* [seed] decides about the order of arrival. */
struct fabric *fabric_create(int size, uint64_t seed);
void fabric_destroy(struct fabric *fabric);

/* Member [rank]'s end. */
struct ddp_host *fabric_host(struct fabric *fabric, int rank);

/* From now on [rank] is lost to all others. */
void fabric_break(struct fabric *fabric, int rank);

/* From now on what [from] sends to [to] is lost. */
void fabric_drop(struct fabric *fabric, int from, int to);

/* Messages and receives that were begun and neither ended nor cancelled. */
int fabric_open(struct fabric *fabric);

/* How often a receive was begun into memory that the same member was still sending. */
int fabric_overlaps(struct fabric *fabric);

extern const struct ddp_host_engine fabric_engine;

#endif /* DDP_TESTS_FABRIC_H */
