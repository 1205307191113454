# SPDX-License-Identifier: Apache-2.0

# X_AC_CC_FLAG(FLAGS, VARIABLE, [IF-ACCEPTED], [IF-REFUSED])
# Append FLAGS to VARIABLE if compiler and linker driver accept them without a warning: clang only warns about an
# unknown flag, gcc fails.
AC_DEFUN([X_AC_CC_FLAG], [
  AC_MSG_CHECKING([whether $CC takes $1])
  x_ac_save_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS -Werror $1"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
    [AC_MSG_RESULT([yes])
     AS_VAR_APPEND([$2], [" $1"])
     CFLAGS=$x_ac_save_CFLAGS
     $3],
    [AC_MSG_RESULT([no])
     CFLAGS=$x_ac_save_CFLAGS
     $4])
])

# X_AC_LD_FLAG(FLAG, VARIABLE)
# The same for a flag of the linker only.
AC_DEFUN([X_AC_LD_FLAG], [
  AC_MSG_CHECKING([whether the linker takes $1])
  x_ac_save_LDFLAGS=$LDFLAGS
  LDFLAGS="$LDFLAGS -Werror $1"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
    [AC_MSG_RESULT([yes])
     AS_VAR_APPEND([$2], [" $1"])],
    [AC_MSG_RESULT([no])])
  LDFLAGS=$x_ac_save_LDFLAGS
])
