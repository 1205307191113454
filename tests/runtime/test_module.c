/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/module.h"
#include "unit.h"

#ifndef FIXTURES
#error "the build defines FIXTURES, the directory of the modules that fixture.c makes"
#endif

/* The object that fixture.c defines. */
struct fixture {
	struct ddp_module_head head;
	int answer;
};

static const struct {
	const char *file, *kind;
	uint32_t version, size;
	const char *pieces; /* NULL: the module can be opened */
} modules[] = {
	{"fixture", "test", 3, sizeof(struct fixture), NULL},
	{"fixture", "wide", 3, sizeof(struct fixture), "ddp_fixture.so|another name or kind"},
	{"fixture", "test", 2, sizeof(struct fixture), "ddp_fixture.so|another release"},
	{"fixture", "test", 3, sizeof(struct fixture) + 8, "ddp_fixture.so|another release"},
	{"fixture_name", "test", 3, sizeof(struct fixture),
	 "ddp_fixture_name.so|another name or kind"},
	{"fixture_magic", "test", 3, sizeof(struct fixture), "not a module of libddp"},
	{"fixture_release", "test", 3, sizeof(struct fixture), "another release|Install all"},
	{"fixture_object", "test", 3, sizeof(struct fixture), "not a module of libddp"},
	{"none", "test", 3, sizeof(struct fixture), "no engine none|DDP_MODULES|ddp_none.so"},
};

TEST_ROWS(test_open, modules)
{
	const char *name = modules[_i].file;
	struct ddp_error error = {0, ""};
	const struct fixture *fixture;

	setenv("DDP_MODULES", FIXTURES, 1);
	fixture = ddp_module_open(name, modules[_i].kind, modules[_i].version, modules[_i].size,
				  NULL, &error);
	if (!modules[_i].pieces) {
		ck_assert_msg(fixture, "%s: %s", name, error.text);
		ck_assert_int_eq(fixture->answer, 42);
		ck_assert_int_eq(error.status, 0);
		return;
	}
	ck_assert_ptr_null(fixture);
	unit_number(name, "status", error.status, DDP_ERR_UNSUPPORTED);
	unit_has(name, error.text, modules[_i].pieces);
	ck_assert_ptr_null(ddp_module_open(name, modules[_i].kind, modules[_i].version,
					   modules[_i].size, NULL, NULL));
}

TEST(test_no_library)
{
	const char *const pieces[] = {"no engine torn", "ddp_torn.so", NULL};
	char top[] = "/tmp/ddp-module.XXXXXX", path[64];
	struct ddp_error error = {0, ""};

	ck_assert_ptr_nonnull(mkdtemp(top));
	snprintf(path, sizeof(path), "%s/ddp_torn.so", top);
	ck_assert_int_eq(ddp_file_write(path, NULL, 0, 0700, false, NULL), 0);
	setenv("DDP_MODULES", top, 1);
	ck_assert_ptr_null(ddp_module_open("torn", "test", 3, 8, NULL, &error));
	unlink(path);
	rmdir(top);
	ck_assert_int_eq(error.status, DDP_ERR_UNSUPPORTED);
	unit_pieces("torn", error.text, pieces);
}

/* If DDP_MODULES is unset or empty, modules are searched in the installation's directory. */
TEST(test_installed)
{
	const char *const pieces[] = {DDP_MODULE_DIR "/ddp_none.so", NULL};
	struct ddp_error error = {0, ""};

	setenv("DDP_MODULES", "", 1);
	ck_assert_ptr_null(ddp_module_open("none", "test", 3, 8, NULL, &error));
	unit_pieces("installed", error.text, pieces);
}

/* In a build tree, modules are searched in the directory of the code that opens them. */
TEST(test_build_tree)
{
	struct ddp_error error = {0, ""};
	const struct fixture *fixture;
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	ck_assert_int_gt(n, 0);
	path[n] = '\0';
	strcpy(strrchr(path, '/'), "/ddp_fixture.so");
	(void)unlink(path);
	ck_assert_int_eq(symlink(FIXTURES "/ddp_fixture.so", path), 0);
	unsetenv("DDP_MODULES");
	fixture = ddp_module_open("fixture", "test", 3, sizeof(struct fixture), NULL, &error);
	(void)unlink(path);
	ck_assert_msg(fixture, "%s", error.text);
	ck_assert_int_eq(fixture->answer, 42);
}

UNIT_MAIN("module", NULL)
