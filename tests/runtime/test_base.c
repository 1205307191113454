/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pty.h>

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/json.h"
#include "base/keyed-hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/watch.h"
#include "base/xalloc.h"
#include "unit.h"

TEST(test_version)
{
	int major, minor, patch;

	ck_assert_str_eq(ddp_version(), PACKAGE_VERSION);
	ck_assert_str_eq(DDP_VERSION, PACKAGE_VERSION);
	ck_assert_int_eq(sscanf(DDP_VERSION, "%d.%d.%d", &major, &minor, &patch), 3);
	ck_assert_int_eq(DDP_VERSION_NUMBER, major * 10000 + minor * 100 + patch);
}

/* --- error.h ------------------------------------------------------------------------------ */

#define STATUS_ROW(name, value, text) {#name, DDP_ERR_##name, value, text},

static const struct {
	const char *name;
	int status, value;
	const char *text;
} statuses[] = {DDP_STATUS_MAP(STATUS_ROW)};

TEST_ROWS(test_status, statuses)
{
	int status = statuses[_i].status, exit_status = ddp_exit_status(status);

	ck_assert_int_eq(status, statuses[_i].value);
	unit_text(statuses[_i].name, "text", ddp_strerror(status), statuses[_i].text);
	ck_assert_int_eq(exit_status, 64 - status);
	/* shells use higher values for signals */
	ck_assert(exit_status >= 65 && exit_status < 126);
	ck_assert_int_eq(ddp_is_peer_error(status), status <= -20);
	for (int i = 0; i < _i; i++)
		ck_assert_int_ne(ddp_exit_status(statuses[i].status), exit_status);
}

TEST(test_error)
{
	struct ddp_error error = {7, "before"};
	char text[2 * DDP_ERROR_SIZE];

	ck_assert_int_eq(ddp_error_set(&error, DDP_ERR_PEER, "rank %d on %s", 3, "n2"),
			 DDP_ERR_PEER);
	ck_assert_int_eq(error.status, DDP_ERR_PEER);
	ck_assert_str_eq(error.text, "rank 3 on n2");

	errno = ENOSPC;
	ck_assert_int_eq(ddp_error_errno(&error, DDP_ERR_FILE, "cannot write %s", "x"),
			 DDP_ERR_FILE);
	ck_assert_str_eq(error.text, "cannot write x: No space left on device");
	ck_assert_int_eq(errno, ENOSPC);

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	ddp_error_set(&error, DDP_ERR_FILE, "%s", text);
	ck_assert_uint_eq(strlen(error.text), DDP_ERROR_SIZE - 1);
	ddp_error_errno(&error, DDP_ERR_FILE, "%s", text);
	ck_assert_uint_eq(strlen(error.text), DDP_ERROR_SIZE - 1);

	ddp_error_clear(&error);
	ck_assert_int_eq(error.status, 0);
	ck_assert_str_eq(error.text, "");

	ddp_error_clear(NULL);
	ck_assert_int_eq(ddp_error_set(NULL, DDP_ERR_PEER, "x"), DDP_ERR_PEER);
	ck_assert_int_eq(ddp_error_errno(NULL, DDP_ERR_FILE, "x"), DDP_ERR_FILE);
}

/* --- watch.h ------------------------------------------------------------------------------ */

struct owner {
	int answer, checks;
};

static int check_owner(void *context, struct ddp_error *error)
{
	struct owner *owner = context;

	owner->checks++;
	return owner->answer ? ddp_error_set(error, owner->answer, "the owner says so") : 0;
}

TEST(test_watch)
{
	struct owner owner = {0, 0};
	struct ddp_error error = {0, ""};
	struct ddp_watch watch = ddp_watch_start(3600, check_owner, &owner), later;

	ck_assert_uint_le(watch.deadline, ddp_watch_now(&watch) + UINT64_C(3600000000000));
	ck_assert_double_eq(watch.limit, 3600);
	ck_assert_int_eq(ddp_watch_check(&watch, &error), 0);
	ck_assert_int_eq(owner.checks, 1);

	/* The error of a timeout has no text, because only the caller knows what it waited for. */
	watch.deadline = 0;
	ck_assert_int_eq(ddp_watch_check(&watch, &error), DDP_ERR_TIMEOUT);
	ck_assert_str_eq(error.text, "");

	/* If the owner reports an error, the deadline does not matter. */
	owner.answer = DDP_ERR_PEER;
	ck_assert_int_eq(ddp_watch_check(&watch, &error), DDP_ERR_PEER);
	ck_assert_str_eq(error.text, "the owner says so");
	ck_assert_int_eq(ddp_watch_check(&watch, NULL), DDP_ERR_PEER);

	later = ddp_watch_later(&watch, 0.5);
	ck_assert_uint_eq(later.deadline, watch.deadline + 500000000);
	ck_assert_ptr_eq(later.owner, &owner);

	watch = ddp_watch_start(0, NULL, NULL);
	ck_assert_int_eq(ddp_watch_check(&watch, &error), DDP_ERR_TIMEOUT);
}

