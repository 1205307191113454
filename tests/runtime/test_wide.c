/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_wide.c - the TCP engine between nodes, beyond what ddp.h shows: messages of a rank that is
 * ahead, late or gone, settings, and connections
 *
 * test_world tests the collectives, over TCP and MPI, and test_failure lost ranks.
 */
#include "config.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "wide/ring.h"
#include "wide/tcp-private.h"

enum { MOST = 3 };

static const struct ddp_log quiet = {.level = DDP_LEVEL_ERROR};

/* One rank. Each rank is a process. */
struct member {
	int index;
	struct ddp_host *host;
	struct ddp_error error;
};

/* Memory that all processes of a test share. */
static struct board {
	struct ddp_host_card cards[MOST];
	_Atomic int opened; /* number of cards */
	_Atomic int stage;  /* for await_stage() */
} * board;

static const struct ddp_host_engine *tcp;
static pid_t pids[MOST];

static void setup(void)
{
	setenv("DDP_SOCKET_IFNAME", "lo", 1);
	tcp = ddp_host_engine_find("tcp", NULL, NULL);
	board = unit_shared(sizeof(*board));
}

static void teardown(void)
{
	munmap(board, sizeof(*board));
}

static void use(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, teardown);
}

static void await_stage(int number)
{
	while (atomic_load(&board->stage) < number)
		usleep(1000);
}

/* Called by an engine if a call to its library will not return, which TCP does not do. */
static void end(void *owner, int status, const char *text)
{
	(void)owner;
	fprintf(stderr, "status %d: %s\n", status, text);
	_exit(99);
}

static void open_host(int rank, int size, const struct ddp_watch *watch, struct ddp_host **host,
		      struct ddp_host_card *card)
{
	const struct ddp_host_setup options = {rank, size, watch, end, &quiet};
	struct ddp_error error;

	ck_assert_int_eq(tcp->open(host, &options, card, &error), 0);
	card->rank = rank;
}

static void open_pair(const struct ddp_watch *watch, struct ddp_host *hosts[2],
		      struct ddp_host_card cards[2])
{
	for (int i = 0; i < 2; i++)
		open_host(i, 2, watch, &hosts[i], &cards[i]);
}

static void close_pair(struct ddp_host *hosts[2])
{
	for (int i = 0; i < 2; i++)
		tcp->close(hosts[i], false);
}

/* Connects this process to the others, and runs [run]. */
static _Noreturn void run_member(int index, int size, bool (*run)(struct member *member))
{
	struct member member = {.index = index};
	struct ddp_watch watch = ddp_watch_start(60, NULL, NULL);
	struct ddp_host_card others[MOST];
	bool good;

	open_host(index, size, &watch, &member.host, &board->cards[index]);
	atomic_fetch_add(&board->opened, 1);
	while (atomic_load(&board->opened) < size)
		usleep(1000);
	for (int i = 0; i < size - 1; i++)
		others[i] = board->cards[i < index ? i : i + 1];
	good = tcp->meet(member.host, others, size - 1, &watch, &member.error) == 0 && run(&member);
	if (!good)
		fprintf(stderr, "rank %d: %s\n", index, member.error.text);
	tcp->close(member.host, good);
	_exit(!good);
}

/*
 * Starts [size] connected processes. Each runs [run] and then leaves. [run] returns whether there
 * was no error.
 */
static void start_members(int size, bool (*run)(struct member *member))
{
	for (int i = 0; i < size; i++) {
		pids[i] = fork();
		ck_assert_int_ge(pids[i], 0);
		if (pids[i] == 0)
			run_member(i, size, run);
	}
}

/* Waits for [count] processes, from the first, which must succeed. */
static void expect_success(int count)
{
	int status;

	for (int i = 0; i < count; i++) {
		ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
		ck_assert_msg(status == 0, "rank %d: wait status %d", i, status);
	}
}

/* --- A message that arrives after the timeout --------------------------------------------- */

static const char *name_of(void *owner, int rank)
{
	(void)owner;
	return rank ? "rank 1" : "rank 0";
}

/*
 * Rank 1's deadline has passed before rank 1 polls for the first time, as if its process had been
 * stopped. But rank 0 has sent all messages, and answers rank 1's query, so the call succeeds.
 */
