/* SPDX-License-Identifier: Apache-2.0 */
/* options-doc - print the options as part of ddp-train(1) */
#include "config.h"

#include "options.h"

int main(void)
{
	options_print_roff(stdout);
	return 0;
}
