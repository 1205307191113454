/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.c - read safetensors files */
#include "config.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/json.h"
#include "base/type.h"
#include "tensors.h"

void ddp_tensor_shape(const struct ddp_tensor *tensor, char text[DDP_TENSOR_SHAPE])
{
	size_t used = (size_t)snprintf(text, DDP_TENSOR_SHAPE, "[");

	for (int i = 0; i < tensor->dimensions && i < DDP_DIMENSIONS; i++)
		used += (size_t)snprintf(text + used, DDP_TENSOR_SHAPE - used, "%s%" PRId64,
					 i ? ", " : "", tensor->shape[i]);
	snprintf(text + used, DDP_TENSOR_SHAPE - used, "]");
}

/*
 * Multiply the sizes of [tensor]'s dimensions. Like the format's reference reader, fail if a
 * partial product overflows, even if the size of a later dimension is 0.
 */
static bool count_elements(const struct ddp_tensor *tensor, uint64_t *count)
{
	*count = 1;
	if (tensor->dimensions < 0 || tensor->dimensions > DDP_DIMENSIONS)
		return false;
	for (int i = 0; i < tensor->dimensions; i++)
		if (tensor->shape[i] < 0 ||
		    __builtin_mul_overflow(*count, (uint64_t)tensor->shape[i], count))
			return false;
	return true;
}

bool ddp_tensor_bytes(const struct ddp_tensor *tensor, uint64_t *bytes)
{
	*bytes = 0;
	if ((unsigned)tensor->type >= DDP_TYPE_COUNT || !count_elements(tensor, bytes))
		return false;
	return !__builtin_mul_overflow(*bytes, ddp_type_size(tensor->type), bytes) &&
	       *bytes <= (uint64_t)PTRDIFF_MAX;
}

uint64_t ddp_tensor_count(const struct ddp_tensor *tensor)
{
	uint64_t count;

	return count_elements(tensor, &count) ? count : 0;
}

/* --- The header -------------------------------------------------------------------------- */

struct ddp_header {
	struct ddp_tensor *tensors; /* in file order; map_data() sets their data */
	uint64_t *begin;	    /* file offset of each tensor's data */
	const char **types;	    /* type names in the file */
	size_t count;
	struct ddp_tensor **names; /* sorted by name */
	struct ddp_pair *pairs;	   /* sorted by key */
	size_t pair_count, pair_capacity;
	char *text; /* owns all strings */
};

struct entry {
	struct ddp_tensor tensor;
	const char *type;
	uint64_t begin, end;
};

struct entries {
	struct entry *list;
	size_t count, capacity;
};

static const char out_of_memory[] = "no memory";

/*
 * Grow [list], which has [count] elements of [size] bytes, if another element does not fit. Returns
 * the list, or NULL if memory is short.
 */
static void *grow(void *list, size_t count, size_t *capacity, size_t size)
{
	size_t more = *capacity ? 2 * *capacity : 16;

	if (count < *capacity)
		return list;
	list = reallocarray(list, more, size);
	if (list)
		*capacity = more;
	return list;
}

static void read_metadata(struct ddp_header *header, struct ddp_json *json)
{
	ddp_json_open(json, '{');
	for (bool first = true; ddp_json_more(json, '}', first); first = false) {
		struct ddp_pair *list = grow(header->pairs, header->pair_count,
					     &header->pair_capacity, sizeof(*list));
		struct ddp_pair pair = {.key = ddp_json_key(json)};

		if (!list) {
			ddp_json_fail(json, out_of_memory);
			return;
		}
		header->pairs = list;
		pair.value = ddp_json_string(json);
		if (json->wrong)
			return;
		list[header->pair_count++] = pair;
	}
}

static void read_shape(struct ddp_json *json, struct ddp_tensor *tensor)
{
	tensor->dimensions = 0;
	ddp_json_open(json, '[');
	for (bool first = true; ddp_json_more(json, ']', first); first = false) {
		uint64_t size;

		if (!ddp_json_number(json, &size))
			return;
		if (size > INT64_MAX) {
			ddp_json_fail(json, "a dimension beyond 63 bits");
			return;
		}
		if (tensor->dimensions < DDP_DIMENSIONS)
			tensor->shape[tensor->dimensions] = (int64_t)size;
		tensor->dimensions++;
	}
}

