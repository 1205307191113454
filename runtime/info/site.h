/* SPDX-License-Identifier: Apache-2.0 */
/*
 * site.h - ddp-info --check: check that the plugin is installed correctly on this host and on every
 * node
 *
 * The same checks run on every host: on this host directly, and on the nodes through srun. Each
 * check produces verdicts, one line of text each. Equal verdicts of several hosts become one row of
 * the table. Slurm is queried through its commands; slurmctld is queried only once, and only from
 * this host.
 */
#ifndef DDP_SITE_H
#define DDP_SITE_H

#include <limits.h>

#include "base/command.h"
#include "base/text.h"
#include "launch/options.h"

enum site_level { SITE_OK, SITE_WARNING, SITE_WRONG };

/* --- Files (site-files.c) ------------------------------------------------------------------ */

/*
 * Copy the value of [name] from lines of "name = value" (output of scontrol, or slurm.conf), up to
 * a blank or comment. Returns true, or false with "" if the value is missing, "(null)" or too long.
 */
bool site_setting(const char *text, const char *name, char *value, size_t size);

const char *site_next_line(const char *at);

/* Add the lines of "scontrol show config" that site_check_host() needs. */
void site_settings_keep(const char *text, struct ddp_text *config);

/* A line of plugstack.conf, or of a file that it includes, that loads a plugin. */
struct site_line {
	char file[PATH_MAX];
	unsigned number;
	bool required;
	char *words; /* buffer that [path] and [arguments] point into */
	char *path;
	char **arguments;
	int count;
};

struct site_stack {
	struct site_line *lines;
	size_t count;
	struct ddp_text ignored;    /* lines that Slurm ignores: "FILE:3: \"optonal\"\n" */
	struct ddp_text misread;    /* lines with quotes or CR LF: "FILE:3: LINE has quotes\n" */
	struct ddp_text unmatched;  /* includes that no file matches: "FILE:3: include PATTERN\n" */
	struct ddp_text unreadable; /* files that cannot be read: "FILE: Permission denied\n" */
};

/*
 * Read [path] and the files that it includes. A missing file counts as empty, as in Slurm. [stack]
 * must be zeroed.
 */
void site_stack_read(struct site_stack *stack, const char *path);
void site_stack_free(struct site_stack *stack);

/*
 * Find the Slurm release, such as "22.05", for which a plugin (an ELF file) was built. Returns
 * false if the file is not a plugin.
 */
bool site_library_series(const void *data, size_t size, char series[static 8]);

/* --- One host (site-host.c) ---------------------------------------------------------------- */

/*
 * Name of a setting that --check adds to Slurm's settings for a node: 1 if srun was started with
 * --ddp, else 0.
 */
#define SITE_STEP "DdpCheckStep"

struct site_found {
	char series[8]; /* Slurm release for which ddp.so was built, such as "22.05"; "": unknown */
	struct ddp_values values; /* options in plugstack.conf, else the defaults */
	bool works;		  /* srun loads the plugin, and its arguments are valid */
};

/*
 * Check this host. [config] is the output of site_settings_keep(), or "" if slurmctld does not
 * respond. If [config] contains SITE_STEP, this host is a node, and the environment is that of a
 * task of the step. For each verdict, adds a line "level\twhat\tfinding\tremedy\n" to [lines].
 */
void site_check_host(const char *config, struct site_found *found, struct ddp_text *lines);

/* Add the line of one verdict. [remedy] may be "". */
void site_add_verdict(struct ddp_text *lines, enum site_level level, const char *what,
		      const char *remedy, const char *format, ...) DDP_FORMAT(5, 6);

/* Run a program for at most [seconds], like ddp_command_run(). */
void site_run(char *const argv[], double seconds, struct ddp_command_said *said);

/* --- All hosts (site-check.c) -------------------------------------------------------------- */

struct site_row {
	enum site_level level;
	char *what, *finding, *remedy;
	bool here;	       /* this host has the verdict */
	struct ddp_text nodes; /* nodes that have the verdict: "n1,n2" */
	size_t hosts;	       /* number of hosts that have the verdict */
};

struct site_report {
	const char *host;
	struct site_row *rows;
	size_t count;
};

/* Add the verdicts [lines] of [node], or of this host if [node] is NULL, to [report]. */
void site_add_lines(struct site_report *report, const char *node, const char *lines);

/*
 * Turn an ok row into a warning if its item must be equal on all hosts, and most other hosts have
 * another finding. Call this function after adding all lines.
 */
void site_compare(struct site_report *report);

void site_report_free(struct site_report *report);

enum site_ask { SITE_ASK, SITE_BUSY, SITE_AWAY };

/* Whether srun can be expected to start on a node in [state], as printed by sinfo %T. */
enum site_ask site_node_state(const char *state);

struct site_options {
	const char *nodes, *partition; /* NULL: all nodes, all partitions */
	double limit;		       /* time limit for slurmctld and for each srun, in seconds */
	bool here;		       /* check this host only */
	bool json;
};

/* Check this host and the nodes, and print the report. Returns the worst level. */
enum site_level site_check(const struct site_options *options);

/* Runs on each node, started by srun from site_check(). Prints the verdicts for site_check(). */
void site_check_node(const char *config);

#endif /* DDP_SITE_H */
