/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ddp.h>

#include "base/json.h"
#include "base/type.h"
#include "scratch.h"
#include "state/tensors.h"

/*
 * Creates a file with the header [text], which has [length] bytes, and [data] bytes with the values
 * 0, 1, 2, ...
 */
static const char *make_file(const char *name, const char *text, size_t length, size_t data)
{
	size_t size = DDP_HEADER_START + length + data;
	char *file = calloc(size, 1);
	uint64_t number = length;
	const char *path;

	ck_assert_ptr_nonnull(file);
	memcpy(file, &number, sizeof(number));
	memcpy(file + DDP_HEADER_START, text, length);
	for (size_t i = 0; i < data; i++)
		file[DDP_HEADER_START + length + i] = (char)i;
	path = scratch_file(name, file, size);
	free(file);
	return path;
}

/*
 * Tensors that cannot be saved. tests/interop/libddp.bats compares what is saved with other programs'
 * files.
 */

static float six[] = {0, 1, 2, 3, 4, 5};

static const struct {
	const char *piece;
	struct ddp_tensor tensor;
	struct ddp_pair pair;
} invalid[] = {
	{"(null)", {NULL, DDP_F32, 0, {0}, six}, {NULL, NULL}},
	{"__metadata__", {"__metadata__", DDP_F32, 0, {0}, six}, {NULL, NULL}},
	{"name of a tensor", {"\xc3", DDP_F32, 0, {0}, six}, {NULL, NULL}},
	{"name of a tensor", {"\xed\xa0\x80", DDP_F32, 0, {0}, six}, {NULL, NULL}},
	{"impossible type", {"x", DDP_TYPE_COUNT, 0, {0}, six}, {NULL, NULL}},
	{"impossible type", {"x", DDP_F32, -1, {0}, six}, {NULL, NULL}},
	{"impossible type", {"x", DDP_F32, 9, {0}, six}, {NULL, NULL}},
	{"impossible type", {"x", DDP_F32, 1, {-1}, six}, {NULL, NULL}},
	{"impossible type", {"x", DDP_F32, 2, {INT64_MAX, 3}, six}, {NULL, NULL}},
	{"impossible type", {"x", DDP_F64, 1, {INT64_MAX / 4}, six}, {NULL, NULL}},
	{"no data", {"x", DDP_F32, 0, {0}, NULL}, {NULL, NULL}},
	{"twice", {"there", DDP_I64, 1, {1}, six}, {NULL, NULL}},
	{"metadata \"a\" occurs twice", {"x", DDP_F32, 0, {0}, six}, {"a", "2"}},
	{"metadata \"\xff\" cannot be saved", {"x", DDP_F32, 0, {0}, six}, {"\xff", "2"}},
	{"metadata \"b\" cannot be saved", {"x", DDP_F32, 0, {0}, six}, {"b", "\x80"}},
	{"metadata \"(null)\"", {"x", DDP_F32, 0, {0}, six}, {NULL, "2"}},
};

TEST_ROWS(test_invalid, invalid)
{
	const char *path = scratch("refused");
	struct ddp_tensor tensors[] = {{"there", DDP_F32, 1, {6}, six}, invalid[_i].tensor};
	struct ddp_pair pairs[] = {{"a", "1"}, invalid[_i].pair};
	size_t count = pairs[1].key || pairs[1].value ? 2 : 1;
	struct ddp_error error;

	unit_number(invalid[_i].piece, "status",
		    ddp_tensors_save(path, tensors, 2, pairs, count, &error), DDP_ERR_ARGUMENT);
	unit_number(invalid[_i].piece, "status", error.status, DDP_ERR_ARGUMENT);
	UNIT_SAYS("text", error.text, path, invalid[_i].piece);
	ck_assert_int_ne(access(path, F_OK), 0);
}

/* --- Malformed files --------------------------------------------------------------------- */

#define X_IS(members) "{\"x\":{" members "}}"
#define TENSOR(name, begin, end) \
	"\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" begin "," end "]}"
#define U8_4 "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]"

