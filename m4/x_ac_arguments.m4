# SPDX-License-Identifier: Apache-2.0

# X_AC_NEED_DIRECTORY(name): the value of --with-NAME is an absolute path, or begins with one of make's variables.
AC_DEFUN([X_AC_NEED_DIRECTORY], [
  AS_CASE([$withval], [[[/$]]*], [],
    [yes|no], [AC_MSG_ERROR([--with-$1 needs a directory: --with-$1=DIR])],
    [AC_MSG_ERROR([--with-$1=$withval: give an absolute directory])])
])

# X_AC_PKG_CONFIG: without it, components that are installed would not be found.
AC_DEFUN([X_AC_PKG_CONFIG], [
  PKG_PROG_PKG_CONFIG
  AS_IF([test "x$PKG_CONFIG" = x],
    [AC_MSG_ERROR([pkg-config not found, which finds Slurm, PMIx, Check and others; install it (Debian: pkg-config), or set PKG_CONFIG to its path])])
])
