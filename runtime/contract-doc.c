/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contract-doc - print one of the tables of ddp(7): contract, frameworks, settings or statuses
 */
#include "config.h"

#include <ddp.h>
#include <stdio.h>
#include <string.h>

#include "base/roff.h"
#include "base/settings.h"
#include "contract.h"
#include "frameworks.h"

struct group {
	enum ddp_variable_kind kind;
	const char *title;
};

static void print_group(const struct group *group)
{
	printf(".SS %s\n", group->title);
	for (int v = 0; v < DDP_VAR_COUNT; v++) {
		const struct ddp_variable_info *info = ddp_variable_info((enum ddp_variable)v);

		if (info->kind != group->kind)
			continue;
		printf(".TP\n.B %s\n", info->name);
		ddp_roff_print(info->text);
		putchar('\n');
	}
}

/* The variables of the contract, grouped by kind. */
static void print_contract(void)
{
	static const struct group groups[] = {
		{DDP_KIND_IDENTITY, "Identity: always set"},
		{DDP_KIND_POLITE, "Endpoint and defaults: set unless you did"},
		{DDP_KIND_TORCHRUN,
		 "For torchrun: set where each node has one task, unless you did"},
		{DDP_KIND_OURS, "For libddp and scripts: always set where known"},
	};

	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		print_group(&groups[i]);
}

/* What a share of 0.25 is to each framework, and then those that cannot be told. */
static void print_frameworks(void)
{
	static const struct {
		const char *name, *help;
	} none[] = {
#define DDP_FRAMEWORK(name, variable, when, form, text, unless, example, since, help)
#define DDP_FRAMEWORK_NONE(name, help) {name, help},
#include "frameworks.def"
#undef DDP_FRAMEWORK
	};

	for (int i = 0; i < DDP_FRAMEWORK_COUNT; i++) {
		const struct ddp_framework *row = ddp_framework(i);

		printf(".TP\n.BR \"%s\" \", since %s\"\n", row->name, row->since);
		printf("%s=%s\n.br\n", ddp_variable_info(row->variable)->name, row->example);
		ddp_roff_print(row->help);
		putchar('\n');
	}
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		printf(".TP\n.B %s\n", none[i].name);
		ddp_roff_print(none[i].help);
		putchar('\n');
	}
}

static void print_settings(void)
{
	for (int i = 0; i < DDP_SETTING_COUNT; i++) {
		const struct ddp_setting_info *info = ddp_setting_info((enum ddp_setting)i);

		printf(".TP\n.BR %s", info->name);
		if (*info->value) {
			fputs(" \" (default \" ", stdout);
			ddp_roff_print(info->value);
			putchar(')');
		}
		putchar('\n');
		ddp_roff_print(info->text);
		putchar('\n');
	}
}

/* What ddp_exit() leaves with, and the number that ddp.h's functions return. */
static void print_statuses(void)
{
	static const struct {
		const char *name;
		int value;
	} statuses[] = {
#define STATUS_ROW(name, value, text) {#name, value},
		DDP_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
	};

	puts(".nf\n.ta 8n 30n\n0\t\tsuccess");
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		printf("%d\tDDP_ERR_%s\t", ddp_exit_status(statuses[i].value), statuses[i].name);
		ddp_roff_print(ddp_strerror(statuses[i].value));
		putchar('\n');
	}
	puts(".fi");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*print)(void);
	} tables[] = {
		{"contract", print_contract},
		{"frameworks", print_frameworks},
		{"settings", print_settings},
		{"statuses", print_statuses},
	};

	for (size_t i = 0; argc == 2 && i < sizeof(tables) / sizeof(tables[0]); i++) {
		if (strcmp(argv[1], tables[i].name) != 0)
			continue;
		tables[i].print();
		return 0;
	}
	fputs("usage: contract-doc contract|frameworks|settings|statuses\n", stderr);
	return 2;
}
