/* SPDX-License-Identifier: Apache-2.0 */
/* preflight.c - the GPU tests of ddp-info --preflight on the GPUs of this machine: none fails, and all products are exact */
#include "../../runtime/info/preflight-gpu.c"

#include <stdarg.h>

#include "tap.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int devices, copies, products;

void info_preflight_say(const char *event, const char *test, const char *kind, double value,
			const char *unit, const char *format, ...)
{
	bool is_rate = strcmp(event, "rate") == 0;
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	pthread_mutex_lock(&mutex);
	if (strcmp(event, "begin") != 0)
		ok(strcmp(event, "failed") != 0, "%s: %s %s %.6g %s %s", test, event, kind, value,
		   unit, text);
	if (strcmp(test, "devices") == 0 && strcmp(event, "fact") == 0)
		devices = (int)value;
	copies += is_rate && strcmp(test, "GPU copy") == 0 && value > 1;
	products += is_rate && strcmp(test, "GPU product") == 0 && value > 1;
	pthread_mutex_unlock(&mutex);
}

int main(void)
{
	info_preflight_gpus();
	ok(devices > 0 && copies == devices, "each of %d GPUs copies", devices);
	ok(products == devices, "each GPU computes in bf16");
	return tap_end();
}
