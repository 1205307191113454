/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors from process to process; and strangers, silence and nonsense at the leader's socket.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "device/passing.h"
#include "device/shard-protocol.h"
#include "unit.h"

static struct ddp_passing *leader;
static char name[DDP_PASSING_NAME];
static struct ddp_error error;
static int before; /* descriptors open at first */

/* --- Helpers ---------------------------------------------------------------------------- */

static void up(void)
{
	before = unit_entries("/proc/self/fd");
	ck_assert_int_eq(ddp_passing_listen(&leader, name, &error), 0);
}

static void down(void)
{
	ddp_passing_close(leader);
	ck_assert_int_eq(unit_entries("/proc/self/fd"), before);
}

static struct ddp_watch patient(void)
{
	return ddp_watch_start(50, NULL, NULL);
}

static struct ddp_passing_letter letter_of(int member, int number, const char *text)
{
	struct ddp_passing_letter letter = {
		.member = member, .number = number, .bytes = (uint32_t)strlen(text)};

	memcpy(letter.room, text, strlen(text));
	return letter;
}

static int send_letter(int fd, int member, int number, const char *text)
{
	struct ddp_passing_letter letter = letter_of(member, number, text);
	struct ddp_watch watch = patient();

	return ddp_passing_send(name, fd, &letter, &watch, &error);
}

/* The next letter must be this one, with or without a descriptor, which is returned. */
static int expect(int member, int number, const char *text, bool with)
{
	struct ddp_watch watch = patient();
	struct ddp_passing_letter letter;
	int fd = -2;

	ck_assert_msg(ddp_passing_receive(leader, &fd, &letter, &watch, &error) == 0, "%s",
		      error.text);
	ck_assert_int_eq(letter.member, member);
	ck_assert_int_eq(letter.number, number);
	ck_assert_uint_eq(letter.bytes, strlen(text));
	ck_assert_mem_eq(letter.room, text, strlen(text));
	if (!with)
		ck_assert_int_eq(fd, -1);
	else
		ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	return fd;
}

static int make_memory(const char *text)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, 4096) < 0 ||
	    pwrite(fd, text, strlen(text), 0) != (ssize_t)strlen(text))
		abort();
	return fd;
}

static socklen_t address_of(struct sockaddr_un *address, const char *socket_name)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(address->sun_path + 1, socket_name, strlen(socket_name));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(socket_name));
}

/* Somebody who knows the name, and no more. */
static int stranger(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;
	socklen_t size = address_of(&address, name);

	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, size), 0);
	return fd;
}

static void say(int fd, const void *data, size_t size, const int *fds, int count)
{
	char control[CMSG_SPACE(16 * sizeof(int))] = {0};
	struct iovec piece = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};

	if (count > 0) {
		struct cmsghdr *head = (struct cmsghdr *)(void *)control;

		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
		head->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(head), fds, (size_t)count * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(fd, &message, MSG_NOSIGNAL), (ssize_t)size);
}

/* A socket of ours in place of the leader's, with room for [backlog] connections. */
static int pose(int backlog)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;

	snprintf(name, sizeof(name), "ddp-test-%d", (int)getpid());
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, address_of(&address, name)), 0);
	ck_assert_int_eq(listen(fd, backlog), 0);
	return fd;
}

/* What goes over the wire for a letter without a descriptor. */
static size_t record(char *wire, size_t size, int member)
{
	char real[DDP_PASSING_NAME];
	int listener, connection;
	ssize_t got;

	memcpy(real, name, sizeof(real));
	listener = pose(4);
	ck_assert_int_eq(send_letter(-1, member, 0, "replayed"), 0);
	connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	got = recv(connection, wire, size, 0);
	ck_assert_int_gt(got, 0);
	close(connection);
	close(listener);
	memcpy(name, real, sizeof(real));
	return (size_t)got;
}

static pid_t begin(int (*body)(int), int index)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(body(index));
	return pid;
}

static void end(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		ck_assert_int_eq(errno, EINTR);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status 0x%x", status);
}

/* --- All is well ------------------------------------------------------------------------ */

/* Write into memory after it was passed, and wait for the answer in it. */
static int share(int index)
{
	int fd = make_memory("one");
	_Atomic char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct ddp_watch watch = patient();

	if (memory == MAP_FAILED || send_letter(fd, index, 7, "about it") < 0)
		return 1;
	close(fd);
	memory[8] = 'x';
	while (memory[9] != 'y') {
		if (ddp_watch_check(&watch, NULL) < 0)
			return 2;
		ddp_watch_sleep(&watch, 1000000);
	}
	return 0;
}

