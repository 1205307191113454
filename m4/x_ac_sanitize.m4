# SPDX-License-Identifier: Apache-2.0

# X_AC_SANITIZE
# --enable-sanitize=LIST, --enable-fuzz, --enable-coverage: instrumented builds for tests.
# Sets x_ac_instrumented (yes or no) for the hardening checks, FUZZ_LDFLAGS and the
# conditional ENABLE_FUZZ.
AC_DEFUN([X_AC_SANITIZE], [
  AC_ARG_ENABLE([sanitize],
    [AS_HELP_STRING([--enable-sanitize@<:@=LIST@:>@],
      [build with sanitizers: address,undefined (default of LIST) or thread])],
    [], [enable_sanitize=no])
  AC_ARG_ENABLE([fuzz],
    [AS_HELP_STRING([--enable-fuzz],
      [build the fuzz targets (clang; sanitizers address,undefined unless given)])],
    [], [enable_fuzz=no])
  AC_ARG_ENABLE([coverage],
    [AS_HELP_STRING([--enable-coverage], [instrument for gcov])],
    [], [enable_coverage=no])

  AS_IF([test "x$enable_fuzz$enable_sanitize" = xyesno], [enable_sanitize=yes])
  AS_IF([test "x$enable_sanitize" = xyes], [enable_sanitize=address,undefined])

  x_ac_instrumented=no
  AS_IF([test "x$enable_sanitize" != xno], [
    x_ac_instrumented=yes
    # Stop at the first error, so that the test fails.
    X_AC_CC_FLAG([-fsanitize=$enable_sanitize -fno-sanitize-recover=all -fno-omit-frame-pointer],
      [DDP_CFLAGS],
      [AS_VAR_APPEND([DDP_LDFLAGS], [" -fsanitize=$enable_sanitize"])],
      [AC_MSG_ERROR(m4_normalize([
        --enable-sanitize=$enable_sanitize: $CC cannot build with these sanitizers;
        install the sanitizer runtimes (gcc: libasan, libubsan, libtsan; clang: libclang-rt-dev)
        or choose address,undefined or thread]))])
  ])

  FUZZ_LDFLAGS=
  AC_SUBST([FUZZ_LDFLAGS])
  AS_IF([test "x$enable_fuzz" = xyes], [
    x_ac_instrumented=yes
    X_AC_CC_FLAG([-fsanitize=fuzzer-no-link], [DDP_CFLAGS], [],
      [AC_MSG_ERROR(m4_normalize([
        --enable-fuzz: $CC has no -fsanitize=fuzzer; configure with CC=clang
        and install libclang-rt-dev]))])
    FUZZ_LDFLAGS=-fsanitize=fuzzer
  ])
  AM_CONDITIONAL([ENABLE_FUZZ], [test "x$enable_fuzz" = xyes])

  AS_IF([test "x$enable_coverage" = xyes], [
    X_AC_CC_FLAG([--coverage], [DDP_CFLAGS],
      [AS_VAR_APPEND([DDP_LDFLAGS], [" --coverage"])],
      [AC_MSG_ERROR([--enable-coverage: $CC has no --coverage; use gcc, or clang with libclang-rt-dev])])
  ])
])
