/* SPDX-License-Identifier: Apache-2.0 */
/* patterns.c - table of output lines that show how a rank ended, and functions that search it */
#include "config.h"

#include "patterns.h"

#include <string.h>

#include "contract.h"

#define SLURM "Slurm 20.11 to 26.05"
#define GLOO "gloo of PyTorch 2.4"

/* The table of patterns. For a line, the first matching row with the line's source is used. */
const struct pattern patterns[] = {
	{PATTERN_SRUN, LINE_NO_FILE, "srun: error: Could not open std%",
	 "srun: error: Could not open stdout file: Permission denied", SLURM},
	{PATTERN_SRUN, LINE_NODE_LOST, "srun: error: Node failure on %",
	 "srun: error: Node failure on n2", SLURM},
	{PATTERN_SRUN, LINE_LAUNCH_FAILED, "srun: error: Task launch for % failed on node %",
	 "srun: error: Task launch for StepId=4.0 failed on node n5: Communication connection failure",
	 SLURM},
	{PATTERN_SRUN, LINE_SLURMSTEPD_LOST, "srun: error: %borting, % node %",
	 "srun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on node 2",
	 SLURM},
	{PATTERN_SRUN, LINE_SLURMSTEPD_LOST, "srun: error: %borting, % node %",
	 "srun: error: Aborting, step missing and io error on node 1", SLURM},
	{PATTERN_SRUN, LINE_TASKS, "srun: error: %: task%: %",
	 "srun: error: n1: tasks 0-1,4: Exited with exit code 3", SLURM},
	{PATTERN_SRUN, LINE_ERROR, "srun: error: %",
	 "srun: error: Unable to create step for job 5: Job/step already completing or completed",
	 SLURM},
	{PATTERN_SRUN, LINE_INTERRUPTED, "srun: sending Ctrl-C to StepId=%",
	 "srun: sending Ctrl-C to StepId=5.0", SLURM},
	{PATTERN_SRUN, LINE_FORCED, "srun: forcing job termination",
	 "srun: forcing job termination", SLURM},
	{PATTERN_SRUN, LINE_FIRST_EXITED, "srun: First task exited %",
	 "srun: First task exited 60s ago", SLURM},
	{PATTERN_SRUN, LINE_LATE, "srun: StepId=% task%: running%",
	 "srun: StepId=5.0 tasks 1,3: running", SLURM},
	{PATTERN_SRUN, LINE_ENDED, "srun: StepId=% task%: exited",
	 "srun: StepId=5.0 tasks 1,3: exited", SLURM},
	{PATTERN_SRUN, LINE_NOT_LAUNCHED, "srun: StepId=% task%: unknown",
	 "srun: StepId=5.0 task 2: unknown", SLURM},
	{PATTERN_SRUN, LINE_ABORTED, "srun: Job step aborted: %",
	 "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", SLURM},
	{PATTERN_SRUN, LINE_ENDING, "srun: %Terminating StepId=%",
	 "srun: launch/slurm: _step_signal: Terminating StepId=4.0", SLURM},
	{PATTERN_SRUN, LINE_FATAL, "srun: fatal: %",
	 "srun: fatal: --ntasks-per-node is mutually exclusive with --ntasks-per-gpu", SLURM},
	{PATTERN_SRUN, LINE_LAUNCHING, "srun: launching %",
	 "srun: launching StepId=2.0 on host n3, 1 tasks: 0", SLURM},
	{PATTERN_SRUN, LINE_TIME_LIMIT, "%error: *** STEP % CANCELLED AT % DUE TO TIME LIMIT%",
	 "slurmstepd-n1: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-23T14:19:07 DUE TO TIME LIMIT ***",
	 SLURM},
	{PATTERN_SRUN, LINE_PREEMPTED, "%error: *** STEP % CANCELLED AT % DUE TO PREEMPTION%",
	 "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-23T14:19:07 DUE TO PREEMPTION ***",
	 SLURM},
	{PATTERN_SRUN, LINE_CANCELLED, "%error: *** STEP % CANCELLED AT %",
	 "[2026-11-23T14:19:07.123] error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-23T14:19:07 ***",
	 "Slurm 25.05 to 26.05; before, the line begins with \"slurmstepd: \""},
	{PATTERN_SRUN, LINE_USAGE_ERROR, "slurmstepd-%: error: ddp: %" DDP_USAGE_ERROR "%",
	 "slurmstepd-n1: error: ddp: usage error: port 80 is for root only. Unset MASTER_PORT, and a free port is chosen.",
	 "the plugin, Slurm to 24.11"},
	{PATTERN_SRUN, LINE_USAGE_ERROR, "[%] error: ddp: %" DDP_USAGE_ERROR "%",
	 "[2026-11-29T07:18:34.760] error: ddp: n2: usage error: port 80 is for root only. Unset MASTER_PORT, and a free port is chosen.",
	 "the plugin, Slurm 25.05 to 26.05"},
	{PATTERN_SRUN, LINE_USAGE_ERROR, "ddp-exec%:% " DDP_USAGE_ERROR "%",
	 "ddp-exec: usage error: MASTER_PORT=x of your environment is not a port from 1 to 65535. Unset it, and a port is chosen.",
	 "ddp-exec"},
	{PATTERN_SRUN, LINE_STEP_REFUSED, "slurmstepd%-%: error: ddp: %",
	 "slurmstepd-n1: error: ddp: port 29500 of n1, where rank 0 runs, is in use by a process of user 0. Unset MASTER_PORT, and a free port is chosen.",
	 "the plugin, Slurm to 24.11"},
	{PATTERN_SRUN, LINE_STEP_REFUSED, "[%] error: ddp: %: %",
	 "[2026-11-29T07:18:34.760] error: ddp: n2: port 29500 of n2, where rank 0 runs, is in use by a process of user 0. Unset MASTER_PORT, and a free port is chosen.",
	 "the plugin, Slurm 25.05 to 26.05"},
	{PATTERN_SRUN, LINE_NOT_STARTED, "%error: execve(): %",
	 "slurmstepd-n1: error: execve(): train: No such file or directory", SLURM},
	{PATTERN_SRUN, LINE_NOT_STARTED, "ddp-exec: %: cannot start %",
	 "ddp-exec: n1: cannot start train: No such file or directory", "ddp-exec"},

	{PATTERN_END, LINE_EXITED, "Exited with exit code %", "Exited with exit code 3", SLURM},
	{PATTERN_END, LINE_OOM, "Out Of Memory%", "Out Of Memory", SLURM},

	{PATTERN_OUTPUT, LINE_TRACEBACK, "Traceback (most recent call last)%",
	 "Traceback (most recent call last):", "Python 3"},
	{PATTERN_OUTPUT, LINE_TRACEBACK, "Original Traceback (most recent call last)%",
	 "Original Traceback (most recent call last):",
	 "PyTorch 2.15, about an exception of a DataLoader worker"},
	{PATTERN_OUTPUT, LINE_TRACEBACK, "╭%Traceback (most recent call last)%",
	 "╭─────────────── Traceback (most recent call last) ────────────────╮",
	 "rich.traceback.install()"},
	{PATTERN_OUTPUT, LINE_GROUP, "%Exception Group Traceback (most recent call last)%",
	 "  + Exception Group Traceback (most recent call last):", "Python 3.11"},
	{PATTERN_OUTPUT, LINE_IGNORED, "Exception ignored %",
	 "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f0c5a0b6ca0>",
	 "Python 3, about a destructor, and from 3.10 on about an exit handler"},
	{PATTERN_OUTPUT, LINE_IGNORED, "Error in atexit._run_exitfuncs:%",
	 "Error in atexit._run_exitfuncs:", "Python 3.6 to 3.9"},
	{PATTERN_OUTPUT, LINE_THREAD, "Exception in thread %",
	 "Exception in thread Thread-1 (_pin_memory_loop):", "Python 3"},
	{PATTERN_OUTPUT, LINE_CHAINED, "During handling of the above exception, another%",
	 "During handling of the above exception, another exception occurred:", "Python 3"},
	{PATTERN_OUTPUT, LINE_CHAINED, "The above exception was the direct cause %",
	 "The above exception was the direct cause of the following exception:", "Python 3"},
	{PATTERN_OUTPUT, LINE_CPP, "  what():  %", "  what():  no such device", "libstdc++"},
	{PATTERN_OUTPUT, LINE_WARNING, "ddp[%]: warning: %",
	 "ddp[0@n1]: warning: rank 2 on n3 is slow: it spent 9.1 s of the last 10.0 s between "
	 "collectives, and the median of the other ranks is 0.2 s (since 2026-11-27 21:00:00)",
	 "libddp"},
	{PATTERN_OUTPUT, LINE_LIBDDP, "ddp[%]: %",
	 "ddp[0@n1]: rank 3 on n2 did not arrive in 30 s (3 of 4 did)", "libddp"},
	{PATTERN_OUTPUT, LINE_SLURM, "srun: %", "srun: error: n1: task 0: Killed", SLURM},
	{PATTERN_OUTPUT, LINE_SLURM, "slurmstepd%",
	 "slurmstepd-n1: error: execve(): x: Not a directory", "Slurm 20.11 to 24.11"},
	{PATTERN_OUTPUT, LINE_SLURM, "ddp-exec: %: cannot start %",
	 "ddp-exec: n1: cannot start x: Not a directory", "ddp-exec"},
	{PATTERN_OUTPUT, LINE_SLURM, "salloc: %", "salloc: Granted job allocation 5", SLURM},
	{PATTERN_OUTPUT, LINE_SLURM, "[%-%-%T%:%.%] error: execve(): %",
	 "[2026-11-24T12:23:54.145] error: execve(): x: No such file", "Slurm 25.05 to 26.05"},
	{PATTERN_OUTPUT, LINE_SLURM, "[%-%-%T%:%.%] error: *** STEP %",
	 "[2026-11-24T12:23:54.145] error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-24T12:23:54 ***",
	 "Slurm 25.05 to 26.05"},

	{PATTERN_MESSAGE, LINE_STOPPED, "stopped: %", "stopped: SIGTERM; checkpoint of step 12",
	 "libddp, ddp-train"},
	{PATTERN_MESSAGE, LINE_PEER, "%Connection closed by peer%",
	 "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:3456",
	 GLOO},
	{PATTERN_MESSAGE, LINE_PEER, "%closed by remote peer%",
	 "socketProgress: Connection closed by remote peer n2<42918>", "NCCL 2.21"},
	{PATTERN_MESSAGE, LINE_PEER, "%ailed to recv, got 0 bytes%",
	 "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. "
	 "Did the remote server shutdown or crash?",
	 "PyTorch 2.8; 2.7: \"store->get('0') got error: failed to recv\""},
	{PATTERN_MESSAGE, LINE_PEER, "%remote process exited or there was a network error%",
	 "NCCL error: remote process exited or there was a network error, NCCL version 2.20.5",
	 "NCCL 2.20"},
	{PATTERN_MESSAGE, LINE_PEER, "%Application timeout caused pair closure%",
	 "RuntimeError: Application timeout caused pair closure", GLOO},
	{PATTERN_MESSAGE, LINE_PEER, "%Timed out waiting%",
	 "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv "
	 "operation to complete",
	 GLOO},
	{PATTERN_MESSAGE, LINE_PEER, "%collective operation timeout%",
	 "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17) ran for 10014 milliseconds before timing out.",
	 "PyTorch 2.4"},
	{PATTERN_MESSAGE, LINE_PEER, "%Socket Timeout%", "RuntimeError: Socket Timeout",
	 "PyTorch 2.1"},
	{PATTERN_MESSAGE, LINE_CONNECTION, "%Connection reset by peer%",
	 "ConnectionResetError: [Errno 104] Connection reset by peer",
	 "glibc's strerror(), in messages of gloo, NCCL, PyTorch and Python"},
	{PATTERN_MESSAGE, LINE_CONNECTION, "%Connection refused%",
	 "ConnectionRefusedError: [Errno 111] Connection refused",
	 "glibc's strerror(), in messages of gloo, NCCL, PyTorch and Python"},
	{PATTERN_MESSAGE, LINE_CONNECTION, "%Broken pipe%",
	 "BrokenPipeError: [Errno 32] Broken pipe",
	 "glibc's strerror(), in messages of gloo, NCCL, PyTorch and Python"},
	{PATTERN_MESSAGE, LINE_CONNECTION, "%timed out after%",
	 "subprocess.TimeoutExpired: Command 'sleep' timed out after 1 seconds",
	 "Python; PyTorch 2.0 to 2.7, in messages that begin with \"torch.distributed.\""},
	/* When Slurm ends a step, its SIGTERM also reaches the workers of a DataLoader. */
	{PATTERN_MESSAGE, LINE_PEER, "%DataLoader worker (pid %) is killed by signal: Terminated%",
	 "RuntimeError: DataLoader worker (pid 1152) is killed by signal: Terminated. ",
	 "PyTorch 2.15"},
};
const size_t patterns_count = sizeof(patterns) / sizeof(patterns[0]);

