# SPDX-License-Identifier: Apache-2.0

# X_AC_EXPAND(VARIABLE, TEXT): set VARIABLE to TEXT with ${prefix} and similar variables replaced, as in make.
AC_DEFUN([X_AC_EXPAND], [
  $1=`(
    test "x$prefix" != xNONE || prefix=$ac_default_prefix
    test "x$exec_prefix" != xNONE || exec_prefix=$prefix
    text="$2"
    while :; do
      eval "next=\"$text\""
      test "$next" != "$text" || break
      text=$next
    done
    AS_ECHO(["$text"])
  )`
])

# X_AC_SUMMARY_ROW(name, TITLE): print one line of the table of components.
AC_DEFUN([X_AC_SUMMARY_ROW], [
  AS_IF([test "$x_ac_$1_found" = yes],
    [printf '  %-12s %-6s %-10s %s\n' '$2' yes "$x_ac_$1_version" "$x_ac_$1_where"],
    [printf '  %-12s %-6s %-10s %s\n' '$2' no - -])
])

# X_AC_SUMMARY: print the result of configure.
AC_DEFUN([X_AC_SUMMARY], [
  X_AC_EXPAND([x_ac_prefix], [$prefix])
  AS_IF([test "x$x_ac_prefix" = xNONE], [x_ac_prefix=$ac_default_prefix])
  X_AC_EXPAND([x_ac_plugindir], [$slurmplugindir])
  X_AC_EXPAND([x_ac_plugstackdir], [$plugstackdir])
  AS_IF([test "$x_ac_slurm_found" = no], [
    x_ac_plugindir='- (no plugin: --without-slurm)'
    x_ac_plugstackdir=-
  ])

  printf '\n%s %s\n\n' "$PACKAGE_NAME" "$PACKAGE_VERSION"
  printf '  %-12s %-6s %-10s %s\n' component found version where
  X_AC_SUMMARY_ROW([slurm], [Slurm])
  X_AC_SUMMARY_ROW([cuda], [CUDA])
  X_AC_SUMMARY_ROW([nccl], [NCCL])
  X_AC_SUMMARY_ROW([cudnn], [cuDNN])
  X_AC_SUMMARY_ROW([mpi], [MPI])
  X_AC_SUMMARY_ROW([pmix], [PMIx])
  X_AC_SUMMARY_ROW([onednn], [oneDNN])
  X_AC_SUMMARY_ROW([check], [Check])
  printf '\n'
  printf '  %-12s %s\n' \
    prefix "$x_ac_prefix" \
    plugin "$x_ac_plugindir" \
    plugstack "$x_ac_plugstackdir" \
    compiler "$CC" \
    CPPFLAGS "`AS_ECHO(["$DDP_CPPFLAGS $CPPFLAGS"]) | $SED 's/^ *//;s/ *$//'`" \
    CFLAGS "`AS_ECHO(["$DDP_CFLAGS $CFLAGS"]) | $SED 's/^ *//;s/ *$//'`" \
    LDFLAGS "`AS_ECHO(["$DDP_LDFLAGS $LDFLAGS"]) | $SED 's/^ *//;s/ *$//'`" \
    'GPU code' "$x_ac_nvcc_code" \
    emulation "$x_ac_cxx" \
    sanitizers "$enable_sanitize" \
    fuzzing "$enable_fuzz" \
    coverage "$enable_coverage"
  printf '\n'
])
