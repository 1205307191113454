/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preflight.c - the GPU tests of ddp-info --preflight on the GPUs of this machine: no test fails,
 * and all products and sums are exact
 *
 * For sums between nodes, processes stand for nodes. Either they share the first GPU, or different
 * NCCL_HOSTIDs make NCCL treat them as hosts.
 */
#include "../../runtime/info/preflight-gpu.c"

#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"
#include "tap.h"

#define LIMIT 20.0 /* timeout of a sum in seconds */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int devices, copies, products, links;

/* Written by the processes that compute a sum. */
static struct {
	int rates, bad, untested;
} * sums;

void info_preflight_say(const char *event, const char *test, const char *kind, double value,
			const char *unit, const char *format, ...)
{
	bool is_rate = strcmp(event, "rate") == 0;
	bool is_bad = strcmp(event, "failed") == 0 || strcmp(event, "silent") == 0;
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (strcmp(test, "GPU sum") == 0 || strcmp(test, "GPU pair") == 0) {
		printf("# %s: %s %s %.6g %s %s\n", test, event, kind, value, unit, text);
		fflush(stdout);
		__atomic_add_fetch(&sums->rates, is_rate && value > 0, __ATOMIC_SEQ_CST);
		__atomic_add_fetch(&sums->bad, is_bad, __ATOMIC_SEQ_CST);
		__atomic_add_fetch(&sums->untested, strcmp(event, "untested") == 0,
				   __ATOMIC_SEQ_CST);
		return;
	}
	pthread_mutex_lock(&mutex);
	ok(!is_bad, "%s: %s %s %.6g %s %s", test, event, kind, value, unit, text);
	if (strcmp(test, "devices") == 0 && strcmp(event, "config") == 0)
		devices = (int)value;
	copies += is_rate && strcmp(test, "GPU copy") == 0 && value > 1;
	products += is_rate && strcmp(test, "GPU product") == 0 && value > 1;
	links += is_rate && strcmp(test, "GPU PCIe") == 0;
	pthread_mutex_unlock(&mutex);
}

/*
 * Runs a sum over [nodes] processes with [gpus] GPUs each. If [hosts], NCCL treats the processes as
 * hosts.
 */
static void test_sum(const char *test, int nodes, int gpus, bool hosts)
{
	char directory[] = "/tmp/ddp-preflight-XXXXXX", host[16];
	struct ddp_watch end = ddp_watch_start(2 * LIMIT, NULL, NULL);

	memset(sums, 0, sizeof(*sums));
	if (!ok(mkdtemp(directory) != NULL, "a directory for %s", test))
		return;
	setenv(DDP_NAME(DDP_JOB), strrchr(directory, '/') + 1, 1);
	for (int node = 0; node < nodes; node++) {
		if (fork() != 0)
			continue;
		snprintf(host, sizeof(host), "node-%d", node);
		if (hosts) {
			setenv("NCCL_HOSTID", host, 1);
			setenv("NCCL_IB_DISABLE", "1", 1);
			setenv("NCCL_SOCKET_IFNAME", "lo", 1);
		}
		info_preflight_gpu_sum(test, directory, node, nodes, &gpus, LIMIT, &end);
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
	if (sums->untested > 0 && sums->bad == 0)
		ok(true, "%s of %d x %d GPUs # SKIP libddp has no engine for them", test, nodes,
		   gpus);
	else
		ok(sums->rates == 1 && sums->bad == 0, "%s of %d x %d GPUs%s: exact", test, nodes,
		   gpus, hosts ? ", as hosts of NCCL" : "");
}

/*
 * Returns the number of GPUs, which a child process counts: this process must not use the driver
 * before it forks.
 */
static int count_gpus(void)
{
	pid_t pid = fork();
	int count = 0, status = 0;

	if (pid == 0)
		_exit(info_driver_load(&driver) && driver.init(0) == 0 && driver.count(&count) == 0
			      ? count
			      : 0);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

int main(void)
{
	int count = count_gpus();

	sums = mmap(NULL, sizeof(*sums), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sums == MAP_FAILED)
		return EXIT_FAILURE;
	if (count > 1)
		test_sum("GPU sum", 1, count, false);
	test_sum("GPU pair", 2, 1, false);
	test_sum("GPU pair", 2, 1, true);
	info_preflight_gpus();
	ok(devices > 0 && copies == devices, "each of %d GPUs copies", devices);
	ok(products == devices, "each GPU computes in bf16");
	if (links == 0)
		printf("# NVML does not say which PCIe link a GPU has\n");
	return tap_end();
}