TEST(test_shares_memory)
{
	pid_t pid = begin(share, 3);
	int fd = expect(3, 7, "about it", true);
	_Atomic char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert(memory != MAP_FAILED);
	close(fd);
	ck_assert(memory[0] == 'o' && memory[1] == 'n' && memory[2] == 'e');
	while (memory[8] != 'x')
		usleep(1000);
	memory[9] = 'y';
	end(pid);
	munmap((void *)(uintptr_t)memory, 4096);
}

/* The sender's end and its process are gone when the leader looks. */
static int send_and_go(int index)
{
	return send_letter(make_memory("left behind"), index, 0, "") < 0;
}

TEST(test_outlives_sender)
{
	char text[11];
	int fd;

	end(begin(send_and_go, 1));
	fd = expect(1, 0, "", true);
	ck_assert_int_eq(pread(fd, text, sizeof(text), 0), sizeof(text));
	ck_assert_mem_eq(text, "left behind", sizeof(text));
	close(fd);
}

TEST(test_no_descriptor)
{
	char most[DDP_PASSING_BYTES + 1];

	memset(most, 'm', DDP_PASSING_BYTES);
	most[DDP_PASSING_BYTES] = '\0';
	ck_assert_int_eq(send_letter(-1, 1, 2, most), 0);
	ck_assert_int_eq(send_letter(-1, 2, -3, ""), 0);
	expect(1, 2, most, false);
	expect(2, -3, "", false);
}

enum { FOLLOWERS = 8, LETTERS = 5 };

/* Letters of which the descriptor leads to what the letter says. */
static int send_some(int index)
{
	for (int number = 0; number < LETTERS; number++) {
		char text[32];
		int fd;

		snprintf(text, sizeof(text), "%d of %d", number, index);
		fd = make_memory(text);
		if (send_letter(number == 2 ? -1 : fd, index, number, text) < 0)
			return 1;
		close(fd);
	}
	return 0;
}

TEST(test_many)
{
	bool seen[FOLLOWERS][LETTERS] = {{false}};
	struct ddp_watch watch = patient();
	pid_t pids[FOLLOWERS];

	for (int i = 0; i < FOLLOWERS; i++)
		pids[i] = begin(send_some, i);
	for (int i = 0; i < FOLLOWERS * LETTERS; i++) {
		struct ddp_passing_letter letter;
		char text[32] = "";
		int fd;

		ck_assert_int_eq(ddp_passing_receive(leader, &fd, &letter, &watch, &error), 0);
		ck_assert(letter.member >= 0 && letter.member < FOLLOWERS && letter.number >= 0 &&
			  letter.number < LETTERS);
		ck_assert(!seen[letter.member][letter.number]);
		seen[letter.member][letter.number] = true;
		ck_assert_int_eq(fd >= 0, letter.number != 2);
		if (fd < 0)
			continue;
		ck_assert_int_eq(pread(fd, text, letter.bytes, 0), letter.bytes);
		ck_assert_mem_eq(text, letter.room, letter.bytes);
		close(fd);
	}
	for (int i = 0; i < FOLLOWERS; i++)
		end(pids[i]);
}

/* Who has connected and is slow is not forgotten over others. */
TEST(test_slow)
{
	char wire[1024];
	size_t size = record(wire, sizeof(wire), 5);
	int slow = stranger();

	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(send_letter(-1, 1, i, "quick"), 0);
		expect(1, i, "quick", false);
	}
	say(slow, wire, size, NULL, 0);
	expect(5, 0, "replayed", false);
	close(slow);
}

/* --- Strangers -------------------------------------------------------------------------- */

/* What each sends: a letter of another length, saying that it has so many descriptors; and those. */
static const struct {
	const char *name;
	int less, says, fds, count;
	bool sends, letter, closes;
} strangers[] = {
	{"silent", 0, 0, 0, 1, false, false, false},
	{"closes", 0, 0, 0, 1, false, false, true},
	{"more that are silent than there is room", 0, 0, 0, 2 * DDP_SHARD_MEMBERS + 9, false,
	 false, false},
	{"short", 1, 0, 0, 1, true, true, false},
	{"one byte", INT32_MAX, 0, 0, 1, true, true, false},
	{"long", -1, 0, 0, 1, true, true, false},
	{"long, with a descriptor", -100, 0, 1, 1, true, true, true},
	{"zeros", 0, 0, 0, 1, true, false, false},
	{"zeros, with a descriptor", 0, 0, 1, 1, true, false, false},
	{"a letter of none, with a descriptor", 0, 0, 1, 1, true, true, false},
	{"a letter of one, with none", 0, 1, 0, 1, true, true, false},
	{"a letter of one, with two", 0, 1, 2, 1, true, true, false},
	{"a letter of one, with more than are taken", 0, 1, 9, 1, true, true, false},
	{"a letter of two, with two", 0, 2, 2, 1, true, true, false},
};

