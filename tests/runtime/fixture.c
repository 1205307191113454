/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fixture.c - a module without functions, for test_module: built in one correct and several
 * incorrect forms
 */
#include "config.h"

#include "base/module.h"

#ifndef FIXTURE_MAGIC
#define FIXTURE_MAGIC DDP_MODULE_MAGIC
#endif
#ifndef FIXTURE_RELEASE
#define FIXTURE_RELEASE PACKAGE_VERSION
#endif
#ifndef FIXTURE_OBJECT
#define FIXTURE_OBJECT ddp_module
#endif

struct fixture {
	struct ddp_module_head head;
	int answer;
};

extern const struct fixture FIXTURE_OBJECT;

DDP_API const struct fixture FIXTURE_OBJECT = {
	.head = {.magic = FIXTURE_MAGIC,
		 .version = 3,
		 .size = sizeof(struct fixture),
		 .kind = "test",
		 .name = FIXTURE_NAME,
		 .release = FIXTURE_RELEASE},
	.answer = 42,
};
