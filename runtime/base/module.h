/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.h - engines in separate shared objects
 *
 * A module ddp_NAME.so exports one object, ddp_module, a table of functions whose first member is a
 * struct ddp_module_head. Because an engine is a module, a node that lacks the engine's libraries
 * can still load libddp.
 */
#ifndef DDP_BASE_MODULE_H
#define DDP_BASE_MODULE_H

#include <stdint.h>

#include "log.h"

struct ddp_module_head {
	uint32_t magic;	  /* DDP_MODULE_MAGIC */
	uint32_t version; /* version of the table, as in the header that declares it */
	uint32_t size;	  /* bytes of the table */
	const char *kind; /* kind of module: "store", "wide" or "device" */
	const char *name; /* name of the module, such as "pmix", "mpi" or "nccl" */
	/* release of libddp for which the module was built; must be that of the caller */
	const char *release;
};

#define DDP_MODULE_MAGIC 0x6d706464u
#define DDP_MODULE_SYMBOL "ddp_module"

/*
 * Open module [name], and check that its table has [kind], [version] and [size]. Modules are never
 * closed, since threads and handlers of an engine may still exist after its last use.
 * Returns the table; or NULL with DDP_ERR_UNSUPPORTED and a text with the file, the reason and the
 * remedy.
 */
const void *ddp_module_open(const char *name, const char *kind, uint32_t version, uint32_t size,
			    const struct ddp_log *log, struct ddp_error *error);

/*
 * Run [call] with [argument]. Then restore the handlers of fatal signals and of SIGHUP, which
 * belong to the program. Some libraries (UCX, used by MPI) replace these handlers when they are
 * loaded or initialized.
 */
void ddp_module_keep_handlers(void (*call)(void *argument), void *argument);

#endif /* DDP_BASE_MODULE_H */