/* Nanoseconds by which the clocks are ahead: time passes without sleeping. */
static uint64_t passed;
static uint64_t passed_asleep; /* added to [passed] by each sleep */
static long longest_sleep;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	int result = __real_clock_gettime(clock, time);
	uint64_t now = (uint64_t)time->tv_nsec + passed;

	time->tv_sec += (time_t)(now / 1000000000);
	time->tv_nsec = (long)(now % 1000000000);
	return result;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	long length = time->tv_sec * 1000000000 + time->tv_nsec;

	longest_sleep = length > longest_sleep ? length : longest_sleep;
	passed += passed_asleep;
	return __real_nanosleep(time, left);
}

static void pass(double seconds)
{
	passed += (uint64_t)(seconds * 1e9);
}

/* Fails unless [least] to [most] seconds of awake time are between two readings. */
static void expect_awake(const char *row, uint64_t from, uint64_t to, double least, double most)
{
	double awake = (double)(to - from) * 1e-9;

	ck_assert_msg(awake >= least && awake <= most, "%s: %g s count, not %g to %g", row, awake,
		      least, most);
}

enum gap { GAP_CHECK, GAP_BLOCKED, GAP_NESTED, GAP_POLL, GAP_SLEEP, GAP_SLEEP_BLOCKED };

static const struct {
	const char *name;
	enum gap gap;
	double passed, counted; /* seconds */
	unsigned int suspensions;
} gaps[] = {
	{"between two checks", GAP_CHECK, 0.5, 0.5, 0},
	{"suspended between two checks", GAP_CHECK, 1000, 1, 1},
	{"blocked", GAP_BLOCKED, 25, 25, 0},
	{"suspended while blocked", GAP_BLOCKED, 1000, 30, 1},
	{"blocked, and a nested call has ended", GAP_NESTED, 25, 25, 0},
	{"a poll that blocks", GAP_POLL, 25, 25, 0},
	{"suspended in a poll", GAP_POLL, 1000, 30, 1},
	{"suspended in a sleep", GAP_SLEEP, 1000, 1, 1},
	{"suspended in a sleep of a method that may block", GAP_SLEEP_BLOCKED, 1000, 1, 1},
};

TEST_ROWS(test_awake_time, gaps)
{
	enum gap gap = gaps[_i].gap;
	struct ddp_watch watch = ddp_watch_start(-1, NULL, NULL);
	struct ddp_poll poll = {0};
	unsigned int suspensions = ddp_watch_suspensions();
	uint64_t from;

	if (gap == GAP_BLOCKED || gap == GAP_NESTED || gap == GAP_SLEEP_BLOCKED)
		ddp_watch_block();
	if (gap == GAP_NESTED) {
		ddp_watch_block();
		ddp_watch_unblock();
	}
	from = ddp_watch_now(&watch);
	if (gap == GAP_SLEEP || gap == GAP_SLEEP_BLOCKED) {
		passed_asleep = (uint64_t)(gaps[_i].passed * 1e9);
		ddp_watch_sleep(&watch, 1);
	} else {
		pass(gaps[_i].passed);
	}
	if (gap == GAP_POLL)
		ck_assert_int_eq(ddp_watch_poll(&watch, &poll, NULL), 0);
	expect_awake(gaps[_i].name, from, ddp_watch_now(&watch), gaps[_i].counted,
		     gaps[_i].counted + 0.4);
	unit_number(gaps[_i].name, "suspensions", ddp_watch_suspensions() - suspensions,
		    gaps[_i].suspensions);
}

/* Gang scheduling: 30 s on, 30 s off. Each of the 20 suspensions costs at most a second. */
TEST(test_limit_with_many_suspensions)
{
	struct ddp_watch watch = ddp_watch_start(600, NULL, NULL);
	double awake = 0;

	for (int i = 1; ddp_watch_check(&watch, NULL) == 0; i++, awake += 0.5)
		pass(i % 60 == 0 ? 0.5 + 30 : 0.5);
	ck_assert_msg(awake >= 580 && awake <= 601, "the limit ended after %g s", awake);
}

TEST(test_nested_watches)
{
	struct ddp_watch outer = ddp_watch_start(100, NULL, NULL), inner;

	for (int wait = 0; wait < 4; wait++) {
		inner = ddp_watch_start(20, NULL, NULL);
		ck_assert_int_eq(ddp_watch_check(&outer, NULL), 0);
		while (ddp_watch_check(&inner, NULL) == 0)
			pass(0.5);
	}
	ck_assert_int_eq(ddp_watch_check(&outer, NULL), 0);
	for (int i = 0; i < 50; i++) {
		pass(0.5);
		(void)ddp_watch_check(&inner, NULL);
	}
	ck_assert_int_eq(ddp_watch_check(&outer, NULL), DDP_ERR_TIMEOUT);
}

/* A watch starts with its first use, and so does a copy with a later deadline. */
TEST(test_first_use)
{
	struct ddp_watch watch = ddp_watch_start(10, NULL, NULL);
	struct ddp_watch later = ddp_watch_later(&watch, 5);
	uint64_t now;

	for (int i = 0; i < 30; i++)
		pass(0.5);
	ck_assert_int_eq(ddp_watch_check(&watch, NULL), 0);
	now = ddp_watch_now(&later);
	expect_awake("limit", now, watch.deadline, 9, 10);
	expect_awake("later", now, later.deadline, 14, 15);
}

