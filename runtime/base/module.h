/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.h - engines in shared objects of their own
 *
 * A module ddp_NAME.so exports one object, ddp_module, whose first member is a struct
 * ddp_module_head. So a node that lacks an engine's libraries can still load libddp.
 */
#ifndef DDP_BASE_MODULE_H
#define DDP_BASE_MODULE_H

#include <stdint.h>

#include "log.h"

struct ddp_module_head {
	uint32_t magic;	     /* DDP_MODULE_MAGIC */
	uint32_t version;    /* of the vtable, from its header */
	uint32_t size;	     /* bytes of the vtable */
	const char *kind;    /* "store", "wide", "device" */
	const char *name;    /* "pmix", "mpi", "nccl" */
	const char *release; /* of the libddp it was built with; must be equal */
};

#define DDP_MODULE_MAGIC 0x6d706464u
#define DDP_MODULE_SYMBOL "ddp_module"

/*
 * Open module [name] and check that its vtable is of [kind], [version] and [size]. Modules are
 * never closed, since engines leave threads and handlers behind.
 * Returns the vtable; or NULL with DDP_ERR_UNSUPPORTED and a text with the file, the reason and the
 * remedy.
 */
const void *ddp_module_open(const char *name, const char *kind, uint32_t version, uint32_t size,
			    const struct ddp_log *log, struct ddp_error *error);

/*
 * Run [call] with [argument], and restore the handlers of fatal signals and SIGHUP afterwards. They
 * belong to the program, but some libraries (UCX, used by MPI) replace them when they are loaded or
 * initialized.
 */
void ddp_module_keep_handlers(void (*call)(void *argument), void *argument);

#endif /* DDP_BASE_MODULE_H */
