/* SPDX-License-Identifier: Apache-2.0 */
/*
 * site-host.c - the checks of ddp-info --check on one host: plugstack.conf, ddp.so, arguments,
 * ports, directories, MPS
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/mps.h"
#include "base/walk.h"
#include "site.h"
#include "wide/tcp-private.h"

void site_add_verdict(struct ddp_text *lines, enum site_level level, const char *what,
		      const char *remedy, const char *format, ...)
{
	char finding[2 * PATH_MAX];
	va_list ap;

	va_start(ap, format);
	vsnprintf(finding, sizeof(finding), format, ap);
	va_end(ap);
	ddp_text_add(lines, "%d\t%s\t", (int)level, what);
	ddp_text_plain(lines, finding);
	ddp_text_add(lines, "\t");
	ddp_text_plain(lines, remedy);
	ddp_text_add(lines, "\n");
}

void site_run(char *const argv[], double seconds, struct ddp_command_said *said)
{
	const struct ddp_command how = {.limit = seconds, .grace = 10};

	ddp_command_run(argv, &how, said);
}

/* --- Owners and modes of files ------------------------------------------------------------- */

/* Parse the user ID in a value such as "slurm(64030)". Returns root's if there is none. */
static uid_t parse_user(const char *config, const char *name)
{
	char value[256];
	const char *open =
		site_setting(config, name, value, sizeof(value)) ? strchr(value, '(') : NULL;

	return open ? (uid_t)strtoul(open + 1, NULL, 10) : 0;
}

/*
 * Check whether a user other than root and [users] can change the file or directory [at]. [st] is
 * the result of stat().
 */
static enum site_level check_writers(const char *at, const struct stat *st, const uid_t users[2],
				     char *why, size_t size)
{
	bool guarded = S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX);

	if (st->st_uid != 0 && st->st_uid != users[0] && st->st_uid != users[1])
		snprintf(why, size, "%s belongs to user %u", at, st->st_uid);
	else if ((st->st_mode & S_IWOTH) && !guarded)
		snprintf(why, size, "%s is writable for everybody", at);
	else if (!(st->st_mode & S_IWGRP) || st->st_gid == 0 || guarded)
		return SITE_OK;
	else {
		snprintf(why, size, "%s is writable for group %u", at, st->st_gid);
		return SITE_WARNING;
	}
	return SITE_WRONG;
}

/* Run check_writers() on [path], after following all links, and on each directory above it. */
static enum site_level check_path_writers(const char *path, const uid_t users[2], char *why,
					  size_t size)
{
	enum site_level level = SITE_OK;
	char real[PATH_MAX], *slash = real;
	struct stat st;

	if (!realpath(path, real))
		return SITE_OK; /* the caller reports a missing file */
	while (level == SITE_OK && slash) {
		const char *at = *real ? real : "/";

		if (stat(at, &st) == 0)
			level = check_writers(at, &st, users, why, size);
		slash = strrchr(real, '/');
		if (slash)
			*slash = '\0';
	}
	return level;
}

/*
 * Whether the mode of file [path], or of a directory above it, keeps users from reading it. A group
 * other than root's may contain all users, so its permissions count.
 */
static bool is_closed_to_users(const char *path, char *why, size_t size)
{
	char at[PATH_MAX];
	struct stat st;

	if (!realpath(path, at))
		return false; /* the caller reports a missing file */
	while (*at && stat(at, &st) == 0) {
		mode_t needed = S_ISDIR(st.st_mode) ? S_IXOTH : S_IROTH;

		needed |= st.st_gid != 0 ? needed << 3 : 0;
		if (!(st.st_mode & needed)) {
			snprintf(why, size, "%s has mode %04o", at, st.st_mode & 07777);
			return true;
		}
		*strrchr(at, '/') = '\0';
	}
	return false;
}

/* --- Slurm and its files ------------------------------------------------------------------- */

