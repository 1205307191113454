# SPDX-License-Identifier: Apache-2.0

# X_AC_HARDENING
# The plugin runs as root inside slurmstepd, so use a distribution's hardening flags even if the user sets no
# flags. Call it after X_AC_SANITIZE.
AC_DEFUN([X_AC_HARDENING], [
  m4_foreach_w([flag],
    [-fstack-protector-strong -fstack-clash-protection -fcf-protection -fvisibility=hidden],
    [X_AC_CC_FLAG(flag, [DDP_CFLAGS])])
  X_AC_LD_FLAG([-Wl,-z,relro], [DDP_LDFLAGS])
  X_AC_LD_FLAG([-Wl,-z,now], [DDP_LDFLAGS])
  X_AC_LD_FLAG([-Wl,-z,noexecstack], [DDP_LDFLAGS])

  # For modules: a module must be linked with everything it needs, because the program that opens it may lack it. Not
  # with sanitizers, whose runtime is in the program.
  NO_UNDEFINED=
  AC_SUBST([NO_UNDEFINED])
  AS_IF([test "x$x_ac_instrumented" = xno], [X_AC_LD_FLAG([-Wl,-z,defs], [NO_UNDEFINED])])

  # glibc warns about _FORTIFY_SOURCE without optimisation; with it, sanitizers detect less; and a level that the
  # user sets takes precedence.
  AC_MSG_CHECKING([whether to define _FORTIFY_SOURCE])
  AS_IF([test "x$x_ac_instrumented" = xyes], [AC_MSG_RESULT([no, instrumented build])], [
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#if defined _FORTIFY_SOURCE || !defined __OPTIMIZE__
#error
#endif
int unused;
]])],
      [AC_MSG_RESULT([yes])
       AS_VAR_APPEND([DDP_CPPFLAGS], [" -D_FORTIFY_SOURCE=2"])],
      [AC_MSG_RESULT([no, not optimised or set already])])
  ])
])
