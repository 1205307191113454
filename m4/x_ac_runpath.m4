# SPDX-License-Identifier: Apache-2.0

# X_AC_RUNPATH: set DDP_RUNPATH to the flag with which installed programs find libddp relative to their own file, so
# that the prefix can be moved; empty if libdir is a system directory. Call it after LT_INIT, whose absolute paths
# (-rpath and LD_RUN_PATH) it disables, and after X_AC_HARDENING.
AC_DEFUN([X_AC_RUNPATH], [
  AC_MSG_CHECKING([for the path from programs to libraries])
  hardcode_libdir_flag_spec=
  hardcode_libdir_flag_spec_CXX=
  runpath_var=
  X_AC_EXPAND([x_ac_bindir], [$bindir])
  X_AC_EXPAND([x_ac_libdir], [$libdir])
  AS_CASE([$x_ac_libdir],
    [/lib|/lib/*|/lib64|/lib64/*|/usr/lib|/usr/lib/*|/usr/lib64|/usr/lib64/*],
      [DDP_RUNPATH=
       AC_MSG_RESULT([system default])],
    [x_ac_path=`realpath -ms --relative-to="$x_ac_bindir" "$x_ac_libdir"`
     AS_IF([test "x$x_ac_path" = x], [AC_MSG_ERROR([realpath of coreutils is needed, version 8.23 or newer])])
     # Quoted once for make, once for the shell.
     DDP_RUNPATH="-Wl,--enable-new-dtags,-rpath,'\$\$ORIGIN/$x_ac_path'"
     AC_MSG_RESULT([$x_ac_path])])
  AC_SUBST([DDP_RUNPATH])
  AC_ARG_VAR([MODULE_LDFLAGS], [linker flags for the modules of libddp])
])
