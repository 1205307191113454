# SPDX-License-Identifier: Apache-2.0

# X_AC_WARNINGS
# Set the C standard and warnings. --enable-werror is for CI only, since a new compiler's warnings must not break a
# user's build.
AC_DEFUN([X_AC_WARNINGS], [
  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [treat compiler warnings as errors])],
    [], [enable_werror=no])

  AC_SUBST([DDP_CPPFLAGS])
  AC_SUBST([DDP_CFLAGS])
  AC_SUBST([DDP_LDFLAGS])

  X_AC_CC_FLAG([-std=gnu11], [DDP_CFLAGS], [],
    [AC_MSG_ERROR([$CC has no -std=gnu11; use gcc 4.9 or clang 3.6 or newer])])
  m4_foreach_w([flag],
    [-Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
     -Wformat=2 -Wvla -Wundef],
    [X_AC_CC_FLAG(flag, [DDP_CFLAGS])])
  AS_IF([test "x$enable_werror" = xyes], [AS_VAR_APPEND([DDP_CFLAGS], [" -Werror"])])
])
