/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.h - engines that live in files of their own
 *
 * A module ddp_NAME.so exports one object, ddp_module, whose first member is a struct
 * ddp_module_head. A node without the engine's libraries then misses one file and not libddp.
 */
#ifndef DDP_BASE_MODULE_H
#define DDP_BASE_MODULE_H

#include <stdint.h>

#include "log.h"

struct ddp_module_head {
	uint32_t magic;	     /* DDP_MODULE_MAGIC */
	uint32_t version;    /* of the vtable, by its header */
	uint32_t size;	     /* of the vtable */
	const char *kind;    /* "store", "wide", "device" */
	const char *name;    /* "pmix", "ucx", "mpi", "nccl" */
	const char *release; /* of the libddp that it was built with: must be the same */
};

#define DDP_MODULE_MAGIC 0x6d706464u
#define DDP_MODULE_SYMBOL "ddp_module"

/*
 * Open module [name] and check that its vtable is of [kind], [version] and [size]. Modules are
 * never closed: engines leave threads and handlers behind.
 * Returns the vtable; or NULL with DDP_ERR_UNSUPPORTED and a text that says which file, why,
 * and what to install.
 */
const void *ddp_module_open(const char *name, const char *kind, uint32_t version, uint32_t size,
			    const struct ddp_log *log, struct ddp_error *error);

#endif /* DDP_BASE_MODULE_H */
