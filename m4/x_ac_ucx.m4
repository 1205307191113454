# SPDX-License-Identifier: Apache-2.0

# X_AC_UCX: UCP, which moves host memory between nodes.
AC_DEFUN([X_AC_UCX], [
  X_AC_COMPONENT_ARG([ucx], [UCX], [host memory between nodes])
  AS_IF([test "x$with_ucx" != xno], [
    X_AC_COMPONENT_PREFIXES([ucx], [x_ac_prefixes], [/opt/ucx])
    X_AC_COMPONENT_FIND([ucx], [UCX], [$x_ac_prefixes],
      [ucp/api/ucp.h], [[ucp_get_version(0, 0, 0);]], [-lucp -lucs], [ucx])
    AS_IF([test "$x_ac_ucx_found" = yes], [
      X_AC_COMPONENT_VERSION([ucx], [UCX], [ucp/api/ucp.h],
        [%d.%d], [UCP_API_MAJOR], [UCP_API_MINOR])
    ])
  ])
  X_AC_COMPONENT_RESULT([ucx], [UCX], [UCX], [ucp/api/ucp.h and libucp],
    [install UCX with its headers (Debian: libucx-dev)])
])
