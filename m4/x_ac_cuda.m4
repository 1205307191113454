# SPDX-License-Identifier: Apache-2.0

# X_AC_CUDA: find the CUDA runtime and nvcc. The build needs no driver.
# Sets x_ac_cuda_prefix (empty: default paths) for libraries that are installed in the same place.
AC_DEFUN([X_AC_CUDA], [
  X_AC_COMPONENT_ARG([cuda], [CUDA], [training on GPUs])
  AC_ARG_VAR([NVCC], [CUDA compiler])
  x_ac_cuda_prefix=
  AS_IF([test "x$with_cuda" != xno], [
    X_AC_CUDA_NVCC
    AS_CASE([$with_cuda],
      [check|yes], [
        # Use the toolkit of the nvcc in PATH, so that compiler and headers match.
        x_ac_prefixes=
        AS_CASE([$NVCC], [*/bin/nvcc], [x_ac_prefixes=`AS_DIRNAME(["$NVCC"])`/..])
        AS_CASE([$x_ac_prefixes], [?*], [x_ac_prefixes=`cd "$x_ac_prefixes" && pwd`])
        AS_CASE([$x_ac_prefixes], [/usr], [x_ac_prefixes=])
        x_ac_prefixes="$x_ac_prefixes system"],
      [X_AC_COMPONENT_PREFIXES([cuda], [x_ac_prefixes])])
    X_AC_COMPONENT_FIND([cuda], [CUDA], [$x_ac_prefixes],
      [cuda_runtime_api.h], [[int v; (void)cudaRuntimeGetVersion(&v);]], [-lcudart])
    AS_IF([test "x$NVCC" = x && test "$x_ac_cuda_found" = yes], [
      x_ac_cuda_found=no
      x_ac_cuda_missing=nvcc
    ])
    AS_IF([test "$x_ac_cuda_found" = yes], [
      AS_CASE([$CUDA_CPPFLAGS], [-I*], [
        x_ac_cuda_prefix=`AS_ECHO(["$CUDA_CPPFLAGS"]) | $SED 's|^-I\(.*\)/include *$|\1|'`])
      X_AC_COMPONENT_VERSION([cuda], [CUDA], [cuda_runtime_api.h], [%d.%d],
        [CUDART_VERSION / 1000], [CUDART_VERSION % 1000 / 10])
    ])
  ])
  X_AC_COMPONENT_RESULT([cuda], [CUDA], [CUDA], [cuda_runtime_api.h and libcudart],
    [install the CUDA toolkit (Debian: nvidia-cuda-toolkit)])
])

# Find nvcc in the given prefix, else in CUDA_HOME, PATH or the toolkit's usual directory.
AC_DEFUN([X_AC_CUDA_NVCC], [
  AS_CASE([$with_cuda],
    [check|yes],
      [AC_PATH_PROG([NVCC], [nvcc], [],
        [${CUDA_HOME:+$CUDA_HOME/bin$PATH_SEPARATOR}$PATH$PATH_SEPARATOR/usr/local/cuda/bin])],
    [AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin])])
])
