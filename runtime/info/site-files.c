/* SPDX-License-Identifier: Apache-2.0 */
/*
 * site-files.c - parse the files that ddp-info --check reads: Slurm's settings, plugstack.conf, and
 * a plugin's ELF file
 */
#include "config.h"

#include <elf.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "site.h"

/* --- Settings of Slurm --------------------------------------------------------------------- */

static const char *const settings[] = {"JobContainerType", "KillOnBadExit",   "MpiParams",
				       "NamespaceType",	   "PlugStackConfig", "PluginDir",
				       "SLURM_CONF",	   "SLURM_VERSION",   "SlurmctldPort",
				       "SlurmdPort",	   "SlurmdUser",      "SlurmUser",
				       "SrunPortRange"};

const char *site_next_line(const char *at)
{
	at += strcspn(at, "\n");
	return at + (*at == '\n');
}

/* If [line] sets [name], returns the beginning of the value, else NULL. */
static const char *value_in(const char *line, const char *name)
{
	size_t n = strlen(name);

	line += strspn(line, " \t");
	if (strncasecmp(line, name, n) != 0)
		return NULL;
	line += n;
	line += strspn(line, " \t");
	return *line == '=' ? line + 1 + strspn(line + 1, " \t") : NULL;
}

bool site_setting(const char *text, const char *name, char *value, size_t size)
{
	const char *found = NULL;
	size_t n;

	for (const char *at = text; *at && !found; at = site_next_line(at))
		found = value_in(at, name);
	n = found ? strcspn(found, " \t\r\n#") : 0;
	*value = '\0';
	if (n == 0 || n >= size || strncmp(found, "(null)", n) == 0)
		return false;
	memcpy(value, found, n);
	value[n] = '\0';
	return true;
}

void site_settings_keep(const char *text, struct ddp_text *config)
{
	for (const char *at = text; *at; at = site_next_line(at))
		for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
			if (value_in(at, settings[i]))
				ddp_text_put(config, at, (size_t)(site_next_line(at) - at));
	ddp_text_add(config, "%s", "");
}

/* --- plugstack.conf ------------------------------------------------------------------------ */

enum { INCLUDES = 8 }; /* maximum nesting of includes */

static void read_stack(struct site_stack *stack, const char *path, int depth);

static void include(struct site_stack *stack, const char *file, unsigned number,
		    const char *pattern, int depth)
{
	const char *slash = strrchr(file, '/');
	char whole[2 * PATH_MAX];
	glob_t found;

	snprintf(whole, sizeof(whole), "%.*s%s",
		 *pattern == '/' || !slash ? 0 : (int)(slash + 1 - file), file, pattern);
	if (glob(whole, 0, NULL, &found) == 0)
		for (size_t i = 0; i < found.gl_pathc; i++)
			read_stack(stack, found.gl_pathv[i], depth + 1);
	else if (!strpbrk(pattern, "\"'\r"))
		ddp_text_add(&stack->unmatched, "%s:%u: include %s\n", file, number, pattern);
	globfree(&found);
}

/* Split a line into path and arguments. [rest] points into the buffer line->words. */
static void add_line(struct site_stack *stack, struct site_line *line, char *rest)
{
	struct site_line *more = realloc(stack->lines, (stack->count + 1) * sizeof(*stack->lines));
	size_t most = strlen(rest) / 2 + 2;

	line->arguments = calloc(most, sizeof(*line->arguments));
	stack->lines = more ? more : stack->lines;
	if (!more || !line->arguments) {
		free(line->arguments);
		free(line->words);
		stack->ignored.failed = true;
		return;
	}
	for (char *next, *word = strtok_r(rest, " \t\n", &next); word;
	     word = strtok_r(NULL, " \t\n", &next))
		line->arguments[line->count++] = word;
	stack->lines[stack->count++] = *line;
}

/* Report quotes and CR LF, which Slurm does not support and treats as part of a word. */
static void note_misread(struct site_stack *stack, const char *file, unsigned number,
			 const char *text, const char *path)
{
	int length = (int)strcspn(text, "\r\n#");
	bool ends_in_cr = text[length] == '\r';

	if (ends_in_cr || *path == '"' || *path == '\'')
		ddp_text_add(&stack->misread, "%s:%u: %.*s %s\n", file, number, length, text,
			     ends_in_cr ? "ends in CR LF" : "has quotes");
}

