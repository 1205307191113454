/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device.c - ddp_nccl.so: the checks before libddp uses it; the real module without a visible
 * device; and its logic with a fake CUDA and NCCL (fake_nccl.h)
 *
 * tests/gpu tests the module with the real CUDA and NCCL.
 */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "device/device-engine.h"
#include "unit.h"

/* --- Choice of NCCL or staging ------------------------------------------------------------ */

#define UUID "GPU-01234567-89ab-cdef-0123-456789abcdef"
#define SLICE "MIG-01234567-89ab-cdef-0123-456789abcde0"

#define CARD(RANK, VERSION, ID, HOST, BOOT, ...)                                                \
	{                                                                                       \
		.rank = (RANK), .version = (VERSION), .uuid = ID, .host = HOST, .boot = (BOOT), \
		__VA_ARGS__                                                                     \
	}

/*
 * Cards of the ranks and the expected result. Status 0: NCCL is used. Status 1: sums are staged,
 * for the reason in [pieces].
 */
static const struct {
	const char *name;
	int count;
	struct ddp_gpu gpus[4];
	int status;
	const char *pieces;
} choices[] = {
	{"one rank", 1, {CARD(0, 22809, UUID, "n1", 1, )}, 0, NULL},
	{"one rank without NCCL",
	 1,
	 {CARD(0, 0, UUID, "n1", 1, )},
	 1,
	 "rank 0 on n1 cannot use NCCL"},
	{"two devices of a host",
	 2,
	 {CARD(0, 22809, UUID, "n1", 1, .bus = "1"), CARD(1, 22809, UUID "0", "n1", 1, .bus = "2")},
	 0,
	 NULL},
	{"another version",
	 3,
	 {CARD(0, 22809, "a", "n1", 1, ), CARD(1, 22809, "b", "n1", 1, ),
	  CARD(2, 22703, "c", "n2", 2, )},
	 DDP_ERR_MISMATCH,
	 "rank 0 on n1|2.28.9|rank 2 on n2|2.27.3"},
	{"one device twice, another one once",
	 3,
	 {CARD(0, 22809, "GPU-a", "n1", 1, ), CARD(1, 22809, UUID, "n2", 2, .index = 3),
	  CARD(2, 22809, UUID, "n2", 2, .index = 3)},
	 1,
	 "2 ranks share GPU 3 on n2"},
	{"one device in two containers",
	 2,
	 {CARD(0, 22809, UUID, "box1", 7, ), CARD(1, 22809, UUID, "box2", 7, )},
	 1,
	 "2 ranks share GPU 0 on box1"},
	{"one device, but different NCCL_HOSTID",
	 2,
	 {CARD(0, 22809, UUID, "n1", 7, ), CARD(1, 22809, UUID, "n1", 8, )},
	 0,
	 NULL},
	{"slices of one device",
	 2,
	 {CARD(0, 22809, SLICE, "n1", 1, .bus = "1"),
	  CARD(1, 22809, SLICE "1", "n1", 1, .bus = "1")},
	 1,
	 "2 ranks have MIG slices of one GPU on n1"},
	{"slices of one device, newer NCCL",
	 2,
	 {CARD(0, 23102, SLICE, "n1", 1, .bus = "1"),
	  CARD(1, 23102, SLICE "1", "n1", 1, .bus = "1")},
	 1,
	 "2 ranks have MIG slices of one GPU on n1"},
	{"slices of one device, NCCL_MULTI_RANK_GPU_ENABLE set",
	 2,
	 {CARD(0, 23102, SLICE, "n1", 1, .bus = "1", .multi_rank = 1),
	  CARD(1, 23102, SLICE "1", "n1", 1, .bus = "1", .multi_rank = 1)},
	 0,
	 "2 ranks have MIG slices of one GPU on n1"},
	{"slices of two devices",
	 2,
	 {CARD(0, 22809, SLICE, "n1", 1, .bus = "1"),
	  CARD(1, 22809, SLICE "1", "n1", 1, .bus = "2")},
	 0,
	 NULL},
	{"one slice three times",
	 3,
	 {CARD(0, 22809, SLICE, "n1", 1, ), CARD(1, 22809, SLICE, "n1", 1, ),
	  CARD(2, 22809, SLICE, "n1", 1, )},
	 1,
	 "3 ranks share a MIG slice on n1"},
	{"one device and different NCCL versions, of which none is used",
	 2,
	 {CARD(0, 22809, UUID, "n1", 1, ), CARD(1, 21800, UUID, "n1", 1, )},
	 1,
	 "2 ranks share GPU 0"},
	{"several ranks on a device, NCCL_MULTI_RANK_GPU_ENABLE set",
	 2,
	 {CARD(0, 23003, UUID, "n1", 1, .multi_rank = 1),
	  CARD(1, 23003, UUID, "n1", 1, .multi_rank = 1)},
	 0,
	 NULL},
	{"several ranks on a device, NCCL_MULTI_RANK_GPU_ENABLE set on one rank",
	 2,
	 {CARD(0, 23003, UUID, "n1", 1, .multi_rank = 1), CARD(1, 23003, UUID, "n1", 1, )},
	 1,
	 "2 ranks share GPU 0"},
	{"several ranks on a device, NCCL too old for them",
	 2,
	 {CARD(0, 22809, UUID, "n1", 1, .multi_rank = 1),
	  CARD(1, 22809, UUID, "n1", 1, .multi_rank = 1)},
	 1,
	 "2 ranks share GPU 0"},
};