TEST(test_work_before_a_wait_is_no_suspension)
{
	unsigned int suspensions = ddp_watch_suspensions();
	struct ddp_watch watch = ddp_watch_start(-1, NULL, NULL);
	uint64_t from;

	pass(1000);
	watch = ddp_watch_start(10, NULL, NULL);
	from = ddp_watch_now(&watch);
	expect_awake("limit", from, watch.deadline, 9, 10);
	unit_number("work", "suspensions", ddp_watch_suspensions() - suspensions, 0);
}

static void *wait_suspended(void *unused)
{
	struct ddp_watch watch = ddp_watch_start(-1, NULL, NULL);

	(void)unused;
	(void)ddp_watch_now(&watch);
	pass(1000);
	(void)ddp_watch_now(&watch);
	return NULL;
}

TEST(test_suspension_of_another_thread_counts)
{
	unsigned int suspensions = ddp_watch_suspensions();
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, wait_suspended, NULL), 0);
	pthread_join(thread, NULL);
	unit_number("another thread", "suspensions", ddp_watch_suspensions() - suspensions, 1);
}

/* Polling ends at the deadline or with the owner's error. Most polls do not call the owner. */
TEST(test_poll)
{
	struct owner owner = {0, 0};
	struct ddp_watch watch = ddp_watch_start(0.05, check_owner, &owner);
	struct ddp_poll poll = {0};
	int status;

	while ((status = ddp_watch_poll(&watch, &poll, NULL)) == 0)
		;
	ck_assert_int_eq(status, DDP_ERR_TIMEOUT);
	ck_assert_uint_ge(ddp_watch_now(&watch), watch.deadline);
	ck_assert_int_le(owner.checks, 1 + 50 / 10);
	ck_assert_int_eq(ddp_watch_poll(&watch, &poll, NULL), DDP_ERR_TIMEOUT);
	watch = ddp_watch_start(3600, check_owner, &owner);
	owner.answer = DDP_ERR_PEER;
	poll = (struct ddp_poll){0};
	while ((status = ddp_watch_poll(&watch, &poll, NULL)) == 0)
		;
	ck_assert_int_eq(status, DDP_ERR_PEER);
}

static const double endless[] = {1e9, 1e300, INFINITY, NAN, -1};

TEST_ROWS(test_endless, endless)
{
	struct ddp_watch watch = ddp_watch_start(endless[_i], NULL, NULL), later;

	ck_assert_uint_eq(watch.deadline, UINT64_MAX);
	ck_assert_int_eq(ddp_watch_check(&watch, NULL), 0);
	later = ddp_watch_later(&watch, 10);
	ck_assert_uint_eq(later.deadline, UINT64_MAX);
}

/* A sleep ends at the deadline at the latest, and is never longer than a period. */
TEST(test_sleep)
{
	struct ddp_watch over = ddp_watch_start(0, NULL, NULL);
	struct ddp_watch soon = ddp_watch_start(0.01, NULL, NULL);
	struct ddp_watch never = ddp_watch_start(-1, NULL, NULL);
	uint64_t before = ddp_now();

	ddp_watch_sleep(&over, UINT64_MAX);
	ddp_watch_sleep(&soon, UINT64_MAX);
	ck_assert_int_eq(ddp_watch_check(&soon, NULL), DDP_ERR_TIMEOUT);
	ddp_watch_sleep(&never, UINT64_MAX);
	ck_assert_uint_ge(ddp_now(), before + 10000000);
	ck_assert_int_le(longest_sleep, DDP_WATCH_PERIOD);
}

/* --- settings.h --------------------------------------------------------------------------- */

static const struct {
	const char *value; /* NULL: unset */
	double seconds;	   /* 0: error */
} seconds[] = {
	{NULL, 600},   {"", 600},    {"30", 30},   {"1.5", 1.5}, {".25", 0.25},
	{"1e3", 1000}, {"1e9", 1e9}, {"0", 0},	   {"-1", 0},	 {"1e10", 0},
	{"inf", 0},    {"nan", 0},   {"30s", 0},   {"1,5", 0},	 {" 30", 0},
	{"30 ", 0},    {"0x10", 0},  {"1.5.5", 0}, {"e", 0},	 {"3\n", 0},
};

TEST_ROWS(test_seconds, seconds)
{
	const char *name = seconds[_i].value ? seconds[_i].value : "(unset)";
	struct ddp_error error = {0, ""};
	double value = -7;

	/* the program's locale must not change how the environment is parsed */
	if (!setlocale(LC_NUMERIC, "de_DE.UTF-8"))
		(void)setlocale(LC_NUMERIC, "fr_FR.UTF-8");
	if (seconds[_i].value)
		setenv("DDP_TIMEOUT", seconds[_i].value, 1);
	else
		unsetenv("DDP_TIMEOUT");
	if (seconds[_i].seconds > 0) {
		ck_assert_msg(ddp_setting_seconds(DDP_SET_DDP_TIMEOUT, &value, &error) == 0,
			      "%s: %s", name, error.text);
		ck_assert_double_eq(value, seconds[_i].seconds);
	} else {
		const char *const pieces[] = {"DDP_TIMEOUT=", name, "seconds", NULL};

		unit_number(name, "status",
			    ddp_setting_seconds(DDP_SET_DDP_TIMEOUT, &value, &error),
			    DDP_ERR_ENVIRONMENT);
		unit_pieces(name, error.text, pieces);
		ck_assert_double_eq(value, -7);
	}
	unsetenv("DDP_TIMEOUT");
	setlocale(LC_NUMERIC, "C");
}