struct inspection {
	const char *config;
	struct site_found *found;
	struct ddp_text *lines;
	bool node;
	bool knows;	  /* srun knows --ddp */
	char release[64]; /* release of the installed Slurm; "": unknown */
	char stack_path[PATH_MAX];
	const struct site_line *line; /* the plugin's line */
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Copy the first line of [text] that is not empty, without srun's prefix. */
static const char *first_line(const struct ddp_text *text, char *line, size_t size)
{
	const char *at = text->data ? text->data : "";

	while (*at == '\n')
		at++;
	if (strncmp(at, "srun: error: ", 13) == 0)
		at += 13;
	snprintf(line, size, "%.*s", (int)strcspn(at, "\n"), at);
	return line;
}

/* Run srun --help, which loads the plugins, to check whether srun can load this plugin. */
static void check_srun(struct inspection *host)
{
	enum { SECONDS = 30 };
	struct ddp_command_said output;
	char line[512];
	const char *space;

	site_run((char *[]){"srun", "--version", NULL}, SECONDS, &output);
	space = output.out.data ? strrchr(output.out.data, ' ') : NULL;
	if (output.status == 0 && space)
		snprintf(host->release, sizeof(host->release), "%.*s",
			 (int)strcspn(space + 1, "\n"), space + 1);
	ddp_command_said_free(&output);
	site_run((char *[]){"srun", "--help", NULL}, SECONDS, &output);
	host->knows = output.out.data && strstr(output.out.data, "[ddp] ");
	if (host->knows)
		site_add_verdict(host->lines, SITE_OK, "srun", "", "srun knows --ddp");
	else if (output.status != 127)
		site_add_verdict(host->lines, SITE_WRONG, "srun", "see the lines below",
				 "srun does not know --ddp%s%s", *output.err.data ? ": " : "",
				 first_line(&output.err, line, sizeof(line)));
	else if (!host->node)
		site_add_verdict(host->lines, SITE_WRONG, "srun", "check PATH",
				 "srun was not found");
	ddp_command_said_free(&output);
}

static char *read_all(const char *path, size_t *size)
{
	struct ddp_error error;
	char *data = NULL;

	return ddp_file_read(path, 64u << 20, &data, size, &error) == 0 ? data : NULL;
}

/* Find the slurm.conf that Slurm's commands read here. Returns true if it exists. */
static bool find_conf(const struct inspection *host, char *path, size_t size)
{
	const char *given = getenv("SLURM_CONF");

	if (given && *given) {
		snprintf(path, size, "%s", given);
		return access(path, F_OK) == 0;
	}
	if (site_setting(host->config, "SLURM_CONF", path, size) && access(path, F_OK) == 0)
		return true;
	snprintf(path, size, "/run/slurm/conf/slurm.conf");
	return access(path, F_OK) == 0;
}

static int directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (int)(slash - path) : 0;
}

/*
 * Find the plugstack.conf that Slurm reads on this host. It is set in this host's slurm.conf, else
 * by slurmctld. If slurmctld uses the default, which is beside its slurm.conf, the file is beside
 * this host's slurm.conf.
 */
static void find_stack(struct inspection *host)
{
	char conf[PATH_MAX], controller_conf[PATH_MAX], named[PATH_MAX] = "";
	bool here = find_conf(host, conf, sizeof(conf));
	size_t size;
	char *text = here ? read_all(conf, &size) : NULL;
	bool is_named = text && site_setting(text, "PlugStackConfig", named, sizeof(named));

	free(text);
	if (!is_named && site_setting(host->config, "PlugStackConfig", named, sizeof(named)))
		is_named = !here ||
			   !site_setting(host->config, "SLURM_CONF", controller_conf,
					 sizeof(controller_conf)) ||
			   directory_of(controller_conf) != directory_of(named) ||
			   strncmp(controller_conf, named, (size_t)directory_of(named)) != 0;
	if (is_named)
		snprintf(host->stack_path, sizeof(host->stack_path), "%s", named);
	else if (here)
		snprintf(host->stack_path, sizeof(host->stack_path), "%.*s/plugstack.conf",
			 directory_of(conf), conf);
	else
		strcpy(host->stack_path, "/etc/slurm/plugstack.conf");
}

/*
 * Find the plugin that [line] names. For a relative path, search the directories of PluginDir.
 * Returns true if the file exists.
 */
