# SPDX-License-Identifier: Apache-2.0

# X_AC_ONEDNN: find oneDNN, for training on CPUs. Its C API is dnnl.h in every version.
AC_DEFUN([X_AC_ONEDNN], [
  X_AC_COMPONENT_ARG([onednn], [oneDNN], [training on CPUs])
  AS_IF([test "x$with_onednn" != xno], [
    X_AC_COMPONENT_PREFIXES([onednn], [x_ac_prefixes], [/opt/onednn /opt/intel/oneapi/dnnl/latest])
    X_AC_COMPONENT_FIND([onednn], [ONEDNN], [$x_ac_prefixes],
      [oneapi/dnnl/dnnl.h], [[(void)dnnl_version();]], [-ldnnl])
    AS_IF([test "$x_ac_onednn_found" = yes], [
      X_AC_COMPONENT_VERSION([onednn], [ONEDNN], [oneapi/dnnl/dnnl_version.h],
        [%d.%d.%d], [DNNL_VERSION_MAJOR], [DNNL_VERSION_MINOR], [DNNL_VERSION_PATCH])
    ])
  ])
  X_AC_COMPONENT_RESULT([onednn], [ONEDNN], [oneDNN], [oneapi/dnnl/dnnl.h and libdnnl],
    [install oneDNN 2.0 or newer with its headers (Debian: libdnnl-dev)])
])