static void read_offsets(struct ddp_json *json, struct entry *entry)
{
	uint64_t *const offsets[] = {&entry->begin, &entry->end};
	size_t count = 0;

	ddp_json_open(json, '[');
	for (bool first = true; ddp_json_more(json, ']', first); first = false) {
		uint64_t number;

		if (!ddp_json_number(json, &number))
			return;
		if (count < 2)
			*offsets[count] = number;
		count++;
	}
	if (count != 2)
		ddp_json_fail(json, "data_offsets are not two numbers");
}

static void read_member(struct ddp_json *json, struct entry *entry, unsigned *seen)
{
	static const char *const names[] = {"dtype", "shape", "data_offsets"};
	const char *key = ddp_json_key(json);
	unsigned index = 0;

	if (!key)
		return;
	while (index < 3 && strcmp(key, names[index]) != 0)
		index++;
	if (index == 3 || *seen & 1u << index) {
		ddp_json_fail(json, index == 3 ? "a member that a tensor does not have"
					       : "a member of a tensor twice");
		return;
	}
	*seen |= 1u << index;
	if (index == 0)
		entry->type = ddp_json_string(json);
	else if (index == 1)
		read_shape(json, &entry->tensor);
	else
		read_offsets(json, entry);
}

static void read_tensor(struct ddp_json *json, struct entries *entries, const char *name)
{
	struct entry *list = grow(entries->list, entries->count, &entries->capacity, sizeof(*list));
	struct entry entry = {.tensor = {.name = name, .type = DDP_TYPE_COUNT}};
	unsigned seen = 0;

	if (!list) {
		ddp_json_fail(json, out_of_memory);
		return;
	}
	entries->list = list;
	ddp_json_open(json, '{');
	for (bool first = true; ddp_json_more(json, '}', first); first = false)
		read_member(json, &entry, &seen);
	if (seen != 7)
		ddp_json_fail(json, "a tensor without dtype, shape or data_offsets");
	if (json->wrong)
		return;
	for (int i = 0; i < DDP_TYPE_COUNT; i++)
		if (strcmp(entry.type, ddp_type_name((uint32_t)i)) == 0)
			entry.tensor.type = (enum ddp_type)i;
	list[entries->count++] = entry;
}

static void read_all(struct ddp_header *header, struct ddp_json *json, struct entries *entries)
{
	bool metadata = false;

	ddp_json_open(json, '{');
	for (bool first = true; ddp_json_more(json, '}', first); first = false) {
		const char *name = ddp_json_key(json);

		if (!name)
			return;
		if (strcmp(name, DDP_HEADER_METADATA) != 0) {
			read_tensor(json, entries, name);
		} else {
			if (metadata)
				ddp_json_fail(json, DDP_HEADER_METADATA " twice");
			metadata = true;
			read_metadata(header, json);
		}
	}
	ddp_json_end(json);
}

static int compare_offsets(const void *a, const void *b)
{
	const struct entry *one = a, *other = b;

	if (one->begin != other->begin)
		return one->begin < other->begin ? -1 : 1;
	if (one->end != other->end)
		return one->end < other->end ? -1 : 1;
	/* Names point into the header's text, so their addresses give the order in the header. */
	return one->tensor.name < other->tensor.name ? -1 : 1;
}

static int compare_names(const void *a, const void *b)
{
	const struct ddp_tensor *const *one = a, *const *other = b;

	return strcmp((*one)->name, (*other)->name);
}

static int compare_keys(const void *a, const void *b)
{
	const struct ddp_pair *one = a, *other = b;

	return strcmp(one->key, other->key);
}

static int check_shape(const struct entry *entry, const char *path, struct ddp_error *error)
{
	const struct ddp_tensor *tensor = &entry->tensor;
	uint64_t bytes;

	if (tensor->dimensions > DDP_DIMENSIONS)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "%s: tensor \"%.200s\" has %d dimensions, but libddp "
				     "supports %d",
				     path, tensor->name, tensor->dimensions, DDP_DIMENSIONS);
	if (tensor->type == DDP_TYPE_COUNT)
		return 0; /* libddp does not know the size of an element */
	if (!ddp_tensor_bytes(tensor, &bytes))
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: the shape of tensor \"%.200s\" is too large", path,
				     tensor->name);
	if (bytes != entry->end - entry->begin)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: tensor \"%.200s\" has %llu bytes, but its shape needs "
				     "%llu",
				     path, tensor->name,
				     (unsigned long long)(entry->end - entry->begin),
				     (unsigned long long)bytes);
	return 0;
}

