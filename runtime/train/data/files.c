/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "archive.h"
#include "set-private.h"

/* --- Finding ------------------------------------------------------------------------------- */

int set_find_file(struct source **source, const char *directory, const char *const *below,
		  const char *const *names, struct ddp_error *error)
{
	static const char *const endings[] = {"", ".gz", NULL};
	char path[PATH_MAX];
	int status;

	for (; *below; below++)
		for (const char *const *name = names; *name; name++)
			for (const char *const *ending = endings; *ending; ending++) {
				snprintf(path, sizeof(path), "%s/%s%s%s", directory, *below, *name,
					 *ending);
				status = source_open(source, path, error);
				if (status != 1)
					return status;
			}
	return 1;
}

const char *set_file_name(const struct set *set, const struct set_file *file, char *text,
			  size_t size)
{
	if (file->source)
		snprintf(text, size, "%s", source_path(file->source));
	else
		snprintf(text, size, "%s: %s", source_path(set->archive), file->member);
	return text;
}

/* --- Unpacking ----------------------------------------------------------------------------- */

/* Where the bytes of the next file begin, if those of one with [length] begin at [place]. */
static uint64_t place_after(uint64_t place, uint64_t length)
{
	return place + (length + 63) / 64 * 64;
}

static bool is_packed(const struct set *set, const struct set_file *file)
{
	return set->archive || (file->source && source_packed(file->source));
}

static int unpack_files(struct set *set, uint8_t *bytes, uint64_t *notes, struct ddp_error *error)
{
	for (int i = 0; i < SET_PARTS; i++) {
		struct set_file *file = &set->files[i];
		int64_t got;
		int status;

		if (!is_packed(set, file))
			continue;
		got = source_take(file->source, bytes, file->length, error);
		if (got < 0)
			return (int)got;
		status = source_finish(file->source, error);
		if (status < 0)
			return status;
		notes[i] = (uint64_t)got;
		bytes += place_after(0, file->length);
	}
	return 0;
}

/* The file that [member] is, with where its bytes go in [place]; NULL: none of ours. */
static struct set_file *file_of(struct set *set, const struct archive_member *member,
				uint64_t *place)
{
	*place = 0;
	for (int i = 0; i < SET_PARTS; i++) {
		struct set_file *file = &set->files[i];

		if (member->file && file->member && strcmp(file->member, member->name) == 0)
			return file;
		*place = place_after(*place, file->length);
	}
	return NULL;
}

static int unpack_member(struct set *set, const struct archive_member *member, uint8_t *bytes,
			 uint64_t *notes, struct ddp_error *error)
{
	uint64_t place;
	struct set_file *file = file_of(set, member, &place);
	int status;

	if (file && member->bytes > file->length)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: %s has %" PRIu64 " bytes, expected %" PRIu64 " at most",
				     source_path(set->archive), member->name, member->bytes,
				     file->length);
	status = source_read(set->archive, file ? bytes + place : NULL, member->bytes, member->name,
			     error);
	if (status == 0)
		status = source_read(set->archive, NULL, member->padding, member->name, error);
	if (file)
		notes[file - set->files] = member->bytes;
	return status;
}

static int unpack_archive(struct set *set, uint8_t *bytes, uint64_t *notes, struct ddp_error *error)
{
	struct archive_member member;
	int status;

	while ((status = archive_next(set->archive, &member, error)) == 1) {
		status = unpack_member(set, &member, bytes, notes, error);
		if (status < 0)
			return status;
	}
	if (status == 0)
		status = source_drain(set->archive, error);
	for (int i = 0; status == 0 && i < SET_PARTS; i++)
		if (set->files[i].member && notes[i] == 0)
			status = ddp_error_set(error, DDP_ERR_FORMAT, "%s: has no %s in it",
					       source_path(set->archive), set->files[i].member);
	return status;
}

static int unpack(void *context, uint8_t *bytes, uint64_t *notes, struct ddp_error *error)
{
	struct set *set = context;

	return set->archive ? unpack_archive(set, bytes, notes, error)
			    : unpack_files(set, bytes, notes, error);
}

/* Where the bytes of each file are; those that were unpacked are as long as they turned out. */
static void locate(struct set *set)
{
	uint64_t place = 0;

	for (int i = 0; i < SET_PARTS; i++) {
		struct set_file *file = &set->files[i];

		if (is_packed(set, file)) {
			file->bytes = share_bytes(&set->share) + place;
			place = place_after(place, file->length);
			file->length = share_notes(&set->share)[i];
		} else if (file->source) {
			file->bytes = source_bytes(file->source) + file->first;
		}
	}
}

int set_load_files(struct set *set, struct ddp *ddp, int status, struct ddp_error *error)
{
	size_t room = 0;

	for (int i = 0; i < SET_PARTS; i++)
		if (is_packed(set, &set->files[i]))
			room = place_after(room, set->files[i].length);
	status = share_agree(ddp, status, "", 0, &room, error);
	if (status == 0 && room > 0)
		status = share_fill(&set->share, ddp, room, unpack, set, error);
	if (status == 0)
		locate(set);
	return status;
}

/* --- Checking ------------------------------------------------------------------------------ */

static int check_part(const struct set *set, int number, struct ddp_error *error)
{
	const struct set_part *part = &set->parts[number];
	const struct set_file *file = &set->files[number];
	char name[PATH_MAX];

	for (uint64_t i = 0; i < part->samples; i++) {
		const uint8_t *label = part->labels + i * set->label_stride;

		if (*label < set->info.classes)
			continue;
		if (set->kind == SET_MNIST)
			file = &set->files[1];
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: byte %" PRIu64 ": label %d of image %" PRIu64
				     ", expected 0 to %d",
				     set_file_name(set, file, name, sizeof(name)),
				     file->first + (uint64_t)(label - file->bytes), *label, i,
				     set->info.classes - 1);
	}
	return 0;
}

int set_check(struct set *set, const struct set_options *options, int status,
	      struct ddp_error *error)
{
	static const char *const names[SET_KINDS] = {"MNIST", "CIFAR-10", "CIFAR-100"};
	size_t none = 0;

	for (int i = 0; status == 0 && i < SET_PARTS; i++) {
		status = check_part(set, i, error);
		set->info.samples += set->parts[i].samples;
	}
	snprintf(set->title, sizeof(set->title), "%s in %s, %" PRIu64 " images", names[set->kind],
		 options->directory, set->info.samples);
	return share_agree(options->ddp, status, "images", set->info.samples, &none, error);
}
