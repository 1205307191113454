# SPDX-License-Identifier: Apache-2.0

# X_AC_CHECK: find Check, the unit test framework.
AC_DEFUN([X_AC_CHECK], [
  PKG_CHECK_MODULES([CHECK], [check >= 0.11],
    [x_ac_check_found=yes
     x_ac_check_version=`$PKG_CONFIG --modversion check`
     x_ac_check_where=`$PKG_CONFIG --variable=includedir check`/check.h],
    [x_ac_check_found=no])
  AM_CONDITIONAL([HAVE_CHECK], [test "$x_ac_check_found" = yes])
])
