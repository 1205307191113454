# SPDX-License-Identifier: Apache-2.0

# X_AC_DLOPEN: set DL_LIBS to the libraries that a program needs to call dlopen.
AC_DEFUN([X_AC_DLOPEN], [
  x_ac_save_LIBS=$LIBS
  AC_SEARCH_LIBS([dlopen], [dl], [], [AC_MSG_ERROR([dlopen not found in libc or libdl])])
  LIBS=$x_ac_save_LIBS
  DL_LIBS=$ac_cv_search_dlopen
  AS_IF([test "x$DL_LIBS" = "xnone required"], [DL_LIBS=])
  AC_SUBST([DL_LIBS])
])
