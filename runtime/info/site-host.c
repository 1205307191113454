/* SPDX-License-Identifier: Apache-2.0 */
/* site-host.c - what ddp-info --check finds on one host: plugstack.conf, ddp.so, arguments, ports, directories, MPS */
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

void site_say(struct ddp_text *lines, enum site_level level, const char *what, const char *remedy,
	      const char *format, ...)
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

/* --- Who could change a file --------------------------------------------------------------- */

/* The user in "slurm(64030)"; root where there is none. */
static uid_t user_in(const char *config, const char *name)
{
	char value[256];
	const char *open =
		site_setting(config, name, value, sizeof(value)) ? strchr(value, '(') : NULL;

	return open ? (uid_t)strtoul(open + 1, NULL, 10) : 0;
}

/* Whether somebody else than root and [users] may change what is [at], which [st] is of. */
static enum site_level judge(const char *at, const struct stat *st, const uid_t users[2], char *why,
			     size_t size)
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

/* The same of [path], with all links followed, and of the directories above it. */
static enum site_level others_may_change(const char *path, const uid_t users[2], char *why,
					 size_t size)
{
	enum site_level level = SITE_OK;
	char real[PATH_MAX], *slash = real;
	struct stat st;

	if (!realpath(path, real))
		return SITE_OK; /* whoever looks for it says so */
	while (level == SITE_OK && slash) {
		const char *at = *real ? real : "/";

		if (stat(at, &st) == 0)
			level = judge(at, &st, users, why, size);
		slash = strrchr(real, '/');
		if (slash)
			*slash = '\0';
	}
	return level;
}

/*
 * Whether users cannot read file [path], because of its mode or that of a directory above it. A group other than
 * root's may be the users'.
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

/* --- Looking ------------------------------------------------------------------------------- */

