# SPDX-License-Identifier: Apache-2.0
"""Write a wheel of an installed prefix: wheel.py PREFIX VERSION TAG DIRECTORY

PREFIX/share/slurm-ddp/python is copied to site-packages, and PREFIX/{bin,lib,libexec} into its package slurm_ddp,
beside the nvidia-* wheels of PyTorch. The rest of PREFIX/share becomes share/ of the environment. Each program of
PREFIX/bin gets an entry point, for which slurm_ddp.__getattr__() returns the program. Prints the path of the wheel.
"""

import base64
import hashlib
import os
import sys
import time
import zipfile

NAME = "slurm_ddp"
PYTHON = "share/slurm-ddp/python"

METADATA = """Metadata-Version: 2.1
Name: slurm-ddp
Version: {version}
Summary: Data-parallel jobs on Slurm: a backend for PyTorch, ddp-run, ddp-info, ddp-train and libddp
License: Apache-2.0
Requires-Python: >=3.9
"""

WHEEL = """Wheel-Version: 1.0
Generator: slurm-ddp contrib/package
Root-Is-Purelib: false
Tag: {tag}
"""


def read_tree(prefix):
    """Yield (name in the wheel, content, mode) of each installed file."""
    for directory, subdirectories, files in os.walk(prefix):
        subdirectories.sort()
        for file in sorted(files):
            path = os.path.join(directory, file)
            name = os.path.relpath(path, prefix)
            top = name.split(os.sep)[0]
            # Wheels cannot contain links, so a library is stored under its soname only.
            if os.path.islink(path):
                if not os.path.basename(os.readlink(path)).startswith(file + "."):
                    sys.exit(f"wheel.py: {path} is a link, which a wheel cannot have")
                if not file.endswith(".so"):
                    yield f"{NAME}/{name}", open(path, "rb").read(), 0o755
            elif name.startswith(PYTHON + os.sep):
                yield os.path.relpath(name, PYTHON), open(path, "rb").read(), 0o644
            elif top == "share":
                yield f"{NAME}-{{version}}.data/data/{name}", open(path, "rb").read(), os.stat(path).st_mode
            elif top in ("bin", "libexec") or (top == "lib" and file.endswith(".so")):
                yield f"{NAME}/{name}", open(path, "rb").read(), os.stat(path).st_mode


def main():
    prefix, version, tag, directory = sys.argv[1:]
    programs = sorted(os.listdir(os.path.join(prefix, "bin")))
    info = f"{NAME}-{version}.dist-info"
    entries = "".join(f"{p} = {NAME}:{p.replace('-', '_')}\n" for p in programs)
    files = [(name.format(version=version), content, mode) for name, content, mode in read_tree(prefix)]
    files += [
        (f"{info}/METADATA", METADATA.format(version=version).encode(), 0o644),
        (f"{info}/WHEEL", WHEEL.format(tag=tag).encode(), 0o644),
        (f"{info}/entry_points.txt", f"[console_scripts]\n{entries}".encode(), 0o644),
    ]
    record = ""
    for name, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files.append((f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode(), 0o644))
    date = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]  # not before 1980
    path = os.path.join(directory, f"{NAME}-{version}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = (0o100000 | mode & 0o777) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    print(path)


main()
