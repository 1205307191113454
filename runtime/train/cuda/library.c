/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "library.h"

/* Since 9.8 a plan needs no handle until it runs. */
#if CUDNN_VERSION < 90800
#error "cuDNN 9.8 or newer is needed"
#endif
enum { OLDEST = 90800 };

static struct library *libraries;

/* What fails for want of memory is told as such: its remedy is another. */
static int cudnn_error(cudnnStatus_t status)
{
	switch ((int)status) {
	case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
	case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
		return DDP_ERR_MEMORY;
	default:
		break;
	}
	if (CUDNN_STATUS_CATEGORY((int)status) == CUDNN_STATUS_NOT_SUPPORTED)
		return DDP_ERR_UNSUPPORTED;
	return DDP_ERR_ENGINE;
}

int library_cudnn_failed(const struct library *library, cudnnStatus_t status, const char *what,
			 struct ddp_error *error)
{
	const struct device_info *info = device_info(library->device);
	size_t version = cudnnGetVersion();
	char text[512] = "";

	cudnnGetLastErrorString(text, sizeof(text));
	return ddp_error_set(error, cudnn_error(status),
			     "GPU %d (%s): %s: cuDNN %zu.%zu.%zu: %s%s%s", info->index, info->name,
			     what, version / 10000, version / 100 % 100, version % 100,
			     cudnnGetErrorString(status), *text ? ": " : "", text);
}

int library_cublas_failed(const struct library *library, cublasStatus_t status, const char *what,
			  struct ddp_error *error)
{
	const struct device_info *info = device_info(library->device);
	size_t version = cublasLtGetVersion();
	int code = DDP_ERR_ENGINE;

	if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH)
		code = DDP_ERR_UNSUPPORTED;
	else if (status == CUBLAS_STATUS_ALLOC_FAILED)
		code = DDP_ERR_MEMORY;
	return ddp_error_set(error, code, "GPU %d (%s): %s: cublasLt %zu.%zu.%zu: %s", info->index,
			     info->name, what, version / 10000, version / 100 % 100, version % 100,
			     cublasLtGetStatusString(status));
}

static int open_handles(struct library *library, struct ddp_error *error)
{
	size_t version = cudnnGetVersion();
	cublasStatus_t blas;
	cudnnStatus_t dnn;

	if (version < OLDEST)
		return ddp_error_set(error, DDP_ERR_UNSUPPORTED,
				     "cuDNN %zu.%zu.%zu is too old: 9.8 or newer is needed",
				     version / 10000, version / 100 % 100, version % 100);
	dnn = cudnnCreate(&library->cudnn);
	if (dnn != CUDNN_STATUS_SUCCESS)
		return library_cudnn_failed(library, dnn, "opening the library", error);
	blas = cublasLtCreate(&library->cublas);
	if (blas != CUBLAS_STATUS_SUCCESS)
		return library_cublas_failed(library, blas, "opening the library", error);
	return 0;
}

static void destroy(struct library *library)
{
	if (library->cublas)
		cublasLtDestroy(library->cublas);
	if (library->cudnn)
		cudnnDestroy(library->cudnn);
	free(library->choices);
	free(library);
}

int library_open(struct library **library, struct device *device, struct ddp_error *error)
{
	struct library *it = libraries;
	int err;

	while (it && it->device != device)
		it = it->next;
	*library = it;
	if (it) {
		it->users++;
		return 0;
	}
	it = calloc(1, sizeof(*it));
	if (!it)
		return ddp_error_set(error, DDP_ERR_MEMORY, "no memory for handles of cuDNN");
	it->device = device;
	it->users = 1;
	err = open_handles(it, error);
	if (err < 0) {
		destroy(it);
		return err;
	}
	it->next = libraries;
	libraries = it;
	*library = it;
	return 0;
}

void library_close(struct library *library)
{
	struct library **at = &libraries;

	if (!library || --library->users > 0)
		return;
	while (*at && *at != library)
		at = &(*at)->next;
	if (*at)
		*at = library->next;
	destroy(library);
}
