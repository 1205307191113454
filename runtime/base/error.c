/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - texts for statuses and exit statuses, and functions that set struct ddp_error */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "hide.h"

const char *ddp_version(void)
{
	return PACKAGE_VERSION;
}

const char *ddp_strerror(int status)
{
	switch (status) {
	case DDP_OK:
		return "success";
#define STATUS_CASE(name, value, text) \
	case DDP_ERR_##name:           \
		return text;
		DDP_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
	default:
		return "unknown status";
	}
}

bool ddp_is_peer_error(int status)
{
	return status <= DDP_ERR_TIMEOUT && status >= DDP_ERR_MISMATCH;
}

int ddp_exit_status(int status)
{
	if (status >= 0)
		return 0;
	return status > -63 ? 64 - status : 127;
}

int ddp_error_set(struct ddp_error *error, int status, const char *format, ...)
{
	va_list arguments;

	if (!error)
		return status;
	error->status = status;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	ddp_hide(error->text);
	return status;
}

int ddp_error_errno(struct ddp_error *error, int status, const char *format, ...)
{
	int number = errno;
	va_list arguments;
	size_t length;

	if (!error)
		return status;
	error->status = status;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	ddp_hide(error->text);
	length = strlen(error->text);
	snprintf(error->text + length, sizeof(error->text) - length, ": %s", strerror(number));
	errno = number;
	return status;
}

void ddp_error_clear(struct ddp_error *error)
{
	if (!error)
		return;
	error->status = DDP_OK;
	error->text[0] = '\0';
}