TEST_ROWS(test_choices, choices)
{
	struct ddp_error error = {0, ""};
	char why[128] = "";
	int status =
		ddp_device_choose(choices[_i].gpus, choices[_i].count, why, sizeof(why), &error);

	unit_number(choices[_i].name, "status", status, choices[_i].status);
	unit_has(choices[_i].name, status < 0 ? error.text : why, choices[_i].pieces);
}

TEST(test_choice_of_endless_texts)
{
	struct ddp_gpu gpus[2];
	struct ddp_error error = {0, ""};
	char why[128];

	memset(gpus, 'x', sizeof(gpus));
	gpus[0].multi_rank = gpus[1].multi_rank = 0;
	ck_assert_int_eq(ddp_device_choose(gpus, 2, why, sizeof(why), &error), 1);
	ck_assert_uint_lt(strlen(why), sizeof(why));
	gpus[1].boot = 1;
	gpus[1].version = 1;
	ck_assert_int_eq(ddp_device_choose(gpus, 2, why, sizeof(why), &error), DDP_ERR_MISMATCH);
	ck_assert_uint_lt(strlen(error.text), sizeof(error.text));
}

#ifdef HAVE_NCCL

#include "fake_nccl.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <nccl.h>

#include "base/gpu-cuda.h"
#pragma GCC diagnostic pop

extern const struct ddp_device_engine ddp_module;
#define ENGINE (&ddp_module)

extern char **environ;

static const struct ddp_log quiet = {.level = DDP_LEVEL_ERROR};

static struct ddp_device *device;
static struct ddp_gpu gpu;
static size_t freed; /* bytes, by the engine's free() */
/* a device with a hanging thread; referenced here, so that leak checkers do not report it */
static struct ddp_device *volatile leaked;
static struct fake_nccl *fake;
static int threads_before;

static void sleep_5_ms(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* Waits until the device's threads have ended. /proc lists a joined thread for a moment. */
static void await_end_of_threads(void)
{
	while (unit_entries("/proc/self/task") > threads_before)
		sleep_5_ms();
}

static void *return_at_once(void *argument)
{
	return argument;
}

/*
 * Returns the number of threads before a device is opened. A sanitizer may start its own thread
 * when the program starts its first one.
 */
static int threads_at_rest(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, return_at_once, NULL), 0);
	pthread_join(thread, NULL);
	sleep_5_ms();
	return unit_entries("/proc/self/task");
}

static void setup(void)
{
	fake = fake_nccl_reset();
	threads_before = threads_at_rest();
	unsetenv("NCCL_HOSTID");
}

static void set(bool *flag, bool value)
{
	__atomic_store_n(flag, value, __ATOMIC_SEQ_CST);
}

static struct ddp_watch seconds(double limit)
{
	return ddp_watch_start(limit, NULL, NULL);
}

static void open_rank(int rank, int size)
{
	struct ddp_error error = {0, ""};

	gpu = (struct ddp_gpu){.rank = rank};
	ck_assert_msg(ENGINE->open(&device, &gpu, rank, size, 0, &quiet, &error) == 0, "%s",
		      error.text);
}

static int connect_within(double limit, struct ddp_error *error)
{
	struct ddp_watch watch = seconds(limit);
	uint8_t id[DDP_DEVICE_ID];

	ck_assert_int_eq(ENGINE->identity(device, id, NULL), 0);
	return ENGINE->connect(device, id, &watch, error);
}

static void open_connected(int size)
{
	struct ddp_error error = {0, ""};

	open_rank(0, size);
	ck_assert_msg(connect_within(30, &error) == 0, "%s", error.text);
}

