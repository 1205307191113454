/* SPDX-License-Identifier: Apache-2.0 */
/*
 * site.h - ddp-info --check: is the plugin installed as it should be, here and on every node?
 *
 * Each host is looked at in the same way: this one, and by srun the nodes. What it finds are verdicts, lines of
 * text; those that are alike on several hosts are one row of the table. Slurm is asked by its commands, slurmctld
 * once and from here.
 */
#ifndef DDP_SITE_H
#define DDP_SITE_H

#include <limits.h>

#include "base/command.h"
#include "base/text.h"
#include "options.h"

enum site_level { SITE_OK, SITE_WARNING, SITE_WRONG };

/* --- Files (site-files.c) ------------------------------------------------------------------- */

/*
 * The value of [name] in lines of "name = value", of scontrol or slurm.conf, up to a blank or comment.
 * Returns true, or false with "" where it is missing, "(null)" or does not fit.
 */
bool site_setting(const char *text, const char *name, char *value, size_t size);

/* What follows the line that [at] is in. */
const char *site_next_line(const char *at);

/* Add those lines of "scontrol show config" that site_look() reads. */
void site_settings_keep(const char *text, struct ddp_text *config);

/* A line of plugstack.conf, or of a file that it includes, that loads a plugin. */
struct site_line {
	char file[PATH_MAX];
	unsigned number;
	bool required;
	char *words; /* what [path] and [arguments] point into */
	char *path;
	char **arguments;
	int count;
};

struct site_stack {
	struct site_line *lines;
	size_t count;
	struct ddp_text ignored;    /* lines that Slurm ignores: "FILE:3: \"optonal\"\n" */
	struct ddp_text misread;    /* lines with quotes or CR LF: "FILE:3: LINE has quotes\n" */
	struct ddp_text unmatched;  /* "FILE:3: include PATTERN\n", which no file matches */
	struct ddp_text unreadable; /* files: "FILE: Permission denied\n" */
};

/* Read [path] and what it includes, as Slurm does: a file that is missing is empty. [stack] begins with zeros. */
void site_stack_read(struct site_stack *stack, const char *path);
void site_stack_free(struct site_stack *stack);

/* The major and minor number that the plugin in an ELF file is for, "22.05"; false where it is no plugin. */
bool site_library_series(const void *data, size_t size, char series[static 8]);

/* --- One host (site-host.c) ---------------------------------------------------------------- */

/* Settings of Slurm that a host needs, and ours for a host that srun started: 1 if the step has --ddp. */
#define SITE_STEP "DdpCheckStep"

struct site_found {
	char series[8];		  /* "22.05", of the Slurm that ddp.so is for; "": not known */
	struct ddp_values values; /* of the plugin's line in plugstack.conf, or as without one */
	bool works;		  /* srun loads the plugin, and its arguments are right */
};

/*
 * Look at this host. [config] is what site_settings_keep() makes of "scontrol show config", or "" where slurmctld
 * does not answer; with SITE_STEP in it this is a node, and the environment that of the step.
 * Adds a line "level\twhat\tfinding\tremedy\n" to [lines] for each verdict.
 */
void site_look(const char *config, struct site_found *found, struct ddp_text *lines);

/* Add such a line; [remedy] is "" where there is none. */
void site_say(struct ddp_text *lines, enum site_level level, const char *what, const char *remedy,
	      const char *format, ...) DDP_FORMAT(5, 6);

/* Run a program as ddp_command_run() does, for at most [seconds]. */
void site_run(char *const argv[], double seconds, struct ddp_command_said *said);

/* --- All of them (site-check.c) ------------------------------------------------------------ */

struct site_row {
	enum site_level level;
	char *what, *finding, *remedy;
	bool here;	       /* this host is one of them */
	struct ddp_text nodes; /* the others: "n1,n2" */
	size_t hosts;	       /* how many */
};

struct site_report {
	const char *host; /* this one's name */
	struct site_row *rows;
	size_t count;
};

/* Take the [lines] of site_look() on [node], or on this host where it is NULL. */
void site_take(struct site_report *report, const char *node, const char *lines);

/*
 * Where hosts that must be alike are not: a row that is all right, but not what most have, becomes a warning. After
 * all is taken.
 */
void site_compare(struct site_report *report);

void site_report_free(struct site_report *report);

enum site_ask { SITE_ASK, SITE_BUSY, SITE_AWAY };

/* Whether srun can be expected to start on a node in this state, in sinfo's long words. */
enum site_ask site_node_state(const char *state);

struct site_options {
	const char *nodes, *partition; /* NULL: all */
	double limit;		       /* seconds for slurmctld, and for the nodes, to answer */
	bool here;		       /* this host alone */
	bool json;
};

/* Look at this host and the nodes, and print the report. Returns the worst that was found. */
enum site_level site_check(const struct site_options *options);

/* What site_check() has srun start on each node: print the verdicts on it for site_check(). */
void site_check_node(const char *config);

#endif /* DDP_SITE_H */
