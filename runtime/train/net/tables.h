/* SPDX-License-Identifier: Apache-2.0 */
/* tables.h - the networks there are, for net.c */
#ifndef TRAIN_TABLES_H
#define TRAIN_TABLES_H

#include "net.h"

extern const struct net net_mnist, net_cifar;

#endif /* TRAIN_TABLES_H */