static const struct {
	const char *value;
	int status, index;
} words[] = {
	{NULL, 0, -1},
	{"", 0, -1},
	{"plain", 0, 0},
	{"avx512", 0, 2},
	{"avx", DDP_ERR_ENVIRONMENT, -1},
	{"avx5122", DDP_ERR_ENVIRONMENT, -1},
	{"AVX2", DDP_ERR_ENVIRONMENT, -1},
};

TEST_ROWS(test_choice, words)
{
	static const char *const choices[] = {"plain", "avx2", "avx512", NULL};
	const char *const pieces[] = {"DDP_SIMD=", "plain, avx2, avx512", NULL};
	struct ddp_error error = {0, ""};
	int index = 77;

	unsetenv("DDP_SIMD");
	if (words[_i].value)
		setenv("DDP_SIMD", words[_i].value, 1);
	ck_assert_int_eq(ddp_setting_word(DDP_SET_DDP_SIMD, choices, &index, &error),
			 words[_i].status);
	ck_assert_int_eq(index, words[_i].index);
	if (words[_i].status < 0)
		unit_pieces(words[_i].value, error.text, pieces);
	unsetenv("DDP_SIMD");
}

/* --- keyed-hash.h ------------------------------------------------------------------------- */

/* BLAKE2's published test vectors: the bytes 0, 1, 2, ... under the key 0, 1, ..., 31; RFC 7693, appendix B. */
static const struct {
	bool keyed;
	size_t size;
	const char *hash;
} hashes[] = {
	{true, 0, "48a8997da407876b3d79c0d92325ad3b89cbb754d86ab71aee047ad345fd2c49"},
	{true, 1, "40d15fee7c328830166ac3f918650f807e7e01e177258cdc0a39b11f598066f1"},
	{true, 64, "8975b0577fd35566d750b362b0897a26c399136df07bababbde6203ff2954ed4"},
	{true, 65, "21fe0ceb0052be7fb0f004187cacd7de67fa6eb0938d927677f2398c132317a8"},
	{true, 255, "3fb735061abc519dfe979e54c1ee5bfad0a9d858b3315bad34bde999efd724dd"},
	{false, 3, "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982"},
};

TEST_ROWS(test_keyed_hash, hashes)
{
	uint8_t data[256], key[DDP_HASH_SIZE], hash[DDP_HASH_SIZE], other[DDP_HASH_SIZE];
	char text[2 * DDP_HASH_SIZE + 1];

	for (int i = 0; i < 256; i++)
		data[i] = (uint8_t)i;
	memcpy(key, data, sizeof(key));
	ddp_keyed_hash(hashes[_i].keyed ? key : NULL, hashes[_i].keyed ? (const void *)data : "abc",
		       hashes[_i].size, hash);
	for (int i = 0; i < DDP_HASH_SIZE; i++)
		snprintf(text + 2 * i, 3, "%02x", hash[i]);
	ck_assert_str_eq(text, hashes[_i].hash);
	memcpy(other, hash, sizeof(other));
	ck_assert(ddp_hash_equal(hash, other));
	other[DDP_HASH_SIZE - 1] ^= 0x80;
	ck_assert(!ddp_hash_equal(hash, other));
}

/* --- checksum.h --------------------------------------------------------------------------- */

/* RFC 3720, B.4, and the check value of the catalogues. */
static const struct {
	const char *name;
	uint8_t data[48];
	size_t size;
	uint32_t crc;
} sums[] = {
	{"nothing", {0}, 0, 0},
	{"123456789", "123456789", 9, 0xe3069283},
	{"zeros", {0}, 32, 0x8a9136aa},
	{"ones",
	 {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	  0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	  0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	 32,
	 0x62a8ab43},
	{"upwards",
	 {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
	  16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31},
	 32,
	 0x46dd794e},
	{"downwards",
	 {31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
	  15, 14, 13, 12, 11, 10, 9,  8,  7,  6,  5,  4,  3,  2,  1,  0},
	 32,
	 0x113fdb5c},
	{"an iSCSI read",
	 {0x01, 0xc0, 0, 0,    0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 4, 0,
	  0,	0,    0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0},
	 48,
	 0xd9963a56},
};

TEST_ROWS(test_crc, sums)
{
	unit_number(sums[_i].name, "plain", ddp_crc32c_plain(0, sums[_i].data, sums[_i].size),
		    sums[_i].crc);
	unit_number(sums[_i].name, "fast", ddp_crc32c(0, sums[_i].data, sums[_i].size),
		    sums[_i].crc);
}

/*
 * Both implementations return the same checksum for any alignment and length, and when the data is
 * passed in several pieces.
 */
TEST(test_crc_pieces)
{
	uint64_t state = 88172645463325252u;
	uint8_t data[300];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)unit_random(&state, 256);
	for (size_t begin = 0; begin < 9; begin++) {
		for (size_t size = 0; size + begin <= sizeof(data); size++) {
			uint32_t plain = ddp_crc32c_plain(0, data + begin, size);
			size_t cut = size ? unit_random(&state, (uint32_t)size + 1) : 0;
			uint32_t first = ddp_crc32c(0, data + begin, cut);

			ck_assert_uint_eq(ddp_crc32c(0, data + begin, size), plain);
			ck_assert_uint_eq(ddp_crc32c(first, data + begin + cut, size - cut), plain);
			ck_assert_uint_eq(ddp_crc32c_plain(first, data + begin + cut, size - cut),
					  plain);
		}
	}
}