static bool run_overdue(struct member *member)
{
	static const struct ddp_column_call calls[] = {
		{1, 0, "barrier"}, {2, 0, "broadcast"}, {3, 0, "barrier"}};
	static const int ranks[] = {0, 1};
	struct ddp_column column = {.engine = tcp,
				    .host = member->host,
				    .index = member->index,
				    .size = 2,
				    .ranks = ranks,
				    .name = name_of};
	struct ddp_watch watch = ddp_watch_start(30, NULL, NULL), over = watch;
	size_t bytes = 32 << 20;
	char *data = malloc(bytes);
	bool good;

	memset(data, member->index, bytes);
	good = ddp_column_barrier(&column, &calls[0], &watch, &member->error) == 0;
	if (member->index == 1)
		over.deadline = ddp_watch_now(&over);
	good = good &&
	       ddp_column_broadcast(&column, &calls[1], data, bytes, 0, &over, &member->error) ==
		       0 &&
	       data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0 &&
	       ddp_column_barrier(&column, &calls[2], &watch, &member->error) == 0;
	free(data);
	return good;
}

TEST(test_message_after_the_limit)
{
	start_members(2, run_overdue);
	expect_success(2);
}

/* --- A cancelled call ---------------------------------------------------------------------------- */

enum { HALF_SENT = 64 << 20 };

/* Waits up to 30 s for an event and returns it, with its [peer]. */
static enum ddp_host_event await_event(struct ddp_host *host, int *peer)
{
	uint64_t until = ddp_now() + UINT64_C(30000000000);
	enum ddp_host_event event;
	char text[DDP_HOST_NOTE];

	do {
		tcp->progress(host, DDP_WATCH_PERIOD);
		event = tcp->event(host, peer, text, sizeof(text));
	} while (event == DDP_HOST_QUIET && ddp_now() < until);
	return event;
}

/*
 * Rank 1 cancels a partly sent message, overwrites its buffer, and sends an error note. Rank 0
 * receives the whole message with the old bytes, and then the note.
 */
static bool run_cancel(struct member *member)
{
	struct ddp_host *host = member->host;
	struct ddp_host_request request;
	char *data = malloc(HALF_SENT);
	int peer;
	bool good;

	if (member->index == 1) {
		memset(data, 'a', HALF_SENT);
		tcp->send(host, 0, 0, data, HALF_SENT, &request, &member->error);
		good = request.status == 0;
		tcp->cancel(host);
		good = good && request.status == DDP_ERR_ABORTED;
		memset(data, 'b', HALF_SENT);
		tcp->note(host, "cancelled");
		atomic_store(&board->stage, 1);
		good = await_event(host, &peer) == DDP_HOST_NOTED && peer == 0 && good;
	} else {
		await_stage(1);
		tcp->recv(host, 1, 0, data, HALF_SENT, &request, &member->error);
		good = await_event(host, &peer) == DDP_HOST_NOTED && request.status == 1 &&
		       data[0] == 'a' && memcmp(data, data + 1, HALF_SENT - 1) == 0;
		tcp->note(host, "received");
	}
	free(data);
	return good;
}

TEST(test_cancelled_send_arrives_whole)
{
	start_members(2, run_cancel);
	expect_success(2);
}

/* --- Two lost peers ------------------------------------------------------------------------------ */

/* Ranks 1 and 2 are killed, in this order. Rank 0 reports the first one. */
static bool run_first_lost(struct member *member)
{
	int peer = -1;

	if (member->index > 0) {
		await_stage(member->index);
		raise(SIGKILL);
	}
	await_stage(3);
	return await_event(member->host, &peer) == DDP_HOST_LOST && peer == 1;
}

TEST(test_first_lost_peer)
{
	start_members(3, run_first_lost);
	for (int i = 1; i < 3; i++) {
		atomic_store(&board->stage, i);
		ck_assert_int_eq(waitpid(pids[i], NULL, 0), pids[i]);
	}
	atomic_store(&board->stage, 3);
	expect_success(1);
}

/* --- A peer that is ahead ----------------------------------------------------------------------- */

enum { AHEAD = 300, MEGABYTE = 1 << 20 };

/*
 * Receives from rank 1 until no data arrive for a second. Then sends rank 1 a query, and returns
 * whether rank 1 answers it.
 */
static bool is_answered(struct ddp_host *host)
{
	uint64_t second = UINT64_C(1000000000), last = ddp_now(), until = last + 30 * second;
	int silent, peer;

	while (ddp_now() - last < second && ddp_now() < until)
		if (tcp->progress(host, DDP_WATCH_PERIOD) > 0)
			last = ddp_now();
	silent = tcp->silent(host, true, &peer);
	while (silent && ddp_now() < until) {
		tcp->progress(host, DDP_WATCH_PERIOD);
		silent = tcp->silent(host, false, &peer);
	}
	return !silent;
}

/* Rank 1 sends [data], and rank 0 receives it. Returns the request after its end. */
static struct ddp_host_request pass(struct member *member, void *data, size_t bytes)
{
	struct ddp_host_request request;

