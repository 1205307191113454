/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fabric.h - an engine between threads that stand for nodes, with injected faults
 *
 * A large message is copied from the sender's memory only when the receive is posted. So a sender
 * that reuses its buffer too early causes a wrong result. Messages of different senders arrive in
 * random order.
 */
#ifndef DDP_TESTS_FABRIC_H
#define DDP_TESTS_FABRIC_H

#include "wide/host.h"

struct fabric; /* shared by all members */

/* Creates a fabric of [size] members. [seed] selects the order in which messages arrive. */
struct fabric *fabric_create(int size, uint64_t seed);
void fabric_destroy(struct fabric *fabric);

struct ddp_host *fabric_host(struct fabric *fabric, int rank);

/* Closes the connections of all other members to [rank]. */
void fabric_break(struct fabric *fabric, int rank);

/* Drops all later messages of [from] to [to]. */
void fabric_drop(struct fabric *fabric, int from, int to);

/* Number of sends and receives that have neither completed nor been cancelled. */
int fabric_open(struct fabric *fabric);

/* Number of receives into memory from which the same member was still sending. */
int fabric_overlaps(struct fabric *fabric);

extern const struct ddp_host_engine fabric_engine;

#endif /* DDP_TESTS_FABRIC_H */