/* Check that the data of the tensors covers all data of the file, without gaps or overlaps. */
static int check_offsets(const struct entries *entries, uint64_t data, const char *path,
			 struct ddp_error *error)
{
	uint64_t at = 0;
	int status;

	for (size_t i = 0; i < entries->count; i++) {
		const struct entry *entry = &entries->list[i];

		if (entry->end < entry->begin || entry->begin != at)
			return ddp_error_set(
				error, DDP_ERR_FORMAT,
				"%s: tensor \"%.200s\" is at [%llu, %llu), not at %llu, the end of the "
				"tensor before it",
				path, entry->tensor.name, (unsigned long long)entry->begin,
				(unsigned long long)entry->end, (unsigned long long)at);
		if (entry->end > data)
			return ddp_error_set(error, DDP_ERR_FORMAT,
					     "%s is cut short: tensor \"%.200s\" ends at byte "
					     "%llu of the data, which has %llu bytes",
					     path, entry->tensor.name,
					     (unsigned long long)entry->end,
					     (unsigned long long)data);
		status = check_shape(entry, path, error);
		if (status < 0)
			return status;
		at = entry->end;
	}
	if (at != data)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s: %llu bytes at the end belong to no tensor", path,
				     (unsigned long long)(data - at));
	return 0;
}

static bool fill_lists(struct ddp_header *header, const struct entries *entries)
{
	size_t count = entries->count, capacity = count ? count : 1;

	header->tensors = calloc(capacity, sizeof(*header->tensors));
	header->begin = calloc(capacity, sizeof(*header->begin));
	header->types = calloc(capacity, sizeof(*header->types));
	header->names = calloc(capacity, sizeof(*header->names));
	if (!header->tensors || !header->begin || !header->types || !header->names)
		return false;
	for (size_t i = 0; i < count; i++) {
		header->tensors[i] = entries->list[i].tensor;
		header->begin[i] = entries->list[i].begin;
		header->types[i] = entries->list[i].type;
		header->names[i] = &header->tensors[i];
	}
	header->count = count;
	qsort(header->names, count, sizeof(*header->names), compare_names);
	if (header->pair_count > 0)
		qsort(header->pairs, header->pair_count, sizeof(*header->pairs), compare_keys);
	return true;
}

static int check_duplicates(const struct ddp_header *header, const char *path,
			    struct ddp_error *error)
{
	for (size_t i = 1; i < header->count; i++)
		if (strcmp(header->names[i - 1]->name, header->names[i]->name) == 0)
			return ddp_error_set(error, DDP_ERR_FORMAT,
					     "%s: tensor \"%.200s\" occurs twice", path,
					     header->names[i]->name);
	for (size_t i = 1; i < header->pair_count; i++)
		if (strcmp(header->pairs[i - 1].key, header->pairs[i].key) == 0)
			return ddp_error_set(error, DDP_ERR_FORMAT,
					     "%s: metadata \"%.200s\" occurs twice", path,
					     header->pairs[i].key);
	return 0;
}

static int report(const struct ddp_json *json, const char *path, struct ddp_error *error)
{
	if (json->wrong == out_of_memory)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory for the header", path);
	return ddp_error_set(error, DDP_ERR_FORMAT, "%s has a wrong header at byte %zu: %s", path,
			     (size_t)(json->at - json->begin), json->wrong);
}

/*
 * Parse the header of file [path]: the [size] bytes in [text]. [data] bytes follow the header in
 * the file. After the call, [header] owns [text], even if the call fails. A tensor whose type
 * libddp does not support gets the type DDP_TYPE_COUNT.
 * Returns 0; DDP_ERR_FORMAT with a text that names [path] and the tensor or the position of the
 * error; DDP_ERR_UNSUPPORTED; or DDP_ERR_MEMORY. The caller must call header_free() in every case.
 */