static int wait_within(double limit, struct ddp_error *error)
{
	struct ddp_watch watch = seconds(limit);

	return ENGINE->wait(device, NULL, NULL, 0, &watch, error);
}

static int sum(size_t count, struct ddp_error *error)
{
	static float data[1000];

	return ENGINE->all_reduce(device, data, data, count, DDP_F32, DDP_SUM, NULL, error);
}

/* Closes a device that may have failed. No thread may remain. */
static void close_lost(void)
{
	ENGINE->close(device);
	device = NULL;
	await_end_of_threads();
}

/* Closes a device that has not failed. No thread, memory or handle may remain. */
static void close_clean(void)
{
	close_lost();
	ck_assert_int_eq(fake_nccl_left(), 0);
}

/* --- Opening ----------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int driver, devices, version, index;
	const char *fail;
	int status;
	const char *pieces;
} refusals[] = {
	{"no driver", 0, 0, 22809, 0, NULL, DDP_ERR_UNSUPPORTED, "no CUDA driver|libcuda"},
	{"old driver", 9020, 1, 22809, 0, NULL, DDP_ERR_UNSUPPORTED, "supports CUDA 9.2|needs"},
	{"no device", 99990, 0, 22809, 0, NULL, DDP_ERR_UNSUPPORTED, "no GPU is|--gres"},
	{"no such device", 99990, 1, 22809, 3, NULL, DDP_ERR_ENVIRONMENT,
	 "rank 1|device 3|1 is here|DDP_DEVICE"},
	{"old NCCL", 99990, 1, 22304, 0, NULL, DDP_ERR_UNSUPPORTED, "2.23.4|2.24.3"},
	{"no stream", 99990, 1, 22809, 0, "cudaStreamCreateWithPriority", DDP_ERR_ENGINE, "stream"},
	{"no event", 99990, 1, 22809, 0, "cudaEventCreateWithFlags", DDP_ERR_MEMORY,
	 "rank 1, device 0|event"},
	{"no properties", 99990, 1, 22809, 0, "cudaGetDeviceProperties", DDP_ERR_MEMORY,
	 "properties"},
};

TEST_ROWS(test_open_refuses, refusals)
{
	struct ddp_error error = {0, ""};
	int status;

	fake->driver = refusals[_i].driver;
	fake->devices = refusals[_i].devices;
	fake->version = refusals[_i].version;
	fake->fail = refusals[_i].fail;
	status = ENGINE->open(&device, &gpu, 1, 2, refusals[_i].index, &quiet, &error);
	unit_number(refusals[_i].name, "status", status, refusals[_i].status);
	unit_has(refusals[_i].name, error.text, refusals[_i].pieces);
	ck_assert_ptr_null(device);
	unit_number(refusals[_i].name, "left", fake_nccl_left(), 0);
	await_end_of_threads();
}

/*
 * ddp_gpu_leave() selects the thread's previous GPU only if the process has a context on that GPU.
 */
TEST(test_previous_gpu)
{
	int was, now;

	fake->devices = 2;
	for (int i = 0; i < 2; i++) {
		fake->has_contexts = i == 1;
		cudaSetDevice(0);
		was = ddp_gpu_enter(1);
		ck_assert_int_eq(was, 0);
		ddp_gpu_leave(1, was);
		cudaGetDevice(&now);
		ck_assert_int_eq(now, !fake->has_contexts);
	}
}

