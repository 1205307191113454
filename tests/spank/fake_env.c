/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_slurmstepd.h"

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
	/* As in Slurm, the list moves: a plugin that keeps the pointer is in trouble. */
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