static int header_read(struct ddp_header *header, char *text, size_t size, uint64_t data,
		       const char *path, struct ddp_error *error)
{
	struct entries entries = {.list = NULL};
	struct ddp_json json;
	int status = 0;

	*header = (struct ddp_header){.text = text};
	ddp_json_start(&json, text, size);
	if (size == 0 || *text != '{')
		ddp_json_fail(&json, "it does not begin with '{'");
	read_all(header, &json, &entries);
	if (json.wrong) {
		status = report(&json, path, error);
		goto out;
	}
	if (entries.count > 0)
		qsort(entries.list, entries.count, sizeof(*entries.list), compare_offsets);
	status = check_offsets(&entries, data, path, error);
	if (status < 0)
		goto out;
	if (fill_lists(header, &entries))
		status = check_duplicates(header, path, error);
	else
		status = ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory for the header", path);
out:
	free(entries.list);
	return status;
}

static void header_free(struct ddp_header *header)
{
	free(header->tensors);
	free(header->begin);
	free(header->types);
	free(header->names);
	free(header->pairs);
	free(header->text);
	*header = (struct ddp_header){.text = NULL};
}

/* --- Files ------------------------------------------------------------------------------- */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "safetensors files are little-endian, and this "
	       "machine is big-endian");

struct ddp_tensors {
	struct ddp_header header;
	char *path;
	int fd;
	size_t size; /* bytes of the file */
	size_t data; /* offset in the file at which the tensors' data begins */
	char *map;   /* address at which the whole file is mapped */
};

enum { CHUNK_SIZE = 1 << 20 };

/* Open [path] and get its size. O_NONBLOCK: opening a pipe or a device must not block. */
static int open_file(struct ddp_tensors *tensors, const char *path, struct ddp_error *error)
{
	struct stat info;

	tensors->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (tensors->fd < 0 || fstat(tensors->fd, &info) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot open %s", path);
	if (!S_ISREG(info.st_mode))
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s is not a plain file", path);
	if ((uintmax_t)info.st_size > (uintmax_t)PTRDIFF_MAX)
		return ddp_error_set(error, DDP_ERR_FORMAT, "%s is too large", path);
	tensors->size = (size_t)info.st_size;
	tensors->path = strdup(path);
	if (!tensors->path)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", path);
	return 0;
}

static int read_length(struct ddp_tensors *tensors, uint64_t *length, struct ddp_error *error)
{
	*length = 0;
	if (tensors->size < DDP_HEADER_START)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s has %zu bytes, too few for a safetensors "
				     "file",
				     tensors->path, tensors->size);
	if (ddp_file_read_at(tensors->fd, (char *)length, sizeof(*length), 0) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot read %s", tensors->path);
	if (*length > DDP_HEADER_LIMIT)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s is not a safetensors file: its header would have %" PRIu64
				     " bytes, but at most %u are allowed",
				     tensors->path, *length, DDP_HEADER_LIMIT);
	if (*length > tensors->size - DDP_HEADER_START)
		return ddp_error_set(error, DDP_ERR_FORMAT,
				     "%s is cut short: it has %zu bytes, too few for its header of "
				     "%" PRIu64 " bytes",
				     tensors->path, tensors->size, *length);
	return 0;
}

static int read_header(struct ddp_tensors *tensors, struct ddp_error *error)
{
	uint64_t length;
	int status = read_length(tensors, &length, error);
	char *text;

	if (status < 0)
		return status;
	tensors->data = DDP_HEADER_START + (size_t)length;
	text = malloc((size_t)length + 1);
	if (!text)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory for the header",
				     tensors->path);
	if (ddp_file_read_at(tensors->fd, text, (size_t)length, DDP_HEADER_START) < 0) {
		free(text);
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot read %s", tensors->path);
	}
	return header_read(&tensors->header, text, (size_t)length, tensors->size - tensors->data,
			   tensors->path, error);
}

static int map_data(struct ddp_tensors *tensors, struct ddp_error *error)
{
	struct ddp_header *header = &tensors->header;
	void *map = mmap(NULL, tensors->size, PROT_READ, MAP_PRIVATE, tensors->fd, 0);

	if (map == MAP_FAILED)
		return ddp_error_errno(error, DDP_ERR_FILE, "cannot map %s", tensors->path);
	tensors->map = map;
	for (size_t i = 0; i < header->count; i++)
		if (header->tensors[i].type != DDP_TYPE_COUNT)
			header->tensors[i].data = tensors->map + tensors->data + header->begin[i];
	return 0;
}

