#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Check that doc/options.md and doc/variables.md have the text of the option and variable tables, that doc/restarts.md has the
promises of tests/scenarios, and that the messages of doc/troubleshooting.md are in the sources.

    tests/tables.py [--write]

build-aux/tables.awk makes the two pages of the *.def files, as it makes the manual pages. With --write the pages are written.
"""
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

TABLES = ("launch/exec-options.def", "launch/options.def", "run/run-options.def", "train/train-options.def", "contract.def",
          "base/settings.def")

PAGES = {
    "options.md": """\
# Options

<!-- Made from the option tables by tests/tables.py --write; do not edit. -->

## srun, sbatch and salloc

Options of the plugin. `srun --help` lists them, too: search for `ddp`. Manual page: `spank-ddp(8)`.

@OPTION_TABLE@

## Line of ddp.so in plugstack.conf

Arguments for administrators, in `zz-ddp.conf`.

@ARGUMENT_TABLE@

## ddp-run

Manual page: `ddp-run(1)`. All other options are srun's.

@RUN_TABLE@

## ddp-exec

Manual page: `ddp-exec(1)`.

@EXEC_TABLE@

## ddp-train

Manual page: `ddp-train(1)`.

@TRAIN_TABLE@
""",
    "variables.md": """\
# Environment variables

<!-- Made from the variable tables by tests/tables.py --write; do not edit. -->

## Variables that the ranks get

Manual page: `man 7 slurm-ddp`.

@CONTRACT_TABLE@

## Variables that libddp reads

A value that libddp does not know is an error of `ddp_init()`.

@SETTINGS_TABLE@
""",
}


def fill(page):
    """The page with its tables."""
    command = [os.environ.get("AWK", "awk"), "-v", "markdown=1", "-f", os.path.join(TOP, "build-aux", "tables.awk")]
    command += [os.path.join(TOP, "runtime", table) for table in TABLES] + ["-"]
    return subprocess.run(command, input=page, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout


def with_promises(page):
    """The page with the present table of promises."""
    table = subprocess.run([os.path.join(TOP, "tests/scenarios/scenarios"), "--promises"], stdout=subprocess.PIPE, encoding="utf-8",
                           check=True).stdout
    return re.sub(r"(?<=in tests/scenarios/scenarios\. -->\n)(\|.*\n)*", lambda _: table, page)


def literals():
    """All string literals of C, one a line, with a NUL for each conversion of printf."""
    parts = r'"(?:[^"\\]|\\.)*"(?:\s*(?:PRI\w+\s*)?"(?:[^"\\]|\\.)*")*'
    for top in "spank-plugin", "runtime":
        for directory, _, files in os.walk(os.path.join(TOP, top)):
            for name in files:
                if name.endswith((".c", ".h")):
                    with open(os.path.join(directory, name), encoding="utf-8") as file:
                        for text in re.findall(parts, file.read()):
                            text = re.sub(r'"\s*(?:PRI\w+\s*)?"', "", text).replace('\\"', '"')
                            yield re.sub(r"%[-+0#]*\d*(?:\.(?:\*|\d+))?(?:hh?|ll?|z|j)?[a-zA-Z]", "\0", text)


def unknown_messages():
    """Pieces between "..." of the first column of our tables in troubleshooting.md that no source has."""
    sources = "\n".join(literals())
    with open(os.path.join(TOP, "doc", "troubleshooting.md"), encoding="utf-8") as file:
        ours = file.read().split("## Slurm and frameworks")[0]
    for message in re.findall(r"^\| `([^`]*)` \|", ours.split("## The plugin")[1], re.M):
        for piece in re.split(r"\.\.\.|#17", message):
            if len(piece.strip(" ;,:()")) > 7 and piece.strip(" ;,:()") not in sources:
                yield piece


def main():
    write = sys.argv[1:] == ["--write"]
    wrong = 0
    for piece in unknown_messages():
        print(f"doc/troubleshooting.md: no message has '{piece}'")
        wrong = 1
    for name in [*PAGES, "restarts.md"]:
        path = os.path.join(TOP, "doc", name)
        with open(path, encoding="utf-8") as file:
            text = fill(PAGES[name]) if name in PAGES else with_promises(file.read())
        if write:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            continue
        with open(path, encoding="utf-8") as file:
            if file.read() != text:
                print(f"doc/{name} does not have the text of the tables: run tests/tables.py --write")
                wrong = 1
    return wrong


sys.exit(main())
