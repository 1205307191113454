/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop.c - on a signal, finish the current step, write a checkpoint and stop
 *
 * Signals are blocked in all threads, and one thread waits for them. There is no signal handler,
 * because a handler in a computing thread would corrupt memory: kernels of oneDNN (2.6, f32) use
 * the stack pointer for data, so the handler's frame would overwrite that data.
 */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/watch.h"
#include "run.h"

/* signals that stop a training */
static const struct {
	int number;
	const char *name;
} signals[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR1, "SIGUSR1"}, {SIGHUP, "SIGHUP"}};

enum { SIGNALS = sizeof(signals) / sizeof(signals[0]) };

static atomic_int stop_signal;	/* the first signal that was received, or 0 */
static atomic_bool stop_polite; /* whether to finish the step before stopping */
static sigset_t stop_signals;

/*
 * The ranks exchange their reasons for a stop as numbers: 0 for none, 1 for the job's time limit,
 * and STOP_SIGNAL + n for signal n.
 */
enum { STOP_SIGNAL = 1000 };

/*
 * If a second SIGINT is received within this time, it counts as the same key stroke, because the
 * terminal and the launcher can both send a signal for one key stroke.
 */
#define KEY_REPEAT_NS 300000000u

/* Ends the program by the signal's default action. */
static void end_by_signal(int number)
{
	sigset_t one;

	sigemptyset(&one);
	sigaddset(&one, number);
	signal(number, SIG_DFL);
	pthread_sigmask(SIG_UNBLOCK, &one, NULL);
	raise(number);
}

static void *wait_for_signals(void *unused)
{
	uint64_t interrupted = 0, now;
	int number, none;

	(void)unused;
	for (;;) {
		if (sigwait(&stop_signals, &number) != 0)
			continue;
		now = ddp_now();
		if (!atomic_load(&stop_polite) ||
		    (number == SIGINT && interrupted && now - interrupted > KEY_REPEAT_NS))
			end_by_signal(number);
		if (number == SIGINT && !interrupted)
			interrupted = now;
		none = 0;
		atomic_compare_exchange_strong(&stop_signal, &none, number);
	}
	return NULL;
}

void stop_watch(void)
{
	struct sigaction old;
	pthread_t thread;

	sigemptyset(&stop_signals);
	for (size_t i = 0; i < SIGNALS; i++)
		if (sigaction(signals[i].number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaddset(&stop_signals, signals[i].number);
	pthread_sigmask(SIG_BLOCK, &stop_signals, NULL);
	/* If there is no thread that waits for them, the signals keep their default actions. */
	if (pthread_create(&thread, NULL, wait_for_signals, NULL) == 0)
		pthread_detach(thread);
	else
		pthread_sigmask(SIG_UNBLOCK, &stop_signals, NULL);
}

void stop_politely(void)
{
	atomic_store(&stop_polite, true);
}

static bool time_is_up(const struct stop *stop)
{
	return stop->time > 0 && ddp_date(NULL) >= stop->time;
}

bool stop_wanted(const struct stop *stop)
{
	return atomic_load(&stop_signal) != 0 || time_is_up(stop);
}

static const char *signal_name(int number)
{
	for (size_t i = 0; i < SIGNALS; i++)
		if (signals[i].number == number)
			return signals[i].name;
	return "a signal";
}

/*
 * Ranks can have different reasons. A signal takes precedence over the time limit, because a signal
 * is more specific.
 */
int stop_explain(struct run *run)
{
	int number = atomic_load(&stop_signal);
	int32_t mine = number ? STOP_SIGNAL + number : time_is_up(&run->stop);
	const struct run_progress *progress = &run->progress;
	char why[64];
	int status;

	status = ddp_all_reduce(run->ddp, &mine, &mine, 1, DDP_I32, DDP_MAX);
	if (status < 0)
		return run_pass_on(run, status);
	if (mine > STOP_SIGNAL)
		snprintf(why, sizeof(why), "by %s", signal_name(mine - STOP_SIGNAL));
	else
		snprintf(why, sizeof(why), "as the job's time ends soon");
	snprintf(run->stop.cause, sizeof(run->stop.cause), "%s",
		 mine > STOP_SIGNAL ? signal_name(mine - STOP_SIGNAL) : "time");
	if (option_flag(run->options, OPTION_EVALUATE))
		snprintf(run->stop.reason, sizeof(run->stop.reason), "evaluation stopped %s", why);
	else
		snprintf(run->stop.reason, sizeof(run->stop.reason),
			 "stopped %s at step %s of epoch %u", why,
			 ddp_show_count((double)progress->step).text, progress->epoch + 1);
	return 0;
}

/*
 * The file has torchrun's format for exceptions. If a launcher does not know messages that begin
 * with "stopped", it prints the message.
 */
void stop_record(const struct run *run)
{
	const char *path = ddp_getenv("TORCHELASTIC_ERROR_FILE", NULL);
	struct ddp_text message = {.data = NULL}, text = {.data = NULL};

	ddp_text_add(&message, "stopped: %s", run->stop.cause);
	if (run->checkpoint.any)
		ddp_text_add(&message, "; checkpoint of step %llu",
			     (unsigned long long)run->checkpoint.saved);
	ddp_put_begin(&text, NULL, '{');
	ddp_put_string(&text, "message", message.data);
	ddp_text_add(&text, "}\n");
	if (path && !message.failed && !text.failed) {
		struct iovec part = {text.data, text.size};

		(void)ddp_file_write(path, &part, 1, 0600, false, NULL);
	}
	ddp_text_free(&message);
	ddp_text_free(&text);
}
