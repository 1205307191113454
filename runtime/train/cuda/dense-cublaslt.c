/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/type.h"
#include "dense.h"
#include "kernels.h"
#include "library.h"
#include "product.h"

/* Of memory behind other memory; and what cublasLt is said to want at most on recent GPUs. */
enum { ALIGNMENT = 256, WORKSPACE = 32 << 20 };

enum pass { FORWARD, TEST, BACK_DATA, BACK_WEIGHTS, PASSES };

static const char *const words[PASSES] = {"forward pass", "forward pass of tests",
					  "gradient of data", "gradient of weights"};

struct dense {
	struct dense_options options;
	char name[64];
	struct library *library;
	bool whole; /* cublasLt adds the bias, and does the ReLU; else our kernels */
	struct product products[PASSES];
};

static size_t batch_of(const struct dense_options *options, enum pass pass)
{
	if (pass == TEST)
		return options->test_batch == options->batch ? 0 : options->test_batch;
	return pass == BACK_DATA && options->first ? 0 : options->batch;
}

static cublasLtEpilogue_t epilogue(const struct dense *dense, enum pass pass)
{
	const struct dense_options *options = &dense->options;

	if ((pass != FORWARD && pass != TEST) || !dense->whole)
		return CUBLASLT_EPILOGUE_DEFAULT;
	if (options->bias)
		return options->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
	return options->relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

/* y' = W x', dx' = W' dy', dW' = x' dy: primes as cublasLt sees what lies row by row. */
static struct product_form form_of(const struct dense *dense, enum pass pass)
{
	const struct dense_options *options = &dense->options;
	struct product_form form = {.type = options->type,
				    .out = options->type,
				    .tf32 = options->tf32,
				    .epilogue = epilogue(dense, pass)};

	switch (pass) {
	case BACK_DATA:
		form.rows = options->in;
		form.columns = options->batch;
		form.inner = options->out;
		break;
	case BACK_WEIGHTS:
		form.rows = options->in;
		form.columns = options->out;
		form.inner = options->batch;
		form.turn_b = true;
		form.out = DDP_F32;
		break;
	default:
		form.rows = options->out;
		form.columns = batch_of(options, pass);
		form.inner = options->in;
		form.turn_a = true;
	}
	return form;
}

static int failed(const struct dense *dense, enum pass pass, cublasStatus_t status,
		  struct ddp_error *error)
{
	const struct dense_options *options = &dense->options;
	char title[256];

	snprintf(title, sizeof(title), "%s, %s (%zu x %zu to %zu, %s)", dense->name, words[pass],
		 pass == TEST ? options->test_batch : options->batch, options->in, options->out,
		 ddp_type_name(options->type));
	return library_cublas_failed(dense->library, status, title, error);
}

static int make_products(struct dense *dense, struct ddp_error *error)
{
	for (int i = 0; i < PASSES; i++) {
		enum pass pass = (enum pass)i;
		struct product_form form = form_of(dense, pass);
		cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

		if (batch_of(&dense->options, pass) > 0)
			status = product_make(&dense->products[pass], &form, dense->library->cublas,
					      WORKSPACE);
		if (status != CUBLAS_STATUS_SUCCESS)
			return failed(dense, pass, status, error);
	}
	return 0;
}

static void free_products(struct dense *dense)
{
	for (int pass = 0; pass < PASSES; pass++)
		product_free(&dense->products[pass]);
}

int dense_create(struct dense **dense, struct device *device, const struct dense_options *options,
		 struct ddp_error *error)
{
	struct dense *it = calloc(1, sizeof(*it));
	int err;

	*dense = NULL;
	if (!it)
		return ddp_error_set(error, DDP_ERR_MEMORY, "%s: no memory for its products",
				     options->name);
	it->options = *options;
	snprintf(it->name, sizeof(it->name), "%s", options->name);
	it->options.name = it->name;
	it->whole = true;
	err = library_open(&it->library, device, error);
	if (err == 0)
		err = make_products(it, error);
	if (err == DDP_ERR_UNSUPPORTED && it->library) {
		free_products(it);
		it->whole = false;
		err = make_products(it, error);
	}
	if (err < 0)
		dense_destroy(it);
	else
		*dense = it;
	return err;
}

void dense_destroy(struct dense *dense)
{
	if (!dense)
		return;
	free_products(dense);
	library_close(dense->library);
	free(dense);
}

/* cublasLt takes a bias of y's type alone, whatever it computes in: it is rounded into scratch memory. */
static size_t bias_bytes(const struct dense *dense)
{
	const struct dense_options *options = &dense->options;
	bool narrow = dense->whole && options->bias && options->type != DDP_F32;

	return narrow ? (2 * options->out + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : 0;
}

size_t dense_scratch(const struct dense *dense)
{
	size_t most = 0;

	for (int pass = 0; pass < PASSES; pass++)
		if (dense->products[pass].workspace > most)
			most = dense->products[pass].workspace;
	return bias_bytes(dense) + most;
}

static int run(const struct dense *dense, enum pass pass, void *stream, const void *a,
	       const void *b, const void *bias, void *d, void *workspace, struct ddp_error *error)
{
	cublasStatus_t status = product_run(&dense->products[pass], dense->library->cublas, stream,
					    a, b, bias, d, workspace);

	return status == CUBLAS_STATUS_SUCCESS ? 0 : failed(dense, pass, status, error);
}

/* Bias and ReLU, where cublasLt leaves them. */
static void finish(const struct dense *dense, void *stream, size_t batch, const float *bias,
		   void *y)
{
	const struct dense_options *options = &dense->options;

	if (options->bias)
		kernel_bias(stream, y, bias, batch, options->out, options->relu, options->type);
	else if (options->relu)
		kernel_relu(stream, y, y, batch * options->out, options->type);
}

int dense_forward(struct dense *dense, enum device_stream stream, bool test, const void *x,
		  const void *weights, const float *bias, void *y, void *scratch,
		  struct ddp_error *error)
{
	const struct dense_options *options = &dense->options;
	enum pass pass = test && batch_of(options, TEST) > 0 ? TEST : FORWARD;
	void *on = device_stream(dense->library->device, stream), *workspace = scratch;
	const void *added = dense->whole && options->bias ? bias : NULL;
	int err;

	if (bias_bytes(dense) > 0) {
		kernel_narrow(on, bias, scratch, options->out, options->type);
		added = scratch;
		workspace = (char *)scratch + bias_bytes(dense);
	}
	err = run(dense, pass, on, weights, x, added, y, workspace, error);
	if (err < 0)
		return err;
	if (!dense->whole)
		finish(dense, on, batch_of(options, pass), bias, y);
	return device_check(dense->library->device, dense->name, error);
}

int dense_back_data(struct dense *dense, enum device_stream stream, const void *dy,
		    const void *weights, void *dx, void *scratch, struct ddp_error *error)
{
	if (dense->options.first)
		return ddp_error_set(error, DDP_ERR_STATE,
				     "%s: nobody wanted the gradient of what it reads",
				     dense->name);
	return run(dense, BACK_DATA, device_stream(dense->library->device, stream), weights, dy,
		   NULL, dx, scratch, error);
}

int dense_back_weights(struct dense *dense, enum device_stream stream, const void *x,
		       const void *dy, float *weights, void *scratch, struct ddp_error *error)
{
	return run(dense, BACK_WEIGHTS, device_stream(dense->library->device, stream), x, dy, NULL,
		   weights, scratch, error);
}