/* --- log.h -------------------------------------------------------------------------------- */

/*
 * Prints a line of the log to a socket in place of stderr. Returns the number of writes, and the
 * text of the first one in [line].
 */
static int catch_lines(const struct ddp_log *log, enum ddp_level level, const char *subsystem,
		       const char *text, char *line, size_t size)
{
	int saved = dup(STDERR_FILENO), pair[2], count = 0;
	char rest[16];
	ssize_t got;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	ck_assert_int_ge(dup2(pair[1], STDERR_FILENO), 0);
	ddp_log_print(log, level, subsystem, "%s", text);
	ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
	close(saved);
	close(pair[1]);
	memset(line, 0, size);
	got = read(pair[0], line, size - 1);
	ck_assert_int_ge((int)got, 0);
	for (count = got > 0; got > 0; count += got > 0)
		got = read(pair[0], rest, sizeof(rest));
	close(pair[0]);
	return count;
}

static const struct {
	const char *setting;
	int rank; /* -1: unknown */
	/* for each level from error to debug: y if subsystem "rdzv" prints it, else n */
	const char *wanted;
	const char *other; /* the same for subsystem "rd" */
} filters[] = {
	{NULL, -1, "yynn", "yynn"},	    {NULL, 0, "yynn", "yynn"},
	{NULL, 1, "ynnn", "ynnn"},	    {"", 0, "yynn", "yynn"},
	{"error", 0, "ynnn", "ynnn"},	    {"warning", 0, "yynn", "yynn"},
	{"info", 0, "yyyn", "yyyn"},	    {"debug", 0, "yyyy", "yyyy"},
	{"debug", 2, "ynnn", "ynnn"},	    {"+debug", 2, "yyyy", "yyyy"},
	{"+warning", 2, "yynn", "yynn"},    {"info:rdzv", 0, "yyyn", "ynnn"},
	{"info:x,rdzv", 0, "yyyn", "ynnn"}, {"info:rdzv,x", 0, "yyyn", "ynnn"},
	{"info:rdzvs", 0, "ynnn", "ynnn"},  {"+debug:rd", 3, "ynnn", "yyyy"},
};

TEST_ROWS(test_filter, filters)
{
	const char *name = filters[_i].setting ? filters[_i].setting : "(unset)";
	struct ddp_error error = {0, ""};
	struct ddp_log log;

	unsetenv("DDP_LOG");
	if (filters[_i].setting)
		setenv("DDP_LOG", filters[_i].setting, 1);
	ck_assert_msg(ddp_log_open(&log, &error) == 0, "%s: %s", name, error.text);
	unsetenv("DDP_LOG");
	if (filters[_i].rank >= 0)
		ddp_log_name(&log, filters[_i].rank, "n2");
	for (int level = 0; level < 4; level++) {
		char line[64];
		bool wanted = filters[_i].wanted[level] == 'y';

		unit_number(name, "wants rdzv", ddp_log_wants(&log, (enum ddp_level)level, "rdzv"),
			    wanted);
		unit_number(name, "wants rd", ddp_log_wants(&log, (enum ddp_level)level, "rd"),
			    filters[_i].other[level] == 'y');
		unit_number(name, "lines",
			    catch_lines(&log, (enum ddp_level)level, "rdzv", "x", line,
					sizeof(line)),
			    wanted);
	}
}

static const char *const bad_levels[] = {"loud",      "Error", "+",	 ":rdzv",
					 "info,rdzv", "infos", "++info", " info"};

TEST_ROWS(test_bad_level, bad_levels)
{
	const char *const pieces[] = {"DDP_LOG=", bad_levels[_i], "debug", NULL};
	struct ddp_error error = {0, ""};
	struct ddp_log log;

	setenv("DDP_LOG", bad_levels[_i], 1);
	ck_assert_int_eq(ddp_log_open(&log, &error), DDP_ERR_ENVIRONMENT);
	unsetenv("DDP_LOG");
	unit_pieces(bad_levels[_i], error.text, pieces);
	/* The log is usable nevertheless, because the program must print this error. */
	ck_assert(ddp_log_wants(&log, DDP_LEVEL_WARNING, "rdzv"));
	ck_assert(!ddp_log_wants(&log, DDP_LEVEL_INFO, "rdzv"));
}

