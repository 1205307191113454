/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit.h - functions for all tests that use Check: tables of rows, random numbers, temporary files
 *
 * Most tests are tables of rows. A failure message includes the row's name.
 */
#ifndef DDP_TESTS_UNIT_H
#define DDP_TESTS_UNIT_H

#include <check.h>
#include <dirent.h>
#include <ftw.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))

/*
 * Defines and registers a test. Check runs each iteration in a child process, and _i has the
 * iteration's number. TEST() runs once, TEST_ROWS() runs for each row of [table], and TEST_LOOP()
 * runs for _i from [first] to [end] - 1.
 */
#define TEST(name) TEST_LOOP(name, 0, 1)
#define TEST_ROWS(name, table) TEST_LOOP(name, 0, ROWS(table))
#define TEST_LOOP(name, first, end)                                  \
	static const TTest *name;                                    \
	static void name##_add(TCase *tcase)                         \
	{                                                            \
		tcase_add_loop_test(tcase, name, first, end);        \
	}                                                            \
	__attribute__((constructor)) static void name##_enlist(void) \
	{                                                            \
		static struct unit_test test = {.add = name##_add};  \
                                                                     \
		unit_enlist(&test);                                  \
	}                                                            \
	START_TEST(name)

/*
 * Returns how many rows of a table of [all] rows to run: only [few] if DDP_SHORT is set.
 * contrib/check sets DDP_SHORT for sanitizers. Use this for tables whose rows run the same code
 * with other numbers.
 */
static inline int unit_rows(int few, int all)
{
	return getenv("DDP_SHORT") ? few : all;
}

/* Defines main(). [use] adds fixtures to the test case; NULL: none. */
#define UNIT_MAIN(name, use)                \
	int main(void)                      \
	{                                   \
		return unit_run(name, use); \
	}

/* The tests of this file, in the file's order. */
struct unit_test {
	void (*add)(TCase *tcase);
	struct unit_test *next;
};
static struct unit_test *unit_tests, **unit_last = &unit_tests;

static inline void unit_enlist(struct unit_test *test)
{
	*unit_last = test;
	unit_last = &test->next;
}

/* Returns zeroed memory that this process shares with its children, to be freed with munmap(). */
static inline void *unit_shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	return memory;
}

/* Returns an environment made of string literals, which callers do not modify. */
static inline char *const *unit_env(const char *const *env)
{
	return (char *const *)env;
}

/* An environment made of the words of a string. See unit_words(). */
struct unit_words {
	char text[16384], *env[128];
};

/* Splits [text] at spaces into an environment, which is valid as long as [words]. */
static inline char **unit_words(struct unit_words *words, const char *text)
{
	int count = 0;

	ck_assert_uint_lt(strlen(text), sizeof(words->text));
	strcpy(words->text, text);
	for (char *word = strtok(words->text, " "); word; word = strtok(NULL, " ")) {
		ck_assert_int_lt(count, ROWS(words->env) - 1);
		words->env[count++] = word;
	}
	words->env[count] = NULL;
	return words->env;
}

static inline void unit_text(const char *row, const char *what, const char *got, const char *want)
{
	if (!want)
		ck_assert_msg(!got, "%s: %s is \"%s\", want none", row, what, got);
	else
		ck_assert_msg(got && strcmp(got, want) == 0, "%s: %s is \"%s\", want \"%s\"", row,
			      what, got ? got : "(none)", want);
}

static inline void unit_number(const char *row, const char *what, int64_t got, int64_t want)
{
	ck_assert_msg(got == want, "%s: %s is %lld, want %lld", row, what, (long long)got,
		      (long long)want);
}

/* Fails unless [text] contains every string of [pieces], a NULL-terminated list. */
static inline void unit_pieces(const char *row, const char *text, const char *const *pieces)
{
	for (; *pieces; pieces++)
		ck_assert_msg(strstr(text, *pieces), "%s: \"%s\" does not say \"%s\"", row, text,
			      *pieces);
}

/* Like unit_pieces(), but the pieces are one string, separated by '|'. NULL: no pieces. */
static inline void unit_has(const char *row, const char *text, const char *pieces)
{
	for (char piece[512]; pieces && *pieces; pieces += *pieces == '|') {
		snprintf(piece, sizeof(piece), "%.*s", (int)strcspn(pieces, "|"), pieces);
		ck_assert_msg(strstr(text, piece), "%s: \"%s\" does not say \"%s\"", row, text,
			      piece);
		pieces += strlen(piece);
	}
}

/* Like unit_pieces(), but the pieces are arguments. */
#define UNIT_SAYS(row, text, ...) unit_pieces(row, text, (const char *const[]){__VA_ARGS__, NULL})

/*
 * Returns a pseudorandom number below [below] (xorshift64*). The sequence is the same in every run.
 */
static inline uint32_t unit_random(uint64_t *state, uint32_t below)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (uint32_t)((*state * 0x2545f4914f6cdd1d) >> 32) % below;
}

/*
 * Returns and prints the seed of a randomized test: the number in DDP_SEED, or [otherwise]. With
 * the printed seed a failure can be reproduced. The seed is odd, because unit_random() must not get
 * 0.
 */
static inline uint64_t unit_seed(uint64_t otherwise)
{
	const char *text = getenv("DDP_SEED");
	uint64_t seed = text && *text ? strtoull(text, NULL, 0) : otherwise;

	fprintf(stderr, "DDP_SEED=%llu\n", (unsigned long long)seed);
	return 2 * seed + 1;
}

/* --- Files ------------------------------------------------------------------------------ */

/*
 * Returns the number of entries of the directory [path]; -1: the directory cannot be opened. With
 * /proc/self/fd this finds leaked descriptors.
 */
static inline int unit_entries(const char *path)
{
	DIR *directory = opendir(path);
	int count = 0;

	if (!directory)
		return -1;
	while (readdir(directory))
		count++;
	closedir(directory);
	return count - 2;
}

/*
 * LeakSanitizer checks at exit(). A process that ends with _exit() must call this before. NULL if
 * the program has no LeakSanitizer.
 */
void __lsan_do_leak_check(void) __attribute__((weak, visibility("default")));

static inline void unit_find_leaks(void)
{
	if (__lsan_do_leak_check)
		__lsan_do_leak_check();
}

static inline int unit_remove_one(const char *path, const struct stat *info, int type,
				  struct FTW *walk)
{
	(void)info;
	(void)type;
	(void)walk;
	return remove(path);
}

/* Removes [path] and everything below it. */
static inline void unit_remove(const char *path)
{
	nftw(path, unit_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Creates a temporary directory and stores its path in [path]. */
static inline void unit_directory(char *path, size_t size)
{
	const char *top = getenv("TMPDIR");

	snprintf(path, size, "%s/ddp-test.XXXXXX", top && *top ? top : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(path));
}

/* Runs all tests. [use] adds fixtures; NULL: none. Returns main()'s exit status. */
static inline int unit_run(const char *name, void (*use)(TCase *tcase))
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);
	SRunner *runner;
	int failed;

	/* The timeout ends only tests that hang: slow machines and valgrind must not exceed it. */
	tcase_set_timeout(tcase, getenv("DDP_LONG") ? 3600 : 600);
	if (use)
		use(tcase);
	for (struct unit_test *test = unit_tests; test; test = test->next)
		test->add(tcase);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif /* DDP_TESTS_UNIT_H */
