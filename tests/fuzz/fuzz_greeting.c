/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_greeting.c - bytes that a rank of the TCP engine receives from an unauthorized peer, in
 * pieces
 *
 * Rank 0 listens for rank 1 and connects to rank 2. Without the correct proof, the connection must
 * not become that of a partner. With the proof, the rank must not have read any byte after it.
 */
#include "wide/tcp-meet.c"

#include <sys/ioctl.h>

#include "fuzz.h"

enum { LISTENS = 0, CONNECTS = 1, PROVES = 2 };

static struct ddp_tcp_partner partners[2];
static struct ddp_watch watch = {.limit = 60};
static struct ddp_tcp_meeting public = {.partners = partners, .count = 2, .watch = &watch};

/* Lets the rank read until it closes the connection, has a partner, or needs more bytes. */
static void let_read(struct meeting *meeting, struct handshake *handshake)
{
	for (int i = 0; i < 4 && handshake->fd >= 0; i++)
		if (handshake->partner == &partners[1])
			continue_ours(meeting, handshake);
		else
			continue_theirs(meeting, handshake);
	HOLDS(handshake->received < DDP_HASH_SIZE);
}

static void send_pieces(struct meeting *meeting, struct handshake *handshake, int fd,
			const uint8_t *data, size_t size)
{
	while (size > 0 && handshake->fd >= 0) {
		size_t piece = data[0] % 40u + 1u;

		piece = piece < size ? piece : size;
		HOLDS(send(fd, data, piece, MSG_NOSIGNAL) == (ssize_t)piece);
		let_read(meeting, handshake);
		data += piece;
		size -= piece;
	}
}

/* Acts as a peer that knows the secret: sends a greeting or challenge, a proof, and [data]. */
static void prove(struct meeting *meeting, struct handshake *handshake, int fd, const uint8_t *data,
		  size_t size)
{
	const struct hello hello = {.magic = DDP_TCP_MAGIC, .from = 1};
	const uint8_t challenge[NONCE] = {7};
	bool connects = handshake->partner == &partners[1];
	uint8_t proof[DDP_HASH_SIZE];
	int unread;

	send_pieces(meeting, handshake, fd, connects ? challenge : (const void *)&hello,
		    connects ? sizeof(challenge) : sizeof(hello));
	make_proof(&public, handshake, connects ? "listen " : "connect", proof);
	send_pieces(meeting, handshake, fd, proof, sizeof(proof) - 1);
	HOLDS(handshake->fd >= 0);
	HOLDS(send(fd, proof + sizeof(proof) - 1, 1, MSG_MORE) == 1);
	HOLDS(size == 0 || send(fd, data, size, 0) == (ssize_t)size);
	let_read(meeting, handshake);
	HOLDS(handshake->stage == STAGE_DONE && partners[connects].fd >= 0);
	HOLDS(meeting->missing == 1);
	HOLDS(ioctl(partners[connects].fd, FIONREAD, &unread) == 0 && (size_t)unread == size);
	close(partners[connects].fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int side = size ? data[0] & CONNECTS : LISTENS, fds[2];
	struct handshake handshake = {.stage = side == CONNECTS ? STAGE_CONNECT : STAGE_HELLO,
				      .partner = side == CONNECTS ? &partners[1] : NULL};
	struct meeting meeting = {.public = &public, .missing = 2};

	if (size == 0 || size > 4096)
		return 0;
	for (int i = 0; i < 2; i++)
		partners[i] = (struct ddp_tcp_partner){
			.rank = i + 1, .fd = -1, .card.secret = {(uint8_t)(i + 1)}};
	HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
	handshake.fd = fds[0];
	if (side == CONNECTS)
		let_read(&meeting, &handshake);
	if (data[0] & PROVES) {
		prove(&meeting, &handshake, fds[1], data + 1, size - 1);
	} else {
		send_pieces(&meeting, &handshake, fds[1], data + 1, size - 1);
		shutdown(fds[1], SHUT_WR);
		let_read(&meeting, &handshake);
		HOLDS(handshake.fd < 0 && handshake.stage != STAGE_DONE);
		HOLDS(partners[0].fd < 0 && partners[1].fd < 0 && meeting.missing == 2);
		close(fds[0]); /* ddp_fork_close_socket() closes only sockets that libddp made */
	}
	close(fds[1]);
	return 0;
}
