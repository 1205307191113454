# SPDX-License-Identifier: Apache-2.0

# X_AC_ZLIB: find zlib, to read data sets as downloaded, in gzip format.
AC_DEFUN([X_AC_ZLIB], [
  X_AC_COMPONENT_ARG([zlib], [zlib], [data sets that are gzipped])
  AS_IF([test "x$with_zlib" != xno], [
    X_AC_COMPONENT_PREFIXES([zlib], [x_ac_prefixes], [])
    X_AC_COMPONENT_FIND([zlib], [ZLIB], [$x_ac_prefixes],
      [zlib.h], [[(void)zlibVersion();]], [-lz], [zlib])
    AS_IF([test "$x_ac_zlib_found" = yes], [
      X_AC_COMPONENT_VERSION([zlib], [ZLIB], [zlib.h],
        [%d.%d.%d], [ZLIB_VER_MAJOR], [ZLIB_VER_MINOR], [ZLIB_VER_REVISION])
    ])
  ])
  X_AC_COMPONENT_RESULT([zlib], [ZLIB], [zlib], [zlib.h and libz],
    [install zlib with its headers (Debian: zlib1g-dev)])
])
