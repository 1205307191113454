# SPDX-License-Identifier: Apache-2.0
"""slurm-ddp for Spack.

No release archive exists yet, so the version has no sha256: put the archive of "make dist" in the directory in which you call
"spack install --no-checksum slurm-ddp". The plugin is installed in the package's prefix; copy the line of its
zz-ddp.conf to the cluster's plugstack.conf.

Run: Python compiled this file. Spack has not read it, since neither Debian 12 nor PyPI has Spack.
"""

import os

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class SlurmDdp(AutotoolsPackage):
    """Data-parallel jobs on Slurm: srun --ddp, ddp-run, ddp-info, ddp-train and libddp"""

    manual_download = True
    url = f"file://{os.getcwd()}/slurm-ddp-1.0.0.tar.xz"
    license("Apache-2.0")
    version("1.0.0")

    variant("slurm", default=True, description="Plugin for srun --ddp")
    variant("mpi", default=False, description="MPI for host memory between nodes")
    variant("pmix", default=False, description="Rendezvous through PMIx")
    variant("onednn", default=True, description="oneDNN for ddp-train on CPUs")

    depends_on("c", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.9:", type="run")
    depends_on("slurm", when="+slurm")
    depends_on("mpi", when="+mpi")
    depends_on("pmix", when="+pmix")
    depends_on("onednn@2:", when="+onednn")

    def configure_args(self):
        arguments = ["--without-cuda"]
        for name in "slurm", "pmix", "onednn":
            if self.spec.satisfies(f"+{name}"):
                arguments.append(f"--with-{name}={self.spec[name].prefix}")
            else:
                arguments.append(f"--without-{name}")
        if self.spec.satisfies("+slurm"):
            arguments.append(f"--with-slurm-plugindir={self.prefix.lib.slurm}")
        arguments.append(f"--with-mpi={self.spec['mpi'].mpicc}" if self.spec.satisfies("+mpi") else "--without-mpi")
        return arguments