struct look {
	const char *config;
	struct site_found *found;
	struct ddp_text *lines;
	bool node;
	bool knows;	  /* srun knows --ddp */
	char release[64]; /* of the Slurm that is installed here, "" */
	char stack_path[PATH_MAX];
	const struct site_line *line; /* the plugin's */
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The first line of [text] that says something, without who says it. */
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

/* srun loads the plugins to print its help, so it says whether this one can be loaded. */
static void look_at_srun(struct look *look)
{
	enum { SECONDS = 30 };
	struct ddp_command_said output;
	char line[512];
	const char *space;

	site_run((char *[]){"srun", "--version", NULL}, SECONDS, &output);
	space = output.out.data ? strrchr(output.out.data, ' ') : NULL;
	if (output.status == 0 && space)
		snprintf(look->release, sizeof(look->release), "%.*s",
			 (int)strcspn(space + 1, "\n"), space + 1);
	ddp_command_said_free(&output);
	site_run((char *[]){"srun", "--help", NULL}, SECONDS, &output);
	look->knows = output.out.data && strstr(output.out.data, "[ddp] ");
	if (look->knows)
		site_say(look->lines, SITE_OK, "srun", "", "srun knows --ddp");
	else if (output.status != 127)
		site_say(look->lines, SITE_WRONG, "srun", "see the lines below",
			 "srun does not know --ddp%s%s", *output.err.data ? ": " : "",
			 first_line(&output.err, line, sizeof(line)));
	else if (!look->node)
		site_say(look->lines, SITE_WRONG, "srun", "look at PATH", "there is no srun here");
	ddp_command_said_free(&output);
}

static char *read_all(const char *path, size_t *size)
{
	struct ddp_error error;
	char *data = NULL;

	return ddp_file_read(path, 64u << 20, &data, size, &error) == 0 ? data : NULL;
}

/* The slurm.conf that commands read here: true if there is one. */
static bool find_conf(const struct look *look, char *path, size_t size)
{
	const char *given = getenv("SLURM_CONF");

	if (given && *given) {
		snprintf(path, size, "%s", given);
		return access(path, F_OK) == 0;
	}
	if (site_setting(look->config, "SLURM_CONF", path, size) && access(path, F_OK) == 0)
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
 * Which plugstack.conf Slurm reads here: the one that this host's slurm.conf names, else slurmctld's; where that is
 * slurmctld's default, beside its slurm.conf, it is beside this host's too.
 */
static void find_stack(struct look *look)
{
	char conf[PATH_MAX], theirs[PATH_MAX], named[PATH_MAX] = "";
	bool here = find_conf(look, conf, sizeof(conf));
	size_t size;
	char *text = here ? read_all(conf, &size) : NULL;
	bool said = text && site_setting(text, "PlugStackConfig", named, sizeof(named));

	free(text);
	if (!said && site_setting(look->config, "PlugStackConfig", named, sizeof(named)))
		said = !here || !site_setting(look->config, "SLURM_CONF", theirs, sizeof(theirs)) ||
		       directory_of(theirs) != directory_of(named) ||
		       strncmp(theirs, named, (size_t)directory_of(named)) != 0;
	if (said)
		snprintf(look->stack_path, sizeof(look->stack_path), "%s", named);
	else if (here)
		snprintf(look->stack_path, sizeof(look->stack_path), "%.*s/plugstack.conf",
			 directory_of(conf), conf);
	else
		strcpy(look->stack_path, "/etc/slurm/plugstack.conf");
}

/* Find the plugin of [line]: a path that is not absolute is in a directory of PluginDir. Returns whether it exists. */
static bool find_library(const struct look *look, const struct site_line *line, char *path,
			 size_t size)
{
	char directories[PATH_MAX], *rest = directories, *directory;

	snprintf(path, size, "%s", line->path);
	if (*path == '/' ||
	    !site_setting(look->config, "PluginDir", directories, sizeof(directories)))
		return access(path, F_OK) == 0;
	while ((directory = strsep(&rest, ":"))) {
		snprintf(path, size, "%s/%s", directory, line->path);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

static void look_at_owner(const struct look *look, const char *what, const char *path, uid_t other)
{
	const uid_t users[2] = {user_in(look->config, "SlurmdUser"), other};
	char why[PATH_MAX + 64];
	enum site_level level = others_may_change(path, users, why, sizeof(why));

	if (level != SITE_OK)
		site_say(look->lines, level, what, "chown root and chmod go-w it",
			 "%s, and what is loaded from there runs as root on the nodes", why);
	/* A slurmd of another user runs that user's jobs only. */
	if (users[0] == 0 && is_closed_to_users(path, why, sizeof(why)))
		site_say(look->lines, SITE_WRONG, what,
			 "every srun reads it: chmod a+r a file, a+rx a directory",
			 "%s, so users cannot read %s", why, path);
}

static void look_at_library(struct look *look)
{
	struct site_found *found = look->found;
	char path[2 * PATH_MAX];
	size_t size = 0, n;
	char *data = NULL;

	(void)find_library(look, look->line, path, sizeof(path));
	if (access(path, R_OK) < 0)
		site_say(look->lines, SITE_WRONG, "ddp.so",
			 errno == EACCES ? "chmod a+r it" : "install the package slurm-ddp here",
			 "cannot read %s: %s", path, strerror(errno));
	else if (!(data = read_all(path, &size)) || !site_library_series(data, size, found->series))
		site_say(look->lines, SITE_WRONG, "ddp.so", "install the package slurm-ddp again",
			 "%s is no plugin of Slurm for this machine", path);
	else if ((n = strlen(found->series)) && *look->release &&
		 (strncmp(look->release, found->series, n) != 0 || look->release[n] != '.'))
		site_say(look->lines, SITE_WRONG, "ddp.so",
			 "Slurm loads none but of its own release: install the slurm-ddp for it",
			 "%s is for Slurm %s, and Slurm here is %s", path, found->series,
			 look->release);
	else
		site_say(look->lines, SITE_OK, "ddp.so", "", "%s is for Slurm %s%s (crc %08x)",
			 path, found->series, *look->release ? ", as is here" : "",
			 ddp_crc32c(0, data, size));
	if (data)
		look_at_owner(look, "ddp.so", path, 0);
	free(data);
}

/* pyxis gives all tasks of a node the variables of the first; what is set after it is right for each. */
static void look_at_order(struct look *look, const struct site_stack *stack)
{
	const struct site_line *pyxis = NULL;

	for (size_t i = 0; i < stack->count; i++)
		if (strcmp(base_name(stack->lines[i].path), "spank_pyxis.so") == 0)
			pyxis = &stack->lines[i];
	if (!pyxis)
		site_say(look->lines, SITE_OK, "order", "", "there is no pyxis, so any will do");
	else if (pyxis > look->line)
		site_say(
			look->lines, SITE_WRONG, "order",
			"pyxis gives all tasks of a node the variables of the first: move the line "
			"of ddp.so behind its",
			"%s:%u loads pyxis after %s:%u loads ddp.so", pyxis->file, pyxis->number,
			look->line->file, look->line->number);
	else
		site_say(look->lines, SITE_OK, "order", "", "behind pyxis (%s:%u)", pyxis->file,
			 pyxis->number);
}

/* What the line of ours looks like where there is none. */
static void say_no_line(struct look *look, const struct site_stack *stack)
{
	static const char file[] = DDP_PLUGSTACK_DIR "/zz-ddp.conf";

	if (stack->unreadable.size > 0 ||
	    (stack->misread.size > 0 &&
	     (strstr(stack->misread.data, "ddp.so") || strstr(stack->misread.data, ": include "))))
		return;
	if (look->knows)
		site_say(
			look->lines, SITE_WARNING, "plugstack.conf", "",
			"srun loads the plugin, but not by %s: where its line is, is not known here",
			look->stack_path);
	else if (access(file, F_OK) == 0)
		site_say(look->lines, SITE_WRONG, "plugstack.conf",
			 "add the line \"include " DDP_PLUGSTACK_DIR "/*.conf\" to it",
			 "no line of %s loads ddp.so, nor includes %s", look->stack_path, file);
	else
		site_say(
			look->lines, SITE_WRONG, "plugstack.conf",
			"install the package slurm-ddp here, or write the line \"optional PATH/ddp.so\"",
			"no line of %s loads ddp.so, and there is no %s", look->stack_path, file);
}

/* Each line of [text], and what is to be said of it, as a verdict. */
static void say_each(struct look *look, enum site_level level, const struct ddp_text *text,
		     const char *end, const char *remedy)
{
	for (const char *at = text->size ? text->data : ""; *at; at = site_next_line(at))
		site_say(look->lines, level, "plugstack.conf", remedy, "%.*s%s",
			 (int)strcspn(at, "\n"), at, end);
}

static bool is_ours(const struct site_line *line)
{
	return strcmp(base_name(line->path), "ddp.so") == 0;
}

/* The plugin's line: the first whose file exists, for Slurm skips an optional one that is missing; else the first. */
static void choose_line(struct look *look, const struct site_stack *stack)
{
	const struct site_line *first = NULL;
	char path[2 * PATH_MAX];

	for (size_t i = 0; i < stack->count && !look->line; i++) {
		const struct site_line *line = &stack->lines[i];

		if (!is_ours(line))
			continue;
		first = first ? first : line;
		if (line->required || find_library(look, line, path, sizeof(path)))
			look->line = line;
	}
	look->line = look->line ? look->line : first;
}

static void say_other_lines(struct look *look, const struct site_stack *stack)
{
	char path[2 * PATH_MAX];

	for (size_t i = 0; i < stack->count; i++) {
		const struct site_line *line = &stack->lines[i];

		if (line == look->line || !is_ours(line))
			continue;
		if (find_library(look, line, path, sizeof(path)))
			site_say(look->lines, SITE_WARNING, "plugstack.conf",
				 "remove one: the first counts", "%s:%u loads ddp.so once more",
				 line->file, line->number);
		else
			site_say(look->lines, SITE_WARNING, "plugstack.conf", "remove the line",
				 "%s:%u names %s, which does not exist", line->file, line->number,
				 line->path);
	}
}

static void look_at_stack(struct look *look, struct site_stack *stack)
{
	find_stack(look);
	site_stack_read(stack, look->stack_path);
	choose_line(look, stack);
	say_each(look, SITE_WARNING, &stack->ignored,
		 " is not a word that Slurm knows, it ignores the line",
		 "begin it with optional, required or include");
	say_each(look, look->line ? SITE_WARNING : SITE_WRONG, &stack->misread, "",
		 "correct the line: Slurm takes quotes and a CR as a part of the word");
	if (!look->line)
		say_each(look, SITE_WARNING, &stack->unmatched, " matches no file",
			 "correct or remove the line");
	say_each(look, geteuid() == 0 ? SITE_WRONG : SITE_WARNING, &stack->unreadable, "",
		 "every srun reads it: chmod a+r it");
	if (!look->line) {
		say_no_line(look, stack);
		return;
	}
	if (look->line->required)
		site_say(look->lines, SITE_WARNING, "plugstack.conf",
			 "write optional: with required, a ddp.so that is missing or of another "
			 "release stops every job of the node",
			 "%s:%u: required %s", look->line->file, look->line->number,
			 look->line->path);
	else
		site_say(look->lines, SITE_OK, "plugstack.conf", "", "%s:%u: optional %s",
			 look->line->file, look->line->number, look->line->path);
	say_other_lines(look, stack);
	look_at_owner(look, "plugstack.conf", look->stack_path, user_in(look->config, "SlurmUser"));
	if (strcmp(look->line->file, look->stack_path) != 0)
		look_at_owner(look, "plugstack.conf", look->line->file,
			      user_in(look->config, "SlurmUser"));
	look_at_order(look, stack);
	look_at_library(look);
}

/* By the plugin's own table and rules. */
static void look_at_arguments(struct look *look)
{
	const struct site_line *line = look->line;
	struct ddp_text said = {.data = NULL};
	struct ddp_message message;

	if (ddp_values_from_plugstack(&look->found->values, line->count, line->arguments,
				      &message) < 0) {
		site_say(look->lines, SITE_WRONG, "arguments",
			 "correct the line: the plugin is disabled by it", "%s:%u: %s", line->file,
			 line->number, message.text);
		return;
	}
	/* Each node has a line of its own for what concerns its GPUs. */
	for (int i = 0; i < line->count; i++)
		if (strncmp(line->arguments[i], "gpu_memory=", 11) != 0)
			ddp_text_add(&said, " %s", line->arguments[i]);
	site_say(look->lines, SITE_OK, "arguments", "", "%s", said.size ? said.data + 1 : "none");
	ddp_text_free(&said);
	look->found->works = look->knows;
}

/* --- Ports --------------------------------------------------------------------------------- */

struct range {
	const char *name;
	struct ddp_port_range ports; /* 0-0: none */
};

/* "12000-12999", perhaps after "ports=" and before more. */
static struct ddp_port_range range_in(const char *text)
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

static struct ddp_port_range ephemeral(void)
{
	struct ddp_port_range range = {0, 0};
	FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	if (file && fscanf(file, "%u %u", &range.lo, &range.hi) != 2)
		range = (struct ddp_port_range){0, 0};
	if (file)
		fclose(file);
	return range;
}

/* Add "and SrunPortRange 60000-60999" for each that [range] has ports in common with. */
static void add_common(struct ddp_text *text, struct ddp_port_range range,
		       const struct range *others, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (others[i].ports.hi > 0 && others[i].ports.lo <= range.hi &&
		    range.lo <= others[i].ports.hi)
			ddp_text_add(text, "%s%s %u-%u", text->size ? " and " : "", others[i].name,
				     others[i].ports.lo, others[i].ports.hi);
}

/* The first port that a user may listen on. */
static unsigned first_unprivileged(void)
{
	FILE *file = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
	unsigned port = 1024;

	if (file && fscanf(file, "%u", &port) != 1)
		port = 1024;
	if (file)
		fclose(file);
	return port;
}

static void look_at_ports(struct look *look)
{
	const unsigned privileged = first_unprivileged();
	const struct ddp_port_range site = look->found->values.site_ports, local = ephemeral();
	struct range ranges[] = {{"MpiParams", {0, 0}},
				 {"SrunPortRange", {0, 0}},
				 {"SlurmdPort", {0, 0}},
				 {"SlurmctldPort", {0, 0}},
				 {"ip_local_port_range", local}};
	struct ddp_text common = {.data = NULL};
	char value[512];

	if (!*look->config)
		return;
	for (size_t i = 0; i < 4; i++)
		if (site_setting(look->config, ranges[i].name, value, sizeof(value)))
			ranges[i].ports = range_in(value);
	/* What the plugin computes is outside of the kernel's range as long as anything of its own is. */
	add_common(&common, site, ranges, site.lo >= local.lo && site.hi <= local.hi ? 5 : 4);
	if (site.lo < privileged)
		site_say(look->lines, SITE_WARNING, "ports",
			 "choose others with ports= in the plugin's line",
			 "%u-%u, from which MASTER_PORT is computed: ports below %u are root's",
			 site.lo, site.hi, privileged);
	else if (common.size)
		site_say(look->lines, SITE_WARNING, "ports",
			 "choose others with ports= in the plugin's line",
			 "%u-%u, from which MASTER_PORT is computed, and %s overlap", site.lo,
			 site.hi, common.data);
	else
		site_say(look->lines, SITE_OK, "ports", "",
			 "%u-%u, from which MASTER_PORT is computed, overlap no others", site.lo,
			 site.hi);
	ddp_text_clear(&common);
	add_common(&common, ranges[0].ports, ranges + 1, 4);
	if (!ranges[0].ports.hi)
		site_say(look->lines, SITE_WARNING, "MpiParams",
			 "MpiParams=ports=LO-HI in slurm.conf gives each step ports of its own",
			 "no ports are reserved, so two jobs can compute the same one");
	else if (common.size)
		site_say(look->lines, SITE_WARNING, "MpiParams", "choose others in slurm.conf",
			 "its ports %u-%u and %s overlap", ranges[0].ports.lo, ranges[0].ports.hi,
			 common.data);
	else
		site_say(look->lines, SITE_OK, "MpiParams", "", "Slurm reserves %u-%u for steps",
			 ranges[0].ports.lo, ranges[0].ports.hi);
	ddp_text_free(&common);
}

/* --- Directories, MPS, the step ------------------------------------------------------------ */

/* Jobs may have directories of their own there, as job_container/tmpfs and namespace/... make them. */
static bool private_to_jobs(const struct look *look, const char *path, char *plugin, size_t size)
{
	return (site_setting(look->config, "JobContainerType", plugin, size) ||
		site_setting(look->config, "NamespaceType", plugin, size)) &&
	       (strstr(plugin, "/tmpfs") || strstr(plugin, "/linux")) &&
	       (strncmp(path, "/tmp", 4) == 0 || strncmp(path, "/dev/shm", 8) == 0);
}

static void look_at_rendezvous(struct look *look)
{
	const char *template = look->found->values.directory;
	struct ddp_walk *walk = calloc(1, sizeof(*walk));
	char path[PATH_MAX], plugin[64];
	int fd = -1;

	if (*template != '/') {
		site_say(look->lines, SITE_OK, "rendezvous", "",
			 *template ? "rdzv=%s, below each step's working directory"
				   : "in each step's working directory",
			 template);
		goto out;
	}
	ddp_template_fixed(template, path, sizeof(path));
	if (private_to_jobs(look, path, plugin, sizeof(plugin)))
		site_say(look->lines, SITE_WRONG, "rendezvous",
			 "name a directory that all nodes share",
			 "rdzv=%s: with %s each job has a %s of its own", template, plugin, path);
	else if (!walk || (fd = ddp_walk_open(walk, path)) < 0)
		site_say(look->lines, SITE_WRONG, "rendezvous",
			 "it must be there, root's, and sticky where users write (chmod 1777)",
			 "rdzv=%s: %s", template, walk ? walk->why : "no memory");
	else if (!strchr(template, '%'))
		site_say(look->lines, SITE_WARNING, "rendezvous",
			 "write rdzv=DIR/%u, as .ddp there belongs to the first user who comes",
			 "rdzv=%s is one directory for all users", template);
	else
		site_say(look->lines, SITE_OK, "rendezvous", "",
			 "rdzv=%s; nobody else can change %s", template, path);
	if (fd >= 0)
		close(fd);
out:
	free(walk);
}

static void look_at_mps(struct look *look)
{
	const char *directory = ddp_mps_directory(getenv(DDP_MPS_PIPE_DIRECTORY));
	enum ddp_mps_state state = ddp_mps_look(directory);
	uint64_t memory = look->found->values.gpu_memory;

	if (state == DDP_MPS_STALE)
		site_say(look->lines, SITE_WARNING, "MPS",
			 "start it again, or remove the directory", "the daemon of %s is gone",
			 directory);
	else if (state == DDP_MPS_SERVES && !memory)
		site_say(look->lines, SITE_WARNING, "MPS",
			 "add gpu_memory=NG to the plugin's line here",
			 "a daemon serves in %s, and memory is not limited", directory);
	else if (state == DDP_MPS_SERVES)
		site_say(look->lines, SITE_OK, "MPS", "", "a daemon serves in %s; gpu_memory=%lluM",
			 directory, (unsigned long long)memory);
	else if (memory || access("/dev/nvidiactl", F_OK) == 0)
		site_say(look->lines, SITE_OK, "MPS", "",
			 "no daemon serves now; without one nothing enforces shares%s",
			 memory ? ", and gpu_memory= is not used" : "");
}

/* Create a file in the rendezvous directory as ranks do, and remove it. Returns 0, or -1 with errno. */
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

/* Whether [name] is an interface that other nodes can seldom reach: of containers or virtual machines. */
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

/* Add to [names] the InfiniBand interfaces that are up and have no address. */
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

/* The address that ranks on this node would use between nodes. */
static void look_at_network(struct look *look)
{
	struct ddp_text bare = {.data = NULL};
	struct ddp_tcp_address address;
	struct ddp_error error = {0};
	char network[DDP_TCP_TEXT];

	if (ddp_tcp_address_choose(&address, &error) < 0) {
		site_say(look->lines, SITE_WRONG, "network", "correct the variable, or unset it",
			 "%s", error.text);
		return;
	}
	ddp_tcp_network_text(&address, network);
	find_bare_interfaces(&bare);
	if (is_local_interface(address.interface))
		site_say(look->lines, SITE_WARNING, "network",
			 "set DDP_SOCKET_IFNAME to the interface that connects the nodes",
			 "ranks would use %s (%s), which other nodes can seldom reach",
			 address.interface, network);
	else if (bare.size)
		site_say(look->lines, SITE_WARNING, "network",
			 "give it an address, or use DDP_WIDE=mpi",
			 "ranks would use %s (%s), as %s has no address", address.interface,
			 network, bare.data);
	else
		site_say(look->lines, SITE_OK, "network", "", "%s, by interface %s", network,
			 address.interface);
	ddp_text_free(&bare);
}

/* The variables of this task are what slurmd's plugin made of them. */
static void look_at_step(struct look *look)
{
	const char *error = getenv("DDP_ERROR");
	const char *rank = getenv("DDP_RANK");
	const char *directory = getenv("DDP_RENDEZVOUS");

	if (error)
		site_say(look->lines, SITE_WRONG, "step", "tasks here do not train", "%s", error);
	else if (!rank)
		site_say(look->lines, SITE_WRONG, "step",
			 "look at the plugstack.conf that slurmd reads here, and at its log",
			 "slurmd started the task without the plugin");
	else if (directory && write_in(directory) < 0)
		site_say(look->lines, SITE_WRONG, "step",
			 "ranks on this node cannot meet the others: mount it for writing here",
			 "cannot write in the directory that srun made: %s", strerror(errno));
	else
		site_say(look->lines, SITE_OK, "step", "", "srun --ddp made the task a rank%s",
			 directory ? ", and the directory is shared"
				   : "; the directory of this call is not shared");
}

void site_look(const char *config, struct site_found *found, struct ddp_text *lines)
{
	char step[8] = "";
	struct look look = {.config = config, .found = found, .lines = lines};
	struct site_stack stack = {.lines = NULL};

	*found = (struct site_found){.works = false};
	ddp_values_init(&found->values);
	look.node = site_setting(config, SITE_STEP, step, sizeof(step));
	look_at_srun(&look);
	look_at_stack(&look, &stack);
	if (look.line) {
		look_at_arguments(&look);
		look_at_ports(&look);
		look_at_rendezvous(&look);
		look_at_mps(&look);
	}
	if (*step == '1') {
		look_at_step(&look);
		look_at_network(&look);
	}
	site_stack_free(&stack);
}