	if (member->index == 1)
		tcp->send(member->host, 0, 0, data, bytes, &request, &member->error);
	else
		tcp->recv(member->host, 1, 0, data, bytes, &request, &member->error);
	while (request.status == 0)
		tcp->progress(member->host, DDP_WATCH_PERIOD);
	return request;
}

/* Before rank 0 starts to receive, rank 1 sends more than rank 0 can buffer. */
static bool run_ahead(struct member *member)
{
	int *data = calloc(1, MEGABYTE), *last = data + MEGABYTE / sizeof(*data) - 1;
	bool sends = member->index == 1;
	bool good = sends || is_answered(member->host);

	for (int i = 0; i < AHEAD && good; i++) {
		*last = sends ? i : -1;
		good = pass(member, data, MEGABYTE).status == 1 && *last == i;
	}
	free(data);
	return good;
}

enum { LARGE = 255, EMPTY = 2000000, LIMIT_KIB = 352 << 10 };

/*
 * Before rank 0 starts to receive, rank 1 sends messages without a payload, after large ones that
 * almost fill rank 0's buffer. Each message needs memory, also an empty one.
 */
static bool run_empty_ahead(struct member *member)
{
	char *data = calloc(1, MEGABYTE);
	bool sends = member->index == 1;
	bool good = sends || is_answered(member->host);
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	if (usage.ru_maxrss > LIMIT_KIB) {
		fprintf(stderr, "%ld KiB for messages without a receive\n", usage.ru_maxrss);
		good = false;
	}
	for (int i = 0; i < LARGE + EMPTY && good; i++) {
		size_t bytes = i < LARGE ? MEGABYTE : 0;
		struct ddp_host_request request = pass(member, data, bytes);

		good = request.status == 1 && (sends || request.bytes == bytes);
	}
	free(data);
	return good;
}

static bool (*const runs_ahead[])(struct member *member) = {run_ahead, run_empty_ahead};

TEST_ROWS(test_peer_ahead, runs_ahead)
{
	start_members(2, runs_ahead[_i]);
	expect_success(2);
}

/* --- Missing partners --------------------------------------------------------------------------- */

TEST(test_partner_missing)
{
	struct ddp_watch watch = ddp_watch_start(60, NULL, NULL);
	struct ddp_host *hosts[2];
	struct ddp_host_card cards[2];
	struct ddp_error error;

	open_pair(&watch, hosts, cards);
	for (int i = 0; i < 2; i++) {
		struct ddp_host_card damaged = cards[1];

		if (i == 0)
			damaged.bytes--;
		else
			damaged.data[0]++;
		ck_assert_int_eq(tcp->meet(hosts[0], &damaged, 1, &watch, &error), DDP_ERR_FORMAT);
		UNIT_SAYS("damaged", error.text, "rank 1", "damaged address");
	}
	watch = ddp_watch_start(0.2, NULL, NULL);
	ck_assert_int_eq(tcp->meet(hosts[0], &cards[1], 1, &watch, &error), DDP_ERR_TIMEOUT);
	UNIT_SAYS("missing", error.text, "rank 1 on ",
		  " did not connect to 127.0.0.1:", ", lo) in 0.2 s");
	close_pair(hosts);
}

TEST(test_partner_refuses)
{
	struct ddp_watch watch = ddp_watch_start(60, NULL, NULL);
	struct ddp_host *hosts[2];
	struct ddp_host_card cards[2];
	struct ddp_error error;

	open_pair(&watch, hosts, cards);
	tcp->close(hosts[0], false);
	ck_assert_int_eq(tcp->meet(hosts[1], &cards[0], 1, &watch, &error), DDP_ERR_ENGINE);
	UNIT_SAYS("refused", error.text, "cannot connect from ", " (lo) to rank 0 on ",
		  " at 127.0.0.1:", " (lo): Connection refused. Select ",
		  " with DDP_SOCKET_IFNAME, ", "DDP_TCP_PORTS");
	tcp->close(hosts[1], false);
}

/* The first message of a connecting rank. */
struct hello {
	uint64_t magic;
	int32_t from, to;
	char nonce[16];
};

enum { HALF = sizeof(struct hello) / 2 };

/* Sends the second half of a HELLO once, and ends the meeting when the answer has arrived. */
static int send_second_half(void *owner, struct ddp_error *error)
{
	int *fd = owner;
	char answer[16];

	if (fd[1]) {
		ck_assert_int_lt(recv(*fd, answer, sizeof(answer), MSG_DONTWAIT), 0);
		ck_assert_int_eq(send(*fd, "nonce of 16 byte", HALF, 0), HALF);
		fd[1] = 0;
	}
	return recv(*fd, answer, sizeof(answer), MSG_DONTWAIT) == sizeof(answer)
		       ? ddp_error_set(error, DDP_ERR_ABORTED, "answered")
		       : 0;
}

