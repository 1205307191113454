/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fake_slurm.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* spank_context() has no argument, so this variable has the process whose hook is running. */
static struct spank_handle *current;
static unsigned n_processes;

void fake_die(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fputs("fake slurmstepd: ", stderr);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
	abort();
}

/* --- Processes -------------------------------------------------------------------------- */

/*
 * Copies the plugin [path] to a new file in /tmp. Returns the copy's path. The caller unlinks the
 * copy and frees the path.
 */
static char *copy_plugin(const char *path)
{
	char *copy = strdup("/tmp/ddp-fake-XXXXXX"), buf[65536];
	FILE *from = fopen(path, "rb"), *to;
	int fd = mkstemp(copy);
	size_t n;

	to = fd >= 0 ? fdopen(fd, "wb") : NULL;
	if (!from || !to)
		fake_die("cannot copy %s to %s", path, copy);
	while ((n = fread(buf, 1, sizeof(buf), from)) > 0)
		if (fwrite(buf, 1, n, to) != n)
			fake_die("cannot write %s", copy);
	fclose(from);
	fclose(to);
	return copy;
}

struct spank_handle *fake_process(spank_context_t context, const char *host, const char *arguments)
{
	static char *plugin; /* read only once, because a test's environment may lack DDP_PLUGIN */
	struct spank_handle *p = calloc(1, sizeof(*p));
	char *words = strdup(arguments ? arguments : ""), *rest = words, *word;

	if (!plugin && getenv("DDP_PLUGIN"))
		plugin = strdup(getenv("DDP_PLUGIN"));
	if (!plugin || !p || !words)
		fake_die("DDP_PLUGIN does not name the plugin");
	p->context = context;
	p->host = host;
	p->task = -1;
	while ((word = strsep(&rest, " ")))
		if (*word && p->argc < FAKE_ARGUMENTS)
			p->argv[p->argc++] = strdup(word);
	free(words);
	/*
	 * For a file that is already loaded, dlopen() returns the loaded instance. So every further
	 * instance needs a copy.
	 */
	if (n_processes++ > 0)
		p->copy = copy_plugin(plugin);
	p->plugin = dlopen(p->copy ? p->copy : plugin, RTLD_LAZY | RTLD_LOCAL);
	if (!p->plugin)
		fake_die("%s", dlerror());
	return p;
}

void fake_process_end(struct spank_handle *process)
{
	if (!process)
		return;
	if (dlclose(process->plugin) != 0)
		fake_die("%s", dlerror());
	if (process->copy)
		unlink(process->copy);
	free(process->copy);
	for (int i = 0; i < process->argc; i++)
		free(process->argv[i]);
	fake_env_free(process->env);
	free(process);
	n_processes--;
}

/*
 * Hooks may return only 0 or -1. On a node only task_init may return -1: after another hook's
 * error, Slurm either drains the node or ignores the error.
 */
static void check_result(const struct spank_handle *process, const char *what, int rc)
{
	if (rc != 0 && rc != -1)
		fake_die("%s on %s returned %d", what, process->host, rc);
	if (rc != 0 && (process->context == S_CTX_REMOTE || process->context == S_CTX_SLURMD) &&
	    strcmp(what, "task_init") != 0)
		fake_die("%s failed on %s: %s", what, process->host, fake_transcript());
}

int fake_hook(struct spank_handle *process, const char *hook)
{
	char **was = process->context == S_CTX_REMOTE ? fake_env_copy(environ) : NULL;
	struct spank_handle *outer = current;
	char name[64];
	spank_f *call;
	int rc = 0;

	snprintf(name, sizeof(name), "slurm_spank_%s", hook);
	*(void **)&call = dlsym(process->plugin, name);
	current = process;
	process->in_init = strcmp(hook, "init") == 0;
	if (call)
		rc = call(process, process->argc, process->argv);
	process->in_init = false;
	current = outer;
	check_result(process, hook, rc);
	if (was && !fake_env_equal(was, environ))
		fake_die("%s changed slurmstepd's own environment", hook);
	fake_env_free(was);
	return rc;
}

static const struct spank_option *find_option(const struct spank_handle *process, const char *name)
{
	for (size_t i = 0; i < process->n_options; i++)
		if (strcmp(process->options[i].name, name) == 0)
			return &process->options[i];
	return NULL;
}

int fake_option(struct spank_handle *process, const char *name, const char *argument)
{
	const struct spank_option *option = find_option(process, name);
	struct spank_handle *outer = current;
	int rc;

	if (!option)
		fake_die("--%s is not registered on %s", name, process->host);
	current = process;
	rc = option->cb(option->val, argument, process->context == S_CTX_REMOTE);
	current = outer;
	check_result(process, name, rc);
	return rc;
}

/* --- Messages --------------------------------------------------------------------------- */

static struct {
	int level;
	char *text;
} messages[512];
static unsigned n_messages;