bool pattern_match(const char *text, const char *line, size_t length,
		   struct pattern_part part[PATTERN_PARTS])
{
	const char *at = line, *end = line + length;
	size_t piece = strcspn(text, "%");

	if (length < piece || memcmp(line, text, piece) != 0)
		return false;
	for (int i = 1; text[piece]; i++) {
		const char *begin = at += piece;

		text += piece + 1;
		piece = strcspn(text, "%");
		at = piece ? memmem(begin, (size_t)(end - begin), text, piece) : end;
		if (!at)
			return false;
		part[i] = (struct pattern_part){begin, (size_t)(at - begin)};
	}
	return at + piece == end;
}

enum pattern_meaning pattern_find(enum pattern_source source, const char *line, size_t length,
				  struct pattern_part part[PATTERN_PARTS])
{
	for (const struct pattern *row = patterns; row < patterns + patterns_count; row++)
		if (row->source == source && pattern_match(row->text, line, length, part))
			return row->meaning;
	return LINE_OTHER;
}

/* Whether the message comes from a library that connects the ranks, or from PyTorch's store. */
static bool is_of_library(const char *message)
{
	static const char *const words[] = {
		"gloo",	    "pair.cc",		 "NCCL",
		"nccl",	    "torch.distributed", "c10d",
		"TCPStore", "store->",		 "application crash on rank"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(message, words[i]))
			return true;
	return false;
}

enum pattern_meaning pattern_message(const char *message)
{
	struct pattern_part part[PATTERN_PARTS];
	enum pattern_meaning meaning =
		pattern_find(PATTERN_MESSAGE, message, strlen(message), part);

	return meaning == LINE_CONNECTION && is_of_library(message) ? LINE_PEER : meaning;
}

const char *facts_how_name(enum facts_how how)
{
	static const char *const names[] = {
#define FACTS_HOW(id, name, before, after) name,
		FACTS_HOWS(FACTS_HOW)
#undef FACTS_HOW
	};

	return names[how];
}
