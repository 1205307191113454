# SPDX-License-Identifier: Apache-2.0

# X_AC_NVCC: choose the GPUs for which kernels are compiled, and check that nvcc works.
# Sets NVCC_CODE (options of nvcc), x_ac_nvcc_code (the same for the summary), x_ac_nvcc_works and HAVE_NVCC.
#
# By default nvcc generates code for one architecture, and PTX for the oldest, which the driver compiles for any
# other GPU when the module is first loaded.
AC_DEFUN([X_AC_NVCC], [
  AC_ARG_ENABLE([all-gpus],
    [AS_HELP_STRING([--enable-all-gpus],
      [compile kernels for every GPU that nvcc knows, as releases do])],
    [], [enable_all_gpus=no])
  AC_ARG_VAR([NVCC_ARCH],
    [GPUs to compile kernels for, such as "80 90" @<:@default: 90, and PTX of 75@:>@])
  AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags])
  test "x$NVCCFLAGS" != x || NVCCFLAGS='-O2 -lineinfo'
  NVCC_CODE=
  AC_SUBST([NVCC_CODE])
  x_ac_nvcc_code=-
  x_ac_nvcc_works=no
  AS_IF([test "$x_ac_cuda_found" = yes], [
    X_AC_NVCC_CODE
    X_AC_NVCC_WORKS
  ])
  AM_CONDITIONAL([HAVE_NVCC], [test "$x_ac_nvcc_works" = yes])
])

# With NVCC_ARCH, generate code for these GPUs only, without PTX.
AC_DEFUN([X_AC_NVCC_CODE], [
  x_ac_known=`"$NVCC" --list-gpu-arch 2>/dev/null | $SED -n 's/^compute_//p' | tr '\n' ' '`
  x_ac_oldest=`set x $x_ac_known; AS_ECHO(["@S|@2"])`
  x_ac_code=
  x_ac_ptx=
  AS_IF([test "x$NVCC_ARCH" != x], [x_ac_code=$NVCC_ARCH],
    [test "x$enable_all_gpus" != xno], [
      for x_ac_arch in 75 80 86 89 90 100 103 120; do
        AS_CASE([" $x_ac_known "], [*" $x_ac_arch "*], [
          AS_VAR_APPEND([x_ac_code], ["$x_ac_arch "])
          x_ac_ptx=$x_ac_arch
        ])
      done
    ], [
      x_ac_ptx=$x_ac_oldest
      AS_CASE([" $x_ac_known "], [*" 90 "*], [x_ac_code=90])
    ])
  for x_ac_arch in $x_ac_code; do
    AS_VAR_APPEND([NVCC_CODE], [" -gencode arch=compute_$x_ac_arch,code=sm_$x_ac_arch"])
  done
  AS_IF([test "x$x_ac_ptx" != x], [
    AS_VAR_APPEND([NVCC_CODE], [" -gencode arch=compute_$x_ac_ptx,code=compute_$x_ac_ptx"])
  ])
  x_ac_nvcc_code=`AS_ECHO(["sm $x_ac_code${x_ac_ptx:+, PTX $x_ac_ptx}"]) | $SED 's/ *,/,/'`
])

AC_DEFUN([X_AC_NVCC_WORKS], [
  AC_MSG_CHECKING([whether $NVCC compiles for $x_ac_nvcc_code])
  cat >conftest.cu <<'_ACEOF'
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <typename T> static __global__ void zero(T *to) { *to = T(); }
void run(float *to);
void run(float *to) { zero<<<1, 1>>>(to); }
_ACEOF
  AS_IF([("$NVCC" -std=c++17 $NVCC_CODE $NVCCFLAGS -Xcompiler -fPIC -c -o conftest.$ac_objext \
      conftest.cu) >&AS_MESSAGE_LOG_FD 2>&1],
    [AC_MSG_RESULT([yes])
     x_ac_nvcc_works=yes],
    [AC_MSG_RESULT([no; see config.log])
     x_ac_nvcc_code=-
     AS_IF([test "x$NVCC_ARCH" != x], [AC_MSG_ERROR(m4_normalize([
       NVCC_ARCH=$NVCC_ARCH: $NVCC cannot compile for these; it knows $x_ac_known]))])])
  rm -f conftest.cu conftest.$ac_objext
])