TEST_ROWS(test_strangers, strangers)
{
	int fds[2 * DDP_SHARD_MEMBERS + 9], passed[16] = {0};
	char wire[2048] = {0};
	size_t size = record(wire, sizeof(wire), 6);
	int less = strangers[_i].less;

	memcpy(wire + 4, &strangers[_i].says, 4); /* behind the magic number */
	if (!strangers[_i].letter)
		memset(wire, 0, sizeof(wire));
	size = less == INT32_MAX ? 1 : (size_t)((int)size - less);
	for (int i = 0; i < strangers[_i].count; i++) {
		fds[i] = stranger();
		if (strangers[_i].sends)
			say(fds[i], wire, size, passed, strangers[_i].fds);
		if (strangers[_i].closes)
			close(fds[i]);
	}
	/* Before and after the leader has looked at them. */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(send_letter(0, 1, i, "good"), 0);
		close(expect(1, i, "good", true));
	}
	for (int i = 0; i < strangers[_i].count && !strangers[_i].closes; i++)
		close(fds[i]);
}

/* The length that a letter gives itself. */
TEST(test_length)
{
	struct ddp_passing_letter letter = {.bytes = DDP_PASSING_BYTES};
	struct ddp_watch watch = patient();
	char wire[1024];
	size_t size, at;
	int fd = stranger();

	size = record(wire, sizeof(wire), 4);
	for (at = 0; at + 4 <= size && wire[at] != 8; at += 4)
		;
	ck_assert_uint_lt(at + 4, size);
	memcpy(wire + at, &(uint32_t){DDP_PASSING_BYTES + 1}, 4);
	say(fd, wire, size, NULL, 0);
	ck_assert_int_eq(ddp_passing_send(name, -1, &letter, &watch, &error), 0);
	ck_assert_int_eq(ddp_passing_receive(leader, &(int){0}, &letter, &watch, &error), 0);
	ck_assert_uint_eq(letter.bytes, DDP_PASSING_BYTES);
	close(fd);
}

static char recorded[1024];
static size_t recorded_size;

/* As a user of no rank: send by the rules, which looks who listens; then replay what a rank sent. */
static int intrude(int index)
{
	int fd;

	(void)index;
	if (setresuid(65534, 65534, 65534) < 0)
		return 1;
	if (send_letter(-1, 2, 0, "") != DDP_ERR_SYSTEM || !strstr(error.text, "of user 65534"))
		return 2;
	fd = stranger();
	say(fd, recorded, recorded_size, NULL, 0);
	return 0;
}

TEST(test_other_user)
{
	if (geteuid() != 0) {
		printf("test_other_user: left out, only root can be another user\n");
		return;
	}
	recorded_size = record(recorded, sizeof(recorded), 9);
	end(begin(intrude, 0));
	ck_assert_int_eq(send_letter(-1, 1, 0, "good"), 0);
	expect(1, 0, "good", false);
}

/* --- Errors ----------------------------------------------------------------------------- */

static int give_up(void *owner, struct ddp_error *story)
{
	int *calls = owner;

	return ++*calls < 3 ? 0 : ddp_error_set(story, DDP_ERR_ABORTED, "rank 7 gave up");
}

/* Also while somebody is connected and silent. */
TEST(test_receive_ends)
{
	struct ddp_passing_letter letter;
	struct ddp_watch watch = ddp_watch_start(0.03, NULL, NULL);
	int fd = 0, calls = 0, silent = stranger();

	ck_assert_int_eq(ddp_passing_receive(leader, &fd, &letter, &watch, &error),
			 DDP_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(error.text, "within 0.03 s"));
	ck_assert_int_eq(fd, -1);
	watch = ddp_watch_start(1e10, give_up, &calls);
	ck_assert_int_eq(ddp_passing_receive(leader, &fd, &letter, &watch, &error),
			 DDP_ERR_ABORTED);
	ck_assert_str_eq(error.text, "rank 7 gave up");
	/* What has come counts, even when the time is over. */
	watch = ddp_watch_start(0, NULL, NULL);
	ck_assert_int_eq(send_letter(-1, 1, 0, ""), 0);
	ck_assert_int_eq(ddp_passing_receive(leader, &fd, &letter, &watch, &error), 0);
	close(silent);
}

