# SPDX-License-Identifier: Apache-2.0

# Macros for optional components. The file of a component calls X_AC_COMPONENT_ARG (--with-NAME), X_AC_COMPONENT_FIND
# (search) and X_AC_COMPONENT_RESULT, in this order, with its headers, libraries and version.
# Shell variables: with_NAME (check, yes, no or a prefix), x_ac_NAME_found (yes or no),
# x_ac_NAME_version, x_ac_NAME_where, x_ac_NAME_missing (if not HEADER and library),
# NAME_CPPFLAGS, NAME_LIBS.

# X_AC_COMPONENT_ARG(name, TITLE, PURPOSE)
AC_DEFUN([X_AC_COMPONENT_ARG], [
  AC_ARG_WITH([$1],
    [AS_HELP_STRING([--with-$1@<:@=PREFIX@:>@], [$2, for $3 @<:@default: if found@:>@])],
    [], [with_$1=check])
  AS_IF([test "x$with_$1" = x], [with_$1=yes])
  x_ac_$1_found=no
  x_ac_$1_version=
  x_ac_$1_where=
  x_ac_$1_missing=
])

# X_AC_COMPONENT_PREFIXES(name, VARIABLE, [DEFAULTS])
# Set VARIABLE to the prefixes to search: the one that was given, or `system' (the default paths of compiler and
# linker) and DEFAULTS.
AC_DEFUN([X_AC_COMPONENT_PREFIXES], [
  AS_CASE([$with_$1],
    [/usr], [$2=system],
    [check|yes], [$2="system $3"],
    [$2=$with_$1])
])

# X_AC_COMPONENT_FIND(name, NAME, PREFIXES, HEADER, CALL, LIBS, [PKG-CONFIG-MODULE])
# Link a program with HEADER, CALL and LIBS, with each of PREFIXES in turn; if no prefix was given, try
# pkg-config first. The first success sets NAME_CPPFLAGS and NAME_LIBS. Flags that NAME_CPPFLAGS already has, for
# what the component depends on, are kept.
AC_DEFUN([X_AC_COMPONENT_FIND], [
  x_ac_save_CPPFLAGS=$CPPFLAGS
  x_ac_save_LIBS=$LIBS
  x_ac_needs=$$2_CPPFLAGS
  m4_ifnblank([$7], [
    AS_IF([test "x$with_$1" = xcheck || test "x$with_$1" = xyes], [
      PKG_CHECK_EXISTS([$7], [
        $2_CPPFLAGS=`$PKG_CONFIG --cflags $7`
        $2_LIBS=`$PKG_CONFIG --libs $7`
        X_AC_COMPONENT_TRY([$1], [$2], [$4], [$5])
      ])
    ])
  ])
  for x_ac_prefix in $3; do
    for x_ac_lib in lib64 lib lib/`$CC -print-multiarch 2>/dev/null`; do
      test "$x_ac_$1_found" = no || break 2
      AS_IF([test "$x_ac_prefix" = system],
        [$2_CPPFLAGS=$x_ac_needs
         $2_LIBS="$6"],
        [# Otherwise a wrong prefix would be accepted if the system has another copy.
         test -f "$x_ac_prefix/include/$4" || break 2
         set x "$x_ac_prefix/$x_ac_lib/lib"m4_bpatsubst([$6], [^-l\([^ ]*\).*], [\1])[.*]
         test -e "@S|@2" || continue
         $2_CPPFLAGS="-I$x_ac_prefix/include $x_ac_needs"
         $2_LIBS="-L$x_ac_prefix/$x_ac_lib $6"])
      X_AC_COMPONENT_TRY([$1], [$2], [$4], [$5])
    done
  done
])

# X_AC_COMPONENT_TRY(name, NAME, HEADER, CALL): one attempt; internal.
AC_DEFUN([X_AC_COMPONENT_TRY], [
  CPPFLAGS="$$2_CPPFLAGS $x_ac_save_CPPFLAGS"
  LIBS="$$2_LIBS $x_ac_save_LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <$3>]], [$4])], [x_ac_$1_found=yes])
  CPPFLAGS=$x_ac_save_CPPFLAGS
  LIBS=$x_ac_save_LIBS
])

# X_AC_COMPONENT_VERSION(name, NAME, HEADER, FORMAT, EXPRESSION...)
# Set x_ac_NAME_version from integer constant expressions of HEADER, without running a program in a cross build,
# and x_ac_NAME_where from the path of HEADER.
AC_DEFUN([X_AC_COMPONENT_VERSION], [
  x_ac_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$$2_CPPFLAGS $CPPFLAGS"
  x_ac_numbers=
  m4_foreach([x_expression], m4_dquote(m4_shift2(m4_shift2($@))), [
    AC_COMPUTE_INT([x_ac_number], m4_defn([x_expression]), [[#include <$3>]], [x_ac_number=0])
    AS_VAR_APPEND([x_ac_numbers], [" $x_ac_number"])
  ])
  x_ac_$1_version=`printf '$4' $x_ac_numbers`
  X_AC_HEADER_PATH([x_ac_$1_where], [$3])
  CPPFLAGS=$x_ac_save_CPPFLAGS
])

# X_AC_HEADER_PATH(VARIABLE, HEADER): set VARIABLE to the path at which the preprocessor finds HEADER.
AC_DEFUN([X_AC_HEADER_PATH], [
  AC_LANG_CONFTEST([AC_LANG_SOURCE([[#include <$2>]])])
  $1=`$CC -E $CPPFLAGS conftest.$ac_ext 2>/dev/null |
    $SED -n 's|^[[#]] 1 "\(/.*$2\)".*|\1|p' | $SED 1q`
  rm -f conftest.$ac_ext
])

# X_AC_COMPONENT_RESULT(name, NAME, TITLE, WHAT, REMEDY)
# Define HAVE_NAME for C and make, substitute the flags, and fail if the component was requested but not found.
AC_DEFUN([X_AC_COMPONENT_RESULT], [
  AC_MSG_CHECKING([for $3])
  AS_IF([test "$x_ac_$1_found" = yes],
    [AC_MSG_RESULT([$x_ac_$1_version ($x_ac_$1_where)])
     AC_DEFINE([HAVE_$2], [1], [Define to 1 if $3 is to be used.])],
    [AC_MSG_RESULT([no${x_ac_$1_missing:+: $x_ac_$1_missing not found}])
     $2_CPPFLAGS=
     $2_LIBS=
     AS_CASE([$with_$1],
       [no|check], [],
       [yes], [AC_MSG_ERROR([--with-$1: ${x_ac_$1_missing:-m4_normalize([$4])} not found; m4_normalize([$5]), or give --with-$1=PREFIX, or configure --without-$1])],
       [AC_MSG_ERROR([--with-$1=$with_$1: ${x_ac_$1_missing:-m4_normalize([$4])} not found under $with_$1; m4_normalize([$5]), or correct the prefix, or configure --without-$1])])])
  AC_SUBST([$2_CPPFLAGS])
  AC_SUBST([$2_LIBS])
  AM_CONDITIONAL([HAVE_$2], [test "$x_ac_$1_found" = yes])
])