/* On a terminal a warning first removes a progress bar, which has no line end. */
TEST(test_log_on_terminal)
{
	int saved = dup(STDERR_FILENO), master, slave;
	struct ddp_log log;
	char text[64] = "";
	ssize_t got = 0;

	setenv("TERM", "xterm", 1);
	ck_assert_int_eq(ddp_log_open(&log, NULL), 0);
	ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, NULL), 0);
	ck_assert_int_ge(dup2(slave, STDERR_FILENO), 0);
	ddp_log_print(&log, DDP_LEVEL_WARNING, "x", "hm");
	ddp_log_print(&log, DDP_LEVEL_ERROR, "x", "no plan");
	ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
	for (size_t used = 0; got >= 0 && !strstr(text, "plan\r\n"); used += (size_t)got)
		got = read(master, text + used, sizeof(text) - 1 - used);
	ck_assert_str_eq(text, "\r\033[Kddp: warning: hm\r\nddp: no plan\r\n");
	close(master);
	close(slave);
	close(saved);
}

TEST(test_prefix)
{
	char line[4096], text[4000], host[300];
	struct ddp_log log;

	unsetenv("DDP_LOG");
	ck_assert_int_eq(ddp_log_open(&log, NULL), 0);
	ck_assert_int_eq(catch_lines(&log, DDP_LEVEL_ERROR, "x", "no plan", line, sizeof(line)), 1);
	ck_assert_str_eq(line, "ddp: no plan\n");
	ddp_log_name(&log, 3, "n2");
	ck_assert_int_eq(catch_lines(&log, DDP_LEVEL_ERROR, "x", "no plan", line, sizeof(line)), 1);
	ck_assert_str_eq(line, "ddp[3@n2]: no plan\n");
	ddp_log_name(&log, 0, "n2");
	ck_assert_int_eq(catch_lines(&log, DDP_LEVEL_WARNING, "x", "hm", line, sizeof(line)), 1);
	ck_assert_str_eq(line, "ddp[0@n2]: warning: hm\n");

	/* A text that exceeds the limit is truncated, but is still one line with its end. */
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	memset(host, 'h', sizeof(host) - 1);
	host[sizeof(host) - 1] = '\0';
	ddp_log_name(&log, 2147483647, host);
	ck_assert_int_eq(catch_lines(&log, DDP_LEVEL_ERROR, "x", text, line, sizeof(line)), 1);
	ck_assert_ptr_nonnull(strstr(line, "hhh]: xxx"));
	ck_assert_str_eq(line + strlen(line) - 2, "x\n");
}

/* --- text.h ------------------------------------------------------------------------------- */

