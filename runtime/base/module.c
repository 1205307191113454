/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "module.h"
#include "settings.h"

#ifndef DDP_MODULE_DIR
#error "the build defines DDP_MODULE_DIR"
#endif

/* NULL where [head] is what the caller asks for, else what is wrong with it. */
static const char *check(const struct ddp_module_head *head, const char *name, const char *kind,
			 uint32_t version, uint32_t size)
{
	if (head->magic != DDP_MODULE_MAGIC)
		return "not a module of libddp";
	if (strcmp(head->kind, kind) != 0 || strcmp(head->name, name) != 0)
		return "a module for something else";
	if (head->version != version || head->size != size ||
	    strcmp(head->release, PACKAGE_VERSION) != 0)
		return "built with another release of libddp; install both from one build";
	return NULL;
}

/*
 * Put the path of module [name] into [path]: in DDP_MODULES, if that is set; else beside libddp, as in a build tree,
 * or in the directory beside it that an installation has, which may have been moved; else in the installation's.
 */
static void find_module(const char *name, char path[static PATH_MAX])
{
	const char *directory = ddp_setting_get(DDP_SET_DDP_MODULES);
	const char *own = strrchr(DDP_MODULE_DIR, '/');
	void *inside = dlsym(RTLD_DEFAULT, "ddp_init");
	const char *slash;
	Dl_info info;
	int n;

	if (!inside)
		inside = (void *)(uintptr_t)
			find_module; /* libddp that a program has opened, or holds */
	if (!*directory && dladdr(inside, &info) && (slash = strrchr(info.dli_fname, '/'))) {
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

const void *ddp_module_open(const char *name, const char *kind, uint32_t version, uint32_t size,
			    const struct ddp_log *log, struct ddp_error *error)
{
	const struct ddp_module_head *head;
	const char *wrong;
	char path[PATH_MAX];
	void *handle;

	find_module(name, path);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		const char *why = dlerror();

		ddp_error_set(error, DDP_ERR_UNSUPPORTED,
			      "no engine %s: %s; install it, or set DDP_MODULES to the directory "
			      "that has ddp_%s.so",
			      name, why ? why : path, name);
		return NULL;
	}
	head = dlsym(handle, DDP_MODULE_SYMBOL);
	wrong = head ? check(head, name, kind, version, size) : "not a module of libddp";
	if (wrong) {
		dlclose(handle);
		ddp_error_set(error, DDP_ERR_UNSUPPORTED, "module %s: %s", path, wrong);
		return NULL;
	}
	if (log)
		ddp_log_print(log, DDP_LEVEL_DEBUG, "module", "%s", path);
	return head;
}
