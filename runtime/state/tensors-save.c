/* SPDX-License-Identifier: Apache-2.0 */
/* tensors-save.c - write safetensors files */
#include "config.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/text.h"
#include "base/type.h"
#include "tensors.h"

/* Append the metadata to [text], the header. Returns the offset of the checksum's digits in it. */
static size_t put_metadata(struct ddp_text *text, const struct ddp_pair *metadata, size_t pairs,
			   bool checksum)
{
	size_t digits = 0;
	bool first = true;

	ddp_text_json(text, DDP_HEADER_METADATA);
	ddp_text_add(text, ":{");
	if (checksum) {
		ddp_text_json(text, DDP_TENSORS_CHECKSUM);
		ddp_text_add(text, ":\"");
		digits = text->size;
		ddp_text_add(text, "%0*d\"", DDP_CHECKSUM_DIGITS, 0);
		first = false;
	}
	for (size_t i = 0; i < pairs; i++) {
		if (!metadata[i].value)
			continue;
		if (!first)
			ddp_text_add(text, ",");
		first = false;
		ddp_text_json(text, metadata[i].key);
		ddp_text_add(text, ":");
		ddp_text_json(text, metadata[i].value);
	}
	ddp_text_add(text, "}");
	return digits;
}

static void put_tensor(struct ddp_text *text, const struct ddp_tensor *tensor, uint64_t *at)
{
	uint64_t bytes;

	(void)ddp_tensor_bytes(tensor, &bytes);
	ddp_text_json(text, tensor->name);
	ddp_text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", ddp_type_name(tensor->type));
	for (int i = 0; i < tensor->dimensions; i++)
		ddp_text_add(text, "%s%" PRId64, i ? "," : "", tensor->shape[i]);
	ddp_text_add(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *at, *at + bytes);
	*at += bytes;
}

/*
 * Returns the position of [type] in the order of tensors in a file. Like the format's reference
 * writer, tensors with large elements are written first, so that all data is aligned.
 */
static int type_order(enum ddp_type type)
{
	static const int places[DDP_TYPE_COUNT] = {
		[DDP_I64] = 0,	[DDP_F64] = 1, [DDP_F32] = 2, [DDP_I32] = 3,
		[DDP_BF16] = 4, [DDP_F16] = 5, [DDP_U8] = 6,
	};

	return places[type];
}

static int compare_names(const void *a, const void *b)
{
	const struct ddp_tensor *const *one = a, *const *other = b;

	return strcmp((*one)->name, (*other)->name);
}

static int compare_file_order(const void *a, const void *b)
{
	const struct ddp_tensor *const *one = a, *const *other = b;
	int first = type_order((*one)->type), second = type_order((*other)->type);

	return first != second ? first - second : compare_names(a, b);
}

static int compare_keys(const void *a, const void *b)
{
	const struct ddp_pair *const *one = a, *const *other = b;

	return strcmp((*one)->key, (*other)->key);
}

static int check_tensor(const char *path, const struct ddp_tensor *tensor, uint64_t *total,
			struct ddp_error *error)
{
	uint64_t bytes;

	if (!tensor->name || !ddp_utf8_valid(tensor->name) ||
	    strcmp(tensor->name, DDP_HEADER_METADATA) == 0)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: \"%.200s\" cannot be the name of a tensor", path,
				     tensor->name ? tensor->name : "(null)");
	if (!ddp_tensor_bytes(tensor, &bytes))
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: tensor \"%.200s\" has an impossible type or shape", path,
				     tensor->name);
	if (bytes > 0 && !tensor->data)
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "%s: tensor \"%.200s\" has no data",
				     path, tensor->name);
	if (__builtin_add_overflow(*total, bytes, total))
		return ddp_error_set(error, DDP_ERR_ARGUMENT, "%s: too much data", path);
	return 0;
}

static int check_pairs(const char *path, const struct ddp_pair *metadata, size_t pairs,
		       bool checksum, struct ddp_error *error)
{
	const struct ddp_pair **sorted = calloc(pairs + 1, sizeof(*sorted));
	int status = 0;

	if (!sorted)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory", path);
	for (size_t i = 0; i < pairs; i++) {
		sorted[i] = &metadata[i];
		if (!metadata[i].key || !ddp_utf8_valid(metadata[i].key) ||
		    (checksum && strcmp(metadata[i].key, DDP_TENSORS_CHECKSUM) == 0) ||
		    (metadata[i].value && !ddp_utf8_valid(metadata[i].value))) {
			status = ddp_error_set(error, DDP_ERR_ARGUMENT,
					       "%s: metadata \"%.200s\" cannot be saved", path,
					       metadata[i].key ? metadata[i].key : "(null)");
			goto out;
		}
	}
	qsort(sorted, pairs, sizeof(*sorted), compare_keys);
	for (size_t i = 1; i < pairs && status == 0; i++)
		if (compare_keys(&sorted[i - 1], &sorted[i]) == 0)
			status = ddp_error_set(error, DDP_ERR_ARGUMENT,
					       "%s: metadata \"%.200s\" occurs twice", path,
					       sorted[i]->key);
out:
	free(sorted);
	return status;
}