static const struct {
	const char *name, *in, *json, *plain;
} texts[] = {
	{"plain", "a b", "\"a b\"", "a b"},
	{"empty", "", "\"\"", ""},
	{"quotes", "<a&'\">\\n", "\"\\u003ca&'\\\">\\\\n\"", "<a&'\">\\n"},
	{"control", "\x1b[1m\r\b", "\"\\u001b[1m\\r\\b\"", "?[1m??"},
	{"line", "a\n\tb", "\"a\\n\\tb\"", "a??b"},
	{"2 to 4 bytes", "é€😀", "\"é€😀\"", "é€😀"},
	{"C1 control", "\xc2\x9b", "\"\xc2\x9b\"", "?"},
	{"stray", "a\x80z", "\"a\xef\xbf\xbdz\"", "a\xef\xbf\xbdz"},
	{"cut", "\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\"", "\xef\xbf\xbd\xef\xbf\xbd"},
	{"overlong", "\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\"", "\xef\xbf\xbd\xef\xbf\xbd"},
	{"surrogate", "\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"",
	 "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
};

TEST_ROWS(test_text, texts)
{
	struct ddp_text json = {.data = NULL}, plain = {.data = NULL};

	ddp_text_json(&json, texts[_i].in);
	unit_text(texts[_i].name, "JSON", json.data, texts[_i].json);
	ddp_text_put(&plain, "", 0);
	ddp_text_plain(&plain, texts[_i].in);
	unit_text(texts[_i].name, "on a terminal", plain.data, texts[_i].plain);
	ddp_text_free(&json);
	ddp_text_free(&plain);
}

static const struct {
	double number;
	const char *json, *count;
} numbers[] = {
	{0, "0", "0"},
	{999.4, "999.4", "999"},
	{1234567, "1234567", "1,234,567"},
	{-1234, "-1234", "-1,234"},
	{0.1, "0.1", "0"},
	{1.0 / 3, "0.33333333333333331", "0"},
	{-2.5e-300, "-2.5e-300", "-0"},
	{(double)0.1f, "0.10000000149011612", "0"},
	{(double)INFINITY, "null", "inf"},
	{-(double)INFINITY, "null", "-inf"},
	{(double)NAN, "null", "nan"},
};

TEST_ROWS(test_numbers, numbers)
{
	struct ddp_text text = {.data = NULL};

	ddp_text_json_number(&text, numbers[_i].number);
	unit_text(numbers[_i].count, "JSON", text.data, numbers[_i].json);
	unit_text(numbers[_i].json, "count", ddp_show_count(numbers[_i].number).text,
		  numbers[_i].count);
	ddp_text_free(&text);
}

/* --- json.h (more in tests/runtime/test_tensors.c) ---------------------------------------- */

static const struct {
	const char *text;
	double number;
	const char *wrong, *rest;
} reals[] = {
	{"0", 0, NULL, ""},
	{" -1.5e3,", -1500, NULL, ","},
	{"1795000012.25]", 1795000012.25, NULL, "]"},
	{"3E-2", 0.03, NULL, ""},
	{"2e+1 ", 20, NULL, " "},
	{"1e999999999999", INFINITY, NULL, ""},
	{"0e999999999999", 0, NULL, ""},
	{"1e-999999999999", 0, NULL, ""},
	{"01", 0, "a number that begins with 0", NULL},
	{"1.", 0, "a number expected", NULL},
	{"-", 0, "a number expected", NULL},
	{".5", 0, "a number expected", NULL},
	{"1e", 0, "a number expected", NULL},
	{"null", 0, "a number expected", NULL},
	{"", 0, "a number expected", NULL},
};

TEST_ROWS(test_real, reals)
{
	char text[64];
	struct ddp_json json;
	double number;

	ddp_json_start(&json, strcpy(text, reals[_i].text), strlen(reals[_i].text));
	ck_assert_int_eq(ddp_json_real(&json, &number), !reals[_i].wrong);
	unit_text(reals[_i].text, "what is wrong", json.wrong, reals[_i].wrong);
	if (!reals[_i].wrong) {
		ck_assert_double_eq(number, reals[_i].number);
		unit_text(reals[_i].text, "the rest", json.at, reals[_i].rest);
	}
}

#define TEN(what) what what what what what what what what what what

static const struct {
	const char *text, *wrong;
} values[] = {
	{"\"a\\n\"", NULL},
	{"{\"a\": [1, {\"b\": {}}, [], true], \"c\": null}", NULL},
	{TEN("[") TEN("[") TEN("]") TEN("]"), NULL},
	{TEN("[") TEN("[") TEN("[") TEN("[") TEN("[") TEN("[") TEN("["),
	 "more than 64 levels of objects and arrays"},
	{"[1 2]", "',' or ']' expected"},
	{"{\"a\" 1}", "':' expected"},
	{"{\"a\": 1]", "',' or '}' expected"},
	{"[tru]", "a value expected"},
	{"[1,]", "a value expected"},
	{"", "a value expected"},
};

TEST_ROWS(test_skip, values)
{
	char text[128];
	struct ddp_json json;

	strcat(strcpy(text, values[_i].text), ",");
	ddp_json_start(&json, text, strlen(text) - !!values[_i].wrong);
	ck_assert_int_eq(ddp_json_skip(&json), !values[_i].wrong);
	unit_text(values[_i].text, "what is wrong", json.wrong, values[_i].wrong);
	if (!values[_i].wrong)
		ck_assert_int_eq(ddp_json_peek(&json), ',');
}

static const struct {
	const char *name;
	uint64_t words[2];
	const char *want;
} lists[] = {
	{"none", {0, 0}, ""},
	{"one", {1, 0}, "0"},
	{"range", {0xff, 0}, "0-7"},
	{"two ranges", {0xf00f, 0}, "0-3,12-15"},
	{"over a word", {UINT64_C(1) << 63, 3}, "63-65"},
	{"single ones", {0x15, 0}, "0,2,4"},
	{"longer than the buffer", {0x155555, 0}, "0,2,4,6,8,10,12..."},
};

TEST_ROWS(test_cpus, lists)
{
	char text[20];
	cpu_set_t set;

	CPU_ZERO(&set);
	for (size_t cpu = 0; cpu < 128; cpu++)
		if (lists[_i].words[cpu / 64] >> cpu % 64 & 1)
			CPU_SET(cpu, &set);
	ddp_list_cpus(&set, text, sizeof(text));
	unit_text(lists[_i].name, "list", text, lists[_i].want);
}

static const struct {
	const char *name, *cells;
	size_t widest;
	const char *want;
} tables[] = {
	{"heads are wider than cells", "a\t1\tx\t\t", 99,
	 "word   number  last\na           1  x\n"},
	{"cells are wider than heads", "é and more\t1234567\tx\t\tb\t\t\t\t", 99,
	 "word         number  last\né and more  1234567  x\nb                 -  -\n"},
	{"a column of words is shortened", "été and more\t1\tx\t\t", 19,
	 "word   number  last\nété a       1  x\n"},
	{"a column of words is shortened to its minimum", "été and more\t1234567890\tx\t\t", 9,
	 "word      number  last\nété   1234567890  x\n"},
	{"no rows", "", 99, ""},
};

/* The fourth column of the table is empty and is not printed. */
TEST_ROWS(test_table, tables)
{
	static const struct ddp_table_column columns[] = {
		{"word ", true, 4}, {"number", false, 0}, {"last", true, 0}, {"none", true, 0}};
	struct ddp_text cells = {.data = NULL}, text = {.data = NULL};

	ddp_text_add(&cells, "%s", tables[_i].cells);
	ddp_text_put(&text, "", 0);
	ddp_text_table(&text, columns, 4, &cells, tables[_i].widest);
	unit_text(tables[_i].name, "table", text.data, tables[_i].want);
	ddp_text_free(&cells);
	ddp_text_free(&text);
}

/* --- Memory of programs ------------------------------------------------------------------------ */

static void report_error(struct ddp *ddp, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void report_error(struct ddp *ddp, const char *format, ...)
{
	va_list arguments;

	ck_assert_ptr_null(ddp);
	va_start(arguments, format);
	fputs("reported: ", stderr);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
}

/* AddressSanitizer ends the program itself if it cannot allocate so much. */
#ifdef __SANITIZE_ADDRESS__
enum { NO_MEMORY_CASES = 2 };
#else
enum { NO_MEMORY_CASES = 3 };
#endif

/* If an allocation fails, the program prints the error, reports it to the other ranks, and ends. */
TEST_LOOP(test_no_memory, 0, NO_MEMORY_CASES)
{
	const char *what = _i == 2 ? "no memory for a test's numbers: 1073741824.0 GiB"
				   : "no memory for a test's numbers: 7.379e+19 bytes";
	char text[256], want[256];
	int ends[2], status;
	ssize_t got;
	pid_t pid;

	snprintf(want, sizeof(want), "%s: %s\nreported: %s", program_invocation_short_name, what,
		 what);
	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		dup2(ends[1], STDERR_FILENO);
		ddp_xalloc_tell(report_error, NULL);
		if (_i == 0)
			free(ddp_xcalloc(SIZE_MAX / 2, 8, "a test's numbers"));
		else if (_i == 2)
			free(ddp_xcalloc(SIZE_MAX / 128 + 1, 8, "a test's numbers"));
		else
			free(ddp_xcalloc(8, SIZE_MAX / 2, "a test's numbers"));
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	got = read(ends[0], text, sizeof(text) - 1);
	text[got > 0 ? got : 0] = '\0';
	ck_assert_str_eq(text, want);
	ck_assert_int_eq(WEXITSTATUS(status), ddp_exit_status(DDP_ERR_MEMORY));
}

/* --- random.c ------------------------------------------------------------------------------- */

/* Known answers of Random123 (kat_vectors, philox4x32 10). */
static const struct {
	const char *name;
	uint32_t counter[4], key[2], want[4];
} answers[] = {
	{"zeros", {0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
	{"ones",
	 {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
	 {0xffffffff, 0xffffffff},
	 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
	{"pi",
	 {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
	 {0xa4093822, 0x299f31d0},
	 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

/* Calls ddp_random() with arguments that exactly fill the counter and the key. */
static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	ddp_random((uint64_t)key[1] << 32 | key[0], counter[3] >> 8,
		   (uint64_t)(counter[3] & 0xff) << 32 | counter[2], counter[1], counter[0], out);
}

TEST_ROWS(test_answer, answers)
{
	uint32_t out[4];

	philox(answers[_i].counter, answers[_i].key, out);
	for (int i = 0; i < 4; i++)
		unit_number(answers[_i].name, "word", out[i], answers[_i].want[i]);
}

/*
 * The word of the counter or the key that each argument sets. All engines must use the same words.
 */
static const struct {
	const char *name;
	uint64_t seed, epoch, order;
	uint32_t layer, block;
	uint32_t counter[4], key[2];
} maps[] = {
	{"zeros", 0, 0, 0, 0, 0, {0, 0, 0, 0}, {0, 0}},
	{"seed", 0x0123456789abcdef, 0, 0, 0, 0, {0, 0, 0, 0}, {0x89abcdef, 0x01234567}},
	{"epoch", 0, 0x123456, 0, 0, 0, {0, 0, 0, 0x12345600}, {0, 0}},
	{"order", 0, 0, 0x123456789a, 0, 0, {0, 0, 0x3456789a, 0x12}, {0, 0}},
	{"layer", 0, 0, 0, 0x12345678, 0, {0, 0x12345678, 0, 0}, {0, 0}},
	{"block", 0, 0, 0, 0, 0x12345678, {0x12345678, 0, 0, 0}, {0, 0}},
	{"most",
	 5,
	 0xffffff,
	 0xffffffffff,
	 UINT32_MAX,
	 UINT32_MAX,
	 {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
	 {5, 0}},
	{"epoch 2^24", 5, 1 << 24, 0, 0, 0, {0, 0, 0, 0}, {0x7f4a7c1a, 0x9e3779b9}},
	{"order 2^40", 5, 0, UINT64_C(1) << 40, 0, 0, {0, 0, 0, 0}, {0x1ce4e5be, 0xbf58476d}},
};

TEST_ROWS(test_map, maps)
{
	uint32_t got[4], want[4];

	ddp_random(maps[_i].seed, maps[_i].epoch, maps[_i].order, maps[_i].layer, maps[_i].block,
		   got);
	philox(maps[_i].counter, maps[_i].key, want);
	for (int i = 0; i < 4; i++)
		unit_number(maps[_i].name, "word", got[i], want[i]);
}

TEST(test_uniform)
{
	ck_assert_float_eq(ddp_random_uniform(0), 0);
	ck_assert_float_eq(ddp_random_uniform(255), 0);
	ck_assert_float_eq(ddp_random_uniform(256), 0x1p-24f);
	ck_assert_float_eq(ddp_random_uniform(0x80000000), 0.5f);
	ck_assert_float_eq(ddp_random_uniform(UINT32_MAX), 1 - 0x1p-24f);
	ck_assert_float_lt(ddp_random_uniform(UINT32_MAX), 1);
}

UNIT_MAIN("base", NULL)
