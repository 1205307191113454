# SPDX-License-Identifier: Apache-2.0

# X_AC_BASH_COMPLETION: set bashcompletiondir, whose files bash reads when it starts. It is not the directory
# of completions that are loaded by the name of a command: there srun's file belongs to Slurm, and ours
# only adds to its completions.
AC_DEFUN([X_AC_BASH_COMPLETION], [
  AC_ARG_WITH([bash-completion-dir],
    [AS_HELP_STRING([--with-bash-completion-dir=DIR],
      [directory of the bash completion @<:@SYSCONFDIR/bash_completion.d@:>@])],
    [AS_CASE([$withval], [yes|no], [], [X_AC_NEED_DIRECTORY([bash-completion-dir])])],
    [with_bash_completion_dir=yes])
  AS_CASE([$with_bash_completion_dir],
    [yes], [bashcompletiondir='${sysconfdir}/bash_completion.d'],
    [no], [bashcompletiondir=],
    [bashcompletiondir=$with_bash_completion_dir])
  AC_SUBST([bashcompletiondir])
  AM_CONDITIONAL([BASH_COMPLETION], [test "x$bashcompletiondir" != x])
])