/* Whoever listens takes no connections, and has room for no more. */
TEST(test_send_ends)
{
	struct ddp_passing_letter letter = letter_of(1, 1, "");
	struct ddp_watch watch = ddp_watch_start(0.03, NULL, NULL);
	int listener = pose(0), fds[2], calls = 0;

	fds[0] = stranger();
	ck_assert_int_eq(ddp_passing_send(name, 0, &letter, &watch, &error), DDP_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(error.text, "took none within 0.03 s"));
	watch = ddp_watch_start(1e10, give_up, &calls);
	ck_assert_int_eq(ddp_passing_send(name, 0, &letter, &watch, &error), DDP_ERR_ABORTED);
	ck_assert_str_eq(error.text, "rank 7 gave up");
	close(fds[0]);
	close(listener);
}

TEST(test_refused)
{
	struct ddp_passing_letter letter = {.bytes = DDP_PASSING_BYTES + 1};
	struct ddp_watch watch = patient();

	ck_assert_int_eq(ddp_passing_send(name, -1, &letter, &watch, &error), DDP_ERR_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(error.text, "257 bytes"));
	ck_assert_int_eq(send_letter(INT32_MAX, 1, 1, ""), DDP_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(error.text, "Bad file descriptor"));
	ddp_passing_close(leader);
	leader = NULL;
	ck_assert_int_eq(send_letter(-1, 1, 1, ""), DDP_ERR_PEER);
	ck_assert_ptr_nonnull(strstr(error.text, "must be in one container"));
	memset(name, 'n', sizeof(name));
	ck_assert_int_eq(send_letter(-1, 1, 1, ""), DDP_ERR_ARGUMENT);
	name[0] = '\0';
	ck_assert_int_eq(send_letter(-1, 1, 1, ""), DDP_ERR_ARGUMENT);
}

/* One descriptor may be opened, for the connection, and none for what it brings; or none at all. */
TEST_LOOP(test_no_room, 0, 2)
{
	struct ddp_watch watch = patient();
	struct ddp_passing_letter letter;
	struct rlimit old, tight;
	int next = dup(0), fd, status;

	ck_assert_int_eq(send_letter(0, 3, 0, ""), 0);
	close(next);
	getrlimit(RLIMIT_NOFILE, &old);
	tight = old;
	tight.rlim_cur = (rlim_t)next + (_i == 0);
	setrlimit(RLIMIT_NOFILE, &tight);
	status = ddp_passing_receive(leader, &fd, &letter, &watch, &error);
	setrlimit(RLIMIT_NOFILE, &old);
	ck_assert_int_eq(status, DDP_ERR_SYSTEM);
	ck_assert_int_eq(fd, -1);
	ck_assert_msg(strstr(error.text, "ulimit -n"), "%s", error.text);
	if (_i == 0)
		ck_assert_ptr_nonnull(strstr(error.text, "member 3"));
	else
		close(expect(3, 0, "", true));
}

/* With letters unread, and somebody connected. */
TEST(test_close)
{
	struct ddp_watch watch = ddp_watch_start(0, NULL, NULL);
	struct ddp_passing_letter letter;
	int silent = stranger(), fd;

	ck_assert_int_eq(ddp_passing_receive(leader, &fd, &letter, &watch, NULL), DDP_ERR_TIMEOUT);
	ck_assert_int_eq(send_letter(0, 1, 1, ""), 0);
	ddp_passing_close(leader);
	leader = NULL;
	close(silent);
	ck_assert_int_eq(unit_entries("/proc/self/fd"), before);
	ddp_passing_close(NULL);
}

/* Two leaders of one user, as on two GPUs. */
TEST(test_names)
{
	struct ddp_passing *other;
	char another[DDP_PASSING_NAME];

	ck_assert_int_eq(ddp_passing_listen(&other, another, &error), 0);
	ck_assert_str_ne(name, another);
	ck_assert_uint_lt(strlen(name), DDP_PASSING_NAME);
	ddp_passing_close(other);
}

static void fill(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, up, down);
}

UNIT_MAIN("shard_passing", fill)
