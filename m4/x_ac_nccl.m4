# SPDX-License-Identifier: Apache-2.0

# X_AC_NCCL: find NCCL, for collectives between GPUs. Call it after X_AC_CUDA, whose headers it includes and whose
# prefix often contains it.
AC_DEFUN([X_AC_NCCL], [
  X_AC_COMPONENT_ARG([nccl], [NCCL], [collectives between GPUs])
  AS_CASE([$with_nccl:$x_ac_cuda_found],
    [no:*|check:*|*:yes], [],
    [AC_MSG_ERROR(m4_normalize([
      --with-nccl: NCCL needs CUDA, which is off or was not found; install the CUDA toolkit
      (Debian: nvidia-cuda-toolkit) and give --with-cuda, or configure --without-nccl]))])
  AS_IF([test "x$with_nccl" != xno && test "$x_ac_cuda_found" = yes], [
    X_AC_COMPONENT_PREFIXES([nccl], [x_ac_prefixes], [$x_ac_cuda_prefix])
    NCCL_CPPFLAGS=$CUDA_CPPFLAGS
    X_AC_COMPONENT_FIND([nccl], [NCCL], [$x_ac_prefixes],
      [nccl.h], [[int v; (void)ncclGetVersion(&v);]], [-lnccl])
    AS_IF([test "$x_ac_nccl_found" = yes], [
      X_AC_COMPONENT_VERSION([nccl], [NCCL], [nccl.h], [%d.%d.%d],
        [NCCL_MAJOR], [NCCL_MINOR], [NCCL_PATCH])
      # Before 2.24.3, nccl.h has no ncclBfloat16 for C.
      AS_VERSION_COMPARE([$x_ac_nccl_version], [2.24.3], [
        x_ac_nccl_found=no
        x_ac_nccl_missing="NCCL 2.24.3 or newer ($x_ac_nccl_where is of $x_ac_nccl_version)"
      ])
    ])
  ])
  X_AC_COMPONENT_RESULT([nccl], [NCCL], [NCCL], [nccl.h and libnccl],
    [install NCCL with its headers (Debian: libnccl-dev)])
])
