#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Check that doc/options.md and doc/variables.md have the text of the option and variable tables, and that the messages of
doc/troubleshooting.md are in the sources.

    tests/tables.py [--write] [BUILD]

The tables are the roff files that the build makes from the *.def files for the manual pages. With --write the two pages are
written. BUILD is the build directory; `make check` gives it in DDP_RUNTIME.
"""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

PAGES = {
    "options.md": ("""# Options

<!-- Made from the option tables by tests/tables.py --write; do not edit. -->
""", [
        ("srun, sbatch and salloc", "spank-plugin/option-table.roff",
         "Options of the plugin. `srun --help` lists them, too: search for `ddp`. Manual page: `spank-ddp(8)`."),
        ("Line of ddp.so in plugstack.conf", "spank-plugin/argument-table.roff", "Arguments for administrators, in `zz-ddp.conf`."),
        ("ddp-run", "runtime/run/run-options-table.roff", "Manual page: `ddp-run(1)`. All other options are srun's."),
        ("ddp-exec", "runtime/exec/exec-options-table.roff", "Manual page: `ddp-exec(1)`."),
        ("ddp-train", "runtime/train/options-table.roff", "Manual page: `ddp-train(1)`."),
    ]),
    "variables.md": ("""# Environment variables

<!-- Made from the variable tables by tests/tables.py --write; do not edit. -->
""", [
        ("Variables that the ranks get", "runtime/contract-table.roff", "Manual page: `man 7 ddp`."),
        ("Variables that libddp reads", "runtime/settings-table.roff", "A value that libddp does not know is an error of `ddp_init()`."),
    ]),
}


def plain(text):
    """The text of a roff line without its fonts and escapes."""
    return re.sub(r"\\f[BIR]", "", text).replace("\\-", "-").replace("\\e", "\\")


def cell(text):
    return text.strip().replace("|", "\\|").replace("<", "&lt;")


def rows(path):
    """(heading, None) and (name, text) of a table in roff, in its order."""
    name, text = None, []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if line == ".TP" or line.startswith(".SS "):
                if name:
                    yield name, " ".join(text)
                name, text = None, []
                if line != ".TP":
                    yield line[4:], None
                continue
            macro = re.match(r"\.(B|BR|BI) (.*)", line)
            line = plain(macro[2].replace('"', "").replace(" (default ", " (default: ") if macro else line)
            if name is None:
                # ".BR NAME (default 600)" and ".BI name= VALUE" join their words.
                name = line.replace("= ", "=") if macro and macro[1] == "BI" else line
            elif macro:
                text.append("`%s`" % line.replace(" .", "").strip())
            else:
                text.append(line)
    if name:
        yield name, " ".join(text)


def page(build, head, sections):
    out = [head]
    for title, path, about in sections:
        out.append(f"## {title}\n\n{about}\n")
        begun = False
        for name, text in rows(os.path.join(build, path)):
            if text is None:
                out.append(f"\n### {name}\n" if begun else f"### {name}\n")
                begun = False
                continue
            if not begun:
                out.append("| name | meaning |\n|---|---|")
                begun = True
            default = re.match(r"(.*?) +\(default: +(.*)\)$", name)
            if default:
                name, text = default[1], f"{text} Default: {default[2]}."
            out.append(f"| `{cell(name)}` | {cell(text)} |")
        out.append("")
    return "\n".join(out)


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
    write = "--write" in sys.argv[1:]
    given = [word for word in sys.argv[1:] if word != "--write"]
    build = given[0] if given else os.path.dirname(os.environ.get("DDP_RUNTIME", os.path.join(TOP, "runtime")))
    wrong = 0
    for piece in unknown_messages():
        print(f"doc/troubleshooting.md: no message has '{piece}'")
        wrong = 1
    for name, (head, sections) in PAGES.items():
        if not all(os.path.exists(os.path.join(build, path)) for _, path, _ in sections):
            print(f"{name}: this build has not made all tables: not checked")
            return 77
        text, path = page(build, head, sections), os.path.join(TOP, "doc", name)
        if write:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            continue
        with open(path, encoding="utf-8") as file:
            if file.read() != text:
                print(f"doc/{name} does not have the text of the tables: run tests/tables.py --write {build}")
                wrong = 1
    return wrong


sys.exit(main())
