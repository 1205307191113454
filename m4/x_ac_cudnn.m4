# SPDX-License-Identifier: Apache-2.0

# X_AC_CUDNN: find what the trainer's GPU engine needs in addition to CUDA: cuDNN, cublasLt, and an nvcc that works.
# Call it after X_AC_CUDA, whose prefix is searched. The engine is built if all are found (HAVE_CUDNN). Sets
# CUBLASLT_LIBS and, through X_AC_NVCC, NVCC_CODE.
AC_DEFUN([X_AC_CUDNN], [
  X_AC_COMPONENT_ARG([cudnn], [cuDNN], [training on GPUs])
  AS_CASE([$with_cudnn:$x_ac_cuda_found],
    [no:*|check:*|*:yes], [],
    [AC_MSG_ERROR(m4_normalize([
      --with-cudnn: cuDNN needs CUDA, which is off or was not found; install the CUDA toolkit
      (Debian: nvidia-cuda-toolkit) and give --with-cuda, or configure --without-cudnn]))])
  CUBLASLT_LIBS=
  AC_SUBST([CUBLASLT_LIBS])
  X_AC_NVCC
  AS_IF([test "x$with_cudnn" != xno && test "$x_ac_cuda_found" = yes], [
    X_AC_COMPONENT_PREFIXES([cudnn], [x_ac_prefixes], [$x_ac_cuda_prefix])
    CUDNN_CPPFLAGS=$CUDA_CPPFLAGS
    # 9.8 is the first version that creates plans without a handle, as conv-plan.c does.
    X_AC_COMPONENT_FIND([cudnn], [CUDNN], [$x_ac_prefixes],
      [cudnn.h], [[_Static_assert(CUDNN_VERSION >= 90800, "too old"); (void)cudnnGetVersion();]], [-lcudnn])
    AS_IF([test "$x_ac_cudnn_found" = yes], [X_AC_CUBLASLT])
    AS_IF([test "$x_ac_cudnn_found:$x_ac_nvcc_works" = yes:no], [
      x_ac_cudnn_found=no
      x_ac_cudnn_missing="an nvcc that compiles"
    ])
    AS_IF([test "$x_ac_cudnn_found" = yes], [
      X_AC_COMPONENT_VERSION([cudnn], [CUDNN], [cudnn.h], [%d.%d.%d],
        [CUDNN_MAJOR], [CUDNN_MINOR], [CUDNN_PATCHLEVEL])
    ])
  ])
  X_AC_COMPONENT_RESULT([cudnn], [CUDNN], [cuDNN], [cudnn.h and libcudnn 9.8 or newer],
    [install cuDNN with its headers (NVIDIA: cudnn9-cuda-12 or cudnn9-cuda-13)])
])

# cublasLt belongs to the toolkit, but some distributions package it separately.
AC_DEFUN([X_AC_CUBLASLT], [
  AC_MSG_CHECKING([for cublasLt])
  x_ac_save_CPPFLAGS=$CPPFLAGS
  x_ac_save_LIBS=$LIBS
  AS_CASE([$x_ac_cuda_prefix],
    [''], [CUBLASLT_LIBS=-lcublasLt],
    [CUBLASLT_LIBS=`AS_ECHO(["$CUDA_LIBS"]) | $SED 's|-lcudart|-lcublasLt|'`])
  CPPFLAGS="$CUDA_CPPFLAGS $CPPFLAGS"
  LIBS="$CUBLASLT_LIBS $LIBS"
  AC_LINK_IFELSE(
    [AC_LANG_PROGRAM([[#include <cublasLt.h>]], [[(void)cublasLtGetVersion();]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     CUBLASLT_LIBS=
     x_ac_cudnn_found=no
     x_ac_cudnn_missing="cublasLt.h and libcublasLt (Debian: libcublaslt, NVIDIA: libcublas-dev)"])
  CPPFLAGS=$x_ac_save_CPPFLAGS
  LIBS=$x_ac_save_LIBS
])
