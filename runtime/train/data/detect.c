/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "set-private.h"

/* Any of these, as it is or gzipped, tells what a directory holds. */
static const char *const marks[SET_KINDS][11] = {
	[SET_MNIST] = {"train-images-idx3-ubyte", "train-images.idx3-ubyte",
		       "t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte",
		       "MNIST/raw/train-images-idx3-ubyte", "MNIST/raw/t10k-images-idx3-ubyte"},
	[SET_CIFAR10] = {"data_batch_1.bin", "test_batch.bin",
			 "cifar-10-batches-bin/data_batch_1.bin",
			 "cifar-10-batches-bin/test_batch.bin", "cifar-10-binary.tar",
			 "cifar-10-batches-bin/cifar-10-binary.tar"},
	[SET_CIFAR100] = {"train.bin", "test.bin", "cifar-100-binary/train.bin",
			  "cifar-100-binary/test.bin", "cifar-100-binary.tar",
			  "cifar-100-binary/cifar-100-binary.tar"},
};

/* The versions of CIFAR that others read. */
static const char *const foreign[] = {
	"cifar-10-batches-py",	  "cifar-10-python.tar.gz",  "cifar-10-batches-mat",
	"cifar-10-matlab.tar.gz", "cifar-100-python",	     "cifar-100-python.tar.gz",
	"cifar-100-matlab",	  "cifar-100-matlab.tar.gz", NULL};

static bool is_there(const char *directory, const char *name, const char *ending)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s%s", directory, name, ending);
	return access(path, F_OK) == 0;
}

static bool holds(const char *directory, int kind)
{
	for (const char *const *mark = marks[kind]; *mark; mark++)
		if (is_there(directory, *mark, "") || is_there(directory, *mark, ".gz"))
			return true;
	return false;
}

int set_detect(const char *directory, enum set_kind first, struct ddp_error *error)
{
	struct stat info;

	if (stat(directory, &info) < 0)
		return ddp_error_errno(error, DDP_ERR_FILE, "%s", directory);
	if (!S_ISDIR(info.st_mode))
		return ddp_error_set(error, DDP_ERR_FILE,
				     "%s is not a directory: give the one that has the files",
				     directory);
	for (int i = 0; i < SET_KINDS; i++) {
		int kind = ((int)first + i) % SET_KINDS;

		if (holds(directory, kind))
			return kind;
	}
	for (const char *const *name = foreign; *name; name++)
		if (is_there(directory, *name, ""))
			return ddp_error_set(
				error, DDP_ERR_FILE,
				"%s/%s is not the binary version of CIFAR, which alone "
				"is read: contrib/get-data fetches it",
				directory, *name);
	return ddp_error_set(error, DDP_ERR_FILE,
			     "%s: no data set: looked for train-images-idx3-ubyte (MNIST), "
			     "data_batch_1.bin (CIFAR-10) and train.bin (CIFAR-100), also gzipped "
			     "or in their archives; contrib/get-data fetches them",
			     directory);
}
