# SPDX-License-Identifier: Apache-2.0

# X_AC_SLURM: find the headers for the plugin, and the directory in which it is installed. libslurm is not needed:
# the plugin's undefined symbols are resolved in the host process. Slurm loads only plugins with its own
# major.minor version, SLURM_MAJOR_MINOR. X_AC_SLURM_ARGS parses the options, and can run before the compiler tests.
AC_DEFUN([X_AC_SLURM_ARGS], [
  AC_ARG_WITH([slurm],
    [AS_HELP_STRING([--with-slurm@<:@=PREFIX@:>@],
      [Slurm, for the plugin; --without-slurm builds the rest])],
    [], [with_slurm=yes])
  AC_ARG_WITH([slurm-plugindir],
    [AS_HELP_STRING([--with-slurm-plugindir=DIR],
      [directory of Slurm's plugins @<:@default: Slurm's own@:>@])],
    [X_AC_NEED_DIRECTORY([slurm-plugindir])
     slurmplugindir=$withval], [slurmplugindir=])
  AC_ARG_WITH([plugstackdir],
    [AS_HELP_STRING([--with-plugstackdir=DIR],
      [directory of zz-ddp.conf @<:@SYSCONFDIR/slurm/plugstack.conf.d@:>@])],
    [X_AC_NEED_DIRECTORY([plugstackdir])
     plugstackdir=$withval], [plugstackdir='${sysconfdir}/slurm/plugstack.conf.d'])
])

AC_DEFUN([X_AC_SLURM], [
  x_ac_slurm_found=no
  x_ac_slurm_version=
  x_ac_slurm_where=
  SLURM_CPPFLAGS=
  AC_MSG_CHECKING([for Slurm])
  AS_IF([test "x$with_slurm" = xno], [AC_MSG_RESULT([no])], [
    X_AC_SLURM_HEADERS
    X_AC_SLURM_VERSION
    AC_MSG_RESULT([$x_ac_slurm_version ($x_ac_slurm_where)])
    X_AC_SLURM_INSTALLED
    AS_IF([test "x$slurmplugindir" = x], [X_AC_SLURM_PLUGINDIR])
  ])

  AC_SUBST([SLURM_CPPFLAGS])
  AC_SUBST([SLURM_VERSION], [$x_ac_slurm_version])
  AC_SUBST([SLURM_MAJOR_MINOR])
  AC_SUBST([slurmplugindir])
  AC_SUBST([plugstackdir])
  AM_CONDITIONAL([HAVE_SLURM], [test "$x_ac_slurm_found" = yes])
])