static const struct {
	const char *header;
	size_t data;
	const char *piece;
} malformed[] = {
	{"", 0, "does not begin with '{'"},
	{" {}", 0, "does not begin with '{'"},
	{"[]", 0, "does not begin with '{'"},
	{"\xef\xbb\xbf{}", 0, "does not begin with '{'"},
	{"{", 0, "byte 1: a string expected"},
	{"{}x", 0, "byte 2: more text after the end"},
	{"{}{}", 0, "more text after the end"},
	{"{,}", 0, "a string expected"},
	{"{x:1}", 0, "a string expected"},
	{"{'x':1}", 0, "a string expected"},
	{"{\"x\"}", 0, "':' expected"},
	{"{\"x", 0, "a string without an end"},
	{"{\"x\\", 0, "a string without an end"},
	{"{\"\\x\":", 0, "an unknown escape"},
	{"{\"\\u12\":", 0, "four hexadecimal digits"},
	{"{\"\\u12", 0, "four hexadecimal digits"},
	{"{\"\\u12g4\":", 0, "four hexadecimal digits"},
	{"{\"\\u0000\":", 0, "a zero byte"},
	{"{\"\\ud800\":", 0, "surrogate"},
	{"{\"\\udc00\\ud800\":", 0, "surrogate"},
	{"{\"\\ud800\\u0041\":", 0, "surrogate"},
	{"{\"\\ud800\\u", 0, "surrogate"},
	{"{\"\\ud800xxxxxx\":", 0, "surrogate"},
	{"{\"a\nb\":", 0, "a control character"},
	{"{\"\xff\":", 0, "not UTF-8"},
	{"{\"\xc0\x80\":", 0, "not UTF-8"},
	{"{\"\xe0\x80\x80\":", 0, "not UTF-8"},
	{"{\"\xed\xa0\x80\":", 0, "not UTF-8"},
	{"{\"\xf4\x90\x80\x80\":", 0, "not UTF-8"},
	{"{\"\xf0\x80\x80\x80\":", 0, "not UTF-8"},
	{"{\"\xe2\x82\":", 0, "not UTF-8"},
	{"{\"\xe2\x82", 0, "not UTF-8"},
	{"{\"x\":1}", 0, "an object expected"},
	{"{\"x\":null}", 0, "an object expected"},
	{"{\"x\":{}}", 0, "without dtype, shape or data_offsets"},
	{X_IS("\"dtype\":\"U8\",\"shape\":[4]"), 4, "without dtype"},
	{X_IS("\"dtype\":\"U8\",\"data_offsets\":[0,4]"), 4, "without dtype"},
	{X_IS("\"shape\":[4],\"data_offsets\":[0,4]"), 4, "without dtype"},
	{X_IS(U8_4 ",\"dtype\":\"U8\""), 4, "a member of a tensor twice"},
	{X_IS(U8_4 ",\"more\":1"), 4, "a member that a tensor does not have"},
	{X_IS(U8_4 ","), 4, "a string expected"},
	{X_IS("\"dtype\":8"), 4, "a string expected"},
	{X_IS("\"shape\":4"), 4, "an array expected"},
	{X_IS("\"shape\":[4"), 4, "',' or ']' expected"},
	{"{\"x\":{\"shape\":[4", 4, "',' or ']' expected"},
	{X_IS("\"shape\":[4,]"), 4, "a whole number expected"},
	{X_IS("\"shape\":[-1]"), 4, "a whole number expected"},
	{X_IS("\"shape\":[04]"), 4, "a whole number expected"},
	{X_IS("\"shape\":[\"4\"]"), 4, "a whole number expected"},
	{X_IS("\"shape\":[4.0]"), 4, "',' or ']' expected"},
	{X_IS("\"shape\":[4e0]"), 4, "',' or ']' expected"},
	{X_IS("\"shape\":[4 4]"), 4, "',' or ']' expected"},
	{X_IS("\"shape\":[18446744073709551616]"), 4, "beyond 64 bits"},
	{X_IS("\"shape\":[9223372036854775808]"), 4, "beyond 63 bits"},
	{X_IS("\"data_offsets\":[0]"), 4, "not two numbers"},
	{X_IS("\"data_offsets\":[]"), 4, "not two numbers"},
	{X_IS("\"data_offsets\":[0,4,4]"), 4, "not two numbers"},
	{"{" TENSOR("x", "0", "4") " " TENSOR("y", "4", "8") "}", 8, "',' or '}' expected"},
	{"{" TENSOR("x", "0", "4") "," TENSOR("x", "4", "8") "}", 8, "\"x\" occurs twice"},
	{"{" TENSOR("x", "0", "4") "," TENSOR("\\u0078", "4", "8") "}", 8, "\"x\" occurs twice"},
	{"{" TENSOR("x", "0", "4") "," TENSOR("y", "5", "9") "}", 9,
	 "\"y\" is at [5, 9), not at 4"},
	{"{" TENSOR("x", "0", "4") "," TENSOR("y", "3", "7") "}", 7,
	 "\"y\" is at [3, 7), not at 4"},
	{"{" TENSOR("x", "0", "4") "," TENSOR("y", "0", "4") "}", 4, "is at [0, 4), not at 4"},
	{"{" TENSOR("x", "1", "5") "}", 5, "\"x\" is at [1, 5), not at 0"},
	{"{" TENSOR("x", "4", "0") "}", 4, "\"x\" is at [4, 0), not at 0"},
	{"{" TENSOR("x", "0", "4") "}", 3, "cut short: tensor \"x\" ends at byte 4"},
	{"{" TENSOR("x", "0", "4") "}", 5, "1 bytes at the end belong to no tensor"},
	{"{}", 1, "1 bytes at the end belong to no tensor"},
	{"{" TENSOR("x", "0", "5") "}", 5, "\"x\" has 5 bytes, but its shape needs 4"},
	{"{" TENSOR("x", "0", "18446744073709551615") "}", 5, "cut short"},
	{X_IS("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,15]"), 15, "needs 16"},
	{X_IS("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0,
	 "the shape of tensor \"x\" is too large"},
	{X_IS("\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]"), 0,
	 "the shape of tensor \"x\" is too large"},
	{"{\"__metadata__\":null}", 0, "an object expected"},
	{"{\"__metadata__\":[]}", 0, "an object expected"},
	{"{\"__metadata__\":{\"a\":1}}", 0, "a string expected"},
	{"{\"__metadata__\":{\"a\":{}}}", 0, "a string expected"},
	{"{\"__metadata__\":{\"a\":\"1\"", 0, "',' or '}' expected"},
	{"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ twice"},
	{"{\"__metadata__\":{\"a\":\"1\",\"b\":\"\",\"a\":\"2\"}}", 0, "\"a\" occurs twice"},
};

TEST_ROWS(test_malformed, malformed)
{
	const char *header = malformed[_i].header;
	const char *path = make_file("malformed", header, strlen(header), malformed[_i].data);
	struct ddp_tensors *file;
	struct ddp_error error;

	unit_number(header, "status", ddp_tensors_open(&file, path, &error), DDP_ERR_FORMAT);
	ck_assert_ptr_null(file);
	UNIT_SAYS(header, error.text, path, malformed[_i].piece);
}

/* Valid headers that libddp reads, but would write in another form. */
static const struct {
	const char *header;
	size_t data;
	const char *names; /* expected names in order, with a space after each name */
} wellformed[] = {
	{"{}", 0, ""},
	{"{ }\r\n\t ", 0, ""},
	{"{\"__metadata__\":{}}", 0, ""},
	{"{\n\t\"x\" : { " U8_4 " } }", 4, "x "},
	{"{" TENSOR("y", "4", "8") "," TENSOR("x", "0", "4") "}", 8, "x y "},
	{"{" TENSOR("\\u0041\\u00e9\\u20ac\\ud83d\\uDE00\\/", "0", "4") "}", 4,
	 "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80/ "},
	{"{\"b\":{\"data_offsets\":[0,0],\"shape\":[0],\"dtype\":\"F32\"},"
	 "\"a\":{\"data_offsets\":[0,0],\"shape\":[0,9223372036854775807],\"dtype\":\"F32\"}}",
	 0, "b a "},
};

TEST_ROWS(test_wellformed, wellformed)
{
	const char *header = wellformed[_i].header;
	const char *path = make_file("wellformed", header, strlen(header), wellformed[_i].data);
	const struct ddp_tensor *list;
	struct ddp_tensors *file;
	struct ddp_error error;
	char names[64] = "";
	size_t count;

	unit_number(header, error.text, ddp_tensors_open(&file, path, &error), 0);
	list = ddp_tensors_list(file, &count);
	for (size_t i = 0; i < count; i++)
		strcat(strcat(names, list[i].name), " ");
	unit_text(header, "list", names, wellformed[_i].names);
	ddp_tensors_close(file);
}

/* If a tensor has an unknown type, the other tensors can still be read. */
TEST(test_unknown_type)
{
	static const char header[] =
		"{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3],\"data_offsets\":[0,6]},"
		"\"y\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[6,7]}}";
	struct ddp_tensors *file;
	const struct ddp_tensor *x, *y;
	struct ddp_error error;

	make_file("unknown", header, strlen(header), 7);
	ck_assert_int_eq(ddp_tensors_open(&file, scratch("unknown"), &error), 0);
	x = ddp_tensors_find(file, "x");
	y = ddp_tensors_find(file, "y");
	ck_assert(x && x->type == DDP_TYPE_COUNT && x->dimensions == 2 && !x->data);
	ck_assert_str_eq(ddp_tensors_type(file, x), "F8_E4M3");
	ck_assert(y && y->type == DDP_U8 && *(char *)y->data == 6);
	ddp_tensors_close(file);
}

TEST(test_nine_dimensions)
{
	static const char header[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],"
				     "\"data_offsets\":[0,1]}}";
	struct ddp_tensors *file;
	struct ddp_error error;

	make_file("nine", header, strlen(header), 1);
	ck_assert_int_eq(ddp_tensors_open(&file, scratch("nine"), &error), DDP_ERR_UNSUPPORTED);
	UNIT_SAYS("text", error.text, "\"x\" has 9 dimensions");
}

static const struct {
	const char *name, *bytes;
	size_t size;
	int status;
	const char *piece;
} files[] = {
	{"nothing", "", 0, DDP_ERR_FORMAT, "has 0 bytes, too few for"},
	{"seven", "\2\0\0\0\0\0\0", 7, DDP_ERR_FORMAT, "has 7 bytes, too few for"},
	{"eight", "\2\0\0\0\0\0\0\0", 8, DDP_ERR_FORMAT, "too few for its header of 2 bytes"},
	{"limit", "\1\xe1\xf5\5\0\0\0\0", 8, DDP_ERR_FORMAT, "at most 100000000 are allowed"},
	{"below", "\0\xe1\xf5\5\0\0\0\0", 8, DDP_ERR_FORMAT, "cut short"},
	{"huge", "\377\377\377\377\377\377\377\377{}", 10, DDP_ERR_FORMAT, "at most 100000000"},
	{"gzip", "\x1f\x8b\x08\0\0\0\0\0\0\0", 10, DDP_ERR_FORMAT, "cut short"},
	{"missing", NULL, 0, DDP_ERR_FILE, "No such file"},
	{".", NULL, 0, DDP_ERR_FORMAT, "not a plain file"},
	{"fifo", NULL, 0, DDP_ERR_FORMAT, "not a plain file"},
};

TEST_ROWS(test_files, files)
{
	const char *name = files[_i].name, *path = scratch(name);
	struct ddp_tensors *file;
	struct ddp_error error;

	if (files[_i].bytes)
		scratch_file(name, files[_i].bytes, files[_i].size);
	if (strcmp(name, "fifo") == 0)
		ck_assert_int_eq(mkfifo(path, 0600), 0);
	unit_number(name, "status", ddp_tensors_open(&file, path, &error), files[_i].status);
	UNIT_SAYS(name, error.text, path, files[_i].piece);
	unit_number(name, "status without a text", ddp_tensors_open(&file, path, NULL),
		    files[_i].status);
	ck_assert_ptr_null(file);
}

/* --- Damage ----------------------------------------------------------------------------- */

/*
 * Creates a small file with tensors of several types, metadata and a checksum. Returns its bytes.
 */
static char *make_small(size_t *size)
{
	static int64_t number = 4711;
	static uint16_t halves[3] = {0x3c00, 0xbc00, 0x7bff};
	const struct ddp_tensor tensors[] = {
		{"conv1.weight", DDP_F32, 2, {2, 3}, six},
		{"bn.num_batches_tracked", DDP_I64, 0, {0}, &number},
		{"half", DDP_F16, 1, {3}, halves},
		{"nothing", DDP_U8, 1, {0}, NULL},
	};
	const struct ddp_pair pairs[] = {{"ddp.step", "12"}, {"format", "pt"}};
	const char *path = scratch("small");
	struct ddp_error error;

	ck_assert_int_eq(ddp_tensors_write(path, tensors, ROWS(tensors), pairs, 2, true, &error),
			 0);
	return scratch_read(path, size);
}

/* Changes the byte at [at] in the file. This is faster than writing a new file. */
static void put_byte(const char *path, size_t at, char byte)
{
	FILE *file = fopen(path, "r+");

	ck_assert(file && fseek(file, (long)at, SEEK_SET) == 0 && fputc(byte, file) != EOF);
	ck_assert_int_eq(fclose(file), 0);
}

/* With a checksum, every inverted bit is detected, except in the checksum's own key. */
TEST(test_checksum)
{
	size_t size, key;
	char *bytes = make_small(&size);
	const char *path = scratch_file("flip", bytes, size);
	struct ddp_tensors *file;
	struct ddp_error error;

	ck_assert_int_eq(ddp_tensors_open(&file, path, &error), 0);
	ck_assert_int_eq(ddp_tensors_verify(file, &error), 0);
	ddp_tensors_close(file);
	key = (size_t)(strstr(bytes + 8, DDP_TENSORS_CHECKSUM) - bytes);
	for (size_t bit = 0; bit < 8 * size; bit++) {
		bool in_key = bit / 8 >= key && bit / 8 - key < strlen(DDP_TENSORS_CHECKSUM);
		int status;

		put_byte(path, bit / 8, (char)(bytes[bit / 8] ^ 1 << bit % 8));
		status = ddp_tensors_open(&file, path, &error);
		if (status == 0)
			status = ddp_tensors_verify(file, &error);
		ck_assert_msg(status == DDP_ERR_FORMAT || (in_key && status == 1),
			      "bit %zu of byte %zu: status %d", bit % 8, bit / 8, status);
		ddp_tensors_close(file);
		put_byte(path, bit / 8, bytes[bit / 8]);
	}
	free(bytes);
}

/*
 * The file is larger than the piece that libddp reads at once. A program cannot use the key of the
 * checksum for its own metadata.
 */
TEST(test_checksum_large)
{
	enum { SIZE = (1 << 20) + 4096 };
	char *large = calloc(SIZE, 1);
	struct ddp_tensor tensor = {"large", DDP_U8, 1, {SIZE}, large};
	struct ddp_pair pair = {DDP_TENSORS_CHECKSUM, "00000000"};
	const char *path = scratch("large");
	struct ddp_tensors *file;
	struct ddp_error error;

	ck_assert_int_eq(ddp_tensors_write(path, &tensor, 1, NULL, 0, true, &error), 0);
	ck_assert_int_eq(ddp_tensors_open(&file, path, &error), 0);
	ck_assert_int_eq(ddp_tensors_verify(file, &error), 0);
	/* If a file is truncated while it is open, reading it is an error, not a SIGBUS. */
	ck_assert_int_eq(truncate(path, 1 << 20), 0);
	ck_assert_int_eq(ddp_tensors_verify(file, &error), DDP_ERR_FILE);
	UNIT_SAYS("text", error.text, "cannot read", path);
	ddp_tensors_close(file);
	ck_assert_int_eq(ddp_tensors_write(path, &tensor, 1, &pair, 1, true, &error),
			 DDP_ERR_ARGUMENT);
	free(large);
}

UNIT_MAIN("tensors", scratch_use)