static void __attribute__((format(printf, 2, 0))) keep(int level, const char *format, va_list ap)
{
	char *text = NULL;

	if (n_messages == sizeof(messages) / sizeof(messages[0]))
		fake_die("the plugin talks without end");
	if (vasprintf(&text, format, ap) < 0)
		fake_die("out of memory");
	if (strchr(text, '\n'))
		fake_die("a message of more than one line: %s", text);
	messages[n_messages].level = level;
	messages[n_messages++].text = text;
}

/*
 * Releases of Slurm declare these functions with different return types, so a definition with
 * Slurm's name could conflict with its header. The C names are others, and __asm__ sets the symbols.
 */
#define SPEAK(name, level)                                                    \
	void fake_##name(const char *format, ...) __asm__(#name)              \
		__attribute__((visibility("default"), format(printf, 1, 2))); \
	void fake_##name(const char *format, ...)                             \
	{                                                                     \
		va_list ap;                                                   \
                                                                              \
		va_start(ap, format);                                         \
		keep(level, format, ap);                                      \
		va_end(ap);                                                   \
	}

SPEAK(slurm_error, FAKE_ERROR)
SPEAK(slurm_spank_log, FAKE_LOG)
SPEAK(slurm_info, FAKE_QUIET)
SPEAK(slurm_verbose, FAKE_QUIET)
SPEAK(slurm_debug, FAKE_QUIET)
SPEAK(slurm_debug2, FAKE_QUIET)
SPEAK(slurm_debug3, FAKE_QUIET)

unsigned fake_said(int levels, const char *text)
{
	unsigned n = 0;

	for (unsigned i = 0; i < n_messages; i++)
		n += (messages[i].level & levels) && strstr(messages[i].text, text);
	return n;
}

void fake_forget(void)
{
	while (n_messages > 0)
		free(messages[--n_messages].text);
}

const char *fake_transcript(void)
{
	static char all[16384];
	size_t used = 0;

	all[0] = '\0';
	for (unsigned i = 0; i < n_messages && used < sizeof(all) - 1; i++)
		used += (size_t)snprintf(all + used, sizeof(all) - used, "\n  [%s] %s",
					 messages[i].level == FAKE_ERROR ? "error" : "log",
					 messages[i].text);
	return all;
}

/* --- Environments ----------------------------------------------------------------------- */

static size_t count(char *const *env)
{
	size_t n = 0;

	while (env && env[n])
		n++;
	return n;
}

static char **find(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; env && *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return (char **)env;
	return NULL;
}

char **fake_env_copy(char *const *env)
{
	size_t n = count(env);
	char **copy = calloc(n + 1, sizeof(*copy));

	for (size_t i = 0; i < n; i++)
		copy[i] = strdup(env[i]);
	return copy;
}

void fake_env_free(char **env)
{
	for (size_t i = 0; env && env[i]; i++)
		free(env[i]);
	free(env);
}

const char *fake_env_get(char *const *env, const char *name)
{
	char **at = find(env, name);

	return at ? *at + strlen(name) + 1 : NULL;
}

void fake_env_set(char ***env, const char *name, const char *value)
{
	char **at = find(*env, name), *text = NULL;
	size_t n = count(*env);

	if (asprintf(&text, "%s=%s", name, value) < 0)
		fake_die("out of memory");
	if (at) {
		free(*at);
		*at = text;
		return;
	}
	/* The array moves, as in Slurm. A plugin that has kept the old pointer then fails. */
	at = calloc(n + 2, sizeof(*at));
	memcpy(at, *env ? *env : at, n * sizeof(*at));
	at[n] = text;
	free(*env);
	*env = at;
}

void fake_env_unset(char **env, const char *name)
{
	char **at = find(env, name);

	if (!at)
		return;
	free(*at);
	for (; at[0]; at++)
		at[0] = at[1];
}

bool fake_env_equal(char *const *a, char *const *b)
{
	size_t n = count(a);

	if (n != count(b))
		return false;
	for (size_t i = 0; i < n; i++)
		if (strcmp(a[i], b[i]) != 0)
			return false;
	return true;
}

void fake_env_apply(char ***env, const char *words)
{
	char *copy = strdup(words ? words : ""), *rest = copy, *word;

	while ((word = strsep(&rest, " "))) {
		char *equals = strchr(word, '=');

		if (*word == '-')
			fake_env_unset(*env, word + 1);
		else if (equals) {
			*equals = '\0';
			fake_env_set(env, word, equals + 1);
		}
	}
	free(copy);
}

void fake_env_become(char *const *env)
{
	char **copy = fake_env_copy(env);

	clearenv();
	for (char **at = copy; *at; at++) {
		char *equals = strchr(*at, '=');

		*equals = '\0';
		setenv(*at, equals + 1, 1);
	}
	fake_env_free(copy);
}