/* Rank 0 answers a HELLO of rank 1 that arrives in two parts. */
TEST(test_hello_in_two_parts)
{
	const struct hello hello = {DDP_TCP_MAGIC, 1, 0, ""};
	int fd[2] = {-1, 1};
	struct ddp_watch watch = ddp_watch_start(60, send_second_half, fd);
	struct ddp_tcp_card address;
	struct ddp_host *hosts[2];
	struct ddp_host_card cards[2];
	struct ddp_error error;

	open_pair(&watch, hosts, cards);
	memcpy(&address, cards[0].data, sizeof(address));
	*fd = socket(address.address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(*fd, &address.address.any, ddp_tcp_address_size(&address.address)),
			 0);
	ck_assert_int_eq(send(*fd, &hello, HALF, 0), HALF);
	ck_assert_int_eq(tcp->meet(hosts[0], &cards[1], 1, &watch, &error), DDP_ERR_ABORTED);
	close(*fd);
	close_pair(hosts);
}

/* Of 1030 nodes, each connects to few others, and these to it. */
TEST(test_partners_are_mutual_and_few)
{
	enum { SIZE = 1030 };
	static bool linked[SIZE][SIZE];

	for (int index = 0; index < SIZE; index++) {
		int partners[DDP_COLUMN_PARTNERS];
		int count = ddp_column_partners(SIZE, index, partners);

		ck_assert_int_le(count, 3 * 11);
		for (int i = 0; i < count; i++)
			linked[index][partners[i]] = true;
	}
	for (int a = 0; a < SIZE; a++)
		for (int b = 0; b < a; b++)
			ck_assert(linked[a][b] == linked[b][a]);
}

TEST(test_network_text)
{
	struct ddp_tcp_address v4 = {.v4 = {.sin_family = AF_INET}},
			       v6 = {.v6 = {.sin6_family = AF_INET6}};
	char text[DDP_TCP_TEXT];

	v4.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ddp_tcp_network_text(&v4, text);
	ck_assert_str_eq(text, "127.0.0.0/8");
	v6.v6.sin6_addr = in6addr_loopback;
	ddp_tcp_network_text(&v6, text);
	ck_assert_str_eq(text, "::1/128");
}

/* --- Invalid settings ---------------------------------------------------------------------------- */

static const struct {
	const char *name, *value, *text;
} refusals[] = {
	{"DDP_SOCKET_IFNAME", "nowhere9",
	 "DDP_SOCKET_IFNAME=nowhere9 selects no interface that has"},
	{"DDP_SOCKET_IFNAME", "=l", "DDP_SOCKET_IFNAME==l selects no interface that has"},
	{"DDP_TCP_PORTS", "50000", "DDP_TCP_PORTS=50000 is not a range of ports. Give two ports"},
	{"DDP_TCP_PORTS", "5-1", "DDP_TCP_PORTS=5-1 is not a range of ports. Give two ports"},
	{"DDP_TCP_PORTS", "0-10", "DDP_TCP_PORTS=0-10 is not a range of ports. Give two ports"},
	{"DDP_TCP_PORTS", "1-70000",
	 "DDP_TCP_PORTS=1-70000 is not a range of ports. Give two ports"},
};

/* Opens the engine for rank 0 of 2. The environment must make that fail. Returns the error. */
static struct ddp_error refuse(void)
{
	struct ddp_watch watch = ddp_watch_start(30, NULL, NULL);
	const struct ddp_host_setup options = {0, 2, &watch, end, &quiet};
	struct ddp_host_card card;
	struct ddp_error error;
	struct ddp_host *host;

	ck_assert_int_eq(tcp->open(&host, &options, &card, &error), DDP_ERR_ENVIRONMENT);
	ck_assert_ptr_null(host);
	return error;
}

TEST_ROWS(test_refused_setting, refusals)
{
	setenv(refusals[_i].name, refusals[_i].value, 1);
	UNIT_SAYS(refusals[_i].value, refuse().text, refusals[_i].text);
}

TEST(test_port_range_is_full)
{
	struct sockaddr_in taken = {.sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(taken);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char range[32];

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&taken, size), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&taken, &size), 0);
	snprintf(range, sizeof(range), "%d-%d", ntohs(taken.sin_port), ntohs(taken.sin_port));
	setenv("DDP_TCP_PORTS", range, 1);
	UNIT_SAYS("full", refuse().text, "no port of DDP_TCP_PORTS=", range, " is free on lo");
	close(fd);
}

UNIT_MAIN("wide", use)
