# SPDX-License-Identifier: Apache-2.0

# X_AC_NEED_DIRECTORY(name): check that the value of --with-NAME is an absolute path, or begins with a make variable.
AC_DEFUN([X_AC_NEED_DIRECTORY], [
  AS_CASE([$withval], [[[/$]]*], [],
    [yes|no], [AC_MSG_ERROR([--with-$1 needs a directory: --with-$1=DIR])],
    [AC_MSG_ERROR([--with-$1=$withval: give an absolute directory])])
])

# X_AC_PKG_CONFIG: require pkg-config; without it, installed components would not be found.
AC_DEFUN([X_AC_PKG_CONFIG], [
  PKG_PROG_PKG_CONFIG
  AS_IF([test "x$PKG_CONFIG" = x],
    [AC_MSG_ERROR([pkg-config not found, which is needed to find Slurm, PMIx, Check and others; install it (Debian: pkg-config), or set PKG_CONFIG to its path])])
])
