/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rooms in as little memory as a simple rule gives: the largest first, each at the lowest place
 * where it meets none that is used at the same time.
 */
#include "config.h"

#include "program.h"

static size_t size_of(const struct program *program, const struct program_room *room, size_t images)
{
	size_t bytes = room->bytes * images + room->fixed, unit = program->alignment;

	return (bytes + unit - 1) / unit * unit;
}

static bool is_used(const struct program_room *room, enum program_mode mode)
{
	return room->first[mode] <= room->last[mode];
}

/* Larger than all that were placed so far. */
static const size_t nowhere = SIZE_MAX;

static bool meets(const struct program_room *a, const struct program_room *b,
		  enum program_mode mode)
{
	return is_used(b, mode) && b->offset[mode] != nowhere && a->first[mode] <= b->last[mode] &&
	       b->first[mode] <= a->last[mode];
}

/* The end of one that is in the way of [room] at [offset], 0: none is. */
static size_t obstacle(const struct program *program, const struct program_room *room,
		       size_t offset, enum program_mode mode, size_t images)
{
	size_t end = offset + size_of(program, room, images);

	for (int i = 0; i < program->room_count; i++) {
		const struct program_room *at = &program->rooms[i];
		size_t bytes = size_of(program, at, images);

		if (meets(room, at, mode) && at->offset[mode] < end &&
		    offset < at->offset[mode] + bytes)
			return at->offset[mode] + bytes;
	}
	return 0;
}

/* Whatever is in the way leaves no place before its end: so none is missed. */
static size_t find_offset(const struct program *program, const struct program_room *room,
			  enum program_mode mode, size_t images)
{
	size_t offset = 0, next;

	while ((next = obstacle(program, room, offset, mode, images)) > 0)
		offset = next;
	return offset;
}

static struct program_room *largest_left(struct program *program, enum program_mode mode,
					 size_t images)
{
	struct program_room *largest = NULL;

	for (int i = 0; i < program->room_count; i++) {
		struct program_room *room = &program->rooms[i];

		if (is_used(room, mode) && room->offset[mode] == nowhere &&
		    (!largest ||
		     size_of(program, room, images) > size_of(program, largest, images)))
			largest = room;
	}
	return largest;
}

size_t program_place(struct program *program, enum program_mode mode, size_t images)
{
	struct program_room *room;
	size_t all = 0;

	for (int i = 0; i < program->room_count; i++)
		program->rooms[i].offset[mode] = nowhere;
	while ((room = largest_left(program, mode, images))) {
		size_t offset = find_offset(program, room, mode, images);
		size_t end = offset + size_of(program, room, images);

		room->offset[mode] = offset;
		all = end > all ? end : all;
	}
	return all;
}
