# SPDX-License-Identifier: Apache-2.0

# X_AC_PROG_CXX: AC_PROG_CXX, but if CC is a clang, prefer the matching clang++: instrumented objects of two
# compilers cannot be linked together.
AC_DEFUN([X_AC_PROG_CXX], [
  AS_CASE([$CXX:$CC], [:*clang*], [
    x_ac_sister=`AS_ECHO(["$CC"]) | $SED 's/clang/clang++/'`
    AS_IF([command -v $x_ac_sister >/dev/null 2>&1], [CXX=$x_ac_sister])
  ])
  AC_PROG_CXX
])

# X_AC_CXX: find a C++ compiler, used only for tests that compile the GPU engine's kernels for the host. Call it
# after X_AC_SANITIZE. Sets DDP_CXXFLAGS, x_ac_cxx (for the summary) and the conditional HAVE_CXX, which is false
# if these tests cannot run: the threads of a kernel are fibers, which ThreadSanitizer does not support.
AC_DEFUN([X_AC_CXX], [
  DDP_CXXFLAGS="-std=gnu++17 -Wall -Wextra -fvisibility=hidden"
  AC_SUBST([DDP_CXXFLAGS])
  AS_IF([test "x$enable_werror" = xyes], [AS_VAR_APPEND([DDP_CXXFLAGS], [" -Werror"])])
  AS_IF([test "x$enable_sanitize" != xno], [
    AS_VAR_APPEND([DDP_CXXFLAGS],
      [" -fsanitize=$enable_sanitize -fno-sanitize-recover=all -fno-omit-frame-pointer"])
  ])
  AS_IF([test "x$enable_coverage" = xyes], [AS_VAR_APPEND([DDP_CXXFLAGS], [" --coverage"])])
  AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#ifndef __clang__
#error
#endif
int unused;
]])], [x_ac_cc_family=clang], [x_ac_cc_family=other])
  AC_MSG_CHECKING([whether kernels can be compiled for the host])
  AC_LANG_PUSH([C++])
  x_ac_save_CXXFLAGS=$CXXFLAGS
  CXXFLAGS="$CXXFLAGS $DDP_CXXFLAGS"
  x_ac_cxx=no
  AC_LINK_IFELSE(
    [AC_LANG_PROGRAM([[#include <functional>
#include <tuple>
#include <ucontext.h>]],
      [[std::function<int()> f = [] { return std::get<0>(std::make_tuple(1)); };
        ucontext_t c;
        return getcontext(&c) + f();]])],
    [x_ac_cxx=yes])
  CXXFLAGS=$x_ac_save_CXXFLAGS
  AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#ifndef __clang__
#error
#endif
int unused;
]])], [x_ac_cxx_family=clang], [x_ac_cxx_family=other])
  AC_LANG_POP([C++])
  AS_IF([test $x_ac_cxx = no],
    [x_ac_cxx="no (needs a C++17 compiler; Debian: g++)"])
  AS_CASE([$enable_sanitize], [*thread*|*memory*],
    [x_ac_cxx="no (not with --enable-sanitize=$enable_sanitize)"])
  AS_CASE([$enable_sanitize$enable_coverage:$x_ac_cc_family:$x_ac_cxx_family],
    [nono:*|*:clang:clang|*:other:other], [],
    [x_ac_cxx="no (objects of $CC and $CXX cannot be linked in an instrumented build)"])
  AC_MSG_RESULT([$x_ac_cxx])
  AM_CONDITIONAL([HAVE_CXX], [test "x$x_ac_cxx" = xyes])
])