/* Check [tensors] and list them in file order in [sorted]. */
static int sort_tensors(const char *path, const struct ddp_tensor *tensors, size_t count,
			const struct ddp_tensor **sorted, struct ddp_error *error)
{
	uint64_t total = 0;

	for (size_t i = 0; i < count; i++) {
		int status = check_tensor(path, &tensors[i], &total, error);

		if (status < 0)
			return status;
		sorted[i] = &tensors[i];
	}
	qsort(sorted, count, sizeof(*sorted), compare_names);
	for (size_t i = 1; i < count; i++)
		if (compare_names(&sorted[i - 1], &sorted[i]) == 0)
			return ddp_error_set(error, DDP_ERR_ARGUMENT,
					     "%s: tensor \"%.200s\" occurs twice", path,
					     sorted[i]->name);
	qsort(sorted, count, sizeof(*sorted), compare_file_order);
	return 0;
}

/*
 * Append the header's length and the header to [text]. Set [digits] to the offset at which the
 * checksum's digits begin.
 */
static int make_header(struct ddp_text *text, const char *path, const struct ddp_tensor **sorted,
		       size_t count, const struct ddp_pair *metadata, size_t pairs, bool checksum,
		       size_t *digits, struct ddp_error *error)
{
	uint64_t at = 0, length = 0;

	ddp_text_put(text, (const char *)&length, sizeof(length));
	ddp_text_add(text, "{");
	if (pairs > 0 || checksum)
		*digits = put_metadata(text, metadata, pairs, checksum);
	for (size_t i = 0; i < count; i++) {
		if (i > 0 || pairs > 0 || checksum)
			ddp_text_add(text, ",");
		put_tensor(text, sorted[i], &at);
	}
	ddp_text_add(text, "}");
	while (!text->failed && text->size % 8 != 0)
		ddp_text_put(text, " ", 1);
	if (text->failed)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory for the header", path);
	length = text->size - sizeof(length);
	if (length > DDP_HEADER_LIMIT)
		return ddp_error_set(error, DDP_ERR_ARGUMENT,
				     "%s: the header has %" PRIu64
				     " bytes, but the format allows %u",
				     path, length, DDP_HEADER_LIMIT);
	memcpy(text->data, &length, sizeof(length));
	return 0;
}

static void fill_parts(struct iovec *parts, const struct ddp_text *header,
		       const struct ddp_tensor **sorted, size_t count)
{
	parts[0] = (struct iovec){header->data, header->size};
	for (size_t i = 0; i < count; i++) {
		uint64_t bytes;

		(void)ddp_tensor_bytes(sorted[i], &bytes);
		parts[1 + i] = (struct iovec){sorted[i]->data, (size_t)bytes};
	}
}

static void put_checksum(char *digits, const struct iovec *parts, size_t count)
{
	char sum[DDP_CHECKSUM_DIGITS + 1];
	uint32_t crc = 0;

	for (size_t i = 0; i < count; i++)
		crc = ddp_crc32c(crc, parts[i].iov_base, parts[i].iov_len);
	snprintf(sum, sizeof(sum), "%08" PRIx32, crc);
	memcpy(digits, sum, DDP_CHECKSUM_DIGITS);
}

int ddp_tensors_write(const char *path, const struct ddp_tensor *tensors, size_t count,
		      const struct ddp_pair *metadata, size_t pairs, bool checksum,
		      struct ddp_error *error)
{
	const struct ddp_tensor **sorted = calloc(count + 1, sizeof(*sorted));
	struct iovec *parts = calloc(count + 1, sizeof(*parts));
	struct ddp_text header = {.data = NULL};
	size_t digits = 0;
	int status;

	ddp_error_clear(error);
	if (!sorted || !parts || count >= INT_MAX) {
		status = ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory for %zu tensors", path,
				       count);
		goto out;
	}
	status = sort_tensors(path, tensors, count, sorted, error);
	if (status == 0)
		status = check_pairs(path, metadata, pairs, checksum, error);
	if (status == 0)
		status = make_header(&header, path, sorted, count, metadata, pairs, checksum,
				     &digits, error);
	if (status < 0)
		goto out;
	fill_parts(parts, &header, sorted, count);
	if (checksum)
		put_checksum(header.data + digits, parts, count + 1);
	status = ddp_file_write(path, parts, (int)count + 1, 0666, true, error);
out:
	ddp_text_free(&header);
	free(parts);
	free(sorted);
	return status;
}

int ddp_tensors_save(const char *path, const struct ddp_tensor *tensors, size_t count,
		     const struct ddp_pair *metadata, size_t pairs, struct ddp_error *error)
{
	return ddp_tensors_write(path, tensors, count, metadata, pairs, false, error);
}
