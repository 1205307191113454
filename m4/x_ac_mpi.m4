# SPDX-License-Identifier: Apache-2.0

# X_AC_MPI: find MPI 3, which moves host memory between nodes over fabrics. MPI is given by the name of its compiler
# instead of a prefix; the compiler prints the flags to build with.
AC_DEFUN([X_AC_MPI], [
  AC_ARG_WITH([mpi],
    [AS_HELP_STRING([--with-mpi@<:@=MPICC@:>@],
      [MPI, for host memory between nodes over fabrics @<:@default: if found@:>@])],
    [], [with_mpi=check])
  AS_IF([test "x$with_mpi" = x], [with_mpi=yes])
  x_ac_mpi_found=no
  x_ac_mpi_version=
  x_ac_mpi_where=
  x_ac_mpi_missing=
  AS_CASE([$with_mpi],
    [no], [x_ac_mpicc=],
    [check|yes], [AC_PATH_PROGS([x_ac_mpicc], [mpicc mpicc.openmpi mpicc.mpich])],
    [AC_PATH_PROG([x_ac_mpicc], [$with_mpi])])
  AS_IF([test "x$x_ac_mpicc" != x], [
    # Suppress warnings about its headers.
    for x_ac_word in `$x_ac_mpicc -show 2>/dev/null | $SED 's/^[[^ ]]* //'`; do
      AS_CASE([$x_ac_word],
        [-I*], [AS_VAR_APPEND([MPI_CPPFLAGS], [" -isystem `AS_ECHO([\"$x_ac_word\"]) | $SED s/^-I//`"])],
        [-D*], [AS_VAR_APPEND([MPI_CPPFLAGS], [" $x_ac_word"])],
        [-L*|-l*|-Wl,-rpath*], [AS_VAR_APPEND([MPI_LIBS], [" $x_ac_word"])])
    done
    x_ac_save_CPPFLAGS=$CPPFLAGS
    x_ac_save_LIBS=$LIBS
    X_AC_COMPONENT_TRY([mpi], [MPI], [mpi.h],
      [[MPI_Comm made; MPI_Comm_create_group(MPI_COMM_WORLD, MPI_GROUP_EMPTY, 0, &made);]])
  ])
  AS_IF([test "$x_ac_mpi_found" = yes], [
    X_AC_COMPONENT_VERSION([mpi], [MPI], [mpi.h], [%d.%d.%d],
      [OMPI_MAJOR_VERSION], [OMPI_MINOR_VERSION], [OMPI_RELEASE_VERSION])
    AS_IF([test "$x_ac_mpi_version" = 0.0.0], [
      X_AC_COMPONENT_VERSION([mpi], [MPI], [mpi.h], [%d.%d.%d],
        [MPICH_NUMVERSION / 10000000], [MPICH_NUMVERSION / 100000 % 100],
        [MPICH_NUMVERSION / 1000 % 100])
    ])
    x_ac_mpi_where=$x_ac_mpicc
    # For tests: mpirun must keep the other ranks running when one is lost.
    MPIRUN=`AS_ECHO(["$x_ac_mpicc"]) | $SED 's|mpicc\([[^/]]*\)$|mpirun\1|'`
    AS_IF([$MPIRUN --version 2>&1 | grep -q 'Open MPI'],
      [AS_VAR_APPEND([MPIRUN],
        [" --allow-run-as-root --oversubscribe --enable-recovery --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo"])],
      [AS_VAR_APPEND([MPIRUN], [" -disable-auto-cleanup -genv UCX_TLS tcp,self"])])
  ])
  # mpirun may be missing although the compiler is installed.
  AS_IF([test "$x_ac_mpi_found" = yes && test -x "${MPIRUN%% *}"],
    [AC_DEFINE([HAVE_MPIRUN], [1], [Define to 1 if ranks of MPI can be started here.])])
  AC_SUBST([MPIRUN])
  X_AC_COMPONENT_RESULT([mpi], [MPI], [MPI], [mpicc and MPI 3],
    [install MPI with its headers (Debian: libopenmpi-dev), or give --with-mpi=MPICC])
])
