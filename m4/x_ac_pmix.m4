# SPDX-License-Identifier: Apache-2.0

# X_AC_PMIX: find PMIx, a method of rendezvous.
AC_DEFUN([X_AC_PMIX], [
  X_AC_COMPONENT_ARG([pmix], [PMIx], [rendezvous through the resource manager])
  AS_IF([test "x$with_pmix" != xno], [
    X_AC_COMPONENT_PREFIXES([pmix], [x_ac_prefixes], [/opt/pmix])
    X_AC_COMPONENT_FIND([pmix], [PMIX], [$x_ac_prefixes],
      [pmix.h], [[PMIx_Get_version();]], [-lpmix], [pmix])
    AS_IF([test "$x_ac_pmix_found" = yes], [
      X_AC_COMPONENT_VERSION([pmix], [PMIX], [pmix_version.h], [%d.%d.%d],
        [PMIX_VERSION_MAJOR], [PMIX_VERSION_MINOR], [PMIX_VERSION_RELEASE])
    ])
  ])
  X_AC_COMPONENT_RESULT([pmix], [PMIX], [PMIx], [pmix.h and libpmix],
    [install PMIx with its headers (Debian: libpmix-dev)])
])
