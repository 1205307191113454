#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""messages.py: print the texts of the C sources that a user may read, as "FILE:LINE: TEXT", so that readers can judge a sample of them.

A text is a string literal with four words or more. Excluded are assertions of the compiler, and the lines of other programs that ddp-run recognizes.
"""
import pathlib
import re

TOP = pathlib.Path(__file__).resolve().parent.parent
TOKEN = re.compile(r'''//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|(?P<text>"(?:\\.|[^"\\])*"(?:\s*(?:PRI\w+\s*)?"(?:\\.|[^"\\])*")*)''', re.DOTALL)


def texts(path):
    source = path.read_text()
    for match in TOKEN.finditer(source):
        text = re.sub(r'"\s*(PRI\w+)?\s*"', "", (match["text"] or "")[1:-1])
        if "_Static_assert(" in source[:match.start()].rpartition(";")[2]:
            continue
        if len(re.findall(r"[A-Za-z%][A-Za-z']+", text)) >= 4 and " " in text:
            yield "%s:%d: %s" % (path.relative_to(TOP), source.count("\n", 0, match.start()) + 1, text)


for path in sorted([*TOP.glob("runtime/**/*.[ch]"), *TOP.glob("spank-plugin/*.[ch]")]):
    if path.name != "patterns.c":
        for line in texts(path):
            print(line)