static bool find_library(const struct inspection *host, const struct site_line *line, char *path,
			 size_t size)
{
	char directories[PATH_MAX], *rest = directories, *directory;

	snprintf(path, size, "%s", line->path);
	if (*path == '/' ||
	    !site_setting(host->config, "PluginDir", directories, sizeof(directories)))
		return access(path, F_OK) == 0;
	while ((directory = strsep(&rest, ":"))) {
		snprintf(path, size, "%s/%s", directory, line->path);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

static void check_owner(const struct inspection *host, const char *what, const char *path,
			uid_t other)
{
	const uid_t users[2] = {parse_user(host->config, "SlurmdUser"), other};
	char why[PATH_MAX + 64];
	enum site_level level = check_path_writers(path, users, why, sizeof(why));

	if (level != SITE_OK)
		site_add_verdict(host->lines, level, what, "chown it to root and chmod go-w it",
				 "%s, and the plugins it loads run as root on the nodes", why);
	/* Other users need access only if slurmd runs as root. Otherwise slurmd runs jobs of one user only. */
	if (users[0] == 0 && is_closed_to_users(path, why, sizeof(why)))
		site_add_verdict(host->lines, SITE_WRONG, what,
				 "every srun reads it: chmod a+r a file, a+rx a directory",
				 "%s, so users cannot read %s", why, path);
}

static void check_library(struct inspection *host)
{
	struct site_found *found = host->found;
	char path[2 * PATH_MAX];
	size_t size = 0, n;
	char *data = NULL;

	(void)find_library(host, host->line, path, sizeof(path));
	if (access(path, R_OK) < 0)
		site_add_verdict(host->lines, SITE_WRONG, "ddp.so",
				 errno == EACCES ? "chmod a+r it"
						 : "install the package slurm-ddp here",
				 "cannot read %s: %s", path, strerror(errno));
	else if (!(data = read_all(path, &size)) || !site_library_series(data, size, found->series))
		site_add_verdict(host->lines, SITE_WRONG, "ddp.so",
				 "install the package slurm-ddp again",
				 "%s is not a Slurm plugin for this machine", path);
	else if ((n = strlen(found->series)) && *host->release &&
		 (strncmp(host->release, found->series, n) != 0 || host->release[n] != '.'))
		site_add_verdict(
			host->lines, SITE_WRONG, "ddp.so",
			"Slurm loads only plugins for its release: install the matching slurm-ddp",
			"%s is for Slurm %s, and Slurm here is %s", path, found->series,
			host->release);
	else
		site_add_verdict(host->lines, SITE_OK, "ddp.so", "",
				 "%s is for Slurm %s%s (crc %08x)", path, found->series,
				 *host->release ? ", the installed release" : "",
				 ddp_crc32c(0, data, size));
	if (data)
		check_owner(host, "ddp.so", path, 0);
	free(data);
}

/*
 * pyxis sets the variables of a node's first task in all tasks of the node. Only plugins after
 * pyxis can set variables for each task.
 */
static void check_order(struct inspection *host, const struct site_stack *stack)
{
	const struct site_line *pyxis = NULL;

	for (size_t i = 0; i < stack->count; i++)
		if (strcmp(base_name(stack->lines[i].path), "spank_pyxis.so") == 0)
			pyxis = &stack->lines[i];
	if (!pyxis)
		site_add_verdict(host->lines, SITE_OK, "order", "",
				 "pyxis is not loaded, so the order does not matter");
	else if (pyxis > host->line)
		site_add_verdict(
			host->lines, SITE_WRONG, "order",
			"pyxis gives all tasks of a node the variables of the first one: move the line "
			"of ddp.so after that of pyxis",
			"%s:%u loads pyxis after %s:%u loads ddp.so", pyxis->file, pyxis->number,
			host->line->file, host->line->number);
	else
		site_add_verdict(host->lines, SITE_OK, "order", "", "after pyxis (%s:%u)",
				 pyxis->file, pyxis->number);
}

/*
 * Report that plugstack.conf has no line for the plugin, unless a part of the file could not be
 * read.
 */
static void report_missing_line(struct inspection *host, const struct site_stack *stack)
{
	static const char file[] = DDP_PLUGSTACK_DIR "/zz-ddp.conf";

	if (stack->unreadable.size > 0 ||
	    (stack->misread.size > 0 &&
	     (strstr(stack->misread.data, "ddp.so") || strstr(stack->misread.data, ": include "))))
		return;
	if (host->knows)
		site_add_verdict(
			host->lines, SITE_WARNING, "plugstack.conf", "",
			"srun loads the plugin, but %s has no line for it; the file with its line is unknown",
			host->stack_path);
	else if (access(file, F_OK) == 0)
		site_add_verdict(host->lines, SITE_WRONG, "plugstack.conf",
				 "add the line \"include " DDP_PLUGSTACK_DIR "/*.conf\" to it",
				 "no line of %s loads ddp.so, nor includes %s", host->stack_path,
				 file);
	else
		site_add_verdict(
			host->lines, SITE_WRONG, "plugstack.conf",
			"install the package slurm-ddp here, or add the line \"optional PATH/ddp.so\"",
			"no line of %s loads ddp.so, and there is no %s", host->stack_path, file);
}

/* Add a verdict for each line of [text]. [end] is appended to the line. */
static void report_each(struct inspection *host, enum site_level level, const struct ddp_text *text,
			const char *end, const char *remedy)
{
	for (const char *at = text->size ? text->data : ""; *at; at = site_next_line(at))
		site_add_verdict(host->lines, level, "plugstack.conf", remedy, "%.*s%s",
				 (int)strcspn(at, "\n"), at, end);
}

static bool is_ours(const struct site_line *line)
{
	return strcmp(base_name(line->path), "ddp.so") == 0;
}

/*
 * Choose the plugin's line: the first line whose file exists, because Slurm skips optional plugins
 * that are missing; else the first line.
 */
static void choose_line(struct inspection *host, const struct site_stack *stack)
{
	const struct site_line *first = NULL;
	char path[2 * PATH_MAX];

	for (size_t i = 0; i < stack->count && !host->line; i++) {
		const struct site_line *line = &stack->lines[i];

		if (!is_ours(line))
			continue;
		first = first ? first : line;
		if (line->required || find_library(host, line, path, sizeof(path)))
			host->line = line;
	}
	host->line = host->line ? host->line : first;
}

static void report_other_lines(struct inspection *host, const struct site_stack *stack)
{
	char path[2 * PATH_MAX];

	for (size_t i = 0; i < stack->count; i++) {
		const struct site_line *line = &stack->lines[i];

		if (line == host->line || !is_ours(line))
			continue;
		if (find_library(host, line, path, sizeof(path)))
			site_add_verdict(host->lines, SITE_WARNING, "plugstack.conf",
					 "remove one: Slurm uses the first",
					 "%s:%u loads ddp.so once more", line->file, line->number);
		else
			site_add_verdict(host->lines, SITE_WARNING, "plugstack.conf",
					 "remove the line", "%s:%u names %s, which does not exist",
					 line->file, line->number, line->path);
	}
}

static void check_stack(struct inspection *host, struct site_stack *stack)
{
	find_stack(host);
	site_stack_read(stack, host->stack_path);
	choose_line(host, stack);
	report_each(host, SITE_WARNING, &stack->ignored,
		    " is not a word of plugstack.conf, so Slurm ignores the line",
		    "begin the line with optional, required or include");
	report_each(host, host->line ? SITE_WARNING : SITE_WRONG, &stack->misread, "",
		    "correct the line: Slurm parses quotes and CR as parts of a word");
	if (!host->line)
		report_each(host, SITE_WARNING, &stack->unmatched, " matches no file",
			    "correct or remove the line");
	report_each(host, geteuid() == 0 ? SITE_WRONG : SITE_WARNING, &stack->unreadable, "",
		    "every srun must read it: chmod a+r it");
	if (!host->line) {
		report_missing_line(host, stack);
		return;
	}
	if (host->line->required)
		site_add_verdict(
			host->lines, SITE_WARNING, "plugstack.conf",
			"write optional: with required, a ddp.so that is missing or of another "
			"release stops every job of the node",
			"%s:%u: required %s", host->line->file, host->line->number,
			host->line->path);
	else
		site_add_verdict(host->lines, SITE_OK, "plugstack.conf", "", "%s:%u: optional %s",
				 host->line->file, host->line->number, host->line->path);
	report_other_lines(host, stack);
	check_owner(host, "plugstack.conf", host->stack_path,
		    parse_user(host->config, "SlurmUser"));
	if (strcmp(host->line->file, host->stack_path) != 0)
		check_owner(host, "plugstack.conf", host->line->file,
			    parse_user(host->config, "SlurmUser"));
	check_order(host, stack);
	check_library(host);
}

/* Parse the arguments with the plugin's own functions. */
static void check_arguments(struct inspection *host)
{
	const struct site_line *line = host->line;
	struct ddp_text compared = {.data = NULL};
	struct ddp_message message;

	if (ddp_values_from_plugstack(&host->found->values, line->count, line->arguments,
				      &message) < 0) {
		site_add_verdict(host->lines, SITE_WRONG, "arguments",
				 "correct the line: until then the plugin does nothing",
				 "%s:%u: %s", line->file, line->number, message.text);
		return;
	}
	/* gpu_memory is omitted from the comparison, because it may differ between nodes. */
	for (int i = 0; i < line->count; i++)
		if (strncmp(line->arguments[i], "gpu_memory=", 11) != 0)
			ddp_text_add(&compared, " %s", line->arguments[i]);
	site_add_verdict(host->lines, SITE_OK, "arguments", "", "%s",
			 compared.size ? compared.data + 1 : "none");
	ddp_text_free(&compared);
	host->found->works = host->knows;
}

/* --- Ports --------------------------------------------------------------------------------- */

struct range {
	const char *name;
	struct ddp_port_range ports; /* 0-0: unknown or none */
};

/* Parse a range such as "12000-12999", which may follow "ports=". */
static struct ddp_port_range parse_range(const char *text)
{
	const char *ports = strstr(text, "ports=");
	struct ddp_port_range range = {0, 0};
	struct ddp_message message;
	char word[32];

	text = ports ? ports + strlen("ports=") : text;
	snprintf(word, sizeof(word), "%.*s", (int)strspn(text, "0123456789-"), text);
	if (ddp_ports_parse(word, "", &range, &message) < 0)
		range = (struct ddp_port_range){0, 0};
	return range;
}

static struct ddp_port_range read_ephemeral_range(void)
{
	struct ddp_port_range range = {0, 0};
	FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	if (file && fscanf(file, "%u %u", &range.lo, &range.hi) != 2)
		range = (struct ddp_port_range){0, 0};
	if (file)
		fclose(file);
	return range;
}

/*
 * Append the ranges in [others] that overlap [range], such as "SrunPortRange 60000-60999", joined
 * by "and".
 */
static void add_common(struct ddp_text *text, struct ddp_port_range range,
		       const struct range *others, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (others[i].ports.hi > 0 && others[i].ports.lo <= range.hi &&
		    range.lo <= others[i].ports.hi)
			ddp_text_add(text, "%s%s %u-%u", text->size ? " and " : "", others[i].name,
				     others[i].ports.lo, others[i].ports.hi);
}

/* Returns the lowest port on which an unprivileged user may listen. */
static unsigned read_first_unprivileged(void)
{
	FILE *file = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
	unsigned port = 1024;

	if (file && fscanf(file, "%u", &port) != 1)
		port = 1024;
	if (file)
		fclose(file);
	return port;
}

static void check_ports(struct inspection *host)
{
	const unsigned privileged = read_first_unprivileged();
	const struct ddp_port_range site = host->found->values.site_ports,
				    local = read_ephemeral_range();
	struct range ranges[] = {{"MpiParams", {0, 0}},
				 {"SrunPortRange", {0, 0}},
				 {"SlurmdPort", {0, 0}},
				 {"SlurmctldPort", {0, 0}},
				 {"ip_local_port_range", local}};
	struct ddp_text common = {.data = NULL};
	char value[512];

	if (!*host->config)
		return;
	for (size_t i = 0; i < 4; i++)
		if (site_setting(host->config, ranges[i].name, value, sizeof(value)))
			ranges[i].ports = parse_range(value);
	/*
	 * The plugin avoids the kernel's ephemeral range, unless its own range is entirely inside
	 * the ephemeral range.
	 */
	add_common(&common, site, ranges, site.lo >= local.lo && site.hi <= local.hi ? 5 : 4);
	if (site.lo < privileged)
		site_add_verdict(
			host->lines, SITE_WARNING, "ports",
			"set other ports with ports= in plugstack.conf",
			"%u-%u, from which MASTER_PORT is computed: only root may use ports below %u",
			site.lo, site.hi, privileged);
	else if (common.size)
		site_add_verdict(host->lines, SITE_WARNING, "ports",
				 "set other ports with ports= in plugstack.conf",
				 "%u-%u, from which MASTER_PORT is computed, and %s overlap",
				 site.lo, site.hi, common.data);
	else
		site_add_verdict(host->lines, SITE_OK, "ports", "",
				 "%u-%u, from which MASTER_PORT is computed, overlap no others",
				 site.lo, site.hi);
	ddp_text_clear(&common);
	add_common(&common, ranges[0].ports, ranges + 1, 4);
	if (!ranges[0].ports.hi)
		site_add_verdict(
			host->lines, SITE_WARNING, "MpiParams",
			"set MpiParams=ports=LO-HI in slurm.conf: Slurm then reserves ports for each step",
			"no ports are reserved, so two jobs can compute the same MASTER_PORT");
	else if (common.size)
		site_add_verdict(host->lines, SITE_WARNING, "MpiParams",
				 "set other ports in slurm.conf", "its ports %u-%u and %s overlap",
				 ranges[0].ports.lo, ranges[0].ports.hi, common.data);
	else
		site_add_verdict(host->lines, SITE_OK, "MpiParams", "",
				 "Slurm reserves %u-%u for steps", ranges[0].ports.lo,
				 ranges[0].ports.hi);
	ddp_text_free(&common);
}

/* --- Directories, MPS, the step ------------------------------------------------------------ */

/*
 * Whether job_container/tmpfs or namespace/linux may provide each job with its own directory at
 * [path].
 */
static bool is_private_to_jobs(const struct inspection *host, const char *path, char *plugin,
			       size_t size)
{
	return (site_setting(host->config, "JobContainerType", plugin, size) ||
		site_setting(host->config, "NamespaceType", plugin, size)) &&
	       (strstr(plugin, "/tmpfs") || strstr(plugin, "/linux")) &&
	       (strncmp(path, "/tmp", 4) == 0 || strncmp(path, "/dev/shm", 8) == 0);
}

static void check_rendezvous(struct inspection *host)
{
	const char *template = host->found->values.directory;
	struct ddp_walk *walk = calloc(1, sizeof(*walk));
	char path[PATH_MAX], plugin[64];
	int fd = -1;

	if (*template != '/') {
		site_add_verdict(host->lines, SITE_OK, "rendezvous", "",
				 *template ? "rdzv=%s, below each step's working directory"
					   : "in each step's working directory",
				 template);
		goto out;
	}
	ddp_template_fixed(template, path, sizeof(path));
	if (is_private_to_jobs(host, path, plugin, sizeof(plugin)))
		site_add_verdict(host->lines, SITE_WRONG, "rendezvous",
				 "name a directory that all nodes share",
				 "rdzv=%s: with %s each job has its own %s", template, plugin,
				 path);
	else if (!walk || (fd = ddp_walk_open(walk, path)) < 0)
		site_add_verdict(
			host->lines, SITE_WRONG, "rendezvous",
			"it must exist, belong to root, and be sticky if users may write to it (chmod 1777)",
			"rdzv=%s: %s", template, walk ? walk->why : "no memory");
	else if (!strchr(template, '%'))
		site_add_verdict(host->lines, SITE_WARNING, "rendezvous",
				 "write rdzv=DIR/%u: .ddp in DIR would belong to the first user",
				 "rdzv=%s is one directory for all users", template);
	else
		site_add_verdict(host->lines, SITE_OK, "rendezvous", "",
				 "rdzv=%s; other users cannot change %s", template, path);
	if (fd >= 0)
		close(fd);
out:
	free(walk);
}

static void check_mps(struct inspection *host)
{
	const char *directory = ddp_mps_directory(getenv(DDP_MPS_PIPE_DIRECTORY));
	enum ddp_mps_state state = ddp_mps_look(directory);
	uint64_t memory = host->found->values.gpu_memory;

	if (state == DDP_MPS_STALE)
		site_add_verdict(host->lines, SITE_WARNING, "MPS",
				 "start it again, or remove the directory",
				 "the MPS daemon of %s has ended", directory);
	else if (state == DDP_MPS_SERVES && !memory)
		site_add_verdict(host->lines, SITE_WARNING, "MPS",
				 "add gpu_memory=NG to the plugin's line here",
				 "an MPS daemon runs in %s, but memory is not limited", directory);
	else if (state == DDP_MPS_SERVES)
		site_add_verdict(host->lines, SITE_OK, "MPS", "",
				 "an MPS daemon runs in %s; gpu_memory=%lluM", directory,
				 (unsigned long long)memory);
	else if (memory || access("/dev/nvidiactl", F_OK) == 0)
		site_add_verdict(host->lines, SITE_OK, "MPS", "",
				 "no MPS daemon runs, so shares are not enforced%s",
				 memory ? ", and gpu_memory= has no effect" : "");
}

/*
 * Create a file in the rendezvous directory, as ranks do, and remove it. Returns 0, or -1 with
 * errno set.
 */
static int write_in(const char *directory)
{
	const char *node = getenv("SLURMD_NODENAME");
	char path[PATH_MAX];
	int fd, rv, number;

	snprintf(path, sizeof(path), "%s/check-%s", directory, node ? node : "");
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	rv = write(fd, "check\n", 6) == 6 ? 0 : -1;
	number = errno;
	if (close(fd) < 0 && rv == 0) {
		rv = -1;
		number = errno;
	}
	(void)unlink(path);
	errno = number;
	return rv;
}

/*
 * Whether [name] is an interface of containers or virtual machines, which other nodes usually
 * cannot reach.
 */
static bool is_local_interface(const char *name)
{
	static const char *const prefixes[] = {"docker", "br-", "virbr", "veth", "cni", "podman"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

static bool has_address(const struct ifaddrs *interfaces, const char *name)
{
	for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next)
		if (strcmp(i->ifa_name, name) == 0 && ddp_tcp_can_use(i))
			return true;
	return false;
}

/* Append the names of the InfiniBand interfaces that are up but have no address. */
static void find_bare_interfaces(struct ddp_text *names)
{
	struct ifaddrs *interfaces = NULL;

	if (getifaddrs(&interfaces) < 0)
		return;
	for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next)
		if (strncmp(i->ifa_name, "ib", 2) == 0 && (i->ifa_flags & IFF_UP) && i->ifa_addr &&
		    i->ifa_addr->sa_family == AF_PACKET && !has_address(interfaces, i->ifa_name))
			ddp_text_add(names, "%s%s", names->size ? "," : "", i->ifa_name);
	freeifaddrs(interfaces);
}

static void check_network(struct inspection *host)
{
	struct ddp_text bare = {.data = NULL};
	struct ddp_tcp_address address;
	struct ddp_error error = {0};
	char network[DDP_TCP_TEXT];

	if (ddp_tcp_address_choose(&address, &error) < 0) {
		site_add_verdict(host->lines, SITE_WRONG, "network",
				 "correct or unset the variable", "%s", error.text);
		return;
	}
	ddp_tcp_network_text(&address, network);
	find_bare_interfaces(&bare);
	if (is_local_interface(address.interface))
		site_add_verdict(host->lines, SITE_WARNING, "network",
				 "set DDP_SOCKET_IFNAME to the interface that connects the nodes",
				 "ranks would use %s (%s), which other nodes usually cannot reach",
				 address.interface, network);
	else if (bare.size)
		site_add_verdict(host->lines, SITE_WARNING, "network",
				 "give it an address, or use DDP_WIDE=mpi",
				 "ranks would use %s (%s), as %s has no address", address.interface,
				 network, bare.data);
	else
		site_add_verdict(host->lines, SITE_OK, "network", "", "%s, by interface %s",
				 network, address.interface);
	ddp_text_free(&bare);
}

/* Check the variables that the plugin set in this task, and the directory that srun created. */
static void check_step(struct inspection *host)
{
	const char *rank = getenv("DDP_RANK");
	const char *directory = getenv("DDP_RENDEZVOUS");

	if (!rank)
		site_add_verdict(
			host->lines, SITE_WRONG, "step",
			"check the plugstack.conf that slurmd reads here, and slurmd's log",
			"slurmd started the task without the plugin");
	else if (directory && write_in(directory) < 0)
		site_add_verdict(
			host->lines, SITE_WRONG, "step",
			"ranks on this node cannot join the others: mount the directory writable",
			"cannot write to the directory that srun created: %s", strerror(errno));
	else
		site_add_verdict(host->lines, SITE_OK, "step", "",
				 "srun --ddp made the task a rank%s",
				 directory ? ", and the directory is shared"
					   : "; the directory of this command is not shared");
}

void site_check_host(const char *config, struct site_found *found, struct ddp_text *lines)
{
	char step[8] = "";
	struct inspection host = {.config = config, .found = found, .lines = lines};
	struct site_stack stack = {.lines = NULL};

	*found = (struct site_found){.works = false};
	ddp_values_init(&found->values);
	host.node = site_setting(config, SITE_STEP, step, sizeof(step));
	check_srun(&host);
	check_stack(&host, &stack);
	if (host.line) {
		check_arguments(&host);
		check_ports(&host);
		check_rendezvous(&host);
		check_mps(&host);
	}
	if (*step == '1') {
		check_step(&host);
		check_network(&host);
	}
	site_stack_free(&stack);
}
