/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_frames.c - frames that a rank of the TCP engine receives: correct and malformed ones, in
 * pieces, while the rank starts and cancels receives
 *
 * The order of the frames determines which message each receive must get.
 */
#include "wide/tcp.c"

#include "fuzz.h"

enum { RECEIVES = 64, STREAM = 32 << 10 };

/* The input, which is read from its start. */
static const uint8_t *input;
static size_t left;

static struct ddp_host *host;
static int peer; /* the other end of the connection to rank 1 */
static char stream[STREAM];
static size_t written; /* number of bytes of [stream] that were sent */
static struct ddp_host_request requests[RECEIVES];
static char *buffers[RECEIVES];
static size_t sizes[RECEIVES];
static int receives;
static bool cancelled;

static unsigned int next_byte(void)
{
	if (left == 0)
		return 0;
	left--;
	return *input++;
}

static void write_bytes(const void *data, size_t size)
{
	if (size > STREAM - written)
		return;
	memcpy(stream + written, data, size);
	written += size;
	HOLDS(size == 0 || send(peer, data, size, MSG_NOSIGNAL) == (ssize_t)size ||
	      host->connections[0].closed);
}

static void write_frame(void)
{
	struct frame frame = {.kind = next_byte() % (FRAME_BYE + 2), .rank = (int)next_byte() - 1};
	char payload[2048];

	frame.tag = next_byte();
	frame.bytes = next_byte() * 8u + next_byte() % 8u;
	memset(payload, (int)frame.tag, frame.bytes);
	write_bytes(&frame, sizeof(frame));
	write_bytes(payload, frame.bytes);
}

static void write_raw(void)
{
	size_t size = next_byte();

	size = size < left ? size : left;
	write_bytes(input, size);
	input += size;
	left -= size;
}

static void receive(void)
{
	size_t size = next_byte() * 8u;

	if (receives == RECEIVES || cancelled)
		return;
	sizes[receives] = size;
	buffers[receives] = malloc(size);
	HOLDS(buffers[receives]);
	HOLDS(tcp_recv(host, 1, 0, buffers[receives], size, &requests[receives], NULL) == 0);
	receives++;
}

static void cancel(void)
{
	tcp_cancel(host);
	cancelled = true;
	for (int i = 0; i < receives; i++)
		HOLDS(requests[i].status != 0);
}

/* Fails unless receive [i] has got message [i] of [stream]. */
static void check_receive(int i, const struct frame *frame, const char *payload)
{
	if (!frame) {
		HOLDS(requests[i].status == DDP_ERR_PEER);
	} else if (frame->bytes > sizes[i]) {
		HOLDS(requests[i].status == DDP_ERR_MISMATCH);
	} else {
		HOLDS(requests[i].status == 1);
		HOLDS(requests[i].tag == frame->tag && requests[i].bytes == frame->bytes);
		HOLDS(frame->bytes == 0 || memcmp(buffers[i], payload, frame->bytes) == 0);
	}
}

static void check_receives(void)
{
	size_t at = 0;
	int checked = 0;

	while (checked < receives && written - at >= sizeof(struct frame)) {
		struct frame frame;

		memcpy(&frame, stream + at, sizeof(frame));
		at += sizeof(frame);
		if (!is_frame(&frame) || frame.bytes > written - at)
			break;
		if (frame.kind == FRAME_DATA)
			check_receive(checked++, &frame, stream + at);
		at += frame.bytes;
	}
	while (checked < receives)
		check_receive(checked++, NULL, NULL);
}

/* Opens two connections of [host], whose descriptors are [own]. Their peers have [others]. */
static void begin(int own[2], int others[2])
{
	int pairs[2][2];

	written = 0;
	receives = 0;
	cancelled = false;
	host = calloc(1, sizeof(*host));
	HOLDS(host && (host->index = malloc(3 * sizeof(int))));
	host->size = 3;
	host->lost = host->noted = -1;
	host->limit = 60;
	host->meeting.listener = -1;
	host->meeting.count = 2;
	host->meeting.partners = calloc(2, sizeof(*host->meeting.partners));
	HOLDS(host->meeting.partners);
	for (int i = 0; i < 2; i++) {
		HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[i]) == 0);
		host->meeting.partners[i] =
			(struct ddp_tcp_partner){.rank = i + 1, .fd = pairs[i][0]};
		own[i] = pairs[i][0];
		others[i] = pairs[i][1];
	}
	HOLDS(make_connections(host, NULL) == 0);
	peer = others[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const steps[])(void) = {write_frame, receive, write_raw, cancel};
	int own[2], others[2];

	input = data;
	left = size;
	begin(own, others);
	while (left > 0) {
		unsigned int step = next_byte();

		steps[step % 4]();
		if (step & 4)
			serve(host, 0);
	}
	shutdown(peer, SHUT_WR);
	while (!host->connections[0].closed)
		serve(host, 0);
	for (int i = 0; i < receives; i++)
		HOLDS(requests[i].status != 0);
	if (!cancelled)
		check_receives();
	for (int i = 0; i < receives; i++)
		free(buffers[i]);
	for (int i = 0; i < 2; i++)
		close(others[i]);
	tcp_close(host, false);
	for (int i = 0; i < 2; i++)
		close(own[i]); /* which tcp_close() leaves, since ddp_fork_socket() has not opened it */
	return 0;
}
