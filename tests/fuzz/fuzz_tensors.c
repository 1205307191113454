/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tensors.c - a safetensors file of any bytes. Either the file is rejected with a message, or
 * everything that it lists can be read
 */
#include "config.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ddp.h>

#include "base/json.h"
#include "base/text.h"
#include "base/type.h"
#include "fuzz.h"
#include "state/tensors.h"

static char path[64];
static int fd = -1;

/* Writes the input to a file in memory. Returns its path. */
static const char *make_file(const uint8_t *data, size_t size)
{
	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		HOLDS(fd >= 0);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	HOLDS(ftruncate(fd, 0) == 0);
	HOLDS(pwrite(fd, data, size, 0) == (ssize_t)size);
	return path;
}

static void check_tensor(const struct ddp_tensors *file, const struct ddp_tensor *tensor)
{
	static volatile unsigned char sum;
	const unsigned char *data = tensor->data;
	uint64_t bytes;

	HOLDS(ddp_utf8_valid(tensor->name));
	HOLDS(ddp_tensors_find(file, tensor->name) == tensor);
	HOLDS(tensor->dimensions >= 0 && tensor->dimensions <= DDP_DIMENSIONS);
	HOLDS(ddp_utf8_valid(ddp_tensors_type(file, tensor)));
	if (tensor->type == DDP_TYPE_COUNT) {
		HOLDS(!data);
		return;
	}
	HOLDS(strcmp(ddp_tensors_type(file, tensor), ddp_type_name(tensor->type)) == 0);
	HOLDS(data && ddp_tensor_bytes(tensor, &bytes));
	for (uint64_t i = 0; i < bytes; i++)
		sum = (unsigned char)(sum + data[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ddp_error error = {DDP_OK, ""};
	struct ddp_tensors *file;
	const struct ddp_tensor *list;
	size_t count;
	int status = ddp_tensors_open(&file, make_file(data, size), &error);

	if (status < 0) {
		HOLDS(!file && error.status == status && error.text[0] != '\0');
		HOLDS(status == DDP_ERR_FORMAT || status == DDP_ERR_UNSUPPORTED);
		return 0;
	}
	HOLDS(error.status == DDP_OK && error.text[0] == '\0');
	list = ddp_tensors_list(file, &count);
	for (size_t i = 0; i < count; i++)
		check_tensor(file, &list[i]);
	status = ddp_tensors_verify(file, &error);
	HOLDS(status == 0 || status == 1 || status == DDP_ERR_FORMAT);
	HOLDS((status == 1) == !ddp_tensors_metadata(file, DDP_TENSORS_CHECKSUM));
	ddp_tensors_close(file);
	return 0;
}