static void read_line(struct site_stack *stack, const char *file, unsigned number, const char *text,
		      int depth)
{
	struct site_line line = {.number = number, .words = strdup(text)};
	char *rest = NULL, *kind;

	if (!line.words)
		return;
	line.words[strcspn(line.words, "#")] = '\0';
	kind = strtok_r(line.words, " \t\n", &rest);
	line.path = kind ? strtok_r(NULL, " \t\n", &rest) : NULL;
	line.required = kind && strcmp(kind, "required") == 0;
	snprintf(line.file, sizeof(line.file), "%s", file);
	if (line.path)
		note_misread(stack, file, number, text, line.path);
	if (line.path && (line.required || strcmp(kind, "optional") == 0)) {
		add_line(stack, &line, rest);
		return;
	}
	if (line.path && strcmp(kind, "include") == 0)
		include(stack, file, number, line.path, depth);
	else if (kind)
		ddp_text_add(&stack->ignored, "%s:%u: \"%s\"\n", file, number, kind);
	free(line.words);
}

static void read_stack(struct site_stack *stack, const char *path, int depth)
{
	FILE *file = depth < INCLUDES ? fopen(path, "re") : NULL;
	char text[4096];
	unsigned number = 0;

	if (!file && depth < INCLUDES && errno != ENOENT)
		ddp_text_add(&stack->unreadable, "%s: %s\n", path, strerror(errno));
	while (file && fgets(text, sizeof(text), file))
		read_line(stack, path, ++number, text, depth);
	if (file)
		fclose(file);
}

void site_stack_read(struct site_stack *stack, const char *path)
{
	read_stack(stack, path, 0);
}

void site_stack_free(struct site_stack *stack)
{
	for (size_t i = 0; i < stack->count; i++) {
		free(stack->lines[i].words);
		free(stack->lines[i].arguments);
	}
	free(stack->lines);
	ddp_text_free(&stack->ignored);
	ddp_text_free(&stack->misread);
	ddp_text_free(&stack->unmatched);
	ddp_text_free(&stack->unreadable);
}

/* --- The library --------------------------------------------------------------------------- */

struct image {
	const char *data;
	size_t size;
	Elf64_Ehdr head;
};

/* Copy [size] bytes at [offset]. Returns false if the file is too short. */
static bool piece(const struct image *image, uint64_t offset, void *to, size_t size)
{
	if (offset > image->size || size > image->size - offset)
		return false;
	memcpy(to, image->data + offset, size);
	return true;
}

static bool section(const struct image *image, uint64_t index, Elf64_Shdr *section)
{
	return index < image->head.e_shnum &&
	       piece(image, image->head.e_shoff + index * sizeof(*section), section,
		     sizeof(*section));
}

/* Read the 32-bit value of symbol [name]. */
static bool number_of(const struct image *image, const Elf64_Shdr *symbols, const char *name,
		      uint32_t *number)
{
	Elf64_Shdr names, where;
	Elf64_Sym symbol;
	char word[32];
	size_t n = strlen(name) + 1;

	if (!section(image, symbols->sh_link, &names))
		return false;
	for (uint64_t at = 0; at + sizeof(symbol) <= symbols->sh_size; at += sizeof(symbol)) {
		if (!piece(image, symbols->sh_offset + at, &symbol, sizeof(symbol)))
			return false;
		if (piece(image, names.sh_offset + symbol.st_name, word, n) &&
		    memcmp(word, name, n) == 0)
			return section(image, symbol.st_shndx, &where) &&
			       piece(image, where.sh_offset + symbol.st_value - where.sh_addr,
				     number, sizeof(*number));
	}
	return false;
}

/* Read the symbol plugin_version, as Slurm does. No code of the file is run. */
bool site_library_series(const void *data, size_t size, char series[static 8])
{
	struct image image = {.data = data, .size = size};
	Elf64_Shdr symbols;
	uint32_t number;

	series[0] = '\0';
	if (!piece(&image, 0, &image.head, sizeof(image.head)) ||
	    memcmp(image.head.e_ident, ELFMAG, SELFMAG) != 0 ||
	    image.head.e_ident[EI_CLASS] != ELFCLASS64 || image.head.e_shentsize != sizeof(symbols))
		return false;
	for (unsigned i = 0; section(&image, i, &symbols); i++)
		if (symbols.sh_type == SHT_DYNSYM &&
		    number_of(&image, &symbols, "plugin_version", &number)) {
			snprintf(series, 8, "%u.%02u", number >> 16 & 255, number >> 8 & 255);
			return true;
		}
	return false;
}
