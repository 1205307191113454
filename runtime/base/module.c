/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - find, load and check a module */
#include "config.h"

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "module.h"
#include "settings.h"

#ifndef DDP_MODULE_DIR
#error "the build defines DDP_MODULE_DIR"
#endif

/* Returns NULL if [head] matches the request, else a text that describes the difference. */
static const char *check_head(const struct ddp_module_head *head, const char *name,
			      const char *kind, uint32_t version, uint32_t size)
{
	if (head->magic != DDP_MODULE_MAGIC)
		return "not a module of libddp";
	if (strcmp(head->kind, kind) != 0 || strcmp(head->name, name) != 0)
		return "a module with another name or kind";
	if (head->version != version || head->size != size ||
	    strcmp(head->release, PACKAGE_VERSION) != 0)
		return "built with another release of libddp. Install all of libddp from one build.";
	return NULL;
}

/*
 * Set [path] to the file of module [name]. If DDP_MODULES is set, the file must be in that
 * directory. Otherwise it is in libddp's directory, as in a build tree; or in the modules'
 * directory beside libddp, as in an installation that was moved; or in the installation's
 * directory.
 */
static void find_module(const char *name, char path[static PATH_MAX])
{
	const char *directory = ddp_setting_get(DDP_SET_DDP_MODULES);
	const char *own = strrchr(DDP_MODULE_DIR, '/');
	void *libddp_symbol = dlsym(RTLD_DEFAULT, "ddp_init");
	const char *slash;
	Dl_info info;
	int n;

	/* libddp was opened with dlopen() or linked statically: find this function instead */
	if (!libddp_symbol)
		libddp_symbol = (void *)(uintptr_t)find_module;
	if (!*directory && dladdr(libddp_symbol, &info) && (slash = strrchr(info.dli_fname, '/'))) {
		n = (int)(slash - info.dli_fname);
		snprintf(path, PATH_MAX, "%.*s/ddp_%s.so", n, info.dli_fname, name);
		if (access(path, F_OK) == 0)
			return;
		snprintf(path, PATH_MAX, "%.*s%s/ddp_%s.so", n, info.dli_fname, own ? own : "",
			 name);
		if (access(path, F_OK) == 0)
			return;
	}
	snprintf(path, PATH_MAX, "%s/ddp_%s.so", *directory ? directory : DDP_MODULE_DIR, name);
}

void ddp_module_keep_handlers(void (*call)(void *argument), void *argument)
{
	static const int signals[] = {SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGHUP};
	enum { COUNT = sizeof(signals) / sizeof(signals[0]) };
	struct sigaction before[COUNT];

	for (int i = 0; i < COUNT; i++)
		sigaction(signals[i], NULL, &before[i]);
	call(argument);
	for (int i = 0; i < COUNT; i++)
		sigaction(signals[i], &before[i], NULL);
}

struct opening {
	const char *path;
	void *handle;
};

static void open_library(void *argument)
{
	struct opening *opening = argument;

	opening->handle = dlopen(opening->path, RTLD_NOW | RTLD_LOCAL);
}

const void *ddp_module_open(const char *name, const char *kind, uint32_t version, uint32_t size,
			    const struct ddp_log *log, struct ddp_error *error)
{
	const struct ddp_module_head *head;
	const char *wrong;
	char path[PATH_MAX];
	struct opening opening = {.path = path};

	find_module(name, path);
	ddp_module_keep_handlers(open_library, &opening);
	if (!opening.handle) {
		const char *why = dlerror();

		ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			      "there is no engine %s: %s. Install it, or set DDP_MODULES to the "
			      "directory that has ddp_%s.so",
			      name, why ? why : path, name);
		return NULL;
	}
	head = dlsym(opening.handle, DDP_MODULE_SYMBOL);
	wrong = head ? check_head(head, name, kind, version, size) : "not a module of libddp";
	if (wrong) {
		dlclose(opening.handle);
		ddp_error_set(error, DDP_ERR_UNSUPPORTED, "module %s is %s", path, wrong);
		return NULL;
	}
	if (log)
		ddp_log_print(log, DDP_LEVEL_DEBUG, "module", "%s", path);
	return head;
}