TEST(test_card)
{
	struct ddp_gpu plain, named;
	char host[64] = "";

	gethostname(host, sizeof(host) - 1);
	open_rank(3, 4);
	plain = gpu;
	ck_assert_int_eq(plain.rank, 3);
	ck_assert_int_eq(plain.version, 22809);
	ck_assert_str_eq(plain.uuid, "GPU-64f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
	ck_assert_str_eq(plain.host, host);
	close_clean();

	setenv("NCCL_HOSTID", "other", 1);
	fake->mig = true;
	open_rank(2, 4);
	named = gpu;
	ck_assert_str_eq(named.uuid, "MIG-65f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
	ck_assert_str_eq(named.host, host);
	ck_assert_uint_ne(named.boot, plain.boot);
	close_clean();

	setenv("NCCL_HOSTID", "another", 1);
	open_rank(2, 4);
	ck_assert_uint_ne(gpu.boot, named.boot);
	close_clean();
}

/* --- connect ----------------------------------------------------------------------------- */

static int environment(void)
{
	int count = 0;

	while (environ[count])
		count++;
	return count;
}

TEST(test_order)
{
	static const char *const begin[] = {"ncclGetUniqueId",
					    "ncclCommInitRankConfig",
					    "ncclAllReduce",
					    "ncclAllReduce",
					    "ncclBroadcast",
					    "ncclAllGather",
					    "cudaEventRecord",
					    "cudaFree",
					    NULL};
	static const char *const end[] = {"ncclCommFinalize", "ncclCommDestroy",
					  "cudaStreamDestroy", NULL};
	int before = environment();

	open_connected(2);
	ck_assert(fake_nccl_called(begin));
	ck_assert_int_eq(fake_nccl_blocking(), 1);
	ck_assert_str_eq(fake_nccl_comm_name(), "ddp");
	ck_assert_int_eq(connect_within(1, NULL), DDP_ERR_STATE);
	ck_assert_int_eq(ENGINE->health(device, NULL), 0);
	close_clean();
	ck_assert(fake_nccl_called(end));
	ck_assert_int_eq(fake_nccl_count("ncclCommAbort"), 0);
	ck_assert_int_eq(environment(), before);
}

TEST(test_old_library)
{
	fake->version = 22403;
	open_connected(1);
	ck_assert_str_eq(fake_nccl_comm_name(), "");
	ck_assert_int_eq(fake_nccl_count("ncclAllReduce"), 0);
	close_clean();
}

TEST(test_init_hangs)
{
	struct ddp_error error = {0, ""}, later = {0, ""};

	open_rank(1, 2);
	fake->hang = "ncclCommInitRankConfig";
	ck_assert_int_eq(connect_within(0.05, &error), DDP_ERR_TIMEOUT);
	UNIT_SAYS("text", error.text, "rank 1", "2 ranks", "0.05 s", "All 2 ranks had started",
		  "NCCL_SOCKET_IFNAME");
	ck_assert_int_eq(ENGINE->health(device, &later), DDP_ERR_TIMEOUT);
	ck_assert_str_eq(later.text, error.text);
	ck_assert_int_eq(connect_within(1, NULL), DDP_ERR_TIMEOUT);
	ck_assert(!ENGINE->abort(device, 0.02));
	/* ncclCommAbort() must not be called before ncclCommInitRankConfig() has returned. */
	ck_assert_int_eq(fake_nccl_count("ncclCommAbort"), 0);
	fake_nccl_release();
	ck_assert(ENGINE->abort(device, 30));
	close_lost();
}

static int end_wait(void *owner, struct ddp_error *error)
{
	return ddp_error_set(error, DDP_ERR_ABORTED, "%s", (const char *)owner);
}

TEST(test_init_ended_by_owner)
{
	char why[] = "rank 0 aborted";
	struct ddp_watch watch = ddp_watch_start(30, end_wait, why);
	uint8_t id[DDP_DEVICE_ID] = {'i'};
	struct ddp_error error = {0, ""};

	open_rank(1, 2);
	fake->hang = "ncclCommInitRankConfig";
	ck_assert_int_eq(ENGINE->connect(device, id, &watch, &error), DDP_ERR_ABORTED);
	ck_assert_str_eq(error.text, why);
	fake_nccl_release();
	close_lost();
}

TEST(test_connecting_hangs)
{
	struct ddp_error error = {0, ""};

	open_rank(0, 2);
	fake->hang = "ncclAllReduce";
	ck_assert_int_eq(connect_within(0.05, &error), DDP_ERR_TIMEOUT);
	UNIT_SAYS("text", error.text, "2 ranks", "0.05 s");
	/* ncclCommAbort() ends the hanging call, as in NCCL. */
	ck_assert(ENGINE->abort(device, 30));
	ck_assert_int_eq(fake_nccl_count("ncclCommAbort"), 1);
	close_lost();
}

TEST(test_init_fails)
{
	struct ddp_error error = {0, ""};

	open_rank(0, 2);
	fake->last_error = "no route to host";
	fake->fail = "ncclCommInitRankConfig";
	ck_assert_int_eq(connect_within(30, &error), DDP_ERR_ENGINE);
	UNIT_SAYS("text", error.text, "communicator of 2 ranks",
		  "no route to host. Set NCCL_DEBUG=INFO");
	close_lost();
}

/* --- Collectives ------------------------------------------------------------------------- */

static const struct {
	const char *name;
	enum ddp_type type;
	ncclDataType_t nccl;
} types[] = {
	{"f32", DDP_F32, ncclFloat32},	  {"f64", DDP_F64, ncclFloat64},
	{"bf16", DDP_BF16, ncclBfloat16}, {"f16", DDP_F16, ncclFloat16},
	{"i32", DDP_I32, ncclInt32},	  {"i64", DDP_I64, ncclInt64},
	{"u8", DDP_U8, ncclUint8},
};

TEST_ROWS(test_types, types)
{
	static const ncclRedOp_t ops[] = {
		[DDP_SUM] = ncclSum, [DDP_MAX] = ncclMax, [DDP_MIN] = ncclMin};
	static double data[100];
	struct fake_nccl_call call;
	int stream;

	open_connected(2);
	for (enum ddp_op op = DDP_SUM; op < DDP_OP_COUNT; op++) {
		ck_assert_int_eq(ENGINE->all_reduce(device, data, data, 100, types[_i].type, op,
						    &stream, NULL),
				 0);
		call = fake_nccl_last();
		unit_text(types[_i].name, "call", call.name, "ncclAllReduce");
		unit_number(types[_i].name, "count", (int64_t)call.count, 100);
		unit_number(types[_i].name, "type", call.type, (int64_t)types[_i].nccl);
		unit_number(types[_i].name, "operation", call.op, (int64_t)ops[op]);
		ck_assert_ptr_eq(call.stream, &stream);
	}
	close_clean();
}

TEST(test_bytes)
{
	char data[200] = "x";
	struct fake_nccl_call call;
	void *own;

	open_connected(2);
	ck_assert_int_eq(ENGINE->broadcast(device, data, 100, 1, NULL, NULL), 0);
	call = fake_nccl_last();
	own = call.stream;
	ck_assert_str_eq(call.name, "ncclBroadcast");
	ck_assert_uint_eq(call.count, 100);
	ck_assert_int_eq(call.type, (int)ncclUint8);
	ck_assert_int_eq(call.root, 1);
	ck_assert_ptr_nonnull(own);
	ck_assert_int_eq(ENGINE->all_gather(device, data, data, 100, data, NULL), 0);
	call = fake_nccl_last();
	ck_assert_str_eq(call.name, "ncclAllGather");
	ck_assert_uint_eq(call.count, 100);
	ck_assert_int_eq(call.type, (int)ncclUint8);
	ck_assert_ptr_eq(call.stream, data);
	close_clean();
}

TEST(test_arguments)
{
	struct ddp_error error = {0, ""};
	char data[8] = "";
	int before;

	open_rank(0, 2);
	ck_assert_int_eq(sum(1, &error), DDP_ERR_STATE);
	ck_assert_int_eq(connect_within(30, NULL), 0);
	before = fake_nccl_count("ncclAllReduce");
	ck_assert_int_eq(sum(0, NULL), 0);
	ck_assert_int_eq(ENGINE->broadcast(device, data, 0, 1, NULL, NULL), 0);
	ck_assert_int_eq(ENGINE->all_gather(device, data, data, 0, NULL, NULL), 0);
	ck_assert_int_eq(ENGINE->broadcast(device, data, 1, 2, NULL, NULL), DDP_ERR_ARGUMENT);
	ck_assert_int_eq(ENGINE->broadcast(device, data, 1, -1, NULL, NULL), DDP_ERR_ARGUMENT);
	ck_assert_int_eq(ENGINE->all_reduce(device, data, data, 1, DDP_TYPE_COUNT, DDP_SUM, NULL,
					    NULL),
			 DDP_ERR_ARGUMENT);
	ck_assert_int_eq(ENGINE->all_reduce(device, data, data, 1, DDP_F32, DDP_OP_COUNT, NULL,
					    NULL),
			 DDP_ERR_ARGUMENT);
	ck_assert_int_eq(ENGINE->free(device, data, &freed, NULL), DDP_ERR_ARGUMENT);
	ck_assert_int_eq(ENGINE->free(device, NULL, &freed, NULL), 0);
	ck_assert_int_eq(fake_nccl_count("ncclAllReduce"), before);
	ck_assert_int_eq(ENGINE->health(device, NULL), 0);
	close_clean();
}

/*
 * If more operations are in flight than the engine tracks, errors still name the oldest operation.
 */
TEST(test_more_operations_than_tracked)
{
	struct ddp_error error = {0, ""};

	open_connected(1);
	set(&fake->busy, true);
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(sum(10, NULL), 0);
	set(&fake->busy, false);
	ck_assert_int_eq(wait_within(30, NULL), 0);
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(sum(10, NULL), 0);
	ck_assert_int_eq(wait_within(30, NULL), 0);
	set(&fake->busy, true);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(sum(10, NULL), 0);
	ck_assert_int_eq(wait_within(0.02, &error), DDP_ERR_TIMEOUT);
	close_lost();
}

/* --- Waiting ----------------------------------------------------------------------------- */

TEST(test_wait_times_out)
{
	struct ddp_error error = {0, ""};

	open_connected(2);
	ck_assert_int_eq(wait_within(30, NULL), 0);
	set(&fake->busy, true);
	ck_assert_int_eq(sum(100, NULL), 0);
	ck_assert_int_eq(wait_within(0.05, &error), DDP_ERR_TIMEOUT);
	UNIT_SAYS("text", error.text, "rank 0, device 0", "all-reduce 1 of 100 F32",
		  "among 2 ranks", "limit 0.05 s");
	/* After the timeout the engine accepts no more operations. */
	ck_assert_int_eq(sum(100, NULL), DDP_ERR_TIMEOUT);
	ck_assert_int_eq(ENGINE->health(device, NULL), DDP_ERR_TIMEOUT);
	ck_assert(ENGINE->abort(device, 30));
	ck_assert_int_eq(fake_nccl_count("ncclCommAbort"), 1);
	ck_assert_int_eq(fake_nccl_count("cudaStreamDestroy"), 0);
	ENGINE->close(device);
	device = NULL;
	/* cudaStreamDestroy() might wait for a hanging kernel. */
	ck_assert_int_eq(fake_nccl_count("cudaStreamDestroy"), 0);
	ck_assert_int_eq(fake_nccl_count("ncclCommDestroy"), 0);
	await_end_of_threads();
}

TEST(test_wait_ended_by_owner)
{
	char why[] = "rank 1 on n2 is gone";
	struct ddp_watch watch = ddp_watch_start(30, end_wait, why);
	struct ddp_error error = {0, ""};

	open_connected(2);
	set(&fake->busy, true);
	ck_assert_int_eq(ENGINE->wait(device, NULL, NULL, 0, &watch, &error), DDP_ERR_ABORTED);
	ck_assert_str_eq(error.text, why);
	ck_assert(ENGINE->abort(device, 30));
	close_lost();
}

TEST(test_capture)
{
	int records;

	open_connected(2);
	fake->capturing = true;
	records = fake_nccl_count("cudaEventRecord");
	ck_assert_int_eq(sum(100, NULL), 0);
	ck_assert_int_eq(wait_within(30, NULL), DDP_ERR_STATE);
	/* an event recorded now would become part of the capture */
	ck_assert_int_eq(fake_nccl_count("cudaEventRecord"), records);
	fake->capturing = false;
	ck_assert_int_eq(wait_within(30, NULL), 0);
	close_clean();
}

/* The watchdog cannot observe a captured collective, so the message must not deny it. */
TEST(test_captured_is_late)
{
	struct ddp_error error = {0, ""};

	open_connected(2);
	fake->capturing = true;
	ck_assert_int_eq(sum(100, NULL), 0);
	fake->capturing = false;
	set(&fake->busy, true);
	ck_assert_int_eq(wait_within(0.01, &error), DDP_ERR_TIMEOUT);
	unit_has("captured", error.text, "captured collective|a rank did not launch its graph");
	ck_assert(ENGINE->abort(device, 30));
	close_lost();
}

static const struct {
	const char *name;
	ncclResult_t result;
	int status;
	const char *piece;
} async[] = {
	{"remote", ncclRemoteError, DDP_ERR_PEER, "remote: peer closed"},
	{"system", ncclSystemError, DDP_ERR_ENGINE, "other: peer closed"},
	{"cuda", ncclUnhandledCudaError, DDP_ERR_ENGINE, "communicator of 2 ranks failed"},
	{"in progress", ncclInProgress, 0, ""},
};

TEST_ROWS(test_async_error, async)
{
	struct ddp_error error = {0, ""}, health = {0, ""};

	open_connected(2);
	fake->last_error = "peer closed";
	__atomic_store_n(&fake->async, (int)async[_i].result, __ATOMIC_SEQ_CST);
	/*
	 * The error counts even if the event has completed: the kernels of a failed communicator
	 * end early.
	 */
	unit_number(async[_i].name, "wait", wait_within(30, &error), async[_i].status);
	UNIT_SAYS(async[_i].name, error.text, async[_i].piece);
	unit_number(async[_i].name, "health", ENGINE->health(device, &health), async[_i].status);
	ck_assert_str_eq(health.text, error.text);
	unit_number(async[_i].name, "sum", sum(1, NULL), async[_i].status);
	ENGINE->close(device);
	device = NULL;
	unit_number(async[_i].name, "aborts", fake_nccl_count("ncclCommAbort"),
		    async[_i].status != 0);
	await_end_of_threads();
}

/* The watchdog detects a fault even if no thread waits. */
TEST(test_watchdog)
{
	struct ddp_error error = {0, ""};

	open_connected(2);
	set(&fake->busy, true);
	ck_assert_int_eq(sum(7, NULL), 0);
	set(&fake->faulted, true);
	while (ENGINE->health(device, &error) == 0)
		sleep_5_ms();
	ck_assert_int_eq(error.status, DDP_ERR_ENGINE);
	UNIT_SAYS("text", error.text, "all-reduce 1 of 7 F32", "cudaErrorIllegalAddress");
	close_lost();
}

static _Atomic uint64_t ahead;	  /* nanoseconds by which the clock is ahead */
static _Atomic unsigned readings; /* of the clock */

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
	int result = __real_clock_gettime(clock, time);

	time->tv_sec += (time_t)(atomic_load(&ahead) / 1000000000);
	atomic_fetch_add(&readings, 1);
	return result;
}

/* Waits until the watchdog has checked the call several times. */
static void await_readings(void)
{
	unsigned before = atomic_load(&readings);

	while (atomic_load(&readings) - before < 100)
		sleep_5_ms();
}

static void *suspend_in_call(void *argument)
{
	while (fake_nccl_count("ncclAllReduce") == 0)
		sleep_5_ms();
	await_readings();
	atomic_fetch_add(&ahead, UINT64_C(1000000000000));
	await_readings();
	fake_nccl_release();
	return argument;
}

/* The job is suspended for 1000 s while a call enqueues. The limit is not over. */
TEST(test_enqueue_is_suspended)
{
	struct ddp_error error = {0, ""};
	pthread_t thread;

	open_rank(0, 1);
	ck_assert_int_eq(connect_within(60, &error), 0);
	fake->hang = "ncclAllReduce";
	ck_assert_int_eq(pthread_create(&thread, NULL, suspend_in_call, NULL), 0);
	ck_assert_msg(sum(9, &error) == 0, "%s", error.text);
	pthread_join(thread, NULL);
	ck_assert_int_eq(fake_nccl_count("ncclCommAbort"), 0);
	close_lost();
}

/* The watchdog ends a call that hangs while it enqueues. */
TEST(test_enqueue_hangs)
{
	struct ddp_error error = {0, ""};

	open_rank(0, 1);
	ck_assert_int_eq(connect_within(4, &error), 0);
	fake->hang = "ncclAllReduce";
	ck_assert_int_eq(sum(9, &error), DDP_ERR_TIMEOUT);
	UNIT_SAYS("text", error.text, "all-reduce 1 of 9 F32", "could not be enqueued", "in 4 s,");
	ck_assert(ENGINE->abort(device, 30));
	ck_assert_int_eq(fake_nccl_count("ncclCommAbort"), 1);
	close_lost();
}

static const char *const enqueue_failures[] = {"ncclAllReduce", "cudaEventRecord"};

TEST_ROWS(test_enqueue_fails, enqueue_failures)
{
	struct ddp_error error = {0, ""};

	open_connected(2);
	fake->fail = enqueue_failures[_i];
	ck_assert_int_lt(sum(9, &error), 0);
	UNIT_SAYS(enqueue_failures[_i], error.text, "all-reduce");
	ck_assert_int_eq(ENGINE->health(device, NULL), error.status);
	close_lost();
}

/* --- abort and close --------------------------------------------------------------------- */

TEST(test_abort)
{
	open_connected(2);
	ck_assert(ENGINE->abort(device, 30));
	ck_assert(ENGINE->abort(device, 30));
	ck_assert_int_eq(fake_nccl_count("ncclCommAbort"), 1);
	ck_assert_int_eq(sum(1, NULL), DDP_ERR_ABORTED);
	ck_assert_int_eq(wait_within(30, NULL), DDP_ERR_ABORTED);
	ENGINE->close(device);
	device = NULL;
	ck_assert_int_eq(fake_nccl_count("ncclCommDestroy"), 0);
	await_end_of_threads();
}

TEST(test_abort_hangs)
{
	open_connected(2);
	fake->hang = "ncclCommAbort";
	ck_assert(!ENGINE->abort(device, 0.05));
	ck_assert(!ENGINE->abort(device, 0.01));
	ck_assert_int_eq(fake_nccl_count("ncclCommAbort"), 1);
	fake_nccl_release();
	ck_assert(ENGINE->abort(device, 30));
	close_lost();
}

TEST(test_close_after_broken_abort)
{
	open_connected(2);
	fake->hang = "ncclCommAbort";
	ck_assert(!ENGINE->abort(device, 0.01));
	/* close() waits a limited time for the abort, and then does not free [device]. */
	leaked = device;
	ENGINE->close(device);
	device = NULL;
	fake_nccl_release();
	await_end_of_threads();
}

TEST(test_close_unconnected)
{
	ENGINE->close(NULL);
	open_rank(0, 1);
	close_clean();
}

/* --- Memory ------------------------------------------------------------------------------ */

TEST(test_memory)
{
	const char *const calls[8] = {"ncclMemAlloc", "ncclMemFree"};
	const char *const end[8] = {"ncclCommFinalize", "ncclCommDestroy", "ncclMemFree"};
	void *memory, *other;

	open_connected(2);
	ck_assert_int_eq(ENGINE->alloc(device, 5000, &memory, NULL), 0);
	memset(memory, 1, 5000);
	ck_assert_int_eq(ENGINE->alloc(device, 1, &other, NULL), 0);
	ck_assert_int_eq(ENGINE->free(device, memory, &freed, NULL), 0);
	ck_assert_uint_eq(freed, 5000);
	ck_assert_int_eq(ENGINE->free(device, memory, &freed, NULL), DDP_ERR_ARGUMENT);
	ck_assert(fake_nccl_called(calls));
	close_clean();
	ck_assert(fake_nccl_called(end));
}

/*
 * If a collective was captured, memory is freed only after the communicator was destroyed, because
 * the graph may use the memory.
 */
TEST(test_memory_captured)
{
	const char *const end[8] = {"ncclCommFinalize", "ncclCommDestroy", "ncclMemFree"};
	void *memory;

	open_connected(2);
	ck_assert_int_eq(ENGINE->alloc(device, 5000, &memory, NULL), 0);
	fake->capturing = true;
	ck_assert_int_eq(sum(100, NULL), 0);
	fake->capturing = false;
	ck_assert_int_eq(ENGINE->free(device, memory, &freed, NULL), 0);
	ck_assert_uint_eq(freed, 0); /* it still counts against DDP_SHARE */
	ck_assert_int_eq(ENGINE->free(device, memory, &freed, NULL), DDP_ERR_ARGUMENT);
	ck_assert_int_eq(fake_nccl_count("ncclMemFree"), 0);
	close_clean();
	ck_assert(fake_nccl_called(end));
}

TEST_LOOP(test_alloc_fails, 0, 2)
{
	struct ddp_error error = {0, ""};
	void *memory = &error;

	open_connected(2);
	fake->fail = _i == 0 ? "ncclMemAlloc" : "cudaMemsetAsync";
	ck_assert_int_eq(ENGINE->alloc(device, 5000, &memory, &error), DDP_ERR_MEMORY);
	ck_assert_ptr_null(memory);
	UNIT_SAYS("text", error.text, "rank 0, device 0",
		  _i == 0 ? "allocating 5000 bytes" : "clearing 5000 bytes");
	fake->fail = NULL;
	ck_assert_int_eq(ENGINE->alloc(device, 5000, &memory, &error), 0);
	close_clean();
}

TEST(test_free_hangs)
{
	struct ddp_error error = {0, ""};
	void *memory;

	open_connected(2);
	ck_assert_int_eq(ENGINE->alloc(device, 5000, &memory, &error), 0);
	fake->hang = "ncclMemFree";
	ck_assert_int_eq(ENGINE->free(device, memory, &freed, &error), DDP_ERR_TIMEOUT);
	UNIT_SAYS("text", error.text, "did not free 5000 bytes");
	ck_assert_int_eq(sum(1, NULL), DDP_ERR_TIMEOUT);
	ck_assert(ENGINE->abort(device, 30));
	close_lost();
}

/* --- The real module --------------------------------------------------------------------- */

/* Without a visible device, the error is "no CUDA driver" or "no GPU is visible". */
TEST(test_real_module)
{
	const struct ddp_device_engine *engine;
	struct ddp_error error = {0, ""};

	setenv("DDP_MODULES", MODULES, 0);
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	engine = ddp_module_open("nccl", "device", DDP_DEVICE_VERSION, sizeof(*engine), &quiet,
				 &error);
	ck_assert_msg(engine != NULL, "%s", error.text);
	ck_assert_int_eq(engine->open(&device, &gpu, 0, 1, 0, &quiet, &error), DDP_ERR_UNSUPPORTED);
	UNIT_SAYS("text", error.text, "engine nccl: ", "no ");
	ck_assert_ptr_null(device);
	await_end_of_threads();
}

static void use(TCase *tcase)
{
	tcase_add_checked_fixture(tcase, setup, NULL);
}

UNIT_MAIN("device", use)
#else

int main(void)
{
	fputs("engine nccl is not tested: not in this build\n", stderr);
	return unit_run("device", NULL);
}
#endif /* HAVE_NCCL */
