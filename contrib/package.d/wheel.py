# SPDX-License-Identifier: Apache-2.0
"""Write a wheel of an installed prefix: wheel.py PREFIX VERSION TAG DIRECTORY

PREFIX/{bin,lib,libexec} become the package slurm_ddp in site-packages, beside the nvidia-* wheels of PyTorch.
PREFIX/share becomes share/ of the environment. Each program of PREFIX/bin gets an entry point that replaces
itself with it. Prints the path of the wheel.
"""

import base64
import hashlib
import os
import sys
import time
import zipfile

NAME = "slurm_ddp"

LAUNCHER = '''# SPDX-License-Identifier: Apache-2.0
"""Entry points of slurm-ddp: each replaces itself with the program of its name in bin/."""

import os
import sys


def __getattr__(name):
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "bin", name.replace("_", "-"))
    if not os.path.isfile(path):
        raise AttributeError(name)
    return lambda: os.execv(path, [path, *sys.argv[1:]])
'''

METADATA = """Metadata-Version: 2.1
Name: slurm-ddp
Version: {version}
Summary: Data-parallel jobs on Slurm: ddp-run, ddp-info, ddp-train and libddp
License: Apache-2.0
Requires-Python: >=3.7
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
        (f"{NAME}/__init__.py", LAUNCHER.encode(), 0o644),
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