/* --- What Slurm offers to plugins -------------------------------------------------------- */

spank_context_t spank_context(void)
{
	return current ? current->context : S_CTX_ERROR;
}

int spank_remote(spank_t spank)
{
	return spank ? spank->context == S_CTX_REMOTE : -1;
}

const char *spank_strerror(spank_err_t err)
{
	return err == ESPANK_SUCCESS ? "Success" : "Generic error";
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	if (!spank || !spank->in_init || !option || !option->name || !option->usage)
		return ESPANK_BAD_ARG;
	if (strlen(option->name) > SPANK_OPTION_MAXLEN || spank->n_options == FAKE_OPTIONS)
		return ESPANK_NOSPACE;
	if (find_option(spank, option->name))
		return ESPANK_BAD_ARG;
	spank->options[spank->n_options++] = *option;
	return ESPANK_SUCCESS;
}

/* Whether [item] is valid in the context of [spank], as in Slurm. */
static spank_err_t item_valid(spank_t spank, spank_item_t item)
{
	if (!spank)
		return ESPANK_BAD_ARG;
	if (spank->context == S_CTX_LOCAL) {
		if (item == S_TASK_ID || item == S_JOB_LOCAL_TASK_COUNT || item == S_TASK_GLOBAL_ID)
			return ESPANK_NOT_REMOTE;
	} else if (spank->context != S_CTX_REMOTE) {
		return ESPANK_NOT_AVAIL;
	}
	if (!spank->has_job)
		return spank->context == S_CTX_REMOTE ? ESPANK_BAD_ARG : ESPANK_NOT_AVAIL;
	if ((item == S_TASK_ID || item == S_TASK_GLOBAL_ID) && spank->task < 0)
		return ESPANK_NOT_TASK;
	return ESPANK_SUCCESS;
}

static void get_number(spank_t spank, spank_item_t item, va_list ap)
{
	const uint32_t number = item == S_JOB_ID		 ? spank->job
				: item == S_JOB_STEPID		 ? spank->step
				: item == S_JOB_NNODES		 ? spank->nodes
				: item == S_JOB_TOTAL_TASK_COUNT ? spank->tasks
				: item == S_JOB_LOCAL_TASK_COUNT ? spank->local_tasks
								 : spank->global_task;

	*va_arg(ap, uint32_t *) = number;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	spank_err_t rc = item_valid(spank, item);
	va_list ap;
	int argc = 0;

	if (rc != ESPANK_SUCCESS)
		return rc;
	va_start(ap, item);
	switch (item) {
	case S_JOB_ID:
	case S_JOB_STEPID:
	case S_JOB_NNODES:
	case S_JOB_TOTAL_TASK_COUNT:
	case S_JOB_LOCAL_TASK_COUNT:
	case S_TASK_GLOBAL_ID:
		get_number(spank, item, ap);
		break;
	case S_TASK_ID:
		*va_arg(ap, int *) = spank->task;
		break;
	case S_JOB_ARGV:
		while (spank->program && spank->program[argc])
			argc++;
		*va_arg(ap, int *) = argc;
		*va_arg(ap, char ***) = spank->program;
		break;
	case S_JOB_ENV:
		*va_arg(ap, char ***) = spank->context == S_CTX_REMOTE ? spank->env : NULL;
		break;
	default:
		fake_die("item %d is not played", (int)item);
	}
	va_end(ap);
	return rc;
}

static spank_err_t env_valid(spank_t spank)
{
	if (!spank)
		return ESPANK_BAD_ARG;
	if (spank->context != S_CTX_REMOTE)
		return ESPANK_NOT_REMOTE;
	return spank->has_job ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

spank_err_t spank_getenv(spank_t spank, const char *var, char *buf, int len)
{
	spank_err_t rc = env_valid(spank);
	const char *value;

	if (rc != ESPANK_SUCCESS)
		return rc;
	if (len < 0 || !var || !buf)
		return ESPANK_BAD_ARG;
	value = fake_env_get(spank->env, var);
	if (!value)
		return ESPANK_ENV_NOEXIST;
	return snprintf(buf, (size_t)len, "%s", value) >= len ? ESPANK_NOSPACE : ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t spank, const char *var, const char *val, int overwrite)
{
	spank_err_t rc = env_valid(spank);

	if (rc != ESPANK_SUCCESS)
		return rc;
	if (!var || !val)
		return ESPANK_BAD_ARG;
	if (!overwrite && fake_env_get(spank->env, var))
		return ESPANK_ENV_EXISTS;
	fake_env_set(&spank->env, var, val);
	return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t spank, const char *var)
{
	spank_err_t rc = env_valid(spank);

	if (rc != ESPANK_SUCCESS)
		return rc;
	if (!var)
		return ESPANK_BAD_ARG;
	fake_env_unset(spank->env, var);
	return ESPANK_SUCCESS;
}
