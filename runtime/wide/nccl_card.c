/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "nccl_device.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

static int identify_device(struct ddp_device *device, struct ddp_error *error)
{
	struct cudaDeviceProp properties;
	int status;

	memset(&properties, 0, sizeof(properties));
	status = ddp_nccl_cuda(device, cudaGetDeviceProperties(&properties, device->index), error,
			       "asking for its properties");
	if (status)
		return status;
	snprintf(device->name, sizeof(device->name), "%s", properties.name);
	ddp_card_uuid(device->card.uuid, sizeof(device->card.uuid), device->index, &properties);
	return 0;
}

/* As NCCL does it: NCCL_HOSTID, which tests set, stands for name and boot id. */
static void identify_host(struct ddp_device_card *card)
{
	const char *id = getenv("NCCL_HOSTID");
	char boot[64] = "";
	FILE *file;

	if (gethostname(card->host, sizeof(card->host) - 1) < 0)
		snprintf(card->host, sizeof(card->host), "(no name)");
	if (id) {
		card->boot = ddp_hash(DDP_HASH_INIT, id, strlen(id));
		return;
	}
	file = fopen(BOOT_ID, "re");
	if (file) {
		if (!fgets(boot, sizeof(boot), file))
			boot[0] = '\0';
		fclose(file);
	}
	/* Without a boot id only the name tells one host from another. */
	card->boot = *boot ? ddp_hash(DDP_HASH_INIT, boot, strlen(boot))
			   : ddp_hash(DDP_HASH_INIT, card->host, strlen(card->host));
}

int ddp_nccl_identify(struct ddp_device *device, struct ddp_error *error)
{
	device->card.rank = device->rank;
	device->card.version = device->version;
	identify_host(&device->card);
	return identify_device(device, error);
}