int ddp_tensors_open(struct ddp_tensors **tensors, const char *path, struct ddp_error *error)
{
	struct ddp_tensors *file = calloc(1, sizeof(*file));
	int status;

	ddp_error_clear(error);
	*tensors = NULL;
	if (!file)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", path);
	status = open_file(file, path, error);
	if (status == 0)
		status = read_header(file, error);
	if (status == 0)
		status = map_data(file, error);
	if (status < 0) {
		ddp_tensors_close(file);
		return status;
	}
	*tensors = file;
	return 0;
}

void ddp_tensors_close(struct ddp_tensors *tensors)
{
	if (!tensors)
		return;
	if (tensors->map)
		munmap(tensors->map, tensors->size);
	if (tensors->fd >= 0)
		close(tensors->fd);
	header_free(&tensors->header);
	free(tensors->path);
	free(tensors);
}

const struct ddp_tensor *ddp_tensors_list(const struct ddp_tensors *tensors, size_t *count)
{
	*count = tensors->header.count;
	return tensors->header.tensors;
}

const struct ddp_tensor *ddp_tensors_find(const struct ddp_tensors *tensors, const char *name)
{
	const struct ddp_header *header = &tensors->header;
	const struct ddp_tensor want = {.name = name}, *key = &want;
	struct ddp_tensor **found = NULL;

	if (header->count > 0)
		found = bsearch(&key, header->names, header->count, sizeof(*found), compare_names);
	return found ? *found : NULL;
}

const char *ddp_tensors_metadata(const struct ddp_tensors *tensors, const char *key)
{
	const struct ddp_header *header = &tensors->header;
	const struct ddp_pair want = {.key = key}, *found = NULL;

	if (header->pair_count > 0)
		found = bsearch(&want, header->pairs, header->pair_count, sizeof(want),
				compare_keys);
	return found ? found->value : NULL;
}

const char *ddp_tensors_type(const struct ddp_tensors *tensors, const struct ddp_tensor *tensor)
{
	return tensors->header.types[tensor - tensors->header.tensors];
}

/*
 * In [chunk], replace the digits of the checksum by '0'. The digits begin at offset [digits] of the
 * file, and the chunk at offset [offset] of the file.
 */
static void blank(char *chunk, size_t size, size_t offset, size_t digits)
{
	for (size_t i = digits; i < digits + DDP_CHECKSUM_DIGITS; i++)
		if (i >= offset && i - offset < size)
			chunk[i - offset] = '0';
}

int ddp_tensors_verify(const struct ddp_tensors *tensors, struct ddp_error *error)
{
	const char *value = ddp_tensors_metadata(tensors, DDP_TENSORS_CHECKSUM);
	size_t digits = 0, size;
	char *chunk = malloc(CHUNK_SIZE), sum[DDP_CHECKSUM_DIGITS + 1];
	uint32_t crc = 0;
	int status = 0;

	if (!chunk)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", tensors->path);
	/* A string has the same offset in the header's copy as in the file. */
	if (value)
		digits = DDP_HEADER_START + (size_t)(value - tensors->header.text);
	for (size_t offset = 0; offset < tensors->size; offset += size) {
		size = tensors->size - offset < CHUNK_SIZE ? tensors->size - offset : CHUNK_SIZE;
		if (ddp_file_read_at(tensors->fd, chunk, size, offset) < 0) {
			status = ddp_error_errno(error, DDP_ERR_FILE, "cannot read %s at byte %zu",
						 tensors->path, offset);
			goto out;
		}
		if (value)
			blank(chunk, size, offset, digits);
		crc = ddp_crc32c(crc, chunk, size);
	}
	snprintf(sum, sizeof(sum), "%08" PRIx32, crc);
	if (!value)
		status = 1;
	else if (strcmp(value, sum) != 0)
		status = ddp_error_set(error, DDP_ERR_FORMAT,
				       "%s is damaged: its checksum is %s, but its metadata says "
				       "%.16s",
				       tensors->path, sum, value);
out:
	free(chunk);
	return status;
}
