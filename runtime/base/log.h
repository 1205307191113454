/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - log lines on stderr, prefixed with the rank
 *
 * Each handle has one struct ddp_log. Modules get a pointer to it. Each line is written by one
 * write(), so that lines of ranks that share a file do not mix.
 */
#ifndef DDP_BASE_LOG_H
#define DDP_BASE_LOG_H

#include <stdarg.h>

#include "error.h"

struct ddp_log {
	enum ddp_level level;
	bool all_ranks;
	char subsystems[128]; /* list of DDP_LOG, as ",name,name,"; empty: all subsystems */
	char prefix[96];      /* start of each line: "ddp: ", later "ddp[3@n2]: " */
	int rank;	      /* -1: not yet known */
};

/*
 * Initialize [log] from DDP_LOG.
 * Returns 0, or DDP_ERR_ENVIRONMENT with [log] set to the default.
 */
int ddp_log_open(struct ddp_log *log, struct ddp_error *error);

/* Change the start of all further lines to "ddp[rank@host]: ". */
void ddp_log_name(struct ddp_log *log, int rank, const char *host);

/* Returns whether a line of [level] about [subsystem] would be printed. This check is fast. */
bool ddp_log_wants(const struct ddp_log *log, enum ddp_level level, const char *subsystem);

/* Print a line if ddp_log_wants() returns true for it. */
void ddp_log_print(const struct ddp_log *log, enum ddp_level level, const char *subsystem,
		   const char *format, ...) DDP_FORMAT(4, 5);
void ddp_log_vprint(const struct ddp_log *log, enum ddp_level level, const char *subsystem,
		    const char *format, va_list arguments) DDP_FORMAT(4, 0);

#endif /* DDP_BASE_LOG_H */
