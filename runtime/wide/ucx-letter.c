/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ucx.h"

enum { LETTERS = 0 }; /* the active message that we use */

struct header {
	int32_t sender, kind;
};

/* What UCX reads until it says that the letter is gone. */
struct letter {
	struct ddp_host *host;
	struct header header;
	char text[];
};

static void note_came(struct ddp_host *host, int sender, const char *text, size_t length)
{
	if (host->noted >= 0)
		return;
	host->noted = sender;
	snprintf(host->note, sizeof(host->note), "%.*s", (int)length, text);
}

static ucs_status_t letter_came(void *owner, const void *start, size_t start_size, void *data,
				size_t size, const ucp_am_recv_param_t *parameters)
{
	struct ddp_host *host = owner;
	struct header header;

	if (start_size != sizeof(header) || size > DDP_HOST_NOTE ||
	    parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
		return UCS_OK;
	memcpy(&header, start, sizeof(header));
	if (header.sender < 0 || header.sender >= host->size)
		return UCS_OK;
	switch ((enum ddp_letter)header.kind) {
	case DDP_LETTER_NOTE:
		note_came(host, header.sender, data, size);
		break;
	case DDP_LETTER_BYE:
		host->peers[header.sender].bye = true;
		break;
	case DDP_LETTER_ASK:
		ddp_ucx_letter(host, header.sender, DDP_LETTER_ANSWER, NULL);
		break;
	case DDP_LETTER_ANSWER:
		host->peers[header.sender].answered = true;
		break;
	}
	return UCS_OK;
}

int ddp_ucx_open_letters(struct ddp_host *host, struct ddp_error *error)
{
	const ucp_am_handler_param_t parameters = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
								 UCP_AM_HANDLER_PARAM_FIELD_CB |
								 UCP_AM_HANDLER_PARAM_FIELD_ARG,
						   .id = LETTERS,
						   .cb = letter_came,
						   .arg = host};
	ucs_status_t status = ucp_worker_set_am_recv_handler(host->worker, &parameters);

	if (status == UCS_OK)
		return 0;
	return ddp_error_set(error, DDP_ERR_ENGINE, "UCX has no active messages here: %s",
			     ucs_status_string(status));
}

static void letter_gone(void *handle, ucs_status_t status, void *user)
{
	struct letter *letter = user;

	(void)status;
	letter->host->letters--;
	free(letter);
	if (handle)
		ucp_request_free(handle);
}

void ddp_ucx_letter(struct ddp_host *host, int peer, enum ddp_letter kind, const char *text)
{
	struct ddp_ucx_peer *to = &host->peers[peer];
	size_t size = text ? strnlen(text, DDP_HOST_NOTE - 1) : 0;
	struct letter *letter;
	ucs_status_ptr_t handle;

	if (!to->endpoint || to->lost != UCS_OK || !(letter = malloc(sizeof(*letter) + size)))
		return;
	letter->host = host;
	letter->header = (struct header){host->rank, (int32_t)kind};
	if (size)
		memcpy(letter->text, text, size);
	host->letters++;
	handle = ucp_am_send_nbx(
		to->endpoint, LETTERS, &letter->header, sizeof(letter->header), letter->text, size,
		&(const ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
							     UCP_OP_ATTR_FIELD_USER_DATA |
							     UCP_OP_ATTR_FIELD_FLAGS,
					     .flags = UCP_AM_SEND_FLAG_EAGER,
					     .cb.send = letter_gone,
					     .user_data = letter});
	if (!UCS_PTR_IS_PTR(handle))
		letter_gone(NULL, UCS_PTR_RAW_STATUS(handle), letter);
}

void ddp_ucx_post(struct ddp_host *host, uint64_t nanoseconds)
{
	uint64_t until = ddp_now() + nanoseconds;

	while (host->letters > 0 && ddp_now() < until)
		ucp_worker_progress(host->worker);
}