AC_DEFUN([X_AC_SLURM_HEADERS], [
  AS_CASE([$with_slurm],
    [yes], [PKG_CHECK_EXISTS([slurm], [SLURM_CPPFLAGS=`$PKG_CONFIG --cflags-only-I slurm`])],
    [/usr], [],
    [SLURM_CPPFLAGS="-I$with_slurm/include"])
  # Use them as system headers, to suppress warnings about them.
  SLURM_CPPFLAGS=`AS_ECHO(["$SLURM_CPPFLAGS"]) | $SED 's/-I */-isystem /g'`
  x_ac_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$SLURM_CPPFLAGS $CPPFLAGS"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <slurm/slurm_version.h>
#include <slurm/spank.h>
]], [[]])], [x_ac_slurm_found=yes])
  X_AC_HEADER_PATH([x_ac_slurm_where], [slurm/spank.h])
  CPPFLAGS=$x_ac_save_CPPFLAGS
  # The compiler also searches its default directories, so with a prefix without headers it may have found those
  # of another Slurm.
  AS_CASE([$with_slurm:$x_ac_slurm_where],
    [yes:*|/usr:*|"$with_slurm":"$with_slurm"/*], [],
    [x_ac_slurm_found=no])
  AS_IF([test "$x_ac_slurm_found" = no], [
    AC_MSG_RESULT([no])
    AS_CASE([$with_slurm],
      [yes], [AC_MSG_ERROR(m4_normalize([
        slurm/spank.h and slurm/slurm_version.h not found; install Slurm's headers
        (Debian: libslurm-dev), or give --with-slurm=PREFIX, or configure --without-slurm
        to build all but the plugin]))],
      [AC_MSG_ERROR(m4_normalize([
        --with-slurm=$with_slurm: slurm/spank.h and slurm/slurm_version.h not found under
        $with_slurm/include; install Slurm's headers (Debian: libslurm-dev) or correct the prefix]))])
  ])
])

AC_DEFUN([X_AC_SLURM_VERSION], [
  x_ac_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$SLURM_CPPFLAGS $CPPFLAGS"
  AC_COMPUTE_INT([x_ac_number], [SLURM_VERSION_NUMBER],
    [[#include <slurm/slurm_version.h>]],
    [AC_MSG_ERROR([slurm/slurm_version.h has no SLURM_VERSION_NUMBER; reinstall Slurm's headers])])
  CPPFLAGS=$x_ac_save_CPPFLAGS
  SLURM_MAJOR_MINOR=`printf '%d.%02d' $((x_ac_number >> 16 & 255)) $((x_ac_number >> 8 & 255))`
  x_ac_slurm_version=$SLURM_MAJOR_MINOR.$((x_ac_number & 255))
  # 21.08 is the first release with the error codes and the version check on which the plugin relies.
  AS_IF([test "$x_ac_number" -lt $((21 << 16 | 8 << 8))],
    [AC_MSG_ERROR([Slurm $x_ac_slurm_version is too old; the plugin needs 21.08 or newer])])
])

# A plugin built with another Slurm's headers would fail in every srun: warn about that here.
AC_DEFUN([X_AC_SLURM_INSTALLED], [
  AS_IF([test "x$cross_compiling" != xyes], [
    AS_CASE([$with_slurm],
      [yes], [x_ac_slurm_bin=$PATH],
      [x_ac_slurm_bin=$with_slurm/bin])
    AC_PATH_PROG([x_ac_scontrol], [scontrol], [], [$x_ac_slurm_bin])
    AS_IF([test "x$x_ac_scontrol" != x], [
      x_ac_installed=`"$x_ac_scontrol" --version 2>/dev/null | $SED -n 's/^slurm[[^ ]]* //p'`
      AS_CASE([$x_ac_installed],
        [""|"$SLURM_MAJOR_MINOR".*], [],
        [AC_MSG_WARN([$x_ac_scontrol is Slurm $x_ac_installed, which will refuse a plugin built for $SLURM_MAJOR_MINOR])])
    ])
  ])
])

AC_DEFUN([X_AC_SLURM_PLUGINDIR], [
  AC_MSG_CHECKING([for Slurm's plugin directory])
  AS_CASE([$with_slurm],
    [yes|/usr], [
      x_ac_multiarch=`$CC -print-multiarch 2>/dev/null`
      slurmplugindir=`$PKG_CONFIG --variable=plugindir slurm 2>/dev/null`
      x_ac_libdir=`$PKG_CONFIG --variable=libdir slurm 2>/dev/null`
      x_ac_dirs="${x_ac_libdir:+$x_ac_libdir/slurm} /usr/lib/$x_ac_multiarch/slurm-wlm
        /usr/lib/$x_ac_multiarch/slurm /usr/lib64/slurm /usr/lib/slurm /usr/lib/slurm-wlm
        /usr/local/lib/slurm"],
    [x_ac_dirs="$with_slurm/lib64/slurm $with_slurm/lib/slurm"])
  # This plugin is part of every Slurm, so a directory without it does not belong to Slurm.
  for x_ac_dir in $x_ac_dirs; do
    test "x$slurmplugindir" = x || break
    test ! -e "$x_ac_dir/auth_none.so" && test ! -e "$x_ac_dir/cred_none.so" &&
      test ! -e "$x_ac_dir/select_cons_tres.so" || slurmplugindir=$x_ac_dir
  done
  AS_IF([test "x$slurmplugindir" = x],
    [slurmplugindir='${libdir}/slurm'
     AC_MSG_RESULT([none found, using $slurmplugindir])],
    [AC_MSG_RESULT([$slurmplugindir])])
])
