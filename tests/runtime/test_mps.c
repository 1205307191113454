/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mps.c - detection of an MPS daemon by its socket, and parsing of the limits in MPS's
 * variables
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mps.h"
#include "unit.h"

static int bind_control(const char *path, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	return fd;
}

TEST(test_mps_daemon)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	char directory[] = "/tmp/ddp-test-mps.XXXXXX", path[64];
	int fd;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/control", directory);
	ck_assert_int_eq(ddp_mps_look(directory), DDP_MPS_NONE);
	for (int i = 0; i < ROWS(types); i++) {
		fd = bind_control(path, types[i]);
		ck_assert_int_eq(ddp_mps_look(directory), DDP_MPS_SERVES);
		/* The detection must not connect to the daemon. */
		ck_assert_int_eq(accept(fd, NULL, NULL), -1);
		ck_assert_int_eq(errno, EAGAIN);
		close(fd);
		ck_assert_int_eq(ddp_mps_look(directory), DDP_MPS_STALE);
		unlink(path);
	}
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(ddp_mps_look(directory), DDP_MPS_SERVES);
	unlink(path);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	ck_assert_int_eq(ddp_mps_look(directory), DDP_MPS_NONE);
	unlink(path);
	rmdir(directory);
}

/*
 * In /tmp, any user can create the directory first. So another user's directory, link or socket
 * is not trusted, even if it leads to a real daemon.
 */
TEST(test_mps_other_user)
{
	char directory[] = "/tmp/ddp-test-mps.XXXXXX", path[64], other[64];
	int fd;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/control", directory);
	snprintf(other, sizeof(other), "%s/other", directory);
	fd = bind_control(other, SOCK_SEQPACKET);
	ck_assert_int_eq(symlink("other", path), 0);
	ck_assert_int_eq(ddp_mps_look(directory), DDP_MPS_NONE);
	ck_assert_int_eq(rename(other, path), 0);
	ck_assert_int_eq(ddp_mps_look(directory), DDP_MPS_SERVES);
	snprintf(other, sizeof(other), "%s.link", directory);
	ck_assert_int_eq(symlink(directory, other), 0);
	ck_assert_int_eq(ddp_mps_look(other), DDP_MPS_SERVES);
	if (lchown(path, 4711, 4711) == 0) {
		ck_assert_int_eq(ddp_mps_look(directory), DDP_MPS_NONE);
		ck_assert_int_eq(lchown(path, 0, 0), 0);
		ck_assert_int_eq(lchown(other, 4711, 4711), 0);
		ck_assert_int_eq(ddp_mps_look(other), DDP_MPS_NONE);
		ck_assert_int_eq(chown(directory, 4711, 4711), 0);
		ck_assert_int_eq(ddp_mps_look(directory), DDP_MPS_NONE);
	}
	close(fd);
	unlink(other);
	unlink(path);
	rmdir(directory);
}

static const struct {
	const char *name, *threads, *memory;
	double percent;
	const char *limit; /* memory limit of device 1 */
} limits[] = {
	{"none", NULL, NULL, 0, ""},
	{"empty", "", "", 0, ""},
	{"both", "25", "0=4G,1=512M", 25, "512M"},
	{"a fraction", "12.5", "1=32G", 12.5, "32G"},
	{"100 % is no limit", "100", "0=4G", 0, ""},
	{"no numbers", "many", "=4G,1", 0, ""},
	{"signs", "-5", "-1=4G", 0, ""},
	{"a tail", "25 %", "11=4G,1=5G,", 0, "5G"},
	{"not a number", "nan", "0x1=4G", 0, ""},
};

TEST_ROWS(test_mps_limits, limits)
{
	char limit[24];

	ddp_mps_memory(limits[_i].memory, 1, limit, sizeof(limit));
	unit_text(limits[_i].name, "memory", limit, limits[_i].limit);
	ck_assert_double_eq(ddp_mps_threads(limits[_i].threads), limits[_i].percent);
}

UNIT_MAIN("mps", NULL)
